"""The kept output of frozen blocks: equal to rounding, whole or not there, closed to others."""

from __future__ import annotations

import stat
import time
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.models import prefix
from memowidgets.models.tokens import word_tokenizer
from tests.models.small import assert_kept_is_near
from tests.models.test_causal_lm import FAMILIES, questions, tiny
from tests.training.small import Inline

LORA = mw.models.LoRA(r=2, layers="top:2")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def data():
    return questions()


@pytest.fixture(scope="module")
def tokenizer(data):
    return word_tokenizer(data)


def both_ways(family, tokenizer):
    raw = tiny(family, len(tokenizer))
    return [
        mw.models.CausalLM.from_model(raw, tokenizer, lora=LORA, cache=cache)
        for cache in (True, False)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_and_computed_anew_are_equal_to_rounding(family, data, tokenizer):
    assert_kept_is_near(*both_ways(family, tokenizer), data, atol=0.05)


def test_adapters_have_the_names_they_have_without_the_cache(data, tokenizer):
    cached, plain = both_ways("llama", tokenizer)
    names = [set(m.weights(m.build(data))) for m in (cached, plain)]
    assert names[0] == names[1]


def test_the_target_and_shadows_share_one_file_and_it_can_be_cleared(
    data, tokenizer, tmp_path, folder
):
    cached, _ = both_ways("llama", tokenizer)
    training = mw.TrainingConfig(
        epochs=1, checkpoint_every=1, lr=1e-2, precision="float32"
    )
    audit = mw.Audit(
        cached, data, path=tmp_path / "run", training=training, held_out=None
    )
    audit.train()
    audit.run_shadows(2, Inline())
    assert len(list(folder.rglob("*.bf16"))) == 1
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(file.parent.stat().st_mode) for file in files} == {0o700}
    assert not list((tmp_path / "run").rglob("*bf16*"))
    prefix.clear_cache()
    assert not [p for p in folder.rglob("*") if p.is_file()]
    audit.score("psmi", checkpoint="final")  # made again


def test_a_broken_write_leaves_nothing_behind(data, tokenizer, folder, monkeypatch):
    cached, _ = both_ways("llama", tokenizer)

    def fail(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(prefix.Prefix, "_compute", fail)
    with pytest.raises(KeyboardInterrupt):
        cached.feeder(data, torch.device("cpu"))
    assert {p.name for p in folder.rglob("*") if p.is_file()} <= {".lock"}


def test_other_weights_or_prompts_never_share_a_file(data, tokenizer, folder):
    cached, _ = both_ways("llama", tokenizer)
    cached.feeder(data, torch.device("cpu"))
    raw = tiny("llama", len(tokenizer))
    with torch.no_grad():
        raw.model.embed_tokens.weight[5] += 1
    changed = mw.models.CausalLM.from_model(raw, tokenizer, lora=LORA)
    changed.feeder(data, torch.device("cpu"))
    cached.feeder(questions(23), torch.device("cpu"))
    assert len(list(folder.rglob("*.bf16"))) == 3


def test_a_model_that_looks_back_past_the_cut_is_refused(data, tokenizer, folder):
    raw = tiny("llama", len(tokenizer))
    blocks = raw.model.layers
    seen = []
    raw.model.embed_tokens.register_forward_pre_hook(lambda _m, _i: seen.clear())
    blocks[0].register_forward_hook(lambda _m, _i, out: seen.append(out))
    blocks[2].register_forward_hook(
        lambda _m, _i, out: out + 3 * seen.pop() if seen else out
    )
    model = mw.models.CausalLM.from_model(
        raw, tokenizer, lora=mw.models.LoRA(r=2, layers="top:1")
    )
    with pytest.raises(ValueError, match=r"gives other logits.*cache=False"):
        model.feeder(data, torch.device("cpu"))
    assert not list(folder.rglob("*.bf16"))


def test_one_process_computes_the_output_and_the_others_wait_for_it(
    data, tokenizer, monkeypatch
):
    cached, _ = both_ways("llama", tokenizer)
    compute, begun = prefix.Prefix._compute, []

    def slowly(self, *args):
        begun.append(self)
        time.sleep(0.5)
        compute(self, *args)

    monkeypatch.setattr(prefix.Prefix, "_compute", slowly)
    others = [cloudpickle.loads(cloudpickle.dumps(cached)) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        feeders = [
            threads.submit(model.feeder, data, torch.device("cpu")) for model in others
        ]
        one, other = (feeder.result()(np.arange(4))["states"] for feeder in feeders)
    assert len(begun) == 1
    assert torch.equal(one, other)


class InATuple(torch.nn.Module):
    """A block that returns a tuple, as many do in the first release of transformers 5."""

    def __init__(self, block, *others):
        super().__init__()
        self.block, self.others = block, others

    def forward(self, *inputs, **named):
        return (self.block(*inputs, **named), *self.others)


@pytest.mark.parametrize("others", [(), (None,), None])
def test_a_block_that_is_left_out_returns_what_the_block_does(others):
    state = torch.ones(1, 2, 3)
    block = torch.nn.Identity()
    if others is not None:
        block = InATuple(block, *others)
    model = LlamaOf([block, torch.nn.Identity()])
    _, n_values = prefix.run_up_to(model, 1, {"x": state}, lambda m, of: m(**of))
    skipped = prefix.without_prefix(model, 1, n_values)
    found, expected = skipped(state), block(state)
    assert type(found) is type(expected)
    assert len(found) == len(expected)
    assert found[0].equal(expected[0])


class LlamaOf(torch.nn.Module):
    """Blocks in the place where a model of transformers has them."""

    def __init__(self, blocks):
        super().__init__()
        self.layers = torch.nn.ModuleList(blocks)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
