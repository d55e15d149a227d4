"""A guess before the end of training: three of six samples that the model will memorise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.teaching.playgrounds import STATIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHEET = STATIC / "guess.css"
SIXES = 100
# log-LiRA from which, and below which, there is no doubt
MEMORISED = 10.0
HARMLESS = 1.0
RARE = "atypical"  # kind of a generated patient


def drawn_sixes(
    log_lira: NDArray[np.float64], kinds: NDArray[Any], n: int = SIXES, seed: int = 0
) -> NDArray[np.int64]:
    """Draw sets of three samples that are clearly memorised and three that clearly are not.

    The latter are of three different kinds, so that what is unusual does not tell. All six stand
    in a drawn order.

    Parameters
    ----------
    log_lira : array of shape (n_samples,)
        Ground truth.
    kinds : array of shape (n_samples,)
        Kind of each sample.
    n : int
        Number of sets.
    seed : int
        Seed of the draws.

    Returns
    -------
    array of shape (n, 6)
        Positions.
    """
    rng = np.random.default_rng(seed)
    memorised = np.flatnonzero(log_lira >= MEMORISED)
    others = np.flatnonzero(log_lira < HARMLESS)
    sixes = []
    for _ in range(n):
        three = rng.choice(np.unique(kinds[others]), 3, replace=False)
        apart = [rng.choice(others[kinds[others] == kind]) for kind in three]
        sixes.append(
            rng.permutation([*rng.choice(memorised, 3, replace=False), *apart])
        )
    return np.array(sixes)


def guess_content(
    kinds: NDArray[Any],
    scores: NDArray[np.float64],
    log_lira: NDArray[np.float64],
    models: int,
) -> dict[str, Any]:
    """Return the drawn sixes, by the places of their samples, and how many of each PSMI finds.

    `models` is the number of shadow models behind `log_lira`. Low scores mean risk.
    """
    sixes = drawn_sixes(log_lira, kinds)
    lowest = np.take_along_axis(sixes, np.argsort(scores[sixes], axis=1)[:, :3], axis=1)
    return {
        "sixes": sixes.tolist(),
        "kinds": ["rare but right" if kind == RARE else str(kind) for kind in kinds],
        "found": float((log_lira[lowest] >= MEMORISED).sum(axis=1).mean()),
        "models": models,
    }
