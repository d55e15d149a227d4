"""What the toolkit needs of a model; torch is imported where it is used."""

from __future__ import annotations

import abc
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from memowidgets.data import Dataset

__all__ = ["Model"]

_LARGEST_REPRESENTATION = 8192
_POOLED = 4


class Model(abc.ABC):
    """A recipe for a classifier.

    A model holds settings, never weights: `build` makes a fresh module for a dataset, so that
    the target and every shadow model start from the same recipe.
    """

    training_defaults: Mapping[str, Any] = {}
    """What `TrainingConfig` takes for the fields that its user left open."""

    forward_batch: ClassVar[int] = 512
    """Samples in a batch of a pass that trains nothing."""

    less_memory: ClassVar[str] = ""
    """How to capture less, where representations take much memory: the end of a sentence."""

    cpu_threads: int | None = None
    """Threads that pay off on a CPU; None for all. One where a step takes a millisecond."""

    version: str | None = None
    """Stands for the source text, where that changes without changing what is trained."""

    source: dict[str, Any] | None = None
    """How to make the recipe again; None if only its owner can."""

    pool: str | int | None = "auto"
    """Rows and columns that an image's activation is average-pooled to before it is a
    representation; ``"auto"``: 4×4 where it has more than 8192 values; None: never."""

    device: str | None = None
    """Where an audit computes unless it is told; None for the best there is."""

    @abc.abstractmethod
    def build(self, data: Dataset) -> nn.Module:
        """A fresh module whose input and classes follow `data`, drawn from torch's generator."""

    @abc.abstractmethod
    def feeder(self, data: Dataset, device: torch.device) -> Callable[[NDArray[Any]], Any]:
        """A function from positions in `data` to what `outputs` takes, on the device."""

    @abc.abstractmethod
    def outputs(self, module: nn.Module, inputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of shape (batch, classes) and the loss of each sample, (batch,)."""

    @abc.abstractmethod
    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Names of the layers whose output is a representation, first to last."""

    def check_data(self, data: Dataset) -> None:  # noqa: B027 - some models read any
        """Refuse a dataset that the model can't read; the message names one that it can.

        Raises
        ------
        TypeError
            If `data` is of another kind.
        """

    def feeder_at(
        self,
        data: Dataset,
        device: torch.device,
        precision: str,  # noqa: ARG002 - for models that keep the output of frozen layers
    ) -> Callable[[NDArray[Any]], Any]:
        """As `feeder`, for passes at a precision."""
        return self.feeder(data, device)

    def skeleton(self, data: Dataset) -> nn.Module:
        """The same module without weights: its names and shapes."""
        import torch

        with torch.device("meta"):
            return self.build(data)

    def placed(self, module: nn.Module, device: torch.device, precision: str) -> nn.Module:  # noqa: ARG002
        """The module on a device, ready to be trained at a precision."""
        return module.to(device)

    def augmented(self, inputs: Any, augment: str) -> Any:
        """What `feeder` gave, changed at random for training; as it is by default."""
        if augment != "none":
            raise ValueError(f"{type(self).__name__} knows no augmentation {augment!r}")
        return inputs

    def lengths(self, data: Dataset) -> NDArray[Any] | None:  # noqa: ARG002 - others differ
        """How long each sample is, (n,); None where all are alike."""
        return None

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """What of a module is kept at a checkpoint, by name."""
        return dict(module.state_dict())

    def load_weights(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Take over what was kept of a module."""
        module.load_state_dict(dict(weights))

    @property
    def weights_name(self) -> str:
        """Name of the file of weights in a checkpoint's folder, without its ending."""
        return "weights"

    def weights_config(self, module: nn.Module) -> dict[str, Any]:  # noqa: ARG002
        """JSON files that other tools need beside the weights, by name."""
        return {}

    def settings(self) -> dict[str, Any]:
        """The recipe's own numbers, as they are shown and hashed."""
        return {}

    def source_text(self) -> str:
        """What defines the recipe beside its settings; part of its hash."""
        texts = [_source_of(cls) for cls in type(self).__mro__ if _is_recipe(cls)]
        return "\n".join(texts)

    def describe(self, data: Dataset) -> dict[str, str]:
        """What makes two models the same: class, settings, source, parameters' names and shapes."""
        module = self.skeleton(data)
        shapes = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
        return {
            "class": type(self).__name__,
            "settings": json.dumps(self.settings(), sort_keys=True),
            "source": _digest(self.source_text()),
            "parameters": _digest(json.dumps(shapes)),
        }

    @contextmanager
    def captured(self, module: nn.Module) -> Iterator[dict[str, Tensor]]:
        """While open, every forward pass leaves the layers' outputs in the dictionary.

        Outputs are flattened to (batch, values) in float32, after pooling as `pool` says.
        """
        kept: dict[str, Tensor] = {}
        hooks = [
            module.get_submodule(name).register_forward_hook(_keeper(kept, name, self.pool))
            for name in self.layer_names(module)
        ]
        try:
            yield kept
        finally:
            for hook in hooks:
                hook.remove()

    def autocast(self, device: torch.device, precision: str) -> AbstractContextManager[Any]:
        """The context in which forward passes run at a precision."""
        import torch

        from memowidgets.models.precision import check_available, resolve_precision

        used = resolve_precision(device, precision)
        check_available(device, used)
        enabled = used == "bfloat16"
        return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def _is_recipe(cls: type) -> bool:
    return issubclass(cls, Model) and cls is not Model


def _source_of(cls: type) -> str:
    """A class's version where it states one, else its source text."""
    version = vars(cls).get("version")
    if version is not None:
        return str(version)
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        raise ValueError(
            f"the source of {cls.__name__} can't be read, so runs of it can't be told apart: give "
            'the class a version = "1" and change it with the class'
        ) from None


def _keeper(kept: dict[str, Tensor], name: str, pool: str | int | None) -> Callable[..., None]:
    import torch

    def keep(_module: nn.Module, _inputs: Sequence[Any], output: Any) -> None:
        if isinstance(output, tuple | list) and output:
            output = output[0]
        if not isinstance(output, torch.Tensor):
            return
        flat = _flattened(output.detach(), pool).float()
        if flat.data_ptr() == output.data_ptr():  # what follows may write into its input
            flat = flat.clone()
        kept[name] = flat

    return keep


def _flattened(output: Tensor, pool: str | int | None) -> Tensor:
    from torch.nn.functional import adaptive_avg_pool2d

    if pool == "auto" and output[0].numel() > _LARGEST_REPRESENTATION:
        pool = _POOLED
    if output.ndim == 3 and isinstance(pool, int):  # tokens have no rows and columns
        return output.mean(dim=1)
    if output.ndim == 4 and isinstance(pool, int) and max(output.shape[2:]) > pool:
        output = adaptive_avg_pool2d(output, pool)
    return output.flatten(1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
