"""Run directories: where an audit is stored, each file whole and in its place."""

from memowidgets.store.directory import (
    FORMAT,
    MANIFEST,
    RECORDING,
    PackedRun,
    RunDirectory,
    run_at,
)
from memowidgets.store.errors import (
    Absent,
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
    "Absent",
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
