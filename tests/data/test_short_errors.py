"""An error about a file names its place and never prints whole texts of the dataset."""

from __future__ import annotations

import pytest

import memowidgets as mw

LONG = "A patient of the seventh ward who " + "waited and " * 400
HIDDEN = "\u202eevil\x1b[31m"


def message(path, **options):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the message is what is tested
        mw.data.MCQDataset.from_csv(path, **options)
    return str(raised.value)


def test_columns_of_a_file_without_a_header_are_cut(tmp_path):
    file = tmp_path / "plain.csv"
    file.write_text(f'"{LONG}","{HIDDEN}","{LONG}2",B\n"{LONG}","x","y",A\n', encoding="utf-8")
    said = message(file)
    assert "has no column 'question'" in said
    assert "the first line is not a header" in said
    names = said.split("its columns: ")[1].split(". Assign")[0]
    assert all(len(name) <= 42 for name in names.split(", "))
    assert f"a text of {len(LONG.strip())} characters" in names
    assert "seventh ward" not in said
    assert len(said) < 400 + len(str(file))
    assert "\u202e" not in said
    assert "\x1b" not in said


def test_many_columns_are_counted(tmp_path):
    file = tmp_path / "wide.csv"
    file.write_text(",".join(f"column{i}" for i in range(300)) + "\n", encoding="utf-8")
    said = message(file)
    assert "'column11' and 288 more" in said
    assert "column12" not in said


def test_a_column_that_stands_twice_is_cut(tmp_path):
    file = tmp_path / "twice.csv"
    file.write_text(f'"{LONG}","{LONG}"\n', encoding="utf-8")
    assert len(message(file)) < 150 + len(str(file))


def test_an_answer_that_is_a_text_is_cut(tmp_path):
    (tmp_path / "test").mkdir()
    file = tmp_path / "test/anatomy_test.csv"
    file.write_text(f'question?,a,b,c,d,"{LONG}"\n', encoding="utf-8")
    with pytest.raises(ValueError, match="the answer must be a letter from A to D") as raised:
        mw.data.fetch_mcq("mmlu", split="test", source=tmp_path)
    assert len(str(raised.value)) < 200 + len(str(file))
