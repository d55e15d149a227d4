"""A static summary of an audit: numbers only, for a cell that ends in one."""

from __future__ import annotations

from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.ladder import next_steps
from memowidgets.audit.numbers.scores import metrics_of
from memowidgets.visible import listed
from memowidgets.widgets.standin import table

__all__ = ["summary_html"]


def summary_html(evidence: Evidence) -> str:
    """Return the main facts of an audit as a small HTML table of escaped text."""
    facts = _facts_of_arrays if evidence.kind == "arrays" else _facts_of_run
    return table(f"Audit of {evidence.path}", facts(evidence))


def _facts_of_arrays(evidence: Evidence) -> list[tuple[str, str]]:
    return [
        ("samples", f"{len(evidence.data)}, all of them members"),
        ("classes", str(len(evidence.data.class_names))),
        ("layers", listed(evidence.names.layer_names) or "no representations"),
        ("scores", ", ".join(metrics_of(evidence))),
        ("ground truth", evidence.truth_in_words),
        *[("warning", note) for note in evidence.notes_at("prediction")],
    ]


def _facts_of_run(evidence: Evidence) -> list[tuple[str, str]]:
    n_checkpoints, fork = len(evidence.names.found), evidence.manifest.get("fork")
    facts = [
        ("members", f"{len(evidence.member_rows)} of {len(evidence.data)} samples"),
        ("classes", str(len(evidence.data.class_names))),
        ("layers", listed(evidence.names.layer_names)),
        ("checkpoints", str(n_checkpoints)),
    ]
    if fork is not None:
        facts.append(("fork", f"of another run, from {fork['checkpoint'] or 'scratch'}"))
    noise = evidence.manifest["training"].get("label_noise")
    if noise:
        facts.append(("label noise", f"{noise:.1%} of the pool's labels"))
    if n_checkpoints > 1:
        chosen = evidence.names.prediction()
        facts.append(("prediction", f"{chosen.record.name}, drop {chosen.drop:.1%}"))
        facts += [("warning", note) for note in evidence.notes_at("prediction")]
    facts.append(("reference models", str(len(evidence.references.indices))))
    facts.append(("shadow models", str(evidence.n_shadows)))
    return [*facts, *(("next", step) for step in next_steps(evidence))]
