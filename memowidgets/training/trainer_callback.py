"""Callback for transformers' Trainer (and TRL's) that adds an audit to an existing script.

Below it are the passes over the module in training. `trainer_rows` has the check that the Trainer's
rows are the audit's members.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import TrainerCallback

from memowidgets.checks import several, warn_user
from memowidgets.data import Dataset
from memowidgets.files import digest_of_arrays
from memowidgets.models import CausalLM, Model, SequenceClassifier
from memowidgets.models.base import unwrap
from memowidgets.models.device import used_precision, working_on
from memowidgets.models.heads import plain
from memowidgets.models.lora import (
    adapter_config,
    adapter_weights,
    check_adapters,
    whole_adapter,
)
from memowidgets.models.transformer import TransformerModel
from memowidgets.progress import Progress
from memowidgets.training.checkpoint import (
    LAYER,
    REPEATS,
    Allocate,
    Forward,
    Record,
    Shapes,
    arrays_of,
    device_of,
    forward,
    read_records,
)
from memowidgets.training.config import Settings, restore_in_main_thread
from memowidgets.training.draws import Draws
from memowidgets.training.learner import ModelPasses, Recipe
from memowidgets.training.origin import calling_trainer, origin_of_trainer
from memowidgets.training.recorder import (
    Recorder,
    Weights,
    in_the_first_process,
    trained_weights,
)
from memowidgets.training.trainer_rows import (
    check_rows,
    count_rows,
    held_out_rows,
)

if TYPE_CHECKING:
    from torch import nn

    from memowidgets.training.script import ScriptWatch


class Recordable(Protocol):
    """What the callback asks of an audit."""

    def recorder(
        self,
        stop_at_drop: float | None,
        layers: str | int | Iterable[str | int],
        over_last: int,
        checkpoint_every: float | None,
        keep: str,
    ) -> Recorder[TrainerPasses]:
        """Return what records the training of a module like the audit's."""


class MemorizationCallback(TrainerCallback):
    r"""Callback that records a Trainer's checkpoints into an audit, and interrupts it to look.

    Checkpoints are step 0, every ``checkpoint_every`` epochs of the audit's `TrainingConfig`, and
    the end. Batch size, learning rate and all else are the Trainer's. The model, its mode and all
    random states stay unchanged: a run with the callback ends with the same weights as a run
    without it.

    Parameters
    ----------
    audit : Audit
        Audit of the samples that the Trainer trains on, and of ``CausalLM.from_model(model,
        tokenizer)`` (their ``template`` must be the Trainer's prompt), or of a classifier, such as
        ``SequenceClassifier.from_model(model, tokenizer)``. Usually ``members="all"``.
    stop_at_drop : float or None
        ρ: interrupt where to look, see `Audit.train`: at the first checkpoint where the median
        loss of the members has dropped by this share (paper, Section 4.3), or, if it comes before,
        where held-out loss has turned for long, or where the drop has levelled off. The Trainer's
        state is saved there, unless its ``save_strategy`` is ``"no"``. None records without
        interrupting.
    layers : "last", "all", one, or several
        Layers whose hidden states are stored for scores. Each takes 4 bytes per member and value of
        the hidden state, at every checkpoint.
    over_last : int
        Number of evaluations after step 0 in the running median of the loss. Use 3 or so when the
        loss is noisy.
    checkpoint_every : float, optional
        Epochs between two checkpoints, as in `mw.watch`. Default: the audit's `TrainingConfig`'s.
    keep : {"all", "prediction+final"}
        Where weights and hidden states are kept: at every checkpoint, or at the prediction
        checkpoint and the last one. Losses and logits are kept at every checkpoint.

    Attributes
    ----------
    interrupted : Record or None
        Checkpoint at which the training was interrupted.

    Raises
    ------
    TypeError
        If the audit is not of a model of transformers.
    ValueError
        If `stop_at_drop` is not a share, a layer is unknown, or the audit's model adds its own
        adapters. When training begins: if the Trainer's rows, labels, model or course are not the
        audit's, or held-out samples are among the rows. If tokens differ, the message has both
        encodings.

    Warns
    -----
    UserWarning
        About what could not be checked, and if nothing has settled or ρ was crossed by a jump.

    Notes
    -----
    ``trainer.train(resume_from_checkpoint=True)`` continues after the interruption, and so does the
    recording. If several data-parallel processes train, the first one writes. Weights that are
    spread over processes (FSDP, DeepSpeed's stage 3) are an error.

    Recorded losses are the cross-entropy of the labels. The Trainer's own loss is trained as it is:
    class weights, label smoothing or a ``compute_loss`` of its own are neither changed nor checked.
    With label smoothing or mixup, recorded losses stay above 0, and the drop levels off before ρ.

    Where the audit has no held-out samples, the rows of the Trainer's ``eval_dataset`` are taken if
    they are texts or prompts of the audit's task and not trained on.

    How often the Trainer draws each member is counted, whatever its sampler. From the end of the
    first epoch on, and after as many draws as there are rows, a member that was not drawn has no
    score, and a note says how many there are. Before, this holds only for classes of which none was
    drawn where ordinary shuffling would have drawn twenty or more.

    Examples
    --------
    ::

        data = mw.data.MCQDataset.from_records(rows, template="{question}\n{options}\nAnswer:")
        model = mw.models.CausalLM.from_model(hf_model, tokenizer)
        audit = mw.Audit(model, data, path="runs/mine", members="all", held_out=None)
        trainer = Trainer(..., callbacks=[mw.training.MemorizationCallback(audit)])
        trainer.train()
        audit.dashboard()
    """

    def __init__(
        self,
        audit: Recordable,
        stop_at_drop: float | None = 0.95,
        layers: str | int | Iterable[str | int] = "last",
        over_last: int = 1,
        *,
        checkpoint_every: float | None = None,
        keep: str = "all",
    ) -> None:
        self._recorder = audit.recorder(
            stop_at_drop, layers, over_last, checkpoint_every, keep
        )
        self._resumed = False
        self._progress: Progress | None = None
        self.interrupted: Record | None = None

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Check that the audit belongs to this training, and record step 0."""
        self._resumed = state.global_step > 0
        self.interrupted = None
        self._progress = Progress() if args.disable_tqdm else None
        passes = self._recorder.passes
        loader = kwargs.get("train_dataloader")
        model = unwrap(kwargs["model"])
        steps = _steps_per_epoch(args, loader, len(passes.members))
        self._recorder.follow(model, steps, state.max_steps)
        if not state.is_world_process_zero:
            return
        with restore_in_main_thread(device_of(model)):
            rows = check_rows(loader, passes)
            if rows and not passes.held_out:
                self._take_evaluated(calling_trainer(args), loader, rows)
            passes.check(model)
            self._recorder.start(model, state.global_step)
            optimizer = kwargs.get("optimizer")
            self._recorder.name_origin(
                origin_of_trainer(args, model, optimizer, state.global_step)
            )
            if rows:
                self._count_draws(loader, rows, args, state.global_step)
            if self._recorder.is_due(state.global_step):
                self._recorder.record(model, state.global_step, self._progress)
            if rows:
                ids = passes.recipe.data.ids[passes.members]
                if repeated := count_rows(ids, rows):
                    self._recorder.run.write_note(REPEATS, {"rows": repeated})

    def _take_evaluated(self, trainer: Any, loader: Any, rows: list[list[int]]) -> None:
        """Take what the Trainer evaluates on for held-out samples, if it is of the audit's task."""
        passes = self._recorder.passes
        data = getattr(trainer, "eval_dataset", None)
        if data is None or isinstance(data, Mapping):  # or several sets
            return
        evaluated = trainer.get_eval_dataloader
        passes.held_out = held_out_rows(evaluated, loader, passes, rows)

    def _count_draws(
        self, loader: Any, rows: list[list[int]], args: Any, step: int
    ) -> None:
        """Count what the loader draws; resumed, it begins its epoch again and skips batches."""
        again = step
        if not args.ignore_data_skip:
            again -= step % self._recorder.steps_per_epoch
        per_step = args.gradient_accumulation_steps * args.world_size
        self._recorder.count(Draws(loader, rows), step, again, per_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record a checkpoint if one is due, and interrupt where to look."""
        step = state.global_step
        if self._recorder.is_due(step) and in_the_first_process(
            lambda: self._reaches(kwargs["model"], step), otherwise=False
        ):
            control.should_training_stop = True
            control.should_save |= str(getattr(args.save_strategy, "value", "")) != "no"

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record the end if it came unplanned, and warn of what is unusual about the place."""
        step = state.global_step
        if not state.is_world_process_zero or self.interrupted is not None:
            return
        if not args.load_best_model_at_end:  # else the model has other weights already
            self._recorder.record(kwargs["model"], step, self._progress)
        self._recorder.finish()
        chosen = self._recorder.prediction(step)
        for note in () if chosen is None else chosen.warnings:
            warn_user(note)

    def _reaches(self, model: nn.Module, step: int) -> bool:
        """Record a checkpoint, and return whether to interrupt here."""
        before = read_records(self._recorder.run) if self._resumed else []
        record = self._recorder.record(model, step, self._progress)
        chosen = self._recorder.told(step)
        if chosen is None or chosen.until != record:
            return False
        # it was interrupted here already
        if any(known.step == step for known in before):
            return False
        from tqdm.auto import tqdm

        self.interrupted = record
        for note in chosen.warnings:
            if note.key != chosen.why:  # which is said below
                warn_user(note)
        tqdm.write(
            f"memowidgets: interrupted at {record.name} (step {step}) to look at "
            f"{chosen.record.name}: {chosen.reason}. "
            "trainer.train(resume_from_checkpoint=True) continues"
        )
        return True


def _steps_per_epoch(args: Any, loader: Any, n_rows: int) -> int:
    """Return the optimizer steps of a Trainer in an epoch; `n_rows` counts for streamed data."""
    try:
        batches = len(loader)
    except TypeError:
        batches = math.ceil(n_rows / (args.train_batch_size * args.world_size))
    steps: int = math.ceil(batches / args.gradient_accumulation_steps)
    return max(1, steps)


class ScriptCallback(TrainerCallback):
    """Callback that counts the optimizer steps of a Trainer for the script that runs it.

    It is the ``watch.callback`` of `Audit.from_script`, where ``watch.follow`` was given the
    audit's model that feeds samples to the Trainer's.

    Parameters
    ----------
    watch : ScriptWatch
        What the script was given.
    """

    def __init__(self, watch: ScriptWatch) -> None:
        self._watch = watch

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Look at the model before its first step."""
        if state.global_step:
            self._watch.continue_at(state.global_step)
        loader = kwargs.get("train_dataloader")
        n_rows = self._watch.n_rows
        self._watch.begin(kwargs["model"], _steps_per_epoch(args, loader, n_rows))
        optimizer = kwargs.get("optimizer")
        model = unwrap(kwargs["model"])
        self._watch.name_origin(origin_of_trainer(args, model, optimizer, 0))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Count a step, and stop the Trainer where this model has given what was asked."""
        if self._watch.step():
            control.should_training_stop = True


def adapter_passes(
    model: Model, module: nn.Module, data: Dataset, layers: str | Sequence[str]
) -> TrainerPasses:
    """Return passes over samples as a model of the package feeds them to a module in training."""
    model.check_data(data)
    names = model.layer_names(module)
    kept = names[-1:] if layers == "auto" else several("layers", layers)
    recipe = Recipe(model, data, Settings(), str(device_of(module)))
    passes = TrainerPasses(recipe, np.arange(len(data)), None, names, kept)
    passes.check(module)
    return passes


class TrainerPasses(ModelPasses):
    """Passes as an audit's model makes them, over another module of its kind.

    Parameters
    ----------
    recipe : Recipe
        Recipe of the audit, whose model feeds samples to the module.
    members : array of shape (n_members,), int64
        Positions of the members in the recipe's data.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    layers : sequence of str
        Names of the audit's layers.
    kept : collection of str
        Layers whose hidden states are stored.

    Raises
    ------
    TypeError
        If the audit's model is not a `CausalLM` or a classifier of transformers.
    ValueError
        If it has its own adapters, or the audit flips labels.
    """

    def __init__(
        self,
        recipe: Recipe,
        members: NDArray[np.int64],
        held_out: Dataset | None,
        layers: Sequence[str],
        kept: Collection[str],
    ) -> None:
        model = recipe.model
        if not isinstance(model, TransformerModel):
            raise TypeError(
                "an audit of a CausalLM or a classifier of transformers can record a Trainer, not "
                f"one of {type(model).__name__}"
            )
        if model.settings().get("lora") is not None:
            raise ValueError(
                "the audit's model adds its own adapters, which are not those in training; create "
                f"it with {type(model).__name__}.from_model(model, tokenizer), without lora"
            )
        if recipe.settings.label_noise:
            raise ValueError(
                "label_noise changes only the audit's own training; leave it out"
            )
        super().__init__(recipe, members, held_out)
        self.layer_names = tuple(name for name in layers if name in kept)
        self._layers = tuple(layers)

    def over(self, data: Dataset, *, capture: bool = True) -> TrainerPasses:
        """Return passes over other samples of the same kind, without or with layers."""
        recipe = replace(self.recipe, data=data)
        kept = self.layer_names if capture else ()
        return TrainerPasses(recipe, np.arange(len(data)), None, self._layers, kept)

    def beside(self, held_out: Dataset) -> TrainerPasses:
        """Return these passes with others over held-out samples."""
        parts = self._layers, self.layer_names
        return TrainerPasses(self.recipe, self.members, held_out, *parts)

    def check(self, module: nn.Module) -> None:
        """Raise for a module that is not the audit's.

        Raises
        ------
        ValueError
            If its classes, its padding or its number of blocks are others, or its adapter adds
            tokens.
        """
        model = self.recipe.model
        check_adapters(module)
        if not isinstance(model, CausalLM):
            config: Any = plain(module).config
            width = int(config.num_labels)
            n = len(self.recipe.data.class_names)
            if width != n:
                raise ValueError(
                    f"the model in training has {width} logits for {n} classes"
                )
        if isinstance(model, CausalLM | SequenceClassifier):
            model.check_padding(module)
        found = model.layer_names(module)
        if found != self._layers:
            raise ValueError(
                f"the model in training has {len(found)} blocks, the audit's {len(self._layers)}; "
                f"pass the trained model to {type(model).__name__}.from_model"
            )

    def look(
        self, module: nn.Module, progress: Progress, allocate: Allocate
    ) -> Forward:
        """Run the module over the members, and keep the layers that are stored."""
        unkept = {LAYER + name for name in {*self._layers} - {*self.layer_names}}
        with used_precision(module) as used:

            def stored(shapes: Shapes, _: str) -> Mapping[str, NDArray[np.float32]]:
                lasting = {
                    name: shape for name, shape in shapes.items() if name not in unkept
                }
                return allocate(lasting, used())

            where = self.recipe.data, self.members
            seen = self.ask(
                module, *where, capture=True, progress=progress, allocate=stored
            )
            # in the Trainer's own autocast
            return replace(seen, precision=used(), made_by="")

    def weights(self, module: nn.Module) -> Weights:
        """Return the trained weights and lasting buffers, or an adapter as peft saves it.

        It is an adapter if that has all that is trained.
        """
        adapter = whole_adapter(module)
        if adapter is not None:
            arrays = arrays_of(adapter_weights(module, adapter))
            notes = adapter_config(module, adapter)
            return Weights(digest_of_arrays(arrays), arrays, "adapter_model", notes)
        lasting = module.state_dict().keys()
        # as running means
        buffers = {n: b for n, b in module.named_buffers() if n in lasting}
        arrays = arrays_of(trained_weights(module) | buffers)
        return Weights(digest_of_arrays(arrays), arrays, "weights")

    def ask(
        self,
        module: nn.Module,
        data: Dataset,
        positions: NDArray[np.int64],
        **options: Any,
    ) -> Forward:
        """Run the module over any samples, in the precision of its training."""
        device = device_of(module)
        with working_on(device):
            return forward(
                self.recipe.model,
                module,
                data,
                positions,
                device,
                "float32",  # the module's forward already has the training's autocast
                **options,
            )
