"""``memowidgets doctor --device NAME`` tells a device that computes from one that errs."""

from __future__ import annotations

import pytest

import memowidgets as mw
from memowidgets.__main__ import main
from memowidgets.commands.doctor import check_device
from tests.training.small import Inline


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    # the doctests may have loaded its module once more
    doctor = check_device.__globals__
    monkeypatch.setitem(doctor, "_SAMPLES", 120)
    monkeypatch.setitem(doctor, "_EPOCHS", 1)
    monkeypatch.setitem(doctor, "_PSMI_SHAPE", (60, 8))
    # A worker process takes seconds to start; test_hardware.py has them on the device.
    train = mw.Audit.run_shadows

    def inline(audit, n, executor=None, *, progress, **_):
        train(audit, n, executor or Inline(), progress=progress)

    monkeypatch.setattr(mw.Audit, "run_shadows", inline)


def table(device, capsys):
    """Exit code, and the rows by what they compare."""
    code = main(["doctor", "--device", device])
    rows = capsys.readouterr().out.splitlines()
    return code, {row[7:38].strip(): (row[:6].strip(), row) for row in rows}


def test_a_device_that_computes_as_the_cpu_does_is_well(device, capsys):
    code, rows = table(device, capsys)
    assert code == 0
    compared = ["logit gaps, same weights", "PSMI", "log-LiRA"]
    timed = ["training step", "pass, each sample", "PSMI of 60 x 8"]
    assert list(rows) == ["", *compared, *timed]
    assert {rows[what][0] for what in rows} == {"ok"}
    assert all("times as" in rows[what][1] for what in timed)


def test_a_device_that_errs_is_wrong_and_there_is_a_fix(device, hardware, capsys):
    hardware.skew = 0.3
    code, rows = table(device, capsys)
    assert code == 1
    sign, row = rows["logit gaps, same weights"]
    assert sign == "WRONG"
    assert "or this device errs" in row
    assert "fix: update the device's driver" in row


def test_a_lost_device_ends_the_table_with_a_sentence(device, hardware, capsys):
    hardware.lost = True
    code, rows = table(device, capsys)
    assert code == 1
    assert list(rows) == ["", "training"]
    assert "the device pretend has failed" in rows["training"][1]


@pytest.mark.parametrize(
    ("name", "said"),
    [("warp", "unknown device 'warp'"), ("cpu", "name another, such as cuda")],
)
def test_a_device_that_cannot_be_compared_is_one_sentence(name, said, capsys):
    assert main(["doctor", "--device", name]) == 2
    assert said in capsys.readouterr().err
