"""The Python side of the τ explorer."""

from __future__ import annotations

import base64
import gc
import re
import weakref
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from memowidgets.evaluation import compare, roc
from memowidgets.widgets import SampleInspector, ThresholdExplorer
from tests.widgets.fake_source import scores_like_psmi


@pytest.fixture
def explorer():
    scores, errors, log_lira = scores_like_psmi()
    widget = ThresholdExplorer(scores, log_lira >= 4, errors=errors, title="PSMI")
    yield widget
    widget.close()


@pytest.fixture
def judged():
    scores, errors, log_lira = scores_like_psmi()
    widget = ThresholdExplorer(scores, log_lira=log_lira, errors=errors, title="PSMI")
    yield widget
    widget.close()


def settled(widget):
    """The widget, once its thread has nothing left to do."""
    assert widget._worker.wait(30)
    return widget


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
    for name in ("tau", "eta"):  # from Python, where nothing is dragged
        setattr(explorer, f"{name}_committed", 0.75)
        assert getattr(explorer, name) == 0.75


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


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"log_lira": [1.0, 5.0]}, ValueError, "each of 3 samples .* shape \\(2,\\)"),
        ({"log_lira": ["a", "b", "c"]}, TypeError, "real numbers"),
        ({"log_lira": [1, 5, 9], "eta": np.nan}, ValueError, "eta must be a finite number"),
        ({"log_lira": [1, 5, 9], "memorized": [0, 1, 1]}, ValueError, "not both"),
        ({"errors": [0.1, -0.1, 0.2]}, ValueError, "1 of 3 are, the first in row 1"),
        ({"errors": [0.1, 0.1]}, ValueError, "2 entries for 3 samples"),
        ({"others": {"loss": [1, 2, 3]}}, ValueError, "no ROC to compare"),
        (
            {"memorized": [0, 1, 1], "others": {"loss": [1.0, np.nan, 3]}},
            ValueError,
            "others\\['loss'\\] must be finite: 1 of 3 .* row 1",
        ),
        (
            {"memorized": [0, 1, 1], "others": {str(i): [1, 2, 3] for i in range(9)}},
            ValueError,
            "at most 8",
        ),
    ],
)
def test_bad_options_are_named(options, error, words):
    with pytest.raises(error, match=words):
        ThresholdExplorer([1.0, 2.0, 3.0], **options)


def test_series_of_the_same_samples_in_other_orders_are_refused():
    scores = pd.Series([0.3, 0.1, 0.2], ["a", "b", "c"])
    sorted_scores, truth = scores.sort_values(), scores < 0.15
    for call in (
        lambda: ThresholdExplorer(sorted_scores, truth),
        lambda: ThresholdExplorer(sorted_scores, log_lira=scores),
        lambda: SampleInspector(["x", "y", "z"], sorted_scores, truth),
    ):
        with pytest.raises(ValueError, match=r"reindex\(scores\.index\)"):
            call()
    widget = ThresholdExplorer(scores, truth, tau=0.15)
    assert widget.counts["hits"] == 1
    widget.close()


def test_a_bad_eta_is_refused_later_too(judged):
    with pytest.raises(ValueError, match="eta must be a finite number, not nan"):
        judged.eta = np.nan
    assert judged.eta == 4.0


@pytest.mark.parametrize("scores", [[0.25], [3.0] * 5])
def test_scores_without_any_spread(scores):
    widget = ThresholdExplorer(scores, tau=scores[0])
    assert widget.counts == {"n": len(scores), "flagged": len(scores)}
    widget.close()


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
    point, auc = explorer.evaluation.at(explorer.tau), explorer.evaluation.auc
    low, high = point.precision_interval
    assert f"{point.precision:.3f} ({low:.3f} to {high:.3f})" in data["text/html"]
    source = r'alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]+)"'
    picture = re.search(source, data["text/html"])
    assert picture[1].endswith(f"ROC curve, AUC {auc:.3f}")
    drawn = ET.fromstring(base64.b64decode(picture[2]))
    circle = drawn.find("{*}circle")
    assert float(circle.get("cy")) == pytest.approx(196 - 170 * point.tpr, abs=0.06)
    assert "application/vnd.jupyter.widget-view+json" in data


@pytest.mark.parametrize("scores", [[2.0], [1, 1, 1], [-1e300, 1e300], [0.1, 0.1 + 2e-16]])
def test_a_picture_of_strange_scores(scores):
    odd = ThresholdExplorer(scores, tau=5.0)
    assert "Histogram of" in odd._repr_mimebundle_()[0]["text/html"]
    odd.close()


def test_close_takes_the_layout_along(explorer):
    layout = explorer.layout
    explorer.close()
    assert layout.comm is None
    assert explorer.comm is None
    explorer.close()


def test_eta_moves_the_truth(judged):
    scores, _, log_lira = scores_like_psmi()
    judged.tau = 0.1
    for eta in (4.0, 6.5, float(log_lira[log_lira > 4][0]), 0.0):
        judged.eta = eta
        point = roc(scores, log_lira >= eta).at(0.1)
        assert (judged.counts["hits"], judged.counts["missed"]) == (point.hits, point.missed)
        assert judged.eta_committed == eta
        assert judged.evaluation.n_memorized == (log_lira >= eta).sum()
        assert settled(judged)._late["eta"] == eta


def test_an_eta_from_the_page_counts_at_once_and_is_evaluated_when_it_rests(judged):
    _, _, log_lira = scores_like_psmi()
    before = judged.evaluation
    judged.set_state({"eta": 7.0})
    assert judged.counts["missed"] + judged.counts["hits"] == (log_lira >= 7).sum()
    assert judged.eta_committed == 4.0
    assert judged.evaluation is before
    judged.set_state({"eta": 7.0, "eta_committed": 7.0})
    assert judged.evaluation.n_memorized == (log_lira >= 7).sum()
    assert judged._truth["eta"] == 7.0


def test_an_eta_that_nobody_reaches_has_no_roc(judged):
    judged.eta = 1e6
    assert judged.evaluation is None
    assert judged.counts["hits"] == judged.counts["missed"] == 0
    assert settled(judged)._late["band"] is None


def test_log_lira_is_sent_once_it_is_asked_for(judged, monkeypatch):
    scores, _, log_lira = scores_like_psmi()
    sent = []
    monkeypatch.setattr(judged, "send", lambda content, buffers: sent.append((content, buffers)))
    rising = log_lira[np.argsort(scores)].tobytes()
    assert rising not in [*judged._data.values(), *judged._truth.values()]
    judged._handle_custom_msg({"type": "saved"}, [])
    version = judged._data["version"]
    for asked in (version - 1, version):
        judged._handle_custom_msg({"type": "log_lira", "version": asked}, [])
    ((content, (packed,)),) = sent
    assert content["version"] == version
    assert content["wide"]
    assert np.array_equal(np.frombuffer(packed), log_lira[np.argsort(scores)])


def test_samples_without_log_lira_are_left_out_and_counted():
    scores, errors, log_lira = scores_like_psmi()
    log_lira[[3, 5]] = np.nan
    others = {"loss": scores**3}
    widget = ThresholdExplorer(scores, log_lira=log_lira, errors=errors, others=others)
    keep = np.isfinite(log_lira)
    assert widget.counts["n"] == 598
    assert widget.evaluation.auc == roc(scores[keep], log_lira[keep] >= 4).auc
    assert widget._data["note"] == "2 samples have no log-LiRA and are left out."
    assert settled(widget)._late["others"][0]["auc"][0] == widget.evaluation.auc
    widget.close()


def test_without_any_log_lira_there_is_no_truth():
    widget = ThresholdExplorer([1.0, 2.0], log_lira=[np.nan, np.nan], tau=1)
    assert widget.counts == {"n": 2, "flagged": 1}
    assert widget._data["note"] == "No sample has a log-LiRA yet."
    assert widget.evaluation is None
    widget.close()


def test_other_scores_come_with_their_auc_and_how_much_it_differs(explorer):
    scores, _, log_lira = scores_like_psmi()
    truth = log_lira >= 4
    worse = scores + np.random.default_rng(0).normal(0, 0.3, len(scores))
    explorer.compare_with({"worse": worse, "<b>same</b>": scores})
    first, second = settled(explorer)._late["others"]
    evaluation = roc(worse, truth)
    assert first["name"] == "worse"
    assert first["auc"] == [evaluation.auc, *evaluation.auc_interval]
    difference = compare(evaluation, explorer.evaluation)
    assert first["difference"] == [difference.difference, *difference.interval]
    assert second["difference"][0] == 0
    assert len(first["points"]) < 10_000
    assert explorer.comparing
    explorer.comparing = False
    assert settled(explorer)._late["others"] == []
    explorer.compare_with(None)
    assert not explorer._comparable


def test_a_function_of_other_scores_is_called_only_to_compare(explorer):
    scores, _, log_lira = scores_like_psmi()
    calls = []

    def others():
        calls.append(1)
        return {"loss": scores}

    explorer.update(scores, log_lira >= 4, others=others)
    assert settled(explorer)._comparable
    assert calls == []
    explorer.comparing = True
    assert [other["name"] for other in settled(explorer)._late["others"]] == ["loss"]


def test_other_scores_that_fail_are_a_sentence(explorer):
    scores, _, log_lira = scores_like_psmi()
    explorer.update(scores, log_lira >= 4, others=lambda: {"loss": scores[:-1]})
    explorer.comparing = True
    late = settled(explorer)._late
    assert "others['loss'] has 599 entries for 600 samples" in late["failed"]
    assert late["band"] is not None


def test_the_band_that_is_sent_is_that_of_the_evaluation(explorer):
    sent = np.frombuffer(settled(explorer)._late["band"], dtype=np.float32).reshape(3, -1)
    band = explorer.evaluation.band(300)
    assert np.array_equal(sent, band.to_numpy().T.astype(np.float32))
    assert settled(explorer)._late["version"] == explorer._data["version"]


def test_undecided_samples_are_closer_to_tau_than_two_errors(explorer):
    scores, errors, _ = scores_like_psmi()
    explorer.tau = 0.2
    assert explorer.undecided == (np.abs(scores - 0.2) < 2 * errors).sum()
    explorer.update(scores)
    assert explorer.undecided is None


def test_work_under_way_keeps_no_closed_widget_alive():
    widget = ThresholdExplorer(np.arange(50.0), np.arange(50) < 5)
    worker, gone = widget._worker, weakref.ref(widget)
    widget.close()
    del widget
    worker.wait(30)
    gc.collect()
    assert gone() is None
