"""A page's part in tests: it says a message to a widget, and hears the answers."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from memowidgets.widgets import sent
from memowidgets.widgets.messages import fields, mismatch
from scripts.jsdoc import messages_of

__all__ = [
    "LISTED",
    "compute",
    "page_of",
    "say",
    "say_all",
    "told",
]

# every type of what Python sends, by its name
LISTED: dict[str, Any] = {kind.__name__: kind for kind in messages_of(sent)}


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
    kinds = get_args(sent.FromKernel)
    kinds = [kind for kind in kinds if answer["type"] in get_args(fields(kind)["type"])]
    problems = {kind.__name__: mismatch(answer, kind, "the answer") for kind in kinds}
    assert "" in problems.values(), (problems, answer)
    assert any(set(answer) <= set(fields(kind)) for kind in kinds), answer
