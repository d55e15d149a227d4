"""Hold the code lines of each room to the table in pyproject.toml: `python -m scripts.ratchet`.

The exit status is 1 where a room or the sum of all has more lines than its number. With `--write`,
numbers that are too high are lowered, and none is raised. Who moves lines from one room to another
changes the two numbers by hand. Docstrings, comments and blank lines do not count.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "pyproject.toml"
LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """Return the number of code lines of a Python file."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT | {tokenize.COMMENT}:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, DOCUMENTED)
            and ast.get_docstring(node, clean=False) is not None
        ):
            code.difference_update(
                range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
            )
    return len(code)


def script_lines(text: str) -> int:
    """Return the number of code lines of a JavaScript file."""
    lines = map(str.strip, re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


def counted() -> dict[str, int]:
    """Return the code lines of each room, of the package's JavaScript and of the tests."""
    package, rooms = ROOT / "memowidgets", Counter[str]()
    for file in sorted(package.rglob("*.py")):
        first, *rest = file.relative_to(package).parts
        rooms[first if rest else "files"] += code_lines(file.read_text("utf-8"))
    scripts = sum(
        script_lines(file.read_text("utf-8")) for file in package.rglob("*.js")
    )
    tests = sum(
        code_lines(file.read_text("utf-8")) for file in (ROOT / "tests").rglob("*.py")
    )
    return {**rooms, "package": rooms.total(), "javascript": scripts, "tests": tests}


def main() -> int:
    """Compare, and say what is over its number."""
    text = TABLE.read_text("utf-8")
    allowed = tomllib.loads(text)["tool"]["memowidgets"]["lines"]
    now = counted()
    if "--write" in sys.argv:
        for room, most in allowed.items():
            allowed[room] = min(most, now.get(room, 0))
            line = f"{room} = {allowed[room]}"
            text = re.sub(rf"^{room} = {most}$", line, text, flags=re.MULTILINE)
        TABLE.write_text(text, "utf-8")
    for room in {**allowed, **now}:
        lines, most = now.get(room, 0), allowed.get(room, 0)
        over = f"  {lines - most} too many" if lines > most else ""
        print(f"{room:12}{lines:7,} of {most:6,} lines{over}")
    return int(any(lines > allowed.get(room, 0) for room, lines in now.items()))


if __name__ == "__main__":
    sys.exit(main())
