"""What removal of the flagged samples gains: planted wrong labels, and a table without any.

    python -m benchmarks cleaning

Prints the tables of docs/find_and_fix.md: what each of 25 models memorises before, after, and after
as many random removals. All seeds are fixed. With ``--runs FOLDER`` the runs stay in a folder, and
a second call goes on from them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import memowidgets as mw
from benchmarks.confirm import PLAN, SETTINGS, markdown
from benchmarks.measure import Namespace, Row
from memowidgets.data import Dataset
from memowidgets.memorization import support
from memowidgets.models import Model

SHADOWS = 24
ORDINARY = "tail-20"  # of benchmarks/confirm.toml


def rows(arguments: Namespace) -> list[Row]:
    """Print the tables; nothing of them is in the table of performance."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.runs or temporary)
        for name, (model, data, training, flags) in _cases(arguments):
            print(
                f"### {name}\n\n{_cleaned(model, data, training, flags, folder / name)}\n"
            )
    return []


def _cases(arguments: Namespace) -> Iterator[tuple[str, tuple[Any, ...]]]:
    digits = mw.data.load_digits(canaries=0.05, seed=0)
    yield "digits", (mw.models.ConvNet(), digits, None, {"tau": 0.0})
    of = PLAN["settings"][ORDINARY]
    model, table, more = SETTINGS[ORDINARY](arguments)
    training = mw.TrainingConfig(
        epochs=of["epochs"], checkpoint_every=of["every"], batch_size=16, **more
    )
    yield ORDINARY, (model, table, training, {"share": 0.1})


def _cleaned(
    model: Model,
    data: Dataset,
    training: mw.TrainingConfig | None,
    flags: dict[str, float],
    folder: Path,
) -> str:
    """Flag, remove, and count what models memorise on what is left."""
    decider = mw.Audit(model, data, folder / "decide", training, seed=0, members="all")
    decider.train(stop_at_drop=0.95)
    flagged = decider.flagged(**flags).index.astype(str)
    chosen = np.random.default_rng(0).choice(
        decider.members, len(flagged), replace=False
    )
    left = {
        "the data": data,
        "without the flagged samples": data.take(others(data, flagged)),
        "without as many random samples": data.take(others(data, chosen)),
    }
    table, rates = [], []
    for name, of in left.items():
        judge = mw.Audit(model, of, folder / name, training, seed=0)
        judge.train()
        judge.run_shadows(SHADOWS, design="balanced")
        counts = judge.memorized_per_model()
        table.append([name, str(len(of)), *in_words(counts)])
        rates.append(_memorized_by(judge))
    before, after, _ = rates
    removed = before.index.isin(flagged)
    share = before["memorized"][removed].sum() / before["memorized"].sum()
    kept = before[~removed].sum()
    said = (
        f"The {len(flagged)} removed samples had {share:.0%} of what was memorised. Of the others, "
        f"a model memorised {kept['memorized'] / kept['models']:.1%} before and "
        f"{after['memorized'].sum() / after['models'].sum():.1%} after."
    )
    head = ["trained on halves of", "samples", "truly", "counted"]
    return f"{markdown(head, table)}\n\n{said}"


def _memorized_by(judge: mw.Audit) -> pd.DataFrame:
    """Return how many models memorised each sample, of how many that trained on it."""
    models = judge.evidence.all_models(judge.evidence.names.record("final").name)
    found = support(models.gaps, models.members)
    ids = judge.data.ids[judge.evidence.pool]
    table = {"memorized": found.memorized, "models": found.models}
    return pd.DataFrame(table, ids).dropna()


def others(data: Dataset, ids: Any) -> NDArray[np.intp]:
    return np.flatnonzero(~np.isin(data.ids, ids))


def in_words(counts: pd.DataFrame) -> list[str]:
    return [
        f"{of.mean():.1f} ({of.min():.0f} to {of.max():.0f})"
        for of in (counts["truly"], counts["memorized"])
    ]
