"""The audit of one model on one dataset: train, score, shadow, evaluate, look."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation, memorization
from memowidgets.audit import identity, scoring, shadowing
from memowidgets.audit.catalogue import Catalogue
from memowidgets.audit.console import shown
from memowidgets.audit.decisions import RunKeeper, kept, true_labels
from memowidgets.audit.forking import check_start, fork_note
from memowidgets.audit.guard import guard_warnings
from memowidgets.audit.summary import summary_html
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.decisions import DecisionLog
from memowidgets.metrics import logit_gap
from memowidgets.models import Model
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training import TrainingConfig
from memowidgets.training.config import Settings
from memowidgets.training.design import Design, HeldOut, Members, draw_design
from memowidgets.training.device import device_status, resolve_device
from memowidgets.training.learner import Recipe
from memowidgets.training.noise import draw_noise
from memowidgets.training.recorder import Recorder, read_course
from memowidgets.training.rho import Prediction, Record, StopRule
from memowidgets.training.target import TargetTraining

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from memowidgets.audit.comparing import MemorizationComparison
    from memowidgets.charts import Figures
    from memowidgets.widgets import Dashboard

__all__ = ["Audit"]

_PATIENCE_SECONDS = 0.2
METRICS = (*scoring.METRICS, "baseline")


class Audit:
    """Predicts which training samples a model will memorise, and checks the prediction.

    Parameters
    ----------
    model : Model
        What is trained.
    data : Dataset
        What it is trained on.
    path : path-like
        The run directory: made if it is not there, continued if it holds this very run.
    training : TrainingConfig, optional
        How; the fields left open follow the model.
    seed : int
        Of every draw: the split, the weights, the order, the shadow models.
    device : str
        ``"auto"``, or as torch names it.
    members : {"half", "all"}, sequence of ids, or mask of shape (n,)
        What the target trains on: a seeded half of the pool (the study design, which ground
        truth needs), all of it (a practitioner's own model), or these samples.
    held_out : float, Dataset or None
        Share of the data that no model trains on, or a dataset of its own.

    Raises
    ------
    ValueError
        If the run directory holds another run; the message names the difference.

    Notes
    -----
    The method is Algorithm 1 of Dentan et al., ECAI 2025: interrupt when the median training
    loss has dropped by ρ, score every member's representation, flag those with score ≤ τ.

    Examples
    --------
    >>> import tempfile
    >>> import memowidgets as mw
    >>> data = mw.data.load_digits(canaries=0.05)
    >>> training = mw.TrainingConfig(epochs=3)
    >>> audit = mw.Audit(mw.models.ConvNet(), data, path=tempfile.mkdtemp(), training=training)
    >>> audit.train(stop_at_drop=0.5)
    >>> scores = audit.score("psmi")
    >>> len(scores) == len(audit.members)
    True
    """

    def __init__(
        self,
        model: Model,
        data: Dataset,
        path: str | os.PathLike[str],
        training: TrainingConfig | None = None,
        seed: int = 0,
        device: str = "auto",
        members: Members = "half",
        held_out: HeldOut = 1 / 9,
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model must be a model of mw.models, not {model!r}")
        if isinstance(seed, bool) or seed != int(seed) or seed < 0:
            raise ValueError(f"seed must be a whole number from 0, not {seed!r}")
        seed = int(seed)
        settings = (training or TrainingConfig()).resolved(model.training_defaults)
        design = draw_design(data, members, held_out, seed)
        aside = held_out if isinstance(held_out, Dataset) else None
        if aside is not None:
            identity.check_held_out(aside, data, design)
        run = RunDirectory(path)
        manifest = identity.describe_run(model, data, design, aside, settings, seed)
        trained_on = draw_noise(data, design.pool, settings.label_noise, seed).applied(data)
        identity.settle(run, manifest, trained_on, design)
        self._set_up(run, manifest, model, trained_on, aside, design, device)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        data: Dataset | None = None,
        model: Model | None = None,
        held_out: Dataset | None = None,
        device: str = "auto",
    ) -> Self:
        """Continue a run from its directory.

        Parameters
        ----------
        path : path-like
            The run directory.
        data : Dataset, optional
            The run's data, where they can't be loaded from their source again. Without them
            all that was computed is there, but nothing new is, and samples show as ids.
        model : Model, optional
            The run's model, where it can't be made from its source again.
        held_out : Dataset, optional
            The held-out samples, where they were a dataset of their own.
        device : str
            ``"auto"``, or as torch names it.

        Returns
        -------
        Audit

        Raises
        ------
        StoreError
            If there is no run, it is broken, or the data are not the run's.
        ValueError
            If the model is not the run's.
        """
        return cls.from_run(RunDirectory.existing(path), data, model, held_out, device)

    @classmethod
    def from_run(
        cls,
        run: RunDirectory,
        data: Dataset | None = None,
        model: Model | None = None,
        held_out: Dataset | None = None,
        device: str = "auto",
    ) -> Self:
        """As `open`, for a run directory that is open already."""
        manifest = run.read_manifest()
        design = identity.read_design(run)
        data, model = identity.reopened(run, manifest, design, data, model, held_out)
        if data is not None:
            share = Settings.read(manifest["training"]).label_noise
            data = draw_noise(data, design.pool, share, manifest["seed"]).applied(data)
        known = data or identity.read_data(run, manifest)
        return cls._of(run, manifest, model, known, held_out, design, device)

    @classmethod
    def _of(cls, *parts: Any) -> Self:
        """An audit of what is made already: the parts that `_set_up` takes."""
        audit = cls.__new__(cls)
        audit._set_up(*parts)  # noqa: SLF001 - a second constructor
        return audit

    @staticmethod
    def from_arrays(
        labels: ArrayLike,
        representations: ArrayLike | Mapping[Any, ArrayLike] | None = None,
        logits: ArrayLike | None = None,
        log_lira: ArrayLike | None = None,
        samples: Any = None,
        *,
        ids: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        canaries: ArrayLike | None = None,
        shadow_gaps: ArrayLike | None = None,
        shadow_members: ArrayLike | None = None,
        path: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> Audit:
        """An audit of arrays that are there already: no model, no training.

        Whatever is not given is an error where it is needed, which names what to pass. Arrays
        may be lists or torch tensors; they are not copied where they need not be.

        Parameters
        ----------
        labels : array-like of shape (n,)
            What each sample was trained on, integers from 0. All samples are members.
        representations : array-like of shape (n, values), or {layer: array}, optional
            For PSMI and Mahalanobis; the last of a mapping is ``"last"``. What has more axes is
            flattened.
        logits : array-like of shape (n, n_classes), optional
            For the loss, the logit gap, probabilities and the guard. −inf for an option that a
            question lacks, which also follows from the samples where they are questions. The
            loss is over these columns.
        log_lira : array-like of shape (n,) or Series by id, optional
            The truth; NaN for a sample that has none. It is taken as it is; other variances and
            standard errors are computed from `shadow_gaps`, where they are given too.
        samples : Dataset, array of images, or list of texts or records, optional
            What is shown, and what `kept` keeps; ids are shown without it. Records have
            ``question`` and ``choices``, or ``text``.
        ids : sequence of str, optional
            Unique names; those of the samples, or their positions, by default.
        class_names : sequence of str, optional
            Names of the classes; of the samples, or their numbers, by default.
        canaries : mask of shape (n,), optional
            Which samples were planted to be memorised.
        shadow_gaps, shadow_members : array-like of shape (n_shadows, n), optional
            Logit gaps under shadow models, and who trained on what (bool): with `logits`,
            log-LiRA is computed from them.
        path : path-like, optional
            A folder for decisions; they are in memory alone without it. Nothing else is written.
        seed : int
            Of PSMI's directions.

        Returns
        -------
        Audit
            With one checkpoint, ``"given"``, which is ``"prediction"`` and ``"final"`` too.
            Whether it is early enough for a prediction is the user's to know.

        Raises
        ------
        ValueError, TypeError
            If something is missing, or shapes, dtypes, values, labels or ids don't fit; the
            message says what, where, and what would be right.

        Examples
        --------
        >>> import numpy as np
        >>> import memowidgets as mw
        >>> rng = np.random.default_rng(0)
        >>> labels = np.arange(200) % 2
        >>> X = rng.normal(size=(200, 8)) + 4 * labels[:, None]
        >>> X[0] = 4.0  # at home in the other class
        >>> audit = mw.Audit.from_arrays(labels=labels, representations=X)
        >>> audit.flagged(tau=0.0).index.tolist()
        ['000']
        """
        from memowidgets.audit.from_arrays import ArraysAudit
        from memowidgets.audit.given import checked

        given = checked(
            labels,
            representations,
            logits,
            log_lira,
            samples,
            ids,
            class_names,
            canaries,
            shadow_gaps,
            shadow_members,
        )
        return ArraysAudit(given, path, seed)

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
        preferred = model.device if model is not None and device == "auto" else None
        self._device = resolve_device(preferred or device)
        self._catalogue = Catalogue(run, manifest, len(design.members))
        self._shadows = shadowing.current_set(run)
        self._decision_log = DecisionLog(RunKeeper(run), outside=run.path)
        self._lock = threading.RLock()
        self._log_lira: dict[tuple[str, str, str, str, int, bool], pd.DataFrame] = {}

    # What is there

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
        return self._manifest.get("fork")

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the model's layers, first to last; layer 1 is the first."""
        return self._catalogue.layer_names

    @property
    def training(self) -> Settings:
        """How the target and the shadow models are trained."""
        return Settings.read(self._manifest["training"])

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

    def __repr__(self) -> str:
        return (
            f"Audit({self._data!r}, {len(self._design.members)} members, "
            f"{len(self._catalogue.records())} checkpoints, {len(self._shadows)} shadow models)"
        )

    def _repr_html_(self) -> str:
        return summary_html(self)

    # Training

    def train(
        self,
        stop_at_drop: float | None = None,
        progress: Progress | None = None,
        over_last: int = 1,
    ) -> None:
        """Train the target, on from where it stands.

        Parameters
        ----------
        stop_at_drop : float, optional
            ρ: interrupt at the first checkpoint where the median training loss has dropped by
            this share (paper, Section 4.3; 0.95 for practitioners). Without it, train to the
            end; what was interrupted ends bit for bit like what was not.
        progress : Progress, optional
            Where to report and hear of a cancel; a progress bar by default.
        over_last : int
            Beside `stop_at_drop`: of how many evaluations after step 0 the median counts as the
            loss. Some, such as 3, where it jumps up and down, as that of an image network does.

        Raises
        ------
        StoreError
            If another process trains this run, or it cannot be written.
        FloatingPointError
            If the training diverges.
        """
        stop = _stop_rule(stop_at_drop, over_last)
        self._refuse_outside("resume it with trainer.train(resume_from_checkpoint=True)")
        check_start(self._run, self._manifest)
        with self._lock, shown(progress) as report:
            if stop is not None:
                self._catalogue.stop = stop
            self._target().train(stop, report)
        if stop is not None:
            for note in self.prediction.warnings:
                warnings.warn(note, UserWarning, stacklevel=2)

    def recorder(
        self,
        stop_at_drop: float | None = None,
        layers: str | int | Iterable[str | int] = "all",
        over_last: int = 1,
    ) -> Recorder:
        """What keeps checkpoints of a target that is trained elsewhere.

        `memowidgets.training.MemorizationCallback` uses it, for transformers' Trainer.

        Parameters
        ----------
        stop_at_drop : float, optional
            ρ, by which the checkpoint "prediction" is chosen from now on.
        layers : "all", one, or several
            Whose hidden states are kept, as in `score`.
        over_last : int
            As in `train`.

        Returns
        -------
        Recorder

        Raises
        ------
        TypeError, ValueError
            If the audit's model can't stand for one that is trained elsewhere.
        """
        stop = _stop_rule(stop_at_drop, over_last)
        recorder = Recorder(
            self._run,
            self._recipe(),
            self._design,
            self._held_out,
            self.layers,
            self._catalogue.some_layers(layers),
            keep=lambda name, seen: scoring.Pass(self._run, name).write(seen),
            shown=shown,
        )
        if stop is not None:
            self._catalogue.stop = stop
        return recorder

    def run_shadows(
        self,
        n: int,
        executor: Executor | None = None,
        checkpoints: str | float | Sequence[str | float] = ("prediction", "final"),
        design: str = "halves",
        keep_forward: bool | str | int | Sequence[str | int] = False,
        audited: Sequence[str] | NDArray[np.bool_] | None = None,
        processes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Train shadow models on parts of the pool, until there are `n`.

        Another process, or another machine that shares the disk, may call this on the same
        directory: each shadow model is trained once.

        Parameters
        ----------
        n : int
            How many in all; those on disk are kept. The paper takes 100.
        executor : concurrent.futures.Executor, optional
            Where to train: any, such as Dask's ``client.get_executor()``; it stays yours. Local
            processes by default.
        checkpoints : sequence
            Where each leaves its logit gaps.
        design : {"halves", "balanced", "canaries"}
            What each trains on: a random half (the paper); halves in complementary pairs, so that
            with an even `n` every sample is in exactly half of the models; or the target's
            members without the audited samples, and half of those, in such pairs. Each design is
            a set of its own, and the truth comes from the set that was asked for last.
        keep_forward : bool, or layers
            Whether each keeps its forward pass over its own members at the prediction checkpoint,
            with the last layer's representation or those named ("all"): `as_target` needs it.
        audited : mask of shape (n,) or sequence of ids, optional
            For "canaries"; the canaries by default. Duplicates go together.
        processes : int, optional
            Shadow models in hand at once: by default a local process for each core or GPU, or
            what the executor has.
        progress : Progress, optional
            Where to report and hear of a cancel; a progress bar by default.

        Raises
        ------
        ValueError
            If the target trains on everything: then there is no half to compare with. If a name
            is unknown, or nothing can be audited.
        StoreError
            If they cannot be written, a worker or the executor died, or a worker has other
            versions of memowidgets, torch or Python; the finished ones are kept.
        """
        shadowing.check_request(n, executor, checkpoints, processes)
        plan = shadowing.planned(self._data, self._design, design, audited)
        self._refuse_outside(
            "shadow models must be trained as their target was; for ground truth, let "
            "audit.train() train the target of another run"
        )
        with self._lock:
            records = self._catalogue.some_records(checkpoints)
            job = shadowing.make_job(
                self._recipe(),
                self._design,
                self._manifest,
                self._run,
                self._catalogue,
                checkpoints,
                plan,
                keep_forward,
            )
            self._shadows = shadowing.use_set(self._run, plan.key)
        with shown(progress) as report:
            self._shadows.fill(n, job, processes, report, executor)
            for record in records:  # what log-LiRA needs of the target
                self._pass(record, report)

    @property
    def shadow_sets(self) -> dict[str, int]:
        """How many shadow models there are of each design, by the key of its set."""
        return {key: len(kept) for key, kept in shadowing.shadow_sets(self._run).items()}

    def use_shadows(self, design: str) -> None:
        """Take the truth from the shadow models of another design.

        Parameters
        ----------
        design : str
            "halves", "balanced", "canaries", or a key out of `shadow_sets`.

        Raises
        ------
        ValueError
            If there is no such set, or there are several of that design.
        """
        key = shadowing.set_of_design(self._run, design).key
        with self._lock:
            self._shadows = shadowing.use_set(self._run, key)

    # Numbers

    def score(
        self,
        metric: str | scoring.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        *,
        name: str | None = None,
        return_std: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        """Score the target's members; low means likely to be memorised.

        Parameters
        ----------
        metric : {"psmi", "loss", "logit_gap", "mahalanobis", "baseline"} or callable
            Paper, Section 4.3. ``"baseline"`` is −log-LiRA at the checkpoint and needs shadow
            models. A callable takes (representation, logits, labels) of all members and returns
            one value for each.
        layer : int, str
            From 1, a name out of `layers`, or ``"last"``; for PSMI, Mahalanobis and callables.
        checkpoint : str, float
            ``"prediction"``, ``"final"``, an epoch, or a name out of `checkpoints`.
        name : str, optional
            Of the series; the metric's by default.
        return_std : bool
            Whether to return PSMI's standard errors too.
        progress : Progress, optional
            Where to report and hear of a cancel.

        Returns
        -------
        Series
            One float a member, by id; members whose class has fewer than two have no PSMI and
            are left out, with a warning.
        Series
            The standard errors, if `return_std`.

        Raises
        ------
        ValueError
            If metric, layer or checkpoint is unknown; the message lists the valid ones.
        """
        scores = self.raw_scores(metric, layer, checkpoint, progress)
        missing = len(self._design.members) - len(scores.rows)
        if missing:
            left_out = np.setdiff1d(np.arange(len(self._design.members)), scores.rows)
            reason = (
                "they are in every shadow model or in none"
                if metric == "baseline"
                else "their class has fewer than two"
            )
            warnings.warn(
                f"{missing} members have no score, {reason}: "
                f"{', '.join(self.members[left_out[:5]])}{' …' if missing > 5 else ''}",
                UserWarning,
                stacklevel=2,
            )
        label = name or _name_of(metric)
        index = pd.Index(self.members[scores.rows], name="id")
        values = pd.Series(scores.mu, index, name=label)
        if not return_std:
            return values
        if scores.errors is None:
            raise ValueError(f"{label} has no standard error; PSMI has")
        return values, pd.Series(scores.errors, index, name=f"{label}_std")

    def raw_scores(
        self,
        metric: str | scoring.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        progress: Progress | None = None,
    ) -> scoring.Scores:
        """What `score` returns, as arrays, with the standard errors; computed if need be."""
        if metric not in METRICS if isinstance(metric, str) else not callable(metric):
            raise ValueError(
                f"unknown score {metric!r}; valid: {', '.join(METRICS)}, or a callable "
                "(representation, logits, labels)"
            )
        record, name = self._catalogue.record(checkpoint), self._catalogue.layer(layer)
        if metric == "baseline":
            return self._baseline(record)
        if not isinstance(metric, str):
            return self._custom(metric, self._pass(record, progress), name)
        if self.is_computed(metric, name, record.name):
            return self._stored_or_scored(metric, name, record, progress)
        with self._alone(progress):
            return self._stored_or_scored(metric, name, record, progress)

    def _stored_or_scored(
        self, metric: str, layer: str, record: Record, progress: Progress | None
    ) -> scoring.Scores:
        made, seed = self._pass(record, progress), self._manifest["seed"]
        report = progress or Progress()
        return scoring.score_pass(self._run, made, metric, layer, self.labels, seed, report)

    def is_computed(
        self, metric: str, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> bool:
        """Whether `score` answers from disk."""
        record, name = self._catalogue.record(checkpoint), self._catalogue.layer(layer)
        if not scoring.Pass(self._run, record.name).exists:
            return False
        stored = scoring.stored_name(metric, name, record.name)
        return metric not in scoring.PER_LAYER or self._run.has(stored)

    @overload
    def log_lira(
        self,
        checkpoint: str | float = ...,
        variance: str = ...,
        mode: str = ...,
        *,
        return_std: Literal[False] = ...,
    ) -> pd.Series: ...
    @overload
    def log_lira(
        self,
        checkpoint: str | float = ...,
        variance: str = ...,
        mode: str = ...,
        *,
        return_std: Literal[True],
    ) -> tuple[pd.Series, pd.Series]: ...
    def log_lira(
        self,
        checkpoint: str | float = "final",
        variance: str = "shrunk",
        mode: str = "online",
        *,
        return_std: bool = False,
    ) -> pd.Series | tuple[pd.Series, pd.Series]:
        """How strongly the target gives away that it trained on each member (paper, Appendix A).

        Parameters
        ----------
        checkpoint : str, float
            Target and shadow models are compared at the same one.
        variance : {"shrunk", "per-sample", "global"}
            Of the gaps, see `memowidgets.memorization.log_lira`.
        mode : {"online", "offline"}
            Both sides, or the models that did not train on a sample alone.
        return_std : bool
            Whether to return standard errors too, from a jackknife over the shadow models.

        Returns
        -------
        Series
            log p_in − log p_out of the target's logit gap, by id, in nats. Members that are in
            every shadow model or in none have no log-LiRA and are left out; ``attrs["left_out"]``
            says how many.
        Series
            The standard errors, if `return_std`; NaN where there are too few to leave one out.

        Raises
        ------
        ValueError
            If no member is in two shadow models and out of two others.
        StoreError
            If there are no shadow models, or none that kept this checkpoint.
        """
        record = self._catalogue.record(checkpoint)
        key = (record.name, variance, mode, self._shadows.key, self.n_shadows, return_std)
        if key not in self._log_lira:
            self._log_lira[key] = self._computed_log_lira(record, variance, mode, return_std)
        table = self._log_lira[key]
        series = table["log_lira"].copy()
        series.attrs["left_out"] = len(self._design.members) - len(series)
        return (series, table["log_lira_std"].copy()) if return_std else series

    def member_gaps(
        self, checkpoint: str | float = "final"
    ) -> tuple[str, NDArray[np.bool_], NDArray[np.float32], NDArray[np.float32]]:
        """What log-LiRA compares.

        Returns
        -------
        str
            Name of the checkpoint.
        array of shape (n_shadows, n_members), bool
            Which shadow model trained on which of the target's members.
        array of shape (n_shadows, n_members), float32
            Their logit gaps.
        array of shape (n_members,), float32
            The target's.

        Raises
        ------
        StoreError
            If there are no shadow models, or none that kept this checkpoint.
        """
        record = self._catalogue.record(checkpoint)
        shadows = self._shadows.read(record.name)
        columns = np.searchsorted(self._design.pool, self._design.members)
        chosen = shadows.members[:, columns], shadows.gaps[:, columns]
        return record.name, *chosen, self._target_gaps(record).astype(np.float32)

    def representation(
        self, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> NDArray[np.float32]:
        """A layer's output for each member, memory-mapped, (n_members, values).

        Raises
        ------
        StoreError
            If it is not there: nothing was scored at the checkpoint yet, or a recording has it
            not.
        """
        record = self._catalogue.record(checkpoint)
        made = scoring.Pass(self._run, record.name)
        if not made.exists:
            raise StoreError(f"nothing was scored at {record.name} yet: call score() there first")
        return made.representation(self._catalogue.layer(layer))

    def _computed_log_lira(
        self, record: Record, variance: str, mode: str, return_std: bool
    ) -> pd.DataFrame:
        _, members, gaps, _ = self.member_gaps(record.name)
        target = self._target_gaps(record)
        table = pd.DataFrame(index=pd.Index(self.members, name="id"))
        if return_std:
            table["log_lira"], table["log_lira_std"] = memorization.log_lira(
                gaps, members, target, variance, mode, return_std=True
            )
        else:
            table["log_lira"] = memorization.log_lira(gaps, members, target, variance, mode)
        return table.dropna(subset="log_lira")

    def _target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        return logit_gap(self._pass(record, None).logits(), self.labels)

    def compare_memorization(
        self,
        checkpoint: str | float = "final",
        variance: str = "shrunk",
        n_bootstrap: int = 500,
        random_state: int = 0,
    ) -> MemorizationComparison:
        """How far the definitions of memorisation agree (paper, Appendix C).

        Parameters
        ----------
        checkpoint : str, float
            Target and shadow models are compared at the same one.
        variance : {"shrunk", "per-sample", "global"}
            Of LiRA, local and global.
        n_bootstrap, random_state : int
            Resamples of the members for the intervals, and their seed.

        Returns
        -------
        MemorizationComparison
            ``spearman``: ρ with its interval for each pair; ``values``: each member's
            memorisation by each definition; ``figure()``: the picture.
        """
        from memowidgets.audit.comparing import compared_definitions

        record = self._catalogue.record(checkpoint)
        _, members, gaps, _ = self.member_gaps(record.name)
        target, others = self._target_gaps(record), self._others(record)
        return compared_definitions(
            self.members, gaps, members, target, others, variance, n_bootstrap, random_state
        )

    def _others(
        self, record: Record
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.float32]] | None:
        """Shadow gaps, masks and target gaps of the pool's samples that are no members.

        None where the target can't be asked.
        """
        pool = self._design.pool
        columns = np.flatnonzero(~np.isin(pool, self._design.members))
        target = self._gaps_of(record, pool[columns]) if len(columns) > 1 else None
        if target is None:
            return None
        shadows = self._shadows.read(record.name)
        return shadows.gaps[:, columns], shadows.members[:, columns], target

    def _gaps_of(self, record: Record, positions: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """The target's gaps of any samples; None without its model or data."""
        if not self._can_compute:
            return None
        logits = self._target().look(record.name, positions).logits
        return logit_gap(logits, self._data.labels[positions]).astype(np.float32)

    def shadow_curve(
        self,
        metric: str | scoring.Metric = "psmi",
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        eta: float = 4.0,
        variance: str = "shrunk",
        sizes: Sequence[int] | None = None,
        repeats: int = 20,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """How many shadow models are enough: what would be found with fewer of those at hand.

        Parameters
        ----------
        metric, layer, checkpoint, eta
            As in `evaluate`.
        variance : {"shrunk", "per-sample", "global"}
            Of log-LiRA.
        sizes : sequence of int, optional
            Numbers of shadow models; 4, 8, 16, … and all by default.
        repeats : int
            Random subsets of each size, drawn without replacement; those of nearly all overlap,
            so that their band is too narrow.
        random_state : int
            Seed.

        Returns
        -------
        DataFrame
            A row for each ``n_shadows``: the ``auc`` of the score, how many members are
            ``memorized``, their ``agreement`` with those by all shadow models (the share of both
            sets that is in each) and Spearman's ``rho`` with log-LiRA by all of them; each with
            ``_low`` and ``_high``, between which 90 % of the subsets lie.
        """
        from memowidgets.audit.comparing import curve_over_shadows

        scores = self.raw_scores(metric, layer, checkpoint)
        name, members, gaps, _ = self.member_gaps("final")
        target = self._target_gaps(self._catalogue.record(name))
        return curve_over_shadows(
            gaps,
            members,
            target,
            scores.mu,
            scores.rows,
            variance,
            eta,
            sizes,
            repeats,
            random_state,
            pairs=self._shadows.key != "halves",
        )

    def as_target(self, index: int) -> Audit:
        """The same audit with a shadow model as the target, and the target among its shadows.

        Parameters
        ----------
        index : int
            Of the shadow model, from 0.

        Returns
        -------
        Audit
            Its members, scores and log-LiRA are the shadow model's: leave one out. Scores are
            those of the prediction checkpoint and of the layers that `run_shadows` kept with
            ``keep_forward``.

        Raises
        ------
        StoreError
            If there is no such shadow model.
        """
        from memowidgets.audit.as_target import ShadowAudit

        return ShadowAudit(self, index)

    def evaluate(
        self,
        metric: str | scoring.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
        uncertain: bool = False,
    ) -> evaluation.Evaluation:
        """How well a score predicts what the finished model memorises.

        Parameters
        ----------
        metric, layer, checkpoint
            As in `score`.
        eta : float
            A member is memorised if its log-LiRA at the end is at least this (paper: 4).
        truth : {"log_lira", "canaries"} or mask of shape (n_members,)
            What counts as memorised.
        uncertain : bool
            Whether a member counts as memorised with the probability that its log-LiRA is truly
            above η, given the error of the shadow models, instead of all or nothing.

        Returns
        -------
        Evaluation
            With warnings: few positives, members left out, a model that has not learned its
            task at the checkpoint (then no score predicts anything), a ρ that was not reached.
        """
        scores = self.raw_scores(metric, layer, checkpoint)
        memorized = self._probably(truth, eta) if uncertain else self._truth(truth, eta)
        values = pd.Series(scores.mu, self.members[scores.rows])
        both = values.index.intersection(memorized.index, sort=False)
        notes = [*self.warnings_at(checkpoint), *scores.notes]
        left_out = len(self._design.members) - len(both)
        if left_out:
            notes.append(f"{left_out} members are left out: they have no score or no log-LiRA")
        labels = memorized[both].to_numpy()
        if uncertain:
            result = evaluation.roc(values[both].to_numpy(), None, labels)
        else:
            result = evaluation.roc(values[both].to_numpy(), labels)
        return result.with_warnings(*notes)

    def evaluate_pooled(
        self,
        metric: str | scoring.Metric = "psmi",
        layer: str | int = "last",
        eta: float = 4.0,
        truth: str = "log_lira",
        targets: str | Sequence[int] = "all",
        progress: Progress | None = None,
    ) -> evaluation.Evaluation:
        """How well a score predicts, over every shadow model in its turn as the target.

        The paper's protocol for CIFAR-10: its members are judged by the other models, leave one
        out, at the prediction checkpoint, and all pairs of a member and a model are pooled.

        Parameters
        ----------
        metric, layer, eta
            As in `evaluate`.
        truth : {"log_lira", "canaries"}
            What counts as memorised. With the design "canaries" log-LiRA judges the audited
            samples alone; the truth "canaries" holds them against all other members.
        targets : "all", or indices
            Which shadow models.
        progress : Progress, optional
            Where to report and hear of a cancel; a progress bar by default.

        Returns
        -------
        Evaluation
            Every interval is from a bootstrap by sample: a sample's pairs depend on each other.

        Raises
        ------
        StoreError
            If there are no shadow models, or one kept no forward pass:
            ``run_shadows(…, keep_forward=True)``.
        ValueError
            If there is nothing to pool, or all or no pairs are of a memorised sample.
        """
        from memowidgets.audit.pooling import pooled_evaluation

        named = isinstance(targets, str)
        every = self._shadows.indices() if named else [int(target) for target in targets]
        if (named and targets != "all") or not (named or every):
            raise ValueError(f"targets must be 'all' or indices of shadow models, not {targets!r}")
        if not every:
            raise StoreError("there are no shadow models: run_shadows(…, keep_forward=True) first")
        with shown(progress) as report:
            return pooled_evaluation(self, every, metric, layer, eta, truth, report)

    def compare(
        self,
        metrics: Iterable[str] = scoring.METRICS,
        layers: str | Iterable[str | int] = "last",
        checkpoints: str | Iterable[str | float] = "prediction",
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
    ) -> pd.DataFrame:
        """AUC of several scores, at several layers and checkpoints.

        Parameters
        ----------
        metrics : iterable of str
            As in `score`.
        layers, checkpoints : "all", one, or several
            As in `score`; step 0 is left out of "all" checkpoints. Loss, logit gap and baseline
            have no layer: they get one row, with an empty one.
        eta, truth
            As in `evaluate`.

        Returns
        -------
        DataFrame
            ``metric``, ``layer``, ``checkpoint``, ``epoch``, ``auc``, ``auc_low``, ``auc_high``,
            ``n``, ``n_memorized``. Choosing the best row of it is choosing on the labels.
        """
        rows = []
        metrics = [metrics] if isinstance(metrics, str) else list(metrics)
        for record in self._catalogue.some_records(checkpoints):
            for metric in metrics:
                per_layer = metric in scoring.PER_LAYER
                for layer in self._catalogue.some_layers(layers) if per_layer else ("",):
                    found = self.evaluate(metric, layer or "last", record.name, eta, truth)
                    rows.append(
                        {
                            "metric": metric,
                            "layer": layer,
                            "checkpoint": record.name,
                            "epoch": record.epoch,
                            "auc": found.auc,
                            "auc_low": found.auc_interval[0],
                            "auc_high": found.auc_interval[1],
                            "n": found.n,
                            "n_memorized": found.n_memorized,
                        }
                    )
        return pd.DataFrame(rows)

    def flagged(
        self,
        tau: float = 0.0,
        metric: str | scoring.Metric = "psmi",
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
    ) -> pd.DataFrame:
        """The members with score ≤ τ, most at risk first.

        Parameters
        ----------
        tau : float
            The threshold; 0 for PSMI is the practitioner's (paper, Section 4.3).
        metric, layer, checkpoint
            As in `score`.

        Returns
        -------
        DataFrame
            By id: ``score``, ``std`` (where the score has one), ``label``, ``guess`` (the
            model's, at the checkpoint) and ``p_label`` (where there are logits), ``canary``
            (where there are some), ``log_lira`` (where there is ground truth).

        Warns
        -----
        UserWarning
            If the model has not learned its task at the checkpoint, or ρ was not reached.
        """
        if math.isnan(tau):
            raise ValueError("tau is NaN; it must be a number")
        for note in self.warnings_at(checkpoint):
            warnings.warn(note, UserWarning, stacklevel=2)
        scores = self.raw_scores(metric, layer, checkpoint)
        table = pd.DataFrame({"score": scores.mu}, pd.Index(self.members[scores.rows], name="id"))
        if scores.errors is not None:
            table["std"] = scores.errors
        names = np.array(self._data.class_names)
        labels = self.labels[scores.rows]
        table["label"] = names[labels]
        if "loss" in self.metrics:
            probabilities = self.probabilities(checkpoint)[scores.rows]
            table["guess"] = names[probabilities.argmax(axis=1)]
            table["p_label"] = probabilities[np.arange(len(labels)), labels]
        if self._data.canaries is not None:
            table["canary"] = self._data.canaries[self._design.members][scores.rows]
        if self.has_ground_truth:
            table["log_lira"] = self.log_lira()
        return table[table["score"] <= tau].sort_values("score", kind="stable")

    def probabilities(self, checkpoint: str | float = "prediction") -> NDArray[np.float64]:
        """The model's probability of each class for each member, (n_members, n_classes)."""
        from scipy.special import softmax

        logits = self._pass(self._catalogue.record(checkpoint), None).logits().astype(np.float64)
        probabilities: NDArray[np.float64] = softmax(logits, axis=1)
        return probabilities

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores that can be had: the baseline needs shadow models."""
        return METRICS if self.has_ground_truth else scoring.METRICS

    @property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end can be computed from what is there."""
        final = self._catalogue.final()
        if final is None or self.n_shadows < shadowing.FEWEST_SHADOWS:
            return False
        if final.name not in self._shadows.checkpoints():
            return False
        return scoring.Pass(self._run, final.name).exists or self._can_compute

    @property
    def n_shadows(self) -> int:
        """How many shadow models are on disk."""
        return len(self._shadows)

    @property
    def truth_version(self) -> tuple[str, int]:
        """Differs once log-LiRA at the end may: the set of shadow models, and how many."""
        return self._shadows.key, len(self._shadows)

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

    def figures(
        self,
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
        etas: Iterable[float] | None = None,
        compute: bool = False,
        theme: str = "light",
    ) -> Figures:
        """Every figure of the paper that can be drawn from what is computed.

        Parameters
        ----------
        eta, truth
            As in `evaluate`.
        etas : iterable of float, optional
            For the figures by η; 1 to 12, and panels at 4, 6, 8 and 10, by default.
        compute : bool
            Whether to compute scores from forward passes that are on disk; nothing is ever
            trained, and no forward pass made.
        theme : {"light", "dark"}
            Colours.

        Returns
        -------
        Figures
            Charts by name, ``tables``, ``missing`` (what was not drawn, why, and the call that
            computes it), ``notes`` and ``save()``. In a notebook it shows them all.

        Raises
        ------
        ValueError
            If the theme is unknown, or η is not a number.
        """
        from memowidgets.audit.figures import audit_figures

        return audit_figures(self, eta, truth, etas, compute, theme)

    def dashboard(self, edits_file: str | os.PathLike[str] | None = None) -> Dashboard:
        """The widget: pick checkpoint, layer and score, move τ, look at the samples, decide.

        Parameters
        ----------
        edits_file : path-like, optional
            Where anonymised texts go, as `edits_file`.
        """
        from memowidgets.audit.view import AuditView
        from memowidgets.widgets import Dashboard

        if edits_file is not None:
            self.edits_file = edits_file
        return Dashboard(AuditView(self))

    def report(
        self,
        path: str | os.PathLike[str],
        include_samples: bool = False,
        overwrite: bool = False,
        tau: float = 0.0,
        metric: str = "psmi",
    ) -> Path:
        """Write one page that opens offline, with a τ that moves, for someone who runs nothing.

        Beside it go its twins: ``.md`` for a pull request, ``.json`` for machines, by the schema
        of `memowidgets.report.schema`.

        Parameters
        ----------
        path : path-like
            Of the page; it ends in ``.html``.
        include_samples : bool
            Whether the samples most at risk are in it, with their labels, ids and notes. Without
            them the files hold numbers alone.
        overwrite : bool
            Whether files that are there are replaced.
        tau : float
            Where τ stands at first, and what the words and the twins are about.
        metric : str
            The score, as in `score`; at the last layer and the prediction checkpoint.

        Returns
        -------
        Path
            The page.

        Raises
        ------
        ValueError
            If the path does not end in ``.html``, τ is no number, or the score is unknown.
        FileNotFoundError, FileExistsError
            If the folder is not there, or one of the three files is.

        Notes
        -----
        What the audit has not (ground truth, checkpoints, samples) is named in the report as
        missing; no rate is ever made up.
        """
        from memowidgets.audit.reporting import content_of
        from memowidgets.report import checked_targets, write

        checked_targets(path, overwrite=overwrite)
        content = content_of(self, self._manifest, tau, metric, include_samples=include_samples)
        return write(content, path, overwrite=overwrite)

    # Decisions

    @property
    def decisions(self) -> pd.DataFrame:
        """What was decided on samples, in the dashboard or in ``decisions.csv``.

        Returns
        -------
        DataFrame
            ``id``, ``decision`` ("keep", "anonymise" or "remove"; "undecided" where there is
            a note alone) and ``note``.
        """
        self._decision_log.refresh()
        return self._decision_log.frame()

    @property
    def decision_log(self) -> DecisionLog:
        """The decisions with their undo, as the dashboards of this audit share them."""
        return self._decision_log

    @property
    def edits_file(self) -> Path | None:
        """The file of anonymised texts, outside the run directory; yours to choose.

        JSON lines that their owner alone can read. It is not noted in the run directory: set it
        again when you open the run.
        """
        return self._decision_log.edits_file

    @edits_file.setter
    def edits_file(self, path: str | os.PathLike[str] | None) -> None:
        self._decision_log.edits_file = path

    def kept(self) -> Dataset:
        """The dataset to train on after the decisions.

        Returns
        -------
        Dataset
            All of `data`, members or not, without the samples to be removed and with the
            anonymised texts in place of the original ones; others as they are, undecided ones
            too. Under label noise it has the labels from before it.

        Raises
        ------
        StoreError
            If the samples are not at hand.
        ValueError
            If a sample is to be anonymised but `edits_file` holds no text for it, or nothing
            would be left.

        Warns
        -----
        UserWarning
            If duplicates of removed or anonymised samples stay.
        """
        self._decision_log.refresh()
        settings, seed = self.training, self._manifest["seed"]
        noise = draw_noise(self._data, self._design.pool, settings.label_noise, seed)
        return kept(true_labels(self._data, noise), self._decision_log)

    def fork(
        self,
        path: str | os.PathLike[str],
        data: Dataset | None = None,
        start: Literal["scratch", "prediction"] = "scratch",
    ) -> Audit:
        """A new audit with the same model, settings and seed, on other data.

        Members and held-out samples are the same, by id, as far as they are in `data`, so that
        the two targets can be compared; new samples join the pool. Shadow models are its own.

        Parameters
        ----------
        path : path-like
            Its run directory: another one. Called again with the same, it goes on there.
        data : Dataset, optional
            What to train on; `kept` by default: without the samples that were removed, and with
            the anonymised texts.
        start : {"scratch", "prediction"}
            From fresh weights; or on from those of this audit's prediction checkpoint, with the
            optimizer's state if it is still there. **Those weights have already been trained on
            the removed samples**: what they left is not undone. `warnings_at` and the summary
            say so too, and shadow models, which start afresh, are no fair comparison then.

        Returns
        -------
        Audit
            Not trained yet, or as far as it was. ``forked`` says what it came from.

        Raises
        ------
        ValueError
            If the path is this run's own or holds another run, fewer than two members are in the
            data, classes differ, there is no prediction checkpoint to start from or nothing left
            to train after it, or this run has label noise (it would fall on other samples).
        StoreError
            If the model, the weights or the samples are not at hand, as in a recording.

        Warns
        -----
        UserWarning
            If weights that have seen removed samples are taken over.
        """
        from memowidgets.audit.forking import forked

        return forked(self, path, self.kept() if data is None else data, start)

    def compare_fork(
        self, fork: Audit, checkpoint: str | float = "final", variance: str = "shrunk"
    ) -> pd.DataFrame:
        """What this audit's members give away before and after: under its target and a fork's.

        Both targets are compared with the same shadow models, this audit's, which have trained
        on the removed samples too; the fork's own never did. What the new target memorises of
        the samples that were kept, its own shadow models tell better: ``fork.log_lira()``.

        Parameters
        ----------
        fork : Audit
            Made of this audit by `fork`, and trained.
        checkpoint : str, float
            Where this target, its shadow models and the fork's target are compared.
        variance : {"shrunk", "per-sample", "global"}
            Of log-LiRA.

        Returns
        -------
        DataFrame
            By id: ``fate`` ("kept", "removed", or "changed": then `after` is that of the sample
            as it was), ``before`` and ``after``: its log-LiRA under either target.

        Raises
        ------
        ValueError
            If it is no fork of this audit, or not trained that far.
        StoreError
            If there are no shadow models, or the samples are not at hand.
        """
        from memowidgets.audit.forking import compared

        return compared(self, fork, checkpoint, variance)

    def clear_cache(self) -> None:
        """Delete what was kept of frozen blocks' output, for this run and all others.

        It could be turned back into text; it is made again when it is needed.
        """
        from memowidgets.models.prefix import clear_cache

        clear_cache()

    def device_status(self) -> str:
        """The device and its memory in a few words."""
        return device_status(self._device)

    # Inside

    def _recipe(self) -> Recipe:
        if self._model is None or not self._can_compute:
            raise StoreError(
                f"this needs the model and the data of {self.path}: "
                "Audit.open(path, data=…, model=…)"
            )
        return Recipe(self._model, self._data, self.training, self._device)

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
        made = scoring.Pass(self._run, record.name)
        if made.exists:
            return made
        with self._alone(progress):
            if not made.exists:
                with made.filling() as allocate:
                    self._target().forward(record.name, progress or Progress(), allocate)
            return made

    def _baseline(self, record: Record) -> scoring.Scores:
        values = self.log_lira(record.name)
        if values.empty:
            raise ValueError(
                f"{self.n_shadows} shadow models are too few: no member is in some and not in "
                "others; run more"
            )
        rows = np.flatnonzero(pd.Index(self.members).isin(values.index))
        return scoring.Scores(rows, -values.to_numpy())

    def _custom(self, metric: scoring.Metric, made: scoring.Pass, layer: str) -> scoring.Scores:
        values = np.asarray(
            metric(np.array(made.representation(layer)), made.logits(), self.labels), float
        )
        if values.shape != self.labels.shape:
            raise ValueError(
                f"the metric returned the shape {values.shape}; it must return one value for each "
                f"of {len(self.labels)} members"
            )
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise ValueError(
                f"the metric returned {int(wrong.sum())} values that are not finite, the first "
                f"for {str(self.members[int(np.argmax(wrong))])!r}"
            )
        return scoring.Scores(np.arange(len(values)), values)

    def _probably(self, truth: str | ArrayLike, eta: float) -> pd.Series:
        """How probable it is that each member is memorised."""
        if not isinstance(truth, str) or truth != "log_lira":
            raise ValueError('only truth="log_lira" can be uncertain: no other has an error')
        values, errors = self.log_lira(return_std=True)
        probability = memorization.probability_memorized(values, errors, eta)
        return pd.Series(probability, values.index).dropna()

    def _truth(self, truth: str | ArrayLike, eta: float) -> pd.Series:
        if isinstance(truth, str):
            if truth == "log_lira":
                return self.log_lira() >= eta
            if truth == "canaries" and self._data.canaries is not None:
                return pd.Series(self._data.canaries[self._design.members], self.members)
            if truth == "canaries":
                raise ValueError("these data have no canaries: plant some with with_canaries")
            raise ValueError(f"unknown truth {truth!r}; valid: log_lira, canaries, or a mask")
        if isinstance(truth, pd.Series):
            return self._truth_by_id(truth)
        mask = np.asarray(truth)
        if mask.dtype != np.bool_ or mask.shape != (len(self._design.members),):
            raise ValueError(
                f"truth must be a boolean mask over the {len(self._design.members)} members, not "
                f"{mask.dtype} of shape {mask.shape}"
            )
        return pd.Series(mask, self.members)

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

    def _truth_by_id(self, truth: pd.Series) -> pd.Series:
        unknown = truth.index.difference(pd.Index(self.members))
        if len(unknown) or truth.dtype != np.bool_:
            raise ValueError(
                f"truth must be boolean and indexed by members' ids; it is {truth.dtype} and "
                f"{len(unknown)} of its ids are no members'"
            )
        return truth.reindex([i for i in self.members if i in truth.index])

    @property
    def _can_compute(self) -> bool:
        return self._model is not None and not isinstance(self._data, WithheldDataset)

    def _noise_note(self) -> tuple[str, ...]:
        share = self.training.label_noise
        if not share:
            return ()
        return (f"label noise is on: {share:.1%} of the pool's labels were flipped at random",)

    def _guard(self, record: Record) -> tuple[str, ...]:
        return guard_warnings(record, len(self._data.class_names), self._held_out.labels)


def _stop_rule(rho: float | None, over_last: int) -> StopRule | None:
    if rho is not None:
        return StopRule(rho, over_last)
    if over_last != 1:
        raise ValueError("over_last goes with stop_at_drop: say at which drop to interrupt")
    return None


def _name_of(metric: str | scoring.Metric) -> str:
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "__name__", type(metric).__name__))


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
