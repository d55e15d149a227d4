"""A user's training script as a function of its rows: it trains the target and all other models.

`Script.call` calls it, with a `ScriptWatch` through which it says which module it trains and counts
its steps. What is done at a step differs: `ScriptTraining` records the target's checkpoints, and
`Script.train_one` makes the passes that are asked of another model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import has_form, whole_number
from memowidgets.data import Dataset
from memowidgets.files import digest_of
from memowidgets.metrics import logit_gap
from memowidgets.models import Model
from memowidgets.models.base import unwrap
from memowidgets.models.device import is_there
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import (
    FIRST,
    Forward,
    Record,
    device_of,
    forward_of,
    in_memory,
    read_records,
)
from memowidgets.training.config import CheckpointPlan, RandomStates, derived_seed
from memowidgets.training.design import Design, ShadowDesign
from memowidgets.training.estimator import EstimatorScript
from memowidgets.training.function_passes import Answers, Source, asked_by
from memowidgets.training.learner import SAME, TARGET_STREAM, Visit
from memowidgets.training.lookout import StopRule, read_told
from memowidgets.training.origin import origin_of_script
from memowidgets.training.passes import (
    Looker,
    Pairs,
    check_module,
    looker_of,
    tensors_of,
)
from memowidgets.training.recorder import Recorder
from memowidgets.vocabulary import first_line, listed

if TYPE_CHECKING:
    from torch import nn

    from memowidgets.training.origin import Origin
    from memowidgets.training.trainer_callback import ScriptCallback, TrainerPasses

KNOWN = "script.json"
_CALLED = "watch.follow(module, steps_per_epoch=len(loader))"
_NOT_FOLLOWED = f"call {_CALLED} before the first watch.step()"


class _EnoughError(BaseException):
    """Ends a script that goes on after `ScriptWatch.step` said True."""


@dataclass(frozen=True)
class Known:
    """What is known of a script since it began to train the target.

    Attributes
    ----------
    model, parameters : str
        Class of the module, and a digest of the names and shapes of its weights.
    layers : list of str
        Names of its layers.
    device : str
        Where it trains.
    steps_per_epoch, steps : int
        Optimizer steps in an epoch, and in all. 0 steps in all: it has not come to its end yet.
    uses_rows : bool
        Whether it was seen that other rows lead to other weights.
    """

    model: str
    parameters: str
    layers: list[str]
    device: str
    steps_per_epoch: int
    steps: int = 0
    uses_rows: bool = False

    @classmethod
    def read(cls, run: RunDirectory) -> Known | None:
        """Return what is known in a run directory; None before the script has begun."""
        if not run.has_file(KNOWN):
            return None
        note = run.read_note(KNOWN)
        if note.keys() != _FORM.keys() or not has_form(note, _FORM):
            raise StoreError(
                f"{run.path / KNOWN} is broken: delete it, and train again"
            )
        return cls(**note)

    def write(self, run: RunDirectory) -> None:
        """Keep it in a run directory."""
        run.write_note(KNOWN, asdict(self))

    def check(self, here: Known) -> None:
        """Raise if a script trains another module than the target's.

        Raises
        ------
        StoreError
            The message names the difference.
        """
        for what, there, now in (
            ("a module of the class", self.model, here.model),
            ("weights of the names and shapes", self.parameters, here.parameters),
            ("the layers", listed(self.layers), listed(here.layers)),
        ):
            if there != now:
                raise StoreError(
                    f"the script trains {what} {now} here and {there} where the target was "
                    "trained; take the change back, or choose another path"
                )


_FORM: dict[str, Any] = {
    "model": str,
    "parameters": str,
    "layers": [str],
    "device": str,
    "steps_per_epoch": int,
    "steps": int,
    "uses_rows": lambda value: isinstance(value, bool),
}


@dataclass(frozen=True)
class Followed:
    """Module that a script trains, with passes over all samples of the run.

    Attributes
    ----------
    module : Module
        The module.
    looker : Looker, TrainerPasses or Answers
        The passes.
    data : Dataset
        The samples.
    steps_per_epoch : int
        Optimizer steps in an epoch.
    """

    module: nn.Module
    looker: Looker | TrainerPasses | Answers
    data: Dataset
    steps_per_epoch: int

    @property
    def known(self) -> Known:
        """What it tells of its script."""
        inner = unwrap(self.module)
        shapes = {name: list(one.shape) for name, one in tensors_of(inner).items()}
        return Known(
            type(inner).__name__,
            digest_of(json.dumps(shapes)),
            list(self.looker.layer_names),
            device_of(inner).type,
            self.steps_per_epoch,
        )

    @property
    def weights(self) -> str:
        """Digest of the weights."""
        return self.looker.weights(unwrap(self.module)).digest

    def look(self, rows: NDArray[np.int64], *, capture: bool = False) -> Forward:
        """Run the module over some samples, without or with its layers."""
        looker = self.looker.over(self.data.take(rows), capture=capture)
        return looker.look(unwrap(self.module), Progress(), in_memory)


class Visits:
    """What is done with a module while a script trains it."""

    def begin(self, seen: Followed) -> None:
        """Look at the module before its first step."""

    def at(self, step: int) -> bool:
        """Look at it after a step; return whether it has given all that was asked."""
        raise NotImplementedError

    def end(self, step: int) -> None:
        """Look at it when the script has returned."""

    def name_origin(self, origin: Origin) -> None:
        """Keep who runs the loop of the script, if that is to be reported."""


class ScriptWatch:
    """What a script calls while it trains; `Audit.from_script` passes it to ``fit``.

    Attributes
    ----------
    n_rows : int
        Number of samples to train on.
    steps, steps_per_epoch : int
        Optimizer steps so far, and in an epoch as they were given.
    model : str
        What the report calls a model that is no module, see `record`.
    """

    model = "a model of its owner"

    def __init__(self, script: Script, visits: Visits, n_rows: int) -> None:
        self._script = script
        self._visits = visits
        self.n_rows = n_rows
        self._make_passes: (
            Callable[[nn.Module], Looker | TrainerPasses | Answers] | None
        ) = None
        self.has_enough = False
        self.steps = 0
        self.steps_per_epoch = 0
        self._given: tuple[Source, Source | None] | None = None

    @cached_property
    def callback(self) -> ScriptCallback:
        """Callback for transformers' Trainer: ``Trainer(…, callbacks=[watch.callback])``."""
        from memowidgets.training.trainer_callback import ScriptCallback

        return ScriptCallback(self)

    def follow(
        self,
        module: nn.Module | Model,
        steps_per_epoch: int | None = None,
        forward: Callable[[Any, Any], Any] | None = None,
        layers: str | Sequence[str] = "auto",
        batch_size: int | None = None,
    ) -> None:
        """Say which module is trained, once, before its first step and on its device.

        Parameters
        ----------
        module : Module or Model
            The module. For a Trainer of transformers a model of the package, such as
            ``CausalLM.from_model(model, tokenizer)``, which says how samples are fed. The Trainer
            then tells its module and its steps to `callback`.
        steps_per_epoch, forward, layers, batch_size
            As in `mw.watch`. A model of the package needs no more than `layers`.

        Raises
        ------
        ValueError, TypeError
            As in `mw.watch`, or if it was called before.
        """
        if self._make_passes is not None:
            raise ValueError("a call of fit trains one module: call watch.follow once")
        data = self._script.data
        if isinstance(module, Model):
            from memowidgets.training.trainer_callback import adapter_passes

            model = module
            self._make_passes = lambda module: adapter_passes(
                model, module, data, layers
            )
            return
        steps = "steps_per_epoch, the number of optimizer steps in an epoch,"
        per_epoch = whole_number(steps, steps_per_epoch, 1)
        check_module(module)
        pairs = self._script.pairs
        given = data, pairs, forward, layers, batch_size
        self._make_passes = lambda module: looker_of(module, *given, named=True)[0]
        self.begin(module, per_epoch)

    def begin(self, module: nn.Module, steps_per_epoch: int) -> None:
        """Look at a module before its first step; `callback` calls this of a Trainer."""
        if self.steps_per_epoch:  # follow had the module itself
            return
        if self._make_passes is None:
            raise ValueError(_NOT_FOLLOWED)
        passes = self._make_passes(unwrap(module))
        self.steps_per_epoch = steps_per_epoch
        self._visits.begin(Followed(module, passes, self._script.data, steps_per_epoch))

    def step(self) -> bool:
        """Count an optimizer step.

        Returns
        -------
        bool
            True where the script is to return: where to look, or where this model has given what
            was asked of it. A script that goes on is ended at its next step.
        """
        if self.has_enough:
            raise _EnoughError
        if not self.steps_per_epoch:
            raise ValueError(_NOT_FOLLOWED)
        self.steps += 1
        self.has_enough = self._visits.at(self.steps)
        return self.has_enough

    def record(
        self,
        step: int,
        logits: Source,
        representations: Source | None = None,
        *,
        steps_per_epoch: int = 1,
    ) -> bool:
        """Give what a model answers after a step, in place of `follow` and `step`.

        This is for a model that is no module of torch, such as one of JAX. Call it before the first
        step, with ``step=0``, and then as often as the model may be looked at. Where `fit` returns,
        the model is the one that was recorded last.

        Parameters
        ----------
        step : int
            Steps so far.
        logits : array_like of shape (n_samples, n_classes), or callable
            Of all samples of the data in their order, not of `rows` alone. A function of positions,
            (n,), returns those of some samples, (n, n_classes), and is only called where the model
            is looked at: a shadow model's once or twice.
        representations : array_like of shape (n_samples, values), dict or callable, optional
            Representations, or ``{layer: array}``, or a function of positions that returns one of
            these. Default: the logits.
        steps_per_epoch : int
            Steps in an epoch of this model. Default: a step is an epoch.

        Returns
        -------
        bool
            True where the script is to return, as `step` says it.

        Raises
        ------
        ValueError
            If step 0 is missing, steps do not rise, or the arrays do not fit the samples.
        """
        if self.has_enough:
            raise _EnoughError
        step = whole_number("step", step)
        is_first = self._make_passes is None
        if self._given is None and not is_first:
            raise ValueError("call watch.record or watch.follow, not both")
        if is_first != (step == 0) or (step and step <= self.steps):
            before = "first" if is_first else f"after step {self.steps}"
            raise ValueError(
                f"watch.record was called {before} with step {step}; call it with step 0 before "
                "the training, and later with more steps each time"
            )
        self._given = logits, representations
        if is_first:
            per_epoch = whole_number("steps_per_epoch", steps_per_epoch, 1)
            self._begin_recording(per_epoch)
            return False
        self.steps = step
        self.has_enough = self._visits.at(step)
        return self.has_enough

    def _begin_recording(self, steps_per_epoch: int) -> None:
        """Look at what was recorded as step 0."""
        from torch import nn

        data = self._script.data
        rows = self._script.rows.tolist()
        places = dict(zip(data.ids.tolist(), rows, strict=True))
        answers = Answers(self._answer, places, data)
        self._make_passes = lambda _: answers
        named: Any = type(self.model, (nn.Module,), {})
        self.begin(named(), steps_per_epoch)

    def _answer(self, rows: NDArray[np.int64]) -> tuple[Any, Any]:
        """Return what was recorded last of some samples."""
        assert self._given is not None  # noqa: S101 - for the type checker
        logits, representations = self._given
        of_rows = asked_by(logits, rows, "logits")
        if representations is None:
            return of_rows, None
        return of_rows, asked_by(representations, rows, "representations")

    # what callbacks of Trainers call

    def end(self) -> None:
        """Do nothing: the training ends where fit returns."""

    def continue_at(self, steps_done: int) -> None:
        """Raise, because a script begins at step 0.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            f"the training goes on at step {steps_done}; fit must begin at step 0"
        )

    def name_origin(self, origin: Origin) -> None:
        """Keep who runs the loop, which the report states."""
        self._visits.name_origin(origin)

    def count_draws(self, loader: Any) -> None:
        """Do nothing: the script trains on the rows that it is given."""


@dataclass(frozen=True)
class Script:
    """A user's training script, as a function of the rows that it trains on.

    Attributes
    ----------
    fit : callable
        Function of rows, `ScriptWatch` and seed.
    data : Dataset
        All samples of the run.
    pairs : Pairs or None
        How they become batches, if they are a user's own.
    rows : array of shape (n,), int64
        Place of each sample in the data that `fit` knows.
    known : Known or None
        What is known of it since it trained the target.
    device : str
        Where it trains.
    anywhere : bool
        Whether another machine may choose another device: the script does that itself.
    """

    fit: Callable[[NDArray[np.int64], ScriptWatch, int], Any]
    data: Dataset
    pairs: Pairs | None
    rows: NDArray[np.int64]
    known: Known | None = None
    device: str = "cpu"
    anywhere: bool = False

    def in_worker(self) -> Script:
        """Return the script as a worker keeps it."""
        return self

    def call(self, members: NDArray[np.int64], seed: int, visits: Visits) -> None:
        """Call the function on some samples, with all generators seeded, which are restored.

        Raises
        ------
        ValueError
            If it does not say which module it trains, or counts no step.
        """
        import torch

        watch = ScriptWatch(self, visits, len(members))
        # a script may train on a GPU where there is one, and on the CPU of another machine
        device = self.device if is_there(self.device) else "cpu"
        with RandomStates(seed, torch.device(device)).active():
            torch.manual_seed(seed)  # of other GPUs too
            try:
                self.fit(self.rows[members], watch, seed)
            except _EnoughError:
                return
        if watch.has_enough:
            return
        if not watch.steps:
            raise ValueError(
                f"fit returned without a call of watch.step(); call {_CALLED} before the loop, and "
                "watch.step() after each optimizer step, or watch.record(step, logits)"
            )
        visits.end(watch.steps)

    def train_one(
        self,
        members: NDArray[np.int64],
        seed: int,
        steps: Mapping[str, int],
        n_target: int,  # noqa: ARG002 - the script says how long an epoch is
        visit: Visit,
        progress: Progress,
        what: str,
    ) -> str:
        """Train one model as `Recipe.train_one` does, and look at it at the steps of its own.

        Raises
        ------
        StoreError
            If it trains another module than the target's, or fails where there is no device of the
            kind that the target was trained on.
        ValueError
            If it ends before it has come to a checkpoint.
        """
        assert self.known is not None  # noqa: S101 - for the type checker
        visits = _ShadowVisits(self.known, steps, visit, progress, what)
        try:
            self.call(members, seed, visits)
        except Exception as error:
            device = self.known.device
            if is_there(device):
                raise
            raise StoreError(
                f"the script trained the target on {device}, and it fails without such a device "
                f"({first_line(error)}); take workers that have one, or let fit choose the CPU"
            ) from error
        return visits.precision


class _ShadowVisits(Visits):
    """Passes over a shadow or reference model at the steps that are asked for, and no others."""

    def __init__(
        self,
        known: Known,
        steps: Mapping[str, int],
        visit: Visit,
        progress: Progress,
        what: str,
    ) -> None:
        self._known = known
        self._asked = steps
        self._visit = visit
        self._progress = progress
        self._what = what
        self._left: list[tuple[int, str]] = []
        last = known.steps or None  # the target may not have come to its end yet
        self._at_end = [name for name, step in steps.items() if step == last]
        self.precision = ""

    def begin(self, seen: Followed) -> None:
        """Plan the steps, and look at step 0 if that is asked for."""
        self._known.check(seen.known)
        self._seen = seen
        share = seen.steps_per_epoch / self._known.steps_per_epoch
        for name, step in self._asked.items():
            if name not in self._at_end:
                self._left.append((max(round(step * share), min(step, 1)), name))
        self._left.sort()
        self.at(0)

    def at(self, step: int) -> bool:
        """Look at the checkpoints of this step; return whether it was the last one."""
        self._progress.report(step, max(step, self._known.steps), self._what)
        while self._left and self._left[0][0] <= step:
            wanted, name = self._left.pop(0)
            if wanted < step:
                raise ValueError(
                    f"fit recorded no step {wanted}, at which this model is compared with the "
                    f"target's {name}; call watch.record at the same steps for each model"
                )
            self._look(name)
        return not self._left and not self._at_end

    def end(self, step: int) -> None:
        """Look at the end, if that is asked for."""
        if self._left:
            wanted, name = self._left[0]
            raise ValueError(
                f"fit returned after {step} steps, before {name}, which is step {wanted} of this "
                "model; let it train as long as it trained the target"
            )
        for name in self._at_end:
            self._look(name)

    def _look(self, name: str) -> None:
        def look(rows: NDArray[np.int64], *, capture: bool = False) -> Forward:
            found = self._seen.look(rows, capture=capture)
            self.precision = found.precision
            return found

        self._visit(name, look)


class ScriptTraining:
    """Training of the target by a script, with its checkpoints.

    Parameters
    ----------
    run : RunDirectory
        Run directory for the checkpoints.
    script : Script
        The script.
    design : Design
        Split with the members.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    seed : int
        The audit's seed.
    every : float
        Epochs between two checkpoints.
    """

    def __init__(
        self,
        run: RunDirectory,
        script: Script,
        design: Design,
        held_out: Dataset | None,
        seed: int,
        every: float,
    ) -> None:
        known = Known.read(run)
        device = script.device
        if known is not None and is_there(known.device):
            device = known.device
        self.recipe = replace(script, known=known, device=device)
        self._run = run
        self._design = design
        self._held_out = held_out
        self._audit_seed = seed
        self._seed = derived_seed(seed, TARGET_STREAM)
        self._every = every

    def train(self, stop: StopRule | None, progress: Progress) -> None:
        """Call the script on the members, unless it has come to its end, or to the place to look.

        Raises
        ------
        StoreError
            If another process does the same, or a recorded checkpoint has other losses now.
        """
        known = self.recipe.known
        is_told = stop is not None and read_told(self._run) is not None
        if is_told or (known is not None and known.steps):
            return
        with self._run.lock("script"):
            plan = CheckpointPlan(1, self._every)
            visits = _TargetVisits(
                self._run, self._design, self._held_out, plan, stop, progress
            )
            self.recipe.call(self._design.members, self._seed, visits)

    def check(self, _name: str) -> None:
        """Raise if the script ignores its rows; it is called once more for that, for a few steps.

        Shadow models cannot tell, because each has a seed of its own: their weights differ, whether
        their rows do or not.

        Raises
        ------
        ValueError
            If other rows and the same seed lead to the same weights.
        """
        known = self.recipe.known
        is_own = isinstance(self.recipe.fit, EstimatorScript)
        if known is None or known.uses_rows or is_own:
            return
        records = read_records(self._run)
        moved = [one for one in records if _trained(one) != _trained(records[0])]
        if not moved:
            return  # nothing was trained, which the recording says
        half = ShadowDesign().members(self._design, self._audit_seed, 0)
        visits = _RowsVisits(known, moved[0])
        self.recipe.call(self._design.pool[half], self._seed, visits)
        replace(known, uses_rows=True).write(self._run)


def _trained(record: Record) -> str:
    """Return the digest of the trained weights of a checkpoint."""
    return record.weights.partition("-")[0]


class _RowsVisits(Visits):
    """A look at the first checkpoint whose weights have moved, on other rows than the target's."""

    def __init__(self, known: Known, record: Record) -> None:
        self._known = known
        self._record = record

    def begin(self, seen: Followed) -> None:
        """Check that the module is the target's."""
        self._known.check(seen.known)
        self._seen = seen

    def at(self, step: int) -> bool:
        """Return whether the checkpoint is reached; raise if its weights are the target's."""
        if step < self._record.step:
            return False
        if self._seen.weights == self._record.weights:
            raise ValueError(
                f"fit has the same weights at step {step} for two different sets of rows: it does "
                "not train on the rows that it is given, such as Subset(train_set, rows)"
            )
        return True


class _TargetVisits(Visits):
    """Checkpoints of the target, each with a pass over the members and the rest of the pool."""

    def __init__(
        self,
        run: RunDirectory,
        design: Design,
        held_out: Dataset | None,
        plan: CheckpointPlan,
        stop: StopRule | None,
        progress: Progress,
    ) -> None:
        self._run = run
        self._design = design
        self._held_out = held_out
        self._plan = plan
        self._stop = stop
        self._progress = progress
        self._records = read_records(run)
        self._last = 0
        self._since = time.monotonic()

    def begin(self, seen: Followed) -> None:
        """Check that the module is the one before, if there was one, and record step 0."""
        known = Known.read(self._run)
        if known is None:
            seen.known.write(self._run)
        else:
            self._check_known(known, seen)
        looker = seen.looker.over(seen.data.take(self._design.members))
        if self._held_out is not None and len(self._held_out):
            looker = looker.beside(self._held_out)
        self._seen = seen
        self._plan = CheckpointPlan(seen.steps_per_epoch, self._plan.every)
        self._recorder = Recorder(self._run, looker, self._plan, stop=self._stop)
        self._recorder.name_origin(origin_of_script(unwrap(seen.module)))
        self._recorder.follow(seen.module, seen.steps_per_epoch)
        if not self._records:
            self._recorder.start(seen.module, 0)
        self._record(0)

    def _check_known(self, known: Known, seen: Followed) -> None:
        known.check(seen.known)
        if known.steps_per_epoch != seen.steps_per_epoch:
            raise StoreError(
                f"the script has {seen.steps_per_epoch} steps an epoch here and "
                f"{known.steps_per_epoch} in what {self._run.path} has of it; take the change "
                "back, or choose another path"
            )

    def name_origin(self, origin: Origin) -> None:
        """Keep who runs the loop with the next checkpoint."""
        self._recorder.name_origin(origin)

    def at(self, step: int) -> bool:
        """Record the step if a checkpoint is due; return whether it is told where to look."""
        per_epoch = self._plan.steps_per_epoch
        epoch = (step - 1) // per_epoch
        what = f"training the target, epoch {epoch + 1}"
        self._progress.report(step - epoch * per_epoch, per_epoch, what)
        is_known = any(record.step == step for record in self._records)
        stride = self._plan.every * per_epoch
        # of a script that records some steps, none may be one at which a checkpoint is due
        is_far = step - self._last >= stride
        if self._plan.epoch_at(step) is None and not is_far and not is_known:
            return False
        self._record(step)
        return self._recorder.told(step) is not None

    def end(self, step: int) -> None:
        """Record the end, with the weights that the module has when the script returns."""
        self._record(step)
        self._recorder.finish()
        known = Known.read(self._run)
        if known is not None:
            replace(known, steps=step).write(self._run)

    def _record(self, step: int) -> None:
        """Record a checkpoint, or compare it with what was recorded at an earlier call."""
        seconds = time.monotonic() - self._since
        self._last = step
        before = next((one for one in self._records if one.step == step), None)
        if before is None:
            made = self._recorder.record(self._seen.module, step, seconds=seconds)
        else:
            self._check_repeats(before)
            made = before
            self._recorder.pass_by(before)
        self._keep_others(made)
        self._since = time.monotonic()

    def _check_repeats(self, before: Record) -> None:
        """Raise if the members have other losses than at an earlier call of the script."""
        if self._seen.weights == before.weights:
            return
        file = self._run.read_tensors(forward_of(before.name), before.weights)
        there = np.array(file["losses"], np.float64)
        here = self._seen.look(self._design.members).losses.astype(np.float64)
        apart = np.abs(here - there)
        if (apart / np.maximum(1.0, np.abs(there))).max() > SAME:
            raise StoreError(
                f"at {before.name} of {self._run.path} the losses of members differ by up to "
                f"{apart.max():.2g} nats from those that an earlier call of the script left: it "
                "was changed, or draws from a generator that it does not seed (a Trainer needs "
                "seed=seed). Take the change back, or choose another path"
            )

    def _keep_others(self, record: Record) -> None:
        """Keep the logit gaps of the whole pool, for when the target is one model of many."""
        place = f"{FIRST}/{record.name}"
        if self._run.has(place, record.weights):
            return
        pool = self._design.pool
        is_member = np.isin(pool, self._design.members)
        gaps = np.empty(len(pool), np.float32)
        file = self._run.read_tensors(forward_of(record.name), record.weights)
        labels = self._seen.data.labels
        gaps[is_member] = logit_gap(file["logits"], labels[self._design.members])
        others = pool[~is_member]
        if len(others):
            gaps[~is_member] = logit_gap(self._seen.look(others).logits, labels[others])
        self._run.write_tensors(place, {"gap": gaps}, of=record.weights)
