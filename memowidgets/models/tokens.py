"""Tokens of texts and of prompts, and tokenizers that are made of a dataset's words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.device import sent
from memowidgets.vocabulary import listed, quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from memowidgets.data import MCQDataset


_UNKNOWN = "<unknown>"
_PADDING = "<padding>"


@dataclass(frozen=True)
class Tokens:
    """Tokenised texts.

    Attributes
    ----------
    ids : list of array of int64
        Token ids of each text.
    lengths : array of shape (n,), int64
        Number of tokens of each text.
    padding : int
        Padding token. The attention mask excludes it.
    ends_together : bool
        Whether a batch pads on the left, as prompts need it, and has position ids.
    answers : dict of arrays of shape (n, …)
        What a batch has for each text beside its tokens, by name.
    """

    ids: list[NDArray[np.int64]]
    lengths: NDArray[np.int64]
    padding: int
    ends_together: bool = False
    answers: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def batch(self, positions: NDArray[Any], device: torch.device) -> dict[str, Tensor]:
        """Return ids and attention mask, padded to the longest text, (batch, longest)."""
        import torch

        width = int(self.lengths[positions].max())
        ids = np.full((len(positions), width), self.padding, dtype=np.int64)
        mask = np.zeros((len(positions), width), dtype=np.int64)
        for row, slot in enumerate(self.slots(positions)):
            ids[row, slot] = self.ids[positions[row]]
            mask[row, slot] = 1
        batch = {"input_ids": ids, "attention_mask": mask}
        if self.ends_together:
            batch["position_ids"] = np.maximum(mask.cumsum(axis=1) - 1, 0)
        batch |= {name: array[positions] for name, array in self.answers.items()}
        return {
            name: sent(torch.from_numpy(array), device) for name, array in batch.items()
        }

    def slots(self, positions: NDArray[Any]) -> list[slice]:
        """Return where the tokens of each text are in its row of a batch."""
        lengths = self.lengths[positions]
        width = int(lengths.max())
        starts = width - lengths if self.ends_together else np.zeros_like(lengths)
        return [slice(int(a), int(a + n)) for a, n in zip(starts, lengths, strict=True)]


def check_lengths(
    lengths: NDArray[np.int64],
    longest: int | None,
    what: str,
    ids: NDArray[np.str_],
    advice: str,
) -> None:
    """Raise for a text with more tokens than a model reads, or with none.

    Parameters
    ----------
    lengths : array of shape (n,), int64
        Number of tokens of each text.
    longest : int or None
        Largest number of tokens that the model reads. None if there is no limit.
    what : str
        What the texts are, for messages.
    ids : array of str
        Names of the samples, for messages.
    advice : str
        What to do about longer texts.
    """
    long = (
        lengths > longest if longest is not None else np.zeros(len(lengths), dtype=bool)
    )
    if long.any():
        first = int(np.argmax(long))
        raise ValueError(
            f"{int(long.sum())} {what}s are longer than the {longest} tokens that the model reads, "
            f"the first is {quoted(ids[first])} with {lengths[first]}; {advice}"
        )
    if lengths.min() == 0:
        empty = quoted(ids[int(np.argmin(lengths))])
        raise ValueError(f"the {what} of {empty} has no token; leave it out")


def reply_tokens(
    tokenizer: Any,
    prompts: Sequence[str],
    replies: Sequence[Sequence[str]],
    ids: NDArray[np.str_],
    advice: str,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the tokens of each prompt, and the one that each of its replies adds to it.

    Prompt and reply are encoded together, because a space between them may be part of a token.

    Raises
    ------
    ValueError
        If a reply adds more than one token, the same as another, or one that is not known.
        `ids` and `advice` are as for `check_lengths`.
    """
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    texts = [
        prompt + reply
        for prompt, own in zip(prompts, replies, strict=True)
        for reply in own
    ]
    encoded = iter(tokenizer(texts)["input_ids"])
    for i, own in enumerate(replies):
        names = listed(map(quoted, own))
        found = []
        for tokens in islice(encoded, len(own)):
            while tokens and tokens[-1] in special:  # what ends a text
                tokens.pop()
            found.append(tokens)
        places = zip(*found, strict=False)
        shared = [
            tokens[0]
            for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, places)
        ]
        added = [tokens[len(shared) :] for tokens in found]
        if {*map(len, added)} != {1} or len({*map(tuple, added)}) < len(added):
            numbers = ", ".join(str(len(tokens)) for tokens in added)
            raise ValueError(
                "an audit needs one token an option, and another one for each. After the prompt "
                f"of {quoted(ids[i])} the options {names} add {numbers} tokens; {advice}"
            )
        if [tokenizer.unk_token_id] in added:
            raise ValueError(
                f"this tokenizer does not know all of the options {names}; {advice}"
            )
        yield np.array(shared, dtype=np.int64), np.array(added, dtype=np.int64)[:, 0]


def padding_token(tokenizer: Any) -> int:
    """Return any token, because padding is masked."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def word_tokenizer(data: MCQDataset) -> Any:
    """Return a tokenizer with a token for each word and mark of the prompts, and each label."""
    replies = {reply.strip() for i in range(len(data)) for reply in data.replies(i)}
    return tokenizer_of_words(data.prompts(), replies)


def tokenizer_of_words(texts: Iterable[str], others: Iterable[str] = ()) -> Any:
    """Return a tokenizer with a token for each word and mark of the texts, and for the others."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pattern = r"\w+|[^\w\s]"
    words = {word for text in texts for word in re.findall(pattern, text)}
    vocabulary = [_PADDING, _UNKNOWN, *sorted(words.union(others))]
    tokenizer = Tokenizer(
        models.WordLevel(
            {word: i for i, word in enumerate(vocabulary)}, unk_token=_UNKNOWN
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(pattern), "removed", invert=True
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, unk_token=_UNKNOWN, pad_token=_PADDING
    )
