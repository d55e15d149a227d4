"""Comparison of the rows that a Trainer trains on with the members of an audit."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.data import Dataset
from memowidgets.data.questions import in_chat
from memowidgets.models import CausalLM
from memowidgets.training.learner import Recipe
from memowidgets.training.trainer_passes import ModelPasses
from memowidgets.visible import listed, quoted

_MASKED = -100
_BEFORE, _BEHIND = 4, 8
_LABELS = ("labels", "label", "label_ids")
_INPUTS = ("input_ids", "pixel_values")
_SIDE = 8  # rows and columns of an image's summary
_CLOSE = 0.05  # of normalised pixels, about a hundredth of their range
_SAME = 1e-4  # of normalised pixels
_OF_PROMPTS = (
    "The members must be the Trainer's rows, in its wording: pass the script's own prompt as "
    "template, and create the audit from its training rows alone"
)
_OF_TEXTS = (
    "The members must be the Trainer's rows: use the script's tokenizer, and if it cuts long "
    "texts, its max_length with truncate=True"
)
_READING = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)

Array = NDArray[Any]


class Unreadable(Exception):  # noqa: N818 - no error: some rows can't be read before training
    """The rows cannot be compared, for the reason in the message."""


@dataclass(frozen=True)
class Row:
    """One row of the training data, as the model receives it.

    Attributes
    ----------
    content : array of shape (n_tokens,), int64, or (values,), float32
        Tokens without padding, or a summary of the image.
    label : int or None
        Its class, for a classifier. None if the row does not say.
    counted : array of shape (n_tokens,), bool, or None
        Whether the loss includes each token, for a language model. None if the row does not say.
    """

    content: Array
    label: int | None = None
    counted: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Sample:
    """Member or held-out sample, as the audit encodes it.

    Attributes
    ----------
    name : str
        Id of the sample.
    content : array
        As in `Row`; for a language model the tokens of the prompt, followed by the label's.
    label : int or None
        Its class.
    """

    name: str
    content: Array
    label: int | None = None


def check_rows(loader: Any, passes: ModelPasses) -> None:
    """Check that a Trainer trains on an audit's members as the audit encodes them.

    Raises
    ------
    ValueError
        If a member is in no row or has another label there, or a held-out sample is in one.

    Warns
    -----
    UserWarning
        About what could not be checked.
    """
    recipe, aside = passes.recipe, passes.held_out
    unseen = np.arange(0 if aside is None else len(aside))
    is_language = isinstance(recipe.model, CausalLM)
    try:
        rows = (read_prompts if is_language else read_classes)(loader)
        members = _samples(recipe, recipe.data, passes.members)
        others = _samples(recipe, aside or recipe.data, unseen)
    except Unreadable as reason:
        warn_user(f"{reason}, so it was not checked whether it encodes this audit's members alike")
        return
    try:
        note = (check_prompts if is_language else check_classes)(rows, members)
    except ValueError as error:
        raise ValueError(f"{error}{_chat_of(recipe.model, rows)}") from None
    places = _starting_with(rows, others) if is_language else _equal(rows, others, _SAME)
    found = [sample.name for sample, at in zip(others, places, strict=True) if at]
    if found:
        raise ValueError(
            f"{len(found)} held-out samples of this audit are rows of the Trainer, the first is "
            f"{quoted(found[0])}: nothing would be held out. Create the audit with "
            "held_out=None, or with the Trainer's evaluation data"
        )
    if note is not None:
        warn_user(note)


def _chat_of(model: Any, rows: Sequence[Row]) -> str:
    """Return the template to use if the rows begin as the tokenizer's chats do, else nothing."""
    if not isinstance(model, CausalLM) or not getattr(model.tokenizer, "chat_template", None):
        return ""
    tokenizer = model.tokenizer
    try:
        (template,) = in_chat("chat", tokenizer) or ()
    except ValueError:
        return ""
    start = template.partition("{question}")[0].replace("{{", "{").replace("}}", "}")
    begin = np.asarray(tokenizer(start)["input_ids"][:-1], dtype=np.int64)
    if not len(begin) or not any(np.array_equal(r.content[: len(begin)], begin) for r in rows):
        return ""
    return (
        f". These rows are chats: pass template={template!r}, with the script's own wording for "
        '"{question}\\n{options}", or template="chat" with tokenizer='
    )


def _samples(recipe: Recipe, data: Dataset, positions: NDArray[np.int64]) -> list[Sample]:
    """Return samples as the audit feeds them to the model."""
    import torch

    feed = recipe.model.feeder(data, torch.device("cpu"))
    found = []
    for position in positions:
        inputs, label = feed(np.array([position])), int(data.labels[position])
        if isinstance(recipe.model, CausalLM):
            content = np.array([*inputs["input_ids"][0].tolist(), int(inputs["options"][label])])
        else:
            content = _content(inputs if isinstance(inputs, dict) else {"pixel_values": inputs})
        found.append(Sample(str(data.ids[position]), content, label))
    return found


# reading


def read_prompts(loader: Any) -> list[Row]:
    """Read every row of a language model's loader, each put through its collator alone.

    Raises
    ------
    Unreadable
        If the data are streamed, or have no token ids.
    """

    def row(batch: Mapping[str, Any]) -> Row:
        ids, real = _tokens(batch)
        labels = batch.get("labels")
        counted = None if labels is None else np.asarray(labels).reshape(-1) != _MASKED
        return Row(ids[real], counted=None if counted is None else counted[real])

    found: list[Row] = _read(loader, row)
    return found


def read_classes(loader: Any) -> list[Row]:
    """Read every row of a classifier's loader, each put through its collator alone.

    Raises
    ------
    Unreadable
        If the data are streamed, are augmented at random, or have neither tokens nor pixels.
    ValueError
        If a label is not one class, or a row has token types.
    """

    def row(batch: Mapping[str, Any]) -> tuple[Array, Array | None, bool]:
        label = next((batch[name] for name in _LABELS if name in batch), None)
        has_types = bool(np.any(np.asarray(batch.get("token_type_ids", 0))))
        return _content(batch), None if label is None else np.asarray(label), has_types

    first, *again = _read(loader, _content, [0] * 4)
    if any(not np.array_equal(first, other) for other in again):
        raise Unreadable("the Trainer's rows differ each time that they are read")
    found = _read(loader, row)
    typed = next((i for i, (_, _, has_types) in enumerate(found) if has_types), None)
    if typed is not None:
        raise ValueError(
            f"row {typed} of the Trainer has token_type_ids other than 0, as pairs of texts do; "
            "this audit passes texts without them, so its numbers would be those of other inputs"
        )
    return [Row(content, _class(label, i)) for i, (content, label, _) in enumerate(found)]


def _read(loader: Any, make: Callable[[Any], Any], places: Sequence[int] | None = None) -> Any:
    """Return what `make` makes of each row as a batch of one."""
    dataset: Any = getattr(loader, "dataset", None)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Unreadable("the Trainer streams its data")
    try:
        rows = range(len(dataset)) if places is None else places
        return [make(loader.collate_fn([dataset[i]])) for i in rows]
    except _READING as error:
        raise Unreadable(
            f"the Trainer's rows cannot be read one by one ({type(error).__name__}: {error})"
        ) from error


def _tokens(batch: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the tokens of a batch of one, and which of them are not padding."""
    ids = np.asarray(batch["input_ids"]).reshape(-1).astype(np.int64)
    mask = batch.get("attention_mask")
    return ids, np.ones(len(ids), bool) if mask is None else np.asarray(mask).reshape(-1) != 0


def _content(batch: Mapping[str, Any]) -> Array:
    """Return the tokens, or the mean of each of 8×8 parts of the image, of a batch of one."""
    name = next((name for name in _INPUTS if name in batch), None)
    if name is None:
        raise Unreadable(f"the Trainer's rows have {listed(batch)}, neither tokens nor pixels")
    if name == "input_ids":
        ids, real = _tokens(batch)
        return ids[real]
    image = np.asarray(batch[name], dtype=np.float32)[0]
    parts = [
        np.array_split(band, min(_SIDE, image.shape[2]), axis=2)
        for band in np.array_split(image, min(_SIDE, image.shape[1]), axis=1)
    ]
    means = [[part.mean(axis=(1, 2)) for part in band] for band in parts]
    return np.asarray(means, dtype=np.float32).ravel()


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


# comparing


def check_prompts(rows: Sequence[Row], members: Sequence[Sample]) -> str | None:
    """Check that each member's tokens are at the start of a row, in any order.

    Returns
    -------
    str or None
        What could not be checked, or another note.

    Raises
    ------
    ValueError
        If a member is in no row, or the loss leaves out its label. The message has both encodings.
    """
    found = _starting_with(rows, members)
    for member, places in zip(members, found, strict=True):
        at = len(member.content) - 1
        counted = [rows[i].counted for i in places]
        if counted and not any(mask is None or mask[at] for mask in counted):
            raise ValueError(
                f"the Trainer's loss leaves out the label of {quoted(member.name)} (its labels are "
                f"{_MASKED} there), so it does not train what this audit looks at"
            )
    missing = [i for i, places in enumerate(found) if not places]
    room, needed = (sum(len(each.content) for each in some) for some in (rows, members))
    may_be_packed = len(rows) < len(members) and room >= needed
    if missing and not (len(missing) < len(members) and may_be_packed):
        raise ValueError(_difference(rows, members, missing, _OF_PROMPTS))
    if missing:
        return (
            f"{len(missing)} of {len(members)} members were not found at the start of a row, which "
            "seem to have several samples each, so it was not checked whether these are encoded "
            "alike"
        )
    return _others(rows, found)


def check_classes(rows: Sequence[Row], members: Sequence[Sample]) -> str | None:
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
    found = _equal(rows, members, _CLOSE)
    missing = [i for i, places in enumerate(found) if not places]
    if missing and rows and rows[0].content.dtype.kind == "f":
        raise ValueError(
            f"{len(missing)} of {len(members)} members are in no row of the Trainer; the first is "
            f"{quoted(members[missing[0]].name)}. The members must be the Trainer's rows, with its "
            "processor and without random augmentation"
        )
    if missing:
        raise ValueError(_difference(rows, members, missing, _OF_TEXTS))
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
    return _others(rows, found)


def _others(rows: Sequence[Row], found: Sequence[Sequence[int]]) -> str | None:
    others = len(rows) - len({place for places in found for place in places})
    if not others:
        return None
    return (
        f"{others} of the Trainer's {len(rows)} rows are not members of this audit; they are "
        "trained on and not scored"
    )


def _starting_with(rows: Sequence[Row], samples: Sequence[Sample]) -> list[list[int]]:
    """Return the rows that start with each sample's tokens."""
    order, ordered = _sorted(rows)
    found = []
    for sample in samples:
        key = _key(sample.content)
        first = last = bisect_left(ordered, key)
        while last < len(ordered) and ordered[last].startswith(key):
            last += 1
        found.append(order[first:last])
    return found


def _equal(rows: Sequence[Row], samples: Sequence[Sample], close: float) -> list[list[int]]:
    """Return the rows with each sample's tokens, or its image up to rounding in preparation."""
    if not rows or not samples:
        return [[] for _ in samples]
    if rows[0].content.dtype.kind == "i":
        places = defaultdict(list)
        for i, row in enumerate(rows):
            places[row.content.tobytes()].append(i)
        return [places.get(np.asarray(s.content, np.int64).tobytes(), []) for s in samples]
    from sklearn.neighbors import NearestNeighbors

    table, asked = (np.stack([each.content for each in some]) for some in (rows, samples))
    if table.shape[1] != asked.shape[1]:
        return [[] for _ in samples]
    near = NearestNeighbors(radius=close * np.sqrt(table.shape[1])).fit(table)
    found = near.radius_neighbors(asked, return_distance=True, sort_results=True)[1]
    return [places.tolist() for places in found]


def _sorted(rows: Sequence[Row]) -> tuple[list[int], list[bytes]]:
    keys = [_key(row.content) for row in rows]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return order, [keys[i] for i in order]


def _key(ids: NDArray[np.int64]) -> bytes:
    """Return bytes that sort like the tokens, with a common start for a common start."""
    return ids.astype(">u4").tobytes()


def _difference(
    rows: Sequence[Row], members: Sequence[Sample], missing: Sequence[int], advice: str
) -> str:
    """Return an error's message with the tokens of a missing member and of the nearest row."""
    member = members[missing[0]]
    order, ordered = _sorted(rows)
    at = bisect_left(ordered, _key(member.content))
    near = [rows[order[i]] for i in (at - 1, at) if 0 <= i < len(rows)]
    if len(rows) == len(members):
        near.insert(0, rows[missing[0]])  # usually both have the same order
    if not near:
        return f"the Trainer has no rows; this audit has {len(members)} members"
    row = max(near, key=lambda candidate: _common(candidate.content, member.content))
    start = _common(row.content, member.content)
    shown = slice(max(0, start - _BEFORE), start + _BEHIND)
    theirs, ours = (ids[shown].tolist() for ids in (row.content, member.content))
    return (
        f"{len(missing)} of {len(members)} members are in no row of the Trainer as this audit "
        f"encodes them; for {quoted(member.name)} the nearest row differs from token {start} on:\n"
        f"  Trainer  {len(row.content)} tokens: {theirs}\n"
        f"  audit    {len(member.content)} tokens: {ours}\n"
        "tokenizer.decode shows them as text; an error does not, because notebooks keep errors. "
        f"{advice}"
    )


def _common(some: Array, others: Array) -> int:
    """Return the number of equal tokens at the start."""
    length = min(len(some), len(others))
    differ = some[:length] != others[:length]
    return int(np.argmax(differ)) if differ.any() else length
