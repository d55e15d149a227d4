"""A LoRA epoch of a 7 B-shaped model in bfloat16 on a GPU, against a hand-written loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import memowidgets as mw
from benchmarks.measure import Namespace, Row, left_out
from memowidgets.data import Dataset
from memowidgets.models.tokens import word_tokenizer
from memowidgets.progress import Progress
from memowidgets.training.learner import Learner, Recipe

WORK = "7 B-shaped Llama (random weights), LoRA on all layers, bfloat16"
SHAPE = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
HEADS, BATCH, STEPS, WARM_UP = 32, 16, 12, 3


def rows(_arguments: Namespace) -> list[Row]:
    if not torch.cuda.is_available():
        return [left_out(WORK, "needs a CUDA GPU")]
    data = mw.data.make_mcqs(BATCH * (STEPS + WARM_UP), seed=0)
    ours = _measured(_ours(SHAPE, HEADS, data, "cuda"), data)
    theirs = _measured(_by_hand(SHAPE, HEADS, data, "cuda"), data)
    return [
        Row(
            f"{WORK}: tokens a second, against a hand-written loop",
            f"{ours[0]:.0f}",
            f"{theirs[0]:.0f}",
            f"{ours[0] / theirs[0]:.2f}×",
        ),
        Row(
            f"{WORK}: peak memory of the GPU",
            f"{ours[1]:.1f} GB",
            f"{theirs[1]:.1f} GB",
            f"{ours[1] / theirs[1]:.2f}×",
        ),
    ]


def _ours(shape: dict[str, int], heads: int, data: Dataset, device: str) -> Callable[[], None]:
    tokenizer = word_tokenizer(data)
    model = mw.models.CausalLM.from_model(
        _random_llama(shape, heads, len(tokenizer)), tokenizer, lora=mw.models.LoRA()
    )
    config = mw.TrainingConfig(epochs=1, batch_size=BATCH, precision="bfloat16")
    settings = config.resolved(model.training_defaults)
    learner = Learner(Recipe(model, data, settings, device), np.arange(len(data)), 0)
    return lambda: learner.advance(learner.step + 1, Progress(), "")


def _by_hand(shape: dict[str, int], heads: int, data: Any, device: str) -> Callable[[], None]:
    """Create the loop that one would write with peft and PyTorch alone."""
    from peft import LoraConfig, get_peft_model

    tokenizer = word_tokenizer(data)
    tokenizer.padding_side = "left"
    raw = _random_llama(shape, heads, len(tokenizer)).to(device)
    config = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(raw, config).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    texts = [data.prompts()[i] + data.label_texts[data.labels[i]] for i in range(len(data))]
    turn = iter(range(0, len(texts), BATCH))

    def step() -> None:
        start = next(turn)
        batch = tokenizer(texts[start : start + BATCH], return_tensors="pt", padding=True)
        batch = {k: v.to(device) for k, v in batch.items() if k != "token_type_ids"}
        labels = batch["input_ids"].clone()
        labels[:, :-1] = -100
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss = model(**batch, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _measured(step: Callable[[], None], data: Any) -> tuple[float, float]:
    """Return tokens per second after the first steps, and the peak memory in GB."""
    tokenizer = word_tokenizer(data)
    tokens = np.mean([len(ids) for ids in tokenizer(list(data.prompts()))["input_ids"]]) + 1
    torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return STEPS * BATCH * tokens / seconds, torch.cuda.max_memory_allocated() / 1e9


def _random_llama(shape: dict[str, int], heads: int, words: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=words,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        pad_token_id=0,
        dtype=torch.bfloat16,
        **shape,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)
