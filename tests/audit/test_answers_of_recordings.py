"""Verdict, log-LiRA and the finished model's answer on every sample of the recordings."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit.numbers.truth import answered_rightly
from memowidgets.audit.views.answers import AuditView
from tests.javascript import asking

DRIVER = Path(__file__).parents[1] / "widgets" / "js" / "driver.mjs"
SAID = re.compile(r"(planted, )?(not )?memorised \((−?[\d.]+)\s([<≥])\s(−?[\d.]+)\)")
# memorised at η = 4; of these, answered wrongly at the end; log-LiRA that one digit shows as 4.0
RECORDED = {
    "mmlu-field-smollm2": (35, 20, 1),
    "banking77-smollm2": (349, 1, 5),
    "cifar10-wrn": (326, 1, 8),
}


@pytest.fixture(scope="module")
def ask(node):
    with asking(node, DRIVER) as ask:
        yield ask


@pytest.fixture(scope="module", params=RECORDED)
def view(request):
    """The name of a recording and its first view."""
    audit = mw.open_recorded(request.param)
    return request.param, AuditView(audit).view("psmi", "last", audit.prediction.record.name)


def sides(texts):
    """Whether each text says that its sample is memorised; its numbers say the same."""
    found = []
    for text in texts:
        _, denied, value, sign, eta = SAID.fullmatch(text).groups()
        shown = float(value.replace("−", "-")), float(eta.replace("−", "-"))
        assert (sign == "≥") == (shown[0] >= shown[1]) == (not denied), text
        found.append(not denied)
    return np.array(found)


def test_verdict_and_numbers_never_disagree(view, ask):
    name, shown = view
    canary = np.zeros(len(shown.scores)) if shown.canaries is None else shown.canaries
    planted = [bool(one) for one in canary]
    values = shown.log_lira.tolist()
    cases = [[value, 4, one] for value, one in zip(values, planted, strict=True)]
    texts = ask(what="verdicts", cases=cases)
    assert (sides(texts) == (shown.log_lira >= 4)).all()
    assert [text.startswith("planted, ") for text in texts] == planted
    rounded = [value for value in values if value < 4 and f"{value:.1f}" == "4.0"]
    assert len(rounded) == RECORDED[name][2]
    around = np.sort(shown.log_lira)[-200:]  # η stands on a sample, as after Shift and an arrow
    for eta in around[::20]:
        texts = ask(what="verdicts", cases=[[value, float(eta), False] for value in around])
        assert (sides(texts) == (around >= eta)).all()


def test_memorised_is_not_answered_rightly(view):
    name, shown = view
    memorized, wrong, _ = RECORDED[name]
    assert (shown.log_lira >= 4).sum() == memorized
    assert ((shown.log_lira >= 4) & ~shown.right).sum() == wrong
    audit = mw.open_recorded(name)
    gaps = audit.score("logit_gap", checkpoint="final").to_numpy()
    assert (shown.right == (gaps > 0)).all()


def test_a_shadow_model_in_the_targets_place_has_answers_of_its_own():
    audit = mw.open_recorded("mmlu-field-smollm2")
    other = audit.as_target(2)
    right = answered_rightly(other.evidence)
    assert right.shape == (len(other.members),)
    assert 0.5 < right.mean() < 1


def test_the_answers_of_arrays_are_not_known():
    rng = np.random.default_rng(0)
    audit = mw.Audit.from_arrays(labels=rng.integers(0, 3, 60), logits=rng.normal(size=(60, 3)))
    assert answered_rightly(audit.evidence) is None
