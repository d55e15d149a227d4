"""How well early scores predict the ground truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import evaluation
from memowidgets.audit.evidence import LOGITS, Evidence, Need
from memowidgets.audit.numbers.scores import (
    BASELINE,
    EARLY,
    PER_LAYER,
    Metric,
    doubt,
    is_defined,
    lacks_references,
    metrics_of,
    needs,
    notes_on_zero,
    score,
)
from memowidgets.audit.numbers.truth import (
    is_log_lira,
    memorized_members,
    notes_on_shape,
    positives,
    truly_memorized,
    truth_needs,
)
from memowidgets.checks import several
from memowidgets.evaluation.scored import Scored
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
) -> evaluation.Evaluation:
    """Compare a score with the ground truth, as `Audit.evaluate` describes."""
    found = score(evidence, metric, layer, checkpoint)
    pairs = _pairs(evidence, found, memorized_members(evidence, truth, eta))
    notes = [*evidence.notes_at(checkpoint), *found.notes, *notes_on_zero(metric, found)]
    notes += notes_on_truth(evidence, truth, len(evidence.members) - len(pairs), "member")
    if metric == BASELINE and is_log_lira(truth):
        notes.append(SHARED_NOISE)
    columns = pairs["score"].to_numpy(), pairs["memorized"].to_numpy()
    result = evaluation.roc(*columns, positives=positives(truth)).with_warnings(*notes)
    if not is_log_lira(truth):
        return result
    known = doubt(evidence, metric, found, pairs["memorized"], eta)
    return result if known is None else result.with_truly(*known)


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
    are, have = verb(left_out, f"{what} is", f"{what}s are"), verb(left_out, "it has", "they have")
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
        if (by_default or len(records) > 1) and not is_defined(evidence, metric, record):
            continue
        wanted = needs(evidence, metric, record)
        missing = {need for need in wanted if not evidence.has(need)} - made
        elsewhere = any(need.checkpoint != record.name for need in missing)
        if by_default and (
            elsewhere or metric not in EARLY or lacks_references(evidence, metric, record)
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
    every = isinstance(targets, str) and targets == "all"
    chosen = evidence.shadows.indices if every else several("targets", targets)
    if not chosen:
        raise StoreError("there are no shadow models: run_shadows(…, keep_forward=True) first")
    pairs: list[pd.DataFrame] = []
    notes: dict[str, Note] = {}
    truly, n_members, first = 0.0, 0, evidence.as_target(chosen[0])
    for done, index in enumerate(chosen):
        progress.report(done, len(chosen), "auditing shadow models")
        target = evidence.as_target(index)
        found = score(target, metric, layer, "prediction")
        notes = {note.key: note for note in found.notes} | notes
        memorized = memorized_members(target, truth, eta)
        if not with_canaries and evidence.data.canaries is not None:
            planted = evidence.data.ids[evidence.data.canaries]
            memorized = memorized[~memorized.index.isin(planted)]
        pairs.append(_pairs(target, found, memorized).assign(model=index))
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
    said = notes_on_truth(first, truth, n_members - len(everything), "pair")
    result = result.with_warnings(
        *evidence.notes_at("prediction"), *notes.values(), *said
    )  # all targets have as many shadow models
    return result.with_truly(truly, first.n_shadows) if is_log_lira(truth) else result
