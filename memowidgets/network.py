"""Whether a hub may be asked, what its refusal means, and downloads of data files, never of code.

Opening a run on disk makes no request, as a run can name anything.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import re
import socket
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from memowidgets.extras import pip_install
from memowidgets.visible import first_line

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager

_BUSY = (429, 500, 502, 503, 504)
_LONGEST_PAUSE = 60.0  # seconds
_REACHED_IN = 4.0  # seconds; a connection whose first packets are lost is made after 3
_REVISION = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*")

_may_be_asked = ContextVar("_may_be_asked", default=True)


def hub_may_be_asked() -> bool:
    """Return whether the hub may be asked, or only its local copies may be read."""
    return _may_be_asked.get()


@contextmanager
def without_the_hub() -> Iterator[None]:
    """Within this block, read only the hub's local copies.

    The hub's libraries are switched offline for all threads, because they make requests of their
    own even if they are told to use local files only.
    """
    token = _may_be_asked.set(False)
    _Offline.begin()
    try:
        yield
    finally:
        _Offline.end()
        _may_be_asked.reset(token)


def without_the_hub_for(name: str | os.PathLike[str]) -> AbstractContextManager[None]:
    """Return `without_the_hub` for the path of an existing file or folder, else do nothing."""
    with suppress(OSError, ValueError):  # too long or contains NUL, so it is not a path
        if Path(name).exists():
            return without_the_hub()
    return nullcontext()


@contextmanager
def asking_the_hub() -> Iterator[None]:
    """Within this block, read only the hub's local copies if the hub cannot be reached.

    Without it, the hub's libraries try for 24 s where there is no network.

    Raises
    ------
    ConnectionError
        If it cannot be reached, and the local copies do not have what is asked for.
    """
    failed = None
    if hub_may_be_asked() and not _Offline.by_the_user():
        failed = _unreached()
    if failed is None:
        yield
        return
    try:
        with without_the_hub():
            yield
    except hub_errors() as error:
        raise failed from error


def _unreached() -> ConnectionError | None:
    """Return why no connection to the hub, or to the proxy before it, can be made; or None."""
    from huggingface_hub import constants

    hub = urlsplit(constants.ENDPOINT)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(hub.scheme) or proxies.get("all") or ""
    at = hub
    if proxy and not urllib.request.proxy_bypass(hub.netloc):
        at = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    place = at.hostname or "", at.port or (443 if at.scheme == "https" else 80)
    found: list[OSError | None] = []

    def connect() -> None:
        try:
            socket.create_connection(place, _REACHED_IN).close()
            found.append(None)
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=connect, daemon=True)  # looking up a name has no time limit
    thread.start()
    thread.join(_REACHED_IN)
    reason = found[0] if found else f"no answer in {_REACHED_IN:g} s"
    if reason is None:
        return None
    via = "" if at is hub else f" through the proxy {at.hostname}"
    return ConnectionError(f"{constants.ENDPOINT} cannot be reached{via}: {reason}")


def check_revision(revision: str | None) -> None:
    """Raise for what is not the name of a branch, a tag or a commit, such as a path.

    Raises
    ------
    ValueError
        If it is not.
    """
    if revision is not None and not _REVISION.fullmatch(revision):
        raise ValueError(
            f"revision must be the name of a branch or tag, or a commit, not {revision!r:.80}"
        )


def hub_errors() -> tuple[type[Exception], ...]:
    """Return what the hub's library raises if a download fails.

    Besides errors of the system, these are errors of its HTTP library, JSONDecodeError for an
    answer that is not JSON, and one for a name that no repository can have.
    """
    errors = sys.modules.get("huggingface_hub.errors")
    own = (getattr(errors, name, OSError) for name in ("HTTPError", "HFValidationError"))
    return (OSError, JSONDecodeError, *own)


def is_of_download(error: BaseException) -> bool:
    """Return whether an error is of `hub_errors`, or one that Xet's client raised."""
    return isinstance(error, hub_errors()) or _cause(error, _is_of_xet) is not None


@contextmanager
def explained(failed: str, name: str, instead: str) -> Iterator[None]:
    """Raise one sentence for whatever makes a download fail in this block.

    Parameters
    ----------
    failed : str
        What failed: the beginning of the sentence.
    name : str
        Name of the repository.
    instead : str
        What to do.

    Raises
    ------
    PermissionError
        If the repository is gated, or the local copies cannot be written.
    ValueError
        If the repository has no such revision.
    ConnectionError
        If anything else fails.
    """
    try:
        yield
    except Exception as error:
        if not is_of_download(error):
            raise
        known = refusal(name, error)
        if known is not None:
            raise known from error
        raise ConnectionError(f"{failed} ({reason_of(error)}); {instead}") from error


def refusal(name: str, error: BaseException) -> Exception | None:
    """Return the error to raise for a cause that another network would not change, or None."""
    from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

    if _cause(error, lambda e: isinstance(e, GatedRepoError)):
        return PermissionError(
            f"{name} is gated; accept its licence on its page on the hub and log in with "
            "`hf auth login`, or pass a folder that contains it"
        )
    if _cause(error, lambda e: isinstance(e, RevisionNotFoundError)):
        return ValueError(f"{name} on the hub has no such revision; leave it out for the newest")
    closed = _cause(error, _is_closed)
    if isinstance(closed, OSError):
        return PermissionError(
            f"{name} cannot be stored in the hub's cache ({closed.strerror}: {closed.filename}); "
            "make that folder writable, or set HF_HOME to one that is"
        )
    return None


def busy_seconds(error: BaseException) -> float | None:
    """Return the seconds after which a busy hub wants to be asked again; None: do not ask again.

    The hub's library itself asks for files again, but not what a repository contains.
    """
    busy = _cause(error, lambda e: getattr(getattr(e, "response", None), "status_code", 0) in _BUSY)
    answer = getattr(busy, "response", None)
    if answer is None or "/api/" not in str(answer.url):
        return None
    wanted = str(answer.headers.get("Retry-After", ""))
    return min(float(wanted), _LONGEST_PAUSE) if wanted.isdigit() else 0.0


def reason_of(error: BaseException) -> str:
    """Return the reason of a failed download in one line."""
    from huggingface_hub import constants
    from huggingface_hub.errors import FileMetadataError

    if _cause(error, lambda e: isinstance(e, FileMetadataError | JSONDecodeError)) is not None:
        return (
            f"{constants.ENDPOINT} does not answer as a hub does; is this the network's login "
            "page, or HF_ENDPOINT a wrong address?"
        )
    if _cause(error, _is_of_xet) is not None:
        return (
            f"Xet, where the hub keeps large files, has failed: {first_line(error)}; set "
            "HF_HUB_DISABLE_XET=1 to download without it"
        )
    if _Offline.by_the_user():
        return "HF_HUB_OFFLINE is set, so nothing is downloaded, and this machine has no copy"
    return first_line(error)


def _is_of_xet(error: BaseException) -> bool:
    """Return whether the hub's client of Xet raised an error, which is of no class of its own."""
    if not isinstance(error, RuntimeError | ValueError):
        return False
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code.co_name == "xet_get" for frame in frames)


def _is_closed(error: BaseException) -> bool:
    if not isinstance(error, OSError) or error.filename is None:
        return False
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


def _cause(
    error: BaseException | None, matches: Callable[[BaseException], bool]
) -> BaseException | None:
    """Return the first of an error and its causes that matches, or None."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if matches(error):
            return error
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None


class _Offline:
    """Offline switches of the hub's libraries, on while at least one block is open."""

    _libraries = ("huggingface_hub.constants", "datasets.config")
    _mutex = threading.Lock()
    _blocks: ClassVar[int] = 0
    _before: ClassVar[bool] = False

    @classmethod
    def begin(cls) -> None:
        with cls._mutex:
            cls._blocks += 1
            if importlib.util.find_spec("huggingface_hub") is not None:
                importlib.import_module(cls._libraries[0])
            if cls._blocks == 1:
                constants = sys.modules.get(cls._libraries[0])
                cls._before = bool(getattr(constants, "HF_HUB_OFFLINE", False))
            cls._switch(on=True)

    @classmethod
    def end(cls) -> None:
        with cls._mutex:
            cls._blocks -= 1
            if cls._blocks == 0:
                cls._switch(on=cls._before)

    @classmethod
    def by_the_user(cls) -> bool:
        """Return whether downloads are off without a block of ours."""
        with cls._mutex:
            constants = sys.modules.get(cls._libraries[0])
            return cls._before if cls._blocks else bool(getattr(constants, "HF_HUB_OFFLINE", False))

    @classmethod
    def _switch(cls, *, on: bool) -> None:
        for name in cls._libraries:  # if imported in the block, it copied True
            if name in sys.modules:
                sys.modules[name].HF_HUB_OFFLINE = on  # type: ignore[attr-defined]


_PAUSES = (1.0, 2.0, 4.0)  # seconds
_PART = re.compile(r"(.*-)\d{5}-of-(\d{5})(\.\w+)")


def hub_folder(repository: str, revision: str | None, patterns: Sequence[str]) -> tuple[Path, str]:
    """Download the files of a dataset that match the patterns, each as a whole or not at all.

    Parameters
    ----------
    repository : str
        Name of the dataset on the hub.
    revision : str or None
        Branch, tag or commit. None is the newest.
    patterns : sequence of str
        Which files, as shells match them.

    Returns
    -------
    folder : Path
        The hub's local copies.
    commit : str
        Commit of the repository that they are from.

    Raises
    ------
    ConnectionError
        If the hub cannot be reached or refuses the request, or if some of the parts that a table
        was saved in are missing.
    PermissionError
        If the hub wants its licence to be accepted first, or the local copies cannot be written.
    ValueError
        If there is no such revision.
    ImportError
        If no library for the hub is installed.
    """
    check_revision(revision)
    if not _installed("huggingface_hub"):
        raise ImportError(
            f"getting data from the hub needs huggingface_hub: {pip_install('llm')}, or pass the "
            "authors' own files as source=path"
        )
    otherwise = "connect to the network, or pass the authors' own files as source=path"
    failed = f"cannot get {repository} from the hub"
    with explained(failed, repository, otherwise), asking_the_hub():
        folder = _downloaded(repository, revision, list(patterns))
        _check_parts(folder, patterns)
    return folder, folder.name


def _downloaded(repository: str, revision: str | None, patterns: list[str]) -> Path:
    """Return the folder of the files; a hub that is busy is asked again, as it says."""
    from huggingface_hub import snapshot_download

    local, pauses = not hub_may_be_asked(), list(_PAUSES)
    while True:
        try:
            found = snapshot_download(
                repository,
                repo_type="dataset",
                revision=revision,
                allow_patterns=patterns,
                local_files_only=local,
            )
            return Path(found)
        except OSError as error:
            wanted = busy_seconds(error)
            if wanted is None or not pauses:
                raise
            time.sleep(max(wanted, pauses.pop(0)))


def check_pinned(source: str | Path, revision: str | None) -> None:
    """Raise for a revision of something that is not on the hub."""
    if revision is not None and str(source) != "hub":
        raise ValueError(f"{source} is a path, which has no revisions; leave revision out")


def _check_parts(folder: Path, patterns: Sequence[str]) -> None:
    """Raise if there are some, but not all, of the files that a table was saved in."""
    found = [file for pattern in patterns for file in folder.glob(pattern)]
    parts = [match for file in found if (match := _PART.fullmatch(str(file)))]
    for start, count, end in {part.groups() for part in parts}:
        there = sum(part.groups() == (start, count, end) for part in parts)
        if there < int(count):
            raise OSError(f"{folder} has {there} of the {int(count)} parts {start}*{end}")


def _installed(library: str) -> bool:
    """Return whether a library is installed; a folder of that name does not count."""
    spec = importlib.util.find_spec(library)
    return spec is not None and spec.origin is not None
