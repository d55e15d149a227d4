"""What an audit shows: its names, the order of its arguments, and sentences for typical slips."""

from __future__ import annotations

import inspect

import pytest

import memowidgets as mw
from memowidgets.audit.source import Source
from memowidgets.audit.sources.arrays import ArraysSource
from memowidgets.audit.sources.run import RunSource
from memowidgets.audit.sources.shadow import ShadowSource
from memowidgets.store import StoreError

PLUMBING = {
    "device_status",
    "from_run",
    "is_computed",
    "member_gaps",
    "raw_scores",
    "truth_in_words",
    "truth_version",
    "warnings_at",
}


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_the_plumbing_lies_behind_the_views():
    assert not PLUMBING & public(mw.Audit)
    assert 35 <= len(public(mw.Audit)) <= 46


def test_an_audit_has_no_subclasses_and_no_parents():
    assert mw.Audit.__mro__ == (mw.Audit, object)
    assert not mw.Audit.__subclasses__()


@pytest.mark.parametrize("kind", [RunSource, ArraysSource, ShadowSource])
def test_every_source_has_all_that_the_protocol_names(kind):
    in_init = set(inspect.getclosurevars(kind.__init__).unbound)
    assert public(Source) <= public(kind) | in_init
    assert kind.__mro__ == (kind, object)


def test_every_public_method_says_what_it_does():
    for name in public(mw.Audit):
        assert inspect.getdoc(getattr(mw.Audit, name)), name


@pytest.mark.parametrize("name", ["score", "flagged", "evaluate", "compare"])
def test_the_metric_comes_first(name):
    first = list(inspect.signature(getattr(mw.Audit, name)).parameters)[1]
    assert first in ("metric", "metrics")


def test_flagged_takes_tau_first_with_a_warning(finished):
    wanted = finished.flagged("loss", "last", "final", tau=-0.1)
    with pytest.warns(FutureWarning, match=r"metric first now: flagged\(metric, tau=-0.1\)"):
        assert finished.flagged(-0.1, "loss", "last", "final").equals(wanted)
    with pytest.warns(FutureWarning, match="metric first"):
        assert finished.flagged(-0.1, metric="loss", checkpoint="final").equals(wanted)
    assert finished.flagged(tau=-0.1, metric="loss", checkpoint="final").equals(wanted)


def test_one_variance_is_the_default_everywhere():
    methods = [value for value in vars(mw.Audit).values() if inspect.isfunction(value)]
    found = [inspect.signature(method).parameters.get("variance") for method in methods]
    assert {parameter.default for parameter in found if parameter is not None} == {"shrunk"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.flagged("psmi", tau="0"), "tau must be a number, not '0'"),
        (lambda a: a.flagged("psmi", tau="youden"), r"threshold\('youden'\)"),
        (lambda a: a.flagged("loss"), "'loss' has no default threshold"),
        (lambda a: a.flagged("psmy"), "valid: psmi, loss"),
        (lambda a: a.evaluate("psmi", eta="4"), "eta must be a number.*not '4'"),
        (lambda a: a.compare(["psmi"], eta="4"), "eta must be a number"),
        (lambda a: a.figures(eta="4"), "eta must be a number"),
        (lambda a: a.evaluate("psmi").at("0"), "tau must be a number, not '0'"),
        (lambda a: a.evaluate("psmi").threshold(0.5), "a rule is a text, not 0.5"),
        (lambda _: mw.evaluation.compare("psmi", "loss"), "takes two evaluations"),
        (lambda a: mw.evaluation.compare(a.evaluate("psmi"), "loss"), "not 'loss'"),
        (lambda a: a.report("out.html", tau="0"), "tau must be a number, not '0'"),
    ],
)
def test_a_slip_gets_a_sentence(finished, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(finished)


@pytest.mark.parametrize(
    "work", ["train", "run_shadows", "run_references", "use_shadows", "fork", "recorder"]
)
def test_a_shadow_model_says_where_to_call_instead(finished, work):
    given = {"run_shadows": (8,), "use_shadows": ("halves",), "fork": ("elsewhere",)}
    with pytest.raises(StoreError, match=r"shadow 0 .*call this on the audit itself"):
        getattr(finished.as_target(0), work)(*given.get(work, ()))
