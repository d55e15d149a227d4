"""Loads what an audit's processes need and trains once: `forked` ones then start in a moment."""

from __future__ import annotations

import tempfile
import threading

from tqdm import tqdm

from tests.audit import test_run_killed  # noqa: F401 - what forked processes run
from tests.training.small import trained

# tqdm's usual lock is one for all forked processes. Who is killed with it leaves others waiting.
tqdm.set_lock(threading.RLock())

with tempfile.TemporaryDirectory() as folder:
    trained(folder)
