"""Playgrounds: a network that memorises, PSMI, LiRA with few models, and limits of Theorem 1."""

from memowidgets.teaching.lira_playground import LiRAPlayground
from memowidgets.teaching.memorization_playground import MemorizationPlayground
from memowidgets.teaching.psmi_playground import PSMIPlayground
from memowidgets.teaching.theorem_playground import TheoremPlayground

__all__ = ["LiRAPlayground", "MemorizationPlayground", "PSMIPlayground", "TheoremPlayground"]
