"""Passes of an audit's model over a module of transformers that another loop trains."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import CausalLM, SequenceClassifier
from memowidgets.models.base import modes_kept
from memowidgets.models.heads import plain
from memowidgets.models.memory import Memory
from memowidgets.models.precision import used_precision
from memowidgets.progress import Progress
from memowidgets.stamps import digest_of_arrays
from memowidgets.training.checkpoint import arrays_of
from memowidgets.training.device import working_on
from memowidgets.training.forward import LAYER, Forward, Shapes, forward, halve_passes
from memowidgets.training.learner import Recipe
from memowidgets.training.recorder import Allocate, Weights, trained_weights
from memowidgets.visible import listed

if TYPE_CHECKING:
    from torch import nn

_KINDS = (
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
    "AutoModelForImageClassification",
)


class ModelPasses:
    """Passes as an audit's model makes them, over another module of its kind.

    Parameters
    ----------
    recipe : Recipe
        Recipe of the audit, whose model feeds samples to the module.
    members : array of shape (n_members,), int64
        Positions of the members in the recipe's data.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    layers : sequence of str
        Names of the audit's layers.
    kept : collection of str
        Layers whose hidden states are stored.

    Raises
    ------
    TypeError
        If the audit's model is not a `CausalLM` or a classifier of transformers.
    ValueError
        If it has its own adapters, or the audit flips labels.
    """

    def __init__(
        self,
        recipe: Recipe,
        members: NDArray[np.int64],
        held_out: Dataset | None,
        layers: Sequence[str],
        kept: Collection[str],
    ) -> None:
        model = recipe.model
        if getattr(model, "kind", None) not in _KINDS:
            raise TypeError(
                "only an audit of a CausalLM or of a classifier of transformers can record an "
                f"external training, not one of {type(model).__name__}"
            )
        if model.settings().get("lora") is not None:
            raise ValueError(
                "the audit's model adds its own adapters, which are not those in training; create "
                f"it with {type(model).__name__}.from_model(model, tokenizer), without lora"
            )
        if recipe.settings.label_noise:
            raise ValueError(
                "label_noise changes only the audit's own training; leave it out for an external "
                "one"
            )
        self.recipe, self.members, self.held_out = recipe, members, held_out
        self.labels: NDArray[np.int64] = recipe.data.labels[members]
        self.layer_names = tuple(name for name in layers if name in kept)
        self._layers = tuple(layers)
        self._memory: Memory | None = None

    def check(self, module: nn.Module) -> None:
        """Raise for a module that is not the audit's.

        Raises
        ------
        ValueError
            If its classes, its padding or its number of blocks are others.
        """
        model = self.recipe.model
        if not isinstance(model, CausalLM):
            config: Any = plain(module).config
            check_head(config, self.recipe.data.class_names)
        if isinstance(model, SequenceClassifier):
            model.check_padding(module)
        found = model.layer_names(module)
        if found != self._layers:
            raise ValueError(
                f"the model in training has {len(found)} blocks, but the audit's has "
                f"{len(self._layers)}; pass the trained model to "
                f"{type(model).__name__}.from_model"
            )

    def look(self, module: nn.Module, progress: Progress, allocate: Allocate) -> Forward:
        """Run the module over the members, and keep the layers that are stored."""
        unkept = {LAYER + name for name in {*self._layers} - {*self.layer_names}}
        with used_precision(module) as used:

            def stored(shapes: Shapes) -> Mapping[str, NDArray[np.float32]]:
                lasting = {name: shape for name, shape in shapes.items() if name not in unkept}
                return allocate(lasting, used[-1])

            seen = self._pass(module, self.recipe.data, self.members, progress, allocate=stored)
            return replace(seen, precision=used[-1])

    def test(self, module: nn.Module, progress: Progress) -> tuple[float, float] | None:
        """Return the mean loss and the accuracy of the held-out samples, if there are any."""
        if self.held_out is None or not len(self.held_out):
            return None
        everything = np.arange(len(self.held_out))
        unseen = self._pass(module, self.held_out, everything, progress)
        return unseen.figures(self.held_out.labels)

    def weights(self, module: nn.Module) -> Weights:
        """Return the trained weights and lasting buffers, or an adapter as peft saves it."""
        peft: Any = module
        adapter = getattr(module, "active_adapter", None)
        if hasattr(module, "get_base_model") and isinstance(adapter, str):
            from memowidgets.models.lora import adapter_weights

            arrays = arrays_of(adapter_weights(peft, adapter))
            config = {**peft.peft_config[adapter].to_dict(), "inference_mode": True}
            notes = {"adapter_config.json": json.loads(json.dumps(config, default=_plain))}
            return Weights(digest_of_arrays(arrays), arrays, "adapter_model", notes)
        lasting = module.state_dict().keys()
        buffers = {n: b for n, b in module.named_buffers() if n in lasting}  # as running means
        arrays = arrays_of(trained_weights(module) | buffers)
        return Weights(digest_of_arrays(arrays), arrays, "weights")

    def _pass(
        self,
        module: nn.Module,
        data: Dataset,
        positions: NDArray[np.int64],
        progress: Progress,
        **capture: Any,
    ) -> Forward:
        device = next(module.parameters()).device
        look = partial(
            forward,
            self.recipe.model,
            module,
            data,
            positions,
            device,
            "float32",  # the module's forward already has the training's autocast
            capture=bool(capture),
            progress=progress,
            **capture,
        )
        self._memory = self._memory or Memory(device)
        with modes_kept(module), working_on(device):
            return self._memory.fit(look, partial(halve_passes, self.recipe.model))


def check_head(config: Any, class_names: Sequence[str]) -> None:
    """Check that a model in training has one logit for each class, in the order of the data.

    Raises
    ------
    ValueError
        If the head is for several labels at once or for regression, or its classes are others.
    """
    problem, width = getattr(config, "problem_type", None), int(config.num_labels)
    if problem not in (None, "single_label_classification") or width < 2:
        what = "regression" if problem == "regression" or width < 2 else "several labels at once"
        raise ValueError(
            f"the head of the model in training is for {what}; an audit needs one class for each "
            "sample"
        )
    if width != len(class_names):
        raise ValueError(
            f"the model in training has {width} logits, but the data of this audit have "
            f"{len(class_names)} classes"
        )
    names = [str(config.id2label.get(i, "")) for i in range(width)]
    theirs, ours = (
        [" ".join(name.split()).casefold() for name in known] for known in (names, class_names)
    )
    if sorted(theirs) == sorted(ours) and theirs != ours:
        raise ValueError(
            f"the model's label2id numbers the classes {listed(names, 5)}, and the data of this "
            f"audit {listed(class_names, 5)}; create the data with class_names="
            "list(model.config.id2label.values())"
        )


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)
