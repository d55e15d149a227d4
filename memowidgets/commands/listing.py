"""List of the runs in a folder, one line each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memowidgets.commands.runs import MANIFEST, CommandError, Run, checked_run, model_name
from memowidgets.visible import visible

DEPTH = 4
_COLUMNS = ("run", "model", "members", "epochs", "drop at ρ", "shadows", "size")
_WIDEST = 40
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class _Line:
    """Line for a run, or the reason why it cannot be read."""

    name: str
    cells: tuple[str, ...] = ()
    problem: str = ""


def listing(folder: Path) -> list[str]:
    """Return the lines to print.

    Parameters
    ----------
    folder : Path
        Folder with runs, at most four folders deep. No link is followed.

    Raises
    ------
    CommandError
        If there is no such folder.
    """
    if not folder.is_dir():
        raise CommandError(f"there is no folder {folder}")
    found = [_line(run, folder) for run in sorted(_runs(folder, DEPTH))]
    if not found:
        return [f"no run in {visible(str(folder), 200)}"]
    rows = [_COLUMNS, *((line.name, *line.cells) for line in found if line.cells)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [_laid_out(row, widths) for row in rows] if len(rows) > 1 else []
    return [*lines, *(f"{line.name}: {line.problem}" for line in found if line.problem)]


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    """Yield folders with a manifest, or with parts of a run but no manifest."""
    try:
        if any(
            (folder / part).is_file() for part in (MANIFEST, "design.safetensors", "arrays.json")
        ):
            yield folder
            return
        if depth == 0:
            return
        entries = [Path(e.path) for e in os.scandir(folder) if e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in entries:
        yield from _runs(entry, depth - 1)


def _line(run: Path, folder: Path) -> _Line:
    name = visible(str(run.relative_to(folder)), _WIDEST)
    name = visible(run.absolute().name, _WIDEST) if name == "." else name
    try:
        cells = _cells(run)
    except CommandError as error:
        return _Line(name, problem=str(error))
    return _Line(name, tuple(visible(cell, _WIDEST) for cell in cells))


def _cells(path: Path) -> tuple[str, ...]:
    run = checked_run(path)
    return (
        model_name(run.manifest),
        f"{run.members} of {len(run.manifest['ids'])}",
        f"{run.records[-1].epoch:g}" if run.records else "–",
        _drop(run),
        str(run.shadows),
        _size(path),
    )


def _drop(run: Run) -> str:
    """Return the drop of the loss at ρ, or how far it fell if it has not reached ρ."""
    if run.drop is None or len(run.records) == 1:
        return "–"
    return f"{run.drop:.1%}" if run.reached else f"not reached: {run.drop:.1%}"


def _size(run: Path) -> str:
    """Return the size of a run on disk."""
    total = 0.0
    for folder, _, files in os.walk(run):
        for file in files:
            with suppress(OSError):  # a run in training creates and removes files
                total += os.lstat(os.path.join(folder, file)).st_size  # noqa: PTH118 - of many
    unit = 0
    while total >= 1000 and unit < len(_UNITS) - 1:
        total, unit = total / 1000, unit + 1
    return f"{total:.0f} {_UNITS[unit]}" if unit < 2 else f"{total:.1f} {_UNITS[unit]}"


def _laid_out(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [text.ljust(w) if i < 2 else text.rjust(w) for i, (text, w) in _numbered(row, widths)]
    return "  ".join(cells).rstrip()


def _numbered(row: tuple[str, ...], widths: list[int]) -> Iterator[tuple[int, tuple[str, int]]]:
    yield from enumerate(zip(row, widths, strict=True))
