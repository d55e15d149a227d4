"""What a device computes in, and what a full one says."""

from __future__ import annotations

import pytest
import torch

from memowidgets.models import ConvNet
from memowidgets.models.device import resolve_precision, room_for


def test_float32_is_float32_also_inside_autocast_of_ones_own():
    """The context is left out only where nothing would be computed otherwise."""
    cpu, x = torch.device("cpu"), torch.ones(2, 2)
    for precision, expected in (
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
    ):
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
        RuntimeError(
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
        ),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_full_memory_is_known_whatever_library_says_so(error):
    with (
        pytest.raises(MemoryError, match=r"hold 8 samples; pass less\."),
        room_for("8 samples", "pass less"),
    ):
        raise error


def test_another_error_of_the_gpu_stays_what_it_is():
    with pytest.raises(RuntimeError, match="illegal memory access"), room_for():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


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
    found = [
        resolve_precision(torch.device(name), "auto")
        for name in ("cuda:1", "cuda:0", "cuda")
    ]
    assert found == ["bfloat16", "float32", "float32"]
    assert current == [0]
