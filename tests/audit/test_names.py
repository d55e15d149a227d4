"""What users call layers, checkpoints and shadow models, and what they read if there is none."""

import numpy as np
import pytest
from torch import nn

import memowidgets as mw
from memowidgets.store import StoreError


def sequential(n_classes):
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(8, 6),
        nn.ReLU(),
        nn.Linear(6, n_classes),
    )


@pytest.fixture(scope="module")
def data():
    return mw.data.load_digits().take(np.arange(200))


@pytest.fixture(scope="module")
def settings():
    return mw.TrainingConfig(epochs=2, checkpoint_every=1, lr=0.01)


@pytest.fixture(scope="module")
def audit(data, settings, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "sequential"
    made = mw.Audit(mw.models.TorchClassifier(sequential), data, path=path, training=settings)
    made.train()
    return made


def test_a_number_is_the_position_of_a_layer_where_modules_have_numbers_as_names(audit):
    assert audit.layers == ("0", "1", "2", "4", "5")
    audit.score("loss")
    for position, name in enumerate(audit.layers, 1):
        by_number = audit.representation(position)
        assert by_number.shape[1] == {"0": 64, "1": 8, "2": 8, "4": 6, "5": 6}[name]
        np.testing.assert_array_equal(by_number, audit.representation(name))
    np.testing.assert_array_equal(audit.representation(np.int64(5)), audit.representation("last"))


@pytest.mark.parametrize("layer", [0, 6, -1, "3", True, 1.0])
def test_other_numbers_are_no_layer(audit, layer):
    with pytest.raises(ValueError, match=r"unknown layer .*valid: last, 1 to 5.*0, 1, 2, 4, 5"):
        audit.score("psmi", layer=layer)


def test_a_number_of_given_representations_is_the_key_it_was_given_with():
    rng = np.random.default_rng(0)
    given = {10: rng.normal(size=(40, 3)), 2: rng.normal(size=(40, 5))}
    audit = mw.Audit.from_arrays(labels=np.arange(40) % 2, representations=given)
    assert audit.layers == ("2", "10")
    assert audit.representation(2).shape == (40, 5)
    with pytest.raises(ValueError, match=r"unknown layer 1; valid: last, or a name of .*10"):
        audit.representation(1)


def test_a_truth_value_is_no_epoch(audit):
    assert audit.score("loss", checkpoint=1).equals(audit.score("loss", checkpoint="epoch-1"))
    with pytest.raises(ValueError, match=r"unknown checkpoint True; .*epoch-2"):
        audit.score("loss", checkpoint=True)


def test_an_unknown_shadow_model_lists_the_others(audit):
    for asks in (audit.log_lira, lambda: audit.as_target(0)):
        with pytest.raises(StoreError, match=r"no shadow models yet: call audit.run_shadows\(64\)"):
            asks()
    audit.run_shadows(2)
    for unknown in (2, -1, "1", True):
        with pytest.raises(ValueError, match=rf"unknown shadow model {unknown!r}; valid: 0, 1"):
            audit.as_target(unknown)
    assert len(audit.as_target(np.int64(1)).members)


def test_a_target_on_the_whole_pool_does_not_ask_for_shadow_models_on_halves(
    data, settings, tmp_path
):
    audit = mw.Audit(
        mw.models.TorchClassifier(sequential),
        data,
        path=tmp_path / "all",
        training=settings,
        members="all",
    )
    audit.train()
    for asks in (audit.log_lira, audit.probability_memorized, lambda: audit.as_target(0)):
        with pytest.raises(StoreError, match=r'whole pool.*members="half"') as caught:
            asks()
        assert "run_shadows(64)" not in str(caught.value)


def test_few_shadow_models_have_no_curve(audit):
    audit.run_shadows(6)
    with pytest.raises(ValueError, match="there are 6 shadow models; train 8"):
        audit.shadow_curve(eta=1.0)


def test_a_checkpoint_before_training_gets_a_whole_sentence(data, settings, tmp_path):
    untrained = mw.Audit(
        mw.models.TorchClassifier(sequential), data, path=tmp_path / "run", training=settings
    )
    with pytest.raises(ValueError, match=r"no checkpoint 'x', because .* yet: call train\(\)$"):
        untrained.evaluate("psmi", checkpoint="x")
