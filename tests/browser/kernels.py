"""Kernels of other versions beside the environment's own, each in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.harness import ROOT

if TYPE_CHECKING:
    from tests.browser.harness import Lab

KEPT = Path(sys.prefix) / "other-kernels"
ALSO = ["nest-asyncio==1.6.0"]  # the newest kernel has no need of it, the environment has the rest


def add_kernel(lab: Lab, version: str) -> str:
    """Let a server offer a kernel with this ipykernel; its name."""
    name = f"ipykernel-{version.replace('.', '-')}"
    specification = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"ipykernel {version}",
        "language": "python",
        "env": {"PYTHONPATH": f"{_installed(version)}:{ROOT}"},
    }
    folder = lab.home / "data_dir" / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(json.dumps(specification))
    return name


def _installed(version: str) -> Path:
    """Where this version is, installed there first if need be."""
    target = KEPT / version
    if (target / f"ipykernel-{version}.dist-info").exists():
        return target
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    packages = [*ALSO, f"ipykernel=={version}"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--target", target, *packages],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(
            f"no package index: pip can't install ipykernel {version}: {done.stderr[-500:]}"
        )
    return target
