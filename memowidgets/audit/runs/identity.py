"""What a run is: its description in the manifest, the comparison of two, and its design."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.run import SCRIPT, WATCHED
from memowidgets.checks import has_form, warn_user
from memowidgets.data import Dataset
from memowidgets.extras import installed
from memowidgets.files import digest, digest_of_arrays
from memowidgets.models import Model
from memowidgets.models.device import COMPUTED
from memowidgets.store import MANIFEST, ForeignError, RunDirectory, StoreError
from memowidgets.training import TrainingConfig
from memowidgets.training.config import Settings, is_function
from memowidgets.training.design import Design
from memowidgets.training.lookout import StopRule, write_stop
from memowidgets.training.probe import PROBE, first_apart, make_probe
from memowidgets.vocabulary import listed, quoted, visible

ARRAYS = "arrays"
_MADE_BY = (
    "restore it, or make the audit as before in the same place, which writes it again"
)
# a user's own function is stored as a description
_FUNCTIONS = (
    "optimizer",
    "schedule",
)
_OFF = {"deterministic": False, "version": "none"}  # what a manifest leaves out
_LIBRARIES = ("memowidgets", "torch", "numpy", "scipy", "scikit-learn")
_MOST_CHECKPOINTS = 100_000
_SETTINGS = set(TrainingConfig.__dataclass_fields__) - {*_FUNCTIONS}


# the description


def describe_model(
    model: Model, data: Dataset, design: Design, settings: Settings
) -> dict[str, Any]:
    """Return the part of a manifest that identifies a model, and what user code does."""
    probe = make_probe(model, data, design.pool, settings, len(design.members))
    return {
        "model": dict(model.describe(data)),
        "model_source": model.source,
        "layers": list(model.layer_names(model.skeleton(data))),
        **({"probe": probe} if probe else {}),
    }


def describe_training(settings: Settings, seed: int, precision: str) -> dict[str, Any]:
    """Return the part of a manifest that says how a model is trained, and with what."""
    return {
        "seed": seed,
        "training": settings.as_manifest(),
        "precision": precision,
        "versions": installed(_LIBRARIES),
    }


def describe_recorded(every: float, seed: int) -> dict[str, Any]:
    """Return the same part for a loop that is watched: nothing is known of its settings."""
    return {
        "seed": seed,
        "training": {"checkpoint_every": every},
        "versions": installed(_LIBRARIES),
    }


def describe_data(
    data: Dataset, design: Design, held_out: Dataset | None
) -> dict[str, Any]:
    """Return the part of a manifest that identifies data and split: digests and ids, no sample."""
    return {
        **describe_samples(data),
        **describe_held_out(held_out),
        "members": digest(design.members.tolist()),
        "pool": digest(design.pool.tolist()),
    }


def describe_held_out(held_out: Dataset | None) -> dict[str, Any]:
    """Return what identifies held-out samples that are a dataset of their own."""
    if held_out is None:
        return {"held_out": None}
    labels = digest(held_out.labels.tolist())
    return {"held_out": digest(held_out.content_hashes()), "held_out_labels": labels}


def describe_samples(data: Dataset) -> dict[str, Any]:
    """Return what identifies a dataset, as a part of the manifest."""
    return {
        "data": {
            "n": len(data),
            "class_names": list(data.class_names),
            "labels": digest(data.labels.tolist()),
            "canaries": digest(
                None if data.canaries is None else data.canaries.tolist()
            ),
            "source": data.source,
            "prompts": digest(getattr(data, "prompt_recipe", None)),
        },
        "ids": data.ids.tolist(),
        "content": data.content_hashes(),
    }


def run_digest(manifest: Mapping[str, Any]) -> str:
    """Return a digest of everything that determines what a target has learned."""
    parts = ("model", "training", "probe", "seed", "members", "content", "fork")
    kept = {part: manifest[part] for part in parts if manifest.get(part) is not None}
    kept["data"] = {key: manifest["data"][key] for key in ("labels", "class_names")}
    return digest(
        {
            key: sorted(v.items()) if isinstance(v, dict) else v
            for key, v in kept.items()
        }
    )


# the comparison of two descriptions


_DIGEST = re.compile("(commit )?[0-9a-f]{16,}")
_APART = ("n", "source")  # of data: the same samples may come from elsewhere
_OF_SPLIT = ("seed", "pool", "held_out", "held_out_labels", "members")


def check_same(stored: Mapping[str, Any], given: Mapping[str, Any], path: str) -> None:
    """Raise if two manifests describe different runs.

    Raises
    ------
    ValueError
        If model, data, training, members or seed differ; the message names the first difference.
    """
    if apart := same_run(stored, given):
        raise ValueError(
            f"{path} holds another run: {apart}. Choose another path, or give what the run was "
            "made with"
        )


def same_run(stored: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return the first part in which two manifests differ; empty if they describe one run."""
    there, here = (_OFF | dict(each["training"]) for each in (stored, given))
    for settings in (there, here):
        for name in _FUNCTIONS:  # a function is known by its probe, whatever its name
            if is_function(settings.get(name)):
                settings[name] = "a function"
    there["precision"] = stored.get("precision", there.get("precision"))
    if (
        here.get("precision") == "auto"
    ):  # it means what it meant where the run was begun
        here["precision"] = there["precision"]
    split, given_split = (
        {part: each.get(part) for part in _OF_SPLIT} for each in (stored, given)
    )
    forks = stored.get("fork") or {}, given.get("fork") or {}
    return (
        data_apart(stored, given)
        or _first_apart(stored["model"], given["model"], "model ")
        or _first_apart(there, here, "training ")
        or _first_apart(split, given_split)
        or _first_apart(*forks, "fork ")
        or model_apart(stored, given)  # its probe asks members, under a seed
    )


def data_apart(stored: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return how given data differ from stored ones; empty if they are the same."""
    if len(stored["ids"]) != len(given["ids"]):
        return f"its data have {len(stored['ids'])} samples, these {len(given['ids'])}"
    if stored["ids"] != given["ids"] and sorted(stored["ids"]) == sorted(given["ids"]):
        return "the same ids are in another order; give them in that of ids in manifest.json"
    for what, key in (("id", "ids"), ("content", "content")):
        pairs = zip(given["ids"], stored[key], given[key], strict=True)
        other = [name for name, there, here in pairs if there != here]
        if other:
            return f"{len(other)} samples have another {what}, the first is {quoted(other[0])}"
    there, here = (
        {key: value for key, value in each["data"].items() if key not in _APART}
        for each in (stored, given)
    )
    return _first_apart(there, here, "data ")


def model_apart(stored: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return how models and user code differ; user code by what it does.

    Examples
    --------
    >>> model_apart({"model": {"kind": "A"}}, {"model": {"kind": "B"}})
    'model kind is A there and B here'
    """
    there, here = stored.get("probe"), given.get("probe")
    apart = _first_apart(stored["model"], given["model"], "model ")
    return apart or (first_apart(there, here) if there and here else "")


def _first_apart(
    stored: Mapping[str, Any], given: Mapping[str, Any], of: str = ""
) -> str:
    """Return a sentence on the first entry in which two mappings differ."""
    for key in [*given, *stored]:
        there, here = stored.get(key), given.get(key)
        if there != here:
            what, most = f"{of}{visible(key, 40)}", 300 if key == "settings" else 60
            shown = (
                f"{visible(str(there), most)} there and {visible(str(here), most)} here"
            )
            are_digests = all(map(_DIGEST.fullmatch, (str(there), str(here))))
            return f"other {what} ({shown})" if are_digests else f"{what} is {shown}"
    return ""


def check_held_out(held_out: Dataset, data: Dataset, design: Design) -> None:
    """Raise if held-out samples are unusable.

    Raises
    ------
    ValueError
        If their classes or columns differ from the data's, or a member is among them.
    """
    if held_out.class_names != data.class_names:
        raise ValueError(
            f"the held-out samples have the classes {listed(held_out.class_names)}; the data "
            f"have {listed(data.class_names)}"
        )
    kinds = [
        {
            name: values.dtype.kind
            for name, values in getattr(each, "columns", {}).items()
        }
        for each in (held_out, data)
    ]
    if kinds[0] != kinds[1]:
        raise ValueError(
            "the held-out samples have other columns, or columns of another kind, than the data: "
            f"{listed(kinds[0])} there and {listed(kinds[1])} here"
        )
    hashes = data.content_hashes()
    members = {hashes[i] for i in design.members}
    shared = [i for i, h in enumerate(held_out.content_hashes()) if h in members]
    if shared:
        raise ValueError(
            f"{len(shared)} held-out samples are members too, the first is "
            f"{quoted(held_out.ids[shared[0]])}: nothing would be held out"
        )


# the manifest on disk


def settle(
    run: RunDirectory,
    manifest: Mapping[str, Any],
    trained_on: Dataset,
    design: Design,
    stop: StopRule | None = None,
) -> dict[str, Any]:
    """Begin a run in an empty directory, or check that the directory contains this run.

    Returns the manifest on disk. From now on the directory must keep this manifest.

    Raises
    ------
    ValueError
        If it contains another one. The message names the difference.
    """
    canaries = trained_on.canaries
    arrays = {
        "labels": trained_on.labels,
        "pool": design.pool,
        "members": design.members,
        "held_out": design.held_out,
        "groups": design.groups,
        **({} if canaries is None else {"canaries": canaries}),
    }
    # it comes first: another process may do the same now
    if not run.has_file(MANIFEST):
        run.write_manifest({**manifest, "design": digest_of_arrays(arrays)})
    stored = read_manifest(run)
    check_same(stored, manifest, str(run.path))
    run.hold(stored)
    if not ((run.path / "checkpoints").exists() or run.has_file("rho.json")):
        write_stop(run, stop or StopRule())
    try:
        read_design(run, stored)
    except ForeignError as error:  # it follows from data, members and seed
        if run.has_file("design.safetensors"):
            warn_user(f"{error.fault}; it is made again")
        run.write_tensors("design", arrays)
    return stored


def read_design(run: RunDirectory, manifest: Mapping[str, Any]) -> Design:
    """Read the design that `settle` wrote.

    Raises
    ------
    StoreError
        If it is not a design, or not that of this manifest.
    """
    kept = kept_design(run, manifest)
    return Design(*(kept[name] for name in ("pool", "members", "held_out", "groups")))


def read_member_labels(
    run: RunDirectory, manifest: Mapping[str, Any]
) -> NDArray[np.int64]:
    """Return the labels that the members are trained on, which `settle` wrote.

    Raises
    ------
    StoreError
        As in `read_design`.
    """
    kept = kept_design(run, manifest)
    labels: NDArray[np.int64] = kept["labels"][kept["members"]]
    return labels


def kept_design(
    run: RunDirectory, manifest: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Return the arrays that `settle` wrote, after a check that they are of this run."""
    try:
        file = run.read_tensors("design")
        kept = {name: np.array(array) for name, array in file.items()}
    except StoreError as error:
        raise ForeignError(getattr(error, "fault", str(error)), _MADE_BY) from None
    if digest_of_arrays(kept) != manifest["design"]:
        path = run.path / "design.safetensors"
        raise ForeignError(f"{path} is not the design of this run", _MADE_BY)
    return kept


# the shape of a manifest, whose file may be untrusted


def _or_none(form: object) -> Any:
    return lambda value: value is None or has_form(value, form)


_FORK = {"parent": str, "start": str, "checkpoint": str | None, "seen": int}
_TRAINING = {"epochs": float, "checkpoint_every": float, "batch_size": int, "lr": float}
_SHAPE: dict[str, Any] = {
    "seed": lambda value: has_form(value, int) and value >= 0,
    "model": dict,
    "model_source": dict | None,
    "layers": lambda value: has_form(value, [str]) and bool(value),
    "training": {**_TRAINING, **dict.fromkeys(_FUNCTIONS, str)},
    "precision": lambda value: value in COMPUTED,
    "design": str,
    "data": {"class_names": [str], "labels": str, "source": dict | None},
    "members": str,
    "pool": str,
    "held_out": str | None,
    "fork": _or_none(_FORK),
    "recording": _or_none({str: str}),
    "probe": _or_none(PROBE),
    "ids": [str],
    "content": [str],
}
_SHAPE_OF_WATCHED: dict[str, Any] = {
    name: form for name, form in _SHAPE.items() if name != "precision"
} | {"training": {"checkpoint_every": float}}
# what a script trains is known when it has begun
_SHAPE_OF_SCRIPT: dict[str, Any] = {**_SHAPE_OF_WATCHED, "layers": [str]}
_SHAPE_OF_ARRAYS: dict[str, Any] = {
    **{name: _SHAPE[name] for name in ("seed", "ids", "content")},
    "kind": lambda value: value == ARRAYS,
    "layers": [str],
    "data": {"class_names": [str], "labels": str},
    "arrays": str,
}


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
    return _check_shape(run, run.read_manifest(), _SHAPE_OF_ARRAYS)


def read_manifest(run: RunDirectory) -> dict[str, Any]:
    """Return the manifest of a run of a model.

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
    if manifest.get("kind") == WATCHED:
        return _check_shape(run, manifest, _SHAPE_OF_WATCHED)
    if manifest.get("kind") == SCRIPT:
        return _check_shape(run, manifest, _SHAPE_OF_SCRIPT)
    _check_shape(run, manifest, _SHAPE)
    known = {k: v for k, v in manifest["training"].items() if k in _SETTINGS}
    try:
        TrainingConfig(**known)
        checkpoints = math.ceil(known["epochs"] / known["checkpoint_every"])
    except (ValueError, TypeError, ArithmeticError) as error:
        said = visible(str(error), 200)
        raise _broken_error(run, f"its training settings are invalid: {said}") from None
    if checkpoints > _MOST_CHECKPOINTS:
        raise _broken_error(run, f"its training has {checkpoints} checkpoints")
    return manifest


def _check_shape(
    run: RunDirectory, manifest: dict[str, Any], shape: Mapping[str, Any]
) -> dict[str, Any]:
    wrong = [
        name for name, form in shape.items() if not has_form(manifest.get(name), form)
    ]
    if wrong:
        raise _broken_error(run, f"its {wrong[0]!r} is missing or invalid")
    if len(manifest["ids"]) != len(manifest["content"]):
        raise _broken_error(run, "its numbers of ids and of contents differ")
    return manifest


def _broken_error(run: RunDirectory, why: str) -> StoreError:
    return StoreError(f"{run.path / MANIFEST} is broken: {why}")
