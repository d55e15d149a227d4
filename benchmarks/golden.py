"""Compare what two trees compute through the public names, entry by entry.

``python -m benchmarks golden --old PATH`` makes the golden results with the package of another
checkout and with this one, each in its own process and folder, and prints what differs.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.golden_results import PARTS
from benchmarks.measure import Namespace, Row

ROOT = Path(__file__).resolve().parents[1]
# Both trees run on one machine with one thread each and the same seeds, so equal work gives equal
# bits. Float64 sums of up to a million terms in another order differ by less than this, and a
# forward pass in float32 that does something else differs by 1e-7 or more.
TOLERANCE = 1e-9
SHOWN = 3
MISSING = "(missing)"


@dataclass(frozen=True)
class Difference:
    """A value that differs: where in the entry, and both values."""

    place: str
    old: Any
    new: Any


def rows(arguments: Namespace) -> list[Row]:
    """Compare both trees and print the differences; exit with 1 where there is one."""
    if arguments.old is None:
        print("golden results need another checkout: --old PATH", file=sys.stderr)
        return []
    old, new = made((arguments.old, ROOT), arguments.parts or list(PARTS))
    text, n_different = compared(old, new)
    print(text)
    if n_different:
        raise SystemExit(1)
    return []


def made(trees: Sequence[Path], parts: Sequence[str]) -> list[dict[str, Any]]:
    """Make the results with the package of each tree, all trees at once.

    Parameters
    ----------
    trees : sequence of Path
        Checkouts that have a folder ``memowidgets``.
    parts : sequence of str
        Names of `benchmarks.golden_results.PARTS`.

    Returns
    -------
    list of dict
        By the entry's name, for each tree.

    Raises
    ------
    FileNotFoundError
        If a tree has no package.
    RuntimeError
        If a process failed.
    """
    for tree in trees:
        if not (tree / "memowidgets" / "__init__.py").is_file():
            raise FileNotFoundError(f"{tree} has no package memowidgets: name a checkout")
    with tempfile.TemporaryDirectory() as place:
        running = []
        for number, tree in enumerate(trees):
            folder = Path(place) / str(number) / "runs"  # equally long: paths may be cut
            folder.mkdir(parents=True)
            running.append((tree, folder.parent / "results.jsonl", _begun(tree, folder, parts)))
        for tree, _file, process in running:
            if process.wait():
                raise RuntimeError(f"the results of {tree} ended with status {process.returncode}")
        return [read(file) for _tree, file, _process in running]


def _begun(tree: Path, folder: Path, parts: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start to make the results of a tree. The flag -P keeps this tree's folders off the path."""
    script = str(ROOT / "benchmarks" / "golden_results.py")
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    return subprocess.Popen(
        [sys.executable, "-P", script, str(folder.parent / "results.jsonl"), str(folder), *parts],
        env=os.environ | threads | {"PYTHONPATH": str(tree.resolve()), "PYTHONHASHSEED": "0"},
        cwd=folder,
    )


def read(file: Path) -> dict[str, Any]:
    """Read results from JSON lines, by name. An entry that is made twice is numbered."""
    found: dict[str, Any] = {}
    times: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        name = entry.pop("name")
        times[name] += 1
        found[name if times[name] == 1 else f"{name} ({times[name]})"] = entry
    return found


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, int]:
    """Compare two sets of results.

    Returns
    -------
    str
        Each entry that differs, with its first differences, and the counts.
    int
        Number of entries that differ.
    """
    lines, n_different = [], 0
    names = [*old, *(name for name in new if name not in old)]
    for name in names:
        found = list(differences(old.get(name, MISSING), new.get(name, MISSING)))
        if not found:
            continue
        n_different += 1
        lines.append(f"{name}: {len(found)} values differ")
        for one in found[:SHOWN]:
            lines.append(f"  {one.place or 'all of it'}")
            lines += [f"    old: {_short(one.old)}", f"    new: {_short(one.new)}"]
    n_values = sum(_n_values(entry) for entry in old.values())
    n_errors = sum("error" in entry for entry in old.values())
    lines.append(
        f"{n_different} of {len(names)} entries differ; the old tree's {len(old)} entries hold "
        f"{n_values} values, and {n_errors} of them are errors"
    )
    return "\n".join(lines), n_different


def differences(old: Any, new: Any, place: str = "") -> Iterator[Difference]:
    """Find where two decoded values differ.

    Integers, texts and truth values must be equal. Floats may differ by the relative tolerance
    `TOLERANCE`; NaN equals NaN.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            here = f"{place}.{key}" if place else str(key)
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), here)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(old, float) and isinstance(new, float):
        both_nan = math.isnan(old) and math.isnan(new)
        if not both_nan and not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=1e-12):
            yield Difference(place, old, new)
    elif type(old) is not type(new) or old != new:
        yield Difference(place, old, new)


def _n_values(entry: Any) -> int:
    if isinstance(entry, dict):
        return sum(_n_values(child) for child in entry.values())
    if isinstance(entry, list):
        return sum(_n_values(child) for child in entry)
    return 1


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]} … ({len(text)} characters)"
