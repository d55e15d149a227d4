"""Checks of the installation for ``python -m memowidgets doctor``."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from packaging.requirements import Requirement

from memowidgets.extras import PURPOSES, pip_install

__all__ = ["Finding", "examine"]

_TESTED_PYTHONS = ((3, 11), (3, 13))
_GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes
    ----------
    what : str
        The checked thing and its state.
    fix : str
        How to fix it. Empty if nothing is wrong.
    essential : bool
        Whether memowidgets cannot work until it is fixed.

    Examples
    --------
    >>> print(Finding("numpy is not installed", "pip install numpy", essential=True))
    MISSING  numpy is not installed; fix: pip install numpy
    >>> print(Finding("numpy 2.4.6"))
    ok       numpy 2.4.6
    """

    what: str
    fix: str = ""
    essential: bool = False

    def __str__(self) -> str:
        if not self.fix:
            return f"ok       {self.what}"
        return f"{'MISSING' if self.essential else 'note':<8} {self.what}; fix: {self.fix}"


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
    yield from _packages()
    yield _device()
    yield from _notebook()


def _python() -> Finding:
    version = platform.python_version()
    low, high = (".".join(map(str, v)) for v in _TESTED_PYTHONS)
    if sys.version_info[:2] < _TESTED_PYTHONS[0]:
        return Finding(f"Python {version}", f"install Python {low} or newer", essential=True)
    if sys.version_info[:2] > _TESTED_PYTHONS[1]:
        return Finding(f"Python {version}", f"if something fails, use Python {low} to {high}")
    return Finding(f"Python {version}")


def _packages() -> Iterator[Finding]:
    for requirement, extra in _requirements():
        yield _package(requirement, extra)


def _requirements() -> Iterator[tuple[Requirement, str | None]]:
    """Yield what the plain install needs, with None, then what each extra adds, with its name."""
    needed = [Requirement(text) for text in metadata.requires("memowidgets") or ()]
    yield from ((requirement, None) for requirement in needed if requirement.marker is None)
    known = set[str]()  # an extra that contains another one needs the same
    for extra in PURPOSES:
        for requirement in needed:
            added = requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
            if added and requirement.name not in (*known, "memowidgets"):
                known.add(requirement.name)
                yield requirement, extra


def _package(requirement: Requirement, extra: str | None) -> Finding:
    name, essential = requirement.name, extra is None
    fix = f"pip install '{name}{requirement.specifier}'" if extra is None else pip_install(extra)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        purpose = f" (needed for {PURPOSES[extra]})" if extra else ""
        return Finding(f"{name} is not installed{purpose}", fix, essential=essential)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(f"{name} {version} is too old", fix, essential=essential)
    return Finding(f"{name} {version}")


def _device() -> Finding:
    if util.find_spec("torch") is None:
        return Finding("device: CPU (torch, which finds a GPU, is not installed)")
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        return Finding(f"device: cuda, {name}, {free / _GIB:.1f} of {total / _GIB:.0f} GiB free")
    if torch.backends.mps.is_available():
        return Finding("device: mps (used where an audit names it; auto means the CPU)")
    threads = torch.get_num_threads()
    counted = f"{threads} thread{'s' if threads != 1 else ''}"
    return Finding(f"device: CPU, {counted} (torch finds no GPU)")


def _notebook() -> Iterator[Finding]:
    try:
        yield Finding(f"ipykernel {metadata.version('ipykernel')}")
    except metadata.PackageNotFoundError:
        yield Finding("ipykernel is not installed (needed for notebooks)", pip_install("lab"))
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
