"""Show a recorded audit, or the dashboard of a run, in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from memowidgets.commands.runs import CommandError, checked_run, refusing
from memowidgets.visible import visible

RECORDING = "patients-smollm2"


def demo(
    say: Callable[[str], None],
    out: Path | None = None,
    *,
    browser: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write the report of the recorded audit, and open it.

    Parameters
    ----------
    say : callable
        Function that prints a line.
    out : Path, optional
        Folder for the report. It is created if it does not exist. Default: a new temporary folder.
    browser : bool
        Whether to open a browser. The page's path is printed in any case.
    overwrite : bool
        Whether to replace a report that is in the folder already.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    CommandError
        If the folder cannot be written to, or a report is there already.
    """
    if out is not None and out.exists() and not out.is_dir():
        raise CommandError(f"{out} is not a folder; pass a folder as --out")
    folder = Path(tempfile.mkdtemp(prefix="memowidgets-demo-")) if out is None else out.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"the folder {folder} cannot be made ({error.strerror}); pass another one as --out"
        ) from None
    say("Which of its training samples will this model memorise?")
    say("SmolLM2 learned from notes about invented patients which ward takes them.")
    say("Writing the report of its recorded audit, with a threshold τ that you can move.")
    with refusing(folder):
        from memowidgets.audit import open_recorded

        # without figures, which take ten times as long as all the rest
        page = open_recorded(RECORDING).report(
            folder / f"{RECORDING}.html",
            include_samples=True,  # they are generated, so anybody may see them
            overwrite=overwrite,
            figures=False,
        )
    say(f"The page is {visible(str(page))}")
    if browser and not webbrowser.open(f"{page.as_uri()}#move"):
        say("No browser was found. Open the page in one yourself.")
    return page


ADDRESS = "127.0.0.1"
_START_SECONDS = 120
_END_SECONDS = 15
_POLL_SECONDS = 0.1
_SAID_AT_LAST = 1500  # characters of the log of a server that did not start
_KERNEL = "memowidgets"
_TEMPLATE = Path(__file__).parents[1] / "voila" / "memowidgets"
_RUN_KERNEL = "from memowidgets.commands.view import run_kernel; run_kernel()"
_CELL = """
from pathlib import Path
from memowidgets.commands import CommandError, opened, refusing
try:
    with refusing(Path({path!r})):
        shown = opened(Path({path!r}), {data!r}, {model!r}).dashboard()
except CommandError as error:
    print("The run can't be opened:", error)
else:
    display(shown)
"""


class _Stopped(Exception):  # noqa: N818 - a wish, not an error
    """The user asked the command to end."""


def view(
    path: Path,
    say: Callable[[str], None],
    port: int = 0,
    *,
    browser: bool = True,
    data: Path | None = None,
    model: Path | None = None,
) -> None:
    """Serve the dashboard until the command is stopped.

    The notebook that Voila shows, its settings and the kernel's sockets lie in a private temporary
    folder that is removed at the end. The server listens on loopback only and requires the token.
    The kernel listens on no port.

    Parameters
    ----------
    path : Path
        The run directory.
    say : callable
        Function that prints a line.
    port : int
        Port to listen on. 0 means any free one.
    browser : bool
        Whether to open a browser. The address is printed in any case.
    data, model : Path, optional
        Where the run's data and model were loaded from.

    Raises
    ------
    CommandError
        If there is no run, Voila is not installed, or the server does not start.
    """
    checked_run(path)
    for flag, given in (("--data", data), ("--model", model)):
        if given is not None and not given.exists():
            raise CommandError(f"{flag}: there is no file or folder {given}")
    if find_spec("voila") is None:
        raise CommandError("this needs Voila: pip install 'memowidgets[lab]'")
    with (
        _stoppable(),
        tempfile.TemporaryDirectory(prefix="memowidgets-view-") as folder,
        _served(Path(folder), _cell(path, data, model), port) as (server, address),
    ):
        say(f"{visible(path.name)} is shown at {address}")
        say("Stop it with Ctrl-C.")
        if browser:
            webbrowser.open(address)
        server.wait()
        raise CommandError("the server ended on its own")


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """End without a traceback at SIGINT, SIGTERM or SIGHUP, after cleaning up."""

    def stop(*_: Any) -> NoReturn:
        for name in names:
            signal.signal(name, signal.SIG_IGN)  # a second one does not interrupt the cleaning up
        raise _Stopped

    names = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]
    before = {name: signal.signal(name, stop) for name in names}
    try:
        yield
    except _Stopped:
        pass
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextlib.contextmanager
def _served(folder: Path, cell: str, port: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield a private Voila server and its address."""
    port, token = _free_port(port), secrets.token_urlsafe(24)
    notebook = _write_notebook(folder, cell)
    log = folder / "server.log"
    server_module = [sys.executable, "-m", "memowidgets.commands.serve", str(folder)]
    command = [*server_module, "--no-browser", "--template=memowidgets", str(notebook)]
    with log.open("wb") as out:
        server = subprocess.Popen(  # noqa: S603 - our own interpreter
            command,
            cwd=folder,
            env=_environment(folder, port, token),
            stdin=subprocess.PIPE,  # it ends when this is closed, also by killing this process
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C reaches only this process
        )
        try:
            _wait_until_up(server, port, log)
            yield server, f"http://{ADDRESS}:{port}/?token={token}"
        finally:
            _end(server)
            if server.stdin is not None:
                server.stdin.close()


def _cell(path: Path, data: Path | None, model: Path | None) -> str:
    """Return the code that shows a run's dashboard."""
    places = {"path": path, "data": data, "model": model}
    named = {name: place and str(place.absolute()) for name, place in places.items()}
    return _CELL.format(**named)


def _write_notebook(folder: Path, code: str) -> Path:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "dashboard",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": code,
    }
    kernel = {"name": _KERNEL, "display_name": "Python", "language": "python"}
    notebook = {
        "cells": [cell],
        "metadata": {"kernelspec": kernel, "title": "memowidgets"},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = folder / "memowidgets.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def _environment(folder: Path, port: int, token: str) -> dict[str, str]:
    """Return the environment without Jupyter's settings; a file has the token, to hide it."""
    server = {"ip": ADDRESS, "port": port, "port_retries": 0, "token": token}
    settings: dict[str, dict[str, Any]] = {"Voila": server}
    if os.name != "nt":  # Jupyter has no Unix sockets on Windows
        kernels = "memowidgets.commands.serve.PrivateKernelManager"
        settings["AsyncMappingKernelManager"] = {"kernel_manager_class": kernels}
        settings["KernelManager"] = {"transport": "ipc"}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    template = folder / "share" / "voila" / "templates" / "memowidgets"
    shutil.copytree(_TEMPLATE, template)  # this version's, wherever it is installed
    for name in ("config", "data", "runtime"):
        (folder / name).mkdir()
        environment[f"JUPYTER_{name.upper()}_DIR"] = str(folder / name)
    (folder / "config" / "voila.json").write_text(json.dumps(settings), encoding="utf-8")
    kernel = folder / "data" / "kernels" / _KERNEL / "kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-c", _RUN_KERNEL, "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python", "language": "python"}
    kernel.write_text(json.dumps(spec), encoding="utf-8")
    return environment | {
        "JUPYTER_PATH": str(folder / "share"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PLATFORM_DIRS": "1",
        "IPYTHONDIR": str(folder / "ipython"),
        "TMPDIR": str(folder),
    }


def run_kernel() -> None:
    """Run an IPython kernel until its server ends it, without listening on a port.

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


def _free_port(wanted: int) -> int:
    """Return the wanted port if it is free, or any free one for 0."""
    with socket.socket() as probe:
        try:
            probe.bind((ADDRESS, wanted))
        except OSError as error:
            raise CommandError(
                f"port {wanted} cannot be used ({error.strerror}); choose another --port"
            ) from None
        return int(probe.getsockname()[1])


def _wait_until_up(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port), 1):
            return
        time.sleep(_POLL_SECONDS)
    said = log.read_text("utf-8", "replace")[-_SAID_AT_LAST:]
    raise CommandError(f"Voila did not start: {said.strip() or 'it printed nothing'}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """Let the server end its kernels, and kill it if it does not."""
    server.terminate()
    try:
        server.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
