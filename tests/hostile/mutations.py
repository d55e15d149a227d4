"""What is done to a run directory: each mutation names the file that it breaks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from memowidgets.stamps import KEY
from tests.hostile.run import Victim

# Files of each kind, two where they can be mistaken for each other. "*" is a name that the test
# does not know beforehand: the first that is found. People edit decisions.csv: it is not here.
PAIRS = {
    "weights": (
        "checkpoints/epoch-2/weights.safetensors",
        "checkpoints/epoch-3/weights.safetensors",
    ),
    "record": ("checkpoints/epoch-2/record.json", "checkpoints/epoch-3/record.json"),
    "outputs": (
        "checkpoints/epoch-2/outputs.safetensors",
        "checkpoints/epoch-3/outputs.safetensors",
    ),
    "pass": ("forward/epoch-2.safetensors", "forward/epoch-3.safetensors"),
    "score": ("scores/epoch-2/hidden/psmi.safetensors", "scores/epoch-3/hidden/psmi.safetensors"),
    "shadow": ("shadows/balanced*/0001.safetensors", "shadows/balanced*/0002.safetensors"),
    "reference": ("references/*/0000.safetensors", "references/*/0001.safetensors"),
}
ALONE = {
    "manifest": "manifest.json",
    "design": "design.safetensors",
    "state": "checkpoints/epoch-3/resume.safetensors",
    "rho": "rho.json",
    "choice": "shadows.json",
    "score of a shadow": "targets/*/*/scores/*/*/hidden/psmi.safetensors",
}
KINDS = {**{kind: pair[0] for kind, pair in PAIRS.items()}, **ALONE}


@dataclass(frozen=True)
class Mutation:
    """One way to break a run.

    Attributes
    ----------
    name : str
        For people.
    file : str
        The file, from the run directory; a warning must name it, or its checkpoint or number.
    apply : callable
        Takes the run directory and breaks it.
    """

    name: str
    file: str
    apply: Callable[[Path], None]

    @property
    def moves_what_is_there(self) -> bool:
        """Whether whole files take each other's place: what an open audit could fail to notice."""
        words = ("lost", "swapped", "copied", " of another", "other", "of others", "rows")
        return any(word in self.name for word in words)


def found(run: Path, pattern: str) -> Path:
    """The file of that pattern; a mutation that finds none breaks nothing, which is an error."""
    files = sorted(run.glob(pattern))
    assert files, f"{pattern} is not in {sorted(str(p) for p in run.rglob('*'))}"
    return files[0]


def every_mutation(twins: dict[str, Victim], outside: Path) -> Iterator[Mutation]:
    """The table: truncated, lost, swapped, copied, linked, edited, and taken from a twin."""
    for kind, pattern in KINDS.items():
        for how, damage in DAMAGES.items():
            yield Mutation(f"{kind} {how}", pattern, _on(pattern, damage))
        yield Mutation(f"{kind} linked", pattern, _on(pattern, _linked_to(outside)))
        for which, twin in twins.items():
            yield Mutation(f"{kind} of {which}", pattern, _from_twin(twin.path, pattern))
    for kind, (first, second) in PAIRS.items():
        yield Mutation(f"{kind} swapped", first, _swapped(first, second))
        yield Mutation(f"{kind} copied", first, _copied(first, second))
    for kind, edits in TENSORS.items():
        for how, edit in edits.items():
            yield Mutation(f"{kind}: {how}", KINDS[kind], _on(KINDS[kind], _with_tensors(edit)))
    for kind, fields in FIELDS.items():
        for field in fields:
            yield Mutation(f"{kind}: {field}", KINDS[kind], _on(KINDS[kind], _with_field(field)))
    for field in ("config", "index", "design", "seed", "precision", "forward"):
        edit = _without_metadata(field)
        yield Mutation(f"shadow without {field}", KINDS["shadow"], _on(KINDS["shadow"], edit))
    stamped = ("shadow", "reference", "outputs", "pass", "score", "score of a shadow", "state")
    for kind in (*stamped, "design"):
        edit = _without_metadata(KEY)
        yield Mutation(f"{kind} without a stamp", KINDS[kind], _on(KINDS[kind], edit))


def _truncated(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[max(0, len(content) - 5)] ^= 0x04
    file.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "emptied": lambda file: file.write_bytes(b"") and None,
    "truncated": _truncated,
    "lost": Path.unlink,
    "with a bit flipped": _flipped,
    "full of zeros": lambda file: file.write_bytes(bytes(64)) and None,
}

Arrays = dict[str, np.ndarray]


def _other_half(arrays: Arrays) -> Arrays:
    others = np.setdiff1d(arrays["pool"], arrays["members"])
    return {**arrays, "members": np.sort(np.append(arrays["members"][1:], others[:1]))}


TENSORS: dict[str, dict[str, Callable[[Arrays], Arrays]]] = {
    "design": {
        "members reversed": lambda a: {**a, "members": a["members"][::-1]},
        "another member": _other_half,
        "labels changed": lambda a: {**a, "labels": np.roll(a["labels"], 1)},
        "held out changed": lambda a: {**a, "held_out": a["held_out"][1:]},
        "canaries changed": lambda a: {**a, "canaries": ~a["canaries"]},
        "pool shorter": lambda a: {**a, "pool": a["pool"][:-1]},
    },
    "shadow": {
        "members turned": lambda a: {**a, "members": ~a["members"]},
        "gaps of others": lambda a: {
            key: np.roll(value, 1) if key.startswith("gap.") else value for key, value in a.items()
        },
        "gaps not finite": lambda a: {
            key: value * np.float32(np.nan) if key.startswith("gap.") else value
            for key, value in a.items()
        },
    },
    "weights": {"other weights": lambda a: {k: v + np.float32(0.1) for k, v in a.items()}},
    "pass": {"rows in another order": lambda a: {k: v[::-1] for k, v in a.items()}},
    "score": {"other values": lambda a: {k: v[::-1] for k, v in a.items()}},
    "score of a shadow": {"other values": lambda a: {k: v[::-1] for k, v in a.items()}},
}

FIELDS = {
    "manifest": (
        "seed",
        "members",
        "pool",
        "model",
        "training",
        "data",
        "layers",
        "ids",
        "content",
        "format",
    ),
    "record": ("name", "epoch", "step", "median_loss"),
}


def _on(pattern: str, damage: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda run: damage(found(run, pattern))


def _linked_to(outside: Path) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        target = outside / f"{file.parent.name}-{file.name}"
        shutil.copy(file, target)
        _flipped(target)
        file.unlink()
        file.symlink_to(target)

    return apply


def _from_twin(twin: Path, pattern: str) -> Callable[[Path], None]:
    return lambda run: shutil.copy(found(twin, pattern), found(run, pattern)) and None


def _swapped(first: str, second: str) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        one, other = found(run, first), found(run, second)
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)

    return apply


def _copied(first: str, second: str) -> Callable[[Path], None]:
    return lambda run: shutil.copy(found(run, second), found(run, first)) and None


def _with_tensors(edit: Callable[[Arrays], Arrays]) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        arrays = {k: np.ascontiguousarray(v) for k, v in edit(load_file(file)).items()}
        save_file(arrays, file, _metadata(file))

    return apply


def _without_metadata(field: str) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        metadata = _metadata(file)
        del metadata[field]  # a mutation that changes nothing is an error
        save_file(load_file(file), file, metadata)

    return apply


def _metadata(file: Path) -> dict[str, str]:
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8 : 8 + length]).get("__metadata__", {}))


def _with_field(field: str) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        content = json.loads(file.read_text())
        content[field] = _other(content[field])
        file.write_text(json.dumps(content))

    return apply


def _other(value: object) -> object:
    """Something of the same type that is not the same."""
    if isinstance(value, dict):
        key = min(value)
        return {**value, key: _other(value[key])}
    if isinstance(value, list):
        return value[::-1]
    if isinstance(value, str):
        return value[::-1] + "x"
    return value + 1  # type: ignore[operator] - numbers are left
