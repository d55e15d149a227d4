"""Wide residual networks: shape, size, first weights and schedule as their authors have them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.models.networks import Block
from memowidgets.progress import Progress
from tests.training.small import learner_of


def pictures(n=20, side=32, channels=3, classes=10):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(n, side, side, channels)).astype(np.uint8)
    return mw.data.ImageDataset.from_arrays(images, np.arange(n) % classes)


@pytest.mark.parametrize(
    ("depth", "width", "classes", "millions"),
    [  # Zagoruyko and Komodakis, 2016, tables 3 and 4: CIFAR-10 and CIFAR-100
        (16, 4, 10, 2.7),
        (40, 1, 10, 0.6),
        (40, 2, 10, 2.2),
        (40, 4, 10, 8.9),
        (16, 8, 10, 11.0),
        (22, 8, 10, 17.2),
    ],
)
def test_sizes_are_the_papers(depth, width, classes, millions):
    module = mw.models.WideResNet(depth, width).skeleton(pictures(classes=classes))
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count / 1e6 == pytest.approx(millions, abs=0.05)


def test_maps_shrink_by_half_and_the_pooled_features_are_last():
    data = pictures(10)
    model = mw.models.WideResNet(16, 2, pool=None)
    module = model.build(data).eval()
    feed = model.feeder(data, torch.device("cpu"))
    with torch.no_grad(), model.capture_layers(module) as kept:
        logits, _ = model.outputs(
            module, feed(np.arange(4)), torch.from_numpy(data.labels[:4])
        )
    assert logits.shape == (4, 10)
    assert tuple(kept) == model.layer_names(module)
    assert kept["conv"].shape[1] == 16 * 32 * 32
    assert kept["group1.block2"].shape[1] == 32 * 32 * 32
    assert kept["group2.block1.conv1"].shape[1] == 64 * 16 * 16
    assert kept["group3.block2"].shape[1] == 128 * 8 * 8
    assert kept["features"].shape[1] == 128
    maps = kept["last"].reshape(4, 128, 64)
    torch.testing.assert_close(kept["features"], maps.mean(dim=2))
    assert maps.min() == 0  # after the last ReLU


def test_large_activations_are_pooled_and_small_ones_are_not():
    data, model = pictures(2), mw.models.WideResNet(10, 1)
    whole, pooled = (
        mw.models.WideResNet(10, 1, pool=None),
        mw.models.WideResNet(10, 1, pool=2),
    )
    module = model.build(data).eval()
    batch = model.feeder(data, torch.device("cpu"))(np.arange(2))
    kept = {}
    for key, recipe in {"auto": model, "whole": whole, "pooled": pooled}.items():
        with torch.no_grad(), recipe.capture_layers(module) as kept[key]:
            module(batch)
    assert kept["auto"]["conv"].shape[1] == 16 * 16  # 16 384 values are too many
    assert kept["auto"]["group2.block1"].shape[1] == 32 * 16 * 16  # 8192 are not
    assert kept["pooled"]["group2.block1"].shape[1] == 32 * 4
    blocks = kept["whole"]["conv"].reshape(2, 16, 4, 8, 4, 8).mean(dim=(3, 5))
    torch.testing.assert_close(kept["auto"]["conv"], blocks.flatten(1))


def test_a_block_adds_what_came_in():
    block = Block(4, 4, 1).eval()
    images = torch.randn(2, 4, 8, 8)
    torch.nn.init.zeros_(block.conv2.weight)
    torch.testing.assert_close(block(images), images)
    wider = Block(4, 8, 2).eval()
    torch.nn.init.zeros_(wider.conv2.weight)
    expected = wider.shortcut(torch.relu(wider.norm1(images)))
    torch.testing.assert_close(wider(images), expected)


def test_first_weights_keep_the_variance_by_fan_out():
    module = mw.models.WideResNet(16, 4).build(pictures())
    for name, weight in module.named_parameters():
        if weight.ndim == 4 and weight.numel() > 2000:
            expected = np.sqrt(
                2 / (weight.shape[0] * weight.shape[2] * weight.shape[3])
            )
            assert weight.std().item() == pytest.approx(expected, rel=0.1), name
            assert abs(weight.mean().item()) < expected / 5
    assert not module.classifier.bias.any()


@pytest.mark.parametrize(("depth", "width"), [(15, 4), (4, 1), (16, 0), (16, 1.5)])
def test_other_sizes_are_refused(depth, width):
    with pytest.raises(
        ValueError, match=r"depth must be|width, a factor on the channels, must be"
    ):
        mw.models.WideResNet(depth, width)


@pytest.mark.parametrize("pool", [0, -4, "4", True, 2.5])
def test_other_poolings_are_refused(pool):
    with pytest.raises((TypeError, ValueError), match="pool, 'auto', None or a number"):
        mw.models.WideResNet(pool=pool)


def test_the_schedule_is_the_papers():
    settings = mw.TrainingConfig().resolve(mw.models.WideResNet.training_defaults)
    per_epoch = settings.steps_per_epoch(49_750)
    rates = [
        settings.rate(epoch * per_epoch, 49_750)
        for epoch in (0, 149, 150, 224, 225, 299)
    ]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert (settings.optimizer, settings.batch_size) == ("sgd", 64)
    assert (settings.weight_decay, settings.augment) == (1e-4, "none")


def test_interrupted_it_ends_bit_for_bit_alike():
    settings = {"epochs": 4, "batch_size": 8, "augment": "flip+crop"}
    data = pictures(24, side=12)
    model = mw.models.WideResNet(10, 1)
    whole, first, second = (learner_of(model, data, **settings) for _ in range(3))
    whole.advance(12, Progress(), "training")
    first.advance(5, Progress(), "training")
    second.resume(*first.state())
    second.advance(12, Progress(), "training")
    ends, again = whole.weights(), second.weights()
    for name in ends:
        np.testing.assert_array_equal(ends[name], again[name], err_msg=name)


def test_augmented_images_are_mirrored_or_shifted_ones():
    data = pictures(40, side=16)
    model = mw.models.WideResNet(10, 1)
    plain = model.feeder(data, torch.device("cpu"))(np.arange(40))
    flipped = model.augmented(plain, "flip")
    kept = (flipped == plain).flatten(1).all(dim=1)
    mirrored = (flipped == plain.flip(3)).flatten(1).all(dim=1)
    assert (kept ^ mirrored).all()
    assert 5 < mirrored.sum() < 35
    shifted = model.augmented(plain, "crop")
    padded = torch.nn.functional.pad(plain, (2, 2, 2, 2))
    offsets = set()
    for i in range(40):
        places = [
            (y, x)
            for y in range(5)
            for x in range(5)
            if torch.equal(shifted[i], padded[i, :, y : y + 16, x : x + 16])
        ]
        assert len(places) == 1
        offsets.add(places[0])
    assert len(offsets) > 8


def test_augmentation_is_for_images_that_are_trained_on():
    data = mw.data.make_mcqs(20)
    model = mw.models.CausalLM.from_scratch(data, layers=1, width=16)
    with pytest.raises(ValueError, match="'flip' is for models of images"):
        mw.TrainingConfig(augment="flip").resolve(model.training_defaults)
    learner = learner_of(
        mw.models.WideResNet(10, 1), pictures(8, side=8), augment="flip"
    )
    looks = [learner.look_at(np.arange(8)) for _ in range(2)]
    np.testing.assert_array_equal(looks[0].logits, looks[1].logits)
