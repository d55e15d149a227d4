"""Run directories: where an audit is stored, each file whole and in its place."""

from memowidgets.store.directory import (
    FORMAT,
    MANIFEST,
    RECORDING,
    REVISION,
    PackedRun,
    RunDirectory,
    run_at,
)
from memowidgets.store.errors import (
    Absent,
    BrokenError,
    ForeignError,
    LockedError,
    MissingError,
    NotThereError,
    StoreError,
    without_advice,
)
from memowidgets.store.tensors import Tensors

__all__ = [
    "FORMAT",
    "MANIFEST",
    "RECORDING",
    "REVISION",
    "Absent",
    "BrokenError",
    "ForeignError",
    "LockedError",
    "MissingError",
    "NotThereError",
    "PackedRun",
    "RunDirectory",
    "StoreError",
    "Tensors",
    "run_at",
    "without_advice",
]
