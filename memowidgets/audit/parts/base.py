"""What every part of an audit stands on: the run, its data, its checkpoints."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit import scoring, shadowing
from memowidgets.audit.catalogue import Catalogue
from memowidgets.audit.decisions import RunKeeper
from memowidgets.audit.forking import fork_note
from memowidgets.audit.guard import guard_warnings
from memowidgets.audit.precisions import is_settled, settled_precision
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.decisions import DecisionLog
from memowidgets.models import Model
from memowidgets.models.precision import check_available
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.config import Settings
from memowidgets.training.design import Design
from memowidgets.training.device import device_status, resolve_device, torch_device
from memowidgets.training.learner import Recipe
from memowidgets.training.made_in import precision_at
from memowidgets.training.noise import draw_noise
from memowidgets.training.recorder import read_course
from memowidgets.training.rho import Prediction, Record
from memowidgets.training.target import TargetTraining

__all__ = ["METRICS", "AuditBase", "device_of"]

METRICS = (*scoring.METRICS, "baseline")
GapsState = tuple[str, tuple[tuple[int, ...], ...]]
_PATIENCE_SECONDS = 0.2


class AuditBase:
    """Knows its run."""

    _precision = "float32"  # of those that compute nothing

    def _set_up(
        self,
        run: RunDirectory,
        manifest: dict[str, Any],
        model: Model | None,
        data: Dataset,
        held_out: Dataset | None,
        design: Design,
        device: str,
    ) -> None:
        self._run, self._manifest, self._model, self._data = run, manifest, model, data
        self._design = design
        self._held_out = held_out if held_out is not None else data.take(design.held_out)
        self._device = device_of(model, device)
        self._precision = settled_precision(run, manifest, self._device)
        self._catalogue = Catalogue(run, manifest, len(design.members))
        self._shadows = shadowing.current_set(run, self._precision)
        self._decision_log = DecisionLog(RunKeeper(run), run.path, data.ids)
        self._lock = threading.RLock()
        self._log_lira: dict[tuple[str, str, str, bool], tuple[GapsState, pd.DataFrame]] = {}

    @property
    def path(self) -> str:
        """The run directory."""
        return str(self._run.path)

    @property
    def data(self) -> Dataset:
        """All samples: members, others of the pool, held-out ones."""
        return self._data

    @property
    def members(self) -> NDArray[np.str_]:
        """Ids of the samples that the target trains on, (n_members,)."""
        return self._data.ids[self._design.members]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The label that each member is trained on, (n_members,)."""
        return self._data.labels[self._design.members]

    @property
    def recording(self) -> dict[str, str] | None:
        """What a recorded audit is, how to get its data, and what made it; None for others."""
        return self._manifest.get("recording")

    @property
    def forked(self) -> dict[str, Any] | None:
        """What `fork` made this audit from; None for others.

        ``parent`` (a digest of that run), ``start``, ``checkpoint`` (None from scratch) and
        ``seen``: how many samples its weights have learned from that were removed or changed.
        """
        fork = self._manifest.get("fork")
        return (
            None if fork is None else {key: value for key, value in fork.items() if key != "gone"}
        )

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the model's layers, first to last; layer 1 is the first."""
        return self._catalogue.layer_names

    @property
    def training(self) -> Settings:
        """How the target and the shadow models are trained, on whatever machine.

        `precision` is the one that ``"auto"`` meant where the run was made.
        """
        asked = Settings.read(self._manifest["training"])
        return replace(asked, precision=self._precision)

    @property
    def checkpoints(self) -> pd.DataFrame:
        """One row a checkpoint, by name.

        Returns
        -------
        DataFrame
            ``epoch``, ``step``, ``median_loss`` and ``drop`` (over the target's members, in eval
            mode), ``train_loss``, ``train_accuracy``, ``test_loss``, ``test_accuracy`` (NaN
            where nothing was held out), ``prediction`` (the one that the ρ rule chose) and
            ``learned`` (False where the guard says that scores predict nothing yet).
        """
        records = self._catalogue.records()
        table = pd.DataFrame([asdict(r) for r in records], columns=list(_COLUMNS))
        table = table.astype({"test_loss": float, "test_accuracy": float}).set_index("name")
        table.insert(3, "drop", [record.drop(records[0]) for record in records])
        chosen = self.prediction.record.name if len(records) > 1 else None
        table["prediction"] = table.index == chosen
        table["learned"] = [not self._guard(record) for record in records]
        return table

    @property
    def prediction(self) -> Prediction:
        """The checkpoint that the ρ rule chose.

        Raises
        ------
        ValueError
            If the target was not trained yet.
        """
        return self._catalogue.prediction()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores that can be had: the baseline needs shadow models."""
        return METRICS if self.has_ground_truth else scoring.METRICS

    @property
    def n_shadows(self) -> int:
        """How many shadow models are on disk."""
        return len(self._shadows)

    @property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end can be computed from what is there."""
        final = self._catalogue.final()
        if final is None or self.n_shadows < shadowing.FEWEST_SHADOWS:
            return False
        if final.name not in self._shadows.checkpoints():
            return False
        return self._stored_pass(final).exists or self._can_compute

    @property
    def truth_version(self) -> tuple[str, int]:
        """Differs once log-LiRA at the end may: the set of shadow models, and their files."""
        final = self._catalogue.final()
        key, files = self._gaps_state("" if final is None else final.name)
        return key, hash(files)

    @property
    def truth_in_words(self) -> str:
        """Where log-LiRA is from."""
        return f"log-LiRA from {len(self._shadows)} shadow models, variance shrunk"

    @property
    def member_data(self) -> Dataset:
        """The target's members as a dataset, in the order of `members`."""
        return self._data.take(self._design.members)

    def warnings_at(self, checkpoint: str | float) -> tuple[str, ...]:
        """What must be known before a score at a checkpoint is trusted."""
        record = self._catalogue.record(checkpoint)
        chosen = self.prediction
        notes = chosen.warnings if record == chosen.record else ()
        return (*self._guard(record), *notes, *self._noise_note(), *fork_note(self._manifest))

    def device_status(self) -> str:
        """The device and its memory in a few words."""
        return device_status(self._device)

    def _gaps_state(self, checkpoint: str) -> GapsState:
        """What differs once log-LiRA at a checkpoint may.

        The number of shadow models would not do: another model may take the place of one.
        """
        target = self._run.state(f"forward/{checkpoint}")
        return self._shadows.key, (*self._shadows.state(), target)

    def _pass_state(self, checkpoint: str | float) -> tuple[object, ...]:
        """What differs once the forward pass of a checkpoint is another one."""
        name = self._catalogue.record(checkpoint).name
        return name, self._run.state(f"forward/{name}")

    def _recipe(self) -> Recipe:
        if self._model is None or not self._can_compute:
            raise StoreError(
                f"this needs the model and the data of {self.path}: "
                "Audit.open(path, data=…, model=…)"
            )
        check_available(torch_device(self._device), self._precision)
        self._keep_precision()
        return Recipe(self._model, self._data, self.training, self._device)

    def _keep_precision(self) -> None:
        """Write the precision into the manifest of a run from before it was there."""
        if is_settled(self._manifest):
            return
        self._manifest = {**self._manifest, "precision": self._precision}
        with suppress(StoreError):  # where nothing can be written, nothing is trained
            stored = self._run.read_manifest()
            self._run.write_manifest({**stored, "precision": self._precision})
        warnings.warn(
            f'{self.path} was made with precision="auto" and does not say what that meant: it '
            f"goes on in {self._precision}, here and on any other machine",
            UserWarning,
            stacklevel=3,
        )

    def _refuse_outside(self, instead: str) -> None:
        """Refuse to train where a Trainer does: the two would not go on from each other."""
        if read_course(self._run) is not None:
            raise StoreError(f"{self.path} was recorded from a Trainer: {instead}")

    def _target(self) -> TargetTraining:
        return TargetTraining(
            self._run, self._recipe(), self._design, self._held_out, self._manifest["seed"]
        )

    def _pass(self, record: Record, progress: Progress | None) -> scoring.Pass:
        """The forward pass of a checkpoint, made if it was not."""
        made = self._stored_pass(record)
        if made.exists:
            return made
        with self._alone(progress):
            if not made.exists:
                scoring.warn_of(made.why_not)
                with made.filling() as allocate:
                    self._target().forward(record.name, progress or Progress(), allocate)
            return made

    def _stored_pass(self, record: Record) -> scoring.Pass:
        """The forward pass of a checkpoint as the run directory holds it, or will."""
        made_in = precision_at(self._run, record, self._precision)
        return scoring.Pass(self._run, record.name, made_in, record.weights)

    @contextmanager
    def _alone(self, progress: Progress | None) -> Iterator[None]:
        """Wait for what another thread does with this audit; a cancel ends the waiting."""
        while not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            if progress is not None:
                progress.report(0, 1, "waiting for other work on this audit")
        try:
            yield
        finally:
            self._lock.release()

    @property
    def _can_compute(self) -> bool:
        return self._model is not None and not isinstance(self._data, WithheldDataset)

    def _noise_note(self) -> tuple[str, ...]:
        share = self.training.label_noise
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
        """How many canaries have lost the wrong label that they were given."""
        canaries, draw = self._data.canaries, self._manifest.get("noise_draw", 1)
        if canaries is None or draw > 1:
            return 0
        share, seed = self.training.label_noise, self._manifest["seed"]
        noise = draw_noise(self._data, self._design.pool, share, seed, draw)
        return int(canaries[noise.positions].sum())

    def _guard(self, record: Record) -> tuple[str, ...]:
        return guard_warnings(record, len(self._data.class_names), self._held_out.labels)


def device_of(model: Model | None, device: str) -> str:
    """The device to compute on: the one asked for, or where the model prefers to be."""
    preferred = model.device if model is not None and device == "auto" else None
    return resolve_device(preferred or device)


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
