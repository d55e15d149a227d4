"""Hidden states of SmolLM2 on MMLU questions, computed with plain transformers, cached as .npy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LAYERS = (10, 30)
QUESTIONS = 2000
LONGEST = 48  # tokens, so that two cores take minutes


def load(folder: Path, model: Path, questions: Path) -> tuple[dict[int, NDArray], NDArray]:
    """Return states (n, 576) at `LAYERS` and each question's field as its label, from a cache."""
    names = {layer: folder / f"smollm2-layer{layer}.npy" for layer in LAYERS}
    labels = folder / "smollm2-labels.npy"
    if not labels.exists():
        folder.mkdir(parents=True, exist_ok=True)
        states, fields = _forward(model, questions)
        for layer, name in names.items():
            np.save(name, states[layer])
        np.save(labels, fields)
    return {layer: np.load(name) for layer, name in names.items()}, np.load(labels)


def _forward(model_path: Path, questions: Path) -> tuple[dict[int, NDArray], NDArray]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_path)
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    rows = [json.loads(line) for line in questions.read_text().split("\n") if line]
    prompts = [_prompt(row["question"]) for row in rows]
    tokens = tokenizer(prompts)["input_ids"]
    short = [i for i, ids in enumerate(tokens) if len(ids) <= LONGEST]
    chosen = np.random.default_rng(0).permutation(short)[:QUESTIONS]
    chosen = sorted(chosen, key=lambda i: len(tokens[i]))  # prompts of equal length need no padding
    kept: dict[int, list[NDArray]] = {layer: [] for layer in LAYERS}
    with torch.inference_mode():
        for batch in _of_equal_length(chosen, tokens):
            ids = torch.tensor([tokens[i] for i in batch])
            hidden = model.model(ids, output_hidden_states=True, use_cache=False).hidden_states
            for layer in LAYERS:
                kept[layer].append(hidden[layer][:, -1].numpy())
    states = {layer: np.concatenate(parts) for layer, parts in kept.items()}
    return states, np.array([rows[i]["field"] for i in chosen])


def _prompt(question: str) -> str:
    return f"{question}\nA. STEM\nB. humanities\nC. social sciences\nD. other\nAnswer:"


def _of_equal_length(chosen: list[int], tokens: list[list[int]]) -> list[list[int]]:
    batches: list[list[int]] = []
    for i in chosen:
        full = not batches or len(batches[-1]) == 32
        if full or len(tokens[batches[-1][0]]) != len(tokens[i]):
            batches.append([])
        batches[-1].append(i)
    return batches
