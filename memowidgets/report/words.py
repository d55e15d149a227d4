"""The sentences of a report, and its tables as rows of texts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from memowidgets.evaluation import clopper_pearson
from memowidgets.vocabulary import (
    DEFINED,
    between,
    counted_flagged,
    percent,
    threshold,
    verb,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memowidgets.decisions import Decision
    from memowidgets.evaluation import OperatingPoint
    from memowidgets.report.content import Content

OF_CLASS = (
    "in robust deviations (1.4826 times the median absolute deviation) from the median of its class"
)


class Table(NamedTuple):
    """Table of a report.

    Attributes
    ----------
    caption : str
        Its name.
    rows : list of tuple of str
        Cells of each row. The first one names it.
    head : tuple of str
        Names of the columns. Empty for a table of names and texts.
    kind : str
        Style of the table on the page.
    """

    caption: str
    rows: Sequence[tuple[str, ...]]
    head: tuple[str, ...] = ()
    kind: str = ""


class Section(NamedTuple):
    """Section of a report.

    Attributes
    ----------
    name, title : str
        Name of the section in links, and its heading.
    columns : sequence of sequences of parts
        Parts that stand beside each other on the page. A text is a paragraph, and several are a
        list.
    kind : str
        Style of the section on the page.
    """

    name: str
    title: str
    columns: Sequence[Sequence[str | tuple[str, ...] | Table]]
    kind: str = ""


def sections(content: Content) -> list[Section]:
    """Return the sections of the page, in their order."""
    results = rates(content)
    digests = [(d.what, d.sha256 or "", d.of or d.why) for d in content.digests]
    head, risky = most_at_risk(content)
    made = [
        Table("What was audited", audited(content)),
        Table("Method and settings", method(content)),
    ]
    checkpoints = Table(
        "Checkpoints: loss, and accuracy",
        [_checkpoint(row) for row in content.checkpoints],
        ("checkpoint", "epoch", "median loss", "drop", "training", "held out", "chosen"),
    )
    counts = Table(f"Flagged: {content.at}", decisions(content), ("", "members", "flagged"))
    at_tau = Table(content.at.capitalize(), results, ("", "", "95 % interval"))
    missing = tuple(f"{m.what}: {m.why}" for m in content.missing)
    defined = definitions(content)
    found = [
        Section(
            "short", "In short", [paragraphs(content), [at_tau, defined] if results else [defined]]
        ),
        Section("warnings", "Before you trust it", [[content.cautions]], "warnings"),
        Section("decided", "Decisions", [[counts]]),
        Section(
            "paper", f"The {len(risky)} samples most at risk", [[Table("", risky, head)]], "print"
        ),
        Section("made", "How it was made", [made, [checkpoints] if content.checkpoints else []]),
        Section(
            "digests", "Digests", [[Table("", digests, ("", "SHA-256", "of"), kind="digests")]]
        ),
        Section("missing", "What is missing", [[missing]]),
        Section("limits", "Limits", [[limits(content)]]),
    ]
    empty = {"warnings": content.cautions, "paper": risky, "digests": digests, "missing": missing}
    return [section for section in found if empty.get(section.name, True)]


def _checkpoint(row: Mapping[str, Any]) -> tuple[str, ...]:
    def number(name: str, written: Callable[[float], str]) -> str:
        value = row.get(name)
        return "–" if value is None or math.isnan(value) else written(value)

    return (
        str(row.get("name")),
        number("epoch", "{:g}".format),
        number("median_loss", "{:.3f}".format),
        *(number(share, percent) for share in ("drop", "train_accuracy", "test_accuracy")),
        "chosen by ρ" if row.get("prediction") else "",
    )


def most_at_risk(content: Content) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows of a table of the flagged samples, at most 50, most at risk first.

    A sample is called by its id if the report includes samples, else by its position.
    """
    scored = content.scored
    if scored is None:
        return (), []
    judged = content.memorized is not None
    table = []
    for row in content.by_risk[:_MOST_SAMPLES]:
        if not content.flagged[row]:
            break
        position = int(scored.positions[row])
        made = content.decisions.get(content.ids[position])
        truth = []
        if judged and scored.log_lira is not None:
            truth = [f"{scored.log_lira[row]:.2f}" if scored.judged[row] else "–"]
        if content.support is not None:
            memorized, models = (of[row] for of in content.support)
            truth.append("–" if math.isnan(memorized) else f"{memorized:.0f} of {models} models")
        table.append(
            (
                f"member {position}" if content.samples is None else content.ids[position],
                f"{scored.scores[row]:.4g}",
                *truth,
                "undecided" if made is None else _made(content, made),
            )
        )
    truths = ["log-LiRA"] * judged + ["memorised by"] * (content.support is not None)
    return ("sample", "score", *truths, "decision"), table


def decisions(content: Content) -> list[tuple[str, str, str]]:
    """Return rows of a table: each decision, with its number of members and of flagged ones.

    If the report includes samples, a row for each new class follows relabelled members.
    """
    every, flagged = content.decided(flagged=False), content.decided(flagged=True)
    rows = []
    for name in every:
        rows.append((name, whole(every[name]), whole(flagged[name])))
        if name == "relabel" and content.samples is not None:
            rows += [
                (of_class, whole(members), whole(of_flagged))
                for of_class, (members, of_flagged) in content.relabelled.items()
            ]
    return rows


def _made(content: Content, made: Decision) -> str:
    """Return a decision, with the new class if the report includes samples."""
    return f"relabel as {made.to}" if made.to and content.samples is not None else made.decision


_MOST_SAMPLES = 50


def paragraphs(content: Content) -> list[str]:
    """Return sentences on the audit, the samples at risk, the uncertainty and the decisions."""
    flagged, found, missed = conclusion(content)
    more = _answered(content)
    if content.memorized is not None and content.evaluation is None:
        more.append("With one kind of sample alone there are no TPR and FPR.")
    return [
        _audited(content),
        " ".join([flagged, *_unsure(content)]),
        " ".join([found, missed, *more]),
        decided(content),
    ]


def _unsure(content: Content) -> list[str]:
    """Say how many samples could be on either side of τ."""
    if not content.undecided:
        return []
    close = verb(content.undecided, "sample is", "samples are")
    return [f"{whole(content.undecided)} {close} too close to τ to be sure of the side."]


def rates(content: Content) -> list[tuple[str, str, str]]:
    """Return name, value and 95 % interval of each result at τ. Rates need ground truth."""
    scored = content.scored
    if scored is None:
        return []
    n_flagged = int(content.flagged.sum())
    found = [
        (
            f"flagged, of {whole(len(scored.scores))} scored",
            f"{whole(n_flagged)} ({percent(n_flagged / len(scored.scores))})",
            between(content.flagged_interval),
        )
    ]
    if content.undecided is not None:
        found.append(("less than two standard errors from τ", whole(content.undecided), ""))
    if content.evaluation is not None and content.point is not None:
        found += _true_rates(content.point, f", {content.truly}" if content.truly else "")
        for name, (auc, (low, high)) in content.evaluation.areas.items():
            found.append((name, f"{auc:.2f}", f"{low:.2f} to {high:.2f}"))
    return found


def _true_rates(point: OperatingPoint, known: str) -> list[tuple[str, str, str]]:
    found = [
        ("memorised", f"{whole(point.found + point.missed)} of {whole(point.n)}{known}", ""),
        ("TPR: memorised ones that are flagged", percent(point.tpr), between(point.tpr_interval)),
        ("FPR: others that are flagged", percent(point.fpr), between(point.fpr_interval)),
    ]
    if point.precision is not None and point.precision_interval is not None:
        shown = percent(point.precision), between(point.precision_interval)
        found.append(("precision: flagged ones that are memorised", *shown))
    return found


def _audited(content: Content) -> str:
    numbers = content.numbers
    text = (
        f"A model was audited that trains on {whole(numbers['members'])} of "
        f"{whole(numbers['samples'])} samples in {whole(numbers['classes'])} classes."
    )
    scored = content.scored
    if scored is None:
        return f"{text} None of them has a score yet."
    row = next((c for c in content.checkpoints if c.get("name") == scored.checkpoint), None)
    text += f" Each was scored by {scored.title}"
    if row is None or row.get("drop") is None:
        return f"{text}."
    return f"{text}, where the median training loss had dropped by {percent(row['drop'])}."


def why_no_truth(content: Content) -> str:
    """Return what ground truth would need."""
    shadows = content.numbers["shadow_models"]
    return "no log-LiRA at the end of training" if shadows else "no shadow models"


def conclusion(content: Content) -> tuple[str, str, str]:
    """Return three sentences: how many are flagged, what was found, and what risk is left."""
    scored = content.scored
    if scored is None:
        return (
            "No sample has a score yet, so none is flagged.",
            f"There is no ground truth ({why_no_truth(content)}).",
            "The residual risk is unknown: any sample may be memorised.",
        )
    n, n_flagged = len(scored.scores), int(content.flagged.sum())
    flagged = (
        f"By {scored.title}, {counted_flagged(n_flagged, n)} {content.at} as at risk of being "
        f"memorised ({percent(n_flagged / n)}, 95 % interval {between(content.flagged_interval)})."
    )
    memorized = content.memorized
    if memorized is None:
        return (
            flagged,
            (
                f"There is no ground truth ({why_no_truth(content)}), so how many of the flagged "
                "samples the finished model memorises was not measured, and no rate is given."
            ),
            (
                "The residual risk was not measured either: any of the "
                f"{whole(n - n_flagged)} samples that are not flagged may be memorised too."
            ),
        )
    in_question = content.flagged[scored.judged]
    return flagged, _found(content, memorized, in_question), _missed(memorized, in_question)


def _found(content: Content, memorized: NDArray[np.bool_], flagged: NDArray[np.bool_]) -> str:
    n, n_memorized = len(memorized), int(memorized.sum())
    found, others = int((memorized & flagged).sum()), int((~memorized & flagged).sum())
    shadows = content.numbers["shadow_models"]
    by_shadows = shadows and not content.truth_given
    known = f", {content.truly}" if n_memorized and content.truly else ""
    against = f"Against {whole(shadows)} shadow models" if by_shadows else "By the given log-LiRA"
    text = (
        f"{against}, {whole(n_memorized)} of {whole(n)} samples "
        f"({_with_interval(n_memorized, n)}) {verb(n_memorized, 'is', 'are')} memorised by the "
        f"finished model{known} (log-LiRA ≥ {content.eta:g})"
    )
    parts = []
    if n_memorized:
        parts.append(f"{whole(found)} of these ({_with_interval(found, n_memorized)})")
    if n > n_memorized:
        parts.append(
            f"{whole(others)} of the {whole(n - n_memorized)} others "
            f"({_with_interval(others, n - n_memorized)})"
        )
    return f"{text}, and {' and '.join(parts)} are flagged."


def _missed(memorized: NDArray[np.bool_], flagged: NDArray[np.bool_]) -> str:
    n, n_memorized = len(memorized), int(memorized.sum())
    if not n_memorized:
        return (
            "The residual risk is a share of memorised samples of at most "
            f"{percent(clopper_pearson(0, n)[1])}, the upper end of its 95 % interval."
        )
    missed = int((memorized & ~flagged).sum())
    return (
        f"The residual risk is {whole(missed)} memorised "
        f"{verb(missed, 'sample that is', 'samples that are')} not flagged, which is "
        f"{percent(missed / n_memorized)} of the memorised ones (95 % interval "
        f"{between(clopper_pearson(missed, n_memorized))})."
    )


def _with_interval(count: int, n: int) -> str:
    return f"{percent(count / n)}, 95 % interval {between(clopper_pearson(count, n))}"


def _answered(content: Content) -> list[str]:
    """Say that memorised does not mean answered rightly, with the number if it is known."""
    wrong = content.memorized_but_wrong
    if wrong is None:
        return []
    return [
        (
            "Memorised means that training on a sample changed what the finished model says of it. "
            "It does not mean that the model answers it rightly: of the memorised samples it "
            f"answers {whole(wrong)} wrongly."
        )
    ]


ONION = (
    "Removing memorised samples and training again can make samples memorised that were not "
    "before (Carlini et al. 2022): audit the new model, and compare it with this one."
)


def decided(content: Content) -> str:
    """Return a sentence on what was decided."""
    made = content.decided(flagged=False)
    if sum(made.values()) == made["undecided"]:
        return "Nothing was decided on any sample yet."
    parts = [
        f"{whole(made[name])} {verb(made[name], 'is', 'are')} {word}"
        for name, word in (
            ("remove", "to be removed"),
            ("anonymise", "to be anonymised"),
            ("relabel", "to be relabelled"),
            ("keep", "kept as accepted risk"),
        )
        if made[name]
    ]
    left = content.decided(flagged=True)["undecided"]
    open_ones = f"{whole(left)} flagged {verb(left, 'sample is', 'samples are')} undecided"
    text = f"Decided so far: {', '.join(parts)}; {open_ones}."
    return f"{text} {ONION}" if made["remove"] else text


_LIMITS = (
    (
        "A flagged sample is a prediction, not a proof that it is memorised. A sample that is not "
        "flagged may still be memorised."
    ),
    "The score is about classification. What a model writes as free text was not audited.",
    "Only the members, which are the samples that the model trains on, have a score.",
    "The audit is about one target model. Another one on the same data may memorise other samples.",
    (
        "Samples that were protected by removed ones may be memorised after a new training. An "
        "audit of the new model shows which."
    ),
)
_LIMIT_OF_TRUTH = (
    (
        "Memorised means that log-LiRA is at least η. It stands for an attacker who knows the "
        "sample and asks whether the model trained on it. Other attacks exist."
    ),
    "Rates are too optimistic if τ, the layer or the checkpoint was chosen on the same samples.",
)
_NO_TRUTH = (
    "There is no ground truth. How many of the flagged samples the finished model memorises, and "
    "how many others it memorises, was not measured."
)

Row = tuple[str, str]


def limits(content: Content) -> tuple[str, ...]:
    """Return what the audit cannot say."""
    of_truth = _LIMIT_OF_TRUTH if content.memorized is not None else (_NO_TRUTH,)
    return (*_LIMITS, *of_truth)


def audited(content: Content) -> list[Row]:
    """Return what was audited, as names and texts."""
    return [("audit", content.name), ("report written at", content.created), *content.facts.items()]


def method(content: Content) -> list[Row]:
    """Return the method and all settings, as names and texts."""
    scored = content.scored
    found = [("method", "each member has a score at a checkpoint: a low score means risk")]
    if scored is not None:
        unit = "" if scored.axis == "score" else f", {OF_CLASS}"
        found += [
            ("score", f"{scored.title}{unit}"),
            ("flagged", f"members whose score is at most {threshold(content.tau)}"),
        ]
    if content.memorized is not None:
        by = "as given by the user"
        if not content.truth_given:
            by = f"from {whole(content.numbers['shadow_models'])} shadow models"
        found.append(("memorised", f"members with log-LiRA, {by}, of at least η = {content.eta:g}"))
    else:
        found.append(("ground truth", "none: no sample was measured to be memorised"))
    found += [(f"training, {name}", str(value)) for name, value in content.training.items()]
    if content.seed is not None:
        found.append(("seed", str(content.seed)))
    for name, of in content.versions.items():
        libraries = ", ".join(f"{library} {version}" for library, version in of.items())
        found.append((f"versions, {name}", libraries))
    return found


def definitions(content: Content) -> tuple[str, ...]:
    """Return definitions of the score and of the terms that the page uses."""
    of_score: list[str] = []
    if content.scored is not None:
        parts = content.scored.metric.split("+")
        of_score = [DEFINED[name] for name in parts if name in DEFINED]
        if len(parts) > 1:
            of_score.append("The score adds the ranks of the samples by each of these.")
    return (
        *of_score,
        (
            "A shadow model is trained as the audited model is, on another random part of the "
            "samples."
        ),
        (
            "A sample is memorised if training on it clearly changed what the finished model says "
            "of it. This is measured by log-LiRA, a log-likelihood ratio between shadow models "
            "that trained on the sample and others that did not."
        ),
    )
