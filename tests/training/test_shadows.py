"""Designs of shadow models, their files, and their parts."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.store import StoreError
from memowidgets.training.design import ShadowDesign, audited_samples, draw_design
from tests.training.small import Inline, assert_same, contents, tiny_audit

# Designs


def with_duplicates(n=90):
    whole, rows = mw.data.load_digits(), [*range(n), 3, 3, 7, 11]
    data = mw.data.ImageDataset.from_arrays(
        whole.images[rows], whole.labels[rows], whole.class_names
    ).with_canaries(10, seed=0)
    return data, draw_design(data, "half", 1 / 9, 0)


def test_balanced_halves_have_every_sample_in_exactly_half_of_the_models():
    _, design = with_duplicates()
    plan = ShadowDesign("balanced")
    masks = np.array([plan.members(design, 0, i) for i in range(10)])
    assert (masks.sum(axis=0) == 5).all()
    for first, second in zip(masks[::2], masks[1::2], strict=True):
        assert (first != second).all()
    assert len({mask.tobytes() for mask in masks}) == 10
    assert not np.array_equal(masks[0], plan.members(design, 1, 0))
    groups = design.groups[design.pool]
    for group in np.unique(groups):
        assert (masks[:, groups == group].std(axis=1) == 0).all(), (
            "duplicates were split"
        )


def test_canaries_are_in_half_of_the_models_and_the_rest_as_in_the_target():
    data, design = with_duplicates()
    audited = audited_samples(data, design, None)
    plan = ShadowDesign("canaries", audited)
    masks = np.array([plan.members(design, 0, i) for i in range(8)])
    is_audited = np.isin(design.pool, audited)
    assert (masks[:, is_audited].sum(axis=0) == 4).all()
    always = np.isin(design.pool, np.setdiff1d(design.members, audited))
    assert (masks[:, ~is_audited] == always[~is_audited]).all()
    assert ShadowDesign("canaries", audited[:-1]).key != plan.key


def test_what_can_be_audited():
    data, design = with_duplicates()
    first = data.ids[design.pool[0]]
    by_mask = audited_samples(data, design, np.isin(data.ids, [data.ids[3], first]))
    twins = np.isin(
        design.groups[design.pool], [design.groups[3], design.groups[design.pool[0]]]
    )
    np.testing.assert_array_equal(by_mask, design.pool[twins])
    with pytest.raises(ValueError, match="needs two that differ"):
        audited_samples(data, design, [first])
    cases = [
        (lambda: audited_samples(data, design, ["nobody"]), "1 ids of members are not"),
        (lambda: audited_samples(data, design, np.zeros(3, bool)), "has the shape"),
        (lambda: ShadowDesign("thirds"), "valid: halves, balanced, canaries"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_canaries_are_judged_by_models_with_and_without_them(audit):
    audit.run_shadows(4, Inline(), design="canaries")
    values = audit.log_lira()
    canary = dict(zip(audit.data.ids, audit.data.canaries, strict=True))
    assert all(canary[name] for name in values.index)
    assert values.attrs["left_out"] == len(audit.members) - len(values)
    notes = audit.evaluate(
        "loss", checkpoint="final", eta=float(values.median())
    ).warnings
    assert any(
        f"{values.attrs['left_out']} members are left out" in note for note in notes
    )
    with pytest.raises(ValueError, match='goes with design="canaries"'):
        audit.run_shadows(
            4, Inline(), design="balanced", audited=list(audit.members[:3])
        )


# Files


def test_a_kept_forward_pass_serves_the_shadow_as_target(audit):
    audit.run_shadows(6, Inline(), design="balanced", keep_forward="all")
    target = audit.as_target(2)
    mask = contents(audit)[0][2]
    assert list(target.members) == list(audit.data.ids[audit.run.design.pool[mask]])
    for metric in ("psmi", "loss", "logit_gap", "mahalanobis"):
        assert len(target.score(metric, layer=1)) == len(target.members)
    target.log_lira()  # which asks the first target about the whole pool
    shadows = target.evidence.shadows.read("epoch-1")
    # the first target is one of them
    assert shadows.indices.tolist() == [
        0,
        1,
        3,
        4,
        5,
        -1,
    ]
    pool = audit.run.design.pool
    np.testing.assert_array_equal(
        shadows.members[-1], np.isin(pool, audit.run.design.members)
    )
    own = audit.evidence.target_gaps(audit.evidence.names.record("final"))
    np.testing.assert_allclose(shadows.gaps[-1][shadows.members[-1]], own, atol=1e-5)
    expected = mw.memorization.log_lira(
        shadows.gaps[:, mask],
        shadows.members[:, mask],
        contents(audit)[1][2][mask],
        variance="shrunk",
    )
    np.testing.assert_allclose(target.log_lira(), expected)
    assert target.evaluate("psmi", eta=float(np.median(expected))).n == len(
        target.members
    )


def test_a_shadow_without_a_forward_pass_says_how_to_get_one(audit):
    audit.run_shadows(4, Inline())
    target = audit.as_target(1)
    assert len(target.log_lira()) > 0
    with pytest.raises(StoreError, match=r"kept no forward pass.*keep_forward=True"):
        target.score("psmi")
    gaps = contents(audit)[1]
    # trained again for it, to the same end
    audit.run_shadows(4, Inline(), keep_forward=True)
    np.testing.assert_array_equal(contents(audit)[1], gaps)
    assert len(audit.as_target(1).score("psmi")) > 0
    with pytest.raises(StoreError, match="did not keep layer"):
        audit.as_target(1).score("psmi", layer=1)
    audit.run_shadows(4, Inline(), keep_forward=1)  # beside the layer that is there
    assert len(audit.as_target(1).score("psmi", layer=1)) > 0
    assert len(audit.as_target(1).score("psmi")) > 0
    audit.run_shadows(5, Inline())  # new ones keep what the others keep
    assert len(audit.as_target(4).score("loss")) > 0


# Who trains which


def test_parts_give_the_models_of_the_whole(audit, tmp_path):
    shutil.copytree(audit.path, tmp_path / "parts")
    audit.run_shadows(6, Inline())
    parts = tiny_audit(tmp_path / "parts")
    parts.run_shadows(6, Inline(), indices=range(4, 6))
    assert parts.run.shadows.indices() == [4, 5]
    # the others are not lost: nobody trained them yet
    assert parts.evidence.shadows.lost == ()
    parts.run_shadows(6, Inline(), indices=[0, 1, 1, 3])
    assert parts.run.shadows.indices() == [0, 1, 3, 4, 5]
    parts.run_shadows(6, Inline())
    assert_same(parts, audit, atol=1e-4)
    parts.run.run.forget("shadows/0002")
    assert len(parts.evidence.shadows.lost) == 1


@pytest.mark.parametrize(
    ("indices", "error", "fact"),
    [
        ([], ValueError, "empty"),
        ([6], ValueError, "0 to 5"),
        ([-1], ValueError, "0 to 5"),
        ([0.5], ValueError, "0 to 5"),
        ("012", TypeError, "several values"),
        (3, TypeError, "several values"),
    ],
)
def test_a_part_is_of_the_whole(audit, indices, error, fact):
    with pytest.raises(error, match=fact):
        audit.run_shadows(6, Inline(), indices=indices)


class Mixed(Inline):
    """Gives each order the result of another one."""

    def work(self, fn, index, *order):
        return fn(1 - index, *order)


def test_a_model_of_another_order_is_not_written(audit):
    with pytest.raises(StoreError, match=r"0000\.safetensors .*index 1, not 0"):
        audit.run_shadows(2, Mixed())
    assert audit.n_shadows == 0


def test_two_files_that_are_swapped_are_named(audit):
    audit.run_shadows(2, Inline())
    one, other = (audit.run.shadows.path_of(index) for index in range(2))
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    with pytest.raises(StoreError, match=r"0000\.safetensors .*index 1, not 0"):
        audit.log_lira()
