"""The early scores: which there are, how each is computed, and who is flagged by one.

To add a score by name, add an entry to `SCORES`. Everything else follows from it: the command
line, the dashboard's picker, the report and the run directory, which keeps what took time. A reader
calls it as `memowidgets.vocabulary.SPOKEN` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit.evidence import (
    LAYER,
    LOGITS,
    REFERENCES,
    REPRESENTATIONS,
    SHADOWS,
    TRACE,
    Evidence,
    Need,
)
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    answered_rightly,
    log_lira,
    member_log_lira,
    probability_memorized,
    truly_memorized,
    truth_needs,
)
from memowidgets.checks import real_numbers, warn_user
from memowidgets.evaluation import below_class
from memowidgets.evaluation.scored import BY_CLASS, AgainstClass, Rule, Scored
from memowidgets.metrics import PSMI, Mahalanobis, csl, mean_over_checkpoints, mean_rank
from memowidgets.metrics.arrays import like
from memowidgets.metrics.logits import FEWEST_CHECKPOINTS, checked_last
from memowidgets.metrics.psmi import IMPRECISE, SMALL_CLASSES, small_classes
from memowidgets.models.device import computed_on
from memowidgets.progress import Progress
from memowidgets.stamps import digest
from memowidgets.store import StoreError
from memowidgets.training.checkpoint import Record
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

    def of(self, metric: str, record: Record | None = None) -> Scored:
        """Another score of the same layer, here or at another checkpoint."""
        there = record or self.record
        return score(self.evidence, metric, self.layer, there.name, self.progress)

    def averaged(self) -> list[Record]:
        """Return the checkpoints that a mean is taken over.

        Raises
        ------
        NotThereError
            If this evidence has one checkpoint, or no losses.
        ValueError
            If there are fewer than two, or fewer than `last`.
        """
        if TRACE in self.evidence.absent:
            raise self.evidence.absent[TRACE].error()
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
        `Scored`. They are kept in the run directory.
    of_pass : callable, optional
        Takes the evidence and the record of a checkpoint whose forward pass is there; returns one
        value for each member.
    of_evidence : callable, optional
        Takes what is `Asked`; returns `Scored`. For scores from more than one forward pass.
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

    of_layer: Callable[[NDArray[np.float32], Labels, int], Scored] | None = None
    of_pass: Callable[[Evidence, Record], NDArray[np.floating[Any]]] | None = None
    of_evidence: Callable[[Asked], Scored] | None = None
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


def _psmi(states: Any, labels: Labels, seed: int) -> Scored:
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
    return Scored(rows, values, errors, notes=notes)


def _mahalanobis(states: NDArray[np.float32], labels: Labels, seed: int) -> Scored:
    del labels, seed  # it knows no classes, and draws nothing
    fitted = Mahalanobis().fit(states)
    return Scored.of_all(fitted.score_samples(states), fitted.warnings_)


def _csl(asked: Asked) -> Scored:
    losses = [asked.evidence.losses(record) for record in asked.averaged()]
    return Scored.of_all(csl(np.stack(losses)))


def _psmi_mean(asked: Asked) -> Scored:
    """Mean PSMI; its standard error is at most the mean of theirs, however they correlate."""
    found = [asked.of("psmi", record) for record in asked.averaged()]
    errors = [one.errors for one in found if one.errors is not None]
    return Scored(
        found[0].positions,
        mean_over_checkpoints(np.stack([one.scores for one in found])),
        np.mean(errors, axis=0) if len(errors) == len(found) else None,
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _baseline(asked: Asked) -> Scored:
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
    return Scored(rows, -values.to_numpy())


def _reference(asked: Asked) -> Scored:
    """Mean logit gap of the reference models that never saw a member."""
    evidence = asked.evidence
    gaps = evidence.references.read(asked.record.name).gaps[:, evidence.member_columns]
    return Scored.of_all(np.nanmean(gaps.astype(np.float64), axis=0))


def _ranked_by(*parts: Callable[[Asked], Scored]) -> Callable[[Asked], Scored]:
    """Return the mean rank of several scores; one that is given twice counts twice."""

    def ranked(asked: Asked) -> Scored:
        found = [part(asked) for part in parts]
        rows = min((one.positions for one in found), key=len)  # PSMI leaves out small classes
        values = [one.scores[np.searchsorted(one.positions, rows)] for one in found]
        notes = dict.fromkeys(note for one in found for note in one.notes)
        return Scored(rows, mean_rank(np.stack(values)), notes=tuple(notes))

    return ranked


def _psmi_here(asked: Asked) -> Scored:
    return asked.of("psmi")


SCORES: dict[str, NamedScore] = {
    "psmi": NamedScore(of_layer=_psmi, on_device=True, per_class=True, tau=0.0),
    "loss": NamedScore(
        of_pass=lambda evidence, record: -np.array(evidence.of_pass(record, "losses")),
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
        of_evidence=_ranked_by(_psmi_here, _csl),
        needs=(REPRESENTATIONS, TRACE),
        uses_layer=True,
    ),
    "baseline": NamedScore(of_evidence=_baseline, needs=(SHADOWS,), tau=-4.0),
    "reference": NamedScore(of_evidence=_reference, needs=(REFERENCES,), passes="none"),
    "reference+csl": NamedScore(
        of_evidence=_ranked_by(_csl, _reference, _reference),
        needs=(REFERENCES, TRACE),
        passes="none",
    ),
    "reference+psmi+csl": NamedScore(
        of_evidence=_ranked_by(_psmi_here, _csl, _reference),
        needs=(REFERENCES, REPRESENTATIONS, TRACE),
        uses_layer=True,
    ),
}
BASELINE = "baseline"
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
    known = _named_score(metric)
    if known is None:
        return [Need("pass", record.name)]
    if SHADOWS in known.needs:
        return truth_needs(evidence, record)
    so_far = evidence.names.so_far(record)
    if last is not None:
        so_far = so_far[-checked_last(last) :]
    at = {"here": [record], "so far": so_far, "none": []}[known.passes]
    found = [Need("pass", one.name) for one in at]
    if known.over_checkpoints and known.passes != "so far":  # whose passes have them
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
    """Return whether `score` answers without computing anything."""
    record, name = evidence.names.record(checkpoint), evidence.names.layer(layer)
    known = SCORES[metric]
    if lacks_references(evidence, metric, record):
        return False
    if known.needs == (REFERENCES,):
        return True
    if not is_defined(evidence, metric, record):
        return False
    at, wanted = evidence.checkpoints, needs(evidence, metric, record)
    if not all(at[one.checkpoint].has(one) for one in wanted if one.what == "losses"):
        return False
    passes = [at[one.checkpoint] for one in wanted if one.what == "pass"]
    if known.uses_layer:
        kept = metric if known.of_layer is not None else "psmi"
        return all(
            evidence.uses_kept(one) and evidence.scores.has(kept, name, one.record, one.state)
            for one in passes
        )
    return all(one.has_pass for one in passes)


def score(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
    progress: Progress | None = None,
    last: int | None = None,
    name_and_version: tuple[str | None, str] | None = None,
) -> Scored:
    """Score the members, as `Audit.score` describes; read what was computed before.

    Raises
    ------
    StoreError
        If the evidence lacks something of `needs`.
    """
    known = _named_score(metric)
    if name_and_version is not None and known is not None:
        raise ValueError(f"version= is for a function of your own, not for {metric!r}")
    if last is not None and not (known and known.over_checkpoints):
        means = ", ".join(name for name, one in SCORES.items() if one.over_checkpoints)
        raise ValueError(f"last= goes with a mean over checkpoints ({means}), not with {metric!r}")
    record, name = evidence.names.record(checkpoint), evidence.names.layer(layer)
    if known is None:
        custom = partial(_custom, evidence, cast("Metric", metric), record, name)
        if name_and_version is None:
            return custom()
        own_name, version = name_and_version
        kept_as = f"own-{digest([own_name or _name_of(metric), version])}"
        return _kept_scores(evidence, kept_as, name, record, custom)
    if known.of_evidence is not None:
        return known.of_evidence(Asked(evidence, name, record, last, progress))
    if known.of_pass is not None:
        found = Scored.of_all(known.of_pass(evidence, record))
    else:

        def of(states: Any) -> Scored:
            of_layer = cast("Callable[[Any, Labels, int], Scored]", known.of_layer)
            return of_layer(states, evidence.labels, evidence.seed)

        def compute() -> Scored:
            held = evidence.of_pass(record, LAYER + name)
            (progress or Progress()).report(0, 1, f"computing {metric} at {name}")
            # on the device, if it has the memory for it
            found = computed_on(evidence.device(), held, of) if known.on_device else None
            return of(held) if found is None else found

        found = _kept_scores(evidence, str(metric), name, record, compute)
    on_classes = notes_on_classes(metric, counts_of(evidence, found), evidence.data.class_names)
    labels = evidence.labels[found.positions]
    return replace(found, labels=labels, notes=(*on_classes, *found.notes))


def scored_members(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
    progress: Progress | None = None,
    *,
    truth: bool = True,
) -> Scored:
    """Return the members that have a score, with all that is known of them but for probabilities.

    Whatever shows members reads this. Without `truth`, log-LiRA is not asked for.

    Raises
    ------
    StoreError
        If the evidence lacks something of `needs`, or of what log-LiRA needs.
    """
    found, known = score(evidence, metric, layer, checkpoint, progress), _named_score(metric)
    rows, right, planted = found.positions, answered_rightly(evidence), evidence.data.canaries
    values = member_log_lira(evidence) if truth else None
    ids = evidence.members[rows]
    by_id = pd.Series(found.scores, ids)

    def doubtful(eta: float) -> tuple[float, int, Floats] | None:
        if values is None:
            return None
        memorized = pd.Series(values[rows] >= eta, by_id.index)
        return doubt(evidence, metric, by_id, memorized, eta)

    return replace(
        found,
        log_lira=None if values is None else values[rows],
        labels=evidence.labels[rows],
        metric=_name_of(metric),
        layer=evidence.names.layer(layer) if known is None or known.uses_layer else "",
        checkpoint=evidence.names.record(checkpoint).name,
        natural=known.tau if known else None,
        ids=ids,
        canaries=None if planted is None else planted[evidence.member_rows[rows]],
        right=None if right is None else right[rows],
        doubt=doubtful,
    )


def doubt(
    evidence: Evidence,
    metric: str | Metric,
    values: pd.Series,
    memorized: pd.Series,
    eta: float,
    variance: str = VARIANCE,
) -> tuple[float, int, Floats] | None:
    """Return the arguments of `Evaluation.with_truly`, for the members in `memorized`.

    None where log-LiRA was given as values, which have no errors.
    """
    expected = truly_memorized(evidence, memorized, eta, variance)
    if expected is None:
        return None
    given = None if metric == BASELINE else values
    found = probability_memorized(evidence, eta, "final", variance, given)
    return expected, evidence.n_shadows, found.reindex(memorized.index).to_numpy(np.float64)


def _kept_scores(
    evidence: Evidence,
    metric: str,
    layer: str,
    record: Record,
    compute: Callable[[], Scored],
) -> Scored:
    """Return the scores that are kept; compute and keep them otherwise."""
    at = evidence.checkpoints[record.name]
    if evidence.uses_kept(at):
        kept = evidence.scores.find(metric, layer, record, at.state)
        if kept is not None:
            return kept
    found = compute()
    try:
        evidence.scores.keep(metric, layer, record, at.state, found)
    except StoreError as error:
        warn_user(f"the scores are not kept: {error}")
    return found


def counts_of(evidence: Evidence, found: Scored) -> Labels:
    """Return the number of scored members of each class."""
    return np.bincount(evidence.labels[found.positions], minlength=len(evidence.data.class_names))


def notes_on_classes(
    metric: str | Metric, counts: Labels, class_names: Sequence[str]
) -> tuple[Note, ...]:
    """Return a note that names the small classes, for a score that is fitted to each class."""
    known = _named_score(metric)
    return small_classes(class_names, counts) if known and known.per_class else ()


def named_series(
    evidence: Evidence, metric: str | Metric, found: Scored, name: str | None = None
) -> tuple[pd.Series, pd.Series | None]:
    """Return scores and their standard errors by id; warn of members that have none."""
    members = evidence.members
    missing = len(members) - len(found)
    if missing:
        left_out = np.setdiff1d(np.arange(len(members)), found.positions)
        reason = (
            "they are in every shadow model or in none"
            if metric == BASELINE
            else "their class has fewer than two"
        )
        warn_user(f"{missing} members have no score, {reason}: {listed(members[left_out], 5)}")
    label = name or _name_of(metric)
    index = pd.Index(members[found.positions], name="id")  # copies: a user may write to theirs
    errors = (
        None if found.errors is None else pd.Series(found.errors.copy(), index, name=f"{label}_std")
    )
    return pd.Series(found.scores.copy(), index, name=label), errors


def states(evidence: Evidence, layer: str | int, checkpoint: str | float) -> NDArray[Any]:
    """Return a layer's output for each member as it is kept, which is memory-mapped."""
    record = evidence.names.record(checkpoint)
    return evidence.of_pass(record, LAYER + evidence.names.layer(layer))


def probabilities(evidence: Evidence, checkpoint: str | float) -> Floats:
    """Return the model's probability of each class for each member, (n_members, n_classes)."""
    from scipy.special import softmax

    logits = evidence.logits(evidence.names.record(checkpoint))
    found: Floats = softmax(logits.astype(np.float64), axis=1)
    return found


def of_members(values: Floats, rows: Any, n: int) -> Floats:
    """Return one value for each member, NaN for those that have none."""
    of_all = np.full(n, np.nan)
    of_all[rows] = values
    return of_all


def notes_on_zero(metric: str | Metric, found: Scored) -> tuple[Note, ...]:
    """Return a note if PSMI's τ = 0 flags less than half of what the rule by class flags.

    It is a reader's sentence, the same wherever a τ is answered.
    """
    known = _named_score(metric)
    if not known or not known.per_class or found.labels is None:
        return ()
    at_zero = int((found.scores <= 0).sum())
    by_class = int(below_class(found.scores, found.labels).sum())
    if 2 * at_zero >= by_class:
        return ()
    said = f"{counted_flagged(at_zero, len(found))}, and {whole(by_class)} by class"
    strict = f"PSMI's τ = 0 may be strict here: {said}"
    return (Note("strict zero", strict, flagged=at_zero, by_class=by_class),)


def checked_rule(tau: Any) -> Rule:
    """Return what flags: a threshold as a number; the rule by class and None as they are.

    Raises
    ------
    TypeError
        If it is not a number, such as a rule that `Evaluation.threshold` takes.
    """
    if tau is None or isinstance(tau, AgainstClass):
        return tau
    if isinstance(tau, str) and tau == BY_CLASS:
        return BY_CLASS
    if isinstance(tau, bool) or not isinstance(tau, int | float | np.number):
        raise TypeError(
            f"tau must be a number or {BY_CLASS!r}, not {tau!r}; for a rule such as 'youden' pass "
            "tau=audit.evaluate(metric).threshold('youden')"
        )
    return float(tau)


def _custom(evidence: Evidence, metric: Metric, record: Record, layer: str) -> Scored:
    """Return scores by a function of the user's."""
    states = np.array(evidence.of_pass(record, LAYER + layer), np.float32)
    logits = np.array(evidence.of_pass(record, "logits")) if LOGITS in evidence.kinds else None
    labels = evidence.labels.copy()
    found = metric(states, logits, labels)  # it may write to all three
    values = real_numbers(found, "the values that the metric returned").astype(np.float64)
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
    return Scored.of_all(values)


def _named_score(metric: str | Metric) -> NamedScore | None:
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
