"""Comparison of the rows and labels of a Trainer's classifier with an audit's members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.training.trainer_rows import (
    READING,
    Member,
    Row,
    Unreadable,
    key_of,
    shown_difference,
)
from memowidgets.visible import listed, quoted

__all__ = [
    "ClassMember",
    "ClassRow",
    "check_classes",
    "check_head",
    "held_out_class_rows",
    "read_class_rows",
]

_LABELS = ("labels", "label", "label_ids")
_INPUTS = ("input_ids", "pixel_values")
_SIDE = 8  # rows and columns of an image's summary
_CLOSE = 0.05  # of normalised pixels, about a hundredth of their range
_SAME = 1e-4  # of normalised pixels
_ADVICE = (
    "The members must be the Trainer's rows: use the script's tokenizer, and if it cuts long "
    "texts, its max_length with truncate=True"
)

Array = NDArray[Any]


@dataclass(frozen=True)
class ClassRow:
    """One row of the training data of a classifier, as the model receives it.

    Attributes
    ----------
    content : array of shape (n_tokens,), int64, or (values,), float32
        Tokens without padding, or a summary of the image.
    label : int or None
        Its class. None if the row does not say.
    """

    content: Array
    label: int | None


@dataclass(frozen=True)
class ClassMember:
    """Member, as the audit encodes it; `content` is as in `ClassRow`."""

    name: str
    content: Array
    label: int


def check_head(config: Any, class_names: Sequence[str]) -> None:
    """Check that a model in training has one logit for each class, in the order of the data.

    Raises
    ------
    ValueError
        If the head is for several labels at once or for regression, or its classes are others.
    """
    problem, width = getattr(config, "problem_type", None), int(config.num_labels)
    if problem not in (None, "single_label_classification") or width < 2:
        what = "regression" if problem == "regression" or width < 2 else "several labels at once"
        raise ValueError(
            f"the head of the model in training is for {what}; an audit needs one class for each "
            "sample"
        )
    if width != len(class_names):
        raise ValueError(
            f"the model in training has {width} logits, but the data of this audit have "
            f"{len(class_names)} classes"
        )
    names = [str(config.id2label.get(i, "")) for i in range(width)]
    theirs, ours = (list(map(_plain, known)) for known in (names, class_names))
    if sorted(theirs) == sorted(ours) and theirs != ours:
        raise ValueError(
            f"the model's label2id numbers the classes {listed(names, 5)}, and the data of this "
            f"audit {listed(class_names, 5)}; create the data with class_names="
            "list(model.config.id2label.values())"
        )


def read_class_rows(loader: Any) -> list[ClassRow]:
    """Read every row of a data loader, each put through its collator alone.

    Raises
    ------
    Unreadable
        If the data are streamed, are augmented at random, or have neither tokens nor pixels.
    ValueError
        If a label is not one class, or a row has token types.
    """
    dataset: Any = getattr(loader, "dataset", None)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Unreadable("the Trainer streams its data")
    try:
        batches = [loader.collate_fn([dataset[0]]) for _ in range(4)]
        contents = [content_of(batch) for batch in batches]
        if any(not np.array_equal(contents[0], other) for other in contents[1:]):
            raise Unreadable("the Trainer's rows differ each time that they are read")
        rows = (loader.collate_fn([dataset[i]]) for i in range(len(dataset)))
        found = [(content_of(batch), _label_of(batch), _has_types(batch)) for batch in rows]
    except READING as error:
        raise Unreadable(
            f"the Trainer's rows cannot be read one by one ({type(error).__name__}: {error})"
        ) from error
    typed = next((i for i, row in enumerate(found) if row[2]), None)
    if typed is not None:
        raise ValueError(
            f"row {typed} of the Trainer has token_type_ids other than 0, as pairs of texts do; "
            "this audit passes texts without them, so its numbers would be those of other inputs"
        )
    return [ClassRow(content, _class(label, i)) for i, (content, label, _) in enumerate(found)]


def content_of(batch: Mapping[str, Any]) -> Array:
    """Return the tokens, or a summary of the pixels, of a batch of one.

    Raises
    ------
    Unreadable
        If it has neither.
    """
    name = next((name for name in _INPUTS if name in batch), None)
    if name is None:
        raise Unreadable(f"the Trainer's rows have {listed(batch)}, neither tokens nor pixels")
    if name == "pixel_values":
        return _summary(np.asarray(batch[name], dtype=np.float32)[0])
    ids = np.asarray(batch[name]).reshape(-1).astype(np.int64)
    mask = batch.get("attention_mask")
    return ids if mask is None else ids[np.asarray(mask).reshape(-1) != 0]


def check_classes(rows: Sequence[ClassRow], members: Sequence[ClassMember]) -> str | None:
    """Check that each member is a row, with the same label, in any order.

    Returns
    -------
    str or None
        What could not be checked, or another note.

    Raises
    ------
    ValueError
        If a member is in no row, or only with another label.
    """
    are_images = bool(rows) and rows[0].content.dtype.kind == "f"
    found = _nearest(rows, members) if are_images else _equal(rows, members)
    missing = [i for i, places in enumerate(found) if not places]
    if missing and are_images:
        raise ValueError(
            f"{len(missing)} of {len(members)} members are in no row of the Trainer; the first is "
            f"{quoted(members[missing[0]].name)}. The members must be the Trainer's rows, with its "
            "processor and without random augmentation"
        )
    if missing:
        raise ValueError(_text_difference(rows, members, missing))
    others = [
        i
        for i, places in enumerate(found)
        if not any(rows[p].label in (members[i].label, None) for p in places)
    ]
    if others:
        member, row = members[others[0]], rows[found[others[0]][0]]
        raise ValueError(
            f"{len(others)} of {len(members)} members have another label in the Trainer's rows; "
            f"{quoted(member.name)} is class {row.label} there and {member.label} in this audit. "
            "Number the classes alike, with class_names=list(model.config.id2label.values())"
        )
    if any(row.label is None for row in rows):
        return "the Trainer's rows have no labels, so it was not checked whether they are the same"
    n_others = len(rows) - len({place for places in found for place in places})
    if n_others:
        return (
            f"{n_others} of the Trainer's {len(rows)} rows are not members of this audit; they are "
            "trained on and not scored"
        )
    return None


def held_out_class_rows(rows: Sequence[ClassRow], held_out: Sequence[ClassMember]) -> list[str]:
    """Return the names of the held-out samples that are rows of the Trainer."""
    if not rows or not held_out:
        return []
    are_images = rows[0].content.dtype.kind == "f"
    found = _nearest(rows, held_out, _SAME) if are_images else _equal(rows, held_out)
    return [sample.name for sample, places in zip(held_out, found, strict=True) if places]


def _equal(rows: Sequence[ClassRow], members: Sequence[ClassMember]) -> list[list[int]]:
    """Return the rows with exactly each member's tokens."""
    places = defaultdict(list)
    for i, row in enumerate(rows):
        places[row.content.tobytes()].append(i)
    return [places.get(np.asarray(m.content, np.int64).tobytes(), []) for m in members]


def _nearest(
    rows: Sequence[ClassRow], members: Sequence[ClassMember], close: float = _CLOSE
) -> list[list[int]]:
    """Return the rows with each member's image, up to rounding in its preparation."""
    from sklearn.neighbors import NearestNeighbors

    table = np.stack([row.content for row in rows])
    asked = np.stack([member.content for member in members])
    if table.shape[1] != asked.shape[1]:
        return [[] for _ in members]
    radius = close * np.sqrt(table.shape[1])
    near = NearestNeighbors(radius=radius).fit(table)
    found = near.radius_neighbors(asked, return_distance=True, sort_results=True)[1]
    return [places.tolist() for places in found]


def _text_difference(
    rows: Sequence[ClassRow], members: Sequence[ClassMember], missing: Sequence[int]
) -> str:
    plain = [Row(row.content, None) for row in rows]
    asked = [Member(member.name, member.content) for member in members]
    keys = [key_of(row.ids) for row in plain]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ordered = [keys[i] for i in order]
    return shown_difference(plain, asked, missing, ordered, order, _ADVICE)


def _has_types(batch: Mapping[str, Any]) -> bool:
    return bool(np.any(np.asarray(batch.get("token_type_ids", 0))))


def _plain(name: str) -> str:
    return " ".join(name.split()).casefold()


def _label_of(batch: Mapping[str, Any]) -> Array | None:
    found = next((batch[name] for name in _LABELS if name in batch), None)
    return None if found is None else np.asarray(found)


def _class(label: Array | None, row: int) -> int | None:
    if label is None:
        return None
    if label.size != 1:
        raise ValueError(
            f"row {row} of the Trainer has {label.size} labels; an audit needs one class for each "
            "sample"
        )
    value = label.reshape(())
    if value.dtype.kind not in "iub":
        raise ValueError(
            f"the label of row {row} of the Trainer is {quoted(value)}, which is not the number of "
            "a class"
        )
    return int(value)


def _summary(image: Array) -> Array:
    """Return the mean of each of 8×8 parts of an image, (3 × 64,)."""
    parts = [
        np.array_split(band, min(_SIDE, image.shape[2]), axis=2)
        for band in np.array_split(image, min(_SIDE, image.shape[1]), axis=1)
    ]
    means = [[part.mean(axis=(1, 2)) for part in band] for band in parts]
    return np.asarray(means, dtype=np.float32).ravel()
