"""State of a fitted PSMI: the Gaussian of each class along each direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from memowidgets.checks import to_numpy
from memowidgets.cores import on_all_cores
from memowidgets.metrics.arrays import (
    COPIED_BYTES,
    Array,
    Floats,
    Frame,
    Ints,
    as_float,
    like,
    namespace,
    refuse_rows,
    row_chunks,
    stays,
)
from memowidgets.metrics.controls import (
    FEW_CLASSES,
    Controls,
    Shapes,
    components,
    corrected,
    n_bases,
    plain,
    shifted,
)
from memowidgets.metrics.directions import (
    FOLDS,
    ROTATED_FROM,
    Float32s,
    Independent,
    Rotated,
    independent_directions,
    plane_directions,
)
from memowidgets.metrics.projections import Segments, Tables, moments, segments

# with fewer, a product of wide rows waits for its directions; powers of 2 share cache lines
_PIECE_ROWS = 1000
_FLOOR = 1e-6  # relative to the standard deviation of all samples along a direction
_SAMPLED_ROWS = 2048  # maximum number of rows, and of bytes
_SAMPLED_BYTES = 2**24
_FEWEST_TO_DOMINATE = 20  # rows of a class; in a smaller one the longest row is often half of all
_ROOMIER = 8  # a device's pieces are larger: each takes it thousands of small steps
Found = TypeVar("Found")
_REPORTED = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # as not finite


@dataclass
class ClassSums:
    """Sums over the samples of each class, of deviations from a point near the class mean.

    Attributes
    ----------
    origin : (width, C) float32
        Projections of the point of each class. Deviations are small, so float32 can sum them.
    counts : (C,) float64
        Number of samples.
    first, second : (width, C) float64
        Sums of the deviations of projections, and of their squares.
    rows : (C, d) float64
        Sum of the rows; without columns where no controls are needed.
    lengths : (C,) float64
        Sum of the squared lengths of rows.
    """

    origin: Array
    counts: Floats
    first: Floats
    second: Floats
    rows: Floats
    lengths: Floats

    @classmethod
    def none(cls, origin: Array, d: int) -> ClassSums:
        """Return the sums over no samples; `d` is 0 where their rows are not summed."""
        width, n = origin.shape
        first, second = np.zeros((width, n)), np.zeros((width, n))
        return cls(origin, np.zeros(n), first, second, np.zeros((n, d)), np.zeros(n))

    def add(self, projected: Array, places: Segments) -> None:
        """Add the projections (width, n) of samples of which those of a class are neighbours."""
        xp = namespace(projected)
        for c, here in places.items():
            deviation = projected[:, here] - self.origin[:, c, None]
            self.first[:, c] += to_numpy(deviation.sum(1))
            self.second[:, c] += to_numpy(xp.einsum("mn,mn->m", deviation, deviation))
            self.counts[c] += here.stop - here.start

    def add_rows(self, rows: Array, squares: Floats, places: Segments) -> None:
        """Add the rows (n, d) of such samples, whose squared lengths are given."""
        for c, here in places.items():
            self.rows[c] += to_numpy(rows[here].sum(0))
            self.lengths[c] += squares[here].sum()

    def include(self, other: ClassSums) -> None:
        """Add the sums over other samples."""
        for name in ("counts", "first", "second", "rows", "lengths"):
            mine = getattr(self, name)
            mine += getattr(other, name)

    def finite(self) -> bool:
        """Return whether everything that was added is finite."""
        return bool(np.isfinite(self.first).all() and np.isfinite(self.second).all())

    def mean(self) -> Floats:
        """Return the mean projection (C, width) of each class."""
        return np.asarray((to_numpy(self.origin) + self.first / self.counts).T)

    def variance(self) -> Floats:
        """Return the variance (C, width; ddof = 0) of each class's projections."""
        shift = self.first / self.counts
        return np.maximum(self.second / self.counts - shift**2, 0).T

    def centres(self) -> Floats:
        """Return the mean row (C, d) of each class."""
        return np.asarray(self.rows / self.counts[:, None])

    def traces(self) -> Floats:
        """Return the total variance (C,) of each class's rows."""
        return np.asarray(self.lengths / self.counts - (self.centres() ** 2).sum(axis=1))


@dataclass(frozen=True)
class Axes:
    """What rows are projected on: the directions, then each class's components (C · k, d)."""

    directions: Independent | Rotated
    components: Array

    def along(self, rows: Array) -> Array:
        """Return projections (m + C · k, n) of rows (n, d)."""
        m, more = self.directions.m, len(self.components)
        found = like(rows, np.empty((m + more, len(rows)), dtype=np.float32))
        self.directions.along(rows, found[:m])
        if more:
            namespace(rows).matmul(self.components, rows.T, out=found[m:])
        return found


@dataclass(frozen=True)
class Sorted:
    """Rows of a piece of the data, of which those of a class are neighbours.

    Attributes
    ----------
    order : (n,) int
        Place of each row in the data.
    rows : (n, d) float32
        The rows in their frame.
    places : Segments
        Where those of each class stand.
    """

    order: Ints
    rows: Array
    places: Segments

    @classmethod
    def of(cls, X: Array, codes: Ints, frame: Frame, piece: slice) -> Sorted:
        """Read a piece of the data."""
        order = np.argsort(codes[piece], kind="stable")
        rows = frame.rows(X, piece.start, piece.stop)
        places = segments(codes[piece][order])
        return cls(order + piece.start, rows[like(rows, order)], places)


@dataclass(frozen=True)
class Fitted:
    """Gaussians of each class along each direction, and the controls.

    Attributes
    ----------
    frame : Frame
        Shift and scale with which rows are read.
    onto : Axes
        What rows are projected on.
    tables : Tables
        Tables of the m directions.
    controls : Controls or None
        None if the mean is plain.
    folds : int
        Number of folds of the directions, for control variates and grids.
    width : int
        Number of features.
    dominant : (rows,) int
        Rows that have more than half of the variance of a class of 20 or more. Empty without
        controls.
    """

    frame: Frame
    onto: Axes
    tables: Tables
    controls: Controls | None
    folds: int
    width: int
    dominant: Ints = field(repr=False)

    @property
    def knows_nothing(self) -> bool:
        """Whether all rows were equal, so that no direction tells classes apart."""
        return not bool(self.tables.curvature.any())

    @_REPORTED
    def score(self, X: Array, codes: Ints) -> tuple[Floats, Floats]:
        """Return the PSMI of samples whose class indices are `codes`, and its standard error."""
        n_axes = self.tables.mean.shape[1] + len(self.onto.components)
        pieces = row_pieces(X, self.frame, n_axes, self.tables.n_classes)
        scores, errors = np.empty(len(codes)), np.empty(len(codes))

        def score(piece: slice) -> None:
            found = Sorted.of(X, codes, self.frame, piece)
            scores[found.order], errors[found.order] = self._scored(found, codes[found.order])

        for _ in _each(X, _REPORTED(score), pieces):
            pass
        if not (np.isfinite(scores).all() and np.isfinite(errors).all()):
            refuse_rows(X, scores + errors)
        if self.width == 1:  # all directions are the same, up to rounding
            errors[:] = 0
        return scores, errors

    def _scored(self, piece: Sorted, codes: Ints) -> tuple[Floats, Floats]:
        projected, m = self.onto.along(piece.rows), self.tables.mean.shape[1]
        found = moments(projected[:m], piece.places, self.tables, self.folds)
        if self.controls is None:
            mean, error = plain(found) if self.folds == 1 else shifted(found)
        else:
            along = self.controls.along(projected[m:])
            means = self.controls.means(piece.rows, along, like(piece.rows, codes))
            mean, error = corrected(found, means)
        return to_numpy(mean), to_numpy(error)


@dataclass(frozen=True)
class Look:
    """What a sample of the rows shows, whatever the directions: once for all fits to them.

    Attributes
    ----------
    frame : Frame
        Shift and scale with which rows are read.
    near : (C, d) float32
        A point near each class's mean.
    deviations : (n, d) float32
        The sample's deviations from these points.
    components : (C · k, d) float32
        Each class's components; without rows where no controls are wanted.
    """

    frame: Frame
    near: Array
    deviations: Array
    components: Array

    @classmethod
    def at(cls, X: Array, codes: Ints, *, for_controls: bool) -> Look:
        """Look at up to about 2000 rows."""
        picked = picked_rows(codes, X.shape[1])
        frame, sample = _sampled(X, picked)
        few, n_classes = codes[picked], int(codes.max()) + 1
        means = [sample[like(sample, few == c)].mean(0) for c in range(n_classes)]
        near = namespace(sample).stack(means)
        deviations, axes = sample - near[like(sample, few)], sample[:0]
        if for_controls:
            axes = components(deviations, few).reshape(-1, X.shape[1])
        return cls(frame, near, deviations, axes)


def fit(
    X: Array, codes: Ints, look: Look, n_directions: int, seed: int, *, even: bool = False
) -> Fitted:
    """Fit PSMI along random or even directions to samples whose class indices are `codes`."""
    d, width, use_controls = X.shape[1], None, len(look.components) > 0
    directions: Independent | Rotated
    if even:
        deviations = to_numpy(look.deviations).astype(float)
        theta, width = plane_directions(deviations, n_directions, seed)
        directions = Independent(like(look.near, theta))
    elif use_controls and d >= ROTATED_FROM:
        directions = Rotated.drawn(d, n_directions, seed, look.near)
    else:
        theta = independent_directions(n_directions, d, seed)
        directions = Independent(like(look.near, theta))
    onto = Axes(directions, look.components)
    sums, squares = _summed(X, codes, look, onto)
    tables, controls = replace(_tables(sums, n_directions), width=width), None
    if use_controls and tables.curvature.any():
        along = to_numpy(Axes(directions, look.components[:0]).along(look.components)).T
        tables, controls = _with_controls(tables, sums, along)
    tables = Tables(*(like(look.near, values) for values in vars(tables).values()))
    controls = controls and Controls(*(like(look.near, v) for v in vars(controls).values()))
    longest = 2 * squares > sums.lengths[codes]
    dominant = np.flatnonzero(longest & (sums.counts[codes] >= _FEWEST_TO_DOMINATE))
    folds = FOLDS if controls is not None or even else 1
    return Fitted(look.frame, onto, tables, controls, folds, d, dominant)


def project(X: Array, rows: Ints, n_directions: int, seed: int) -> Float32s:
    """Return centred projections (n_directions, rows) of some rows of X on random directions."""
    theta = independent_directions(n_directions, X.shape[1], seed)
    sample = _sampled(X, rows)[1]
    return to_numpy(like(sample, theta) @ (sample - sample.mean(0)).T)


@_REPORTED
def mean_along(projected: Float32s, codes: Ints) -> float:
    """Return the mean PSMI (plain) of samples from their projections (m, n)."""
    order, m = np.argsort(codes), len(projected)
    sums = ClassSums.none(np.zeros((m, int(codes.max()) + 1), np.float32), 0)
    places, projected = segments(codes[order]), projected[:, order]
    sums.add(projected, places)
    return float(plain(moments(projected, places, _tables(sums, m)))[0].mean())


@_REPORTED
def _summed(X: Array, codes: Ints, look: Look, onto: Axes) -> tuple[ClassSums, Floats]:
    """Sum over the rows in one pass; return also the squared length of each, 0 without controls."""
    squares, origin = np.zeros(len(codes)), onto.along(look.near)
    d = X.shape[1] if len(onto.components) else 0

    def sums_over(piece: slice) -> ClassSums:
        found, sums = Sorted.of(X, codes, look.frame, piece), ClassSums.none(origin, d)
        sums.add(onto.along(found.rows), found.places)
        if d:
            lengths = to_numpy(namespace(found.rows).einsum("nd,nd->n", found.rows, found.rows))
            sums.add_rows(found.rows, lengths, found.places)
            squares[found.order] = lengths
        return sums

    total = ClassSums.none(origin, d)
    pieces = row_pieces(X, look.frame, *origin.shape)
    for sums in _each(X, _REPORTED(sums_over), pieces):
        total.include(sums)
    if not total.finite():
        refuse_rows(X)
    return total, squares


def row_pieces(X: Array, frame: Frame, width: int, n_classes: int) -> list[slice]:
    """Return slices of rows, each for one core, at least four where there is work for them.

    A piece has more rows than classes, so that its sums are smaller than itself. A device works by
    itself on as much as memory allows.
    """
    n, d = X.shape
    if stays(X):
        copied = 4 if frame.neutral and str(X.dtype).endswith("float32") else 28
        variables = min(n_classes, FEW_CLASSES) + 1
        products = 8 * FOLDS * variables * 2 * variables
        needed = copied * d + 4 * width + products
        return [slice(*chunk) for chunk in row_chunks(n, needed // _ROOMIER)]
    fitting = COPIED_BYTES // (4 * (d + width))
    rows = max(min(_PIECE_ROWS, fitting, -(-n // 4)), min(4 * n_classes, -(-n // 4)), 64)
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _each(X: Array, work: Callable[[slice], Found], pieces: list[slice]) -> Iterator[Found]:
    """Yield what `work` returns for each piece: at the same time, but one by one on a device."""
    return map(work, pieces) if stays(X) else on_all_cores(work, pieces)


def picked_rows(codes: Ints, d: int) -> Ints:
    """Return rows spread evenly over each class: its share of 2048 or less, but at least four."""
    most, counts = min(_SAMPLED_ROWS, _SAMPLED_BYTES // (8 * d)), np.bincount(codes)
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    share = min(1.0, most / counts.sum())
    wanted = np.minimum(counts, np.maximum(4, (share * counts).astype(np.int64)))
    places = [
        order[start + np.arange(few) * count // few]
        for start, count, few in zip(starts, counts, wanted, strict=True)
    ]
    return np.concatenate(places)


def _sampled(X: Array, picked: Ints) -> tuple[Frame, Array]:
    """Return the frame that suits the picked rows, and these rows in it."""
    raw = X[picked]
    sample = as_float(raw, 64)
    if not namespace(sample).isfinite(sample).all():
        refuse_rows(X)
    frame = Frame.fitting(sample, X)
    return frame, frame.rows(raw, 0, len(picked))


def _tables(sums: ClassSums, m: int) -> Tables:
    prior = sums.counts / sums.counts.sum()
    mean, variance = sums.mean()[:, :m], sums.variance()[:, :m]
    middle = prior @ mean
    spread = np.sqrt(prior @ (variance + (mean - middle) ** 2))
    deviation = np.maximum(np.sqrt(variance), _FLOOR * spread)
    flat = deviation == 0
    deviation[flat] = 1.0
    offset = np.log(prior)[:, None] - np.log(deviation)
    return Tables(
        mean=mean.astype(np.float32),
        curvature=np.where(flat, 0, -0.5 / deviation**2).astype(np.float32),
        offset=(offset - offset.max(axis=0)).astype(np.float32),
        log_prior=np.log(prior).astype(np.float32),
    )


def _with_controls(tables: Tables, sums: ClassSums, along: Float32s) -> tuple[Tables, Controls]:
    """Add what the controls need, from the directions' coordinates (C · k, m) along components."""
    centres, m = sums.centres(), along.shape[1]
    n_classes, d = centres.shape
    bases, every = n_bases(n_classes), np.arange(n_classes)
    means, variances = (
        table[:, m:].reshape(n_classes, bases, -1)[every, every % bases]
        for table in (sums.mean(), sums.variance())
    )
    shapes = Shapes.of(variances, sums.traces(), sums.counts, d)
    forms = shapes.forms(along.astype(np.float64).reshape(bases, len(along) // bases, m) ** 2)
    tables = replace(
        tables,
        weight=(1 / forms).astype(np.float32),
        log_form=(np.log(forms) - shapes.mean_logs()[:, None]).astype(np.float32),
    )
    return tables, Controls.of(centres, means, shapes)
