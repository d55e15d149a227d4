"""Frozen weights that a worker keeps on its device, for the next model with new adapters."""

from __future__ import annotations

import copy
import platform
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memowidgets.files import make_private, one_at_a_time
from memowidgets.models.heads import drawn_again
from memowidgets.models.pretrained import cache_folder

if TYPE_CHECKING:
    import torch
    from torch import nn


class Base:
    """A model before any training, whose frozen weights all of its copies share.

    Only the weights are shared. A copy has its own head, buffers and attributes, so that training
    one copy changes no other.

    Parameters
    ----------
    model : torch.nn.Module
        The model as it was loaded. Its frozen weights are moved to the device.
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
        place: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        import torch
        from torch import nn

        own = {id(parameter) for parameter in trained}
        self._model = model
        self._hollow: list[nn.Parameter] = []
        self._frozen: list[nn.Parameter] = []
        left = [p for p in model.parameters() if id(p) not in own][::-1]
        while left:  # each is freed before the next one is moved
            parameter = left.pop()
            # A hollow weight takes no memory. Its type is that of the file, because adapters are
            # rounded to the type of the weight that they are added to.
            values = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
            self._hollow.append(nn.Parameter(values, requires_grad=False))
            put(model, {id(parameter): self._hollow[-1]})
            self._frozen.append(nn.Parameter(place(parameter.detach()), requires_grad=False))
        self._state = self._written()

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing has written into the frozen weights."""
        return self._written() == self._state

    def copy(self) -> nn.Module:
        """Return a copy with hollow frozen weights.

        A head that is not in the model's files is drawn from torch's generator.
        """
        made = copy.deepcopy(self._model, {id(hollow): hollow for hollow in self._hollow})
        drawn_again(made)
        return made

    def fill(self, module: nn.Module) -> None:
        """Give a copy its frozen weights."""
        put(module, dict(zip(map(id, self._hollow), self._frozen, strict=True)))

    def _written(self) -> list[int]:
        """Return for each weight how often it was written to."""
        return [weight._version for weight in self._frozen]  # noqa: SLF001 - torch's


def _folder_of_the_machine() -> Path:
    """Return the folder whose lock the user's processes on this machine share.

    It lies in the user's cache, where nobody else can hold the lock.
    """
    folder = cache_folder() / "loading" / (platform.node() or "here")
    with suppress(OSError):  # then nobody waits
        make_private(folder)
    return folder


def put(module: nn.Module, others: Mapping[int, nn.Parameter]) -> None:
    """Put other parameters in the place of those with these ids, also where they are tied."""
    for part in module.modules():
        own = part._parameters  # noqa: SLF001 - the registered ones
        own.update({name: others[id(p)] for name, p in own.items() if id(p) in others})


class Bases:
    """The base that a process keeps, one at a time.

    Attributes
    ----------
    loads : int
        Number of times that a base was loaded.
    """

    def __init__(self) -> None:
        self.loads = 0
        self._mutex = threading.RLock()
        self._kept: tuple[Hashable, Base] | None = None

    def copy(self, key: Hashable, load: Callable[[], Base]) -> tuple[Base, nn.Module]:
        """Return the base of a key, and a copy of it. It is loaded if it is not the one kept.

        The workers of a machine load one after the other, so that each finds as free only the
        memory that those before it have left.

        It is loaded anew if its frozen weights were written to. Loading draws nothing from torch's
        generator, so that the first copy is drawn as later ones are.
        """
        import torch

        with self._mutex:
            if self._kept is None or self._kept[0] != key or not self._kept[1].is_unchanged:
                self._kept = None  # before the next one is loaded, which needs the memory
                self.loads += 1
                before = torch.get_rng_state()
                with one_at_a_time(_folder_of_the_machine()):
                    self._kept = key, load()
                torch.set_rng_state(before)
            base = self._kept[1]
            return base, base.copy()

    def clear(self) -> None:
        """Forget the base, whose memory is free once no model is in training."""
        with self._mutex:
            self._kept = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # no process gets the base of another
