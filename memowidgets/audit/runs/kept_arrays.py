"""Arrays of a user as files of a run directory: kept, and opened again."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import Evidence
from memowidgets.audit.given import SCORES, Given, checked, evidence_of
from memowidgets.audit.runs import identity
from memowidgets.audit.runs.identity import ARRAYS, is_of_arrays, read_arrays_manifest
from memowidgets.checks import warn_user, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.stamps import Stamp, array_digest, digest
from memowidgets.store import MANIFEST, RunDirectory, StoreError
from memowidgets.visible import quoted

MARK = "arrays.json"
_FILE = "arrays"
_LAYER = "layer."
_SHADOWS = ("shadow_gaps", "shadow_members", "early_shadow_gaps")
_OPTIONAL = ("logits", "log_lira", *_SHADOWS, "reference_gaps")


def kept_arrays(
    given: Given, path: str | os.PathLike[str] | None, seed: int
) -> tuple[Evidence, RunDirectory | None]:
    """Return the evidence in arrays and its folder; with a path, keep them for `Audit.open`.

    Raises
    ------
    ValueError
        If the folder holds the run of a model, or decisions on other samples.
    """
    seed = whole_number("seed", seed)
    if path is None:
        return evidence_of(given, None, seed), None
    run = RunDirectory(path)
    if run.has_file(MANIFEST) and not is_of_arrays(run):
        raise ValueError(f"{run.path} holds a run: choose another folder for your arrays")
    mark = {
        "samples": len(given.data),
        "digest": digest([given.data.ids.tolist(), given.data.labels.tolist()]),
    }
    if not run.has_file(MARK):  # it says whose decisions are there
        run.write_note(MARK, mark)
    elif run.read_note(MARK) != mark:
        raise ValueError(
            f"{run.path} holds decisions on other samples (ids or labels differ): choose another "
            "folder"
        )
    manifest = _described(given, seed)
    stored = read_arrays_manifest(run) if run.has_file(MANIFEST) else None
    known = run.read_tensors(_FILE).stamp if run.has(_FILE) else None
    if stored is not None and isinstance(given.data, WithheldDataset):
        manifest["content"] = stored["content"]  # the samples were given before
    if stored is None or any(stored.get(key) != value for key, value in manifest.items()):
        run.write_manifest(manifest)
        run.forget(SCORES)
    run.hold(read_arrays_manifest(run))
    _keep(run, _arrays_of(given), known)
    return evidence_of(given, run, seed), run


def opened_arrays(run: RunDirectory, data: Any = None) -> tuple[Evidence, RunDirectory]:
    """Open what `kept_arrays` kept.

    Parameters
    ----------
    run : RunDirectory
        Its folder.
    data : Dataset, optional
        The samples, to show them; ids are shown without.

    Raises
    ------
    StoreError
        If a file is missing or broken, or the data are not those of the arrays.
    ValueError
        If the data are not a dataset.
    """
    manifest = read_arrays_manifest(run)
    run.hold(manifest)
    if data is not None:
        _check_data(run, manifest, data)
    kept = run.read_tensors(_FILE)
    layers = {name: kept[_LAYER + name] for name in manifest["layers"]}
    optional = {name: np.array(kept[name]) if name in kept else None for name in _OPTIONAL}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said when the arrays were given
            given = checked(
                kept["labels"],
                layers or None,
                optional["logits"],
                optional["log_lira"],
                data,
                manifest["ids"],
                manifest["data"]["class_names"],
                np.array(kept["canaries"]) if "canaries" in kept else None,
                optional["shadow_gaps"],
                optional["shadow_members"],
                optional["early_shadow_gaps"],
                optional["reference_gaps"],
            )
    except (ValueError, TypeError) as error:
        wrong = "is broken" if data is None else "does not fit these data"
        raise StoreError(f"{run.path / _FILE}.safetensors {wrong}: {error}") from None
    if isinstance(given.data, WithheldDataset):
        given = replace(given, data=replace(given.data, hint="data=…"))
    return evidence_of(given, run, manifest["seed"]), run


def n_given_shadows(run: RunDirectory) -> int:
    """Return the number of shadow models whose gaps were given."""
    kept = run.read_tensors(_FILE)
    return len(kept["shadow_gaps"]) if "shadow_gaps" in kept else 0


def _described(given: Given, seed: int) -> dict[str, Any]:
    """The manifest: seed, names, ids and content hashes; never a sample."""
    return {
        "kind": ARRAYS,
        "seed": seed,
        "layers": list(given.layers),
        "data": {"n": len(given.data), "class_names": list(given.data.class_names)},
        "ids": given.data.ids.tolist(),
        "content": list(given.data.content_hashes()),
    }


def _arrays_of(given: Given) -> dict[str, NDArray[Any]]:
    optional = {name: getattr(given, name) for name in _OPTIONAL}
    optional["canaries"] = given.data.canaries
    return {
        "labels": given.data.labels,
        **{_LAYER + name: values for name, values in given.layers.items()},
        **{name: values for name, values in optional.items() if values is not None},
    }


def _keep(run: RunDirectory, arrays: dict[str, NDArray[Any]], known: Stamp | None) -> None:
    """Write the arrays, unless the very same are there; warn if they replace others."""
    digests = {name: array_digest(np.ascontiguousarray(a)) for name, a in arrays.items()}
    before = {} if known is None else known.arrays
    replaced = [name for name, found in before.items() if digests.get(name) != found]
    if replaced:
        warn_user(
            f"{run.path} held others of these arrays: {', '.join(map(_spoken, replaced))}. They "
            "are replaced, and scores are computed again. Decisions on the samples stay"
        )
        run.forget(SCORES)
    stamp = run.read_tensors(_FILE).stamp if run.has(_FILE) else None
    if stamp is None or stamp.content != Stamp("", arrays=digests).content:
        run.write_tensors(_FILE, arrays)


def _spoken(name: str) -> str:
    """The name of an array as the user gave it."""
    if name.startswith(_LAYER):
        return f"representations of {quoted(name.removeprefix(_LAYER))}"
    return name


def _check_data(run: RunDirectory, manifest: dict[str, Any], data: Any) -> None:
    if not isinstance(data, Dataset):
        raise ValueError(  # noqa: TRY004 - a path is right elsewhere
            f"the arrays in {run.path} were not made from a path: pass the dataset itself as data="
        )
    known = manifest["content"] != manifest["ids"]  # the arrays came with their samples
    content = list(data.content_hashes()) if known else manifest["content"]
    found = {"ids": data.ids.tolist(), "content": content, "data": manifest["data"]}
    differences = identity.data_differences(manifest, found)
    if differences:
        raise ValueError(f"these are not the data of {run.path}: {'; '.join(differences)}")
