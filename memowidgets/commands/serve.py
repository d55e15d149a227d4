"""Run Voila until the process that started it closes its standard input.

    python -m memowidgets.commands.serve FOLDER ...

The arguments after the folder are Voila's. The folder is removed if its owner ends without removing
it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading


def main() -> None:
    """Serve until a signal arrives, or until the owner has ended."""
    from voila.app import main as voila

    folder, left_alone = sys.argv.pop(1), threading.Event()
    threading.Thread(target=_end_when_left, args=(left_alone,), daemon=True).start()
    voila()
    if left_alone.is_set():
        shutil.rmtree(folder, ignore_errors=True)


def _end_when_left(left_alone: threading.Event) -> None:
    """Wait until the other end of the pipe is closed (also by a kill), then end normally."""
    sys.stdin.buffer.read()
    left_alone.set()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
