"""Print how much each room asks of its reader: `python -m scripts.reading`.

Tokens are counted without docstrings and comments. The exit status is 1 where the package has
more tokens a line than `DENSEST`: then its lines are fuller than they need to be. All other
columns are for review.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DENSEST = 8.5  # tokens a line

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_SCRIPT_COMMENT = re.compile(r"/\*.*?\*/|^\s*//.*?$", re.DOTALL | re.MULTILINE)
_SCRIPT_TOKEN = re.compile(
    r"""[A-Za-z_$][\w$]* | \d[\d.]* | `[^`]*` | "[^"]*" | '[^']*' | [^\s\w]""",
    re.VERBOSE,
)


@dataclass
class Reading:
    """What is counted of some files."""

    tokens: int = 0
    lines: int = 0
    functions: int = 0
    files: int = 0
    leans_on: int = 0  # modules of the package that a file imports, summed over files
    pairs: int = 0  # statements `a, b = x, y`

    def __add__(self, other: Reading) -> Reading:
        """Return the sums over the files of both."""
        own, others = vars(self), vars(other)
        return Reading(**{name: own[name] + others[name] for name in own})

    @property
    def density(self) -> float:
        """Tokens a line."""
        return self.tokens / self.lines if self.lines else 0.0


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False):
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or 0) + 1))
    return lines


def _is_pair(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def _own_modules(tree: ast.Module) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    return {name for name in modules if name.split(".")[0] == "memowidgets"}


def read(text: str) -> Reading:
    """Count a file of Python."""
    tree = ast.parse(text)
    documented = _docstring_lines(tree)
    code = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _LAYOUT and token.start[0] not in documented
    ]
    lines = {line for token in code for line in range(token.start[0], token.end[0] + 1)}
    nodes = list(ast.walk(tree))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return Reading(
        tokens=len(code),
        lines=len(lines),
        functions=sum(isinstance(node, functions) for node in nodes),
        files=1,
        leans_on=len(_own_modules(tree)),
        pairs=sum(map(_is_pair, nodes)),
    )


def read_all(files: Iterable[Path]) -> Reading:
    """Count files of Python together."""
    return sum((read(file.read_text("utf-8")) for file in files), Reading())


def script_tokens(text: str) -> int:
    """Return the number of tokens of a file of JavaScript."""
    return len(_SCRIPT_TOKEN.findall(_SCRIPT_COMMENT.sub("", text)))


def rooms(package: Path) -> dict[str, Reading]:
    """Return what is counted of each room; `files` are those beside the rooms."""
    found: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(package.rglob("*.py")):
        first, *rest = file.relative_to(package).parts
        found[first if rest else "files"].append(file)
    return {room: read_all(files) for room, files in found.items()}


def _row(name: str, reading: Reading) -> str:
    return (
        f"{name:14}{reading.tokens:9,}{reading.lines:9,}{reading.density:9.1f}"
        f"{reading.functions:11,}{reading.files:7,}"
        f"{reading.leans_on / reading.files:10.1f}"
    )


def main() -> int:
    """Print the table, and say whether lines are too full."""
    package = ROOT / "memowidgets"
    counted = rooms(package)
    total = sum(counted.values(), Reading())
    print(
        f"{'room':14}{'tokens':>9}{'lines':>9}{'a line':>9}"
        f"{'functions':>11}{'files':>7}{'leans on':>10}"
    )
    for room in sorted(counted, key=lambda room: -counted[room].tokens):
        print(_row(room, counted[room]))
    print(_row("package", total))
    print(_row("tests", read_all((ROOT / "tests").rglob("*.py"))))
    scripts = sum(script_tokens(f.read_text("utf-8")) for f in package.rglob("*.js"))
    print(f"JavaScript {scripts:,} tokens; {total.pairs} pairs `a, b = x, y`")
    if total.density > DENSEST:
        print(f"{total.density:.2f} tokens a line, above {DENSEST}: break long lines")
    return int(total.density > DENSEST)


if __name__ == "__main__":
    sys.exit(main())
