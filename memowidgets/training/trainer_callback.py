"""Callback for transformers' Trainer (and TRL's) that adds an audit to an existing script.

Below it are the passes over the module in training, and the check that the Trainer's rows are the
audit's members.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from transformers import TrainerCallback

from memowidgets.checks import warn_user
from memowidgets.data import Dataset, MCQDataset
from memowidgets.models import CausalLM, SequenceClassifier
from memowidgets.models.base import modes_kept
from memowidgets.models.device import used_precision, working_on
from memowidgets.models.heads import plain
from memowidgets.models.lora import adapter_config, adapter_weights
from memowidgets.models.transformer import TransformerModel
from memowidgets.progress import Progress
from memowidgets.stamps import digest_of_arrays
from memowidgets.training.checkpoint import REPEATS, Prediction, Record, arrays_of
from memowidgets.training.forward import (
    LAYER,
    Allocate,
    Forward,
    Shapes,
    device_of,
    forward,
    unwrap,
)
from memowidgets.training.learner import ModelPasses, Recipe
from memowidgets.training.recorder import (
    Weights,
    check_whole,
    in_the_first_process,
    trained_weights,
)
from memowidgets.training.seeds import preserved
from memowidgets.visible import listed, quoted
from memowidgets.vocabulary import percent

if TYPE_CHECKING:
    from torch import nn

_MASKED = -100
_BEFORE, _BEHIND = 4, 8  # tokens that an error shows around the first that differs
_LABELS = ("labels", "label", "label_ids")
_SIDE = 8  # rows and columns of an image's summary
_CLOSE = 0.05  # of normalised pixels, about a hundredth of their range
_DIGITS = 4  # of normalised pixels, where one image is summarised twice
_OF_PROMPTS = (
    "The members must be the Trainer's rows, in its wording: pass the script's own prompt as "
    'template, or template="chat" with tokenizer= for chats; create the audit from its training '
    "rows alone"
)
_OF_TEXTS = (
    "The members must be the Trainer's rows: use the script's tokenizer, and if it cuts long "
    "texts, its max_length with truncate=True"
)
_OF_IMAGES = (
    "The members must be the Trainer's rows, with its processor and without random augmentation"
)
_READING = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)
Array = NDArray[Any]


class MemorizationCallback(TrainerCallback):
    r"""Callback that records a Trainer's checkpoints into an audit, and interrupts it at ρ.

    Checkpoints are step 0, every ``checkpoint_every`` epochs of the audit's `TrainingConfig`, and
    the end. Batch size, learning rate and all else are the Trainer's. The model, its mode and all
    random states stay unchanged: a run with the callback ends with the same weights as a run
    without it.

    Parameters
    ----------
    audit : Audit
        Audit of the samples that the Trainer trains on, and of ``CausalLM.from_model(model,
        tokenizer)`` (their ``template`` must be the Trainer's prompt), or of a classifier, such as
        ``SequenceClassifier.from_model(model, tokenizer)``. Usually ``members="all"``.
    stop_at_drop : float or None
        ρ: interrupt at the first checkpoint where the median loss of the members has dropped by
        this share (paper, Section 4.3), and save the Trainer's state there, unless its
        ``save_strategy`` is ``"no"``. None records without interrupting.
    layers : "last", "all", one, or several
        Layers whose hidden states are stored for scores. Each takes 4 bytes per member and value of
        the hidden state, at every checkpoint.
    over_last : int
        Number of evaluations after step 0 in the running median of the loss. Use 3 or so when the
        loss is noisy.
    checkpoint_every : float, optional
        Epochs between two checkpoints, as in `mw.watch`. Default: the audit's `TrainingConfig`'s.
    keep : {"all", "prediction+final"}
        Where weights and hidden states are kept: at every checkpoint, or at the prediction
        checkpoint and the last one. Losses and logits are kept at every checkpoint.

    Attributes
    ----------
    interrupted : Record or None
        Checkpoint at which the training was interrupted.

    Raises
    ------
    TypeError
        If the audit is not of a model of transformers.
    ValueError
        If `stop_at_drop` is not a share, a layer is unknown, or the audit's model adds its own
        adapters. When training begins: if the Trainer's rows, labels, model or course are not the
        audit's, or held-out samples are among the rows. If tokens differ, the message has both
        encodings.

    Warns
    -----
    UserWarning
        About what could not be checked, and if ρ was not reached or was crossed by a jump.

    Notes
    -----
    ``trainer.train(resume_from_checkpoint=True)`` continues after the interruption, and so does the
    recording. If several data-parallel processes train, the first one writes. Weights that are
    spread over processes (FSDP, DeepSpeed's stage 3) are an error.

    Recorded losses are the cross-entropy of the labels. The Trainer's own loss is trained as it is:
    class weights, label smoothing or a ``compute_loss`` of its own are neither changed nor checked.

    Examples
    --------
    ::

        data = mw.data.MCQDataset.from_records(rows, template="{question}\n{options}\nAnswer:")
        model = mw.models.CausalLM.from_model(hf_model, tokenizer)
        audit = mw.Audit(model, data, path="runs/mine", members="all", held_out=None)
        trainer = Trainer(..., callbacks=[mw.training.MemorizationCallback(audit)])
        trainer.train()
        audit.dashboard()
    """

    def __init__(
        self,
        audit: Any,
        stop_at_drop: float | None = 0.95,
        layers: str | int | Iterable[str | int] = "last",
        over_last: int = 1,
        *,
        checkpoint_every: float | None = None,
        keep: str = "all",
    ) -> None:
        self._recorder = audit.recorder(stop_at_drop, layers, over_last, checkpoint_every, keep)
        self._resumed = False
        self._progress: Progress | None = None
        self.interrupted: Record | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Check that the audit belongs to this training, and record step 0."""
        self._resumed, self.interrupted = state.global_step > 0, None
        self._progress = Progress() if args.disable_tqdm else None
        passes, loader = self._recorder.passes, kwargs.get("train_dataloader")
        try:
            batches = len(loader)  # type: ignore[arg-type]
        except TypeError:  # streamed data
            batches = math.ceil(len(passes.members) / (args.train_batch_size * args.world_size))
        course = max(1, math.ceil(batches / args.gradient_accumulation_steps)), state.max_steps
        model = unwrap(kwargs["model"])
        check_whole(model)
        if not state.is_world_process_zero:
            self._recorder.follow(*course)
            return
        with preserved(device_of(model)):
            repeated = check_rows(loader, passes)
            passes.check(model)
            self._recorder.start(model, state.global_step, *course)
            self._recorder.go_on(model, state.global_step, self._progress)
            if repeated:
                self._recorder.run.write_note(REPEATS, {"rows": repeated})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record a checkpoint if one is due, and interrupt at ρ."""
        step = state.global_step
        if self._recorder.is_due(step) and in_the_first_process(
            lambda: self._reaches(kwargs["model"], step), otherwise=False
        ):
            control.should_training_stop = True
            control.should_save |= str(getattr(args.save_strategy, "value", "")) != "no"

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record the end if it came unplanned, and warn about ρ."""
        step = state.global_step
        if not state.is_world_process_zero or self.interrupted is not None:
            return
        if step == state.max_steps or self._recorder.recorded(step) is not None:
            self._recorder.finish(step)
        elif args.load_best_model_at_end:  # the model already has its weights
            warn_user(
                f"the training ended at step {step}, where no checkpoint was due, and the "
                "Trainer has loaded its best model since, so this run has no final checkpoint"
            )
            self._recorder.finish(state.max_steps)
        else:
            self._recorder.record(kwargs["model"], step, self._progress)
            self._recorder.finish(step)
        _warn(self._recorder.prediction(step))

    def _reaches(self, model: nn.Module, step: int) -> bool:
        """Record a checkpoint, and return whether to interrupt here."""
        seen_before = self._resumed and self._recorder.recorded(step) is not None
        record = self._recorder.record(model, step, self._progress)
        chosen = self._recorder.prediction(step)
        if seen_before or chosen is None or not chosen.reached or chosen.record.step != step:
            return False
        from tqdm.auto import tqdm

        self.interrupted = record
        _warn(chosen)
        drop = percent(chosen.drop)
        tqdm.write(
            f"memowidgets: interrupted at {record.name} (step {step}), where the median loss has "
            f"dropped by {drop}; trainer.train(resume_from_checkpoint=True) continues"
        )
        return True


def _warn(chosen: Prediction | None) -> None:
    for note in chosen.warnings if chosen is not None else ():
        warn_user(note)


class TrainerPasses(ModelPasses):
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
        if not isinstance(model, TransformerModel):
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
        super().__init__(recipe, members, held_out)
        self.layer_names = tuple(name for name in layers if name in kept)
        self._layers = tuple(layers)

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
        if isinstance(model, CausalLM | SequenceClassifier):
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

            def stored(shapes: Shapes, _: str) -> Mapping[str, NDArray[np.float32]]:
                lasting = {name: shape for name, shape in shapes.items() if name not in unkept}
                return allocate(lasting, used[-1])

            where = self.recipe.data, self.members
            seen = self.ask(module, *where, capture=True, progress=progress, allocate=stored)
            return replace(seen, precision=used[-1], made_by="")  # in the Trainer's own autocast

    def weights(self, module: nn.Module) -> Weights:
        """Return the trained weights and lasting buffers, or an adapter as peft saves it."""
        adapter = getattr(module, "active_adapter", None)
        if hasattr(module, "get_base_model") and isinstance(adapter, str):
            arrays = arrays_of(adapter_weights(module, adapter))
            notes = adapter_config(module, adapter)
            return Weights(digest_of_arrays(arrays), arrays, "adapter_model", notes)
        lasting = module.state_dict().keys()
        buffers = {n: b for n, b in module.named_buffers() if n in lasting}  # as running means
        arrays = arrays_of(trained_weights(module) | buffers)
        return Weights(digest_of_arrays(arrays), arrays, "weights")

    def ask(
        self, module: nn.Module, data: Dataset, positions: NDArray[np.int64], **options: Any
    ) -> Forward:
        """Run the module over any samples, in the precision of its training."""
        device = device_of(module)
        with modes_kept(module), working_on(device):
            return forward(
                self.recipe.model,
                module,
                data,
                positions,
                device,
                "float32",  # the module's forward already has the training's autocast
                **options,
            )


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


class Unreadable(Exception):  # noqa: N818 - no error: some rows can't be read before training
    """The rows cannot be compared, for the reason in the message."""


@dataclass(frozen=True)
class Row:
    """One row of the training data as the model receives it, or a sample as the audit encodes it.

    Attributes
    ----------
    content : array of shape (n_tokens,), int64, or (values,), float32
        Tokens without padding, or a summary of the image. For a sample and a language model, the
        tokens of the prompt, followed by the label's.
    label : int or None
        Its class, for a classifier. None if the row does not say.
    counted : array of shape (n_tokens,), bool, or None
        Whether the loss includes each token, for a language model. None if the row does not say.
    name : str
        Id of the sample.
    """

    content: Array
    label: int | None = None
    counted: NDArray[np.bool_] | None = None
    name: str = ""


def check_rows(loader: Any, passes: TrainerPasses) -> dict[str, int]:
    """Check that a Trainer trains on an audit's members as the audit encodes them.

    Returns
    -------
    dict of str to int
        Number of rows of each member that stands in several, by its id.

    Raises
    ------
    ValueError
        If a member is in no row or has another label there, or a held-out sample is in one.

    Warns
    -----
    UserWarning
        About what could not be checked, and about members in several rows.
    """
    recipe, aside = passes.recipe, passes.held_out
    prompts = isinstance(recipe.model, CausalLM)
    try:
        rows = read_rows(loader, prompts=prompts)
        members = _samples(recipe, recipe.data, passes.members)
        others = _samples(recipe, aside, np.arange(len(aside))) if aside else []
    except Unreadable as reason:
        warn_user(f"{reason}, so it was not checked whether it encodes this audit's members alike")
        return {}
    at = _places(rows, others, prompts=prompts)
    found = [sample.name for sample, its in zip(others, at, strict=True) if its]
    if found:
        raise ValueError(
            f"{len(found)} held-out samples of this audit are rows of the Trainer, the first is "
            f"{quoted(found[0])}: nothing would be held out. Create the audit with "
            "held_out=None, or with the Trainer's evaluation data"
        )
    try:
        places = [tuple(its) for its in check_members(rows, members, prompts=prompts)]
    except ValueError as error:
        raise ValueError(f"{error}{_advise_reply(recipe.data, rows, members)}") from None
    equal = Counter(places)  # equal members share their rows
    counts = {m.name: len(at) // equal[at] for m, at in zip(members, places, strict=True)}
    repeated = {name: count for name, count in counts.items() if count > 1}
    if repeated:
        warn_user(
            f"{len(repeated)} of {len(members)} members stand in several of the Trainer's rows, up "
            f"to {max(repeated.values())}: it trains on them more often than on others, and their "
            "cards say so"
        )
    return repeated


def _advise_reply(data: Dataset, rows: Sequence[Row], members: Sequence[Row]) -> str:
    """Return what to pass if rows have the prompts of letters and another answer, else nothing."""
    if not isinstance(data, MCQDataset) or data.reply == "text" or not members:
        return ""
    prompt = members[0].content[:-1]
    if not any(np.array_equal(row.content[: len(prompt)], prompt) for row in rows):
        return ""
    return (
        ". The prompts are the same and the letters are not: if your rows answer with the option's "
        'text, create the data with reply="text"; an audit needs one token an option'
    )


def _samples(recipe: Recipe, data: Dataset, positions: NDArray[np.int64]) -> list[Row]:
    """Return samples as the audit feeds them to the model."""
    import torch

    feed = recipe.model.feeder(data, torch.device("cpu"))
    found = []
    for position in positions:
        inputs, label = feed(np.array([position])), int(data.labels[position])
        if isinstance(recipe.model, CausalLM):
            content = np.array([*inputs["input_ids"][0].tolist(), int(inputs["options"][0, label])])
        else:
            content = _content(inputs if isinstance(inputs, dict) else {"pixel_values": inputs})[0]
        found.append(Row(content, label, name=str(data.ids[position])))
    return found


def read_rows(loader: Any, *, prompts: bool) -> list[Row]:
    """Read every row of a loader, each put through its collator alone.

    Parameters
    ----------
    loader : DataLoader
        The Trainer's.
    prompts : bool
        Whether a language model is trained, and not a classifier.

    Raises
    ------
    Unreadable
        If the data are streamed, are augmented at random, or have neither tokens nor pixels.
    ValueError
        If the label of a classifier is not one class, or a row has token types.
    """
    dataset: Any = getattr(loader, "dataset", None)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Unreadable("the Trainer streams its data")

    def read(i: int) -> tuple[Array, Array | None, bool]:
        batch = loader.collate_fn([dataset[i]])
        names = _LABELS[:1] if prompts else _LABELS
        label = next((np.asarray(batch[name]) for name in names if name in batch), None)
        content, real = _content(batch)
        if prompts and label is not None:
            label = label.reshape(-1)[real]
        return content, label, bool(np.any(np.asarray(batch.get("token_type_ids", 0))))

    try:
        again = [read(0)[0] for _ in range(0 if prompts else 4)]
        found = [read(i) for i in range(len(dataset))]
    except _READING as error:
        raise Unreadable(
            f"the Trainer's rows cannot be read one by one ({type(error).__name__}: {error})"
        ) from error
    if any(not np.array_equal(again[0], other) for other in again):
        raise Unreadable("the Trainer's rows differ each time that they are read")
    if prompts:
        return [Row(c, counted=None if w is None else w != _MASKED) for c, w, _ in found]
    for i, (_, label, has_types) in enumerate(found):
        if has_types:
            raise ValueError(
                f"row {i} of the Trainer has token_type_ids other than 0, as pairs of texts do; "
                "this audit passes texts without them, so its numbers would be of other inputs"
            )
        if label is not None and (label.size != 1 or label.dtype.kind not in "iub"):
            raise ValueError(
                f"the label of row {i} of the Trainer is {quoted(label)}, and an audit needs the "
                "number of one class"
            )
    return [
        Row(content, None if label is None else int(label.item())) for content, label, _ in found
    ]


def _content(batch: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the tokens of a batch of one, or its image in 8×8 means, and what is not padding."""
    import torch

    if "input_ids" in batch:
        ids = np.asarray(batch["input_ids"]).reshape(-1).astype(np.int64)
        mask = batch.get("attention_mask")
        real = np.ones(len(ids), bool) if mask is None else np.asarray(mask).reshape(-1) != 0
        return ids[real], real
    if "pixel_values" not in batch:
        raise Unreadable(f"the Trainer's rows have {listed(batch)}, neither tokens nor pixels")
    image = torch.as_tensor(batch["pixel_values"], dtype=torch.float32)[0]
    sides = min(_SIDE, image.shape[1]), min(_SIDE, image.shape[2])
    means = torch.nn.functional.adaptive_avg_pool2d(image, sides)
    return means.numpy().ravel().round(_DIGITS) + np.float32(0), np.ones(0, bool)  # no −0


def check_members(rows: Sequence[Row], members: Sequence[Row], *, prompts: bool) -> list[list[int]]:
    """Check that each member is a row, or at the start of one if it is a prompt, in any order.

    Returns
    -------
    list of list of int
        The rows of each member that have its label.

    Raises
    ------
    ValueError
        If a member is in no row, only with another label, or its label is not in the loss. Where
        tokens differ, the message has both encodings.

    Warns
    -----
    UserWarning
        About what could not be checked, and about rows that are not members.
    """
    found = _places(rows, members, prompts=prompts, close=_CLOSE)
    missing = [member for member, its in zip(members, found, strict=True) if not its]
    room, needed = (sum(len(each.content) for each in some) for some in (rows, members))
    is_packed = prompts and len(missing) < len(members) > len(rows) and room >= needed
    if missing and not is_packed:
        raise ValueError(
            f"{len(missing)} of {len(members)} members are in no row of the Trainer as this audit "
            f"encodes them; for {quoted(missing[0].name)} "
            + _difference(rows, missing[0], prompts=prompts)
        )
    trained = []
    for member, its in zip(members, found, strict=True):
        masks = [rows[i].counted for i in its]
        if its and all(mask is not None and not mask[len(member.content) - 1] for mask in masks):
            raise ValueError(
                f"the Trainer's loss leaves out the label of {quoted(member.name)} (its labels are "
                f"{_MASKED} there), so it does not train what this audit looks at"
            )
        trained.append([i for i in its if rows[i].label in (member.label, None)])
        if its and not trained[-1]:
            raise ValueError(
                f"{quoted(member.name)} is class {rows[its[0]].label} in the Trainer's rows and "
                f"{member.label} in this audit. Number the classes alike, with "
                "class_names=list(model.config.id2label.values())"
            )
    more = len(rows) - len({place for places in found for place in places})
    if not prompts and any(row.label is None for row in rows):
        warn_user(
            "the Trainer's rows have no labels, so it was not checked whether they are the same"
        )
    elif missing:
        warn_user(
            f"{len(missing)} of {len(members)} members were not found at the start of a row, which "
            "seem to have several samples each, so it was not checked whether these are encoded "
            "alike"
        )
    elif more:
        warn_user(
            f"{more} of the Trainer's {len(rows)} rows are not members of this audit; they are "
            "trained on and not scored"
        )
    return trained


def _places(
    rows: Sequence[Row], samples: Sequence[Row], *, prompts: bool, close: float = 0.0
) -> list[list[int]]:
    """Return the rows of each sample: those with its content, or that begin with its prompt.

    An image that no row has is taken for the nearest one, if that is as close.
    """
    places: dict[bytes, list[int]] = {sample.content.tobytes(): [] for sample in samples}
    lengths = {len(sample.content) for sample in samples}
    for i, row in enumerate(rows):
        for n in lengths if prompts else [len(row.content)]:
            start = row.content[:n].tobytes()
            if n <= len(row.content) and start in places:
                places[start].append(i)
    found = [places[sample.content.tobytes()] for sample in samples]
    lost = [i for i, its in enumerate(found) if not its]
    widths = {len(each.content) for each in (*rows, *samples)}
    if close and lost and rows and samples[0].content.dtype.kind == "f" and len(widths) == 1:
        from sklearn.neighbors import NearestNeighbors

        nearest = NearestNeighbors(n_neighbors=1).fit(np.stack([row.content for row in rows]))
        apart, at = nearest.kneighbors(np.stack([samples[i].content for i in lost]))
        for i, distance, row in zip(lost, apart[:, 0], at[:, 0], strict=True):
            found[i] = [int(row)] if distance <= close * math.sqrt(*widths) else []
    return found


def _difference(rows: Sequence[Row], member: Row, *, prompts: bool) -> str:
    """Return in what the nearest row differs from a member, and what to do.

    The user alone can show the tokens as text: notebooks keep errors.
    """
    if not rows or member.content.dtype.kind == "f":
        return f"no row is near. {_OF_IMAGES}"
    row = max(rows, key=lambda other: _common(other.content, member.content))
    start = _common(row.content, member.content)
    shown = slice(max(0, start - _BEFORE), start + _BEHIND)
    theirs, ours = (ids[shown].tolist() for ids in (row.content, member.content))
    return (
        f"the nearest row differs from token {start} on:\n"
        f"  Trainer  {len(row.content)} tokens: {theirs}\n"
        f"  audit    {len(member.content)} tokens: {ours}\n"
        f"tokenizer.decode shows them as text. {_OF_PROMPTS if prompts else _OF_TEXTS}"
    )


def _common(some: Array, others: Array) -> int:
    """Return the number of equal tokens at the start."""
    length = min(len(some), len(others))
    differ = some[:length] != others[:length]
    return int(np.argmax(differ)) if differ.any() else length
