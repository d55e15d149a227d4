"""Control variates of PSMI: log densities of Gaussians, whose mean over directions is known.

A control variate is a quantity that resembles the value of interest and whose mean is known.
Subtracting it removes most of the random error. Here it is the value itself as it would be if not
only each class but also all rows together were Gaussian along every direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from memowidgets.cores import on_all_cores, one_thread_each
from memowidgets.metrics.arrays import Array, Floats, fetched, like, namespace
from memowidgets.metrics.projections import Float32s

COMPONENTS = 32  # leading ones
_OVERSAMPLING = 8
_POWER_STEPS = 3
_LEAST_TAIL = 1e-3  # relative to the mean variance
# variance to add, relative to the trace of a class, and to that of all rows
_LEAST_OF_CLASS = 1e-6
_LEAST_OF_ALL = 1e-12
# classes · d³, for which the covariances of all classes take .4 s and 150 MB
_WHOLE = 6e9
_CACHED = 512  # features
_STEP = 0.25  # in log t: the trapezoid rule is exact to rounding for these analytic integrands
# bounds of log t, beyond which the integrands add nothing
_LOW = -40.0
_HIGH = 80.0


@dataclass(frozen=True)
class Spread:
    """Mean and covariance of some rows, or of their coordinates along a basis.

    Attributes
    ----------
    centre : (d,) float64
        Mean of the rows.
    covariance : (k, k) float64
        Covariance (ddof = 0) of the coordinates; k is d without a basis.
    trace : float
        Total variance of the rows.
    count : int
        Number of rows.
    longest : int
        Which row has more than half of the sum of squared deviations; −1 if none has.
    near : (d,) float32
        A point near the mean.
    """

    centre: Floats
    covariance: Floats
    trace: float
    count: int
    longest: int
    near: Array

    @classmethod
    def of(cls, chunks: Iterable[Array], near: Array, basis: Array | None) -> Spread:
        """Sum over chunks of rows (n, d), as deviations from a point (d,) near their mean."""
        first = np.zeros(1)
        second = np.zeros((1, 1))
        squares = []
        for rows in chunks:
            away = rows - near
            along = away if basis is None else away @ basis.T
            first = first + fetched(away.sum(0)).astype(np.float64)
            second = second + fetched(along.T @ along).astype(np.float64)
            squares.append(fetched(namespace(away).einsum("nd,nd->n", away, away)))
        lengths = np.concatenate(squares).astype(np.float64)
        shift = np.asarray(first / len(lengths))
        coordinates = shift if basis is None else fetched(basis) @ shift
        covariance = second / len(lengths) - np.outer(coordinates, coordinates)
        top = int(lengths.argmax())
        longest = top if 2 * lengths[top] > lengths.sum() else -1
        centre = fetched(near) + shift
        trace = float(lengths.mean() - shift @ shift)
        return cls(centre, covariance, trace, len(lengths), longest, near)

    @classmethod
    def joined(
        cls, spreads: Sequence[Spread], share: Floats, basis: Array | None
    ) -> Spread:
        """Return the spread of all rows, to which each class contributes its share."""
        count = sum(one.count for one in spreads)
        centres = np.stack([one.centre for one in spreads])
        centre = share @ centres
        away = centres - centre
        # the variance of all rows is that within the classes and that between them
        within = np.array([one.trace for one in spreads])
        between = (away**2).sum(axis=1)
        trace = float(share @ (within + between))
        along = away if basis is None else away @ fetched(basis).T
        covariance = (along.T * share) @ along
        for weight, one in zip(share, spreads, strict=True):
            covariance += weight * one.covariance
        return cls(centre, covariance, trace, count, -1, spreads[0].near)


@dataclass(frozen=True)
class Whole:
    """Gaussian with all of a covariance, and the mean over directions of its log density.

    Attributes
    ----------
    centre : (d,) float32
        Its mean.
    added : float
        Variance that is added everywhere, so that float32 can resolve the smallest ones.
    form : (d, d) float32
        A matrix whose quadratic form is the mean of (θᵀ(x − μ))² / θᵀΣθ.
    log : float
        Mean of log θᵀΣθ.
    """

    centre: Array
    added: float
    form: Array
    log: float

    @classmethod
    def of(cls, spread: Spread, least: float) -> Whole:
        """Create one from the spread of some rows; at least `least`, above 0, is added.

        The matrix is a function of the covariance. For all variances but the leading ones, a
        quadratic stands for it, and two values for them: means are wrong by less than 1e-4 nats.
        """
        covariance = spread.covariance
        added = max(_LEAST_OF_CLASS * spread.trace, least)
        axes, variances = leading(lambda columns: covariance @ columns, covariance)
        rest = covariance - (axes.T * variances) @ axes
        unit = float(abs(rest).max()) + 1e-30  # float32 can hold products of such rests
        rest = (rest / unit).astype(np.float32)
        square = rest @ rest
        others, counts = two_like(rest, square, len(rest) - len(axes))
        values = np.append(variances, unit * others) + added
        how_often = np.append(np.ones(len(axes)), counts)
        ratios, log = exact_means(values, how_often)
        # through the smallest of the leading ones, so that the matrix has no step there
        at = np.append(variances[-1] / unit, others)
        constant, slope, curvature = quadratic(at, ratios[len(axes) - 1 :])
        form = (axes.T * (ratios[: len(axes)] - constant)) @ axes
        form += slope * rest + curvature * square
        form[np.diag_indices(len(form))] += constant
        centre = _float32(spread.near, spread.centre)
        return cls(centre, added, _float32(spread.near, form), log)

    def forms(self, variance: Floats) -> Floats:
        """Return θᵀΣθ (m,) from the variance (m,) of the rows along unit directions."""
        return variance + self.added

    def mean_log_density(self, rows: Array) -> Array:
        """Return the mean (n,) of −½ log θᵀΣθ − ½ (θᵀ(x − μ))² / θᵀΣθ for rows (n, d)."""
        away = rows - self.centre
        ratio = namespace(rows).einsum("nd,nd->n", away @ self.form, away)
        return -0.5 * (ratio + self.log)


@dataclass(frozen=True)
class Leading:
    """Gaussian with one variance along all directions but some, and the mean of its log density.

    Attributes
    ----------
    centre : (d,) float32
        Its mean.
    basis : (k, d) float32
        Orthonormal axes.
    variances : (k,) float64
        Variance along each axis.
    tail : float
        Variance along every direction that is orthogonal to all axes.
    ratios : (k + 1,) float32
        Mean of θ_j² / θᵀΣθ for each axis, and for a direction orthogonal to all.
    log : float
        Mean of log θᵀΣθ.
    """

    centre: Array
    basis: Array
    variances: Floats
    tail: float
    ratios: Array
    log: float

    @classmethod
    def of(cls, spread: Spread, basis: Array, least: float) -> Leading:
        """Create one from the spread of some rows.

        The rows of a small class span few dimensions, so a variance is at least 1 / rows of the
        mean variance. With less the ratio is huge along the few directions that are nearly
        orthogonal to all rows, and slopes from a few hundred directions are then wrong.
        """
        d = len(spread.centre)
        variances = spread.covariance.diagonal()
        others = d - len(variances)
        trace = max(spread.trace, d * least)
        floor = max(1 / spread.count, _LEAST_TAIL) * trace / d
        tail = max((trace - float(variances.sum())) / others, floor)
        variances = np.maximum(variances, floor)
        how_often = np.append(np.ones(len(variances)), others)
        ratios, log = exact_means(np.append(variances, tail), how_often)
        centre = _float32(basis, spread.centre)
        return cls(centre, basis, variances, tail, _float32(basis, ratios), log)

    def forms(self, squares: Floats) -> Floats:
        """Return θᵀΣθ (m,) from squared coordinates (k, m) of unit directions along the basis."""
        return np.asarray((self.variances - self.tail) @ squares + self.tail)

    def mean_log_density(self, rows: Array) -> Array:
        """Return the exact mean (n,) of what `Whole` has."""
        away = rows - self.centre
        along = away @ self.basis.T
        of_tail = self.ratios[-1]
        ratio = (along * along) @ (self.ratios[:-1] - of_tail)
        ratio += of_tail * namespace(rows).einsum("nd,nd->n", away, away)
        return -0.5 * (ratio + self.log)


@dataclass(frozen=True)
class Gaussians:
    """Gaussians of each class and of all rows, whose log densities are controls.

    Attributes
    ----------
    each : tuple of Whole, or of Leading
        One for each class.
    total : Whole or Leading
        That of all rows.
    share : (C,) float64
        Share of each class in the latter: 0 if a single row has most of the class's variance, for
        that would hide all others.
    """

    each: tuple[Whole | Leading, ...]
    total: Whole | Leading
    share: Floats

    @classmethod
    def of(cls, spreads: Sequence[Spread], basis: Array | None) -> Gaussians:
        """Create them from the spread of each class, along a basis if there is one."""
        counts = np.array([one.count for one in spreads])
        plain = np.array([one.longest < 0 for one in spreads])
        weights = counts * plain if plain.any() else counts
        share = weights / weights.sum()
        total = Spread.joined(spreads, share, basis)
        least = max(_LEAST_OF_ALL * total.trace, 1e-30)

        def gaussian(one: Spread) -> Whole | Leading:
            if basis is None:
                return Whole.of(one, least)
            return Leading.of(one, basis, least)

        *each, last = on_all_cores(gaussian, [*spreads, total])
        return cls(tuple(each), last, share)

    def controls(
        self, mean: Floats, variance: Floats, along: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """Return the tables of the controls, by their names in `Tables`.

        Parameters
        ----------
        mean, variance : (C, m) float64
            Of the projections of each class on m directions.
        along : callable
            Projects rows (n, d) on these directions.
        """
        middle = self.share @ mean
        every = (*self.each, self.total)
        if isinstance(self.total, Leading):
            # of the directions along the basis, which all have in common
            squares = fetched(along(self.total.basis)).T.astype(np.float64) ** 2
            inputs = [squares] * len(every)
        else:
            of_all = self.share @ (variance + (mean - middle) ** 2)
            inputs = [*variance, of_all]
        forms = np.stack(
            [one.forms(these) for one, these in zip(every, inputs, strict=True)]
        )
        quadratics = np.stack([-0.5 / forms, -0.5 * np.log(forms)])
        columns = quadratics.astype(np.float32)[..., None]
        centre = middle.astype(np.float32)[None, :, None]
        return {
            "control": columns[:, :-1],
            "total": np.concatenate([centre, columns[:, -1]]),
        }

    def means(self, rows: Array, places: dict[int, slice]) -> Array:
        """Return the exact means (2, n) of both controls of samples, sorted by class."""
        xp = namespace(rows)
        total = self.total.mean_log_density(rows)
        own = [self.each[c].mean_log_density(rows[here]) for c, here in places.items()]
        return xp.stack([xp.concatenate(own) - total, total])


def _float32(beside: Array, values: Floats) -> Array:
    return like(beside, values.astype(np.float32))


def exact_means(values: Floats, counts: Floats) -> tuple[Floats, float]:
    """Return the exact means over unit directions θ of θ_j² / θᵀΣθ and of log θᵀΣθ.

    Both are integrals over t: the first of Π (1 + 2tλ)^(−1/2) / (1 + 2tλ_j), the second of
    (e⁻ᵗ − Π (1 + 2tλ)^(−1/2)) / t for Gaussian θ, minus E[log ‖θ‖²].

    Parameters
    ----------
    values : (k,) float64
        Eigenvalues of Σ.
    counts : (k,) float64
        How often each is there.

    Returns
    -------
    ratios : (k,) float64
        For each eigenvalue.
    log : float
        Mean logarithm.

    Examples
    --------
    >>> ratios, log = exact_means(np.array([3.0, 3.0]), np.array([2, 4]))
    >>> ratios.round(3), bool(np.isclose(log, np.log(3.0)))
    (array([0.056, 0.056]), True)
    """
    size = float(counts @ values)  # the integrands are then near t = 1
    t = np.exp(np.arange(_LOW, _HIGH, _STEP))
    factors = 1 + 2 * t * (values / size)[:, None]
    product = np.exp(-0.5 * counts @ np.log(factors))
    # dt is t d(log t): the first integrand gains a factor t, and the second loses its 1 / t
    ratios = _STEP * ((t * product) / factors).sum(axis=1) / size
    gaussian = _STEP * float((np.exp(-t) - product).sum())
    log_length = digamma(counts.sum() / 2)
    return ratios, gaussian + float(np.log(size) - log_length - np.log(2))


def two_like(rest: Float32s, square: Float32s, count: int) -> tuple[Floats, Floats]:
    """Return two values, and how often each is there, with the first moments of many eigenvalues.

    These are the nodes of a Gauss quadrature: sums of `count` eigenvalues of a matrix (d, d), whose
    square is given, and of their squares and cubes are the same for the two values.
    """
    sums = np.trace(rest), np.trace(square), np.vdot(square, rest)
    mean, second, third = (float(one) / count for one in sums)
    variance = max(second - mean**2, 1e-9 * second + 1e-30)
    half = (third - 3 * mean * second + 2 * mean**3) / (2 * variance)
    apart = np.hypot(half, np.sqrt(variance))
    above = 0.5 - 0.5 * half / apart  # the share of the larger value
    values = mean + half + np.array([-apart, apart])
    return values.clip(0), count * np.array([1 - above, above])


def quadratic(at: Floats, values: Floats) -> Floats:
    """Return the coefficients of a quadratic through three points, some of which may be one."""
    scale = max(at.max(), 1.0)  # the largest entry of `rest` is 1
    powers = np.vander(at / scale, 3, increasing=True)
    # least squares, because points that are one leave the coefficients open
    scaled, *_ = np.linalg.lstsq(powers, values, rcond=1e-10)
    coefficients: Floats = scaled / scale ** np.arange(3)
    return coefficients


def common_basis(sample: Array, n_classes: int) -> Array | None:
    """Return leading components (k, d) of all rows; None if each class has its own covariance.

    Parameters
    ----------
    sample : (n, d) float32
        Some rows.
    n_classes : int
        Number of classes.
    """
    d = sample.shape[1]
    if (n_classes + 1) * d**2 * max(d, _CACHED) <= _WHOLE:
        return None
    xp = namespace(sample)
    away = sample - sample.mean(0)

    def product(columns: Array) -> Array:
        return away.T @ (away @ xp.asarray(columns, dtype=xp.float32))

    axes, _ = leading(product, away)
    return xp.asarray(axes, dtype=xp.float32)


def leading(product: Callable[[Array], Array], beside: Array) -> tuple[Array, Floats]:
    """Return leading axes (k, d) and eigenvalues of a symmetric matrix, by subspace iteration.

    The last axes need not be accurate: for a common basis the means are exact whatever it is, and
    the quadratic is accurate near the eigenvalues that follow.

    Parameters
    ----------
    product : callable
        Multiplies the matrix with columns (d, w).
    beside : array
        An array on the device of the matrix, with d columns.
    """
    xp = namespace(beside)
    d = beside.shape[1]
    k = min(COMPONENTS, d - 1)
    width = min(k + _OVERSAMPLING, d)
    start = np.random.default_rng(0).standard_normal((d, width))
    columns = like(beside, start)
    # many small steps, each of which would wait for all threads
    with one_thread_each():
        for _ in range(_POWER_STEPS):
            columns = xp.linalg.qr(xp.asarray(product(columns), dtype=xp.float64))[0]
        small = fetched(columns.T @ xp.asarray(product(columns), dtype=xp.float64))
    values, turn = np.linalg.eigh(small)
    # eigh's are ascending, and a tensor has no negative strides
    largest = turn[:, ::-1][:, :k].copy()
    axes = (columns @ like(beside, largest)).T
    return axes, values[::-1][:k].clip(0)
