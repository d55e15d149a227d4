"""`variance="hierarchical"` through audits: its covariates, its probability, and the curve."""

import warnings
from typing import get_args

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit.numbers.truth import against, member_gaps
from memowidgets.memorization import hierarchical_probability, log_lira, probability_memorized
from memowidgets.memorization.densities import Variance


@pytest.fixture(scope="module")
def recorded():
    return mw.open_recorded("mmlu-field-smollm2")


def parts(audit, checkpoint="final"):
    """Gaps over the pool, masks and early gaps of all shadow models, and columns of the members."""
    source = audit.evidence
    final, early = (source.names.record(name).name for name in (checkpoint, "prediction"))
    last, before = (source.shadows.read(name) for name in (final, early))
    np.testing.assert_array_equal(last.indices, before.indices)
    return last.gaps, last.members, before.gaps, np.isin(source.pool, source.member_rows)


def test_log_lira_is_that_of_the_pools_gaps(recorded):
    gaps, members, early, judged = parts(recorded)
    target = recorded.evidence.target_gaps(recorded.evidence.names.record("final"))
    expected, errors = log_lira(
        gaps, members, target, "hierarchical", return_std=True, early_gaps=early, judged=judged
    )
    found, std = recorded.log_lira(variance="hierarchical", return_std=True)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(found, expected[known])
    np.testing.assert_array_equal(std, errors[known])
    assert found.attrs["covariates"] == "epoch-3.5"
    assert found.index.equals(recorded.log_lira().index)
    assert np.corrcoef(found, recorded.log_lira())[0, 1] > 0.8
    chance = hierarchical_probability(gaps, members, target, 4.0, early_gaps=early, judged=judged)
    said = recorded.probability_memorized()
    np.testing.assert_array_equal(said, chance[known])
    assert (recorded.probability_memorized(6.0) <= said).all()


def test_uncertain_labels_are_the_probability_of_their_variance(recorded):
    posterior = recorded.evaluate("loss", uncertain=True, variance="hierarchical")
    assert posterior.n_memorized == pytest.approx(recorded.probability_memorized().sum())
    by_values = recorded.evaluate("loss", uncertain=True)
    values, errors = recorded.log_lira(return_std=True)
    score = recorded.score("loss")[values.index]
    expected = probability_memorized(values, errors, 4.0, score)
    assert by_values.n_memorized == pytest.approx(np.nansum(expected))


def test_what_was_computed_for_one_question_answers_no_other(recorded):
    asked = [
        recorded.log_lira(),
        recorded.log_lira(variance="hierarchical"),
        recorded.log_lira("prediction", "hierarchical"),
        recorded.probability_memorized(4.0),
        recorded.probability_memorized(2.0),
        recorded.probability_memorized(2.0, "prediction"),
    ]
    for i, one in enumerate(asked):
        for other in asked[:i]:
            assert not np.array_equal(one.to_numpy(), other.reindex(one.index).to_numpy())
    asked[3].iloc[0] = 7.0
    assert recorded.probability_memorized(4.0).iloc[0] != 7.0


def test_the_prediction_checkpoint_is_no_covariate_of_itself(recorded):
    found = recorded.log_lira("prediction", "hierarchical")  # and no warning, which is an error
    assert found.attrs["covariates"] is None


def test_evaluate_and_compare_take_it(recorded):
    found = recorded.evaluate("loss", variance="hierarchical")
    memorized = recorded.log_lira(variance="hierarchical") >= 4
    assert found.n_memorized == memorized.sum() != recorded.evaluate("loss").n_memorized
    assert found.by_chance is None
    assert recorded.evaluate("loss", variance="global").by_chance is not None
    table = recorded.compare("loss", variance="hierarchical")
    assert table["auc"].tolist() == [found.auc]
    both = recorded.compare_memorization(variance="hierarchical", n_bootstrap=2)
    np.testing.assert_array_equal(
        both.values["log_lira"], recorded.log_lira(variance="hierarchical")[both.values.index]
    )


def test_the_curve_of_all_variances(recorded):
    table = recorded.shadow_curve("loss", variance="all", sizes=[4, 8], repeats=1)
    assert table["variance"].tolist() == [name for name in get_args(Variance) for _ in range(2)]
    alone = recorded.shadow_curve("loss", sizes=[4, 8], repeats=1)
    own = table[table["variance"] == "shrunk"].drop(columns="variance")
    np.testing.assert_array_equal(own, alone)
    assert list(table.attrs["enough"]) == list(get_args(Variance))
    assert table.attrs["enough"]["shrunk"] == alone.attrs["enough"]
    agreement = table.pivot_table("agreement", "n_shadows", "variance")
    assert agreement["hierarchical"].min() > agreement["shrunk"].max()
    chart = mw.charts.shadow_curves(table, "agreement").to_dict()
    (rows,) = chart["datasets"].values()
    assert {row["variance"] for row in rows} == set(get_args(Variance))


def test_a_shadow_model_as_the_target(recorded):
    target = recorded.as_target(3)
    found = target.log_lira(variance="hierarchical")
    gaps, members, early, _ = parts(recorded)
    rest = np.arange(len(gaps)) != 3
    judged = members[3]
    expected = log_lira(
        gaps[rest],
        members[rest],
        gaps[3][judged],
        "hierarchical",
        early_gaps=early[rest],
        judged=judged,
    )
    np.testing.assert_array_equal(found, expected[~np.isnan(expected)])
    assert found.attrs["covariates"] == "epoch-3.5"
    assert 0 < target.probability_memorized().mean() < 0.2


def test_its_evidence_has_the_order_of_the_shadow_models(finished):
    """Disjoint subsets are drawn by row, for log-LiRA and for the definitions beside it."""
    target = finished.as_target(3)
    target.log_lira(variance="hierarchical")  # the gaps of the run's target over the pool
    source = target.evidence
    record = source.names.record("final")
    assert source.shadows.read(record.name).indices.tolist()[-1] == -1, "the run's target"
    evidence = against(source, record, "hierarchical")
    _, members, gaps, _ = member_gaps(source, record.name)
    assert evidence.early is not None
    np.testing.assert_array_equal(evidence.members[:, evidence.judged], members)
    np.testing.assert_array_equal(evidence.gaps[:, evidence.judged], gaps)
    before = source.shadows.read(source.names.prediction().record.name)
    np.testing.assert_array_equal(evidence.early, before.gaps)


def arrays(recorded, **changes):
    gaps, members, early, judged = parts(recorded)
    source = recorded.evidence
    given = {
        "labels": recorded.labels,
        "logits": source.logits(source.names.record("final")),
        "shadow_gaps": gaps[:, judged],
        "shadow_members": members[:, judged],
        "early_shadow_gaps": early[:, judged],
    }
    return mw.Audit.from_arrays(**(given | changes)), given


def test_arrays_with_early_gaps(recorded, tmp_path):
    audit, given = arrays(recorded, path=tmp_path / "kept")
    expected = log_lira(
        given["shadow_gaps"],
        given["shadow_members"],
        audit.evidence.target_gaps(audit.evidence.names.record("final")),
        "hierarchical",
        early_gaps=given["early_shadow_gaps"],
    )
    found = audit.log_lira(variance="hierarchical")
    np.testing.assert_array_equal(found, expected[~np.isnan(expected)])
    assert found.attrs["covariates"] == "given"
    opened = mw.Audit.open(tmp_path / "kept")
    np.testing.assert_allclose(opened.log_lira(variance="hierarchical"), found, rtol=1e-6)
    np.testing.assert_allclose(opened.probability_memorized(), audit.probability_memorized())


@pytest.mark.parametrize(("n_shadows", "warned"), [(7, 1), (8, 0)])
def test_probabilities_from_few_shadow_models_say_so(recorded, n_shadows, warned):
    _, given = arrays(recorded)
    given |= {name: given[name][:n_shadows] for name in given if name.startswith("shadow_")}
    given["early_shadow_gaps"] = given["early_shadow_gaps"][:n_shadows]
    audit = mw.Audit.from_arrays(**given)
    for _ in range(2):  # the second time from memory
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            audit.probability_memorized()
        assert [w.filename for w in caught] == [__file__] * warned
        assert all(str(n_shadows) in str(w.message) for w in caught)


def test_arrays_without_early_gaps_say_so(recorded):
    audit, given = arrays(recorded, early_shadow_gaps=None)
    with pytest.warns(UserWarning, match="early_shadow_gaps= to Audit.from_arrays"):
        found = audit.log_lira(variance="hierarchical")
    assert found.attrs["covariates"] is None
    with_covariates = arrays(recorded)[0].log_lira(variance="hierarchical")
    assert not np.array_equal(found, with_covariates)
    early = given["early_shadow_gaps"]
    for wrong, sentence in (
        (early[:3], r"same shape, .*\(3, 1000\) and \(32, 1000\)"),
        (np.full_like(early, np.nan), "early_shadow_gaps"),
    ):
        with pytest.raises(ValueError, match=sentence):
            arrays(recorded, early_shadow_gaps=wrong)
    with pytest.raises(ValueError, match="early_shadow_gaps needs shadow_gaps="):
        arrays(recorded, shadow_gaps=None, shadow_members=None)


def test_log_lira_as_it_was_given_has_no_probability(recorded):
    audit, _ = arrays(
        recorded,
        shadow_gaps=None,
        shadow_members=None,
        early_shadow_gaps=None,
        log_lira=np.zeros(1000),
    )
    for ask in (
        audit.probability_memorized,
        lambda: audit.log_lira(variance="hierarchical"),
    ):
        with pytest.raises(ValueError, match="probabilities, other variances and modes need"):
            ask()


def test_shadow_models_without_gaps_at_the_prediction_checkpoint(recorded, monkeypatch):
    audit = mw.open_recorded("mmlu-field-smollm2")
    monkeypatch.setattr(type(audit.run.shadows), "checkpoints", lambda _: ("epoch-6",))
    with pytest.warns(UserWarning, match=r"no logit gaps at epoch-3\.5.*run_shadows"):
        found = audit.log_lira(variance="hierarchical")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert audit.log_lira(variance="hierarchical").equals(found)  # said once
    assert found.attrs["covariates"] is None
