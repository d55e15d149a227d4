"""What the page's script gets: the explorer's traits and the inspector's samples, packed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.decisions import Decision
from memowidgets.evaluation import compare, roc
from memowidgets.report.content import CHOICES, Decided
from memowidgets.report.packing import Parcel, planes, rising, thousandths
from memowidgets.visible import visible
from memowidgets.widgets.arrays import ErrorLevels, SortedScores, eta_range, thinned_curve
from memowidgets.widgets.items import Items, digits_for, short_title
from memowidgets.widgets.pages import Rows, classes_in
from memowidgets.widgets.samples import readable, reader_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.evaluation import Evaluation
    from memowidgets.report.content import Content, Scored
    from memowidgets.widgets.samples import Card, SampleReader

    Floats = NDArray[np.float64]

__all__ = ["MOST_SAMPLES", "parcel"]

MOST_SAMPLES = 1000
MOST_PIXELS = 64  # of a picture's longer side
BAND_RESAMPLES = 300


def parcel(content: Content) -> Parcel:
    """Everything that moves on the page."""
    figures = [
        {"caption": visible(f.caption), "svg": f.svg, "wide": f.is_wide} for f in content.figures
    ]
    packed = Parcel({"tau": content.tau, "eta": content.eta, "figures": figures})
    if content.scored is not None:
        packed.head["explorer"] = _explorer(content, content.scored, packed)
        packed.head["inspector"] = _inspector(content, content.scored, packed)
    return packed


# ---------------------------------------------------------------- the explorer


def _explorer(content: Content, scored: Scored, packed: Parcel) -> dict[str, Any]:
    """The explorer's traits, those that are bytes apart."""
    counting = scored.judged if scored.judged.any() else np.ones(len(scored.scores), np.bool_)
    scores = SortedScores.of(scored.scores[counting])
    packed.add("values", rising(scores.values))
    wire = scores.packed()
    packed.add("shared", wire["shared"])
    packed.add("ties", wire["ties"])
    if scored.errors is not None:
        levels = ErrorLevels.of(scored.errors[counting]).packed(scores)
        packed.add("levels", levels["levels"])
        packed.add("codes", levels["codes"])
    return {
        "title": readable(scored.title),
        "n_shared": wire["n_shared"],
        "note": _note(scored, int((~counting).sum())),
        "truth": _truth(content, scored, scores, packed),
        "late": _late(content, scored, packed),
    }


def _note(scored: Scored, left_out: int) -> str:
    if scored.log_lira is None or not left_out:
        return ""
    verb = "sample has no log-LiRA and is" if left_out == 1 else "samples have no log-LiRA and are"
    return f"{left_out} {verb} left out."


def _truth(
    content: Content, scored: Scored, scores: SortedScores, packed: Parcel
) -> dict[str, Any] | None:
    """log-LiRA in the order of the scores, and who is memorised by it."""
    if scored.log_lira is None or not scored.judged.any():
        return None
    log_lira = scored.log_lira[scored.judged]
    in_order = scores.rising(log_lira)
    short = thousandths(in_order)
    packed.add("log_lira", planes(in_order if short is None else short))
    for name, found in scores.packed_truth(scored.memorized(content.eta)).items():
        packed.add(name, found or b"")
    return {"thousandths": short is not None, "eta_range": eta_range(log_lira)}


def _late(content: Content, scored: Scored, packed: Parcel) -> dict[str, Any]:
    """The band of the ROC, what must be known of it, and other scores' curves."""
    evaluation = content.evaluation
    if evaluation is None:
        return {"remarks": [], "others": []}
    frame = evaluation.band(BAND_RESAMPLES)
    columns = [frame[name].to_numpy() for name in ("fpr", "tpr_low", "tpr_high")]
    packed.add("band", np.concatenate(columns).astype("<f4").tobytes())
    others = [
        _other(i, name, values[scored.judged], evaluation, packed)
        for i, (name, values) in enumerate(scored.others.items())
    ]
    return {"remarks": list(evaluation.warnings), "others": others}


def _other(
    i: int, name: str, scores: Floats, evaluation: Evaluation, packed: Parcel
) -> dict[str, Any]:
    """Another score's curve, and how its AUC differs."""
    other = roc(scores, evaluation.memorized)
    packed.add(
        f"other_{i}", thinned_curve(other.roc["fpr"].to_numpy(), other.roc["tpr"].to_numpy())
    )
    difference = None
    if min(evaluation.n_memorized, evaluation.n - evaluation.n_memorized) > 1:
        test = compare(other, evaluation)
        difference = [test.difference, *test.interval]
    return {"name": name, "auc": [other.auc, *other.auc_interval], "difference": difference}


# ---------------------------------------------------------------- the inspector


def _inspector(content: Content, scored: Scored, packed: Parcel) -> dict[str, Any]:
    """The samples most at risk: their numbers in columns, and, if asked for, what they are."""
    chosen = content.by_risk[:MOST_SAMPLES]
    names = [content.ids[int(p)] for p in scored.positions[chosen]]
    made = [content.decisions.get(name, Decided()) for name in names]
    columns: dict[str, Any] = {
        "positions": scored.positions[chosen].tolist(),
        "scores": scored.scores[chosen].tolist(),
        "decisions": [CHOICES.index(m.decision) for m in made],
    }
    if scored.errors is not None:
        columns["errors"] = scored.errors[chosen].tolist()
    if scored.log_lira is not None and scored.judged.any():
        columns["log_lira"] = [_number(value) for value in scored.log_lira[chosen].tolist()]
    if content.canaries is not None:
        columns["canaries"] = content.canaries[scored.positions[chosen]].astype(int).tolist()
    return {
        "columns": columns,
        "digits": digits_for(scored.scores),
        "score_name": readable(short_title(scored.title)),
        "choices": list(CHOICES),
        **_shown(content, scored, chosen, made, packed),
    }


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _shown(
    content: Content,
    scored: Scored,
    chosen: NDArray[np.int64],
    made: list[Decided],
    packed: Parcel,
) -> dict[str, Any]:
    """The samples themselves, as the dashboard's inspector shows them; without them no word."""
    if content.samples is None:
        return {"kind": "number", "items": None}
    reader = reader_for(content.samples)
    rows = Rows(
        scored.positions,
        scores=scored.scores,
        errors=scored.errors,
        labels=scored.labels,
        probabilities=scored.probabilities,
    )
    makes = Items(_Smaller(reader), content.class_names, content.ids)
    pixels = bytearray()
    items = [
        makes.item(rows, int(row), content.tau, Decision(m.decision, m.note), pixels)
        for row, m in zip(chosen, made, strict=True)
    ]
    packed.add("pixels", bytes(pixels))
    labels = None if scored.labels is None else scored.labels[chosen]
    return {
        "kind": reader.kind,
        "notice": readable(reader.notice),
        "items": [{name: item[name] for name in item if name not in _COMPUTED} for item in items],
        "labels": None if labels is None else labels.tolist(),
        "classes": makes.classes(classes_in(labels)),
    }


# The page knows these from the columns, or from where τ stands.
_COMPUTED = ("position", "status", "score", "error", "uncertain", "logLira", "decision", "canary")


class _Smaller:
    """The same samples, their pictures made small enough for a page."""

    def __init__(self, reader: SampleReader) -> None:
        self._reader = reader
        self.kind, self.editable, self.notice = reader.kind, False, reader.notice

    def __len__(self) -> int:
        return len(self._reader)

    def id(self, position: int) -> str:
        return self._reader.id(position)

    def text(self, position: int) -> str:
        return self._reader.text(position)

    def labels(self) -> NDArray[np.int64] | None:
        return self._reader.labels()

    def card(self, position: int) -> Card:
        card = self._reader.card(position)
        return card if card.image is None else replace(card, image=smaller(card.image))


def smaller(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture whose longer side is at most 64 pixels, each the mean of a square.

    Examples
    --------
    >>> smaller(np.full((100, 130, 3), 7, np.uint8)).shape
    (34, 44, 3)
    """
    height, width, channels = image.shape
    side = -(-max(height, width) // MOST_PIXELS)
    if side == 1:
        return image
    edges = ((0, -height % side), (0, -width % side), (0, 0))
    whole = np.pad(image, edges, mode="edge").astype(np.float32)
    squares = whole.reshape(-(-height // side), side, -(-width // side), side, channels)
    means: NDArray[np.uint8] = squares.mean(axis=(1, 3)).round().astype(np.uint8)
    return means
