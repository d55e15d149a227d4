"""Results of the pure rooms on made data, and evaluations of the recordings, held against others.

    python -m benchmarks.same before.npz

writes the results where the file is not there, and compares them with it where it is: the exit
status is 1 if one of them differs by more than 1e-12 of its size. All seeds are fixed. For the
results of another checkout, write them with its package:

    PYTHONPATH=OTHER python -P benchmarks/same.py before.npz
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import memowidgets as mw
from memowidgets import evaluation, memorization, metrics
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.scored import Scored
from memowidgets.memorization.densities import excess_kurtosis
from memowidgets.memorization.posterior import redrawn_truths
from memowidgets.metrics.logits import other_columns

RECORDED = (
    "digits",
    "banking77-smollm2",
    "mmlu-field-smollm2",
    "cifar10-wrn",
    "patients-smollm2",
)
TOLERANCE = 1e-12  # relative
Results = dict[str, NDArray[Any]]
# samples, features, classes: the plane, few and many classes, curves, rotated directions, and a
# basis that all classes share
SHAPES = (
    (300, 1, 2),
    (300, 2, 3),
    (300, 16, 2),
    (600, 33, 8),
    (1540, 64, 77),
    (5000, 24, 4),
    (400, 269, 3),
    (300, 1100, 5),
)


def main(arguments: list[str]) -> int:
    """Write the results to a file, or compare them with those that it has."""
    file = Path(arguments[0])
    results = {name: np.asarray(value) for name, value in every_result()}
    if not file.exists():
        np.savez(file, **results)
        print(f"{len(results)} results are written")
        return 0
    with np.load(file) as before:
        kept = dict(before)
    both = sorted({*results} & {*kept})
    apart = sorted({*results} ^ {*kept})
    apart += [name for name in both if not is_same(results[name], kept[name])]
    equal = sum(
        np.array_equal(results[name], kept[name], equal_nan=True) for name in both
    )
    print(f"{len(both)} results: {equal} are equal bit for bit, {len(apart)} differ")
    for name in apart:
        print(f"  {name}")
    return 1 if apart else 0


def is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether arrays are equal up to `TOLERANCE` of their largest value."""
    if one.shape != other.shape:
        return False
    finite = np.isfinite(other)
    size = float(np.abs(other[finite]).max()) if finite.any() else 0.0
    return np.allclose(one, other, rtol=0, atol=TOLERANCE * size, equal_nan=True)


def every_result() -> Iterator[tuple[str, Any]]:
    """Yield each result with its name."""
    for results in (
        of_psmi,
        of_other_metrics,
        of_shadow_models,
        of_evaluations,
        of_recordings,
    ):
        yield from results()


def classes(n: int, d: int, n_classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return Gaussian classes of unequal lengths, in which one label in twenty is wrong."""
    rng = np.random.default_rng(n + d)
    labels = rng.permutation(np.arange(n) % n_classes)
    centres = 2 * rng.normal(size=(n_classes, d)) / np.sqrt(d)
    rows = rng.normal(size=(n, d)) * np.linspace(0.2, 2, d) + centres[labels]
    wrong = rng.random(n) < 0.05
    given = np.where(wrong, rng.permutation(labels), labels)
    return rows.astype(np.float32), given


def of_psmi() -> Iterator[tuple[str, Any]]:
    """Yield scores and errors of PSMI by both methods."""
    for shape in SHAPES:
        rows, labels = classes(*shape)
        estimators: dict[str, Callable[[], metrics.PSMI]] = {
            "auto": metrics.PSMI,
            "300": lambda: metrics.PSMI(300, random_state=3),
            "plain": lambda: metrics.PSMI(100, method="plain"),
        }
        for name, made in estimators.items():
            psmi = made().fit(rows, labels)
            scores, errors = psmi.score_samples(rows, labels, return_std=True)
            yield f"psmi {name} {shape}", scores
            yield f"psmi {name} {shape} errors", errors
            yield f"psmi {name} {shape} directions", psmi.n_directions_
            yield f"psmi {name} {shape} far", psmi.score_samples(9 * rows, labels)


def of_other_metrics() -> Iterator[tuple[str, Any]]:
    """Yield the scores that need logits or distances."""
    for shape in SHAPES:
        rows, labels = classes(*shape)
        yield (
            f"mahalanobis {shape}",
            metrics.Mahalanobis().fit(rows).score_samples(rows),
        )
    rng = np.random.default_rng(1)
    logits, labels = 3 * rng.normal(size=(500, 7)), np.arange(500) % 7
    yield "loss", metrics.loss(logits, labels)
    yield "logit gap", metrics.logit_gap(logits, labels)
    losses = rng.exponential(size=(5, 500))
    yield "csl", metrics.csl(losses)
    yield "mean rank", metrics.mean_rank(losses)
    turned = np.eye(7)[(labels + 1) % 7] + logits / 30
    yield "other columns", sorted(other_columns(turned, labels).items())


def shadow_models(n: int = 400, models: int = 24) -> tuple[NDArray[Any], ...]:
    """Return gaps and members of shadow models, and a target's gaps."""
    rng = np.random.default_rng(2)
    members = rng.random((models, n)) < 0.5
    members[:, 0] = True
    strength = np.where(np.arange(n) < 40, 6.0, 0.3)
    ease = rng.normal(size=n)
    gaps = ease + strength * members + rng.standard_t(5, size=(models, n))
    gaps[:, 1] = 2.0
    return gaps, members, ease + strength + rng.normal(size=n)


def of_shadow_models() -> Iterator[tuple[str, Any]]:
    """Yield log-LiRA, its relatives, and what is known of its errors."""
    gaps, members, target = shadow_models()
    for variance in ("per-sample", "global", "shrunk"):
        values, errors = memorization.log_lira(
            gaps, members, target, variance, return_std=True
        )
        yield f"log-LiRA {variance}", values
        yield f"log-LiRA {variance} errors", errors
        rate = memorization.attack_success_rate(gaps, members, variance)
        yield f"attack {variance}", rate
    yield "counterfactual", memorization.counterfactual(gaps, members)
    yield "rmia", memorization.rmia(gaps, members, target)
    yield "rmia 1", memorization.rmia(gaps, members, target, members[0], gamma=0.9)
    yield "kurtosis", excess_kurtosis(gaps, members)
    for name, counted in memorization.support(gaps, members)._asdict().items():
        yield f"support {name}", counted
    known = ~np.isnan(errors)
    score = -np.nan_to_num(target)
    yield "probability", memorization.probability_memorized(values, errors)
    by_score = memorization.probability_memorized(values, errors, 4.0, score)
    yield "probability by score", by_score
    for i, drawn in enumerate(redrawn_truths(values[known], errors[known])[:3]):
        yield f"truth drawn {i}", drawn[0]
        yield f"probability drawn {i}", drawn[1]


def of_evaluations() -> Iterator[tuple[str, Any]]:
    """Yield curves, intervals and comparisons."""
    rng = np.random.default_rng(4)
    truth = np.arange(600) % 11 == 0
    good = rng.normal(size=600).round(2) - 1.5 * truth
    poor = good + rng.normal(size=600)
    samples, models = np.arange(600) % 200, np.arange(600) // 200
    probability = np.clip(0.9 * truth + 0.05 * rng.random(600), 0, 1)
    made: dict[str, tuple[Any, Any]] = {
        "rows": (evaluation.roc(good, truth), evaluation.roc(poor, truth)),
        "groups": (
            evaluation.roc(good, truth, samples),
            evaluation.roc(poor, truth, samples),
        ),
        "models": (
            evaluation.roc(good, truth, samples, models),
            evaluation.roc(poor, truth, samples, models),
        ),
    }
    known = Truly(40.0, 20, probability, lambda: 0.01)
    made["truly"] = tuple(one.with_truly(known) for one in made["rows"])
    for name, (one, other) in made.items():
        yield f"curve {name}", one.roc
        yield f"auc {name}", [one.auc, *one.auc_interval]
        point = one.at(one.threshold("youden"))
        rates = (point.tpr_interval, point.fpr_interval, point.precision_interval)
        yield f"rates {name}", rates
        for rule in ("tpr>=0.75", "fpr<=1%", "flagged<=0.05"):
            yield f"{rule} {name}", one.threshold(rule)
        compared = evaluation.compare(one, other)
        yield f"difference {name}", [compared.difference, *compared.interval]
        yield f"p {name}", [compared.p_value, compared.z]
        yield (
            f"differences {name}",
            [(value, *interval) for value, interval in compared.differences.values()],
        )
        yield (
            f"areas {name}",
            [(value, *interval) for value, interval in one.areas.values()],
        )
    labels = np.arange(600) % 5
    scored = Scored.of_all(good)
    yield "below class", evaluation.below_class(good, labels)
    yield "lowest share", evaluation.lowest_share(good, 0.2)
    yield "counts", list(scored.counts(0.1, None).values())


def of_recordings() -> Iterator[tuple[str, Any]]:
    """Yield the evaluation of each score of each recorded audit, where it predicts."""
    for name in RECORDED:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # of samples that are not at hand
            audit = mw.open_recorded(name)
        yield f"{name} log-LiRA", audit.log_lira()
        for metric in audit.metrics:
            found = audit.evaluate(metric)
            of = f"{name} {metric}"
            yield f"{of} scores", found.scores
            yield f"{of} memorised", found.memorized
            yield f"{of} curve", found.roc
            yield f"{of} auc", [found.auc, *found.auc_interval]
            yield f"{of} true auc", [found.true_auc, *(found.true_auc_interval or ())]
            point = found.at(found.threshold("youden"))
            rates = (point.tpr_interval, point.fpr_interval, point.precision_interval)
            yield f"{of} rates", rates


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
