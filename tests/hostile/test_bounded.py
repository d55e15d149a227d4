"""What a run's manifest names is made again within bounds, and no path outside is read for it."""

from __future__ import annotations

import inspect
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.__main__ import main
from memowidgets.audit.runs.opening import _LOADERS, Origin
from memowidgets.store import StoreError
from tests.audit.conftest import small_audit, small_data
from tests.hostile.forged import change_manifest

PIL = pytest.importorskip("PIL.Image", reason="no Pillow")


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


def pictures(folder, n=60):
    images, labels = small_data().images[:n, ..., 0], small_data().labels[:n] % 2
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / f"class {label}"
        place.mkdir(parents=True, exist_ok=True)
        PIL.fromarray(image).save(place / f"{i:02d}.png")
    return mw.data.ImageDataset.from_folder(folder)


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

    monkeypatch.setitem(opening._LOADERS, "make_mcqs", (never, None))
    source = {"loader": "make_mcqs", "arguments": {"n": 100_000, "atypical": 0.0, "seed": 0}}
    assert not hasattr(mw.Audit.open(altered(data=source)).data[0], "question")


SOURCES = {
    "from_folder": lambda path: {"path": path, "resize": None},
    "MCQDataset.from_csv": lambda path: {"path": path},
    "MCQDataset.from_jsonl": lambda path: {"path": path},
    "TableDataset.from_csv": lambda path: {"path": path},
    "TableDataset.from_jsonl": lambda path: {"path": path},
    "TextDataset.from_csv": lambda path: {"path": path},
    "TextDataset.from_jsonl": lambda path: {"path": path},
    "fetch_mcq": lambda path: {"name": "mmlu", "split": "test", "source": path},
    "fetch_cifar10": lambda path: {"source": path, "split": "train"},
}


def test_every_loader_that_takes_a_path_is_tried():
    with_path = {
        name for name, (load, _) in _LOADERS.items()
        if {"path", "source"} & inspect.signature(load).parameters.keys()
    }  # fmt: skip
    assert with_path == set(SOURCES)
    assert with_path == {name for name, (_, argument) in _LOADERS.items() if argument}


@pytest.mark.parametrize("loader", SOURCES)
def test_a_path_in_a_manifest_is_not_read(altered, listed, tmp_path, loader):
    outside = tmp_path / "outside"
    pictures(outside)
    source = {"loader": loader, "arguments": SOURCES[loader](str(outside))}
    run = altered(data=source)
    listed.clear()
    with pytest.warns(UserWarning, match=rf"pass data='{outside}' to Audit\.open"):
        audit = mw.Audit.open(run)
    assert not any(str(outside) in place for place in listed)
    assert not hasattr(audit.data[0], "image")


@pytest.mark.parametrize("name", ["/outside/model", "../model", "a/b/c", ".", "sub/../../x"])
def test_a_model_in_a_folder_is_not_read(altered, listed, name):
    recipe = {"model": "CausalLM.from_pretrained", "arguments": {"name_or_path": name}}
    run = altered(model=recipe)
    listed.clear()
    with pytest.warns(UserWarning, match=r"pass model='.*' to Audit\.open"):
        mw.Audit.open(run, data=small_data())
    assert not any("outside/model" in place for place in listed)


def test_a_folder_that_has_the_name_of_a_model_is_a_path(tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    recipe = {"model": "CausalLM.from_pretrained", "arguments": {"name_or_path": "gpt2"}}
    assert Origin(recipe, "model", "manifest.json").path is None
    monkeypatch.chdir(tmp_path)
    assert Origin(recipe, "model", "manifest.json").path == "gpt2"


def test_the_caller_names_the_path(tmp_path):
    data = pictures(tmp_path / "pictures")
    training = mw.TrainingConfig(epochs=1)
    audit = small_audit(tmp_path / "run", data=data, training=training)
    audit.train()
    with pytest.warns(UserWarning, match="refers to paths outside of itself"):
        withheld = mw.Audit.open(audit.path)
    with pytest.raises(StoreError, match=r"give data='.*pictures'"):
        withheld.kept()
    shutil.move(tmp_path / "pictures", tmp_path / "moved")
    again = mw.Audit.open(audit.path, data=tmp_path / "moved")
    np.testing.assert_array_equal(again.data.images, data.images)
    again.score("psmi", checkpoint="final")
    report = ["report", audit.path, str(tmp_path / "page.html"), "--include-samples"]
    assert main([*report, "--data", str(tmp_path / "moved")]) == 0


def test_a_path_for_data_that_came_from_none_is_an_error(made, tmp_path):
    with pytest.raises(ValueError, match="pass the dataset itself"):
        mw.Audit.open(made.path, data=tmp_path)
    with pytest.raises(ValueError, match="pass the model itself"):
        mw.Audit.open(made.path, data=small_data(), model=tmp_path)


BROKEN = [
    {"data": 7},
    {"data": {"loader": "load_digits"}},
    {"data": {"loader": ["load_digits"], "arguments": {}}},
    {"data": {"loader": "load_digits", "arguments": {"canaries": [], "seed": 0}}},
    {"data": {"loader": "load_digits", "arguments": {"colour": "blue"}}},
    {"model": "WideResNet"},
    {"model": {"model": "WideResNet", "arguments": {"depth": None}}},
    {"model": {"model": "ConvNet", "arguments": {"width": "wide"}}},
    {"model": {"model": "CausalLM.from_pretrained", "arguments": {}}},
]


@pytest.mark.parametrize("changes", BROKEN)
def test_a_broken_source_is_a_sentence_that_names_the_manifest(altered, changes):
    run = altered(**changes)
    with pytest.raises(StoreError, match=r"manifest\.json is broken"):
        mw.Audit.open(run, data=None if "data" in changes else small_data())
