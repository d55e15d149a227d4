"""Messages and traits are of the types that Python lists, and JavaScript's types are those."""

from __future__ import annotations

from typing import get_args

from memowidgets.widgets import Dashboard, SampleInspector
from memowidgets.widgets.messages import FromPage, fields, mismatch
from scripts.jsdoc import FILE, as_javascript
from tests.widgets.page import LISTED, say_all


def test_the_types_of_javascript_are_those_of_python():
    written = FILE.read_text("utf-8")
    assert written == as_javascript(), "run python -m scripts.jsdoc"


def test_every_message_of_a_page_is_heard():
    kinds = {kind for of in get_args(FromPage) for kind in get_args(fields(of)["type"])}
    heard = {
        name.removeprefix("_hear_")
        for name in dir(Dashboard)
        if name.startswith("_hear_")
    }
    assert heard == kinds
    assert {"page", "detail", "decide"} <= {
        name.removeprefix("_hear_")
        for name in dir(SampleInspector)
        if name.startswith("_hear_")
    }


def test_what_a_dashboard_says_and_keeps_in_traits_is_listed(opened):
    dashboard, _ = opened(n=60, seconds=0)
    shown = {
        "tau": 0.1,
        "filter": "all",
        "sort": "risk",
        "decision": "any",
        "search": "a",
    }
    for kind, content in (
        ("page", {"request": "1", "page": 0, **shown}),
        ("detail", {"request": "2", "position": 3, "known": False, **shown}),
        ("detail", {"request": "3", "position": 99, **shown}),
        ("decide", {"positions": [1], "decision": "remove", "note": "why"}),
        ("undo", {}),
        ("export", {"request": "4"}),
        ("log_lira", {"version": dashboard.get_state()["_data"]["version"]}),
        ("address", {"text": '{"tau": 0.2}'}),
    ):
        # each is compared with the list
        assert say_all(dashboard, kind, **content), kind
    dashboard.comparing = [dashboard.get_state()["_beside"]]
    assert dashboard.wait(30)
    kept = dashboard.get_state()
    traits = {"_data": "ScoresShown", "_truth": "TruthShown", "_late": "Late", "_work": "Work",
              "_compared": "ComparedShown"}  # fmt: skip
    parts = [(kept[name], LISTED[kind]) for name, kind in traits.items()]
    parts += [(one, LISTED["Area"]) for one in kept["_compared"]["areas"]]
    parts += [
        (one, LISTED["Picked"])
        for choices in kept["_choices"].values()
        for one in choices
    ]
    for value, kind in parts:
        assert mismatch(value, kind, kind.__name__) == ""
        assert value.keys() == fields(kind).keys()
