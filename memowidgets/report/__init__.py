"""The exported page of an audit, with its Markdown and JSON twins."""

from memowidgets.report.content import Content, Decided, Digest, Figure, Missing, Scored
from memowidgets.report.files import checked_targets, write
from memowidgets.report.machine import SCHEMA_VERSION, schema

__all__ = [
    "SCHEMA_VERSION",
    "Content",
    "Decided",
    "Digest",
    "Figure",
    "Missing",
    "Scored",
    "checked_targets",
    "schema",
    "write",
]
