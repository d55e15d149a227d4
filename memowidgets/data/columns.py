"""Assignment of a CSV file's columns to question, options, answer, id and attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memowidgets.data.questions import LETTERS
from memowidgets.data.rows import Cells, Row, read_csv_cells
from memowidgets.visible import quoted

_A_NAME, _MOST_COLUMNS = 40, 12  # limits in errors: characters of a name, and columns
_KEYS = ("question", "choices", "answer", "id", "attributes")


@dataclass(frozen=True)
class _Columns:
    """Positions of the columns."""

    question: int
    choices: tuple[int, ...]
    choices_are_json: bool
    answer: int
    id: int | None
    attributes: dict[str, int]


def read_csv_rows(
    path: Path, columns: Mapping[str, Any] | None, choices: Sequence[str] | None = None
) -> list[Row]:
    """Read the questions of a CSV file as rows; `choices` are the options of every question."""
    mapping = _checked_mapping(columns, choices)
    lines = read_csv_cells(path)
    if not lines:
        raise ValueError(f"{path} is empty: it has no question")
    if _by_number(mapping):
        header, body = [str(i) for i in range(len(lines[0].cells))], lines
        mapping.setdefault("attributes", [])
    else:
        header, body = [name.strip() for name in lines[0].cells], lines[1:]
    where = _located(mapping, header, path)
    rows = [_row(line, where, len(header)) for line in body]
    return rows if choices is None else [with_choices(row, choices) for row in rows]


def rows_of_records(
    rows: Sequence[Row],
    columns: Mapping[str, Any] | None,
    choices: Sequence[str] | None,
    known: Sequence[str],
) -> list[Row]:
    """Return records with other names of their columns as rows of questions."""
    mapping = _checked_mapping(columns, choices)
    if _by_number(mapping) and mapping:
        raise TypeError("columns of a dataset are named, not numbered")
    where = _located(mapping, known, "the dataset")
    found = [_record(row, where, known) for row in rows]
    return found if choices is None else [with_choices(row, choices) for row in found]


def with_choices(row: Row, choices: Sequence[str]) -> Row:
    """Return a question with these options."""
    return Row(row.where, {**row.fields, "choices": list(choices)})


def _record(row: Row, columns: _Columns, known: Sequence[str]) -> Row:
    """Return a record as a question; options can be a list, or texts with a letter each."""
    value = row.fields
    answer, options = value[known[columns.answer]], None
    if columns.choices_are_json:
        options = value[known[columns.choices[0]]]
    elif columns.choices:
        options = [value[known[i]] for i in columns.choices]
    if isinstance(options, Mapping) and {"text", "label"} <= options.keys():
        letters, options = list(options["label"]), list(options["text"])
        answer = letters.index(answer) if answer in letters else answer
    fields: dict[str, Any] = {name: value[known[i]] for name, i in columns.attributes.items()}
    name = None if columns.id is None else value[known[columns.id]]
    return Row(
        row.where,
        fields
        | {
            "question": value[known[columns.question]],
            "choices": options,
            "answer": answer,
            "id": name,
        },
    )


def _checked_mapping(
    columns: Mapping[str, Any] | None, choices: Sequence[str] | None
) -> dict[str, Any]:
    mapping = dict(columns or {})
    if choices is not None:
        if isinstance(choices, str) or len(choices) < 2:
            raise ValueError(f"choices must be two or more options, not {choices!r}")
        if "choices" in mapping:
            raise ValueError("choices and columns['choices'] cannot be combined; pass one of them")
        mapping["choices"] = ()  # no column has options
    unknown = [key for key in mapping if key not in _KEYS]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in columns; valid: {', '.join(_KEYS)}")
    return mapping


def _by_number(mapping: Mapping[str, Any]) -> bool:
    named = [one for value in mapping.values() for one in _as_list(value)]
    kinds = {type(one) for one in named}
    if not kinds <= {str} and not kinds <= {int}:
        raise TypeError("columns must be all names or all numbers")
    return kinds == {int}


def _located(mapping: Mapping[str, Any], header: Sequence[str], path: Path | str) -> _Columns:
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise ValueError(f"{path}: the column {_shown(twice[0])} occurs twice in the header")
    choices = _as_list(mapping.get("choices", _default_choices(header)))
    question = _position(mapping.get("question", "question"), "question", header, path)
    answer = _position(mapping.get("answer", "answer"), "answer", header, path)
    options = tuple(_position(one, "choices", header, path) for one in choices)
    name = mapping.get("id", "id" if "id" in header else None)
    number = None if name is None else _position(name, "id", header, path)
    used = {question, answer, number, *options}
    others = [header[i] for i in range(len(header)) if i not in used]
    attributes = _as_list(mapping.get("attributes", others))
    return _Columns(
        question,
        options,
        len(options) == 1,
        answer,
        number,
        {str(one): _position(one, "attributes", header, path) for one in attributes},
    )


def _default_choices(header: Sequence[str]) -> list[str]:
    if "choices" in header:
        return ["choices"]
    for letters in (LETTERS, LETTERS.lower()):
        found = [letter for letter in letters if letter in header]
        if found:
            return found
    return ["choices"]


def _position(column: str | int, what: str, header: Sequence[str], path: Path | str) -> int:
    if isinstance(column, int):
        if not 0 <= column < len(header):
            raise ValueError(
                f"{path} has the columns 0 to {len(header) - 1}, but not the column "
                f"{column} for {what!r}"
            )
        return column
    if column not in header:
        raise ValueError(
            f"{path} has no column {quoted(column)} for {what!r}; its columns: "
            f"{known_columns(header)}. Assign them with columns={{{what!r}: …}}, by number if "
            "the first line is not a header"
        )
    return header.index(column)


def known_columns(header: Sequence[str]) -> str:
    """Return the first columns; without a header they are the texts of a sample."""
    more = len(header) - _MOST_COLUMNS
    names = ", ".join(map(_shown, header[:_MOST_COLUMNS]))
    return f"{names} and {more} more" if more > 0 else names


def _shown(name: str) -> str:
    """Return a column's name, or the length of a long text, because it may be a sample."""
    if len(name) <= _A_NAME:
        return quoted(name)
    return f"a text of {len(name)} characters"


def _row(line: Cells, columns: _Columns, width: int) -> Row:
    cells = line.cells
    if len(cells) != width:
        raise ValueError(f"{line.where}: {len(cells)} cells, but the first line has {width}")
    fields: dict[str, Any] = {name: cells[i] for name, i in columns.attributes.items()}
    fields |= {
        "question": cells[columns.question],
        "choices": _options(line, columns),
        "answer": cells[columns.answer],
        "id": None if columns.id is None else cells[columns.id],
    }
    return Row(line.where, fields)


def _options(line: Cells, columns: _Columns) -> Any:
    if columns.choices_are_json:
        try:
            return json.loads(line.cells[columns.choices[0]])
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{line.where}: the choices are in one column, so they must be a JSON list "
                f"({error})"
            ) from error
    options = [line.cells[i] for i in columns.choices]
    while options and not options[-1].strip():
        options.pop()
    return options


def _as_list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | int) else list(value)
