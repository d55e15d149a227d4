"""Samples of a frame of pandas keep the names that its index gives them, of their own type."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from torch import nn

import memowidgets as mw
from memowidgets.checks import id_text
from memowidgets.training.design import draw_design

N = 60
RNG = np.random.default_rng(5)
LABELS = np.arange(N) % 2
SHUFFLED = RNG.permutation(1000)[:N]
X = RNG.normal(size=(N, 6)) + 3 * LABELS[:, None]
INDEXES = {
    "integers": pd.Index(SHUFFLED),
    "default": pd.RangeIndex(N),
    "numbers with a name": pd.Index(SHUFFLED + 0.5, name="patient"),
    "dates": pd.date_range("2024-01-30", periods=N)[RNG.permutation(N)],
    "moments": pd.date_range("2024-01-30 07:30", periods=N, freq="h", tz="UTC"),
    "texts": pd.Index([f"row {i}" for i in SHUFFLED], name="id"),
    "several types": pd.Index([i if i % 2 else f"row {i}" for i in range(N)]),
    "two indexes": pd.MultiIndex.from_arrays([LABELS, SHUFFLED], names=["ward", "bed"]),
}


def frame_of(index: pd.Index) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    columns = {"age": rng.normal(60, 9, N), "ward": [f"ward {i % 3}" for i in range(N)]}
    return pd.DataFrame(columns, index).assign(label=LABELS)


@pytest.fixture(params=INDEXES.values(), ids=INDEXES)
def frame(request) -> pd.DataFrame:
    return frame_of(request.param)


def check_rows(audit: mw.Audit, frame: pd.DataFrame, tmp_path) -> None:
    """Check that whatever has ids finds the rows of the frame, and takes their ids again."""
    flagged = audit.flagged(share=0.2)
    assert frame.index.dtype == flagged.index.dtype
    rows = frame.loc[flagged.index]
    np.testing.assert_array_equal(flagged["label"], rows["label"].map(str))
    assert flagged.attrs["notes"] is not None
    scores = audit.score("psmi")
    assert scores.loc[flagged.index].tolist() == flagged["score"].tolist()
    assert scores.index.tolist() == list(audit.members)
    chosen = flagged.index[:4]
    assert audit.decision_log.decide(chosen, "remove") == 4
    assert audit.decision_log.decide(map(id_text, chosen), "keep") == 4
    assert audit.decision_log[chosen[0]].decision == "keep"
    assert audit.decision_log.decide(chosen.tolist(), "remove") == 4
    assert audit.decisions["id"].tolist() == chosen.tolist()
    kept = audit.kept()
    left = frame.drop(chosen)
    assert frame.loc[kept.index].equals(left)
    assert kept.to_frame().index.equals(left.index)
    again = kept.take(left.index[5:7])
    assert again.index.equals(left.index[5:7])
    assert kept.take(list(map(id_text, left.index[5:7]))).index.equals(again.index)
    assert len(kept.take([0, 1])) == 2
    lines = audit.export(tmp_path / "members.jsonl", share=0.2).read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [*map(id_text, flagged.index)]


def test_arrays_of_a_frame_are_named_by_its_index(frame, tmp_path):
    audit = mw.Audit.from_arrays(
        frame["label"], X, samples=frame.drop(columns="label"), canaries=LABELS < 1
    )
    check_rows(audit, frame, tmp_path)
    truth = audit.score("psmi") < 0
    expected = audit.evaluate("psmi", truth=truth.to_numpy()).auc
    by_texts = truth.set_axis(map(id_text, truth.index))
    for values in (truth, by_texts, truth.sample(frac=1, random_state=0)):
        assert audit.evaluate("psmi", truth=values).auc == expected


def test_log_lira_is_found_and_given_by_a_frames_index(frame):
    values = pd.Series(np.arange(N, dtype=float), frame.index)
    if isinstance(frame.index, pd.RangeIndex):
        shuffled = values
    else:
        shuffled = values.sample(frac=1, random_state=0)
    audit = mw.Audit.from_arrays(frame["label"], X, log_lira=shuffled)
    assert audit.log_lira().equals(values.rename("log_lira"))


@pytest.mark.parametrize("column", [None, "patient"])
def test_a_table_is_named_by_its_index_or_a_column(column, tmp_path):
    frame = frame_of(pd.Index(SHUFFLED + 1000, name=column))
    given = frame if column is None else frame.reset_index()
    data = mw.data.TableDataset.from_frame(given, ids=column)
    assert data.index.equals(frame.index)
    audit = mw.Audit.from_arrays(data.labels, X, samples=data)
    check_rows(audit, frame, tmp_path)
    assert audit.score("psmi").index.name == (column or "id")


def test_texts_images_and_questions_are_named_by_an_index():
    index = INDEXES["dates"]
    labels = pd.Series(LABELS, index)
    words = pd.Series([f"text {i}" for i in range(N)], index)
    asked = pd.DataFrame(
        {"question": words, "choices": [["no", "yes"]] * N, "answer": LABELS}, index
    )
    for data in (
        mw.data.TextDataset.from_texts(words, LABELS),
        mw.data.ImageDataset.from_arrays(
            np.random.default_rng(0).random((N, 2, 2)), labels
        ),
        mw.data.MCQDataset.from_records(asked),
    ):
        assert data.index.equals(index)
        assert data.ids[0] == str(index[0].date())
        assert data.take(index[3:5]).index.equals(index[3:5])
    texts = mw.data.TextDataset.from_texts(words, LABELS)
    new = texts.with_texts({index[3]: "another"})
    assert new.texts[3] == "another"
    assert new.index.equals(index)


def network(n_classes, n_features):
    return nn.Sequential(nn.Linear(n_features, 4), nn.Linear(4, n_classes))


def test_a_run_takes_and_gives_the_ids_of_a_frame(tmp_path):
    index = INDEXES["dates"]
    data = mw.data.TableDataset.from_frame(frame_of(index))
    model = mw.models.TorchClassifier(network, version="1")
    training = mw.TrainingConfig(epochs=1, precision="float32")
    run = {"training": training, "device": "cpu"}
    for members in (index[:40].to_numpy(), [*map(id_text, index[:40])]):
        design = draw_design(data, members, index[40:50], 0)
        assert data.index[design.members].equals(index[:40])
    wrong = pd.Series(np.arange(N) < 40, index).sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match=r"members\.loc\[data\.index\]"):
        draw_design(data, wrong, None, 0)
    folder = tmp_path / "run"
    audit = mw.Audit(
        model, data, folder, members=index[:40], held_out=index[40:50], **run
    )
    assert set(audit.members) == set(index[:40].to_numpy())
    audit.train()
    flagged = audit.score("loss").nsmallest(8).index
    audit.decision_log.decide(flagged, "remove")
    with pytest.warns(UserWarning, match="only members of the target"):
        fork = audit.fork(tmp_path / "fork")
    assert fork.data.index.equals(index.drop(flagged))
    opened = mw.Audit.open(folder, data=data, model=model, device="cpu")
    assert sorted(opened.decisions["id"]) == sorted(flagged)
    stored = mw.Audit.open(folder)  # which has texts alone
    assert stored.decisions["id"].tolist() == [*map(id_text, opened.decisions["id"])]


# What must not be mixed up


def shuffled(values: pd.Series) -> pd.Series:
    return values.sample(frac=1, random_state=3)


def test_the_same_rows_in_another_order_are_refused_with_both_remedies(frame):
    labels = shuffled(frame["label"])
    with pytest.raises(ValueError, match=r"another order.*\.loc\[.*\.to_numpy\(\)"):
        mw.Audit.from_arrays(labels, X, samples=frame)
    data = mw.data.TableDataset.from_frame(frame)
    with pytest.raises(ValueError, match=r"labels\.loc\[samples\.index\]"):
        mw.Audit.from_arrays(labels, X, samples=data)
    mask = shuffled(frame["age"] > 60)
    with pytest.raises(ValueError, match=r"mask\.loc\[data\.index\]"):
        data.take(mask)
    either = labels.loc[frame.index], labels.loc[frame.index].to_numpy()
    for given in either:
        audit = mw.Audit.from_arrays(given, X, samples=frame)
        np.testing.assert_array_equal(audit.labels, LABELS)


def test_what_is_advised_for_columns_in_another_order_is_taken():
    frame, rng = frame_of(INDEXES["integers"]), np.random.default_rng(0)
    labels = frame["label"]
    members = pd.DataFrame(rng.random((8, N)) < 0.5, columns=frame.index)
    gaps = pd.DataFrame(rng.normal(size=(8, N)), columns=frame.index)
    shuffled_gaps = gaps.sample(frac=1, axis=1, random_state=3)
    models = {"final_logits": X[:, :2], "shadow_members": members}
    both = (
        r"shadow_gaps\.T\.loc\[labels\.index\]\.T, .*shadow_gaps\.T\.to_numpy\(\)\.T "
    )
    with pytest.raises(ValueError, match=both):
        mw.Audit.from_arrays(labels, X, shadow_gaps=shuffled_gaps, **models)
    for given in (
        shuffled_gaps.T.loc[labels.index].T,
        shuffled_gaps.T.to_numpy().T,
    ):
        with warnings.catch_warnings():  # these gaps are noise
            warnings.simplefilter("ignore")
            audit = mw.Audit.from_arrays(labels, X, shadow_gaps=given, **models)
        assert audit.n_shadows == 8


def test_a_default_index_names_nothing():
    """As of features that are scaled, beside labels of a split."""
    frame = frame_of(pd.RangeIndex(N))
    labels = pd.Series(LABELS, SHUFFLED + N)
    audit = mw.Audit.from_arrays(labels, X, samples=frame)
    assert audit.score("psmi").index.equals(labels.index)
    with pytest.raises(ValueError, match="in another order"):
        mw.Audit.from_arrays(shuffled(frame["label"]), X, samples=frame)


def test_ids_by_which_loc_would_find_other_rows_are_texts():
    frame = frame_of(pd.RangeIndex(N))
    of_split = pd.Series(LABELS, SHUFFLED)  # some of them are positions, too
    counted = frame.assign(id=np.arange(1, N + 1))
    data = mw.data.TableDataset.from_frame(counted)
    for audit in (
        mw.Audit.from_arrays(of_split, X, samples=frame),
        mw.Audit.from_arrays(frame["label"], X, samples=counted),
        mw.Audit.from_arrays(frame["label"], X, ids=counted["id"]),
        mw.Audit.from_arrays(data.labels, X, samples=data),
    ):
        with pytest.raises(KeyError):
            frame.loc[audit.flagged(share=0.2).index]
        named = [audit.score("psmi").index[0]]
        assert audit.decision_log.decide([int(named[0])], "remove") == 1
        assert audit.decisions["id"].tolist() == named


def test_other_rows_are_refused_and_repeated_names_pair_where_they_are_equal():
    frame = frame_of(INDEXES["integers"])
    with pytest.raises(ValueError, match=r"other rows.*'row .*to_numpy\(\)"):
        mw.Audit.from_arrays(
            frame["label"].set_axis(INDEXES["texts"]), X, samples=frame
        )
    twice = frame.set_axis(SHUFFLED // 2 * 0 + np.arange(N) // 2)
    audit = mw.Audit.from_arrays(twice["label"], X, samples=twice)
    assert audit.score("psmi").index.tolist() == [str(i) for i in range(N)]
    with pytest.raises(ValueError, match="in another order"):
        mw.Audit.from_arrays(twice["label"][::-1], X, samples=twice)
    gaps = frame.set_axis([None, *SHUFFLED[1:]])
    assert mw.Audit.from_arrays(gaps["label"], X, samples=gaps).members[0] == "0"


def test_ids_that_are_given_rename_rows():
    frame = frame_of(INDEXES["integers"])
    names = [f"p{i}" for i in range(N)]
    for ids in (names, np.array(names), pd.Series(names, frame.index)):
        audit = mw.Audit.from_arrays(frame["label"], X, samples=frame, ids=ids)
        assert audit.members.tolist() == names
    for ids in (SHUFFLED[::-1].tolist(), pd.Series(SHUFFLED[::-1])):
        with pytest.raises(ValueError, match=r"in another order.*\.loc\[ids\]"):
            mw.Audit.from_arrays(frame["label"], X, samples=frame, ids=ids)
    with pytest.raises(ValueError, match="'1' is already used in row 0"):
        mw.Audit.from_arrays(LABELS, X, ids=[1, "1", *range(2, N)])


def test_two_samples_have_names():
    frame = frame_of(INDEXES["integers"])[:2]
    logits = np.array([[9.0, 0.0], [5.0, 7.0]])
    audit = mw.Audit.from_arrays(frame["label"], logits=logits, samples=frame)
    assert frame.loc[audit.flagged(share=0.5).index, "label"].tolist() == [1]
    data = mw.data.TableDataset.from_frame(frame, class_names=["a", "b"])
    assert data.index.equals(frame.index)
    with pytest.raises(ValueError, match="at least two classes"):
        mw.data.TableDataset.from_frame(frame[:1])
