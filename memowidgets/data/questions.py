"""Checks of one multiple-choice question: texts, options and answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memowidgets.checks import is_missing
from memowidgets.data.rows import Row
from memowidgets.visible import quoted, visible

LETTERS = "ABCDEFGHIJ"
MOST_CHARACTERS = 20_000
_A_LETTER, _A_NUMBER = 2, 40  # characters that an error quotes of an answer
_ANSWERS = ("auto", "index", "letter", "text")
_EQUAL_OPTIONS = ("error", "keep")
_OWN_FIELDS = ("id", "question", "choices", "answer")
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Question:
    """Content of one row."""

    where: str
    id: str | None
    question: str
    choices: tuple[str, ...]
    label: int
    attributes: dict[str, str]


def checked_questions(
    rows: Sequence[Row], answers: str = "auto", equal_options: str = "error"
) -> list[Question]:
    """Return questions from rows, or raise an error that names the first bad one."""
    if answers not in _ANSWERS:
        raise ValueError(f"unknown answers {answers!r}; valid: {', '.join(map(repr, _ANSWERS))}")
    if equal_options not in _EQUAL_OPTIONS:
        raise ValueError(
            f"unknown equal_options {equal_options!r}; valid: "
            f"{', '.join(map(repr, _EQUAL_OPTIONS))}"
        )
    if not rows:
        raise ValueError("the dataset is empty: it has no question")
    questions = [_checked(row, answers, equal_options) for row in rows]
    _check_ids(questions)
    return questions


def checked_texts(
    question: Any, choices: Any, where: str, equal_options: str = "error"
) -> tuple[str, tuple[str, ...]]:
    """Return a checked question and its options, or raise."""
    options = _choices(choices, where)
    if equal_options == "error":
        _check_distinct(options, where)
    return checked_text(question, "question", where), options


def described(value: object) -> str:
    """Describe a wrong value in an error: a number or letter as it is, a text by its length.

    A notebook keeps its errors, so they must not quote what could be part of a sample.
    """
    if isinstance(value, str):
        return quoted(value) if len(value) <= _A_LETTER else f"a text of {len(value)} characters"
    if isinstance(value, int | float | np.number):
        return visible(str(value), _A_NUMBER)
    return f"of type {type(value).__name__}"


def _checked(row: Row, answers: str, equal_options: str) -> Question:
    where, fields = row.where, row.fields
    question, choices = checked_texts(
        fields.get("question"), fields.get("choices"), where, equal_options
    )
    label = _label(fields.get("answer"), choices, answers, where)
    attributes = {
        str(name): attribute_text(value)
        for name, value in fields.items()
        if name not in _OWN_FIELDS
    }
    name = fields.get("id")
    return Question(
        where, None if _missing(name) else str(name), question, choices, label, attributes
    )


def _check_ids(questions: Sequence[Question]) -> None:
    given = [q for q in questions if q.id is not None]
    if given and len(given) < len(questions):
        without = next(q for q in questions if q.id is None)
        raise ValueError(
            f"{without.where}: the id is missing, but {len(given)} other questions have one; give "
            "an id to each or to none"
        )
    seen: dict[str | None, str] = {}
    for question in given:
        if question.id in seen:
            raise ValueError(
                f"{question.where}: the id {quoted(question.id)} is already used in "
                f"{seen[question.id]}; ids must be unique"
            )
        seen[question.id] = question.where


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def checked_text(value: Any, what: str, where: str, most: int | None = MOST_CHARACTERS) -> str:
    """Return a text, or raise if it is missing, empty, too long or cannot be tokenized."""
    if is_missing(value):
        raise ValueError(f"{where}: the {what} is missing")
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: the {what} must be a text, not {described(value)}"
        )
    if not value.strip():
        raise ValueError(f"{where}: the {what} is empty")
    if most is not None and len(value) > most:
        raise ValueError(
            f"{where}: the {what} has {len(value)} characters, the limit is {most}; "
            "shorten it or leave it out (no text is cut)"
        )
    if _HALF_CHARACTERS.search(value):
        raise ValueError(
            f"{where}: the {what} has half a character (a lone surrogate), which no tokenizer "
            "can read; correct the text's encoding"
        )
    return value


def _choices(value: Any, where: str) -> tuple[str, ...]:
    if _is_missing_list(value):
        raise ValueError(f"{where}: the choices are missing")
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: choices must be a list of texts, not {described(value)}"
        )
    options = list(value)
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(
            f"{where}: a question must have 2 to {len(LETTERS)} options, not {len(options)}"
        )
    return tuple(
        checked_text(_number_as_text(option), f"option {letter}", where)
        for letter, option in zip(LETTERS, options, strict=False)
    )


def _is_missing_list(value: Any) -> bool:
    return value is None or (isinstance(value, str | float) and _missing(value))


def _number_as_text(option: Any) -> Any:
    is_number = isinstance(option, int | float | np.number) and not isinstance(option, bool)
    return str(option) if is_number and math.isfinite(option) else option


def _check_distinct(choices: tuple[str, ...], where: str) -> None:
    for position, choice in enumerate(choices):
        first = choices.index(choice)
        if first < position:
            raise ValueError(
                f"{where}: options {LETTERS[first]} and {LETTERS[position]} are equal; "
                "correct the question, or pass equal_options='keep'"
            )


def _label(answer: Any, choices: tuple[str, ...], answers: str, where: str) -> int:
    if _missing(answer):
        raise ValueError(f"{where}: the answer is missing")
    if isinstance(answer, bool | np.bool_) or not isinstance(answer, str | int | float | np.number):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: the answer must be an option's position from 0, its letter or its text, not "
            f"{described(answer)}"
        )
    readings = _readings(answer, choices, answers)
    positions = sorted({position for _, position in readings})
    if len(positions) > 1:
        raise ValueError(f"{where}: {_ambiguous(answer, readings)}")
    if not positions:
        raise ValueError(f"{where}: {_outside(answer, choices, answers)}")
    return positions[0]


def _readings(answer: Any, choices: tuple[str, ...], answers: str) -> list[tuple[str, int]]:
    """Return each possible reading of an answer, with the option it means."""
    index, letter = _as_index(answer), _as_letter(answer)
    found = [
        (kind, position)
        for kind, position in (("index", index), ("letter", letter))
        if position is not None and 0 <= position < len(choices)
    ]
    if isinstance(answer, str):
        found += [("text", i) for i, choice in enumerate(choices) if choice == answer]
    return [reading for reading in found if answers in ("auto", reading[0])]


def _as_index(answer: Any) -> int | None:
    if isinstance(answer, str):
        digits = answer.strip()
        return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 5 else None
    is_whole = not isinstance(answer, float | np.floating) or float(answer).is_integer()
    return int(answer) if is_whole else None


def _as_letter(answer: Any) -> int | None:
    letter = answer.strip().upper() if isinstance(answer, str) else ""
    return LETTERS.index(letter) if len(letter) == 1 and letter in LETTERS else None


def _ambiguous(answer: Any, readings: list[tuple[str, int]]) -> str:
    kinds = list(dict(readings))
    meanings = " and ".join(f"as {kind} option {LETTERS[position]}" for kind, position in readings)
    advice = (
        f"pass answers={' or answers='.join(map(repr, kinds))}"
        if len(kinds) > 1
        else "give its position or letter"
    )
    return f"the answer {_named(answer)}is ambiguous, it means {meanings}; {advice}"


def _outside(answer: Any, choices: tuple[str, ...], answers: str) -> str:
    last = len(choices) - 1
    meant = {
        "index": f"a position from 0 to {last}",
        "letter": f"a letter from A to {LETTERS[last]}",
        "text": "the text of an option",
    }
    valid = " or ".join(meant.values()) if answers == "auto" else meant[answers]
    return (
        f"the answer {_named(answer)}is not one of the {len(choices)} options; it must be {valid}"
    )


def _named(answer: Any) -> str:
    """Return an answer that is a number or a letter; nothing for a text."""
    is_text = isinstance(answer, str) and len(answer) > _A_LETTER
    return "" if is_text else f"{described(answer)} "


def attribute_text(value: Any) -> str:
    """Return an attribute as text, empty if there is none."""
    if _is_missing_list(value):
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
