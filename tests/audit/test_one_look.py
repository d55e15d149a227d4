"""A run is listed once for all figures, and anew for whatever comes after."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from memowidgets.audit.source import one_look
from memowidgets.audit.sources import catalogue
from memowidgets.store import RunDirectory
from tests.audit.conftest import small_audit


@pytest.fixture
def reads(monkeypatch):
    """Counts how often the checkpoints of a run are read."""
    counted, read = [], catalogue.read_records
    monkeypatch.setattr(catalogue, "read_records", lambda run: counted.append(run) or read(run))
    return counted


def test_figures_read_the_checkpoints_once(finished, reads):
    drawn = finished.figures(etas=[4.0])
    assert {"roc", "over_training"} <= set(drawn)
    assert len(reads) == 1


def test_what_changes_meanwhile_is_seen_afterwards_and_at_once_by_other_threads(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    names = small_audit(tmp_path / "run").source.names
    before = [record.name for record in names.records()]

    def seen():
        with pytest.warns(UserWarning, match="epoch-2"):
            return [record.name for record in names.records()]

    with one_look(), one_look():
        names.records().clear()  # what a caller does with its list is its own affair
        shutil.rmtree(tmp_path / "run/checkpoints/epoch-2")
        assert [record.name for record in names.records()] == before
        with ThreadPoolExecutor(1) as thread:
            elsewhere = thread.submit(seen).result()
    assert elsewhere == seen() == [name for name in before if name != "epoch-2"]


def test_figures_list_the_shadow_models_a_few_times(finished, monkeypatch):
    listed, names = [], RunDirectory.names

    def counted(run, folder, *suffix):
        listed.append(folder)
        return names(run, folder, *suffix)

    monkeypatch.setattr(RunDirectory, "names", counted)
    assert "roc" in finished.figures(etas=[4.0])
    assert 1 <= listed.count("shadows") <= 5  # one set: its files, and which are complete


def test_a_shadow_model_that_is_lost_meanwhile_is_missed_afterwards(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    shadows = small_audit(tmp_path / "run").source.shadows
    with one_look():
        before, state = shadows.indices(), shadows.state()
        shadows.indices().clear()
        shadows.path_of(before[-1]).unlink()
        assert (shadows.indices(), len(shadows)) == (before, len(before))
        assert shadows.state() == state
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(shadows.indices).result() == before[:-1]
    assert shadows.indices() == before[:-1]
    assert shadows.state() == state[:-1]
