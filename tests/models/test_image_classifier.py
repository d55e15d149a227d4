"""Classifiers of images, a ViT and a ResNet, random and tiny, made here: no download."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    DeiTConfig,
    DeiTForImageClassification,
    ViTImageProcessorPil,
)

import memowidgets as mw
from memowidgets.models import image_classifier
from tests.models.small import assert_left_as_it_is, one_pass, saved

CPU = torch.device("cpu")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
STAGES = {"depths": [1, 1]}
WINDOWS = {"patch_size": 4, "embed_dim": 8, "num_heads": [1, 2], "window_size": 2}
FAMILIES = {
    "vit": SMALL | {"intermediate_size": 32, "image_size": 16, "patch_size": 8},
    "resnet": STAGES
    | {"embedding_size": 8, "hidden_sizes": [8, 16], "layer_type": "basic"},
    "swin": STAGES | WINDOWS | {"image_size": 16},
}
READ = {  # what the head reads of a block's states
    "vit": lambda states: states[:, 0],
    "resnet": lambda states: states.mean(dim=(2, 3)),
    "swin": lambda states: states.mean(dim=1),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def images(n: int = 36, channels: int = 3) -> mw.data.ImageDataset:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (n, 12, 12, channels)).astype(np.uint8)
    return mw.data.ImageDataset.from_arrays(pixels, np.arange(n) % 3, ["a", "b", "c"])


@pytest.fixture(scope="module")
def data():
    return images()


def tiny(family: str, **changes):
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, **{"num_labels": 3, **FAMILIES[family], **changes}
    )
    return AutoModelForImageClassification.from_config(config).eval()


def processor(**changes):
    settings = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4], **changes}
    return ViTImageProcessorPil(size={"height": 16, "width": 16}, **settings)


def classifier(raw, *, of=None):
    return mw.models.ImageClassifier.from_model(raw, of or processor())


@every_family
def test_layers_logits_and_loss_are_those_of_transformers(family, data):
    raw = tiny(family)
    model = classifier(raw)
    seen = one_pass(model, model.build(data), data, np.arange(4))
    pixels = processor()(images=list(data.images[:4]), return_tensors="pt")[
        "pixel_values"
    ]
    assert pixels.shape == (4, 3, 16, 16)
    with torch.no_grad():
        expected = raw(pixels, output_hidden_states=True)
    np.testing.assert_allclose(seen.logits, expected.logits, atol=2e-5)
    labels = torch.from_numpy(data.labels[:4])
    losses = torch.nn.functional.cross_entropy(
        expected.logits, labels, reduction="none"
    )
    np.testing.assert_allclose(seen.losses, losses, atol=2e-5)
    assert list(seen.layers) == ["1", "2"]
    for k in (1, 2):
        read = READ[family](expected.hidden_states[k])
        np.testing.assert_allclose(seen.layers[str(k)], read, atol=2e-5)


@every_family
def test_a_module_from_elsewhere_is_read_and_left_as_it_is(family, data):
    raw = tiny(family).train()
    assert classifier(raw).layer_names(raw) == ("1", "2")
    assert_left_as_it_is(classifier(raw), raw, data)


def test_images_that_do_not_fit_in_memory_are_processed_for_each_batch(
    data, monkeypatch
):
    positions = np.array([7, 2, 20])
    kept = classifier(tiny("vit")).feeder(data, CPU)(positions)
    monkeypatch.setattr(image_classifier, "_MOST_KEPT", 0)
    model = classifier(tiny("vit"))
    anew = model.feeder(data, CPU)(positions)
    torch.testing.assert_close(kept, anew, rtol=0, atol=0)


def test_a_run_is_of_its_weights_running_means_and_processor(data):
    moved = tiny("resnet")
    moved.resnet.embedder.embedder.normalization.running_mean += 1
    other = processor(do_resize=False)
    made = [
        classifier(tiny("resnet")),
        classifier(moved),
        classifier(tiny("resnet"), of=other),
    ]
    assert len({str(sorted(model.describe(data).items())) for model in made}) == 3
    again = cloudpickle.loads(cloudpickle.dumps(made[0]))
    assert again.describe(data) == made[0].describe(data)


@every_family
def test_a_head_of_another_width_is_made_anew_from_the_seed(family, data, tmp_path):
    raw = tiny(family, num_labels=7)
    model = mw.models.ImageClassifier.from_pretrained(saved(tmp_path, raw, processor()))
    heads = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        module = model.build(data)
        heads.append(
            next(reversed(list(module.classifier.modules()))).weight.detach().numpy()
        )
    assert heads[0].shape == (3, 16)
    np.testing.assert_array_equal(heads[0], heads[1])
    assert (heads[0] != heads[2]).any()
    found, given = (dict(one.base_model.state_dict()) for one in (module, raw))
    torch.testing.assert_close(found, given)


@every_family
def test_bfloat16_rounds_the_states_and_not_the_logits(family, data):
    model = classifier(tiny(family))
    module = model.place_on(model.build(data), CPU, "bfloat16")
    seen = one_pass(model, module, data, np.arange(len(data)), "bfloat16")
    assert ((seen.logits.view(np.uint32) & 0xFFFF) != 0).mean() > 0.9
    exact = one_pass(model, module, data, np.arange(len(data)))
    assert (seen.layers["2"] != exact.layers["2"]).any()


def test_a_model_with_random_weights_of_a_family_with_two_classifiers(data):
    config = DeiTConfig(num_labels=3, **FAMILIES["vit"])
    raw = DeiTForImageClassification(config).eval()
    model = classifier(raw)
    model.check_data(data)
    seen = one_pass(model, model.build(data), data, np.arange(2))
    assert list(seen.layers) == ["1", "2"]
    assert config.architectures is None  # the owner's own stays as it was
