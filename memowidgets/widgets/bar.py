"""The bar above the dashboard, Python side: pickers, Compute and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from memowidgets.visible import quoted
from memowidgets.widgets.guarded import Guarded, validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memowidgets.progress import Step
    from memowidgets.widgets.protocol import Choice

__all__ = ["Bar", "packed_choices", "preferred"]

NO_WORK: dict[str, Any] = {"busy": False}
NO_MESSAGE = {"kind": "", "text": ""}


class Bar(Guarded):
    """The bar's part of a widget: pickers, a Compute button, and the progress of the work."""

    checkpoint = traitlets.Unicode("").tag(sync=True)
    layer = traitlets.Unicode("").tag(sync=True)
    metric = traitlets.Unicode("").tag(sync=True)
    computed = traitlets.Bool(default_value=False).tag(sync=True)
    outdated = traitlets.Bool(default_value=False).tag(sync=True)
    _choices = traitlets.Dict().tag(sync=True)
    _work = traitlets.Dict(NO_WORK).tag(sync=True)
    _status = traitlets.Unicode("").tag(sync=True)
    _message = traitlets.Dict(NO_MESSAGE).tag(sync=True)
    _warnings = traitlets.List(traitlets.Unicode()).tag(sync=True)
    _notes = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def offer(
        self, checkpoints: Sequence[Choice], layers: Sequence[Choice], metrics: Sequence[Choice]
    ) -> None:
        """Offer these choices. A picked value stays picked if it is still among them."""
        named = _named(checkpoints, layers, metrics)
        with self.hold_sync():
            self._name(named)
            self._choices = {name: packed_choices(choices) for name, choices in named.items()}
            for name, choices in named.items():
                if getattr(self, name[:-1]) not in self._labels[name[:-1]]:
                    setattr(self, name[:-1], preferred(choices))

    def check(self, name: str, value: str) -> str:
        """Return a value that can be picked. Raise an error for any other.

        Raises
        ------
        ValueError
            If it can't; the message lists the valid ones.
        """
        valid = self._labels[name]
        if value not in valid:
            raise ValueError(
                f"unknown {name} {quoted(value)}; valid: {', '.join(map(repr, valid))}"
            )
        return value

    @property
    def choice(self) -> tuple[str, str, str]:
        """Return the picked metric, layer and checkpoint."""
        return self.metric, self.layer, self.checkpoint

    def labels(self, metric: str, layer: str, checkpoint: str) -> list[str]:
        """Return the labels of these values, without the layer for a metric that has none."""
        of = self._labels
        names = {"metric": metric, "layer": layer, "checkpoint": checkpoint}
        if metric not in self._by_layer:
            del names["layer"]
        return [of[name].get(value, value) for name, value in names.items()]

    def show_step(self, step: Step) -> None:
        """Show how far the work is."""
        self._work = {
            "busy": True,
            "done": step.done,
            "total": step.total,
            "what": step.what,
            "seconds_left": step.seconds_left,
        }

    def start_work(self, what: str) -> None:
        """Show that work has begun."""
        self._work = {"busy": True, "done": 0, "total": 0, "what": what, "seconds_left": None}

    def end_work(self) -> None:
        """Show that no work is under way."""
        self._work = NO_WORK

    def say(self, text: str, kind: str = "note") -> None:
        """Show one sentence; `kind` is ``"note"``, ``"wait"`` or ``"error"``."""
        self._message = {"kind": kind, "text": text}

    @validate("checkpoint", "layer", "metric")
    def _check_choice(self, proposal: Any) -> str:
        return self.check(proposal["trait"].name, str(proposal["value"]))

    def _name(self, named: dict[str, Sequence[Choice]]) -> None:
        self._labels = {
            name[:-1]: {choice.value: choice.label for choice in choices}
            for name, choices in named.items()
        }
        self._by_layer = {choice.value for choice in named["metrics"] if choice.uses_layer}


def _named(
    checkpoints: Sequence[Choice], layers: Sequence[Choice], metrics: Sequence[Choice]
) -> dict[str, Sequence[Choice]]:
    named = {"checkpoints": checkpoints, "layers": layers, "metrics": metrics}
    for name, choices in named.items():
        if len(choices) == 0:
            raise ValueError(f"there is nothing to show yet: no {name}; train first")
    return named


def preferred(choices: Sequence[Choice]) -> str:
    """Return the value of the marked choice, or of the first one."""
    return next((c.value for c in choices if c.marked), choices[0].value)


def packed_choices(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Return choices in the form of the front end."""
    return [
        {"value": c.value, "label": c.label, "marked": c.marked, "usesLayer": c.uses_layer}
        for c in choices
    ]
