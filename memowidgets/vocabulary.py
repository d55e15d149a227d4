"""What Python says to a reader: numbers, counts, notes, and untrusted text as one line.

Evaluation, figures, report, summary and command line take them from here. This room imports no
other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

# lone surrogates, which no file can hold
HALF_CHARACTERS = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"\s+")
_UNSEEN = re.compile(
    "[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]"
)
_UNITS = ("B", "kB", "MB", "GB", "TB")
# what a reader calls the columns of figures that are no scores
COLUMNS = {
    "log_lira": "log-LiRA",
    "attack_success_rate": "attack success rate (global LiRA)",
    "counterfactual": "counterfactual memorisation",
    "rmia": "RMIA",
    "auc": "AUC",
    "memorized": "memorised samples",
    "agreement": "Spearman's ρ of two disjoint sets",
    "overlap": "share of memorised samples that both sets find",
}
_LEAST = 0.001  # a smaller share that is not 0 is written as "< 0.1 %"
_ROUND = 0.1  # a share at least so far from 0 and 1 has no decimals


_MOST_NAMED = 5  # in the text of a note
# what a note is about; a test has one of each, and looks for names in what is shown of it
Kind = Literal[
    "copies across folds",
    "dominant rows",
    "draws not seen",
    "elsewhere",
    "equal rows",
    "few memorised",
    "few models",
    "few others",
    "fork",
    "groups",
    "imprecise",
    "jumped",
    "kept alone",
    "knows no labels",
    "label noise",
    "left out",
    "level",
    "lost models",
    "never drawn",
    "not Gaussian",
    "not learned",
    "order of samples",
    "own error",
    "own note",
    "repeated rows",
    "ridge",
    "shared noise",
    "small classes",
    "strict zero",
    "truly",
    "turn",
    "unscored",
    "unsettled",
    "wrong error of a score",
    "wrong score",
]


class Note(str):
    """What a reader of numbers must know: a sentence, then names, with a key and its numbers.

    It prints, joins and compares as the sentence with the names after it. Code chooses notes by
    `key`. Whoever may not see the samples is shown `sentence`.

    Parameters
    ----------
    key : str
        What it is about, one of `Kind`.
    sentence : str
        The sentence, without a capital or a full stop. It names no sample, row or class, and
        quotes nobody.
    names : sequence of str
        What else it says to whoever may see the samples: ids, rows, classes, words of others.
    **numbers
        The numbers that the sentence has.

    Examples
    --------
    >>> note = Note("small classes", "2 classes are small", ["cat", "dog"], n=2)
    >>> note.key, note.numbers, note.names, note.sentence
    ('small classes', {'n': 2}, ('cat', 'dog'), '2 classes are small')
    >>> print(note)
    2 classes are small: cat, dog
    """

    __slots__ = ("key", "names", "numbers", "sentence")
    key: Kind
    sentence: str
    names: tuple[str, ...]
    numbers: dict[str, float]

    def __new__(  # noqa: D102 - the class
        cls, key: Kind, sentence: str, names: Sequence[str] = (), **numbers: float
    ) -> Self:
        text = sentence
        if names:
            text += f": {', '.join(names[:_MOST_NAMED])}"
        if len(names) > _MOST_NAMED:
            text += f" and {len(names) - _MOST_NAMED} more"
        note = super().__new__(cls, text)
        note.key = key
        note.sentence = sentence
        note.names = tuple(names)
        note.numbers = numbers
        return note

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, float]]:
        return (self.key, self.sentence, self.names), self.numbers


def without_names(said: str | Exception) -> str:
    """Return what a sentence or an error says to whoever may not see the samples.

    Examples
    --------
    >>> without_names(ValueError(Note("wrong score", "one score is infinite", ["row 7"])))
    'one score is infinite'
    """
    parts = said.args if isinstance(said, Exception) else (said,)
    for part in parts:
        if isinstance(part, Note):
            return part.sentence
    return str(said)


def whole(number: float) -> str:
    """Return a count as text, with thousands separated.

    Examples
    --------
    >>> whole(1234567).split()
    ['1', '234', '567']
    """
    return f"{round(number):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def verb(count: float, one: str, many: str) -> str:
    """Return the words that go with a count."""
    return one if round(count) == 1 else many


def percent(share: float) -> str:
    """Return a share as a percentage. Only exactly 0 and 1 are written as 0 % and 100 %.

    Examples
    --------
    >>> percent(0.7564), percent(0.0312), percent(-0.963), percent(0.0)
    ('76 %', '3.1 %', '−96.3 %', '0 %')
    >>> percent(0.00004), percent(0.99999)
    ('< 0.1 %', '> 99.9 %')
    """
    if share < 0:
        return f"−{percent(-share)}"
    if 0 < share < _LEAST:
        return "< 0.1 %"
    if 1 - _LEAST < share < 1:
        return "> 99.9 %"
    near = share < _ROUND or share > 1 - _ROUND
    # a page rounds the same numbers
    shown = round(1000 * share) / 10 if near else round(100 * share)
    return f"{shown:g} %"


def between(interval: tuple[float, float]) -> str:
    """Return an interval of shares as text.

    Examples
    --------
    >>> between((0.0312, 0.25))
    '3.1 % to 25 %'
    """
    return f"{percent(interval[0])} to {percent(interval[1])}"


def estimate(value: float, interval: tuple[float, float]) -> str:
    """Return an AUC, or another number, with its interval.

    Examples
    --------
    >>> estimate(0.9213, (0.847, 0.9604))
    '0.92 (0.85 to 0.96)'
    """
    return f"{value:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"


def threshold(tau: float) -> str:
    """Return a threshold.

    Examples
    --------
    >>> threshold(0.0), threshold(-0.12)
    ('τ = 0', 'τ = −0.12')
    """
    return f"τ = {tau:.4g}".replace("-", "−", 1)


def at(tau: float) -> str:
    """Return how samples are flagged.

    Examples
    --------
    >>> at(0.0)
    'at τ = 0'
    """
    return f"at {threshold(tau)}"


def counted_flagged(flagged: float, of: float) -> str:
    """Return how many samples are flagged.

    Examples
    --------
    >>> counted_flagged(54, 798), counted_flagged(1, 9)
    ('54 of 798 samples are flagged', '1 of 9 samples is flagged')
    """
    return (
        f"{whole(flagged)} of {whole(of)} samples {verb(flagged, 'is', 'are')} flagged"
    )


def truly(expected: float, of: float | None = None) -> str:
    """Return how many of the memorised samples truly are, in words.

    Examples
    --------
    >>> truly(15.2), truly(0.4), truly(22.3, of=29)
    ('about 15 of them truly', 'probably none of them truly', 'of the 29, about 22 truly')
    """
    count = f"about {max(expected, 1):.0f}" if expected >= 0.5 else "probably none"
    if of is None:
        return f"{count} of them truly"
    return f"of the {whole(of)}, {count} truly"


def memorised(n: float, expected: float | None) -> str:
    """Return how many samples are memorised, and how many of them truly where that is known.

    Examples
    --------
    >>> memorised(29, 22.3), memorised(29, None), memorised(0, 0.0)
    ('29 memorised, about 22 of them truly', '29 memorised', '0 memorised')
    """
    rest = "" if expected is None or not n else f", {truly(expected)}"
    return f"{n:.4g} memorised{rest}" if n < 1000 else f"{whole(n)} memorised{rest}"


def size_in_words(n: float) -> str:
    """Return a number of bytes in words.

    Examples
    --------
    >>> size_in_words(812), size_in_words(40_300), size_in_words(1_250_000)
    ('812 B', '40 kB', '1.2 MB')
    """
    unit = 0
    while n >= 1000 and unit < len(_UNITS) - 1:
        n /= 1000
        unit += 1
    return f"{n:.0f} {_UNITS[unit]}" if unit < 2 else f"{n:.1f} {_UNITS[unit]}"


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
