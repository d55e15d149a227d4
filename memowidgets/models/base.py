"""Base class of models, and the capture of activations. torch is imported only where it is used."""

from __future__ import annotations

import abc
import json
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from memowidgets.files import digest_of
from memowidgets.models.device import check_available, resolve_precision
from memowidgets.models.quantized import packing_kept

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from memowidgets.data import Dataset


__all__ = ["capture_outputs", "first_tensor"]


@contextmanager
def capture_outputs(
    module: nn.Module,
    places: Mapping[str, tuple[str, bool]],
    reduced: Callable[[str, nn.Module, Tensor], Tensor],
) -> Iterator[dict[str, Tensor]]:
    """Within this context, every forward pass stores activations in the dictionary.

    Parameters
    ----------
    module : Module
        The module that runs.
    places : dict of str to (str, bool)
        For each layer the name of a part, as in ``module.named_modules()``, and whether the layer
        is what goes into the part instead of what comes out of it.
    reduced : callable
        Function of a layer's name, the part and its activation that returns what is stored, such
        as an average over the places of an image.
    """
    outputs: dict[str, Tensor] = {}

    def keep(name: str, part: nn.Module, values: object) -> None:
        tensor = first_tensor(values)
        if tensor is None:
            return
        small = reduced(name, part, tensor.detach())
        # the next part may change it in place
        of_module = small.data_ptr() == tensor.data_ptr()
        outputs[name] = small.clone() if of_module else small

    def before(name: str, part: nn.Module, inputs: object, named: object) -> None:
        keep(name, part, inputs or named)

    def after(name: str, part: nn.Module, _inputs: object, output: object) -> None:
        keep(name, part, output)

    hooks = []
    try:
        for name, (part_name, is_input) in places.items():
            part = module.get_submodule(part_name)
            if is_input:
                hook = part.register_forward_pre_hook(
                    partial(before, name), with_kwargs=True
                )
            else:
                hook = part.register_forward_hook(partial(after, name))
            hooks.append(hook)
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def first_tensor(values: object) -> Tensor | None:
    """Return the tensor in what a part takes or returns: the first of several; None without one."""
    import torch

    if isinstance(values, torch.Tensor):
        return values
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if isinstance(values, tuple | list) and values:
        return first_tensor(values[0])
    return None


class Bases:
    """What a process keeps of a model for the next one of the same recipe: its frozen weights."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._kept: tuple[Hashable, Any] | None = None

    def of(self, key: Hashable, load: Callable[[], Any]) -> Any:
        """Return what is kept for a key, or what `load` returns, which is kept from then on."""
        with self._mutex:
            if self._kept is None or self._kept[0] != key:
                # before the next one is loaded, which needs the memory
                self._kept = None
                self._kept = key, load()
            return self._kept[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # no process gets what another keeps


_KNOWN = {"memowidgets", "torch", "transformers", "peft", "bitsandbytes"}
_LARGEST_REPRESENTATION = 8192
_POOLED = 4


class Model(abc.ABC):
    """Recipe for a classifier.

    A model has settings but no weights: `build` creates a fresh module for a dataset, so that the
    target model and every shadow model start from the same recipe.

    Attributes
    ----------
    training_defaults : mapping
        Values for the fields of `TrainingConfig` that its user left open.
    batches_by_length : bool
        Whether training batches have samples of similar length.
    forward_batch : int
        Batch size of a pass without training.
    cpu_threads : int or None
        Number of CPU threads; None for all. Use 1 if a step takes about a millisecond.
    version : str or None
        Text that identifies the recipe beside its settings, for changes that show nowhere else.
    draws_weights : bool
        Whether `build` draws all weights, instead of beginning with weights known by a digest.
    source : dict or None
        Description from which the recipe can be made again. None if only its owner can.
    pool : str, int or None
        Rows and columns to which an image's activation is average-pooled to become a
        representation. ``"auto"`` is 4×4 if it has more than 8192 values, and None never pools.
    device : str or None
        Default device of an audit. None means the best available one.
    """

    training_defaults: Mapping[str, Any] = {}
    batches_by_length: ClassVar[bool] = False
    forward_batch: int = 512
    cpu_threads: int | None = None
    version: str | None = None
    draws_weights: ClassVar[bool] = True
    source: dict[str, Any] | None = None
    pool: str | int | None = "auto"
    device: str | None = None

    @abc.abstractmethod
    def build(self, data: Dataset) -> nn.Module:
        """Create a module that fits `data`, with weights drawn from torch's generator."""

    @abc.abstractmethod
    def feeder(
        self, data: Dataset, device: torch.device, precision: str = "auto"
    ) -> Callable[[NDArray[Any]], Any]:
        """Return a function from positions in `data` to the input of `outputs`, on the device.

        The precision is that of passes, for models that keep the output of frozen layers.
        """

    def outputs(
        self, module: nn.Module, inputs: object, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits of shape (batch, classes) and the loss of each sample, (batch,).

        The loss is the cross-entropy of the label, unless a model has its own.
        """
        from torch.nn.functional import cross_entropy

        logits = self.logits(module, inputs).float()
        return logits, cross_entropy(logits, labels, reduction="none")

    @abc.abstractmethod
    def logits(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return logits of shape (batch, classes) for the output of `feeder`."""

    @abc.abstractmethod
    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Return the names of the layers whose output is a representation, first to last."""

    def check_data(self, data: Dataset) -> None:  # noqa: B027 - some models read any
        """Raise for a dataset that the model cannot read; the message names one that it can.

        Raises
        ------
        TypeError
            If `data` is of another kind.
        """

    def skeleton(self, data: Dataset) -> nn.Module:
        """Return the module without weights: only its names and shapes."""
        import torch

        with torch.device("meta"):
            return self.build(data)

    def place_on(
        self,
        module: nn.Module,
        device: torch.device,
        precision: str,  # noqa: ARG002
    ) -> nn.Module:
        """Return the module on a device, ready for training in a precision."""
        return module.to(device)

    def begin(
        self,
        data: Dataset,
        device: torch.device,
        precision: str,
        bases: Bases | None = None,  # noqa: ARG002 - for models with frozen weights
    ) -> nn.Module:
        """Return the module before its first step; `bases` has the frozen weights of a process."""
        return self.place_on(self.build(data), device, precision)

    def augmented(self, inputs: Any, augment: str) -> Any:
        """Return the output of `feeder` after random augmentation; unchanged by default."""
        if augment != "none":
            raise ValueError(
                f"{type(self).__name__} does not support augment={augment!r}"
            )
        return inputs

    def lengths(self, data: Dataset) -> NDArray[Any] | None:  # noqa: ARG002 - others differ
        """Return the length of each sample, (n,), or None if all are equal."""
        return None

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the weights of a module that a checkpoint stores, by name."""
        return dict(module.state_dict())

    def load_weights(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Load the weights that a checkpoint stores into a module."""
        module.load_state_dict(dict(weights))

    @property
    def weights_name(self) -> str:
        """Name of the weight file in a checkpoint's folder, without its suffix."""
        return "weights"

    def weights_config(self, module: nn.Module) -> dict[str, Any]:  # noqa: ARG002
        """Return JSON files that other tools need next to the weights, by name."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return {}

    def has_user_code(self, data: Dataset) -> bool:
        """Return whether the recipe or a part of its module is a class of a user.

        Such classes are known by what they do (`memowidgets.training.probe`).
        """
        return has_users_class(self, *self.skeleton(data).modules())

    def describe(self, data: Dataset) -> dict[str, str]:
        """Return what identifies a model: class, settings, version, parameter names and shapes."""
        module = self.skeleton(data)
        shapes = {
            name: list(tensor.shape) for name, tensor in module.state_dict().items()
        }
        return {
            "class": type(self).__name__,
            "settings": json.dumps(self.settings(), sort_keys=True),
            "version": self.version or "",
            "parameters": digest_of(json.dumps(shapes)),
        }

    @contextmanager
    def capture_layers(self, module: nn.Module) -> Iterator[dict[str, Tensor]]:
        """Within this context, every forward pass stores the layers' outputs in the dictionary.

        Outputs are flattened to (batch, values) in float32, after pooling according to `pool`.
        """
        places = {name: (name, False) for name in self.layer_names(module)}
        with capture_outputs(
            module, places, lambda *given: _flattened(given[-1], self.pool)
        ) as kept:
            yield kept

    def autocast(
        self, device: torch.device, precision: str
    ) -> AbstractContextManager[Any]:
        """Return the context for forward passes in a precision."""
        import torch

        used = resolve_precision(device, precision)
        check_available(device, used)
        enabled = used == "bfloat16"
        if not enabled and not torch.is_autocast_enabled(device.type):
            return nullcontext()
        return torch.autocast(
            device.type, torch.bfloat16, enabled=enabled, cache_enabled=False
        )


@contextmanager
def restore_modes(module: nn.Module) -> Iterator[None]:
    """Restore the mode of every part afterwards; a part may be in another one than the module.

    The flags are set directly, because a part's own ``train`` may change its weights, as adapters
    that are merged in eval mode do. Within this context eval mode changes no weights in 4 bits:
    every pass over a module that is trained afterwards stands in it.
    """
    before = [(part, part.training) for part in module.modules()]
    try:
        with packing_kept(module):
            yield
    finally:
        for part, training in before:
            part.training = training


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module inside of wrappers for several devices, and of torch.compile's."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        inside: nn.Module | None = getattr(
            module, "_orig_mod", None
        )  # of torch.compile
        if isinstance(module, DataParallel | DistributedDataParallel):
            inside = module.module
        if inside is None:
            return module
        module = inside


def has_users_class(*things: object) -> bool:
    """Return whether a class is neither of memowidgets nor of the libraries that it uses."""
    return any(
        type(thing).__module__.partition(".")[0] not in _KNOWN for thing in things
    )


def is_module(thing: object) -> bool:
    """Return whether a thing is a network itself. A class or function that makes one is none."""
    return not isinstance(thing, type) and hasattr(thing, "state_dict")


def check_model(model: object) -> None:
    """Raise for anything that is not a model of memowidgets.

    Raises
    ------
    TypeError
        With what to wrap it in.
    """
    if isinstance(model, Model):
        return
    advice = ""
    if is_module(model):
        advice = (
            ": pass mw.models.TorchClassifier(make_module) with a function that makes it, or, for "
            "a model of transformers, what from_model of mw.models.CausalLM, SequenceClassifier "
            "or ImageClassifier returns"
        )
    raise TypeError(
        f"model must be a model of mw.models, not {type(model).__name__}{advice}"
    )


def check_kind(reader: str, data: Dataset, *kinds: type) -> None:
    """Raise for a dataset of another kind than a model reads.

    Raises
    ------
    TypeError
        With the kinds that it reads.
    """
    if not isinstance(data, kinds):
        read = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"{reader} reads {read}, not {type(data).__name__}; pass such data, or a model that "
            "reads yours"
        )


def _flattened(output: Tensor, pool: str | int | None) -> Tensor:
    """Return an activation as (batch, values) in float32, after pooling."""
    from torch.nn.functional import adaptive_avg_pool2d

    if pool == "auto" and output[0].numel() > _LARGEST_REPRESENTATION:
        pool = _POOLED
    if output.ndim == 3 and isinstance(pool, int):  # tokens have no rows and columns
        return output.mean(dim=1).float()
    if output.ndim == 4 and isinstance(pool, int) and max(output.shape[2:]) > pool:
        output = adaptive_avg_pool2d(output, pool)
    return output.flatten(1).float()
