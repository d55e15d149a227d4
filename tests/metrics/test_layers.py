"""Many layers in one call."""

import collections

import numpy as np
import pytest

from memowidgets.metrics import PSMI, Mahalanobis, score_layers
from tests.metrics import reference


class Disk(collections.abc.Mapping):
    """Layers that are loaded when they are asked for."""

    def __init__(self, folder):
        self.folder, self.asked = folder, []

    def __getitem__(self, layer):
        self.asked.append(layer)
        return np.load(self.folder / f"{layer}.npy", mmap_mode="r")

    def __iter__(self):
        return iter([1, 2, 3])

    def __len__(self):
        return 3


@pytest.mark.parametrize("metric", [PSMI(), Mahalanobis()])
def test_each_layer_is_read_once_and_scored_as_alone(tmp_path, metric):
    X, y = reference.made(200, 9, 3)
    for layer in (1, 2, 3):
        np.save(tmp_path / f"{layer}.npy", X[:, :: 4 - layer])
    disk = Disk(tmp_path)
    scores = score_layers(metric, disk, y)
    assert disk.asked == [1, 2, 3]
    assert not hasattr(metric, "_fitted")
    alone = PSMI().fit(X, y).score_samples(X, y)
    if isinstance(metric, Mahalanobis):
        alone = Mahalanobis().fit(X).score_samples(X)
    assert np.array_equal(scores[3], alone)


def test_errors_name_the_layer():
    X, y = reference.made(60, 4, 2)
    broken = np.where(np.arange(4) == 2, np.nan, X)
    with pytest.raises(ValueError, match="layer 'b': X is NaN in row 0, column 2"):
        score_layers(PSMI(), {"a": X, "b": broken}, y)
    with pytest.raises(ValueError, match="needs the labels"):
        score_layers(PSMI(), {"a": X})


@pytest.mark.parametrize(
    ("metric", "layers", "error", "fact"),
    [
        ("psmi", {1: [[0.0]]}, TypeError, "'psmi'"),
        (PSMI(), np.zeros((4, 2)), TypeError, "ndarray"),
        (PSMI(), {}, ValueError, "layer"),
    ],
)
def test_other_metrics_and_layers_are_refused(metric, layers, error, fact):
    with pytest.raises(error, match=fact):
        score_layers(metric, layers, [0, 1, 0, 1])
