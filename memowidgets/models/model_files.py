"""Digests of a model's files, which are read again only after a change."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from memowidgets.files import write_whole
from memowidgets.stamps import digest, digest_of, is_settled, state_of

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_RECIPE = (  # other files that determine a model's answers
    "config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)

_SHA256 = re.compile(r"[0-9a-f]{64}")

_known: dict[str, tuple[list[int], str]] = {}


def cache_folder() -> Path:
    """Return the cache's folder: ``$MEMOWIDGETS_CACHE``, or one in the user's cache folder."""
    named = os.environ.get("MEMOWIDGETS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(named) if named else Path(base).expanduser() / "memowidgets"


def folder_origin(folder: Path) -> dict[str, str]:
    """Return digests of a model's weights, and of its configuration and tokenizer.

    Raises
    ------
    OSError
        If a file cannot be read.
    """
    return {"weights": _files_digest(folder, _WEIGHTS), "recipe": _files_digest(folder, _RECIPE)}


def file_digest(file: Path) -> str:
    """Return a file's SHA-256, cached as long as its size, times and inode stay the same.

    The cache is also in the user's cache folder, if that can be written to.
    """
    path = file.resolve()
    found = path.stat()
    state = list(state_of(found))
    note = cache_folder() / f"digests/{digest_of(str(path))}.json"
    kept = _known.get(str(path)) or _read(note)
    if kept is None or kept[0] != state:
        with path.open("rb") as opened:
            kept = state, hashlib.file_digest(opened, "sha256").hexdigest()
    if is_settled(found) and list(state_of(path.stat())) == state:
        if _known.get(str(path)) != kept:
            with suppress(OSError):  # if this fails, the digest is computed again
                note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(note, json.dumps({"state": kept[0], "digest": kept[1]}).encode())
        _known[str(path)] = kept
    return kept[1]


def check_download(name: str, commit: str) -> None:
    """Raise if weights in the hub's cache are not those that the hub has.

    The hub's library names a large file after its SHA-256, and compares no more than its size.

    Raises
    ------
    ValueError
        With the file.
    """
    from huggingface_hub import hf_hub_download

    config = hf_hub_download(name, "config.json", revision=commit, local_files_only=True)
    for file in sorted(Path(config).parent.glob("*.safetensors")):
        blob = file.resolve()
        if _SHA256.fullmatch(blob.name) and file_digest(blob) != blob.name:
            raise ValueError(
                f"the weights of {name} in the hub's cache are not those that the hub has: the "
                f"content of {blob} does not have the SHA-256 that is its name; delete this file, "
                "and it is downloaded again"
            )


def forget_digests() -> None:
    """Forget all cached digests."""
    _known.clear()
    with suppress(OSError):
        for note in (cache_folder() / "digests").glob("*.json"):
            note.unlink()


def tokenizer_digest(tokenizer: Any) -> str:
    """Return a digest of a tokenizer without its padding and truncation, which users change."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return digest([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())])
    rules = json.loads(backend.to_str())
    return digest({**rules, "padding": None, "truncation": None})


def _files_digest(folder: Path, patterns: Iterable[str]) -> str:
    files = sorted({file for pattern in patterns for file in folder.glob(pattern)})
    return digest([(file.name, file_digest(file)) for file in files])


def _read(note: Path) -> tuple[list[int], str] | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(note.read_text(encoding="utf-8"))
        return list(kept["state"]), str(kept["digest"])
    return None
