"""Make the recorded audit "banking77-smollm2": SmolLM2 sorts the messages of bank customers.

    python -m benchmarks.recorded_banking77 --smollm2 FOLDER --banking77 FILE --run runs/banking77

If it is stopped, the same command continues. When all shadow models are trained, it scores every
checkpoint, and every layer at the ρ checkpoint. With --export it writes the numbers, but never a
message.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

import memowidgets as mw
from memowidgets.audit.runs.recorded import export
from memowidgets.store import RunDirectory

MESSAGES = 6750  # a ninth is held out, so that the pool has 6000
SEED = 0
LAST = "30"
TRAINING = mw.TrainingConfig(epochs=5, checkpoint_every=0.5, batch_size=16, lr=1e-3)
METRICS = ("psmi", "loss", "logit_gap", "csl", "psmi+csl")


def main() -> None:
    """Train, score, export."""
    arguments = _arguments()
    os.nice(arguments.nice)
    audit = make(arguments)
    audit.train()
    print(audit.checkpoints.to_string(), flush=True)
    if not arguments.shadows:
        return
    audit.run_shadows(arguments.shadows, processes=arguments.processes)
    if arguments.export:
        _score_all(audit)
        states = {_rho(audit): (LAST,)}
        exact = (_rho(audit), audit.checkpoints.index[-1])
        export(audit.path, arguments.export, _about(audit, arguments), states, exact)
    print(audit.compare(METRICS, checkpoints="all").to_string())


def make(arguments: argparse.Namespace) -> mw.Audit:
    """Return the audit, as it is on disk."""
    model = mw.models.SequenceClassifier.from_pretrained(
        arguments.smollm2, lora=mw.models.LoRA(r=8, layers="top:4")
    )
    data = messages(arguments.banking77, arguments.messages)
    return mw.Audit(model, data, arguments.run, arguments.training, SEED)


def messages(file: Path, n: int) -> mw.data.TextDataset:
    """Return randomly drawn messages of Banking77."""
    everything = mw.data.TextDataset.from_csv(file, text="text", label="category")
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(everything))[:n])
    return everything.take(chosen)


def _rho(audit: mw.Audit) -> str:
    return audit.prediction.record.name


def _score_all(audit: mw.Audit) -> None:
    for checkpoint in audit.checkpoints.index[1:]:
        for layer in audit.layers if checkpoint == _rho(audit) else (LAST,):
            audit.score("psmi", layer, checkpoint)
            audit.score("mahalanobis", layer, checkpoint)


def _about(audit: mw.Audit, arguments: argparse.Namespace) -> dict[str, str]:
    hours = _shadow_seconds(audit) / 3600
    accuracy = audit.checkpoints.iloc[-1].test_accuracy
    return {
        "title": "SmolLM2-135M-Instruct (dequantised) with a classification head on "
        f"{len(audit.data)} messages of Banking77; test accuracy {accuracy:.2f}",
        "data": 'mw.data.TextDataset.from_csv(PATH, text="text", label="category"), the training '
        "messages of Banking77",
        "command": "python -m benchmarks.recorded_banking77 --smollm2 FOLDER --banking77 FILE "
        f"--run runs/banking77 --shadows {arguments.shadows} --export FOLDER",
        "machine": "two cores, no GPU, shared with other work",
        "cost": f"{hours:.1f} core hours for {audit.n_shadows} shadow models",
    }


def _shadow_seconds(audit: mw.Audit) -> float:
    run = RunDirectory.existing(audit.path)
    files = [run.read_tensors(f"shadows/{name}") for name in run.names("shadows")]
    return sum(float(file.metadata["seconds"]) for file in files)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recorded_banking77", description=__doc__
    )
    parser.add_argument("--smollm2", type=Path, required=True, help="folder for from_pretrained")
    parser.add_argument("--banking77", type=Path, required=True, help="training messages, CSV")
    parser.add_argument("--run", type=Path, required=True, help="run directory, new or old")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="number of messages")
    parser.add_argument("--epochs", type=float, default=TRAINING.epochs)
    parser.add_argument("--shadows", type=int, default=32, help="number; 0 trains only the target")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--nice", type=int, default=0, help="nice level of the process")
    parser.add_argument("--export", type=Path, help="folder for the numbers")
    arguments = parser.parse_args()
    arguments.training = replace(TRAINING, epochs=arguments.epochs)
    return arguments


if __name__ == "__main__":
    main()
