"""State of a fitted PSMI: the Gaussian of each class along each direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from memowidgets.checks import is_tensor, to_numpy
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
    FOLDS,
    Controls,
    Shapes,
    components,
    corrected,
    n_bases,
    plain,
    shifted,
)
from memowidgets.metrics.projections import Tables, blocks, cuts, moments

_BLOCK = 256  # directions per step: with a few rows they fit in a core's cache
_PIECE_ROWS = 1024  # with fewer, a product of wide rows waits for its directions from memory
_SUMMED_ROWS = 512  # summed in float32, before float64 takes over
_FLOOR = 1e-6  # relative to the standard deviation of all samples along a direction
_SAMPLED_ROWS = 2048  # maximum number of rows, and of bytes
_SAMPLED_BYTES = 2**24
_FEWEST_TO_DOMINATE = 20  # rows of a class; in a smaller one the longest row is often half of all
_LEAST_IN_PLANE = 1e-8  # variance of the shorter axis, relative to the longer one
_ROOMIER = 8  # a device's pieces are larger: each takes it thousands of small steps
_AT_ONCE = 64  # directions per generator, so that more directions start with the same ones
_STREAM = 0x50534D49  # differs from default_rng(seed), which may have generated the user's data
_KEPT_BYTES = 128_000_000  # maximum size of the projections that are kept for scoring
Found = TypeVar("Found")
_REPORTED = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # as not finite


@dataclass
class ClassSums:
    """Sums over the samples of each class, of deviations from a point near the class mean.

    Attributes
    ----------
    origin : (C, width) float32
        Projections of the point of each class. Deviations are small, so float32 can sum them.
    counts : (C,) float64
        Number of samples.
    first, second : (C, width) float64
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
        n, width = origin.shape
        return cls(
            origin=origin,
            counts=np.zeros(n),
            first=np.zeros((n, width)),
            second=np.zeros((n, width)),
            rows=np.zeros((n, d)),
            lengths=np.zeros(n),
        )

    @classmethod
    def of(cls, origin: Array, projected: Array, codes: Ints) -> ClassSums:
        """Sum over projections (n, width) of samples whose class indices are `codes`."""
        n_classes, width = origin.shape
        first, second = np.zeros((n_classes, width)), np.zeros((n_classes, width))
        at_once = len(codes) if is_tensor(projected) else _SUMMED_ROWS
        for top in range(0, len(codes), at_once):
            rows = slice(top, top + at_once)
            member = _members(projected, codes[rows], n_classes)
            places = like(projected, codes[rows])
            for left in range(0, width, _BLOCK):
                block = slice(left, left + _BLOCK)
                deviation = projected[rows, block] - origin[:, block][places]
                first[:, block] += to_numpy(member @ deviation)
                deviation *= deviation
                second[:, block] += to_numpy(member @ deviation)
        counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
        return replace(cls.none(origin, 0), counts=counts, first=first, second=second)

    def with_rows(self, rows: Array, codes: Ints, squares: Floats) -> ClassSums:
        """Return these sums with those over the rows (n, d), whose squared lengths are given."""
        n_classes = len(self.counts)
        return replace(
            self,
            rows=to_numpy(_members(rows, codes, n_classes) @ rows).astype(np.float64),
            lengths=np.bincount(codes, squares, n_classes).astype(np.float64),
        )

    def __add__(self, other: ClassSums) -> ClassSums:
        """Return the sums over the samples of both."""
        return ClassSums(
            self.origin,
            self.counts + other.counts,
            self.first + other.first,
            self.second + other.second,
            self.rows + other.rows,
            self.lengths + other.lengths,
        )

    def finite(self) -> bool:
        """Return whether everything that was added is finite."""
        return bool(np.isfinite(self.first).all() and np.isfinite(self.second).all())

    def mean(self) -> Floats:
        """Return the mean projection (C, width) of each class."""
        return np.asarray(to_numpy(self.origin) + self.first / self.counts[:, None])

    def variance(self) -> Floats:
        """Return the variance (C, width; ddof = 0) of each class's projections."""
        shift = self.first / self.counts[:, None]
        return np.maximum(self.second / self.counts[:, None] - shift**2, 0)

    def centres(self) -> Floats:
        """Return the mean row (C, d) of each class."""
        return np.asarray(self.rows / self.counts[:, None])

    def traces(self) -> NDArray[np.float64]:
        """Return the total variance (C,) of each class's rows."""
        return np.asarray(self.lengths / self.counts - (self.centres() ** 2).sum(axis=1))


def _members(beside: Array, codes: Ints, n_classes: int) -> Array:
    """Return a matrix (C, n) with a 1 where the sample is of the class."""
    n, one = len(codes), np.ones(len(codes), dtype=np.float32)
    if is_tensor(beside):
        xp = namespace(beside)
        every = like(beside, np.arange(n_classes))[:, None] == like(beside, codes)
        return xp.asarray(every, dtype=xp.float32)
    return csc_array((one, codes, np.arange(n + 1)), (n_classes, n))


Float32s = NDArray[np.float32]


@dataclass(frozen=True)
class Kept:
    """Projections of the fitted samples, with a probe that detects whether the rows changed."""

    projections: Array
    probed: Array

    def of(self, probed: Array, rows: slice) -> Array | None:
        """Return the projections of these rows, or None if the rows have changed since."""
        if rows.stop > len(self.probed) or not bool((self.probed[rows] == probed).all()):
            return None
        return self.projections[rows]


@dataclass(frozen=True)
class Fitted:
    """Gaussians of each class along each direction, and the controls.

    Attributes
    ----------
    frame : Frame
        Shift and scale with which rows are read.
    onto : (m + C · k, d) float32
        The m directions, followed by each class's components.
    tables : Tables
        Tables of the m directions.
    controls : Controls or None
        None if the mean is plain.
    folds : int
        Number of folds of the directions, for control variates and grids.
    kept : Kept or None
        Projections of the fitted samples, if they are small enough to keep.
    dominant : (rows,) int
        Rows that have more than half of the variance of a class of 20 or more. Empty without
        controls.
    """

    frame: Frame
    onto: Array
    tables: Tables
    controls: Controls | None
    folds: int
    kept: Kept | None = field(repr=False)
    dominant: Ints = field(repr=False)

    @property
    def knows_nothing(self) -> bool:
        """Whether all rows were equal, so that no direction tells classes apart."""
        return not bool(self.tables.sharpness.any())

    def score(self, X: Array, codes: Ints) -> tuple[Floats, Floats]:
        """Return the PSMI of samples whose class indices are `codes`, and its standard error."""
        pieces = row_pieces(X, self.frame, len(self.onto), self.tables.n_classes)
        found = list(_each(X, lambda rows: self._score_rows(X, codes, rows), pieces))
        scores, errors = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if not (np.isfinite(scores).all() and np.isfinite(errors).all()):
            refuse_rows(X, scores + errors)
        if X.shape[1] == 1:  # all directions are the same, up to rounding
            errors[:] = 0
        return scores, errors

    @_REPORTED
    def _score_rows(self, X: Array, codes: Ints, piece: slice) -> tuple[Floats, Floats]:
        rows = self.frame.rows(X, piece.start, piece.stop)
        m, projected, labels = self.tables.mean.shape[1], None, like(rows, codes[piece])
        if self.kept is not None:
            projected = self.kept.of(_probe(rows), piece)
        if projected is None:
            projected = rows @ self.onto.T
        found = moments(projected[:, :m], labels, self.tables, self.folds)
        if self.controls is None:
            mean, error = plain(found) if self.folds == 1 else shifted(found)
        else:
            along = self.controls.along(projected[:, m:])
            mean, error = corrected(found, self.controls.means(rows, along, labels))
        return to_numpy(mean), to_numpy(error)


def fit(
    X: Array,
    codes: Ints,
    n_directions: int,
    seed: int,
    *,
    use_controls: bool = False,
    even: bool = False,
) -> Fitted:
    """Fit PSMI along random or even directions to samples whose class indices are `codes`."""
    counts, d = np.bincount(codes), X.shape[1]
    picked = _picked_rows(codes, counts, min(_SAMPLED_ROWS, _SAMPLED_BYTES // (8 * d)))
    frame, sample = _sampled(X, picked)
    xp, few = namespace(sample), codes[picked]
    near = xp.stack([sample[like(sample, few == c)].mean(0) for c in range(len(counts))])
    deviations = sample - near[like(sample, few)]
    theta, width = np.empty((n_directions, d), dtype=np.float32), None
    if even:
        theta, width = plane_directions(to_numpy(deviations).astype(float), n_directions, seed)
    else:
        fill_directions(theta, seed)
    onto = like(sample, theta)
    if use_controls:
        axes = components(deviations, few)
        onto = xp.concatenate([onto, axes.reshape(-1, d)])
    sums, squares, kept = _summed(X, codes, frame, onto, near, with_rows=use_controls)
    tables, controls = replace(_tables(sums, n_directions), width=width), None
    if use_controls and tables.sharpness.any():
        along = to_numpy(onto[n_directions:] @ onto[:n_directions].T)
        tables, controls = _with_controls(tables, sums, along)
    tables = Tables(*(like(sample, values) for values in vars(tables).values()))
    controls = controls and Controls(*(like(sample, v) for v in vars(controls).values()))
    longest = 2 * squares > sums.lengths[codes]
    dominant = np.flatnonzero(longest & (counts[codes] >= _FEWEST_TO_DOMINATE))
    folds = FOLDS if controls is not None or even else 1
    return Fitted(frame, onto, tables, controls, folds, kept, dominant)


def project(X: Array, rows: Ints, n_directions: int, seed: int) -> Float32s:
    """Return centred projections (rows, n_directions) of some rows of X onto random directions."""
    theta = np.empty((n_directions, X.shape[1]), dtype=np.float32)
    fill_directions(theta, seed)
    sample = _sampled(X, rows)[1]
    return to_numpy((sample - sample.mean(0)) @ like(sample, theta).T)


@_REPORTED
def mean_along(projected: Float32s, codes: Ints) -> float:
    """Return the mean PSMI (plain) of samples from their projections (n, m)."""
    m = projected.shape[1]
    sums = ClassSums.of(np.zeros((int(codes.max()) + 1, m), np.float32), projected, codes)
    return float(plain(moments(projected, codes, _tables(sums, m)))[0].mean())


def fill_directions(theta: Float32s, seed: int) -> None:
    """Fill `theta` (m, d) with the first m unit directions of the seed."""

    def fill(start: int) -> None:
        part = theta[start : start + _AT_ONCE]
        stream = np.random.SeedSequence(seed, spawn_key=(_STREAM, start // _AT_ONCE))
        np.random.default_rng(stream).standard_normal(out=part, dtype=np.float32)
        part /= np.sqrt(np.einsum("md,md->m", part, part))[:, None]

    for _ in on_all_cores(fill, range(0, len(theta), _AT_ONCE)):
        pass


def plane_directions(deviations: Floats, m: int, seed: int) -> tuple[Float32s, Float32s]:
    """Return directions (m, 2) on grids with random shifts, and the widths (1, m) of their angles.

    Where one axis is far longer than the other, much happens within few angles. So the grids are
    even halfway between this plane and the one in which the rows' deviations (n, 2) from their
    class mean are round.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    widths = [block.stop - block.start for block in blocks(m)]
    sizes = [cut.stop - cut.start for width in widths for cut in cuts(width, FOLDS)]
    angles = np.concatenate([np.pi * (np.arange(n) + rng.random()) / n for n in sizes])
    values, axes = np.linalg.eigh(deviations.T @ deviations)
    lengths = np.maximum(values / (values.max() or 1), _LEAST_IN_PLANE) ** -0.25
    theta = np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths @ axes.T
    return theta.astype(np.float32), (1 / (theta**2).sum(axis=1))[None].astype(np.float32)


@_REPORTED
def _summed(
    X: Array, codes: Ints, frame: Frame, onto: Array, near: Array, *, with_rows: bool
) -> tuple[ClassSums, Floats, Kept | None]:
    """Sum over the rows in one pass, keeping the projections if they are small enough.

    The squared length of each row is 0 without `with_rows`.
    """
    kept, n, origin = None, len(codes), near @ onto.T
    squares = np.zeros(n)
    if 4 * n * len(onto) <= _KEPT_BYTES:
        projections = np.empty((n, len(onto)), dtype=np.float32)
        kept = Kept(like(onto, projections), like(onto, np.empty(n, dtype=np.float32)))

    @_REPORTED
    def sums_over(piece: slice) -> ClassSums:
        rows = frame.rows(X, piece.start, piece.stop)
        out = None if kept is None else kept.projections[piece]
        projected = namespace(rows).matmul(rows, onto.T, out=out)
        if kept is not None:
            kept.probed[piece] = _probe(rows)
        sums = ClassSums.of(origin, projected, codes[piece])
        if not with_rows:
            return sums
        squares[piece] = to_numpy(namespace(rows).einsum("nd,nd->n", rows, rows))
        return sums.with_rows(rows, codes[piece], squares[piece])

    total = ClassSums.none(origin, X.shape[1] if with_rows else 0)
    for sums in _each(X, sums_over, row_pieces(X, frame, len(onto), len(near))):
        total += sums
    if not total.finite():
        refuse_rows(X)
    return total, squares, kept


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
    rows = max(min(_PIECE_ROWS, fitting, -(-n // 4)), 4 * n_classes, 64)
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _each(X: Array, work: Callable[[slice], Found], pieces: list[slice]) -> Iterator[Found]:
    """Yield what `work` returns for each piece: at the same time, but one by one on a device."""
    return map(work, pieces) if stays(X) else on_all_cores(work, pieces)


def _probe(rows: Array) -> Array:
    """Return one number per row that changes when the row changes."""
    d = rows.shape[1]
    stream = np.random.SeedSequence(d, spawn_key=(_STREAM,))
    vector = np.random.default_rng(stream).standard_normal(d, dtype=np.float32)
    return namespace(rows).einsum("nd,d->n", rows, like(rows, vector))


def _picked_rows(codes: Ints, counts: Ints, most: int) -> Ints:
    """Return rows spread evenly over each class: its share of `most`, but at least four."""
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
    return Tables(
        mean=mean.astype(np.float32),
        sharpness=np.where(flat, 0, np.sqrt(0.5) / deviation).astype(np.float32),
        offset=(np.log(prior)[:, None] - np.log(deviation)).astype(np.float32),
        log_prior=np.log(prior).astype(np.float32),
    )


def _with_controls(tables: Tables, sums: ClassSums, along: Float32s) -> tuple[Tables, Controls]:
    """Add what the controls need, from the directions' coordinates along the components."""
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
