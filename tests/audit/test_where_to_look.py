"""Where to look, told by each way to train, on labels of which a third are wrong."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import memowidgets as mw
from memowidgets.store import run_at
from memowidgets.training.looking import TrainingCurves, place_to_look, settled_at

WIDTH, CLASSES, MEMBERS, ASIDE, EPOCHS = 6, 3, 120, 240, 24
RHO = 0.995  # wrong labels keep the loss above it


def noisy(n, seed, far=1.5, share=1 / 3):
    """Points around three middles, a third of them with another label."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    x = rng.normal(size=(n, WIDTH)) + far * np.eye(CLASSES, WIDTH)[labels]
    wrong = rng.permutation(n)[: round(share * n)]
    labels[wrong] = (labels[wrong] + rng.integers(1, CLASSES, len(wrong))) % CLASSES
    return x.astype(np.float32), labels


def rows(n, seed, **changes) -> TensorDataset:
    x, labels = noisy(n, seed, **changes)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(labels))


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    hidden = nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(48, CLASSES))


CLEAN = {"far": 4.0, "share": 0.0}


def looped(
    path, epochs=EPOCHS, *, breaks=False, aside=ASIDE, of=None, smoothing=0.0, **options
):
    """Watch a loop; return the watch and what each step said."""
    module, data, said = mlp(), rows(MEMBERS, 1, **of or {}), []
    options = {"checkpoint_every": 1, "stop_at_drop": RHO} | options
    if aside:
        options["held_out"] = rows(aside, 2, **of or {})
    watch = mw.watch(module, data, path, steps_per_epoch=8, **options)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(3)
    loader = DataLoader(data, batch_size=15, shuffle=True, generator=order)
    for _ in range(epochs):
        for x, labels in loader:
            cross_entropy(module(x), labels, label_smoothing=smoothing).backward()
            optimizer.step()
            optimizer.zero_grad()
            said.append(watch.step())
            if breaks and said[-1]:
                return watch, said
    watch.end()
    return watch, said


def curves_of(audit, held_out: TensorDataset, members: TensorDataset) -> TrainingCurves:
    """Return the curves of a run, from its files and the labels alone."""
    table, run = audit.checkpoints.iloc[1:], run_at(audit.path)
    run.hold(run.read_manifest())
    places = [f"checkpoints/{name}/held_out" for name in table.index]
    losses = [np.array(run.read_tensors(place)["losses"]) for place in places]
    share = np.bincount(members.tensors[1]) / len(members)
    guessing = -np.log(share[held_out.tensors[1].numpy()]).mean()
    epochs, drops = table["epoch"].to_numpy(), table["drop"].to_numpy()
    return TrainingCurves(epochs, drops, losses, guessing)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return looped(tmp_path_factory.mktemp("watched") / "run")


def test_a_loop_is_told_once_where_held_out_loss_turned(watched):
    watch, said = watched
    audit = watch.audit
    curves = curves_of(audit, rows(ASIDE, 2), rows(MEMBERS, 1))
    end = settled_at(curves, RHO)
    place = place_to_look(curves, RHO, until=end)
    assert said.count(True) == 1
    assert said.index(True) + 1 == 8 * (1 + end)
    assert watch.reached
    chosen = audit.prediction
    assert (chosen.record.epoch, chosen.why) == (1 + place.at, "turn")
    assert f"lowest at epoch {1 + place.at} of {1 + end};" in chosen.reason
    kept = curves.held_out[place.at]
    assert kept.dtype == np.float32
    assert kept.mean() == pytest.approx(chosen.record.test_loss, rel=1e-6)
    assert chosen.record.median_loss > 0.5 * np.log(CLASSES)
    with pytest.warns(UserWarning, match="held-out loss was lowest"):
        audit.flagged(share=0.1)  # and nothing says that it has not learned
    # the paper's place is the last, most overfitted one
    paper = audit.evidence.names.record("rho")
    assert paper.epoch > 3 * chosen.record.epoch
    assert audit.score("loss", checkpoint="rho").median() > -0.5
    assert audit.checkpoints["prediction"].sum() == 1


def test_the_place_keeps_its_representations_whatever_else_is_kept(watched, tmp_path):
    whole = watched[0].audit
    part, said = looped(tmp_path / "run", keep="prediction+final")
    assert said == watched[1]
    names = whole.evidence.names
    told = names.prediction().record.name
    for name in (told, names.found[-1].name):
        assert part.audit.score("psmi", checkpoint=name).equals(
            whole.score("psmi", checkpoint=name)
        )
    kept = [
        name
        for name in whole.checkpoints.index
        if any(
            key.startswith("layer.")
            for key in part.audit.run.run.read_tensors(f"forward/{name}")
        )
    ]
    assert kept == [told, names.found[-1].name]


def test_a_loop_that_breaks_and_goes_on_keeps_what_was_told(watched, tmp_path):
    first, _ = looped(tmp_path / "run", breaks=True)
    assert first.audit.checkpoints.index[-1] != watched[0].audit.checkpoints.index[-1]
    told = first.audit.prediction
    again, _ = looped(tmp_path / "run")  # from its first weights, past the interruption
    assert again.audit.prediction.record == told.record
    assert again.audit.prediction.until == told.until
    assert again.audit.checkpoints.equals(watched[0].audit.checkpoints)
    opened = mw.Audit.open(tmp_path / "run")
    assert opened.prediction.record == told.record


@pytest.mark.parametrize(("smoothing", "aside"), [(0.1, 0), (0.1, 8), (0.2, 0)])
def test_label_smoothing_is_interrupted_where_the_drop_levels_off(
    smoothing, aside, tmp_path
):
    course = {"of": CLEAN, "smoothing": smoothing, "aside": aside}
    watch, said = looped(tmp_path / "run", **course)
    chosen = watch.audit.prediction
    assert (said.count(True), chosen.why) == (1, "level")
    assert chosen.elsewhere is None  # afterwards the place is the same
    assert chosen.until.step == said.index(True) + 1
    left = 1 - watch.audit.checkpoints["drop"].cummax()
    at_end = left[chosen.until.name]
    assert left[chosen.record.name] <= 1.1 * at_end + 1e-9
    assert (left[: chosen.record.name].iloc[:-1] > 1.1 * at_end).all()


def pictures() -> mw.data.ImageDataset:
    """Pictures of 2×3 grey pixels; the last ones are to be held out."""
    x, labels = noisy(2 * MEMBERS + ASIDE, 1)
    grey = np.clip(x / 10 + 0.5, 0, 1).reshape(len(x), 2, 3)
    return mw.data.ImageDataset.from_arrays(grey, labels)


def make_module(n_classes: int) -> nn.Sequential:
    hidden = nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(48, n_classes))


def make_audit(path):
    data = pictures()
    settings = {"epochs": EPOCHS, "lr": 4e-3, "batch_size": 15, "checkpoint_every": 1}
    training = mw.TrainingConfig(schedule="constant", **settings)
    model = mw.models.TorchClassifier(make_module)
    return mw.Audit(model, data, path, training, held_out=data.ids[-ASIDE:].tolist())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    audit = make_audit(path)
    with pytest.warns(UserWarning, match="held-out loss was lowest"):
        audit.train(stop_at_drop=RHO)
    told, table = audit.prediction, audit.checkpoints
    audit.train()
    return audit, told, table


def test_an_audit_interrupts_tells_and_ends_as_without(trained, tmp_path):
    audit, told, before = trained
    assert told.why == "turn"
    assert before.index[-1] == told.until.name != told.record.name
    assert audit.prediction.record == told.record
    straight = make_audit(tmp_path / "run")
    straight.train()
    assert straight.checkpoints.drop(columns="prediction").equals(
        audit.checkpoints.drop(columns="prediction")
    )
    # chosen after the end, it is of all checkpoints
    lowest = straight.checkpoints["test_loss"].iloc[1:].idxmin()
    assert straight.prediction.record.name == lowest == told.record.name
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        straight.train(stop_at_drop=RHO)
    assert any("lowest" in str(one.message) for one in said)


def test_references_and_forks_start_from_the_place(trained, tmp_path):
    audit, told, _ = trained
    with ThreadPoolExecutor(1) as executor:
        audit.run_references(1, executor)
    models = audit.evidence.references
    assert models.checkpoints == (told.record.name,)
    assert np.isfinite(audit.score("reference")).all()
    fork = audit.fork(tmp_path / "fork", data=audit.data, start="prediction")
    fork.train()
    steps = [record.step for record in fork.evidence.names.found]
    assert steps == [record.step for record in audit.evidence.names.found]
    same = fork.checkpoints["median_loss"] == audit.checkpoints["median_loss"]
    assert same[: told.record.name].all()
    assert not same.iloc[-1]  # its optimizer starts anew


def test_lost_held_out_losses_are_made_again(trained, tmp_path):
    import shutil

    path = shutil.copytree(trained[0].path, tmp_path / "run")
    audit = make_audit(path)
    file = path / f"checkpoints/{trained[1].record.name}/held_out.safetensors"
    kept = file.read_bytes()
    file.unlink()
    with pytest.warns(UserWarning, match="held_out"):
        assert audit.prediction.record == trained[1].record  # it was told
    audit.train()
    assert file.read_bytes() == kept
    assert audit.prediction.record == trained[1].record


def test_held_out_samples_without_a_finite_loss_are_named(tmp_path):
    aside = rows(ASIDE, 2)
    aside.tensors[0][7] = np.nan
    with pytest.raises(FloatingPointError, match="1 of 240 held-out samples"):
        mw.watch(mlp(), rows(MEMBERS, 1), tmp_path / "run", 8, held_out=aside)


def test_a_checkpoint_alone_and_classes_that_training_lacks(tmp_path):
    x, labels = noisy(90, 1)
    known = labels < 2
    data = TensorDataset(torch.from_numpy(x[known]), torch.from_numpy(labels[known]))
    others, of_others = noisy(90, 2)
    aside = TensorDataset(torch.from_numpy(others), torch.from_numpy(of_others))
    module, course = mlp(), {"class_names": ["a", "b", "c"], "checkpoint_every": 1}
    with pytest.warns(UserWarning, match="never occur"):
        watch = mw.watch(module, data, tmp_path / "run", 1, held_out=aside, **course)
    with pytest.raises(ValueError, match="no checkpoint after step 0"):
        watch.audit.prediction  # noqa: B018 - it is computed
    assert not watch.step()
    assert watch.audit.prediction.record.name == "epoch-1"
    kept = watch.audit.run.run.read_tensors("checkpoints/epoch-1/held_out")
    assert len(kept["losses"]) == (of_others < 2).sum()
