"""Check that a device computes what the CPU does, and how fast, with a small audit on both."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.commands.runs import CommandError
from memowidgets.progress import Progress
from memowidgets.visible import first_line

if TYPE_CHECKING:
    from memowidgets.audit import Audit
    from memowidgets.training.learner import Learner


_N_SHADOWS = 4
_OFF = 0.01  # largest difference of a logit gap by rounding, in standard deviations of all gaps
_SAME_ORDER = {"PSMI": 0.98, "log-LiRA": 0.9}  # least rank correlation of two trainings
_PSMI_SHAPE = (4000, 512)
_SAMPLES, _EPOCHS = 400, 4
_STEPS = 10
_FAILURES = (RuntimeError, MemoryError, OSError, ValueError, FloatingPointError)
_UPDATE = "update the device's driver and torch, and compute on the CPU until then"


@dataclass(frozen=True)
class Measured:
    """One row of the table.

    Attributes
    ----------
    what : str
        What was compared.
    here, there : str
        Value on the CPU and on the device.
    said : str
        What that means.
    fix : str
        How to fix it. Empty if nothing is wrong.
    wrong : bool
        Whether the device must not be used until it is fixed.

    Examples
    --------
    >>> print(Measured("training step", "3.1 ms", "0.9 ms", "3.4 times as fast"))
    ok     training step                  3.1 ms       0.9 ms       3.4 times as fast
    """

    what: str
    here: str = ""
    there: str = ""
    said: str = ""
    fix: str = ""
    wrong: bool = False

    def __str__(self) -> str:
        sign = "WRONG" if self.wrong else "note" if self.fix else "ok"
        fix = f"; fix: {self.fix}" if self.fix else ""
        line = f"{sign:<6} {self.what:<30} {self.here:<12} {self.there:<12} {self.said}{fix}"
        return line.strip()


def check_device(name: str) -> Iterator[Measured]:
    """Train a small audit on the CPU and on a device, and compare and time both.

    Parameters
    ----------
    name : str
        Device, as torch names it.

    Yields
    ------
    Measured
        One row as soon as it is known: the device, equal logit gaps from the same weights, equal
        order of PSMI and log-LiRA after training, bfloat16, and the times of a training step, a
        pass and PSMI.

    Raises
    ------
    CommandError
        If there is no such device.
    """
    from memowidgets.models.device import resolve_device

    try:
        device = resolve_device(name)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if device == "cpu":
        found = "" if name == "cpu" else f"{name} means the CPU on this machine, and "
        raise CommandError(
            f"{found}the CPU is what a device is compared with; name another, such as cuda"
        )
    yield Measured("", "CPU", device)
    with tempfile.TemporaryDirectory(prefix="memowidgets-doctor-") as folder:
        yield from compared(Path(folder), device)


def compared(folder: Path, device: str) -> Iterator[Measured]:
    """Yield the rows on what a device computes, with audits in a folder."""
    try:
        here = _audit(folder / "cpu", "cpu")
        there = _audit(folder / "device", device)
    except _FAILURES as error:
        yield _failed("training", error)
        return
    both = here, there
    checks: dict[str, Callable[[str], Measured]] = {
        "logit gaps, same weights": lambda what: _gaps(what, here, device),
        "PSMI": lambda what: _order(what, *(a.score("psmi", "last", "final") for a in both)),
        "log-LiRA": lambda what: _truth(what, here, there),
        "bfloat16": lambda what: _precision(what, folder, here, device),
        "training step": lambda what: _times(what, *(_seconds(a, _steps) / _STEPS for a in both)),
        "pass, each sample": lambda what: _times(
            what, *(_seconds(a, _pass) / len(a.members) for a in both)
        ),
        "PSMI of {} x {}".format(*_PSMI_SHAPE): lambda what: _psmi(what, device),
    }
    for what, check in checks.items():
        try:
            yield check(what)
        except _FAILURES as error:
            yield _failed(what, error)


def _failed(what: str, error: Exception) -> Measured:
    return Measured(what, "", "fails", first_line(error), _UPDATE, wrong=True)


def _audit(path: Path, device: str, precision: str = "float32") -> Audit:
    """Return a trained audit of a small network on handwritten digits."""
    from memowidgets.audit import Audit
    from memowidgets.data import load_digits
    from memowidgets.models import ConvNet
    from memowidgets.training import TrainingConfig

    data = load_digits().take(np.arange(_SAMPLES))
    training = TrainingConfig(epochs=_EPOCHS, batch_size=32, precision=precision)
    audit = Audit(ConvNet(), data, path=path, training=training, device=device, held_out=None)
    with _quietly():
        audit.train(progress=Progress())
    return audit


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide warnings that so small an audit gives, such as of few shadow models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _gaps(what: str, here: Audit, device: str) -> Measured:
    """Compare the logit gaps of the same weights."""
    from memowidgets.audit import Audit
    from memowidgets.models import ConvNet

    moved = Audit.open(here.path, data=here.data, model=ConvNet(), device=device)
    runs = here.run, moved.run
    end = here.evidence.names.record("final")
    one, other = (np.asarray(run.gaps_of(end, run.design.members)) for run in runs)
    off = float(np.abs(one - other).max() / np.std(one))
    said = f"standard deviations at most; rounding explains {_OFF}"
    return _compared_row(what, off, said, wrong=not off <= _OFF)


def _truth(what: str, here: Audit, there: Audit) -> Measured:
    """Compare log-LiRA, with the device's shadow models in a worker process as users have it."""
    with ThreadPoolExecutor(1) as thread, _quietly():
        here.run_shadows(_N_SHADOWS, thread, progress=Progress())
        there.run_shadows(_N_SHADOWS, processes=1, progress=Progress())
        return _order(what, *(audit.log_lira() for audit in (here, there)))


def _order(what: str, one: Any, other: Any) -> Measured:
    """Compare the order of the samples after two trainings, whose values differ by rounding."""
    rank = float(one.rank().corr(other.rank()))
    said = f"at most; rank correlation {rank:.3f}, at least {_SAME_ORDER[what]} where nothing errs"
    wrong = not rank >= _SAME_ORDER[what]
    return _compared_row(what, float(np.abs(one - other).max()), said, wrong=wrong)


def _compared_row(what: str, off: float, said: str, *, wrong: bool) -> Measured:
    return Measured(what, "", f"off by {off:.1g}", said, _UPDATE if wrong else "", wrong)


def _precision(what: str, folder: Path, here: Audit, device: str) -> Measured:
    """Train in bfloat16, which `precision="auto"` chooses if the device is fast in it."""
    from memowidgets.models.device import resolve_precision, torch_device

    auto = resolve_precision(torch_device(device), "auto")
    try:
        audit = _audit(folder / "bfloat16", device, "bfloat16")
    except (ValueError, RuntimeError, FloatingPointError) as error:
        fix = "train in the precision float32"
        return Measured(what, "", "fails", first_line(error), fix)
    ends = (made.evidence.names.record("final") for made in (here, audit))
    one, other = (f"loss {float(end.train_loss):.3f}" for end in ends)
    return Measured(what, one, other, f"the CPU's in float32; auto means {auto} on the device")


def _steps(learner: Learner) -> None:
    learner.advance(learner.step + _STEPS, Progress(), "training")


def _pass(learner: Learner) -> None:
    learner.look_at(learner.members)


def _seconds(audit: Audit, work: Callable[[Learner], None]) -> float:
    """Return the seconds of a new learner's work, which is done once before to warm up."""
    from memowidgets.models.device import torch_device, wait_for
    from memowidgets.training.learner import Learner

    learner = Learner(audit.run.recipe(), audit.run.design.members, 0)
    device = torch_device(audit.run.device)
    for _ in range(2):
        wait_for(device)
        start = time.perf_counter()
        work(learner)
        wait_for(device)
    return time.perf_counter() - start


def _psmi(what: str, device: str) -> Measured:
    """Time PSMI of random states, after once to warm up."""
    import torch

    from memowidgets.metrics import PSMI

    n, d = _PSMI_SHAPE
    labels = np.arange(n) % 10
    states = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32) + labels[:, None] / 10
    on = torch.from_numpy(states).to(device)

    def seconds(x: Any) -> float:
        start = time.perf_counter()
        PSMI().fit(x, labels).score_samples(x, labels)  # NumPy arrays: the device is done
        return time.perf_counter() - start

    return _times(what, *(min(seconds(x) for _ in range(2)) for x in (states, on)))


def _times(what: str, here: float, there: float) -> Measured:
    slow = there > here
    said = f"{there / here:.1f} times as slow" if slow else f"{here / there:.1f} times as fast"
    return Measured(what, f"{1e3 * here:.3g} ms", f"{1e3 * there:.3g} ms", said)
