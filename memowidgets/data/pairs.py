"""Torch datasets of (inputs, label) pairs, whose inputs are read when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import to_numpy
from memowidgets.data.dataset import (
    Dataset,
    IntArray,
    WithheldSample,
    checked_classes,
    checked_ids,
)
from memowidgets.data.images import ImageSample
from memowidgets.files import digest_of
from memowidgets.vocabulary import listed

_LABELS = ("labels", "label")
_SMALLEST_SIDE = 4  # pixels of an image
_READ_TWICE = 16  # rows; each random draw that they survive halves the doubt at least


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class PairDataset(Dataset):
    """Samples of a torch dataset, or any sequence, of (inputs, label) pairs.

    It holds labels and content hashes; inputs are read from the sequence when they are needed.

    Attributes
    ----------
    pairs : sequence of (inputs, label)
        The sequence. A pair may also be a mapping that has ``label`` or ``labels``.
    rows : array of shape (n,), int64
        Position of each sample in `pairs`.
    hashes : tuple of str
        Hash of each sample's inputs.
    are_images : bool
        Whether inputs are images: tensors of shape (1 or 3, height, width).
    ids, labels, class_names, canaries, source
        As in `Dataset`.

    Examples
    --------
    >>> pairs = [(np.zeros(3), 0), (np.ones(3), 1), (np.ones(3), 1)]
    >>> data = PairDataset.from_pairs(pairs)
    >>> data, data.labels.tolist()
    (PairDataset(3 pairs, 2 classes), [0, 1, 1])
    """

    pairs: Any = field(repr=False)
    rows: IntArray
    hashes: tuple[str, ...]
    are_images: bool = False

    _fields: ClassVar[tuple[str, ...]] = ("rows", "hashes")
    _noun: ClassVar[str] = "pairs"

    @classmethod
    def from_pairs(
        cls,
        pairs: Any,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        report: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Self:
        """Read every pair once, for its label and its hash.

        Parameters
        ----------
        pairs : sequence of (inputs, label)
            As in `PairDataset`. Labels are integers from 0, or strings, which are sorted into
            classes.
        class_names : sequence of str, optional
            Names of the classes. By default the labels that occur.
        ids : sequence of str, optional
            Unique names of the samples. By default their positions, for a ``Subset`` of torch (such
            as one of ``random_split``) those in the whole dataset.
        report : callable, optional
            Function that is called with the number of pairs read so far and the total number.

        Raises
        ------
        TypeError
            If it is not a sequence of pairs.
        ValueError
            If a label is missing or is not one class, or a row differs when it is read again. The
            message names the row.
        """
        if not hasattr(pairs, "__len__") or not hasattr(pairs, "__getitem__"):
            raise TypeError(
                "each of data and held_out must be a dataset with a length, whose item i is a pair "
                f"(inputs, label); {type(pairs).__name__} has no order to read it in again"
            )
        hashes = []
        raw_labels = []
        images = True
        for row in range(len(pairs)):
            report(row, len(pairs))
            inputs, label = split_pair(pairs[row], f"row {row} of the data")
            hashes.append(_hash(inputs))
            raw_labels.append(_label(label, row))
            images = images and _is_image(inputs)
        labels, names = checked_classes(
            raw_labels, class_names, "row {} of the data".format
        )
        for row in np.unique(np.linspace(0, len(pairs) - 1, _READ_TWICE).astype(int)):
            _check_steady(pairs, int(row), hashes[row], raw_labels[row])
        return cls(
            checked_ids(_names(pairs) if ids is None else ids, len(pairs)),
            labels,
            names,
            pairs=pairs,
            rows=np.arange(len(pairs)),
            hashes=tuple(hashes),
            are_images=images,
        )

    def _summary(self) -> Iterable[str]:
        return [f"{len(self)} pairs", f"{len(self.class_names)} classes"]

    def _sample(self, index: int) -> ImageSample | WithheldSample:
        name = str(self.ids[index])
        label = int(self.labels[index])
        if not self.are_images:
            return WithheldSample(name, label)
        inputs, _ = split_pair(self.pairs[int(self.rows[index])], name)
        return ImageSample(name, _pixels(inputs), label)

    def with_canaries(self, *_given: Any, **_named: Any) -> Self:
        """Raise, because the labels that are trained on are those of the pairs."""
        raise TypeError(
            "the labels of pairs are those of your torch dataset; plant canaries there, or make an "
            "ImageDataset or a TextDataset of the samples"
        )

    def as_pairs(self) -> Any:
        """Return the samples' pairs as a torch dataset, to train on."""
        from torch.utils.data import Subset

        return Subset(self.pairs, self.rows.tolist())

    def check_steady(self, samples: ArrayLike) -> None:
        """Raise if the samples at these positions have other inputs than when they were read.

        Raises
        ------
        ValueError
            If one has. The message names its row.
        """
        for i in np.asarray(samples, dtype=np.int64):
            _check_steady(self.pairs, int(self.rows[i]), self.hashes[i])

    def content_hashes(self) -> list[str]:
        """Return the SHA-256 of each sample's inputs, 16 hexadecimal digits."""
        return list(self.hashes)


def _names(pairs: Any) -> list[str] | None:
    """Return the positions of a subset's rows in the whole dataset as names, if it is one."""
    from torch.utils.data import Subset

    if not isinstance(pairs, Subset):
        return None
    whole: Any = pairs
    rows = np.arange(len(pairs))
    while isinstance(whole, Subset):
        rows = np.asarray(whole.indices)[rows]
        whole = whole.dataset
    if len(set(rows.tolist())) < len(rows):  # drawn with replacement
        return None
    return list(map(str, rows.tolist()))


def split_pair(pair: Any, where: str) -> tuple[Any, Any]:
    """Return inputs and label of a pair, or of a mapping that has ``label`` or ``labels``.

    Raises
    ------
    TypeError
        If it is neither; the message begins with `where`.
    """
    if isinstance(pair, Mapping):
        key = next((name for name in _LABELS if name in pair), None)
        if key is not None:
            return {name: value for name, value in pair.items() if name != key}, pair[
                key
            ]
        raise TypeError(f"{where} must have 'label' or 'labels'; it has {listed(pair)}")
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return pair[0], pair[1]
    parts = f" of {len(pair)}" if isinstance(pair, tuple | list) else ""
    raise TypeError(
        f"{where} must be a pair (inputs, label), not a {type(pair).__name__}{parts}; put several "
        "inputs into one tuple: ((a, b), label)"
    )


def _leaves(inputs: Any) -> Iterator[Any]:
    if isinstance(inputs, Mapping):
        for name in sorted(inputs, key=str):
            yield str(name)
            yield from _leaves(inputs[name])
    elif isinstance(inputs, tuple | list):
        yield len(inputs)
        for part in inputs:
            yield from _leaves(part)
    else:
        yield inputs


def _hash(inputs: Any) -> str:
    parts: list[str | bytes] = []
    for leaf in _leaves(inputs):
        if isinstance(leaf, str | bytes | int | float | None):
            parts.append(f"{type(leaf).__name__} {leaf!r}")
        else:  # tensors, arrays and pictures
            values = to_numpy(leaf, "an input")
            parts += [
                f"{values.dtype}{values.shape}",
                np.ascontiguousarray(values).tobytes(),
            ]
    return digest_of(*parts)


def _check_steady(pairs: Any, row: int, known: str, label: Any = None) -> None:
    """Raise if a row has another hash than the known one, or another label if that is given."""
    inputs, again = split_pair(pairs[row], f"row {row} of the data")
    if _hash(inputs) != known or (label is not None and _label(again, row) != label):
        raise ValueError(
            f"row {row} of the data differs each time that it is read; pass the training "
            "samples without random augmentation, in a dataset of their own"
        )


def _label(label: Any, row: int) -> Any:
    """Return a label as a number or a text, or raise for several of them."""
    if not hasattr(label, "detach") and not isinstance(label, np.ndarray):
        return label
    values = to_numpy(label, "a label")
    if values.size != 1:
        raise ValueError(
            f"the label of row {row} of the data has {values.size} values, so each sample has "
            "several labels or none; memowidgets audits classifiers with one class for each sample"
        )
    return values.reshape(())[()]


def _is_image(inputs: Any) -> bool:
    shape: Sequence[int] = getattr(inputs, "shape", ())
    if len(shape) != 3 or shape[0] not in (1, 3) or min(shape[1:]) < _SMALLEST_SIDE:
        return False
    is_tensor = hasattr(inputs, "detach")
    return is_tensor and (
        inputs.is_floating_point() or str(inputs.dtype) == "torch.uint8"
    )


def _pixels(image: Any) -> NDArray[np.uint8]:
    """Return a tensor of an image as bytes; one that was normalised is stretched to 0 to 255."""
    array = np.moveaxis(to_numpy(image), 0, -1)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    values = np.nan_to_num(array.astype(np.float64))
    low = float(values.min())
    high = float(values.max())
    if low < 0 or high > 1:
        values = (values - low) / max(high - low, np.finfo(float).tiny)
    return np.rint(255 * values).astype(np.uint8)
