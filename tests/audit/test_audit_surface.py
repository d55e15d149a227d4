"""What an audit shows: its names, the order of its arguments, and sentences for typical slips."""

from __future__ import annotations

import inspect

import pytest

import memowidgets as mw
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
    assert 35 <= len(public(mw.Audit)) <= 50


def test_an_audit_has_no_subclasses_and_no_parents():
    assert mw.Audit.__mro__ == (mw.Audit, object)
    assert not mw.Audit.__subclasses__()


def test_every_public_method_says_what_it_does():
    for name in public(mw.Audit):
        assert inspect.getdoc(getattr(mw.Audit, name)), name


@pytest.mark.parametrize("name", ["score", "flagged", "evaluate", "compare"])
def test_the_metric_comes_first(name):
    first = list(inspect.signature(getattr(mw.Audit, name)).parameters)[1]
    assert first in ("metric", "metrics")


def test_one_variance_is_the_default_everywhere():
    methods = [value for value in vars(mw.Audit).values() if inspect.isfunction(value)]
    found = [inspect.signature(method).parameters.get("variance") for method in methods]
    assert {parameter.default for parameter in found if parameter is not None} == {"shrunk"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.flagged("psmi", tau="0"), "tau must be a number or 'class', not '0'"),
        (lambda a: a.flagged("psmi", tau="youden"), r"threshold\('youden'\)"),
        (lambda a: a.flagged("psmi", tau=0.0, share=0.1), "not both"),
        (lambda a: a.flagged("loss", share=0.0), "share must be above 0"),
        (lambda a: a.flagged("psmi", tau="lowest"), "tau must be a number"),
        (lambda a: a.flagged("psmy"), "valid: psmi, loss"),
        (lambda a: a.evaluate("psmi", eta="4"), "eta must be a number.*not '4'"),
        (lambda a: a.compare(["psmi"], eta="4"), "eta must be a (finite )?number"),
        (lambda a: a.figures(eta="4"), "eta must be a (finite )?number"),
        (lambda a: a.evaluate("psmi").at("0"), "tau must be a number, not '0'"),
        (lambda a: a.evaluate("psmi").threshold(0.5), "a rule is a text, not 0.5"),
        (lambda _: mw.evaluation.compare("psmi", "loss"), "takes two evaluations"),
        (lambda a: mw.evaluation.compare(a.evaluate("psmi"), "loss"), "not 'loss'"),
        (lambda a: a.report("out.html", tau="0"), "tau must be a number or 'class', not '0'"),
        (lambda a: a.score("loss", checkpoint=None), "a checkpoint is a name or a number.*None"),
        (lambda a: a.score("psmi", layer=[1]), r"a layer is a name or a number, not \[1\]"),
        (lambda a: a.compare(["psmi"], checkpoints=None), "a checkpoint is a name or a number"),
        (lambda a: a.compare(3), "metrics must be several values.*not 3"),
        (lambda a: a.figures(etas=4.0), "etas must be several values.*not 4.0"),
        (lambda a: a.figures(etas=["x"]), "an eta must be a finite number, not 'x'"),
        (lambda a: a.evaluate_pooled("loss", targets=3), "targets must be several values"),
        (lambda a: a.evaluate_pooled("loss", targets=["a"]), "a target must be a whole number"),
        (lambda a: a.evaluate_pooled("loss", progress="x"), "progress must be a Progress, not str"),
        (lambda a: a.shadow_curve("loss", repeats=0), "repeats must be a whole number from 1"),
        (lambda a: a.shadow_curve("loss", sizes=4), "sizes must be several values"),
        (lambda a: a.shadow_curve("loss", sizes=["4"]), "a size must be a whole number"),
        (lambda a: a.shadow_curve("loss", variance=3), "variance must be several values"),
        (lambda a: a.log_lira(variance=["shrunk"]), "unknown variance .*shrunk.*'hierarchical'"),
        (lambda a: a.compare_memorization(n_bootstrap=0), "n_bootstrap must be .* from 2, not 0"),
        (lambda a: a.compare_fork("fork"), "fork must be an Audit.*not 'fork'"),
        (lambda _: mw.scoreboard([3]), "of audits, not of int"),
        (lambda _: mw.scoreboard(3), "audits must be several values"),
        (lambda _: mw.TrainingConfig(lr=[0.1]), r"lr must be a number, not \[0.1\]"),
        (lambda _: mw.TrainingConfig(warmup="x"), "warmup must be a number, not 'x'"),
        (lambda _: mw.TrainingConfig(milestones=0.5), "milestones must be several values"),
        (lambda a: mw.Audit.open(a.path, data=["secret"]), "dataset of mw.data, not list"),
        (lambda a: mw.Audit.open(a.path, model=3), "model of mw.models, not int"),
        (lambda a: mw.Audit.open(a.path, held_out="0.1"), "dataset of mw.data, not str"),
        (lambda a: mw.Audit.open(None), "path must be the folder of a run, not None"),
        (
            lambda a: mw.Audit(a.run.model, a.data, "unused", training={"epochs": 1}),
            "training must be a mw.TrainingConfig",
        ),
        (
            lambda a: mw.Audit(a.run.model, a.data, "unused", held_out="x"),
            "held_out, if it is no dataset, must be a number, not 'x'",
        ),
        (lambda a: a.run_shadows(2, checkpoints=None), "a checkpoint is a name or a number"),
        (lambda a: a.decision_log.decide(3, "keep"), "names must be a list of ids, not .* int"),
        (lambda _: mw.models.TorchClassifier(print, layers="fc"), "layers must be several values"),
        (lambda _: mw.models.LoRA(layers=4), r"unknown layers 4; valid: .*top:8"),
        (lambda _: mw.models.LoRA(targets="q_proj"), "targets must be several values"),
        (lambda _: mw.models.LoRA(r="8"), "r must be a whole number from 1, not '8'"),
        (lambda _: mw.models.ConvNet("x"), "width, the number of channels, .*not 'x'"),
        (lambda _: mw.models.WideResNet("x"), "depth must be a whole number from 10"),
        (
            lambda _: mw.models.CausalLM.from_pretrained("nowhere", lora=True),
            r"lora must be a memowidgets.models.LoRA, such as LoRA\(layers='top:4'\)",
        ),
        (
            lambda _: mw.models.SequenceClassifier.from_pretrained("nowhere", lora={"r": 8}),
            "lora must be a memowidgets.models.LoRA",
        ),
        (lambda _: mw.data.make_mcqs(n="x"), "the number of patients, .*not 'x'"),
        (lambda _: mw.data.load_digits(canaries=None), "canaries, a share, .*not None"),
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
