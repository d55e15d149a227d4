"""The Python side of the τ explorer."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.evaluation import roc
from memowidgets.widgets import ThresholdExplorer
from tests.widgets.fake_source import scores_like_psmi


@pytest.fixture
def explorer():
    scores, errors, log_lira = scores_like_psmi()
    widget = ThresholdExplorer(scores, log_lira >= 4, errors=errors, title="PSMI")
    yield widget
    widget.close()


def test_counts_are_those_of_the_evaluation(explorer):
    scores, _, log_lira = scores_like_psmi()
    evaluation = roc(scores, log_lira >= 4)
    for tau in (-1.0, -0.2, 0.0, float(scores[3]), 2.0):
        explorer.tau = tau
        point = evaluation.at(tau)
        assert explorer.counts == {
            "n": 600,
            "flagged": point.flagged,
            "hits": point.hits,
            "false_alarms": point.false_alarms,
            "missed": point.missed,
            "clear": point.clear,
        }


def test_a_tau_from_python_is_committed_one_from_the_page_is_not_yet(explorer):
    explorer.tau = 0.25
    assert explorer.tau_committed == 0.25
    explorer.set_state({"tau": 0.5})
    assert (explorer.tau, explorer.tau_committed) == (0.5, 0.25)
    explorer.set_state({"tau": 0.5, "tau_committed": 0.5})
    assert explorer.tau_committed == 0.5


def test_without_truth_there_are_no_rates():
    widget = ThresholdExplorer([1, 2, 3], tau=2)
    assert widget.counts == {"n": 3, "flagged": 2}
    assert widget.evaluation is None
    assert "AUC" not in repr(widget)
    widget.close()


def test_update_changes_the_numbers_of_the_same_widget(explorer):
    before = explorer.model_id
    explorer.update([0.0, 1.0], [True, False], title="other")
    assert explorer.counts["n"] == 2
    assert explorer.evaluation.auc == 1.0
    assert explorer.model_id == before


def test_a_failed_update_changes_nothing(explorer):
    before = explorer.counts
    with pytest.raises(ValueError, match="NaN"):
        explorer.update([0.0, np.nan])
    assert explorer.counts == before


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([1.0, np.nan, np.inf],), ValueError, "2 of 3 are NaN or infinite, the first in row 1"),
        (([],), ValueError, "at least one sample"),
        (([[1.0]],), ValueError, "one-dimensional"),
        ((["a"],), TypeError, "real numbers"),
        (([1.0, 2.0], [True]), ValueError, "each of 2 samples"),
        (([1.0, 2.0], [5.0, 0.1]), TypeError, "log_lira >= 4"),
        (([1.0], None, np.nan), ValueError, "tau must be a finite number"),
    ],
)
def test_bad_input_is_named(arguments, error, words):
    with pytest.raises(error, match=words):
        ThresholdExplorer(*arguments)


@pytest.mark.parametrize("memorized", [[True] * 4, [False] * 4])
def test_one_kind_of_samples_has_counts_but_no_roc(memorized):
    widget = ThresholdExplorer([1.0, 1.0, 2.0, 3.0], memorized, tau=1)
    assert widget.counts["hits"] + widget.counts["false_alarms"] == 2
    assert widget.evaluation is None
    widget.close()


def test_infinite_tau_is_refused_later_too(explorer):
    with pytest.raises(ValueError, match="finite"):
        explorer.tau = np.inf


def test_the_stand_in_holds_numbers(explorer):
    data, _ = explorer._repr_mimebundle_()
    assert "AUC" in data["text/plain"]
    assert "<table>" in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data


def test_close_takes_the_layout_along(explorer):
    layout = explorer.layout
    explorer.close()
    assert layout.comm is None
    assert explorer.comm is None
    explorer.close()
