"""Nothing that is kept, on disk or in memory, is the answer for another model or another set."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from benchmarks.recording import export
from memowidgets.audit.kept import METHODS
from memowidgets.audit.numbers.scores import is_computed
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.evaluation.scored import Scored
from memowidgets.metrics import PSMI, Mahalanobis
from memowidgets.store import RunDirectory, StoreError
from memowidgets.vocabulary import Note
from tests.audit.conftest import recording_at, view_of
from tests.hostile.forged import held
from tests.training.small import Inline, tiny_audit, trained

ABOUT = {"title": "digits", "data": "mw.data.load_digits()", "command": "none"}
N = 4


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A run whose two sets of shadow models have kept their forward passes."""
    audit = trained(tmp_path_factory.mktemp("identity") / "run")
    audit.run_shadows(N, keep_forward=True)
    audit.run_shadows(N, design="balanced", keep_forward=True)
    return audit


@pytest.fixture
def audit(both, tmp_path):
    """A copy of it in which nothing was scored yet."""
    shutil.copytree(both.path, tmp_path / "run")
    return tiny_audit(tmp_path / "run")


def alone(audit, design, path):
    """The same run with one set of shadow models: there is nothing to mix it up with."""
    shutil.copytree(audit.path, path, ignore=shutil.ignore_patterns("targets"))
    for file in (path / "shadows").glob("*.safetensors" if design != "halves" else "balanced"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    (path / "shadows.json").unlink(missing_ok=True)
    made = tiny_audit(path)
    made.use_shadows(design)
    return made


def test_each_set_of_shadow_models_has_targets_of_its_own(audit, tmp_path):
    audit.run_shadows(N, keep_forward=True)
    first = audit.as_target(1).score("psmi")
    audit.run_shadows(N, design="balanced", keep_forward=True)
    target = audit.as_target(1)
    scores = target.score("psmi")
    assert set(scores.index) <= set(target.members)
    assert set(first.index) != set(scores.index)
    here, there = (
        a.evaluate_pooled("psmi", truth="canaries")
        for a in (audit, alone(audit, "balanced", tmp_path / "alone"))
    )
    assert (here.auc, here.n, here.n_memorized) == (there.auc, there.n, there.n_memorized)
    audit.use_shadows("halves")
    assert audit.as_target(1).score("psmi").equals(first)


def test_decisions_on_one_target_are_not_those_on_another(audit):
    audit.use_shadows("halves")
    name = str(audit.as_target(1).members[0])
    audit.as_target(1).decision_log.decide([name], "remove")
    assert len(audit.as_target(1).decisions) == 1
    assert audit.as_target(2).decisions.empty
    audit.use_shadows("balanced")
    assert audit.as_target(1).decisions.empty
    assert audit.decisions.empty


def test_an_audit_keeps_to_the_shadow_models_that_it_chose(audit, tmp_path):
    """Others take those that were chosen last, without being opened again."""
    follower, other = (tiny_audit(tmp_path / "run") for _ in range(2))
    audit.use_shadows("halves")
    halves = audit.log_lira()
    assert follower.log_lira().equals(halves)
    other.use_shadows("balanced")
    assert not other.log_lira().equals(halves)
    assert follower.log_lira().equals(other.log_lira())
    assert audit.log_lira().equals(halves)


def trained_otherwise(audit, index):
    """Put a shadow model that was trained otherwise in the place of one."""
    shadows = audit.run.shadows
    file, name = shadows.file(index), shadows._name(index)
    arrays = {key: np.array(file[key]) for key in file}
    moved = {
        key: values + np.linspace(-3, 3, values.size, dtype=np.float32).reshape(values.shape)
        for key, values in arrays.items()
        if key != "members"
    }
    metadata = {**file.metadata, "finished": str(int(file.metadata["finished"]) + 60)}
    held(audit.path).write_tensors(name, arrays | moved, metadata)


def test_a_shadow_model_that_was_trained_again_is_scored_again(audit):
    target = audit.as_target(1)
    before = target.score("psmi")
    trained_otherwise(audit, 1)
    assert not is_computed(target.evidence, "psmi")
    after = target.score("psmi")
    assert not np.allclose(after, before)
    assert audit.as_target(1).score("psmi").equals(after)


def test_a_layer_more_moves_the_arrays_in_the_file_of_an_open_target(audit):
    target = audit.as_target(1)
    before = target.score("logit_gap"), target.score("psmi")
    audit.run_shadows(N, design="balanced", keep_forward="all")
    np.testing.assert_array_equal(target.score("logit_gap"), before[0])
    np.testing.assert_array_equal(target.score("psmi"), before[1])
    assert len(target.score("psmi", layer=1))


def test_arrays_of_a_file_that_was_replaced_are_not_read_with_the_old_header(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_tensors("shadows/0000", {"gap": np.zeros(4)})
    opened = run.read_tensors("shadows/0000")
    run.write_tensors("shadows/0000", {"a layer": np.ones(9), "gap": np.zeros(4)})
    with pytest.raises(StoreError, match="was replaced while it was read; call again"):
        opened["gap"]
    assert run.read_tensors("shadows/0000")["gap"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("of_target", [False, True])
def test_log_lira_follows_a_shadow_model_that_was_replaced(audit, of_target):
    judged = audit.as_target(0) if of_target else audit
    view = view_of(judged)
    place = "psmi", judged.layers[-1], judged.prediction.record.name
    before, seen = judged.log_lira(), view.view(*place)
    revision = view.revision()
    member = view.detail(0, *place).shadows.target, view.detail(0, *place).shadows.log_lira
    trained_otherwise(audit, 1)
    assert audit.n_shadows == N
    after = judged.log_lira()
    fresh = tiny_audit(audit.path)
    assert after.equals((fresh.as_target(0) if of_target else fresh).log_lira())
    assert not np.allclose(after, before)
    assert view.revision() != revision
    assert not np.allclose(view.view(*place).log_lira, seen.log_lira)
    assert view.detail(0, *place).shadows.log_lira != member[1]


def test_log_lira_follows_a_forward_pass_of_the_target_that_was_replaced(audit):
    before = audit.log_lira()
    view = view_of(audit)
    place = "psmi", audit.layers[-1], audit.prediction.record.name
    seen = view.view(*place).probabilities
    run, name = held(audit.path), f"forward/{audit.evidence.names.final().name}"
    made = run.read_tensors(name)
    arrays = {key: np.array(made[key]) for key in made}
    run.write_tensors(name, arrays | {"logits": arrays["logits"] * 2}, made.metadata, made.of)
    assert not np.allclose(audit.log_lira(), before)
    assert not np.allclose(view.view(*place).probabilities, seen)


def test_the_first_targets_gaps_are_those_of_the_model_it_is(audit):
    judged = audit.as_target(0)
    before = judged.log_lira()
    run, name = held(audit.path), f"targets/first/{audit.evidence.names.final().name}"
    kept = run.read_tensors(name)
    assert kept.metadata["target"]
    stale = np.array(kept["gap"])[::-1]
    run.write_tensors(name, {"gap": stale}, {"target": "of another model"})
    assert tiny_audit(audit.path).as_target(0).log_lira().equals(before)
    gaps = audit.run.gaps_of(audit.evidence.names.final(), audit.run.design.pool)
    np.testing.assert_array_equal(run.read_tensors(name)["gap"], gaps)


def test_the_number_of_shadow_models_counts_the_first_target(audit):
    target = audit.as_target(2)
    target.log_lira()
    _, members, gaps, _ = member_gaps(target.evidence)
    assert target.n_shadows == len(gaps) == len(members) == N
    assert f"{N} shadow models" in target.evidence.truth_in_words
    assert target.evidence.shadows.design in target.evidence.truth_in_words
    assert re.search(rf"shadow models</th><td[^>]*>{N}</td>", target._repr_html_())


def test_a_recording_serves_each_set_its_own_scores(audit, both, tmp_path):
    wanted = {}
    for design in ("halves", "balanced"):
        audit.use_shadows(design)
        audit.evaluate_pooled("psmi", truth="canaries")
        unmixed = alone(both, design, tmp_path / design)
        wanted[design] = unmixed.evaluate_pooled("psmi", truth="canaries").auc
    export(audit.path, tmp_path / "recording", ABOUT, {})
    again = recording_at(tmp_path / "recording")
    for design, auc in wanted.items():
        again.use_shadows(design)
        assert again.evaluate_pooled("psmi", truth="canaries").auc == auc


@pytest.mark.parametrize("metric", ["psmi", "mahalanobis"])
def test_scores_of_an_older_method_are_computed_again(audit, metric, monkeypatch):
    first = audit.score(metric)
    names = audit.evidence.names
    record = names.prediction().record.name
    name = f"scores/{record}/{names.layer('last')}/{metric}"
    assert audit.run.run.read_tensors(name).metadata["method"] == str(METHODS[metric])
    stored = audit.run.run.path / f"{name}.safetensors"
    before = stored.stat().st_mtime_ns
    np.testing.assert_array_equal(tiny_audit(audit.path).score(metric), first)
    assert stored.stat().st_mtime_ns == before
    monkeypatch.setitem(METHODS, metric, METHODS[metric] + 1)
    again = tiny_audit(audit.path)
    assert not is_computed(again.evidence, metric, "last", record)
    np.testing.assert_array_equal(again.score(metric), first)
    assert stored.stat().st_mtime_ns > before


def test_the_values_of_each_method_are_those_of_its_version():
    """Whoever changes one of these numbers raises the version in `METHODS`, too."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 40)
    x = rng.normal(size=(120, 6)) + 2 * np.eye(6)[labels]
    psmi = PSMI(random_state=0).fit(x, labels).score_samples(x, labels)
    mahalanobis = Mahalanobis().fit(x).score_samples(x)
    np.testing.assert_allclose(psmi[:4], [0.2934, 0.3621, 0.0010, 0.2490], atol=1e-4)
    np.testing.assert_allclose(mahalanobis[:4], [-1.3644, -2.2593, -2.6032, -2.2083], atol=1e-4)
    assert METHODS == {"psmi": 2, "mahalanobis": 1}


@pytest.mark.parametrize("what", ["labels", "images"])
def test_data_that_are_written_to_are_noticed(what, tmp_path):
    audit = trained(tmp_path / "run")
    gaps = audit.score("logit_gap")
    values = getattr(audit.data, what)
    before = values[7].copy()
    values[7] = (before + 1) % len(audit.data.class_names) if what == "labels" else 1 - before
    assert audit.score("logit_gap").equals(gaps)
    name = audit.data.ids[7]
    for work in (audit.run_shadows, audit.run_references):
        with pytest.raises(StoreError, match=f"1 samples .* changed in place .* '{name}'"):
            work(1)
    values[7] = before
    audit.run_references(1, Inline())
    assert len(audit.score("reference")) == len(gaps)


def test_a_kept_note_has_its_key_and_its_numbers(tmp_path):
    audit = trained(tmp_path / "run")
    audit.score("psmi")
    note = Note("ridge", "3 of 8 components have no variance", flat=3)
    found = Scored.of_all(np.zeros(len(audit.members)), (note,))
    place = "mahalanobis", audit.layers[-1]
    first = audit.evidence.checkpoints["epoch-1"]
    audit.evidence.scores.keep(*place, first.record, first.state, found)
    again = tiny_audit(tmp_path / "run").evidence
    (kept,) = again.scores.find(*place, first.record, first.state).notes
    assert (kept, kept.key, kept.numbers) == (note, "ridge", {"flat": 3})
