"""What a file of a run says of itself: its place, its run, its content, the weights it is from."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEY", "Stamp", "array_digest", "digest", "fingerprints", "is_settled", "state_of"]

KEY = "memowidgets"  # of the stamp in a safetensors file's metadata
UNKNOWN = "0" * 16  # in the place of a digest that follows

# What two equal runs may differ in (model and data came from elsewhere), what follows from the
# rest (the design), and what an old run learns later (its precision, which each file names).
_APART = ("format", "design", "versions", "model_source", "recording", "precision")
_LONG = ("ids", "content")
_SETTLED_NS = 2_000_000_000  # a file that is older than this can't change within a clock's tick


@dataclass(frozen=True)
class Stamp:
    """What a safetensors file of a run says of itself.

    Attributes
    ----------
    name : str
        Its place in the run directory, without its ending.
    run : str
        Identity of the run, as `fingerprints` gives it; empty where it is not known.
    of : str
        Digest of the weights that it comes from; empty where there are none.
    arrays : dict of str
        Digest of each array.
    """

    name: str
    run: str = ""
    of: str = ""
    arrays: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Stamp | None:
        """The stamp in a file's metadata; None where there is none.

        Raises
        ------
        ValueError
            If it is not a stamp.
        """
        if text is None:
            return None
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"its stamp is broken: {error}") from None

    @property
    def text(self) -> str:
        """As it is written into the metadata."""
        return json.dumps(asdict(self))

    @property
    def content(self) -> str:
        """A digest of all arrays."""
        return digest(sorted(self.arrays.items()))


def digest(content: Any) -> str:
    """A digest of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def array_digest(array: NDArray[Any]) -> str:
    """A digest of an array's dtype, shape and values."""
    found = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    if array.size:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:16]


def fingerprints(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return what tells a run from any other, and a digest of all that its manifest says.

    Two runs of equal identity give equal results: it leaves out where model and data came from,
    the libraries' versions, and whether the run is a recording.
    """
    short = {k: _long_digest(v) if k in _LONG else v for k, v in manifest.items() if k != "check"}
    same: dict[str, Any] = {k: v for k, v in short.items() if k not in _APART}
    if isinstance(same.get("data"), dict):
        same["data"] = {k: v for k, v in same["data"].items() if k != "source"}
    return digest(same), digest(short)


def state_of(found: os.stat_result) -> tuple[int, ...]:
    """Numbers that differ once a file was written: each time it is another file, or a later one."""
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def is_settled(found: os.stat_result) -> bool:
    """Whether a later change of a file shows in its state: clocks tick in milliseconds."""
    return time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED_NS


def _long_digest(values: Any) -> str:
    """A digest of a list of texts; as JSON it would take several times as long."""
    try:
        text = "\0".join(values)
    except TypeError:
        return digest(values)
    if text.count("\0") != len(values) - 1:  # of an empty list too
        return digest(values)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
