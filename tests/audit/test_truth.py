"""Definitions compared, shadow models counted, uncertain labels: on a small audit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import memowidgets as mw
from tests.training.small import trained


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    training = mw.TrainingConfig(epochs=3, batch_size=8, checkpoint_every=3)
    audit = trained(tmp_path_factory.mktemp("truth") / "run", training=training)
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(16, executor, design="balanced")
    return audit


def test_definitions_are_ranked_against_each_other(audit):
    found = audit.compare_memorization(n_bootstrap=100)
    assert list(found.values) == ["log_lira", "attack_success_rate", "counterfactual", "rmia"]
    assert found.values.index.isin(audit.members).all()
    assert len(found.spearman) == 6
    for row in found.spearman.itertuples():
        expected = spearmanr(found.values[row.a], found.values[row.b]).statistic
        assert row.rho == pytest.approx(expected)
        assert row.low <= row.rho <= row.high
    np.testing.assert_array_equal(found.values["log_lira"], audit.log_lira())
    assert "rho" in found._repr_html_()


def test_the_figure_counts_every_sample(audit):
    found = audit.compare_memorization(n_bootstrap=2)
    figure = found.figure()
    (cells,) = figure.to_dict()["datasets"].values()
    assert sum(cell["samples"] for cell in cells) == len(found.values)
    assert "image/svg+xml" in figure._repr_mimebundle_()
    with pytest.raises(ValueError, match="lacks size; it has log_lira, attack"):
        found.figure(x="size")


def test_the_curve_ends_at_all_shadow_models(audit):
    eta = float(audit.log_lira().quantile(0.8))
    table = audit.shadow_curve("loss", "last", "final", eta=eta, repeats=4)
    assert table["n_shadows"].tolist() == [4, 8, 16]
    last = table.iloc[-1]
    assert last["rho"] == pytest.approx(1)
    assert last["agreement"] == 1
    assert last["auc"] == pytest.approx(audit.evaluate("loss", "last", "final", eta=eta).auc)
    assert last["memorized"] == (audit.log_lira() >= eta).sum()
    assert table["rho"].is_monotonic_increasing
    for name in ("auc", "memorized", "agreement", "rho"):
        assert (table[f"{name}_low"] <= table[f"{name}_high"]).all()
    assert len(mw.charts.shadow_curves(table).layer) == 2
    with pytest.raises(ValueError, match="from 4 to the 16 shadow models"):
        audit.shadow_curve("loss", sizes=[64])
    with pytest.raises(ValueError, match="lacks the columns auc"):
        mw.charts.shadow_curves(pd.DataFrame({"n_shadows": [4]}))


def test_uncertain_labels(audit):
    values, errors = audit.log_lira(return_std=True)
    assert values.index.equals(errors.index)
    assert (errors > 0).all()
    eta = float(values.quantile(0.8))
    found = audit.evaluate("loss", checkpoint="final", eta=eta, uncertain=True)
    scores = audit.score("loss", checkpoint="final")[values.index]
    probability = mw.memorization.probability_memorized(values, errors, eta, scores)
    assert found.n_memorized == pytest.approx(probability.sum())
    assert any("labels are uncertain" in note for note in found.warnings)
    with pytest.raises(ValueError, match='only truth="log_lira"'):
        audit.evaluate("loss", truth="canaries", uncertain=True)


def test_offline_log_lira(audit):
    offline = audit.log_lira(mode="offline")
    assert (offline >= 0).all()
    with pytest.raises(ValueError, match="'online', 'offline'"):
        audit.log_lira(mode="both")
