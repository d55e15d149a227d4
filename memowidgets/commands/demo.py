"""A guess on a recorded audit, and its dashboard below, as one page that a browser opens."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memowidgets.commands.runs import CommandError, check_free, refusing
from memowidgets.files import write_whole
from memowidgets.vocabulary import visible

if TYPE_CHECKING:
    from memowidgets.audit import Audit
    from memowidgets.audit.views.recorded import Moving

RECORDING = "patients-smollm2"
TITLE = "Which three will the model memorise?"


def demo(
    out: Path | None = None, *, browser: bool = True, overwrite: bool = False
) -> Iterator[str]:
    """Write a page that asks for a guess and leads to a recorded audit's dashboard, and open it.

    Parameters
    ----------
    out : Path, optional
        Folder for the page. It is created if it does not exist. Default: a new temporary folder.
    browser : bool
        Whether to open a browser. The page's path is printed in any case.
    overwrite : bool
        Whether to replace a page that is in the folder already.

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
    check_free(page, overwrite=overwrite)
    yield TITLE
    yield "SmolLM2 learned from notes about invented patients which ward takes them."
    yield "Writing a page that lets you guess, and the dashboard of the recorded audit below."
    with refusing(folder):
        from memowidgets.audit import open_recorded

        audit = open_recorded(RECORDING)
        write_whole(page, _as_page(first_page(audit)).encode())
    yield f"The page is {visible(str(page))}"
    if browser and not webbrowser.open(page.as_uri()):
        yield "No browser was found. Open the page in one yourself."


def guess_of(audit: Audit) -> dict[str, Any]:
    """Return what is guessed on a recorded audit of patients: members by their place."""
    from memowidgets.teaching.guess import guess_content

    evidence = audit.evidence
    truth = audit.log_lira().dropna()
    data: Any = evidence.member_data  # questions
    rows = [data.ids.tolist().index(name) for name in truth.index]
    return guess_content(
        data.attributes["kind"][rows],
        audit.score("psmi")[truth.index].to_numpy(),
        truth.to_numpy(),
        audit.n_shadows,
    )


def first_page(audit: Audit, *, hands: bool = False) -> Moving:
    """Return a guess on a recorded audit, which leads to its dashboard.

    Parameters
    ----------
    audit : Audit
        A recording of patients.
    hands : bool
        Whether a class guesses by a show of hands.
    """
    from memowidgets.audit.views.recorded import RECORDINGS, STATIC, recorded_audit
    from memowidgets.teaching.guess import SHEET
    from memowidgets.widgets import widget

    style = widget.style(*widget.STYLES, SHEET, STATIC / "live.css")
    found = recorded_audit(audit, RECORDINGS[RECORDING], STATIC / "first.js", style)
    content = found.content | {"guess": guess_of(audit), "hands": hands}
    return replace(found, name="first", content=content)


def _as_page(found: Moving) -> str:
    """Return a moving part as a page that needs no other file."""
    from memowidgets.report.page import document

    body = f"<main>\n<h1>{TITLE}</h1>\n{found.body}\n</main>"
    return document(TITLE, f"{found.style}\n{_PAGE_STYLE}", found.code, body)


_PAGE_STYLE = """body { margin: 0; font-family: system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 18px 20px 24px; box-sizing: border-box; }
h1 { margin: 0 0 6px; font-size: clamp(25px, 4vw, 34px); line-height: 1.12; }
@media (max-width: 699px) { main { padding: 14px 12px 24px; } }
"""
