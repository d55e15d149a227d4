"""Playgrounds on PSMI, on LiRA with few shadow models, and on the limits of Theorem 1."""

from memowidgets.teaching.lira import LiRAPlayground
from memowidgets.teaching.psmi import PSMIPlayground
from memowidgets.teaching.theorem import TheoremPlayground

__all__ = ["LiRAPlayground", "PSMIPlayground", "TheoremPlayground"]
