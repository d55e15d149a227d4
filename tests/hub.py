"""A hub on this machine, with as much of the Hugging Face hub's protocol as downloads need.

It knows repositories, revisions and commits, answers large files by a redirect to another path, and
goes wrong on request: `Hub.goes_wrong` names the answers to spoil, and how.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_LARGE = (".safetensors", ".parquet", ".bin")  # behind a redirect, as in Git LFS
_REPOSITORY = r"(?:[\w.-]+/)?[\w.-]+"
_API = re.compile(
    rf"/api/(models|datasets)/({_REPOSITORY})(?:/(revision|tree)/([^/]+)(?:/.*)?)?"
)
_FILE = re.compile(rf"/(?:(datasets)/)?({_REPOSITORY})/resolve/([^/]+)/(.+)")


@dataclass
class Repository:
    """The files of each commit, and the commit that each branch is at.

    `gated` answers by 401. Large files are behind a redirect.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    gated: bool = False

    def push(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Make a commit of these files, and return its name."""
        said = json.dumps(
            [branch, len(self.commits), sorted(map(_sha, files.values()))]
        )
        commit = hashlib.sha1(said.encode()).hexdigest()  # as git names them
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit

    def commit(self, revision: str) -> str | None:
        found = self.branches.get(revision, revision)
        return found if found in self.commits else None


class Hub:
    """Repositories by name, and a record of every request.

    Attributes
    ----------
    address : str
        For ``HF_ENDPOINT``.
    asked : list of str
        Method and path of each request.
    """

    def __init__(self) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.asked: list[str] = []
        self.faults: list[tuple[str, str]] = []
        self.address = self.files = ""

    def model(self, name: str, files: dict[str, bytes]) -> Repository:
        return self._added(self.models, name, files)

    def dataset(
        self, name: str, files: dict[str, bytes], branch: str = "main"
    ) -> Repository:
        return self._added(self.datasets, name, files, branch)

    def goes_wrong(self, pattern: str, how: str) -> None:
        """Spoil the answers to requests, as in ``"GET .*model.safetensors"``.

        `how` is ``"500"`` or any other status, or ``"html"``.
        """
        self.faults.append((pattern, how))

    def requests(self, pattern: str) -> list[str]:
        return [line for line in self.asked if re.search(pattern, line)]

    def heard(self, request: str) -> str | None:
        """Write a request down, and return what must go wrong with it."""
        self.asked.append(request)
        return next(
            (how for pattern, how in self.faults if re.search(pattern, request)), None
        )

    def blob(self, digest: str) -> bytes | None:
        repositories = (*self.models.values(), *self.datasets.values())
        files = (
            f
            for r in repositories
            for files in r.commits.values()
            for f in files.values()
        )
        return next((content for content in files if _sha(content) == digest), None)

    @contextmanager
    def open(self) -> Iterator[Hub]:
        handler = type("Handler", (_Handler,), {"hub": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_port}"
        self.files = (
            f"http://localhost:{server.server_port}/cdn"  # another host, as at the hub
        )
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    @staticmethod
    def _added(
        where: dict[str, Repository],
        name: str,
        files: dict[str, bytes],
        branch: str = "main",
    ) -> Repository:
        where[name] = Repository()
        where[name].push(files, branch)
        return where[name]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        path = urlsplit(
            self.path
        ).path  # still quoted: a branch's name may contain a slash
        fault = self.hub.heard(f"{self.command} {unquote(path)}")
        if fault == "html":
            self._say(
                200,
                b"<!doctype html><title>Log in</title>",
                {"Content-Type": "text/html"},
            )
        elif fault is not None:
            self._say(int(fault))
        elif path.startswith("/cdn/"):
            self._blob(path.removeprefix("/cdn/"))
        elif found := _API.fullmatch(path):
            self._api(*_unquoted(found))
        elif found := _FILE.fullmatch(path):
            self._file(*_unquoted(found))
        else:
            self._say(404)

    do_GET = do_HEAD = do_POST = _answer  # noqa: N815 - the library's names

    def log_message(self, *_args: object) -> None:
        pass

    def _allowed(self, kind: str, name: str) -> Repository | None:
        """Return a repository that may be read; otherwise say why not."""
        known = self.hub.datasets if kind == "datasets" else self.hub.models
        repository = known.get(name)
        if repository is None:
            self._say(404, headers={"X-Error-Code": "RepoNotFound"})
            return None
        if repository.gated:
            self._say(401, headers={"X-Error-Code": "GatedRepo"})
            return None
        return repository

    def _api(
        self, kind: str, name: str, what: str | None, revision: str | None
    ) -> None:
        repository = self._allowed(kind, name)
        if repository is None:
            return
        commit = repository.commit(revision or "main")
        if commit is None:
            self._say(404, headers={"X-Error-Code": "RevisionNotFound"})
            return
        files = repository.commits[commit]
        if what == "tree":
            self._json([_entry(path, content) for path, content in files.items()])
        else:
            siblings = [{"rfilename": path} for path in files]
            self._json(
                {"id": name, "sha": commit, "siblings": siblings, "private": False}
            )

    def _file(self, kind: str | None, name: str, revision: str, path: str) -> None:
        repository = self._allowed(kind or "models", name)
        if repository is None:
            return
        commit = repository.commit(revision)
        if commit is None:
            self._say(404, headers={"X-Error-Code": "RevisionNotFound"})
            return
        content = repository.commits[commit].get(path)
        headers = {"X-Repo-Commit": commit}
        if content is None:
            self._say(404, headers=headers | {"X-Error-Code": "EntryNotFound"})
        elif path.endswith(_LARGE):
            digest = _sha(content)
            linked = {
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(content)),
            }
            self._say(
                302,
                headers=headers | linked | {"Location": f"{self.hub.files}/{digest}"},
            )
        else:
            self._say(200, content, headers | {"ETag": f'"{_git(content)}"'})

    def _blob(self, digest: str) -> None:
        content = self.hub.blob(digest)
        if content is None:
            self._say(404)
        else:
            self._say(200, content, {"ETag": f'"{digest}"'})

    def _json(self, said: object) -> None:
        self._say(200, json.dumps(said).encode(), {"Content-Type": "application/json"})

    def _say(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _unquoted(found: re.Match[str]) -> list[str | None]:
    return [part if part is None else unquote(part) for part in found.groups()]


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: str, content: bytes) -> dict[str, object]:
    about = {"type": "file", "path": path, "size": len(content), "oid": _git(content)}
    if path.endswith(_LARGE):
        about |= {
            "lfs": {"oid": _sha(content), "size": len(content), "pointerSize": 100}
        }
    return about
