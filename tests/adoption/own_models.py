"""Models that the package did not make, each with data that it reads."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import nn

import memowidgets as mw
from memowidgets.models.tokens import tokenizer_of_words
from tests.models.small import llama_folder, saved

N = 48
COLORS = ("red", "green", "blue", "grey")
SIZE = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2}
DISTILLED = {"dim": 32, "hidden_dim": 32, "n_heads": 2, "n_layers": 2}
TRAINING = mw.TrainingConfig(
    epochs=2, batch_size=8, lr=2e-3, checkpoint_every=1, precision="float32"
)


def texts() -> mw.data.TextDataset:
    rng = np.random.default_rng(0)
    words = rng.choice(COLORS, (N, 5))
    labels = (words == "red").sum(axis=1) > 1
    return mw.data.TextDataset.from_texts(
        [f"{i} {' '.join(row)}" for i, row in enumerate(words)],
        labels.astype(int),
        ["few", "many"],
    )


def questions() -> mw.data.MCQDataset:
    found = texts()
    rows = [
        {"question": text, "choices": ["few", "many"], "answer": int(label)}
        for text, label in zip(found.texts, found.labels, strict=True)
    ]
    return mw.data.MCQDataset.from_records(rows)


def images() -> mw.data.ImageDataset:
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 2
    shades = rng.uniform(size=(N, 16, 16, 3)) / 2 + labels[:, None, None, None] / 2
    return mw.data.ImageDataset.from_arrays(shades, labels, ["dark", "bright"])


def tokenizer(data):
    words = data.texts if isinstance(data, mw.data.TextDataset) else data.prompts()
    return tokenizer_of_words(words)


def drawn(kind, config):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return kind(config)


def classifier(name, **settings):
    """A classifier of texts of transformers, with random weights."""
    data = texts()
    reader = tokenizer(data)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(reader), num_labels=2, pad_token_id=0, **settings
    )
    kind = getattr(transformers, f"{name}ForSequenceClassification")
    return drawn(kind, config), reader, data


def asked_before(model, data, reader):
    """The model after its owner has looked at its hidden states."""
    ids = reader(list(data.texts[:2]), padding=True, return_tensors="pt").input_ids
    with torch.no_grad():
        assert model(input_ids=ids, output_hidden_states=True).hidden_states
    return model


def vit():
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=2, **SIZE)
    return drawn(transformers.ViTForImageClassification, config)


def processor():
    return transformers.ViTImageProcessor(size={"height": 16, "width": 16})


class OnHidden(nn.Module):
    """A head on the mean of hidden states of a backbone that was made elsewhere."""

    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self.head = nn.Linear(32, n_classes)

    def forward(self, images):
        answer = self.backbone(images, output_hidden_states=True)
        return self.head(answer.hidden_states[-2].mean(dim=1))


@dataclass(frozen=True)
class Brought:
    """A model and its data, by how they are made."""

    make: object

    def audit(self, path: Path) -> mw.Audit:
        model, data = self.make(path)
        return mw.Audit(
            model, data, path=path / "run", training=TRAINING, device="cpu", seed=1
        )


def _given(name, *, looked=False, **settings):
    def make(_folder):
        model, reader, data = classifier(name, **settings)
        if looked:
            asked_before(model, data, reader)
        return mw.models.SequenceClassifier.from_model(model, reader), data

    return Brought(make)


def _classifier_from_a_folder(folder):
    model, reader, data = classifier("Bert", **SIZE)
    saved(folder / "bert", model, reader)
    return mw.models.SequenceClassifier.from_pretrained(folder / "bert"), data


def _classifier_from_scratch(_folder):
    data = texts()
    return mw.models.SequenceClassifier.from_scratch(data, layers=1, width=16), data


def _llm(folder):
    data = questions()
    path = llama_folder(folder / "llama", tokenizer(data))
    return path, data


def _llm_from_a_folder(folder):
    path, data = _llm(folder)
    lora = mw.models.LoRA(r=2, layers="top:1")
    return mw.models.CausalLM.from_pretrained(path, lora=lora), data


def _llm_given(folder):
    path, data = _llm(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(path)
    reader = transformers.AutoTokenizer.from_pretrained(path)
    return mw.models.CausalLM.from_model(model, reader), data


def _llm_of_peft(folder):
    import peft

    path, data = _llm(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(path)
    reader = transformers.AutoTokenizer.from_pretrained(path)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    with warnings.catch_warnings():  # peft asks transformers for an old name
        warnings.simplefilter("ignore", FutureWarning)
        adapted = peft.get_peft_model(model, config, adapter_name="mine")
    return mw.models.CausalLM.from_model(adapted, reader), data


def in_4_bits(folder, kind=transformers.LlamaForCausalLM, **settings):
    """A model of a folder whose linear layers bitsandbytes holds in 4 bits."""
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        **settings,
    )
    return kind.from_pretrained(folder, quantization_config=config)


def _llm_in_4_bits(folder):
    data = questions()
    path = llama_folder(folder / "llama", tokenizer(data), width=64, layers=2)
    reader = transformers.AutoTokenizer.from_pretrained(path)
    lora = mw.models.LoRA(r=2)
    return mw.models.CausalLM.from_model(in_4_bits(path), reader, lora), data


def _llm_quantized_here(folder):
    data = questions()
    path = llama_folder(folder / "llama", tokenizer(data), width=64, layers=2)
    lora = mw.models.LoRA(r=2, layers="top:1")
    model = mw.models.CausalLM.from_pretrained(path, lora, quantization="nf4")
    return model, data


def _classifier_quantized_here(folder):
    model, reader, data = classifier("GPT2", **GPT)
    path = saved(folder / "gpt", model, reader)
    lora = mw.models.LoRA(r=2)
    made = mw.models.SequenceClassifier.from_pretrained(path, lora, quantization="nf4")
    return made, data


def _llm_from_scratch(_folder):
    data = questions()
    return mw.models.CausalLM.from_scratch(data, layers=1, width=16), data


def _images_given(_folder):
    return mw.models.ImageClassifier.from_model(vit(), processor()), images()


def _images_from_a_folder(folder):
    path = saved(folder / "vit", vit(), processor())
    return mw.models.ImageClassifier.from_pretrained(path), images()


def _module_of_ones_own(_folder):
    def make_module(n_classes):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(768, 8), nn.Tanh(), nn.Linear(8, n_classes)
        )

    return mw.models.TorchClassifier(make_module), images()


def _module_on_a_backbone(_folder):
    backbone = drawn(transformers.ViTModel, vit().config)
    values = torch.rand(2, 3, 16, 16)
    backbone(values, output_hidden_states=True)

    return mw.models.TorchClassifier(
        lambda n: OnHidden(backbone, n), version="1"
    ), images()


# One for each adapter: what `make test` trains in worker processes.
FIRST = {
    "CausalLM.from_model": Brought(_llm_given),
    "CausalLM.from_model, 4 bits": Brought(_llm_in_4_bits),
    "SequenceClassifier.from_model, Bert": _given("Bert", **SIZE),
    "ImageClassifier.from_model": Brought(_images_given),
    "TorchClassifier on a backbone": Brought(_module_on_a_backbone),
}
EVERY = {
    **FIRST,
    "CausalLM.from_pretrained": Brought(_llm_from_a_folder),
    "CausalLM.from_scratch": Brought(_llm_from_scratch),
    "CausalLM.from_model of peft": Brought(_llm_of_peft),
    "CausalLM.from_pretrained, 4 bits": Brought(_llm_quantized_here),
    "SequenceClassifier.from_pretrained": Brought(_classifier_from_a_folder),
    "SequenceClassifier.from_pretrained, 4 bits": Brought(_classifier_quantized_here),
    "SequenceClassifier.from_scratch": Brought(_classifier_from_scratch),
    "SequenceClassifier.from_model, Llama": _given("Llama", **SIZE),
    "SequenceClassifier.from_model, Roberta": _given("Roberta", **SIZE),
    "SequenceClassifier.from_model, Electra": _given("Electra", **SIZE),
    "SequenceClassifier.from_model, DistilBert": _given("DistilBert", **DISTILLED),
    "SequenceClassifier.from_model, GPT2": _given("GPT2", **GPT),
    "SequenceClassifier.from_model, Bert that was asked": _given(
        "Bert", looked=True, **SIZE
    ),
    "ImageClassifier.from_pretrained": Brought(_images_from_a_folder),
    "TorchClassifier": Brought(_module_of_ones_own),
}
