"""How well early scores predict the ground truth."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation
from memowidgets.audit.numbers.definitions import curve_over_shadows, enough_shadows
from memowidgets.audit.numbers.scores import (
    BASELINE,
    PER_LAYER,
    Metric,
    is_defined,
    is_free,
    metrics_of,
    score,
)
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    are_pairs,
    evidence_for,
    is_log_lira,
    lacking,
    memorized_members,
    notes_on_shape,
    positives,
    probably_memorized,
    share_by_chance,
)
from memowidgets.audit.source import Source
from memowidgets.checks import real_number, several, whole_number
from memowidgets.memorization.densities import Variance

__all__ = ["SHARED_NOISE", "check_both_kinds", "compare", "evaluate", "shadow_curve"]

SHARED_NOISE = (
    "baseline and truth are from the same shadow models and share their noise: the baseline's AUC "
    "is too high"
)


def evaluate(
    source: Source,
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
    found, members = score(source, metric, layer, checkpoint), source.members
    values = pd.Series(found.mu, members[found.rows])
    if uncertain:  # the baseline owes its values to the shadow models, as the truth does
        given = None if metric == BASELINE else values
        memorized = probably_memorized(source, truth, eta, given, variance)
    else:
        memorized = memorized_members(source, truth, eta, variance)
    both = values.index.intersection(memorized.index, sort=False)
    notes = [*source.notes_at(checkpoint), *found.notes]
    if is_log_lira(truth):
        notes += [*source.shadows.lost(), *notes_on_shape(source)]
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
    chance = share_by_chance(source, eta, variance) if is_log_lira(truth) else None
    if chance is None:
        return result
    return result.with_chance(chance * result.n, len(source.shadows))


def compare(
    source: Source,
    metrics: str | Iterable[str] | None = None,
    layers: str | int | Iterable[str | int] = "last",
    checkpoints: str | float | Iterable[str | float] = "prediction",
    eta: float = 4.0,
    truth: str | ArrayLike = "log_lira",
    variance: str = VARIANCE,
) -> pd.DataFrame:
    """Tabulate the AUC of several scores, as `Audit.compare` describes."""
    rows = []
    by_default = metrics is None
    chosen = metrics_of(source) if metrics is None else metrics
    chosen = [chosen] if isinstance(chosen, str) else several("metrics", chosen)
    records = source.names.some_records(checkpoints)
    for record in records:
        for metric in chosen:
            if len(records) > 1 and not is_defined(source, metric, record):
                continue
            per_layer = metric in PER_LAYER
            for layer in source.names.some_layers(layers) if per_layer else ("",):
                if by_default and not is_free(source, str(metric), layer or "last", record):
                    continue
                asked = metric, layer or "last", record.name, eta, truth
                found = evaluate(source, *asked, variance=variance)
                rows.append(
                    {
                        "metric": metric,
                        "layer": layer,
                        "checkpoint": record.name,
                        "epoch": record.epoch,
                        "auc": found.auc,
                        "auc_low": found.auc_interval[0],
                        "auc_high": found.auc_interval[1],
                        "n": found.n,
                        "n_memorized": found.n_memorized,
                    }
                )
    return pd.DataFrame(rows)


def shadow_curve(
    source: Source,
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
    found = score(source, metric, layer, checkpoint)
    record = source.names.record("final")
    target = source.target_gaps(record)

    def curve(one: str) -> pd.DataFrame:
        evidence = evidence_for(source, record, one)
        return curve_over_shadows(
            len(evidence.gaps),
            partial(evidence.log_lira, target),
            found.mu,
            found.rows,
            real_number("eta", eta),
            wanted,
            repeats,
            random_state,
            pairs=are_pairs(source),
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
