"""What intervals cover, by simulation: AUC, labels in doubt, pooled targets, log-LiRA.

    python -m benchmarks intervals

Prints the tables behind docs/measurements.md. Each share is that of nominal 95 % intervals which
hold the true value, with the mean width beside it. All seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from benchmarks.measure import Namespace, Row
from memowidgets.evaluation import Evaluation, compare, roc
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.intervals import bias_of
from memowidgets.memorization import log_lira, probability_memorized
from memowidgets.memorization.posterior import redrawn_truths

Floats = NDArray[np.float64]
Drawn = tuple[Floats, Floats, NDArray[np.bool_]]
POSITIVES, OTHERS, STUDIES = (5, 15, 35, 300), 400, 100
TARGETS, POOLS = (2, 3, 5, 8), 20
SHADOWS, WORLDS = (4, 8, 16, 32), 3
# shadow models behind labels, and behind those of two scores
LABELLED, LABELLED_TWICE = (8, 16, 32, 64), (4, 8, 16, 32, 64)
# samples, and studies of so many
POOL, MANY, AUDITS, LARGE_AUDITS = 1000, 6000, 24, 12
FIRST_STUDY = (
    70_000  # its seed; those below were looked at while the intervals were made
)
_SAME = 0.9  # correlation of the noise of two scores
_FAR = 6.0  # of an obvious positive, and of a hidden one on the other side


def rows(_: Namespace) -> list[Row]:
    """Print the tables; nothing of them is in the table of performance."""
    print("### One AUC and a difference of two\n")
    print(_markdown(["AUCs and positives", *map(str, POSITIVES)], _areas()))
    print("\n### The AUC of one score for the true labels\n")
    print(_markdown(["gaps, true AUC, samples", *map(str, LABELLED)], _labelled()))
    print("\n### The difference of two scores for the true labels\n")
    print(_markdown(["gaps", *map(str, LABELLED_TWICE)], _labelled_twice()))
    print("\n### Pooled targets\n")
    print(_markdown(["number, models differ", *map(str, TARGETS)], _pooled()))
    print("\n### Standard errors of log-LiRA, true log-LiRA above 1\n")
    print(_markdown(["variance", *map(str, SHADOWS)], _errors()))
    return []


# ---------------------------------------------------------------- AUC


# the positives' deviation, the shares of them that are obvious and hidden, the AUCs of two scores
CASES: dict[str, tuple[float, float, float, tuple[float, float]]] = {
    "of one kind, .98 and .96": (1.0, 0.0, 0.0, (0.98, 0.96)),
    "of one kind, .85 and .80": (1.0, 0.0, 0.0, (0.85, 0.80)),
    "half obvious, .75 and .75": (1.0, 0.5, 0.0, (0.75, 0.75)),
    "half obvious, .85 and .75": (1.0, 0.5, 0.0, (0.85, 0.75)),
    "spread twice, .85 and .75": (2.0, 0.0, 0.0, (0.85, 0.75)),
    "spread twice, .95 and .95": (2.0, 0.0, 0.0, (0.95, 0.95)),
    "a fifth hidden, .79 and .76": (1.0, 0.0, 0.2, (0.79, 0.76)),
    "a tenth hidden, .89 and .85": (1.0, 0.0, 0.1, (0.89, 0.85)),
}


def drawn(seed: int, case: str, positives: int, same: float) -> Drawn:
    """Return two scores of the same samples, and which samples are positive."""
    deviation, share, hidden, aucs = CASES[case]
    rng = np.random.default_rng(seed)
    truth = np.arange(positives + OTHERS) < positives
    place = rng.random(positives)  # the same in both scores
    obvious, unseen = place < share, place >= 1 - hidden
    common = rng.normal(size=len(truth))
    scores = []
    for auc in aucs:
        noise = np.sqrt(same) * common + np.sqrt(1 - same) * rng.normal(size=len(truth))
        seen = norm.cdf(_FAR / np.sqrt(2))  # AUC of the obvious ones
        found = (auc - share * seen - hidden * (1 - seen)) / (1 - share - hidden)
        shift = np.sqrt(1 + deviation**2) * norm.ppf(found)
        away = np.where(obvious, _FAR, np.where(unseen, -_FAR, shift))
        noise[truth] = deviation * noise[truth] - away
        scores.append(noise)
    return scores[0], scores[1], truth


def _areas() -> list[list[str]]:
    table = []
    for name, (*_, aucs) in CASES.items():
        one, by_correlation = [], {same: [] for same in (0.3, _SAME)}
        for positives in POSITIVES:
            found: dict[float, list[Any]] = {same: [] for same in by_correlation}
            for same, kept in found.items():
                for seed in range(STUDIES):
                    a, b, truth = drawn(1000 * positives + seed, name, positives, same)
                    kept.append((roc(a, truth), roc(b, truth)))
            one.append(_covered([a.auc_interval for a, _ in found[0.3]], aucs[0]))
            for same, pairs in found.items():
                intervals = [compare(a, b).interval for a, b in pairs]
                by_correlation[same].append(_covered(intervals, aucs[0] - aucs[1]))
        table.append([f"{name}: the first", *one])
        for same, shares in by_correlation.items():
            table.append(
                [f"{name}: difference, noise correlates .{round(10 * same)}", *shares]
            )
    return table


def _covered(intervals: Sequence[tuple[float, float]], true: float) -> str:
    low, high = np.transpose(intervals)
    tolerance = 1e-12  # a difference of 0 is on the edge of an interval of width 0
    share = np.mean((low <= true + tolerance) & (true <= high + tolerance))
    return f"{share:.3f} ({np.mean(high - low):.3f})"


# ---------------------------------------------------------------- labels from few shadow models


NOISE: dict[str, Any] = {
    "Gaussian": lambda rng, size: rng.normal(size=size),
    "t5": lambda rng, size: rng.standard_t(5, size=size) / np.sqrt(5 / 3),
    "skewed": lambda rng, size: (rng.gamma(4, 1, size) - 4) / 2,
}


# deviation of the noise of a score, which decides its AUC
SIGHT = {".94": 0.75, ".998": 0.33}


def simulated(
    m: int, seed: int, n: int, noise: str, sight: float = 0.75
) -> tuple[Any, ...]:
    """Return gaps, members, target, log-LiRA by the true moments, and a score of it."""
    rng, drawn = np.random.default_rng(seed), NOISE[noise]
    mean, outside = rng.normal(2, 1.5, n), np.exp(rng.normal(0, 0.35, n))
    inside = outside * np.exp(rng.normal(-0.1, 0.15, n))
    rare = rng.random(n) < 0.03
    shift = outside * np.where(rare, rng.gamma(6, 0.55, n), rng.gamma(1.2, 0.25, n))
    found = trained(rng, m, drawn, mean, outside, inside, shift)
    score = sight * rng.normal(size=n) - 1.5 * np.arctan(found[-1] / 3)
    return *found, score


def trained(
    rng: np.random.Generator,
    m: int,
    drawn: Any,
    mean: Floats,
    outside: Floats,
    inside: Floats,
    shift: Floats,
) -> tuple[Any, ...]:
    """Return gaps and members of m shadow models, target, and log-LiRA by the true moments."""
    n = len(mean)
    members = rng.random((m, n)) < 0.5
    deviates = drawn(rng, size=(m, n))
    gaps = mean + np.where(members, shift + inside * deviates, outside * deviates)
    target = mean + shift + inside * drawn(rng, size=n)
    true = norm.logpdf(target, mean + shift, inside) - norm.logpdf(
        target, mean, outside
    )
    return gaps, members, target, true


def hard_and_easy(m: int, seed: int, n: int, noise: str) -> tuple[Any, ...]:
    """Return the same of samples that differ in hardness, and two scores of them.

    Hard samples vary more and are memorised more often. The first score sees the effect of the
    training, the second the hardness alone.
    """
    rng, drawn = np.random.default_rng(seed), NOISE[noise]
    hardness = rng.normal(size=n)
    outside = np.exp(0.35 * hardness + rng.normal(0, 0.15, n))
    inside = outside * np.exp(rng.normal(-0.1, 0.15, n))
    rare = rng.random(n) < expit(1.3 * hardness - 4.3)
    shift = outside * np.where(rare, rng.gamma(6, 0.55, n), rng.gamma(1.2, 0.25, n))
    mean = 2 - 1.5 * hardness
    found = trained(rng, m, drawn, mean, outside, inside, shift)
    effect = 1.3 * rng.normal(size=n) - 1.5 * np.arctan(found[-1] / 3)
    return *found, effect, 0.4 * rng.normal(size=n) - hardness


def observed(
    gaps: Floats, members: Any, target: Floats, true: Floats, *scores: Floats
) -> tuple[Any, ...]:
    """Return log-LiRA with errors, what is truly memorised, and the scores, where all are known."""
    values, errors = log_lira(gaps, members, target, "shrunk", return_std=True)
    known = ~np.isnan(values + errors)
    of_each = values, errors, true >= 4, *scores
    return tuple(each[known] for each in of_each)


def pool(m: int, seed: int, n: int = 1500, noise: str = "Gaussian") -> tuple[Any, ...]:
    """Return observed log-LiRA with errors, what is truly memorised, and a score."""
    return observed(*simulated(m, seed, n, noise))


def evaluated(values: Floats, errors: Floats, score: Floats, m: int) -> Evaluation:
    """Compare a score with labels from m shadow models, as an audit does."""
    counted = values >= 4
    expected = float(probability_memorized(values, errors)[counted].sum())
    asked = values, errors, 4.0, score

    def bias() -> float:
        return bias_of(score, redrawn_truths(*asked))

    known = Truly(expected, m, probability_memorized(*asked), bias)
    return roc(score, counted).with_truly(known)


def _labelled() -> list[list[str]]:
    table = []
    for n, noise, auc in product((POOL, MANY), NOISE, SIGHT):
        *_, true, score = simulated(1, 99, 400_000, noise, SIGHT[auc])
        area, found = roc(score, true >= 4).auc, {}
        for m, seed in product(LABELLED, range(AUDITS if n == POOL else LARGE_AUDITS)):
            made = simulated(m, FIRST_STUDY + 1000 * m + seed, n, noise, SIGHT[auc])
            values, errors, truth, score = observed(*made)
            one = evaluated(values, errors, score, m)
            found.setdefault(m, []).append((one, int((truth & one.memorized).sum())))
        head = f"{noise}, {auc}, {n}"
        of = {m: [one for one, _ in found[m]] for m in LABELLED}
        for name, interval in (
            ("given these labels", lambda one: one.auc_interval),
            ("for the true labels", lambda one: one.true_auc_interval),
            ("without the bias", lambda one: one.true_area.unbiased_interval),
        ):
            cells = [_covered([interval(one) for one in of[m]], area) for m in LABELLED]
            table.append([f"{head}: {name}", *cells])
        counts = [
            [(one.n_memorized, one.n_truly, truly) for one, truly in found[m]]
            for m in LABELLED
        ]
        cells = ["{:.1f}, {:.1f}, {:.1f}".format(*np.mean(of, axis=0)) for of in counts]
        table.append([f"{head}: memorised, said to be truly, truly", *cells])
    return table


def _labelled_twice() -> list[list[str]]:
    table = []
    for noise in NOISE:
        *_, true, a, b = hard_and_easy(1, 99, 400_000, noise)
        difference = roc(a, true >= 4).auc - roc(b, true >= 4).auc
        given, both, wrong = [], [], []
        for m in LABELLED_TWICE:
            found = []
            for seed in range(AUDITS):
                made = hard_and_easy(m, FIRST_STUDY + 1000 * m + seed, POOL, noise)
                values, errors, _, *scores = observed(*made)
                found.append(
                    compare(*(evaluated(values, errors, each, m) for each in scores))
                )
            intervals = (
                [one.interval for one in found],
                [one.true_interval for one in found],
            )
            given.append(_covered(intervals[0], difference))
            both.append(_covered(intervals[1], difference))
            worse = (np.mean([high < 0 for _, high in of]) for of in intervals)
            wrong.append("{:.2f}, {:.2f}".format(*worse))
        head = f"{noise}, {difference:+.3f}"
        table.append([f"{head}: given these labels", *given])
        table.append([f"{head}: for the true labels", *both])
        table.append([f"{head}: the worse one is better, given and true", *wrong])
    return table


# ---------------------------------------------------------------- pooled targets


def crossed(seed: int, targets: int, n: int, differ: float) -> tuple[Any, ...]:
    """Return two scores, truth, sample and target of each pair; `differ`: how far targets do."""
    rng = np.random.default_rng(seed)
    lasting, base = rng.normal(size=(2, n))
    members = rng.random((targets, n)) < 0.5
    memorized = 0.7 * lasting + np.sqrt(0.51) * rng.normal(size=(targets, n)) > 1.55
    gains = np.array([[1.5], [1.2]]) + differ * rng.normal(size=(2, targets))
    noise = 0.6 * base + 0.8 * rng.normal(size=(targets, n))
    other = 0.7 * noise + np.sqrt(0.51) * rng.normal(size=(targets, n))
    a, b = (
        e - g[:, None] * memorized for e, g in zip((noise, other), gains, strict=True)
    )
    target, sample = np.nonzero(members)
    return a[members], b[members], memorized[members], sample, target


def _pooled() -> list[list[str]]:
    table = []
    for differ in (0.0, 0.4):
        a, b, truth, *_ = crossed(99, 400, 2000, differ)
        true = roc(a, truth).auc, roc(b, truth).auc
        areas, differences = [], []
        for targets in TARGETS:
            found = [
                _compared(1000 * targets + seed, targets, differ)
                for seed in range(POOLS)
            ]
            areas.append(_covered([one for one, _ in found], true[0]))
            differences.append(_covered([two for _, two in found], true[0] - true[1]))
        how = "by .4" if differ else "not"
        table += [[f"AUC, {how}", *areas], [f"difference, {how}", *differences]]
    return table


def _compared(seed: int, targets: int, differ: float) -> tuple[Any, Any]:
    a, b, truth, sample, target = crossed(seed, targets, 300, differ)
    one, other = (roc(score, truth, groups=sample, models=target) for score in (a, b))
    return one.auc_interval, compare(one, other).interval


# ---------------------------------------------------------------- log-LiRA


def world(seed: int, m: int, n: int = 2000) -> tuple[Floats, Any, Floats, Floats]:
    """Return gaps, members, target, and the log-LiRA of the true moments."""
    rng = np.random.default_rng(seed)
    base, outside = rng.normal(1, 2, n), np.sqrt(8 / rng.chisquare(8, n))
    inside = outside * np.exp(0.2 * rng.normal(size=n))
    effect = np.where(rng.random(n) < 0.05, 1 + rng.gamma(4, 1, n), 0.2 * rng.random(n))
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    noise = rng.normal(size=(m, n))
    gaps = base + np.where(members, effect + inside * noise, outside * noise)
    target = base + effect + inside * rng.normal(size=n)
    true = norm.logpdf(target, base + effect, inside) - norm.logpdf(
        target, base, outside
    )
    return gaps, members, target, true


def _errors() -> list[list[str]]:
    table = []
    for variance in ("shrunk", "global"):
        high, every, large = [], [], []
        for m in SHADOWS:
            inside, rows, errors = [], [], []
            for seed in range(WORLDS):
                gaps, members, target, true = world(100 + seed, m)
                found, error = log_lira(
                    gaps, members, target, variance, return_std=True
                )
                inside.append(np.abs(found - true) <= norm.ppf(0.975) * error)
                rows.append(true)
                errors.append(error)
            covered, true, error = (
                np.concatenate(parts) for parts in (inside, rows, errors)
            )
            high.append(
                f"{covered[true > 1].mean():.3f} ({np.median(error[true > 1]):.1f})"
            )
            large.append(f"{covered[true > 10].mean():.3f}")
            every.append(f"{covered.mean():.3f} ({np.median(error):.1f})")
        table += [[f"{variance}, above 1", *high], [f"{variance}, above 10", *large]]
        table.append([f"{variance}, all samples", *every])
    return table


def _markdown(head: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *table]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
