"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

Usage: python scripts/lowest.py [EXTRA …] > lowest.txt
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
texts = project["dependencies"] + [
    text for extra in sys.argv[1:] for text in project["optional-dependencies"][extra]
]
for requirement in map(Requirement, texts):
    for bound in requirement.specifier:
        if bound.operator in (">=", "=="):
            print(f"{requirement.name}=={bound.version}")
