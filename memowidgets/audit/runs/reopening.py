"""Find the data and the model of a run that is opened: given, or made again from their source."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from memowidgets import data as data_room
from memowidgets.audit.runs.identity import (
    ASIDE_LABELS,
    check_same,
    data_differences,
    describe_run,
    described_data,
    function_differences,
    held_out_digest,
    model_differences,
    read_encoding,
)
from memowidgets.audit.runs.origin import Origin, PathLike
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.models import (
    CausalLM,
    ConvNet,
    ImageClassifier,
    LoRA,
    Model,
    SequenceClassifier,
    WideResNet,
)
from memowidgets.models.base import check_model
from memowidgets.network import without_the_hub
from memowidgets.stamps import digest
from memowidgets.store import MANIFEST, RunDirectory, StoreError
from memowidgets.training.config import Settings
from memowidgets.training.design import Design
from memowidgets.visible import quoted, visible

__all__ = ["read_data", "reopened"]

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "load_digits": data_room.load_digits,
    "make_mcqs": data_room.make_mcqs,
    "fetch_mcq": data_room.fetch_mcq,
    "fetch_cifar10": data_room.fetch_cifar10,
    "from_folder": data_room.ImageDataset.from_folder,
    "MCQDataset.from_csv": data_room.MCQDataset.from_csv,
    "MCQDataset.from_jsonl": data_room.MCQDataset.from_jsonl,
    "TableDataset.from_csv": data_room.TableDataset.from_csv,
    "TableDataset.from_jsonl": data_room.TableDataset.from_jsonl,
    "TextDataset.from_csv": data_room.TextDataset.from_csv,
    "TextDataset.from_jsonl": data_room.TextDataset.from_jsonl,
}
_MODELS: dict[str, Callable[..., Model]] = {
    "ConvNet": lambda _data, **settings: ConvNet(**settings),
    "WideResNet": lambda _data, **settings: WideResNet(**settings),
    "CausalLM.from_scratch": CausalLM.from_scratch,
    "CausalLM.from_pretrained": lambda _data, **settings: _pretrained(**settings),
    "SequenceClassifier.from_scratch": SequenceClassifier.from_scratch,
    "SequenceClassifier.from_pretrained": lambda _data, **settings: _classifier(**settings),
    "ImageClassifier.from_pretrained": (
        lambda _data, **settings: ImageClassifier.from_pretrained(**settings)
    ),
}
_OF_DATA = ("CausalLM.from_scratch", "SequenceClassifier.from_scratch")
_T = TypeVar("_T")


def read_data(run: RunDirectory, manifest: Mapping[str, Any]) -> WithheldDataset:
    """Return the dataset without its samples, from the run directory."""
    kept = run.read_tensors("design")
    recording = manifest.get("recording")
    return WithheldDataset(
        ids=np.array(manifest["ids"]),
        labels=np.array(kept["labels"]),
        class_names=tuple(manifest["data"]["class_names"]),
        hashes=tuple(manifest["content"]),
        canaries=np.array(kept["canaries"]) if "canaries" in kept else None,
        source=manifest["data"]["source"],
        hint=f"data={recording['data']}" if recording else _data_origin(run, manifest).hint,
    )


def _made_again(run: RunDirectory, manifest: Mapping[str, Any]) -> Dataset | None:
    """Load the data from their source again. None if only the user can provide them."""
    origin = _data_origin(run, manifest)
    if origin.path is not None or origin.arguments.get("n", len(manifest["ids"])) != len(
        manifest["ids"]
    ):
        return None
    with suppress(OSError, ImportError, ValueError):  # out of reach, or changed since
        made = _called(run, _LOADERS, origin.maker, **origin.arguments)
        if made is not None and not data_differences(manifest, described_data(made)):
            return made
    return None


def _model_again(
    run: RunDirectory, manifest: Mapping[str, Any], data: Dataset | None
) -> Model | None:
    """Create the model again. None if only the user can provide it."""
    origin = _model_origin(run, manifest)
    if origin.path is not None or (data is None and origin.maker in _OF_DATA):
        return None
    with suppress(OSError, ImportError, ValueError):
        return _called(run, _MODELS, origin.maker, data, **origin.arguments)
    return None


def _loaded(run: RunDirectory, manifest: Mapping[str, Any], path: PathLike) -> Dataset | None:
    """Load the data from a path that the caller passed."""
    origin = _data_origin(run, manifest)
    return _called(run, _LOADERS, origin.maker, **origin.at(path))


def _model_at(run: RunDirectory, manifest: Mapping[str, Any], path: PathLike) -> Model | None:
    """Load the model from a path that the caller passed."""
    origin = _model_origin(run, manifest)
    return _called(run, _MODELS, origin.maker, None, **origin.at(path))


def _called(
    run: RunDirectory, makers: Mapping[str, Callable[..., _T]], name: str, /, *data: Any, **how: Any
) -> _T | None:
    """Call a loader or model class with the arguments of a manifest. None if it names none.

    Raises
    ------
    StoreError
        If the name is unknown, or the arguments are wrong.
    """
    if not name:
        return None
    if name not in makers:
        raise StoreError(f"{run.path / MANIFEST} is broken: nothing here is called {quoted(name)}")
    try:
        return makers[name](*data, **how)
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise StoreError(
            f"{run.path / MANIFEST} is broken: {name} can't be called as it says "
            f"({visible(str(error), 200)})"
        ) from None


def _data_origin(run: RunDirectory, manifest: Mapping[str, Any]) -> Origin:
    return Origin(manifest["data"]["source"], "loader", str(run.path / MANIFEST))


def _model_origin(run: RunDirectory, manifest: Mapping[str, Any]) -> Origin:
    return Origin(manifest["model_source"], "model", str(run.path / MANIFEST))


def _warn_of_paths(
    run: RunDirectory, manifest: Mapping[str, Any], *, data: bool, model: bool
) -> None:
    """Warn about data or a model that is not loaded because only its path is known."""
    origins = [_data_origin(run, manifest)] * data + [_model_origin(run, manifest)] * model
    hints = [origin.hint for origin in origins if origin.path is not None]
    if hints:
        warnings.warn(
            f"{run.path} refers to paths outside of itself, which are not read. To load them, pass "
            f"{' and '.join(hints)} to Audit.open",
            UserWarning,
            stacklevel=5,
        )


def reopened(
    run: RunDirectory,
    manifest: Mapping[str, Any],
    design: Design,
    data: Dataset | PathLike | None,
    model: Model | PathLike | None,
    held_out: Dataset | None,
) -> tuple[Dataset | None, Model | None]:
    """Return data and model of a run: the given ones after a check, or the same made again.

    Raises
    ------
    StoreError, ValueError
        If the given data or model is not the run's.
    """
    if isinstance(data, str | os.PathLike):
        data = _loaded(run, manifest, data)
    if isinstance(model, str | os.PathLike):
        model = _model_at(run, manifest, model)
    _check_kinds(data, model, held_out)
    if data is not None:
        _check_data(run, manifest, data)
    if held_out is not None:
        _check_held_out_again(run, manifest, held_out)
    with without_the_hub():  # opening a run sends no request
        data = _made_again(run, manifest) if data is None else data
        data = None if data is None else _encoded(run, data)
        made = _model_again(run, manifest, data) if model is None else None
    candidate = model or made
    _warn_of_paths(run, manifest, data=data is None, model=candidate is None)
    if data is None or candidate is None:
        return data, candidate
    settings = Settings.read(manifest["training"])
    found = describe_run(candidate, data, design, None, settings, manifest["seed"])
    same = {**found, "held_out": manifest["held_out"], "fork": manifest.get("fork")}
    same[ASIDE_LABELS] = manifest.get(ASIDE_LABELS)
    if model is not None:
        check_same(manifest, same, str(run.path))
        return data, model
    changed = model_differences(manifest["model"], found["model"])
    changed += function_differences(manifest, found)
    if changed:
        warnings.warn(
            f"the model of {run.path} can't be made again, so nothing new can be computed: "
            f"{'; '.join(changed)}. Give the run's own with Audit.open(path, model=…)",
            UserWarning,
            stacklevel=4,
        )
    return data, None if changed else made


def _check_kinds(data: object, model: object, held_out: object) -> None:
    for name, given in (("data", data), ("held_out", held_out)):
        if given is not None and not isinstance(given, Dataset):
            raise TypeError(f"{name} must be a dataset of mw.data, not {type(given).__name__}")
    if model is not None:
        check_model(model)


def _check_held_out_again(run: RunDirectory, manifest: Mapping[str, Any], given: Dataset) -> None:
    if held_out_digest(given) != manifest["held_out"]:
        raise ValueError(f"these are not the held-out samples of {run.path}")
    labels = digest(given.labels.tolist())
    if manifest.get(ASIDE_LABELS, labels) != labels:  # old runs did not note them
        raise ValueError(f"these held-out samples have other labels than those of {run.path}")


def _encoded(run: RunDirectory, data: Dataset) -> Dataset:
    try:
        return data.with_encoding(read_encoding(run))
    except ValueError as error:
        raise StoreError(f"{run.path / 'design.safetensors'} is broken: {error}") from None


def _pretrained(**settings: Any) -> Model:
    name, length, cache = (settings.pop(k) for k in ("name_or_path", "max_length", "cache"))
    later = {k: settings.pop(k) for k in ("dtype", "revision") if k in settings}  # not in old runs
    return CausalLM.from_pretrained(name, LoRA(**settings), length, cache=cache, **later)


def _classifier(lora: Mapping[str, Any] | None, **settings: Any) -> Model:
    adapters = None if lora is None else LoRA(**lora)
    return SequenceClassifier.from_pretrained(lora=adapters, **settings)


def _check_data(run: RunDirectory, manifest: Mapping[str, Any], data: Dataset) -> None:
    """Raise if the data are not the run's.

    Raises
    ------
    StoreError
        If ids, contents or labels differ.
    """
    differences = data_differences(manifest, described_data(data))
    if differences:
        raise StoreError(f"these are not the data of {run.path}: {'; '.join(differences)}")
