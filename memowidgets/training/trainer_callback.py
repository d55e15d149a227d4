"""Callback for transformers' Trainer (and TRL's) that adds an audit to an existing script."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from transformers import TrainerCallback

from memowidgets.models import CausalLM
from memowidgets.progress import Progress
from memowidgets.training.recorder import Recorder, check_whole
from memowidgets.training.rho import Record, StopRule
from memowidgets.training.seeds import preserved
from memowidgets.training.trainer_classes import (
    ClassMember,
    check_classes,
    content_of,
    held_out_class_rows,
    read_class_rows,
)
from memowidgets.training.trainer_rows import (
    Member,
    Unreadable,
    check_encodings,
    held_out_rows,
    read_rows,
)
from memowidgets.visible import quoted

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from memowidgets.data import Dataset


class _Audited(Protocol):
    def recorder(
        self, stop_at_drop: float | None, layers: str | int | Iterable[str | int], over_last: int
    ) -> Recorder: ...


class MemorizationCallback(TrainerCallback):
    r"""Callback that records a Trainer's checkpoints into an audit, and interrupts it at ρ.

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
        ρ: interrupt at the first checkpoint where the median loss of the members has dropped by
        this share (paper, Section 4.3), and save the Trainer's state there, unless its
        ``save_strategy`` is ``"no"``. None records without interrupting.
    layers : "all", one, or several
        Layers whose hidden states are stored for scores. Each takes 4 bytes per member and value of
        the hidden state, at every checkpoint. ``"last"`` is enough for the usual PSMI.
    over_last : int
        Number of evaluations after step 0 in the running median of the loss. Use 3 or so when the
        loss is noisy.

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
        About what could not be checked, and if ρ was not reached or was crossed by a jump.

    Notes
    -----
    ``trainer.train(resume_from_checkpoint=True)`` continues after the interruption, and so does the
    recording. If several data-parallel processes train, the first one writes. Weights that are
    spread over processes (FSDP, DeepSpeed's stage 3) are an error.

    Recorded losses are the cross-entropy of the labels. The Trainer's own loss is trained as it is:
    class weights, label smoothing or a ``compute_loss`` of its own are neither changed nor checked.

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
        audit: _Audited,
        stop_at_drop: float | None = 0.95,
        layers: str | int | Iterable[str | int] = "all",
        over_last: int = 1,
    ) -> None:
        self._recorder = audit.recorder(stop_at_drop, layers, over_last)
        self._stop = None if stop_at_drop is None else StopRule(stop_at_drop, over_last)
        self._resumed = False
        self._progress: Progress | None = None
        self.interrupted: Record | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - the event's
        **kwargs: Any,
    ) -> None:
        """Check that the audit belongs to this training, and record step 0."""
        self._resumed, self.interrupted = state.global_step > 0, None
        self._progress = Progress() if args.disable_tqdm else None
        if not state.is_world_process_zero:
            check_whole(kwargs["model"])
            self._recorder.follow(self._steps_per_epoch(args, kwargs), state.max_steps)
            return
        model = _whole(kwargs["model"])
        with preserved(_device_of(model)):
            self._check_rows(kwargs)
            self._recorder.begin(
                model, state.global_step, self._steps_per_epoch(args, kwargs), state.max_steps
            )
            if self._recorder.is_due(state.global_step):
                self._recorder.record(model, state.global_step, self._progress)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Record a checkpoint if one is due, and interrupt at ρ."""
        if not self._recorder.is_due(state.global_step):
            return
        stop = False
        if state.is_world_process_zero:
            stop = self._record(_whole(kwargs["model"]), state.global_step)
        if _agreed(args, stop=stop):
            control.should_training_stop = True
            control.should_save |= str(getattr(args.save_strategy, "value", "")) != "no"

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - the event's
        **kwargs: Any,
    ) -> None:
        """Record the end if it came unplanned, and warn about ρ."""
        if not state.is_world_process_zero or self.interrupted is not None:
            return
        step = state.global_step
        if step != state.max_steps:
            self._record_end(args, _whole(kwargs["model"]), step)
        if self._stop is not None:
            self._warn(self._stop, step)

    def _steps_per_epoch(self, args: TrainingArguments, kwargs: dict[str, Any]) -> int:
        """Return the steps in an epoch over the rows (for streamed data, the members)."""
        try:
            batches = len(kwargs["train_dataloader"])
        except TypeError:
            batches = math.ceil(
                len(self._recorder.members) / (args.train_batch_size * args.world_size)
            )
        return max(1, math.ceil(batches / args.gradient_accumulation_steps))

    def _record(self, model: nn.Module, step: int) -> bool:
        """Record a checkpoint, and return whether to interrupt here."""
        seen_before = self._resumed and self._recorder.is_recorded(step)
        with preserved(_device_of(model)):
            record = self._recorder.record(model, step, self._progress)
        if self._stop is None or seen_before:
            return False
        chosen = self._recorder.prediction(self._stop, step)
        if chosen is None or not chosen.reached or chosen.record.step != step:
            return False
        self.interrupted = record
        self._warn(self._stop, step)
        _say(
            f"memowidgets: interrupted at {record.name} (step {step}), where the median loss has "
            f"dropped by {chosen.drop:.1%}; trainer.train(resume_from_checkpoint=True) continues"
        )
        return True

    def _record_end(self, args: TrainingArguments, model: nn.Module, step: int) -> None:
        if not self._recorder.is_recorded(step):
            if args.load_best_model_at_end:  # the model already has its weights
                warnings.warn(
                    f"the training ended at step {step}, where no checkpoint was due, and the "
                    "Trainer has loaded its best model since, so this run has no final checkpoint",
                    UserWarning,
                    stacklevel=2,
                )
                return
            with preserved(_device_of(model)):
                self._recorder.record(model, step, self._progress)
        self._recorder.end(step)

    def _warn(self, stop: StopRule, step: int) -> None:
        chosen = self._recorder.prediction(stop, step)
        for note in chosen.warnings if chosen is not None else ():
            warnings.warn(note, UserWarning, stacklevel=2)

    def _check_rows(self, kwargs: dict[str, Any]) -> None:
        loader = kwargs.get("train_dataloader")
        try:
            note, seen = self._compared(loader)
        except Unreadable as reason:
            seen = []
            note = f"{reason}, so it was not checked whether it encodes this audit's members alike"
        if seen:
            raise ValueError(
                f"{len(seen)} held-out samples of this audit are rows of the Trainer, the first is "
                f"{quoted(seen[0])}: nothing would be held out. Create the audit with "
                "held_out=None, or with the Trainer's evaluation data"
            )
        if note is not None:
            warnings.warn(note, UserWarning, stacklevel=2)

    def _compared(self, loader: Any) -> tuple[str | None, list[str]]:
        """Compare rows with members; return a note, and the held-out samples among the rows."""
        recipe, aside = self._recorder.recipe, self._recorder.held_out
        others = np.arange(0 if aside is None else len(aside))
        if isinstance(recipe.model, CausalLM):
            rows = read_rows(loader)
            note = check_encodings(rows, self._members(recipe.data, self._recorder.members))
            return note, held_out_rows(rows, self._members(aside or recipe.data, others))
        labelled = read_class_rows(loader)
        note = check_classes(labelled, self._class_members(recipe.data, self._recorder.members))
        unseen = self._class_members(aside or recipe.data, others)
        return note, held_out_class_rows(labelled, unseen)

    def _members(self, data: Dataset, positions: NDArray[np.int64]) -> list[Member]:
        """Return samples' prompts with their label, as the audit encodes them."""
        import torch

        feed = self._recorder.recipe.model.feeder(data, torch.device("cpu"))
        found = []
        for position in positions:
            inputs = feed(np.array([position]))
            label = inputs["options"][int(data.labels[position])]
            ids = [*inputs["input_ids"][0].tolist(), int(label)]
            found.append(Member(str(data.ids[position]), np.array(ids)))
        return found

    def _class_members(self, data: Dataset, positions: NDArray[np.int64]) -> list[ClassMember]:
        """Return samples as the audit feeds them to a classifier, with their label."""
        import torch

        feed = self._recorder.recipe.model.feeder(data, torch.device("cpu"))
        found = []
        for position in positions:
            inputs = feed(np.array([position]))
            batch = inputs if isinstance(inputs, dict) else {"pixel_values": inputs}
            label = int(data.labels[position])
            found.append(ClassMember(str(data.ids[position]), content_of(batch), label))
        return found


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _whole(model: Any) -> nn.Module:
    """Return the model without its wrappers for several devices."""
    from accelerate.utils import extract_model_from_parallel  # type: ignore[import-untyped]

    check_whole(model)
    return cast("nn.Module", extract_model_from_parallel(model))


def _agreed(args: TrainingArguments, *, stop: bool) -> bool:
    """Return the first process's decision in all processes."""
    if args.world_size == 1:
        return stop
    import torch.distributed as dist

    decided = [stop]
    dist.broadcast_object_list(decided, src=0)
    return decided[0]


def _say(text: str) -> None:
    from tqdm.auto import tqdm

    tqdm.write(text)
