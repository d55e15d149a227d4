"""Scores over several checkpoints: against a transcription, and what they refuse."""

import numpy as np
import pytest

from memowidgets.metrics import csl, mean_over_checkpoints, mean_rank

LOSSES = np.random.default_rng(0).gamma(1.0, size=(5, 40))


def test_csl_is_minus_the_mean_loss():
    transcribed = [-sum(row[i] for row in LOSSES) / len(LOSSES) for i in range(40)]
    np.testing.assert_allclose(csl(LOSSES), transcribed, rtol=1e-12)
    np.testing.assert_allclose(mean_over_checkpoints(LOSSES), -csl(LOSSES))


def test_low_float_precision_does_not_round_the_mean():
    losses = np.full((3, 2), 1e4, dtype=np.float16)
    assert csl(losses).dtype == np.float64
    assert csl(losses).tolist() == [-10_000.0, -10_000.0]


def test_mean_rank_by_hand():
    a, b = [3.0, 1.0, 2.0, 2.0], [-5.0, 8.0, 0.0, 9.0]
    ranks = np.array([[4, 1, 2.5, 2.5], [1, 3, 2, 4]])
    np.testing.assert_allclose(mean_rank([a, b]), ranks.mean(axis=0) / 4)
    opposite = np.arange(49.0) * [[1], [-1]]
    assert set(mean_rank(opposite)) == {25 / 49}  # equal sums stay equal


@pytest.mark.parametrize("of", [csl, mean_over_checkpoints])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (LOSSES[0], "shape .40,."),
        (LOSSES[:1], r"two checkpoints or more, but has shape .1, 40."),
        (LOSSES[:, :0], r"shape .\d+, 0."),
        (np.where(LOSSES[2, 7] == LOSSES, np.nan, LOSSES), "NaN or .* row 2, column 7"),
        (
            np.where(LOSSES[2, 7] == LOSSES, np.inf, LOSSES),
            "infinite, .* row 2, column 7",
        ),
    ],
)
def test_what_is_no_trace_is_refused(of, values, message):
    with pytest.raises(ValueError, match=message):
        of(values)


def test_the_score_loss_is_no_loss_and_a_single_score_has_no_mean_rank():
    with pytest.raises(ValueError, match="must not be negative"):
        csl(-LOSSES)
    with pytest.raises(ValueError, match=r"two scores or more, but has shape .1, 40."):
        mean_rank(LOSSES[:1])
