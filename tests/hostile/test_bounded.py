"""What a run's manifest names is made again within bounds, and no path outside is read for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import memowidgets as mw
from memowidgets.store import StoreError
from tests.audit.conftest import small_data
from tests.hostile.forged import change_manifest


@pytest.fixture
def altered(made, tmp_path):
    """A copy of the run whose manifest says something else of its source."""

    def alter(**changes):
        run = shutil.copytree(made.path, tmp_path / "run", dirs_exist_ok=True)

        def change(manifest):
            manifest["model_source"] = changes.get("model", manifest["model_source"])
            manifest["data"]["source"] = changes.get("data", manifest["data"]["source"])

        change_manifest(run, change)
        return run

    return alter


@pytest.fixture
def listed(monkeypatch):
    """Which files and folders outside of a run anybody has looked into."""
    seen = []
    real_scandir, real_open = os.scandir, Path.open

    def scandir(path="."):
        seen.append(str(path))
        return real_scandir(path)

    def opened(self, *args, **kwargs):
        seen.append(str(self))
        return real_open(self, *args, **kwargs)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(Path, "open", opened)
    return seen


SIZES = [
    {"model": "WideResNet", "arguments": {"depth": 60000004, "width": 1, "pool": "auto"}},
    {"model": "WideResNet", "arguments": {"depth": 10, "width": 10**9, "pool": "auto"}},
    {"model": "ConvNet", "arguments": {"width": 10**9}},
    {"model": "ConvNet", "arguments": {"width": float("inf")}},
]


@pytest.mark.parametrize("recipe", SIZES)
def test_a_model_that_is_too_large_is_not_built(altered, recipe):
    audit = mw.Audit.open(altered(model=recipe), data=small_data())
    assert len(audit.score("psmi", checkpoint="final")) == len(audit.members)
    with pytest.raises(StoreError, match="this needs the model and the data"):
        audit.train()


@pytest.mark.parametrize(("layers", "width"), [(10**9, 64), (1, 16 * 10**9)])
def test_a_language_model_that_is_too_large_is_not_built(layers, width):
    with pytest.raises(ValueError, match="layers must be from 1 to 128"):
        mw.models.CausalLM.from_scratch(mw.data.make_mcqs(n=12), layers=layers, width=width)


def test_data_of_another_number_are_not_made(altered, monkeypatch):
    from memowidgets.audit.runs import opening

    def never(**_arguments):
        raise AssertionError("made")

    monkeypatch.setitem(opening._DATA, "make_mcqs", never)
    source = {"loader": "make_mcqs", "arguments": {"n": 100_000, "atypical": 0.0, "seed": 0}}
    assert not hasattr(mw.Audit.open(altered(data=source)).data[0], "question")


def test_no_path_of_a_manifest_is_read(altered, listed, tmp_path):
    outside = str(tmp_path / "outside")
    (tmp_path / "outside").mkdir()
    source = {"loader": "from_folder", "arguments": {"path": outside, "resize": None}}
    recipe = {"model": "CausalLM.from_pretrained", "arguments": {"name_or_path": outside}}
    run = altered(data=source, model=recipe)
    listed.clear()
    for data in (None, small_data()):
        audit = mw.Audit.open(run, data=data)
        with pytest.raises(StoreError, match="needs the model and the data"):
            audit.run_shadows(1)
    assert not any(outside in place for place in listed)


def test_a_path_is_no_data_and_no_model(made, tmp_path):
    with pytest.raises(TypeError, match="data must be a dataset"):
        mw.Audit.open(made.path, data=tmp_path)
    with pytest.raises(TypeError, match="model"):
        mw.Audit.open(made.path, data=small_data(), model=tmp_path)


BROKEN = [
    {"data": {"loader": "os.system", "arguments": {"command": "touch owned"}}},
    {"data": {"loader": "load_digits"}},
    {"data": {"loader": ["load_digits"], "arguments": {}}},
    {"data": {"loader": "load_digits", "arguments": {"canaries": [], "seed": 0}}},
    {"data": {"loader": "load_digits", "arguments": {"colour": "blue"}}},
    {"model": {"model": "WideResNet", "arguments": {"depth": None}}},
    {"model": {"model": "ConvNet", "arguments": {"width": "wide"}}},
]


@pytest.mark.parametrize("changes", BROKEN)
def test_of_a_broken_source_nothing_is_made(altered, changes):
    audit = mw.Audit.open(altered(**changes), data=None if "data" in changes else small_data())
    with pytest.raises(StoreError, match="needs the model and the data"):
        audit.run_shadows(1)
