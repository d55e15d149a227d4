"""The sentences of a report, and the record of them that can be filed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memowidgets.evaluation import OperatingPoint
    from memowidgets.report.content import Content


_ROUNDED = 0.001


def whole(number: float) -> str:
    """Return a count as text, with thousands separated.

    Examples
    --------
    >>> whole(1234567).split()
    ['1', '234', '567']
    """
    return f"{round(number):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def share(value: float) -> str:
    """Return a share as a percentage. Only exactly 0 and 1 are written as 0 % and 100 %.

    Examples
    --------
    >>> share(0.0312), share(0.0), share(0.00004), share(0.99999)
    ('3.1 %', '0 %', '< 0.1 %', '> 99.9 %')
    """
    if 0 < value < _ROUNDED:
        return "< 0.1 %"
    if 1 - _ROUNDED < value < 1:
        return "> 99.9 %"
    return f"{100 * value:.{0 if value in (0.0, 1.0) else 1}f} %"


def paragraphs(content: Content) -> list[str]:
    """Return sentences on the audit, the samples at risk, the uncertainty and the decisions."""
    return [_audited(content), _at_risk(content), how_sure(content), decided(content)]


def rates(content: Content) -> list[tuple[str, str, str]]:
    """Return name, value and 95 % interval of each result at τ. Rates need ground truth."""
    scored = content.scored
    if scored is None:
        return []
    n_flagged = int(content.flagged.sum())
    found = [
        (
            f"flagged, of {whole(len(scored.scores))} scored",
            f"{whole(n_flagged)} ({share(n_flagged / len(scored.scores))})",
            _between(content.flagged_interval),
        )
    ]
    if content.undecided is not None:
        found.append(("less than two standard errors from τ", whole(content.undecided), ""))
    if content.evaluation is not None and content.point is not None:
        found += _true_rates(content.point)
        low, high = content.evaluation.auc_interval
        found.append(("AUC", f"{content.evaluation.auc:.3f}", f"{low:.3f} to {high:.3f}"))
    return found


def settings(content: Content) -> list[tuple[str, str]]:
    """Return the settings of the audit as pairs of name and text."""
    found = [*content.facts.items(), *((k, str(v)) for k, v in content.training.items())]
    if content.seed is not None:
        found.append(("seed", str(content.seed)))
    versions = {
        name: ", ".join(f"{library} {version}" for library, version in of.items())
        for name, of in content.versions.items()
    }
    return [*found, *((f"versions, {name}", text) for name, text in versions.items())]


def _true_rates(point: OperatingPoint) -> list[tuple[str, str, str]]:
    found = [
        ("memorised", f"{whole(point.hits + point.missed)} of {whole(point.n)}", ""),
        ("TPR: memorised ones that are flagged", share(point.tpr), _between(point.tpr_interval)),
        ("FPR: others that are flagged", share(point.fpr), _between(point.fpr_interval)),
    ]
    if point.precision is not None and point.precision_interval is not None:
        interval = _between(point.precision_interval)
        found.append(
            ("precision: flagged ones that are memorised", share(point.precision), interval)
        )
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
    return f"{text}, where the median training loss had dropped by {share(row['drop'])}."


def _at_risk(content: Content) -> str:
    scored = content.scored
    if scored is None:
        return "How many samples are at risk is not known."
    n_flagged, n = int(content.flagged.sum()), len(scored.scores)
    text = (
        f"At τ = {content.tau:g}, {whole(n_flagged)} of {whole(n)} samples "
        f"({share(n_flagged / n)}) are flagged as at risk of being memorised: their score is at "
        "most τ."
    )
    unscored = content.numbers["members"] - n
    if unscored:
        text += f" {whole(unscored)} {_verb(unscored, 'member has', 'members have')} no score."
    if content.undecided:
        verb = _verb(content.undecided, "sample is", "samples are")
        text += f" {whole(content.undecided)} {verb} too close to τ to be sure of the side."
    return text


def how_sure(content: Content) -> str:
    """Return how many predictions were right, or why that is not known."""
    if content.scored is None:
        return "There is nothing to be sure of yet."
    point = content.point
    if point is not None and content.evaluation is not None:
        return _held_against_truth(content, point)
    if content.scored.judged.any():
        n = int(content.scored.judged.sum())
        found = int(content.scored.memorized(content.eta).sum())
        return (
            f"By log-LiRA at η = {content.eta:g}, {whole(found)} of {whole(n)} samples are "
            "memorised: with one kind alone there are no rates of hits and false alarms."
        )
    shadows = content.numbers["shadow_models"]
    reason = "no log-LiRA at the end of training" if shadows else "no shadow models"
    return (
        f"This is a prediction. There is no ground truth beside it ({reason}), so how many "
        "of the flagged samples the finished model will really memorise, and how many it will "
        "memorise that are not flagged, is not known; no rate is given."
    )


def _held_against_truth(content: Content, point: OperatingPoint) -> str:
    memorized = point.hits + point.missed
    shadows = content.numbers["shadow_models"]
    by_shadows = shadows and not content.truth_given
    against = f"Held against {whole(shadows)} shadow models, " if by_shadows else "By log-LiRA, "
    text = (
        f"{against}{whole(memorized)} of {whole(point.n)} samples "
        f"{_verb(memorized, 'is', 'are')} memorised by the finished model (log-LiRA ≥ "
        f"{content.eta:g}). The prediction finds {whole(point.hits)} of these "
        f"({share(point.tpr)}, 95 % interval {_between(point.tpr_interval)}) and misses "
        f"{whole(point.missed)}; of the others it flags {share(point.fpr)} "
        f"({_between(point.fpr_interval)})."
    )
    text += "".join(f" {remark}." for remark in content.remarks)
    text += _answered(content)
    if point.precision is not None and point.precision_interval is not None:
        text += (
            f" Of the flagged samples {share(point.precision)} "
            f"({_between(point.precision_interval)}) are memorised."
        )
    return text


def _answered(content: Content) -> str:
    """Say that memorised does not mean answered rightly, with the number if it is known."""
    wrong = None if content.scored is None else content.scored.memorized_but_wrong(content.eta)
    if wrong is None:
        return ""
    return (
        " Memorised means that training on a sample changed what the finished model says of it. "
        "It does not mean that the model answers it rightly: of the memorised samples it answers "
        f"{whole(wrong)} wrongly."
    )


def decided(content: Content) -> str:
    """Return a sentence on what was decided."""
    made = content.decided(flagged=False)
    if sum(made.values()) == made["undecided"]:
        return "Nothing was decided on any sample yet."
    parts = [
        f"{whole(made[name])} {_verb(made[name], 'is', 'are')} {word}"
        for name, word in (
            ("remove", "to be removed"),
            ("anonymise", "to be anonymised"),
            ("relabel", "to be relabelled"),
            ("keep", "kept as accepted risk"),
        )
        if made[name]
    ]
    left = content.decided(flagged=True)["undecided"]
    open_ones = f"{whole(left)} flagged {_verb(left, 'sample is', 'samples are')} undecided"
    return f"Decided so far: {', '.join(parts)}; {open_ones}."


def _between(interval: tuple[float, float]) -> str:
    return f"{share(interval[0])} to {share(interval[1])}"


def _verb(count: float, one: str, many: str) -> str:
    return one if round(count) == 1 else many


_STATEMENT = (
    "This record says what was measured, and with which settings. It makes no statement on "
    "whether a law, a contract or a standard is complied with."
)
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


@dataclass(frozen=True)
class Record:
    """The parts of the record, as texts.

    Attributes
    ----------
    statement : str
        What the record does not say.
    audited, method : tuple of (name, text)
        What was audited, and with which method and settings.
    digests : tuple of (what, sha256, of)
        SHA-256 of model, data, run and results, and of what exactly. Where there is none, an empty
        text and the reason.
    found : tuple of (name, value, interval)
        Results with 95 % intervals.
    judgement : str
        How sure the results are.
    decided : tuple of (decision, members, flagged members)
        Number of members with each decision.
    decisions : str
        The same as a sentence.
    limits : tuple of str
        What the audit cannot say.
    """

    statement: str
    audited: tuple[Row, ...]
    method: tuple[Row, ...]
    digests: tuple[tuple[str, str, str], ...]
    found: tuple[tuple[str, str, str], ...]
    judgement: str
    decided: tuple[tuple[str, str, str], ...]
    decisions: str
    limits: tuple[str, ...]

    @classmethod
    def of(cls, content: Content) -> Record:
        """Return the record of a report's content."""
        every, flagged = content.decided(flagged=False), content.decided(flagged=True)
        limits = _LIMITS + (_LIMIT_OF_TRUTH if _is_judged(content) else (_NO_TRUTH,))
        return cls(
            statement=_STATEMENT,
            audited=tuple(_audited_rows(content)),
            method=tuple(_method(content)),
            digests=tuple((d.what, d.sha256 or "", d.of or d.why) for d in content.digests),
            found=tuple(rates(content)),
            judgement=how_sure(content),
            decided=tuple((name, whole(every[name]), whole(flagged[name])) for name in every),
            decisions=decided(content),
            limits=(*limits, *content.cautions, *(f"{m.what}: {m.why}" for m in content.missing)),
        )


def _is_judged(content: Content) -> bool:
    return content.scored is not None and bool(content.scored.judged.any())


def _audited_rows(content: Content) -> list[Row]:
    return [
        ("audit", content.name),
        ("report written at", content.created),
        *content.facts.items(),
    ]


def _method(content: Content) -> list[Row]:
    scored = content.scored
    found = [
        (
            "method",
            (
                "memowidgets gives each member a score at a checkpoint. A low score means that the "
                "model is likely to memorise the member."
            ),
        )
    ]
    if scored is not None:
        found += [
            ("score", scored.title),
            ("flagged", f"members whose score is at most τ = {content.tau:g}"),
        ]
    if _is_judged(content):
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
