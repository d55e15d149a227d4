"""The evidence about a shadow model that takes the target's place: leave one out."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit.decisions import FILE, log_of
from memowidgets.audit.source import (
    REFERENCES,
    TRACE,
    Cache,
    NotGivenError,
    OneAtATime,
    Scores,
    Source,
)
from memowidgets.audit.sources.catalogue import Catalogue
from memowidgets.audit.sources.passes import ScoreFiles, read_scores, warn_of
from memowidgets.audit.sources.references import NoReferences
from memowidgets.audit.sources.run import RunSource
from memowidgets.audit.sources.shadow_sets import keys_with_forward
from memowidgets.data import Dataset
from memowidgets.metrics import logit_gap
from memowidgets.progress import Progress
from memowidgets.stamps import KEY, array_digest, digest
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.config import Settings
from memowidgets.training.rho import Record
from memowidgets.training.shadows import LOSS, Shadows

__all__ = ["ShadowSource", "kept_shadow_source", "shadow_source"]

_CLOSE = 1e-2  # logit gaps of one model in batches of other sizes, in nats
_CANNOT = {
    "train": "is trained already; call this on the audit itself",
    "record": "is trained already; call this on the audit itself",
    "run_shadows": "shares the audit's shadow models: call this on the audit itself",
    "run_references": (
        "has no reference models, because those of the audit trained on samples that it trains "
        "on: call this on the audit itself"
    ),
    "estimate": "is trained already; call this on the audit itself",
    "use_shadows": (
        "is judged by the others of its set: call this on the audit itself, and as_target again"
    ),
    "trace": (
        "kept no losses at each checkpoint: run_shadows(…, keep_forward=True) of a new run keeps "
        "them"
    ),
    "fork": "can't be forked; call this on the audit itself",
    "compare_fork": "can't be forked; call this on the audit itself",
}


def shadow_source(source: Source, index: int) -> ShadowSource:
    """Return the evidence with another shadow model as the target.

    Raises
    ------
    NotGivenError
        If the source has no shadow models to choose from.
    StoreError
        If there is no such shadow model.
    """
    first = source.first if isinstance(source, ShadowSource) else source
    if not isinstance(first, RunSource):
        raise NotGivenError(first.cannot("as_target"))
    first.shadows.check(index)
    return ShadowSource(first, index)


def kept_shadow_source(source: Source, index: int) -> ShadowSource:
    """Return what `shadow_source` does, the same object while the shadow models' files stay.

    It keeps what was computed from it, so whoever asks one shadow model after another, at several
    η or for several scores, computes each log-LiRA once.
    """
    first = source.first if isinstance(source, ShadowSource) else source
    final = first.names.final()
    state = first.gaps_state("" if final is None else final.name)
    return first.cache.of(("target", index), state, lambda: shadow_source(first, index))


class ShadowSource:
    """A shadow model of a run as the target; the run's target is one of its shadow models.

    Scores are at the run's prediction checkpoint, where the shadow model kept its forward pass.
    Checkpoints and the ρ rule are the run's.

    Parameters
    ----------
    first : RunSource
        The run.
    index : int
        Number of the shadow model.
    """

    given_log_lira: NDArray[np.float64] | None = None
    given_early_gaps: NDArray[np.float32] | None = None
    asks_model = makes_passes = False

    def __init__(self, first: RunSource, index: int) -> None:
        self.first, self.index, self._set = first, index, first.shadows
        self._members = np.array(self._file["members"])
        self.shadows = _Others(first, index)
        self.references = NoReferences(self.cannot("run_references"))
        folder = first.run.place(f"targets/{self._set.key}/{index:04d}")
        self.run = RunDirectory(folder, read_only=first.run.read_only, part_of=first.run)
        self._take_over_decisions(first.run.place(_before(index)) / FILE)
        self.decision_log = log_of(self.data, self.run)
        self.cache, self.alone = Cache(), OneAtATime()

    def pass_cost(self) -> tuple[None, None]:
        """Unknown: no forward pass is made."""
        return None, None

    def __repr__(self) -> str:
        return f"ShadowAudit(shadow {self.index} as the target of {self.first!r})"

    @property
    def path(self) -> str:
        """Folder of this target, inside the run directory."""
        return str(self.run.path)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The run's."""
        return self.first.manifest

    @property
    def seed(self) -> int:
        """The run's."""
        return self.first.seed

    @property
    def training(self) -> Settings:
        """The run's, which all its shadow models share."""
        return self.first.training

    @property
    def evidence(self) -> tuple[str, ...]:
        """As the run's, as far as this shadow model has it.

        It may have kept no losses at each checkpoint. The run's reference models may have trained
        on its members.
        """
        traced = any(name.startswith(LOSS) for name in self._file)
        gone = {REFERENCES} if traced else {REFERENCES, TRACE}
        return tuple(kind for kind in self.first.evidence if kind not in gone)

    @property
    def device(self) -> str:
        """The run's."""
        return self.first.device

    def cannot(self, work: str) -> str:
        """Why a shadow model cannot do a kind of work, and what to do instead."""
        if work not in _CANNOT:
            return self.first.cannot(work)
        return f"shadow {self.index} {_CANNOT[work]}"

    # samples

    @property
    def data(self) -> Dataset:
        """The run's."""
        return self.first.data

    def clean_data(self) -> Dataset:
        """The run's."""
        return self.first.clean_data()

    @property
    def pool_rows(self) -> NDArray[np.int64]:
        """The run's."""
        return self.first.pool_rows

    @property
    def member_rows(self) -> NDArray[np.int64]:
        """Rows of `data` that the shadow model trained on, (n_members,)."""
        rows: NDArray[np.int64] = self.pool_rows[self._members]
        return rows

    @property
    def members(self) -> NDArray[np.str_]:
        """Ids of the members, (n_members,)."""
        return self.data.ids[self.member_rows]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label that each member was trained on, (n_members,)."""
        return self.data.labels[self.member_rows]

    @property
    def member_data(self) -> Dataset:
        """The members as a dataset."""
        return self.data.take(self.member_rows)

    # the target

    @property
    def names(self) -> Catalogue:
        """The run's."""
        return self.first.names

    @property
    def checkpoints(self) -> pd.DataFrame:
        """The run's."""
        return self.first.checkpoints

    def forward(self, record: Record, progress: Progress | None = None) -> _KeptPass:
        """The forward pass that the shadow model kept; nothing is computed.

        Raises
        ------
        StoreError
            If it kept none at this checkpoint.
        """
        del progress
        made = self.kept_forward(record)
        if not made.exists:
            kept = self._file.metadata.get("forward")
            raise StoreError(
                f"shadow {self.index} kept "
                + (f"its forward pass at {kept}, not" if kept else "no forward pass")
                + f" at {record.name}: run_shadows(…, keep_forward=True) keeps it at the "
                "prediction checkpoint"
            )
        return made

    def kept_forward(self, record: Record) -> _KeptPass:
        """The forward pass that the shadow model kept; check that it `exists`."""
        run, checkpoint = self.first.run, record.name
        belongs = run.read_only and self._alone_keeps(checkpoint)
        before = run if belongs else None
        return _KeptPass(self.run, checkpoint, self._file, before, self.index)

    def logits_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Logits of the members, from the forward pass that the shadow model kept."""
        return self.forward(record, progress).logits()

    def losses_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Training loss of each member at a checkpoint, (n_members,), as it was kept."""
        del progress
        if f"{LOSS}{record.name}" in self._file:
            return np.array(self._file[f"{LOSS}{record.name}"])
        made = self.kept_forward(record)
        if not made.exists:
            raise StoreError(
                f"shadow {self.index} kept no losses at {record.name}: a new run's "
                "run_shadows(…, keep_forward=True) keeps them up to the prediction checkpoint"
            )
        return made.losses()

    def has_losses(self, record: Record) -> bool:
        """Whether they were kept."""
        return f"{LOSS}{record.name}" in self._file or self.kept_forward(record).exists

    def target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        """The shadow model's logit gap of each member, (n_members,)."""
        own: NDArray[np.float32] = self._gaps(record)[np.array(self._file["members"])]
        return own

    def gaps_of(self, record: Record, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The shadow model's logit gap of any rows of the pool."""
        return self._gaps(record)[np.searchsorted(self.pool_rows, rows)]

    def notes_at(self, checkpoint: str | float) -> tuple[str, ...]:
        """As the run's."""
        return self.first.notes_at(checkpoint)

    # its shadow models

    @property
    def shadow_sets(self) -> dict[str, int]:
        """As the run's: this shadow model is one of them."""
        return self.first.shadow_sets

    @property
    def has_ground_truth(self) -> bool:
        """As the run."""
        return self.first.has_ground_truth

    @property
    def truth_in_words(self) -> str:
        """What log-LiRA is computed from."""
        return f"log-LiRA from {len(self.shadows)} shadow models, variance shrunk"

    def gaps_known(self, checkpoint: str) -> bool:
        """Whether the logit gaps of all shadow models, the run's target included, are on disk."""
        return not self.first.asks_model or self.shadows.kept_first(checkpoint) is not None

    def forward_state(self, checkpoint: str | float) -> tuple[Hashable, ...]:
        """A value that changes when the shadow model's forward pass does."""
        return self.names.record(checkpoint).name, self._set.state_of(self.index)

    def gaps_state(self, checkpoint: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """A value that changes when log-LiRA at a checkpoint may."""
        run, own = self.first.run, self.run.state(f"forward/{checkpoint}")
        first = (run.state(f"forward/{checkpoint}"), run.state(_first_gaps(checkpoint)))
        return self.shadows.key, (*self._set.state(), own, *first)

    # inside

    @property
    def _file(self) -> Tensors:
        """The shadow model's file as it is now: the model may have been trained again."""
        return self._set.file(self.index)

    def _gaps(self, record: Record) -> NDArray[np.float32]:
        return np.array(self._file[f"gap.{record.name}"])

    def _alone_keeps(self, checkpoint: str) -> bool:
        """Whether no other set has a shadow model of this index with that forward pass."""
        return keys_with_forward(self.first.run, self.index, checkpoint) == [self._set.key]

    def _take_over_decisions(self, before: Path) -> None:
        """Move decisions here that lie where sets of shadow models were not told apart."""
        here = self.run.path / FILE
        if self.run.read_only or here.exists() or not before.exists():
            return
        if list(self.shadow_sets) == [self._set.key]:
            with self.run.explained(here):
                before.replace(here)
            return
        warnings.warn(
            f"{before} does not say to which set of shadow models its decisions belong, so they "
            f"are not used. Move it to {here.parent} if they are on shadow {self.index} of "
            f"{self._set.key!r}, or delete it.",
            UserWarning,
            stacklevel=5,
        )


class _KeptPass:
    """The forward pass in a shadow model's file."""

    def __init__(
        self,
        run: RunDirectory,
        checkpoint: str,
        file: Tensors,
        before: RunDirectory | None,
        index: int,
    ) -> None:
        self.checkpoint, self._file = checkpoint, file
        self._before, self._index = before, index
        model = _fingerprint(file)
        self._scores = ScoreFiles(run, f"scores/{model}/{checkpoint}", model)

    @property
    def exists(self) -> bool:
        """Whether the shadow model kept it at this checkpoint."""
        return self._file.metadata.get("forward") == self.checkpoint

    @property
    def why_not(self) -> str | None:
        """Always None: a file that cannot be used is refused where it is opened."""
        return None

    def is_scored(self, metric: str, layer: str) -> bool:
        """Whether `stored` has an answer."""
        return self._scores.is_scored(metric, layer) or self._has_before(metric, layer)

    def stored(self, metric: str, layer: str) -> Scores | None:
        """Read the scores of this very model.

        Older recordings have them in a folder that all sets of shadow models shared. Those belong
        to the one set that keeps a forward pass.
        """
        found = self._scores.stored(metric, layer)
        if found is None and self._before is not None and self._has_before(metric, layer):
            return read_scores(self._before.read_tensors(self._place_before(metric, layer)))
        return found

    def store(self, metric: str, layer: str, scores: Scores) -> None:
        """Keep the scores of this very model."""
        self._scores.store(metric, layer, scores)

    def logits(self) -> NDArray[np.float32]:
        """Logits of shape (n_members, n_classes)."""
        self._refuse_recording()
        return np.array(self._file["forward.logits"])

    def losses(self) -> NDArray[np.float32]:
        """Training loss of each member, (n_members,)."""
        return np.array(self._file["forward.losses"])

    def gaps(self, labels: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """Logit gap of each member, (n_members,); in a recording, the one that LiRA takes."""
        if "forward.logits" in self._file:
            return logit_gap(self.logits(), labels)
        every: NDArray[np.float32] = np.array(self._file[f"gap.{self.checkpoint}"])
        own: NDArray[np.float32] = every[np.array(self._file["members"])]
        return own

    def representation(self, layer: str) -> NDArray[np.float32]:
        """Output of a layer, memory-mapped, (n_members, values)."""
        self._refuse_recording()
        name = f"forward.layer.{layer}"
        if name not in self._file:
            raise StoreError(
                f"the shadow model did not keep layer {layer}: run_shadows(…, "
                f"keep_forward=[{layer!r}]) keeps it"
            )
        found: NDArray[np.float32] = self._file[name]
        return found

    def _refuse_recording(self) -> None:
        if "forward.logits" not in self._file:
            raise StoreError("this recording keeps logit gaps and losses of shadow models only")

    def _has_before(self, metric: str, layer: str) -> bool:
        return self._before is not None and self._before.has(self._place_before(metric, layer))

    def _place_before(self, metric: str, layer: str) -> str:
        return f"{_before(self._index)}/scores/{self.checkpoint}/{layer}/{metric}"


class _Others:
    """All shadow models of a set but one, and the run's target."""

    def __init__(self, first: RunSource, left_out: int) -> None:
        self._first, self._set, self._left_out = first, first.shadows, left_out

    @property
    def key(self) -> str:
        """Name of the set."""
        return self._set.key

    def __len__(self) -> int:
        return len(self._set) - 1 + self._knows_first

    def indices(self) -> list[int]:
        """Numbers of all shadow models of the set."""
        return self._set.indices()

    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints at which every shadow model has logit gaps."""
        return self._set.checkpoints()

    def lost(self) -> list[str]:
        """One sentence for each shadow model that cannot be used any more."""
        return self._set.lost()

    def read(self, checkpoint: str) -> Shadows:
        """The others' gaps at a checkpoint, the run's target last where its gaps can be had."""
        others = self._set.read(checkpoint).without(self._left_out)
        gaps = self._first_targets(checkpoint)
        if gaps is None:
            return others
        pool, members = self._first.pool_rows, self._first.member_rows
        return Shadows(
            np.vstack([others.members, np.isin(pool, members)]),
            np.vstack([others.gaps, gaps]),
            np.append(others.indices, -1),
        )

    def kept_first(self, checkpoint: str) -> NDArray[np.float32] | None:
        """The run's target's gaps over the pool, if those on disk are of the model it is now."""
        run, name = self._first.run, _first_gaps(checkpoint)
        if not (run.has(name) and run.has(f"forward/{checkpoint}")):
            return None
        if run.why_not(name, arrays=("gap",)) is not None:
            return None
        file = run.read_tensors(name)
        gaps, own = np.array(file["gap"]), self._own_of_first(checkpoint)
        noted = file.metadata.get("target")
        if noted is None:  # from before it was noted
            here = gaps[np.searchsorted(self._first.pool_rows, self._first.member_rows)]
            return gaps if np.allclose(here, own, rtol=0, atol=_CLOSE) else None
        return gaps if noted == array_digest(own) else None

    @property
    def _knows_first(self) -> bool:
        """Whether the run's target is among those that `read` gives at the end of training."""
        if self._first.asks_model:
            return True
        final = self._first.names.final()
        return final is not None and self.kept_first(final.name) is not None

    def _first_targets(self, checkpoint: str) -> NDArray[np.float32] | None:
        """The run's target's gaps over the pool; None without its model or data."""
        kept = self.kept_first(checkpoint)
        if kept is not None:
            return kept
        run, name = self._first.run, _first_gaps(checkpoint)
        warn_of(run.why_not(name, arrays=("gap",)))
        record = self._first.names.record(checkpoint)
        gaps = self._first.gaps_of(record, self._first.pool_rows)
        if gaps is None:
            return None
        noted = {"target": array_digest(self._own_of_first(checkpoint))}
        run.write_tensors(name, {"gap": gaps}, noted)
        return gaps

    def _own_of_first(self, checkpoint: str) -> NDArray[np.float32]:
        """The run's target's gaps of its own members, from its forward pass."""
        record = self._first.names.record(checkpoint)
        return self._first.target_gaps(record).astype(np.float32)


def _before(index: int) -> str:
    """Where a shadow target's files were when all sets of shadow models shared a folder."""
    return f"targets/{index:04d}"


def _first_gaps(checkpoint: str) -> str:
    """Where the run's target's gaps over the pool are."""
    return f"targets/first/{checkpoint}"


def _fingerprint(file: Tensors) -> str:
    """Return a digest of a shadow model, in a recording too: of metadata, members and gaps."""
    parts = {name: array_digest(file[name]) for name in file if not name.startswith("forward.")}
    noted = {key: value for key, value in file.metadata.items() if key != KEY}
    return digest([noted, parts])
