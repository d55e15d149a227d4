"""One shadow model: trained on its part of the pool, it leaves its logit gaps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.metrics import logit_gap
from memowidgets.progress import Progress
from memowidgets.training.config import Settings
from memowidgets.training.design import Design, ShadowDesign
from memowidgets.training.learner import Learner, Recipe
from memowidgets.training.seeds import derived_seed

__all__ = ["KeptForward", "ShadowJob", "TrainedShadow", "train_shadow"]

_SHADOW_STREAM = 4


@dataclass(frozen=True)
class KeptForward:
    """The forward pass that a shadow model keeps, over its own members.

    Attributes
    ----------
    checkpoint : str
        Name of the checkpoint.
    layers : tuple of str
        Names of the layers whose representations are kept.
    """

    checkpoint: str
    layers: tuple[str, ...]


@dataclass(frozen=True)
class ShadowJob:
    """What a worker process needs to train any shadow model of a run.

    Attributes
    ----------
    recipe : Recipe
        What to train and how.
    design : Design
        The pool.
    seed : int
        The audit's; a shadow's own follow from it and its index.
    checkpoints : dict of int
        The target's steps at which gaps are taken, by checkpoint name.
    known : dict of int
        The steps of all of the target's checkpoints, by name.
    shadows : ShadowDesign
        Which part of the pool each trains on.
    config : str
        Digest of model, data and training: shadow models of different ones never mix.
    forward : KeptForward or None
        The forward pass to keep beside the gaps.
    """

    recipe: Recipe
    design: Design
    seed: int
    checkpoints: Mapping[str, int]
    known: Mapping[str, int]
    shadows: ShadowDesign = field(default_factory=ShadowDesign)
    config: str = ""
    forward: KeptForward | None = None


@dataclass(frozen=True)
class TrainedShadow:
    """What one shadow model leaves.

    Attributes
    ----------
    members : array of shape (n_pool,), bool
        The part of the pool it trained on.
    gaps : dict of array of shape (n_pool,), float32
        Logit gap of each sample of the pool, by checkpoint.
    seconds : float
        How long it took.
    forward : dict of array of shape (n_members, …), float32
        ``logits``, ``losses`` and ``layer.<name>`` of its own members, in the pool's order, where
        they were asked for.
    precision : str
        In which it was trained: "float32" or "bfloat16".
    """

    members: NDArray[np.bool_]
    gaps: dict[str, NDArray[np.float32]]
    seconds: float
    forward: dict[str, NDArray[Any]] = field(default_factory=dict)
    precision: str = "float32"


def train_shadow(job: ShadowJob, index: int, progress: Progress) -> TrainedShadow:
    """Train one shadow model and take its logit gaps over the pool."""
    start = time.monotonic()
    design = job.design
    members = job.shadows.members(design, job.seed, index)
    own = design.pool[members]
    learner = Learner(job.recipe, own, derived_seed(job.seed, _SHADOW_STREAM, index))
    labels = job.recipe.data.labels[design.pool]
    gaps: dict[str, NDArray[np.float32]] = {}
    kept: dict[str, NDArray[Any]] = {}
    for name, step in _own_steps(job, len(own)):
        learner.advance(step, progress, f"training shadow {index}")
        if name in job.checkpoints:
            seen = learner.look_at(design.pool)
            gaps[name] = logit_gap(seen.logits, labels).astype(np.float32)
        if job.forward is not None and name == job.forward.checkpoint:
            kept = _forward(learner, own, job.forward.layers)
    return TrainedShadow(members, gaps, time.monotonic() - start, kept, learner.precision)


def _forward(
    learner: Learner, members: NDArray[np.int64], layers: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    seen = learner.look_at(members, capture=True)
    kept = {f"layer.{name}": seen.layers[name] for name in layers}
    return {"logits": seen.logits, "losses": seen.losses, **kept}


def _own_steps(job: ShadowJob, n_members: int) -> list[tuple[str, int]]:
    """The checkpoints in order, each at the shadow's own step of the target's epoch."""
    wanted = dict(job.checkpoints)
    if job.forward is not None:
        wanted[job.forward.checkpoint] = job.known[job.forward.checkpoint]
    settings, n_target = job.recipe.settings, len(job.design.members)
    steps = {name: _own_step(settings, step, n_target, n_members) for name, step in wanted.items()}
    return sorted(steps.items(), key=lambda item: item[1])


def _own_step(settings: Settings, step: int, n_target: int, n_own: int) -> int:
    if settings.steps_per_epoch(n_own) == settings.steps_per_epoch(n_target):
        return step
    return round(step / settings.total_steps(n_target) * settings.total_steps(n_own))
