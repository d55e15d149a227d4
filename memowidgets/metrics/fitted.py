"""State of a fitted PSMI: the Gaussian of each class along each direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import to_numpy
from memowidgets.metrics.arrays import (
    Array,
    Floats,
    Frame,
    Ints,
    like,
    namespace,
    refuse_rows,
    row_chunks,
)
from memowidgets.metrics.classes import ClassSums
from memowidgets.metrics.controls import Controls, Shapes, components, n_bases
from memowidgets.metrics.crossfit import FOLDS, corrected, plain
from memowidgets.metrics.projections import FEW_CLASSES, Tables, moments
from memowidgets.metrics.threads import on_all_cores

Float32s = NDArray[np.float32]

_FLOOR = 1e-6  # relative to the standard deviation of all samples along a direction
_SAMPLED_ROWS = 2048  # maximum number of rows, and of bytes
_SAMPLED_BYTES = 2**24
_FEWEST_TO_DOMINATE = 20  # rows of a class; in a smaller one the longest row is often half of all
_AT_ONCE = 64  # directions per generator, so that more directions start with the same ones
_STREAM = 0x50534D49  # differs from default_rng(seed), which may have generated the user's data
_KEPT_BYTES = 96_000_000  # maximum size of the projections that are kept for scoring


@dataclass(frozen=True)
class Kept:
    """Projections of the fitted samples, with a probe that detects whether the rows changed."""

    projections: Array
    probed: Array

    def of(self, probed: Array, start: int, stop: int) -> Array | None:
        """Return the projections of these rows, or None if the rows have changed since."""
        if stop > len(self.probed) or not bool((self.probed[start:stop] == probed).all()):
            return None
        return self.projections[start:stop]


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
    kept: Kept | None = field(repr=False)
    dominant: Ints = field(repr=False)

    @property
    def knows_nothing(self) -> bool:
        """Whether all rows were equal, so that no direction tells classes apart."""
        return not bool(self.tables.sharpness.any())

    @np.errstate(over="ignore", invalid="ignore")  # reported below as not finite
    def score(self, X: Array, codes: Ints) -> tuple[Floats, Floats]:
        """Return the PSMI of samples whose class indices are `codes`, and its standard error."""
        scores, errors = np.empty(len(codes)), np.empty(len(codes))
        for start, stop in _chunks(X, self.frame, len(self.onto), self.tables.n_classes):
            rows = self.frame.rows(X, start, stop)
            found = self._score_rows(rows, like(rows, codes[start:stop]), start, stop)
            scores[start:stop], errors[start:stop] = map(to_numpy, found)
        if not (np.isfinite(scores).all() and np.isfinite(errors).all()):
            refuse_rows(X, scores + errors)
        if X.shape[1] == 1:  # all directions are the same, up to rounding
            errors[:] = 0
        return scores, errors

    def _score_rows(self, rows: Array, codes: Array, start: int, stop: int) -> tuple[Array, Array]:
        m, projected = self.tables.mean.shape[1], None
        if self.kept is not None:
            projected = self.kept.of(_probe(rows), start, stop)
        if projected is None:
            projected = rows @ self.onto.T
        products = moments(projected[:, :m], codes, self.tables)
        if self.controls is None:
            return plain(products)
        along = self.controls.along(projected[:, m:])
        return corrected(products, self.controls.means(rows, along, codes))


def fit(X: Array, codes: Ints, n_directions: int, seed: int, *, use_controls: bool) -> Fitted:
    """Fit PSMI along `n_directions` to samples whose class indices are `codes`."""
    counts = np.bincount(codes)
    d = X.shape[1]
    picked = _picked_rows(codes, counts, min(_SAMPLED_ROWS, _SAMPLED_BYTES // (8 * d)))
    frame, sample = _sampled(X, picked)
    centres = np.stack([sample[codes[picked] == c].mean(axis=0) for c in range(len(counts))])
    axes = np.empty((0, d), dtype=np.float32)
    if use_controls:
        axes = components(sample - centres[codes[picked]], codes[picked]).reshape(-1, d)
    onto = np.empty((n_directions + len(axes), d), dtype=np.float32)
    fill_directions(onto[:n_directions], seed)
    onto[n_directions:] = axes
    beside = frame.rows(X, 0, 1)
    onto, near = like(beside, onto), like(beside, centres)
    sums, kept = _summed(X, codes, frame, onto, near, with_rows=use_controls)
    tables, controls = _tables(sums, n_directions), None
    if use_controls and tables.sharpness.any() and sums.resolved():
        tables, controls = _with_controls(tables, sums, to_numpy(onto), n_directions)
    tables = Tables(*(like(beside, values) for values in vars(tables).values()))
    controls = controls and Controls(*(like(beside, v) for v in vars(controls).values()))
    return Fitted(frame, onto, tables, controls, kept, sums.dominant(_FEWEST_TO_DOMINATE))


def project(X: Array, rows: Ints, n_directions: int, seed: int) -> Float32s:
    """Return centred projections (rows, n_directions) of some rows of X onto random directions."""
    theta = np.empty((n_directions, X.shape[1]), dtype=np.float32)
    fill_directions(theta, seed)
    sample = _sampled(X, rows)[1]
    return np.asarray((sample - sample.mean(axis=0)) @ theta.T)


def mean_along(projected: Float32s, codes: Ints) -> float:
    """Return the mean PSMI (plain) of samples from their projections (n, m)."""
    m = projected.shape[1]
    sums = ClassSums(np.zeros((int(codes.max()) + 1, m), np.float32), np.eye(m, dtype=np.float32))
    sums.add_projections(projected, codes)
    return float(plain(moments(projected, codes, _tables(sums, m)))[0].mean())


def fill_directions(theta: Float32s, seed: int) -> None:
    """Fill `theta` (m, d) with the first m unit directions of the seed."""

    def fill(start: int) -> None:
        part = theta[start : start + _AT_ONCE]
        stream = np.random.SeedSequence(seed, spawn_key=(_STREAM, start // _AT_ONCE))
        np.random.default_rng(stream).standard_normal(out=part, dtype=np.float32)
        part /= np.sqrt(np.einsum("md,md->m", part, part))[:, None]

    on_all_cores(theta, range(0, len(theta), _AT_ONCE), fill)


@np.errstate(over="ignore", invalid="ignore")  # reported below as not finite
def _summed(
    X: Array, codes: Ints, frame: Frame, onto: Array, near: Array, *, with_rows: bool
) -> tuple[ClassSums, Kept | None]:
    """Sum over the rows in one pass, keeping the projections if they are small enough."""
    sums, kept = ClassSums(near, onto), _room(onto, len(codes))
    for start, stop in _chunks(X, frame, len(onto), len(near)):
        rows = frame.rows(X, start, stop)
        out = None if kept is None else kept.projections[start:stop]
        projected = namespace(rows).matmul(rows, onto.T, out=out)
        sums.add_projections(projected, codes[start:stop])
        if with_rows:
            sums.add_rows(rows, codes[start:stop], start)
        if kept is not None:
            kept.probed[start:stop] = _probe(rows)
    if not sums.finite():
        refuse_rows(X)
    return sums, kept


def _chunks(X: Array, frame: Frame, width: int, n_classes: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of rows whose features, projections and products fit in the memory limit."""
    as_they_are = frame.neutral and str(X.dtype).endswith("float32")
    features = (4 if as_they_are else 28) * X.shape[1]
    variables = min(n_classes, FEW_CLASSES) + 1
    products = 8 * FOLDS * variables * 2 * variables
    return row_chunks(X.shape[0], features + 4 * width + products)


def _room(onto: Array, n: int) -> Kept | None:
    if 4 * n * len(onto) > _KEPT_BYTES:
        return None
    projections = np.empty((n, len(onto)), dtype=np.float32)
    return Kept(like(onto, projections), like(onto, np.empty(n, dtype=np.float32)))


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


def _sampled(X: Array, picked: Ints) -> tuple[Frame, Float32s]:
    """Return the frame that suits the picked rows, and these rows in it."""
    raw = X[picked]
    sample = to_numpy(raw).astype(np.float64)
    if not np.isfinite(sample).all():
        refuse_rows(X)
    frame = Frame.fitting(sample, X)
    return frame, to_numpy(frame.rows(raw, 0, len(picked)))


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


def _with_controls(
    tables: Tables, sums: ClassSums, onto: Float32s, m: int
) -> tuple[Tables, Controls]:
    centres = sums.centres()
    n_classes, d = centres.shape
    bases, every = n_bases(n_classes), np.arange(n_classes)
    means, variances = (
        table[:, m:].reshape(n_classes, bases, -1)[every, every % bases]
        for table in (sums.mean(), sums.variance())
    )
    shapes = Shapes.of(variances, sums.traces(), sums.counts, d)
    along = (onto[m:] @ onto[:m].T).astype(np.float64)
    forms = shapes.forms(along.reshape(bases, len(along) // bases, m) ** 2)
    tables = replace(
        tables,
        weight=(1 / forms).astype(np.float32),
        log_form=(np.log(forms) - shapes.mean_logs()[:, None]).astype(np.float32),
    )
    return tables, Controls.of(centres, means, shapes)
