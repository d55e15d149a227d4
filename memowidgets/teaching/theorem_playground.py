"""The playground of Theorem 1."""

from __future__ import annotations

from typing import Any

from memowidgets.teaching.playground import Playground, Setting, front_end, real, result, whole


def _checked_switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


class TheoremPlayground(Playground):
    """Show what Theorem 1 says about PSMI and τ = 0, and where its assumptions fail.

    Two Gaussian classes; with probability ε a sample's label is a coin toss. The theorem states
    E[PSMI | not an outlier] > 0 and E[PSMI | outlier] = 0. As PSMI is defined and computed, with
    p the joint law of all samples, what holds is
    E[PSMI | not an outlier] > 0 ≥ E[PSMI | outlier].

    The page computes everything. The attributes are None until it has: that is when the
    playground is shown, and shortly after a setting is changed.

    Parameters
    ----------
    epsilon : float
        Share of outliers, from 0 to 0.5.
    separation : float
        Distance between the classes' means, from 0 to 6 standard deviations of a class.
    dimension : int
        Of the space: one of 1, 2, 4, 8, 16, 32, 64.
    tau : float
        Samples with PSMI of at most τ are flagged.
    imbalance : bool
        The second class has 10 % of the samples.
    overlap : bool
        The deviation within a class is 3 in place of 1.
    heavy_tails : bool
        Student's t with two degrees of freedom in place of Gaussian.
    n : int
        Samples, from 100 to 5000.
    seed : int
        Below 1 000 000.

    Attributes
    ----------
    means : dict
        Mean PSMI of ``outliers``, ``others``, and outliers with a ``wrong`` or a ``right`` label,
        in nats. None where there are no such samples.
    rates : dict
        At `tau`: ``flagged``, ``n``, ``tpr``, ``fpr`` and ``tpr_wrong`` (the share of wrong labels
        that is flagged), each rate with its 95 % interval (``tpr_interval`` and so on).

    Raises
    ------
    ValueError
        If a setting is out of its range.
    TypeError
        If a switch is not true or false, or a number is not one.

    Examples
    --------
    >>> playground = TheoremPlayground(epsilon=0.05, separation=2.0)
    >>> playground.rates is None  # no page shows it yet
    True
    >>> playground.close()
    """

    _esm = front_end("theorem")
    _title = "Playground of Theorem 1"

    epsilon = real(0.1, 0.0, 0.5)
    separation = real(4.0, 0.0, 6.0)
    dimension = whole(2, 1, 64, allowed=(1, 2, 4, 8, 16, 32, 64))
    tau = real(0.0, -1e3, 1e3)
    imbalance = Setting(default=False, check=_checked_switch)
    overlap = Setting(default=False, check=_checked_switch)
    heavy_tails = Setting(default=False, check=_checked_switch)
    n = whole(2000, 100, 5000)
    seed = whole(0, 0, 999_999)
    means = result()
    rates = result()

    def __init__(
        self,
        epsilon: float = 0.1,
        separation: float = 4.0,
        dimension: int = 2,
        *,
        tau: float = 0.0,
        imbalance: bool = False,
        overlap: bool = False,
        heavy_tails: bool = False,
        n: int = 2000,
        seed: int = 0,
        **traits: Any,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            separation=separation,
            dimension=dimension,
            tau=tau,
            imbalance=imbalance,
            overlap=overlap,
            heavy_tails=heavy_tails,
            n=n,
            seed=seed,
            **traits,
        )
