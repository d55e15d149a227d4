"""Errors of a hub, and downloads of data files, never of code."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path

from memowidgets.vocabulary import first_line

_REVISION = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*")
_PART = re.compile(r"(.*-)\d{5}-of-(\d{5})(\.\w+)")
_FETCHES = "kernels"  # a library that gets compiled code from the hub
_ONE_AT_A_TIME = threading.RLock()


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


@contextmanager
def no_kernel_fetched() -> Iterator[None]:
    """Within this context, a library that is imported gets no compiled code from the hub.

    On a CPU with AVX512-BF16, bitsandbytes gets and runs some when it is imported, if the library
    kernels is installed. peft imports bitsandbytes. What an audit computes does not need it.
    """
    asking = logging.getLogger("bitsandbytes")  # which advises to install kernels
    with _ONE_AT_A_TIME:
        level = asking.level
        known = sys.modules.get(_FETCHES)
        asking.setLevel(logging.ERROR)
        sys.modules[_FETCHES] = None  # type: ignore[assignment]  # its import fails
        try:
            yield
        finally:
            asking.setLevel(level)
            del sys.modules[_FETCHES]
            if known is not None:
                sys.modules[_FETCHES] = known


def hub_errors() -> tuple[type[Exception], ...]:
    """Return what the hub's library raises if a download fails, errors of the system included.

    JSONDecodeError is for an answer that is not the hub's, such as a network's login page.
    """
    from huggingface_hub import errors

    own = (
        getattr(errors, name, OSError) for name in ("HTTPError", "HFValidationError")
    )
    return (OSError, JSONDecodeError, *own)


def failure(error: Exception, name: str, otherwise: str) -> Exception:
    """Return the error to raise, in one sentence, for one that made a download fail.

    Parameters
    ----------
    error : Exception
        One of `hub_errors`.
    name : str
        Name of the repository.
    otherwise : str
        The sentence where neither licence nor revision is at fault. The hub's reason follows.

    Returns
    -------
    PermissionError, ValueError or ConnectionError
        If the repository is gated, has no such revision, or anything else is wrong.
    """
    from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return PermissionError(
            f"{name} is gated; accept its licence on its page on the hub and log in with "
            "`hf auth login`, or pass a folder that contains it"
        )
    if isinstance(error, RevisionNotFoundError):
        return ValueError(
            f"{name} on the hub has no such revision; leave it out for the newest"
        )
    return ConnectionError(f"{otherwise}: {first_line(error)}")


def hub_folder(
    repository: str, revision: str | None, patterns: Sequence[str]
) -> tuple[Path, str]:
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
        If the hub wants its licence to be accepted first.
    ValueError
        If there is no such revision.
    ImportError
        If no library for the hub is installed.
    """
    from huggingface_hub import snapshot_download

    check_revision(revision)
    try:
        folder = Path(
            snapshot_download(
                repository,
                repo_type="dataset",
                revision=revision,
                allow_patterns=list(patterns),
            )
        )
        _check_parts(folder, patterns)
    except hub_errors() as error:
        raise failure(
            error,
            repository,
            f"cannot get {repository} from the hub; connect to the network, or pass the authors' "
            "own files as source=path",
        ) from error
    return folder, folder.name


def check_pinned(source: str | Path, revision: str | None) -> None:
    """Raise for a revision of something that is not on the hub."""
    if revision is not None and str(source) != "hub":
        raise ValueError(
            f"{source} is a path, which has no revisions; leave revision out"
        )


def _check_parts(folder: Path, patterns: Sequence[str]) -> None:
    """Raise if there are some, but not all, of the files that a table was saved in."""
    files = [file for pattern in patterns for file in folder.glob(pattern)]
    parts = [match for file in files if (match := _PART.fullmatch(str(file)))]
    for start, count, end in {part.groups() for part in parts}:
        there = sum(part.groups() == (start, count, end) for part in parts)
        if there < int(count):
            raise OSError(
                f"{folder} has {there} of the {int(count)} parts {start}*{end}"
            )
