"""Static pictures and tables of numbers, for paper and for places where no widget can run."""

from __future__ import annotations

import base64
import html
import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from memowidgets.vocabulary import threshold, truly, verb, visible, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from memowidgets.evaluation.scored import Rule, Scored
    from memowidgets.widgets.messages import Moment

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]


_MOST = 1000  # characters of a value


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table with two columns of escaped text."""
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{html.escape(visible(name))}</th>'
        f'<td style="text-align:right">{html.escape(visible(value, _MOST))}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{html.escape(visible(title))}</caption><tbody>{body}</tbody></table>"


def sentences(
    scored: Scored, rule: Rule, eta: float | None, positives: str = "memorised"
) -> list[str]:
    """Return what the explorer says beside its dots.

    Examples
    --------
    >>> from memowidgets.evaluation.scored import Scored
    >>> some = Scored(np.arange(3), np.array([-2.0, -1.0, 3.0]), log_lira=np.array([9.0, 0.0, 5.0]))
    >>> sentences(some, -1.0, 4.0)
    ['2 flagged of 3', '1 of 2 memorised is found', '1 flagged only']
    """
    scored = _judged(scored)
    counts = scored.counts(rule, eta)
    flagged = f"{whole(counts['flagged'])} flagged of {whole(counts['n'])}"
    if "found" not in counts:
        return [flagged]
    memorized = counts["found"] + counts["missed"]
    doubt = (
        scored.doubt(eta) if scored.doubt and eta is not None and memorized else None
    )
    are = verb(counts["found"], "is", "are")
    return [
        flagged,
        f"{whole(counts['found'])} of {whole(memorized)} {positives} {are} found",
        *([] if doubt is None else [truly(doubt.expected, memorized)]),
        f"{whole(counts['flagged_only'])} flagged only",
    ]


def still(
    scored: Scored, rule: Rule, eta: float | None, positives: str = "memorised"
) -> str:
    """Return the dots as an image, and the sentences beneath it; parameters as for `dots`."""
    if not len(scored):
        return ""
    drawing = dots(scored, rule, eta, positives)
    packed = base64.b64encode(drawing.encode()).decode()
    said = [
        html.escape(visible(text)) for text in sentences(scored, rule, eta, positives)
    ]
    lines = "".join(f"<div>{text}</div>" for text in said)
    image = f'<img alt="{"; ".join(said)}" src="data:image/svg+xml;base64,{packed}">'
    return f"<div>{image}{lines}</div>"


_WIDTH, _HEIGHT = 660, 196
_LEFT, _RIGHT = 10, 650
_TOP, _FOOT = 20, 172  # between them lie the dots
_COLUMN = 6  # pixels, so that dots stand beside each other
_SMALLEST = 1.5  # pixels between two dots of a column: below, it is drawn as a bar
_GAP = 1.5  # pixels between the common line and the first sample
_MOST_FLAGGED = 500  # that are dots where the rest of their side is bars
_TEXT, _MUTED, _LINE = "#1f2328", "#5b6670", "#8a959e"
_RISK, _DARK, _LIGHT, _PAPER = "#c2334b", "#47617a", "#b1bfcc", "#ffffff"


def dots(
    scored: Scored, rule: Rule, eta: float | None, positives: str = "memorised"
) -> str:
    """Return the explorer's dots and its τ as an SVG element without a script or a style.

    Memorised samples go up from a common line, hollow where they are missed. The others go down,
    dark where they are flagged. A side with too many of them is drawn as bars, on its own scale,
    with up to 500 flagged ones as dots. Without ground truth all stand on the line.

    Parameters
    ----------
    scored : Scored
        The samples. Those that the ground truth says nothing of are left out if there is one.
    rule : float, "class", LowestShare or None
        What flags them, as in `Scored.flagged`.
    eta : float or None
        Log-LiRA from which on a sample is memorised.
    positives : str
        What goes up, as in ``"canaries"``.
    """
    scored, tau = _judged(scored).on(rule)
    axis = _Axis.of(scored.scores)
    columns = axis.column(scored.scores)
    flagged, memorized = scored.flagged(tau), scored.memorized(eta)
    known = memorized is not None
    up = np.zeros(len(scored), dtype=np.bool_) if memorized is None else memorized
    line = (_TOP + _FOOT) / 2 if known else _FOOT
    room = line - _TOP - 14 if known else line - _TOP - 16
    below = _Side.of(columns, ~up, flagged, axis.n, room, 4, 1500)
    above = _Side.of(columns, up, flagged, axis.n, room, 6, 500)
    x = axis.pixel(tau)
    size = {"width": x - _LEFT, "height": _FOOT - _TOP}
    region = _element(
        "rect", "region", x=_LEFT, y=_TOP, **size, fill=_RISK, fill_opacity=0.06
    )
    parts = [
        region,
        _element("path", "line", d=f"M{_LEFT} {line}H{_RIGHT}", stroke=_LINE),
        *below.elements(axis, line, 1 if known else -1, _DARK, _LIGHT, hollow=False),
        *above.elements(axis, line, -1, _RISK, _RISK, hollow=True),
        *(_names(positives) if known else ()),
        _element(
            "path",
            "tau",
            d=f"M{x:.1f} {_TOP - 6}V{_FOOT}",
            stroke=_TEXT,
            stroke_width=2,
        ),
    ]
    title = html.escape(visible(scored.title, 80)) or "score"
    barred = [side.highest for side in (above, below) if not side.left.dotted]
    bars = " and ".join(map(whole, barred))
    scale = f" (bars to {bars})" if bars else ""
    beside, anchor = (6, "start") if x < (_LEFT + _RIGHT) / 2 else (-6, "end")
    parts += [
        _words(x + beside, _TOP - 2, threshold(tau), _TEXT, anchor=anchor, weight=700),
        _words(_LEFT, _HEIGHT - 6, f"← low = at risk{scale}", _MUTED),
        _words(_RIGHT, _HEIGHT - 6, f"{title} →", _MUTED, anchor="end"),
    ]
    said = html.escape("; ".join(sentences(scored, tau, eta, positives)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mw-still" width="{_WIDTH}" '
        f'height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{said}" '
        f'font-family="system-ui, sans-serif" font-size="12" font-weight="400">'
        f"{_element('rect', 'paper', width=_WIDTH, height=_HEIGHT, fill=_PAPER)}"
        f"{''.join(parts)}</svg>"
    )


BEST = "best time to predict"
_LINE_OF_TIME = 44  # pixels from the top of its picture
_TIME_HEIGHT = 64
_STARRED = 70  # pixels beside the star that its words take


def time_line(moments: Sequence[Moment], here: str) -> str:
    """Return the timeline as an SVG element: two losses, the checkpoints, and the star.

    Parameters
    ----------
    moments : sequence of Moment
        The checkpoints in the order of training.
    here : str
        Name of the one on show.
    """
    xs = _pixels_of(moments)
    held = [one.held_out for one in moments]
    training = [one.loss for one in moments]
    known = [loss for loss in (*training, *held) if _is_known(loss)]
    most = max(known, default=0.0) or 1.0
    star = next((i for i, one in enumerate(moments) if one.star), None)
    shown = [i for i, one in enumerate(moments) if one.value == here]
    ticks = [
        _element("circle", "tick", cx=f"{x:.1f}", cy=_LINE_OF_TIME, r=2, fill=_TEXT)
        for x in xs
    ]
    knob = [
        _element("circle", "tick", cx=f"{xs[i]:.1f}", cy=_LINE_OF_TIME, r=5, fill=_TEXT)
        for i in shown
    ]
    parts = [
        _curve("line", xs, held, most, _LINE, 1),
        _curve("tau", xs, training, most, _TEXT, 2),
        *_names_of_losses(training, held, most),
        *ticks,
        *knob,
    ]
    said = "Losses while the model was trained"
    if star is not None:
        x = xs[star]
        stem = f"M{x:.1f} 4V{_LINE_OF_TIME}"
        near = min(max(x, _LEFT + _STARRED), _RIGHT - _STARRED)
        words = f"★ {BEST}, epoch {moments[star].epoch:g}"
        parts.append(_element("path", "tau", d=stem, stroke=_TEXT))
        parts.append(
            _words(near, _TIME_HEIGHT - 4, words, _TEXT, anchor="middle", weight=700)
        )
        said += f"; {words}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mw-still" width="{_WIDTH}" '
        f'height="{_TIME_HEIGHT}" viewBox="0 0 {_WIDTH} {_TIME_HEIGHT}" role="img" '
        f'aria-label="{said}" font-family="system-ui, sans-serif" font-size="12">'
        f"{''.join(parts)}</svg>"
    )


def _pixels_of(moments: Sequence[Moment]) -> list[float]:
    """Return where each stands: by its epoch, or one after the other where these do not rise."""
    epochs = np.array([one.epoch for one in moments])
    if not (np.diff(epochs) > 0).all():
        epochs = np.arange(len(moments))
    shares = (epochs - epochs[0]) / (epochs[-1] - epochs[0])
    return [_LEFT + (_RIGHT - _LEFT) * float(share) for share in shares]


def _is_known(loss: float | None) -> TypeGuard[float]:
    return loss is not None and math.isfinite(loss)


def _height_of(loss: float, most: float) -> float:
    """Return how far from the top a loss stands, of which `most` is the largest."""
    return _LINE_OF_TIME - 6 - loss / most * (_LINE_OF_TIME - 9)


def _curve(
    kind: str,
    xs: list[float],
    losses: Sequence[float | None],
    most: float,
    color: str,
    width: float,
) -> str:
    points = [
        f"{x:.1f} {_height_of(loss, most):.1f}"
        for x, loss in zip(xs, losses, strict=True)
        if _is_known(loss)
    ]
    path = f"M{'L'.join(points)}" if points else ""
    return _element("path", kind, d=path, stroke=color, stroke_width=width)


def _names_of_losses(
    training: Sequence[float | None], held: Sequence[float | None], most: float
) -> Iterable[str]:
    """Return the names of the two losses, at their last values and apart from each other."""
    lowest = math.inf
    named = (training, "median training loss", _TEXT), (held, "held-out loss", _MUTED)
    for losses, name, color in named:
        known = [loss for loss in losses if _is_known(loss)]
        if not known:
            continue
        lowest = min(_height_of(known[-1], most) - 4, lowest - 13)
        yield _words(_RIGHT, max(lowest, 10), name, color, anchor="end")


def _judged(scored: Scored) -> Scored:
    return scored.only(scored.judged) if scored.judged.any() else scored


class _Axis(NamedTuple):
    """Columns of equal width, of which 0 is an edge, on a linear or a symmetric log axis."""

    knee: float | None  # of the log axis
    start: float
    width: float
    n: int

    @classmethod
    def of(cls, scores: Floats) -> _Axis:
        low, high = float(scores.min()), float(scores.max())
        shares = np.quantile(scores, [0.1, 0.25, 0.5, 0.75, 0.9])
        knee = None
        # most would be in a corner, as losses are
        if shares[-1] - shares[0] < (high - low) / 12:
            middle = sorted(np.abs(shares))[2] or float(np.abs(scores).max())
            knee = 10.0 ** math.floor(math.log10(middle))
        low, high = (_place(end, knee) for end in (low, high))
        around = 0.0 if high > low else max(abs(low), 1.0) * 0.1
        width = (high - low + 2 * around) / ((_RIGHT - _LEFT) // _COLUMN) or 1.0
        first = math.ceil(low / width) - 1
        return cls(knee, first * width, width, max(1, math.ceil(high / width) - first))

    def column(self, scores: Floats) -> Counts:
        """Return the column of each score: above its left edge, and up to its right one."""
        places = _place(scores, self.knee)
        found: Counts = np.ceil((places - self.start) / self.width).astype(np.int64) - 1
        return found.clip(0, self.n - 1)

    def pixel(self, score: float) -> float:
        share = (_place(score, self.knee) - self.start) / (self.n * self.width)
        return _LEFT + (_RIGHT - _LEFT) * min(max(float(share), 0.0), 1.0)

    def middle(self, column: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (column + 0.5) / self.n


def _place(scores: Any, knee: float | None) -> Any:
    return scores if knee is None else np.arcsinh(scores / knee)


class _Piles(NamedTuple):
    """Samples that stand on each other in columns, as dots or as bars."""

    start: Counts  # of each column
    stop: Counts
    pitch: float  # pixels of one
    dotted: bool

    @property
    def width(self) -> float:
        return max(self.pitch, 2.6) - 0.4 if self.dotted else 5

    def element(
        self, kind: str, color: str, axis: _Axis, line: float, sign: int, thinner: float
    ) -> str:
        """Return them as a path, drawn so much `thinner` than they are."""
        width = max(self.width - thinner, 0.8)
        cap = {"stroke_linecap": "round"} if self.dotted else {}
        path = self._path(axis, line, sign)
        return _element("path", kind, d=path, stroke=color, stroke_width=width, **cap)

    def _path(self, axis: _Axis, line: float, sign: int) -> str:
        pieces = []
        for column in np.flatnonzero(self.stop > self.start).tolist():
            x = axis.middle(column)
            steps = range(int(self.start[column]), int(self.stop[column]))
            if self.dotted:
                for step in steps:
                    y = line + sign * (_GAP + (step + 0.5) * self.pitch)
                    pieces.append(f"M{x:.1f} {y:.1f}h0")
            else:
                near = line + sign * (_GAP + steps.start * self.pitch)
                far = line + sign * (_GAP + max(steps.stop * self.pitch, 1.5))
                pieces.append(f"M{x:.1f} {near:.1f}V{far:.1f}")
        return "".join(pieces)


class _Side(NamedTuple):
    """The samples on one side of the common line."""

    left: _Piles
    flagged: _Piles
    highest: int  # column

    @classmethod
    def of(
        cls,
        columns: Counts,
        here: Any,
        flagged: Any,
        n: int,
        room: float,
        size: float,
        most: int,
    ) -> _Side:
        counts = np.bincount(columns[here], minlength=n)
        some = np.bincount(columns[here & flagged], minlength=n)
        none = np.zeros_like(some)
        highest = int(counts.max(initial=0))
        pitch = room / max(highest, 1)
        if counts.sum() <= most and pitch >= _SMALLEST:
            pitch = min(size, pitch)
            left = _Piles(some, counts, pitch, dotted=True)
            return cls(left, _Piles(none, some, pitch, dotted=True), highest)
        dot = min(size, room / max(int(some.max(initial=0)), 1))
        if some.sum() <= _MOST_FLAGGED and dot >= _SMALLEST:
            left = _Piles(none, counts, pitch, dotted=False)
            return cls(left, _Piles(none, some, dot, dotted=True), highest)
        left = _Piles(some, counts, pitch, dotted=False)
        return cls(left, _Piles(none, some, pitch, dotted=False), highest)

    def elements(
        self,
        axis: _Axis,
        line: float,
        sign: int,
        dark: str,
        light: str,
        *,
        hollow: bool,
    ) -> Iterable[str]:
        kind = "memorized" if hollow else "other"
        yield self.left.element(f"{kind}-left", light, axis, line, sign, 0)
        if hollow:
            yield self.left.element("hollow", _PAPER, axis, line, sign, 2.4)
        yield self.flagged.element(kind, dark, axis, line, sign, 0)


def _names(positives: str) -> list[str]:
    """Return what stands where."""
    top, foot = _TOP + 12, _FOOT - 4
    return [
        _words(_LEFT + 4, top, f"{html.escape(visible(positives, 40))}: found", _RISK),
        _words(_LEFT + 4, foot, "flagged only", _MUTED),
        _words(_RIGHT - 4, top, "missed", _RISK, anchor="end"),
        _words(_RIGHT - 4, foot, "left alone", _MUTED, anchor="end"),
    ]


def _words(
    x: float,
    y: float,
    text: str,
    fill: str,
    *,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    kind = {_TEXT: "text", _MUTED: "muted", _RISK: "risk"}[fill]
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    halo = f'paint-order="stroke" stroke="{_PAPER}" stroke-width="3" stroke-linejoin="round"'
    return f'<text class="mw-still-{kind}" {place} fill="{fill}" {halo}>{text}</text>'


def _element(name: str, kind: str, **attributes: object) -> str:
    attributes = {"fill": "none"} | attributes
    told = "".join(
        f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items()
    )
    return f'<{name} class="mw-still-{kind}"{told}/>'
