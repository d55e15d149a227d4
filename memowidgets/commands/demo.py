"""The report of a recorded audit, opened in a browser."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path

from memowidgets.commands.runs import CommandError, check_free, refusing
from memowidgets.visible import visible

RECORDING = "patients-smollm2"


def demo(
    say: Callable[[str], None],
    out: Path | None = None,
    *,
    browser: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write the report of the recorded audit, and open it.

    Parameters
    ----------
    say : callable
        Function that prints a line.
    out : Path, optional
        Folder for the report. It is created if it does not exist. Default: a new temporary folder.
    browser : bool
        Whether to open a browser. The page's path is printed in any case.
    overwrite : bool
        Whether to replace a report that is in the folder already.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    CommandError
        If the folder cannot be written to, or a report is there already.
    """
    if out is not None and out.exists() and not out.is_dir():
        raise CommandError(f"{out} is not a folder; pass a folder as --out")
    folder = Path(tempfile.mkdtemp(prefix="memowidgets-demo-")) if out is None else out.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"the folder {folder} cannot be made ({error.strerror}); pass another one as --out"
        ) from None
    check_free(folder / f"{RECORDING}.html", overwrite=overwrite)
    say("Which of its training samples will this model memorise?")
    say("SmolLM2 learned from notes about invented patients which ward takes them.")
    say("Writing the report of its recorded audit, with a threshold τ that you can move.")
    with refusing(folder):
        from memowidgets.audit import open_recorded

        # without figures, which take ten times as long as all the rest
        page = open_recorded(RECORDING).report(
            folder / f"{RECORDING}.html",
            include_samples=True,  # they are generated, so anybody may see them
            overwrite=overwrite,
            figures=False,
        )
    say(f"The page is {visible(str(page))}")
    if browser and not webbrowser.open(f"{page.as_uri()}#move"):
        say("No browser was found. Open the page in one yourself.")
    return page
