"""Work on all cores: in order, and with one thread of linear algebra for each."""

from threading import Barrier, Thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from memowidgets.cores import on_all_cores, one_thread_each
from tests.programs import printed


def threads():
    """Most threads that a product of matrices may use."""
    return max(
        pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
    )


def test_results_come_in_the_order_of_the_pieces():
    expected = [piece**2 for piece in range(100)]
    assert list(on_all_cores(lambda piece: piece**2, range(100))) == expected
    assert list(on_all_cores(lambda piece: piece + 1, [4])) == [5]


def test_an_error_of_a_piece_is_raised_and_the_limit_ends(two_threads):
    with pytest.raises(ZeroDivisionError):
        list(on_all_cores(lambda piece: 1 // piece, [2, 1, 0]))
    assert threads() == 2


def test_each_piece_has_one_thread_of_linear_algebra(two_threads):
    assert list(on_all_cores(lambda _: threads(), range(3))) == [1, 1, 1]
    assert threads() == 2


def test_blocks_that_overlap_leave_no_limit_behind(two_threads):
    """The first to begin is the first to end."""
    both_run, first_ended = Barrier(2, timeout=30), Barrier(2, timeout=30)

    def first():
        with one_thread_each():
            both_run.wait()
        first_ended.wait()

    other = Thread(target=first)
    other.start()
    with one_thread_each():
        both_run.wait()
        first_ended.wait()
    other.join()
    assert threads() == 2


@pytest.fixture
def two_threads():
    """Linear algebra that may use two threads, as it does where nobody limits it."""
    from threadpoolctl import threadpool_limits

    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, "blas"):
        yield


WITHOUT_THREADS = """
import threading

def refuse(self):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse

import numpy as np
import memowidgets as mw
from memowidgets.metrics import PSMI

rng = np.random.default_rng(0)
given = rng.normal(size=(400, 64)), rng.integers(0, 5, 400)
scores = PSMI().fit(*given).score_samples(*given)
assert np.isfinite(scores).all()

@mw.score("norm")
def norm(representations):
    return -np.linalg.norm(representations, axis=1)

audit = mw.open_recorded("digits")
dashboard = audit.dashboard()
assert dashboard.wait(0) and dashboard.computed
dashboard.metric = "norm"
dashboard.compute()
assert dashboard.wait(0) and dashboard.computed
dashboard.comparing = [{"metric": "psmi", "layer": dashboard.layer, "checkpoint": "epoch-3"}]
assert dashboard.wait(0)
dashboard.close()
print(len(audit.flagged("norm", share=0.1)))
"""


def test_an_audit_works_where_no_thread_can_be_started():
    """As in Python that runs in a browser's page."""
    assert int(printed(WITHOUT_THREADS)) == 80
