"""A static summary of an audit: numbers only, for a cell that ends in one."""

from __future__ import annotations

from memowidgets.audit.numbers.scores import metrics_of
from memowidgets.audit.source import Source
from memowidgets.visible import listed
from memowidgets.widgets.standin import table

__all__ = ["summary_html"]


def summary_html(source: Source) -> str:
    """Return the main facts of an audit as a small HTML table of escaped text."""
    of_arrays = source.checkpoints["step"].isna().any()  # the training is unknown
    facts = _facts_of_arrays(source) if of_arrays else _facts_of_run(source)
    return table(f"Audit of {source.path}", facts)


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
