"""Altair figures: a data frame in, a chart out."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    import altair as alt

__all__ = ["training_curves"]

_CURVES = {
    "drop": "median loss, share dropped",
    "train_accuracy": "training accuracy",
    "test_accuracy": "held-out accuracy",
}
_COLORS = ("#1b5e8c", "#8a6d00", "#7a3e9d")
_DASHES = ([1, 0], [6, 3], [2, 2])


def training_curves(checkpoints: pd.DataFrame) -> alt.LayerChart:
    """How the target learns: the drop of the median loss, and accuracy, by epoch.

    Parameters
    ----------
    checkpoints : DataFrame
        As `Audit.checkpoints` returns it: ``epoch``, ``drop``, ``train_accuracy``,
        ``test_accuracy``, ``prediction``.

    Returns
    -------
    altair.LayerChart
        A vertical rule marks the checkpoint that the ρ rule chose (paper, Figure 3). In a
        notebook it shows itself as a picture, without a network.

    Raises
    ------
    ValueError
        If a column is missing.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {
    ...         "epoch": [0, 1],
    ...         "drop": [0.0, 0.96],
    ...         "train_accuracy": [0.1, 0.9],
    ...         "test_accuracy": [0.1, 0.8],
    ...         "prediction": [False, True],
    ...     }
    ... )
    >>> len(training_curves(table).layer)
    3
    """
    import altair as alt

    missing = [c for c in ("epoch", *_CURVES, "prediction") if c not in checkpoints]
    if missing:
        raise ValueError(f"the table of checkpoints lacks the columns {', '.join(missing)}")
    curves = checkpoints.melt("epoch", list(_CURVES), "curve", "share").dropna()
    curves["curve"] = curves["curve"].map(_CURVES)
    names = list(_CURVES.values())
    lines = (
        alt.Chart(curves)
        .mark_line()
        .encode(
            x=alt.X("epoch:Q", title="epoch"),
            y=alt.Y("share:Q", title="share", scale=alt.Scale(domain=[0, 1], clamp=True)),
            color=alt.Color("curve:N", title=None, scale=alt.Scale(domain=names, range=_COLORS)),
            strokeDash=alt.StrokeDash(
                "curve:N", title=None, scale=alt.Scale(domain=names, range=_DASHES)
            ),
        )
    )
    chosen = checkpoints.loc[checkpoints["prediction"], ["epoch", "drop"]]
    rule = alt.Chart(chosen).mark_rule(strokeDash=[4, 3], color="gray").encode(x="epoch:Q")
    label = (
        alt.Chart(chosen)
        .mark_text(align="left", dx=6, y=205, color="gray")
        .encode(x="epoch:Q", text=alt.value("ρ: predict here"))
    )
    return _offline()(layer=[lines, rule, label]).properties(width=460, height=220)


@cache
def _offline() -> type[alt.LayerChart]:
    """A chart that shows itself as an SVG picture: Altair's own way asks a CDN for its scripts."""
    import altair as alt

    class OfflineChart(alt.LayerChart):
        def _repr_mimebundle_(self, *_args: Any, **_kwargs: Any) -> dict[str, str]:
            picture = io.StringIO()
            self.save(picture, format="svg")
            return {"image/svg+xml": picture.getvalue(), "text/plain": "a chart"}

    return OfflineChart
