"""SHA-256 digests of model, data and run, for the record of a report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.audit.decided import FILE as DECISIONS
from memowidgets.files import opened
from memowidgets.report import Digest
from memowidgets.store import MANIFEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.audit.evidence import Evidence
    from memowidgets.report import Scored

__all__ = ["digests_of"]

_NO_MODEL = "The audit was made from arrays, so it has no model."
_NO_WEIGHTS = "The weights are not kept with the audit; manifest.json describes the model."
_BESIDE_WEIGHTS = ("outputs", "resume")  # other tensors in the folder of a checkpoint


def digests_of(evidence: Evidence, scored: Scored | None) -> tuple[Digest, ...]:
    """Return the digests of what was audited, of how, and of what came out.

    Parameters
    ----------
    evidence : Evidence
        Of the audit.
    scored : Scored or None
        The scores of the report.
    """
    if evidence.kind == "arrays":
        found = [Digest("model", "", None, _NO_MODEL), *_of_arrays(evidence)]
    else:
        found = _of_run(evidence, None if scored is None else scored.checkpoint)
    if scored is not None:
        found.append(_of_numbers("scores", "score of each scored member", scored.scores))
        if scored.log_lira is not None:
            found.append(_of_numbers("log-LiRA", "log-LiRA of these members", scored.log_lira))
    return (*found, *_of_decisions(evidence))


def _of_run(evidence: Evidence, checkpoint: str | None) -> list[Digest]:
    """Return the digests of weights, samples and manifest; each can be computed from a file."""
    run = evidence.whole or evidence
    folder = Path(run.path)
    weights = [] if run is not evidence or checkpoint is None else _weights(folder, checkpoint)
    found = [Digest("model", f"checkpoints/{checkpoint}/{f.name}", _of_file(f)) for f in weights]
    content = run.manifest.get("content") or []
    samples = "content of the samples: their digests in manifest.json, each in a line"
    return [
        *(found or [Digest("model", "", None, _NO_WEIGHTS)]),
        Digest("data", samples, _of_texts(f"{line}\n" for line in content))
        if content
        else Digest("data", "", None, "The run does not keep digests of its samples."),
        Digest("run", MANIFEST, _of_file(folder / MANIFEST)),
    ]


def _weights(folder: Path, checkpoint: str) -> list[Path]:
    files = sorted((folder / "checkpoints" / checkpoint).glob("*.safetensors"))
    return [file for file in files if file.stem not in _BESIDE_WEIGHTS]


def _of_arrays(evidence: Evidence) -> list[Digest]:
    """Return the digest of the arrays as data, and with the seed as run."""
    arrays = {name: _of_values(values) for name, values in evidence.arrays.items()}
    named = ", ".join(arrays)
    data = _of_texts([_canonical(arrays)])
    run = _of_texts([_canonical({"arrays": arrays, "seed": evidence.seed})])
    return [
        Digest("data", f"SHA-256 of each array, as JSON: {named}", data),
        Digest("run", "the same with the seed", run),
    ]


def _of_decisions(evidence: Evidence) -> list[Digest]:
    file = Path(evidence.path) / DECISIONS
    return [Digest("decisions", DECISIONS, _of_file(file))] if file.is_file() else []


def _of_numbers(what: str, of: str, values: NDArray[np.float64]) -> Digest:
    found = hashlib.sha256(np.ascontiguousarray(values, dtype="<f8").tobytes()).hexdigest()
    return Digest(what, f"{of}, as 64-bit little-endian numbers", found)


def _of_values(values: NDArray[Any]) -> str:
    """Return the digest of an array's dtype, shape and values."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    found = hashlib.sha256(f"{little.dtype.str} {little.shape}\n".encode())
    found.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
    return found.hexdigest()


def _of_file(file: Path) -> str:
    with opened(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _of_texts(texts: Iterable[str]) -> str:
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode())
    return found.hexdigest()


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
