"""Malformed messages and trait values: a refusal changes nothing, and one answer says why."""

from __future__ import annotations

import json
import logging
import random

import numpy as np
import pytest
import traitlets

import memowidgets as mw
from tests.widgets.fake_source import FakeSource

SEED, ROUNDS = 20260, 150

VALUES = [
    None, True, False, 0, 1, -1, 10**400, 2**63, 0.5, float("nan"), float("inf"), -float("inf"),
    "", "x", "psmi", "\x1b[2J\u202e", "\ud800", "IPY_MODEL_x", "x" * 5000, [], [1], [[]], [None],
    ["a", 1], {}, {"a": 1}, {"x": {}}, [0.1] * 50, "1", "nan", {"type": "page"},
]  # fmt: skip
TYPES = [
    "select", "page", "detail", "decide", "share", "undo", "export", "compute", "check",
    "cancel", "refresh", "address", "log_lira", "said", "", None, 3, [], {}, "\x1b[31m",
]  # fmt: skip
FIELDS = [
    "request", "position", "positions", "page", "filter", "sort", "label", "search", "decision",
    "note", "expected", "only", "what", "layer", "checkpoint", "version", "text", "known",
]  # fmt: skip


class Comm:
    """Remembers what a widget sends."""

    comm_id = "comm"

    def __init__(self):
        self.sent = []

    def send(self, data=None, **_):
        self.sent.append(data)

    def close(self, *_args, **_kwargs):
        """Nothing."""

    def on_msg(self, *_):
        """Nothing."""


def dashboard():
    return mw.widgets.Dashboard(FakeSource(n=40, seconds=0))


def inspector():
    rows = [
        {"question": f"{n}?", "choices": ["x", "y"], "answer": n % 2, "id": str(n)}
        for n in range(6)
    ]
    data = mw.data.MCQDataset.from_records(rows)
    return mw.widgets.SampleInspector(data, np.linspace(-1, 1, 6), [True, False] * 3)


WIDGETS = {
    "explorer": lambda: mw.widgets.ThresholdExplorer([0.1, 0.2, 0.3], log_lira=[1.0, 5.0, 2.0]),
    "inspector": inspector,
    "dashboard": dashboard,
    "watch": mw.teaching.MemorizationPlayground,
    "psmi": mw.teaching.PSMIPlayground,
    "lira": mw.teaching.LiRAPlayground,
    "theorem": mw.teaching.TheoremPlayground,
}


@pytest.fixture(params=WIDGETS)
def widget(request, monkeypatch):
    made = WIDGETS[request.param]()
    made.comm.close()
    comm = Comm()
    monkeypatch.setattr(type(made), "comm", comm)
    made._sent = comm.sent
    yield made
    monkeypatch.undo()
    made.close()


def said(widget):
    """The custom messages that a widget has sent."""
    return [sent["content"] for sent in widget._sent if sent.get("method") == "custom"]


def state(widget):
    names = [name for name in widget.trait_names(sync=True) if not name.startswith("_")]
    return {name: repr(getattr(widget, name)) for name in names}


def hear(widget, data):
    widget._handle_msg({"content": {"data": data}, "buffers": []})


def messages(seed):
    """Malformed messages, the same ones each time."""
    drawn = random.Random(seed)
    for _ in range(ROUNDS):
        content = {"type": drawn.choice(TYPES)}
        for field in drawn.sample(FIELDS, drawn.randint(0, 6)):
            content[field] = drawn.choice(VALUES)
        yield drawn.choice([content, content, content, drawn.choice(VALUES)])


@pytest.fixture
def logged(caplog, capsys):
    """What reached the log or a terminal; a traceback there is a failure."""
    caplog.set_level(logging.WARNING)
    yield caplog
    assert caplog.records == []
    assert "Traceback" not in "".join(capsys.readouterr())


def test_a_malformed_message_ends_in_at_most_one_refusal(widget, logged):
    tried = refused = 0
    for content in messages(SEED):
        widget._sent.clear()
        before = state(widget)
        hear(widget, {"method": "custom", "content": content})
        refusals = [one for one in said(widget) if one.get("done") is False]
        assert len(refusals) <= 1, (content, refusals)
        for one in refusals:
            assert one["text"], content
            assert len(one["text"]) <= 600
            assert state(widget) == before, content
            json.dumps(one, allow_nan=True).encode()
        tried, refused = tried + 1, refused + len(refusals)
    assert refused > tried // 4
    print(f"{tried} messages, {refused} refused")


def test_a_trait_that_is_refused_stays_and_is_answered(widget, logged):
    drawn = random.Random(SEED)
    names = [n for n in widget.trait_names(sync=True) if not n.startswith("_")]
    refused = 0
    for name in (n for n in names if n not in {"layout", "tabbable", "tooltip", "children"}):
        for value in VALUES:
            widget._sent.clear()
            before = state(widget)
            other = drawn.choice(names)
            hear(widget, {"method": "update", "state": {name: value}})
            refusals = said(widget)
            refusals = [one for one in refusals if one.get("done") is False]
            if state(widget) == before and refusals:
                (one,) = refusals
                assert one["text"]
                refused += 1
            assert not refusals or state(widget) == before, (name, value, other)
    assert refused


SIZES = [
    {"n": 10**9, "seed": 0}, {"n": -1}, {"points": 10**11, "labels": 10**11}, {"from_python": True},
    {"points": "x", "labels": []}, {"points": [0.0] * 4, "labels": [0, 1]}, [10**30] * 100,
    {"metrics": "x", "checkpoints": {}}, ["IPY_MODEL_x"], "IPY_MODEL_", "x" * 100_000,
    [[[]]] * 1000, {str(n): n for n in range(1000)},
]  # fmt: skip
RIGHT = {  # a change that each must answer, and what the answer is
    "ThresholdExplorer": ({"tau": 0.2, "tau_committed": 0.2}, lambda w: w.counts["flagged"] == 2),
    "SampleInspector": ({"filter": "all"}, lambda w: w.filter == "all"),
    "Dashboard": ({"filter": "all", "tau": 0.5, "tau_committed": 0.5}, lambda w: w.tau == 0.5),
    "MemorizationPlayground": ({"width": 32}, lambda w: w.width == 32),
    "PSMIPlayground": ({"selected": 7}, lambda w: w.selected == 7),
    "LiRAPlayground": ({"n_shadows": 32}, lambda w: w.n_shadows == 32),
    "TheoremPlayground": ({"epsilon": 0.31}, lambda w: w.epsilon == 0.31),
}


def test_after_any_value_of_any_trait_the_next_right_message_is_answered(widget, logged):
    right, answered = RIGHT[type(widget).__name__]
    private = {name for name in widget.keys if name.startswith("_")}
    before = {name: repr(getattr(widget, name)) for name in private}
    from_page = {name for name in private if widget.trait_metadata(name, "page")}
    for name in widget.keys:
        told = name in private - from_page  # by Python alone: the value is not even looked at
        for value in SIZES[::4] if told else [*VALUES[::4], *SIZES]:
            hear(widget, {"method": "update", "state": {name: value}})
    steady = {"_first", "_given", "_choices", "_esm", "_model_module", "_view_name"}
    for name in steady & private:
        assert repr(getattr(widget, name)) == before[name], name
    assert from_page <= {"_cloud", "_results"}
    widget._sent.clear()
    hear(widget, {"method": "update", "state": right})
    assert answered(widget)
    assert [one for one in said(widget) if one.get("done") is False] == []


def test_in_python_a_refused_value_is_a_trait_error_and_what_it_was_before():
    explorer = mw.widgets.ThresholdExplorer([0.1, 0.2])
    try:
        with pytest.raises(traitlets.TraitError, match="finite"):
            explorer.tau = float("nan")
        with pytest.raises(ValueError, match="finite"):
            explorer.tau = float("nan")
        assert explorer.tau == 0
        with pytest.raises(traitlets.TraitError), explorer.hold_trait_notifications():
            explorer.tau = float("inf")
        assert explorer.tau == 0
    finally:
        explorer.close()
    inspector = WIDGETS["inspector"]()
    try:
        with pytest.raises(traitlets.TraitError), inspector.hold_trait_notifications():
            inspector.filter = "nonsense"
        assert inspector.filter == "flagged"
        with pytest.raises(traitlets.TraitError), inspector.hold_trait_notifications():
            inspector.selected = 99
        assert inspector.selected is None
    finally:
        inspector.close()
