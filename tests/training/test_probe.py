"""A user's functions are known by what they do, in every process."""

from __future__ import annotations

import copy
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import memowidgets as mw
from memowidgets.audit.runs import identity
from memowidgets.checks import has_form
from memowidgets.store import FORMAT
from memowidgets.training.probe import PROBE, first_apart, make_probe
from tests.programs import printed
from tests.training import probed

PROGRAM = Path(probed.__file__).read_text("utf-8")
ROWS = np.arange(20)


@pytest.fixture(scope="module")
def data():
    return mw.data.load_digits().take(range(60))


def small(n_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, n_classes)
    )


def probe_of(data, make=small, **training: Any) -> dict[str, Any]:
    model = mw.models.TorchClassifier(make)
    settings = mw.TrainingConfig(**training).resolve(model.training_defaults)
    return make_probe(model, data, ROWS, settings, 30)


# the same code in two processes


NONE = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "2",
}
LIMITS = [{}, *(pytest.param(limit, marks=pytest.mark.slow) for limit in (NONE, AVX2))]


@pytest.mark.parametrize("limit", LIMITS)
def test_another_process_agrees_on_any_processor_and_one_percent_of_a_rate_does_not(
    limit,
):
    networks = tuple(probed.NETWORKS) if limit else ("small",)
    there, faster = (probed.probes(more, networks) for more in (1.0, 1.01))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **limit}
    here = json.loads(printed(PROGRAM, *networks, env=environment).splitlines()[-1])
    for name in there:
        assert first_apart(there[name], here[name]) == ""
        assert "optimizer" in first_apart(faster[name], here[name])


# what a probe sees


def by_size(limit: int, rate: float = 1e-2):
    """Decay large weights only, as recipes do that leave out biases and gains."""

    def make(p):
        large, rest = (
            [w for w in p if w.numel() > limit],
            [w for w in p if w.numel() <= limit],
        )
        groups = [{"params": large, "weight_decay": rate}, {"params": rest}]
        return torch.optim.SGD([group for group in groups if group["params"]], lr=0.1)

    return make


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            lambda p: torch.optim.Adam(p, eps=1e-8),
            lambda p: torch.optim.Adam(p, eps=2e-8),
        ),
        (torch.optim.Adam, lambda p: torch.optim.Adam(p, amsgrad=True)),
        (
            lambda p: torch.optim.SGD(p, lr=0.1),
            lambda p: torch.optim.SGD(
                [{"params": p[:-1]}, {"params": p[-1:], "lr": 0.2}], lr=0.1
            ),
        ),
        (by_size(100), by_size(1000)),  # of 512 + 8 + 80 + 10 values
        (by_size(100), by_size(100, 1.01e-2)),
    ],
)
def test_each_setting_of_an_optimizer_shows_and_how_it_groups_weights(data, one, other):
    there = probe_of(data, optimizer=one)
    assert first_apart(there, probe_of(data, optimizer=one)) == ""
    assert "optimizer" in first_apart(there, probe_of(data, optimizer=other))


def of_numbers(**numbers):
    return {"torch": "2.9", "machine": "x86_64", "device": "cpu", "numbers": numbers}


def test_a_difference_is_said_as_a_share_of_the_larger():
    there = of_numbers(move=[0.5, 0.2])
    for here, share in (([0.51, 0.2], "1.96%"), ([0.5, 0.3], "20.00%")):
        assert (
            first_apart(there, of_numbers(move=here))
            == f"in the move the numbers differ by {share}"
        )
    assert first_apart(there, of_numbers(move=[0.500004, 0.2])) == ""
    assert first_apart(there, of_numbers(move=[float("nan"), 0.2]))
    assert "2 numbers there and 1 here" in first_apart(there, of_numbers(move=[0.5]))
    two = {"move": [0.5, 0.2], "move 1": [1.0]}
    assert "0 numbers there and 1 here" in first_apart(there, of_numbers(**two))
    # it was not asked about that
    assert first_apart(there, of_numbers(other=[1.0])) == ""


def test_a_gradient_that_is_0_but_for_rounding_is_compared_with_the_largest():
    gradient, move = "training gradient of ", "optimizer move "
    for group, tiny, is_same in (
        (gradient, 5e-13, 1),
        (gradient, 5e-12, 0),
        (move, 5e-13, 0),
    ):
        there, here = (
            of_numbers(**{f"{group}'w'": [1e-4], f"{group}'b'": [value]})
            for value in (tiny, 0.0)
        )
        assert (first_apart(there, here) == "") == is_same


def test_a_frozen_part_shows(data):
    def frozen(n_classes):
        module = small(n_classes)
        module[1].requires_grad_(False)
        return module

    said = first_apart(probe_of(data), probe_of(data, frozen))
    assert "weights '1.weight'" in said


class Plain(nn.Module):
    """A network in two parts, of which a subclass changes only what happens in training."""

    def __init__(self, n_classes: int, value: float = 0.5) -> None:
        super().__init__()
        self.value = value
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, n_classes)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))

    def _get_name(self) -> str:
        return "Net"  # so that its text shows no change

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.between(self.body(x.flatten(1)).relu()))


class WithoutGradients(Plain):
    def forward(self, x):
        with torch.no_grad():
            hidden = self.body(x.flatten(1)).relu()
        return self.head(hidden)


class HookOnModule(Plain):
    def __init__(self, n_classes: int, value: float = 0.5) -> None:
        super().__init__(n_classes, value)
        self.body.weight.register_hook(lambda gradient: gradient * value)
        self.head.register_full_backward_hook(
            lambda *args: tuple(g * value for g in args[1])
        )


class OwnNormalisation(Plain):
    def between(self, x):
        return nn.functional.batch_norm(
            x, self.mean, self.variance, training=self.training, momentum=self.value
        )


class OutsideOfTraining(Plain):
    def between(self, x):
        return x if self.training else x * self.value


@pytest.mark.parametrize(
    ("one", "other", "fact"),
    [
        (Plain, WithoutGradients, "body.weight"),
        (HookOnModule, partial(HookOnModule, value=0.505), "body.weight"),
        (OwnNormalisation, partial(OwnNormalisation, value=0.505), "mean"),
        (OutsideOfTraining, partial(OutsideOfTraining, value=0.505), "module logits"),
    ],
)
def test_what_a_module_does_in_one_mode_alone_shows(data, one, other, fact):
    there = probe_of(data, one)
    assert first_apart(there, probe_of(data, one)) == ""
    said = first_apart(there, probe_of(data, other))
    assert fact in said


class Rectified(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


def test_a_layer_that_means_something_else_shows_where_logits_and_gradients_stay(
    data, tmp_path
):
    """A ReLU is moved into the block, and none of its outputs changes by a second one."""

    class Blocks(nn.Module):
        block_class = nn.Linear

        def __init__(self, n_classes):
            super().__init__()
            self.block, self.head = self.block_class(64, 8), nn.Linear(8, n_classes)

        def forward(self, x):
            return self.head(self.block(x.flatten(1)).relu())

    class Moved(Blocks):
        block_class = Rectified

    def audit_of(make):
        model = mw.models.TorchClassifier(make, layers=["block"])
        training = mw.TrainingConfig(epochs=1)
        return mw.Audit(model, data, tmp_path, training, device="cpu")

    there, here = (
        make_probe(
            mw.models.TorchClassifier(make, layers=["block"]),
            *(data, ROWS, mw.TrainingConfig().resolve({}), 30),
        )
        for make in (Blocks, Moved)
    )
    apart = {k for k in there["numbers"] if there["numbers"][k] != here["numbers"][k]}
    assert apart == {"module layer 'block'"}
    audit_of(Blocks)
    audit_of(Blocks)
    with pytest.raises(ValueError, match="module layer 'block'"):
        audit_of(Moved)


class OfMany(Plain):
    def between(self, x):
        if self.training:
            raise ValueError("too few samples")
        return x


class Single(Plain):
    def between(self, x):
        return x @ (torch.ones(8, 8) * self.value)


@pytest.mark.parametrize("make", [OfMany, Single])
def test_a_module_that_cannot_train_on_so_few_samples_or_in_float64_has_no_such_part(
    data, make
):
    there = probe_of(data, make)
    assert not any(name.startswith("training") for name in there["numbers"])
    assert first_apart(there, probe_of(data, make)) == ""


def test_another_torch_may_draw_other_weights_and_train_otherwise_but_not_answer_otherwise(
    data,
):
    there = probe_of(data)
    for name, torchs_own in (
        ("module first values '1.weight'", True),
        ("training logits", True),
        ("module logits", False),
        ("module weights '1.weight'", False),
    ):
        here = copy.deepcopy(there)
        here["numbers"][name][0] += 1
        assert name in first_apart(there, here)
        here["torch"] = "2.1.0"
        assert (first_apart(there, here) == "") == torchs_own


def test_the_probe_changes_no_random_state_and_no_mode(data):
    torch.manual_seed(3)
    np.random.seed(3)
    probe_of(data, optimizer=lambda p: torch.optim.SGD(p, lr=float(torch.rand(()))))
    drawn = float(torch.rand(())), float(np.random.rand())
    torch.manual_seed(3)
    np.random.seed(3)
    assert drawn == (float(torch.rand(())), float(np.random.rand()))


def test_built_in_models_and_settings_need_no_probe(data):
    model = mw.models.ConvNet(4)
    settings = mw.TrainingConfig().resolve(model.training_defaults)
    assert make_probe(model, data, ROWS, settings, 30) == {}


def test_the_probe_is_small_holds_no_sample_and_is_json(data):
    made = json.loads(
        json.dumps(probe_of(data, schedule=lambda done: 1 - done), allow_nan=False)
    )
    assert has_form(made, PROBE)
    assert len(json.dumps(made)) < 10_000
    pixels = {round(float(x), 6) for x in data.take(ROWS[:8]).images.ravel() / 255 if x}
    assert not pixels & {round(x, 6) for x in made["numbers"]["module logits"]}


# functions that no run could rest on


RNG = np.random.default_rng()


def of_its_own_generator(n_classes):
    module = small(n_classes)
    with torch.no_grad():
        module[1].weight.copy_(torch.from_numpy(RNG.normal(size=(8, 64))))
    return module


class OfGPUs(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("no kernel for the CPU")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ({"make": of_its_own_generator}, r"1\.weight"),
        ({"optimizer": OfGPUs}, "CPU: .*no kernel.*version="),
    ],
)
def test_functions_on_which_no_run_could_rest_are_refused(data, function, said):
    with pytest.raises(ValueError, match=said):
        probe_of(data, **function)


def test_an_optimizer_that_cannot_take_a_step_needs_a_version(data):
    stated = probe_of(data, optimizer=OfGPUs, version="1")
    assert not any(name.startswith("optimizer") for name in stated["numbers"])
    assert first_apart(stated, probe_of(data, optimizer=torch.optim.SGD)) == ""


@pytest.mark.parametrize("depth", [2, 40])
def test_a_filled_module_gives_logits_of_ordinary_size(data, depth):
    """In a deep one they would vanish or grow without bound."""

    def deep(n_classes):
        hidden = [part for _ in range(depth) for part in (nn.Linear(64, 64), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, n_classes))

    answers = np.array(probe_of(data, deep)["numbers"]["module logits"]).reshape(8, 11)[
        :, :-1
    ]
    assert 0.05 < np.abs(answers).max() < 50


def test_weights_of_one_shape_are_filled_with_different_numbers(data):
    class Turned(nn.Module):
        def __init__(self, n_classes, *, turned=False):
            super().__init__()
            self.one, self.other = nn.Linear(64, 64), nn.Linear(64, 64)
            self.head, self.turned = nn.Linear(64, n_classes), turned

        def forward(self, x):
            parts = [self.one, self.other]
            for part in parts[::-1] if self.turned else parts:
                x = part(x.flatten(1)).relu()
            return self.head(x)

    there = probe_of(data, Turned)
    said = first_apart(there, probe_of(data, lambda n: Turned(n, turned=True)))
    assert "module logits" in said


def test_a_module_whose_filled_weights_give_no_finite_logits_is_known_by_its_weights(
    data,
):
    class Logarithm(nn.Module):
        def __init__(self, n_classes, scale=2.0):
            super().__init__()
            self.scale = nn.Parameter(torch.full((8,), scale))
            self.body, self.head = nn.Linear(64, 8), nn.Linear(8, n_classes)

        def forward(self, x):
            return self.head(self.body(x.flatten(1)) * self.scale.log())

    there = probe_of(data, Logarithm)
    assert "module logits" not in there["numbers"]
    assert "first values 'scale'" in first_apart(
        there, probe_of(data, lambda n: Logarithm(n, 3.0))
    )


def test_what_a_probe_asks_changes_with_the_format_alone(data):
    """With other numbers the code of a run of before would seem to be another."""

    def narrow(n_classes):
        body = nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Tanh()
        return nn.Sequential(*body, nn.Linear(8, 1), nn.Linear(1, n_classes))

    settings = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)}
    found = probe_of(data, narrow, schedule=lambda done: 1 - done, **settings)[
        "numbers"
    ]
    assert sum(name.startswith("optimizer move ") for name in found) == 2 * 8
    long = probe_of(data, epochs=400, schedule=lambda done: 1 - done)["numbers"]
    assert len(long["schedule factors"]) == 256 + 1
    expected = {
        "module logits": 6.448767,
        "training logits": 4.837766,
        "training gradient of '5.weight'": 23.968926,
        "training buffer of '2.running_mean'": 0.596930,
        "optimizer move 0 of step 1": -7.405644,
        "optimizer move 7 of step 1": -0.167827,
        "schedule factors": 0.05,
    }
    assert FORMAT == 4
    assert {name: found[name][-1] for name in expected} == pytest.approx(
        expected, rel=1e-4
    )


# what a run does with it


def begun(data, path, make=small, **training: Any) -> mw.Audit:
    model = mw.models.TorchClassifier(make)
    config = mw.TrainingConfig(epochs=1, **training)
    return mw.Audit(model, data, path, config, device="cpu")


def test_an_unchanged_run_goes_on_after_an_upgrade(data, tmp_path, monkeypatch):
    def steep(p):
        return torch.optim.SGD(p, lr=0.1)

    with monkeypatch.context() as older:
        older.setattr(torch, "__version__", "2.4.0")
        versions = {"torch": "2.4.0", "memowidgets": "0.0.9"}
        older.setattr(identity, "installed", lambda _: versions)
        begun(data, tmp_path, optimizer=steep)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["probe"]["torch"] == manifest["versions"]["torch"] == "2.4.0"
    begun(data, tmp_path, optimizer=steep).train()
    opened = mw.Audit.open(tmp_path, data=data, model=mw.models.TorchClassifier(small))
    assert len(opened.score("loss")) == len(opened.members)
    with pytest.raises(ValueError, match="optimizer"):
        begun(data, tmp_path, optimizer=lambda p: torch.optim.SGD(p, lr=0.101))


def test_what_functions_do_belongs_to_what_a_run_is(data, tmp_path):
    manifest = begun(
        data, tmp_path, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)
    ).run.manifest
    asked = manifest["probe"]["numbers"]
    moves = {name: [0.0, 0.0] for name in asked if name.startswith("optimizer")}
    other = {**manifest["probe"], "numbers": {**asked, **moves}}
    assert identity.run_digest(manifest) != identity.run_digest(
        {**manifest, "probe": other}
    )
    for part in ("model", "training", "probe", "seed", "members", "content"):
        assert identity.run_digest(manifest) != identity.run_digest(
            {**manifest, part: ["x"]}
        )
    with pytest.raises(ValueError, match="another run: in the optimizer"):
        identity.check_same(manifest, {**manifest, "probe": other}, "here")


def test_versions_count(data, tmp_path):
    make = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1)}
    begun(data, tmp_path / "a", version="1", **make)
    with pytest.raises(ValueError, match="version is 1 there and 2 here"):
        begun(data, tmp_path / "a", version="2", **make)
    begun(data, tmp_path / "a", version="1", **make)


@pytest.mark.parametrize("version", ["", 1, b"1"])
def test_a_version_is_a_text(version, data, tmp_path):
    with pytest.raises(TypeError, match="version"):
        mw.TrainingConfig(version=version)
    with pytest.raises(TypeError, match="version"):
        mw.models.TorchClassifier(small, version=version)
    with pytest.raises(TypeError, match="version"):
        mw.watch(small(10), data, tmp_path, 4, version=version)


def test_a_module_of_another_device_is_compared_as_closely_as_that_allows(data):
    there = probe_of(data)
    for share, is_same in ((1.02, True), (1.05, False)):
        here = json.loads(json.dumps(there)) | {"device": "cuda"}
        here["numbers"]["module logits"] = [
            share * x for x in there["numbers"]["module logits"]
        ]
        here["numbers"]["training logits"][0] += 1
        assert (first_apart(there, here) == "") == is_same


def test_a_score_of_ones_own_is_kept_only_with_a_version(tmp_path):
    labels, calls = [0, 1] * 8, []
    audit = mw.Audit.from_arrays(
        labels, np.eye(16), 3 * np.eye(2)[labels], path=tmp_path
    )

    def mine(logits):
        calls.append(1)
        return logits[:, 0] + len(calls)

    assert not audit.score(mine, name="mine").equals(audit.score(mine, name="mine"))
    kept = audit.score(mine, name="mine", version="1")
    assert kept.equals(audit.score(mine, name="mine", version="1"))
    for other in ({"name": "mine", "version": "2"}, {"name": "other", "version": "1"}):
        assert not kept.equals(audit.score(mine, **other))
    with pytest.raises(ValueError, match="version"):
        audit.score("psmi", version="1")


class Scaled(nn.Module):
    """A part of a user's in a model of transformers."""

    scale = 1.0

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * self.scale


def test_a_model_in_memory_is_asked_with_its_own_weights(monkeypatch):
    from transformers import LlamaForSequenceClassification

    texts = ["a fine day", "a poor day", "what a fine song", "a poor film"] * 10
    data = mw.data.TextDataset.from_texts(texts, [1, 0, 1, 0] * 10, ["bad", "good"])
    scratch = mw.models.SequenceClassifier.from_scratch(data, layers=1, width=16)
    given = LlamaForSequenceClassification(scratch.build(data).config)

    def probed():
        model = mw.models.SequenceClassifier.from_model(given, scratch._reader)
        settings = mw.TrainingConfig().resolve(model.training_defaults)
        return make_probe(model, data, np.arange(20), settings, 20)

    assert probed() == {}  # all of it is of transformers, and known by its weights
    block = given.model.layers[0]
    block.mlp = Scaled(block.mlp)
    before = probed()
    assert first_apart(before, probed()) == ""
    assert "training logits" in before["numbers"]  # though its inputs are whole numbers
    monkeypatch.setattr(Scaled, "scale", 1.01)
    said = first_apart(before, probed())
    assert "logits" in said
