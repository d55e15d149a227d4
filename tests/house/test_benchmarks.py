"""Benchmarks: the study of early scores, by its splits and kept numbers, and the table of a GPU."""

from argparse import Namespace

import numpy as np
import pytest

from benchmarks import confirm, on_gpu, when
from memowidgets.evaluation import below_class
from memowidgets.memorization import probability_memorized


@pytest.mark.parametrize(
    "setting", ["cancer", "diabetes", "tail-50", "digits-canaries"]
)
def test_no_sample_is_twice_in_a_setting(setting: str) -> None:
    """A copy on the other side of a split would be a leak between models and truth."""
    _, data, _ = confirm.SETTINGS[setting](Namespace())
    pool, held_out = confirm.split(data)
    contents = [*pool.content_hashes(), *held_out.content_hashes()]
    assert len(set(contents)) == len(contents) > 0.95 * len(data)
    assert not set(pool.ids) & set(held_out.ids)


def test_rules_agree_with_a_loop() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=60), rng.integers(0, 6, 60)
    expected, distances, medians = np.zeros(60, bool), np.zeros(60), {}
    for c in range(6):
        medians[c] = np.median(scores[labels == c])
        distances[labels == c] = np.abs(scores[labels == c] - medians[c])
    every = 1.4826 * np.median(distances)
    for i, (score, label) in enumerate(zip(scores, labels, strict=True)):
        own, n = 1.4826 * np.median(distances[labels == label]), (labels == label).sum()
        expected[i] = score < medians[label] - np.sqrt(
            (n * own**2 + 10 * every**2) / (n + 10)
        )
    np.testing.assert_array_equal(
        confirm.flagged("class-shrunk", scores, labels), expected
    )
    np.testing.assert_array_equal(
        confirm.flagged("class", scores, labels), below_class(scores, labels)
    )
    assert confirm.flagged("share-10", scores, labels).sum() == 6


def test_what_is_found_in_the_lowest_share_agrees_with_a_loop() -> None:
    result, found = confirm.Result.read(confirm.KEPT / "fields-smollm2.npz"), 0
    for target in (0, 1, 2):
        own = np.flatnonzero(result.rows & (result.kept["target"] == target))
        lowest = sorted(own, key=result.scores["psmi"].__getitem__)[
            : round(0.1 * len(own))
        ]
        found += (result.kept["log_lira"][lowest] >= 4).sum()
    assert result.found_in(0.1, "psmi") == pytest.approx(found / result.memorized.sum())


# `python -m benchmarks when`


@pytest.fixture(scope="module")
def outcome() -> when.Result:
    return when.Result.read("outcome")


def test_a_share_of_the_labels_is_another_one_and_nothing_else() -> None:
    _, data, _ = when.SETTINGS["shells-20"](Namespace())
    changed = when.flipped(data, 0.2)
    assert (changed.labels != data.labels).mean() == pytest.approx(0.2)
    questions = when.SETTINGS["patients-flipped"](Namespace())[1].take(range(50))
    assert (when.flipped(questions, 0.2).labels != questions.labels).sum() == 10


def test_areas_for_the_true_labels_agree_with_a_loop(outcome: when.Result) -> None:
    scores, p = outcome.scores("rule", "loss"), np.empty(len(outcome.memorized))
    for target in np.unique(outcome.kept["target"]):
        own = outcome.kept["target"] == target
        truth = outcome.kept["log_lira"][own], outcome.kept["error"][own]
        p[own] = probability_memorized(*truth, 4.0, scores[own])
    right, pairs = 0.0, 0.0
    for i in range(len(p)):
        below = (scores[i] < scores) + 0.5 * (scores[i] == scores)
        right += p[i] * ((1 - p) * below).sum()
        pairs += p[i] * (1 - p).sum()
    areas = outcome.areas("rule", "loss")
    assert right / pairs == pytest.approx(areas[0])
    assert areas[1] != pytest.approx(areas[0], abs=1e-6)  # without the first target


def test_a_gain_of_nothing_is_0(outcome: when.Result) -> None:
    assert outcome.gain("psmi", "rho") == pytest.approx((0.0, 0.0, 0.0))


# `python -m benchmarks gpu`: all of it on a CPU, and without a device or memory


@pytest.mark.slow
def test_every_part_runs_on_a_cpu_but_what_has_no_memory(monkeypatch):
    asked = Namespace(device="cpu", tiny=True, cifar10=None)
    rows = on_gpu.rows(asked)
    assert not [row for row in rows if row.ours == "left out"]
    for part in (
        "log-LiRA",
        "bfloat16",
        "WideResNet",
        "2 at once",
        "PSMI of 500",
        "top:1",
        "MMLU",
    ):
        assert any(part in row.work for row in rows)

    def fail(*_):
        raise RuntimeError("CUDA out of memory")

    for part in ("_results", "_psmi", "_llama"):
        monkeypatch.setattr(on_gpu, part, lambda *_: rows[:1])
    monkeypatch.setattr(on_gpu, "_images", fail)
    _, lost, *others = on_gpu.rows(asked)
    assert (lost.ours, lost.other) == ("left out", "CUDA out of memory")
    assert others == 3 * rows[:1]  # the parts after it are measured


def test_what_it_needs_is_named():
    with pytest.raises(SystemExit, match="cuda:7"):
        on_gpu.rows(Namespace(device="cuda:7", tiny=True, cifar10=None))
    (row,) = on_gpu.rows(Namespace(device="cpu", tiny=False, cifar10=None))
    assert "--tiny" in row.other
