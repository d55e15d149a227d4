"""Checks of the installation for ``python -m memowidgets doctor``; loads only the widgets."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata, util
from pathlib import Path

from packaging.requirements import Requirement

__all__ = ["Finding", "examine"]

_PACKAGE = Path(__file__).parent
_TESTED_PYTHONS = ((3, 11), (3, 13))
_OPTIONAL = ("lab", "llm", "dask")
_BYTES_PER_FRONT_END = 50_000
_CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
        notebook, browser tests, front ends.

    Examples
    --------
    >>> next(examine()).what.startswith("Python 3.")
    True
    """
    yield _python()
    yield Finding(f"{platform.platform()}, {os.cpu_count()} cores{_memory()}")
    yield from _packages()
    yield _device()
    yield from _notebook()
    yield _program("Chromium", _CHROMES, os.environ.get("CHROMIUM"), "browser tests")
    yield _program("Node", ("node",), None, "tests of the front ends' JavaScript")
    yield from _front_ends()


def _python() -> Finding:
    version = platform.python_version()
    low, high = (".".join(map(str, v)) for v in _TESTED_PYTHONS)
    if sys.version_info[:2] < _TESTED_PYTHONS[0]:
        return Finding(f"Python {version}", f"install Python {low} or newer", essential=True)
    if sys.version_info[:2] > _TESTED_PYTHONS[1]:
        return Finding(f"Python {version}", f"if something fails, use Python {low} to {high}")
    return Finding(f"Python {version}")


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not available on every system
        return ""
    return f", {size / _GIB:.0f} GiB of memory"


def _packages() -> Iterator[Finding]:
    tested = _tested_versions()
    for text in metadata.requires("memowidgets") or ():
        requirement = Requirement(text)
        if requirement.marker is None:
            yield _package(requirement, tested.get(requirement.name), extra=None)
            continue
        for extra in _OPTIONAL:
            if requirement.marker.evaluate({"extra": extra}):
                yield _package(requirement, tested.get(requirement.name), extra=extra)


def _package(requirement: Requirement, tested: str | None, extra: str | None) -> Finding:
    name, essential = requirement.name, extra is None
    fix = f"pip install '{name}{requirement.specifier}'" if essential else _install_extra(extra)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(f"{name} is not installed{_purpose(extra)}", fix, essential=essential)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(f"{name} {version} is too old", fix, essential=essential)
    return _compared(name, version, tested)


def _compared(name: str, version: str, tested: str | None) -> Finding:
    plain = version.partition("+")[0]  # torch 2.13.0+cpu is 2.13.0
    if tested is None or plain == tested:
        return Finding(f"{name} {version}")
    return Finding(
        f"{name} {version} (tested: {tested})", f"if something fails: pip install {name}=={tested}"
    )


def _install_extra(extra: str | None) -> str:
    return f"pip install 'memowidgets[{extra}]'"


def _purpose(extra: str | None) -> str:
    purposes = {
        "lab": "notebooks in the browser",
        "llm": "language models",
        "dask": "Dask clusters",
    }
    return f" (needed for {purposes[extra]})" if extra else ""


def _tested_versions() -> dict[str, str]:
    """Return the versions in constraints.txt, which is in the package or at the checkout's root."""
    files = (_PACKAGE / "constraints.txt", _PACKAGE.parent / "constraints.txt")
    text = next((f.read_text(encoding="utf-8") for f in files if f.is_file()), "")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE))


def _device() -> Finding:
    if util.find_spec("torch") is None:
        return Finding("device: unknown without torch", "pip install torch", essential=True)
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        return Finding(f"device: cuda, {name}, {free / _GIB:.1f} of {total / _GIB:.0f} GiB free")
    if torch.backends.mps.is_available():
        return Finding("device: mps (device='auto' uses the CPU)")
    threads = torch.get_num_threads()
    counted = f"{threads} thread{'s' if threads != 1 else ''}"
    return Finding(f"device: CPU, {counted} (torch finds no GPU)")


def _notebook() -> Iterator[Finding]:
    try:
        yield _compared(
            "ipykernel", metadata.version("ipykernel"), _tested_versions().get("ipykernel")
        )
    except metadata.PackageNotFoundError:
        yield Finding("ipykernel is not installed (needed for notebooks)", _install_extra("lab"))
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


def _program(name: str, commands: tuple[str, ...], chosen: str | None, use: str) -> Finding:
    found = next(filter(None, map(shutil.which, (chosen,) if chosen else commands)), None)
    if found is None:
        return Finding(
            f"{name} was not found ({use} are skipped)", f"install {commands[0]}, if you run them"
        )
    try:
        asked = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(f"{found} does not run: {error}", f"reinstall {commands[0]}")
    version = asked.stdout.strip().removeprefix(name).strip()
    return Finding(f"{name} {version} ({use} can run)")


def _front_ends() -> Iterator[Finding]:
    files = sorted((_PACKAGE / "widgets" / "static").glob("*.[jc]*s*"))
    reinstall = "pip install --force-reinstall --no-deps memowidgets"
    if not any(file.suffix == ".js" for file in files):
        yield Finding("no front-end files in memowidgets/widgets/static", reinstall, essential=True)
        return
    try:
        sizes = {file.name: len(file.read_text(encoding="utf-8").encode()) for file in files}
        import_module("memowidgets.widgets")
    except (OSError, UnicodeError, ImportError) as error:
        yield Finding(f"the widgets cannot be loaded: {error}", reinstall, essential=True)
        return
    listed = ", ".join(f"{name} {size / 1000:.0f} kB" for name, size in sizes.items())
    too_big = [name for name, size in sizes.items() if size >= _BYTES_PER_FRONT_END]
    fix = f"make {', '.join(too_big)} smaller than {_BYTES_PER_FRONT_END // 1000} kB"
    yield Finding(f"front ends: {listed}", fix if too_big else "")
