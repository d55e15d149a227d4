"""The table of `python -m benchmarks gpu`: all of it on a CPU, and without a device or memory."""

from argparse import Namespace

import pytest

from benchmarks import on_gpu


@pytest.mark.slow
def test_every_part_runs_on_a_cpu_but_what_has_no_memory(monkeypatch):
    asked = Namespace(device="cpu", tiny=True, cifar10=None)
    rows = on_gpu.rows(asked)
    assert not [row for row in rows if row.ours == "left out"]
    for part in ("log-LiRA", "bfloat16", "WideResNet", "2 at once", "PSMI of 500", "top:1", "MMLU"):
        assert any(part in row.work for row in rows)

    def fail(*_):
        raise RuntimeError("CUDA out of memory")

    for part in ("_results", "_psmi", "_llama"):
        monkeypatch.setattr(on_gpu, part, lambda *_: rows[:1])
    monkeypatch.setattr(on_gpu, "_images", fail)
    _, lost, *others = on_gpu.rows(asked)
    assert (lost.ours, lost.other) == ("left out", "CUDA out of memory")
    assert others == 3 * rows[:1]  # the parts after it are measured


def test_what_it_needs_is_named():
    with pytest.raises(SystemExit, match="cuda:7"):
        on_gpu.rows(Namespace(device="cuda:7", tiny=True, cifar10=None))
    (row,) = on_gpu.rows(Namespace(device="cpu", tiny=False, cifar10=None))
    assert "--tiny" in row.other
