"""An audit with one of its shadow models as the target: leave one out."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit import scoring
from memowidgets.audit.audit import Audit
from memowidgets.audit.decisions import RunKeeper
from memowidgets.decisions import DecisionLog
from memowidgets.stamps import digest
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.rho import Record
from memowidgets.training.shadows import Shadows, ShadowSet

if TYPE_CHECKING:
    from memowidgets.progress import Progress

__all__ = ["ShadowAudit"]


class ShadowAudit(Audit):
    """The same audit with a shadow model as the target; made by `Audit.as_target`.

    Its own shadow models are the others and the first target. Scores are at the prediction
    checkpoint of the first target, where the shadow model kept its forward pass; `checkpoints`
    and the ρ rule are the first target's too.
    """

    def __init__(self, audit: Audit, index: int) -> None:
        file = audit._shadows.file(index)  # noqa: SLF001 - one class in two files
        design = audit._design  # noqa: SLF001
        self.__dict__.update(audit.__dict__)
        self.index, self._file, self._first = index, file, audit
        self._design = replace(design, members=design.pool[np.array(file["members"])])
        self._shadows = _Others(audit, index)
        self._run = RunDirectory(
            audit._run.path / "targets" / f"{index:04d}",  # noqa: SLF001
            read_only=audit._run.read_only,  # noqa: SLF001
            part_of=audit._run,  # noqa: SLF001
        )
        self._decision_log = DecisionLog(RunKeeper(self._run), outside=audit._run.path)  # noqa: SLF001
        self._lock, self._log_lira = threading.RLock(), {}

    def __repr__(self) -> str:
        return f"ShadowAudit(shadow {self.index} as the target of {self._first!r})"

    @property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end can be computed from what is there."""
        return self._first.has_ground_truth

    def is_computed(
        self, metric: str, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> bool:
        """Whether `score` answers from disk."""
        record, name = self._catalogue.record(checkpoint), self._catalogue.layer(layer)
        if metric not in scoring.PER_LAYER:
            return True
        stored = scoring.stored_name(metric, name, record.name)
        made = _KeptPass(self._run, record.name, self._file)
        return self._run.has(stored, made.weights or None)

    def train(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: it is trained already."""
        raise StoreError(f"shadow {self.index} is trained already; call this on the audit itself")

    def run_shadows(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the audit's are its own."""
        raise StoreError(f"shadow {self.index} shares the audit's: call this on the audit itself")

    @property
    def shadow_sets(self) -> dict[str, int]:
        """As the first target's: this one is among them."""
        return self._first.shadow_sets

    def use_shadows(self, design: str) -> NoReturn:  # noqa: ARG002 - nothing can be chosen
        """Refuse: its own set holds the others, never itself."""
        raise StoreError(
            f"shadow {self.index} is judged by the others of its set: call this on the audit "
            "itself, and as_target again"
        )

    def fork(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a shadow model keeps no checkpoint and no plan of its own."""
        raise StoreError(f"shadow {self.index} can't be forked; call this on the audit itself")

    def as_target(self, index: int) -> ShadowAudit:
        """The audit with another shadow model as the target."""
        return ShadowAudit(self._first, index)

    def _pass(self, record: Record, progress: Progress | None) -> scoring.Pass:
        del progress  # nothing is computed
        kept = self._file.metadata.get("forward")
        if kept != record.name:
            raise StoreError(
                f"shadow {self.index} kept "
                + (f"its forward pass at {kept}" if kept else "no forward pass")
                + f", not at {record.name}: run_shadows(…, keep_forward=True) keeps it at the "
                "prediction checkpoint"
            )
        return _KeptPass(self._run, record.name, self._file)

    def _gaps_of(self, record: Record, positions: NDArray[np.int64]) -> NDArray[np.float32] | None:
        gaps: NDArray[np.float32] = np.array(self._file[f"gap.{record.name}"])
        return gaps[np.searchsorted(self._design.pool, positions)]

    def _target_gaps(self, record: Record) -> NDArray[np.float32]:
        gaps: NDArray[np.float32] = np.array(self._file[f"gap.{record.name}"])
        own: NDArray[np.float32] = gaps[np.array(self._file["members"])]
        return own


class _KeptPass(scoring.Pass):
    """The forward pass in a shadow model's file."""

    def __init__(self, run: RunDirectory, checkpoint: str, file: Any) -> None:
        super().__init__(run, checkpoint, _content(file))
        self._file = file

    @property
    def exists(self) -> bool:
        """It does."""
        return True

    def logits(self) -> NDArray[np.float32]:
        """Logits of shape (n_members, n_classes)."""
        if "forward.logits" not in self._file:
            raise StoreError("this recording keeps logit gaps and losses of shadow models only")
        return super().logits()

    def gaps(self, labels: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The logit gap of each member, (n_members,); in a recording, that which LiRA takes."""
        if "forward.logits" in self._file:
            return super().gaps(labels)
        every: NDArray[np.float32] = np.array(self._file[f"gap.{self.checkpoint}"])
        own: NDArray[np.float32] = every[np.array(self._file["members"])]
        return own

    def representation(self, layer: str) -> NDArray[np.float32]:
        """A layer's output, memory-mapped, (n_members, values)."""
        try:
            found: NDArray[np.float32] = self._tensors()[f"layer.{layer}"]
        except KeyError:
            raise StoreError(
                f"the shadow model did not keep layer {layer}: run_shadows(…, "
                f"keep_forward=[{layer!r}]) keeps it"
            ) from None
        return found

    def _tensors(self) -> Any:  # what a `Tensors` holds, under the names of a pass
        return {
            name.removeprefix("forward."): self._file[name]
            for name in self._file
            if name.startswith("forward.")
        }


def _content(file: Tensors) -> str:
    """A digest of what a recording keeps of a shadow model's file too."""
    if file.stamp is None:
        return ""
    kept = [pair for pair in file.stamp.arrays.items() if not pair[0].startswith("forward.")]
    return digest(sorted(kept))


class _Others(ShadowSet):
    """All shadow models but one, and the first target."""

    def __init__(self, audit: Audit, index: int) -> None:
        own = audit._shadows  # noqa: SLF001
        super().__init__(audit._run, own.key, own._config)  # noqa: SLF001
        self._audit, self._left_out = audit, index

    def __len__(self) -> int:
        return super().__len__() - 1

    def read(self, checkpoint: str) -> Shadows:
        """The others' gaps at a checkpoint, the first target's last where they can be had."""
        others = super().read(checkpoint).without(self._left_out)
        gaps = self._first_targets(checkpoint)
        if gaps is None:
            return others
        design = self._audit._design  # noqa: SLF001
        return Shadows(
            np.vstack([others.members, np.isin(design.pool, design.members)]),
            np.vstack([others.gaps, gaps]),
            np.append(others.indices, -1),
        )

    def _first_targets(self, checkpoint: str) -> NDArray[np.float32] | None:
        """The first target's gaps over the pool; None without its model or data."""
        audit, name = self._audit, f"targets/first/{checkpoint}"
        record = audit._catalogue.record(checkpoint)  # noqa: SLF001
        of = record.weights or None
        reason = self._run.why_not(name, of, ("gap",))
        if reason is not None or not self._run.has(name, of):
            scoring.warn_of(reason)
            gaps = audit._gaps_of(record, audit._design.pool)  # noqa: SLF001
            if gaps is None:
                return None
            self._run.write_tensors(name, {"gap": gaps}, of=record.weights)
        return np.array(self._run.read_tensors(name, of)["gap"])
