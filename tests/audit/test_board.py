"""The scoreboard: the numbers of `evaluate`, on the same samples, with paired differences."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.evaluation import compare, roc
from tests.audit.conftest import small_audit, small_data

ETA = 1.0  # from which on enough of so few digits count as memorised


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Trained from another seed, without shadow models."""
    audit = small_audit(tmp_path_factory.mktemp("other") / "second", seed=5)
    audit.train()
    return audit


@pytest.fixture(scope="module")
def board(finished):
    return mw.scoreboard({"digits": finished}, eta=ETA)


def test_one_target_has_the_numbers_of_evaluate(finished, board):
    for row in board.table.itertuples():
        found = finished.evaluate(row.metric, eta=ETA, truth=row.truth)
        assert (row.auc, (row.auc_low, row.auc_high)) == (found.auc, found.auc_interval)
        assert (row.n, row.n_memorized) == (found.n, found.n_memorized)
        if row.metric != "psmi":
            test = compare(found, finished.evaluate("psmi", eta=ETA, truth=row.truth))
            assert row.difference == pytest.approx(test.difference)
            assert (row.difference_low, row.difference_high) == pytest.approx(test.interval)


def test_all_early_scores_are_there_and_the_baseline_is_not(board):
    everything = {"psmi", "loss", "logit_gap", "mahalanobis", "csl", "psmi_mean", "psmi+csl"}
    for truth in ("log_lira", "canaries"):
        assert set(board.table[board.table["truth"] == truth]["metric"]) == everything


def test_ranks_are_those_of_the_aucs(board):
    for _, rows in board.table.groupby("truth"):
        best_first = rows.sort_values("auc", ascending=False)["rank"]
        assert best_first.is_monotonic_increasing
        assert best_first.iloc[0] == 1
    ranks = board.ranks
    assert ranks["mean"].is_monotonic_increasing
    assert ranks.loc["psmi", "mean"] == board.table.query("metric == 'psmi'")["rank"].mean()
    assert set(ranks["n"]) == {2}


def test_targets_of_a_setting_are_pooled_by_sample_and_by_model(finished, other):
    board = mw.scoreboard({"digits": [finished, other]}, ["psmi", "loss"], "canaries")
    parts = [
        (a.score("loss"), np.isin(a.members, a.data.ids[a.data.canaries]))
        for a in (finished, other)
    ]
    samples = np.concatenate([scores.index for scores, _ in parts])
    pooled = roc(
        np.concatenate([scores.to_numpy() for scores, _ in parts]),
        np.concatenate([truth for _, truth in parts]),
        groups=samples,
        models=np.repeat([0, 1], [len(scores) for scores, _ in parts]),
    )
    row = board.table.set_index("metric").loc["loss"]
    assert row["n_targets"] == 2
    assert row["auc"] == pytest.approx(pooled.auc)
    assert (row["auc_low"], row["auc_high"]) == pytest.approx(pooled.auc_interval)


def test_samples_of_other_data_are_never_taken_for_the_same():
    rng = np.random.default_rng(0)

    def arrays(labels):
        planted = np.arange(40) < 8
        logits = rng.normal(size=(40, 2)) + 2 * np.eye(2)[labels] * ~planted[:, None]
        return mw.Audit.from_arrays(labels, logits=logits, canaries=planted)

    alike, others = np.arange(40) % 2, np.arange(40) // 2 % 2
    same = mw.scoreboard({"a": [arrays(alike), arrays(alike)]}, ["loss"], against="loss")
    differ = mw.scoreboard({"a": [arrays(alike), arrays(others)]}, ["loss"], against="loss")
    assert same.table["n"].item() == differ.table["n"].item() == 80
    from memowidgets.audit.board import _sample_names

    sources = [arrays(alike).evidence, arrays(alike).evidence, arrays(others).evidence]
    names = [name.iloc[0] for name in _sample_names(sources)]
    assert names[0] == names[1] != names[2]


def test_a_sample_is_the_same_in_other_data_if_its_content_is():
    """Other seeds of the canaries change 80 of 400 labels; other images have the same ids."""
    from memowidgets.audit.board import _sample_names

    data = small_data(), small_data(1), small_data().take(range(5, 400))
    turned = mw.data.ImageDataset.from_arrays(
        data[0].images[::-1], data[0].labels, data[0].class_names, ids=data[0].ids
    )
    audits = [
        mw.Audit.from_arrays(one.labels, logits=np.zeros((len(one), 10)), samples=one)
        for one in (*data, turned)
    ]
    first, other, part, last = _sample_names([audit.evidence for audit in audits])
    same = data[0].labels == data[1].labels
    assert 0 < (~same).sum() <= 80
    assert (first == other).to_numpy().tolist() == same.tolist()
    assert part.tolist() == first[part.index].tolist()
    assert (last != first).all()


def planted(n=40, seed=0, **changes):
    logits = np.random.default_rng(seed).normal(size=(n, 2))
    options = {"logits": logits, "canaries": np.arange(n) < 8} | changes
    return mw.Audit.from_arrays(np.arange(n) % 2, **options)


def test_no_audit_of_a_list_is_lost_to_another_of_the_same_name():
    table = mw.scoreboard([planted(), planted(seed=1)], ["loss"], "canaries").table
    assert table["setting"].nunique() == 2
    assert table["auc"].nunique() == 2


def test_a_target_without_any_sample_is_said():
    """The second has a log-LiRA for the members that have no PSMI alone."""
    rng = np.random.default_rng(0)
    labels = np.array([0, 1] * 20 + [2])
    given = {"representations": rng.normal(size=(41, 3)), "logits": rng.normal(size=(41, 3))}
    known = rng.normal(size=41) + 4
    alone = np.where(labels == 2, known, np.nan)
    audits = [mw.Audit.from_arrays(labels, **given, log_lira=lira) for lira in (known, alone)]
    with pytest.raises(ValueError, match=r"no member of .* has a truth and every score"):
        mw.scoreboard({"a": audits}, ["psmi", "loss"], "log_lira")
    assert mw.scoreboard({"a": audits[0]}, ["loss"], "log_lira").table["n_targets"].item() == 1


def test_a_score_that_one_target_lacks_takes_no_sample_from_the_others():
    """A class of one has no PSMI, and the second target has no representations."""
    labels = np.array([0, 1] * 20 + [2])
    rng = np.random.default_rng(1)
    logits, marked = rng.normal(size=(41, 3)), np.arange(41) % 5 == 0
    audits = [
        mw.Audit.from_arrays(labels, logits=logits, canaries=marked, representations=states)
        for states in (rng.normal(size=(41, 3)), None)
    ]
    board = mw.scoreboard({"a": audits}, ["psmi", "loss"], "canaries")
    assert board.table[["metric", "n"]].to_numpy().tolist() == [["loss", 82]]
    assert "a: no psmi" in board.missing[0]


def test_what_to_know_of_a_setting_is_said(tmp_path):
    training = mw.TrainingConfig(epochs=1, batch_size=64, label_noise=0.1, precision="float32")
    audit = small_audit(tmp_path / "noisy", training=training)
    audit.train()
    board = mw.scoreboard({"noisy": audit}, ["loss", "psmi"], "canaries")
    assert any(note.startswith("noisy: label noise is on: 10.0%") for note in board.notes)
    assert any("has not learned" in note for note in board.notes)
    assert "note: noisy: label noise" in repr(board)


def test_all_scores_are_judged_on_the_same_samples():
    """A class of one has no PSMI, so no score is judged on it."""
    labels = np.array([0, 1] * 20 + [2])
    rng = np.random.default_rng(1)
    audit = mw.Audit.from_arrays(
        labels,
        rng.normal(size=(41, 3)) + labels[:, None],
        rng.normal(size=(41, 3)),
        canaries=np.arange(41) % 5 == 0,
    )
    assert set(mw.scoreboard([audit]).table["n"]) == {40}
    assert set(mw.scoreboard([audit], ["loss"], against="loss").table["n"]) == {41}


def test_a_function_of_an_audit_is_a_score(finished):
    scores = {
        "array": lambda audit: audit.score("loss").to_numpy(),
        "by id": lambda audit: audit.score("loss").sort_values(),
        "loss": "loss",
    }
    table = mw.scoreboard([finished], scores, eta=ETA, against="loss").table
    assert set(table.loc[table["metric"] != "loss", "difference"]) == {0}
    assert table.groupby("truth")["auc"].nunique().eq(1).all()


def test_what_is_missing_is_said(finished, other):
    board = mw.scoreboard([finished, other], ["psmi", "baseline"])
    assert set(board.table["setting"]) == {"run", "second"}
    said = " ".join(board.missing)
    assert "second, by log-LiRA" in said
    assert "second: no baseline" in said
    assert "baseline" in repr(board)
    assert "missing: second" in repr(board)


def test_it_can_be_taken_apart_and_drawn(board):
    table, chart = board
    assert table is board.table
    drawn = chart.to_dict()
    rows = next(iter(drawn["datasets"].values()))
    assert len(rows) in (7, 14)
    assert "7 scores in 2 rankings" in drawn["description"]
    assert board.figure("dark").to_dict()["background"] != drawn["background"]
