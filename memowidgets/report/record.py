"""The record of an audit that can be filed: what was audited, how, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memowidgets.report.words import decided, how_sure, rates, whole

if TYPE_CHECKING:
    from memowidgets.report.content import Content

__all__ = ["Record"]

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
            audited=tuple(_audited(content)),
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


def _audited(content: Content) -> list[Row]:
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
