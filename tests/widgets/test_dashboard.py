"""The Python side of the dashboard: what it shows, when it works, and what it leaves behind."""

from __future__ import annotations

import gc
import re
import threading
import tracemalloc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances

from memowidgets.evaluation import below_class, roc
from memowidgets.evaluation.scored import AgainstClass
from memowidgets.vocabulary import Note
from memowidgets.widgets import Choice, Dashboard, Missing
from tests.widgets.fake_source import FakeSource
from tests.widgets.page import compute, say, say_all, told


def n_memorized(dashboard):
    """How many of the samples below the plots count as memorised."""
    counts = say(dashboard, "page", request="1", page=0, filter="all")["counts"]
    return counts["found"] + counts["missed"]


def test_what_is_computed_shows_at_once_and_the_rest_waits_for_compute(opened):
    dashboard, source = opened()
    before = dashboard.counts
    assert before["n"] == 200
    assert dashboard.computed
    assert source.threads == [threading.main_thread().name]
    assert "AUC" in repr(dashboard)
    dashboard.layer = "1"
    assert not dashboard.computed
    assert told(dashboard, "dimmed")
    assert "Below is still PSMI, layer 3, epoch 2" in told(dashboard, "message")["text"]
    assert dashboard.counts == before
    compute(dashboard)
    assert dashboard.computed
    assert not told(dashboard, "dimmed")
    assert source.threads[-1] == "memowidgets-compute"


@pytest.mark.parametrize(
    ("checkpoint", "numbers", "says", "says_not"),
    [
        ("epoch-1", {"accuracy": 0.1, "chance": 0.1}, "Too early: .* guessing", "loss"),
        ("epoch-1", {"loss": 1.9, "limit": 1.2}, "Too early: .* loss", "guessing"),
        ("epoch-4", {"loss": 1.9, "limit": 1.2}, "loss", "Too early|guessing"),
        ("epoch-2", {"accuracy": 0.1, "chance": 0.1}, "guessing", "Too early"),
    ],
)
def test_too_early_and_guessing_are_said_only_where_they_are_true(
    opened, monkeypatch, checkpoint, numbers, says, says_not
):
    dashboard, source = opened()  # the best checkpoint is epoch-2
    source.done.add(("psmi", "last", checkpoint))
    note = Note("not learned", "the model has not learned its task", **numbers)
    monkeypatch.setattr(source, "_warnings", lambda _checkpoint: (note,))
    dashboard.checkpoint = checkpoint
    dashboard.refresh()
    assert re.search(says, told(dashboard, "early"))
    assert not re.search(says_not, told(dashboard, "early"))


@pytest.mark.parametrize(
    ("missing", "begins"),
    [
        (Missing(cost="Scoring 200 samples, about 2 s.", short=True), True),
        (Missing(cost="Scoring 200 samples, about 40 s."), False),
        (Missing(trains=True), False),
    ],
)
def test_only_what_is_short_and_trains_nothing_begins_by_itself(
    opened, missing, begins
):
    dashboard, source = opened(
        computed=False, missing_of={"psmi": missing, "loss": Missing()}
    )
    assert dashboard.counts == {"n": 0, "flagged": 0, "left_alone": 0}
    assert told(dashboard, "data") == {}  # without scores the page shows the bar alone
    dashboard.wait(60)
    assert dashboard.computed is begins
    assert source.threads == ["memowidgets-compute"] * begins
    dashboard.layer = "2"
    if begins:
        assert "Scoring 200 samples, about 2 s." in told(dashboard, "message")["text"]
    dashboard.wait(60)
    assert dashboard.computed is begins
    if not begins:
        compute(dashboard)
    assert dashboard.counts["n"] == 200
    assert told(dashboard, "data")["values"]


def test_a_dashboard_that_is_closed_while_it_computes_ends_quietly(opened):
    dashboard, source = opened(computed=False, seconds=0.4)
    # does not hear of a cancel
    source.view = lambda *pick: FakeSource.view(source, *pick[:3])
    dashboard.compute()
    dashboard.close()
    dashboard.wait(60)
    assert source.done
    assert dashboard.counts["n"] == 0


@pytest.mark.parametrize("computed", [True, False])
def test_what_was_cancelled_keeps_the_old_view_and_does_not_begin_again(
    opened, computed
):
    short = {"psmi": Missing(cost="Scoring 200 samples, about 2 s.", short=True)}
    dashboard, source = opened(computed=computed, seconds=4, missing_of=short)
    done = set(source.done)
    if computed:
        dashboard.layer = (
            "1"  # it begins by itself, and so does what nothing is shown of
        )
    dashboard.compute()  # changes nothing
    dashboard.cancel()
    dashboard.wait(60)
    assert "Cancelled" in told(dashboard, "message")["text"]
    assert told(dashboard, "work")["busy"] is False
    assert source.done == done
    assert len(source.threads) == 1 + computed


def test_a_choice_made_meanwhile_is_not_overwritten(opened):
    dashboard, source = opened(seconds=0.4)
    dashboard.layer = "1"
    dashboard.compute()
    dashboard.layer = "last"
    dashboard.wait(60)
    assert ("psmi", "1", "epoch-2") in source.done
    assert told(dashboard, "data")["title"] == "PSMI, layer last, epoch-2"
    assert dashboard.computed
    dashboard.layer = "1"
    assert told(dashboard, "data")["title"] == "PSMI, layer 1, epoch-2"


def test_what_was_asked_for_stays_when_the_score_changes(opened):
    dashboard, source = opened()
    source.done.update({("psmi", "last", "epoch-1"), ("logit_gap", "last", "epoch-1")})
    for asked, many in (({"count": 20}, 20), ({"share": 0.3}, 60)):
        dashboard.asked = asked
        taus = set()
        for metric, checkpoint in (("psmi", "epoch-1"), ("loss", "epoch-2")):
            dashboard.state = {"checkpoint": checkpoint, "metric": metric}
            assert dashboard.counts["flagged"] == many
            assert dashboard.tau == dashboard.tau_committed
            taus.add(dashboard.tau)
        assert len(taus) == 2
        assert dashboard.asked == asked
    dashboard.state = {"metric": "psmi", "checkpoint": "epoch-2"}
    dashboard.tau = 0.0
    assert dashboard.asked == {}
    for place in ("psmi", "epoch-1"), ("logit_gap", "epoch-1"):  # it means the same
        dashboard.state = dict(zip(("metric", "checkpoint"), place, strict=True))
        assert (dashboard.asked, dashboard.tau) == ({}, 0.0)
    dashboard.axis = "class"
    assert (dashboard.asked, dashboard.tau) == ({}, -1.0)
    dashboard.state = {"metric": "loss", "checkpoint": "epoch-2"}
    assert (dashboard.axis, dashboard.tau) == ("class", -1.0)


@pytest.mark.parametrize("tau", [0.1, -99.0])
def test_a_tau_that_means_nothing_for_another_score_becomes_as_many_samples(
    opened, tau
):
    dashboard, _ = opened()
    dashboard.tau = tau
    flagged = dashboard.counts["flagged"]
    for metric in ("loss", "psmi"):
        dashboard.metric = metric
        # of none, the lowest one
        assert dashboard.counts["flagged"] == max(1, flagged)
        assert dashboard.asked == {"count": max(1, flagged)}


def test_where_nothing_was_flagged_all_that_tie_with_the_lowest_are(
    opened, monkeypatch
):
    dashboard, _ = opened()
    view = FakeSource.view

    def tied(source, score, *place):
        found = view(source, score, *place)
        if score == "loss":
            found = replace(found, scores=(found.scores > -0.3).astype(float))
        return found

    monkeypatch.setattr(FakeSource, "view", tied)
    dashboard.tau = -99.0
    assert dashboard.counts["flagged"] == 0
    dashboard.metric = "loss"
    n_lowest = int((dashboard.evaluation.scores == 0).sum())
    assert 1 < n_lowest < 200
    assert dashboard.counts["flagged"] == n_lowest
    assert dashboard.tau == 0


def test_eta_moves_the_inspector_too_and_stays_for_other_scores(opened):
    dashboard, source = opened()
    log_lira = source.view("psmi", "last", "epoch-2").log_lira
    before = n_memorized(dashboard)
    dashboard.eta = 8.0
    wanted = (log_lira >= 8).sum()
    assert n_memorized(dashboard) == wanted < before
    dashboard.metric = "loss"
    assert dashboard.evaluation.n_memorized == wanted
    assert n_memorized(dashboard) == wanted


PSMI = ("psmi", "last", "epoch-2")


def place(metric="loss", layer="last", checkpoint="epoch-2"):
    return {"checkpoint": checkpoint, "layer": layer, "metric": metric}


def test_the_score_on_show_is_compared_with_one_that_is_ready(opened):
    dashboard, source = opened()
    assert dashboard.wait(30)
    assert len(source.threads) == 1  # no other score is read before
    assert told(dashboard, "beside") == place()
    dashboard.comparing = [place()]
    assert dashboard.wait(30)
    sent = told(dashboard, "compared")
    view = source.view("loss", "last", "epoch-2")
    assert sent["names"] == ["PSMI", "Loss"]
    assert {row["name"]: row["auc"] and row["auc"][0] for row in sent["areas"]} == {
        "PSMI": dashboard.evaluation.auc, "Loss": roc(view.scores, view.log_lira >= 4).auc,
        "Logit gap": None, "Mahalanobis": None,
    }  # fmt: skip
    budget = dashboard.counts["flagged"]
    asked = {"request": "1", "page": 0, "filter": "all"}
    both = say(
        dashboard, "page", **asked, part={"budget": budget, "flagged": [True, True]}
    )
    lowest = np.sort(view.scores)[budget - 1]
    wanted = (view.scores <= lowest) & (source.view(*PSMI).scores <= dashboard.tau)
    assert both["total"] == wanted.sum() > 0
    dashboard.eta = 8.0
    assert dashboard.wait(30)
    bits = np.unpackbits(np.frombuffer(told(dashboard, "compared")["bits"], np.uint8))
    assert bits.sum() == (view.log_lira >= 8).sum()
    dashboard.axis = "class"
    assert dashboard.wait(30)
    loss = next(
        row for row in told(dashboard, "compared")["areas"] if row["name"] == "Loss"
    )
    assert loss["auc"][0] == roc(view.against_class.scores, view.log_lira >= 8).auc


def test_a_score_that_is_compared_follows_the_one_on_show_or_changes_places_with_it(
    opened,
):
    dashboard, _ = opened()
    dashboard.comparing = [place()]
    dashboard.metric = "loss"
    assert dashboard.comparing == [place("psmi")]
    dashboard.checkpoint = "epoch-3"
    compute(dashboard)
    assert dashboard.comparing == [place("psmi", checkpoint="epoch-3")]


def test_what_is_compared_is_computed_before_as_anything_else(opened):
    train = Missing("Check with 2 short trainings", trains=True)
    dashboard, source = opened(
        missing_of={"logit_gap": Missing(short=True), "mahalanobis": train}
    )
    dashboard.comparing = [place("logit_gap")]
    assert dashboard.wait(60)
    assert told(dashboard, "compared")["names"] == ["PSMI", "Logit gap"]
    dashboard.comparing = [place(checkpoint="epoch-1"), place("mahalanobis")]
    assert "Loss, layer 3, epoch 1" in told(dashboard, "message")["text"]
    assert not source.is_computed("loss", "last", "epoch-1")
    compute(dashboard)
    assert told(dashboard, "button") == "Check with 2 short trainings"
    assert dashboard.computed
    compute(dashboard)
    assert told(dashboard, "button") == ""
    names = ["PSMI, epoch 2", "Loss, epoch 1", "Mahalanobis, epoch 2"]
    assert told(dashboard, "compared")["names"] == names


def test_reruns_leave_nothing_behind():
    source = FakeSource(n=50)
    Dashboard(source).close()
    gone = []
    for _ in range(20):
        dashboard = Dashboard(source)
        gone.append(weakref.ref(dashboard))
        dashboard.close()
    del dashboard
    gc.collect()
    assert not [
        w for w in _instances.values() if type(w).__module__.startswith("memowidgets")
    ]
    assert not [ref for ref in gone if ref() is not None]


def test_a_cells_second_run_closes_the_dashboard_of_its_first(monkeypatch):
    parent = {}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda: parent))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)

    def run(cell, message):
        parent.update(metadata={"cellId": cell}, header={"msg_id": message})
        return Dashboard(FakeSource(n=50))

    first, other, beside = run("a", "1"), run("b", "2"), run("b", "2")
    second = run("a", "3")
    made = [first, other, beside, second]
    assert [one.comm is None for one in made] == [True, False, False, False]
    for one in made:
        one.close()


def test_a_closed_dashboard_that_a_notebook_remembers_holds_no_arrays():
    source = FakeSource(n=20_000)
    source.done.add(("logit_gap", "last", "epoch-2"))
    Dashboard(source).close()
    remembered = []
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            remembered.append(Dashboard(source))
            remembered[-1].comparing = [place("logit_gap")]
            assert remembered[-1].wait(60)
            assert told(remembered[-1], "compared")
            remembered[-1].close()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 2 * 20_000 * 8 / 2  # not half an array of scores for each
    assert remembered[0].state["metric"] == "psmi"
    assert remembered[0].decisions.empty


def test_tau_of_minus_one_against_the_class_flags_what_below_class_does(opened):
    dashboard, source = opened()
    view = source.view("psmi", "last", "epoch-2")
    at_zero = dashboard.counts
    below = below_class(view.scores, view.labels)
    found = int((below & (view.log_lira >= dashboard.eta)).sum())
    dashboard.axis = "class"
    assert (dashboard.tau, dashboard.tau_committed) == (-1.0, -1.0)
    assert dashboard.counts["flagged"] == int(below.sum()) != at_zero["flagged"]
    assert dashboard.counts["found"] == found
    page = say(dashboard, "page", request="1", page=0, tau=-1.0, filter="flagged")
    assert (page["total"], page["counts"]["found"]) == (int(below.sum()), found)
    assert "against its class" in page["scoreName"]
    assert say(dashboard, "export", request="1")["content"].endswith(
        f",{AgainstClass(-1.0)}\n"
    )
    dashboard.tau = -1.5
    assert dashboard.undecided == int(view.against_class.close(-1.5).sum())
    state = dashboard.state
    dashboard.axis = "score"
    assert dashboard.counts == at_zero
    dashboard.state = dict(reversed(state.items()))
    assert (dashboard.axis, dashboard.tau) == ("class", -1.5)
    with pytest.raises(ValueError, match=r"unknown axis 'sex'.*'class'"):
        dashboard.state = {"axis": "sex"}


def test_a_click_trains_what_draws_the_roc(opened):
    offered = Missing("Train 2 shadow models", trains=True)
    dashboard, source = opened(truth=False, missing_of={"truth": offered})
    assert told(dashboard, "steps")["know"]["button"] == "Train 2 shadow models"
    assert dashboard.evaluation is None
    assert not source.truth
    checks, source.check = (
        source.check,
        lambda step: step.cancel() or step.report(0, 1, "training"),
    )
    say_all(dashboard, "check")
    assert dashboard.wait(60)
    assert "Cancelled" in told(dashboard, "message")["text"]
    assert dashboard.evaluation is None
    source.check = checks
    say_all(dashboard, "check")
    assert dashboard.wait(60)
    assert told(dashboard, "steps") == {}
    assert dashboard.evaluation.auc > 0.5
    assert dashboard.computed
    nothing, _ = opened(truth=False)
    know = told(nothing, "steps")["know"]
    assert (know["button"], know["said"]) == ("", "these samples are made up")


def test_a_click_trains_short_models_and_shows_what_they_say(opened, monkeypatch):
    scores = [*FakeSource().score_choices(), Choice("reference", "Reference models")]
    monkeypatch.setattr(FakeSource, "score_choices", lambda _self: scores)
    offered = Missing("Train 2 short models", trains=True)
    dashboard, source = opened(truth=False, missing_of={"reference": offered})
    source.done.add(("psmi", "last", "epoch-4"))
    dashboard.checkpoint = "epoch-4"
    steps = told(dashboard, "steps")
    assert (steps["metric"], steps["more"]["button"]) == ("psmi", offered.button)
    dashboard.asked = {"count": 26}
    say_all(dashboard, "references")
    assert dashboard.wait(60)
    assert dashboard.computed
    # they are asked where the prediction is made
    assert (dashboard.metric, dashboard.checkpoint) == ("reference", "epoch-2")
    assert told(dashboard, "steps")["metric"] == "reference"
    assert dashboard.counts["flagged"] == 26


def test_a_score_that_came_since_can_be_set_at_once(opened, monkeypatch):
    """By its trait, as part of a state, and to compare with: nobody has to refresh first."""
    names = "mine", "yours", "theirs"
    views = [opened()[0] for _ in names]
    with pytest.raises(ValueError, match="unknown metric 'mine'"):
        views[0].metric = "mine"
    scores = [*FakeSource().score_choices(), *(Choice(name, name) for name in names)]
    monkeypatch.setattr(FakeSource, "score_choices", lambda _self: scores)
    place = {"checkpoint": "epoch-2", "layer": "last"}
    views[0].metric = "mine"
    views[1].state = {"metric": "yours", "tau": 0.25}
    views[2].comparing = [place | {"metric": "theirs"}]
    for view in views:
        view.compute()
        assert view.wait(60)
        assert view.computed
        assert not view.outdated
    assert [view.metric for view in views] == ["mine", "yours", "psmi"]
    assert views[1].tau == 0.25
    assert "theirs" in str(told(views[2], "compared")["names"])
    with pytest.raises(ValueError, match="'theirs'"):
        views[0].metric = "their"


def test_the_export_is_of_what_is_shown_and_a_failure_is_a_sentence(opened):
    dashboard, source = opened()
    dashboard.tau = 0.25
    reply = say(dashboard, "export", request="1")
    assert (reply["content"], reply["done"]) == (f"{dashboard.metric},0.25\n", True)
    source.fail = "the disk is full"
    reply = say(dashboard, "export", request="2")
    assert not reply["done"]
    assert source.fail in reply["text"]
    dashboard.comparing = [place("logit_gap")]
    compute(dashboard)
    assert source.fail in told(dashboard, "message")["text"]
    assert dashboard.computed
    assert told(dashboard, "compared") == {}
