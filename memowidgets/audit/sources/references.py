"""The reference models of a source: what models that never saw a member say of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.source import NotGivenError
from memowidgets.audit.sources.shadow_sets import config_digest, content_digest
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.design import REFERENCE, Design, ReferenceDesign
from memowidgets.training.shadows import ShadowSet
from memowidgets.visible import quoted

__all__ = ["GivenReferences", "NoReferences", "References"]


class References:
    """The reference models of a run.

    Only whole rounds count: with the design "parts", a model without its counterpart is not used.

    Parameters
    ----------
    run : RunDirectory
        Where they are.
    manifest : mapping
        Its manifest.
    design : Design
        Which samples the target trains on.
    ids : array of shape (n,), str
        Ids of all samples.
    precision : str
        Precision of the target.
    why_none : StoreError or None
        Error where there are none. By default it says how to train some.
    """

    def __init__(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        design: Design,
        ids: NDArray[np.str_],
        precision: str,
        why_none: StoreError | None = None,
    ) -> None:
        self._design, self._ids = design, ids
        self.plan = ReferenceDesign.of(design)
        self.config = content_digest([config_digest(manifest), manifest.get("members")])
        self.files = ShadowSet(
            run,
            self.plan.key,
            self.config,
            precision,
            why_none=why_none,
            kind=REFERENCE,
        )

    def __len__(self) -> int:
        return len(self._whole(self.files.indices()))

    def state(self) -> tuple[Hashable, ...]:
        """Return a value that changes when one is added, removed or trained again."""
        return self.config, self.plan.key, self.files.state()

    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints at which every reference model has logit gaps."""
        return self.files.checkpoints()

    def gaps(self, checkpoint: str) -> NDArray[np.float32]:
        """Return their logit gaps of the target's members.

        Returns
        -------
        array of shape (n_references, n_members), float32
            NaN where the reference model trained on the member or on a copy of it.

        Raises
        ------
        StoreError
            If there are none, none at that checkpoint, or one was trained on a sample that it was
            asked about.
        """
        found = self.files.read(checkpoint)
        whole = self._whole(found.indices.tolist())
        if not whole:
            raise StoreError(
                f"reference model {found.indices[0]} is there, and the one that trains on the "
                "other half of the members is not: call run_references(1) again"
            )
        used = np.isin(found.indices, whole)
        columns = np.searchsorted(self._design.pool, self._design.members)
        gaps = found.gaps[used][:, columns]
        for index, trained, own in zip(whole, found.members[used], gaps, strict=True):
            self._check(index, trained, np.isnan(own))
        return gaps

    def _check(self, index: int, trained: NDArray[np.bool_], silent: NDArray[np.bool_]) -> None:
        """Raise if a model was asked about what it trained on, or not about what it never saw."""
        design, path = self._design, self.files.path_of(index)
        groups = design.groups
        seen = np.isin(groups[design.members], groups[design.pool[trained]])
        for wrong, what in (
            (seen & ~silent, "was trained on {} samples that it is asked about, or on copies"),
            (~seen & silent, "has no logit gap of {} samples that it never saw"),
        ):
            if wrong.any():
                first = quoted(self._ids[design.members[wrong.argmax()]])
                raise StoreError(
                    f"{path} {what.format(int(wrong.sum()))}, the first is {first}; delete it and "
                    "call run_references again"
                )

    def _whole(self, indices: list[int]) -> list[int]:
        """Those whose round is complete: together they are asked about every member."""
        size, there = self.plan.per_round, set(indices)
        return [i for i in indices if all(i - i % size + j in there for j in range(size))]


class GivenReferences:
    """Reference models whose gaps were given.

    Parameters
    ----------
    gaps : array of shape (n_references, n), float32
        NaN where one was trained on a sample.
    checkpoint : str
        Name of the only checkpoint.
    """

    def __init__(self, gaps: NDArray[np.float32], checkpoint: str) -> None:
        self._gaps, self._checkpoint = gaps, checkpoint

    def __len__(self) -> int:
        return len(self._gaps)

    def state(self) -> tuple[Hashable, ...]:
        """Always the same: arrays stay as they are."""
        return ()

    def checkpoints(self) -> tuple[str, ...]:
        """The only one."""
        return (self._checkpoint,)

    def gaps(self, checkpoint: str) -> NDArray[np.float32]:
        """Their gaps; the checkpoint is the only one."""
        del checkpoint
        return self._gaps


class NoReferences:
    """Stands where there are no reference models, and says why.

    Parameters
    ----------
    why : str
        The sentence.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def __len__(self) -> int:
        return 0

    def state(self) -> tuple[Hashable, ...]:
        """Always the same."""
        return ()

    def checkpoints(self) -> tuple[str, ...]:
        """None."""
        return ()

    def gaps(self, checkpoint: str) -> NDArray[np.float32]:
        """Raise `NotGivenError`."""
        del checkpoint
        raise NotGivenError(self._why)
