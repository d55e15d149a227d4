"""Figures in a browser whose fonts are wider than those that their widths are measured in."""

from __future__ import annotations

import pytest
import vl_convert

import memowidgets as mw

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
        page.set_content(f"<style>text {{ font-family: '{WIDE}' !important }}</style>{svg}")
        found[name] = page.evaluate(PROBLEMS)
    page.close()
    assert {name: texts for name, texts in found.items() if texts} == {}
