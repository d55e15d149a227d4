"""Seeds: every path has its own, and those that runs on disk were drawn from stay."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from memowidgets.training import config
from memowidgets.training.config import derived_seed


def test_no_two_paths_share_a_seed():
    lengths = (itertools.product(range(7), repeat=n) for n in range(4))
    paths = list(itertools.chain.from_iterable(lengths))
    seeds = {derived_seed(seed, *path) for seed in range(3) for path in paths}
    assert len(seeds) == 3 * len(paths)


class Chip:
    """A device's module with generators that no other training may touch."""

    def __init__(self, n):
        self.states = [torch.full((2,), i, dtype=torch.uint8) for i in range(n)]

    def get_rng_state(self, device):
        return self.states[device.index or 0]

    def set_rng_state(self, state, device):
        self.states[device.index or 0] = state.clone()


class Seeded:
    """What a device's generator is after a seed."""

    def __init__(self, seed):
        self.get_state = lambda: torch.full((2,), seed, dtype=torch.uint8)


@pytest.fixture
def chips(monkeypatch):
    """Two devices, and a generator that starts at its seed."""
    made = Chip(2)
    monkeypatch.setattr(config, "module_of", lambda _device: made)
    monkeypatch.setattr(
        torch, "Generator", lambda _device: SimpleNamespace(manual_seed=Seeded)
    )
    return made


def first(chips):
    return [state.tolist() for state in chips.states]


def test_a_device_has_its_own_random_state_and_no_other_device_is_touched(chips):
    own = config.RandomStates(7, torch.device("cuda:1"))
    with own.active():
        assert first(chips) == [[0, 0], [7, 7]]
        chips.states[1] = torch.tensor([8, 8], dtype=torch.uint8)
    assert first(chips) == [[0, 0], [1, 1]]
    resumed = config.RandomStates(7, torch.device("cuda"))  # of a machine with one GPU
    resumed.load(own.arrays())
    with resumed.active():
        assert first(chips) == [[8, 8], [1, 1]]
    assert first(chips) == [[0, 0], [1, 1]]


def test_a_training_on_the_cpu_goes_on_on_a_device_with_the_state_of_its_seed(chips):
    moved = config.RandomStates(7, torch.device("cuda"))
    moved.load(config.RandomStates(3).arrays())
    with moved.active():
        assert first(chips)[0] == [7, 7]
