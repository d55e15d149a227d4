"""A score's function is called with what it names, and what it returns is checked and kept."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.progress import Cancelled, Progress
from tests.audit.conftest import view_of
from tests.programs import printed
from tests.training.small import Inline, trained

N = 60
LABELS = np.arange(N) % 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of several epochs with shadow and reference models."""
    training = mw.TrainingConfig(epochs=3, batch_size=16)
    audit = trained(tmp_path_factory.mktemp("own") / "run", training=training)
    audit.run_shadows(6, Inline())
    audit.run_references(1, Inline())
    return audit


def audit_of(**changes) -> mw.Audit:
    rng = np.random.default_rng(0)
    given = {
        "representations": rng.normal(size=(N, 4)),
        "logits": rng.normal(size=(N, 3)) + 2 * np.eye(3)[LABELS],
    }
    return mw.Audit.from_arrays(LABELS, **given | changes)


def test_each_parameter_is_what_its_name_says(run):
    seen = {}

    def look(
        representations,
        logits,
        labels,
        loss,
        logit_gap,
        losses,
        reference_gaps,
        shadow_gaps,
        shadow_members,
        target_gaps,
        random_state,
    ):
        seen.update(locals())
        return labels

    run.score(look)
    n, at = len(run.members), run.prediction.record.name
    np.testing.assert_array_equal(seen["representations"], run.representation())
    np.testing.assert_array_equal(seen["labels"], run.labels)
    probabilities = run.probabilities()[np.arange(n), run.labels]
    np.testing.assert_allclose(seen["loss"], -np.log(probabilities), rtol=1e-4)
    gap = mw.metrics.logit_gap(seen["logits"], run.labels)
    for name in ("logit_gap", "target_gaps"):
        np.testing.assert_allclose(seen[name], gap, rtol=1e-5)
    epochs = int(run.checkpoints["epoch"][at])
    assert seen["losses"].shape == (epochs, n)
    np.testing.assert_allclose(seen["losses"][-1], seen["loss"], atol=1e-5)
    assert seen["shadow_gaps"].shape == seen["shadow_members"].shape == (6, n)
    assert seen["shadow_members"].dtype == bool
    assert seen["reference_gaps"].shape == (1, n)
    assert seen["random_state"] == 0
    given = seen["shadow_gaps"], seen["shadow_members"], seen["target_gaps"]
    wanted = -mw.memorization.log_lira(*given, "shrunk")
    there = ~np.isnan(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of members in every model
        baseline = run.score("baseline")
    np.testing.assert_allclose(baseline, wanted[there])


def test_an_average_over_checkpoints_of_ones_own(run):
    """Last-layer TracIn of a sample with itself, by a linear head that is there in PyTorch."""

    @mw.score("influence")
    def influence(representations, logits, labels):
        errors = torch.softmax(torch.tensor(logits), 1).numpy()
        errors[np.arange(len(labels)), labels] -= 1
        return -(errors**2).sum(1) * ((representations**2).sum(1) + 1)

    mw.score("tracin", mean_over_checkpoints="influence")
    epochs = [1, 2, 3]
    each = [run.score("influence", checkpoint=epoch) for epoch in epochs]
    found = run.score("tracin", checkpoint="final")
    np.testing.assert_allclose(found, np.mean(each, axis=0))
    rows = slice(0, 4)
    states = torch.tensor(run.representation("last", 2)[rows])
    head = torch.nn.Linear(states.shape[1], 10)
    logits = head(states)
    wanted = []
    for row, label in zip(logits, run.labels[rows], strict=True):
        loss = torch.nn.functional.cross_entropy(row, torch.tensor(label))
        gradients = torch.autograd.grad(
            loss, list(head.parameters()), retain_graph=True
        )
        wanted.append(-sum(float((one**2).sum()) for one in gradients))
    values = influence(states.numpy().copy(), logits.detach().numpy(), run.labels[rows])
    np.testing.assert_allclose(values, wanted, rtol=1e-4)


def test_nan_is_a_member_without_a_score_and_a_pair_has_errors():
    audit = audit_of()

    def some(labels):
        values = np.where(labels == 1, np.nan, labels - 1.0)
        return values, np.full(len(labels), 0.25), ["this is known of it"]

    with pytest.warns(UserWarning, match="20 members have no score, some is NaN"):
        values, errors = audit.score(some, return_std=True)
    assert values.index.tolist() == [str(i) for i in range(N) if i % 3 != 1]
    assert (errors == 0.25).all()
    with pytest.warns(UserWarning, match="this is known of it"):
        table = audit.flagged(some, tau=0.0)
    assert len(table) == 20
    assert (table["std"] == 0.25).all()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda labels: labels[:3], r"mine returned .*shape \(3,\).* each of 60 members"),
        (lambda labels: np.eye(len(labels)), r"shape \(60, 60\)"),
        (lambda labels: 0.5, r"shape \(\).* one for each of 60"),
        (lambda labels: None, "mine returned no values: .*one for each of 60 members"),
        (lambda labels: (None, labels), "mine returned no values"),
        (lambda labels: labels.astype(str), "mine returned must be real numbers, .*<U"),
        (lambda labels: labels + 1j, "mine returned must be real numbers"),
        (lambda labels: labels * np.nan, "mine is NaN for all 60 members"),
        (lambda labels: np.where(labels == 2, -np.inf, 0.0), "mine .*-inf.*'id-2', .*row 2"),
        (lambda labels: (labels, -1.0 - labels), "standard error .*'id-0'"),
        (lambda labels: (labels, labels, labels, labels), "a tuple of 4"),
        (lambda labels: (labels, None, 3), "notes of the score mine"),
        (lambda labels: {}["gone"], "mine could not be computed.* KeyError: 'gone'"),
        (lambda labels: 1 / 0, "mine could not be computed.* ZeroDivisionError: division"),
    ],
)  # fmt: skip
def test_what_is_no_score_names_the_score_and_the_member(returned, message):
    audit = audit_of(ids=[f"id-{i}" for i in range(N)])
    mw.score("mine")(returned)
    asks = [
        lambda: audit.score("mine"),
        lambda: audit.flagged("mine"),
        lambda: view_of(audit).view("mine", "last", "given"),
    ]
    for ask in asks:
        with pytest.raises((TypeError, ValueError), match=message) as error:
            ask()
    if "could not be computed" in message:
        assert error.value.__cause__ is not None


def test_a_function_may_write_to_its_arrays(run):
    wanted = {name: run.score(name) for name in ("psmi", "loss", "reference", "csl")}

    def rude(representations, logits, labels, losses, reference_gaps, shadow_members):
        for array in (representations, logits, losses, reference_gaps, labels):
            array[:] = 0
        shadow_members[:] = True
        return labels

    assert (run.score(rude) == 0).all()
    assert {name: run.score(name) for name in wanted}.keys() == wanted.keys()
    for name, values in wanted.items():
        assert run.score(name).equals(values)


def test_a_score_that_is_not_the_same_twice_is_the_same_in_a_session(run):
    rng = np.random.default_rng()
    mw.score("dice")(lambda labels: rng.random(len(labels)))
    found = run.score("dice")
    assert run.score("dice").equals(found)
    assert view_of(run).view("dice", "last", "prediction").scores.tolist() == [*found]
    assert not list(run.run.run.path.rglob("dice*"))


def test_values_with_a_version_are_kept_in_the_run(run):
    calls = []

    def add(version):
        @mw.score("kept", version=version)
        def kept(logits, labels):
            calls.append(version)
            return mw.metrics.logit_gap(logits, labels)

    add("1")
    found = run.score("kept")
    again = mw.Audit.open(run.path)
    assert again.score("kept").equals(found)
    assert calls == ["1"]
    add("2")
    assert again.score("kept").equals(found)
    assert calls == ["1", "2"]


def test_what_other_models_add_to_kept_values_is_a_part_of_what_they_come_from(
    run, own_scores
):
    calls = []

    def add():
        @mw.score("drift", version="1")
        def drift(losses, reference_gaps):
            calls.append(len(reference_gaps))
            return reference_gaps[-1] - losses.mean(axis=0)

    add()
    found = run.score("drift")
    again = mw.Audit.open(run.path)
    assert again.score("drift").equals(found)
    own_scores.clear()
    assert mw.Audit.open(run.path).score("drift").equals(found)
    n = len(run.evidence.references.indices)
    run.run_references(n + 1, Inline())
    add()
    assert not again.score("drift").equals(found)
    assert len(calls) == 2
    assert calls[0] < calls[1]


def test_a_function_begins_by_itself_once_it_is_known_to_take_a_moment(
    run, monkeypatch
):
    clock = iter(range(0, 10_000, 4))
    monkeypatch.setattr(
        "memowidgets.audit.audit.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    called = []

    def add(value):
        @mw.score("mine")
        def mine(labels):
            called.append(value)
            return np.arange(len(labels)) + value

    add(0)
    mw.score("mean_mine", mean_over_checkpoints="mine")
    dashboard = run.dashboard()
    assert dashboard.wait(20)
    dashboard.metric = "mine"
    assert dashboard.wait(20)
    assert not called
    assert not dashboard.computed
    dashboard.compute()
    assert dashboard.wait(20)
    assert dashboard.computed
    # it took 4 s, and other places take as long
    view = view_of(run)
    names = [choice.value for choice in view.checkpoint_choices()]
    dashboard.checkpoint = names[0]
    assert dashboard.wait(20)
    assert called == [0, 0]
    dashboard.close()
    assert view.missing("mean_mine", "last", names[-1]).short
    add(10)
    assert not view.missing("mean_mine", "last", names[-1]).short, "12 s"


def test_kept_values_are_shown_without_their_function_and_it_is_said(
    run, own_scores, tmp_path
):
    @mw.score("gone", spoken="Gone <b>now</b>", tau=0.25, version="3")
    def gone(representations, labels):
        "Gone is what it was."
        return representations.sum(axis=1) + labels

    wanted = run.score("gone")
    own_scores.clear()
    again = mw.Audit.open(run.path)
    assert again.score("gone").equals(wanted)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = again.flagged("gone")
    assert any("the function of gone is not here" in str(one.message) for one in said)
    assert found["score"].tolist() == sorted(wanted[wanted <= 0.25])
    page = tmp_path / "gone.html"
    command = ["report", run.path, str(page), "--metric", "gone"]
    printed(f"from memowidgets.__main__ import main\nmain({command!r})")
    text = page.read_text("utf-8")
    assert "Gone &lt;b&gt;now&lt;/b&gt; made the prediction" in text
    assert "Gone is what it was." in text
    assert "<b>now" not in text
    twin = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert "the function of gone is not here" in json.dumps(twin)
    for ask in (
        lambda: again.score("gone", checkpoint=1),  # where nothing was kept
        lambda: again.score("../gone"),
    ):
        with pytest.raises(ValueError, match=r"unknown score .*gone'; valid: psmi"):
            ask()


@pytest.mark.parametrize(
    ("name", "how", "definition"),
    [
        ("ranks", {"mean_rank": ("part", "csl")}, "adds the ranks of the samples"),
        (
            "means",
            {"mean_over_checkpoints": "part"},
            "is its mean over the checkpoints",
        ),
    ],
)
def test_a_score_made_of_kept_ones_is_shown_without_the_cell_that_made_it(
    name, how, definition, run, own_scores, tmp_path
):
    def add(version):
        @mw.score("part", version=version)
        def part(representations, labels):
            "Part is a sum."
            return representations.sum(axis=1) + labels

        mw.score(name, spoken="Whole", tau=0.4, **how)

    asked = {"metric": name, "checkpoint": 3}
    add(None)
    run.score(**asked)
    own_scores.clear()
    with pytest.raises(ValueError, match=f"unknown score '{name}'"):
        run.score(**asked)
    add("7")
    wanted = run.score(**asked)
    own_scores.clear()
    again = mw.Audit.open(run.path)
    assert again.score(**asked).equals(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # its function is not here
        found = again.flagged(**asked)
        page = again.report(tmp_path / "whole.html", figures=False, **asked)
    assert found["score"].tolist() == sorted(wanted[wanted <= 0.4])
    text = page.read_text("utf-8")
    assert "Whole made the prediction" in text
    assert "Part is a sum." in text
    assert definition in text


def test_a_function_with_a_version_cannot_have_a_name_of_ours():
    with pytest.raises(ValueError, match="'psmi' is a name of memowidgets' own"):
        audit_of().score(lambda labels: labels, name="psmi", version="1")


def test_a_slow_score_is_cancelled_when_its_function_returns():
    audit, started, go_on = audit_of(), threading.Event(), threading.Event()

    @mw.score("slow")
    def slow(labels):
        started.set()
        go_on.wait(20)
        return labels

    seen, errors = [], []
    progress = Progress(seen.append)

    def work():
        try:
            audit.score("slow", progress=progress)
        except Cancelled as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(20)
    assert seen[0].what == "computing slow"
    progress.cancel()
    go_on.set()
    thread.join(20)
    assert errors
    assert audit.score("slow").tolist() == LABELS.tolist()  # what it returned is kept


def test_a_bar_says_what_is_computed_also_right_after_other_work():
    dashboard, said = audit_of().dashboard(), []
    assert dashboard.wait(20)

    def look(labels):
        said.append(dashboard._work["what"])
        return labels

    for name in ("first", "second", "third"):
        mw.score(name)(look)
        dashboard.refresh()
        dashboard.metric = name
        dashboard.compute()
        assert dashboard.wait(20)
    dashboard.close()
    assert said == [f"computing {name}" for name in ("first", "second", "third")]


def test_a_function_that_leaves_the_program_is_an_error_like_any_other():
    dashboard = audit_of().dashboard()
    assert dashboard.wait(20)
    mw.score("leaving")(lambda labels: sys.exit(len(labels)))
    dashboard.refresh()
    dashboard.metric = "leaving"
    dashboard.compute()
    assert dashboard.wait(20)
    assert "leaving" in dashboard._message["text"]
    assert dashboard._message["kind"] == "error"
    dashboard.close()


def test_what_a_score_lacks_is_said_when_it_is_picked(run):
    bare = audit_of(logits=None)
    needs = {
        "of_logits": (lambda logits: logits[:, 0], "logits="),
        "of_shadows": (lambda shadow_gaps: shadow_gaps[0], "shadow_gaps="),
        "of_references": (lambda reference_gaps: reference_gaps[0], "reference"),
        "of_losses": (lambda losses: losses[0], "checkpoint"),
    }
    for name, (function, _) in needs.items():
        mw.score(name)(function)
    view = view_of(bare)
    listed = [choice.value for choice in view.score_choices()]
    for name, (_, lacks) in needs.items():
        assert name in listed  # it can be picked, and then says it
        assert not view.is_computed(name, "last", "given")
        assert view.missing(name, "last", "given").why_not
        assert name not in bare.metrics
        with pytest.raises(ValueError, match=lacks):
            bare.score(name)
    assert {*needs} <= {*run.metrics}
    assert all(len(run.score(name)) == len(run.members) for name in needs)


def test_a_score_from_shadow_models_is_no_early_one(run):
    mw.score("of_shadows")(lambda shadow_gaps: shadow_gaps.mean(axis=0))
    eta = float(run.log_lira().median())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run.evaluate("of_shadows", eta=eta)
        assert any("share their noise" in note for note in found.warnings)
        assert "of_shadows" not in run.compare(eta=eta)["metric"].tolist()


def by_label(labels):
    return labels + 0.0


def test_ones_own_is_in_compare_figures_and_export(run, tmp_path):
    mw.score("mine", spoken="My <b>own</b>")(lambda labels: labels + 0.0)
    eta = float(run.log_lira().median())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = run.compare(eta=eta)
        assert table["metric"].tolist()[-1] == "mine"
        figures = run.figures(eta=eta)
        run.export(tmp_path / "mine.csv", "mine", share=0.1)
    assert "mine" in figures.data["roc"]["score"].tolist()
    assert "My <b>own</b>" in str(figures["roc"].to_dict())
    assert len((tmp_path / "mine.csv").read_text("utf-8").splitlines()) > 1
    both = run.compare([by_label, "mine"], truth="canaries")
    assert both["metric"].tolist() == ["by_label", "mine"]
