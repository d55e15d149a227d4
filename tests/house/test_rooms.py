"""Files of the rooms have one name each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_files_of_the_package_have_one_name():
    names = Counter(file.name for file in (ROOT / "memowidgets").rglob("*.py"))
    assert [name for name, n in names.items() if n > 1] == ["__init__.py"]
