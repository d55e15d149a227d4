"""Runs as other hands leave them: an older version's, or those of somebody who knows the format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from memowidgets.store import RunDirectory


def held(path) -> RunDirectory:
    """The run directory as an audit holds it: what is written there says that it belongs there."""
    run = RunDirectory(path)
    run.hold(run.read_manifest())
    return run


def change_manifest(path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Edit a manifest, with the check that a version of its format would write."""
    file = Path(path) / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest.pop("check", None)
    change(manifest)
    RunDirectory(path).write_manifest(manifest)


def written_by_format_1(path) -> None:
    """Take out of a run directory what format 2 has added."""
    for file in Path(path).rglob("*.safetensors"):
        with safe_open(file, "np") as kept:
            metadata = {k: v for k, v in (kept.metadata() or {}).items() if k != "memowidgets"}
        save_file(load_file(file), file, metadata)
    for file in Path(path).rglob("*.json"):
        content = json.loads(file.read_text())
        for added in ("check", "design", "weights") if isinstance(content, dict) else ():
            if file.name != "trainer.json" or added == "check":
                content.pop(added, None)
        if file.name == "manifest.json":
            content["format"] = 1
            for added in ("weights", "recipe", "tokenizer"):
                content["model"].pop(added, None)
            (content.get("fork") or {}).pop("gone", None)
        file.write_text(json.dumps(content))
