"""A hub on this machine, with as much of the Hugging Face hub's protocol as downloads need.

It knows repositories, revisions and commits, answers large files by a redirect to another path, and
goes wrong on request: `Hub.goes_wrong` names the next answers to spoil, and how.
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
_API = re.compile(rf"/api/(models|datasets)/({_REPOSITORY})(?:/(revision|tree)/([^/]+)(?:/.*)?)?")
_FILE = re.compile(rf"/(?:(datasets)/)?({_REPOSITORY})/resolve/([^/]+)/(.+)")


@dataclass
class Repository:
    """The files of each commit, and the commit that each branch is at.

    `gated` answers anybody without a token by 401, and anybody with one by 403. Large files are in
    Xet if there is an `xet`, the address of its server, and behind a redirect otherwise.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    xet: str = ""

    def push(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Make a commit of these files, and return its name."""
        said = json.dumps([branch, len(self.commits), sorted(map(_sha, files.values()))])
        commit = hashlib.sha1(said.encode()).hexdigest()  # as git names them
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit

    def commit(self, revision: str) -> str | None:
        found = self.branches.get(revision, revision)
        return found if found in self.commits else None


@dataclass
class Fault:
    """What happens instead of the next `times` answers to requests that match a pattern."""

    pattern: str
    how: str
    times: int = 1

    def takes(self, request: str) -> bool:
        if self.times and re.search(self.pattern, request):
            self.times -= 1
            return True
        return False


class Hub:
    """Repositories by name, and a record of every request.

    Attributes
    ----------
    address : str
        For ``HF_ENDPOINT``.
    asked : list of str
        Method and path of each request, and its range.
    tokens : dict of set of str
        Tokens that were sent to each host, "" for none.
    renamed : dict of str
        New names of repositories, which the hub answers by a redirect to them.
    """

    def __init__(self) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.asked: list[str] = []
        self.tokens: dict[str, set[str]] = {}
        self.renamed: dict[str, str] = {}
        self.faults: list[Fault] = []
        self._mutex = threading.Lock()
        self.address = self.files = ""

    def model(self, name: str, files: dict[str, bytes]) -> Repository:
        return self._added(self.models, name, files)

    def dataset(self, name: str, files: dict[str, bytes], branch: str = "main") -> Repository:
        return self._added(self.datasets, name, files, branch)

    def goes_wrong(self, pattern: str, how: str, times: int = 1) -> None:
        """Spoil the next answers to requests, as in ``"GET .*model.safetensors"``.

        `how` is ``"429"`` or any other status, ``"html"``, ``"drop"`` (the connection ends in the
        middle of the body) or ``"hang up"`` (it ends before the answer begins).
        """
        self.faults.append(Fault(pattern, how, times))

    def requests(self, pattern: str) -> list[str]:
        return [line for line in self.asked if re.search(pattern, line)]

    def heard(self, request: str, host: str = "", token: str = "") -> str | None:
        """Write a request down, and return what must go wrong with it."""
        with self._mutex:
            self.asked.append(request)
            self.tokens.setdefault(host.partition(":")[0], set()).add(token)
            return next((fault.how for fault in self.faults if fault.takes(request)), None)

    def blob(self, digest: str) -> bytes | None:
        repositories = (*self.models.values(), *self.datasets.values())
        files = (f for r in repositories for files in r.commits.values() for f in files.values())
        return next((content for content in files if _sha(content) == digest), None)

    @contextmanager
    def open(self) -> Iterator[Hub]:
        handler = type("Handler", (_Handler,), {"hub": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_port}"
        self.files = f"http://localhost:{server.server_port}/cdn"  # another host, as at the hub
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    @staticmethod
    def _added(
        where: dict[str, Repository], name: str, files: dict[str, bytes], branch: str = "main"
    ) -> Repository:
        where[name] = Repository()
        where[name].push(files, branch)
        return where[name]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        path = urlsplit(self.path).path  # still quoted: a branch's name may contain a slash
        wanted = self.headers.get("Range")
        request = f"{self.command} {unquote(path)}" + (f" {wanted}" if wanted else "")
        host, token = (self.headers.get(name) or "" for name in ("Host", "Authorization"))
        fault = self.hub.heard(request, host, token)
        new = next((n for n in self.hub.renamed if f"/{n}/" in f"{unquote(path)}/"), None)
        if fault in ("drop", "hang up"):
            self.close_connection = True
        if fault == "hang up":
            self.connection.close()
        elif fault == "html":
            self._say(200, b"<!doctype html><title>Log in</title>", {"Content-Type": "text/html"})
        elif fault is not None and fault.isdigit():
            self._say(int(fault), b"", {"Retry-After": "0"})
        elif new is not None:
            self._say(307, headers={"Location": self.path.replace(new, self.hub.renamed[new], 1)})
        elif "/xet-read-token/" in path:
            self._say(200, headers=self._xet_access(path))
        elif path.startswith("/cdn/"):
            self._blob(path.removeprefix("/cdn/"), drop=fault == "drop")
        elif found := _API.fullmatch(path):
            self._api(*_unquoted(found))
        elif found := _FILE.fullmatch(path):
            self._file(*_unquoted(found), drop=fault == "drop")
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
            status = 403 if self.headers.get("Authorization") else 401
            self._say(status, headers={"X-Error-Code": "GatedRepo"})
            return None
        return repository

    def _api(self, kind: str, name: str, what: str | None, revision: str | None) -> None:
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
            self._json({"id": name, "sha": commit, "siblings": siblings, "private": False})

    def _file(self, kind: str | None, name: str, revision: str, path: str, *, drop: bool) -> None:
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
            linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
            if repository.xet:
                route = f"{self.hub.address}/api/{kind or 'models'}/{name}/xet-read-token/{commit}"
                linked |= {"X-Xet-Hash": digest, "X-Xet-Refresh-Route": route}
            self._say(302, headers=headers | linked | {"Location": f"{self.hub.files}/{digest}"})
        else:
            self._content(content, headers | {"ETag": f'"{_git(content)}"'}, drop=drop)

    def _xet_access(self, path: str) -> dict[str, str]:
        """Return where the Xet server of a repository is."""
        repositories = self.hub.datasets | self.hub.models
        server = next(r.xet for n, r in repositories.items() if f"/{n}/" in unquote(path))
        access = {"X-Xet-Cas-Url": server, "X-Xet-Access-Token": "xet_of_a_test"}
        return access | {"X-Xet-Token-Expiration": "9999999999"}

    def _blob(self, digest: str, *, drop: bool) -> None:
        content = self.hub.blob(digest)
        if content is None:
            self._say(404)
        else:
            self._content(content, {"ETag": f'"{digest}"'}, drop=drop)

    def _content(self, content: bytes, headers: dict[str, str], *, drop: bool) -> None:
        first = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(first[1]) if first else 0
        if start:
            headers = headers | {
                "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"
            }
        rest = content[start:]
        self._say(206 if start else 200, rest, headers, sent=len(rest) // 2 if drop else None)

    def _json(self, said: object) -> None:
        self._say(200, json.dumps(said).encode(), {"Content-Type": "application/json"})

    def _say(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        sent: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if sent is None else body[:sent])


def _unquoted(found: re.Match[str]) -> list[str | None]:
    return [part if part is None else unquote(part) for part in found.groups()]


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: str, content: bytes) -> dict[str, object]:
    about = {"type": "file", "path": path, "size": len(content), "oid": _git(content)}
    if path.endswith(_LARGE):
        about |= {"lfs": {"oid": _sha(content), "size": len(content), "pointerSize": 100}}
    return about
