"""A run as versions before format 2 wrote it: no file says what it is."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load_file, save_file


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
