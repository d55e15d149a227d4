"""The base class of the playgrounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anywidget

from memowidgets.widgets.cells import created, displayed
from memowidgets.widgets.frontend import script, style
from memowidgets.widgets.guarded import Guarded
from memowidgets.widgets.newest import Newest
from memowidgets.widgets.standin import bundle, table

__all__ = ["STATIC", "STYLE", "Playground", "front_end"]

STATIC = Path(__file__).parent / "static"
STYLE = style("shared", STATIC / "playground.css")


def front_end(name: str) -> str:
    """Return the ES module of one playground."""
    return script(STATIC / f"{name}_view.js")


class Playground(Guarded, anywidget.AnyWidget):
    """A widget whose front end moves on its own. Python computes the exact numbers afterwards."""

    _title = "Playground"

    def __init__(self, **traits: Any) -> None:
        self._worker = Newest(f"memowidgets-{type(self).__name__.lower()}")
        self._job: Callable[[], None] | None = None
        self._held = True
        super().__init__(**traits)
        self._held = False
        self._changed()
        created(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the background computation. Return whether it is finished.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most.
        """
        return self._worker.wait(timeout)

    # ---------------------------------------------------------------- what changes

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """Delay computations until several traits are changed."""
        before, self._held = self._held, True
        try:
            with self.hold_sync():
                yield
                self._held = before
                if not before:
                    self._settle()
        finally:
            self._held = before
        self._work_aside()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Apply all changes from the front end before computing anything."""
        with self._at_once():
            super().set_state(sync_data)

    def _changed(self, _change: Any = None) -> None:
        """Compute the exact numbers, unless more changes are pending."""
        if not self._held:
            self._settle()
            self._work_aside()

    def _settle(self) -> None:
        """Compute what is quick, and set `_job` to a slow computation."""
        raise NotImplementedError

    def _work_aside(self) -> None:
        """Start the job in a thread, but not while traits are held back from the page."""
        if self._job is not None and not self._held:
            job, self._job = self._job, None
            self._worker.run(job)

    # ---------------------------------------------------------------- without a page

    def _facts(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"{type(self).__name__}({facts})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        displayed(self)
        stand_in = table(self._title, self._facts())
        return bundle(super()._repr_mimebundle_(**kwargs), repr(self), stand_in)
