"""Classification heads of models of transformers: which are taken, and how wide they are."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from memowidgets.data import Dataset
from memowidgets.models.pooling import plain
from memowidgets.models.pretrained import CLASSES
from memowidgets.models.transformer import FINE_TUNED, Given

if TYPE_CHECKING:
    from torch import nn


CLASSIFIER = {**FINE_TUNED, "epochs": 5, "checkpoint_every": 0.5, "batch_size": 16, "lr": 5e-5}
_SAMPLES = {
    "AutoModelForSequenceClassification": ("sequence classifier", "text"),
    "AutoModelForImageClassification": ("image classifier", "image"),
}


def check_config(config: Any, name: str, kind: str) -> None:
    """Raise for a model without a head for one label of each sample.

    Parameters
    ----------
    config : transformers.PretrainedConfig
        Configuration of the model.
    name : str
        Name of the model in messages.
    kind : str
        Class of transformers that loads such classifiers.

    Raises
    ------
    ValueError
        If transformers has no such classifier, the model has an encoder and a decoder, or its head
        is for regression or for several labels at once.
    """
    import transformers

    ours, (theirs, sample) = CLASSES[kind], _SAMPLES[kind]
    if type(config) not in getattr(transformers, kind)._model_mapping:  # noqa: SLF001
        raise ValueError(f"{name} is a {config.model_type}, for which transformers has no {theirs}")
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{name} has an encoder and a decoder; {ours} takes a model with only one")
    task = getattr(config, "problem_type", None)
    head = any(_head(kind) in architecture for architecture in config.architectures or ())
    if task == "regression" or (task is None and head and config.num_labels == 1):
        raise ValueError(f"{name} has a head for regression; {ours} needs one logit for each class")
    if task == "multi_label_classification":
        raise ValueError(
            f"{name} has a head for several labels at once; {ours} needs exactly one label for "
            f"each {sample}"
        )


def check_model(model: Any, kind: str) -> None:
    """Raise for a model in memory that is not a classifier of this kind, as `check_config` does.

    Raises
    ------
    TypeError
        If it is not such a classifier of transformers.
    """
    base = plain(model)
    name = type(base).__name__
    kinds = [cls.__name__ for cls in type(base).__mro__]
    config = getattr(base, "config", None)
    if config is None or not any(_head(kind) in cls for cls in kinds):
        raise TypeError(
            f"{CLASSES[kind]}.from_model needs a classifier of transformers, but {name} is not "
            f"one; load it with {kind}.from_pretrained"
        )
    if config.num_labels == 1 and config.problem_type is None:
        config = copy.deepcopy(config)
        config.problem_type = "regression"
    check_config(config, name, kind)


def check_width(load: Any, config: Any, data: Dataset) -> None:
    """Raise if a model in memory does not have one logit for each class of the data."""
    width, n_classes = int(config.num_labels), len(data.class_names)
    if isinstance(load, Given) and width != n_classes:
        raise ValueError(
            f"the model has {width} logits, but the data have {n_classes} classes; load it "
            f"with num_labels={n_classes}"
        )


def from_config(config: Any, kind: str, n_classes: int) -> nn.Module:
    """Return a classifier with random weights and one logit for each class."""
    import transformers

    changed = copy.deepcopy(config)
    changed.num_labels = n_classes
    return cast("nn.Module", getattr(transformers, kind).from_config(changed))


def _head(kind: str) -> str:
    return kind.removeprefix("AutoModel")
