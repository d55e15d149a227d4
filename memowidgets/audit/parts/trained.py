"""The part of an audit that trains its target and its shadow models."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit import scoring, shadowing
from memowidgets.audit.console import shown
from memowidgets.audit.forking import check_start
from memowidgets.audit.parts.base import AuditBase
from memowidgets.progress import Progress
from memowidgets.training.recorder import Recorder
from memowidgets.training.rho import StopRule

__all__ = ["TrainedAudit"]


class TrainedAudit(AuditBase):
    """Trains."""

    def train(
        self,
        stop_at_drop: float | None = None,
        progress: Progress | None = None,
        over_last: int = 1,
    ) -> None:
        """Train the target, on from where it stands.

        Parameters
        ----------
        stop_at_drop : float, optional
            ρ: interrupt at the first checkpoint where the median training loss has dropped by
            this share (paper, Section 4.3; 0.95 for practitioners). Without it, train to the
            end; what was interrupted ends bit for bit like what was not.
        progress : Progress, optional
            Where to report and hear of a cancel; a progress bar by default.
        over_last : int
            Beside `stop_at_drop`: of how many evaluations after step 0 the median counts as the
            loss. Some, such as 3, where it jumps up and down, as that of an image network does.

        Raises
        ------
        StoreError
            If another process trains this run, or it cannot be written.
        FloatingPointError
            If the training diverges.
        """
        stop = _stop_rule(stop_at_drop, over_last)
        self._refuse_outside("resume it with trainer.train(resume_from_checkpoint=True)")
        check_start(self._run, self._manifest)
        with self._lock, shown(progress) as report:
            if stop is not None:
                self._catalogue.stop = stop
            self._target().train(stop, report)
        if stop is not None:
            for note in self.prediction.warnings:
                warnings.warn(note, UserWarning, stacklevel=2)

    def recorder(
        self,
        stop_at_drop: float | None = None,
        layers: str | int | Iterable[str | int] = "all",
        over_last: int = 1,
    ) -> Recorder:
        """What keeps checkpoints of a target that is trained elsewhere.

        `memowidgets.training.MemorizationCallback` uses it, for transformers' Trainer.

        Parameters
        ----------
        stop_at_drop : float, optional
            ρ, by which the checkpoint "prediction" is chosen from now on.
        layers : "all", one, or several
            Whose hidden states are kept, as in `score`.
        over_last : int
            As in `train`.

        Returns
        -------
        Recorder

        Raises
        ------
        TypeError, ValueError
            If the audit's model can't stand for one that is trained elsewhere.
        """
        stop = _stop_rule(stop_at_drop, over_last)
        recorder = Recorder(
            self._run,
            self._recipe(),
            self._design,
            self._held_out,
            self.layers,
            self._catalogue.some_layers(layers),
            keep=lambda record, seen: scoring.Pass(
                self._run, record.name, weights=record.weights
            ).write(seen),
            shown=shown,
        )
        if stop is not None:
            self._catalogue.stop = stop
        return recorder

    def run_shadows(
        self,
        n: int,
        executor: Executor | None = None,
        checkpoints: str | float | Sequence[str | float] = ("prediction", "final"),
        design: str = "halves",
        keep_forward: bool | str | int | Sequence[str | int] = False,
        audited: Sequence[str] | NDArray[np.bool_] | None = None,
        processes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Train shadow models on parts of the pool, until there are `n`.

        Another process, or another machine that shares the disk, may call this on the same
        directory: each shadow model is trained once.

        Parameters
        ----------
        n : int
            How many in all; those on disk are kept. The paper takes 100.
        executor : concurrent.futures.Executor, optional
            Where to train: any, such as Dask's ``client.get_executor()``; it stays yours. Local
            processes by default.
        checkpoints : sequence
            Where each leaves its logit gaps.
        design : {"halves", "balanced", "canaries"}
            What each trains on: a random half (the paper); halves in complementary pairs, so that
            with an even `n` every sample is in exactly half of the models; or the target's
            members without the audited samples, and half of those, in such pairs. Each design is
            a set of its own, and the truth comes from the set that was asked for last.
        keep_forward : bool, or layers
            Whether each keeps its forward pass over its own members at the prediction checkpoint,
            with the last layer's representation or those named ("all"): `as_target` needs it.
        audited : mask of shape (n,) or sequence of ids, optional
            For "canaries"; the canaries by default. Duplicates go together.
        processes : int, optional
            Shadow models in hand at once: by default a local process for each core or GPU, or
            what the executor has.
        progress : Progress, optional
            Where to report and hear of a cancel; a progress bar by default.

        Raises
        ------
        ValueError
            If the target trains on everything: then there is no half to compare with. If a name
            is unknown, or nothing can be audited.
        StoreError
            If they cannot be written, a worker or the executor died, or a worker has other
            versions of memowidgets, torch or Python; the finished ones are kept.
        """
        shadowing.check_request(n, executor, checkpoints, processes)
        plan = shadowing.planned(self._data, self._design, design, audited)
        self._refuse_outside(
            "shadow models must be trained as their target was; for ground truth, let "
            "audit.train() train the target of another run"
        )
        with self._lock:
            records = self._catalogue.some_records(checkpoints)
            job = shadowing.make_job(
                self._recipe(),
                self._design,
                self._manifest,
                self._run,
                self._catalogue,
                checkpoints,
                plan,
                keep_forward,
            )
            self._shadows = shadowing.use_set(self._run, plan.key, self._precision)
        with shown(progress) as report:
            self._shadows.fill(n, job, processes, report, executor)
            self._shadows.note_trained(n)
            for record in records:  # what log-LiRA needs of the target
                self._pass(record, report)

    @property
    def shadow_sets(self) -> dict[str, int]:
        """How many shadow models there are of each design, by the key of its set."""
        return {key: len(kept) for key, kept in shadowing.shadow_sets(self._run).items()}

    def use_shadows(self, design: str) -> None:
        """Take the truth from the shadow models of another design.

        Parameters
        ----------
        design : str
            "halves", "balanced", "canaries", or a key out of `shadow_sets`.

        Raises
        ------
        ValueError
            If there is no such set, or there are several of that design.
        """
        key = shadowing.set_of_design(self._run, design).key
        with self._lock:
            self._shadows = shadowing.use_set(self._run, key, self._precision)

    def clear_cache(self) -> None:
        """Delete what was kept of frozen blocks' output, for this run and all others.

        It could be turned back into text; it is made again when it is needed.
        """
        from memowidgets.models.prefix import clear_cache

        clear_cache()


def _stop_rule(rho: float | None, over_last: int) -> StopRule | None:
    if rho is not None:
        return StopRule(rho, over_last)
    if over_last != 1:
        raise ValueError("over_last goes with stop_at_drop: say at which drop to interrupt")
    return None
