"""What the dashboard asks of an audit: choices, numbers, samples, details of one sample."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import OF_ARRAYS, REFERENCES, Cache, Evidence
from memowidgets.audit.numbers import scores
from memowidgets.audit.numbers.scores import BASELINE, PER_LAYER
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    member_gaps,
    member_log_lira,
    notes_on_shape,
    support,
    truth_version,
)
from memowidgets.audit.views.listing import as_text, listed_members
from memowidgets.audit.views.nearest import NEIGHBOURS, class_nearby, distances, nearest
from memowidgets.audit.views.report import content_of
from memowidgets.data import Dataset
from memowidgets.evaluation.scored import BY_CLASS, AgainstClass, Rule, Scored
from memowidgets.memorization.densities import Densities
from memowidgets.memorization.gaps import checked_models, moments
from memowidgets.models.device import device_status
from memowidgets.progress import Progress, duration_in_words
from memowidgets.report.page import as_page
from memowidgets.store import NotThereError, StoreError, without_advice
from memowidgets.vocabulary import Note, size_in_words, spoken, visible, whole
from memowidgets.widgets.messages import (
    Choice,
    Missing,
    NextStep,
    SampleDetail,
    ShadowGaps,
    Steps,
)

if TYPE_CHECKING:
    from memowidgets.audit.run import Run
    from memowidgets.decisions import DecisionLog

_QUICK_VALUES = 2_000_000
_SHORT = 10.0  # seconds: what takes less starts by itself
_NEAR = 0.1  # of the median distance to its class: a near-duplicate is nearer
_REFERENCES = 2  # models for each member that a click trains
_SHADOWS = 32  # that a click trains: enough on both sides for a verdict on a sample
_FEW_SECONDS = 10.0  # to start the processes takes about as long
_GROWING = ("checkpoints", "forward", "scores", "shadows", "references")


class AuditView:
    """Answers the dashboard's questions, from any thread.

    Parameters
    ----------
    take : callable
        `Audit.evidence_with`. Each answer is from the evidence as it is then.
    run : callable
        Function that returns the run behind the audit, or raises where there is none.
    train, check : callable
        `Audit.run_references` and `Audit.run_shadows`.
    log : DecisionLog
        The audit's decisions.
    """

    def __init__(
        self,
        take: Callable[..., Evidence],
        run: Callable[[], Run],
        train: Callable[..., None],
        check: Callable[..., None],
        log: DecisionLog,
    ) -> None:
        self._take, self._run, self.decision_log = take, run, log
        self._train, self._check = train, check
        self._cache = Cache()

    @property
    def name(self) -> str:
        """Name of the run's folder; "" for an audit in memory."""
        path = Path(self._take().path)
        return path.name if path.is_dir() else ""

    def checkpoint_choices(self) -> Sequence[Choice]:
        """Checkpoints after step 0, by their epoch."""
        names = self._take().names
        later = names.some_records("all")
        chosen = names.prediction().record if later else None
        labels = [
            "as given" if np.isnan(one.epoch) else f"epoch {one.epoch:g}"
            for one in later
        ]
        pairs = zip(later, labels, strict=True)
        return [
            Choice(one.name, x, one == chosen and one.epoch >= 0) for one, x in pairs
        ]

    def layer_choices(self) -> Sequence[Choice]:
        """Layers by name; the last is the recommended one."""
        layers = self._take().names.layer_names
        if not layers:
            return [Choice("last", "none", marked=True)]
        return [Choice(name, layer_label(name), name == layers[-1]) for name in layers]

    def score_choices(self) -> Sequence[Choice]:
        """Scores that there is evidence for, and those that need reference models."""
        evidence = self._take()
        can_list = evidence.whole is None and not evidence.given
        more = (
            (REFERENCES,)
            if can_list and evidence.manifest.get("recording") is None
            else ()
        )
        first = scores.opening_metric(evidence)
        return [
            Choice(name, spoken(name), name == first, uses_layer=name in PER_LAYER)
            for name in scores.metrics_of(evidence, more)
        ]

    def is_computed(self, score: str, layer: str, checkpoint: str) -> bool:
        """Whether `view` answers from disk."""
        return scores.is_computed(self._take(), score, layer, checkpoint)

    def missing(self, score: str, layer: str, checkpoint: str) -> Missing:
        """What `view` has to make: reference models, or forward passes, as long as the last one."""
        evidence = self._take()
        record = evidence.names.record(checkpoint)
        if scores.lacks_references(evidence, score, record):
            return self._missing_references(evidence, record.name)
        wanted = scores.needs(evidence, score, record)
        n = len(evidence.missing(wanted))
        doing = f"Scoring {whole(len(evidence.members))} samples"
        if not n:
            none = (one.checkpoint for one in wanted if not evidence.has(one))
            lacking = [evidence.checkpoints[name].made for name in none]
            why_not = "".join(
                made.why_not("").what for made in lacking[:1] if not made.are_there
            )
            short = (
                score in PER_LAYER
                and not lacking
                and _is_small(evidence, layer, checkpoint)
            )
            return Missing(cost=f"{doing}.", short=short, why_not=why_not)
        seconds, size = self._run().pass_cost()
        doing += f" at {n} checkpoints" if n > 1 else ""
        if seconds is not None:
            doing += f", about {duration_in_words(max(n * seconds, 1))}"
        if size is not None:
            doing += f", {size_in_words(n * size)} of disk"
        return Missing(
            cost=f"{doing}.", short=seconds is not None and n * seconds < _SHORT
        )

    def _missing_references(
        self, evidence: Evidence, checkpoint: str | None = None
    ) -> Missing:
        """The short trainings that check a prediction, or why there are none."""
        run = self._run()
        try:
            predicted = evidence.names.prediction().record.name
            n = run.references_to_train(_REFERENCES)
        except (ValueError, StoreError) as error:
            return Missing(why_not=without_advice(error))
        if checkpoint not in (None, predicted):
            return Missing(
                why_not=f"reference models are asked at {predicted}, the prediction"
            )
        said, each = f"Train {n} short models", run.seconds_of_a_reference()
        if n == 0:
            said = "Show what short models say"
        elif each is not None:
            few = n * each < _FEW_SECONDS
            said += ", a few seconds" if few else f", about {_in_words(n * each)}"
        return Missing(said, trains=True)

    def steps(self) -> Steps:
        """What would say more of which members are memorised, with its price, or why it can't."""
        evidence = self._take()
        if evidence.given:
            none = Missing(why_not=OF_ARRAYS.format("train models"))
            return Steps(NextStep("", none), NextStep("", none))
        more = NextStep("", self._missing_references(evidence))
        return Steps(more, self._to_know())

    def _to_know(self) -> NextStep:
        """The shadow models, in this run or in one that leaves half of the data out."""
        run = self._run()
        if run.trains_on_all:
            seconds = run.seconds_of_another(_SHADOWS + 1)
            about = "" if seconds is None else f", at most about {_in_words(seconds)}"
            return NextStep(
                f"{_SHADOWS} models, each without half of the data{about}",
                Missing(button=""),
                "To know which are memorised, half of the data must be left out. A new run trains "
                f"its target anew, and then {_SHADOWS} models{about}.",
                'audit = mw.Audit(model, data, path="with-half", members="half")\n'
                f"audit.train(); audit.run_shadows({_SHADOWS})",
            )
        try:
            n, each = run.shadows_to_train(_SHADOWS), run.seconds_of_a_shadow()
        except (ValueError, StoreError) as error:
            return NextStep("", Missing(why_not=without_advice(error)))
        about = "" if each is None else f", at most about {_in_words(n * each)}"
        said = f"{n} models on other halves of the data say which are memorised"
        return NextStep(said, Missing(f"Train {n} shadow models{about}", trains=True))

    def check(self, progress: Progress) -> None:
        """Train the shadow models."""
        self._check(_SHADOWS, progress=progress)

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        """Return the numbers behind a choice, computed if need be."""
        needs = scores.needs_of(self._take(), score, checkpoint, answers=True)
        evidence = self._take(needs, progress)
        record = evidence.names.record(checkpoint)
        lacks = scores.lacks_references(evidence, score, record)
        if lacks and self._missing_references(evidence, record.name).trains:
            self._train(_REFERENCES, progress=progress or Progress())
            evidence = self._take()
        found = scores.scored_members(evidence, score, layer, checkpoint, progress)
        of_classes = self._probabilities(evidence, checkpoint)
        place = f", {layer_label(layer)}" if score in PER_LAYER else ""
        shared = (scores.SHARED_NOISE,) if score == BASELINE else ()
        return replace(
            found,
            title=f"{spoken(score)}{place}, {visible(checkpoint.replace('-', ' '), 60)}",
            probabilities=None if of_classes is None else of_classes[found.positions],
            nearby=self._nearby(evidence, layer, checkpoint, found.positions),
            warnings=(
                *evidence.notes_at(checkpoint),
                *shared,
                *found.notes,
                *(notes_on_shape(evidence) if evidence.has_ground_truth else ()),
            ),
            notes=(
                *scores.notes_on_zero(score, found),
                *_note_on_draws(evidence),
            ),
        )

    def revision(self) -> frozenset[tuple[str, int]]:
        """A value that changes with any new checkpoint, score, shadow model or ground truth."""
        evidence = self._take()
        run = Path(evidence.path)
        folders = [run / part for part in _GROWING if not (run / part).is_symlink()]
        files = (file for folder in folders for file in folder.rglob("*.safetensors"))
        there = {
            (str(file.relative_to(run)), file.stat().st_mtime_ns) for file in files
        }
        return frozenset(there | {truth_version(evidence)})

    def samples(self) -> Dataset:
        """The target's members, in the order that positions count."""
        return self._take().member_data

    def detail(
        self, position: int, score: str, layer: str, checkpoint: str, eta: float = 4.0
    ) -> SampleDetail:
        """Return all that is known of one member; it is memorised from a log-LiRA of η on."""
        evidence, checkpoints = self._take(), self.checkpoint_choices()
        n, per_layer = len(evidence.member_rows), score in PER_LAYER
        layers = self.layer_choices() if per_layer else [Choice("", "")]
        values = np.full((len(checkpoints), len(layers)), np.nan)
        for i, at in enumerate(checkpoints):
            for j, of in enumerate(layers):
                place = of.value or "last", at.value
                if not scores.is_computed(evidence, score, *place):
                    continue
                # the shadow models kept no gaps there
                with suppress(StoreError, ValueError):
                    found = scores.score(evidence, score, *place)
                    values[i, j] = scores.of_members(found.scores, found.positions, n)[
                        position
                    ]
        shadows, notes, near = None, [], []
        try:
            shadows = self._shadows(evidence, position, eta)
        except StoreError as error:  # log-LiRA may be there without the gaps behind it
            notes.append(f"No picture of LiRA: {without_advice(error)}.")
        if times := evidence.repeated.get(str(evidence.members[position])):
            notes.append(
                f"It stands in {times} rows, so an epoch trains on it {times} times."
            )
        try:
            away = distances(scores.states(evidence, layer, checkpoint), position)
            near = nearest(away, NEIGHBOURS)
            if shadows is not None:
                notes += _note_on_duplicates(
                    away[evidence.labels == evidence.labels[position]]
                )
        except StoreError as error:
            notes.append(f"No neighbours: {without_advice(error)}.")
        return SampleDetail(
            title=spoken(score),
            checkpoints=_mark(checkpoints, checkpoint),
            layers=_mark(layers, layer if per_layer else ""),
            scores=values,
            shadows=shadows,
            neighbours=near,
            notes=notes,
            guess=_final_guess(evidence, position),
        )

    def fits(self, evidence: Evidence) -> Any:
        """Return `member_gaps`, and mean and variance of both sides of each member."""

        def fitted() -> Any:
            compared = member_gaps(evidence)
            found = moments(*checked_models(compared[2], compared[1]))
            both = Densities.fit(found.inside, found.outside, VARIANCE)
            return compared, [
                (one.mean, one.variance) for one in (both.inside, both.outside)
            ]

        return self._cache.of("fits", truth_version(evidence), fitted)

    def _shadows(self, evidence: Evidence, position: int, eta: float) -> ShadowGaps:
        """Return the picture of LiRA of a member at the end of training, or raise."""
        if not evidence.has_ground_truth:
            raise NotThereError("there are no shadow models to compare with")
        (checkpoint, members, gaps, target), sides = self.fits(evidence)
        inside, own = members[:, position], gaps[:, position].astype(np.float64)
        if not 0 < inside.sum() < len(inside):
            raise NotThereError("this sample is in every shadow model, or in none")
        fits = [
            (float(mean[position]), math.sqrt(var[position])) for mean, var in sides
        ]
        values, counts = member_log_lira(evidence), support(evidence, eta)
        known = None
        if counts is not None and not np.isnan(counts.memorized[position]):
            known = int(counts.memorized[position]), int(counts.models[position])
        return ShadowGaps(
            inside=own[inside],
            outside=own[~inside],
            target=float(target[position]),
            fit_in=fits[0],
            fit_out=fits[1],
            log_lira=math.nan if values is None else float(values[position]),
            checkpoint=checkpoint.replace("-", " "),
            support=known,
        )

    def export_text(
        self, score: str, layer: str, checkpoint: str, rule: Rule, eta: float
    ) -> str:
        """Return the flagged and the decided members, as `Audit.export` writes flagged ones."""
        place = score, layer, checkpoint
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the bar shows them
            table = listed_members(
                self._take(),
                self.decision_log,
                *place,
                rule,
                None,
                eta,
                which="flagged or decided",
                samples=False,
            )
        return as_text(table, ".csv")

    def report_page(self, state: Mapping[str, Any]) -> bytes:
        """Return the report as one page without samples, which opens as `Dashboard.state` says."""
        pick = state["metric"], state["layer"], state["checkpoint"]
        tau = AgainstClass(state["tau"]) if state["axis"] == BY_CLASS else state["tau"]
        own = self._take, self.decision_log, tau, *pick
        how = {
            "include_samples": False,
            "figures": False,
            "eta": state["eta"],
            "view": state,
        }
        return as_page(content_of(*own, **how)).encode("utf-8", "replace")

    def opened_by(self) -> str:
        """Return a line of Python that opens the audit again, "" if only memory holds it."""
        evidence = self._take()
        index, path = evidence.index, Path((evidence.whole or evidence).path)
        if not (path / "manifest.json").is_file():
            return ""
        named = f"mw.Audit.open({str(path.resolve())!r})"
        if evidence.manifest.get("recording") is not None:
            named = f"mw.open_recorded({path.name!r})"
        return named if index is None else f"{named}.as_target({index})"

    def let_go(self) -> None:
        """Forget what is kept to answer faster."""
        self._cache.clear()

    def device_status(self) -> str:
        """The device and its memory in a few words."""
        return device_status(self._take().device())

    def _probabilities(
        self, evidence: Evidence, checkpoint: str
    ) -> NDArray[np.float64] | None:
        """Those of all members at a checkpoint, kept while it is looked at."""
        at = evidence.checkpoints[evidence.names.record(checkpoint).name]
        if not at.has_logits:
            return None
        return self._cache.of(
            "probabilities",
            at.state,
            lambda: scores.probabilities(evidence, checkpoint),
        )

    def _nearby(
        self, evidence: Evidence, layer: str, checkpoint: str, positions: NDArray[Any]
    ) -> NDArray[np.int64] | None:
        """Class of most of the nearest members where the model contradicts a label, else -1."""
        of_classes = self._probabilities(evidence, checkpoint)
        if of_classes is None:
            return None
        state = evidence.checkpoints[evidence.names.record(checkpoint).name].state
        found = self._cache.of(
            "nearby",
            (layer, state),
            lambda: class_nearby(evidence, layer, checkpoint, of_classes),
        )
        return None if found is None else found[positions]


def _in_words(seconds: float) -> str:
    return duration_in_words(max(seconds, 1))


def _note_on_draws(evidence: Evidence) -> tuple[Note, ...]:
    """What can't be seen of a training: samples that it never draws have a high loss too."""
    if evidence.sees_draws:
        return ()
    said = "which samples the training draws is not known, and a sampler by weight may leave out "
    return (Note("draws not seen", f"{said}some, which would be flagged too"),)


def _is_small(evidence: Evidence, layer: str, checkpoint: str) -> bool:
    """Whether a score of a layer takes about a second or less."""
    try:
        return scores.states(evidence, layer, checkpoint).size <= _QUICK_VALUES
    except (StoreError, ValueError):
        return False


def layer_label(name: str) -> str:
    """Return the label of a layer: "layer 30" for a number, else its name.

    Examples
    --------
    >>> layer_label("30"), layer_label("block1.conv2")
    ('layer 30', 'block1.conv2')
    """
    return f"layer {name}" if name.isdecimal() else visible(name, 60)


def _final_guess(evidence: Evidence, position: int) -> int | None:
    """Return the class that the finished model gives a member; None where it is not known."""
    final = evidence.names.final()
    if final is None or np.isnan(final.epoch):
        return None
    try:
        return int(evidence.logits(final)[position].argmax())
    except StoreError:  # its logits were not kept
        return None


def _note_on_duplicates(away: NDArray[np.float64]) -> list[str]:
    """Say if the nearest sample of a sample's class is far nearer than its class usually is."""
    others = away[np.isfinite(away)]
    if not len(others) or others.min() >= _NEAR * np.median(others):
        return []
    said = "A sample of its class is nearly equal to it. Near-duplicates lower each other's "
    return [f"{said}log-LiRA, so a low one says little."]


def _mark(choices: Sequence[Choice], value: str) -> list[Choice]:
    """The same choices; the one on show is marked instead of the recommended one."""
    return [replace(choice, marked=choice.value == value) for choice in choices]
