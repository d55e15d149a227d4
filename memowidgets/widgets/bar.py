"""The bar above the dashboard, Python side: pickers, Compute, progress; it knows no source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from memowidgets.widgets.assets import script, style

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memowidgets.progress import Step
    from memowidgets.widgets.protocol import Choice

__all__ = ["Bar"]

NO_WORK: dict[str, Any] = {"busy": False}
NO_MESSAGE = {"kind": "", "text": ""}


class Bar(anywidget.AnyWidget):
    """Pickers for checkpoint, layer and score, a Compute button, and how far it is.

    Parameters
    ----------
    checkpoints, layers, scores : sequence of Choice
        What can be picked; the first marked one is picked at first, or the first of all.
    on_compute, on_cancel : callable
        Called without arguments when the user presses the buttons.

    Attributes
    ----------
    checkpoint, layer, score : str
        What is picked.
    computed : bool
        Whether what is picked is on show or would be at once.
    """

    _esm = script("bar")
    _css = style()

    checkpoint = traitlets.Unicode("").tag(sync=True)
    layer = traitlets.Unicode("").tag(sync=True)
    score = traitlets.Unicode("").tag(sync=True)
    computed = traitlets.Bool(default_value=False).tag(sync=True)
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
        on_compute: Callable[[], object],
        on_cancel: Callable[[], object],
    ) -> None:
        named = {"checkpoints": checkpoints, "layers": layers, "scores": scores}
        for name, choices in named.items():
            if len(choices) == 0:
                raise ValueError(f"there is nothing to show yet: no {name}; train first")
        self._labels = {
            name[:-1]: {choice.value: choice.label for choice in choices}
            for name, choices in named.items()
        }
        super().__init__(
            checkpoint=_preferred(checkpoints),
            layer=_preferred(layers),
            score=_preferred(scores),
            _choices={name: _packed(choices) for name, choices in named.items()},
        )
        self._actions = {"compute": on_compute, "cancel": on_cancel}
        self.on_msg(self._hear)

    @property
    def choice(self) -> tuple[str, str, str]:
        """What is picked: score, layer, checkpoint."""
        return self.score, self.layer, self.checkpoint

    def labels(self, score: str, layer: str, checkpoint: str) -> tuple[str, str, str]:
        """What the user reads for these values."""
        of = self._labels
        return of["score"][score], of["layer"][layer], of["checkpoint"][checkpoint]

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

    @traitlets.validate("checkpoint", "layer", "score")
    def _check_choice(self, proposal: Any) -> str:
        name, value = proposal["trait"].name, str(proposal["value"])
        valid = self._labels[name]
        if value not in valid:
            raise ValueError(f"unknown {name} {value!r}; valid: {', '.join(map(repr, valid))}")
        return value

    def _hear(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        action = self._actions.get(content.get("type", ""))
        if action is not None:
            action()


def _preferred(choices: Sequence[Choice]) -> str:
    return next((c.value for c in choices if c.marked), choices[0].value)


def _packed(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    return [{"value": c.value, "label": c.label, "marked": c.marked} for c in choices]
