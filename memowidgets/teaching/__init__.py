"""Playgrounds on PSMI, on LiRA with few shadow models, and on the limits of Theorem 1."""

from memowidgets.teaching.lira_playground import LiRAPlayground
from memowidgets.teaching.psmi_playground import PSMIPlayground
from memowidgets.teaching.theorem_playground import TheoremPlayground

__all__ = ["LiRAPlayground", "PSMIPlayground", "TheoremPlayground"]
