"""State of a fitted PSMI: the Gaussian of each class along each direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from memowidgets.cores import on_all_cores
from memowidgets.metrics.arrays import (
    COPIED_BYTES,
    Array,
    Floats,
    Frame,
    GivenRows,
    Ints,
    fetched,
    like,
    namespace,
    refuse_rows,
    row_chunks,
)
from memowidgets.metrics.controls import Gaussians, Spread, common_basis
from memowidgets.metrics.projections import (
    FOLDS,
    ROTATED_FROM,
    Curves,
    Float32s,
    Independent,
    Moments,
    Rotated,
    Segments,
    Tables,
    independent_directions,
    plane_directions,
    segments,
)

# with fewer, a product of wide rows waits for its directions; powers of 2 share cache lines
_PIECE_ROWS = 1000
_FLOOR = 1e-6  # relative to the standard deviation of all samples along a direction
_SAMPLED_ROWS = 2048  # maximum number of rows, and of bytes
_SAMPLED_BYTES = 2**24
# rows of a class; in a smaller one the longest row is often half of all
_FEWEST_TO_DOMINATE = 20
_PLANE = 2  # features for which even angles replace random directions
_ROOMIER = 8  # a device's pieces are larger: each takes it thousands of small steps
_CURVES_FROM = 4096  # rows, from which curves save time
_MOST_CURVES = 5000  # directions
Piece = TypeVar("Piece")
Result = TypeVar("Result")
# an error reports what is not finite
_REPORTED = np.errstate(over="ignore", invalid="ignore", divide="ignore")


@dataclass(frozen=True)
class Look:
    """What the rows show, whatever the directions: once for all fits to them.

    Attributes
    ----------
    frame : Frame
        Shift and scale with which rows are read.
    codes : (n,) int
        Classes of some rows, sorted.
    sample : (n, d) float32
        These rows in their frame.
    near : (C, d) float32
        Their mean in each class.
    corrected : bool
        Whether scores have a smaller error than a plain mean of as many directions.
    gaussians : Gaussians or None
        Those of the controls; None for a plain mean, and for one or two features.
    dominant : tuple of int
        Rows that have more than half of the variance of a class of 20 or more. Empty without
        controls.
    """

    frame: Frame
    codes: Ints
    sample: Array
    near: Array
    corrected: bool = False
    gaussians: Gaussians | None = None
    dominant: tuple[int, ...] = ()

    @classmethod
    @_REPORTED
    def at(cls, X: GivenRows, codes: Ints, *, corrected: bool) -> Look:
        """Look at up to about 2000 rows, and for controls at all."""
        most = min(_SAMPLED_ROWS, _SAMPLED_BYTES // (8 * X.shape[1]))
        rows = picked_rows(codes, most)
        raw = X[rows]
        few = codes[rows]
        exact = raw.floats(64)
        if not namespace(exact).isfinite(exact).all():
            refuse_rows(X)
        frame = Frame.fitting(exact)
        sample = frame.rows(raw)
        means = [sample[here].mean(0) for here in segments(few).values()]
        near = namespace(sample).stack(means)
        if not corrected or X.shape[1] <= _PLANE:
            return cls(frame, few, sample, near, corrected)
        counts = np.bincount(codes)
        basis = common_basis(sample, len(counts))
        by_class = np.argsort(codes, kind="stable")
        members = np.split(by_class, np.cumsum(counts)[:-1])

        def spread(c: int) -> Spread:
            chunks = row_chunks(len(members[c]), 12 * X.shape[1])
            parts = (members[c][start:stop] for start, stop in chunks)
            rows = (frame.rows(X[part]) for part in parts)
            return Spread.of(rows, near[c], basis)

        spreads = list(_each(X, _REPORTED(spread), range(len(counts))))
        if not all(np.isfinite(one.trace) for one in spreads):
            refuse_rows(X)
        gaussians = Gaussians.of(spreads, basis)
        dominant = tuple(
            int(rows[one.longest])
            for rows, one in zip(members, spreads, strict=True)
            if one.longest >= 0 and len(rows) >= _FEWEST_TO_DOMINATE
        )
        return cls(frame, few, sample, near, corrected, gaussians, dominant)


@dataclass(frozen=True)
class Fitted:
    """Gaussians of each class along each direction, and the controls.

    Attributes
    ----------
    look : Look
        Frame and controls.
    directions : Independent or Rotated
        What rows are projected on.
    tables : Tables
        Tables of the m directions.
    """

    look: Look
    directions: Independent | Rotated
    tables: Tables = field(repr=False)

    @_REPORTED
    def score(self, X: GivenRows, codes: Ints) -> tuple[Floats, Floats]:
        """Return the PSMI of samples whose class indices are `codes`, and its standard error."""
        scores = np.empty(len(codes))
        errors = np.empty(len(codes))

        def score(piece: slice) -> None:
            order, rows, places = _sorted(X, codes, self.look.frame, piece)
            means, their_errors = self._means(rows, places)
            scores[order] = fetched(means)
            errors[order] = fetched(their_errors)

        for _ in _each(X, _REPORTED(score), _pieces(X, self.look, self.directions.m)):
            pass
        if not (np.isfinite(scores).all() and np.isfinite(errors).all()):
            refuse_rows(X, scores + errors)
        if X.shape[1] == 1:  # all directions are the same, up to rounding
            errors[:] = 0
        return scores, errors

    def _means(self, rows: Array, places: Segments) -> tuple[Array, Array]:
        """Return the mean value of sorted rows over all directions, and its standard error."""
        P = self.directions.along(rows)
        tables = self.tables
        if tables.total is not None and self.look.gaussians is not None:
            means = self.look.gaussians.means(rows, places)
            return Moments.along(P, places, tables, means, FOLDS).corrected()
        if tables.share is not None:
            return Moments.along(P, places, tables, None, FOLDS).between()
        return Moments.along(P, places, tables, None, 1).plain()


def fit(X: GivenRows, codes: Ints, look: Look, n_directions: int, seed: int) -> Fitted:
    """Fit PSMI along random or even directions to samples whose class indices are `codes`."""
    d = X.shape[1]
    near = look.near
    share = None
    directions: Independent | Rotated
    if look.gaussians is not None and d >= ROTATED_FROM:
        directions = Rotated.drawn(d, n_directions, seed, near)
    elif look.corrected and d == _PLANE:
        away = fetched(look.sample - near[like(near, look.codes)]).astype(float)
        theta, share = plane_directions(away, n_directions, seed)
        directions = Independent(like(near, theta))
    else:
        theta = independent_directions(n_directions, d, seed)
        directions = Independent(like(near, theta))
    origin = directions.along(near)

    def sums(piece: slice) -> Floats:
        _, rows, places = _sorted(X, codes, look.frame, piece)
        return _sums(directions.along(rows), places, origin)

    total = np.zeros((2, *origin.shape))
    for part in _each(X, _REPORTED(sums), _pieces(X, look, n_directions)):
        total += part
    if not np.isfinite(total).all():
        refuse_rows(X)
    tables, mean, variance = _tables(total, fetched(origin), np.bincount(codes))
    columns = vars(tables) | {"share": share}
    if look.gaussians is not None and tables.curvature.any():
        columns |= look.gaussians.controls(mean, variance, directions.along)
    there = {name: one for name, one in columns.items() if one is not None}
    tables = Tables(**{name: like(near, values) for name, values in there.items()})
    saves_time = len(codes) >= _CURVES_FROM and n_directions <= _MOST_CURVES
    if saves_time and variance.min() > 0:
        tables = replace(tables, curves=Curves.of(tables, mean, variance))
    return Fitted(look, directions, tables)


def _sums(projected: Array, places: Segments, origin: Array) -> Floats:
    """Return sums (2, m, C) of the deviations of projections (m, n), and of their squares.

    They are deviations from a point near each class, so that float32 can sum them.
    """
    xp = namespace(projected)
    sums = np.zeros((2, *origin.shape))
    for c, here in places.items():
        deviation = projected[:, here] - origin[:, c, None]
        sums[0, :, c] = fetched(deviation.sum(1))
        sums[1, :, c] = fetched(xp.einsum("mn,mn->m", deviation, deviation))
    return sums


def _tables(sums: Floats, origin: Array, counts: Ints) -> tuple[Tables, Floats, Floats]:
    """Return the tables without controls, and the mean and variance (C, m) of each class."""
    prior = counts / counts.sum()
    log_prior = np.log(prior)
    shift = (sums[0] / counts).T
    mean = origin.T + shift
    variance = np.maximum((sums[1] / counts).T - shift**2, 0)
    middle = prior @ mean
    total = prior @ (variance + (mean - middle) ** 2)
    deviation = np.sqrt(np.maximum(variance, _FLOOR**2 * total))
    # along a direction without any spread each density is the same everywhere
    flat = deviation == 0
    deviation[flat] = 1.0
    curvature = np.where(flat, 0, -0.5 / deviation**2)
    offset = log_prior[:, None] - np.log(deviation)
    offset = offset - offset.max(axis=0)

    def column(values: Floats) -> Float32s:
        return values.astype(np.float32)[:, :, None]

    tables = Tables(
        mean=column(mean),
        curvature=column(curvature),
        offset=column(offset),
        log_prior=log_prior.astype(np.float32),
    )
    return tables, mean, variance


@_REPORTED
def mean_along(projected: Float32s, codes: Ints) -> float:
    """Return the mean PSMI (plain) of samples from their centred projections (m, n)."""
    order = np.argsort(codes)
    counts = np.bincount(codes)
    in_order = projected[:, order]
    places = segments(codes[order])
    origin = np.zeros((len(projected), len(counts)), dtype=np.float32)
    tables, _, _ = _tables(_sums(in_order, places, origin), origin, counts)
    means, _ = Moments.along(in_order, places, tables, None, 1).plain()
    return float(means.mean())


def _sorted(
    X: GivenRows, codes: Ints, frame: Frame, piece: slice
) -> tuple[Ints, Array, Segments]:
    """Read a piece of the data: where its rows stood, the rows sorted by class, and the classes."""
    order = np.argsort(codes[piece], kind="stable")
    rows = frame.rows(X[piece])
    return order + piece.start, rows[like(rows, order)], segments(codes[piece][order])


def _pieces(X: GivenRows, look: Look, m: int) -> list[slice]:
    """Return slices of rows, each for one core, at least four where there is work for them.

    A piece has more rows than classes, so that its sums are smaller than itself. A device works by
    itself on as much as memory allows.
    """
    n, d = X.shape
    if X.on_device:
        as_it_is = look.frame.neutral and str(X.values.dtype).endswith("float32")
        copied = 4 if as_it_is else 28
        bytes_a_row = copied * d + 4 * m + 8 * FOLDS * 12
        return [slice(*chunk) for chunk in row_chunks(n, bytes_a_row // _ROOMIER)]
    quarter = -(-n // 4)
    fitting = COPIED_BYTES // (4 * (d + m))
    of_classes = 4 * len(look.near)
    rows = max(min(_PIECE_ROWS, fitting, quarter), min(of_classes, quarter), 64)
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _each(
    X: GivenRows, work: Callable[[Piece], Result], pieces: Sequence[Piece]
) -> Iterator[Result]:
    """Yield what `work` returns for each piece: at the same time, but one by one on a device."""
    return map(work, pieces) if X.on_device else on_all_cores(work, pieces)


def picked_rows(codes: Ints, most: int) -> Ints:
    """Return rows spread evenly over each class: its share of `most`, but at least four."""
    counts = np.bincount(codes)
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    share = min(1.0, most / counts.sum())
    proportional = (share * counts).astype(np.int64)
    few = np.minimum(counts, np.maximum(4, proportional))
    places = [
        order[start + np.arange(k) * count // k]
        for start, count, k in zip(starts, counts, few, strict=True)
    ]
    return np.concatenate(places)
