"""Make the recorded audit "cifar10-wrn": a wide residual network on CIFAR-10 with OOD canaries.

    python -m benchmarks.recorded_cifar --cifar10 PATH --run runs/cifar --shadows 32

If it is stopped, the same command continues. When all shadow models are trained, it scores every
checkpoint, and every layer at the ρ checkpoint. With --export it writes the numbers, but never a
picture.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import memowidgets as mw
from memowidgets.audit.runs.recorded import export
from memowidgets.evaluation import Evaluation
from memowidgets.store import RunDirectory

CANARIES = 0.02
AUDITED = 0.05  # share of ordinary images that are audited, in addition to all canaries
MILESTONES = (
    8 / 9,
    17 / 18,
)  # full rate until ρ, which the loss must not jump over
EARLY = 8  # epoch before ρ at which gaps are stored, too
SEED = 0
ETAS = (4.0, 6.0, 8.0, 10.0)
METRICS = ("psmi", "loss", "logit_gap")
LAST = "features"


def main() -> None:
    """Train, score, export."""
    arguments = _arguments()
    os.nice(arguments.nice)
    audit = make(arguments)
    audit.train()
    print(audit.checkpoints.to_string())
    print(*audit.prediction.warnings, sep="\n")
    if not arguments.shadows:
        return
    for design in arguments.designs:
        fill(audit, arguments, design)
    seconds = _shadow_seconds(audit)
    print(f"{len(seconds)} shadow models, {np.median(seconds):.0f} s each on one core (median)")
    if arguments.export:
        _score_all(audit)
        for rows in tables(audit):
            print(rows.to_string(index=False))
        export(audit.path, arguments.export, _about(audit, arguments), _states(audit))


def fill(audit: mw.Audit, arguments: argparse.Namespace, design: str) -> None:
    """Train the shadow models of a design."""
    paper = design == "canaries"  # every shadow model is the target in turn
    audit.run_shadows(
        arguments.shadows,
        checkpoints=(EARLY, "prediction", "final"),
        design=design,
        keep_forward=paper,
        audited=audited(audit) if paper else None,
        processes=arguments.processes,
    )


def audited(audit: mw.Audit) -> np.ndarray:
    """Return a mask of all canaries and some ordinary images."""
    canaries = np.array(audit.data.canaries)
    ordinary = np.flatnonzero(~canaries)
    drawn = np.random.default_rng(SEED).permutation(ordinary)[: round(AUDITED * len(canaries))]
    return canaries | np.isin(np.arange(len(canaries)), drawn)


def make(arguments: argparse.Namespace) -> mw.Audit:
    """Return the audit, as it is on disk."""
    everything = mw.data.fetch_cifar10(arguments.cifar10)
    arguments.total = len(everything)
    data = some_of(everything, arguments.images, arguments.canaries)
    model = mw.models.WideResNet(arguments.depth, arguments.width, pool=4)
    training = mw.TrainingConfig(
        epochs=arguments.epochs,
        checkpoint_every=arguments.checkpoint_every,
        batch_size=arguments.batch,
        lr=arguments.lr,
        milestones=MILESTONES,
    )
    return mw.Audit(model, data, arguments.run, training, SEED)


def some_of(data: mw.data.ImageDataset, n: int, canaries: int | None) -> mw.data.ImageDataset:
    """Return regularly spaced images, with canaries planted."""
    count = round(CANARIES * n) if canaries is None else canaries
    return data.take(_every(len(data), n)).with_canaries(count, kind="ood", seed=SEED)


def _every(total: int, n: int) -> range:
    step = total // n
    return range(0, step * n, step)


def tables(audit: mw.Audit) -> Iterator[pd.DataFrame]:
    """Yield the paper's table by its protocol, and then for random halves."""
    for design, evaluate in (("canaries", partial(pooled, audit)), ("halves", audit.evaluate)):
        if any(key.split("-")[0] == design for key in audit.shadow_sets):
            audit.use_shadows(design)
            yield table(evaluate)


def pooled(audit: mw.Audit, metric: str, **how: Any) -> Evaluation:
    """Evaluate all pairs; rows by η have ordinary pictures only, as in the paper."""
    return audit.evaluate_pooled(metric, with_canaries="truth" in how, **how)


def table(evaluate: Callable[..., Evaluation]) -> pd.DataFrame:
    """Return a table with rows by η, and a row for the canaries."""
    truths = [(f"η = {eta:g}", {"eta": eta}) for eta in ETAS]
    rows = []
    for name, how in [*truths, ("OOD canaries", {"truth": "canaries"})]:
        try:
            found = [evaluate(metric, **how) for metric in METRICS]
        except ValueError as error:  # no sample, or every sample, is memorised at this η
            print(f"{name}: {error}")
            continue
        at = found[0].at(0.0)
        rows.append(
            {
                "memorised": name,
                "share": f"{found[0].n_memorized / found[0].n:.2%} of {found[0].n}",
                **{m: _with_interval(e) for m, e in zip(METRICS, found, strict=True)},
                "FPR at τ = 0": f"{at.fpr:.2f}",
                "TPR at τ = 0": f"{at.tpr:.2f}",
            }
        )
    return pd.DataFrame(rows)


def _with_interval(found: Evaluation) -> str:
    low, high = found.auc_interval
    return f"{found.auc:.2f} ({low:.2f}–{high:.2f})"


def _score_all(audit: mw.Audit) -> None:
    for checkpoint in audit.checkpoints.index[1:]:
        every = audit.layers if checkpoint == audit.prediction.record.name else (LAST,)
        for layer in every:
            audit.score("psmi", layer, checkpoint)
            audit.score("mahalanobis", layer, checkpoint)


def _states(audit: mw.Audit) -> dict[str, tuple[str, ...]]:
    """Return representations that fit in the package: the features at ρ and at the end."""
    return {audit.prediction.record.name: (LAST,), audit.checkpoints.index[-1]: (LAST,)}


def _about(audit: mw.Audit, arguments: argparse.Namespace) -> dict[str, str]:
    seconds = _shadow_seconds(audit)
    last = audit.checkpoints.iloc[-1]
    n, canaries = len(audit.data), int(audit.data.canaries.sum())
    chosen = _every(arguments.total, n)
    options = f"--images {n} --epochs {arguments.epochs:g} --shadows {arguments.shadows}"
    return {
        "title": f"WRN{arguments.depth}-{arguments.width} on {n} images of CIFAR-10 (JPEG copy), "
        f"{canaries} of them OOD canaries; test accuracy {last.test_accuracy:.2f}",
        "data": f"mw.data.fetch_cifar10(PATH).take({chosen})"
        f'.with_canaries({canaries}, "ood", seed={SEED})',
        "command": f"python -m benchmarks.recorded_cifar --cifar10 PATH --run runs/cifar {options} "
        f"--width {arguments.width} --batch {arguments.batch} --lr {arguments.lr:g} "
        "--export FOLDER",
        "machine": arguments.machine,
        "cost": f"{sum(seconds) / 3600:.1f} core hours for {len(seconds)} shadow models",
    }


def _shadow_seconds(audit: mw.Audit) -> list[float]:
    """Return the seconds of every shadow model of all designs."""
    run = RunDirectory.existing(audit.path)
    found = (run.path / "shadows").rglob("*.safetensors")
    names = [str(file.relative_to(run.path).with_suffix("")) for file in found]
    return [float(run.read_tensors(name).metadata["seconds"]) for name in names]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recorded_cifar", description=__doc__
    )
    parser.add_argument("--cifar10", type=Path, required=True, help="as for fetch_cifar10")
    parser.add_argument("--run", type=Path, required=True, help="run directory, new or old")
    parser.add_argument("--images", type=int, default=10_000, help="number of images, up to 50 000")
    parser.add_argument("--canaries", type=int, help="number of canaries (default: 2 %%)")
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--epochs", type=float, default=18)
    parser.add_argument("--checkpoint-every", type=float, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--shadows", type=int, default=32, help="number; 0 trains only the target")
    parser.add_argument("--designs", nargs="+", default=["halves", "canaries"])
    parser.add_argument("--processes", type=int)
    parser.add_argument("--nice", type=int, default=0, help="nice level of the process")
    parser.add_argument("--machine", default="two cores, no GPU, shared with other work")
    parser.add_argument("--export", type=Path, help="folder for the numbers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
