"""What each model trains on: held-out samples, pool, members, those of shadows, label noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_same_order, id_text, real_number, to_numpy
from memowidgets.data import Dataset
from memowidgets.files import digest_of
from memowidgets.training.config import derived_seed
from memowidgets.vocabulary import quoted

Members = str | Sequence[Any] | NDArray[np.bool_]
HeldOut = float | Dataset | Sequence[Any] | NDArray[np.bool_] | None

SHADOW_DESIGNS = ("halves", "balanced", "canaries")
_HELD_OUT = 0
_TARGET = 1
_SHADOW = 2
_NOISE = 5
_PAIR = 6
_REFERENCE = 7
NOTHING_LEFT_OUT = (
    "the target trains on the whole pool, so shadow models can't tell what it would be without a "
    "sample"
)
HOW_TO_LEAVE_OUT = (
    'make the audit with members="half" for ground truth, or audit some samples with '
    'design="canaries"'
)
_FEWEST = 2  # samples that a model trains on


@dataclass(frozen=True)
class Kind:
    """A kind of models that are trained beside the target.

    Attributes
    ----------
    noun : str
        What one of them is called.
    call, usual : str
        Method of `Audit` that trains them, and how many are usual.
    folder : str
        Folder of their files in a run directory.
    stream : int
        Stream of their seeds, see `memowidgets.training.config.derived_seed`.
    """

    noun: str
    call: str
    usual: str
    folder: str
    stream: int


SHADOW = Kind("shadow model", "run_shadows", "64", "shadows", 4)
REFERENCE = Kind("reference model", "run_references", "2", "references", 8)


@dataclass(frozen=True)
class Design:
    """Parts of a dataset of n samples, as ascending positions.

    Attributes
    ----------
    pool : array of shape (n_pool,), int64
        Samples that a model may train on.
    members : array of shape (n_members,), int64
        Samples of the pool that the target model trains on.
    held_out : array of shape (n_held_out,), int64
        Samples that no model trains on.
    groups : array of shape (n,), int64
        Group numbers, equal for duplicates, which stay on one side of every split.
    """

    pool: NDArray[np.int64]
    members: NDArray[np.int64]
    held_out: NDArray[np.int64]
    groups: NDArray[np.int64]

    @property
    def all_members(self) -> bool:
        """Whether the target trains on the whole pool. Then there is no ground truth."""
        return len(self.members) == len(self.pool)


@dataclass(frozen=True)
class ShadowDesign:
    """Rule for the part of the pool that each shadow model trains on.

    Attributes
    ----------
    name : {"halves", "balanced", "canaries"}
        "halves" is a random half for each model. "balanced" is halves in pairs, where the second is
        what the first left out, so every sample is in exactly half of an even number of models.
        "canaries" is always the target's members without the audited samples, plus the audited ones
        in such pairs of halves.
    audited : array of shape (n_audited,), int64, or None
        Positions of the audited samples, for "canaries". Duplicates are together.

    Raises
    ------
    ValueError
        If the name is unknown.
    """

    kind: ClassVar[Kind] = SHADOW

    name: str = "halves"
    audited: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.name not in SHADOW_DESIGNS:
            raise ValueError(
                f"unknown design {self.name!r}; valid: {', '.join(SHADOW_DESIGNS)}"
            )

    @classmethod
    def of(
        cls,
        design: Design,
        name: str,
        data: Dataset,
        audited: Sequence[str] | NDArray[Any] | None,
    ) -> ShadowDesign:
        """Return the design of that name for a split.

        Raises
        ------
        ValueError
            If the name is unknown, nothing can be audited, or the target leaves nothing out.
        """
        plan = cls(name)
        if name == "canaries":
            return cls(name, audited_samples(data, design, audited))
        if audited is not None:
            raise ValueError(f'audited= goes with design="canaries", not with {name!r}')
        if design.all_members:
            raise ValueError(f"{NOTHING_LEFT_OUT}: {HOW_TO_LEAVE_OUT}")
        return plan

    @property
    def key(self) -> str:
        """Name of the set of shadow models of this design."""
        if self.audited is None:
            return self.name
        positions = np.ascontiguousarray(self.audited, dtype="<i8").tobytes()
        return f"{self.name}-{digest_of(positions)[:8]}"

    def members(self, design: Design, seed: int, index: int) -> NDArray[np.bool_]:
        """Return whether a shadow model trains on each sample of the pool, (n_pool,)."""
        if self.name == "halves":
            half = _half(design.pool, design.groups, derived_seed(seed, _SHADOW, index))
            return np.isin(design.pool, half)
        split = design.pool if self.audited is None else self.audited
        half = _half(
            split, design.groups, derived_seed(seed, _PAIR, index // 2), other=index % 2
        )
        if self.audited is not None:
            half = np.union1d(half, np.setdiff1d(design.members, self.audited))
        return np.isin(design.pool, half)

    def asked(self, design: Design, trained: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether a model's logit gap of each sample of the pool is kept: of all."""
        del design
        return np.ones_like(trained)


@dataclass(frozen=True)
class ReferenceDesign:
    """Rule for the samples that each reference model trains on, and those it is asked about.

    A reference model is asked about the target's members that it never saw. A copy of a sample
    that it trained on counts as seen.

    Attributes
    ----------
    name : {"others", "parts"}
        "others": as many samples of the pool as the target has members, or all there are, that are
        no members and no copies of members; it is asked about every member. "parts": all members
        but one part of them, about which it is asked. Each of the models of a round is asked about
        another part.
    parts : int
        Number of parts.
    """

    kind: ClassVar[Kind] = REFERENCE

    name: str
    parts: int = 2

    @classmethod
    def of(cls, design: Design, parts: int = 2) -> ReferenceDesign:
        """Return the design for a split: "others" if it leaves half as many samples as members."""
        n = len(_others(design))
        if n >= max(_FEWEST, len(design.members) / 2):
            return cls("others")
        return cls("parts", parts)

    @property
    def key(self) -> str:
        """Name of the set of reference models of this design."""
        return self.name if self.parts == 2 else f"{self.name}-{self.parts}"

    @property
    def per_round(self) -> int:
        """Number of models that together are asked about every member."""
        return 1 if self.name == "others" else self.parts

    def members(self, design: Design, seed: int, index: int) -> NDArray[np.bool_]:
        """Return whether a reference model trains on each sample of the pool, (n_pool,)."""
        turn, place = divmod(index, self.per_round)
        round_seed = derived_seed(seed, _REFERENCE, turn)
        if self.name == "others":
            others = _others(design)
            wanted = min(len(design.members), len(others))
            return np.isin(
                design.pool, _draw(others, design.groups, wanted, round_seed)
            )

        def first(parts: int) -> NDArray[np.int64]:
            wanted = round(parts / self.parts * len(design.members))
            return _draw(design.members, design.groups, wanted, round_seed)

        last = self.parts - place
        asked = np.setdiff1d(first(last), first(last - 1))
        own = np.setdiff1d(design.members, asked)
        return np.isin(design.pool, own)

    def asked(self, design: Design, trained: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether a model is asked about each sample of the pool: members it never saw."""
        groups = design.groups[design.pool]
        asked: NDArray[np.bool_] = np.isin(design.pool, design.members)
        return asked & ~np.isin(groups, groups[trained])

    def check(self, design: Design, seed: int, n: int) -> None:
        """Raise for rounds 0 to n − 1 if a model has too few samples, or a member no model.

        Raises
        ------
        ValueError
            The message gives the numbers.
        """
        for index in range(n * self.per_round):
            trained = int(self.members(design, seed, index).sum())
            if trained < _FEWEST:
                different = len(np.unique(design.groups[design.members]))
                raise ValueError(
                    f"reference model {index} would train on {trained} samples of {_FEWEST} or "
                    f"more: the target has {len(design.members)} members, {different} different, "
                    f"and the pool {len(_others(design))} others; make the audit with more data"
                )


def audited_samples(
    data: Dataset, design: Design, audited: Sequence[str] | NDArray[Any] | None
) -> NDArray[np.int64]:
    """Return positions of the samples that "canaries" puts in half of the shadow models.

    Parameters
    ----------
    data : Dataset
        The dataset.
    design : Design
        Its split.
    audited : mask of shape (n,), sequence of ids, or None
        Samples to audit. None means the canaries. Duplicates of them are added, and held-out
        samples are left out.

    Raises
    ------
    ValueError
        If there are no canaries, an id is unknown, or fewer than two different samples remain.
    """
    if audited is None:
        if data.canaries is None:
            raise ValueError(
                'design="canaries" needs data.with_canaries(), or a mask or ids as audited='
            )
        audited = data.canaries
    chosen = _positions_of(data, audited, "members")
    samples = design.pool[np.isin(design.groups[design.pool], design.groups[chosen])]
    if len(np.unique(design.groups[samples])) < 2:
        raise ValueError(
            f"only {len(samples)} of the pool's samples would be audited; it needs two that differ"
        )
    return samples


def draw_design(
    data: Dataset, members: Members, held_out: HeldOut, seed: int
) -> Design:
    """Split a dataset into held-out samples, pool and members.

    Parameters
    ----------
    data : Dataset
        The dataset.
    members : {"half", "all"}, sequence of ids, or mask of shape (n,)
        Samples that the target trains on: a seeded half of the pool, the whole pool, or these.
    held_out : float, sequence of ids, mask of shape (n,), Dataset or None
        Share that no model trains on, drawn before the members, or these samples. Nothing is drawn
        for another dataset or None.
    seed : int
        Seed of the draws.

    Raises
    ------
    ValueError
        If an id is unknown, a mask has the wrong length, a part would be empty, or a held-out
        sample is equal to one that is trained on.
    TypeError
        If the mask is of 0 and 1, which may be ids too.
    """
    groups = _groups(data)
    everything = np.arange(len(data))
    named = _positions_of(data, members, "members") if np.ndim(members) else None
    if named is None and members not in ("half", "all"):
        raise ValueError(
            f"unknown members {members!r}; valid: 'half', 'all', ids, a mask"
        )
    others = (
        everything if named is None else everything[~np.isin(groups, groups[named])]
    )
    aside = _held_out(data, others, groups, held_out, seed)
    pool = chosen = np.setdiff1d(everything, aside)
    if named is not None:
        chosen = named
    elif members == "half":
        chosen = _half(pool, groups, derived_seed(seed, _TARGET))
    trained_on = aside[np.isin(groups[aside], np.union1d(groups[pool], groups[chosen]))]
    if len(trained_on):
        raise ValueError(
            f"{len(trained_on)} held-out samples are equal to samples that are trained on, the "
            f"first is {quoted(data.ids[trained_on[0]])}"
        )
    if len(chosen) < 2:
        raise ValueError(
            f"the target would train on {len(chosen)} samples; it needs two or more"
        )
    return Design(pool, chosen, aside, groups)


def follow_design(before: Design, names: NDArray[np.str_], data: Dataset) -> Design:
    """Return the same split of other data, by id.

    Parameters
    ----------
    before : Design
        Split of the earlier data.
    names : array of shape (n_before,), str
        Ids of the earlier data.
    data : Dataset
        The new data. New samples join the pool, but not the members. A held-out sample that is now
        equal to a sample of the pool is left out of both.

    Raises
    ------
    ValueError
        If fewer than two members are left.
    """
    groups = _groups(data)
    members = np.flatnonzero(np.isin(data.ids, names[before.members]))
    aside = np.isin(data.ids, names[before.held_out])
    if len(members) < 2:
        raise ValueError(
            f"{len(members)} of the {len(before.members)} members are in these data, by id, and "
            "a target needs two; use audit.kept(), or keep the ids"
        )
    pool = np.flatnonzero(~aside)
    held_out = np.flatnonzero(aside & ~np.isin(groups, groups[pool]))
    return Design(pool, members, held_out, groups)


def _others(design: Design) -> NDArray[np.int64]:
    """Return samples of the pool that are neither members nor copies of members."""
    seen = np.isin(design.groups[design.pool], design.groups[design.members])
    return design.pool[~seen]


def _groups(data: Dataset) -> NDArray[np.int64]:
    _, groups = np.unique(data.content_hashes(), return_inverse=True)
    return groups.astype(np.int64)


def _positions_of(data: Dataset, given: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return the positions of samples that are given by ids or as a mask."""
    array = to_numpy(given, what)
    if array.dtype == np.bool_:
        check_same_order(data=data, **{what: given})
        if array.shape != (len(data),):
            raise ValueError(
                f"the mask of {what} has the shape {array.shape} for {len(data)} samples"
            )
        return np.flatnonzero(array)
    if (
        array.shape == (len(data),)
        and array.dtype.kind in "iu"
        and np.isin(array, (0, 1)).all()
    ):
        raise TypeError(
            f"a mask of samples must be bool, but has dtype {array.dtype}: pass mask.astype(bool)"
        )
    positions = {name: i for i, name in enumerate(data.ids.tolist())}
    ids: Any = array if array.ndim == 1 else given  # tuples would be rows of a table
    names = list(map(id_text, ids))
    unknown = [name for name in names if name not in positions]
    if unknown:
        first = quoted(unknown[0])
        raise ValueError(
            f"{len(unknown)} ids of {what} are not in the dataset, the first is {first}"
        )
    return np.unique([positions[name] for name in names]).astype(np.int64)


def _held_out(
    data: Dataset,
    candidates: NDArray[np.int64],
    groups: NDArray[np.int64],
    held_out: HeldOut,
    seed: int,
) -> NDArray[np.int64]:
    if held_out is None or isinstance(held_out, Dataset):
        return np.empty(0, dtype=np.int64)
    if np.ndim(held_out):
        return _positions_of(data, held_out, "held_out")
    share = real_number("held_out, if it is no dataset,", held_out)
    if not 0 <= share < 1:
        raise ValueError(f"held_out must be a share from 0 to below 1, not {held_out}")
    wanted = min(round(share * len(data)), len(candidates))
    return _draw(candidates, groups, wanted, derived_seed(seed, _HELD_OUT))


def _half(
    positions: NDArray[np.int64], groups: NDArray[np.int64], seed: int, other: int = 0
) -> NDArray[np.int64]:
    """Draw one half of the positions, or return the other one."""
    half = _draw(positions, groups, round(0.5 * len(positions)), seed)
    return np.setdiff1d(positions, half) if other else half


def _draw(
    positions: NDArray[np.int64], groups: NDArray[np.int64], wanted: int, seed: int
) -> NDArray[np.int64]:
    """Draw whole groups at random until there are as many, and return them ascending."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.unique(groups[positions]))
    rank = np.empty(int(groups.max()) + 1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    by_rank = positions[np.argsort(rank[groups[positions]], kind="stable")]
    if wanted == 0:
        return np.empty(0, dtype=np.int64)
    last = rank[groups[by_rank[wanted - 1]]]
    return np.sort(positions[rank[groups[positions]] <= last])


def add_noise(
    data: Dataset, pool: NDArray[np.int64], share: float, seed: int
) -> Dataset:
    """Flip a share of the pool's labels to another class of the sample, drawn evenly.

    Canaries keep their label, which is wrong on purpose.

    Parameters
    ----------
    data : Dataset
        Dataset with the true labels.
    pool : array of shape (n_pool,), int64
        Samples that a model may train on. Held-out samples keep their labels.
    share : float
        Share from 0 to below 1. The paper's reference code uses 0.033.
    seed : int
        Seed of the draw.
    """
    rng = np.random.default_rng(derived_seed(seed, _NOISE))
    wanted = round(share * len(pool))
    if data.canaries is not None:
        pool = pool[~data.canaries[pool]]
    flipped = np.sort(rng.choice(pool, size=min(wanted, len(pool)), replace=False))
    if not len(flipped):
        return data
    n_classes = getattr(data, "n_choices", np.full(len(data), len(data.class_names)))[
        flipped
    ]
    labels = data.labels.copy()
    labels[flipped] = (labels[flipped] + rng.integers(1, n_classes)) % n_classes
    return data.with_labels(labels)
