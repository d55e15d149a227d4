"""Compare definitions of memorisation, and the number of shadow models that they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets import evaluation, memorization
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.truth import VARIANCE, member_gaps
from memowidgets.checks import real_number, whole_number
from memowidgets.evaluation.scored import Scored

if TYPE_CHECKING:
    import altair as alt

Floats = NDArray[np.float64]
_SIZES = (4, 8, 16, 32, 64, 128, 256)
# quantiles of the draws, and the ends of their names
_BAND = {
    0.05: "_low",
    0.95: "_high",
}
_FEWEST = 4  # shadow models of a subset
_SPLITS = 4  # into halves; one alone adds noise of its own
_Z = 1.96  # of a 95 % interval
_ALMOST = 1 - 1e-12  # arctanh(1) is infinite
_GAMMA = 1.0  # any γ ranks alike; above 1 more samples tie at 0


@dataclass(frozen=True)
class MemorizationComparison:
    """Several definitions of memorisation of the same samples.

    Attributes
    ----------
    values : DataFrame
        Indexed by id, with the columns ``log_lira`` and ``rmia`` (of this target) and
        ``attack_success_rate`` and ``counterfactual`` (of the shadow models). A high value means
        memorised.
    spearman : DataFrame
        For each pair ``a``, ``b``: Spearman's ``rho``, its 95 % interval ``low``, ``high`` over the
        choice of samples (Bonett and Wright 2000), and ``n``. ``reliability_a`` and
        ``reliability_b`` say how far each definition, from all shadow models, would agree with
        itself from as many others: its correlation between two disjoint halves, stepped up by the
        formula of Spearman and Brown. They are NaN with fewer than 8 shadow models.
    note : str
        Which shadow models the two definitions of a pair are computed from, and what they share.
    """

    values: pd.DataFrame = field(repr=False)
    spearman: pd.DataFrame
    note: str = ""

    def figure(
        self, x: str = "counterfactual", y: str = "attack_success_rate"
    ) -> alt.LayerChart:
        """Return a scatter plot of two definitions (paper, Appendix C)."""
        from memowidgets.charts import memorization_scatter

        return memorization_scatter(self.values, x, y)

    def _repr_html_(self) -> str:
        table = self.spearman.to_html(
            float_format="{:.3f}".format, index=False, na_rep="–"
        )
        return f"{table}<p>{self.note}</p>"


def compare_memorization(
    evidence: Evidence, checkpoint: str | float
) -> MemorizationComparison:
    """Compare the definitions of memorisation, as `Audit.compare_memorization` describes."""
    record = evidence.names.record(checkpoint)
    _, members, gaps, _ = member_gaps(evidence, record.name)
    target, others = evidence.target_gaps(record), None
    m, n, pairs = len(gaps), len(target), evidence.shadows.are_pairs
    of_others = evidence.gaps_of_others(record)
    # RMIA compares with them, else with the members themselves
    if of_others is not None:
        shadows, columns = evidence.shadows.read(record.name), evidence.other_columns
        gaps = np.hstack([gaps, shadows.gaps[:, columns]])
        members = np.hstack([members, shadows.members[:, columns]])
        target = np.concatenate([target, of_others])
        others = np.arange(len(target)) >= n

    def by(chosen: NDArray[np.int64] | slice) -> pd.DataFrame:
        every = gaps[chosen], members[chosen]
        own = every[0][:, :n], every[1][:, :n]
        table = {
            "log_lira": memorization.log_lira(*own, target[:n], VARIANCE),
            "attack_success_rate": memorization.attack_success_rate(*own, VARIANCE),
            "counterfactual": memorization.counterfactual(*own),
            "rmia": memorization.rmia(*every, target, others, _GAMMA)[:n],
        }
        return pd.DataFrame(table, pd.Index(evidence.members, name="id"))

    values, size, rng = (
        by(slice(None)).dropna(),
        _half(m, pairs=pairs),
        np.random.default_rng(0),
    )
    if len(values) < 2:
        raise ValueError(
            f"{m} shadow models are too few: fewer than two samples have a value in every "
            "definition. Train more shadow models"
        )
    n_splits = _SPLITS if m >= 2 * _FEWEST else 0
    halves = [
        by(half)
        for _ in range(n_splits)
        for half in disjoint(rng, m, size, pairs=pairs)
    ]
    known = pd.concat(halves, axis=1).dropna().index if halves else values.index[:0]
    if len(known) > 1:
        table = _spearman([half.loc[known] for half in halves])
        note = f"The two definitions of a pair are from disjoint sets of {size} shadow models, "
        note += f"with the mean over {_SPLITS} ways to split them. Noise makes ρ too low: it can't "
        note += "exceed the geometric mean of both reliabilities."
    else:
        table = _spearman([values, values]).assign(
            reliability_a=np.nan, reliability_b=np.nan
        )
        note = f"Both definitions of a pair are from the same {m} shadow models and share their "
        note += "noise, so ρ is too high, and their reliability is unknown."
    note += " log-LiRA and RMIA share the target's gap."
    return MemorizationComparison(values, table, note)


def _spearman(halves: list[pd.DataFrame]) -> pd.DataFrame:
    """Correlate each definition from one half of the shadow models with another from the other.

    ρ is the mean over the splits, two halves after each other, and over both assignments of the
    halves. The same matrix has each definition's correlation between the halves on its diagonal.
    """
    n, names = len(halves[0]), halves[0].columns
    k, splits = len(names), zip(halves[::2], halves[1::2], strict=True)
    together = (
        pd.DataFrame(np.hstack(split)).corr(method="spearman") for split in splits
    )
    rho = np.mean([found.to_numpy()[:k, k:] for found in together], axis=0)
    rho = (rho + rho.T) / 2
    z = np.arctanh(np.clip(rho, -_ALMOST, _ALMOST))
    error = _Z * np.sqrt((1 + rho**2 / 2) / max(n - 3, 1))
    known = np.maximum(np.diagonal(rho), 0.0)
    # of twice as many shadow models (Spearman and Brown)
    reliable = 2 * known / (1 + known)
    i, j = np.array([*combinations(range(k), 2)]).T
    return pd.DataFrame(
        {
            "a": names[i],
            "b": names[j],
            "rho": rho[i, j],
            "low": np.tanh(z - error)[i, j],
            "high": np.tanh(z + error)[i, j],
            "n": n,
            "reliability_a": reliable[i],
            "reliability_b": reliable[j],
        }
    )


def shadow_curve(
    evidence: Evidence, found: Scored, eta: float, repeats: int
) -> pd.DataFrame:
    """Compare disjoint subsets of the shadow models, as `Audit.shadow_curve` describes."""
    whole_number("repeats", repeats, 1)
    record, eta = evidence.names.record("final"), real_number("eta", eta)
    _, members, gaps, _ = member_gaps(evidence, record.name)
    target, pairs, m = (
        evidence.target_gaps(record),
        evidence.shadows.are_pairs,
        len(gaps),
    )
    most = _half(m, pairs=pairs)
    if most < _FEWEST:
        raise ValueError(
            f"there are {m} shadow models; train {2 * _FEWEST}, to compare halves"
        )

    def log_lira(shadows: NDArray[np.int64] | slice) -> Floats:
        found: Floats = memorization.log_lira(
            gaps[shadows], members[shadows], target, VARIANCE
        )
        return found

    known, rng = int((~np.isnan(log_lira(slice(None)))).sum()), np.random.default_rng(0)
    rows = []
    for size in sorted({*(size for size in _SIZES if size <= most), most}):
        draws: list[dict[str, float]] = []
        for _ in range(repeats):
            one, other = map(log_lira, disjoint(rng, m, size, pairs=pairs))
            draws += _subsets(one, other, found, eta, known)
        table = pd.DataFrame(draws)
        low, high = (table.quantile(q).add_suffix(end) for q, end in _BAND.items())
        rows.append({"n_shadows": size, **table.mean(), **low, **high})
    columns = [f"{name}{end}" for name in draws[0] for end in ("", *_BAND.values())]
    return pd.DataFrame(rows, columns=["n_shadows", *columns])


def _half(m: int, *, pairs: bool) -> int:
    """Return the size of two disjoint subsets of m shadow models, which split no pair."""
    return 2 * (m // 4) if pairs else m // 2


def disjoint(
    rng: np.random.Generator, m: int, size: int, *, pairs: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two disjoint subsets of m shadow models, in whole pairs if `pairs`."""
    if pairs:
        first = 2 * rng.permutation(m // 2)[:size]
        order = np.column_stack([first, first + 1]).ravel()
    else:
        order = rng.permutation(m)[: 2 * size]
    return np.sort(order[:size]), np.sort(order[size:])


def _subsets(
    one: Floats, other: Floats, found: Scored, eta: float, known: int
) -> list[dict[str, float]]:
    """Return what log-LiRA by each of two subsets says, and how far the two agree."""
    both = ~np.isnan(one) & ~np.isnan(other)
    here, there = one[both] >= eta, other[both] >= eta
    union = int((here | there).sum())
    between = {
        "overlap": float((here & there).sum() / union) if union else np.nan,
        "agreement": float(
            pd.Series(one[both]).corr(pd.Series(other[both]), method="spearman")
        ),
    }
    rows = []
    for values in (one, other):
        has_one = ~np.isnan(values[found.positions])
        memorized = values[found.positions][has_one] >= eta
        one_kind = memorized.all() or not memorized.any()
        auc = (
            np.nan if one_kind else evaluation.roc(found.scores[has_one], memorized).auc
        )
        share = (values >= eta).sum() / max((~np.isnan(values)).sum(), 1)
        rows.append({"auc": auc, "memorized": float(share * known), **between})
    return rows
