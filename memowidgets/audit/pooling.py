"""Many targets in one evaluation: every shadow model in its turn, the pairs pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import evaluation
from memowidgets.audit import scoring
from memowidgets.audit.parts.evaluated import (
    check_both_kinds,
    is_log_lira,
    lacking,
    positives,
)
from memowidgets.progress import Progress

if TYPE_CHECKING:
    from memowidgets.audit.audit import Audit

__all__ = ["pooled_evaluation"]


def pooled_evaluation(
    audit: Audit,
    targets: Sequence[int],
    metric: str | scoring.Metric,
    layer: str | int,
    eta: float,
    truth: str | ArrayLike,
    progress: Progress,
    *,
    with_canaries: bool,
) -> evaluation.Evaluation:
    """As `Audit.evaluate_pooled` says."""
    pairs: list[pd.DataFrame] = []
    notes: dict[str, None] = {}
    left_out = 0
    for done, index in enumerate(targets):
        progress.report(done, len(targets), "auditing shadow models")
        target = audit.as_target(index)
        found = target.raw_scores(metric, layer, "prediction")
        notes.update(dict.fromkeys(found.notes))
        memorized = target._truth(truth, eta)  # noqa: SLF001 - the same room
        if not with_canaries and audit.data.canaries is not None:
            planted = audit.data.ids[audit.data.canaries]
            memorized = memorized[~memorized.index.isin(planted)]
        pairs.append(_pairs(target, found, memorized).assign(model=index))
        left_out += len(target.members) - len(pairs[-1])
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
    if left_out:
        notes[f"{left_out} pairs are left out: they have {lacking(truth)}"] = None
    result = result.called(positives(truth))
    result = result.with_warnings(*audit.warnings_at("prediction"), *notes)
    first = audit.as_target(targets[0])  # all have as many shadow models
    chance = first._share_by_chance(eta) if is_log_lira(truth) else None  # noqa: SLF001
    return result if chance is None else result.with_chance(chance * result.n, first.n_shadows)


def _pairs(target: Audit, found: scoring.Scores, memorized: pd.Series) -> pd.DataFrame:
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
