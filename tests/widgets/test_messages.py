"""Messages of page and kernel are listed twice, in Python and in JavaScript: both agree."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import memowidgets
from memowidgets.widgets import Dashboard, SampleInspector, messages
from memowidgets.widgets.messages import FromKernel, FromPage, fields
from tests.widgets.fake_source import FakeSource
from tests.widgets.page import say_all

STATIC = Path(memowidgets.__file__).parent / "widgets" / "static"
TEXT = (STATIC / "messages.js").read_text("utf-8")
PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", NoneType: "null",
         bytes: "Bytes", Any: "any"}  # fmt: skip


def in_typescript(hint: Any) -> str:
    origin, parts = get_origin(hint), [in_typescript(part) for part in get_args(hint)
                                       if get_origin(hint) is not Literal]  # fmt: skip
    if is_typeddict(hint):
        return str(hint.__name__)
    if origin is NotRequired:
        return parts[0]
    if origin in (Union, UnionType):
        return " | ".join(parts)
    if origin is Literal:
        return f'"{get_args(hint)[0]}"'
    if origin is list:
        return f"({parts[0]})[]" if " | " in parts[0] else f"{parts[0]}[]"
    if origin is tuple:
        return f"[{', '.join(parts)}]"
    return f"Record<string, {parts[1]}>" if origin is dict else PLAIN[hint]


def in_python() -> dict[str, dict[str, str]]:
    """Each message's parts, spelled as JSDoc does."""
    found = {}
    for name, kind in vars(messages).items():
        if is_typeddict(kind) and kind.__module__ == messages.__name__:
            hints = get_type_hints(kind, include_extras=True)
            optional = kind.__optional_keys__
            found[name] = {
                f"[{part}]" if part in optional else part: in_typescript(hint)
                for part, hint in hints.items()
            }
    return found


def in_javascript() -> dict[str, dict[str, str]]:
    """The same of messages.js."""
    blocks = re.findall(r"@typedef \{object\} (\w+)\n(.*?)\*/", TEXT, re.DOTALL)
    return {
        name: {part: kind for kind, part in re.findall(r"@property \{(.*)\} (\S+)", body)}
        for name, body in blocks
    }


def test_both_lists_have_the_same_messages_with_the_same_parts():
    here, there = in_python(), in_javascript()
    assert here.keys() == there.keys()
    assert {name: parts for name, parts in here.items() if parts != there[name]} == {}


def test_both_lists_say_who_sends_what():
    for name, sent in (("FromPage", FromPage), ("FromKernel", FromKernel)):
        listed = re.search(rf"@typedef \{{(.*)\}} {name} ", TEXT)[1]
        assert listed == in_typescript(sent)


def test_every_message_of_a_page_is_heard():
    kinds = {get_args(fields(message)["type"])[0] for message in get_args(FromPage)}
    assert {kind for kind in kinds if not hasattr(Dashboard, f"_hear_{kind}")} == set()
    heard = {name.removeprefix("_hear_") for name in dir(Dashboard) if name.startswith("_hear_")}
    assert heard == kinds
    assert {"page", "detail", "decide"} <= {
        name.removeprefix("_hear_") for name in dir(SampleInspector) if name.startswith("_hear_")
    }


def test_what_a_dashboard_says_is_listed():
    dashboard = Dashboard(FakeSource(n=60, seconds=0))
    shown = {
        "tau": 0.1,
        "filter": "all",
        "sort": "risk",
        "decision": "any",
        "label": None,
        "between": None,
    }
    try:
        for kind, content in (
            ("page", {"request": "1", "page": 0, **shown}),
            ("detail", {"request": "2", "position": 3, "known": False, **shown}),
            ("detail", {"request": "3", "position": 99, **shown}),
            ("decide", {"positions": [1], "decision": "remove", "note": "why"}),
            ("decide", {"expected": "", "decision": "keep", **shown}),
            ("undo", {}),
            ("export", {"request": "4"}),
            ("log_lira", {"version": dashboard._data["version"]}),
            ("address", {"text": '{"tau": 0.2}'}),
            ("compute_at", {"layer": "last", "checkpoint": "epoch-2"}),
        ):
            assert say_all(dashboard, kind, **content), kind  # each is compared with the list
    finally:
        dashboard.close()


def test_what_a_dashboard_keeps_in_traits_is_listed():
    dashboard = Dashboard(FakeSource(n=60, seconds=0))
    dashboard.comparing = True
    assert dashboard._worker.wait(30)
    traits = {
        "_data": messages.ScoresShown,
        "_truth": messages.TruthShown,
        "_late": messages.Late,
        "_work": messages.Work,
    }
    try:
        for name, kind in traits.items():
            value = getattr(dashboard, name)
            assert messages.mismatch(value, kind, name) == ""
            assert value.keys() == fields(kind).keys()
        for choice in (c for choices in dashboard._choices.values() for c in choices):
            assert messages.mismatch(choice, messages.Picked, "choice") == ""
    finally:
        dashboard.close()
