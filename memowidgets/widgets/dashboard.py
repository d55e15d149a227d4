"""The dashboard: bar, explorer and inspector as one widget over one source."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from memowidgets.evaluation import opening_tau
from memowidgets.progress import Cancelled, Progress
from memowidgets.visible import visible
from memowidgets.widgets.background import in_background
from memowidgets.widgets.bar import Bar
from memowidgets.widgets.cells import created, displayed
from memowidgets.widgets.checks import rows_from
from memowidgets.widgets.explorer import Thresholds
from memowidgets.widgets.freed import give_back
from memowidgets.widgets.frontend import script, style
from memowidgets.widgets.given import MOST_OTHERS, checked_scores, with_log_lira
from memowidgets.widgets.inspector import Inspection
from memowidgets.widgets.pages import Extra
from memowidgets.widgets.standin import bundle
from memowidgets.widgets.state import PARTS, PICKS, checked, usable
from memowidgets.widgets.watch import watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memowidgets.progress import Step
    from memowidgets.widgets.protocol import Choice, DashboardSource, SampleDetail, ScoreView

__all__ = ["Dashboard"]

SECONDS_BETWEEN_STEPS = 0.1
SECONDS_BETWEEN_LOOKS = 3.0
PUBLISHED = ("tau_committed", "eta_committed", "comparing", "filter", "sort", "decision", "page")
Pick = tuple[str, str, str]


class Dashboard(Bar, Thresholds, Inspection, anywidget.AnyWidget):
    """Pick a checkpoint, a layer and a score, move τ, and look at the flagged samples.

    One widget whose page composes bar, explorer and inspector over one set of traits. What is
    computed already shows at once, and so does what the source calls quick. The rest waits for
    Compute, which works in a thread of its own: the kernel stays free, and Cancel acts between
    two batches. If the source can tell that it has new results, the bar offers to show them.

    Parameters
    ----------
    source : DashboardSource
        An audit.

    Attributes
    ----------
    checkpoint, layer, metric : str
        What is picked.
    computed : bool
        Whether the picked numbers are on show.
    tau, tau_committed, eta, eta_committed, comparing, counts, evaluation, undecided
        As in `ThresholdExplorer`.
    page, page_size, filter, sort, decision, selected, decisions
        As in `SampleInspector`.
    state : dict
        ``checkpoint``, ``layer``, ``metric``, ``tau``, ``eta``, ``comparing``, ``filter``,
        ``sort``, ``decision``, ``page``: what restores this view, without any sample's id or
        text. Set all of it or a part; what is not computed yet is restored once it is. In Voila
        the address of the page holds it too, after ``#memowidgets=``.

    Raises
    ------
    ValueError
        If the source has nothing to choose from, or `state` names something unknown.
    """

    _esm = script("dashboard")
    _css = style()

    def __init__(self, source: DashboardSource) -> None:
        self._source = source
        self._lock = threading.RLock()
        self._progress: Progress | None = None
        self._computing: threading.Event | None = None
        self._shown: Pick | None = None
        self._restoring = True
        self._pending: tuple[Pick, dict[str, Any]] | None = None
        self._unrestored: list[str] = []
        self._following = self._stale = self._closed = False
        self._revision = self._newest_revision()
        self._taus: dict[str, float] = {}
        choices = _choices_of(source)
        log = getattr(source, "decision_log", None)
        detail = self._detail_of if hasattr(source, "detail") else None
        self._keep(source.samples(), None, None, log, detail, self._pick_and_compute)
        super().__init__()
        self._count()
        self.offer(*choices)
        self._restoring = False
        self._log.listen(self)
        self._stop_looking = (
            watch(self, Dashboard._look, SECONDS_BETWEEN_LOOKS)
            if hasattr(source, "revision")
            else _nothing
        )
        self._show_device()
        self._picked()
        quick = getattr(source, "is_quick", None)
        if not self.computed and quick is not None and quick(*self.choice):
            self.compute()
        created(self)

    @property
    def bar(self) -> Dashboard:
        """The same widget, for code written when the dashboard was a box of several."""
        return self

    explorer = inspector = bar

    @property
    def score(self) -> str:
        """The name of the metric, for code written when the picker was called score."""
        return str(self.metric)

    @score.setter
    def score(self, metric: str) -> None:
        self.metric = metric

    # ---------------------------------------------------------------- state

    @property
    def state(self) -> dict[str, Any]:
        """Dictionary that restores this view."""
        shown = {name: getattr(self, name) for name in PARTS}
        waiting = self._pending[1] if self._pending is not None else {}
        return shown | waiting

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        wanted = checked(state)
        for name in PICKS:
            if name in wanted:
                self.check(name, wanted[name])
        self._restore(wanted)
        if self._unrestored:
            raise ValueError(self._unrestored[0])

    def _restore(self, wanted: dict[str, Any]) -> None:
        """Show what is picked there, and the rest as soon as that is on show."""
        with self._lock:
            self._restoring = True
            try:
                for name in PICKS:
                    setattr(self.bar, name, wanted.pop(name, getattr(self.bar, name)))
            finally:
                self._restoring = False
            self._pending, self._unrestored = (self.choice, wanted), []
            if "tau" in wanted:
                self._taus[self.metric] = wanted["tau"]
            self._picked()

    def _restore_rest(self) -> None:
        """Restore the rest of a state, for the view that is shown by now."""
        if self._pending is None or self._shown != self._pending[0]:
            return
        wanted, self._pending = self._pending[1], None
        self._restoring = True
        try:
            for name, value in wanted.items():
                try:
                    setattr(self, name, value)
                except (ValueError, traitlets.TraitError) as error:
                    self._unrestored.append(str(error))
        finally:
            self._restoring = False
        self._say_unrestored(self._unrestored)
        self._publish(None)

    def _hear_address(self, content: dict[str, Any]) -> None:
        """Restore what the address of the page says, as far as it makes sense; then follow."""
        self._following = True
        text = content.get("text")
        if not isinstance(text, str) or not text:
            self._publish(None)
            return
        wanted, problems = usable(text)
        for name in PICKS:
            try:
                self.check(name, wanted.get(name, getattr(self.bar, name)))
            except ValueError as error:
                problems.append(str(error))
                del wanted[name]
        self._restore(wanted)
        self._say_unrestored(problems)

    def _say_unrestored(self, problems: list[str]) -> None:
        if problems:
            said = self._message
            text = f"{said['text']} Not restored: {'; '.join(problems)}.".strip()
            self.say(text, said["kind"] or "note")

    @traitlets.observe(*PICKS, *PUBLISHED)
    def _publish(self, _change: object) -> None:
        """Tell the page what is shown, so that its address says so too."""
        if self._following and not self._restoring:
            self.send({"type": "state", "state": self.state})

    # ---------------------------------------------------------------- messages

    def _hear_compute(self, _content: dict[str, Any]) -> None:
        self.compute()

    def _hear_cancel(self, _content: dict[str, Any]) -> None:
        self.cancel()

    def _hear_refresh(self, _content: dict[str, Any]) -> None:
        self.refresh()

    # ---------------------------------------------------------------- work

    def compute(self) -> None:
        """Compute what is picked, in a thread. Show at once what is computed already."""
        with self._lock:
            if self._progress is not None:
                return
            pick = self.choice
            progress = Progress(_throttled(self._show_step))
            self._progress = progress
            self.say(self._old_view().strip(), "wait")
            self.start_work("starting")
            work = partial(self._compute_now, pick, progress)
            self._computing = in_background(work, "memowidgets-compute")

    def cancel(self) -> None:
        """Ask the running work to stop. What it finished is kept."""
        progress = self._progress
        if progress is not None:
            progress.cancel()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until no work is running, for scripts and tests."""
        computing = self._computing
        if computing is not None:
            computing.wait(timeout)

    def refresh(self) -> None:
        """Show what came since: new checkpoints, scores, and shadow models."""
        with self._lock:
            self._reread_choices()
            self._stale = True
            self._picked()

    def close(self) -> None:
        """Cancel the work, and take the widget off the page and its arrays out of memory.

        Its `state` and its decisions stay readable.
        """
        if not hasattr(self, "_stop_looking"):  # it failed while it was made
            super().close()
            return
        self._stop_looking()
        self.cancel()
        super().close()
        with self._lock:
            self._closed = True
            self._let_scores_go()
            self._let_samples_go()
        if hasattr(self._source, "let_go"):
            self._source.let_go()
        give_back()

    def _compute_now(self, pick: Pick, progress: Progress) -> None:
        view: ScoreView | None = None
        said = ("", "note")
        try:
            view = self._source.view(*pick, progress)
        except Cancelled:
            said = ("Cancelled; what was finished is kept.", "note")
        except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it in the bar
            said = (_sentence(error), "error")
        with self._lock:
            self._progress = None
            if self._closed:
                return
            self.end_work()
            self._show_device()
            self._reread_choices()
            if view is not None and pick == self.choice:
                self._show(pick, view)
            else:
                self._picked()
            if said[0]:
                behind = "" if self.computed else self._old_view()
                self.say(said[0] + behind, said[1])

    def _show_step(self, step: Step) -> None:
        if self._progress is not None:
            self.show_step(step)

    def _show_device(self) -> None:
        self._status = self._source.device_status()

    # ---------------------------------------------------------------- what there is to show

    def _look(self) -> None:
        """Offer to show what is new in the source, made here or elsewhere."""
        found = self._newest_revision()
        with self._lock:
            if self._progress is None and found is not None and found != self._revision:
                self.outdated = True

    def _newest_revision(self) -> Any:
        """Return the source's revision, or None if it has none."""
        try:
            return self._source.revision() if hasattr(self._source, "revision") else None
        except OSError:  # it is being written: it is asked again
            return None

    def _reread_choices(self) -> None:
        """Offer all choices that the source has by now."""
        self._revision = self._newest_revision()
        self.outdated = False
        self._restoring = True
        try:
            self.offer(*_choices_of(self._source))
        except Exception as error:  # noqa: BLE001 - as above: what was there can still be picked
            self.say(_sentence(error), "error")
        finally:
            self._restoring = False

    # ---------------------------------------------------------------- what is on show

    @traitlets.observe(*PICKS)
    def _picked(self, _change: object = None) -> None:
        """Show what is picked if it is there; else say what the old view is, and wait."""
        with self._lock:
            if self._restoring:
                return
            pick = self.choice
            if self._pending is not None and self._pending[0] != pick:
                self._pending = None
            if pick == self._shown and not self._stale:
                self._fresh()
                return
            if not self._source.is_computed(*pick):
                self._wait_for_compute()
            elif self._progress is None:
                self._fetch(pick)
            else:  # the source may be busy: never let the kernel wait for it
                in_background(partial(self._fetch, pick), "memowidgets-fetch")

    def _fetch(self, pick: Pick) -> None:
        """Show what is computed already."""
        try:
            view = self._source.view(*pick)
        except Exception as error:  # noqa: BLE001 - as above
            self.computed = False
            self.say(_sentence(error), "error")
            return
        with self._lock:
            if pick == self.choice and not self._closed:
                self._show(pick, view)

    def _wait_for_compute(self) -> None:
        self.computed = False
        self._dimmed = self._shown is not None
        advice = self._advice() if self._progress is None else "other work is under way"
        self.say(f"Not computed yet: {advice}.{self._old_view()}", "wait")

    def _advice(self) -> str:
        """Return what to do, and what it takes if the source says so."""
        cost = self._source.cost(*self.choice) if hasattr(self._source, "cost") else ""
        return f"press Compute ({cost})" if cost else "press Compute"

    def _fresh(self) -> None:
        self.computed = True
        self._dimmed = False
        self.say("")
        self._restore_rest()

    def _old_view(self) -> str:
        if self._shown is None:
            return ""
        return f" Below is still {', '.join(self.labels(*self._shown))}."

    def _show(self, pick: Pick, view: ScoreView) -> None:
        log_lira, keep, left_out = _truth(view)
        scores = view.scores[keep]
        tau = self._tau_for(pick[0], view)
        eta = view.eta if self._shown is None else self.eta_committed
        extras = self._extras(pick)
        errors = _kept(view.errors, keep)
        canaries = _kept(view.canaries, keep)
        given = checked_scores(
            scores, None, view.title, errors, "", log_lira, view.natural, canaries
        )
        others = partial(_aligned, extras, view.positions[keep]) if extras else None
        rows = rows_from(
            self._reader,
            scores,
            None if log_lira is None else log_lira >= eta,
            view.labels[keep],
            view.positions[keep],
            errors,
            log_lira,
            _kept(view.probabilities, keep),
            extras,
        )
        rows = replace(rows, eta=None if log_lira is None else eta, right=_kept(view.right, keep))
        with self.hold_sync():  # one message for the whole view
            self._shown, self._stale = pick, False
            self._taus[pick[0]] = tau
            self._show_scores(given, others, tau, eta)
            self._show_rows(rows, view.title, tau)
            self._warnings = [*left_out, *view.warnings]
            self._notes = list(view.notes)
            self._fresh()
        self._work_later()

    @traitlets.observe("eta_committed")
    def _judge_rows(self, _change: object) -> None:
        """Show the same samples where others of them count as memorised."""
        with self._lock:
            rows = self._rows
            if rows.log_lira is not None:
                eta = self.eta_committed
                judged = replace(rows, memorized=rows.log_lira >= eta, eta=eta)
                self._show_rows(judged, self._title, None)

    def _extras(self, pick: Pick) -> dict[str, Extra]:
        """Return the other scores that are computed at this layer and checkpoint, to sort by."""
        score, layer, checkpoint = pick
        return {
            other.value: Extra(
                other.label, partial(self._read_score, (other.value, layer, checkpoint))
            )
            for other in self._source.score_choices()
            if other.value != score and self._source.is_computed(other.value, layer, checkpoint)
        }

    def _read_score(self, pick: Pick) -> Any:
        view = self._source.view(*pick)
        return view.positions, view.scores

    def _detail_of(self, position: int) -> SampleDetail:
        """Return all that is known of a sample, for what is shown."""
        detail: SampleDetail = self._source.detail(  # type: ignore[attr-defined]  # optional
            position, *(self._shown or self.choice)
        )
        return detail

    def _pick_and_compute(self, layer: str, checkpoint: str) -> None:
        """Pick a layer and a checkpoint, and compute there unless it is computed already."""
        with self._lock:
            self._restoring = True
            try:
                self.layer, self.checkpoint = layer or self.layer, checkpoint
            finally:
                self._restoring = False
            self._picked()
            if not self.computed:
                self.compute()

    def _tau_for(self, score: str, view: ScoreView) -> float:
        """Return a score's last τ, or where it stands at first."""
        return self._taus.get(score, opening_tau(view.scores, view.natural))

    @traitlets.observe("tau")
    def _remember_tau(self, _change: object) -> None:
        if self._shown is not None:
            self._taus[self._shown[0]] = self.tau

    # ---------------------------------------------------------------- without a page

    def __repr__(self) -> str:
        metric, layer, checkpoint = self.choice
        chosen = f"{metric}, layer {visible(layer, 40)}, checkpoint {visible(checkpoint, 40)}"
        return f"Dashboard({chosen}: {self._in_words()})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        displayed(self)
        return bundle(super()._repr_mimebundle_(**kwargs), repr(self), self._stand_in())


def _choices_of(
    source: DashboardSource,
) -> tuple[Sequence[Choice], Sequence[Choice], Sequence[Choice]]:
    return source.checkpoint_choices(), source.layer_choices(), source.score_choices()


def _nothing() -> None:
    """Do nothing: it ends a thread that was never started."""


def _throttled(show: Any) -> Any:
    """Return a listener that passes on at most ten steps a second, and always the last one."""
    last = [0.0]

    def listen(step: Step) -> None:
        now = time.monotonic()
        if now - last[0] >= SECONDS_BETWEEN_STEPS or step.done == step.total:
            last[0] = now
            show(step)

    return listen


def _sentence(error: Exception) -> str:
    """Return an error as one line."""
    text = " ".join(str(error).split()) or f"{type(error).__name__}, without a message"
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _kept(values: Any, keep: Any) -> Any:
    return values if values is None or keep.all() else values[keep]


def _aligned(extras: dict[str, Extra], positions: Any) -> dict[str, Any]:
    """Return other scores by name. A score that lacks one of these positions is left out."""
    found: dict[str, Any] = {}
    for extra in list(extras.values())[:MOST_OTHERS]:
        theirs, scores = extra.read()
        order = np.argsort(theirs)
        places = np.searchsorted(theirs, positions, sorter=order).clip(max=len(theirs) - 1)
        if np.array_equal(theirs[order][places], positions):
            found[extra.label] = scores[order][places]
    return found


def _truth(view: ScoreView) -> tuple[Any, Any, list[str]]:
    """Return the known log-LiRA, a mask of its rows, and a sentence on the others."""
    if view.log_lira is None:
        return None, np.ones(len(view.scores), dtype=np.bool_), []
    log_lira, known, note = with_log_lira(view.log_lira)
    return log_lira, known, [note] if note else []
