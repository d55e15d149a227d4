"""Members with what is known of each, as a table and as a file: flagged ones, or all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from memowidgets.audit.evidence import LOGITS, Evidence
from memowidgets.audit.numbers.scores import (
    Floats,
    Labels,
    Metric,
    checked_rule,
    notes_on_zero,
    of_members,
    probabilities,
    scored_members,
)
from memowidgets.audit.numbers.truth import member_log_lira, support
from memowidgets.checks import id_text, is_missing, real_number, warn_user
from memowidgets.data import WithheldDataset
from memowidgets.data.dataset import kind_of_sample, value_of, writable
from memowidgets.decisions import UNDECIDED, DecisionLog, csv_text
from memowidgets.evaluation.scored import LowestShare, Rule, Scored
from memowidgets.store import StoreError
from memowidgets.training.checkpoint import Record

if TYPE_CHECKING:
    import os

SUFFIXES = (".csv", ".jsonl")
Which = Literal["flagged", "flagged or decided", "all"]


def listed_members(
    evidence: Evidence,
    log: DecisionLog,
    metric: str | Metric,
    layer: str | int,
    checkpoint: str | float,
    tau: Rule | str,
    share: float | None,
    eta: float,
    *,
    which: Which = "flagged",
    samples: bool = False,
) -> pd.DataFrame:
    """Return the table that `Audit.export` writes, most at risk first.

    `which` says of which members, and the other arguments are those of `Audit.export`.

    Raises
    ------
    StoreError
        If decisions cannot be read, or samples are asked for and are not at hand.
    """
    data = evidence.member_data
    if samples and isinstance(data, WithheldDataset):
        raise StoreError(
            f"the samples are not at hand, only their ids: give {data.hint}"
        )
    log.refresh()
    if log.unread:
        raise StoreError(log.unread)
    table, found, rule = judged_table(evidence, metric, layer, checkpoint, tau, share)
    counts = support(evidence, real_number("eta", eta))
    if counts is not None:
        table["memorized_by"] = pd.Series(counts.memorized, table.index).astype("Int64")
        table["learned_by"] = counts.models
    words = np.full(len(table), "", dtype=object)
    words[found.positions] = found.status(rule, eta)
    table["status"] = words
    decided = log.table()
    made = [decided.get(name, UNDECIDED) for name in evidence.members.tolist()]
    table["decision"] = [one.decision for one in made]
    table["to"] = [one.to for one in made]
    table["note"] = [one.note for one in made]
    wanted = np.full(len(table), which == "all")
    wanted[found.positions] |= found.flagged(rule)
    if which == "flagged or decided":
        wanted |= (table["decision"] != UNDECIDED.decision).to_numpy()
    chosen = table[wanted].sort_values("score", kind="stable")
    if not samples:
        return chosen
    rows = table.index.get_indexer(chosen.index).tolist()
    content = pd.DataFrame(
        [_fields(data[row]) for row in rows], chosen.index, dtype=object
    )
    for name in content.columns:
        free = name
        while free in chosen or free == "id":
            free += "_"
        chosen = chosen.assign(**{free: content[name]})
    return chosen


def _answers(evidence: Evidence, record: Record) -> tuple[Labels, Floats]:
    """Return the most probable class of each member, and the probability of its label."""
    made = evidence.checkpoints[record.name].made
    if "guess" not in made:
        of_classes = probabilities(evidence, record.name)
        of_label: Floats = of_classes[np.arange(len(evidence.labels)), evidence.labels]
        return of_classes.argmax(axis=1), of_label
    # of a recording, beside rounded logits or none
    guesses = made["guess"].astype(np.int64)
    if "p_label" in made:
        return guesses, made["p_label"].astype(np.float64)
    return guesses, np.exp(-made["losses"].astype(np.float64))


def checked_selection(tau: Rule | str, share: float | None) -> Rule:
    """Return what flags: the lowest share of the scores, or a threshold.

    Raises
    ------
    TypeError, ValueError
        If both are given, or `tau` is neither a number nor "class".
    """
    if tau is not None and share is not None:
        raise ValueError("give tau= or share=, not both")
    return checked_rule(tau) if share is None else LowestShare(share)


def judged_table(
    evidence: Evidence,
    metric: str | Metric,
    layer: str | int,
    checkpoint: str | float,
    tau: Rule | str,
    share: float | None,
) -> tuple[pd.DataFrame, Scored, Rule]:
    """Return a row for each member, those that have a score, and what flags them.

    A member without a score has NaN in its row.
    """
    rule = checked_selection(tau, share)
    found = scored_members(evidence, metric, layer, checkpoint)
    on_zero = notes_on_zero(metric, found) if found.on(rule) == (found, 0) else ()
    notes = (*evidence.notes_at(checkpoint), *found.notes, *on_zero)
    for note in notes:
        warn_user(note)  # the caller of the audit's method
    table = pd.DataFrame(index=evidence.member_index)
    table.attrs["notes"] = notes
    table["score"] = of_members(found.scores, found.positions, len(table))
    if found.errors is not None:
        table["std"] = of_members(found.errors, found.positions, len(table))
    names = np.array(evidence.data.class_names)
    table["label"] = names[evidence.labels]
    if LOGITS in evidence.kinds:
        guess, p_label = _answers(evidence, evidence.names.record(checkpoint))
        table["guess"], table["p_label"] = names[guess], p_label
    canaries = evidence.data.canaries
    if canaries is not None:
        table["canary"] = canaries[evidence.member_rows]
    truth = member_log_lira(evidence)
    if truth is not None:
        table["log_lira"] = truth
    return table, found, rule


def target_of(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the file to write to.

    Raises
    ------
    ValueError
        If its name ends otherwise, or it lies in a run directory.
    FileExistsError
        If it exists and `overwrite` is False.
    """
    target = writable(path, overwrite=overwrite)
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{target.name} must end in .csv or .jsonl, which says how the table is written"
        )
    return target


def as_text(table: pd.DataFrame, suffix: str) -> str:
    """Return a table by id as CSV (".csv") or JSON Lines (".jsonl")."""
    names = ["id", *map(str, table.columns)]
    rows = [
        [id_text(name), *map(plain, values)]
        for name, *values in table.astype(object).itertuples(name=None)
    ]
    if suffix == ".csv":
        return csv_text(names, [[_cell(value) for value in row] for row in rows])
    lines = [
        json.dumps(dict(zip(names, row, strict=True)), allow_nan=False) for row in rows
    ]
    return "".join(f"{line}\n" for line in lines)


def _fields(sample: Any) -> Mapping[str, Any]:
    kind = kind_of_sample(sample)
    if kind == "text":
        return {"text": sample}
    if kind == "record":
        return {"text": value_of(sample, "text")}
    if kind == "question":
        own = {"question": sample.question, "choices": list(sample.choices)}
        return own | dict(getattr(sample, "attributes", {}))
    if kind == "row":
        fields: Mapping[str, Any] = sample.values  # noqa: PD011 - a sample's, not a frame's
        return fields
    return {}


def plain(value: Any) -> Any:
    """Return a value as JSON has it, with None for one that is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list):
        return value
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else str(value)
    return None if is_missing(value) else value


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
