"""Run the kernel of `view`, which listens on no port.

python -m memowidgets.commands.kernel -f CONNECTION_FILE
"""

from __future__ import annotations

from ipykernel import kernelapp
from ipykernel.iostream import IOPubThread


class _WithoutPort(IOPubThread):
    """Sends the output of the kernel, but does not take that of forked processes.

    It would take that through a TCP port, which any user of the machine can reach.
    """

    def _setup_pipe_in(self) -> None:
        self._pipe_flag = False


def main() -> None:
    """Run an IPython kernel until its server ends it."""
    vars(kernelapp)["IOPubThread"] = _WithoutPort
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
