"""Confirm the early scores and the threshold by class on audits that nobody has looked at.

    python -m benchmarks confirm                       # the tables, from the kept results
    python -m benchmarks confirm write                 # docs/study.csv and docs/study.svg
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
from collections.abc import Callable, Sequence
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
from scipy.special import logit
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import memowidgets as mw
from benchmarks.measure import machine
from memowidgets.data import Dataset
from memowidgets.evaluation import below_class, lowest_share
from memowidgets.evaluation.curve import FEW_POSITIVES
from memowidgets.evaluation.intervals import Groups, Jackknife
from memowidgets.metrics import mean_rank
from memowidgets.models import Model
from memowidgets.progress import Progress

PLAN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HERE = Path(__file__).parent
KEPT = Path(__file__).with_suffix("")
PAGES = HERE.parent / "docs"
# of a target's members, at which scores are compared at one budget
SHARES = (
    0.05,
    0.1,
    0.2,
)
STAGES = (
    "to rho",
    "score",
    "reference 1",
    "reference 2",
    "references 3 and 4",
    "to the end",
)
_FEWEST_TO_LEARN = 8  # settings, of a forecast
SMALL = 10  # members of a class, up to which the rule by class may need help
Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Difference = tuple[float, float, float]
Made = tuple[Model, Dataset, dict[str, Any]]

# ---------------------------------------------------------------- settings


def network(n_classes: int, n_features: int) -> nn.Module:
    """Create a network with two hidden layers of 64."""
    hidden = [nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(64, n_classes))


def _bundled(name: str, parts: int | None, _files: argparse.Namespace) -> Made:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")(as_frame=True)
    label = (
        found.target if parts is None else pd.qcut(found.target, parts, labels=False)
    )
    frame = found.data.assign(label=np.asarray(label, dtype=np.int64))
    data = mw.data.TableDataset.from_frame(frame, label="label")
    return mw.models.TorchClassifier(network), data, {"lr": 1e-3}


def _tail(of: dict[str, Any], _files: argparse.Namespace) -> Made:
    """Generate classes of a few common and many rare clusters."""
    rng, n, kinds, width = (
        np.random.default_rng(PLAN["data_seed"]),
        of["classes"],
        8,
        16,
    )
    middles = rng.normal(scale=of["spread"], size=(n, 1, width))
    centres = middles + rng.normal(scale=1.2 * of["spread"], size=(n, kinds, width))
    share = np.arange(1, kinds + 1) ** -1.5
    labels = np.repeat(np.arange(n), of["each"])
    cluster = rng.choice(kinds, size=len(labels), p=share / share.sum())
    values = centres[labels, cluster] + rng.normal(size=(len(labels), width))
    frame = pd.DataFrame(values, columns=[f"x{i}" for i in range(width)]).assign(
        label=labels
    )
    data = mw.data.TableDataset.from_frame(frame, label="label")
    return mw.models.TorchClassifier(network), data, {"lr": 1e-3}


def _digits(canaries: float, _files: argparse.Namespace) -> Made:
    data = mw.data.load_digits(canaries=canaries, seed=PLAN["data_seed"])
    return mw.models.ConvNet(16), data, {"lr": 4e-3, "batch_size": 64}


def _photographs(classes: tuple[str, ...], files: argparse.Namespace) -> Made:
    every = mw.data.fetch_cifar10(files.cifar10, split="test")
    names = np.array(every.class_names)[every.labels]
    rows = _drawn(np.flatnonzero(np.isin(names, classes)), 1700)
    whole = (
        np.stack([np.asarray(every.images[row], dtype=np.float32) for row in rows])
        / 255
    )
    images = whole.reshape(len(rows), 16, 2, 16, 2, 3).mean(axis=(2, 4))
    labels = [classes.index(name) for name in names[rows]]
    ids = every.ids[rows].tolist()
    data = mw.data.ImageDataset.from_arrays(images, labels, list(classes), ids=ids)
    return mw.models.ConvNet(24), data, {"lr": 2e-3}


def _intents(part: str, files: argparse.Namespace) -> Made:
    frame = pd.read_csv(files.banking77)
    intents = sorted(frame["category"].unique())
    if part != "all":
        wanted = [
            name for i, name in enumerate(intents) if (i % 4 == 0) == (part == "fourth")
        ]
        frame = frame[frame["category"].isin(wanted)]
    data = mw.data.TextDataset.from_texts(
        frame["text"].tolist(), frame["category"].tolist()
    )
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
    **{
        name: partial(_tail, of)
        for name, of in PLAN["settings"].items()
        if "spread" in of
    },
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
    config = mw.TrainingConfig(
        epochs=of["epochs"], checkpoint_every=of["every"], **training
    )
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
    with ThreadPoolExecutor(
        1
    ) as executor:  # in this process: one at a time, and its own seconds
        first.run_shadows(PLAN["shadow_models"], executor, "final", progress=Progress())
    seconds = time.process_time() - seconds
    found = _with_truth(first, parts)
    about = {
        "seconds_of_shadows": np.array(seconds),
        "n_classes": np.array(len(pool.class_names)),
        "commit": np.array(commit()),
        "machine": np.array(machine()),
    }
    KEPT.mkdir(exist_ok=True)
    unfinished = KEPT / f".{setting}.npz"
    np.savez_compressed(unfinished, **found, **about)
    unfinished.rename(KEPT / f"{setting}.npz")
    print(
        f"{setting}: kept {(KEPT / f'{setting}.npz').stat().st_size / 1000:.0f} kB",
        flush=True,
    )


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
    found = {
        name: s.reindex(one.members).to_numpy(np.float32) for name, s in named.items()
    }
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
            raise ValueError(
                f"target {number} is one of its shadow models, or one is missing"
            )
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


def commit() -> str:
    """Return the commit of this checkout, with a plus if something differs from it."""
    ask = partial(subprocess.run, check=True, capture_output=True, text=True, cwd=HERE)
    commit = ask(["git", "rev-parse", "--short=10", "HEAD"]).stdout.strip()
    changed = ask(
        ["git", "status", "--porcelain", "--untracked-files=no"]
    ).stdout.strip()
    return commit + ("+" if changed else "")


# ---------------------------------------------------------------- what the kept results say


@dataclass(frozen=True)
class Result:
    """The kept numbers of a setting: one row for each pair of a member and a target.

    Attributes
    ----------
    name : str
        The setting.
    kept : dict of str to array
        As in the file.
    scores : dict of str to array of shape (n,)
        The scores of the plan; NaN where a member has none.
    flags : dict of (str, str) to array of shape (n,), bool
        By score and rule: which pairs are flagged.
    rows : array of shape (n,), bool
        Pairs that have a truth and every score.
    """

    name: str
    kept: Arrays
    scores: dict[str, Floats]
    flags: dict[tuple[str, str], Mask]
    rows: Mask

    @classmethod
    def read(cls, file: Path) -> Result:
        """Read a file, and compute scores and flags of each target from its own members."""
        with np.load(file, allow_pickle=False) as arrays:
            kept = dict(arrays)
        values = {
            name: kept[name].astype(np.float64) for name in ("psmi", "csl", "loss")
        }
        gaps = kept["references"].astype(np.float64)
        values |= {f"reference-{n}": gaps[:, :n].mean(axis=1) for n in (1, 2, 4)}
        scores = {name: np.full(len(gaps), np.nan) for name in PLAN["scores"]}
        flags = {
            (score, rule): np.zeros(len(gaps), dtype=np.bool_)
            for score in PLAN["ruled"]
            for rule in PLAN["rules"]
        }
        for target in np.unique(kept["target"]):
            own = np.flatnonzero(
                (kept["target"] == target) & np.isfinite(values["psmi"])
            )
            for name, column in scores.items():
                parts = [values[part][own] for part in name.split("+")]
                column[own] = (
                    parts[0] if len(parts) == 1 else mean_rank(np.stack(parts))
                )
            for (score, rule), flag in flags.items():
                flag[own] = flagged(rule, scores[score][own], kept["label"][own])
        rows = np.isfinite([kept["log_lira"], *scores.values()]).all(axis=0)
        return cls(file.stem, kept, scores, flags, rows)

    @property
    def memorized(self) -> Mask:
        """Whether each judged pair is memorised."""
        return np.asarray(self.kept["log_lira"][self.rows] >= PLAN["eta"])

    @property
    def distinct(self) -> int:
        """Number of distinct memorised samples."""
        return len(np.unique(self.kept["sample"][self.rows][self.memorized]))

    @property
    def pairs(self) -> dict[str, NDArray[Any]]:
        """Sample and target of each judged pair, as `mw.evaluation.roc` takes them."""
        return {
            "groups": self.kept["sample"][self.rows],
            "models": self.kept["target"][self.rows],
        }

    @cached_property
    def evaluations(self) -> dict[str, mw.evaluation.Evaluation]:
        """Evaluation of each score on the same pairs."""
        found = {}
        for name, values in self.scores.items():
            found[name] = mw.evaluation.roc(
                values[self.rows], self.memorized, **self.pairs
            )
        return found

    def found_in(self, share: float, score: str) -> float:
        """Share of the memorised pairs among the lowest `share` of each target's members."""
        lowest = np.zeros(len(self.rows), dtype=np.bool_)
        for target in np.unique(self.kept["target"]):
            own = np.flatnonzero(self.rows & (self.kept["target"] == target))
            order = np.argsort(self.scores[score][own], kind="stable")
            lowest[own[order[: round(share * len(own))]]] = True
        return float(lowest[self.rows][self.memorized].mean())

    def youden(
        self, score: str, rule: str, than: str | None = None
    ) -> tuple[float, float, float]:
        """Return Youden's J of a rule, or its difference from another, with its 95 % interval."""
        memorized = self.memorized
        flags = self.flags[score, rule][self.rows].astype(np.float64)
        if than is not None:
            flags = flags - self.flags[score, than][self.rows]

        def j(weights: NDArray[Any]) -> NDArray[Any]:
            of_kind = [(weights * kind) @ flags for kind in (memorized, ~memorized)]
            totals = [weights @ kind for kind in (memorized, ~memorized)]
            some = np.minimum(*totals) > 0  # a draw may lack memorised samples
            return np.asarray(
                of_kind[0][some] / totals[0][some] - of_kind[1][some] / totals[1][some]
            )

        groups = Groups.read(**self.pairs, n=len(flags))
        of_model = groups.model_of_row
        if groups.n_models == 1:
            raise ValueError(f"{self.name} has a single target")
        value = float(j(np.ones((1, len(flags))))[0])
        drawn = groups.draws[:, groups.of_row] * groups.model_draws[:, of_model]
        low, high = np.quantile(j(drawn), [0.025, 0.975])
        left_out = (np.arange(groups.n_models)[:, None] != of_model).astype(np.float64)
        reach = Jackknife.of(j(left_out)).reach
        return value, float(min(low, value - reach)), float(max(high, value + reach))

    @property
    def is_strict(self) -> bool:
        """Whether PSMI's 0 flags less than half of what the rule by class flags."""
        zero, by_class = (
            self.flags["psmi", rule][self.rows].sum() for rule in ("zero", "class")
        )
        return bool(2 * zero < by_class)

    @property
    def per_class(self) -> float:
        """Members of a class of a target, in the mean."""
        return (
            len(self.rows) / len(self.kept["seconds"]) / float(self.kept["n_classes"])
        )


def flagged(rule: str, scores: Floats, labels: NDArray[Any]) -> Mask:
    """Return which members of one target a rule of the plan flags."""
    if rule == "zero":
        return np.asarray(scores <= 0)
    if rule.startswith("share-"):
        return np.asarray(
            scores <= lowest_share(scores, int(rule.removeprefix("share-")) / 100)
        )
    if rule == "half-median":
        return np.asarray(scores <= np.median(scores) / 2)
    if rule == "class":
        return below_class(scores, labels)
    medians, deviations = np.zeros(len(scores)), np.zeros(len(scores))
    for label in np.unique(labels):
        own = labels == label
        medians[own] = np.median(scores[own])
        deviations[own] = 1.4826 * np.median(np.abs(scores[own] - medians[own]))
    everyone = 1.4826 * np.median(np.abs(scores - medians))
    n = np.bincount(labels)[labels]
    shrunk = np.sqrt((n * deviations**2 + 10 * everyone**2) / (n + 10))
    return np.asarray(scores < medians - shrunk)


def meant(rule: str, score: str, result: Result) -> bool:
    """Return whether a rule means something for a score: two of them need a natural zero."""
    if rule == "half-median":
        return bool(np.median(result.scores[score][result.rows]) > 0)
    return rule != "zero" or score in ("psmi", "reference-2")


def compared(result: Result, question: dict[str, str], score: str = "") -> Difference:
    """Return the difference that a question is about, with its 95 % interval, in a setting."""
    if question["measure"] == "AUC":
        better, than = (
            result.evaluations[question[side]] for side in ("better", "than")
        )
        test = mw.evaluation.compare(better, than)
        return test.difference, *test.interval
    return result.youden(
        score or question["score"], question["better"], question["than"]
    )


def verdict(difference: Difference) -> str:
    """Return what an interval says of a claim in a setting."""
    _, low, high = difference
    return "held" if low > 0 else "failed" if high < 0 else "open"


def tables() -> str:
    """Return all tables of the kept results, as Markdown."""
    there = {name: KEPT / f"{name}.npz" for name in PLAN["settings"]}
    results = [Result.read(file) for file in there.values() if file.exists()]
    waiting = [name for name, file in there.items() if not file.exists()]
    commits = sorted({str(result.kept["commit"]) for result in results})
    machines = sorted(
        {str(result.kept["machine"]).split(", load")[0] for result in results}
    )
    parts = [
        (
            f"{len(results)} of {len(there)} settings, run from commit {', '.join(commits)} on "
            f"{'; '.join(machines)}. Not run yet: {', '.join(waiting) or 'none'}."
        ),
        "Memorised pairs, and AUC of each score at ρ:",
        _areas(results),
        "Over these settings, AUC and TPR at an FPR of 1 %:",
        _summary(results),
        (
            "At one budget: share of the memorised pairs among the members of a target with the "
            f"lowest scores, over the settings with {FEW_POSITIVES} memorised pairs or more:"
        ),
        _budgets(results),
        "TPR at an FPR of 1 % and of .1 %:",
        _at_low_fpr(results),
        (
            "What the second and the fourth reference model bring in AUC, and for how many seconds "
            "of one core beside those of the target's training to ρ:"
        ),
        _prices(results),
        *(
            f"Claim: {question['says']} (difference of {question['measure']})\n\n"
            f"{_claim(results, question)}"
            for question in PLAN["questions"].values()
        ),
        "TPR/FPR (Youden's J) of each rule:",
        *(f"`{score}`\n\n{_rules(results, score)}" for score in PLAN["ruled"]),
        _decisions(results),
        *_forecasts(results),
    ]
    return "\n\n".join(parts)


def _areas(results: list[Result]) -> str:
    head = ["setting", "members a class", "memorised", "drop", *PLAN["scores"]]
    rows = []
    for result in results:
        about = f"{result.memorized.sum()} of {result.rows.sum()} ({result.distinct} samples)"
        drops = f"{result.kept['drop'].min():.2f} to {result.kept['drop'].max():.2f}"
        cells = [
            f"{one.auc:.3f} ({one.auc_interval[0]:.2f} to {one.auc_interval[1]:.2f})"
            for one in result.evaluations.values()
        ]
        size = f"{result.per_class:.0f}"
        rows.append([result.name, size, about, drops, *cells])
    means = [
        np.mean([r.evaluations[name].auc for r in results]) for name in PLAN["scores"]
    ]
    return markdown(
        head, [*rows, ["mean", "", "", "", *(f"{mean:.3f}" for mean in means)]]
    )


def _summary(results: list[Result]) -> str:
    rows = []
    for name in ("psmi", "loss", "csl", "psmi+csl", "reference-2"):
        areas = [result.evaluations[name].auc for result in results]
        low = [result.evaluations[name].tpr_at_fpr(0.01) for result in results]
        values = (
            np.mean(areas),
            min(areas),
            max(areas),
            np.mean(low),
            min(low),
            max(low),
        )
        rows.append([f"`{name}`", *(f"{value:.3f}" for value in values)])
    head = ["score", "mean AUC", "worst", "best", "mean TPR", "worst", "best"]
    return markdown(head, rows)


def _budgets(results: list[Result]) -> str:
    enough = [result for result in results if result.memorized.sum() >= FEW_POSITIVES]
    rows = []
    for name in PLAN["scores"]:
        found = [
            [result.found_in(share, name) for result in enough] for share in SHARES
        ]
        cells = [
            f"{np.mean(one):.2f} ({min(one):.2f} to {max(one):.2f})" for one in found
        ]
        rows.append([f"`{name}`", *cells])
    zero = [result.flags["psmi", "zero"][result.rows] for result in enough]
    flags = [flag.mean() for flag in zero]
    hits = [
        flag[result.memorized].mean() for flag, result in zip(zero, enough, strict=True)
    ]
    said = (
        f"PSMI's τ = 0 flags {min(flags) * 100:.1f} to {max(flags) * 100:.1f} % of the members "
        f"there, and finds {np.mean(hits):.2f} ({min(hits):.2f} to {max(hits):.2f})."
    )
    head = ["score", *(f"lowest {share * 100:.0f} %" for share in SHARES)]
    return f"{markdown(head, rows)}\n\n{said}"


def _at_low_fpr(results: list[Result]) -> str:
    rows = [
        [
            result.name,
            *(
                ", ".join(f"{evaluation.tpr_at_fpr(fpr):.2f}" for fpr in PLAN["fprs"])
                for evaluation in result.evaluations.values()
            ),
        ]
        for result in results
    ]
    return markdown(["setting", *PLAN["scores"]], rows)


def _prices(results: list[Result]) -> str:
    head = [
        "setting",
        "to ρ",
        "one",
        "its AUC",
        "second brings",
        "for",
        "third and fourth",
        "for",
    ]
    rows = []
    for result in results:
        seconds = dict(
            zip(STAGES, np.nanmean(result.kept["seconds"], axis=0), strict=True)
        )
        of = result.evaluations
        gain = [
            mw.evaluation.compare(of[f"reference-{more}"], of[f"reference-{fewer}"])
            for more, fewer in ((2, 1), (4, 2))
        ]
        said = [
            f"{g.difference:+.3f} ({g.interval[0]:+.3f} to {g.interval[1]:+.3f})"
            for g in gain
        ]
        times = [f"{seconds[stage]:.2f} s" for stage in STAGES]
        auc = f"{of['reference-1'].auc:.3f}"
        row = [
            result.name,
            times[0],
            times[2],
            auc,
            said[0],
            times[3],
            said[1],
            times[4],
        ]
        rows.append(row)
    return markdown(head, rows)


def _claim(results: list[Result], question: dict[str, str]) -> str:
    rows = []
    for result in results:
        found = compared(result, question)
        few = (
            ""
            if result.distinct >= FEW_POSITIVES
            else f", {result.distinct} memorised samples"
        )
        strict = "τ = 0 is strict" if result.is_strict else ""
        rows.append([result.name, signed(found), verdict(found) + few, strict])
    kept = [result for result in results if result.distinct >= FEW_POSITIVES]
    head = ["setting", "difference", "status", ""]
    return f"{markdown(head, rows)}\n\n{_count(kept, question)}"


def _count(results: list[Result], question: dict[str, str]) -> str:
    """Say in how many settings a claim is held, and whether it holds as a whole."""
    found = [compared(result, question) for result in results]
    verdicts = [verdict(one) for one in found]
    held, failed, n = verdicts.count("held"), verdicts.count("failed"), len(verdicts)
    whole = "holds" if n and 2 * held >= n and 10 * failed <= n else "does not hold"
    mean = mean_over([value for value, *_ in found])
    return f"Held in {held}, failed in {failed} of {n}: it {whole}. Mean difference {mean}."


def difference_over(values: list[float]) -> Difference:
    """Return the mean over settings with its 95 % interval, by Student's t."""
    reach = (
        student.ppf(0.975, len(values) - 1)
        * np.std(values, ddof=1)
        / len(values) ** 0.5
    )
    mean = float(np.mean(values))
    return mean, mean - reach, mean + reach


def mean_over(values: list[float]) -> str:
    """Return the mean over settings, with its interval if there are several."""
    return "–" if len(values) < 2 else signed(difference_over(values))


def signed(difference: Difference) -> str:
    """Return a difference with its interval, each with its sign."""
    value, low, high = difference
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f})"


def _rules(results: list[Result], score: str) -> str:
    rows: list[list[str]] = []
    every: dict[str, list[float]] = {rule: [] for rule in PLAN["rules"]}
    for result in results:
        memorized = result.memorized
        flags = [result.flags[score, rule][result.rows] for rule in PLAN["rules"]]
        rates = [(flag[memorized].mean(), flag[~memorized].mean()) for flag in flags]
        for rule, (tpr, fpr) in zip(PLAN["rules"], rates, strict=True):
            every[rule] += [tpr - fpr] if meant(rule, score, result) else []
        cells = [
            f"{tpr:.2f}/{fpr:.2f} ({tpr - fpr:.2f})"
            if meant(rule, score, result)
            else "–"
            for rule, (tpr, fpr) in zip(PLAN["rules"], rates, strict=True)
        ]
        rows.append([result.name, f"{result.per_class:.0f}", *cells])
    means = [
        f"({np.mean(found):.3f}, {len(found)})" if found else "–"
        for found in every.values()
    ]
    return markdown(
        ["setting", "a class", *PLAN["rules"]], [*rows, ["mean", "", *means]]
    )


def _decisions(results: list[Result]) -> str:
    """Say what follows for the defaults, by the rules of the plan."""
    kept = [result for result in results if result.distinct >= FEW_POSITIVES]
    strict = [result for result in kept if result.is_strict]
    small = [result for result in kept if result.per_class <= SMALL]
    shrunk = {
        "measure": "J",
        "score": "psmi",
        "better": "class-shrunk",
        "than": "class",
    }
    gains = [compared(result, shrunk) for result in kept]
    lower = [r.name for r, g in zip(kept, gains, strict=True) if verdict(g) == "failed"]
    mean = mean_over([compared(result, shrunk)[0] for result in small])
    return "\n\n".join(
        [
            'Default where τ = 0 is strict, tau="class" against τ = 0: '
            + _count(strict, PLAN["questions"]["threshold"]),
            (
                f"Shrunk deviation against the class's own, settings with {SMALL} members a class "
                f"or fewer ({', '.join(r.name for r in small) or 'none'}): {mean}. "
                f"Lower, with an interval below 0, in: {', '.join(lower) or 'none'}."
            ),
        ]
    )


# ---------------------------------------------------------------- a forecast


def of_recording(name: str) -> Result:
    """Return what a forecast without reference models takes of a recorded audit."""
    audit = mw.open_recorded(name)
    members, truth = audit.evidence.members, audit.log_lira(variance=PLAN["variance"])
    scores = {
        one: audit.score(one).reindex(members).to_numpy()
        for one in ("psmi", "csl", "loss")
    }
    kept = {
        "label": audit.evidence.labels,
        "target": np.zeros(len(members), np.uint8),
        "sample": np.arange(len(members)),
        "log_lira": truth.reindex(members).to_numpy(),
        "seconds": np.zeros((1, len(STAGES))),
        "n_classes": np.array(len(audit.evidence.data.class_names)),
    }
    rows = np.isfinite([kept["log_lira"], *scores.values()]).all(axis=0)
    return Result(name, kept, scores, {}, rows)


def known_at_rho(result: Result, names: Sequence[str]) -> Floats:
    """Return the features of the plan's forecast of each judged pair, (n, features)."""
    table = []
    for target in np.unique(result.kept["target"]):
        own = result.rows & (result.kept["target"] == target)
        scores = pd.DataFrame({name: result.scores[name][own] for name in names})
        by_class = scores.groupby(result.kept["label"][own])
        known = [
            logit(scores.rank() / (len(scores) + 1)),
            logit(by_class.rank() / (by_class.transform("count") + 1)),
        ]
        for name in [name for name in names if name in ("psmi", "reference-2")]:
            share = ((scores[name] <= 0).sum() + 0.5) / (len(scores) + 1)
            known.append(pd.Series(logit(share), scores.index))
        table.append(pd.concat(known, axis=1).assign(size=np.log(result.per_class)))
    return np.concatenate(table)


def forecast(results: list[Result], names: Sequence[str]) -> str:
    """Learn the probability of being memorised on all settings but one, and judge it there."""
    plan = PLAN["forecast"]
    kind_of = {name: of["kind"] for name, of in PLAN["settings"].items()}
    judged_only = []
    if "reference-2" not in names:
        kind_of |= plan["recordings"]
        judged_only = [of_recording(name) for name in plan["recordings"]]
    known = [known_at_rho(result, names) for result in [*results, *judged_only]]
    rows, verdicts = [], []
    for number, result in enumerate([*results, *judged_only]):
        others = [i for i in range(len(results)) if i != number]
        weights = np.concatenate(
            [np.full(len(known[i]), 1 / len(known[i])) for i in others]
        )
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(
            np.concatenate([known[i] for i in others]),
            np.concatenate([results[i].memorized for i in others]),
            logisticregression__sample_weight=weights * len(weights) / len(others),
        )
        p, memorized = model.predict_proba(known[number])[:, 1], result.memorized
        tenths = [np.minimum((10 * p).astype(int), 9) == tenth for tenth in range(10)]
        judged = [t for t in tenths if t.sum() >= plan["in_a_tenth"]]
        miss = max(abs(p[t].mean() - memorized[t].mean()) for t in judged)
        auc = mw.evaluation.roc(-p, memorized).auc
        best = max(result.evaluations[name].auc for name in names)
        verdicts.append(miss <= plan["near"] and auc >= best)
        cells = [f"{auc:.3f}", f"{best:.3f}", f"{miss:.2f}", f"{p.sum():.0f}"]
        cells += [f"{memorized.sum()}", "yes" if verdicts[-1] else ""]
        rows.append([result.name, kind_of[result.name], *cells])
    head = [
        "left out",
        "kind",
        "AUC",
        "best score",
        "largest miss",
        "expected",
        "true",
        "holds",
    ]
    kinds = pd.Series(verdicts).groupby([row[1] for row in rows]).agg(["all", "size"])
    made_for = ", ".join(kinds.index[kinds["all"] & (kinds["size"] > 1)]) or "none"
    said = f"It holds in {sum(verdicts)} of {len(rows)}. Kinds for which it is made: {made_for}."
    return f"{markdown(head, rows)}\n\n{said}"


def _forecasts(results: list[Result]) -> list[str]:
    if len(results) < _FEWEST_TO_LEARN:
        return []
    return [
        (
            f"Forecast from {', '.join(names)}, learned on all settings but one and judged there; "
            f"the largest miss is that of a tenth of the probabilities with "
            f"{PLAN['forecast']['in_a_tenth']} pairs or more:\n\n{forecast(results, names)}"
        )
        for names in PLAN["forecast"]["sets"]
    ]


def long_table(results: list[Result]) -> pd.DataFrame:
    """Return a row for each setting and score, with what the tables say of the two."""
    rows = []
    for result in results:
        of_setting = {
            "setting": result.name,
            "members_a_class": round(result.per_class),
            "pairs": int(result.rows.sum()),
            "memorised_pairs": int(result.memorized.sum()),
            "memorised_samples": result.distinct,
        }
        for name, found in result.evaluations.items():
            low, high = found.auc_interval
            of_score = {
                "score": name,
                "auc": found.auc,
                "auc_low": low,
                "auc_high": high,
            }
            rates = {
                f"tpr_at_fpr_{fpr:g}": found.tpr_at_fpr(fpr) for fpr in PLAN["fprs"]
            }
            lowest = {
                f"found_in_lowest_{of * 100:.0f}_percent": result.found_in(of, name)
                for of in SHARES
            }
            rows.append(of_setting | of_score | rates | lowest)
    return pd.DataFrame(rows)


def chart(table: pd.DataFrame) -> alt.LayerChart:
    """Draw what PSMI and two reference models find in the lowest tenth, by setting."""
    names = {"psmi": "PSMI", "reference-2": "two reference models"}
    column = "found_in_lowest_10_percent"
    found = table[table["score"].isin(names)].replace({"score": names})
    order = found[found["score"] == "PSMI"].sort_values(column)["setting"].tolist()
    said = "Share of what is memorised among the tenth with the lowest scores"
    share = (
        alt.X(f"{column}:Q", title=said)
        .axis(labelExpr="round(datum.value * 100) + ' %'")
        .scale(domain=[0, 1])
    )
    setting = alt.Y("setting:N", sort=order, title=None)
    lines = (
        alt.Chart(found)
        .mark_line(color="#b9c0c7")
        .encode(share, setting, detail="setting:N")
    )
    colours = {"domain": [*names.values()], "range": ["#1c5d8c", "#c2570c"]}
    shapes = {"domain": [*names.values()], "range": ["circle", "diamond"]}
    dots = (
        alt.Chart(found)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            share,
            setting,
            color=alt.Color("score:N", title=None, scale=alt.Scale(**colours)),
            shape=alt.Shape("score:N", title=None, scale=alt.Scale(**shapes)),
        )
    )
    return (
        (lines + dots)
        .properties(width=480, padding={"left": 25, "top": 5, "right": 15, "bottom": 5})
        .configure(background="white")
        .configure_legend(orient="top")
    )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# ---------------------------------------------------------------- command


def main(words: list[str]) -> None:
    """Run settings, or print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks confirm", description=__doc__
    )
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run", help="train what is missing, and keep its numbers")
    run.add_argument(
        "settings", nargs="*", choices=[*SETTINGS, []], help="default: all"
    )
    run.add_argument(
        "--runs", type=Path, default=Path("runs/confirm"), help="run directories"
    )
    run.add_argument("--cifar10", type=Path, help="CIFAR-10, as for fetch_cifar10")
    run.add_argument("--banking77", type=Path, help="Banking77's test messages as CSV")
    run.add_argument("--mmlu", type=Path, help="MMLU's test questions as JSON lines")
    run.add_argument("--smollm2", type=Path, help="folder for from_pretrained")
    commands.add_parser("write", help="write docs/study.csv and docs/study.svg")
    asked = parser.parse_args(words)
    if asked.command == "write":
        there = (KEPT / f"{name}.npz" for name in PLAN["settings"])
        table = long_table([Result.read(file) for file in there if file.exists()])
        table.to_csv(PAGES / "study.csv", index=False, float_format="%.4f")
        chart(table).save(PAGES / "study.svg")
        return
    if asked.command != "run":
        print(tables())
        return
    torch.set_num_threads(1)
    # of small classes and of rho; the table has both
    warnings.simplefilter("ignore", UserWarning)
    for setting in asked.settings or SETTINGS:
        if not (KEPT / f"{setting}.npz").exists():
            measure(setting, asked)
