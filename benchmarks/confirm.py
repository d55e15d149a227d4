"""Confirm the early scores and the threshold by class on audits that nobody has looked at.

    python -m benchmarks confirm                       # the tables, from the kept results
    python -m benchmarks confirm run [SETTING …]       # train what is missing, and keep its numbers

benchmarks/confirm.toml names settings, seeds, scores, rules and claims. It was committed before the
first of the audits was trained. A run goes on where it was stopped. It leaves the numbers of a
setting in benchmarks/confirm/SETTING.npz, without any sample.
"""

from __future__ import annotations

import argparse
import subprocess
import time
import tomllib
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

import memowidgets as mw
from benchmarks.measure import machine
from memowidgets.audit.numbers.truth import share_by_chance
from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.progress import Progress

PLAN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HERE = Path(__file__).parent
KEPT = Path(__file__).with_suffix("")
STAGES = ("to rho", "score", "reference 1", "reference 2", "references 3 and 4", "to the end")
Arrays = dict[str, NDArray[Any]]
Made = tuple[Model, Dataset, dict[str, Any]]

# ---------------------------------------------------------------- settings


def network(n_classes: int, n_features: int) -> nn.Module:
    """Create a network with two hidden layers of 64."""
    hidden = [nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(64, n_classes))


def _bundled(name: str, parts: int | None, _files: argparse.Namespace) -> Made:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")(as_frame=True)
    label = found.target if parts is None else pd.qcut(found.target, parts, labels=False)
    frame = found.data.assign(label=np.asarray(label, dtype=np.int64))
    data = mw.data.TableDataset.from_frame(frame, label="label")
    return mw.models.TorchClassifier(network), data, {"lr": 1e-3}


def _tail(of: dict[str, Any], _files: argparse.Namespace) -> Made:
    """Generate classes of a few common and many rare clusters."""
    rng, n, kinds, width = np.random.default_rng(PLAN["data_seed"]), of["classes"], 8, 16
    middles = rng.normal(scale=of["spread"], size=(n, 1, width))
    centres = middles + rng.normal(scale=1.2 * of["spread"], size=(n, kinds, width))
    share = np.arange(1, kinds + 1) ** -1.5
    labels = np.repeat(np.arange(n), of["each"])
    cluster = rng.choice(kinds, size=len(labels), p=share / share.sum())
    values = centres[labels, cluster] + rng.normal(size=(len(labels), width))
    frame = pd.DataFrame(values, columns=[f"x{i}" for i in range(width)]).assign(label=labels)
    data = mw.data.TableDataset.from_frame(frame, label="label")
    return mw.models.TorchClassifier(network), data, {"lr": 1e-3}


def _digits(canaries: float, _files: argparse.Namespace) -> Made:
    data = mw.data.load_digits(canaries=canaries, seed=PLAN["data_seed"])
    return mw.models.ConvNet(16), data, {"lr": 4e-3, "batch_size": 64}


def _photographs(classes: tuple[str, ...], files: argparse.Namespace) -> Made:
    every = mw.data.fetch_cifar10(files.cifar10, split="test")
    names = np.array(every.class_names)[every.labels]
    rows = _drawn(np.flatnonzero(np.isin(names, classes)), 1700)
    whole = np.stack([np.asarray(every.images[row], dtype=np.float32) for row in rows]) / 255
    images = whole.reshape(len(rows), 16, 2, 16, 2, 3).mean(axis=(2, 4))
    labels = [classes.index(name) for name in names[rows]]
    ids = every.ids[rows].tolist()
    data = mw.data.ImageDataset.from_arrays(images, labels, list(classes), ids=ids)
    return mw.models.ConvNet(24), data, {"lr": 2e-3}


def _intents(part: str, files: argparse.Namespace) -> Made:
    frame = pd.read_csv(files.banking77)
    intents = sorted(frame["category"].unique())
    if part != "all":
        wanted = [name for i, name in enumerate(intents) if (i % 4 == 0) == (part == "fourth")]
        frame = frame[frame["category"].isin(wanted)]
    data = mw.data.TextDataset.from_texts(frame["text"].tolist(), frame["category"].tolist())
    if part == "all":
        lora = mw.models.LoRA(r=8, layers="top:4")
        model = mw.models.SequenceClassifier.from_pretrained(files.smollm2, lora=lora)
        return model, data, {"lr": 1e-3}
    return mw.models.SequenceClassifier.from_scratch(data), data, {}


def _patients(_files: argparse.Namespace) -> Made:
    data = mw.data.make_mcqs(1200, seed=PLAN["data_seed"])
    return mw.models.CausalLM.from_scratch(data), data, {}


def _fields(part: int, files: argparse.Namespace) -> Made:
    every = mw.data.fetch_mcq("mmlu-field", split="test", source=files.mmlu)
    seen = set(mw.open_recorded("mmlu-field-smollm2").data.ids.tolist())
    short = [
        row
        for row, name in enumerate(every.ids)
        if str(name) not in seen and len(every[row].question) < 160
    ]
    chosen = _drawn(np.array(short), 2400)
    data = every.take(np.sort(chosen[part::2]))
    if part:
        lora = mw.models.LoRA(r=8, layers="top:4")
        model = mw.models.CausalLM.from_pretrained(files.smollm2, lora=lora)
        return model, data, {"lr": 1e-3, "batch_size": 8}
    return mw.models.CausalLM.from_scratch(data), data, {}


def _drawn(rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    return np.random.default_rng(PLAN["data_seed"]).permutation(rows)[:n]


_VEHICLES = ("airplane", "automobile", "ship", "truck")
_ANIMALS = ("bird", "cat", "deer", "dog", "frog", "horse")
SETTINGS: dict[str, Callable[[argparse.Namespace], Made]] = {
    "cancer": partial(_bundled, "breast_cancer", None),
    "diabetes": partial(_bundled, "diabetes", 5),
    **{name: partial(_tail, of) for name, of in PLAN["settings"].items() if "spread" in of},
    "digits": partial(_digits, 0.0),
    "digits-canaries": partial(_digits, 0.05),
    "vehicles": partial(_photographs, _VEHICLES),
    "animals": partial(_photographs, _ANIMALS),
    "intents-20": partial(_intents, "fourth"),
    "intents-57": partial(_intents, "others"),
    "patients": _patients,
    "fields": partial(_fields, 0),
    "fields-smollm2": partial(_fields, 1),
    "intents-smollm2": partial(_intents, "all"),
}


def split(data: Dataset) -> tuple[Dataset, Dataset]:
    """Return the pool and the held-out rows: no two of all these have the same content."""
    _, first = np.unique(data.content_hashes(), return_index=True)
    rows = np.random.default_rng(PLAN["data_seed"]).permutation(np.sort(first))
    aside = round(PLAN["held_out"] * len(rows))
    return data.take(np.sort(rows[aside:])), data.take(np.sort(rows[:aside]))


# ---------------------------------------------------------------- running


def measure(setting: str, files: argparse.Namespace) -> None:
    """Train the audits of a setting, and keep its numbers."""
    of = PLAN["settings"][setting]
    model, data, training = SETTINGS[setting](files)
    training = {"batch_size": 16} | training | ({"lr": of["lr"]} if "lr" in of else {})
    config = mw.TrainingConfig(epochs=of["epochs"], checkpoint_every=of["every"], **training)
    pool, held_out = split(data)
    folder = files.runs / setting
    folder.mkdir(parents=True, exist_ok=True)

    def audit(number: int) -> mw.Audit:
        seed = PLAN["first_seed"] + number
        path = folder / f"target-{number}"
        return mw.Audit(model, pool, path, config, seed, held_out=held_out)

    targets = of.get("targets", PLAN["targets"])
    parts = [_target(audit, number, folder) for number in range(targets)]
    first, seconds = audit(0), time.process_time()
    with ThreadPoolExecutor(1) as executor:  # in this process: one at a time, and its own seconds
        first.run_shadows(PLAN["shadow_models"], executor, "final", progress=Progress())
    seconds = time.process_time() - seconds
    found = _with_truth(first, parts)
    about = {
        "share_by_chance": np.array(share_by_chance(first.evidence, PLAN["eta"]) or np.nan),
        "seconds_of_shadows": np.array(seconds),
        "n_classes": np.array(len(pool.class_names)),
        "commit": np.array(_commit()),
        "machine": np.array(machine()),
    }
    KEPT.mkdir(exist_ok=True)
    unfinished = KEPT / f".{setting}.npz"
    np.savez_compressed(unfinished, **found, **about)
    unfinished.rename(KEPT / f"{setting}.npz")
    print(f"{setting}: kept {(KEPT / f'{setting}.npz').stat().st_size / 1000:.0f} kB", flush=True)


def _target(audit: Callable[[int], mw.Audit], number: int, folder: Path) -> Arrays:
    """Train a target with its reference models, and return what is known of its members."""
    kept = folder / f"target-{number}.npz"
    if kept.exists():
        with np.load(kept, allow_pickle=False) as arrays:
            return dict(arrays)
    resumed = (folder / f"target-{number}").exists()
    one, silent, seconds = audit(number), Progress(), []
    with ThreadPoolExecutor(1) as executor:
        for stage in (
            lambda: one.train(stop_at_drop=0.95, progress=silent),
            lambda: one.score("psmi", progress=silent),
            *(
                partial(one.run_references, n, executor, progress=silent)
                for n in PLAN["numbers_of_references"]
            ),
            lambda: one.train(progress=silent),
        ):
            start = time.process_time()
            stage()
            seconds.append(time.process_time() - start)
    evidence, at = one.evidence, one.prediction.record
    gaps = evidence.references.read(at.name).gaps[:, evidence.member_columns]
    if gaps.shape[0] != PLAN["references"] or np.isnan(gaps).any():
        raise ValueError(f"{one.path}: reference models lack gaps, {gaps.shape}")
    named = {name: one.score(name) for name in ("psmi", "csl", "loss")}
    found = {name: s.reindex(evidence.members).to_numpy(np.float32) for name, s in named.items()}
    found |= {
        "references": gaps.T.astype(np.float32),
        "final_gap": one.score("logit_gap", checkpoint="final").to_numpy(np.float32),
        "sample": evidence.member_columns.astype(np.uint16),
        "label": evidence.labels.astype(np.uint8),
        "drop": np.float64(one.checkpoints["drop"][at.name]),
        "epoch": np.float64(at.epoch),
        "learned": np.array(bool(one.checkpoints["learned"][at.name])),
        "seconds": np.full(len(seconds), np.nan) if resumed else np.array(seconds),
    }
    np.savez(kept, **found)
    print(f"{kept}: {sum(seconds):.0f} s of this process", flush=True)
    return found


def _with_truth(first: mw.Audit, parts: list[Arrays]) -> Arrays:
    """Return all pairs of a member and a target with log-LiRA against the same shadow models."""
    shadows = first.evidence.shadows.read(first.evidence.names.record("final").name)
    n = PLAN["shadow_models"]
    every = []
    for number, part in enumerate(parts):
        columns = part["sample"].astype(np.int64)
        target = np.isin(np.arange(shadows.members.shape[1]), columns)
        if len(shadows.members) != n or (shadows.members == target).all(axis=1).any():
            raise ValueError(f"target {number} is one of its shadow models, or one is missing")
        inside = shadows.members[:, columns], shadows.gaps[:, columns]
        values = mw.memorization.log_lira(
            inside[1], inside[0], part.pop("final_gap"), variance=PLAN["variance"]
        )  # NaN where a sample is in all of them or in none
        every.append(part | {"log_lira": values.astype(np.float32)})
    theirs = first.log_lira(variance=PLAN["variance"])
    ours = pd.Series(every[0]["log_lira"], first.members)[theirs.index]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    of_targets = ("drop", "epoch", "learned", "seconds")
    found = {
        name: np.concatenate([part[name] for part in every])
        for name in every[0]
        if name not in of_targets
    }
    found |= {name: np.stack([part[name] for part in every]) for name in of_targets}
    sizes = [len(part["sample"]) for part in every]
    return found | {"target": np.repeat(np.arange(len(sizes)), sizes).astype(np.uint8)}


def _commit() -> str:
    """Return the commit of this checkout, with a plus if something differs from it."""
    ask = partial(subprocess.run, check=True, capture_output=True, text=True, cwd=HERE)
    commit = ask(["git", "rev-parse", "--short=10", "HEAD"]).stdout.strip()
    changed = ask(["git", "status", "--porcelain", "--untracked-files=no"]).stdout.strip()
    return commit + ("+" if changed else "")


# ---------------------------------------------------------------- command


def main(words: list[str]) -> None:
    """Run settings, or print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks confirm", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run", help="train what is missing, and keep its numbers")
    run.add_argument("settings", nargs="*", choices=[*SETTINGS, []], help="default: all")
    run.add_argument("--runs", type=Path, default=Path("runs/confirm"), help="run directories")
    run.add_argument("--cifar10", type=Path, help="CIFAR-10, as for fetch_cifar10")
    run.add_argument("--banking77", type=Path, help="Banking77's test messages as CSV")
    run.add_argument("--mmlu", type=Path, help="MMLU's test questions as JSON lines")
    run.add_argument("--smollm2", type=Path, help="folder for from_pretrained")
    asked = parser.parse_args(words)
    if asked.command != "run":
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of small classes and of rho; the table has both
    for setting in asked.settings or SETTINGS:
        if not (KEPT / f"{setting}.npz").exists():
            measure(setting, asked)
