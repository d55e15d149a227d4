"""A guess on a recorded audit and its report, opened in a browser."""

from __future__ import annotations

import json
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memowidgets.commands.runs import CommandError, check_free, refusing
from memowidgets.files import write_whole
from memowidgets.vocabulary import visible

if TYPE_CHECKING:
    from memowidgets.audit import Audit

RECORDING = "patients-smollm2"
_TITLE = "Which of these will the model memorise?"


def demo(
    out: Path | None = None, *, browser: bool = True, overwrite: bool = False
) -> Iterator[str]:
    """Write a page that asks for a guess, and the report of the recorded audit; open the former.

    Parameters
    ----------
    out : Path, optional
        Folder for the pages. It is created if it does not exist. Default: a new temporary folder.
    browser : bool
        Whether to open a browser. The page's path is printed in any case.
    overwrite : bool
        Whether to replace pages that are in the folder already.

    Yields
    ------
    str
        A line to print.

    Raises
    ------
    CommandError
        If the folder cannot be written to, or a page is there already.
    """
    folder = (
        Path(tempfile.mkdtemp(prefix="memowidgets-demo-"))
        if out is None
        else out.absolute()
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"the folder {folder} cannot be made ({error.strerror}); pass another one as --out"
        ) from None
    page = folder / "index.html"
    report = folder / f"{RECORDING}.html"
    for file in (page, report):
        check_free(file, overwrite=overwrite)
    yield _TITLE
    yield "SmolLM2 learned from notes about invented patients which ward takes them."
    yield "Writing a page that lets you guess, and the report of its recorded audit."
    with refusing(folder):
        from memowidgets.audit import open_recorded

        audit = open_recorded(RECORDING)
        # without figures, which take ten times as long as all the rest
        audit.report(
            report,
            include_samples=True,  # they are generated, so anybody may see them
            overwrite=overwrite,
            figures=False,
        )
        write_whole(page, _guess_page(audit, report.name).encode())
    yield f"The page is {visible(str(page))}"
    if browser and not webbrowser.open(page.as_uri()):
        yield "No browser was found. Open the page in one yourself."


def guess_of(audit: Audit) -> dict[str, Any]:
    """Return what the guess shows of a recorded audit of patients."""
    from memowidgets.teaching.guess import guess_content

    evidence = audit.evidence
    truth = audit.log_lira().dropna()
    data: Any = evidence.member_data  # questions
    rows = [data.ids.tolist().index(name) for name in truth.index]
    now, last = (
        int(audit.checkpoints.epoch[name])
        for name in (audit.prediction.record.name, audit.checkpoints.index[-1])
    )
    return guess_content(
        [data.questions[i] for i in rows],
        [data.choices[i][data.labels[i]] for i in rows],
        data.attributes["kind"][rows],
        audit.score("psmi")[truth.index].to_numpy(),
        truth.to_numpy(),
        (now, last),
        audit.n_shadows,
    )


def _guess_page(audit: Audit, report: str) -> str:
    """Return the guess as a page that needs no other file and leads to the report beside it."""
    from memowidgets.report.page import document
    from memowidgets.teaching.guess import SCRIPT, SHEET
    from memowidgets.widgets import widget

    held = json.dumps({**guess_of(audit), "onward": report}).replace("<", "\\u003c")
    body = (
        f"<main><h1>{_TITLE}</h1></main>\n"
        "<noscript>The guess needs JavaScript; "
        f"<a href='{report}'>the report</a> stands without.</noscript>\n"
        f"<script type='application/json' id='mw-guess-data'>{held}</script>"
    )
    style = f"{widget.style('shared', SHEET)}\n{_PAGE_STYLE}"
    return document(_TITLE, style, widget.page_script(SCRIPT), body)


_PAGE_STYLE = """body { margin: 0; font-family: system-ui, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 36px 20px; }
h1 { margin: 0 0 10px; font-size: clamp(26px, 4vw, 34px); line-height: 1.15; }
"""
