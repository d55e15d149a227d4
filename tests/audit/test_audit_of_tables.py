"""A table from its rows to the flagged ones: breast cancer data and a small network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import memowidgets as mw
from tests.training.small import Inline

TRAINING = mw.TrainingConfig(
    epochs=15, checkpoint_every=5, lr=2e-2, precision="float32"
)


def network(n_classes, n_features):
    return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Linear(16, n_classes))


def frame():
    found = load_breast_cancer(as_frame=True)
    table = found.data.iloc[:300, :10].assign(
        outcome=found.target_names[found.target[:300]]
    )
    worst = table["mean radius"] > table["mean radius"].median()
    table["size"] = np.where(worst, "large", "small")
    table["id"] = [f"p{i:03d}" for i in range(len(table))]
    table.loc[:4, "size"] = [f"rare {i}" for i in range(5)]
    table.loc[5:20, "mean texture"] = np.nan
    return table


def audited(path, data, **changes):
    model = mw.models.TorchClassifier(network, version="1")
    settings = {"training": TRAINING, "seed": 0, "device": "cpu"} | changes
    return mw.Audit(model, data, path=path, **settings)


@pytest.fixture(scope="module")
def data():
    with pytest.warns(UserWarning, match="16 values are missing, in 'mean texture'"):
        return mw.data.TableDataset.from_frame(frame(), "outcome").with_canaries(
            20, seed=0
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    audit = audited(tmp_path_factory.mktemp("table") / "run", data)
    audit.train()
    audit.run_shadows(8, Inline(), keep_forward=True)
    return audit


def test_the_flagged_rows_are_those_with_a_wrong_label(finished):
    found = finished.evaluate("psmi", truth="canaries")
    assert found.auc > 0.8
    assert finished.evaluate("loss", eta=1.0).n_memorized > 0
    assert set(finished.members) <= set(finished.data.ids)


def test_held_out_rows_have_no_part_in_the_encoding(finished, data):
    design = finished.run.design
    assert len(design.held_out) > 20
    expected = data.fitted(design.pool).encoded()
    np.testing.assert_array_equal(finished.data.encoded(), expected)
    assert not np.allclose(
        data.fitted(range(len(data))).encoded()[:, 0], expected[:, 0]
    )


def test_the_run_directory_has_no_text_of_a_row(finished):
    stored = [
        path.read_bytes() for path in Path(finished.path).rglob("*") if path.is_file()
    ]
    for text in (b"rare 1", b"large", b"mean texture"):
        assert not any(text in content for content in stored)


def test_a_fork_fits_an_encoding_of_its_own_and_starts_from_scratch(finished, tmp_path):
    rare = [f"p{i:03d}" for i in range(5)]
    kept = finished.data.take(np.flatnonzero(~np.isin(finished.data.ids, rare)))
    with pytest.raises(ValueError, match=r'a table is encoded by .*start="scratch"'):
        finished.fork(tmp_path / "on", data=kept, start="prediction")
    assert not (tmp_path / "on").exists()
    fresh = finished.fork(tmp_path / "fresh", data=kept, start="scratch")
    gone = finished.data.encoded().shape[1] - fresh.data.encoded().shape[1]
    assert gone == np.isin(rare, finished.data.ids[finished.run.design.pool]).sum()
    fresh.train()
    again = mw.Audit.open(fresh.path, data=kept, model=finished.run.model)
    np.testing.assert_array_equal(again.data.encoded(), fresh.data.encoded())


def test_a_held_out_table_must_have_the_same_columns(data, tmp_path):
    pool, aside = data.take(range(200)), data.take(range(200, 300))
    short = mw.TrainingConfig(epochs=1, precision="float32")
    audit = audited(tmp_path / "run", pool, held_out=aside, training=short)
    audit.train()
    assert np.isfinite(audit.checkpoints["test_loss"]).all()
    assert audit.run.held_out.encoded().shape[1] == audit.data.encoded().shape[1]
    fewer = {name: aside.columns[name] for name in list(aside.columns)[1:]}
    text = {name: values.astype(str) for name, values in aside.columns.items()}
    for columns in (fewer, text):
        other = mw.data.TableDataset(
            aside.ids, aside.labels, aside.class_names, columns=columns
        )
        with pytest.raises(ValueError, match="held-out samples have other columns"):
            audited(tmp_path / "other", pool, held_out=other, training=short)


def test_a_module_finds_the_number_of_features_or_says_what_does_not_fit(data):
    fitted = data.fitted(range(300))
    n_features = fitted.encoded().shape[1]
    for make in (
        lambda n_classes: nn.Sequential(
            nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, n_classes)
        ),
        # which may come first
        lambda n_features, n_classes: network(n_classes, n_features),
    ):
        module = mw.models.TorchClassifier(make).build(fitted)
        assert (module[0].in_features, module[2].out_features) == (n_features, 2)
    model = mw.models.TorchClassifier(network, version="1")
    texts = mw.data.TextDataset.from_texts(["a", "b"], [0, 1])
    with pytest.raises(
        TypeError, match="reads ImageDataset or TableDataset, not TextDataset"
    ):
        model.check_data(texts)
    with pytest.raises(ValueError, match=r"cannot take rows of shape \(1\d,\)"):
        mw.models.TorchClassifier(lambda n: nn.Linear(7, n)).build(fitted)
    with pytest.raises(ValueError, match="rows of a table cannot be augmented"):
        model.augmented(nn.Linear(2, 2).weight, "flip")


def test_a_loop_of_ones_own_is_watched_on_encoded_rows(data, tmp_path):
    table = data.fitted(range(len(data)))
    features, labels = torch.from_numpy(table.encoded()), torch.from_numpy(table.labels)
    module = network(2, features.shape[1])
    watch = mw.watch(module, table, path=tmp_path / "run", steps_per_epoch=1)
    with torch.no_grad():
        losses = nn.functional.cross_entropy(
            module(features), labels, reduction="none"
        ).numpy()
    found = watch.audit.score("loss", checkpoint=0)
    np.testing.assert_allclose(-found.loc[data.ids], losses, rtol=1e-4, atol=1e-5)
    again = mw.Audit.open(tmp_path / "run", data=data)
    np.testing.assert_array_equal(again.data.encoded(), table.encoded())
    with pytest.raises(ValueError, match="this table has no encoding yet"):
        mw.watch(module, data, path=tmp_path / "other", steps_per_epoch=1)
