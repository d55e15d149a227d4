"""Loads what an audit's processes need and trains once: `forked` ones then start in a moment."""

from __future__ import annotations

import tempfile

from tests.audit import test_fork, test_kill  # noqa: F401 - what forked processes run
from tests.training.small import trained

with tempfile.TemporaryDirectory() as folder:
    trained(folder)
