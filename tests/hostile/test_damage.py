"""A run that is damaged is refused in words or made again, and never gives another number.

A state machine damages files of a run, asks what an audit answers, opens it again, and lets it go
on. An answer is the whole run's, or it comes with an error or a warning in words.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import memowidgets as mw
from memowidgets.store import REVISION, StoreError
from tests.hostile import victim
from tests.hostile.forged import KINDS, SPARSE, put

IN_WORDS = (StoreError, ValueError, FileNotFoundError, PermissionError)


def cut(file: Path, share: float) -> None:
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])


def flip_head(file: Path, share: float) -> None:
    """Change a byte of the header before the arrays, or of a text."""
    content = bytearray(file.read_bytes())
    end = len(content)
    if file.suffix == ".safetensors":
        end = min(end, 8 + int.from_bytes(content[:8], "little"))
    if content:
        content[int(share * (end - 1))] ^= 0x04
    file.write_bytes(bytes(content))


def flip_body(file: Path, share: float) -> None:
    """Change a number of each array by far; leave what is no whole file of arrays."""
    if file.suffix != ".safetensors":
        return
    content = bytearray(file.read_bytes())
    with suppress(ValueError, LookupError, TypeError):
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:begin])
        header.pop("__metadata__")
        for entry in header.values():
            first, last = (begin + offset for offset in entry["data_offsets"])
            place = first + int(share * (last - first))
            for i in range(max(first, place - 3), min(place + 1, last)):
                content[i] ^= 0x44
    file.write_bytes(bytes(content))


def lose(file: Path, _share: float) -> None:
    file.unlink()


def link(file: Path, share: float) -> None:
    """Replace a file by a link to a changed copy outside of the run."""
    target = Path(tempfile.mkdtemp()) / file.name
    shutil.copy(file, target)
    flip_head(target, share)
    file.unlink()
    file.symlink_to(target)


FLIPS = {"flip head": flip_head, "flip body": flip_body}
DAMAGES = {"cut": cut, **FLIPS, "lose": lose, "link": link}
DAMAGES |= {kind: lambda file, _share, kind=kind: put(kind, file) for kind in KINDS}


def files(run: Path) -> list[Path]:
    """Return the files that a run is read from, but for decisions.csv, which people may delete.

    A sparse file is left as it is: to read or copy it would fill the memory or the disk.
    """
    found = (p for p in run.rglob("*") if p.is_file() and not p.is_symlink())
    small = (p for p in found if p.stat().st_size < SPARSE)
    ours = (".json", ".safetensors")
    return sorted(p for p in small if p.suffix in ours or p.name == REVISION)


class Clean:
    """The whole run, its twins, and what it answers."""

    whole: Path
    twins: dict[str, Path]
    answers: dict[str, victim.Answer]


@pytest.fixture(scope="module", autouse=True)
def _clean(whole, answers, stranger, tmp_path_factory):
    in_reverse = victim.data().take(range(len(victim.data()) - 1, -1, -1))
    reordered = victim.made(tmp_path_factory.mktemp("reordered") / "run", in_reverse)
    Clean.whole, Clean.answers = whole, answers
    Clean.twins = {"another seed": stranger, "another order": reordered}


class Damaged(RuleBasedStateMachine):
    """Damage, question, opening and going on, in any order."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.run = shutil.copytree(Clean.whole, self.folder / "run")
        self.audit: mw.Audit | None = None
        self.said: list[str] = []  # by the audit that is open now
        self.damaged: list[Path] = []

        self.disk = ExitStack()

    def teardown(self) -> None:
        self.disk.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(
        pick=st.integers(0, 10**6),
        how=st.sampled_from(sorted(DAMAGES)),
        share=st.floats(0, 1),
    )
    def damage(self, pick: int, how: str, share: float) -> None:
        if (file := self.picked(pick)) is not None:
            DAMAGES[how](file, share)

    @rule(share=st.floats(0, 1))
    def flip_decisions(self, share: float) -> None:
        self.damaged.append(self.run / "decisions.csv")
        flip_head(self.damaged[-1], share)

    @rule(pick=st.integers(0, 10**6), other=st.integers(0, 10**6), both=st.booleans())
    def take_another_files_place(self, pick: int, other: int, both: bool) -> None:
        one, two = self.picked(pick), self.picked(other)
        of_one_pass = (
            one is not None and two is not None and one.parents[1] == two.parents[1]
        )
        if (
            one is not None
            and two is not None
            and not (of_one_pass and "scores" in one.parts)
        ):
            kept = one.read_bytes()
            one.write_bytes(two.read_bytes())
            if both:
                two.write_bytes(kept)

    @rule(
        pick=st.integers(0, 10**6),
        which=st.sampled_from(["another seed", "another order"]),
    )
    def take_a_file_of_a_twin(self, pick: int, which: str) -> None:
        if (file := self.picked(pick)) is not None:
            theirs = Clean.twins[which] / file.relative_to(self.run)
            if theirs.exists():
                shutil.copy(theirs, file)

    @rule(fault=st.sampled_from([errno.ENOSPC, errno.EROFS]))
    def refuse_to_write(self, fault: int) -> None:
        """The disk is full, or the run is on one that can only be read."""

        def refused(path, flags, *mode, **how):
            if flags & os.O_CREAT and str(path).startswith(str(self.folder)):
                raise OSError(fault, os.strerror(fault), str(path))
            return opens(path, flags, *mode, **how)

        self.write_again()
        opens = os.open
        self.disk.enter_context(mock.patch("memowidgets.files.os.open", refused))

    @rule()
    def write_again(self) -> None:
        self.disk.close()

    @rule()
    def go_back(self) -> None:
        """The folder is an older copy from here on, with the revision that it had."""
        shutil.rmtree(self.run)
        shutil.copytree(Clean.whole, self.run)

    @precondition(lambda self: self.audit is not None)
    @rule()
    def another_goes_on(self) -> None:
        """Another process makes what is missing, while this audit is open."""

        def work() -> None:
            other = victim.opened(self.run)
            other.train()
            victim.fill(other)

        self.asked(work)

    @rule()
    def open(self) -> None:
        self.said = []
        self.audit = self.asked(lambda: victim.opened(self.run))

    @precondition(lambda self: self.audit is not None)
    @rule(name=st.sampled_from(sorted(victim.QUESTIONS)))
    def ask(self, name: str) -> None:
        found = self.asked(lambda: victim.QUESTIONS[name](self.audit))
        same = found is None or victim.same(found, Clean.answers[name])
        assert same or self.is_said(), (
            f"{name}: another answer without a word ({self.said})"
        )

    @precondition(lambda self: self.audit is not None)
    @rule()
    def go_on(self) -> None:
        """What is missing is made again, so afterwards every number is the whole run's."""

        def work() -> bool:
            self.audit.train()
            victim.fill(self.audit)
            return True

        if self.asked(work):
            self.open()

    def picked(self, pick: int) -> Path | None:
        there = files(self.run)
        if not there:
            return None
        self.damaged.append(there[pick % len(there)])
        return self.damaged[-1]

    def is_said(self) -> bool:
        """Whether a warning names a damaged file, by its name, its checkpoint or its number."""
        parts = {
            part.removesuffix(".safetensors")
            for file in self.damaged
            for part in file.relative_to(self.run).parts
        }
        return any(part in said for part in parts for said in self.said)

    def asked(self, call):
        """Return the answer, or None after an error in words; remember what was said."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return call()
            except IN_WORDS as error:
                if isinstance(error, json.JSONDecodeError | UnicodeError):
                    raise
                self.said.append(str(error))
                return None
            finally:
                self.said += [str(warning.message) for warning in caught]


def tried(n: int, steps: int) -> settings:
    how = {
        "phases": (Phase.generate, Phase.shrink),
        "deadline": None,
        "derandomize": True,
    }
    how["suppress_health_check"] = list(HealthCheck)
    return settings(max_examples=n, stateful_step_count=steps, **how)


def test_no_damage_gives_another_number_without_a_word():
    run_state_machine_as_test(Damaged, settings=tried(4, 10))


@pytest.mark.slow
def test_much_damage_gives_no_other_number_without_a_word():
    run_state_machine_as_test(Damaged, settings=tried(50, 15))


QUICK = ("checkpoints", "score", "log_lira", "trace", "as_target", "reference")


@pytest.mark.parametrize("how", ["cut", *FLIPS, "lose", "link", "FIFO"])
def test_each_kind_of_file_alone(how):
    """One of those whose names differ in numbers alone is damaged, and all that is quick asked."""
    wrong = []
    place = Clean.whole
    kinds = {
        re.sub(r"\d+", "n", str(file.relative_to(place))): file for file in files(place)
    }
    for number, file in enumerate(kinds.values()):
        machine = Damaged()
        machine.begin()
        name = file.relative_to(place)
        machine.damaged.append(machine.run / name)
        DAMAGES[how](machine.run / name, 0.99 if number % 2 else 0.5)
        machine.open()
        for question in QUICK:
            if machine.audit is not None:
                try:
                    machine.ask(question)
                except Exception as error:
                    wrong.append(f"{name}: {type(error).__name__}: {error}")
        machine.teardown()
    assert not wrong, "\n".join(wrong)


def test_the_rule_notices_a_wrong_number():
    """The machine can fail: a run that is not the victim's at all gives other answers."""
    machine = Damaged()
    machine.begin()
    machine.audit = victim.opened(Clean.twins["another seed"])
    for name in ("checkpoints", "score", "log_lira", "evaluate", "as_target"):
        with pytest.raises(AssertionError, match="another answer without a word"):
            machine.ask(name)
    machine.teardown()
