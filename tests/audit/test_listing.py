"""Flagged members with their samples, and the file that `Audit.export` writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.store import StoreError

N = 12
FORMULA = "=HYPERLINK(1)"


def texts() -> mw.data.TextDataset:
    words = [FORMULA, *(f"a plain text, number {i}" for i in range(1, N))]
    ids = ["+1", *(f"s{i}" for i in range(1, N))]
    return mw.data.TextDataset.from_texts(words, ["yes", "no"] * (N // 2), ids=ids)


def table() -> mw.data.TableDataset:
    columns = {
        "score": np.arange(N) * 1.0,
        "town": ["Bern", "Thun"] * 6,
        "y": ["a", "b"] * 6,
    }
    return mw.data.TableDataset.from_frame(pd.DataFrame(columns), label="y")


def of_arrays(data) -> mw.Audit:
    gaps = np.array([-6.0, -5.0, *range(1, N - 1)])
    logits = np.zeros((N, 2))
    logits[np.arange(N), data.labels] = gaps
    return mw.Audit.from_arrays(
        labels=data.labels, logits=logits, log_lira=-gaps, ids=data.ids, samples=data,
        class_names=data.class_names,
    )  # fmt: skip


@pytest.fixture
def audit() -> mw.Audit:
    made = of_arrays(texts())
    made.decision_log.decide(["s1"], "relabel", note="@wrong", to="yes")
    made.decision_log.decide(["+1"], "remove")
    return made


def rows_of(path: Path) -> list[dict]:
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_samples_come_with_verdict_and_decision_only_if_asked_for(audit):
    plain = audit.flagged("logit_gap", tau=-4.0)
    assert list(plain) == ["score", "label", "guess", "p_label", "log_lira"]
    found = audit.flagged("logit_gap", tau=-4.0, samples=True, eta=5.5)
    pd.testing.assert_frame_equal(found[list(plain)], plain)
    assert found.attrs == plain.attrs != {}
    assert found["status"].tolist() == ["found", "flagged only"]
    assert found.loc["+1", ["text", "decision", "label"]].tolist() == [
        FORMULA,
        "remove",
        "yes",
    ]
    assert found.loc["s1", ["decision", "to", "note"]].tolist() == [
        "relabel",
        "yes",
        "@wrong",
    ]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_file_has_samples_only_if_asked_for(audit, tmp_path, suffix):
    path = audit.export(tmp_path / f"a.{suffix}", "logit_gap", tau=-4.0)
    assert [row["decision"] for row in rows_of(path)] == ["remove", "relabel"]
    assert "text" not in rows_of(path)[0]
    assert "plain text" not in path.read_text("utf-8")
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError, match=f"a.{suffix}"):
        audit.export(path, "logit_gap")
    everything = {"all_members": True, "include_samples": True, "overwrite": True}
    audit.export(path, "logit_gap", tau=-4.0, eta=-1.5, **everything)
    rows = rows_of(path)
    assert len(rows) == N
    assert {row["status"] for row in rows} == {"found", "missed", "left alone"}
    assert np.isclose(float(rows[0]["score"]), -6.0)
    hostile = (rows[0]["id"], rows[0]["text"], rows[1]["note"])
    plain = ("+1", FORMULA, "@wrong")
    assert hostile == (
        tuple(f"'{cell}" for cell in plain) if suffix == "csv" else plain
    )


def test_fields_of_a_row_and_a_question_have_columns_of_their_own(tmp_path):
    rows = of_arrays(table()).flagged("logit_gap", tau=0.0, samples=True)
    assert rows["score_"].tolist() == [0.0, 1.0]  # score is taken
    how = {"tau": -5.0, "include_samples": True}
    path = of_arrays(table()).export(tmp_path / "rows.jsonl", "logit_gap", **how)
    assert rows_of(path)[0]["town"] == "Bern"
    records = [
        {
            "question": f"Question {i}?",
            "choices": ["x", "y"],
            "answer": i % 2,
            "label": "urgent",
        }
        for i in range(N)
    ]
    audit = of_arrays(mw.data.MCQDataset.from_records(records))
    assert (
        audit.flagged("logit_gap", tau=-5.0, samples=True)["label_"].tolist()
        == ["urgent"] * 2
    )
    path = audit.export(tmp_path / "q.csv", "logit_gap", **how)
    assert json.loads(rows_of(path)[0]["choices"]) == ["x", "y"]


def test_images_add_nothing_but_decisions(finished, tmp_path):
    found = finished.flagged("loss", share=0.1, samples=True)
    assert list(found)[-4:] == ["status", "decision", "to", "note"]
    everything = finished.export(tmp_path / "all.csv", "loss", all_members=True)
    assert len(rows_of(everything)) == len(finished.members)
    with pytest.raises(ValueError, match="run directory"):
        finished.export(Path(finished.path) / "all.csv", "loss")
    assert not (Path(finished.path) / "all.csv").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "error", "facts"),
    [
        ("a.xlsx", {}, ValueError, r"a\.xlsx.*\.csv or \.jsonl"),
        ("gone/a.csv", {}, FileNotFoundError, "gone"),
        ("a.csv", {"tau": float("nan")}, ValueError, "nan"),
        ("a.csv", {"eta": "4"}, TypeError, "eta"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(
    audit, tmp_path, name, arguments, error, facts
):
    with pytest.raises(error, match=facts):
        audit.export(tmp_path / name, "logit_gap", **arguments)
    assert not list(tmp_path.iterdir())


def test_what_was_not_read_is_not_passed_off_as_undecided(finished, tmp_path):
    audit = mw.open_recorded("mmlu-field-smollm2")
    with pytest.raises(StoreError, match="not at hand"):
        audit.flagged(samples=True)
    path = audit.export(tmp_path / "ids.csv")
    assert len(rows_of(path)) == len(audit.flagged())
