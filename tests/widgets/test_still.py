"""The picture of the explorer for places where no widget can run."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest

from memowidgets.widgets.standin import picture

BAR = re.compile(r'<rect x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)" fill="(#\w+)"/>')


def bars(memorized):
    scores = np.r_[np.full(26, 0.5), 1.0]
    image = picture(scores, memorized, 0.7, None)
    drawing = base64.b64decode(re.search(r"base64,([^\"]+)", image)[1]).decode()
    return [(float(y), float(height), fill) for y, height, fill in BAR.findall(drawing)]


def test_both_kinds_in_one_bin_are_seen():
    (up, tall, red), *others = bars(np.r_[np.full(17, True), np.full(10, False)])
    down, deep, grey = max(others, key=lambda bar: bar[1])
    assert tall / deep == pytest.approx(17 / 9, rel=0.01)
    assert up + tall == pytest.approx(down, abs=0.11)
    assert red != grey


def test_without_ground_truth_it_has_one_side():
    found = bars(None)
    assert len({fill for _, _, fill in found}) == 1
    assert len({round(y + height, 1) for y, height, _ in found}) == 1
