"""The models in a run directory that its target is compared with: shadow and reference models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.audit.evidence import Models, OneModel
from memowidgets.audit.names import NotGivenError
from memowidgets.checks import as_code, whole_number
from memowidgets.stamps import array_digest, digest
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.design import REFERENCE, SHADOW, Kind, ReferenceDesign
from memowidgets.training.pools import check_executor
from memowidgets.training.shadows import Shadows, ShadowSet, read_choice, write_choice
from memowidgets.visible import quoted

if TYPE_CHECKING:
    from memowidgets.audit.run import Run


def check_request(
    n: Any,
    executor: Executor | None,
    checkpoints: Any,
    processes: int | None,
    kind: Kind = SHADOW,
) -> None:
    """Refuse what can't be meant.

    Raises
    ------
    ValueError, TypeError
        With what would be right.
    """
    each = " for each member" if kind is REFERENCE else ""
    whole_number(f"n, the number of {kind.noun}s{each} in all,", n, 1)
    check_executor(executor)
    if processes is not None:
        whole_number("processes", processes, 1)
    if isinstance(checkpoints, Sized) and not len(checkpoints):
        raise ValueError('checkpoints is empty; the default is ("prediction", "final")')


def checked_part(indices: Any, n: int) -> list[int]:
    """Return the indices of the shadow models that this process trains, each once.

    Raises
    ------
    ValueError, TypeError
        If it is no series, is empty, or one is no whole number from 0 to n − 1.
    """
    if not isinstance(indices, Iterable) or isinstance(indices, str | bytes):
        raise TypeError(f"indices are whole numbers such as range(0, 10), not {as_code(indices)}")
    part = [whole_number("each of indices", index, 0, n - 1) for index in indices]
    if not part:
        raise ValueError("indices is empty; leave it out to train all that are missing")
    return list(dict.fromkeys(part))


def config_digest(manifest: Mapping[str, Any]) -> str:
    """Return a digest of what shadow models must share with their target, as first written.

    That is model, data, training, pool and seed.
    """
    parts = ("seed", "model", "training", "pool", "content")
    kept = {part: manifest[part] for part in parts if part in manifest}
    return digest([kept, manifest["data"]["labels"]])


def shadow_set(
    run: RunDirectory,
    key: str | None = None,
    precision: str = "",
    why_none: StoreError | None = None,
) -> ShadowSet:
    """Return the shadow models of a design, by the key of the set.

    By default those that `use_set` chose last, and random halves if it never did.
    """
    key = str(read_choice(run).get("key", "halves")) if key is None else key
    return ShadowSet(run, key, config_digest(run.manifest), precision, why_none=why_none)


def use_set(run: RunDirectory, key: str) -> None:
    """Take the truth from the shadow models of this design from now on.

    A recording is not written to: there the choice is the caller's to remember.
    """
    choice = read_choice(run)
    if key != choice.get("key", "halves") and not run.read_only:
        write_choice(run, {**choice, "key": key})


def shadow_sets(run: RunDirectory) -> dict[str, ShadowSet]:
    """Return the sets with at least one shadow model, by key."""
    folders = [name for name in run.names("shadows", "") if run.names(f"shadows/{name}")]
    found = {key: shadow_set(run, key) for key in ("halves", *folders)}
    return {key: kept for key, kept in found.items() if len(kept)}


def set_of_design(run: RunDirectory, design: str) -> ShadowSet:
    """Return the set of a design, or of that key.

    Raises
    ------
    ValueError
        If there is none, or several of that design; the message lists the keys.
    """
    sets = shadow_sets(run)
    named = [key for key in sets if design in (key, key.split("-")[0])]
    if design in sets or len(named) == 1:
        return sets[design if design in sets else named[0]]
    there = ", ".join(f"{quoted(key)} ({len(kept)})" for key, kept in sets.items()) or "none yet"
    what = f"{len(named)} sets of shadow models are" if named else "no set of shadow models is"
    raise ValueError(f"{what} of the design {design!r}; there are {there}")


def models_of(shadows: ShadowSet) -> Models:
    """Return a set of shadow models as evidence. Its files are read when they are asked for."""

    def one(index: int) -> OneModel:
        shadows.check(index)
        file = shadows.file(index)
        model = digest([file.metadata, array_digest(file["members"])])  # as in a recording
        return OneModel(file, file.metadata.get("forward"), model, shadows.state_of(index))

    return Models(
        shadows.key,
        shadows.read,
        shadows.indices,
        shadows.checkpoints,
        shadows.lost,
        one,
        shadows.state(),
    )


class References:
    """The reference models of a run.

    Only whole rounds count: with the design "parts", a model without its counterpart is not used.

    Parameters
    ----------
    of : Run
        The run whose target they are compared with.
    why_none : StoreError or None
        Error where there are none. By default it says how to train some.
    """

    def __init__(self, of: Run, why_none: NotGivenError | None = None) -> None:
        self._of, self.plan = of, ReferenceDesign.of(of.design)
        self.config = digest([config_digest(of.manifest), of.manifest.get("members")])
        own = of.run, self.plan.key, self.config, of.precision
        self.files = ShadowSet(*own, why_none=why_none, kind=REFERENCE)

    def models(self) -> Models:
        """Return them as evidence."""
        state = self.config, self.plan.key, self.files.state()
        return Models(self.plan.key, self.read, self.indices, self.files.checkpoints, state=state)

    def indices(self) -> list[int]:
        """Return the numbers of those whose round is complete, which are asked of every member."""
        found = self.files.indices()
        size, there = self.plan.per_round, set(found)
        return [i for i in found if all(i - i % size + j in there for j in range(size))]

    def read(self, checkpoint: str) -> Shadows:
        """Return masks and logit gaps over the pool, NaN where one was trained on a sample.

        Raises
        ------
        StoreError
            If there are none, none at that checkpoint, or one was trained on a member that it was
            asked about.
        """
        found, whole = self.files.read(checkpoint), self.indices()
        if not whole:
            raise StoreError(
                f"reference model {found.indices[0]} is there, and the one that trains on the "
                "other half of the members is not: call run_references(1) again"
            )
        used = np.isin(found.indices, whole)
        read = Shadows(found.members[used], found.gaps[used], found.indices[used])
        design = self._of.design
        columns = np.searchsorted(design.pool, design.members)
        for index, trained, own in zip(read.indices, read.members, read.gaps, strict=True):
            silent = np.isnan(own[columns])
            # a copy of a sample counts as the sample
            seen = np.isin(design.groups[design.members], design.groups[design.pool[trained]])
            for wrong, what in (
                (seen & ~silent, "was trained on {} samples that it is asked about, or on copies"),
                (~seen & silent, "has no logit gap of {} samples that it never saw"),
            ):
                if wrong.any():
                    first = quoted(self._of.data.ids[design.members[wrong.argmax()]])
                    raise StoreError(
                        f"{self.files.path_of(int(index))} {what.format(int(wrong.sum()))}, the "
                        f"first is {first}; delete it and call run_references again"
                    )
        return read
