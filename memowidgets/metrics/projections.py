"""Inner loop of PSMI: values and their products, for blocks of directions and sorted samples.

Projections have a row for each direction. The samples of a class stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from memowidgets.metrics.arrays import Array, Ints, like, namespace
from memowidgets.metrics.controls import FEW_CLASSES, Moments
from memowidgets.metrics.directions import blocks

_SAFELY_ABOVE = 1e-30  # float32 holds larger sums of exponentials to full precision

Segments = dict[int, slice]


def segments(codes: Ints) -> Segments:
    """Return where the samples of each class stand, from their sorted class indices."""
    present, starts = np.unique(codes, return_index=True)
    stops = np.append(starts[1:], len(codes))
    return {int(c): slice(*map(int, ends)) for c, *ends in zip(present, starts, stops, strict=True)}


@dataclass(frozen=True)
class Tables:
    """Fitted values of each class along each direction, in float32.

    Attributes
    ----------
    mean, curvature, offset : (C, m)
        A density times p(y) is exp(offset + curvature · (θᵀx − mean)²), relative to the largest
        one of the direction.
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
    curvature: Array
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

    @property
    def n_own(self) -> int:
        """Number of variables of a sample, as in `Moments`."""
        if self.weight is None:
            return 1
        return 1 + self.n_classes if self.each_class else 4

    def common(self, block: slice) -> Array:
        """Return the variables (z, width) that all samples have in common: 1 comes first."""
        xp = namespace(self.mean)
        found = [xp.ones_like(self.mean[:1, block])]
        if self.log_form is not None:
            forms = self.log_form[:, block]
            found.append(forms if self.each_class else forms.mean(0)[None])
        if self.width is not None:
            found.append(self.width[:, block])
        return xp.concatenate(found)


def moments(projections: Array, places: Segments, tables: Tables, folds: int = 1) -> Moments:
    """Return sums of products of all variables, for samples with the given projections.

    Parameters
    ----------
    projections : (m, n) float32
        θᵀx.
    places : Segments
        Where the samples of each class stand.
    tables : Tables
        Tables of the m directions.
    folds : int
        Number of folds of the directions.
    """
    m, n = projections.shape
    own, xp = tables.n_own, namespace(projections)
    parts = blocks(m)
    common = len(tables.common(parts[0]))
    result = Moments(
        like(projections, np.zeros((folds, own, own, n))),
        like(projections, np.zeros((folds, own, common, n))),
        like(projections, np.zeros((folds, common, common))),
    )
    size = own + 2, parts[0].stop, n
    room = like(projections, np.empty(size, dtype=np.float32))
    for number, block in enumerate(parts):
        fold, shared = number % folds, tables.common(block)
        variables = _variables(room, projections[block], places, tables, block)
        for i, one in enumerate(variables):
            for j in range(i, own):
                result.own[fold, i, j] += xp.einsum("mn,mn->n", one, variables[j])
            result.mixed[fold, i] += shared @ one
        exact = xp.asarray(shared, dtype=xp.float64)
        result.common[fold] += exact @ exact.T
    return result


def _variables(
    room: Array, P: Array, places: Segments, tables: Tables, block: slice
) -> list[Array]:
    """Return the value log p(θᵀx | y) − log Σ p(y) p(θᵀx | y) and the controls, each (width, n).

    They are made in `room` (variables + 2, width, n), which fits in a core's cache.
    """
    xp = namespace(P)
    variables: list[Array] = list(room[:, : len(P)])
    total, part = variables.pop(), variables.pop()
    values, controls = variables[0], variables[1:]
    mean, curvature, offset, weight, form = _columns(tables, block)
    total[:] = 0
    for c in range(tables.n_classes):
        xp.subtract(P, mean[c], out=part)
        xp.multiply(part, part, out=part)
        here = places.get(c)
        if controls and tables.each_class:
            xp.multiply(part, weight[c], out=controls[c])
        elif controls and here is not None:
            xp.multiply(part[:, here], weight[c], out=controls[0][:, here])
            controls[2][:, here] = form[c]
        xp.multiply(part, curvature[c], out=part)
        xp.add(part, offset[c], out=part)
        if here is not None:
            values[:, here] = part[:, here] - tables.log_prior[c]
        xp.exp(part, out=part)
        total += part
    if controls and not tables.each_class:
        _mean_control(P, mean, weight, controls[1])
    if float(total.min()) > _SAFELY_ABOVE:
        values -= xp.log(total, out=total)
    else:  # some sums underflow
        values -= _log_sum(P, mean, curvature, offset)
    return variables


def _columns(tables: Tables, block: slice) -> list[Array]:
    """Return the tables of a block with a column (width, 1) for each class."""
    every = tables.mean, tables.curvature, tables.offset, tables.weight, tables.log_form
    return [None if table is None else table[:, block, None] for table in every]


def _mean_control(P: Array, mean: Array, weight: Array, out: Array) -> None:
    """Compute the mean of all classes' controls, a quadratic of the projection."""
    xp, share = namespace(P), weight / len(weight)
    xp.multiply(P, share.sum(0), out=out)
    out -= 2 * (mean * share).sum(0)
    out *= P
    out += (mean**2 * share).sum(0)


def _log_sum(P: Array, *tables: Array) -> Array:
    """Return log Σ p(y) p(θᵀx | y) where no float32 holds the sum."""
    xp = namespace(P)

    def logs() -> Iterator[Array]:
        for mean, curvature, offset in zip(*tables, strict=True):
            yield (P - mean) ** 2 * curvature + offset

    top = reduce(xp.maximum, logs())
    return top + xp.log(sum(xp.exp(log - top) for log in logs()))
