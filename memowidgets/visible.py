"""Untrusted text as one line in which nothing is hidden. This room imports no other."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

HALF_CHARACTERS = re.compile("[\ud800-\udfff]")  # lone surrogates, which no file can hold
_SPACE = re.compile(r"\s+")
_UNSEEN = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


def visible(text: str, most: int | None = None) -> str:
    r"""Return a text as one line, with invisible or direction-changing characters as numbers.

    Parameters
    ----------
    text : str
        Text from any source. A terminal that prints the result runs no escape sequence of it.
    most : int, optional
        Maximum number of characters. A longer text ends in ``…``.

    Examples
    --------
    >>> visible("a\n b\x1b[31m\u202e")
    'a b⟨U+001B⟩[31m⟨U+202E⟩'
    >>> visible("long", most=3)
    'lo…'
    """
    line = text if most is None else text[: 4 * most]  # because spaces may be merged
    line = _SPACE.sub(" ", line)
    if most is not None and len(line) > most:
        line = f"{line[: most - 1]}…"
    return "".join(map(_shown, line))


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error's message that is not empty, or else its type.

    Examples
    --------
    >>> first_line(ValueError("  no such file\n  in the folder"))
    'no such file'
    >>> first_line(RuntimeError())
    'RuntimeError'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shown(character: str) -> str:
    hidden = unicodedata.category(character) in {"Cc", "Cs"} or _UNSEEN.match(character)
    return f"⟨U+{ord(character):04X}⟩" if hidden else character


def quoted(text: object, most: int = 40) -> str:
    r"""Return an untrusted name for an error message: in quotation marks, visible, and cut.

    Parameters
    ----------
    text : object
        File name, id, class name, or whatever came from a file or the user.
    most : int
        Maximum number of characters between the quotation marks.

    Examples
    --------
    >>> print(quoted("dark\u202egpj.exe"))
    'dark⟨U+202E⟩gpj.exe'
    """
    return f"'{visible(str(text), most)}'"


def listed(texts: Iterable[object], most: int = 20, each: int = 40) -> str:
    r"""Return untrusted names for an error message: separated by commas, visible, and cut.

    Parameters
    ----------
    texts : iterable of object
        The names.
    most : int
        Maximum number of names. The number of the others follows.
    each : int
        Maximum number of characters of a name.

    Examples
    --------
    >>> listed(["cat", "dog\x1b[2J", "horse"], most=2)
    'cat, dog⟨U+001B⟩[2J and 1 more'
    """
    names = [visible(str(text), each) for text in texts]
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
