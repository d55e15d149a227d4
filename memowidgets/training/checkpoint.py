"""Checkpoints: the pass that is made at each, its record, and the course of a training.

They lie in a run directory, in places that this module names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import (
    has_form,
    looks_like_probabilities,
    warn_user,
)
from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import restore_modes
from memowidgets.models.device import (
    cpu_threads,
    resolve_precision,
    room_for,
    rounding_of,
    sent,
)
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.config import restore_in_main_thread
from memowidgets.training.origin import FORM as ORIGIN
from memowidgets.training.origin import Origin
from memowidgets.vocabulary import quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# in errors of a pass
SAMPLES = "samples"
HELD_OUT = "held-out samples"
LAYER = "layer."  # before the name of a layer in a pass
COURSE = "trainer.json"
FIRST = "targets/first"  # the target's logit gaps over the pool, by checkpoint
REPEATS = "repeats.json"  # rows of a Trainer for each member that has several
KEEP = ("all", "prediction+final")

FloatArray = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]
# of shapes and a precision
Allocate = Callable[[Shapes, str], Mapping[str, FloatArray]]


# the pass


@dataclass(frozen=True)
class Forward:
    """Result of a forward pass over n samples.

    Attributes
    ----------
    logits : array of shape (n, n_classes), float32
        Unnormalised log-probabilities.
    losses : array of shape (n,), float32
        Training loss of each sample's label, in nats (natural logarithms).
    layers : dict of array of shape (n, values), float32
        Representation after each layer, by name. Empty if none was captured.
    precision : str
        Precision of the matrix products: "float32" or "bfloat16".
    made_by : str
        What its rounding depends on: device, versions and size of a batch. Empty if not known.
    """

    logits: FloatArray
    losses: FloatArray
    layers: dict[str, FloatArray]
    precision: str = "float32"
    made_by: str = ""

    def figures(self, labels: NDArray[np.int64]) -> tuple[float, float]:
        """Return the mean loss in nats, and the share whose largest logit is the label's."""
        accuracy = float((self.logits.argmax(axis=1) == labels).mean())
        return float(self.losses.mean(dtype=np.float64)), accuracy


def filled_pass(
    batches: Iterable[tuple[Any, Any]],
    ask: Callable[[Any, Any], Mapping[str, Tensor]],
    n: int,
    n_batches: int,
    precision: Callable[[], str],
    *,
    progress: Progress | None = None,
    what: str = "scoring",
    allocate: Allocate | None = None,
    noun: str = SAMPLES,
) -> Forward:
    """Ask a module about every batch, and return the answers for all samples.

    Parameters
    ----------
    batches : iterable of (places, inputs)
        The places of a batch in the result, and what the module gets.
    ask : callable
        Function of places and inputs that returns "logits", "losses" and "layer.NAME" of a batch.
    n, n_batches : int
        Number of samples, and of batches.
    precision : callable
        Function that returns the precision of the pass once a batch was asked about.
    progress, what : Progress and str
        Progress, and the text that it shows. It may cancel between two batches.
    allocate : callable, optional
        Function that creates the arrays that the pass fills, from their shapes by name and from the
        precision, and may leave out layers. With memory-mapped arrays the pass needs memory for one
        batch only.
    noun : str
        What the samples are called in errors.

    Raises
    ------
    ValueError
        If a layer has another width in each batch.
    FloatingPointError
        If a loss is not finite, because the training has diverged.
    """
    filled: Mapping[str, FloatArray] = {}
    for done, (places, inputs) in enumerate(batches):
        if progress is not None:
            progress.report(done, n_batches, what)
        answers = ask(places, inputs)
        if not filled:
            shapes = {name: (n, *values.shape[1:]) for name, values in answers.items()}
            filled = (allocate or in_memory)(shapes, precision())
        for name, values in answers.items():
            if name not in filled:
                continue
            if filled[name].shape[1:] != tuple(values.shape[1:]):
                raise ValueError(
                    f"layer {name.removeprefix(LAYER)!r} has {values.shape[1]} values in one batch "
                    f"and {filled[name].shape[1]} in another; pad to one length, or change layers="
                )
            filled[name][places] = values.float().cpu().numpy()
    wrong = ~np.isfinite(filled["losses"])
    if wrong.any():
        raise FloatingPointError(
            f"the loss of {int(wrong.sum())} of {n} {noun} is not finite: the training has "
            "diverged, so lower the learning rate, or the inputs or the first weights hold NaN"
        )
    layers = {
        k.removeprefix(LAYER): v for k, v in filled.items() if k.startswith(LAYER)
    }
    return Forward(filled["logits"], filled["losses"], layers, precision())


def forward(
    model: Model,
    module: nn.Module,
    data: Dataset,
    positions: NDArray[np.int64],
    device: torch.device,
    precision: str,
    *,
    capture: bool = False,
    progress: Progress | None = None,
    allocate: Allocate | None = None,
    feed: Callable[[NDArray[Any]], Any] | None = None,
    noun: str = SAMPLES,
) -> Forward:
    """Run a module over samples in eval mode; its own mode and random states do not change.

    `feed` is the model's feeder of the data in this precision. A new one may copy all images to the
    device again. `progress`, `allocate` and `noun` are those of `filled_pass`.

    Raises
    ------
    FloatingPointError
        If a loss is not finite, because the training has diverged.
    MemoryError
        If a batch does not fit in the device's memory.
    """
    import torch

    precision = resolve_precision(device, precision)
    feed = feed or model.feeder(data, device, precision)
    with restore_in_main_thread(device), torch.no_grad(), ExitStack() as stack:
        stack.enter_context(restore_modes(module))
        module.eval()
        stack.enter_context(cpu_threads(model.cpu_threads))
        stack.enter_context(model.autocast(device, precision))
        outputs = stack.enter_context(model.capture_layers(module)) if capture else {}
        labels = sent(torch.from_numpy(data.labels[positions]), device)

        def ask(place: Any, inputs: Any) -> dict[str, Tensor]:
            logits, losses = model.outputs(module, inputs, labels[place])
            layers = {LAYER + name: output for name, output in outputs.items()}
            return {"logits": logits, "losses": losses, **layers}

        places = _places(model.lengths(data), positions, model.forward_batch)
        what = f"a forward pass over {min(model.forward_batch, len(positions))} samples at once"
        with room_for(
            what, "set forward_batch of the model to less, or use a smaller model"
        ):
            seen = filled_pass(
                ((place, feed(positions[place])) for place in places),
                ask,
                len(positions),
                len(places),
                lambda: precision,
                progress=progress,
                allocate=allocate,
                noun=noun,
            )
    if looks_like_probabilities(seen.logits):
        warn_user("the module returns probabilities, not logits; leave out its softmax")
    made_by = f"{rounding_of(device)}, batches of {model.forward_batch}"
    return replace(seen, made_by=made_by)


def in_memory(shapes: Shapes, _precision: str) -> dict[str, FloatArray]:
    """Create the arrays of a pass in memory."""
    return {name: np.empty(shape, np.float32) for name, shape in shapes.items()}


@contextmanager
def file_of_pass(run: RunDirectory, place: str, of: str) -> Iterator[Allocate]:
    """Yield what creates the arrays of a pass in a file, which is there once the block ended well.

    `of` is the digest of the weights.
    """
    with ExitStack() as stack:

        def allocate(shapes: Shapes, precision: str) -> Mapping[str, FloatArray]:
            return stack.enter_context(
                run.new_tensors(place, shapes, {"precision": precision}, of)
            )

        yield allocate


def end_batches(
    model: Model, data: Dataset, positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the samples in the first and the last batch of a pass over samples.

    In a pass over them alone these are its batches too, so that every number is the same.
    """
    places = _places(model.lengths(data), positions, model.forward_batch)
    every = np.arange(len(positions))
    return np.concatenate(
        [every[place] for place in places[:: max(1, len(places) - 1)]]
    )


def _places(
    lengths: NDArray[Any] | None, positions: NDArray[np.int64], size: int
) -> list[Any]:
    """Return each batch's places, as slices or arrays: similar lengths together, to pad less."""
    starts = range(0, len(positions), size)
    if lengths is None:
        return [slice(start, min(start + size, len(positions))) for start in starts]
    order = np.argsort(lengths[positions], kind="stable")
    return [order[start : start + size] for start in starts]


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's first weight; the CPU if it has none."""
    import torch

    tensors = [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


# the record


@dataclass(frozen=True)
class Record:
    """Values of a checkpoint, over the target's members and the held-out samples.

    Attributes
    ----------
    name : str
        Name, such as ``"epoch-2"``.
    epoch : float
        Passes over the members so far.
    step : int
        Optimizer steps so far.
    median_loss, train_loss, test_loss : float
        Losses in nats (natural logarithms). The test loss is None if nothing was held out.
    train_accuracy, test_accuracy : float
        Accuracies as shares.
    precision : str
        Precision of the pass over the members.
    weights : str
        Digest of the weights. Empty until they are written.
    seconds : float
        Seconds of the training since the checkpoint before, without the passes. 0 if not known.
    made_by : str
        What the rounding of the pass depends on, see `Forward`.
    """

    name: str
    epoch: float
    step: int
    median_loss: float
    train_loss: float
    train_accuracy: float
    test_loss: float | None
    test_accuracy: float | None
    precision: str
    weights: str = ""
    seconds: float = field(default=0.0, compare=False)
    made_by: str = field(default="", compare=False)

    def check_fields(self) -> Record:
        """Return the record after checking each field's type, because its file may be untrusted.

        Raises
        ------
        ValueError
            If a field has the wrong type; the message names it.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            form = {"str": str, "int": int, "float": float}.get(
                str(each.type), float | None
            )
            if not has_form(value, form) or (each.name == "step" and value < 0):
                raise ValueError(f"its {each.name} is {quoted(value)}")
        return self

    def drop(self, first: Record) -> float:
        """Return the drop of the median loss since step 0, as a share."""
        return 1.0 - self.median_loss / first.median_loss


# in a run directory


def read_records(run: RunDirectory) -> list[Record]:
    """Return the checkpoints of a run directory, in the order of training."""
    names = run.names("checkpoints", "")
    records = [
        read_record(run, name) for name in names if run.has_file(record_file(name))
    ]
    records.sort(key=lambda record: record.step)
    if records and records[0].step != 0:
        raise StoreError(
            f"{run.path} has lost its checkpoint of step 0; delete its folder checkpoints, and "
            "train again"
        )
    return records


def read_record(run: RunDirectory, name: str) -> Record:
    """Return the record of a checkpoint.

    Raises
    ------
    StoreError
        If its file is missing or broken.
    """
    file = record_file(name)
    try:
        record = Record(**run.read_note(file)).check_fields()
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"{run.path / file} is broken: {error}; delete its folder"
        ) from None
    if record.name != Path(file).parent.name:
        raise StoreError(f"{run.path / file} is broken: it names {quoted(record.name)}")
    return record


def arrays_of(weights: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Return tensors as arrays on the CPU, bfloat16 as float32, because NumPy lacks it."""
    import torch

    exact = {
        k: t.float() if t.dtype == torch.bfloat16 else t for k, t in weights.items()
    }
    return {
        name: np.ascontiguousarray(tensor.detach().cpu().numpy())
        for name, tensor in exact.items()
    }


def name_of(epoch: float) -> str:
    """Return the name of the checkpoint at an epoch."""
    return f"epoch-{epoch:g}"


def record_file(name: str) -> str:
    """Return the place of the record of a checkpoint."""
    return f"checkpoints/{name}/record.json"


def outputs_of(name: str) -> str:
    """Return the place of the members' logits and losses at a checkpoint, without layers."""
    return f"checkpoints/{name}/outputs"


def held_out_of(name: str) -> str:
    """Return the place of the held-out samples' losses at a checkpoint."""
    return f"checkpoints/{name}/held_out"


def forward_of(name: str) -> str:
    """Return the place of a checkpoint's pass over the members, with its layers."""
    return f"forward/{name}"


# the training that another loop runs


@dataclass(frozen=True)
class Course:
    """Course of a training that another loop runs.

    Attributes
    ----------
    steps_per_epoch, total_steps : int
        Optimizer steps in an epoch, and in the whole training, as far as it is known.
    weights : dict of str to str
        Digest of the weights by checkpoint. It is written last, so a checkpoint that is named here
        was whole once.
    keep : {"all", "prediction+final"}
        Where weights and representations are kept: at each checkpoint, or at the one to look at
        and at the end. Logits and losses are kept at each.
    origins : list of Origin
        Who trained it with which settings, one for each stretch in which these are the same.
    """

    steps_per_epoch: int
    total_steps: int
    weights: dict[str, str] = field(default_factory=dict)
    keep: str = KEEP[0]
    origins: list[Origin] = field(default_factory=list)


def read_course(run: RunDirectory) -> Course | None:
    """Return the course of an external training, or None if the audit trains its own target."""
    if not run.has_file(COURSE):
        return None
    note = run.read_note(COURSE)
    form = {
        "steps_per_epoch": _is_count,
        "total_steps": _is_count,
        "weights": {str: str},
        "origins": [ORIGIN],
    }
    if (
        note.keys() != {*form, "keep"}
        or not has_form(note, form)
        or note["keep"] not in KEEP
    ):
        raise StoreError(
            f"{run.path / COURSE} is broken: delete the folder, and record again"
        )
    origins = [Origin(**one) for one in note.pop("origins")]
    return Course(**note, origins=origins)


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


KEEP_ALL = 'keep="all" keeps them'


def left_out(run: RunDirectory) -> str:
    """Return what a recorded training was told not to keep, for errors; empty for all others."""
    course = read_course(run)
    if course is None or course.keep == KEEP[0]:
        return ""
    return (
        f'was recorded with keep="{course.keep}", so weights and representations are kept at '
        "the prediction checkpoint and the last one, and not"
    )


def read_repeats(run: RunDirectory) -> dict[str, int]:
    """Return how many of a Trainer's rows each member has that has several, by its id."""
    rows: Any = run.read_note(REPEATS).get("rows") if run.has_file(REPEATS) else {}
    if not has_form(rows, {str: int}):
        raise StoreError(f"{run.path / REPEATS} is broken; delete it")
    repeats: dict[str, int] = rows
    return repeats
