"""The README as a package index shows it, where a link relative to the repository leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AbsoluteLinks(MetadataHookInterface):
    """What the build asks for the README: links and pictures are those of the version's tag."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata of the project."""
        source = metadata["urls"]["Source"]
        tag = f"v{metadata['version']}"
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"\]\((?!https?:)", f"]({source}/blob/{tag}/", text)
        text = re.sub(r'(src|srcset)="(?!https?:)', rf'\1="{source}/raw/{tag}/', text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
