"""The exported page of an audit, with its Markdown and JSON twins."""

from memowidgets.report.content import Content, Decided, Digest, Figure, Missing, Scored
from memowidgets.report.exports import SCHEMA_VERSION, checked_targets, schema, write

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
