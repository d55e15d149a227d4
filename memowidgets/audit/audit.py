"""The audit of one model on one dataset: train, score, shadow, evaluate, look."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation
from memowidgets.audit.evidence import INSTEAD, OF_ARRAYS, Evidence, Need
from memowidgets.audit.numbers import computing, definitions, inputs, scores, truth
from memowidgets.audit.run import (
    ANOTHER,
    Run,
    ScoreKeeper,
    check_request,
    checked_part,
    folder_of,
    set_of_design,
    shadow_sets,
    stop_rule,
)
from memowidgets.audit.runs import opening
from memowidgets.audit.runs.identity import is_of_arrays
from memowidgets.checks import several, warn_user
from memowidgets.data import Dataset
from memowidgets.decisions import DecisionLog, apply_decisions, log_of
from memowidgets.files import write_whole
from memowidgets.models import Model
from memowidgets.models.device import free_memory, torch_device
from memowidgets.progress import Progress, progress_or_bar
from memowidgets.registry import Score, about_row, find_row, row_of_function
from memowidgets.store import NotThereError, RunDirectory, StoreError, run_at
from memowidgets.training import TrainingConfig
from memowidgets.training.config import CheckpointPlan, Settings
from memowidgets.training.design import REFERENCE, HeldOut, Members, ShadowDesign
from memowidgets.training.learner import check_start
from memowidgets.training.lookout import ELSEWHERE, Prediction, write_stop
from memowidgets.training.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from memowidgets.audit.numbers.definitions import MemorizationComparison
    from memowidgets.charts import Figures
    from memowidgets.training.script import ScriptWatch
    from memowidgets.training.trainer_callback import TrainerPasses
    from memowidgets.widgets import Dashboard


class Audit:
    """Predicts which training samples a model will memorise, and checks the prediction.

    Parameters
    ----------
    model : Model
        Model to train.
    data : Dataset
        Data to train it on.
    path : path-like
        Run directory. It is made if it does not exist, and continued if it holds this very run.
    training : TrainingConfig, optional
        How to train. The fields left open follow the model.
    seed : int
        Seed of every draw: the split, the weights, the order, the shadow models.
    device : str
        ``"auto"``, or as torch names it.
    members : {"half", "all"}, sequence of ids, or mask of shape (n,)
        The samples that the target model trains on: a random half of the pool (the study design,
        which ground truth needs), all of it (a practitioner's own model), or these samples. The
        pool is all samples that are not held out.
    held_out : float, sequence of ids, mask, Dataset or None
        Share of the data that no model trains on, or these samples of the data, or a dataset of
        its own.

    Attributes
    ----------
    evidence : memowidgets.audit.evidence.Evidence
        What all numbers are computed from, as it is now. For those who extend memowidgets.

    Raises
    ------
    ValueError
        If the run directory holds another run; the message names the difference.
    TypeError
        If the model cannot read the data or the held-out samples.

    Notes
    -----
    The method is Algorithm 1 of Dentan et al., ECAI 2025: interrupt when the median training
    loss has dropped by ρ, score every member's representation, flag those with score ≤ τ.

    A low score means risk, for every score. Log-LiRA, the ground truth, runs the other way: high
    means memorised.

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

    _run: Run | None  # arrays have none
    _take: Callable[[], Evidence]
    _log: DecisionLog
    _scores: ScoreKeeper
    _index: int | None = None  # of the shadow model that is the target

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
        run = opening.begun_run(
            model, data, path, training, seed, device, members, held_out
        )
        self._run, self._take, self._log = run, run.evidence, log_of(data, run.run)
        self._scores = run.scores

    @classmethod
    def of(cls, run: Run) -> Self:
        """Make an audit of a run that is at hand. For those who extend memowidgets."""
        own = {"_take": run.evidence, "_scores": run.scores}
        return cls._with(_run=run, **own, _log=log_of(run.data, run.run))

    @classmethod
    def _with(cls, **parts: object) -> Self:
        audit = cls.__new__(cls)
        vars(audit).update(parts)
        return audit

    @classmethod
    def _of_arrays(
        cls, given: Evidence, run: RunDirectory | None, kept: ScoreKeeper
    ) -> Self:
        own = {"_take": lambda: given, "_scores": kept}
        return cls._with(_run=None, **own, _log=log_of(given.data, run))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        data: Dataset | None = None,
        model: Model | None = None,
        held_out: Dataset | None = None,
        device: str = "auto",
    ) -> Self:
        """Open an audit from its run directory.

        Parameters
        ----------
        path : path-like
            The run directory.
        data : Dataset, optional
            The run's data. For a fork, the data of its parent will do: it takes its own samples
            from them, by id. Bundled and generated data are made again without it. Without the
            data, everything that was computed can be read, but nothing new can be computed, and
            samples show as ids.
        model : Model, optional
            The run's model. The networks of memowidgets are made again without it. An audit from
            arrays has none.
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
        run = run_at(path)
        if not is_of_arrays(run):
            return cls.of(opening.open_stored_run(run, data, model, held_out, device))
        if model is not None or held_out is not None:
            raise ValueError(
                f"{path} holds an audit of arrays, which has no model: pass data= alone"
            )
        from memowidgets.audit.runs.given import opened_arrays

        return cls._of_arrays(*opened_arrays(run, data))

    @classmethod
    def from_arrays(
        cls,
        labels: ArrayLike,
        representations: ArrayLike | Mapping[Any, ArrayLike] | None = None,
        logits: ArrayLike | None = None,
        log_lira: ArrayLike | None = None,
        samples: object = None,
        *,
        ids: Sequence[Any] | None = None,
        class_names: Sequence[str] | None = None,
        canaries: ArrayLike | None = None,
        shadow_gaps: ArrayLike | None = None,
        shadow_members: ArrayLike | None = None,
        final_logits: ArrayLike | None = None,
        reference_gaps: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        path: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> Self:
        """Audit arrays that you have already: no model, no training.

        Whatever is not given raises an error where it is needed; the message names what to pass.
        Arrays may be lists or torch tensors. The audit copies what can be changed, so later changes
        of your arrays don't reach it. What is read-only is not copied, such as
        ``np.load(path, mmap_mode="r")``.

        Parameters
        ----------
        labels : array-like of shape (n,)
            Label that each sample was trained on, integers from 0 or strings. All samples are
            members.
        representations : array-like of shape (n, values), or {layer: array}, optional
            For PSMI and Mahalanobis. The last layer of a mapping is ``"last"``. Layers with
            integers as names are sorted first. An array with more axes is flattened. A SciPy sparse
            matrix is made dense, with a warning of its size.
        logits : array-like of shape (n, n_classes), optional
            For the loss, the logit gap, probabilities and the warning of a model that has not
            learned. −inf stands for an option that a question does not have; where the samples
            are questions, that follows from them too. The loss is over these columns.
            Log-probabilities are logits. One value for each sample, of shape (n,), is the logit of
            the second of two classes, as scikit-learn's ``decision_function`` gives it.
        log_lira : array-like of shape (n,) or Series by id, optional
            The ground truth; NaN for a sample that has none. It is used as it is. Other
            variances and standard errors are computed from `shadow_gaps`, if they are given too.
        samples : Dataset, array of images, or list of texts or records, optional
            The samples to show, which `kept` keeps; ids are shown without it. Records have
            ``question`` and ``choices``, or ``text``. Other columns of a DataFrame are the values
            of a table's rows.
        ids : sequence, optional
            Unique names. Default: those of the samples, the index of a frame or Series, or
            positions. A Series or an Index keeps its type in tables, and files have its text.
        class_names : sequence of str, optional
            Names of the classes, in the order of the columns of `logits`. Default: those of the
            samples, or the labels that are strings, sorted, or their numbers.
        canaries : mask of shape (n,), optional
            Which samples were planted to be memorised.
        shadow_gaps, shadow_members : array-like of shape (n_shadows, n), optional
            Logit gaps under finished shadow models, and whether each of them trained on each
            sample (bool). Log-LiRA is computed from them and `final_logits`.
        final_logits : array-like of shape (n, n_classes) or (n,), optional
            Logits of the finished model, which log-LiRA compares with the shadow models. Pass those
            of `logits` again if they are the finished model's.
        reference_gaps : array-like of shape (n_references, n), optional
            Logit gaps under models that never saw the sample, NaN where one did, for the score
            ``"reference"``.
        probabilities : array-like of shape (n, n_classes) or (n,), optional
            In place of `logits`, as ``predict_proba`` gives them, with the classes in sorted order:
            their logarithms are the logits. One value for each sample is the probability of the
            second of two classes. Each row sums to 1.
        path : path-like, optional
            Run directory. The arrays are copied there, readable by you alone, and so are decisions
            and scores; `Audit.open` reads them again. Other arrays of the same samples replace
            them; decisions stay. Samples are never written: pass them to `Audit.open` as
            ``data=``. Without a path, everything is in memory alone.
        seed : int
            Seed of PSMI's directions.

        Returns
        -------
        Audit
            With one checkpoint, ``"given"``, which is ``"prediction"`` and ``"final"`` too. Only
            you can know whether representations and logits are early enough for a prediction.

        Raises
        ------
        ValueError, TypeError
            If something is missing, or shapes, dtypes, values, labels or ids do not fit. The
            message says what, where, and what would be right.

        Warns
        -----
        UserWarning
            If logits look like probabilities, probabilities are exactly 0 or 1, or a class never
            occurs. If the gaps of the shadow models and of the finished model hardly agree, as they
            do where the samples are in another order. If `reference_gaps` has a gap of a model that
            trained on a copy of the sample.

        Examples
        --------
        >>> import numpy as np
        >>> import memowidgets as mw
        >>> rng = np.random.default_rng(0)
        >>> labels = np.arange(200) % 2
        >>> X = rng.normal(size=(200, 8)) + 3 * labels[:, None]
        >>> X[0] = 3.0  # at home in the other class
        >>> audit = mw.Audit.from_arrays(labels=labels, representations=X)
        >>> audit.score("psmi").idxmin()
        '0'
        """
        from memowidgets.audit.runs.given import check_arrays, kept_arrays

        given = check_arrays(
            labels,
            samples,
            ids,
            class_names,
            canaries,
            representations,
            logits=logits,
            probabilities=probabilities,
            log_lira=log_lira,
            shadow_gaps=shadow_gaps,
            shadow_members=shadow_members,
            final_logits=final_logits,
            reference_gaps=reference_gaps,
        )
        return cls._of_arrays(*kept_arrays(given, path, seed))

    @classmethod
    def from_script(
        cls,
        fit: Callable[[NDArray[np.int64], ScriptWatch, int], Any],
        data: object,
        path: str | os.PathLike[str],
        members: Members = "half",
        held_out: Any = 1 / 9,
        seed: int = 0,
        *,
        checkpoint_every: float = 0.2,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        version: str | None = None,
    ) -> Self:
        """Audit a training script of your own, written as a function of the rows it trains on.

        The script trains the target, reference models and shadow models, each on other rows. What
        it does with them is its own: module, loss, optimizer, order and schedule.

        Parameters
        ----------
        fit : callable
            Function ``fit(rows, watch, seed)`` that trains one model on the samples of `data` at
            the positions `rows`, (n_rows,). It calls ``watch.follow(module,
            steps_per_epoch=len(loader))`` before its loop, and ``watch.step()`` after each
            optimizer step, and returns where that is True. A Trainer of transformers has
            ``callbacks=[watch.callback]`` in place of steps, and Lightning's has
            ``LightningCallback(watch)``. Python's, NumPy's and torch's
            generators are seeded before each call, and restored afterwards; `seed` is for what
            seeds itself.
        data : Dataset, torch dataset or DataLoader
            All samples that `fit` may train on, as in `mw.watch`.
        path : path-like
            Run directory. It is made if it does not exist, and continued if it holds this run.
        members, held_out
            As in `Audit`. `held_out` may also be a torch dataset.
        seed : int
            Seed of every draw. Each model's own seed follows from it.
        checkpoint_every : float
            Epochs between two checkpoints of the target. Each takes a pass over the pool.
        class_names, ids
            As in `mw.watch`.
        version : str, optional
            Text that identifies the script. Change it with what the audit does not see.

        Returns
        -------
        Audit

        Raises
        ------
        ValueError, TypeError
            If the data cannot be read as in `mw.watch`, or the path holds another run.

        Notes
        -----
        `train` calls the script, once. With ``stop_at_drop=``, ``watch.step()`` is True where to
        look, and the next call of `train` begins the script again from step 0, as it does after it
        was killed. It is refused if members have other losses than before, by more than 10⁻⁴ nats.
        The target's ``"final"`` checkpoint has the weights of the module when `fit` returns.

        A shadow or reference model makes only the passes that are asked for. Before the first of
        them, the script is called once more for a few steps, on other rows and with the target's
        seed: weights that are the same there mean that it ignores its rows, which is an error.

        A script is known by the names and shapes of the weights, the steps in an epoch, and its
        losses at recorded checkpoints. No weights are kept, so that scores of layers that
        ``watch.follow(layers=…)`` leaves out cannot be made later.

        Examples
        --------
        >>> import tempfile, torch
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from torch import nn
        >>> from torch.utils.data import DataLoader, Subset, TensorDataset
        >>> import memowidgets as mw
        >>> x, y = torch.randn(96, 8), torch.arange(96) % 2
        >>> data = TensorDataset(x + 2 * y[:, None], y)
        >>> def fit(rows, watch, seed):
        ...     module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        ...     optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
        ...     loader = DataLoader(Subset(data, rows), batch_size=8, shuffle=True)
        ...     watch.follow(module, steps_per_epoch=len(loader))
        ...     for epoch in range(4):
        ...         for inputs, labels in loader:
        ...             nn.functional.cross_entropy(module(inputs), labels).backward()
        ...             optimizer.step()
        ...             optimizer.zero_grad()
        ...             if watch.step():
        ...                 return
        >>> audit = mw.Audit.from_script(fit, data, path=tempfile.mkdtemp())
        >>> audit.train()
        >>> with ThreadPoolExecutor(1) as executor:  # without it, processes of this machine
        ...     audit.run_shadows(8, executor)
        >>> audit.has_ground_truth
        True
        """
        from memowidgets.audit.runs.scripts import begun_script

        places = members, held_out, seed, version, checkpoint_every, class_names, ids
        return cls.of(begun_script(fit, data, path, *places))

    @classmethod
    def from_estimator(
        cls,
        estimator: object,
        X: object,
        y: ArrayLike,
        path: str | os.PathLike[str],
        members: Members = "half",
        held_out: HeldOut = 1 / 9,
        seed: int = 0,
        *,
        cv: int | None = None,
        ids: Sequence[str] | None = None,
        version: str | None = None,
    ) -> Self:
        """Audit a classifier of scikit-learn's interface, refitted on rows.

        Parameters
        ----------
        estimator : classifier
            Classifier or pipeline with `fit`, and `decision_function` or `predict_proba`. It is
            cloned for each model, and each ``random_state`` of it follows from `seed`.
        X : array-like, sparse matrix, DataFrame or list of texts, of n samples
            What it reads.
        y : array-like of shape (n,)
            Classes, integers from 0 or strings.
        path, members, held_out, seed
            As in `Audit`. `held_out` is a share, ids or a mask.
        cv : int, optional
            Number of folds, 2 or more, for scores out of fold of all samples. The target then
            trains on all of them, `members` and `held_out` don't apply, and this call trains it and
            a model for each fold, on all others. Copies of a sample are in one fold.
        ids : sequence of str, optional
            Unique names of the samples. Default: the index of a frame, or positions.
        version : str, optional
            Text that identifies what the settings of the estimator don't show.

        Returns
        -------
        Audit
            Its checkpoints are stages of boosting, epochs of ``partial_fit`` of an
            `MLPClassifier` or an ``SGDClassifier(tol=None)``, or the end alone. Representations
            are the last hidden units of an `MLPClassifier`, the leaves of trees (Notes), and the
            logits of others, also where they are the last step of a pipeline.

        Raises
        ------
        TypeError, ValueError
            If it is not such a classifier, or data and path are as in `from_script`.

        Notes
        -----
        Logits are those of ``decision_function`` where it has a column for each class, else the
        logarithms of ``predict_proba``: of half a vote of a forest's trees, or of the rounding of
        float64, in place of 0. The extra ``torch`` must be installed.

        With `cv`, the score ``"reference"`` of a sample is its out-of-fold logit gap, z(label) −
        max z(other class), by the model that was fitted to the folds without it. The models of the
        folds are the reference models of `run_references`, which adds rounds of other folds. The
        score is then the mean over rounds.

        The leaves of T trees are projected to 64 values: (1/√T) Σ_t s(t, leaf_t(x)) / 8 with a
        random sign of each leaf for each value. The inner product of two samples is, in
        expectation, the share of the trees in which they are in one leaf.

        Examples
        --------
        >>> import tempfile
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> import memowidgets as mw
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = LogisticRegression(max_iter=1000)
        >>> audit = mw.Audit.from_estimator(clf, X, y, path=tempfile.mkdtemp())
        >>> audit.train()
        >>> with ThreadPoolExecutor(1) as executor:  # without it, processes of this machine
        ...     audit.run_shadows(16, executor)
        >>> len(audit.log_lira()) == len(audit.members)
        True
        >>> audit = mw.Audit.from_estimator(clf, X, y, path=tempfile.mkdtemp(), cv=5)
        >>> len(audit.flagged("reference", share=0.1))  # of all 150 rows
        15
        """
        from concurrent.futures import ThreadPoolExecutor

        from memowidgets.audit.runs.scripts import begun_estimator

        given = estimator, X, y, path, members, held_out, seed, cv, version, ids
        audit = cls.of(begun_estimator(*given))
        if cv is not None:
            audit.train()
            with ThreadPoolExecutor(1) as executor:  # fits, as cross_val_predict does
                audit.run_references(1, executor)
        return audit

    def __repr__(self) -> str:
        return repr(self.evidence)

    def _repr_html_(self) -> str:
        from memowidgets.audit.views.report import summary_html

        return summary_html(self.evidence)

    # The evidence, and the run behind it

    @property
    def evidence(self) -> Evidence:
        """What all numbers are computed from, as the run is now.

        It is the same object until somebody writes to the run.
        """
        return self._take()

    def _made(
        self,
        evidence: Evidence,
        needs: Iterable[Need],
        progress: Progress | None = None,
    ) -> Evidence:
        """Return the evidence after what is missing of `needs` was made, if it can be."""
        missing = evidence.missing(needs)
        if not missing:
            return evidence
        self.run.make(missing, progress)
        return self.evidence

    def evidence_for(
        self,
        metric: str | scores.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        truth: str | ArrayLike | None = "log_lira",
        *,
        answers: bool = False,
        progress: Progress | None = None,
    ) -> Evidence:
        """Return the evidence with all that a score, and the truth beside it, are computed from.

        What is missing is made, and what takes time of the score is computed and kept. The
        arguments are those of `scores.needs_of` and `scores.score`.
        """
        evidence = self.evidence
        needs = scores.needs_of(evidence, metric, checkpoint, truth, answers=answers)
        evidence = self._made(evidence, needs, progress)
        row = find_row(metric)
        self._keep(row, scores.ask(evidence, layer, checkpoint), progress)
        return evidence

    def _row(
        self,
        metric: str | scores.Metric,
        layer: str | int,
        checkpoint: str | float,
    ) -> Score:
        """Return the row of a score; the run is asked for one whose function is not here."""
        with suppress(ValueError):
            return find_row(metric)
        return scores.row_at(self.evidence, metric, layer, checkpoint)

    def _keep(
        self, row: Score, asked: inputs.Inputs, progress: Progress | None = None
    ) -> None:
        """Compute what is to be kept of a score and is not, and keep it."""
        every = computing.parts_of(row, asked)
        parts = [part for part in every if not computing.is_known(part)]
        report = progress or Progress()
        for done, part in enumerate(parts):
            report.report(done, len(parts), part.doing)
            start = time.monotonic()
            found = computing.computed(part)
            seconds = time.monotonic() - start
            self._scores.keep(part.key, found, about_row(part.row), seconds)
            # a function can't be interrupted, so this is where Cancel acts
            report.report(done + 1, len(parts), part.doing)
        whole = computing.ScorePart(row, asked)
        if computing.is_to_be_known(whole):
            found = computing.compute(row, asked)
            self._scores.keep(whole.key, found, about_row(row), 0.0)

    @property
    def run(self) -> Run:
        """The run directory with model and data, also of a shadow model as the target.

        Raises
        ------
        NotThereError
            If this audit is of arrays.
        """
        return self._run_behind("have a run")

    def _run_behind(self, work: str) -> Run:
        """Return the run. For arrays, the error says that they can't do some work."""
        if self._run is None:
            raise NotThereError(OF_ARRAYS.format(work), INSTEAD)
        return self._run

    def _run_for(self, work: str, instead: str = "") -> Run:
        """Return the run, if it can do some work; `instead` is as in `Run.check_can`."""
        if self._index is not None:
            what = f"shadow {self._index} is a shadow model, so it cannot {work}"
            raise NotThereError(what, "call this on the audit itself")
        run = self._run_behind(work)
        run.check_can(work, instead)
        return run

    # What it is of

    @property
    def path(self) -> str:
        """The run directory."""
        return self.evidence.path

    @property
    def data(self) -> Dataset:
        """All samples: members, other samples of the pool, and held-out ones."""
        return self.evidence.data

    @property
    def members(self) -> NDArray[Any]:
        """Ids of the samples that the target model trains on, (n_members,), as in `score`."""
        evidence = self.evidence
        if evidence.data.own_ids is None:
            return evidence.members
        return np.array(evidence.member_index)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label that each member is trained on, (n_members,)."""
        return self.evidence.labels

    @property
    def member_data(self) -> Dataset:
        """The target's members as a dataset, in the order of `members`."""
        return self.evidence.member_data

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the model's layers, first to last; layer 1 is the first."""
        return self.evidence.names.layer_names

    @property
    def training(self) -> Settings:
        """How the target and the shadow models are trained, on any machine.

        `precision` is the one that ``"auto"`` meant where the run was made. The settings of a
        recorded loop or Trainer are not known, and asking for them is an error.
        """
        return self.evidence.training()

    @property
    def recording(self) -> dict[str, str] | None:
        """Title, data, command and machine of a recorded audit; None for others."""
        return self.evidence.manifest.get("recording")

    @property
    def checkpoints(self) -> pd.DataFrame:
        """One row for each checkpoint, by name.

        Returns
        -------
        DataFrame
            ``epoch``, ``step``, ``median_loss`` and ``drop`` (over the target's members, in eval
            mode), ``train_loss``, ``train_accuracy``, ``test_loss``, ``test_accuracy`` (NaN
            where nothing was held out), ``prediction`` (True for the one to look at)
            and ``learned`` (False where the model has not learned its task yet, so that scores
            predict nothing).
        """
        return self.evidence.table()

    @property
    def prediction(self) -> Prediction:
        """The checkpoint to look at, which is where memorisation is predicted, and why.

        It is the earliest of three: the first one that reached ρ; that of the lowest held-out loss,
        if this has risen since by more than two standard errors (paired by sample); and, where ρ is
        not reached, the first one of the stretch on which the drop has levelled off. What was told
        when a training was interrupted stays. ``checkpoint="rho"`` is the paper's choice.

        Raises
        ------
        ValueError
            If the target was not trained yet.
        """
        return self.evidence.names.prediction()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores that can be computed; ``"baseline"`` needs shadow models."""
        return scores.metrics_of(self.evidence)

    @property
    def n_shadows(self) -> int:
        """Number of shadow models on disk."""
        return self.evidence.n_shadows

    @property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end of training is known or can be computed."""
        return self.evidence.has_ground_truth

    # Training

    def train(
        self,
        stop_at_drop: float | None = None,
        progress: Progress | None = None,
        over_last: int = 1,
    ) -> None:
        """Train the target model, or go on with its training.

        Parameters
        ----------
        stop_at_drop : float, optional
            ρ: interrupt where to look. That is the first checkpoint where the median training
            loss has dropped by this share (paper, Section 4.3; 0.95 for practitioners), or, if it
            comes before, where held-out loss has turned for long, or where the drop has levelled
            off. `prediction` is then the checkpoint to look at, and says why. Without it, train
            to the end. An interrupted training ends bit for bit like one that was not.
        progress : Progress, optional
            Receives the progress and can cancel. Default: a progress bar.
        over_last : int
            Number of evaluations in the running median of the loss, with `stop_at_drop`. Use 3
            or so when the loss is noisy, as in image training.

        Raises
        ------
        StoreError
            If another process trains this run, or it cannot be written.
        FloatingPointError
            If the training diverges.
        """
        run = self._run_for(
            "train", "trainer.train(resume_from_checkpoint=True) resumes it"
        )
        stop = stop_rule(stop_at_drop, over_last)
        check_start(run.run, run.manifest)
        with run.alone(), progress_or_bar(progress) as report:
            if stop is not None:
                write_stop(run.run, stop)
            run.check_code()
            run.training_of_target().train(stop, report)
        free_memory(torch_device(run.device))
        for note in run.names.prediction().warnings:
            if stop is not None or note.key == ELSEWHERE:
                warn_user(note)

    def recorder(
        self,
        stop_at_drop: float | None = None,
        layers: str | int | Iterable[str | int] = "last",
        over_last: int = 1,
        checkpoint_every: float | None = None,
        keep: str = "all",
    ) -> Recorder[TrainerPasses]:
        """Return what keeps the checkpoints of a target that is trained elsewhere.

        `memowidgets.training.MemorizationCallback` uses it, for transformers' Trainer.

        Parameters
        ----------
        stop_at_drop : float, optional
            ρ, by which the checkpoint "prediction" is chosen from now on, as in `train`.
        layers : "last", "all", one, or several
            Layers whose hidden states are kept, as in `score`.
        over_last : int
            As in `train`.
        checkpoint_every : float, optional
            Epochs between two checkpoints, as in `mw.watch`. Default: the `TrainingConfig`'s.
        keep : {"all", "prediction+final"}
            Where weights and representations are kept, as in `mw.watch`.

        Returns
        -------
        Recorder

        Raises
        ------
        TypeError, ValueError
            If the audit's model cannot stand for one that is trained elsewhere.
        """
        from memowidgets.training.trainer_callback import TrainerPasses

        run = self._run_for("record a training")
        stop = stop_rule(stop_at_drop, over_last)
        recipe, names = run.recipe(), run.names
        kept = names.some_layers(layers)
        passes = TrainerPasses(
            recipe, run.design.members, run.held_out, names.layer_names, kept
        )
        every = (
            recipe.settings.checkpoint_every
            if checkpoint_every is None
            else checkpoint_every
        )
        return Recorder(run.run, passes, CheckpointPlan(1, every), keep, stop)

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
        indices: Iterable[int] | None = None,
    ) -> None:
        """Train shadow models on parts of the pool, until there are `n`.

        A shadow model is trained as the target is, on other samples. Each is a file as soon as it
        is there, so that calling again goes on.

        Parameters
        ----------
        n : int
            Number of shadow models in all, those on disk included. The paper trains 100.
        executor : concurrent.futures.Executor, optional
            Where to train, such as Dask's ``client.get_executor(retries=3)``. It is not shut
            down. Default: local processes.
        checkpoints : sequence
            Checkpoints at which each shadow model leaves its logit gaps.
        design : {"halves", "balanced", "canaries"}
            What each shadow model trains on. "halves": a random half of the pool (the paper).
            "balanced": halves in complementary pairs, so that with an even `n` every sample is
            in exactly half of the models. "canaries": the target's members without the audited
            samples, and half of the audited samples, in such pairs. Each design is a set of its
            own. The ground truth comes from the set that was asked for last.
        keep_forward : bool, or layers
            Whether each keeps its forward pass over its own members at the prediction checkpoint,
            with the representation of the last layer or of those named ("all"). `as_target`
            needs it.
        audited : mask of shape (n,) or sequence of ids, optional
            Audited samples of the design "canaries". Default: the canaries. Duplicates stay
            together.
        processes : int, optional
            Number of local processes. Default: one for each core or GPU.
        progress : Progress, optional
            Receives the progress and can cancel. Default: a progress bar.
        indices : iterable of int, optional
            Which of the shadow models 0 to n − 1 this call trains, such as ``range(30, 40)``: the
            part of one job of an array. Several processes may train parts that have no index in
            common at the same time. Default: all.

        Raises
        ------
        ValueError
            If the target trains on everything, so that there is no half to compare with; if a
            name is unknown; if there is nothing to audit; if an index is not from 0 to n − 1; or
            if there are an executor and `processes`.
        StoreError
            If they cannot be written, another process trains them and there are no `indices`, a
            worker or the executor died, or a worker has other code of memowidgets or another
            version of torch or Python. The finished ones are kept.
        """
        run = self._run_for("train shadow models", ANOTHER)
        check_request(n, executor, checkpoints, processes)
        part = None if indices is None else checked_part(indices, n)
        plan = ShadowDesign.of(run.design, design, run.data, audited)
        with run.alone():
            records = run.names.some_records(checkpoints)
            job = run.job({one.name: one.step for one in records}, plan, keep_forward)
            run.use_shadows(plan.key)
            filled = run.shadows
        run.loaded.drop()
        with progress_or_bar(progress) as report:
            filled.fill(n, job, processes, report, executor, part)
            filled.note_trained(n)
            for record in records:  # what log-LiRA needs of the target
                run.forward(record, report)

    def run_references(
        self,
        n: int = 1,
        executor: Executor | None = None,
        processes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Train reference models, until `n` of them never saw each member.

        A reference model is trained as the target is, on other samples, and only to the epoch of
        the target's prediction checkpoint, whatever its own loss is there. That is the same number
        of steps where it trains on as many samples. So all of them are equally far in their
        training, and their logit gaps can be compared. `score` with ``"reference"`` is the mean
        of the gaps.

        It trains on as many samples of the pool as the target has members, which the target does
        not train on. Where there are no more of them, reference models differ only in their
        weights and in the order of the samples. If there are fewer than half as many, as with
        ``members="all"``, two are trained for each of `n`. Each trains on one half of the members
        and is asked about the other half. Copies of a sample stay together, and a copy counts as
        the sample. No model trains on held-out samples. Canaries and label noise are as for the
        target.

        Parameters
        ----------
        n : int
            Number of reference models in all for each member, those on disk included.
        executor : concurrent.futures.Executor, optional
            Where to train, as in `run_shadows`. Default: local processes.
        processes : int, optional
            Number of local processes, as in `run_shadows`. Default: one where all
            of them take less time than a second process takes to start.
        progress : Progress, optional
            Receives the progress and can cancel. Default: a progress bar.

        Raises
        ------
        ValueError
            If the target was not trained yet, `n` is below 1, or nothing is left to train on.
        StoreError
            As in `run_shadows`. The finished ones are kept, and the next call goes on.

        Notes
        -----
        Reference models find canaries in digits, in photographs and in all four settings of an
        earlier study (AUC .80 to 1.00, docs/ground_truth.md), and fail on the look-alikes of the
        CIFAR-10 recording (.60 to .63, ``python -m benchmarks references``).

        Examples
        --------
        >>> import tempfile
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import memowidgets as mw
        >>> data = mw.data.load_digits().take(range(200))
        >>> training = mw.TrainingConfig(epochs=1)
        >>> audit = mw.Audit(mw.models.ConvNet(4), data, tempfile.mkdtemp(), training)
        >>> audit.train()
        >>> with ThreadPoolExecutor(1) as executor:  # without it, processes of this machine
        ...     audit.run_references(1, executor)
        >>> len(audit.score("reference")) == len(audit.members)
        True
        """
        run = self._run_for("train reference models", ANOTHER)
        check_request(n, executor, ("prediction",), processes, REFERENCE)
        plan, files = run.references.plan, run.references.files
        plan.check(run.design, run.seed, int(n))
        with run.alone():
            at = run.names.prediction().record
            job = run.job({at.name: at.step}, plan)
        models = int(n) * plan.per_round
        if executor is None and processes is None:
            processes = run.processes_for_references(models)
        run.loaded.drop()
        with progress_or_bar(progress) as report:
            files.fill(models, job, processes, report, executor)
            files.note_trained(models)

    @property
    def shadow_sets(self) -> dict[str, int]:
        """Number of shadow models of each design, by the key of its set."""
        run = self._run_behind("have sets of shadow models").run
        return {key: len(kept) for key, kept in shadow_sets(run).items()}

    def use_shadows(self, design: str) -> None:
        """Take the ground truth from the shadow models of another design.

        This audit keeps to them, as it does to those that its `run_shadows` trained. An audit of
        the run that chose none takes those that were chosen last, in whatever process.

        Parameters
        ----------
        design : str
            "halves", "balanced", "canaries", or a key of `shadow_sets`.

        Raises
        ------
        ValueError
            If there is no such set, or there are several of that design.
        """
        if self._index is not None:
            what = f"shadow {self._index} is judged by the others of its set"
            raise NotThereError(
                what, "call this on the audit itself, and as_target again"
            )
        run = self._run_behind("choose another set of shadow models")
        key = set_of_design(run.run, design).key
        with run.alone():
            run.use_shadows(key)

    def clear_cache(self) -> None:
        """Delete the cached output of frozen layers, of this run and all others.

        It could be turned back into text. It is made again when it is needed.
        """
        from memowidgets.models.prefix import clear_cache

        clear_cache()

    # Scores

    def score(
        self,
        metric: str | scores.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        *,
        name: str | None = None,
        return_std: bool = False,
        progress: Progress | None = None,
        version: str | None = None,
    ) -> Any:
        """Score the target's members; a low score means likely to be memorised.

        Parameters
        ----------
        metric : str or callable
            ``"psmi"``, ``"loss"``, ``"logit_gap"``, ``"mahalanobis"`` (paper, Section 4.3).
            ``"csl"``, minus the mean loss over the checkpoints after step 0 up to this one
            (`memowidgets.metrics.csl`); ``"psmi_mean"``, mean PSMI over the same checkpoints;
            ``"psmi+csl"``, the mean rank of PSMI and ``"csl"``. ``"reference"`` is the mean logit
            gap of the models that never saw the member, see `run_references`;
            ``"reference+csl"``, in which it counts twice, and ``"reference+psmi+csl"`` are mean
            ranks with it. ``"baseline"`` is −log-LiRA at the checkpoint and needs shadow models. A
            score of your own that `mw.score` has added goes by its name. A callable is one
            without a name: its parameters are what it needs, as `mw.score` lists them.
        layer : int, str
            From 1, a name of `layers`, or ``"last"``. For scores that need representations.
        checkpoint : str, float
            ``"prediction"``, ``"final"``, ``"rho"`` (the first one that reached ρ, else the
            nearest to it, as in the paper), an epoch, or a name of `checkpoints`.
        name : str, optional
            Name of the series. Default: the metric's.
        return_std : bool
            Whether to return standard errors too, which PSMI has.
        progress : Progress, optional
            Receives the progress and can cancel.
        version : str, optional
            Version of a callable. With one, its values are kept in the run directory by its name
            and read from there: change it with the function. Without one, the function is called
            each time.

        Returns
        -------
        Series
            Score of each member, by id. Samples from pandas have the ids of its index, so that
            ``frame.loc`` takes them. Members without a score, such as PSMI's of a class that has
            fewer than two, are left out, with a warning. So are members that a recorded training
            never draws.
        Series
            Standard errors, if `return_std`.

        Raises
        ------
        ValueError
            If metric, layer or checkpoint is unknown; the message lists the valid ones. If there
            are fewer than two checkpoints to average.
        StoreError
            If the losses at a checkpoint were not kept, and no pass can make them.
        """
        if callable(metric):
            row = row_of_function(metric, name, version)
        elif version is None:
            row = self._row(metric, layer, checkpoint)
        else:
            raise ValueError(
                f"version= is for a function of your own, not for {metric!r}"
            )
        place = row, layer, checkpoint
        evidence = self.evidence_for(*place, None, progress=progress)
        found = scores.score(evidence, *place)
        values, errors = scores.named_series(evidence, row, found, name)
        if not return_std:
            return values
        if errors is None:
            raise ValueError(f"{values.name} has no standard error; PSMI has")
        return values, errors

    def flagged(
        self,
        metric: str | scores.Metric | None = None,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        tau: float | str | None = None,
        *,
        share: float | None = None,
        samples: bool = False,
        eta: float = 4.0,
    ) -> pd.DataFrame:
        """Return the members with score ≤ τ, most at risk first.

        Parameters
        ----------
        metric, layer, checkpoint
            As in `score`. Default: the first of `metrics`, which the dashboard opens with. It is
            PSMI, or the loss for an audit from arrays that has no representations.
        tau : float or "class", optional
            Threshold. Default: 0 for PSMI, which is the practitioner's (paper, Section 4.3), and
            the logit gap, −4 for the baseline, and the lowest 5 % for every other score. With
            "class", a member is flagged if its score is at least one robust deviation (1.4826
            times the median absolute deviation) below the median of its class.
        share : float, optional
            Share of the members to flag, instead of `tau`: those with the lowest scores.
        samples : bool
            Whether to add what each sample contains, and what was decided on it.
        eta : float
            Log-LiRA from which on a sample counts as memorised, for ``status``.

        Returns
        -------
        DataFrame
            By id, as in `score`: ``score``, ``std`` (its standard error, where the score has one),
            ``label``, ``guess`` (the class that the model finds most probable there) and
            ``p_label`` (its probability of the label; both where there are logits), ``canary``
            (where there are some), ``log_lira`` (where there is ground truth).

            With ``samples=True`` also ``status`` ("found" or "flagged only"; "flagged" where the
            sample has no ground truth), ``decision``, ``to`` (the new class of a sample that is to
            be relabelled), ``note``, and ``text`` of a text, ``question``, ``choices`` and the
            attributes of a question, or the columns of a table's row. An image adds no column. A
            column whose name is taken gets an underscore at its end. Where members have nine
            models on each side, ``memorized_by`` is the number of models that memorised the
            sample, of ``learned_by`` models that trained on it, the target among them.

            ``attrs["notes"]`` has what a reader of the table must know: the warnings below.

        Raises
        ------
        TypeError, ValueError
            If `tau` is neither a number nor "class", `share` is not above 0 and at most 1, or both
            are given.
        StoreError
            With ``samples=True``, if the samples are not at hand or ``decisions.csv`` cannot be
            read.

        Warns
        -----
        UserWarning
            If the model has not learned its task at the checkpoint, why it is the one to look at if
            it is not the first that reached ρ, or if the score is inaccurate, as PSMI is for a
            class of few members. With a τ of 0, also if PSMI's 0 flags less than half of what the
            rule by class flags: `share` or ``tau="class"`` flags more. The dashboard, `evaluate`
            and the report say it in the same words.

        Notes
        -----
        `export` writes the table to a file in which no text is a formula to a spreadsheet, as it
        may be in what pandas writes.

        A flagged member is a prediction. Two reference models check it in two short trainings
        (`run_references`), and only shadow models tell which members are memorised.
        """
        from memowidgets.audit.views.listing import judged_table, listed_members

        metric = scores.opening_metric(self.evidence) if metric is None else metric
        metric = self._row(metric, layer, checkpoint)
        evidence = self.evidence_for(metric, layer, checkpoint, answers=True)
        asked = metric, layer, checkpoint, tau, share
        if samples:
            return listed_members(evidence, self._log, *asked, eta, samples=True)
        table, found, rule = judged_table(evidence, *asked)
        chosen = table.iloc[found.positions[found.flagged(rule)]]
        return chosen.sort_values("score", kind="stable")

    def export(
        self,
        path: str | os.PathLike[str],
        metric: str | scores.Metric | None = None,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        tau: float | str | None = None,
        *,
        share: float | None = None,
        eta: float = 4.0,
        all_members: bool = False,
        include_samples: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Write the flagged members with their decisions to a CSV or JSON Lines file.

        Parameters
        ----------
        path : path-like
            File to write, outside of run directories. Its name ends in ``.csv`` or ``.jsonl``.
            Only its owner can read it.
        metric, layer, checkpoint, tau, share, eta
            As in `flagged`.
        all_members : bool
            Whether to write all members instead of the flagged ones. ``status`` is "missed" or
            "left alone" for a member that is not flagged, and empty for one without a score.
        include_samples : bool
            Whether to write what each sample contains too, as ``flagged(samples=True)`` has it.
            Ids and notes are always in the file.
        overwrite : bool
            Whether to replace a file that exists.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ValueError
            If the name ends otherwise, the path lies in a run directory, or as in `flagged`.
        FileExistsError
            If the file exists and `overwrite` is False.
        StoreError
            If the samples are asked for and not at hand, or ``decisions.csv`` cannot be read.

        Notes
        -----
        The file is written whole or not at all. In CSV, an apostrophe stands before a text that a
        spreadsheet would run as a formula, as in ``decisions.csv``, and options are JSON.
        """
        from memowidgets.audit.views.listing import (
            Which,
            as_text,
            listed_members,
            target_of,
        )

        target = target_of(path, overwrite=overwrite)
        metric = scores.opening_metric(self.evidence) if metric is None else metric
        metric = self._row(metric, layer, checkpoint)
        evidence = self.evidence_for(metric, layer, checkpoint, answers=True)
        asked = metric, layer, checkpoint, tau, share
        which: Which = "all" if all_members else "flagged"
        table = listed_members(
            evidence, self._log, *asked, eta, which=which, samples=include_samples
        )
        write_whole(target, as_text(table, target.suffix.lower()).encode())
        return target

    def representation(
        self, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> NDArray[np.float32]:
        """Return a layer's output for each member, (n_members, values).

        It is memory-mapped.

        Raises
        ------
        StoreError
            If it is not on disk: nothing was scored at the checkpoint yet, or a recording does
            not have it.
        """
        return np.asarray(scores.states(self.evidence, layer, checkpoint), np.float32)

    def probabilities(
        self, checkpoint: str | float = "prediction"
    ) -> NDArray[np.float64]:
        """Return the model's probability of each class for each member, (n_members, n_classes)."""
        evidence = self.evidence
        needs = scores.needs_of(evidence, None, checkpoint, None, answers=True)
        return scores.probabilities(self._made(evidence, needs), checkpoint)

    # Ground truth

    def log_lira(
        self,
        checkpoint: str | float = "final",
        variance: str = truth.VARIANCE,
        *,
        return_std: bool = False,
    ) -> Any:
        """Measure how strongly the target gives away that it trained on each member.

        Paper, Appendix A.

        Parameters
        ----------
        checkpoint : str, float
            Checkpoint at which target and shadow models are compared.
        variance : {"shrunk", "per-sample", "global"}
            Estimate of the variance of the gaps, see `memowidgets.memorization.log_lira`. That
            function's own default is ``"per-sample"``, the paper's. ``"shrunk"`` needs fewer
            shadow models, and is what everything else in an audit takes. To evaluate by another,
            pass ``truth=audit.log_lira(variance=…) >= eta`` to `evaluate`.
        return_std : bool
            Whether to return standard errors too, as `memorization.log_lira` describes them.

        Returns
        -------
        Series
            log p_in − log p_out of the target's logit gap, by id, in nats. Members that are in
            every shadow model or in none have no log-LiRA and are left out; ``attrs["left_out"]``
            says how many.
        Series
            Standard errors, if `return_std`.

        Raises
        ------
        ValueError
            If no member is in two shadow models and out of two others.
        StoreError
            If there are no shadow models, or none that kept this checkpoint.
        """
        evidence = self._with_truth(checkpoint)
        table = evidence.by_own_ids(
            truth.log_lira_table(evidence, checkpoint, variance, return_std=return_std)
        )
        series = table["log_lira"]
        series.attrs["left_out"] = len(evidence.member_rows) - len(series)
        return (series, table["log_lira_std"]) if return_std else series

    def _with_truth(self, checkpoint: str | float, *, pool: bool = False) -> Evidence:
        """Return the evidence with what log-LiRA at a checkpoint needs.

        With `pool` also with the gaps of the run's target over the pool.
        """
        evidence = self.evidence
        record = evidence.names.record(checkpoint)
        needs = truth.truth_needs(evidence, record)
        if pool and needs:
            needs = [*needs, Need("pool", record.name)]
        return self._made(evidence, needs)

    def probability_memorized(
        self, eta: float = 4.0, checkpoint: str | float = "final"
    ) -> pd.Series:
        """Return the probability that each member is memorised.

        A member is memorised if its true log-LiRA, which infinitely many shadow models would give,
        is at least η. With few shadow models, some values are large by chance, and a log-LiRA just
        above η is more often chance than not. The probability follows from log-LiRA and its
        standard errors, see `memowidgets.memorization.probability_memorized`. `evaluate` estimates
        it separately for members of low and of high scores, for the AUC of the true labels.

        Parameters
        ----------
        eta : float
            Threshold on log-LiRA from which on a member is memorised (paper: 4).
        checkpoint : str, float
            Checkpoint at which target and shadow models are compared.

        Returns
        -------
        Series
            Probabilities from 0 to 1, by id. Their sum is the expected number of memorised
            members. Members without log-LiRA are left out.

        Raises
        ------
        ValueError, TypeError, StoreError
            As `log_lira`, or if η is not a number.

        Warns
        -----
        UserWarning
            With fewer than 8 shadow models, or if their gaps are plainly not Gaussian.

        Examples
        --------
        >>> import memowidgets as mw
        >>> audit = mw.open_recorded("mmlu-field-smollm2")
        >>> probability = audit.probability_memorized(eta=4.0)
        >>> expected, found = probability.sum(), (audit.log_lira() >= 4).sum()
        >>> bool(expected < found)
        True
        """
        evidence = self._with_truth(checkpoint)
        truth.warn_of_probabilities(evidence, checkpoint)
        found = truth.probability_memorized(evidence, eta, checkpoint)
        return evidence.by_own_ids(found)

    def compare_memorization(
        self, checkpoint: str | float = "final"
    ) -> MemorizationComparison:
        """Compare the definitions of memorisation (paper, Appendix C).

        Parameters
        ----------
        checkpoint : str, float
            Checkpoint at which target and shadow models are compared.

        Returns
        -------
        MemorizationComparison
            ``spearman``: Spearman's ρ with its interval for each pair; ``values``: each member's
            memorisation by each definition, from all shadow models; ``figure()``: the picture;
            ``note``: what the two definitions of a pair share. From 8 shadow models on, ρ is
            between two disjoint halves of them, because definitions from the same models share
            their noise and agree too well. Noise makes this ρ too low. So the table also has the
            reliability of both, whose geometric mean ρ can't exceed.
        """
        # RMIA compares with its other samples
        evidence = self._with_truth(checkpoint, pool=True)
        found = definitions.compare_memorization(evidence, checkpoint)
        return replace(found, values=evidence.by_own_ids(found.values))

    def as_target(self, index: int) -> Self:
        """Return the same audit with a shadow model as the target (leave one out).

        The run's target becomes one of its shadow models.

        Parameters
        ----------
        index : int
            Number of the shadow model, from 0.

        Returns
        -------
        Audit
            Its members, scores and log-LiRA are the shadow model's. Scores are those of the
            prediction checkpoint and of the layers that `run_shadows` kept with
            ``keep_forward``.

        Raises
        ------
        StoreError
            If there is no such shadow model.
        """
        run = self._run_behind("take a shadow model as its target")
        models = run.evidence().shadows
        models.model(index)  # refuses one that cannot be read
        key = models.design
        log = log_of(run.data, run.run, f"{folder_of(key, index)}/")

        def take() -> Evidence:
            return run.evidence(key).as_target(int(index))

        own = {"_take": take, "_scores": run.scores, "_index": int(index)}
        return self._with(_run=run, _log=log, **own)

    # How well scores predict the ground truth

    def evaluate(
        self,
        metric: str | scores.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
    ) -> evaluation.Evaluation:
        """Evaluate how well a score predicts what the finished model memorises.

        Parameters
        ----------
        metric, layer, checkpoint
            As in `score`.
        eta : float
            A member is memorised if its log-LiRA at the end is at least this (paper: 4).
        truth : {"log_lira", "canaries"} or mask of shape (n_members,)
            Which members count as memorised.

        Returns
        -------
        Evaluation
            With warnings: few positives, members left out, a model that has not learned its
            task at the checkpoint (then no score predicts anything), why the checkpoint is the one
            to look at. Where log-LiRA from shadow models is the truth, `n_truly` and a note say how
            many of the memorised members truly are. `auc_interval` takes the labels as they are;
            `true_auc` and `true_auc_interval` are for the true labels. For these, a member counts
            as memorised with the probability that its log-LiRA is truly above η, by its log-LiRA,
            by how rare large values are among members of a similar score, and by the error of the
            shadow models: see `memowidgets.memorization.probability_memorized`.

        Raises
        ------
        ValueError, TypeError
            If a name is unknown, η is not a number, or all or no members are memorised.
        """
        metric = self._row(metric, layer, checkpoint)
        evidence = self.evidence_for(metric, layer, checkpoint, truth)
        return scores.evaluate(evidence, metric, layer, checkpoint, eta, truth)

    def evaluate_pooled(
        self,
        metric: str | scores.Metric = "psmi",
        layer: str | int = "last",
        eta: float = 4.0,
        truth: str = "log_lira",
        targets: str | Sequence[int] = "all",
        progress: Progress | None = None,
        *,
        with_canaries: bool = True,
    ) -> evaluation.Evaluation:
        """Evaluate a score with every shadow model in its turn as the target.

        This is the paper's protocol for CIFAR-10. The members of each target are compared with
        the other models (leave one out) at the prediction checkpoint, and all pairs of a member
        and a model are pooled.

        Parameters
        ----------
        metric, layer, eta
            As in `evaluate`.
        truth : {"log_lira", "canaries"}
            Which pairs count as memorised. With the design "canaries", log-LiRA judges the
            audited samples alone; the truth "canaries" compares them with all other members.
        targets : "all", or indices
            Shadow models to use as targets.
        progress : Progress, optional
            Receives the progress and can cancel. Default: a progress bar.
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
        row = find_row(metric)
        evidence = self._with_first() if truth == "log_lira" else self.evidence
        every = isinstance(targets, str) and targets == "all"
        chosen = evidence.shadows.indices if every else several("targets", targets)
        if not chosen:
            raise StoreError(
                "there are no shadow models: run_shadows(…, keep_forward=True) first"
            )

        def each(report: Progress) -> Iterator[Evidence]:
            for done, index in enumerate(chosen):
                report.report(done, len(chosen), "auditing shadow models")
                target = evidence.as_target(index)
                self._keep(row, scores.ask(target, layer))
                yield target

        with progress_or_bar(progress) as report:
            return scores.pooled_evaluation(
                *(evidence, row, layer, eta, truth, each(report)),
                with_canaries=with_canaries,
            )

    def memorized_per_model(self, eta: float = 4.0) -> pd.DataFrame:
        """Return how many samples each model memorises: the target and every shadow model.

        Compare two audits by it, such as one of the data and one of what `kept` leaves of them.
        Both need ``members="half"``, so that every model trains on a half of its pool.

        Parameters
        ----------
        eta : float
            A model memorises a sample if its log-LiRA at the end is at least this (paper: 4).

        Returns
        -------
        DataFrame
            Indexed by the number of the shadow model, and ``"target"``. ``memorized`` counts the
            samples whose log-LiRA is at least η. Some pass η by chance, and they are most of the
            count where little is memorised. ``truly`` is the expected number whose log-LiRA from
            infinitely many shadow models would be at least η, so it is the one to compare. Each
            model in its turn is compared with the others, see `memowidgets.memorization.support`.

        Raises
        ------
        ValueError
            If η is not a number.
        StoreError
            If there are no shadow models.

        Warns
        -----
        UserWarning
            If samples are not counted, because fewer than nine models are on a side.
        """
        return truth.memorized_per_model(self._with_first(), eta)

    def _with_first(self) -> Evidence:
        """Return the run's evidence with the gaps of its target over the pool.

        They are needed where shadow models take the target's place, one after the other.
        """
        evidence = self.evidence
        if evidence.names.final() is not None:
            evidence = self._with_truth("final", pool=True)
        return evidence.whole or evidence

    def compare(
        self,
        metrics: str | scores.Metric | Iterable[str | scores.Metric] | None = None,
        layers: str | int | Iterable[str | int] = "last",
        checkpoints: str | float | Iterable[str | float] = "prediction",
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
    ) -> pd.DataFrame:
        """Compare the AUC of several scores, at several layers and checkpoints.

        Where nobody knows which members are memorised, it compares their ranks.

        Parameters
        ----------
        metrics : str, callable, or iterable of them, optional
            As in `score`. Default: all of `metrics` that need no shadow models, as far as they need
            no pass at another checkpoint.
        layers, checkpoints : "all", one, or several
            As in `score`; "all" checkpoints leave out step 0. Scores without a layer, such as the
            loss, get one row, with an empty one. Of several checkpoints, those are left out that
            a mean over checkpoints cannot have, because there are fewer than two so far.
        eta, truth
            As in `evaluate`.

        Returns
        -------
        DataFrame
            ``metric``, ``layer``, ``checkpoint``, ``epoch``, ``auc``, ``auc_low``, ``auc_high``,
            ``n``, ``n_memorized``. Choosing the best row of it is choosing on the labels.

            Without a ground truth, each row is compared with the first one, over the ``n`` members
            that have both scores: ``rho``, Spearman's rank correlation; ``tenth_both``, how many
            members are in the lowest tenth by both, of ``tenth``; and ``flagged_both``, how many
            both find where each flags as many members as the first one does at its own τ, which is
            ``flagged``.
        """
        evidence = self.evidence
        picks = scores.pick_candidates(evidence, metrics, layers, checkpoints)
        needs = scores.needs_of(evidence, None, truth=truth)
        for pick in picks:
            needs += inputs.needs(pick.row, pick.ask(evidence))
        evidence = self._made(evidence, needs)
        for pick in picks:
            self._keep(pick.row, pick.ask(evidence))
        return scores.compare(evidence, picks, eta, truth)

    def shadow_curve(
        self,
        metric: str | scores.Metric = "psmi",
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        eta: float = 4.0,
        repeats: int = 20,
    ) -> pd.DataFrame:
        """Show how many shadow models are enough: what fewer of them would find.

        Parameters
        ----------
        metric, layer, checkpoint, eta
            As in `evaluate`.
        repeats : int
            Number of random draws of two disjoint subsets of each size; paired designs are drawn
            in whole pairs. Draws overlap each other, so the band of the larger sizes is too
            narrow.

        Returns
        -------
        DataFrame
            One row for each ``n_shadows``: 4, 8, 16, … and half of those on disk. The ``auc`` of
            the score; how many members are ``memorized`` (with few models some have no log-LiRA:
            the share among those that do, of all who do by all shadow models); the ``overlap`` of
            two subsets that share no shadow model (of the members that either finds memorised, the
            share that both find); and their ``agreement``, Spearman's rank correlation of their
            log-LiRA. Each has ``_low`` and ``_high``, between which 90 % of the draws lie. A
            subset is never compared with a set that contains it, which would flatter it.

        Raises
        ------
        ValueError
            If there are fewer than 8 shadow models.
        """
        row = find_row(metric)
        evidence = self.evidence_for(row, layer, checkpoint)
        found = scores.score(evidence, row, layer, checkpoint)
        return definitions.shadow_curve(evidence, found, eta, repeats)

    # Pages

    def figures(
        self,
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
        etas: Iterable[float] | None = None,
    ) -> Figures:
        """Draw every figure of the paper that the computed numbers allow.

        Nothing is trained, no forward pass is made, and no score is computed:
        ``audit.compare(layers="all", checkpoints="all")`` computes all of them.

        Parameters
        ----------
        eta, truth
            As in `evaluate`.
        etas : iterable of float, optional
            Values of η for the figures by η. Default: 1 to 12, and panels at 4, 6, 8 and 10.

        Returns
        -------
        Figures
            Charts by name, ``tables``, ``missing`` (what was not drawn, why, and the call that
            computes it), ``notes``. In a notebook it shows them all.

        Raises
        ------
        ValueError, TypeError
            If the truth is unknown, or η is not a number.
        """
        from memowidgets.audit.views.figures import audit_figures

        return audit_figures(self.evidence, eta, truth, etas)

    def dashboard(self) -> Dashboard:
        """Open the widget: pick checkpoint, layer and score, move τ, look at samples, decide."""
        from memowidgets.audit.views.answers import AuditView
        from memowidgets.widgets import Dashboard

        return Dashboard(AuditView(self))

    def report(
        self,
        path: str | os.PathLike[str],
        include_samples: bool = False,
        overwrite: bool = False,
        tau: float | Literal["class"] | None = None,
        metric: str | None = None,
        figures: bool = True,
        layer: str = "last",
        checkpoint: str = "prediction",
        *,
        share: float | None = None,
    ) -> Path:
        """Write one page that opens offline and prints, for readers who run nothing.

        It begins with the result: how many samples were flagged, and how many of the memorised
        ones are among them. Below it τ moves, and settings, digests and figures are an appendix.

        A ``.json`` file for programs goes beside it, by the schema of
        `memowidgets.report.schema`.

        Parameters
        ----------
        path : path-like
            File of the page; it ends in ``.html``.
        include_samples : bool
            Whether to show the samples most at risk, with their labels, ids and notes. Without
            them the files hold numbers alone.
        overwrite : bool
            Whether to replace existing files.
        tau : float or "class", optional
            Threshold that the page opens with, and that its text and the JSON describe;
            ``"class"`` flags by class, as in `flagged`. Default: 0 for PSMI and the logit gap, −4
            for the baseline, and the lowest 5 % for every other score.
        metric : str, optional
            The score, as in `score`. Default: as in `flagged`.
        figures : bool
            Whether to draw the figures of `figures` into the appendix. They take most of the time,
            and the extra ``figures``; without it, the report says that they are missing.
        layer, checkpoint
            As in `score`.
        share : float, optional
            Share of the members to flag, instead of `tau`, as in `flagged`.

        Returns
        -------
        Path
            The page.

        Raises
        ------
        ValueError, TypeError
            If the path does not end in ``.html`` or lies in a run directory, the score is
            unknown, or τ is not a number or missing for a score that has no default.
        FileNotFoundError, FileExistsError
            If the folder does not exist, or one of the two files does.

        Notes
        -----
        What the audit does not have (ground truth, checkpoints, samples) is named in the report
        as missing. No rate is ever made up.
        """
        from memowidgets.audit.views.report import content_of
        from memowidgets.report import checked_targets, write

        checked_targets(path, overwrite=overwrite)
        place = metric, layer, checkpoint
        content = content_of(
            self,
            tau,
            *place,
            share=share,
            include_samples=include_samples,
            figures=figures,
        )
        return write(content, path, overwrite=overwrite)

    # Decisions, and what follows from them

    @property
    def decisions(self) -> pd.DataFrame:
        """What was decided on samples, in the dashboard or in ``decisions.csv``.

        Returns
        -------
        DataFrame
            ``id``, ``decision`` ("keep", "anonymise", "remove" or "relabel"; "undecided" for a
            note without a decision) and ``note``. If a sample is to be relabelled, ``to`` has its
            new class.

        Warns
        -----
        UserWarning
            If ``decisions.csv`` cannot be read. Then only the decisions of this session are in
            the table.
        """
        log = self._log
        log.refresh()
        if log.unread:
            warn_user(log.unread)
        return log.frame()

    @property
    def decision_log(self) -> DecisionLog:
        """The decisions with their undo, shared by the dashboards of this audit."""
        return self._log

    def kept(
        self, texts: Mapping[str, str | tuple[str, Sequence[str]]] | None = None
    ) -> Dataset:
        """Return the dataset to train on after the decisions.

        Its `index` has the ids as the frame has that the samples come from.

        Parameters
        ----------
        texts : mapping of id to str, optional
            New text of each sample that is to be anonymised. For a question, the text is the
            question, and its options stay. A tuple (question, options) replaces both.

        Returns
        -------
        Dataset
            All of `data`, members or not, without the removed samples, with `texts` in place of
            the original ones and with the new classes of relabelled samples. Undecided samples
            stay as they are. Under label noise it has the labels from before the noise.

        Raises
        ------
        StoreError
            If the samples are not at hand, or ``decisions.csv`` cannot be read.
        ValueError
            If a sample is to be anonymised but `texts` lacks it, `texts` has a sample that is
            not to be anonymised, or a text that is empty or too long, or nothing would be left.

        Warns
        -----
        UserWarning
            If duplicates of removed or anonymised samples stay. If members alone were decided on,
            but shadow models also train on other samples.

        Notes
        -----
        Decide with ``members="all"``. With ``members="half"``, a target that trains on the cleaned
        members is unlike its shadow models, which train on the other half as it was, and its
        log-LiRA then measures the cleaning. Judge by `memorized_per_model`, of two new audits.
        """
        log = self._log
        log.refresh()
        if log.unread:
            raise StoreError(log.unread)
        clean = self.data if self._run is None else self._run.clean_data
        data = apply_decisions(clean, log, texts)
        opening.warn_of_members_alone(self.evidence, log)
        return data

    def fork(
        self,
        path: str | os.PathLike[str],
        data: Dataset | None = None,
        start: Literal["scratch", "prediction"] = "scratch",
    ) -> Self:
        """Begin a new audit with the same model, settings and seed, on other data.

        Members and held-out samples are the same, by id, as far as they are in `data`. New samples
        join the pool. The fork has its own shadow models. If members alone were decided on, with
        ``members="half"``, its log-LiRA measures the cleaning, see `kept`.

        Parameters
        ----------
        path : path-like
            Its run directory: another one. Called again with the same, it goes on there.
        data : Dataset, optional
            Data to train on. Default: what `kept` returns without new texts.
        start : {"scratch", "prediction"}
            Whether to start from fresh weights, or from those of this audit's prediction
            checkpoint, with the optimizer's state if it is still there. **Those weights have
            already been trained on the removed samples**, which is not undone. The summary says
            so too. Shadow models start from fresh weights and are no fair comparison then.

        Returns
        -------
        Audit
            Not trained yet, or as far as it was. ``forked`` says what it came from.

        Raises
        ------
        ValueError
            If the path lies in a run directory or holds another run, fewer than two members are in
            the data, classes differ, there is no prediction checkpoint to start from or nothing
            left to train after it, or this run has label noise (it would fall on other samples).
        StoreError
            If the model, the weights or the samples are not at hand, as in a recording.

        Warns
        -----
        UserWarning
            If it starts from weights that have seen removed samples.
        """
        instead = "train again with your Trainer, on audit.kept(), in a new audit"
        run = self._run_for("be forked", instead)
        data = self.kept() if data is None else data
        if run.script is None:
            return self.of(opening.fork_run(run, path, data, start))
        from memowidgets.audit.runs.scripts import forked_script

        return self.of(forked_script(run, path, data, start))


def open_recorded(name: str, data: Dataset | None = None) -> Audit:
    """Open an audit that is finished: scores and shadow models, but no samples.

    The package has three. The larger ``"banking77-smollm2"`` and ``"cifar10-wrn"`` are in a
    package of their own, ``memowidgets-recordings``. Samples that can be made again are made
    again and shown: the generated notes of ``"patients-smollm2"`` and the pictures of
    ``"digits"``.

    Parameters
    ----------
    name : str
        Name of the recording; the error for an unknown one lists them.
    data : Dataset, optional
        The dataset that was audited, or one that holds it: then the samples are shown. Without
        it their ids are; ``audit.recording["data"]`` says how to get it.

    Returns
    -------
    Audit
        Read-only: decisions on it are kept in memory.

    Raises
    ------
    ValueError
        If there is no such recording, or the data lack some of its samples.
    ModuleNotFoundError
        If the recording is in ``memowidgets-recordings``, which is not installed.
    StoreError
        If the samples made again, or these data, are not those that were recorded.
    """
    return Audit.of(opening.recorded_source(name, data))
