"""Colours can be told apart, by everyone; texts have room where fonts are wider than expected."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import vl_convert

import memowidgets as mw
from memowidgets.charts import look
from memowidgets.charts.look import colors_of
from memowidgets.registry import own_names

# Machado, Oliveira and Fernandes (2009): no long-wave and no middle-wave cones; linear RGB.
SEEN_WITH = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)


def linear(color: str):
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = TO_XYZ @ rgb.clip(0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    light, dark = sorted((TO_XYZ[1] @ linear(a), TO_XYZ[1] @ linear(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("eyes", SEEN_WITH)
def test_colours_that_stand_together_differ(eyes):
    together = [(look.MEMORIZED, look.OTHER), (look.TRAIN, look.TEST)]
    for a, b in (*combinations(look.SCORES, 2), *together):
        far = np.linalg.norm(
            lab(SEEN_WITH[eyes] @ linear(a)) - lab(SEEN_WITH[eyes] @ linear(b))
        )
        assert far > 12, (a, b)


def test_everything_stands_out_from_the_page():
    for color in (
        look.MEMORIZED,
        look.OTHER,
        look.ACCENT,
        look.TRAIN,
        look.TEST,
        *look.SCORES,
    ):
        assert contrast(color, look.BACKGROUND) >= 3, color
    for color in (look.TEXT, look.MUTED, look.TEST):
        assert contrast(color, look.BACKGROUND) >= 4.5, color


def test_a_score_looks_the_same_whatever_stands_beside_it():
    together = colors_of(["mine", *reversed(own_names()), "yours"])
    assert all(colors_of([name])[name] == together[name] for name in own_names())


def test_names_of_ones_own_differ_from_the_scores():
    assert len(set(colors_of(["psmi", "loss", "mine", "yours"]).values())) == 4


WIDE = "DejaVu Sans"  # what a Linux without other fonts shows
PROBLEMS = """() => {
    const svg = document.querySelector("svg"), { right } = svg.getBoundingClientRect();
    const box = (one) => one.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent !== "");
    const cut = texts.filter((text) => box(text).right > right + 0.5 || box(text).left < 0);
    const marks = [...svg.querySelectorAll(".role-legend-symbol path")];
    const labels = [...svg.querySelectorAll(".role-legend-label text")];
    const across = (a, b) => a.left < b.right && b.left < a.right;
    const meet = (a, b) => across(a, b) && a.top < b.bottom && b.top < a.bottom;
    const covered = labels.filter((label) => [...marks, ...labels].some(
        (other) => other !== label && meet(box(label), box(other))));
    return [...cut, ...covered].map((text) => text.textContent);
}"""


@pytest.fixture(scope="module")
def figures():
    return mw.open_recorded("mmlu-field-smollm2").figures()


@pytest.mark.slow
def test_no_text_is_cut_and_no_legend_covers_itself(chromium, figures):
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    found = {}
    for name in figures:
        svg = vl_convert.vegalite_to_svg(figures[name].to_dict())
        page.set_content(
            f"<style>text {{ font-family: '{WIDE}' !important }}</style>{svg}"
        )
        found[name] = page.evaluate(PROBLEMS)
    page.close()
    assert {name: texts for name, texts in found.items() if texts} == {}
