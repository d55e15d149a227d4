"""Loss and logit gap against scipy and torch, and on bad input."""

import numpy as np
import pytest
from scipy.special import log_softmax

from memowidgets.metrics import logit_gap, loss


def made(n=500, n_classes=7, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_classes)) * 5, rng.integers(n_classes, size=n)


def test_loss_is_minus_cross_entropy():
    logits, y = made()
    expected = log_softmax(logits, axis=1)[np.arange(len(y)), y]
    np.testing.assert_allclose(loss(logits, y), expected, atol=1e-12)


def test_gap_is_to_the_largest_other():
    logits, y = made()
    for row in range(20):
        others = np.delete(logits[row], y[row])
        assert logit_gap(logits, y)[row] == pytest.approx(
            logits[row, y[row]] - others.max()
        )


def test_tensors_and_chunks(monkeypatch):
    torch = pytest.importorskip("torch")
    logits, y = made()
    for score in (loss, logit_gap):
        expected = score(logits, y)
        monkeypatch.setattr("memowidgets.metrics.arrays.MOST_ROWS", 33)
        assert np.array_equal(score(logits, y), expected)
        np.testing.assert_allclose(
            score(torch.tensor(logits), torch.tensor(y)), expected
        )
        half = torch.tensor(logits).bfloat16()
        np.testing.assert_allclose(score(half, y), score(half.float().numpy(), y))
        assert score(logits.astype(np.float32), y).dtype == np.float64


def test_huge_logits():
    logits = np.array([[1e30, -1e30], [60_000, -60_000]], dtype=np.float32)
    assert np.isfinite(loss(logits, [1, 1])).all()
    assert loss(logits[1:].astype(np.float16), [0]) == 0


def test_options_that_a_sample_does_not_have():
    logits = [[1.0, 2.0, -np.inf], [3.0, 1.0, 2.0]]
    np.testing.assert_allclose(logit_gap(logits, [0, 0]), [-1, 1])
    np.testing.assert_allclose(loss(logits, [0, 0])[0], log_softmax([1.0, 2.0])[0])


def test_bad_input():
    logits, y = made(5, 3)
    lacking = np.where(np.arange(3) == y[2], -np.inf, logits)
    lonely = np.full((1, 3), -np.inf)
    lonely[0, 1] = 2.0
    nan = logits.copy()
    nan[3, 1] = np.nan
    infinite = logits.copy()
    infinite[4, 0] = np.inf
    cases = [
        (lambda: loss(nan, y), "first in row 3, column 1"),
        (lambda: logit_gap(infinite, y), "first in row 4, column 0"),
        (lambda: loss(lacking, y), "logit of the label .* is -inf"),
        (lambda: logit_gap(lonely, [1]), "row 0 has a single option"),
        (lambda: loss(logits, [0, 1, 2, 3, 0]), "label of row 3 is 3"),
        (lambda: loss(logits, [0, -1, 2, 2, 0]), "label of row 1 is -1"),
        (lambda: loss(logits, y[:3]), "each of the 5 samples"),
        (lambda: loss(logits[0], y), "n_classes"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="whole numbers"):
        loss(logits, y.astype(float))
