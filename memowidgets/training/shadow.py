"""Training of one shadow model, which returns its logit gaps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.metrics import logit_gap
from memowidgets.progress import Progress
from memowidgets.training.design import Design, ReferenceDesign, ShadowDesign
from memowidgets.training.learner import Learner, Recipe
from memowidgets.training.seeds import derived_seed


@dataclass(frozen=True)
class KeptForward:
    """Forward pass over its own members that a shadow model stores, for use as a target.

    Its losses at the checkpoints before are stored too.

    Attributes
    ----------
    checkpoint : str
        Name of the checkpoint.
    layers : tuple of str
        Names of the layers whose representations are stored.
    """

    checkpoint: str
    layers: tuple[str, ...]


@dataclass(frozen=True)
class ShadowJob:
    """Everything that a worker process needs to train any shadow model of a run.

    Attributes
    ----------
    recipe : Recipe
        Model, data and settings.
    design : Design
        Split with the pool.
    seed : int
        The audit's seed. A shadow model's seed follows from it and the index.
    checkpoints : dict of int
        Steps of the target at which gaps are computed, by checkpoint name.
    known : dict of int
        Steps of all of the target's checkpoints, by name.
    shadows : ShadowDesign or ReferenceDesign
        Rule for the part of the pool that each shadow model trains on, and is asked about.
    config : str
        Digest of model, data and training. Shadow models of different digests are never mixed.
    forward : KeptForward or None
        Forward pass to store in addition to the gaps.
    probe : dict
        What the user's functions do where the run was begun, see `memowidgets.training.probe`.
    """

    recipe: Recipe
    design: Design
    seed: int
    checkpoints: Mapping[str, int]
    known: Mapping[str, int]
    shadows: ShadowDesign | ReferenceDesign = field(default_factory=ShadowDesign)
    config: str = ""
    forward: KeptForward | None = None
    probe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def traced(self) -> dict[str, int]:
        """Steps of the checkpoints after step 0, up to that of the forward pass, by name."""
        if self.forward is None:
            return {}
        last = self.known[self.forward.checkpoint]
        return {name: step for name, step in self.known.items() if 0 < step <= last}


@dataclass(frozen=True)
class TrainedShadow:
    """Result of one shadow model.

    Attributes
    ----------
    members : array of shape (n_pool,), bool
        Part of the pool that it trained on.
    gaps : dict of array of shape (n_pool,), float32
        Logit gap of each sample of the pool, by checkpoint; NaN if it was not asked about.
    seconds : float
        Duration of the training.
    forward : dict of array of shape (n_members, …), float32
        ``logits``, ``losses`` and ``layer.<name>`` of its own members, in the pool's order, if they
        were requested.
    precision : str
        Precision of its training: "float32" or "bfloat16".
    losses : dict of array of shape (n_members,), float32
        Losses of its own members in nats, by checkpoint, up to that of the forward pass.
    """

    members: NDArray[np.bool_]
    gaps: dict[str, NDArray[np.float32]]
    seconds: float
    forward: dict[str, NDArray[Any]] = field(default_factory=dict)
    precision: str = "float32"
    losses: dict[str, NDArray[np.float32]] = field(default_factory=dict)


def train_shadow(job: ShadowJob, index: int, progress: Progress) -> TrainedShadow:
    """Train one shadow model and compute the logit gaps of the samples that it is asked about.

    The training ends at the last checkpoint of the job.
    """
    start = time.monotonic()
    design = job.design
    members = job.shadows.members(design, job.seed, index)
    own = design.pool[members]
    seed = derived_seed(job.seed, job.shadows.kind.stream, index)
    # no other thread uses this model: a pass keeps what it captures there
    model = object.__new__(type(job.recipe.model))
    vars(model).update(vars(job.recipe.model))
    learner = Learner(replace(job.recipe, model=model), own, seed, drop_single=True)
    asked = job.shadows.asked(design, members)
    gaps: dict[str, NDArray[np.float32]] = {}
    kept: dict[str, NDArray[Any]] = {}
    losses: dict[str, NDArray[np.float32]] = {}
    for name, step in own_steps(job, len(own)):
        learner.advance(step, progress, f"training {job.shadows.kind.noun} {index}")
        if name in job.checkpoints:
            gaps[name] = _gaps(learner, design.pool, asked)
        if job.forward is not None and name == job.forward.checkpoint:
            seen = learner.look_at(own, capture=True)
            layers = {f"layer.{layer}": seen.layers[layer] for layer in job.forward.layers}
            kept = {"logits": seen.logits, "losses": seen.losses, **layers}
            losses[name] = seen.losses
        elif name in job.traced:
            losses[name] = learner.look_at(own).losses
    seconds = time.monotonic() - start
    return TrainedShadow(members, gaps, seconds, kept, learner.precision, losses)


def _gaps(
    learner: Learner, pool: NDArray[np.int64], asked: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return the logit gap of each sample of the pool, NaN if it is not asked about."""
    rows = pool[asked]
    found = np.full(len(pool), np.nan, dtype=np.float32)
    found[asked] = logit_gap(learner.look_at(rows).logits, learner.recipe.data.labels[rows])
    return found


def own_steps(job: ShadowJob, n_members: int) -> list[tuple[str, int]]:
    """Return the checkpoints in order, each at the shadow's own step of the target's epoch."""
    wanted = dict(job.checkpoints) | job.traced
    if job.forward is not None:
        wanted[job.forward.checkpoint] = job.known[job.forward.checkpoint]
    settings, n_target = job.recipe.settings, len(job.design.members)
    if settings.steps_per_epoch(n_members) != settings.steps_per_epoch(n_target):
        own, of = settings.total_steps(n_members), settings.total_steps(n_target)
        for name, step in wanted.items():  # none after step 0 is a model that was never trained
            wanted[name] = max(round(step / of * own), min(step, 1))
    return sorted(wanted.items(), key=lambda item: item[1])
