"""Train and eval modes of a module's parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the mode of every part afterwards; a part may be in another one than the module.

    The flags are set directly, because a part's own ``train`` may change its weights, as adapters
    that are merged in eval mode do.
    """
    before = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, training in before:
            part.training = training
