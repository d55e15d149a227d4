"""Write the messages between a page and Python as JSDoc types, from Python's typed dictionaries.

    python -m scripts.jsdoc

writes `memowidgets/widgets/static/messages.js`. A test fails where that file is another one.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from memowidgets.widgets import messages, sent
from memowidgets.widgets.widget import STATIC

FILE = STATIC / "messages.js"
_HEAD = """\
/** Every message between a page and its kernel. Written by `python -m scripts.jsdoc`. */

/**
 * Bytes of a synced trait or message, in whatever form the host gives them.
 * @typedef {DataView | ArrayBuffer | ArrayBufferView} Bytes
 */
"""
_NAMES = {
    int: "number",
    float: "number",
    str: "string",
    bool: "boolean",
    bytes: "Bytes",
    NoneType: "null",
}


def spelled(kind: Any) -> str:
    """Return a type of Python as JSDoc spells it.

    Examples
    --------
    >>> spelled(list[float | None]), spelled(dict[str, tuple[int, str]])
    ('(number | null)[]', 'Record<string, [number, string]>')
    """
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Literal:
        return " | ".join(f'"{one}"' for one in arguments)
    if origin in (Union, UnionType):
        return " | ".join(map(spelled, arguments))
    if origin is list:
        inner = spelled(arguments[0])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if origin is tuple:
        return f"[{', '.join(map(spelled, arguments))}]"
    if origin is dict:
        return f"Record<string, {spelled(arguments[1])}>"
    return _NAMES.get(kind) or str(kind.__name__)


def remarks_in(message: type) -> dict[str, str]:
    """Return the comment above each part of a message that has one."""
    source = inspect.getsource(message)
    return {part: text for text, part in re.findall(r"# (.*)\n    (\w+): ", source)}


def typedef(message: Any) -> str:
    """Return a message as a JSDoc type."""
    remarks = remarks_in(message)
    said = inspect.getdoc(message) or ""
    lines = said.replace("``", "`").split("\n")
    lines.append(f"@typedef {{object}} {message.__name__}")
    for part, kind in messages.fields(message).items():
        name = f"[{part}]" if part in message.__optional_keys__ else part
        remark = f"  {remarks[part]}" if part in remarks else ""
        lines.append(f"@property {{{spelled(kind)}}} {name}{remark}")
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return f"/**\n{body}\n */\n"


def messages_of(module: ModuleType) -> list[Any]:
    """Return the typed dictionaries that a module defines, in its order."""
    kinds = [kind for kind in vars(module).values() if is_typeddict(kind)]
    return [kind for kind in kinds if kind.__module__ == module.__name__]


def as_javascript() -> str:
    """Return the text of `messages.js`."""
    kinds = [*messages_of(messages), *messages_of(sent)]
    parts = [_HEAD, *map(typedef, kinds)]
    for name, union in (
        ("FromPage", messages.FromPage),
        ("FromKernel", sent.FromKernel),
    ):
        parts.append(f"/** @typedef {{{spelled(union)}}} {name} */\n")
    parts.append("export {};\n")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(FILE).write_text(as_javascript(), "utf-8")
