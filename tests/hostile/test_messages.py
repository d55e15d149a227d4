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
SIZES = [
    {"n": 10**9, "seed": 0}, {"n": -1}, {"points": 10**11, "labels": 10**11}, {"from_python": True},
    {"points": "x", "labels": []}, {"points": [0.0] * 4, "labels": [0, 1]}, [10**30] * 100,
    {"metrics": "x", "checkpoints": {}}, ["IPY_MODEL_x"], "IPY_MODEL_", "x" * 100_000,
    [[[]]] * 1000, {str(n): n for n in range(1000)},
]  # fmt: skip
TYPES = [
    "select", "page", "detail", "decide", "share", "undo", "export", "compute", "check",
    "references", "cancel", "refresh",
    "address", "log_lira", "said", "", None, 3, [], {}, "\x1b[31m",
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

    on_msg = close


def inspector():
    rows = [
        {"question": f"{n}?", "choices": ["x", "y"], "answer": n % 2, "id": str(n)}
        for n in range(6)
    ]
    data = mw.data.MCQDataset.from_records(rows)
    return mw.widgets.SampleInspector(data, np.linspace(-1, 1, 6), [True, False] * 3)


WIDGETS = {  # how each is made, and a change that it must answer, whatever was said before
    "explorer": (
        lambda: mw.widgets.ThresholdExplorer([0.1, 0.2, 0.3], log_lira=[1.0, 5.0, 2.0]),
        {"tau": 0.2, "tau_committed": 0.2},
    ),
    "inspector": (inspector, {"filter": "all"}),
    "dashboard": (
        lambda: mw.widgets.Dashboard(FakeSource(n=40, seconds=0)),
        {"filter": "all", "tau": 0.5, "tau_committed": 0.5},
    ),
    "watch": (mw.teaching.MemorizationPlayground, {"width": 32}),
    "psmi": (mw.teaching.PSMIPlayground, {"selected": 7}),
    "lira": (mw.teaching.LiRAPlayground, {"n_shadows": 32}),
    "theorem": (mw.teaching.TheoremPlayground, {"epsilon": 0.31}),
}


@pytest.fixture(params=WIDGETS)
def widget(request, monkeypatch, caplog, capsys):
    """A widget that hears nonsense; a traceback in the log or a terminal is a failure."""
    caplog.set_level(logging.WARNING)
    make, right = WIDGETS[request.param]
    made = make()
    made.comm.close()
    comm = Comm()
    monkeypatch.setattr(type(made), "comm", comm)
    made._sent, made._right = comm.sent, right
    yield made
    monkeypatch.undo()
    made.close()
    assert caplog.records == []
    assert "Traceback" not in "".join(capsys.readouterr())


def state(widget):
    names = [name for name in widget.trait_names(sync=True) if not name.startswith("_")]
    return {name: repr(getattr(widget, name)) for name in names}


def refusals(widget, data):
    """Let a widget hear a message, and return what it refuses."""
    widget._sent.clear()
    widget._handle_msg({"content": {"data": data}, "buffers": []})
    said = [sent["content"] for sent in widget._sent if sent.get("method") == "custom"]
    return [one for one in said if one.get("done") is False]


def messages(seed):
    """Malformed messages, the same ones each time."""
    drawn = random.Random(seed)
    for _ in range(ROUNDS):
        content = {"type": drawn.choice(TYPES)}
        for field in drawn.sample(FIELDS, drawn.randint(0, 6)):
            content[field] = drawn.choice(VALUES)
        yield drawn.choice([content, content, content, drawn.choice(VALUES)])


def test_a_malformed_message_ends_in_at_most_one_refusal(widget):
    refused = 0
    for content in messages(SEED):
        before = state(widget)
        found = refusals(widget, {"method": "custom", "content": content})
        assert len(found) <= 1, (content, found)
        for one in found:
            assert 0 < len(one["text"]) <= 600, content
            assert state(widget) == before, content
            json.dumps(one, allow_nan=True).encode()
        refused += len(found)
    assert refused > ROUNDS // 4


def test_a_refused_value_changes_nothing_and_the_next_right_message_is_answered(widget):
    private = {name for name in widget.keys if name.startswith("_")}
    before = {name: repr(getattr(widget, name)) for name in private}
    from_page = {name for name in private if widget.trait_metadata(name, "page")}
    refused = 0
    for name in widget.keys:
        # by Python alone: the value is not even looked at
        told = name in private - from_page
        for value in SIZES[::4] if told else [*VALUES, *SIZES]:
            seen = state(widget)
            found = refusals(widget, {"method": "update", "state": {name: value}})
            assert not found or state(widget) == seen, (name, value)
            assert all(one["text"] for one in found)
            refused += len(found)
    assert refused
    steady = {"_first", "_given", "_choices", "_esm", "_model_module", "_view_name"}
    for name in steady & private:
        assert repr(getattr(widget, name)) == before[name], name
    assert from_page <= {"_cloud", "_results"}
    assert refusals(widget, {"method": "update", "state": widget._right}) == []
    assert {name: getattr(widget, name) for name in widget._right} == widget._right


@pytest.mark.parametrize(("trait", "value"), [("filter", "nonsense"), ("selected", 99)])
def test_in_python_a_refused_value_is_an_error_and_what_it_was_before(trait, value):
    made = inspector()
    before = getattr(made, trait)
    try:
        with pytest.raises(traitlets.TraitError):
            setattr(made, trait, value)
        with pytest.raises(traitlets.TraitError), made.hold_trait_notifications():
            setattr(made, trait, value)
        assert getattr(made, trait) == before
    finally:
        made.close()
