"""Change one expression at a time and run the room's tests: `python -m scripts.mutants`.

A mutant that no test notices names a line that the tests of its room do not hold. The sample is
drawn over all expressions that can be changed, with a fixed seed. Results are appended to a file
of JSON lines, so that a run that was stopped goes on where it was.

The tests of a room run once without a mutant, to know which of them call which function. A mutant
then runs in a forked process, which has the large libraries already, and only the test files that
call its function.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What tests import that no mutant changes. A forked process has it without importing it again.
LIBRARIES = (
    *("hypothesis", "xdist", "pandas", "scipy.stats", "scipy.optimize", "sklearn.metrics"),
    *("torch", "transformers", "peft", "altair", "anywidget", "loky", "playwright.sync_api"),
)
ENGINE_TESTS = (
    "tests/training/test_engine.py",
    "tests/training/test_shadows.py",
)
IDENTITY_TESTS = (
    "tests/training/test_probe.py",
    "tests/audit/test_identity.py",
    "tests/audit/test_kept.py",
    "tests/audit/test_run_damaged.py",
    "tests/audit/test_opening.py",
    "tests/audit/test_audit_of_tables.py::test_a_held_out_table_must_have_the_same_columns",
)
# A room's tests, those of other rooms that hold a part of it, and the examples in its docstrings.
TESTS: dict[str, tuple[str, ...]] = {
    "memowidgets/metrics": ("tests/metrics", "tests/test_tensors.py", "memowidgets/metrics"),
    "memowidgets/memorization": (
        *("tests/memorization", "tests/metrics/test_arrays.py", "tests/test_tensors.py"),
        "memowidgets/memorization",
    ),
    "memowidgets/evaluation": (
        *("tests/evaluation", "tests/metrics/test_arrays.py", "tests/test_tensors.py"),
        "memowidgets/evaluation",
    ),
    "memowidgets/store": (
        *("tests/test_store.py", "tests/audit/test_opening_recorded.py"),
        *("tests/hostile/test_links.py", "memowidgets/store"),
    ),
    "memowidgets/audit/runs/identity.py": IDENTITY_TESTS,
    "memowidgets/training/probe.py": ("tests/training/test_probe.py",),
    "memowidgets/training/engine.py": ENGINE_TESTS,
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One changed expression: its file, its place in bytes, its text before and after."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def room(self) -> str:
        """The part of the package whose tests are run."""
        return next(room for room in TESTS if (self.file + "/").startswith(room + "/"))


def main() -> None:
    """Draw the sample, run what has no result yet, and print the share killed."""
    arguments = _arguments()
    found = [mutant for file in _files(arguments.rooms) for mutant in mutants_of(file)]
    drawn = random.Random(arguments.seed).sample(found, min(arguments.n, len(found)))  # noqa: S311
    done = _read(arguments.results)
    left = [mutant for mutant in drawn if mutant not in done]
    ends = time.monotonic() + 60 * arguments.minutes
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        tree = _copied(Path(folder) / "tree")
        noted: dict[tuple[str, ...], Notes] = {}
        for mutant in sorted(left, key=lambda mutant: list(TESTS).index(mutant.room)):
            if time.monotonic() > ends:
                break
            tests = TESTS[mutant.room]
            if tests not in noted:
                noted[tests] = _noted(tree, tests, arguments.k)
            done[mutant] = _run_mutant(tree, mutant, noted[tests])
            with arguments.results.open("a") as lines:
                lines.write(json.dumps(asdict(mutant) | {"result": done[mutant]}) + "\n")
    print(summary({mutant: done[mutant] for mutant in drawn if mutant in done}, len(found)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__)
    parser.add_argument("-n", type=int, default=300, help="number of mutants")
    parser.add_argument(
        "--rooms", nargs="+", default=list(TESTS), choices=TESTS, metavar="ROOM", help="parts"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--minutes", type=float, default=600, help="start none after so long")
    parser.add_argument(
        "-k", default="", help="only tests of such names, as of pytest: the share is a lower bound"
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "build" / "mutants.jsonl", help="where results go"
    )
    arguments = parser.parse_args()
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    return arguments


def _files(rooms: list[str]) -> list[str]:
    found: list[Path] = []
    for room in rooms:
        path = ROOT / room
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [str(path.relative_to(ROOT)) for path in found]


def mutants_of(file: str) -> list[Mutant]:
    """Return all mutants of a file: operators, conditions, numbers and truth values."""
    source = (ROOT / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _changeable(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = source[start:end].decode()
        for changed in _changes(node):
            after = f"({ast.unparse(changed)})"
            found.append(Mutant(file, node.lineno, start, end, before, after))
    return found


def _changeable(node: ast.AST) -> Iterator[ast.expr]:
    """Return the expressions that run.

    Left out are the wording of errors, annotations, names, and `strict=` of `zip`, which claims
    that lengths are equal.
    """
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changeable(child)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    """Return the changed forms of an expression."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        changed = copy.deepcopy(node)
        changed.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        yield changed
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            compared = copy.deepcopy(node)
            compared.ops[i] = SWAPS[type(op)]()  # type: ignore[call-overload]
            yield compared
    if isinstance(node, ast.UnaryOp):
        yield node.operand
    if isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)


def _read(results: Path) -> dict[Mutant, str]:
    """Return the results so far."""
    found: dict[Mutant, str] = {}
    if results.exists():
        for line in results.read_text().splitlines():
            fields = json.loads(line)
            result = fields.pop("result")
            found[Mutant(**fields)] = result
    return found


def _copied(tree: Path) -> Path:
    """Return a copy of the tracked files, so that no mutant touches the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


@dataclass(eq=False)
class Notes:
    """What is known of tests from a run without a mutant; a plugin of pytest that notes it.

    Attributes
    ----------
    seconds : dict of float
        How long each test took, by its id.
    callers : dict of set
        Tests that call a function of the package, by the function's "file:first line".
    """

    tree: Path
    seconds: dict[str, float] = field(default_factory=dict)
    callers: dict[str, set[str]] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what a test calls, in its threads too, and how long it takes."""
        package, called = str(self.tree / "memowidgets"), set()

        def see(frame: Any, _event: str, _argument: object) -> None:
            code = frame.f_code
            if code.co_filename.startswith(package):
                called.add((code.co_filename, code.co_firstlineno))

        begun = time.monotonic()
        threading.settrace(see)
        sys.settrace(see)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.seconds[item.nodeid] = time.monotonic() - begun
            for file, line in called:
                name = f"{Path(file).relative_to(self.tree)}:{line}"
                self.callers.setdefault(name, set()).add(item.nodeid)


@dataclass(eq=False)
class Order:
    """A plugin of pytest: the tests that call the function, those of seconds last.

    What a fixture made for a whole file may have called it, too: all tests with one are kept.
    """

    files: list[str]
    callers: set[str]
    seconds: dict[str, float]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the tests in order, and leave the others out."""
        known = [item for item in items if item.nodeid in self.seconds]
        kept = [item for item in known if item.nodeid in self.callers or _shares(item)]
        items[:] = sorted(kept, key=self._rank)

    def _rank(self, item: pytest.Item) -> tuple[bool, float, int]:
        named_after = self.files.index(_file_of(item.nodeid))
        seconds = self.seconds[item.nodeid]
        return item.nodeid not in self.callers, round(seconds), named_after


def _shares(test: pytest.Item) -> bool:
    """Return whether a test has a fixture that others of its file or folder have."""
    info = getattr(test, "_fixtureinfo", None)
    named = info.name2fixturedefs.values() if info else ()
    used = (fixture for fixtures in named for fixture in fixtures)
    return any(one.scope != "function" and one.baseid not in ("", "tests") for one in used)


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _noted(tree: Path, tests: tuple[str, ...], names: str = "") -> Notes:
    """Run tests on the unchanged tree, and return what was noted.

    Raises
    ------
    RuntimeError
        If they fail without a mutant.
    """
    notes, file = Notes(tree), tree / "notes.json"

    def run() -> int:
        failed = _pytest(tree, [*tests, "-k", names], notes)
        callers = {name: sorted(found) for name, found in notes.callers.items()}
        file.write_text(json.dumps([notes.seconds, callers]))
        return failed

    if _in_a_fork(run, 3600) != 0:
        raise RuntimeError(f"{', '.join(tests)}: these fail without a mutant, mend them first")
    seconds, callers = json.loads(file.read_text())
    if not callers:
        raise RuntimeError(f"{', '.join(tests)}: these call nothing of the copied package")
    return Notes(tree, seconds, {name: set(found) for name, found in callers.items()})


def _in_a_fork(work: Callable[[], int], limit: float) -> int | None:
    """Call `work` in a forked process group, and return its exit code; None if it takes longer.

    A process of multiprocessing would look like a worker to what is tested.
    """
    child = os.fork()
    if not child:
        code = int(pytest.ExitCode.INTERNAL_ERROR)
        try:
            os.setsid()
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            code = work()
        finally:
            os._exit(code)
    ends, done, status = time.monotonic() + limit, 0, 0
    while not done and time.monotonic() < ends:
        time.sleep(0.02)
        done, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):  # what it left running is ended too
        os.killpg(child, signal.SIGKILL)
    if not done:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def _pytest(tree: Path, files: list[str], plugin: object) -> int:
    """Run test files of the tree until the first failure."""
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = False
    known = "ignore::pytest.PytestAssertRewriteWarning"  # Hypothesis is imported already
    return int(pytest.main(["-xq", "-p", "no:cacheprovider", "-W", known, *files], [plugin]))


def _run_mutant(tree: Path, mutant: Mutant, notes: Notes) -> str:
    place = tree / mutant.file
    source = place.read_bytes()
    function = _function(source, mutant.line)
    # What runs on import is every test's, and a worker process is not seen.
    callers = notes.callers.get(f"{mutant.file}:{function}") or set(notes.seconds)
    spent: Counter[str] = Counter()
    for test, seconds in notes.seconds.items():
        spent[_file_of(test)] += seconds  # type: ignore[assignment]
    stem = place.stem
    files = sorted(
        {_file_of(test) for test in callers},
        key=lambda file: (stem not in Path(file).stem, spent[file]),
    )
    limit = 20 + 3 * sum(spent[file] for file in files)
    begun = time.monotonic()
    try:
        _write(place, source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
        order = Order(files, callers, notes.seconds)
        code = _in_a_fork(lambda: _pytest(tree, files, order), limit)
    finally:
        _write(place, source)
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise RuntimeError(f"no test was found in {', '.join(files)}")
    result = {None: "timeout", 0: "survived"}.get(code, "killed")
    change = f"{mutant.file}:{mutant.line}: {mutant.before} → {mutant.after}"
    print(f"{result:8} {time.monotonic() - begun:4.0f} s  {change}", flush=True)
    return result


def _function(source: bytes, line: int) -> int | None:
    """Return the first line of the innermost function whose body has a line."""
    found = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            if node.body[0].lineno <= line <= last:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found = max(found or 0, first)
    return found


def _write(place: Path, source: bytes) -> None:
    """Write a module without its cache: equal second and size would pass for the same text."""
    for cached in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        cached.unlink()
    place.write_bytes(source)


def summary(results: dict[Mutant, str], n_possible: int) -> str:
    """Return the share killed with its interval, by room, and the survivors."""
    counts = Counter(results.values())
    lines = [f"{len(results)} of {n_possible} mutants: {dict(counts)}"]
    if not results:
        return lines[0]
    for room in ("", *TESTS):
        of = [result for mutant, result in results.items() if not room or mutant.room == room]
        if of:
            killed = sum(result != "survived" for result in of)
            low, high = clopper_pearson(killed, len(of))
            share = f"{killed / len(of):.3f} killed (95 %: {low:.3f} to {high:.3f})"
            lines.append(f"{room or 'all'}: {killed} of {len(of)}, {share}")
    for mutant, result in sorted(results.items(), key=lambda pair: (pair[0].file, pair[0].line)):
        if result == "survived":
            lines.append(f"  {mutant.file}:{mutant.line}: {mutant.before} → {mutant.after}")
    return "\n".join(lines)


def clopper_pearson(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share of k in n."""
    from scipy.stats import binomtest

    interval = binomtest(k, n).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


if __name__ == "__main__":
    main()
