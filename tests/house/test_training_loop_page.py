"""The page on training loops: its loops, in a script that each could be from.

tests/adoption has Lightning and the Trainer.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import memowidgets as mw
from memowidgets.data import TextDataset
from tests.house.test_docs import ROOT, blocks

LOOP, WITH_FORWARD, *_OTHERS = blocks(ROOT / "docs/your_training_loop.md", "python")
N = 60


def pairs():
    torch.manual_seed(0)
    labels = torch.arange(N) % 2
    return TensorDataset(torch.randn(N, 4) + 3 * labels[:, None], labels)


def net():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def texts():
    words = [["good", "fine"], ["bad", "poor"]]
    told = [f"a {words[i % 2][i % 3 % 2]} day {'indeed ' * (i % 4)}" for i in range(N)]
    return TextDataset.from_texts(told, np.arange(N) % 2, ["LABEL_0", "LABEL_1"])


def run(text, **names):
    exec(text, names)
    return names


@pytest.fixture(autouse=True)
def _folder_and_closed_widgets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened, dashboard = [], mw.Audit.dashboard
    monkeypatch.setattr(mw.Audit, "dashboard", lambda self: opened.append(dashboard(self)))
    yield
    for widget in opened:
        widget.close()


@pytest.mark.filterwarnings("ignore:PSMI's τ = 0 may be strict")  # of 60 samples
def test_the_loop_stops_and_shows_what_is_flagged():
    data, module = pairs(), net()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
    loader = DataLoader(data, batch_size=6, shuffle=True)
    names = run(LOOP, train_set=data, loader=loader, module=module, optimizer=optimizer,
                cross_entropy=cross_entropy)  # fmt: skip
    assert names["watch"].reached
    assert names["watch"].audit.prediction.record.step == names["watch"].steps


@pytest.mark.slow
def test_the_loop_with_a_forward_watches_texts():
    from memowidgets.models.tokens import tokenizer_of_words

    data = texts()
    words = tokenizer_of_words(data.texts)
    module = mw.models.SequenceClassifier.from_scratch(data, layers=1, width=16).build(data)

    def tokenizer(batch, **options):
        return words(batch, padding=True, return_token_type_ids=False, **options)

    names = run(WITH_FORWARD, mw=mw, texts=data, loader=range(6), module=module,
                tokenizer=tokenizer)  # fmt: skip
    assert names["watch"].audit.layers[-1] == "score.input"
