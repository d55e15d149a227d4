"""A run of a directory or a recording: begun, or opened with its data and model.

Data and model are given or made again.

A manifest may be anybody's. What it names is made again only where that is bounded work which
reads nothing but the package itself and the hub's local copies. A path is read only when the
caller of `Audit.open` names it.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from memowidgets import data as data_room
from memowidgets.audit.run import WATCHED, Run, device_of, noise_of
from memowidgets.audit.runs import identity
from memowidgets.checks import as_code, warn_user, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.data.pairs import PairDataset
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
from memowidgets.models.device import resolve_precision, torch_device
from memowidgets.network import without_the_hub
from memowidgets.progress import shown
from memowidgets.stamps import digest
from memowidgets.store import MANIFEST, NotThereError, PackedRun, RunDirectory, StoreError
from memowidgets.training.config import Settings, TrainingConfig
from memowidgets.training.design import Design, HeldOut, Members, draw_design
from memowidgets.training.inputs import Pairs, pairs_of
from memowidgets.training.seeds import restored
from memowidgets.visible import quoted, visible

PathLike = str | os.PathLike[str]


def _load_pretrained(**settings: Any) -> Model:
    name, length, cache = (settings.pop(k) for k in ("name_or_path", "max_length", "cache"))
    loading = {k: settings.pop(k) for k in ("dtype", "revision") if k in settings}
    return CausalLM.from_pretrained(name, LoRA(**settings), length, cache=cache, **loading)


def _classifier(lora: Mapping[str, Any] | None, **settings: Any) -> Model:
    adapters = None if lora is None else LoRA(**lora)
    return SequenceClassifier.from_pretrained(lora=adapters, **settings)


# What a manifest may name, and the argument that may be a path, which is not read unasked.
_LOADERS: dict[str, tuple[Callable[..., Dataset], str | None]] = {
    "load_digits": (data_room.load_digits, None),
    "make_mcqs": (data_room.make_mcqs, None),
    "make_patients": (data_room.make_patients, None),
    "fetch_mcq": (data_room.fetch_mcq, "source"),
    "fetch_cifar10": (data_room.fetch_cifar10, "source"),
    "from_folder": (data_room.ImageDataset.from_folder, "path"),
    "MCQDataset.from_csv": (data_room.MCQDataset.from_csv, "path"),
    "MCQDataset.from_jsonl": (data_room.MCQDataset.from_jsonl, "path"),
    "TableDataset.from_csv": (data_room.TableDataset.from_csv, "path"),
    "TableDataset.from_jsonl": (data_room.TableDataset.from_jsonl, "path"),
    "TextDataset.from_csv": (data_room.TextDataset.from_csv, "path"),
    "TextDataset.from_jsonl": (data_room.TextDataset.from_jsonl, "path"),
}
_MODELS: dict[str, tuple[Callable[..., Model], str | None]] = {
    "ConvNet": (ConvNet, None),
    "WideResNet": (WideResNet, None),
    "CausalLM.from_scratch": (CausalLM.from_scratch, None),
    "CausalLM.from_pretrained": (_load_pretrained, "name_or_path"),
    "SequenceClassifier.from_scratch": (SequenceClassifier.from_scratch, None),
    "SequenceClassifier.from_pretrained": (_classifier, "name_or_path"),
    "ImageClassifier.from_pretrained": (ImageClassifier.from_pretrained, "name_or_path"),
}
_OF_DATA = ("CausalLM.from_scratch", "SequenceClassifier.from_scratch")  # take data first
RECORDINGS = Path(__file__).parents[1] / "recordings"
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


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
        **identity.described_training(settings, seed, precision, used),
        **identity.described_model(model, data, design, settings),
        **identity.described_data(data, design, aside),
    }
    trained_on = noise_of(data, design, manifest).applied(data)
    manifest = identity.begun(run, manifest, trained_on, design, at_once=True)
    return Run(run, manifest, model, trained_on, aside, design, device, settings)


def opened_run(
    run: RunDirectory,
    data: Any = None,
    model: Model | PathLike | None = None,
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
    data: Dataset | PathLike | None,
    model: Model | PathLike | None,
    held_out: Dataset | None,
) -> tuple[Dataset | None, Model | None]:
    """Return data and model of a run: the given ones after a check, or the same made again."""
    of_data, of_model = _origins(run, manifest)
    if isinstance(data, str | os.PathLike):
        data = cast("Dataset | None", of_data.made_at(data))
    if isinstance(model, str | os.PathLike):
        model = cast("Model | None", of_model.made_at(model))
    data = cast("Dataset | None", _own_samples(run, manifest, data))
    _check_given(run, manifest, data, model, held_out)
    with without_the_hub():  # opening a run sends no request
        if data is None and "attributes" in manifest:
            data = generate_again(run, manifest)
            if data is None or identity.attributes_digest(data) != manifest["attributes"]:
                raise StoreError(
                    f"{run.path} has numbers about other samples than {of_data.maker} generates "
                    "here: install the release of memowidgets that the recording is from"
                )
        data = _data_again(manifest, of_data) if data is None else data
        data = None if data is None else data.fitted(design.pool)
        made = _model_again(of_model, data) if model is None else None
    candidate = model or made
    missing = [of_data] * (data is None) + [of_model] * (candidate is None)
    hints = [origin.hint for origin in missing if origin.path is not None]
    if hints:
        warn_user(
            f"{run.path} refers to paths outside of itself, which are not read. To load them, pass "
            f"{' and '.join(hints)} to Audit.open"
        )
    if data is None or candidate is None:
        return data, candidate
    settings = Settings.read(manifest["training"])
    here = identity.described_model(candidate, data, design, settings)
    if model is not None:
        same = ("held_out", "held_out_labels", "fork")
        identity.check_same(
            manifest,
            {
                **identity.described_training(settings, manifest["seed"], manifest["precision"]),
                **here,
                **identity.described_data(data, design, None),
                **{key: manifest.get(key) for key in same},
            },
            str(run.path),
        )
        return data, model
    changed = identity.model_differences(manifest, here)
    if changed:
        warn_user(
            f"the model of {run.path} can't be made again, so nothing new can be computed: "
            f"{'; '.join(changed)}. Give the run's own with Audit.open(path, model=…)"
        )
    return data, None if changed else made


def _check_given(
    run: RunDirectory, manifest: Mapping[str, Any], data: Any, model: Any, held_out: Any
) -> None:
    """Raise for data, a model or held-out samples that are not the run's."""
    for name, given in (("data", data), ("held_out", held_out)):
        if given is not None and not isinstance(given, Dataset):
            raise TypeError(f"{name} must be a dataset of mw.data, not {type(given).__name__}")
    if model is not None:
        check_model(model)
    if data is not None:
        differences = identity.data_differences(manifest, identity.described_samples(data))
        if differences:
            raise ValueError(f"these are not the data of {run.path}: {'; '.join(differences)}")
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


def generate_again(run: RunDirectory, manifest: Mapping[str, Any]) -> Dataset | None:
    """Generate the data of a run again. None if that is not possible with the package alone."""
    origin, _ = _origins(run, manifest)
    alone = origin.maker in _LOADERS and _LOADERS[origin.maker][1] is None
    return _data_again(manifest, origin) if alone else None


def _data_again(manifest: Mapping[str, Any], origin: Origin) -> Dataset | None:
    """Load the data from their source again. None if only the user can provide them."""
    n = len(manifest["ids"])
    if origin.path is not None or origin.arguments.get("n", n) != n:
        return None
    with suppress(OSError, ImportError, ValueError):  # out of reach, or changed since
        made: Dataset | None = origin.made(**origin.arguments)
        described = None if made is None else identity.described_samples(made)
        if described is not None and not identity.data_differences(manifest, described):
            return made
    return None


def _model_again(origin: Origin, data: Dataset | None) -> Model | None:
    """Create the model again. None if only the user can provide it."""
    needs_data = origin.maker in _OF_DATA
    if origin.path is not None or (data is None and needs_data):
        return None
    with suppress(OSError, ImportError, ValueError):
        made: Model | None = origin.made(*[data] * needs_data, **origin.arguments)
        return made
    return None


def _origins(run: RunDirectory, manifest: Mapping[str, Any]) -> tuple[Origin, Origin]:
    file = str(run.path / MANIFEST)
    return (
        Origin(manifest["data"]["source"], "data", file),
        Origin(manifest["model_source"], "model", file),
    )


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
        hint=f"data={recording['data']}" if recording else _origins(run, manifest)[0].hint,
    )


class Origin:
    """What made the data, or the model, of a run.

    Parameters
    ----------
    recipe : dict or None
        As a manifest holds it: who made it, with which arguments; None where that is not known.
    what : {"data", "model"}
        Which of the two.
    manifest : str
        The file that it is from.

    Raises
    ------
    StoreError
        If it is neither None nor a recipe.
    """

    def __init__(self, recipe: Any, what: str, manifest: str) -> None:
        self._what, self._manifest = what, manifest
        self.maker, self.arguments = "", {}
        key = {"data": "loader", "model": "model"}[what]
        makers: Mapping[str, tuple[Callable[..., Any], str | None]]
        makers = _LOADERS if what == "data" else _MODELS
        if recipe is not None:
            shaped = isinstance(recipe, dict) and isinstance(recipe.get("arguments"), dict)
            if not shaped or not isinstance(recipe.get(key), str):
                raise StoreError(f"{manifest} is broken: it does not say how its {what} was made")
            self.maker, self.arguments = recipe[key], dict(recipe["arguments"])
        known: tuple[Callable[..., Any] | None, str | None] = makers.get(self.maker, (None, None))
        self._make, self._place = known

    def made(self, *data: Any, **how: Any) -> Any:
        """Call the loader or model class. None if the manifest names none.

        Raises
        ------
        StoreError
            If the name is unknown, or the arguments are wrong.
        """
        if not self.maker:
            return None
        if self._make is None:
            raise StoreError(
                f"{self._manifest} is broken: nothing here is called {quoted(self.maker)}"
            )
        try:
            return self._make(*data, **how)
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
            raise StoreError(
                f"{self._manifest} is broken: {self.maker} can't be called as it says "
                f"({visible(str(error), 200)})"
            ) from None

    def made_at(self, path: PathLike) -> Any:
        """Make it from a path that the caller names.

        Raises
        ------
        ValueError
            If this was not made from a path.
        """
        if self._place is None:
            raise NotThereError(
                f"{self._what} is a path, but the {self._what} of this run was not made from one",
                f"pass the {'dataset' if self._what == 'data' else 'model'} itself",
            )
        kept = {name: value for name, value in self.arguments.items() if name != "revision"}
        return self.made(**{**kept, self._place: str(Path(path).expanduser())})

    @property
    def path(self) -> str | None:
        """The path on this machine that it was made from; None where it was made from none."""
        if self._place is None or self.arguments.get(self._place) is None:
            return None
        name = str(self.arguments[self._place])
        if self._what == "data":
            is_on_hub = name == "hub"
        else:
            is_on_hub = _HUB_NAME.fullmatch(name) is not None and not Path(name).exists()
        return None if is_on_hub else name

    @property
    def hint(self) -> str:
        """What to pass to `Audit.open`, so that it is there."""
        return f"{self._what}=" + ("…" if self.path is None else f"'{visible(self.path, 300)}'")


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
    run = PackedRun.existing(folder, read_only=True)
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
    """Return whether data are a user's own, not a dataset of memowidgets or a path."""
    return data is not None and not isinstance(data, Dataset | str | os.PathLike)
