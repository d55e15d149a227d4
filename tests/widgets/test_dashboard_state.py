"""What restores a view, from Python and from the address of a page; and what is new in a source."""

from __future__ import annotations

import gc
import json
import time
import weakref

import numpy as np
import pytest

from memowidgets.store import StoreError
from memowidgets.widgets import Choice, SampleInspector
from memowidgets.widgets.dashboard import PARTS
from memowidgets.widgets.widget import watch
from tests.widgets.fake_source import FakeSource
from tests.widgets.page import compute, say_all, told


class GrowingSource(FakeSource):
    """A source that gets another checkpoint, and says so."""

    def __init__(self, **options):
        super().__init__(**options)
        self.more, self.broken = False, None
        self.looks = 0

    def revision(self):
        self.looks += 1
        if self.broken:
            raise self.broken
        return len(self.done), self.more

    def checkpoint_choices(self):
        if self.broken:
            raise self.broken
        more = [Choice("epoch-5", "epoch 5 · drop 99.9 %")] if self.more else []
        return [*super().checkpoint_choices(), *more]


@pytest.fixture
def growing(opened, monkeypatch):
    """A dashboard that often looks for what is new, its source, and a wait until it has."""
    monkeypatch.setattr("memowidgets.widgets.dashboard.SECONDS_BETWEEN_LOOKS", 0.01)
    dashboard, source = opened(GrowingSource)

    def looked():
        wanted, deadline = source.looks + 2, time.monotonic() + 60
        while source.looks < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return dashboard, source, looked


PSMI = {"checkpoint": "epoch-2", "layer": "last", "metric": "psmi"}
VIEW = {
    "metric": "loss",
    "tau": -0.7,
    "eta": 6.0,
    "comparing": [PSMI],
    "more": True,
    "filter": "missed",
    "sort": "label",
    "decision": "undecided",
    "page": 0,
    "selected": 7,
}


def test_all_parts_come_back(opened):
    first, _ = opened()
    first.state = VIEW
    assert set(first.state) == set(PARTS)
    assert first.state | VIEW == first.state
    second, _ = opened()
    second.state = json.loads(json.dumps(first.state))
    assert second.state == first.state
    assert second.counts == first.counts
    assert second.evaluation.n_memorized == first.evaluation.n_memorized


def test_what_was_asked_for_comes_back_and_gives_tau(opened):
    first, source = opened()
    first.asked = {"count": 20}
    lowest = np.sort(source.view(first.metric, first.layer, first.checkpoint).scores)
    assert first.tau == lowest[19]
    second, _ = opened()
    second.state = json.loads(json.dumps(dict(reversed(first.state.items()))))
    assert second.asked == {"count": 20}
    assert second.tau == first.tau
    second.state = {"tau": 0.3}
    assert second.asked == {}


def test_what_is_not_computed_is_restored_once_it_is(opened):
    dashboard, _ = opened()
    wanted = {
        "layer": "1",
        "tau": 0.25,
        "eta": 5.0,
        "filter": "left alone",
        "sort": "safe",
    }
    dashboard.state = wanted
    assert not dashboard.computed
    assert dashboard.filter == "flagged"
    assert dashboard.state | wanted == dashboard.state
    compute(dashboard)
    assert dashboard.computed
    assert (dashboard.tau, dashboard.eta) == (0.25, 5.0)
    assert (dashboard.filter, dashboard.sort) == ("left alone", "safe")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"colour": 1},
            "unknown part of a state: 'colour'; valid: checkpoint, layer, metric",
        ),
        (
            {"layer": "99", "metric": "loss"},
            "unknown layer '99'; valid: '1', '2', 'last'",
        ),
        ({"tau": "0.5"}, "tau.*'0.5'"),
        ({"eta": 10**400}, "too large"),
        ({"page": -1}, "page"),
        ({"asked": {"count": 0}}, "count of 0.*at least 1"),
        ({"asked": {"share": 1.5}}, "share of 1.5.*at most 1"),
        ({"asked": {"count": 2, "share": 0.1}}, "a count and a share"),
        ({"asked": {"tau": 2}}, "no part 'tau'"),
        ({"asked": {"count": "20"}}, "count must be a whole number"),
        ({"comparing": 1}, "comparing.* list"),
        (
            {"comparing": [PSMI | {"metric": "x"}]},
            "unknown metric 'x'; valid: 'psmi', 'loss'",
        ),
        ({"comparing": [PSMI] * 3}, "comparing has 3 scores, not 1 or 2"),
        ({"filter": "all " * 99}, "unknown filter"),
        ({"decision": "burn"}, "burn"),
        ({"selected": 200}, "no sample at position 200"),
    ],
)
def test_a_wrong_state_is_refused_and_changes_no_choice(opened, state, message):
    dashboard, _ = opened()
    with pytest.raises(ValueError, match=message):
        dashboard.state = state
    assert dashboard.state["metric"] == "psmi"


def test_an_address_restores_a_view_and_follows_it(opened, monkeypatch):
    dashboard, _ = opened()
    sent = []
    monkeypatch.setattr(dashboard, "send", sent.append)
    dashboard.tau = 0.3
    assert sent == []  # no address follows yet
    say_all(dashboard, "address", text=json.dumps(VIEW))
    assert dashboard.state | VIEW == dashboard.state
    assert told(dashboard, "message")["text"] == ""
    dashboard.more = not dashboard.more
    assert sent[-1] == {"type": "state", "state": dashboard.state}
    dashboard.tau = -0.5
    assert sent[-1]["state"]["tau"] == -0.5
    dashboard.page = 1
    assert sent[-1]["state"]["page"] == 1
    json.dumps(sent)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "1", '{"a":' * 600, "[" * 100_000, "9" * 5000, "NaN", '{"layer": "<b>"}'],
)  # fmt: skip
def test_an_address_that_makes_no_sense_is_said(opened, text):
    dashboard, _ = opened()
    before = dashboard.state
    say_all(dashboard, "address", text=text)
    assert "not restored" in told(dashboard, "message")["text"]
    assert dashboard.state == before


def test_what_is_new_is_offered_and_shown(growing):
    dashboard, source, looked = growing
    looked()
    assert not dashboard.outdated
    source.truth = False
    source.more = True
    looked()
    assert dashboard.outdated
    assert dashboard.evaluation is not None
    say_all(dashboard, "refresh")
    assert not dashboard.outdated
    assert dashboard.evaluation is None  # what is on show was read again
    dashboard.checkpoint = "epoch-5"
    source.more = False
    dashboard.refresh()
    # it gave way
    assert (dashboard.checkpoint, dashboard.computed) == (
        "epoch-2",
        True,
    )


@pytest.mark.parametrize(
    "broken", [OSError("it is being written"), StoreError("it was deleted")]
)
def test_neither_what_compute_made_nor_what_cannot_be_read_is_offered(growing, broken):
    dashboard, source, looked = growing
    dashboard.layer = "1"
    compute(dashboard)
    looked()
    source.broken = broken
    looked()
    assert not dashboard.outdated
    dashboard.refresh()
    assert dashboard.counts["n"] == 200


def test_scores_without_a_layer_say_so(opened):
    class Layerless(FakeSource):
        def score_choices(self):
            return [
                Choice(c.value, c.label, c.marked, uses_layer=c.value != "loss")
                for c in super().score_choices()
            ]

    dashboard, _ = opened(Layerless)
    metrics = told(dashboard, "choices")["metrics"]
    packed = {c["value"]: c["usesLayer"] for c in metrics}
    assert packed == {
        "psmi": True,
        "loss": False,
        "logit_gap": True,
        "mahalanobis": True,
    }
    dashboard.metric = "loss"
    dashboard.checkpoint = "epoch-3"
    assert "Below is still Loss, epoch 2" in told(dashboard, "message")["text"]


def test_a_watch_ends_with_its_owner():
    class Owner:
        seen = 0

    def look(owner):
        owner.seen += 1

    owner = Owner()
    watch(owner, look, 0.001)
    deadline = time.monotonic() + 60
    while owner.seen < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert owner.seen >= 3
    reference = weakref.ref(owner)
    del owner
    while reference() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert reference() is None


def test_a_widget_that_dies_runs_nothing():  # modules may be gone by then
    closed = []

    class Counted(SampleInspector):
        def close(self):
            closed.append(self.page)
            super().close()

    Counted(["a", "b"]).close()
    gc.collect()
    assert closed == [0]
