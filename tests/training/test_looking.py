"""Where to look, against a slow and plain reading of the rule, and on curves that people have."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memowidgets.training.looking import TrainingCurves, place_to_look, settled_at

RHO = 0.95


def has_risen(before, after) -> bool:
    rise = [b - a for a, b in zip(before, after, strict=True)]
    if len(rise) < 2:
        return False
    error = statistics.stdev(rise) / math.sqrt(len(rise))
    return statistics.fmean(rise) > 2 * error


def has_lasted(epochs, since, until) -> bool:
    return (
        until - since >= 3 and epochs[until] - epochs[since] >= epochs[until] / 2 - 1e-9
    )


def level_start(epochs, drops, end, least):
    left = [1 - max(drops[: i + 1]) for i in range(end + 1)]
    start = next(i for i in range(end + 1) if left[i] <= 1.1 * left[end])
    has_begun = 1.1 * left[end] < 1 and 1 - left[end] >= least
    return start if has_begun and has_lasted(epochs, start, end) else None


def lowest(held_out, guessing, end):
    if held_out is None or len(held_out[0]) == 0:
        return None
    means = [statistics.fmean(map(float, losses)) for losses in held_out[: end + 1]]
    best = means.index(min(means))
    return best if means[best] < guessing else None


def plain_place(epochs, drops, held_out, guessing, least):
    """Return the checkpoint to look at among all of these, and why."""
    reached = next((i for i, drop in enumerate(drops) if drop >= RHO), None)
    end = len(drops) - 1 if reached is None else reached
    best = lowest(held_out, guessing, end)
    places = []
    if best is not None and has_risen(held_out[best], held_out[end]):
        places.append((best, "turn"))
    if reached is not None:
        places.append((reached, "rho"))
    else:
        level = level_start(epochs, drops, end, least)
        places += [] if level is None else [(level, "level")]
    return min(places, key=lambda place: place[0], default=(end, "unsettled"))


def plain_end(epochs, drops, held_out, guessing, least):
    """Return the checkpoint at which a training is interrupted, or None."""
    for end in range(len(drops)):
        best = lowest(held_out, guessing, end)
        turned = (
            best is not None
            and has_lasted(epochs, best, end)
            and has_risen(held_out[best], held_out[end])
        )
        level = level_start(epochs, drops, end, least)
        if drops[end] >= RHO or turned or level is not None:
            return end
    return None


@st.composite
def trainings(draw):
    n = draw(st.integers(1, 14))
    steps = draw(st.lists(st.floats(0.1, 3), min_size=n, max_size=n))
    drops = draw(st.lists(st.floats(-0.5, 1.0), min_size=n, max_size=n))
    if draw(st.booleans()):  # most trainings fall
        drops = sorted(drops)
    m = draw(st.integers(0, 9))
    seed = draw(st.integers(0, 10**6))
    spread = draw(st.sampled_from([0.0, 0.05, 1.0]))
    bend = draw(st.floats(0, 1)) * (np.linspace(0, 1, n) - draw(st.floats(0, 1))) ** 2
    rng = np.random.default_rng(seed)
    losses = 1 + bend[:, None] + spread * rng.normal(size=(n, m))
    held_out = None if draw(st.booleans()) else list(losses.astype(np.float32))
    guessing = draw(st.sampled_from([math.inf, 1.1, 0.5]))
    least = draw(st.sampled_from([0.0, 0.4]))
    return np.cumsum(steps), np.array(drops), held_out, guessing, least


@given(trainings())
def test_the_rule_is_its_plain_reading(training):
    curves = TrainingCurves(*training)
    assert tuple(place_to_look(curves, RHO)) == plain_place(*training)
    assert settled_at(curves, RHO) == plain_end(*training)


@given(trainings())
def test_an_interruption_names_a_checkpoint_so_far_and_later_ones_do_not_change_that(
    training,
):
    epochs, drops, held_out, *limits = training
    end = settled_at(TrainingCurves(*training), RHO)
    if end is None:
        return
    until = slice(end + 1)
    losses = None if held_out is None else held_out[until]
    known = TrainingCurves(epochs[until], drops[until], losses, *limits)
    place = place_to_look(known, RHO)
    assert settled_at(known, RHO) == end
    assert place.at <= end
    assert place.why != "unsettled"


def curves(
    drops, means=None, spread=0.01, n=200, every=1.0, **limits
) -> TrainingCurves:
    """Return curves with a held-out loss whose samples rise and fall together, but for a spread."""
    epochs = every * np.arange(1, len(drops) + 1)
    if means is None:
        return TrainingCurves(epochs, np.array(drops), **limits)
    own = np.random.default_rng(0).normal(size=(len(drops), n))
    own -= own.mean(axis=1, keepdims=True)
    held_out = list(np.array(means)[:, None] + spread * own)
    return TrainingCurves(epochs, np.array(drops), held_out, **limits)


FALLING = (0.3, 0.5, 0.6, 0.68, 0.75, 0.81, 0.86, 0.9, 0.93, 0.96)
TURNED = (1.2, 0.9, 0.8, 0.75, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)


@pytest.mark.parametrize(
    ("training", "place", "interrupted"),
    [
        (curves(FALLING), (9, "rho"), 9),
        (curves(FALLING, sorted(TURNED, reverse=True)), (9, "rho"), 9),
        (curves(FALLING, TURNED), (3, "turn"), 7),  # half of 8 epochs after epoch 4
        (curves(FALLING, TURNED, guessing=0.7), (9, "rho"), 9),  # worse than guessing
        (curves(FALLING, TURNED, spread=5.0), (9, "rho"), 9),  # by chance
        (curves(FALLING, TURNED, n=1), (9, "rho"), 9),  # one sample has no error
        (curves(FALLING[:-1], TURNED[:-1]), (3, "turn"), 7),
        (curves(FALLING[:-1]), (8, "unsettled"), None),
        (curves([0.4, 0.7, 0.86, 0.866, 0.87, 0.87, 0.87]), (2, "level"), 5),
        (curves([0.4, 0.7, 0.86, 0.87, 0.6, 0.87, 0.87]), (2, "level"), 5),  # a spike
        (curves([0.01] * 9), (8, "unsettled"), None),  # has not begun
        (curves([0.5] * 9, least_drop=0.6), (8, "unsettled"), None),  # as guessing
        (curves([0.3]), (0, "unsettled"), None),
        (curves([0.96], [1.0]), (0, "rho"), 0),
    ],
)
def test_the_place_on_curves_that_people_have(training, place, interrupted):
    assert tuple(place_to_look(training, RHO)) == place
    assert settled_at(training, RHO) == interrupted


def test_one_spike_of_the_rate_is_no_turn_while_it_trains():
    means = [1.0, 0.8, 0.6, 3.0, 0.55, 0.5, 0.45, 0.4, 0.38, 0.37]
    assert settled_at(curves(FALLING, means), RHO) == 9


def test_eight_held_out_samples_do_not_move_the_place_by_chance():
    rng, moved = np.random.default_rng(1), 0
    for _ in range(50):
        losses = list(rng.normal(1, 0.5, size=(10, 8)))  # no trend at all
        place = place_to_look(
            TrainingCurves(np.arange(1, 11), np.array(FALLING), losses), RHO
        )
        moved += place.why == "turn"
    assert moved < 25


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"epochs": [], "drops": []}, "no checkpoint after step 0"),
        ({"epochs": [1, 3, 2]}, "epoch 2 .* epoch 3"),
        ({"epochs": [1, 2, 2]}, "epoch 2 .* epoch 2"),
        ({"drops": [0.1, 0.2]}, "2 drops for 3 checkpoints"),
        ({"drops": [0.1, math.nan, 0.3]}, "finite"),
        ({"held_out": [np.ones(4)] * 2}, "3 checkpoints.* 2 "),
        ({"held_out": [np.ones(4), np.ones(4), np.ones(5)]}, r"\[4, 5\] samples"),
        (
            {"held_out": [np.ones(4), np.array([1, 1, math.inf, 1]), np.ones(4)]},
            "sample 2 at epoch 2 is inf",
        ),
    ],
)
def test_curves_that_are_none_are_refused(change, facts):
    given = {"epochs": [1, 2, 3], "drops": [0.1, 0.2, 0.3]} | change
    with pytest.raises(ValueError, match=facts):
        TrainingCurves(
            np.array(given.pop("epochs")), np.array(given.pop("drops")), **given
        )
