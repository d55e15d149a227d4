"""Files and classes of the rooms have one name each."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_files_of_the_package_have_one_name():
    names = Counter(file.name for file in (ROOT / "memowidgets").rglob("*.py"))
    assert [name for name, n in names.items() if n > 1] == ["__init__.py"]


def test_no_two_classes_of_the_package_have_one_name():
    names = Counter(
        node.name
        for file in (ROOT / "memowidgets").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, n in names.items() if n > 1] == []
