"""The early scores: which there are, how each is computed, and how well it predicts the truth.

To add a score by name, add an entry to `SCORES`. Everything else follows from it: the command
line, the dashboard's picker, the report and the run directory, which keeps what took time. A reader
calls it as `memowidgets.vocabulary.SPOKEN` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation
from memowidgets.audit.evidence import (
    LOGITS,
    REFERENCES,
    REPRESENTATIONS,
    SHADOWS,
    TRACE,
    Evidence,
    Need,
    ScoreKey,
)
from memowidgets.audit.numbers.truth import (
    Calibration,
    aligned_log_lira,
    answered_rightly,
    is_log_lira,
    member_log_lira,
    memorized_members,
    notes_on_shape,
    positives,
    truly_memorized,
    truth_needs,
)
from memowidgets.checks import (
    check_finite,
    real_number,
    real_numbers,
    several,
    warn_user,
)
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.scored import BY_CLASS, AgainstClass, Rule, Scored
from memowidgets.files import digest
from memowidgets.metrics import PSMI, Mahalanobis, csl, mean_over_checkpoints, mean_rank
from memowidgets.metrics.arrays import like
from memowidgets.metrics.logits import FEWEST_CHECKPOINTS
from memowidgets.metrics.psmi import IMPRECISE, SMALL_CLASSES, small_classes
from memowidgets.models.device import computed_on, resolve_device
from memowidgets.progress import Progress
from memowidgets.training.checkpoint import LAYER, Record
from memowidgets.vocabulary import Note, counted_flagged, listed, verb, whole

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
    progress : Progress or None
        Receives the progress.
    """

    evidence: Evidence
    layer: str
    record: Record
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
            If there are fewer than two.
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
        return records


@dataclass(frozen=True)
class NamedScore:
    """A score that users call by name, and what it needs. One of two functions computes it.

    Attributes
    ----------
    of_layer : callable, optional
        Takes a layer's representation, (n_members, values), the labels and a seed; returns
        `Scored`. They are kept in the run directory.
    of_evidence : callable, optional
        Takes what is `Asked`; returns `Scored`.
    needs : tuple of str
        Kinds of evidence that it uses, such as reference models. Default: representations.
    at_each : bool
        Whether it needs the forward pass of each checkpoint so far, not of its own alone.
    on_device : bool
        Whether `of_layer` also takes a tensor, which stays on the GPU of the audit.
    per_class : bool
        Whether `of_layer` fits each class, so that scores of small classes are inaccurate.
    tau : float, optional
        Threshold that means the same for every model; None if there is none.
    """

    of_layer: Callable[[NDArray[np.float32], Labels, int], Scored] | None = None
    of_evidence: Callable[[Asked], Scored] | None = None
    needs: tuple[str, ...] = (REPRESENTATIONS,)
    at_each: bool = False
    on_device: bool = False
    per_class: bool = False
    tau: float | None = None

    def compute(self, asked: Asked) -> Scored:
        """Return the scores, computed anew."""
        if self.of_evidence is not None:
            return self.of_evidence(asked)
        evidence, of_layer = (
            asked.evidence,
            cast("Callable[..., Scored]", self.of_layer),
        )
        held = evidence.of_pass(asked.record, LAYER + asked.layer)
        (asked.progress or Progress()).report(
            0, 1, f"computing scores at {asked.layer}"
        )

        def of(states: Any) -> Scored:
            return of_layer(states, evidence.labels, int(evidence.manifest["seed"]))

        # on the device, if it has the memory for it
        found = None
        if self.on_device:
            found = computed_on(resolve_device(evidence.device), held, of)
        return of(held) if found is None else found

    @property
    def uses_layer(self) -> bool:
        """Whether it has another value at each layer."""
        return REPRESENTATIONS in self.needs


def _psmi(states: Any, labels: Labels, seed: int) -> Scored:
    # it needs a deviation of each class
    rows = np.flatnonzero(np.bincount(labels)[labels] > 1)
    x, y = (
        states if len(rows) == len(labels) else states[like(states, rows)],
        labels[rows],
    )
    if len(np.unique(y)) < 2:
        n = f"{len(rows)} of {len(labels)} members share their class with another"
        raise ValueError(f"PSMI needs two classes of two members or more: {n}")
    psmi = PSMI(random_state=seed).fit(x, y)
    values, errors = psmi.score_samples(x, y, return_std=True)
    # `score` has names of classes
    notes = tuple(note for note in psmi.warnings_ if note.key != SMALL_CLASSES)
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
    # the tolerance was that of one checkpoint
    notes = (note for one in found for note in one.notes if note.key != IMPRECISE)
    return Scored(
        found[0].positions,
        mean_over_checkpoints(np.stack([one.scores for one in found])),
        np.mean(errors, axis=0) if len(errors) == len(found) else None,
        notes=tuple(dict.fromkeys(notes)),
    )


def _baseline(asked: Asked) -> Scored:
    values = aligned_log_lira(asked.evidence, asked.record.name)
    rows = np.flatnonzero(~np.isnan(values))
    return Scored(rows, -values[rows])


def _reference(asked: Asked) -> Scored:
    """Mean logit gap of the reference models that never saw a member."""
    evidence = asked.evidence
    gaps = evidence.references.read(asked.record.name).gaps[:, evidence.member_columns]
    return Scored.of_all(np.nanmean(gaps.astype(np.float64), axis=0))


def _rank(*parts: str) -> Callable[[Asked], Scored]:
    """Return the mean rank of several scores; one that is given twice counts twice."""

    def mean_of(asked: Asked) -> Scored:
        found = [asked.of(part) for part in parts]
        # PSMI leaves out small classes
        rows = min((one.positions for one in found), key=len)
        values = [one.scores[np.searchsorted(one.positions, rows)] for one in found]
        notes = dict.fromkeys(note for one in found for note in one.notes)
        return Scored(rows, mean_rank(np.stack(values)), notes=tuple(notes))

    return mean_of


def _loss(asked: Asked) -> Scored:
    return Scored.of_all(-np.array(asked.evidence.of_pass(asked.record, "losses")))


def _logit_gap(asked: Asked) -> Scored:
    return Scored.of_all(asked.evidence.gaps_of_pass(asked.record))


SCORES: dict[str, NamedScore] = {
    "psmi": NamedScore(of_layer=_psmi, on_device=True, per_class=True, tau=0.0),
    "loss": NamedScore(of_evidence=_loss, needs=(LOGITS,)),
    "logit_gap": NamedScore(of_evidence=_logit_gap, needs=(LOGITS,), tau=0.0),
    "mahalanobis": NamedScore(of_layer=_mahalanobis),
    "csl": NamedScore(of_evidence=_csl, needs=(TRACE,)),
    "psmi_mean": NamedScore(
        of_evidence=_psmi_mean, needs=(REPRESENTATIONS, TRACE), at_each=True
    ),
    "psmi+csl": NamedScore(
        of_evidence=_rank("psmi", "csl"), needs=(REPRESENTATIONS, TRACE)
    ),
    "baseline": NamedScore(of_evidence=_baseline, needs=(SHADOWS,), tau=-4.0),
    "reference": NamedScore(of_evidence=_reference, needs=(REFERENCES,)),
    "reference+csl": NamedScore(
        of_evidence=_rank("csl", "reference", "reference"), needs=(REFERENCES, TRACE)
    ),
    "reference+psmi+csl": NamedScore(
        of_evidence=_rank("psmi", "csl", "reference"),
        needs=(REFERENCES, REPRESENTATIONS, TRACE),
    ),
}
BASELINE = "baseline"
EARLY = tuple(name for name, known in SCORES.items() if SHADOWS not in known.needs)
PER_LAYER = tuple(name for name, known in SCORES.items() if known.uses_layer)
SHARED_NOISE = Note(
    "shared noise",
    "baseline and truth are from the same shadow models and share their noise: the baseline's AUC "
    "is too high",
)


def metrics_of(evidence: Evidence, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of the scores that the evidence allows, with `more` kinds of it."""
    there = {*evidence.kinds, *more}
    return tuple(name for name, known in SCORES.items() if set(known.needs) <= there)


def opening_metric(evidence: Evidence) -> str:
    """Return the score that everything opens with: the first that the evidence allows."""
    return next(iter(metrics_of(evidence)), "psmi")


def is_defined(evidence: Evidence, metric: str | Metric, record: Record) -> bool:
    """Return whether there are enough checkpoints for a score, if it is a mean over them."""
    is_mean = TRACE in _named_score(metric).needs
    return not is_mean or len(evidence.names.so_far(record)) >= FEWEST_CHECKPOINTS


def needs(evidence: Evidence, metric: str | Metric, record: Record) -> list[Need]:
    """Return what a score needs of which checkpoints; `Evidence.missing` says what is not there."""
    known, so_far = _named_score(metric), evidence.names.so_far(record)
    if SHADOWS in known.needs:
        return truth_needs(evidence, record)
    if known.at_each:  # the passes have the losses
        return [Need("pass", one.name) for one in so_far]
    here = (
        [Need("pass", record.name)]
        if {REPRESENTATIONS, LOGITS} & {*known.needs}
        else []
    )
    return here + [Need("losses", one.name) for one in so_far if TRACE in known.needs]


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
    known, kept = SCORES[metric], _part_of(metric)
    if lacks_references(evidence, metric, record) or not is_defined(
        evidence, metric, record
    ):
        return False

    def is_there(need: Need) -> bool:
        at = evidence.checkpoints[need.checkpoint]
        if need.what == "pass" and known.uses_layer:
            key = evidence.score_key(kept, name, at.record)
            return evidence.uses_kept(at) and evidence.scores.has(key)
        return need.what == "pool" or evidence.has(need)

    return all(map(is_there, needs(evidence, metric, record)))


def _part_of(metric: str | Metric) -> str:
    """Return the score of a layer that a score is, or is a mean of."""
    is_one = _named_score(metric).of_layer is not None
    return str(metric) if is_one else "psmi"


class ScorePart(NamedTuple):
    """What is kept of a score: a score of one layer at one checkpoint.

    Attributes
    ----------
    key : ScoreKey
        By what it is kept.
    metric, layer : str or callable, str
        What it is.
    record : Record
        Where it is.
    """

    key: ScoreKey
    metric: str | Metric
    layer: str
    record: Record


def parts_of(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int,
    checkpoint: str | float,
    own: str = "",
) -> list[ScorePart]:
    """Return what is to be kept of a score: itself, or those that it is a mean of.

    `own` is as in `score`.
    """
    name, record = evidence.names.layer(layer), evidence.names.record(checkpoint)
    if own:
        return [ScorePart(evidence.score_key(own, name, record), metric, name, record)]
    known = _named_score(metric)
    if not known.uses_layer or not isinstance(metric, str):
        return []
    part, records = _part_of(metric), [record]
    if known.at_each:
        records = evidence.names.so_far(record)
    return [
        ScorePart(evidence.score_key(part, name, one), part, name, one)
        for one in records
    ]


def own_name(
    metric: str | Metric, name: str | None = None, version: str | None = None
) -> str:
    """Return the name by which the scores of a user's function are kept; "" without a version."""
    if version is None:
        return ""
    if isinstance(metric, str):
        what = f"version= is for a function of your own, not for {metric!r}"
        raise ValueError(what)  # noqa: TRY004 - a name is as good a type
    return f"own-{digest([name or _name_of(metric), version])}"


def is_known(evidence: Evidence, part: ScorePart) -> bool:
    """Return whether a part of a score was computed before."""
    uses_kept = evidence.uses_kept(evidence.checkpoints[part.record.name])
    return uses_kept and evidence.scores.find(part.key) is not None


def computed(evidence: Evidence, part: ScorePart, progress: Progress | None) -> Scored:
    """Return a part of a score, computed anew."""
    asked = Asked(evidence, part.layer, part.record, progress)
    return _named_score(part.metric).compute(asked)


def score(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
    progress: Progress | None = None,
    own: str = "",
) -> Scored:
    """Score the members, as `Audit.score` describes; take what was computed before.

    `own` is the name by which scores of a user's function are kept.

    Raises
    ------
    StoreError
        If the evidence lacks something of `needs`.
    ValueError
        If a score is NaN or infinite, as those of a broken pass are.
    """
    known, layer = _named_score(metric), evidence.names.layer(layer)
    record = evidence.names.record(checkpoint)
    at, found = evidence.checkpoints[record.name], None
    kept_as = str(metric) if known.of_layer is not None else own
    if kept_as and evidence.uses_kept(at):
        found = evidence.scores.find(evidence.score_key(kept_as, layer, record))
    if found is None:
        found = known.compute(Asked(evidence, layer, record, progress))
    _check_kept(found.scores, f"the scores by {_name_of(metric)}", record)
    found = found.only(~np.isin(found.positions, evidence.undrawn))
    labels, names, notes = (
        evidence.labels[found.positions],
        evidence.data.class_names,
        found.notes,
    )
    if known.per_class:
        notes = (
            *small_classes(names, np.bincount(labels, minlength=len(names))),
            *notes,
        )
    return replace(found, labels=labels, notes=notes)


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
    found, known = (
        score(evidence, metric, layer, checkpoint, progress),
        _named_score(metric),
    )
    rows, right, planted = (
        found.positions,
        answered_rightly(evidence),
        evidence.data.canaries,
    )
    values = member_log_lira(evidence) if truth else None
    ids = evidence.members[rows]

    def doubtful(eta: float) -> Truly | None:
        if values is None:
            return None
        return doubt(evidence, metric, found, pd.Series(values[rows] >= eta, ids), eta)

    return replace(
        found,
        log_lira=None if values is None else values[rows],
        metric=_name_of(metric),
        layer=evidence.names.layer(layer) if known.uses_layer else "",
        checkpoint=evidence.names.record(checkpoint).name,
        natural=known.tau,
        ids=ids,
        canaries=None if planted is None else planted[evidence.member_rows[rows]],
        right=None if right is None else right[rows],
        doubt=doubtful,
    )


def doubt(
    evidence: Evidence,
    metric: str | Metric,
    found: Scored,
    memorized: pd.Series,
    eta: float,
) -> Truly | None:
    """Return what is known of the true labels of the members in `memorized`.

    None where log-LiRA was given as values, which have no errors.
    """
    expected = truly_memorized(evidence, memorized, eta)
    if expected is None:
        return None
    scores = pd.Series(found.scores, evidence.members[found.positions])
    # the baseline owes its values to the shadow models, as the truth does
    known = Calibration(evidence, eta, scores, independent=metric != BASELINE)
    of_each = known.probability().reindex(memorized.index).to_numpy(np.float64)
    return Truly(expected, evidence.n_shadows, of_each, known.bias)


def named_series(
    evidence: Evidence, metric: str | Metric, found: Scored, name: str | None = None
) -> tuple[pd.Series, pd.Series | None]:
    """Return scores and their standard errors by id; warn of members that have none."""
    members = evidence.members
    if undrawn := len(evidence.undrawn):
        warn_user(f"{undrawn} members have no score, the training has not drawn them")
    scored = np.union1d(found.positions, evidence.undrawn)
    left_out = np.setdiff1d(np.arange(len(members)), scored)
    if len(left_out):
        why = "their class has fewer than two"
        if metric == BASELINE:
            why = "they are in every shadow model or in none"
        warn_user(
            f"{len(left_out)} members have no score, {why}: {listed(members[left_out], 5)}"
        )
    label, errors = name or _name_of(metric), found.errors
    index = evidence.member_index[found.positions]
    # a user may write to theirs
    values = pd.Series(found.scores.copy(), index, name=label)
    if errors is None:
        return values, None
    return values, pd.Series(errors.copy(), index, name=f"{label}_std")


def states(
    evidence: Evidence, layer: str | int, checkpoint: str | float
) -> NDArray[Any]:
    """Return a layer's output for each member as it is kept, which is memory-mapped."""
    record = evidence.names.record(checkpoint)
    return evidence.of_pass(record, LAYER + evidence.names.layer(layer))


def probabilities(evidence: Evidence, checkpoint: str | float) -> Floats:
    """Return the model's probability of each class for each member, (n_members, n_classes)."""
    from scipy.special import softmax

    record = evidence.names.record(checkpoint)
    logits = evidence.logits(record)
    # −inf: no such option
    _check_kept(logits, "the logits", record, allowed=-np.inf)
    found: Floats = softmax(logits.astype(np.float64), axis=1)
    return found


def _check_kept(
    values: NDArray[Any], what: str, record: Record, allowed: float = 0.0
) -> None:
    """Raise for a NaN or an infinite value, which no pass writes."""
    where = f"{what} at {record.name}"
    remedy = f"what was kept of {record.name} is broken, so delete it and make it again"
    check_finite(values, where, remedy, row="member", allowed=allowed)


def of_members(values: Floats, rows: Any, n: int) -> Floats:
    """Return one value for each member, NaN for those that have none."""
    of_all = np.full(n, np.nan)
    of_all[rows] = values
    return of_all


def notes_on_zero(metric: str | Metric, found: Scored) -> tuple[Note, ...]:
    """Return a note if PSMI's τ = 0 flags less than half of what the rule by class flags.

    It is a reader's sentence, the same wherever a τ is answered.
    """
    if not _named_score(metric).per_class or found.labels is None:
        return ()
    at_zero = int((found.scores <= 0).sum())
    by_class = int(evaluation.below_class(found.scores, found.labels).sum())
    if 2 * at_zero >= by_class:
        return ()
    said = f"{counted_flagged(at_zero, len(found))}, and {whole(by_class)} by class"
    strict = f"PSMI's τ = 0 may be strict here: {said}"
    return (Note("strict zero", strict, flagged=at_zero, by_class=by_class),)


def checked_rule(tau: Any) -> Rule:
    """Return what flags: a threshold as a number; the rule by class and None as they are.

    Raises
    ------
    TypeError, ValueError
        If it is not a number, such as a rule that `Evaluation.threshold` takes.
    """
    if isinstance(tau, str) and tau != BY_CLASS:
        raise TypeError(
            f"tau must be a number or {BY_CLASS!r}, not {tau!r}; for a rule such as 'youden' pass "
            "tau=audit.evaluate(metric).threshold('youden')"
        )
    is_rule = tau is None or isinstance(tau, str | AgainstClass)
    return tau if is_rule else real_number("tau", tau)


def _custom(metric: Metric, asked: Asked) -> Scored:
    """Return scores by a function of the user's."""
    evidence, record = asked.evidence, asked.record
    states = np.array(evidence.of_pass(record, LAYER + asked.layer), np.float32)
    logits = (
        np.array(evidence.of_pass(record, "logits"))
        if LOGITS in evidence.kinds
        else None
    )
    labels = evidence.labels.copy()
    found = metric(states, logits, labels)  # it may write to all three
    values = real_numbers(found, "the values that the metric returned").astype(
        np.float64
    )
    if values.shape != labels.shape:
        raise ValueError(
            f"the metric returned the shape {values.shape}; it must return one value for each "
            f"of {len(labels)} members"
        )
    check_finite(values, "the values that the metric returned")
    return Scored.of_all(values)


def _named_score(metric: str | Metric) -> NamedScore:
    """Return the score of that name, or one that calls a function of the user's."""
    if isinstance(metric, str) and metric in SCORES:
        return SCORES[metric]
    if not isinstance(metric, str) and callable(metric):
        return NamedScore(of_evidence=partial(_custom, metric))
    raise ValueError(
        f"unknown score {metric!r}; valid: {', '.join(SCORES)}, or a callable "
        "(representation, logits, labels)"
    )


def _name_of(metric: str | Metric) -> str:
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "__name__", type(metric).__name__))


# how well a score predicts the truth


def evaluate(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
    eta: float = 4.0,
    truth: str | ArrayLike = "log_lira",
) -> evaluation.Evaluation:
    """Compare a score with the ground truth, as `Audit.evaluate` describes."""
    found = score(evidence, metric, layer, checkpoint)
    pairs = _pairs(evidence, found, memorized_members(evidence, truth, eta))
    notes = [
        *evidence.notes_at(checkpoint),
        *found.notes,
        *notes_on_zero(metric, found),
    ]
    notes += notes_on_truth(
        evidence, truth, len(evidence.members) - len(pairs), "member"
    )
    if metric == BASELINE and is_log_lira(truth):
        notes.append(SHARED_NOISE)
    columns = pairs["score"].to_numpy(), pairs["memorized"].to_numpy()
    result = evaluation.roc(*columns, positives=positives(truth)).with_warnings(*notes)
    if not is_log_lira(truth):
        return result
    known = doubt(evidence, metric, found, pairs["memorized"], eta)
    return result if known is None else result.with_truly(known)


def _pairs(evidence: Evidence, found: Scored, memorized: pd.Series) -> pd.DataFrame:
    """Return score and truth of each member that has both, by id."""
    scores = pd.Series(found.scores, evidence.members[found.positions])
    both = scores.index.intersection(memorized.index, sort=False)
    return pd.DataFrame({"score": scores[both], "memorized": memorized[both]})


def notes_on_truth(
    evidence: Evidence, truth: str | ArrayLike, left_out: int, what: str
) -> tuple[Note, ...]:
    """Return notes on who is left out for want of a score or a truth, and on the truth itself."""
    of_shape = notes_on_shape(evidence) if is_log_lira(truth) else ()
    if not left_out:
        return of_shape
    are, have = (
        verb(left_out, f"{what} is", f"{what}s are"),
        verb(left_out, "it has", "they have"),
    )
    said = f"{left_out} {are} left out: {have} no score or no ground truth"
    return (*of_shape, Note("left out", said, n=left_out))


class Candidate(NamedTuple):
    """A score at a layer of a checkpoint; the layer is empty for scores without one."""

    metric: str
    layer: str
    record: Record


def pick_candidates(
    evidence: Evidence,
    metrics: str | Iterable[str] | None = None,
    layers: str | int | Iterable[str | int] = "last",
    checkpoints: str | float | Iterable[str | float] = "prediction",
) -> list[Candidate]:
    """Return the rows of the table that `Audit.compare` describes.

    By default these are early scores that need at most the pass of their own checkpoint, or of one
    that an earlier row makes. Reference models are asked at some checkpoints only.
    """
    by_default = metrics is None
    chosen = metrics_of(evidence) if metrics is None else metrics
    chosen = [chosen] if isinstance(chosen, str) else several("metrics", chosen)
    records, made, found = evidence.names.some_records(checkpoints), set[Need](), []
    for record, metric in product(records, chosen):
        if (by_default or len(records) > 1) and not is_defined(
            evidence, metric, record
        ):
            continue
        wanted = needs(evidence, metric, record)
        missing = {need for need in wanted if not evidence.has(need)} - made
        elsewhere = any(need.checkpoint != record.name for need in missing)
        if by_default and (
            elsewhere
            or metric not in EARLY
            or lacks_references(evidence, metric, record)
        ):
            continue
        made |= missing
        of_layers = evidence.names.some_layers(layers) if metric in PER_LAYER else [""]
        found += [Candidate(metric, layer, record) for layer in of_layers]
    return found


def compare(
    evidence: Evidence,
    picks: Sequence[Candidate],
    eta: float = 4.0,
    truth: str | ArrayLike = "log_lira",
) -> pd.DataFrame:
    """Tabulate the AUC of several scores, as `Audit.compare` describes."""
    rows = []
    for metric, layer, record in picks:
        found = evaluate(evidence, metric, layer or "last", record.name, eta, truth)
        at = {"checkpoint": record.name, "epoch": record.epoch}
        areas = {**area(found), **_true_area(found)}
        rows.append({"metric": metric, "layer": layer, **at, **areas})
    return pd.DataFrame(rows)


def area(found: evaluation.Evaluation) -> dict[str, float]:
    """Return AUC and counts as columns of a table."""
    low, high = found.auc_interval
    counts = {"n": found.n, "n_memorized": found.n_memorized}
    return {"auc": found.auc, "auc_low": low, "auc_high": high, **counts}


def _true_area(found: evaluation.Evaluation) -> dict[str, float]:
    """Return the AUC for the true labels as columns of a table; NaN where it is not known."""
    if found.true_area is None:
        return dict.fromkeys(("true_auc", "true_auc_low", "true_auc_high"), np.nan)
    low, high = found.true_area.interval
    return {
        "true_auc": found.true_area.auc,
        "true_auc_low": low,
        "true_auc_high": high,
    }


def needs_of(
    evidence: Evidence,
    metric: str | Metric | None,
    checkpoint: str | float = "prediction",
    truth: str | ArrayLike | None = "log_lira",
    *,
    answers: bool = False,
) -> list[Need]:
    """Return what a score and the truth at the end of training need; None leaves one out.

    With `answers`, also what the model's answers at the checkpoint need.
    """
    found = []
    if metric is not None:
        found = needs(evidence, metric, evidence.names.record(checkpoint))
    if truth is not None and is_log_lira(truth) and evidence.has_ground_truth:
        found += truth_needs(evidence, evidence.names.record("final"))
    if answers and LOGITS in evidence.kinds:
        found.append(Need("losses", evidence.names.record(checkpoint).name))
    return found


def pooled_evaluation(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int,
    eta: float,
    truth: str,
    targets: Iterable[Evidence],
    *,
    with_canaries: bool,
) -> evaluation.Evaluation:
    """Evaluate a score over several targets, as `Audit.evaluate_pooled` describes.

    Parameters
    ----------
    evidence : Evidence
        Of the run whose shadow models are the targets.
    metric, layer, eta, truth, with_canaries
        As in `Audit.evaluate_pooled`.
    targets : iterable of Evidence
        The evidence with each of these in its turn as the target, at least one.
    """
    pairs: list[pd.DataFrame] = []
    notes: dict[str, Note] = {}
    truly, n_members = 0.0, 0
    first: Evidence | None = None
    for target in targets:
        first = first or target
        found = score(target, metric, layer, "prediction")
        notes = {note.key: note for note in found.notes} | notes
        memorized = memorized_members(target, truth, eta)
        if not with_canaries and evidence.data.canaries is not None:
            planted = evidence.data.ids[evidence.data.canaries]
            memorized = memorized[~memorized.index.isin(planted)]
        pairs.append(_pairs(target, found, memorized).assign(model=target.index))
        n_members += len(target.members)
        if is_log_lira(truth):
            truly += truly_memorized(target, pairs[-1]["memorized"], eta) or 0.0
    everything = pd.concat(pairs)
    result = evaluation.roc(
        everything["score"].to_numpy(),
        everything["memorized"].to_numpy(dtype=np.bool_),
        everything.index,
        everything["model"].to_numpy(),
        positives(truth),
    )
    said = notes_on_truth(first or evidence, truth, n_members - len(everything), "pair")
    result = result.with_warnings(
        *evidence.notes_at("prediction"), *notes.values(), *said
    )  # all targets have as many shadow models
    if not is_log_lira(truth):
        return result
    return result.with_truly(Truly(truly, (first or evidence).n_shadows))
