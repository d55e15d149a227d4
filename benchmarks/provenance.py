"""Cost of the digests of weights, by which what comes from them is found."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.measure import Namespace, Row, interleaved, left_out
from memowidgets.files import digest_of_arrays
from memowidgets.models.pretrained import _known, file_digest
from memowidgets.store import RunDirectory


def rows(arguments: Namespace) -> list[Row]:
    """Measure writing a checkpoint, and the digest of a model."""
    return [_checkpoint(), *_hashing(arguments.smollm2)]


def _checkpoint() -> Row:
    """Measure writing weights of a WideResNet 16-4, with and without their digest."""
    rng = np.random.default_rng(0)
    weights = {f"layer{i}": rng.standard_normal(270_000, np.float32) for i in range(10)}
    with tempfile.TemporaryDirectory() as path:
        run = RunDirectory(path)

        def plain() -> None:
            run.write_tensors("plain", weights)

        def keyed() -> None:
            run.write_tensors("ours", weights, of=digest_of_arrays(weights))

        ours, limit = interleaved(keyed, plain, repeats=21)
    return Row(
        "keeping a checkpoint of 2.7 M weights",
        f"{1000 * ours:.0f} ms",
        f"without its digest {1000 * limit:.0f} ms",
        f"{ours / limit:.2f}×",
    )


def _hashing(folder: Path | None) -> list[Row]:
    if folder is None:
        return [left_out("the digest of SmolLM2's weights", "needs --smollm2")]
    file = folder / "model.safetensors"
    with (
        tempfile.TemporaryDirectory() as cache,
        mock.patch.dict(os.environ, {"MEMOWIDGETS_CACHE": cache}),
    ):

        def anew() -> None:
            _known.clear()
            file_digest(file)

        ours, limit = interleaved(anew, lambda: _in_one_thread(file), repeats=5)
        start = time.perf_counter()
        file_digest(file)
        again = time.perf_counter() - start
    size = f"{file.stat().st_size / 1e6:.0f} MB"
    return [
        Row(
            f"the digest of {size} of weights, once",
            f"{ours:.2f} s",
            f"hashlib's SHA-256 in one thread {limit:.2f} s",
            f"{ours / limit:.2f}×",
            "≤ 1 s",
        ),
        Row(f"the digest of {size} of weights, remembered", f"{1000 * again:.2f} ms"),
    ]


def _in_one_thread(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
