"""The lines that the second notebook gives its reader for their own model and file do work."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "02_llm_mcq.ipynb"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with questions.jsonl, and a tiny model where the hub's would be."""
    from transformers import LlamaConfig, LlamaForCausalLM

    import memowidgets as mw
    from memowidgets.models.scratch import word_tokenizer

    rng = np.random.default_rng(0)
    rows = [
        {"question": f"Is {a} more than {b}?", "choices": ["yes", "no"], "answer": int(a <= b)}
        for a, b in rng.integers(0, 9, (40, 2))
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(tmp_path / "cache"))
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tokenizer = word_tokenizer(mw.data.MCQDataset.from_jsonl("questions.jsonl"))
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=9,
        num_attention_heads=2, num_key_value_heads=2, pad_token_id=0,
    )  # fmt: skip
    folder = Path("HuggingFaceTB/SmolLM2-135M")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tmp_path


@pytest.mark.filterwarnings("ignore::UserWarning")  # a model this small learns nothing: it is told
def test_the_ten_lines_run(place):
    text = "\n".join(cell.source for cell in nbformat.read(NOTEBOOK, 4).cells)
    lines = text.split("```python\n")[1].split("```")[0]
    assert len(lines.strip().splitlines()) == 10
    names: dict[str, object] = {}
    exec(compile(lines, str(NOTEBOOK), "exec"), names)
    assert len(names["audit"].checkpoints) > 2
    assert (place / "flagged.csv").read_text().startswith("id,score")
