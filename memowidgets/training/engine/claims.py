"""Claims on shadow models, so that several processes never train the same one."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from memowidgets.files import make_private
from memowidgets.store import RunDirectory, StoreError

if TYPE_CHECKING:
    from filelock import BaseFileLock

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}  # the file system has no locks


class Claims:
    """Claims of this process on shadow models; also detects those of other processes.

    A claim is a lock on a file, which the system releases when the process dies.

    Parameters
    ----------
    run : RunDirectory
        Run directory of the shadow models.
    folder : str
        Folder of the claims in the run directory.
    parted : bool
        Whether the caller named its part of the shadow models, so that no other process trains
        them and a file system without locks will do.
    """

    def __init__(self, run: RunDirectory, folder: str, *, parted: bool = False) -> None:
        self._run, self._folder, self._parted = run, folder, parted
        self._held: dict[int, BaseFileLock] = {}

    def __enter__(self) -> Self:
        folder = self._run.place(self._folder)
        with self._run.explained(folder):
            make_private(folder)
        return self

    def __exit__(self, *_: object) -> None:
        for index in list(self._held):
            self.release(index)
        with suppress(OSError, StoreError, ValueError):
            for left in self._run.place(self._folder).glob("*.lock"):  # by a killed process
                if self.take(int(left.stem)):
                    self.forget(int(left.stem))

    def take(self, index: int) -> bool:
        """Claim a shadow model, and return False if another process trains it.

        Raises
        ------
        StoreError
            If the claim cannot be written, or the file system has no locks and the caller did not
            name its part.
        """
        from filelock import FileLock, Timeout

        file = self._file(index)
        lock = FileLock(file, timeout=0, mode=0o600)
        with self._run.explained(file):
            try:
                lock.acquire()
            except Timeout:
                return False
            except (NotImplementedError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                    raise
                if not self._parted:
                    raise StoreError(
                        f"{self._run.path} is on a file system without locks, where two processes "
                        "could train the same models; name the part of each process, as in "
                        "run_shadows(100, indices=range(0, 25))"
                    ) from error
                return True
        self._held[index] = lock
        return True

    def release(self, index: int) -> None:
        """Release a claim, because the shadow model is no longer trained here."""
        lock = self._held.pop(index, None)
        if lock is not None:
            lock.release()

    def forget(self, index: int) -> None:
        """Release a claim on a finished shadow model, and delete its file."""
        self.release(index)
        with suppress(OSError, StoreError):
            self._file(index).unlink()

    def _file(self, index: int) -> Path:
        return self._run.place(f"{self._folder}/{index:04d}.lock")
