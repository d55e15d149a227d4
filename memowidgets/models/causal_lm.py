"""Causal language models that answer multiple-choice questions with one token."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models.base import Model
from memowidgets.models.encoding import Encoded, Questions, encode
from memowidgets.models.lora import LoRA, adapter_weights, blocks_of, quiet_peft

if TYPE_CHECKING:
    import os

    import torch
    from peft import PeftModel
    from torch import Tensor, nn

    from memowidgets.models.prefix import Prefix


_MAX_LENGTH = 512
_ENTRY = "_memowidgets_entry"
_FINE_TUNED = {
    "epochs": 1,
    "checkpoint_every": 0.2,
    "batch_size": 4,
    "optimizer": "adamw",
    "lr": 2.5e-5,
    "schedule": "linear",
    "precision": "auto",
}
_FROM_SCRATCH = {
    "epochs": 20,
    "checkpoint_every": 1,
    "batch_size": 16,
    "optimizer": "adamw",
    "lr": 3e-3,
    "schedule": "linear",
    "precision": "float32",
}


class CausalLM(Model):
    """Causal language model that answers multiple-choice questions with one token.

    Created by `from_pretrained`, `from_model` or `from_scratch`. The loss is computed at the
    label's token only, over the whole vocabulary. Logits are computed at that position only, and
    scores and gaps use those of the options. Layer k is the hidden state after block k at the last
    token before the label; the last layer is taken after the final norm (paper, Section 4.1).
    """

    forward_batch: ClassVar[int] = 32
    version: str | None = "1"

    def __init__(
        self,
        load: Callable[[], nn.Module],
        config: Any,
        tokenizer: Any,
        identity: Mapping[str, Any],
        lora: LoRA | None,
        defaults: Mapping[str, Any],
        max_length: int,
        *,
        cache: bool = False,
        dtype: str = "auto",
    ) -> None:
        self._load, self._config, self._tokenizer = load, config, tokenizer
        self._identity, self._lora, self._max_length = dict(identity), lora, max_length
        self._dtype = dtype
        self.training_defaults = defaults
        self._first = _first_kept(config, lora) if cache else 0
        self._encoded: WeakKeyDictionary[Dataset, Encoded] = WeakKeyDictionary()
        self._kept: dict[str, Tensor] | None = None

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        lora: LoRA | None = LoRA(),  # noqa: B008 - frozen
        max_length: int = _MAX_LENGTH,
        *,
        dtype: str = "auto",
        device: str | None = None,
        cache: bool = True,
    ) -> Self:
        """Create a model from the hub or from a folder, to be fine-tuned with LoRA.

        Parameters
        ----------
        name_or_path : str or path-like
            Name or folder, as for transformers. Code that comes with a model is never run.
        lora : LoRA or None
            Adapters. None trains all weights.
        max_length : int
            Longest prompt in tokens. A longer prompt is an error and is never cut.
        dtype : {"auto", "float32", "bfloat16"}
            Type of the frozen weights; trained weights are float32. ``"auto"`` follows the
            precision of training.
        device : str, optional
            Default device of an audit, as torch names it.
        cache : bool
            Whether to run frozen blocks (with ``layers="top:k"``) only once, and keep their output
            for the target model and all shadow models (`memowidgets.models.prefix`).

        Returns
        -------
        CausalLM

        Raises
        ------
        ConnectionError
            If the name is not a folder and the hub cannot provide it.
        PermissionError
            If the hub requires that you first accept the model's licence.
        ValueError
            If the dtype is unknown, the model needs its own code, or its weights are not in
            safetensors (checked when they are first read).
        """
        from memowidgets.models.pretrained import DTYPES, Pretrained, load_config, load_tokenizer

        if dtype not in DTYPES:
            raise ValueError(f"unknown dtype {dtype!r}; valid: {', '.join(DTYPES)}")
        if lora is None and dtype == "bfloat16":
            raise ValueError(
                'without LoRA all weights are trained in float32; leave dtype at "auto"'
            )
        name = str(name_or_path)
        config = load_config(name)
        commit = getattr(config, "_commit_hash", None)
        model = cls(
            Pretrained(name, dtype if lora is not None else "float32", commit),
            config,
            load_tokenizer(name),
            {"pretrained": name.rstrip("/").rsplit("/", 1)[-1]},
            lora,
            _FINE_TUNED,
            max_length,
            cache=cache,
            dtype=dtype,
        )
        model.device = device
        if lora is not None:
            arguments = {
                **vars(lora),
                "name_or_path": name,
                "max_length": max_length,
                "cache": cache,
                "dtype": dtype,
            }
            model.source = {"model": "CausalLM.from_pretrained", "arguments": arguments}
        return model

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: Any,
        lora: LoRA | None = None,
        max_length: int = _MAX_LENGTH,
        *,
        cache: bool = True,
    ) -> Self:
        """Create a model from one in memory; training uses copies of it.

        Parameters
        ----------
        model : transformers.PreTrainedModel
            Any causal language model.
        tokenizer : transformers.PreTrainedTokenizerBase
            Tokenizer of the model.
        lora : LoRA, optional
            Adapters to add. Without them, all weights that require a gradient are trained.
        max_length : int
            Longest prompt in tokens.
        cache : bool
            As in `from_pretrained`.

        Returns
        -------
        CausalLM

        Raises
        ------
        TypeError
            If it is not a causal language model of transformers: it has no head over its
            vocabulary, or has an encoder.
        """
        _check_causal(model)
        identity = {"weights": _digest_of(model)}
        made = _Given(copy.deepcopy(model).cpu())
        return cls(
            made, model.config, tokenizer, identity, lora, _FINE_TUNED, max_length, cache=cache
        )

    @classmethod
    def from_scratch(cls, data: Dataset, layers: int = 2, width: int = 64) -> Self:
        """Create a small Llama and a word-level tokenizer from the data, without a download.

        Parameters
        ----------
        data : MCQDataset
            Data whose words become the vocabulary.
        layers, width : int
            Number of blocks, and size of the hidden state (a multiple of 16).

        Returns
        -------
        CausalLM
            Model of which all weights are trained, on one CPU thread.
        """
        from memowidgets.models.scratch import small_llama, word_tokenizer

        tokenizer = word_tokenizer(_questions(data))
        config = small_llama(len(tokenizer), layers, width)
        identity = {"layers": layers, "width": width, "words": len(tokenizer)}
        model = cls(_Scratch(config), config, tokenizer, identity, None, _FROM_SCRATCH, _MAX_LENGTH)
        model.cpu_threads = 1
        model.source = {
            "model": "CausalLM.from_scratch",
            "arguments": {"layers": layers, "width": width},
        }
        return model

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v!r}" for k, v in self._identity.items())
        return f"CausalLM({settings}{'' if self._lora is None else f', lora={self._lora}'})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_encoded"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _encoded=WeakKeyDictionary())

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset without questions."""
        _questions(data)

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        lora = None if self._lora is None else {**vars(self._lora)}
        dtype = {} if self._dtype == "auto" else {"dtype": self._dtype}
        return {**self._identity, "lora": lora, "max_length": self._max_length, **dtype}

    def describe(self, data: Dataset) -> dict[str, str]:
        """Return what identifies a model, including digests of its files or its tokenizer.

        Raises
        ------
        ValueError
            If those files have changed since the model was created.
        """
        return {**super().describe(data), **self._origin()}

    def build(self, data: Dataset) -> nn.Module:  # noqa: ARG002 - the vocabulary is the model's
        """Return the model with its adapters, initialised from torch's generator."""
        from memowidgets.models.last_token import only_last_token
        from memowidgets.models.prefix import without_prefix

        model = self._load()
        only_last_token(model)
        entry = without_prefix(model, self._first) if self._first else None
        adapted = self._adapted(model)
        adapted.__dict__[_ENTRY] = entry  # not a submodule, because it already has a name
        return adapted

    def skeleton(self, data: Dataset) -> nn.Module:  # noqa: ARG002
        """Return the module without weights."""
        import torch

        with torch.device("meta"):
            return self._adapted(_from_config(self._config))

    def placed(self, module: nn.Module, device: torch.device, precision: str) -> nn.Module:
        """Return the module on a device, with frozen weights in the type that is fastest there."""
        from memowidgets.models.precision import resolve_precision
        from memowidgets.models.pretrained import placed

        wanted = precision if self._dtype == "auto" else self._dtype
        bfloat16 = resolve_precision(device, wanted) == "bfloat16"
        return placed(module, device, bfloat16=bfloat16)

    def feeder(self, data: Dataset, device: torch.device) -> Callable[[NDArray[Any]], Any]:
        """Return a function from positions to padded token ids on the device."""
        return self.feeder_at(data, device, "auto")

    def feeder_at(
        self, data: Dataset, device: torch.device, precision: str
    ) -> Callable[[NDArray[Any]], Any]:
        """Return `feeder` with the output of frozen blocks computed in the precision."""
        encoded = self._encode(data)
        prefix = self._prefix(encoded, device, precision) if self._first else None

        def feed(positions: NDArray[Any]) -> dict[str, Tensor]:
            batch = encoded.batch(positions, device)
            batch["options"] = _on(encoded.options, device)
            if prefix is not None:
                batch["states"] = prefix.batch(positions, device)
            return batch

        return feed

    def lengths(self, data: Dataset) -> NDArray[Any]:
        """Return the number of tokens of each prompt, (n,), to batch similar lengths together."""
        return self._encode(data).lengths

    def outputs(self, module: nn.Module, inputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the options' logits (−inf for missing ones) and the loss over the vocabulary."""
        from torch.nn.functional import cross_entropy

        from memowidgets.models.exact_head import head_in_float32

        capture = self._kept is not None
        entry = module.__dict__.get(_ENTRY)  # modules from elsewhere have none
        if entry is not None:
            entry.states = inputs["states"]
        with head_in_float32(cast("Any", module).get_output_embeddings()):
            answer = module(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                position_ids=inputs["position_ids"],
                use_cache=False,
                logits_to_keep=1,
                output_hidden_states=capture,
            )
        words = answer.logits[:, -1].float()
        if self._kept is not None:
            names = self.layer_names(module)
            if entry is not None:
                self._kept[names[0]] = inputs["states"][:, -1].float()
                names = names[1:]
            for name, hidden in zip(names, answer.hidden_states[-len(names) :], strict=True):
                self._kept[name] = hidden[:, -1].detach().float()
        losses = cross_entropy(words, inputs["options"][labels], reduction="none")
        options = words[:, inputs["options"]].masked_fill(~inputs["available"], -float("inf"))
        return options, losses

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Return ``"1"`` to ``"K"``, one per block, from the last frozen one on if it is kept."""
        return tuple(str(k) for k in range(max(1, self._first), len(blocks_of(module)[1]) + 1))

    @contextmanager
    def captured(self, module: nn.Module) -> Iterator[dict[str, Tensor]]:  # noqa: ARG002
        """Within this context, every forward pass stores all hidden states in the dictionary."""
        self._kept = {}
        try:
            yield self._kept
        finally:
            self._kept = None

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the trained weights; those of adapters are named as in peft."""
        if self._lora is None:
            return {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}
        return adapter_weights(module, "default")

    def load_weights(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Load trained weights; the frozen ones stay."""
        if self._lora is None:
            module.load_state_dict(dict(weights), strict=False)
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
        if self._lora is None:
            return {}
        config = cast("PeftModel", module).peft_config["default"]
        described = {**config.to_dict(), "inference_mode": True}
        return {"adapter_config.json": json.loads(json.dumps(described, default=_listed))}

    def _adapted(self, model: nn.Module) -> nn.Module:
        return model if self._lora is None else self._lora.wrap(model)

    def _prefix(self, encoded: Encoded, device: torch.device, precision: str) -> Prefix:
        from memowidgets.models.precision import resolve_precision
        from memowidgets.models.prefix import Prefix

        used = resolve_precision(device, precision)
        content = [
            self.settings(),
            self._origin(),
            self._first,
            used,
            *(tokens.tolist() for tokens in encoded.ids),
        ]
        key = hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]
        prefix = Prefix(key, encoded, self._config.get_text_config().hidden_size)
        with self.autocast(device, used):
            prefix.ensure(lambda: self._frozen(device, used), self._first, device)
        return prefix

    def _frozen(self, device: torch.device, precision: str) -> nn.Module:
        """Return the model before any training, on a device."""
        return self.placed(self._load().requires_grad_(requires_grad=False), device, precision)

    def _origin(self) -> dict[str, str]:
        """Return digests of the files that the model is made of."""
        from memowidgets.models.digests import tokenizer_digest
        from memowidgets.models.pretrained import Pretrained

        if isinstance(self._load, Pretrained):
            return self._load.origin()
        if isinstance(self._load, _Given):  # its settings contain a digest of its weights
            return {"tokenizer": tokenizer_digest(self._tokenizer)}
        return {}

    def _encode(self, data: Dataset) -> Encoded:
        if data not in self._encoded:
            self._encoded[data] = encode(_questions(data), self._tokenizer, self._max_length)
        return self._encoded[data]


class _Given:
    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self._model)


class _Scratch:
    def __init__(self, config: Any) -> None:
        self._config = config

    def __call__(self) -> nn.Module:
        return _from_config(self._config)


def _listed(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


def _first_kept(config: Any, lora: LoRA | None) -> int:
    """Return the lowest block that runs in every step; 0 if no block's output can be kept."""
    from memowidgets.models.prefix import why_not

    first = 0 if lora is None else lora.first_trained(_n_blocks(config))
    reason = why_not(config) if first else None
    if reason is not None:
        warnings.warn(
            f"the frozen blocks of {config.model_type} run in every step and their output is not "
            f"kept: {reason}",
            UserWarning,
            stacklevel=4,
        )
    return 0 if reason is not None else first


def _n_blocks(config: Any) -> int:
    return int(config.get_text_config().num_hidden_layers)


def _check_causal(model: Any) -> None:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    name = type(base).__name__
    config, head = getattr(base, "config", None), getattr(base, "get_output_embeddings", None)
    if config is None or head is None:
        what = "is not a model of transformers"
    elif head() is None:
        what = "has no head over its vocabulary"
    elif getattr(config, "is_encoder_decoder", False):
        what = "has an encoder"
    elif name.endswith("ForMaskedLM"):
        what = "predicts masked words, not the next one"
    else:
        return
    raise TypeError(
        f"CausalLM.from_model needs a causal language model, but {name} {what}; load it with "
        "AutoModelForCausalLM.from_pretrained"
    )


def _from_config(config: Any) -> nn.Module:
    from transformers import AutoModelForCausalLM

    return cast("nn.Module", AutoModelForCausalLM.from_config(config))  # type: ignore[no-untyped-call]


def _questions(data: Dataset) -> Questions:
    if not hasattr(data, "prompts"):
        raise TypeError(
            f"CausalLM answers multiple-choice questions, but {type(data).__name__} has none; "
            "pass an MCQDataset, or a model that reads these data"
        )
    return cast("Questions", data)


def _on(array: NDArray[Any], device: torch.device) -> Tensor:
    import torch

    return torch.from_numpy(array).to(device)


def _digest_of(model: Any) -> str:
    digest = hashlib.sha256(json.dumps(model.config.to_dict(), default=str).encode())
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:16]
