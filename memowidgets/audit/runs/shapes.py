"""Check the structure of a run's manifest and design, because the files may be untrusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.precision import COMPUTED
from memowidgets.store import MANIFEST, RunDirectory, StoreError
from memowidgets.training import TrainingConfig
from memowidgets.training.probe import is_probe
from memowidgets.visible import visible

__all__ = [
    "ARRAYS",
    "checked_design",
    "is_of_arrays",
    "read_arrays_manifest",
    "read_manifest",
]

ARRAYS = "arrays"

_MOST_CHECKPOINTS = 100_000
_ALWAYS = ("epochs", "checkpoint_every", "batch_size", "lr", "optimizer", "schedule")
_FUNCTIONS = ("optimizer", "schedule")  # a user's own function is stored as a description

_PLACES = ("pool", "members", "held_out")
_LATER = ("fork", "recording", "probe")  # optional parts

Check = Callable[[Any], bool]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _holds(**checks: Check) -> Check:
    """Return a check of a mapping's entries. A missing entry is checked as None."""
    return lambda value: (
        isinstance(value, dict) and all(fits(value.get(name)) for name, fits in checks.items())
    )


_SHAPE: dict[str, Check] = {
    "seed": lambda value: _whole(value) and value >= 0,
    "model": _mapping,
    "model_source": _or_none(_mapping),
    "layers": lambda value: _texts(value) and bool(value),
    "training": _mapping,
    "data": _holds(class_names=_texts, labels=_text, source=_or_none(_mapping)),
    "members": _text,
    "pool": _text,
    "held_out": _or_none(_text),
    "fork": _or_none(
        _holds(
            parent=_text,
            start=_text,
            checkpoint=_or_none(_text),
            seen=lambda value: _whole(value) and value >= 0,
        )
    ),
    "recording": _or_none(
        lambda value: isinstance(value, dict) and all(map(_text, value.values()))
    ),
    "probe": _or_none(is_probe),
    "ids": _texts,
    "content": _texts,
}

_SHAPE_OF_ARRAYS: dict[str, Check] = {
    **{name: _SHAPE[name] for name in ("seed", "ids", "content")},
    "kind": lambda value: value == ARRAYS,
    "layers": _texts,
    "data": _holds(class_names=_texts),
}


def read_manifest(run: RunDirectory) -> dict[str, Any]:
    """Return the manifest of a run of a model, with the structure that `describe_run` writes.

    Raises
    ------
    StoreError
        If the structure is wrong. The message names the file and the part.
    """
    manifest = run.read_manifest()
    if manifest.get("kind") == ARRAYS:
        raise StoreError(
            f"{run.path} holds an audit of arrays, not the run of a model: choose another path, or "
            "open it with Audit.open"
        )
    _check_shape(run, manifest, _SHAPE)
    _check_training(run, manifest["training"])
    precision = manifest.get("precision")
    if manifest.get("kind") is None and precision not in COMPUTED:  # a watched run has none
        raise StoreError(
            f"{run.path / MANIFEST} names the precision {visible(repr(precision), 40)}; "
            f"valid: {', '.join(COMPUTED)}. Update memowidgets if a newer version wrote it"
        )
    return manifest


def is_of_arrays(run: RunDirectory) -> bool:
    """Return whether a directory holds an audit of arrays; its manifest is not checked further."""
    return bool(run.read_manifest().get("kind") == ARRAYS)


def read_arrays_manifest(run: RunDirectory) -> dict[str, Any]:
    """Read the manifest of an audit of arrays.

    Raises
    ------
    StoreError
        If the structure is wrong. The message names the file and the part.
    """
    manifest = run.read_manifest()
    _check_shape(run, manifest, _SHAPE_OF_ARRAYS)
    return manifest


def _check_shape(run: RunDirectory, manifest: Mapping[str, Any], shape: dict[str, Check]) -> None:
    for name, fits in shape.items():
        if (name not in manifest and name not in _LATER) or not fits(manifest.get(name)):
            raise _broken(run, f"its {name!r} is missing or invalid")
    if len(manifest["ids"]) != len(manifest["content"]):
        raise _broken(run, "its numbers of ids and of contents differ")


def _check_training(run: RunDirectory, training: Mapping[str, Any]) -> None:
    known = {k: v for k, v in training.items() if k in TrainingConfig.__dataclass_fields__}
    lacking = [name for name in _ALWAYS if name not in known]
    if lacking:
        raise _broken(run, f"its training has no {lacking[0]!r}")
    if not all(isinstance(known[name], str) for name in _FUNCTIONS):
        raise _broken(run, "the optimizer or schedule of its training is not a text")
    try:
        config = TrainingConfig(**{k: v for k, v in known.items() if k not in _FUNCTIONS})
        checkpoints = math.ceil((config.epochs or 1) / (config.checkpoint_every or 1))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise _broken(
            run, f"its training settings are invalid: {visible(str(error), 200)}"
        ) from None
    if checkpoints > _MOST_CHECKPOINTS:
        raise _broken(run, f"its training has {checkpoints} checkpoints")


def _broken(run: RunDirectory, why: str) -> StoreError:
    return StoreError(f"{run.path / MANIFEST} is broken: {why}")


def checked_design(
    kept: Mapping[str, NDArray[Any]], path: str, n: int | None = None
) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of ``design.safetensors`` after checking that they are a design.

    `n` is the expected number of samples, or None if it is unknown.

    Raises
    ------
    StoreError
        If an array is missing, has the wrong type or shape, or an index is out of range.
    """
    wrong = _kind_problem(kept) or _size_problem(kept, n) or _place_problem(kept)
    if wrong:
        raise StoreError(f"{path} is broken: {wrong}")
    return kept


def _kind_problem(kept: Mapping[str, NDArray[Any]]) -> str:
    for name in ("labels", *_PLACES, "groups", "all_members"):
        if name not in kept:
            return f"{name} is missing"
        if kept[name].ndim != 1 or kept[name].dtype.kind not in "bi":
            return f"{name} is not a list of integers"
    return ""


def _size_problem(kept: Mapping[str, NDArray[Any]], n: int | None) -> str:
    samples = len(kept["labels"])
    if n is not None and samples != n:
        return f"it has {samples} labels for {n} samples"
    if len(kept["all_members"]) != 1:
        return "all_members is not a single value"
    if "canaries" in kept and kept["canaries"].shape != (samples,):
        return f"it has {len(kept['canaries'])} canaries for {samples} samples"
    return ""


def _place_problem(kept: Mapping[str, NDArray[Any]]) -> str:
    samples = len(kept["labels"])
    for name in _PLACES:
        found = kept[name]
        if len(np.unique(found)) < len(found) or not ((found >= 0) & (found < samples)).all():
            return f"{name} has an index that is out of range or repeated"
    return "" if np.isin(kept["members"], kept["pool"]).all() else "a member is not in the pool"
