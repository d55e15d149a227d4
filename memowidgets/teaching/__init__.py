"""Playgrounds: a network that memorises, PSMI, LiRA with few models, and limits of Theorem 1."""

from memowidgets.teaching.playgrounds import (
    LiRAPlayground,
    MemorizationPlayground,
    PSMIPlayground,
    TheoremPlayground,
)

__all__ = [
    "LiRAPlayground",
    "MemorizationPlayground",
    "PSMIPlayground",
    "TheoremPlayground",
]
