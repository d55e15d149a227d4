"""The sentences of a report, and its tables as rows of texts."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from memowidgets.decisions import CHANGES, UNDECIDED
from memowidgets.evaluation import clopper_pearson
from memowidgets.evaluation.scored import BY_CLASS
from memowidgets.registry import definitions_of
from memowidgets.vocabulary import (
    at,
    between,
    percent,
    truly,
    verb,
    visible,
    whole,
)
from memowidgets.widgets.items import Items
from memowidgets.widgets.samples import reader_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memowidgets.decisions import Decision
    from memowidgets.evaluation import OperatingPoint
    from memowidgets.report.content import Content

Row = tuple[str, ...]
MOST_ROWS = 40  # of a printed list
MOST_SHOWN = 24  # of one that shows the samples
MOST_OF_NAME = 24  # characters
MOST_PEOPLE = 4  # that are named on page one


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
        are = verb(n, "is", "are")
        return f"{whole(n)} of {whole(of)} {noun} {are} flagged{_at(content)}. {_UNCHECKED}"
    flagged = (
        f"{whole(n) if n else 'No'} {verb(n, noun[:-1], noun)} flagged{_at(content)}."
    )
    return f"{flagged} {_UNCHECKED if n_memorized is None else _later(content, n_memorized)}"


# checked by shadow models, and looked at by a person: two facts, each with its own words
_UNCHECKED = "No shadow models have checked this."


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


def looked_at(content: Content) -> str:
    """Return how many of the flagged samples a person looked at, and who did; "" without any."""
    n = int(content.flagged.sum())
    if n == 0:
        return ""
    looked = content.n_looked_at
    if looked == 0:
        return f"No person has looked at {verb(n, 'it', 'them')} yet."
    are = verb(looked, "was", "were")
    return f"{whole(looked)} of {whole(n)} {are} looked at by a person."


def who_decided(content: Content) -> str:
    """Return who decided, on how many samples and when; "" without decisions."""
    people = content.people
    if not people:
        return ""
    names = [f"{_named(one.by)} ({whole(one.n)})" for one in people]
    others = len(names) - MOST_PEOPLE
    if others > 0:
        names = [*names[:MOST_PEOPLE], f"{whole(others)} more"]
    named = names[-1]
    if len(names) > 1:
        named = f"{', '.join(names[:-1])} and {named}"
    return f"Decided by {named}{_days(content)}."


def _named(by: str) -> str:
    """Return a name as it stands in a sentence, so short that page one stays one page."""
    return visible(by, MOST_OF_NAME) if by else "somebody without a name"


def _days(content: Content) -> str:
    """Return between which days decisions were made."""
    first = min((one.first for one in content.people if one.first), default="")
    last = max((one.last for one in content.people), default="")
    if not first:
        return ""
    if first[:10] == last[:10]:
        return f" on {first[:10]}"
    return f" from {first[:10]} to {last[:10]}"


def beside_flagged(content: Content) -> str:
    """Return how many decisions are on samples that are not flagged; "" where none is."""
    n = len(content.made) - content.n_looked_at
    if n <= 0:
        return ""
    decisions = verb(n, "more decision is on a sample", "more decisions are on samples")
    are = verb(n, "is", "are")
    return f"{whole(n)} {decisions} that {are} not flagged."


def lead(content: Content) -> str:
    """Return what was audited, by which score, and what checked it."""
    scored = content.scored
    shadows = content.numbers["shadow_models"]
    members = whole(content.numbers["members"])
    text = f"{_subject(content)}, trained on {members} {content.noun}."
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


def _subject(content: Content) -> str:
    """Return what was audited, in a few words."""
    facts = content.facts
    what = facts.get("recorded audit") or facts.get("model") or "A model"
    what = re.split("[,;]", what)[0]
    return f"{what[:1].upper()}{what[1:]}"


def key_numbers(content: Content) -> list[tuple[int, str, str]]:
    """Return the numbers of page one: each with what it counts, and its style."""
    if content.scored is None:
        return []
    n = int(content.flagged.sum())
    first = (n, f"{content.noun} flagged", "count")
    if content.n_memorized is None:
        left = len(content.flagged) - n
        return [first, (left, "not flagged: they may be memorised, too", "left")]
    counts = content.counts
    return [
        first,
        (counts["found"], "of them memorised in the end", "found"),
        (counts["missed"], "memorised and not flagged: what is left", "missed"),
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
    noun = content.noun
    found = []
    if content.n_open:
        found.append(f"Look at the {noun} that are flagged, and decide on each.")
    if content.n_memorized is None and content.can_train:
        found.append(_HOW_TO_CHECK if content.leaves_out else _HOW_TO_LEAVE_OUT)
    made = content.decided(flagged=False)
    changed = any(made[name] for name in CHANGES)
    without = "what was decided" if changed else "what you remove, anonymise or relabel"
    if content.can_train:
        found.append(
            f"Train again after {without}, and audit again: others may be memorised then."
        )
    elif not content.is_recording:
        found.append(
            f"Where the model is trained, train it again after {without}, and audit the new "
            "model: others may be memorised then."
        )
    if content.counts.get("missed"):
        found.append(f"The {noun} that were missed stay in this model.")
    return found


_HOW_TO_CHECK = "Train shadow models, which say what the finished model memorises."
_HOW_TO_LEAVE_OUT = (
    "Have shadow models check it, in an audit that trains on half of the data."
)


def decisions(content: Content) -> list[tuple[str, int]]:
    """Return what was decided on the flagged samples, and on how many nothing was."""
    made = content.decided(flagged=True)
    found = [(name, made[name]) for name in (*CHANGES, "keep") if made[name]]
    return [*found, ("open", content.n_open)]


# page two


def assessment(content: Content) -> list[Row]:
    """Return what a data protection impact assessment can take over, as names and sentences."""
    found = [
        ("Audited", _audited(content)),
        ("Found", _found(content)),
        ("How sure", sure(content)),
        ("Decided", _decided(content)),
        ("Residual risk", residual_risk(content)),
        ("Not looked at", _not_looked_at(content)),
        ("Evidence for", _EVIDENCE),
    ]
    return [(name, text) for name, text in found if text]


def to_fill_in() -> list[Row]:
    """Return what whoever signs fills in, with the choices that there are."""
    return [
        ("Release of the model", "☐ yes · ☐ yes, after what was decided · ☐ no"),
        ("Reason", ""),
        ("Audited by", ""),
        ("Reviewed by", ""),
        ("Place, date, signature", ""),
    ]


_EVIDENCE = (
    "This is evidence that somebody looked for disclosure risk. It is no evidence that the model "
    "is anonymous: that asks for more (opinion 28/2024 of the European data protection board)."
)


def _audited(content: Content) -> str:
    members = whole(content.numbers["members"])
    samples = whole(content.numbers["samples"])
    noun = content.noun
    rows = f"It trained on {members} of {samples} {noun}; the others were left out."
    if not content.leaves_out:
        rows = f"It trained on all {members} {noun} of the audit."
    if content.scored is None:
        return f"{_subject(content)}. {rows} {content.trained_by}".strip()
    at_epoch = _at(content)
    when = f"Its samples were scored{at_epoch}." if at_epoch else ""
    parts = [f"{_subject(content)}.", rows, when, content.trained_by]
    return " ".join(filter(None, parts))


def _found(content: Content) -> str:
    return f"{headline(content)} {how_many_truly(content)}".strip()


def _decided(content: Content) -> str:
    made = [f"{word} {whole(n)}" for word, n in decisions(content)]
    if not content.made:
        return "Nothing was decided yet."
    told = f"Of the flagged {content.noun}: {', '.join(made)}."
    return " ".join(filter(None, [told, beside_flagged(content), who_decided(content)]))


def residual_risk(content: Content) -> str:
    """Return what stays in the model that was audited."""
    if content.scored is None:
        return "Not known: nothing has a score yet."
    n = int(content.at_stake.sum())
    noun = content.noun
    some = f"{whole(n)} {verb(n, noun[:-1], noun)}"
    if content.n_memorized is None:
        said = (
            f"{some} may be memorised by this model, and others that are not flagged."
        )
    else:
        said = f"{some} {verb(n, 'is', 'are')} memorised by this model."
    if not content.n_changed:
        return said
    are = verb(content.n_changed, "is", "are")
    return (
        f"{said} {whole(content.n_changed)} of them {are} to be removed, anonymised or "
        "relabelled, which takes effect once a model is trained anew."
    )


def _not_looked_at(content: Content) -> str:
    still_open = content.n_open
    found = ["Free text that a model writes, and attacks other than membership."]
    if content.numbers["members"] < content.numbers["samples"]:
        found.append("Samples that the model does not train on.")
    if still_open:
        are = verb(still_open, "flagged sample", "flagged samples")
        found.append(f"{whole(still_open)} {are} without a decision.")
    return " ".join(reversed(found))


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
    if scored.labels is not None and scored.probabilities is not None:
        columns["why"] = [why(content, row) for row in rows.tolist()]
    made = [content.made.get(position, UNDECIDED) for position in positions]
    if any(one.is_made for one in made):
        columns["decision"] = [_decision(content, one) for one in made]
        columns["by"] = [
            visible(one.by, MOST_OF_NAME) if one.is_made else "" for one in made
        ]
        columns["on"] = [one.at[:10] if one.is_made else "" for one in made]
    table = list(zip(*columns.values(), strict=True))
    return Table(f"The {len(rows)} most at risk", table, tuple(columns))


def _decision(content: Content, made: Decision) -> str:
    """Return a decision, with the new class where samples are shown."""
    if not made.is_made:
        return "open"
    if made.to and content.samples is not None:
        return f"relabel as {made.to}"
    return made.decision


def why(content: Content, row: int) -> str:
    """Return what the model says of a sample's label, which is a fact and no verdict.

    A class has a name only where samples are shown.
    """
    scored = content.scored
    if scored is None or scored.labels is None or scored.probabilities is None:
        return ""
    label = int(scored.labels[row])
    if label < 0:
        return ""
    of_classes = scored.probabilities[row]
    guess = int(of_classes.argmax())
    own = percent(float(of_classes[label]))
    most = percent(float(of_classes[guess]))
    if content.samples is None:
        other = "" if guess == label else f", another class {most}"
        return f"its label {own}{other}"
    reader = reader_for(content.samples)
    names = Items(reader, content.class_names, content.ids)
    options = reader.card(int(scored.positions[row])).options
    named = f"{names.name_of_class(label, options)} {own}"
    if guess == label:
        return named
    return f"{named}, model: {names.name_of_class(guess, options)} {most}"


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
    return [*definitions_of(row), *_TERMS]


_TERMS = (
    "A shadow model is trained as the audited model is, on another random part of the samples.",
    "A sample is memorised if training on it clearly changed what the finished model says of it.",
    "Log-LiRA measures that: it compares shadow models that trained on the sample with others.",
    "Disclosure risk: the model gives away that it trained on a sample. Others exist.",
    "Release: others get the model or its answers. Residual risk: what that model still holds.",
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


def flagged_shares(point: OperatingPoint) -> list[Row]:
    """Return name, value and 95 % interval of the shares of both groups that are flagged."""
    return [
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


def rates(content: Content) -> list[Row]:
    """Return name, value and 95 % interval of each rate. Rates need ground truth."""
    evaluation = content.evaluation
    point = content.point
    if evaluation is None or point is None:
        return []
    found = flagged_shares(point)
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
