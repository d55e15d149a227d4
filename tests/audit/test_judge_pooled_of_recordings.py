"""Pooled evaluations of the recorded CIFAR audit: the errors that METHOD.md measured."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.evaluation import roc
from memowidgets.progress import Progress


@pytest.fixture(scope="module")
def audit():
    recorded = mw.open_recorded("cifar10-wrn")
    recorded.use_shadows("canaries")
    return recorded


def deviation(found):
    return np.nanstd(found.groups.areas(found.scores, found.memorized), ddof=1)


def test_models_add_to_the_error_of_samples(audit):
    found = audit.evaluate_pooled("loss", with_canaries=False, progress=Progress())
    by_sample = roc(found.scores, found.memorized, groups=found.groups.of_row)
    assert deviation(by_sample) == pytest.approx(0.0159, rel=0.06)  # of 1000 draws: ± 2 % each
    assert deviation(found) == pytest.approx(0.0218, rel=0.06)


def test_one_target_is_by_sample_alone_and_no_positive_is_said(audit):
    one = audit.evaluate_pooled("loss", targets=[3], eta=2.0, progress=Progress())
    assert any("one model" in note for note in one.warnings)
    with pytest.raises(ValueError, match=r"none of the \d+ pairs .* is memorised at η = 1e\+09: "):
        audit.evaluate_pooled("loss", eta=1e9, targets=[0, 1], progress=Progress())
