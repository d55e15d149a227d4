"""A fork: the same model, settings and split on what is left of the data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.audit.numbers.truth import evidence_for
from memowidgets.audit.runs import identity
from memowidgets.audit.runs.shapes import read_manifest
from memowidgets.audit.source import Source
from memowidgets.audit.sources.catalogue import Catalogue
from memowidgets.audit.sources.notes import fork_note
from memowidgets.audit.sources.run import RunSource, run_behind
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.files import check_outside_runs
from memowidgets.metrics import logit_gap
from memowidgets.stamps import digest
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.design import Design, follow_design
from memowidgets.training.target import TargetTraining, start_of
from memowidgets.visible import listed

if TYPE_CHECKING:
    import os

    from memowidgets.training.rho import Record

__all__ = ["check_start", "compared", "forked"]

STARTS = ("scratch", "prediction")


def forked(parent: Source, path: str | os.PathLike[str], data: Dataset, start: str) -> RunSource:
    """Begin the run that `Audit.fork` describes, or go on with it."""
    run = run_behind(parent, "fork")
    _check_request(run, path, data, start)
    recipe = run.recipe()
    aside = _held_out_of(run)
    design = follow_design(run.design, run.data.ids, data)
    chosen = _chosen(run) if start == "prediction" else None
    # weights that go on from the parent's read what its encoding gives
    data = data.fitted(design.pool) if chosen is None else data.with_encoding(run.data.encoding)
    if aside is not None:
        identity.check_held_out(aside, data, design)
        aside = aside.with_encoding(data.encoding)
    asked = replace(run.training, precision=run.manifest["training"]["precision"])
    manifest = {
        **identity.describe_run(
            recipe.model, data, design, aside, asked, run.seed, recipe.settings.precision
        ),
        **identity.repeats(recipe.device, asked),
        "fork": _described(run, data, start, chosen),
    }
    made = RunDirectory(path)
    fresh = made.is_empty
    made.hold(manifest if fresh else read_manifest(made))
    manifest = identity.continued(made, manifest, recipe.device)
    if fresh:  # the manifest comes last: what was killed before it begins again
        Catalogue(made, manifest, len(design.members)).stop = run.names.stop
    if chosen is not None and (fresh or not made.has(start_of(chosen.name))):
        own = replace(recipe, data=data)
        TargetTraining(made, own, design, aside, run.seed).start_from(run.run, chosen)
    manifest = identity.settle(made, manifest, data, design)
    for note in fork_note(manifest):
        warnings.warn(note, UserWarning, stacklevel=3)
    device = "auto" if recipe.anywhere else recipe.device
    return RunSource(made, manifest, recipe.model, data, aside, design, device, settings=asked)


def compared(parent: Source, fork: Source, checkpoint: str | float, variance: str) -> pd.DataFrame:
    """Return the table that `Audit.compare_fork` describes."""
    before_it, forked_run = run_behind(parent, "compare_fork"), run_behind(fork, "compare_fork")
    _check_family(before_it, forked_run)
    record = before_it.names.record(checkpoint)
    target = before_it.target_gaps(record).astype(np.float32)
    evidence = evidence_for(before_it, record, variance)
    there = forked_run.names.record(checkpoint).name
    data, everything = before_it.member_data, np.arange(len(before_it.members))
    read = data.with_encoding(forked_run.data.encoding)  # its weights read what its own gives
    seen = forked_run.target().look(there, everything, read)
    now, before = _contents(forked_run.data), _contents(data)
    fate = [
        "removed" if i not in now else "changed" if now[i] != before[i] else "kept"
        for i in before_it.members.tolist()
    ]
    table = pd.DataFrame({"fate": fate}, pd.Index(before_it.members, name="id"))
    for column, gap in (("before", target), ("after", logit_gap(seen.logits, before_it.labels))):
        table[column] = evidence.log_lira(gap)
    table.attrs["checkpoint"] = record.name
    return table.dropna()


def check_start(run: RunDirectory, manifest: Mapping[str, Any]) -> None:
    """Refuse to train from scratch what is to go on from another run's weights.

    Raises
    ------
    StoreError
        If those weights are gone.
    """
    name = (manifest.get("fork") or {}).get("checkpoint")
    if name is None or run.has(start_of(name)):
        return
    if not (run.path / "checkpoints" / name / "record.json").exists():
        raise StoreError(
            f"{run.path} has lost the weights of {name} that it starts from: call fork once more "
            "on the audit that it came from"
        )


def _check_request(
    parent: RunSource, path: str | os.PathLike[str], data: Dataset, start: str
) -> None:
    if start not in STARTS:
        raise ValueError(f"unknown start {start!r}; valid: {', '.join(map(repr, STARTS))}")
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a dataset, such as audit.kept(), not {type(data).__name__}")
    parent.refuse_recorded("train again with your Trainer, on audit.kept(), in a new audit")
    if Path(path).expanduser().resolve() == Path(parent.path).resolve():
        raise ValueError(f"{path} is the run that is forked: choose another path for the fork")
    check_outside_runs(Path(path).expanduser().absolute().parent)  # a fork may go on in its own
    if isinstance(data, WithheldDataset):
        raise StoreError(f"the samples are not at hand, only their ids: give {data.hint}")
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


def _check_family(parent: RunSource, fork: RunSource) -> None:
    own = identity.run_digest(parent.manifest)
    if (fork.manifest.get("fork") or {}).get("parent") != own:
        raise ValueError(f"{fork.path} is no fork of {parent.path}: give what fork() made of it")
    fork.recipe()  # its model is asked
    if isinstance(parent.data, WithheldDataset):
        raise StoreError(f"the samples are not at hand, only their ids: give {parent.data.hint}")


def _held_out_of(parent: RunSource) -> Dataset | None:
    """The held-out dataset where it is one of its own."""
    held_out, digest = parent.held_out, parent.manifest["held_out"]
    if digest is None:
        return None
    if identity.held_out_digest(held_out) != digest:
        raise StoreError(
            "the held-out samples are a dataset of their own, which is not at hand: "
            "Audit.open(path, held_out=…)"
        )
    return held_out


def _chosen(parent: RunSource) -> Record:
    try:
        return parent.names.prediction().record
    except ValueError as error:
        raise ValueError(
            f'{error}, or take start="scratch": there are no weights to go on from'
        ) from None


def _described(
    parent: RunSource, data: Dataset, start: str, chosen: Record | None
) -> dict[str, Any]:
    described = {
        "parent": identity.run_digest(parent.manifest),
        "start": start,
        "checkpoint": None if chosen is None else chosen.name,
        "seen": 0,
    }
    if chosen is None:
        return described
    before = parent.manifest.get("fork") or {"seen": 0}
    known = before.get("gone", [])
    there = {_mark(*sample) for sample in _contents(data).items()}
    gone = {*_gone(parent.data, parent.design, data), *known} - there
    uncounted = before["seen"] - len(known)  # a fork of an older version counted them only
    return described | {"seen": uncounted + len(gone)} | ({"gone": sorted(gone)} if gone else {})


def _gone(before: Dataset, design: Design, data: Dataset) -> list[str]:
    """Marks of the members that are not there any more, or not as they were."""
    now = _contents(data)
    then = _contents(before.take(design.members))
    return [_mark(name, then[name]) for name in then if now.get(name) != then[name]]


def _mark(name: str, content: tuple[str, int]) -> str:
    """What stands for a sample that is gone: neither its id nor its content."""
    return digest([name, *content])


def _contents(data: Dataset) -> dict[str, tuple[str, int]]:
    pairs = zip(data.content_hashes(), data.labels.tolist(), strict=True)
    return dict(zip(data.ids.tolist(), pairs, strict=True))
