"""The playgrounds' Python side: traits, official numbers, errors, and what teaching rests on."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances

from memowidgets.evaluation import roc
from memowidgets.memorization import log_lira
from memowidgets.metrics import PSMI
from memowidgets.teaching import (
    LiRAPlayground,
    MemorizationPlayground,
    PSMIPlayground,
    TheoremPlayground,
)
from memowidgets.teaching.psmi_playground import DIMENSIONS, lift, make_cloud
from memowidgets.teaching.theorem_playground import SEPARATIONS, Judged, Mixture

MOST = {
    MemorizationPlayground: {"n": 400},
    PSMIPlayground: {"n": 2000},
    TheoremPlayground: {"n": 2000},
}
ALL = (MemorizationPlayground, PSMIPlayground, LiRAPlayground, TheoremPlayground)


@pytest.fixture
def open_playground():
    opened = []

    def opening(kind, *args, **settings):
        opened.append(kind(*args, **settings))
        return opened[-1]

    yield opening
    for playground in opened:
        assert playground.wait(60)
        playground.close()


@pytest.fixture
def psmi(open_playground):
    return open_playground(PSMIPlayground, n=90)


@pytest.mark.parametrize("kind", ALL)
def test_close_leaves_nothing(kind):
    before = set(_instances)
    playground = kind()
    assert playground.wait(60)
    layout = playground.layout
    playground.close()
    assert layout.comm is None
    assert set(_instances) <= before


@pytest.mark.parametrize("kind", ALL)
def test_without_a_page_there_are_the_numbers(kind, open_playground):
    playground = open_playground(kind)
    data, _ = playground._repr_mimebundle_()
    assert "<table>" in data["text/html"]
    assert "PSMI" in data["text/html"] or "log-LiRA" in data["text/html"]
    assert data["text/plain"] == repr(playground)


@pytest.mark.parametrize("kind", ALL)
def test_a_saved_notebook_stays_small(kind, open_playground):
    playground = open_playground(kind, **MOST.get(kind, {}))
    assert playground.wait(60)
    state = playground.get_state()
    files = len(state.pop("_esm")) + len(state.pop("_css"))
    assert files < 90_000  # the largest has the maths of PSMI, of LiRA and of a network
    size = sum(len(v) if isinstance(v, bytes) else len(repr(v)) for v in state.values())
    assert size < 150_000
    json.dumps({k: v for k, v in state.items() if k not in {"_cloud", "_directions"}})


# A playground, a trait of it, a value that it refuses, and facts of the error
REFUSED = [
    (PSMIPlayground, "points", [[0.0, 1.0]], ValueError, "one label for each"),
    (PSMIPlayground, "points", np.full((90, 2), np.nan), ValueError, "point 0"),
    (PSMIPlayground, "points", np.zeros((90, 2)), ValueError, "one place"),
    (PSMIPlayground, "points", np.zeros((90, 3)), ValueError, r"\(n, 2\)"),
    (PSMIPlayground, "labels", np.zeros(90), TypeError, "whole numbers"),
    (PSMIPlayground, "labels", np.arange(90) // 45 * 2, ValueError, "class 1 has 0"),
    (PSMIPlayground, "labels", np.arange(90) % 5, ValueError, "0 and 3"),
    (PSMIPlayground, "selected", 90, ValueError, "0 to 89"),
    (PSMIPlayground, "selected", 1.5, ValueError, "whole number"),
    (PSMIPlayground, "angle", 181, ValueError, "0 to 180"),
    (PSMIPlayground, "dimension", 3, ValueError, "2, 4, 8"),
    (LiRAPlayground, "n_shadows", 7, ValueError, "even"),
    (LiRAPlayground, "n_shadows", 2, ValueError, "4 to 256"),
    (LiRAPlayground, "n_shadows", True, TypeError, "whole number"),
    (LiRAPlayground, "variance", "own", ValueError, "'per-sample', 'global', 'shrunk'"),
    (LiRAPlayground, "target_gap", np.inf, ValueError, "target_gap"),
    (LiRAPlayground, "spread", 0, ValueError, "spread"),
    (LiRAPlayground, "seed", 1_000_000, ValueError, "seed"),
    (TheoremPlayground, "epsilon", 0.6, ValueError, "epsilon.* 0 to 0.5"),
    (TheoremPlayground, "separation", float("nan"), ValueError, "separation"),
    (TheoremPlayground, "dimension", 3, ValueError, "1, 2, 4"),
    (TheoremPlayground, "overlap", 1, TypeError, "overlap.* True or False"),
    (TheoremPlayground, "tau", "high", TypeError, "tau"),
    (MemorizationPlayground, "width", 9, ValueError, "width.*8, 16.*9"),
    (MemorizationPlayground, "noise", 0.3, ValueError, "noise.*0.2"),
    (MemorizationPlayground, "rho", 1.0, ValueError, "rho.*0.99"),
    (MemorizationPlayground, "n", 10, ValueError, "n.*30.*400"),
    (MemorizationPlayground, "classes", 4, ValueError, "classes.*3"),
    (MemorizationPlayground, "seed", 0.5, ValueError, "seed.*0.5"),
]


@pytest.mark.parametrize("kind", ALL)
def test_a_setting_that_is_refused_changes_nothing(open_playground, kind):
    playground = open_playground(kind, **({"n": 90} if kind is PSMIPlayground else {}))
    before = playground._repr_mimebundle_()[0]["text/html"]
    for _, name, value, error, facts in (row for row in REFUSED if row[0] is kind):
        with pytest.raises(error, match=facts):
            setattr(playground, name, value)
        assert playground._repr_mimebundle_()[0]["text/html"] == before


ENDING = """
import atexit, threading
closed = threading.Event()
def close():  # as a kernel does with its sockets
    closed.set()
    playground.wait(60)
atexit.register(close)
from memowidgets.teaching import PSMIPlayground
playground = PSMIPlayground(n=30)
playground.wait()
def tell(change):
    closed.wait(60)
    raise OSError("the socket is closed")
playground.observe(tell, "_dimensions")
playground.selected = 1
"""


def test_a_process_that_ends_while_a_playground_computes_says_nothing():
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


# ---------------------------------------------------------------- PSMI


def test_psmi_is_that_of_metrics(psmi):
    fitted = PSMI(256, random_state=0).fit(psmi.points, psmi.labels)
    scores, errors = fitted.score_samples(psmi.points, psmi.labels, return_std=True)
    assert (psmi.psmi == scores).all()
    assert (psmi.psmi_std == errors).all()
    assert psmi._official == {"point": 0, "psmi": scores[0], "std": errors[0]}


def test_a_point_made_atypical_falls_below_0(psmi):
    before = psmi.psmi[0]
    points = psmi.points
    points[0] = points[psmi.labels == 1].mean(axis=0)
    psmi.points = points
    assert before > 0 > psmi.psmi[0]
    assert (np.frombuffer(psmi._cloud["points"]).reshape(-1, 2) == points).all()


def test_points_and_labels_change_together(psmi):
    heard = []
    psmi.observe(lambda change: heard.append(len(change["new"])), "psmi")
    psmi.selected = 80
    cloud = make_cloud(30, 2, seed=4)
    psmi.update(cloud.points, cloud.labels)
    assert heard == [30]
    assert psmi.selected == 29
    assert (psmi.labels == cloud.labels).all()


def test_what_the_page_sends_is_taken_at_once(psmi):
    heard = []
    psmi.observe(lambda change: heard.append(len(change["new"])), "psmi")
    points = np.vstack([psmi.points, [[0.0, 0.0]]])
    labels = np.append(psmi.labels, 2).astype(np.uint8)
    sent = {"points": memoryview(points.tobytes()), "labels": memoryview(labels.tobytes())}
    psmi.set_state({"_cloud": sent, "selected": 90, "angle": 45})
    assert heard == [91]
    assert (psmi.selected, psmi.angle) == (90, 45.0)
    assert (psmi.points == points).all()
    psmi.set_state({"_reset": 1})
    assert len(psmi.points) == 90
    assert psmi.selected == 89


def test_nonsense_from_the_page_is_undone(psmi):
    points = psmi.points
    psmi.set_state({"_cloud": {"points": memoryview(b"12345678"), "labels": memoryview(b"\0")}})
    assert (psmi.points == points).all()
    assert psmi._cloud["points"] == psmi.points.tobytes()


def test_a_copy_is_a_copy(psmi):
    psmi.points[0] = 77.0
    assert psmi._now.points.max() < 77
    before = psmi.psmi.copy()
    psmi.update(psmi.points.clip(-6, 6), psmi.labels)
    assert not (psmi.psmi == before).all()


def test_the_value_is_that_of_the_chosen_point(psmi):
    psmi.angle = 0
    x, y = psmi.points[:, 0], psmi.labels
    mean = np.array([x[y == c].mean() for c in range(3)])
    variance = np.array([x[y == c].var() for c in range(3)])
    density = np.exp(-0.5 * (x[4] - mean) ** 2 / variance) / np.sqrt(variance)
    psmi.selected = 4
    assert psmi.value == pytest.approx(np.log(density[y[4]] / density.mean()))


def test_the_page_hears_of_every_result_in_more_dimensions(psmi):
    assert psmi.wait(60)
    heard = []
    psmi.observe(lambda change: heard.append(change["new"]), "_dimensions")
    with psmi._at_once():  # there and back before the first of both is computed
        psmi.selected = 1
        psmi.selected = 0
    assert psmi.wait(60)
    assert len(heard) == 1
    assert [one["dimension"] for one in heard[0]] == list(DIMENSIONS)


def test_the_same_in_more_dimensions(psmi):
    assert psmi.wait(60)
    found = {one["dimension"]: one for one in psmi._dimensions}
    assert list(found) == list(DIMENSIONS)
    fitted = PSMI(random_state=0).fit(X := lift(psmi._now, 16), psmi.labels)
    assert found[16]["psmi"] == pytest.approx(fitted.score_samples(X, psmi.labels)[0])
    assert found[2]["others"][1] > found[32]["others"][1] > found[256]["others"][1] > 0
    assert (lift(psmi._now, 8) == lift(psmi._now, 64)[:, :8]).all()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"points": [[0, 1], [1, 2]]}, ValueError),
        ({"n": 5}, ValueError),
        ({"selected": 120}, ValueError),
        ({"seed": -1}, ValueError),
    ],
)
def test_a_playground_is_not_made_of_nonsense(settings, error):
    with pytest.raises(error):
        PSMIPlayground(**settings)


# ---------------------------------------------------------------- LiRA


@pytest.mark.parametrize("variance", ["per-sample", "global", "shrunk"])
def test_log_lira_is_that_of_memorization(open_playground, variance):
    playground = open_playground(LiRAPlayground, n_shadows=32, variance=variance)
    gaps, members = playground._sample.table()
    assert (gaps[:16, 0] == playground.gaps_in).all()
    assert (gaps[16:, 0] == playground.gaps_out).all()
    goal = np.zeros(gaps.shape[1])
    goal[0] = playground.target_gap
    ratio, error = log_lira(gaps, members, goal, variance, return_std=True)
    assert playground.log_lira == ratio[0]
    assert playground.log_lira_std == error[0]
    playground.target_gap = 3.0
    assert playground.log_lira < ratio[0]


def test_few_models_mislead_and_many_close_in(open_playground):
    widths = []
    for n in (8, 32, 256):
        playground = open_playground(LiRAPlayground, n_shadows=n)
        redraws = playground.redraws["per-sample"]
        widths.append(np.subtract(*np.quantile(redraws, [0.95, 0.05])))
    assert widths[0] > 4 * widths[1] > 8 * widths[2]
    assert np.median(redraws) == pytest.approx(playground.true_log_lira, abs=0.3)
    few = open_playground(LiRAPlayground, n_shadows=8)
    says = few.redraws["per-sample"] >= few.eta
    assert 0.1 < says.mean() < 0.9
    assert "shrunk" in few._fit["remark"]


def test_pooled_variances_are_calm_and_may_be_wrong(open_playground):
    playground = open_playground(LiRAPlayground, n_shadows=256, spread=0.5)
    distance = {
        name: abs(np.median(redraws) - playground.true_log_lira)
        for name, redraws in playground.redraws.items()
    }
    assert distance["per-sample"] < distance["shrunk"] < distance["global"]
    assert playground.redraws["global"].std() < 0.1 * playground.redraws["per-sample"].std()


def test_every_variance_closes_in_on_its_limit(open_playground):
    """Global closes in on another value than the truth, as the text below the playground says."""
    playground = open_playground(LiRAPlayground, n_shadows=256)
    for name, redraws in playground.redraws.items():
        error = redraws.std() / np.sqrt(len(redraws))
        assert redraws.mean() == pytest.approx(playground.limits[name], abs=0.1 + 3 * error)
    assert playground.limits["per-sample"] == playground.limits["shrunk"]
    assert playground.limits["shrunk"] == playground.true_log_lira
    assert abs(playground.limits["global"] - playground.true_log_lira) > 1
    few = open_playground(LiRAPlayground, n_shadows=4)
    many = open_playground(LiRAPlayground, n_shadows=128)
    away = [abs(np.median(one.redraws["global"]) - one.true_log_lira) for one in (few, many)]
    assert away[0] < away[1]


def test_measured_gaps_take_the_place_of_simulated_ones(open_playground):
    playground = open_playground(LiRAPlayground)
    simulated = playground.log_lira
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(5, 1, size=20), rng.normal(0, 1, size=12)
    playground.update(inside, outside)
    assert (playground.gaps_in == inside).all()
    assert (playground.gaps_out == outside).all()
    a, b = (playground.target_gap - inside.mean(), playground.target_gap - outside.mean())
    wanted = np.log(outside.std() / inside.std())
    wanted += -0.5 * (a / inside.std()) ** 2 + 0.5 * (b / outside.std()) ** 2
    assert playground.log_lira == pytest.approx(wanted)
    assert playground.true_log_lira == pytest.approx(wanted)
    playground.simulate()
    assert playground.log_lira == simulated


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (([1.0], [1.0, 2.0]), "gaps_in must hold 2"),
        (([1.0, 2.0], [1.0, np.nan]), "gap 1 is nan"),
        (([[1.0, 2.0]], [1.0, 2.0]), "one row"),
    ],
)
def test_measured_gaps_are_checked(open_playground, sides, words):
    playground = open_playground(LiRAPlayground)
    with pytest.raises(ValueError, match=words):
        playground.update(*sides)
    assert playground._given == []


# ---------------------------------------------------------------- Theorem 1


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
@pytest.mark.parametrize("dimension", [1, 2, 16])
@pytest.mark.parametrize("separation", [1.0, 2.0, 6.0])
def test_the_inequality_of_theorem_1(epsilon, dimension, separation):
    means = Judged.of(Mixture(epsilon, separation, dimension)).means()
    assert means["others"] > 0 > means["outliers"]
    assert means["wrong"] < 0 < means["right"]
    assert -means["wrong"] > means["right"]  # a wrong label counts for more


def test_the_equality_holds_where_nothing_predicts_the_label():
    means = Judged.of(Mixture(0.1, 0.0)).means()
    assert means["outliers"] == pytest.approx(0, abs=0.01)
    assert means["others"] == pytest.approx(0, abs=0.01)


def test_numbers_of_the_theorem_are_those_of_metrics(open_playground):
    playground = open_playground(TheoremPlayground, 0.1, 3.0, 8, tau=-0.05)
    draws = playground.mixture.draw()
    fitted = PSMI(256, random_state=0).fit(draws.X, draws.labels)
    scores = fitted.score_samples(draws.X, draws.labels)
    assert (playground.psmi == scores).all()
    assert playground.means["outliers"] == scores[draws.outliers].mean()
    point = roc(scores, draws.outliers).at(-0.05)
    assert playground.rates["tpr"] == point.tpr
    assert playground.rates["fpr_interval"] == list(point.fpr_interval)
    assert playground.rates["tpr_wrong"] == (scores[playground.wrong] <= -0.05).mean()
    low, high = playground.rates["tpr_wrong_interval"]
    assert 0 < low < playground.rates["tpr_wrong"] < high <= 1
    playground.epsilon = 0.0
    assert "tpr_wrong" not in playground.rates


def test_tau_alone_scores_nothing_again(open_playground):
    playground = open_playground(TheoremPlayground)
    heard = []
    playground.observe(lambda change: heard.append(change["name"]), ["psmi", "rates"])
    playground.tau = 10.0
    assert heard == ["rates"]
    assert playground.rates["tpr"] == playground.rates["fpr"] == 1.0


@pytest.mark.parametrize("switch", ["imbalance", "overlap", "heavy_tails"])
def test_where_the_theorem_breaks(switch):
    usual = Judged.of(Mixture()).rates(0.0)
    broken = Judged.of(Mixture(**{switch: True}))
    assert broken.rates(0.0)["fpr"] > 2 * usual["fpr"]
    assert broken.means()["others"] < 0.5 * Judged.of(Mixture()).means()["others"]


def test_without_outliers_there_are_no_rates(open_playground):
    playground = open_playground(TheoremPlayground, epsilon=0.0)
    assert "tpr" not in playground.rates
    assert np.isnan(playground.means["outliers"])
    json.dumps(playground._official, allow_nan=False)
    assert playground.wait(60)
    json.dumps(playground._by_separation, allow_nan=False)


def test_the_means_at_every_separation(open_playground):
    playground = open_playground(TheoremPlayground, dimension=4)
    assert playground.wait(60)
    found = playground._by_separation["means"]
    assert [one["separation"] for one in found] == list(SEPARATIONS)
    here = next(one for one in found if one["separation"] == playground.separation)
    assert here["outliers"] == pytest.approx(playground.means["outliers"], abs=0.02)
