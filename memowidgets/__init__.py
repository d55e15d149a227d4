"""memowidgets: find out which training samples a classifier will memorise, before it does.

Names are imported when they are first used, so ``import memowidgets`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memowidgets.extras import later, name_missing_extras

if TYPE_CHECKING:
    from memowidgets import (
        charts,
        data,
        evaluation,
        memorization,
        metrics,
        models,
        teaching,
        training,
        widgets,
    )
    from memowidgets.audit import Audit, open_recorded, watch
    from memowidgets.registry import score
    from memowidgets.training import TrainingConfig

__version__ = "0.2.0"

name_missing_extras()

_NAMES = {
    "Audit": "memowidgets.audit",
    "TrainingConfig": "memowidgets.training",
    "open_recorded": "memowidgets.audit",
    "score": "memowidgets.registry",
    "watch": "memowidgets.audit",
}

__all__ = [
    "Audit",
    "TrainingConfig",
    "charts",
    "data",
    "evaluation",
    "memorization",
    "metrics",
    "models",
    "open_recorded",
    "score",
    "teaching",
    "training",
    "watch",
    "widgets",
]


__getattr__ = later(
    __name__, {name: _NAMES.get(name, f"{__name__}.{name}") for name in __all__}
)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
