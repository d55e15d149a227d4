"""The sentences of a report, and its tables as rows of texts."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from memowidgets.evaluation import clopper_pearson
from memowidgets.evaluation.scored import BY_CLASS
from memowidgets.registry import find_row
from memowidgets.vocabulary import (
    at,
    between,
    percent,
    truly,
    verb,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memowidgets.report.content import Content

Row = tuple[str, ...]
MOST_ROWS = 40  # of a printed list
MOST_SHOWN = 24  # of one that shows the samples


class Table(NamedTuple):
    """Table of a report.

    Attributes
    ----------
    title : str
        Its heading.
    rows : sequence of tuple of str
        Cells of each row. The first one names it.
    head : tuple of str
        Names of the columns. Empty for a table of names and texts.
    """

    title: str
    rows: Sequence[Row]
    head: Row = ()


# page one


def headline(content: Content) -> str:
    """Return the result in two sentences: what was flagged, and what of it was memorised."""
    scored = content.scored
    noun = content.noun
    members = content.numbers["members"]
    if scored is None:
        return f"None of {whole(members)} {noun} has a score yet."
    n = int(content.flagged.sum())
    of = len(scored)
    n_memorized = content.n_memorized
    if n_memorized is None and n:
        return f"{whole(n)} of {whole(of)} {noun} {verb(n, 'is', 'are')} at risk. {_UNCHECKED}"
    flagged = (
        f"{whole(n) if n else 'No'} {verb(n, noun[:-1], noun)} flagged{_at(content)}."
    )
    return f"{flagged} {_UNCHECKED if n_memorized is None else _later(content, n_memorized)}"


_UNCHECKED = "No shadow models have checked it yet."


def _at(content: Content) -> str:
    row = _checkpoint_row(content)
    epoch = math.nan if row is None else row.get("epoch")
    return "" if epoch is None or math.isnan(epoch) else f" at epoch {epoch:g}"


def _later(content: Content, n: int) -> str:
    found = content.counts["found"]
    names = [row.get("name") for row in content.checkpoints]
    at_end = content.scored is None or content.scored.checkpoint in names[-1:]
    memorised = "memorised" if at_end else "memorised later"
    if n == 0:
        return f"None was {memorised}."
    if n == 1:
        return f"The one that was {memorised} is {'' if found else 'not '}among them."
    some = whole(found) if found else "None"
    are = verb(found or 1, "is", "are")
    return f"{some} of the {whole(n)} that were {memorised} {are} among them."


def how_many_truly(content: Content) -> str:
    """Return how many of the memorised samples truly are; "" where nobody knows."""
    if content.n_truly is None or not content.n_memorized:
        return ""
    said = truly(content.n_truly, content.n_memorized)
    return f"{said[:1].upper()}{said[1:]}."


def lead(content: Content) -> str:
    """Return what was audited, by which score, and what checked it."""
    scored = content.scored
    shadows = content.numbers["shadow_models"]
    what = (
        content.facts.get("recorded audit") or content.facts.get("model") or "A model"
    )
    what = re.split("[,;]", what)[0]
    members = whole(content.numbers["members"])
    text = f"{what[:1].upper()}{what[1:]}, trained on {members} {content.noun}."
    if scored is None or content.score is None:
        return text
    layer = (
        f" at layer {scored.layer}"
        if scored.layer not in ("", *content.layers[-1:])
        else ""
    )
    by = " against its class" * (scored.axis == BY_CLASS)
    text += f" {content.score.spoken}{by}{layer} made the prediction"
    if content.n_memorized is None:
        return f"{text}."
    if content.truth_given or not shadows:
        return f"{text}; log-LiRA that was given checked it."
    of = verb(shadows, "shadow model", "shadow models")
    return f"{text}; {whole(shadows)} {of}, trained on other samples, checked it afterwards."


def key_numbers(content: Content) -> list[tuple[int, str, str]]:
    """Return the numbers of page one: each with what it counts, and its style."""
    if content.scored is None:
        return []
    n = int(content.flagged.sum())
    noun = content.noun
    first = (n, f"{verb(n, noun[:-1], noun)} flagged", "")
    if content.n_memorized is None:
        return [
            first,
            (len(content.flagged) - n, "not flagged: they may be memorised, too", ""),
        ]
    missed = content.counts["missed"]
    return [
        first,
        (content.counts["found"], "of them memorised in the end", "found"),
        (
            missed,
            f"memorised, not flagged{': this is what is left' if missed else ''}",
            "",
        ),
    ]


def sure(content: Content) -> str:
    """Return how sure the result is."""
    if content.scored is None:
        return "There is no result yet."
    if content.is_early:
        return "The model had not learned its task where this was predicted, so this says little."
    noun = content.noun
    n_memorized = content.n_memorized
    if n_memorized is None:
        return (
            f"This is a prediction. How many of these {noun} the finished model memorises, flagged "
            "or not, was not measured."
        )
    if content.point is None:
        n = content.counts["n"]
        if n_memorized:
            return f"All {noun} are memorised, so there is nothing to tell them from."
        share = percent(clopper_pearson(0, n)[1])
        return f"With other {noun} of this kind, up to {share} may be memorised."
    found = content.point.tpr_interval
    others = content.point.fpr_interval
    return (
        f"With other {noun} of this kind, between {_ends(found)} of the memorised ones would be "
        f"found, and between {_ends(others)} of the others would be flagged."
    )


def _ends(interval: tuple[float, float]) -> str:
    return between(interval).replace(" to ", " and ")


def next_steps(content: Content) -> list[str]:
    """Return what a reader can do next."""
    if content.scored is None:
        return ["Train the model, and score the samples that it trains on."]
    made = content.decided(flagged=False)
    found = []
    if content.decided(flagged=True)["undecided"]:
        found.append(
            f"Look at the {content.noun} that are flagged, and decide on each."
        )
    if content.n_memorized is None:
        found.append(
            "Have shadow models check it, in an audit that trains on half of the data."
        )
    changed = any(made[name] for name in ("remove", "anonymise", "relabel"))
    without = "what was decided" if changed else "what you remove, anonymise or relabel"
    found.append(
        f"Train again after {without}, and audit again: others may be memorised then."
    )
    if content.counts.get("missed"):
        found.append(f"The {content.noun} that were missed stay in this model.")
    return found


_MADE = {
    "remove": "removed",
    "anonymise": "anonymised",
    "relabel": "relabelled",
    "keep": "kept",
}


def decisions(content: Content) -> list[tuple[str, int]]:
    """Return the decisions that were made, and the number of flagged samples without one."""
    made = content.decided(flagged=False)
    still_open = content.decided(flagged=True)["undecided"]
    return [(word, made[name]) for name, word in _MADE.items() if made[name]] + [
        ("open", still_open)
    ]


# page two


def most_at_risk(content: Content) -> Table:
    """Return the flagged samples, most at risk first: by number, or with their text."""
    scored = content.scored
    named = content.samples is not None
    most = MOST_SHOWN if named else MOST_ROWS
    rows = content.by_risk[: min(most, int(content.flagged.sum()))]
    if scored is None or not len(rows):
        return Table("", [])
    positions = scored.positions[rows].tolist()
    columns: dict[str, Iterable[str]] = {
        "sample" if named else "member": [
            content.ids[p] if named else str(p) for p in positions
        ],
        "score": [f"{score:.2f}".replace("-", "−") for score in scored.scores[rows]],
        "": scored.status(content.tau, content.eta, rows),
    }
    if content.support is not None:
        both = zip(*(of[rows] for of in content.support), strict=True)
        columns["memorised by"] = [
            "–" if math.isnan(n) else f"{n:.0f} of {of}" for n, of in both
        ]
    if content.decisions:
        columns["decision"] = [_decision(content, content.ids[p]) for p in positions]
    table = list(zip(*columns.values(), strict=True))
    return Table(f"The {len(rows)} most at risk", table, tuple(columns))


def _decision(content: Content, name: str) -> str:
    """Return a decision, with the new class where samples are shown."""
    made = content.decisions.get(name)
    if made is None:
        return "open"
    return (
        f"relabel as {made.to}"
        if made.to and content.samples is not None
        else made.decision
    )


def cautions(content: Content) -> list[str]:
    """Return what a reader must know before trusting the numbers, as sentences."""
    found = [f"{note[:1].upper()}{note[1:]}" for note in content.cautions]
    close = (
        0 if content.scored is None else int(content.scored.close(content.tau).sum())
    )
    if close:
        are = verb(close, "sample is", "samples are")
        found.append(
            f"{whole(close)} {are} too close to call: less than two standard errors from τ"
        )
    if content.memorized_but_wrong:
        wrong = whole(content.memorized_but_wrong)
        found.append(
            f"Of the memorised samples, the finished model answers {wrong} wrongly"
        )
    return [text if text.endswith(".") else f"{text}." for text in found]


def definitions(content: Content) -> list[str]:
    """Return definitions of the score and of the terms that the page uses."""
    row = content.score
    if row is None or content.scored is None:
        return list(_TERMS)
    parts = [find_row(name) for name in dict.fromkeys(row.mean_rank)] or [row]
    said = [part.definition for part in parts if part.definition]
    if row.mean_rank:
        said.append("The score adds the ranks of the samples by each of these.")
    return [*said, *_TERMS]


_TERMS = (
    "A shadow model is trained as the audited model is, on another random part of the samples.",
    "A sample is memorised if training on it clearly changed what the finished model says of it.",
    "Log-LiRA measures that: it compares shadow models that trained on the sample with others.",
)
_LIMITS = (
    "A flagged sample is a prediction, no proof. One that is not flagged may still be memorised.",
    "Only classification was audited, not what a model writes as free text.",
    "Only members, the samples that the model trains on, have a score.",
    "Another model on the same data may memorise other samples.",
)
_LIMITS_OF_TRUTH = (
    "'Memorised by' counts shadow models that had the sample. The audited model may do otherwise.",
    "Log-LiRA stands for one attack, by somebody who has the sample. Other attacks exist.",
    "Rates are too optimistic if τ, the layer or the checkpoint was chosen on the same samples.",
)


def limits(content: Content) -> tuple[str, ...]:
    """Return what the audit cannot say."""
    return _LIMITS if content.n_memorized is None else (*_LIMITS, *_LIMITS_OF_TRUTH)


# the appendix


def appendix(content: Content) -> list[Table]:
    """Return rates, settings, checkpoints and digests."""
    digests = [(d.what, d.sha256, d.of) for d in content.digests]
    columns = (
        "checkpoint",
        "epoch",
        "median loss",
        "drop",
        "training",
        "held out",
        "chosen",
    )
    checkpoints = [_checkpoint(row) for row in content.checkpoints]
    tables = [
        Table("Rates", rates(content), ("", "", "95 % interval")),
        Table("What was audited, and how", settings(content)),
        Table("Checkpoints: loss, and accuracy", checkpoints, columns),
        Table("Digests", digests, ("", "SHA-256", "of")),
    ]
    return [table for table in tables if table.rows]


def rates(content: Content) -> list[Row]:
    """Return name, value and 95 % interval of each rate. Rates need ground truth."""
    evaluation = content.evaluation
    point = content.point
    if evaluation is None or point is None:
        return []
    found: list[Row] = [
        (
            "TPR: memorised ones that are flagged",
            percent(point.tpr),
            between(point.tpr_interval),
        ),
        (
            "FPR: others that are flagged",
            percent(point.fpr),
            between(point.fpr_interval),
        ),
    ]
    if point.precision is not None and point.precision_interval is not None:
        shown = percent(point.precision), between(point.precision_interval)
        found.append(("precision: flagged ones that are memorised", *shown))
    for name, (auc, (low, high)) in evaluation.areas.items():
        found.append((name, f"{auc:.2f}", f"{low:.2f} to {high:.2f}"))
    return found


def settings(content: Content) -> list[Row]:
    """Return what was audited and all settings, as names and texts."""
    scored = content.scored
    found: list[Row] = [("audit", content.name), ("written at", content.created)]
    found += content.facts.items()
    if scored is not None:
        found += [("score", scored.title), ("flagged", at(content.tau))]
    if content.n_memorized is not None:
        found.append(
            ("memorised", f"members with log-LiRA of at least η = {content.eta:g}")
        )
    found += [
        (f"training, {name}", str(value)) for name, value in content.training.items()
    ]
    for step, settings_then in content.earlier:
        found += [
            (f"training, {name}, from step {step}", str(value))
            for name, value in settings_then.items()
            if value != content.training.get(name)
        ]
    if content.seed is not None:
        found.append(("seed", str(content.seed)))
    for name, of in content.versions.items():
        libraries = ", ".join(f"{library} {version}" for library, version in of.items())
        found.append((f"versions, {name}", libraries))
    return found


def _checkpoint_row(content: Content) -> Mapping[str, Any] | None:
    """Return the row of the score's checkpoint."""
    name = None if content.scored is None else content.scored.checkpoint
    return next((row for row in content.checkpoints if row.get("name") == name), None)


def _checkpoint(row: Mapping[str, Any]) -> Row:
    def number(name: str, written: Callable[[float], str]) -> str:
        value = row.get(name)
        return "–" if value is None or math.isnan(value) else written(value)

    return (
        str(row.get("name")),
        number("epoch", "{:g}".format),
        number("median_loss", "{:.3f}".format),
        *(
            number(share, percent)
            for share in ("drop", "train_accuracy", "test_accuracy")
        ),
        "look here" if row.get("prediction") else "",
    )
