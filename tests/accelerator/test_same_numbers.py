"""An audit on an accelerator has the numbers that it has on the CPU, for every class of model."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.audit.numbers.scores import metrics_of
from memowidgets.registry import own_names
from tests.accelerator.recipes import RECIPES, audit
from tests.training.small import Inline

MOST = 1e-6
# PSMI rounds its products in another order on a device, and classes of a few samples enlarge that.
# All prompts end in the same token, so a language model's states hardly differ after so short a
# training, and scores of states enlarge how these differences are rounded, too.
OF_STATES = {"CausalLM": 3e-4}
MOST_OF_STATES = 1e-5
# all, more than the rest
SLOW = (
    "WideResNet",
    "LoRA",
    "SequenceClassifier",
    "ImageClassifier",
)
# the others have one shadow model
WITH_TRUTH = (
    "ConvNet",
    "TorchClassifier",
    "CausalLM",
)


@pytest.fixture(autouse=True, scope="module")
def _one_way_to_compute(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMOWIDGETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        # The CPU's attention is one operation of its own, which rounds otherwise.
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
        yield


def attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_
):
    """Attention in the steps in which transformers' plain version takes it."""
    weights = query @ key.transpose(2, 3) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        attn_mask = torch.ones(weights.shape[-2:], device=weights.device).tril().bool()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        weights = weights.masked_fill(~attn_mask, torch.finfo(weights.dtype).min)
    elif attn_mask is not None:
        weights = weights + attn_mask
    weights = weights.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.nn.functional.dropout(weights, dropout_p) @ value


def whole(name, folder, device, **changes):
    """An audit that was interrupted, resumed after being opened again, and has its truth."""
    made = audit(name, folder / "run", device, **changes)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMOWIDGETS_CACHE", str(folder / "cache"))
        warnings.simplefilter("ignore", UserWarning)  # it has hardly learned
        made.train(stop_at_drop=1e-9)
        again = audit(name, folder / "run", device, **changes)
        again.train()
        again.run_shadows(4 if name in WITH_TRUTH else 1, Inline(), keep_forward=True)
        if name in WITH_TRUTH:
            again.run_references(1, Inline())
    return again


def numbers(made):
    """Everything that an audit computes, as arrays by name."""
    found = {"checkpoints": made.checkpoints.select_dtypes("number").to_numpy(float)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for metric in metrics_of(made.evidence):
            if metric.startswith("reference+"):
                continue  # ranks of these scores, and of one checkpoint here
            asked_at = "prediction" if metric == "reference" else "final"
            found[metric] = made.score(metric, checkpoint=asked_at)
        found["layer 1"] = made.score("psmi", layer=made.layers[0], checkpoint="final")
        if made.evidence.has_ground_truth:
            found["log_lira"] = made.log_lira()
        found["as_target"] = made.as_target(0).score("loss")
        for i in range(made.n_shadows):
            gaps = made.run.shadows.file(i)
            found |= {f"{key} of {i}": np.array(gaps[key]) for key in gaps}
    return found


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name in RECIPES
    ],
)
def both(request, tmp_path_factory, device):
    folders = [tmp_path_factory.mktemp(where) for where in ("cpu", "device")]
    return [
        whole(request.param, *of) for of in zip(folders, ("cpu", device), strict=True)
    ]


def test_training_scores_and_truth_are_those_of_the_cpu(both, request):
    here, there = map(numbers, both)
    assert [made.run.device for made in both] == ["cpu", "pretend"]
    assert here.keys() == there.keys()
    asked = {name for name in own_names() if not name.startswith("reference+")}
    assert asked <= here.keys() or "log_lira" not in here
    of_states = OF_STATES.get(request.node.callspec.params["both"], MOST_OF_STATES)
    for name, expected in here.items():
        most = of_states if name.startswith(("psmi", "layer", "mahalanobis")) else MOST
        if name == "psmi+csl":  # a rank
            most = 1 / len(expected)
        np.testing.assert_allclose(
            there[name], expected, atol=most, rtol=most, err_msg=name
        )


def test_a_run_from_the_cpu_goes_on_on_the_device(both, device):
    here, there = both
    moved = mw.Audit.open(
        here.path, data=here.data, model=here.run.model, device=device
    )
    record = moved.evidence.names.final()
    rows = moved.evidence.member_rows
    expected = there.run.gaps_of(record, rows)
    np.testing.assert_allclose(moved.run.gaps_of(record, rows), expected, atol=1e-5)
