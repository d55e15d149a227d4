"""Anonymised texts in a file of the user's choice, readable only by its owner."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memowidgets.files import checked_path, make_private, read_whole, write_whole

_PATIENCE_SECONDS = 10


@dataclass(frozen=True)
class Edit:
    """Edited sample.

    Attributes
    ----------
    text : str
        The text, or the question of a multiple-choice sample.
    options : tuple of str
        The options of a multiple-choice sample. Empty for a plain text.
    """

    text: str
    options: tuple[str, ...] = ()


class EditsFile:
    r"""File of edited texts as JSON lines, readable only by its owner and written atomically.

    Parameters
    ----------
    path : path-like
        The file. It and its folder are created when the first text is stored.
    outside : path-like, optional
        A run directory. The file must not lie in it, because a run directory contains no text.

    Raises
    ------
    ValueError
        If the path lies in that directory or is a folder.

    Examples
    --------
    >>> import tempfile
    >>> file = EditsFile(Path(tempfile.mkdtemp()) / "edits.jsonl")
    >>> file.change({"7": Edit("Which ward?", ("A", "B"))})
    {'7': Edit(text='Which ward?', options=('A', 'B'))}
    >>> file.path.read_text()
    '{"id": "7", "question": "Which ward?", "choices": ["A", "B"]}\n'
    """

    def __init__(
        self, path: str | os.PathLike[str], outside: str | os.PathLike[str] | None = None
    ) -> None:
        self.path = checked_path(path).absolute()
        self._outside = None if outside is None else Path(outside)
        self._check_place()

    def __repr__(self) -> str:
        return f"EditsFile({str(self.path)!r})"

    def read(self) -> dict[str, Edit]:
        """Return all edited texts by id.

        Raises
        ------
        ValueError
            If a line cannot be read, or the path is not a regular file of at most 1 GiB; the
            message names it.
        OSError
            If the file cannot be read.
        """
        if not self.path.exists():
            return {}
        edits = {}
        # only \n ends a line: splitlines would also split texts at U+2028
        for number, raw in enumerate(read_whole(self.path).split(b"\n"), start=1):
            if raw.strip():
                name, edit = _parsed(raw, f"{self.path}, line {number}")
                edits[name] = edit
        return edits

    def change(self, changes: Mapping[str, Edit | None]) -> dict[str, Edit]:
        """Replace, add or (with None) remove texts, keeping what others wrote meanwhile.

        Raises
        ------
        ValueError
            If the file has other content, or it now lies inside the run directory.
        OSError
            If the file cannot be written.
        """
        self._check_place()
        with suppress(FileExistsError):  # if a file has this name, the lock fails below
            make_private(self.path.parent)
        with self._locked():
            edits = self.read()
            for name, edit in changes.items():
                edits.pop(name, None)
                if edit is not None:
                    edits[name] = edit
            write_whole(self.path.resolve(), "".join(map(_line, edits.items())).encode())
        return edits

    def _check_place(self) -> None:
        if self.path.is_dir():
            raise ValueError(f"{self.path} is a folder; choose a file in it, such as edits.jsonl")
        if self._outside is not None:
            run = self._outside.resolve()
            if self.path.resolve().is_relative_to(run):
                raise ValueError(
                    f"{self.path} lies in the run directory {run}, which must not contain texts; "
                    "choose "
                    "a file elsewhere"
                )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        place = self.path.with_name(f".{self.path.name}.lock")
        lock = FileLock(place, timeout=_PATIENCE_SECONDS, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            raise OSError(
                f"another process holds {place}; end it, and save the text again"
            ) from None
        except OSError as error:
            raise OSError(
                f"{place} cannot be written: {error.strerror or error}; choose another file"
            ) from None
        try:
            yield
        finally:
            lock.release()


def _line(entry: tuple[str, Edit]) -> str:
    name, edit = entry
    if edit.options:
        content: dict[str, Any] = {"question": edit.text, "choices": list(edit.options)}
    else:
        content = {"text": edit.text}
    return json.dumps({"id": name, **content}) + "\n"


def _parsed(raw: bytes, where: str) -> tuple[str, Edit]:
    try:
        record = json.loads(raw)
        text = record["question"] if "choices" in record else record["text"]
        name, options = record["id"], tuple(record.get("choices", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{where} is not an edited text ({error}); choose another file") from None
    if not all(isinstance(part, str) for part in (name, text, *options)):
        raise ValueError(
            f"{where} is not an edited text (a value is not text); choose another file"
        )
    return name, Edit(text, options)
