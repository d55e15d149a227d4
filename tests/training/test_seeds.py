"""Seeds: every path has its own, and those that runs on disk were drawn from stay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from memowidgets.training.seeds import derived_seed, epoch_seed


def before(*words):
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def test_what_runs_on_disk_were_drawn_from_stays():
    """Streams as design, target, shadow and noise use them, and the order of each epoch."""
    for seed, index in itertools.product((0, 1, 12345), range(8)):
        for stream in (0, 1, 3, 5):
            assert derived_seed(seed, stream) == before(seed, stream)
        for stream in (2, 4, 6):
            assert derived_seed(seed, stream, index) == before(seed, stream, index)
        assert epoch_seed(seed, index) == before(seed, index)


def test_no_two_paths_share_a_seed():
    lengths = (itertools.product(range(7), repeat=n) for n in range(4))
    paths = list(itertools.chain.from_iterable(lengths))
    seeds = {derived_seed(seed, *path) for seed in range(3) for path in paths}
    assert len(seeds) == 3 * len(paths)


@pytest.mark.parametrize("part", [-1, 2**32])
def test_a_part_that_would_take_two_words_is_refused(part):
    with pytest.raises(ValueError, match="from 0 to"):
        derived_seed(0, 4, part)
