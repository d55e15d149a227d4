"""How often a training draws each member, counted where its loader draws rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.store import RunDirectory
from memowidgets.training.checkpoint import Record

# draws of a class: none of them has a chance of exp(-20) by a fair shuffle
_EXPECTED = 20


def draws_of(name: str) -> str:
    """Return the file in which the draws up to a checkpoint lie."""
    return f"draws/{name}"


class Draws:
    """Counts of the rows that a loader draws, from its creation on.

    Batches are counted where their rows are chosen, in this process, whatever chooses them:
    weights, lengths, or a sampler of the user's own. That is ahead of the training by what workers
    load in advance. In several processes the sampler that all of them go through is counted.

    Parameters
    ----------
    loader : DataLoader
        The loader, before it is iterated over.
    rows : sequence of sequence of int
        The loader's rows of each member.

    Attributes
    ----------
    are_seen : bool
        Whether the loader chooses rows by number, all of them in this process.
    """

    def __init__(self, loader: Any, rows: Sequence[Sequence[int]]) -> None:
        self._rows = rows
        self._skipped = 0
        self.are_seen = _count_batches(loader, self._count)
        n = len(loader.dataset) if self.are_seen else 0
        self._counts = np.zeros(n, np.int64)
        self._before = np.zeros(len(rows), np.int64)
        self._drawn_before = 0

    def _count(self, batch: Any) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        try:
            rows = np.atleast_1d(batch)
        except ValueError:  # keys whose parts have parts
            rows = np.empty((0, 0))
        if rows.ndim == 1 and rows.dtype.kind in "iu":
            np.add.at(self._counts, rows, 1)
        else:  # other keys than row numbers, such as a row with a size
            self.are_seen = False

    def go_on_from(self, run: RunDirectory, record: Record, n_batches: int) -> None:
        """Add the draws up to a checkpoint; that many batches after the call are among them."""
        if not run.has(draws_of(record.name), record.weights):
            self.are_seen = False
            return
        file = run.read_tensors(draws_of(record.name), record.weights)
        self._before = np.array(file["members"])
        self._drawn_before = int(file.metadata["drawn"])
        self._skipped = n_batches

    def write(self, run: RunDirectory, name: str, weights: str) -> None:
        """Keep the draws so far beside a checkpoint."""
        if not self.are_seen:
            return
        of_members = [int(self._counts[list(own)].sum()) for own in self._rows]
        numbers = {
            "drawn": str(self._drawn_before + int(self._counts.sum())),
            "rows": str(len(self._counts)),
        }
        counts = {"members": self._before + of_members}
        run.write_tensors(draws_of(name), counts, numbers, weights)


def _count_batches(loader: Any, count: Any) -> bool:
    """Have the object that chooses a loader's rows call `count` with each batch of them.

    Wrappers of the loader hold that object in several places, so it gets a class of its own that
    counts. Returns whether it could be done.
    """
    chooser: Any = getattr(loader, "batch_sampler", None)
    if chooser is None:
        chooser = getattr(loader, "sampler", None)
    # of several processes, each has a share of what is inside
    while getattr(chooser, "batch_sampler", None) is not None:
        chooser = chooser.batch_sampler
    if getattr(getattr(chooser, "sampler", chooser), "num_replicas", 1) > 1:
        return False
    kind: Any = type(chooser)
    if not hasattr(kind, "__iter__"):
        return False

    def counted(self: object) -> Iterator[Any]:
        for batch in kind.__iter__(self):
            count(batch)
            yield batch

    try:
        len(loader.dataset)
        chooser.__class__ = type(kind.__name__, (kind,), {"__iter__": counted})
    except (TypeError, AttributeError):  # a stream, or a list of batches
        return False
    return True


def never_drawn(
    run: RunDirectory, record: Record, labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int] | None:
    """Return positions of members that a training does not draw, and the number of its draws.

    A member that has not been drawn is one of them from the first epoch's end on, if there were as
    many draws as rows. Before, ordinary shuffling has not come to all members: only whole classes
    are, of which it would have drawn twenty members or more.

    Parameters
    ----------
    run : RunDirectory
        Run directory.
    record : Record
        The last checkpoint.
    labels : array of shape (n_members,), int64
        Label of each member.

    Returns
    -------
    tuple or None
        None if the draws are not known.
    """
    if not run.has(draws_of(record.name), record.weights):
        return None
    file = run.read_tensors(draws_of(record.name), record.weights)
    counts = np.array(file["members"])
    n_rows = int(file.metadata["rows"])
    drawn = int(file.metadata["drawn"])
    if record.epoch >= 1 and drawn >= n_rows:
        return np.flatnonzero(counts == 0), drawn
    of_class = np.bincount(labels, counts)[labels]
    expected = np.bincount(labels)[labels] * drawn / n_rows
    return np.flatnonzero((of_class == 0) & (expected >= _EXPECTED)), drawn
