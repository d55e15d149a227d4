"""What the dashboard asks of an audit: choices, numbers, samples, details of one sample."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import REFERENCES, Cache, Evidence
from memowidgets.audit.numbers import scores
from memowidgets.audit.numbers.inputs import (
    is_defined,
    kinds_of,
    lacks_references,
    needs,
    uses_layer,
)
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    member_gaps,
    member_log_lira,
    notes_on_shape,
    support,
    truth_version,
)
from memowidgets.audit.views.in_time import (
    is_ready_at,
    is_small,
    moments_of,
    seconds_of_functions,
)
from memowidgets.audit.views.listing import as_text, listed_members
from memowidgets.audit.views.nearest import NEIGHBOURS, class_nearby, distances, nearest
from memowidgets.audit.views.report import Audited, content_of
from memowidgets.data import Dataset
from memowidgets.evaluation.scored import BY_CLASS, AgainstClass, Rule, Scored
from memowidgets.memorization.densities import Densities
from memowidgets.memorization.gaps import checked_models, moments
from memowidgets.models.device import device_status, resolve_device
from memowidgets.progress import Progress, duration_in_words
from memowidgets.registry import Score, all_rows, find_row, own_names
from memowidgets.report.page import as_page
from memowidgets.store import NotThereError, StoreError, without_advice
from memowidgets.training.estimator import EstimatorScript
from memowidgets.vocabulary import Note, size_in_words, visible, whole
from memowidgets.widgets.messages import (
    Choice,
    Lines,
    Missing,
    Moment,
    NextStep,
    SampleDetail,
    ShadowGaps,
    State,
    Steps,
)

if TYPE_CHECKING:
    from memowidgets.audit.run import Run

Gaussians = tuple[NDArray[np.float64], NDArray[np.float64]]
_SHORT = 10.0  # seconds: what takes less starts by itself
_NEAR = 0.1  # of the median distance to its class: a near-duplicate is nearer
_REFERENCES = 2  # models for each member that a click trains
_SHADOWS = 32  # that a click trains: enough on both sides for a verdict on a sample
_MORE_OF_ARRAYS = (
    "give the logit gaps of two short trainings on other samples as reference_gaps"
)
_TRUTH_OF_ARRAYS = (
    "give log_lira, or shadow_gaps and shadow_members of models trained on halves"
)
_MORE_OF_A_LOOP = (
    "wrap your script as fit(rows, watch, seed), then train two short models"
)
_TRUTH_OF_A_LOOP = (
    f"{_SHADOWS} models of the same script, each without half of the data"
)
_HOW_OF_A_LOOP = (
    "A script that is a function of its rows trains the target on one half of the data, and the "
    "models to compare with on others. More is in docs/your_training_loop.md."
)
_LOOP = """def fit(rows, watch, seed):
    module = make_module()
    loader = DataLoader(Subset(data, rows), batch_size=32, shuffle=True)
    watch.follow(module, steps_per_epoch=len(loader))
    # your loop, which returns where watch.step() is True
"""
_TRAINER = """def fit(rows, watch, seed):
    model = make_model()
    watch.follow(mw.models.SequenceClassifier.from_model(model, tokenizer))
    Trainer(..., model=model, train_dataset=train_set.select(rows),
            callbacks=[watch.callback]).train()
"""
_NOTHING = Missing(button="")
_FEW_SECONDS = 10.0  # to start the processes takes about as long
# What dashboards show now. ipywidgets keeps each one that is not closed, often many of one choice.
_SHOWN: WeakValueDictionary[Hashable, Scored] = WeakValueDictionary()


class Trainable(Audited, Protocol):
    """An audit that can train models to compare with, if it is of a run."""

    @property
    def run(self) -> Run:
        """The run behind it, or an error where there is none."""

    def run_references(self, n: int, *, progress: Progress) -> None:
        """Train reference models."""

    def run_shadows(self, n: int, *, progress: Progress) -> None:
        """Train shadow models."""


class AuditView:
    """Answers the dashboard's questions, from any thread.

    Parameters
    ----------
    audit : Trainable
        The audit. Each answer is from its evidence as it is then.
    """

    def __init__(self, audit: Trainable) -> None:
        self._audit = audit
        self.decision_log = audit.decision_log
        self._cache = Cache()

    @property
    def name(self) -> str:
        """Name of the run's folder; "" for an audit in memory."""
        path = Path(self._audit.evidence.path)
        return path.name if path.is_dir() else ""

    def checkpoint_choices(self) -> Sequence[Choice]:
        """Checkpoints after step 0, by their epoch."""
        return _checkpoints(self._audit.evidence)

    def moments(self) -> Sequence[Moment]:
        """The checkpoints after step 0 in the order of training; none if there is only one."""
        return moments_of(self._audit.evidence)

    def has_ended(self) -> bool:
        """Whether the last checkpoint is the end of training."""
        return self._audit.evidence.names.final() is not None

    def is_ready(self, score: str, layer: str, checkpoint: str) -> bool:
        """Whether `scores_at` answers in about a second, without a forward pass."""
        return is_ready_at(self._audit.evidence, find_row(score), layer, checkpoint)

    def scores_at(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        """Return scores of the members, computed if need be, and nothing else of them."""
        place = find_row(score), layer, checkpoint
        evidence = self._audit.evidence_for(*place, progress=progress)
        return scores.score(evidence, *place)

    def layer_choices(self) -> Sequence[Choice]:
        """Layers by name; the last is the recommended one."""
        return _layers(self._audit.evidence)

    def score_choices(self) -> Sequence[Choice]:
        """Scores that there is evidence for, and those that need reference models."""
        evidence = self._audit.evidence
        more = (REFERENCES,) if _can_train(evidence) else ()
        first = scores.opening_metric(evidence)
        rows = all_rows()
        listed = {*scores.metrics_of(evidence, more), *rows.keys() - own_names()}
        return [
            Choice(name, row.spoken, name == first, uses_layer=uses_layer(row))
            for name, row in rows.items()
            if name in listed
        ]

    def is_computed(self, score: str, layer: str, checkpoint: str) -> bool:
        """Whether `view` answers from disk."""
        return scores.is_computed(self._audit.evidence, score, layer, checkpoint)

    def missing(self, score: str, layer: str, checkpoint: str) -> Missing:
        """What `view` has to make: reference models, or forward passes, as long as the last one."""
        evidence, row = self._audit.evidence, find_row(score)
        asked = scores.ask(evidence, layer, checkpoint)
        there = {*evidence.kinds, *([REFERENCES] if _can_train(evidence) else [])}
        lacks = sorted(kinds_of(row) - there)
        if lacks:
            return Missing(why_not=_lacking(evidence, lacks[0]))
        if lacks_references(row, asked):
            return self._missing_references(evidence, asked.record.name)
        if not is_defined(row, asked):
            return Missing(why_not="it needs two checkpoints after step 0")
        wanted = needs(row, asked)
        n = len(evidence.missing(wanted))
        of_functions = seconds_of_functions(row, asked)
        doing = f"Scoring {whole(len(evidence.members))} samples"
        if not n:
            none = (one.checkpoint for one in wanted if not evidence.has(one))
            lacking = [evidence.checkpoints[name].made for name in none]
            why_not = "".join(
                made.why_not("").what for made in lacking[:1] if not made.are_there
            )
            short = not lacking and of_functions < _SHORT and is_small(row, asked)
            cost = f"{doing}{_about_functions(of_functions)}."
            return Missing(cost=cost, short=short, why_not=why_not)
        seconds = self._audit.run.pass_cost()[0]
        short = seconds is not None and n * seconds + of_functions < _SHORT
        cost = f"{doing}{self._about_passes(n)}{_about_functions(of_functions)}."
        return Missing(cost=cost, short=short)

    def cost(self, places: Sequence[tuple[str, str, str]]) -> str:
        """Return what the forward passes take that scores at several places need together."""
        evidence = self._audit.evidence
        wanted = [
            need
            for score, *where in places
            for need in needs(find_row(score), scores.ask(evidence, *where))
        ]
        n = len(evidence.missing(wanted))
        many = whole(len(evidence.members))
        return f"Scoring {many} samples{self._about_passes(n)}." if n else ""

    def _about_passes(self, n: int) -> str:
        """Return what is added to the work where it needs so many forward passes."""
        seconds, size = self._audit.run.pass_cost()
        said = f" at {n} checkpoints" if n > 1 else ""
        if seconds is not None:
            said += f", about {duration_in_words(max(n * seconds, 1))}"
        if size is not None:
            said += f", {size_in_words(n * size)} of disk"
        return said

    def _missing_references(
        self, evidence: Evidence, checkpoint: str | None = None
    ) -> Missing:
        """The short trainings that check a prediction, or why there are none."""
        run = self._audit.run
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
        evidence = self._audit.evidence
        if evidence.given:
            return _instead(_MORE_OF_ARRAYS, _TRUTH_OF_ARRAYS)
        run = self._audit.run
        if run.recorded_from:
            return _of_a_loop(_TRAINER if "Trainer" in run.recorded_from else _LOOP)
        try:
            run.check_can("train other models")
        except NotThereError as error:
            same = f"the same, and then {_SHADOWS} models on other halves of the data"
            return _instead(error.do, same)
        more = NextStep("", self._missing_references(evidence))
        return Steps(more, self._to_know())

    def _to_know(self) -> NextStep:
        """The shadow models, in this run or in one that leaves half of the data out."""
        run = self._audit.run
        if run.trains_on_all:
            seconds = run.seconds_of_another(_SHADOWS + 1)
            about = "" if seconds is None else f", at most about {_in_words(seconds)}"
            lines = Lines(
                "What it costs",
                "To know which are memorised, half of the data must be left out. A new run trains "
                f"its target anew, and then {_SHADOWS} models{about}.",
                f"audit = {_begun_anew(run)}\naudit.train(); audit.run_shadows({_SHADOWS})",
            )
            said = f"{_SHADOWS} models, each without half of the data{about}"
            return NextStep(said, _NOTHING, lines)
        try:
            n, each = run.shadows_to_train(_SHADOWS), run.seconds_of_a_shadow()
        except (ValueError, StoreError) as error:
            return NextStep("", Missing(why_not=without_advice(error)))
        about = "" if each is None else f", at most about {_in_words(n * each)}"
        said = f"{n} models on other halves of the data say which are memorised"
        return NextStep(said, Missing(f"Train {n} shadow models{about}", trains=True))

    def check(self, progress: Progress) -> None:
        """Train the shadow models."""
        self._audit.run_shadows(_SHADOWS, progress=progress)

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        """Return the numbers behind a choice, computed if need be.

        Dashboards that show the same choice have the same arrays.
        """
        row = find_row(score)
        place = row, layer, checkpoint
        evidence = self._audit.evidence_for(*place, answers=True, progress=progress)
        asked = scores.ask(evidence, layer, checkpoint)
        lacks = lacks_references(row, asked)
        if lacks and self._missing_references(evidence, asked.record.name).trains:
            self._audit.run_references(_REFERENCES, progress=progress or Progress())
            evidence = self._audit.evidence_for(*place, progress=progress)
        rows = tuple(all_rows().values())
        question = evidence, rows, score, layer, checkpoint
        shown = _SHOWN.get(question)
        if shown is None:
            shown = self._numbers(evidence, *place)
            _SHOWN[question] = shown
        return shown

    def _numbers(
        self, evidence: Evidence, row: Score, layer: str, checkpoint: str
    ) -> Scored:
        """Return the members with a score, and what is said beside it."""
        found = scores.scored_members(evidence, row, layer, checkpoint)
        of_classes = self._probabilities(evidence, checkpoint)
        where = f", {layer_label(layer)}" if uses_layer(row) else ""
        shared = () if scores.is_early(row) else (scores.SHARED_NOISE,)
        return replace(
            found,
            title=f"{row.spoken}{where}, {visible(checkpoint.replace('-', ' '), 60)}",
            probabilities=None if of_classes is None else of_classes[found.positions],
            nearby=self._nearby(evidence, layer, checkpoint, found.positions),
            warnings=(
                *evidence.notes_at(checkpoint),
                *shared,
                *found.notes,
                *(notes_on_shape(evidence) if evidence.has_ground_truth else ()),
            ),
            notes=(
                *scores.notes_on_zero(row, found),
                *_note_on_draws(evidence),
            ),
        )

    def revision(self) -> Hashable:
        """A value that changes with any new checkpoint, shadow model or ground truth.

        So it does when a cell adds a score of a user's, or replaces one.
        """
        rows = tuple(all_rows().values())
        return self._audit.evidence, rows

    def samples(self) -> Dataset:
        """The target's members, in the order that positions count."""
        return self._audit.evidence.member_data

    def detail(
        self, position: int, score: str, layer: str, checkpoint: str, eta: float = 4.0
    ) -> SampleDetail:
        """Return all that is known of one member; it is memorised from a log-LiRA of η on."""
        evidence = self._audit.evidence
        checkpoints = _checkpoints(evidence)
        row = find_row(score)
        n, per_layer = len(evidence.member_rows), uses_layer(row)
        layers = _layers(evidence) if per_layer else [Choice("", "")]
        values = np.full((len(checkpoints), len(layers)), np.nan)
        for i, at in enumerate(checkpoints):
            for j, of in enumerate(layers):
                place = of.value or "last", at.value
                if not scores.is_computed(evidence, row, *place):
                    continue
                # the shadow models kept no gaps there
                with suppress(StoreError, ValueError):
                    found = scores.score(evidence, row, *place)
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
            title=row.spoken,
            checkpoints=_mark(checkpoints, checkpoint),
            layers=_mark(layers, layer if per_layer else ""),
            scores=values,
            shadows=shadows,
            neighbours=near,
            notes=notes,
            guess=_final_guess(evidence, position),
        )

    def fits(self, evidence: Evidence) -> list[Gaussians]:
        """Return mean and variance of each member's logit gaps, of models with it and without."""

        def fitted() -> list[Gaussians]:
            _, members, gaps, _ = member_gaps(evidence)
            found = moments(*checked_models(gaps, members))
            both = Densities.fit(found.inside, found.outside, VARIANCE)
            return [(one.mean, one.variance) for one in (both.inside, both.outside)]

        return self._cache.of("fits", truth_version(evidence), fitted)

    def _shadows(self, evidence: Evidence, position: int, eta: float) -> ShadowGaps:
        """Return the picture of LiRA of a member at the end of training, or raise."""
        if not evidence.has_ground_truth:
            raise NotThereError("there are no shadow models to compare with")
        record, column = (
            evidence.names.record("final"),
            evidence.member_columns[position],
        )
        shadows = evidence.shadows.at(record.name)
        inside = shadows.members[:, column]
        own = shadows.gaps[:, column].astype(np.float64)
        if not 0 < inside.sum() < len(inside):
            raise NotThereError("this sample is in every shadow model, or in none")
        fits = [
            (float(mean[position]), math.sqrt(var[position]))
            for mean, var in self.fits(evidence)
        ]
        values, counts = member_log_lira(evidence), support(evidence, eta)
        known = None
        if counts is not None and not np.isnan(counts.memorized[position]):
            known = int(counts.memorized[position]), int(counts.models[position])
        return ShadowGaps(
            inside=own[inside],
            outside=own[~inside],
            target=float(np.float32(evidence.target_gaps(record)[position])),
            fit_in=fits[0],
            fit_out=fits[1],
            log_lira=math.nan if values is None else float(values[position]),
            checkpoint=record.name.replace("-", " "),
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
                self._audit.evidence,
                self.decision_log,
                *place,
                rule,
                None,
                eta,
                which="flagged or decided",
                samples=False,
            )
        return as_text(table, ".csv")

    def report_page(self, state: State) -> bytes:
        """Return the report as one page without samples, which opens as `Dashboard.state` says."""
        pick = state["metric"], state["layer"], state["checkpoint"]
        tau = AgainstClass(state["tau"]) if state["axis"] == BY_CLASS else state["tau"]
        content = content_of(
            self._audit,
            tau,
            *pick,
            include_samples=False,
            figures=False,
            eta=state["eta"],
            view=state,
        )
        return as_page(content).encode("utf-8", "replace")

    def opened_by(self) -> str:
        """Return a line of Python that opens the audit again, "" if only memory holds it."""
        evidence = self._audit.evidence
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
        return device_status(resolve_device(self._audit.evidence.device))

    def _probabilities(
        self, evidence: Evidence, checkpoint: str
    ) -> NDArray[np.float64] | None:
        """Those of all members at a checkpoint, kept while it is looked at."""
        at = evidence.checkpoints[evidence.names.record(checkpoint).name]
        if not at.has_logits:
            return None
        return self._cache.of(
            "probabilities",
            at,
            lambda: scores.probabilities(evidence, checkpoint),
        )

    def _nearby(
        self, evidence: Evidence, layer: str, checkpoint: str, positions: NDArray[Any]
    ) -> NDArray[np.int64] | None:
        """Class of most of the nearest members where the model contradicts a label, else -1."""
        of_classes = self._probabilities(evidence, checkpoint)
        if of_classes is None:
            return None
        at = evidence.checkpoints[evidence.names.record(checkpoint).name]
        found = self._cache.of(
            "nearby",
            (layer, at),
            lambda: class_nearby(evidence, layer, checkpoint, of_classes),
        )
        return None if found is None else found[positions]


def _instead(more: str, know: str) -> Steps:
    """Return what a reader does who has nothing here that could train."""
    return Steps(NextStep(more, _NOTHING), NextStep(know, _NOTHING))


def _of_a_loop(script: str) -> Steps:
    """Return how a loop of a user's becomes a script that can train other models."""
    begun = 'audit = mw.Audit.from_script(fit, data, path="with-half")'
    trained = f"audit.train(); audit.run_references({_REFERENCES})"
    code = f"{script}\n{begun}\n{trained}"
    how = Lines("How", _HOW_OF_A_LOOP, code)
    know = Lines("How", "After these lines:", f"audit.run_shadows({_SHADOWS})")
    return Steps(
        NextStep(_MORE_OF_A_LOOP, _NOTHING, how),
        NextStep(_TRUTH_OF_A_LOOP, _NOTHING, know),
    )


def _begun_anew(run: Run) -> str:
    """Return the call that begins a run like this one, which leaves half of the data out."""
    if run.script is not None and isinstance(run.script.fit, EstimatorScript):
        return 'mw.Audit.from_estimator(classifier, X, y, path="with-half")'
    if run.script is not None:
        return 'mw.Audit.from_script(fit, data, path="with-half")'
    return 'mw.Audit(model, data, path="with-half", members="half")'


def _checkpoints(evidence: Evidence) -> list[Choice]:
    """Return the checkpoints after step 0, by their epoch."""
    names = evidence.names
    later = names.some_records("all")
    chosen = names.prediction().record if later else None
    labels = [
        "as given" if np.isnan(one.epoch) else f"epoch {one.epoch:g}" for one in later
    ]
    pairs = zip(later, labels, strict=True)
    return [Choice(one.name, x, one == chosen and one.epoch >= 0) for one, x in pairs]


def _layers(evidence: Evidence) -> list[Choice]:
    """Return the layers by name; the last is the recommended one."""
    layers = evidence.names.layer_names
    if not layers:
        return [Choice("last", "none", marked=True)]
    return [Choice(name, layer_label(name), name == layers[-1]) for name in layers]


def _in_words(seconds: float) -> str:
    return duration_in_words(max(seconds, 1))


def _can_train(evidence: Evidence) -> bool:
    """Whether reference models can be trained: not of arrays, a recording or a shadow model."""
    is_run = evidence.whole is None and not evidence.given
    return is_run and evidence.manifest.get("recording") is None


def _lacking(evidence: Evidence, kind: str) -> str:
    """Return why a kind of evidence is not there."""
    if kind in evidence.absent:
        return evidence.absent[kind].what
    return f"it needs {kind}, and there are none"


def _note_on_draws(evidence: Evidence) -> tuple[Note, ...]:
    """What can't be seen of a training: samples that it never draws have a high loss too."""
    if evidence.sees_draws:
        return ()
    said = "which samples the training draws is not known, and a sampler by weight may leave out "
    return (Note("draws not seen", f"{said}some, which would be flagged too"),)


def _about_functions(seconds: float) -> str:
    """Return what is added to the cost of scoring for the functions of a user's."""
    if seconds == 0:
        return ""
    if seconds == math.inf:
        return ", as long as its function takes"
    return f", about {_in_words(seconds)} for its function"


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
