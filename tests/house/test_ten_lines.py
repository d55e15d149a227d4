"""The lines that a notebook gives its readers for their own model and questions do work."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import nbformat
import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "02_language_model.ipynb"


@pytest.fixture(autouse=True)
def closed():
    """The lines end with a dashboard, which is the reader's to close."""
    yield
    from ipywidgets import Widget

    Widget.close_all()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with questions.jsonl, and a tiny model where the hub's would be."""
    import memowidgets as mw
    from memowidgets.models.tokens import word_tokenizer
    from tests.models.small import llama_folder

    rng = np.random.default_rng(0)
    rows = [
        {"question": f"Is {a} more than {b}?", "choices": ["yes", "no"], "answer": int(a <= b)}
        for a, b in rng.integers(0, 9, (40, 2))
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(tmp_path / "cache"))
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tokenizer = word_tokenizer(mw.data.MCQDataset.from_jsonl("questions.jsonl"))
    llama_folder(Path("HuggingFaceTB/SmolLM2-135M"), tokenizer, layers=9)
    return tmp_path


@pytest.mark.filterwarnings("ignore::UserWarning")  # a model this small learns nothing: it is told
def test_the_ten_lines_run(place):
    text = "\n".join(cell.source for cell in nbformat.read(NOTEBOOK, 4).cells)
    lines = text.split("```python\n")[1].split("```")[0]
    assert len(lines.strip().splitlines()) <= 10
    Path("lines.py").write_text(lines)
    names = runpy.run_path("lines.py")
    assert len(names["audit"].checkpoints) > 2
    assert (place / "flagged.csv").read_text().startswith("id,score")
