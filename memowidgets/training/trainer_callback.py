"""Callback for transformers' Trainer (and TRL's) that adds an audit to an existing script."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from memowidgets.checks import warn_user
from memowidgets.progress import Progress
from memowidgets.training.checkpoint import REPEATS
from memowidgets.training.forward import device_of, unwrap
from memowidgets.training.recorder import check_whole, in_the_first_process
from memowidgets.training.rho import Prediction, Record
from memowidgets.training.seeds import preserved
from memowidgets.training.trainer_passes import check_rows
from memowidgets.vocabulary import percent

if TYPE_CHECKING:
    from torch import nn


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
        audit: Any,
        stop_at_drop: float | None = 0.95,
        layers: str | int | Iterable[str | int] = "last",
        over_last: int = 1,
        *,
        checkpoint_every: float | None = None,
        keep: str = "all",
    ) -> None:
        self._recorder = audit.recorder(stop_at_drop, layers, over_last, checkpoint_every, keep)
        self._resumed = False
        self._progress: Progress | None = None
        self.interrupted: Record | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Check that the audit belongs to this training, and record step 0."""
        self._resumed, self.interrupted = state.global_step > 0, None
        self._progress = Progress() if args.disable_tqdm else None
        passes, loader = self._recorder.passes, kwargs.get("train_dataloader")
        try:
            batches = len(loader)  # type: ignore[arg-type]
        except TypeError:  # streamed data
            batches = math.ceil(len(passes.members) / (args.train_batch_size * args.world_size))
        course = max(1, math.ceil(batches / args.gradient_accumulation_steps)), state.max_steps
        model = unwrap(kwargs["model"])
        check_whole(model)
        if not state.is_world_process_zero:
            self._recorder.follow(*course)
            return
        with preserved(device_of(model)):
            repeated = check_rows(loader, passes)
            passes.check(model)
            self._recorder.start(model, state.global_step, *course, progress=self._progress)
            if repeated:
                self._recorder.run.write_note(REPEATS, {"rows": repeated})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record a checkpoint if one is due, and interrupt at ρ."""
        step = state.global_step
        if self._recorder.is_due(step) and in_the_first_process(
            lambda: self._reaches(kwargs["model"], step), otherwise=False
        ):
            control.should_training_stop = True
            control.should_save |= str(getattr(args.save_strategy, "value", "")) != "no"

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record the end if it came unplanned, and warn about ρ."""
        step = state.global_step
        if not state.is_world_process_zero or self.interrupted is not None:
            return
        if step == state.max_steps or self._recorder.recorded(step) is not None:
            self._recorder.finish(step)
        elif args.load_best_model_at_end:  # the model already has its weights
            warn_user(
                f"the training ended at step {step}, where no checkpoint was due, and the "
                "Trainer has loaded its best model since, so this run has no final checkpoint"
            )
            self._recorder.finish(state.max_steps)
        else:
            self._recorder.record(kwargs["model"], step, self._progress)
            self._recorder.finish(step)
        _warn(self._recorder.prediction(step))

    def _reaches(self, model: nn.Module, step: int) -> bool:
        """Record a checkpoint, and return whether to interrupt here."""
        seen_before = self._resumed and self._recorder.recorded(step) is not None
        record = self._recorder.record(model, step, self._progress)
        chosen = self._recorder.prediction(step)
        if seen_before or chosen is None or not chosen.reached or chosen.record.step != step:
            return False
        from tqdm.auto import tqdm

        self.interrupted = record
        _warn(chosen)
        drop = percent(chosen.drop)
        tqdm.write(
            f"memowidgets: interrupted at {record.name} (step {step}), where the median loss has "
            f"dropped by {drop}; trainer.train(resume_from_checkpoint=True) continues"
        )
        return True


def _warn(chosen: Prediction | None) -> None:
    for note in chosen.warnings if chosen is not None else ():
        warn_user(note)
