"""Both sides compute the same: the front ends' modules in Node against metrics and memorization."""

from __future__ import annotations

import re
import subprocess
from dataclasses import asdict

import numpy as np
import pytest
from scipy.special import roots_gegenbauer

from memowidgets.memorization import log_lira
from memowidgets.metrics import PSMI
from memowidgets.metrics.fitted import fill_directions, fit
from memowidgets.teaching.lira_playground import VARIANCES, Sample, judged
from memowidgets.teaching.playground import STATIC, STYLE, front_end, normals, uniforms
from memowidgets.teaching.psmi_playground import Cloud, make_cloud, value_along
from memowidgets.teaching.theorem_playground import Judged, Mixture
from memowidgets.widgets import frontend

NAMES = ("watch", "psmi", "lira", "theorem")


@pytest.mark.parametrize("name", NAMES)
def test_the_joined_module_is_one_and_asks_nobody(node, name, tmp_path):
    file = tmp_path / "joined.mjs"
    file.write_text(front_end(name))
    subprocess.run([node, "--check", file], check=True, capture_output=True)
    text = front_end(name) + STYLE
    own_name = "http://www.w3.org/2000/svg"  # a name, not an address to load from
    for banned in ("import {", "innerHTML", "http", "@import", "url(", "fetch(", "eval("):
        assert banned not in text.replace(own_name, ""), banned
    assert "@param" not in text
    assert "@typedef" not in text  # types are for those who read the files


def test_no_style_of_a_playground_changes_a_dashboard_in_the_same_notebook():
    of = {name: set() for name in ("playground", "shared", "others")}
    for file in (STATIC / "playground.css", *frontend.STATIC.glob("*.css")):
        names = of.get(file.stem, of["others"])
        for selector in re.findall(r"[^{},]+(?=[,{])", file.read_text("utf-8")):
            names.update(re.findall(r"\.(mw-[\w-]+)[^.\s]*$", selector.strip()))
    assert "mw-play-facts" in of["playground"]
    assert of["playground"] & of["others"] - of["shared"] == set()


@pytest.mark.parametrize("seed", [-1, 0, 7, 2**31 - 1])
def test_both_sides_draw_the_same_numbers(ask, seed):
    found = ask("chance", seed=seed, start=10, count=301)
    assert found["uniforms"] == uniforms(seed, 10, 301).tolist()
    assert found["normals"] == pytest.approx(normals(seed, 10, 301).tolist(), abs=1e-13)


def test_the_numbers_are_normal():
    z = normals(3, 0, 200_000)
    assert abs(z.mean()) < 0.01
    assert z.std() == pytest.approx(1, abs=0.01)
    assert (z**4).mean() == pytest.approx(3, abs=0.1)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(z[:100_000], normals(4, 0, 100_000))[0, 1]) < 0.015


def clouds():
    rng = np.random.default_rng(5)
    far = make_cloud(60, 2, seed=3)
    far.points[0] = [40.0, -3.0]  # an outlier whose densities all but vanish
    thin = Cloud.of(np.stack([np.arange(40.0), 1e-7 * rng.normal(size=40)], 1), np.arange(40) % 2)
    return {"usual": make_cloud(90), "four": make_cloud(200, 4, seed=2), "far": far, "thin": thin}


def wire(cloud):
    return {"points": cloud.points.tolist(), "labels": cloud.labels.tolist()}


@pytest.mark.parametrize("name", clouds())
@pytest.mark.parametrize("angle", [0, 37.5, 90, 180])
def test_values_along_a_direction(ask, name, angle):
    cloud = clouds()[name]
    found = ask("along", angle=angle, **wire(cloud))
    assert found == pytest.approx(value_along(cloud, angle).tolist(), rel=1e-6, abs=1e-9)


def test_values_are_those_of_metrics():
    """With a single direction, PSMI is the pointwise value along it."""
    cloud = make_cloud(90)
    theta = np.empty((1, 2), dtype=np.float32)
    fill_directions(theta, 0)
    angle = np.rad2deg(np.arctan2(theta[0, 1], theta[0, 0])) % 180
    fitted = PSMI(1, method="plain", random_state=0).fit(cloud.points, cloud.labels)
    wanted = fitted.score_samples(cloud.points, cloud.labels)
    assert value_along(cloud, angle) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("name", ["usual", "four"])
def test_the_mean_that_moves_is_psmi(ask, name):
    cloud = clouds()[name]
    found = np.array(ask("psmi", count=24, **wire(cloud)))
    dense = np.mean([value_along(cloud, a) for a in np.arange(0, 180, 0.25)], axis=0)
    assert found == pytest.approx(dense, abs=2e-3)
    fitted = PSMI(4096).fit(cloud.points, cloud.labels)
    psmi, std = fitted.score_samples(cloud.points, cloud.labels, return_std=True)
    assert (np.abs(found - psmi) < 5 * std + 2e-3).all()


@pytest.mark.parametrize("m", [64, 128, 256])
@pytest.mark.parametrize("which", ["plain", "corrected"])
def test_the_running_means_are_those_of_metrics(ask, which, m):
    """PSMI itself takes even angles in the plane."""
    cloud = make_cloud(90)
    directions = np.empty((256, 2), dtype=np.float32)
    fill_directions(directions, 0)
    fitted = fit(cloud.points, cloud.labels, m, 0, use_controls=which == "corrected")
    psmi, std = fitted.score(cloud.points, cloud.labels)
    for point in range(0, 90, 11):
        of = {"directions": directions.tolist(), "point": point, "step": m}
        running = ask("running", **of, **wire(cloud))[which]
        at = running["m"].index(m)
        assert running["mean"][at] == pytest.approx(psmi[point], abs=1e-4)
        assert running["error"][at] == pytest.approx(std[point], abs=1e-4)


@pytest.mark.parametrize(
    ("n", "effect", "spread", "gap"), [(4, 4, 1.5, 6.5), (16, 2, 0.5, 3.0), (256, 8, 3.0, -5.0)]
)
def test_log_lira_of_every_variance(ask, n, effect, spread, gap):
    sample = Sample(n // 2, n // 2, effect, spread, seed=3)
    estimates = judged(sample, gap, "shrunk").estimates
    asked = {"seed": 3, "nIn": n // 2, "nOut": n // 2, "effect": effect, "spread": spread}
    found = ask("lira", gap=gap, estimates=estimates, **asked)
    for variance in VARIANCES:
        wanted = judged(sample, gap, variance)
        assert found[variance]["ratio"] == pytest.approx(wanted.log_lira, rel=1e-9)
        redraws = wanted.redraws[variance]
        assert found[variance]["redraws"] == pytest.approx(redraws.tolist(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("spread", [0.5, 1.5])
def test_what_global_closes_in_on(ask, spread):
    sample = Sample(8, 8, 4.0, spread, 0)
    mean_in, spread_in, mean_out, spread_out = sample.truth
    found = ask("limit", gap=6.5, truth=[[mean_in, spread_in], [mean_out, spread_out]])
    assert found == pytest.approx(sample.limits(6.5)["global"], rel=1e-12)


@pytest.mark.parametrize("variance", ["global", "shrunk"])
def test_a_redraw_is_what_log_lira_would_say(variance):
    """The other samples' shadow models stay, and hardly feel that the sample's are others."""
    sample = Sample(32, 32, 4.0, 1.5, seed=1)
    redraws = judged(sample, 6.5, variance).redraws[variance]
    gaps, members = sample.table()
    goal = np.zeros(gaps.shape[1])
    goal[0] = 6.5
    for redraw in (1, 2, 200):
        gaps[:, 0] = np.concatenate(sample.gaps(redraw))
        assert redraws[redraw - 1] == pytest.approx(
            log_lira(gaps, members, goal, variance)[0], rel=0.05, abs=0.1
        )


@pytest.mark.parametrize(("n", "alpha"), [(48, 0), (20, 0.5), (14, 3), (14, 31), (10, 30.5)])
def test_quadrature_nodes(ask, n, alpha):
    nodes, weights = roots_gegenbauer(n, alpha)
    found = ask("nodes", n=n, alpha=alpha)
    assert [node["x"] for node in found] == pytest.approx(nodes.tolist(), abs=1e-12)
    shares = (weights / weights.sum()).tolist()
    assert [node["weight"] for node in found] == pytest.approx(shares, abs=1e-12)


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"dimension": 1},
        {"dimension": 4, "epsilon": 0.3},
        {"dimension": 64, "separation": 6.0},
        {"imbalance": True},
        {"overlap": True, "dimension": 8},
        {"heavy_tails": True},
        {"separation": 0.0, "epsilon": 0.0},
    ],
    ids=str,
)
def test_psmi_of_the_mixture(ask, setting):
    mixture = Mixture(**setting)
    found = ask("theorem", n=mixture.n, seed=0, tau=0.0, mixture=asdict(mixture))
    exact = Judged.of(mixture, n_directions=1024)
    draws = exact.draws
    assert found["labels"] == draws.labels.tolist()
    assert found["kinds"] == (draws.outliers + 1 * draws.wrong).tolist()
    assert found["t"] == pytest.approx(draws.X[:, 0].tolist(), abs=1e-9)
    across = np.linalg.norm(draws.X[:, 1:], axis=1)
    assert found["r"] == pytest.approx(across.tolist(), abs=1e-9)
    error = np.abs(np.array(found["psmi"]) - exact.psmi)
    usual = 0.03 + 0.1 * np.abs(exact.psmi)
    # the front end leaves out by what the classes differ, by chance, across the axis
    assert (error < usual + 5 * exact.std).mean() > 0.97
    assert np.median(error) < 0.012
    if mixture.epsilon == 0:
        return
    means, rates = exact.means(), exact.rates(0.0)
    assert found["rates"]["meanOthers"] == pytest.approx(means["others"], abs=0.012)
    if mixture.epsilon and mixture.separation:
        assert found["rates"]["meanOutliers"] == pytest.approx(means["outliers"], abs=0.03)
        assert found["rates"]["tpr"] == pytest.approx(rates["tpr"], abs=0.025)
        assert found["rates"]["fpr"] == pytest.approx(rates["fpr"], abs=0.025)
        assert found["rates"]["tprWrong"] == pytest.approx(rates["tpr_wrong"], abs=0.04)
