"""A fork: the same model, settings and split on what is left of the data.

`forked` begins one, and `compared` says what became of the samples.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets import charts
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.scores import states
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.audit.run import Run, fork_note
from memowidgets.audit.runs import identity
from memowidgets.checks import real_number, warn_user, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.evaluation.intervals import clopper_pearson
from memowidgets.files import check_outside_runs
from memowidgets.memorization import log_lira
from memowidgets.metrics import logit_gap
from memowidgets.stamps import digest
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import write_stop
from memowidgets.training.design import follow_design
from memowidgets.training.target import TargetTraining, start_of
from memowidgets.visible import listed

if TYPE_CHECKING:
    import os

    import altair as alt

    from memowidgets.training.rho import Record

NEIGHBOURS, OTHERS = "neighbours", "other kept"
GROUPS = ("removed", "relabelled", "changed", NEIGHBOURS, OTHERS)
_DISTANCES_AT_ONCE = 2**24  # 128 MB
STARTS = ("scratch", "prediction")


def forked(run: Run, path: str | os.PathLike[str], data: Dataset, start: str) -> Run:
    """Begin the run that `Audit.fork` describes, or go on with it."""
    _check_request(run, path, data, start)
    recipe = run.recipe()
    aside = _held_out_of(run)
    design = follow_design(run.design, run.data.ids, data)
    chosen = None
    if start == "prediction":
        try:
            chosen = run.names.prediction().record
        except ValueError as error:
            raise ValueError(
                f'{error}, or take start="scratch": there are no weights to go on from'
            ) from None
    # weights that go on from the parent's read what its encoding gives
    data = data.fitted(design.pool) if chosen is None else data.with_encoding(run.data.encoding)
    if aside is not None:
        identity.check_held_out(aside, data, design)
        aside = aside.with_encoding(data.encoding)
    asked = replace(run.training, precision=run.manifest["training"]["precision"])
    manifest = {
        **identity.described_training(asked, run.seed, recipe.settings.precision, recipe.device),
        **identity.described_model(recipe.model, data, design, asked),
        **identity.described_data(data, design, aside),
        "fork": _described(run, data, start, chosen),
    }
    made = RunDirectory(path)
    fresh = made.is_empty
    stored = manifest if fresh else identity.read_manifest(made)
    identity.check_same(stored, manifest, str(made.path))
    made.hold(stored)
    if fresh:  # the manifest comes last: what was killed before it begins again
        write_stop(made, run.names.stop)
    if chosen is not None and (fresh or not made.has(start_of(chosen.name))):
        own = replace(recipe, data=data)
        TargetTraining(made, own, design, aside, run.seed).start_from(run.run, chosen)
    manifest = identity.settle(made, manifest, data, design)
    for note in fork_note(manifest):
        warn_user(note)
    device = "auto" if recipe.anywhere else recipe.device
    return Run(made, manifest, recipe.model, data, aside, design, device, settings=asked)


class ForkComparison(pd.DataFrame):
    """Log-LiRA of members before and after decisions, by id, with a summary and a chart.

    It is a DataFrame. What is made of it, such as its rows of one fate, is a plain one. ``attrs``
    has ``checkpoint``, ``eta`` and ``notes``.

    Examples
    --------
    >>> rows = {"fate": ["removed", "kept", "kept"], "near": [False, True, False]}
    >>> values = {"before": [9.0, 1.0, 0.0], "after": [0.0, 5.0, 1.0]}
    >>> found = ForkComparison(pd.DataFrame(rows | values, index=["a", "b", "c"]))
    >>> found.summary[["n", "memorized_before", "memorized_after", "newly_memorized"]]
                n  memorized_before  memorized_after  newly_memorized
    removed     1                 1                0                0
    neighbours  1                 0                1                1
    other kept  1                 0                0                0
    >>> found.sentence.split(":")[0]
    '1 of 2 kept samples that were not memorised (log-LiRA below 4) is newly memorised'
    """

    @property
    def eta(self) -> float:
        """Log-LiRA from which on a sample counts as memorised."""
        return float(self.attrs.get("eta", 4.0))

    @property
    def groups(self) -> pd.Series[str]:
        """Group of each sample: its fate, where kept samples are neighbours or others."""
        kept = np.where(self["near"].to_numpy(dtype=bool), NEIGHBOURS, OTHERS)
        fate = self["fate"].to_numpy(dtype=object)
        return pd.Series(np.where(fate == "kept", kept, fate), self.index, dtype=object).astype(str)

    @property
    def summary(self) -> pd.DataFrame:
        """Counts by group.

        Columns: ``n``, ``memorized_before``, ``memorized_after``, ``newly_memorized`` (only
        after), ``no_longer`` (only before), ``median_before`` and ``median_after`` (log-LiRA).
        """
        groups, rows = self.groups, {}
        before, after = (self[when] >= self.eta for when in ("before", "after"))
        known = self["after"].notna()  # removed samples have none by the fork's own shadow models
        for group in GROUPS:
            of = groups == group
            if of.any():
                rows[group] = {
                    "n": int(of.sum()),
                    "memorized_before": int((of & before).sum()),
                    "memorized_after": int((of & after).sum()),
                    "newly_memorized": int((of & after & ~before).sum()),
                    "no_longer": int((of & before & ~after & known).sum()),
                    "median_before": float(self["before"][of].median()),
                    "median_after": float(self["after"][of].median()),
                }
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def sentence(self) -> str:
        """The count of newly memorised samples in words: read it beside any advice to remove."""
        kept = self.summary.reindex([NEIGHBOURS, OTHERS]).fillna(0)
        newly, no_longer = (int(kept[name].sum()) for name in ("newly_memorized", "no_longer"))
        were = int(kept["memorized_before"].sum())
        safe = int(kept["n"].sum()) - were
        if not safe:
            return "No kept sample was below η before, so none can be newly memorised."
        low, high = clopper_pearson(newly, safe)
        near = int(kept["newly_memorized"].loc[NEIGHBOURS])
        share = f"{100 * newly / safe:.1f} %"
        return (
            f"{newly} of {safe} kept samples that were not memorised (log-LiRA below "
            f"{self.eta:g}) {'is' if newly == 1 else 'are'} newly memorised: {share} "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %), {near} of them among the "
            "neighbours of samples that were removed, relabelled or changed. Of "
            f"{were} kept samples that were memorised, "
            f"{no_longer} no longer are."
        )

    @property
    def chart(self) -> alt.LayerChart:
        """Log-LiRA after against before, by group."""
        return self.figure()

    def figure(self, theme: str = "light") -> alt.LayerChart:
        """Draw log-LiRA after against before in a theme, "light" or "dark"."""
        rows = pd.DataFrame(self).assign(group=self.groups).dropna(subset=["before", "after"])
        return charts.fork_scatter(rows, self.eta, theme)

    def __repr__(self) -> str:
        notes = [f"note: {note}" for note in self.attrs.get("notes", ())]
        return "\n".join([self.sentence, self.summary.round(2).to_string(), *notes])

    def _repr_html_(self) -> str:
        """Return the counts, the sentence and the chart as a page without scripts or ids."""
        drawn = charts.Figures(
            {"before and after": self.chart} if self["after"].notna().any() else {}
        )
        counts = self.summary.to_html(float_format=lambda value: f"{value:.2f}", na_rep="")
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.attrs.get("notes", ()))
        return f"<p>{html.escape(self.sentence)}</p>{counts}{drawn._repr_html_()}<ul>{notes}</ul>"


def compared(
    fork: Run,
    evidence: Evidence,
    checkpoint: str | float,
    variance: str,
    own: pd.Series | None,
    layer: str | int,
    n_neighbors: int,
    eta: float,
) -> ForkComparison:
    """Return fates and log-LiRA before and after, as `Audit.compare_fork` describes.

    `own` is log-LiRA of the fork's members by its own shadow models, if it is to be taken.
    Neighbours are nearest in the representation of the audit that was forked.
    """
    whole_number("n_neighbors", n_neighbors, 1)
    record, eta = evidence.names.record(checkpoint), real_number("eta", eta)
    target = evidence.target_gaps(record).astype(np.float32)
    _, members, gaps, _ = member_gaps(evidence, record.name)
    there = fork.names.record(checkpoint).name
    data, everything = evidence.member_data, np.arange(len(evidence.members))
    read = data.with_encoding(fork.data.encoding)  # its weights read what its own gives
    seen = fork.target().look(there, everything, read)
    now, before = _contents(fork.data), _contents(data)
    fate = [
        "removed"
        if i not in now
        else "changed"
        if now[i][0] != before[i][0]
        else "relabelled"
        if now[i] != before[i]
        else "kept"
        for i in evidence.members.tolist()
    ]
    table = pd.DataFrame({"fate": fate}, pd.Index(evidence.members, name="id"))
    for column, gap in (("before", target), ("after", logit_gap(seen.logits, evidence.labels))):
        table[column] = log_lira(gaps, members, gap, variance)
    if own is None:
        table = table.dropna()
    else:
        table["after"] = own.reindex(table.index)  # which removed samples do not have
        known = table["after"].notna() | (table["fate"] == "removed")
        table = table[table["before"].notna() & known]
    rows, near = pd.Index(evidence.members).get_indexer(table.index), np.empty(0, np.int64)
    is_kept, notes = (table["fate"] == "kept").to_numpy(), []
    try:
        of_members = states(evidence, layer, "prediction")
        near = near_to(of_members, rows[~is_kept], rows[is_kept], n_neighbors)
    except (StoreError, ValueError) as error:
        notes.append(f"neighbours are not known: {error}")
    notes.append(
        "training again also moves samples across η by chance, in both directions: compare newly "
        "memorised with no longer memorised"
    )
    made = ForkComparison(table.assign(near=np.isin(rows, near)))
    made.attrs = {"checkpoint": record.name, "eta": eta, "notes": tuple(notes)}
    return made


def near_to(
    states: NDArray[Any], of: NDArray[np.int64], among: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    """Return the rows of `among` that are one of the `k` nearest of any row of `of`.

    Examples
    --------
    >>> states = np.array([[0.0], [1.0], [1.5], [9.0]])
    >>> near_to(states, np.array([0]), np.array([1, 2, 3]), 2)
    array([1, 2])
    """
    if not len(of) or not len(among):
        return among[:0]
    here = np.asarray(states[of], dtype=np.float64).reshape(len(of), -1)
    best = np.full((len(of), 0), np.inf)
    rows = np.empty((len(of), 0), dtype=np.int64)
    step = max(1, _DISTANCES_AT_ONCE // len(of))
    for start in range(0, len(among), step):  # states may lie on disk
        these = among[start : start + step]
        there = np.asarray(states[these], dtype=np.float64).reshape(len(these), -1)
        squares = (here**2).sum(1)[:, None] + (there**2).sum(1) - 2 * here @ there.T
        best = np.hstack([best, squares])
        rows = np.hstack([rows, np.broadcast_to(these, squares.shape)])
        order = np.argsort(best, axis=1, kind="stable")[:, :k]
        best, rows = (np.take_along_axis(values, order, axis=1) for values in (best, rows))
    return np.unique(rows)


def check_start(run: RunDirectory, manifest: Mapping[str, Any]) -> None:
    """Refuse to train from scratch what is to go on from another run's weights.

    Raises
    ------
    StoreError
        If those weights are gone.
    """
    name = (manifest.get("fork") or {}).get("checkpoint")
    if name is None or run.has(start_of(name)):
        return
    if not (run.path / "checkpoints" / name / "record.json").exists():
        raise StoreError(
            f"{run.path} has lost the weights of {name} that it starts from: call fork once more "
            "on the audit that it came from"
        )


def _check_request(parent: Run, path: str | os.PathLike[str], data: Dataset, start: str) -> None:
    if start not in STARTS:
        raise ValueError(f"unknown start {start!r}; valid: {', '.join(map(repr, STARTS))}")
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a dataset, such as audit.kept(), not {type(data).__name__}")
    parent.refuse_recorded("train again with your Trainer, on audit.kept(), in a new audit")
    if Path(path).expanduser().resolve() == Path(parent.path).resolve():
        raise ValueError(f"{path} is the run that is forked: choose another path for the fork")
    check_outside_runs(Path(path).expanduser().absolute().parent)  # a fork may go on in its own
    if isinstance(data, WithheldDataset):
        raise StoreError(f"the samples are not at hand, only their ids: give {data.hint}")
    if parent.training.label_noise:
        raise ValueError(
            "this run has label noise, which would fall on other samples in a fork: fork a run "
            "without label_noise"
        )
    if data.class_names != parent.data.class_names:
        raise ValueError(
            f"the data have the classes {listed(data.class_names)}; those of the run to fork "
            f"are {listed(parent.data.class_names)}"
        )


def check_family(parent: Run, fork: Run) -> None:
    """Refuse a run that was not forked from this one, or whose samples or model are not at hand."""
    own = identity.run_digest(parent.manifest)
    if (fork.manifest.get("fork") or {}).get("parent") != own:
        raise ValueError(f"{fork.path} is not a fork of {parent.path}: give what fork() made of it")
    fork.recipe()  # its model is asked
    if isinstance(parent.data, WithheldDataset):
        raise StoreError(f"the samples are not at hand, only their ids: give {parent.data.hint}")


def _held_out_of(parent: Run) -> Dataset | None:
    """The held-out dataset where it is one of its own."""
    held_out, digest = parent.held_out, parent.manifest["held_out"]
    if digest is None:
        return None
    if identity.held_out_digest(held_out) != digest:
        raise StoreError(
            "the held-out samples are a dataset of their own, which is not at hand: "
            "Audit.open(path, held_out=…)"
        )
    return held_out


def _described(parent: Run, data: Dataset, start: str, chosen: Record | None) -> dict[str, Any]:
    described = {
        "parent": identity.run_digest(parent.manifest),
        "start": start,
        "checkpoint": None if chosen is None else chosen.name,
        "seen": 0,
    }
    if chosen is None:
        return described
    before = (parent.manifest.get("fork") or {}).get("gone", [])
    now, then = _contents(data), _contents(parent.data.take(parent.design.members))
    gone = {_mark(name, then[name]) for name in then if now.get(name) != then[name]}
    gone = {*gone, *before} - {_mark(*sample) for sample in now.items()}
    return described | {"seen": len(gone)} | ({"gone": sorted(gone)} if gone else {})


def _mark(name: str, content: tuple[str, int]) -> str:
    """What stands for a sample that is gone: neither its id nor its content."""
    return digest([name, *content])


def _contents(data: Dataset) -> dict[str, tuple[str, int]]:
    pairs = zip(data.content_hashes(), data.labels.tolist(), strict=True)
    return dict(zip(data.ids.tolist(), pairs, strict=True))
