"""Computation of one score for many layers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from numpy.typing import ArrayLike

from memowidgets.checks import as_code
from memowidgets.metrics.arrays import Floats
from memowidgets.metrics.mahalanobis import Mahalanobis
from memowidgets.metrics.psmi import PSMI
from memowidgets.visible import quoted


def score_layers(
    metric: PSMI | Mahalanobis, layers: Mapping[Any, Any], y: ArrayLike | None = None
) -> dict[Any, Floats]:
    """Fit a metric to each layer's representations and score them with it.

    Parameters
    ----------
    metric : PSMI or Mahalanobis
        Metric to apply. It is not changed: each layer gets a copy.
    layers : mapping of layer to (n_samples, n_features) array or tensor
        Representations of each layer, read one layer at a time and in order. The mapping may load
        a layer on access, and arrays may be memory-mapped. Layers may differ in width.
    y : (n_samples,) array_like
        Labels. PSMI needs them, Mahalanobis ignores them.

    Returns
    -------
    dict of layer to (n_samples,) float64
        Scores of each layer. A low score means that memorisation is likely.

    Raises
    ------
    ValueError
        If the metric raises one, where the message names the layer, or there is no layer.
    TypeError
        If the metric is another object, or the layers are not a mapping.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> scores = score_layers(Mahalanobis(), {1: X, 2: X[:, :2]})
    >>> [(layer, len(values)) for layer, values in scores.items()]
    [(1, 60), (2, 60)]
    """
    if not (hasattr(metric, "fit") and hasattr(metric, "score_samples")):
        raise TypeError(f"metric must be a PSMI() or a Mahalanobis(), not {as_code(metric)}")
    if not hasattr(layers, "keys"):
        raise TypeError(f"layers must be a mapping, such as {{1: X}}, not {type(layers).__name__}")
    if not len(layers):
        raise ValueError("layers is empty: pass {layer: representations}")
    if y is None and isinstance(metric, PSMI):
        raise ValueError("PSMI needs the labels y")
    labels = cast("ArrayLike", y)
    scores = {}
    for layer in layers:
        X, own = layers[layer], copy.copy(metric)
        try:
            if isinstance(own, Mahalanobis):
                scores[layer] = own.fit(X).score_samples(X)
            else:
                scores[layer] = own.fit(X, labels).score_samples(X, labels)
        except ValueError as error:
            raise ValueError(f"layer {quoted(layer)}: {error}") from error
    return scores
