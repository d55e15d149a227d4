"""Identity of a user's functions: their text, and the values and the functions that they use."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import dis
import enum
import functools
import hashlib
import inspect
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from memowidgets.stamps import array_digest, digest

__all__ = [
    "code_digest",
    "is_users",
    "methods_of",
    "source_digest",
    "source_of",
    "values_held",
    "values_used",
]

_DEEPEST = 8  # of lists in lists
_OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
_WHOLE = ""  # stands for a value that is read, and not one of its attributes
_OWN = ("LOAD_FAST", "LOAD_DEREF")  # beginnings of their names; from 3.13 on, one may load two
_PART = ("LOAD_ATTR", "LOAD_METHOD")
_WRITES = ("STORE_ATTR", "DELETE_ATTR", "COPY")  # the last one comes before `+=`
_LOGS = {"append", "extend", "add"}
_SHAPE = {"shape", "ndim", "dtype"}
_INSTALLED = {"site-packages", "dist-packages"}
_GENERATED = "<string>"  # file name of the methods that dataclasses make
_CALLED = (type, FunctionType, BuiltinFunctionType, np.ufunc)
_SAID_WHOLLY = (  # by their representation
    enum.Enum,
    re.Pattern,
    np.dtype,
    range,
    slice,
    Decimal,
    Fraction,
    dt.date,
    dt.time,
    dt.timedelta,
)
_UNKNOWN = object()  # stands for a value whose text does not say all of it


def code_digest(function: Any) -> str:
    """Return a digest of what a function does and uses, whatever else stands in its line.

    Examples
    --------
    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 1) != code_digest(lambda x: x + 2)
    True
    >>> code_digest(functools.partial(max, 1)) == code_digest(functools.partial(max, 2))
    False
    """
    given: list[Any] = []
    function = _uncached(function)
    while isinstance(function, functools.partial):
        given += [*function.args, *sorted(function.keywords.items())]
        function = function.func
    called = function if hasattr(function, "__code__") else type(function).__call__
    held = [*_all_known(given), *values_held(called)]
    used = {**values_used(function), **values_used(called)}
    code = getattr(called, "__code__", None)
    return digest(
        [_steps_of(code) if code else str(called), repr(sorted(used.items())), repr(held)]
    )


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's source text, and of the values that it uses from outside.

    Values that it uses count only where there are some, so the digests of other functions are those
    of earlier versions.
    """
    function = _uncached(function)
    code = getattr(function, "__code__", None)
    try:
        source = source_of(function if code is not None else type(function))
    except (OSError, TypeError):
        source = _called(function) if isinstance(function, BuiltinFunctionType | np.ufunc) else ""
        source = repr((code.co_code, code.co_consts)) if code is not None else source
    held = [*values_held(function), *_all_known(_arguments_of(function))]
    used = {} if hasattr(function, "func") else values_used(function)
    text = f"{source}{held!r}" + (repr(used) if used else "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def source_of(thing: Any) -> str:
    """Return the source text of a function or class, with a lambda's code where it needs that.

    The text of a lambda is that of its line. It does not tell which one it is if another lambda is
    in the line, and it lacks the rest of the lambda if that goes on in the next line.

    Raises
    ------
    OSError, TypeError
        If there is no source.
    """
    text, code = inspect.getsource(thing), getattr(thing, "__code__", None)
    if hasattr(thing, "__wrapped__") and code is not None and _is_of_user(thing):
        text += inspect.getsource(code)  # of the wrapper; the other is what it wraps
    if code is None or code.co_name != "<lambda>":
        return text
    last = max(line for *_, line in code.co_lines() if line is not None)
    is_whole = last < code.co_firstlineno + len(text.splitlines())
    return text if is_whole and text.count("lambda") == 1 else f"{text}{_steps_of(code)!r}"


def values_used(function: Any) -> dict[str, Any]:
    """Return the values of a function's module, or of a callable object, that it uses.

    Its source text does not contain them. Numbers, texts, arrays, and lists and mappings of them
    count, and of other objects the attributes that the function reads. Functions and classes of the
    user that it calls, directly or through each other, count with their text and their values.
    Those of libraries count with their name, if the function uses them by another one.

    Examples
    --------
    >>> RATES = {"head": 0.1}
    >>> values_used(lambda name: RATES[name])
    {'RATES': {'head': 0.1}}
    """
    if not hasattr(function, "__code__"):
        own = {k: v for k, v in getattr(function, "__dict__", {}).items() if k[:2] != "__"}
        if isinstance(function, type):  # its text has its methods
            own = {k: v for k, v in own.items() if not isinstance(v, _CALLED)}
        inside = {f"{m.__name__}()": values_used(m) for m in _parts_of(type(function))}
        return _known_ones(own) | {name: used for name, used in inside.items() if used}
    values: dict[str, Any] = {}
    helpers: dict[str, Any] = {}
    seen, waiting = {id(function)}, [function]
    while waiting:
        for name, value in _read_by(waiting.pop(), function.__globals__):
            parts = _parts_of(value, function.__globals__)
            values |= {} if parts or _says_what_it_is(name, value) else {name: value}
            new = [part for part in parts if id(part) not in seen]
            seen |= set(map(id, new))
            waiting += new
            helpers |= {name: new} if new else {}
    texts = {name: _texts_of(helpers[name]) for name in sorted(helpers)}
    return _known_ones(values) | texts


def values_held(function: Any) -> list[Any]:
    """Return the values that a function got where it was made: its closure, and its defaults."""
    return _held(function, ())


def methods_of(cls: type) -> list[Any]:
    """Return the functions that a class defines."""
    return [part for part in vars(cls).values() if inspect.isfunction(part)]


@functools.cache
def is_users(module: str | None) -> bool:
    """Return whether a module is neither Python's, nor installed, nor of memowidgets."""
    if module is None or module == "__main__":
        return True
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "memowidgets":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or _INSTALLED.isdisjoint(Path(file).parts)


def _uncached(function: Any) -> Any:
    """Return the function behind functools.cache."""
    while isinstance(function, functools._lru_cache_wrapper):  # noqa: SLF001 - it has no other name
        function = function.__wrapped__
    return function


def _is_of_user(function: Any) -> bool:
    """Return whether the user wrote a function. A decorator's wrapper names another module."""
    return is_users(function.__globals__.get("__name__"))


def _held(function: Any, above: tuple[Any, ...]) -> list[Any]:
    """Return the values that a function holds; `above` are the functions that hold it."""
    code = getattr(function, "__code__", None)
    if code is None or any(function is one for one in above):
        return []
    read, found = _reads_of(code), []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        value = _content(cell) if name in read and name != "__class__" else _UNKNOWN
        if isinstance(value, FunctionType):
            found.append([_text_of(value), values_used(value), _held(value, (*above, function))])
        else:
            found += _known_ones(dict(_seen_of(name, value, read.get(name, set())))).values()
    return found + _defaults_of(function)


def _defaults_of(function: Any) -> list[Any]:
    """Return the default values, without functions and classes that the text names."""

    def known(value: Any) -> Any:
        is_named = isinstance(value, _CALLED) and value.__name__ in _own_text(function)
        return _UNKNOWN if is_named else value

    named = sorted((function.__kwdefaults__ or {}).items())
    given = [known(value) for value in function.__defaults__ or ()]
    return _all_known([*given, *((name, known(value)) for name, value in named)])


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is filled later
        return _UNKNOWN


def _arguments_of(function: Any) -> list[Any]:
    """Return the arguments of a functools.partial."""
    inner = getattr(function, "func", None)
    if inner is None:
        return []
    keywords = sorted(getattr(function, "keywords", {}).items())
    return [source_digest(inner), *getattr(function, "args", ()), *keywords]


def _read_by(function: Any, home: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a function reads from its module: by name, outside of `home` with the module's.

    The object of a bound method counts as well.
    """
    known = function.__globals__
    place = "" if known is home else f"{known.get('__name__')}."
    for name, read in sorted(_reads_of(function.__code__).items()):
        if name in known:
            yield from _seen_of(place + name, known[name], read)
    if inspect.ismethod(function):
        yield from _seen_of("self", function.__self__, {function.__name__})


def _seen_of(name: str, value: Any, read: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield what a function sees of a value of which it reads some attributes, or the whole."""
    if not _has_settings(value):
        is_shape = bool(read) and read <= _SHAPE and hasattr(value, "shape")
        if not read or not read <= _LOGS:  # something that is only added to says nothing
            yield (f"{name}.shape", tuple(value.shape)) if is_shape else (name, value)
        return
    known = {k: v for k, v in vars(value).items() if k[:2] != "__"}
    if not isinstance(value, ModuleType):
        kind = value if isinstance(value, type) else type(value)
        yield from [] if read <= known.keys() else [(f"{name}()", kind)]  # a method is called, say
        read = _read_by_methods(kind, read)
        read = set(known) if _WHOLE in read else read
    yield from ((f"{name}.{one}", known[one]) for one in sorted(read & known.keys()))


def _read_by_methods(kind: type, read: set[str]) -> set[str]:
    """Return the attributes that are read of an object, also by those of its methods that run."""
    found: set[str] = set()
    waiting = set(read)
    while waiting:
        found |= {name := waiting.pop()}
        method = getattr(kind, name, None)
        method = method.fget if isinstance(method, property) else method
        code = getattr(method, "__code__", None)
        waiting |= (_read_of_first(code) if code else set()) - found
    return found


def _read_of_first(code: CodeType) -> set[str]:
    """Return the attributes that a method reads of its first argument."""
    first = "".join(code.co_varnames[:1])
    found = {one for part in _inside(code) for one in _reads_of(part).get(first, ())}
    for step, read in _steps_with_reads(code):
        loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        is_cell = step.opname.startswith("LOAD_FAST") and first in code.co_cellvars  # for a closure
        if step.opname.startswith(_OWN) and loaded[-1] == first and not is_cell:
            found |= read
    return found


def _steps_with_reads(code: CodeType) -> Iterator[tuple[dis.Instruction, set[str]]]:
    """Yield each step with the attribute that is read of what it loads: `_WHOLE`, or none."""
    steps = [*dis.get_instructions(code)]
    for step, then, later in zip(steps, steps[1:], [*steps[2:], *steps[-1:]], strict=False):
        is_part = then.opname in _PART
        is_written = then.opname in _WRITES
        is_written |= is_part and later.opname in _PART and later.argval in _LOGS
        yield step, set() if is_written else {then.argval if is_part else _WHOLE}


def _has_settings(value: Any) -> bool:
    """Return whether the attributes of a value are settings of the user, unlike a network's."""
    if isinstance(value, argparse.Namespace | SimpleNamespace):
        return True
    if not hasattr(value, "__dict__") or hasattr(value, "state_dict"):
        return False
    if isinstance(value, ModuleType):
        return is_users(value.__name__)
    return is_users((value if isinstance(value, type) else type(value)).__module__)


def _parts_of(value: Any, home: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the functions of a helper: a function or class of the same module, or of the user."""
    value = _uncached(value)
    if isinstance(value, FunctionType):
        own = [value] if value.__globals__ is home or is_users(value.__module__) else []
        inner = getattr(value, "__wrapped__", None)
        return own + (_parts_of(inner, home) if callable(inner) else [])
    if not isinstance(value, type) or hasattr(value, "state_dict"):  # networks count elsewhere
        return []
    theirs = (cls for cls in value.__mro__ if is_users(cls.__module__))
    return [m for cls in theirs for m in methods_of(cls) if m.__code__.co_filename != _GENERATED]


def _texts_of(functions: list[Any]) -> Any:
    """Return the text of a helper, or the texts of its methods if it is a class."""
    texts = [_text_of(function) for function in functions]
    return texts[0] if len(texts) == 1 else texts


def _text_of(function: Any) -> tuple[str, str]:
    """Return a function's source text, or else its code, and its known default values."""
    return _own_text(function), repr(_defaults_of(function))


def _own_text(function: Any) -> str:
    try:
        return source_of(function)
    except (OSError, TypeError):
        return repr(_steps_of(function.__code__))


def _reads_of(code: CodeType) -> dict[str, set[str]]:
    """Return the attributes that a code reads of each thing outside of it, or `_WHOLE`.

    What the code itself assigns, such as a counter, does not count.
    """
    found: dict[str, set[str]] = {}
    written = set(code.co_cellvars)
    for step, read in _steps_with_reads(code):
        if step.opname in _OUTSIDE:
            found.setdefault(step.argval, set()).update(read)
        elif step.opname in ("STORE_GLOBAL", "STORE_DEREF"):
            written.add(step.argval)
    for part in _inside(code):
        for name, parts in _reads_of(part).items():
            found.setdefault(name, set()).update(parts)
    return {name: read for name, read in found.items() if name not in written}


def _inside(code: CodeType) -> list[CodeType]:
    return [part for part in code.co_consts if isinstance(part, CodeType)]


def _steps_of(code: CodeType) -> list[Any]:
    constants = [_constant(one) for one in code.co_consts]
    return [code.co_code.hex(), code.co_names, code.co_freevars, constants]


def _constant(value: Any) -> Any:
    """Return what identifies a constant of a code in every process; a set's order differs."""
    if isinstance(value, CodeType):
        return _steps_of(value)
    if isinstance(value, tuple):
        return [_constant(one) for one in value]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _known_ones(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of values, sorted by name."""
    found = {name: _known(values[name]) for name in sorted(values)}
    return {name: known for name, known in found.items() if known is not _UNKNOWN}


def _all_known(values: Iterable[Any]) -> list[Any]:
    return [known for known in map(_known, values) if known is not _UNKNOWN]


def _known(value: Any, deep: int = 0) -> Any:
    """Return a value whose text says all of it, or `_UNKNOWN`."""
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return value
    if isinstance(value, _SAID_WHOLLY) or str(type(value)) == "<class 'torch.dtype'>":
        return repr(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, _CALLED):
        return _called(value)
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    if is_record or isinstance(value, argparse.Namespace | SimpleNamespace):
        value = dict(getattr(value, "__dict__", {}))
    if deep < _DEEPEST and isinstance(value, tuple | list | deque | set | frozenset | Mapping):
        return _known_parts(value, deep + 1)
    array = _array(value)
    return _UNKNOWN if array is None or array.dtype.hasobject else array_digest(array)


def _called(value: Any) -> str:
    """Return the name of a function or class, and the text of a function of the user."""
    home = getattr(value, "__module__", None)
    name = f"{home}.{getattr(value, '__qualname__', value.__name__)}"
    is_own = isinstance(value, FunctionType) and is_users(home)
    return f"{name} {_own_text(value)}" if is_own else name


def _says_what_it_is(name: str, value: Any) -> bool:
    """Return whether a function or class is used by its own name, so that the text has it."""
    return isinstance(value, _CALLED) and name.rpartition(".")[2] == value.__name__


def _known_parts(values: Any, deep: int) -> Any:
    """Return what is known of a list or mapping; `_UNKNOWN` if it has parts, and none is known."""
    if isinstance(values, Mapping):
        pairs = {str(name): _known(value, deep) for name, value in values.items()}
        parts: Any = {name: known for name, known in pairs.items() if known is not _UNKNOWN}
    else:
        parts = [one for one in (_known(v, deep) for v in values) if one is not _UNKNOWN]
    if isinstance(values, set | frozenset):
        parts = sorted(map(repr, parts))
    elif isinstance(values, tuple):
        parts = tuple(parts)
    return _UNKNOWN if len(values) and not parts else parts


def _array(value: Any) -> Any:
    """Return a NumPy array or number, or a tensor, as an array; None for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if type(value).__module__ == "torch" and hasattr(value, "detach"):
        plain = value.detach().cpu()
        return (plain.float() if plain.is_floating_point() else plain).numpy()
    return None
