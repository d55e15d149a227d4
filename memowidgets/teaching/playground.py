"""What the playgrounds share: settings that are checked, and results that the page computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from memowidgets.checks import real_number, whole_number
from memowidgets.widgets.frontend import script, style
from memowidgets.widgets.standin import bundle, table
from memowidgets.widgets.widget import Guarded, created, displayed, refusing, validate

STATIC = Path(__file__).parent / "static"
STYLE = style("shared", STATIC / "playground.css")


def front_end(name: str) -> str:
    """Return the ES module of one playground."""
    return script(STATIC / f"{name}_view.js")


class Setting(traitlets.TraitType[Any, Any]):
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


def result() -> Any:
    """Return a trait that is None until the page has computed it."""
    return traitlets.Any(None, read_only=True).tag(result=True)


class Playground(Guarded, anywidget.AnyWidget):
    """A widget whose page computes everything, from settings that are checked here."""

    _css = STYLE
    _title = "Playground"
    _results = traitlets.Dict().tag(sync=True, page=True)

    def __init__(self, **traits: Any) -> None:
        self._hearing = False
        super().__init__(**traits)
        created(self)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the page sends."""
        self._hearing = True
        try:
            super().set_state(sync_data)
        finally:
            self._hearing = False

    @validate("_results")
    def _check_results(self, proposal: Any) -> dict[str, Any]:
        _read(proposal["value"])
        return dict(proposal["value"])

    @traitlets.observe(traitlets.All)
    def _follow(self, change: Any) -> None:
        """Take results from the page; they are forgotten when Python changes a setting."""
        if change["name"] == "_results":
            self._show(_read(change["new"]))
        elif isinstance(self.traits()[change["name"]], Setting) and not self._hearing:
            self._show({})

    def _show(self, found: dict[str, Any]) -> None:
        for name in self.trait_names(result=True):
            self.set_trait(name, found.get(name))

    def _facts(self) -> list[tuple[str, str]]:
        settings = [name for name, trait in self.traits().items() if isinstance(trait, Setting)]
        return [(name.replace("_", " "), str(getattr(self, name))) for name in settings]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"{type(self).__name__}({facts})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        displayed(self)
        stand_in = table(self._title, self._facts())
        return bundle(super()._repr_mimebundle_(**kwargs), repr(self), stand_in)


def _read(sent: Any) -> Any:
    """Return what the page sent, with arrays for bytes and lists."""
    if isinstance(sent, dict):
        return {name: _read(value) for name, value in sent.items()}
    if isinstance(sent, bytes | memoryview):
        return np.frombuffer(sent, dtype=np.float64)
    return np.array(sent) if isinstance(sent, list) else sent
