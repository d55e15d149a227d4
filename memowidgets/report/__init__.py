"""The exported page of an audit, with its JSON twin."""

from memowidgets.report.content import AtTime, Content, Digest, Figure
from memowidgets.report.exports import SCHEMA_VERSION, checked_targets, schema, write

__all__ = [
    "SCHEMA_VERSION",
    "AtTime",
    "Content",
    "Digest",
    "Figure",
    "checked_targets",
    "schema",
    "write",
]
