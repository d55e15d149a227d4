"""The study of early scores: its splits, what it computes from kept numbers, and the files."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import confirm
from memowidgets.evaluation import below_class


def made_up(folder: Path, targets: int = 8, n: int = 200, seed: int = 0) -> Path:
    """Write a file as a run leaves it, of a score that sees a third of what is memorised."""
    rng = np.random.default_rng(seed)
    labels, memorised = rng.integers(0, 5, 2 * n), rng.random(2 * n) < 0.1
    sample = np.concatenate([np.sort(rng.permutation(2 * n)[:n]) for _ in range(targets)])
    found = memorised[sample]

    def score(strength: float) -> np.ndarray:
        return (rng.normal(size=len(sample)) - strength * found + 1).astype(np.float32)

    file = folder / "cancer.npz"
    np.savez_compressed(
        file,
        sample=sample.astype(np.uint16),
        target=np.repeat(np.arange(targets), n).astype(np.uint8),
        label=labels[sample].astype(np.uint8),
        log_lira=np.where(found, 6.0, 0.0).astype(np.float32),
        psmi=score(1),
        csl=score(1.5) - 3,
        loss=score(1) - 3,
        references=np.stack([score(2) for _ in range(4)], axis=1),
        drop=np.full(targets, 0.96),
        epoch=np.full(targets, 3.0),
        seconds=np.full((targets, len(confirm.STAGES)), 0.5),
        share_by_chance=np.array(0.001),
        n_classes=np.array(5),
        commit=np.array("0123456789"),
        machine=np.array("2 cores, load 1"),
    )
    return file


@pytest.mark.parametrize("setting", ["cancer", "diabetes", "tail-50", "digits-canaries"])
def test_no_sample_is_twice_in_a_setting(setting: str) -> None:
    """A copy on the other side of a split would be a leak between models and truth."""
    _, data, _ = confirm.SETTINGS[setting](Namespace())
    pool, held_out = confirm.split(data)
    contents = [*pool.content_hashes(), *held_out.content_hashes()]
    assert len(set(contents)) == len(contents) > 0.95 * len(data)
    assert not set(pool.ids) & set(held_out.ids)


def test_a_target_among_its_shadow_models_is_refused() -> None:
    masks = np.array([[True, True, False, False]] * confirm.PLAN["shadow_models"])

    class Read:
        members, gaps = masks, masks.astype(np.float32)

    class First:
        class evidence:  # noqa: N801 - stands for the attribute
            class shadows:  # noqa: N801
                read = staticmethod(lambda _name: Read)

            class names:  # noqa: N801
                record = staticmethod(lambda _name: Namespace(name="final"))

    part = {"sample": np.array([0, 1], np.uint16), "final_gap": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match="target 0"):
        confirm._with_truth(First, [part])


def test_ranks_and_flags_are_those_within_a_target(tmp_path: Path) -> None:
    file = made_up(tmp_path)
    before = confirm.Result.read(file)
    arrays = dict(np.load(file))
    first = arrays["target"] == 0
    for name in ("psmi", "csl"):
        arrays[name] = arrays[name] + np.where(first, 100, 0).astype(np.float32)
    np.savez(file, **arrays)
    after = confirm.Result.read(file)
    for name in ("psmi+csl", "reference-2+csl"):
        np.testing.assert_allclose(after.scores[name], before.scores[name])
    for rule in ("share-10", "class", "class-shrunk"):
        same = after.flags["psmi", rule] == before.flags["psmi", rule]
        assert same.mean() > 0.999  # float32 may move a tie
    assert not after.flags["psmi", "zero"][first].any()
    assert before.flags["psmi", "zero"][first].any()


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
        expected[i] = score < medians[label] - np.sqrt((n * own**2 + 10 * every**2) / (n + 10))
    np.testing.assert_array_equal(confirm.flagged("class-shrunk", scores, labels), expected)
    np.testing.assert_array_equal(
        confirm.flagged("class", scores, labels), below_class(scores, labels)
    )
    assert confirm.flagged("share-10", scores, labels).sum() == 6


def test_youden_and_its_interval(tmp_path: Path) -> None:
    """J is that of the counts, and of two equal rules the difference and its interval are 0."""
    result = confirm.Result.read(made_up(tmp_path))
    value, low, high = result.youden("psmi", "class")
    flags, memorised = result.flags["psmi", "class"][result.rows], result.memorized
    assert value == pytest.approx(flags[memorised].mean() - flags[~memorised].mean())
    assert low < value < high < low + 0.6
    assert result.youden("psmi", "class", "class") == (0, 0, 0)
    gain = result.youden("reference-2", "class")[0] - result.youden("reference-2", "zero")[0]
    assert result.youden("reference-2", "class", "zero")[0] == pytest.approx(gain)
