"""Definitions compared, shadow models counted: on a small audit."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.audit.numbers.definitions import disjoint
from memowidgets.audit.numbers.scores import SHARED_NOISE
from tests.training.small import trained


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    training = mw.TrainingConfig(epochs=3, batch_size=8, checkpoint_every=3)
    audit = trained(tmp_path_factory.mktemp("truth") / "run", training=training)
    audit.run_shadows(16, design="balanced")
    return audit


def test_definitions_are_ranked_against_each_other(audit):
    found = audit.compare_memorization()
    assert list(found.values) == [
        "log_lira",
        "attack_success_rate",
        "counterfactual",
        "rmia",
    ]
    assert found.values.index.isin(audit.members).all()
    assert len(found.spearman) == 6
    for row in found.spearman.itertuples():
        assert -1 <= row.rho <= 1
        assert row.low <= row.rho <= row.high
        assert row.reliability_a <= 1
    np.testing.assert_array_equal(found.values["log_lira"], audit.log_lira())
    assert "disjoint sets of 8 shadow models" in found.note
    assert found.note in found._repr_html_()
    (cells,) = found.figure().to_dict()["datasets"].values()
    assert sum(cell["samples"] for cell in cells) == len(found.values)
    with pytest.raises(ValueError, match="lacks size; it has log_lira, attack"):
        found.figure(x="size")


def test_each_model_is_counted_as_the_target_that_it_can_be(finished):
    with pytest.warns(
        UserWarning, match="samples are not counted, because fewer than nine"
    ):
        counts = finished.memorized_per_model(eta=1.0)
    assert counts.index.tolist() == [*range(20), "target"]
    models = finished.evidence.all_models("epoch-4")
    inside = models.members.sum(axis=0)
    counted = finished.data.ids[
        finished.evidence.pool[np.minimum(inside, 21 - inside) >= 9]
    ]
    for index in ("target", 0, 7):
        target = finished if index == "target" else finished.as_target(index)
        values = target.log_lira()
        own = values[values.index.isin(counted)]
        assert counts["memorized"][index] == (own >= 1.0).sum() > 0
    assert (counts["truly"] > 0).all()
    assert (counts["truly"] < len(counted)).all()
    with pytest.raises(ValueError, match="eta must be"):
        finished.memorized_per_model(eta=float("nan"))


def test_the_curve_compares_disjoint_halves(audit):
    eta = float(audit.log_lira().quantile(0.8))
    table = audit.shadow_curve("loss", "last", "final", eta=eta, repeats=4)
    assert table["n_shadows"].tolist() == [4, 8]
    assert (table["overlap"] < 1).all()
    for name in ("auc", "memorized", "overlap", "agreement"):
        assert (table[f"{name}_low"] < table[f"{name}_high"]).all()
    assert len(mw.charts.shadow_curves(table).layer) == 4
    with pytest.raises(ValueError, match="lacks auc"):
        mw.charts.shadow_curves(pd.DataFrame({"n_shadows": [4]}))


def of_gaps(gaps, members, target):
    """An audit of samples whose gaps are known."""
    labels = np.arange(len(target)) % 2
    with warnings.catch_warnings():  # noise has no order
        warnings.filterwarnings("ignore", ".*samples in another order")
        return mw.Audit.from_arrays(
            labels,
            np.random.default_rng(0).normal(size=(len(target), 3)),
            final_logits=np.where(np.eye(2, dtype=bool)[labels], target[:, None], 0.0),
            shadow_gaps=gaps,
            shadow_members=members,
        )


def test_a_flat_curve_of_noise_is_not_enough():
    rng, n, m = np.random.default_rng(0), 60, 32
    audit = of_gaps(
        rng.normal(size=(m, n)), rng.random((m, n)) < 0.5, rng.normal(size=n)
    )
    assert audit.shadow_curve("psmi", repeats=5)["agreement"].abs().max() < 0.3


def test_two_sixteens_of_the_recorded_audit_agree_as_measured(recorded):
    """METHOD.md: Jaccard .42 and Spearman .70, where a subset of the whole had .61 and .91."""
    row = recorded.shadow_curve("loss", repeats=10).set_index("n_shadows").loc[16]
    assert row["overlap"] == pytest.approx(0.42, abs=0.06)
    assert row["agreement"] == pytest.approx(0.70, abs=0.04)
    found = recorded.compare_memorization().spearman.set_index(["a", "b"])
    rho = found.loc[("attack_success_rate", "counterfactual"), "rho"]
    assert rho == pytest.approx(0.53, abs=0.06)  # .82 from the same shadow models


@pytest.mark.parametrize(
    ("m", "size", "pairs"), [(16, 8, True), (18, 8, True), (9, 4, False)]
)
def test_halves_share_no_shadow_model_and_split_no_pair(m, size, pairs):
    for seed in range(20):
        one, other = disjoint(np.random.default_rng(seed), m, size, pairs=pairs)
        assert len(one) == len(other) == size
        assert not set(one) & set(other)
        if pairs:
            assert all(i ^ 1 in one for i in one)


def test_noise_is_not_shared(audit):
    """Definitions of gaps that are noise alone agree only where they share shadow models."""
    rng = np.random.default_rng(0)
    gaps, target = rng.normal(size=(16, 600)), 2 + rng.normal(size=600)
    members = np.argsort(rng.random((16, 600)), axis=0) < 8
    by = {
        m: of_gaps(gaps[:m], members[:m], target).compare_memorization()
        for m in (6, 16)
    }
    rho = {
        m: found.spearman.set_index(["a", "b"]).loc[("log_lira", "counterfactual")].rho
        for m, found in by.items()
    }
    assert "share their noise" in by[6].note
    assert "too low" in by[16].note
    assert by[6].spearman["reliability_b"].isna().all(), "too few to split"
    assert abs(rho[16]) < 0.15 < 0.5 < rho[6]


def test_the_baseline_says_what_it_shares_with_the_truth(audit):
    eta = float(audit.log_lira().quantile(0.8))
    assert SHARED_NOISE in audit.evaluate("baseline", eta=eta).warnings
    assert SHARED_NOISE not in audit.evaluate("loss", eta=eta).warnings


def test_the_probability_is_that_of_values_and_errors(recorded):
    values, errors = recorded.log_lira(return_std=True)
    found = recorded.probability_memorized(2.0)
    expected = mw.memorization.probability_memorized(values, errors, 2.0)
    np.testing.assert_array_equal(found, expected)
    assert found.index.equals(values.index)
    assert (recorded.probability_memorized(6.0) <= found).all()


@pytest.mark.parametrize(("n_shadows", "warned"), [(7, 1), (8, 0)])
def test_probabilities_from_few_shadow_models_say_so(n_shadows, warned):
    rng = np.random.default_rng(0)
    members = np.argsort(rng.random((n_shadows, 60)), axis=0) < 4
    audit = of_gaps(rng.normal(size=(n_shadows, 60)), members, rng.normal(size=60))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        audit.probability_memorized()
    assert [w.filename for w in caught] == [__file__] * warned
    assert all(str(n_shadows) in str(w.message) for w in caught)
