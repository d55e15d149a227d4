"""Classifiers of texts: encoders and decoders of transformers with a classification head."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from memowidgets.checks import warn_user
from memowidgets.data import Dataset, TextDataset
from memowidgets.models.base import check_kind, unwrap
from memowidgets.models.heads import (
    check_classifier,
    head_names,
    head_of,
    own_pooling,
    padding_of,
    plain,
)
from memowidgets.models.lora import LoRA
from memowidgets.models.pretrained import Given
from memowidgets.models.quantized import check_head
from memowidgets.models.tokens import (
    Tokens,
    check_lengths,
    padding_token,
    tokenizer_of_words,
)
from memowidgets.models.transformer import CLASSIFIER, TokenModel

if TYPE_CHECKING:
    import os

    from torch import Tensor, nn


_OF_ADAPTERS = {**CLASSIFIER, "lr": 1e-3}
_NO_LIMIT = 1_000_000  # what has no limit states a far larger number, or one below 1


class SequenceClassifier(TokenModel):
    """Classifier of texts: an encoder or decoder of transformers with a classification head.

    Created by `from_pretrained`, `from_model` or `from_scratch`. It takes any model that
    transformers loads with ``AutoModelForSequenceClassification``, except for those with an encoder
    and a decoder. Layer k is ``hidden_states[k]`` at the position that the head reads: the first
    token, the last token that is not padding, or else the mean of all tokens. The logits are
    computed in float32 in any precision. Each batch is padded to its longest text, and training
    batches have texts of similar length.

    Notes
    -----
    With ``LoRA(layers="top:k")`` the frozen blocks run only once for all models (`cache`). They run
    without dropout then. Without the cache, a model that has dropout uses it in frozen blocks, too.

    Examples
    --------
    >>> from memowidgets.data import TextDataset
    >>> texts = ["a fine day", "a poor day", "what a fine song", "a poor film"] * 4
    >>> data = TextDataset.from_texts(texts, [1, 0, 1, 0] * 4, ["bad", "good"])
    >>> model = SequenceClassifier.from_scratch(data, layers=2, width=16)
    >>> model
    SequenceClassifier(layers=2, width=16, words=9)
    >>> model.layer_names(model.build(data))
    ('1', '2')
    """

    kind: ClassVar[str] = "AutoModelForSequenceClassification"
    batches_by_length: ClassVar[bool] = True

    truncate: bool = False  # whether longer texts are cut

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        lora: LoRA | None = None,
        *,
        max_length: int | None = None,
        truncate: bool = False,
        quantization: str | None = None,
        device: str | None = None,
        cache: bool = True,
        revision: str | None = None,
    ) -> Self:
        """Create a model from the hub or from a folder, to be fine-tuned.

        Its head has as many logits as the data have classes. A head in the files is kept if it has
        that width, else a new one is initialised from the audit's seed.

        Parameters
        ----------
        name_or_path : str or path-like
            Name or folder, as for transformers. Code that comes with a model is never run, and only
            weights in safetensors are read.
        lora : LoRA, optional
            Adapters. The head is trained and stored with them. None trains all weights.
        max_length : int, optional
            Largest number of tokens of a text. By default as many as the model reads.
        truncate : bool
            Whether to cut longer texts. Otherwise they are an error.
        quantization : "nf4" or None
            Whether the frozen weights below adapters are held in 4 bits, as of `CausalLM`. The head
            is not.
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
        SequenceClassifier

        Raises
        ------
        ConnectionError
            If the name is not a folder and the hub cannot provide it.
        PermissionError
            If the hub requires that you first accept the model's licence.
        ValueError
            If transformers has no classifier of this kind, the head is for several labels at once
            or for regression, the weights are quantised and `lora` is None, or an argument is not
            valid.
        ImportError
            If `quantization` needs a library that is missing or too old.
        """
        own: dict[str, Any] = {"max_length": max_length, "cache": cache}
        defaults = CLASSIFIER if lora is None else _OF_ADAPTERS
        model, found = cls._loaded(
            name_or_path, revision, defaults, lora, quantization=quantization, **own
        )
        model.truncate = truncate
        model.device = device
        adapters = None if lora is None else {**vars(lora)}
        arguments = {"lora": adapters, "truncate": truncate, **own, **found}
        model.source = {
            "model": "SequenceClassifier.from_pretrained",
            "arguments": arguments,
        }
        return model

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: Any,
        lora: LoRA | None = None,
        *,
        max_length: int | None = None,
        truncate: bool = False,
        cache: bool = True,
    ) -> Self:
        """Create a model from one in memory; training uses copies of it.

        Parameters
        ----------
        model : transformers.PreTrainedModel
            Any ``…ForSequenceClassification`` with one logit for each class of the data, also with
            adapters of peft. Its frozen weights may be in 4 bits (bitsandbytes), its head not.
        tokenizer : transformers.PreTrainedTokenizerBase
            Tokenizer of the model.
        lora : LoRA, optional
            Adapters to add. Without them, all weights that require a gradient are trained.
        max_length, truncate, cache
            As in `from_pretrained`.

        Returns
        -------
        SequenceClassifier

        Raises
        ------
        TypeError
            If it is not a classifier of transformers, or has an encoder and a decoder.
        ValueError
            If its head is for several labels at once or for regression, or its weights are
            quantised in another way, offloaded or spread over devices, or an adapter is merged.
        """
        model = unwrap(model)
        check_classifier(model, cls.kind)
        check_head(plain(model), head_of(model))
        load = Given(model, lora)
        defaults = CLASSIFIER if lora is None else _OF_ADAPTERS
        made = cls(
            load,
            load.config,
            tokenizer,
            load.identity,
            defaults,
            lora,
            max_length,
            cache=cache,
        )
        made.truncate = truncate
        return made

    @classmethod
    def from_scratch(cls, data: Dataset, layers: int = 2, width: int = 64) -> Self:
        """Create a small Llama and a word-level tokenizer from the data, without a download.

        Parameters
        ----------
        data : TextDataset
            Data whose words become the vocabulary. Texts are cut to 1024 tokens, with a warning.
        layers, width : int
            Number of blocks, and size of the hidden state (a multiple of 16).

        Returns
        -------
        SequenceClassifier
            Model of which all weights are trained, on one CPU thread.
        """
        model = cls._small(tokenizer_of_words(_texts(data).texts), layers, width, None)
        model.truncate = True
        return model

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset without texts, with too long ones, or with other classes.

        Raises
        ------
        TypeError
            If the data are not texts.
        ValueError
            If a text is longer than the model reads, the head's width is not the number of
            classes, or its configuration has their names in another order.
        """
        texts = _texts(data)
        self._check_classes(texts)
        tokens, n_cut = self._tokens_and_cut(texts)
        self._seen.data[data] = tokens
        if n_cut:
            warn_user(
                f"{n_cut} of {len(texts)} texts were cut to {tokens.lengths.max()} tokens"
            )

    def check_padding(self, module: nn.Module) -> None:
        """Raise if a module from elsewhere finds the last token by another padding token.

        Raises
        ------
        ValueError
            If its padding token is not the one with which this model pads texts, or it does not
            follow the attention mask.
        """
        theirs = padding_of(module)
        if theirs not in (-1, self._padding) and own_pooling(module) == "last":
            raise ValueError(
                f"the model in training has the padding token {theirs}, and this audit pads texts "
                f"with {self._padding}, so its head would read padding; set "
                "model.config.pad_token_id before SequenceClassifier.from_model"
            )
        super().check_padding(module)

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return {**super().settings(), "truncate": self.truncate}

    def logits(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return logits of shape (batch, classes)."""
        from memowidgets.models.networks import head_in_float32

        with head_in_float32(head_of(module)):
            return cast("Tensor", self._answer(module, inputs).logits)

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Return ``"1"`` to ``"K"``, one per block, from the last frozen one on if it is kept."""
        n_blocks = int(
            cast("Any", plain(module)).config.get_text_config().num_hidden_layers
        )
        return tuple(str(k) for k in range(max(1, self._first), n_blocks + 1))

    @property
    def _padding(self) -> int:
        """Padding token of the model, or of its tokenizer, or any token, because it is masked."""
        found = self._config.get_text_config().pad_token_id
        return padding_token(self._reader) if found is None else int(found)

    def _representation(
        self, module: nn.Module
    ) -> Callable[[Tensor, dict[str, Any]], Tensor]:
        import torch

        if "pooling" not in self._seen.whole:  # the module was not built here
            self._seen.whole["pooling"] = own_pooling(module)
        pooling = self._seen.whole["pooling"]

        def read(hidden: Tensor, batch: dict[str, Any]) -> Tensor:
            if pooling == "first":
                return hidden[:, 0].float()
            if pooling == "last":
                ids = batch["input_ids"]
                places = torch.arange(ids.shape[1], device=ids.device)
                last = ((ids != self._padding) * places).argmax(dim=1)
                return hidden[
                    torch.arange(len(hidden), device=hidden.device), last
                ].float()
            mask: Tensor = batch["attention_mask"][:, :, None].float()
            return (hidden.float() * mask).sum(dim=1) / mask.sum(dim=1)

        return read

    def _tokens(self, data: Dataset) -> Tokens:
        return self._tokens_and_cut(_texts(data))[0]

    def _tokens_and_cut(self, data: TextDataset) -> tuple[Tokens, int]:
        """Return the tokens of every text, and the number of texts that were cut."""
        positions = getattr(
            self._config.get_text_config(), "max_position_embeddings", None
        )
        limits = (self._max_length, positions, self._reader.model_max_length)
        known = [
            limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT
        ]
        longest = min(known, default=None)
        encoded = self._encode(data)
        n_cut = 0
        if self.truncate and longest is not None:
            n_cut = sum(len(tokens) > longest for tokens in encoded)
        if n_cut:
            encoded = self._encode(data, truncation=True, max_length=longest)
        lengths = np.array(list(map(len, encoded)))
        advice = "pass truncate=True to cut them"
        check_lengths(lengths, longest, "text", data.ids, advice)
        ids = [np.asarray(tokens, dtype=np.int64) for tokens in encoded]
        return Tokens(ids, lengths, self._padding), n_cut

    def _encode(self, data: TextDataset, **how: Any) -> list[list[int]]:
        return cast(
            "list[list[int]]",
            self._unchanged_reader()(list(data.texts), **how)["input_ids"],
        )

    def _fresh(self, data: Dataset) -> nn.Module:
        """Return the model with the padding token by which it finds the last token of a text."""
        model = super()._fresh(data)
        config = cast("Any", plain(model)).config
        for part in (config, config.get_text_config()):
            part.pad_token_id = self._padding
            part.use_cache = False
        return model

    def _look_at(self, model: nn.Module) -> None:
        """Find out which position the head reads, too."""
        if "pooling" not in self._seen.whole:
            self._seen.whole["pooling"] = own_pooling(model)
        super()._look_at(model)

    def _head(self, model: nn.Module) -> list[nn.Parameter]:
        return list(head_of(model).parameters())

    def _add_adapters(self, model: nn.Module) -> nn.Module:
        return (
            model
            if self._lora is None
            else self._lora.wrap(model, head=head_names(model))
        )

    def _ask(self, model: nn.Module, batch: dict[str, Tensor]) -> Any:
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return model(**inputs, output_hidden_states=False)


def _texts(data: Dataset) -> TextDataset:
    check_kind("SequenceClassifier", data, TextDataset)
    return cast("TextDataset", data)
