"""The audit of one model on one dataset: train, score, shadow, evaluate, look."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import evaluation
from memowidgets.audit import identity, scoring
from memowidgets.audit.console import shown
from memowidgets.audit.decisions import kept, true_labels
from memowidgets.audit.parts.base import device_of
from memowidgets.audit.parts.evaluated import EvaluatedAudit
from memowidgets.audit.shapes import read_manifest
from memowidgets.audit.summary import summary_html
from memowidgets.data import Dataset
from memowidgets.decisions import DecisionLog
from memowidgets.models import Model
from memowidgets.models.precision import resolve_precision
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training import TrainingConfig
from memowidgets.training.config import Settings
from memowidgets.training.design import HeldOut, Members, draw_design
from memowidgets.training.device import torch_device
from memowidgets.training.noise import draw_noise

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from memowidgets.charts import Figures
    from memowidgets.widgets import Dashboard

__all__ = ["Audit"]


class Audit(EvaluatedAudit):
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
    TypeError
        If the model can't read the data or the held-out samples.

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
        if not isinstance(data, Dataset):
            raise TypeError(f"data must be a dataset of mw.data, not {type(data).__name__}")
        for samples in (data, held_out):
            if isinstance(samples, Dataset):
                model.check_data(samples)
        seed = int(seed)
        settings = (training or TrainingConfig()).resolved(model.training_defaults)
        design = draw_design(data, members, held_out, seed)
        aside = held_out if isinstance(held_out, Dataset) else None
        if aside is not None:
            identity.check_held_out(aside, data, design)
        run = RunDirectory(path)
        device = device_of(model, device)
        precision = resolve_precision(torch_device(device), settings.precision)
        manifest = identity.describe_run(model, data, design, aside, settings, seed, precision)
        manifest = identity.continued(run, manifest, device)
        share, draw = settings.label_noise, manifest.get("noise_draw", 1)
        trained_on = draw_noise(data, design.pool, share, seed, draw).applied(data)
        manifest = identity.settle(run, manifest, trained_on, design)
        self._set_up(run, manifest, model, trained_on, aside, design, device)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        data: Dataset | str | os.PathLike[str] | None = None,
        model: Model | str | os.PathLike[str] | None = None,
        held_out: Dataset | None = None,
        device: str = "auto",
    ) -> Self:
        """Continue a run from its directory.

        Parameters
        ----------
        path : path-like
            The run directory.
        data : Dataset or path-like, optional
            The run's data, or the file or folder that they were loaded from. Bundled and
            generated data, and those of the hub that lie on this machine, are made again
            without it; a path that the run names is never read unless you pass it. Without
            data all that was computed is there, but nothing new is, and samples show as ids.
        model : Model or path-like, optional
            The run's model, or the folder that it was loaded from; the same holds for it.
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

        Warns
        -----
        UserWarning
            If the run names a path for its data or model; the message says what to pass.
        """
        return cls.from_run(RunDirectory.existing(path), data, model, held_out, device)

    @classmethod
    def from_run(
        cls,
        run: RunDirectory,
        data: Dataset | str | os.PathLike[str] | None = None,
        model: Model | str | os.PathLike[str] | None = None,
        held_out: Dataset | None = None,
        device: str = "auto",
    ) -> Self:
        """As `open`, for a run directory that is open already."""
        manifest = read_manifest(run)
        run.hold(manifest)
        design = identity.read_design(run, manifest)
        found, made = identity.reopened(run, manifest, design, data, model, held_out)
        if found is not None:
            share = Settings.read(manifest["training"]).label_noise
            draw = manifest.get("noise_draw", 1)
            noise = draw_noise(found, design.pool, share, manifest["seed"], draw)
            found = noise.applied(found)
        known = found or identity.read_data(run, manifest)
        return cls._of(run, manifest, made, known, held_out, design, device)

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

    def __repr__(self) -> str:
        return (
            f"Audit({self._data!r}, {len(self._design.members)} members, "
            f"{len(self._catalogue.records())} checkpoints, {len(self._shadows)} shadow models)"
        )

    def _repr_html_(self) -> str:
        return summary_html(self)

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

    def evaluate_pooled(
        self,
        metric: str | scoring.Metric = "psmi",
        layer: str | int = "last",
        eta: float = 4.0,
        truth: str = "log_lira",
        targets: str | Sequence[int] = "all",
        progress: Progress | None = None,
        *,
        with_canaries: bool = True,
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
        with_canaries : bool
            Whether log-LiRA judges the canaries too; in the paper's rows by η there are none.

        Returns
        -------
        Evaluation
            Every interval is from a bootstrap that draws samples and models, because pairs of
            one sample, and pairs of one model, depend on each other. With a single target it
            draws samples alone, and a warning says so.

        Raises
        ------
        StoreError
            If there are no shadow models, or one kept no forward pass:
            ``run_shadows(…, keep_forward=True)``.
        ValueError
            If there is nothing to pool, or all or no pairs are memorised, or canaries are the
            truth and to be left out.
        """
        from memowidgets.audit.pooling import pooled_evaluation

        named = isinstance(targets, str)
        every = self._shadows.indices() if named else [int(target) for target in targets]
        if (named and targets != "all") or not (named or every):
            raise ValueError(f"targets must be 'all' or indices of shadow models, not {targets!r}")
        if truth == "canaries" and not with_canaries:
            raise ValueError('truth="canaries" needs with_canaries=True')
        if not every:
            raise StoreError("there are no shadow models: run_shadows(…, keep_forward=True) first")
        with shown(progress) as report:
            return pooled_evaluation(
                self, every, metric, layer, eta, truth, report, with_canaries=with_canaries
            )

    def figures(
        self,
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
        etas: Iterable[float] | None = None,
        compute: bool = False,
        theme: str = "light",
        targets: str = "own",
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
        targets : {"own", "all"}
            Whose members the figures by η hold against the truth: this target's, or, as the
            paper's on CIFAR-10, those of every shadow model in its turn, pooled as
            `evaluate_pooled` does, without canaries at each η. The latter takes a while.

        Returns
        -------
        Figures
            Charts by name, ``tables``, ``missing`` (what was not drawn, why, and the call that
            computes it), ``notes`` and ``save()``. In a notebook it shows them all.

        Raises
        ------
        ValueError
            If the theme or the targets are unknown, or η is not a number.
        """
        from memowidgets.audit.figures import audit_figures

        return audit_figures(self, eta, truth, etas, compute, theme, targets)

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
        tau: float | None = None,
        metric: str | None = None,
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
        tau : float, optional
            Where τ stands at first, and what the words and the twins are about. 0 for PSMI and
            the logit gap, where it means something; −4 for the baseline.
        metric : str, optional
            The score, as in `score`; at the last layer and the prediction checkpoint. PSMI by
            default; the logit gap of an audit from arrays that has no representations.

        Returns
        -------
        Path
            The page.

        Raises
        ------
        ValueError
            If the path does not end in ``.html``, τ is no number, or not given for a score that
            has no natural one, or the score is unknown.
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

    @property
    def decisions(self) -> pd.DataFrame:
        """What was decided on samples, in the dashboard or in ``decisions.csv``.

        Returns
        -------
        DataFrame
            ``id``, ``decision`` ("keep", "anonymise" or "remove"; "undecided" where there is
            a note alone) and ``note``.

        Warns
        -----
        UserWarning
            If ``decisions.csv`` cannot be read; then only decisions of this session are there.
        """
        self._decision_log.refresh()
        if self._decision_log.unread:
            warnings.warn(self._decision_log.unread, UserWarning, stacklevel=2)
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
            If the samples are not at hand, or ``decisions.csv`` cannot be read.
        ValueError
            If a sample is to be anonymised but `edits_file` holds no text for it, or nothing
            would be left.

        Warns
        -----
        UserWarning
            If duplicates of removed or anonymised samples stay.
        """
        self._decision_log.refresh()
        if self._decision_log.unread:
            raise StoreError(self._decision_log.unread)
        settings, seed = self.training, self._manifest["seed"]
        draw = self._manifest.get("noise_draw", 1)
        noise = draw_noise(self._data, self._design.pool, settings.label_noise, seed, draw)
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
