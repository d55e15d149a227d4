"""Rows of a Trainer as its model gets them: whether they are an audit's members, and others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.data import Dataset
from memowidgets.models import CausalLM
from memowidgets.models.transformer import NUMBER_ALIKE, TokenModel
from memowidgets.training.learner import ModelPasses, Recipe
from memowidgets.vocabulary import first_line, quoted

_MASKED = -100
# tokens that an error shows around the first that differs
_BEFORE = 4
_BEHIND = 8
_SIDE = 8  # rows and columns of an image's summary
_CLOSE = 0.05  # of normalised pixels, about a hundredth of their range
_OF_PROMPTS = (
    "The members must be the Trainer's rows, in its wording: pass the script's own prompt as "
    'template, or template="chat" with tokenizer= for chats; create the audit from its training '
    "rows alone, and train one sample a row (packing=False)"
)
_OF_REPLIES = (
    ". The prompts are the same and the letters are not: if your rows answer with the option's "
    'text, create the data with reply="text"; an audit needs one token an option'
)
_OF_TEXTS = (
    "Use the script's tokenizer, and if it cuts long texts, its max_length with "
    "truncate=True"
)
_READING = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)
Array = NDArray[Any]
Places = dict[tuple[bytes, Any], list[int]]  # rows by content and class


@dataclass(frozen=True)
class Row:
    """One row of the training data as the model receives it, or a sample as the audit encodes it.

    Attributes
    ----------
    content : array of shape (n_tokens,), int64, or (values,), float32
        Tokens without padding, or a summary of the image. For a sample and a language model, the
        tokens of the prompt, followed by the label's.
    label : int or other, optional
        Its class, for a classifier. None if the row does not say.
    counted : array of shape (n_tokens,), bool, optional
        Whether the loss includes each token, for a language model. None if the row does not say.
    name : str
        Id of the sample.
    """

    content: Array
    label: Any = None
    counted: NDArray[np.bool_] | None = None
    name: str = ""


def check_rows(loader: Any, passes: ModelPasses) -> list[list[int]]:
    """Check that a Trainer trains on an audit's members as the audit encodes them, in any order.

    Returns
    -------
    list of list of int
        The Trainer's rows of each member. It is empty if they cannot be read.

    Raises
    ------
    ValueError
        If a member is in no row, or its label is not in the loss, or a held-out sample is in a row.
        Where tokens differ, the message has both encodings.

    Warns
    -----
    UserWarning
        About what could not be checked.
    """
    recipe = passes.recipe
    aside = passes.held_out
    prompts = isinstance(recipe.model, CausalLM)
    try:
        rows = _read_rows(loader, prompts=prompts)
    except _READING as error:
        warn_user(
            "it was not checked whether the Trainer encodes this audit's members alike, because "
            f"its rows cannot be read one by one ({type(error).__name__}: {error})"
        )
        return []
    first = loader.collate_fn([loader.dataset[0]])
    if not prompts and np.any(np.asarray(first.get("token_type_ids", 0))):
        raise ValueError(
            "the Trainer's rows have token_type_ids other than 0; an audit passes texts without"
        )
    members = _samples(recipe, recipe.data, passes.members)
    others = _samples(recipe, aside, np.arange(len(aside))) if aside else []
    if members[0].content.dtype.kind == "f":
        rows = _take_near_images(rows, [*members, *others])
    places = _places(rows, [*members, *others], prompts=prompts)
    found = [other.name for other in others if places[_key(other)]]
    if found:
        raise ValueError(
            f"{len(found)} held-out samples are rows of the Trainer, the first is "
            f"{quoted(found[0])}; pass held_out=None, or the Trainer's evaluation data"
        )
    missing = [member for member in members if not places[_key(member)]]
    if missing:
        reply = str(getattr(recipe.data, "reply", ""))
        raise ValueError(
            f"{len(missing)} of {len(members)} members are in no row of the Trainer as this audit "
            f"encodes them; for {quoted(missing[0].name)} "
            + _difference(rows, missing[0], reply, prompts=prompts)
        )
    for member in members:
        masks = [rows[i].counted for i in places[_key(member)]]
        if all(
            mask is not None and not mask[len(member.content) - 1] for mask in masks
        ):
            raise ValueError(
                f"the Trainer's loss leaves out the label of {quoted(member.name)}, where its "
                f"labels are {_MASKED}"
            )
    return [places[_key(member)] for member in members]


def held_out_rows(
    evaluated: Callable[[], Any],
    loader: Any,
    passes: ModelPasses,
    places: Sequence[Sequence[int]],
) -> Dataset | None:
    """Return the rows that a Trainer evaluates on as held-out samples, which have tokens alone.

    Rows that it trains on too are left out.

    Parameters
    ----------
    evaluated : callable
        Function that returns the loader of these rows.
    loader : DataLoader
        Loader of the rows that are trained on.
    passes : ModelPasses
        Passes of the audit of a language model, or of a classifier of texts.
    places : sequence of sequence of int
        The Trainer's rows of each member.

    Returns
    -------
    Dataset or None
        None if there are no such rows, or their samples are images.

    Warns
    -----
    UserWarning
        If they are not samples of the audit's task.
    """
    model = passes.recipe.model
    if not isinstance(model, TokenModel):
        return None
    prompts = isinstance(model, CausalLM)
    try:
        trained = _read_rows(loader, prompts=prompts)
        known = {row.content.tobytes() for row in trained}
        others = _read_rows(evaluated(), prompts=prompts)
        others = [row for row in others if row.content.tobytes() not in known]
        if not others:
            return None
        if prompts:
            first = [trained[own[0]].content for own in places]
            return _known_prompts(others, first, passes)
        return _known_texts(others, passes)
    except _READING as error:
        warn_user(
            "what the Trainer evaluates on is not taken for held-out samples, because its rows are "
            f"not of the audit's task ({first_line(error)}); pass such samples as held_out="
        )
        return None


def _known_texts(rows: Sequence[Row], passes: ModelPasses) -> Dataset:
    """Return rows of a classifier of texts as samples."""
    data = passes.recipe.data
    wrong = [row.label for row in rows if row.label not in range(len(data.class_names))]
    if wrong:
        raise ValueError(f"the label {wrong[0]} is no class")
    model = cast("TokenModel", passes.recipe.model)
    labels = [int(row.label) for row in rows]
    return model.known_by_tokens([row.content for row in rows], labels, data)


def _known_prompts(
    rows: Sequence[Row], trained: Sequence[Array], passes: ModelPasses
) -> Dataset:
    """Return rows of a language model as samples, which end as the rows of the members do."""
    data = passes.recipe.data
    samples = _samples(passes.recipe, data, passes.members)
    ends = {
        row[len(sample.content) :].tobytes()
        for sample, row in zip(samples, trained, strict=True)
    }
    if len(ends) > 1:
        raise ValueError("what follows the answer differs from row to row")
    end = np.frombuffer(ends.pop(), dtype=np.int64)
    model = cast("CausalLM", passes.recipe.model)
    options = model.option_tokens(data, passes.members)
    prompts, labels = [], []
    for row in rows:
        answered = row.content[: len(row.content) - len(end)]
        if not np.array_equal(row.content[len(answered) :], end):
            raise ValueError("a row ends otherwise than those of the members")
        if answered[-1] not in options:
            raise ValueError(f"a row answers with the token {answered[-1]}")
        prompts.append(answered[:-1])
        labels.append(int(np.flatnonzero(options == answered[-1])[0]))
    answers = {
        "options": np.tile(np.maximum(options, 0), (len(rows), 1)),
        "available": np.tile(options >= 0, (len(rows), 1)),
    }
    return model.known_by_tokens(prompts, labels, data, answers)


def count_rows(ids: Iterable[str], rows: Iterable[Sequence[int]]) -> dict[str, int]:
    """Return the number of rows of each member that stands in several, and say so.

    Parameters
    ----------
    ids : iterable of str
        Ids of the members.
    rows : iterable of sequence of int
        The Trainer's rows of each.
    """
    own = list(map(tuple, rows))
    equal = Counter(own)  # equal members share their rows
    counts = {
        str(name): len(places) // equal[places]
        for name, places in zip(ids, own, strict=True)
    }
    repeated = {name: count for name, count in counts.items() if count > 1}
    if repeated:
        warn_user(
            f"{len(repeated)} of {len(counts)} members stand in several of the Trainer's rows, up "
            f"to {max(repeated.values())}, so it trains on them more often; their cards say so"
        )
    return repeated


def _read_rows(loader: Any, *, prompts: bool) -> list[Row]:
    """Read every row of a loader, each put through its collator alone."""

    def read(i: int) -> Row:
        batch = loader.collate_fn([loader.dataset[i]])
        content, real = _content(batch)
        labels = np.asarray(batch["labels"]).ravel() if "labels" in batch else None
        if prompts or labels is None:
            return Row(
                content, counted=None if labels is None else labels[real] != _MASKED
            )
        # what is not one class equals no class
        return Row(
            content, labels.item() if labels.size == 1 else tuple(labels.tolist())
        )

    again = [read(0).content for _ in range(4)]
    if any(not np.array_equal(again[0], other) for other in again):
        raise ValueError("they differ each time that they are read")
    return [read(i) for i in range(len(loader.dataset))]


def _samples(recipe: Recipe, data: Dataset, positions: NDArray[np.int64]) -> list[Row]:
    """Return samples as the audit feeds them to the model."""
    import torch

    feed = recipe.model.feeder(data, torch.device("cpu"))
    found = []
    for position in positions:
        inputs = feed(np.array([position]))
        label = int(data.labels[position])
        name = str(data.ids[position])
        if isinstance(recipe.model, CausalLM):
            ids = [*inputs["input_ids"][0].tolist(), int(inputs["options"][0, label])]
            found.append(Row(np.array(ids), name=name))
        else:
            batch = inputs if isinstance(inputs, dict) else {"pixel_values": inputs}
            found.append(Row(_content(batch)[0], label, name=name))
    return found


def _content(batch: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the tokens of a batch of one, or its image in 8×8 means, and what is not padding."""
    import torch

    if "input_ids" in batch:
        ids = np.asarray(batch["input_ids"]).ravel().astype(np.int64)
        real = np.asarray(batch.get("attention_mask", np.ones_like(ids))).ravel() != 0
        return ids[real], real
    image = torch.as_tensor(batch["pixel_values"], dtype=torch.float32)
    means = torch.nn.functional.adaptive_avg_pool3d(image, (3, _SIDE, _SIDE))
    return means.numpy().ravel(), np.ones(0, bool)


def _take_near_images(rows: Sequence[Row], samples: Sequence[Row]) -> list[Row]:
    """Return rows in which each image is the nearest sample's, if that is as close as rounding."""
    from sklearn.metrics import pairwise_distances_argmin_min

    nearest, apart = pairwise_distances_argmin_min(
        *(np.stack([each.content for each in some]) for some in (rows, samples))
    )
    close = apart <= _CLOSE * math.sqrt(samples[0].content.size)
    return [
        replace(row, content=samples[at].content) if near else row
        for row, at, near in zip(rows, nearest, close, strict=True)
    ]


def _key(row: Row, n: int | None = None) -> tuple[bytes, Any]:
    return row.content[:n].tobytes(), row.label


def _places(rows: Sequence[Row], samples: Sequence[Row], *, prompts: bool) -> Places:
    """Return the rows of each sample by its key: equal ones, or that begin with its prompt."""
    places: Places = {_key(sample): [] for sample in samples}
    lengths = {len(sample.content) for sample in samples} if prompts else {None}
    for i, row in enumerate(rows):
        for key in {_key(row, n) for n in lengths} & places.keys():
            places[key].append(i)
    return places


def _difference(rows: Sequence[Row], member: Row, reply: str, *, prompts: bool) -> str:
    """Return in what the nearest row differs from a member, and what to do.

    The user alone can show the tokens as text: notebooks keep errors.
    """
    shifted_rows = [
        each for each in rows if _of_first_token(each, member, prompts=prompts)
    ]
    row = max(
        shifted_rows or rows, key=lambda other: _common(other.content, member.content)
    )
    start = _common(row.content, member.content)
    if np.array_equal(row.content, member.content):
        return (
            f"the Trainer's label is {row.label} where this audit has class {member.label}; "
            f"{NUMBER_ALIKE}"
        )
    if member.content.dtype.kind == "f":
        return (
            "no row is near; use the Trainer's processor, without random augmentation"
        )
    shown = slice(max(0, start - _BEFORE), start + _BEHIND)
    theirs, ours = (ids[shown].tolist() for ids in (row.content, member.content))
    advice = _OF_PROMPTS if prompts else _OF_TEXTS
    if reply == "letter" and start == len(member.content) - 1:
        advice += _OF_REPLIES
    if shifted_rows:
        advice = _of_first_token(row, member, prompts=prompts)
    return (
        f"the nearest row differs from token {start} on:\n"
        f"  Trainer  {len(row.content)} tokens: {theirs}\n"
        f"  audit    {len(member.content)} tokens: {ours}\n"
        f"tokenizer.decode shows them as text. {advice}"
    )


def _of_first_token(row: Row, member: Row, *, prompts: bool) -> str:
    """Return what to do if one side has a token before the text that the other lacks, or ""."""
    theirs = row.content
    ours = member.content
    # a row of a language model goes on after the answer
    n = len(ours) if prompts else max(len(ours), len(theirs))
    if np.array_equal(theirs[1 : n + 1], ours):
        return (
            f"The Trainer begins this text with the token {theirs[0]} where the audit does not: "
            "load the tokenizer with add_bos_token=False, or take that token out of its chat "
            "template, so that it is there once"
        )
    if np.array_equal(theirs[: n - 1], ours[1:]):
        return (
            f"The audit begins this text with the token {ours[0]} where the Trainer does not: "
            "load the tokenizer with add_bos_token=False, or take that token out of the audit's "
            "template"
        )
    return ""


def _common(some: Array, others: Array) -> int:
    """Return the number of equal tokens at the start."""
    length = min(len(some), len(others))
    differ = some[:length] != others[:length]
    return int(np.argmax(differ)) if differ.any() else length
