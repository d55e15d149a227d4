"""The playgrounds' Python side: settings, errors, and what the page sends."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances

from memowidgets.teaching import (
    LiRAPlayground,
    MemorizationPlayground,
    PSMIPlayground,
    TheoremPlayground,
)
from memowidgets.teaching.playgrounds import make_cloud

MOST = {MemorizationPlayground: {"n": 400}, PSMIPlayground: {"n": 2000}}
ALL = (MemorizationPlayground, PSMIPlayground, LiRAPlayground, TheoremPlayground)


@pytest.fixture
def open_playground():
    opened = []

    def opening(kind, *args, **settings):
        opened.append(kind(*args, **settings))
        return opened[-1]

    yield opening
    for playground in opened:
        playground.close()


@pytest.fixture
def psmi(open_playground):
    return open_playground(PSMIPlayground, n=90)


@pytest.mark.parametrize("kind", ALL)
def test_without_a_page_there_are_the_settings_and_after_close_nothing(kind):
    before = set(_instances)
    playground = kind(**MOST.get(kind, {}))
    layout = playground.layout
    data, _ = playground._repr_mimebundle_()
    assert "<table>" in data["text/html"]
    assert data["text/plain"] == repr(playground)
    state = playground.get_state()
    files = len(state.pop("_esm")) + len(state.pop("_css"))
    assert files < 90_000  # the largest has the maths of PSMI, of LiRA and of a network
    size = sum(len(v) if isinstance(v, bytes) else len(repr(v)) for v in state.values())
    assert size < 300_000  # and so a saved notebook stays small
    json.dumps({k: v for k, v in state.items() if k not in {"_cloud", "_first"}})
    playground.close()
    assert layout.comm is None
    assert set(_instances) <= before


# A playground, a trait of it, a value that it refuses, and facts of the error
REFUSED = [
    (PSMIPlayground, "points", [[0.0, 1.0]], ValueError, "one label for each"),
    (PSMIPlayground, "points", np.zeros((90, 2)), ValueError, "one place"),
    (PSMIPlayground, "points", np.zeros((90, 3)), ValueError, r"\(n, 2\)"),
    (PSMIPlayground, "labels", np.zeros(90), TypeError, "whole numbers"),
    (PSMIPlayground, "labels", np.arange(90) % 5, ValueError, "0 and 3"),
    (PSMIPlayground, "selected", 90, ValueError, "0 to 89"),
    (PSMIPlayground, "dimension", 3, ValueError, "2, 4, 8"),
    (LiRAPlayground, "n_shadows", 7, ValueError, "even"),
    (LiRAPlayground, "target_gap", np.inf, ValueError, "target_gap"),
    (LiRAPlayground, "seed", 1_000_000, ValueError, "seed"),
    (TheoremPlayground, "dimension", 3, ValueError, "1, 2, 4"),
    (TheoremPlayground, "tau", "high", TypeError, "tau"),
    (MemorizationPlayground, "noise", 0.3, ValueError, "noise.*0.2"),
    (MemorizationPlayground, "n", 10, ValueError, "n.*30.*400"),
]


@pytest.mark.parametrize("kind", ALL)
def test_a_setting_that_is_refused_changes_nothing(open_playground, kind):
    playground = open_playground(kind, **({"n": 90} if kind is PSMIPlayground else {}))
    before = playground.get_state()
    for _, name, value, error, facts in (row for row in REFUSED if row[0] is kind):
        with pytest.raises(error, match=facts):
            setattr(playground, name, value)
        assert playground.get_state() == before


# ---------------------------------------------------------------- what the page computes


def sent(*values):
    return memoryview(np.array(values, dtype=np.float64).tobytes())


def test_results_are_there_when_the_page_sent_them_and_not_after_python_changed_a_setting(
    open_playground,
):
    playground = open_playground(LiRAPlayground)
    heard = []
    playground.observe(lambda change: heard.append(change["new"]), "log_lira")
    results = {"log_lira": 8.7, "redraws": {"global": sent(1, np.nan)}}
    for at in range(2):
        playground.set_state({"target_gap": 7.0, "_results": results | {"at": at}})
        assert np.array_equal(playground.redraws["global"], [1, np.nan], equal_nan=True)
        playground.variance = ("shrunk", "global")[at]
        assert playground.redraws is playground.gaps_in is None
    assert heard == [8.7, None, 8.7, None]
    playground.set_state({"_results": results | {"at": 2}})
    playground.update([1, 2], [3, 4])
    assert playground.log_lira is None


def test_a_guess_and_its_truth(open_playground):
    playground = open_playground(MemorizationPlayground, n=30)
    playground.set_state(
        {"_results": {"guess": [4, 2], "log_lira": sent(*range(30)), "at": 0}}
    )
    assert playground.log_lira[playground.guess].tolist() == [4, 2]
    playground.set_state({"_results": {"at": 1}})
    assert playground.guess is None


@pytest.mark.parametrize(
    "results", [{"psmi": memoryview(b"1234")}, {"redraws": [[1], [2, 3]]}, 3]
)
def test_results_that_are_none_are_refused(psmi, results):
    psmi.set_state({"_results": {"psmi": sent(1, 2), "at": 0}})
    psmi.set_state({"_results": results})
    assert psmi.psmi.tolist() == [1, 2]


# ---------------------------------------------------------------- points and gaps


def test_points_and_labels_change_together(psmi):
    psmi.selected = 80
    points, labels = make_cloud(30, 2, seed=4)
    psmi.set_state({"_results": {"psmi": sent(1), "at": 0}})
    psmi.update(points, labels)
    assert psmi.selected == 29
    assert (psmi.points == points).all()
    assert (psmi.labels == labels).all()
    assert psmi.psmi is None
    psmi.points[0] = 77.0  # a copy
    assert psmi.points.max() < 77


def test_nonsense_from_the_page_is_undone(psmi):
    points = psmi.points
    psmi.set_state(
        {"_cloud": {"points": memoryview(b"12345678"), "labels": memoryview(b"\0")}}
    )
    assert (psmi.points == points).all()


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (([1.0], [1.0, 2.0]), "gaps_in must hold 2"),
        (([1.0, 2.0], [1.0, np.nan]), "gap 1"),
        (([[1.0, 2.0]], [1.0, 2.0]), "one row"),
    ],
)
def test_measured_gaps_are_checked(open_playground, sides, words):
    playground = open_playground(LiRAPlayground)
    with pytest.raises(ValueError, match=words):
        playground.update(*sides)
    assert playground._given == []
