"""Causal language models that answer multiple-choice questions with one token."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset, MCQDataset
from memowidgets.models.base import check_kind, unwrap
from memowidgets.models.heads import plain
from memowidgets.models.lora import LoRA
from memowidgets.models.pretrained import Given
from memowidgets.models.tokens import (
    Tokens,
    check_lengths,
    reply_tokens,
    word_tokenizer,
)
from memowidgets.models.transformer import FINE_TUNED, TokenModel

if TYPE_CHECKING:
    import os

    from torch import Tensor, nn


_MAX_LENGTH = 512
_ADVICE = {  # where options can't be told apart by one token, by what answers
    "letter": "end the template in another way, or choose a model that knows the letters",
    "text": "your rows answer with the option's text: name the options by words of one token, or "
    'answer with letters (reply="letter")',
}


class CausalLM(TokenModel):
    """Causal language model that answers multiple-choice questions with one token.

    Created by `from_pretrained`, `from_model` or `from_scratch`. The loss is computed at the
    label's token only, over the whole vocabulary. Logits are computed at that position only, and
    scores and gaps use those of the options. Layer k is the hidden state after block k at the last
    token before the label; the last layer is taken after the final norm (paper, Section 4.1).
    """

    kind: ClassVar[str] = "AutoModelForCausalLM"
    ends_together: ClassVar[bool] = True

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        lora: LoRA | None = LoRA(),  # noqa: B008 - frozen
        max_length: int = _MAX_LENGTH,
        *,
        quantization: str | None = None,
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
        quantization : "nf4" or None
            Whether the frozen weights are held in 4 bits, as in QLoRA (with bitsandbytes, of the
            extra ``quantized``). Files that are in 4 bits already stay so.
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
            If the hub requires that you first accept the model's licence.
        ValueError
            If the revision is unknown, the model needs its own code, its weights are not in
            safetensors (checked when they are first read), or they are quantised and `lora` is
            None.
        ImportError
            If `quantization` needs a library that is missing or too old.
        """
        own: dict[str, Any] = {"max_length": max_length, "cache": cache}
        model, found = cls._loaded(
            name_or_path,
            revision,
            FINE_TUNED,
            lora,
            quantization=quantization,
            **own,
        )
        model.device = device
        if lora is not None:
            arguments = {**vars(lora), **found, **own}
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
            Any causal language model, also with adapters of peft. Its frozen weights may be in 4
            bits (bitsandbytes).
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
            If its weights are quantised in another way, offloaded or spread over devices, or an
            adapter is merged.
        """
        model = unwrap(model)
        _check_causal(model)
        load = Given(model, lora)
        given = (
            load,
            load.config,
            tokenizer,
            load.identity,
            FINE_TUNED,
            lora,
            max_length,
        )
        return cls(*given, cache=cache)

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
        return cls._small(word_tokenizer(_questions(data)), layers, width, _MAX_LENGTH)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the prompts."""
        return self._reader

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset without questions."""
        _questions(data)

    def logits(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return the logits of the whole vocabulary, (batch, words), where the label is."""
        from memowidgets.models.networks import head_in_float32

        with head_in_float32(cast("Any", module).get_output_embeddings()):
            return cast("Tensor", self._answer(module, inputs).logits[:, -1])

    def outputs(
        self, module: nn.Module, inputs: Any, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the options' logits (−inf for missing ones) and the loss over the vocabulary."""
        answers = inputs["options"].gather(1, labels[:, None])[:, 0]
        words, losses = super().outputs(module, inputs, answers)
        options = words.gather(1, inputs["options"])
        return options.masked_fill(~inputs["available"], -float("inf")), losses

    def option_tokens(
        self, data: Dataset, positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the token of each option, (n_options,), -1 where no question has the option.

        Raises
        ------
        ValueError
            If an option is another token in some of the questions.
        """
        answers = self._encoded(data).answers
        options = answers["options"][positions]
        available = answers["available"][positions]
        found = np.full(options.shape[1], -1)
        for i, own in enumerate(available.T):
            tokens = np.unique(options[own, i])
            if len(tokens) > 1:
                raise ValueError(f"option {i} is not the same token in all questions")
            if len(tokens) == 1:
                found[i] = tokens[0]
        return found

    def _completed(self, model: nn.Module) -> nn.Module:
        from memowidgets.models.networks import pack_head

        pack_head(model)
        return super()._completed(model)

    def _changes(self, data: Dataset) -> dict[str, Any]:  # noqa: ARG002 - the vocabulary is its own
        return {}

    def _tokens(self, data: Dataset) -> Tokens:
        questions = _questions(data)
        prompts = list(questions.prompts())
        replies = [questions.replies(i) for i in range(len(questions))]
        available = (
            np.arange(len(data.class_names)) < np.asarray(questions.n_choices)[:, None]
        )
        options = np.zeros(available.shape, dtype=np.int64)
        ids: list[NDArray[np.int64]] = []
        advice = _ADVICE[questions.reply]
        for prompt, added in reply_tokens(
            self._unchanged_reader(), prompts, replies, data.ids, advice
        ):
            options[len(ids), : len(added)] = added
            ids.append(prompt)
        lengths = np.array(list(map(len, ids)))
        advice = "raise max_length or leave them out"
        check_lengths(lengths, self._max_length, "prompt", data.ids, advice)
        answers = {"options": options, "available": available}
        return Tokens(ids, lengths, self._padding, ends_together=True, answers=answers)

    def _ask(self, model: nn.Module, batch: dict[str, Tensor]) -> Any:
        inputs = {
            name: batch[name]
            for name in ("input_ids", "attention_mask", "position_ids")
        }
        return model(
            **inputs, use_cache=False, logits_to_keep=1, output_hidden_states=False
        )

    def _representation(
        self,
        module: nn.Module,  # noqa: ARG002
    ) -> Callable[[Tensor, dict[str, Any]], Tensor]:
        return lambda hidden, _batch: hidden[:, -1].float()


def _check_causal(model: object) -> None:
    base: Any = plain(model)
    name = type(base).__name__
    config = getattr(base, "config", None)
    head = (
        None
        if config is None
        else getattr(base, "get_output_embeddings", lambda: None)()
    )
    has_encoder = getattr(config, "is_encoder_decoder", False)
    if head is None or has_encoder or name.endswith("ForMaskedLM"):
        raise TypeError(
            "CausalLM.from_model needs a causal language model of transformers, with a head that "
            f"predicts the next word and without an encoder, not {name}; load it with "
            "AutoModelForCausalLM.from_pretrained"
        )


def _questions(data: Dataset) -> MCQDataset:
    check_kind("CausalLM", data, MCQDataset)
    return cast("MCQDataset", data)
