"""An audit of a language model on multiple-choice questions, from training to open."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from tests.training.small import Inline


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    data = mw.data.make_mcqs(n=300, seed=0)
    model = mw.models.CausalLM.from_scratch(data, layers=1, width=32)
    path = tmp_path_factory.mktemp("questions") / "run"
    made = mw.Audit(model, data, path=path, training=mw.TrainingConfig(epochs=8, lr=1e-2))
    made.train()
    made.run_shadows(2, Inline())
    return made


def test_all_scores_come_from_one_pass(audit):
    for metric in ("psmi", "loss", "logit_gap", "mahalanobis"):
        assert np.isfinite(audit.score(metric, checkpoint="final")).all()
    assert audit.layers == ("1",)
    assert audit.checkpoints["train_accuracy"].iloc[-1] > 0.5
    probabilities = audit.probabilities("final")
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_a_run_opens_with_data_and_model_made_again(audit):
    again = mw.Audit.open(audit.path)
    assert isinstance(again.data, mw.data.MCQDataset)
    assert again.score("psmi", checkpoint=5).equals(audit.score("psmi", checkpoint=5))
    again.run_shadows(3, Inline())
    assert again.n_shadows == 3


def test_other_prompts_are_another_run(audit):
    data = audit.data.with_template("{question} {options} Ward:")
    with pytest.raises(ValueError, match="other data prompts"):
        mw.Audit.open(audit.path, data=data)


def test_no_question_is_in_the_run_directory(audit):
    everything = b"".join(p.read_bytes() for p in audit.run.run.path.rglob("*") if p.is_file())
    for question in audit.data.questions[:50]:
        assert str(question).encode() not in everything
