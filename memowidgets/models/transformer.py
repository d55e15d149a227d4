"""Models of transformers: weights, adapters, tokens, hidden states, and kept frozen blocks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import as_code, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.files import digest_of
from memowidgets.models.base import Bases, Model, has_users_class, restore_modes
from memowidgets.models.device import resolve_precision
from memowidgets.models.heads import CLASSES, tokens_of
from memowidgets.models.lora import (
    LoRA,
    adapter_config,
    adapter_weights,
    blocks_of,
    quiet_peft,
)
from memowidgets.models.pretrained import (
    Base,
    Given,
    Pretrained,
    random_weights,
    reader_digest,
)
from memowidgets.models.quantized import (
    check_quantization,
    compute_in,
    is_packed,
    no_adapters,
)
from memowidgets.models.tokens import Tokens, padding_token
from memowidgets.vocabulary import quoted

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch import Tensor, nn

    from memowidgets.models.prefix import Prefix, Skipped


FINE_TUNED = {
    "epochs": 1,
    "checkpoint_every": 0.2,
    "batch_size": 4,
    "optimizer": "adamw",
    "lr": 2.5e-5,
    "schedule": "linear",
    "precision": "auto",
}
CLASSIFIER = {
    **FINE_TUNED,
    "epochs": 5,
    "checkpoint_every": 0.5,
    "batch_size": 16,
    "lr": 5e-5,
}
FROM_SCRATCH = {
    **FINE_TUNED,
    "epochs": 20,
    "checkpoint_every": 1,
    "batch_size": 16,
    "lr": 3e-3,
    "precision": "float32",
}
# limits, because an untrusted run may ask for any size
_MOST_LAYERS = 128
_WIDEST = 8192
_ENTRY = "_memowidgets_entry"
NUMBER_ALIKE = (
    "number the classes alike, with class_names=list(model.config.id2label.values())"
)
_PROBED = (4, 6)  # tokens of two texts
_ROUNDED = 0.05  # what rounding may change


class _Seen:
    """What a process has seen of datasets and modules, which no other process gets."""

    def __init__(self) -> None:
        # as the model reads them
        self.data: WeakKeyDictionary[Dataset, Any] = WeakKeyDictionary()
        # how they are read
        self.modules: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
        self.whole: dict[str, Any] = {}  # what a pass through the whole model showed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class TransformerModel(Model):
    """Model of transformers. A subclass reads a kind of data, and says what its answer is."""

    kind: ClassVar[str]  # the class of transformers that loads such models

    version: str | None = "1"
    forward_batch: int = 32
    draws_weights: ClassVar[bool] = False

    def __init__(
        self,
        load: Callable[..., nn.Module],
        config: Any,
        reader: Any,
        identity: Mapping[str, object],
        defaults: Mapping[str, object],
    ) -> None:
        self._load = load
        self._config = config
        self._reader = reader  # a tokenizer or an image processor
        self._reader_digest = reader_digest(reader)
        self._identity = dict(identity)
        self.training_defaults = defaults
        self._seen = _Seen()

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v!r}" for k, v in self._identity.items())
        return f"{type(self).__name__}({settings})"

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return dict(self._identity)

    def describe(self, data: Dataset) -> dict[str, str]:
        """Return what identifies a model, including digests of its files or its reader.

        Raises
        ------
        ValueError
            If those files have changed since the model was created.
        """
        return {**super().describe(data), **self._origin()}

    def has_user_code(self, data: Dataset) -> bool:
        """Return whether a part of a model that was given is a class of a user."""
        given = isinstance(self._load, Given) and has_users_class(*self._load.parts())
        return given or super().has_user_code(data)

    def load_weights(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Load the weights of a checkpoint; frozen ones, which it may lack, stay."""
        trained = {name for name, p in module.named_parameters() if p.requires_grad}
        missing, unknown = module.load_state_dict(dict(weights), strict=False)
        wrong = sorted({*unknown, *trained.intersection(missing)})
        if wrong:
            raise RuntimeError(
                f"the weights of a checkpoint are not those of {type(module).__name__}: "
                f"{len(wrong)} differ in name, the first is {wrong[0]}"
            )

    @contextmanager
    def capture_layers(self, module: nn.Module) -> Iterator[dict[str, Tensor]]:
        """Within this context, every forward pass stores the hidden states in the dictionary.

        They are read at the position that `_representation` chooses.
        """
        outputs: dict[str, Tensor] = {}
        names = self.layer_names(module)
        read = self._representation(module)
        entry: Skipped | None = module.__dict__.get(_ENTRY)

        def ask(
            _module: nn.Module, inputs: Any, named: dict[str, Any]
        ) -> tuple[Any, Any]:
            return inputs, {**named, "output_hidden_states": True}

        def keep(
            _module: nn.Module, _inputs: Any, named: dict[str, Any], answer: Any
        ) -> None:
            above = names if entry is None else names[1:]
            states = list(answer.hidden_states[-len(above) :])
            if entry is not None:  # transformers keeps no state of a module of ours
                states.insert(0, entry.states)
            for name, hidden in zip(names, states, strict=True):
                outputs[name] = read(hidden.detach(), named)

        hooks = [
            module.register_forward_pre_hook(ask, with_kwargs=True),
            module.register_forward_hook(keep, with_kwargs=True),
        ]
        try:
            yield outputs
        finally:
            for hook in hooks:
                hook.remove()

    def _representation(
        self, module: nn.Module
    ) -> Callable[[Tensor, dict[str, Any]], Tensor]:
        """Return a function from a hidden state and what the module was called with.

        It returns the representation in that state, (batch, width), in float32.
        """
        raise NotImplementedError

    def _changes(self, data: Dataset) -> dict[str, Any]:
        """Return what a dataset changes in the configuration: the width of a classifier's head."""
        return {"num_labels": len(data.class_names)}

    def _from_config(self, data: Dataset) -> nn.Module:
        """Return the model with random weights."""
        return random_weights(self._config, self.kind, **self._changes(data))

    def _fresh(self, data: Dataset) -> nn.Module:
        """Return the model before any training, without adapters."""
        changes = self._changes(data)
        if changes:
            self._check_classes(data)
        return self._load(**changes)

    def _check_classes(self, data: Dataset) -> None:
        """Raise if the classes of a model that has its head are not those of the data.

        A model in memory has one logit for each class. A head whose configuration has the names of
        the classes in another order would be taught other classes than it knows, in silence.
        """
        width = int(self._config.num_labels)
        n_classes = len(data.class_names)
        if isinstance(self._load, Given) and width != n_classes:
            raise ValueError(
                f"the model has {width} logits, but the data have {n_classes} classes; load it "
                f"with num_labels={n_classes}"
            )
        labels = self._config.id2label or {}
        theirs = [str(labels.get(i)) for i in range(width)]
        alike, own = (
            [name.strip().casefold() for name in names]
            for names in (theirs, data.class_names)
        )
        if alike != own and sorted(alike) == sorted(own):
            i = next(i for i in range(width) if alike[i] != own[i])
            raise ValueError(
                f"class {i} is {quoted(theirs[i])} for the model and "
                f"{quoted(data.class_names[i])} for the data; {NUMBER_ALIKE}"
            )

    def _origin(self) -> dict[str, str]:
        """Return digests of the files that the model is made of, or of its tokenizer."""
        if isinstance(self._load, Pretrained):
            return self._load.origin()
        # the settings have the weights
        return {"tokenizer": self._reader_digest}

    def _unchanged_reader(self) -> Any:
        """Return the tokenizer or image processor, if it is as it was when the model was made.

        What was read before is kept, while forks and other processes read anew.

        Raises
        ------
        ValueError
            If it was changed in place.
        """
        if reader_digest(self._reader) != self._reader_digest:
            raise ValueError(
                f"the {type(self._reader).__name__} was changed since this model was made of it, "
                "so other samples would be read in another way. Take the change back, or make "
                "another model of it with from_model, and another run"
            )
        return self._reader


class TokenModel(TransformerModel):
    """Model of transformers that reads token ids, with or without LoRA."""

    # whether the texts of a batch are padded on the left
    ends_together: ClassVar[bool] = False

    def __init__(
        self,
        load: Callable[..., nn.Module],
        config: Any,
        tokenizer: Any,
        identity: Mapping[str, object],
        defaults: Mapping[str, object],
        lora: LoRA | None = None,
        max_length: int | None = None,
        *,
        cache: bool = False,
    ) -> None:
        if lora is not None and not isinstance(lora, LoRA):
            raise TypeError(
                "lora must be a memowidgets.models.LoRA, such as LoRA(layers='top:4'), or None, "
                f"not {as_code(lora)}"
            )
        super().__init__(load, config, tokenizer, identity, defaults)
        self._lora = lora
        self._max_length = (
            None if max_length is None else whole_number("max_length", max_length, 1)
        )
        n_blocks = getattr(config.get_text_config(), "num_hidden_layers", 0)
        self._first = lora.first_trained(n_blocks) if lora is not None and cache else 0

    @classmethod
    def _loaded(
        cls,
        name_or_path: str | os.PathLike[str],
        revision: str | None,
        defaults: Mapping[str, Any],
        lora: LoRA | None,
        max_length: int | None,
        *,
        cache: bool,
        quantization: str | None = None,
    ) -> tuple[Self, dict[str, str]]:
        """Return a model from the hub or a folder, and the arguments that load its files again."""
        check_quantization(quantization)
        dtype = "float32" if lora is None else "auto"
        load = Pretrained(name_or_path, revision, cls.kind, dtype, quantization)
        config = load.config()
        reader = load.reader("AutoTokenizer")
        in_files = getattr(config, "quantization_config", None)
        if lora is None and (quantization is not None or in_files):
            raise no_adapters(load.name)
        given = load, config, reader, load.identity, defaults, lora, max_length
        return cls(*given, cache=cache), load.arguments

    @classmethod
    def _small(
        cls, tokenizer: Any, layers: int, width: int, max_length: int | None
    ) -> Self:
        """Return a Llama with random weights, whose heads have 16 values.

        Raises
        ------
        ValueError
            If the width is not a multiple of 16, or there is no layer.
        """
        from transformers import LlamaConfig

        if not 1 <= layers <= _MOST_LAYERS or not 16 <= width <= _WIDEST or width % 16:
            raise ValueError(
                f"layers must be from 1 to {_MOST_LAYERS} and width a multiple of 16 up to "
                f"{_WIDEST}, not {layers} and {width}"
            )
        config: Any = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // 16,
            num_key_value_heads=width // 16,
            max_position_embeddings=1024,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
            tie_word_embeddings=False,
        )
        size = {"layers": layers, "width": width}
        identity = {**size, "words": len(tokenizer)}
        load = partial(random_weights, config, cls.kind)
        model = cls(
            load, config, tokenizer, identity, FROM_SCRATCH, max_length=max_length
        )
        model.cpu_threads = 1
        model.source = {"model": f"{CLASSES[cls.kind]}.from_scratch", "arguments": size}
        return model

    def __repr__(self) -> str:
        lora = "" if self._lora is None else f", lora={self._lora}"
        return f"{super().__repr__()[:-1]}{lora})"

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        lora = None if self._lora is None else {**vars(self._lora)}
        return {**self._identity, "lora": lora, "max_length": self._max_length}

    def skeleton(self, data: Dataset) -> nn.Module:
        """Return the module without weights."""
        import torch

        with torch.device("meta"):
            return self._add_adapters(self._from_config(data))

    def build(self, data: Dataset) -> nn.Module:
        """Return the model with its head and adapters, initialised from torch's generator."""
        return self._completed(self._start(data))

    def begin(
        self,
        data: Dataset,
        device: torch.device,
        precision: str,
        bases: Bases | None = None,
    ) -> nn.Module:
        """Return the module before its first step, with the frozen weights of its process."""
        import torch

        if getattr(self._load, "lacks_adapters", False):
            raise no_adapters(type(self).__name__)
        if bases is None or not self._has_base:
            return super().begin(data, device, precision, bases)
        frozen = _frozen_type(device, precision)

        def place(values: Tensor) -> Tensor:
            if is_packed(values):
                return values.to(device)
            return values.to(device, frozen)

        def load() -> Base:
            with torch.random.fork_rng(devices=[]):
                model = self._start(data)
                return Base(model, self._unshared(model), place)

        base: Base = bases.of((device, frozen), load)
        module = self._completed(base.copy())
        base.fill(module)
        return self.place_on(module, device, precision)

    def place_on(
        self, module: nn.Module, device: torch.device, precision: str
    ) -> nn.Module:
        """Return the module on a device, with frozen weights in the type that is fastest there."""
        import torch

        frozen = _frozen_type(device, precision)
        for parameter in module.parameters():
            if is_packed(parameter):
                continue
            wanted = torch.float32 if parameter.requires_grad else frozen
            parameter.data = parameter.data.to(wanted)
        if getattr(self._load, "quantization", None) is not None:
            compute_in(module, frozen)
        if (
            frozen == torch.bfloat16
            and self._lora is not None
            and not self._lora.dropout
        ):
            # Autocast rounds what adapters get. Without this, peft first copies it to float32.
            for part in module.modules():
                if hasattr(part, "cast_input_dtype_enabled"):
                    vars(part)["cast_input_dtype_enabled"] = False
        return module.to(device)

    def feeder(
        self, data: Dataset, device: torch.device, precision: str = "auto"
    ) -> Callable[[NDArray[Any]], Any]:
        """Return a function from positions to padded token ids on the device.

        With them comes the output of frozen blocks, if it is kept, computed in the precision.
        """
        tokens = self._encoded(data)
        prefix = self._prefix(data, tokens, device, precision) if self._first else None

        def feed(positions: NDArray[Any]) -> dict[str, Tensor]:
            batch = tokens.batch(positions, device)
            if prefix is not None:
                batch["states"] = prefix.batch(positions, device)
            return batch

        return feed

    def lengths(self, data: Dataset) -> NDArray[Any]:
        """Return the number of tokens of each sample, (n,), to batch similar lengths together."""
        return self._encoded(data).lengths

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Return ``"1"`` to ``"K"``, one per block, from the last frozen one on if it is kept."""
        return tuple(
            str(k) for k in range(max(1, self._first), len(blocks_of(module)[1]) + 1)
        )

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the trained weights; those of adapters are named as in peft."""
        if self._lora is None:
            return {
                n: p.detach() for n, p in module.named_parameters() if p.requires_grad
            }
        return adapter_weights(module, "default")

    def load_weights(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Load trained weights; the frozen ones stay."""
        if self._lora is None:
            super().load_weights(module, weights)
            return
        from peft import set_peft_model_state_dict

        with quiet_peft():
            set_peft_model_state_dict(cast("PeftModel", module), dict(weights))

    @property
    def weights_name(self) -> str:
        """Name that peft uses, so that a checkpoint's folder is an adapter for other tools."""
        return "weights" if self._lora is None else "adapter_model"

    def weights_config(self, module: nn.Module) -> dict[str, Any]:
        """Return peft's configuration of the adapter."""
        return {} if self._lora is None else adapter_config(module, "default")

    def known_by_tokens(
        self,
        ids: list[NDArray[np.int64]],
        labels: Sequence[int],
        like: Dataset,
        answers: Mapping[str, NDArray[Any]] | None = None,
    ) -> Dataset:
        """Return samples that have tokens and labels alone, such as rows of a Trainer.

        Parameters
        ----------
        ids : list of array of int64
            Tokens of each sample.
        labels : sequence of int
            Their labels.
        like : Dataset
            Data with the same classes.
        answers : dict of array, optional
            What a batch has of each sample beside its tokens, see `Tokens`.
        """
        lengths = np.array(list(map(len, ids)))
        made = WithheldDataset(
            ids=np.arange(len(ids)).astype(str),
            labels=np.array(labels, dtype=np.int64),
            class_names=like.class_names,
            hashes=("",) * len(ids),
        )
        self._seen.data[made] = Tokens(
            ids,
            lengths,
            self._padding,
            ends_together=self.ends_together,
            answers=answers or {},
        )
        return made

    def _encoded(self, data: Dataset) -> Tokens:
        if data not in self._seen.data:
            self._seen.data[data] = self._tokens(data)
        return cast("Tokens", self._seen.data[data])

    def _tokens(self, data: Dataset) -> Tokens:
        """Return the tokens of every sample."""
        raise NotImplementedError

    def _ask(self, model: nn.Module, batch: dict[str, Tensor]) -> Any:
        """Run a model on a batch, and return its answer."""
        raise NotImplementedError

    def _logits(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """Return the logits that a cached prefix must not change."""
        logits: Tensor = self._ask(model, batch).logits
        return (logits if logits.ndim == 2 else logits[:, -1]).float()

    def _add_adapters(self, model: nn.Module) -> nn.Module:
        return model if self._lora is None else self._lora.wrap(model)

    @property
    def _has_base(self) -> bool:
        """Whether some weights are frozen, so that all models of a process share them."""
        return self._lora is not None or getattr(self._load, "is_partly_fixed", False)

    def _unshared(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the weights that each model has for itself, without adapters yet to be added."""
        if self._lora is not None:
            return self._head(model)
        return [p for p in model.parameters() if p.requires_grad]

    def _head(self, model: nn.Module) -> list[nn.Parameter]:  # noqa: ARG002 - classifiers have one
        """Return the weights that are trained beside adapters."""
        return []

    def _start(self, data: Dataset) -> nn.Module:
        """Return the model before any training, without the blocks whose output is kept."""
        import torch

        model = self._fresh(data)
        self._look_at(model)
        if self._first:
            from memowidgets.models.prefix import run_up_to, without_prefix

            one = torch.ones(
                1, 1, dtype=torch.int64, device=next(model.parameters()).device
            )
            batch = {"input_ids": one, "attention_mask": one, "position_ids": one - 1}
            with restore_modes(model), torch.no_grad():
                _, n_values = run_up_to(model.eval(), self._first, batch, self._ask)
            without_prefix(model, self._first, n_values)
        return model

    def _look_at(self, model: nn.Module) -> None:
        """Find out once what passes through a whole model show.

        Where the output of frozen blocks is kept, padding was checked when it was computed.
        """
        if not self._first and "follows its mask" not in self._seen.whole:
            self.check_padding(model)
            self._seen.whole["follows its mask"] = True

    @property
    def _padding(self) -> int:
        """Token with which batches are padded."""
        return padding_token(self._reader)

    def check_padding(self, module: nn.Module) -> None:
        """Raise for a module whose logits of a text change with the padding in its batch.

        The module's mode and all random states stay unchanged.

        Raises
        ------
        ValueError
            If they do, as those of RWKV and FNet.
        """
        import torch

        others = tokens_of(module, self._padding)
        device = next(module.parameters()).device
        ids = [np.array(others[-n:]) for n in _PROBED]
        tokens = Tokens(
            ids, np.array(_PROBED), self._padding, ends_together=self.ends_together
        )
        with restore_modes(module), torch.no_grad():
            module.eval()
            alone, padded = (
                self._logits(module, tokens.batch(np.arange(n), device))[0]
                for n in (1, 2)
            )
        change = float(
            (padded - alone).norm() / alone.norm().clamp(min=torch.finfo().tiny)
        )
        if change > _ROUNDED:
            raise ValueError(
                f"padding changes the logits of {type(module).__name__} by {change:.0%}, because "
                "it does not follow its attention mask, so the numbers of a text would depend on "
                "the longest text of its batch; choose a model that reads no padding"
            )

    def _completed(self, model: nn.Module) -> nn.Module:
        """Return what `_start` returned with its adapters, initialised from torch's generator.

        It has a note of where the kept output enters.
        """
        entry = blocks_of(model)[1][self._first - 1] if self._first else None
        adapted = self._add_adapters(model)
        # not a submodule, because it already has a name
        adapted.__dict__[_ENTRY] = entry
        return adapted

    def _answer(self, module: nn.Module, inputs: dict[str, Tensor]) -> Any:
        """Return a module's answer, from the kept states on if it lacks the frozen blocks."""
        # modules from elsewhere have none
        entry: Skipped | None = module.__dict__.get(_ENTRY)
        if entry is not None:
            entry.states = inputs["states"]
        return self._ask(module, inputs)

    def _prefix(
        self, data: Dataset, tokens: Tokens, device: torch.device, precision: str
    ) -> Prefix:
        from memowidgets.models.prefix import Prefix

        used = resolve_precision(device, precision)
        texts = [ids.tolist() for ids in tokens.ids]
        content = [self.settings(), self._origin(), self._first, used, *texts]
        key = digest_of(json.dumps(content, default=str))
        prefix = Prefix(
            key, tokens, self._config.get_text_config().hidden_size, self._logits
        )
        with self.autocast(device, used):
            prefix.ensure(
                lambda: self._untrained(data, device, used), self._first, device
            )
        return prefix

    def _untrained(
        self, data: Dataset, device: torch.device, precision: str
    ) -> nn.Module:
        """Return the model before any training, on a device; random states stay as they are."""
        import torch

        with torch.random.fork_rng(devices=[]), torch.autocast("cpu", enabled=False):
            model = self._fresh(data)
            self.check_padding(model)
        model.requires_grad_(requires_grad=False)
        return self.place_on(model, device, precision)


def _frozen_type(device: torch.device, precision: str) -> torch.dtype:
    """Return the type of frozen weights in training, on a device."""
    import torch

    return (
        torch.bfloat16
        if resolve_precision(device, precision) == "bfloat16"
        else torch.float32
    )
