"""What all widgets here share: they refuse bad messages, and end with their cells."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import IPython
import traitlets
from ipywidgets import Widget

from memowidgets.visible import quoted, visible
from memowidgets.widgets.messages import checked_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def checked_tau(tau: float, name: str = "tau") -> float:
    """Return a finite threshold. Infinity has no place on an axis."""
    try:
        number = float(tau)
    except OverflowError:  # an integer that no float holds
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, not {visible(str(tau), 40)}")
    return number


_MOST_CHARACTERS = 600
_METHODS = ("update", "request_state", "custom")


class RefusedValueError(traitlets.TraitError, ValueError):
    """A value that a trait does not take; the trait stays as it was."""


class RefusedTypeError(traitlets.TraitError, TypeError):
    """A value of a kind that a trait does not take; the trait stays as it was."""


@contextmanager
def refusing() -> Iterator[None]:
    """Raise a ValueError or TypeError of a check as one that makes traitlets put the value back."""
    try:
        yield
    except traitlets.TraitError:
        raise
    except TypeError as error:
        raise RefusedTypeError(str(error)) from error
    except (ValueError, ArithmeticError, LookupError) as error:
        raise RefusedValueError(str(error)) from error


def validate(*names: str) -> Callable[[Callable[[Any, Any], Any]], Any]:
    """Do what `traitlets.validate` does, for a check that raises ValueError or TypeError.

    Traitlets puts a value back only for a `TraitError`.
    """

    def decorate(check: Callable[[Any, Any], Any]) -> Any:
        @functools.wraps(check)
        def careful(self: Any, proposal: Any) -> Any:
            with refusing():
                return check(self, proposal)

        return traitlets.validate(*names)(careful)

    return decorate


def refuse(widget: Any, error: Exception, content: Any = None) -> None:
    """Answer a message that was refused."""
    request = content.get("request") if isinstance(content, dict) else None
    text = visible(str(error) or type(error).__name__, _MOST_CHARACTERS)
    widget.send({"type": "said", "request": request, "done": False, "text": text})


class Guarded(Widget):  # type: ignore[misc]  # ipywidgets has no types
    """A widget that answers a message that it refuses, instead of logging a traceback.

    A message ``{"type": "page", …}`` goes to the method ``_hear_page``.
    """

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the front end sends; all of it or nothing.

        A private trait is what Python tells the page, unless it is tagged ``page=True``.
        """
        names = [name for name in sync_data if name in self.keys]
        before = {name: getattr(self, name) for name in names}
        try:
            for name in names:
                if name.startswith("_") and not self.trait_metadata(name, "page"):
                    raise ValueError(f"{name} is not for the page to set")  # noqa: TRY301 - below
            super().set_state(sync_data)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page hears of it
            if not isinstance(error, traitlets.TraitError):  # those put the values back
                for name, value in before.items():
                    self.set_trait(name, value)
            refuse(self, error)
            self.send_state(names)

    def close(self) -> None:
        """Take the widget and its layout off the page and out of memory."""
        if self.layout is not None and self.comm is not None:
            self.layout.close()
        super().close()

    def _hear_saved(self, _content: dict[str, Any]) -> None:
        """Ignore the message after trait changes. It only shows the page that a kernel is there."""

    def _handle_custom_msg(self, content: Any, buffers: Any) -> None:
        super()._handle_custom_msg(content, buffers)
        try:
            kind = checked_message(content)["type"]
            hear = getattr(self, f"_hear_{kind}", None)
            if hear is None:
                raise ValueError(f"unknown kind of message here: {quoted(kind)}")  # noqa: TRY301
            hear(content)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page hears of it
            refuse(self, error, content)

    def _handle_msg(self, msg: Any) -> None:
        problem = _problem_of(msg["content"]["data"], msg.get("buffers") or [])
        if problem:
            refuse(self, ValueError(problem))
        else:
            super()._handle_msg(msg)


def _problem_of(data: Any, buffers: Sequence[Any]) -> str:
    """Return what is wrong with the envelope of a message, or an empty text."""
    if not isinstance(data, dict) or data.get("method") not in _METHODS:
        return f"a message must have one of the methods {', '.join(_METHODS)}"
    if data["method"] != "update":
        return ""
    if not isinstance(data.get("state"), dict):
        return "an update must hold a state"
    paths = data.get("buffer_paths", [])
    fits = isinstance(paths, list) and len(paths) == len(buffers)
    if not fits or not all(_leads_into(data["state"], path) for path in paths):
        return "the buffers of an update must have a place in its state"
    return ""


def _leads_into(state: Any, path: Any) -> bool:
    """Return whether all but the last step of a path exist."""
    if not isinstance(path, list) or not path:
        return False
    try:
        for step in path[:-1]:
            state = state[step]
    except (LookupError, TypeError):
        return False
    return isinstance(state, dict | list)


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
