"""Model in memory for the next pass at the same checkpoint, so that it is not loaded again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from memowidgets.models.memory import free_memory
from memowidgets.training.device import free_bytes, torch_device

if TYPE_CHECKING:
    from memowidgets.training.learner import Learner, Recipe

_SHARE = 1 / 4  # largest share of the free memory that a kept model may have
_FREE_BYTES = 2**32  # where a device does not tell its free memory


class Loaded:
    """Learner with the weights of a checkpoint; a process keeps at most one, and no large one."""

    _mutex: ClassVar[threading.RLock] = threading.RLock()
    _last: ClassVar[weakref.ref[Loaded] | None] = None

    def __init__(self) -> None:
        self._one = threading.RLock()
        self._learner: Learner | None = None
        self._of: Hashable = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one thread use learners: a pass changes the mode of its module while it runs."""
        with self._one:
            yield

    def find(self, recipe: Recipe, of: Hashable) -> Learner | None:
        """Return the learner of a recipe that has the weights `of`, or None."""
        kept = self._learner
        if kept is None or self._of != of:
            return None
        same = recipe.model is kept.recipe.model and recipe.data is kept.recipe.data
        settings = recipe.settings, recipe.device
        return kept if same and settings == (kept.recipe.settings, kept.recipe.device) else None

    def keep(self, learner: Learner, of: Hashable) -> None:
        """Keep a learner that has the weights `of`, if it is small, and drop all others."""
        with self._mutex:
            self.drop()
            told = free_bytes(torch_device(learner.recipe.device))
            free = _FREE_BYTES if told is None else told
            if learner.forget_optimizer() <= _SHARE * free:
                self._learner, self._of = learner, of
                Loaded._last = weakref.ref(self)

    def drop(self) -> None:
        """Give back the memory of the learner that the process keeps, whoever made it."""
        with self._mutex:
            last = Loaded._last() if Loaded._last is not None else None
            Loaded._last = None
            if last is not None and last._learner is not None:  # noqa: SLF001 - of the same class
                device = torch_device(last._learner.recipe.device)  # noqa: SLF001
                last._learner = last._of = None  # noqa: SLF001
                free_memory(device)
