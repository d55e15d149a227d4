"""What restores a view, from Python and from the address of a page; and what is new in a source."""

from __future__ import annotations

import gc
import json
import time
import weakref

import pytest

from memowidgets.widgets import Choice, Dashboard
from memowidgets.widgets.dashboard import PARTS, usable
from memowidgets.widgets.threads import watch
from tests.widgets.fake_source import FakeSource


class GrowingSource(FakeSource):
    """A source that gets another checkpoint, and says so."""

    def __init__(self, **options):
        super().__init__(**options)
        self.more = False

    def revision(self):
        return len(self.done), self.more

    def checkpoint_choices(self):
        more = [Choice("epoch-5", "epoch 5 · drop 99.9 %")] if self.more else []
        return [*super().checkpoint_choices(), *more]


@pytest.fixture
def opened():
    made = []

    def opening(kind=FakeSource, **options):
        source = kind(**{"n": 200, "seconds": 0.1, **options})
        made.append(Dashboard(source))
        return made[-1], source

    yield opening
    for dashboard in made:
        dashboard.close()


@pytest.fixture
def said(opened, monkeypatch):
    """A dashboard whose page follows its address, and what it was told last."""
    dashboard, source = opened()
    told = []
    monkeypatch.setattr(dashboard, "send", told.append)
    return dashboard, source, told


def address(dashboard, text):
    """What the page says when it opens."""
    dashboard._handle_custom_msg({"type": "address", "text": text}, [])


VIEW = {
    "metric": "loss",
    "tau": -0.7,
    "eta": 6.0,
    "comparing": True,
    "more": True,
    "filter": "missed",
    "sort": "label",
    "decision": "undecided",
    "page": 0,
    "opened": 7,
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


def test_what_is_not_computed_is_restored_once_it_is(opened):
    dashboard, _ = opened()
    wanted = {"layer": "1", "tau": 0.25, "eta": 5.0, "filter": "clear", "sort": "safe"}
    dashboard.state = wanted
    assert not dashboard.computed
    assert dashboard.filter == "flagged"
    assert dashboard.state | wanted == dashboard.state
    dashboard.compute()
    dashboard.wait(60)
    assert dashboard.computed
    assert (dashboard.tau, dashboard.eta) == (0.25, 5.0)
    assert (dashboard.filter, dashboard.sort) == ("clear", "safe")


def test_another_choice_forgets_what_was_to_be_restored(opened):
    dashboard, _ = opened()
    dashboard.state = {"layer": "1", "filter": "clear"}
    dashboard.layer = "last"
    assert dashboard.state["filter"] == "flagged"
    dashboard.layer = "1"
    dashboard.compute()
    dashboard.wait(60)
    assert dashboard.filter == "flagged"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"colour": 1}, "unknown part of a state: 'colour'; valid: checkpoint, layer, metric"),
        ({"layer": "99", "metric": "loss"}, "unknown layer '99'; valid: '1', '2', 'last'"),
        ({"layer": 1}, "layer must be a text, not '1'"),
        ({"tau": "0.5"}, "tau must be a number, not '0.5'"),
        ({"tau": float("nan")}, "tau must be a finite number, not nan"),
        ({"eta": 10**400}, "eta must be a finite number"),
        ({"page": True}, "page must be a whole number, not 'True'"),
        ({"comparing": 1}, "comparing must be true or false, not '1'"),
        ({"filter": "all " * 99}, "unknown filter"),
        ({"decision": "burn"}, "burn"),
        ({"opened": 200}, "no sample at position 200"),
        ({"opened": -1}, "no sample at position -1"),
        ({"opened": "a"}, "opened must be"),
    ],
)
def test_a_wrong_state_is_refused_and_changes_no_choice(opened, state, message):
    dashboard, _ = opened()
    with pytest.raises(ValueError, match=message):
        dashboard.state = state
    assert dashboard.state["metric"] == "psmi"


def test_an_address_restores_a_view_and_follows_it(said):
    dashboard, _, told = said
    address(dashboard, json.dumps(VIEW))
    assert dashboard.state | VIEW == dashboard.state
    assert dashboard._message["text"] == ""
    assert told[-1] == {"type": "state", "state": dashboard.state}
    dashboard.tau = -0.5
    assert told[-1]["state"]["tau"] == -0.5
    dashboard.page = 1
    assert told[-1]["state"]["page"] == 1
    json.dumps(told)


def test_an_address_that_makes_no_sense_is_said_and_the_rest_is_restored(said):
    dashboard, _, _ = said
    wrong = {"layer": "<b>", "colour": 1, "tau": 0.5, "filter": "none", "page": -1}
    address(dashboard, json.dumps(wrong))
    text = dashboard._message["text"]
    for part in ("layer '<b>'", "'colour'", "filter 'none'", "not -1"):
        assert part in text
    assert dashboard.tau == 0.5
    assert dashboard.state["layer"] == "last"


def test_a_link_from_another_audit_is_said_and_the_rest_is_restored(said):
    dashboard, _, _ = said
    before = dashboard.tau
    address(dashboard, json.dumps({"tau": -1000.0, "opened": 99999, "filter": "missed"}))
    text = dashboard._message["text"]
    assert "-1000" in text
    assert "99999" in text
    assert (dashboard.tau, dashboard.opened, dashboard.filter) == (before, None, "missed")
    dashboard.state = {"tau": -1000.0}  # Python may
    assert dashboard.tau == -1000


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"a":' * 600, "[" * 5000, "9" * 3999, "NaN"])
def test_an_address_that_is_no_state(said, text):
    dashboard, _, _ = said
    before = dashboard.state
    address(dashboard, text)
    assert dashboard._message["text"] == "Not restored: it is no state of a dashboard."
    assert dashboard.state == before


def test_an_address_has_a_limit():
    assert usable(json.dumps({"sort": "a" * 5000})) == ({}, ["it is no state of a dashboard"])


def test_nothing_is_published_where_no_address_follows(opened, monkeypatch):
    dashboard, _ = opened()
    told = []
    monkeypatch.setattr(dashboard, "send", told.append)
    dashboard.tau = 0.3
    assert told == []


def test_what_is_new_is_offered_and_shown(opened):
    dashboard, source = opened(GrowingSource)
    dashboard._look()
    assert not dashboard.outdated
    source.more = True
    source.truth = False
    dashboard._look()
    assert dashboard.outdated
    assert dashboard.evaluation is not None
    dashboard._handle_custom_msg({"type": "refresh"}, [])
    assert not dashboard.outdated
    assert dashboard.evaluation is None  # what is on show was read again
    dashboard.checkpoint = "epoch-5"


def test_compute_does_not_offer_what_it_made(opened):
    dashboard, _ = opened(GrowingSource)
    dashboard.layer = "1"
    dashboard.compute()
    dashboard.wait(60)
    dashboard._look()
    assert not dashboard.outdated


def test_a_choice_that_is_gone_gives_way(opened):
    dashboard, source = opened(GrowingSource)
    source.more = True
    dashboard.refresh()
    dashboard.checkpoint = "epoch-5"
    source.more = False
    dashboard.refresh()
    assert dashboard.checkpoint == "epoch-2"
    assert dashboard.computed


def test_a_source_that_cannot_be_read_keeps_the_view(opened):
    dashboard, source = opened(GrowingSource)

    def fail():
        raise OSError("it is being written")

    source.revision = fail
    dashboard._look()
    assert not dashboard.outdated
    source.checkpoint_choices = fail
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
    packed = {c["value"]: c["usesLayer"] for c in dashboard._choices["metrics"]}
    assert packed == {"psmi": True, "loss": False, "logit_gap": True, "mahalanobis": True}
    dashboard.metric = "loss"
    dashboard.checkpoint = "epoch-3"
    assert "Below is still Loss, epoch 2" in dashboard._message["text"]


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


def test_a_closed_dashboard_is_not_kept_by_its_watch():
    dashboard = Dashboard(GrowingSource(n=50))
    reference = weakref.ref(dashboard)
    dashboard.close()
    del dashboard
    gc.collect()
    assert reference() is None
