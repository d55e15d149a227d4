"""Join front-end modules and style sheets into the one text that a widget or a page takes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
STYLES = ("shared", "bar", "explorer", "compare", "inspector", "opened")
_IMPORT = re.compile(r'^import\s*(\{[^}]*\}|\w+)\s*from\s*"([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const)\*? (\w+))", re.MULTILINE)
_DEFAULT = re.compile(r"^export default ", re.MULTILINE)
_DOCUMENTATION = re.compile(r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/\n", re.MULTILINE)


@cache
def script(entry: str | Path) -> str:
    """Return a widget's ES module, joined with all modules that it imports.

    Parameters
    ----------
    entry : str or Path
        A module with a default export: its file, or its name in ``widgets/static``.

    Returns
    -------
    str
        One module without imports. JSDoc comments are left out, because every saved notebook
        holds this text.
    """
    file = STATIC / f"{entry}.js" if isinstance(entry, str) else entry
    return f"{scripts(file)}\nexport default {_variable(file)}.default;\n"


@cache
def page_script(file: Path) -> str:
    """Return a module and all that it imports as the one script of a page."""
    return f'"use strict";\n(() => {{\n{scripts(file)}\n}})();\n'


def scripts(file: Path) -> str:
    """Return a module and all that it imports as plain statements, imported ones first.

    Each module is a function of its own, so two modules may use the same name.
    """
    found: dict[Path, str] = {}
    _collect(file.resolve(), found)
    return "\n".join(found.values())


@cache
def style(*sheets: str | Path) -> str:
    """Return style sheets as one text; by default those of all widgets.

    All widgets have the same text, so it does not matter which one is shown first.

    Parameters
    ----------
    *sheets : str or Path
        Files, or names in ``widgets/static``.
    """
    files = (STATIC / f"{s}.css" if isinstance(s, str) else s for s in sheets or STYLES)
    return "\n".join(file.read_text("utf-8") for file in files)


def _collect(file: Path, found: dict[Path, str]) -> None:
    if file in found:
        return
    text = file.read_text("utf-8")
    for _, imported in _IMPORT.findall(text):
        _collect((file.parent / imported).resolve(), found)
    found[file] = _wrapped(file, text)


def _wrapped(file: Path, text: str) -> str:
    """Return a module as a function that returns its exports."""
    exported = _EXPORT.findall(text)
    body = _DOCUMENTATION.sub("", _EXPORT.sub("", _IMPORT.sub(_binding, text)))
    if _DEFAULT.search(body):
        body = _DEFAULT.sub("const $default = ", body)
        exported.append("default: $default")
    exports = ", ".join(exported)
    return f"const {_variable(file)} = (() => {{\n{body}return {{ {exports} }};\n}})();"


def _binding(statement: re.Match[str]) -> str:
    names, path = statement.groups()
    target = names.replace(" as ", ": ") if names.startswith("{") else f"{{ default: {names} }}"
    return f"const {target} = {_variable(Path(path))};\n"


def _variable(file: Path) -> str:
    return f"${file.stem}"
