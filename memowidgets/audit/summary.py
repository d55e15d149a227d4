"""A static summary of an audit: numbers only, for a cell that ends in one."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memowidgets.audit.audit import Audit

__all__ = ["summary_html"]


def summary_html(audit: Audit) -> str:
    """What is there, as a small table of escaped text."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(what)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for what, value in _facts(audit)
    )
    return f"<table><caption>Audit of {escape(audit.path)}</caption><tbody>{rows}</tbody></table>"


def _facts(audit: Audit) -> list[tuple[str, str]]:
    table = audit.checkpoints
    facts = [
        ("members", f"{len(audit.members)} of {len(audit.data)} samples"),
        ("classes", str(len(audit.data.class_names))),
        ("layers", ", ".join(audit.layers)),
        ("checkpoints", str(len(table))),
    ]
    if audit.training.label_noise:
        facts.append(("label noise", f"{audit.training.label_noise:.1%} of the pool's labels"))
    if len(table) > 1:
        chosen = audit.prediction
        facts.append(("prediction", f"{chosen.record.name}, drop {chosen.drop:.1%}"))
        facts += [("warning", note) for note in audit.warnings_at("prediction")]
    facts.append(("shadow models", str(audit.n_shadows)))
    return facts
