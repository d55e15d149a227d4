"""Charts hold the numbers they are given and show themselves without a network."""

from __future__ import annotations

import pandas as pd
import pytest

from memowidgets.charts import training_curves


def checkpoints() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "epoch": [0.0, 1.0, 2.0],
            "drop": [0.0, 0.7, 0.96],
            "train_accuracy": [0.1, 0.7, 0.9],
            "test_accuracy": [float("nan")] * 3,
            "prediction": [False, False, True],
        }
    )


def test_the_numbers_in_the_chart_are_those_of_the_table():
    chart = training_curves(checkpoints())
    lines, rule, _ = chart.layer
    drops = lines.data[lines.data["curve"].str.contains("median")]
    assert drops["share"].tolist() == [0.0, 0.7, 0.96]
    assert not lines.data["curve"].str.contains("held-out").any()
    assert rule.data["epoch"].tolist() == [2.0]


def test_it_shows_itself_as_a_picture():
    shown = training_curves(checkpoints())._repr_mimebundle_(include=None, exclude=None)
    assert set(shown) == {"image/svg+xml", "text/plain"}
    assert "<svg" in shown["image/svg+xml"]
    assert "<script" not in shown["image/svg+xml"]


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match="lacks the columns drop, prediction"):
        training_curves(checkpoints().drop(columns=["drop", "prediction"]))
