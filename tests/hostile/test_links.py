"""A symbolic link in a run directory never leads outside of it."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

import memowidgets as mw
from benchmarks.recording import export
from memowidgets.files import make_private
from memowidgets.store import RunDirectory, StoreError
from tests.audit.conftest import small_audit, small_data, view_of

LINK = "through a symbolic link"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    audit = small_audit(tmp_path_factory.mktemp("links") / "run")
    audit.train(stop_at_drop=0.5)
    audit.score("psmi")
    audit.train()
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(4, executor=executor)
    return audit


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the trained run, which a test may break."""
    return shutil.copytree(trained.path, tmp_path / "run")


@pytest.fixture
def victim(tmp_path):
    """Somebody's folder, with files in it that have a run's names."""
    folder = tmp_path / "victim"
    for name in ("epoch-3/resume.safetensors", "epoch-3/last/psmi.safetensors", "0000.safetensors"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"mine")
    return folder


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def relinked(place, target):
    """Put a link where something was."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def opened(run):
    return mw.Audit.open(run, data=small_data(), model=mw.models.ConvNet(16), device="cpu")


def one_more_shadow(audit):
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(5, executor=executor)


USES = {
    "scores": lambda audit: audit.score("mahalanobis"),
    "forward": lambda audit: audit.score("psmi", checkpoint="final"),
    "checkpoints": lambda audit: audit.train(),
    "shadows": one_more_shadow,
    "targets": lambda audit: audit.as_target(0).kept(),
    "scores/epoch-4": lambda audit: audit.score("psmi", checkpoint="final"),
    "checkpoints/epoch-3": lambda audit: audit.train(),
    ".checkpoints.lock": lambda audit: audit.run.run.lock("checkpoints").__enter__(),
    ".shadow-models-halves.lock": one_more_shadow,
    "decisions.csv": lambda audit: audit.decisions,
    "rho.json": lambda audit: audit.prediction,
    "shadows/0001.safetensors": lambda audit: audit.log_lira(),
}


@pytest.mark.parametrize("name", USES)
def test_a_link_in_a_run_is_refused_and_its_target_stays_as_it_was(copied, victim, name):
    file = "." in name.rsplit("/")[-1][1:]
    target = victim / "0000.safetensors" if file else victim
    relinked(copied / name, target)
    before = contents(victim)
    with pytest.raises((StoreError, UserWarning), match=LINK):
        USES[name](opened(copied))
    assert contents(victim) == before


@pytest.mark.parametrize("name", ["manifest.json", "design.safetensors"])
def test_a_run_whose_first_files_are_links_is_not_opened(copied, tmp_path, name):
    shutil.move(copied / name, tmp_path / name)
    (copied / name).symlink_to(tmp_path / name)
    with pytest.raises(StoreError, match=LINK):
        opened(copied)


def test_training_deletes_nothing_behind_a_link(copied, victim):
    """A folder that a checkpoint empties: of its forward pass, its scores, the states before."""
    for name in ("forward/epoch-4", "scores/epoch-4", "checkpoints/epoch-9"):
        relinked(copied / name, victim / "epoch-3")
    shutil.rmtree(copied / "checkpoints" / "epoch-4")
    before = contents(victim)
    with pytest.raises(StoreError, match=LINK):
        opened(copied).train()
    assert contents(victim) == before


def test_a_recording_takes_no_file_from_behind_a_link(copied, victim, tmp_path):
    relinked(copied / "scores" / "secret.safetensors", victim / "0000.safetensors")
    with pytest.raises(StoreError, match=LINK):
        export(opened(copied).path, tmp_path / "recording", {"data": "…"}, {})
    assert not list((tmp_path / "recording").rglob("secret*"))


def test_the_dashboard_does_not_walk_behind_a_link(copied, victim):

    audit = opened(copied)
    relinked(copied / "scores", victim)
    assert not any("epoch-3/last" in str(name) for name, _ in view_of(audit).revision())


def test_a_run_directory_may_itself_be_reached_through_a_link(copied, tmp_path):
    (tmp_path / "here").symlink_to(copied)
    audit = opened(tmp_path / "here")
    assert len(audit.score("mahalanobis")) == len(audit.members)
    assert (copied / "scores").is_dir()


def test_a_link_to_a_folder_whose_name_begins_alike_leads_outside(tmp_path):
    run, beside = RunDirectory(tmp_path / "run"), tmp_path / "run-2"
    run.write_text("here.csv", "1")
    beside.mkdir()
    (run.path / "scores").symlink_to(beside)
    with pytest.raises(StoreError, match=LINK):
        run.write_text("scores/x.csv", "1")
    assert not list(beside.iterdir())


def test_a_link_that_stays_in_the_run_and_a_circle_are_told_apart(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.write_text("scores/x.csv", "1")
    (run.path / "same").symlink_to(run.path / "scores")
    assert run.read_text("same/x.csv") == "1"
    (run.path / "circle").symlink_to(run.path / "circle")
    with pytest.raises(StoreError):
        run.read_note("circle/x.json")


@pytest.fixture
def _open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_all_that_is_written_is_private_whatever_the_umask(tmp_path):
    make_private(tmp_path / "b" / "c" / "d")
    audit = small_audit(tmp_path / "deep" / "run")
    audit.train()
    audit.score("psmi")
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(4, executor=executor)
    written = list(tmp_path.rglob("*"))
    open_ones = [path for path in written if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert len(written) > 20
    assert open_ones == []
