"""Job, samples and weights that all local processes share in one copy on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cloudpickle
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
        if os.name == "posix":  # elsewhere nobody can tell whether a process lives
            for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
                owner = left.name.removeprefix(_PREFIX).split("-")[0]
                if owner.isdigit() and not left.is_symlink() and not _is_alive(int(owner)):
                    shutil.rmtree(left, ignore_errors=True)
        self.folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")

    def of(self, job: ShadowJob) -> ShadowJob:
        """Return the job with samples and weights in the folder; what has no room stays in it."""
        recipe = job.recipe
        with suppress(OSError):
            recipe = replace(recipe, data=recipe.data.shared(self.folder))
        with suppress(OSError, SafetensorError):
            recipe = replace(recipe, model=recipe.model.shared(self.folder))
        return replace(job, recipe=recipe)

    def keep(self, job: ShadowJob) -> tuple[bytes, str | bytes]:
        """Store a job; return it pickled, and the path of its file, or again itself if full."""
        payload: bytes = cloudpickle.dumps(self.of(job))
        file = Path(self.folder) / "job"
        try:
            write_whole(file, payload)
        except OSError:
            return payload, payload
        return payload, str(file)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True
