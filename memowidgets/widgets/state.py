"""Check a state that restores a view of the dashboard, from Python or from a page's address."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memowidgets.widgets.arrays import checked_tau

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PARTS", "PICKS", "checked", "usable"]

PICKS = ("checkpoint", "layer", "metric")
FORMER = {"score": "metric"}  # names that older states have
_TEXTS = (*PICKS, "filter", "sort", "decision")
_THRESHOLDS = ("tau", "eta")
PARTS = (*PICKS, *_THRESHOLDS, "comparing", "filter", "sort", "decision", "page")
_LONGEST = 4000
_MOST_SHOWN = 40


def checked(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state. Raise an error for a part that is unknown or of the wrong kind.

    Raises
    ------
    ValueError
        If a part is unknown or not of its kind; the message says which.

    Examples
    --------
    >>> checked({"tau": 1, "filter": "missed"})
    {'tau': 1.0, 'filter': 'missed'}
    """
    state = {FORMER.get(name, name): value for name, value in state.items()}
    unknown = [name for name in state if name not in PARTS]
    if unknown:
        raise ValueError(f"unknown part of a state: {unknown[0]!r}; valid: {', '.join(PARTS)}")
    return {name: _checked_part(name, value) for name, value in state.items()}


def usable(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the state that an address gives, and what is wrong with the rest of it.

    Parameters
    ----------
    text : str
        JSON, from anywhere: nothing in it is trusted.

    Examples
    --------
    >>> usable('{"tau": 0.1, "page": -3}')
    ({'tau': 0.1}, ['page must be a whole number from 0, not -3'])
    """
    try:
        state = json.loads(text) if len(text) <= _LONGEST else None
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        return {}, ["it is no state of a dashboard"]
    good: dict[str, Any] = {}
    wrong = []
    for name, value in state.items():
        try:
            good |= checked({name: value})
        except ValueError as error:
            wrong.append(str(error))
    return good, wrong


def _checked_part(name: str, value: Any) -> Any:
    if name in _THRESHOLDS:
        return _checked_threshold(name, value)
    if name == "comparing" and not isinstance(value, bool):
        raise ValueError(f"comparing must be true or false, not {_shown(value)}")
    if name == "page" and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ValueError(f"page must be a whole number from 0, not {_shown(value)}")
    if name in _TEXTS and not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {_shown(value)}")
    return value


def _checked_threshold(name: str, value: Any) -> float:
    if isinstance(value, str | bool) or not hasattr(value, "__float__"):
        raise ValueError(f"{name} must be a number, not {_shown(value)}")
    try:
        return checked_tau(value, name)
    except OverflowError:
        raise ValueError(f"{name} must be a finite number, not {_shown(value)}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
