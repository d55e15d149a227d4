"""A page's part in tests: it says a message to a widget, and hears the answers."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from memowidgets.widgets.messages import FromKernel, fields, mismatch

__all__ = ["say", "say_all"]


def say_all(widget: Any, kind: str, **content: Any) -> list[tuple[dict[str, Any], list[bytes]]]:
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


def check(answer: dict[str, Any]) -> None:
    """A message of the kernel is of one of the listed types, and of no more parts."""
    kinds = [k for k in get_args(FromKernel) if answer["type"] in get_args(fields(k)["type"])]
    problems = {k.__name__: mismatch(answer, k, "the answer") for k in kinds}
    assert "" in problems.values(), (problems, answer)
    assert any(set(answer) <= set(fields(k)) for k in kinds), answer
