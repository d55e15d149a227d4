"""What models refuse: each call, the kind of its error, and the facts that the message states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig

import memowidgets as mw
from memowidgets.models.tokens import tokenizer_of_words, word_tokenizer
from tests.models import test_causal_lm as of_questions
from tests.models import test_image_classifier as of_images
from tests.models import test_sequence_classifier as of_texts
from tests.models.small import saved

CausalLM, LoRA = mw.models.CausalLM, mw.models.LoRA
SequenceClassifier, ImageClassifier = (
    mw.models.SequenceClassifier,
    mw.models.ImageClassifier,
)
QUESTIONS, TEXTS, IMAGES = (
    of_questions.questions(),
    of_texts.texts(),
    of_images.images(),
)
WORDS = {
    "questions": word_tokenizer(QUESTIONS),
    "texts": tokenizer_of_words(TEXTS.texts),
}


# models that fit, but for what a row changes


def language_model():
    return of_questions.tiny("llama", len(WORDS["questions"]))


def questioned(lora=None, raw=None, **options):
    return CausalLM.from_model(
        raw or language_model(), WORDS["questions"], lora, **options
    )


def text_model(family="bert", **changes):
    return of_texts.tiny(family, len(WORDS["texts"]), **changes)


def classified(raw, **options):
    return SequenceClassifier.from_model(raw, WORDS["texts"], **options)


def pictured(raw=None, **processor):
    return ImageClassifier.from_model(
        raw or of_images.tiny("vit"), of_images.processor(**processor)
    )


def torched(make, **options):
    data = of_images.images()
    return mw.models.TorchClassifier(make, version="1", **options).build(data)


def offloaded():
    raw = language_model()
    raw.lm_head.weight = nn.Parameter(raw.lm_head.weight.to("meta"))
    return questioned(raw=raw)


def quantised():
    raw = language_model()
    raw.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    return raw


def with_config(at: Path, text: str):
    (at / "config.json").write_text(text)
    (at / "own.py").write_text("raise SystemExit('this must never run')")
    return CausalLM.from_pretrained(at)


def pickled(at: Path):
    raw = language_model()
    (saved(at, raw, WORDS["questions"]) / "model.safetensors").unlink()
    torch.save(raw.state_dict(), at / "pytorch_model.bin")
    return CausalLM.from_pretrained(at).build(QUESTIONS)


def without_a_block(at: Path):
    file = saved(at, text_model("llama"), WORDS["texts"]) / "model.safetensors"
    kept = {k: v for k, v in load_file(file).items() if "layers.1" not in k}
    save_file(kept, file, metadata={"format": "pt"})
    return SequenceClassifier.from_pretrained(at).build(TEXTS)


def other_labels():
    rows = [
        {"question": "red?", "choices": list("vwxyz"), "answer": i} for i in range(2)
    ]
    return mw.data.MCQDataset.from_records(rows)


def bare(at: Path, kind: str):
    return saved(at, AutoConfig.for_model(kind))


CPU = torch.device("cpu")
OWN_CODE = json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}})


class Wide(nn.Sequential):
    def __init__(self, hidden=8, num_classes=3):
        last = nn.Linear(hidden, num_classes)
        super().__init__(nn.Flatten(), nn.Linear(432, hidden), nn.ReLU(), last)


class TokensFirst(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.embed, self.head = nn.Linear(27, 8), nn.Linear(8, n)

    def forward(self, x):
        tokens = x.flatten(1).reshape(len(x), 16, 27).transpose(0, 1)
        return self.head(self.embed(tokens).mean(0))


class Picky(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.head = nn.Linear(432, n)

    def forward(self, x):
        assert x.shape[-1] == 224, "images must be 224 wide"
        return self.head(x.flatten(1))


# the facts of each message, and the call
VALUE_ERRORS = [
    ("r must | from 1", lambda _: LoRA(r=0)),
    ("dropout | below 1 | 1.0", lambda _: LoRA(dropout=1.0)),
    ('bottom:2 | "all" | top:8', lambda _: LoRA(layers="bottom:2")),
    ("top:9 | 3 blocks", lambda _: questioned(LoRA(layers="top:9")).build(QUESTIONS)),
    (
        "c_attn | down_proj",
        lambda _: questioned(LoRA(targets=["c_attn"])).build(QUESTIONS),
    ),
    ("know | E", lambda _: questioned().feeder(other_labels(), CPU)),
    (
        "23 prompts | 12 tokens | with 18 | max_length",
        lambda _: questioned(max_length=12).feeder(QUESTIONS, CPU),
    ),
    ("LlamaForCausalLM | on cpu, meta | device_map", lambda _: offloaded()),
    ("LlamaForCausalLM | gptq | load_in_4bit", lambda _: questioned(raw=quantised())),
    (
        "gptq | load_in_4bit",
        lambda at: CausalLM.from_pretrained(saved(at, quantised().config)),
    ),
    (
        "make_module | torch.compile",
        lambda _: torched(lambda n: torch.compile(nn.Linear(64, n), backend="eager")),
    ),
    ("Unrecognized model | model_type", lambda at: with_config(at, "{}")),
    ("own code | CausalLM.from_model", lambda at: with_config(at, OWN_CODE)),
    ("safetensors | CausalLM.from_model", pickled),
    ("lacks 9 weights | LlamaForSequenceClassification | layers.1", without_a_block),
    (
        "4 logits | 3 classes | num_labels=3",
        lambda _: classified(text_model("llama", num_labels=4)).check_data(TEXTS),
    ),
    (
        "4 logits | 3 classes | num_labels=3",
        lambda _: pictured(of_images.tiny("vit", num_labels=4)).check_data(IMAGES),
    ),
    ("max_length | 0", lambda _: classified(text_model(), max_length=0)),
    (
        "vit | AutoModelForSequence",
        lambda at: SequenceClassifier.from_pretrained(bare(at, "vit")),
    ),
    (
        "gpt2 | AutoModelForImage",
        lambda at: ImageClassifier.from_pretrained(bare(at, "gpt2")),
    ),
    (
        "(12, 12, 3) | channels | grey",
        lambda _: pictured(of_images.tiny("vit", num_channels=1)).check_data(IMAGES),
    ),
    ("(12, 12, 3) | 12*12", lambda _: pictured(do_resize=False).check_data(IMAGES)),
    (
        "(2, 4) | 3 classes | (2, 3)",
        lambda _: torched(lambda n: nn.Sequential(nn.Flatten(), nn.Linear(432, n + 1))),
    ),
    (
        "(3, 12, 12) | called with 3",
        lambda _: torched(lambda n: nn.Sequential(nn.Linear(7, n))),
    ),
    (
        "'layer9' | 0, 1, 2, 3",
        lambda _: torched(lambda n: Wide(num_classes=n), layers=["layer9"]),
    ),
    ("'embed' | 16 rows | 2 images | layers=", lambda _: torched(TokensFirst)),
    ("(3, 12, 12) | images must be 224 wide", lambda _: torched(Picky)),
]
TYPE_ERRORS = [
    (
        "ImageDataset | MCQDataset",
        lambda _: CausalLM.from_scratch(mw.data.load_digits()),
    ),
    ("LlamaModel", lambda _: classified(text_model("llama").model)),
    ("LlamaModel | causal", lambda _: questioned(raw=text_model("llama").model)),
    ("Linear | causal", lambda _: questioned(raw=nn.Linear(2, 2))),
    ("lora must be a memowidgets", lambda _: questioned(lora=True)),
    ("ImageDataset", lambda _: SequenceClassifier.from_scratch(mw.data.load_digits())),
    ("TextDataset", lambda _: pictured().check_data(TEXTS)),
    (
        "int | AutoImageProcessor",
        lambda _: ImageClassifier.from_model(of_images.tiny("vit"), 3),
    ),
    ("torch.nn.Module | int", lambda _: torched(lambda _n: 3)),
    ("number of classes | Wide", lambda _: torched(Wide())),
    ("3, the number of classes | 1 was given", lambda _: torched(lambda: 3)),
]
NOT_THERE = [
    (ConnectionError, "neither a folder | no", lambda at: CausalLM.from_pretrained(at / "no")),
    (OSError, "preprocessor_config.json",
     lambda at: ImageClassifier.from_pretrained(saved(at, of_images.tiny("vit")))),
]  # fmt: skip
REFUSED = [
    *((ValueError, *row) for row in VALUE_ERRORS),
    *((TypeError, *row) for row in TYPE_ERRORS),
    *NOT_THERE,
]
OTHER_HEADS = [
    ("for regression", {"num_labels": 1}),
    ("for regression", {"problem_type": "regression"}),
    ("several labels at once", {"problem_type": "multi_label_classification"}),
]


def check_refused(error, facts, call, *arguments):
    with pytest.raises(error) as raised:
        call(*arguments)
    assert [fact for fact in facts.split(" | ") if fact not in str(raised.value)] == []


@pytest.mark.parametrize(("error", "facts", "call"), REFUSED)
def test_what_a_model_cannot_be_made_of_or_work_on_is_refused(
    error, facts, call, tmp_path
):
    check_refused(error, facts, call, tmp_path)


@pytest.mark.parametrize(("facts", "changes"), OTHER_HEADS)
def test_heads_of_other_kinds_are_refused_given_and_in_a_folder(
    facts, changes, tmp_path
):
    raw, facts = text_model(**changes), f"{facts} | SequenceClassifier"
    check_refused(ValueError, facts, classified, raw)
    folder = saved(tmp_path, raw, WORDS["texts"])
    check_refused(ValueError, facts, SequenceClassifier.from_pretrained, folder)


def test_a_network_itself_is_refused_before_a_run_is_begun(tmp_path):
    with pytest.raises(
        TypeError, match=r"not Wide: pass mw\.models\.TorchClassifier\(make_mod"
    ):
        mw.Audit(Wide(), IMAGES, path=tmp_path)
    with pytest.raises(ValueError, match="4 logits"):
        mw.Audit(pictured(of_images.tiny("vit", num_labels=4)), IMAGES, path=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_number_of_classes_is_passed_by_its_name_and_other_layers_are_taken():
    assert torched(Wide)[1].out_features == 8
    torched(TokensFirst, layers=["head"])


def numbered(raw, names):
    raw.config.id2label = dict(enumerate(names))
    raw.config.label2id = {name: i for i, name in enumerate(names)}
    return raw


@pytest.mark.parametrize("kind", ["texts", "images", "files", "adapters"])
def test_a_head_with_the_classes_in_another_order_is_not_taught_anew(kind, tmp_path):
    """Labels that pandas or a sorted list numbered, beside a model that was fine-tuned before."""
    data = IMAGES if kind == "images" else TEXTS
    first, second, third = data.class_names

    def model(*names):
        if kind == "images":
            return pictured(numbered(of_images.tiny("vit"), names))
        raw = numbered(text_model(), names)
        if kind == "files":
            saved(tmp_path / names[0], raw, WORDS["texts"])
            return SequenceClassifier.from_pretrained(tmp_path / names[0])
        return classified(raw, **{"lora": LoRA(r=2)} if kind == "adapters" else {})

    for names in ((second, first, third), (third.upper(), f"{first} ", second.title())):
        wrong = model(*names)
        with pytest.raises(ValueError, match=r"class 0 .*class_names=.*id2label"):
            mw.Audit(wrong, data, tmp_path / "run", device="cpu")
    for names in (data.class_names, ("LABEL_0", "LABEL_1", "LABEL_2"), ("x", "y", "z")):
        model(*names).check_data(data)
