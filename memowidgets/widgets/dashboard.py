"""The dashboard: bar, explorer and inspector as one widget over one source."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anywidget
import numpy as np
import traitlets

from memowidgets.checks import as_code
from memowidgets.evaluation.scored import AXES, BY_CLASS, AgainstClass
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError, without_advice
from memowidgets.vocabulary import verb, visible
from memowidgets.widgets.explored import Compared, Judged, opening
from memowidgets.widgets.inspected import Listed
from memowidgets.widgets.inspector import Inspection
from memowidgets.widgets.messages import Pick, State, mismatch
from memowidgets.widgets.source import Place
from memowidgets.widgets.timeline import InTime
from memowidgets.widgets.widget import (
    close_earlier_runs,
    give_back,
    in_background,
    script,
    style,
    validate,
    watch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from memowidgets.evaluation.scored import Rule, Scored
    from memowidgets.progress import Step
    from memowidgets.vocabulary import Note
    from memowidgets.widgets.messages import (
        Address,
        Asked,
        Choice,
        Knock,
        Missing,
        Plain,
        SampleDetail,
        Share,
    )
    from memowidgets.widgets.sent import Area, Picked
    from memowidgets.widgets.source import Source


PICKS = tuple(Pick.__annotations__)
PARTS = tuple(State.__annotations__)
PUBLISHED = tuple(
    f"{name}_committed" if name in ("tau", "eta") else name for name in PARTS
)
SECONDS_BETWEEN_STEPS = 0.1
SECONDS_BETWEEN_LOOKS = 3.0
MOST_OTHERS = 2  # scores beside the one on show, whose curves can still be told apart
REFERENCE = "reference"  # the score of reference models
_DENIALS = ("not learned", "knows no labels", "equal rows")  # keys of notes
_GUESSES = "the model is no better than guessing"
_HIGH_LOSS = "half of the training samples still have a high loss"
NO_WORK = {"busy": False, "done": 0, "total": 0, "what": "", "seconds_left": None}
_IDLE = threading.Event()
_IDLE.set()


class Dashboard(InTime, Inspection, anywidget.AnyWidget):
    """Pick a checkpoint, a layer and a score, move τ, and look at the flagged samples.

    One widget whose page composes bar, explorer and inspector over one set of traits. What is
    computed already shows at once, and what takes less than ten seconds begins by itself. The
    rest waits for Compute, which works in a thread of its own: the kernel stays free, and Cancel
    acts between two batches. Where a score needs models that are not trained yet, its button says
    how many and how long that takes. What was asked for stays with another score: how many
    samples, or τ. Where τ means something else there, as many samples are flagged. If the source
    can tell that it has new results, the bar offers to show them.

    Parameters
    ----------
    source : Source
        What answers for an audit, see `Source` (``widgets/source.py``). Its methods may be called
        from any thread.

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
    tau, tau_committed, asked, eta, eta_committed, more, counts, evaluation, undecided
        As in `ThresholdExplorer`.
    page, page_size, filter, sort, decision, selected, decisions
        As in `SampleInspector`.
    state : dict
        ``checkpoint``, ``layer``, ``metric``, ``axis``, ``tau``, ``asked``, ``eta``,
        ``comparing``, ``more``, ``filter``, ``sort``, ``decision``, ``page``, ``selected``: what
        restores this view, without any sample's id or text. Set all of it or a part; what is not
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
    _steps = traitlets.Dict().tag(sync=True)

    def __init__(self, source: Source) -> None:
        self._source = source
        self._progress: Progress | None = None
        self._computing = self._comparing = _IDLE
        self._shown: Place | None = None
        self._restoring = True
        self._pending: tuple[Place, dict[str, Any]] | None = None
        self._unrestored = ""
        self._following = self._closed = self._has_played = False
        self._told = 0.0  # when the last step of the work was
        self._revision = self._newest_revision()
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
        close_earlier_runs(self)

    # ---------------------------------------------------------------- what can be picked

    @property
    def _choice(self) -> Place:
        """The picked metric, layer and checkpoint."""
        return Place(self.metric, self.layer, self.checkpoint)

    def _offer(self, choices: dict[str, Sequence[Choice]]) -> None:
        """Offer these choices. A picked value stays picked if it is still among them."""
        for name, offered in choices.items():
            if len(offered) == 0:
                raise ValueError(
                    f"there is nothing to show yet: no {name}; train first"
                )
        with self.hold_sync():
            self._moments = ()
            self._labels = {
                name[:-1]: {choice.value: choice.label for choice in offered}
                for name, offered in choices.items()
            }
            self._by_layer = {
                choice.value for choice in choices["metrics"] if choice.uses_layer
            }
            self._choices = {
                name: packed_choices(offered) for name, offered in choices.items()
            }
            for name, offered in choices.items():
                if getattr(self, name[:-1]) not in self._labels[name[:-1]]:
                    marked = (choice.value for choice in offered if choice.marked)
                    setattr(self, name[:-1], next(marked, offered[0].value))
            self._moments = self._source.moments()
            self._tell_time()

    def _check(self, name: str, value: str) -> str:
        """Return a value that can be picked. Raise an error that lists them for any other."""
        if value not in self._labels[name]:
            with self._lock:
                self._offer_new()  # a cell, or a training, may have added it since
        valid = self._labels[name]
        if value not in valid:
            raise ValueError(
                f"unknown {name} {as_code(value)}; valid: {', '.join(map(repr, valid))}"
            )
        return value

    @validate(*PICKS)
    def _check_choice(self, proposal: Any) -> str:
        return self._check(proposal["trait"].name, str(proposal["value"]))

    @validate("comparing")
    def _check_comparing(self, proposal: Any) -> list[Pick]:
        picks = proposal["value"]
        problem = mismatch(picks, list[Pick], "comparing")
        if problem or len(picks) > MOST_OTHERS:
            raise ValueError(
                problem or f"comparing has {len(picks)} scores, not 1 or 2"
            )
        places = [Place(**pick) for pick in picks]
        for place in places:
            for name, value in place._asdict().items():
                self._check(name, value)
        return [place.pick for place in places]

    def _say(self, text: str, kind: str = "note") -> None:
        """Show one sentence; `kind` is ``"note"``, ``"wait"`` or ``"error"``."""
        self._message = {"kind": kind, "text": text}

    # ---------------------------------------------------------------- state

    @property
    def state(self) -> State:
        """Dictionary that restores this view."""
        shown = {name: getattr(self, name) for name in PARTS}
        waiting = self._pending[1] if self._pending is not None else {}
        return cast("State", shown | waiting)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict):
            raise TypeError(
                f"state must be a dictionary, as `state` gives it, not {as_code(state)}"
            )
        for name, value in state.items():
            if name not in PARTS:
                raise ValueError(
                    f"unknown part of a state: {name!r}; valid: {', '.join(PARTS)}"
                )
            if name in PICKS:
                self._check(name, value)
        wanted = dict(state)
        with self._lock:
            with self._silently():
                for name in PICKS:
                    setattr(self, name, wanted.pop(name, getattr(self, name)))
            self._pending, self._unrestored = (self._choice, wanted), ""
            self._picked()
        if self._unrestored:
            raise ValueError(self._unrestored)

    @contextmanager
    def _silently(self) -> Iterator[None]:
        """Set several traits before the view and the address of the page follow them."""
        before = self._restoring
        self._restoring = True
        try:
            yield
        finally:
            self._restoring = before

    def _restore_rest(self) -> None:
        """Restore the rest of a state, for the view that is shown by now."""
        if self._pending is None or self._shown != self._pending[0]:
            return
        wanted, self._pending = self._pending[1], None
        with self._silently():
            for name, value in [
                (part, wanted[part]) for part in PARTS if part in wanted
            ]:
                try:
                    setattr(self, name, value)
                except (ValueError, ArithmeticError, traitlets.TraitError) as error:
                    self._unrestored = str(error)
                    self._say(f"Not restored: {_sentence(error)}")
        self._publish(None)

    def _hear_address(self, content: Address) -> None:
        """Restore what the address of the page says; then follow."""
        self._following = True
        try:
            if content["text"]:
                self.state = json.loads(content["text"])
        except (ValueError, TypeError, RecursionError) as error:
            self._say(f"The address was not restored: {_sentence(error)}")
        self._publish(None)

    @traitlets.observe(*PUBLISHED)
    def _publish(self, _change: object) -> None:
        """Tell the page what is shown, so that its address says so too."""
        if self._following and not self._restoring:
            self.send({"type": "state", "state": self.state})

    # ---------------------------------------------------------------- messages

    def _hear_compute(self, _content: object) -> None:
        if self.computed and self._lacking() is None:
            self._begin(self._source.cost(self._skipped()), self._fill)
        else:
            self.compute()

    def _hear_play(self, _content: object) -> None:
        """Offer to score what playing skips."""
        with self._lock:
            self._has_played = True
            if self.computed and self._progress is None:
                self._offer_to_fill()

    def _hear_references(self, _content: object) -> None:
        """Train reference models, which are asked where the prediction is made."""
        marked = [
            each["value"] for each in self._choices["checkpoints"] if each["marked"]
        ]
        with self._lock:
            with self._silently():
                self.metric = REFERENCE
                self.checkpoint = next(iter(marked), self.checkpoint)
            self._picked()
            if not self.computed:
                self.compute()

    def _hear_check(self, _content: object) -> None:
        self._begin(self._source.steps().know.missing.button, self._source.check)

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
        text = self._source.export_text(*self._shown, self._rule, self.eta_committed)
        self._reply(asked, "", file="flagged.csv", content=text)

    @property
    def _rule(self) -> Rule:
        """What flags the samples."""
        return self.tau if self.axis == AXES[0] else AgainstClass(self.tau)

    def _hear_share(self, asked: Share) -> None:
        in_background(partial(self._share_now, asked), "memowidgets-share")

    def _share_now(self, asked: Share) -> None:
        """Send the report, or Python that restores this view, or the reason why not."""
        answer: dict[str, Any] = {
            "type": "shared",
            "request": asked["request"],
            "text": "",
        }
        buffers: list[bytes] = []
        try:
            if asked["what"] == "report":
                place = self._shown or self._choice
                state: State = {**self.state, **place.pick}
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

    def _named(self, state: State) -> str:
        """Return the name of a file that shows a state."""
        layer = state["layer"] if state["metric"] in self._by_layer else ""
        how = "against class " * (state["axis"] == BY_CLASS) + f"tau={state['tau']:.3g}"
        parts = self._name or "audit", state["metric"], layer, state["checkpoint"], how
        return re.sub(r"[^\w.+=-]+", "-", " ".join(filter(None, parts))) + ".html"

    # ---------------------------------------------------------------- work

    def compute(self) -> None:
        """Compute what is picked, in a thread. Show at once what is computed already."""
        self._begin()

    def _begin(
        self, said: str = "", check: Callable[[Progress], None] | None = None
    ) -> None:
        with self._lock:
            if self._progress is not None:
                return
            progress = self._progress = Progress(self._show_step)
            self._told = 0.0  # so that the first step is shown
            pick = self._lacking() or self._choice
            self._say(
                said or f"{self._source.missing(*pick).cost}{self._old_view()}", "wait"
            )
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
        # one begins the other
        while not (self._computing.is_set() and self._comparing.is_set()):
            if not (self._computing.wait(timeout) and self._comparing.wait(timeout)):
                return False
        return True

    def refresh(self) -> None:
        """Show what came since: new checkpoints, scores, and shadow models."""
        with self._lock:
            self._reread_choices()
            self._picked(again=True)

    def close(self) -> None:
        """Cancel the work, and take the widget off the page and its arrays out of memory.

        Its `state` and its decisions stay readable.
        """
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
                check(progress)
            view = self._source.view(*pick, progress)
        except Cancelled:
            said = ("Cancelled; what was finished is kept.", "note")
        except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it in the bar
            scores = check is None or check == self._fill
            work = "Scoring" if scores else "Training"
            said = (f"{work} stopped: {_sentence(error)}", "error")
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
                self._picked(again=check is not None)
            if said[0]:
                behind = "" if self.computed else self._old_view()
                tries = said[1] == "error" and self._button != ""
                again = f" {self._button} tries again." if tries else ""
                self._say(f"{said[0]}{again}{behind}", said[1])

    def _show_step(self, step: Step) -> None:
        """Show at most ten steps a second, and always the last one."""
        now, is_last = time.monotonic(), step.done == step.total
        if self._progress is not None and (
            is_last or now - self._told >= SECONDS_BETWEEN_STEPS
        ):
            self._told = now
            parts = ("done", "total", "what", "seconds_left")
            self._work = {"busy": True, **{name: getattr(step, name) for name in parts}}

    # ---------------------------------------------------------------- what there is to show

    def _look(self) -> None:
        """Put new checkpoints on the timeline, and offer to show what else is new in the source."""
        found = self._newest_revision()
        with self._lock:
            if self._progress is None and found not in (None, self._revision):
                self._offer_new()

    def _offer_new(self) -> None:
        """Offer what the source has by now; the view stays, and it is said whether it is old."""
        was_outdated = self.outdated
        before = self._timeline
        star = self._star
        revision = self._revision
        self._reread_choices()
        is_same = revision == self._revision
        grew = self._timeline != before and self._has_still(before)
        self.outdated = was_outdated or not (grew or is_same)
        if self._star not in ("", star):
            label = self._labels["checkpoint"][self._star]
            self._say(f"The best time to predict is reached: {label}.")

    def _has_still(self, before: dict[str, Any]) -> bool:
        """Whether the timeline has all that it had: the same weights, and no score is gone."""
        now = {each["value"]: each for each in self._timeline["moments"]}
        for earlier in before["moments"]:
            later = now.get(earlier["value"])
            if later is None or later["of"] != earlier["of"]:
                return False
            if earlier["computed"] > later["computed"]:
                return False
        return True

    def _newest_revision(self) -> Hashable:
        try:
            return self._source.revision()
        # it is being written, or was deleted: it is asked again
        except (
            OSError,
            StoreError,
        ):
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
    def _picked(self, _change: object = None, *, again: bool = False) -> None:
        """Show what is picked if it is there; else say what the old view is, and wait.

        What is on show already is read `again` on demand.
        """
        with self._lock:
            if self._restoring:
                return
            pick = self._choice
            if self._pending is not None and self._pending[0] != pick:
                self._pending = None
            if pick == self._shown and not again:
                self._fresh()
                self._compare_with_others()
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
        if self._has_played:
            self._offer_to_fill()
        self._restore_rest()

    def _offer_to_fill(self) -> None:
        skipped = self._skipped()
        if not skipped:
            return
        n = len({checkpoint for _, _, checkpoint in skipped})
        checkpoints = verb(n, "checkpoint, which is", "checkpoints, which are")
        self._button = "Compute"
        cost = self._source.cost(skipped)
        self._say(f"Playing skips {n} {checkpoints} not scored yet. {cost}", "wait")

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
        named = {
            name: value for name, value in place._asdict().items() if name in parts
        }
        if place.metric not in self._by_layer:
            named.pop("layer", None)
        return ", ".join(
            self._labels[name].get(value, value) for name, value in named.items()
        )

    def _show(self, pick: Place, found: Scored) -> None:
        eta = self.eta_committed
        asked, tau = self._to_ask(pick, found)
        self._given, found = found, self._on_axis(found)
        judged = Judged.of(found, eta)
        rows = Listed(judged.scored, eta if judged.has_log_lira else None)
        with self.hold_sync():  # one message for the whole view
            self._follow(pick)
            self._shown, self._parts = pick, None
            self._show_scores(judged, tau, eta, asked)
            self._show_rows(rows, found.title, self.tau)
            self._early = self._not_learned(pick, found.warnings)
            self._warnings = [
                note.sentence  # a saved notebook has them, and names no sample
                for note in found.warnings
                if note.key != "not learned"  # which is said above
            ]
            self._notes = [note.sentence for note in found.notes]
            steps: dict[str, Any] = {}
            if judged.memorized is None:
                steps |= self._source.steps().wire
                steps |= {"metric": pick.metric, "predicts": _predicts(found)}
            self._steps = steps
            self._fresh()
        self._compare_with_others()

    def _to_ask(self, pick: Place, found: Scored) -> tuple[Asked, float | None]:
        """Return what is asked for of other scores, and τ where it does not follow from that."""
        turned = self._judged.scored.axis != self.axis
        asked: Asked = self.asked
        if asked:
            return asked, None
        if self._shown is None or turned:
            return opening(self._on_axis(found))
        same = self._shown.metric == pick.metric or self.axis == BY_CLASS
        is_natural = self.tau == found.natural == self._given.natural
        if same or is_natural:
            return asked, self.tau
        # nobody asks for none: the lowest is shown then, with all that tie with it
        return {"count": max(1, self.counts["flagged"])}, None

    def _not_learned(self, pick: Place, warnings: Sequence[Note]) -> str:
        """Return what the model lacks at the checkpoint on show; "" where it has learned.

        It is too early only where a better checkpoint follows.
        """
        lacking = [note for note in warnings if note.key == "not learned"]
        if not lacking:
            return ""
        guesses = any("accuracy" in note.numbers for note in lacking)
        said = _GUESSES if guesses else _HIGH_LOSS
        places = list(self._labels["checkpoint"])
        here = places.index(pick.checkpoint)
        later = self._choices["checkpoints"][here + 1 :]
        follows = any(choice["marked"] for choice in later)
        if follows:
            return f"Too early: here {said}."
        return f"Here {said}: a score predicts nothing."

    @traitlets.observe("eta_committed")
    def _settled(self, change: object) -> None:
        """Judge the same samples again, and compare with others as these are judged."""
        super()._settled(change)
        with self._lock:
            rows = self._rows
            if rows.scored.log_lira is not None:
                self._show_rows(
                    replace(rows, eta=self.eta_committed), self._title, None
                )
            self._compare_with_others()

    # ---------------------------------------------------------------- comparing

    @property
    def _others(self) -> list[Place]:
        """What is compared with the score on show."""
        return [Place(**pick) for pick in self.comparing]

    def _lacking(self) -> Place | None:
        """Return the first of what is picked and compared that is not computed."""
        wanted = self._choice, *self._others
        return next(
            (pick for pick in wanted if not self._source.is_computed(*pick)), None
        )

    def _follow(self, pick: Place) -> None:
        """Compare another score with the same ones; one of these changes places with the old."""
        before = self._shown or pick
        moved = []
        for other in self._others:
            each = zip(other, before, pick, strict=True)
            there = Place(*(new if one == old else one for one, old, new in each))
            moved.append(before if self._label(there) == self._label(pick) else there)
        with self._silently():
            self.comparing = [other.pick for other in moved]
        self._beside = self._one_beside(pick).pick

    def _one_beside(self, pick: Place) -> Place:
        """Return what differs in one thing: the first that is computed, or else the first."""
        apart = [
            pick._replace(**{name: value})
            for name, mine in pick._asdict().items()
            for value in self._labels[name]
            if value != mine and (name != "layer" or pick.metric in self._by_layer)
        ]
        return next(
            (other for other in apart if self._source.is_computed(*other)),
            [*apart, pick][0],
        )

    @traitlets.observe("comparing")
    def _compare_with_others(self, _change: object = None) -> None:
        """Compare what is on show with other scores, once all of them are computed."""
        with self._lock:
            if self._restoring or self._shown != self._choice:
                return
            self._tell_series()
            if not self.comparing:
                return
            lacking, self._beside = self._lacking(), self.comparing[0]
            if lacking is None:
                self._comparing = in_background(
                    self._compare_now, "memowidgets-compare"
                )
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
        places = [shown, *others]
        views = [self._on_axis(self._source.view(*other)) for other in others]
        found = Compared.of(judged.scored, judged.memorized, views, judged.eta)
        differ = [
            name
            for name in Place._fields
            if len({getattr(x, name) for x in places}) > 1
        ]
        labels = [self._label(each) for each in places]
        called = [self._label(each, differ) or self._label(each) for each in places]
        names = dict(zip(labels, called, strict=True))
        beside = [
            *places,
            *(shown._replace(metric=metric) for metric in self._labels["metric"]),
        ]
        areas: list[Area] = [
            {
                "name": names.get(label, self._labels["metric"][place.metric]),
                "auc": self._area(judged, place),
                "marked": label in names,
            }
            for label, place in {self._label(place): place for place in beside}.items()
            if found.evaluations
        ]
        areas.sort(key=lambda row: -row["auc"][0] if row["auc"] else 0)
        area = next(iter(found.evaluations[0].areas)) if found.evaluations else ""
        known = {
            **judged.key,
            "truly": judged.said["truly"],
            "area": area,
            "areas": areas,
        }
        return found, {
            **known,
            "names": called,
            **found.wire,
            "said": found.said(called),
        }

    def _area(self, judged: Judged, place: Place) -> tuple[float, float, float] | None:
        """Return a score's AUC with its interval, if it is computed."""
        if not self._source.is_computed(*place):
            return None
        try:
            view = self._on_axis(self._source.view(*place))
            found = Compared.of(
                judged.scored, judged.memorized, [view], judged.eta
            ).evaluations
        except (StoreError, ValueError):  # it is not defined here
            return None
        if not found:
            return None
        auc, interval = next(iter(found[1].areas.values()))
        return auc, *interval

    def _detail_of(self, position: int) -> SampleDetail:
        """Return all that is known of a sample, for what is shown."""
        place = self._shown or self._choice
        return self._source.detail(position, *place, self.eta_committed)

    # ---------------------------------------------------------------- without a page

    def __repr__(self) -> str:
        # what the numbers are of, which may be another score than the one that is picked
        metric, layer, checkpoint = self._shown or self._choice
        chosen = f"{metric}, layer {visible(layer, 40)}, checkpoint {visible(checkpoint, 40)}"
        return f"Dashboard({chosen}: {self._in_words()})"


def packed_choices(choices: Sequence[Choice]) -> list[Picked]:
    """Return choices in the form of the front end."""
    return [
        {
            "value": c.value,
            "label": c.label,
            "marked": c.marked,
            "usesLayer": c.uses_layer,
        }
        for c in choices
    ]


def _predicts(found: Scored) -> bool:
    """Whether scores may say who will be memorised: no note denies it, and they differ."""
    denied = any(note.key in _DENIALS for note in found.warnings)
    is_one = len(np.unique(found.scores)) < 2
    return not denied and not is_one


def _choices_of(source: Source) -> dict[str, Sequence[Choice]]:
    return {
        "checkpoints": source.checkpoint_choices(),
        "layers": source.layer_choices(),
        "metrics": source.score_choices(),
    }


def _sentence(error: Exception) -> str:
    """Return an error as one line."""
    text = (
        " ".join(without_advice(error).split())
        or f"{type(error).__name__}, without a message"
    )
    return text if text.endswith((".", "!", "?")) else f"{text}."
