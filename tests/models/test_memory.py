"""Copies to a device: without waiting on CUDA, unchanged elsewhere; autocast only where needed."""

from __future__ import annotations

import pytest
import torch

from memowidgets.models import ConvNet
from memowidgets.models.memory import sent


class Noting:
    """Stands for a tensor, and notes what is asked of it."""

    def __init__(self, where):
        self.device, self.asked = torch.device(where), []

    def pin_memory(self):
        self.asked.append("pin_memory")
        return self

    def to(self, device, **how):
        self.asked.append((str(device), how))
        return self


@pytest.mark.parametrize(
    ("where", "device", "asked"),
    [
        ("cpu", "cuda:1", ["pin_memory", ("cuda:1", {"non_blocking": True})]),
        ("cuda:0", "cuda:1", [("cuda:1", {})]),
        ("cuda:0", "cpu", [("cpu", {})]),
        ("cpu", "cpu", [("cpu", {})]),
        ("cpu", "mps", [("mps", {})]),
    ],
)
def test_only_copies_to_cuda_are_pinned_and_do_not_wait(where, device, asked):
    tensor = Noting(where)
    assert sent(tensor, torch.device(device)) is tensor
    assert tensor.asked == asked


def test_float32_is_float32_also_inside_autocast_of_ones_own():
    """The context is left out only where nothing would be computed otherwise."""
    cpu, x = torch.device("cpu"), torch.ones(2, 2)
    for precision, expected in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        with ConvNet(4).autocast(cpu, precision):
            assert (x @ x).dtype == expected
        with torch.autocast("cpu", torch.bfloat16), ConvNet(4).autocast(cpu, precision):
            assert (x @ x).dtype == expected
