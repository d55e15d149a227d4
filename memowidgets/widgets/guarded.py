"""Take or refuse what a page sends. A refusal changes nothing, and one answer says why."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import traitlets
from ipywidgets import Widget

from memowidgets.visible import quoted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Guarded",
    "RefusedTypeError",
    "RefusedValueError",
    "refuse",
    "unknown",
    "validate",
]

_MOST_CHARACTERS = 600
_METHODS = ("update", "request_state", "custom")


class RefusedValueError(traitlets.TraitError, ValueError):
    """A value that a trait does not take; the trait stays as it was."""


class RefusedTypeError(traitlets.TraitError, TypeError):
    """A value of a kind that a trait does not take; the trait stays as it was."""


def validate(*names: str) -> Callable[[Callable[[Any, Any], Any]], Any]:
    """Do what `traitlets.validate` does, for a check that raises ValueError or TypeError.

    Traitlets puts a value back only for a `TraitError`.
    """

    def decorate(check: Callable[[Any, Any], Any]) -> Any:
        @functools.wraps(check)
        def careful(self: Any, proposal: Any) -> Any:
            try:
                return check(self, proposal)
            except traitlets.TraitError:
                raise
            except TypeError as error:
                raise RefusedTypeError(str(error)) from error
            except (ValueError, ArithmeticError, LookupError) as error:
                raise RefusedValueError(str(error)) from error

        return traitlets.validate(*names)(careful)

    return decorate


def unknown(content: dict[str, Any]) -> ValueError:
    """Return the error for a message of an unknown kind."""
    return ValueError(f"unknown kind of message: {quoted(content.get('type'))}")


def refuse(widget: Any, error: Exception, content: Any = None) -> None:
    """Answer a message that was refused."""
    request = content.get("request") if isinstance(content, dict) else None
    text = visible(str(error) or type(error).__name__, _MOST_CHARACTERS)
    if isinstance(error, KeyError):
        text = f"the message lacks {text}"
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
            if not isinstance(content, dict):
                raise TypeError(  # noqa: TRY301 - answered below
                    f"a message must be an object, not {type(content).__name__}"
                )
            kind = content.get("type")
            hear = getattr(self, f"_hear_{kind}", None) if isinstance(kind, str) else None
            if hear is None:
                raise unknown(content)  # noqa: TRY301 - likewise
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
