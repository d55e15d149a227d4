"""Run Voila until the process that started it closes its standard input.

    python -m memowidgets.commands.serve FOLDER ...

The arguments after the folder are Voila's. The folder is removed if its owner ends without removing
it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import threading

from jupyter_server.services.kernels.kernelmanager import ServerKernelManager


class PrivateKernelManager(ServerKernelManager):
    """Kernel manager whose Unix sockets lie in the working folder, where only its owner may look.

    Server and kernel have the same working folder, so the names are relative: the path of a Unix
    socket has at most about 100 bytes, and that of a temporary folder may have more.
    """

    def _ip_default(self) -> str:
        return secrets.token_hex(8)


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
