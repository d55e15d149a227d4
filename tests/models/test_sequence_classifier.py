"""Classifiers of texts of many architectures, random and tiny, made here: no download."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import memowidgets as mw
from memowidgets.models.lora import quiet_peft
from memowidgets.models.scratch import tokenizer_of_words
from memowidgets.training.forward import forward

CPU = torch.device("cpu")
WORDS = ["red", "green", "blue", "cold", "warm", "dry", "wet", "old", "new", "far", "near"]
CLASSES = ["colour", "weather", "place"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
ENCODER = {**SMALL, "intermediate_size": 32}
FAMILIES = {
    "bert": ("first", ENCODER),
    "roberta": ("first", {**ENCODER, "pad_token_id": 1}),
    "distilbert": ("first", {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32}),
    "modernbert": ("mean", {**ENCODER, "classifier_pooling": "mean"}),
    "deberta-v2": ("first", {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p"]}),
    "llama": ("last", {**ENCODER, "num_key_value_heads": 1}),
    "qwen2": ("last", {**ENCODER, "num_key_value_heads": 1}),
    "gpt2": ("last", {"n_embd": 16, "n_layer": 3, "n_head": 2, "pad_token_id": None}),
}
every_family = pytest.mark.parametrize("family", FAMILIES)
LORA = mw.models.LoRA(r=2, layers="top:2")


def texts(n: int = 30) -> mw.data.TextDataset:
    rng = np.random.default_rng(0)
    drawn = [" ".join(rng.choice(WORDS, size=rng.integers(1, 12))) for _ in range(n)]
    return mw.data.TextDataset.from_texts(drawn, np.arange(n) % 3, CLASSES)


@pytest.fixture(scope="module")
def data():
    return texts()


@pytest.fixture(scope="module")
def tokenizer(data):
    return tokenizer_of_words(data.texts)


@pytest.fixture(autouse=True, scope="module")
def _cache_of_its_own(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMOWIDGETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def tiny_config(family: str, vocabulary: int, **changes):
    common = {
        "vocab_size": vocabulary,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "num_labels": 3,
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
    }
    return AutoConfig.for_model(family, **{**common, **FAMILIES[family][1], **changes})


def tiny(family: str, vocabulary: int, **changes):
    torch.manual_seed(0)
    config = tiny_config(family, vocabulary, **changes)
    return AutoModelForSequenceClassification.from_config(config).eval()


def classifier(raw, tokenizer, **options):
    return mw.models.SequenceClassifier.from_model(raw, tokenizer, **options)


def one_pass(model, module, data, positions, precision="float32"):
    return forward(model, module, data, positions, CPU, precision, capture=True)


@every_family
def test_a_batch_of_different_lengths_equals_one_at_a_time(family, data, tokenizer):
    model = classifier(tiny(family, len(tokenizer)), tokenizer)
    module = model.build(data)
    together = one_pass(model, module, data, np.arange(len(data)))
    for i in range(6):
        alone = one_pass(model, module, data, np.array([i]))
        np.testing.assert_allclose(together.logits[i], alone.logits[0], atol=2e-5)
        np.testing.assert_allclose(together.losses[i], alone.losses[0], atol=2e-5)
        for name, layer in alone.layers.items():
            np.testing.assert_allclose(together.layers[name][i], layer[0], atol=5e-5)


@every_family
def test_hidden_states_logits_and_loss_are_those_of_transformers(family, data, tokenizer):
    raw = tiny(family, len(tokenizer))
    model = classifier(raw, tokenizer)
    seen = one_pass(model, model.build(data), data, np.arange(4))
    assert list(seen.layers) == ["1", "2", "3"]
    for i in range(4):
        ids = torch.tensor([tokenizer(data[i])["input_ids"]])
        with torch.no_grad():
            expected = raw(ids, output_hidden_states=True)
        np.testing.assert_allclose(seen.logits[i], expected.logits[0], atol=2e-5)
        loss = torch.nn.functional.cross_entropy(
            expected.logits, torch.tensor(data.labels[i : i + 1])
        )
        assert seen.losses[i] == pytest.approx(loss.item(), abs=2e-5)
        for k in (1, 2, 3):
            states = expected.hidden_states[k][0]
            read = {"first": states[0], "last": states[-1], "mean": states.mean(dim=0)}
            np.testing.assert_allclose(seen.layers[str(k)][i], read[FAMILIES[family][0]], atol=5e-5)


@every_family
def test_kept_and_computed_anew_are_equal_to_rounding(family, data, tokenizer):
    raw = tiny(family, len(tokenizer))
    cached, plain = (classifier(raw, tokenizer, lora=LORA, cache=c) for c in (True, False))
    positions = np.arange(len(data))
    kept = one_pass(cached, cached.build(data), data, positions)
    anew = one_pass(plain, plain.build(data), data, positions)
    assert list(kept.layers) == ["1", "2", "3"]
    for name in kept.layers:
        scale = np.abs(anew.layers[name]).max()
        np.testing.assert_allclose(kept.layers[name], anew.layers[name], atol=0.02 * scale)
    np.testing.assert_allclose(kept.losses, anew.losses, atol=0.02)
    assert (anew.losses != kept.losses).any()  # the cache was used: bfloat16 rounds


@every_family
def test_an_audit_trains_adapters_and_head_is_interrupted_and_resumed(
    family, data, tokenizer, tmp_path
):
    training = mw.TrainingConfig(
        epochs=2, checkpoint_every=1, batch_size=4, lr=2e-4, precision="float32"
    )
    raw = tiny(family, len(tokenizer))

    def audit(name):
        model = classifier(raw, tokenizer, lora=LORA)
        return mw.Audit(model, data, path=tmp_path / name, training=training, held_out=None)

    straight, stopped = audit("straight"), audit("stopped")
    straight.train()
    stopped.train(stop_at_drop=1e-9)
    assert len(stopped.checkpoints) == 2
    stopped = audit("stopped")
    stopped.train()
    place = "checkpoints/epoch-{}/adapter_model"
    kept = [a.source.run.read_weights(place.format(2), "") for a in (straight, stopped)]
    for name in kept[0]:
        np.testing.assert_array_equal(kept[0][name], kept[1][name])
    before = straight.source.run.read_weights(place.format(0), "")
    of_head = [name for name in before if "lora" not in name]
    assert of_head
    assert all((before[name] != kept[0][name]).any() for name in of_head)
    assert not any(".0." in name.split("lora")[0] for name in before if "lora" in name)

    from peft import PeftModel

    with quiet_peft():
        loaded = PeftModel.from_pretrained(raw, tmp_path / "straight/checkpoints/epoch-2").eval()
    made = straight.source.forward(straight.source.names.record("final")).logits()
    for row, position in enumerate(straight.source.design.members[:4]):
        with torch.no_grad():
            logits = loaded(torch.tensor([tokenizer(data[position])["input_ids"]])).logits[0]
        np.testing.assert_allclose(made[row], logits, atol=0.01)
