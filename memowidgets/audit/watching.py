"""Record an audit without ground truth while a user's own loop trains a module."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from memowidgets.audit.run import WATCHED, Run, stop_rule
from memowidgets.audit.runs import identity
from memowidgets.audit.runs.opening import (
    check_given,
    check_same_kind,
    other_pairs,
    read_pairs,
    samples_of,
)
from memowidgets.checks import check_version, whole_number
from memowidgets.data import Dataset
from memowidgets.files import digest_of
from memowidgets.models.base import unwrap
from memowidgets.store import RunDirectory
from memowidgets.training.checkpoint import HELD_OUT, forward_of
from memowidgets.training.config import CheckpointPlan
from memowidgets.training.design import draw_design
from memowidgets.training.draws import Draws
from memowidgets.training.origin import Origin, origin_of_loop
from memowidgets.training.passes import (
    Batches,
    Looker,
    check_module,
    looker_of,
    tensors_of,
)
from memowidgets.training.recorder import Recorder, in_the_first_process

if TYPE_CHECKING:
    from torch import nn

    from memowidgets.audit.audit import Audit

# epochs between two passes, and where passes take longer than steps
_EVERY, _RARELY = (
    0.2,
    1,
)


def watch(
    module: nn.Module,
    data: object,
    path: str | os.PathLike[str],
    steps_per_epoch: int,
    forward: Callable[[Any, Any], Any] | None = None,
    layers: str | Sequence[str] = "auto",
    checkpoint_every: float | None = None,
    stop_at_drop: float | None = 0.95,
    *,
    keep: str = "all",
    held_out: object = None,
    over_last: int = 1,
    batch_size: int | None = None,
    class_names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    steps_done: int | None = None,
    overwrite: bool = False,
    seed: int = 0,
    version: str | None = None,
) -> Watch:
    """Watch a PyTorch training loop of your own, whatever the module and the data are.

    Call it before the loop, when the module is on its device. It makes a pass over the data, and
    another every `checkpoint_every` epochs. A pass stores the logits and the representations of
    every sample, of the last layer unless `layers` names others. It leaves the module, its mode,
    gradients, optimizer and all random states as they were, bit for bit: the loop ends with the
    weights that it would end with unwatched.

    Parameters
    ----------
    module : Module
        The module that the loop trains. Wrappers such as `DistributedDataParallel` may be left on.
    data : Dataset, torch dataset or DataLoader
        The samples that the loop trains on, in any order, as a dataset of ``mw.data``, or as a
        torch dataset (or a loader that does not shuffle) of ``(inputs, label)`` pairs without
        random augmentation. Inputs are a tensor, or a tuple or mapping of tensors. Labels are
        integers from 0, or strings.
    path : path-like
        Run directory. See the notes on calling again with the same one.
    steps_per_epoch : int
        Number of optimizer steps in an epoch, ``len(loader)`` without gradient accumulation.
    forward : callable, optional
        Function ``forward(module, inputs)`` that gives logits of shape (batch, classes). By
        default the module is called with the inputs: a mapping by name, a tuple one by one. For a
        `TextDataset` or `MCQDataset`, inputs are a list of texts or prompts; for an
        `ImageDataset`, images of shape (batch, channels, height, width), scaled as
        (value / 255 − 0.5) / 0.25; for a `TableDataset`, the rows of its `encoded`.
    layers : "auto" or sequence of str
        Parts of the module whose output is a representation, first to last, as in
        ``module.named_modules()``; a name that ends in ``.input`` is what goes into a part.
        ``"auto"`` is one layer, the last: what goes into the linear layer with an output for each
        class.
    checkpoint_every : float, optional
        Epochs between two passes. Default: 0.2, and 1 as soon as passes have taken longer than the
        steps between them.
    stop_at_drop : float or None
        ρ: `Watch.step` says True where to look, see `Audit.train`: at the first checkpoint where
        the median loss of the samples has dropped by this share (paper, Section 4.3), or, if it
        comes before, where held-out loss has turned for long, or where the drop has levelled off.
        None never does.
    keep : {"all", "prediction+final"}
        Where representations are kept: at every checkpoint, or at the prediction checkpoint and the
        last one. Logits and losses are kept at every checkpoint. ``"prediction+final"`` keeps all
        until it is told where to look, or until `Watch.end`.
    held_out : Dataset, torch dataset or DataLoader, optional
        Samples of the same kind that the loop does not train on. Their loss says where the loop
        begins to learn what does not generalise, which is where to look. It takes one more pass
        over them at each checkpoint.
    over_last : int
        Number of evaluations after step 0 in the running median of the loss. Use 3 or so when the
        loss is noisy.
    batch_size : int, optional
        Number of samples in a batch of a pass. Default: the loader's, or 64.
    class_names : sequence of str, optional
        Names of the classes, for pairs. Default: the labels, or their numbers.
    ids : sequence of str, optional
        Unique names of the samples, for pairs. Default: their positions.
    steps_done : int, optional
        Number of steps that the training has taken already, if it goes on from weights that are
        those of no recorded checkpoint. The next pass is at the next checkpoint.
    overwrite : bool
        Whether to replace the recording of another training on the same data.
    seed : int
        Seed of PSMI's directions.
    version : str, optional
        Text that identifies `forward` and the module's code. A recording with another version at
        the same path is an error.

    Returns
    -------
    Watch

    Raises
    ------
    ValueError, TypeError
        If a loader shuffles, rows differ each time that they are read, labels are not one class
        each, logits do not fit them or are probabilities, a layer does not exist, held-out samples
        are in the data, or the path has another run.
    FloatingPointError
        If a loss is not finite.

    Notes
    -----
    An activation with two axes is taken as it is. Of an activation (batch, tokens, width), the
    token is taken at which that linear layer reads the logits, else the mean over the tokens of
    the ``attention_mask`` that the module or a part of it receives, else (for ``"auto"``, or above
    8192 values) over all, with a warning if batches have different lengths.
    Images' activations above 8192 values are average-pooled to 4×4. Losses are the cross-entropy
    of the labels, whatever the loop minimises.

    If the path has a recording of the same data and module, the weights decide. Weights of a
    recorded checkpoint, step 0 included, go on from there: passes with the same weights are kept,
    and others are replaced as the training comes by. Other weights are an error, unless
    `overwrite` or `steps_done` says what they are. Where the weights are those of a checkpoint,
    the logits of the first samples must be those of its pass too, or the module's code or
    `forward` has changed.

    In several data-parallel processes, call it in each. The first one records, the others wait.

    Examples
    --------
    >>> import tempfile, torch
    >>> from torch import nn
    >>> import memowidgets as mw
    >>> x, y = torch.randn(64, 8), torch.arange(64) % 2
    >>> data = torch.utils.data.TensorDataset(x + 2 * y[:, None], y)
    >>> loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    >>> module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    >>> watch = mw.watch(module, data, path=tempfile.mkdtemp(), steps_per_epoch=len(loader))
    >>> for inputs, labels in loader:
    ...     nn.functional.cross_entropy(module(inputs), labels).backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    ...     if watch.step():
    ...         break
    >>> watch.audit.checkpoints.index[:2].tolist()
    ['epoch-0', 'epoch-0.2']
    """
    every = _EVERY if checkpoint_every is None else checkpoint_every
    steps = "steps_per_epoch, the number of optimizer steps in an epoch,"
    plan = CheckpointPlan(whole_number(steps, steps_per_epoch, 1), every)
    stop = stop_rule(stop_at_drop, over_last)

    def begin() -> tuple[Run, Recorder[Looker], int]:
        check_module(module)
        check_given(data, class_names, ids)
        check_version(version)
        whole_number("seed", seed)
        samples, pairs = samples_of(
            data, lambda rows: read_pairs(rows, class_names, ids)
        )
        is_named = class_names is not None
        looker, samples = looker_of(
            module, samples, pairs, forward, layers, batch_size, named=is_named
        )
        inner = unwrap(module)
        unseen = None
        if held_out is not None:
            unseen, rows = samples_of(
                held_out, lambda rows: other_pairs(rows, samples.class_names)
            )
            check_same_kind(unseen, samples)
            unseen = unseen.with_encoding(samples.encoding)
            others = Batches(unseen, rows, batch_size or looker.batches.size)
            aside = looker.over(unseen, capture=False, noun=HELD_OUT)
            looker = replace(looker, held_out=replace(aside, batches=others))
        about = {
            "class": type(inner).__name__,
            "settings": json.dumps({"layers": list(looker.layer_names)}),
            "version": version or "",
            "parameters": digest_of(
                json.dumps(
                    {name: list(one.shape) for name, one in tensors_of(inner).items()}
                )
            ),
        }
        run = _begun_run(
            about, list(looker.layer_names), samples, unseen, path, every, seed
        )
        recorder = Recorder(run.run, looker, plan, keep, stop)
        recorder.name_origin(origin_of_loop(inner))
        recorder.follow(module, plan.steps_per_epoch)
        step = recorder.start(module, steps_done, overwrite=overwrite)
        record = recorder.record_at(step)
        if record is not None and run.run.has(forward_of(record.name), record.weights):
            kept = run.run.read_tensors(forward_of(record.name), record.weights)
            looker.check_same(inner, kept["logits"], record.precision)
        if recorder.is_due(step) and not steps_done:  # else weights may still be loaded
            recorder.record(module, step)
        return run, recorder, step

    return Watch(module, path, plan, begin, widens=checkpoint_every is None)


def _begun_run(
    about: dict[str, str],
    layers: list[str],
    data: Dataset,
    held_out: Dataset | None,
    path: str | os.PathLike[str],
    every: float,
    seed: int,
) -> Run:
    """Begin the run of a watched training, or go on with it where the directory holds it."""
    run = RunDirectory(path)
    design = draw_design(data, "all", None, seed)
    if held_out is not None:
        identity.check_held_out(held_out, data, design)
    manifest = {
        "kind": WATCHED,
        "model": about,
        "model_source": None,
        "layers": layers,
        **identity.describe_recorded(every, seed),
        **identity.describe_data(data, design, held_out),
    }
    manifest = identity.settle(run, manifest, data, design)
    return Run(run, manifest, None, data, held_out, design, "cpu")


class Watch:
    """A watched training loop; created by `watch`.

    Attributes
    ----------
    steps, steps_per_epoch : int
        Optimizer steps so far, and in an epoch as they were given.
    reached : bool
        Whether it was told where to look.
    """

    def __init__(
        self,
        module: nn.Module,
        path: str | os.PathLike[str],
        plan: CheckpointPlan,
        begin: Callable[[], tuple[Run, Recorder[Looker], int]],
        *,
        widens: bool,
    ) -> None:
        self._module, self._path, self._plan = module, path, plan
        self.steps_per_epoch = plan.steps_per_epoch
        self._run: Run | None = None  # in the first process, as the recorder
        self._recorder: Recorder[Looker] | None = None

        def begun() -> tuple[int, bool]:
            self._run, self._recorder, step = begin()
            return step, self._recorder.told(step) is not None

        self.steps, self.reached = in_the_first_process(begun, (0, False))
        self._widens, self._balance, self._since = widens, 0.0, time.monotonic()

    def __repr__(self) -> str:
        return f"Watch({str(self._path)!r}, {self.steps} steps, reached={self.reached})"

    @cached_property
    def audit(self) -> Audit:
        """The audit of what was recorded so far; it has no ground truth."""
        from memowidgets.audit.audit import Audit

        return Audit.open(self._path) if self._run is None else Audit.of(self._run)

    def step(self) -> bool:
        """Count an optimizer step, and record a checkpoint if one is due.

        Returns
        -------
        bool
            True at the checkpoint where it is told where to look, and False at every other step.

        Raises
        ------
        FloatingPointError
            If a loss is not finite. Earlier checkpoints are kept.
        StoreError
            If another training was recorded at the path meanwhile.
        """
        self.steps += 1
        if self._plan.epoch_at(self.steps) is None:
            return False
        before = self.reached
        self.reached, rarely = in_the_first_process(
            self._record_in_time, (before, False)
        )
        if rarely:
            self._plan = CheckpointPlan(self.steps_per_epoch, _RARELY)
        if not self.reached or before:
            return False
        chosen = None if self._recorder is None else self._recorder.told(self.steps)
        if chosen is not None:
            from tqdm.auto import tqdm

            tqdm.write(
                f"memowidgets: look at {chosen.record.name} now, at step {self.steps}: "
                f"{chosen.reason}"
            )
        return True

    def end(self) -> None:
        """Record the last step, if no checkpoint was due there.

        Without this call, ``"final"`` is the last checkpoint that was due.
        """
        self.reached = in_the_first_process(
            partial(self._record_if_due, ends=True), self.reached
        )

    def continue_at(self, steps_done: int) -> None:
        """Go on after this number of steps, because the training was resumed there.

        Call it when the module has its weights of that step: a checkpoint that is due is recorded,
        unless it exists with these weights.
        """
        self.steps = steps_done
        self.reached = in_the_first_process(
            partial(self._record_if_due, goes_on=True), self.reached
        )

    def name_origin(self, origin: Origin) -> None:
        """Keep with the next checkpoint who runs the loop; `LightningCallback` calls this."""
        if self._recorder is not None:
            self._recorder.name_origin(origin)

    def count_draws(self, loader: object) -> None:
        """Count how often a loader draws each sample, from before it is iterated over.

        Samples that are never drawn then have no score. `LightningCallback` calls this. Nothing is
        counted of a loader of another dataset than `mw.watch` was given, or of several processes.
        """
        if self._recorder is None:
            return
        rows = self._recorder.passes.batches.rows
        if not hasattr(loader, "dataset") or loader.dataset is not rows:
            return
        draws = Draws(loader, [[i] for i in range(len(rows))])
        self._recorder.count(draws, self.steps, self.steps)

    def _record_in_time(self) -> tuple[bool, bool]:
        """Record the step; return whether a place was told, and whether to record rarely."""
        start = time.monotonic()
        reached = self._record_if_due()
        self._balance += time.monotonic() - start - (start - self._since)
        self._since = time.monotonic()
        return reached, self._widens and self._balance > 0

    def _record_if_due(self, *, goes_on: bool = False, ends: bool = False) -> bool:
        """Record the present step if it is due, or if the training ends there.

        Returns whether it was told where to look. Only the first process records.
        """
        recorder = self._recorder
        if recorder is None:
            return self.reached
        if goes_on:
            recorder.continue_at(self._module, self.steps)
        if ends or self._plan.epoch_at(self.steps) is not None:
            recorder.record(self._module, self.steps)
        if ends:
            recorder.finish()
        return recorder.told(self.steps) is not None
