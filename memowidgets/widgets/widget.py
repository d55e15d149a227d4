"""What all widgets here share: they refuse bad messages, end with their cells, and use threads."""

from __future__ import annotations

import ctypes
import functools
import math
import re
import sys
import threading
import uuid
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import IPython
import traitlets
from ipywidgets import Widget

from memowidgets.cores import has_threads
from memowidgets.store import without_advice
from memowidgets.vocabulary import quoted, visible
from memowidgets.widgets.messages import checked_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


STATIC = Path(__file__).parent / "static"
STYLES = ("shared", "bar", "timeline", "explorer", "compare", "inspector", "opened")
_IMPORT = re.compile(r'^import\s*(\{[^}]*\}|\w+)\s*from\s*"([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?=(?:async )?(?:function|class|const)\*? (\w+))", re.MULTILINE
)
_DEFAULT = re.compile(r"^export default ", re.MULTILINE)
_DOCUMENTATION = re.compile(r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/\n", re.MULTILINE)


@cache
def script(entry: str | Path) -> str:
    """Return a widget's ES module, joined with all modules that it imports.

    Parameters
    ----------
    entry : str or Path
        A module with a default export: its file, or its name in ``widgets/static``.

    Returns
    -------
    str
        One module without imports. JSDoc comments are left out, because every saved notebook
        holds this text.
    """
    file = STATIC / f"{entry}.js" if isinstance(entry, str) else entry
    return f"{scripts(file)}\nexport default {_variable(file)}.default;\n"


@cache
def page_script(file: Path) -> str:
    """Return a module and all that it imports as the one script of a page."""
    return f'"use strict";\n(() => {{\n{scripts(file)}\n}})();\n'


def scripts(file: Path) -> str:
    """Return a module and all that it imports as plain statements, imported ones first.

    Each module is a function of its own, so two modules may use the same name.
    """
    found: dict[Path, str] = {}
    _collect(file.resolve(), found)
    return "\n".join(found.values())


@cache
def style(*sheets: str | Path) -> str:
    """Return style sheets as one text; by default those of all widgets.

    All widgets have the same text, so it does not matter which one is shown first.

    Parameters
    ----------
    *sheets : str or Path
        Files, or names in ``widgets/static``.
    """
    files = (STATIC / f"{s}.css" if isinstance(s, str) else s for s in sheets or STYLES)
    # every saved notebook holds this text, which needs no indents
    lines = (line for file in files for line in file.read_text("utf-8").splitlines())
    return "\n".join(line.strip() for line in lines)


def _collect(file: Path, found: dict[Path, str]) -> None:
    if file in found:
        return
    text = file.read_text("utf-8")
    for _, imported in _IMPORT.findall(text):
        _collect((file.parent / imported).resolve(), found)
    found[file] = _wrapped(file, text)


def _wrapped(file: Path, text: str) -> str:
    """Return a module as a function that returns its exports."""
    exported = _EXPORT.findall(text)
    body = _DOCUMENTATION.sub("", _EXPORT.sub("", _IMPORT.sub(_binding, text)))
    if _DEFAULT.search(body):
        body = _DEFAULT.sub("const $default = ", body)
        exported.append("default: $default")
    exports = ", ".join(exported)
    return f"const {_variable(file)} = (() => {{\n{body}return {{ {exports} }};\n}})();"


def _binding(statement: re.Match[str]) -> str:
    names, path = statement.groups()
    target = (
        names.replace(" as ", ": ")
        if names.startswith("{")
        else f"{{ default: {names} }}"
    )
    return f"const {target} = {_variable(Path(path))};\n"


def _variable(file: Path) -> str:
    return f"${file.stem}"


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


class RefusedError(traitlets.TraitError, ValueError, TypeError):
    """A value that a trait does not take; traitlets leaves the trait as it was."""


@contextmanager
def refusing() -> Iterator[None]:
    """Raise a ValueError or TypeError of a check as one that makes traitlets put the value back."""
    try:
        yield
    except traitlets.TraitError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise RefusedError(str(error)) from error


def validate(*names: str) -> Callable[[Callable[[Any, Any], Any]], Any]:
    """Do what `traitlets.validate` does, for a check that raises ValueError or TypeError.

    Traitlets puts a value back only for a `TraitError`.
    """

    def decorate(check: Callable[[Any, Any], Any]) -> Any:
        @functools.wraps(check)
        def careful(self: object, proposal: object) -> Any:
            with refusing():
                return check(self, proposal)

        return traitlets.validate(*names)(careful)

    return decorate


def refuse(widget: Any, error: Exception, content: Any = None) -> None:
    """Answer a message that was refused."""
    request = content.get("request") if isinstance(content, dict) else None
    text = visible(without_advice(error) or type(error).__name__, _MOST_CHARACTERS)
    widget.send({"type": "said", "request": request, "done": False, "text": text})


VIEW = "application/vnd.jupyter.widget-view+json"


class Guarded(Widget):  # type: ignore[misc]  # ipywidgets has no types
    """A widget that answers a message that it refuses, and has a picture that stands in for it.

    A message ``{"type": "page", …}`` goes to the method ``_hear_page``.
    """

    _stands_in = traitlets.Unicode().tag(sync=True)  # class of the still picture

    @traitlets.default("_stands_in")
    def _name_stand_in(self) -> str:
        return f"mw-stands-in-{uuid.uuid4().hex}"

    def _stand_in(self) -> str:
        """Return HTML for paper, and for places where no widget can run."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: object) -> Any:
        note_display(self)
        shown = super()._repr_mimebundle_(**kwargs)
        if shown is None:
            return None
        data, metadata = shown if isinstance(shown, tuple) else (shown, {})
        still = {"text/plain": repr(self), "text/html": self._stand_in()}
        return {**data, **still}, metadata

    def _ipython_display_(self) -> None:
        """Show the still picture and the view, which hides the picture while it is on the page.

        In one output, a saved page would have only the view: nbconvert takes the first kind that
        it knows, and its page is empty if what shows widgets cannot be fetched.
        """
        shown = self._repr_mimebundle_()
        if shown is None:
            return
        data, metadata = shown
        picture = f'<div class="{self._stands_in}">{data["text/html"]}</div>'
        still = {"text/plain": data["text/plain"], "text/html": picture}
        publish: Any = IPython.display.publish_display_data  # IPython gives it no types
        publish(still)
        publish({VIEW: data[VIEW]}, metadata)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the front end sends; all of it or nothing.

        A private trait is what Python tells the page, unless it is tagged ``page=True``.
        """
        names = [name for name in sync_data if name in self.keys]
        try:
            for name in names:
                if name.startswith("_") and not self.trait_metadata(name, "page"):
                    raise ValueError(f"{name} is not for the page to set")  # noqa: TRY301 - below
            super().set_state(sync_data)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page hears of it
            refuse(self, error)
            self.send_state(names)

    def close(self) -> None:
        """Take the widget and its layout off the page and out of memory."""
        if self.layout is not None and self.comm is not None:
            self.layout.close()
        super().close()

    def __del__(self) -> None:
        """Do nothing. ipywidgets would close, but an open widget only dies when Python ends."""

    def _hear_saved(self, _content: dict[str, Any]) -> None:
        """Ignore the message after trait changes. It only shows the page that a kernel is there."""

    def _handle_custom_msg(self, content: object, buffers: object) -> None:
        super()._handle_custom_msg(content, buffers)
        try:
            kind = checked_message(content)["type"]
            hear = getattr(self, f"_hear_{kind}", None)
            if hear is None:
                raise ValueError(f"unknown kind of message here: {quoted(kind)}")  # noqa: TRY301
            hear(content)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page hears of it
            refuse(self, error, content)


@dataclass
class _Origin:
    """Where a widget was made, and where it is shown."""

    cell: str
    run: str
    shown_in: set[str] = field(default_factory=set)


_origins: weakref.WeakKeyDictionary[Any, _Origin] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def close_earlier_runs(widget: object) -> None:
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


def note_display(widget: object) -> None:
    """Remember that the cell that runs now shows a widget."""
    here = _running()
    with _lock:
        origin = _origins.get(widget)
        if here is not None and origin is not None:
            origin.shown_in.add(here.cell)


def _is_past(origin: _Origin, here: _Origin) -> bool:
    return (
        origin.cell == here.cell
        and origin.run != here.run
        and origin.shown_in <= {here.cell}
    )


def _running() -> _Origin | None:
    """Return the cell that runs now, if the front end tells the kernel which one it is."""
    kernel = getattr(IPython.get_ipython(), "kernel", None)
    if kernel is None:
        return None
    parent = kernel.get_parent()
    cell = parent.get("metadata", {}).get("cellId")
    run = parent.get("header", {}).get("msg_id")
    return _Origin(str(cell), str(run)) if cell and run else None


def in_background(job: Callable[[], None], name: str) -> threading.Event:
    """Do a job in a thread of this name that does not keep the process from ending.

    Where there are no threads, the job is done when this returns.

    Returns
    -------
    threading.Event
        Set when the job is done.

    Examples
    --------
    >>> in_background(lambda: None, "example").wait(10)
    True
    """
    done = threading.Event()

    def work() -> None:
        try:
            job()
        finally:
            done.set()

    if has_threads():
        threading.Thread(target=work, name=name, daemon=True).start()
    else:
        work()
    return done


Owner = TypeVar("Owner")


def watch(
    owner: Owner, look: Callable[[Owner], object], seconds: float
) -> Callable[[], None]:
    """Call ``look(owner)`` at regular times, in a thread that does not keep the owner alive.

    Where there are no threads, nobody looks: the user asks for what is new.

    Parameters
    ----------
    owner : object
        The thread ends when nobody else holds it any more.
    look : callable
        Deals with its own errors.
    seconds : float
        Between two looks.

    Returns
    -------
    callable
        Ends the thread.
    """
    end = threading.Event()
    reference = weakref.ref(owner)

    def work() -> None:
        while not end.wait(seconds):
            there = reference()
            if there is None:
                return
            look(there)
            del there

    if has_threads():
        threading.Thread(target=work, name="memowidgets-watch", daemon=True).start()
    return end.set


def give_back() -> None:
    """Return freed memory to the operating system, if the C library is glibc.

    glibc keeps memory that a thread has freed, so a kernel in which a cell runs often would grow
    although no object is left.

    Examples
    --------
    >>> give_back()
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
