"""Describe a run in its manifest, and name the differences between two runs."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from memowidgets import data as data_room
from memowidgets.audit.runs.origin import Origin, PathLike
from memowidgets.audit.runs.shapes import checked_design, read_manifest
from memowidgets.audit.sources.catalogue import Catalogue
from memowidgets.audit.sources.precisions import settled_precision
from memowidgets.audit.sources.shadow_sets import content_digest
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
from memowidgets.network import without_the_hub
from memowidgets.stamps import Stamp, array_digest
from memowidgets.store import MANIFEST, RunDirectory, StoreError, Tensors
from memowidgets.training.config import Settings
from memowidgets.training.design import Design
from memowidgets.training.noise import NOISE_DRAW
from memowidgets.visible import listed, quoted, visible

__all__ = [
    "check_same",
    "continued",
    "data_differences",
    "describe_run",
    "described",
    "held_out_digest",
    "read_data",
    "read_design",
    "read_encoding",
    "repeats",
    "run_digest",
    "settle",
    "write_design",
]

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "load_digits": data_room.load_digits,
    "make_mcqs": data_room.make_mcqs,
    "fetch_mcq": data_room.fetch_mcq,
    "fetch_cifar10": data_room.fetch_cifar10,
    "from_folder": data_room.ImageDataset.from_folder,
    "MCQDataset.from_csv": data_room.MCQDataset.from_csv,
    "MCQDataset.from_jsonl": data_room.MCQDataset.from_jsonl,
    "TableDataset.from_csv": data_room.TableDataset.from_csv,
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
_SETTLED = ("training", "precision", "noise_draw")  # once for all, when a run is made
_ENCODING = "encoding."
_ASIDE_LABELS = "held_out_labels"
_T = TypeVar("_T")
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
    return described(about, model.source, layers, data, design, held_out, settings, seed, precision)


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
        **({"noise_draw": NOISE_DRAW} if settings.label_noise else {}),
        "data": {
            "n": len(data),
            "class_names": list(data.class_names),
            "labels": content_digest(data.labels.tolist()),
            "canaries": content_digest(None if data.canaries is None else data.canaries.tolist()),
            "source": data.source,
            "prompts": content_digest(getattr(data, "prompt_recipe", None)),
        },
        "members": content_digest(design.members.tolist()),
        "pool": content_digest(design.pool.tolist()),
        "held_out": None if held_out is None else held_out_digest(held_out),
        **({} if held_out is None else {_ASIDE_LABELS: content_digest(held_out.labels.tolist())}),
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
    return content_digest(held_out.content_hashes())


def run_digest(manifest: Mapping[str, Any]) -> str:
    """Return a digest of everything that determines what a target has learned."""
    parts = ("model", "seed", "members", "content", "fork")
    kept = {part: manifest[part] for part in parts if manifest.get(part) is not None}
    kept["data"] = {key: manifest["data"][key] for key in ("labels", "class_names")}
    kept["training"] = _training(manifest)
    return content_digest(
        {key: sorted(v.items()) if isinstance(v, dict) else v for key, v in kept.items()}
    )


def check_same(stored: Mapping[str, Any], given: Mapping[str, Any], path: str) -> None:
    """Raise if two manifests describe different runs.

    Raises
    ------
    ValueError
        If model, data, training, members or seed differ; the message names the difference.
    """
    differences = [
        *data_differences(stored, given),
        *_model_differences(stored["model"], given["model"]),
        *_field_differences("training", *_trainings(stored, given)),
        *_plain_differences(stored, given),
    ]
    if differences:
        raise ValueError(
            f"{path} holds another run: {'; '.join(differences)}. Choose another path, or give "
            "what the run was made with"
        )


def continued(run: RunDirectory, manifest: Mapping[str, Any], device: str) -> dict[str, Any]:
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
    known = {**stored, "precision": settled_precision(run, stored, lambda: device)}
    check_same(known, manifest, str(run.path))
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
        kept = Stamp("", arrays=_digests(_design_arrays(trained_on, design))).content
        run.write_manifest(
            {**manifest, "design": kept}
        )  # first, because another process may do the same now
    stored = read_manifest(run)
    check_same(stored, manifest, str(run.path))
    run.hold(stored)
    catalogue = Catalogue(run, stored, len(design.members))
    if not (run.path / "checkpoints").exists():
        catalogue.begin()
    if _needs_design(run, stored):
        write_design(run, trained_on, design)
    return stored


def _training(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run with the fields that its version lacked.

    A function is as it was written: it may use values that have changed since.
    """
    stored = manifest["training"]
    functions = {key: stored[key] for key in ("optimizer", "schedule") if key in stored}
    return Settings.read(stored).described() | functions


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
    there, here = _training(stored), dict(given["training"])
    for settings in (there, here):
        settings.setdefault("deterministic", False)
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


def _digests(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    return {name: array_digest(array) for name, array in arrays.items()}


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
    wrong = _design_differences(manifest, file, kept)
    if wrong:
        raise StoreError(
            f"{path} is not the design of this run: its {', '.join(wrong)} differ from the "
            "manifest's. Restore it, or make the audit again with mw.Audit(model, data, path=…)"
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


def _design_differences(
    manifest: Mapping[str, Any], file: Tensors, kept: Mapping[str, NDArray[Any]]
) -> list[str]:
    """Return the parts of a design that differ from the manifest.

    An old manifest has no digest of the whole design, so its parts are compared.
    """
    if "design" in manifest:
        same_content = file.stamp is not None and file.stamp.content == manifest["design"]
        return [] if same_content else ["contents"]
    data, content = manifest["data"], manifest["content"]
    canaries = kept["canaries"].tolist() if "canaries" in kept else None
    same = {
        "members": content_digest(kept["members"].tolist()) == manifest["members"],
        "pool": content_digest(kept["pool"].tolist()) == manifest["pool"],
        "canaries": content_digest(canaries) == data.get("canaries", content_digest(canaries)),
    }
    if not manifest["training"].get("label_noise"):  # it flips labels after they were digested
        same["labels"] = content_digest(kept["labels"].tolist()) == data["labels"]
    aside = np.setdiff1d(np.arange(len(content)), kept["pool"])
    number = {text: i for i, text in enumerate(sorted(set(content)))}
    same["held-out samples"] = bool(np.isin(kept["held_out"], aside).all())
    same["groups"] = kept["groups"].tolist() == [number[text] for text in content]
    whole = len(kept["members"]) == len(kept["pool"])
    same["all_members"] = bool(kept["all_members"][0]) == whole
    return [what for what, is_same in same.items() if not is_same]


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
        if made is not None and not data_differences(manifest, _described(made)):
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
        check_data(run, manifest, data)
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
    same[_ASIDE_LABELS] = manifest.get(_ASIDE_LABELS)
    if model is not None:
        check_same(manifest, same, str(run.path))
        return data, model
    changed = _model_differences(manifest["model"], found["model"])
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
    if model is not None and not isinstance(model, Model):
        raise TypeError(f"model must be a model of mw.models, not {type(model).__name__}")


def _check_held_out_again(run: RunDirectory, manifest: Mapping[str, Any], given: Dataset) -> None:
    if held_out_digest(given) != manifest["held_out"]:
        raise ValueError(f"these are not the held-out samples of {run.path}")
    labels = content_digest(given.labels.tolist())
    if manifest.get(_ASIDE_LABELS, labels) != labels:  # old runs did not note them
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


def check_data(run: RunDirectory, manifest: Mapping[str, Any], data: Dataset) -> None:
    """Raise if the data are not the run's.

    Raises
    ------
    StoreError
        If ids, contents or labels differ.
    """
    differences = data_differences(manifest, _described(data))
    if differences:
        raise StoreError(f"these are not the data of {run.path}: {'; '.join(differences)}")


def _described(data: Dataset) -> dict[str, Any]:
    return {
        "ids": data.ids.tolist(),
        "content": data.content_hashes(),
        "data": {
            "class_names": list(data.class_names),
            "labels": content_digest(data.labels.tolist()),
            "canaries": content_digest(None if data.canaries is None else data.canaries.tolist()),
            "prompts": content_digest(getattr(data, "prompt_recipe", None)),
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


def _model_differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
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
    "forward": "forward= of mw.watch is another function",
    "values": "values that make_module uses, or settings of the module's parts, differ",
}


def _plain_differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    found = []
    if stored["seed"] != given["seed"]:
        found.append(f"its seed is {stored['seed']}, this one {given['seed']}")
    elif stored["members"] != given["members"]:
        found.append("it has other members")
    if stored["held_out"] != given["held_out"] or stored["pool"] != given["pool"]:
        found.append("it has other held-out samples")
    elif _ASIDE_LABELS in stored and stored[_ASIDE_LABELS] != given.get(_ASIDE_LABELS):
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
