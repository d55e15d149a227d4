"""Convert the recordings of a checkout that has run format 1 or 2 into today's format.

    python scripts/convert_recordings.py --old CHECKOUT --to FOLDER

It reads the old files by themselves, makes a run directory of today's format from each recording,
and exports that.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from memowidgets.audit.compared import config_digest, model_digest
from memowidgets.audit.runs.recorded import export
from memowidgets.data import MCQDataset
from memowidgets.metrics import logit_gap
from memowidgets.stamps import array_digest, digest, digest_of_arrays
from memowidgets.store import RunDirectory
from memowidgets.training.rho import StopRule

TEMPLATES = MCQDataset.from_records(
    [{"question": f"{n}?", "choices": ["x", "y"], "answer": n} for n in (0, 1)]
)


def main() -> None:
    """Convert each recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    for folder in sorted((arguments.old / "memowidgets/audit/recordings").iterdir()):
        with tempfile.TemporaryDirectory() as place:
            about = as_run(folder, RunDirectory(Path(place) / "run"))
            export(Path(place) / "run", arguments.to / folder.name, about)


def read(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays and the metadata of a safetensors file."""
    with safe_open(file, "numpy") as kept:
        metadata = dict(kept.metadata() or {})
        metadata.pop("memowidgets", None)
        return {name: kept.get_tensor(name) for name in kept.keys()}, metadata  # noqa: SIM118


def note(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file without its digest."""
    content = json.loads(file.read_text())
    content.pop("check", None)
    return dict(content)


def as_run(old: Path, run: RunDirectory) -> dict[str, str]:  # noqa: C901 - each kind of file once
    """Write an old recording as a run directory, and return what it says of itself."""
    manifest = note(old / "manifest.json")
    design = read(old / "design.safetensors")[0]
    prompts = manifest["data"]["prompts"]
    if prompts != digest(None):
        recipe = prompt_recipe(prompts)
        manifest["data"]["prompts"] = digest(recipe)
    about = manifest.pop("recording")
    manifest |= {
        "design": digest_of_arrays(design),
        "precision": manifest.get("precision", "float32"),
    }
    run.write_manifest(manifest)
    run.hold(run.read_manifest())
    run.write_tensors("design", design)
    rule = note(old / "rho.json") if (old / "rho.json").exists() else asdict(StopRule())
    run.write_note("rho.json", rule)
    choice = note(old / "shadows.json") if (old / "shadows.json").exists() else {}
    n_shadows = len(list((old / "shadows").glob("*.safetensors")))
    run.write_note("shadows.json", {**choice, "trained": {"halves": n_shadows}})
    weights = {}
    for file in sorted(old.glob("checkpoints/*/record.json")):
        record = note(file)
        name = record["name"]
        passed = old / f"forward/{name}.safetensors"
        arrays = read(passed)[0] if passed.exists() else {}
        own = {key: arrays[key] for key in ("logits", "losses") if key in arrays}
        weights[name] = record.get("weights") or (digest_of_arrays(own) if own else digest(record))
        record |= {"weights": weights[name], "precision": manifest["precision"]}
        run.write_note(f"checkpoints/{name}/record.json", record)
        if arrays:
            if arrays["logits"].dtype != np.float32:
                arrays["logits"] = arrays["logits"].astype(np.float32)
            kept = {"precision": manifest["precision"]}
            run.write_tensors(f"forward/{name}", arrays, kept, weights[name])
    for file in sorted(old.glob("scores/*/*/*.safetensors")):
        scores(run, file, str(file.relative_to(old).with_suffix("")), weights[file.parts[-3]])
    sets = {}
    for file in sorted(old.glob("shadows/**/*.safetensors")):
        arrays, metadata = read(file)
        key = "halves" if file.parent.name == "shadows" else file.parent.name
        metadata |= {"index": str(int(file.stem)), "design": key}
        metadata |= {"config": config_digest(manifest), "precision": manifest["precision"]}
        name = str(file.relative_to(old).with_suffix(""))
        run.write_tensors(name, arrays, metadata)
        if "forward" in metadata:
            sets[file.stem] = metadata["design"], model_digest(run.read_tensors(name))
    labels = design["labels"][design["members"]]
    for file in sorted(old.glob("targets/first/*.safetensors")):
        logits = read(old / f"forward/{file.name}")[0]["logits"]
        own = array_digest(logit_gap(logits, labels).astype(np.float32))
        run.write_tensors(f"targets/first/{file.stem}", read(file)[0], {"target": own})
    for file in sorted(old.glob("targets/0*/scores/*/*/*.safetensors")):
        index, _, *place = file.relative_to(old / "targets").with_suffix("").parts
        key, model = sets[index]
        scores(run, file, "/".join(["targets", key, index, "scores", model, *place]), model)
    for old_name, new in (
        ("recorded_mmlu", "recorded mmlu"),
        ("recorded_banking77", "recorded banking77"),
        ("recorded_cifar", "recorded cifar10"),
    ):
        about["command"] = about["command"].replace(f"benchmarks.{old_name}", f"benchmarks.{new}")
    return dict(about)


def scores(run: RunDirectory, file: Path, name: str, of: str) -> None:
    """Write scores of today's method."""
    arrays, metadata = read(file)
    run.write_tensors(name, arrays, {**metadata, "states": "float32", "method": "1"}, of)


def prompt_recipe(wanted: str) -> dict[str, Any]:
    """Return the settings of prompts whose digest is known."""
    import hashlib

    for recipe in ({"templates": list(TEMPLATES.templates), "seed": 0},):
        if hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16] == wanted:
            return recipe
    raise ValueError(f"the prompts with the digest {wanted} are unknown")


if __name__ == "__main__":
    main()
