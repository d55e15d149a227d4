"""Scores of a user's: by decorator, by function and by an installed package; what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.registry import (
    PARAMETERS,
    all_rows,
    find_row,
    own_names,
    registered,
    spoken,
)
from tests.programs import printed

LABELS = np.arange(60) % 3


def audit_of(**changes) -> mw.Audit:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 3)) + 2 * np.eye(3)[LABELS]
    return mw.Audit.from_arrays(
        LABELS, rng.normal(size=(60, 4)), logits=logits, **changes
    )


def test_the_packages_own_scores_have_one_name_and_each_part_a_definition():
    rows = [find_row(name) for name in own_names()]
    assert len({row.spoken for row in rows}) == len(rows)
    assert all(row.definition for row in rows if not row.mean_rank)
    assert {*own_names()} >= {part for row in rows for part in row.parts}


def test_every_parameter_that_is_valid_is_described():
    for name, shape in PARAMETERS.items():
        assert f"{name:18}  {shape}" in mw.score.__doc__


def test_a_score_of_ones_own_is_a_name_like_any_other():
    audit = audit_of()

    @mw.score("margin", spoken="Margin of mine", tau=0.5)
    def margin(logits, labels, power=1):
        """Say how sure the model is.

        More of it, which a page leaves out.
        """
        return mw.metrics.logit_gap(logits, labels) ** power

    assert margin(np.eye(3), np.arange(3)).tolist() == [1, 1, 1]  # as it was written
    assert audit.metrics[-1] == "margin"
    wanted = audit.score("logit_gap").rename("margin")
    assert audit.score("margin").equals(wanted)
    assert audit.flagged("margin").index.tolist() == (
        wanted[wanted <= 0.5].sort_values().index.tolist()
    )
    assert spoken("margin") == "Margin of mine"
    assert find_row("margin").definition == "Say how sure the model is."


def test_a_cell_that_runs_again_replaces_its_score_and_each_is_computed_once():
    audit, calls = audit_of(), []

    def add(value):
        @mw.score("constant")
        def constant(labels):
            calls.append(value)
            return np.full(len(labels), float(value)) + labels

    add(1)
    first = audit.score("constant")
    assert audit.score("constant").equals(first)
    assert audit.flagged("constant", share=0.1)["score"].min() == 1
    add(2)
    assert audit.score("constant").equals(first + 1)
    assert audit.score("constant").equals(first + 1)
    assert calls == [1, 2]


def test_scores_are_made_of_others():
    audit = audit_of()
    mw.score("even", spoken="Even")(lambda labels: labels % 2 * 1.0)
    mw.score("mixed", mean_rank=("loss", "even", "even"))
    both = np.stack([audit.score("loss"), *[audit.score("even")] * 2])
    np.testing.assert_array_equal(audit.score("mixed"), mw.metrics.mean_rank(both))
    mw.score("even")(lambda labels: labels * 1.0)  # the sum follows
    both[1:] = audit.score("even")
    np.testing.assert_array_equal(audit.score("mixed"), mw.metrics.mean_rank(both))
    mw.score("mean_even", mean_over_checkpoints="even")
    assert "mean_even" not in audit.metrics  # arrays have one checkpoint
    with pytest.raises(ValueError, match="one checkpoint"):
        audit.score("mean_even")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: mw.score("psmi"), "'psmi' is a name of memowidgets' own"),
        (lambda: mw.score("PSMI"), "memowidgets' own"),
        (lambda: mw.score("log_lira"), "memowidgets' own"),
        (lambda: mw.score("<b>mine</b>"), "letters, digits and _"),
        (lambda: mw.score("../mine"), "letters, digits and _"),
        (lambda: mw.score("mine+"), "letters, digits and _"),
        (lambda: mw.score("m" * 61), "up to 60 letters"),
        (lambda: mw.score(3), "must be a text .* not 3"),
        (lambda: mw.score("mine", spoken=" "), "spoken must be a text"),
        (lambda: mw.score("mine", tau="0"), "tau must be a finite number, not '0'"),
        (lambda: mw.score("mine", version=1), "version must be a text"),
        (lambda: mw.score("mine", spoken="PSMI")(lambda labels: labels), "'psmi' is called"),
        (lambda: mw.score("mine")(lambda x, labels: labels), "'x'.* not one of .*logits"),
        (lambda: mw.score("mine")(lambda *_: 0), "no parameter .*valid: representations"),
        (lambda: mw.score("mine")(dict), "cannot be read|no parameter"),
        (lambda: mw.score("mine", mean_rank=("loss", "psmy")), "unknown score 'psmy'; valid: psmi"),
        (lambda: mw.score("mine", mean_rank=("loss",), version="1"), "made of other scores"),
    ],
)  # fmt: skip
def test_what_is_no_score_is_refused_when_it_is_added(wrong, message):
    before = all_rows()
    with pytest.raises((TypeError, ValueError), match=message):
        wrong()
    assert all_rows() == before


def test_a_score_is_not_made_of_itself():
    mw.score("one")(lambda labels: labels)
    mw.score("two", mean_rank=("one", "loss"))
    with pytest.raises(ValueError, match="'one' cannot be made of itself"):
        mw.score("one", mean_rank=("two", "loss"))


def test_an_unknown_name_lists_ones_own_too():
    mw.score("mine")(lambda labels: labels)
    with pytest.raises(ValueError, match=r"unknown score 'yours'; valid: psmi, .*mine"):
        audit_of().score("yours")


# installed packages


def install(folder, package, body, points):
    """Write an installed package: a module, and what its entry points name."""
    (folder / f"{package}.py").write_text(body, encoding="utf-8")
    info = folder / f"{package}-1.4.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.4\n", encoding="utf-8"
    )
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text(
        "\n".join(["[memowidgets.scores]", *lines]), encoding="utf-8"
    )


GOOD = """
import memowidgets as mw

@mw.score("from_elsewhere", spoken="From elsewhere")
def from_elsewhere(labels):
    "It is from a package."
    return labels + 0.5

@mw.score("from_there_too", version="7")
def second(labels):
    return labels
"""


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder for installed packages, which a registry that has loaded none yet looks into."""
    monkeypatch.syspath_prepend(tmp_path)
    fresh = registered.Registry([find_row(name) for name in own_names()])
    monkeypatch.setattr(registered, "REGISTRY", fresh)
    modules = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - modules:
        if name.endswith("_scores"):
            del sys.modules[name]


def test_a_score_of_an_installed_package_is_a_name_everywhere(packages):
    install(packages, "good_scores", GOOD, {"any": "good_scores:from_elsewhere"})
    audit = audit_of()
    assert audit.metrics[-2:] == ("from_elsewhere", "from_there_too")
    assert (audit.score("from_elsewhere") == LABELS + 0.5).all()
    versions = {name: row.version for name, row in all_rows().items()}
    assert versions["from_elsewhere"] == "1.4"  # its package's
    assert versions["from_there_too"] == "7"


def test_a_package_that_is_imported_before_has_its_version_too(packages):
    install(packages, "good_scores", GOOD, {"any": "good_scores:from_elsewhere"})
    import good_scores  # noqa: F401

    assert find_row("from_elsewhere").version == "1.4"


def test_what_a_session_adds_goes_before_a_package(packages):
    mw.score("from_elsewhere")(lambda labels: labels * 0.0)
    install(packages, "good_scores", GOOD, {"any": "good_scores:from_elsewhere"})
    assert "from_there_too" in all_rows()
    assert (audit_of().score("from_elsewhere") == 0).all()


def test_what_cannot_be_imported_is_said_once_and_the_rest_works(packages):
    points = {
        "gone": "no_such_module_scores:score",
        "no_score": "broken_scores:helper",
        "ours": "thief_scores",
    }
    install(packages, "broken_scores", "def helper(): pass", points)
    thief = 'import memowidgets as mw\nmw.score("psmi")(lambda labels: labels)'
    (packages / "thief_scores.py").write_text(thief, encoding="utf-8")
    install(packages, "good_scores", GOOD, {"any": "good_scores"})
    with pytest.warns(UserWarning, match="left out") as said:
        found = all_rows()
    (only,) = said
    for part in ("no_such_module_scores", "mw.score decorates", "'psmi' is a name"):
        assert part in str(only.message)
    assert {"from_elsewhere", "from_there_too"} <= {*found}
    assert all_rows() == found  # and nothing more is said
    assert found["psmi"].function is not None


def test_importing_the_package_asks_for_no_score():
    code = (
        "import sys, memowidgets\n"
        "print('memowidgets.registry' in sys.modules, 'importlib.metadata' in sys.modules)"
    )
    assert printed(code).split()[0] == "False"
