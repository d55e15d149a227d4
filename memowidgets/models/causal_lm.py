"""Causal language models that answer multiple-choice questions with one token."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models.encoding import Encoded, Questions, encode
from memowidgets.models.lora import LoRA
from memowidgets.models.transformer import (
    FINE_TUNED,
    FROM_SCRATCH,
    MAX_LENGTH,
    Given,
    TransformerModel,
    check_dtype,
    check_whole,
    identity_of,
)

if TYPE_CHECKING:
    import os

    import torch
    from torch import Tensor, nn


class CausalLM(TransformerModel[Encoded]):
    """Causal language model that answers multiple-choice questions with one token.

    Created by `from_pretrained`, `from_model` or `from_scratch`. The loss is computed at the
    label's token only, over the whole vocabulary. Logits are computed at that position only, and
    scores and gaps use those of the options. Layer k is the hidden state after block k at the last
    token before the label; the last layer is taken after the final norm (paper, Section 4.1).
    """

    kind: ClassVar[str] = "AutoModelForCausalLM"
    version: str | None = "1"

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        lora: LoRA | None = LoRA(),  # noqa: B008 - frozen
        max_length: int = MAX_LENGTH,
        *,
        dtype: str = "auto",
        device: str | None = None,
        cache: bool = True,
        revision: str | None = None,
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
        revision : str, optional
            Branch, tag or commit on the hub. By default the newest. Its commit is recorded, so that
            a run loads the same files again after the repository has changed.

        Returns
        -------
        CausalLM

        Raises
        ------
        ConnectionError
            If the name is not a folder and the hub cannot provide it.
        PermissionError
            If the hub requires that you first accept the model's licence, or if its local copies
            cannot be written.
        ValueError
            If the dtype or the revision is unknown, the model needs its own code, or its weights
            are not in safetensors (checked when they are first read).
        """
        from memowidgets.models.pretrained import (
            Pretrained,
            commit_at,
            load_config,
            load_tokenizer,
            pinned,
        )

        check_dtype(dtype, lora)
        name = str(name_or_path)
        commit = commit_at(name, revision, cls.kind)
        config = load_config(name, cls.kind, commit)
        model = cls(
            Pretrained(name, dtype if lora is not None else "float32", commit),
            config,
            load_tokenizer(name, cls.kind, commit),
            {"pretrained": name.rstrip("/").rsplit("/", 1)[-1]},
            lora,
            FINE_TUNED,
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
                **pinned(commit),
            }
            model.source = {"model": "CausalLM.from_pretrained", "arguments": arguments}
        return model

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: Any,
        lora: LoRA | None = None,
        max_length: int = MAX_LENGTH,
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
        ValueError
            If its weights are quantised, offloaded or spread over devices.
        """
        _check_causal(model)
        check_whole(model, "CausalLM.from_model")
        identity = identity_of(model, lora)
        made = Given(copy.deepcopy(model).cpu())
        return cls(
            made, model.config, tokenizer, identity, lora, FINE_TUNED, max_length, cache=cache
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
        model = cls(_Scratch(config), config, tokenizer, identity, None, FROM_SCRATCH, MAX_LENGTH)
        model.cpu_threads = 1
        model.source = {
            "model": "CausalLM.from_scratch",
            "arguments": {"layers": layers, "width": width},
        }
        return model

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset without questions."""
        _questions(data)

    def build(self, data: Dataset) -> nn.Module:
        """Return the model with its adapters, initialised from torch's generator."""
        from memowidgets.models.last_token import only_last_token

        model = self._fresh(data)
        only_last_token(model)
        return self._with_entry(model)

    def outputs(self, module: nn.Module, inputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the options' logits (−inf for missing ones) and the loss over the vocabulary."""
        from torch.nn.functional import cross_entropy

        from memowidgets.models.exact_head import head_in_float32

        capture = self._kept is not None
        entered = self._entered(module, inputs)
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
            if entered:
                self._kept[names[0]] = inputs["states"][:, -1].float()
                names = names[1:]
            for name, hidden in zip(names, answer.hidden_states[-len(names) :], strict=True):
                self._kept[name] = hidden[:, -1].detach().float()
        losses = cross_entropy(words, inputs["options"][labels], reduction="none")
        options = words[:, inputs["options"]].masked_fill(~inputs["available"], -float("inf"))
        return options, losses

    def _tokens(self, data: Dataset) -> Encoded:
        return encode(_questions(data), self._tokenizer, cast("int", self._max_length))

    def _batch(
        self, encoded: Encoded, positions: NDArray[Any], device: torch.device
    ) -> dict[str, Tensor]:
        import torch

        options = torch.from_numpy(encoded.options).to(device)
        return encoded.batch(positions, device) | {"options": options}

    def _fresh(self, data: Dataset) -> nn.Module:  # noqa: ARG002 - the vocabulary is the model's
        return self._load()

    def _from_config(self, data: Dataset) -> nn.Module:  # noqa: ARG002
        return _from_config(self._config)

    def _ask(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        from memowidgets.models.prefix import asked

        return asked(model, batch)


class _Scratch:
    def __init__(self, config: Any) -> None:
        self._config = config

    def __call__(self) -> nn.Module:
        return _from_config(self._config)


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
