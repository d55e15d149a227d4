"""How many are truly memorised, and every shadow model in its turn as the target, pooled."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.audit.evidence import Arrays, Cache
from memowidgets.audit.numbers import scores
from memowidgets.evaluation import roc
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.intervals import SortedScores, TrueArea, bias_of
from memowidgets.memorization.posterior import redrawn_truths
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from tests.training.small import tiny_audit, trained


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    made = trained(tmp_path_factory.mktemp("pooled") / "run")
    made.run_shadows(4)
    chosen = made.data.canaries | (np.arange(len(made.data)) % 4 == 0)
    made.run_shadows(6, design="canaries", audited=chosen, keep_forward=True)
    return made


def by_hand(audit, truth, eta):
    """All pairs of a member and a shadow model, with ids."""
    rows, canary = [], pd.Series(audit.data.canaries, audit.data.ids)
    for index in range(6):
        target = audit.as_target(index)
        memorized = canary if truth == "canaries" else target.log_lira() >= eta
        both = {"s": target.score("psmi"), "m": memorized}
        rows.append(pd.concat(both, axis=1, join="inner").assign(of=index))
    return pd.concat(rows)


@pytest.mark.parametrize("truth", ["log_lira", "canaries"])
def test_pooled_pairs_are_those_of_every_target(audit, truth):
    eta = float(audit.as_target(0).log_lira().median())
    found, pairs = (
        audit.evaluate_pooled("psmi", eta=eta, truth=truth),
        by_hand(audit, truth, eta),
    )
    assert (found.n, found.n_memorized) == (len(pairs), pairs["m"].sum())
    alone = roc(
        pairs["s"], pairs["m"].astype(bool), groups=pairs.index, models=pairs["of"]
    )
    assert found.auc == pytest.approx(alone.auc)
    assert found.auc_interval == pytest.approx(alone.auc_interval)
    assert found.at(0.0) == alone.at(0.0)
    assert (
        f"{len(pairs)} rows of {pairs.index.nunique()} samples and 6 models"
        in " ".join(found.warnings)
    )
    everybody = sum(len(audit.as_target(i).members) for i in range(6))
    left_out = f"{everybody - len(pairs)} pairs are left out"
    assert (left_out in " ".join(found.warnings)) == (everybody > len(pairs))
    if truth == "log_lira":
        ordinary = pairs[~pairs.index.isin(audit.data.ids[audit.data.canaries])]
        found = audit.evaluate_pooled("psmi", eta=eta, with_canaries=False)
        assert (found.n, found.n_memorized) == (len(ordinary), ordinary["m"].sum())


def test_the_truth_comes_from_the_design_in_use(audit):
    key = next(key for key in audit.shadow_sets if key.startswith("canaries"))
    assert audit.shadow_sets == {"halves": 4, key: 6}
    judged = audit.log_lira()
    audit.use_shadows("halves")
    assert audit.n_shadows == 4
    assert len(audit.log_lira()) != len(judged)
    with pytest.raises(StoreError, match="kept no forward pass"):
        audit.evaluate_pooled("psmi")
    assert tiny_audit(audit.path).n_shadows == 4  # remembered
    audit.use_shadows("canaries")
    assert audit.log_lira().equals(judged)
    assert mw.Audit.open(audit.path).n_shadows == 6
    with pytest.raises(
        ValueError, match=r"no set of shadow models is of the design 'balanced'"
    ):
        audit.use_shadows("balanced")
    audit.run_shadows(2, design="canaries", audited=list(audit.members[:30]))
    with pytest.raises(
        ValueError, match=r"2 sets of shadow models are of the design 'canaries'"
    ):
        audit.use_shadows("canaries")
    audit.use_shadows(key)
    assert audit.n_shadows == 6


def test_without_shadow_models_there_is_nothing_to_pool(tmp_path):
    with pytest.raises(StoreError, match="there are no shadow models"):
        trained(tmp_path / "alone").evaluate_pooled()
    labels, rng = np.arange(60) % 3, np.random.default_rng(0)
    logits, members = rng.normal(size=(60, 3)), rng.random((6, 60)) < 0.5
    gaps = mw.metrics.logit_gap(logits, labels) + rng.normal(size=(6, 60))
    shadows = {"shadow_gaps": gaps, "shadow_members": members, "final_logits": logits}
    given = mw.Audit.from_arrays(labels, logits=logits, **shadows)
    for asks in (
        lambda: given.use_shadows("halves"),
        lambda: given.evaluate_pooled("loss"),
    ):
        with pytest.raises(StoreError, match="an audit of arrays cannot"):
            asks()


# on recordings: the errors that METHOD.md measured, and how many are truly memorised


@pytest.fixture(scope="module")
def cifar():
    audit = mw.open_recorded("cifar10-wrn")
    audit.use_shadows("canaries")
    return audit


def deviation(found):
    return np.nanstd(found.groups.areas(found.scores, found.memorized), ddof=1)


def test_models_add_to_the_error_of_samples(cifar):
    found = cifar.evaluate_pooled("loss", with_canaries=False, progress=Progress())
    by_sample = roc(found.scores, found.memorized, groups=found.groups.of_row)
    # of 1000 draws: ± 2 % each
    assert deviation(by_sample) == pytest.approx(0.0159, rel=0.06)
    assert deviation(found) == pytest.approx(0.0218, rel=0.06)


def test_one_target_is_by_sample_alone_and_no_positive_is_said(cifar):
    one = cifar.evaluate_pooled("loss", targets=[3], eta=2.0, progress=Progress())
    assert any("only 1 model," in note for note in one.warnings)
    with pytest.raises(ValueError, match="no sample is memorised"):
        cifar.evaluate_pooled("loss", eta=1e9, targets=[0, 1], progress=Progress())


def test_pooled_evaluations_say_how_many_are_truly_memorised(cifar):
    found = cifar.evaluate_pooled("loss", targets=[0, 1], progress=Progress())
    expected = 0.0
    for index in (0, 1):
        target = cifar.as_target(index)
        memorized = target.log_lira() >= 4
        expected += target.probability_memorized()[memorized].sum()
    assert found.n_truly == pytest.approx(expected)
    assert f"about {expected:.0f} of them truly" in found.warnings[-1]
    planted = cifar.evaluate_pooled(
        "loss", truth="canaries", targets=[0], progress=Progress()
    )
    assert planted.n_truly is None


@pytest.mark.parametrize(
    ("name", "counted", "truly"),
    [
        ("mmlu-field-smollm2", 35, 15),
        ("cifar10-wrn", 326, 176),
        ("banking77-smollm2", 349, 291),
        ("patients-smollm2", 29, 22),
    ],
)
def test_an_evaluation_says_how_many_are_truly_memorised(name, counted, truly):
    """METHOD.md has these numbers."""
    audit = mw.open_recorded(name)
    found = audit.evaluate("psmi")
    probability = audit.probability_memorized()
    assert found.n_truly == pytest.approx(probability[audit.log_lira() >= 4].sum())
    (note,) = (one for one in found.warnings if one.key == "truly")
    assert note.numbers == {
        "memorized": counted,
        "truly": found.n_truly,
        "n_shadows": 32,
    }
    for fact in (
        f"{counted} memorised",
        f"about {truly} of them truly",
        "32 shadow models",
    ):
        assert fact in note


def test_other_truths_have_no_such_number(recorded):
    memorized = recorded.log_lira() >= 4
    assert recorded.evaluate("psmi", truth=memorized).n_truly is None
    values = np.arange(-20.0, 20.0)
    given = mw.Audit.from_arrays([0, 1] * 20, logits=values, log_lira=values)
    assert given.evaluate("loss").n_truly is None


def test_the_dashboard_says_it_too(recorded):
    dashboard = recorded.dashboard()
    assert dashboard.wait(20)
    assert dashboard._late["truly"] == "of the 35, about 15 truly"
    warnings = recorded.evaluate("psmi").warnings
    said_once = [said for said in warnings if "of them truly" not in said]
    assert len(said_once) == len(warnings) - 1
    assert dashboard._late["remarks"] == said_once
    dashboard.eta_committed = 8.0  # the number of another η, which a wheel turned to
    assert dashboard.wait(20)
    fewer = recorded.evaluate("psmi", eta=8.0)
    assert dashboard.evaluation.n_truly == fewer.n_truly < 15
    dashboard.close()


def test_the_page_compares_two_scores_as_python_does(recorded):
    dashboard = recorded.dashboard()
    assert dashboard.wait(20)
    shown = {"checkpoint": dashboard.checkpoint, "layer": dashboard.layer}
    dashboard.comparing = [{**shown, "metric": "loss"}]
    assert dashboard.wait(20)
    both = recorded.evaluate("psmi"), recorded.evaluate("loss")
    sent = dashboard._compared
    assert sent["area"] == "AUC for the true labels"
    marked = {row["auc"][0]: row["auc"][1:] for row in sent["areas"] if row["marked"]}
    assert marked == {one.true_auc: one.true_auc_interval for one in both}
    for end in mw.evaluation.compare(*both).true_interval:
        assert f"{abs(end):.2f}" in sent["said"]
    dashboard.close()


@pytest.mark.parametrize("metric", ["psmi", "baseline"])
def test_the_auc_for_the_true_labels_is_that_of_calibrated_probabilities(
    recorded, metric
):
    found = recorded.evaluate(metric)
    values, errors = recorded.log_lira(return_std=True)
    scores = recorded.score(metric)[values.index]
    independent = None if metric == "baseline" else scores
    asked = values, errors, 4.0, independent
    area = TrueArea(
        SortedScores.of(scores.to_numpy()),
        mw.memorization.probability_memorized(*asked),
        lambda: bias_of(scores.to_numpy(), redrawn_truths(*asked)),
    )
    assert (found.true_auc, found.true_auc_interval) == (area.auc, area.interval)
    assert list(found.areas) == ["AUC for the true labels", "AUC given these labels"]
    assert list(found.areas.values())[1] == (found.auc, found.auc_interval)
    many = found.with_truly(Truly(15.0, 64, found.calibrated))
    assert list(many.areas) == ["AUC given these labels", "AUC for the true labels"]
    of_table = recorded.compare(metric, truth="log_lira").iloc[0]
    columns = of_table[["true_auc", "true_auc_low", "true_auc_high"]]
    assert tuple(columns) == (area.auc, *area.interval)
    patients = mw.open_recorded("patients-smollm2")
    unknown = patients.compare("psmi", truth="canaries").iloc[0]
    assert np.isnan(unknown["true_auc"])
    planted = patients.evaluate("psmi", truth="canaries")
    assert planted.true_auc is planted.true_auc_interval is None
    assert list(planted.areas) == ["AUC"]


def test_a_nan_in_a_kept_pass_is_said_and_no_score():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    logits = rng.normal(size=(60, 2)) + 9 * np.eye(2)[labels]
    given = mw.Audit.from_arrays(labels, logits=logits).evidence
    kept = given.checkpoints["given"]
    for name in ("losses", "logits"):
        values = np.array(kept.made[name])
        values[7] = np.nan
        arrays = {"losses": kept.made["losses"], "logits": kept.made["logits"]}
        made = Arrays(arrays | {name: values})
        broken = replace(
            given, checkpoints={"given": replace(kept, made=made)}, cache=Cache()
        )
        ask = {"losses": ("loss",), "logits": ("logit_gap",)}[name]
        with pytest.raises(ValueError, match=r"1 of 60 \w+ are NaN.* 7\b"):
            scores.score(broken, *ask)
    with pytest.raises(ValueError, match=r"logits at given .*1 of 60 members"):
        scores.probabilities(broken, "given")


# without a ground truth


def test_without_a_truth_scores_are_compared_with_the_first(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    centres = 2 * np.eye(6)[labels]
    layers = {
        "early": rng.normal(size=(90, 6)),
        "late": rng.normal(size=(90, 6)) + centres,
    }
    logits = rng.normal(size=(90, 3)) + 2 * np.eye(3)[labels]
    audit = mw.Audit.from_arrays(labels, layers, logits=logits)
    table = audit.compare(["psmi", "loss"], layers="all")
    assert table[["metric", "layer"]].to_numpy().tolist() == [
        ["psmi", "early"],
        ["psmi", "late"],
        ["loss", ""],
    ]
    assert (table["n"] == 90).all()
    each = [
        audit.score("psmi", "early"),
        audit.score("psmi", "late"),
        audit.score("loss"),
    ]
    first = each[0]
    n_flagged = int((first <= 0).sum())
    for row, other in zip(table.itertuples(), each, strict=True):
        assert row.rho == pytest.approx(first.corr(other, method="spearman"))
        assert (row.tenth, row.flagged) == (9, n_flagged)
        for budget, both in ((9, row.tenth_both), (n_flagged, row.flagged_both)):
            lowest = [set(scores.nsmallest(budget).index) for scores in (first, other)]
            assert both == len(lowest[0] & lowest[1])
    assert table["rho"][0] == 1
    assert table["tenth_both"][0] == 9


def test_it_is_over_the_members_that_have_both_scores():
    labels = np.array([0, 1] * 10 + [2])  # which PSMI leaves out
    rng = np.random.default_rng(0)
    audit = mw.Audit.from_arrays(
        labels, rng.normal(size=(21, 3)), logits=rng.normal(size=(21, 3))
    )
    assert audit.compare(["psmi", "loss"])["n"].tolist() == [20, 20]
    assert audit.compare(["loss", "psmi"])["n"].tolist() == [21, 20]


def test_a_mask_that_is_given_is_not_called_planted():
    rng = np.random.default_rng(0)
    labels, mask = np.arange(90) % 3, np.arange(90) % 4 == 0
    audit = mw.Audit.from_arrays(
        labels, rng.normal(size=(90, 4)), logits=rng.normal(size=(90, 3))
    )
    audit.score("psmi")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a model that has not learned
        found = audit.evaluate("psmi", truth=mask)
        figures = audit.figures(truth=mask)
    assert [*figures]
    said = [repr(found), found._repr_html_(), str(figures.missing)]
    said += [str(figures[name].to_dict()) for name in figures]
    said += [str(note) for notes in figures.notes.values() for note in notes]
    assert "given" in said[0]
    assert not [text for text in said if "planted" in text]
