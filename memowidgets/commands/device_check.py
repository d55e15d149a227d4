"""Check that a device computes what the CPU does, and how fast, with a small audit on both."""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.commands.runs import CommandError
from memowidgets.files import write_whole
from memowidgets.progress import Progress
from memowidgets.visible import first_line, visible

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
class Check:
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
    numbers : mapping of str to float
        The numbers behind `here`, `there` and `said`, with their units in their names.

    Examples
    --------
    >>> print(Check("training step", "3.1 ms", "0.9 ms", "3.4 times as fast"))
    ok     training step                  3.1 ms       0.9 ms       3.4 times as fast
    """

    what: str
    here: str = ""
    there: str = ""
    said: str = ""
    fix: str = ""
    wrong: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        sign = "WRONG" if self.wrong else "note" if self.fix else "ok"
        fix = f"; fix: {self.fix}" if self.fix else ""
        return (
            f"{sign:<6} {self.what:<30} {self.here:<12} {self.there:<12} {self.said}{fix}".strip()
        )


def check_device(name: str) -> Iterator[Check]:
    """Train a small audit on the CPU and on a device, and compare and time both.

    Parameters
    ----------
    name : str
        Device, as torch names it.

    Yields
    ------
    Check
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
    yield Check("", "CPU", device)
    with tempfile.TemporaryDirectory(prefix="memowidgets-doctor-") as folder:
        yield from compared(Path(folder), device)


def compared(folder: Path, device: str) -> Iterator[Check]:
    """Yield the rows on what a device computes, with audits in a folder."""
    try:
        here = _audit(folder / "cpu", "cpu")
        there = _audit(folder / "device", device)
    except _FAILURES as error:
        yield _failed("training", error)
        return
    both = here, there
    checks: dict[str, Callable[[str], Check]] = {
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


def _failed(what: str, error: Exception) -> Check:
    return Check(what, "", "fails", first_line(error), _UPDATE, wrong=True)


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


def _gaps(what: str, here: Audit, device: str) -> Check:
    """Compare the logit gaps of the same weights."""
    from memowidgets.audit import Audit
    from memowidgets.models import ConvNet

    moved = Audit.open(here.path, data=here.data, model=ConvNet(), device=device)
    runs = here.run, moved.run
    end = here.evidence.names.record("final")
    one, other = (np.asarray(run.gaps_of(end, run.design.members)) for run in runs)
    off = float(np.abs(one - other).max() / np.std(one))
    said, wrong = "standard deviations at most", not off <= _OFF
    said += f"; rounding explains {_OFF}" if wrong else ""
    numbers = {"largest_difference_in_standard_deviations": off}
    return _compared_row(what, off, said, numbers, wrong=wrong)


def _truth(what: str, here: Audit, there: Audit) -> Check:
    """Compare log-LiRA, with the device's shadow models in a worker process as users have it."""
    with ThreadPoolExecutor(1) as thread, _quietly():
        here.run_shadows(_N_SHADOWS, thread, progress=Progress())
        there.run_shadows(_N_SHADOWS, processes=1, progress=Progress())
        return _order(what, *(audit.log_lira() for audit in (here, there)))


def _order(what: str, one: Any, other: Any) -> Check:
    """Compare the order of the samples after two trainings, whose values differ by rounding."""
    rank = float(one.rank().corr(other.rank()))
    off = float(np.abs(one - other).max())
    said, wrong = f"at most; rank correlation {rank:.3f}", not rank >= _SAME_ORDER[what]
    said += f", below {_SAME_ORDER[what]}" if wrong else ""
    numbers = {"largest_difference": off, "rank_correlation": rank}
    return _compared_row(what, off, said, numbers, wrong=wrong)


def _compared_row(
    what: str, off: float, said: str, numbers: Mapping[str, float], *, wrong: bool
) -> Check:
    fix = _UPDATE if wrong else ""
    return Check(what, "", f"off by {off:.1g}", said, fix, wrong=wrong, numbers=numbers)


def _precision(what: str, folder: Path, here: Audit, device: str) -> Check:
    """Train in bfloat16, which `precision="auto"` chooses if the device is fast in it."""
    from memowidgets.models.device import resolve_precision, torch_device

    auto = resolve_precision(torch_device(device), "auto")
    try:
        audit = _audit(folder / "bfloat16", device, "bfloat16")
    except (ValueError, RuntimeError, FloatingPointError) as error:
        fix = "train in the precision float32"
        return Check(what, "", "fails", first_line(error), fix)
    ends = (made.evidence.names.record("final") for made in (here, audit))
    losses = [float(end.train_loss) for end in ends]
    one, other = (f"loss {loss:.3f}" for loss in losses)
    said = f"the CPU's in float32; auto means {auto} on the device"
    numbers = {"cpu_loss_in_float32": losses[0], "device_loss_in_bfloat16": losses[1]}
    return Check(what, one, other, said, numbers=numbers)


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


def _psmi(what: str, device: str) -> Check:
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


def _times(what: str, here: float, there: float) -> Check:
    slow = there > here
    said = f"{there / here:.1f} times as slow" if slow else f"{here / there:.1f} times as fast"
    numbers = {"cpu_seconds": here, "device_seconds": there}
    return Check(what, _spoken(here), _spoken(there), said, numbers=numbers)


def _spoken(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds * 1e6:.0f} us"


def write_report(file: Path, device: str | None, checks: Sequence[Check]) -> None:
    """Write versions, hardware, verdicts and numbers as JSON, for an issue about a device.

    Parameters
    ----------
    file : Path
        The file, which is replaced.
    device : str or None
        Device that was checked; None if none was.
    checks : sequence of Check
        The rows of its table.

    Raises
    ------
    CommandError
        If the file cannot be written.
    """
    from memowidgets.doctor import versions

    found = {
        "format": 1,
        "packages": versions(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "device": None if device is None else {"name": device, "model": _model_of(device)},
        "checks": [
            {
                "what": check.what or "device",
                "verdict": "wrong" if check.wrong else "note" if check.fix else "ok",
                "numbers": {k: v for k, v in check.numbers.items() if math.isfinite(v)},
            }
            for check in checks
        ],
    }
    text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        write_whole(file, text.encode(), mode=0o666)
    except OSError as error:
        raise CommandError(
            f"{visible(str(file))} cannot be written ({error.strerror}); pass another --json"
        ) from None


def _model_of(device: str) -> str:
    import torch

    with suppress(RuntimeError, AssertionError):  # the checks say what is wrong with it
        return torch.cuda.get_device_name(device) if device.startswith("cuda") else ""
    return ""
