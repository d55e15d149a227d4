"""Lightning's own Trainer on a tiny module, watched."""

from __future__ import annotations

import doctest
from functools import cache
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import memowidgets as mw
from tests.audit.test_watching import BATCH, STEPS, N, mlp, samples
from tests.audit.test_where_to_look import rows as noisy_rows

BESIDE = (
    "logger",
    "enable_progress_bar",
    "enable_model_summary",
    "enable_checkpointing",
)
NOTHING_BESIDE = dict.fromkeys(BESIDE, False)
OURS = "optimizer steps|recorded anew|other weights|first step took"
pytestmark = [  # Lightning warns of much that is fine here, memowidgets of nothing unasked
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings(f"error:.*({OURS})"),
]


@cache
def lightning():
    """Lightning, imported by the first test that needs it: every worker imports this file."""
    return pytest.importorskip(
        "lightning.pytorch", reason="no Lightning: pip install lightning"
    )


def new_module():
    class Module(lightning().LightningModule):
        def __init__(self):
            super().__init__()
            self.net = mlp()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, _index):
            return cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.05)

    return Module()


@pytest.fixture(scope="module")
def data():
    return samples()


def fitted(module, data, folder, *callbacks, epochs=3, resume=None, **changes):
    settings = {"accelerator": "cpu", "max_epochs": epochs, **NOTHING_BESIDE, **changes}
    trainer = lightning().Trainer(
        default_root_dir=folder, callbacks=list(callbacks), **settings
    )
    torch.manual_seed(1)
    trainer.fit(
        module, DataLoader(data, batch_size=BATCH, shuffle=True), ckpt_path=resume
    )
    return trainer


def test_steps_are_those_of_the_optimizer_and_the_weights_those_without_it(
    data, tmp_path
):
    plain, module = new_module(), new_module()
    course = {"accumulate_grad_batches": 4}  # two steps an epoch: four batches, two
    fitted(plain, data, tmp_path, **course)
    watch = mw.watch(
        module, data, tmp_path / "run", 2, checkpoint_every=1, stop_at_drop=None
    )
    trainer = fitted(
        module, data, tmp_path, mw.training.LightningCallback(watch), **course
    )
    assert trainer.global_step == watch.steps == 6
    assert watch.audit.checkpoints["step"].tolist() == [0, 2, 4, 6]
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, module.state_dict()[name])


@pytest.mark.parametrize("stop", [True, False])
def test_the_trainer_stops_at_rho_when_asked(stop, data, tmp_path):
    module = new_module()
    course = {"checkpoint_every": 0.4, "stop_at_drop": 0.5}
    watch = mw.watch(module, data, tmp_path / "run", STEPS, **course)
    callback = mw.training.LightningCallback(watch, stop=stop)
    trainer = fitted(module, data, tmp_path, callback, epochs=7)
    at = watch.audit.prediction.record.step
    assert watch.reached
    assert trainer.global_step == (at if stop else 7 * STEPS)
    assert watch.audit.checkpoints["step"].iloc[-1] == trainer.global_step
    assert len(watch.audit.score("psmi")) == N


def test_the_trainer_stops_where_held_out_loss_has_turned(tmp_path):
    members, aside = (noisy_rows(n, seed) for n, seed in ((N, 1), (200, 2)))
    module = new_module()
    course = {"checkpoint_every": 1, "stop_at_drop": 0.999, "held_out": aside}
    watch = mw.watch(module, members, tmp_path / "run", STEPS, **course)
    callback = mw.training.LightningCallback(watch)
    trainer = fitted(module, members, tmp_path, callback, epochs=60)
    chosen = watch.audit.prediction
    assert chosen.why == "turn"
    assert chosen.record.epoch < chosen.until.epoch < 60
    assert trainer.global_step == chosen.until.step


@pytest.mark.parametrize(
    ("stopped_at", "weights"), [(7, "as before"), (3, "others"), (10, "others")]
)
def test_a_trainer_that_resumes_within_an_epoch_warns_of_nothing(
    stopped_at, weights, data, tmp_path
):
    settings = {
        "steps_per_epoch": STEPS,
        "checkpoint_every": 1 / STEPS,
        "stop_at_drop": None,
    }
    first = new_module()
    watch = mw.watch(first, data, tmp_path / "run", **settings)
    callback = mw.training.LightningCallback(watch)
    trainer = fitted(first, data, tmp_path, callback, max_steps=stopped_at)
    trainer.save_checkpoint(tmp_path / "state.ckpt")
    before = watch.audit.checkpoints["median_loss"]
    other = new_module()
    if weights == "others":
        nn.init.normal_(other.net[0].weight)
    more = {"steps_done": stopped_at} if weights == "others" else {}
    again = mw.watch(other, data, tmp_path / "run", **settings, **more)
    callback = mw.training.LightningCallback(again)
    fitted(other, data, tmp_path, callback, resume=tmp_path / "state.ckpt", epochs=4)
    assert again.audit.checkpoints["step"].tolist() == list(range(again.steps + 1))
    assert again.audit.checkpoints["median_loss"][: len(before)].equals(before)


def test_its_examples_run():
    """The root's conftest.py leaves this module out of what each worker imports."""
    module = import_module("memowidgets.training.lightning_callback")
    assert doctest.testmod(module).failed == 0


def test_another_module_than_the_watched_one_is_refused(data, tmp_path):
    with pytest.raises(TypeError, match=r"must be what mw\.watch returns, not Module"):
        mw.training.LightningCallback(new_module())


def test_the_report_states_what_lightning_tells(data, tmp_path):
    module = new_module()
    module.save_hyperparameters({"dropout": 0.3, "rows": "/srv/rows.csv"})
    watch = mw.watch(module, data, tmp_path / "run", STEPS, stop_at_drop=None)
    callback = mw.training.LightningCallback(watch)
    fitted(module, data, tmp_path, callback, epochs=1, gradient_clip_val=0.5)
    again = mw.Audit.open(tmp_path / "run")
    (origin,) = again.evidence.origins
    stated = origin.settings
    assert (stated["max_epochs"], stated["gradient_clip_val"]) == (1, 0.5)
    assert (stated["optimizer"], stated["learning_rate"]) == ("AdamW", 0.05)
    assert stated["batch_size"] == BATCH
    assert stated["hparams.dropout"] == 0.3
    assert "/srv" not in str(origin)
    assert origin.model == type(module).__name__
    assert "LightningCallback" in again.evidence.origins[-1].sentence


def test_an_epoch_of_other_steps_than_were_named_is_said(data, tmp_path):
    module = new_module()
    watch = mw.watch(module, data, tmp_path / "run", steps_per_epoch=10)
    callback = mw.training.LightningCallback(watch, stop=False)
    with pytest.warns(
        UserWarning, match="has 6 optimizer steps; .* steps_per_epoch=6 .* 10"
    ):
        fitted(module, data, tmp_path, callback, epochs=2)
