"""Text of others as one line in which nothing is hidden; pure, no other room."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["listed", "quoted", "visible"]

_SPACE = re.compile(r"\s+")
_UNSEEN = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


def visible(text: str, most: int | None = None) -> str:
    r"""A text as one line; what can't be seen, or turns letters round, shows as its number.

    Parameters
    ----------
    text : str
        From anywhere: a terminal that prints the result runs no escape sequence of it.
    most : int, optional
        Characters at most; a longer one ends in ``…``.

    Examples
    --------
    >>> visible("a\n b\x1b[31m\u202e")
    'a b⟨U+001B⟩[31m⟨U+202E⟩'
    >>> visible("long", most=3)
    'lo…'
    """
    line = text if most is None else text[: 4 * most]  # spaces may go
    line = _SPACE.sub(" ", line)
    if most is not None and len(line) > most:
        line = f"{line[: most - 1]}…"
    return "".join(map(_shown, line))


def _shown(character: str) -> str:
    hidden = unicodedata.category(character) in {"Cc", "Cs"} or _UNSEEN.match(character)
    return f"⟨U+{ord(character):04X}⟩" if hidden else character


def quoted(text: object, most: int = 40) -> str:
    r"""A name of others as an error quotes it: in quotation marks, visible, and cut.

    Parameters
    ----------
    text : object
        A file name, an id, a class: whatever came from a file or from the user.
    most : int
        Characters at most, between the marks.

    Examples
    --------
    >>> print(quoted("dark\u202egpj.exe"))
    'dark⟨U+202E⟩gpj.exe'
    """
    return f"'{visible(str(text), most)}'"


def listed(texts: Iterable[object], most: int = 20, each: int = 40) -> str:
    r"""Names of others as an error lists them, separated by commas: visible, cut, and not too many.

    Parameters
    ----------
    texts : iterable of object
        The names.
    most : int
        Names at most; the number of the others follows.
    each : int
        Characters of a name at most.

    Examples
    --------
    >>> listed(["cat", "dog\x1b[2J", "horse"], most=2)
    'cat, dog⟨U+001B⟩[2J and 1 more'
    """
    names = [visible(str(text), each) for text in texts]
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
