"""The lines that notebooks give their readers for their own models and files do work."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import nbformat
import numpy as np
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(autouse=True)
def closed():
    """The lines end with a dashboard, which is the reader's to close."""
    yield
    from ipywidgets import Widget

    Widget.close_all()


def run_lines_of(notebook, most):
    """Run the lines that a notebook shows, and give what they leave."""
    text = "\n".join(cell.source for cell in nbformat.read(NOTEBOOKS / notebook, 4).cells)
    lines = text.split("```python\n")[1].split("```")[0]
    assert len(lines.strip().splitlines()) <= most
    Path("lines.py").write_text(lines)
    return runpy.run_path("lines.py")


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
    names = run_lines_of("02_llm_mcq.ipynb", 10)
    assert len(names["audit"].checkpoints) > 2
    assert (place / "flagged.csv").read_text().startswith("id,score")


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A folder of class folders with pictures, of two sizes and kinds."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for name, tint in (("dusk", 60), ("noon", 190)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(24):
            size = (64, 64, 3) if i % 2 else (40, 52, 3)
            pixels = rng.normal(tint, 25, size).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"pictures/{name}/{i:02d}.png")
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore:the drop jumped")  # dusk and noon are told apart at a glance
def test_the_lines_for_pictures_run(pictures):
    audit = run_lines_of("03_cifar10.ipynb", 12)["audit"]
    assert audit.data.images.shape == (48, 64, 64, 3)
    assert audit.checkpoints["test_accuracy"].iloc[-1] > 0.7
    assert audit.prediction.reached
