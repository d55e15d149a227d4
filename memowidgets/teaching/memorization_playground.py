"""The playground of a network that memorises, Python side."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets
from numpy.typing import NDArray

from memowidgets.memorization import log_lira
from memowidgets.metrics import PSMI
from memowidgets.teaching.playground import STYLE, Playground, front_end, real, whole
from memowidgets.widgets.widget import validate

WIDTHS = (8, 16, 24, 32, 48, 64)
MODELS = 32
EPOCHS = 150
ETA = 4.0


class MemorizationPlayground(Playground):
    """Train a small network in the browser and guess what it memorises.

    Two hidden layers of tanh neurons learn points in the plane, some of which have a wrong label.
    The training stops where the median loss has dropped by ρ. There, PSMI of the last hidden
    layer and the loss each name five points. At the end, 32 other networks, half of them trained
    on each named point, show by log-LiRA which points were memorised.

    The browser trains; Python computes `psmi` and `log_lira` from its arrays when the round ends.

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
    found : dict of arrays
        Empty until a round is finished. Then ``points`` (n, 2), ``labels`` (n,), ``states``
        (n, width) and ``losses`` (n,) at ρ, ``gaps`` and ``members`` (32, n) of the other
        networks, ``target`` (n,) gaps at the end, ``judged`` and ``guess`` (positions), and the
        numbers ``epoch`` and ``drop`` at ρ.
    psmi : (n,) float64 or None
        Of each point at ρ, in nats, as `metrics.PSMI` computes it.
    log_lira : dict of int to float
        Log-LiRA of each judged point, in nats, as `memorization.log_lira` computes it.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    TypeError
        If a setting is not a number.

    Examples
    --------
    >>> playground = MemorizationPlayground(width=16, seed=3)
    >>> playground.log_lira  # nothing is trained before the page trains it
    {}
    >>> playground.close()
    """

    _esm = front_end("watch")
    _css = STYLE
    _title = "Playground of a network that memorises"

    width = whole(24, WIDTHS[0], WIDTHS[-1], allowed=WIDTHS)
    noise = real(0.06, 0.0, 0.2)
    rho = real(0.95, 0.5, 0.99)
    n = whole(150, 30, 400)
    classes = whole(3, 2, 3)
    seed = whole(0, 0, 999_999)
    found = traitlets.Dict(read_only=True)
    psmi = traitlets.Any(None, read_only=True)
    log_lira = traitlets.Dict(read_only=True)
    _found = traitlets.Dict().tag(sync=True, page=True)

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

    @validate("_found")
    def _check_found(self, proposal: Any) -> dict[str, Any]:
        sent: dict[str, Any] = proposal["value"]
        if sent:
            _unpacked(sent)
        return sent

    @traitlets.observe("_found")
    def _set(self, change: Any) -> None:
        self._changed(change)

    def _settle(self) -> None:
        found = _unpacked(self._found) if self._found else {}
        self.set_trait("found", found)
        if not found:
            self.set_trait("psmi", None)
            self.set_trait("log_lira", {})
            return
        judged = found["judged"]
        states, labels = found["states"], found["labels"]
        self.set_trait("psmi", PSMI(256).fit(states, labels).score_samples(states, labels))
        sides = (found["gaps"][:, judged], found["members"][:, judged], found["target"][judged])
        ratios = log_lira(*sides)
        self.set_trait("log_lira", {int(i): float(r) for i, r in zip(judged, ratios, strict=True)})

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            ("points", f"{self.n} in {self.classes} classes"),
            ("probability of a wrong label", f"{self.noise:.0%}"),
            ("hidden layers", f"2, each {self.width} wide"),
            ("epochs", str(EPOCHS)),
            ("PSMI is computed at", f"a drop of the median loss by {self.rho:.0%}"),
            ("log-LiRA from", f"{MODELS} other networks"),
        ]
        if self.log_lira:
            memorized = sum(ratio >= ETA for ratio in self.log_lira.values())
            facts.append(("memorised", f"{memorized} of {len(self.log_lira)} judged points"))
        return facts


def _unpacked(sent: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a round after checking their sizes."""
    arrays: dict[str, NDArray[Any]] = {
        name: np.frombuffer(sent[name], np.uint8 if name in {"labels", "members"} else np.float64)
        for name in ("points", "labels", "states", "losses", "gaps", "members", "target")
    }
    n = len(arrays["labels"])
    if not n or len(arrays["points"]) != 2 * n or len(arrays["states"]) % n:
        raise ValueError(f"the page sent {n} labels for {len(arrays['points']) / 2:g} points")
    arrays["points"] = arrays["points"].reshape(n, 2)
    arrays["states"] = arrays["states"].reshape(n, -1)
    arrays["gaps"] = arrays["gaps"].reshape(MODELS, n)
    arrays["members"] = arrays["members"].reshape(MODELS, n).astype(bool)
    judged, guess = np.array(sent["judged"], int), np.array(sent["guess"], int)
    for positions in (judged, guess):
        if len(positions) and not (positions.min() >= 0 and positions.max() < n):
            raise ValueError(f"the page sent a position that is not one of {n} points")
    numbers = {"epoch": int(sent["epoch"]), "drop": float(sent["drop"])}
    return {**arrays, "judged": judged, "guess": guess, **numbers}
