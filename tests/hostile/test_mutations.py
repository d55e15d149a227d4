"""A run that somebody broke never gives another number without a word.

Every mutation is tried with everything that is asked afterwards, of an audit that is opened after
it, and of one that was open before. The answer is the whole run's, or an error in words, or it
comes with a warning that names the file.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import memowidgets as mw
from memowidgets.store import StoreError
from tests.hostile import mutations, questions
from tests.hostile.mutations import Mutation
from tests.hostile.questions import Answer
from tests.hostile.run import Victim, data, made, twins

WHEN = ("opened after", "open before")
IN_WORDS = (StoreError, ValueError, FileNotFoundError, PermissionError)


@dataclass(frozen=True)
class Clean:
    """The whole run, its twins, and what it answers."""

    victim: Victim
    twins: dict[str, Victim]
    answers: dict[str, Answer]


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Clean:
    folder = tmp_path_factory.mktemp("hostile")
    victim = made(folder / "victim", data())
    asked = victim.at(folder / "asked")
    every = questions.QUICK | questions.WRITING
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = {name: ask(asked.open(), folder) for name, ask in every.items()}
    return Clean(victim, twins(folder, victim.data), answers)


@pytest.fixture(scope="module")
def pairs_tried() -> Iterator[list[str]]:
    tried: list[str] = []
    yield tried
    print(f"\n{len(tried)} pairs of a mutation and a question were tried")


def verdict(
    clean: Clean, mutation: Mutation, name: str, opened, folder: Path, said: list[str]
) -> str | None:
    """What is wrong with the answer to one question; None where nothing is.

    `said` grows by the warnings: what was said of an audit counts for its later answers too.
    """
    ask = (questions.QUICK | questions.WRITING)[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = ask(opened(), folder)
        except IN_WORDS as error:
            return None if str(error).strip() else f"{name}: an error without words"
        except Exception as error:
            return f"{name}: raw {type(error).__name__}: {error}"
        finally:
            said += [str(warning.message) for warning in caught]
    if questions.same(answer, clean.answers[name]) or names(mutation, " ".join(said)):
        return None
    return f"{name}: another answer without a word ({said!r})"


def names(mutation: Mutation, said: str) -> bool:
    """Whether a warning says which file is meant."""
    parts = [part for part in mutation.file.split("/") if "*" not in part]
    return any(part.removesuffix(".safetensors") in said for part in parts)


def wrong(clean: Clean, mutation: Mutation, tmp_path: Path, asked, tried: list[str]) -> list[str]:
    """All that is wrong after one mutation."""
    found = []
    for when in WHEN if mutation.moves_what_is_there else WHEN[:1]:
        place = tmp_path / when.replace(" ", "-")
        copy = clean.victim.at(place)
        opened = cache(copy.open)
        if when == "open before":
            _answers_everything(opened(), clean, asked, tmp_path)
        mutation.apply(place)
        said: list[str] = []
        for name in asked:
            tried.append(f"{mutation.name}, {when}: {name}")
            answer = verdict(clean, mutation, name, opened, tmp_path, said)
            if answer is not None:
                found.append(f"{when}, {answer}")
        shutil.rmtree(place)
    return found


def _answers_everything(audit: mw.Audit, clean: Clean, asked, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in asked:
            if name in questions.QUICK:
                assert questions.same(questions.QUICK[name](audit, folder), clean.answers[name])


@pytest.mark.slow
def test_no_mutation_gives_another_number_without_a_word(clean, tmp_path, pairs_tried):
    outside = tmp_path / "outside"
    outside.mkdir()
    bad = {
        mutation.name: problems
        for mutation in mutations.every_mutation(clean.twins, outside)
        if (problems := wrong(clean, mutation, tmp_path, questions.QUICK, pairs_tried))
    }
    lines = [f"{name}: {problem}" for name, found in bad.items() for problem in found]
    assert not lines, f"{len(lines)} of {len(pairs_tried)} pairs:\n" + "\n".join(lines)


@pytest.mark.slow
def test_what_is_written_from_a_broken_run_is_true_as_well(clean, tmp_path, pairs_tried):
    """Reports and forks cost more: each kind of file is broken in one way."""
    outside = tmp_path / "outside"
    outside.mkdir()
    seen: set[str] = set()
    lines = []
    for mutation in mutations.every_mutation(clean.twins, outside):
        if mutation.file in seen or " of another seed" not in mutation.name:
            continue
        seen.add(mutation.file)
        problems = wrong(clean, mutation, tmp_path, questions.WRITING, pairs_tried)
        lines += [f"{mutation.name}: {problem}" for problem in problems]
    assert not lines, "\n".join(lines)


@pytest.mark.slow
def test_the_rule_notices_a_wrong_number(clean, tmp_path):
    """The test can fail: a run that is not the victim's at all gives other answers."""
    twin = clean.twins["another seed"]
    mutation = Mutation("none", "nothing", lambda _run: None)
    for name in ("checkpoints", "score", "log_lira", "evaluate", "as_target"):
        assert verdict(clean, mutation, name, twin.open, tmp_path, []) is not None
