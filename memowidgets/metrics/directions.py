"""Directions of PSMI: independent ones, grids in a plane, and rotations that cost little."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import is_tensor
from memowidgets.cores import on_all_cores
from memowidgets.metrics.arrays import Array, Floats, like, namespace, stays

Float32s = NDArray[np.float32]

FOLDS = 4
ROTATED_FROM = 256  # features, from which independent directions take most of the time
_WIDTH = 64  # directions of a block: with a thousand rows, a few tables fit in a core's cache
_AT_ONCE = 64  # directions per generator, so that more directions start with the same ones
_STREAM = 0x50534D49  # differs from default_rng(seed), which may have generated the user's data
_TURNED_BYTES = 2**20  # of rows that are turned at once, in a core's cache
_LEAST_IN_PLANE = 1e-8  # variance of the shorter axis, relative to the longer one


@dataclass(frozen=True)
class Independent:
    """Directions that were drawn one by one: theta is (m, d)."""

    theta: Array

    @property
    def m(self) -> int:
        """Number of directions."""
        return len(self.theta)

    def along(self, rows: Array) -> Array:
        """Return projections (m, n) of rows (n, d)."""
        return self.theta @ rows.T


@dataclass(frozen=True)
class Turn:
    """A rotation of r · c values, as a table that is rotated on both sides.

    Attributes
    ----------
    left : (r, r) float32
        An orthogonal matrix.
    right : (c, c) float32
        An orthogonal matrix.
    """

    left: Array
    right: Array

    @classmethod
    def drawn(cls, rng: np.random.Generator, r: int, c: int, beside: Array) -> Turn:
        """Draw a turn, on the device of an array."""
        sides = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (r, c))
        return cls(*(like(beside, side.astype(np.float32)) for side in sides))

    def of(self, rows: Array, wanted: int) -> Array:
        """Return at least the first `wanted` values of the rotated rows (n, d)."""
        n, r, c = len(rows), len(self.left), len(self.right)
        table = self.left[: -(-wanted // c)] @ rows[:, : r * c].reshape(n, r, c)
        return (table.reshape(-1, c) @ self.right).reshape(n, -1)


@dataclass(frozen=True)
class Rotated:
    """Directions that are axes of random rotations, each made of small ones.

    Those of one rotation are orthogonal, and each is uniform up to moments that no score shows:
    a turn, a shuffle of the values, and another turn. This takes about 8 n d √d operations for n
    rows, whatever the number of directions. Where d has no divisor near √d, a few values have no
    part in the first turn, and are shuffled in.
    """

    m: int
    rotations: tuple[tuple[Turn, Array, Turn], ...]

    @classmethod
    def drawn(cls, d: int, m: int, seed: int, beside: Array) -> Rotated:
        """Draw m directions, on the device of an array."""
        root = isqrt(d)
        r = max((r for r in range(root // 2 + 1, root + 1) if d % r == 0), default=root)
        c = d // r

        def rotation(i: int) -> tuple[Turn, Array, Turn]:
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM, d, i)))
            first, second = (Turn.drawn(rng, r, c, beside) for _ in range(2))
            return first, like(beside, rng.permutation(d)), second

        return cls(m, tuple(map(rotation, range(-(-m // (r * c))))))

    def along(self, rows: Array) -> Array:
        """Return projections (m, n) of rows (n, d)."""
        n, d = rows.shape
        found = like(rows, np.empty((self.m, n), dtype=np.float32))
        at_once = n if stays(rows) else max(_TURNED_BYTES // (4 * d), 16)
        for top in range(0, n, at_once):
            few, start = rows[top : top + at_once], 0
            for first, order, second in self.rotations:
                turned = first.of(few, d)
                turned = _columns(_beside(turned, few), order)
                turned = second.of(turned, self.m - start)
                size = min(self.m - start, turned.shape[1])
                found[start : start + size, top : top + at_once] = turned[:, :size].T
                start += size
        return found


def _beside(turned: Array, rows: Array) -> Array:
    """Return the turned values (n, r · c) with those of the rows (n, d) that had no part."""
    rest = rows[:, turned.shape[1] :]
    return namespace(rows).concatenate([turned, rest], 1) if rest.shape[1] else turned


def _columns(rows: Array, order: Array) -> Array:
    return rows[:, order] if is_tensor(rows) else np.take(rows, order, axis=1)


def blocks(m: int) -> list[slice]:
    """Return slices that cut m directions into blocks; block i is of fold i % FOLDS."""
    width = min(_WIDTH, -(-m // FOLDS))
    return [slice(start, min(start + width, m)) for start in range(0, m, width)]


def independent_directions(m: int, d: int, seed: int) -> Float32s:
    """Return the first m unit directions (m, d) of the seed."""
    theta = np.empty((m, d), dtype=np.float32)

    def fill(start: int) -> None:
        part = theta[start : start + _AT_ONCE]
        stream = np.random.SeedSequence(seed, spawn_key=(_STREAM, start // _AT_ONCE))
        np.random.default_rng(stream).standard_normal(out=part, dtype=np.float32)
        part /= np.sqrt(np.einsum("md,md->m", part, part))[:, None]

    for _ in on_all_cores(fill, range(0, m, _AT_ONCE)):
        pass
    return theta


def plane_directions(deviations: Floats, m: int, seed: int) -> tuple[Float32s, Float32s]:
    """Return directions (m, 2) on grids with random shifts, and what each stands for (m, 1).

    That is its share of all angles, which is 1 on average in each fold.

    Where one axis is far longer than the other, much happens within few angles. So the grids are
    even halfway between this plane and the one in which the rows' deviations (n, 2) from their
    class mean are round.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    sizes = [block.stop - block.start for block in blocks(m)]
    angles = np.concatenate([np.pi * (np.arange(n) + rng.random()) / n for n in sizes])
    values, axes = np.linalg.eigh(deviations.T @ deviations)
    lengths = np.maximum(values / (values.max() or 1), _LEAST_IN_PLANE) ** -0.25
    theta = np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths @ axes.T
    widths, fold = 1 / (theta**2).sum(axis=1), np.repeat(np.arange(len(sizes)) % FOLDS, sizes)
    widths /= (np.bincount(fold, widths) / np.bincount(fold))[fold]
    return theta.astype(np.float32), widths[:, None].astype(np.float32)
