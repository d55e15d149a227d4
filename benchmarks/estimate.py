"""Estimates of seconds and disk, each before its training, compared with what then happens."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import memowidgets as mw
from benchmarks.measure import Namespace, Row, left_out

REPEATS, SHADOWS = 3, 4
DIGITS_EPOCHS, WARDS, WARDS_EPOCHS, CIFAR_IMAGES, CIFAR_EPOCHS = 20, 200, 10, 400, 2
GOAL = "within 25 %"

# Seconds and MB that were said, and those that then happened.
Pairs = dict[str, list[tuple[float, float]]]


def rows(arguments: Namespace) -> list[Row]:
    digits = mw.data.load_digits(canaries=0.05, seed=0)
    wards = mw.data.make_mcqs(WARDS, seed=0)
    causal = mw.models.CausalLM.from_scratch(wards)
    return [
        *_of_one("digits", mw.models.ConvNet(), digits, DIGITS_EPOCHS),
        *_of_one(f"{WARDS} wards", causal, wards, WARDS_EPOCHS),
        *_of_cifar(arguments),
    ]


def _of_cifar(arguments: Namespace) -> list[Row]:
    name = f"{CIFAR_IMAGES} images of CIFAR-10"
    if arguments.cifar10 is None:
        return [left_out(f"{name}: estimates", "needs --cifar10 PATH")]
    data = mw.data.fetch_cifar10(arguments.cifar10)
    data = data.take(np.random.default_rng(0).permutation(len(data))[:CIFAR_IMAGES])
    return _of_one(name, mw.models.WideResNet(16, 1), data, CIFAR_EPOCHS)


def _of_one(name: str, model: mw.models.Model, data: mw.data.Dataset, epochs: int) -> list[Row]:
    """Compare several estimates, each with the work right after it, because load changes."""
    seconds, disk = Pairs(), Pairs()
    training = mw.TrainingConfig(epochs=epochs)
    took = [_once(model, data, training, seconds, disk) for _ in range(REPEATS)]
    return [
        Row(f"{name}: `audit.estimate({SHADOWS})` itself", f"{np.median(took):.0f} s"),
        *(_row(f"{name}: the {what}, seconds", pairs, "s") for what, pairs in seconds.items()),
        *(_row(f"{name}: the {what}, disk", pairs, "MB") for what, pairs in disk.items()),
    ]


def _once(
    model: mw.models.Model,
    data: mw.data.Dataset,
    training: mw.TrainingConfig,
    seconds: Pairs,
    disk: Pairs,
) -> float:
    """Add what is said of the target and of shadow models, and what then happens."""
    with tempfile.TemporaryDirectory() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what was learned
        audit = mw.Audit(model, data, path=path, training=training, device="cpu")
        start = time.perf_counter()
        target = audit.estimate(SHADOWS).loc["target"]
        took = time.perf_counter() - start
        then = {"target": (target, _measured(audit.train, path))}
        shadows = audit.estimate(SHADOWS).loc["shadow models"]  # of a known prediction checkpoint
        then["shadow models"] = shadows, _measured(lambda: audit.run_shadows(SHADOWS), path)
    for what, (said, measured) in then.items():
        for pairs, column, real in zip(
            (seconds, disk), ("seconds", "disk_mb"), measured, strict=True
        ):
            pairs.setdefault(what, []).append((said[column], real))
    return took


def _row(what: str, pairs: list[tuple[float, float]], unit: str) -> Row:
    """Return the row of the repeat whose estimate is the median one, as a ratio."""
    ordered = sorted(pairs, key=lambda pair: pair[0] / pair[1])
    said, then = ordered[len(ordered) // 2]
    low, high = (one / other for one, other in (ordered[0], ordered[-1]))
    digits = 1 if unit == "s" else 2
    return Row(
        what,
        f"{said:.{digits}f} {unit}",
        f"{then:.{digits}f} {unit}",
        f"{said / then:.2f} ({low:.2f} to {high:.2f})",
        GOAL,
    )


def _measured(work: Callable[[], object], path: str) -> tuple[float, float]:
    """Return the seconds of some work, and the MB of disk that it leaves."""
    before, start = _megabytes(path), time.perf_counter()
    work()
    return time.perf_counter() - start, _megabytes(path) - before


def _megabytes(path: str) -> float:
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file()) / 1e6
