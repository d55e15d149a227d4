"""Comparison of a score with the truth: ROC curve, intervals, and rules for τ."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from memowidgets.checks import (
    check_finite,
    check_same_order,
    plain_labels,
    real_number,
    real_numbers,
    to_numpy,
)
from memowidgets.evaluation.intervals import (
    NO_ERROR,
    Z95,
    Floats,
    Groups,
    Interval,
    Jackknife,
    Mask,
    SortedScores,
    TrueArea,
    clopper_pearson,
    of_area,
    of_difference,
    of_true_difference,
    wider,
)
from memowidgets.vocabulary import Kind, Note, estimate, memorised, percent, truly, verb

ONE_BELOW = -1.0  # robust deviation from the median of the class: the rule by class
# of the samples, flagged at first where a score has no threshold of its own
OPENING_SHARE = 0.05
_ROUNDING = 1e-6  # relative to the median; float32 rounds to a sixteenth of it
_GAUSSIAN = 1.4826  # standard deviation of a Gaussian, in median absolute deviations
FEW_POSITIVES = 20
ENOUGH_MODELS = 8  # with fewer, a bootstrap of the models is too narrow
# shadow models; with fewer, the AUC for the true labels comes first
FOR_A_JUDGEMENT = 64
FOR_A_TEST = 16  # shadow models; with fewer, the worse of two scores often looks better
# keys of notes on both scores
_SHARED = ("few memorised", "few others", "groups", "few models")
_FARTHEST = 30.0  # normal deviates; a difference farther from 0 is said to be so far
_SLACK = 1e-12  # tolerance of a share: 0.7 / 100 is below 7 / 1000
_RULES = '"youden", "tpr>=0.75", "fpr<=0.01" or "flagged<=0.05" (with any number from 0 to 1)'


def lowest_share(scores: ArrayLike, share: float = OPENING_SHARE) -> float:
    """Return the τ that flags a share of the samples, those with the lowest scores.

    Parameters
    ----------
    scores : (n,) array_like
        Scores. A low score means risk.
    share : float
        Share of the samples, above 0 and at most 1. At least one sample is flagged, and samples
        with equal scores are flagged together.

    Returns
    -------
    float
        One of the scores.

    Raises
    ------
    ValueError
        If there is no score, one is NaN or infinite, or the share is out of range.

    Examples
    --------
    >>> lowest_share([3.0, 1.0, 2.0, 5.0, 4.0], 0.4)
    2.0
    """
    values = checked_scores(scores)
    if not 0 < real_number("share", share) <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share}")
    count = max(round(share * len(values)), 1)
    return float(np.partition(values, count - 1)[count - 1])


def class_spread(scores: Floats, labels: ArrayLike) -> tuple[Floats, Floats]:
    """Return the median of each sample's class, and the class's robust deviation.

    The robust deviation is 1.4826 times the median absolute deviation. It is never 0: where most
    scores of a class are equal, others may differ by rounding alone.
    """
    classes = plain_labels(labels)
    if classes.shape != scores.shape:
        raise ValueError(
            f"labels must hold one label for each of {len(scores)} scores, but has shape "
            f"{classes.shape}"
        )

    def medians(of: Floats) -> Floats:
        return pd.Series(of).groupby(classes).transform("median").to_numpy(np.float64)

    middle = medians(scores)
    absolute = medians(np.abs(scores - middle))
    rounding = _ROUNDING * np.where(middle == 0, 1.0, np.abs(middle))
    return middle, _GAUSSIAN * np.maximum(absolute, rounding)


def below_class(scores: ArrayLike, labels: ArrayLike) -> Mask:
    """Return which scores are at least one robust deviation below the median of their class.

    The robust deviation is 1.4826 times the median absolute deviation from the class's median. The
    rule needs no ground truth, and suits every score and any number of classes. It flags about a
    sixth of the samples where the scores of a class are Gaussian.

    Parameters
    ----------
    scores : (n,) array_like
        Scores. A low score means risk.
    labels : (n,) array_like
        Label of each sample.

    Returns
    -------
    (n,) bool
        Whether each sample is flagged. The only sample of a class never is, and of a class whose
        scores are equal up to rounding none is.

    Raises
    ------
    ValueError
        If there is no score, one is NaN or infinite, a label is missing, or lengths differ.

    Examples
    --------
    >>> below_class([0.0, 1.0, 1.1, 1.2, 5.0, 5.1, 5.2, 4.0], [0, 0, 0, 0, 1, 1, 1, 1]).tolist()
    [True, False, False, False, False, False, False, True]
    """
    values = checked_scores(scores)
    middle, deviation = class_spread(values, labels)
    flagged: Mask = (values - middle) / deviation <= ONE_BELOW
    return flagged


def checked_scores(scores: ArrayLike) -> Floats:
    """Return one finite score for each sample, or raise."""
    values = real_numbers(scores, "scores").astype(np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(
            f"scores must be one number for each sample, but has shape {values.shape}"
        )
    check_finite(values, "scores", "leave out samples that have no score")
    return values


@dataclass(frozen=True)
class OperatingPoint:
    """Counts and rates if every sample with a score of at most τ is flagged.

    Attributes
    ----------
    tau : float
        The threshold.
    n, flagged : int
        Number of samples, and of flagged samples.
    flagged_share : float
        `flagged` / `n`.
    found, flagged_only, missed, left_alone : int
        Numbers of samples that are memorised and flagged, only flagged, only memorised, and
        neither.
    tpr, fpr : float
        Shares of the memorised samples, and of the others, that are flagged.
    precision : float or None
        Share of the flagged samples that are memorised. None if nothing is flagged.
    tpr_interval, fpr_interval, precision_interval : (float, float)
        Clopper-Pearson 95 % intervals. For rows in groups they are bootstrap intervals, which are
        at least as wide as Clopper-Pearson's on the distinct samples if few are on one side.
    """

    tau: float
    n: int
    flagged: int
    flagged_share: float
    found: int
    flagged_only: int
    missed: int
    left_alone: int
    tpr: float
    tpr_interval: Interval
    fpr: float
    fpr_interval: Interval
    precision: float | None
    precision_interval: Interval | None


class Truly(NamedTuple):
    """What is known of the true labels behind those from few shadow models.

    Attributes
    ----------
    expected : float
        Expected number of truly memorised samples among the memorised ones.
    n_shadows : int
        Number of shadow models behind the labels.
    calibrated : (n,) array of float, optional
        Probability that each sample is truly memorised, given its score too.
    find_bias : callable
        Returns how far above the truth the AUC by such probabilities is, in simulations.
    """

    expected: float
    n_shadows: int
    calibrated: Floats | None = None
    find_bias: Callable[[], float] = float


@dataclass(frozen=True, repr=False)
class Comparison:
    """Difference in AUC of two scores of the same samples, as returned by `compare`.

    Attributes
    ----------
    auc_a, auc_b : float
        AUCs of both scores.
    difference : float
        `auc_a` − `auc_b`.
    interval : (float, float)
        95 % interval of the difference, which takes the labels as they are.
    z, p_value : float or None
        Two-sided test of equal AUCs given these labels: p is below .05 if the interval leaves out
        0, and z is the normal deviate of p, with the sign of the difference. None where the labels
        are from fewer than 16 shadow models.
    warnings : tuple of Note
        What a reader of the numbers must know: sentences, each with a ``key`` and ``numbers``.
    true_difference : float or None
        Difference of both `Evaluation.true_auc`. None if one of them is.
    true_interval : (float, float) or None
        95 % interval of `true_difference`.
    n_shadows : int
        Number of shadow models behind the labels; 0 if they have no errors.
    """

    auc_a: float
    auc_b: float
    difference: float
    interval: Interval
    z: float | None
    p_value: float | None
    warnings: tuple[Note, ...] = ()
    true_difference: float | None = field(default=None, kw_only=True)
    true_interval: Interval | None = field(default=None, kw_only=True)
    n_shadows: int = field(default=0, kw_only=True)

    @property
    def differences(self) -> dict[str, tuple[float, Interval]]:
        """Each difference with its interval, by the name of the AUCs; in the order of `areas`."""
        given = self.difference, self.interval
        true = self.true_difference, self.true_interval
        return _in_order(given, true, self.n_shadows)

    def __repr__(self) -> str:
        differences = ", ".join(
            f"difference of {name} {estimate(*of)}"
            for name, of in self.differences.items()
        )
        test = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        head = f"Comparison: {differences}{test}"
        return "\n".join([head, *(f"  note: {text}" for text in self.warnings)])


def _in_order(given: object, true: Any, n_shadows: int) -> dict[str, Any]:
    """Return what is given these labels and for the true ones, by name; the surer first."""
    if true[1] is None:
        return {"AUC": given}
    both = {"AUC for the true labels": true, "AUC given these labels": given}
    return both if n_shadows < FOR_A_JUDGEMENT else dict(reversed(both.items()))


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Comparison of a score with the truth, as returned by `roc`.

    Attributes
    ----------
    scores : (n,) float64
        Scores. A low score means risk.
    memorized : (n,) bool
        Whether each sample is memorised (the truth).
    rising : SortedScores
        The scores in rising order.
    auc : float
        Probability that a memorised sample scores below another one. A tie counts ½.
    auc_interval : (float, float)
        95 % interval of the AUC: the wider of Newcombe's score interval (method 5) and of DeLong's
        variance on the logit scale. If rows come in groups, it is a bootstrap interval. It takes
        the labels as they are: see `true_auc_interval`.
    warnings : tuple of Note
        What a reader of the numbers must know: sentences, each with a ``key`` and ``numbers``.
    groups : Groups or None
        Sample and model of each row, if several models are pooled. Then every interval comes from
        a bootstrap that draws samples and models.
    positives : str
        Name of the positive samples, which completes "87 of 4444 samples are …".
    n_truly : float or None
        Expected number of the memorised samples whose true log-LiRA, from infinitely many shadow
        models, is at least η too. None if the truth is not log-LiRA, or has no errors.
    n_shadows : int
        Number of shadow models behind these labels; 0 if `n_truly` is None.
    calibrated : (n,) float64, or None
        Probability that each sample's true log-LiRA is at least η, by its log-LiRA and its score.
        None if `n_truly` is None, or several models are pooled.
    find_bias : callable
        Returns how far above the truth `true_auc` is, in simulations.
    """

    scores: Floats
    memorized: Mask
    rising: SortedScores
    auc: float
    auc_interval: Interval
    warnings: tuple[Note, ...] = ()
    groups: Groups | None = None
    positives: str = field(default="memorised", kw_only=True)
    n_truly: float | None = field(default=None, kw_only=True)
    n_shadows: int = field(default=0, kw_only=True)
    calibrated: Floats | None = field(default=None, kw_only=True)
    find_bias: Callable[[], float] = field(default=float, kw_only=True)

    @classmethod
    def of(
        cls,
        scores: Floats,
        memorized: Mask,
        rising: SortedScores,
        positives: str = "memorised",
    ) -> Evaluation:
        """Compare scores with a truth of both kinds, where each row is a sample of its own."""
        above, below = _placements(rising, memorized)
        auc = float(above.mean())
        counts = len(above), len(below)
        interval = of_area(auc, *counts, _error(above, below))
        notes = _notes_on_few(*counts, positives)
        return cls(scores, memorized, rising, auc, interval, notes, positives=positives)

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.scores)

    @property
    def n_memorized(self) -> int:
        """Number of memorised samples."""
        return int(np.count_nonzero(self.memorized))

    @property
    def true_auc(self) -> float | None:
        """AUC for the true labels, by the `calibrated` probabilities; None without them.

        It is the ratio of the expected numbers of pairs: a memorised sample and another one in
        the right order, and in any.
        """
        return None if self.true_area is None else self.true_area.auc

    @property
    def true_auc_interval(self) -> Interval | None:
        """95 % interval of `true_auc`, which includes that the labels are uncertain.

        It is widened by the bias that a simulation shows: labels are drawn from the distribution
        behind `calibrated`, which is estimated anew from them.
        """
        return None if self.true_area is None else self.true_area.interval

    @property
    def areas(self) -> dict[str, tuple[float, Interval]]:
        """Each AUC with its interval, by name.

        That for the true labels comes first where the labels are from fewer than 64 shadow models.
        """
        given = self.auc, self.auc_interval
        true = self.true_auc, self.true_auc_interval
        return _in_order(given, true, self.n_shadows)

    @property
    def areas_in_words(self) -> str:
        """The same as text: "AUC 0.88 (0.43 to 0.98)"."""
        return ", ".join(f"{name} {estimate(*of)}" for name, of in self.areas.items())

    @cached_property
    def true_area(self) -> TrueArea | None:
        """The AUC for the true labels, with its draws; None without `calibrated`."""
        if self.calibrated is None or not 0 < self.calibrated.sum() < self.n:
            return None
        return TrueArea(self.rising, self.calibrated, self.find_bias)

    @property
    def roc(self) -> pd.DataFrame:
        """Curve as a table: fpr, tpr and tau at each unique score, from (0, 0) at tau = −inf."""
        return pd.DataFrame(self._curve)

    @cached_property
    def _curve(self) -> dict[str, Floats]:
        def up_to(kind: Mask) -> Floats:
            counts = self.rising.total(kind)
            return np.append(0.0, np.cumsum(counts) / counts.sum())

        return {
            "fpr": up_to(~self.memorized),
            "tpr": up_to(self.memorized),
            "tau": np.append(-np.inf, self.rising.values),
        }

    def at(self, tau: float) -> OperatingPoint:
        """Return counts and rates if every sample with a score of at most `tau` is flagged.

        Parameters
        ----------
        tau : float
            Threshold. It may be infinite, but not NaN.

        Returns
        -------
        OperatingPoint
            Counts and rates, each rate with its interval.

        Raises
        ------
        TypeError, ValueError
            If `tau` is not a number.
        """
        tau = real_number("tau", tau)
        flagged = self.scores <= tau
        truth = self.memorized
        n_flagged = int(np.count_nonzero(flagged))
        both = int(np.count_nonzero(flagged & truth))
        flagged_only = n_flagged - both
        n_others = self.n - self.n_memorized
        return OperatingPoint(
            tau=tau,
            n=self.n,
            flagged=n_flagged,
            flagged_share=n_flagged / self.n,
            found=both,
            flagged_only=flagged_only,
            missed=self.n_memorized - both,
            left_alone=n_others - flagged_only,
            tpr=both / self.n_memorized,
            tpr_interval=self._interval(flagged, truth),
            fpr=flagged_only / n_others,
            fpr_interval=self._interval(flagged, ~truth),
            precision=both / n_flagged if n_flagged else None,
            precision_interval=self._interval(truth, flagged) if n_flagged else None,
        )

    def _interval(self, counted: Mask, among: Mask) -> Interval:
        """Return the 95 % interval of the share of some rows that is counted."""
        if self.groups is not None:
            return self.groups.share(counted, among)
        count = int(np.count_nonzero(counted & among))
        total = int(np.count_nonzero(among))
        return clopper_pearson(count, total)

    def threshold(self, rule: str) -> float:
        """Return the τ that a rule picks on these samples.

        Rates are optimistic if τ was picked on the same samples.

        Parameters
        ----------
        rule : str
            "youden" is the τ of the largest Youden's J, which is TPR − FPR. "tpr>=0.75" is the
            lowest τ that finds this share of the memorised samples. "fpr<=0.01" and "flagged<=0.05"
            are the highest τ within this bound. The number may be any from 0 to 1, or a percentage.

        Returns
        -------
        float
            One of the scores, or −inf if only flagging nothing meets the rule.
        """
        name, bound = _parse_rule(rule)
        curve = self._curve
        if name == "youden":
            chosen = np.argmax(curve["tpr"] - curve["fpr"])
        elif name == "tpr":
            chosen = np.argmax(curve["tpr"] >= bound - _SLACK)
        else:
            flagged = np.append(0, np.cumsum(self.rising.counts)) / self.n
            share = curve["fpr"] if name == "fpr" else flagged
            chosen = np.flatnonzero(share <= bound + _SLACK)[-1]
        return float(curve["tau"][chosen])

    def tpr_at_fpr(self, fpr: float) -> float:
        """Return the largest TPR at a threshold with an FPR of at most `fpr` (no interpolation)."""
        return self.at(self.threshold(f"fpr<={float(fpr)!r}")).tpr

    def with_warnings(self, *more: Note) -> Evaluation:
        """Return this evaluation with `more` warnings, which concern all of it, first."""
        return replace(self, warnings=(*more, *self.warnings))

    def with_truly(self, truth: Truly) -> Evaluation:
        """Return this evaluation with how many of its positives truly are, and a note about it."""
        note = Note(
            "truly",
            f"{memorised(self.n_memorized, truth.expected)}: log-LiRA from {truth.n_shadows} "
            "shadow models has errors",
            memorized=self.n_memorized,
            truly=truth.expected,
            n_shadows=truth.n_shadows,
        )
        return replace(
            self,
            warnings=(*self.warnings, note),
            n_truly=truth.expected,
            n_shadows=truth.n_shadows,
            calibrated=truth.calibrated,
            find_bias=truth.find_bias,
        )

    def _count(self, of: str) -> str:
        """Return how many of how many are positive, and how many of these truly."""
        rest = "" if self.n_truly is None else f", {truly(self.n_truly)}"
        return f"{self.n_memorized} of {self.n}{of}{rest}"

    def __repr__(self) -> str:
        rows = "samples" if self.groups is None else "rows"
        count = self._count(f" {rows} {self.positives}")
        head = f"Evaluation: {self.areas_in_words}; {count}"
        return "\n".join([head, *(f"  note: {text}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        rows = {
            **{f"{name} (95 %)": estimate(*of) for name, of in self.areas.items()},
            html.escape(self.positives): self._count(""),
            "TPR at 1 % FPR": percent(self.tpr_at_fpr(0.01)),
            "TPR at 0.1 % FPR": percent(self.tpr_at_fpr(0.001)),
        }
        cells = "".join(
            f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in rows.items()
        )
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in self.warnings)
        listing = f"<ul>{notes}</ul>" if notes else ""
        return f"<table>{cells}</table>{listing}"


def roc(
    scores: ArrayLike,
    memorized: ArrayLike,
    groups: ArrayLike | None = None,
    models: ArrayLike | None = None,
    positives: str = "memorised",
) -> Evaluation:
    """Compare scores with the truth.

    Parameters
    ----------
    scores : (n,) array_like
        Scores. A low score means risk, and a sample is flagged if its score is at most τ.
    memorized : (n,) array_like of bool
        The truth, such as log-LiRA ≥ 4.
    groups : (n,) array_like, optional
        Sample of each row, if the members of several models are pooled. Rows of one sample depend
        on each other, so every interval then comes from a bootstrap over samples.
    models : (n,) array_like, optional
        Model of each row, in addition to `groups`. Rows of one model depend on each other too, so
        samples and models are both drawn. The weight of a row is the number of times that its
        sample was drawn, multiplied by the number of times that its model was. With a single model
        only samples are drawn, and a warning says so.
    positives : str
        Name of the samples that the truth marks, for texts: it completes "3 samples are …".

    Returns
    -------
    Evaluation
        The curve, the AUC with its interval, and rules for τ.

    Raises
    ------
    ValueError
        If lengths differ, two Series have the same samples in different orders, a score is NaN or
        infinite, all or no samples are memorised, or `models` is given without `groups`.
    TypeError
        If the truth contains anything but bool, 0 and 1.

    Notes
    -----
    The AUC's interval is the wider of two. Method 5 of Newcombe (2006), Statistics in Medicine
    25:559-573, is the score interval with the variance of Hanley and McNeil; it keeps its level if
    positives are few or the AUC is close to 1. The variance of DeLong et al. (1988) on the logit
    scale keeps it if the positives are of several kinds. The width is never 0. Below 35 positives,
    it does not allow for a kind that is not among them. ``python -m benchmarks intervals`` measures
    what these intervals cover.

    For rows in groups, the interval is that of the bootstrap. With `models`, it is never narrower
    than a jackknife over the models with Student's t, because a bootstrap of few models is too
    narrow. Below 8 models a warning says so.

    Examples
    --------
    >>> evaluation = roc([-2.0, -1.0, 0.5, 1.0, 1.0, 3.0], [1, 0, 1, 0, 0, 0])
    >>> evaluation.auc
    0.875
    >>> evaluation.at(0.5).found, evaluation.at(0.5).flagged_only
    (2, 1)
    >>> evaluation.threshold("tpr>=0.75")
    0.5
    """
    if models is not None and groups is None:
        raise ValueError("models= also needs groups=, the sample of each row")
    check_same_order(scores=scores, memorized=memorized)
    values = checked_scores(scores)
    truth = to_numpy(memorized, "memorized")
    if truth.dtype.kind not in "biufO" or not np.isin(truth, (0, 1)).all():
        raise TypeError(
            f"memorized must be bool (or 0 and 1), but has dtype {truth.dtype}"
        )
    truth = truth.astype(np.bool_)
    if truth.shape != values.shape:
        raise ValueError(
            "scores and memorized must be one-dimensional and of equal length, but have shapes "
            f"{values.shape} and {truth.shape}"
        )
    if truth.all() or not truth.any():
        kind = "every sample is" if truth.all() else "no sample is"
        raise ValueError(
            f"the AUC is undefined: {kind} {positives}, and it needs samples of both kinds"
        )
    evaluation = Evaluation.of(values, truth, SortedScores.of(values), positives)
    if groups is None:
        return evaluation
    rows = Groups.read(groups, len(values), models)
    on_groups = _notes_on_groups(rows, len(values), of_models=models is not None)
    n_distinct = rows.distinct(truth), rows.distinct(~truth)
    return replace(
        evaluation,
        auc_interval=rows.area_interval(values, truth, evaluation.auc),
        warnings=(*on_groups, *_notes_on_few(*n_distinct, positives)),
        groups=rows,
    )


def _notes_on_few(n_memorized: int, n_others: int, positives: str) -> tuple[Note, ...]:
    def note(key: Kind, n: int, kind: str) -> Note:
        are = verb(n, "sample is", "samples are")
        return Note(key, f"only {n} {are} {kind}: intervals are wide", n=n)

    notes = []
    if n_memorized < FEW_POSITIVES:
        notes.append(note("few memorised", n_memorized, positives))
    if n_others < FEW_POSITIVES:
        notes.append(note("few others", n_others, f"not {positives}"))
    return tuple(notes)


def _notes_on_groups(rows: Groups, n: int, *, of_models: bool) -> tuple[Note, ...]:
    models = f"{rows.n_models} {verb(rows.n_models, 'model', 'models')}"
    and_models = f" and {models}" if of_models else ""
    by_model = " and by model" if rows.n_models > 1 else ""
    bootstrap = Note(
        "groups",
        f"{n} rows of {rows.count} samples{and_models}: intervals come from a bootstrap by "
        f"sample{by_model}",
        rows=n,
        samples=rows.count,
        models=rows.n_models,
    )
    if not of_models or rows.n_models >= ENOUGH_MODELS:
        return (bootstrap,)
    few = Note(
        "few models",
        f"only {models}, and a claim needs {ENOUGH_MODELS}: intervals say little of how models "
        "differ",
        n=rows.n_models,
    )
    return bootstrap, few


def _placements(rising: SortedScores, memorized: Mask) -> tuple[Floats, Floats]:
    """Return shares: of others above each memorised sample, and of memorised below each other one.

    A tie counts ½. The mean of either share over the samples of its kind is the AUC.
    """

    def share_below(counts: Floats) -> Floats:
        """Return the share of a kind that scores below each value; half of those at it."""
        below = np.cumsum(counts) - counts / 2
        return np.asarray(below / counts.sum())

    counts = rising.total(memorized)
    positives = share_below(counts)
    others = share_below(rising.counts - counts)
    return 1 - others[rising.rung[memorized]], positives[rising.rung[~memorized]]


def _error(*placed: Floats) -> float:
    """Return DeLong's standard error from the placements of both kinds; NaN for a single sample."""
    if min(map(len, placed)) < 2:
        return float("nan")
    return float(np.sqrt(sum(kind.var(ddof=1) / len(kind) for kind in placed)))


def compare(a: Evaluation, b: Evaluation) -> Comparison:
    """Compare the AUCs of two scores of the same samples.

    Both AUCs are computed on the same samples, so their errors are correlated. The interval of the
    difference takes that into account. For rows in groups, the error of the difference comes from
    the bootstrap over samples (and over models, if they are known), with the same draws for both
    scores.

    Parameters
    ----------
    a, b : Evaluation
        Evaluations of the same samples in the same order, with the same truth.

    Returns
    -------
    Comparison
        Difference of the AUCs with its 95 % interval, z and p, and where the labels are from shadow
        models also the difference for the true labels.

    Raises
    ------
    ValueError
        If the two have different truths, or the truth has a single sample of a kind.

    Notes
    -----
    The interval is the wider of two. One is Wald's with the paired variance of DeLong et al.
    (1988), in O(n log n) through midranks (Sun and Xu, 2014). With few positives it is too narrow.
    The other combines the interval of each AUC with the correlation of their errors (MOVER, Zou
    and Donner 2008). p is 1 minus the largest level at which the interval leaves out 0.

    For rows in groups, the interval is Wald's with the bootstrap's error. With `models` it is never
    narrower than a jackknife over the models with Student's t. ``python -m benchmarks intervals``
    measures what these intervals cover.

    Labels from few shadow models prefer the score that shares their errors. The difference for the
    true labels is that of both `Evaluation.true_auc`. Its interval comes from the same draws of
    samples and labels for both scores, and is never narrower than MOVER's from the interval of
    each. It is widened by the difference of the biases.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(200) < 40
    >>> good, poor = rng.normal(size=(2, 200)) - truth * [[2.0], [0.5]]
    >>> result = compare(roc(good, truth), roc(poor, truth))
    >>> round(result.difference, 3), result.p_value < 0.001
    (0.262, True)
    """
    for one in (a, b):
        if not isinstance(one, Evaluation):
            raise TypeError(
                f"compare takes two evaluations, such as audit.evaluate('psmi'), not {one!r}"
            )
    if not np.array_equal(a.memorized, b.memorized):
        raise ValueError(
            "the two evaluations must be of the same samples with the same truth"
        )
    rows_a, rows_b = (
        np.empty(0) if one.groups is None else one.groups.rows for one in (a, b)
    )
    if not np.array_equal(rows_a, rows_b):
        raise ValueError(
            "the rows of the two evaluations are of different samples or models: pass the same "
            "groups= and models= to both"
        )
    if min(a.n_memorized, a.n - a.n_memorized) < 2:
        raise ValueError(
            "a comparison needs at least two memorised samples and two others"
        )
    difference = a.auc - b.auc
    interval, p_value = _of_groups(a, b, a.groups) if a.groups else _paired(a, b)
    deviate = -float(ndtri(p_value / 2))
    z = float(np.sign(difference)) * deviate if difference else 0.0
    n_shadows = min(a.n_shadows, b.n_shadows)
    is_tested = not 0 < n_shadows < FOR_A_TEST
    notes = dict.fromkeys(
        note for note in (*a.warnings, *b.warnings) if note.key in _SHARED
    )
    return Comparison(
        auc_a=a.auc,
        auc_b=b.auc,
        difference=difference,
        interval=interval,
        z=z if is_tested else None,
        p_value=p_value if is_tested else None,
        warnings=tuple(notes),
        n_shadows=n_shadows,
        **_for_true_labels(a.true_area, b.true_area),
    )


def _for_true_labels(a: TrueArea | None, b: TrueArea | None) -> dict[str, Any]:
    if a is None or b is None:
        return {}
    return {
        "true_difference": a.auc - b.auc,
        "true_interval": of_true_difference(a, b),
    }


def _paired(a: Evaluation, b: Evaluation) -> tuple[Interval, float]:
    """Return the 95 % interval of the difference, and p."""
    difference = a.auc - b.auc
    above_a, below_a = _placements(a.rising, a.memorized)
    above_b, below_b = _placements(b.rising, b.memorized)
    error_a = _error(above_a, below_a)
    error_b = _error(above_b, below_b)
    error = _error(above_a - above_b, below_a - below_b)
    product = error_a * error_b
    # the variance of a difference is the sum of both less twice their covariance
    covariance_twice = error_a**2 + error_b**2 - error**2
    correlation = 0.0
    if product > 0:
        correlation = min(max(covariance_twice / (2 * product), -1.0), 1.0)
    counts = a.n_memorized, a.n - a.n_memorized

    def interval(z: float) -> Interval:
        each = (
            of_area(a.auc, *counts, error_a, z),
            of_area(b.auc, *counts, error_b, z),
        )
        mover = of_difference((a.auc, b.auc), each, correlation)
        wald = difference - z * error, difference + z * error
        return wider(wald, mover)

    if difference == 0:
        return interval(Z95), 1.0

    def distance_from_0(z: float) -> float:
        """Return how far the interval is from 0; negative if it holds 0."""
        low, high = interval(z)
        return low if difference > 0 else -high

    z = _FARTHEST
    if distance_from_0(_FARTHEST) < 0:
        z = brentq(distance_from_0, 0.0, _FARTHEST)
    return interval(Z95), float(2 * ndtr(-z))


def _of_groups(a: Evaluation, b: Evaluation, groups: Groups) -> tuple[Interval, float]:
    """Return the 95 % interval of the difference, and p, for rows in groups."""
    difference = a.auc - b.auc
    areas_a, areas_b = (groups.areas(one.scores, one.memorized) for one in (a, b))
    error = max(float(np.nanstd(areas_a - areas_b, ddof=1)), NO_ERROR)
    without_a, without_b = (
        groups.without_each_model(one.scores, one.memorized) for one in (a, b)
    )
    jackknife = Jackknife.of(without_a - without_b)
    reach = max(Z95 * error, jackknife.reach)
    interval = max(difference - reach, -1.0), min(difference + reach, 1.0)
    of_bootstrap = 2 * float(ndtr(-abs(difference) / error))
    return interval, max(of_bootstrap, jackknife.p_value(difference))


def _parse_rule(rule: str) -> tuple[str, float]:
    text = str(rule).strip().lower().replace("≥", ">=").replace("≤", "<=")
    if text == "youden":
        return "youden", 0.0
    number = r"(\d*\.?\d+(?:e[+-]?\d+)?)\s*(%?)"
    match = re.fullmatch(rf"(?:(tpr)\s*>=|(fpr|flagged)\s*<=)\s*{number}", text)
    if match:
        at_least, at_most, digits, is_percentage = match.groups()
        bound = float(digits) / (100 if is_percentage else 1)
        if bound <= 1:
            return at_least or at_most, bound
    raise ValueError(f"unknown rule {rule!r}; valid are {_RULES}")
