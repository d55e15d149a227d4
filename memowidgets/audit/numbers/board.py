"""Early scores on several audits, side by side: AUC, rank and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import evaluation
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.judge import check_both_kinds
from memowidgets.audit.numbers.scores import SCORES, metrics_of, score
from memowidgets.audit.numbers.truth import (
    is_log_lira,
    memorized_members,
    positives,
    share_by_chance,
)
from memowidgets.data import Dataset
from memowidgets.store import StoreError

TRUTHS = ("log_lira", "canaries")
_COLUMNS = (
    *("setting", "truth", "metric", "auc", "auc_low", "auc_high", "rank"),
    *("difference", "difference_low", "difference_high"),
    *("n", "n_memorized", "n_by_chance", "n_targets"),
)
OwnScore = Callable[[Evidence], ArrayLike]


@dataclass(frozen=True)
class _Pairs:
    """Values of all scores and the truth of each pair of a sample and a target.

    Attributes
    ----------
    table : DataFrame
        ``sample``, ``target``, ``memorized``, and a column for each score.
    by_chance : float
        Pairs that count as memorised by chance alone; NaN where nobody knows.
    """

    table: pd.DataFrame
    by_chance: float


def early_scores(targets: Sequence[Evidence]) -> list[str]:
    """Return the names of the early scores that at least one target allows."""
    there = {name for evidence in targets for name in metrics_of(evidence)}
    return [name for name, known in SCORES.items() if name in there and known.is_early]


def board(
    settings: Mapping[str, Sequence[Evidence]],
    metrics: Mapping[str, str | OwnScore],
    truths: Sequence[str],
    eta: float,
    against: str,
) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Tabulate scores by setting and truth, as `memowidgets.scoreboard` describes.

    Returns
    -------
    DataFrame
        One row for each setting, truth and score.
    list of str
        What is missing, and why.
    list of str
        What a reader must know of each setting before trusting its rows.
    """
    parts, missing, notes = [], [], []
    for setting, targets in settings.items():
        for truth in truths:
            try:
                pairs, lacking = _paired(targets, metrics, truth, eta)
                missing += [f"{setting}: {reason}" for reason in lacking]
                rows = _judged(pairs, truth, against)
                notes += [f"{setting}: {note}" for note in _notes(targets, truth)]
                if len(targets) < evaluation.ENOUGH_MODELS:
                    few = "one target" if len(targets) == 1 else f"{len(targets)} targets"
                    notes.append(
                        f"{setting}: the intervals rest on {few}, and a difference is confirmed "
                        f"from {evaluation.ENOUGH_MODELS} targets on"
                    )
            except (ValueError, StoreError) as error:
                missing.append(f"{setting}, by {_spoken(truth)}: {error}")
                continue
            parts.append(rows.assign(setting=setting, truth=truth))
    if not parts:
        raise ValueError(f"there is nothing to compare: {'; '.join(missing)}")
    table = pd.concat(parts, ignore_index=True)[list(_COLUMNS)]
    return table, list(dict.fromkeys(missing)), list(dict.fromkeys(notes))


def ranked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean rank of each score by truth, best first; NaN where it was not judged."""
    ranks = table.pivot_table(index="metric", columns="truth", values="rank", sort=False)
    ranks["mean"] = table.groupby("metric")["rank"].mean()
    ranks["n"] = table.groupby("metric")["rank"].size()
    return ranks.sort_values("mean").rename_axis(columns=None)


def _paired(
    targets: Sequence[Evidence], metrics: Mapping[str, str | OwnScore], truth: str, eta: float
) -> tuple[_Pairs, list[str]]:
    every, lacking = _every_value(targets, metrics)
    parts, by_chance, names = [], 0.0, _sample_names(targets)
    for number, evidence in enumerate(targets):
        memorized = memorized_members(evidence, truth, eta)
        table = pd.DataFrame({"memorized": memorized} | every[number]).dropna()
        if table.empty:
            raise ValueError(f"no member of {evidence!r} has a truth and every score")
        table["sample"] = names[number].reindex(table.index)
        parts.append(table.assign(target=number))
        share = share_by_chance(evidence, eta) if is_log_lira(truth) else None
        by_chance += np.nan if share is None else share * len(table)
    table = pd.concat(parts, ignore_index=True)
    table["memorized"] = table["memorized"].astype(np.bool_)
    return _Pairs(table, by_chance), lacking


def _every_value(
    targets: Sequence[Evidence], metrics: Mapping[str, str | OwnScore]
) -> tuple[list[dict[str, pd.Series]], list[str]]:
    """Return the scores that every target has, by target, and why others are missing."""
    lacking: dict[str, str] = {}
    every: list[dict[str, pd.Series]] = [{} for _ in targets]
    for evidence, values in zip(targets, every, strict=True):
        for name, metric in metrics.items():
            try:
                values[name] = _values(evidence, metric)
            except (ValueError, StoreError) as error:
                lacking[name] = f"no {name}: {error}"
    kept = [{name: one[name] for name in one if name not in lacking} for one in every]
    return kept, list(lacking.values())


def _notes(targets: Sequence[Evidence], truth: str) -> list[str]:
    lost = [note for one in targets for note in one.shadows.lost] if is_log_lira(truth) else []
    return [*(note for one in targets for note in one.notes_at("prediction")), *lost]


def _values(evidence: Evidence, metric: str | OwnScore) -> pd.Series:
    members = evidence.members
    if isinstance(metric, str):
        found = score(evidence, metric)
        return pd.Series(found.mu, members[found.rows])
    given = metric(evidence)
    if isinstance(given, pd.Series) and set(given.index) == set(members):
        given = given.reindex(members)
    values = np.asarray(given, dtype=np.float64)
    if values.shape != members.shape or not np.isfinite(values).all():
        raise ValueError(
            f"it must give one finite value for each of {len(members)} members, and gave "
            f"{int(np.isfinite(values).sum())} in the shape {values.shape}"
        )
    return pd.Series(values, members)


def _sample_names(targets: Sequence[Evidence]) -> list[pd.Series]:
    """Return a name of each sample of each target, by id.

    Two samples have the same name if their content and their label from before label noise are the
    same, whatever their ids. Where nobody knows the content, all ids and labels must be the same.
    """
    known: dict[tuple[Any, ...], str] = {}
    hashed: dict[int, tuple[Dataset, list[str]]] = {}  # of the data that targets share
    named = []
    for number, evidence in enumerate(targets):
        data = evidence.clean_data
        if id(data) not in hashed:
            hashed[id(data)] = data, data.content_hashes()
        ids, labels, hashes = data.ids.tolist(), data.labels.tolist(), hashed[id(data)][1]
        unknown = (tuple(ids), tuple(labels)) if hashes == ids else ()
        keys = [(one, label, unknown) for one, label in zip(hashes, labels, strict=True)]
        names = [
            known.setdefault(key, f"{number} {name}") for key, name in zip(keys, ids, strict=True)
        ]
        named.append(pd.Series(names, ids))
    return named


def _judged(pairs: _Pairs, truth: str, against: str) -> pd.DataFrame:
    table = pairs.table
    memorized = table["memorized"].to_numpy()
    check_both_kinds(memorized, truth)
    names = [str(name) for name in table if name not in ("memorized", "sample", "target")]
    n_targets = len(table["target"].unique())
    several = n_targets > 1
    grouped = {"groups": table["sample"], "models": table["target"]} if several else {}
    found = {
        name: evaluation.roc(table[name].to_numpy(), memorized, **grouped).called(positives(truth))
        for name in names
    }
    if not found:
        raise ValueError("no score can be had")
    rows = pd.DataFrame([_row(name, found, against) for name in names])
    rows["rank"] = rows["auc"].rank(ascending=False)
    counts = {"n": len(table), "n_memorized": int(memorized.sum()), "n_targets": n_targets}
    return rows.assign(**counts, n_by_chance=pairs.by_chance)


def _row(name: str, found: Mapping[str, evaluation.Evaluation], against: str) -> dict[str, Any]:
    one = found[name]
    row = {"metric": name, "auc": one.auc, "auc_low": one.auc_interval[0]}
    row |= {"auc_high": one.auc_interval[1], "difference": np.nan}
    row |= {"difference_low": np.nan, "difference_high": np.nan}
    enough = min(one.n_memorized, one.n - one.n_memorized) > 1
    if against in found and name != against and enough:
        test = evaluation.compare(one, found[against])
        row["difference"] = test.difference
        row["difference_low"], row["difference_high"] = test.interval
    return row


def _spoken(truth: str) -> str:
    return "log-LiRA" if is_log_lira(truth) else truth
