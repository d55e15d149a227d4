"""The front-end files: their size, their own tests, and the same numbers as Python's."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memowidgets.evaluation import clopper_pearson, roc
from memowidgets.widgets.arrays import packed_scores
from memowidgets.widgets.assets import STATIC, script, style

JS = Path(__file__).parent / "js"
LIMIT = 50_000


@pytest.fixture(scope="module")
def node():
    found = shutil.which("node")
    if found is None:
        pytest.skip("no Node: install nodejs")
    return found


@pytest.fixture(scope="module")
def ask(node):
    """Asks the front end, in Node."""
    with subprocess.Popen(
        [node, JS / "driver.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def asking(what, **question):
            process.stdin.write(json.dumps({"what": what, **question}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield asking
        process.stdin.close()


def on_wire(scores, memorized):
    packed = packed_scores(scores, memorized)
    wire = {
        name: base64.b64encode(part).decode() if isinstance(part, bytes) else part
        for name, part in packed.items()
    }
    return {**wire, "remarks": []}


def test_every_file_is_small():
    sizes = {file.name: file.stat().st_size for file in STATIC.iterdir()}
    assert {name: size for name, size in sizes.items() if size >= LIMIT} == {}
    assert {"maths.js", "dom.js", "explorer.js", "inspector.js", "bar.js"} <= set(sizes)


@pytest.mark.parametrize("name", ["explorer", "inspector", "bar"])
def test_the_joined_module_is_one_without_imports(node, name, tmp_path):
    file = tmp_path / "joined.mjs"
    file.write_text(script(name))
    subprocess.run([node, "--check", file], check=True, capture_output=True)
    assert "import {" not in script(name)
    assert "innerHTML" not in script(name)
    assert ".mw-bar" in style()


@pytest.mark.parametrize("pattern", ["http", "@import", "url(http", "fetch(", "XMLHttpRequest"])
def test_nothing_is_fetched(pattern):
    allowed = "http://www.w3.org/2000/svg"  # a name, not an address to load from
    for name in ("explorer", "inspector", "bar"):
        assert pattern not in (script(name) + style()).replace(allowed, "")


def test_the_front_ends_own_tests(node):
    files = sorted(JS.glob("*.test.mjs"))
    result = subprocess.run(
        [node, "--test", *files], capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stdout[-4000:]


close_floats = st.builds(
    lambda base, steps: float(base + steps * np.spacing(np.float64(base))),
    st.sampled_from([-1.0, 0.1, 0.3, 1e6]),
    st.integers(-3, 3),
)
any_scores = st.one_of(
    close_floats, st.integers(-5, 5).map(float), st.floats(-1e9, 1e9, allow_nan=False)
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(st.tuples(any_scores, st.booleans()), min_size=2, max_size=60))
def test_both_sides_count_the_same(ask, rows):
    scores = np.array([score for score, _ in rows])
    memorized = np.array([flag for _, flag in rows])
    memorized[0], memorized[1] = True, False
    evaluation = roc(scores, memorized)
    taus = np.unique([scores, np.nextafter(scores, -np.inf), np.nextafter(scores, np.inf)]).tolist()
    found = ask("counts", wire=on_wire(scores, memorized), taus=taus)
    for tau, counts in zip(taus, found, strict=True):
        point = evaluation.at(tau)
        assert counts == {
            "flagged": point.flagged,
            "hits": point.hits,
            "falseAlarms": point.false_alarms,
            "missed": point.missed,
            "clear": point.clear,
        }


@pytest.mark.parametrize("seed", range(20))
def test_presets_are_those_of_python(ask, seed):
    rng = np.random.default_rng(seed)
    memorized = rng.random(400) < 0.1
    memorized[:2] = True, False
    scores = (rng.normal(size=400) - 1.5 * memorized).round(1 if seed % 2 else 6)
    evaluation = roc(scores, memorized)
    found = ask("thresholds", wire=on_wire(scores, memorized))
    for rule, tau in found.items():
        wanted = evaluation.threshold(rule)
        same = evaluation.at(wanted) == evaluation.at(-np.inf if tau is None else tau)
        assert same or rule == "youden", (rule, tau, wanted)
        if not same and tau is not None:  # equal heights, told apart by rounding
            a, b = evaluation.at(wanted), evaluation.at(tau)
            assert a.tpr - a.fpr == pytest.approx(b.tpr - b.fpr, abs=1e-12)


def test_intervals_are_exact(ask):
    cases = [(k, n) for n in (1, 2, 7, 40, 900) for k in {0, 1, n // 3, n - 1, n}]
    cases += [(3, 1_000_000), (500_000, 1_000_000), (999_990, 1_000_000)]
    for (k, n), (low, high) in zip(cases, ask("intervals", cases=cases), strict=True):
        wanted = clopper_pearson(k, n)
        assert low == pytest.approx(wanted[0], rel=1e-6, abs=1e-12), (k, n)
        assert high == pytest.approx(wanted[1], rel=1e-6, abs=1e-12), (k, n)


def test_the_interval_of_nothing_is_none(ask):
    assert ask("intervals", cases=[[0, 0]]) == [None]


def test_a_million_scores_fit_on_the_wire():
    rng = np.random.default_rng(0)
    scores, memorized = rng.normal(size=1_000_000), rng.random(1_000_000) < 0.01
    for rounded in (scores, scores.round(3), scores.astype(np.float32).astype(float)):
        parts = packed_scores(rounded, memorized).values()
        assert sum(len(part) for part in parts if isinstance(part, bytes)) < 10_000_000
