"""Tables are refused in clear words, and thinned lines are where they were."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets import charts
from memowidgets.charts.look import thin_curves
from memowidgets.evaluation import roc
from tests.charts.reading import units


def off_the_line(points, kept) -> float:
    """Brute force: the farthest point from the polyline through some of them."""
    farthest = 0.0
    for point in points:
        near = np.inf
        for a, b in pairwise(kept):
            along = b - a
            length = along @ along
            share = np.clip((point - a) @ along / length, 0, 1) if length else 0.0
            near = min(near, np.linalg.norm(point - a - share * along))
        farthest = max(farthest, near)
    return farthest


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=8, max_size=60),
    st.integers(1, 3),
)
@settings(max_examples=25, deadline=None)
def test_thinned_curves_keep_their_ends_and_stay_where_they_were(samples, repeats):
    scores, truth = (
        np.repeat(column, repeats) for column in zip(*samples, strict=True)
    )
    if len(set(truth)) < 2:
        return
    curve = roc(scores.astype(float), truth).roc.assign(line="one")
    found = thin_curves(curve, ["line"], 200)
    assert found.index.is_monotonic_increasing
    assert found.index[[0, -1]].tolist() == [0, len(curve) - 1]
    points = curve[["fpr", "tpr"]].to_numpy()
    assert off_the_line(points, found[["fpr", "tpr"]].to_numpy()) <= 0.01


def test_a_long_staircase_has_few_points_and_stays_where_it_was():
    rng = np.random.default_rng(0)
    truth = rng.random(20_000) < 0.3
    curve = roc(rng.normal(size=20_000) - truth, truth).roc.assign(line="one")
    found = thin_curves(curve, ["line"], 200)
    assert len(found) <= 402
    some = curve[["fpr", "tpr"]].to_numpy()[rng.integers(0, len(curve), 60)]
    assert off_the_line(some, found[["fpr", "tpr"]].to_numpy()) <= 0.01


# Every figure refuses what it can't draw

CHECKPOINTS = pd.DataFrame({"epoch": [0.0, 1.0], "prediction": [False, True]})
for name in [
    "median_loss",
    "drop",
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
]:
    CHECKPOINTS[name] = [0.2, 0.9]
CURVES = charts.roc_table(
    {"psmi": roc([0.0, 1.0, 2.0], [True, False, False])}, panel="one"
)
AREAS = pd.DataFrame(
    {"setting": ["s", "t"], "metric": "psmi", "layer": ["1", "2"], "eta": [4.0, 6.0],
     "auc": [0.7, 0.8], "auc_low": [0.6, 0.7], "auc_high": [0.8, 0.9], "n": 100,
     "n_memorized": [9, 3]}
)  # fmt: skip
SHADOWS = pd.DataFrame(
    {"n_shadows": [4, 8], "auc": 0.8, "auc_low": 0.7, "auc_high": 0.9}
)
LIRA = pd.DataFrame({"checkpoint": "epoch 1", "log_lira": [0.1, 7.0]})
VALUES = pd.DataFrame({"counterfactual": [0.1, 2.0], "attack_success_rate": [0.5, 0.9]})

EACH = [  # a figure, a table, and a column that it needs
    (charts.loss_and_accuracy, CHECKPOINTS, "train_loss"),
    (charts.over_training, CHECKPOINTS, "median_loss"),
    (charts.roc_curves, CURVES, "tpr"),
    (charts.roc_panels, CURVES, "fpr"),
    (charts.auc_by_setting, AREAS, "auc_low"),
    (charts.auc_by_layer, AREAS, "auc"),
    (charts.auc_by_eta, AREAS, "n_memorized"),
    (charts.shadow_curves, SHADOWS, "n_shadows"),
    (charts.histograms_of_log_lira, LIRA, "log_lira"),
    (charts.memorization_scatter, VALUES, "counterfactual"),
]


@pytest.mark.parametrize(("draw", "table", "column"), EACH)
def test_a_figure_is_drawn_from_a_good_table_alone(draw, table, column):
    shown = draw(table)._repr_mimebundle_(include=None, exclude=None)
    assert set(shown) == {"image/svg+xml", "text/plain"}
    assert "<svg" in shown["image/svg+xml"]
    assert "<script" not in shown["image/svg+xml"]
    wrong = table.assign(**{column: table[column].astype(float).where(table.index > 0)})
    for bad, facts in (
        (table.drop(columns=column), f"lacks {column}; it has"),
        (table[:0], "has no rows"),
        (wrong, f"nan in {column}, row 0"),
    ):
        with pytest.raises(ValueError, match=facts):
            draw(bad)


@pytest.mark.parametrize(
    "draw", [charts.auc_by_setting, charts.auc_by_layer, charts.auc_by_eta]
)
def test_two_rows_for_one_point_are_refused(draw):
    with pytest.raises(ValueError, match=r"psmi.* twice.*one row"):
        draw(pd.concat([AREAS, AREAS[:1]]))


def test_models_are_counted_in_the_order_of_their_sets():
    counts = {
        "b": pd.DataFrame({"truly": [7.8, 0.4, 11.2], "memorized": [9, 2, 13]}),
        'a "quoted" one': pd.DataFrame({"truly": [12.0, 20.0], "memorized": [17, 24]}),
    }
    dots = units(charts.memorized_per_model(counts))[0]
    assert dots.data["truly"].tolist() == [7.8, 0.4, 11.2, 12, 20]
    labels = [
        "b: 6.5 (0.4 to 11, 3 models), 8 counted",
        'a "quoted" one: 16 (12 to 20, 2 models), 20 counted',
    ]
    assert dots.encoding["y"]["sort"] == labels
    assert (
        "<svg"
        in charts.memorized_per_model(counts)._repr_mimebundle_()["image/svg+xml"]
    )
    unknown = pd.DataFrame({"truly": [9, np.nan], "memorized": [9, np.nan]})
    with pytest.raises(ValueError, match="'b' has nan in truly, row 1"):
        charts.memorized_per_model({"b": unknown})
    with pytest.raises(ValueError, match="has no rows"):
        charts.memorized_per_model({})


def test_what_can_not_be_meant_is_refused():
    with pytest.raises(
        ValueError, match="eta must lie within clip, -10 to 20, but is 30"
    ):
        charts.histograms_of_log_lira(LIRA, eta=30)
    with pytest.raises(ValueError, match="tau is NaN"):
        charts.roc_curves(CURVES, tau=float("nan"))
    with pytest.raises(ValueError, match="no evaluation to draw"):
        charts.roc_table({})
    with pytest.raises(ValueError, match="rows without a memorised sample"):
        charts.auc_by_eta(AREAS.assign(n_memorized=[9, 0]))
