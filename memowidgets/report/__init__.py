"""The exported page of an audit, with its JSON twin."""

from memowidgets.report.content import Content, Digest, Figure, MissingPart
from memowidgets.report.exports import SCHEMA_VERSION, checked_targets, schema, write

__all__ = [
    "SCHEMA_VERSION",
    "Content",
    "Digest",
    "Figure",
    "MissingPart",
    "checked_targets",
    "schema",
    "write",
]
