"""Several devices, their memory, their failure, and what else records on them."""

from __future__ import annotations

import os
import shutil
import warnings

import numpy as np
import pytest
import torch
from accelerate import PartialState
from torch import nn
from transformers import Trainer, TrainingArguments

import memowidgets as mw
from memowidgets.models.device import (
    DeviceError,
    device_status,
    resolve_device,
    working_on,
)
from memowidgets.progress import Progress
from memowidgets.training import passes, worker
from tests.accelerator import pretend, recipes
from tests.accelerator.recipes import audit
from tests.audit.test_watching import BATCH, STEPS, mlp, samples
from tests.training.small import Inline, assert_same
from tests.training.test_trainer_callback import (
    ON_THE_CPU,
    QUIET,
    collate,
    make_audit,
    script_rows,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*guess.*:UserWarning")


@pytest.fixture(scope="module")
def of_the_cpu(tmp_path_factory):
    made = audit("ConvNet", tmp_path_factory.mktemp("cpu") / "run", "cpu")
    made.train()
    made.run_shadows(3, Inline())
    return made


def losses(made):
    return [made.evidence.losses(record) for record in made.evidence.names.found]


def assert_trained_alike(one, other):
    np.testing.assert_allclose(losses(one), losses(other), atol=1e-6)


def test_a_device_that_does_not_exist_is_one_sentence(device, hardware):
    hardware.count = 2
    assert resolve_device(f"{device}:1") == f"{device}:1"
    with pytest.raises(
        ValueError, match=r"'pretend:2'.*finds only pretend:0, pretend:1"
    ):
        resolve_device(f"{device}:2")
    hardware.present = False
    with pytest.raises(ValueError, match=r"'pretend'.*no device of the kind pretend"):
        resolve_device(device)
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        resolve_device("gpu")
    with pytest.raises(ValueError, match=r"'meta'.*no device of the kind meta"):
        resolve_device("meta")


@pytest.mark.own_processes
def test_each_process_stays_on_a_device_of_its_own(
    of_the_cpu, device, hardware, tmp_path, monkeypatch
):
    seen = tmp_path / "seen"
    seen.mkdir()
    hardware.count = 2
    monkeypatch.setenv("PRETEND_COUNT", "2")
    monkeypatch.setenv("PRETEND_SEEN", str(seen))
    made = audit("ConvNet", tmp_path / "run", device)
    made.train()
    freed = hardware.emptied
    assert freed
    made.run_shadows(3)
    assert hardware.emptied > freed
    places = [file.name.split("-") for file in seen.iterdir()]
    of_workers = [(pid, index) for pid, index in places if int(pid) != os.getpid()]
    assert len({pid for pid, _ in of_workers}) == 2
    assert sorted(index for _, index in of_workers) == ["0", "1"]
    assert_same(of_the_cpu, made, atol=1e-6)


def test_a_batch_that_does_not_fit_is_named_with_what_to_make_smaller(
    of_the_cpu, device, hardware, tmp_path
):
    made = audit("ConvNet", tmp_path / "run", device)
    hardware.largest = 3
    with pytest.raises(
        MemoryError, match=r"21 samples at once.* forward_batch of the model"
    ):
        made.train()
    made.run.model.forward_batch = 3
    with pytest.raises(MemoryError, match=r"batch of 8 samples.* batch_size="):
        made.train()
    hardware.largest = 8
    made.train()
    found = made.score("psmi", checkpoint=0)
    np.testing.assert_allclose(found, of_the_cpu.score("psmi", checkpoint=0), atol=1e-5)


def kept_states(folder, device, monkeypatch):
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(folder))
    make, data = recipes.RECIPES["LoRA, prefix kept"]
    make(data()).feeder(data(), torch.device(device), "float32")
    (file,) = folder.rglob("states.bf16")
    return file.read_bytes()


def test_prompts_of_the_frozen_blocks_that_do_not_fit_leave_no_file(
    device, hardware, tmp_path, monkeypatch
):
    hardware.largest = 3
    with pytest.raises(MemoryError, match=r"16 prompts.*cache=False"):
        kept_states(tmp_path / "none", device, monkeypatch)
    assert not list((tmp_path / "none").rglob("*states*"))


def on_the_device(of_the_cpu, device, path):
    """A copy of the run without its scores, opened on the device."""
    of_the_cpu.score("loss", checkpoint="final")
    shutil.copytree(of_the_cpu.path, path, ignore=shutil.ignore_patterns("scores"))
    model = of_the_cpu.run.model
    return mw.Audit.open(path, data=of_the_cpu.data, model=model, device=device)


def test_psmi_that_runs_out_of_memory_is_computed_on_the_cpu(
    of_the_cpu, device, hardware, tmp_path, monkeypatch
):
    """Other programs, or many classes, leave less memory than the size of the states needs."""
    calls, check = [], pretend.Device.check

    def fails(self, operation, result):
        check(self, operation, result)
        calls.extend([operation] * (operation == "aten::mm"))
        if operation == "aten::mm" and len(calls) == 2:
            raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(pretend.Device, "check", fails)
    made = on_the_device(of_the_cpu, device, tmp_path / "run")
    with pytest.warns(UserWarning, match="memory of pretend.* on the CPU"):
        found = made.score("psmi", checkpoint="final")
    assert len(calls) == 2
    assert hardware.emptied
    np.testing.assert_array_equal(found, of_the_cpu.score("psmi", checkpoint="final"))


class Losing(Progress):
    """Progress at whose n-th report the device is lost."""

    def __init__(self, hardware, n):
        super().__init__()
        self._hardware, self._left = hardware, n

    def report(self, done, total, what):
        self._left -= 1
        self._hardware.lost |= self._left == 0


def test_a_lost_device_is_one_sentence_and_what_it_computed_stays(
    of_the_cpu, device, hardware, tmp_path
):
    made = audit("ConvNet", tmp_path / "run", device)
    with pytest.raises(
        DeviceError, match=r"pretend has failed \(.*What is finished is kept"
    ):
        made.train(progress=Losing(hardware, 3))
    assert len(made.checkpoints) == 2
    moved = audit("ConvNet", tmp_path / "run", "cpu")
    moved.train()
    assert_trained_alike(moved, of_the_cpu)


def test_a_process_goes_on_on_the_cpu_after_its_device_was_lost(
    of_the_cpu, device, hardware, tmp_path
):
    made = on_the_device(of_the_cpu, device, tmp_path / "run")
    hardware.lost = True
    for checkpoint in (0, "final"):  # a pass is missing, or is there
        with pytest.raises(DeviceError, match="pretend has failed"):
            made.score("psmi", checkpoint=checkpoint)
    found = audit("ConvNet", tmp_path / "run", "cpu").score("psmi", checkpoint="final")
    np.testing.assert_allclose(
        found, of_the_cpu.score("psmi", checkpoint="final"), atol=1e-5
    )


def test_a_lost_gpu_says_so_beside_compute(monkeypatch):
    def lost(_name):
        raise RuntimeError("CUDA error: unspecified launch failure\nCompile with …")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    assert device_status("cuda:1") == "cuda:1, CUDA error: unspecified launch failure"


def test_no_model_is_kept_on_a_device_without_any_free_memory(
    device, hardware, tmp_path
):
    made = audit("ConvNet", tmp_path / "run", device)
    hardware.free = 0
    made.train()
    assert made.run.loaded._learner is None


def test_an_error_of_the_work_is_not_one_of_the_device(device, tmp_path):
    def wrong(n_classes):
        return nn.Sequential(nn.Flatten(), Wrong(), nn.Linear(64, n_classes))

    model = mw.models.TorchClassifier(wrong, version="1")
    with pytest.raises(RuntimeError, match="size of tensor") as raised:
        mw.Audit(model, recipes.digits(), path=tmp_path / "run", device=device).train()
    assert not isinstance(raised.value, DeviceError)


class Wrong(nn.Module):
    """Fails in training, for want of equal shapes."""

    def forward(self, x):
        return x + torch.ones(3, device=x.device) if self.training else x


def test_autocast_is_that_of_the_device(device):
    context = mw.models.ConvNet(4).autocast(torch.device(device), "bfloat16")
    assert (context.device, context.fast_dtype) == (device, torch.bfloat16)


def watched(path, on):
    """A loop of one's own on a device; its data stay on the CPU."""
    data, module = samples(), mlp().to(on)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    watch = mw.watch(module, data, path=path, steps_per_epoch=STEPS, checkpoint_every=1)
    for _ in range(2):
        for start in range(0, len(data), BATCH):
            x, y = (part[start : start + BATCH].to(on) for part in data.tensors)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
            watch.step()
    return watch.audit


def test_a_watched_loop_on_the_device_is_that_of_the_cpu(device, tmp_path):
    here, there = (watched(tmp_path / on, on) for on in ("cpu", device))
    assert_trained_alike(here, there)
    for metric in ("psmi", "loss", "csl"):
        one, other = (made.score(metric, checkpoint="final") for made in (here, there))
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_watched_pass_that_does_not_fit_names_its_batch(
    device, tmp_path, monkeypatch
):
    def full(*_, **_options):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(passes, "filled_pass", full)
    with pytest.raises(
        MemoryError, match=r"48 samples at once.* batch_size= to mw\.watch"
    ):
        watched(tmp_path / "device", device)


def by_a_trainer(path, on, monkeypatch):
    """What a Trainer and the callback make of a model, on a device."""
    data = recipes.questions()
    module, tokenizer = recipes.language_model(data), recipes.word_tokenizer(data)
    made = make_audit(module, tokenizer, data, path, device="cpu")
    callback = mw.training.MemorizationCallback(made, stop_at_drop=None)
    # AdamW's first steps have one size, and only the rounding of some signs
    course = {"num_train_epochs": 2, "learning_rate": 0.1, "optim": "sgd"}
    arguments = TrainingArguments(str(path), **course, **QUIET, **ON_THE_CPU)
    # accelerate chooses among the kinds of devices that it knows, and no argument names another.
    monkeypatch.setitem(vars(arguments), "_setup_devices", torch.device(on))
    monkeypatch.setitem(PartialState._shared_state, "device", torch.device(on))
    rows = script_rows(data, tokenizer)
    trainer = Trainer(module, arguments, collate, rows, callbacks=[callback])
    # the Trainer has moved the model, and a second move gives it weights that no optimizer has
    trainer.accelerator.device_placement = False
    trainer.train()
    monkeypatch.undo()
    return made, trainer


def test_a_trainer_on_the_device_gives_the_audit_that_it_gives_on_the_cpu(
    device, tmp_path, monkeypatch
):
    (here, _), (there, trainer) = (
        by_a_trainer(tmp_path / on, on, monkeypatch) for on in ("cpu", device)
    )
    assert {p.device.type for p in trainer.model.parameters()} == {device}
    assert len(there.checkpoints) == 3
    assert there.checkpoints["drop"].iloc[-1] > 0.1
    assert_trained_alike(here, there)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        scores = [made.score("logit_gap", checkpoint="final") for made in (here, there)]
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_deterministic_algorithms_are_on_while_the_device_works_and_not_afterwards(
    of_the_cpu, device, tmp_path, monkeypatch
):
    seen = []
    real = mw.models.ConvNet.outputs

    def outputs(self, module, inputs, labels):
        backends = torch.backends
        tf32 = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
        seen.append((torch.are_deterministic_algorithms_enabled(), *tf32))
        return real(self, module, inputs, labels)

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    monkeypatch.setattr(mw.models.ConvNet, "outputs", outputs)
    made = audit("ConvNet", tmp_path / "run", device, deterministic=True)
    made.train()
    assert set(seen) == {(True, False, False)}
    assert not torch.are_deterministic_algorithms_enabled()
    assert before == (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
    )
    assert_trained_alike(made, of_the_cpu)
    seen.clear()
    audit("ConvNet", tmp_path / "plain", device).train()
    assert {one[0] for one in seen} == {False}


def test_deterministic_products_are_possible_later_in_a_process_that_began_without(
    monkeypatch,
):
    """CUDA reads the setting at its first product, whatever that is for."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with working_on(torch.device("cpu")):
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    with working_on(torch.device("cuda:0")):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with working_on(torch.device("cuda:0")):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_attention_on_a_gpu_is_not_cudnns_whose_gradients_of_left_padding_are_not_finite():
    """On an H200 (torch 2.11) the tenth step of a Llama had NaN in its gradients."""
    enabled = torch.backends.cuda.cudnn_sdp_enabled
    assert enabled()
    with working_on(torch.device("cuda:0")):
        assert not enabled()
    assert enabled()


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (4, 4), (1, 1), (7, 2)])
def test_pooling_that_is_deterministic_on_the_device_is_that_of_torch(shape, device):
    made = mw.models.ConvNet(1).build(recipes.digits()).hidden[0]
    found = []
    for on, exact in (("cpu", False), (device, True)):
        held = torch.rand(3, 2, *shape, generator=torch.Generator().manual_seed(0))
        x = held.to(on).requires_grad_()
        with working_on(torch.device(on), deterministic=exact):
            y = made(x)
            (y * torch.arange(4.0, device=on).reshape(2, 2)).sum().backward()
        found.append((y.detach().cpu(), x.grad.cpu()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_psmi_runs_on_the_device(of_the_cpu, device, tmp_path, monkeypatch):
    there = on_the_device(of_the_cpu, device, tmp_path / "run")
    seen = []
    real = mw.metrics.PSMI.fit
    monkeypatch.setattr(
        mw.metrics.PSMI, "fit", lambda s, x, y: seen.append(x) or real(s, x, y)
    )
    layer = there.layers[0]
    scores = there.score("psmi", layer=layer, checkpoint="final")
    assert [str(x.device) for x in seen] == [f"{device}:0"]
    expected = of_the_cpu.score("psmi", layer=layer, checkpoint="final")
    np.testing.assert_allclose(scores, expected, atol=1e-5)


class Noting(Inline):
    """Executor of a cluster's machine, which notes the device that each model is trained on."""

    def __init__(self, monkeypatch):
        self.devices = []
        real = worker.train_shadow

        def train(job, index, progress):
            self.devices.append(job.recipe.device)
            return real(job, index, progress)

        monkeypatch.setattr(worker, "train_shadow", train)


@pytest.mark.parametrize(("asked", "used"), [("auto", "pretend:0"), ("cpu", "cpu")])
def test_a_worker_elsewhere_chooses_its_own_device_if_none_was_named(
    asked, used, device, tmp_path, monkeypatch
):
    made = audit("ConvNet", tmp_path / "run", asked)
    made.train()
    executor = Noting(monkeypatch)
    monkeypatch.setattr(
        worker, "resolve_device", lambda name: f"{device}:0" if name == "auto" else name
    )
    made.run_shadows(1, executor)
    assert executor.devices == [used]
    fork = made.fork(tmp_path / "fork", data=made.data, start="scratch")
    assert fork.run.recipe().anywhere == (asked == "auto")
