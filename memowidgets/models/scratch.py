"""A small Llama, and a tokenizer whose vocabulary is the words of a dataset."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from memowidgets.models.encoding import Questions

_MOST_LAYERS, _WIDEST = 128, 8192
_UNKNOWN, _PADDING = "<unknown>", "<padding>"


def word_tokenizer(data: Questions) -> Any:
    """Return a tokenizer with a token for each word and mark of the prompts, and each label."""
    return tokenizer_of_words(data.prompts(), [label.strip() for label in data.label_texts])


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


def small_llama(vocabulary: int, layers: int, width: int) -> Any:
    """Return the configuration of a Llama whose heads have 16 values.

    Raises
    ------
    ValueError
        If the width is not a multiple of 16, or there is no layer.
    """
    from transformers import LlamaConfig

    if not 1 <= layers <= _MOST_LAYERS or not 16 <= width <= _WIDEST or width % 16:
        raise ValueError(
            f"layers must be from 1 to {_MOST_LAYERS} and width a multiple of 16 up to {_WIDEST}, "
            f"not {layers} and {width}"
        )
    return LlamaConfig(
        vocab_size=vocabulary,
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
