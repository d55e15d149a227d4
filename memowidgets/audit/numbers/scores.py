"""The early scores: which there are, how each is computed, and who is flagged by one.

To add a score by name, add an entry to `SCORES`. Everything else follows from it: the command
line, the dashboard's picker, the report and the run directory, which keeps what took time. A reader
calls it as `memowidgets.vocabulary.SPOKEN` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets import evaluation
from memowidgets.audit.evidence import (
    LOGITS,
    REFERENCES,
    REPRESENTATIONS,
    SHADOWS,
    TRACE,
    Evidence,
    Need,
)
from memowidgets.audit.kept import Scores
from memowidgets.audit.names import NotGivenError
from memowidgets.audit.numbers.truth import log_lira, truth_needs
from memowidgets.checks import warn_user
from memowidgets.metrics import PSMI, Mahalanobis, csl, mean_over_checkpoints, mean_rank
from memowidgets.metrics.arrays import like
from memowidgets.metrics.logits import FEWEST_CHECKPOINTS, checked_last
from memowidgets.metrics.psmi import IMPRECISE, SMALL_CLASSES, small_classes
from memowidgets.models.device import computed_on
from memowidgets.progress import Progress
from memowidgets.stamps import digest
from memowidgets.store import StoreError
from memowidgets.training.rho import Record
from memowidgets.visible import listed, quoted
from memowidgets.vocabulary import Note, counted_flagged, whole

_SMALLEST_CLASS = 2
_FEWEST_CLASSES = 2

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
# of representation, logits (None where arrays have none) and labels
Metric = Callable[[NDArray[np.float32], Any, Labels], NDArray[Any]]


@dataclass(frozen=True)
class Asked:
    """What a score is asked for.

    Attributes
    ----------
    evidence : Evidence
        What it is computed from.
    layer : str
        Name of a layer.
    record : Record
        The checkpoint.
    last : int or None
        Number of checkpoints to average, counted from this one back; None for all.
    progress : Progress or None
        Receives the progress.
    """

    evidence: Evidence
    layer: str
    record: Record
    last: int | None = None
    progress: Progress | None = None

    def of(self, metric: str, record: Record | None = None) -> Scores:
        """Another score of the same layer, here or at another checkpoint."""
        there = record or self.record
        return score(self.evidence, metric, self.layer, there.name, self.progress)

    def averaged(self) -> list[Record]:
        """Return the checkpoints that a mean is taken over.

        Raises
        ------
        NotGivenError
            If this evidence has one checkpoint, or no losses.
        ValueError
            If there are fewer than two, or fewer than `last`.
        """
        if TRACE not in self.evidence.kinds:
            raise NotGivenError(
                "an audit of arrays has one checkpoint, so nothing can be averaged over several; "
                "mw.metrics.csl(losses) takes losses of your own"
                if self.evidence.kind == "arrays"
                else f"shadow {self.evidence.index} kept no losses at each checkpoint: "
                "run_shadows(…, keep_forward=True) of a new run keeps them"
            )
        records = self.evidence.names.so_far(self.record)
        if len(records) < FEWEST_CHECKPOINTS:
            raise ValueError(
                f"a mean over the checkpoints up to {self.record.name} needs two after step 0, and "
                f"there {'is one' if records else 'is none'}: choose a later checkpoint or a score "
                "of one checkpoint such as psmi or loss, or train a new run with checkpoints "
                "closer together (checkpoint_every of TrainingConfig)"
            )
        kept = len(records) if self.last is None else checked_last(self.last)
        if kept > len(records):
            raise ValueError(
                f"last is {self.last}, but up to {self.record.name} there are only {len(records)} "
                "checkpoints after step 0"
            )
        return records[-kept:]


@dataclass(frozen=True)
class NamedScore:
    """A score that users call by name, and what it needs. One of three functions computes it.

    Attributes
    ----------
    of_layer : callable, optional
        Takes a layer's representation, (n_members, values), the labels and a seed; returns
        `Scores`. They are kept in the run directory.
    of_pass : callable, optional
        Takes the evidence and the record of a checkpoint whose forward pass is there; returns one
        value for each member.
    of_evidence : callable, optional
        Takes what is `Asked`; returns `Scores`. For scores from more than one forward pass.
    needs : tuple of str, optional
        Kinds of evidence that `of_evidence` uses, such as reference models. Those of the other
        functions are known.
    passes : {"here", "so far", "none"}
        At which checkpoints it needs the forward pass.
    uses_layer : bool
        Whether `of_evidence` has another value at each layer, because it averages or ranks PSMI.
    on_device : bool
        Whether `of_layer` also takes a tensor, which stays on the GPU of the audit.
    per_class : bool
        Whether `of_layer` fits each class, so that scores of small classes are inaccurate.
    tau : float, optional
        Threshold that means the same for every model; None if there is none.
    """

    of_layer: Callable[[NDArray[np.float32], Labels, int], Scores] | None = None
    of_pass: Callable[[Evidence, Record], NDArray[np.floating[Any]]] | None = None
    of_evidence: Callable[[Asked], Scores] | None = None
    needs: tuple[str, ...] = ()
    passes: str = "here"
    uses_layer: bool = False
    on_device: bool = False
    per_class: bool = False
    tau: float | None = None

    def __post_init__(self) -> None:
        if self.of_layer is not None:
            object.__setattr__(self, "needs", (REPRESENTATIONS,))
            object.__setattr__(self, "uses_layer", True)
        elif self.of_pass is not None:
            object.__setattr__(self, "needs", (LOGITS,))

    @property
    def is_early(self) -> bool:
        """Whether it needs no shadow models."""
        return SHADOWS not in self.needs

    @property
    def over_checkpoints(self) -> bool:
        """Whether it is a mean over the checkpoints so far."""
        return TRACE in self.needs

    @property
    def needs_losses(self) -> bool:
        """Whether it needs the losses at each checkpoint so far."""
        return self.over_checkpoints and self.passes != "so far"


def _psmi(states: Any, labels: Labels, seed: int) -> Scores:
    # PSMI needs a standard deviation of each class
    rows = np.flatnonzero(np.bincount(labels)[labels] >= _SMALLEST_CLASS)
    x, y = states if len(rows) == len(labels) else states[like(states, rows)], labels[rows]
    if len(np.unique(y)) < _FEWEST_CLASSES:
        raise ValueError(
            f"PSMI needs two classes of two members or more; of {len(labels)} members "
            f"{len(rows)} are in such a class, {len(np.unique(y))} classes in all"
        )
    psmi = PSMI(random_state=seed).fit(x, y)
    values, errors = psmi.score_samples(x, y, return_std=True)
    known = SMALL_CLASSES, IMPRECISE  # `score` has names of classes, and each error
    notes = tuple(note for note in psmi.warnings_ if note.key not in known)
    return Scores(rows, values, errors, notes)


def _mahalanobis(states: NDArray[np.float32], labels: Labels, seed: int) -> Scores:
    del labels, seed  # it knows no classes, and draws nothing
    fitted = Mahalanobis().fit(states)
    return Scores.of_all(fitted.score_samples(states), fitted.warnings_)


def _csl(asked: Asked) -> Scores:
    losses = [asked.evidence.losses(record) for record in asked.averaged()]
    return Scores.of_all(csl(np.stack(losses)))


def _psmi_mean(asked: Asked) -> Scores:
    """Mean PSMI; its standard error is at most the mean of theirs, however they correlate."""
    found = [asked.of("psmi", record) for record in asked.averaged()]
    errors = [one.errors for one in found if one.errors is not None]
    return Scores(
        found[0].rows,
        mean_over_checkpoints(np.stack([one.mu for one in found])),
        np.mean(errors, axis=0) if len(errors) == len(found) else None,
        tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _psmi_and_csl(asked: Asked) -> Scores:
    psmi, over_checkpoints = asked.of("psmi"), _csl(asked)
    both = np.stack([psmi.mu, over_checkpoints.mu[psmi.rows]])
    return Scores(psmi.rows, mean_rank(both), notes=psmi.notes)


def _baseline(asked: Asked) -> Scores:
    evidence = asked.evidence
    values, members = log_lira(evidence, asked.record.name), evidence.members
    if values.empty:
        raise ValueError(
            f"{evidence.n_shadows} shadow models are too few: no member is in some and not in "
            "others; run more"
        )
    rows = np.arange(len(members))
    if len(values) < len(rows):  # by name only where need be: it takes its time
        rows = np.flatnonzero(pd.Index(members).isin(values.index))
    return Scores(rows, -values.to_numpy())


def _reference(asked: Asked) -> Scores:
    """Mean logit gap of the reference models that never saw a member."""
    evidence = asked.evidence
    gaps = evidence.references.read(asked.record.name).gaps[:, evidence.member_columns]
    return Scores.of_all(np.nanmean(gaps.astype(np.float64), axis=0))


def _reference_and_csl(asked: Asked) -> Scores:
    so_far = _csl(asked)  # first: models that are trained do not help where it is undefined
    references = _reference(asked).mu
    return Scores.of_all(mean_rank(np.stack([references, references, so_far.mu])))


def _reference_and_psmi_and_csl(asked: Asked) -> Scores:
    psmi, so_far = asked.of("psmi"), _csl(asked)
    others = [found.mu[psmi.rows] for found in (_reference(asked), so_far)]
    return Scores(psmi.rows, mean_rank(np.stack([psmi.mu, *others])), notes=psmi.notes)


SCORES: dict[str, NamedScore] = {
    "psmi": NamedScore(of_layer=_psmi, on_device=True, per_class=True, tau=0.0),
    "loss": NamedScore(
        of_pass=lambda evidence, record: -evidence.losses_of_pass(record),
    ),
    "logit_gap": NamedScore(of_pass=Evidence.gaps_of_pass, tau=0.0),
    "mahalanobis": NamedScore(of_layer=_mahalanobis),
    "csl": NamedScore(of_evidence=_csl, needs=(TRACE,), passes="none"),
    "psmi_mean": NamedScore(
        of_evidence=_psmi_mean,
        needs=(REPRESENTATIONS, TRACE),
        passes="so far",
        uses_layer=True,
    ),
    "psmi+csl": NamedScore(
        of_evidence=_psmi_and_csl,
        needs=(REPRESENTATIONS, TRACE),
        uses_layer=True,
    ),
    "baseline": NamedScore(of_evidence=_baseline, needs=(SHADOWS,), tau=-4.0),
    "reference": NamedScore(of_evidence=_reference, needs=(REFERENCES,), passes="none"),
    "reference+csl": NamedScore(
        of_evidence=_reference_and_csl,
        needs=(REFERENCES, TRACE),
        passes="none",
    ),
    "reference+psmi+csl": NamedScore(
        of_evidence=_reference_and_psmi_and_csl,
        needs=(REFERENCES, REPRESENTATIONS, TRACE),
        uses_layer=True,
    ),
}
BASELINE = "baseline"
BY_CLASS = "class"
EARLY = tuple(name for name, known in SCORES.items() if known.is_early)
PER_LAYER = tuple(name for name, known in SCORES.items() if known.uses_layer)


def metrics_of(evidence: Evidence, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of the scores that the evidence allows, with `more` kinds of it."""
    there = {*evidence.kinds, *more}
    return tuple(name for name, known in SCORES.items() if set(known.needs) <= there)


def opening_metric(evidence: Evidence) -> str:
    """Return the score that everything opens with: the first that the evidence allows."""
    return next(iter(metrics_of(evidence)), "psmi")


def is_defined(evidence: Evidence, metric: str | Metric, record: Record) -> bool:
    """Return whether there are enough checkpoints for a score, if it is a mean over them."""
    if not isinstance(metric, str) or metric not in SCORES or not SCORES[metric].over_checkpoints:
        return True
    return len(evidence.names.so_far(record)) >= FEWEST_CHECKPOINTS


def needs(
    evidence: Evidence, metric: str | Metric, record: Record, last: int | None = None
) -> list[Need]:
    """Return what a score needs of which checkpoints; `Evidence.missing` says what is not there."""
    known = _known(metric)
    if known is None:
        return [Need("pass", record.name)]
    if SHADOWS in known.needs:
        return truth_needs(evidence, record)
    so_far = evidence.names.so_far(record)
    if last is not None:
        so_far = so_far[-checked_last(last) :]
    at = {"here": [record], "so far": so_far, "none": []}[known.passes]
    found = [Need("pass", one.name) for one in at]
    if known.needs_losses:
        found += [Need("losses", one.name) for one in so_far]
    return found


def lacks_references(evidence: Evidence, metric: str, record: Record) -> bool:
    """Return whether a score needs reference models that are not there at a checkpoint."""
    models = evidence.references
    there = bool(models.indices) and record.name in models.checkpoints
    return REFERENCES in SCORES[metric].needs and not there


def is_computed(
    evidence: Evidence,
    metric: str,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
) -> bool:
    """Return whether `score` answers without computing anything, be it by an error."""
    record, name = evidence.names.record(checkpoint), evidence.names.layer(layer)
    known = SCORES[metric]
    if lacks_references(evidence, metric, record):
        return False
    if known.needs == (REFERENCES,):
        return True
    if not is_defined(evidence, metric, record):
        return False
    at, wanted = evidence.checkpoints, needs(evidence, metric, record)
    if not all(at[one.checkpoint].has_losses for one in wanted if one.what == "losses"):
        return False
    if known.uses_layer:
        kept = metric if known.of_layer is not None else "psmi"
        passes = [at[one.checkpoint] for one in wanted if one.what == "pass"]
        return all(
            evidence.uses_kept(one) and evidence.scores.has(kept, name, one) for one in passes
        )
    return known.needs_losses or at[record.name].made is not None or not evidence.makes_passes


def score(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
    progress: Progress | None = None,
    last: int | None = None,
    name_and_version: tuple[str | None, str] | None = None,
) -> Scores:
    """Score the members, as `Audit.score` describes; read what was computed before.

    Raises
    ------
    StoreError
        If the evidence lacks something of `needs`.
    """
    known = _known(metric)
    if name_and_version is not None and known is not None:
        raise ValueError(f"version= is for a function of your own, not for {metric!r}")
    if last is not None and not (known and known.over_checkpoints):
        means = ", ".join(name for name, one in SCORES.items() if one.over_checkpoints)
        raise ValueError(f"last= goes with a mean over checkpoints ({means}), not with {metric!r}")
    record, name = evidence.names.record(checkpoint), evidence.names.layer(layer)
    if known is None:
        function = cast("Metric", metric)

        def custom() -> Scores:
            return _custom(evidence, function, record, name)

        if name_and_version is None:
            return custom()
        own_name, version = name_and_version
        kept_as = f"own-{digest([own_name or _name_of(function), version])}"
        return _kept(evidence, kept_as, name, record, custom)
    if known.of_evidence is not None:
        return known.of_evidence(Asked(evidence, name, record, last, progress))
    if known.of_pass is not None:
        found = Scores.of_all(known.of_pass(evidence, record))
    else:

        def compute() -> Scores:
            held = evidence.representation(record, name)
            (progress or Progress()).report(0, 1, f"computing {metric} at {name}")
            of_layer = cast("Callable[[Any, Labels, int], Scores]", known.of_layer)
            found = None
            if known.on_device:  # if it has the memory for it
                found = computed_on(
                    evidence.device(),
                    held,
                    lambda states: of_layer(states, evidence.labels, evidence.seed),
                )
            return found or of_layer(held, evidence.labels, evidence.seed)

        found = _kept(evidence, str(metric), name, record, compute)
    on_classes = notes_on_classes(metric, counts_of(evidence, found), evidence.data.class_names)
    return replace(found, notes=(*on_classes, *found.notes))


def _kept(
    evidence: Evidence,
    metric: str,
    layer: str,
    record: Record,
    compute: Callable[[], Scores],
) -> Scores:
    """Return the scores that are kept; compute and keep them otherwise."""
    at = evidence.checkpoints[record.name]
    kept = evidence.scores.find(metric, layer, at) if evidence.uses_kept(at) else None
    if kept is not None:
        return kept
    found = compute()
    try:
        evidence.scores.keep(metric, layer, at, found)
    except StoreError as error:
        warn_user(f"the scores are not kept: {error}")
    return found


def counts_of(evidence: Evidence, found: Scores) -> Labels:
    """Return the number of scored members of each class."""
    return np.bincount(evidence.labels[found.rows], minlength=len(evidence.data.class_names))


def notes_on_classes(
    metric: str | Metric, counts: Labels, class_names: Sequence[str]
) -> tuple[Note, ...]:
    """Return a note that names the small classes, for a score that is fitted to each class."""
    known = _known(metric)
    return small_classes(class_names, counts) if known and known.per_class else ()


def named_series(
    evidence: Evidence, metric: str | Metric, found: Scores, name: str | None = None
) -> tuple[pd.Series, pd.Series | None]:
    """Return scores and their standard errors by id; warn of members that have none."""
    members = evidence.members
    missing = len(members) - len(found.rows)
    if missing:
        left_out = np.setdiff1d(np.arange(len(members)), found.rows)
        reason = (
            "they are in every shadow model or in none"
            if metric == BASELINE
            else "their class has fewer than two"
        )
        warn_user(f"{missing} members have no score, {reason}: {listed(members[left_out], 5)}")
    label = name or _name_of(metric)
    index = pd.Index(members[found.rows], name="id")  # copies: a user may write to theirs
    errors = (
        None if found.errors is None else pd.Series(found.errors.copy(), index, name=f"{label}_std")
    )
    return pd.Series(found.mu.copy(), index, name=label), errors


def states(evidence: Evidence, layer: str | int, checkpoint: str | float) -> NDArray[Any]:
    """Return a layer's output for each member as it is kept, which is memory-mapped."""
    record = evidence.names.record(checkpoint)
    return evidence.representation(record, evidence.names.layer(layer))


def probabilities(evidence: Evidence, checkpoint: str | float) -> Floats:
    """Return the model's probability of each class for each member, (n_members, n_classes)."""
    from scipy.special import softmax

    logits = evidence.logits(evidence.names.record(checkpoint))
    found: Floats = softmax(logits.astype(np.float64), axis=1)
    return found


def _answers(evidence: Evidence, record: Record) -> tuple[Labels, Floats]:
    """Return the most probable class of each member, and the probability of its label."""
    made = evidence.checkpoints[record.name].made or {}
    if "guess" not in made:
        of_classes = probabilities(evidence, record.name)
        of_label: Floats = of_classes[np.arange(len(evidence.labels)), evidence.labels]
        return of_classes.argmax(axis=1), of_label
    guesses = made["guess"].astype(np.int64)  # of a recording, beside rounded logits or none
    if "p_label" in made:
        return guesses, made["p_label"].astype(np.float64)
    return guesses, np.exp(-made["losses"].astype(np.float64))


def judged(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int,
    checkpoint: str | float,
    tau: float | str | None,
    share: float | None,
) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return a row for each member, and which of them a threshold flags.

    A member without a score has NaN and is not flagged.
    """
    if tau is not None and share is not None:
        raise ValueError("give tau= or share=, not both")
    by_class = isinstance(tau, str) and tau == BY_CLASS
    threshold = None if tau is None or by_class else checked_tau(tau)
    if threshold is not None and math.isnan(threshold):
        raise ValueError("tau is NaN; it must be a number")
    found = score(evidence, metric, layer, checkpoint)
    chosen, on_zero = _flags(evidence, metric, found, threshold, share, by_class=by_class)
    notes = (*evidence.notes_at(checkpoint), *found.notes)
    for note in (*notes, *(on_zero if tau is None else ())):  # who chose a τ knows that it is one
        warn_user(note)  # the caller of the audit's method
    table = pd.DataFrame(index=pd.Index(evidence.members, name="id"))
    table.attrs["notes"] = (*notes, *on_zero)
    table["score"] = of_members(found.mu, found.rows, len(table))
    if found.errors is not None:
        table["std"] = of_members(found.errors, found.rows, len(table))
    names = np.array(evidence.data.class_names)
    table["label"] = names[evidence.labels]
    if LOGITS in evidence.kinds:
        guess, p_label = _answers(evidence, evidence.names.record(checkpoint))
        table["guess"], table["p_label"] = names[guess], p_label
    canaries = evidence.data.canaries
    if canaries is not None:
        table["canary"] = canaries[evidence.member_rows]
    if evidence.has_ground_truth:
        table["log_lira"] = log_lira(evidence)
    flagged_members = np.zeros(len(table), dtype=np.bool_)
    flagged_members[found.rows] = chosen
    return table, flagged_members


def _flags(
    evidence: Evidence,
    metric: str | Metric,
    found: Scores,
    tau: float | None,
    share: float | None,
    *,
    by_class: bool,
) -> tuple[NDArray[np.bool_], tuple[Note, ...]]:
    """Return which of the scored members are flagged, and the note on a strict τ = 0."""
    if by_class:
        return evaluation.below_class(found.mu, evidence.labels[found.rows]), ()
    if share is not None:
        tau = evaluation.lowest_share(found.mu, share)
    elif tau is None:
        tau = opening_tau(metric, found)
    return found.mu <= tau, notes_on_zero(evidence, metric, found) if tau == 0 else ()


def of_members(values: Floats, rows: Any, n: int) -> Floats:
    """Return one value for each member, NaN for those that have none."""
    of_all = np.full(n, np.nan)
    of_all[rows] = values
    return of_all


def opening_tau(metric: str | Metric, found: Scores) -> float:
    """Return where τ stands at first, everywhere: the score's own, or the lowest 5 % flagged."""
    known = _known(metric)
    return evaluation.opening_tau(found.mu, known.tau if known else None)


def notes_on_zero(evidence: Evidence, metric: str | Metric, found: Scores) -> tuple[Note, ...]:
    """Return a note if PSMI's τ = 0 flags less than half of what the rule by class flags.

    It is a reader's sentence, the same wherever a τ is answered.
    """
    known = _known(metric)
    if not known or not known.per_class:
        return ()
    at_zero = int((found.mu <= 0).sum())
    by_class = int(evaluation.below_class(found.mu, evidence.labels[found.rows]).sum())
    if 2 * at_zero >= by_class:
        return ()
    said = f"{counted_flagged(at_zero, len(found.mu))}, and {whole(by_class)} by class"
    strict = f"PSMI's τ = 0 may be strict here: {said}"
    return (Note("strict zero", strict, flagged=at_zero, by_class=by_class),)


def checked_tau(tau: Any) -> float:
    """Return a threshold as a number.

    Raises
    ------
    TypeError
        If it is not a number, such as a rule that `Evaluation.threshold` takes.
    """
    if isinstance(tau, bool) or not isinstance(tau, int | float | np.number):
        raise TypeError(
            f"tau must be a number or {BY_CLASS!r}, not {tau!r}; for a rule such as 'youden' pass "
            "tau=audit.evaluate(metric).threshold('youden')"
        )
    return float(tau)


def _custom(evidence: Evidence, metric: Metric, record: Record, layer: str) -> Scores:
    """Scores by a function of the user's."""
    states = np.array(evidence.representation(record, layer), np.float32)
    logits = np.array(evidence.logits_of_pass(record)) if evidence.has_logits else None
    labels = evidence.labels.copy()
    values = np.asarray(metric(states, logits, labels), float)  # it may write to all three
    if values.shape != labels.shape:
        raise ValueError(
            f"the metric returned the shape {values.shape}; it must return one value for each "
            f"of {len(labels)} members"
        )
    wrong = ~np.isfinite(values)
    if wrong.any():
        raise ValueError(
            f"the metric returned {int(wrong.sum())} values that are not finite, the first "
            f"for {quoted(evidence.members[int(np.argmax(wrong))])}"
        )
    return Scores.of_all(values)


def _known(metric: str | Metric) -> NamedScore | None:
    """Return the score of that name; None for a function of the user's."""
    if metric not in SCORES if isinstance(metric, str) else not callable(metric):
        raise ValueError(
            f"unknown score {metric!r}; valid: {', '.join(SCORES)}, or a callable "
            "(representation, logits, labels)"
        )
    return SCORES[metric] if isinstance(metric, str) else None


def _name_of(metric: str | Metric) -> str:
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "__name__", type(metric).__name__))
