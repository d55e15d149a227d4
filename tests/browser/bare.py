"""Widgets of this process in a real Chromium, without Jupyter: no server, kernel or JupyterLab.

`widget_page` takes the source of cells as `notebook_page` does, runs them here, and shows what the
last line of each is. Messages, traits and buffers go the way that ipywidgets sends them, over one
connection, so a test of a front end needs no more. What depends on JupyterLab, on a saved notebook
or on a kernel that is busy or gone stays with `notebook_page`.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from comm.base_comm import BaseComm

from tests.browser.harness import WIDTHS, WatchedPage, fail_on, window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Browser

    OpenWidgets = Callable[..., "BarePage"]


class Server:
    """Serves one page at a time, and carries messages between it and the widgets shown in it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a kernel, too, does one thing at a time
        self.comms: dict[str, Any] = {}
        self.sockets: set[Any] = set()
        self.said: list[str] = []
        self.done: dict[str, threading.Event] = {}
        self.arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        started: Future[int] = Future()
        threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), daemon=True
        ).start()
        threading.Thread(target=self._hear, daemon=True).start()
        self.port = started.result(30)

    async def _serve(self, started: Future[int]) -> None:
        from tornado.httpserver import HTTPServer
        from tornado.netutil import bind_sockets
        from tornado.web import Application, StaticFileHandler
        from tornado.websocket import WebSocketHandler

        server, self.loop, self.ended = (
            self,
            asyncio.get_running_loop(),
            asyncio.Event(),
        )

        class Messages(WebSocketHandler):
            def open(self, *_: str, **__: str) -> None:
                for text in server.said:
                    self.write_message(text)
                server.sockets.add(self)

            def on_message(self, message: str | bytes) -> None:
                server.arrived.put(str(message))

            def on_close(self) -> None:
                server.sockets.discard(self)

        application = Application(
            [
                ("/messages", Messages),
                (r"/(bare\.\w+)", StaticFileHandler, {"path": Path(__file__).parent}),
            ],
            websocket_max_message_size=2**28,
        )
        sockets = bind_sockets(0, "127.0.0.1")
        HTTPServer(application).add_sockets(sockets)
        started.set_result(sockets[0].getsockname()[1])
        await self.ended.wait()

    def _hear(self) -> None:
        while (text := self.arrived.get()) is not None:
            message = json.loads(text)
            if "done" in message:
                self.done[message["done"]].set()
                continue
            comm = self.comms.get(message["comm"])
            if comm is None:
                continue
            buffers = [
                memoryview(base64.b64decode(part)) for part in message["buffers"]
            ]
            content = {"comm_id": message["comm"], "data": message["data"]}
            with self.lock:
                comm.handle_msg({"content": content, "buffers": buffers, "header": {}})

    def tell(self, **message: Any) -> None:
        """Send the page a message; a page that opens later gets it, too."""
        text = json.dumps(message, default=str)

        from tornado.websocket import WebSocketClosedError

        def send() -> None:
            self.said.append(text)
            for socket in list(self.sockets):
                with contextlib.suppress(WebSocketClosedError):
                    socket.write_message(text)

        self.loop.call_soon_threadsafe(send)

    def create_comm(self, *arguments: Any, **keywords: Any) -> BaseComm:
        """Open what a widget speaks through."""
        return _Comm(self, *arguments, **keywords)

    def forget(self) -> None:
        """Forget everything that was said and shown."""
        self.comms.clear()
        cleared = threading.Event()

        def clear() -> None:
            self.said.clear()
            cleared.set()

        self.loop.call_soon_threadsafe(clear)
        cleared.wait(30)

    def end(self) -> None:
        """Stop serving."""
        self.arrived.put(None)
        self.loop.call_soon_threadsafe(self.ended.set)


class _Comm(BaseComm):
    """What ipywidgets sends through a kernel, sent to the page."""

    def __init__(self, server: Server, *arguments: Any, **keywords: Any) -> None:
        self.server = server
        super().__init__(*arguments, **keywords)

    def publish_msg(
        self,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **_: Any,
    ) -> None:
        del metadata
        self.server.comms[self.comm_id] = self
        packed = [base64.b64encode(part).decode() for part in buffers or ()]
        self.server.tell(kind=msg_type, comm=self.comm_id, data=data, buffers=packed)


@dataclass
class BarePage(WatchedPage):
    """Widgets of this process in a page of their own."""

    server: Any = None
    names: dict[str, Any] = field(default_factory=dict)
    shown: int = 0

    def run(self, cell: str) -> None:
        """Run a cell, and show the widget that its last line is."""
        tree = ast.parse(cell)
        last = (
            tree.body.pop()
            if tree.body and isinstance(tree.body[-1], ast.Expr)
            else None
        )
        with self.server.lock:
            exec(compile(tree, "<cell>", "exec"), self.names)
            if last is not None:
                code = compile(ast.Expression(last.value), "<cell>", "eval")
                self.show(eval(code, self.names))

    def show(self, widget: Any) -> None:
        """Show a widget; `settle` waits for it."""
        self.shown += 1
        token = f"{self.page.url}#{self.shown}-{id(widget)}"
        self.server.done[token] = threading.Event()
        self.server.tell(kind="show", comm=widget.model_id, token=token)

    def settle(self) -> None:
        """Wait until all is shown."""
        for event in list(self.server.done.values()):
            while not event.is_set():
                self.page.wait_for_timeout(5)

    def python(self, expression: str) -> Any:
        """Evaluate an expression; what JSON can carry comes back."""
        try:
            with self.server.lock:
                return json.loads(json.dumps(eval(expression, self.names), default=str))
        except Exception as error:
            raise RuntimeError(
                f"{expression}: {type(error).__name__}: {error}"
            ) from error

    def theme(self, name: str) -> None:
        """Switch the page to its "light" or "dark" theme, live."""
        light = "true" if name == "light" else "false"
        self.page.evaluate(
            f"() => {{ document.body.dataset.jpThemeLight = '{light}'; }}"
        )
        self._settle()

    def wait_until_idle(self) -> None:
        """Wait until Python has heard all that the page said."""
        self.server.done["idle"] = threading.Event()
        self.server.tell(kind="flush", token="idle")
        self.settle()


@pytest.fixture(scope="session")
def bare_server() -> Iterator[Server]:
    """One server for all pages of a process."""
    server = Server()
    yield server
    server.end()


@pytest.fixture
def widget_page(
    chromium: Browser, bare_server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenWidgets]:
    """Show widgets of cells that run in this process; see the top of this module."""
    monkeypatch.setattr("ipywidgets.comm.create_comm", bare_server.create_comm)
    opened: list[BarePage] = []

    def opening(
        cells: Sequence[str], *, width: int = WIDTHS[0], height: int = 900
    ) -> BarePage:
        bare_server.forget()
        bare_server.done.clear()
        page = window(chromium, width, height)
        bare = BarePage(page, None, None, server=bare_server)  # type: ignore[arg-type]
        bare.watch()
        opened.append(bare)
        for cell in cells:
            bare.run(cell)
        page.goto(f"http://127.0.0.1:{bare_server.port}/bare.html")
        bare.settle()
        return bare

    yield opening
    problems = [problem for one in opened for problem in one.unexpected()]
    for one in opened:
        one.page.context.close()
    close_widgets()
    bare_server.forget()
    fail_on(problems)


def close_widgets() -> None:
    """Close every widget of the package that is open."""
    from ipywidgets.widgets.widget import _instances

    for widget in list(_instances.values()):
        if type(widget).__module__.startswith("memowidgets"):
            widget.close()
