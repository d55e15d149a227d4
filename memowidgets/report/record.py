"""The first page of a report, fit to be filed: what its owner says, and what was found."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memowidgets.report.words import BELOW, conclusion, decided, memorized_rows, verb, whole
from memowidgets.visible import quoted, visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.report.content import Content, Scored

FIELDS = {
    "purpose": "Purpose",
    "model": "Model and its version",
    "data": "Data",
    "controller": "Controller of the data",
    "auditor": "Auditor",
    "date": "Date",
    "residual_risk": "Residual risk",
    "decisions": "Decisions taken",
    "next_review": "Next review",
}
MOST_CHARACTERS = 1000  # of a field, so that the page stays one or two sheets of paper

STATEMENT = (
    "This record says what was measured, and with which settings. It makes no statement on "
    "whether a law, a contract or a standard is complied with."
)
_TREATED = ("remove", "anonymise", "relabel")
_SCORES = {
    "psmi": (
        "PSMI is pointwise sliced mutual information, in nats, a unit of information: how much "
        "what a layer of the model holds of a sample says of the sample's label."
    ),
    "loss": (
        "The log-probability of the label is the logarithm, in nats, of the probability that the "
        "model gives the sample's label."
    ),
    "logit_gap": (
        "The logit gap is the model's logit of the sample's label, less the highest logit of "
        "another class."
    ),
    "mahalanobis": (
        "The Mahalanobis score is minus the distance between what a layer of the model holds of a "
        "sample and the mean of all samples, in units of their spread."
    ),
    "csl": (
        "The mean log-probability so far is the log-probability of the label, in nats, averaged "
        "over the checkpoints up to this one."
    ),
    "psmi_mean": (
        "Mean PSMI averages PSMI, pointwise sliced mutual information, over the checkpoints up to "
        "this one: how much what a layer of the model holds of a sample says of its label."
    ),
    "psmi+csl": (
        "The score adds the rank by PSMI (pointwise sliced mutual information: how much what a "
        "layer of the model holds of a sample says of its label) to the rank by the mean "
        "log-probability of the label so far."
    ),
    "baseline": (
        "The baseline is minus a log-likelihood ratio at this checkpoint, between shadow models "
        "that trained on the sample and others that did not."
    ),
    "reference": (
        "The score is the mean logit gap of models that never saw the sample: the logit of its "
        "label, less the highest logit of another class."
    ),
    "reference+csl": (
        "The score adds two ranks: by the mean logit gap of models that never saw the sample, and "
        "by the mean log-probability of the label so far."
    ),
    "reference+psmi+csl": (
        "The score adds three ranks: by the mean logit gap of models that never saw the sample, by "
        "PSMI (pointwise sliced mutual information: how much what a layer of the model holds of a "
        "sample says of its label), and by the mean log-probability of the label so far."
    ),
}


def checked_about(about: Mapping[str, object] | None) -> dict[str, str]:
    """Return what the owner of an audit says of it, as texts.

    Parameters
    ----------
    about : mapping of str to str, date or None, optional
        Texts by the names in `FIELDS`. A field that is absent, empty or None is an empty line.

    Raises
    ------
    TypeError
        If `about` is not a mapping, or a value is neither a text nor a date.
    ValueError
        If a name is unknown, or a text is too long.

    Examples
    --------
    >>> checked_about({"auditor": "A. Smith", "next_review": dt.date(2027, 1, 31)})
    {'auditor': 'A. Smith', 'next_review': '2027-01-31'}
    """
    if about is None:
        return {}
    if not isinstance(about, Mapping):
        raise TypeError(
            f"about must be a mapping of fields to texts, such as {{'purpose': '…'}}, not "
            f"{type(about).__name__}"
        )
    found = {}
    for name, value in about.items():
        if name not in FIELDS:
            raise ValueError(f"about has no field {quoted(name)}; valid: {', '.join(FIELDS)}")
        if isinstance(value, dt.date):
            text = f"{value:%Y-%m-%d}"
        elif value is None or isinstance(value, str):
            text = visible((value or "").strip())
        else:
            raise TypeError(f"about[{name!r}] must be a text or a date, not {type(value).__name__}")
        if len(text) > MOST_CHARACTERS:
            raise ValueError(
                f"about[{name!r}] has {len(text)} characters: use at most {MOST_CHARACTERS}, and "
                "name the document that has the rest"
            )
        if text:
            found[name] = text
    return found


@dataclass(frozen=True)
class Entry:
    """One field of the page that can be filed.

    Attributes
    ----------
    title : str
        Name for readers.
    said : tuple of str
        Sentences that follow from the numbers.
    given : str, optional
        Text of the owner of the audit.
    lines : tuple of str
        Labels of the empty lines to write on, each of which may be empty.
    """

    title: str
    said: tuple[str, ...] = ()
    given: str | None = None
    lines: tuple[str, ...] = ()


def record(content: Content) -> dict[str, Entry]:
    """Return the fields of the page that can be filed, in their order."""
    about = content.about

    def asked(name: str, *said: str) -> Entry:
        given = about.get(name)
        return Entry(FIELDS[name], said, given, () if given else ("",))

    numbers = content.numbers
    loader = content.facts.get("data")
    samples = (
        f"Recorded: {f'{loader}, ' if loader else ''}{whole(numbers['members'])} members, which "
        f"are the samples that the model trains on, of {whole(numbers['samples'])} samples."
    )
    return {
        "purpose": asked("purpose"),
        "model": asked("model", _model(content)),
        "data": asked("data", samples),
        "controller": asked("controller"),
        "auditor": asked("auditor"),
        "date": Entry(FIELDS["date"], given=about.get("date", content.created[:10])),
        "definitions": Entry("Definitions", _definitions(content)),
        "conclusion": Entry("Conclusion", conclusion(content)),
        "reservations": Entry(
            "Reservations", tuple(map(_sentence, content.cautions)) or ("None is known.",)
        ),
        "residual_risk": asked("residual_risk", _left(content)),
        "decisions": asked("decisions", decided(content)),
        "next_review": asked("next_review"),
        "signature": Entry("Signature", lines=("name", "place and date", "signature")),
    }


def _model(content: Content) -> str:
    """Return what the run knows of the model, with the start of the digest of its weights."""
    known = (content.facts.get(name) for name in ("model", "recorded audit"))
    text = f"Recorded: {', '.join(filter(None, known)) or 'no model'}"
    if content.scored is not None and content.scored.checkpoint:
        text += f", checkpoint {content.scored.checkpoint}"
    weights = next((d.sha256 for d in content.digests if d.what == "model"), None)
    return (
        f"{text}. The SHA-256 of its weights begins with {weights[:12]}." if weights else f"{text}."
    )


def _definitions(content: Content) -> tuple[str, ...]:
    """Return a definition of each term, before the page uses it."""
    of_score = [] if content.scored is None else [_SCORES.get(content.scored.metric, "")]
    rule = BELOW if content.by_class else "at most the threshold τ"
    low = f"A low score means a risk; a sample is flagged if its score is {rule}."
    eta = f", here at least η = {content.eta:g}" if memorized_rows(content) is not None else ""
    return (
        (
            "A shadow model is trained as the audited model is, on another random part of the "
            "samples."
        ),
        *(f"{text} {low}".strip() for text in of_score),
        (
            "A sample is memorised if training on it clearly changed what the finished model says "
            "of it. This is measured by log-LiRA, a log-likelihood ratio between shadow models "
            f"that trained on the sample and others that did not{eta}."
        ),
    )


def _sentence(text: str) -> str:
    if text[:1].isascii():  # a τ stays small
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _left(content: Content) -> str:
    """Return how many samples in question nobody decided to treat."""
    scored = content.scored
    if scored is None:
        return "The audited model was not measured."
    memorized = memorized_rows(content)
    rows, what = content.flagged, "flagged"
    if memorized is not None:
        rows, what = np.zeros(len(scored.scores), dtype=np.bool_), "memorised"
        rows[scored.judged] = memorized
    return _of_treated(content, scored, rows, what)


def _of_treated(content: Content, scored: Scored, rows: NDArray[np.bool_], what: str) -> str:
    names = [content.ids[int(p)] for p in scored.positions[rows]]
    made = (content.decisions.get(name) for name in names)
    left = sum(one is None or one.decision not in _TREATED for one in made)
    return (
        f"Of the {whole(len(names))} {what} samples, {whole(left)} "
        f"{verb(left, 'is', 'are')} not to be removed, anonymised or relabelled. The audited "
        "model keeps what it memorised until it is trained again."
    )
