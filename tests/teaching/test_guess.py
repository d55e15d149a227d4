"""The sixes of the guess: drawn by a rule, and what PSMI finds in them."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.commands.demo import guess_of
from memowidgets.teaching.guess import drawn_sixes


def test_sixes_are_three_memorised_and_three_harmless_samples_of_three_kinds():
    rng = np.random.default_rng(5)
    log_lira, kinds = rng.normal(0, 8, 400), rng.choice(list("abcd"), 400)
    sixes = drawn_sixes(log_lira, kinds, n=50)
    assert sixes.shape == (50, 6)
    first = 0
    for six in sixes:
        memorised = log_lira[six] >= 10
        assert memorised.sum() == 3
        assert (log_lira[six[~memorised]] < 1).all()
        assert len({*six.tolist()}) == 6
        assert len({*kinds[six[~memorised]]}) == 3
        first += memorised[0]
    assert 10 < first < 40  # the place does not tell
    np.testing.assert_array_equal(sixes, drawn_sixes(log_lira, kinds, n=50))


def test_what_psmi_finds_is_counted_over_all_sixes_of_the_recording():
    audit = mw.open_recorded("patients-smollm2")
    content, truth, psmi = guess_of(audit), audit.log_lira(), audit.score("psmi")
    ids = truth.dropna().index
    found = [
        (truth[psmi[ids[six]].nsmallest(3).index] >= 4).sum()
        for six in content["sixes"]
    ]
    assert content["found"] == pytest.approx(np.mean(found))
    assert len(found) == 100
    kinds = audit.evidence.member_data.attributes["kind"]
    rare = kinds[audit.evidence.member_data.ids.tolist().index(ids[0])] == "atypical"
    assert (content["kinds"][0] == "rare but right") == rare
    assert len(content["kinds"]) == len(ids)
