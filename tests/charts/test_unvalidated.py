"""Charts that are built without a validation of each part are still validated as a whole."""

from __future__ import annotations

import altair as alt
import pytest
from altair.utils import schemapi

from memowidgets.charts.look import unvalidated


def test_a_wrong_part_is_noticed_when_the_chart_is_shown():
    with unvalidated(), unvalidated():
        chart = alt.Chart().mark_point().encode(x=alt.X("a:Q", scale=alt.Scale(type="nonsense")))
    with pytest.raises(schemapi.SchemaValidationError, match="nonsense"):
        chart.to_dict()


def test_what_others_draw_is_validated_as_before():
    with pytest.raises(RuntimeError), unvalidated():
        raise RuntimeError
    with pytest.raises(schemapi.SchemaValidationError, match="nonsense"):
        alt.Scale(type="nonsense")
