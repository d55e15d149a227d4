"""Samples and weights that all local processes share in one copy, without leftovers on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError

from memowidgets.files import write_whole
from memowidgets.training.shadow import ShadowJob

_PREFIX = "memowidgets-samples-"


class SharedSamples:
    """Private temporary folder from which local processes map the samples.

    Whoever opened it closes it. Workers that outlive their parent remove it. If all were killed at
    once, the next process that opens such a folder removes it.

    Attributes
    ----------
    folder : str
        Path of the folder, readable only by its owner.
    """

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")

    def of(self, job: ShadowJob) -> ShadowJob:
        """Return the job with samples and weights in the folder; what has no room stays in it."""
        recipe = job.recipe
        with suppress(OSError):
            recipe = replace(recipe, data=recipe.data.shared(self.folder))
        with suppress(OSError, SafetensorError):
            recipe = replace(recipe, model=recipe.model.shared(self.folder))
        return replace(job, recipe=recipe)

    def keep(self, payload: bytes) -> bytes | str:
        """Store a worker's start data in a private file; return its path, or the data if full.

        Sending the data through a pipe would block this process forever if the worker died before
        reading them.
        """
        file = Path(self.folder) / "job"
        try:
            write_whole(file, payload)
        except OSError:
            return payload
        return str(file)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove the folders of dead processes, on systems that can tell whether a process lives."""
    if os.name != "posix":
        return
    for folder in place.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        with suppress(OSError):
            if owner.isdigit() and not _is_alive(int(owner)) and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
