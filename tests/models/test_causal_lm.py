"""Language models of many architectures, random and tiny, made here: no download."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer
from tests.models.small import one_pass

LETTERS = "ABCDEFGHIJ"
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
FAMILIES = {
    "llama": {**SMALL, "intermediate_size": 64, "num_key_value_heads": 1},
    "gemma": {
        **SMALL,
        "intermediate_size": 64,
        "num_key_value_heads": 1,
        "head_dim": 16,
    },
    "opt": {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 2},
    "bloom": {"hidden_size": 32, "n_layer": 3, "n_head": 2},  # its blocks return tuples
}


def questions(n: int = 24) -> mw.data.MCQDataset:
    rng = np.random.default_rng(0)
    words = [
        "red",
        "green",
        "blue",
        "cold",
        "warm",
        "dry",
        "wet",
        "old",
        "new",
        "far",
        "near",
    ]
    rows = [
        {
            "question": " ".join(rng.choice(words, size=rng.integers(2, 9))),
            "choices": words[: 2 + i % 3],
            "answer": i % 2,
        }
        for i in range(n)
    ]
    return mw.data.MCQDataset.from_records(rows)


@pytest.fixture(scope="module")
def data():
    return questions()


@pytest.fixture(scope="module")
def tokenizer(data):
    return word_tokenizer(data)


def tiny(family: str, vocabulary: int, **changes):
    torch.manual_seed(0)
    common = {
        "vocab_size": vocabulary,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
    }
    common |= {"bos_token_id": None, "eos_token_id": None}
    config = AutoConfig.for_model(family, **common | FAMILIES[family] | changes)
    return AutoModelForCausalLM.from_config(config).eval()


def test_a_model_that_reads_padding_is_refused(data, tokenizer):
    """RWKV knows no attention mask, so a shorter prompt begins with padding."""
    size = {"hidden_size": 32, "num_hidden_layers": 2, "context_length": 256}
    config = AutoConfig.for_model("rwkv", vocab_size=len(tokenizer), **size)
    torch.manual_seed(0)
    raw = AutoModelForCausalLM.from_config(config).eval()
    model = mw.models.CausalLM.from_model(raw, tokenizer)
    with pytest.raises(
        ValueError, match=r"padding changes the logits of Rwkv.* by \d+%"
    ):
        model.build(data)


def spaced(texts: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer whose words begin with the space before them, as most do."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = dict.fromkeys(
        word for text in texts for word, _ in split.pre_tokenize_str(text)
    )
    vocabulary = {word: i for i, word in enumerate(["<end>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<end>"))
    tokenizer.pre_tokenizer = split
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<end>")


@pytest.mark.parametrize("end", [":", ": ", ":\n"])
def test_the_text_of_an_option_may_be_the_reply(end):
    rows = [
        {
            "question": "is it " * (1 + i % 3),
            "choices": ["no", "yes"][:: (-1) ** i],
            "answer": 0,
        }
        for i in range(6)
    ]
    rows[0]["answer"] = 1
    data = mw.data.MCQDataset.from_records(rows, "{question}{options}" + end, "text")
    whole = [data.prompt(i) + reply for i in range(6) for reply in data.replies(i)]
    tokenizer = spaced(whole)
    model = mw.models.CausalLM.from_model(tiny("llama", len(tokenizer)), tokenizer)
    module = model.build(data)
    seen = one_pass(model, module, data, np.arange(6))
    for i in range(6):
        for option in range(2):
            *prompt, reply = tokenizer(whole[2 * i + option])["input_ids"]
            with torch.no_grad():
                words = module(input_ids=torch.tensor([prompt])).logits[0, -1]
            np.testing.assert_allclose(seen.logits[i, option], words[reply], atol=1e-5)
            if option == data.labels[i]:
                expected = -torch.log_softmax(words, dim=0)[reply]
                np.testing.assert_allclose(seen.losses[i], expected, atol=1e-5)


def test_a_reply_of_several_tokens_is_refused():
    rows = [
        {"question": f"{i}?", "choices": ["yes", "not at all"], "answer": i}
        for i in (0, 1)
    ]
    data = mw.data.MCQDataset.from_records(rows, "{question} {options}:", "text")
    tokenizer = spaced(
        [data.prompt(i) + reply for i in (0, 1) for reply in data.replies(i)]
    )
    model = mw.models.CausalLM.from_model(tiny("llama", len(tokenizer)), tokenizer)
    with pytest.raises(
        ValueError, match=r"one token an option.*'0' the .* add 1, 3 tokens"
    ):
        model.feeder(data, torch.device("cpu"))


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_logits_and_loss_are_those_of_transformers(
    family, data, tokenizer
):
    raw = tiny(family, len(tokenizer))
    model = mw.models.CausalLM.from_model(raw, tokenizer)
    seen = one_pass(model, model.build(data), data, np.arange(6))
    for i in range(6):
        ids = torch.tensor([tokenizer(data.prompt(i))["input_ids"]])
        with torch.no_grad():
            expected = raw(ids, output_hidden_states=True)
        words = expected.logits[0, -1]
        letters = [
            tokenizer.convert_tokens_to_ids(c) for c in LETTERS[: data.n_choices[i]]
        ]
        np.testing.assert_allclose(
            seen.logits[i, : len(letters)], words[letters], atol=2e-5
        )
        assert np.isneginf(seen.logits[i, len(letters) :]).all()
        label = torch.tensor([letters[data.labels[i]]])
        loss = torch.nn.functional.cross_entropy(words[None], label)
        assert seen.losses[i] == pytest.approx(loss.item(), abs=2e-5)
        assert list(seen.layers) == ["1", "2", "3"]
        for k in (1, 2, 3):
            hidden = expected.hidden_states[k][0, -1]
            np.testing.assert_allclose(seen.layers[str(k)][i], hidden, atol=5e-5)
