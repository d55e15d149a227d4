"""A run of a directory or a recording: begun, or opened with its data and model.

Data and model are given. Those that the package itself makes are made again without.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from memowidgets import data as data_room
from memowidgets.audit.run import WATCHED, Run, device_of, noise_of
from memowidgets.audit.runs import identity
from memowidgets.checks import as_code, has_form, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.data.pairs import PairDataset
from memowidgets.models import (
    CausalLM,
    ConvNet,
    Model,
    SequenceClassifier,
    WideResNet,
)
from memowidgets.models.base import check_model
from memowidgets.models.device import resolve_precision, torch_device
from memowidgets.progress import shown
from memowidgets.stamps import digest
from memowidgets.store import PackedRun, RunDirectory, StoreError
from memowidgets.training.config import Settings, TrainingConfig
from memowidgets.training.design import Design, HeldOut, Members, draw_design
from memowidgets.training.passes import Pairs, pairs_of
from memowidgets.training.seeds import restored
from memowidgets.visible import quoted, visible

# What is made again as a manifest says, which may be anybody's: bounded work, without any file.
_DATA: dict[str, Callable[..., Dataset]] = {
    "load_digits": data_room.load_digits,
    "make_mcqs": data_room.make_mcqs,
    "make_patients": data_room.make_patients,
}
_MODELS: dict[str, Callable[..., Model]] = {
    "ConvNet": ConvNet,
    "WideResNet": WideResNet,
    "CausalLM.from_scratch": CausalLM.from_scratch,
    "SequenceClassifier.from_scratch": SequenceClassifier.from_scratch,
}
_OF_DATA = ("CausalLM.from_scratch", "SequenceClassifier.from_scratch")  # take data first
RECORDINGS = Path(__file__).parents[1] / "recordings"


def begun_run(
    model: Model,
    data: Dataset,
    path: str | os.PathLike[str],
    training: TrainingConfig | None,
    seed: int,
    device: str,
    members: Members,
    held_out: HeldOut,
) -> Run:
    """Begin the run that `Audit` describes, or go on with it where the directory holds it."""
    check_model(model)
    seed = whole_number("seed", seed)
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a dataset of mw.data, not {type(data).__name__}")
    if training is not None and not isinstance(training, TrainingConfig):
        raise TypeError(f"training must be a mw.TrainingConfig, not {as_code(training)}")
    for samples in (data, held_out):
        if isinstance(samples, Dataset):
            model.check_data(samples)
    settings = (training or TrainingConfig()).resolved(model.training_defaults)
    design = draw_design(data, members, held_out, seed)
    aside = held_out if isinstance(held_out, Dataset) else None
    data = data.fitted(design.pool)
    if aside is not None:
        identity.check_held_out(aside, data, design)
        aside = aside.with_encoding(data.encoding)
    run = RunDirectory(path)
    used = device_of(model, device)
    precision = resolve_precision(torch_device(used), settings.precision)
    manifest = {
        **identity.describe_training(settings, seed, precision, used),
        **identity.describe_model(model, data, design, settings),
        **identity.describe_data(data, design, aside),
    }
    trained_on = noise_of(data, design, manifest).applied(data)
    manifest = identity.settle(run, manifest, trained_on, design)
    return Run(run, manifest, model, trained_on, aside, design, device, settings)


def opened_run(
    run: RunDirectory,
    data: Any = None,
    model: Model | None = None,
    held_out: Any = None,
    device: str = "auto",
) -> Run:
    """Open a run from its directory, as `Audit.open` describes.

    Raises
    ------
    StoreError, ValueError
        If the given data or model is not the run's.
    """
    manifest = identity.read_manifest(run)
    run.hold(manifest)
    names = manifest["data"]["class_names"]
    if manifest.get("kind") == WATCHED and _are_pairs(data):
        data = read_pairs(pairs_of(data), names, manifest["ids"])
    if _are_pairs(held_out):
        held_out = other_pairs(held_out, names)
    design = identity.read_design(run, manifest)
    data, model = _find_data(run, manifest, design, data, model, held_out)
    if held_out is not None and data is not None:
        held_out = held_out.with_encoding(data.encoding)
    if data is not None:
        data = noise_of(data, design, manifest).applied(data)
    known = data or _withheld(run, manifest)
    return Run(run, manifest, model, known, held_out, design, device)


def _find_data(
    run: RunDirectory,
    manifest: Mapping[str, Any],
    design: Design,
    data: Dataset | None,
    model: Model | None,
    held_out: Dataset | None,
) -> tuple[Dataset | None, Model | None]:
    """Return data and model of a run: the given ones after a check, or the same made again."""
    data = cast("Dataset | None", _own_samples(run, manifest, data))
    _check_given(run, manifest, data, model, held_out)
    if data is None:
        data = data_again(manifest)
        known = manifest.get("attributes")
        if known and (data is None or identity.attributes_digest(data) != known):
            raise StoreError(
                f"{run.path} has numbers about other samples than "
                f"{manifest['data']['source']['loader']} generates here: install the release of "
                "memowidgets that the recording is from"
            )
    data = None if data is None else data.fitted(design.pool)
    made = None if model is not None else _model_again(manifest["model_source"], data)
    candidate = model or made
    if data is None or candidate is None:
        return data, candidate
    settings = Settings.read(manifest["training"])
    here = identity.describe_model(candidate, data, design, settings)
    if model is not None:
        same = ("held_out", "held_out_labels", "fork")
        identity.check_same(
            manifest,
            {
                **identity.describe_training(settings, manifest["seed"], manifest["precision"]),
                **here,
                **identity.describe_data(data, design, None),
                **{key: manifest.get(key) for key in same},
            },
            str(run.path),
        )
        return data, model
    return data, None if identity.model_apart(manifest, here) else made


def _check_given(
    run: RunDirectory, manifest: Mapping[str, Any], data: Any, model: Any, held_out: Any
) -> None:
    """Raise for data, a model or held-out samples that are not the run's."""
    for name, given in (("data", data), ("held_out", held_out)):
        if given is not None and not isinstance(given, Dataset):
            raise TypeError(f"{name} must be a dataset of mw.data, not {type(given).__name__}")
    if model is not None:
        check_model(model)
    if data is not None and (
        apart := identity.data_apart(manifest, identity.describe_samples(data))
    ):
        raise ValueError(f"these are not the data of {run.path}: {apart}")
    if held_out is not None:
        if identity.held_out_digest(held_out) != manifest["held_out"]:
            raise ValueError(f"these are not the held-out samples of {run.path}")
        if digest(held_out.labels.tolist()) != manifest["held_out_labels"]:
            raise ValueError(f"these held-out samples have other labels than those of {run.path}")


def _own_samples(run: RunDirectory, manifest: Mapping[str, Any], data: Any) -> Any:
    """Return a fork's own samples out of its parent's data, with the labels of the fork."""
    if not manifest.get("fork") or not isinstance(data, Dataset):
        return data
    if not set(manifest["ids"]) <= set(data.ids.tolist()):
        return data
    own, labels = _select(manifest, data), np.array(run.read_tensors("design")["labels"])
    return own if np.array_equal(own.labels, labels) else own.with_labels(labels)


def data_again(manifest: Mapping[str, Any]) -> Dataset | None:
    """Make the data of a run again. None if that is not possible with the package alone."""
    source, n = manifest["data"]["source"], len(manifest["ids"])
    if not has_form(source, {"loader": str, "arguments": dict}) or source["loader"] not in _DATA:
        return None
    if source["arguments"].get("n", n) != n:
        return None
    made: Dataset | None = _make(_DATA[source["loader"]], source["arguments"])
    if made is None or identity.data_apart(manifest, identity.describe_samples(made)):
        return None
    return made


def _model_again(source: Any, data: Dataset | None) -> Model | None:
    """Make the model again. None if only the user can provide it."""
    if not has_form(source, {"model": str, "arguments": dict}) or source["model"] not in _MODELS:
        return None
    needs_data = source["model"] in _OF_DATA
    if needs_data and data is None:
        return None
    made: Model | None = _make(_MODELS[source["model"]], source["arguments"], *[data] * needs_data)
    return made


def _make(make: Callable[..., Any], arguments: Mapping[str, Any], *data: Any) -> Any:
    """Return what a function makes of arguments that anybody may have written; None if nothing."""
    with suppress(Exception):
        return make(*data, **arguments)
    return None


def _withheld(run: RunDirectory, manifest: Mapping[str, Any]) -> WithheldDataset:
    """Return the dataset without its samples, from the run directory."""
    kept, recording = run.read_tensors("design"), manifest.get("recording")
    return WithheldDataset(
        ids=np.array(manifest["ids"]),
        labels=np.array(kept["labels"]),
        class_names=tuple(manifest["data"]["class_names"]),
        hashes=tuple(manifest["content"]),
        canaries=np.array(kept["canaries"]) if "canaries" in kept else None,
        source=manifest["data"]["source"],
        hint=f"data={recording['data']}" if recording else "data=…",
    )


# recordings, which ship with the package


def recorded_source(name: str, data: Dataset | None = None) -> Run:
    """Return the evidence of a recording that ships with the package, as `open_recorded` says.

    Raises
    ------
    ValueError
        If there is no such recording, or the data lack some of its samples.
    """
    found = sorted(folder.name for folder in RECORDINGS.glob("*") if folder.is_dir())
    if name not in found:
        raise ValueError(f"unknown recorded audit {name!r}; there are {', '.join(found) or 'none'}")
    return recording_in(RECORDINGS / name, data)


def recording_in(folder: Path, data: Dataset | None = None) -> Run:
    """Return the evidence of a recording that `export` wrote; its files stay as they are."""
    run = PackedRun(folder)
    chosen = None if data is None else _select(identity.read_manifest(run), data)
    return opened_run(run, data=chosen)


def _select(manifest: Mapping[str, Any], data: Dataset) -> Dataset:
    """The recorded samples out of a dataset that may hold more, in the recording's order."""
    positions = {str(name): i for i, name in enumerate(data.ids)}
    missing = [name for name in manifest["ids"] if name not in positions]
    if missing:
        raise ValueError(
            f"{len(missing)} of the {len(manifest['ids'])} recorded samples are not in these "
            f"data, the first is {quoted(missing[0])}: give "
            f"{visible(str(manifest['recording']['data']), 300)}"
        )
    return data.take([positions[name] for name in manifest["ids"]])


# samples of a user's own


def read_pairs(
    pairs: Pairs, class_names: Sequence[str] | None, ids: Sequence[str] | None
) -> PairDataset:
    """Read each pair once, without changing any random state."""
    with restored(), shown(None) as progress:
        return PairDataset.from_pairs(
            pairs.rows,
            class_names,
            ids,
            lambda done, total: progress.report(done, total, "reading the data"),
        )


def other_pairs(held_out: Any, class_names: Sequence[str]) -> PairDataset:
    """Return the held-out samples of a torch dataset or loader; classes may be absent."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*never occur in the labels", UserWarning)
        return read_pairs(pairs_of(held_out), class_names, None)


def _are_pairs(data: Any) -> bool:
    """Return whether data are a user's own, not a dataset of memowidgets."""
    return data is not None and not isinstance(data, Dataset | str | os.PathLike)
