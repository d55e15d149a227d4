"""Log-LiRA with a prior for each sample's mean and variance, fitted on all samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from memowidgets.cores import one_thread_each
from memowidgets.memorization.densities import Densities, Fits, Known, floor
from memowidgets.memorization.gaps import Floats, Mask, Models, Side

FOLDS = 5
FEWEST_SAMPLES = 50  # with fewer, the prior's mean and scale are the same for all samples
_FEWEST_MODELS = 3  # with fewer, one that is left out leaves no spread of the others
_LEFT_OUT = 8  # models
_FIT_ON = 5_000  # samples; enough to fit the few numbers of the prior
_SEED = 0
_FARTHEST = 4.0  # standard deviations; covariates are clipped, because they are squared


@dataclass(frozen=True)
class Posterior:
    """What is known of each sample's Gaussian on one side: normal–inverse-gamma.

    Attributes
    ----------
    mean : float64
        Posterior mean of the mean.
    strength : float64
        Number of gaps that the mean is worth (κ).
    freedom : float64
        Degrees of freedom of the variance (ν), above 2.
    squares : float64
        ν times the scale of the variance.
    surprise : float64
        Posterior minus prior mean.
    """

    mean: Floats
    strength: Floats
    freedom: Floats
    squares: Floats
    surprise: Floats

    @property
    def variance(self) -> Floats:
        """Posterior mean of the variance, times 1 + 1/κ for the uncertainty of the mean."""
        return np.asarray(self.squares / (self.freedom - 2) * (1 + 1 / self.strength))

    def seeing(self, gap: Floats) -> Posterior:
        """Return the posterior after one more gap."""
        more = self.strength + 1
        away = gap - self.mean
        return Posterior(
            self.mean + away / more,
            more,
            self.freedom + 1,
            self.squares + self.strength / more * away**2,
            self.surprise + away / more,
        )

    def at(self, columns: slice) -> Posterior:
        """Return the posterior of some of the samples."""
        parts = self.mean, self.strength, self.freedom, self.squares, self.surprise
        return Posterior(*(part[columns] for part in parts))


@dataclass(frozen=True)
class Prior:
    """Normal–inverse-gamma prior of one side.

    Attributes
    ----------
    means : (folds, n_features) float64
        Coefficients of the mean; a sample's are those of the fold that it is in.
    scales : (n_features of the scale,) float64
        Coefficients of the log of the variance's scale.
    strength, freedom : float
        κ₀ and ν₀.
    """

    means: Floats
    scales: Floats
    strength: float
    freedom: float

    def mean(self, features: Floats, fold: NDArray[np.int64]) -> Floats:
        """Return the prior's mean of each sample."""
        every = features @ self.means.T
        rows = np.broadcast_to(fold, every.shape[:-1])[..., None]
        return np.asarray(np.take_along_axis(every, rows, axis=-1)[..., 0])

    def own_variance(self, side: Side, features: Floats, least: float) -> tuple[Floats, Floats]:
        """Return scale and degrees of freedom of the variance, whatever the prior's mean."""
        scale = np.exp(features[..., : len(self.scales)] @ self.scales)
        freedom = self.freedom + np.maximum(side.count - 1, 0.0)
        return np.maximum((self.freedom * scale + side.squares) / freedom, least), freedom

    def posterior(self, side: Side, features: Floats, fold: NDArray[np.int64]) -> Posterior:
        """Return the posterior given the gaps of one side; `features` are (…, n, n_features)."""
        prior = self.mean(features, fold)
        scale = np.exp(features[..., : len(self.scales)] @ self.scales)
        strength = self.strength + side.count
        away = side.mean - prior
        between = self.strength * side.count / strength
        mean = prior + side.count / strength * away
        squares = self.freedom * scale + side.squares + between * away**2
        return Posterior(mean, strength, self.freedom + side.count, squares, mean - prior)


def fitted_prior(seen: _Observed, features: Floats, n_scales: int, typical: float) -> Prior:
    """Fit the means by least squares outside each fold, the rest by the gaps' likelihood.

    Parameters
    ----------
    seen : _Observed
        Of samples that have models on this side, in an order that does not depend on the caller's.
    features : (n, n_features)
        The first is 1.
    n_scales : int
        How many of the features the scale depends on.
    typical : float
        Variance of a usual sample, at which the search starts.
    """
    means = _regressed(seen.gaps, features, seen.fold)
    centre = np.einsum("np,np->n", features, means[seen.fold])
    some = slice(None, None, -(-len(centre) // _FIT_ON))
    scaled = features[some, :n_scales]

    def moments_of(side: Side) -> tuple[Floats, Floats, Floats]:
        part = side.at(some)
        return part.count, part.squares / typical, (part.mean - centre[some]) ** 2 / typical

    known, given = moments_of(seen.known), None if seen.given is None else moments_of(seen.given)

    def minus(parameters: Floats) -> tuple[float, Floats]:
        value, gradient = log_marginal(parameters, *known, scaled)
        if given is not None:
            before, its_gradient = log_marginal(parameters, *given, scaled)
            value, gradient = value - before, gradient - its_gradient
        return -value, -gradient

    start = np.zeros(2 + n_scales)
    start[1] = 1.0
    bounds = [(-12.0, 9.0), (-4.0, 9.0), (-20.0, 5.0), *[(-5.0, 5.0)] * (n_scales - 1)]
    with one_thread_each():
        best = minimize(minus, start, jac=True, bounds=bounds).x
    best[2] += np.log(typical)
    return Prior(means, best[2:], float(np.exp(best[0])), 2 + float(np.exp(best[1])))


def _regressed(side: Side, features: Floats, fold: NDArray[np.int64]) -> Floats:
    """Return the coefficients of the mean gap for each fold, fitted on the other folds.

    A sample weighs as much as it has gaps. Features that are 0 throughout get the coefficient 0.
    """
    folds = int(fold.max()) + 1
    size = np.sqrt(np.mean(features**2, axis=0))
    size[size == 0] = 1.0
    squares = np.empty((folds, features.shape[1], features.shape[1]))
    products = np.empty((folds, features.shape[1]))
    for one in range(folds):
        rows = fold == one
        here = features[rows] / size
        weighed = (here * side.count[rows, None]).T
        squares[one], products[one] = weighed @ here, weighed @ side.mean[rows]
    if folds > 1:
        squares, products = squares.sum(axis=0) - squares, products.sum(axis=0) - products
    solved = np.linalg.pinv(squares, rcond=1e-10, hermitian=True) @ products[..., None]
    return np.asarray(solved[..., 0] / size)


def log_marginal(
    parameters: Floats, count: Floats, squares: Floats, away: Floats, features: Floats
) -> tuple[float, Floats]:
    """Return the mean log marginal likelihood of the samples' gaps, and its gradient.

    Parameters
    ----------
    parameters : (2 + n_features,) float64
        log κ₀, log(ν₀ − 2), and the coefficients of the log of the scale.
    count, squares : (n,) float64
        Number of gaps of each sample, and the squared deviations from their mean.
    away : (n,) float64
        Squared distance between that mean and the prior's.
    features : (n, n_features) float64
        What the scale depends on.
    """
    strength, above = np.exp(parameters[:2])
    freedom = 2 + above
    scale = np.exp(features @ parameters[2:])
    stronger, freer = strength + count, freedom + count
    inverse = freedom * scale
    total = inverse + squares + strength * count / stronger * away
    terms = (
        gammaln(freer / 2)
        - gammaln(freedom / 2)
        + 0.5 * (np.log(strength / stronger) - count * np.log(np.pi))
        + freedom / 2 * np.log(inverse)
        - freer / 2 * np.log(total)
    )
    by_strength = count / stronger - freer * strength * (count / stronger) ** 2 * away / total
    by_freedom = digamma(freer / 2) - digamma(freedom / 2) + np.log(inverse / total) + 1
    by_freedom -= freer * scale / total
    by_scale = freedom / 2 - freer / 2 * inverse / total
    gradient = np.array([by_strength.mean() / 2, above * by_freedom.mean() / 2])
    return float(terms.mean()), np.append(gradient, features.T @ by_scale / len(count))


@dataclass(frozen=True)
class Covariates:
    """What the shadow models say of a sample early: mean and log standard deviation of its gap.

    Attributes
    ----------
    centre, width : (2,) float64
        Mean and standard deviation of both over the samples.
    least : float
        Least standard deviation of a gap.
    """

    centre: Floats
    width: Floats
    least: float

    @classmethod
    def of(cls, early: Side) -> Covariates | None:
        """Return the covariates; None if they are equal for all samples."""
        spread = _spread(early)
        least = max(1e-3 * float(np.median(spread)), 1e-100)
        raw = np.stack([early.mean, np.log(np.maximum(spread, least))], axis=-1)
        width = raw.std(axis=0)
        constant = width <= 1e-9 * np.maximum(1.0, np.abs(raw).max(axis=0))
        if constant.all():
            return None
        return cls(raw.mean(axis=0), np.where(constant, np.inf, width), least)

    def features(self, early: Side) -> Floats:
        """Return 1, both covariates, their squares and their product, (…, n, 6)."""
        spread = np.log(np.maximum(_spread(early), self.least))
        raw = np.stack([early.mean, spread], axis=-1)
        a, b = np.moveaxis(((raw - self.centre) / self.width).clip(-_FARTHEST, _FARTHEST), -1, 0)
        return np.stack([np.ones_like(a), a, b, a * a, b * b, a * b], axis=-1)


@dataclass(frozen=True)
class Hierarchical(Fits):
    """Fitted priors of both sides.

    Each side is fitted twice. The second time, the prior's mean also depends on how far the
    sample's other side was from its own prior, because both sides share what is unusual about the
    sample.
    """

    inside: Side
    outside: Side
    early: Side | None
    covariates: Covariates | None
    fold: NDArray[np.int64]
    alone: tuple[Prior, Prior]
    together: tuple[Prior, Prior] | None
    least: float
    offline: bool = False
    fewest: int = 1
    pulls: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        inside: Side,
        outside: Side,
        early: Side | None = None,
        models: Models | None = None,
        mode: str = "online",
    ) -> Hierarchical:
        """Fit both priors on the samples that have models on each side.

        Offline, both are fitted on the models outside, because the other one is not used.

        Parameters
        ----------
        inside, outside : Side
            Moments of the gaps.
        early : Side, optional
            Moments of the covariates' gaps, over all models; "offline": over those outside.
        models : Models, optional
            The gaps that these are the moments of; without them, covariates are believed more.
        mode : {"online", "offline"}
            As in `log_lira`.
        """
        offline = mode == "offline"
        other = outside if offline else inside  # offline, nothing is asked of the models inside
        order = in_order(other, outside)
        few = len(order) < FEWEST_SAMPLES
        covariates = None if early is None or few else Covariates.of(early.at(order))
        ordered = other.at(order), outside.at(order)
        chosen = _folds(*ordered, 1 if few else FOLDS)
        fold = np.zeros(len(inside.count), dtype=np.int64)
        fold[order] = chosen
        if covariates is None or early is None:
            data = _Fitting.at_once(*ordered, np.ones((len(order), 1)), chosen)
        elif models is None or len(models.gaps) < _FEWEST_MODELS:
            data = _Fitting.at_once(*ordered, covariates.features(early.at(order)), chosen)
        else:
            some = slice(None, None, -(-len(order) // _FIT_ON))
            rows = order[some]
            sides = other.at(rows), outside.at(rows)
            seen = early.at(rows), models.at(rows), covariates, chosen[some], offline
            data = _Fitting.one_by_one(sides, *seen)
        alone, together = data.priors(), None
        if not few and not offline:
            together = data.priors(alone)
        least = floor(inside, outside)
        return cls(inside, outside, early, covariates, fold, alone, together, least, offline)

    def at(self, rows: NDArray[np.int64]) -> Hierarchical:
        """Return the fits of some of the samples."""
        early = None if self.early is None else self.early.at(rows)
        inside, outside = self.inside.at(rows), self.outside.at(rows)
        return replace(self, inside=inside, outside=outside, early=early, fold=self.fold[rows])

    def without(self, gaps: Floats, members: Mask, early: Floats | None) -> Hierarchical:
        """Return the fits without one model; the priors stay. All are (n,), of that model."""
        looks = self.early
        if looks is not None and early is not None:
            looks = looks.without(early, seen_by(members, offline=self.offline))
        inside, outside = self.inside.without(gaps, members), self.outside.without(gaps, ~members)
        return replace(self, inside=inside, outside=outside, early=looks)

    def posteriors(self) -> tuple[Posterior, Posterior]:
        """Return what is known of each sample, inside and outside."""
        sides, features = (self.inside, self.outside), self._features()
        alone = [
            prior.posterior(one, features, self.fold)
            for prior, one in zip(self.alone, sides, strict=True)
        ]
        if self.together is None:
            return alone[0], alone[1]
        inside, outside = (
            prior.posterior(
                one, np.concatenate([features, other.surprise[..., None]], axis=-1), self.fold
            )
            for prior, one, other in zip(self.together, sides, alone[::-1], strict=True)
        )
        return inside, outside

    def gaussians(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return the mean and variance of each sample, inside and outside."""
        inside, outside = (
            (one.mean, np.maximum(one.variance, self.least)) for one in self.posteriors()
        )
        return inside, outside

    def known(self) -> tuple[Known, Known]:
        """Return what each side's gaps say without the prior of the mean.

        That prior pulls most where a sample is memorised, which is a bias and not in the posterior.
        """
        sides, features = (self.inside, self.outside), self._features()
        inside, outside = (
            Known(one.mean, one.count, *prior.own_variance(one, features, self.least))
            for prior, one in zip(self.alone, sides, strict=True)
        )
        return inside, outside

    def _features(self) -> Floats:
        if self.covariates is not None and self.early is not None:
            return self.covariates.features(self.early)
        return np.ones((len(self.outside.mean), 1))


@dataclass(frozen=True)
class _Observed:
    """Gaps of one side, each with what its prior is a function of.

    Attributes
    ----------
    gaps : Side
        What the prior's mean is fitted to.
    given : Side or None
        What was known before those gaps; None if nothing was.
    known : Side
        `given` and the gaps together.
    others : Side
        The samples' other side.
    features : (n, n_features) float64
        Of the prior, from models whose gaps are not among `gaps`.
    fold : (n,) int64
        Fold of each sample.
    """

    gaps: Side
    given: Side | None
    known: Side
    others: Side
    features: Floats
    fold: NDArray[np.int64]


@dataclass(frozen=True)
class _Fitting:
    """What both priors are fitted to: samples that have models on each side."""

    inside: _Observed
    outside: _Observed

    def priors(self, alone: tuple[Prior, Prior] | None = None) -> tuple[Prior, Prior]:
        """Fit both sides; with the priors of each `alone`, they depend on the other side too."""
        least = floor(self.inside.known, self.outside.known)
        into, out = alone or (None, None)
        return self._fitted(self.inside, out, least), self._fitted(self.outside, into, least)

    @staticmethod
    def _fitted(seen: _Observed, of_others: Prior | None, least: float) -> Prior:
        typical = float(seen.known.squares.sum() / max((seen.known.count - 1).sum(), 1.0))
        features, width = seen.features, seen.features.shape[1]
        if of_others is not None:
            surprise = of_others.posterior(seen.others, features, seen.fold).surprise
            features = np.column_stack([features, surprise])
        return fitted_prior(seen, features, width, max(typical, least))

    @classmethod
    def at_once(
        cls, inside: Side, outside: Side, features: Floats, fold: NDArray[np.int64]
    ) -> _Fitting:
        """Fit to all gaps of a sample at once: nothing that the features say is among them."""
        return cls(
            _Observed(inside, None, inside, outside, features, fold),
            _Observed(outside, None, outside, inside, features, fold),
        )

    @classmethod
    def one_by_one(
        cls,
        sides: tuple[Side, Side],
        early: Side,
        models: Models,
        covariates: Covariates,
        fold: NDArray[np.int64],
        offline: bool,
    ) -> _Fitting:
        """Fit to one model's gap at a time, given the other models' gaps and early gaps.

        A model's early gap has part of the noise of its last one. So covariates that it has a part
        in seem to say more of its gap than they do.
        """
        parts: tuple[list[_Observed], list[_Observed]] = ([], [])
        for model in models.order(_SEED)[:_LEFT_OUT]:
            members, gaps = models.members[model], models.gaps[model].astype(np.float64)
            assert models.early is not None  # noqa: S101 - for the type checker
            own = models.early[model].astype(np.float64)
            features = covariates.features(early.without(own, seen_by(members, offline=offline)))
            for side, present in enumerate((~members if offline else members, ~members)):
                rows = np.flatnonzero(present)
                one = Side(np.ones(len(rows)), gaps[rows], np.zeros(len(rows)))
                known = sides[side].at(rows)
                given = known.without(gaps[rows], np.ones(len(rows), dtype=np.bool_))
                others = sides[1 - side].at(rows)
                parts[side].append(_Observed(one, given, known, others, features[rows], fold[rows]))
        return cls(_joined(parts[0]), _joined(parts[1]))


def _joined(parts: list[_Observed]) -> _Observed:
    def side(name: str) -> Side:
        every = [getattr(part, name) for part in parts]
        columns = zip(*((one.count, one.mean, one.squares) for one in every), strict=True)
        return Side(*(np.concatenate(column) for column in columns))

    features, fold = (np.concatenate([getattr(p, n) for p in parts]) for n in ("features", "fold"))
    return _Observed(side("gaps"), side("given"), side("known"), side("others"), features, fold)


def seen_by(members: Mask, *, offline: bool) -> Mask:
    """Return which samples' covariates these models have a part in."""
    return ~members if offline else np.ones_like(members)


def fitted(
    inside: Side,
    outside: Side,
    variance: str,
    mode: str = "online",
    early: Side | None = None,
    models: Models | None = None,
) -> Densities | Hierarchical:
    """Fit both sides in the way that `variance` names."""
    if variance == "hierarchical":
        return Hierarchical.fit(inside, outside, early, models, mode)
    return Densities.fit(inside, outside, variance, mode)


def _spread(early: Side) -> Floats:
    return np.asarray(np.sqrt(early.squares / np.maximum(early.count, 1)))


def in_order(inside: Side, outside: Side) -> NDArray[np.int64]:
    """Return samples with models on each side, in an order that is the same for any caller."""
    rows = np.flatnonzero((inside.count > 0) & (outside.count > 0))
    return rows[np.lexsort((outside.squares[rows], inside.mean[rows], outside.mean[rows]))]


def _folds(inside: Side, outside: Side, folds: int) -> NDArray[np.int64]:
    """Return each sample's fold, which does not depend on the order of the samples."""
    key: NDArray[Any] = inside.mean + outside.mean
    values, rank = np.unique(key, return_inverse=True)
    dealt = np.random.default_rng(_SEED).permutation(np.arange(len(values)) % folds)
    return np.asarray(dealt[rank], dtype=np.int64)
