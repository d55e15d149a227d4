"""The playgrounds' front-end files, joined to what anywidget takes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["STATIC", "script", "style"]

STATIC = Path(__file__).parent / "static"
WIDGETS = Path(__file__).parents[1] / "widgets" / "static"
PARTS = {"psmi": (), "lira": ("chance",), "theorem": ("chance",)}
_LOCAL_IMPORT = re.compile(
    r'^import\s*\{[^}]*\}\s*from\s*"(?:\./|\.\./\.\./widgets/static/)\w+\.js";\n', re.MULTILINE
)
_COMMENT_OF_ITS_OWN = re.compile(r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/\n", re.MULTILINE)


@cache
def script(name: str) -> str:
    """The module of one playground, with those that it imports in front of it.

    Without the comments that describe and type it: every saved notebook holds this text.
    """
    own = ("kit", *PARTS[name], f"{name}_maths", f"{name}_view")
    files = (WIDGETS / "dom.js", *(STATIC / f"{part}.js" for part in own))
    joined = "\n".join(_LOCAL_IMPORT.sub("", file.read_text("utf-8")) for file in files)
    return _COMMENT_OF_ITS_OWN.sub("", joined)


@cache
def style() -> str:
    """The style sheet of all playgrounds, behind the one that all widgets share."""
    files = (WIDGETS / "shared.css", STATIC / "playground.css")
    return "\n".join(file.read_text("utf-8") for file in files)
