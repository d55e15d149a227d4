"""PSMI: agreement of a sample's representation with its label; and scores of many layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import (
    as_code,
    check_same_order,
    real_number,
    whole_number,
)
from memowidgets.metrics.arrays import (
    Array,
    Floats,
    GivenRows,
    Ints,
    checked_features,
    checked_labels,
    fetched,
    like,
)
from memowidgets.metrics.fitted import Fitted, Look, fit, mean_along, picked_rows
from memowidgets.metrics.projections import independent_directions
from memowidgets.vocabulary import Note, verb

Method = Literal["control-variates", "plain"]

METHODS = ("control-variates", "plain")
PAPER_DIRECTIONS = 2000
# of "auto"
FIRST_DIRECTIONS = 256
MOST_DIRECTIONS = 2048
# an error of a tenth of the spread adds a hundredth to the variance of scores
TOLERANCE = 0.1
FEWEST_TO_REGRESS = 64  # least number of directions for control variates
_JUDGED_ROWS = 512  # from which the standard error of all is estimated
# of the test against shuffled labels
_TESTED_ROWS = 1000
_TESTED_DIRECTIONS = 32
_SHUFFLES = 19
# keys of notes
SMALL_CLASSES: Final = "small classes"
IMPRECISE: Final = "imprecise"
KNOWS_NO_LABELS = Note(
    "knows no labels",
    "the representations tell the labels apart no better than shuffled labels: their scores "
    "predict nothing",
)
FEW_SAMPLES = 20  # samples of a class, below which its Gaussian is inaccurate


class PSMI:
    """Pointwise sliced mutual information, with its standard error.

    Parameters
    ----------
    n_directions : int or "auto"
        Number of random directions. "auto" begins with 256 and adds blocks of 256 until the
        standard error of the fitted samples (root mean square; of about 500 of them, if there
        are more) is at most `tol` of the scores' spread, or until there are 2048.
        With "plain", "auto" means the paper's 2000.
    method : {"control-variates", "plain"}
        "plain" is the paper's mean over directions. "control-variates" subtracts from each value
        similar quantities whose mean over all directions is known (the log densities that Gaussians
        of the class and of all rows have, with cross-fitted slopes). This removes most of the
        random error. With fewer than 64 directions, the mean is plain. For two features,
        directions are at even angles instead, on grids with random shifts.
    tol : float or None
        Largest standard error for "auto", as a share of the scores' spread: 1.4826 times the
        median distance of a score to the median of its class. None means 0.1.
    random_state : int
        Seed of the directions. The same seed gives the same scores.

    Attributes
    ----------
    classes_ : (n_classes,) array
        Distinct labels that were fitted.
    n_directions_ : int
        Number of directions in use.
    warnings_ : tuple of Note
        Sentences, each with a ``key``, about classes of fewer than 20 samples ("small classes"),
        representations that know nothing of the labels ("knows no labels"), rows that have most of
        the variance of their class ("dominant rows"), and a tolerance that was not reached where
        scores are within two standard errors of 0 ("imprecise").

    Notes
    -----
    Along a direction θ, each class y is a Gaussian fitted to its projections (ddof = 0), and the
    pointwise value is log p(θᵀx | y) − log Σ_y p(y) p(θᵀx | y). PSMI is its mean over directions,
    in nats (natural logarithms). A low value, usually below 0, means that memorisation is likely
    (the paper's section 3). The result does not depend on the scale or position of the features.
    Each fitted sample is in the Gaussian of its own class, so the mean PSMI of representations
    that know nothing of the labels is slightly above 0 (one over the size of a class, minus one
    over that of all), and 0 is a strict threshold for many small classes.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> X = rng.normal(size=(200, 8)) + 3 * y[:, None]
    >>> y[0] = 1 - y[0]
    >>> scores, errors = PSMI().fit(X, y).score_samples(X, y, return_std=True)
    >>> int(scores.argmin()), bool(errors.max() < 0.2)
    (0, True)
    """

    classes_: NDArray[Any]
    n_directions_: int
    warnings_: tuple[Note, ...]

    def __init__(
        self,
        n_directions: int | Literal["auto"] = "auto",
        method: Method = "control-variates",
        tol: float | None = None,
        random_state: int = 0,
    ) -> None:
        if method not in METHODS:
            valid = ", ".join(repr(name) for name in METHODS)
            raise ValueError(f"unknown method {method!r}; valid are {valid}")
        if n_directions != "auto":
            whole_number('n_directions, unless it is "auto",', n_directions, 1)
        whole_number("random_state", random_state)
        adapts = n_directions == "auto" and method != "plain"
        if tol is not None and not (adapts and real_number("tol", tol) > 0):
            raise ValueError(
                'tol must be above 0, and goes with n_directions="auto" and '
                'method="control-variates" only'
            )
        self.n_directions = n_directions
        self.method = method
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: object, y: ArrayLike) -> PSMI:
        """Fit the Gaussian of each class along each direction.

        Parameters
        ----------
        X : (n_samples, n_features) array_like or torch tensor
            Representations of one layer. Memory-mapped arrays are read in chunks, and tensors on a
            GPU stay there. A SciPy sparse matrix is made dense, with a warning of its size.
        y : (n_samples,) array_like
            Labels that the model was trained on, as numbers or strings.

        Returns
        -------
        PSMI
            This object.

        Raises
        ------
        ValueError
            If X holds NaN or infinities, shapes differ, there is a single class, or a class has
            fewer than two samples, or a row is so far from the others that float32 can't hold its
            square.
        """
        check_same_order(X=X, y=y)
        features = checked_features(X)
        labels = checked_labels(y, features.shape[0])
        self.classes_, codes = np.unique(labels, return_inverse=True)
        counts = np.bincount(codes)
        self._check_counts(counts)
        is_plain = self.method == "plain"
        m = PAPER_DIRECTIONS if self.n_directions == "auto" else int(self.n_directions)
        corrected = m >= FEWEST_TO_REGRESS and not is_plain
        look = Look.at(features, codes, corrected=corrected)
        if self.n_directions == "auto" and not is_plain:
            self._fitted = self._fit_to_tolerance(features, codes, look)
        else:
            self._fitted = fit(features, codes, look, m, self.random_state)
        self.n_directions_ = self._fitted.directions.m
        if not bool(self._fitted.tables.curvature.any()):
            sentence = "all rows of X are equal, so each score is 0 and says nothing"
            self.warnings_ += (Note("equal rows", sentence),)
        elif not knows_labels(look.sample, look.codes, self.random_state):
            self.warnings_ += (KNOWS_NO_LABELS,)
        self.warnings_ += _dominant_rows(look.dominant)
        return self

    @overload
    def score_samples(
        self, X: object, y: ArrayLike, return_std: Literal[False] = False
    ) -> Floats: ...

    @overload
    def score_samples(
        self, X: object, y: ArrayLike, return_std: Literal[True]
    ) -> tuple[Floats, Floats]: ...

    def score_samples(
        self, X: object, y: ArrayLike, return_std: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Return the PSMI of each sample.

        Parameters
        ----------
        X : (n_samples, n_features) array_like or torch tensor
            The fitted representations, or others with as many features.
        y : (n_samples,) array_like
            Labels of the rows. `fit` must have seen each of them.
        return_std : bool
            Whether to also return each score's standard error over the choice of directions.

        Returns
        -------
        scores : (n_samples,) float64
            PSMI in nats. A low score means that memorisation is likely.
        errors : (n_samples,) float64
            Standard errors in nats, if `return_std` is true. They are too small where one column
            of X is 1000 times or more as long as the others: 95 % intervals then cover .59 to .90,
            of errors that are at most .0016 nats (root mean square).

        Raises
        ------
        ValueError
            If PSMI is not fitted, X holds NaN or infinities, shapes differ, a label is unknown, or
            a row is so far from the fitted ones (about 1e9 of their deviations) that float32
            can't hold its score. Also if errors are asked for and there is one direction for
            several features.
        """
        if not hasattr(self, "_fitted"):
            raise ValueError("this PSMI is not fitted yet; call fit first")
        check_same_order(X=X, y=y)
        features = checked_features(X)
        width = self._fitted.look.sample.shape[1]
        if features.shape[1] != width:
            raise ValueError(
                f"X has {features.shape[1]} features, but the fitted one had {width}"
            )
        if return_std and self.n_directions_ == 1 and width > 1:
            raise ValueError(
                "a single direction leaves no standard error; fit with n_directions of 2 or more"
            )
        codes = self._codes(checked_labels(y, features.shape[0]))
        scores, errors = self._fitted.score(features, codes)
        return (scores, errors) if return_std else scores

    def _check_counts(self, counts: Ints) -> None:
        names = self.classes_.tolist()
        if len(counts) < 2:
            raise ValueError(
                f"y has a single class, {names[0]!r}; PSMI needs two or more"
            )
        if counts.min() < 2:
            name = names[counts.argmin()]
            raise ValueError(
                f"class {name!r} has a single sample; PSMI needs two or more of each class"
            )
        self.warnings_ = small_classes(names, counts)

    def _codes(self, labels: NDArray[Any]) -> Ints:
        places = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[places] != labels
        if unknown.any():
            row = int(unknown.argmax())
            label = labels[row].item()
            raise ValueError(
                f"the label of row {row}, {label!r}, is not one of the {len(self.classes_)} "
                "fitted labels"
            )
        return places

    def _fit_to_tolerance(self, X: GivenRows, codes: Ints, look: Look) -> Fitted:
        """Add directions until the standard error is at most `tol` of the scores' spread."""
        tol = TOLERANCE if self.tol is None else self.tol
        m = FIRST_DIRECTIONS
        enough = max(_JUDGED_ROWS, 16 * len(self.classes_))
        rows = np.sort(picked_rows(codes, enough))
        few = X[rows]
        few_codes = codes[rows]
        while True:
            fitted = fit(X, codes, look, m, self.random_state)
            scores, errors = fitted.score(few, few_codes)
            error = float(np.sqrt(np.mean(errors**2)))
            allowed = tol * _spread(scores, few_codes)
            if error <= allowed or m >= MOST_DIRECTIONS:
                break
            m = _more_directions(m, error, allowed)
        # where all classes are far apart, nearly all scores are alike: their order is then
        # uncertain, but none of them is low
        undecided = int((np.abs(scores) <= 2 * errors).sum())
        if error > allowed and undecided:
            sentence = (
                f"PSMI's {m} directions leave a standard error of {error:.2g} nats, above {tol:g} "
                f"of the scores' spread ({allowed:.2g} nats), so {undecided} of {len(rows)} "
                "scores may be on the other side of 0"
            )
            note = Note(
                IMPRECISE,
                sentence,
                directions=m,
                error=error,
                allowed=allowed,
                undecided=undecided,
                judged=len(rows),
            )
            self.warnings_ += (note,)
        return fitted


def small_classes(names: Sequence[object], counts: Ints) -> tuple[Note, ...]:
    """Return one note that names the smallest classes with few samples, or none.

    Parameters
    ----------
    names : sequence
        Name of each class.
    counts : (n_classes,) int
        Number of samples of each class.

    Examples
    --------
    >>> (note,) = small_classes(["cat", "dog", "owl"], np.array([40, 7, 12]))
    >>> note.numbers, note.names
    ({'few': 2, 'classes': 3}, ("'dog' (7)", "'owl' (12)"))
    """
    few = [
        (name, int(count))
        for name, count in zip(names, counts, strict=True)
        if 0 < count < FEW_SAMPLES
    ]
    if not few:
        return ()
    smallest = sorted(few, key=lambda each: each[1])
    named = [f"{as_code(name)} ({count})" for name, count in smallest]
    sentence = (
        f"{len(few)} of {len(names)} classes have fewer than {FEW_SAMPLES} samples, so their "
        "scores are inaccurate"
    )
    numbers = {"few": len(few), "classes": len(names)}
    return (Note(SMALL_CLASSES, sentence, named, **numbers),)


def _dominant_rows(rows: tuple[int, ...]) -> tuple[Note, ...]:
    """Return one note that names all rows with most of the variance of their class, or none."""
    if not rows:
        return ()
    n = len(rows)
    one = "row has more than half of the variance of its class"
    many = "rows have more than half of the variance of their class"
    said = (
        f"{n} {verb(n, one, many)}, so the other scores of such a class say little, and their "
        "standard errors are too small"
    )
    return (Note("dominant rows", said, [f"row {row}" for row in rows], n=n),)


def knows_labels(sample: Array, codes: Ints, seed: int = 0) -> bool:
    """Return whether the mean PSMI is above those of all of 19 shuffles of the labels.

    A permutation test at the level of 5 %: representations that know nothing of the labels pass it
    with a probability of 1 in 20. It takes at most 1000 rows and 32 plain directions.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(codes))[:_TESTED_ROWS])
    # a class with a single row among them has no deviation
    in_class = np.bincount(codes[rows])[codes[rows]]
    rows = rows[in_class > 1]
    _, classes = np.unique(codes[rows], return_inverse=True)
    if not len(rows) or classes.max() < 1:
        return True
    few = sample[like(sample, rows)]
    directions = independent_directions(_TESTED_DIRECTIONS, sample.shape[1], seed)
    theta = like(sample, directions)
    projected = fetched(theta @ (few - few.mean(0)).T)
    mean = mean_along(projected, classes)
    shuffles = [rng.permutation(classes) for _ in range(_SHUFFLES)]
    return mean > max(mean_along(projected, shuffled) for shuffled in shuffles)


def _more_directions(m: int, error: float, allowed: float) -> int:
    """Return how many directions should bring an error down to what is allowed."""
    # 0 is allowed where most scores are equal
    far = min(error / max(allowed, 1e-300), 3.0)
    # an error falls with the root of their number; a little more, so that one step is enough
    factor = min(far**2 * 1.05, 8.0)
    blocks = int(np.ceil(m * factor / FIRST_DIRECTIONS))
    more = max(blocks * FIRST_DIRECTIONS, m + FIRST_DIRECTIONS)
    return min(more, MOST_DIRECTIONS)


def _spread(scores: Floats, codes: Ints) -> float:
    """Return the robust deviation of scores from the median of their class."""
    n_classes = int(codes.max()) + 1
    medians = np.array([np.median(scores[codes == c]) for c in range(n_classes)])
    return float(1.4826 * np.median(np.abs(scores - medians[codes])))
