"""Many targets in one evaluation: every shadow model in its turn, the pairs pooled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from memowidgets import evaluation
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.kept import Scores
from memowidgets.audit.numbers.judge import check_both_kinds
from memowidgets.audit.numbers.scores import Metric, counts_of, notes_on_classes, score
from memowidgets.audit.numbers.truth import (
    is_log_lira,
    lacking,
    memorized_members,
    notes_on_shape,
    positives,
    share_by_chance,
)
from memowidgets.checks import several, whole_number
from memowidgets.progress import Progress
from memowidgets.store import StoreError


def checked_targets(
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
    targets: Sequence[int],
    metric: str | Metric,
    layer: str | int,
    eta: float,
    truth: str,
    progress: Progress,
    *,
    with_canaries: bool,
) -> evaluation.Evaluation:
    """Evaluate a score over several targets, as `Audit.evaluate_pooled` describes.

    Parameters
    ----------
    evidence : Evidence
        Of the run whose shadow models are the targets.
    targets : sequence of int
        Indices of the shadow models.
    metric, layer, eta, truth, with_canaries
        As in `Audit.evaluate_pooled`.
    progress : Progress
        Where to report.
    """
    pairs: list[pd.DataFrame] = []
    notes: dict[str, None] = {}
    left_out = 0
    names = evidence.data.class_names
    counts = np.full(len(names), np.iinfo(np.int64).max)
    for done, index in enumerate(targets):
        progress.report(done, len(targets), "auditing shadow models")
        target = evidence.as_target(index)
        found = score(target, metric, layer, "prediction")
        on_classes = notes_on_classes(metric, counts_of(target, found), names)
        notes.update(dict.fromkeys(note for note in found.notes if note not in on_classes))
        counts = np.minimum(counts, counts_of(target, found))
        memorized = memorized_members(target, truth, eta)
        if not with_canaries and evidence.data.canaries is not None:
            planted = evidence.data.ids[evidence.data.canaries]
            memorized = memorized[~memorized.index.isin(planted)]
        pairs.append(_pairs(target, found, memorized).assign(model=index))
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
        notes[f"{left_out} pairs are left out: they have {lacking(truth)}"] = None
    result = result.called(positives(truth))
    result = result.with_warnings(*evidence.notes_at("prediction"), *notes)
    first = evidence.as_target(targets[0])  # all have as many shadow models
    if is_log_lira(truth):
        result = result.with_warnings(*notes_on_shape(first))
    chance = share_by_chance(first, eta) if is_log_lira(truth) else None
    if chance is None:
        return result
    return result.with_chance(chance * result.n, first.n_shadows)


def _pairs(target: Evidence, found: Scores, memorized: pd.Series) -> pd.DataFrame:
    """Score and truth of each member of one target that has both, by id."""
    scores = pd.Series(found.mu, target.members[found.rows])
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
