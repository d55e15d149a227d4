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
    from memowidgets.progress import Progress
    from memowidgets.widgets.messages import AskMoments, Moment
    from memowidgets.widgets.source import Place, Source

NO_TIMELINE: dict[str, Any] = {"series": "", "ended": False, "moments": []}
_ANY = "*"  # checkpoint
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
            "series": self._series,
            "ended": self._source.has_ended(),
            "moments": [self._wire_of(moment) for moment in self._moments],
        }

    @property
    def _others(self) -> list[Any]:
        """What is compared with the score on show."""
        raise NotImplementedError

    @property
    def _series(self) -> str:
        """Name what moves: the score on show, and those that are compared with it."""
        places = self._places_at(_ANY)
        return "; ".join([*(" ".join(place) for place in places), self.axis])

    def _tell_series(self) -> None:
        """Tell the page of the timeline again where other scores move on it."""
        if self._timeline["series"] not in ("", self._series):
            self._tell_time()

    def _places_at(self, checkpoint: str) -> list[tuple[str, str, str]]:
        """Return the score on show, and those that are compared with it, when time is there.

        One of another time than the score on show stays where it is.
        """
        now = None if self._shown is None else self._shown.checkpoint
        places = [(self.metric, self.layer, checkpoint)]
        for metric, layer, at in self._others:
            places.append((metric, layer, checkpoint if at == now else at))
        return places

    def _wire_of(self, moment: Moment) -> dict[str, Any]:
        places = self._places_at(moment.value)
        computed = all(self._source.is_computed(*place) for place in places)
        ready = computed or all(
            self._source.is_computed(*place) or self._source.is_ready(*place)
            for place in places
        )
        return moment_on_wire(moment, computed=computed, ready=ready)

    def _skipped(self) -> list[tuple[str, str, str]]:
        """Return what is not scored at checkpoints that playing skips, and can be."""
        hollow = [one["value"] for one in self._timeline["moments"] if not one["ready"]]
        found = []
        for place in [place for value in hollow for place in self._places_at(value)]:
            missing = self._source.missing(*place)
            if not (missing.why_not or missing.trains):
                found.append(place)
        return [place for place in found if not self._source.is_computed(*place)]

    def _fill(self, progress: Progress) -> None:
        """Score what playing skips."""
        for place in self._skipped():
            self._source.scores_at(*place, progress)

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
            is_shown, judged, series = self._shown, self._judged, self._series
            wanted = {name: self._places_at(name) for name in checkpoints}
        if is_shown is None:
            return
        n = len(self._source.samples())
        rows = judged.scored.positions
        memorized = judged.memorized
        of_all = np.zeros(n, np.bool_)
        if memorized is not None:
            of_all[rows] = memorized
        bits = [] if memorized is None else [np.packbits(of_all).tobytes()]
        self._answer({"type": "memorized"}, bits)
        for checkpoint, places in wanted.items():
            answer = {
                "type": "moment",
                "series": series,
                "checkpoint": checkpoint,
                "problem": "",
            }
            buffers = []
            try:
                for place in places:
                    found = self._on_axis(self._source.scores_at(*place))
                    buffers.append(_in_order(found, rows, n).tobytes())
            except Exception as error:  # noqa: BLE001 - whatever it is, playing goes on without it
                answer["problem"], buffers = without_advice(error), []
            self._answer(answer, buffers)
        with self._lock:
            self._tell_time()  # some may be computed only now

    def _answer(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        if self.comm is not None:
            self.send(content, buffers)


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
