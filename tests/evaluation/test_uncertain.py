"""Labels that are only probable: expected counts, against draws of the labels."""

import numpy as np
import pytest
from scipy.special import expit

from memowidgets.evaluation import compare, roc


def made(n=600, seed=0):
    rng = np.random.default_rng(seed)
    evidence = rng.normal(-3, 3, size=n)
    probability = expit(evidence)
    return rng.normal(size=n) - 0.4 * evidence, probability


def test_certain_labels_change_nothing():
    scores, probability = made()
    truth = probability > 0.5
    hard, soft = roc(scores, truth), roc(scores, None, truth.astype(float))
    assert soft.auc == pytest.approx(hard.auc, abs=1e-12)
    assert soft.auc_interval == pytest.approx(hard.auc_interval, abs=0.02)
    np.testing.assert_allclose(soft.roc.to_numpy(), hard.roc.to_numpy(), atol=1e-12)
    for tau in (-1.0, 0.0, 1.0):
        for name in ("tpr", "fpr", "precision", "tpr_interval", "fpr_interval", "flagged"):
            one, other = (getattr(e.at(tau), name) for e in (soft, hard))
            assert one == pytest.approx(other, abs=1e-9)
    for rule in ("youden", "tpr>=0.75", "fpr<=0.01", "flagged<=0.05"):
        assert soft.threshold(rule) == hard.threshold(rule)
    np.testing.assert_array_equal(soft.memorized, truth)


def test_expected_counts_are_means_over_drawn_labels():
    scores, probability = made()
    scores = scores.round(1)  # ties
    soft = roc(scores, None, probability)
    rng = np.random.default_rng(1)
    drawn = [roc(scores, rng.random(len(scores)) < probability) for _ in range(400)]
    assert soft.auc == pytest.approx(np.mean([e.auc for e in drawn]), abs=0.003)
    assert soft.n_memorized == pytest.approx(np.mean([e.n_memorized for e in drawn]), rel=0.01)
    point = soft.at(-1.0)
    assert point.hits == pytest.approx(np.mean([e.at(-1.0).hits for e in drawn]), rel=0.01)
    assert point.tpr == pytest.approx(np.mean([e.at(-1.0).tpr for e in drawn]), abs=0.005)
    assert point.flagged == drawn[0].at(-1.0).flagged


def test_nobody_makes_a_pair_with_themselves():
    scores, probability = np.array([1.0, 2.0, 2.0]), np.array([0.5, 0.5, 0.25])
    pairs = wins = 0.0
    for i in range(3):
        for j in range(3):
            if i != j:
                weight = probability[i] * (1 - probability[j])
                pairs += weight
                wins += weight * ((scores[i] < scores[j]) + 0.5 * (scores[i] == scores[j]))
    assert roc(scores, None, probability).auc == pytest.approx(wins / pairs)


def test_the_interval_covers_and_grows_with_doubt():
    intervals = []
    for seed in range(60):
        scores, probability = made(300, seed)
        low, high = roc(scores, None, probability).auc_interval
        intervals.append((low, high))
    long = made(200_000, 99)
    true = roc(long[0], None, long[1]).auc
    inside = np.mean([low <= true <= high for low, high in intervals])
    assert inside >= 0.88
    scores, probability = made(300)
    doubtful = roc(scores, None, np.where(probability > 0.5, 0.7, 0.05)).auc_interval
    sure = roc(scores, probability > 0.5).auc_interval
    assert doubtful[1] - doubtful[0] > sure[1] - sure[0]


def test_doubt_is_said():
    scores, probability = made()
    evaluation = roc(scores, None, probability)
    assert any("labels are uncertain" in note for note in evaluation.warnings)
    assert "about" in repr(evaluation)
    assert "about" in evaluation._repr_html_()
    assert len(evaluation.band(50)) > 100


def test_bad_probabilities():
    scores, probability = made(20)
    cases = [
        (lambda: roc(scores, None), "memorized=, probability="),
        (lambda: roc(scores, None, probability + 1), "from 0 to 1, but is"),
        (lambda: roc(scores, None, np.full(20, np.nan)), "from 0 to 1, but is nan in row 0"),
        (lambda: roc(scores, None, probability[:3]), "equal length"),
        (lambda: roc(scores, [True], probability), "must hold 20 labels"),
        (lambda: roc(scores, None, np.zeros(20)), "no sample is memorised"),
        (lambda: roc(scores, None, np.ones(20)), "every sample is memorised"),
        (lambda: roc(scores[:1], None, [0.5]), "two samples"),
        (
            lambda: compare(roc(scores, None, probability), roc(scores, None, probability)),
            "certain truth",
        ),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()


@pytest.mark.parametrize("seed", range(50))
def test_a_probability_of_exactly_1_is_no_error(seed):
    """Rounding once made the share of other samples at a score fall below 0."""
    rng = np.random.default_rng(seed)
    scores, probability = made(200, seed)
    certain = rng.random(200) < 0.1
    evaluation = roc(scores, None, np.where(certain, 1.0, probability))
    low, high = evaluation.auc_interval
    assert 0 <= low < evaluation.auc < high <= 1
    steps = np.diff(evaluation.roc[["fpr", "tpr"]].to_numpy(), axis=0)
    assert (steps >= 0).all()
