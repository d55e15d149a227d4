"""The audit: the one object a user holds, and the only place where all rooms meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memowidgets.extras import later

if TYPE_CHECKING:
    from memowidgets.audit.audit import Audit, open_recorded
    from memowidgets.audit.watching import Watch, watch

__all__ = ["Audit", "Watch", "open_recorded", "watch"]

# a loop that is watched waits for what it imports, and pandas and widgets take a second
__getattr__ = later(
    __name__,
    dict.fromkeys(__all__, "memowidgets.audit.audit")
    | dict.fromkeys(("Watch", "watch"), "memowidgets.audit.watching"),
)


def __dir__() -> list[str]:
    return __all__
