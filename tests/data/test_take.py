"""A part of any dataset, by positions or by a mask."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import memowidgets as mw

TEXTS = mw.data.TextDataset.from_texts(list("abcdef"), [0, 1, 0, 1, 0, 1])
TABLE = mw.data.TableDataset.from_frame(pd.DataFrame({"a": range(6), "y": [0, 1] * 3}), label="y")
ALL = {
    "texts": TEXTS,
    "questions": mw.data.make_mcqs(12).take(range(6)),
    "images": mw.data.load_digits().take(range(6)),
    "table": TABLE,
    "withheld": mw.Audit.from_arrays([0, 1] * 3, np.arange(12.0).reshape(6, 2)).data,
}


@pytest.fixture(params=ALL)
def data(request):
    return ALL[request.param]


@pytest.mark.parametrize(
    "given",
    [
        [0, 2, 4],
        (0, -4, -2),
        np.array([0, 2, 4], np.uint8),
        torch.tensor([0, 2, 4]),
        [True, False] * 3,
        pd.Series([True, False] * 3),
    ],
)
def test_positions_and_masks_give_the_same_samples(data, given):
    part = data.take(given)
    assert part.ids.tolist() == data.ids[[0, 2, 4]].tolist()
    assert part.labels.tolist() == data.labels[[0, 2, 4]].tolist()
    assert part.content_hashes() == [data.content_hashes()[i] for i in (0, 2, 4)]
    assert len(data.take([])) == 0


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([0.0, 1.0], TypeError, "positions or a mask"),
        (3, TypeError, "positions or a mask"),
        (["a"], TypeError, "positions or a mask"),
        ([6], IndexError, "no sample at 6: the data have 6"),
        ([-7], IndexError, "no sample at -7"),
        ([True], ValueError, r"over 6 samples has shape \(6,\), not \(1,\)"),
    ],
)
def test_what_is_neither_is_refused(data, given, error, words):
    with pytest.raises(error, match=words):
        data.take(given)


def test_a_position_gives_one_sample(data):
    assert repr(data[-1]) == repr(data[5]) == repr(data[np.int64(5)])
    assert len(list(data)) == 6
    for outside in (6, -7):
        with pytest.raises(IndexError, match=f"no sample at {outside}: the data have 6"):
            data[outside]


@pytest.mark.parametrize("given", [slice(3), [0, 1], 1.0, "a", None, True, np.arange(3)])
def test_several_positions_in_brackets_are_refused(data, given):
    with pytest.raises(TypeError, match=r"data\.take\(range\(3\)\)"):
        data[given]
