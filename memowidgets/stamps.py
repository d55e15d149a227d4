"""Stamps of a run's files: place, run, digests of the content and of the weights behind it."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "KEY",
    "Stamp",
    "array_digest",
    "code_digest",
    "digest",
    "fingerprints",
    "is_settled",
    "state_of",
    "values_used",
]

KEY = "memowidgets"  # key of the stamp in a safetensors file's metadata
UNKNOWN = "0" * 16  # placeholder for a digest that is written later

# Fields in which two equal runs may differ: where model and data came from, what follows from
# other fields (the design), and what old runs add later (the precision, also in each file).
_APART = ("format", "design", "versions", "model_source", "recording", "precision")
_LONG = ("ids", "content")
_SETTLED_NS = 2_000_000_000  # an older file cannot change within one tick of the clock


@dataclass(frozen=True)
class Stamp:
    """Stamp of a safetensors file of a run.

    Attributes
    ----------
    name : str
        Path of the file in the run directory, without its suffix.
    run : str
        Identity of the run, as `fingerprints` returns it. Empty if unknown.
    of : str
        Digest of the weights that the file was computed with. Empty if there are none.
    arrays : dict of str
        Digest of each array.
    """

    name: str
    run: str = ""
    of: str = ""
    arrays: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Stamp | None:
        """Return the stamp in a file's metadata, or None if there is none.

        Raises
        ------
        ValueError
            If the text is not a stamp.
        """
        if text is None:
            return None
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"its stamp is broken: {error}") from None

    @property
    def text(self) -> str:
        """Return the text that is written into the metadata."""
        return json.dumps(asdict(self))

    @property
    def content(self) -> str:
        """Return a digest of all arrays."""
        return digest(sorted(self.arrays.items()))


def values_used(function: Any) -> dict[str, Any]:
    """Return the plain values of a function's module, or of a callable object, that it uses.

    Its source text does not contain them. Functions of the same module that it calls, directly or
    through each other, count with their source text and their values.

    Examples
    --------
    >>> values_used(lambda values: [value for value in values if value != KEY])
    {'KEY': 'memowidgets'}
    """
    code = getattr(function, "__code__", None)
    if code is None:
        known = dict(getattr(function, "__dict__", {}))
        return {name: known[name] for name in sorted(known) if _is_plain(known[name])}
    known, helpers = function.__globals__, dict[str, Any]()
    names = waiting = _globals_of(code) & known.keys()
    while waiting:
        found = {name: known[name] for name in waiting if _is_beside(known[name], function)}
        helpers |= found
        waiting = set().union(*(_globals_of(one.__code__) for one in found.values()))
        waiting = (waiting & known.keys()) - names
        names = names | waiting
    values = {name: known[name] for name in sorted(names) if _is_plain(known[name])}
    return values | {name: _text_of(helpers[name]) for name in sorted(helpers)}


def code_digest(function: Any) -> str:
    """Return a digest of what a function does and uses, whatever else stands in its line.

    Examples
    --------
    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 1) != code_digest(lambda x: x + 2)
    True
    >>> code_digest(functools.partial(max, 1)) == code_digest(functools.partial(max, 2))
    False
    """
    held: list[Any] = []
    while isinstance(function, functools.partial):
        held += [*function.args, *sorted(function.keywords.items())]
        function = function.func
    called = function if hasattr(function, "__code__") else type(function).__call__
    held += [cell.cell_contents for cell in getattr(called, "__closure__", None) or ()]
    held += getattr(called, "__defaults__", None) or ()
    used = {**values_used(function), **values_used(called)}
    plain = [value for value in held if _is_plain(value)]
    code = getattr(called, "__code__", None)
    return digest(
        [_steps_of(code) if code else str(called), repr(sorted(used.items())), repr(plain)]
    )


def _steps_of(code: Any) -> list[Any]:
    constants = [_constant(one) for one in code.co_consts]
    return [code.co_code.hex(), code.co_names, code.co_freevars, constants]


def _constant(value: Any) -> Any:
    """Return what identifies a constant of a code in every process; a set's order differs."""
    if hasattr(value, "co_code"):
        return _steps_of(value)
    if isinstance(value, tuple):
        return [_constant(one) for one in value]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _globals_of(code: Any) -> set[str]:
    """Return the names of the module that a code reads, with the functions inside of it."""
    found = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    inside = [part for part in code.co_consts if hasattr(part, "co_code")]
    return found.union(*map(_globals_of, inside))


def _is_beside(value: Any, function: Any) -> bool:
    """Return whether a value is another function of the same module."""
    is_function = isinstance(value, FunctionType) and value is not function
    return is_function and value.__globals__ is function.__globals__


def _text_of(function: Any) -> tuple[str, str]:
    """Return a function's source text, or else its code, and its plain default values."""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        text = repr(_steps_of(function.__code__))
    return text, repr([value for value in function.__defaults__ or () if _is_plain(value)])


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def digest(content: Any) -> str:
    """Return a digest of content that JSON can represent."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def array_digest(array: NDArray[Any]) -> str:
    """Return a digest of an array's dtype, shape and values."""
    found = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    if array.size:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:16]


def fingerprints(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the identity of a run, and a digest of its whole manifest.

    Two runs of equal identity give equal results. The identity leaves out where model and data
    came from, the versions of the libraries, and whether the run is a recording.
    """
    short = {k: _long_digest(v) if k in _LONG else v for k, v in manifest.items() if k != "check"}
    same: dict[str, Any] = {k: v for k, v in short.items() if k not in _APART}
    if isinstance(same.get("data"), dict):
        same["data"] = {k: v for k, v in same["data"].items() if k != "source"}
    return digest(same), digest(short)


def state_of(found: os.stat_result) -> tuple[int, ...]:
    """Return numbers that change whenever a file is written or replaced."""
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def is_settled(found: os.stat_result) -> bool:
    """Return whether a later change would be visible in the state, given the clock's ticks."""
    return time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED_NS


def _long_digest(values: Any) -> str:
    """Return a digest of a list of texts, several times faster than through JSON."""
    try:
        text = "\0".join(values)
    except TypeError:
        return digest(values)
    if text.count("\0") != len(values) - 1:  # also true of an empty list
        return digest(values)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
