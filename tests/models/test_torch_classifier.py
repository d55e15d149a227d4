"""Anyone's module: hooked by name, checked against the data, told apart by its source."""

from __future__ import annotations

import copy
import functools
import types

import numpy as np
import pytest
import torch
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification

import memowidgets as mw
from memowidgets.models.torch_classifier import _usual_layers
from memowidgets.progress import Progress
from tests.training.small import learner_of


class Residual(nn.Module):
    """As torchvision writes it: the sum and the ReLU work in place."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.bn(self.conv(x))
        out += x
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, n_classes, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Residual(width), Residual(width))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width, n_classes)

    def forward(self, x):
        x = self.layer1(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class ViT(nn.Module):
    """A small vision transformer, with a value taken out of a tensor as many have it."""

    def __init__(self, n_classes, width=16):
        super().__init__()
        drops = [drop.item() for drop in torch.linspace(0, 0.1, 2)]
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width, drop, batch_first=True)
            for drop in drops
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return types.SimpleNamespace(logits=self.head(self.norm(x)[:, 0]))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = rng.integers(60, size=(60, 16, 16, 3)) + 90 * labels[:, None, None, None]
    return mw.data.ImageDataset.from_arrays(
        images.astype(np.uint8), labels, ["a", "b", "c"]
    )


def taught(model, data, epochs=6, **settings):
    learner = learner_of(model, data, seed=1, epochs=epochs, batch_size=10, **settings)
    learner.advance(
        learner.recipe.settings.total_steps(len(data)), Progress(), "training"
    )
    return learner


def test_a_torchvision_style_network_learns_and_shows_its_layers(data):
    model = mw.models.TorchClassifier(ResNet)
    learner = taught(model, data)
    seen = learner.look_at(np.arange(60), capture=True)
    assert seen.figures(data.labels)[1] > 0.9
    assert tuple(seen.layers) == (
        "conv1",
        "bn1",
        "relu",
        "layer1.0",
        "layer1.1",
        "avgpool",
    )
    assert seen.layers["avgpool"].shape == (60, 8)
    assert seen.layers["layer1.1"].shape == (60, 8 * 8 * 8)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_module_may_flatten_its_maps_by_view(data, channels):
    class Viewed(nn.Module):
        def __init__(self, n_classes):
            super().__init__()
            self.conv, self.fc = (
                nn.Conv2d(channels, 4, 3),
                nn.Linear(4 * 14 * 14, n_classes),
            )

        def forward(self, x):
            return self.fc(self.conv(x).view(len(x), -1))

    model = mw.models.TorchClassifier(Viewed)
    few = mw.data.ImageDataset.from_arrays(data.images[..., :channels], data.labels)
    assert np.isfinite(
        taught(model, few, epochs=1, augment="crop").look_at(np.arange(9)).losses
    ).all()


def test_what_a_layer_gave_stays_though_the_next_writes_into_it(data):
    model = mw.models.TorchClassifier(ResNet, layers=["bn1", "relu"])
    seen = taught(model, data, epochs=1).look_at(np.arange(10), capture=True)
    assert seen.layers["bn1"].min() < 0
    np.testing.assert_allclose(np.maximum(seen.layers["bn1"], 0), seen.layers["relu"])


def test_a_vision_transformer_learns_and_its_tokens_are_layers(data):
    model = mw.models.TorchClassifier(ViT)
    learner = taught(model, data, epochs=10, lr=3e-3)
    seen = learner.look_at(np.arange(60), capture=True)
    assert seen.figures(data.labels)[1] > 0.9
    assert tuple(seen.layers) == ("patches", "blocks.0", "blocks.1", "norm")
    assert seen.layers["blocks.0"].shape == (60, 16 * 16)
    pooled = mw.models.TorchClassifier(ViT, pool=4)
    with torch.no_grad(), pooled.capture_layers(learner.module) as kept:
        learner.module.eval()(model.feeder(data, torch.device("cpu"))(np.arange(60)))
    tokens = seen.layers["blocks.0"].reshape(60, 16, 16)
    np.testing.assert_allclose(kept["blocks.0"], tokens.mean(axis=1), atol=1e-5)


class Shell(nn.Module):
    """What people write around a network of transformers."""

    def __init__(self, n_classes):
        super().__init__()
        config = ResNetConfig(
            num_channels=3, embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1],
            layer_type="basic", num_labels=n_classes,
        )  # fmt: skip
        self.network = ResNetForImageClassification(config)

    def forward(self, images):
        return self.network(images).logits


def test_layers_of_a_shell_are_those_of_the_network_in_it(data):
    learner = taught(mw.models.TorchClassifier(Shell), data, epochs=1)
    seen = learner.look_at(np.arange(60), capture=True)
    assert tuple(seen.layers) == ("network.resnet", "network.classifier.0")
    assert seen.layers["network.classifier.0"].shape == (60, 12)
    attention = nn.ModuleDict({"only": nn.MultiheadAttention(8, 2)})
    assert _usual_layers(attention) == ("only",)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, nesterov=True, momentum=0.5)


@pytest.mark.parametrize("make", [sgd, functools.partial(torch.optim.SGD, lr=1e-2)])
def test_a_given_optimizer_is_scaled_by_the_schedule_and_resumed(make, data):
    """With a state, and without one."""
    model = mw.models.TorchClassifier(ResNet)
    course = {"epochs": 2, "batch_size": 30, "optimizer": make}
    course["schedule"] = lambda done: 0.5 if done >= 0.5 else 1.0
    whole, first, second = (learner_of(model, data, **course) for _ in range(3))
    whole.advance(2, Progress(), "")
    before = whole._optimizer.param_groups[0]["lr"]
    whole.advance(4, Progress(), "")
    assert whole._optimizer.param_groups[0]["lr"] == before / 2
    first.advance(3, Progress(), "")
    second.resume(*first.state())
    second.advance(4, Progress(), "")
    for name, weight in whole.weights().items():
        np.testing.assert_array_equal(weight, second.weights()[name], err_msg=name)


def test_what_makes_no_optimizer_is_said(data):
    model = mw.models.TorchClassifier(ResNet)
    with pytest.raises(
        TypeError, match=r"must return a torch\.optim\.Optimizer.*not int"
    ):
        taught(model, data, optimizer=lambda _parameters: 3)
    with pytest.raises(ValueError, match=r"the schedule returns nan after 0\.0%"):
        taught(model, data, schedule=lambda _done: float("nan"))


def test_shapes_and_version_tell_models_apart(data):
    one = mw.models.TorchClassifier(ResNet).describe(data)
    assert one == mw.models.TorchClassifier(lambda n: ResNet(n)).describe(data)  # noqa: PLW0108
    stated = [
        mw.models.TorchClassifier(ResNet, version=v).describe(data)
        for v in ("1", "1", "2")
    ]
    assert stated[0] == stated[1] != stated[2]
    wider = functools.partial(ResNet, width=16)
    assert (
        mw.models.TorchClassifier(wider).describe(data)["parameters"]
        != one["parameters"]
    )


def test_making_a_description_draws_nothing_of_the_users(data):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    mw.models.TorchClassifier(ViT).describe(data)
    assert torch.rand(1) == expected


def test_silent_layers_are_named(data):
    module = ResNet(3)
    module.unused = nn.Linear(2, 2)
    model = mw.models.TorchClassifier(lambda _n: module, layers=["avgpool", "unused"])
    with pytest.raises(ValueError, match=r"does not run 'unused'.*from avgpool"):
        taught(model, data, epochs=1).look_at(np.arange(3), capture=True)


def test_out_of_memory_beside_the_batch_is_said(data, monkeypatch):
    model = mw.models.TorchClassifier(lambda n: nn.Sequential(nn.Flatten(), nn.Linear(768, n)),
                                      version="1")  # fmt: skip

    def full(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    class Large(torch.optim.SGD):
        step = full

    with pytest.raises(
        MemoryError, match=r"the optimizer's state.*What is finished is kept"
    ):
        taught(model, data, epochs=1, optimizer=functools.partial(Large, lr=0.01))
    monkeypatch.setattr(type(model), "place_on", full)
    with pytest.raises(MemoryError, match="cannot hold the weights"):
        taught(model, data, epochs=1)


def normalised(n):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(768, 8), nn.BatchNorm1d(8), nn.Linear(8, n)
    )


def test_a_module_that_shares_weights_with_an_earlier_one_is_refused(data):
    shared, act = nn.Linear(data.images[0].size, 8), nn.ReLU()
    before = shared.weight.clone()

    def around(n, part, after=act):
        return nn.Sequential(nn.Flatten(), part, after, nn.Linear(8, n))

    model = mw.models.TorchClassifier(lambda n: around(n, shared))
    first = model.build(data)
    with pytest.raises(
        ValueError, match=r"the part '1' of one that it returned before"
    ):
        model.build(data)
    assert torch.equal(first[1].weight, before)
    fresh = mw.models.TorchClassifier(lambda n: around(n, copy.deepcopy(shared)))
    assert fresh.build(data)[1].weight is not fresh.build(data)[1].weight
    shared.requires_grad_(requires_grad=False)
    frozen = mw.models.TorchClassifier(
        lambda n: around(n, shared, nn.BatchNorm1d(8).eval())
    )
    modules = [frozen.build(data) for _ in range(2)]
    assert modules[0][1] is modules[1][1]
    assert [part.training for part in modules[0]] == [True, True, False, True]


@pytest.mark.parametrize("optimizer", ["sgd", torch.optim.Adam])
def test_a_last_batch_of_one_is_left_out_where_the_module_normalises_over_it(
    data, optimizer
):
    model = mw.models.TorchClassifier(normalised, version="1")
    course = {"epochs": 2, "lr": 0.1, "optimizer": optimizer}
    learner = learner_of(model, data, np.arange(21), batch_size=10, **course)
    learner.advance(2, Progress(), "training")
    before = learner.weights()
    learner.advance(3, Progress(), "training")
    after = learner.weights()
    moved = [name for name in before if not np.array_equal(before[name], after[name])]
    assert moved == ["2.num_batches_tracked"]  # it counts before it refuses
    learner.advance(6, Progress(), "training")
    assert not np.array_equal(before["1.weight"], learner.weights()["1.weight"])
    alone = learner_of(model, data, np.arange(3), batch_size=1, **course)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        alone.advance(1, Progress(), "training")


def test_probabilities_in_the_place_of_logits_are_said(data, tmp_path):
    def network(n_classes):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(n_classes), nn.Softmax(dim=1))

    audit = mw.Audit(
        mw.models.TorchClassifier(network, version="1"),
        data,
        tmp_path / "run",
        training=mw.TrainingConfig(epochs=1, precision="float32"),
    )
    with pytest.warns(UserWarning, match="returns probabilities, not logits"):
        audit.train()
