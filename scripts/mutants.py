"""Change one expression at a time and run the room's tests: `python -m scripts.mutants`.

A mutant that no test notices names a line that the tests of its room do not hold. The sample is
drawn over all expressions that can be changed, with a fixed seed. Results are appended to a file
of JSON lines, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGINE_TESTS = (
    "tests/training/test_pools.py",
    "tests/training/test_shadows.py",
    "tests/training/test_executors.py",
    "tests/training/test_worker.py",
)
IDENTITY_TESTS = (
    "tests/training/test_probe.py",
    "tests/audit/test_identity.py",
    "tests/audit/test_kept.py",
    "tests/audit/test_run_damaged.py",
)
STORE_TESTS = ("tests/test_store.py", "tests/test_tensors.py")
TESTS: dict[str, tuple[str, ...]] = {
    "memowidgets/metrics": ("tests/metrics",),
    "memowidgets/memorization": ("tests/memorization",),
    "memowidgets/evaluation": ("tests/evaluation",),
    "memowidgets/store": STORE_TESTS,
    "memowidgets/audit/runs/identity.py": IDENTITY_TESTS,
    "memowidgets/training/probe.py": IDENTITY_TESTS,
    "memowidgets/training/filling.py": ENGINE_TESTS,
    "memowidgets/training/pools.py": ENGINE_TESTS,
    "memowidgets/training/worker.py": ENGINE_TESTS,
    "memowidgets/training/shadow.py": ENGINE_TESTS,
    "memowidgets/training/shadows.py": ENGINE_TESTS,
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
    ends = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        tree = _copied(Path(folder) / "tree")
        limits: dict[str, float] = {}
        for mutant in drawn:
            if time.monotonic() > ends:
                break
            if mutant in done:
                continue
            if mutant.room not in limits:
                limits[mutant.room] = arguments.limit or _limit(tree, mutant.room)
            done[mutant] = _run_mutant(tree, mutant, limits[mutant.room])
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
        "--limit", type=float, help="seconds for a mutant's tests (default: measured, three times)"
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
    """Return the expressions that run. Wording of errors, annotations and names are left out."""
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


def _limit(tree: Path, room: str) -> float:
    """Return the seconds that a mutant's tests may take: three times those of the unchanged tree.

    Raises
    ------
    RuntimeError
        If the tests fail without a mutant.
    """
    begun = time.monotonic()
    if _tests(tree, room, 1200) != "survived":
        raise RuntimeError(f"the tests of {room} fail without a mutant: mend them first")
    return 3 * (time.monotonic() - begun) + 10


def _run_mutant(tree: Path, mutant: Mutant, limit: float) -> str:
    place = tree / mutant.file
    source = place.read_bytes()
    after = mutant.after.encode()
    try:
        _write(place, source[: mutant.start] + after + source[mutant.end :])
        result = _tests(tree, mutant.room, limit, mutant.file)
    finally:
        _write(place, source)
    print(f"{result:8} {mutant.file}:{mutant.line}: {mutant.before} → {mutant.after}", flush=True)
    return result


def _write(place: Path, source: bytes) -> None:
    """Write a module without its cache: equal second and size would pass for the same text."""
    for cached in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        cached.unlink()
    place.write_bytes(source)


def _ordered(tree: Path, room: str, file: str) -> list[str]:
    """Return the test files of a room: first those that are named after the file, then short ones.

    Most mutants are noticed by the first test file, and the others need not run then.
    """
    found = [
        path
        for name in TESTS[room]
        for path in (sorted((tree / name).glob("test_*.py")) or [tree / name])
    ]
    stem = Path(file).stem
    ordered = sorted(found, key=lambda path: (stem not in path.stem, path.stat().st_size))
    return [str(path.relative_to(tree)) for path in ordered]


def _tests(tree: Path, room: str, limit: float, file: str = "") -> str:
    """Run a room's tests on the copy until the first failure."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += _ordered(tree, room, file)
    run = subprocess.Popen(
        command,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return "survived" if run.wait(limit) == 0 else "killed"
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


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
