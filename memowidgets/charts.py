"""Altair figures: a data frame in, a chart out."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import altair as alt

__all__ = ["memorization_scatter", "shadow_curves", "training_curves"]

_CURVES = {
    "drop": "median loss, share dropped",
    "train_accuracy": "training accuracy",
    "test_accuracy": "held-out accuracy",
}
_NAMES = {
    "log_lira": "log-LiRA",
    "attack_success_rate": "attack success rate (global LiRA)",
    "counterfactual": "counterfactual memorisation",
    "rmia": "RMIA",
    "auc": "AUC",
    "rho": "Spearman's ρ with all shadow models",
}
_CELLS = 40
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


def memorization_scatter(
    values: pd.DataFrame, x: str = "counterfactual", y: str = "attack_success_rate"
) -> alt.LayerChart:
    """Two definitions of memorisation against each other, samples counted in cells.

    Parameters
    ----------
    values : DataFrame
        A row a sample, as `MemorizationComparison.values`.
    x, y : str
        The columns to draw.

    Returns
    -------
    altair.LayerChart
        At most 1600 cells, darker where more samples are (paper, Appendix C).

    Raises
    ------
    ValueError
        If a column is missing.

    Examples
    --------
    >>> table = pd.DataFrame({"counterfactual": [0.1, 2.0], "attack_success_rate": [0.5, 0.9]})
    >>> len(memorization_scatter(table).layer)
    1
    """
    import altair as alt

    missing = [name for name in (x, y) if name not in values]
    if missing:
        raise ValueError(
            f"the table lacks {', '.join(missing)}; it has {', '.join(map(str, values))}"
        )
    counts, across, up = np.histogram2d(values[x], values[y], bins=_CELLS)
    columns, rows = np.nonzero(counts)
    cells = pd.DataFrame(
        {
            "x": across[columns],
            "x2": across[columns + 1],
            "y": up[rows],
            "y2": up[rows + 1],
            "samples": counts[columns, rows],
        }
    )
    drawn = (
        alt.Chart(cells)
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=_spoken(x)),
            x2="x2:Q",
            y=alt.Y("y:Q", title=_spoken(y), scale=alt.Scale(zero=False)),
            y2="y2:Q",
            color=alt.Color(
                "samples:Q", scale=alt.Scale(type="log", scheme="blues"), title="samples"
            ),
        )
    )
    return _offline()(layer=[drawn]).properties(width=380, height=280)


def shadow_curves(table: pd.DataFrame, value: str = "auc") -> alt.LayerChart:
    """A number against the number of shadow models, with its band.

    Parameters
    ----------
    table : DataFrame
        As `Audit.shadow_curve` returns it.
    value : {"auc", "memorized", "agreement", "rho"}
        What to draw.

    Returns
    -------
    altair.LayerChart

    Raises
    ------
    ValueError
        If a column is missing.

    Examples
    --------
    >>> row = {"n_shadows": [4, 8], "auc": [0.8, 0.9], "auc_low": [0.7, 0.85]}
    >>> len(shadow_curves(pd.DataFrame({**row, "auc_high": [0.9, 0.95]})).layer)
    2
    """
    import altair as alt

    missing = [c for c in ("n_shadows", value, f"{value}_low", f"{value}_high") if c not in table]
    if missing:
        raise ValueError(f"the table lacks the columns {', '.join(missing)}")
    base = alt.Chart(table).encode(
        x=alt.X("n_shadows:Q", title="shadow models", scale=alt.Scale(type="log", base=2))
    )
    band = base.mark_area(opacity=0.25, color=_COLORS[0]).encode(
        y=alt.Y(f"{value}_low:Q", title=_spoken(value), scale=alt.Scale(zero=False)),
        y2=f"{value}_high:Q",
    )
    line = base.mark_line(point=True, color=_COLORS[0]).encode(y=f"{value}:Q")
    return _offline()(layer=[band, line]).properties(width=420, height=240)


def _spoken(name: str) -> str:
    """A column's name as an axis says it."""
    return _NAMES.get(name, name.replace("_", " "))


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
