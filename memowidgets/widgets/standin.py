"""Static tables and pictures of numbers, for places where no widget can run."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.charts.look import LIGHT
from memowidgets.visible import visible
from memowidgets.vocabulary import at, between, counted_flagged, percent, threshold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memowidgets.evaluation import Evaluation
    from memowidgets.widgets.explored import Bools, Floats


_MOST = 1000  # characters of a value


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table with two columns of escaped text."""
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{html.escape(visible(name))}</th>'
        f'<td style="text-align:right">{html.escape(visible(value, _MOST))}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{html.escape(visible(title))}</caption><tbody>{body}</tbody></table>"


def with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    """Return a rate with its 95 % interval as text, or "none"."""
    if value is None or interval is None:
        return "none"
    return f"{percent(value)} ({between(interval)})"


def bundle(widget_bundle: Any, text: str, markup: str) -> Any:
    """Add a text and a table to a widget's MIME bundle, for front ends without widgets."""
    if widget_bundle is None:
        return None
    data, metadata = widget_bundle if isinstance(widget_bundle, tuple) else (widget_bundle, {})
    return {**data, "text/plain": text, "text/html": markup}, metadata


_BINS, _CORNERS = 48, 200
_WIDTH, _HEIGHT = 640, 230
_PLOT = 170  # the height of a plot, and the width of the curve's
_LEFT, _TOP, _GAP = 14, 26, 60
_FOOT = _TOP + _PLOT + 18
_MEMORIZED, _OTHER, _ACCENT = LIGHT.memorized, LIGHT.other, LIGHT.accent
_TEXT, _LINE = LIGHT.text, LIGHT.line


def picture(
    scores: Floats,
    memorized: Bools | None,
    tau: float,
    evaluation: Evaluation | None,
    truth: str = "",
) -> str:
    """Return an image element that contains the picture, with its content in words.

    Parameters
    ----------
    scores : array of shape (n,)
        Finite.
    memorized : array of shape (n,), bool, or None
        The ground truth, where there is one.
    tau : float
        The threshold.
    evaluation : Evaluation or None
        Of these scores; without it there is no curve.
    truth : str
        What the ground truth marks, as in ``"canaries"``; by default memorised samples.
    """
    if not len(scores):
        return ""
    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="{LIGHT.background}"/>']
    parts += _histogram(scores, memorized, tau, truth or "memorised samples")
    flagged = counted_flagged(int((scores <= tau).sum()), len(scores))
    words = f"Histogram of the scores, {flagged} {at(tau)}"
    if evaluation is not None:
        parts += _curve(evaluation, tau)
        words += f"; ROC curve, AUC {evaluation.auc:.2f}"
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_TEXT}">'
        f"{''.join(parts)}</svg>"
    )
    packed = base64.b64encode(drawing.encode()).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{packed}">'


def _histogram(scores: Floats, memorized: Bools | None, tau: float, positives: str) -> list[str]:
    """Return bars: those of memorised samples above a common line, those of the others below it.

    Without ground truth all bars stand on the lower edge.
    """
    width = _WIDTH - 3 * _LEFT - _GAP - _PLOT
    edges = _edges(scores)
    known = np.zeros(len(scores), dtype=np.bool_) if memorized is None else memorized
    below, above = (np.histogram(scores[side], edges)[0] for side in (~known, known))
    if memorized is None:
        above, below, colours = below, above, (_OTHER, _OTHER)
        legend = ["samples"]
    else:
        colours = (_MEMORIZED, _OTHER)
        legend = [f"↑ {html.escape(visible(positives))}", "↓ others"]
    unit = _PLOT / (above.max() + below.max())
    line = _TOP + unit * above.max()
    step, bars = width / (len(edges) - 1), []
    for counts, colour, up in ((above, colours[0], 1), (below, colours[1], 0)):
        for i in np.flatnonzero(counts):
            tall = unit * counts[i]
            place = f'x="{_LEFT + i * step:.1f}" y="{line - up * tall:.1f}"'
            size = f'width="{step * 0.9:.1f}" height="{tall:.1f}"'
            bars.append(f'<rect {place} {size} fill="{colour}"/>')
    share = (np.clip(tau, edges[0], edges[-1]) - edges[0]) / (edges[-1] - edges[0])
    x = _LEFT + width * share
    return [
        *bars,
        f'<path d="M{_LEFT} {line:.1f}h{width}" stroke="{_LINE}"/>',
        f'<path d="M{x:.1f} {_TOP - 4}v{_PLOT + 4}" stroke="{_ACCENT}" stroke-width="2"/>',
        f'<text x="{x + 5:.1f}" y="{_TOP + 6}" fill="{_ACCENT}">{threshold(tau)}</text>',
        f'<text x="{_LEFT}" y="{_FOOT}">{edges[0]:.3g}</text>',
        f'<text x="{_LEFT + width}" y="{_FOOT}" text-anchor="end">{edges[-1]:.3g}</text>',
        f'<text x="{_LEFT}" y="16">{"  ".join(legend)}</text>',
    ]


def _edges(scores: Floats) -> Floats:
    """Return the edges of the bars. Scores that are too near each other share one bar."""
    low, high = float(scores.min()), float(scores.max())
    edges = np.linspace(low, high, _BINS + 1)
    return edges if (np.diff(edges) > 0).all() else np.array([low - 0.5, high + 0.5])


def _curve(evaluation: Evaluation, tau: float) -> list[str]:
    """Return the ROC curve with the point of τ."""
    left, bottom = _WIDTH - _LEFT - _PLOT, _TOP + _PLOT
    table = evaluation.roc
    chosen = np.unique(np.linspace(0, len(table) - 1, _CORNERS).astype(np.int64))
    x = left + _PLOT * table["fpr"].to_numpy()[chosen]
    y = bottom - _PLOT * table["tpr"].to_numpy()[chosen]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    point = evaluation.at(tau)
    place = f'cx="{left + _PLOT * point.fpr:.1f}" cy="{bottom - _PLOT * point.tpr:.1f}"'
    return [
        f'<path d="M{left} {bottom}l{_PLOT} -{_PLOT}" stroke="{_LINE}" stroke-dasharray="4 3"/>',
        f'<path d="M{left} {_TOP}h{_PLOT}v{_PLOT}h-{_PLOT}z" fill="none" stroke="{_LINE}"/>',
        f'<polyline points="{line}" fill="none" stroke="{_ACCENT}" stroke-width="2"/>',
        f'<circle {place} r="5" fill="{_ACCENT}"/>',
        f'<text x="{left}" y="16">TPR by FPR, AUC {evaluation.auc:.2f}</text>',
        f'<text x="{left}" y="{_FOOT}">0</text>',
        f'<text x="{left + _PLOT}" y="{_FOOT}" text-anchor="end">FPR 1</text>',
    ]
