"""Classifiers of texts of many architectures, random and tiny, made here: no download."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

import memowidgets as mw
from memowidgets.models.heads import own_pooling
from memowidgets.models.lora import quiet_peft
from memowidgets.models.tokens import tokenizer_of_words
from tests.models.small import (
    assert_kept_is_near,
    assert_left_as_it_is,
    one_pass,
    saved,
)

CPU = torch.device("cpu")
WORDS = [
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
CLASSES = ["colour", "weather", "place"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
ENCODER = {**SMALL, "intermediate_size": 32}
FAMILIES = {
    "bert": ("first", ENCODER),
    "modernbert": ("mean", {**ENCODER, "classifier_pooling": "mean"}),
    "deberta-v2": (
        "first",
        {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p"]},
    ),
    "llama": ("last", {**ENCODER, "num_key_value_heads": 1}),
    "gpt2": ("last", {"n_embd": 16, "n_layer": 3, "n_head": 2, "pad_token_id": None}),
}
LORA = mw.models.LoRA(r=2, layers="top:2")


def texts(n: int = 30) -> mw.data.TextDataset:
    rng = np.random.default_rng(0)
    drawn = [" ".join(rng.choice(WORDS, size=rng.integers(2, 12))) for _ in range(n)]
    return mw.data.TextDataset.from_texts(drawn, np.arange(n) % 3, CLASSES)


@pytest.fixture(scope="module")
def data():
    return texts()


@pytest.fixture(scope="module")
def tokenizer(data):
    return tokenizer_of_words(data.texts)


def tiny_config(family: str, vocabulary: int, **changes):
    common = {"vocab_size": vocabulary, "max_position_embeddings": 64, "num_labels": 3}
    tokens = {"bos_token_id": None, "eos_token_id": None, "cls_token_id": None}
    tokens |= {"sep_token_id": None, "pad_token_id": 0}
    return AutoConfig.for_model(
        family, **common | tokens | FAMILIES[family][1] | changes
    )


def tiny(family: str, vocabulary: int, **changes):
    torch.manual_seed(0)
    config = tiny_config(family, vocabulary, **changes)
    return AutoModelForSequenceClassification.from_config(config).eval()


def classifier(raw, tokenizer, **options):
    return mw.models.SequenceClassifier.from_model(raw, tokenizer, **options)


@pytest.fixture(scope="module", params=FAMILIES)
def made(request, data, tokenizer):
    """A model of each family, and its pass over all texts; tests leave both as they are."""
    raw = tiny(request.param, len(tokenizer))
    model = classifier(raw, tokenizer)
    together = one_pass(model, model.build(data), data, np.arange(len(data)))
    return SimpleNamespace(family=request.param, raw=raw, together=together)


def test_hidden_states_logits_and_loss_are_those_of_transformers(made, data, tokenizer):
    family, raw, seen = made.family, made.raw, made.together
    assert list(seen.layers) == ["1", "2", "3"]
    for i in range(6):
        ids = torch.tensor([tokenizer(data[i])["input_ids"]])
        with torch.no_grad():
            expected = raw(ids, output_hidden_states=True)
        np.testing.assert_allclose(seen.logits[i], expected.logits[0], atol=2e-5)
        label = torch.tensor(data.labels[i : i + 1])
        loss = torch.nn.functional.cross_entropy(expected.logits, label)
        assert seen.losses[i] == pytest.approx(loss.item(), abs=2e-5)
        for k in (1, 2, 3):
            states = expected.hidden_states[k][0]
            read = {"first": states[0], "last": states[-1], "mean": states.mean(dim=0)}
            np.testing.assert_allclose(
                seen.layers[str(k)][i], read[FAMILIES[family][0]], atol=5e-5
            )


def test_kept_and_computed_anew_are_equal_to_rounding(made, data, tokenizer):
    cached, plain = (
        classifier(made.raw, tokenizer, lora=LORA, cache=c) for c in (True, False)
    )
    assert_kept_is_near(cached, plain, data, atol=0.02)


def test_a_checkpoint_holds_adapters_and_head_as_peft_reads_them(
    made, data, tokenizer, tmp_path
):
    from peft import PeftModel

    model = classifier(made.raw, tokenizer, lora=LORA)
    module = model.build(data)
    before = {name: values.clone() for name, values in model.weights(module).items()}
    train_one_step(model, module, data)
    after = model.weights(module)
    of_head = [name for name in after if "lora" not in name]
    assert of_head
    assert all((before[name] != after[name]).any() for name in of_head)
    assert not any(".0." in name.split("lora")[0] for name in after if "lora" in name)

    save_file(after, tmp_path / "adapter_model.safetensors")
    for name, content in model.weights_config(module).items():
        (tmp_path / name).write_text(json.dumps(content))
    with quiet_peft():
        loaded = PeftModel.from_pretrained(copy.deepcopy(made.raw), tmp_path).eval()
    seen = one_pass(model, module, data, np.arange(4)).logits
    for row in range(4):
        with torch.no_grad():
            logits = loaded(torch.tensor([tokenizer(data[row])["input_ids"]])).logits[0]
        np.testing.assert_allclose(seen[row], logits, atol=0.01)


def train_one_step(model, module, data):
    module.train()
    optimizer = torch.optim.SGD(
        (p for p in module.parameters() if p.requires_grad), lr=0.1
    )
    batch = np.arange(8)
    inputs, labels = model.feeder(data, CPU)(batch), torch.tensor(data.labels[batch])
    model.outputs(module, inputs, labels)[1].mean().backward()
    optimizer.step()


def test_a_run_is_of_the_weights_that_are_trained(data, tokenizer, tmp_path):
    """Shadow models that train other weights than their target would give a wrong truth."""
    raw = tiny("bert", len(tokenizer))
    settings = {"device": "cpu", "held_out": None}
    mw.Audit(classifier(raw, tokenizer), data, tmp_path / "run", **settings)
    raw.bert.requires_grad_(requires_grad=False)
    fixed = classifier(raw, tokenizer)
    with pytest.raises(ValueError, match="holds another run: model settings"):
        mw.Audit(fixed, data, tmp_path / "run", **settings)
    again = cloudpickle.loads(cloudpickle.dumps(fixed))
    assert again.describe(data) == fixed.describe(data)
    lora = mw.models.LoRA(r=2)
    raws = raw, tiny("bert", len(tokenizer))
    adapted = [classifier(each, tokenizer, lora=lora) for each in raws]
    assert adapted[0].describe(data) == adapted[1].describe(data)


def test_a_vocabulary_of_the_same_size_is_not_the_same_vocabulary(tmp_path):
    """A fork on anonymised texts has as many words as its parent, and the parent's tokenizer."""
    words = [
        f"{name} has {thing}" for name in ("Smith", "Jones") for thing in "abcdefgh"
    ]
    before = mw.data.TextDataset.from_texts(words, [0, 1] * 8)
    after = mw.data.TextDataset.from_texts(
        [t.replace("Smith", "XX") for t in words], [0, 1] * 8
    )
    training = mw.TrainingConfig(epochs=1, precision="float32")
    settings = {"training": training, "device": "cpu", "held_out": None}
    model = mw.models.SequenceClassifier.from_scratch(before, layers=1, width=16)
    mw.Audit(model, after, tmp_path / "run", **settings).train()
    assert mw.Audit.open(tmp_path / "run", data=after).run.model is None
    given = mw.Audit.open(tmp_path / "run", data=after, model=model)
    assert np.isfinite(given.score("loss")).all()


def test_workers_receive_a_path_and_not_the_weights(data, tokenizer, tmp_path):
    raw = tiny("bert", len(tokenizer), intermediate_size=4096)
    folder = saved(tmp_path / "model", raw, tokenizer)
    model = mw.models.SequenceClassifier.from_pretrained(folder, LORA)
    model.build(data)
    weights = sum(p.numel() * 4 for p in raw.parameters())
    assert len(cloudpickle.dumps(model)) < weights / 20
    again = cloudpickle.loads(cloudpickle.dumps(model))
    assert again.describe(data) == model.describe(data)


def test_a_text_that_ends_in_the_padding_token_is_read_as_transformers_reads_it(
    data, tokenizer
):
    raw = tiny(
        "llama", len(tokenizer), pad_token_id=tokenizer.convert_tokens_to_ids("red")
    )
    words = ["cold warm red", "dry wet new old red red", "red far"]
    ending = mw.data.TextDataset.from_texts(words, [0, 1, 2], CLASSES)
    model = classifier(raw, tokenizer)
    seen = one_pass(model, model.build(ending), ending, np.arange(3))
    for i, last in enumerate((1, 3, 1)):
        ids = torch.tensor([tokenizer(ending[i])["input_ids"]])
        with torch.no_grad():
            expected = raw(ids, output_hidden_states=True)
        np.testing.assert_allclose(seen.logits[i], expected.logits[0], atol=2e-5)
        states = expected.hidden_states[3][0]
        np.testing.assert_allclose(seen.layers["3"][i], states[last], atol=5e-5)


def test_a_pass_over_a_module_from_elsewhere_leaves_it_as_it_is(data, tokenizer):
    raw = tiny("bert", len(tokenizer)).train()
    assert_left_as_it_is(classifier(raw, tokenizer), raw, data)


def test_a_text_that_is_too_long_is_named_or_cut(data, tokenizer, tmp_path):
    words = [*data.texts, "red " * 70, "far " * 65]
    long = mw.data.TextDataset.from_texts(words, [*data.labels, 0, 1], CLASSES)
    raw = tiny("bert", len(tokenizer))
    with pytest.raises(
        ValueError, match=r"2 texts are longer than the 64 tokens.*'30' with 70"
    ):
        mw.Audit(classifier(raw, tokenizer), long, path=tmp_path / "no")
    cutting = classifier(raw, tokenizer, truncate=True)
    with pytest.warns(UserWarning, match="2 of 32 texts were cut to 64 tokens"):
        cutting.check_data(long)
    assert cutting.lengths(long).max() == 64


def test_a_head_that_reads_no_usual_position_is_read_at_the_mean(tokenizer):
    class Pair(type(tiny("bert", len(tokenizer)))):
        def forward(self, input_ids, attention_mask, output_hidden_states=False):
            answer = self.bert(input_ids, attention_mask, output_hidden_states=True)
            logits = self.classifier(answer.hidden_states[-1][:, :2].sum(dim=1))
            return SequenceClassifierOutput(
                logits=logits, hidden_states=answer.hidden_states
            )

    assert own_pooling(Pair(tiny_config("bert", len(tokenizer))).eval()) == "mean"


def test_a_stack_that_does_not_run_without_its_lower_blocks_is_named(data, tokenizer):
    """ALBERT has one block, which it runs several times."""
    config = AutoConfig.for_model(
        "albert", vocab_size=len(tokenizer), num_labels=3, embedding_size=8, **ENCODER
    )
    raw = AutoModelForSequenceClassification.from_config(config).eval()
    top = mw.models.LoRA(r=2, layers="top:1")
    with pytest.raises(
        ValueError, match=r"blocks of Albert.* cannot be kept.*cache=False"
    ):
        classifier(raw, tokenizer, lora=top).feeder(data, CPU)
    classifier(raw, tokenizer, lora=top, cache=False).build(data)
