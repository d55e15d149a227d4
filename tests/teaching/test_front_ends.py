"""What the playgrounds compute: their modules in Node against metrics, memorization and roc."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from memowidgets.evaluation import roc
from memowidgets.memorization import log_lira
from memowidgets.metrics import PSMI
from memowidgets.teaching.playgrounds import STATIC, make_cloud
from memowidgets.widgets import widget

VARIANCES = ("per-sample", "global", "shrunk")
N, WIDTH, SEED, EPOCHS = 45, 8, 3, 4


def test_no_style_of_a_playground_changes_a_dashboard_in_the_same_notebook():
    of = {name: set() for name in ("playground", "shared", "others")}
    for file in (STATIC / "playground.css", *widget.STATIC.glob("*.css")):
        names = of.get(file.stem, of["others"])
        for selector in re.findall(r"[^{},]+(?=[,{])", file.read_text("utf-8")):
            names.update(re.findall(r"\.(mw-[\w-]+)[^.\s]*$", selector.strip()))
    assert "mw-play-facts" in of["playground"]
    assert of["playground"] & of["others"] - of["shared"] == set()


def test_random_numbers_are_normal_and_depend_on_seed_and_place_alone(ask):
    z = np.array(ask("normals", seed=3, count=100_000))
    assert abs(z.mean()) < 0.015
    assert z.std() == pytest.approx(1, abs=0.015)
    assert (z**4).mean() == pytest.approx(3, abs=0.15)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.015
    assert abs(np.corrcoef(z, ask("normals", seed=4, count=100_000))[0, 1]) < 0.015
    assert (
        ask("uniforms", seed=-1, start=2, count=3)
        == ask("uniforms", seed=-1, start=0, count=5)[2:]
    )


# ---------------------------------------------------------------- PSMI


def clouds():
    rng = np.random.default_rng(5)
    far, labels = make_cloud(60, 2, seed=3)
    far[0] = [40.0, -3.0]  # an outlier whose densities all but vanish
    thin = np.stack([np.arange(40.0), 1e-7 * rng.normal(size=40)], 1), np.arange(40) % 2
    return {
        "usual": make_cloud(90),
        "four": make_cloud(200, 4, seed=2),
        "far": (far, labels),
        "thin": thin,
    }


def wire(points, labels):
    return {"points": points.tolist(), "labels": labels.tolist()}


def scored(X, labels, n=256, method="control-variates"):
    psmi = PSMI(n, method=method, random_state=0).fit(X, labels)
    return psmi.score_samples(X, labels, return_std=True)


@pytest.mark.parametrize("name", clouds())
@pytest.mark.parametrize("angle", [0, 37.5, 90, 180])
def test_values_along_a_direction(ask, name, angle):
    """They are PSMI of the projections, for which there is one direction."""
    points, labels = clouds()[name]
    turn = np.deg2rad(angle)
    z = points @ [[np.cos(turn)], [np.sin(turn)]]
    found = ask("along", angle=angle, **wire(points, labels))
    assert found == pytest.approx(scored(z, labels, 1, "plain")[0], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["usual", "four"])
def test_the_mean_over_all_directions_is_psmi(ask, name):
    cloud = clouds()[name]
    found = np.array(ask("psmi", count=24, **wire(*cloud)))
    psmi, std = scored(*cloud, n=4096)
    assert (np.abs(found - psmi) < 5 * std + 2e-3).all()


@pytest.mark.parametrize("dimension", [2, 16, 256])
def test_the_same_in_more_dimensions(ask, dimension):
    points, labels = make_cloud(90)
    found = ask("deep", selected=4, dimension=dimension, **wire(points, labels))
    rows = np.reshape(found["rows"], (90, dimension))
    assert (rows[:, :2] == points).all()
    psmi, std = scored(rows, labels, 4096)
    assert found["psmi"] == pytest.approx(psmi[4], abs=4.5 * (found["std"] + std[4]))
    others = np.quantile(np.delete(psmi, 4), [0.05, 0.5, 0.95])
    assert found["others"] == pytest.approx(others, abs=0.06)
    if dimension > 2:
        within = (
            points - np.stack([points[labels == c].mean(0) for c in range(3)])[labels]
        )
        assert rows[:, 2:].std() == pytest.approx(within.std(), rel=0.05)


# ---------------------------------------------------------------- LiRA


@pytest.mark.parametrize(
    ("counts", "effect", "spread", "gap"),
    [
        ((2, 2), 4, 1.5, 6.5),
        ((8, 8), 2, 0.5, 3.0),
        ((128, 128), 8, 3.0, -5.0),
        ((20, 12), 4, 1.5, 5),
    ],
)
@pytest.mark.filterwarnings("ignore:.*8 ")
def test_log_lira_and_its_error_are_those_of_memorization(
    ask, counts, effect, spread, gap
):
    asked = {"counts": counts, "effect": effect, "spread": spread, "gap": gap}
    answer = ask("lira", seed=3, **asked)
    others = np.concatenate([np.transpose(side) for side in answer["others"]])
    members = np.repeat(np.arange(sum(counts)) < counts[0], 101).reshape(-1, 101)
    goal = np.full(101, gap)

    def judged(redraw, variance):
        own = np.concatenate(answer["gaps"][redraw])[:, None]
        gaps = np.concatenate([own, others], axis=1)
        ratio, error = log_lira(gaps, members, goal, variance, return_std=True)
        return ratio[0], error[0]

    for variance in VARIANCES:
        found = answer["found"][variance]
        ratio, error = judged(0, variance)
        assert found["ratio"] == pytest.approx(ratio, rel=1e-4)
        assert (found["error"] or np.nan) == pytest.approx(error, rel=1e-3, nan_ok=True)
        for redraw in (1, 200):
            # the others' shadow models stay, and hardly feel that the sample's are others
            near = (
                {"rel": 1e-6} if variance == "per-sample" else {"rel": 0.06, "abs": 0.1}
            )
            wanted = judged(redraw, variance)[0]
            if counts != (2, 2) or variance == "per-sample":
                assert found["redraws"][redraw - 1] == pytest.approx(wanted, **near)


def test_few_models_mislead_and_many_close_in_on_a_limit(ask):
    """Global closes in on another value than the truth, as the text below the playground says."""
    asked = {"effect": 4, "spread": 1.5, "gap": 6.5, "seed": 0}
    truth = norm.logpdf(6.5, 6, 1.5) - norm.logpdf(6.5, 2, 1.5)
    few, many = (ask("lira", counts=(n, n), **asked)["found"] for n in (4, 128))
    for name in ("per-sample", "shrunk"):
        redraws = np.array(many[name]["redraws"])
        assert redraws.mean() == pytest.approx(
            truth, abs=0.1 + 3 * redraws.std() / 200**0.5
        )
    assert np.mean(many["global"]["redraws"]) < truth - 1
    widths = [
        np.ptp(np.quantile(of["per-sample"]["redraws"], [0.05, 0.95]))
        for of in (few, many)
    ]
    assert widths[0] > 8 * widths[1]


# ---------------------------------------------------------------- Theorem 1


SETTINGS = [
    {},
    {"dimension": 1},
    {"dimension": 4, "epsilon": 0.3},
    {"dimension": 64, "separation": 6.0},
    {"imbalance": True},
    {"overlap": True, "dimension": 8},
    {"heavy_tails": True},
    {"separation": 0.0, "epsilon": 0.0},
]
USUAL = {"epsilon": 0.1, "separation": 4.0, "dimension": 2}
USUAL |= dict.fromkeys(("imbalance", "overlap", "heavy_tails"), False)


def mixture(ask, tau=0.0, **setting):
    found = ask("theorem", n=2000, seed=0, tau=tau, mixture=USUAL | setting)
    return {
        key: value if key == "rates" else np.array(value)
        for key, value in found.items()
    }


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_psmi_of_the_mixture(ask, setting):
    found = mixture(ask, **setting)
    t, r, labels, kinds = (found[name] for name in ("t", "r", "labels", "kinds"))
    dimension = setting.get("dimension", 2)
    away = np.random.default_rng(0).normal(size=(2000, dimension - 1))
    if dimension > 1:
        away *= (r / np.linalg.norm(away, axis=1))[:, None]
    # Both sides of the axis: the playground leaves out how classes differ by chance across it.
    X = np.concatenate([np.c_[t, away], np.c_[t, -away]])
    how = (1024,) if dimension > 1 else (1, "plain")
    psmi, std = (values[:2000] for values in scored(X, np.tile(labels, 2), *how))
    error = np.abs(found["psmi"] - psmi)
    assert (error < 0.015 + 5 * std).all()  # the page has fewer directions
    if "epsilon" in setting and not setting["epsilon"]:
        assert (kinds == 0).all()
        return
    rates, point = found["rates"], roc(found["psmi"], kinds > 0).at(0.0)
    assert (rates["flagged"], rates["n"]) == (point.flagged, 2000)
    assert (rates["tpr"], rates["fpr"]) == pytest.approx((point.tpr, point.fpr))
    for name, group in (
        ("Others", kinds == 0),
        ("Wrong", kinds == 2),
        ("Right", kinds == 1),
    ):
        assert rates[f"mean{name}"] == pytest.approx(found["psmi"][group].mean())


def test_theorem_1_holds_and_where_it_breaks(ask):
    for dimension, separation in ((1, 1.0), (16, 1.0), (16, 6.0)):
        means = mixture(ask, epsilon=0.2, separation=separation, dimension=dimension)[
            "rates"
        ]
        assert means["meanOthers"] > 0 > means["meanOutliers"]
        # a wrong label counts for more
        assert -means["meanWrong"] > means["meanRight"] > 0
    equal = mixture(ask, separation=0.0)["rates"]  # nothing predicts the label
    assert (equal["meanOutliers"], equal["meanOthers"]) == pytest.approx(
        (0, 0), abs=0.01
    )
    usual = mixture(ask)["rates"]
    for switch in ("imbalance", "overlap", "heavy_tails"):
        broken = mixture(ask, **{switch: True})["rates"]
        assert broken["fpr"] > 2 * usual["fpr"]
        assert broken["meanOthers"] < 0.5 * usual["meanOthers"]


# ---------------------------------------------------------------- a network that memorises


def test_marks_beside_points_cover_no_other_mark_or_point(ask):
    """Of ten points in a small part of the plot, two in one place."""
    rng = np.random.default_rng(3)
    points = 180 + 70 * rng.normal(size=(10, 2))
    points[1] = points[0] + 4
    points[2] = [3, 2]  # in a corner
    widths = rng.choice([14, 26, 40], 10)
    asked = {"points": points.tolist(), "widths": widths.tolist()}
    middles = np.array(ask("beside", **asked, width=360, height=360))
    half = np.stack([widths / 2, np.full(10, 7.5)], 1)
    apart = np.abs(middles[:, None] - middles) >= half[:, None] + half
    assert (apart.any(-1) | np.eye(10, dtype=bool)).all()
    assert (np.abs(points[:, None] - middles) >= half + 5).any(-1).all()
    assert (middles >= half).all()
    assert np.linalg.norm(middles - points, axis=1).max() < 80


@pytest.fixture(scope="module")
def trained(ask):
    """What the text that the worker runs found after a few epochs."""
    found = ask("watch", n=N, width=WIDTH, epochs=EPOCHS, seed=SEED)
    return {name: np.array(values) for name, values in found.items()}


def reference(ask, points, labels, weights):
    """Train with PyTorch's Adam from the same weights; returns states and logits."""
    X, y = torch.from_numpy(points), torch.from_numpy(labels).long()
    hidden = nn.Sequential(
        nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()
    )
    net = nn.Sequential(hidden, nn.Linear(WIDTH, 3)).double()
    nn.utils.vector_to_parameters(torch.from_numpy(weights), net.parameters())
    adam = torch.optim.Adam(net.parameters())
    for epoch in range(EPOCHS):
        order = []
        for i, u in enumerate(ask("uniforms", seed=SEED + 1, start=epoch * N, count=N)):
            order.append(i)
            j = int(u * (i + 1))
            order[i], order[j] = order[j], i
        for start in range(0, N, 5):
            done = (epoch + start / N) / 150
            adam.param_groups[0]["lr"] = 0.015 * min(done / 0.25, (1 - done) / 0.75)
            rows = order[start : start + 5]
            adam.zero_grad()
            nn.functional.cross_entropy(net(X[rows]), y[rows]).backward()
            adam.step()
    with torch.no_grad():
        return hidden(X).numpy(), net(X).numpy()


def test_the_worker_trains_as_pytorch_does(ask, trained):
    points, labels = trained["points"].reshape(-1, 2), trained["labels"]
    states, logits = reference(ask, points, labels, trained["weights"])
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


def test_judged_points_are_in_half_of_the_models(trained):
    members = trained["members"]
    assert (members[:, [0, 3, 4]].sum(0) == 16).all()
    assert np.delete(members, [0, 3, 4], axis=1).all()
