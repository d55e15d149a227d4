"""Compare definitions of memorisation, and the number of shadow models that they need."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from memowidgets import evaluation, memorization
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.scores import Metric, score
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.checks import real_number, several, whole_number
from memowidgets.memorization.densities import Variance

if TYPE_CHECKING:
    import altair as alt

Floats = NDArray[np.float64]
Gaps = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
_SIZES = (4, 8, 16, 32, 64, 128, 256)
_BAND = (0.05, 0.95)
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
    population: tuple[Gaps, Mask, Gaps] | None,
    variance: str,
    random_state: int,
    *,
    pairs: bool = False,
) -> MemorizationComparison:
    """Compute every definition, and the rank correlation of each pair.

    Parameters
    ----------
    ids : array of shape (n,), str
        Ids of the samples.
    gaps, members : array of shape (m, n)
        Logit gaps of the shadow models, and which samples each was trained on.
    target : array of shape (n,)
        The target's logit gaps.
    population : (gaps, members, target gaps) or None
        The same for samples that the target was not trained on, for RMIA. If None, the samples
        themselves are used.
    variance : str
        As in `memowidgets.memorization.log_lira`.
    random_state : int
        Seed of the halves.
    pairs : bool
        Whether shadow models were trained in complementary pairs.
    """

    def by(chosen: NDArray[np.int64] | slice) -> pd.DataFrame:
        others = None
        if population is not None:
            others = population[0][chosen], population[1][chosen], population[2]
        own = gaps[chosen], members[chosen]
        table = {
            "log_lira": memorization.log_lira(*own, target, variance),
            "attack_success_rate": memorization.attack_success_rate(*own, variance),
            "counterfactual": memorization.counterfactual(*own),
            "rmia": _rmia(*own, target, others),
        }
        return pd.DataFrame(table, pd.Index(ids, name="id"))

    m = len(gaps)
    values = by(slice(None)).dropna()
    if len(values) < 2:
        raise ValueError(
            f"{m} shadow models are too few: fewer than two samples have a value in every "
            "definition. Train more shadow models"
        )
    halves = None
    if m >= _ENOUGH_TO_SPLIT:
        rng = np.random.default_rng(random_state)
        size = 2 * (m // 4) if pairs else m // 2
        splits = [disjoint(rng, m, size, pairs=pairs) for _ in range(_SPLITS)]
        halves = _common([by(half) for split in splits for half in split])
    table = _spearman(halves or [values, values])
    if halves is None:
        table.loc[:, ["reliability_a", "reliability_b"]] = np.nan
        note = f"Both definitions of a pair are from the same {m} shadow models and share their "
        note += "noise, so ρ is too high, and their reliability is unknown."
    else:
        note = f"The two definitions of a pair are from disjoint sets of {size} shadow models, "
        note += f"with the mean over {_SPLITS} ways to split them. Noise makes ρ too low: it can't "
        note += "exceed the geometric mean of both reliabilities."
    note += " log-LiRA and RMIA share the target's gap."
    return MemorizationComparison(values, table, note)


def compared_definitions_of(
    evidence: Evidence,
    checkpoint: str | float,
    variance: str,
    random_state: int,
) -> MemorizationComparison:
    """Compare the definitions of memorisation, as `Audit.compare_memorization` describes."""
    record = evidence.names.record(checkpoint)
    _, members, gaps, _ = member_gaps(evidence, record.name)
    target, others = evidence.target_gaps(record), None
    columns, of_others = evidence.other_columns, evidence.checkpoints[record.name].others
    if len(columns) > 1 and of_others is not None:  # where the target's gaps are known
        shadows = evidence.shadows.read(record.name)
        others = shadows.gaps[:, columns], shadows.members[:, columns], of_others
    return compared_definitions(
        evidence.members,
        gaps,
        members,
        target,
        others,
        variance,
        random_state,
        pairs=evidence.shadows.are_pairs,
    )


def _common(halves: list[pd.DataFrame]) -> list[pd.DataFrame] | None:
    """Return the samples with all values in all halves, or None if there are fewer than two."""
    known = pd.concat([half.notna().all(axis=1) for half in halves], axis=1).all(axis=1)
    return [half[known] for half in halves] if known.sum() > 1 else None


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
    """Compare disjoint subsets of the shadow models, as `Audit.shadow_curve` describes."""
    whole_number("repeats", repeats, 1)
    if sizes is not None:
        sizes = [whole_number("a size", size) for size in several("sizes", sizes)]
    found = score(evidence, metric, layer, checkpoint)
    record = evidence.names.record("final")
    target, eta = evidence.target_gaps(record), real_number("eta", eta)
    _, members, gaps, _ = member_gaps(evidence, record.name)
    pairs, m = evidence.shadows.are_pairs, len(gaps)

    def curve(one: str) -> pd.DataFrame:
        def log_lira(shadows: NDArray[np.int64] | slice) -> Floats:
            return memorization.log_lira(gaps[shadows], members[shadows], target, one)

        most = 2 * (m // 4) if pairs else m // 2
        chosen = sorted({size for size in sizes or (*_SIZES, most) if size <= most})
        bad = [size for size in sizes or () if size < _FEWEST or size > most]
        if most < _FEWEST:
            raise ValueError(
                f"two disjoint subsets of at least {_FEWEST} shadow models are compared, and "
                f"there are {m} in all; train at least {2 * _FEWEST}"
            )
        if bad or not chosen:
            raise ValueError(
                f"sizes must be from {_FEWEST} to {most}, half of the {m} shadow models, because "
                "two disjoint subsets are compared"
            )
        known = int((~np.isnan(log_lira(slice(None)))).sum())
        rng = np.random.default_rng(random_state)

        def drawn(size: int) -> list[dict[str, float]]:
            halves = disjoint(rng, m, size, pairs=pairs)
            values = [log_lira(half) for half in halves]
            between = _between(values[0], values[1], eta)
            of = found.scores, found.positions
            return [_alone(one, *of, eta, known) | between for one in values]

        return pd.DataFrame([_summary(size, drawn, repeats) for size in chosen])

    if isinstance(variance, str) and variance != "all":
        return curve(variance)
    chosen = get_args(Variance) if isinstance(variance, str) else several("variance", variance)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*per-sample variance is unreliable", UserWarning)
        curves = {one: curve(one) for one in chosen}
    table = pd.concat([part.assign(variance=one) for one, part in curves.items()])
    return table.reset_index(drop=True)


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


def _alone(
    values: Floats, scores: Floats, rows: NDArray[np.int64], eta: float, known: int
) -> dict[str, float]:
    """Return AUC and number of memorised samples of one subset."""
    scored = values[rows]
    there = ~np.isnan(scored)
    memorized = scored[there] >= eta
    one_kind = memorized.all() or not memorized.any()
    judged = ~np.isnan(values)
    return {
        "auc": np.nan if one_kind else evaluation.roc(scores[there], memorized).auc,
        "memorized": float((values[judged] >= eta).sum() / max(judged.sum(), 1) * known),
    }


def _between(one: Floats, other: Floats, eta: float) -> dict[str, float]:
    """Return how far two subsets agree on the memorised samples, and their rank correlation."""
    both = ~np.isnan(one) & ~np.isnan(other)
    here, there = one[both] >= eta, other[both] >= eta
    union = int((here | there).sum())
    return {
        "overlap": float((here & there).sum() / union) if union else np.nan,
        "agreement": float(_rank_correlations(np.column_stack([one[both], other[both]]))[0, 1]),
    }


def _summary(
    size: int, drawn: Callable[[int], list[dict[str, float]]], repeats: int
) -> dict[str, float]:
    table = pd.DataFrame([subset for _ in range(repeats) for subset in drawn(size)])
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


def _spearman(halves: list[pd.DataFrame]) -> pd.DataFrame:
    """Correlate each definition from one half of the shadow models with another from the other.

    ρ is the mean over the splits, two halves after each other, and over both assignments of the
    halves. The same matrix has each definition's correlation between the halves on its diagonal.
    """
    n, width = halves[0].shape
    splits = zip(halves[::2], halves[1::2], strict=True)
    blocks = [_rank_correlations(np.hstack(split))[:width, width:] for split in splits]
    rho = (np.mean(blocks, axis=0) + np.mean(blocks, axis=0).T) / 2
    z, error = (
        np.arctanh(np.clip(rho, -_ALMOST, _ALMOST)),
        np.sqrt((1 + rho**2 / 2) / max(n - 3, 1)),
    )
    low, high = np.tanh(z - _Z * error), np.tanh(z + _Z * error)
    known = np.maximum(np.diagonal(rho), 0.0)
    reliable = 2 * known / (1 + known)  # of twice as many shadow models (Spearman and Brown)
    names = halves[0].columns
    return pd.DataFrame(
        {
            "a": names[i],
            "b": names[j],
            "rho": rho[i, j],
            "low": low[i, j],
            "high": high[i, j],
            "n": n,
            "reliability_a": reliable[i],
            "reliability_b": reliable[j],
        }
        for i, j in combinations(range(width), 2)
    )


def _rank_correlations(values: Floats) -> Floats:
    """Return Spearman's ρ (k, k) of the columns of (n, k); NaN for a constant one."""
    ranks = rankdata(values, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.corrcoef(ranks, rowvar=False))
