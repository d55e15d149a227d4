"""The exported page of an audit, with its Markdown and JSON twins."""

from memowidgets.report.content import Content, Digest, Figure, Missing, Scored
from memowidgets.report.exports import SCHEMA_VERSION, checked_targets, schema, write
from memowidgets.report.words import FIELDS, checked_about, without_calls

__all__ = [
    "FIELDS",
    "SCHEMA_VERSION",
    "Content",
    "Digest",
    "Figure",
    "Missing",
    "Scored",
    "checked_about",
    "checked_targets",
    "schema",
    "without_calls",
    "write",
]
