"""The audit: the one object a user holds, and the only place where all rooms meet."""

from memowidgets.audit.audit import Audit, figures_by_setting, open_recorded, scoreboard
from memowidgets.audit.watching import Watch, watch

__all__ = ["Audit", "Watch", "figures_by_setting", "open_recorded", "scoreboard", "watch"]
