"""Tokens of texts and of prompts, and tokenizers that are made of a dataset's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.device import sent
from memowidgets.visible import quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from memowidgets.data import MCQDataset


_UNKNOWN, _PADDING = "<unknown>", "<padding>"


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Tokenised texts. A batch pads texts on the right, and prompts on the left to end together.

    Attributes
    ----------
    ids : list of array of int64
        Token ids of each text.
    lengths : array of shape (n,), int64
        Number of tokens of each text.
    padding : int
        Padding token. The attention mask excludes it.
    options : array of shape (n, n_classes), int64
        Token of each option of each question. None if the texts are not prompts.
    available : array of shape (n, n_classes), bool
        Whether each question has each option. None if the texts are not prompts.
    """

    ids: list[NDArray[np.int64]]
    lengths: NDArray[np.int64]
    padding: int
    options: NDArray[np.int64] | None = None
    available: NDArray[np.bool_] | None = None

    def batch(self, positions: NDArray[Any], device: torch.device) -> dict[str, Tensor]:
        """Return ids and attention mask, padded to the longest text, (batch, longest).

        Prompts also have position ids, and the tokens of each question's options.
        """
        import torch

        width = int(self.lengths[positions].max())
        ids = np.full((len(positions), width), self.padding, dtype=np.int64)
        mask = np.zeros((len(positions), width), dtype=np.int64)
        for row, slot in enumerate(self.slots(positions)):
            ids[row, slot] = self.ids[positions[row]]
            mask[row, slot] = 1
        batch = {"input_ids": ids, "attention_mask": mask}
        if self.options is not None and self.available is not None:
            batch["position_ids"] = np.maximum(mask.cumsum(axis=1) - 1, 0)
            batch |= {
                "options": self.options[positions],
                "available": self.available[positions],
            }
        return {name: sent(torch.from_numpy(array), device) for name, array in batch.items()}

    def slots(self, positions: NDArray[Any]) -> list[slice]:
        """Return where the tokens of each text are in its row of a batch."""
        lengths = self.lengths[positions]
        width = int(lengths.max())
        starts = np.zeros_like(lengths) if self.options is None else width - lengths
        return [slice(int(a), int(a + n)) for a, n in zip(starts, lengths, strict=True)]


def tokens_of(
    texts: Sequence[str],
    what: str,
    tokenizer: Any,
    padding: int,
    longest: int | None,
    name_of: Callable[[int], str],
    advice: str,
    *,
    truncate: bool = False,
) -> tuple[Tokens, int]:
    """Tokenise every text, and return the tokens and the number of texts that were cut.

    Parameters
    ----------
    texts : sequence of str
        Texts of the samples.
    what : str
        What the texts are, for messages.
    tokenizer : transformers.PreTrainedTokenizerBase
        Tokenizer of the model.
    padding : int
        Padding token.
    longest : int or None
        Largest number of tokens that the model reads. None if there is no limit.
    name_of : callable
        Function from a position to the name of a sample, for messages.
    advice : str
        What to do about longer texts.
    truncate : bool
        Whether to cut longer texts. Otherwise they are an error.

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
            f"{int(long.sum())} {what}s are longer than the {longest} tokens that the model reads, "
            f"the first is {name_of(first)} with {lengths[first]}; {advice}"
        )
    if long.any():
        encoded = tokenizer(list(texts), padding=False, truncation=True, max_length=longest)
        lengths = np.array([len(tokens) for tokens in encoded["input_ids"]])
    if lengths.min() == 0:
        empty = name_of(int(np.argmin(lengths)))
        raise ValueError(f"the {what} of {empty} has no token; leave it out")
    ids = [np.asarray(tokens, dtype=np.int64) for tokens in encoded["input_ids"]]
    return Tokens(ids=ids, lengths=lengths, padding=padding), int(long.sum())


def label_tokens(tokenizer: Any, prompt: str, labels: Sequence[str]) -> NDArray[np.int64]:
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
                f"the labels {quoted(found[tokens[0]])} and {quoted(label)} are the same token for "
                "this tokenizer; they must be distinct"
            )
        found[tokens[0]] = label
    if tokenizer.unk_token_id in found:
        label = found[tokenizer.unk_token_id]
        raise ValueError(f"this tokenizer does not know the label {quoted(label)}")
    return np.array(list(found), dtype=np.int64)


def reply_tokens(
    tokenizer: Any, prompt: str, replies: Sequence[str], where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens of a prompt, and the one that each reply adds to it.

    Prompt and reply are encoded together, because a space between them may be part of a token.

    Raises
    ------
    ValueError
        If a reply adds more than one token, or the same as another. `where` names the question.
    """
    special = set(tokenizer.all_special_ids)
    found = []
    for tokens in tokenizer([prompt + reply for reply in replies])["input_ids"]:
        while tokens and tokens[-1] in special:  # what ends a text
            tokens.pop()
        found.append(tokens)
    places = zip(*found, strict=False)
    shared = [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, places)]
    added = [tokens[len(shared) :] for tokens in found]
    if {*map(len, added)} != {1} or len({*map(tuple, added)}) < len(added):
        numbers = ", ".join(str(len(tokens)) for tokens in added)
        raise ValueError(
            "your rows answer with the option's text; an audit needs one token an option, and "
            f"another one for each. After the prompt of {where} the options add {numbers} tokens; "
            'name them by words of one token, or answer with letters (reply="letter")'
        )
    return np.array(shared, dtype=np.int64), np.array(added, dtype=np.int64)[:, 0]


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
        models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=_UNKNOWN)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, unk_token=_UNKNOWN, pad_token=_PADDING
    )
