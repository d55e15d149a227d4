"""Confirm where to look on settings that the rule was not made from.

    python -m benchmarks when                    # the tables, from the kept results
    python -m benchmarks when run [SETTING …]    # train what is missing, and keep its numbers
    python -m benchmarks when write              # docs/when.svg

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
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import memowidgets as mw
from benchmarks import confirm
from benchmarks.confirm import (
    Arrays,
    Difference,
    Floats,
    Made,
    Mask,
    markdown,
    network,
)
from benchmarks.measure import machine
from memowidgets.data import Dataset
from memowidgets.evaluation.curve import FEW_POSITIVES
from memowidgets.evaluation.intervals import Groups, Jackknife, SortedScores
from memowidgets.memorization import probability_memorized
from memowidgets.metrics import mean_rank
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
            found[f"{place}.{score}"] = values.reindex(one.members).to_numpy(np.float32)
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
        # the trainings end at different epochs
        part = {k: v for k, v in part.items() if not k.startswith("curve.")}
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


# ---------------------------------------------------------------- what the kept results say


@dataclass(frozen=True)
class Result:
    """The kept numbers of a setting: one row for each pair of a member and a target.

    Attributes
    ----------
    name : str
        The setting.
    kept : dict of str to array
        As in the file, of the pairs that have a truth and every score.
    """

    name: str
    kept: Arrays

    @classmethod
    def read(cls, name: str) -> Result:
        """Read what was kept of a setting, without pairs that lack a truth or a score."""
        with np.load(KEPT / f"{name}.npz", allow_pickle=False) as arrays:
            kept = dict(arrays)
        n = len(kept["target"])
        of_pairs = {k: v for k, v in kept.items() if np.shape(v) == (n,)}
        numbers = [v for v in of_pairs.values() if v.dtype.kind == "f"]
        rows = np.isfinite(numbers).all(axis=0)
        return cls(name, kept | {key: v[rows] for key, v in of_pairs.items()})

    @property
    def memorized(self) -> Mask:
        """Whether each pair is memorised, by its log-LiRA."""
        return np.asarray(self.kept["log_lira"] >= PLAN["eta"])

    @cached_property
    def own(self) -> list[NDArray[np.int64]]:
        """Rows of each target."""
        target = self.kept["target"]
        return [np.flatnonzero(target == one) for one in np.unique(target)]

    @cached_property
    def weights(self) -> Floats:
        """Weights of the pairs: all 1, then without each target, then of each bootstrap draw."""
        kept = self.kept
        groups = Groups.read(kept["sample"], len(kept["sample"]), kept["target"])
        models = groups.model_of_row
        left_out = np.arange(groups.n_models)[:, None] != models
        drawn = groups.draws[:, groups.of_row] * groups.model_draws[:, models]
        return np.vstack([np.ones(len(models)), left_out, drawn])

    def scores(self, place: str, score: str) -> Floats:
        """Return a score of each pair at a place; ranks are among the members of a target."""
        parts = [
            self.kept[f"{place}.{part}"].astype(np.float64) for part in score.split("+")
        ]
        if len(parts) == 1:
            return parts[0]
        found = np.empty(len(parts[0]))
        for own in self.own:
            found[own] = mean_rank(np.stack([part[own] for part in parts]))
        return found

    def areas(self, place: str, score: str) -> Floats:
        """Return the AUC for the true labels under each of the `weights`."""
        values, probability = self.scores(place, score), np.empty(len(self.memorized))
        truth = self.kept["log_lira"], self.kept["error"]
        for own in self.own:
            probability[own] = probability_memorized(
                truth[0][own], truth[1][own], PLAN["eta"], values[own]
            )
        steps = SortedScores.of(values)
        positives, others = (
            np.add.reduceat((self.weights * p)[:, steps.order], steps.firsts, axis=1)
            for p in (probability, 1 - probability)
        )
        above = others.sum(axis=1, keepdims=True) - np.cumsum(others, axis=1)
        right = (positives * (above + others / 2)).sum(axis=1)
        return np.asarray(right / (positives.sum(axis=1) * others.sum(axis=1)))

    def gain(self, score: str, place: str = "rule") -> Difference:
        """Return the difference in AUC at a place and at ρ, with its 95 % interval."""
        every = self.areas(place, score) - self.areas("rho", score)
        n = len(self.own)
        value, left_out, drawn = every[0], every[1 : n + 1], every[n + 1 :]
        low, high = np.quantile(drawn[np.isfinite(drawn)], [0.025, 0.975])
        reach = Jackknife.of(left_out).reach if n > 1 else 0.0
        return (
            float(value),
            float(min(low, value - reach)),
            float(max(high, value + reach)),
        )

    def found(self, place: str, score: str) -> float:
        """Return the share of the memorised pairs in the lowest tenth of a target's members."""
        lowest, values = (
            np.zeros(len(self.memorized), np.bool_),
            self.scores(place, score),
        )
        for own in self.own:
            order = np.argsort(values[own], kind="stable")
            lowest[own[order[: round(PLAN["share"] * len(own))]]] = True
        return float(lowest[self.memorized].mean())

    def epochs(self, place: str) -> str:
        """Return the epochs of a place, over the targets."""
        found = np.unique(self.kept[f"{place}.epoch"])
        return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"


def tables() -> str:
    """Return all tables of the kept results, as Markdown."""
    results = [Result.read(name) for name in SETTINGS if _is_kept(name)]
    waiting = [name for name in SETTINGS if not _is_kept(name)]
    if not results:
        return "No setting was run yet."
    commits = sorted({str(one.kept["commit"]) for one in results})
    machines = sorted({str(one.kept["machine"]).split(", load")[0] for one in results})
    gains = {one.name: {s: one.gain(s) for s in PLAN["scores"]} for one in results}
    parts = [
        (
            f"{len(results)} of {len(SETTINGS)} settings, run from commit {', '.join(commits)} on "
            f"{'; '.join(machines)}. Not run yet: {', '.join(waiting) or 'none'}."
        ),
        "Epoch of each place, over the targets:",
        _where(results),
        "PSMI's AUC for the true labels at ρ and by the rule, and the share in the lowest tenth:",
        _gains(results, gains),
        "The same gain of the other scores, and their shares at ρ and by the rule:",
        _gains_of_others(results, gains),
        _verdict_on_rule(gains),
        "Share of the memorised pairs in the lowest tenth at the new place:",
        _free_score(results),
    ]
    return "\n\n".join(parts)


def _is_kept(name: str) -> bool:
    return (KEPT / f"{name}.npz").exists()


def _where(results: list[Result]) -> str:
    head = ["setting", "memorised pairs", "last drop", "ρ", "rule", "told", "why"]
    rows = []
    for one in results:
        why, counts = np.unique(one.kept["why"], return_counts=True)
        reasons = ", ".join(f"{w} {n}" for w, n in zip(why, counts, strict=True))
        drops = one.kept["curve.drop"][:, -1]
        memorized = f"{one.memorized.sum()} of {len(one.memorized)}"
        drop = f"{drops.min():.2f} to {drops.max():.2f}"
        epochs = [one.epochs(place) for place in PLAN["places"]]
        rows.append([one.name, memorized, drop, *epochs, reasons])
    return markdown(head, rows)


def _gains(results: list[Result], gains: dict[str, dict[str, Difference]]) -> str:
    head = ["setting", "AUC at ρ", "by the rule", "gain", "tenth at ρ", "by the rule"]
    rows = []
    for one in results:
        areas = [f"{one.areas(place, 'psmi')[0]:.3f}" for place in ("rho", "rule")]
        found = [f"{one.found(place, 'psmi'):.2f}" for place in ("rho", "rule")]
        gain = confirm.signed(gains[one.name]["psmi"])
        told = confirm.signed(one.gain("psmi", "told"))
        rows.append([one.name, *areas, gain, *found, told])
    means = [
        f"{np.mean([one.found(place, 'psmi') for one in results]):.2f}"
        for place in ("rho", "rule")
    ]
    mean = confirm.mean_over([of["psmi"][0] for of in gains.values()])
    rows.append(["mean", "", "", mean, *means, ""])
    return markdown([*head, "gain where it was told"], rows)


def _gains_of_others(
    results: list[Result], gains: dict[str, dict[str, Difference]]
) -> str:
    others, rows = PLAN["scores"][1:], []
    for one in results:
        cells = []
        for score in others:
            found = [f"{one.found(place, score):.2f}" for place in ("rho", "rule")]
            cells += [confirm.signed(gains[one.name][score]), ", ".join(found)]
        rows.append([one.name, *cells])
    means = []
    for score in others:
        means += [confirm.mean_over([of[score][0] for of in gains.values()]), ""]
    head = [cell for score in others for cell in (f"`{score}`", "tenth")]
    return markdown(["setting", *head], [*rows, ["mean", *means]])


def _verdict_on_rule(gains: dict[str, dict[str, Difference]]) -> str:
    lost = [name for name, of in gains.items() if of["psmi"][2] < 0]
    mean = float(np.mean([of["psmi"][0] for of in gains.values()]))
    holds = "holds" if mean > 0 and not lost else "does not hold"
    return (
        f"The rule {holds}: the mean gain of PSMI is {mean:+.3f}, and its interval lies wholly "
        f"below 0 in {', '.join(lost) or 'no setting'}."
    )


def _free_score(results: list[Result]) -> str:
    """Return what each free score finds at one budget, and which one is recommended."""
    found: dict[str, dict[str, float]] = {
        one.name: {score: one.found("rule", score) for score in PLAN["scores"]}
        for one in results
        if one.memorized.sum() >= FEW_POSITIVES
    }
    for name in confirm.PLAN["settings"]:
        if _is_kept(AGAIN + name):
            one = Result.read(AGAIN + name)
            if one.memorized.sum() >= FEW_POSITIVES:
                row = {score: one.found("told", score) for score in PLAN["scores"]}
                found[f"{name}, again"] = row
        elif name not in PLAN["decisions"]["again"]:
            kept = confirm.Result.read(confirm.KEPT / f"{name}.npz")
            if kept.memorized.sum() >= FEW_POSITIVES:
                row = {s: kept.found_in(PLAN["share"], s) for s in PLAN["scores"]}
                found[f"{name}, at ρ"] = row
    table = pd.DataFrame(found).T
    means = table.mean()
    best = str(means.idxmax())
    lead = confirm.difference_over((table[best] - table["psmi"]).tolist())
    chosen = best if best != "psmi" and lead[1] > 0 else "psmi"
    rows = [
        [str(name), *(f"{value:.2f}" for value in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    rows.append(["mean", *(f"{value:.3f}" for value in means)])
    said = f"The highest mean is that of `{best}`. Its lead over PSMI, paired over {len(table)} "
    said += f"settings, is {confirm.signed(lead)}: `{chosen}` is recommended."
    return f"{markdown(['setting', *table.columns], rows)}\n\n{said}"


# ---------------------------------------------------------------- picture


def chart() -> alt.HConcatChart:
    """Draw both losses of a noisy table and of CIFAR-10, with the moments to look at."""
    one = Result.read("tangle-20").kept
    columns = {"median training loss": "median_loss", "mean held-out loss": "test_loss"}
    table = pd.DataFrame(
        {"epoch": one["curve.epoch"][0]}
        | {name: one[f"curve.{column}"][0] for name, column in columns.items()}
    )
    noisy = {"look here": one["rule.epoch"][0], "ρ": one["rho.epoch"][0]}
    recorded = mw.open_recorded("cifar10-wrn")
    found = recorded.checkpoints.rename(columns={v: k for k, v in columns.items()})
    lowest = float(found["epoch"].iloc[int(found["mean held-out loss"].argmin())])
    pictures = {"lowest": lowest, "ρ": float(recorded.prediction.record.epoch)}
    titles = "A table with 20 % wrong labels", "CIFAR-10, WideResNet"
    panels = [
        _panel(table, [*columns], noisy, titles[0]),
        _panel(found.reset_index(), [*columns], pictures, titles[1]),
    ]
    return (
        alt.hconcat(*panels)
        .configure(background="white")
        .configure_legend(orient="top", title=None)
    )


def _panel(
    table: pd.DataFrame, lines: list[str], moments: dict[str, float], title: str
) -> alt.LayerChart:
    long = table.melt("epoch", lines, "line", "loss")
    colours = alt.Scale(domain=lines, range=["#1c5d8c", "#c2570c"])
    dashes = alt.Scale(domain=lines, range=[[1, 0], [5, 3]])
    curves = (
        alt.Chart(long)
        .mark_line()
        .encode(
            alt.X("epoch:Q", title="Epoch"),
            alt.Y("loss:Q", title="Loss (nats)"),
            color=alt.Color("line:N", scale=colours),
            strokeDash=alt.StrokeDash("line:N", scale=dashes),
        )
    )
    at = pd.DataFrame({"epoch": [*moments.values()], "said": [*moments]})
    rules = alt.Chart(at).mark_rule(color="#5b6168").encode(x="epoch:Q")
    words = (
        alt.Chart(at)
        .mark_text(align="left", dx=4, color="#22262a")
        .encode(x="epoch:Q", y=alt.value(10), text="said:N")
    )
    return (curves + rules + words).properties(width=280, height=180, title=title)


# ---------------------------------------------------------------- command


def main(words: list[str]) -> None:
    """Run settings, or print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks when", description=__doc__
    )
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("write", help="write docs/when.svg")
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
    if asked.command == "write":
        chart().save(confirm.PAGES / "when.svg")
        return
    if asked.command != "run":
        print(tables())
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
