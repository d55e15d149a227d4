"""The front-end files, joined to what anywidget takes: one text of script, one of style."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["script", "style"]

STATIC = Path(__file__).parent / "static"
SHARED = ("maths", "dom")
PARTS = {"explorer": ("plots",), "inspector": ("bitmap", "cards", "decide", "lira", "opened")}
STYLES = ("shared", "bar", "explorer", "inspector", "opened")
_LOCAL_IMPORT = re.compile(r'^import\s*\{[^}]*\}\s*from\s*"\./\w+\.js";\n', re.MULTILINE)


@cache
def script(name: str) -> str:
    """The module of one widget, with the shared ones in front of it."""
    names = (*SHARED, *PARTS.get(name, ()), name)
    parts = [(STATIC / f"{part}.js").read_text("utf-8") for part in names]
    return "\n".join(_LOCAL_IMPORT.sub("", part) for part in parts)


@cache
def style() -> str:
    """The style sheet of all widgets: the same text in each, so that their order is no matter."""
    return "\n".join((STATIC / f"{part}.css").read_text("utf-8") for part in STYLES)
