"""The bar above the dashboard, Python side: pickers, Compute, progress; it knows no source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from memowidgets.visible import quoted
from memowidgets.widgets.assets import script, style
from memowidgets.widgets.guarded import Guarded, carefully, unknown, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memowidgets.progress import Step
    from memowidgets.widgets.protocol import Choice

__all__ = ["Bar"]

NO_WORK: dict[str, Any] = {"busy": False}
NO_MESSAGE = {"kind": "", "text": ""}


class Bar(Guarded, anywidget.AnyWidget):
    """Pickers for checkpoint, layer and score, a Compute button, and how far it is.

    Parameters
    ----------
    checkpoints, layers, scores : sequence of Choice
        What can be picked; the first marked one is picked at first, or the first of all.
    actions : mapping of str to callable
        What is done when the page says ``"compute"``, ``"cancel"``, ``"refresh"`` or
        ``"address"``; each takes the message.

    Attributes
    ----------
    checkpoint, layer, score : str
        What is picked.
    computed : bool
        Whether what is picked is on show or would be at once.
    outdated : bool
        Whether there is more to show than is shown.
    """

    _esm = script("bar")
    _css = style()

    checkpoint = traitlets.Unicode("").tag(sync=True)
    layer = traitlets.Unicode("").tag(sync=True)
    score = traitlets.Unicode("").tag(sync=True)
    computed = traitlets.Bool(default_value=False).tag(sync=True)
    outdated = traitlets.Bool(default_value=False).tag(sync=True)
    _choices = traitlets.Dict().tag(sync=True)
    _work = traitlets.Dict(NO_WORK).tag(sync=True)
    _status = traitlets.Unicode("").tag(sync=True)
    _message = traitlets.Dict(NO_MESSAGE).tag(sync=True)
    _warnings = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(
        self,
        checkpoints: Sequence[Choice],
        layers: Sequence[Choice],
        scores: Sequence[Choice],
        actions: Mapping[str, Callable[[dict[str, Any]], object]],
    ) -> None:
        named = _named(checkpoints, layers, scores)
        self._take(named)
        super().__init__(
            checkpoint=_preferred(checkpoints),
            layer=_preferred(layers),
            score=_preferred(scores),
            _choices={name: _packed(choices) for name, choices in named.items()},
        )
        self._actions = actions
        self.on_msg(carefully(self._hear))

    def offer(
        self, checkpoints: Sequence[Choice], layers: Sequence[Choice], scores: Sequence[Choice]
    ) -> None:
        """Let the user pick from these; what is picked stays, if it is still there."""
        named = _named(checkpoints, layers, scores)
        with self.hold_sync():
            self._take(named)
            self._choices = {name: _packed(choices) for name, choices in named.items()}
            for name, choices in named.items():
                if getattr(self, name[:-1]) not in self._labels[name[:-1]]:
                    setattr(self, name[:-1], _preferred(choices))

    def check(self, name: str, value: str) -> str:
        """A value that can be picked.

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
        """What is picked: score, layer, checkpoint."""
        return self.score, self.layer, self.checkpoint

    def labels(self, score: str, layer: str, checkpoint: str) -> list[str]:
        """What the user reads for these values; no layer for a score that has none."""
        of = self._labels
        names = {"score": score, "layer": layer, "checkpoint": checkpoint}
        if score not in self._by_layer:
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

    def close(self) -> None:
        """Take the widget and its layout off the page and out of memory."""
        if self.layout is not None and self.comm is not None:
            self.layout.close()
        super().close()

    @validate("checkpoint", "layer", "score")
    def _check_choice(self, proposal: Any) -> str:
        return self.check(proposal["trait"].name, str(proposal["value"]))

    def _take(self, named: dict[str, Sequence[Choice]]) -> None:
        self._labels = {
            name[:-1]: {choice.value: choice.label for choice in choices}
            for name, choices in named.items()
        }
        self._by_layer = {choice.value for choice in named["scores"] if choice.uses_layer}

    def _hear(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        kind = content.get("type")
        if not isinstance(kind, str) or kind not in self._actions:
            raise unknown(content)
        self._actions[kind](content)


def _named(
    checkpoints: Sequence[Choice], layers: Sequence[Choice], scores: Sequence[Choice]
) -> dict[str, Sequence[Choice]]:
    named = {"checkpoints": checkpoints, "layers": layers, "scores": scores}
    for name, choices in named.items():
        if len(choices) == 0:
            raise ValueError(f"there is nothing to show yet: no {name}; train first")
    return named


def _preferred(choices: Sequence[Choice]) -> str:
    return next((c.value for c in choices if c.marked), choices[0].value)


def _packed(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    return [
        {"value": c.value, "label": c.label, "marked": c.marked, "usesLayer": c.uses_layer}
        for c in choices
    ]
