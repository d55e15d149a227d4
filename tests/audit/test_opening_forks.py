"""Forks: the same model and split on what decisions leave, from scratch or going on."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import memowidgets as mw
from memowidgets.files import digest_of_arrays
from memowidgets.store import StoreError
from tests.audit.conftest import small_audit, small_data
from tests.audit.test_run_killed import same_files

ALONE = "only members of the target were decided on"
pytestmark = pytest.mark.filterwarnings(f"ignore:{ALONE}:UserWarning")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Interrupted at its prediction checkpoint, with ten members to be removed."""
    audit = small_audit(tmp_path_factory.mktemp("parent") / "run")
    audit.train(stop_at_drop=0.5)
    audit.decision_log.decide(audit.score("psmi").nsmallest(10).index, "remove")
    return audit


def weights(audit: mw.Audit, name: str) -> str:
    file = Path(audit.path) / f"checkpoints/{name}/weights.safetensors"
    return digest_of_arrays(load_file(file))


def removed(audit: mw.Audit) -> set[str]:
    return set(audit.decisions["id"])


def test_members_and_held_out_samples_follow_by_id(stopped, tmp_path):
    fork = stopped.fork(tmp_path)
    assert set(fork.members) == set(stopped.members) - removed(stopped)
    assert set(fork.run.held_out.ids) == set(stopped.run.held_out.ids)
    assert len(fork.data) == len(stopped.data) - 10
    assert fork.training == stopped.training
    noted = fork.run.manifest["fork"]
    assert (noted["start"], noted["checkpoint"], noted["seen"]) == ("scratch", None, 0)
    assert "of another run, from scratch" in fork._repr_html_()


def test_nothing_else_is_written_into_a_run_directory(stopped, tmp_path):
    before = sorted(Path(stopped.path).rglob("*"))
    (tmp_path / "link").symlink_to(stopped.path)
    for folder in (Path(stopped.path) / "forward", tmp_path / "link"):
        with pytest.raises(ValueError, match="run directory"):
            stopped.report(folder / "x.html", include_samples=True)
        with pytest.raises(ValueError, match="run directory"):
            stopped.fork(folder / "sub")
    assert sorted(Path(stopped.path).rglob("*")) == before


def test_from_scratch_it_is_the_audit_of_these_members_alone(stopped, tmp_path):
    fork = stopped.fork(tmp_path / "fork")
    fork.train()
    kept = stopped.kept()
    members = [name for name in kept.ids if name in set(stopped.members)]
    plain = small_audit(tmp_path / "plain", data=kept, members=members, held_out=None)
    plain.train()
    assert weights(fork, "epoch-4") == weights(plain, "epoch-4")
    assert fork.checkpoints["median_loss"].equals(plain.checkpoints["median_loss"])


def test_where_nothing_was_removed_going_on_is_going_on(stopped, straight, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fork = stopped.fork(tmp_path / "fork", data=stopped.data, start="prediction")
    fork.train()
    same_files(
        Path(straight.path), Path(fork.path), "checkpoints/*/weights.safetensors"
    )
    found, expected = (
        one.checkpoints.drop(columns="prediction") for one in (fork, straight)
    )
    assert found.equals(expected)
    assert fork.evidence.notes_at("final") == ()


def begin(stopped, path):
    with pytest.warns(UserWarning, match="already seen 10 samples that were removed"):
        return stopped.fork(path, start="prediction")


@pytest.fixture(scope="module")
def gone_on(stopped, tmp_path_factory):
    """Trained to its end; tests only read it."""
    fork = begin(stopped, tmp_path_factory.mktemp("fork") / "run")
    fork.train()
    return fork


@pytest.fixture
def going_on(stopped, tmp_path):
    return begin(stopped, tmp_path / "fork")


def test_weights_that_have_seen_removed_samples_are_said_to_have(stopped, gone_on):
    name = stopped.prediction.record.name
    assert weights(gone_on, name) == weights(stopped, name)
    assert weights(gone_on, "epoch-0") == weights(stopped, "epoch-0")
    assert gone_on.prediction.rho == stopped.prediction.rho == 0.5
    assert gone_on.run.manifest["fork"]["checkpoint"] == name
    for checkpoint in ("prediction", "final"):
        assert "already seen 10 samples" in " ".join(
            gone_on.evidence.notes_at(checkpoint)
        )
    assert "already seen 10 samples" in gone_on._repr_html_()
    assert f"from {name}" in gone_on._repr_html_()
    again = mw.Audit.open(gone_on.path, data=gone_on.data)
    assert "already seen 10 samples" in " ".join(again.evidence.notes_at("final"))
    positions = np.flatnonzero(np.isin(stopped.data.ids, gone_on.members))
    for epoch in ("epoch-0", name):  # judged by its own members
        seen = stopped.run.target().look(epoch, positions)
        found = gone_on.checkpoints.loc[epoch, "median_loss"]
        assert found == pytest.approx(np.median(seen.losses), rel=1e-5)


def test_a_changed_text_counts_as_seen(tmp_path):
    data = mw.data.make_mcqs(80, seed=5)
    model = mw.models.CausalLM.from_scratch(data, layers=1, width=16)
    audit = small_audit(tmp_path / "run", model=model, data=data)
    audit.train(stop_at_drop=0.01)
    name = str(audit.members[0])
    audit.decision_log.decide([name], "anonymise")
    kept = audit.kept(texts={name: "A patient of some age."})
    with pytest.warns(UserWarning, match="already seen 1 samples"):
        fork = audit.fork(tmp_path / "fork", data=kept, start="prediction")
    fork.train()
    position = fork.members.tolist().index(name)
    assert fork.member_data[position].question == "A patient of some age."
    again = mw.Audit.open(fork.path, data=kept, model=model)
    assert np.isfinite(again.score("loss", checkpoint="final")).all()


def test_a_fork_of_a_fork_remembers_what_its_weights_have_seen(going_on, tmp_path):
    going_on.train(stop_at_drop=0.5)
    assert going_on.run.manifest["fork"]["seen"] == 10
    data, gone = going_on.data, going_on.members[:5]
    fewer = data.take(np.flatnonzero(~np.isin(data.ids, gone)))
    made = {}
    for name, kept, start, seen in (
        ("same", data, "prediction", 10),
        ("fewer", fewer, "prediction", 15),
        ("scratch", data, "scratch", 0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made[name] = going_on.fork(tmp_path / name, data=kept, start=start)
        assert made[name].run.manifest["fork"]["seen"] == seen
    again = mw.Audit.open(made["fewer"].path, data=fewer, model=mw.models.ConvNet(16))
    again.train(stop_at_drop=0.5)
    with pytest.warns(UserWarning, match="already seen 15 samples"):
        last = again.fork(tmp_path / "last", data=again.data, start="prediction")
    assert last.run.manifest["fork"]["seen"] == 15


def test_a_held_out_dataset_stays_the_held_out_dataset(tmp_path):
    aside = mw.data.load_digits().take(range(400, 450))
    audit = small_audit(tmp_path / "a", held_out=aside)
    audit.decision_log.decide(audit.members[:3].tolist(), "remove")
    fork = audit.fork(tmp_path / "b")
    assert fork.run.held_out is aside
    reopened = mw.Audit.open(
        tmp_path / "a", data=small_data(), model=mw.models.ConvNet(16)
    )
    with pytest.raises(StoreError, match="held_out="):
        reopened.fork(tmp_path / "c")


# Its data, and what cleaning the members alone says


def test_it_opens_with_its_parents_data_whatever_was_decided_since(stopped, tmp_path):
    audit = mw.Audit.open(
        shutil.copytree(stopped.path, tmp_path / "run"), data=stopped.data
    )
    other = (stopped.data.labels[0] + 1) % 10
    audit.decision_log.decide([stopped.data.ids[0]], "relabel", to=str(other))
    fork = audit.fork(tmp_path / "fork")
    fork.train()
    kept, losses = fork.data, fork.score("loss", checkpoint="final")
    audit.decision_log.decide(audit.members[-20:].tolist(), "remove")
    again = mw.Audit.open(fork.path, data=stopped.data)
    assert again.data.ids.tolist() == kept.ids.tolist()
    np.testing.assert_array_equal(again.data.labels, kept.labels)
    assert again.data.labels[0] == other
    assert again.score("loss", checkpoint="final").equals(losses)
    shuffled = stopped.data.take(np.arange(len(stopped.data))[::-1])
    assert (
        mw.Audit.open(fork.path, data=shuffled).data.ids.tolist() == kept.ids.tolist()
    )
    with pytest.raises(ValueError, match="not the data of"):
        mw.Audit.open(fork.path, data=stopped.data.take(range(100)))


def test_cleaning_members_alone_is_said_once(stopped, finished, tmp_path):
    for asks in (stopped.kept, lambda: stopped.fork(tmp_path / "fork")):
        with pytest.warns(UserWarning, match=ALONE) as said:
            asks()
        assert len(said) == 1
    others = stopped.data.ids[
        np.setdiff1d(stopped.run.design.pool, stopped.run.design.members)
    ]
    everything = small_audit(tmp_path / "all", members="all")
    everything.decision_log.decide(everything.members[:3].tolist(), "remove")
    audit = small_audit(tmp_path / "half")
    audit.decision_log.decide([audit.members[0]], "keep")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everything.kept()
        audit.kept()
        audit.decision_log.decide([audit.members[1], others[0]], "remove")
        audit.kept()


# Called again, killed, mistaken


@pytest.mark.parametrize("lost", ["manifest.json", "design.safetensors"])
def test_a_fork_that_was_half_made_is_made_whole(stopped, going_on, gone_on, lost):
    path = Path(going_on.path)
    # as if it was killed before the manifest, which comes last
    if lost == "manifest.json":
        (path / "design.safetensors").unlink()
    (path / lost).unlink()
    whole = begin(stopped, path)
    whole.train()
    assert weights(whole, "epoch-4") == weights(gone_on, "epoch-4")


def test_lost_weights_are_not_replaced_by_fresh_ones(stopped, going_on):
    shutil.rmtree(Path(going_on.path) / "start")
    with pytest.raises(StoreError, match="lost the weights of epoch-3"):
        going_on.train()
    begin(stopped, going_on.path).train(stop_at_drop=0.5)


def test_nothing_left_to_train_is_said(tmp_path):
    audit = small_audit(
        tmp_path / "run", training=mw.TrainingConfig(epochs=1, batch_size=8)
    )
    audit.train()
    with pytest.raises(ValueError, match="epoch-1 ends a training"):
        audit.fork(tmp_path / "fork", data=audit.data, start="prediction")
    assert not (tmp_path / "fork" / "manifest.json").exists()


def test_another_run_at_the_path_is_refused(stopped, going_on):
    with pytest.raises(ValueError, match="holds another run"):
        stopped.fork(stopped.path)
    with pytest.raises(
        ValueError, match="fork start is prediction there and scratch here"
    ):
        stopped.fork(going_on.path)
    with pytest.raises(ValueError, match="its data have"):
        stopped.fork(going_on.path, data=stopped.data.take(range(300)), start="scratch")


def test_what_can_not_be_forked_says_why(stopped, tmp_path):
    path = tmp_path / "fork"
    with pytest.raises(
        ValueError, match="unknown start 'middle'; valid: 'scratch', 'prediction'"
    ):
        stopped.fork(path, start="middle")
    with pytest.raises(TypeError, match=r"such as audit.kept\(\), not ndarray"):
        stopped.fork(path, data=np.zeros((3, 8, 8)))
    other = mw.data.load_digits().take(range(400, 500))
    with pytest.raises(
        ValueError, match=r"0 of the .* members are in these data, by id"
    ):
        stopped.fork(path, data=other)
    two = mw.data.ImageDataset.from_arrays(
        np.arange(256.0).reshape(4, 8, 8) / 256, [0, 1, 0, 1]
    )
    with pytest.raises(
        ValueError, match="the data have the classes 0, 1; those of the run"
    ):
        stopped.fork(path, data=two)
    with pytest.raises(ValueError, match=r"call train\(\)"):
        small_audit(tmp_path / "new").fork(path, data=small_data(), start="prediction")
    with pytest.raises(StoreError, match="needs the model and the data"):
        mw.Audit.open(stopped.path).fork(path, data=small_data())
    with pytest.raises(StoreError, match="a recorded audit, which holds numbers"):
        mw.open_recorded("mmlu-field-smollm2").fork(path, data=small_data())
    noisy = small_audit(tmp_path / "noisy", training=mw.TrainingConfig(label_noise=0.1))
    with pytest.raises(
        ValueError, match="label noise, which would fall on other samples"
    ):
        noisy.fork(path)
    assert not path.exists()
