"""What an audit cannot work on is refused before anything is written."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw

QUESTIONS = mw.data.make_mcqs(40, seed=0)
DIGITS = mw.data.load_digits().take(range(60))


ENDLESS = r"more than 10000 checkpoints.*checkpoint_every"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"device": "nowhere"}, ValueError, "unknown device 'nowhere'"),
        ({"members": ["nobody"]}, ValueError, "the first is 'nobody'"),
        ({"held_out": 2.0}, ValueError, "share from 0 to below 1"),
        (
            {"held_out": "x"},
            TypeError,
            "held_out, if it is no dataset, must be a number",
        ),
        ({"held_out": QUESTIONS}, TypeError, "MCQDataset"),
        ({"seed": 0.5}, ValueError, "seed must be a whole number from 0, not 0.5"),
        ({"seed": -1}, ValueError, "seed must be a whole number from 0, not -1"),
        (
            {"training": {"epochs": 1}},
            TypeError,
            "training must be a mw.TrainingConfig",
        ),
        ({"training": mw.TrainingConfig(epochs=1e12)}, ValueError, ENDLESS),
        ({"training": mw.TrainingConfig(checkpoint_every=1e-9)}, ValueError, ENDLESS),
        ({"data": np.zeros((4, 8, 8))}, TypeError, "ndarray"),
        ({"data": QUESTIONS}, TypeError, "MCQDataset"),
    ],
)
def test_a_refused_audit_leaves_no_folder(tmp_path, changed, error, message):
    given = {"data": DIGITS} | changed
    with pytest.raises(error, match=message):
        mw.Audit(mw.models.ConvNet(4), path=tmp_path / "runs" / "run", **given)
    assert not (tmp_path / "runs").exists()
