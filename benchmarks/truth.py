"""Log-LiRA and reference models against the truth that other shadow models give.

- ``variances``: 320 small shadow models on digits. 256 define the truth, and subsets of the other
  64 are compared with it.
- ``hierarchical``: each of eight shadow models of two recordings is the target in turn. A few of
  the others estimate its log-LiRA, and disjoint ones say what is true: 23 by "shrunk" for the
  error, 16 by "shrunk" for the calibration.
- ``references`` prints the AUC of reference models on the recordings. The shadow models at the
  prediction checkpoint serve as these: for each member, some that never saw it. Where log-LiRA is
  the truth, they are among the first sixteen, and log-LiRA is from the other sixteen.
"""

from __future__ import annotations

import sys
import tempfile
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved
from benchmarks.shadows import digits_audit
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.memorization import hierarchical_probability, log_lira
from memowidgets.memorization.densities import Densities
from memowidgets.memorization.gaps import Side, moments
from memowidgets.memorization.lira import Judged
from memowidgets.memorization.posterior import Joint, correlation

REFERENCE, OTHERS, SUBSETS = 256, 64, 12
COUNTS = (4, 8, 16, 24, 32, 64)
VARIANCES = ("per-sample", "global", "shrunk")


def variances(_: Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory() as path:
        audit = digits_audit(path, epochs=12)
        audit.train()
        audit.run_shadows(REFERENCE + OTHERS, checkpoints="final")
        _, members, gaps, target = member_gaps(audit.evidence)
    truth = log_lira(gaps[:REFERENCE], members[:REFERENCE], target)
    errors = {
        (variance, size): _rank_error(gaps, members, target, truth, variance, size)
        for variance in VARIANCES
        for size in COUNTS
    }
    found = [
        Row(
            f"rank error (1 − Spearman's ρ) of log-LiRA from {size} shadow models on digits, "
            f"against {REFERENCE} others: shrunk; beside it per-sample, global",
            f"{errors['shrunk', size]:.3f}",
            f"{errors['per-sample', size]:.3f}, {errors['global', size]:.3f}",
            f"{errors['shrunk', size] / errors['per-sample', size]:.2f}×",
        )
        for size in COUNTS
    ]
    eight, many = errors["shrunk", 8], errors["per-sample", 24]
    work = "rank error on digits: shrunk from 8 shadow models, against per-sample from 24"
    return [*found, Row(work, f"{eight:.3f}", f"{many:.3f}", f"{eight / many:.2f}×", "≤ 1×")]


def _rank_error(
    gaps: np.ndarray,
    members: np.ndarray,
    target: np.ndarray,
    truth: np.ndarray,
    variance: str,
    size: int,
) -> float:
    """Return the mean over subsets; a sample without a value ranks as not memorised."""
    rng, known = np.random.default_rng(0), ~np.isnan(truth)
    found = []
    for _ in range(1 if size == OTHERS else SUBSETS):
        rows = REFERENCE + rng.choice(OTHERS, size, replace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about few models
            values = log_lira(gaps[rows], members[rows], target, variance)
        found.append(1 - spearmanr(np.nan_to_num(values)[known], truth[known]).statistic)
    return float(np.mean(found))


RECORDINGS = {"MMLU": "mmlu-field-smollm2", "CIFAR": "cifar10-wrn"}
TARGETS, TRUTH, CALIBRATED_BY, ETA, LIMIT = 8, 23, 16, 4.0, 20.0
SIZES, CALIBRATED = (4, 8), (4, 8, 15)
BINS, FEWEST, DRAWS = 10, 50, 60
MODELS, SAMPLES = 64, 100_000


def hierarchical(_: Namespace) -> list[Row]:
    found = []
    for title, name in RECORDINGS.items():
        gaps = _gaps_of(name)
        found += [_errors(title, *gaps, size) for size in SIZES]
        found += [_calibration(title, *gaps, size) for size in CALIBRATED]
    return [*found, _time()]


def _gaps_of(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return final gaps, early gaps and masks of all shadow models over the pool."""
    source = mw.open_recorded(name).evidence
    final, early = (
        source.shadows.read(source.names.record(checkpoint).name)
        for checkpoint in ("final", "prediction")
    )
    return final.gaps, early.gaps, final.members


def _split(n: int, target: int, size: int, truth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `size` shadow models and `truth` others, without the target."""
    order = np.random.default_rng([target, 7]).permutation(np.delete(np.arange(n), target))
    return order[:size], order[len(order) - truth :]


def _errors(title: str, gaps: np.ndarray, early: np.ndarray, members: np.ndarray, size: int) -> Row:
    names = ("shrunk", "hierarchical")
    measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for target in range(TARGETS):
        few, others = _split(len(gaps), target, size, TRUTH)
        own = gaps[target]
        true = log_lira(gaps[others], members[others], own, "shrunk")
        values = {
            "shrunk": log_lira(gaps[few], members[few], own, "shrunk"),
            "hierarchical": log_lira(
                gaps[few], members[few], own, "hierarchical", early_gaps=early[few]
            ),
        }
        known = members[target] & ~np.isnan(true) & ~np.isnan(values["shrunk"])
        for name in names:
            measured[name].append(_compared(values[name][known], true[known]))
    means = {name: np.mean(measured[name], axis=0) for name in names}
    shrunk, ours = (float(np.sqrt(means[name][0])) for name in names)
    said = {
        name: f"{root:.2f} (ρ {m[1]:.2f}, false discoveries {m[2]:.2f}, found {m[3]:.2f})"
        for name, root, m in zip(names, (shrunk, ours), means.values(), strict=True)
    }
    return Row(
        f"{title}: RMS error of log-LiRA from {size} shadow models against {TRUTH} others, "
        f"{TARGETS} targets (at η = 4): hierarchical, shrunk",
        said["hierarchical"],
        said["shrunk"],
        f"{ours / shrunk:.3f}×",
        "≤ .85×" if size == 8 else "",
    )


def _compared(values: np.ndarray, true: np.ndarray) -> tuple[float, ...]:
    """Return mean squared error, ρ, share of false discoveries and share found at η."""
    values, true = values.clip(-LIMIT, LIMIT), true.clip(-LIMIT, LIMIT)
    found, there = values >= ETA, true >= ETA
    return (
        float(np.mean((values - true) ** 2)),
        float(spearmanr(values, true).statistic),
        float(1 - there[found].mean()),
        float(found[there].mean()),
    )


def _calibration(
    title: str, gaps: np.ndarray, early: np.ndarray, members: np.ndarray, size: int
) -> Row:
    """Compare what is said with what 16 disjoint shadow models find, which err too.

    So the model is also asked what share of each bin 16 shadow models would find: their gaps are
    drawn from its posterior.
    """
    table = []
    for target in range(len(gaps)):
        few, others = _split(len(gaps), target, size, CALIBRATED_BY)
        given = gaps[few], members[few], gaps[target]
        said = hierarchical_probability(*given, ETA, early_gaps=early[few])
        true = log_lira(gaps[others], members[others], gaps[target], "shrunk")
        would = _would_find(*given, early[few], gaps[others], members[others])
        known = members[target] & ~np.isnan(said) & ~np.isnan(true)
        table.append(np.stack([said, would, true >= ETA])[:, known])
    said, would, found = np.hstack(table)
    direct, through = _by_bins(said, found), _by_bins(would, found)
    print(f"{title}, {size} shadow models: said / found by 16 others (members)", file=sys.stderr)
    for name, bins in (("probability", direct), ("that 16 find it", through)):
        shown = (f"{s:.2f} / {f:.2f} ({n})" for s, f, n in bins)
        print(f"  {name}: " + ", ".join(shown), file=sys.stderr)
    return Row(
        f"{title}: largest distance in a bin of ten (≥ {FEWEST} pairs) between the probability "
        f"that {CALIBRATED_BY} other shadow models find log-LiRA ≥ 4, said from {size}, and the "
        "share that they find; beside it the same of the probability of being memorised",
        f"{_farthest(through):.2f}",
        f"{_farthest(direct):.2f}",
        f"{would.sum():.0f} expected, {found.sum():.0f} found",
        "≤ .1",
    )


def _by_bins(said: np.ndarray, found: np.ndarray) -> list[tuple[float, float, int]]:
    which = np.minimum((said * BINS).astype(int), BINS - 1)
    bins = [which == i for i in range(BINS)]
    return [(said[b].mean(), found[b].mean(), int(b.sum())) for b in bins if b.any()]


def _farthest(bins: list[tuple[float, float, int]]) -> float:
    return max(abs(said - found) for said, found, n in bins if n >= FEWEST)


def _would_find(
    gaps: np.ndarray,
    members: np.ndarray,
    target: np.ndarray,
    early: np.ndarray,
    other_gaps: np.ndarray,
    other_members: np.ndarray,
) -> np.ndarray:
    """Return the probability that other shadow models find log-LiRA of at least η by "shrunk"."""
    given = Judged.checked(gaps, members, target, "hierarchical", "online", early, None)
    own = target.astype(np.float64)
    together = correlation(given.pool.fits, given.pool.models)
    joint = Joint(*given.fits.posteriors(), together, given.fits.least)
    trained = joint.inside.seeing(own)
    seen = moments(other_gaps, other_members)
    others = Densities.fit(seen.inside, seen.outside, "shrunk")
    rng, share = np.random.default_rng(0), np.zeros(len(own))
    for _ in range(DRAWS):
        within = trained.squares / rng.chisquare(trained.freedom)
        without = joint.outside.squares / rng.chisquare(joint.outside.freedom)
        mean = trained.mean + np.sqrt(within / trained.strength) * rng.normal(size=len(own))
        centre, spread = joint.outside_given(mean, within, without)
        outside = centre + spread * rng.normal(size=len(own))
        sides = []
        for mean_of, variance, side in (
            (mean, within, seen.inside), (outside, without, seen.outside),
        ):  # fmt: skip
            count = np.maximum(side.count, 1)
            drawn = mean_of + np.sqrt(variance / count) * rng.normal(size=len(own))
            squares = variance * rng.chisquare(np.maximum(count - 1, 1e-9))
            sides.append(Side(side.count, drawn, squares))
        replaced = Densities(
            *sides, others.spread_in, others.spread_out, others.least, others.fewest
        )
        share += replaced.ratio(own) >= ETA
    return share / DRAWS


def _time() -> Row:
    rng = np.random.default_rng(0)
    level = rng.standard_normal(SAMPLES, dtype=np.float32)
    gaps = level + rng.standard_normal((MODELS, SAMPLES), dtype=np.float32)
    early = 0.5 * level + rng.standard_normal((MODELS, SAMPLES), dtype=np.float32)
    members = rng.random((MODELS, SAMPLES), dtype=np.float32) < 0.5
    target = level + rng.standard_normal(SAMPLES, dtype=np.float32)
    ours, shrunk = interleaved(
        lambda: log_lira(gaps, members, target, "hierarchical", early_gaps=early),
        lambda: log_lira(gaps, members, target, "shrunk"),
        repeats=3,
    )
    return Row(
        f"log-LiRA of {MODELS} shadow models × {SAMPLES // 1000} 000 samples: hierarchical, shrunk",
        f"{ours:.2f} s",
        f"{shrunk:.2f} s",
        f"{ours / shrunk:.1f}×",
        "≤ 5×",
    )


HALF, DRAWN, NUMBERS = 16, 20, (1, 2, 4)
FREE = ("psmi", "loss", "csl", "psmi+csl")


def references(_: Namespace) -> list[Row]:
    """Print the mean AUC over draws of reference models, beside those of the free scores."""
    print(f"| recording, truth | {', '.join(FREE)} | 1, 2, 4 reference models |\n|---|---|---|")
    for name in ("mmlu-field-smollm2", "banking77-smollm2", "cifar10-wrn"):
        audit = mw.open_recorded(name)
        _line(audit, f"{name}, log-LiRA ≥ 4 by {HALF} other shadow models", _log_lira(audit), HALF)
        if audit.data.canaries is not None:
            canaries = audit.data.canaries[audit.evidence.member_rows]
            _line(audit, f"{name}, canaries", np.where(canaries, np.inf, -np.inf), None)
    return []


def _line(audit: mw.Audit, what: str, truth: NDArray[np.float64], of: int | None) -> None:
    _, members, gaps, _ = member_gaps(audit.evidence, "prediction")
    members, gaps = members[:of], gaps[:of]
    kept = ((~members).sum(axis=0) >= max(NUMBERS)) & ~np.isnan(truth)  # others lack models
    memorized = truth[kept] >= 4
    free = [mw.evaluation.roc(audit.score(one).to_numpy()[kept], memorized).auc for one in FREE]
    found = [_auc(gaps[:, kept], members[:, kept], memorized, n) for n in NUMBERS]
    areas = ", ".join(f"{area:.3f}" for area in found)
    n = f"{memorized.sum()} of {len(memorized)}"
    print(f"| {what} ({n}) | {', '.join(f'{area:.3f}' for area in free)} | {areas} |")


def _log_lira(audit: mw.Audit) -> NDArray[np.float64]:
    _, members, gaps, target = member_gaps(audit.evidence, "final")
    return log_lira(gaps[HALF:], members[HALF:], target, "shrunk")


def _auc(
    gaps: NDArray[np.float32], members: NDArray[np.bool_], truth: NDArray[np.bool_], n: int
) -> float:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWN):
        order = np.where(members, np.inf, rng.random(members.shape)).argsort(axis=0)[:n]
        scores = np.take_along_axis(gaps, order, axis=0).mean(axis=0)
        found.append(mw.evaluation.roc(scores, truth).auc)
    return float(np.mean(found))
