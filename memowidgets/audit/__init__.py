"""The audit: the one object a user holds, and the only place where all rooms meet."""

from memowidgets.audit.audit import Audit

__all__ = ["Audit"]
