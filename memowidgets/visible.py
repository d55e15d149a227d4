"""Text of others as one line in which nothing is hidden; pure, no other room."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["visible"]

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
