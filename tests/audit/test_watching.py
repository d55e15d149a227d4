"""A training loop of one's own, watched: an audit beside it, and nothing of it is changed."""

from __future__ import annotations

import ast
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import memowidgets as mw
from memowidgets.store import NotThereError, RunDirectory, StoreError
from memowidgets.training.recorder import Recorder

N, WIDTH, CLASSES, BATCH = 48, 6, 3, 8
STEPS = N // BATCH


def samples(seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(N) % CLASSES
    x = rng.normal(size=(N, WIDTH)) + 3 * np.eye(CLASSES, WIDTH)[labels]
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(labels))


def mlp(seed=0):
    torch.manual_seed(seed)
    body = nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3)
    return nn.Sequential(*body, nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def trained(module, data, epochs=3, watch=None, start=0, until=None, lr=0.02):
    """Train as anyone would; the order, dropout and noise draw from the global generators."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=lr)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    for _ in range(epochs):
        for x, y in loader:
            noise = torch.randn_like(x) * (
                0.01 + random.random() * 0.01 + np.random.rand() * 0.01
            )
            cross_entropy(module(x + noise), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            start += 1
            if watch is not None:
                watch.step()
            if start == until:
                return


def seeded(seed=1):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def watching(data, path, module=None, **changes):
    """A module, and its watch with a pass every half epoch."""
    module = module or mlp()
    return module, mw.watch(
        module, data, path, STEPS, **{"checkpoint_every": 0.5} | changes
    )


def forward_of(watch):
    """The pass at step 0."""
    return RunDirectory(watch.audit.path).read_tensors("forward/epoch-0")


@pytest.fixture(scope="module")
def data():
    return samples()


@pytest.fixture(scope="module")
def watched(data, tmp_path_factory):
    """A run of three epochs; tests only read it."""
    path = tmp_path_factory.mktemp("watched") / "run"
    module, watch = watching(data, path, stop_at_drop=0.5, layers=["4", "6.input"])
    seeded()
    trained(module, data, watch=watch)
    return watch, module


@pytest.mark.parametrize(
    ("takes", "given", "epochs"),
    [
        (1.0, {}, [0, 0.2, 1, 2]),
        (0.001, {}, [0, 0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.6, 1.8, 2]),
        (1.0, {"checkpoint_every": 0.5}, [0, 0.5, 1, 1.5, 2]),
    ],
)
def test_passes_that_take_longer_than_steps_become_rare(
    data, tmp_path, monkeypatch, takes, given, epochs
):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock, record = Clock(), Recorder.record

    def recorded(*args):
        clock.now += takes
        return record(*args)

    monkeypatch.setattr("memowidgets.audit.watching._RARELY", 1)
    monkeypatch.setattr("memowidgets.audit.watching.time", clock)
    monkeypatch.setattr(Recorder, "record", recorded)
    module = mlp()
    watch = mw.watch(module, data, tmp_path / "run", 10, **given)
    for _ in range(20):
        clock.now += 0.01
        module[0].bias.data += 0.01
        watch.step()
    assert watch.audit.checkpoints["epoch"].tolist() == epochs


# The loop stays as it is


def test_gradients_hooks_modes_and_buffers_stay(data, tmp_path):
    class Counting(nn.Module):
        """Changes a buffer in each forward pass, and draws random numbers in eval mode."""

        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.body = mlp()

        def forward(self, x):
            self.calls += 1
            return self.body(
                x + 0 * torch.randn(1) * random.random() * np.random.rand()
            )

    module = Counting()
    module.body[1].eval()
    module.body[0].weight.grad = torch.ones_like(module.body[0].weight)
    x, y = data[:BATCH]
    loss = cross_entropy(module(x), y)  # its graph needs every buffer as it is
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    buffers = dict(module.named_buffers())
    modes = [part.training for part in module.modules()]
    seeded()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    watch = mw.watch(module, data, tmp_path / "run", STEPS, checkpoint_every=1 / STEPS)
    watch.step()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert all(buffers[name] is tensor for name, tensor in module.named_buffers())
    assert (module.body[0].weight.grad == 1).all()
    hooks = [
        part._forward_hooks or part._forward_pre_hooks for part in module.modules()
    ]
    assert not any(hooks)
    loss.backward()


def test_gradients_flow_after_a_step_inside_autocast(data, tmp_path):
    """Casts that autocast remembers must not come from a pass without gradients."""
    module, watch = watching(data, tmp_path / "run", checkpoint_every=1 / STEPS)
    x, y = data[:BATCH]
    with torch.autocast("cpu", torch.bfloat16):
        watch.step()
        cross_entropy(module(x), y).backward()
    assert all(p.grad is not None for p in module.parameters())
    final = watch.audit.run.forward(watch.audit.evidence.names.found[-1])
    assert final.metadata["precision"] == "bfloat16"


def test_a_failing_pass_leaves_the_module_as_it_was(data, tmp_path):
    module, watch = watching(data, tmp_path / "run", checkpoint_every=1 / STEPS)
    with torch.no_grad():
        module[6].bias[0] = torch.nan
    with pytest.raises(FloatingPointError, match="48 of 48 samples is not finite"):
        watch.step()
    assert all(part.training for part in module.modules())
    assert not any(
        part._forward_hooks or part._forward_pre_hooks for part in module.modules()
    )
    assert watch.audit.checkpoints.index.tolist() == ["epoch-0"]
    # and a refused start leaves nothing in the way
    with pytest.raises(FloatingPointError):
        mw.watch(module, data, tmp_path / "other", STEPS)
    mw.watch(mlp(), data, tmp_path / "other", STEPS)
    with pytest.raises(ValueError, match="weights differ"):
        mw.watch(module, data, tmp_path / "other", STEPS)
    assert len(mw.Audit.open(tmp_path / "other").checkpoints) == 1


# What is recorded


def test_scores_are_those_of_hidden_states_computed_by_hand(watched, data):
    """The last is what goes into the head, and the other what its layer gives."""
    (watch, module), (x, labels) = watched, data.tensors
    audit = watch.audit
    for layer, below in (("last", module[:6]), ("4", module[:5])):
        with torch.no_grad():
            states, logits = below.eval()(x), module.eval()(x)
        expected = mw.Audit.from_arrays(labels, states, logits)
        for metric in ("psmi", "loss", "logit_gap", "mahalanobis"):
            found, near = (
                audit.score(metric, layer, "final"),
                1e-6 if metric == "psmi" else 1e-5,
            )
            np.testing.assert_allclose(
                found, expected.score(metric), rtol=10 * near, atol=near
            )
    losses = np.stack(
        [audit.score("loss", checkpoint=n) for n in audit.checkpoints.index[1:]]
    )
    csl = audit.score("csl", checkpoint="final")
    np.testing.assert_allclose(csl, losses.mean(axis=0), rtol=1e-12)
    loss = np.median(cross_entropy(logits, labels, reduction="none"))
    assert audit.checkpoints["median_loss"].iloc[-1] == pytest.approx(loss, rel=1e-6)


def test_step_is_true_where_rho_is_reached_and_only_there(data, tmp_path):
    module, watch = watching(
        data, tmp_path / "run", checkpoint_every=1 / 3, stop_at_drop=0.6
    )
    optimizer, said = torch.optim.AdamW(module.parameters(), lr=0.03), []
    for _ in range(8 * STEPS):
        x, y = data[torch.randperm(N)[:BATCH]]
        cross_entropy(module(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        said.append(watch.step())
    assert said.count(True) == 1
    assert watch.reached
    step = said.index(True) + 1
    assert watch.audit.prediction.record.step == step
    drops = watch.audit.checkpoints.set_index("step")["drop"]
    assert drops[step] >= 0.6
    assert (drops[drops.index < step] < 0.6).all()


def test_the_audit_is_one_without_ground_truth(watched, data, tmp_path):
    audit = watched[0].audit
    assert not audit.has_ground_truth
    assert audit.layers == ("4", "6.input")
    with pytest.warns(
        UserWarning, match="fewer than 20 samples, so their scores are inaccurate"
    ):
        flagged = audit.flagged(tau=np.inf)
    assert len(flagged) == N
    assert {"guess", "p_label"} <= set(flagged)
    dashboard = audit.dashboard()
    assert dashboard.state["metric"] == "psmi"
    more, know = dashboard._steps["more"], dashboard._steps["know"]
    assert (more["button"], know["button"]) == ("", "")
    assert "fit(rows, watch, seed)" in more["said"]
    assert "Audit.from_script(fit" in more["lines"]["code"]
    ast.parse("\n".join(step["lines"]["code"] for step in (more, know)))
    dashboard.metric = "reference"
    assert "was recorded by mw.watch" in dashboard._message["text"], (
        "it is listed with the reason"
    )
    assert (dashboard.computed, dashboard._button) == (False, "")
    dashboard.close()
    for refused in (
        lambda: audit.run_shadows(2),
        audit.run_references,
        lambda: audit.score("reference"),
        audit.train,
        lambda: audit.fork(tmp_path / "fork", data=audit.data),
        lambda: mw.training.MemorizationCallback(audit),
        audit.log_lira,
    ):
        with pytest.raises(NotThereError, match=r"was recorded by mw\.watch"):
            refused()


def test_it_opens_again_with_and_without_the_samples(watched, data):
    audit = watched[0].audit
    again = mw.Audit.open(audit.path)
    for checkpoint in again.checkpoints.index:
        for layer in again.layers:
            found = again.score("psmi", layer, checkpoint)
            assert found.equals(audit.score("psmi", layer, checkpoint))
    assert len(mw.Audit.open(audit.path, data=data).kept()) == N
    with pytest.raises(ValueError, match="not the data of"):
        mw.Audit.open(audit.path, data=samples(seed=5))


def test_no_sample_and_no_weight_is_in_the_directory(watched, data):
    folder = Path(watched[0].audit.path)
    files = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
    assert not [
        name for name in files if "weights" in name or name.endswith((".pt", ".pkl"))
    ]
    assert (folder.stat().st_mode & 0o077) == 0
    raw = data.tensors[0][0].numpy().tobytes()
    assert not [name for name in files if raw in (folder / name).read_bytes()]


# Kinds of data and modules


@pytest.mark.filterwarnings("ignore:.*are equal to others")
def test_our_images_and_texts_are_watched_and_shown(tmp_path):
    digits = mw.data.load_digits().take(range(40))
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    watch = mw.watch(module, digits, tmp_path / "digits", 5)
    assert watch.audit.data is digits
    again = mw.Audit.open(tmp_path / "digits", data=digits)
    assert again.data[3].image.shape == (8, 8, 1)
    feed = mw.models.ConvNet().feeder(digits, torch.device("cpu"))
    logits = module(feed(np.arange(40))).detach().numpy()
    np.testing.assert_allclose(forward_of(watch)["logits"], logits, atol=1e-5)

    def read(module, texts):
        return module(
            torch.tensor([[len(text), text.count(" ")] for text in texts]).float()
        )

    texts = ["one two three" + " four" * (i % 7) for i in range(30)]
    labels = [i % 2 for i in range(30)]
    data = mw.data.TextDataset.from_texts(texts, labels, ["odd", "even"])
    module = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    watch = mw.watch(module, data, tmp_path / "texts", 4, forward=read)
    assert watch.audit.layers == ("2.input",)
    expected = read(module, texts).detach().numpy()
    np.testing.assert_allclose(forward_of(watch)["logits"], expected, atol=1e-6)


class Named(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, width), nn.Linear(width, CLASSES)

    def forward(self, values, scale):
        return self.head(torch.relu(self.body(values * scale)))


@pytest.mark.parametrize("kind", ["mapping", "tuple", "row that is a mapping"])
def test_inputs_may_be_several_tensors(kind, data, tmp_path):
    x, y = data.tensors
    inputs = [{"values": values, "scale": torch.ones(1)} for values in x]
    rows = {
        "mapping": list(zip(inputs, y, strict=True)),
        "tuple": [
            (tuple(one.values()), label) for one, label in zip(inputs, y, strict=True)
        ],
        "row that is a mapping": [
            one | {"labels": y[i]} for i, one in enumerate(inputs)
        ],
    }[kind]
    module = Named()
    watch = mw.watch(module, rows, tmp_path / "run", STEPS, batch_size=7)
    with torch.no_grad():
        expected = module(x, torch.ones(1)).numpy()
    np.testing.assert_allclose(forward_of(watch)["logits"], expected, atol=1e-6)
    assert watch.audit.labels.tolist() == y.tolist()


def test_image_tensors_are_shown(tmp_path):
    torch.manual_seed(0)
    images = torch.rand(12, 3, 6, 5)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(48, 2))
    audit = mw.watch(
        module, TensorDataset(images, torch.arange(12) % 2), tmp_path / "run", 3
    ).audit
    shown = np.rint(255 * images[2].permute(1, 2, 0).numpy()).astype(np.uint8)
    np.testing.assert_array_equal(audit.data[2].image, shown)
    assert torch.equal(audit.kept().take([3, 1]).as_pairs()[0][0], images[3])


class Tagger(nn.Module):
    """A tiny transformer; how it reads its tokens is a parameter."""

    def __init__(self, reads):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(20, 16, padding_idx=0)
        block = nn.TransformerEncoderLayer(16, 2, 16, 0.0, batch_first=True)
        other = nn.TransformerEncoderLayer(16, 2, 16, 0.0, batch_first=True)
        self.blocks = nn.ModuleList([block, other])
        self.score, self.reads = nn.Linear(16, 3), reads

    def forward(self, input_ids, attention_mask):
        hidden = self.words(input_ids)
        for block in self.blocks:
            hidden = block(hidden, src_key_padding_mask=attention_mask == 0)
        at = attention_mask.sum(dim=1) - 1
        if self.reads == "last":
            return self.score(hidden)[torch.arange(len(hidden), device=at.device), at]
        return self.score(hidden[:, 0])


def tokens():
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 20, size=3 + i % 5) for i in range(24)]
    return [
        {"input_ids": torch.tensor(ids), "label": i % 3} for i, ids in enumerate(rows)
    ]


def padded(rows):
    ids = nn.utils.rnn.pad_sequence(
        [row["input_ids"] for row in rows], batch_first=True
    )
    labels = torch.tensor([row["label"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


def as_a_tuple(rows):
    made = padded(rows)
    return (made["input_ids"], made["attention_mask"]), made["labels"]


def without_mask(rows):
    made = padded(rows)
    return made["input_ids"], made["labels"]


def masking(module, ids):
    return module(ids, attention_mask=(ids > 0).long())


@pytest.mark.parametrize(
    ("reads", "collate", "forward"),
    [
        ("last", padded, None),
        ("first", padded, None),
        ("last", as_a_tuple, None),
        ("last", without_mask, masking),
    ],
)
@pytest.mark.filterwarnings("ignore:.*nested tensor:UserWarning")
def test_batches_of_different_lengths_equal_one_text_at_a_time(
    reads, collate, forward, tmp_path
):
    """A mask is found wherever a part receives it: by name, by position, or made inside."""
    rows, module = tokens(), Tagger(reads)
    watches = []
    for size in (1, 7):
        loader = DataLoader(rows, batch_size=size, collate_fn=collate)
        watches.append(
            mw.watch(module, loader, tmp_path / str(size), 3, forward=forward)
        )
    assert watches[0].audit.layers == ("score.input",)
    one, several = map(forward_of, watches)
    for name in ("logits", "layer.score.input"):
        np.testing.assert_allclose(one[name], several[name], atol=1e-5)
    module.eval()
    with torch.no_grad():
        hidden = module.words(rows[5]["input_ids"][None])
        for block in module.blocks:
            hidden = block(hidden)
    token = hidden[0, -1 if reads == "last" else 0].numpy()
    np.testing.assert_allclose(one["layer.score.input"][5], token, atol=1e-5)


def test_a_mean_over_padding_is_said(tmp_path):
    class Maskless(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 3)

        def forward(self, ids):
            return self.head(self.words(ids)).mean(dim=1)

    loader = DataLoader(tokens(), batch_size=7, collate_fn=without_mask)
    with pytest.warns(
        UserWarning, match="attention_mask, so the mean at 'head.input' includes"
    ):
        mw.watch(Maskless(), loader, tmp_path, 5)


# Again, and after an end


def test_it_goes_on_from_the_weights_of_a_checkpoint_or_after_the_steps_that_are_named(
    data, tmp_path
):
    module, watch = watching(data, tmp_path / "run")
    trained(module, data, watch=watch, until=9)
    at_nine = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    trained(module, data, watch=watch, until=2)  # two steps that no checkpoint saw
    _, resumed = watching(data, tmp_path / "run", module, steps_done=11)
    trained(module, data, watch=resumed, until=1)
    assert resumed.audit.checkpoints["step"].tolist() == [0, 3, 6, 9, 12]
    later = resumed.audit.checkpoints["median_loss"].iloc[-1]
    module.load_state_dict(at_nine)
    _, resumed = watching(data, tmp_path / "run", module)
    assert resumed.steps == 9
    trained(module, data, watch=resumed, until=3, lr=0.1)
    assert resumed.audit.checkpoints["step"].tolist() == [0, 3, 6, 9, 12]
    assert resumed.audit.checkpoints["median_loss"].iloc[-1] != later


def test_an_end_that_was_not_due_goes_when_the_training_goes_another_way(
    data, tmp_path
):
    module, watch = watching(data, tmp_path / "run")
    trained(module, data, watch=watch, until=6)
    at_six = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    trained(module, data, watch=watch, until=1)
    watch.end()
    assert watch.audit.checkpoints["step"].tolist() == [0, 3, 6, 7]
    trained(module, data, watch=watch, until=2)
    # it went on from there
    assert watch.audit.checkpoints["step"].tolist() == [
        0,
        3,
        6,
        7,
        9,
    ]
    module.load_state_dict(at_six)
    _, resumed = watching(data, tmp_path / "run", module)
    trained(module, data, watch=resumed, until=3, lr=0.1)
    assert resumed.audit.checkpoints["step"].tolist() == [0, 3, 6, 9]


def test_two_trainings_are_not_mixed_into_one(data, tmp_path):
    (one, first), (other, second) = (watching(data, tmp_path / "run") for _ in range(2))
    trained(one, data, watch=first, until=6)
    trained(other, data, watch=second, until=3, lr=0.1)
    assert second.audit.checkpoints["step"].tolist() == [0, 3]
    with pytest.raises(StoreError, match=r"another training was .* since epoch-1 "):
        trained(one, data, watch=first, until=3)
    trained(other, data, watch=second, until=3)
    assert second.audit.checkpoints["step"].tolist() == [0, 3, 6]


def test_another_training_replaces_a_run_only_when_asked(data, tmp_path):
    module, watch = watching(data, tmp_path / "run")
    trained(module, data, watch=watch, epochs=1)
    before = watch.audit.checkpoints
    again = {"path": tmp_path / "run", "checkpoint_every": 0.5}
    with pytest.raises(
        ValueError, match=r"differ from these at each of its 3 .*overwrite=True"
    ):
        mw.watch(mlp(seed=3), data, steps_per_epoch=STEPS, **again)
    with pytest.raises(ValueError, match=r"6 steps an epoch, .* and 5"):
        mw.watch(mlp(), data, steps_per_epoch=5, **again)
    with pytest.raises(
        ValueError, match="holds another run: 48 samples have another content"
    ):
        mw.watch(mlp(), samples(seed=9), steps_per_epoch=STEPS, **again)
    with pytest.raises(
        ValueError, match="holds another run: model class is Sequential there"
    ):
        mw.watch(Checkpointed(), data, steps_per_epoch=STEPS, **again)
    digits = mw.data.load_digits().take(range(60))
    with pytest.raises(ValueError, match="another run"):
        mw.Audit(mw.models.ConvNet(), digits, path=tmp_path / "run")
    assert mw.Audit.open(tmp_path / "run").checkpoints.equals(before)
    fresh = mw.watch(mlp(seed=3), data, steps_per_epoch=STEPS, overwrite=True, **again)
    assert fresh.audit.checkpoints["step"].tolist() == [0]


def test_another_frozen_backbone_is_another_training(data, tmp_path):
    """With the same head at step 0, its losses there were taken for those of the other."""

    def probe(seed):
        body, head = mlp(seed)[:4], mlp()[4:]
        return nn.Sequential(body.requires_grad_(requires_grad=False), head)

    seeded()
    module = probe(1)
    trained(module, data, watch=mw.watch(module, data, tmp_path / "run", STEPS))
    assert mw.watch(probe(1), data, tmp_path / "run", STEPS).steps == 0
    moved = probe(1)
    moved[0][1].running_mean += 1
    for other in (probe(2), moved):
        with pytest.raises(
            ValueError, match="weights differ from these at each of its"
        ):
            mw.watch(other, data, tmp_path / "run", STEPS)


def test_another_forward_is_another_recording(data, tmp_path):
    """The same training has the same weights, so its passes would be taken for those of both."""

    def scaled(by):
        return lambda module, x: by * module(x)

    first = mw.watch(mlp(), data, tmp_path / "run", STEPS, forward=scaled(1))
    again = mw.watch(
        mlp(), data, tmp_path / "run", STEPS, forward=scaled(1), overwrite=True
    )
    assert again.audit.score("loss", checkpoint=0).equals(
        first.audit.score("loss", checkpoint=0)
    )
    mw.watch(mlp(), data, tmp_path / "run", STEPS)  # which does the same
    for other in (scaled(2), scaled(1.01), lambda module, x: module(x) + 1):
        with pytest.raises(
            ValueError, match=r"a recorded checkpoint.*forward= has changed"
        ):
            mw.watch(mlp(), data, tmp_path / "run", STEPS, forward=other)


class Killed(BaseException):
    """Stands for the end of the process: nothing of the package may catch it."""


@pytest.mark.parametrize(
    ("place", "left"), [("checkpoints/epoch-1/", 2), ("trainer.json", 3)]
)
def test_killed_it_keeps_what_was_finished_and_ends_the_same(
    place, left, watched, data, tmp_path, monkeypatch
):
    """Before the record of a pass is written, and between the record and the course."""
    replace, written = RunDirectory._replacing, []

    def replacing(self, target, **how):
        name = target.relative_to(self.path).as_posix()
        if name.startswith(place) and "trainer.json" in written:
            raise Killed
        written.append(name)
        return replace(self, target, **how)

    module, watch = watching(data, tmp_path / "run")
    seeded()
    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "_replacing", replacing)
        with pytest.raises(Killed):
            trained(module, data, watch=watch)
    audit = mw.Audit.open(tmp_path / "run")
    assert len(audit.checkpoints) == left
    assert np.isfinite(
        audit.score("loss", checkpoint=audit.checkpoints.index[-1])
    ).all()
    module, again = watching(data, tmp_path / "run")
    seeded()
    trained(module, data, watch=again)
    expected = watched[0].audit.checkpoints
    assert again.audit.checkpoints["median_loss"].equals(expected["median_loss"])


# What is refused


class Changing(Dataset):
    """Rows that change in their inputs or labels, from a row on, when told to."""

    def __init__(self, what, start=0, *, on=True):
        self.what, self.start, self.on, self.base = what, start, on, samples()

    def __len__(self):
        return N

    def __getitem__(self, i):
        x, y = self.base[i]
        if self.on and i >= self.start:
            x = x + torch.randn(WIDTH) if self.what == "inputs" else x
            y = torch.randint(CLASSES, ()) if self.what == "labels" else y
        return x, y


class Stream(IterableDataset):
    def __iter__(self):
        return iter(samples())


def rows_with(label):
    labels = [i % CLASSES for i in range(N)]
    labels[7] = label
    return [(torch.full((WIDTH,), float(i)), one) for i, one in enumerate(labels)]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (lambda d: DataLoader(d, shuffle=True), ValueError, r"shuffles .* pass loader\.dataset"),
        (lambda d: Stream(), TypeError, "must be a dataset with a length"),
        (iter, TypeError, "must be a dataset with a length"),
        (lambda d: Changing("inputs", 20), ValueError, r"row \d+ of the data differs each time"),
        (lambda d: Changing("labels"), ValueError, r"row \d+ of the data differs each time"),
        (lambda d: TensorDataset(*d.tensors, d.tensors[1]), TypeError, "pair .* tuple of 3"),
        (lambda d: [{"x": 1}] * 4, TypeError, "row 0 of the data must have 'label'"),
        (lambda d: rows_with(float("nan")), ValueError, "first in row 7 of the data"),
        (lambda d: rows_with(torch.tensor([0, 1])), ValueError, "row 7 .* has 2 values"),
        (lambda d: rows_with("cat"), ValueError, "some labels are strings .* row 7 of the data"),
        (lambda d: rows_with(3), ValueError, "for 3 classes, but the data have 4"),
        (lambda d: rows_with(-1), ValueError, "row 7 is -1"),
        (lambda d: [(torch.ones(n), n % 2) for n in range(2, 22)], ValueError, "with collate_fn"),
    ],
)  # fmt: skip
def test_data_that_can_not_be_watched_are_named(given, error, message, data, tmp_path):
    with pytest.raises(error, match=message):
        mw.watch(mlp(), given(data), tmp_path / "run", STEPS)
    assert not (tmp_path / "run").exists()


def single(module, inputs):
    return module(inputs)[:, :1]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"steps_per_epoch": 0}, ValueError, "a whole number from 1, not 0"),
        ({"checkpoint_every": 0}, ValueError, "a positive number, not 0"),
        ({"stop_at_drop": 95}, ValueError, "a share between 0 and 1"),
        ({"over_last": 3, "stop_at_drop": None}, ValueError, "over_last .* without stop_at_drop"),
        ({"layers": ["0", "nowhere"]}, ValueError, "no layer 'nowhere'; it has 0, 1, 2"),
        ({"layers": []}, ValueError, "layers is empty"),
        ({"forward": single}, ValueError, r"\(2, 1\) for 2 samples.*for one logit"),
        ({"forward": lambda m, x: m(x).sum()}, ValueError, r"of shape \(\) for 2 samples"),
        ({"forward": lambda m, x: m(x)[:, :2]}, ValueError, "for 2 classes, but the data have 3"),
        ({"forward": lambda m, x: "logits"}, ValueError, r"returns str .*not logits"),
        ({"batch_size": 0}, ValueError, "batch_size must be"),
        ({"module": "mlp"}, TypeError, "must be a torch.nn.Module, not str"),
        ({"module": nn.Linear(WIDTH, CLASSES)}, ValueError, "single linear layer"),
        ({"steps_done": 4}, ValueError, "lacks step 0"),
        ({"class_names": ["a", "b"]}, ValueError, "must lie between 0 and 1"),
        ({"held_out": DataLoader(samples(), shuffle=True)}, ValueError, "loader that shuffles"),
        ({"held_out": Subset(samples(), range(3, 9))}, ValueError,
         "6 held-out samples are members too"),
        ({"held_out": mw.data.TextDataset.from_texts(["a", "b", "c"], [0, 1, 2])}, TypeError,
         "TextDataset there and PairDataset here"),
    ],
)  # fmt: skip
def test_arguments_that_can_not_be_meant_are_named(
    changes, error, message, data, tmp_path
):
    given = {"module": mlp(), "steps_per_epoch": STEPS} | changes
    with pytest.raises(error, match=message):
        mw.watch(data=data, path=tmp_path / "run", **given)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_layer_that_does_not_run_or_has_no_batch_is_named(data, tmp_path):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.idle = mlp(), nn.Linear(2, 2)
            self.turned = nn.Identity()

        def forward(self, x):
            self.turned(x.T)
            return self.body(x)

    with pytest.raises(ValueError, match="does not run 'idle'"):
        mw.watch(Odd(), data, tmp_path / "a", STEPS, layers=["idle", "body"])
    with pytest.raises(
        ValueError, match=r"'turned' has the shape \(6, 2\) for 2 samples"
    ):
        mw.watch(Odd(), data, tmp_path / "a", STEPS, layers=["turned"])
    assert not [*tmp_path.iterdir()]  # the corrected call finds no other run there


# What is read, and what is refused


class Cosine(nn.Module):
    """A head without a linear layer."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU())
        self.prototypes = nn.Parameter(torch.randn(CLASSES, 16))

    def forward(self, x):
        return 5 * nn.functional.normalize(self.body(x)) @ self.prototypes.T


class Auxiliary(nn.Module):
    """Its auxiliary head runs last, and its logits come first."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.aux = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.body(x)), self.aux(x)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Cosine, r"0 linear layers .* 3 outputs.*'body\.0'.*layers="),
        (Auxiliary, r"2 linear layers .*3 outputs.*'head', 'aux'.*layers="),
    ],
)
def test_auto_layers_refuse_what_is_not_one_linear_head(kind, said, data, tmp_path):
    with pytest.raises(ValueError, match=said):
        mw.watch(kind(), data, tmp_path / "run", STEPS)
    watch = mw.watch(kind(), data, tmp_path / "named", STEPS, layers=["body"])
    assert len(watch.audit.score("loss", checkpoint=0)) == N


def test_rows_that_are_mappings_are_read_by_name_or_refused(tmp_path):
    """`forward` of a Sequential calls what it takes input."""

    def watch(inputs, label):
        rows = [{inputs: x, label: y} for x, y in samples()]
        return mw.watch(mlp(), rows, tmp_path / inputs, STEPS)

    assert len(watch("input", "label").audit.members) == N
    for names, said in (
        (("image", "label"), r"'image'.* input;.*forward="),
        (("image", "target"), r"'label'.*image, target"),
    ):
        with pytest.raises(TypeError, match=said):
            watch(*names)


def test_a_dataset_of_hugging_face_is_read_in_torch_format_or_refused(data, tmp_path):
    datasets = pytest.importorskip("datasets")
    x, y = data.tensors
    plain = datasets.Dataset.from_dict({"input": x.tolist(), "label": y.tolist()})
    watch = mw.watch(mlp(), plain.with_format("torch"), tmp_path / "run", STEPS)
    assert watch.audit.data.labels.tolist() == y.tolist()
    with pytest.raises(TypeError, match=r"with_format\('torch'\)"):
        mw.watch(mlp(), plain, tmp_path / "plain", STEPS)
    with pytest.raises(TypeError, match="'train'"):
        mw.watch(mlp(), datasets.DatasetDict({"train": plain}), tmp_path / "all", STEPS)


def test_rows_of_a_random_split_keep_their_position_in_the_whole(data, tmp_path):
    ours, others = torch.utils.data.random_split(data, [N - 12, 12])
    some, _ = torch.utils.data.random_split(ours, [N - 20, 8])
    watch = mw.watch(mlp(), some, tmp_path / "run", STEPS, held_out=others)
    places = [ours.indices[i] for i in some.indices]
    assert list(map(int, watch.audit.data.ids)) == places


class Checkpointed(nn.Module):
    """Gradient checkpointing, as of long sequences."""

    def __init__(self):
        super().__init__()
        self.body, self.head = mlp()[:5], nn.Linear(8, CLASSES)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return self.head(checkpoint(self.body, x, use_reentrant=False))


class Quantised(nn.Module):
    """A frozen base of 8 bits in tensors without views, as torchao's, and a trained adapter."""

    def __init__(self):
        super().__init__()
        base = nn.Linear(WIDTH, 8)
        self.register_buffer("weight", Eight(base.weight.detach()))
        self.adapter, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        x = nn.functional.linear(x, self.weight.dequantize()).relu()
        return self.head(x + self.adapter(x))


class Eight(torch.Tensor):
    """A tensor of 8 bits that can only be copied and dequantised."""

    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=values.dtype
        )

    def __init__(self, values):
        self.scale = values.abs().max() / 127
        self.stored = (values / self.scale).round().to(torch.int8)

    def dequantize(self):
        return self.stored.float() * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return cls(args[0].dequantize())
        if func is torch.ops.aten.equal.default:
            return torch.equal(args[0].stored, args[1].stored)
        raise NotImplementedError(str(func))


@pytest.mark.parametrize(
    "made", [lambda: torch.compile(mlp(), backend="eager"), Checkpointed, Quantised]
)
def test_modules_that_are_compiled_checkpointed_or_quantised_are_watched(
    data, tmp_path, made
):
    ends = []
    for path in (None, tmp_path / "run"):
        torch.manual_seed(0)
        module = made()
        watch = path and mw.watch(module, data, path, STEPS, stop_at_drop=None)
        seeded()
        trained(module, data, watch=watch)
        ends.append([p.tolist() for p in module.parameters()])
    assert ends[0] == ends[1]
    assert np.isfinite(watch.audit.score("psmi", checkpoint=3)).all()


def test_nothing_is_stated_of_the_settings_of_a_watched_loop(tmp_path):
    hidden = type("<lambda>", (nn.Sequential,), {})
    module, data = hidden(*mlp()), samples()
    watch = mw.watch(module, data, tmp_path / "run", STEPS, stop_at_drop=None)
    trained(module, data, epochs=1, watch=watch)
    for audit in (watch.audit, mw.Audit.open(tmp_path / "run")):
        page = audit.report(tmp_path / "a.html", figures=False, overwrite=True)
        numbers = json.loads(page.with_suffix(".json").read_text("utf-8"))
        assert numbers["training"] == {}
        assert "not known" in numbers["trained_by"]
        assert "mw.watch" in numbers["missing"]["settings of the training"]
        assert numbers["facts"]["model"] == "<lambda>"
        assert "&lt;lambda&gt;" in page.read_text("utf-8")
        with pytest.raises(NotThereError, match="not used"):
            _ = audit.training
    kept = json.loads((tmp_path / "run/manifest.json").read_text("utf-8"))
    assert kept["training"] == {"checkpoint_every": 0.2}
    assert "precision" not in kept
