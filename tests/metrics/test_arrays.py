"""What no function of the pure rooms takes for numbers, and rows that are too far away."""

import numpy as np
import pytest

from memowidgets.evaluation import below_class, lowest_share, roc
from memowidgets.memorization import (
    attack_success_rate,
    counterfactual,
    log_lira,
    probability_memorized,
    rmia,
)
from memowidgets.metrics import (
    PSMI,
    Mahalanobis,
    arrays,
    csl,
    logit_gap,
    loss,
    mean_over_checkpoints,
    mean_rank,
)
from memowidgets.metrics.arrays import Frame

RNG = np.random.default_rng(0)
TABLE, ROW = np.abs(RNG.normal(size=(16, 9))), RNG.random(9)
MEMBERS, LABELS, TRUTH = (
    np.arange(16)[:, None] % 2 == np.zeros(9),
    np.arange(16) % 2,
    ROW > 0.5,
)
BAD = {
    "masked": (
        lambda a: np.ma.masked_greater(a, np.sort(a, axis=None)[-2]),
        ValueError,
        "masked",
    ),
    "complex": (lambda a: a + 1j, TypeError, "complex"),
    "dates": (lambda a: (1e6 * a).astype("datetime64[s]"), TypeError, "datetime64"),
    "durations": (
        lambda a: (1e6 * a).astype("timedelta64[s]"),
        TypeError,
        "timedelta64",
    ),
    "texts": (lambda a: a.astype(str), TypeError, "<U"),
    "objects": (
        lambda a: np.where(a == a.max(), "x", a.astype(object)),
        TypeError,
        "object",
    ),
}
TAKES_A_TABLE = {
    "PSMI.fit": lambda a: PSMI(8).fit(a, LABELS),
    "PSMI.score_samples": lambda a: PSMI(8).fit(TABLE, LABELS).score_samples(a, LABELS),
    "Mahalanobis.fit": lambda a: Mahalanobis().fit(a),
    "Mahalanobis.score_samples": lambda a: Mahalanobis().fit(TABLE).score_samples(a),
    "loss": lambda a: loss(a, LABELS),
    "logit_gap": lambda a: logit_gap(a, LABELS),
    "csl": csl,
    "mean_over_checkpoints": mean_over_checkpoints,
    "mean_rank": mean_rank,
    "log_lira": lambda a: log_lira(a, MEMBERS, ROW),
    "attack_success_rate": lambda a: attack_success_rate(a, MEMBERS),
    "counterfactual": lambda a: counterfactual(a, MEMBERS),
    "rmia": lambda a: rmia(a, MEMBERS, ROW),
}
TAKES_A_ROW = {
    "target_gaps": lambda a: log_lira(TABLE, MEMBERS, a),
    "probability_memorized": lambda a: probability_memorized(a, ROW),
    "errors": lambda a: probability_memorized(ROW, a),
    "score": lambda a: probability_memorized(ROW, ROW, score=a),
    "roc": lambda a: roc(a, TRUTH),
    "lowest_share": lowest_share,
    "below_class": lambda a: below_class(a, np.zeros(9)),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("call", [*TAKES_A_TABLE, *TAKES_A_ROW])
def test_only_numbers_are_taken_for_numbers(call, bad):
    spoil, error, fact = BAD[bad]
    function = {**TAKES_A_TABLE, **TAKES_A_ROW}[call]
    with pytest.raises(error, match=fact):
        function(spoil(TABLE if call in TAKES_A_TABLE else ROW))


def test_other_masked_and_missing_values():
    masked = np.ma.masked_array(MEMBERS, TABLE > 2)
    cases = [
        (lambda: log_lira(TABLE, masked, ROW), "masked"),
        (
            lambda: PSMI(8).fit(TABLE, np.ma.masked_array(LABELS, LABELS > 0)),
            "8 of 16 values",
        ),
        (lambda: roc(ROW, np.ma.masked_array(TRUTH, TRUTH)), "masked"),
        (
            lambda: roc(ROW, TRUTH, groups=np.where(ROW > 0.5, np.nan, ROW)),
            "groups .* row",
        ),
        (lambda: probability_memorized([0.0, np.inf], [1, 1]), "log_lira .* row 1"),
        (lambda: probability_memorized([0.0, 1.0], [np.inf, 1]), "errors .* row 0"),
    ]
    for call, fact in cases:
        with pytest.raises(ValueError, match=fact):
            call()


def test_arrays_without_a_masked_value_and_objects_that_are_numbers_are_taken():
    expected = Mahalanobis().fit(TABLE).score_samples(TABLE)
    for same in (np.ma.masked_array(TABLE), TABLE.astype(object)):
        assert np.array_equal(Mahalanobis().fit(same).score_samples(same), expected)


# above 2048 rows, only some are looked at first
@pytest.mark.parametrize("n", [200, 9000])
@pytest.mark.parametrize("method", ["control-variates", "plain"])
def test_a_row_that_is_too_far_away_is_named(n, method):
    X, y = np.random.default_rng(0).normal(size=(n, 8)), np.arange(n) % 2
    fitted = PSMI(64, method).fit(X, y)
    nearest = 1e12 * X[:3]
    with pytest.raises(ValueError, match="row 2 of X"):
        fitted.score_samples(np.concatenate([X[:2], nearest]), y[:5])
    with pytest.raises(ValueError, match="row 1 of X"):
        Mahalanobis().fit(X).score_samples(np.stack([X[0], 1e200 * X[1]]))
    for size in (1e5, 1e20, 1e45, 1e200):
        X[7] = size
        for fit in (lambda: PSMI(64, method).fit(X, y), lambda: Mahalanobis().fit(X)):
            try:
                found = fit()
            except ValueError as error:
                assert "row 7 of X" in str(error)  # noqa: PT017 - either is right
                continue
            given = (X,) if isinstance(found, Mahalanobis) else (X, y)
            assert np.isfinite(found.score_samples(*given)).all()


def test_rows_near_zero_may_be_the_far_ones():
    X, y = 1e12 + np.random.default_rng(0).normal(size=(200, 8)), np.arange(200) % 2
    with pytest.raises(ValueError, match="row 1 of X"):
        PSMI(64).fit(X, y).score_samples([X[0], 0 * X[0]], y[:2])


def test_a_frame_changes_only_rows_whose_squares_float32_cannot_hold():
    X = np.random.default_rng(0).normal(size=(500, 8)) + 0.5
    assert Frame.fitting(X).neutral
    far = Frame.fitting(X + 1e4)
    np.testing.assert_allclose(far.shift, X.mean(axis=0) + 1e4)
    assert far.scale == 1
    for size in (1e-9, 1e9):
        sized = Frame.fitting(size * X)
        assert sized.shift is None
        assert sized.scale == pytest.approx(size * np.sqrt(X.var(axis=0).mean()))
    assert Frame.fitting(np.ones((9, 2))).scale == 1


def test_a_tensor_of_16_bits_is_converted_a_piece_at_a_time(monkeypatch):
    """As a whole it would take three times its memory."""
    torch = pytest.importorskip("torch")
    X = torch.randn((4000, 64), generator=torch.Generator().manual_seed(0)).bfloat16()
    y = np.arange(len(X)) % 4
    sizes, convert = [], arrays.to_numpy
    monkeypatch.setattr(arrays, "COPIED_BYTES", 2**18)
    monkeypatch.setattr(
        arrays, "to_numpy", lambda one: sizes.append(len(one)) or convert(one)
    )
    PSMI(16, "plain").fit(X, y).score_samples(X, y)
    Mahalanobis().fit(X).score_samples(X)
    loss(X, y)
    assert sum(sizes) > 4 * len(X)
    # the first look is at 2048 rows, whatever there are
    assert max(sizes) <= 2048
