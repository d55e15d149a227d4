"""Files: written atomically, and read only where they are regular files of a plausible size."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNFINISHED = ".unfinished-"  # prefix of temporary files, which a killed process leaves
_PRIVATE = 0o600
_LARGEST_READ = 2**30  # bytes; the manifest of a million samples has a twentieth of it
_LONGEST_NAME = 255  # bytes of a name of a file or folder, on all usual file systems
# one of them lies in every run directory
_MARKS = (
    "design.safetensors",
    "arrays.safetensors",
)


@contextmanager
def unfinished(target: Path, mode: int = _PRIVATE) -> Iterator[Path]:
    """Yield a temporary file in the folder of a target; it is gone if the block ends in an error.

    Only its owner can read it, unless `mode` says otherwise (as far as the umask allows).
    """
    temporary = target.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield temporary
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def replacement_of(target: Path, mode: int = _PRIVATE) -> Iterator[Path]:
    """Yield a temporary file as `unfinished` does, which replaces the target after the block."""
    with unfinished(target, mode) as temporary:
        yield temporary
        temporary.replace(target)


def file_name_of(name: str) -> str:
    """Return a name of a user's as that of a file, which every system takes and no other name has.

    Some systems refuse characters such as ``:``, names such as ``con``, or long ones, and some
    take capitals for small letters. A name with any of these gets its digest.

    Examples
    --------
    >>> file_name_of("blocks.0"), file_name_of("Encoder:0")
    ('blocks.0', 'encoder_0-3ae4c041f18bc388')
    """
    is_plain = _PLAIN_NAME.fullmatch(name) and not _RESERVED_NAME.match(name)
    if is_plain and len(name) <= _LONGEST_PLAIN:
        return name
    readable = re.sub(r"[^a-z0-9_+-]", "_", name.lower())[:_LONGEST_PLAIN]
    return f"{readable}-{digest_of(name)}"


def make_private(folder: Path) -> None:
    """Create a folder and its parents, each readable only by its owner, whatever the umask."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def fill(path: Path, content: bytes) -> None:
    """Write a file's content and wait until it is on the disk."""
    path.write_bytes(content)
    sync(path)


def sync(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_whole(target: Path, content: bytes, mode: int = _PRIVATE) -> None:
    """Write a file atomically; its content is on the disk before it gets its name."""
    with replacement_of(target, mode) as temporary:
        fill(temporary, content)


def checked_path(path: object) -> Path:
    """Return a path that a user gave, with ``~`` replaced.

    Raises
    ------
    TypeError
        If it is no path.
    ValueError
        If it is empty, which would be the working folder, holds a NUL character, or is too long.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"a path must be a text or a pathlib.Path, not {type(path).__name__}"
        )
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(
            f"{text!r} cannot be a path; name a file or folder, or '.' for the working folder"
        )
    try:
        longest = max((len(os.fsencode(part)) for part in Path(text).parts), default=0)
        result = Path(text).expanduser()
    # a lone surrogate; the home of an unknown user
    except (
        UnicodeEncodeError,
        RuntimeError,
    ):
        raise ValueError(f"{text!a} cannot be a path; name a file or folder") from None
    if longest > _LONGEST_NAME:
        raise ValueError(
            f"{text[:40]!a}… cannot be a path: a name of it has {longest} bytes, and at most "
            f"{_LONGEST_NAME} are possible; choose a shorter one"
        )
    return result


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading bytes, without waiting for anything.

    Raises
    ------
    ValueError
        If something else has its name, such as a folder, a FIFO or a device.
    OSError
        If it does not exist or cannot be read.
    """
    handle = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(
            f"{path} is a folder, a FIFO or a device, not a regular file; put the file back, or "
            "remove what has its name"
        )
    return os.fdopen(handle, "rb")


def read_whole(path: Path, most: int = _LARGEST_READ) -> bytes:
    """Return the content of a regular file of at most this number of bytes.

    Raises
    ------
    ValueError
        If it is not a regular file, or is larger.
    OSError
        If it does not exist or cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(
                f"{path} has {size} bytes, and at most {most} are read; put the right file there"
            )
        return file.read(most)


def state_of(found: os.stat_result) -> tuple[int, ...]:
    """Return numbers that change whenever a file is written or replaced."""
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def check_outside_runs(path: str | os.PathLike[str]) -> None:
    """Refuse a path in a run directory, which holds only what the run itself writes.

    Raises
    ------
    ValueError
        If the path, with links followed, lies in one or is one.
    """
    place = checked_path(path).resolve()
    for folder in (place, *place.parents):
        if any(os.path.isfile(folder / mark) for mark in _MARKS):  # noqa: PTH113 - never raises
            raise ValueError(
                f"{path} lies in the run directory {folder}, which holds only what the run itself "
                "writes: choose a place outside of it"
            )


KEY = "memowidgets"  # key of the stamp in a safetensors file's metadata

# Fields in which two equal runs may differ: where model and data came from, what follows from
# other fields (the design), and the precision, which is also in each file.
_APART = ("format", "design", "versions", "model_source", "recording", "precision")
_LONG = ("ids", "content")

# Names that are files on every system: no capitals, no dot at the end, none of Windows' devices.
_PLAIN_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.+-]*[a-z0-9_])?")
_RESERVED_NAME = re.compile(r"(con|prn|aux|nul|(com|lpt)\d)(\.|$)")
_LONGEST_PLAIN = 60


def digest_of(*parts: str | bytes | memoryview) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of texts and bytes, one after another.

    Examples
    --------
    >>> digest_of("a", b"b") == digest_of("ab")
    True
    """
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(
            part.encode(errors="surrogatepass") if isinstance(part, str) else part
        )
    return hasher.hexdigest()[:16]


def digest(content: Any) -> str:
    """Return a digest of content that JSON can represent."""
    return digest_of(json.dumps(content, sort_keys=True))


def array_digest(array: NDArray[Any]) -> str:
    """Return a digest of an array's dtype, shape and values."""
    return digest_of(f"{array.dtype.str}{array.shape}", _bytes_of(array))


def checksum(array: NDArray[Any]) -> str:
    """Return the XXH3-128 of an array's bytes, by which damage is noticed.

    It is many times faster than `array_digest`, so that all arrays of a run can have one.
    """
    import xxhash

    return xxhash.xxh3_128_hexdigest(_bytes_of(array))


def _bytes_of(array: NDArray[Any]) -> memoryview | bytes:
    if not array.size:
        return b""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def digest_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a digest of named arrays, whatever their order."""
    return digest(sorted((name, array_digest(array)) for name, array in arrays.items()))


def fingerprints(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the identity of a run, and a digest of its whole manifest.

    Two runs of equal identity give equal results. The identity leaves out where model and data
    came from, the versions of the libraries, and whether the run is a recording.
    """
    short = {
        k: _long_digest(v) if k in _LONG else v
        for k, v in manifest.items()
        if k != "check"
    }
    same: dict[str, Any] = {k: v for k, v in short.items() if k not in _APART}
    if isinstance(same.get("data"), dict):
        same["data"] = {k: v for k, v in same["data"].items() if k != "source"}
    return digest(same), digest(short)


def _long_digest(values: Any) -> str:
    """Return a digest of a list of texts, several times faster than through JSON."""
    try:
        text = "\0".join(values)
    except TypeError:
        return digest(values)
    if text.count("\0") != len(values) - 1:  # also true of an empty list
        return digest(values)
    return digest_of(text)
