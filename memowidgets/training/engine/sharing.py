"""One copy of the samples in memory for all local processes, and nothing left of it on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from memowidgets.files import write_whole
from memowidgets.training.shadow import ShadowJob

__all__ = ["SharedSamples"]

_PREFIX = "memowidgets-samples-"


class SharedSamples:
    """A private temporary folder from which the processes of this machine map the samples.

    Whoever opened it closes it. Workers that outlive their parent remove it; what is left where
    all were killed at once goes with the next one that is opened.

    Attributes
    ----------
    folder : str
        Readable by its owner alone.
    """

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")

    def of(self, job: ShadowJob) -> ShadowJob:
        """The job with its samples in the folder; as it was where that has no room."""
        try:
            data = job.recipe.data.shared(self.folder)
        except OSError:
            return job
        return replace(job, recipe=replace(job.recipe, data=data))

    def keep(self, payload: bytes) -> bytes | str:
        """Keep what a worker starts with in a private file; its path, or itself for want of room.

        Through a pipe it would block this process for good, if the worker dies before it reads.
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
    """Remove the folders of dead processes, where a process can be asked whether it lives."""
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
