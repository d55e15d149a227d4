"""Decisions in a run directory, and the dataset that they leave."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.data import Dataset, MCQDataset, TextDataset, WithheldDataset
from memowidgets.decisions import Decision, DecisionLog, from_csv, to_csv
from memowidgets.store import LockedError, RunDirectory, StoreError
from memowidgets.visible import listed, quoted

if TYPE_CHECKING:
    from memowidgets.training.design import LabelNoise

FILE = "decisions.csv"
_FORK = "compared-fork.json"
_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.05


def log_of(data: Dataset, run: RunDirectory | None = None) -> DecisionLog:
    """Return the decisions on these samples: those of a run directory, or new ones in memory."""
    texts = isinstance(data, MCQDataset | TextDataset | WithheldDataset)
    names = data.class_names
    if run is None:
        return DecisionLog(known=data.ids, texts=texts, class_names=names)
    log = DecisionLog(RunKeeper(run), run.path, data.ids, texts=texts, class_names=names)
    if run.has_file(_FORK):
        with suppress(StoreError):  # then the advice to remove is the general one
            log.of_fork = str(run.read_note(_FORK).get("said", ""))
    return log


def say_of_fork(log: DecisionLog, run: RunDirectory, sentence: str) -> None:
    """Say beside the advice to remove what a fork showed, now and when the run is opened again."""
    log.of_fork = f"In a fork of this audit that was trained: {sentence}"
    with suppress(StoreError, OSError):  # in a folder that can't be written
        run.write_note(_FORK, {"said": log.of_fork})


class RunKeeper:
    """Keeps decisions in ``decisions.csv``: ids, decisions and notes, never a text.

    Parameters
    ----------
    run : RunDirectory
        Where the file is.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._seen: tuple[Any, dict[str, Decision]] = (None, {})

    @property
    def read_only(self) -> bool:
        """Whether nothing can be kept here, as in a recording."""
        return self._run.read_only

    def read(self) -> dict[str, Decision]:
        """All decisions there; the file is read again only if it is another one."""
        state = self._state()
        if state is None or state != self._seen[0]:
            text = self._run.read_text(FILE)
            found = {} if text is None else from_csv(text, str(self._run.path / FILE))
            self._seen = (state, found)
        return dict(self._seen[1])

    def _state(self) -> Any:
        """What differs whenever the file was written: each time it is a new one."""
        try:
            found = (self._run.path / FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def change(self, changes: Mapping[str, Decision]) -> dict[str, Decision]:
        """Write these over what is there by now; the last write of an id wins."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._change(changes)
            except LockedError:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_SECONDS)

    def _change(self, changes: Mapping[str, Decision]) -> dict[str, Decision]:
        with self._run.lock("decisions"):
            table = self.read() | dict(changes)
            table = {name: made for name, made in table.items() if made != Decision()}
            self._run.write_text(FILE, to_csv(table))
        return table


def kept(data: Dataset, log: DecisionLog) -> Dataset:
    """A dataset without the removed samples, with the anonymised texts and the new labels.

    Raises
    ------
    StoreError
        If the samples are not at hand.
    ValueError
        If a sample is to be anonymised and has no edited text, its new class is not one of the
        classes or options, or nothing would be left.
    """
    if isinstance(data, WithheldDataset):
        raise StoreError(f"the samples are not at hand, only their ids: give {data.hint}")
    made = log.table()
    ids = data.ids.tolist()
    if strangers := sorted(set(made) - set(ids)):
        warn_user(f"{FILE} contains ids that are not in the dataset: {listed(strangers, 5)}")
    decided = {name: made[name].decision for name in ids if name in made}
    removed = {name for name, decision in decided.items() if decision == "remove"}
    to_edit = [name for name, decision in decided.items() if decision == "anonymise"]
    if len(removed) == len(ids):
        raise ValueError("every sample is to be removed: there is nothing left to train on")
    edited = _anonymised(_relabelled(data, made), to_edit, log)
    _warn_of_duplicates(data, removed | set(to_edit))
    stays = np.array([name not in removed for name in ids])
    return edited if stays.all() else edited.take(np.flatnonzero(stays))


def true_labels(data: Dataset, noise: LabelNoise) -> Dataset:
    """Data that are trained on under label noise, with the labels from before it.

    Parameters
    ----------
    data : Dataset
        With the noise in its labels.
    noise : LabelNoise
        As drawn over `data` once more: it shifts each label by as much again.
    """
    if not len(noise.positions):
        return data
    labels = data.labels.copy()
    at = noise.positions
    n_classes = getattr(data, "n_choices", np.full(len(data), len(data.class_names)))[at]
    labels[at] = (2 * labels[at] - noise.labels) % n_classes
    return data.with_labels(labels)


def _relabelled(data: Dataset, made: Mapping[str, Decision]) -> Dataset:
    """Return the data with the classes that samples are to be relabelled to."""
    number = {name: i for i, name in enumerate(data.class_names)}
    labels = data.labels.copy()
    n_choices = getattr(data, "n_choices", np.full(len(data), len(number)))  # of each question
    for row, name in enumerate(data.ids.tolist()):
        if name in made and made[name].decision == "relabel":
            label = number.get(made[name].to, len(number))
            if label >= n_choices[row]:
                raise ValueError(
                    f"{quoted(name)} is to be relabelled to {quoted(made[name].to)}, which is not "
                    f"one of its classes: {listed(data.class_names[: n_choices[row]])}"
                )
            labels[row] = label
    return data if np.array_equal(labels, data.labels) else data.with_labels(labels)


def _anonymised(data: Dataset, names: list[str], log: DecisionLog) -> Dataset:
    if not names:
        return data
    if not isinstance(data, MCQDataset | TextDataset):
        raise ValueError(  # noqa: TRY004 - the decision is wrong, not an argument's type
            f"{_some(names)} to be anonymised, but only texts can be: keep or remove"
        )
    edits = log.edits()
    without = [name for name in names if name not in edits]
    if without:
        where = f"{log.edits_file} lacks" if log.edits_file else "set edits_file to the file with"
        raise ValueError(
            f"{_some(without)} to be anonymised and without an edited text: {where} it"
        )
    return data.with_texts({name: (edits[name].text, edits[name].options) for name in names})


def _warn_of_duplicates(data: Dataset, changed: set[str]) -> None:
    """Say which samples still hold, word for word, what was removed or anonymised."""
    if not changed:
        return
    hashes = data.content_hashes()
    twice = {content for content, count in Counter(hashes).items() if count > 1}
    ids: NDArray[np.str_] = data.ids
    gone = {hashes[i] for i, name in enumerate(ids.tolist()) if name in changed} & twice
    left = [str(name) for name, h in zip(ids, hashes, strict=True) if h in gone]
    left = [name for name in left if name not in changed]
    if left:
        warn_user(
            f"{len(left)} duplicates of removed or anonymised samples stay: {listed(left, 5)}; "
            "decide on them too"
        )


def _some(names: list[str]) -> str:
    return (
        f"{len(names)} samples ({listed(names, 5)}) are"
        if len(names) > 1
        else f"{quoted(names[0])} is"
    )
