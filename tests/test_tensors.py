"""Tensors of torch, with a gradient or in bfloat16, wherever arrays are taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets import evaluation, memorization, metrics
from memowidgets.widgets import ThresholdExplorer

N = 40


def drawn(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).bfloat16().float()


SCORES = drawn(N)
TRUTH = torch.arange(N) % 4 == 0
LABELS = torch.arange(N) % 3
LOGITS = drawn(N, 3)
GAPS, INSIDE = drawn(16, N), torch.arange(16)[:, None] % 2 == torch.arange(N) % 2


def as_array(tensor):
    return tensor.numpy()


def learning(tensor):
    return tensor.clone().requires_grad_()


def counted(explorer):
    explorer.close()
    return list(explorer.counts.values())


@pytest.mark.parametrize("as_tensor", [torch.clone, learning, torch.Tensor.bfloat16])
@pytest.mark.parametrize(
    "ask",
    [
        lambda of: evaluation.roc(of(SCORES), TRUTH).auc,
        lambda of: evaluation.roc(of(SCORES), TRUTH, groups=LABELS).auc,
        lambda of: memorization.log_lira(of(GAPS), INSIDE, of(SCORES), "shrunk"),
        lambda of: memorization.rmia(of(GAPS), INSIDE, of(SCORES)),
        lambda of: memorization.counterfactual(of(GAPS), INSIDE),
        lambda of: memorization.probability_memorized(of(SCORES), of(SCORES.abs())),
        lambda of: metrics.loss(of(LOGITS), LABELS),
        lambda of: metrics.logit_gap(of(LOGITS), LABELS),
        lambda of: metrics.csl(of(GAPS.abs())),
        lambda of: metrics.mean_rank([of(SCORES), of(GAPS[0])]),
        lambda of: mw.Audit.from_arrays(
            LABELS, logits=of(LOGITS), log_lira=of(SCORES)
        ).log_lira(),
        lambda of: counted(ThresholdExplorer(of(SCORES), log_lira=5 * of(GAPS[0]))),
    ],
)
def test_a_tensor_is_the_array_of_its_values(ask, as_tensor):
    np.testing.assert_allclose(ask(as_tensor), ask(as_array), rtol=1e-6)
