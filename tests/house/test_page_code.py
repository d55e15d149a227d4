"""The code that pages give readers for their own data, models and loops, as they would run it.

tests/adoption has Lightning and the Trainer.
"""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import memowidgets as mw
from memowidgets.data import TextDataset
from memowidgets.models.tokens import tokenizer_of_words, word_tokenizer
from tests.house.test_docs import ROOT, blocks
from tests.models.small import llama_folder
from tests.programs import printed

(ARRAYS,) = blocks(ROOT / "docs/own_arrays.md", "python")
LOOP, WITH_FORWARD, *_OTHERS = blocks(ROOT / "docs/your_training_loop.md", "python")
N = 60


def pairs():
    torch.manual_seed(0)
    labels = torch.arange(N) % 2
    return TensorDataset(torch.randn(N, 4) + 3 * labels[:, None], labels)


def net():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def texts():
    words = [["good", "fine"], ["bad", "poor"]]
    told = [f"a {words[i % 2][i % 3 % 2]} day {'indeed ' * (i % 4)}" for i in range(N)]
    return TextDataset.from_texts(told, np.arange(N) % 2, ["LABEL_0", "LABEL_1"])


def run(text, **names):
    exec(text, names)
    return names


@pytest.fixture(autouse=True)
def _folder_and_closed_widgets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened, dashboard = [], mw.Audit.dashboard
    monkeypatch.setattr(
        mw.Audit, "dashboard", lambda self: opened.append(dashboard(self))
    )
    yield
    for widget in opened:
        widget.close()


def test_the_loop_stops_and_shows_what_is_flagged():
    data, module = pairs(), net()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
    loader = DataLoader(data, batch_size=6, shuffle=True)
    # its labels are right, so few are flagged; another warning would be an error
    with pytest.warns(UserWarning, match="PSMI's τ = 0 may be strict"):
        names = run(LOOP, train_set=data, loader=loader, module=module,
                    optimizer=optimizer, cross_entropy=cross_entropy)  # fmt: skip
    assert names["watch"].reached
    assert names["watch"].audit.prediction.record.step == names["watch"].steps


@pytest.mark.slow
def test_the_loop_with_a_forward_watches_texts():
    data = texts()
    words = tokenizer_of_words(data.texts)
    module = mw.models.SequenceClassifier.from_scratch(data, layers=1, width=16).build(
        data
    )

    def tokenizer(batch, **options):
        return words(batch, padding=True, return_token_type_ids=False, **options)

    names = run(WITH_FORWARD, mw=mw, texts=data, loader=range(6), module=module,
                tokenizer=tokenizer)  # fmt: skip
    assert names["watch"].audit.layers[-1] == "score.input"


@pytest.mark.filterwarnings("ignore:PSMI's τ = 0 may be strict:UserWarning")
def test_arrays_of_scikit_learn_find_the_wrong_labels():
    """Texts on six wards, some with a wrong one."""
    n, wrong = 240, 12
    patients = mw.data.make_mcqs(n=n, atypical=wrong / n, seed=0)
    told = [patient.choices[patient.label] for patient in patients]
    texts = [patient.question for patient in patients]
    data = mw.data.TextDataset.from_texts(texts, told, ids=patients.ids)
    names, atypical = run(ARRAYS, mw=mw, data=data), patients.ids[patients.canaries]
    assert 0.95 <= names["drop"] < 0.999
    assert (
        names["audit"].score("psmi").nsmallest(wrong).index.isin(atypical).mean() > 0.7
    )
    assert (
        pd.read_csv("flagged.csv", index_col="id").index.isin(atypical).sum()
        > 0.7 * wrong
    )


# a model this small learns nothing: it is told
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_ten_lines_of_the_notebook_on_language_models_run(tmp_path, monkeypatch):
    """With questions.jsonl, and a tiny model where the hub's would be."""
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = [
        {
            "question": f"Is {a} more than {b}?",
            "choices": ["yes", "no"],
            "answer": int(a <= b),
        }
        for a, b in rng.integers(0, 9, (40, 2))
    ]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tokenizer = word_tokenizer(mw.data.MCQDataset.from_jsonl("questions.jsonl"))
    llama_folder(Path("HuggingFaceTB/SmolLM2-135M"), tokenizer, layers=9)
    book = nbformat.read(ROOT / "notebooks" / "02_language_model.ipynb", 4)
    lines = (
        "\n".join(cell.source for cell in book.cells)
        .split("```python\n")[1]
        .split("```")[0]
    )
    assert len(lines.strip().splitlines()) <= 10
    Path("lines.py").write_text(lines)
    names = runpy.run_path("lines.py")
    assert len(names["audit"].checkpoints) > 2
    assert Path("flagged.csv").read_text().startswith('"id","score"')


def test_what_the_readme_links_to_and_shows_is_there():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.split()) <= 700
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", readme):
        assert (ROOT / target).exists(), target
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    repository = urlsplit(project["urls"]["Source"]).path
    (on_binder,) = re.findall(r"\]\(https://mybinder\.org/v2/gh([^)]+)", readme)
    place, _, opened = on_binder.partition("/HEAD?urlpath=lab/tree/")
    assert place == repository
    assert (ROOT / opened).exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readmes_lines_run_in_a_fresh_clone(clone, monkeypatch):
    """The first notebook, which goes on from them, is run by tests/notebooks/test_notebooks.py."""
    assert (clone / "notebooks" / "01_quickstart.ipynb").exists()
    monkeypatch.setenv("PYTHONPATH", str(clone))
    (code,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code = code.replace("run_shadows(32)", "run_shadows(4, processes=1)")  # not 32
    assert "run_shadows(4" in code
    said = "\nimport memowidgets; print(memowidgets.__file__)"
    lines = printed(code + said, options=("-W", "error"), cwd=clone).splitlines()
    assert lines[-1] == str(clone / "memowidgets" / "__init__.py")
