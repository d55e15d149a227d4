"""Write the three files of a report, each atomically."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from memowidgets.files import check_outside_runs, checked_path, fill, replaced
from memowidgets.report.machine import as_json
from memowidgets.report.markdown import as_markdown
from memowidgets.report.page import as_page
from memowidgets.visible import visible

if TYPE_CHECKING:
    from memowidgets.report.content import Content

__all__ = ["checked_targets", "write"]

_ENDINGS = (".html", ".htm")


def checked_targets(path: str | os.PathLike[str], *, overwrite: bool) -> tuple[Path, Path, Path]:
    """Return the paths of the page, the Markdown and the JSON file after checking them.

    Raises
    ------
    ValueError
        If the path does not end in ``.html``, or lies in a run directory.
    FileNotFoundError
        If its folder is not there.
    FileExistsError
        If one of the three is there and may not be overwritten, or is no file.
    """
    page = checked_path(path).absolute()
    if page.suffix.lower() not in _ENDINGS:
        raise ValueError(f"the report is a page: its path must end in .html, not {page.name!r}")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {page.parent}: make it first")
    check_outside_runs(page.parent)
    targets = page, page.with_suffix(".md"), page.with_suffix(".json")
    for target in targets:
        if not os.path.lexists(target):
            continue
        if not target.is_file():
            raise FileExistsError(f"{target} is there and is no file: choose another path")
        if not overwrite:
            raise FileExistsError(
                f"{target} is there already: choose another path, or pass overwrite=True"
            )
    return targets


def write(content: Content, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the page, and the ``.md`` and ``.json`` files beside it.

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
        page: as_page(content),
        markdown: as_markdown(content, page.name),
        machine: as_json(content),
    }
    mode = 0o666 if content.samples is None else 0o600
    try:
        with ExitStack() as unfinished:  # left in reverse: the page gets its name last
            for target, text in texts.items():
                temporary = unfinished.enter_context(replaced(target, mode))
                fill(temporary, text.encode("utf-8", "replace"))
            checked_targets(path, overwrite=overwrite)  # another process may have been faster
    except FileExistsError:
        raise
    except OSError as error:
        why = visible(error.strerror or str(error), 200)
        raise OSError(
            f"the report {visible(str(page))} cannot be written ({why}): choose another path, or "
            "make room and make the folder writable"
        ) from error
    return page
