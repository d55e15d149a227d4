"""What a page is told of the checkpoints, and of the scores at them."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.widgets.messages import Choice, Missing, Moment
from tests.widgets.fake_source import FakeSource
from tests.widgets.page import LISTED, mismatch, told


class Training(FakeSource):
    """A run that another process trains: its checkpoints come one after the other."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.reached, self.star, self.at = 2, 0, 0

    def checkpoint_choices(self):
        names = range(1, self.reached + 1)
        return [Choice(f"epoch-{i}", f"epoch {i}", marked=i == 2) for i in names]

    def moments(self):
        return [
            Moment(f"epoch-{i}", f"epoch {i}", i, self.weights, np.nan if i == 1 else 1 / i,
                   None, "", star=i == self.star)
            for i in range(1, self.reached + 1)
        ]  # fmt: skip

    def revision(self):
        return self.at


def sent(dashboard, monkeypatch, *checkpoints):
    """What a page hears that asks for the scores at some checkpoints."""
    heard = []
    monkeypatch.setattr(
        dashboard, "send", lambda content, buffers=(): heard.append((content, buffers))
    )
    dashboard._send_moments(checkpoints)
    for content, _ in heard:
        kind = {"moment": "MomentScores", "memorized": "MomentTruth"}[content["type"]]
        assert mismatch(content, LISTED[kind], "it") == ""
    return heard


def test_the_timeline_says_where_the_picked_score_is_computed(opened):
    dashboard, source = opened()
    timeline = told(dashboard, "timeline")
    assert mismatch(timeline, LISTED["TimelineShown"], "it") == ""
    for moment in timeline["moments"]:
        assert mismatch(moment, LISTED["MomentShown"], "it") == ""
        assert moment.keys() == LISTED["MomentShown"].__annotations__.keys()
    computed = [moment["computed"] for moment in timeline["moments"]]
    assert computed == [False, True, False, False]
    source.done.add(("loss", "last", "epoch-4"))
    dashboard.metric = "loss"
    again = told(dashboard, "timeline")
    assert again["series"] != timeline["series"]
    assert [moment["computed"] for moment in again["moments"]] == [
        False,
        True,
        False,
        True,
    ]


def test_the_scores_of_a_checkpoint_are_sent_as_float32_in_the_order_of_the_samples(
    opened, monkeypatch
):
    dashboard, source = opened()
    (truth, bits), (answer, buffers) = sent(dashboard, monkeypatch, "epoch-2")
    assert truth == {"type": "memorized"}
    scored = source.view("psmi", "last", "epoch-2")
    memorized = np.unpackbits(np.frombuffer(bits[0], np.uint8), count=len(scored))
    assert (memorized == (scored.log_lira >= 4)).all()
    assert answer["problem"] == ""
    scores = np.frombuffer(buffers[0], np.float32)
    np.testing.assert_allclose(scores, scored.scores, rtol=1e-6)
    source.fail = "epoch 1 is broken"
    (_, _), (answer, buffers) = sent(dashboard, monkeypatch, "epoch-1")
    assert answer["problem"]
    assert not buffers


def test_what_playing_skips_is_scored_where_it_can_be_made(opened):
    dashboard, source = opened()
    source.seconds = 0.02
    dashboard._hear_play({"type": "play"})
    assert "3 checkpoints" in told(dashboard, "message")["text"]
    dashboard.eta = 5.0  # what is shown anew does not take the offer back
    dashboard.refresh()
    assert told(dashboard, "button")
    source.fail = "epoch 1 is broken"
    dashboard._hear_compute({"type": "compute"})
    assert dashboard.wait(30)
    assert "epoch 1 is broken" in told(dashboard, "message")["text"]
    source.fail = ""
    dashboard._hear_compute({"type": "compute"})
    assert dashboard.wait(30)
    assert all(moment["computed"] for moment in told(dashboard, "timeline")["moments"])
    assert (dashboard.checkpoint, told(dashboard, "button")) == ("epoch-2", "")
    source.missing_of["loss"] = Missing(why_not="it needs logits")
    dashboard.metric = "loss"
    dashboard._hear_play({"type": "play"})
    assert told(dashboard, "message")["text"] == ""


def test_a_compared_score_moves_too_unless_it_is_of_another_time(opened, monkeypatch):
    dashboard, source = opened()
    source.done.add(("psmi", "last", "epoch-4"))
    before = told(dashboard, "timeline")
    last = {"layer": "last"}
    others = [
        {"metric": "loss", "checkpoint": "epoch-2", **last},
        {"metric": "psmi", "checkpoint": "epoch-4", **last},
    ]
    dashboard.comparing = others
    dashboard.wait(30)
    timeline = told(dashboard, "timeline")
    assert timeline["series"] != before["series"]
    computed = [moment["computed"] for moment in timeline["moments"]]
    assert computed == [False, True, False, False]  # where all that moves is
    source.done.add(("loss", "last", "epoch-4"))
    _, (answer, buffers) = sent(dashboard, monkeypatch, "epoch-4")
    assert answer["series"] == timeline["series"]
    wanted = [("psmi", "epoch-4"), ("loss", "epoch-4"), ("psmi", "epoch-4")]
    for (metric, checkpoint), buffer in zip(wanted, buffers, strict=True):
        scores = source.view(metric, "last", checkpoint).scores
        np.testing.assert_allclose(np.frombuffer(buffer, np.float32), scores, rtol=1e-6)
    dashboard.comparing = []
    assert told(dashboard, "timeline")["series"] == before["series"]


def test_a_sample_without_log_lira_or_score_does_not_move(opened, monkeypatch):
    dashboard, source = opened()
    view = source.view

    def some(*place):
        found = view(*place)
        found.log_lira[3] = np.nan
        return found.only(np.arange(len(found)) != 5)

    monkeypatch.setattr(source, "view", some)
    dashboard.refresh()
    _, (_, buffers) = sent(dashboard, monkeypatch, "epoch-2")
    scores = np.frombuffer(buffers[0], np.float32)
    assert len(scores) == len(source.samples())
    assert np.flatnonzero(np.isnan(scores)).tolist() == [3, 5]


def test_a_run_that_trains_grows_and_the_reader_stays_where_he_is(opened):
    dashboard, source = opened(Training)
    dashboard.tau = 0.1
    assert len(told(dashboard, "timeline")["moments"]) == 2
    source.reached, source.at = 3, 1
    dashboard._look()
    moments = told(dashboard, "timeline")["moments"]
    assert [moment["value"] for moment in moments] == ["epoch-1", "epoch-2", "epoch-3"]
    assert moments[0]["loss"] is None
    assert not dashboard.outdated
    assert (dashboard.checkpoint, dashboard.tau) == ("epoch-2", 0.1)
    source.star, source.reached, source.at = 3, 4, 2
    dashboard._look()
    assert "epoch 3" in told(dashboard, "message")["text"]
    assert dashboard.checkpoint == "epoch-2"
    source.at = 3  # something else is new
    dashboard._look()
    assert dashboard.outdated


def test_one_checkpoint_has_no_timeline(opened, monkeypatch):
    monkeypatch.setattr(FakeSource, "moments", lambda _: [])
    dashboard, _ = opened()
    assert told(dashboard, "timeline")["moments"] == []


@pytest.mark.parametrize("weights", ["", "others"])
def test_an_overwritten_checkpoint_is_offered_as_new(opened, weights):
    dashboard, source = opened(Training)
    source.reached, source.weights, source.at = 3, weights, 1
    dashboard._look()
    assert dashboard.outdated == bool(weights)
