"""How well early scores predict the ground truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation
from memowidgets.audit.evidence import LOGITS, REFERENCES, Evidence, Need
from memowidgets.audit.numbers.scores import (
    BASELINE,
    PER_LAYER,
    SCORES,
    Metric,
    counts_of,
    doubt,
    is_defined,
    metrics_of,
    needs,
    notes_on_classes,
    notes_on_zero,
    score,
)
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    is_log_lira,
    lacking,
    memorized_members,
    notes_on_shape,
    positives,
    probability_memorized,
    truly_memorized,
    truth_needs,
)
from memowidgets.checks import several, whole_number
from memowidgets.evaluation.scored import Scored
from memowidgets.metrics.psmi import SMALL_CLASSES
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.checkpoint import Record
from memowidgets.vocabulary import Note, verb

SHARED_NOISE = Note(
    "shared noise",
    "baseline and truth are from the same shadow models and share their noise: the baseline's AUC "
    "is too high",
)


def evaluate(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
    eta: float = 4.0,
    truth: str | ArrayLike = "log_lira",
    *,
    uncertain: bool = False,
    variance: str = VARIANCE,
) -> evaluation.Evaluation:
    """Compare a score with the ground truth, as `Audit.evaluate` describes."""
    found, members = score(evidence, metric, layer, checkpoint), evidence.members
    values = pd.Series(found.scores, members[found.positions])
    if uncertain:  # the baseline owes its values to the shadow models, as the truth does
        if not is_log_lira(truth):
            raise ValueError('only truth="log_lira" can be uncertain: no other has an error')
        given = None if metric == BASELINE else values
        memorized = probability_memorized(evidence, eta, "final", variance, given)
    else:
        memorized = memorized_members(evidence, truth, eta, variance)
    both = values.index.intersection(memorized.index, sort=False)
    notes = [*evidence.notes_at(checkpoint), *found.notes]
    notes += notes_on_zero(metric, found)
    if is_log_lira(truth):
        notes += notes_on_shape(evidence)
    if metric == BASELINE and is_log_lira(truth):
        notes.append(SHARED_NOISE)
    left_out = len(members) - len(both)
    if left_out:
        said = f"{left_out} {verb(left_out, 'member is', 'members are')} left out: "
        said += f"{verb(left_out, 'it has', 'they have')} {lacking(truth)}"
        notes.append(Note("left out", said, n=left_out))
    labels = memorized[both].to_numpy()
    if uncertain:
        result = evaluation.roc(values[both].to_numpy(), None, labels)
    else:
        check_both_kinds(labels, truth)
        result = evaluation.roc(values[both].to_numpy(), labels)
    result = result.called(positives(truth)).with_warnings(*notes)
    if uncertain or not is_log_lira(truth):  # the counts are expected numbers, or have no error
        return result
    known = doubt(evidence, metric, values, memorized[both], eta, variance)
    return result if known is None else result.with_truly(*known)


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
    records, made = evidence.names.some_records(checkpoints), set[Need]()
    found = []
    for record in records:
        for metric in chosen:
            if (by_default or len(records) > 1) and not is_defined(evidence, metric, record):
                continue
            per_layer = metric in PER_LAYER
            for layer in evidence.names.some_layers(layers) if per_layer else ("",):
                wanted, at = needs(evidence, metric, record), evidence.checkpoints
                missing = {need for need in wanted if not at[need.checkpoint].has(need)} - made
                if by_default:
                    known = SCORES[metric]
                    elsewhere = {need for need in missing if need.checkpoint != record.name}
                    asked = REFERENCES not in known.needs or record.name in (
                        evidence.references.checkpoints
                    )
                    if not known.is_early or elsewhere or not asked:
                        continue
                made |= missing
                found.append(Candidate(metric, layer, record))
    return found


def compare(
    evidence: Evidence,
    picks: Sequence[Candidate],
    eta: float = 4.0,
    truth: str | ArrayLike = "log_lira",
    variance: str = VARIANCE,
) -> pd.DataFrame:
    """Tabulate the AUC of several scores, as `Audit.compare` describes."""
    rows = []
    for metric, layer, record in picks:
        place = layer or "last", record.name
        found = evaluate(evidence, metric, *place, eta, truth, variance=variance)
        at = {"checkpoint": record.name, "epoch": record.epoch}
        rows.append({"metric": metric, "layer": layer, **at, **area(found)})
    return pd.DataFrame(rows)


def area(found: evaluation.Evaluation) -> dict[str, float]:
    """Return AUC and counts as columns of a table."""
    low, high = found.auc_interval
    counts = {"n": found.n, "n_memorized": found.n_memorized}
    return {"auc": found.auc, "auc_low": low, "auc_high": high, **counts}


def needs_of(
    evidence: Evidence,
    metric: str | Metric | None,
    checkpoint: str | float = "prediction",
    truth: str | ArrayLike | None = "log_lira",
    last: int | None = None,
    *,
    answers: bool = False,
) -> list[Need]:
    """Return what a score and the truth at the end of training need; None leaves one out.

    With `answers`, also what the model's answers at the checkpoint need.
    """
    found, final = [], evidence.names.final()
    if metric is not None:
        found = needs(evidence, metric, evidence.names.record(checkpoint), last)
    by_lira = truth is not None and is_log_lira(truth) and evidence.has_ground_truth
    if final is not None and by_lira:
        found += truth_needs(evidence, final)
    if answers and LOGITS in evidence.kinds:
        found.append(Need("losses", evidence.names.record(checkpoint).name))
    return found


def check_both_kinds(labels: NDArray[np.bool_], truth: str | ArrayLike) -> None:
    """Refuse samples of one kind.

    Raises
    ------
    ValueError
        In the words of the truth.
    """
    if labels.all() or not labels.any():
        kind = "every sample is" if len(labels) and labels.all() else "no sample is"
        raise ValueError(
            f"the AUC is undefined: {kind} {positives(truth)}, and it needs samples of both kinds"
        )


def _checked_targets(
    evidence: Evidence, targets: str | Sequence[int], truth: str, *, with_canaries: bool
) -> list[int]:
    """Return which shadow models to pool.

    Raises
    ------
    ValueError
        If the targets are neither "all" nor indices, or canaries are the truth and left out.
    StoreError
        If there are no shadow models.
    """
    named = isinstance(targets, str)
    every = list(evidence.shadows.indices)
    if not named:
        every = [whole_number("a target", target) for target in several("targets", targets)]
    if (named and targets != "all") or not (named or every):
        raise ValueError(f"targets must be 'all' or indices of shadow models, not {targets!r}")
    if truth == "canaries" and not with_canaries:
        raise ValueError('truth="canaries" needs with_canaries=True')
    if not every:
        raise StoreError("there are no shadow models: run_shadows(…, keep_forward=True) first")
    return every


def pooled_evaluation(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int,
    eta: float,
    truth: str,
    targets: str | Sequence[int],
    progress: Progress,
    *,
    with_canaries: bool,
) -> evaluation.Evaluation:
    """Evaluate a score over several targets, as `Audit.evaluate_pooled` describes.

    Parameters
    ----------
    evidence : Evidence
        Of the run whose shadow models are the targets.
    metric, layer, eta, truth, targets, with_canaries
        As in `Audit.evaluate_pooled`.
    progress : Progress
        Where to report.
    """
    targets = _checked_targets(evidence, targets, truth, with_canaries=with_canaries)
    pairs: list[pd.DataFrame] = []
    truly: float | None = 0.0 if is_log_lira(truth) else None
    notes: dict[Note, None] = {}
    left_out = 0
    names = evidence.data.class_names
    counts = np.full(len(names), np.iinfo(np.int64).max)
    for done, index in enumerate(targets):
        progress.report(done, len(targets), "auditing shadow models")
        target = evidence.as_target(index)
        found = score(target, metric, layer, "prediction")
        notes.update(dict.fromkeys(one for one in found.notes if one.key != SMALL_CLASSES))
        counts = np.minimum(counts, counts_of(target, found))
        memorized = memorized_members(target, truth, eta)
        if not with_canaries and evidence.data.canaries is not None:
            planted = evidence.data.ids[evidence.data.canaries]
            memorized = memorized[~memorized.index.isin(planted)]
        pairs.append(_pairs(target, found, memorized).assign(model=index))
        if truly is not None:
            truly += truly_memorized(target, pairs[-1]["memorized"], eta) or 0.0
        left_out += len(target.member_rows) - len(pairs[-1])
    everything = pd.concat(pairs)
    if not everything["memorized"].any():
        what = "of a canary" if truth == "canaries" else f"memorised at η = {eta:g}"
        more = "" if truth == "canaries" else "lower eta, or "
        raise ValueError(
            f"none of the {len(everything)} pairs of a sample and a model is {what}: "
            f"{more}pool more targets"
        )
    check_both_kinds(everything["memorized"].to_numpy(), truth)
    result = evaluation.roc(
        everything["score"].to_numpy(),
        everything["memorized"].to_numpy(),
        groups=everything.index,
        models=everything["model"].to_numpy(),
    )
    notes.update(dict.fromkeys(notes_on_classes(metric, counts, names)))
    if left_out:
        left = f"{left_out} pairs are left out: they have {lacking(truth)}"
        notes[Note("left out", left, n=left_out)] = None
    first = evidence.as_target(targets[0])  # all have as many shadow models
    of_shape = notes_on_shape(first) if is_log_lira(truth) else ()
    said = *evidence.notes_at("prediction"), *notes, *of_shape
    result = result.called(positives(truth)).with_warnings(*said)
    return result if truly is None else result.with_truly(truly, first.n_shadows)


def _pairs(target: Evidence, found: Scored, memorized: pd.Series) -> pd.DataFrame:
    """Score and truth of each member of one target that has both, by id."""
    scores = pd.Series(found.scores, target.members[found.positions])
    both = scores.index.intersection(memorized.index, sort=False)
    if not len(both):
        raise ValueError(
            f"no member of {target!r} has both a score and a truth: with "
            'design="canaries" only audited samples have a log-LiRA'
        )
    return pd.DataFrame(
        {"score": scores[both].to_numpy(), "memorized": memorized[both].to_numpy(dtype=np.bool_)},
        both,
    )
