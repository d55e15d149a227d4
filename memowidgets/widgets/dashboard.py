"""The dashboard: bar, explorer and inspector as one widget over one source."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from memowidgets.checks import as_code
from memowidgets.evaluation.scored import AXES, BY_CLASS, AgainstClass
from memowidgets.evaluation.thresholds import flagging
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError, without_advice
from memowidgets.visible import quoted, visible
from memowidgets.widgets.compared import Compared
from memowidgets.widgets.explored import Judged
from memowidgets.widgets.explorer import Thresholds
from memowidgets.widgets.frontend import script, style
from memowidgets.widgets.inspected import Listed
from memowidgets.widgets.inspector import Inspection
from memowidgets.widgets.messages import Pick, State, fields, mismatch
from memowidgets.widgets.standin import bundle
from memowidgets.widgets.threads import Newest, give_back, in_background, watch
from memowidgets.widgets.widget import checked_tau, created, displayed, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memowidgets.evaluation.scored import Rule, Scored
    from memowidgets.progress import Step
    from memowidgets.widgets.messages import Address, Knock, Plain, Share
    from memowidgets.widgets.protocol import Choice, DashboardSource, Missing, SampleDetail


PICKS = ("checkpoint", "layer", "metric")
ORDER = PICKS[::-1]  # as a source takes them
THRESHOLDS = ("tau", "eta")
PARTS = tuple(State.__annotations__)
PUBLISHED = tuple(f"{name}_committed" if name in THRESHOLDS else name for name in PARTS)
SECONDS_BETWEEN_STEPS = 0.1
SECONDS_BETWEEN_LOOKS = 3.0
LONGEST_ADDRESS = 4000  # characters
MOST_OTHERS = 2  # scores beside the one on show, whose curves can still be told apart
_EARLY = "Too early: {} the model is no better than guessing."
NO_WORK = {"busy": False, "done": 0, "total": 0, "what": "", "seconds_left": None}
Place = tuple[str, str, str]


class Dashboard(Thresholds, Inspection, anywidget.AnyWidget):
    """Pick a checkpoint, a layer and a score, move τ, and look at the flagged samples.

    One widget whose page composes bar, explorer and inspector over one set of traits. What is
    computed already shows at once, and what takes less than ten seconds begins by itself. The
    rest waits for Compute, which works in a thread of its own: the kernel stays free, and Cancel
    acts between two batches. Where a score needs models that are not trained yet, its button says
    how many and how long that takes. Another score begins at the τ that flags as many samples. If
    the source can tell that it has new results, the bar offers to show them.

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
    axis : str
        ``"score"``, or ``"class"``: then scores and `tau` are in robust deviations from the median
        of each sample's class. There -1, where `tau` opens, flags what
        ``Audit.flagged(tau="class")`` has.
    comparing : list of dict
        ``checkpoint``, ``layer`` and ``metric`` of each score that is compared with the one on
        show, at most 2. Empty: none is.
    tau, tau_committed, eta, eta_committed, more, counts, evaluation, undecided
        As in `ThresholdExplorer`.
    page, page_size, filter, sort, decision, selected, decisions
        As in `SampleInspector`.
    state : dict
        ``checkpoint``, ``layer``, ``metric``, ``axis``, ``tau``, ``eta``, ``comparing``,
        ``more``, ``filter``, ``sort``, ``decision``, ``page``, ``selected``: what restores this
        view, without any sample's id or text. Set all of it or a part; what is not
        computed yet is restored once it is. In Voila the address of the page holds it too, after
        ``#memowidgets=``.

    Raises
    ------
    ValueError
        If the source has nothing to choose from, or `state` names something unknown.
    """

    _esm = script("dashboard")
    _css = style()

    checkpoint = traitlets.Unicode("").tag(sync=True)
    layer = traitlets.Unicode("").tag(sync=True)
    metric = traitlets.Unicode("").tag(sync=True)
    computed = traitlets.Bool(default_value=False).tag(sync=True)
    outdated = traitlets.Bool(default_value=False).tag(sync=True)
    comparing: Any = traitlets.List().tag(sync=True)
    _beside: Any = traitlets.Dict().tag(sync=True)
    _compared = traitlets.Dict().tag(sync=True)
    _choices = traitlets.Dict().tag(sync=True)
    _share = traitlets.List(traitlets.Unicode()).tag(sync=True)
    _work: Any = traitlets.Dict(NO_WORK).tag(sync=True)
    _status = traitlets.Unicode("").tag(sync=True)
    _message = traitlets.Dict({"kind": "", "text": ""}).tag(sync=True)
    _warnings = traitlets.List(traitlets.Unicode()).tag(sync=True)
    _notes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    _button = traitlets.Unicode("").tag(sync=True)
    _name = traitlets.Unicode("").tag(sync=True)
    _early = traitlets.Unicode("").tag(sync=True)
    _unchecked = traitlets.Dict().tag(sync=True)

    def __init__(self, source: DashboardSource) -> None:
        self._source = source
        self._lock = threading.RLock()
        self._progress: Progress | None = None
        self._computing: threading.Event | None = None
        self._shown: Place | None = None
        self._restoring = True
        self._pending: tuple[Place, dict[str, Any]] | None = None
        self._comparer = Newest("memowidgets-compare")
        self._unrestored: list[str] = []
        self._following = self._stale = self._closed = self._linked = False
        self._revision = self._newest_revision()
        self._taus: dict[tuple[str, str], float] = {}  # by score and axis
        choices = _choices_of(source)
        self._keep(source.samples(), None, None, source.decision_log, self._detail_of)
        super().__init__()
        self._count()
        self._offer(choices)
        self._restoring = False
        self._log.listen(self)
        self._stop_looking = watch(self, Dashboard._look, SECONDS_BETWEEN_LOOKS)
        self._status = source.device_status()
        self._share = ["report", *(["python"] if source.opened_by() else [])]
        self._name = source.name
        self._picked()
        created(self)

    # ---------------------------------------------------------------- what can be picked

    @property
    def _choice(self) -> Place:
        """The picked metric, layer and checkpoint."""
        return self.metric, self.layer, self.checkpoint

    def _offer(self, choices: dict[str, Sequence[Choice]]) -> None:
        """Offer these choices. A picked value stays picked if it is still among them."""
        for name, offered in choices.items():
            if len(offered) == 0:
                raise ValueError(f"there is nothing to show yet: no {name}; train first")
        with self.hold_sync():
            self._labels = {
                name[:-1]: {choice.value: choice.label for choice in offered}
                for name, offered in choices.items()
            }
            self._by_layer = {choice.value for choice in choices["metrics"] if choice.uses_layer}
            self._choices = {name: packed_choices(offered) for name, offered in choices.items()}
            for name, offered in choices.items():
                if getattr(self, name[:-1]) not in self._labels[name[:-1]]:
                    marked = (choice.value for choice in offered if choice.marked)
                    setattr(self, name[:-1], next(marked, offered[0].value))

    def _check(self, name: str, value: str) -> str:
        """Return a value that can be picked. Raise an error that lists them for any other."""
        valid = self._labels[name]
        if value not in valid:
            raise ValueError(
                f"unknown {name} {quoted(value)}; valid: {', '.join(map(repr, valid))}"
            )
        return value

    @validate(*PICKS)
    def _check_choice(self, proposal: Any) -> str:
        return self._check(proposal["trait"].name, str(proposal["value"]))

    @validate("comparing")
    def _check_comparing(self, proposal: Any) -> list[Pick]:
        picks: list[Pick] = proposal["value"]
        problem = mismatch(picks, list[Pick], "comparing")
        if problem or len(picks) > MOST_OTHERS:
            raise ValueError(problem or f"comparing has {len(picks)} scores, not 1 or 2")
        for place in map(_as_place, picks):
            for name, value in zip(ORDER, place, strict=True):
                self._check(name, value)
        return [_as_pick(_as_place(pick)) for pick in picks]

    def _say(self, text: str, kind: str = "note") -> None:
        """Show one sentence; `kind` is ``"note"``, ``"wait"`` or ``"error"``."""
        self._message = {"kind": kind, "text": text}

    # ---------------------------------------------------------------- state

    @property
    def state(self) -> dict[str, Any]:
        """Dictionary that restores this view."""
        shown = {name: getattr(self, name) for name in PARTS}
        waiting = self._pending[1] if self._pending is not None else {}
        return shown | waiting

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict):
            raise TypeError(
                f"state must be a dictionary, as `state` gives it, not {as_code(state)}"
            )
        wanted = checked(state)
        for name in PICKS:
            if name in wanted:
                self._check(name, wanted[name])
        self._linked = False
        self._restore(wanted)
        if self._unrestored:
            raise ValueError(self._unrestored[0])

    def _restore(self, wanted: dict[str, Any]) -> None:
        """Show what is picked there, and the rest as soon as that is on show."""
        with self._lock:
            with self._silently():
                for name in PICKS:
                    setattr(self, name, wanted.pop(name, getattr(self, name)))
            self._pending, self._unrestored = (self._choice, wanted), []
            if "tau" in wanted and not self._linked:
                self._taus[self.metric, wanted.get("axis", self.axis)] = wanted["tau"]
            self._picked()

    @contextmanager
    def _silently(self) -> Iterator[None]:
        """Set several traits before the view and the address of the page follow them."""
        self._restoring = True
        try:
            yield
        finally:
            self._restoring = False

    def _restore_rest(self) -> None:
        """Restore the rest of a state, for the view that is shown by now."""
        if self._pending is None or self._shown != self._pending[0]:
            return
        wanted, self._pending = self._pending[1], None
        with self._silently():
            for name, value in [(part, wanted[part]) for part in PARTS if part in wanted]:
                if name == "tau" and self._linked and not self._is_near_scores(value):
                    self._unrestored.append(
                        f"τ = {value:.4g} is far from every score here, so it is of another audit"
                    )
                    continue
                try:
                    setattr(self, name, value)
                except (ValueError, traitlets.TraitError) as error:
                    self._unrestored.append(str(error))
        self._say_unrestored(self._unrestored)
        self._publish(None)

    def _is_near_scores(self, tau: float) -> bool:
        """Whether τ lies where the scores do, or up to their range beside them."""
        scores = self._judged.scored.scores
        low, high = float(scores.min()), float(scores.max())
        reach = (high - low) or max(abs(low), 1.0)
        return low - reach <= tau <= high + reach

    def _hear_address(self, content: Address) -> None:
        """Restore what the address of the page says, as far as it makes sense; then follow."""
        self._following, text = True, content["text"]
        if not text:
            self._publish(None)
            return
        wanted, problems = usable(text)
        for name in PICKS:
            try:
                self._check(name, wanted.get(name, getattr(self, name)))
            except ValueError as error:
                problems.append(str(error))
                del wanted[name]
        self._linked = True
        self._restore(wanted)
        self._say_unrestored(problems)

    def _say_unrestored(self, problems: list[str]) -> None:
        if problems:
            said = self._message
            text = f"{said['text']} Not restored: {'; '.join(problems)}.".strip()
            self._say(text, said["kind"] or "note")

    @traitlets.observe(*PUBLISHED)
    def _publish(self, _change: object) -> None:
        """Tell the page what is shown, so that its address says so too."""
        if self._following and not self._restoring:
            self.send({"type": "state", "state": self.state})

    # ---------------------------------------------------------------- messages

    def _hear_compute(self, _content: object) -> None:
        self.compute()

    def _hear_check(self, _content: object) -> None:
        self._begin(self._source.unchecked().button, self._source.check)

    def _hear_cancel(self, _content: object) -> None:
        self.cancel()

    def _hear_refresh(self, _content: object) -> None:
        self.refresh()

    def _hear_knock(self, asked: Knock) -> None:
        picked = [getattr(self, name) for name in PICKS]
        self.send({"type": "heard", "request": asked["request"], "picked": picked})

    def _hear_export(self, asked: Plain) -> None:
        """Send what is known of the flagged and the decided samples, as a file."""
        if self._shown is None:
            super()._hear_export(asked)
            return
        try:
            place = *self._shown, self._rule, self.eta_committed
            text = self._source.export_text(*place)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it on the page
            self._reply(asked, _sentence(error), done=False)
            return
        self._reply(asked, "", file="flagged.csv", content=text)

    @property
    def _rule(self) -> Rule:
        """What flags the samples."""
        return self.tau if self.axis == AXES[0] else AgainstClass(self.tau)

    def _hear_share(self, asked: Share) -> None:
        in_background(partial(self._share_now, asked), "memowidgets-share")

    def _share_now(self, asked: Share) -> None:
        """Send the report, or Python that restores this view, or the reason why not."""
        answer: dict[str, Any] = {"type": "shared", "request": asked["request"], "text": ""}
        buffers: list[bytes] = []
        try:
            if asked["what"] == "report":
                shown = zip(ORDER, self._shown or self._choice, strict=True)
                state = self.state | dict(shown)
                buffers = [self._source.report_page(state)]
                answer["file"] = file = self._named(state)
                answer["text"] = f"Saved as {file}, at this view. No sample is in it."
            else:
                answer["code"] = (
                    "import memowidgets as mw\n"
                    f"dashboard = {self._source.opened_by()}.dashboard()\n"
                    f"dashboard.state = {self.state!r}\n"
                    "dashboard\n"
                )
        except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it on the page
            answer["text"] = _sentence(error)
        if self.comm is not None:
            self.send(answer, buffers)

    def _named(self, state: dict[str, Any]) -> str:
        """Return the name of a file that shows a state."""
        layer = state["layer"] if state["metric"] in self._by_layer else ""
        how = "against class " * (state["axis"] == BY_CLASS) + f"tau={state['tau']:.3g}"
        parts = self._name or "audit", state["metric"], layer, state["checkpoint"], how
        return re.sub(r"[^\w.+=-]+", "-", " ".join(filter(None, parts))) + ".html"

    # ---------------------------------------------------------------- work

    def compute(self) -> None:
        """Compute what is picked, in a thread. Show at once what is computed already."""
        self._begin(f"{self._source.missing(*self._choice).cost}{self._old_view()}")

    def _begin(self, said: str, check: Callable[[Progress], None] | None = None) -> None:
        with self._lock:
            if self._progress is not None:
                return
            progress = self._progress = Progress(_throttled(self._show_step))
            pick = self._lacking() or self._choice
            self._say(said or f"{self._source.missing(*pick).cost}{self._old_view()}", "wait")
            self._work = NO_WORK | {"busy": True, "what": "starting"}
            now = partial(self._compute_now, pick, progress, check)
            self._computing = in_background(now, "memowidgets-compute")

    def cancel(self) -> None:
        """Ask the running work to stop. What it finished is kept."""
        progress = self._progress
        if progress is not None:
            progress.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no work is running, for scripts and tests. Return whether that is so.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most, for the numbers and then for what is drawn of them.
        """
        computing = self._computing
        done = (computing is None or computing.wait(timeout)) and super().wait(timeout)
        return done and self._comparer.wait(timeout)

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
            self._closed, self._compared = True, {}
            self._let_scores_go()
            self._let_samples_go()
        self._source.let_go()
        give_back()

    def _compute_now(
        self, pick: Place, progress: Progress, check: Callable[[Progress], None] | None
    ) -> None:
        view: Scored | None = None
        said = ("", "note")
        try:
            if check is not None:
                self._stale = True
                check(progress)
            view = self._source.view(*pick, progress)
        except Cancelled:
            said = ("Cancelled; what was finished is kept.", "note")
        except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it in the bar
            said = (_sentence(error), "error")
        with self._lock:
            self._progress = None
            if self._closed:
                return
            self._work = NO_WORK
            self._status = self._source.device_status()
            self._reread_choices()
            if view is None and pick == self._lacking():  # never begin again by itself
                self._wait_for(pick)
            elif view is not None and pick == self._choice:
                self._show(pick, view)
            else:
                self._picked()
            if said[0]:
                behind = "" if self.computed else self._old_view()
                self._say(said[0] + behind, said[1])

    def _show_step(self, step: Step) -> None:
        if self._progress is not None:
            parts = ("done", "total", "what", "seconds_left")
            self._work = {"busy": True, **{name: getattr(step, name) for name in parts}}

    # ---------------------------------------------------------------- what there is to show

    def _look(self) -> None:
        """Offer to show what is new in the source, made here or elsewhere."""
        found = self._newest_revision()
        with self._lock:
            if self._progress is None and found is not None and found != self._revision:
                self.outdated = True

    def _newest_revision(self) -> Any:
        try:
            return self._source.revision()
        except OSError:  # it is being written: it is asked again
            return None

    def _reread_choices(self) -> None:
        """Offer all choices that the source has by now."""
        self._revision = self._newest_revision()
        self.outdated = False
        with self._silently():
            try:
                self._offer(_choices_of(self._source))
            except Exception as error:  # noqa: BLE001 - as above: what was there can still be picked
                self._say(_sentence(error), "error")

    # ---------------------------------------------------------------- what is on show

    @traitlets.observe(*PICKS)
    def _picked(self, _change: object = None) -> None:
        """Show what is picked if it is there; else say what the old view is, and wait."""
        with self._lock:
            if self._restoring:
                return
            pick = self._choice
            if self._pending is not None and self._pending[0] != pick:
                self._pending = None
            if pick == self._shown and not self._stale:
                self._fresh()
                self._compare()
                return
            if not self._source.is_computed(*pick):
                if self._wait_for(pick).short:
                    self.compute()
            elif self._progress is None:
                self._fetch(pick)
            else:  # the source may be busy: never let the kernel wait for it
                in_background(partial(self._fetch, pick), "memowidgets-fetch")

    def _fetch(self, pick: Place) -> None:
        """Show what is computed already."""
        try:
            view = self._source.view(*pick)
        except Exception as error:  # noqa: BLE001 - as above
            self.computed = False
            self._say(_sentence(error), "error")
            return
        with self._lock:
            if pick == self._choice and not self._closed:
                self._show(pick, view)

    def _wait_for(self, pick: Place) -> Missing:
        """Say what is missing of a choice, or of a score to compare with. It is returned."""
        other = pick in self._others and pick != self._choice
        what = f"To compare with {self._label(pick)}: " if other else ""
        self.computed = other
        self._dimmed = self._shown is not None and not other
        missing = self._source.missing(*pick)
        self._button = missing.label
        said = f"Not scored yet. {missing.cost}".strip()
        if missing.why_not:
            said = f"Cannot be scored: {missing.why_not}."
        elif self._progress is not None:
            said = "Not scored yet: other work is under way."
        self._say(f"{what}{said}{self._old_view()}", "wait")
        return missing

    def _fresh(self) -> None:
        self.computed = True
        self._dimmed = False
        self._button = ""
        self._say("")
        self._restore_rest()

    def _old_view(self) -> str:
        if self._shown is None or self._shown == self._choice:
            return ""
        return f" Below is still {self._label(self._shown)}."

    def _show_on_axis(self) -> None:
        with self._lock:
            if self._shown is not None:
                self._show(self._shown, self._given)

    def _label(self, place: Place, parts: Sequence[str] = PICKS) -> str:
        """Name a score by some of its metric, layer and checkpoint."""
        named = {name: place[i] for i, name in enumerate(ORDER) if name in parts}
        if place[0] not in self._by_layer:
            named.pop("layer", None)
        return ", ".join(self._labels[name].get(value, value) for name, value in named.items())

    def _show(self, pick: Place, found: Scored) -> None:
        eta, before = self.eta_committed, self._judged.scored.axis
        self._given, found = found, self._on_axis(found)
        judged = Judged.of(found, eta)
        left_out = [judged.note] if judged.note else []
        judged = replace(judged, note="")  # it is one of the warnings
        tau = self._taus.get((pick[0], self.axis))
        if tau is None and self._shown is not None and found.axis == before:
            tau = flagging(found.scores, self.counts["flagged"])  # as many are looked at
        elif tau is None:
            tau = found.tau
        taus = self._taus | {(pick[0], self.axis): tau}
        rows = Listed(judged.scored, eta if judged.has_log_lira else None)
        with self.hold_sync():  # one message for the whole view
            self._follow(pick)
            self._shown, self._stale, self._parts = pick, False, None
            self._show_scores(judged, tau, eta)
            self._taus = taus
            self._show_rows(rows, found.title, tau)
            self._warnings = [*left_out, *map(str, found.warnings)]  # marimo sends a note's numbers
            self._notes = list(map(str, found.notes))
            self._unchecked = {}
            if judged.memorized is None:
                missing = self._source.unchecked()
                self._unchecked = {"button": missing.label, "why_not": missing.why_not}
            early = any(note.key == "not learned" for note in found.warnings)
            places = self._labels["checkpoint"]
            where = f"at {places[pick[2]]}" if len(places) > 1 else "here"
            self._early = _EARLY.format(where) if early else ""
            self._fresh()
        self._work_later()

    @traitlets.observe("eta_committed")
    def _judge_rows(self, _change: object) -> None:
        """Show the same samples where others of them count as memorised."""
        with self._lock:
            rows = self._rows
            if rows.scored.log_lira is not None:
                self._show_rows(replace(rows, eta=self.eta_committed), self._title, None)

    # ---------------------------------------------------------------- comparing

    @property
    def _others(self) -> list[Place]:
        """What is compared with the score on show."""
        return [_as_place(pick) for pick in self.comparing]

    def _lacking(self) -> Place | None:
        """Return the first of what is picked and compared that is not computed."""
        wanted = self._choice, *self._others
        return next((pick for pick in wanted if not self._source.is_computed(*pick)), None)

    def _follow(self, pick: Place) -> None:
        """Compare another score with the same ones; one of these changes places with the old."""
        before = self._shown or pick
        moved = []
        for other in self._others:
            each = zip(other, before, pick, strict=True)
            metric, layer, checkpoint = (new if one == old else one for one, old, new in each)
            there = metric, layer, checkpoint
            moved.append(before if self._label(there) == self._label(pick) else there)
        with self._silently():
            self.comparing = [_as_pick(other) for other in moved]
        self._beside = _as_pick(self._one_beside(pick))

    def _one_beside(self, pick: Place) -> Place:
        """Return what differs in one thing: the first that is computed, or else the first."""
        apart: list[Place] = [
            (*pick[:i], value, *pick[i + 1 :])  # type: ignore[misc]
            for i, name in enumerate(ORDER)
            for value in self._labels[name]
            if value != pick[i] and (name != "layer" or pick[0] in self._by_layer)
        ]
        return next(
            (other for other in apart if self._source.is_computed(*other)), [*apart, pick][0]
        )

    def _work_later(self) -> None:
        super()._work_later()
        self._compare()

    @traitlets.observe("comparing")
    def _compare(self, _change: object = None) -> None:
        """Compare what is on show with other scores, once all of them are computed."""
        with self._lock:
            if self._restoring or not self.comparing or self._shown != self._choice:
                return
            lacking, self._beside = self._lacking(), self.comparing[0]
            if lacking is None:
                self._comparer.run(self._compare_now)
            elif self._wait_for(lacking).short:
                self.compute()

    def _compare_now(self) -> None:
        """Send the page the comparison of what is on show."""
        with self._lock:
            judged, shown, others = self._judged, self._shown, self._others
        if shown is None or self._closed or not others:
            return
        try:
            found, sent = self._comparison(judged, shown, others)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it in the bar
            self._say(_sentence(error), "error")
            return
        with self._lock:
            if judged is self._judged and others == self._others:
                self._parts, self._compared = found, sent

    def _comparison(
        self, judged: Judged, shown: Place, others: list[Place]
    ) -> tuple[Compared, dict[str, Any]]:
        """Return the compared scores, and what the page is told of them and of all others."""
        places, views = [shown, *others], [self._on_axis_of(judged, other) for other in others]
        found = Compared.of(judged.scored, judged.memorized, views)
        differ = [name for name, each in zip(ORDER, zip(*places)) if len({*each}) > 1]  # noqa: B905
        labels = [self._label(each) for each in places]
        called = [self._label(each, differ) or self._label(each) for each in places]
        names = dict(zip(labels, called, strict=True))
        beside = [*places, *((metric, *shown[1:]) for metric in self._labels["metric"])]
        areas: list[dict[str, Any]] = [
            {
                "name": names.get(label, self._labels["metric"][place[0]]),
                "auc": self._area(judged, place),
                "marked": label in names,
            }
            for label, place in {self._label(place): place for place in beside}.items()
            if found.evaluations
        ]
        areas.sort(key=lambda row: -row["auc"][0] if row["auc"] else 0)
        known = {**judged.key, "truly": judged.said["truly"], "areas": areas}
        return found, {**known, "names": called, **found.wire, "said": found.said(called)}

    def _on_axis_of(self, judged: Judged, place: Place) -> Scored:
        """Return another score as the one on show is: as it is, or against its class."""
        view = self._source.view(*place)
        return view.against_class if judged.scored.axis == BY_CLASS else view

    def _area(self, judged: Judged, place: Place) -> list[float] | None:
        """Return a score's AUC with its interval, if it is computed."""
        if not self._source.is_computed(*place):
            return None
        try:
            view = self._on_axis_of(judged, place)
            found = Compared.of(judged.scored, judged.memorized, [view]).evaluations
        except (StoreError, ValueError):  # it is not defined here
            return None
        return [found[1].auc, *found[1].auc_interval] if found else None

    def _detail_of(self, position: int) -> SampleDetail:
        """Return all that is known of a sample, for what is shown."""
        return self._source.detail(position, *(self._shown or self._choice), self.eta_committed)

    @traitlets.observe("tau")
    def _remember_tau(self, _change: object) -> None:
        if self._shown is not None:  # of all others, the budget is another
            self._taus = {(self._shown[0], self.axis): self.tau}

    # ---------------------------------------------------------------- without a page

    def __repr__(self) -> str:
        metric, layer, checkpoint = self._choice
        chosen = f"{metric}, layer {visible(layer, 40)}, checkpoint {visible(checkpoint, 40)}"
        return f"Dashboard({chosen}: {self._in_words()})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        displayed(self)
        return bundle(super()._repr_mimebundle_(**kwargs), repr(self), self._stand_in())


def packed_choices(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Return choices in the form of the front end."""
    return [
        {"value": c.value, "label": c.label, "marked": c.marked, "usesLayer": c.uses_layer}
        for c in choices
    ]


def checked(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state. Raise an error for a part that is unknown or of the wrong kind.

    Examples
    --------
    >>> checked({"tau": 1, "filter": "missed"})
    {'tau': 1.0, 'filter': 'missed'}
    """
    found: dict[str, Any] = {}
    for name, value in state.items():
        if name not in PARTS:
            raise ValueError(f"unknown part of a state: {name!r}; valid: {', '.join(PARTS)}")
        number = name in THRESHOLDS and hasattr(value, "__float__") and not isinstance(value, bool)
        problem = "" if number else mismatch(value, fields(State)[name], name)
        if not problem and name == "page" and value < 0:
            problem = f"page must be a whole number from 0, not {value}"
        if problem:
            raise ValueError(problem)
        found[name] = checked_tau(value, name) if name in THRESHOLDS else value
    return found


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
        state = json.loads(text) if len(text) <= LONGEST_ADDRESS else None
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


def _choices_of(source: DashboardSource) -> dict[str, Sequence[Choice]]:
    return {
        "checkpoints": source.checkpoint_choices(),
        "layers": source.layer_choices(),
        "metrics": source.score_choices(),
    }


def _as_place(pick: Pick) -> Place:
    return pick["metric"], pick["layer"], pick["checkpoint"]


def _as_pick(place: Place) -> Pick:
    metric, layer, checkpoint = place
    return {"checkpoint": checkpoint, "layer": layer, "metric": metric}


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
    text = " ".join(without_advice(error).split()) or f"{type(error).__name__}, without a message"
    return text if text.endswith((".", "!", "?")) else f"{text}."
