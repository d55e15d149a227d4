"""Static tables of numbers for places where no widget can run. They contain no sample."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from memowidgets.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["bundle", "table", "with_interval"]

_MOST = 1000  # characters of a value


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table with two columns of escaped text."""
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{html.escape(visible(name))}</th>'
        f'<td style="text-align:right">{html.escape(visible(value, _MOST))}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{html.escape(visible(title))}</caption><tbody>{body}</tbody></table>"


def with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    """Return a rate with its 95 % interval as text, or "none"."""
    if value is None or interval is None:
        return "none"
    return f"{value:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


def bundle(widget_bundle: Any, text: str, markup: str) -> Any:
    """Add a text and a table to a widget's MIME bundle, for front ends without widgets."""
    if widget_bundle is None:
        return None
    data, metadata = widget_bundle if isinstance(widget_bundle, tuple) else (widget_bundle, {})
    return {**data, "text/plain": text, "text/html": markup}, metadata
