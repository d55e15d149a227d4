"""Downloads of data files from a public hub, never of code. Data are downloaded only here."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Sequence
from pathlib import Path

from memowidgets.extras import pip_install
from memowidgets.network import (
    asking_the_hub,
    busy_seconds,
    check_revision,
    explained,
    hub_may_be_asked,
)

__all__ = ["check_pinned", "hub_folder"]

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
