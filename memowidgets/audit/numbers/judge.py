"""How well early scores predict the ground truth."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation
from memowidgets.audit.evidence import REFERENCES, Evidence, Need
from memowidgets.audit.numbers.definitions import curve_over_shadows, enough_shadows
from memowidgets.audit.numbers.scores import (
    BASELINE,
    PER_LAYER,
    SCORES,
    Metric,
    is_defined,
    metrics_of,
    needs,
    score,
)
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    against,
    is_log_lira,
    lacking,
    memorized_members,
    notes_on_shape,
    positives,
    probably_memorized,
    share_by_chance,
    truth_needs,
)
from memowidgets.checks import real_number, several, whole_number
from memowidgets.memorization.densities import Variance
from memowidgets.training.rho import Record

SHARED_NOISE = (
    "baseline and truth are from the same shadow models and share their noise: the baseline's AUC "
    "is too high"
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
    values = pd.Series(found.mu, members[found.rows])
    if uncertain:  # the baseline owes its values to the shadow models, as the truth does
        given = None if metric == BASELINE else values
        memorized = probably_memorized(evidence, truth, eta, given, variance)
    else:
        memorized = memorized_members(evidence, truth, eta, variance)
    both = values.index.intersection(memorized.index, sort=False)
    notes = [*evidence.notes_at(checkpoint), *found.notes]
    if is_log_lira(truth):
        notes += [*evidence.shadows.lost, *notes_on_shape(evidence)]
    if metric == BASELINE and is_log_lira(truth):
        notes.append(SHARED_NOISE)
    left_out = len(members) - len(both)
    if left_out:
        one, many = "1 member is left out: it has", f"{left_out} members are left out: they have"
        notes.append(f"{one if left_out == 1 else many} {lacking(truth)}")
    labels = memorized[both].to_numpy()
    if uncertain:
        result = evaluation.roc(values[both].to_numpy(), None, labels)
    else:
        check_both_kinds(labels, truth)
        result = evaluation.roc(values[both].to_numpy(), labels)
    result = result.called(positives(truth)).with_warnings(*notes)
    chance = share_by_chance(evidence, eta, variance) if is_log_lira(truth) else None
    if chance is None:
        return result
    return result.with_chance(chance * result.n, evidence.n_shadows)


@dataclass(frozen=True)
class Pick:
    """A score at a layer of a checkpoint; the layer is empty for scores without one."""

    metric: str
    layer: str
    record: Record


def picked(
    evidence: Evidence,
    metrics: str | Iterable[str] | None = None,
    layers: str | int | Iterable[str | int] = "last",
    checkpoints: str | float | Iterable[str | float] = "prediction",
) -> list[Pick]:
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
                missing = set(evidence.missing(needs(evidence, metric, record))) - made
                if by_default:
                    known = SCORES[metric]
                    elsewhere = {need for need in missing if need.checkpoint != record.name}
                    asked = REFERENCES not in known.needs or record.name in (
                        evidence.references.checkpoints
                    )
                    if not known.is_early or elsewhere or not asked:
                        continue
                made |= missing
                found.append(Pick(metric, layer, record))
    return found


def compare(
    evidence: Evidence,
    picks: Sequence[Pick],
    eta: float = 4.0,
    truth: str | ArrayLike = "log_lira",
    variance: str = VARIANCE,
) -> pd.DataFrame:
    """Tabulate the AUC of several scores, as `Audit.compare` describes."""
    rows = []
    for pick in picks:
        layer, name = pick.layer or "last", pick.record.name
        found = evaluate(evidence, pick.metric, layer, name, eta, truth, variance=variance)
        rows.append(
            {
                "metric": pick.metric,
                "layer": pick.layer,
                "checkpoint": name,
                "epoch": pick.record.epoch,
                "auc": found.auc,
                "auc_low": found.auc_interval[0],
                "auc_high": found.auc_interval[1],
                "n": found.n,
                "n_memorized": found.n_memorized,
            }
        )
    return pd.DataFrame(rows)


def needs_of(
    evidence: Evidence,
    metric: str | Metric | None,
    checkpoint: str | float = "prediction",
    truth: str | ArrayLike | None = "log_lira",
    variance: str = VARIANCE,
    last: int | None = None,
) -> list[Need]:
    """Return what a score and the truth at the end of training need; None leaves one out."""
    found, final = [], evidence.names.final()
    if metric is not None:
        found = needs(evidence, metric, evidence.names.record(checkpoint), last)
    if final is not None and truth is not None and is_log_lira(truth):
        found += truth_needs(evidence, final, variance)
    return found


def shadow_curve(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int,
    checkpoint: str | float,
    eta: float,
    variance: str | Sequence[str],
    sizes: Sequence[int] | None,
    repeats: int,
    random_state: int,
) -> pd.DataFrame:
    """Tabulate what fewer shadow models would find, as `Audit.shadow_curve` describes."""
    whole_number("repeats", repeats, 1)
    wanted = None
    if sizes is not None:
        wanted = [whole_number("a size", size) for size in several("sizes", sizes)]
    found = score(evidence, metric, layer, checkpoint)
    record = evidence.names.record("final")
    target = evidence.target_gaps(record)

    def curve(one: str) -> pd.DataFrame:
        compared = against(evidence, record, one)
        return curve_over_shadows(
            len(compared.gaps),
            partial(compared.log_lira, target),
            found.mu,
            found.rows,
            real_number("eta", eta),
            wanted,
            repeats,
            random_state,
            pairs=evidence.shadows.are_pairs,
        )

    if isinstance(variance, str) and variance != "all":
        table = curve(variance)
        table.attrs["enough"] = enough_shadows(table)
        return table
    chosen = get_args(Variance) if isinstance(variance, str) else several("variance", variance)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*per-sample variance is unreliable", UserWarning)
        curves = {one: curve(one) for one in chosen}
    table = pd.concat([part.assign(variance=one) for one, part in curves.items()])
    table.attrs["enough"] = {one: enough_shadows(part) for one, part in curves.items()}
    return table.reset_index(drop=True)


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
