"""Claims on shadow models, so that several processes never train the same seed."""

from __future__ import annotations

import errno
import json
import os
import platform
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from memowidgets.files import make_private, read_whole
from memowidgets.store import RunDirectory, StoreError

if TYPE_CHECKING:
    from filelock import BaseFileLock


_LEASE_SECONDS = 60.0
_BEATS_PER_LEASE = 6
_LARGEST = 2**16  # bytes of a claim
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}  # the file system has no locks


@dataclass
class _Held:
    """Claim of this process."""

    lock: BaseFileLock | None
    beats: int = 0


class Claims:
    """Claims of this process on shadow models; also detects those of other processes.

    A claim is a file that only one process can create, and a lock on another file that the system
    releases when the process dies. On the same machine, and on file systems whose locks reach other
    machines, the lock alone shows whether a holder is alive. Elsewhere the claim has a counter that
    its holder increases (its heartbeat). If the counter does not change for a lease, measured by
    the watcher's own monotonic clock, the claim is void. Clocks of different machines are never
    compared.

    Parameters
    ----------
    run : RunDirectory
        Run directory of the shadow models.
    folder : str
        Folder of the claims in the run directory.
    lease : float
        Seconds without a heartbeat after which another machine's claim is void.
    """

    def __init__(self, run: RunDirectory, folder: str, lease: float = _LEASE_SECONDS) -> None:
        self._run, self._folder, self._lease = run, folder, lease
        self._owner = uuid.uuid4().hex
        self._held: dict[int, _Held] = {}
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._mutex = threading.Lock()
        self._over = threading.Event()
        self._heart: threading.Thread | None = None

    def __enter__(self) -> Self:
        folder = self._run.place(self._folder)
        with self._run.explained(folder):
            make_private(folder)
        self._heart = threading.Thread(target=self._beat, name="claims", daemon=True)
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._heart is not None:
            self._heart.join()
        for index in list(self._held):
            self.release(index)

    def take(self, index: int) -> bool:
        """Claim a shadow model, and return False if another process trains it.

        Raises
        ------
        StoreError
            If the claim cannot be written.
        """
        with self._run.explained(self._file(index)):
            free, lock = self._lock(index)
            if not free:
                return False
            taken = self._claim(index, has_lock=lock is not None)
            if taken:
                with self._mutex:
                    self._held[index] = _Held(lock)
            elif lock is not None:
                lock.release()
            return taken

    def release(self, index: int) -> None:
        """Release a claim, because the shadow model is finished or no longer trained here."""
        with self._mutex:
            held = self._held.pop(index, None)
        if held is None:
            return
        with suppress(OSError, StoreError):  # a read-only disk keeps it
            if self._is_ours(index):
                self._file(index).unlink()
        if held.lock is not None:
            held.lock.release()

    def forget(self, index: int) -> None:
        """Release a claim on a finished shadow model, and delete its files."""
        self.release(index)
        with suppress(OSError, StoreError):
            self._lock_file(index).unlink()

    def _file(self, index: int) -> Path:
        return self._run.place(f"{self._folder}/{index:04d}.claim")

    def _lock_file(self, index: int) -> Path:
        return self._run.place(f"{self._folder}/{index:04d}.lock")

    def _lock(self, index: int) -> tuple[bool, BaseFileLock | None]:
        """Return whether no living process has the lock, and the acquired lock if locks exist."""
        from filelock import FileLock, Timeout

        lock = FileLock(self._lock_file(index), timeout=0, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            return False, None
        except NotImplementedError:
            return True, None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return True, None
            raise
        return True, lock

    def _claim(self, index: int, *, has_lock: bool) -> bool:
        """Create the claim's file, or take over a void one."""
        file = self._file(index)
        found = _content(file)
        if found is not None:
            if not self._is_void(index, found, has_lock=has_lock):
                return False
            aside = file.with_suffix(f".{uuid.uuid4().hex}")
            try:
                file.rename(aside)  # of several processes that try this, one succeeds
            except FileNotFoundError:
                return False
            aside.unlink()
        try:
            handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(handle, "wb") as opened:
            opened.write(self._words(0))
        return True

    def _is_void(self, index: int, found: bytes, *, has_lock: bool) -> bool:
        if has_lock and _said(found).get("machine") == _machine():
            return True  # this process has the lock that a living owner would have
        now = time.monotonic()
        seen = self._seen.get(index)
        if seen is None or seen[0] != found:  # an empty claim's owner may have died before writing
            self._seen[index] = (found, now)
            return False
        return now - seen[1] > self._lease

    def _is_ours(self, index: int) -> bool:
        found = _content(self._file(index))
        return found is not None and _said(found).get("owner") == self._owner

    def _words(self, beats: int) -> bytes:
        said = {"owner": self._owner, "machine": _machine(), "beats": beats}
        return json.dumps(said).encode()

    def _beat(self) -> None:
        while not self._over.wait(self._lease / _BEATS_PER_LEASE):
            with self._mutex:
                held = dict(self._held)
            for index, claim in held.items():
                claim.beats += 1
                with suppress(OSError, StoreError):  # the work continues, and others may repeat it
                    if self._is_ours(index):
                        self._file(index).write_bytes(self._words(claim.beats))


def _content(file: Path) -> bytes | None:
    try:
        return read_whole(file, _LARGEST)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(str(error)) from None


def _said(content: bytes) -> dict[str, object]:
    try:
        said = json.loads(content)
    except ValueError:  # read while it was being written
        return {}
    return said if isinstance(said, dict) else {}


@cache
def _machine() -> str:
    """Return a name of this machine since its start; locks surely reach no further."""
    started = Path("/proc/sys/kernel/random/boot_id")
    try:
        since = started.read_text(encoding="ascii").strip()
    except OSError:
        since = ""
    return f"{platform.node()} {uuid.getnode():x} {since}"
