"""Errors of a run directory say what is wrong, and what to do."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from memowidgets.store import (
    Absent,
    RunDirectory,
    StoreError,
    without_advice,
)


def test_a_page_says_what_is_not_there_and_no_call():
    error = Absent("the losses were not kept", "train again").error("epoch-2")
    assert str(Absent("no losses").error()) == "no losses"
    assert without_advice(error) == error.said == "the losses were not kept at epoch-2"
    assert without_advice(StoreError("it is broken")) == "it is broken"


def test_a_file_where_the_folder_should_be_is_explained(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="taken"):
        RunDirectory(tmp_path / "taken" / "run").write_text("x", "x")


def test_a_read_only_folder_is_explained(run, monkeypatch):
    def refused(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("memowidgets.files.os.open", refused)
    with pytest.raises(
        StoreError, match="permission is denied; make the folder writable"
    ):
        run.write_tensors("x", {"x": np.ones(1)})
