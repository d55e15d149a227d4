"""Dataset of ids, labels and hashes, for samples that are stored elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.data.base import BoolArray, Dataset, IntArray, chosen_positions, one_position


@dataclass(frozen=True)
class WithheldSample:
    """Known values of a sample that is not available.

    Attributes
    ----------
    id : str
        Id of the sample.
    label : int
        Label that it is trained on.
    canary : bool
        Whether it is a canary.
    hint : str
        How to make the sample available.
    """

    id: str
    label: int
    canary: bool = False
    hint: str = ""


@dataclass(frozen=True, repr=False, eq=False)
class WithheldDataset(Dataset):
    """Ids, labels and content hashes, as stored in a run directory.

    Attributes
    ----------
    ids, labels, class_names, canaries, source
        As in `Dataset`.
    hashes : tuple of str
        Content hash of each sample.
    hint : str
        Argument for opening the run that makes the samples available.
    """

    ids: NDArray[np.str_]
    labels: IntArray
    class_names: tuple[str, ...]
    hashes: tuple[str, ...]
    canaries: BoolArray | None = None
    source: dict[str, Any] | None = None
    hint: str = "data=…"

    def __repr__(self) -> str:
        return f"WithheldDataset({len(self)} samples, not at hand)"

    def __getitem__(self, index: int) -> WithheldSample:
        index = one_position(index, len(self))
        canary = self.canaries is not None and bool(self.canaries[index])
        return WithheldSample(str(self.ids[index]), int(self.labels[index]), canary, self.hint)

    def take(self, indices: ArrayLike) -> Self:
        """Return the samples at these positions, in this order, as a dataset."""
        chosen = chosen_positions(indices, len(self))
        return replace(
            self,
            ids=self.ids[chosen],
            labels=self.labels[chosen],
            hashes=tuple(self.hashes[i] for i in chosen),
            canaries=None if self.canaries is None else self.canaries[chosen],
        )

    def content_hashes(self) -> list[str]:
        """Return the recorded hashes."""
        return list(self.hashes)
