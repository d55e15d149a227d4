"""A page's part in tests: it says a message to a widget, and hears the answers."""

from __future__ import annotations

import operator
import re
from functools import reduce
from typing import Any, Literal, NotRequired, TypedDict, get_args

import pytest

from memowidgets.widgets.messages import fields, mismatch
from memowidgets.widgets.widget import STATIC

__all__ = [
    "LISTED",
    "SENT",
    "SPELLED",
    "compute",
    "page_of",
    "read",
    "say",
    "say_all",
    "told",
]

TEXT = (STATIC / "messages.js").read_text("utf-8")
PLAIN = {"string": str, "boolean": bool, "Bytes": bytes, "null": None}
LISTED: dict[str, Any] = {}


def read(kind: str, number: type = float) -> Any:
    """The type that JSDoc spells so."""

    def of(text: str) -> Any:
        parts = apart(text, "|")
        if len(parts) > 1 and text.startswith('"'):
            return Literal[tuple(part[1:-1] for part in parts)]
        if len(parts) > 1:
            return reduce(operator.or_, map(of, parts))
        if text.endswith("[]"):
            inner = text[:-2]
            return list[of(inner[1:-1] if inner.startswith("(") else inner)]
        if text.startswith("["):
            return tuple[tuple(map(of, apart(text[1:-1], ",")))]
        if text.startswith("Record<string, "):
            return dict[str, of(text.removeprefix("Record<string, ")[:-1])]
        if text.startswith('"'):
            return Literal[text[1:-1]]
        return (
            number
            if text == "number"
            else PLAIN[text]
            if text in PLAIN
            else LISTED[text]
        )

    return of(kind)


def apart(text: str, mark: str) -> list[str]:
    """The parts of a type, between marks that no bracket holds."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([<") - (letter in ")]>")
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


SPELLED = {  # the types of each message's parts as text; a part in brackets is optional
    name: {part: kind for kind, part in re.findall(r"@property \{(.*)\} (\S+)", body)}
    for name, body in re.findall(
        r"@typedef \{object\} (\w+)\n(.*?)\*/", TEXT, re.DOTALL
    )
}
for name, parts in SPELLED.items():
    hints = {
        part.strip("[]"): NotRequired[read(kind)]
        if part.startswith("[")
        else read(kind)
        for part, kind in parts.items()
    }
    LISTED[name] = TypedDict(name, hints)
SENT = {  # the messages of the page, and of the kernel
    name: kinds.split(" | ")
    for kinds, name in re.findall(r"@typedef \{(\w+ \|.*)\} (From\w+)", TEXT)
}


def say_all(
    widget: Any, kind: str, **content: Any
) -> list[tuple[dict[str, Any], list[bytes]]]:
    """Send a message; the answers given at once, each of which is a message that is listed."""
    heard: list[tuple[dict[str, Any], list[bytes]]] = []
    with pytest.MonkeyPatch.context() as patch:
        hear = lambda content, buffers=None: heard.append((content, buffers or []))  # noqa: E731
        patch.setattr(widget, "send", hear)
        widget._handle_custom_msg({"type": kind, **content}, [])
    for answer, _ in heard:
        check(answer)
    return heard


def say(widget: Any, kind: str, **content: Any) -> Any:
    """Send a message; the last answer."""
    return say_all(widget, kind, **content)[-1][0]


def compute(dashboard: Any) -> None:
    """Press Compute, and wait until there is an answer."""
    dashboard.compute()
    assert dashboard.wait(60)


def page_of(inspector: Any, **asked: Any) -> Any:
    """The page of samples that the front end would get."""
    question = {"request": "r", "page": 0, "filter": "all", "sort": "order"}
    return say(inspector, "page", **{**question, **asked})


def told(widget: Any, name: str) -> Any:
    """A trait of the page's own."""
    return widget.get_state()[f"_{name}"]


def check(answer: dict[str, Any]) -> None:
    """A message of the kernel is of one of the listed types, and of no more parts."""
    kinds = [LISTED[name] for name in SENT["FromKernel"]]
    kinds = [kind for kind in kinds if answer["type"] in get_args(fields(kind)["type"])]
    problems = {kind.__name__: mismatch(answer, kind, "the answer") for kind in kinds}
    assert "" in problems.values(), (problems, answer)
    assert any(set(answer) <= set(fields(kind)) for kind in kinds), answer
