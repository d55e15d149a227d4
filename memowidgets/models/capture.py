"""Capture of what goes into the parts of a module, or comes out of them, in a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["captured", "first_tensor"]


@contextmanager
def captured(
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
    kept: dict[str, Tensor] = {}

    def keep(name: str, part: nn.Module, values: Any) -> None:
        tensor = first_tensor(values)
        if tensor is None:
            return
        small = reduced(name, part, tensor.detach())
        of_module = small.data_ptr() == tensor.data_ptr()  # the next part may change it in place
        kept[name] = small.clone() if of_module else small

    def before(name: str, part: nn.Module, inputs: Any, named: Any) -> None:
        keep(name, part, inputs or named)

    def after(name: str, part: nn.Module, _inputs: Any, output: Any) -> None:
        keep(name, part, output)

    hooks = []
    try:
        for name, (part_name, is_input) in places.items():
            part = module.get_submodule(part_name)
            if is_input:
                hook = part.register_forward_pre_hook(partial(before, name), with_kwargs=True)
            else:
                hook = part.register_forward_hook(partial(after, name))
            hooks.append(hook)
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def first_tensor(values: Any) -> Tensor | None:
    """Return the tensor in what a part takes or returns: the first of several; None without one."""
    import torch

    if isinstance(values, torch.Tensor):
        return values
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if isinstance(values, tuple | list) and values:
        return first_tensor(values[0])
    return None
