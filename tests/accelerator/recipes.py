"""A tiny model of every class, with data for it; each trains in a fraction of a second."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
from torch import nn

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer
from tests.models import test_causal_lm as of_questions
from tests.models import test_image_classifier as of_images
from tests.models import test_sequence_classifier as of_texts

N = 48
_SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}


@functools.cache
def digits() -> mw.data.ImageDataset:
    data = mw.data.load_digits()
    return data.take(np.flatnonzero(data.labels < 3)[:N])


@functools.cache
def questions() -> mw.data.MCQDataset:
    return of_questions.questions(N)


@functools.cache
def texts() -> mw.data.TextDataset:
    return of_texts.texts(N)


@functools.cache
def table() -> mw.data.TableDataset:
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.normal(40, 9, N),
        "dose": rng.random(N),
        "ward": rng.choice(of_texts.WORDS, N),
    }
    frame = pd.DataFrame(columns).assign(
        outcome=np.where(np.arange(N) % 2, "well", "ill")
    )
    return mw.data.TableDataset.from_frame(frame, "outcome")


def of_rows(n_classes: int, n_features: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(n_features, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, n_classes)
    )


def language_model(data, **changes):
    return of_questions.tiny("llama", len(word_tokenizer(data)), **_SMALL | changes)


def image_model(n_classes=10):
    small = {
        "num_labels": n_classes,
        "image_size": 8,
        "patch_size": 4,
        "num_channels": 1,
    }
    return of_images.tiny("vit", **_SMALL | small)


def _with_lora(data, **lora):
    adapters = mw.models.LoRA(r=2, dropout=0.1, **lora)
    return mw.models.CausalLM.from_model(
        language_model(data), word_tokenizer(data), adapters
    )


def _of_images(data):
    processor = of_images.processor(do_resize=False, image_mean=[0.5], image_std=[0.5])
    return of_images.classifier(image_model(), of=processor)


RECIPES = {
    "ConvNet": (lambda _: mw.models.ConvNet(4), digits),
    "WideResNet": (lambda _: mw.models.WideResNet(depth=10, width=1), digits),
    "TorchClassifier": (
        lambda _: mw.models.TorchClassifier(of_rows, version="1"),
        table,
    ),
    "CausalLM": (lambda data: mw.models.CausalLM.from_scratch(data, 1, 16), questions),
    "LoRA": (_with_lora, questions),
    "LoRA, prefix kept": (functools.partial(_with_lora, layers="top:1"), questions),
    "SequenceClassifier": (
        lambda data: mw.models.SequenceClassifier.from_scratch(
            data, layers=1, width=16
        ),
        texts,
    ),
    "ImageClassifier": (_of_images, digits),
}


def audit(
    name: str, path, device: str, precision: str = "float32", **changes
) -> mw.Audit:
    """Return an audit of a recipe that is not trained yet."""
    make, data = RECIPES[name]
    # AdamW's first steps have one size, and only the rounding of some signs
    course = {
        "epochs": 1,
        "checkpoint_every": 0.5,
        "batch_size": 8,
        "optimizer": "sgd",
        "lr": 0.1,
    }
    training = mw.TrainingConfig(precision=precision, **course, **changes)
    settings = {"training": training, "device": device, "held_out": 1 / 8, "seed": 1}
    return mw.Audit(make(data()), data(), path=path, **settings)
