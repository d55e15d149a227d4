"""Confirm where to look on settings that the rule was not made from.

    python -m benchmarks when                    # the tables, from the kept results
    python -m benchmarks when run [SETTING …]    # train what is missing, and keep its numbers

benchmarks/when.toml names settings, seeds, scores and decisions. It was committed before the first
of the audits was trained. A run goes on where it was stopped, and loses one model at most. It
leaves the numbers of a setting in benchmarks/when/SETTING.npz, without any sample.
"""

from __future__ import annotations

import argparse
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

import memowidgets as mw
from benchmarks import confirm
from benchmarks.confirm import Arrays, Made, network
from benchmarks.measure import machine
from memowidgets.data import Dataset
from memowidgets.progress import Progress
from memowidgets.training.looking import place_to_look, settled_at

PLAN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
KEPT = Path(__file__).with_suffix("")
AGAIN = "again-"  # before the name of a setting of the earlier study
_SCORED = ("psmi", "csl", "loss")  # the others are mean ranks of these

# ---------------------------------------------------------------- settings


def flipped(data: Dataset, share: float) -> Dataset:
    """Return data with a share of the labels replaced by another one."""
    rng, labels = np.random.default_rng(PLAN["data_seed"]), data.labels.copy()
    rows = rng.permutation(len(labels))[: round(share * len(labels))]
    of_each = getattr(data, "n_choices", len(data.class_names))
    n_options = np.broadcast_to(of_each, len(labels))[rows]
    labels[rows] = (labels[rows] + rng.integers(1, n_options)) % n_options
    return data.with_labels(labels)


def _table(make: Callable[[], tuple[Any, Any]], _files: argparse.Namespace) -> Made:
    values, labels = make()
    columns = [f"x{i}" for i in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=columns).assign(label=labels)
    data = mw.data.TableDataset.from_frame(frame, label="label")
    return mw.models.TorchClassifier(network), data, {"lr": 2e-3}


def _tangle(rows: int, classes: int, clusters: int, seed: int) -> tuple[Any, Any]:
    from sklearn.datasets import make_classification

    return make_classification(
        rows,
        n_features=20,
        n_informative=8,
        n_redundant=4,
        n_classes=classes,
        n_clusters_per_class=clusters,
        flip_y=0.0,
        class_sep=1.5,
        random_state=PLAN["data_seed"] + seed,
    )


def _shells() -> tuple[Any, Any]:
    from sklearn.datasets import make_gaussian_quantiles

    seed = PLAN["data_seed"]
    return make_gaussian_quantiles(
        n_samples=800, n_features=6, n_classes=3, random_state=seed
    )


def _outcome() -> tuple[Any, Any]:
    from sklearn.datasets import make_friedman1

    seed = PLAN["data_seed"]
    values, outcome = make_friedman1(900, noise=2.0, random_state=seed)
    return values, pd.qcut(outcome, 4, labels=False)


def _messages(part: int, n_intents: int, n: int, files: argparse.Namespace) -> Dataset:
    frame = pd.read_csv(files.messages)
    intents = sorted(frame["category"].unique())[part::3][:n_intents]
    rows = frame[frame["category"].isin(intents)]
    rows = rows.sample(n, random_state=PLAN["data_seed"])
    texts, labels = rows["text"].tolist(), rows["category"].tolist()
    return mw.data.TextDataset.from_texts(texts, labels)


def _encoder(files: argparse.Namespace) -> Made:
    data = _messages(0, 26, 1600, files)
    return mw.models.SequenceClassifier.from_scratch(data), data, {}


def _smollm2(files: argparse.Namespace) -> Made:
    data = _messages(1, 20, 900, files)
    lora = mw.models.LoRA(r=8, layers="top:2")
    model = mw.models.SequenceClassifier.from_pretrained(files.smollm2, lora=lora)
    return model, data, {"lr": 2e-3}


def _patients(_files: argparse.Namespace) -> Made:
    data = mw.data.make_mcqs(1000, seed=PLAN["data_seed"])
    return mw.models.CausalLM.from_scratch(data), data, {}


def _pictures(files: argparse.Namespace) -> Made:
    every = mw.data.fetch_cifar10(files.cifar10, split="train")
    rng = np.random.default_rng(PLAN["data_seed"])
    rows = np.sort(rng.permutation(len(every))[:2000])
    whole = np.stack([np.asarray(every.images[row], dtype=np.float32) for row in rows])
    images = (whole / 255).reshape(len(rows), 16, 2, 16, 2, 3).mean(axis=(2, 4))
    names, ids = list(every.class_names), every.ids[rows].tolist()
    data = mw.data.ImageDataset.from_arrays(images, every.labels[rows], names, ids=ids)
    return mw.models.ConvNet(24), data, {"lr": 2e-3, "schedule": "constant"}


SETTINGS: dict[str, Callable[[argparse.Namespace], Made]] = {
    "tangle-10": partial(_table, partial(_tangle, 900, 4, 3, 1)),
    "tangle-20": partial(_table, partial(_tangle, 1200, 6, 2, 2)),
    "shells-20": partial(_table, _shells),
    "outcome": partial(_table, _outcome),
    "tangle-0": partial(_table, partial(_tangle, 900, 4, 3, 3)),
    "patients-flipped": _patients,
    "intents-flipped": _encoder,
    "pictures-constant": _pictures,
    "smollm2-fast": _smollm2,
}


# ---------------------------------------------------------------- running


def audit_of(
    setting: str, number: int, files: argparse.Namespace, made: Made
) -> mw.Audit:
    """Return the audit of a target, which goes on where it was stopped."""
    of = PLAN["settings"][setting]
    model, data, training = made
    config = mw.TrainingConfig(
        epochs=of["epochs"],
        checkpoint_every=of["every"],
        **{"batch_size": 16} | training,
    )
    pool, held_out = confirm.split(flipped(data, of["flips"]))
    path = files.runs / setting / f"target-{number}"
    seed = PLAN["first_seed"] + number
    return mw.Audit(model, pool, path, config, seed, held_out=held_out)


def measure(setting: str, files: argparse.Namespace) -> None:
    """Train the audits of a setting, and keep its numbers."""
    of, made = PLAN["settings"][setting], SETTINGS[setting](files)
    first = audit_of(setting, 0, files, made)
    targets = of.get("targets", PLAN["targets"])
    parts = []
    for number in range(targets):
        one = audit_of(setting, number, files, made)
        one.train(progress=Progress())
        final_gap = one.score("logit_gap", checkpoint="final").to_numpy(np.float32)
        parts.append(scores_of(one, _places(one)) | {"final_gap": final_gap})
        print(f"{setting}: target {number} is trained", flush=True)
    n = of.get("shadow_models", PLAN["shadow_models"])
    # in this process: one at a time, each a file when it is there
    with ThreadPoolExecutor(1) as executor:
        first.run_shadows(n, executor, "final", progress=Progress())
    _add_truth(first, parts)
    _keep(setting, parts, n)


def _places(one: mw.Audit) -> dict[str, str]:
    """Return the names of the checkpoints at which scores are taken."""
    names = one.evidence.names
    curves = names.lookout.curves(names.found)
    end = settled_at(curves, PLAN["rho"])
    told = place_to_look(curves, PLAN["rho"], until=end)
    return {
        "rho": names.record("rho").name,
        "rule": names.prediction().record.name,
        "told": names.found[1 + told.at].name,
    }


def scores_of(one: mw.Audit, places: dict[str, str]) -> Arrays:
    """Return the scores of a target's members at some checkpoints, and its curves."""
    evidence, table = one.evidence, one.checkpoints
    found: Arrays = {
        "sample": evidence.member_columns.astype(np.uint16),
        "label": evidence.labels.astype(np.uint8),
        "why": np.array(one.prediction.why),
    }
    for place, name in places.items():
        found[f"{place}.epoch"] = np.float64(table["epoch"][name])
        for score in _SCORED:
            values = one.score(score, checkpoint=name, progress=Progress())
            found[f"{place}.{score}"] = values.reindex(evidence.members).to_numpy(
                np.float32
            )
    for column in ("epoch", "drop", "train_loss", "median_loss", "test_loss"):
        found[f"curve.{column}"] = table[column].to_numpy(np.float32)
    return found


def _add_truth(first: mw.Audit, parts: list[Arrays]) -> None:
    """Add log-LiRA against the same shadow models, with its standard errors, to each target."""
    shadows = first.evidence.shadows.read(first.evidence.names.record("final").name)
    for number, part in enumerate(parts):
        columns = part["sample"].astype(np.int64)
        target = np.isin(np.arange(shadows.members.shape[1]), columns)
        if (shadows.members == target).all(axis=1).any():
            raise ValueError(f"target {number} is one of its shadow models")
        values, errors = mw.memorization.log_lira(
            shadows.gaps[:, columns],
            shadows.members[:, columns],
            part.pop("final_gap"),
            variance=PLAN["variance"],
            return_std=True,
        )
        part["log_lira"] = values.astype(np.float32)
        part["error"] = errors.astype(np.float32)


def _keep(name: str, parts: list[Arrays], n_shadows: int) -> None:
    """Write the numbers of all targets of a setting."""
    sizes = [len(part["sample"]) for part in parts]
    found = {}
    for key, value in parts[0].items():
        of_targets = np.ndim(value) == 0 or key.startswith("curve.")
        join = np.stack if of_targets else np.concatenate
        found[key] = join([part[key] for part in parts])
    about = {
        "target": np.repeat(np.arange(len(sizes)), sizes).astype(np.uint8),
        "n_shadows": np.array(n_shadows),
        "commit": np.array(confirm.commit()),
        "machine": np.array(machine()),
    }
    KEPT.mkdir(exist_ok=True)
    unfinished = KEPT / f".{name}.npz"
    np.savez_compressed(unfinished, **found, **about)
    unfinished.rename(KEPT / f"{name}.npz")
    print(f"{name}: kept", flush=True)


def measure_again(setting: str, files: argparse.Namespace) -> None:
    """Train the targets of a setting of the earlier study again, to where to look."""
    of, plan = confirm.PLAN["settings"][setting], confirm.PLAN
    model, data, training = confirm.SETTINGS[setting](files)
    training = {"batch_size": 16} | training | ({"lr": of["lr"]} if "lr" in of else {})
    config = mw.TrainingConfig(
        epochs=of["epochs"], checkpoint_every=of["every"], **training
    )
    pool, held_out = confirm.split(data)
    with np.load(confirm.KEPT / f"{setting}.npz", allow_pickle=False) as kept:
        truth = {key: kept[key] for key in ("sample", "target", "log_lira", "loss")}
    parts = []
    for number in range(of.get("targets", plan["targets"])):
        path = files.runs / f"{AGAIN}{setting}" / f"target-{number}"
        seed = plan["first_seed"] + number
        one = mw.Audit(model, pool, path, config, seed, held_out=held_out)
        one.train(stop_at_drop=PLAN["rho"], progress=Progress())
        told = one.prediction.record.name
        part = scores_of(
            one, {"rho": one.evidence.names.record("rho").name, "told": told}
        )
        own = truth["target"] == number
        order = np.argsort(truth["sample"][own])
        rows = order[
            np.searchsorted(truth["sample"][own], part["sample"], sorter=order)
        ]
        if not np.array_equal(truth["sample"][own][rows], part["sample"]):
            raise ValueError(f"{setting}: target {number} has other members than then")
        part["log_lira"] = truth["log_lira"][own][rows]
        part["loss_then"] = truth["loss"][own][
            rows
        ]  # at ρ: how alike the two trainings are
        parts.append(part)
    _keep(AGAIN + setting, parts, plan["shadow_models"])


# ---------------------------------------------------------------- command


def main(words: list[str]) -> None:
    """Run settings, or print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks when", description=__doc__
    )
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run", help="train what is missing, and keep its numbers")
    every = [*SETTINGS, *(AGAIN + name for name in PLAN["decisions"]["again"])]
    run.add_argument("settings", nargs="*", choices=[*every, []], help="default: all")
    run.add_argument(
        "--runs", type=Path, default=Path("runs/when"), help="run directories"
    )
    run.add_argument("--cifar10", type=Path, help="CIFAR-10, as for fetch_cifar10")
    run.add_argument("--messages", type=Path, help="Banking77's training messages")
    run.add_argument("--banking77", type=Path, help="Banking77's test messages")
    run.add_argument("--smollm2", type=Path, help="folder for from_pretrained")
    asked = parser.parse_args(words)
    if asked.command != "run":
        parser.print_help()
        return
    torch.set_num_threads(1)
    # of small classes and of where to look; the tables have both
    warnings.simplefilter("ignore", UserWarning)
    for setting in asked.settings or every:
        if (KEPT / f"{setting}.npz").exists():
            continue
        if setting.startswith(AGAIN):
            measure_again(setting.removeprefix(AGAIN), asked)
        else:
            measure(setting, asked)
