"""Describe a run in its manifest, and name the differences between two runs."""

from __future__ import annotations

import functools
import importlib.metadata
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.run import write_stop
from memowidgets.audit.runs.shapes import checked_design, read_manifest
from memowidgets.data import Dataset
from memowidgets.models import (
    Model,
)
from memowidgets.stamps import digest, digest_of_arrays
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.config import Settings, is_function
from memowidgets.training.design import Design
from memowidgets.training.probe import made_probe, probe_differences
from memowidgets.training.rho import StopRule
from memowidgets.visible import listed, quoted, visible

__all__ = [
    "ASIDE_LABELS",
    "check_held_out",
    "check_same",
    "continued",
    "data_differences",
    "describe_run",
    "described",
    "described_data",
    "function_differences",
    "held_out_digest",
    "model_differences",
    "read_design",
    "read_encoding",
    "repeats",
    "run_digest",
    "settle",
    "write_design",
]

_SETTLED = ("training", "precision")  # once for all, when a run is made
_ENCODING = "encoding."
_FUNCTIONS = ("optimizer", "schedule")
_OFF = {"deterministic": False, "version": "none"}  # what a manifest leaves out
ASIDE_LABELS = "held_out_labels"
_LIBRARIES = ("memowidgets", "torch", "numpy", "scipy", "scikit-learn")


def describe_run(
    model: Model,
    data: Dataset,
    design: Design,
    held_out: Dataset | None,
    settings: Settings,
    seed: int,
    precision: str | None = None,
) -> dict[str, Any]:
    """Return the manifest of a run: hashes, seeds, versions and ids, but no sample."""
    layers, about = _layer_names(model, data), model.describe(data)
    probe = made_probe(model, data, design.pool, settings, len(design.members))
    return {
        **described(about, model.source, layers, data, design, held_out, settings, seed, precision),
        **({"probe": probe} if probe else {}),
    }


def described(
    about_model: Mapping[str, Any],
    model_source: Mapping[str, Any] | None,
    layers: Sequence[str],
    data: Dataset,
    design: Design,
    held_out: Dataset | None,
    settings: Settings,
    seed: int,
    precision: str | None = None,
) -> dict[str, Any]:
    """The manifest of a run, for a model of which this is known."""
    return {
        "seed": seed,
        "model": dict(about_model),
        "model_source": model_source,
        "layers": list(layers),
        "training": settings.described(),
        **({} if precision is None else {"precision": precision}),
        "data": {
            "n": len(data),
            "class_names": list(data.class_names),
            "labels": digest(data.labels.tolist()),
            "canaries": digest(None if data.canaries is None else data.canaries.tolist()),
            "source": data.source,
            "prompts": digest(getattr(data, "prompt_recipe", None)),
        },
        "members": digest(design.members.tolist()),
        "pool": digest(design.pool.tolist()),
        "held_out": None if held_out is None else held_out_digest(held_out),
        **({} if held_out is None else {ASIDE_LABELS: digest(held_out.labels.tolist())}),
        "versions": dict(_library_versions()),
        "ids": data.ids.tolist(),
        "content": data.content_hashes(),
    }


def repeats(device: str, settings: Settings) -> dict[str, str]:
    """Return how equal another training of the run would be on the machine that it begins on."""
    exact = settings.deterministic or device == "cpu"
    return {"repeats": "bit for bit" if exact else "to rounding"}


@functools.cache
def _library_versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, importlib.metadata.version(name)) for name in _LIBRARIES)


def held_out_digest(held_out: Dataset) -> str:
    """Return a digest of a held-out dataset."""
    return digest(held_out.content_hashes())


def run_digest(manifest: Mapping[str, Any]) -> str:
    """Return a digest of everything that determines what a target has learned."""
    parts = ("model", "training", "probe", "seed", "members", "content", "fork")
    kept = {part: manifest[part] for part in parts if manifest.get(part) is not None}
    kept["data"] = {key: manifest["data"][key] for key in ("labels", "class_names")}
    return digest({key: sorted(v.items()) if isinstance(v, dict) else v for key, v in kept.items()})


def check_same(stored: Mapping[str, Any], given: Mapping[str, Any], path: str) -> None:
    """Raise if two manifests describe different runs.

    Raises
    ------
    ValueError
        If model, data, training, members or seed differ; the message names the difference.
    """
    differences = [
        *data_differences(stored, given),
        *model_differences(stored["model"], given["model"]),
        *function_differences(stored, given),
        *_field_differences("training", *_trainings(stored, given)),
        *_plain_differences(stored, given),
    ]
    if differences:
        raise ValueError(
            f"{path} holds another run: {'; '.join(differences)}. Choose another path, or give "
            "what the run was made with"
        )


def continued(run: RunDirectory, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the settings that an existing run in the directory has fixed.

    Raises
    ------
    ValueError
        If the directory contains another run. The message names the difference.
    StoreError
        If its manifest cannot be read.
    """
    if run.is_empty:
        return dict(manifest)
    stored = read_manifest(run)
    check_same(stored, manifest, str(run.path))
    others = {key: value for key, value in manifest.items() if key not in _SETTLED}
    return others | {key: stored[key] for key in _SETTLED if key in stored}


def settle(
    run: RunDirectory, manifest: Mapping[str, Any], trained_on: Dataset, design: Design
) -> dict[str, Any]:
    """Begin a run in an empty directory, or check that the directory contains this run.

    Returns the manifest on disk. From now on the directory must keep this manifest.

    Raises
    ------
    ValueError
        If it contains another one. The message names the difference.
    """
    if run.is_empty:
        kept = digest_of_arrays(_design_arrays(trained_on, design))
        run.write_manifest(
            {**manifest, "design": kept}
        )  # first, because another process may do the same now
    stored = read_manifest(run)
    check_same(stored, manifest, str(run.path))
    run.hold(stored)
    if not ((run.path / "checkpoints").exists() or run.has_file("rho.json")):
        write_stop(run, StopRule())
    if _needs_design(run, stored):
        write_design(run, trained_on, design)
    return stored


def function_differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return sentences on how the user's functions differ, by what they do.

    Examples
    --------
    >>> run = {"model": {}, "probe": {"schedule": [1.0, 0.5, 0.0]}}
    >>> function_differences(run, {"model": {}, "probe": {"schedule": [1.0, 0.6, 0.0]}})
    ["the schedule's factor is 0.5 there and 0.6 here at 50% of the training"]
    """
    has_version = bool(given["model"].get("version"))
    there, here = stored.get("probe", {}), given.get("probe", {})
    return probe_differences(there, here, has_version=has_version)


def _needs_design(run: RunDirectory, manifest: Mapping[str, Any]) -> bool:
    """Return whether the design must be written. It follows from data, members and seed."""
    try:
        read_design(run, manifest)
    except StoreError as error:
        if run.has_file("design.safetensors"):
            warnings.warn(f"{error}; it is made again", UserWarning, stacklevel=4)
        return True
    return False


def _trainings(
    stored: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of two runs, with "auto" replaced by the stored run's precision."""
    there, here = _OFF | stored["training"], _OFF | given["training"]
    for settings in (there, here):
        for name in _FUNCTIONS:  # a function is known by its probe, whatever its name
            settings[name] = "a function" if is_function(settings[name]) else settings[name]
    there["precision"] = stored.get("precision", there["precision"])
    if here["precision"] == "auto":
        here["precision"] = there["precision"]
    return there, here


def write_design(run: RunDirectory, data: Dataset, design: Design) -> None:
    """Write the members, the pool, the held-out samples and the labels."""
    run.write_tensors("design", _design_arrays(data, design))


def _design_arrays(data: Dataset, design: Design) -> dict[str, NDArray[Any]]:
    canaries = data.canaries
    tensors = {
        "labels": data.labels,
        "pool": design.pool,
        "members": design.members,
        "held_out": design.held_out,
        "groups": design.groups,
        "all_members": np.array([design.all_members]),
    }
    encoding = {_ENCODING + name: array for name, array in data.encoding.items()}
    return tensors | encoding | ({} if canaries is None else {"canaries": canaries})


def read_design(run: RunDirectory, manifest: Mapping[str, Any]) -> Design:
    """Read the design that `write_design` wrote.

    Raises
    ------
    StoreError
        If it is not the design of this manifest.
    """
    path, file = run.path / "design.safetensors", run.read_tensors("design")
    read = {name: np.array(array) for name, array in file.items()}
    kept = checked_design(read, str(path), len(manifest["ids"]))
    if file.stamp is None or file.stamp.content != manifest.get("design"):
        raise StoreError(
            f"{path} is not the design of this run: its contents differ from the manifest's. "
            "Restore it, or make the audit again with mw.Audit(model, data, path=…)"
        )
    return Design(
        kept["pool"],
        kept["members"],
        kept["held_out"],
        kept["groups"],
        all_members=bool(kept["all_members"][0]),
    )


def read_encoding(run: RunDirectory) -> dict[str, NDArray[Any]]:
    """Return the encoding that all models of a run share; empty if its samples need none."""
    kept = run.read_tensors("design")
    names = [name for name in kept if name.startswith(_ENCODING)]
    return {name.removeprefix(_ENCODING): np.array(kept[name]) for name in names}


def described_data(data: Dataset) -> dict[str, Any]:
    """Return what identifies a dataset, as a part of the manifest."""
    return {
        "ids": data.ids.tolist(),
        "content": data.content_hashes(),
        "data": {
            "class_names": list(data.class_names),
            "labels": digest(data.labels.tolist()),
            "canaries": digest(None if data.canaries is None else data.canaries.tolist()),
            "prompts": digest(getattr(data, "prompt_recipe", None)),
        },
    }


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
    if _columns(held_out) != _columns(data):
        raise ValueError(
            "the held-out samples have other columns, or columns of another kind, than the data: "
            f"{listed(_columns(held_out))} there and {listed(_columns(data))} here"
        )
    hashes = data.content_hashes()
    members = {hashes[i] for i in design.members}
    shared = [i for i, h in enumerate(held_out.content_hashes()) if h in members]
    if shared:
        raise ValueError(
            f"{len(shared)} held-out samples are members too, the first is "
            f"{quoted(held_out.ids[shared[0]])}: nothing would be held out"
        )


def _columns(data: Dataset) -> list[str]:
    """Names of a table's columns, with their kinds; empty for other data."""
    columns: Mapping[str, NDArray[Any]] = getattr(data, "columns", {})
    kinds = {True: "number", False: "category"}
    return [f"{name} ({kinds[values.dtype.kind == 'f']})" for name, values in columns.items()]


def _layer_names(model: Model, data: Dataset) -> tuple[str, ...]:
    return model.layer_names(model.skeleton(data))


def data_differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return sentences on how given data differ from stored ones; empty if they are the same."""
    if len(stored["ids"]) != len(given["ids"]):
        return [f"its data have {len(stored['ids'])} samples, these {len(given['ids'])}"]
    if stored["ids"] != given["ids"] and sorted(stored["ids"]) == sorted(given["ids"]):
        return ["the same ids are in another order; give them in that of ids in manifest.json"]
    for what, key in (("id", "ids"), ("content", "content")):
        other = [
            i
            for i, pair in enumerate(zip(stored[key], given[key], strict=True))
            if pair[0] != pair[1]
        ]
        if other:
            first = given["ids"][other[0]]
            return [f"{len(other)} samples have another {what}, the first is {quoted(first)}"]
    return [
        f"the data's {what} differ"
        for what, key in _PARTS.items()
        if stored["data"].get(key) != given["data"].get(key)
    ]


_PARTS = {
    "class names": "class_names",
    "labels": "labels",
    "canaries": "canaries",
    "prompts": "prompts",
}


def _field_differences(what: str, stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    return [
        f"{what} {visible(key, 40)} is {_short(stored.get(key), key)} there and "
        f"{_short(given.get(key), key)} here"
        for key in sorted(stored.keys() | given.keys())
        if stored.get(key) != given.get(key)
    ]


def model_differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return differences as `_field_differences` does, except for fields that old runs lack."""
    # Some versions of transformers did not tell the commit.
    stored = {key: value for key, value in stored.items() if value != "commit None"}
    known = {key: value for key, value in given.items() if key not in _ORIGIN or key in stored}
    origin = [
        f"{_ORIGIN[key]} (digest {stored[key]} there and {known.get(key)} here)"
        for key in sorted(_ORIGIN.keys() & stored.keys())
        if stored[key] != known.get(key)
    ]
    there = {key: value for key, value in stored.items() if key not in _ORIGIN}
    here = {key: value for key, value in known.items() if key not in _ORIGIN}
    return [*origin, *_field_differences("model", there, here)]


_ORIGIN = {
    "weights": "the base weights differ",
    "recipe": "the configuration or the tokenizer of the base model differs",
    "tokenizer": "the tokenizer differs",
    "processor": "the image processor differs",
}


def _plain_differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    found = []
    if stored["seed"] != given["seed"]:
        found.append(f"its seed is {stored['seed']}, this one {given['seed']}")
    elif stored["members"] != given["members"]:
        found.append("it has other members")
    if stored["held_out"] != given["held_out"] or stored["pool"] != given["pool"]:
        found.append("it has other held-out samples")
    elif ASIDE_LABELS in stored and stored[ASIDE_LABELS] != given.get(ASIDE_LABELS):
        found.append("its held-out samples have other labels")
    if _fork_of(stored, stored) != _fork_of(given, stored):
        found.append(f"{_forked(stored)}, this one {_forked(given).removeprefix('it ')}")
    return found


def _short(value: Any, key: str = "") -> str:
    """A setting of a run that anybody may have made."""
    return visible(str(value), 300 if key == "settings" else 60)


def _fork_of(manifest: Mapping[str, Any], stored: Mapping[str, Any]) -> Any:
    """What a fork is, as far as the version that wrote the stored one noted it."""
    fork, noted = manifest.get("fork"), stored.get("fork") or {}
    return fork and {key: fork[key] for key in fork if key in noted or key != "gone"}


def _forked(manifest: Mapping[str, Any]) -> str:
    """How a run began, so that two of them can be told apart."""
    fork = manifest.get("fork")
    if not fork:
        return "it is no fork"
    start = fork["checkpoint"] or fork["start"]
    return f"it is a fork, from {_short(start)}, of the run {_short(fork['parent'])}"
