"""The run behind an audit: its folder, model and data, and what is made with them.

`Run.evidence` says what is there. What is missing of it, `Run.make` makes before numbers are
computed. Below it are the shadow and reference models that its target is compared with.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import (
    ANEW,
    Arrays,
    Cache,
    Checkpoint,
    Evidence,
    Lazy,
    Models,
    Need,
    OneModel,
    ScoreKey,
)
from memowidgets.audit.names import Names
from memowidgets.checks import several, warn_user, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.files import digest, file_name_of
from memowidgets.metrics import logit_gap
from memowidgets.models import Model
from memowidgets.models.device import check_available, resolve_device, torch_device
from memowidgets.progress import Progress
from memowidgets.store import (
    Absent,
    BrokenError,
    ForeignError,
    RunDirectory,
    StoreError,
    Tensors,
)
from memowidgets.training.checkpoint import (
    FIRST,
    KEEP_ALL,
    LAYER,
    Record,
    file_of_pass,
    forward_of,
    left_out,
    name_of,
    outputs_of,
    read_course,
    read_records,
    read_repeats,
    record_file,
)
from memowidgets.training.config import Settings
from memowidgets.training.design import (
    HOW_TO_LEAVE_OUT,
    NOTHING_LEFT_OUT,
    REFERENCE,
    SHADOW,
    Design,
    Kind,
    ReferenceDesign,
    ShadowDesign,
    add_noise,
)
from memowidgets.training.draws import never_drawn
from memowidgets.training.engine import check_executor
from memowidgets.training.learner import Loaded, Recipe, TargetTraining
from memowidgets.training.lookout import Lookout, Prediction, StopRule, read_stop
from memowidgets.training.origin import Origin, plain_setting
from memowidgets.training.probe import check_functions
from memowidgets.training.script import Known, Script, ScriptTraining
from memowidgets.training.shadows import (
    Shadows,
    ShadowSet,
    gap_checkpoints,
    read_choice,
    stacked,
    write_choice,
)
from memowidgets.training.worker import KeptForward, ShadowJob
from memowidgets.vocabulary import Note, listed, percent, quoted, visible, whole

if TYPE_CHECKING:
    from memowidgets.evaluation.scored import Scored

WATCHED = "watch"
SCRIPT = "script"
_VERSION, _BESIDE = "method", "beside"  # of a score, with its values
_MOST_HELD = 2**28  # bytes of scores in memory
_AGAIN = "make a pass over the samples again"
_OPEN = "Audit.open(path, data=…, model=…) opens it with both"
_OPEN_SCRIPT = "Audit.from_script(fit, data, path) opens it with the script"
_WRAP = (
    "wrap your script as fit(rows, watch, seed) and pass it to Audit.from_script, see "
    "docs/your_training_loop.md"
)
ANOTHER = "let audit.train() train the target of another run"  # instead of a Trainer
_POLL_SECONDS = 0.2

_SECONDS_TO_START = 3.0  # of a core, until a local process can train


class Run:
    """A run directory, with its model and its data where they are at hand.

    Parameters
    ----------
    run : RunDirectory
        Its files.
    manifest : dict
        Its manifest.
    model : Model or None
        Model to compute with; without one only what is on disk can be had.
    data : Dataset
        All samples, with the labels that are trained on.
    held_out : Dataset or None
        Held-out samples, if they are a dataset of their own.
    design : Design
        Which samples the target trains on.
    device : str
        ``"auto"``, or as torch names it.
    settings : Settings, optional
        Settings of the training. Default: the manifest's, which lack a user's functions.
    script : Script, optional
        What trains in place of a model and its settings.
    """

    def __init__(
        self,
        run: RunDirectory,
        manifest: dict[str, Any],
        model: Model | None,
        data: Dataset,
        held_out: Dataset | None,
        design: Design,
        device: str,
        settings: Settings | None = None,
        script: Script | None = None,
    ) -> None:
        self.script = script
        self.run, self.manifest, self.model, self.data = run, manifest, model, data
        self.design, self.seed = design, int(manifest["seed"])
        self._labels = data.labels.copy()  # the user may write to theirs
        self._settings = settings or Settings.read(manifest["training"])
        self.held_out = held_out if held_out is not None else data.take(design.held_out)
        self._anywhere = device == "auto" and (model is None or model.device is None)
        # to look for a GPU imports torch, which takes seconds
        self._device = None if self._anywhere else device_of(model, device)
        self.precision = str(manifest.get("precision", ""))  # a watched run has none
        # of the shadow models chosen here; None: as the folder says
        self._key: str | None = None
        self.config = config_digest(manifest)
        self.references = References(self)
        self._lock, self.loaded = threading.RLock(), Loaded()
        self._cache = Cache()
        self.scores = ScoreKeeper(run)
        self._pass_seconds: float | None = None

    @property
    def path(self) -> str:
        """The run directory."""
        return str(self.run.path)

    @property
    def is_recording(self) -> bool:
        """Whether it holds numbers alone."""
        return self.manifest.get("recording") is not None

    @property
    def device(self) -> str:
        """The device to compute on. A recording, which trains nothing, looks for no GPU."""
        if self._device is None:
            self._device = "cpu" if self.is_recording else resolve_device("auto")
        return self._device

    @property
    def training(self) -> Settings:
        """How the target and its shadow models are trained, on any machine.

        `precision` is the one that ``"auto"`` meant where the run was made.
        """
        return replace(self._settings, precision=self.precision)

    @property
    def clean_data(self) -> Dataset:
        """All samples, with their labels from before label noise."""
        # over the noise in the labels it is drawn as before, and shifts each by as much again
        twice = add_noise_of(self.data, self.design, self.manifest)
        n_options = getattr(self.data, "n_choices", len(self.data.class_names))
        labels = (2 * self.data.labels - twice.labels) % n_options
        return self.data if twice is self.data else self.data.with_labels(labels)

    @property
    def names(self) -> Names:
        """Checkpoints and layers by name, as they are now."""
        labels = self._labels[self.design.members]
        read = partial(read_names, self.run, self.manifest, labels)
        return self._cache.of("names", self.run.revision(), read)

    @property
    def rule(self) -> StopRule:
        """The rule by which its training is interrupted."""
        return read_stop(self.run, has_records=False)

    @property
    def shadows(self) -> ShadowSet:
        """The shadow models that the truth comes from."""
        return self._set()

    @property
    def can_ask(self) -> bool:
        """Whether model and samples are at hand, so that new passes can be made."""
        return self.model is not None and not isinstance(self.data, WithheldDataset)

    def use_shadows(self, key: str) -> None:
        """Take the truth from the shadow models of the set with this key from now on.

        A recording is not written to: there only this run remembers it.
        """
        choice = read_choice(self.run)
        if key != choice.get("key", "halves") and not self.run.read_only:
            write_choice(self.run, {**choice, "key": key})
        self._key = key

    def cannot(self, work: str) -> Absent | None:
        """Return why a run can't do some work by what it is; None for a run of a model."""
        if self.manifest.get("kind") == WATCHED:
            lacks = "was recorded by mw.watch, which keeps no model and no weights"
            do = _WRAP
        elif self.is_recording:
            lacks = "is a recorded audit, which holds numbers, but no model, weights or samples"
            do = ANEW
        elif self.is_of_script and self.script is None:
            lacks = "is trained by a script, which is not at hand"
            do = _OPEN_SCRIPT
        elif self.is_of_script and work == _AGAIN:
            lacks = "is trained by a script, of which no weights are kept"
            do = "name the layers in watch.follow(layers=…), and train at another path"
        else:
            return None
        return Absent(f"{self.path} {lacks}, so it cannot {work}", do)

    @property
    def is_of_script(self) -> bool:
        """Whether a user's script trains all its models."""
        return bool(self.manifest.get("kind") == SCRIPT)

    @property
    def recorded_from(self) -> str:
        """Who trained the target, if that was not the audit: the settings are theirs."""
        if self.manifest.get("kind") == WATCHED:
            return "a loop by mw.watch"
        if self.is_of_script:
            return ""
        return "a Trainer" if read_course(self.run) is not None else ""

    def check_can(self, work: str, instead: str = "") -> None:
        """Raise an error that says why, if this run can't do some work.

        Parameters
        ----------
        work : str
            What it is to do.
        instead : str
            What to do where a Trainer trains the target, which would not go on from what is
            trained here. Empty: that is no hindrance.

        Raises
        ------
        NotThereError
            If it can't, or model and data are not at hand.
        """
        why = self.cannot(work)
        trained_by = self.recorded_from
        if why is None and instead and trained_by:
            why = Absent(
                f"{self.path} was recorded from {trained_by}, so it cannot {work}",
                instead,
            )
        if why is None and self.script is None and not self.can_ask:
            why = Absent(f"this needs the model and the data of {self.path}", _OPEN)
        if why is not None:
            raise why.error()

    def references_to_train(self, n: int) -> int:
        """Return how many reference models are missing for `n` of each member.

        Raises
        ------
        ValueError, StoreError
            If none can be trained: the target was not, or elsewhere, its model or data are not at
            hand, or nothing is left to train on.
        """
        self.check_can("train reference models", ANOTHER)
        plan, files = self.references.plan, self.references.files
        plan.check(self.design, self.seed, n)
        is_there = self.names.prediction().record.name in files.checkpoints()
        return n * plan.per_round - (len(files) if is_there else 0)

    def shadows_to_train(self, n: int) -> int:
        """Return how many shadow models are missing for `n`.

        Raises
        ------
        ValueError, StoreError
            If none can be trained, as for `references_to_train`.
        """
        self.check_can("train shadow models", ANOTHER)
        ShadowDesign.of(self.design, "halves", self.data, None)
        self.names.record("final")
        return n - len(self._set("halves"))

    def seconds_of_a_shadow(self) -> float | None:
        """Return the seconds of the steps of a shadow model; None if they are not known."""
        half = len(self.design.pool) / 2 / len(self.design.members)
        return self._seconds(half, self.names.record("final").step)

    def seconds_of_a_reference(self) -> float | None:
        """Return the seconds of the steps of a reference model; None if they are not known."""
        members = len(self.design.members)
        parts = self.references.plan.per_round
        share = 1 - 1 / parts
        if parts == 1:  # other samples
            share = min(1.0, (len(self.design.pool) - members) / members)
        return self._seconds(share, self.names.prediction().record.step)

    def _seconds(self, share: float, step: int) -> float | None:
        """Return what it takes to train on a share of as many samples as the target, to a step.

        It follows from the seconds that the target took to its checkpoints. The median between two
        of them leaves out what a process imports at its first step.
        """
        between = [
            (one.seconds, one.step - past.step)
            for past, one in pairwise(self.names.found)
        ]
        of_a_step = [seconds / steps for seconds, steps in between if seconds > 0]
        return share * step * median(of_a_step) if of_a_step else None

    def processes_for_references(self, models: int) -> int | None:
        """Return 1 where so many are trained before a second process starts, else None."""
        each = self.seconds_of_a_reference()
        return 1 if each is not None and models * each < _SECONDS_TO_START else None

    # what is there

    def evidence(self, key: str | None = None) -> Evidence:
        """Return what is there, the same object until somebody writes to the run.

        Parameters
        ----------
        key : str, optional
            Set of shadow models. Default: that which the truth comes from.
        """
        chosen = key or self._key
        # before the files: what is written meanwhile has the next one
        revision = self.run.revision()
        take = partial(self._evidence, chosen)
        return self._cache.of(("evidence", key), (revision, chosen), take)

    def _set(self, key: str | None = None) -> ShadowSet:
        why = self.cannot("train shadow models")
        if why is None and self.design.all_members:
            why = Absent(NOTHING_LEFT_OUT, HOW_TO_LEAVE_OUT)
        chosen = key or self._key or chosen_key(self.run)
        return ShadowSet(self.run, chosen, self.config, self.precision, none=why)

    def _evidence(self, key: str | None) -> Evidence:
        self.scores.look_again()
        names, course_says = self.names, left_out(self.run)
        shadows = self._models(self._set(key))
        share = self._settings.label_noise
        notes = fork_note(self.manifest)
        if share:
            flipped = f"{percent(share)} of the pool's labels were flipped at random"
            notes = (
                Note("label noise", f"label noise is on: {flipped}", share=share),
                *notes,
            )
        repeated = read_repeats(self.run)
        if repeated:
            n, most = len(repeated), max(repeated.values())
            said = f"{n} members stand in several of the Trainer's rows, up to {most}: it trains "
            said += "on them more often than on others"
            notes = (*notes, Note("repeated rows", said, members=n, most=most))
        undrawn, of_draws = self._undrawn(names)
        recorded_from = self.recorded_from
        unknown = Absent(
            f"{self.path} was trained by {recorded_from or 'a script'}, so the audit's own "
            "settings were not used",
            "audit.report() states what is known of them",
        )
        return Evidence(
            path=self.path,
            manifest={
                **self.manifest,
                "training": None,
            },  # `origins` say who trained, and how
            data=self.data,
            trained_labels=self._labels,
            pool=self.design.pool,
            member_rows=self.design.members,
            held_out_labels=self.held_out.labels,
            n_options=len(self.data.class_names),
            names=names,
            checkpoints={
                record.name: self._checkpoint(record, course_says)
                for record in names.found
            },
            shadows=shadows,
            references=self._models(self.references.files),
            settings=unknown if recorded_from or self.is_of_script else self.training,
            scores=self.scores,
            general_notes=(*of_draws, *notes, *shadows.lost),
            repeated=repeated,
            undrawn=np.zeros(0, np.int64) if undrawn is None else undrawn,
            sees_draws=undrawn is not None or not recorded_from,
            origins=self._origins(),
            makes=frozenset(("pass", "losses", "pool") if self.can_ask else ()),
            device=self._device or ("cpu" if self.is_recording else "auto"),
            cache=self._cache,
        )

    def _origins(self) -> tuple[Origin, ...]:
        """Return who trained the target with which settings."""
        course = read_course(self.run)
        if course is not None:
            return tuple(course.origins)
        settings = self.training.as_manifest()
        lists = {name: of for name, of in settings.items() if isinstance(of, list)}
        settings |= {name: plain_setting(of) for name, of in lists.items()}
        return (Origin("audit.train()", settings=settings),)

    def _undrawn(
        self, names: Names
    ) -> tuple[NDArray[np.int64] | None, tuple[Note, ...]]:
        """Return members that the training does not draw, and a note; None if nobody knows."""
        if not names.found:
            return None, ()
        record, labels = names.found[-1], self._labels[self.design.members]
        known = never_drawn(self.run, record, labels)
        if known is None or not len(known[0]):
            return (None if known is None else known[0]), ()
        positions, drawn = known
        said = f"{len(positions)} of {len(labels)} members are not among the {whole(drawn)} rows "
        said += f"that the training drew up to {record.name}, so they have no score"
        note = Note("never drawn", said, members=len(positions), drawn=drawn)
        return positions, (note,)

    def _checkpoint(self, record: Record, course_says: str) -> Checkpoint:
        """Return what is there of a checkpoint; the same object as long as that stays."""
        name = record.name
        made, why_no_pass = self._opened(forward_of(name), record.weights)
        outputs, why_no_outputs = self._opened(outputs_of(name), record.weights)
        # a recording keeps these gaps without the weights
        of = None if self.is_recording else record.weights
        first, _ = self._opened(f"{FIRST}/{name}", of)
        no_pass = Absent(why_no_pass) if why_no_pass else self._no_pass()
        with_both = f"with the model and the data of {self.path}"
        no_outputs = Absent(
            why_no_outputs or "the losses were not kept",
            f"a pass over the members makes them, {with_both}",
        )

        why_no_layer = self._why_no_layer(made, course_says)

        def lacks(array: str) -> Absent:
            if made is None:
                return no_pass
            if array.startswith(LAYER):
                return why_no_layer(array)
            do = "the prediction checkpoint and the last one have them"
            return Absent(f"the recording has no {array}", do)

        def checkpoint() -> Checkpoint:
            return Checkpoint(
                record,
                Arrays(made, lacks),
                Arrays(outputs, lambda _: no_outputs),
                first={} if first is None else first,
            )

        parts = record, made, outputs, first, no_pass, no_outputs, course_says
        return self._cache.of(("checkpoint", name), parts, checkpoint)

    def _opened(self, place: str, of: str | None) -> tuple[Tensors | None, str]:
        """Return a file of arrays; None and why where it can't be used, "" where there is none."""
        try:
            return self.run.read_tensors(place, of), ""
        except (BrokenError, ForeignError) as error:
            return None, error.fault
        except StoreError:
            return None, ""

    def _no_pass(self) -> Absent:
        """Return why there is no forward pass where none was made."""
        if self.can_ask:
            return Absent("nothing was scored yet", "call score() there first")
        needs = f"a forward pass needs the model and the data of {self.path}"
        return self.cannot(_AGAIN) or Absent(needs, _OPEN)

    def _why_no_layer(
        self, made: Tensors | None, course_says: str
    ) -> Callable[[str], Absent]:
        """Return a function that says why a forward pass lacks a layer."""
        if course_says:
            left = Absent(f"{self.path} {course_says}", KEEP_ALL)
            return lambda _: left
        kept = [one.removeprefix(LAYER) for one in made or () if one.startswith(LAYER)]
        there = f"hidden states of {listed(kept) or 'no layer'} are there, and those of layer"
        do = "MemorizationCallback(layers=…) says which layers are kept"
        do = do if self.cannot(_AGAIN) is None else ""

        def why(name: str) -> Absent:
            layer = visible(name.removeprefix(LAYER), 40)
            return Absent(f"{there} {layer} were not kept", do)

        return why

    def _models(self, files: ShadowSet) -> Models:
        """Return the models of a set, the same object as long as their files stay as they are."""
        opened = files.opened()
        lost = tuple(files.lost(opened))
        none = files.none_of(lost)
        if files.kind is REFERENCE:
            opened, none = self.references.whole_rounds(opened, none)
        good = {i: one for i, one in opened.items() if isinstance(one, Tensors)}
        bad = {i: one for i, one in opened.items() if isinstance(one, StoreError)}
        # a broken one is trained again, and one from elsewhere is never left out in silence
        used = sorted(
            [*good, *(i for i, one in bad.items() if isinstance(one, ForeignError))]
        )
        kept = {
            index: self._cache.of(
                ("model", files.kind.folder, files.key, index),
                file,
                partial(OneModel, file, file.metadata),
            )
            for index, file in good.items()
        }

        cache, kind, key = self._cache, files.kind, files.key

        def at(checkpoint: str) -> Shadows:
            # the last one stays: log-LiRA, its shape and its support all read it
            state = key, checkpoint, *good.values()
            read = partial(stacked, good, checkpoint)
            return cache.of(("stacked", kind.folder), state, read)

        def models() -> Models:
            return Models(
                files.key,
                none,
                Lazy(gap_checkpoints(good.values()), at),
                tuple(used),
                kept,
                bad,
                lost,
                kind=files.kind,
            )

        parts = none, lost, tuple(good.items()), tuple(bad.items())
        return self._cache.of(("models", files.kind.folder, files.key), parts, models)

    # what is made

    @contextmanager
    def alone(self, progress: Progress | None = None) -> Iterator[None]:
        """Wait until no other thread works on this run. A cancelled `progress` ends the waiting."""
        while not self._lock.acquire(timeout=_POLL_SECONDS):
            if progress is not None:
                progress.report(0, 1, "waiting for other work on this audit")
        try:
            yield
        finally:
            self._lock.release()

    def make(self, needs: Iterable[Need], progress: Progress | None = None) -> None:
        """Make what is missing of a checkpoint, so that the next evidence has it."""
        for need in needs:
            record = self.names.record(need.checkpoint)
            if need.what == "losses":  # they are kept, unless their file is lost
                warn_of(self.run.why_not(outputs_of(record.name), record.weights))
            self.forward(record, progress)
            if need.what == "pool":
                self._make_first(record, progress)

    def forward(self, record: Record, progress: Progress | None = None) -> Tensors:
        """Return the forward pass of a checkpoint over the members; make it if it is missing."""
        place, of = forward_of(record.name), record.weights
        if not self.run.has(place, of):
            with self.alone(progress):
                if not self.run.has(place, of):
                    self._make_pass(record, progress or Progress())
        return self.run.read_tensors(place, of)

    def _make_pass(self, record: Record, progress: Progress) -> None:
        place = forward_of(record.name)
        warn_of(self.run.why_not(place, record.weights))
        target, start = self.target(), time.monotonic()
        with file_of_pass(self.run, place, record.weights) as allocate:
            target.forward(record.name, progress, allocate)
        self._pass_seconds = time.monotonic() - start

    def _make_first(self, record: Record, progress: Progress | None) -> None:
        """Keep the target's gaps over the pool, which are needed where it is a shadow model."""
        with self.alone(progress):
            name = f"{FIRST}/{record.name}"
            if not self.run.has(name, record.weights):
                warn_of(self.run.why_not(name, record.weights))
                gaps = self.gaps_of(record, self.design.pool)
                self.run.write_tensors(name, {"gap": gaps}, of=record.weights)

    def gaps_of(self, record: Record, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the target's logit gap of any rows of `data`, by a forward pass."""
        logits = self.target().look(record.name, rows).logits
        return logit_gap(logits, self.data.labels[rows]).astype(np.float32)

    def pass_cost(self) -> tuple[float | None, int | None]:
        """Seconds of a forward pass, and bytes of one on disk, None where they are not known.

        Before one was made here, an epoch of the target's training tells the seconds: it passes as
        many samples forward, and backward too.
        """
        files = (
            self.run.place(f"{forward_of(x)}.safetensors")
            for x in self.run.names("forward")
        )
        seconds = self._pass_seconds
        if seconds is None:
            seconds = self._seconds_of_an_epoch()
        return seconds, next((file.stat().st_size for file in files), None)

    @property
    def trains_on_all(self) -> bool:
        """Whether no sample is left out of an audit that could train shadow models on others."""
        is_at_hand = self.can_ask or self.script is not None
        can = self.cannot("") is None and not self.recorded_from and is_at_hand
        return can and len(self.design.members) == len(self.design.pool)

    def seconds_of_another(self, models: int) -> float | None:
        """Return the seconds of so many whole trainings on half of the data, if they are known."""
        epoch = self._seconds_of_an_epoch()
        return None if epoch is None else models * self.training.epochs * epoch / 2

    def _seconds_of_an_epoch(self) -> float | None:
        last = self.names.found[-1] if self.names.found else None
        if last is None or not last.epoch > 0:
            return None
        return self._seconds(1.0, round(last.step / last.epoch))

    def training_of_target(self) -> TargetTraining | ScriptTraining:
        """Return what trains the target, the user's script if there is one."""
        if self.script is None:
            return self.target()
        every = self.manifest["training"]["checkpoint_every"]
        parts = self.design, self.held_out, self.seed, every
        return ScriptTraining(self.run, self.script, *parts)

    def target(self) -> TargetTraining:
        """Return what trains the target and looks at it, where a model is at hand.

        Raises
        ------
        StoreError
            If the model or the data are not at hand.
        """
        recipe = self.recipe()
        return TargetTraining(
            self.run, recipe, self.design, self.held_out, self.seed, self.loaded
        )

    def job(
        self,
        steps: Mapping[str, int],
        plan: ShadowDesign | ReferenceDesign,
        keep: bool | str | int | Sequence[str | int] = False,
    ) -> ShadowJob:
        """Return all that a worker needs to train any shadow or reference model.

        `steps` are those of the checkpoints at which it is asked, by name.
        """
        self.check_code()
        training = self.training_of_target()
        training.check(max(steps, key=steps.__getitem__))
        forward = None
        if keep is not False:
            layers = self.names.some_layers("last" if keep is True else keep)
            forward = KeptForward(self.names.prediction().record.name, tuple(layers))
        return ShadowJob(
            training.recipe,
            self.design,
            self.seed,
            steps,
            {record.name: record.step for record in self.names.found},
            plan,
            self.references.config if plan.kind is REFERENCE else self.config,
            forward,
            self.manifest.get("probe", {}),
        )

    def check_code(self) -> None:
        """Raise if a user's function does something else than where the run was begun."""
        if probe := self.manifest.get("probe"):
            check_functions(probe, self.recipe(), self.design)

    def recipe(self) -> Recipe:
        """Return model, data, settings and device.

        Raises
        ------
        StoreError
            If the model or the data are not at hand, or the data were changed since.
        """
        self.check_can(_AGAIN)
        contents = zip(
            self.data.content_hashes(), self.manifest["content"], strict=True
        )
        changed = self.data.labels != self._labels
        changed |= np.array([now != before for now, before in contents], dtype=np.bool_)
        if changed.any():
            raise StoreError(
                f"{int(changed.sum())} samples or their labels were changed in place since this "
                f"audit was made, the first is {quoted(self.data.ids[changed.argmax()])}; undo "
                "that, and make another audit of a changed copy (with_labels, from_arrays) at "
                "another path"
            )
        check_available(torch_device(self.device), self.precision)
        return Recipe(
            cast("Model", self.model),
            self.data,
            self.training,
            self.device,
            self._anywhere,
        )


def folder_of(key: str, index: int) -> str:
    """Return the place of what belongs to a shadow model as the target."""
    return f"targets/{key}/{index:04d}"


def read_names(
    run: RunDirectory, manifest: Mapping[str, Any], labels: NDArray[np.int64]
) -> Names:
    """Return the checkpoints and layers of a run directory, as they are now.

    `labels` are those of the members, (n_members,).

    Warns
    -----
    UserWarning
        If a checkpoint that was whole once has no record any more, or the rule of where to look is
        lost.
    """
    settings, course = Settings.read(manifest["training"]), read_course(run)
    n_members = len(labels)
    # listed before records are read: a training that goes on writes these after the record
    whole = run.names("forward") if course is None else list(course.weights)
    for name in run.names("checkpoints", ""):
        if run.has_file(f"checkpoints/{name}/resume.safetensors"):
            whole.append(name)
    records = read_records(run)
    last = max((record.step for record in records), default=-1)
    if course is None:
        plan = settings.plan(n_members).steps()
        whole += [name_of(epoch) for step, epoch in plan.items() if step < last]
    lost = set(whole) - {record.name for record in records}
    if lost:
        files = ", ".join(
            str(run.path / record_file(name))
            for name in dict.fromkeys(whole)
            if name in lost
        )
        warn_user(
            f"{files} is missing, so the checkpoint is left out: restore it, or call train(), "
            "which makes it again"
        )
    rule = read_stop(run, has_records=len(records) > 0)
    chosen: Prediction | Exception | None = None
    if len(records) > 1:
        try:
            chosen = Lookout(run, labels, rule).prediction(records)
        except (StoreError, ValueError) as error:
            chosen = error
    layers = manifest["layers"]
    to_go_on = "call train()"
    last_step = settings.total_steps(n_members)
    if course is not None:
        last_step = course.total_steps
        to_go_on = "let the training go on that is recorded here"
    if manifest.get("kind") == SCRIPT:
        known = Known.read(run)
        layers = () if known is None else known.layers
        # nobody knows how long a script trains until it returns
        last_step = -1 if known is None or not known.steps else known.steps
        to_go_on = "call train()"
    return Names(tuple(layers), tuple(records), rule, chosen, last_step, to_go_on)


def fork_note(manifest: Mapping[str, Any]) -> tuple[Note, ...]:
    """Return what must be known of weights that have seen what was removed; empty for others."""
    fork = manifest.get("fork")
    if not fork or not fork["seen"]:
        return ()
    said = f"this run goes on from {visible(str(fork['checkpoint']), 40)} of another one: its "
    said += f"weights have already seen {fork['seen']} samples that were removed or changed since, "
    said += 'and what those left in them is not undone; fork with start="scratch" to be rid of it'
    return (Note("fork", said, seen=fork["seen"]),)


def add_noise_of(data: Dataset, design: Design, manifest: Mapping[str, Any]) -> Dataset:
    """Return data with the label noise of a run, drawn as its manifest says."""
    share = Settings.read(manifest["training"]).label_noise
    return add_noise(data, design.pool, share, manifest["seed"])


def stop_rule(stop_at_drop: float | None, over_last: int) -> StopRule | None:
    """Return the rule that interrupts a training, or None."""
    if stop_at_drop is not None:
        return StopRule(stop_at_drop, over_last)
    if over_last != 1:
        raise ValueError("over_last has no effect without stop_at_drop, such as 0.95")
    return None


def device_of(model: Model | None, device: str) -> str:
    """Return the device to compute on: the one asked for, or the one that the model prefers."""
    preferred = model.device if model is not None and device == "auto" else None
    return resolve_device(preferred or device)


# the models that a target is compared with


def check_request(
    n: Any,
    executor: Executor | None,
    checkpoints: Any,
    processes: int | None,
    kind: Kind = SHADOW,
) -> None:
    """Refuse what can't be meant.

    Raises
    ------
    ValueError, TypeError
        With what would be right.
    """
    each = " for each member" if kind is REFERENCE else ""
    whole_number(f"n, the number of {kind.noun}s{each} in all,", n, 1)
    check_executor(executor)
    if processes is not None:
        whole_number("processes", processes, 1)
        if executor is not None:
            raise ValueError(
                "processes is the number of local processes: leave out the executor"
            )
    if isinstance(checkpoints, Sized) and not len(checkpoints):
        raise ValueError('checkpoints is empty; the default is ("prediction", "final")')


def checked_part(indices: Any, n: int) -> list[int]:
    """Return the indices of the shadow models that this process trains, each once.

    Raises
    ------
    ValueError, TypeError
        If it is no series, is empty, or one is no whole number from 0 to n − 1.
    """
    every = several("indices", indices)
    part = [whole_number("each of indices", index, 0, n - 1) for index in every]
    if not part:
        raise ValueError("indices is empty; leave it out to train all that are missing")
    return list(dict.fromkeys(part))


def config_digest(manifest: Mapping[str, Any]) -> str:
    """Return a digest of what shadow models must share with their target, as first written.

    That is model, data, training, pool and seed.
    """
    parts = ("seed", "model", "training", "pool", "content")
    kept = {part: manifest[part] for part in parts if part in manifest}
    return digest([kept, manifest["data"]["labels"]])


def chosen_key(run: RunDirectory) -> str:
    """Return the set that `Run.use_shadows` chose last, or random halves if it never did."""
    return str(read_choice(run).get("key", "halves"))


def shadow_sets(run: RunDirectory) -> dict[str, ShadowSet]:
    """Return the sets with at least one shadow model, by key."""
    config, folders = config_digest(run.manifest), run.names("shadows", "")
    found = (ShadowSet(run, key, config) for key in ("halves", *folders))
    return {kept.key: kept for kept in found if len(kept)}


def set_of_design(run: RunDirectory, design: str) -> ShadowSet:
    """Return the set of a design, or of that key.

    Raises
    ------
    ValueError
        If there is none, or several of that design; the message lists the keys.
    """
    sets = shadow_sets(run)
    named = [key for key in sets if design in (key, key.split("-")[0])]
    if design in sets or len(named) == 1:
        return sets[design if design in sets else named[0]]
    there = (
        ", ".join(f"{quoted(key)} ({len(kept)})" for key, kept in sets.items())
        or "none yet"
    )
    what = (
        f"{len(named)} sets of shadow models are"
        if named
        else "no set of shadow models is"
    )
    raise ValueError(f"{what} of the design {design!r}; there are {there}")


class References:
    """The reference models of a run.

    Only whole rounds count: with the design "parts", a model without its counterpart is not used.

    Parameters
    ----------
    of : Run
        The run whose target they are compared with.
    """

    def __init__(self, of: Run) -> None:
        self._of = of
        self.plan = ReferenceDesign.of(of.design, of.manifest["model"].get("folds", 2))
        self.config = digest([of.config, of.manifest.get("members")])
        own = of.run, self.plan.key, self.config, of.precision
        self.files = ShadowSet(
            *own, none=of.cannot("train reference models"), kind=REFERENCE
        )

    def whole_rounds(
        self, opened: Mapping[int, Tensors | StoreError], none: Absent
    ) -> tuple[dict[int, Tensors | StoreError], Absent]:
        """Return those whose round is complete, which are asked of every member; or why none is."""
        size = self.plan.per_round
        there = {i for i, one in opened.items() if not isinstance(one, BrokenError)}
        used = {
            i: one
            for i, one in opened.items()
            if i not in there or all(i - i % size + j in there for j in range(size))
        }
        if there and not there & used.keys():
            what = f"reference model {min(there)} is there, and others of its round are not"
            none = Absent(what, "call run_references(1) again")
        return used, none


class ScoreKeeper:
    """Scores that were computed before: in a run directory that can be written to, or in memory.

    Parameters
    ----------
    run : RunDirectory or None
        Where they lie. None: in memory alone.
    """

    def __init__(self, run: RunDirectory | None) -> None:
        self._run = run
        self._held: dict[ScoreKey, Scored] = {}
        self._seconds: dict[str, float] = {}
        # as they were at the last look; a text says why a file can't be used
        self._files: dict[ScoreKey, Tensors | str] = {}

    def look_again(self) -> None:
        """Forget what was there at the last look."""
        self._files = {}

    def has(self, key: ScoreKey) -> bool:
        """Whether `find` has an answer."""
        return key in self._held or isinstance(self._file(key), Tensors)

    def find(self, key: ScoreKey) -> Scored | None:
        """Return the scores of a key, if they are kept; warn of a file that can't be used."""
        held = self._held.get(key)
        if held is not None:
            return held
        file = self._file(key)
        if isinstance(file, str):  # another process may have kept them since
            file = self._files[key] = self._opened(key)
        if isinstance(file, str):
            warn_of(file or None)
            return None
        # SciPy, which a watched loop needs not
        from memowidgets.evaluation.scored import Scored

        kept = dict(file)
        values = np.array(kept["score"])
        return self._hold(
            key,
            Scored(
                np.array(kept["rows"]) if "rows" in kept else np.arange(len(values)),
                values,
                np.array(kept["error"]) if "error" in kept else None,
                notes=tuple(map(_note, json.loads(file.metadata.get("notes", "[]")))),
            ),
        )

    def about(self, key: ScoreKey) -> Mapping[str, str]:
        """Return what was kept beside scores at the place of a key, whatever they come from."""
        if self._run is None:
            return {}
        try:
            found = self._run.read_tensors(place_of_score(key))
        except StoreError:
            return {}
        version = found.metadata.get(_VERSION, "")
        return {**found.metadata, "version": version}

    def seconds(self, metric: str) -> float | None:
        """Return how long the function of a score took when it was last called, if it was."""
        return self._seconds.get(metric)

    def keep(
        self,
        key: ScoreKey,
        scores: Scored,
        about: Mapping[str, str],
        seconds: float,
    ) -> Scored:
        """Keep the scores of a key, and return them.

        `about` stands beside them, and they took so many seconds.

        Warns
        -----
        UserWarning
            If they cannot be written, as on a full disk: then they are in memory alone.
        """
        self._hold(key, scores)
        self._seconds[key.metric] = seconds
        self._files.pop(key, None)
        version = key.version
        if self._run is None or self._run.read_only or not isinstance(version, str):
            return scores
        tensors: dict[str, NDArray[Any]] = {"score": scores.scores}
        # some have none
        if not np.array_equal(scores.positions, np.arange(len(scores))):
            tensors["rows"] = scores.positions
        if scores.errors is not None:
            tensors["error"] = scores.errors
        notes = json.dumps(
            [
                [note.key, note.sentence, note.numbers, *note.names]
                for note in scores.notes
            ]
        )
        own = {"notes": notes, _VERSION: version, _BESIDE: key.beside}
        place = place_of_score(key)
        try:
            self._run.write_tensors(
                place, tensors, {**about, **own}, key.of, is_evidence=False
            )
        except StoreError as error:
            warn_user(f"the scores are not kept: {error}")
        return scores

    def _hold(self, key: ScoreKey, scores: Scored) -> Scored:
        """Keep scores in memory, and let the oldest go where they are too many."""
        self._held[key] = scores
        size = sum(map(_bytes_of, self._held.values()))
        for oldest in [*self._held][:-1]:
            if size <= _MOST_HELD:
                break
            size -= _bytes_of(self._held.pop(oldest))
        return scores

    def _file(self, key: ScoreKey) -> Tensors | str:
        """Return the file of a key; why it can't be used, or "" where there is none."""
        if key not in self._files:
            self._files[key] = self._opened(key)
        return self._files[key]

    def _opened(self, key: ScoreKey) -> Tensors | str:
        if self._run is None or not isinstance(key.version, str):
            return ""
        try:
            found = self._run.read_tensors(place_of_score(key), key.of)
        except (BrokenError, ForeignError) as error:
            return error.fault
        except StoreError:
            return ""
        about = found.metadata
        kept = about.get(_VERSION), about.get(_BESIDE, "")
        return found if kept == (key.version, key.beside) else ""


def place_of_score(key: ScoreKey) -> str:
    """Return the place of a score in a run directory."""
    folder = "scores"
    if key.target is not None:
        folder = f"{folder_of(*key.target)}/scores/{key.of}"
    parts = [folder, key.checkpoint]
    if key.layer:
        parts.append(file_name_of(key.layer))
    parts.append(file_name_of(key.metric))
    return "/".join(parts)


def _bytes_of(scores: Scored) -> int:
    errors = 0 if scores.errors is None else scores.errors.nbytes
    return int(scores.scores.nbytes + scores.positions.nbytes + errors)


def _note(kept: Any) -> Note:
    key, sentence, numbers, *names = kept
    return Note(key, sentence, names, **numbers)


def warn_of(reason: str | None) -> None:
    """Warn that a file on disk cannot be used and is made again; None: there is no such file."""
    if reason is not None:
        warn_user(f"{reason}. It is not used, and made again.")
