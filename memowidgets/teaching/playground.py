"""What the playgrounds share: their base class, random numbers, and checks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import NDArray

from memowidgets.checks import real_number, whole_number
from memowidgets.widgets.frontend import script, style
from memowidgets.widgets.standin import bundle, table
from memowidgets.widgets.threads import Newest
from memowidgets.widgets.widget import Guarded, created, displayed, refusing

Floats = NDArray[np.float64]

_GOLDEN, _FIRST, _SECOND = (np.uint32(n) for n in (0x9E3779B1, 0x21F0AAAD, 0x735A2D97))


def uniforms(seed: int, start: int, count: int) -> Floats:
    """Return numbers `start` to `start + count` of a uniform stream on the open interval (0, 1).

    A number depends on the seed and its place alone.

    Examples
    --------
    >>> uniforms(0, 0, 3).round(4)
    array([0.5542, 0.0543, 0.913 ])
    >>> bool((uniforms(0, 1, 2) == uniforms(0, 0, 3)[1:]).all())
    True
    """
    places = np.arange(start + 1, start + 1 + count, dtype=np.uint64).astype(np.uint32)
    begin = _mixed(np.array([seed + 1], dtype=np.uint32))
    return np.asarray((_mixed(places * _GOLDEN + begin).astype(np.float64) + 0.5) / 2**32)


def normals(seed: int, start: int, count: int) -> Floats:
    """Return numbers as `uniforms` does, but from the standard normal distribution.

    Examples
    --------
    >>> round(float(normals(1, 0, 10_000).std()), 1)
    1.0
    """
    first, last = start // 2, (start + count + 1) // 2
    u = uniforms(seed, 2 * first, 2 * (last - first)).reshape(-1, 2)
    radius, angle = np.sqrt(-2 * np.log(u[:, 0])), 2 * np.pi * u[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
    return np.asarray(pairs[start - 2 * first :][:count])


def _mixed(words: NDArray[Any]) -> NDArray[np.uint32]:
    """Hash integers to 32 bits, with products that overflow as in JavaScript."""
    words = (words ^ (words >> np.uint32(16))) * _FIRST
    words = (words ^ (words >> np.uint32(15))) * _SECOND
    return np.asarray(words ^ (words >> np.uint32(15)), dtype=np.uint32)


class Setting(traitlets.Any):
    """A trait that both sides share, with the check of its value: `check(name, value)`."""

    def __init__(self, default: Any, check: Callable[[str, Any], Any]) -> None:
        super().__init__(default)
        self._check = check
        self.tag(sync=True)

    def validate(self, _owner: Any, value: Any) -> Any:
        """Return the value as the check returns it."""
        with refusing():
            return self._check(str(self.name), value)


def real(default: float, low: float, high: float) -> Setting:
    """Return a setting that is a number within limits."""
    return Setting(default, partial(real_number, low=low, high=high))


def whole(default: int, low: int, high: int, *, allowed: Sequence[int] = ()) -> Setting:
    """Return a setting that is an integer within limits, or one of those that are allowed."""

    def check(name: str, value: Any) -> int:
        number = whole_number(name, value, low, high)
        if allowed and number not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, not {number}")
        return number

    return Setting(default, check)


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

    def _compute(
        self, trait: str, compute: Callable[[], Any], wanted: Callable[[Any], bool]
    ) -> None:
        """Compute a trait next, in a thread that does not keep this widget alive.

        `wanted` says of the widget whether it still shows what the trait was computed for.
        """
        self._job = partial(_set_if, weakref.ref(self), trait, compute, wanted)

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


def _set_if(
    widget: weakref.ref[Playground],
    trait: str,
    compute: Callable[[], Any],
    wanted: Callable[[Any], bool],
) -> None:
    """Set a trait to what is computed if the widget is still there and wants it."""
    found = compute()
    playground = widget()
    if playground is not None and wanted(playground):
        setattr(playground, trait, found)
