"""The picture for paper and for places where no widget can run."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from memowidgets.evaluation.scored import Scored
from memowidgets.widgets.messages import Moment
from memowidgets.widgets.standin import dots, sentences, still, time_line
from tests.widgets.fake_source import scores_like_psmi

EVIL = "</svg><script>document.body.remove()</script>"


def scored(n: int = 400, seed: int = 0, **changes) -> Scored:
    scores, errors, log_lira = scores_like_psmi(n, seed=seed)
    return replace(
        Scored(np.arange(n), scores, errors, log_lira, title="PSMI"), **changes
    )


def drawn(drawing: str) -> dict[str, list[tuple[float, float]]]:
    """Where dots begin, by what they are."""
    return {
        path.get("class").removeprefix("mw-still-"): [
            (float(x), float(y))
            for x, y in re.findall(r"M([\d.]+) ([\d.]+)", path.get("d"))
        ]
        for path in ET.fromstring(drawing).findall(".//{*}path")
    }


@pytest.mark.parametrize("tau", [-9.0, -0.1, 0.0, 0.2, 9.0])
def test_each_sample_is_a_dot_on_its_side_of_line_and_threshold(tau):
    some = scored()
    counts, found = some.counts(tau, 4.0), drawn(dots(some, tau, 4.0))
    there = {
        "found": found["memorized"], "flagged_only": found["other"],
        "missed": found["memorized-left"], "left_alone": found["other-left"],
    }  # fmt: skip
    assert {name: len(points) for name, points in there.items()} == {
        name: counts[name] for name in there
    }
    ((_, line),) = found["line"]
    assert all(y < line for name in ("found", "missed") for _, y in there[name])
    assert all(
        y > line for name in ("flagged_only", "left_alone") for _, y in there[name]
    )
    if tau == 0:  # an edge of a column, so that no column is on both sides
        x = found["tau"][0][0]
        assert all(
            at < x for name in ("found", "flagged_only") for at, _ in there[name]
        )
        assert all(at > x for name in ("missed", "left_alone") for at, _ in there[name])


def test_without_ground_truth_all_stand_on_the_line():
    alone = scored(log_lira=None)
    found = drawn(dots(alone, 0.0, None))
    ((_, line),) = found["line"]
    assert len(found["other"]) == (alone.scores <= 0).sum()
    assert not found["memorized"] + found["memorized-left"]
    assert all(y < line for _, y in found["other"] + found["other-left"])


def test_by_class_the_dots_are_of_the_score_against_its_class():
    some = scored(labels=np.arange(400) % 3)
    assert dots(some, "class", 4.0) == dots(some.against_class, -1.0, 4.0)


def test_few_flagged_ones_among_many_stay_dots_as_on_the_live_page():
    many = scored(20_000)
    few = float(np.sort(many.scores)[299])
    counts, found = many.counts(few, 4.0), drawn(dots(many, few, 4.0))
    assert len(found["other"]) == counts["flagged_only"]
    assert len(found["memorized"]) == counts["found"]
    assert len(found["other-left"]) < 200  # bars, one a column
    all_flagged = drawn(dots(many, 9.0, 4.0))
    assert len(all_flagged["other"]) < 200


def test_many_samples_are_bars_that_say_their_scale():
    drawing = dots(scored(50_000), 0.0, 4.0)
    assert len(re.search(r"\(bars to (.*?)\)", drawing)[1].split(" and ")) == 2
    assert len(drawing) < 20_000


@pytest.mark.parametrize(
    "scores", [[0.5], [0.5] * 9, [0.0, 0.0], [-1e-300, 1e300], [-5e-324, 0.0]]
)
def test_few_and_equal_and_far_scores_are_drawn(scores):
    values = np.array(scores)
    some = Scored(
        np.arange(len(values)), values, log_lira=np.linspace(9, 0, len(values))
    )
    for rule in (0.0, values.min(), None):
        ET.fromstring(dots(some, rule, 4.0))
        assert "nan" not in dots(some, rule, 4.0)
    assert still(some.only(np.zeros(len(values), bool)), 0.0, 4.0) == ""


def test_hostile_names_are_text():
    some = scored(title=EVIL)
    for drawing in (dots(some, 0.0, 4.0, EVIL), still(some, 0.0, 4.0, EVIL)):
        assert "<script" not in drawing
    ET.fromstring(dots(some, 0.0, 4.0, EVIL))


def test_the_sentences_count_as_scored_does():
    log_lira = np.where(np.arange(400) % 7 == 0, np.nan, scored().log_lira)
    some = scored(log_lira=log_lira)
    judged = some.only(some.judged).counts(0.0, 4.0)
    numbers = [
        int(one)
        for text in sentences(some, 0.0, 4.0)
        for one in re.findall(r"\d+", text)
    ]
    memorized = judged["found"] + judged["missed"]
    flagged = judged["flagged"], judged["n"]
    assert numbers == [*flagged, judged["found"], memorized, judged["flagged_only"]]


@pytest.mark.parametrize("epochs", [[1.0, 2.5, 4.0], [2.0, 1.0], [1.0, 1.0]])
def test_a_course_of_any_kind_has_a_printed_timeline(epochs):
    losses = [math.nan, None, 0.5]
    moments = [
        Moment(f"at-{i}", "", epoch, "", losses[i], losses[-1 - i], "", star=i == 1)
        for i, epoch in enumerate(epochs)
    ]
    drawing = time_line(moments, "at-0")
    assert "nan" not in drawing
    picture = ET.fromstring(drawing)
    assert f"epoch {epochs[1]:g}" in picture.get("aria-label")
    small = [one for one in picture.findall(".//{*}circle") if one.get("r") == "2"]
    places = [float(one.get("cx")) for one in small]
    assert places == sorted(places)
    assert (places[0], places[-1], len(places)) == (10, 650, len(epochs))
