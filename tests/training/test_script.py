"""A script that gives logits itself: softmax regression in NumPy, without torch in its loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.store import RunDirectory
from memowidgets.training.config import derived_seed
from memowidgets.training.design import SHADOW
from tests.training.small import Inline

N = 150
WIDTH = 40
CLASSES = 3
EPOCHS = 12
PER_EPOCH = 5


def samples():
    """Clouds in many dimensions, with every tenth label wrong."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % CLASSES
    x = rng.normal(size=(N, WIDTH)) + 2 * np.eye(CLASSES, WIDTH)[labels]
    labels[::10] = (labels[::10] + 1) % CLASSES
    return x, labels


X, Y = samples()
ASKED = []  # how many samples each call is about, also of a script that was pickled


class Softmax:
    """Softmax regression by gradient descent; what tests change of it are its attributes."""

    def __init__(self, **changes):
        self.gives = "functions"
        self.steps = range(PER_EPOCH, EPOCHS * PER_EPOCH + 1, PER_EPOCH)
        vars(self).update(changes)

    def weights(self, rows, seed):
        """Yield the weights after each step."""
        rng = np.random.default_rng(seed)
        weights = np.zeros((WIDTH, CLASSES))
        for _ in range(EPOCHS * PER_EPOCH):
            some = rng.choice(rows, len(rows) // PER_EPOCH, replace=False)
            logits = X[some] @ weights
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            errors = shares - np.eye(CLASSES)[Y[some]]
            weights = weights - 2 / len(some) * X[some].T @ errors
            yield weights

    def __call__(self, rows, watch, seed):
        def given(weights):
            def logits(asked):
                ASKED.append(len(asked))
                return X[asked] @ weights

            if self.gives == "functions":
                return logits, lambda asked: {"squares": (X[asked] @ weights) ** 2}
            if self.gives == "rows alone":
                return (X[rows] @ weights,)
            return X @ weights, (X @ weights) ** 2

        start = given(np.zeros((WIDTH, CLASSES)))
        watch.record(0, *start, steps_per_epoch=PER_EPOCH)
        for step, weights in enumerate(self.weights(rows, seed), 1):
            if step in self.steps and watch.record(step, *given(weights)):
                return


def begun(path, fit, **changes):
    data = [(x, y) for x, y in zip(X.astype(np.float32), Y, strict=True)]
    options = {"checkpoint_every": 1, "held_out": 0.1} | changes
    return mw.Audit.from_script(fit, data, path, **options)


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    audit = begun(tmp_path_factory.mktemp("softmax") / "run", Softmax())
    audit.train()
    audit.run_references(1, Inline())
    audit.run_shadows(10, Inline(), design="balanced")
    return audit


def test_recorded_logits_go_from_the_target_to_the_truth(audit):
    assert len(audit.checkpoints) == EPOCHS + 1
    assert audit.layers == ("squares",)
    assert audit.representation(checkpoint="final").shape[1] == CLASSES
    assert audit.checkpoints["test_loss"].notna().all()
    planted = np.isin(audit.members.astype(int), range(0, N, 10))
    truth = audit.log_lira().to_numpy()
    assert np.median(truth[planted]) > np.median(truth[~planted])
    assert len(audit.score("reference")) == len(audit.members)


def test_a_shadow_model_is_one_of_a_loop_by_hand(audit):
    file = RunDirectory(audit.path).read_tensors("shadows/balanced/0003")
    pool = audit.run.design.pool
    seed = derived_seed(0, SHADOW.stream, 3)
    *_, weights = Softmax().weights(pool[file["members"]], seed)
    logits = X[pool] @ weights
    own = np.take_along_axis(logits, Y[pool][:, None], axis=1)[:, 0]
    np.put_along_axis(logits, Y[pool][:, None], -np.inf, axis=1)
    gaps = file[f"gap.epoch-{EPOCHS}"]
    np.testing.assert_allclose(gaps, own - logits.max(axis=1), rtol=1e-4, atol=1e-5)


def test_a_model_is_asked_only_for_what_is_wanted_of_it(audit):
    ASKED.clear()
    with ThreadPoolExecutor(1) as executor:
        audit.run_references(2, executor)
    n = len(audit.members)
    assert [asked for asked in ASKED if asked > CLASSES] == [n]


def test_arrays_and_functions_give_the_same(audit, tmp_path):
    arrays = begun(tmp_path, Softmax(gives="arrays"))
    arrays.train()
    assert arrays.layers == ("representations",)
    there = audit.checkpoints["median_loss"]
    np.testing.assert_allclose(arrays.checkpoints["median_loss"], there, rtol=1e-6)


def test_steps_at_which_nothing_is_due_are_kept_by_their_distance(tmp_path):
    audit = begun(tmp_path, Softmax(steps=[7, 9, 14, 31]))
    audit.train()
    assert audit.checkpoints["step"].tolist() == [0, 7, 14, 31]
    with pytest.raises(ValueError, match="no step 7"):
        another(audit, Softmax(steps=[8, 31])).run_shadows(1, Inline(), "epoch-1.4")


def another(audit, fit):
    """The same run with a script that is not the one that trained its target."""
    return begun(audit.path, fit)


def zeros(n=N):
    return np.zeros((n, CLASSES))


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        (Softmax(gives="rows alone"), "not of rows alone"),
        (lambda rows, watch, seed: watch.record(1, zeros()), "step 0"),
        (lambda rows, watch, seed: [watch.record(0, zeros()) for _ in "ab"], "after"),
        (lambda rows, watch, seed: watch.record(0, zeros()[:, :2]), r"\(2, 2\)"),
        (lambda rows, watch, seed: watch.record(0, zeros()), "watch.record"),
    ],
)
def test_what_does_not_fit_the_samples_is_refused(tmp_path, fit, said):
    with pytest.raises(ValueError, match=said):
        begun(tmp_path, fit).train()
