"""The evidence in a run directory: a target that was trained, or is going to be."""

from __future__ import annotations

import time
import warnings
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit.decisions import log_of, true_labels
from memowidgets.audit.source import (
    LOGITS,
    REFERENCES,
    REPRESENTATIONS,
    SHADOWS,
    TRACE,
    Cache,
    NotGivenError,
    OneAtATime,
    Source,
)
from memowidgets.audit.sources.catalogue import Catalogue
from memowidgets.audit.sources.notes import fork_note, guard_warnings
from memowidgets.audit.sources.passes import AUTO, StoredPass, check_states, warn_of
from memowidgets.audit.sources.precisions import is_settled, settled_precision
from memowidgets.audit.sources.references import References
from memowidgets.audit.sources.shadow_sets import current_set, shadow_sets
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.metrics import logit_gap
from memowidgets.models import Model
from memowidgets.models.precision import check_available
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import outputs_of, read_course
from memowidgets.training.config import Settings
from memowidgets.training.design import NOTHING_LEFT_OUT, Design
from memowidgets.training.device import resolve_device, torch_device
from memowidgets.training.learner import Recipe
from memowidgets.training.made_in import precision_at
from memowidgets.training.noise import LabelNoise, draw_noise
from memowidgets.training.rho import Record
from memowidgets.training.shadows import ShadowSet
from memowidgets.training.target import Loaded, TargetTraining
from memowidgets.visible import quoted

__all__ = ["WATCHED", "RunSource", "device_of", "noise_of", "run_behind"]

WATCHED = "watch"

FEWEST_SHADOWS = 4  # two inside and two outside
_CANNOT = {"canaries": "these data have no canaries: plant some with with_canaries"}
_NEED_WEIGHTS = {  # work that needs the model or its weights
    "train": "train",
    "record": "be recorded by MemorizationCallback",
    "run_shadows": "train shadow models",
    "run_references": "train reference models",
    "use_shadows": "have shadow models",
    "estimate": "estimate the cost of training",
    "fork": "be forked",
    "compare_fork": "be compared with a fork",
    "repeat": "make a pass over the samples again",
}
_READ_ONLY = ("use_shadows", "compare_fork")  # what a recording can do too
_COLUMNS = (
    "name",
    "epoch",
    "step",
    "median_loss",
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
)


class RunSource:
    """A run directory, with its model and its data where they are at hand.

    Parameters
    ----------
    run : RunDirectory
        Its files.
    manifest : dict
        Its manifest.
    model : Model or None
        Model to compute with; without one only what is on disk can be had.
    data : Dataset
        All samples, with the labels that are trained on.
    held_out : Dataset or None
        Held-out samples, if they are a dataset of their own.
    design : Design
        Which samples the target trains on.
    device : str
        ``"auto"``, or as torch names it.
    states : str
        Type that new passes keep representations in. Default: the manifest's.
    settings : Settings, optional
        Settings of the training. Default: the manifest's, which lack a user's functions.
    """

    given_log_lira: NDArray[np.float64] | None = None
    given_early_gaps: NDArray[np.float32] | None = None
    _pass_seconds: float | None = None

    def __init__(
        self,
        run: RunDirectory,
        manifest: dict[str, Any],
        model: Model | None,
        data: Dataset,
        held_out: Dataset | None,
        design: Design,
        device: str,
        states: str = AUTO,
        settings: Settings | None = None,
    ) -> None:
        self.states = states if states != AUTO else str(manifest.get("states", AUTO))
        check_states(self.states)
        self.run, self.manifest, self.model, self.data = run, manifest, model, data
        self.design = design
        self._labels = data.labels.copy()  # the user may write to theirs
        self._settings = settings or Settings.read(manifest["training"])
        self.held_out = held_out if held_out is not None else data.take(design.held_out)
        self._anywhere = _is_auto(model, device)
        waits = model is None and device == "auto"  # asking for it imports torch: seconds
        self._device = None if waits else device_of(model, device)
        self.precision = settled_precision(run, manifest, lambda: self.device)
        self.names = Catalogue(run, manifest, len(design.members))
        self.shadows = (
            ShadowSet(run, why_none=NotGivenError(self.cannot("run_shadows")))
            if self.is_watched
            else current_set(run, self.precision, _why_no_shadows(design))
        )
        is_fixed = self.is_watched or self.is_recording
        why_none = NotGivenError(self.cannot("run_references")) if is_fixed else None
        self.references = References(run, manifest, design, data.ids, self.precision, why_none)
        self.decision_log = log_of(data, run)
        self.cache, self.alone, self.loaded = Cache(), OneAtATime(), Loaded()

    @property
    def device(self) -> str:
        """The device to compute on."""
        if self._device is None:
            self._device = resolve_device("auto")
        return self._device

    def __repr__(self) -> str:
        return (
            f"Audit({self.data!r}, {len(self.member_rows)} members, "
            f"{len(self.names.records())} checkpoints, {len(self.shadows)} shadow models)"
        )

    @property
    def path(self) -> str:
        """The run directory."""
        return str(self.run.path)

    @property
    def seed(self) -> int:
        """Seed of every draw."""
        return int(self.manifest["seed"])

    @property
    def training(self) -> Settings:
        """How the target and its shadow models are trained, on any machine.

        `precision` is the one that ``"auto"`` meant where the run was made.

        Raises
        ------
        NotGivenError
            If `mw.watch` recorded the run.
        """
        if self.is_watched:
            raise NotGivenError(f"{self.path} was recorded from a loop whose settings are unknown")
        return replace(self._settings, precision=self.precision)

    @property
    def evidence(self) -> tuple[str, ...]:
        """Shadow models are among them once they give a ground truth, references once trained."""
        there = {
            SHADOWS: self.has_ground_truth,
            REFERENCES: len(self.references) > 0,
        }
        found = tuple(kind for kind, is_there in there.items() if is_there)
        return (REPRESENTATIONS, LOGITS, TRACE, *found)

    def cannot(self, work: str) -> str:
        """Why a run cannot do a kind of work, and what to do instead."""
        if (self.is_watched or self.is_recording) and work not in _CANNOT:
            done = _NEED_WEIGHTS.get(work, f"do this ({work})")
            lacks = (
                "was recorded by mw.watch, which keeps no model and no weights"
                if self.is_watched
                else "is a recorded audit, which holds numbers, but no model, weights or samples"
            )
            return (
                f"{self.path} {lacks}, so it "
                f"cannot {done}. For that, make an audit with mw.Audit(model, data, path=…)"
            )
        return _CANNOT.get(work, f"{self.path} does not know how to {work}")

    # samples

    @property
    def pool_rows(self) -> NDArray[np.int64]:
        """Rows of `data` that a model may train on, (n_pool,)."""
        return self.design.pool

    @property
    def member_rows(self) -> NDArray[np.int64]:
        """Rows of `data` that the target trains on, (n_members,)."""
        return self.design.members

    @property
    def members(self) -> NDArray[np.str_]:
        """Ids of the members, (n_members,)."""
        return self.data.ids[self.member_rows]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label that each member is trained on, (n_members,)."""
        return self._labels[self.member_rows]

    @property
    def member_data(self) -> Dataset:
        """The members as a dataset."""
        return self.data.take(self.member_rows)

    def clean_data(self) -> Dataset:
        """All samples, with their labels from before label noise."""
        return true_labels(self.data, noise_of(self.data, self.design, self.manifest))

    # the target

    @property
    def checkpoints(self) -> pd.DataFrame:
        """One row for each checkpoint, as `Audit.checkpoints` describes."""
        records = self.names.records()
        table = pd.DataFrame([asdict(r) for r in records], columns=list(_COLUMNS))
        table = table.astype({"test_loss": float, "test_accuracy": float}).set_index("name")
        table.insert(3, "drop", [record.drop(records[0]) for record in records])
        chosen = self.names.prediction().record.name if len(records) > 1 else None
        table["prediction"] = table.index == chosen
        table["learned"] = [not self._guard(record) for record in records]
        return table

    def forward(self, record: Record, progress: Progress | None = None) -> StoredPass:
        """The forward pass of a checkpoint over the members, computed if it is missing."""
        made = self.kept_forward(record)
        if made.exists:
            return made
        with self.alone(progress):
            if not made.exists:
                warn_of(made.why_not)
                target, report, start = self.target(), progress or Progress(), time.monotonic()
                made.fill(
                    lambda allocate: target.forward(record.name, report, allocate), self.labels
                )
                self._pass_seconds = time.monotonic() - start
            return made

    def pass_cost(self) -> tuple[float | None, int | None]:
        """Seconds of the last forward pass that was made here, and bytes of one on disk, if any."""
        kept = (self.kept_forward(record) for record in self.names.records())
        return self._pass_seconds, next((one.size for one in kept if one.exists), None)

    def kept_forward(self, record: Record) -> StoredPass:
        """The forward pass of a checkpoint as the run directory holds it, or will."""
        made_in = precision_at(self.run, record, self.precision)
        return StoredPass(self.run, record.name, made_in, record.weights, states=self.states)

    def logits_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Logits of the members at a checkpoint, (n_members, n_classes).

        Those of the forward pass, where there is one, as the scores are; else those that training
        kept.
        """
        made = self.kept_forward(record)
        return (made if made.exists else self._outputs(record, progress)).logits()

    def losses_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Training loss of each member at a checkpoint, (n_members,), as training kept it."""
        return self._outputs(record, progress).losses()

    def has_losses(self, record: Record) -> bool:
        """Whether `losses_at` needs no pass."""
        return self._kept_outputs(record) is not None

    def target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        """The target's logit gap of each member, (n_members,)."""
        return self.forward(record).gaps(self.labels)

    def gaps_of(self, record: Record, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """The target's logit gap of any rows of `data`; None without its model or data."""
        if not self.asks_model:
            return None
        logits = self.target().look(record.name, rows).logits
        return logit_gap(logits, self.data.labels[rows]).astype(np.float32)

    @property
    def is_watched(self) -> bool:
        """Whether `mw.watch` recorded the run."""
        return self.manifest.get("kind") == WATCHED

    @property
    def is_recording(self) -> bool:
        """Whether these are the numbers of a run that was exported without its weights."""
        return self.manifest.get("recording") is not None

    @property
    def makes_passes(self) -> bool:
        """Whether a missing forward pass can be made; a watched run has no weights."""
        return not self.is_watched

    @property
    def asks_model(self) -> bool:
        """Whether model and data are at hand, so that new numbers can be computed."""
        return self.model is not None and not isinstance(self.data, WithheldDataset)

    def notes_at(self, checkpoint: str | float) -> tuple[str, ...]:
        """What a reader must know before trusting a score at a checkpoint."""
        record = self.names.record(checkpoint)
        chosen = self.names.prediction()
        notes = chosen.warnings if record == chosen.record else ()
        return (*self._guard(record), *notes, *self._noise_note(), *fork_note(self.manifest))

    def target(self) -> TargetTraining:
        """What trains the target and looks at it.

        Raises
        ------
        StoreError
            If the model or the data are not at hand.
        """
        recipe = self.recipe()
        return TargetTraining(self.run, recipe, self.design, self.held_out, self.seed, self.loaded)

    def recipe(self, *, keep: bool = True) -> Recipe:
        """Model, data, settings and device.

        With `keep`, the manifest of an old run gets the precision that it lacks.

        Raises
        ------
        StoreError
            If the model or the data are not at hand, or the data were changed since.
        """
        if self.is_watched or self.is_recording:
            raise NotGivenError(self.cannot("repeat"))
        if self.model is None or not self.asks_model:
            raise StoreError(
                f"this needs the model and the data of {self.path}: "
                "Audit.open(path, data=…, model=…)"
            )
        self._check_unchanged()
        check_available(torch_device(self.device), self.precision)
        if keep:
            self._keep_precision()
        return Recipe(self.model, self.data, self.training, self.device, self._anywhere)

    def refuse_recorded(self, instead: str) -> None:
        """Refuse to train what a Trainer trains: the two would not go on from each other."""
        if read_course(self.run) is not None:
            raise StoreError(f"{self.path} was recorded from a Trainer: {instead}")

    # its shadow models

    @property
    def shadow_sets(self) -> dict[str, int]:
        """Number of shadow models of each design, by the key of its set."""
        return {key: len(kept) for key, kept in shadow_sets(self.run).items()}

    @property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end can be computed from what is at hand."""
        final = self.names.final()
        if final is None or len(self.shadows) < FEWEST_SHADOWS:
            return False
        if final.name not in self.shadows.checkpoints():
            return False
        return self.kept_forward(final).exists or self.asks_model

    @property
    def truth_in_words(self) -> str:
        """What log-LiRA is computed from."""
        return f"log-LiRA from {len(self.shadows)} shadow models, variance shrunk"

    def gaps_known(self, checkpoint: str) -> bool:
        """Whether the target's logit gaps at a checkpoint are on disk."""
        return self.kept_forward(self.names.record(checkpoint)).exists

    def forward_state(self, checkpoint: str | float) -> tuple[Hashable, ...]:
        """A value that changes when the forward pass of a checkpoint does, or its kept logits."""
        name = self.names.record(checkpoint).name
        return name, self.run.state(f"forward/{name}"), self.run.state(outputs_of(name))

    def gaps_state(self, checkpoint: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """A value that changes when log-LiRA at a checkpoint may."""
        target = self.run.state(f"forward/{checkpoint}")
        return self.shadows.key, (*self.shadows.state(), target)

    # inside

    def _outputs(self, record: Record, progress: Progress | None) -> StoredPass:
        """Logits and losses of a checkpoint; a pass over the members makes them if need be."""
        kept = self._kept_outputs(record)
        if kept is not None:
            return kept
        if not self.asks_model:
            raise NotGivenError(
                f"the losses at {record.name} were not kept, and a pass over the members that "
                f"makes them needs the model and the data of {self.path}"
            )
        with self.alone(progress):
            if self._kept_outputs(record) is None:
                (progress or Progress()).report(0, 1, f"computing the losses at {record.name}")
                self.target().look_again(record)
        return self._trained_outputs(record)

    def _kept_outputs(self, record: Record) -> StoredPass | None:
        """What training kept of a checkpoint; where it kept nothing, the forward pass, if any."""
        for made in (self._trained_outputs(record), self.kept_forward(record)):
            if made.exists:
                return made
            warn_of(made.why_not)
        return None

    def _trained_outputs(self, record: Record) -> StoredPass:
        made_in = precision_at(self.run, record, self.precision)
        place = outputs_of(record.name)
        return StoredPass(self.run, record.name, made_in, record.weights, place)

    def _check_unchanged(self) -> None:
        """Raise if samples or labels were written to since the audit was made."""
        contents = zip(self.data.content_hashes(), self.manifest["content"], strict=True)
        changed = self.data.labels != self._labels
        changed |= np.array([now != before for now, before in contents], dtype=np.bool_)
        if changed.any():
            raise StoreError(
                f"{int(changed.sum())} samples or their labels were changed in place since this "
                f"audit was made, the first is {quoted(self.data.ids[changed.argmax()])}; undo "
                "that, and make another audit of a changed copy (with_labels, from_arrays) at "
                "another path"
            )

    def _keep_precision(self) -> None:
        """Write the precision into the manifest of a run from before it was there."""
        if is_settled(self.manifest):
            return
        self.manifest = {**self.manifest, "precision": self.precision}
        with suppress(StoreError):  # where nothing can be written, nothing is trained
            stored = self.run.read_manifest()
            self.run.write_manifest({**stored, "precision": self.precision})
        warnings.warn(
            f'{self.path} was made with precision="auto" and does not say what that meant: it '
            f"goes on in {self.precision}, here and on any other machine",
            UserWarning,
            stacklevel=3,
        )

    def _noise_note(self) -> tuple[str, ...]:
        share = Settings.read(self.manifest["training"]).label_noise
        if not share:
            return ()
        note = f"label noise is on: {share:.1%} of the pool's labels were flipped at random"
        fell_on = self._flipped_canaries()
        if fell_on:
            note += (
                f", {fell_on} canaries among them (an earlier version did not spare them): what is "
                "measured on canaries is wrong, so make the run again at another path"
            )
        return (note,)

    def _flipped_canaries(self) -> int:
        """Count the canaries that lost the wrong label they were given."""
        canaries = self.data.canaries
        if canaries is None or self.manifest.get("noise_draw", 1) > 1:
            return 0
        return int(canaries[noise_of(self.data, self.design, self.manifest).positions].sum())

    def _guard(self, record: Record) -> tuple[str, ...]:
        return guard_warnings(record, len(self.data.class_names), self.held_out.labels)


def run_behind(source: Source, work: str) -> RunSource:
    """Return the source as a run, for work that only a run can do.

    Raises
    ------
    NotGivenError
        If the source cannot do that work; the message says why, and what to do instead.
    """
    if isinstance(source, RunSource):
        trains = work not in _READ_ONLY
        if not source.is_watched and not (source.is_recording and trains):
            return source
    raise NotGivenError(source.cannot(work))


def noise_of(data: Dataset, design: Design, manifest: Mapping[str, Any]) -> LabelNoise:
    """Return the label noise of a run, drawn as its manifest says."""
    share = Settings.read(manifest["training"]).label_noise
    return draw_noise(data, design.pool, share, manifest["seed"], manifest.get("noise_draw", 1))


def _why_no_shadows(design: Design) -> StoreError | None:
    """Return why shadow models on halves of the pool would be of no use, or None."""
    return StoreError(NOTHING_LEFT_OUT) if design.all_members else None


def device_of(model: Model | None, device: str) -> str:
    """Return the device to compute on: the one asked for, or the one that the model prefers."""
    return resolve_device(_asked_for(model, device))


def _is_auto(model: Model | None, device: str) -> bool:
    return _asked_for(model, device) == "auto"


def _asked_for(model: Model | None, device: str) -> str:
    preferred = model.device if model is not None and device == "auto" else None
    return preferred or device
