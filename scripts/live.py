"""What moves on the site: recorded audits and playgrounds as parts of a page, without a kernel.

`conf.py` puts them where a page says ``{live}``. Everything that a part needs stands in the page
itself, so it also moves when the page is opened from disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memowidgets.audit.views.recorded import (
    RECORDINGS,
    STATIC,
    Moving,
    UnknownPartError,
    recorded_audit,
    table,
)
from memowidgets.widgets import widget

if TYPE_CHECKING:
    from memowidgets.audit import Audit

__all__ = ["KINDS", "STILLS", "Moving", "UnknownPartError", "part"]

FOLDER = Path(__file__).parents[1] / "docs" / "live"
STILLS = "_static/stills/"  # in the site's root
PLAYGROUNDS = {
    "watch": "MemorizationPlayground",
    "psmi": "PSMIPlayground",
    "lira": "LiRAPlayground",
    "theorem": "TheoremPlayground",
}


def part(kind: str, name: str) -> Moving:
    """Return a moving part.

    Parameters
    ----------
    kind : {"audit", "first", "hands", "playground"}
        A recorded audit; a guess that leads to it; the guess of a class; or a playground.
    name : str
        Of the recording or the playground.

    Raises
    ------
    UnknownPartError
        If there is no such kind, recording or playground, or the recording cannot be read.
    """
    if kind not in KINDS:
        raise UnknownPartError(
            f"unknown kind {kind!r} of a live part; valid: {', '.join(KINDS)}"
        )
    valid = PLAYGROUNDS if kind == "playground" else RECORDINGS
    if name not in valid:
        raise UnknownPartError(f"unknown {kind} {name!r}; valid: {', '.join(valid)}")
    return KINDS[kind](name)


def audit(name: str) -> Moving:
    """Return a recorded audit as its dashboard."""
    style = widget.style(*widget.STYLES, STATIC / "live.css")
    return recorded_audit(
        _opened(name), RECORDINGS[name], FOLDER / "recorded.js", style
    )


def first(name: str) -> Moving:
    """Return a guess on a recorded audit, which leads to its dashboard."""
    from memowidgets.commands.demo import first_page

    return first_page(_opened(name))


def hands(name: str) -> Moving:
    """Return the guess of a whole class on a recorded audit, which leads to its dashboard."""
    from memowidgets.commands.demo import first_page

    return first_page(_opened(name), hands=True)


def _opened(name: str) -> Audit:
    from memowidgets.audit import open_recorded
    from memowidgets.store import StoreError

    try:
        return open_recorded(name)
    except (StoreError, ValueError, OSError) as error:
        raise UnknownPartError(
            f"the recorded audit {name!r} cannot be shown: {error}"
        ) from error


# -------------------------------------------------------------------- playgrounds


def playground(name: str) -> Moving:
    """Return a playground as it opens. The page computes its numbers."""
    from memowidgets import teaching
    from memowidgets.teaching.playgrounds import STYLE

    made = getattr(teaching, PLAYGROUNDS[name])()
    state = {key: value for key, value in made.get_state().items() if key not in _OURS}
    facts = made._facts()  # noqa: SLF001 - what stands in for it in a saved notebook
    title = made._title  # noqa: SLF001
    made.close()
    # A lazy image is not loaded while the still is hidden.
    image = f"<img src='{STILLS}{name}.png' alt='{title}: a still' loading='lazy'>"
    still = image + table("As it opens", facts)
    style = f"{STYLE}\n{(STATIC / 'live.css').read_text('utf-8')}"
    return Moving(name, title, still, state, FOLDER / f"{name}.js", style)


_OURS = {
    *(
        "_model_module",
        "_model_module_version",
        "_model_name",
        "_view_count",
        "layout",
        "tooltip",
    ),
    *("_view_module", "_view_module_version", "_view_name", "_dom_classes", "tabbable"),
    *("_esm", "_css", "_anywidget_id", "_experimental_cell_id"),
}

KINDS = {"audit": audit, "first": first, "hands": hands, "playground": playground}
