"""The scores of an audit: which there are, how each is computed, and how well it predicts.

Which scores there are is asked of `memowidgets.registry`, and what one needs of `inputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation
from memowidgets.audit.evidence import LOGITS, SHADOWS, Cache, Evidence, Need, ScoreKey
from memowidgets.audit.numbers.computing import compute, is_ready
from memowidgets.audit.numbers.inputs import (
    Inputs,
    check_kept,
    is_defined,
    kinds_of,
    lacks_references,
    needs,
    uses_layer,
)
from memowidgets.audit.numbers.truth import (
    Calibration,
    answered_rightly,
    is_log_lira,
    member_log_lira,
    memorized_members,
    notes_on_shape,
    positives,
    truly_memorized,
    truth_needs,
)
from memowidgets.checks import real_number, several, warn_user
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.scored import BY_CLASS, AgainstClass, Rule, Scored
from memowidgets.registry import Score, all_rows, find_row, is_name, kept_row
from memowidgets.training.checkpoint import LAYER, Record
from memowidgets.vocabulary import Note, counted_flagged, listed, verb, whole

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
# a row of the registry, or a function whose parameters are what it needs
Metric = Score | Callable[..., Any]
BASELINE = "baseline"
_TENTH = 0.1  # of the members: the budget at which scores are compared without a truth
SHARED_NOISE = Note(
    "shared noise",
    "score and truth are from the same shadow models and share their noise: the score's AUC is too "
    "high",
)


# the rows of the registry


def metrics_of(evidence: Evidence, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of the scores that the evidence allows, with `more` kinds of it."""
    there = {*evidence.kinds, *more}
    return tuple(name for name, row in all_rows().items() if kinds_of(row) <= there)


def opening_metric(evidence: Evidence) -> str:
    """Return the score that everything opens with: the first that the evidence allows."""
    return next(iter(metrics_of(evidence)), "psmi")


def is_early(row: Score) -> bool:
    """Return whether a score needs no shadow models, which the truth comes from."""
    return SHADOWS not in kinds_of(row)


def ask(
    evidence: Evidence,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
) -> Inputs:
    """Return where a score is asked for, by the names that users give."""
    names = evidence.names
    return Inputs(evidence, names.layer(layer), names.record(checkpoint))


def row_at(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
) -> Score:
    """Return the row of a score, or what was kept of one whose function is not here."""
    try:
        return find_row(metric)
    except ValueError:
        if not isinstance(metric, str) or not is_name(metric):
            raise
        about = _kept_beside(metric, ask(evidence, layer, checkpoint))
        if "needs" not in about:
            raise
        return kept_row(metric, about)


def _kept_beside(metric: str, asked: Inputs) -> Mapping[str, str]:
    """Return what was kept beside the values of a score, of whichever version."""
    evidence, record = asked.evidence, asked.record
    of = evidence.weights_at(record)
    for layer in (asked.layer, ""):
        key = ScoreKey(metric, layer, record.name, of, evidence.target, "", "")
        about = evidence.scores.about(key)
        if about:
            return about
    return {}


def is_computed(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
) -> bool:
    """Return whether `score` answers without computing anything that takes time."""
    return is_ready(find_row(metric), ask(evidence, layer, checkpoint))


def score(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
) -> Scored:
    """Score the members, as `Audit.score` describes; take what was computed before.

    Raises
    ------
    StoreError
        If the evidence lacks something of `needs`.
    ValueError
        If the score is not one number for each member.
    """
    row, asked = find_row(metric), ask(evidence, layer, checkpoint)
    found = compute(row, asked)
    return replace(found, labels=evidence.labels[found.positions])


def scored_members(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
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
    row, asked = find_row(metric), ask(evidence, layer, checkpoint)
    found = score(evidence, row, layer, checkpoint)
    rows, canaries = found.positions, evidence.data.canaries
    right = answered_rightly(evidence)
    values = member_log_lira(evidence) if truth else None
    ids = evidence.members[rows]

    last_doubt = Cache()

    def doubtful(eta: float) -> Truly | None:
        if values is None:
            return None
        memorized = pd.Series(values[rows] >= eta, ids)
        return last_doubt.of(
            "doubt", eta, lambda: doubt(evidence, row, found, memorized, eta)
        )

    return replace(
        found,
        log_lira=None if values is None else values[rows],
        metric=row.name,
        layer=asked.layer if uses_layer(row) else "",
        checkpoint=asked.record.name,
        natural=row.tau,
        ids=ids,
        canaries=None if canaries is None else canaries[evidence.member_rows[rows]],
        right=None if right is None else right[rows],
        doubt=doubtful,
    )


def doubt(
    evidence: Evidence,
    row: Score,
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
    # a score of the shadow models, such as the baseline, owes its values to them as the truth does
    known = Calibration(evidence, eta, scores, independent=is_early(row))
    of_each = known.probability().reindex(memorized.index).to_numpy(np.float64)
    return Truly(expected, evidence.n_shadows, of_each, known.bias)


def named_series(
    evidence: Evidence, row: Score, found: Scored, name: str | None = None
) -> tuple[pd.Series, pd.Series | None]:
    """Return scores and their standard errors by id; warn of members that have none."""
    members = evidence.members
    if undrawn := len(evidence.undrawn):
        warn_user(f"{undrawn} members have no score, the training has not drawn them")
    scored = np.union1d(found.positions, evidence.undrawn)
    left_out = np.setdiff1d(np.arange(len(members)), scored)
    if len(left_out):
        warn_user(
            f"{len(left_out)} members have no score, {_why_unscored(row)}: "
            f"{listed(members[left_out], 5)}"
        )
    label, errors = name or row.name, found.errors
    index = evidence.member_index[found.positions]
    # a user may write to theirs
    values = pd.Series(found.scores.copy(), index, name=label)
    if errors is None:
        return values, None
    return values, pd.Series(errors.copy(), index, name=f"{label}_std")


def _why_unscored(row: Score) -> str:
    """Return why a score leaves members out."""
    made_of = [row, *(find_row(part) for part in row.parts)]
    if any(one.fits_classes for one in made_of):
        return "their class has fewer than two"
    if row.name == BASELINE:
        return "they are in every shadow model or in none"
    return f"{row.name} is NaN for them"


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
    # −inf: no such option
    logits = check_kept(evidence.logits(record), "logits", record, allowed=-np.inf)
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
    if not find_row(metric).fits_classes or found.labels is None:
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
    row = find_row(metric)
    found = score(evidence, row, layer, checkpoint)
    pairs = _pairs(evidence, found, memorized_members(evidence, truth, eta))
    notes = [
        *evidence.notes_at(checkpoint),
        *found.notes,
        *notes_on_zero(row, found),
    ]
    notes += notes_on_truth(
        evidence, truth, len(evidence.members) - len(pairs), "member"
    )
    if not is_early(row) and is_log_lira(truth):
        notes.append(SHARED_NOISE)
    columns = pairs["score"].to_numpy(), pairs["memorized"].to_numpy()
    result = evaluation.roc(*columns, positives=positives(truth)).with_warnings(*notes)
    if not is_log_lira(truth):
        return result
    known = doubt(evidence, row, found, pairs["memorized"], eta)
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

    row: Score
    layer: str
    record: Record

    def ask(self, evidence: Evidence) -> Inputs:
        """Return where it is asked for."""
        return ask(evidence, self.layer or "last", self.record.name)


def pick_candidates(
    evidence: Evidence,
    metrics: str | Metric | Iterable[str | Metric] | None = None,
    layers: str | int | Iterable[str | int] = "last",
    checkpoints: str | float | Iterable[str | float] = "prediction",
) -> list[Candidate]:
    """Return the rows of the table that `Audit.compare` describes.

    By default these are early scores that need at most the pass of their own checkpoint, or of one
    that an earlier row makes. Reference models are asked at some checkpoints only.
    """
    by_default = metrics is None
    chosen: Any = metrics_of(evidence) if metrics is None else metrics
    is_one = isinstance(chosen, str | Score) or callable(chosen)
    rows = [
        find_row(one) for one in ([chosen] if is_one else several("metrics", chosen))
    ]
    records, made, found = evidence.names.some_records(checkpoints), set[Need](), []
    for record, row in product(records, rows):
        asked = ask(evidence, "last", record.name)
        if (by_default or len(records) > 1) and not is_defined(row, asked):
            continue
        missing = {need for need in needs(row, asked) if not evidence.has(need)} - made
        elsewhere = any(need.checkpoint != record.name for need in missing)
        unasked = elsewhere or not is_early(row) or lacks_references(row, asked)
        if by_default and unasked:
            continue
        made |= missing
        of_layers = evidence.names.some_layers(layers) if uses_layer(row) else [""]
        found += [Candidate(row, layer, record) for layer in of_layers]
    return found


def compare(
    evidence: Evidence,
    picks: Sequence[Candidate],
    eta: float = 4.0,
    truth: str | ArrayLike = "log_lira",
) -> pd.DataFrame:
    """Tabulate the AUC of several scores, as `Audit.compare` describes.

    Where nobody knows which members are memorised, scores are compared with the first one.
    """
    if is_log_lira(truth) and not evidence.has_ground_truth:
        return _compare_ranks(evidence, picks)
    rows = []
    for pick in picks:
        row, layer, record = pick
        found = evaluate(evidence, row, layer or "last", record.name, eta, truth)
        rows.append({**_named(pick), **area(found), **_true_area(found)})
    return pd.DataFrame(rows)


def _named(pick: Candidate) -> dict[str, Any]:
    """Return which score it is, as columns of a table."""
    return {
        "metric": pick.row.name,
        "layer": pick.layer,
        "checkpoint": pick.record.name,
        "epoch": pick.record.epoch,
    }


def _compare_ranks(evidence: Evidence, picks: Sequence[Candidate]) -> pd.DataFrame:
    """Tabulate how well the ranks of each score agree with those of the first."""
    from scipy.stats import spearmanr

    of_each = []
    for pick in picks:
        asked = pick.ask(evidence)
        found = score(evidence, pick.row, asked.layer, asked.record.name)
        of_each.append(of_members(found.scores, found.positions, len(evidence.members)))
        if len(of_each) == 1:
            tau = found.tau if pick.row.tau is None else pick.row.tau
    rows = []
    for pick, values in zip(picks, of_each, strict=True):
        both = ~(np.isnan(of_each[0]) | np.isnan(values))
        first, other = of_each[0][both], values[both]
        tenth = max(1, round(_TENTH * len(first)))
        flagged = int((first <= tau).sum())
        row = {"n": len(first), "rho": float(spearmanr(first, other).statistic)}
        row |= {"tenth": tenth, "tenth_both": _in_both(first, other, tenth)}
        row |= {"flagged": flagged, "flagged_both": _in_both(first, other, flagged)}
        rows.append({**_named(pick), **row})
    return pd.DataFrame(rows)


def _in_both(first: Floats, other: Floats, budget: int) -> int:
    """Return how many members are among the `budget` lowest by each of two scores."""
    lowest = np.argsort(first, kind="stable")[:budget]
    lowest_other = np.argsort(other, kind="stable")[:budget]
    return len(np.intersect1d(lowest, lowest_other))


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
    found: list[Need] = []
    if metric is not None:
        found += needs(find_row(metric), ask(evidence, "last", checkpoint))
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
    row = find_row(metric)
    pairs: list[pd.DataFrame] = []
    notes: dict[str, Note] = {}
    truly, n_members = 0.0, 0
    first: Evidence | None = None
    for target in targets:
        first = first or target
        found = score(target, row, layer, "prediction")
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
