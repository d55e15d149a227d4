"""A Llama so small that a test makes one."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase


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
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    tokenizer.save_pretrained(folder)
    return folder
