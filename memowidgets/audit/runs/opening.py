"""A run: begun, forked, or opened with its data and model from a directory or a recording.

Data and model are given. Those that the package itself makes are made again without.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets import data as data_room
from memowidgets.audit.run import (
    SCRIPT,
    WATCHED,
    Run,
    add_noise_of,
    device_of,
    fork_note,
)
from memowidgets.audit.runs import identity
from memowidgets.checks import as_code, has_form, warn_user, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.data.pairs import PairDataset
from memowidgets.decisions import CHANGES
from memowidgets.files import check_outside_runs
from memowidgets.models import CausalLM, ConvNet, Model, SequenceClassifier, WideResNet
from memowidgets.models.base import check_model
from memowidgets.models.device import resolve_precision, torch_device
from memowidgets.progress import progress_or_bar
from memowidgets.store import MANIFEST, RECORDING, PackedRun, RunDirectory, StoreError
from memowidgets.training.config import Settings, TrainingConfig, restore_random_states
from memowidgets.training.design import (
    Design,
    HeldOut,
    Members,
    draw_design,
    follow_design,
)
from memowidgets.training.learner import TargetTraining, start_of
from memowidgets.training.passes import Pairs, pairs_of
from memowidgets.vocabulary import listed

if TYPE_CHECKING:
    from memowidgets.audit.evidence import Evidence
    from memowidgets.decisions import DecisionLog
    from memowidgets.training.checkpoint import Record

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
# take data first
_OF_DATA = (
    "CausalLM.from_scratch",
    "SequenceClassifier.from_scratch",
)
STARTS = ("scratch", "prediction")
RECORDINGS = Path(__file__).parents[1] / "recordings"
# In a checkout they are among the others; else a wheel without code has them.
_OF_ANOTHER_WHEEL = ("banking77-smollm2", "cifar10-wrn")


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
        raise TypeError(
            f"training must be a mw.TrainingConfig, not {as_code(training)}"
        )
    for samples in (data, held_out):
        if isinstance(samples, Dataset):
            model.check_data(samples)
    settings = (training or TrainingConfig()).resolve(model.training_defaults)
    design = draw_design(data, members, held_out, seed)
    aside = held_out if isinstance(held_out, Dataset) else None
    data = data.fitted(design.pool)
    if aside is not None:
        identity.check_held_out(aside, data, design)
        aside = aside.with_encoding(data.encoding)
    run = RunDirectory(path)
    used = torch_device(device_of(model, device))
    precision = resolve_precision(used, settings.precision)
    manifest = {
        **identity.describe_training(settings, seed, precision),
        **identity.describe_model(model, data, design, settings),
        **identity.describe_data(data, design, aside),
    }
    trained_on = add_noise_of(data, design, manifest)
    manifest = identity.settle(run, manifest, trained_on, design)
    return Run(run, manifest, model, trained_on, aside, design, device, settings)


def open_stored_run(
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
    if manifest.get("kind") in (WATCHED, SCRIPT) and _are_pairs(data):
        data = read_pairs(pairs_of(data), names, manifest["ids"])
    if _are_pairs(held_out):
        held_out = other_pairs(pairs_of(held_out), names)
    design = identity.read_design(run, manifest)
    data, model = _find_data(run, manifest, design, data, model, held_out)
    if held_out is not None and data is not None:
        held_out = held_out.with_encoding(data.encoding)
    if data is not None:
        data = add_noise_of(data, design, manifest)
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
    for name, given in (("data", data), ("held_out", held_out)):
        if given is not None and not isinstance(given, Dataset):
            raise TypeError(
                f"{name} must be a dataset of mw.data, not {type(given).__name__}"
            )
    if model is not None:
        check_model(model)
    if held_out is not None:
        found = identity.describe_held_out(held_out)
        if any(manifest.get(key) != value for key, value in found.items()):
            raise ValueError(
                f"these are not the held-out samples of {run.path}, with their labels"
            )
    if data is None:
        data = data_again(manifest)
    else:
        data = _own_samples(run, manifest, data)
        if apart := identity.data_apart(manifest, identity.describe_samples(data)):
            raise ValueError(f"these are not the data of {run.path}: {apart}")
    data = None if data is None else data.fitted(design.pool)
    found_model = model or _model_again(manifest.get("model_source"), data)
    if data is None or found_model is None:
        return data, found_model
    settings = Settings.read(manifest["training"])
    here = identity.describe_model(found_model, data, design, settings)
    apart = identity.model_apart(manifest, here)
    if apart and model is not None:
        raise ValueError(f"this is not the model of {run.path}: {apart}")
    return data, None if apart else found_model


def _own_samples(
    run: RunDirectory, manifest: Mapping[str, Any], data: Dataset
) -> Dataset:
    """Return the samples of a fork or a recording out of data that may hold more."""
    place = {str(name): i for i, name in enumerate(data.ids)}
    is_part = manifest.get("fork") or manifest.get("recording")
    if not is_part or not place.keys() >= set(manifest["ids"]):
        return data
    own = data.take([place[name] for name in manifest["ids"]])
    labels = identity.kept_design(run, manifest)["labels"]
    is_relabelled = manifest.get("fork") and not np.array_equal(own.labels, labels)
    return own.with_labels(labels) if is_relabelled else own


def data_again(manifest: Mapping[str, Any]) -> Dataset | None:
    """Make the data of a run again. None if that is not possible with the package alone."""
    source, n = manifest["data"]["source"], len(manifest["ids"])
    if has_form(source, {"arguments": dict}) and source["arguments"].get("n", n) != n:
        return None
    made: Dataset | None = _make(source, "loader", _DATA)
    if made is None or identity.data_apart(manifest, identity.describe_samples(made)):
        return None
    return made


def _model_again(source: Any, data: Dataset | None) -> Model | None:
    """Make the model again. None if only the user can provide it."""
    needs_data = has_form(source, {"model": str}) and source["model"] in _OF_DATA
    if needs_data and data is None:
        return None
    made: Model | None = _make(source, "model", _MODELS, *[data] * needs_data)
    return made


def _make(
    source: Any, kind: str, makers: Mapping[str, Callable[..., Any]], *data: object
) -> Any:
    """Return what is made as a manifest says, which may be anybody's; None if nothing."""
    if (
        not has_form(source, {kind: str, "arguments": dict})
        or source[kind] not in makers
    ):
        return None
    try:
        return makers[source[kind]](*data, **source["arguments"])
    except (TypeError, ValueError):  # an argument that it does not take, or refuses
        return None


def _withheld(run: RunDirectory, manifest: Mapping[str, Any]) -> WithheldDataset:
    """Return the dataset without its samples, from the run directory."""
    kept = identity.kept_design(run, manifest)
    recording = manifest.get("recording")
    return WithheldDataset(
        ids=np.array(manifest["ids"]),
        labels=kept["labels"],
        class_names=tuple(manifest["data"]["class_names"]),
        hashes=tuple(manifest["content"]),
        canaries=kept.get("canaries"),
        source=manifest["data"]["source"],
        hint=f"data={recording['data']}" if recording else "data=…",
    )


# recordings, which ship with the package or in a wheel of their own


def recorded_source(name: str, data: Dataset | None = None) -> Run:
    """Return the evidence of a recording, as `open_recorded` says.

    Raises
    ------
    ValueError
        If there is no such recording, or the data lack some of its samples.
    ModuleNotFoundError
        If the recording is in a wheel that is not installed.
    """
    found = installed_recordings()
    if name in found:
        return open_stored_run(PackedRun(found[name]), data)
    if name in _OF_ANOTHER_WHEEL:
        raise ModuleNotFoundError(
            f"the recorded audit {name!r} is not installed: pip install memowidgets-recordings",
            name="memowidgets_recordings",
        )
    known = sorted({*found, *_OF_ANOTHER_WHEEL})
    raise ValueError(f"unknown recorded audit {name!r}; there are {', '.join(known)}")


def installed_recordings() -> dict[str, Path]:
    """Return the folders of the recordings that are at hand, by name."""
    folders = [RECORDINGS]
    other_wheel = find_spec("memowidgets_recordings")
    if other_wheel is not None:
        folders.extend(map(Path, other_wheel.submodule_search_locations or ()))
    files = [file for folder in folders for file in folder.glob(f"*/{RECORDING}")]
    return {file.parent.name: file.parent for file in files}


# samples of a user's own


def read_pairs(
    pairs: Pairs, class_names: Sequence[str] | None, ids: Sequence[str] | None
) -> PairDataset:
    """Read each pair once, without changing any random state."""
    with restore_random_states(), progress_or_bar(None) as progress:
        return PairDataset.from_pairs(
            pairs.rows,
            class_names,
            ids,
            lambda done, total: progress.report(done, total, "reading the data"),
        )


def other_pairs(pairs: Pairs, class_names: Sequence[str]) -> PairDataset:
    """Return the held-out samples of a torch dataset or loader; classes may be absent."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*never occur in the labels", UserWarning)
        return read_pairs(pairs, class_names, None)


def samples_of(
    data: Any, read: Callable[[Pairs], PairDataset]
) -> tuple[Dataset, Pairs | None]:
    """Return samples, and the rows that batches are made of if they are a user's own."""
    if isinstance(data, PairDataset):  # such as audit.kept()
        return data, Pairs(data.as_pairs())
    if isinstance(data, Dataset):
        return data, None
    pairs = pairs_of(data)
    return read(pairs), pairs


def check_given(data: Any, class_names: Any, ids: object) -> None:
    """Raise for data that cannot be fed, or names for data that have their own."""
    if isinstance(data, Dataset) and (class_names is not None or ids is not None):
        raise ValueError(
            f"{type(data).__name__} has its own class names and ids; leave class_names= and ids= "
            "out"
        )
    if isinstance(data, WithheldDataset):
        raise TypeError(
            "the samples of data are not at hand, only their ids; pass the dataset"
        )


def check_same_kind(held_out: Dataset, data: Dataset) -> None:
    """Raise for held-out samples of another kind than the data."""
    if type(held_out) is not type(data):
        raise TypeError(
            "held_out has samples of another kind than data: "
            f"{type(held_out).__name__} there and {type(data).__name__} here"
        )


def _are_pairs(data: Any) -> bool:
    """Return whether data are a user's own, not a dataset of memowidgets."""
    return data is not None and not isinstance(data, Dataset | str | os.PathLike)


# forks: the same model, settings and split on what is left of the data


def fork_run(run: Run, path: str | os.PathLike[str], data: Dataset, start: str) -> Run:
    """Begin the run that `Audit.fork` describes, or go on with it."""
    check_fork(run, path, data, start)
    recipe = run.recipe()
    run.check_code()
    aside = held_out_to_fork(run)
    design = follow_design(run.design, run.data.ids, data)
    chosen = run.names.prediction().record if start == "prediction" else None
    if chosen is not None and run.data.encoding is not None:
        raise ValueError(
            "a table is encoded by the rows of its own run, which the weights of "
            f'{chosen.name} do not read; take start="scratch"'
        )
    data = data.fitted(design.pool)
    if aside is not None:
        identity.check_held_out(aside, data, design)
        aside = aside.with_encoding(data.encoding)
    recipe.model.check_data(data)
    asked = replace(run.training, precision=run.manifest["training"]["precision"])
    manifest = {
        **identity.describe_training(asked, run.seed, recipe.settings.precision),
        **identity.describe_model(recipe.model, data, design, asked),
        **identity.describe_data(data, design, aside),
        "fork": describe_fork(run, data, start, chosen),
    }
    made = RunDirectory(path)
    stored = identity.read_manifest(made) if made.has_file(MANIFEST) else manifest
    identity.check_same(stored, manifest, str(made.path))
    made.hold(stored)  # the manifest comes last: what was killed before it begins again
    if chosen is not None and not made.has(start_of(chosen.name)):
        own = replace(recipe, data=data)
        TargetTraining(made, own, design, aside, run.seed).start_from(run.run, chosen)
    manifest = identity.settle(made, manifest, data, design, run.rule)
    for note in fork_note(manifest):
        warn_user(note)
    device = "auto" if recipe.anywhere else recipe.device
    return Run(
        made, manifest, recipe.model, data, aside, design, device, settings=asked
    )


def held_out_to_fork(run: Run) -> Dataset | None:
    """Return the held-out samples of a run to fork, if they are a dataset of their own."""
    aside = run.held_out if run.manifest.get("held_out") else None
    if aside is not None and not len(aside):
        raise StoreError(
            "the held-out samples are a dataset of their own, which is not at hand: "
            "Audit.open(path, held_out=…)"
        )
    return aside


def warn_of_members_alone(evidence: Evidence, log: DecisionLog) -> None:
    """Warn if decisions change members alone, while shadow models train on others too."""
    changed = {name for name, made in log.table().items() if made.decision in CHANGES}
    others = evidence.data.ids[np.setdiff1d(evidence.pool, evidence.member_rows)]
    if changed and len(others) and changed.isdisjoint(others.tolist()):
        warn_user(
            "only members of the target were decided on, and the shadow models of a new audit "
            "train on the other samples too: log-LiRA would measure the cleaning, not what is "
            'memorised. Decide with members="all", and compare memorized_per_model() of two '
            "new audits, of the data and of kept()"
        )


def check_fork(
    parent: Run, path: str | os.PathLike[str], data: Dataset, start: str
) -> None:
    """Raise for a fork that `Audit.fork` can't begin."""
    if start not in STARTS:
        raise ValueError(
            f"unknown start {start!r}; valid: {', '.join(map(repr, STARTS))}"
        )
    if not isinstance(data, Dataset):
        raise TypeError(
            f"data must be a dataset, such as audit.kept(), not {type(data).__name__}"
        )
    # a fork may go on in its own
    check_outside_runs(Path(path).expanduser().absolute().parent)
    if parent.training.label_noise:
        raise ValueError(
            "this run has label noise, which would fall on other samples in a fork: fork a run "
            "without label_noise"
        )
    if data.class_names != parent.data.class_names:
        raise ValueError(
            f"the data have the classes {listed(data.class_names)}; those of the run to fork "
            f"are {listed(parent.data.class_names)}"
        )


def describe_fork(
    parent: Run, data: Dataset, start: str, chosen: Record | None
) -> dict[str, Any]:
    """Return the part of a manifest that says what a fork came from."""
    seen = 0
    if chosen is not None:
        now, then = (
            contents_by_id(data),
            contents_by_id(parent.data.take(parent.design.members)),
        )
        before = (parent.manifest.get("fork") or {}).get("seen", 0)
        seen = before + sum(now.get(name) != then[name] for name in then)
    return {
        "parent": identity.run_digest(parent.manifest),
        "start": start,
        "checkpoint": None if chosen is None else chosen.name,
        "seen": seen,
    }


def contents_by_id(data: Dataset) -> dict[str, tuple[str, int]]:
    """Return the content hash and the label of each sample by its id."""
    pairs = zip(data.content_hashes(), data.labels.tolist(), strict=True)
    return dict(zip(data.ids.tolist(), pairs, strict=True))
