"""What users wait for, in this checkout and in another: processor time, in processes by turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.measure import Namespace, Row, trees

TURNS = 5  # processes of each checkout
_GOAL = "≤ 1.05×"

# It runs in an older checkout too, so it imports nothing from here.
_PROGRAM = """
import json, sys, tempfile, time, warnings
from concurrent.futures import ThreadPoolExecutor

begin = time.process_time()
import memowidgets as mw
found = {"import memowidgets": time.process_time() - begin}
import numpy as np
import torch
from memowidgets.metrics import PSMI, Mahalanobis, loss
from memowidgets.memorization import log_lira


warnings.simplefilter("ignore")
torch.set_num_threads(1)

def timed(name, work, times=3):
    work()
    each = []
    for _ in range(times):
        start = time.process_time()
        work()
        each.append(time.process_time() - start)
    found[name] = min(each)

rng = np.random.default_rng(0)
y = np.arange(6000) % 8
X = (rng.normal(size=(6000, 128)) + rng.normal(size=(8, 128))[y]).astype(np.float32)
rough = torch.from_numpy(X).bfloat16()
psmi = PSMI(256).fit(X, y)
timed("PSMI(256) of 6000 × 128 float32", lambda: PSMI(256).fit(X, y).score_samples(X, y))
timed("the same of a bfloat16 tensor", lambda: PSMI(256).fit(rough, y).score_samples(rough, y))
few = X[:20], y[:20]
timed("PSMI of 20 samples, 200 times", lambda: [psmi.score_samples(*few) for _ in range(200)])
timed("Mahalanobis of the same", lambda: Mahalanobis().fit(X).score_samples(X))
timed("loss of 6000 × 128, 20 times", lambda: [loss(X, y) for _ in range(20)])
members = rng.random((32, 5000)) < 0.5
gaps = rng.normal(size=members.shape) + 3 * members
judged = gaps, members, gaps[0] + 1
timed("log-LiRA of 5000 by 32 models, 50 times", lambda: [log_lira(*judged) for _ in range(50)])
recorded = mw.open_recorded("patients-smollm2")
timed("evaluate PSMI of a recording", lambda: recorded.evaluate("psmi"))
timed("compare its scores", lambda: recorded.compare(), 1)

data = mw.data.load_digits(canaries=0.05, seed=0).take(range(400))
how = dict(training=mw.TrainingConfig(epochs=3, checkpoint_every=1), device="cpu")
with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as one:
    def train(path):
        audit = mw.Audit(mw.models.ConvNet(4), data, path, **how)
        audit.train()
        return audit
    runs = iter(range(99))
    timed("train three epochs with checkpoints", lambda: train(f"{folder}/{next(runs)}"), 2)
    audit = train(folder + "/run")
    start = time.process_time()
    audit.run_shadows(8, one)
    found["train 8 shadow models"] = time.process_time() - start
    audit.score("psmi")
    timed("audit.members, 200 times", lambda: [audit.members for _ in range(200)])
    timed("a kept score, 50 times", lambda: [audit.score("psmi") for _ in range(50)])
    answers = lambda: (audit.flagged(), audit.log_lira())
    timed("flagged and log-LiRA, 20 times", lambda: [answers() for _ in range(20)])
    def opened():
        board = audit.dashboard()
        board.wait(60)
        board.close()
    timed("open a dashboard", opened)
print(json.dumps(found))
"""


def rows(arguments: Namespace) -> list[Row]:
    if arguments.old is None:
        return []
    of_each: list[list[dict[str, float]]] = [[] for _ in trees(arguments)]
    for _ in range(TURNS):
        for found, (code, _which) in zip(of_each, trees(arguments), strict=True):
            found.append(_seconds(code))
    old, here = of_each
    return [_row(work, here, old) for work in here[0] if work in old[0]]


def _row(work: str, here: list[dict[str, float]], old: list[dict[str, float]]) -> Row:
    now = statistics.median(one[work] for one in here)
    before = statistics.median(one[work] for one in old)
    shown = f"{1000 * before:.0f} ms in the other checkout"
    ratio = f"{now / before:.2f}×"
    return Row(f"processor time: {work}", f"{1000 * now:.0f} ms", shown, ratio, _GOAL)


def _seconds(code: str) -> dict[str, float]:
    """Return the processor seconds of each work, in a process of its own."""
    program = [sys.executable, "-c", code + _PROGRAM]
    answer = subprocess.run(program, check=True, capture_output=True, text=True)
    seconds: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return seconds
