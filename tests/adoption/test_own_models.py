"""Models of others go every way that ours go, through real worker processes.

Each trains in this process, then a reference and two shadow models by a worker that never made it.
`make release-check` prints the whole table, which docs/own_models.md shows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.adoption.own_models import EVERY, FIRST
from tests.training.test_engine import client_of

LAST = "epoch-2"


def train_all(brought, place, **who):
    """Return the gaps of two shadow models, and the scores by a reference."""
    audit = brought.audit(place)
    audit.train()
    audit.run_references(1, **who)
    audit.run_shadows(2, **who)
    shadows = audit.evidence.shadows.read(LAST)
    return np.array(shadows.gaps), audit.score("reference")


def assert_whole(gaps, scores):
    assert len(gaps) == 2
    assert np.isfinite(gaps).all()
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", FIRST)
def test_each_adapter_trains_in_a_worker_process(name, tmp_path, worker):
    assert_whole(*train_all(FIRST[name], tmp_path, executor=worker))


@pytest.fixture(scope="module")
def ways(worker):
    """Who trains, by name."""
    with client_of(1) as client, ThreadPoolExecutor(1) as thread:
        yield {
            "thread": {"executor": thread},
            "local process": {"processes": 1},
            "process of an executor": {"executor": worker},
            "Dask": {"executor": client.get_executor()},
        }


@pytest.mark.matrix
@pytest.mark.own_processes
@pytest.mark.parametrize("name", EVERY)
def test_a_worker_process_trains_what_a_thread_trains(name, ways, tmp_path, capsys):
    found = {}
    for way, who in ways.items():
        place = tmp_path / way
        place.mkdir()
        found[way] = train_all(EVERY[name], place, **who)
        assert_whole(*found[way])
        with capsys.disabled():
            print(f"\n{name:50} {way:24} trained", end="")
    gaps, scores = found["thread"]
    for others, their_scores in found.values():
        np.testing.assert_allclose(others, gaps, atol=1e-3)
        np.testing.assert_allclose(their_scores, scores, atol=1e-3)
