"""What an audit shows: its names, the order of its arguments, and sentences for typical slips."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.store import StoreError


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # names
        (lambda a: a.score("psmy"), "valid: psmi, loss, logit_gap, mahalanobis, csl, .*baseline"),
        (lambda a: a.score("psmi", layer=[1]), r"unknown layer \[1\]; valid: last"),
        (lambda a: a.score("psmi", checkpoint=2.5), "prediction, final, rho, an epoch, or one"),
        (lambda a: a.score("loss", checkpoint=None), "unknown checkpoint None; valid: prediction"),
        (lambda a: a.score("loss", checkpoint=True), "unknown checkpoint True; .*epoch-2"),
        (lambda a: a.run_shadows(1, checkpoints=["end"]), "unknown checkpoint 'end'"),
        (lambda a: a.run_shadows(2, checkpoints=()), "checkpoints is empty"),
        (lambda a: a.run_shadows(21, keep_forward="no such"), "unknown layer"),
        (lambda a: a.run_shadows(21, executor="dask"), "get_executor"),
        (lambda a: a.compare(3), "metrics must be several values.*not 3"),
        (lambda a: a.log_lira(variance=["shrunk"]), "unknown variance .*shrunk.*'global'"),
        (lambda a: a.evaluate("psmi", truth="guess"), "valid: log_lira, canaries, or a mask"),
        (lambda a: a.evaluate("psmi", truth=[1, 0]), "boolean mask over the"),
        (lambda a: a.evaluate_pooled("loss", targets="some"), "targets must be several values"),
        (lambda _: mw.Audit.from_arrays([0, 1, 1], np.eye(3)).flagged(), "two.*: 2 of 3 members"),
        # thresholds and other numbers
        (lambda a: a.flagged("psmi", tau="0"), "tau must be a number or 'class', not '0'"),
        (lambda a: a.flagged("psmi", tau="youden"), r"threshold\('youden'\)"),
        (lambda a: a.flagged("psmi", tau=0.0, share=0.1), "not both"),
        (lambda a: a.evaluate("psmi").at("0"), "tau must be a number, not '0'"),
        (lambda a: a.evaluate("psmi", eta="4"), "eta must be a number.*not '4'"),
        (lambda a: a.figures(etas=4.0), "etas must be several values.*not 4.0"),
        (lambda a: a.figures(etas=["x"]), "an eta must be a finite number, not 'x'"),
        (lambda a: a.run_shadows(0), "from 1, not 0"),
        (lambda a: a.run_references(0), "number of reference models .*not 0"),
        (lambda a: a.run_shadows(21.5), "not 21.5"),
        (lambda a: a.run_shadows(21, processes=-1), "processes must be a whole number from 1"),
        (lambda a: a.shadow_curve("loss", repeats=0), "repeats must be a whole number from 1"),
        # what does not go together
        (lambda a: a.score("loss", return_std=True), "loss has no standard error; PSMI has"),
        (lambda a: a.evaluate_pooled("loss", progress="x"), "progress must be a Progress, not str"),
        # audits that are opened
        (lambda a: mw.Audit.open(a.path, data=["secret"]), "dataset of mw.data, not list"),
        (lambda a: mw.Audit.open(a.path, model=3), "model of mw.models, not int"),
        (lambda a: mw.Audit.open(a.path, held_out="0.1"), "dataset of mw.data, not str"),
        # models, settings and data
        (lambda _: mw.TrainingConfig(milestones=0.5), "milestones must be several values"),
        (lambda _: mw.models.TorchClassifier(print, layers="fc"), "layers must be several values"),
        (lambda _: mw.models.LoRA(layers=4), r"unknown layers 4; valid: .*top:8"),
    ],
)  # fmt: skip
def test_a_slip_gets_a_sentence(finished, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(finished)


@pytest.mark.parametrize(
    "work",
    ["train", "run_shadows", "run_references", "use_shadows", "fork", "recorder"],
)
def test_a_shadow_model_says_where_to_call_instead(finished, work):
    given = {"run_shadows": (8,), "use_shadows": ("halves",), "fork": ("elsewhere",)}
    with pytest.raises(StoreError, match=r"shadow 0 .*call this on the audit itself"):
        getattr(finished.as_target(0), work)(*given.get(work, ()))
