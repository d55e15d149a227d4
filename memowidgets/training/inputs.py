"""Batches of inputs for passes over a user's data, in a fixed order."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset, ImageDataset, MCQDataset, TableDataset, TextDataset
from memowidgets.data.pairs import PairDataset, split_pair
from memowidgets.visible import listed, quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_BATCH = 64
_CHECKED = 8  # rows that each pass reads twice
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


def pairs_of(data: Any) -> Pairs:
    """Return the rows of a torch dataset or of a loader that does not shuffle.

    Raises
    ------
    ValueError
        If the loader shuffles, or otherwise does not give each row once and in order.
    """
    from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

    if isinstance(data, Mapping):
        raise TypeError(
            f"data is a mapping of {listed(map(quoted, data), 5)}; pass one dataset, such as one "
            "of its splits"
        )
    if isinstance(data, IterableDataset) or isinstance(
        getattr(data, "dataset", None), IterableDataset
    ):
        raise TypeError(
            "data is a stream (IterableDataset), which has no order to read it in again; pass a "
            "dataset with a length"
        )
    if not isinstance(data, DataLoader):
        return Pairs(data)
    sampler: Any = data.sampler
    if data.batch_sampler is not None:
        sampler = getattr(data.batch_sampler, "sampler", data.batch_sampler)
    if not isinstance(sampler, SequentialSampler):
        raise ValueError(  # noqa: TRY004 - its type is right
            f"data is a loader that shuffles or draws its rows ({type(sampler).__name__}), so its "
            "batches cannot be told apart by their order; pass loader.dataset, or a loader with "
            "shuffle=False. Your training loop may go on using the loader that shuffles"
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

    def __init__(self, data: Dataset, pairs: Pairs | None, batch_size: int | None) -> None:
        self._data, self._pairs = data, pairs
        own = None if pairs is None else pairs.batch_size
        self.size = batch_size or own or _BATCH
        self._texts = _texts_of(data)
        # texts of similar length are together, to pad less
        lengths = np.zeros(len(data)) if self._texts is None else [*map(len, self._texts)]
        self._order = np.argsort(lengths, kind="stable")
        self._checks = 0

    def __len__(self) -> int:
        return math.ceil(len(self._data) / self.size)

    def __iter__(self) -> Iterator[tuple[Positions, Any]]:
        """Yield positions in the data, and the inputs of these samples."""
        return self._read(self._order, self.size, self._pairs.workers if self._pairs else 0)

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

    def _read(self, order: Positions, size: int, workers: int) -> Iterator[tuple[Positions, Any]]:
        places = [order[i : i + size] for i in range(0, len(order), size)]
        if self._pairs is None:
            feed = _feeder(self._data, self._texts)
            return ((place, feed(place)) for place in places)
        return zip(places, self._collated(order, size, workers), strict=True)

    def _collated(self, order: Positions, size: int, workers: int) -> Iterator[Any]:
        from torch.utils.data import DataLoader, Subset

        pairs = self._pairs
        assert pairs is not None  # noqa: S101 - for the type checker
        loader = DataLoader(
            Subset(pairs.rows, order.tolist()),
            batch_size=size,
            collate_fn=pairs.collate,
            num_workers=workers,
        )
        for batch in loader:
            yield split_pair(batch, "a batch of the data")[0]


def move_to(inputs: Any, device: torch.device) -> Any:
    """Return inputs with every tensor on a device."""
    return _change_tensors(inputs, lambda tensor: tensor.to(device))


def _change_tensors(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return inputs with every tensor changed."""
    import torch

    if isinstance(inputs, torch.Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {name: _change_tensors(value, change) for name, value in inputs.items()}
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return type(inputs)(*(_change_tensors(value, change) for value in inputs))
    if isinstance(inputs, tuple | list):
        return type(inputs)(_change_tensors(value, change) for value in inputs)
    return inputs


def call_module(module: nn.Module, inputs: Any) -> Any:
    """Return what a module gives for inputs: a mapping is passed by name, a tuple one by one.

    A module with weights in half precision gets floating-point inputs in that precision.
    """
    inputs = _in_precision_of(module, inputs)
    takes = inspect.signature(module.forward)
    plain = not isinstance(inputs, Mapping | tuple | list)
    try:
        if isinstance(inputs, Mapping) and _binds(takes, **inputs):
            plain = not any(isinstance(value, list) for value in inputs.values())
            return module(**inputs)
        if isinstance(inputs, tuple | list) and _binds(takes, *inputs):
            plain = True
            return module(*inputs)
        return module(inputs)  # some take a whole mapping
    except (TypeError, AttributeError) as error:
        if plain:  # a fault of the module itself
            raise
        given = listed(map(quoted, inputs), 5) if isinstance(inputs, Mapping) else "lists"
        raise TypeError(
            f"rows of the data give {given}, with which the module, that takes "
            f"{listed(takes.parameters, 5)}, cannot be called; name the inputs alike, give tensors "
            "(a datasets.Dataset does .with_format('torch')), or pass forward=, a function of "
            "(module, inputs) that returns logits"
        ) from error


def _in_precision_of(module: nn.Module, inputs: Any) -> Any:
    import torch

    weight = next((p for p in module.parameters() if p.is_floating_point()), None)
    if weight is None or weight.dtype not in (torch.bfloat16, torch.float16):
        return inputs
    dtype = weight.dtype
    return _change_tensors(inputs, lambda t: t.to(dtype) if t.is_floating_point() else t)


def _binds(takes: inspect.Signature, *given: Any, **named: Any) -> bool:
    try:
        takes.bind(*given, **named)
    except TypeError:
        return False
    return True


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
    if isinstance(data, TableDataset):
        features = torch.from_numpy(data.encoded())
        return lambda place: features[torch.from_numpy(np.asarray(place))]
    return lambda place: [data[int(i)] for i in place]
