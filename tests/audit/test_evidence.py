"""Evidence stays as it was taken, by the names that users give; what is kept is never another's."""

from __future__ import annotations

import errno
import os
import re
import shutil
from dataclasses import FrozenInstanceError, replace
from functools import partial
from inspect import isfunction, ismethod
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import memowidgets as mw
from benchmarks.lookups import counted
from memowidgets.audit.numbers.scores import is_computed
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.audit.run import Run, ScoreKeeper
from memowidgets.data import Dataset
from memowidgets.metrics import PSMI, Mahalanobis
from memowidgets.registry import find_row, registered
from memowidgets.store import REVISION, RunDirectory, StoreError, Tensors
from tests.audit.conftest import small_audit, view_of
from tests.hostile.forged import held, rewrite
from tests.training.small import Inline, tiny_audit, trained

N = 4


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    # by another test of the same audit
    for made in (tmp_path / "run/forward").glob("epoch-2.*"):
        made.unlink()
    shutil.rmtree(tmp_path / "run/scores/epoch-2", ignore_errors=True)
    return small_audit(tmp_path / "run")


def test_it_is_the_same_object_until_somebody_writes(copied, tmp_path):
    before = copied.evidence
    assert copied.evidence is before
    with pytest.raises(FrozenInstanceError):
        before.path = ""  # type: ignore[misc]
    copied.score("psmi", checkpoint=2)
    after = copied.evidence
    assert [one.checkpoints["epoch-2"].has_pass for one in (before, after)] == [
        False,
        True,
    ]
    names, indices = [one.name for one in after.names.found], after.shadows.indices
    held(tmp_path / "run").forget("checkpoints/epoch-2", "shadows/0019")
    assert [one.name for one in after.names.found] == names
    assert after.shadows.indices == indices
    with pytest.warns(UserWarning, match="epoch-2"):
        last = copied.evidence
    assert [one.name for one in last.names.found] == [
        n for n in names if n != "epoch-2"
    ]
    assert last.shadows.indices == indices[:-1]


def test_no_answer_looks_at_more_files_where_there_are_more_models(copied):
    copied.score("psmi")
    copied.log_lira()
    again = small_audit(copied.path)
    assert counted(lambda: again.evidence) > 4 * len(again.evidence.shadows.indices)
    assert counted(lambda: again.members) <= 2
    assert counted(lambda: again.score("psmi")) <= 10, "read from its file"
    view = view_of(again)
    place = "psmi", again.layers[-1], again.prediction.record.name
    view.score_choices()  # once in a process, installed packages are asked for theirs
    view.view(*place)
    view.detail(0, *place)
    for asks in (view.revision, again.log_lira, lambda: again.score("psmi")):
        assert counted(asks) <= 2
    assert counted(lambda: view.detail(1, *place)) <= 10


def test_nothing_that_it_holds_can_write_a_file(copied):
    """Files are behind its arrays alone, which open them to read."""
    held, seen = [copied.evidence], set()
    while held:
        one = held.pop()
        if id(one) in seen or isinstance(one, Dataset | Tensors | ScoreKeeper):
            continue
        seen.add(id(one))
        assert not isinstance(one, RunDirectory | Path), type(one)
        assert not isinstance(one, Run), type(one)
        if isinstance(one, dict):
            held += one.values()
        elif isinstance(one, list | tuple):
            held += one
        elif isinstance(one, partial):
            held += [one.func, *one.args, *one.keywords.values()]
        elif isfunction(one):
            held += [cell.cell_contents for cell in one.__closure__ or ()]
        elif ismethod(one):
            held.append(one.__self__)
        elif type(one).__module__.startswith("memowidgets."):
            held += vars(one).values() if hasattr(one, "__dict__") else []


@pytest.mark.parametrize("how", ["written to", "restored", "lost"])
def test_evidence_is_taken_anew_where_the_revision_differs_whichever_way(
    how, copied, tmp_path
):
    """By another process, by an older copy of the folder, and without the file."""
    run = tmp_path / "run"
    shutil.copytree(run, tmp_path / "older")
    held(run).write_note("rho.json", {"rho": 0.5, "over_last": 1})
    before = copied.evidence
    assert copied.prediction.rho == 0.5
    if how == "written to":
        held(run).write_note("rho.json", {"rho": 0.6, "over_last": 1})
    elif how == "restored":
        shutil.rmtree(run)
        shutil.move(tmp_path / "older", run)
    else:
        (run / REVISION).unlink()
    assert copied.evidence is not before
    assert copied.evidence is copied.evidence
    rho = {"written to": 0.6, "lost": 0.5}
    assert copied.prediction.rho == rho.get(how, small_audit(run).prediction.rho)
    now = copied.evidence
    held(run).write_note("rho.json", {"rho": 0.7, "over_last": 1})
    assert copied.evidence is not now
    assert copied.prediction.rho == 0.7


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_score_that_cannot_be_written_is_kept_in_memory(how, copied, monkeypatch):
    fault = {"full": errno.ENOSPC, "read-only": errno.EROFS}[how]
    calls = []
    fitted = PSMI.fit

    def fit(self, *given):
        calls.append(1)
        return fitted(self, *given)

    opens = os.open

    def refused(path, flags, *mode):
        if flags & os.O_CREAT:
            raise OSError(fault, os.strerror(fault))
        return opens(path, flags, *mode)

    copied.score("loss", checkpoint=2)
    monkeypatch.setattr(PSMI, "fit", fit)
    with monkeypatch.context() as patch:
        patch.setattr("memowidgets.files.os.open", refused)
        with pytest.warns(UserWarning, match=r"scores are not kept.*(full|read-only)"):
            first = copied.score("psmi", checkpoint=2)
        assert copied.score("psmi", checkpoint=2).equals(first)
    assert len(calls) == 1
    assert small_audit(copied.path).score("psmi", checkpoint=2).equals(first)
    assert len(calls) == 2, "no file of it was left"


# names


def sequential(n_classes):
    return nn.Sequential(
        *(
            nn.Flatten(),
            nn.Linear(64, 8),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(8, 6),
            nn.ReLU(),
        ),
        nn.Linear(6, n_classes),
    )


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    data = mw.data.load_digits().take(np.arange(200))
    settings = mw.TrainingConfig(epochs=2, checkpoint_every=1, lr=0.01)
    path = tmp_path_factory.mktemp("runs") / "sequential"
    made = mw.Audit(mw.models.TorchClassifier(sequential), data, path, settings)
    made.train()
    return made


def test_a_number_is_the_position_of_a_layer_where_modules_have_numbers_as_names(named):
    assert named.layers == ("0", "1", "2", "4", "5")
    named.score("loss")
    for position, name in enumerate(named.layers, 1):
        by_number = named.representation(position)
        assert by_number.shape[1] == {"0": 64, "1": 8, "2": 8, "4": 6, "5": 6}[name]
        np.testing.assert_array_equal(by_number, named.representation(name))
    np.testing.assert_array_equal(
        named.representation(np.int64(5)), named.representation("last")
    )
    for layer in (0, 6, -1, "3", True, 1.0):
        with pytest.raises(
            ValueError, match=r"unknown layer .*valid: last, 1 to 5.*0, 1, 2, 4, 5"
        ):
            named.score("psmi", layer=layer)


def test_an_unknown_shadow_model_lists_the_others(named, tmp_path):
    for asks in (named.log_lira, lambda: named.as_target(0)):
        with pytest.raises(
            StoreError, match=r"no shadow models yet: call audit.run_shadows\(64\)"
        ):
            asks()
    named.run_shadows(2)
    for unknown in (2, -1, "1", True):
        with pytest.raises(
            ValueError, match=rf"unknown shadow model {unknown!r}; valid: 0, 1"
        ):
            named.as_target(unknown)
    assert len(named.as_target(np.int64(1)).members)
    with pytest.raises(ValueError, match="there are 2 shadow models; train 8"):
        named.shadow_curve(eta=1.0)
    whole = trained(tmp_path / "all", members="all")
    for asks in (
        whole.log_lira,
        whole.probability_memorized,
        lambda: whole.as_target(0),
    ):
        with pytest.raises(StoreError, match=r'whole pool.*members="half"') as caught:
            asks()
        assert "run_shadows(64)" not in str(caught.value)


# what is kept


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
    for file in (path / "shadows").glob(
        "*.safetensors" if design != "halves" else "balanced"
    ):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    (path / "shadows.json").unlink(missing_ok=True)
    made = tiny_audit(path)
    made.use_shadows(design)
    return made


def test_each_set_has_targets_and_decisions_of_its_own(audit, both, tmp_path):
    scores = {}
    for design in ("halves", "balanced"):
        audit.use_shadows(design)
        target = audit.as_target(1)
        scores[design] = target.score("psmi")
        assert set(scores[design].index) <= set(target.members)
        pooled = audit.evaluate_pooled("psmi", truth="canaries")
        unmixed = alone(both, design, tmp_path / design).evaluate_pooled(
            "psmi", truth="canaries"
        )
        assert (pooled.auc, pooled.n) == (unmixed.auc, unmixed.n)
    assert set(scores["halves"].index) != set(scores["balanced"].index)
    for design, before in scores.items():
        audit.use_shadows(design)
        assert audit.as_target(1).score("psmi").equals(before)
    audit.as_target(1).decision_log.decide(
        [str(audit.as_target(1).members[0])], "remove"
    )
    assert len(audit.as_target(1).decisions) == 1
    assert audit.as_target(2).decisions.empty
    audit.use_shadows("halves")
    assert audit.as_target(1).decisions.empty
    assert audit.decisions.empty


def test_an_audit_keeps_to_the_shadow_models_that_it_chose(audit, tmp_path):
    """Others take those that were chosen last, without being opened again."""
    follower, other = (tiny_audit(tmp_path / "run") for _ in range(2))
    audit.use_shadows("halves")
    halves, view = audit.log_lira(), view_of(follower)
    place = "psmi", audit.layers[-1], audit.prediction.record.name
    revision, seen = view.revision(), view.view(*place).log_lira
    assert follower.log_lira().equals(halves)
    other.use_shadows("balanced")
    assert not other.log_lira().equals(halves)
    assert follower.log_lira().equals(other.log_lira())
    assert view.revision() != revision
    assert not np.array_equal(view.view(*place).log_lira, seen, equal_nan=True)
    assert audit.log_lira().equals(halves)


def trained_otherwise(audit, index):
    """Put a shadow model that was trained otherwise in the place of one."""

    def move(arrays):
        for name in arrays.keys() - {"members"}:
            moves = np.linspace(-3, 3, arrays[name].size, dtype=np.float32)
            arrays[name] += moves.reshape(arrays[name].shape)
        return arrays

    shadows = audit.run.shadows
    later = int(shadows.file(index).metadata["finished"]) + 60
    rewrite(audit.path, shadows._name(index), move, finished=str(later))


def test_a_shadow_model_that_was_trained_again_is_scored_again(audit):
    target = audit.as_target(1)
    before = target.score("logit_gap"), target.score("psmi")
    # moves the arrays in its file
    audit.run_shadows(N, design="balanced", keep_forward="all")
    np.testing.assert_array_equal(target.score("logit_gap"), before[0])
    np.testing.assert_array_equal(target.score("psmi"), before[1])
    assert len(target.score("psmi", layer=1))
    trained_otherwise(audit, 1)
    assert not is_computed(target.evidence, "psmi")
    after = target.score("psmi")
    assert not np.allclose(after, before[1])
    assert audit.as_target(1).score("psmi").equals(after)


@pytest.mark.parametrize("of_target", [False, True])
def test_log_lira_follows_a_model_that_was_replaced(audit, of_target):
    judged = audit.as_target(0) if of_target else audit
    view = view_of(judged)
    place = "psmi", judged.layers[-1], judged.prediction.record.name
    before, seen, revision = judged.log_lira(), view.view(*place), view.revision()
    member = view.detail(0, *place).shadows.log_lira
    trained_otherwise(audit, 1)
    after = judged.log_lira()
    fresh = tiny_audit(audit.path)
    assert after.equals((fresh.as_target(0) if of_target else fresh).log_lira())
    assert not np.allclose(after, before)
    assert view.revision() != revision
    assert not np.allclose(view.view(*place).log_lira, seen.log_lira)
    assert view.detail(0, *place).shadows.log_lira != member
    seen = view.view(*place).probabilities
    last = f"forward/{audit.evidence.names.final().name}"
    rewrite(audit.path, last, lambda arrays: arrays | {"logits": arrays["logits"] * 2})
    assert of_target or not np.allclose(audit.log_lira(), after)
    assert of_target or not np.allclose(view.view(*place).probabilities, seen)


def test_the_first_target_is_counted_and_its_gaps_are_those_of_the_model_it_is(audit):
    target = audit.as_target(0)
    before, final = target.log_lira(), audit.evidence.names.final()
    _, members, gaps, _ = member_gaps(target.evidence)
    assert target.n_shadows == len(gaps) == len(members) == N
    for fact in (f"{N} shadow models", target.evidence.shadows.design):
        assert fact in target.evidence.truth_in_words
    assert re.search(rf"shadow models</th><td[^>]*>{N}</td>", target._repr_html_())
    run, name = held(audit.path), f"targets/first/{final.name}"
    kept = np.array(run.read_tensors(name, final.weights)["gap"])
    run.write_tensors(name, {"gap": kept[::-1]}, of="other weights")
    with pytest.warns(UserWarning, match="other weights.* made again"):
        assert tiny_audit(audit.path).as_target(0).log_lira().equals(before)
    np.testing.assert_array_equal(run.read_tensors(name, final.weights)["gap"], kept)


@pytest.mark.parametrize("metric", ["psmi", "mahalanobis"])
def test_scores_of_an_older_method_are_computed_again(audit, metric, monkeypatch):
    first = audit.score(metric)
    names = audit.evidence.names
    record = names.prediction().record.name
    stored = (
        audit.run.run.path
        / f"scores/{record}/{names.layer('last')}/{metric}.safetensors"
    )
    before = stored.stat().st_mtime_ns
    np.testing.assert_array_equal(tiny_audit(audit.path).score(metric), first)
    assert stored.stat().st_mtime_ns == before
    newer = replace(find_row(metric), version="2")
    monkeypatch.setitem(registered.REGISTRY._own, metric, newer)
    again = tiny_audit(audit.path)
    assert not is_computed(again.evidence, metric, "last", record)
    np.testing.assert_array_equal(again.score(metric), first)
    assert stored.stat().st_mtime_ns > before


def test_the_values_of_each_method_are_those_of_its_version():
    """Whoever changes what is estimated raises the version of the row, too.

    A more exact estimator of the same quantity is no new version: kept scores have their errors.
    """
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 40)
    x = rng.normal(size=(120, 6)) + 2 * np.eye(6)[labels]
    psmi = PSMI(random_state=0).fit(x, labels).score_samples(x, labels)
    mahalanobis = Mahalanobis().fit(x).score_samples(x)
    np.testing.assert_allclose(psmi[:4], [0.2934, 0.3621, 0.0010, 0.2490], atol=1e-4)
    np.testing.assert_allclose(
        mahalanobis[:4], [-1.3644, -2.2593, -2.6032, -2.2083], atol=1e-4
    )
    assert find_row("psmi").version == find_row("mahalanobis").version == "1"


@pytest.mark.parametrize("what", ["labels", "images"])
def test_data_that_are_written_to_are_noticed(what, audit):
    gaps = audit.score("logit_gap")
    values = getattr(audit.data, what)
    before = values[7].copy()
    values[7] = (
        (before + 1) % len(audit.data.class_names) if what == "labels" else 1 - before
    )
    assert audit.score("logit_gap").equals(gaps)
    name = audit.data.ids[7]
    for work in (audit.run_shadows, audit.run_references):
        with pytest.raises(
            StoreError, match=f"1 samples .* changed in place .* '{name}'"
        ):
            work(1)
    values[7] = before
    audit.run_references(1, Inline())
    assert len(audit.score("reference")) == len(gaps)
