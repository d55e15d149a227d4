"""Definitions of memorisation side by side, and how many shadow models they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from memowidgets import evaluation, memorization

if TYPE_CHECKING:
    import altair as alt

__all__ = ["MemorizationComparison", "compared_definitions", "curve_over_shadows"]

Floats = NDArray[np.float64]
Gaps = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
_SIZES = (4, 8, 16, 32, 64, 128, 256)
_BAND = (0.05, 0.95)
_GAMMA = 1.0  # any γ ranks alike; above 1 more samples tie at 0


@dataclass(frozen=True)
class MemorizationComparison:
    """Several definitions of memorisation of the same samples.

    Attributes
    ----------
    values : DataFrame
        By id: ``log_lira`` (of this target), ``attack_success_rate``, ``counterfactual`` (of the
        shadow models), ``rmia`` (of this target); high means memorised.
    spearman : DataFrame
        For each pair ``a``, ``b``: Spearman's ``rho`` with its 95 % interval ``low``, ``high``
        from a bootstrap by sample, and ``n``.
    """

    values: pd.DataFrame = field(repr=False)
    spearman: pd.DataFrame

    def figure(self, x: str = "counterfactual", y: str = "attack_success_rate") -> alt.LayerChart:
        """Two definitions against each other (paper, Appendix C)."""
        from memowidgets.charts import memorization_scatter

        return memorization_scatter(self.values, x, y)

    def _repr_html_(self) -> str:
        return str(self.spearman.to_html(float_format=lambda value: f"{value:.3f}", index=False))


def compared_definitions(
    ids: NDArray[np.str_],
    gaps: Gaps,
    members: Mask,
    target: Gaps,
    population: tuple[Gaps, Mask, Gaps] | None,
    variance: str,
    n_bootstrap: int,
    random_state: int,
) -> MemorizationComparison:
    """Every definition of these samples, and how far each pair of them ranks alike.

    Parameters
    ----------
    ids : array of shape (n,), str
        Of the samples.
    gaps, members : array of shape (m, n)
        Of the shadow models.
    target : array of shape (n,)
        The target's gaps.
    population : (gaps, members, target gaps) or None
        The same of the samples that the target did not train on, for RMIA; None: the samples
        themselves.
    variance : str
        As in `memowidgets.memorization.log_lira`.
    n_bootstrap, random_state : int
        Resamples of the samples, and their seed.
    """
    values = pd.DataFrame(
        {
            "log_lira": memorization.log_lira(gaps, members, target, variance),
            "attack_success_rate": memorization.attack_success_rate(gaps, members, variance),
            "counterfactual": memorization.counterfactual(gaps, members),
            "rmia": _rmia(gaps, members, target, population),
        },
        pd.Index(ids, name="id"),
    ).dropna()
    if len(values) < 2:
        raise ValueError(
            f"{len(gaps)} shadow models are too few: fewer than two samples have a value by every "
            "definition; run more"
        )
    return MemorizationComparison(values, _spearman(values, n_bootstrap, random_state))


def curve_over_shadows(
    gaps: Gaps,
    members: Mask,
    target: Gaps,
    scores: Floats,
    rows: NDArray[np.int64],
    variance: str,
    eta: float,
    sizes: Sequence[int] | None,
    repeats: int,
    random_state: int,
    *,
    pairs: bool,
) -> pd.DataFrame:
    """AUC and memorised set from subsets of the shadow models, as `Audit.shadow_curve` says."""
    m = len(gaps)
    chosen = sorted({size for size in sizes or (*_SIZES, m) if size <= m})
    bad = [size for size in sizes or () if size < 4 or size > m]
    if bad or not chosen:
        raise ValueError(f"sizes must be from 4 to the {m} shadow models at hand, not {bad or m}")
    whole = memorization.log_lira(gaps, members, target, variance)
    rng = np.random.default_rng(random_state)

    def drawn(size: int) -> dict[str, float]:
        if size == m:
            return _against(whole, whole, scores, rows, eta)
        picked = _picked(rng, m, size, pairs=pairs)
        values = memorization.log_lira(gaps[picked], members[picked], target, variance)
        return _against(values, whole, scores, rows, eta)

    records = [_summary(size, drawn, 1 if size == m else repeats) for size in chosen]
    return pd.DataFrame(records)


def _picked(rng: np.random.Generator, m: int, size: int, *, pairs: bool) -> NDArray[np.int64]:
    """Shadow models of a subset; in whole pairs where they were trained so."""
    if pairs and size % 2 == 0:
        first = 2 * rng.choice(m // 2, size // 2, replace=False)
        return np.sort(np.concatenate([first, first + 1]))
    return np.sort(rng.choice(m, size, replace=False))


def _against(
    values: Floats, whole: Floats, scores: Floats, rows: NDArray[np.int64], eta: float
) -> dict[str, float]:
    """One subset: AUC, how many are memorised, and how like all shadow models it ranks."""
    both = ~np.isnan(values) & ~np.isnan(whole)
    here, there = values[both] >= eta, whole[both] >= eta
    union = int((here | there).sum())
    scored = values[rows]
    known = ~np.isnan(scored)
    memorized = scored[known] >= eta
    one_kind = memorized.all() or not memorized.any()
    return {
        "auc": np.nan if one_kind else evaluation.roc(scores[known], memorized).auc,
        "memorized": float(here.sum() / max(both.sum(), 1) * (~np.isnan(whole)).sum()),
        "agreement": float((here & there).sum() / union) if union else 1.0,
        "rho": _rho(rankdata(values[both]), rankdata(whole[both])),
    }


def _summary(size: int, drawn: Callable[[int], dict[str, float]], repeats: int) -> dict[str, float]:
    table = pd.DataFrame([drawn(size) for _ in range(repeats)])
    summary: dict[str, float] = {"n_shadows": size}
    for name in table:
        low, high = table[name].quantile(list(_BAND))
        summary |= {str(name): table[name].mean(), f"{name}_low": low, f"{name}_high": high}
    return summary


def _rmia(
    gaps: Gaps,
    members: Mask,
    target: Gaps,
    population: tuple[Gaps, Mask, Gaps] | None,
) -> Floats:
    if population is None:
        return memorization.rmia(gaps, members, target, gamma=_GAMMA)
    others = np.arange(len(target) + len(population[2])) >= len(target)
    found = memorization.rmia(
        np.hstack([gaps, population[0]]),
        np.hstack([members, population[1]]),
        np.concatenate([target, population[2]]),
        others,
        _GAMMA,
    )
    return found[: len(target)]


def _spearman(values: pd.DataFrame, n_bootstrap: int, random_state: int) -> pd.DataFrame:
    table = values.to_numpy()
    rng = np.random.default_rng(random_state)
    ranks = rankdata(table, axis=0)
    resampled = np.array(
        [
            _correlations(rankdata(table[rng.integers(len(table), size=len(table))], axis=0))
            for _ in range(n_bootstrap)
        ]
    )
    low, high = np.quantile(resampled, [0.025, 0.975], axis=0)
    whole = _correlations(ranks)
    pairs = combinations(range(table.shape[1]), 2)
    return pd.DataFrame(
        [
            {
                "a": values.columns[i],
                "b": values.columns[j],
                "rho": whole[i, j],
                "low": low[i, j],
                "high": high[i, j],
                "n": len(table),
            }
            for i, j in pairs
        ]
    )


def _correlations(ranks: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # a definition may be constant: it has no rank
        return np.asarray(np.corrcoef(ranks, rowvar=False))


def _rho(a: Floats, b: Floats) -> float:
    return float(_correlations(np.column_stack([a, b]))[0, 1])
