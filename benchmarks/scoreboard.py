"""Confirm the early scores on audits that nobody has looked at: docs/scoreboard.md.

    python -m benchmarks.scoreboard --run runs/scoreboard --settings digits wards
    python -m benchmarks.scoreboard --run runs/scoreboard --settings cifar --cifar10 PATH

benchmarks/scoreboard.toml names the scores, the settings and the claims; it was committed before
any of these audits was trained. If the command is stopped, the same command continues. With --write
it puts its tables into docs/scoreboard.md and the chart beside it.
"""

from __future__ import annotations

import argparse
import os
import tomllib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

import memowidgets as mw
from benchmarks.measure import machine
from memowidgets.evaluation import ENOUGH_MODELS

PLAN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[1] / "docs" / "scoreboard.md"
BEGIN, END = "<!-- tables: python -m benchmarks.scoreboard --write -->", "<!-- end of tables -->"
EVERY = 16
Floats = NDArray[np.float64]


def main() -> None:
    """Train what is missing, compare, print, and write the page if asked."""
    arguments = _arguments()
    os.nice(arguments.nice)
    audits = {
        name: [_audit(name, s, arguments) for s in PLAN["seeds"]] for name in arguments.settings
    }
    if arguments.recorded:
        audits |= {name: [mw.open_recorded(name)] for name in arguments.recorded}
    board = mw.scoreboard(audits, scores=_scores(), eta=PLAN["eta"], against=PLAN["against"])
    found = [_claims(name, audits[name]) for name in arguments.settings]
    parts = [_table(board.table), _ranks(board), *_missing(board), _verdicts(found)]
    said = "\n\n".join([*parts, _targets(audits)])
    print(said)
    if arguments.write:
        _write(said)
        board.chart.save(str(PAGE.with_name("scoreboard.svg")))


# ---------------------------------------------------------------- audits


def _audit(name: str, seed: int, arguments: argparse.Namespace) -> mw.Audit:
    path = arguments.run / f"{name}-{seed}"
    model, data, training = SETTINGS[name](seed, arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the page has the checkpoints' table
        audit = mw.Audit(model, data, path, training, seed)
        audit.train()
        audit.run_references(PLAN["references"], processes=arguments.processes)
        audit.run_shadows(PLAN["shadow_models"], processes=arguments.processes)
        for checkpoint in audit.evidence.names.so_far(audit.prediction.record):
            audit.score("psmi", checkpoint=checkpoint.name)
    return audit


def _digits(_seed: int, _arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    data = mw.data.load_digits(canaries=0.05)
    return mw.models.ConvNet(), data, mw.TrainingConfig(epochs=12)


def _wards(seed: int, _arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    data = mw.data.make_mcqs(1200, seed=seed).with_canaries(60, seed=seed)
    return mw.models.CausalLM.from_scratch(data), data, None


def _cifar(seed: int, arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    data = _photographs(arguments.cifar10, seed - 100, 3000, seed)
    return mw.models.ConvNet(32), data, mw.TrainingConfig(epochs=12, checkpoint_every=1)


def _cifar_to_rho(seed: int, arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    data = _photographs(arguments.cifar10, seed - 92, 2000, seed)
    return mw.models.ConvNet(32), data, mw.TrainingConfig(epochs=60, checkpoint_every=1)


def _photographs(file: Path, first: int, n: int, seed: int) -> mw.data.ImageDataset:
    """Every sixteenth training image of CIFAR-10 from the row `first` on, with canaries."""
    images = mw.data.fetch_cifar10(file).take(range(first, first + EVERY * n, EVERY))
    return images.with_canaries(60, kind="ood", seed=seed)


SETTINGS: dict[str, Callable[[int, argparse.Namespace], tuple[Any, Any, Any]]] = {
    "digits": _digits,
    "wards": _wards,
    "cifar": _cifar,
    "cifar-to-rho": _cifar_to_rho,
}


# ---------------------------------------------------------------- scores of others


def _scores() -> dict[str, Any]:
    return {name: OTHERS.get(name, name) for name in PLAN["scores"]}


def _surprise(audit: mw.Audit) -> Floats:
    """Probabilities minus the label's indicator, (n_members, n_classes)."""
    wrong = audit.probabilities().copy()
    wrong[np.arange(len(audit.labels)), audit.labels] -= 1
    return wrong


def el2n(audit: mw.Audit) -> Floats:
    """EL2N (Paul et al. 2021), negated."""
    return -np.linalg.norm(_surprise(audit), axis=1)


def grand(audit: mw.Audit) -> Floats:
    """Norm of the last layer's gradient (GraNd, Paul et al. 2021), negated."""
    states = audit.representation()
    return -np.linalg.norm(_surprise(audit), axis=1) * np.sqrt((states**2).sum(axis=1) + 1)


def knn(audit: mw.Audit, k: int = 10) -> Floats:
    """Share of the ten nearest members that have the label."""
    states = audit.representation()
    nearest = NearestNeighbors(n_neighbors=k).fit(states).kneighbors(return_distance=False)
    return (audit.labels[nearest] == audit.labels[:, None]).mean(axis=1)


def _over_training(audit: mw.Audit) -> list[Floats]:
    """Logits at each checkpoint after step 0 up to ρ."""
    records = audit.evidence.names.so_far(audit.prediction.record)
    return [audit.evidence.logits(record).astype(np.float64) for record in records]


def confidence(audit: mw.Audit) -> Floats:
    """Mean probability of the label over checkpoints (Swayamdipta et al. 2020)."""
    rows = np.arange(len(audit.labels))
    records = audit.evidence.names.so_far(audit.prediction.record)
    return np.mean([audit.probabilities(r.name)[rows, audit.labels] for r in records], axis=0)


def lt_iqr(audit: mw.Audit) -> Floats:
    """Interquartile range of the loss over checkpoints (Pollock et al. 2024), negated."""
    records = audit.evidence.names.so_far(audit.prediction.record)
    losses = np.stack([audit.evidence.losses(record) for record in records])
    low, high = np.quantile(losses, [0.25, 0.75], axis=0)
    return low - high


def forgetting(audit: mw.Audit) -> Floats:
    """Number of times a sample was right and then wrong (Toneva et al. 2019), negated."""
    right = np.stack([logits.argmax(axis=1) == audit.labels for logits in _over_training(audit)])
    return -(right[:-1] & ~right[1:]).sum(axis=0).astype(np.float64)


OTHERS: dict[str, Callable[[mw.Audit], Floats]] = {
    "el2n": el2n,
    "grand": grand,
    "knn": knn,
    "confidence": confidence,
    "lt_iqr": lt_iqr,
    "forgetting": forgetting,
}


# ---------------------------------------------------------------- what is printed


def _claims(setting: str, audits: Sequence[mw.Audit]) -> list[dict[str, Any]]:
    """Test each claim on the pooled pairs of a setting."""
    rows = []
    for claim in PLAN["claims"]:
        board = mw.scoreboard(
            {setting: audits},
            [claim["better"], claim["than"]],
            claim["truth"],
            PLAN["eta"],
            against=claim["than"],
        )
        row = board.table.set_index("metric").loc[claim["better"]]
        low, high = row["difference_low"], row["difference_high"]
        verdict = "confirmed" if low > 0 else "refuted" if high < 0 else "open"
        if verdict != "open" and len(audits) < ENOUGH_MODELS:
            verdict += f" on {len(audits)} targets"
        found = f"{row['difference']:+.3f} ({low:+.3f} to {high:+.3f})"
        rows.append(
            {"claim": claim["says"], "setting": setting, "found": found, "verdict": verdict}
        )
    return rows


def _table(table: pd.DataFrame) -> str:
    """AUC by score, with a column for each setting and truth."""
    places = list(dict.fromkeys(zip(table["setting"], table["truth"], strict=True)))
    metrics = list(dict.fromkeys(table["metric"]))
    by = table.set_index(["metric", "setting", "truth"])
    head = ["score", *(f"{setting}, {truth.replace('_', '-')}" for setting, truth in places)]
    rows = [[f"`{m}`", *(_area(by, (m, *place)) for place in places)] for m in metrics]
    first = table.drop_duplicates(["setting", "truth"])
    counts = [f"{row.n_memorized} of {row.n}" for row in first.itertuples()]
    return _markdown(head, [*rows, ["positives", *counts]])


def _area(by: pd.DataFrame, key: tuple[str, ...]) -> str:
    if key not in by.index:
        return "–"
    row = by.loc[key]
    return f"{row.auc:.3f} ({row.auc_low:.2f} to {row.auc_high:.2f})"


def _ranks(board: Any) -> str:
    ranks = board.ranks
    head = ["score", *(f"mean rank, {name.replace('_', '-')}" for name in ranks.columns[:-2])]
    rows = [
        [f"`{name}`", *(f"{value:.1f}" for value in row[:-1]), f"{row[-1]:.0f}"]
        for name, row in zip(ranks.index, ranks.to_numpy(), strict=True)
    ]
    return _markdown([*head, "mean rank", "rankings"], rows)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _missing(board: Any) -> list[str]:
    package = Path(mw.__file__).parent.as_posix()
    reasons = [reason.replace(f"{package}/audit/recordings/", "") for reason in board.missing]
    return ["\n".join(f"- {reason}" for reason in reasons)] if reasons else []


def _verdicts(found: Sequence[Sequence[dict[str, Any]]]) -> str:
    rows = [list(row.values()) for rows in found for row in rows]
    return _markdown(["claim", "setting", "difference of AUC", "verdict"], rows)


def _targets(audits: dict[str, list[mw.Audit]]) -> str:
    """How far each target was trained, where its scores are taken, and what it has memorised."""
    head = ["setting", "seed", "scores of", "drop there", "largest drop", "memorised", "canaries"]
    return _markdown(head, [[name, *_target(a)] for name, each in audits.items() for a in each])


def _target(audit: mw.Audit) -> list[str]:
    drops, at = audit.checkpoints["drop"], audit.prediction.record.name
    memorised = audit.log_lira().to_numpy() >= PLAN["eta"]
    planted = getattr(audit.evidence.data, "canaries", None)
    canaries = "–" if planted is None else (memorised & planted[audit.evidence.member_rows]).sum()
    how_far = str(audit.evidence.seed), at, f"{drops[at]:.3f}", f"{drops.max():.3f}"
    return [*how_far, f"{memorised.sum()} of {len(memorised)}", str(canaries)]


def _write(said: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{said}\n\n{machine()}\n\n{END}{after}", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoreboard", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="folder of the run directories")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["digits", "wards"])
    parser.add_argument("--recorded", nargs="*", default=[], help="recorded audits beside them")
    parser.add_argument("--cifar10", type=Path, help="for the setting cifar")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write docs/scoreboard.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
