"""How many of their five points PSMI and the loss find in "Watch it memorise", over many seeds.

The page opens with seed 0, and each round takes the next seed. So the seeds are 0, 1, 2 and so on,
and none is left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np

from benchmarks.measure import Namespace, Row, left_out

SEEDS = 60
SCRIPT = Path(__file__).with_suffix(".mjs")


def played(seeds: int, *how: str) -> list[dict[str, int]]:
    """Return what each round ends with. "far" rings the points farthest from the middle."""
    command = ["node", str(SCRIPT), str(seeds), *how]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows(_: Namespace) -> list[Row]:
    work = f"memorised of five points, mean over {SEEDS} rounds of “Watch it memorise”"
    if shutil.which("node") is None:
        return [left_out(work, "no Node")]
    found = played(SEEDS)
    psmi, loss = (np.array([one[name] for one in found]) for name in ("psmi", "loss"))
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, SEEDS, (10_000, SEEDS))
    low, high = np.quantile((psmi - loss)[drawn].mean(axis=1), [0.025, 0.975])
    return [
        Row(f"{work}: PSMI", f"{psmi.mean():.1f}", f"{loss.mean():.1f} the loss"),
        Row(
            "PSMI less the loss, 95 % interval over rounds",
            f"{low:+.2f} to {high:+.2f}",
        ),
        Row(
            "rounds in which PSMI finds more, as many, fewer",
            ", ".join(str((np.sign(psmi - loss) == sign).sum()) for sign in (1, 0, -1)),
        ),
    ]
