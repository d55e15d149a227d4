"""Reading of rows from files, each with its place for error messages."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memowidgets.visible import first_line, quoted


@dataclass(frozen=True)
class Row:
    """One record and its place.

    Attributes
    ----------
    where : str
        ``"row 3"``, or a file and its line.
    fields : mapping
        Values of the record.
    """

    where: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Cells:
    """One line of a CSV file and its place."""

    where: str
    cells: list[str]


def rows_of_table(records: Iterable[Any]) -> list[Row]:
    """Return records from memory, numbered from 0; a `Row` keeps its place."""
    rows = []
    for number, record in enumerate(records):
        if isinstance(record, Row):
            rows.append(record)
            continue
        if not isinstance(record, Mapping):
            raise TypeError(
                f"row {number} is of type {type(record).__name__}; each row must be a mapping with "
                "'question', 'choices' and 'answer'"
            )
        rows.append(Row(f"row {number}", record))
    return rows


def read_jsonl(path: Path) -> list[Row]:
    """Read the objects of a JSON Lines file, ignoring empty lines."""
    rows = []
    # split at \n only: str.splitlines would also split texts at U+2028
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else error
            raise ValueError(f"{where}: broken JSON ({reason})") from error
        if not isinstance(record, dict):
            raise ValueError(  # noqa: TRY004  # the file's content is wrong, not an argument's type
                f"{where}: a line must be a JSON object, not a {type(record).__name__}"
            )
        rows.append(Row(where, record))
    return rows


def read_csv_cells(path: Path) -> list[Cells]:
    """Read the lines of a CSV file, with quoted line breaks, ignoring empty lines."""
    reader = csv.reader(io.StringIO(_text_of(path), newline="\n"), strict=True)
    lines, first = [], 1
    try:
        for cells in reader:
            if cells:
                lines.append(Cells(f"{path}, line {first}", cells))
            first = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {first}: broken CSV ({error})") from error
    return lines


def read_csv_table(path: Path) -> list[Row]:
    """Read a CSV file with a header as rows of text; an empty cell is None."""
    lines = read_csv_cells(path)
    if len(lines) < 2:
        raise ValueError(f"{path} is empty: it has no row below its header")
    header = [name.strip() for name in lines[0].cells]
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise ValueError(f"{path}: two columns of the header have the name {quoted(twice[0])}")
    for line in lines[1:]:
        if len(line.cells) != len(header):
            raise ValueError(
                f"{line.where}: {len(line.cells)} cells, but the header has {len(header)}"
            )
    return [
        Row(
            line.where,
            {k: v if v.strip() else None for k, v in zip(header, line.cells, strict=True)},
        )
        for line in lines[1:]
    ]


def read_parquet(path: Path) -> list[Row]:
    """Read the records of a Parquet file; this needs pyarrow."""
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(
            f"{path.name} is a Parquet file, which needs pyarrow: pip install pyarrow"
        ) from error
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise ValueError(
            f"{path} is not a whole Parquet file ({reason}); delete it and get it again"
        ) from error
    return [
        Row(f"{path}, row {number}", {str(name): value for name, value in record.items()})
        for number, record in enumerate(frame.to_dict("records"))
    ]


def _text_of(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{path} is in UTF-16; save it as UTF-8")
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].split(b"\n")
        raise ValueError(
            f"{path}, line {len(before)}: byte 0x{content[error.start]:02x} at position "
            f"{len(before[-1])} is not UTF-8; save the whole file as UTF-8"
        ) from error
