"""The exported page of an audit, with its JSON twin."""

from memowidgets.report.content import Content, Digest, Figure, Missing, Scored
from memowidgets.report.exports import SCHEMA_VERSION, checked_targets, schema, write
from memowidgets.report.words import without_calls

__all__ = [
    "SCHEMA_VERSION",
    "Content",
    "Digest",
    "Figure",
    "Missing",
    "Scored",
    "checked_targets",
    "schema",
    "without_calls",
    "write",
]
