"""The run behind an audit: its folder, model and data, and what is made with them.

`Run.evidence` says what is there. What is missing of it, `Run.make` makes before numbers are
computed. Below it are the shadow and reference models that its target is compared with.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import (
    ANEW,
    Arrays,
    Cache,
    Checkpoint,
    Evidence,
    KeptScores,
    Models,
    Names,
    Need,
    OneModel,
    ScorePlace,
    warn_of,
)
from memowidgets.checks import several, warn_user, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.files import array_digest, digest
from memowidgets.metrics import logit_gap
from memowidgets.models import Model
from memowidgets.models.device import check_available, resolve_device, torch_device
from memowidgets.progress import Progress
from memowidgets.store import Absent, NotThereError, RunDirectory, StoreError, Tensors
from memowidgets.training.checkpoint import (
    COURSE,
    KEEP_ALL,
    LAYER,
    REPEATS,
    Record,
    file_of_pass,
    forward_of,
    held_out_of,
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
    NOTHING_LEFT_OUT,
    REFERENCE,
    SHADOW,
    Design,
    Kind,
    ReferenceDesign,
    ShadowDesign,
    add_noise,
)
from memowidgets.training.draws import draws_of, never_drawn
from memowidgets.training.engine import check_executor
from memowidgets.training.learner import Loaded, Recipe, TargetTraining
from memowidgets.training.lookout import RHO, Lookout, StopRule, read_stop
from memowidgets.training.origin import Origin, plain_setting
from memowidgets.training.probe import check_functions
from memowidgets.training.shadows import Shadows, ShadowSet, read_choice, write_choice
from memowidgets.training.worker import KeptForward, ShadowJob
from memowidgets.vocabulary import Note, listed, percent, quoted, visible, whole

WATCHED = "watch"
_AGAIN = "make a pass over the samples again"
_OPEN = "Audit.open(path, data=…, model=…)"
ANOTHER = "let audit.train() train the target of another run"  # instead of a Trainer
_POLL_SECONDS = 0.2
_FIRST = "targets/first"  # the target's logit gaps over the pool

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
    ) -> None:
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
        return read_names(self.run, self.manifest, labels)

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
        """Return why a watched run or a recording can't do some work; None for all others."""
        if self.manifest.get("kind") == WATCHED:
            lacks = "was recorded by mw.watch, which keeps no model and no weights"
        elif self.is_recording:
            lacks = "is a recorded audit, which holds numbers, but no model, weights or samples"
        else:
            return None
        return Absent(f"{self.path} {lacks}, so it cannot {work}", ANEW)

    @property
    def recorded_from(self) -> str:
        """Who trained the target, if that was not the audit: the settings are theirs."""
        if self.manifest.get("kind") == WATCHED:
            return "a loop by mw.watch"
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
        if why is None and not self.can_ask:
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
        # one half of the members, or other samples
        members, share = (
            len(self.design.members),
            0.5,
        )
        if self.references.plan.per_round == 1:
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
        """Return what is there, the same object as long as the files stay as they are.

        Parameters
        ----------
        key : str, optional
            Set of shadow models. Default: that which the truth comes from.
        """
        shadows = self._set(key)
        question, take = ("evidence", shadows.key), partial(self._evidence, shadows)
        return self._cache.of(question, self._state(shadows), take)

    def _state(self, shadows: ShadowSet) -> tuple[Any, ...]:
        """A value that changes with any file that evidence comes from, but for scores."""
        run, names = self.run, self.run.names("checkpoints", "")
        passes = [
            f"{place}/{name}"
            for place in ("forward", _FIRST)
            for name in run.names(place)
        ]
        notes = RHO, COURSE, REPEATS, "shadows.json", *map(record_file, names)
        of_names = [
            place(name)
            for place in (outputs_of, held_out_of, draws_of)
            for name in names
        ]
        files = [(place, run.state(place)) for place in (*of_names, *passes)]
        models = shadows.state(), self.references.files.state()
        return *files, *((note, run.state(note, "")) for note in notes), models

    def _set(self, key: str | None = None) -> ShadowSet:
        why = self.cannot("train shadow models")
        if why is None and self.design.all_members:
            why = Absent(NOTHING_LEFT_OUT)
        chosen = key or self._key or chosen_key(self.run)
        return ShadowSet(self.run, chosen, self.config, self.precision, none=why)

    def _evidence(self, shadows: ShadowSet) -> Evidence:
        names = self.names
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
        found = shadows.key, shadows.read, tuple(shadows.indices()), shadows.checkpoints

        def scores_of(record: Record, _layer: str) -> ScorePlace:
            return ScorePlace(self.run, f"scores/{record.name}", record.weights)

        undrawn, of_draws = self._undrawn(names)
        recorded_from = self.recorded_from
        unknown = Absent(
            f"{self.path} was recorded from {recorded_from}, so the audit's own settings were not "
            "used",
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
                record.name: self._checkpoint(record) for record in names.found
            },
            shadows=Models(*found, shadows.state()),
            references=self.references.models(),
            scores=KeptScores(self._cache, scores_of),
            shadow=partial(self._shadow, shadows),
            general_notes=(*of_draws, *notes, *shadows.lost()),
            repeated=repeated,
            undrawn=np.zeros(0, np.int64) if undrawn is None else undrawn,
            sees_draws=undrawn is not None or not recorded_from,
            origins=self._origins(),
            training=unknown.refuse if recorded_from else lambda: self.training,
            makes=frozenset(("pass", "losses", "pool") if self.can_ask else ()),
            device=lambda: self.device,
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

    def _checkpoint(self, record: Record) -> Checkpoint:
        """Return what is there of a checkpoint."""
        name, of, run = record.name, record.weights, self.run

        def arrays(place: str, why_not: Callable[[str], Absent]) -> Arrays:
            opened = (
                partial(run.read_tensors, place, of) if run.has(place, of) else None
            )
            return Arrays(opened, why_not)

        def no_losses(_: str) -> Absent:
            why = run.why_not(outputs_of(name), of) or "the losses were not kept"
            with_both = f"with the model and the data of {self.path}"
            return Absent(why, f"a pass over the members makes them, {with_both}")

        return Checkpoint(
            record,
            arrays(forward_of(name), partial(self._not_kept, record)),
            arrays(outputs_of(name), no_losses),
            find_pool=lambda: self._kept_first(record),
            state=(name, run.state(forward_of(name)), run.state(outputs_of(name))),
        )

    def _not_kept(self, record: Record, name: str) -> Absent:
        """Return why a forward pass is not there, or lacks an array."""
        place, of = forward_of(record.name), record.weights
        if not self.run.has(place, of):
            if wrong := self.run.why_not(place, of):
                return Absent(wrong)
            if self.can_ask:
                return Absent("nothing was scored yet", "call score() there first")
            needs = f"a forward pass needs the model and the data of {self.path}"
            return self.cannot(_AGAIN) or Absent(needs, _OPEN)
        if not name.startswith(LAYER):
            do = "the prediction checkpoint and the last one have them"
            return Absent(f"the recording has no {name}", do)
        if said := left_out(self.run):
            return Absent(f"{self.path} {said}", KEEP_ALL)
        made = self.run.read_tensors(place, of)
        kept = [one.removeprefix(LAYER) for one in made if one.startswith(LAYER)]
        layer = visible(name.removeprefix(LAYER), 40)
        do = "MemorizationCallback(layers=…) says which layers are kept"
        return Absent(
            f"hidden states of {listed(kept) or 'no layer'} are there, and those of layer {layer} "
            "were not kept",
            do if self.cannot(_AGAIN) is None else "",
        )

    def _kept_first(self, record: Record) -> NDArray[np.float32] | None:
        """The target's gaps over the pool, if those on disk are of the weights that it has now."""
        name, of = (
            f"{_FIRST}/{record.name}",
            None if self.is_recording else record.weights,
        )
        return (
            np.array(self.run.read_tensors(name, of)["gap"])
            if self.run.has(name, of)
            else None
        )

    def _shadow(self, shadows: ShadowSet, index: int) -> OneModel:
        """Return a shadow model, with the scores of this very model as the target."""
        shadows.check(index)
        file, folder = shadows.file(index), folder_of(shadows.key, index)
        # as in a recording
        model = digest([file.metadata, array_digest(file["members"])])
        state = shadows.state_of(index)
        cache = self._cache.of(("target", shadows.key, index), state, Cache)

        def files(record: Record, _layer: str) -> ScorePlace:
            return ScorePlace(self.run, f"{folder}/scores/{model}/{record.name}", model)

        scores = KeptScores(cache, files)
        return OneModel(file, file.metadata.get("forward"), state, scores, cache)

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
            if self._kept_first(record) is None:
                name = f"{_FIRST}/{record.name}"
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
        can = self.cannot("") is None and not self.recorded_from and self.can_ask
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

    def target(self) -> TargetTraining:
        """Return what trains the target and looks at it.

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
        target = self.target()
        target.check(max(steps, key=steps.__getitem__))
        forward = None
        if keep is not False:
            layers = self.names.some_layers("last" if keep is True else keep)
            forward = KeptForward(self.names.prediction().record.name, tuple(layers))
        return ShadowJob(
            target.recipe,
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
    return Names(
        tuple(manifest["layers"]),
        tuple(records),
        Lookout(run, labels, read_stop(run, has_records=len(records) > 0)),
        settings.total_steps(n_members) if course is None else course.total_steps,
        "call train()"
        if course is None
        else "let the training go on that is recorded here",
    )


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
        self._of, self.plan = of, ReferenceDesign.of(of.design)
        self.config = digest([of.config, of.manifest.get("members")])
        own = of.run, self.plan.key, self.config, of.precision
        self.files = ShadowSet(
            *own, none=of.cannot("train reference models"), kind=REFERENCE
        )

    def models(self) -> Models:
        """Return them as evidence."""
        state = self.config, self.plan.key, self.files.state()
        return Models(
            self.plan.key,
            self.read,
            self.indices(),
            self.files.checkpoints,
            state=state,
        )

    def indices(self) -> tuple[int, ...]:
        """Return the numbers of those whose round is complete, which are asked of every member."""
        found, size = self.files.indices(), self.plan.per_round
        return tuple(
            i for i in found if all(i - i % size + j in found for j in range(size))
        )

    def read(self, checkpoint: str) -> Shadows:
        """Return masks and logit gaps over the pool, NaN where one was trained on a sample.

        Raises
        ------
        StoreError
            If there are none, or none at that checkpoint.
        """
        found, whole = self.files.read(checkpoint), self.indices()
        if not whole:
            alone = f"reference model {found.indices[0]} is there, and the one that trains on the"
            what = f"{alone} other half of the members is not"
            raise NotThereError(what, "call run_references(1) again")
        used = np.isin(found.indices, whole)
        return Shadows(found.members[used], found.gaps[used], found.indices[used])
