"""Inner loop of PSMI: values and their products, for blocks of samples and directions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memowidgets.checks import is_tensor
from memowidgets.metrics.arrays import Array, like, namespace
from memowidgets.metrics.controls import FEW_CLASSES, Moments

BLOCK = 256  # directions per step
_SCRATCH_BYTES = 2**20  # a thread's table (classes, samples, directions) fits in its cache
_DEVICE_BYTES = 2**26
_SAFELY_ABOVE = 1e-30  # float32 holds larger sums of exponentials to full precision


@dataclass(frozen=True)
class Tables:
    """Fitted values of each class along each direction, in float32.

    Attributes
    ----------
    mean, sharpness : (C, m)
        Mean of the class's projections, and 1 / (√2 · deviation) with a floor.
    offset : (C, m)
        log p(y) − log deviation.
    log_prior : (C,)
        log p(y).
    weight : (C, m) or None
        1 / θᵀΣ̃θ; None without controls.
    log_form : (C, m) or None
        log θᵀΣ̃θ minus its exact mean.
    width : (1, m) or None
        Share of all angles that each direction of a grid in the plane stands for; None elsewhere.
    """

    mean: Array
    sharpness: Array
    offset: Array
    log_prior: Array
    weight: Array | None = None
    log_form: Array | None = None
    width: Array | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return int(self.mean.shape[0])

    @property
    def each_class(self) -> bool:
        """Whether every class has controls; else a sample has those of its class and their mean."""
        return self.n_classes <= FEW_CLASSES

    def sizes(self) -> tuple[int, int]:
        """Numbers of own variables of a sample and of common variables, as in `Moments`."""
        if self.weight is None:
            return 1, 1 if self.width is None else 2
        return (1 + self.n_classes, 1 + self.n_classes) if self.each_class else (4, 2)


@dataclass(frozen=True)
class BlockTables:
    """Tables of a block of directions, laid out for the inner loop.

    Attributes
    ----------
    block : slice
        The directions.
    cuts : list of slice
        The block's folds.
    mean, curvature, offset : (C, 1, width)
        A density is exp(offset + curvature · (θᵀx − mean)²), relative to the largest class's.
    share : (C, width)
        exp(offset).
    own_offset : (C, width)
        The offset without log p(y).
    common : (z, width)
        Common variables of all samples: 1, and the controls without a sample.
    everyone : tuple of three (width,), or None
        Coefficients of P², P and 1 in the mean control of all classes, where that is a control.
    tables : Tables
        Unchanged tables of the block.
    """

    block: slice
    cuts: list[slice]
    mean: Array
    curvature: Array
    offset: Array
    share: Array
    own_offset: Array
    common: Array
    everyone: tuple[Array, Array, Array] | None
    tables: Tables

    @classmethod
    def of(cls, tables: Tables, block: slice, folds: int) -> BlockTables:
        """Cut a block of directions out of the tables."""
        fields = {
            name: None if table is None or name == "log_prior" else table[:, block]
            for name, table in vars(tables).items()
        }
        cut = Tables(**fields | {"log_prior": tables.log_prior})
        xp = namespace(cut.mean)
        offset = cut.offset - xp.amax(cut.offset, 0)
        width, common = cut.mean.shape[1], xp.ones_like(cut.mean[:1])
        everyone = None
        if cut.weight is not None and not cut.each_class:
            share = cut.weight / cut.n_classes
            linear, constant = (cut.mean * share).sum(0), (cut.mean**2 * share).sum(0)
            everyone = share.sum(0), 2 * linear, constant
        if cut.log_form is not None:
            forms = cut.log_form if cut.each_class else cut.log_form.mean(0)[None]
            common = xp.concatenate([common, forms])
        if cut.width is not None:
            common = xp.concatenate([common, cut.width])
        return cls(
            block,
            cuts(width, folds),
            cut.mean[:, None],
            -(cut.sharpness**2)[:, None],
            offset[:, None],
            xp.exp(offset),
            offset - cut.log_prior[:, None],
            common,
            everyone,
            cut,
        )


def blocks(n_directions: int) -> list[slice]:
    """Return slices that cut the directions into blocks."""
    starts = range(0, n_directions, BLOCK)
    return [slice(start, min(start + BLOCK, n_directions)) for start in starts]


def cuts(width: int, folds: int) -> list[slice]:
    """Return slices that cut a block of directions into folds."""
    return [slice(*edges) for edges in pairwise(width * i // folds for i in range(folds + 1))]


def moments(projections: Array, codes: Array, tables: Tables, folds: int = 1) -> Moments:
    """Return sums of products of all variables, for samples with the given projections.

    Parameters
    ----------
    projections : (n, m) float32
        θᵀx.
    codes : (n,) int
        Index of each sample's class.
    tables : Tables
        Tables of the m directions.
    folds : int
        Number of folds of the directions.
    """
    n, m = projections.shape
    (own, common), xp = tables.sizes(), namespace(projections)
    parts = [BlockTables.of(tables, block, folds) for block in blocks(m)]
    result = Moments(
        _zeros(projections, (folds, own, own, n)),
        _zeros(projections, (folds, own, common, n)),
        _zeros(projections, (folds, common, common)),
    )
    for part in parts:
        P = projections[:, part.block]
        variables = [_values(P, codes, part), *_controls(P, codes, part)]
        for fold, cut in enumerate(part.cuts):
            shared = part.common[:, cut]
            cells = [variable[:, cut] for variable in variables]
            for i, one in enumerate(cells):
                for j in range(i, len(cells)):
                    result.own[fold, i, j] += xp.einsum("nm,nm->n", one, cells[j])
                result.mixed[fold, i] += (one @ shared.T).T
            exact = xp.asarray(shared, dtype=xp.float64)
            result.common[fold] += exact @ exact.T
    return result


def _zeros(beside: Array, shape: tuple[int, ...]) -> Array:
    xp = namespace(beside)
    if is_tensor(beside):
        return xp.zeros(shape, dtype=xp.float64, device=beside.device)
    return np.zeros(shape)


def _values(P: Array, codes: Array, part: BlockTables) -> Array:
    """Return the pointwise values log p(θᵀx | y) − log Σ p(y) p(θᵀx | y), (n, width)."""
    room, most = (_DEVICE_BYTES, 16_384) if is_tensor(P) else (_SCRATCH_BYTES, 512)
    at_once = int(np.clip(room // (4 * P.shape[1] * part.tables.n_classes), 8, most))
    values = namespace(P).empty_like(P)
    for start in range(0, len(P), at_once):
        rows = slice(start, start + at_once)
        values[rows] = _values_of_few(P[rows], codes[rows], part)
    return values


def _values_of_few(P: Array, codes: Array, part: BlockTables) -> Array:
    """Return the values of so few samples that their densities fit in a core's cache."""
    xp = namespace(P)
    exponents = P[None] - part.mean
    exponents *= exponents
    exponents *= part.curvature
    own = exponents[codes, like(P, np.arange(len(codes)))]
    own += part.own_offset[codes]
    total = xp.einsum("cnm,cm->nm", xp.exp(exponents, out=exponents), part.share)
    if bool((total > _SAFELY_ABOVE).all()):
        return own - xp.log(total)
    logs = part.offset + (P[None] - part.mean) ** 2 * part.curvature  # some sums underflow
    top = xp.amax(logs, 0)
    return own - (top + xp.log(xp.exp(logs - top).sum(0)))


def _controls(P: Array, codes: Array, part: BlockTables) -> list[Array]:
    """Return the samples' own controls, each (n, width)."""
    tables = part.tables
    if tables.weight is None or tables.log_form is None:
        return []
    mean, weight = tables.mean, tables.weight
    if part.everyone is None:
        return [(P - m) ** 2 * w for m, w in zip(mean, weight, strict=True)]
    own = P - mean[codes]
    own *= own
    own *= weight[codes]
    square, linear, constant = part.everyone
    everyone = square * P
    everyone -= linear
    everyone *= P
    everyone += constant
    return [own, everyone, tables.log_form[codes]]
