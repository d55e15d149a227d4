"""Where to look in a run directory: the paper's table, what is said of it, and what stays told."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import Record, held_out_of
from memowidgets.training.lookout import (
    RHO,
    Lookout,
    StopRule,
    forget_told,
    read_stop,
    read_told,
    write_held_out,
    write_stop,
)

CLASSES = np.arange(40) % 4


def records(*drops: float, test_losses=(), every=0.2, first=2.0) -> list[Record]:
    losses = [first, *(first * (1 - drop) for drop in drops)]
    tests = [*test_losses] or [None] * len(losses)
    return [
        Record(
            f"epoch-{i * every:g}", i * every, i, x, x, 0.5, test, None, "float32", "w"
        )
        for i, (x, test) in enumerate(zip(losses, tests, strict=True))
    ]


def lookout(path, **rule) -> Lookout:
    run = RunDirectory(path)
    write_stop(run, StopRule(**rule))
    return Lookout(run, CLASSES, StopRule(**rule))


def held_out(path, means, *drops: float, spread=0.05, labels=CLASSES):
    """Write held-out losses with these means for step 0 and each drop; return their records."""
    made = records(*drops, test_losses=means, every=1)
    rng, run = np.random.default_rng(0), RunDirectory(path)
    for record, mean in zip(made, means, strict=True):
        own = rng.normal(size=len(labels))
        losses = (mean + spread * (own - own.mean())).astype(np.float32)
        write_held_out(run, record, losses, labels, CLASSES)
    return made


SMOOTHED = (0.4, 0.7, 0.86, 0.885, 0.89, 0.895, 0.9)  # label smoothing of .2
LEVEL = (*SMOOTHED, 0.9, 0.9, 0.9, 0.9)
NOISY = (0.6, 0.7, 0.96, 0.75, 0.8, 0.96, 0.97, 0.98)
LATE = (*np.linspace(0.05, 0.69, 20), 0.9651)  # the rate fell after epoch 20
# held-out loss turns after epoch 3, long before the drop of the training loss ends
DROPS = (0.3, 0.5, 0.6, 0.7, 0.78, 0.83, 0.87, 0.9, 0.92, 0.935)
TURNED = (1.4, 1.0, 0.8, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4)


@pytest.mark.parametrize(
    ("drops", "rule", "step", "reached", "why", "jumped_from"),
    [
        ((0.937, 0.980), {}, 2, True, "rho", None),  # epochs .2, .4: ARC, Mistral
        ((0.3, 0.9, 0.8), {}, 3, False, "unsettled", None),
        ((0.4, 0.7, 0.8, 0.86), {}, 4, False, "unsettled", None),
        (SMOOTHED, {}, 7, False, "unsettled", None),
        (LEVEL, {}, 5, False, "level", None),
        ((*SMOOTHED, 0.96), {}, 8, True, "rho", None),
        (LATE, {}, 21, True, "rho", 0.69),
        ((0.96,), {}, 1, True, "rho", 0.0),
        ((0.5, 0.8, 0.96), {}, 3, True, "rho", None),
        ((0.25, 0.52), {"rho": 0.5}, 2, True, "rho", None),
        (NOISY, {}, 3, True, "rho", None),
        (NOISY, {"over_last": 3}, 7, True, "rho", None),  # of 0.96, 0.8 and 0.97
    ],
)
def test_the_checkpoint_without_held_out_samples(
    drops, rule, step, reached, why, jumped_from, tmp_path
):
    chosen = lookout(tmp_path, **rule).prediction(records(*drops))
    assert (chosen.record.step, chosen.reached, chosen.why) == (step, reached, why)
    assert chosen.jumped_from == pytest.approx(jumped_from)
    assert ("held_out=" in chosen.reason) == (why == "rho")


@pytest.mark.parametrize(
    ("drops", "facts"),
    [
        ((0.3, 0.9, 0.8), ["95 %", "0.6 of 0.6", "80 %"]),
        (LEVEL, ["89 %", "label smoothing", "mixup", "1 of 2.2"]),
        (LATE, ["69 %", "96.5 %"]),
    ],
)
def test_what_is_unusual_about_the_choice_is_said(drops, facts, tmp_path):
    (note,) = lookout(tmp_path).prediction(records(*drops)).warnings
    assert all(fact in note.lower() for fact in facts)
    assert "longer" not in note


def test_the_papers_choice_is_rho_or_the_nearest_to_it():
    rule = StopRule()
    assert rule.of_paper(records(0.5, 0.96, 0.99)).step == 2
    assert rule.of_paper(records(0.5, 0.94, 0.9)).step == 2


@pytest.mark.parametrize(
    ("rule", "drops", "said"),
    [
        ({"rho": 0.0}, (0.5,), "share between 0 and 1"),
        ({"rho": 1.0}, (0.5,), "share between 0 and 1"),
        ({"rho": 95}, (0.5,), "share between 0 and 1"),
        ({"over_last": 0}, (0.5,), "over_last, the number of evaluations .*not 0"),
        ({}, (), "no checkpoint after step 0"),
    ],
)
def test_rules_and_untrained_targets_are_checked(rule, drops, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        lookout(tmp_path, **rule).prediction(records(*drops))


def test_held_out_loss_that_turns_comes_before_rho(tmp_path):
    made = held_out(tmp_path, TURNED, *DROPS)
    chosen = lookout(tmp_path).prediction(made)
    assert (chosen.record.step, chosen.why, chosen.reached) == (3, "turn", False)
    (note,) = chosen.warnings
    assert note.key == "turn"
    assert "lowest at epoch 3 of 10" in note
    assert lookout(tmp_path / "other").prediction(records(*DROPS)).record.step == 10


def test_eight_samples_that_differ_much_do_not_move_the_place(tmp_path):
    few = held_out(tmp_path, TURNED, *DROPS, labels=CLASSES[:8], spread=5.0)
    assert lookout(tmp_path).prediction(few).why == "unsettled"


def test_samples_of_classes_that_no_member_has_do_not_turn_the_loss(tmp_path):
    strange, run = np.append(CLASSES, [4] * 40), RunDirectory(tmp_path)
    made = records(*DROPS, test_losses=[1.0] * 11, every=1)
    for record in made:  # a model that learns is ever surer that they are another class
        own = np.full(40, 1.4 - record.step / 10)
        losses = np.append(own, np.full(40, 2.0 * record.step)).astype(np.float32)
        write_held_out(run, record, losses, strange, CLASSES)
    assert lookout(tmp_path).prediction(made).why == "unsettled"
    kept = run.read_tensors(held_out_of("epoch-3"))["losses"]
    assert (kept.shape, kept.dtype) == ((40,), np.float32)


def test_what_was_told_stays_and_what_would_be_told_now_is_said(tmp_path):
    made = held_out(tmp_path, TURNED, *DROPS)
    look = lookout(tmp_path)
    told = [look.tell(made[: n + 1]) for n in range(1, len(made))]
    assert [one is None for one in told].index(
        False
    ) == 5  # at epoch 6, half of it later
    first = told[5]
    assert (first.record.step, first.until.step, first.why) == (3, 6, "turn")
    assert {one.record.step for one in told[5:]} == {3}
    # later the held-out loss falls again, below what it was
    later = held_out(tmp_path, (*TURNED, 0.5), *DROPS, 0.94)
    assert Lookout(look._run, CLASSES, StopRule()).prediction(later).record.step == 3
    elsewhere = look.prediction(later)
    assert elsewhere.elsewhere.step == 11
    assert [note.key for note in elsewhere.warnings] == ["turn", "elsewhere"]
    assert "epoch-11" in elsewhere.warnings[1]
    # another rule is asked anew, and what is deleted is not told any more
    forget_told(look._run, ["epoch-8"])
    assert read_told(look._run) is not None
    forget_told(look._run, ["epoch-6"])
    assert read_told(look._run) is None
    assert read_stop(look._run, has_records=True) == StopRule()
    assert look.tell(made).record.step == 3
    write_stop(look._run, StopRule(0.5))
    assert read_told(look._run) is None


def test_held_out_losses_that_are_lost_are_named_and_the_others_are_not_used(tmp_path):
    made = held_out(tmp_path, TURNED, *DROPS)
    run = RunDirectory(tmp_path)
    run.forget(held_out_of("epoch-4"))
    with pytest.warns(UserWarning, match="epoch-4/held_out"):
        assert lookout(tmp_path).prediction(made).why == "unsettled"
    bare = {"losses": np.ones(40, np.float32)}
    for record in made:
        run.write_tensors(held_out_of(record.name), bare, None, "w")
    with pytest.raises(StoreError, match=r"held_out.*broken"):
        lookout(tmp_path / ".").prediction(made)


def test_a_loss_of_infinity_and_a_forged_note_are_refused(tmp_path):
    made = held_out(tmp_path, TURNED, *DROPS)
    losses = np.ones(40, np.float32)
    losses[7] = math.inf
    write_held_out(RunDirectory(tmp_path), made[2], losses, CLASSES, CLASSES)
    with pytest.raises(ValueError, match="sample 7 at epoch 2 is inf"):
        lookout(tmp_path).prediction(made)
    RunDirectory(tmp_path).write_note(RHO, {"rho": 0.95, "told": {"place": 3}})
    with pytest.raises(StoreError, match=r"rho\.json is broken"):
        lookout(tmp_path).told(made)


def test_a_recording_holds_means_alone_and_says_where_they_were_lowest():
    audit = mw.open_recorded("cifar10-wrn")
    chosen = audit.prediction
    assert (chosen.record.name, chosen.why) == ("epoch-15", "rho")
    assert "lowest at epoch 7 of 18" in chosen.reason
    assert not [note for note in chosen.warnings if note.key == "turn"]
    assert audit.evidence.names.record("rho") == chosen.record
    assert "not kept" in json.dumps(chosen.reason)
