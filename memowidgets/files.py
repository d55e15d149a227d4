"""Atomic writing of files: a file is either complete or unchanged."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["UNFINISHED", "fill", "make_private", "replaced", "write_whole"]

UNFINISHED = ".unfinished-"  # prefix of temporary files, which a killed process leaves
_PRIVATE = 0o600


@contextmanager
def replaced(target: Path, mode: int = _PRIVATE) -> Iterator[Path]:
    """Yield a temporary file in the same folder, which replaces the target after the block.

    Only its owner can read it, unless `mode` says otherwise (as far as the umask allows).
    """
    temporary = target.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield temporary
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def make_private(folder: Path) -> None:
    """Create a folder and its parents, each readable only by its owner, whatever the umask."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def fill(path: Path, content: bytes) -> None:
    """Write a file's content and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_whole(target: Path, content: bytes, mode: int = _PRIVATE) -> None:
    """Write a file atomically; its content is on the disk before it gets its name."""
    with replaced(target, mode) as temporary:
        fill(temporary, content)
