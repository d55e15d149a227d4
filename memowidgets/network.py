"""Whether a hub may be asked. Opening what lies on disk never does: a run can name anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["hub_may_be_asked", "without_the_hub"]

_may_be_asked = ContextVar("_may_be_asked", default=True)


def hub_may_be_asked() -> bool:
    """Whether a model or dataset may be fetched by its name, or only found where it was kept."""
    return _may_be_asked.get()


@contextmanager
def without_the_hub() -> Iterator[None]:
    """Within this block, what is named is taken from the hub's local copies or not at all."""
    token = _may_be_asked.set(False)
    try:
        yield
    finally:
        _may_be_asked.reset(token)
