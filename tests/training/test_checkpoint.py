"""The plan of checkpoints, settings, and the design of splits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memowidgets.data import ImageDataset, load_digits
from memowidgets.training import TrainingConfig
from memowidgets.training.config import CheckpointPlan, Settings
from memowidgets.training.design import ShadowDesign, draw_design


def settings(**changes) -> Settings:
    return TrainingConfig(**changes).resolve({})


def test_checkpoints_are_step_0_every_so_often_and_the_end():
    plan = settings(epochs=1, checkpoint_every=0.2, batch_size=10).plan(500).steps()
    assert plan == {0: 0, 10: 0.2, 20: 0.4, 30: 0.6, 40: 0.8, 50: 1.0}
    watched = {step: CheckpointPlan(50, 0.2).epoch_at(step) for step in range(51)}
    assert watched == {step: plan.get(step) for step in range(51)}, (
        "as of a loop that is watched"
    )
    odd = settings(epochs=2.5, checkpoint_every=1, batch_size=10).plan(100).steps()
    assert odd == {0: 0, 10: 1, 20: 2, 25: 2.5}
    tiny = settings(epochs=1, checkpoint_every=0.01, batch_size=10).plan(30).steps()
    assert list(tiny) == [0, 1, 2, 3]


@pytest.mark.parametrize("per_epoch", [1, 2, 3, 4])
def test_a_step_has_the_nearest_epoch_where_an_epoch_has_few_steps(per_epoch):
    plan = CheckpointPlan(per_epoch, 0.2, total=3 * per_epoch).steps()
    watched = {step: CheckpointPlan(per_epoch, 0.2).epoch_at(step) for step in plan}
    assert watched == plan, "as of a loop that is watched"
    assert list(plan) == list(range(3 * per_epoch + 1))
    assert all(
        abs(epoch - step / per_epoch) <= 0.1 + 1e-9 for step, epoch in plan.items()
    )
    assert plan[per_epoch] == 1.0
    assert plan[2 * per_epoch] == 2.0


def test_rates_fall_as_the_schedule_says():
    linear = settings(epochs=10, batch_size=10, lr=1.0, schedule="linear")
    assert linear.rate(0, 100) == 1.0
    assert linear.rate(50, 100) == pytest.approx(0.5)
    cosine = settings(epochs=10, batch_size=10, lr=1.0, schedule="cosine")
    assert cosine.rate(25, 100) == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 4))


def test_batches_that_are_accumulated_make_one_step():
    assert settings(batch_size=2, accumulate=2).steps_per_epoch(9) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_noise": 1.0}, "from 0 to below 1"),
        ({"accumulate": 1.5}, "accumulate must be a whole number"),
        ({"epochs": 0}, "epochs must be a positive number"),
        ({"lr": float("nan")}, "lr must be a finite number, not nan"),
        ({"lr": float("inf")}, "lr must be a finite number"),
        ({"batch_size": 2.5}, "whole number"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"optimizer": "lion"}, "valid: adamw, sgd"),
        ({"precision": "float8"}, "valid: auto, float32, bfloat16"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes).resolve({})


def test_the_study_design_splits_as_the_paper_does():
    data = load_digits()
    design = draw_design(data, "half", 1 / 9, seed=0)
    assert len(design.held_out) == pytest.approx(len(data) / 9, abs=2)
    assert len(design.members) == pytest.approx(len(design.pool) / 2, abs=2)
    assert set(design.members) <= set(design.pool)
    assert not set(design.held_out) & set(design.pool)
    masks = np.array([ShadowDesign().members(design, 0, i) for i in range(40)])
    assert masks.mean() == pytest.approx(0.5, abs=0.01)
    assert masks.mean(axis=0).min() > 0.1
    assert (masks[0] != masks[1]).any()
    np.testing.assert_array_equal(masks[3], ShadowDesign().members(design, 0, 3))
    other = draw_design(data, "half", 1 / 9, seed=1)
    assert set(other.members) != set(design.members)


def test_duplicates_stay_on_one_side_of_every_split():
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 1)).astype(np.uint8)
    data = ImageDataset.from_arrays(
        np.concatenate([pixels, pixels, pixels]), np.arange(120) % 2
    )
    design = draw_design(data, "half", 1 / 9, seed=0)
    for part in (
        design.members,
        design.held_out,
        design.pool[ShadowDesign().members(design, 0, 0)],
    ):
        assert set(np.bincount(part % 40)) <= {0, 3}


def test_members_by_name_mask_and_all():
    data = load_digits()
    assert draw_design(data, "all", None, 0).all_members
    named = draw_design(data, ["digit-0003", "digit-0001"], 0.5, 0)
    assert named.members.tolist() == [1, 3]
    assert not {1, 3} & set(named.held_out)
    assert len(named.held_out) == pytest.approx(len(data) / 2, abs=2)
    mask = np.zeros(len(data), bool)
    mask[:10] = True
    assert draw_design(data, mask, None, 0).members.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("members", "held_out", "message"),
    [
        ("most", 0.1, "valid: 'half', 'all'"),
        (0.5, 0.1, "unknown members 0.5; valid: 'half', 'all'"),
        (
            ["nobody"],
            0.1,
            "1 ids of members are not in the dataset, the first is 'nobody'",
        ),
        (np.ones(3, bool), 0.1, "for 1797 samples"),
        ("half", 1.5, "share from 0 to below 1"),
        (["digit-0001"], 0.1, "it needs two or more"),
    ],
)
def test_bad_designs_are_refused(members, held_out, message):
    with pytest.raises(ValueError, match=message):
        draw_design(load_digits(), members, held_out, 0)


def test_a_mask_of_0_and_1_is_not_taken_for_the_ids_0_and_1():
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 1)).astype(np.uint8)
    data = ImageDataset.from_arrays(
        pixels, np.arange(40) % 2, ids=[str(i) for i in range(40)]
    )
    mask = np.arange(40) < 20
    for given in (mask.astype(int), mask.astype(int).tolist()):
        with pytest.raises(TypeError, match=r"int64.*astype\(bool\)"):
            draw_design(data, given, None, 0)
    assert len(draw_design(data, mask, None, 0).members) == 20
    assert len(draw_design(data, [0, 1, 2], None, 0).members) == 3
