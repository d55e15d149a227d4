"""`Audit.report` of real audits: recorded, untrained, in practice, from arrays, with samples."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.audit.numbers.scores import scored_members
from memowidgets.audit.views import in_time
from memowidgets.registry import find_row
from memowidgets.report import schema
from tests.report.test_files import payload
from tests.training.small import Inline


def reported(audit, path, **options):
    """The JSON, the page's payload and its markup of a report; none knows where the run is."""
    page = audit.report(path, **options)
    found = json.loads(page.with_suffix(".json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema()).validate(found)
    text = page.read_text("utf-8")
    head, _ = payload(text)
    everything = text + json.dumps([found, head])
    assert str(path.parent) not in everything
    return found, head, text.split("<script")[0]


@pytest.fixture
def small(tmp_path):
    data = mw.data.load_digits().take(range(200)).with_canaries(20)
    training = mw.TrainingConfig(epochs=2, batch_size=8, lr=6e-3)
    path = tmp_path / "secret" / "run"
    return mw.Audit(mw.models.ConvNet(4), data, path, training, device="cpu")


def states_of(labels, seed=0):
    """Representations in which classes are apart."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(len(labels), 4)) + 2 * np.eye(5, 4)[labels]


@pytest.fixture(scope="module")
def recorded():
    return mw.open_recorded("mmlu-field-smollm2")


@pytest.fixture(scope="module")
def of_the_recorded(recorded, tmp_path_factory):
    """Its report, asked for with samples."""
    place = tmp_path_factory.mktemp("recorded") / "a.html"
    # a recording does not store them
    recorded.decision_log.decide(recorded.members[:2], "keep")
    return reported(recorded, place, tau=-0.02, include_samples=True)


def test_a_recorded_audit(of_the_recorded, recorded):
    found, head, text = of_the_recorded
    gaps = recorded.evidence.target_gaps(recorded.evidence.names.final())
    gaps = dict(zip(recorded.members, gaps, strict=True))
    memorized = recorded.log_lira() >= found["truth"]["eta"]
    wrong = sum(gaps[name] <= 0 for name in memorized.index[memorized])
    assert found["truth"]["memorized_but_wrong"] == wrong > 0
    evaluation = recorded.evaluate("psmi")
    assert found["truth"]["at_tau"]["found"] == evaluation.at(-0.02).found
    assert found["truth"]["true_auc"] == evaluation.true_auc
    assert tuple(found["truth"]["true_auc_interval"]) == evaluation.true_auc_interval
    assert found["prediction"]["checkpoint"] == recorded.prediction.record.name
    assert [row["drop"] for row in found["checkpoints"]] == recorded.checkpoints[
        "drop"
    ].tolist()
    assert set(found["figures"]) >= {"training", "roc", "auc_by_eta"}
    assert "<th scope='col'>memorised by</th>" in text
    assert re.search(r"<td>\d+ of \d+</td>", text)
    assert not any("run_shadows(" in caption for caption in found["figures"].values())
    assert set(found["missing"]) == {"samples"}
    assert head["inspector"]["items"] is None
    assert set(digests(found)) == {"run"}  # it has no weights


def test_a_page_holds_the_score_at_each_checkpoint_or_at_as_many_as_fit(
    of_the_recorded, recorded, monkeypatch
):
    _, head, _ = of_the_recorded
    time = head["time"]
    names = [moment["value"] for moment in time["moments"]]
    assert names == [one.name for one in recorded.evidence.names.some_records("all")]
    assert (time["first"], head["asked"]) == (recorded.prediction.record.name, {})
    row = find_row("psmi")
    shown = scored_members(recorded.evidence, row)
    monkeypatch.setattr(in_time, "_MOST_SCORES", 5 * len(shown))
    held = in_time.scores_in_time(recorded.evidence, row, "last", shown)
    assert len(held) <= 5 < len(names)
    assert {names[0], names[-1], time["first"]} <= {one.moment.value for one in held}
    for one in held:
        there = recorded.score("psmi", checkpoint=one.moment.value)
        np.testing.assert_array_equal(one.scores, there.to_numpy())
    monkeypatch.setattr(in_time, "_MOST_SCORES", len(shown))
    assert in_time.scores_in_time(recorded.evidence, row, "last", shown) == []


def test_an_audit_that_is_not_trained(small, tmp_path):
    found, head, _ = reported(small, tmp_path / "a.html")
    assert found["prediction"] is None
    assert found["truth"] is None
    assert found["checkpoints"] == []
    assert "explorer" not in head
    for what in ("scores", "checkpoints", "ground truth"):
        assert any(name.startswith(what) for name in found["missing"])


def test_a_note_that_names_a_file_gives_the_runs_folder_not_away(small, tmp_path):
    small.train()
    small.run_shadows(4, Inline())
    small.run.run.forget("shadows/0002")
    with pytest.warns(UserWarning, match=re.escape(small.path)):
        found, *_ = reported(small, tmp_path / "a.html", figures=False)
    assert any("0002.safetensors" in said for said in found["warnings"])


def test_a_practitioners_audit_has_no_rates(small, tmp_path):
    small.train(stop_at_drop=0.02)
    small.decision_log.decide([str(small.members[0])], "remove", "names Ms Smith")
    found, head, _ = reported(small, tmp_path / "a.html", tau=0.1, figures=False)
    with (
        pytest.warns(UserWarning, match="has not learned its task"),
        pytest.warns(
            UserWarning, match="fewer than 20 samples, so their scores are inaccurate"
        ),
    ):
        flagged = small.flagged(tau=0.1)
    assert found["prediction"]["flagged"] == len(flagged)
    assert "has not learned its task" in found["warnings"][0]
    assert found["truth"] is None
    assert found["decisions"]["all"]["remove"] == 1
    assert "Ms Smith" not in json.dumps([found, head])
    _, head, _ = reported(
        small, tmp_path / "b.html", tau=0.1, include_samples=True, figures=False
    )
    assert "Ms Smith" in json.dumps(head)
    first = head["inspector"]["items"][: len(flagged)]
    assert [one["id"] for one in first] == flagged.index.tolist()
    assert [one["label"] for one in first] == flagged["label"].tolist()
    assert head["inspector"]["kind"] == "image"


def test_arrays_alone(tmp_path):
    labels = np.arange(150) % 3
    states, log_lira = states_of(labels), np.random.default_rng(0).gumbel(0, 2, 150)
    texts = [f"note {i} <script>alert(1)</script>" for i in range(150)]
    alone = mw.Audit.from_arrays(labels, states, samples=texts)
    found, head, _ = reported(alone, tmp_path / "a.html", include_samples=True)
    assert found["truth"] is None
    assert head["inspector"]["items"][0]["text"] in texts
    without_advice = {
        why.split(": give Audit")[0] for why in alone.figures().missing.values()
    }
    assert without_advice <= set(found["missing"].values())
    assert not any("Audit.from_arrays" in why for why in found["missing"].values())
    assert found["digests"] == []
    log_lira[:10] = np.nan
    audit = mw.Audit.from_arrays(labels, states, log_lira=log_lira)
    found, head, _ = reported(audit, tmp_path / "b.html", figures=False)
    assert found["truth"]["memorized"] == int((log_lira >= 4).sum())
    n_flagged = int((audit.score("psmi")[10:] <= 0).sum())  # headline, list and page
    assert found["headline"].startswith(
        f"{n_flagged} texts flagged".replace("texts", head["noun"])
    )
    assert found["truth"]["n"] == len(head["inspector"]["columns"]["scores"]) == 140
    assert any("10 samples without log-LiRA" in note for note in found["warnings"])
    assert found["truth"]["auc"] == audit.evaluate("psmi").auc
    audit = mw.Audit.from_arrays(labels, logits=states[:, :3])
    below = int((audit.score("loss") <= -1).sum())
    for tau, flagged in ((None, 8), (-1.0, below)):  # 5 % of 150, rounded
        found, *_ = reported(
            audit, tmp_path / "c.html", tau=tau, figures=False, overwrite=True
        )
        assert (found["prediction"]["score"], found["prediction"]["flagged"]) == (
            "loss",
            flagged,
        )


def test_the_warnings_are_those_of_the_evaluation(tmp_path):
    labels = np.r_[np.arange(150) % 3, [3] * 5, 4]
    log_lira = np.where(np.arange(156) < 6, 9.0, -2.0)
    names = ["ward 0", "ward 1", "ward 2", "ward 3", "ward 4"]
    audit = mw.Audit.from_arrays(
        labels, states_of(labels), class_names=names, log_lira=log_lira
    )
    found, _, page = reported(audit, tmp_path / "a.html", figures=False)
    said = " ".join(found["warnings"])
    for note in audit.evaluate("psmi").warnings:
        assert "left out" in note or note.split(": 'ward")[0] in said
    assert "ward" not in said  # names of classes only where samples are
    assert "1 of 156 members has no score" in said
    assert "1 of 156 members has no score" in page
    assert "shrunk" not in page  # it was given as it is
    assert "log-LiRA as given" in page


def digests(found):
    """The digest of each file, by what it holds."""
    return {one["what"]: (one["sha256"], one["of"]) for one in found["digests"]}


def test_the_digests_of_a_run_are_those_of_its_files(small, tmp_path):
    small.train(stop_at_drop=0.02)
    small.decision_log.decide([str(small.members[0])], "remove")
    found, *_ = reported(small, tmp_path / "a.html", figures=False)
    there = digests(found)
    assert set(there) == {"model", "run", "decisions"}
    for digest, of in there.values():
        assert (
            digest == hashlib.sha256((Path(small.path) / of).read_bytes()).hexdigest()
        )
    assert there["model"][1].startswith(
        f"checkpoints/{found['prediction']['checkpoint']}/"
    )
    small.decision_log.decide([str(small.members[1])], "keep")
    again, *_ = reported(small, tmp_path / "b.html", figures=False)
    changed = {what for what, one in digests(again).items() if one != there[what]}
    assert changed == {"decisions"}


@pytest.fixture(scope="module")
def of_a_lambda(tmp_path_factory):
    """A model whose class is a lambda, trained on all, with no held-out samples."""
    data = mw.data.load_digits().take(range(120))

    model = mw.models.TorchClassifier(
        lambda k: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, k))
    )
    training = mw.TrainingConfig(epochs=4, batch_size=8, lr=3e-2)
    path = tmp_path_factory.mktemp("secret") / "run"
    audit = mw.Audit(
        model, data, path, training, members="all", held_out=None, device="cpu"
    )
    audit.train()
    return audit


def test_two_writers_are_both_named_and_their_decisions_counted_once(
    of_a_lambda, tmp_path
):
    other = mw.Audit.open(of_a_lambda.path)
    flagged = list(of_a_lambda.flagged("loss", share=0.1).index)
    beyond = [name for name in of_a_lambda.members if name not in flagged][:1]
    of_a_lambda.decision_log.decide(flagged[:2], "keep", by="<b>Ann</b>")
    other.decision_log.decide(flagged[1:3] + beyond, "remove", by="Bo & Cy")
    found, _, page = reported(
        of_a_lambda, tmp_path / "a.html", metric="loss", share=0.1, figures=False
    )
    assert found["prediction"]["flagged"] == len(flagged) == 12
    assert found["decisions"]["looked_at"] == 3
    people = [(one["by"], one["n"]) for one in found["decisions"]["people"]]
    assert people == [("Bo & Cy", 3), ("<b>Ann</b>", 1)]
    assert [one["flagged"] for one in found["decisions"]["made"]].count(False) == 1
    assert "&lt;b&gt;Ann&lt;/b&gt; (1)" in page
    assert "<b>Ann" not in page
    # without somebody who left samples out, no shadow model can check it here
    assert any("half of the data" in step for step in found["next_steps"])
    for said in (*found["missing"].values(), *found["warnings"]):
        assert "members=" not in said


def test_a_saved_notebook_does_not_hold_the_place_of_the_run(of_a_lambda):
    place = str(Path(of_a_lambda.path).parent)
    dashboard = of_a_lambda.dashboard()
    dashboard.wait(60)
    kept = [dashboard.get_state(), dashboard._repr_mimebundle_()]
    dashboard.close()
    shown = [of_a_lambda._repr_html_(), repr(of_a_lambda), repr(kept)]
    assert not [text for text in shown if place in text]
    assert Path(of_a_lambda.path).name in of_a_lambda._repr_html_()


def test_report_takes_a_share_or_a_threshold(of_a_lambda, tmp_path):
    with pytest.raises(ValueError, match="tau= or share="):
        of_a_lambda.report(tmp_path / "a.html", tau=0.0, share=0.1)
    with pytest.raises(ValueError, match="share"):
        of_a_lambda.report(tmp_path / "a.html", metric="loss", share=1.5)
    assert not list(tmp_path.iterdir())
