"""The Python side of the τ explorer."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from memowidgets.evaluation import roc
from memowidgets.widgets import ThresholdExplorer
from tests.widgets.fake_source import scores_like_psmi
from tests.widgets.page import say_all, told


@pytest.fixture
def explorer():
    scores, errors, log_lira = scores_like_psmi()
    return ThresholdExplorer(scores, log_lira=log_lira, errors=errors, title="PSMI")


def test_a_tau_from_python_is_committed_one_from_the_page_is_not_yet(explorer):
    explorer.tau = 0.25
    assert explorer.tau_committed == 0.25
    explorer.set_state({"tau": 0.5})
    assert (explorer.tau, explorer.tau_committed) == (0.5, 0.25)
    explorer.set_state({"tau": 0.5, "tau_committed": 0.5})
    assert explorer.tau_committed == 0.5
    for name in ("tau", "eta"):  # from Python, where nothing is dragged
        setattr(explorer, f"{name}_committed", 0.75)
        assert getattr(explorer, name) == 0.75


def test_without_truth_or_with_one_kind_of_samples_there_are_no_rates():
    widget = ThresholdExplorer([1, 2, 3], tau=2)
    assert widget.counts == {"n": 3, "flagged": 2, "left_alone": 1}
    for memorized in (None, [True] * 3, [False] * 3):
        widget = ThresholdExplorer([1, 2, 3], memorized, tau=2)
        assert widget.counts["flagged"] == 2
        assert widget.evaluation is None
        assert "AUC" not in repr(widget)
    assert ThresholdExplorer([1, 2, 3], [True, False, True]).evaluation.n_memorized == 2


GOOD = [1.0, 2.0, 3.0]
TRUTH = {"memorized": [0, 1, 1]}
REFUSED = [  # scores, options, and facts of the message
    ([1.0, np.nan, np.inf], {}, ValueError, "2 of 3 .* row 1"),
    ([], {}, ValueError, "at least one sample"),
    ([[1.0]], {}, ValueError, "one number for each"),
    (GOOD, {"memorized": [5.0, 0.1, 1.0]}, TypeError, "log_lira >= 4"),
    (GOOD, {"tau": np.nan}, ValueError, "tau must be a finite number"),
    (GOOD, {"log_lira": [1.0, 5.0]}, ValueError, r"each of 3 samples.*\(2,\)"),
    (
        GOOD,
        {"log_lira": [1, 5, 9], "eta": np.nan},
        ValueError,
        "eta must be a finite number",
    ),
    (GOOD, {"log_lira": [1, 5, 9], **TRUTH}, ValueError, "not both"),
    (GOOD, {"errors": [0.1, -0.1, 0.2]}, ValueError, "negative.* row 1"),
    (GOOD, {"errors": [0.1, 0.1]}, ValueError, r"each of 3 samples.*\(2,\)"),
]


@pytest.mark.parametrize(("scores", "options", "error", "facts"), REFUSED)
def test_bad_input_is_named(scores, options, error, facts):
    with pytest.raises(error, match=facts):
        ThresholdExplorer(scores, **options)


def test_a_saved_notebook_has_the_dots_and_the_sentences(explorer):
    data, _ = explorer._repr_mimebundle_()
    assert "AUC" in data["text/plain"]
    counts = explorer.counts
    assert f"{counts['flagged']} flagged of {counts['n']}" in data["text/html"]
    assert f"{counts['flagged_only']} flagged only" in data["text/html"]
    (image,) = re.findall(
        r'src="data:image/svg\+xml;base64,([^"]+)"', data["text/html"]
    )
    ET.fromstring(base64.b64decode(image))
    assert "application/vnd.jupyter.widget-view+json" in data


def test_an_eta_from_the_page_counts_at_once_and_is_evaluated_when_it_rests(explorer):
    scores, _, log_lira = scores_like_psmi()
    before = explorer.evaluation
    explorer.set_state({"eta": 7.0})
    assert explorer.counts["missed"] + explorer.counts["found"] == (log_lira >= 7).sum()
    assert explorer.eta_committed == 4.0
    assert explorer.evaluation is before
    explorer.set_state({"eta": 7.0, "eta_committed": 7.0})
    assert explorer.evaluation.n_memorized == (log_lira >= 7).sum()
    assert told(explorer, "truth")["eta"] == 7.0
    explorer.tau = 0.125  # from Python all moves at once
    explorer.eta = float(log_lira[log_lira > 4][0])
    point = roc(scores, log_lira >= explorer.eta).at(0.125)
    assert (explorer.counts["found"], explorer.counts["missed"]) == (
        point.found,
        point.missed,
    )
    assert told(explorer, "late")["eta"] == explorer.eta_committed == explorer.eta


def test_log_lira_is_sent_once_it_is_asked_for(explorer):
    scores, _, log_lira = scores_like_psmi()
    rising = log_lira[np.argsort(scores)].tobytes()
    assert rising not in [
        *told(explorer, "data").values(),
        *told(explorer, "truth").values(),
    ]
    version = told(explorer, "data")["version"]
    assert say_all(explorer, "log_lira", version=version - 1) == []
    [(content, [packed])] = say_all(explorer, "log_lira", version=version)
    assert (content["version"], content["wide"], packed) == (version, True, rising)


def test_samples_without_log_lira_are_left_out_and_counted():
    scores, errors, log_lira = scores_like_psmi()
    log_lira[[3, 5]] = np.nan
    widget = ThresholdExplorer(scores, log_lira=log_lira, errors=errors)
    keep = np.isfinite(log_lira)
    assert widget.counts["n"] == 598
    assert widget.evaluation.auc == roc(scores[keep], log_lira[keep] >= 4).auc
    assert told(widget, "data")["note"] == "2 samples without log-LiRA are left out."
