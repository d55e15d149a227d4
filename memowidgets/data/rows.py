"""Reading of rows from files, each with its place for error messages."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Cells", "Row", "read_csv_cells", "read_jsonl", "read_parquet", "rows_of_table"]


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
    # bytes are split at \n only: str.splitlines would also split texts at U+2028
    for number, raw in enumerate(_bytes_of(path).split(b"\n"), start=1):
        where = f"{path}, line {number}"
        line = _decoded(raw, where)
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
    text = "\n".join(
        _decoded(raw, f"{path}, line {number}")
        for number, raw in enumerate(_bytes_of(path).split(b"\n"), start=1)
    )
    return list(_parsed_csv(text, path))


def read_parquet(path: Path) -> list[Row]:
    """Read the records of a Parquet file; this needs pyarrow."""
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(
            f"{path.name} is a Parquet file, which needs pyarrow: pip install pyarrow"
        ) from error
    return [
        Row(f"{path}, row {number}", {str(name): value for name, value in record.items()})
        for number, record in enumerate(frame.to_dict("records"))
    ]


def _parsed_csv(text: str, path: Path) -> Iterator[Cells]:
    reader = csv.reader(_lines(text), strict=True)
    first = 1
    try:
        for cells in reader:
            if cells:
                yield Cells(f"{path}, line {first}", cells)
            first = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {first}: broken CSV ({error})") from error


def _lines(text: str) -> Iterator[str]:
    """Yield lines with their ends, split at line feeds only."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def _bytes_of(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{path} is in UTF-16; save it as UTF-8")
    return content.removeprefix(b"\xef\xbb\xbf")


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where}: byte 0x{raw[error.start]:02x} at position {error.start} is not UTF-8; save "
            "the whole file as UTF-8"
        ) from error
