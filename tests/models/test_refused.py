"""What models refuse: each call, the kind of its error, and the facts that the message states."""

from __future__ import annotations

import functools
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

CausalLM, LoRA = mw.models.CausalLM, mw.models.LoRA
SequenceClassifier, ImageClassifier = mw.models.SequenceClassifier, mw.models.ImageClassifier
QUESTIONS, TEXTS, IMAGES = of_questions.questions(), of_texts.texts(), of_images.images()
WORDS = {"questions": word_tokenizer(QUESTIONS), "texts": tokenizer_of_words(TEXTS.texts)}


# models that fit, but for what a row changes


def language_model(folder: Path | None = None, **attributes):
    raw = of_questions.tiny("llama", len(WORDS["questions"]))
    for name, value in attributes.items():
        setattr(raw.config if name == "quantization_config" else raw, name, value)
    if folder is not None:
        raw.save_pretrained(folder)
        WORDS["questions"].save_pretrained(folder)
    return raw


def questioned(lora=None, raw=None, **options):
    return CausalLM.from_model(raw or language_model(), WORDS["questions"], lora, **options)


def text_model(family="bert", **changes):
    return of_texts.tiny(family, len(WORDS["texts"]), **changes)


def classified(raw, **options):
    return SequenceClassifier.from_model(raw, WORDS["texts"], **options)


def saved(folder: Path, raw, reader) -> Path:
    raw.save_pretrained(folder)
    reader.save_pretrained(folder)
    return folder


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


def quantised_folder(at: Path):
    config = language_model().config
    config.quantization_config = {"quant_method": "gptq", "bits": 4}
    config.save_pretrained(at)
    return CausalLM.from_pretrained(at)


def with_config(at: Path, text: str):
    (at / "config.json").write_text(text)
    (at / "own.py").write_text("raise SystemExit('this must never run')")
    return CausalLM.from_pretrained(at)


def pickled(at: Path, load, raw, reader, data):
    saved(at, raw, reader)
    (at / "model.safetensors").unlink()
    torch.save(raw.state_dict(), at / "pytorch_model.bin")
    return load(at).build(data)


def without_a_block(at: Path):
    file = saved(at, text_model("llama"), WORDS["texts"]) / "model.safetensors"
    kept = {k: v for k, v in load_file(file).items() if "layers.1" not in k}
    save_file(kept, file, metadata={"format": "pt"})
    return SequenceClassifier.from_pretrained(at).build(TEXTS)


def other_labels():
    rows = [{"question": "red?", "choices": list("vwxyz"), "answer": i} for i in range(2)]
    return mw.data.MCQDataset.from_records(rows)


def bare(at: Path, kind: str):
    AutoConfig.for_model(kind).save_pretrained(at)
    return at


def processorless(at: Path):
    of_images.tiny("vit").save_pretrained(at)
    return ImageClassifier.from_pretrained(at)


CPU = torch.device("cpu")
OWN_CODE = json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}})
SEVERAL = {"problem_type": "multi_label_classification"}


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


REFUSED = {
    # adapters
    "no rank": (lambda _: LoRA(r=0), ValueError, ["r must", "from 1"]),
    "all dropped": (lambda _: LoRA(dropout=1.0), ValueError, ["dropout", "below 1", "1.0"]),
    "unknown blocks": (
        lambda _: LoRA(layers="bottom:2"),
        ValueError,
        ["bottom:2", '"all"', "top:8"],
    ),
    "more blocks than there are": (
        lambda _: questioned(LoRA(layers="top:9")).build(QUESTIONS),
        ValueError,
        ["top:9", "3 blocks"],
    ),
    "no such projection": (
        lambda _: questioned(LoRA(targets=["c_attn"])).build(QUESTIONS),
        ValueError,
        ["c_attn", "down_proj"],
    ),
    # questions
    "images as questions": (
        lambda _: CausalLM.from_scratch(mw.data.load_digits()),
        TypeError,
        ["ImageDataset", "MCQDataset"],
    ),
    "labels without a token": (
        lambda _: questioned().feeder(other_labels(), CPU),
        ValueError,
        ["label"],
    ),
    "a long prompt": (
        lambda _: questioned(max_length=12).feeder(QUESTIONS, CPU),
        ValueError,
        ["23 prompts", "12 tokens", "with 18", "max_length"],
    ),
    # weights and folders
    "offloaded": (
        lambda _: offloaded(),
        ValueError,
        ["LlamaForCausalLM", "offloaded", "device_map"],
    ),
    "quantised": (
        lambda _: questioned(raw=language_model(is_quantized=True)),
        ValueError,
        ["quantised", "quantization_config"],
    ),
    "quantised by its configuration": (
        lambda _: questioned(raw=language_model(quantization_config={"quant_method": "gptq"})),
        ValueError,
        ["CausalLM.from_model", "quantised"],
    ),
    "a folder of quantised weights": (quantised_folder, ValueError, ["quantised", "in full"]),
    "no folder": (
        lambda at: CausalLM.from_pretrained(at / "no"),
        ConnectionError,
        ["neither a folder", "no"],
    ),
    "no model": (
        lambda at: with_config(at, "{}"),
        ValueError,
        ["no model that transformers knows"],
    ),
    "its own code": (
        lambda at: with_config(at, OWN_CODE),
        ValueError,
        ["own code", "CausalLM.from_model"],
    ),
    "a pickle": (
        lambda at: pickled(
            at, CausalLM.from_pretrained, language_model(), WORDS["questions"], QUESTIONS
        ),
        ValueError,
        ["safetensors", "CausalLM.from_model"],
    ),
    "a pickle of images": (
        lambda at: pickled(
            at,
            ImageClassifier.from_pretrained,
            of_images.tiny("vit"),
            of_images.processor(),
            IMAGES,
        ),
        ValueError,
        ["safetensors", "ImageClassifier.from_model"],
    ),
    "an unknown dtype": (
        lambda at: CausalLM.from_pretrained(at, dtype="int4"),
        ValueError,
        ["int4", "auto, float32, bfloat16"],
    ),
    "bfloat16 without adapters": (
        lambda at: CausalLM.from_pretrained(at, lora=None, dtype="bfloat16"),
        ValueError,
        ["float32", '"auto"'],
    ),
    "weights that are lacking": (
        without_a_block,
        ValueError,
        ["lacks 9 weights", "LlamaForSequenceClassification", "layers.1"],
    ),
    # heads
    **{
        f"{head} of {what}, {how}": (
            functools.partial(
                lambda at, load, made, reader, how: (
                    load.from_model(made(), reader)
                    if how == "given"
                    else load.from_pretrained(saved(at, made(), reader))
                ),
                load=load,
                made=functools.partial(tiny, **changes),
                reader=reader,
                how=how,
            ),
            ValueError,
            [said, load.__name__],
        )
        for what, load, tiny, reader in (
            ("texts", SequenceClassifier, text_model, WORDS["texts"]),
            (
                "images",
                ImageClassifier,
                functools.partial(of_images.tiny, "vit"),
                of_images.processor(),
            ),
        )
        for head, changes, said in (
            ("one logit", {"num_labels": 1}, "regression"),
            ("regression", {"problem_type": "regression"}, "regression"),
            ("several labels", SEVERAL, "several labels at once"),
        )
        for how in ("given", "in a folder")
    },
    "texts of fewer classes": (
        lambda _: classified(text_model("llama", num_labels=4)).check_data(TEXTS),
        ValueError,
        ["4 logits", "3 classes", "num_labels=3"],
    ),
    "images of fewer classes": (
        lambda _: pictured(of_images.tiny("vit", num_labels=4)).check_data(IMAGES),
        ValueError,
        ["4 logits", "3 classes", "num_labels=3"],
    ),
    "no head for texts": (
        lambda _: classified(text_model("llama").model),
        TypeError,
        ["LlamaModel"],
    ),
    "no head for images": (lambda _: pictured(of_images.tiny("vit").vit), TypeError, ["ViTModel"]),
    "images as texts": (
        lambda _: SequenceClassifier.from_scratch(mw.data.load_digits()),
        TypeError,
        ["ImageDataset"],
    ),
    "texts as images": (lambda _: pictured().check_data(TEXTS), TypeError, ["TextDataset"]),
    "an unknown pooling": (
        lambda _: classified(text_model(), pooling="max"),
        ValueError,
        ["'max'", "first, last, mean"],
    ),
    "a model of images for texts": (
        lambda at: SequenceClassifier.from_pretrained(bare(at, "vit")),
        ValueError,
        ["vit", "sequence"],
    ),
    "a model of texts for images": (
        lambda at: ImageClassifier.from_pretrained(bare(at, "gpt2")),
        ValueError,
        ["gpt2", "image"],
    ),
    # images
    "grey images": (
        lambda _: pictured().check_data(of_images.images(channels=1)),
        ValueError,
        ["3 channels", "have 1", "images.repeat(3"],
    ),
    "coloured images": (
        lambda _: pictured(of_images.tiny("vit", num_channels=1)).check_data(IMAGES),
        ValueError,
        ["1 channels", "have 3", "grey"],
    ),
    "images of another size": (
        lambda _: pictured(do_resize=False).check_data(IMAGES),
        ValueError,
        ["(12, 12, 3)", "12*12"],
    ),
    "no processor": (
        lambda _: ImageClassifier.from_model(of_images.tiny("vit"), 3),
        TypeError,
        ["int", "AutoImageProcessor"],
    ),
    "a folder without a processor": (processorless, ValueError, ["preprocessor_config.json"]),
    # anyone's module
    "too many logits": (
        lambda _: torched(lambda n: nn.Sequential(nn.Flatten(), nn.Linear(432, n + 1))),
        ValueError,
        ["(1, 4)", "3 classes", "(1, 3)"],
    ),
    "maps of logits": (lambda _: torched(lambda n: nn.Conv2d(3, n, 3)), ValueError, ["(1, 3)"]),
    "another input": (
        lambda _: torched(lambda n: nn.Linear(7, n)),
        ValueError,
        ["(3, 12, 12)", "called with 3"],
    ),
    "no module": (lambda _: torched(lambda _n: 3), TypeError, ["torch.nn.Module", "int"]),
    "no argument": (
        lambda _: torched(lambda: Wide(num_classes=3)),
        TypeError,
        ["number of classes", "()"],
    ),
    "another first argument": (
        lambda _: torched(Wide),
        TypeError,
        ["'hidden'", "lambda n: make_module(num_classes=n)"],
    ),
    "a module": (lambda _: torched(Wide()), TypeError, ["number of classes", "Wide"]),
    "weights": (lambda _: torched(Wide().state_dict()), TypeError, ["number of classes"]),
    "an unknown layer": (
        lambda _: torched(lambda n: Wide(num_classes=n), layers=["layer9"]),
        ValueError,
        ["'layer9'", "0, 1, 2, 3"],
    ),
    "tokens first": (
        lambda _: torched(TokensFirst),
        ValueError,
        ["'embed'", "16 rows", "2 images", "layers="],
    ),
    "an assertion": (
        lambda _: torched(Picky),
        ValueError,
        ["(3, 12, 12)", "images must be 224 wide"],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_call_is_refused_with_its_facts(what, tmp_path):
    call, error, facts = REFUSED[what]
    with pytest.raises(error) as raised:
        call(tmp_path)
    assert [fact for fact in facts if fact not in str(raised.value)] == []


def test_a_network_itself_is_refused_before_a_run_is_begun(tmp_path):
    with pytest.raises(TypeError, match=r"not Wide: pass mw\.models\.TorchClassifier\(make_mod"):
        mw.Audit(Wide(), IMAGES, path=tmp_path)
    with pytest.raises(ValueError, match="4 logits"):
        mw.Audit(pictured(of_images.tiny("vit", num_labels=4)), IMAGES, path=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_named_argument_or_another_layer_is_taken():
    assert torched(lambda n: Wide(num_classes=n))[1].out_features == 8
    torched(TokensFirst, layers=["head"])
