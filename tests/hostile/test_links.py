"""A symbolic link in a run directory never leads outside of it."""

from __future__ import annotations

import os
import shutil
import stat

import pytest

from memowidgets.files import make_private
from memowidgets.store import REVISION, RunDirectory, StoreError
from tests.hostile import victim

LINK = "through a symbolic link"


@pytest.fixture
def outside(tmp_path):
    """Somebody's folder, with files in it that have a run's names."""
    folder = tmp_path / "outside"
    for name in (
        "epoch-2/resume.safetensors",
        "epoch-2/last/psmi.safetensors",
        "0000.safetensors",
    ):
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


def one_more_shadow(audit):
    victim.fill(audit, victim.SHADOWS + 2)


USES = {
    "scores": lambda audit: audit.score("mahalanobis"),
    "forward": lambda audit: audit.score("mahalanobis", checkpoint="final"),
    "checkpoints": lambda audit: audit.train(),
    "shadows": one_more_shadow,
    "targets": lambda audit: audit.as_target(0).kept(),
    "scores/epoch-3": lambda audit: audit.score("psmi", checkpoint="final"),
    "checkpoints/epoch-2": lambda audit: audit.train(),
    ".checkpoints.lock": lambda audit: audit.run.run.lock("checkpoints").__enter__(),
    ".shadow-models-halves.lock": one_more_shadow,
    "decisions.csv": lambda audit: audit.decisions,
    "rho.json": lambda audit: audit.prediction,
}


@pytest.mark.parametrize("name", USES)
def test_a_link_in_a_run_is_refused_and_its_target_stays_as_it_was(run, outside, name):
    file = "." in name.rsplit("/")[-1][1:]
    relinked(run / name, outside / "0000.safetensors" if file else outside)
    before = contents(outside)
    with pytest.raises((StoreError, UserWarning), match=LINK):
        USES[name](victim.opened(run))
    assert contents(outside) == before


@pytest.mark.parametrize("name", ["manifest.json", "design.safetensors"])
def test_a_run_whose_first_files_are_links_is_not_opened(run, tmp_path, name):
    shutil.move(run / name, tmp_path / name)
    (run / name).symlink_to(tmp_path / name)
    with pytest.raises(StoreError, match=LINK):
        victim.opened(run)


def test_training_deletes_nothing_behind_a_link(run, outside):
    """A folder that a checkpoint empties: of its forward pass, its scores, the states before."""
    for name in ("forward/epoch-3", "scores/epoch-3", "checkpoints/epoch-9"):
        relinked(run / name, outside / "epoch-2")
    shutil.rmtree(run / "checkpoints" / "epoch-3")
    before = contents(outside)
    with pytest.raises(StoreError, match=LINK):
        victim.opened(run).train()
    assert contents(outside) == before


def test_a_revision_that_is_a_link_is_replaced_and_what_it_leads_to_stays(
    run, tmp_path
):
    kept = tmp_path / "mine"
    kept.write_text("not a revision")
    (run / REVISION).unlink()
    (run / REVISION).symlink_to(kept)
    audit = victim.opened(run)
    before = audit.evidence
    audit.run.run.forget("forward/epoch-1")
    assert kept.read_text() == "not a revision"
    assert not (run / REVISION).is_symlink()
    assert audit.evidence is not before


def test_a_run_directory_may_itself_be_reached_through_a_link(run, tmp_path):
    (tmp_path / "here").symlink_to(run)
    audit = victim.opened(tmp_path / "here")
    assert len(audit.score("mahalanobis")) == len(audit.members)


def test_links_inside_to_a_folder_beside_and_in_a_circle_are_told_apart(tmp_path):
    run, beside = RunDirectory(tmp_path / "run"), tmp_path / "run-2"
    run.write_text("scores/x.csv", "1")
    beside.mkdir()
    for name, target in (("same", "scores"), ("circle", "circle"), ("beside", beside)):
        (run.path / name).symlink_to(run.path / target)
    assert run.read_text("same/x.csv") == "1"
    with pytest.raises(StoreError):
        run.read_note("circle/x.json")
    with pytest.raises(StoreError, match=LINK):
        run.write_text("beside/x.csv", "1")
    assert not list(beside.iterdir())


@pytest.fixture
def _open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_all_that_is_written_is_private_whatever_the_umask(tmp_path):
    make_private(tmp_path / "b" / "c" / "d")
    victim.made(tmp_path / "deep" / "run", victim.data())
    written = list(tmp_path.rglob("*"))
    assert len(written) > 20
    assert [path for path in written if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
