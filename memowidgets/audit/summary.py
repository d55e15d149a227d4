"""A static summary of an audit: numbers only, for a cell that ends in one."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from memowidgets.visible import listed, visible

if TYPE_CHECKING:
    from memowidgets.audit.audit import Audit

__all__ = ["facts_html", "summary_html"]

_MOST = 1000  # characters of a value


def summary_html(audit: Audit) -> str:
    """What is there, as a small table of escaped text."""
    return facts_html(f"Audit of {audit.path}", _facts(audit))


def facts_html(caption: str, facts: Iterable[tuple[str, str]]) -> str:
    """Names and values as a small table of escaped text."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(visible(what))}</th>'
        f'<td style="text-align:left">{escape(visible(value, _MOST))}</td></tr>'
        for what, value in facts
    )
    return f"<table><caption>{escape(visible(caption))}</caption><tbody>{rows}</tbody></table>"


def _facts(audit: Audit) -> list[tuple[str, str]]:
    table = audit.checkpoints
    facts = [
        ("members", f"{len(audit.members)} of {len(audit.data)} samples"),
        ("classes", str(len(audit.data.class_names))),
        ("layers", listed(audit.layers)),
        ("checkpoints", str(len(table))),
    ]
    if audit.forked is not None:
        facts.append(("fork", f"of another run, from {audit.forked['checkpoint'] or 'scratch'}"))
    if audit.training.label_noise:
        facts.append(("label noise", f"{audit.training.label_noise:.1%} of the pool's labels"))
    if len(table) > 1:
        chosen = audit.prediction
        facts.append(("prediction", f"{chosen.record.name}, drop {chosen.drop:.1%}"))
        facts += [("warning", note) for note in audit.warnings_at("prediction")]
    facts.append(("shadow models", str(audit.n_shadows)))
    return facts
