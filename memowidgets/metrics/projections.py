"""Inner loop of PSMI: values and their products, for blocks of directions and sorted samples.

Projections have a row for each direction. The samples of a class stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from memowidgets.cores import on_all_cores
from memowidgets.metrics.arrays import Array, Floats, Ints, like, namespace

Float32s = NDArray[np.float32]

FOLDS = 4
ROTATED_FROM = 256  # features, from which independent directions take most of the time
_WIDTH = 64  # directions of a block: with a thousand rows, a few tables fit in a core's cache
# directions per generator, so that more directions start with the same ones
_AT_ONCE = 64
_STREAM = 0x50534D49  # differs from default_rng(seed), which may have generated the user's data
_TURNED_BYTES = 2**20  # of rows that are turned at once, in a core's cache
_LEAST_IN_PLANE = 1e-8  # variance of the shorter axis, relative to the longer one
_SAFELY_ABOVE = 1e-30  # float32 holds larger sums of exponentials to full precision
# relative to a control's mean square; smaller variances are rounding errors
_ROUNDING = 1e-6
# relative to a control's variance; well above the rounding of float32 sums
_RIDGE = 1e-4
_MOST_POINTS = 1024  # of a curve
_REACH = 6.0  # deviations of all rows, that a curve reaches on each side of their mean
_FINE = 14.0  # points in a deviation of the narrowest class, for an error below 1e-5

Segments = dict[int, slice]


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
class Rotated:
    """Directions that are axes of random rotations, each made of small ones.

    Those of one rotation are orthogonal, and each is uniform up to moments that no score shows. The
    values of a row are a table of r · c, whose columns and rows are mixed by a small rotation each;
    then they are shuffled and mixed once more. This takes about 8 n d √d operations for n rows,
    whatever the number of directions. Where d has no divisor near √d, the table ends in a few
    zeros. An axis also has a part along these. Without it, axes are only nearly orthogonal, and
    each is divided by the length that it still has.

    Attributes
    ----------
    m : int
        Number of directions.
    rotations : tuple of Rotation
        All axes of each are directions, but the last ones of the last rotation.
    """

    m: int
    rotations: tuple[Rotation, ...]

    @classmethod
    def drawn(cls, d: int, m: int, seed: int, beside: Array) -> Rotated:
        """Draw m directions, on the device of an array."""
        root = isqrt(d)

        def zeros_saved(r: int) -> tuple[int, int]:
            return -(-d % r), r

        # the fewest zeros at the end of the table, and of those the squarest one
        r = max(range(root // 2 + 1, root + 1), key=zeros_saved)
        c = -(-d // r)
        n_rotations = -(-m // (r * c))

        def rotation(i: int) -> Rotation:
            stream = np.random.SeedSequence(seed, spawn_key=(_STREAM, d, i))
            return Rotation.drawn(d, r, c, np.random.default_rng(stream), beside)

        return cls(m, tuple(map(rotation, range(n_rotations))))

    def along(self, rows: Array) -> Array:
        """Return projections (m, n) of rows (n, d)."""
        n, d = rows.shape
        xp = namespace(rows)
        missing = len(self.rotations[0].order) - d
        projected = like(rows, np.empty((self.m, n), dtype=np.float32))
        on_device = xp is not np
        at_once = n if on_device else max(_TURNED_BYTES // (4 * d), 16)
        for top in range(0, n, at_once):
            columns = rows[top : top + at_once].T
            here = slice(top, top + columns.shape[1])
            if missing:
                zeros = np.zeros((missing, columns.shape[1]), dtype=np.float32)
                columns = xp.concatenate([columns, like(rows, zeros)])
            start = 0
            for rotation in self.rotations:
                turned = rotation.turned(columns, self.m - start)
                projected[start : start + len(turned), here] = turned
                start += len(turned)
        return projected


@dataclass(frozen=True)
class Rotation:
    """Random rotation of the values of a row, a table of r · c.

    Attributes
    ----------
    before, after : tuple
        Matrices (c, c) and (r, r) that mix the table before the shuffle and after it.
    order : (r · c,) int
        The shuffle.
    lengths : (r · c, 1) float32 or None
        Length of each axis without its part along zeros; None where the table has none.
    """

    before: tuple[Array, Array]
    after: tuple[Array, Array]
    order: Array
    lengths: Array | None = None

    @classmethod
    def drawn(
        cls, d: int, r: int, c: int, rng: np.random.Generator, beside: Array
    ) -> Rotation:
        """Draw one for d columns, on the device of an array."""

        def orthogonal(n: int) -> Array:
            matrix, _ = np.linalg.qr(rng.standard_normal((n, n)))
            return like(beside, matrix.astype(np.float32))

        # in this order, which a seed stands for
        c1 = orthogonal(c)
        r1 = orthogonal(r)
        r2 = orthogonal(r)
        c2 = orthogonal(c)
        order = like(beside, rng.permutation(r * c))
        whole = cls((c1, r1), (c2, r2), order)
        if r * c == d:
            return whole
        zeros = like(beside, np.eye(r * c, r * c - d, -d, dtype=np.float32))
        along_zeros = (whole.turned(zeros, r * c) ** 2).sum(1)
        return replace(whole, lengths=(1 - along_zeros[:, None]) ** 0.5)

    def turned(self, columns: Array, most: int) -> Array:
        """Return at most so many values (m, n) of rotated columns (r · c, n)."""
        c1, r1 = self.before
        c2, r2 = self.after
        r = len(r1)
        c = len(c1)
        n = columns.shape[1]
        in_rows = c1 @ columns.reshape(r, c, n)
        mixed = (r1 @ in_rows.reshape(r, c * n)).reshape(-1, n)
        shuffled = mixed[self.order].reshape(r, c * n)
        # of the last mixing only the rows of the table that are asked for
        few = r2[: -(-most // c)]
        table = (few @ shuffled).reshape(len(few), c, n)
        values = (c2 @ table).reshape(-1, n)[:most]
        return values if self.lengths is None else values / self.lengths[: len(values)]


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


def plane_directions(
    deviations: Floats, m: int, seed: int
) -> tuple[Float32s, Float32s]:
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
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    theta = circle * lengths @ axes.T
    # even steps between the two planes are uneven ones here
    widths = 1 / (theta**2).sum(axis=1)
    fold = np.repeat(np.arange(len(sizes)) % FOLDS, sizes)
    mean_width = np.bincount(fold, widths) / np.bincount(fold)
    widths /= mean_width[fold]
    return theta.astype(np.float32), widths[:, None].astype(np.float32)


def segments(codes: Ints) -> Segments:
    """Return where the samples of each class stand, from their sorted class indices."""
    present, starts = np.unique(codes, return_index=True)
    stops = np.append(starts[1:], len(codes))
    bounds = zip(present.tolist(), starts.tolist(), stops.tolist(), strict=True)
    return {c: slice(start, stop) for c, start, stop in bounds}


@dataclass(frozen=True)
class Curves:
    """Logarithm of the density of all rows along each direction, as a function of the projection.

    To read it takes as long as to compute the densities of three classes.

    Attributes
    ----------
    start, scale : (m, 1) float32
        Where each curve begins, and its points in a unit.
    powers : (3, m, points) float32
        Coefficients of a quadratic around each point, in points.
    coarse : (m,) bool
        Directions along which a class is too narrow for the points.
    """

    start: Array
    scale: Array
    powers: Array
    coarse: Array

    @classmethod
    def of(cls, tables: Tables, mean: Floats, variance: Floats) -> Curves:
        """Compute the curves where each class has a mean and a variance (C, m)."""
        xp = namespace(tables.mean)
        middle = mean.mean(axis=0)
        deviation = np.sqrt((variance + (mean - middle) ** 2).mean(axis=0))
        length = 2 * _REACH * deviation
        narrowest = np.sqrt(variance.min(axis=0))
        enough = float((length * _FINE / narrowest).max())
        points = int(min(enough, _MOST_POINTS - 2)) + 2
        coarse = like(tables.mean, narrowest * (points - 1) / length < _FINE)

        def column(values: Floats) -> Array:
            return like(tables.mean, values.astype(np.float32)[:, None])

        start = column(middle - length / 2)
        scale = column((points - 1) / length)
        powers = like(start, np.empty((3, len(middle), points), dtype=np.float32))
        steps = like(start, np.arange(-1, points + 1, dtype=np.float32))
        for block in blocks(len(middle)):
            P = start[block] + steps / scale[block]
            log = tables.add_up(P, block, xp.empty_like(P), xp.empty_like(P))
            before = log[:, :-2]
            here = log[:, 1:-1]
            after = log[:, 2:]
            powers[0, block] = here
            powers[1, block] = (after - before) / 2
            powers[2, block] = (after + before) / 2 - here
        return cls(start, scale, powers, coarse)

    def read(self, P: Array, block: slice, out: Array) -> Array | None:
        """Write the values at projections (width, n); return samples (n,) that are out of reach."""
        xp = namespace(P)
        points = self.powers.shape[2]
        beyond = None
        xp.subtract(P, self.start[block], out=out)
        xp.multiply(out, self.scale[block], out=out)
        if not (float(out.min()) >= 0 and float(out.max()) <= points - 1):  # or NaN
            beyond = ~((out >= 0) & (out <= points - 1)).all(0)
            out[:, beyond] = 0
        nearest = xp.floor(out + 0.5)
        out -= nearest
        nearest += like(P, points * np.arange(len(P), dtype=np.float32)[:, None])
        at = xp.asarray(nearest, dtype=xp.int64)
        constant, slope, square = (xp.take(table[block], at) for table in self.powers)
        square *= out
        square += slope
        out *= square
        out += constant
        return beyond


@dataclass(frozen=True)
class Tables:
    """Quadratics of each class along each direction, in float32.

    Attributes
    ----------
    mean, curvature, offset : (C, m, 1)
        A density times p(y) is exp(offset + curvature · (θᵀx − mean)²), relative to the largest
        one of the direction.
    log_prior : (C,)
        log p(y).
    control : (2, C, m, 1) or None
        Curvature and offset of each class's log density that is a control; None without controls.
    total : (3, m, 1) or None
        Mean, curvature and offset of that of all rows.
    share : (m, 1) or None
        Share of all angles that each direction of a grid in the plane stands for, 1 on average in
        each fold; None elsewhere.
    curves : Curves or None
        None where the densities of all classes are added up for each projection.
    """

    mean: Array
    curvature: Array
    offset: Array
    log_prior: Array
    control: Array | None = None
    total: Array | None = None
    share: Array | None = None
    curves: Curves | None = None

    def log_density(self, P: Array, block: slice, part: Array, out: Array) -> None:
        """Write the log density of all rows at projections (width, n); `part` is as large."""
        if self.curves is None:
            out[:] = self.add_up(P, block, part, out)
            return
        xp = namespace(P)
        beyond = self.curves.read(P, block, out)
        coarse = self.curves.coarse[block]
        if bool(coarse.any()):
            directions = like(P, np.arange(block.start, block.start + len(P)))[coarse]
            # an index makes copies, so both rooms are new here
            rooms = part[coarse], part[coarse]
            out[coarse] = self.add_up(P[coarse], directions, *rooms)
        if beyond is not None:
            few = P[:, beyond]
            rooms = xp.empty_like(few), xp.empty_like(few)
            out[:, beyond] = self.add_up(few, block, *rooms)

    def add_up(
        self, P: Array, block: slice | Array, part: Array, total: Array
    ) -> Array:
        """Return the logarithm of the sum of all classes' densities; both rooms are overwritten."""
        xp = namespace(P)
        tables = [table[:, block] for table in (self.mean, self.curvature, self.offset)]
        total[:] = 0
        for mean, curvature, offset in zip(*tables, strict=True):
            xp.subtract(P, mean, out=part)
            xp.multiply(part, part, out=part)
            xp.multiply(part, curvature, out=part)
            xp.add(part, offset, out=part)
            xp.exp(part, out=part)
            total += part
        if float(total.min()) > _SAFELY_ABOVE:
            return xp.log(total, out=total)
        return _log_sum(P, *tables)  # some sums underflow


def _log_sum(P: Array, *tables: Array) -> Array:
    """Return log Σ p(y) p(θᵀx | y) where no float32 holds the sum."""
    xp = namespace(P)

    def logs() -> Iterator[Array]:
        for mean, curvature, offset in zip(*tables, strict=True):
            yield (P - mean) ** 2 * curvature + offset

    top = reduce(xp.maximum, logs())
    return top + xp.log(sum(xp.exp(log - top) for log in logs()))


@dataclass(frozen=True)
class Moments:
    """Sums over each fold's directions for each sample, of its value and of its controls.

    Attributes
    ----------
    counts : (folds, 1) float64
        Number of directions.
    first : (folds, v, n) float64
        Sums of the value and of v − 1 controls, whose mean over all directions is 0.
    second : (folds, v, v, n) float64
        Sums of their products.
    """

    counts: Array
    first: Array
    second: Array

    @classmethod
    def along(
        cls, P: Array, places: Segments, tables: Tables, means: Array | None, folds: int
    ) -> Moments:
        """Sum up for samples with projections (m, n) and exact means (2, n) of their controls."""
        xp = namespace(P)
        n = P.shape[1]
        parts = blocks(len(P))
        v = 1 if means is None else 3
        counts = like(P, np.zeros((folds, 1)))
        first = like(P, np.zeros((folds, v, n)))
        second = like(P, np.zeros((folds, v, v, n)))
        width = parts[0].stop
        room = like(P, np.empty((v + 2, width, n), dtype=np.float32))
        for number, block in enumerate(parts):
            fold = number % folds
            here = P[block]
            some = room[:, : len(here)]
            variables = _variables(some, here, places, tables, block, means)
            counts[fold] += len(here)
            for i, one in enumerate(variables):
                first[fold, i] += one.sum(0)
                for j in range(i, v):
                    second[fold, i, j] += xp.einsum("mn,mn->n", one, variables[j])
                    second[fold, j, i] = second[fold, i, j]
        return cls(counts, first, second)

    def plain(self) -> tuple[Array, Array]:
        """Return the mean of each sample's values and its standard error."""
        return self._mean_and_error(self.first[:, :1] * 0 + 1)

    def corrected(self) -> tuple[Array, Array]:
        """Return the mean after regression on the controls, and its standard error.

        The slopes come from the other folds, so fitting them biases neither result. Where the
        plain mean has the smaller error, as it has where all directions agree, it is returned.
        """
        xp = namespace(self.first)
        # of the other folds
        count = self.counts.sum(0) - self.counts
        mean = (self.first.sum(0) - self.first) / count[:, None]
        square = (self.second.sum(0) - self.second) / count[:, None, None]
        covariance = square - mean[:, :, None] * mean[:, None]

        def one_over_deviation(i: int) -> Array:
            """Return that of a control, 0 where it does not vary: its slope is then 0."""
            variance = covariance[:, i, i]
            varies = variance > _ROUNDING * square[:, i, i] + _ROUNDING**2
            return xp.where(varies, variance.clip(_ROUNDING**2) ** -0.5, 0.0)

        # two equations for two slopes, of controls in units of their deviation
        a = one_over_deviation(1)
        b = one_over_deviation(2)
        with_a = covariance[:, 0, 1] * a
        with_b = covariance[:, 0, 2] * b
        both = covariance[:, 1, 2] * a * b
        one = 1 + _RIDGE
        determinant = one**2 - both**2
        slope_a = a * (with_a * one - with_b * both) / determinant
        slope_b = b * (with_b * one - with_a * both) / determinant
        weights = xp.stack([0 * slope_a + 1, -slope_a, -slope_b], 1)
        mean, error = self._mean_and_error(weights)
        plain_mean, plain_error = self.plain()
        helps = error < plain_error
        return xp.where(helps, mean, plain_mean), xp.where(helps, error, plain_error)

    def between(self) -> tuple[Array, Array]:
        """Return the mean of values on grids in the plane, and its standard error.

        Directions of a grid are not independent, but the grids of different folds are.
        """
        means = self.first[:, 0] / self.counts
        mean = means.mean(0)
        variance = ((means - mean) ** 2).mean(0) / (len(means) - 1)
        return mean, variance**0.5

    def _mean_and_error(self, weights: Array) -> tuple[Array, Array]:
        """Return those of the sums of variables with weights (folds, w, n)."""
        w = weights.shape[1]
        count = float(self.counts.sum())
        mean = (weights * self.first[:, :w]).sum((0, 1)) / count
        products = weights[:, :, None] * weights[:, None] * self.second[:, :w, :w]
        variance = (products.sum((0, 1, 2)) / count - mean**2).clip(0)
        return mean, (variance / max(count - w, 1)) ** 0.5


def _variables(
    room: Array,
    P: Array,
    places: Segments,
    tables: Tables,
    block: slice,
    means: Array | None,
) -> Array:
    """Return the value log p(θᵀx | y) − log Σ p(y) p(θᵀx | y) and two controls, each (width, n).

    They are made in `room` (variables + 2, width, n), which fits in a core's cache. The controls
    are a class's log density minus that of all rows, and the latter.
    """
    xp = namespace(P)
    part = room[-2]
    log = room[-1]
    tables.log_density(P, block, part, log)
    for c, here in places.items():
        square = part[:, here]
        xp.subtract(P[:, here], tables.mean[c, block], out=square)
        xp.multiply(square, square, out=square)
        xp.multiply(square, tables.curvature[c, block], out=room[0, :, here])
        room[0, :, here] += tables.offset[c, block] - tables.log_prior[c]
        if tables.control is not None:
            xp.multiply(square, tables.control[0, c, block], out=room[1, :, here])
            room[1, :, here] += tables.control[1, c, block]
    room[0] -= log
    if tables.share is not None:
        room[0] *= tables.share[block]
    if tables.total is not None and means is not None:
        mean, curvature, offset = tables.total[:, block]
        xp.subtract(P, mean, out=room[2])
        xp.multiply(room[2], room[2], out=room[2])
        room[2] *= curvature
        room[2] += offset
        room[1] -= room[2]
        room[1:3] -= means[:, None]
    return room[:-2]
