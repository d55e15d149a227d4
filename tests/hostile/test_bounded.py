"""What a manifest names is made again within bounds, and no path outside or too long is read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit.runs import opening
from memowidgets.store import RunDirectory, StoreError, run_at
from tests.hostile import victim
from tests.hostile.forged import change_manifest
from tests.training.small import tiny_audit


def alter(run, model=None, data=None):
    """Let a run's manifest say something else of its source."""

    def change(manifest):
        manifest["model_source"] = model or manifest["model_source"]
        manifest["data"]["source"] = data or manifest["data"]["source"]

    change_manifest(run, change)


def refuses(run, data):
    """The run opens, and works neither with what its manifest names nor with data alone."""
    audit = mw.Audit.open(run, data=data)
    with pytest.raises(StoreError, match="this needs the model and the data"):
        audit.run_shadows(1)
    return audit


MODELS = [
    {
        "model": "WideResNet",
        "arguments": {"depth": 60000004, "width": 1, "pool": "auto"},
    },
    {"model": "WideResNet", "arguments": {"depth": 10, "width": 10**9, "pool": "auto"}},
    {"model": "WideResNet", "arguments": {"depth": None}},
    {"model": "ConvNet", "arguments": {"width": float("inf")}},
    {"model": "ConvNet", "arguments": {"width": "wide"}},
]
DATA = [
    {"loader": "os.system", "arguments": {"command": "touch owned"}},
    {"loader": "load_digits"},
    {"loader": ["load_digits"], "arguments": {}},
    {"loader": "load_digits", "arguments": {"canaries": [], "seed": 0}},
    {"loader": "load_digits", "arguments": {"colour": "blue"}},
]


@pytest.mark.parametrize("source", MODELS)
def test_a_model_that_is_too_large_or_senseless_is_not_built(run, source):
    alter(run, model=source)
    assert refuses(run, victim.data()).score("psmi", checkpoint="final").size


@pytest.mark.parametrize("source", DATA)
def test_of_a_senseless_source_no_data_are_made(run, source):
    alter(run, data=source)
    refuses(run, None)


@pytest.mark.parametrize(("layers", "width"), [(10**9, 64), (1, 16 * 10**9)])
def test_a_language_model_that_is_too_large_is_not_built(layers, width):
    with pytest.raises(ValueError, match="layers must be from 1 to 128"):
        mw.models.CausalLM.from_scratch(
            mw.data.make_mcqs(n=12), layers=layers, width=width
        )


def test_data_of_another_number_are_not_made(run, monkeypatch):
    made = []
    monkeypatch.setitem(opening._DATA, "make_mcqs", lambda **given: made.append(given))
    arguments = {"n": 100_000, "atypical": 0.0, "seed": 0}
    alter(run, data={"loader": "make_mcqs", "arguments": arguments})
    refuses(run, None)
    assert made == []


def test_no_path_of_a_manifest_is_read(run, tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    source = {
        "loader": "from_folder",
        "arguments": {"path": str(outside), "resize": None},
    }
    recipe = {
        "model": "CausalLM.from_pretrained",
        "arguments": {"name_or_path": str(outside)},
    }
    alter(run, data=source, model=recipe)
    looked_into = []
    for owner, name in ((os, "scandir"), (Path, "open")):
        real = getattr(owner, name)
        noting = lambda at=".", *more, real=real, **how: (  # noqa: E731
            looked_into.append(str(at)) or real(at, *more, **how)
        )
        monkeypatch.setattr(owner, name, noting)
    for data in (None, victim.data()):
        refuses(run, data)
    assert looked_into
    assert not any(str(outside) in place for place in looked_into)


LONG = "n" * 300
PATHS = {  # where a path enters
    "a run": RunDirectory,
    "a run or recording": run_at,
    "an audit to open": mw.Audit.open,
    "a new audit": tiny_audit,
    "a CSV": lambda path: mw.data.TextDataset.from_csv(f"{path}.csv"),
    "a JSONL": lambda path: mw.data.MCQDataset.from_jsonl(f"{path}.jsonl"),
    "a benchmark": lambda path: mw.data.fetch_mcq("mmlu", source=path),
    "pictures": mw.data.fetch_cifar10,
    "a folder": mw.data.ImageDataset.from_folder,
    "a report": lambda path: mw.Audit.from_arrays([0, 1], logits=5 * np.eye(2)).report(
        f"{path}.html"
    ),
}


@pytest.mark.parametrize("use_path", PATHS.values(), ids=PATHS)
def test_a_path_of_300_characters(use_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (LONG, f"{LONG}/x", f"x/{LONG}"):
        with pytest.raises((ValueError, StoreError), match="255"):
            use_path(path)
