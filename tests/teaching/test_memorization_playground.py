"""The network that memorises: what the page computes against NumPy, metrics and memorization."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from memowidgets.memorization import log_lira
from memowidgets.metrics import PSMI
from memowidgets.teaching import MemorizationPlayground
from memowidgets.teaching.playground import uniforms

N, WIDTH, SEED, EPOCHS = 45, 8, 3, 4


@pytest.fixture(scope="module")
def trained(ask):
    """What the text that the worker runs found after a few epochs."""
    found = ask("watch", n=N, width=WIDTH, epochs=EPOCHS, seed=SEED)
    return {name: np.array(values) for name, values in found.items()}


def reference(points, labels, weights):
    """Train with Adam in NumPy, all samples of a step at once; returns logits and states."""
    w, b1, w2, b2, w3, b3 = np.split(weights, np.cumsum([16, 8, 64, 8, 24]))
    parts = [w.reshape(8, 2), b1, w2.reshape(8, 8), b2, w3.reshape(3, 8), b3]
    first, second = ([np.zeros_like(part) for part in parts] for _ in range(2))
    one_hot, steps = np.eye(3)[labels], 0

    def forward(X):
        one = np.tanh(X @ parts[0].T + parts[1])
        two = np.tanh(one @ parts[2].T + parts[3])
        return one, two, two @ parts[4].T + parts[5]

    for epoch in range(EPOCHS):
        order = []
        for i, u in enumerate(uniforms(SEED + 1, epoch * N, N)):
            order.append(i)
            j = int(u * (i + 1))
            order[i], order[j] = order[j], i
        for start in range(0, N, 5):
            rows = order[start : start + 5]
            X = points[rows]
            one, two, logits = forward(X)
            p = np.exp(logits - logits.max(1, keepdims=True))
            d3 = (p / p.sum(1, keepdims=True) - one_hot[rows]) / len(rows)
            d2 = d3 @ parts[4] * (1 - two**2)
            d1 = d2 @ parts[2] * (1 - one**2)
            slopes = [d1.T @ X, d1.sum(0), d2.T @ one, d2.sum(0), d3.T @ two, d3.sum(0)]
            steps += 1
            done = (epoch + start / N) / 150
            rate = 0.015 * min(done / 0.25, (1 - done) / 0.75)
            for k, slope in enumerate(slopes):
                first[k] = 0.9 * first[k] + 0.1 * slope
                second[k] = 0.999 * second[k] + 0.001 * slope**2
                root = np.sqrt(second[k] / (1 - 0.999**steps)) + 1e-8
                parts[k] = parts[k] - rate * first[k] / (1 - 0.9**steps) / root
    return forward(points)[1:]


def test_the_worker_trains_as_numpy_does(trained):
    points, labels = trained["points"].reshape(-1, 2), trained["labels"]
    states, logits = reference(points, labels, trained["weights"])
    own = logits[np.arange(N), labels]
    others = np.where(np.eye(3, dtype=bool)[labels], -np.inf, logits).max(1)
    losses = np.log(np.exp(logits).sum(1)) - own
    assert trained["losses"] == pytest.approx(losses, abs=1e-8)
    assert trained["gaps"] == pytest.approx(own - others, abs=1e-8)
    assert trained["states"].reshape(N, WIDTH) == pytest.approx(states, abs=1e-8)
    assert np.median(losses) < 0.95 * np.log(3)  # it learns


def test_psmi_of_the_states_is_that_of_metrics(trained):
    states, labels = trained["states"].reshape(N, WIDTH), trained["labels"]
    directions = trained["directions"].reshape(-1, WIDTH)
    assert len(directions) == 1024
    z, share = states @ directions.T, np.bincount(labels) / N
    of = np.stack([norm.pdf(z, *_moments(z[labels == c])) for c in range(3)])
    exact = np.log(of[labels, np.arange(N)] / np.einsum("c,cnm->nm", share, of)).mean(1)
    assert trained["psmi"] == pytest.approx(exact, abs=1e-9)
    fitted = PSMI(4096, method="plain").fit(states, labels)
    psmi, std = fitted.score_samples(states, labels, return_std=True)
    error = np.hypot(std, 2 * std)  # the page has a quarter of the directions
    assert (np.abs(trained["psmi"] - psmi) < 4.5 * error).all()


def _moments(z):
    return z.mean(0), z.std(0)


def test_log_lira_of_the_gaps_is_that_of_memorization(ask):
    rng = np.random.default_rng(0)
    gaps, members = rng.normal(size=(32, 1)) * 3, np.arange(32)[:, None] % 2 == 0
    gaps[members] += 4
    found = ask("ratio", gap=3.5, inside=gaps[members].tolist(), outside=gaps[~members].tolist())
    assert found == pytest.approx(log_lira(gaps, members, [3.5])[0], rel=1e-12)


def test_judged_points_are_in_half_of_the_models(trained):
    members = trained["members"]
    assert (members[:, [0, 3, 4]].sum(0) == 16).all()
    assert np.delete(members, [0, 3, 4], axis=1).all()


@pytest.fixture
def playground():
    made = MemorizationPlayground(n=N, width=WIDTH)
    yield made
    made.close()


@pytest.fixture
def sent(trained):
    """What the page sends at the end of a round."""
    rng = np.random.default_rng(1)
    arrays = {name: trained[name].astype(float) for name in ("points", "states", "losses")}
    arrays |= {"gaps": rng.normal(size=(32, N)), "target": trained["gaps"].astype(float)}
    arrays |= {name: trained[name].astype(np.uint8) for name in ("labels", "members")}
    wire = {name: memoryview(array.tobytes()) for name, array in arrays.items()}
    return wire | {"judged": [0, 3, 4], "guess": [3], "epoch": EPOCHS, "drop": 0.5}


def test_python_computes_from_what_the_page_found(playground, sent, trained):
    playground.set_state({"_found": sent})
    states, labels = trained["states"].reshape(N, WIDTH), trained["labels"]
    wanted = PSMI(256).fit(states, labels).score_samples(states, labels)
    assert (playground.psmi == wanted).all()
    found = playground.found
    judged = [0, 3, 4]
    ratios = log_lira(
        found["gaps"][:, judged], found["members"][:, judged], trained["gaps"][judged]
    )
    assert playground.log_lira == dict(zip(judged, ratios.tolist(), strict=True))
    playground.set_state({"_found": {}})
    assert playground.psmi is None
    assert playground.log_lira == {}


@pytest.mark.parametrize(
    "change",
    [{"points": b"12345678"}, {"judged": [N]}, {"guess": [-1]}, {"gaps": b""}, {"labels": b""}],
    ids=str,
)
def test_a_round_that_does_not_fit_is_refused(playground, sent, change):
    playground.set_state({"_found": sent | change})
    assert playground.found == {}
    assert playground._found == {}
