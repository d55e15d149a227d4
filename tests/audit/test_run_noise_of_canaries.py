"""Label noise leaves canaries alone; runs from before that keep the labels they were trained on."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.training.design import draw_noise

NOISE = 0.3


@pytest.fixture
def data():
    return mw.data.load_digits().take(range(200)).with_canaries(40, seed=0)


def audit_of(data, path):
    training = mw.TrainingConfig(epochs=1, label_noise=NOISE)
    return mw.Audit(mw.models.ConvNet(4), data, path=path, training=training)


def test_canaries_keep_their_label(data, tmp_path):
    audit = audit_of(data, tmp_path / "run")
    flipped = audit.data.labels != data.labels
    assert not flipped[data.canaries].any()
    assert flipped.sum() == round(NOISE * len(audit.run.design.pool))
    assert (audit.kept().labels == data.labels).all()
    again = mw.Audit.open(tmp_path / "run", data=data)
    np.testing.assert_array_equal(again.data.labels, audit.data.labels)


def test_a_share_that_leaves_too_few_others_takes_all_of_them(data):
    noise = draw_noise(data, np.arange(200), 0.99, 0)
    assert len(noise.positions) == 160
