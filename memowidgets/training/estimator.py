"""A classifier of scikit-learn as a script: refitted on rows, and asked at its stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import as_code

if TYPE_CHECKING:
    from memowidgets.training.function_passes import Rows
    from memowidgets.training.script import ScriptWatch

_STAGES = ("staged_decision_function", "staged_predict_proba")
_ANSWERS = ("decision_function", "predict_proba")
_NETWORK = "MLPClassifier"
_SEED = "random_state"
_WIDTH = 64  # of what stands for the leaves of trees


class EstimatorScript:
    """Script that fits a clone of an estimator to rows.

    Its steps are the stages of boosting, epochs of ``partial_fit`` of an `MLPClassifier` or an
    `SGDClassifier`, or one, the whole fit.

    Parameters
    ----------
    estimator : classifier
        Classifier with scikit-learn's interface.
    inputs : array, DataFrame, sparse matrix or list of shape (n, …)
        What it reads.
    labels : array of shape (n,)
        Classes as it is to be given them.

    Raises
    ------
    TypeError
        If it is not a classifier of this interface.
    """

    def __init__(self, estimator: Any, inputs: Any, labels: NDArray[Any]) -> None:
        needed = ("fit", "get_params", "set_params")
        lacks = [name for name in needed if not hasattr(estimator, name)]
        answers = any(hasattr(estimator, name) for name in _ANSWERS)
        if isinstance(estimator, type) or lacks or not answers:
            raise TypeError(
                "estimator must be a classifier of scikit-learn's interface that has "
                "decision_function or predict_proba, such as LogisticRegression(), not "
                f"{as_code(estimator)}"
            )
        self._estimator = estimator
        self._inputs = inputs
        self._labels = labels
        self._classes = np.unique(labels)

    @property
    def n_steps(self) -> int:
        """Number of steps of a fit, as far as its settings say."""
        params = self._estimator.get_params()
        if _has_epochs(self._estimator) or self._has_stages():
            return int(params.get("max_iter", params.get("n_estimators", 1)))
        return 1

    def __call__(self, rows: Rows, watch: ScriptWatch, seed: int) -> None:
        """Fit a clone to rows, and be asked at its stages."""
        from sklearn.base import clone

        model = clone(self._estimator)
        params = model.get_params()
        seeds = [one for one in params if one.split("__")[-1] == _SEED]
        model.set_params(**dict.fromkeys(seeds, seed))
        watch.model = type(self._estimator).__name__
        n_classes = len(self._classes)

        layer = _layer_of(model)

        def logits_of(ask: Callable[[Any], Any]) -> Callable[[Rows], Any]:
            return lambda asked: ask(_rows(self._inputs, asked))

        def layer_at(step: int) -> dict[str, Callable[[Rows], Any]] | None:
            if layer is None:
                return None
            name, width, look = layer
            if step == 0:
                return {name: lambda asked: np.zeros((len(asked), width))}
            return {name: lambda asked: look(model, _rows(self._inputs, asked), step)}

        watch.record(0, lambda asked: np.zeros((len(asked), n_classes)), layer_at(0))
        for step, ask in enumerate(self._fitted(model, rows), 1):
            if watch.record(step, logits_of(ask), layer_at(step)):
                return

    def _has_stages(self) -> bool:
        return any(hasattr(self._estimator, name) for name in _STAGES)

    def _fitted(self, model: Any, rows: Rows) -> Iterator[Callable[[Any], Any]]:
        """Fit a model, and yield a function from inputs to logits at each step."""
        inputs = _rows(self._inputs, rows)
        labels = self._labels[rows]
        missing = set(self._classes.tolist()) - set(labels.tolist())
        if missing:
            raise ValueError(
                f"a model trains on {len(rows)} rows without the classes {sorted(missing)}; pass "
                "more samples of them"
            )
        if _has_epochs(model):
            losses: list[float] = []
            for _ in range(self.n_steps):
                model.partial_fit(inputs, labels, classes=self._classes)
                yield lambda x: _logits(model, x)
                losses.append(getattr(model, "loss_", np.nan))
                if _is_level(model, losses):
                    return
            return
        model.fit(inputs, labels)
        name = next((name for name in _STAGES if hasattr(model, name)), None)
        if name is None:
            yield lambda x: _logits(model, x)
            return
        for stage, _ in enumerate(getattr(model, name)(inputs[:1])):
            yield lambda x, stage=stage: _at_stage(model, name, stage, x)  # type: ignore[misc]


def _has_epochs(model: Any) -> bool:
    """Return whether a call of partial_fit is an epoch of the fit, which ends as the fit does."""
    if type(model).__name__ == _NETWORK:
        return hasattr(model, "partial_fit") and not model.early_stopping
    return type(model).__name__ == "SGDClassifier" and model.tol is None


def _is_level(model: Any, losses: list[float]) -> bool:
    """Return whether the loss has levelled off, by the rule of an `MLPClassifier`'s own fit."""
    quiet = 0
    best = np.inf
    for loss in losses:
        quiet = quiet + 1 if loss > best - (model.tol or 0) else 0
        best = min(best, loss)
    return quiet > int(model.n_iter_no_change)


def _at_stage(model: Any, name: str, stage: int, inputs: Any) -> NDArray[Any]:
    for at, values in enumerate(getattr(model, name)(inputs)):
        if at == stage:
            return _as_logits(model, name, values)
    raise AssertionError(stage)  # there are as many as were counted


def _logits(model: Any, inputs: Any) -> NDArray[Any]:
    """Return logits by what a classifier answers."""
    for name in _ANSWERS:
        if hasattr(model, name):
            values = np.asarray(getattr(model, name)(inputs))
            n_columns = 1 if values.ndim == 1 else values.shape[1]
            if n_columns in (
                1,
                len(model.classes_),
            ):  # not one for each pair of classes
                return _as_logits(model, name, values)
    raise TypeError(
        f"{type(model).__name__} has neither predict_proba nor a decision_function with a column "
        "for each class, so it has no logit gaps"
    )


def _as_logits(model: Any, name: str, values: Any) -> NDArray[Any]:
    """Return logits of what a method answers; one column is of the second of two classes."""
    table = np.asarray(values, np.float64)
    table = table.reshape(len(table), -1)
    if name.endswith("decision_function"):
        return np.hstack([0 * table, table]) if table.shape[1] == 1 else table
    # a forest of n trees gives less than half a vote to what no tree chooses
    is_forest = hasattr(model, "estimators_") and not hasattr(model, _STAGES[1])
    least = 0.5 / len(model.estimators_) if is_forest else np.finfo(np.float64).eps
    return np.log(np.maximum(table, least))


def _layer_of(model: Any) -> tuple[str, int, Callable[[Any, Any, int], Any]] | None:
    """Return name and width of a layer, and a function of the model, inputs and a stage."""
    last = _last_step(model)
    if type(last).__name__ == _NETWORK:
        sizes = np.atleast_1d(last.hidden_layer_sizes)
        return "hidden", int(sizes[-1]), _hidden
    if hasattr(last, "apply"):
        return "leaves", _WIDTH, _leaves
    return None


def _last_step(model: Any) -> Any:
    """Return the classifier of a pipeline, or a classifier itself."""
    return model[-1] if hasattr(model, "steps") else model


def _read_by_last(model: Any, inputs: Any) -> Any:
    """Return what the classifier of a pipeline reads of inputs."""
    return model[:-1].transform(inputs) if hasattr(model, "steps") else inputs


def _hidden(model: Any, inputs: Any, _stage: int) -> NDArray[Any]:
    """Return the last hidden units of an `MLPClassifier`, (n, width)."""
    from sklearn.neural_network._base import ACTIVATIONS

    network = _last_step(model)
    read = _read_by_last(model, inputs)
    is_sparse = hasattr(read, "toarray")
    values: NDArray[Any] = read.toarray() if is_sparse else np.asarray(read)
    layers = zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True)
    for weights, bias in layers:
        values = values @ weights + bias
        ACTIVATIONS[network.activation](values)  # in place
    return values


def _leaves(model: Any, inputs: Any, stage: int) -> NDArray[Any]:
    """Return the leaves of trees as `Audit.from_estimator` describes them, (n, width).

    One value for each leaf would be wider than there are samples. Random signs keep in how many
    trees two samples are together.
    """
    trees = _last_step(model)
    found = np.asarray(trees.apply(_read_by_last(model, inputs)))
    found = found.reshape(len(found), -1)
    if hasattr(trees, _STAGES[1]):
        per_stage = found.shape[1] // len(trees.estimators_)
        found = found[:, : stage * per_stage]
    total = np.zeros((len(found), _WIDTH))
    for tree, leaves in enumerate(found.T):
        rng = np.random.default_rng(tree)
        signs = rng.choice([-1.0, 1.0], size=(int(leaves.max()) + 1, _WIDTH))
        total += signs[leaves.astype(np.int64)]
    scaled: NDArray[Any] = total / np.sqrt(found.shape[1] * _WIDTH)
    return scaled


def _rows(inputs: Any, rows: Rows) -> Any:
    """Return some rows of what an estimator reads."""
    if hasattr(inputs, "iloc"):
        return inputs.iloc[rows]
    return [inputs[i] for i in rows] if isinstance(inputs, list) else inputs[rows]
