"""A fork: the same model, settings and split on what is left of the data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.audit.catalogue import Catalogue
from memowidgets.audit.shapes import read_manifest
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.memorization import log_lira
from memowidgets.metrics import logit_gap
from memowidgets.stamps import digest
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.config import Settings
from memowidgets.training.design import Design, follow_design
from memowidgets.training.learner import Recipe
from memowidgets.training.target import TargetTraining, start_of
from memowidgets.visible import listed, visible

if TYPE_CHECKING:
    import os

    from memowidgets.audit.audit import Audit
    from memowidgets.training.rho import Record

__all__ = ["check_start", "compared", "fork_note", "forked"]

STARTS = ("scratch", "prediction")


def forked(parent: Audit, path: str | os.PathLike[str], data: Dataset, start: str) -> Audit:
    """The audit that `Audit.fork` describes."""
    from memowidgets.audit import identity
    from memowidgets.audit.audit import Audit

    _check_request(parent, path, data, start)
    recipe = parent._recipe()  # noqa: SLF001 - one class in two files
    aside = _held_out_of(parent)
    design = follow_design(parent._design, parent.data.ids, data)  # noqa: SLF001
    if aside is not None:
        identity.check_held_out(aside, data, design)
    chosen = _chosen(parent) if start == "prediction" else None
    seed = parent._manifest["seed"]  # noqa: SLF001
    asked = Settings.read(parent._manifest["training"])  # noqa: SLF001
    manifest = {
        **identity.describe_run(
            recipe.model, data, design, aside, asked, seed, recipe.settings.precision
        ),
        "fork": _described(parent, data, start, chosen),
    }
    run = RunDirectory(path)
    fresh = run.is_empty
    run.hold(manifest if fresh else read_manifest(run))
    manifest = identity.continued(run, manifest, recipe.device)
    if fresh:  # the manifest comes last: what was killed before it begins again
        Catalogue(run, manifest, len(design.members)).stop = parent._catalogue.stop  # noqa: SLF001
    if chosen is not None and (fresh or not run.has(start_of(chosen.name))):
        own = Recipe(recipe.model, data, recipe.settings, recipe.device)
        TargetTraining(run, own, design, aside, seed).start_from(parent._run, chosen)  # noqa: SLF001
    manifest = identity.settle(run, manifest, data, design)
    for note in fork_note(manifest):
        warnings.warn(note, UserWarning, stacklevel=3)
    return Audit._of(run, manifest, recipe.model, data, aside, design, recipe.device)  # noqa: SLF001


def compared(parent: Audit, fork: Audit, checkpoint: str | float, variance: str) -> pd.DataFrame:
    """The table that `Audit.compare_fork` describes."""
    _check_family(parent, fork)
    name, members, gaps, target = parent.member_gaps(checkpoint)
    there = fork._catalogue.record(checkpoint).name  # noqa: SLF001
    data, everything = parent.member_data, np.arange(len(parent.members))
    seen = fork._target().look(there, everything, data)  # noqa: SLF001
    now, before = _contents(fork.data), _contents(data)
    fate = [
        "removed" if i not in now else "changed" if now[i] != before[i] else "kept"
        for i in parent.members.tolist()
    ]
    table = pd.DataFrame({"fate": fate}, pd.Index(parent.members, name="id"))
    for column, gap in (("before", target), ("after", logit_gap(seen.logits, parent.labels))):
        table[column] = log_lira(gaps, members, gap, variance)
    table.attrs["checkpoint"] = name
    return table.dropna()


def fork_note(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What must be known of weights that have seen what was removed; empty for other runs."""
    fork = manifest.get("fork")
    if not fork or not fork["seen"]:
        return ()
    note = (
        f"this run goes on from {visible(str(fork['checkpoint']), 40)} of another one: its "
        "weights have already "
        f"seen {fork['seen']} samples that were removed or changed since, and what those left in "
        'them is not undone; fork with start="scratch" to be rid of it'
    )
    return (note,)


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


def _check_request(parent: Audit, path: str | os.PathLike[str], data: Dataset, start: str) -> None:
    if start not in STARTS:
        raise ValueError(f"unknown start {start!r}; valid: {', '.join(map(repr, STARTS))}")
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a dataset, such as audit.kept(), not {type(data).__name__}")
    if parent.recording is not None:
        raise StoreError(
            "a recorded audit holds numbers, but no model, weights or samples: make an audit of "
            "your own to fork it"
        )
    parent._refuse_outside("train again with your Trainer, on audit.kept(), in a new audit")  # noqa: SLF001
    if Path(path).expanduser().resolve() == Path(parent.path).resolve():
        raise ValueError(f"{path} is the run that is forked: choose another path for the fork")
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


def _check_family(parent: Audit, fork: Audit) -> None:
    from memowidgets.audit import identity

    own = identity.run_digest(parent._manifest)  # noqa: SLF001
    if fork.forked is None or fork.forked["parent"] != own:
        raise ValueError(f"{fork.path} is no fork of {parent.path}: give what fork() made of it")
    fork._recipe()  # noqa: SLF001 - its model is asked
    if isinstance(parent.data, WithheldDataset):
        raise StoreError(f"the samples are not at hand, only their ids: give {parent.data.hint}")


def _held_out_of(parent: Audit) -> Dataset | None:
    """The held-out dataset where it is one of its own."""
    from memowidgets.audit import identity

    held_out, digest = parent._held_out, parent._manifest["held_out"]  # noqa: SLF001
    if digest is None:
        return None
    if identity.held_out_digest(held_out) != digest:
        raise StoreError(
            "the held-out samples are a dataset of their own, which is not at hand: "
            "Audit.open(path, held_out=…)"
        )
    return held_out


def _chosen(parent: Audit) -> Record:
    try:
        return parent.prediction.record
    except ValueError as error:
        raise ValueError(
            f'{error}, or take start="scratch": there are no weights to go on from'
        ) from None


def _described(parent: Audit, data: Dataset, start: str, chosen: Record | None) -> dict[str, Any]:
    from memowidgets.audit import identity

    described = {
        "parent": identity.run_digest(parent._manifest),  # noqa: SLF001
        "start": start,
        "checkpoint": None if chosen is None else chosen.name,
        "seen": 0,
    }
    if chosen is None:
        return described
    before = parent._manifest.get("fork") or {"seen": 0}  # noqa: SLF001
    known = before.get("gone", [])
    there = {_mark(*sample) for sample in _contents(data).items()}
    gone = {*_gone(parent.data, parent._design, data), *known} - there  # noqa: SLF001
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
