"""Write the numbers of a run as a recording, for `python -m benchmarks.recorded --export`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.run import read_names
from memowidgets.audit.runs.identity import read_manifest, read_member_labels
from memowidgets.audit.runs.opening import data_again
from memowidgets.files import (
    checksum,
    fingerprints,
    make_private,
    write_whole,
)
from memowidgets.metrics import logit_gap
from memowidgets.store import (
    RECORDING,
    REVISION,
    RunDirectory,
    StoreError,
    Tensors,
    run_at,
)
from memowidgets.store.tensors import Label, whole_file

if TYPE_CHECKING:
    import os

_NOTES = ("rho.json", "shadows.json", "trainer.json")
_SCORES: dict[str, type[np.generic]] = {
    "rows": np.int32,
    "score": np.float32,
    "error": np.float16,
}


@dataclass(frozen=True)
class PackedFile:
    """What one file of a run directory is in a recording.

    Attributes
    ----------
    arrays : dict of array
        The arrays, as they are to be read.
    stored : dict of dtype
        Types that arrays are kept in, by name; those that are missing are kept as they are. Reading
        turns them back, so an array in float16 is read as float32 if it was given as such.
    metadata : dict of str
        Text beside the arrays.
    of : str
        Digest of the weights behind them.
    """

    arrays: Mapping[str, NDArray[Any]]
    stored: Mapping[str, type[np.generic]]
    metadata: Mapping[str, str]
    of: str = ""


def export(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    about: Mapping[str, str],
    layers: Collection[str] | None = None,
) -> None:
    """Write the numbers of a run without its samples, weights and paths, as small as possible.

    Data that the package generates, such as those of `make_patients`, are not written either, but
    generated again whenever the recording is opened. Digests hold them to what was recorded.

    The ground truth at the end of training stays exact, and kept scores are in float32. Hidden
    states are there at the prediction checkpoint alone, in float16. Logits are there at that
    checkpoint, and in float16 at the last one; beside the latter, and at all others, are the
    members' logit gaps, losses and guesses. Of shadow models there are the gaps at these two
    checkpoints, those of the former in float16, and so are losses and standard errors.

    Parameters
    ----------
    path : path-like
        Directory of a run that is trained, with its shadow models, reference models and scores.
    folder : path-like
        New folder.
    about : mapping
        Title, how to get the data, the command, the machine.
    layers : collection of str, optional
        Layers whose hidden states are kept. Default: the last.

    Raises
    ------
    StoreError
        If the folder holds something.
    """
    run, target = run_at(path), Path(folder)
    if target.exists() and any(target.iterdir()):
        raise StoreError(f"{target} is not empty: choose a new folder")
    manifest = read_manifest(run)
    run.hold(manifest)
    names = read_names(run, manifest, read_member_labels(run, manifest))
    records = [record.name for record in names.found]
    design = run.read_tensors("design")
    labels = design["labels"][design["members"]]
    kept_layers = manifest["layers"][-1:] if layers is None else layers
    of_layers = tuple(f"layer.{name}" for name in kept_layers)
    prediction, files = names.prediction().record.name, {}
    at_prediction = [
        run.read_tensors(name)
        for name in (f"forward/{prediction}", f"checkpoints/{prediction}/outputs")
        if run.has(name)
    ]
    of_more_tokens = (
        any(  # the loss of a language model: it does not tell the probability
            not np.allclose(
                np.log(_of_label(kept["logits"], labels)), -kept["losses"], atol=1e-4
            )
            for kept in at_prediction
        )
    )
    for place in sorted(run.path.rglob("*.safetensors")):
        name = place.relative_to(run.path).with_suffix("").as_posix()
        if not _is_recorded(run, name):
            continue
        kept = run.read_tensors(name)
        arrays, stored = _smaller(
            name,
            kept,
            labels,
            prediction,
            records[-1],
            of_layers,
            keeps_answers=of_more_tokens,
        )
        files[name] = PackedFile(arrays, stored, kept.metadata, kept.of)
    notes = [*_NOTES, *(f"checkpoints/{name}/record.json" for name in records)]
    there = {name: run.read_note(name) for name in notes if run.has_file(name)}
    manifest["model_source"] = None
    if data_again(manifest) is None:
        manifest["data"]["source"] = None
    manifest["recording"] = dict(about)
    pack(target, manifest, files, there)


def _is_recorded(run: RunDirectory, name: str) -> bool:
    """Return whether a file of arrays is of use without weights; of two passes one is enough."""
    kind, *_, last = name.split("/") if "/" in name else (name, "")
    if last == "outputs":
        return not run.has(f"forward/{name.split('/')[1]}")
    if last == "held_out":
        return True
    if kind == "targets":
        return "/scores/" in name or name.startswith("targets/first/")
    return kind in ("design", "forward", "scores", "shadows", "references")


def _of_label(
    logits: NDArray[np.float32], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    from scipy.special import softmax

    of_classes: NDArray[np.float64] = softmax(logits.astype(np.float64), axis=1)
    return of_classes[np.arange(len(labels)), labels]


def _smaller(
    name: str,
    kept: Tensors,
    labels: NDArray[np.int64],
    prediction: str,
    last: str,
    layers: tuple[str, ...],
    *,
    keeps_answers: bool,
) -> tuple[dict[str, NDArray[Any]], dict[str, type[np.generic]]]:
    """Return what a recording keeps of a file, and the types that it keeps it in."""
    arrays = {key: kept[key] for key in kept}
    if "scores" in name.split("/"):
        return arrays, _SCORES
    if name.startswith("shadows/"):
        gaps = (f"gap.{prediction}", f"gap.{last}")
        arrays = {
            key: values
            for key, values in arrays.items()
            if not key.startswith(("gap.", "forward.layer.", "forward.logits"))
            or key in gaps
        }
        return arrays, {
            key: np.float16
            for key, values in arrays.items()
            if values.dtype == np.float32 and key != f"gap.{last}"
        }
    if "logits" in arrays:
        checkpoint = name.split("/")[1]
        found = {"losses": arrays["losses"]}
        if checkpoint in (prediction, last):
            found["logits"] = arrays["logits"]
        if checkpoint != prediction:
            found["gaps"] = logit_gap(arrays["logits"], labels).astype(np.float32)
            found["guess"] = arrays["logits"].argmax(axis=1).astype(np.uint16)
            if keeps_answers:
                found["p_label"] = _of_label(arrays["logits"], labels).astype(
                    np.float32
                )
            return found, {"logits": np.float16}
        return found | {
            k: arrays[k].astype(np.float16) for k in layers if k in arrays
        }, {}
    return arrays, {
        k: np.int32 for k, values in arrays.items() if values.dtype == np.int64
    }


def pack(
    folder: Path,
    manifest: Mapping[str, Any],
    files: Mapping[str, PackedFile],
    notes: Mapping[str, Any],
) -> None:
    """Write a recording into a new folder.

    Parameters
    ----------
    folder : Path
        The folder.
    manifest : mapping
        Manifest of the run.
    files : mapping
        The files with arrays, by their names without suffix.
    notes : mapping
        Content of the JSON files, by name.
    """
    table: dict[str, Any] = {
        name: {"metadata": dict(file.metadata), "of": file.of, "arrays": {}}
        for name, file in files.items()
    }
    kinds: dict[
        str, list[NDArray[Any]]
    ] = {}  # by type; arrays of one name beside each other
    starts: dict[str, int] = {}
    every = [(key, name) for name, file in files.items() for key in file.arrays]
    for key, name in sorted(every):
        values = files[name].arrays[key]
        stored = values.astype(files[name].stored.get(key, values.dtype))
        kind = stored.dtype.str
        table[name]["arrays"][key] = [
            kind,
            starts.get(kind, 0),
            values.shape,
            values.dtype.str,
            checksum(stored),
        ]
        starts[kind] = starts.get(kind, 0) + values.size
        kinds.setdefault(kind, []).append(stored.reshape(-1))
    arrays = {
        kind: np.ascontiguousarray(_planes(np.concatenate(parts)))
        for kind, parts in kinds.items()
    }
    packed = json.dumps({"files": table, "notes": dict(notes)}, separators=(",", ":"))
    label = Label(fingerprints(manifest)[0], "", {"packed": packed})
    make_private(folder)
    write_whole(folder / RECORDING, whole_file(arrays, label))
    RunDirectory(folder).write_manifest(manifest)
    (folder / REVISION).unlink()  # it is never written to again


def _planes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an array as bytes with an axis in front: all first bytes, all second bytes and so on.

    The high bytes of neighbouring numbers are alike, so this becomes a tenth smaller in a wheel.
    """
    return np.moveaxis(np.ascontiguousarray(array)[..., None].view(np.uint8), -1, 0)
