"""PSMI on SmolLM2's states: the error of few directions.

Hidden states of SmolLM2 on MMLU questions are made by plain transformers, and cached as .npy.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import psmi as published
from numpy.typing import NDArray

from benchmarks.measure import Namespace, Row, left_out, rms
from memowidgets.metrics import PSMI

LAYERS = (10, 30)
QUESTIONS = 2000
LONGEST = 48  # tokens, so that two cores take minutes


def _loaded(
    folder: Path, model: Path, questions: Path
) -> tuple[dict[int, NDArray], NDArray]:
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
    # prompts of equal length need no padding
    chosen = sorted(chosen, key=lambda i: len(tokens[i]))
    kept: dict[int, list[NDArray]] = {layer: [] for layer in LAYERS}
    with torch.inference_mode():
        for batch in _of_equal_length(chosen, tokens):
            ids = torch.tensor([tokens[i] for i in batch])
            hidden = model.model(
                ids, output_hidden_states=True, use_cache=False
            ).hidden_states
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


SEEDS = range(1, 9)
ERROR = "RMS error on SmolLM2's states, 256 directions against 2000 plain ones"


def rows(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None or arguments.mmlu is None:
        return [left_out(ERROR, "needs --smollm2 FOLDER and --mmlu FILE")]
    folder = arguments.states or Path(tempfile.gettempdir()) / "memowidgets-states"
    representations, y = _loaded(folder, arguments.smollm2, arguments.mmlu)
    return [
        row for layer, X in representations.items() for row in _one_layer(layer, X, y)
    ]


def _one_layer(layer: int, X: np.ndarray, y: np.ndarray) -> list[Row]:
    long = [
        PSMI(8192, random_state=s).fit(X, y).score_samples(X, y)
        for s in range(100, 108)
    ]
    expected = np.mean(long, axis=0)
    runs = [
        PSMI(256, random_state=s).fit(X, y).score_samples(X, y, return_std=True)
        for s in SEEDS
    ]
    plain = [
        PSMI(method="plain", random_state=s).fit(X, y).score_samples(X, y)
        for s in SEEDS
    ]
    np.random.seed(0)  # noqa: NPY002 - the published package draws from it
    peer = published.PSMI(n_estimators=2000).fit_transform(X, y)[0]
    error = rms([scores - expected for scores, _ in runs])
    plain_error = rms([scores - expected for scores in plain])
    covered = np.mean([np.abs(scores - expected) < 1.96 * e for scores, e in runs])
    shape = (
        f"layer {layer}, n = {len(X)}, d = {X.shape[1]}, {len(np.unique(y))} classes"
    )
    return [
        Row(
            f"{ERROR}; {shape}",
            f"{1e3 * error:.2f}e-3",
            f"{1e3 * plain_error:.2f}e-3 (`psmi`: {1e3 * rms(peer - expected):.2f}e-3)",
            f"{error / plain_error:.2f}×",
            "≤ 1.2× (aim 1.0×)",
        ),
        Row(
            f"share of 95 % intervals that cover; {shape}",
            f"{covered:.3f}",
            "",
            "",
            ".91 to .98",
        ),
    ]
