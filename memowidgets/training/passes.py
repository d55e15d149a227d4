"""Passes of a user's module over their data: batches, logits, and rows of values of its layers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import looks_like_probabilities, warn_user, whole_number
from memowidgets.data import (
    Dataset,
    ImageDataset,
    MCQDataset,
    TableDataset,
    TextDataset,
)
from memowidgets.data.pairs import PairDataset, split_pair
from memowidgets.files import digest_of_arrays
from memowidgets.models.base import capture_outputs, restore_modes, unwrap
from memowidgets.models.device import room_for, used_precision
from memowidgets.progress import Progress
from memowidgets.training.checkpoint import (
    HELD_OUT,
    LAYER,
    SAMPLES,
    Allocate,
    Forward,
    arrays_of,
    device_of,
    filled_pass,
    in_memory,
)
from memowidgets.training.config import restore_random_states
from memowidgets.training.recorder import Unseen, Weights, trained_weights
from memowidgets.vocabulary import listed, quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

INPUT = ".input"
_BATCH = 64
_CHECKED = 8  # rows that each pass reads twice
_MASK = "attention_mask"
_HEAD = ""  # no part has this name
_LARGEST = 8192
_SIDE = 4
_TRIED = 2  # samples
_SAMPLED = 1024  # values of a frozen weight in a digest
# rounding of logits, on other devices and in other batches
_FLOAT32 = 1e-3
_SHORT = 5e-2
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Rows of a torch dataset or loader, and how they become batches.

    Attributes
    ----------
    rows : sequence of (inputs, label)
        The dataset.
    batch_size : int or None
        The loader's batch size.
    collate : callable or None
        The loader's function that makes a batch of pairs.
    workers : int
        The loader's number of worker processes.
    """

    rows: Any
    batch_size: int | None = None
    collate: Callable[[list[Any]], Any] | None = None
    workers: int = 0


def pairs_of(data: object) -> Pairs:
    """Return the rows of a torch dataset or of a loader that does not shuffle.

    Raises
    ------
    ValueError
        If the loader shuffles, or otherwise does not give each row once and in order.
    """
    from torch.utils.data import DataLoader, SequentialSampler

    if isinstance(data, Mapping):
        raise TypeError(
            f"data is a mapping of {listed(map(quoted, data), 5)}; pass one of them"
        )
    if not isinstance(data, DataLoader):
        return Pairs(data)
    sampler: Any = data.sampler
    if data.batch_sampler is not None:
        sampler = getattr(data.batch_sampler, "sampler", data.batch_sampler)
    if not isinstance(sampler, SequentialSampler):
        raise ValueError(  # noqa: TRY004 - its type is right
            f"data is a loader that shuffles or draws its rows ({type(sampler).__name__}); pass "
            "loader.dataset here. Your training loop may go on using the loader that shuffles"
        )
    return Pairs(data.dataset, data.batch_size, data.collate_fn, data.num_workers)


class Batches:
    """Batches of inputs on the CPU, each sample once.

    Parameters
    ----------
    data : Dataset
        A dataset of memowidgets, or the `PairDataset` of `pairs`.
    pairs : Pairs or None
        Where the rows of a `PairDataset` come from.
    batch_size : int or None
        Number of samples in a batch. None is the loader's, or 64.
    """

    def __init__(
        self, data: Dataset, pairs: Pairs | None, batch_size: int | None
    ) -> None:
        self._data = data
        self._pairs = pairs
        own = None if pairs is None else pairs.batch_size
        self.size = batch_size or own or _BATCH
        self._texts = _texts_of(data)
        # texts of similar length are together, to pad less
        lengths = (
            np.zeros(len(data)) if self._texts is None else [*map(len, self._texts)]
        )
        self._order = np.argsort(lengths, kind="stable")
        self._checks = 0

    def __len__(self) -> int:
        return math.ceil(len(self._data) / self.size)

    def __iter__(self) -> Iterator[tuple[Positions, Any]]:
        """Yield positions in the data, and the inputs of these samples."""
        return self._read(
            self._order, self.size, self._pairs.workers if self._pairs else 0
        )

    @property
    def rows(self) -> Any:
        """The torch dataset that the samples are read from, or None."""
        return None if self._pairs is None else self._pairs.rows

    def over(self, data: Dataset) -> Batches:
        """Return batches of other samples of the same kind."""
        pairs = None
        if self._pairs is not None and isinstance(data, PairDataset):
            pairs = replace(self._pairs, rows=data.as_pairs())
        return Batches(data, pairs, self.size)

    def check_steady(self) -> None:
        """Raise if rows differ from what was read first. Each call looks at other rows."""
        if isinstance(self._data, PairDataset):
            n = len(self._data)
            spread = np.arange(min(_CHECKED, n)) * n // min(_CHECKED, n)
            self._data.check_steady((spread + self._checks) % n)
            self._checks += 1

    def first(self, n: int) -> Any:
        """Return the inputs of the first samples."""
        return next(self._read(np.arange(min(n, len(self._data))), n, 0))[1]

    def _read(
        self, order: Positions, size: int, workers: int
    ) -> Iterator[tuple[Positions, Any]]:
        from torch.utils.data import DataLoader, Subset

        places = [order[i : i + size] for i in range(0, len(order), size)]
        if self._pairs is None:
            feed = _feeder(self._data, self._texts)
            return ((place, feed(place)) for place in places)
        rows = Subset(self._pairs.rows, order.tolist())
        loader = DataLoader(
            rows, size, collate_fn=self._pairs.collate, num_workers=workers
        )
        inputs = (split_pair(batch, "a batch of the data")[0] for batch in loader)
        return zip(places, inputs, strict=True)


def move_to(inputs: object, device: torch.device) -> Any:
    """Return inputs with every tensor on a device."""
    import torch

    if isinstance(inputs, torch.Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: move_to(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return type(inputs)(*(move_to(value, device) for value in inputs))
    if isinstance(inputs, tuple | list):
        return type(inputs)(move_to(value, device) for value in inputs)
    return inputs


def call_module(module: nn.Module, inputs: object) -> Any:
    """Return what a module gives for inputs: a mapping is passed by name, a tuple one by one."""
    given: Any = inputs if isinstance(inputs, tuple | list) else (inputs,)
    given, named = ((), inputs) if isinstance(inputs, Mapping) else (given, {})
    takes = inspect.signature(module.forward)
    try:
        takes.bind(*given, **named)
    except TypeError:  # some take a whole mapping
        given = (inputs,)
        named = {}
    try:
        return module(*given, **named)
    except (TypeError, AttributeError) as error:
        if not isinstance(inputs, Mapping):
            raise
        raise TypeError(
            f"rows of the data give {listed(map(quoted, inputs), 5)}, and the module takes "
            f"{listed(takes.parameters, 5)}; name the inputs alike, give tensors (a "
            "datasets.Dataset does .with_format('torch')), or pass forward="
        ) from error


def _texts_of(data: Dataset) -> Sequence[str] | None:
    """Return what a forward gets of texts or questions; None of other data."""
    if isinstance(data, MCQDataset):
        return [data.prompt(i) for i in range(len(data))]
    return data.texts if isinstance(data, TextDataset) else None


def _feeder(data: Dataset, texts: Sequence[str] | None) -> Callable[[Positions], Any]:
    """Return a function from positions to what a forward gets of a dataset of memowidgets."""
    import torch

    if texts is not None:
        return lambda place: [texts[i] for i in place]
    if isinstance(data, ImageDataset):
        from memowidgets.models import ConvNet

        return ConvNet().feeder(data, torch.device("cpu"))
    assert isinstance(data, TableDataset)  # noqa: S101 - for the type checker
    features = torch.from_numpy(data.encoded())
    return lambda place: features[torch.from_numpy(np.asarray(place))]


# layers


# by name a part's, and whether it is what goes into it
Layers = Mapping[str, tuple[str, bool]]


class Capture:
    """Activations of a pass, and the rows of values that they become.

    Use it as a context around passes, and ask for the `rows` of each batch.

    Parameters
    ----------
    module : Module
        The module that runs.
    layers : dict of str to (str, bool)
        Layers to capture, as `capture_outputs` takes them.
    head : str or None
        Name of the part that `last_layer` takes for the last linear layer, whose input is averaged
        over the positions of a sequence, unless it is known which of them it reads.

    Attributes
    ----------
    lengths : dict of str to set of int
        Numbers of positions of each layer that was averaged over all of them, padding included.
    """

    def __init__(self, module: nn.Module, layers: Layers, head: str | None) -> None:
        self._module = module
        self._layers = layers
        self._head = head
        self._raw: dict[str, Tensor] = {}
        self._mask: Tensor | None = None
        self._stack = ExitStack()
        self.lengths: dict[str, set[int]] = {}

    def __enter__(self) -> Self:
        head = {} if self._head is None else {_HEAD: (self._head, False)}
        places = {**self._layers, **head}
        self._raw = self._stack.enter_context(
            capture_outputs(self._module, places, _pool)
        )
        takers = (
            part for part in self._module.modules() if _MASK in _names_taken(part)
        )
        for part in takers if self._layers else ():
            hook = part.register_forward_pre_hook(self._keep_mask, with_kwargs=True)
            self._stack.callback(hook.remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _keep_mask(self, part: nn.Module, inputs: Any, named: Any) -> None:
        """Keep the first mask that a part receives in a pass, (batch, tokens)."""
        mask = (dict(zip(_names_taken(part), inputs, strict=False)) | named).get(_MASK)
        if self._mask is None and getattr(mask, "ndim", 0) == 2:
            self._mask = mask

    def rows(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the values of each sample at each layer, (batch, values).

        Raises
        ------
        ValueError
            If the forward pass leaves out a layer, or its first axis is not the batch.
        """
        from torch import nn

        silent = [name for name in self._layers if name not in self._raw]
        if silent:
            raise ValueError(
                f"the forward pass does not run {listed(map(quoted, silent))}, or they return no "
                "tensor; with layers=, choose others of module.named_modules()"
            )
        read_at = _read_at(self._raw.get(_HEAD), logits)
        rows = {}
        for name, (part_name, _) in self._layers.items():
            values = self._raw[name]
            if values.ndim == 0 or len(values) != len(logits):
                raise ValueError(
                    f"layer {quoted(name)} has the shape {tuple(values.shape)} for {len(logits)} "
                    "samples (batch_first=True?); choose other layers with layers="
                )
            row = _row(values, read_at, self._mask, averages=self._head is not None)
            if row is None:
                parts = self._module.get_submodule(part_name).modules()
                axis = 2 if any(isinstance(part, nn.Conv1d) for part in parts) else 1
                self.lengths.setdefault(name, set()).add(values.shape[axis])
                row = values.mean(dim=axis)
            rows[name] = row.float()
        self._raw.clear()
        self._mask = None
        return rows


def named_layers(module: nn.Module, names: Sequence[str] | str) -> Layers:
    """Return the layers that a user names, first to last.

    Raises
    ------
    ValueError
        If the module has no such part; the message lists those that it has.
    """
    asked = [names] if isinstance(names, str) else list(names)
    modules = dict(module.named_modules())
    modules.pop("")
    if not asked:
        raise ValueError('layers is empty; name parts of the module, or use "auto"')
    layers = {}
    for name in map(str, asked):
        part = name if name in modules else name.removesuffix(INPUT)
        if part not in modules:
            raise ValueError(
                f"the module has no layer {quoted(name)}; it has {listed(modules)}, and "
                f"'{next(iter(modules), 'name')}{INPUT}' is what goes into one"
            )
        layers[name] = part, part != name
    return layers


def last_layer(module: nn.Module, run: Callable[[], Tensor]) -> str:
    """Return the name of the linear layer that ends in the logits.

    Parameters
    ----------
    module : Module
        The module.
    run : callable
        Function that runs it on two samples, and returns the logits.

    Raises
    ------
    ValueError
        If not exactly one linear layer that runs has an output for each class. The logits may be
        distances to prototypes, or there is an auxiliary head.
    """
    from torch import nn

    linear = {
        name: part
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear)
        and ".lora_" not in name  # those of adapters do not count
    }
    outputs = {name: (name, False) for name in linear}
    with capture_outputs(module, outputs, lambda _name, _part, values: values) as ran:
        n_classes = run().shape[1]
    if "" in linear:
        raise ValueError(
            "the module is a single linear layer; audit its inputs with "
            "Audit.from_arrays(labels=, representations=, logits=)"
        )
    heads = [name for name in ran if linear[name].out_features == n_classes]
    if len(heads) != 1:
        raise ValueError(
            f"{len(heads)} linear layers that run have {n_classes} outputs, one for each class "
            f"({listed(map(quoted, heads or ran), 5) or 'no linear layer runs'}); name parts of "
            "module.named_modules() with layers=, first to last"
        )
    return heads[0]


def _read_at(head: Tensor | None, logits: Tensor) -> Tensor | None:
    """Return the position of each sample's sequence at which the logits are read, (batch,).

    A head over all tokens gives the returned logits at one of them, exactly.
    """
    if head is None or head.ndim != 3 or len(head) != len(logits):
        return None
    if head.shape[2] != logits.shape[1]:
        return None
    same = (head.float() == logits.float()[:, None]).all(dim=2)
    return same.int().argmax(dim=1) if bool(same.any(dim=1).all()) else None


def _names_taken(part: nn.Module) -> tuple[str, ...]:
    """Return the names of what the forward of a part takes."""
    try:
        return tuple(inspect.signature(part.forward).parameters)
    except (TypeError, ValueError):  # as in compiled modules
        return ()


def _row(
    values: Tensor, read_at: Tensor | None, mask: Tensor | None, *, averages: bool
) -> Tensor | None:
    """Return an activation as (batch, values). None if all positions are to be averaged."""
    import torch

    if values.ndim == 3:
        n, length = values.shape[:2]
        if read_at is not None and int(read_at.max()) < length:
            return values[torch.arange(n, device=values.device), read_at]
        if mask is not None and mask.shape == (n, length):
            weight = mask.to(values.dtype)[..., None]
            return (values * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)
        if averages or values[0].numel() > _LARGEST:
            return None
    return values.reshape(len(values), -1)


def _pool(name: str, part: nn.Module, values: Tensor) -> Tensor:
    """Return an activation of images with at most 4×4 places, if it is large."""
    from torch.nn.functional import adaptive_avg_pool2d

    if name == _HEAD or values.ndim != 4 or values[0].numel() <= _LARGEST:
        return values
    if _is_channels_last(part, values):
        values = values.permute(0, 3, 1, 2)
    return (
        adaptive_avg_pool2d(values, _SIDE) if max(values.shape[2:]) > _SIDE else values
    )


def _is_channels_last(part: nn.Module, values: Tensor) -> bool:
    """Return whether images are (batch, height, width, channels), by the widths of a part."""
    from torch import nn

    def widths(*kinds: type[nn.Module]) -> set[int]:
        inside = (p for p in part.modules() if isinstance(p, kinds))
        return {
            n for p in inside for w in p.parameters(recurse=False) for n in w.shape[:2]
        }

    is_last = values.shape[3] in widths(nn.Linear, nn.LayerNorm)
    return is_last and values.shape[1] not in widths(nn.Conv2d)


@dataclass(frozen=True)
class Looker:
    """Passes over a module that its user trains.

    Attributes
    ----------
    batches : Batches
        Inputs of the module.
    labels : array of shape (n,), int64
        Label of each sample.
    forward : callable
        Function of module and inputs that gives logits.
    layers : dict of str to (str, bool)
        Layers to capture, first to last, as `capture_outputs` takes them.
    head : str or None
        Name of the last linear layer, if the layers were chosen automatically.
    held_out : Looker or None
        Passes over samples that the loop does not train on.
    noun : str
        What the samples are called in errors.
    """

    batches: Batches
    labels: NDArray[np.int64]
    forward: Callable[[Any, Any], Any]
    layers: Layers
    head: str | None
    held_out: Looker | None = None
    noun: str = SAMPLES

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers, first to last."""
        return tuple(self.layers)

    def over(
        self, data: Dataset, *, capture: bool = True, noun: str = SAMPLES
    ) -> Looker:
        """Return passes over other samples of the same kind, without or with layers."""
        return replace(
            self,
            batches=self.batches.over(data),
            labels=data.labels,
            layers=self.layers if capture else {},
            head=self.head if capture else None,
            held_out=None,
            noun=noun,
        )

    def beside(self, held_out: Dataset) -> Looker:
        """Return these passes with others over held-out samples."""
        return replace(self, held_out=self.over(held_out, capture=False, noun=HELD_OUT))

    def look(
        self, module: nn.Module, progress: Progress, allocate: Allocate
    ) -> Forward:
        """Run the module over all samples. Module and random states stay unchanged.

        `allocate` creates the arrays that the pass fills, once, from their shapes by name and from
        the precision of the pass.

        Raises
        ------
        ValueError
            If the logits do not fit the labels, a layer has another width in each batch, or rows
            are no longer those that were read first.
        FloatingPointError
            If a loss is not finite.
        MemoryError
            If a batch does not fit into the GPU's memory beside the training.
        """
        import torch
        from torch.nn.functional import cross_entropy

        device = device_of(module)
        with (
            in_eval_mode(module),
            Capture(module, self.layers, self.head) as capture,
            used_precision(module) as used,
        ):
            self.batches.check_steady()

            def answer(place: Any, inputs: Any) -> dict[str, Tensor]:
                logits = ask(self.forward, module, move_to(inputs, device), len(place))
                layers = {LAYER + k: v for k, v in capture.rows(logits).items()}
                labels = torch.from_numpy(self.labels[place]).to(logits.device)
                losses = cross_entropy(logits.float(), labels, reduction="none")
                return {"logits": logits, "losses": losses, **layers}

            size = min(self.batches.size, len(self.labels))
            what = f"a forward pass over {size} samples at once beside the training"
            with room_for(what, "pass a smaller batch_size= to mw.watch"):
                result = filled_pass(
                    self.batches,
                    answer,
                    len(self.labels),
                    len(self.batches),
                    used,
                    progress=progress,
                    what="recording a checkpoint",
                    allocate=allocate,
                    noun=self.noun,
                )
        changing = {
            name: seen for name, seen in capture.lengths.items() if len(seen) > 1
        }
        if changing:
            seen = set.union(*changing.values())
            warn_user(
                f"batches have {min(seen)} to {max(seen)} positions and no attention_mask, so the "
                f"mean at {listed(map(quoted, changing), 5)} includes padding and depends on the "
                "batch; give the mask to a parameter attention_mask, or choose layers with layers="
            )
        return result

    def test(self, module: nn.Module, progress: Progress) -> Unseen | None:
        """Run the module over the held-out samples, if there are any."""
        if self.held_out is None:
            return None
        seen = self.held_out.look(module, progress, in_memory)
        return Unseen(seen, self.held_out.labels)

    def weights(self, module: nn.Module) -> Weights:
        """Return the digest alone: of the trained weights, and of some of each other tensor.

        A frozen backbone is large, and another one differs almost everywhere.
        """
        trained = trained_weights(module)
        others = {
            name: _sample_of(tensor)
            for name, tensor in tensors_of(module).items()
            if name not in trained and not tensor.is_meta
        }
        of_others = f"-{digest_of_arrays(arrays_of(others))}" if others else ""
        return Weights(digest_of_arrays(arrays_of(trained)) + of_others)

    def check_same(
        self, module: nn.Module, logits: NDArray[np.float32], precision: str
    ) -> None:
        """Raise if the first samples' logits are not those of a pass with the same weights.

        Raises
        ------
        ValueError
            If they differ by more than rounding explains.
        """
        # layers may scale by what is in a batch
        n = min(self.batches.size, len(self.labels))
        with in_eval_mode(module):
            inputs = move_to(self.batches.first(n), device_of(module))
            here = (
                ask(self.forward, module, inputs, n)
                .float()
                .cpu()
                .numpy()
                .astype(np.float64)
            )
        there = np.asarray(logits[:n], np.float64)
        apart = float(np.abs(here - there).max()) / max(
            float(np.abs(there).max()), 1e-30
        )
        if apart > (_FLOAT32 if precision == "float32" else _SHORT):
            raise ValueError(
                f"the logits of a recorded checkpoint differ here by {apart:.1g} of their size: "
                "its code or forward= has changed. Choose another path, or pass overwrite=True"
            )


def check_module(module: object) -> None:
    """Raise for anything that is not a module."""
    from torch import nn

    if not isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a torch.nn.Module, not {type(module).__name__}"
        )


def looker_of(
    module: nn.Module,
    data: Dataset,
    pairs: Pairs | None,
    forward: Callable[[Any, Any], Any] | None,
    layers: str | Sequence[str],
    batch_size: int | None,
    *,
    named: bool,
) -> tuple[Looker, Dataset]:
    """Return passes over samples as `mw.watch` describes them, and the samples with all classes.

    `pairs` says how a user's own samples become batches. The module is tried on two samples. Where
    classes are not `named` and the logits have more columns than labels occur, the data get a class
    for each.

    Raises
    ------
    ValueError, TypeError
        If it does not give logits for the classes, or a layer does not exist or has no rows.
    """
    if batch_size is not None:
        whole_number("batch_size", batch_size, 1)
    batches = Batches(data, pairs, batch_size)
    inner = unwrap(module)
    ask_module = forward or call_module

    def run_two() -> Tensor:
        return first_logits(inner, batches, ask_module)

    try:
        n_classes = run_two().shape[1]
    except RuntimeError as error:
        if "equal size" not in str(error):  # as torch's default_collate says
            raise
        raise ValueError(
            "rows differ in size; pass a DataLoader with collate_fn"
        ) from error
    data = _with_classes(data, n_classes, named=named)
    head = last_layer(inner, run_two) if layers == "auto" else None
    chosen = named_layers(inner, layers if head is None else head + INPUT)
    with Capture(inner, chosen, head) as capture:
        # a layer without rows is refused before there is a folder
        capture.rows(run_two())
    return Looker(batches, data.labels, ask_module, chosen, head), data


def _with_classes(data: Dataset, n_classes: int, *, named: bool) -> Dataset:
    """Return the data with a class for each column of the logits.

    Raises
    ------
    ValueError
        If the logits do not have one column for each class.
    """
    n = len(data.class_names)
    if n == n_classes:
        return data
    numbered = not named and data.class_names == tuple(map(str, range(n)))
    if isinstance(data, PairDataset) and numbered and n < n_classes:
        return replace(data, class_names=tuple(map(str, range(n_classes))))
    raise ValueError(
        f"the module returns logits for {n_classes} classes, but the data have {n} "
        f"({listed(data.class_names, 5)}); they must have the same"
    )


def first_logits(
    module: nn.Module, batches: Batches, forward: Callable[[Any, Any], Any]
) -> Tensor:
    """Run a module on two samples, and return their logits, (2, n_classes).

    Raises
    ------
    ValueError, TypeError
        If it does not give logits.
    """
    with in_eval_mode(module):
        inputs = move_to(batches.first(_TRIED), device_of(module))
        logits = ask(forward, module, inputs, _TRIED)
    if looks_like_probabilities(logits.float().cpu().numpy()):
        raise ValueError(
            "the module returns probabilities, not logits; pass forward=, a function that returns "
            "their logarithm, such as lambda module, inputs: module(inputs).log()"
        )
    return logits


def ask(
    forward: Callable[[Any, Any], Any], module: nn.Module, inputs: object, n: int
) -> Tensor:
    """Return the logits of a batch of n samples.

    Raises
    ------
    ValueError
        If what the forward returns is not a column of logits for each class.
    """
    output = forward(module, inputs)
    result = output.get("logits") if isinstance(output, dict) else None
    result = getattr(output, "logits", output) if result is None else result
    advice = "pass forward=, a function of (module, inputs) that returns such logits"
    if isinstance(result, tuple | list) and result:
        tables = [
            t
            for t in result
            if getattr(t, "ndim", 0) == 2 and len(t) == n and t.shape[1] > 1
        ]
        narrow = min((table.shape[1] for table in tables), default=0)
        result = result[0]
        if tables and result is tables[0] and result.shape[1] > narrow:
            raise ValueError(
                f"the module returns several outputs, the first with {result.shape[1]} columns and "
                f"another with {narrow}, so the first may be features and not logits; {advice}"
            )
    shape = tuple(getattr(result, "shape", ()))
    if len(shape) != 2 or shape[0] != n or shape[1] < 2:
        raise ValueError(
            f"the module returns {type(result).__name__} of shape {shape} for {n} samples, not "
            f"logits (batch, classes); {advice}, for one logit z torch.cat([0 * z, z], dim=1)"
        )
    logits: Tensor = result
    return logits


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a module's state by name."""
    return {
        n: value for n, value in module.state_dict().items() if hasattr(value, "detach")
    }


def _sample_of(tensor: Tensor) -> Tensor:
    import torch

    values = tensor.detach()
    if type(values) not in (torch.Tensor, torch.nn.Parameter):
        values = values.dequantize()  # such values have no views
    some = values.reshape(-1)[:: max(1, values.numel() // _SAMPLED)]
    # NumPy lacks most short types
    return some.float() if some.is_floating_point() else some


@contextmanager
def in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Put a module in eval mode for passes without gradients, and restore everything afterwards.

    Buffers that a forward pass changed are restored; the others are not written to. An active
    autocast does not remember weights that it casts here without gradients.
    """
    import torch

    device = device_of(module)
    with ExitStack() as stack:
        stack.enter_context(restore_random_states(device))
        stack.enter_context(restore_modes(module))
        for part in module.modules():
            part.training = False
        before = [
            (part, name, buffer, buffer.clone())
            for part in module.modules()
            for name, buffer in part._buffers.items()  # noqa: SLF001 - the registered ones
            if buffer is not None
        ]
        stack.enter_context(torch.no_grad())
        kind = device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            stack.enter_context(torch.autocast(kind, dtype, cache_enabled=False))
        try:
            yield
        finally:
            for part, name, buffer, content in before:
                part._buffers[name] = buffer  # noqa: SLF001
                if not torch.equal(buffer, content):
                    buffer.copy_(content)
