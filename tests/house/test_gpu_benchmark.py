"""The table of `python -m benchmarks gpu`: all of it on a CPU, and without a device or memory."""

from argparse import Namespace

import pytest

from benchmarks import on_gpu


def asked(device="cpu", tiny=True):
    return Namespace(device=device, tiny=tiny, cifar10=None)


@pytest.mark.slow
def test_every_part_runs_on_a_cpu():
    rows = on_gpu.rows(asked())
    assert not [row for row in rows if row.ours == "left out"]
    for part in ("log-LiRA", "bfloat16", "WideResNet", "2 at once", "PSMI of 500", "top:1", "MMLU"):
        assert any(part in row.work for row in rows)


def test_what_it_needs_is_named():
    with pytest.raises(SystemExit, match="cuda:7"):
        on_gpu.rows(asked("cuda:7"))
    (row,) = on_gpu.rows(asked(tiny=False))
    assert "--tiny" in row.other


@pytest.mark.slow
def test_a_part_without_memory_is_left_out_and_the_next_ones_run(monkeypatch):
    def fail(*_):
        raise RuntimeError("CUDA out of memory")

    for part in ("_results", "_images", "_llama"):
        monkeypatch.setattr(on_gpu, part, fail)
    rows = on_gpu.rows(asked())
    assert [row.other for row in rows if row.ours == "left out"] == ["CUDA out of memory"] * 4
    assert any("PSMI of 500" in row.work for row in rows)
