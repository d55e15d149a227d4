"""Compare definitions of memorisation, and the number of shadow models that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets import evaluation, memorization
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.checks import real_number, several, whole_number
from memowidgets.evaluation.scored import Scored

if TYPE_CHECKING:
    import altair as alt

Floats = NDArray[np.float64]
Gaps = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
_SIZES = (4, 8, 16, 32, 64, 128, 256)
_BAND = {0.05: "_low", 0.95: "_high"}  # quantiles of the draws, and the ends of their names
_FEWEST = 4  # shadow models of a subset
_ENOUGH_TO_SPLIT = 8
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

    def figure(self, x: str = "counterfactual", y: str = "attack_success_rate") -> alt.LayerChart:
        """Return a scatter plot of two definitions (paper, Appendix C)."""
        from memowidgets.charts import memorization_scatter

        return memorization_scatter(self.values, x, y)

    def _repr_html_(self) -> str:
        as_text = "{:.3f}".format
        table = self.spearman.to_html(float_format=as_text, index=False, na_rep="–")
        return f"{table}<p>{self.note}</p>"


def compared_definitions(
    ids: NDArray[np.str_],
    gaps: Gaps,
    members: Mask,
    target: Gaps,
    others: Mask | None,
    variance: str,
    random_state: int,
    *,
    pairs: bool = False,
) -> MemorizationComparison:
    """Compute every definition, and the rank correlation of each pair.

    Parameters
    ----------
    ids : array of shape (n,), str
        Ids of the samples that are compared, which come first.
    gaps, members : array of shape (m, n_all)
        Logit gaps of the shadow models, and which samples each was trained on.
    target : array of shape (n_all,)
        The target's logit gaps.
    others : mask of shape (n_all,), or None
        The samples after the first n, which the target was not trained on: RMIA compares with
        them. If None, there are none, and it compares with the samples themselves.
    variance : str
        As in `memowidgets.memorization.log_lira`.
    random_state : int
        Seed of the halves.
    pairs : bool
        Whether shadow models were trained in complementary pairs.
    """
    m, n = len(gaps), len(ids)

    def by(chosen: NDArray[np.int64] | slice) -> pd.DataFrame:
        every = gaps[chosen], members[chosen]
        own = every[0][:, :n], every[1][:, :n]
        table = {
            "log_lira": memorization.log_lira(*own, target[:n], variance),
            "attack_success_rate": memorization.attack_success_rate(*own, variance),
            "counterfactual": memorization.counterfactual(*own),
            "rmia": memorization.rmia(*every, target, others, _GAMMA)[:n],
        }
        return pd.DataFrame(table, pd.Index(ids, name="id"))

    values = by(slice(None)).dropna()
    if len(values) < 2:
        raise ValueError(
            f"{m} shadow models are too few: fewer than two samples have a value in every "
            "definition. Train more shadow models"
        )
    size, rng = _half(m, pairs=pairs), np.random.default_rng(random_state)
    n_splits = _SPLITS if m >= _ENOUGH_TO_SPLIT else 0
    halves = [by(half) for _ in range(n_splits) for half in disjoint(rng, m, size, pairs=pairs)]
    known = pd.concat(halves, axis=1).dropna().index if halves else values.index[:0]
    if len(known) > 1:
        table = _spearman([half.loc[known] for half in halves])
        note = f"The two definitions of a pair are from disjoint sets of {size} shadow models, "
        note += f"with the mean over {_SPLITS} ways to split them. Noise makes ρ too low: it can't "
        note += "exceed the geometric mean of both reliabilities."
    else:
        table = _spearman([values, values]).assign(reliability_a=np.nan, reliability_b=np.nan)
        note = f"Both definitions of a pair are from the same {m} shadow models and share their "
        note += "noise, so ρ is too high, and their reliability is unknown."
    note += " log-LiRA and RMIA share the target's gap."
    return MemorizationComparison(values, table, note)


def compared_definitions_of(
    evidence: Evidence, checkpoint: str | float, variance: str, random_state: int
) -> MemorizationComparison:
    """Compare the definitions of memorisation, as `Audit.compare_memorization` describes."""
    record = evidence.names.record(checkpoint)
    _, members, gaps, _ = member_gaps(evidence, record.name)
    target, others = evidence.target_gaps(record), None
    columns, of_others = evidence.other_columns, evidence.checkpoints[record.name].others
    if len(columns) > 1 and of_others is not None:  # where the target's gaps are known
        shadows = evidence.shadows.read(record.name)
        gaps = np.hstack([gaps, shadows.gaps[:, columns]])
        members = np.hstack([members, shadows.members[:, columns]])
        others = np.arange(gaps.shape[1]) >= len(target)
        target = np.concatenate([target, of_others])
    given = evidence.members, gaps, members, target, others, variance, random_state
    return compared_definitions(*given, pairs=evidence.shadows.are_pairs)


def _spearman(halves: list[pd.DataFrame]) -> pd.DataFrame:
    """Correlate each definition from one half of the shadow models with another from the other.

    ρ is the mean over the splits, two halves after each other, and over both assignments of the
    halves. The same matrix has each definition's correlation between the halves on its diagonal.
    """
    n, names = len(halves[0]), halves[0].columns
    splits = zip(halves[::2], halves[1::2], strict=True)
    rho = np.mean([_rank_correlations(*split) for split in splits], axis=0)
    rho = (rho + rho.T) / 2
    z = np.arctanh(np.clip(rho, -_ALMOST, _ALMOST))
    error = _Z * np.sqrt((1 + rho**2 / 2) / max(n - 3, 1))
    known = np.maximum(np.diagonal(rho), 0.0)
    reliable = 2 * known / (1 + known)  # of twice as many shadow models (Spearman and Brown)
    i, j = np.array([*combinations(range(len(names)), 2)]).T
    columns = {
        "a": names[i],
        "b": names[j],
        "rho": rho[i, j],
        "low": np.tanh(z - error)[i, j],
        "high": np.tanh(z + error)[i, j],
        "n": n,
        "reliability_a": reliable[i],
        "reliability_b": reliable[j],
    }
    return pd.DataFrame(columns)


def _rank_correlations(one: pd.DataFrame, other: pd.DataFrame) -> Floats:
    """Return Spearman's ρ of each column of a table with each of another; NaN for a constant."""
    found = pd.DataFrame(np.hstack([one, other])).corr(method="spearman").to_numpy()
    return found[: one.shape[1], one.shape[1] :]


def shadow_curve(
    evidence: Evidence,
    found: Scored,
    eta: float,
    variance: str,
    sizes: Sequence[int] | None,
    repeats: int,
    random_state: int,
) -> pd.DataFrame:
    """Compare disjoint subsets of the shadow models, as `Audit.shadow_curve` describes."""
    whole_number("repeats", repeats, 1)
    record, eta = evidence.names.record("final"), real_number("eta", eta)
    _, members, gaps, _ = member_gaps(evidence, record.name)
    target, pairs, m = evidence.target_gaps(record), evidence.shadows.are_pairs, len(gaps)
    most = _half(m, pairs=pairs)
    if most < _FEWEST:
        raise ValueError(
            f"two disjoint subsets of at least {_FEWEST} shadow models are compared, and there "
            f"are {m} in all; train at least {2 * _FEWEST}"
        )
    usual = [size for size in (*_SIZES, most) if size <= most]
    given = usual if sizes is None else several("sizes", sizes) or usual
    what = f"a size, at most half of the {m} shadow models,"
    asked = {whole_number(what, size, _FEWEST, most) for size in given}

    def log_lira(shadows: NDArray[np.int64] | slice) -> Floats:
        return memorization.log_lira(gaps[shadows], members[shadows], target, variance)

    known, rng = int((~np.isnan(log_lira(slice(None)))).sum()), np.random.default_rng(random_state)
    rows = []
    for size in sorted(asked):
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
    if pairs and size % 2 == 0 and 2 * size <= 2 * (m // 2):
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
        "agreement": float(pd.Series(one[both]).corr(pd.Series(other[both]), method="spearman")),
    }
    rows = []
    for values in (one, other):
        has_one = ~np.isnan(values[found.positions])
        memorized = values[found.positions][has_one] >= eta
        one_kind = memorized.all() or not memorized.any()
        auc = np.nan if one_kind else evaluation.roc(found.scores[has_one], memorized).auc
        share = (values >= eta).sum() / max((~np.isnan(values)).sum(), 1)
        rows.append({"auc": auc, "memorized": float(share * known), **between})
    return rows
