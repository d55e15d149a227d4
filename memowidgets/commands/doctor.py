"""``python -m memowidgets doctor``: what is installed, and whether a device computes as the CPU."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from memowidgets.commands.runs import CommandError
from memowidgets.extras import PURPOSES, pip_install
from memowidgets.progress import Progress
from memowidgets.vocabulary import first_line

if TYPE_CHECKING:
    from memowidgets.audit import Audit
    from memowidgets.training.learner import Learner

_TESTED_PYTHONS = ((3, 11), (3, 13))
_GIB = 2**30
_N_SHADOWS = 4
_OFF = 0.01  # largest difference of a logit gap by rounding, in standard deviations of all gaps
_SAME_ORDER = {"PSMI": 0.98, "log-LiRA": 0.9}  # least rank correlation of two trainings
_PSMI_SHAPE = (4000, 512)
_SAMPLES = 400
_EPOCHS = 4
_STEPS = 10
_FAILURES = (RuntimeError, MemoryError, OSError, ValueError, FloatingPointError)
_UPDATE = "update the device's driver and torch, and compute on the CPU until then"


@dataclass(frozen=True)
class Finding:
    """Result of one check, a line of what is printed.

    Attributes
    ----------
    what : str
        The checked thing and its state, or what was compared on a device.
    fix : str
        How to fix it. Empty if nothing is wrong.
    wrong : bool
        Whether memowidgets cannot work, or the device must not be used, until it is fixed.
    here, there, said : str
        Value on the CPU and on the device, and what that means.

    Examples
    --------
    >>> print(Finding("numpy is not installed", "pip install numpy", wrong=True))
    WRONG  numpy is not installed; fix: pip install numpy
    >>> print(Finding("training step", here="3.1 ms", there="0.9 ms", said="3.4 times as fast"))
    ok     training step                  3.1 ms       0.9 ms       3.4 times as fast
    """

    what: str
    fix: str = ""
    wrong: bool = False
    here: str = ""
    there: str = ""
    said: str = ""

    def __str__(self) -> str:
        sign = "WRONG" if self.wrong else "note" if self.fix else "ok"
        line = f"{self.what:<30} {self.here:<12} {self.there:<12} {self.said}".rstrip()
        return f"{sign:<6} {line}{f'; fix: {self.fix}' if self.fix else ''}".strip()


def examine() -> Iterator[Finding]:
    """Check everything that memowidgets depends on.

    Yields
    ------
    Finding
        One result per check, as soon as it is known, in the order: Python, packages, device,
        notebook.

    Examples
    --------
    >>> next(examine()).what.startswith("Python 3.")
    True
    """
    yield _python()
    yield Finding(f"{platform.platform()}, {os.cpu_count()} cores")
    for requirement, extra in _requirements():
        yield _package(requirement, extra)
    yield _device()
    yield from _notebook()


def _python() -> Finding:
    version = platform.python_version()
    low, high = (".".join(map(str, v)) for v in _TESTED_PYTHONS)
    if sys.version_info[:2] < _TESTED_PYTHONS[0]:
        return Finding(
            f"Python {version}", f"install Python {low} or newer", wrong=True
        )
    if sys.version_info[:2] > _TESTED_PYTHONS[1]:
        return Finding(
            f"Python {version}", f"if something fails, use Python {low} to {high}"
        )
    return Finding(f"Python {version}")


def _requirements() -> Iterator[tuple[Requirement, str | None]]:
    """Yield what the plain install needs, with None, then what each extra adds, with its name."""
    needed = [Requirement(text) for text in metadata.requires("memowidgets") or ()]
    yield from (
        (requirement, None) for requirement in needed if requirement.marker is None
    )
    extras = set[str]()  # an extra that contains another one needs the same
    for extra in PURPOSES:
        for requirement in needed:
            added = requirement.marker is not None and requirement.marker.evaluate(
                {"extra": extra}
            )
            if added and requirement.name not in (*extras, "memowidgets"):
                extras.add(requirement.name)
                yield requirement, extra


def _package(requirement: Requirement, extra: str | None) -> Finding:
    name = requirement.name
    essential = extra is None
    fix = (
        f"pip install '{name}{requirement.specifier}'"
        if extra is None
        else pip_install(extra)
    )
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        purpose = f" (needed for {PURPOSES[extra]})" if extra else ""
        return Finding(f"{name} is not installed{purpose}", fix, wrong=essential)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(f"{name} {version} is too old", fix, wrong=essential)
    return Finding(f"{name} {version}")


def _device() -> Finding:
    if util.find_spec("torch") is None:
        return Finding("device: CPU (torch, which finds a GPU, is not installed)")
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        return Finding(
            f"device: cuda, {name}, {free / _GIB:.1f} of {total / _GIB:.0f} GiB free"
        )
    if torch.backends.mps.is_available():
        return Finding("device: mps (used where an audit names it; auto means the CPU)")
    threads = torch.get_num_threads()
    counted = f"{threads} thread{'s' if threads != 1 else ''}"
    return Finding(f"device: CPU, {counted} (torch finds no GPU)")


def _notebook() -> Iterator[Finding]:
    try:
        yield Finding(f"ipykernel {metadata.version('ipykernel')}")
    except metadata.PackageNotFoundError:
        yield Finding(
            "ipykernel is not installed (needed for notebooks)", pip_install("lab")
        )
    extensions = Path(sys.prefix, "share", "jupyter", "labextensions")
    for name in ("@jupyter-widgets/jupyterlab-manager", "anywidget"):
        if (extensions / name / "package.json").is_file():
            yield Finding(f"JupyterLab's extension {name}")
        else:
            package = "anywidget" if name == "anywidget" else "jupyterlab_widgets"
            yield Finding(
                f"JupyterLab's extension {name} is not in this environment",
                f"pip install --force-reinstall {package}, where JupyterLab itself is installed",
            )


def check_device(name: str) -> Iterator[Finding]:
    """Train a small audit on the CPU and on a device, and compare and time both.

    Parameters
    ----------
    name : str
        Device, as torch names it.

    Yields
    ------
    Finding
        One row as soon as it is known: the device, equal logit gaps from the same weights, equal
        order of PSMI and log-LiRA after training, and the times of a training step, a
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
        meaning = "" if name == "cpu" else f"{name} means the CPU on this machine, and "
        raise CommandError(
            f"{meaning}the CPU is what a device is compared with; name another, such as cuda"
        )
    yield Finding("", here="CPU", there=device)
    with tempfile.TemporaryDirectory(prefix="memowidgets-doctor-") as folder:
        yield from compare_device(Path(folder), device)


def compare_device(folder: Path, device: str) -> Iterator[Finding]:
    """Yield the rows on what a device computes, with audits in a folder."""
    both: list[Audit] = []
    checks: dict[str, Callable[[], Finding]] = {
        "logit gaps, same weights": lambda: _gaps(both[0], device),
        "PSMI": lambda: _order(
            "PSMI", *(a.score("psmi", "last", "final") for a in both)
        ),
        "log-LiRA": lambda: _truth(*both),
        "training step": lambda: _times(*(_seconds(a, _steps) / _STEPS for a in both)),
        "pass, each sample": lambda: _times(
            *(_seconds(a, _pass) / len(a.members) for a in both)
        ),
        "PSMI of {} x {}".format(*_PSMI_SHAPE): lambda: _psmi(device),
    }
    try:
        both += _train(folder / "cpu", "cpu"), _train(folder / "device", device)
    except _FAILURES as error:
        yield Finding(
            "training", _UPDATE, wrong=True, there="fails", said=first_line(error)
        )
        return
    for what, check in checks.items():
        try:
            finding = check()
        except _FAILURES as error:
            finding = Finding(
                "", _UPDATE, wrong=True, there="fails", said=first_line(error)
            )
        yield replace(finding, what=what)


def _train(path: Path, device: str) -> Audit:
    """Return a trained audit of a small network on handwritten digits."""
    from memowidgets.audit import Audit
    from memowidgets.data import load_digits
    from memowidgets.models import ConvNet
    from memowidgets.training import TrainingConfig

    data = load_digits().take(range(_SAMPLES))
    training = TrainingConfig(epochs=_EPOCHS, batch_size=32, precision="float32")
    audit = Audit(
        ConvNet(), data, path=path, training=training, device=device, held_out=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of so small an audit
        audit.train(progress=Progress())
    return audit


def _gaps(here: Audit, device: str) -> Finding:
    """Compare the logit gaps of the same weights."""
    from memowidgets.audit import Audit
    from memowidgets.models import ConvNet

    moved = Audit.open(here.path, data=here.data, model=ConvNet(), device=device)
    end = here.evidence.names.record("final")
    one, other = (
        audit.run.gaps_of(end, audit.run.design.members) for audit in (here, moved)
    )
    off = float(abs(one - other).max() / one.std())
    text = f"standard deviations at most; rounding explains {_OFF}"
    return _off(off, text, wrong=not off <= _OFF)


def _truth(here: Audit, there: Audit) -> Finding:
    """Compare log-LiRA, with the device's shadow models in a worker process as users have it."""
    with ThreadPoolExecutor(1) as thread, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few shadow models
        here.run_shadows(_N_SHADOWS, thread, progress=Progress())
        there.run_shadows(_N_SHADOWS, processes=1, progress=Progress())
        return _order("log-LiRA", here.log_lira(), there.log_lira())


def _order(what: str, one: Any, other: Any) -> Finding:
    """Compare the order of the samples after two trainings, whose values differ by rounding."""
    rank = float(one.rank().corr(other.rank()))
    least = _SAME_ORDER[what]
    text = f"at most; rank correlation {rank:.3f}, at least {least} where nothing errs"
    return _off(float(abs(one - other).max()), text, wrong=not rank >= least)


def _off(off: float, said: str, *, wrong: bool) -> Finding:
    return Finding(
        "", _UPDATE if wrong else "", wrong, there=f"off by {off:.1g}", said=said
    )


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


def _psmi(device: str) -> Finding:
    """Time PSMI of random states, after once to warm up."""
    import torch

    from memowidgets.metrics import PSMI

    labels = torch.arange(_PSMI_SHAPE[0]) % 10
    states = torch.randn(*_PSMI_SHAPE) + labels[:, None] / 10

    def seconds(x: object) -> float:
        start = time.perf_counter()
        # NumPy arrays: the device is done
        PSMI().fit(x, labels).score_samples(x, labels)
        return time.perf_counter() - start

    return _times(
        *(min(seconds(states.to(name)) for _ in range(2)) for name in ("cpu", device))
    )


def _times(here: float, there: float) -> Finding:
    slow = there > here
    text = (
        f"{there / here:.1f} times as slow"
        if slow
        else f"{here / there:.1f} times as fast"
    )
    return Finding(
        "", here=f"{1e3 * here:.3g} ms", there=f"{1e3 * there:.3g} ms", said=text
    )
