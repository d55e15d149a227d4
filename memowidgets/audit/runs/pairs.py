"""Reading of the samples of a torch dataset, with a progress bar."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from memowidgets.audit.console import shown
from memowidgets.data.pairs import PairDataset
from memowidgets.training.loop.inputs import Pairs, pairs_of
from memowidgets.training.seeds import restored

__all__ = ["others", "pair_data", "read_pairs"]


def pair_data(data: Any, class_names: Sequence[str], ids: Sequence[str]) -> PairDataset:
    """Return the samples of a torch dataset or loader that a watched run was made with."""
    return read_pairs(pairs_of(data), class_names, ids)


def others(held_out: Any, class_names: Sequence[str]) -> PairDataset:
    """Return the held-out samples of a torch dataset or loader; classes may be absent."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*never occur in the labels", UserWarning)
        return read_pairs(pairs_of(held_out), class_names, None)


def read_pairs(
    pairs: Pairs, class_names: Sequence[str] | None, ids: Sequence[str] | None
) -> PairDataset:
    """Read each pair once, without changing any random state."""
    with restored(), shown(None) as progress:
        return PairDataset.from_pairs(
            pairs.rows,
            class_names,
            ids,
            lambda done, total: progress.report(done, total, "reading the data"),
        )
