"""Make the recorded audit "mmlu-field-smollm2": SmolLM2 sorts MMLU's questions by field.

    python -m benchmarks.recorded_mmlu --smollm2 FOLDER --mmlu FILE --run runs/mmlu --shadows 32

If it is stopped, the same command continues. When all shadow models are trained, it scores every
checkpoint and layer. With --export it writes the numbers, but never a question.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import memowidgets as mw
from memowidgets.audit.runs.recorded import export
from memowidgets.store import RunDirectory

QUESTIONS = 2250
LONGEST = 56  # tokens of a prompt, so that 32 shadow models take hours on two cores
SEED = 0
TRAINING = mw.TrainingConfig(epochs=6, checkpoint_every=0.5, batch_size=8, lr=1e-3)


def main() -> None:
    """Train, score, export."""
    arguments = _arguments()
    os.nice(arguments.nice)
    audit = make(arguments)
    audit.train()
    audit.run_shadows(arguments.shadows, processes=arguments.processes)
    print(audit.checkpoints.to_string())
    table = audit.compare(("psmi", "loss", "logit_gap"), checkpoints="all")
    print(table.to_string())
    if arguments.export:
        for checkpoint in audit.checkpoints.index[1:]:
            for layer in audit.layers:
                audit.score("psmi", layer, checkpoint)
                audit.score("mahalanobis", layer, checkpoint)
        export(audit.path, arguments.export, _about(audit, arguments), _states(audit))


def make(arguments: argparse.Namespace) -> mw.Audit:
    """Return the audit, as it is on disk."""
    model = mw.models.CausalLM.from_pretrained(
        arguments.smollm2, lora=mw.models.LoRA(layers="top:4"), max_length=2048
    )
    everything = mw.data.fetch_mcq("mmlu-field", split="test", source=arguments.mmlu)
    short = np.flatnonzero(model.lengths(everything) <= LONGEST)
    chosen = np.sort(np.random.default_rng(SEED).permutation(short)[:QUESTIONS])
    return mw.Audit(model, everything.take(chosen), arguments.run, TRAINING, SEED)


def _states(audit: mw.Audit) -> dict[str, tuple[str, ...]]:
    """Return hidden states that fit in the package: all layers at ρ, the last one at the end."""
    return {audit.prediction.record.name: audit.layers, audit.checkpoints.index[-1]: ("30",)}


def _about(audit: mw.Audit, arguments: argparse.Namespace) -> dict[str, str]:
    hours = _shadow_seconds(audit) / 3600
    return {
        "title": "SmolLM2-135M-Instruct (dequantised) on MMLU by field",
        "data": 'mw.data.fetch_mcq("mmlu-field", split="test")',
        "command": "python -m benchmarks.recorded_mmlu --smollm2 FOLDER --mmlu FILE "
        f"--run runs/mmlu --shadows {arguments.shadows} --export FOLDER",
        "machine": "two cores, no GPU, shared with other work",
        "cost": f"{hours:.1f} core hours for {audit.n_shadows} shadow models",
    }


def _shadow_seconds(audit: mw.Audit) -> float:
    run = RunDirectory.existing(audit.path)
    files = [run.read_tensors(f"shadows/{name}") for name in run.names("shadows")]
    return sum(float(file.metadata["seconds"]) for file in files)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorded_mmlu", description=__doc__)
    parser.add_argument("--smollm2", type=Path, required=True, help="folder for from_pretrained")
    parser.add_argument("--mmlu", type=Path, required=True, help="MMLU's test questions, JSON")
    parser.add_argument("--run", type=Path, required=True, help="run directory, new or old")
    parser.add_argument("--shadows", type=int, default=32)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--nice", type=int, default=0, help="nice level of the process")
    parser.add_argument("--export", type=Path, help="folder for the numbers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
