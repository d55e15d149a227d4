"""The playground of a network that memorises."""

from __future__ import annotations

from typing import Any

from memowidgets.teaching.playground import Playground, front_end, real, result, whole


class MemorizationPlayground(Playground):
    """Train a small network in the browser and guess what it memorises.

    Two hidden layers of tanh neurons learn points in the plane, some of which have a wrong label.
    The training stops where the median loss has dropped by ρ. There, PSMI of the last hidden
    layer and the loss each name five points. At the end, 32 other networks, half of them trained
    on each named point, show by log-LiRA which points were memorised.

    The page computes everything. The attributes are None until a round is finished there.

    Parameters
    ----------
    width : int
        Neurons in each hidden layer: one of 8, 16, 24, 32, 48, 64.
    noise : float
        Probability of a wrong label, from 0 to 0.2.
    rho : float
        Drop of the median loss at which PSMI is computed, from 0.5 to 0.99.
    n : int
        Number of points, from 30 to 400.
    classes : int
        Number of classes, 2 or 3.
    seed : int
        Seed of the points and of all networks, below 1 000 000.

    Attributes
    ----------
    guess : array of int
        Positions of the points that the user ringed.
    psmi, losses : (n,) float64
        PSMI, in nats, and loss of each point where ρ stopped the training.
    log_lira : (n,) float64
        Log-LiRA of each point, in nats. It is NaN for points that nobody named.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    TypeError
        If a setting is not a number.

    Examples
    --------
    >>> playground = MemorizationPlayground(width=16, seed=3)
    >>> playground.log_lira is None  # the page has not trained yet
    True
    >>> playground.close()
    """

    _esm = front_end("watch")
    _title = "Playground of a network that memorises"

    width = whole(24, 8, 64, allowed=(8, 16, 24, 32, 48, 64))
    noise = real(0.06, 0.0, 0.2)
    rho = real(0.95, 0.5, 0.99)
    n = whole(150, 30, 400)
    classes = whole(3, 2, 3)
    seed = whole(0, 0, 999_999)
    guess = result()
    psmi = result()
    losses = result()
    log_lira = result()

    def __init__(
        self,
        width: int = 24,
        noise: float = 0.06,
        rho: float = 0.95,
        *,
        n: int = 150,
        classes: int = 3,
        seed: int = 0,
        **traits: Any,
    ) -> None:
        super().__init__(
            width=width, noise=noise, rho=rho, n=n, classes=classes, seed=seed, **traits
        )
