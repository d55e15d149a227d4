"""The inner loop of PSMI: values and their products, for blocks of samples and directions."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memowidgets.metrics.arrays import Array, is_tensor, namespace
from memowidgets.metrics.crossfit import FOLDS, Moments

BLOCK = 256  # directions worked on at once
_SCRATCH_BYTES = 3 * 2**19  # a thread's tables of (classes, samples, directions) stay in its cache
_DEVICE_BYTES = 2**26
FEW_CLASSES = 8  # up to which every class has controls of its own


@dataclass(frozen=True)
class Tables:
    """What is known of each class along each direction; float32.

    Attributes
    ----------
    mean, sharpness : (C, m)
        Mean of the projections of the class, and 1 / (√2 · deviation), floored.
    offset : (C, m)
        log p(y) − log deviation.
    log_prior : (C,)
        log p(y).
    weight : (C, m) or None
        1 / θᵀΣ̃θ; None without controls.
    log_form : (C, m) or None
        log θᵀΣ̃θ minus its exact mean.
    """

    mean: Array
    sharpness: Array
    offset: Array
    log_prior: Array
    weight: Array | None = None
    log_form: Array | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return int(self.mean.shape[0])

    @property
    def each_class(self) -> bool:
        """Whether every class has controls, or only a sample's own and the mean of all."""
        return self.n_classes <= FEW_CLASSES

    def sizes(self) -> tuple[int, int]:
        """How many variables are a sample's own, and how many common, as in `Moments`."""
        if self.weight is None:
            return 1, 1
        return (1 + self.n_classes, 1 + self.n_classes) if self.each_class else (4, 2)

    def common(self, block: slice) -> Array:
        """The common variables (z, m) of a block of directions."""
        xp = namespace(self.mean)
        one = xp.ones_like(self.mean[:1, block])
        if self.log_form is None:
            return one
        forms = self.log_form[:, block]
        return xp.concatenate([one, forms if self.each_class else forms.mean(0)[None]])


def blocks(n_directions: int) -> list[slice]:
    """Directions cut into blocks."""
    starts = range(0, n_directions, BLOCK)
    return [slice(start, min(start + BLOCK, n_directions)) for start in starts]


def folds(width: int) -> list[slice]:
    """A block of directions cut into the folds of the regression."""
    cuts = [width * fold // FOLDS for fold in range(FOLDS + 1)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def moments(projections: Array, codes: Array, tables: Tables) -> Moments:
    """Sums of products of all variables, for samples with the given projections.

    Parameters
    ----------
    projections : (n, m) float32
        θᵀx.
    codes : (n,) int
        Index of each sample's class.
    tables : Tables
        Of the m directions.
    """
    n, m = projections.shape
    (own, common), xp = tables.sizes(), namespace(projections)
    result = Moments(
        _zeros(projections, (FOLDS, own, own, n)),
        _zeros(projections, (FOLDS, own, common, n)),
        _zeros(projections, (FOLDS, common, common)),
    )
    for block in blocks(m):
        shared = tables.common(block)
        for fold, cut in enumerate(folds(shared.shape[1])):
            part = xp.asarray(shared[:, cut], dtype=xp.float64)
            result.common[fold] += part @ part.T
    in_stripes(projections, tables, lambda rows: _fill(result, projections, codes, tables, rows))
    return result


def in_stripes(projections: Array, tables: Tables, work: Callable[[range], None]) -> None:
    """Run `work` on the starts of blocks of rows, on all cores; results don't depend on how."""
    n = projections.shape[0]
    step = rows_at_once(projections, tables)
    starts = range(0, n, step)
    workers = 1 if is_tensor(projections) else min(_cores(), len(starts))
    if workers == 1:
        work(starts)
        return
    cuts = [len(starts) * worker // workers for worker in range(workers + 1)]
    with ThreadPoolExecutor(workers) as pool:
        stripes = [starts[a:b] for a, b in pairwise(cuts)]
        list(pool.map(work, stripes))


def rows_at_once(projections: Array, tables: Tables) -> int:
    """Samples in a block."""
    room = _DEVICE_BYTES if is_tensor(projections) else _SCRATCH_BYTES
    width = min(projections.shape[1], BLOCK)
    return int(np.clip(room // (4 * width * tables.n_classes), 8, 16_384))


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _zeros(beside: Array, shape: tuple[int, ...]) -> Array:
    xp = namespace(beside)
    if is_tensor(beside):
        return xp.zeros(shape, dtype=xp.float64, device=beside.device)
    return np.zeros(shape)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is told by the caller
def _fill(result: Moments, projections: Array, codes: Array, tables: Tables, starts: range) -> None:
    """Add the products of a stripe's rows, block by block."""
    for start in starts:
        rows = slice(start, min(start + starts.step, projections.shape[0]))
        for block in blocks(projections.shape[1]):
            variables = _variables(projections[rows, block], codes[rows], tables, block)
            _add_products(result, variables, tables.common(block), rows)


def _variables(P: Array, codes: Array, tables: Tables, block: slice) -> list[Array]:
    """The pointwise values (n, m), then the sample's own controls."""
    xp = namespace(P)
    half = P[None] - tables.mean[:, None, block]
    half *= tables.sharpness[:, None, block]
    half *= half
    logs = tables.offset[:, None, block] - half
    rows = xp.arange(len(codes))
    own = logs[codes, rows]
    top = xp.amax(logs, 0)
    logs -= top
    xp.exp(logs, out=logs)
    values = own - top - xp.log(logs.sum(0))
    values -= tables.log_prior[codes][:, None]
    return [values, *_controls(P, codes, tables, block)]


def _controls(P: Array, codes: Array, tables: Tables, block: slice) -> list[Array]:
    if tables.weight is None or tables.log_form is None:
        return []
    mean, weight = tables.mean[:, block], tables.weight[:, block]
    if tables.each_class:
        return [(P - m) ** 2 * w for m, w in zip(mean, weight, strict=True)]
    own = (P - mean[codes]) ** 2 * weight[codes]
    share = weight / tables.n_classes
    linear, constant = (mean * share).sum(0), (mean**2 * share).sum(0)
    everyone = (share.sum(0) * P - 2 * linear) * P + constant
    return [own, everyone, tables.log_form[codes, block]]


def _add_products(result: Moments, variables: list[Array], common: Array, rows: slice) -> None:
    xp = namespace(common)
    for fold, cut in enumerate(folds(common.shape[1])):
        parts = [variable[:, cut] for variable in variables]
        for i, one in enumerate(parts):
            for j in range(i, len(parts)):
                result.own[fold, i, j, rows] += xp.einsum("nm,nm->n", one, parts[j])
            result.mixed[fold, i, :, rows] += (one @ common[:, cut].T).T
