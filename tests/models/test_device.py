"""Copies to a device: without waiting on CUDA, unchanged elsewhere; autocast only where needed."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
import torch

from memowidgets.models import ConvNet, device
from memowidgets.models.device import Memory, resolve_precision, sent


class Noting:
    """Stands for a tensor, and notes what is asked of it."""

    def __init__(self, where):
        self.device, self.asked = torch.device(where), []

    def pin_memory(self):
        self.asked.append("pin_memory")
        return self

    def to(self, device, **how):
        self.asked.append((str(device), how))
        return self


@pytest.mark.parametrize(
    ("where", "device", "asked"),
    [
        ("cpu", "cuda:1", ["pin_memory", ("cuda:1", {"non_blocking": True})]),
        ("cuda:0", "cuda:1", [("cuda:1", {})]),
        ("cuda:0", "cpu", [("cpu", {})]),
        ("cpu", "cpu", [("cpu", {})]),
        ("cpu", "mps", [("mps", {})]),
    ],
)
def test_only_copies_to_cuda_are_pinned_and_do_not_wait(where, device, asked):
    tensor = Noting(where)
    assert sent(tensor, torch.device(device)) is tensor
    assert tensor.asked == asked


def test_float32_is_float32_also_inside_autocast_of_ones_own():
    """The context is left out only where nothing would be computed otherwise."""
    cpu, x = torch.device("cpu"), torch.ones(2, 2)
    for precision, expected in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        with ConvNet(4).autocast(cpu, precision):
            assert (x @ x).dtype == expected
        with torch.autocast("cpu", torch.bfloat16), ConvNet(4).autocast(cpu, precision):
            assert (x @ x).dtype == expected


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be …"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_full_memory_is_known_whatever_library_says_so(error):
    sizes = [4]

    def work():
        if sizes[-1] > 1:
            raise error
        return "done"

    def halve():
        sizes.append(sizes[-1] // 2)
        return sizes[-1]

    with pytest.warns(UserWarning, match="smaller parts"):
        assert Memory(torch.device("cpu")).fit(work, halve) == "done"
    assert sizes == [4, 2, 1]


def test_another_error_of_the_gpu_halves_nothing():
    def work():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        Memory(torch.device("cpu")).fit(work, lambda: pytest.fail("halved"))


def test_the_precision_is_that_of_the_gpu_that_computes(monkeypatch):
    """A machine may have an older GPU beside a newer one."""
    current = [0]

    class Chosen:
        def __init__(self, index):
            self._index = index

        def __enter__(self):
            current.append(self._index)

        def __exit__(self, *_):
            current.pop()

    monkeypatch.setattr(torch.cuda, "device", Chosen)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: current[-1] == 1)
    found = [resolve_precision(torch.device(name), "auto") for name in ("cuda:1", "cuda:0", "cuda")]
    assert found == ["bfloat16", "float32", "float32"]
    assert current == [0]


V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


@pytest.mark.parametrize(
    ("cgroup", "groups", "free"),
    [
        ("0::/job/step", {"job/step": (V2, 900, 500, 100)}, 500),
        ("0::/job/step", {"job/step": (V2, "max", 500, 0), "job": (V2, 600, 500, 50)}, 150),
        ("0::/elsewhere", {"": (V2, 700, 100, 0)}, 600),  # a container sees only its own
        ("0::/job", {"job": (V2, "max", 500, 0)}, 1000),
        ("0::/job", {"job": (V2, 400, 500, 0)}, 0),
        ("4:cpu,memory:/job\n1:pids:/job\n0::/", {"memory/job": (V1, 800, 300, 200)}, 700),
        ("4:memory:/job", {"memory/job": (V1, 2**63 - 4096, 300, 0)}, 1000),
        ("4:cpu:/job", {"job": (V2, 1, 0, 0)}, 1000),
        (None, {}, 1000),
    ],
)
def test_free_memory_is_that_of_the_machine_and_of_its_control_groups(
    tmp_path, monkeypatch, cgroup, groups, free
):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    if cgroup is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(cgroup + "\n")
    for name, ((limit, used, dropped), most, taken, files) in groups.items():
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / limit).write_text(f"{most}\n")
        (folder / used).write_text(f"{taken}\n")
        (folder / "memory.stat").write_text(f"anon 7\n{dropped} {files}\n")
    assert device.free_main_memory(tmp_path) == free
