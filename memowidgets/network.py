"""Switch for requests to a hub. Opening a run on disk makes none, as a run can name anything."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager

__all__ = ["hub_may_be_asked", "without_the_hub", "without_the_hub_for"]

_may_be_asked = ContextVar("_may_be_asked", default=True)


def hub_may_be_asked() -> bool:
    """Return whether the hub may be asked, or only its local copies may be read."""
    return _may_be_asked.get()


@contextmanager
def without_the_hub() -> Iterator[None]:
    """Within this block, read only the hub's local copies.

    The hub's libraries are switched offline for all threads, because they make requests of their
    own even if they are told to use local files only.
    """
    token = _may_be_asked.set(False)
    _Offline.begin()
    try:
        yield
    finally:
        _Offline.end()
        _may_be_asked.reset(token)


def without_the_hub_for(name: str | os.PathLike[str]) -> AbstractContextManager[None]:
    """Return `without_the_hub` for the path of an existing file or folder, else do nothing."""
    with suppress(OSError, ValueError):  # too long or contains NUL, so it is not a path
        if Path(name).exists():
            return without_the_hub()
    return nullcontext()


class _Offline:
    """Offline switches of the hub's libraries, on while at least one block is open."""

    _libraries = ("huggingface_hub.constants", "datasets.config")
    _mutex = threading.Lock()
    _blocks: ClassVar[int] = 0
    _before: ClassVar[bool] = False

    @classmethod
    def begin(cls) -> None:
        with cls._mutex:
            cls._blocks += 1
            if importlib.util.find_spec("huggingface_hub") is not None:
                importlib.import_module(cls._libraries[0])
            if cls._blocks == 1:
                constants = sys.modules.get(cls._libraries[0])
                cls._before = bool(getattr(constants, "HF_HUB_OFFLINE", False))
            cls._switch(on=True)

    @classmethod
    def end(cls) -> None:
        with cls._mutex:
            cls._blocks -= 1
            if cls._blocks == 0:
                cls._switch(on=cls._before)

    @classmethod
    def _switch(cls, *, on: bool) -> None:
        for name in cls._libraries:  # if imported in the block, it copied True
            if name in sys.modules:
                sys.modules[name].HF_HUB_OFFLINE = on  # type: ignore[attr-defined]
