"""Encoding of prompts as token ids, with one token for each option's label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class Encoded:
    """Tokenised prompts.

    Attributes
    ----------
    ids : list of array of int64
        Token ids of each prompt.
    lengths : array of shape (n,), int64
        Number of tokens of each prompt.
    options : array of shape (n_classes,), int64
        Token of each label.
    available : array of shape (n, n_classes), bool
        Whether each question has each option.
    padding : int
        Padding token. The attention mask excludes it.
    """

    ids: list[NDArray[np.int64]]
    lengths: NDArray[np.int64]
    options: NDArray[np.int64]
    available: NDArray[np.bool_]
    padding: int

    def batch(self, positions: NDArray[Any], device: torch.device) -> dict[str, Tensor]:
        """Return ids, attention mask and positions, padded on the left to end together."""
        import torch

        width = int(self.lengths[positions].max())
        ids = np.full((len(positions), width), self.padding, dtype=np.int64)
        mask = np.zeros((len(positions), width), dtype=np.int64)
        for row, position in enumerate(positions):
            tokens = self.ids[position]
            ids[row, width - len(tokens) :] = tokens
            mask[row, width - len(tokens) :] = 1
        places = np.maximum(mask.cumsum(axis=1) - 1, 0)
        arrays = {"input_ids": ids, "attention_mask": mask, "position_ids": places}
        tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        return tensors | {"available": torch.from_numpy(self.available[positions]).to(device)}


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
        padding=_padding_token(tokenizer),
    )


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


def _padding_token(tokenizer: Any) -> int:
    """Return any token, because padding is masked."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0
