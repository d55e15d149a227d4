"""Models in memory: one that a user gives, and one whose frozen weights a worker keeps."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from memowidgets.models.heads import drawn_again
from memowidgets.stamps import digest

if TYPE_CHECKING:
    from torch import Tensor, nn


class Given:
    """Loader that returns copies of a model in memory.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Its values are copied to main memory, one tensor at a time.
    lora : LoRA, optional
        Adapters to add.
    in_full : bool
        Whether the values become float32.

    Attributes
    ----------
    config : transformers.PretrainedConfig
        Configuration of the model.
    identity : dict of str
        Digests of the values, and of which are not trained.

    Raises
    ------
    ValueError
        If weights are quantised, offloaded, or spread over devices.
    """

    def __init__(self, model: nn.Module, lora: object = None, *, in_full: bool = False) -> None:
        import torch

        _check_whole(model)
        self.identity = _identity_of(model, lora)

        def copied(tensor: Tensor) -> Tensor:
            wanted = torch.float32 if in_full and tensor.is_floating_point() else tensor.dtype
            return tensor.detach().to("cpu", wanted, copy=True)

        values = {id(p): _parameter(copied(p), p) for p in model.parameters()}
        buffers = {id(b): copied(b) for b in model.buffers()}
        self._model = copy.deepcopy(model, {**values, **buffers})
        self.config: Any = self._model.config

    def __call__(self, **_changes: Any) -> nn.Module:
        """Return a copy of the model."""
        return copy.deepcopy(self._model)

    def __getstate__(self) -> dict[str, Any]:
        """Return the values as arrays, which pickle writes without copies of all of them."""
        import torch

        parameters = [*self._model.parameters()]
        bare = {id(p): _parameter(p.detach().new_empty(0), p) for p in parameters}
        values = [p.detach().reshape(-1).view(torch.uint8).numpy() for p in parameters]
        shapes = [p.shape for p in parameters]
        model = copy.deepcopy(self._model, bare)
        return {**vars(self), "_model": model, "values": values, "shapes": shapes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import torch

        values, shapes = state.pop("values"), state.pop("shapes")
        vars(self).update(state)
        filled = zip(self._model.parameters(), values, shapes, strict=True)
        for parameter, array, shape in filled:
            parameter.data = torch.from_numpy(array).view(parameter.dtype).view(shape)

    def parts(self) -> Iterator[nn.Module]:
        """Return the parts of the model."""
        return self._model.modules()


class Base:
    """A model before any training, whose frozen weights all of its copies share.

    Only the weights are shared. A copy has its own head, buffers and attributes, so that training
    one copy changes no other.

    Parameters
    ----------
    model : torch.nn.Module
        The model as it was loaded.
    trained : iterable of torch.nn.Parameter
        Weights that are not frozen, such as those of a head.
    place : callable
        Function that returns the values of a frozen weight in the type and on the device of
        training.
    """

    def __init__(
        self,
        model: nn.Module,
        trained: Iterable[nn.Parameter],
        place: Callable[[Tensor], Tensor],
    ) -> None:
        from torch import nn

        own = {id(p) for p in trained}
        self._model = model
        self._loaded = {id(p): p for p in model.parameters() if id(p) not in own}
        self._placed = {
            key: nn.Parameter(place(p.detach()), requires_grad=False)
            for key, p in self._loaded.items()
        }

    def copy(self) -> nn.Module:
        """Return a copy with the frozen weights as they were loaded.

        Adapters are rounded to the type of the weight that they are added to, so they are added
        before `fill`. A head that is not in the model's files is drawn from torch's generator.
        """
        made = copy.deepcopy(self._model, dict(self._loaded))
        drawn_again(made)
        return made

    def fill(self, module: nn.Module) -> None:
        """Give a copy the frozen weights of training, also where they are tied."""
        for part in module.modules():
            own = part._parameters  # noqa: SLF001 - the registered ones
            own.update({name: self._placed.get(id(p), p) for name, p in own.items()})


def _parameter(values: Tensor, like: nn.Parameter) -> nn.Parameter:
    from torch import nn

    return nn.Parameter(values, requires_grad=like.requires_grad)


def _check_whole(model: Any) -> None:
    """Raise for a model whose weights are not all there, in full, on one device."""
    places = {str(p.device) for p in model.parameters()}
    if getattr(model, "is_quantized", False) or getattr(model.config, "quantization_config", None):
        what, instead = "are quantised", "without quantization_config"
    elif "meta" in places or len(places) > 1:
        what, instead = f"are on {', '.join(sorted(places))}", "without device_map"
    else:
        return
    raise ValueError(
        f"from_model needs all weights in full on one device, but those of {type(model).__name__} "
        f'{what}; load it {instead}, with dtype="bfloat16" if memory is short'
    )


def _identity_of(model: Any, lora: object) -> dict[str, str]:
    """Return digests of a model in memory: of all its values, and of which are not trained.

    With adapters, no other weight is trained, whatever requires a gradient.
    """
    found = hashlib.sha256(json.dumps(model.config.to_dict(), default=str).encode())
    trained = dict(model.named_parameters(remove_duplicate=False))
    buffers = [value for name, value in model.state_dict().items() if name not in trained]
    for values in (*model.parameters(), *buffers):  # buffers such as running means
        found.update(memoryview(values.detach().cpu().float().contiguous().numpy()))
    fixed = [name for name, value in model.named_parameters() if not value.requires_grad]
    named = {"fixed": digest(fixed)} if fixed and lora is None else {}
    return {"weights": found.hexdigest()[:16], **named}
