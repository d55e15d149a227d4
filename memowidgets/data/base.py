"""Base class of datasets: ids, labels, class names, canaries, and a hash of each sample."""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import as_code, numbered_labels, several, to_numpy, warn_user
from memowidgets.visible import listed, quoted

if TYPE_CHECKING:
    import os


_MANY, _NAMED = 1000, 3
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class Dataset(abc.ABC):
    """Labelled samples with unique ids.

    Attributes
    ----------
    ids : array of shape (n,), str
        Unique names of the samples.
    labels : array of shape (n,), int64
        Label that each sample is trained on, from 0 to ``len(class_names) - 1``.
    class_names : tuple of str
        Names of the classes.
    canaries : array of shape (n,), bool, or None
        Whether each sample is a canary, planted so that a model must memorise it. None if unknown.
    source : dict or None
        Loader and arguments that give the same dataset again. None if only its owner can.
    encoding : mapping of str to array
        Numbers of a fitted encoding. Empty for samples that need none.
    """

    ids: NDArray[np.str_]
    labels: IntArray
    class_names: tuple[str, ...]
    canaries: BoolArray | None
    source: dict[str, Any] | None
    encoding: Mapping[str, NDArray[Any]] = MappingProxyType({})

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", checked_ids(self.ids, len(self.labels)))  # it is frozen

    def __len__(self) -> int:
        return len(self.labels)

    @abc.abstractmethod
    def __getitem__(self, index: int) -> Any:
        """Return one sample."""

    @abc.abstractmethod
    def take(self, indices: ArrayLike) -> Self:
        """Return the samples at these positions, in this order, or of a mask, as a dataset.

        Raises
        ------
        IndexError
            If there is no sample at a position.
        TypeError, ValueError
            If these are neither positions nor a mask over the samples.
        """

    def with_labels(self, labels: ArrayLike) -> Self:
        """Return the same samples with other labels, (n,), as numbers or names of classes.

        Raises
        ------
        ValueError
            If a label is missing or is not a class, or there is not one for each sample.
        """
        numbers, _ = numbered_labels(labels, self.class_names)
        changed = checked_labels(numbers, self.class_names)
        if len(changed) != len(self):
            raise ValueError(f"{len(changed)} labels for {len(self)} samples; pass one for each")
        return cast("Self", dataclasses.replace(cast("Any", self), labels=changed, source=None))

    def fitted(self, rows: ArrayLike) -> Self:  # noqa: ARG002 - for tables
        """Return the same samples with an encoding that is fitted on the rows at these positions.

        An audit calls it with its pool. Samples that need no encoding are returned unchanged.
        """
        return self

    def with_encoding(self, encoding: Mapping[str, NDArray[Any]]) -> Self:  # noqa: ARG002
        """Return the same samples with an encoding that was fitted before; unchanged by default."""
        return self

    def shared(self, folder: str | os.PathLike[str]) -> Self:  # noqa: ARG002 - where it helps
        """Return the same samples in the form that uses the least memory in many processes."""
        return self

    @abc.abstractmethod
    def content_hashes(self) -> list[str]:
        """Return a hash of each sample's content without its label, equal for duplicates."""


def one_position(index: Any, n: int) -> int:
    """Return a position from 0 to n - 1; a negative one counts from the end.

    Raises
    ------
    IndexError
        If it is out of range.
    TypeError
        If it is not one position, but a slice or several of them.
    """
    if isinstance(index, bool | np.bool_) or not isinstance(index, int | np.integer):
        raise TypeError(
            f"data[i] is one sample, and i is its position, not {as_code(index)}; for several, "
            "use take(), such as data.take(range(3))"
        )
    if not -n <= index < n:
        raise IndexError(f"there is no sample at {index}: the data have {n}")
    return int(index) % n


def chosen_positions(indices: ArrayLike, n: int) -> NDArray[np.int64]:
    """Return positions from 0 to n - 1: those of a mask, or as given, negative ones from the end.

    Raises
    ------
    IndexError
        If a position is out of range.
    TypeError, ValueError
        If they are neither positions nor a mask over n samples.
    """
    array = to_numpy(indices)
    if array.dtype == np.bool_ and array.shape == (n,):
        return np.flatnonzero(array)
    if array.dtype == np.bool_:
        raise ValueError(f"a mask over {n} samples has shape ({n},), not {array.shape}")
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            "take() needs positions or a mask, such as data.take([0, 1]) or "
            "data.take(data.labels == 1)"
        )
    outside = (array < -n) | (array >= n)
    if outside.any():
        raise IndexError(f"there is no sample at {array[outside][0]}: the data have {n}")
    return array.astype(np.int64) % n


def checked_classes(
    labels: ArrayLike,
    class_names: Sequence[str] | None,
    where: Callable[[int], str] = "row {}".format,
) -> tuple[IntArray, tuple[str, ...]]:
    """Return labels as integers from 0, and the names of their classes.

    Labels can be strings: then the classes are `class_names`, or the strings that occur, sorted.
    A class that never occurs gets a warning, and so do two that are written almost alike.
    """
    numbers, names = numbered_labels(labels, class_names, where)
    integers = checked_labels(numbers, names)
    known = checked_class_names(names, integers)
    warn_of_absent(integers, known, numbered=class_names is None)
    if class_names is None:
        _warn_of_alike(known)
    return integers, known


def warn_of_absent(labels: IntArray, class_names: Sequence[str], *, numbered: bool) -> None:
    """Warn of classes that no label has; `numbered` says whether they have no names but numbers."""
    counts = np.bincount(labels, minlength=len(class_names))
    absent = [name for name, count in zip(class_names, counts, strict=True) if not count]
    if not absent:
        return
    remedy = (
        f"number the classes from 0 to {len(class_names) - len(absent) - 1} without a gap, or pass "
        "the labels as strings"
        if numbered
        else "leave them out of class_names, unless other data have them"
    )
    warn_user(
        f"{len(absent)} of {len(class_names)} classes never occur in the labels: "
        f"{listed(absent, most=5)}; {remedy}"
    )


def _warn_of_alike(class_names: Sequence[str]) -> None:
    """Warn of classes with almost the same name, as in a careless column."""
    first: dict[str, str] = {}
    for name in class_names:
        other = first.setdefault(_alike(name), name)
        if other != name:
            warn_user(
                f"the classes {quoted(other)} and {quoted(name)} differ only in capitals or "
                "spaces, or as 1 and 1.0 do, and are two classes; write them alike if they are one"
            )
            return


def _alike(name: str) -> str:
    """Return what almost equal names have in common; A and a are letters of an alphabet."""
    plain = re.sub(r"^(\d+)\.0+$", r"\1", " ".join(name.split()))
    return plain.casefold() if len(plain) > 1 else plain


def checked_labels(labels: ArrayLike, class_names: Sequence[str] | None) -> IntArray:
    """Return labels as integers from 0, or raise an error that names the first bad one."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"labels must be one-dimensional, not of shape {array.shape}")
    if array.size == 0:
        raise ValueError("the dataset is empty: labels has no entry")
    if array.dtype.kind not in "iub" and not _whole_numbers(array):
        raise ValueError(
            f"labels must be integers from 0, not {array.dtype}; number the classes and pass "
            "their names as class_names"
        )
    integers = array.astype(np.int64)
    if class_names is None and integers.max() > max(_MANY, 10 * len(array)):
        raise ValueError(
            f"labels must be integers from 0; the largest is {integers.max()} for {len(array)} "
            "samples; number the classes and pass their names as class_names"
        )
    limit = len(class_names) if class_names is not None else None
    wrong = (integers < 0) | (integers >= limit if limit is not None else False)
    if wrong.any():
        row = int(np.argmax(wrong))
        upper = f"{limit - 1}" if limit is not None else "the number of classes less one"
        raise ValueError(f"labels must lie between 0 and {upper}; row {row} is {integers[row]}")
    return integers


def checked_ids(ids: Sequence[str] | NDArray[Any] | None, n: int) -> NDArray[np.str_]:
    """Return ids as unique strings without NUL, numbered from 0 if none are given."""
    if ids is None:
        width = len(str(n - 1))
        return np.array([f"{i:0{width}d}" for i in range(n)])
    names = [str(i) for i in several("ids", ids)]
    if len(names) != n:
        raise ValueError(f"{len(names)} ids for {n} samples; pass one for each")
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise ValueError(f"ids must be unique; {quoted(name)} occurs more than once")
        if "\0" in name:  # at the end of a text, NumPy would drop it
            raise ValueError(
                f"the id {quoted(name)} of row {row} has a NUL character; give the sample another"
            )
        if _HALF_CHARACTERS.search(name):
            raise ValueError(
                f"the id {quoted(name)} of row {row} has half a character (a lone surrogate), "
                "which cannot be written; give the sample another"
            )
        seen.add(name)
    return np.array(names, dtype=np.str_)


def checked_class_names(class_names: Sequence[str] | None, labels: IntArray) -> tuple[str, ...]:
    """Return the names of the classes, by default their numbers; one class is an error."""
    if class_names is None:
        class_names = [str(c) for c in range(int(labels.max()) + 1)]
    if len(np.unique(labels)) < 2:
        raise ValueError(
            f"all {len(labels)} samples have the label {_named(class_names, labels[0])}: a "
            "classifier needs at "
            "least two classes"
        )
    names = tuple(str(name) for name in class_names)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"class_names must be unique; {quoted(twice)} occurs more than once")
    check_whole_characters(names, "the class name")
    return names


def check_whole_characters(texts: Iterable[str], what: str) -> None:
    """Raise for a text with a lone surrogate, which can be neither written nor tokenized."""
    for text in texts:
        if _HALF_CHARACTERS.search(text):
            raise ValueError(
                f"{what} {quoted(text)} has half a character (a lone surrogate), which cannot be "
                "written; correct the text's encoding"
            )


def warn_of_contradictions(
    what: str, contents: Iterable[object], labels: IntArray, ids: NDArray[np.str_]
) -> None:
    """Warn of equal samples with different labels, and list their ids."""
    groups: dict[object, list[int]] = {}
    for row, content in enumerate(contents):
        groups.setdefault(content, []).append(row)
    found = [rows for rows in groups.values() if len({int(labels[row]) for row in rows}) > 1]
    if found:
        shown = [" = ".join(str(ids[row]) for row in rows[:_NAMED]) for rows in found]
        warn_user(
            f"{sum(map(len, found))} {what} are equal to others and have another label, so they "
            f"are label errors or ambiguous; correct or remove them: {listed(shown, most=10)}"
        )


def _whole_numbers(array: NDArray[Any]) -> bool:
    return bool(
        array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.floor(array)).all()
    )


def _named(class_names: Sequence[str], label: int) -> str:
    name = class_names[label] if label < len(class_names) else str(label)
    return str(label) if name == str(label) else f"{label} ({quoted(name)})"
