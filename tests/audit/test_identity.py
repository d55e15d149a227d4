"""What a manifest says of a training: how equal another one would be."""

from __future__ import annotations

import pytest

import memowidgets as mw
from memowidgets.audit.runs.identity import described_training


@pytest.mark.parametrize(
    ("deterministic", "device", "repeats"),
    [
        (False, "cpu", "bit for bit"),
        (True, "cpu", "bit for bit"),
        (True, "cuda", "bit for bit"),
        (False, "cuda", "to rounding"),
        (False, None, None),
    ],
)
def test_only_a_device_without_an_exact_order_repeats_to_rounding(deterministic, device, repeats):
    settings = mw.TrainingConfig(deterministic=deterministic).resolved({})
    assert described_training(settings, 0, "float32", device).get("repeats") == repeats
