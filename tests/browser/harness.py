"""A real JupyterLab in a real Chromium, for tests of widgets and notebooks.

`notebook_page` takes the source of code cells, or the path of a notebook; it opens a copy, runs all
cells (``run=False`` leaves that to `NotebookPage.run_all`) and waits until the kernel is idle. Its
`page` is Playwright's, and `python` asks the kernel, which can import ``tests.…``. At the end the
test fails if a cell raised, the page threw an error or wrote one to the console, or a request
wanted to leave the machine; `WatchedPage.allow` names what a test expects.

``app="notebook"`` opens it in Notebook 7. `voila_page` takes the same cells and shows what they
show in Voila. One server serves all three. What needs none of them is shown by bare.py.

With ``--screenshots``, `WatchedPage.screenshots` writes pictures to $MEMOWIDGETS_SCREENSHOTS, or to
``.screenshots/`` in the checkout. Tests are skipped with a reason where Chromium is missing; in CI
that is a failure.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
from PIL import Image

if TYPE_CHECKING:
    import nbformat
    from numpy.typing import NDArray
    from playwright.sync_api import (
        Browser,
        ConsoleMessage,
        Locator,
        Page,
        Request,
        WebSocket,
    )

    Cells = Sequence[str] | str | Path
    OpenNotebook = Callable[..., "NotebookPage"]
    OpenVoila = Callable[..., "VoilaPage"]

ROOT = Path(__file__).parents[2]
WIDTHS = (1400, 600)
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SESSION = "window.jupyterapp.shell.currentWidget?.sessionContext?.session"
# What Notebook 7.6 says of itself: the first at every start, with no widget at all; the others
# now and then, of its own file browser and fonts.
NOTEBOOK_ERRORS = (
    r"^page error: .*reading 'schema'\)$",
    r"^page error: Command 'filebrowser:open-path' not registered\.$",
    r"^console error: Failed to load resource: .* 403 .*/static/notebook/\w+\.woff2\)$",
)
CHROMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
PATIENCE = (
    60_000  # milliseconds; nothing is measured here, and a busy machine takes its time
)
# Parts of JupyterLab that no test of ours wants. The debugger complains where a kernel is ended.
UNUSED = (
    "@jupyterlab/apputils-extension:announcements",
    "@jupyterlab/debugger-extension",
)
WIDGETS = "@jupyter-widgets/jupyterlab-manager"
# It gives nothing back: a command's widget, as JSON, is all of JupyterLab, and takes seconds.
COMMAND = """async ([name, options]) => {
    await window.jupyterapp.commands.execute(name, options);
}"""
FLAGS = (
    "--disable-gpu",  # else a process that stands in for a GPU draws, for more of the processor
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)


def is_local(url: str) -> bool:
    """Whether a request stays in the browser or on this machine."""
    parts = urlsplit(url)
    if parts.scheme in {
        "data",
        "blob",
        "about",
        "chrome",
        "chrome-extension",
        "devtools",
    }:
        return True
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


@contextlib.contextmanager
def running_chromium() -> Iterator[Browser]:
    """The Chromium that $CHROMIUM names, or the first on the path; skips where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install playwright"
    )
    candidates = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else CHROMES
    executable = next(filter(None, map(shutil.which, candidates)), None)
    if executable is None:
        pytest.skip("no Chromium: install chromium, or name a Chrome in $CHROMIUM")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable,
            args=[*FLAGS, *(["--no-sandbox"] if is_root else [])],
        )
        loop = asyncio.get_running_loop()
        yield browser
        # the last test may have hidden it, see /conftest.py
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One Chromium for all browser tests."""
    with running_chromium() as browser:
        yield browser


@dataclass
class Lab:
    """A running JupyterLab server of our own, far from the user's settings."""

    url: str
    token: str
    root: Path
    home: Path

    def api(self, path: str, method: str = "GET") -> Any:
        """Ask the server's REST interface."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE / 1000) as answer:
            return json.loads(answer.read() or "null")

    def ask(self, kernel: str, expression: str) -> Any:
        """Evaluate an expression in a kernel, over a connection of its own."""
        from jupyter_client.blocking import BlockingKernelClient

        file = self.home / "runtime_dir" / f"kernel-{kernel}.json"
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels(iopub=False, stdin=False, hb=False)
        asked = {"answer": f"__import__('json').dumps({expression}, default=str)"}
        how = {"silent": True, "store_history": False, "allow_stdin": False}
        try:
            reply = client.execute(
                "", user_expressions=asked, reply=True, timeout=PATIENCE / 1000, **how
            )
        finally:
            client.stop_channels()
        found = reply["content"]["user_expressions"]["answer"]
        if found["status"] != "ok":
            raise RuntimeError(f"{expression}: {found['ename']}: {found['evalue']}")
        return json.loads(ast.literal_eval(found["data"]["text/plain"]))


@contextlib.contextmanager
def running_lab() -> Iterator[Lab]:
    """A JupyterLab of our own in a temporary folder; it and its kernels end with the context."""
    pytest.importorskip(
        "jupyterlab", reason="no JupyterLab: pip install 'memowidgets[lab]'"
    )
    options = {
        "LabApp.expose_app_in_browser": True,
        "JupyterNotebookApp.expose_app_in_browser": True,
        "VoilaConfiguration.template": "memowidgets",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.extension_manager": "readonly",
    }
    with tempfile.TemporaryDirectory(prefix="memowidgets-lab-") as folder:
        home = Path(folder)
        root = home / "root"
        root.mkdir()
        given = [f"--{name}={value}" for name, value in options.items()]
        with serving_lab(
            sys.executable, root, home, _environment(home), given
        ) as server:
            yield server


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One JupyterLab server for all browser tests."""
    with running_lab() as server:
        yield server


@contextlib.contextmanager
def serving_lab(
    python: str, root: Path, home: Path, env: dict[str, str], options: Sequence[str]
) -> Iterator[Lab]:
    """JupyterLab that shows the folder `root`, in an environment that knows no other settings."""
    port, token = free_port(), secrets.token_hex(16)
    server = Lab(f"http://127.0.0.1:{port}", token, root, home)
    own = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": root,
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
        "IdentityProvider.token": token,
    }
    given = [f"--{name}={value}" for name, value in own.items()]
    command = [python, "-m", "jupyterlab", *given, *options]
    address = f"{server.url}/api/status?token={token}"
    with serving(command, address, home / "server.log", cwd=root, env=env):
        yield server


@contextlib.contextmanager
def serving(
    command: Sequence[Any], address: str, log: Path, **how: Any
) -> Iterator[None]:
    """A server in a process of its own, once its address answers; it ends with all it started."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, **how
        )
        deadline = time.monotonic() + 180  # a busy machine takes its time
        try:
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")
                time.sleep(0.1)
            yield
        finally:
            _end(process)


def _answers(address: str) -> bool:
    with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
        urllib.request.urlopen(address, timeout=PATIENCE / 1000).close()
        return True
    return False


def _environment(home: Path) -> dict[str, str]:
    """That of a JupyterLab for somebody who never started one before."""
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "PYTEST"))
    }
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        env[f"JUPYTER_{name}"] = str(home / name.lower())
    for name in ("SETTINGS", "WORKSPACES"):
        env[f"JUPYTERLAB_{name}_DIR"] = str(home / name.lower())
    # Whether JupyterLab must be built anew is asked of Yarn, at each start.
    page = {"disabledExtensions": dict.fromkeys(UNUSED, True), "buildCheck": False}
    for file, content in (
        ("config_dir/labconfig/page_config.json", page),
        (f"settings/{WIDGETS}/plugin.jupyterlab-settings", {"saveState": True}),
    ):
        (home / file).parent.mkdir(parents=True)
        (home / file).write_text(json.dumps(content))
    return (
        env
        | {
            "JUPYTER_PREFER_ENV_PATH": "1",
            "IPYTHONDIR": str(home / "ipython"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}",
            "PYTHONPATH": str(ROOT),
            "LOKY_MAX_CPU_COUNT": "1",  # to start a second process takes longer than it saves
        }
    )


def free_port() -> int:
    """A port that no system gives to a connection meanwhile, which happens on a busy machine."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and every kernel it started, kindly first."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.kill()
    process.wait()


def noticed(page: Page, is_allowed: Callable[[str], bool] = is_local) -> list[str]:
    """What goes wrong on a page from now on: errors, and requests that are not allowed."""
    problems: list[str] = []

    def note_console(said: ConsoleMessage) -> None:
        if said.type == "error":
            problems.append(
                f"console error: {said.text} ({said.location.get('url', '')})"
            )

    def note_request(request: Request | WebSocket) -> None:
        if not is_allowed(request.url):
            problems.append(f"request leaves the machine: {request.url[:200]}")

    page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
    page.on("crash", lambda _: problems.append("the page crashed"))
    page.on("console", note_console)
    page.context.on("request", note_request)
    page.on("websocket", note_request)
    return problems


@dataclass
class WatchedPage:
    """A page of the server that is watched from the start; `page` is Playwright's."""

    page: Page
    lab: Lab
    path: Path
    problems: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)

    def allow(self, pattern: str) -> None:
        """Expect problems that match a regular expression; say in the test why."""
        self.allowed.append(pattern)

    def unexpected(self) -> list[str]:
        """What went wrong in the page so far, less what the test allows."""
        return [
            p for p in self.problems if not any(re.search(a, p) for a in self.allowed)
        ]

    def python(self, expression: str) -> Any:
        """Evaluate an expression in the page's kernel; what JSON can carry comes back."""
        return self.lab.ask(self.kernel, expression)

    def eventually(self, expression: str, wanted: Any = True) -> None:
        """Wait until Python answers what is wanted; the page's messages take their time.

        What the page shows is wanted as a function that reads it: each may come after the other.
        """
        deadline = time.monotonic() + PATIENCE / 1000
        read = wanted if callable(wanted) else lambda: wanted
        while (found := self.python(expression)) != (now := read()):
            assert time.monotonic() < deadline, f"{expression} is {found}, not {now}"
            self.page.wait_for_timeout(10)

    def theme(self, name: str) -> None:
        """Switch the page to its "light" or "dark" theme."""
        raise NotImplementedError

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window so wide and high, in pixels."""
        self.page.set_viewport_size({"width": width, "height": height})
        self._settle()

    def screenshots(
        self,
        name: str,
        of: str | Locator | None = None,
        *,
        widths: Sequence[int] = WIDTHS,
    ) -> None:
        """Take pictures, such as ``NAME-1400-light.png``, if they were asked for.

        They show `of`, in full whatever its height, or else the window, of a page that is light.
        """
        if not (folder := os.environ.get("MEMOWIDGETS_SCREENSHOTS")):
            return
        before = self.page.viewport_size
        for theme in THEMES:
            self.theme(theme)
            for width in widths:
                self.resize(width)
                self.screenshot(Path(folder) / f"{name}-{width}-{theme}.png", of)
        self.theme("light")
        if before is not None:
            self.resize(**before)

    def screenshot(self, file: Path, of: str | Locator | None = None) -> None:
        """Take one picture of an element, in full whatever its height, or of the window."""
        if of is None:
            self.page.screenshot(path=file)
            return
        element = (self.page.locator(of) if isinstance(of, str) else of).first
        element.scroll_into_view_if_needed()
        box, window = element.bounding_box(), self.page.viewport_size
        if (
            box is not None
            and window is not None
            and box["height"] > window["height"] - 200
        ):
            # else Lab's scrolling hides it
            self.resize(window["width"], int(box["height"]) + 300)
            element.scroll_into_view_if_needed()
            self._settle()
        element.screenshot(path=file)

    def _settle(self) -> None:
        """Let layout, observers and one more frame pass."""
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => "
            "requestAnimationFrame(() => setTimeout(done, 150))))"
        )

    def watch(self) -> None:
        """Note every error of the page and every request that wants to leave the machine."""
        self.problems = noticed(self.page)


@dataclass
class NotebookPage(WatchedPage):
    """A notebook that is open in JupyterLab (``app="lab"``) or Notebook 7 (``"notebook"``)."""

    app: str = "lab"

    @property
    def kernel(self) -> str:
        """The kernel's id."""
        return str(self.page.evaluate(f"() => {SESSION}.kernel.id"))

    def open(self) -> None:
        """Load the page with this notebook alone and wait until its kernel answers."""
        place = "lab/tree" if self.app == "lab" else "notebooks"
        reset = "reset&" if self.app == "lab" else ""
        address = (
            f"{self.lab.url}/{place}/{self.path.name}?{reset}token={self.lab.token}"
        )
        self.page.goto(address)
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")
        self.page.evaluate("() => window.jupyterapp.shell.collapseLeft?.()")
        self.theme("light")
        self.wait_until_idle()

    def run_all(self, timeout: float = 120) -> None:
        """Run all cells, as the menu does; `timeout` in seconds. Fails if a cell raises."""
        self.page.evaluate(
            "() => { window.mwDone = false;"
            " window.jupyterapp.commands.execute('notebook:run-all-cells')"
            ".then(() => { window.mwDone = true; }); }"
        )
        self.page.wait_for_function("() => window.mwDone", timeout=timeout * 1000)
        self.wait_until_idle(timeout)
        errors = [one for one in self.outputs() if one["output_type"] == "error"]
        if errors:
            said = "; ".join(f"{one['ename']}: {one['evalue']}" for one in errors)
            pytest.fail(f"a cell raised {said}")

    def outputs(self) -> list[dict[str, Any]]:
        """What came out of all cells, as the notebook file would hold it."""
        model = "window.jupyterapp.shell.currentWidget.content.model"
        cells: list[dict[str, Any]] = self.page.evaluate(
            f"() => {model}.toJSON().cells"
        )
        return [output for cell in cells for output in cell.get("outputs", ())]

    def wait_until_idle(self, timeout: float = 120) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.wait_for_function(
            f"() => {SESSION}?.kernel?.status === 'idle'",
            timeout=timeout * 1000,
        )

    def wait_until_connected(self) -> None:
        """Wait until a lost connection to the kernel is there again."""
        self.page.wait_for_function(
            f"() => {SESSION}.kernel.connectionStatus === 'connected'", timeout=PATIENCE
        )
        self.wait_until_idle()

    def restart(self) -> None:
        """Restart the kernel, as the menu does, but without a question."""
        self.page.evaluate(f"() => {SESSION}.kernel.restart()")
        self.wait_until_idle()

    def save(self) -> nbformat.NotebookNode:
        """Save the notebook as the menu does, and read the file."""
        import nbformat

        self.page.evaluate(COMMAND, ["docmanager:save", {}])
        return nbformat.read(self.path, as_version=4)

    def theme(self, name: str) -> None:
        """Switch JupyterLab to its "light" or "dark" theme, live."""
        self._wait_for_no_splash()
        self.page.evaluate(COMMAND, ["apputils:change-theme", {"theme": THEMES[name]}])
        self.page.wait_for_selector(
            f'body[data-jp-theme-name="{THEMES[name]}"]', state="attached"
        )
        self._wait_for_no_splash()

    def _wait_for_no_splash(self) -> None:
        """JupyterLab raises an error when the theme changes while its splash screen fades."""
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")


@dataclass
class VoilaPage(WatchedPage):
    """What a notebook shows in Voila; every time it is opened, a kernel of its own runs it."""

    @property
    def kernel(self) -> str:
        """The kernel's id."""
        return str(
            self.page.evaluate(
                "() => JSON.parse(document.getElementById('jupyter-config-data').textContent)"
                ".kernelId"
            )
        )

    def open(self, theme: str = "light", fragment: str = "") -> None:
        """Load the page; `fragment` is what its address says after #."""
        address = f"{self.lab.url}/voila/render/{self.path.name}?token={self.lab.token}"
        self.page.goto("about:blank")  # another fragment alone would not load it anew
        self.page.goto(f"{address}&theme={theme}#{fragment}")
        self.page.wait_for_selector("#rendered_cells")


def open_notebook(
    lab: Lab,
    chromium: Browser,
    cells: Cells,
    *,
    name: str = "notebook",
    width: int = WIDTHS[0],
    height: int = 900,
    scale: float = 1,
    app: str = "lab",
    kernel: str = "python3",
    script: str = "",
    watched: bool = True,
) -> NotebookPage:
    """Open a copy of a notebook in a fresh window; nothing is run yet.

    It is watched from the start, unless what watching costs would be measured too.
    """
    path = _write(lab, cells, name, kernel)
    notebook = NotebookPage(window(chromium, width, height, scale), lab, path, app=app)
    if watched:
        notebook.watch()
    notebook.page.add_init_script(script)
    if app == "notebook":
        for pattern in NOTEBOOK_ERRORS:
            notebook.allow(pattern)
    notebook.open()
    return notebook


def settled(page: Page, expression: str, milliseconds: float = 200) -> Any:
    """Return what a page says of an expression once it says the same some time later."""
    deadline, said = time.monotonic() + PATIENCE / 1000, None
    while said != (said := page.evaluate(expression)):
        assert time.monotonic() < deadline, "the page does not come to rest"
        page.wait_for_timeout(milliseconds)
    return said


def pixels_of(element: Locator) -> NDArray[np.uint8]:
    """What an element shows, as an array of shape (height, width, 3)."""
    with Image.open(io.BytesIO(element.screenshot())) as picture:
        return np.asarray(picture.convert("RGB"))


def drag(
    element: Locator, start: tuple[float, float], end: tuple[float, float]
) -> None:
    """Drag with the mouse between two places of an element, given in shares of its sides."""
    element.scroll_into_view_if_needed()
    box, mouse = element.bounding_box(), element.page.mouse
    places = [
        (box["x"] + x * box["width"], box["y"] + y * box["height"])
        for x, y in (start, end)
    ]
    mouse.move(*places[0])
    mouse.down()
    mouse.move(*places[1], steps=12)
    mouse.up()


def save(page: Page, name: str) -> None:
    """Take a picture of the whole page, if it was asked for."""
    if folder := os.environ.get("MEMOWIDGETS_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


# Two pictures of the page.
FRAMES = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"""

# The point of an element's corner is its own: nothing covers it, and no edge cuts it off.
CORNERS = """(one) => {
    const { left, right, top, bottom } = one.getBoundingClientRect();
    return [left + 3, right - 3].every((x) => [top + 3, bottom - 3].every(
        (y) => one.contains(document.elementFromPoint(x, y))));
}"""


def go_to_checkpoint(page: Page, name: str) -> None:
    """Type the epoch of a checkpoint, such as epoch-1."""
    slider = page.get_by_role("slider", name="checkpoint")
    slider.focus()
    page.keyboard.type(name.removeprefix("epoch-"))
    slider.press("Enter")


def in_view(*elements: Locator) -> bool:
    """Whether elements are seen whole: inside the window, and under nothing that sticks."""
    elements[0].page.evaluate(FRAMES)  # what comes later must not hide them again
    return all(element.evaluate(CORNERS) for element in elements)


def window(chromium: Browser, width: int, height: int, scale: float = 1) -> Page:
    size = {"width": width, "height": height}
    page = chromium.new_context(viewport=size, device_scale_factor=scale).new_page()
    page.set_default_timeout(PATIENCE)
    page.set_default_navigation_timeout(4 * PATIENCE)
    return page


def _write(lab: Lab, cells: Cells, name: str, kernel: str = "python3") -> Path:
    import nbformat  # every test process imports this file, and nbformat takes long

    path = lab.root / f"{name}.ipynb"
    if isinstance(cells, str | Path):
        shutil.copy(cells, path)
        return path
    about = {"name": kernel, "display_name": kernel, "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": about})
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    nbformat.write(notebook, path)
    return path


@contextlib.contextmanager
def _watched(lab: Lab) -> Iterator[list[Any]]:
    """Pages that are opened meanwhile; at the end they and their kernels are gone, and judged."""
    opened: list[Any] = []
    yield opened
    problems = [problem for one in opened for problem in one.unexpected()]
    for one in opened:
        one.page.context.close()
    for kind in ("sessions", "kernels"):
        for one in lab.api(kind):
            lab.api(f"{kind}/{one['id']}", method="DELETE")
    fail_on(problems)


@pytest.fixture
def notebook_page(
    chromium: Browser, lab: Lab, request: pytest.FixtureRequest
) -> Iterator[OpenNotebook]:
    """Open notebooks in JupyterLab; see the top of this module."""
    with _watched(lab) as opened:

        def opening(cells: Cells, *, run: bool = True, **window: Any) -> Any:
            name = f"{request.node.originalname}-{len(opened)}"
            opened.append(open_notebook(lab, chromium, cells, name=name, **window))
            if run:
                opened[-1].run_all()
            return opened[-1]

        yield opening


@pytest.fixture
def voila_page(
    chromium: Browser, lab: Lab, request: pytest.FixtureRequest
) -> Iterator[OpenVoila]:
    """Open notebooks in Voila; see the top of this module."""
    pytest.importorskip("voila", reason="no Voila: pip install 'memowidgets[lab]'")
    with _watched(lab) as opened:

        def opening(cells: Cells, fragment: str = "") -> VoilaPage:
            path = _write(lab, cells, f"{request.node.originalname}-{len(opened)}")
            opened.append(VoilaPage(window(chromium, WIDTHS[0], 900), lab, path))
            opened[-1].watch()
            opened[-1].open(fragment=fragment)
            return opened[-1]

        yield opening


@contextlib.contextmanager
def opened(
    chromium: Browser,
    address: str,
    *,
    allowed: tuple[str, ...] = ("file:", "data:", "blob:"),
    scripts: bool = True,
    before: str = "",
    **options: Any,
) -> Iterator[Page]:
    """A page that moves without a kernel, once its body is marked as ready.

    Fails on any error, any refusal by its policy, any request that is not allowed. A script that
    runs before the page's own may keep it from getting ready.
    """
    options = {"viewport": {"width": 1440, "height": 900}} | options
    context = chromium.new_context(java_script_enabled=scripts, **options)
    page = context.new_page()
    problems = noticed(page, lambda url: url.startswith(allowed))
    page.add_init_script(before)
    page.on(
        "console", lambda said: problems.append(f"console: {said.text} {said.location}")
    )
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    page.goto(address)
    if scripts and not before:
        page.wait_for_selector("body[data-ready]")
    yield page
    context.close()
    fail_on(problems)


def fail_on(problems: Sequence[str]) -> None:
    """Fail with what went wrong in a browser, each thing once."""
    if problems:
        pytest.fail("in the browser:\n" + "\n".join(dict.fromkeys(problems)))
