"""An audit with one of its shadow models as the target: leave one out."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit import scoring, shadowing
from memowidgets.audit.audit import Audit
from memowidgets.audit.decisions import FILE, RunKeeper
from memowidgets.decisions import DecisionLog
from memowidgets.stamps import KEY, array_digest, digest
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.rho import Record
from memowidgets.training.shadows import Shadows, ShadowSet

if TYPE_CHECKING:
    from memowidgets.audit.parts.base import GapsState
    from memowidgets.progress import Progress

__all__ = ["ShadowAudit"]

_CLOSE = 1e-2  # logit gaps of one model in batches of other sizes, in nats


class ShadowAudit(Audit):
    """The same audit with a shadow model as the target; made by `Audit.as_target`.

    Its own shadow models are the others and the first target. Scores are at the prediction
    checkpoint of the first target, where the shadow model kept its forward pass; `checkpoints`
    and the ρ rule are the first target's too.
    """

    def __init__(self, audit: Audit, index: int) -> None:
        run, own = audit._run, audit._shadows  # noqa: SLF001 - one class in two files
        members = np.array(own.file(index)["members"])
        design = audit._design  # noqa: SLF001
        self.__dict__.update(audit.__dict__)
        self.index, self._first, self._set = index, audit, own
        self._design = replace(design, members=design.pool[members])
        self._shadows: _Others = _Others(audit, index)
        folder = run.place(f"targets/{own.key}/{index:04d}")
        self._run = RunDirectory(folder, read_only=run.read_only, part_of=run)
        self._take_over_decisions(run.place(_before(index)) / FILE)
        self._decision_log = DecisionLog(RunKeeper(self._run), run.path, self._data.ids)
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
        made = self._kept_pass(record.name)
        return made.exists and made.stored(metric, name, warn=False) is not None

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
        made = self._kept_pass(record.name)
        if not made.exists:
            kept = self._file.metadata.get("forward")
            raise StoreError(
                f"shadow {self.index} kept "
                + (f"its forward pass at {kept}" if kept else "no forward pass")
                + f", not at {record.name}: run_shadows(…, keep_forward=True) keeps it at the "
                "prediction checkpoint"
            )
        return made

    def _kept_pass(self, checkpoint: str) -> _KeptPass:
        belongs = self._first._run.read_only and self._alone_keeps(checkpoint)  # noqa: SLF001
        before = self._first._run if belongs else None  # noqa: SLF001
        return _KeptPass(self._run, checkpoint, self._file, before, self.index)

    def _alone_keeps(self, checkpoint: str) -> bool:
        """Whether no other set has a shadow model of this index with that forward pass."""
        run = self._first._run  # noqa: SLF001
        keys = shadowing.keys_with_forward(run, self.index, checkpoint)
        return keys == [self._set.key]

    @property
    def _file(self) -> Tensors:
        """The shadow model's file as it is now: the model may have been trained again."""
        return self._set.file(self.index)

    def _take_over_decisions(self, before: Path) -> None:
        """Move decisions here that lie where sets of shadow models were not told apart."""
        here = self._run.path / FILE
        if self._run.read_only or here.exists() or not before.exists():
            return
        if list(self.shadow_sets) == [self._set.key]:
            with self._run.explained(here):
                before.replace(here)
            return
        warnings.warn(
            f"{before} does not say to which set of shadow models its decisions belong, so they "
            f"are not used. Move it to {here.parent} if they are on shadow {self.index} of "
            f"{self._set.key!r}, or delete it.",
            UserWarning,
            stacklevel=4,
        )

    def _pass_state(self, checkpoint: str | float) -> tuple[object, ...]:
        return self._catalogue.record(checkpoint).name, self._set.state_of(self.index)

    def _gaps_state(self, checkpoint: str) -> GapsState:
        key, files = super()._gaps_state(checkpoint)
        run = self._first._run  # noqa: SLF001
        first = (run.state(f"forward/{checkpoint}"), run.state(_first_gaps(checkpoint)))
        return key, (*files, *first)

    def _first_is_known(self, checkpoint: str) -> bool:
        """Whether the first target's logit gaps are on disk."""
        return self._shadows.kept_first(checkpoint) is not None

    @property
    def _asks_model_for_others(self) -> bool:
        return False

    def _gaps_of(self, record: Record, positions: NDArray[np.int64]) -> NDArray[np.float32] | None:
        gaps: NDArray[np.float32] = np.array(self._file[f"gap.{record.name}"])
        return gaps[np.searchsorted(self._design.pool, positions)]

    def _target_gaps(self, record: Record) -> NDArray[np.float32]:
        gaps: NDArray[np.float32] = np.array(self._file[f"gap.{record.name}"])
        own: NDArray[np.float32] = gaps[np.array(self._file["members"])]
        return own


class _KeptPass(scoring.Pass):
    """The forward pass in a shadow model's file."""

    def __init__(
        self,
        run: RunDirectory,
        checkpoint: str,
        file: Tensors,
        before: RunDirectory | None,
        index: int,
    ) -> None:
        super().__init__(run, checkpoint, weights=_fingerprint(file))
        self._file, self._before, self._index = file, before, index

    @property
    def exists(self) -> bool:
        """Whether the shadow model kept it at this checkpoint."""
        return self._file.metadata.get("forward") == self.checkpoint

    def stored(self, metric: str, layer: str, *, warn: bool = True) -> Tensors | None:
        """The scores of this very model; also where recordings had them when sets shared a folder.

        Those were made with the one set that keeps a forward pass, if there is but one.
        """
        found = super().stored(metric, layer, warn=warn)
        if found is not None or self._before is None:
            return found
        name = f"{_before(self._index)}/{super()._place_of(metric, layer)}"
        return self._before.read_tensors(name) if self._before.has(name) else None

    def logits(self) -> NDArray[np.float32]:
        """Logits of shape (n_members, n_classes)."""
        self._refuse_recording()
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
        self._refuse_recording()
        try:
            found: NDArray[np.float32] = self._tensors()[f"layer.{layer}"]
        except KeyError:
            raise StoreError(
                f"the shadow model did not keep layer {layer}: run_shadows(…, "
                f"keep_forward=[{layer!r}]) keeps it"
            ) from None
        return found

    def _refuse_recording(self) -> None:
        if "forward.logits" not in self._file:
            raise StoreError("this recording keeps logit gaps and losses of shadow models only")

    def _place_of(self, metric: str, layer: str) -> str:
        place = super()._place_of(metric, layer).removeprefix("scores/")
        return f"scores/{_fingerprint(self._file)}/{place}"

    def _tensors(self) -> Any:  # what a `Tensors` holds, under the names of a pass
        return {
            name.removeprefix("forward."): self._file[name]
            for name in self._file
            if name.startswith("forward.")
        }


class _Others(ShadowSet):
    """All shadow models but one, and the first target."""

    def __init__(self, audit: Audit, index: int) -> None:
        own = audit._shadows  # noqa: SLF001
        super().__init__(
            audit._run,  # noqa: SLF001
            own.key,
            own._config,  # noqa: SLF001
            own._precision,  # noqa: SLF001
            rounds=own._rounds,  # noqa: SLF001
        )
        self._audit, self._left_out = audit, index

    def __len__(self) -> int:
        return super().__len__() - 1 + self._knows_first

    @property
    def _knows_first(self) -> bool:
        """Whether the first target is among those that `read` gives at the end of training."""
        final = self._audit._catalogue.final()  # noqa: SLF001
        asked = self._audit._can_compute  # noqa: SLF001
        return asked or (final is not None and self.kept_first(final.name) is not None)

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

    def kept_first(self, checkpoint: str) -> NDArray[np.float32] | None:
        """The first target's gaps over the pool, if those on disk are of the model it is now."""
        name = _first_gaps(checkpoint)
        if not (self._run.has(name) and self._run.has(f"forward/{checkpoint}")):
            return None
        if self._run.why_not(name, arrays=("gap",)) is not None:
            return None
        file = self._run.read_tensors(name)
        gaps, own = np.array(file["gap"]), self._own_of_first(checkpoint)
        noted = file.metadata.get("target")
        if noted is None:  # from before it was noted
            design = self._audit._design  # noqa: SLF001
            here = gaps[np.searchsorted(design.pool, design.members)]
            return gaps if np.allclose(here, own, rtol=0, atol=_CLOSE) else None
        return gaps if noted == array_digest(own) else None

    def _first_targets(self, checkpoint: str) -> NDArray[np.float32] | None:
        """The first target's gaps over the pool; None without its model or data."""
        kept = self.kept_first(checkpoint)
        if kept is not None:
            return kept
        scoring.warn_of(self._run.why_not(_first_gaps(checkpoint), arrays=("gap",)))
        audit = self._audit
        record = audit._catalogue.record(checkpoint)  # noqa: SLF001
        gaps = audit._gaps_of(record, audit._design.pool)  # noqa: SLF001
        if gaps is None:
            return None
        noted = {"target": array_digest(self._own_of_first(checkpoint))}
        self._run.write_tensors(_first_gaps(checkpoint), {"gap": gaps}, noted)
        return gaps

    def _own_of_first(self, checkpoint: str) -> NDArray[np.float32]:
        """The first target's gaps of its own members, from its forward pass."""
        record = self._audit._catalogue.record(checkpoint)  # noqa: SLF001
        return self._audit._target_gaps(record).astype(np.float32)  # noqa: SLF001


def _before(index: int) -> str:
    """Where a shadow target's files were when all sets of shadow models shared a folder."""
    return f"targets/{index:04d}"


def _first_gaps(checkpoint: str) -> str:
    """Where the first target's gaps over the pool are."""
    return f"targets/first/{checkpoint}"


def _fingerprint(file: Tensors) -> str:
    """What tells a shadow model from any other, in a recording too: metadata, members, gaps."""
    parts = {name: array_digest(file[name]) for name in file if not name.startswith("forward.")}
    noted = {key: value for key, value in file.metadata.items() if key != KEY}
    return digest([noted, parts])
