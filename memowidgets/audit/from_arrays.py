"""An audit of anyone's own arrays: no model, no training, nothing on disk but decisions."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets.audit import scoring
from memowidgets.audit.audit import Audit
from memowidgets.audit.catalogue import Catalogue
from memowidgets.audit.decisions import RunKeeper, kept
from memowidgets.audit.guard import guard_warnings
from memowidgets.audit.summary import facts_html
from memowidgets.data import Dataset, MCQDataset
from memowidgets.decisions import DecisionLog
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.design import Design
from memowidgets.training.rho import Prediction, Record
from memowidgets.training.shadows import Shadows, ShadowSet
from memowidgets.visible import listed, quoted

if TYPE_CHECKING:
    import os

    from memowidgets.audit.given import Given
    from memowidgets.progress import Progress
    from memowidgets.training.config import Settings

__all__ = ["ArraysAudit", "NotGivenError"]

CHECKPOINT = "given"
_MARK = "arrays.json"
_IN_MEMORY = "arrays in memory"
_NEEDS = {
    "psmi": "representations",
    "mahalanobis": "representations",
    "loss": "logits",
    "logit_gap": "logits",
}
_NO_TRUTH = (
    "log-LiRA is not known: give Audit.from_arrays log_lira=, or shadow_gaps= and "
    "shadow_members= beside logits="
)


class NotGivenError(StoreError, ValueError):
    """Something that an audit of arrays was not given; the message names what to pass."""


class ArraysAudit(Audit):
    """An audit of arrays; made by `Audit.from_arrays`.

    All samples are members. There is one checkpoint, ``"given"``, which is ``"prediction"`` and
    ``"final"`` too. Scores are kept in memory.
    """

    def __init__(self, given: Given, path: str | os.PathLike[str] | None, seed: int) -> None:
        if isinstance(seed, bool) or seed != int(seed) or seed < 0:
            raise ValueError(f"seed must be a whole number from 0, not {seed!r}")
        everything = np.arange(len(given.data))
        nothing = np.empty(0, dtype=np.int64)
        self._given, self._run = given, _Memory()
        self._manifest = {"seed": int(seed), "layers": list(given.layers), "training": {}}
        self._model, self._data, self._device = None, given.data, "cpu"
        self._design = Design(everything, everything, nothing, everything, all_members=False)
        self._held_out = given.data.take(nothing)
        self._record = _record_of(given)
        self._catalogue = _OneCheckpoint(self._run, self._manifest, self._record)
        self._shadows = self._gaps = _GivenShadows(self._run, given)
        self._place = path
        self._decision_log = _decisions_at(path, given.data)
        self._lock = threading.RLock()
        self._log_lira = {}

    def __repr__(self) -> str:
        given = self._given
        parts = [f"{len(given.data)} samples"]
        parts += [f"{len(given.layers)} layers"] if given.layers else []
        parts += [
            name.replace("_", " ")
            for name in ("logits", "log_lira", "shadow_gaps")
            if getattr(given, name) is not None
        ]
        return f"Audit.from_arrays({', '.join(parts)})"

    def _repr_html_(self) -> str:
        facts = [
            ("samples", f"{len(self._data)}, all of them members"),
            ("classes", str(len(self._data.class_names))),
            ("layers", listed(self.layers) or "no representations"),
            ("scores", ", ".join(self.metrics)),
            ("ground truth", self.truth_in_words),
            *[("warning", note) for note in self.warnings_at(CHECKPOINT)],
        ]
        return facts_html(f"Audit of {self.path}", facts)

    # What is there

    @property
    def path(self) -> str:
        """Where decisions are kept; a few words where they are in memory alone."""
        return _IN_MEMORY if self._place is None else str(Path(self._place).expanduser().absolute())

    @property
    def training(self) -> Settings:
        """Refuse: nobody said how the model was trained."""
        raise NotGivenError("an audit of arrays does not know how the model was trained")

    @property
    def member_data(self) -> Dataset:
        """All samples."""
        return self._data

    @property
    def checkpoints(self) -> pd.DataFrame:
        """One row, with the loss and accuracy that follow from the logits; NaN for what does not.

        Returns
        -------
        DataFrame
            The columns of `Audit.checkpoints`.
        """
        row = {
            "epoch": np.nan,
            "step": np.nan,
            "median_loss": self._record.median_loss,
            "drop": np.nan,
            "train_loss": self._record.train_loss,
            "train_accuracy": self._record.train_accuracy,
            "test_loss": np.nan,
            "test_accuracy": np.nan,
            "prediction": True,
            "learned": not self._guard(self._record),
        }
        return pd.DataFrame([row], pd.Index([CHECKPOINT], name="name"))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores that follow from what was given."""
        given = {"representations": bool(self._given.layers), "logits": self._has_logits}
        return tuple(name for name in scoring.METRICS if given[_NEEDS[name]])

    @property
    def has_ground_truth(self) -> bool:
        """Whether there is a log-LiRA, or what it is computed from."""
        return self._given.log_lira is not None or (self._has_logits and self._gaps.suffice)

    def is_computed(
        self, metric: str, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> bool:
        """Whether `score` answers at once."""
        record, name = self._catalogue.record(checkpoint), self._catalogue.layer(layer)
        made = self._pass(record, None)
        return metric not in scoring.PER_LAYER or made.stored(metric, name) is not None

    def representation(
        self, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> NDArray[np.float32]:
        """A layer's output for each sample, (n, values)."""
        record = self._catalogue.record(checkpoint)
        return self._pass(record, None).representation(self._catalogue.layer(layer))

    def warnings_at(self, checkpoint: str | float) -> tuple[str, ...]:
        """What must be known before a score is trusted; nothing is known without logits."""
        return self._guard(self._catalogue.record(checkpoint))

    def compare(
        self,
        metrics: Iterable[str] | None = None,
        layers: str | Iterable[str | int] = "last",
        checkpoints: str | Iterable[str | float] = "prediction",
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
    ) -> pd.DataFrame:
        """As `Audit.compare`; by default all scores that follow from what was given."""
        chosen = self.metrics if metrics is None else metrics
        return super().compare(chosen, layers, checkpoints, eta, truth)

    def kept(self) -> Dataset:
        """The samples to train on after the decisions, as `Audit.kept`."""
        self._decision_log.refresh()
        return kept(self._data, self._decision_log)

    # What only a run has

    def train(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is no model."""
        raise NotGivenError(_no_run("trained"))

    def recorder(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is no model."""
        raise NotGivenError(_no_run("recorded"))

    def run_shadows(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is no model."""
        raise NotGivenError(
            f"{_no_run('trained')}; gaps of shadow models of your own go into shadow_gaps= and "
            "shadow_members="
        )

    @property
    def shadow_sets(self) -> dict[str, int]:
        """The shadow models whose gaps were given."""
        return {CHECKPOINT: len(self._shadows)} if len(self._shadows) else {}

    def use_shadows(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is one set at most."""
        raise NotGivenError("the shadow models are those whose gaps were given: there is no other")

    def as_target(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: of shadow models there are gaps alone."""
        raise NotGivenError(_no_run("made a target of"))

    def fork(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is no model."""
        raise NotGivenError(f"{_no_run('forked')}, on the data that kept() gives")

    def compare_fork(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: there is no model."""
        raise NotGivenError(_no_run("forked"))

    # Inside

    @property
    def _has_logits(self) -> bool:
        return self._given.logits is not None

    def _pass(self, record: Record, progress: Progress | None) -> scoring.Pass:
        del progress  # nothing is computed
        return _GivenPass(self._run, record.name, self._given)

    def _computed_log_lira(
        self, record: Record, variance: str, mode: str, return_std: bool
    ) -> pd.DataFrame:
        values = self._given.log_lira
        if values is None:
            return super()._computed_log_lira(record, variance, mode, return_std)
        if (variance, mode, return_std) == ("shrunk", "online", False):
            index = pd.Index(self.members, name="id")
            return pd.DataFrame({"log_lira": values}, index).dropna()
        if self._given.shadow_gaps is None:
            raise NotGivenError(
                "log_lira was given as it is: standard errors, other variances and modes need "
                "shadow_gaps= and shadow_members= beside logits="
            )
        return super()._computed_log_lira(record, variance, mode, return_std)

    def _share_by_chance(self, eta: float) -> float | None:
        return None if self._given.log_lira is not None else super()._share_by_chance(eta)

    def _truth(self, truth: str | ArrayLike, eta: float) -> pd.Series:
        if isinstance(truth, str) and truth == "canaries" and self._data.canaries is None:
            raise NotGivenError(
                "nobody said which samples are canaries: give Audit.from_arrays canaries=, a mask "
                f"over the {len(self._data)} samples"
            )
        return super()._truth(truth, eta)

    def _guard(self, record: Record) -> tuple[str, ...]:
        notes = guard_warnings(record, _n_options(self._data), self._held_out.labels)
        return tuple(note.removeprefix(f"at {CHECKPOINT} ") for note in notes)

    def _noise_note(self) -> tuple[str, ...]:
        return ()

    @property
    def truth_in_words(self) -> str:
        """Where log-LiRA is from."""
        if self._given.log_lira is not None:
            missing = int(np.isnan(self._given.log_lira).sum())
            return "log-LiRA as given" + (f", {missing} samples have none" if missing else "")
        if self.has_ground_truth:
            return f"log-LiRA from the gaps of {len(self._shadows)} shadow models, variance shrunk"
        return "none"


class _GivenPass(scoring.Pass):
    """What the model said of the samples, as it was given."""

    def __init__(self, run: RunDirectory, checkpoint: str, given: Given) -> None:
        super().__init__(run, checkpoint)
        self._given = given

    @property
    def exists(self) -> bool:
        """It does."""
        return True

    def logits(self) -> NDArray[np.float32]:
        """Logits of shape (n, n_classes)."""
        if self._given.logits is None:
            raise NotGivenError("this needs the model's logits: give Audit.from_arrays logits=")
        return self._given.logits

    def losses(self) -> NDArray[np.float32]:
        """Cross-entropy of each label over the columns of the logits, (n,)."""
        self.logits()  # or the error that asks for them
        return self._given.losses

    def gaps(self, labels: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The logit gap of each label, (n,)."""
        del labels  # those that came with the logits
        self.logits()
        return self._given.gaps

    def representation(self, layer: str) -> NDArray[np.float32]:
        """A layer's output, (n, values)."""
        if not self._given.layers:
            raise NotGivenError(
                "this needs the samples' representations: give Audit.from_arrays "
                "representations=, an array of shape (n, values) or {layer: array}"
            )
        return self._given.layers[layer]


class _GivenShadows(ShadowSet):
    """The shadow models whose gaps were given."""

    def __init__(self, run: RunDirectory, given: Given) -> None:
        super().__init__(run)
        self._given = given

    def state(self) -> tuple[tuple[int, ...], ...]:
        """Empty: what was given stays as it is."""
        return ()

    @property
    def suffice(self) -> bool:
        """Whether some sample is in two shadow models and out of two others."""
        members = self._given.shadow_members
        if members is None:
            return False
        inside = members.sum(axis=0)
        return bool(((inside >= 2) & (len(members) - inside >= 2)).any())

    def indices(self) -> list[int]:
        """All of them."""
        gaps = self._given.shadow_gaps
        return [] if gaps is None else list(range(len(gaps)))

    def lost(self) -> list[str]:
        """None of them."""
        return []

    def checkpoints(self) -> tuple[str, ...]:
        """The only one."""
        return (CHECKPOINT,) if len(self) else ()

    def file(self, index: int) -> NoReturn:
        """Refuse: there are gaps alone."""
        raise NotGivenError(f"of shadow model {index} there are gaps alone")

    def read(self, checkpoint: str) -> Shadows:
        """Their gaps; the checkpoint is the only one."""
        del checkpoint
        gaps, members = self._given.shadow_gaps, self._given.shadow_members
        if gaps is None or members is None:
            raise NotGivenError(
                "there are no shadow models' gaps: give Audit.from_arrays shadow_gaps= and "
                "shadow_members= beside logits="
                if self._given.log_lira is not None
                else _NO_TRUTH
            )
        return Shadows(members, gaps, np.arange(len(gaps)))


class _OneCheckpoint(Catalogue):
    """The one checkpoint that arrays come from."""

    def __init__(self, run: RunDirectory, manifest: Mapping[str, Any], record: Record) -> None:
        super().__init__(run, manifest, 1)
        self._record = record

    def records(self) -> list[Record]:
        """The only one."""
        return [self._record]

    def final(self) -> Record:
        """The only one."""
        return self._record

    def prediction(self) -> Prediction:
        """The only one; how far the loss had dropped is not known."""
        return Prediction(self._record, np.nan, np.nan, reached=True)

    def record(self, checkpoint: str | float) -> Record:
        """The only one, by any of its names."""
        if checkpoint in ("prediction", "final", CHECKPOINT):
            return self._record
        raise ValueError(
            f"unknown checkpoint {checkpoint!r}: an audit of arrays has one, which is called "
            f"{CHECKPOINT}, prediction and final"
        )

    def some_records(self, checkpoints: str | float | Iterable[str | float]) -> list[Record]:
        """The only one."""
        if isinstance(checkpoints, str) and checkpoints == "all":
            return [self._record]
        return super().some_records(checkpoints)

    def layer(self, layer: str | int) -> str:
        """The name behind a number or a name; empty where there is no representation."""
        if self.layer_names:
            return super().layer(layer)
        if layer in ("last", ""):
            return ""
        raise NotGivenError(
            f"there is no layer {quoted(layer)}: give Audit.from_arrays representations={{layer: "
            "array}}"
        )


class _Memory(RunDirectory):
    """A run directory that is none: scores are kept in memory."""

    def __init__(self) -> None:
        self._begin(Path(_IN_MEMORY), self)
        self.read_only = True
        self._held: dict[str, _Held] = {}

    def has(self, name: str, of: str | None = None) -> bool:
        """Whether the tensors of that name were kept."""
        del of
        return name in self._held

    def why_not(self, name: str, of: str | None = None, arrays: Iterable[str] = ()) -> None:
        """Nothing: what was kept can be used."""
        del name, of, arrays

    def state(self, name: str) -> tuple[int, ...]:
        """Empty: what was kept does not change."""
        del name
        return ()

    def write_tensors(
        self,
        name: str,
        tensors: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
        of: str = "",
    ) -> None:
        """Keep arrays."""
        del of
        self._held[name] = _Held(tensors, metadata or {})

    def read_tensors(self, name: str, of: str | None = None) -> Tensors:
        """Arrays that were kept."""
        del of
        if name not in self._held:
            raise StoreError(f"{name} was not computed")
        return self._held[name]


class _Held(Tensors):
    """Arrays in memory."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
        self._arrays, self.metadata, self.stamp = dict(tensors), dict(metadata), None

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays


def _record_of(given: Given) -> Record:
    """What the logits say of the model; NaN without them."""
    loss = median = accuracy = float("nan")
    if given.logits is not None:
        losses = given.losses
        loss, median = float(losses.mean()), float(np.median(losses))
        accuracy = float((given.logits.argmax(axis=1) == given.data.labels).mean())
    return Record(CHECKPOINT, float("nan"), 1, median, loss, accuracy, None, None)


def _n_options(data: Dataset) -> int:
    """Between how many answers the model chooses: classes, or a question's own options."""
    if isinstance(data, MCQDataset):
        return int(np.median(data.n_choices))
    return len(data.class_names)


def _decisions_at(path: str | os.PathLike[str] | None, data: Dataset) -> DecisionLog:
    """Decisions on these very samples, in a folder of their own; in memory alone without one.

    Raises
    ------
    ValueError
        If the folder holds a run, or decisions on other samples.
    """
    if path is None:
        return DecisionLog(known=data.ids)
    run = RunDirectory(path)
    if (run.path / "manifest.json").exists():
        raise ValueError(
            f"{run.path} holds a run: choose another folder for the decisions on your arrays"
        )
    content = json.dumps([data.ids.tolist(), data.labels.tolist()]).encode()
    mark = {"samples": len(data), "digest": hashlib.sha256(content).hexdigest()[:16]}
    if not (run.path / _MARK).exists():
        run.write_json(_MARK, mark)
    elif run.read_json(_MARK) != mark:
        raise ValueError(
            f"{run.path} holds decisions on other samples (ids or labels differ): choose another "
            "folder"
        )
    return DecisionLog(RunKeeper(run), run.path, data.ids)


def _no_run(what: str) -> str:
    return (
        f"arrays can't be {what}: they have no model; make an audit with "
        "mw.Audit(model, data, path=…)"
    )
