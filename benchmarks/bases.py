"""Shadow models of SmolLM2 with the frozen weights that a worker keeps, beside another checkout.

One process of each checkout trains its target, waits, and trains shadow models when it is told to.
The checkouts take turns, because the machine's speed varies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.measure import Namespace, Row, left_out

WORK = "shadow models of SmolLM2 with top:4"
MODELS, PROCESSES, QUESTIONS, TURNS = 16, 2, 64, 3

# It runs in an older checkout too, so it imports nothing from here.
_PROGRAM = """
import json, resource, sys, tempfile, time
import memowidgets as mw

folder, questions, models, processes = json.loads(sys.argv[1])
model = mw.models.CausalLM.from_pretrained(folder, mw.models.LoRA(layers="top:4"), max_length=2048)
data = mw.data.make_mcqs(questions)
with tempfile.TemporaryDirectory() as place:
    audit = mw.Audit(model, data, path=place + "/run", device="cpu", held_out=None)
    audit.train()
    n = 0
    for _line in sys.stdin:
        cpu, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        n += models
        audit.run_shadows(n, processes=processes)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
        print(json.dumps([time.perf_counter() - wall, used]), flush=True)
"""


def rows(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None or arguments.old is None:
        return [left_out(WORK, "needs --smollm2 FOLDER and --old CHECKOUT")]
    what = [str(arguments.smollm2), QUESTIONS, MODELS, PROCESSES]
    here = Path(__file__).parents[1]
    running = [_started(tree, what) for tree in (here, arguments.old)]
    try:
        turns = [[_turn(process) for process in running] for _ in range(TURNS)]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    new, old = (np.array([turn[i] for turn in turns]) for i in range(2))
    named = (
        f"{MODELS} {WORK} on {PROCESSES} processes of one thread, {QUESTIONS} questions"
    )
    parts = ("seconds", "seconds of the workers' processors")
    return [
        Row(
            f"{named}: {part}, median of {TURNS} pairs",
            f"{np.median(new[:, i]):.0f} s",
            f"{np.median(old[:, i]):.0f} s in the other checkout",
            f"{np.median(new[:, i] / old[:, i]):.2f}×",
            "≤ .8×",
        )
        for i, part in enumerate(parts)
    ]


def _started(tree: Path, what: list[object]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _PROGRAM, json.dumps(what)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, cwd=tree, **pipes)


def _turn(process: subprocess.Popen[str]) -> list[float]:
    process.stdin.write("\n")
    process.stdin.flush()
    said = process.stdout.readline()
    if not said:
        raise RuntimeError(f"a checkout's program ended with code {process.wait()}")
    return json.loads(said)
