"""The timeline of a dashboard: what its page is told of the checkpoints, and their scores."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from memowidgets.store import without_advice
from memowidgets.widgets.explorer import Thresholds
from memowidgets.widgets.widget import in_background

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memowidgets.evaluation.scored import Scored
    from memowidgets.widgets.messages import AskMoments, Moment
    from memowidgets.widgets.source import Place, Source

NO_TIMELINE: dict[str, Any] = {"series": "", "ended": False, "moments": []}
_FURTHEST = 3e38  # the largest number that float32 holds is a little larger


class InTime(Thresholds):
    """The timeline's part of a dashboard: its checkpoints, and scores that move between them."""

    _timeline = traitlets.Dict(NO_TIMELINE).tag(sync=True)

    _source: Source
    _shown: Place | None
    metric: str
    layer: str
    _moments: Sequence[Moment] = ()

    @traitlets.observe("metric", "layer", "axis")
    def _tell_time(self, _change: object = None) -> None:
        """Tell the page which checkpoints there are, and where the picked score is computed."""
        if not self._moments:
            self._timeline = NO_TIMELINE
            return
        self._timeline = {
            "series": _series(self.metric, self.layer, self.axis),
            "ended": self._source.has_ended(),
            "moments": [self._wire_of(moment) for moment in self._moments],
        }

    def _wire_of(self, moment: Moment) -> dict[str, Any]:
        place = self.metric, self.layer, moment.value
        computed = self._source.is_computed(*place)
        ready = computed or self._source.is_ready(*place)
        return moment_on_wire(moment, computed=computed, ready=ready)

    @property
    def _star(self) -> str:
        """Name of the best time to predict; "" where nothing has settled yet."""
        return next((one.value for one in self._moments if one.star), "")

    def _hear_moments(self, asked: AskMoments) -> None:
        in_background(
            partial(self._send_moments, asked["checkpoints"]), "memowidgets-moments"
        )

    def _send_moments(self, checkpoints: Sequence[str]) -> None:
        """Send the scores at some checkpoints, one message for each, and who is memorised."""
        with self._lock:
            place, judged = self._shown, self._judged
        if place is None:
            return
        n = len(self._source.samples())
        rows = judged.scored.positions
        memorized = judged.memorized
        of_all = np.zeros(n, np.bool_)
        if memorized is not None:
            of_all[rows] = memorized
        bits = [] if memorized is None else [np.packbits(of_all).tobytes()]
        self._answer({"type": "memorized"}, bits)
        for checkpoint in checkpoints:
            answer = {
                "type": "moment",
                "series": _series(place.metric, place.layer, judged.scored.axis),
                "checkpoint": checkpoint,
                "problem": "",
            }
            buffers = []
            try:
                found = self._source.scores_at(place.metric, place.layer, checkpoint)
                on_axis = self._on_axis(found)
                buffers = [_in_order(on_axis, rows, n).tobytes()]
            except Exception as error:  # noqa: BLE001 - whatever it is, playing goes on without it
                answer["problem"] = without_advice(error)
            self._answer(answer, buffers)
        with self._lock:
            self._tell_time()  # some may be computed only now

    def _answer(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        if self.comm is not None:
            self.send(content, buffers)


def _series(metric: str, layer: str, axis: str) -> str:
    """Name what is scored, and how."""
    return f"{metric} {layer} {axis}"


def moment_on_wire(moment: Moment, *, computed: bool, ready: bool) -> dict[str, Any]:
    """Return a checkpoint in the form of the front end."""
    losses = {
        "loss": _finite(moment.loss),
        "held_out": _finite(moment.held_out),
    }
    return {**asdict(moment), **losses, "computed": computed, "ready": ready}


def _finite(loss: float | None) -> float | None:
    return None if loss is None or not math.isfinite(loss) else float(loss)


def _in_order(scored: Scored, rows: NDArray[np.int64], n: int) -> NDArray[np.float32]:
    """Return one score for each of n samples; NaN for one without, or that is not among `rows`."""
    of_all = np.full(n, np.nan)
    of_all[scored.positions] = scored.scores
    shown = np.full(n, np.nan, np.float32)
    shown[rows] = narrowed(of_all[rows])
    return shown


def narrowed(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return scores as float32, none of which becomes infinite."""
    return np.clip(scores, -_FURTHEST, _FURTHEST).astype(np.float32)
