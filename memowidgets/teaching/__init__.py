"""Playgrounds that show why PSMI works, how few shadow models mislead, and where theory breaks."""

from memowidgets.teaching.lira import LiRAPlayground
from memowidgets.teaching.psmi import PSMIPlayground
from memowidgets.teaching.theorem import TheoremPlayground

__all__ = ["LiRAPlayground", "PSMIPlayground", "TheoremPlayground"]
