"""Models in memory: one that a user gives, and one whose frozen weights a worker keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from memowidgets.models.heads import drawn_again

if TYPE_CHECKING:
    from torch import Tensor, nn


class Given:
    """Loader that returns copies of a model in memory.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Its values are copied to main memory, one tensor at a time.
    in_full : bool
        Whether they become float32.
    """

    def __init__(self, model: nn.Module, *, in_full: bool = False) -> None:
        import torch

        def copied(tensor: Tensor) -> Tensor:
            wanted = torch.float32 if in_full and tensor.is_floating_point() else tensor.dtype
            return tensor.detach().to("cpu", wanted, copy=True)

        values = {id(p): _parameter(copied(p), p) for p in model.parameters()}
        buffers = {id(b): copied(b) for b in model.buffers()}
        self._model = copy.deepcopy(model, {**values, **buffers})

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
        return {"model": copy.deepcopy(self._model, bare), "values": values, "shapes": shapes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import torch

        self._model = state["model"]
        filled = zip(self._model.parameters(), state["values"], state["shapes"], strict=True)
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
        own = {id(p) for p in trained}
        self._model = model
        self._loaded = {id(p): p for p in model.parameters() if id(p) not in own}
        self._placed = {
            key: _parameter(place(p.detach()), p).requires_grad_(requires_grad=False)
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
