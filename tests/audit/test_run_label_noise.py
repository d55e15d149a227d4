"""Label noise: off by default, the same in every model, undone nowhere, shown wherever it is on."""

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.training.design import add_noise

NOISE = 0.2


@pytest.fixture(scope="module")
def data():
    return mw.data.make_mcqs(60, seed=3)


def audit_of(data, path, noise=NOISE):
    training = mw.TrainingConfig(epochs=2, label_noise=noise)
    model = mw.models.CausalLM.from_scratch(data, layers=1, width=16)
    return mw.Audit(model, data, path=path, training=training)


@pytest.fixture(scope="module")
def audit(data, tmp_path_factory):
    made = audit_of(data, tmp_path_factory.mktemp("noise") / "run")
    made.train()
    return made


def test_a_share_of_the_pool_is_flipped_and_trained_on_and_the_held_out_part_is_not(
    audit, data
):
    flipped, design = audit.data.labels != data.labels, audit.run.design
    assert flipped[design.pool].sum() == round(NOISE * len(design.pool))
    assert not flipped[design.held_out].any()
    assert (audit.data.labels < data.n_choices).all()
    losses = -audit.score("loss", checkpoint="final").to_numpy()
    logits = audit.run.forward(audit.evidence.names.record("final"))["logits"]
    assert audit.labels.tolist() == audit.data.labels[design.members].tolist()
    right = logits.argmax(axis=1) == audit.labels
    assert losses[right].mean() < losses[~right].mean()


def test_it_comes_back_the_same_and_off_means_off(audit, data, tmp_path):
    assert (mw.Audit.open(audit.path).labels == audit.labels).all()
    assert (mw.Audit.open(audit.path, data=data).labels == audit.labels).all()
    assert (audit_of(data, tmp_path / "other").data.labels == audit.data.labels).all()
    assert (
        audit_of(data, tmp_path / "clean", noise=0).data.labels == data.labels
    ).all()
    with pytest.raises(
        ValueError, match=r"training label_noise is 0\.2 there and 0 here"
    ):
        audit_of(data, audit.path, noise=0)


def test_it_is_shown_wherever_it_is_on(audit):
    note = "label noise is on: 20 % of the pool's labels were flipped at random"
    assert note in audit.evidence.notes_at("final")
    mask = np.arange(len(audit.members)) < 4
    assert note in audit.evaluate("loss", truth=mask).warnings
    assert "20 % of the pool" in audit._repr_html_()
    with pytest.warns(UserWarning) as told:  # noqa: PT030 - two epochs bring other warnings too
        audit.flagged("loss", tau=10.0)
    assert note in [str(warning.message) for warning in told]


def test_canaries_keep_their_label(tmp_path):
    data = mw.data.load_digits().take(range(200)).with_canaries(40, seed=0)
    training = mw.TrainingConfig(epochs=1, label_noise=0.3)
    audit = mw.Audit(
        mw.models.ConvNet(4), data, path=tmp_path / "run", training=training
    )
    flipped = audit.data.labels != data.labels
    assert not flipped[data.canaries].any()
    assert flipped.sum() == round(0.3 * len(audit.run.design.pool))
    assert (audit.kept().labels == data.labels).all()
    again = mw.Audit.open(tmp_path / "run", data=data)
    np.testing.assert_array_equal(again.data.labels, audit.data.labels)
    of_most = add_noise(data, np.arange(200), 0.99, 0)
    assert (of_most.labels != data.labels).sum() == 160, "all that are no canaries"
