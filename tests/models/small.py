"""A Llama so small that a test makes one, and what tests of several kinds of models compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from memowidgets.models.base import restore_modes
from memowidgets.training.checkpoint import forward


def llama_folder(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    width: int = 32,
    layers: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    max_shard_size: str = "1GB",
) -> Path:
    """Write a Llama and its tokenizer as `save_pretrained` leaves them."""
    size = {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
    }
    size |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), pad_token_id=0, **size)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return saved(folder, tokenizer)


def saved(folder: Path, *parts) -> Path:
    """Write a model, and what makes its inputs, as `save_pretrained` leaves them."""
    for part in parts:
        part.save_pretrained(folder)
    return folder


def one_pass(model, module, data, positions, precision="float32"):
    """Return what a module gives for samples, with its layers."""
    return forward(
        model, module, data, positions, torch.device("cpu"), precision, capture=True
    )


def assert_kept_is_near(cached, plain, data, atol):
    """Compare a pass from the kept output of frozen blocks with one that computes it anew."""
    every = np.arange(len(data))
    kept, anew = (
        one_pass(one, one.build(data), data, every) for one in (cached, plain)
    )
    assert list(kept.layers) == ["1", "2", "3"]
    for name in kept.layers:
        scale = np.abs(anew.layers[name]).max()
        np.testing.assert_allclose(
            kept.layers[name], anew.layers[name], atol=0.02 * scale
        )
    np.testing.assert_allclose(kept.losses, anew.losses, atol=atol)
    assert (anew.losses != kept.losses).any()  # the cache was used: bfloat16 rounds


def assert_left_as_it_is(model, raw, data):
    """A pass reads a module in training as one that the model built, and changes nothing."""
    before = {name: value.clone() for name, value in raw.state_dict().items()}
    state = torch.get_rng_state()
    with restore_modes(raw):
        seen = one_pass(model, raw, data, np.arange(4))
    own = one_pass(model, model.build(data), data, np.arange(4))
    for name, values in own.layers.items():
        np.testing.assert_allclose(seen.layers[name], values, atol=1e-5)
    assert all(part.training for part in raw.modules())
    assert all(p.grad is None for p in raw.parameters())
    torch.testing.assert_close(dict(raw.state_dict()), before)
    assert torch.equal(torch.get_rng_state(), state)
