"""The evidence in arrays that a user gives: no model, no training."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit.decisions import log_of
from memowidgets.audit.source import (
    LOGITS,
    REFERENCES,
    REPRESENTATIONS,
    Cache,
    NotGivenError,
    OneAtATime,
    Scores,
    check_key,
    one_or_several,
)
from memowidgets.audit.sources.catalogue import layer_called
from memowidgets.audit.sources.notes import guard_warnings
from memowidgets.audit.sources.passes import ScoreFiles
from memowidgets.audit.sources.references import GivenReferences, NoReferences
from memowidgets.data import Dataset, MCQDataset, WithheldDataset
from memowidgets.progress import Progress
from memowidgets.stamps import array_digest, digest
from memowidgets.store import RunDirectory
from memowidgets.training.rho import Prediction, Record
from memowidgets.training.shadows import Shadows
from memowidgets.visible import quoted

if TYPE_CHECKING:
    from memowidgets.audit.sources.given import Given

__all__ = ["CHECKPOINT", "SCORES", "ArraysSource"]

CHECKPOINT = "given"
SCORES = f"scores/{CHECKPOINT}"  # in the run directory
_IN_MEMORY = "arrays in memory"
_NO_TRUTH = (
    "log-LiRA is not known: give Audit.from_arrays log_lira=, or shadow_gaps= and "
    "shadow_members= beside logits="
)
_NO_GAPS = (
    "there are no shadow models' gaps: give Audit.from_arrays shadow_gaps= and shadow_members= "
    "beside logits="
)
_CANNOT = {  # what an audit of arrays cannot do, and what else may help
    "train": ("train", ""),
    "record": ("record a training", ""),
    "run_shadows": (
        "train shadow models",
        "; gaps of shadow models of your own go into shadow_gaps= and shadow_members=",
    ),
    "run_references": (
        "train reference models",
        "; gaps of models of your own that never saw a sample go into reference_gaps=",
    ),
    "estimate": ("estimate the cost of training", ""),
    "as_target": ("take a shadow model as its target", ""),
    "fork": ("be forked", ", on the data that kept() gives"),
    "compare_fork": ("be compared with a fork", ""),
}


class ArraysSource:
    """Arrays of n samples, all of which are members.

    There is one checkpoint, ``"given"``, which is ``"prediction"`` and ``"final"`` too.

    Parameters
    ----------
    given : Given
        The arrays, checked.
    run : RunDirectory or None
        Where decisions and scores are kept; in memory alone without one.
    seed : int
        Seed of PSMI's directions.
    """

    asks_model = makes_passes = False
    device = "cpu"

    def __init__(self, given: Given, run: RunDirectory | None, seed: int) -> None:
        self._given, self.run, self.seed = given, run, seed
        self.data = given.data
        self.names = _OneCheckpoint(tuple(given.layers), _record_of(given))
        self.shadows = _GivenShadows(given)
        self.references: GivenReferences | NoReferences = (
            NoReferences(self.cannot("run_references"))
            if given.reference_gaps is None
            else GivenReferences(given.reference_gaps, CHECKPOINT)
        )
        self.decision_log = log_of(given.data, run)
        self.cache, self.alone = Cache(), OneAtATime()
        self._pass = _GivenPass(given, run, self.seed)

    def __repr__(self) -> str:
        given = self._given
        parts = [f"{len(given.data)} samples"]
        parts += [f"{len(given.layers)} layers"] if given.layers else []
        parts += [
            name.replace("_", " ")
            for name in ("logits", "log_lira", "shadow_gaps", "reference_gaps")
            if getattr(given, name) is not None
        ]
        return f"Audit.from_arrays({', '.join(parts)})"

    @property
    def path(self) -> str:
        """The folder; a few words where everything is in memory."""
        return _IN_MEMORY if self.run is None else str(self.run.path)

    @property
    def manifest(self) -> dict[str, Any]:
        """What is known of the run: seed and layers."""
        return {"seed": self.seed, "layers": list(self._given.layers), "training": {}}

    def pass_cost(self) -> tuple[None, None]:
        """Unknown: no forward pass is made."""
        return None, None

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The given arrays by name."""
        given = self._given
        found = {"labels": given.data.labels}
        found |= {f"representations, {name}": values for name, values in given.layers.items()}
        names = (
            "logits",
            "log_lira",
            "shadow_gaps",
            "shadow_members",
            "early_shadow_gaps",
            "reference_gaps",
        )
        others = {name: getattr(given, name) for name in names}
        return found | {name: values for name, values in others.items() if values is not None}

    @property
    def training(self) -> NoReturn:
        """Unknown: nobody said how the model was trained."""
        raise NotGivenError("an audit of arrays does not know how the model was trained")

    @property
    def evidence(self) -> tuple[str, ...]:
        """The kinds that were given; with one checkpoint the baseline is the truth itself."""
        there = {
            REPRESENTATIONS: bool(self._given.layers),
            LOGITS: self._has_logits,
            REFERENCES: len(self.references) > 0,
        }
        return tuple(kind for kind, is_there in there.items() if is_there)

    def cannot(self, work: str) -> str:
        """Why arrays cannot do a kind of work, and what to do instead."""
        if work == "use_shadows":
            return "the shadow models are those whose gaps were given: there is no other"
        if work == "canaries":
            return (
                "nobody said which samples are canaries: give Audit.from_arrays canaries=, a mask "
                f"over the {len(self.data)} samples"
            )
        if work == "trace":
            return (
                "an audit of arrays has one checkpoint, so nothing can be averaged over several; "
                "mw.metrics.csl(losses) takes losses of your own"
            )
        done, more = _CANNOT[work]
        return (
            f"an audit of arrays cannot {done}, because it has no model; make an audit with "
            f"mw.Audit(model, data, path=…){more}"
        )

    # samples

    @property
    def pool_rows(self) -> NDArray[np.int64]:
        """All rows of `data`, (n,)."""
        return np.arange(len(self.data))

    @property
    def member_rows(self) -> NDArray[np.int64]:
        """All rows of `data`, (n,)."""
        return self.pool_rows

    @property
    def members(self) -> NDArray[np.str_]:
        """Ids of the samples, (n,)."""
        return self.data.ids

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label of each sample, (n,)."""
        return self.data.labels

    @property
    def member_data(self) -> Dataset:
        """All samples."""
        return self.data

    def clean_data(self) -> Dataset:
        """All samples, with the labels that were given."""
        return self.data

    # the target

    @property
    def checkpoints(self) -> pd.DataFrame:
        """One row: loss and accuracy follow from the logits; what does not is NaN."""
        record = self.names.only
        row = {
            "epoch": np.nan,
            "step": np.nan,
            "median_loss": record.median_loss,
            "drop": np.nan,
            "train_loss": record.train_loss,
            "train_accuracy": record.train_accuracy,
            "test_loss": np.nan,
            "test_accuracy": np.nan,
            "prediction": True,
            "learned": not self.notes_at(CHECKPOINT),
        }
        return pd.DataFrame([row], pd.Index([CHECKPOINT], name="name"))

    def forward(self, record: Record, progress: Progress | None = None) -> _GivenPass:
        """The arrays; nothing is computed."""
        del record, progress
        return self._pass

    def kept_forward(self, record: Record) -> _GivenPass:
        """The arrays."""
        del record
        return self._pass

    def logits_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Logits as they were given, (n, n_classes)."""
        return self.forward(record, progress).logits()

    def losses_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Loss of each sample, (n,)."""
        return self.forward(record, progress).losses()

    def has_losses(self, record: Record) -> bool:
        """Always True: nothing can be computed."""
        del record
        return True

    def target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        """Logit gap of each sample, (n,)."""
        return self.forward(record).gaps(self.labels)

    def gaps_of(self, record: Record, rows: NDArray[np.int64]) -> None:
        """None: there is no model to ask."""
        del record, rows

    def notes_at(self, checkpoint: str | float) -> tuple[str, ...]:
        """What a reader must know before trusting a score; nothing is known without logits."""
        record = self.names.record(checkpoint)
        notes = guard_warnings(record, _n_options(self._given), np.empty(0, dtype=np.int64))
        return tuple(note.removeprefix(f"at {CHECKPOINT} ") for note in notes)

    # its shadow models

    @property
    def shadow_sets(self) -> dict[str, int]:
        """Number of shadow models whose gaps were given."""
        return {CHECKPOINT: len(self.shadows)} if len(self.shadows) else {}

    @property
    def given_log_lira(self) -> NDArray[np.float64] | None:
        """Log-LiRA as it was given, (n,)."""
        return self._given.log_lira

    @property
    def given_early_gaps(self) -> NDArray[np.float32] | None:
        """Early logit gaps of the shadow models, as they were given, (n_shadows, n)."""
        return self._given.early_shadow_gaps

    @property
    def has_ground_truth(self) -> bool:
        """Whether there is a log-LiRA, or what it is computed from."""
        return self.given_log_lira is not None or (self._has_logits and self.shadows.suffice)

    @property
    def truth_in_words(self) -> str:
        """What log-LiRA is computed from."""
        if self.given_log_lira is not None:
            missing = int(np.isnan(self.given_log_lira).sum())
            return "log-LiRA as given" + (f", {missing} samples have none" if missing else "")
        if self.has_ground_truth:
            return f"log-LiRA from the gaps of {len(self.shadows)} shadow models, variance shrunk"
        return "none"

    def gaps_known(self, checkpoint: str) -> bool:
        """Always True: nothing has to be computed."""
        del checkpoint
        return True

    def forward_state(self, checkpoint: str | float) -> tuple[Hashable, ...]:
        """Always the same: arrays stay as they are."""
        del checkpoint
        return (CHECKPOINT,)

    def gaps_state(self, checkpoint: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """Always the same: arrays stay as they are."""
        del checkpoint
        return self.shadows.key, ()

    @property
    def _has_logits(self) -> bool:
        return self._given.logits is not None


class _GivenPass:
    """The output of the model for the samples, as it was given."""

    exists, why_not = True, None

    def __init__(self, given: Given, run: RunDirectory | None, seed: int) -> None:
        self._given, self._run, self._seed = given, run, seed
        self._held: dict[tuple[str, str], Scores] = {}
        self._digests: dict[str, str] = {}

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
        """Logit gap of each label, (n,)."""
        del labels  # those that came with the logits
        self.logits()
        return self._given.gaps

    def representation(self, layer: str) -> NDArray[np.float32]:
        """Output of a layer, (n, values)."""
        if not self._given.layers:
            raise NotGivenError(
                "this needs the samples' representations: give Audit.from_arrays "
                "representations=, an array of shape (n, values) or {layer: array}"
            )
        return self._given.layers[layer]

    def is_scored(self, metric: str, layer: str) -> bool:
        """Whether `stored` has an answer."""
        if (metric, layer) in self._held:
            return True
        files = self._files(layer)
        return files is not None and files.is_scored(metric, layer)

    def stored(self, metric: str, layer: str) -> Scores | None:
        """The scores by a metric at a layer, if they were computed."""
        kept = self._held.get((metric, layer))
        if kept is not None:
            return _copied(kept)
        files = self._files(layer)
        return None if files is None else files.stored(metric, layer)

    def store(self, metric: str, layer: str, scores: Scores) -> None:
        """Keep the scores by a metric at a layer, in the folder if there is one."""
        self._held[metric, layer] = _copied(scores)
        files = self._files(layer)
        if files is not None:
            files.store(metric, layer, scores)

    def _files(self, layer: str) -> ScoreFiles | None:
        """The files of the scores from a layer: of these very values, labels and seed."""
        if self._run is None:
            return None
        if layer not in self._digests:
            parts = (self._given.layers[layer], self._given.data.labels)
            made_of = [array_digest(np.ascontiguousarray(part)) for part in parts]
            self._digests[layer] = digest([*made_of, self._seed])
        return ScoreFiles(self._run, SCORES, self._digests[layer])


class _GivenShadows:
    """The shadow models whose gaps were given."""

    key = "halves"  # how they were drawn is not known: they are not taken for pairs

    def __init__(self, given: Given) -> None:
        self._given = given

    def __len__(self) -> int:
        return len(self.indices())

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

    def checkpoints(self) -> tuple[str, ...]:
        """The only one."""
        return (CHECKPOINT,) if len(self) else ()

    def lost(self) -> list[str]:
        """Empty: arrays are not lost."""
        return []

    def read(self, checkpoint: str) -> Shadows:
        """Their gaps; the checkpoint is the only one."""
        del checkpoint
        gaps, members = self._given.shadow_gaps, self._given.shadow_members
        if gaps is None or members is None:
            raise NotGivenError(_NO_TRUTH if self._given.log_lira is None else _NO_GAPS)
        return Shadows(members, gaps, np.arange(len(gaps)))


class _OneCheckpoint:
    """The one checkpoint that arrays come from, and their layers."""

    def __init__(self, layers: tuple[str, ...], record: Record) -> None:
        self.layer_names, self.only = layers, record

    def records(self) -> list[Record]:
        """The only one."""
        return [self.only]

    def final(self) -> Record:
        """The only one."""
        return self.only

    def prediction(self) -> Prediction:
        """The only one; how far the loss had dropped is not known."""
        return Prediction(self.only, np.nan, np.nan, reached=True)

    def record(self, checkpoint: str | float) -> Record:
        """The only one, by any of its names."""
        check_key("a checkpoint", checkpoint)
        if checkpoint in ("prediction", "final", CHECKPOINT):
            return self.only
        raise ValueError(
            f"unknown checkpoint {checkpoint!r}: an audit of arrays has one, which is called "
            f"{CHECKPOINT}, prediction and final"
        )

    def some_records(self, checkpoints: str | float | Iterable[str | float]) -> list[Record]:
        """The only one, by any of its names or as "all"."""
        return one_or_several(checkpoints, self.records, self.record)

    def layer(self, layer: str | int) -> str:
        """Name of a layer; empty where there is no representation."""
        if self.layer_names:
            keys_are_numbers = any(name.isdigit() for name in self.layer_names)
            return layer_called(layer, self.layer_names, numbered=keys_are_numbers)
        check_key("a layer", layer)
        if layer in ("last", ""):
            return ""
        raise NotGivenError(
            f"there is no layer {quoted(layer)}: give Audit.from_arrays representations={{layer: "
            "array}}"
        )

    def some_layers(self, layers: str | int | Iterable[str | int]) -> list[str]:
        """Names of one layer, of several, or of "all"."""
        return one_or_several(layers, lambda: self.layer_names, self.layer)


def _copied(scores: Scores) -> Scores:
    """Return scores that share no array with others: what a user changes stays theirs."""
    errors = None if scores.errors is None else scores.errors.copy()
    return Scores(scores.rows.copy(), scores.mu.copy(), errors, scores.notes)


def _record_of(given: Given) -> Record:
    """What the logits say of the model; NaN without them."""
    loss = median = accuracy = float("nan")
    if given.logits is not None:
        losses = given.losses
        loss, median = float(losses.mean()), float(np.median(losses))
        accuracy = float((given.logits.argmax(axis=1) == given.data.labels).mean())
    return Record(CHECKPOINT, float("nan"), 1, median, loss, accuracy, None, None)


def _n_options(given: Given) -> int:
    """Number of answers that the model chooses from: classes, or a question's own options."""
    if isinstance(given.data, MCQDataset):
        return int(np.median(given.data.n_choices))
    if given.logits is not None and isinstance(given.data, WithheldDataset):
        return int(np.median(np.isfinite(given.logits).sum(axis=1)))  # −inf: no such option
    return len(given.data.class_names)
