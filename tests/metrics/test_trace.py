"""Scores over several checkpoints: against a transcription, and what they refuse."""

import numpy as np
import pytest

from memowidgets.metrics import csl, mean_over_checkpoints, mean_rank

LOSSES = np.random.default_rng(0).gamma(1.0, size=(5, 40))


def transcribed(losses, first):
    return [-sum(row[i] for row in losses[first:]) / len(losses[first:]) for i in range(40)]


@pytest.mark.parametrize("last", [None, 2, 5])
def test_csl_is_minus_the_mean_loss(last):
    first = 0 if last is None else 5 - last
    np.testing.assert_allclose(csl(LOSSES, last), transcribed(LOSSES, first), rtol=1e-12)
    np.testing.assert_allclose(mean_over_checkpoints(LOSSES, last), -csl(LOSSES, last))


def test_low_float_precision_does_not_round_the_mean():
    losses = np.full((3, 2), 1e4, dtype=np.float16)
    assert csl(losses).dtype == np.float64
    assert csl(losses).tolist() == [-10_000.0, -10_000.0]


def test_mean_rank_by_hand():
    a, b = [3.0, 1.0, 2.0, 2.0], [-5.0, 8.0, 0.0, 9.0]
    ranks = np.array([[4, 1, 2.5, 2.5], [1, 3, 2, 4]])
    np.testing.assert_allclose(mean_rank([a, b]), ranks.mean(axis=0) / 4)


@pytest.mark.parametrize("of", [csl, mean_over_checkpoints])
@pytest.mark.parametrize(
    ("values", "last", "message"),
    [
        (LOSSES[0], None, "shape .40,."),
        (LOSSES[:1], None, r"two checkpoints or more, but has shape .1, 40."),
        (LOSSES[:, :0], None, "no sample"),
        (LOSSES, 1, "from 2, not 1"),
        (LOSSES, 6, "only 5 checkpoints"),
        (np.where(LOSSES[2, 7] == LOSSES, np.nan, LOSSES), None, "NaN in row 2, column 7"),
        (np.where(LOSSES[2, 7] == LOSSES, np.inf, LOSSES), None, "infinite in row 2, column 7"),
    ],
)
def test_what_is_no_trace_is_refused(of, values, last, message):
    with pytest.raises(ValueError, match=message):
        of(values, last)


@pytest.mark.parametrize("last", [True, "3"])
def test_last_is_a_whole_number(last):
    with pytest.raises(TypeError, match="number of checkpoints"):
        csl(LOSSES, last)


def test_the_score_loss_is_no_loss_and_a_single_score_has_no_mean_rank():
    with pytest.raises(ValueError, match="must not be negative"):
        csl(-LOSSES)
    with pytest.raises(ValueError, match=r"two scores or more, but has shape .1, 40."):
        mean_rank(LOSSES[:1])
