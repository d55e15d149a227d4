"""A static summary of an audit: numbers only, for a cell that ends in one."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from memowidgets.audit.numbers.scores import metrics_of
from memowidgets.audit.source import Source
from memowidgets.visible import listed, visible

__all__ = ["summary_html"]

_MOST = 1000  # characters of a value


def summary_html(source: Source) -> str:
    """Return what is there, as a small table of escaped text."""
    of_arrays = source.checkpoints["step"].isna().any()  # nobody knows how they were trained
    facts = _facts_of_arrays(source) if of_arrays else _facts_of_run(source)
    return _table(f"Audit of {source.path}", facts)


def _table(caption: str, facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(visible(what))}</th>'
        f'<td style="text-align:left">{escape(visible(value, _MOST))}</td></tr>'
        for what, value in facts
    )
    return f"<table><caption>{escape(visible(caption))}</caption><tbody>{rows}</tbody></table>"


def _facts_of_arrays(source: Source) -> list[tuple[str, str]]:
    return [
        ("samples", f"{len(source.data)}, all of them members"),
        ("classes", str(len(source.data.class_names))),
        ("layers", listed(source.names.layer_names) or "no representations"),
        ("scores", ", ".join(metrics_of(source))),
        ("ground truth", source.truth_in_words),
        *[("warning", note) for note in source.notes_at("prediction")],
    ]


def _facts_of_run(source: Source) -> list[tuple[str, str]]:
    n_checkpoints, fork = len(source.checkpoints), source.manifest.get("fork")
    facts = [
        ("members", f"{len(source.member_rows)} of {len(source.data)} samples"),
        ("classes", str(len(source.data.class_names))),
        ("layers", listed(source.names.layer_names)),
        ("checkpoints", str(n_checkpoints)),
    ]
    if fork is not None:
        facts.append(("fork", f"of another run, from {fork['checkpoint'] or 'scratch'}"))
    noise = source.manifest["training"].get("label_noise")
    if noise:
        facts.append(("label noise", f"{noise:.1%} of the pool's labels"))
    if n_checkpoints > 1:
        chosen = source.names.prediction()
        facts.append(("prediction", f"{chosen.record.name}, drop {chosen.drop:.1%}"))
        facts += [("warning", note) for note in source.notes_at("prediction")]
    facts.append(("shadow models", str(len(source.shadows))))
    return facts
