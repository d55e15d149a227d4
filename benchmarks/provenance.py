"""Cost of comparing every file of a run with its digest."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved, left_out
from memowidgets import store
from memowidgets.models.pretrained import _known, file_digest
from memowidgets.stamps import fingerprints
from memowidgets.store import tensors

SAMPLES = 14_000


def rows(arguments: Namespace) -> list[Row]:
    """Measure opening a run, writing and reading a checkpoint, and the digest of a model."""
    return [*_opening(), _checkpoint(), *_hashing(arguments.smollm2)]


def _opening() -> list[Row]:
    """Measure opening with the samples, and with numbers only."""
    data = mw.data.make_mcqs(SAMPLES)
    model = mw.models.CausalLM.from_scratch(data, layers=1, width=16)
    with tempfile.TemporaryDirectory() as path:
        mw.Audit(model, data, path, training=mw.TrainingConfig(epochs=1), device="cpu")
        manifest = store.RunDirectory.existing(path).read_manifest()
        known = fingerprints(manifest)
        _without_source(path, manifest)
        opened = {
            "its model and data given": lambda: mw.Audit.open(path, data=data, model=model),
            "its numbers alone": lambda: mw.Audit.open(path),
        }
        return [_open_row(what, work, known) for what, work in opened.items()]


def _without_source(path: str, manifest: dict[str, object]) -> None:
    """Remove the sources, because creating model and data takes far longer than opening."""
    data = dict(manifest["data"]) | {"source": None}  # type: ignore[call-overload]
    store.RunDirectory(path).write_manifest({**manifest, "data": data, "model_source": None})


def _open_row(what: str, work: Callable[[], object], known: tuple[str, str]) -> Row:
    def checked() -> None:
        tensors._digests.clear()  # noqa: SLF001 - as in a fresh process
        work()

    def unchecked() -> None:
        with _no_checks(known):
            work()

    ours, limit = interleaved(checked, unchecked, repeats=21)
    return Row(
        f"opening a run of {SAMPLES} samples, {what}",
        f"{1000 * ours:.1f} ms",
        f"without comparing digests {1000 * limit:.1f} ms",
        f"{ours / limit:.2f}×",
        "≤ 1.1×",
    )


@contextmanager
def _no_checks(known: tuple[str, str]) -> Iterator[None]:
    with (
        mock.patch.object(store, "fingerprints", return_value=known),
        mock.patch.object(store.Tensors, "_verify"),
        mock.patch.object(store.RunDirectory, "read_manifest", _as_it_is(known)),
    ):
        yield


def _as_it_is(known: tuple[str, str]) -> Callable[[store.RunDirectory], object]:
    def read(run: store.RunDirectory) -> object:
        manifest = json.loads((run.path / "manifest.json").read_text())
        manifest.pop("check")
        run._last_read = manifest, known[0]  # noqa: SLF001 - what reading it leaves
        return manifest

    return read


def _checkpoint() -> Row:
    """Measure writing weights of a WideResNet 16-4, with and without their digest."""
    rng = np.random.default_rng(0)
    weights = {f"layer{i}": rng.standard_normal(270_000, np.float32) for i in range(10)}
    with tempfile.TemporaryDirectory() as path:
        run = store.RunDirectory(path)

        def plain() -> None:
            with mock.patch.object(store, "array_digest", return_value="0" * 16):
                run.write_weights("plain", weights)

        ours, limit = interleaved(lambda: run.write_weights("ours", weights), plain, repeats=21)
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
