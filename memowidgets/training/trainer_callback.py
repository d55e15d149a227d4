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
from memowidgets.data import Dataset
from memowidgets.files import digest_of_arrays
from memowidgets.models import CausalLM, SequenceClassifier
from memowidgets.models.base import unwrap
from memowidgets.models.device import used_precision, working_on
from memowidgets.models.heads import plain
from memowidgets.models.lora import (
    adapter_config,
    adapter_weights,
    check_adapters,
    whole_adapter,
)
from memowidgets.models.transformer import NUMBER_ALIKE, TransformerModel
from memowidgets.progress import Progress
from memowidgets.training.checkpoint import (
    LAYER,
    REPEATS,
    Allocate,
    Forward,
    Record,
    Shapes,
    arrays_of,
    device_of,
    forward,
    read_records,
)
from memowidgets.training.config import restore_in_main_thread
from memowidgets.training.draws import Draws
from memowidgets.training.learner import ModelPasses, Recipe
from memowidgets.training.recorder import Weights, in_the_first_process, trained_weights
from memowidgets.vocabulary import quoted

if TYPE_CHECKING:
    from torch import nn

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


class MemorizationCallback(TrainerCallback):
    r"""Callback that records a Trainer's checkpoints into an audit, and interrupts it to look.

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
        ρ: interrupt where to look, see `Audit.train`: at the first checkpoint where the median
        loss of the members has dropped by this share (paper, Section 4.3), or, if it comes before,
        where held-out loss has turned for long, or where the drop has levelled off. The Trainer's
        state is saved there, unless its ``save_strategy`` is ``"no"``. None records without
        interrupting.
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
        About what could not be checked, and if nothing has settled or ρ was crossed by a jump.

    Notes
    -----
    ``trainer.train(resume_from_checkpoint=True)`` continues after the interruption, and so does the
    recording. If several data-parallel processes train, the first one writes. Weights that are
    spread over processes (FSDP, DeepSpeed's stage 3) are an error.

    Recorded losses are the cross-entropy of the labels. The Trainer's own loss is trained as it is:
    class weights, label smoothing or a ``compute_loss`` of its own are neither changed nor checked.

    How often the Trainer draws each member is counted, whatever its sampler. From the end of the
    first epoch on, and after as many draws as there are rows, a member that was not drawn has no
    score, and a note says how many there are. Before, this holds only for classes of which none was
    drawn where ordinary shuffling would have drawn twenty or more.

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
        self._recorder = audit.recorder(
            stop_at_drop, layers, over_last, checkpoint_every, keep
        )
        self._resumed = False
        self._progress: Progress | None = None
        self.interrupted: Record | None = None

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Check that the audit belongs to this training, and record step 0."""
        self._resumed = state.global_step > 0
        self.interrupted = None
        self._progress = Progress() if args.disable_tqdm else None
        passes = self._recorder.passes
        loader = kwargs.get("train_dataloader")
        try:
            batches = len(loader)  # type: ignore[arg-type]
        except TypeError:  # streamed data
            batches = math.ceil(
                len(passes.members) / (args.train_batch_size * args.world_size)
            )
        course = (
            max(1, math.ceil(batches / args.gradient_accumulation_steps)),
            state.max_steps,
        )
        model = unwrap(kwargs["model"])
        self._recorder.follow(model, *course)
        if not state.is_world_process_zero:
            return
        with restore_in_main_thread(device_of(model)):
            rows = check_rows(loader, passes)
            passes.check(model)
            self._recorder.start(model, state.global_step)
            if rows:
                self._count_draws(loader, rows, args, state.global_step)
            if self._recorder.is_due(state.global_step):
                self._recorder.record(model, state.global_step, self._progress)
            if rows:
                ids = passes.recipe.data.ids[passes.members]
                if repeated := count_rows(ids, rows):
                    self._recorder.run.write_note(REPEATS, {"rows": repeated})

    def _count_draws(
        self, loader: Any, rows: list[list[int]], args: Any, step: int
    ) -> None:
        """Count what the loader draws; resumed, it begins its epoch again and skips batches."""
        again = step
        if not args.ignore_data_skip:
            again -= step % self._recorder.steps_per_epoch
        per_step = args.gradient_accumulation_steps * args.world_size
        self._recorder.count(Draws(loader, rows), step, again, per_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record a checkpoint if one is due, and interrupt where to look."""
        step = state.global_step
        if self._recorder.is_due(step) and in_the_first_process(
            lambda: self._reaches(kwargs["model"], step), otherwise=False
        ):
            control.should_training_stop = True
            control.should_save |= str(getattr(args.save_strategy, "value", "")) != "no"

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record the end if it came unplanned, and warn of what is unusual about the place."""
        step = state.global_step
        if not state.is_world_process_zero or self.interrupted is not None:
            return
        if not args.load_best_model_at_end:  # else the model has other weights already
            self._recorder.record(kwargs["model"], step, self._progress)
        self._recorder.finish()
        chosen = self._recorder.prediction(step)
        for note in () if chosen is None else chosen.warnings:
            warn_user(note)

    def _reaches(self, model: nn.Module, step: int) -> bool:
        """Record a checkpoint, and return whether to interrupt here."""
        before = read_records(self._recorder.run) if self._resumed else []
        record = self._recorder.record(model, step, self._progress)
        chosen = self._recorder.told(step)
        if chosen is None or chosen.until != record:
            return False
        # it was interrupted here already
        if any(known.step == step for known in before):
            return False
        from tqdm.auto import tqdm

        self.interrupted = record
        for note in chosen.warnings:
            if note.key != chosen.why:  # which is said below
                warn_user(note)
        tqdm.write(
            f"memowidgets: interrupted at {record.name} (step {step}) to look at "
            f"{chosen.record.name}: {chosen.reason}. "
            "trainer.train(resume_from_checkpoint=True) continues"
        )
        return True


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
                "an audit of a CausalLM or a classifier of transformers can record a Trainer, not "
                f"one of {type(model).__name__}"
            )
        if model.settings().get("lora") is not None:
            raise ValueError(
                "the audit's model adds its own adapters, which are not those in training; create "
                f"it with {type(model).__name__}.from_model(model, tokenizer), without lora"
            )
        if recipe.settings.label_noise:
            raise ValueError(
                "label_noise changes only the audit's own training; leave it out"
            )
        super().__init__(recipe, members, held_out)
        self.layer_names = tuple(name for name in layers if name in kept)
        self._layers = tuple(layers)

    def check(self, module: nn.Module) -> None:
        """Raise for a module that is not the audit's.

        Raises
        ------
        ValueError
            If its classes, its padding or its number of blocks are others, or its adapter adds
            tokens.
        """
        model = self.recipe.model
        check_adapters(module)
        if not isinstance(model, CausalLM):
            config: Any = plain(module).config
            width = int(config.num_labels)
            n = len(self.recipe.data.class_names)
            if width != n:
                raise ValueError(
                    f"the model in training has {width} logits for {n} classes"
                )
        if isinstance(model, CausalLM | SequenceClassifier):
            model.check_padding(module)
        found = model.layer_names(module)
        if found != self._layers:
            raise ValueError(
                f"the model in training has {len(found)} blocks, the audit's {len(self._layers)}; "
                f"pass the trained model to {type(model).__name__}.from_model"
            )

    def look(
        self, module: nn.Module, progress: Progress, allocate: Allocate
    ) -> Forward:
        """Run the module over the members, and keep the layers that are stored."""
        unkept = {LAYER + name for name in {*self._layers} - {*self.layer_names}}
        with used_precision(module) as used:

            def stored(shapes: Shapes, _: str) -> Mapping[str, NDArray[np.float32]]:
                lasting = {
                    name: shape for name, shape in shapes.items() if name not in unkept
                }
                return allocate(lasting, used())

            where = self.recipe.data, self.members
            seen = self.ask(
                module, *where, capture=True, progress=progress, allocate=stored
            )
            # in the Trainer's own autocast
            return replace(seen, precision=used(), made_by="")

    def weights(self, module: nn.Module) -> Weights:
        """Return the trained weights and lasting buffers, or an adapter as peft saves it.

        It is an adapter if that has all that is trained.
        """
        adapter = whole_adapter(module)
        if adapter is not None:
            arrays = arrays_of(adapter_weights(module, adapter))
            notes = adapter_config(module, adapter)
            return Weights(digest_of_arrays(arrays), arrays, "adapter_model", notes)
        lasting = module.state_dict().keys()
        # as running means
        buffers = {n: b for n, b in module.named_buffers() if n in lasting}
        arrays = arrays_of(trained_weights(module) | buffers)
        return Weights(digest_of_arrays(arrays), arrays, "weights")

    def ask(
        self,
        module: nn.Module,
        data: Dataset,
        positions: NDArray[np.int64],
        **options: Any,
    ) -> Forward:
        """Run the module over any samples, in the precision of its training."""
        device = device_of(module)
        with working_on(device):
            return forward(
                self.recipe.model,
                module,
                data,
                positions,
                device,
                "float32",  # the module's forward already has the training's autocast
                **options,
            )


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


def check_rows(loader: Any, passes: TrainerPasses) -> list[list[int]]:
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
    row = max(rows, key=lambda other: _common(other.content, member.content))
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
    return (
        f"the nearest row differs from token {start} on:\n"
        f"  Trainer  {len(row.content)} tokens: {theirs}\n"
        f"  audit    {len(member.content)} tokens: {ours}\n"
        f"tokenizer.decode shows them as text. {advice}"
    )


def _common(some: Array, others: Array) -> int:
    """Return the number of equal tokens at the start."""
    length = min(len(some), len(others))
    differ = some[:length] != others[:length]
    return int(np.argmax(differ)) if differ.any() else length
