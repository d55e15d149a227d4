"""A fork: the same model, settings and split on what is left of the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.audit.run import Run, fork_note
from memowidgets.audit.runs import identity
from memowidgets.checks import warn_user
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.files import check_outside_runs
from memowidgets.stamps import digest
from memowidgets.store import MANIFEST, RunDirectory, StoreError
from memowidgets.training.checkpoint import write_stop
from memowidgets.training.design import follow_design
from memowidgets.training.learner import TargetTraining, start_of
from memowidgets.visible import listed

if TYPE_CHECKING:
    import os

    from memowidgets.audit.evidence import Evidence
    from memowidgets.decisions import DecisionLog
    from memowidgets.training.checkpoint import Record

STARTS = ("scratch", "prediction")
_CHANGES = ("anonymise", "remove", "relabel")


def fork_run(run: Run, path: str | os.PathLike[str], data: Dataset, start: str) -> Run:
    """Begin the run that `Audit.fork` describes, or go on with it."""
    _check_request(run, path, data, start)
    recipe = run.recipe()
    run.check_code()
    aside = _held_out_of(run)
    design = follow_design(run.design, run.data.ids, data)
    chosen = None
    if start == "prediction":
        try:
            chosen = run.names.prediction().record
        except ValueError as error:
            raise ValueError(
                f'{error}, or take start="scratch": there are no weights to go on from'
            ) from None
    if chosen is not None and run.data.encoding is not None:
        raise ValueError(
            "a table is encoded by the rows of its own run, which the weights of "
            f'{chosen.name} do not read; take start="scratch"'
        )
    data = data.fitted(design.pool)
    if aside is not None:
        identity.check_held_out(aside, data, design)
        aside = aside.with_encoding(data.encoding)
    asked = replace(run.training, precision=run.manifest["training"]["precision"])
    manifest = {
        **identity.describe_training(asked, run.seed, recipe.settings.precision, recipe.device),
        **identity.describe_model(recipe.model, data, design, asked),
        **identity.describe_data(data, design, aside),
        "fork": _fork_note(run, data, start, chosen),
    }
    made = RunDirectory(path)
    fresh = not made.has_file(MANIFEST)
    stored = manifest if fresh else identity.read_manifest(made)
    identity.check_same(stored, manifest, str(made.path))
    made.hold(stored)
    if fresh:  # the manifest comes last: what was killed before it begins again
        write_stop(made, run.names.stop)
    if chosen is not None and (fresh or not made.has(start_of(chosen.name))):
        own = replace(recipe, data=data)
        TargetTraining(made, own, design, aside, run.seed).start_from(run.run, chosen)
    manifest = identity.settle(made, manifest, data, design)
    for note in fork_note(manifest):
        warn_user(note)
    device = "auto" if recipe.anywhere else recipe.device
    return Run(made, manifest, recipe.model, data, aside, design, device, settings=asked)


def warn_of_members_alone(evidence: Evidence, log: DecisionLog) -> None:
    """Warn if decisions change members alone, while shadow models train on others too."""
    changed = {name for name, made in log.table().items() if made.decision in _CHANGES}
    others = evidence.data.ids[np.setdiff1d(evidence.pool, evidence.member_rows)]
    if changed and len(others) and changed.isdisjoint(others.tolist()):
        warn_user(
            "only members of the target were decided on, and the shadow models of a new audit "
            "train on the other samples too: log-LiRA would measure the cleaning, not what is "
            'memorised. Decide with members="all", and compare memorized_per_model() of two '
            "new audits, of the data and of kept()"
        )


def _check_request(parent: Run, path: str | os.PathLike[str], data: Dataset, start: str) -> None:
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


def _held_out_of(parent: Run) -> Dataset | None:
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


def _fork_note(parent: Run, data: Dataset, start: str, chosen: Record | None) -> dict[str, Any]:
    described = {
        "parent": identity.run_digest(parent.manifest),
        "start": start,
        "checkpoint": None if chosen is None else chosen.name,
        "seen": 0,
    }
    if chosen is None:
        return described
    before = (parent.manifest.get("fork") or {}).get("gone", [])
    now, then = _contents(data), _contents(parent.data.take(parent.design.members))
    gone = {_mark(name, then[name]) for name in then if now.get(name) != then[name]}
    gone = {*gone, *before} - {_mark(*sample) for sample in now.items()}
    return described | {"seen": len(gone)} | ({"gone": sorted(gone)} if gone else {})


def _mark(name: str, content: tuple[str, int]) -> str:
    """What stands for a sample that is gone: neither its id nor its content."""
    return digest([name, *content])


def _contents(data: Dataset) -> dict[str, tuple[str, int]]:
    pairs = zip(data.content_hashes(), data.labels.tolist(), strict=True)
    return dict(zip(data.ids.tolist(), pairs, strict=True))
