"""What an audit cannot work on is refused before anything is written."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw

QUESTIONS = mw.data.make_mcqs(40, seed=0)
DIGITS = mw.data.load_digits().take(range(60))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"device": "nowhere"}, ValueError),
        ({"members": ["nobody"]}, ValueError),
        ({"held_out": 2.0}, ValueError),
        ({"held_out": QUESTIONS}, TypeError),
        ({"seed": 0.5}, ValueError),
        ({"training": {"epochs": 1}}, TypeError),
        ({"data": np.zeros((4, 8, 8))}, TypeError),
        ({"data": QUESTIONS}, TypeError),
    ],
)
def test_a_refused_audit_leaves_no_folder(tmp_path, changed, error):
    given = {"data": DIGITS} | changed
    with pytest.raises(error):
        mw.Audit(mw.models.ConvNet(4), path=tmp_path / "runs" / "run", **given)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("setting", [{"epochs": 1e12}, {"checkpoint_every": 1e-9}])
def test_a_training_without_end_is_refused_before_anything_is_written(setting, tmp_path):
    training = mw.TrainingConfig(**setting)
    with pytest.raises(ValueError, match=r"more than 10000 checkpoints.*checkpoint_every"):
        mw.Audit(mw.models.ConvNet(4), DIGITS, path=tmp_path / "run", training=training)
    assert not (tmp_path / "run").exists()
