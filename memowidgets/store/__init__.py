"""Run directories: where an audit is stored, each file whole and in its place."""

from memowidgets.store.directory import FORMAT, MANIFEST, RunDirectory
from memowidgets.store.errors import (
    Absent,
    BrokenError,
    ForeignError,
    LockedError,
    MissingError,
    NotThereError,
    OutsideError,
    StoreError,
    without_advice,
)
from memowidgets.store.packed import RECORDING, PackedRun, run_at
from memowidgets.store.tensors import Tensors, put_rows

__all__ = [
    "FORMAT",
    "MANIFEST",
    "RECORDING",
    "Absent",
    "BrokenError",
    "ForeignError",
    "LockedError",
    "MissingError",
    "NotThereError",
    "OutsideError",
    "PackedRun",
    "RunDirectory",
    "StoreError",
    "Tensors",
    "put_rows",
    "run_at",
    "without_advice",
]
