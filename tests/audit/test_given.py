"""An audit of anyone's own arrays says what the rooms say, and refuses what does not fit."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.audit.views.answers import AuditView
from memowidgets.audit.views.report import content_of
from memowidgets.decisions import Decision
from memowidgets.memorization import log_lira
from memowidgets.store import REVISION, StoreError
from tests.audit.conftest import small_audit

N, CLASSES, SHADOWS = 240, 3, 24
NAMES = [f"patient-{i:03d}" for i in range(N)]


def arrays(seed: int = 0) -> dict:
    """Classes well apart; the first ten samples have a wrong label and are memorised."""
    rng = np.random.default_rng(seed)
    labels = np.arange(N) % CLASSES
    seen = labels.copy()
    seen[:10] = (seen[:10] + 1) % CLASSES
    place = 5 * np.eye(CLASSES, 12)[seen]
    members = rng.random((SHADOWS, N)) < 0.5
    gaps = rng.normal(size=(SHADOWS, N)) + np.where(np.arange(N) < 10, 9, 0.2) * members
    logits = rng.normal(size=(N, CLASSES)) + 3 * np.eye(CLASSES)[labels]
    gaps += mw.metrics.logit_gap(logits, labels)  # some samples are easier than others
    logits[np.arange(10), labels[:10]] += 6
    return {
        "labels": labels,
        "representations": {
            "early": rng.normal(size=(N, 4)),
            "late": rng.normal(size=(N, 12)) + place,
        },
        "logits": logits,
        "shadow_gaps": gaps.astype(np.float32),
        "shadow_members": members,
        "final_logits": logits,
    }


NO_SHADOWS = dict.fromkeys(("shadow_gaps", "shadow_members", "final_logits"))


def audit_of(**changes) -> mw.Audit:
    given = arrays() | changes
    return mw.Audit.from_arrays(**{k: v for k, v in given.items() if v is not None})


@pytest.fixture(scope="module")
def audit() -> mw.Audit:
    return audit_of()


# What it says


def test_scores_are_those_of_the_metrics_room(audit):
    parts = arrays()
    y, logits = parts["labels"], parts["logits"]
    for number, (name, X) in enumerate(parts["representations"].items(), start=1):
        expected = mw.metrics.PSMI(random_state=0).fit(X, y).score_samples(X, y)
        np.testing.assert_array_equal(audit.score("psmi", layer=name), expected)
        assert audit.score("psmi", layer=number).equals(audit.score("psmi", layer=name))
        expected = mw.metrics.Mahalanobis().fit(X).score_samples(X)
        np.testing.assert_array_equal(audit.score("mahalanobis", layer=name), expected)
    np.testing.assert_allclose(audit.score("loss"), mw.metrics.loss(logits, y))
    np.testing.assert_allclose(
        audit.score("logit_gap"), mw.metrics.logit_gap(logits, y)
    )
    assert audit.score("psmi").equals(audit.score("psmi", layer="late"))
    assert audit.layers == ("early", "late")


def test_the_truth_is_that_of_the_memorization_room(audit):
    parts = arrays()
    target = mw.metrics.logit_gap(parts["logits"], parts["labels"])
    given = parts["shadow_gaps"], parts["shadow_members"], target
    # its prior is searched for
    for variance, tolerance in (
        ("shrunk", 1e-4),
        ("global", 1e-9),
    ):
        found, expected = audit.log_lira(variance=variance), log_lira(*given, variance)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    values, errors = audit.log_lira(return_std=True)
    assert values.equals(audit.log_lira())
    assert np.isfinite(errors).all()
    memorized = audit.log_lira() >= 4
    evaluation = audit.evaluate("psmi")
    expected = mw.evaluation.roc(audit.score("psmi"), memorized)
    assert evaluation.auc == expected.auc
    assert evaluation.n_memorized == memorized.sum() >= 10
    np.testing.assert_array_equal(audit.score("baseline"), -audit.log_lira())


def test_log_lira_is_that_of_the_finished_model_and_scores_are_those_of_the_early_one():
    parts = arrays()
    early = parts["logits"] / 3 + 1
    audit, both = audit_of(logits=early), audit_of()
    assert audit.log_lira().equals(both.log_lira())
    np.testing.assert_allclose(
        audit.score("loss"), mw.metrics.loss(early, parts["labels"])
    )
    expected = mw.metrics.logit_gap(early, parts["labels"])
    np.testing.assert_array_equal(audit.score("logit_gap"), expected)
    alone = audit_of(logits=None)  # PSMI is early, and the truth needs no early logits
    assert alone.log_lira().equals(mw.Audit.from_arrays(**parts).log_lira())
    assert alone.evaluate("psmi").n_memorized == both.evaluate("psmi").n_memorized
    assert "logit_gap" not in alone.metrics


def test_the_rest_of_the_audit_works_on_it(audit):
    table = audit.compare(layers="all", checkpoints="all")
    assert table[["metric", "layer"]].to_numpy().tolist() == [
        ["psmi", "early"], ["psmi", "late"], ["loss", ""], ["logit_gap", ""],
        ["mahalanobis", "early"], ["mahalanobis", "late"],
    ]  # fmt: skip
    comparison = audit.compare_memorization()
    assert (
        comparison.values["counterfactual"]
        .nlargest(10)
        .index.isin(audit.members[:10])
        .all()
    )
    assert audit.shadow_curve(repeats=2)["n_shadows"].tolist() == [4, 8, SHADOWS // 2]
    with pytest.warns(UserWarning, match="τ = 0 may be strict"):
        found = audit.flagged(tau=0.0)
    assert set(audit.members[:10]) <= set(found.index)
    assert found.columns.tolist() == [
        "score",
        "std",
        "label",
        "guess",
        "p_label",
        "log_lira",
    ]
    planted = audit_of(canaries=np.arange(N) < 10).evaluate("psmi", truth="canaries")
    assert audit.evaluate("psmi", truth=np.arange(N) < 10).auc == planted.auc
    assert planted.n_memorized == 10


def test_there_is_one_checkpoint_by_all_its_names(audit):
    for name in ("prediction", "final", "given"):
        assert audit.score("loss", checkpoint=name).equals(audit.score("loss"))
    with pytest.raises(ValueError, match=r"valid: prediction, final, .* given"):
        audit.score("loss", checkpoint=2.0)
    assert audit.checkpoints.index.tolist() == ["given"]
    assert (
        audit.checkpoints[["epoch", "step", "drop", "test_loss"]].isna().all(axis=None)
    )
    right = arrays()["logits"].argmax(axis=1) == arrays()["labels"]
    assert audit.checkpoints["train_accuracy"].tolist() == [right.mean()]
    assert audit.checkpoints["median_loss"].iloc[0] == -audit.score("loss").median()


def test_a_log_lira_as_given_is_the_truth():
    values = np.where(np.arange(N) < 10, 9.0, -1.0)
    values[50] = np.nan
    audit = audit_of(log_lira=values, **NO_SHADOWS)
    found = audit.log_lira()
    assert len(found) == N - 1
    assert found.attrs["left_out"] == 1
    assert audit.evaluate("psmi").n_memorized == 10
    assert audit.has_ground_truth
    for ask in (lambda: audit.log_lira(return_std=True), audit.probability_memorized):
        with pytest.raises(
            ValueError, match="shadow_gaps=, shadow_members= and final_logits="
        ):
            ask()
    both = audit_of(log_lira=values)
    assert both.log_lira().equals(found)
    assert both.log_lira(variance="global").equals(
        audit_of().log_lira(variance="global")
    )


def test_a_series_by_id_is_put_in_order():
    values = pd.Series(np.arange(N, dtype=float), NAMES).sample(frac=1, random_state=1)
    audit = audit_of(log_lira=values, ids=NAMES)
    assert audit.log_lira().tolist() == list(range(N))
    part = audit_of(log_lira=values.drop(NAMES[3]), ids=NAMES)
    assert NAMES[3] not in part.log_lira().index


@pytest.mark.parametrize(
    "what", ["labels", "canaries", "logits", "representations", "shadow_gaps"]
)
def test_values_by_id_in_another_order_are_refused(what):
    parts = arrays() | {"canaries": np.arange(N) < 5}
    values = (parts | {"representations": parts["representations"]["late"]})[what]
    axis = "columns" if what == "shadow_gaps" else "index"
    table = (pd.Series if values.ndim == 1 else pd.DataFrame)(values, **{axis: NAMES})
    shuffled = table[NAMES[::-1]] if axis == "columns" else table[::-1]
    assert audit_of(**{what: table}, ids=NAMES).members.tolist() == NAMES
    with pytest.raises(
        ValueError, match=rf"{what}(\.T)? has the rows of .* in another"
    ):
        audit_of(**{what: shuffled}, ids=NAMES)


def test_columns_by_class_in_another_order_are_refused():
    parts = arrays()
    names = np.array(["slow", "acute", "mild"])
    table = pd.DataFrame(parts["logits"], columns=names)
    given = {"labels": names[parts["labels"]], "logits": table}
    with pytest.raises(ValueError, match="logits has the columns"):
        audit_of(**given)
    losses = audit_of(**given, class_names=list(table.columns)).score("loss")
    np.testing.assert_array_equal(losses, audit_of().score("loss"))


@pytest.mark.parametrize("how", ["own", "frozen view", "map"])
def test_arrays_that_are_changed_later_change_nothing(how, tmp_path):
    """Only a map for reading, which nobody can change, is not copied."""
    torch = pytest.importorskip("torch")
    parts = arrays()
    view = parts["representations"]["late"].astype(np.float32)
    parts["representations"]["late"] = view
    if how == "frozen view":
        view = view.view()
        view.flags.writeable = False  # its owner can still write
    elif how == "map":
        np.save(tmp_path / "x.npy", view)
        view = np.load(tmp_path / "x.npy", mmap_mode="r")
    given = parts | {
        "representations": {"late": view, "later": torch.from_numpy(view + 1)},
        "logits": pd.DataFrame(parts["logits"]),
    }
    audit, expected = (
        mw.Audit.from_arrays(**given),
        audit_of(representations={"late": view + 0}),
    )
    assert np.shares_memory(audit.representation("late"), view) == (how == "map")
    parts["representations"]["late"][:] = 1
    given["representations"]["later"][:] = 1
    for values in (parts["logits"], parts["shadow_gaps"], parts["shadow_members"]):
        values[:] = values[::-1].copy()
    parts["labels"][:] = 0
    for metric in ("psmi", "mahalanobis", "loss", "logit_gap"):
        np.testing.assert_array_equal(
            audit.score(metric, "late"), expected.score(metric)
        )
    assert audit.score("mahalanobis", "later").std() > 0
    np.testing.assert_array_equal(audit.log_lira(), expected.log_lira())


def test_what_is_given_away_changes_nothing(audit):
    expected = audit.score("mahalanobis")

    def rude(representations, logits, labels):
        for array in (representations, logits, labels):
            array[:] = 0
        return representations[:, 0]

    assert (audit.score(rude) == 0).all()
    assert audit.score("mahalanobis").equals(expected)
    states = arrays()["representations"]["late"].astype(np.float32)
    given_away = audit_of(representations=states).representation()
    for array in (given_away, audit.members, audit.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = array[::-1]


def test_lists_and_tensors_are_arrays():
    import torch

    parts = arrays() | {"representations": arrays()["representations"]["late"]}
    tensors = {name: torch.from_numpy(values) for name, values in parts.items()}
    tensors["representations"].requires_grad_()
    tensors |= {name: tensors[name].bfloat16() for name in ("logits", "final_logits")}
    lists = {name: tensor.tolist() for name, tensor in tensors.items()}
    one, other = mw.Audit.from_arrays(**tensors), mw.Audit.from_arrays(**lists)
    assert one.score("psmi").equals(other.score("psmi"))
    assert one.log_lira().equals(other.log_lira())
    assert one.score("psmi").equals(audit_of().score("psmi"))


def test_layers_with_numbers_go_by_their_numbers_and_more_axes_are_flattened():
    X = arrays()["representations"]["late"]
    audit = audit_of(representations={12: X.reshape(N, 3, 2, 2), 3: X[:, :2]})
    assert audit.layers == ("3", "12")
    with pytest.raises(
        ValueError, match=r"unknown layer 1; valid: last, or a name of .*12"
    ):
        audit.representation(1)
    assert audit.score("psmi", layer=12).equals(audit.score("psmi"))
    assert audit.score("psmi").equals(audit_of(representations=X).score("psmi"))


# Samples


def questions(n: int) -> mw.data.MCQDataset:
    rows = [
        {
            "question": f"Which ward, {i}?",
            "choices": list("wxyz"[: 2 + i % 3]),
            "answer": i % 2,
        }
        for i in range(n)
    ]
    return mw.data.MCQDataset.from_records(rows)


def test_a_question_has_its_own_options():
    data = questions(60)
    logits = np.random.default_rng(0).normal(size=(60, 4))
    logits[:, 3] = 50.0  # which only every third question has
    audit = mw.Audit.from_arrays(data.labels, logits=logits, samples=data)
    without = data.n_choices < 4
    own = np.where(np.arange(4) >= data.n_choices[:, None], -np.inf, logits)
    expected = mw.metrics.logit_gap(own, data.labels)
    np.testing.assert_allclose(audit.score("logit_gap"), expected)
    assert (audit.score("logit_gap")[without] > -20).all()
    probabilities = audit.probabilities()
    assert (probabilities[without, 3] == 0).all()
    assert (probabilities[data.n_choices == 2, 2] == 0).all()


def test_the_guard_counts_a_questions_own_options():
    rows = [
        {"question": f"{i}?", "choices": ["x", "y"], "answer": i % 2} for i in range(40)
    ]
    rows.append({"question": "?", "choices": list("vwxyz"), "answer": 0})
    data = mw.data.MCQDataset.from_records(rows)
    logits = np.zeros((41, 5))
    logits[np.arange(41), data.labels] = (
        0.5  # 0.47 nats of log(2) = 0.69, far below half of log(5)
    )
    audit = mw.Audit.from_arrays(data.labels, logits=logits, samples=data)
    assert "half of log(2) = 0.35" in audit.evidence.notes_at("final")[0]


RECORDS = [
    {"question": f"{i}?", "choices": ["x", "y", "z"], "answer": "x", "id": f"q{i}"}
    for i in range(N)
]


@pytest.mark.parametrize(
    ("samples", "kind", "name"),
    [
        ([f"text {i}" for i in range(N)], "TextDataset", "7"),
        ([{"text": f"text {i}", "id": f"t{i}"} for i in range(N)], "TextDataset", "t7"),
        (pd.Series([f"text {i}" for i in range(N)]), "TextDataset", "7"),
        (RECORDS, "MCQDataset", "q7"),
        (pd.DataFrame(RECORDS), "MCQDataset", "q7"),
        (
            np.random.default_rng(0).integers(0, 256, (N, 8, 8), np.uint8),
            "ImageDataset",
            "7",
        ),
    ],
)
def test_samples_of_every_kind_are_shown_and_kept(samples, kind, name):
    audit = audit_of(samples=samples)
    assert type(audit.data).__name__ == kind
    np.testing.assert_array_equal(audit.data.labels, arrays()["labels"])
    audit.decision_log.decide([name], "remove")
    kept = audit.kept()
    assert len(kept) == N - 1
    assert name not in kept.ids.tolist()
    assert audit.decisions["id"].map(str).tolist() == [name]


def visits():
    """A table as a clinic has it: dates, notes, amounts, gaps."""
    days = pd.Series(pd.date_range("2024-01-01", periods=N, tz="Europe/Berlin"))
    notes = [f'=SUM({i})\r\n"well", \r{i}\u2028so' for i in range(N)]
    return pd.DataFrame(
        {
            "day": days.where(days.index % 7 > 0),
            "born": [day.date() for day in days],
            "note": [None, "", " ", *notes[3:]],
            "stay": pd.to_timedelta(np.arange(N), unit="h"),
            "paid": [Decimal(i) / 7 for i in range(N)],
            "code": pd.Series([f"{i:03d}" for i in range(N)], dtype="string[pyarrow]"),
            "ward": pd.Categorical([*"ABC"] * (N // 3)),
            "beds": pd.array([None, *range(1, N)], dtype="Int64"),
            "ill": pd.array([None, *[True, False] * (N // 2)][:N], dtype="boolean"),
            "dose": np.where(np.arange(N) == 3, np.inf, 1e-310),
            "account": [10**19 + i for i in range(N)],
            3: [[i] for i in range(N)],
        }
    )


@pytest.mark.parametrize("how", ["to_csv", "to_jsonl"])
def test_a_table_of_anything_is_written_and_read_again(how, tmp_path):
    audit = audit_of(samples=visits(), class_names=["a\rb", "=c", "d, e"])
    audit.decision_log.decide(["5"], "remove")
    kept = audit.kept()
    assert {"account", "code", "day", "dose"} <= {
        name for name, values in kept.columns.items() if values.dtype == object
    }
    assert kept.columns["day"][1].startswith("2024-01-02 00:00:00+01:00")
    again = getattr(kept, how)(tmp_path / "visits")
    # a file has no index
    assert again.to_frame().equals(kept.to_frame().reset_index(drop=True))
    assert again.content_hashes() == kept.content_hashes()


TEXTS = [f"text {i}" for i in range(N)]


def with_third(value):
    return [*TEXTS[:3], value, *TEXTS[4:]]


@pytest.mark.parametrize(
    ("samples", "facts"),
    [
        (with_third("half \ud83d"), "row 3 of samples.*half a character"),
        (pd.DataFrame({"text": with_third(np.nan)}), "row 3 of samples: .*missing"),
        (
            pd.DataFrame({"note": with_third("\ud83d")}, dtype=object),
            "'note' in row 3.*half",
        ),
        (pd.DataFrame([[1, 2]] * N, columns=["x", "x"]), "samples: two columns.*'x'"),
    ],
)
def test_samples_that_no_file_can_hold_are_refused_by_their_row(samples, facts):
    with pytest.raises(ValueError, match=facts):
        audit_of(samples=samples)


def test_an_empty_text_is_shown_and_no_file_of_texts_has_it(tmp_path):
    audit = audit_of(samples=with_third(" "))
    assert audit.data[3] == " "
    with pytest.raises(ValueError, match=r"texts\.csv is not written: line 5.*missing"):
        audit.kept().to_csv(tmp_path / "texts.csv")


def test_without_samples_ids_are_shown_and_nothing_is_kept(audit):
    assert audit.member_data[3].id == "3"
    with pytest.raises(StoreError, match="only their ids: give samples="):
        audit.kept()


# Decisions


def test_decisions_are_kept_where_asked_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    audit_of().decision_log.decide(["3"], "remove")
    assert not list(tmp_path.iterdir())
    first = audit_of(path=tmp_path / "mine")
    first.decision_log.decide(["3"], "remove", note="names a patient")
    first.score("psmi")
    again = audit_of(path=tmp_path / "mine")
    assert again.decision_log["3"] == Decision("remove", "names a patient")
    assert Path(again.path) == tmp_path / "mine"
    files = {
        p.name for p in (tmp_path / "mine").iterdir() if not p.name.startswith(".")
    }
    kept = {"arrays.safetensors", "scores", "manifest.json", "decisions.csv"}
    assert files == {*kept, REVISION}
    mixed = np.random.default_rng(0).permutation(arrays()["labels"])
    for other in ({"ids": NAMES}, {"labels": mixed}):
        with pytest.raises(ValueError, match="decisions on other samples"):
            audit_of(path=tmp_path / "mine", **other)


def test_arrays_with_a_path_are_a_run_like_others(tmp_path):
    first = audit_of(path=tmp_path / "mine", class_names=["x", "y", "z"], seed=3)
    first.decision_log.decide(["3"], "remove")
    again = mw.Audit.open(tmp_path / "mine")
    for one, other in ((again, first), (first, again)):
        assert one.score("psmi").equals(other.score("psmi"))
        assert one.log_lira().equals(other.log_lira())
    assert again.data.class_names == first.data.class_names
    assert again.checkpoints.equals(first.checkpoints)
    assert again.decision_log["3"] == Decision("remove")
    with pytest.raises(StoreError, match="only their ids: give data="):
        again.kept()
    with pytest.raises(ValueError, match="which has no model: pass data= alone"):
        mw.Audit.open(tmp_path / "mine", model=mw.models.ConvNet(4))
    with pytest.raises(
        StoreError, match="holds an audit of arrays, not the run of a model"
    ):
        small_audit(tmp_path / "mine")


def test_scores_of_arrays_are_kept_as_long_as_the_arrays_are_the_same(
    tmp_path, monkeypatch
):
    path = tmp_path / "mine"
    wanted = audit_of(path=path).score("psmi")
    monkeypatch.setattr(mw.registry.table, "PSMI", None)
    assert mw.Audit.open(path).score("psmi").equals(wanted)
    assert audit_of(path=path).score("psmi").equals(wanted)
    monkeypatch.undo()
    other = arrays()["representations"]["late"] + 1.0
    other[:, 0] *= -3
    audit_of(path=path).decision_log.decide(["3"], "remove")
    for layers in ({"early": other, "late": other}, {"early": other}):
        changed = audit_of(path=path, representations=layers)
        assert not changed.score("psmi").equals(wanted)
        assert mw.Audit.open(path).score("psmi").equals(changed.score("psmi"))
    before = changed.score("psmi")
    one = audit_of(path=path, representations={"early": other}, seed=1)
    assert not one.score("psmi").equals(before)
    assert one.decision_log["3"] == Decision("remove")


def test_arrays_that_were_replaced_keep_no_scores(tmp_path):
    given = {"labels": [0, 1, 2] * 8, "representations": np.eye(24, 2)}
    logits = np.random.default_rng(0).normal(size=(24, 3))
    before = mw.Audit.from_arrays(**given, logits=logits, path=tmp_path)
    after = mw.Audit.from_arrays(**given, logits=3 * logits, path=tmp_path)
    of = {"name": "first", "version": "1"}
    with pytest.warns(UserWarning, match="not kept: .* another run"):
        before.score(lambda logits: logits[:, 0], **of)
    found = after.score(lambda logits: logits[:, 0], **of)
    np.testing.assert_allclose(found, 3 * logits[:, 0], rtol=1e-6)
    assert found.equals(mw.Audit.open(tmp_path).score(lambda labels: labels, **of))


def test_the_samples_of_arrays_are_given_again_and_never_written(tmp_path):
    texts = [f"secret words {i}" for i in range(N)]
    audit_of(path=tmp_path / "mine", samples=texts)
    on_disk = b"".join(
        p.read_bytes() for p in (tmp_path / "mine").rglob("*") if p.is_file()
    )
    assert b"secret words" not in on_disk
    data = mw.data.TextDataset.from_texts(texts, arrays()["labels"])
    again = mw.Audit.open(tmp_path / "mine", data=data)
    assert again.member_data[7] == data[7]
    assert len(again.kept()) == N
    audit_of(path=tmp_path / "mine")  # without samples, which are known from before
    other = mw.data.TextDataset.from_texts(["other", *texts[1:]], arrays()["labels"])
    with pytest.raises(
        ValueError, match="1 samples have another content, the first is '0'"
    ):
        mw.Audit.open(tmp_path / "mine", data=other)


def test_the_folder_of_a_run_is_refused(tmp_path):
    small_audit(tmp_path)
    with pytest.raises(ValueError, match="holds a run: choose another folder"):
        audit_of(path=tmp_path)


# What is missing is named


@pytest.mark.parametrize(
    ("given", "work", "words"),
    [
        ({"logits": None}, lambda a: a.score("loss"), "give Audit.from_arrays logits="),
        ({"logits": None}, lambda a: a.probabilities(), "logits="),
        ({"representations": None}, lambda a: a.score("psmi"), "representations="),
        (
            {"representations": None},
            lambda a: a.score("psmi", layer=2),
            "representations=",
        ),
        (
            {"representations": None},
            lambda a: a.score(lambda representations: representations[:, 0]),
            "representations=",
        ),
        (NO_SHADOWS, lambda a: a.evaluate("psmi"), "log_lira="),
        (NO_SHADOWS, lambda a: a.shadow_curve(), "shadow_gaps="),
        ({}, lambda a: a.evaluate("psmi", truth="canaries"), "canaries="),
        ({}, lambda a: a.run_shadows(8), "go into shadow_gaps="),
        ({}, lambda a: a.run_references(), "go into reference_gaps="),
        ({}, lambda a: a.score("reference"), "go into reference_gaps="),
        ({}, lambda a: a.as_target(1), "it has no model"),
        ({}, lambda a: a.training, "does not know how the model was trained"),
    ],
)
def test_what_is_missing_is_named_where_it_is_needed(given, work, words):
    with pytest.raises(ValueError, match=words):
        work(audit_of(**given))


@pytest.mark.parametrize(
    "missing", [{"logits": None}, {"representations": None, **NO_SHADOWS}]
)
def test_the_dashboard_shows_what_there_is(missing):
    audit = audit_of(**missing)
    dashboard = audit.dashboard()
    dashboard.compute()
    dashboard.wait()
    assert dashboard.computed, dashboard._message
    offered = [choice["value"] for choice in dashboard._choices["metrics"]]
    assert offered == list(audit.metrics)
    (checkpoint,) = dashboard._choices["checkpoints"]
    assert checkpoint["label"] == "as given"
    assert not checkpoint["marked"]  # nobody knows whether it is the ρ checkpoint
    assert dashboard.counts["n"] == N
    detail = dashboard._source.detail(0, *dashboard._choice)
    assert (detail.shadows is not None) == ("logits" in missing)
    assert audit._repr_html_().count("<tr>") >= 5
    dashboard.close()


# What does not fit


def bad(name: str, **changes) -> dict:
    array = arrays()[name]
    array = array["late"].copy() if isinstance(array, dict) else array.copy()
    for place, value in changes.pop("at", {}).items():
        array[place] = value
    return {name: changes.pop("turn", lambda x: x)(array)}


def probabilities():
    logits = arrays()["logits"].astype(np.float64)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


DIGITS = mw.data.load_digits().take(range(50))
OTHER = np.where(np.arange(50) == 4, (DIGITS.labels + 1) % 10, DIGITS.labels)
LOGITS = np.eye(10)[OTHER] * 9
OF_DIGITS = {"samples": DIGITS, "labels": DIGITS.labels, "logits": LOGITS, **NO_SHADOWS}


def shares(turn) -> dict:
    return {"logits": None, "probabilities": turn(probabilities())}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"representations": None, "logits": None},
            "pass representations=, logits=, or both",
        ),
        (
            bad("representations", at={(5, 7): np.inf, (9, 1): np.nan}),
            "2 of 240 .* row 5, col",
        ),
        (
            bad("representations", turn=lambda x: x.T),
            r"\(12, 240\) for 240 labels.*first axis",
        ),
        (
            bad("representations", turn=lambda x: x[:, 0]),
            r"\(240,\): a single feature is x\[:, N",
        ),
        ({"representations": {}, "logits": None}, "there is nothing to score"),
        (
            {"representations": {"a": np.zeros((N, 2)), 2: np.zeros((3, 2))}},
            r"\[2\] has shape \(3",
        ),
        (
            bad("logits", at={(3, 1): np.nan}),
            "logits must be finite: 1 of 240 .*row 3, column 1",
        ),
        (
            bad("logits", at={(3, 0): -np.inf}),
            r"logit of the label \(0\) of row 3 is -inf",
        ),
        (
            bad("logits", turn=lambda x: x[:, 0]) | NO_SHADOWS,
            "row 2 is 2, .* columns 0 to 1",
        ),
        (
            bad("logits", turn=lambda x: x[:, :, None]),
            r"must be \(n_samples, n_classes\)",
        ),
        (
            {"class_names": ["a", "b", "c", "d"]},
            r"3 columns for 4 classes \(a, b, c, d\)",
        ),
        ({"ids": [1, "1", *range(2, N)]}, "the id '1' is already used"),
        (bad("shadow_members", turn=lambda x: x.astype(int)), r"astype\(bool\)"),
        (
            bad("shadow_members", turn=lambda x: x.T),
            r"shadow_members must be \(n_models, 240\)",
        ),
        (bad("shadow_members", turn=lambda x: x[:3]), "the same shape"),
        (
            bad("shadow_gaps", at={(2, 9): np.nan}),
            "1 of 24 .* shadow model 2, column 9",
        ),
        ({"shadow_members": None}, "shadow_gaps needs shadow_members="),
        ({"final_logits": None}, r"needs final_logits=.*Pass final_logits=logits if"),
        (
            bad("final_logits", turn=lambda x: x[:, [0, 1, 2, 2]]),
            "final_logits has 4 columns for",
        ),
        (
            {"reference_gaps": np.where(np.arange(N) == 3, np.nan, 0)[None]},
            "1 samples.* '3'",
        ),
        (
            {"reference_gaps": np.where(np.arange(N) == 3, np.inf, 0)[None]},
            "column 3; pass NaN",
        ),
        (
            {"reference_gaps": np.zeros((N, 1))},
            r"reference_gaps must be \(n_models, 240\)",
        ),
        ({"log_lira": np.zeros(N - 1)}, "one value for each of 240 samples"),
        ({"log_lira": np.full(N, np.nan)}, "NaN for every sample"),
        (
            {"log_lira": pd.Series(np.zeros(N), NAMES)},
            "log_lira is indexed by 'patient-000'",
        ),
        ({"canaries": np.zeros(N, int)}, r"canaries must be bool.*astype\(bool\)"),
        ({"samples": ["text"] * 3}, "3 samples but 240 labels"),
        (
            {"samples": [object()] * N},
            "row 0 of samples is of type object; give a dataset",
        ),
        ({"samples": "text"}, "not str"),
        ({"probabilities": probabilities()}, "logits= or probabilities="),
        (
            shares(lambda p: p / 2),
            "in each row, but 240 rows do not, .* row 0 with a sum of 0.5",
        ),
        (shares(np.log), "log-probabilities.* go into logits="),
        (
            shares(lambda p: np.where(np.arange(N)[:, None] == 7, np.nan, p)),
            "1 of 240 .* row 7",
        ),
        (OF_DIGITS | {"labels": OTHER}, "disagree on 1 labels, the first in row 4"),
        (
            OF_DIGITS | {"logits": LOGITS + 1, "ids": NAMES[:50]},
            "ids of their own, which differ",
        ),
        (OF_DIGITS | {"class_names": list("abc")}, "leave class_names out"),
    ],
)
def test_what_does_not_fit_is_said(given, words):
    with pytest.raises((ValueError, TypeError), match=re.compile(words, re.DOTALL)):
        audit_of(**given)


def test_probabilities_in_place_of_logits_are_noticed():
    for given in ((arrays()["labels"], probabilities()), ([0, 1, 1], [0.2, 0.6, 0.9])):
        with pytest.warns(UserWarning, match="look like probabilities.*probabilities="):
            mw.Audit.from_arrays(given[0], logits=given[1])


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_probabilities_give_the_scores_of_their_logits(dtype):
    given, logits = (
        audit_of(logits=None, probabilities=probabilities().astype(dtype)),
        audit_of(),
    )
    accuracy = {np.float64: 1e-6, np.float16: 0.05}[dtype]
    for metric in ("loss", "logit_gap"):
        np.testing.assert_allclose(
            given.score(metric), logits.score(metric), atol=accuracy
        )
    np.testing.assert_allclose(given.probabilities(), logits.probabilities(), atol=1e-3)
    assert given.evaluate("loss").auc == pytest.approx(
        logits.evaluate("loss").auc, abs=0.01
    )


def test_decisions_and_probabilities_of_two_classes_have_one_value_for_each_sample():
    labels, z = np.arange(60) % 2, np.random.default_rng(0).normal(size=60) * 3
    two = mw.Audit.from_arrays(labels, logits=np.column_stack([0 * z, z]))
    share = 1 / (1 + np.exp(-z))
    for outputs in ({"logits": z}, {"logits": z[:, None]}, {"probabilities": share}):
        one = mw.Audit.from_arrays(labels, **outputs)
        for metric in ("loss", "logit_gap"):
            np.testing.assert_allclose(one.score(metric), two.score(metric), atol=1e-9)
    reference = np.log(np.where(labels == 1, share, 1 - share))
    np.testing.assert_allclose(two.score("loss"), reference, atol=1e-9)


def test_probabilities_of_exactly_0_and_1_are_said_and_give_finite_numbers():
    shares = probabilities()
    shares[:4] = np.eye(3)[[0, 1, 1, 2]]  # labels are 0, 1, 2, 0: two right, two wrong
    with pytest.warns(UserWarning, match="0 or 1 in 4 of 240 rows"):
        audit = audit_of(logits=None, probabilities=shares)
    loss = audit.score("loss")
    assert np.isfinite(loss).all()
    assert np.isfinite(audit.score("logit_gap")).all()
    np.testing.assert_allclose(loss.iloc[:2], 0, atol=1e-12)
    np.testing.assert_allclose(loss.iloc[2:4], np.log(np.finfo(np.float64).eps))


# Shadow models that have the samples in another order


def arrays_of(recorded: str, order: np.ndarray | None = None, n: int = 300) -> dict:
    """Return arrays of a recorded audit, with the samples of its shadow models in an order."""
    audit = mw.open_recorded(recorded)
    _, members, gaps, target = member_gaps(audit.evidence)
    rows = np.random.default_rng(0).permutation(len(target))[:n]
    labels = np.arange(len(rows)) % 2
    final = np.where(np.eye(2, dtype=bool)[labels], target[rows, None], 0.0)
    order = np.arange(len(rows)) if order is None else order
    return {
        "labels": labels,
        "representations": np.random.default_rng(1).normal(
            labels[:, None], size=(n, 4)
        ),
        "final_logits": final,
        "shadow_gaps": gaps[:, rows[order]],
        "shadow_members": members[:, rows[order]],
    }


def _eta_of_three(audit):
    """The log-LiRA that three samples exceed."""
    return float(np.sort(audit.log_lira().dropna())[-3])


RECORDED = ["digits", "mmlu-field-smollm2", "banking77-smollm2", "cifar10-wrn"]


@pytest.mark.parametrize("recorded", RECORDED)
def test_shadow_models_in_another_order_are_said_first_of_all(recorded):
    assert mw.Audit.from_arrays(**arrays_of(recorded)).evidence.general_notes == ()
    order = np.random.default_rng(3).permutation(300)
    with pytest.warns(UserWarning, match=r"rank correlation.*another order"):
        audit = mw.Audit.from_arrays(**arrays_of(recorded, order))
    (note,) = audit.evidence.general_notes
    assert abs(note.numbers["correlation"]) < 0.2
    view = AuditView(audit)
    assert view.view("psmi", "last", "given").warnings[0] == note
    content = content_of(
        audit,
        None,
        "psmi",
        "last",
        "prediction",
        include_samples=False,
        figures=False,
    )
    assert content.cautions[0] == note
    for eta in (0.0, _eta_of_three(audit)):  # few are memorised by the second
        assert audit.evaluate("psmi", eta=eta).warnings[0] == note
    with pytest.warns(UserWarning, match="another order"):
        assert audit.flagged("psmi").attrs["notes"][0] == note
    assert note in audit._repr_html_()


def test_the_order_of_few_samples_or_of_equal_gaps_is_not_judged(tmp_path):
    few = arrays_of("digits", np.random.default_rng(3).permutation(49), 49)
    assert not mw.Audit.from_arrays(**few).evidence.general_notes
    equal = arrays_of("digits") | {"final_logits": 9 * np.eye(2)[np.arange(300) % 2]}
    assert not mw.Audit.from_arrays(**equal).evidence.general_notes
    two = arrays_of("digits")
    two |= {name: two[name][:2] for name in ("shadow_gaps", "shadow_members")}
    assert not mw.Audit.from_arrays(**two).evidence.general_notes
    shuffled = arrays_of("digits", np.random.default_rng(3).permutation(300))
    with pytest.warns(UserWarning, match="another order"):
        mw.Audit.from_arrays(**shuffled, path=tmp_path / "run")
    # it was said before, and stays
    opened = mw.Audit.open(tmp_path / "run")
    assert opened.evidence.general_notes[0].key == "order of samples"


def test_copies_across_the_folds_of_reference_models_are_said():
    """A model that trained on a copy of a sample knows what it is asked."""
    rng = np.random.default_rng(0)
    labels, folds = np.arange(N) % CLASSES, np.arange(N) % 4
    frame = pd.DataFrame({"age": rng.normal(60, 9, N), "dose": rng.normal(2, 1, N)})
    frame.loc[6] = frame.loc[5]  # in the next fold
    frame.loc[12] = frame.loc[8]  # in the same fold
    gaps = rng.normal(size=(4, N))
    gaps[folds != np.arange(4)[:, None]] = np.nan  # each is asked about its own fold
    given = {"logits": rng.normal(size=(N, CLASSES)), "reference_gaps": gaps}
    with pytest.warns(UserWarning, match=r"^2 samples have a copy"):
        audit = mw.Audit.from_arrays(labels, samples=frame, **given)
    (note,) = audit.evidence.general_notes
    assert note.numbers == {"n": 2}
    assert note in audit.evaluate("reference", truth=labels == 0).warnings
    apart = frame.drop([5, 6]).reset_index(drop=True)
    rest = {"reference_gaps": np.delete(gaps, [5, 6], axis=1)}
    rest["logits"] = np.delete(given["logits"], [5, 6], axis=0)
    fine = mw.Audit.from_arrays(np.delete(labels, [5, 6]), samples=apart, **rest)
    assert fine.evidence.general_notes == ()
    # without samples, nobody knows of copies
    assert mw.Audit.from_arrays(labels, **given).evidence.general_notes == ()


def test_a_layer_of_any_name_has_a_file_of_its_own_that_every_system_takes(tmp_path):
    names = [
        "a",
        "A",
        "a:b",
        "a/b",
        "con",
        "nul.1",
        "x.",
        "../up",
        "y" * 300,
        "Schicht ä",
    ]
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90)
    layers = {name: rng.normal(size=(90, 4)) + labels[:, None] for name in names}
    path = tmp_path / "run"

    def scored():
        audit = mw.Audit.from_arrays(labels, representations=layers, path=path)
        return [audit.score("mahalanobis", name).to_numpy() for name in names]

    first = scored()
    files = [file.relative_to(path) for file in path.rglob("mahalanobis.safetensors")]
    assert len({str(file).casefold() for file in files}) == len(names)
    for part in {part for file in files for part in file.parts}:
        assert re.fullmatch(r"[a-z0-9_.+-]{1,100}", part)
        assert part.partition(".")[0] not in ("con", "nul")
        assert not part.endswith(".")
    for one, again in zip(first, scored(), strict=True):
        np.testing.assert_array_equal(one, again)
    assert not np.array_equal(first[0], first[1])
