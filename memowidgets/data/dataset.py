"""Dataset: samples of any kind with ids, labels, canaries and a hash of each sample's content."""

from __future__ import annotations

import abc
import dataclasses
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import (
    check_same_order,
    id_text,
    index_of,
    is_missing,
    numbered_labels,
    several,
    to_numpy,
    warn_user,
    whole_number,
)
from memowidgets.files import check_outside_runs, checked_path, digest_of
from memowidgets.vocabulary import HALF_CHARACTERS, listed, quoted, verb

if TYPE_CHECKING:
    import os

    import pandas as pd


ID = "id"  # column of ids
_MANY = 1000
_NAMED = 3
_PARTS = {  # what tells a kind of sample
    "image": ["image"],
    "question": ["question", "choices"],
    "record": ["text"],
    "row": ["values"],
    "withheld": ["id", "label"],
}

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Dataset(abc.ABC):
    """Labelled samples with unique ids.

    A kind of data is a frozen dataclass that adds fields by keyword, with one value for each
    sample. It names
    them in `_fields`, and says what a sample is (`_sample`), what its content is (`_contents`) and
    what ``repr`` shows (`_summary`). Everything else is the same for all kinds and is here.

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
    encoding : object or None
        A fitted encoding. None for samples that need none.
    own_ids : pandas.Index or None
        The ids as the owner's frame has them, such as numbers or dates. None where they are texts.
    """

    ids: NDArray[np.str_]
    labels: IntArray
    class_names: tuple[str, ...]
    canaries: BoolArray | None = None
    source: dict[str, Any] | None = None
    encoding: Any = None
    own_ids: Any = None

    _fields: ClassVar[tuple[str, ...]] = ()  # with one value for each sample
    _noun: ClassVar[str] = "samples"  # in messages

    def __post_init__(self) -> None:
        # it is frozen
        object.__setattr__(self, "ids", checked_ids(self.ids, len(self.labels)))
        own = self.own_ids
        if own is not None and list(map(id_text, own)) != self.ids.tolist():
            object.__setattr__(self, "own_ids", None)  # the ids are new
        if self.canaries is not None:  # what is given away changes no later answer
            canaries = np.array(to_numpy(self.canaries, "canaries"), dtype=np.bool_)
            canaries.flags.writeable = False
            object.__setattr__(self, "canaries", canaries)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def index(self) -> pd.Index[Any]:
        """The ids as the owner's frame has them, so that ``frame.loc[data.index]`` are its rows.

        They are texts where the samples come from no frame.
        """
        import pandas as pd

        return pd.Index(self.ids, name=ID) if self.own_ids is None else self.own_ids

    def __repr__(self) -> str:
        parts = list(self._summary())
        if self.canaries is not None:
            parts.append(f"{int(self.canaries.sum())} canaries")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __getitem__(self, index: int) -> Any:
        """Return one sample; `take` returns several of them.

        Raises
        ------
        IndexError
            If there is no sample at this position.
        TypeError
            If it is not one position, but a slice or several of them.
        """
        if isinstance(index, slice | bool | np.bool_):
            raise TypeError(
                "data[i] is one sample; for several, use take(): data.take(range(3))"
            )
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"there is no sample at {index}: the data have {n}")
        return self._sample(int(index) % n)

    @abc.abstractmethod
    def _sample(self, index: int) -> Any:
        """Return the sample at a position from 0."""

    @abc.abstractmethod
    def _summary(self) -> Iterable[str]:
        """Return what ``repr`` shows, besides the canaries."""

    def _contents(self) -> Iterable[bytes]:
        """Return the content of each sample, without its label."""
        raise NotImplementedError

    def content_hashes(self) -> list[str]:
        """Return a hash of each sample's content without its label, equal for duplicates.

        A hash is the first 16 hexadecimal digits of a SHA-256.
        """
        return list(map(digest_of, self._contents()))

    def is_canary(self, index: int) -> bool:
        """Return whether the sample at this position is known to be a canary."""
        return self.canaries is not None and bool(self.canaries[index])

    def take(self, indices: Any) -> Self:
        """Return the samples at these positions, in this order, as a dataset.

        Parameters
        ----------
        indices : array-like of int, mask of shape (n,), pandas.Index or array-like of ids
            Positions or a mask. An Index, such as that of `Audit.flagged`, has ids, and so have
            values that are not numbers.

        Raises
        ------
        IndexError
            If there is no sample at a position, or these are neither positions nor ids nor a mask
            over the samples.
        ValueError
            If no sample has an id, or a Series is a mask over the samples in another order.
        """
        array = np.atleast_1d(to_numpy(indices, "indices"))
        if index_of(indices) is indices or array.dtype.kind not in "biufc":
            array = np.array(self._positions(indices), dtype=np.int64)
        elif array.dtype.kind == "b":
            check_same_order(data=self, mask=indices)
        elif array.size and array.dtype.kind not in "iu":
            raise IndexError(
                f"take needs positions, a mask or ids, not {array.tolist()[0]!r}"
            )
        chosen = np.arange(len(self))[array if array.size else array.astype(np.int64)]
        fields = (*self._fields, "ids", "own_ids", "labels", "canaries")
        return self._copy_with(
            **{name: _at(getattr(self, name), chosen) for name in fields}
        )

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
            raise ValueError(
                f"{len(changed)} labels for {len(self)} samples; pass one for each"
            )
        return self._copy_with(labels=changed)

    def with_canaries(self, n: int, kind: Any = "mislabelled", seed: int = 0) -> Self:
        """Plant canaries: samples with a label that no other sample teaches.

        Parameters
        ----------
        n : int
            Number of canaries.
        kind : {"mislabelled"}
            ``"mislabelled"`` gives `n` samples a wrong label, drawn evenly; a question gets another
            of its own options.
        seed : int
            Seed for the choice of samples and labels.

        Returns
        -------
        Dataset
            The same samples, ids and order. `canaries` marks the planted ones. A sample that is a
            canary already is not chosen again, because its label could become right.

        Raises
        ------
        ValueError
            If there are more canaries than samples, or the kind is unknown.

        Examples
        --------
        >>> from memowidgets.data import TextDataset
        >>> data = TextDataset.from_texts(["a fine day", "a poor day"], ["good", "bad"])
        >>> data.with_canaries(1)
        TextDataset(2 texts, 2 classes, 1 canaries)
        """
        if kind != "mislabelled":
            raise ValueError(
                f"unknown kind of canaries {kind!r}; valid: 'mislabelled', and for images 'ood' or "
                "a dataset"
            )
        rng = np.random.default_rng(seed)
        mask, chosen = self._draw_canaries(n, rng)
        labels = self.labels.copy()
        # of each sample, where it has its own
        n_labels: Any = getattr(self, "n_choices", None)
        n_labels = len(self.class_names) if n_labels is None else n_labels[chosen]
        labels[chosen] = (
            labels[chosen] + rng.integers(1, n_labels, size=len(chosen))
        ) % n_labels
        return self._copy_with(labels=labels, canaries=mask)

    def _draw_canaries(
        self, n: int, rng: np.random.Generator
    ) -> tuple[BoolArray, IntArray]:
        """Draw samples that are not canaries yet; return the mask of all canaries, and these."""
        n = whole_number("n, the number of canaries,", n)
        mask = (
            np.zeros(len(self), np.bool_)
            if self.canaries is None
            else self.canaries.copy()
        )
        free = np.flatnonzero(~mask)
        if n > len(free):
            raise ValueError(
                f"{n} canaries do not fit into {len(free)} {self._noun} that are not canaries yet"
            )
        chosen = rng.choice(free, size=n, replace=False)
        mask[chosen] = True
        return mask, chosen

    def fitted(self, rows: ArrayLike) -> Self:  # noqa: ARG002 - for tables
        """Return the same samples with an encoding that is fitted on the rows at these positions.

        An audit calls it with its pool. Samples that need no encoding are returned unchanged.
        """
        return self

    def with_encoding(self, encoding: Any) -> Self:
        """Return the same samples with the encoding of other samples of the same kind."""
        if encoding is None:
            return self
        return self._copy_with(encoding=encoding, source=self.source)

    def with_source(self, loader: str, **arguments: Any) -> Self:
        """Return the same dataset, with the loader and the arguments that give it again.

        A ``path`` becomes absolute. Arguments are kept as JSON can hold them.
        """
        if "path" in arguments:
            arguments["path"] = str(Path(arguments["path"]).expanduser().absolute())
        plain = json.loads(json.dumps(arguments, default=list))
        return self._copy_with(source={"loader": loader, "arguments": plain})

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each sample, with its ``id`` and what the constructors read.

        That is ``text`` and ``label`` of a text (`TextDataset.from_texts`), the columns and
        ``label`` of a row (`TableDataset.from_frame`), ``question``, ``choices``, ``answer`` and
        the attributes of a question (`MCQDataset.from_records`), and ``image`` and ``label`` of an
        image. A label is the name of its class. Samples of a frame of yours have its index.
        """
        import pandas as pd

        frame = pd.DataFrame(
            {name: _series(values) for name, values in self._columns().items()}
        )
        return frame if self.own_ids is None else frame.set_axis(self.own_ids)

    def _columns(self) -> dict[str, Any]:
        """Return the values of all samples by column, with their ids."""
        return {
            ID: self.ids.tolist(),
            "label": [self.class_names[i] for i in self.labels],
        }

    def _copy_with(self, **changes: Any) -> Self:
        """Return a copy with changes, which no loader gives: it has a `source` only if given."""
        return cast(
            "Self", dataclasses.replace(cast("Any", self), **{"source": None} | changes)
        )

    def _positions(self, ids: Iterable[Any]) -> list[int]:
        """Return the positions of ids of any type, or raise for one that no sample has."""
        places = {name: position for position, name in enumerate(self.ids.tolist())}
        names = list(map(id_text, several("ids", ids)))
        unknown = [name for name in names if name not in places]
        if unknown:
            raise ValueError(
                f"none of the {self._noun} has the id {quoted(unknown[0])}; use ids from .ids"
            )
        return [places[name] for name in names]

    def _equal(self) -> list[list[int]]:
        """Return the positions of samples with equal content, one list for each content."""
        groups: dict[str, list[int]] = {}
        for row, content in enumerate(self.content_hashes()):
            groups.setdefault(content, []).append(row)
        return [rows for rows in groups.values() if len(rows) > 1]

    def _repeats(self) -> list[str]:
        """Return how many samples repeat the content of another, for `_summary`."""
        count = sum(len(rows) - 1 for rows in self._equal())
        return [f"{count} duplicate{'s' if count > 1 else ''}"] if count else []

    def _warn_of_contradictions(self) -> None:
        """Warn of equal samples with different labels, and list their ids."""
        groups = [rows for rows in self._equal() if len(set(self.labels[rows])) > 1]
        if groups:
            shown = [" = ".join(self.ids[rows[:_NAMED]].tolist()) for rows in groups]
            warn_user(
                f"{sum(map(len, groups))} {self._noun} are equal to others and have another label, "
                "so they are label errors or ambiguous; correct or remove them: "
                f"{listed(shown, most=10)}"
            )


@dataclasses.dataclass(frozen=True)
class WithheldSample:
    """Known values of a sample that is not available.

    Attributes
    ----------
    id : str
        Id of the sample.
    label : int
        Label that it is trained on.
    canary : bool
        Whether it is a canary.
    hint : str
        How to make the sample available.
    """

    id: str
    label: int
    canary: bool = False
    hint: str = ""


@dataclasses.dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class WithheldDataset(Dataset):
    """Ids, labels and content hashes, as stored in a run directory.

    Attributes
    ----------
    ids, labels, class_names, canaries, source
        As in `Dataset`.
    hashes : tuple of str
        Content hash of each sample.
    hint : str
        Argument for opening the run that makes the samples available.
    """

    hashes: tuple[str, ...]
    hint: str = "data=…"

    _fields: ClassVar[tuple[str, ...]] = ("hashes",)

    def _summary(self) -> Iterable[str]:
        return [f"{len(self)} samples", "not at hand"]

    def _sample(self, index: int) -> WithheldSample:
        name = str(self.ids[index])
        label = int(self.labels[index])
        return WithheldSample(name, label, self.is_canary(index), self.hint)

    def content_hashes(self) -> list[str]:
        """Return the recorded hashes."""
        return list(self.hashes)


def writable(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return a path to write samples to: outside of run directories, and free.

    Raises
    ------
    ValueError
        If it lies in a run directory.
    FileExistsError
        If it exists and `overwrite` is False.
    FileNotFoundError
        If its folder does not exist.
    """
    target = checked_path(path)
    check_outside_runs(target)
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is not a folder; create it first")
    if target.is_dir() or (target.exists() and not overwrite):
        raise FileExistsError(
            f"{target} exists; choose another path, or pass overwrite=True"
        )
    return target


def _series(values: Any) -> pd.Series[Any]:
    """Return a column of a frame: numbers, categories of a table, or any objects."""
    import pandas as pd

    if isinstance(values, np.ndarray) and values.ndim == 1:
        return pd.Series(values, dtype="category" if values.dtype == object else None)
    return pd.Series(list(values), dtype=object)


def _at(values: Any, positions: IntArray) -> Any:
    """Return the values of some samples, from an array, a tuple, or columns of arrays."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {name: column[positions] for name, column in values.items()}
    if isinstance(values, tuple):
        return tuple(values[i] for i in positions)
    return values[positions]


def checked_classes(
    labels: ArrayLike,
    class_names: Sequence[str] | None,
    where: Callable[[int], str] = "row {}".format,
) -> tuple[IntArray, tuple[str, ...]]:
    """Return labels as integers from 0, and the names of their classes.

    Labels can be strings: then the classes are `class_names`, or the strings that occur, sorted.
    A class that never occurs gets a warning.
    """
    numbers, names = numbered_labels(labels, class_names, where)
    integers = checked_labels(numbers, names)
    all_names = checked_class_names(names, integers)
    warn_of_absent(integers, all_names)
    return integers, all_names


def warn_of_likeness(class_names: Iterable[str]) -> None:
    """Warn of the first two classes whose names a reader would take for one."""
    first: dict[str, str] = {}
    for name in class_names:
        seen = "".join(one for one in name if unicodedata.category(one) != "Cf")
        plain = " ".join(unicodedata.normalize("NFC", seen).split())
        plain = re.sub(r"^(\d+)\.0+$", r"\1", plain)
        # A and a are letters of an alphabet, Yes and yes are careless
        other = first.setdefault(plain.casefold() if len(plain) > 1 else plain, name)
        if other != name:
            warn_user(
                f"the classes {quoted(other)} and {quoted(name)} differ only in capitals, spaces, "
                "invisible characters or the coding of accents (NFC and NFD), or as 1 and 1.0 do, "
                "and are two classes; write them alike if they are one"
            )
            return


def warn_of_absent(labels: IntArray, class_names: Sequence[str]) -> None:
    """Warn of classes that no label has."""
    counts = np.bincount(labels, minlength=len(class_names))
    absent = [
        name for name, count in zip(class_names, counts, strict=True) if not count
    ]
    if absent:
        warn_user(
            f"{len(absent)} of {len(class_names)} classes never occur in the labels: "
            f"{listed(absent, most=5)}; number the classes from 0 without a gap, or leave these "
            "out of class_names, unless other data have them"
        )


def checked_labels(labels: ArrayLike, class_names: Sequence[str] | None) -> IntArray:
    """Return labels as integers from 0, or raise an error that names the first bad one."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"labels must be a list of one for each sample, not of shape {array.shape}"
        )
    is_real = array.dtype.kind == "f" and np.isfinite(array).all()
    if array.dtype.kind not in "iub" and (not is_real or (array % 1).any()):
        raise ValueError(
            f"labels must be integers from 0, not {array.dtype}; number the classes and pass "
            "their names as class_names"
        )
    integers = array.astype(np.int64)
    most = max(_MANY, 10 * len(array)) if class_names is None else len(class_names) - 1
    wrong = (integers < 0) | (integers > most)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"labels must lie between 0 and {most}; row {row} is {integers[row]}; number the "
            "classes and pass the names of all as class_names"
        )
    return integers


def checked_ids(
    ids: Iterable[Any] | None, n: int, where: Callable[[int], str] = "row {}".format
) -> NDArray[np.str_]:
    """Return ids as unique strings, numbered from 0 if none are given."""
    if ids is None:
        return np.array(list(map(str, range(n))), dtype=np.str_)
    names = list(map(id_text, several("ids", ids)))
    if len(names) != n:
        raise ValueError(f"{len(names)} ids for {n} samples; pass one for each")
    seen: dict[str, int] = {}
    for row, name in enumerate(names):
        first = seen.setdefault(name, row)
        if first < row:
            raise ValueError(
                f"{where(row)}: the id {quoted(name)} is already used in {where(first)}; ids must "
                "be unique"
            )
    check_whole_characters(
        names, lambda row: f"{where(row)}: the id {quoted(names[row])}"
    )
    return np.array(names, dtype=np.str_)


def named_ids(ids: Any, n: int, *given: Any) -> tuple[NDArray[np.str_], Any]:
    """Return the ids of n samples as unique texts, and as pandas has them.

    They are `ids`, or else the first index of `given` that names samples. A default index 0 … n − 1
    does only where there is no other, and one with duplicates or gaps never. Without any, they are
    numbered from 0.

    Returns
    -------
    array of shape (n,), str
        The texts.
    pandas.Index or None
        The same with their own type. None where they are not of pandas, and where ``.loc`` of
        something given would find other rows by them: with texts, its user gets an error.
    """
    import pandas as pd

    indexes = [one for one in map(index_of, (ids, *given)) if one is not None]
    own = None
    if index_of(ids) is not None:
        own = pd.Index(ids)
    elif ids is None:
        usable = [one for one in indexes if one.is_unique and not _has_gaps(one)]
        usable.sort(key=lambda one: one.equals(pd.RangeIndex(n)))
        own = ids = next(iter(usable), None)
    misleads = own is not None and any(
        not one.equals(own) and not set(one).isdisjoint(own) for one in indexes
    )
    return checked_ids(ids, n), None if misleads else own


def _has_gaps(index: pd.Index[Any]) -> bool:
    parts = (name if isinstance(name, tuple) else [name] for name in index)
    return any(is_missing(part) for name in parts for part in name)


def checked_class_names(
    class_names: Sequence[str] | None, labels: IntArray
) -> tuple[str, ...]:
    """Return the names of the classes, by default their numbers; one class is an error."""
    names = tuple(
        map(str, range(labels.max() + 1) if class_names is None else class_names)
    )
    if len(np.unique(labels)) < 2:
        shown = quoted(names[labels[0]]) if labels[0] < len(names) else labels[0]
        count = len(labels)
        all_of_them = verb(count, "the only sample has", f"all {count} samples have")
        raise ValueError(
            f"{all_of_them} the label {shown}: a classifier needs at least two classes"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"class_names must be unique; {quoted(twice)} occurs more than once"
        )
    check_whole_characters(names, lambda i: f"the class name {quoted(names[i])}")
    warn_of_likeness(names)
    return names


def check_whole_characters(
    texts: Iterable[str | None], where: Callable[[int], str]
) -> None:
    """Raise for a text with a lone surrogate, which can be neither written nor tokenized.

    Parameters
    ----------
    texts : iterable of str or None
        The texts, without those that are missing.
    where : callable
        Function from a text's position to what the message calls it.
    """
    for row, text in enumerate(texts):
        half = HALF_CHARACTERS.search(text or "")
        if half:
            raise ValueError(
                f"{where(row)} has half a character (the lone surrogate U+{ord(half[0]):04X}), "
                "which can be neither written nor tokenized; correct the text's encoding"
            )


def value_of(sample: Any, name: str) -> Any:
    """Return a value of a record or an attribute of an object; None without it."""
    if isinstance(sample, dict):
        return sample.get(name)
    return getattr(sample, name, None)


def kind_of(samples: Any) -> str | None:
    """Return the kind of samples in a sequence, by the first one.

    Parameters
    ----------
    samples : sequence
        A dataset, an array of images, or a list of texts or records.

    Returns
    -------
    str or None
        ``"pixels"`` (an array of images), or the kind of the first sample by `kind_of_sample`.

    Examples
    --------
    >>> kind_of(["a text"]), kind_of([{"question": "Why?", "choices": ["a", "b"]}])
    ('text', 'question')
    """
    if isinstance(samples, np.ndarray) and samples.dtype.kind in "fiub":
        return "pixels"
    return kind_of_sample(samples[0])


def kind_of_sample(sample: Any) -> str | None:
    """Return the kind of one sample.

    Returns
    -------
    str or None
        ``"text"``, ``"record"`` (one with a text), ``"image"``, ``"question"``, ``"row"`` (of a
        table), ``"withheld"`` (an id and a label alone), or None.
    """
    if isinstance(sample, str):
        return "text"
    for kind, parts in _PARTS.items():
        if all(value_of(sample, part) is not None for part in parts):
            return kind
    return None
