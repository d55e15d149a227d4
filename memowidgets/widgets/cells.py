"""Close the widgets that a cell made before it was run again. Nobody can see them any more."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import IPython

__all__ = ["created", "displayed"]


@dataclass
class _Origin:
    """Where a widget was made, and where it is shown."""

    cell: str
    run: str
    shown_in: set[str] = field(default_factory=set)


_origins: weakref.WeakKeyDictionary[Any, _Origin] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def created(widget: Any) -> None:
    """Remember which run of which cell made a widget, and close those of its earlier runs.

    Only those that were shown in no other cell: running a cell again clears what it showed.
    """
    here = _running()
    if here is None:
        return
    with _lock:
        gone = [other for other, origin in _origins.items() if _is_past(origin, here)]
        for other in gone:
            del _origins[other]
        _origins[widget] = here
    for other in gone:
        other.close()


def displayed(widget: Any) -> None:
    """Remember that the cell that runs now shows a widget."""
    here = _running()
    with _lock:
        origin = _origins.get(widget)
        if here is not None and origin is not None:
            origin.shown_in.add(here.cell)


def _is_past(origin: _Origin, here: _Origin) -> bool:
    return origin.cell == here.cell and origin.run != here.run and origin.shown_in <= {here.cell}


def _running() -> _Origin | None:
    """Return the cell that runs now, if the front end tells the kernel which one it is."""
    kernel = getattr(IPython.get_ipython(), "kernel", None)
    if kernel is None:
        return None
    parent = kernel.get_parent()
    cell = parent.get("metadata", {}).get("cellId")
    run = parent.get("header", {}).get("msg_id")
    return _Origin(str(cell), str(run)) if cell and run else None
