"""Run directories as a command meets them: whole, or refused with a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memowidgets.store import RunDirectory, StoreError
from memowidgets.visible import visible

if TYPE_CHECKING:
    from memowidgets.audit import Audit
    from memowidgets.training.rho import Record

__all__ = ["CommandError", "Run", "checked_manifest", "checked_run", "opened", "refusing"]

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 2**30  # bytes; a million samples take a twentieth of it
_MOST_CHARACTERS = 600


class CommandError(Exception):
    """A command that can't be done; the message is one line, fit for a terminal."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message, _MOST_CHARACTERS))


def checked_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run that a command is asked to open.

    Raises
    ------
    CommandError
        If there is no run, its manifest is no manifest, or a newer version wrote it.
    """
    if not path.exists():
        raise CommandError(f"there is no {path}: give the folder of a run")
    if not path.is_dir():
        raise CommandError(f"{path} is no folder: give the folder of a run")
    with refusing(path):
        from memowidgets.audit.runs.opening import existing_run
        from memowidgets.audit.runs.shapes import (
            is_of_arrays,
            read_arrays_manifest,
            read_manifest,
        )

        size = (path / MANIFEST).stat().st_size if (path / MANIFEST).is_file() else 0
        if size > LARGEST_MANIFEST:
            raise CommandError(f"{path / MANIFEST} has {size} bytes: it is no manifest of a run")
        run = existing_run(path, read_only=True)
        return read_arrays_manifest(run) if is_of_arrays(run) else read_manifest(run)


@dataclass(frozen=True)
class Run:
    """What a run directory says of itself, without its model and data.

    Attributes
    ----------
    manifest : dict
        Its manifest.
    members : int
        Samples that its target trains on.
    records : sequence of Record
        Its checkpoints.
    drop : float or None
        Of the median loss at the checkpoint that the ρ rule chose; None before training.
    shadows : int
        Its shadow models.
    """

    manifest: dict[str, Any]
    members: int
    records: Sequence[Record]
    drop: float | None
    shadows: int


def checked_run(path: Path) -> Run:
    """A run whose parts can all be read.

    Raises
    ------
    CommandError
        If one can't.
    """
    manifest = checked_manifest(path)
    with refusing(path):
        from memowidgets.audit.runs.arrays import n_given_shadows
        from memowidgets.audit.runs.identity import read_design
        from memowidgets.audit.runs.shapes import is_of_arrays
        from memowidgets.audit.sources.catalogue import Catalogue
        from memowidgets.audit.sources.shadow_sets import current_set

        directory = RunDirectory.existing(path, read_only=True)
        directory.hold(manifest)
        if is_of_arrays(directory):
            return Run(manifest, len(manifest["ids"]), (), None, n_given_shadows(directory))
        members = len(read_design(directory, manifest).members)
        catalogue = Catalogue(directory, manifest, members)
        catalogue.final()
        records = catalogue.records()
        drop = catalogue.prediction().drop if records else None
        return Run(manifest, members, records, drop, len(current_set(directory)))


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn whatever a broken run leads to into one sentence.

    A manifest of somebody else may hold anything, at any depth: what its reader stumbles over is
    of no use to the user.
    """
    try:
        yield
    except CommandError:
        raise
    except (StoreError, ValueError, OSError) as error:
        raise CommandError(str(error) or f"{path} cannot be opened") from None
    except (
        ArithmeticError,
        AttributeError,
        ImportError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
    ) as error:
        raise CommandError(
            f"{path} is half-written or no run of memowidgets ({type(error).__name__}: {error})"
        ) from None


def opened(path: Path, data: Path | None = None, model: Path | None = None) -> Audit:
    """The audit in a run directory; what it warns of is said by its report.

    Parameters
    ----------
    path : Path
        The run directory.
    data, model : Path, optional
        Where its data and model were loaded from: read only if it is given.

    Raises
    ------
    CommandError
        If it cannot be opened.
    """
    checked_run(path)
    with refusing(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        from memowidgets.audit import Audit

        return Audit.open(path, data=data, model=model)


def model_name(manifest: Mapping[str, Any]) -> str:
    """What a manifest calls its model."""
    return str(manifest.get("model", {"class": "(arrays)"}).get("class", "?"))
