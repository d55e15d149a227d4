"""The three files of a report, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memowidgets.report.machine import as_json
from memowidgets.report.markdown import as_markdown
from memowidgets.report.page import as_page

if TYPE_CHECKING:
    from memowidgets.report.content import Content

__all__ = ["checked_targets", "write"]

_ENDINGS = (".html", ".htm")


def checked_targets(path: str | os.PathLike[str], *, overwrite: bool) -> tuple[Path, Path, Path]:
    """Where page, Markdown and JSON go.

    Raises
    ------
    ValueError
        If the path does not end in ``.html``.
    FileNotFoundError
        If its folder is not there.
    FileExistsError
        If one of the three is there and may not be overwritten, or is no file.
    """
    page = Path(path).expanduser().absolute()
    if page.suffix.lower() not in _ENDINGS:
        raise ValueError(f"the report is a page: its path must end in .html, not {page.name!r}")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {page.parent}: make it first")
    targets = page, page.with_suffix(".md"), page.with_suffix(".json")
    for target in targets:
        if not os.path.lexists(target):
            continue
        if not target.is_file():
            raise FileExistsError(f"{target} is there and is no file: choose another path")
        if not overwrite:
            raise FileExistsError(
                f"{target} is there already: choose another path, or say overwrite=True"
            )
    return targets


def write(content: Content, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the page, and beside it its twins ``.md`` and ``.json``.

    Each file is written to a temporary name and renamed, the page last. With samples in them
    they are readable by their owner alone.

    Parameters
    ----------
    content : Content
        What to say.
    path : path-like
        Of the page; it ends in ``.html``.
    overwrite : bool
        Whether files that are there are replaced.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ValueError, FileNotFoundError, FileExistsError
        As `checked_targets`.
    OSError
        If they cannot be written; then all are as they were before.
    """
    page, markdown, machine = checked_targets(path, overwrite=overwrite)
    texts = {
        machine: as_json(content),
        markdown: as_markdown(content, page.name),
        page: as_page(content),
    }
    mode = 0o666 if content.samples is None else 0o600
    written: dict[Path, Path] = {}
    try:
        for target, text in texts.items():
            written[target] = _temporary(target, text, mode)
        checked_targets(path, overwrite=overwrite)  # another process may have been faster
        for target, temporary in written.items():
            temporary.replace(target)
    finally:
        for temporary in written.values():
            with suppress(OSError):
                temporary.unlink()
    return page


def _temporary(target: Path, text: str, mode: int) -> Path:
    """A file beside the target that holds the text."""
    temporary = target.with_name(f".unfinished-{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return temporary
