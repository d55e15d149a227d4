"""Passes over a module that a Trainer of transformers trains, and a check of its rows."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.data import Dataset
from memowidgets.data.questions import in_chat
from memowidgets.models import CausalLM, SequenceClassifier
from memowidgets.models.base import modes_kept
from memowidgets.models.device import Memory, used_precision, working_on
from memowidgets.models.heads import plain
from memowidgets.progress import Progress
from memowidgets.stamps import digest_of_arrays
from memowidgets.training.checkpoint import arrays_of
from memowidgets.training.forward import LAYER, Forward, Shapes, forward, halve_passes
from memowidgets.training.learner import Recipe
from memowidgets.training.recorder import Allocate, Weights, trained_weights
from memowidgets.visible import listed, quoted

if TYPE_CHECKING:
    from torch import nn


_KINDS = (
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
    "AutoModelForImageClassification",
)
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


class ModelPasses:
    """Passes as an audit's model makes them, over another module of its kind.

    Parameters
    ----------
    recipe : Recipe
        Recipe of the audit, whose model feeds samples to the module.
    members : array of shape (n_members,), int64
        Positions of the members in the recipe's data.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    layers : sequence of str
        Names of the audit's layers.
    kept : collection of str
        Layers whose hidden states are stored.

    Raises
    ------
    TypeError
        If the audit's model is not a `CausalLM` or a classifier of transformers.
    ValueError
        If it has its own adapters, or the audit flips labels.
    """

    def __init__(
        self,
        recipe: Recipe,
        members: NDArray[np.int64],
        held_out: Dataset | None,
        layers: Sequence[str],
        kept: Collection[str],
    ) -> None:
        model = recipe.model
        if getattr(model, "kind", None) not in _KINDS:
            raise TypeError(
                "only an audit of a CausalLM or of a classifier of transformers can record an "
                f"external training, not one of {type(model).__name__}"
            )
        if model.settings().get("lora") is not None:
            raise ValueError(
                "the audit's model adds its own adapters, which are not those in training; create "
                f"it with {type(model).__name__}.from_model(model, tokenizer), without lora"
            )
        if recipe.settings.label_noise:
            raise ValueError(
                "label_noise changes only the audit's own training; leave it out for an external "
                "one"
            )
        self.recipe, self.members, self.held_out = recipe, members, held_out
        self.labels: NDArray[np.int64] = recipe.data.labels[members]
        self.layer_names = tuple(name for name in layers if name in kept)
        self._layers = tuple(layers)
        self._memory: Memory | None = None

    def check(self, module: nn.Module) -> None:
        """Raise for a module that is not the audit's.

        Raises
        ------
        ValueError
            If its classes, its padding or its number of blocks are others.
        """
        model = self.recipe.model
        if not isinstance(model, CausalLM):
            config: Any = plain(module).config
            check_head(config, self.recipe.data.class_names)
        if isinstance(model, SequenceClassifier):
            model.check_padding(module)
        found = model.layer_names(module)
        if found != self._layers:
            raise ValueError(
                f"the model in training has {len(found)} blocks, but the audit's has "
                f"{len(self._layers)}; pass the trained model to "
                f"{type(model).__name__}.from_model"
            )

    def look(self, module: nn.Module, progress: Progress, allocate: Allocate) -> Forward:
        """Run the module over the members, and keep the layers that are stored."""
        unkept = {LAYER + name for name in {*self._layers} - {*self.layer_names}}
        with used_precision(module) as used:

            def stored(shapes: Shapes) -> Mapping[str, NDArray[np.float32]]:
                lasting = {name: shape for name, shape in shapes.items() if name not in unkept}
                return allocate(lasting, used[-1])

            seen = self._pass(module, self.recipe.data, self.members, progress, allocate=stored)
            return replace(seen, precision=used[-1])

    def test(self, module: nn.Module, progress: Progress) -> tuple[float, float] | None:
        """Return the mean loss and the accuracy of the held-out samples, if there are any."""
        if self.held_out is None or not len(self.held_out):
            return None
        everything = np.arange(len(self.held_out))
        unseen = self._pass(module, self.held_out, everything, progress)
        return unseen.figures(self.held_out.labels)

    def weights(self, module: nn.Module) -> Weights:
        """Return the trained weights and lasting buffers, or an adapter as peft saves it."""
        peft: Any = module
        adapter = getattr(module, "active_adapter", None)
        if hasattr(module, "get_base_model") and isinstance(adapter, str):
            from memowidgets.models.lora import adapter_weights

            arrays = arrays_of(adapter_weights(peft, adapter))
            config = {**peft.peft_config[adapter].to_dict(), "inference_mode": True}
            notes = {"adapter_config.json": json.loads(json.dumps(config, default=_plain))}
            return Weights(digest_of_arrays(arrays), arrays, "adapter_model", notes)
        lasting = module.state_dict().keys()
        buffers = {n: b for n, b in module.named_buffers() if n in lasting}  # as running means
        arrays = arrays_of(trained_weights(module) | buffers)
        return Weights(digest_of_arrays(arrays), arrays, "weights")

    def _pass(
        self,
        module: nn.Module,
        data: Dataset,
        positions: NDArray[np.int64],
        progress: Progress,
        **capture: Any,
    ) -> Forward:
        device = next(module.parameters()).device
        look = partial(
            forward,
            self.recipe.model,
            module,
            data,
            positions,
            device,
            "float32",  # the module's forward already has the training's autocast
            capture=bool(capture),
            progress=progress,
            **capture,
        )
        self._memory = self._memory or Memory(device)
        with modes_kept(module), working_on(device):
            return self._memory.fit(look, partial(halve_passes, self.recipe.model))


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
    theirs, ours = (
        [" ".join(name.split()).casefold() for name in known] for known in (names, class_names)
    )
    if sorted(theirs) == sorted(ours) and theirs != ours:
        raise ValueError(
            f"the model's label2id numbers the classes {listed(names, 5)}, and the data of this "
            f"audit {listed(class_names, 5)}; create the data with class_names="
            "list(model.config.id2label.values())"
        )


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


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
