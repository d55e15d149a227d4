"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

Usage: python scripts/lowest.py [EXTRA …] > lowest.txt
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest_versions(*extras: str) -> dict[str, str]:
    """Return the lowest version by library, of the plain install and of extras."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    texts = [
        *project["dependencies"],
        *(text for one in extras for text in project["optional-dependencies"][one]),
    ]
    return {
        requirement.name: bound.version
        for requirement in map(Requirement, texts)
        for bound in requirement.specifier
        if bound.operator in (">=", "==")
    }


if __name__ == "__main__":
    for library, version in lowest_versions(*sys.argv[1:]).items():
        print(f"{library}=={version}")
