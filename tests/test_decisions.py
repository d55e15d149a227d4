"""Decisions: their file, the undo, two at once, a closed folder, what is kept."""

from __future__ import annotations

import csv
import io
import tempfile
import threading
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import memowidgets as mw
from memowidgets.decisions import (
    Decision,
    DecisionLog,
    apply_decisions,
    from_csv,
    log_of,
    to_csv,
)
from memowidgets.store import RunDirectory, StoreError, run_at
from tests.audit.conftest import small_audit, small_data

pytestmark = pytest.mark.filterwarnings("ignore:only members of the target:UserWarning")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
likely = st.one_of(texts, st.text("'=+-@;\t\r\n\0 \",a", max_size=12))


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    return RunDirectory(tmp_path / "run")


def questions(n=6):
    names = [f"Ms Smith {i}?" for i in range(n)]
    rows = [
        {
            "question": names[max(0, i - 1)],
            "choices": ["x", "y"],
            "answer": i % 2,
            "id": f"p{i}",
        }
        for i in range(n)
    ]
    return mw.data.MCQDataset.from_records(rows)


# The file


@given(st.dictionaries(likely, st.tuples(st.sampled_from(["keep", "remove"]), likely)))
def test_a_table_comes_back_as_it_was(entries):
    table = {name: Decision(*made) for name, made in entries.items()}
    assert from_csv(to_csv(table)) == table
    table = {
        name: Decision("relabel", note, f"={note}")
        for name, (_, note) in entries.items()
    }
    assert from_csv(to_csv(table)) == table


@given(likely)
def test_no_cell_is_a_formula_whatever_separates_cells(text):
    written = to_csv({text: Decision("keep", text)})
    for separator in ",;\t":
        for row in csv.reader(io.StringIO(written, newline=""), delimiter=separator):
            for cell in row:
                parts = (
                    cell.replace("\r", "\n")
                    .replace("\t", "\n")
                    .replace(";", "\n")
                    .split("\n")
                )
                assert not any(
                    part.lstrip(' "\0\v\f\xa0').startswith(tuple("=+-@"))
                    for part in parts
                )
                assert separator != "," or not cell.startswith(("\t", "\r", "\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "columns must be id,decision,note"),
        ("id;decision;note\n", "columns must be"),
        (
            "id,decision,note\n7,maybe,\n",
            r"line 2: unknown decision 'maybe'; valid: 'keep'",
        ),
        ("id,decision,note\n7,keep\n", "line 2: 2 cells"),
        ('id,decision,note\n"7,keep,\n', "broken CSV"),
        ("id,decision,note,to\n7,relabel,,\n", "line 2: .*'relabel'"),
        ("id,decision,note,to\n7,keep,,x\n", "line 2: .*'keep'.*'x'"),
        ("id,decision,note\n7,relabel,\n", "line 2: .*'relabel'"),
        ("id,decision,note,to\n7,keep,\n", "line 2: 3 cells instead of 4"),
        (
            "id,decision,note,by,at\n7,keep,,me,yesterday\n",
            "line 2: 'yesterday' is no time",
        ),
        (
            "id,decision,note,to\n7,relabel,,x\n7,relabel,,y\n",
            "line 3: .*'7'.*keep one",
        ),
    ],
)
def test_a_broken_file_is_named(text, words):
    with pytest.raises(ValueError, match=words):
        from_csv(text, "decisions.csv")


def test_a_file_that_a_spreadsheet_saved_is_read():
    assert from_csv("\ufeffid,decision,note\r\n7,keep,'=1\r\n") == {
        "7": Decision("keep", "=1")
    }


def test_a_line_that_was_changed_is_named_unless_its_check_is_emptied(run):
    file, log = run.path / "decisions.csv", DecisionLog(run)
    log.decide(["7"], "keep", "fine")
    log.decide(["8"], "relabel", to="x")
    whole = file.read_bytes()
    for place in range(whole.index(b"\n"), len(whole)):
        content = bytearray(whole)
        content[place] ^= 1
        if content[place : place + 1] != whole[place : place + 1].swapcase():
            with pytest.raises(ValueError, match=r"decisions\.csv"):
                from_csv(content.decode())
    edited = whole.decode().replace('"7","keep"', '"7","remove"')
    file.write_text(edited)
    log = DecisionLog(run)
    assert (log.table(), log["8"]) == ({}, Decision())
    assert "line 2" in log.unread
    assert "'check'" in log.unread
    first, line, *others = edited.splitlines()
    accepted = [first, line[: line.rindex(",")] + ',""', *others]
    file.write_text("\n".join(accepted))
    log.decide(["9"], "keep")
    assert from_csv(file.read_text()) == {
        "7": Decision("remove", "fine"), "8": Decision("relabel", "", "x"),
        "9": Decision("keep"),
    }  # fmt: skip
    assert ',""' not in file.read_text().splitlines()[1][-4:]


# Deciding


def test_a_note_keeps_what_another_writer_has_decided_meanwhile(run):
    first, second = DecisionLog(run), DecisionLog(run)
    first.decide(["a"], "keep")
    second.decide(["a"], "remove")
    first.decide(["a"], note="names a patient")
    assert DecisionLog(run)["a"] == Decision("remove", "names a patient")


def test_who_decided_and_when_stays_with_the_decision(run, monkeypatch):
    monkeypatch.setenv("LOGNAME", "=cmd|me")
    first, second = DecisionLog(run), DecisionLog(run)
    first.decide(["a", "b"], "remove", by="Anna <b>&")
    second.decide(["b"], "keep", by=" Ben ")
    second.decide(["c"], "keep")
    second.decide(["a"], "remove", by="Ben")  # it was decided already
    second.decide(["a"], note="names a patient", by="Ben")
    made = DecisionLog(run).table()
    assert {name: one.by for name, one in made.items()} == {
        "a": "Anna <b>&", "b": "Ben", "c": "=cmd|me",
    }  # fmt: skip
    times = [pd.Timestamp(one.at) for one in made.values()]
    assert all(
        abs(pd.Timestamp.now("UTC") - time) < pd.Timedelta("1h") for time in times
    )
    assert "=cmd" not in (run.path / "decisions.csv").read_text().replace("'=cmd", "")
    assert first.undo() == 0  # others changed both since
    assert second.undo() == 1
    assert DecisionLog(run)["a"].by == "Anna <b>&"
    assert second.frame()["by"].tolist() == ["Anna <b>&", "Ben", "=cmd|me"]


def test_undo_gives_back_who_decided_before_and_leaves_others_decisions(run):
    first, second = DecisionLog(run), DecisionLog(run)
    first.decide(["a"], "remove", by="Anna")
    second.decide(["a"], "keep", by="Ben")
    second.undo()
    assert DecisionLog(run)["a"].by == "Anna"
    second.decide(["a"], "undecided", by="Ben")
    second.decide(["a"], "remove", by="Ben")  # as Anna did, but it is his
    assert first.undo() == 0
    assert DecisionLog(run)["a"].by == "Ben"
    second.decide(["a"], "undecided", by="Ben")
    assert DecisionLog(run).table() == {}


@pytest.mark.parametrize("by", ["", "  ", 7, "x" * 201])
def test_who_decides_has_a_name(by):
    log = DecisionLog()
    with pytest.raises(ValueError, match="by="):
        log.decide(["a"], "keep", by=by)
    assert len(log) == 0


def test_a_user_without_a_name_decides_too(monkeypatch):
    def nobody():
        raise KeyError("uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    log = DecisionLog()
    log.decide(["a"], "keep")
    assert log["a"].by == ""
    assert log["a"].at


def test_half_characters_in_a_note_are_replaced_and_the_note_is_stored(run):
    log = DecisionLog(run)
    log.decide(["a"], "keep", note="\ud800 a\udfff b\ud83d \U0001f600")
    assert log.problem == ""
    kept = "\ufffd a\ufffd b\ufffd \U0001f600"
    assert DecisionLog(run)["a"].note == log["a"].note == kept


def test_many_threads_at_once_lose_nothing(run):
    logs = [DecisionLog(run) for _ in range(4)]

    def work(i, log):
        for j in range(5):
            log.decide([f"{i}-{j}"], "keep")

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [log.problem for log in logs] == [""] * 4
    assert len(DecisionLog(run)) == 20


def test_a_lock_that_stays_held_is_named(run, monkeypatch):
    monkeypatch.setattr("memowidgets.decisions._PATIENCE_SECONDS", 0.1)
    log = DecisionLog(run)
    with run.lock("decisions"):
        log.decide(["a"], "keep")
        assert "another process" in log.problem
    log.decide(["b"], "keep")
    assert log.problem == ""
    assert set(from_csv((run.path / "decisions.csv").read_text())) == {"a", "b"}


def test_a_read_only_run_keeps_decisions_in_memory(run):
    DecisionLog(run).decide(["a"], "keep")
    run.write_manifest({})
    log = DecisionLog(run_at(run.path, read_only=True))
    assert log.decide(["b"], "remove") == 1
    assert "recording" in log.problem
    assert {name: made.decision for name, made in log.table().items()} == {
        "a": "keep", "b": "remove",
    }  # fmt: skip
    log.refresh()
    assert log["b"].decision == "remove"
    assert log.undo() == 1
    assert set(log.table()) == {"a"}


def test_a_broken_file_is_never_written_over_and_its_repair_ends_the_warning(run):
    file, log = run.path / "decisions.csv", DecisionLog(run)
    log.decide(["a"], "remove")
    whole = file.read_bytes()
    for broken in (b"something else\n", b"\xff no table"):
        file.write_bytes(broken)
        log.decide(["b"], "keep", note=str(broken))
        assert log.problem
        assert file.read_bytes() == broken
    file.write_bytes(whole)
    log.decide(["c"], "keep")
    assert log.problem == ""
    assert set(from_csv(file.read_text())) == {"a", "b", "c"}


# The dataset that decisions leave


def decided(data, decision, ids, to=None):
    """A log of decisions on samples."""
    log = log_of(data)
    log.decide(ids, decision, to=to)
    return log


def test_an_audit_keeps_decisions_and_gives_the_data_without_its_label_noise(tmp_path):
    data = small_data()
    noisy = mw.TrainingConfig(epochs=1, batch_size=8, label_noise=0.1)
    audit = small_audit(tmp_path / "run", data=data, training=noisy)
    assert (audit.data.labels != data.labels).any()
    assert audit.kept().content_hashes() == data.content_hashes()
    assert audit.decisions.empty
    assert audit.decisions.columns.tolist() == ["id", "decision", "note"]
    gone = [str(name) for name in audit.members[:3]]
    audit.decision_log.decide(gone, "remove")
    audit.decision_log.decide([str(audit.members[4])], "keep")
    for again in (audit, mw.Audit.open(audit.path, data=data)):
        left = again.kept()
        stays = [name not in gone for name in data.ids.tolist()]
        assert left.ids.tolist() == data.ids[stays].tolist()
        assert left.labels.tolist() == data.labels[stays].tolist()
    with pytest.raises(StoreError, match="not at hand"):
        mw.Audit.open(audit.path).kept()


def test_duplicates_of_what_goes_are_named():
    data = questions()  # p0 and p1 ask the same
    with pytest.warns(UserWarning, match="1 duplicates .* stay: p1;"):
        apply_decisions(questions(), decided(data, "remove", ["p0"]))
    assert len(apply_decisions(data, decided(data, "remove", ["p0", "p1"]))) == 4


def test_anonymised_questions_take_the_place_of_the_original():
    data = questions()
    log = decided(data, "anonymise", ["p0", "p1"])
    left = apply_decisions(data, log, {"p0": ("Someone?", ("x", "z")), "p1": "Anyone?"})
    assert (left[0].question, left[0].choices, left[0].label) == (
        "Someone?",
        ("x", "z"),
        0,
    )
    assert (left[1].question, left[1].choices, left[1].label) == (
        "Anyone?",
        ("x", "y"),
        1,
    )
    assert left.content_hashes()[0] != data.content_hashes()[0]
    assert left.content_hashes()[2:] == data.content_hashes()[2:]
    assert left.labels.tolist() == data.labels.tolist()


@pytest.mark.parametrize(
    ("texts", "facts"),
    [
        (None, r"2 samples \(p1, p2\) are to be anonymised.* texts="),
        ({"p1": "Anyone?"}, "'p2' is to be anonymised"),
        ({"p1": "Anyone?", "p3": "q"}, "'p3'.*not to be anonymised"),
        ({"p9": "q"}, "'p9'.*not in the data"),
        ({"p1": "Anyone?", "p2": ""}, "'p2': the question is empty"),
        ({"p1": "Anyone?", "p2": 7}, "'p2': the question must be a text, not 7"),
        (
            {"p1": "q", "p2": ("q", ("x", "y", "z"))},
            "has 2 options, but the new texts have 3",
        ),
        ({"p1": "q", "p2": ("q", ("x", "x"))}, "are equal"),
    ],
)
def test_new_texts_that_do_not_fit_are_named(texts, facts):
    data = questions()
    log = log_of(data)
    log.decide(["p1", "p2"], "anonymise")
    with pytest.raises(ValueError, match=facts):
        apply_decisions(data, log, texts)


def test_what_is_no_text_cannot_be_anonymised_and_strangers_are_named():
    digits = mw.data.load_digits().take(range(40))
    frame = pd.DataFrame({"a": range(40, 0, -1), "label": [0, 1] * 20})
    for data in (digits, mw.data.TableDataset.from_frame(frame)):
        with pytest.raises(ValueError, match="only texts"):
            decided(data, "anonymise", data.ids[:2])
        log = DecisionLog()  # as an editor writes the file
        log.decide(data.ids[:1].tolist(), "anonymise")
        with pytest.raises(ValueError, match="only texts can be: keep or remove"):
            apply_decisions(data, log)
        log = DecisionLog()
        log.decide(["a stranger"], "remove")
        with pytest.warns(UserWarning, match="not in the dataset: a stranger"):
            assert len(apply_decisions(data, log)) == 40
        with pytest.raises(ValueError, match="nothing left to train on"):
            apply_decisions(data, decided(data, "remove", data.ids))


# Two writers of one file, as a state machine

NAMES = ["a", "b", "'c", "=d", "e\n;f"]
WRITERS = st.integers(0, 1)


class TwoWriters(RuleBasedStateMachine):
    """Two logs of one run, against a plain table and a stack of steps for each."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.run = RunDirectory(self.folder.name)
        self.logs = [DecisionLog(self.run, class_names=["x", "y"]) for _ in range(2)]
        self.steps: list[list[dict[str, tuple[Decision, Decision]]]] = [[], []]
        self.table: dict[str, Decision] = {}

    def teardown(self):
        self.folder.cleanup()

    def _apply(self, changes):
        together = self.table | changes
        self.table = {
            name: made for name, made in together.items() if made != Decision()
        }

    @rule(
        writer=WRITERS,
        names=st.lists(st.sampled_from(NAMES), max_size=3),
        decision=st.sampled_from(
            [None, "keep", "remove", "anonymise", "undecided", "relabel"]
        ),
        note=st.none() | likely,
        to=st.sampled_from(["x", "y"]),
    )
    def decide(self, writer, names, decision, note, to):
        changes = {}
        for name in names:
            old = new = self.table.get(name, Decision())
            if decision is not None:
                new = Decision(decision, new.note, to if decision == "relabel" else "")
            new = new if note is None else replace(new, note=note)
            if new != old:
                changes[name] = old, new
        to = to if decision == "relabel" else None
        assert self.logs[writer].decide(names, decision, note, to=to) == len(changes)
        if changes:
            self.steps[writer].append(changes)
        self._apply({name: new for name, (_, new) in changes.items()})

    @rule(writer=WRITERS)
    def undo(self, writer):
        undone = self.logs[writer].undo()
        if not self.steps[writer]:
            assert undone is None
            return
        step = self.steps[writer].pop()
        back = {
            name: old
            for name, (old, new) in step.items()
            if self.table.get(name, Decision())
            == new  # not what the other changed since
        }
        assert undone == len(back)
        self._apply(back)

    @rule(writer=WRITERS)
    def open_again(self, writer):
        self.logs[writer] = DecisionLog(self.run, class_names=["x", "y"])
        self.steps[writer] = []

    @rule()
    def a_spreadsheet_saves_it(self):
        file = self.run.path / "decisions.csv"
        if file.exists():
            rows = list(
                csv.reader(
                    io.StringIO(file.read_bytes().decode("utf-8-sig"), newline="")
                )
            )
            out = io.StringIO(newline="")
            csv.writer(out, lineterminator="\r\n").writerows(rows)
            file.write_bytes(b"\xef\xbb\xbf" + out.getvalue().encode())

    @rule(writer=WRITERS)
    def look(self, writer):
        self.logs[writer].refresh()
        assert self.logs[writer].table() == self.table

    @invariant()
    def the_file_has_it_all(self):
        file = self.run.path / "decisions.csv"
        assert (
            from_csv(file.read_bytes().decode()) if file.exists() else {}
        ) == self.table
        assert [log.undo_levels for log in self.logs] == [
            len(steps) for steps in self.steps
        ]
        assert {(log.problem, log.unread) for log in self.logs} == {("", "")}


TestTwoWriters = TwoWriters.TestCase
TestTwoWriters.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None
)


# Relabelling


def test_relabelled_samples_are_kept_with_their_new_class():
    data = mw.data.load_digits().take(range(40))
    log, name = log_of(data), data.ids[3]
    new = data.class_names[data.labels[3] - 1]
    assert log.decide([name], "relabel", "a seven", to=new) == 1
    assert log[name] == Decision("relabel", "a seven", new)
    left = apply_decisions(data, log)
    assert left.class_names[left.labels[3]] == new
    assert (np.delete(left.labels, 3) == np.delete(data.labels, 3)).all()
    assert left.content_hashes() == data.content_hashes()


@pytest.mark.parametrize(
    ("names", "how", "error", "facts"),
    [
        (["7"], {"decision": "relabel"}, ValueError, "to=.*'card', 'cash'"),
        (
            ["7"],
            {"decision": "relabel", "to": "loan"},
            ValueError,
            "'loan'.*'card', 'cash'",
        ),
        (["7"], {"decision": "relabel", "to": ""}, ValueError, "''.*'card', 'cash'"),
        (["7"], {"decision": "relabel", "to": 1}, ValueError, "1.*'card', 'cash'"),
        (["7"], {"decision": "keep", "to": "card"}, ValueError, "'card'.*'relabel'"),
        (["7"], {"to": "card"}, ValueError, "'card'.*'relabel'"),
        (
            ["7"],
            {"decision": "burn"},
            ValueError,
            "'burn'; valid: 'keep', 'anonymise'.*'relabel'",
        ),
        ("7", {"decision": "keep"}, TypeError, "such as a list, not '7'"),
        ([None], {"decision": "keep"}, TypeError, "an id must be .*, not None"),
        (
            ["7", "8"],
            {"decision": "keep"},
            ValueError,
            "unknown id '8'; it is not in the data",
        ),
    ],
)
def test_what_can_not_be_decided_is_refused_and_nothing_is_decided(
    names, how, error, facts
):
    log = DecisionLog(known=["7"], class_names=["card", "cash"])
    with pytest.raises(error, match=facts):
        log.decide(names, **how)
    assert len(log) == 0


def test_an_option_that_a_question_lacks_is_no_class():
    rows = [
        {"question": f"{i}?", "choices": ["x", "y", "z"][: 2 + i % 2], "answer": i % 2}
        for i in range(6)
    ]
    data = mw.data.MCQDataset.from_records(rows)
    log = decided(data, "relabel", ["1"], to="C")
    assert apply_decisions(data, log).labels.tolist() == [0, 2, 0, 1, 0, 1]
    log.decide(["0"], "relabel", to="C")
    with pytest.raises(ValueError, match=r"'0' .*'C'.*A, B"):
        apply_decisions(data, log)
