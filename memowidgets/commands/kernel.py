"""Run the kernel of `view`, which listens on no port.

python -m memowidgets.commands.kernel -f CONNECTION_FILE
"""

from __future__ import annotations


def main() -> None:
    """Run an IPython kernel until its server ends it.

    A kernel takes the output of forked processes through a TCP port, which any user of the machine
    can reach. This one does not take it.
    """
    from ipykernel import kernelapp
    from ipykernel.iostream import IOPubThread

    class WithoutPort(IOPubThread):
        def _setup_pipe_in(self) -> None:
            self._pipe_flag = False

    vars(kernelapp)["IOPubThread"] = WithoutPort
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
