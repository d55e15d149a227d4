"""Files of the rooms have one name each, and tests are named after what they test."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_files_of_the_package_have_one_name():
    names = Counter(file.name for file in (ROOT / "memowidgets").rglob("*.py"))
    assert [name for name, n in names.items() if n > 1] == ["__init__.py"]


def test_each_test_of_the_audit_room_is_named_after_the_file_that_it_tests():
    room = ROOT / "memowidgets" / "audit"
    sources = {file.stem for file in room.rglob("*.py") if file.stem != "__init__"}
    tests = [file.stem.removeprefix("test_") for file in (ROOT / "tests/audit").glob("test_*.py")]
    assert tests
    strange = [t for t in tests if not any(t == s or t.startswith(f"{s}_") for s in sources)]
    assert strange == []
