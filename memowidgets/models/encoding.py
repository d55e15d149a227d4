"""Encoding of texts and prompts as token ids, and of each option's label as one token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.memory import sent
from memowidgets.visible import quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Questions(Protocol):
    """Multiple-choice data as a language model needs it; `MCQDataset` implements this."""

    @property
    def class_names(self) -> Sequence[str]:
        """Letters of the labels, in order."""
        ...

    @property
    def label_texts(self) -> Sequence[str]:
        """Text that follows a prompt for each label, such as ``" A"``."""
        ...

    @property
    def n_choices(self) -> NDArray[np.int64]:
        """Number of options of each question, (n,)."""
        ...

    def prompts(self) -> Sequence[str]:
        """Return each question's text, up to where its label follows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Tokenised texts, which a batch pads on the right.

    Attributes
    ----------
    ids : list of array of int64
        Token ids of each text.
    lengths : array of shape (n,), int64
        Number of tokens of each text.
    padding : int
        Padding token. The attention mask excludes it.
    """

    pads_left: ClassVar[bool] = False

    ids: list[NDArray[np.int64]]
    lengths: NDArray[np.int64]
    padding: int

    def batch(self, positions: NDArray[Any], device: torch.device) -> dict[str, Tensor]:
        """Return ids and attention mask, padded to the longest text, (batch, longest)."""
        import torch

        arrays = dict(zip(("input_ids", "attention_mask"), self._padded(positions), strict=True))
        return {name: sent(torch.from_numpy(array), device) for name, array in arrays.items()}

    def slots(self, positions: NDArray[Any]) -> list[slice]:
        """Return where the tokens of each text are in its row of a batch."""
        lengths = self.lengths[positions]
        width = int(lengths.max())
        starts = width - lengths if self.pads_left else np.zeros_like(lengths)
        return [slice(int(a), int(a + n)) for a, n in zip(starts, lengths, strict=True)]

    def _padded(self, positions: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        width = int(self.lengths[positions].max())
        ids = np.full((len(positions), width), self.padding, dtype=np.int64)
        mask = np.zeros((len(positions), width), dtype=np.int64)
        for row, slot in enumerate(self.slots(positions)):
            ids[row, slot] = self.ids[positions[row]]
            mask[row, slot] = 1
        return ids, mask


@dataclass(frozen=True, kw_only=True)
class Encoded(Tokens):
    """Tokenised prompts, padded on the left so that they end together.

    Attributes
    ----------
    ids, lengths, padding
        As in `Tokens`.
    options : array of shape (n_classes,), int64
        Token of each label.
    available : array of shape (n, n_classes), bool
        Whether each question has each option.
    """

    pads_left: ClassVar[bool] = True

    options: NDArray[np.int64]
    available: NDArray[np.bool_]

    def batch(self, positions: NDArray[Any], device: torch.device) -> dict[str, Tensor]:
        """Return ids, attention mask, positions, and the options that each question has."""
        import torch

        batch = super().batch(positions, device)
        places = (batch["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        available = sent(torch.from_numpy(self.available[positions]), device)
        return batch | {"position_ids": places, "available": available}


def encode(data: Questions, tokenizer: Any, max_length: int) -> Encoded:
    """Tokenise every prompt and find the label tokens.

    Raises
    ------
    ValueError
        If a prompt is longer than `max_length` tokens (no prompt is cut), or a label is not a
        single token.
    """
    prompts = list(data.prompts())
    encoded = tokenizer(prompts, add_special_tokens=True, padding=False, truncation=False)
    ids = [np.asarray(tokens, dtype=np.int64) for tokens in encoded["input_ids"]]
    lengths = np.array([len(tokens) for tokens in ids])
    if lengths.max() > max_length:
        row = int(np.argmax(lengths > max_length))
        raise ValueError(
            f"{int((lengths > max_length).sum())} prompts are longer than {max_length} tokens, the "
            f"first in row {row} with {lengths[row]}; raise max_length or leave them out"
        )
    if lengths.min() == 0:
        raise ValueError(f"the prompt in row {int(np.argmin(lengths))} has no token")
    choices = np.arange(len(data.class_names))
    available = choices < np.asarray(data.n_choices)[:, np.newaxis]
    return Encoded(
        ids=ids,
        lengths=lengths,
        options=_label_tokens(tokenizer, prompts[0], data.label_texts),
        available=available,
        padding=padding_token(tokenizer),
    )


def encode_texts(
    texts: Sequence[str],
    tokenizer: Any,
    padding: int,
    longest: int | None,
    *,
    truncate: bool,
    name_of: Callable[[int], str],
) -> tuple[Tokens, int]:
    """Tokenise every text, and return the tokens and the number of texts that were cut.

    Parameters
    ----------
    texts : sequence of str
        Texts of the samples.
    tokenizer : transformers.PreTrainedTokenizerBase
        Tokenizer of the model.
    padding : int
        Padding token.
    longest : int or None
        Largest number of tokens that the model reads. None if there is no limit.
    truncate : bool
        Whether to cut longer texts. Otherwise they are an error.
    name_of : callable
        Function from a position to the name of a sample, for messages.

    Raises
    ------
    ValueError
        If a text is longer and `truncate` is false, or a text has no token.
    """
    encoded = tokenizer(list(texts), add_special_tokens=True, padding=False, truncation=False)
    lengths = np.array([len(tokens) for tokens in encoded["input_ids"]])
    long = lengths > longest if longest is not None else np.zeros(len(lengths), dtype=bool)
    if long.any() and not truncate:
        first = int(np.argmax(long))
        raise ValueError(
            f"{int(long.sum())} texts are longer than the {longest} tokens that the model reads, "
            f"the first is {name_of(first)} with {lengths[first]}; pass truncate=True to cut them"
        )
    if long.any():
        encoded = tokenizer(list(texts), padding=False, truncation=True, max_length=longest)
        lengths = np.array([len(tokens) for tokens in encoded["input_ids"]])
    if lengths.min() == 0:
        raise ValueError(
            f"the text of {name_of(int(np.argmin(lengths)))} has no token; leave it out"
        )
    ids = [np.asarray(tokens, dtype=np.int64) for tokens in encoded["input_ids"]]
    return Tokens(ids=ids, lengths=lengths, padding=padding), int(long.sum())


def _label_tokens(tokenizer: Any, prompt: str, labels: Sequence[str]) -> NDArray[np.int64]:
    """Return the token of each label after a prompt; each must be single and distinct."""
    found: dict[int, str] = {}
    for label in labels:
        tokens = _continuation(tokenizer, prompt, label)
        if len(tokens) != 1:
            raise ValueError(
                f"the label {quoted(label)} is {len(tokens)} tokens for this tokenizer ({tokens}); "
                "every label must be one"
            )
        if tokens[0] in found:
            raise ValueError(
                f"the labels {quoted(found[tokens[0]])} and {quoted(label)} are the same token "
                "for this "
                "tokenizer; they must be distinct"
            )
        found[tokens[0]] = label
    if tokenizer.unk_token_id in found:
        label = found[tokenizer.unk_token_id]
        raise ValueError(f"this tokenizer does not know the label {quoted(label)}")
    return np.array(list(found), dtype=np.int64)


def _continuation(tokenizer: Any, prompt: str, label: str) -> list[int]:
    """Return the tokens that a label adds to a prompt."""
    alone = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    both = tokenizer(prompt + label, add_special_tokens=False)["input_ids"]
    if both[: len(alone)] != alone:
        raise ValueError(
            f"this tokenizer joins the label {quoted(label)} with the prompt's end; "
            "end the template in another way"
        )
    return list(both[len(alone) :])


def padding_token(tokenizer: Any) -> int:
    """Return any token, because padding is masked."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0
