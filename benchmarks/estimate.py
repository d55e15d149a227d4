"""Estimates of seconds and disk before any training, compared with what then happens."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import memowidgets as mw
from benchmarks.measure import Namespace, Row, left_out

DIGITS_SHADOWS, WARDS_SHADOWS, CIFAR_SHADOWS = 8, 4, 4
CIFAR_IMAGES, CIFAR_EPOCHS = 1000, 3
GOAL = "within 25 %"


def rows(arguments: Namespace) -> list[Row]:
    digits = mw.data.load_digits(canaries=0.05, seed=0)
    wards = mw.data.make_mcqs(600, seed=0)
    return [
        *_of_one("digits", mw.models.ConvNet(), digits, DIGITS_SHADOWS),
        *_of_one("600 wards", mw.models.CausalLM.from_scratch(wards), wards, WARDS_SHADOWS),
        *_of_cifar(arguments),
    ]


def _of_cifar(arguments: Namespace) -> list[Row]:
    name = f"{CIFAR_IMAGES} images of CIFAR-10"
    if arguments.cifar10 is None:
        return [left_out(f"{name}: estimates", "needs --cifar10 PATH")]
    data = mw.data.fetch_cifar10(arguments.cifar10)
    data = data.take(np.random.default_rng(0).permutation(len(data))[:CIFAR_IMAGES])
    training = mw.TrainingConfig(epochs=CIFAR_EPOCHS)
    return _of_one(name, mw.models.WideResNet(16, 1), data, CIFAR_SHADOWS, training)


def _of_one(
    name: str,
    model: mw.models.Model,
    data: mw.data.Dataset,
    n: int,
    training: mw.TrainingConfig | None = None,
) -> list[Row]:
    with tempfile.TemporaryDirectory() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what was learned
        audit = mw.Audit(model, data, path=path, training=training, device="cpu")
        start = time.perf_counter()
        said = audit.estimate(n)
        took = time.perf_counter() - start
        target = _measured(audit.train, path)
        shadows = _measured(lambda: audit.run_shadows(n), path)
    return [
        Row(f"{name}: `audit.estimate({n})` itself", f"{took:.0f} s"),
        *_compared(f"{name}: the target", said.loc["target"], *target),
        *_compared(f"{name}: {n} shadow models", said.loc["shadow models"], *shadows),
    ]


def _compared(what: str, said: pd.Series, seconds: float, megabytes: float) -> list[Row]:
    return [
        Row(
            f"{what}, seconds",
            f"{said['seconds']:.1f} s",
            f"{seconds:.1f} s",
            f"{said['seconds'] / seconds:.2f}",
            GOAL,
        ),
        Row(
            f"{what}, disk",
            f"{said['disk_mb']:.2f} MB",
            f"{megabytes:.2f} MB",
            f"{said['disk_mb'] / megabytes:.2f}",
            GOAL,
        ),
    ]


def _measured(work: Callable[[], object], path: str) -> tuple[float, float]:
    """Return the seconds of some work, and the MB of disk that it leaves."""
    before, start = _megabytes(path), time.perf_counter()
    work()
    return time.perf_counter() - start, _megabytes(path) - before


def _megabytes(path: str) -> float:
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file()) / 1e6
