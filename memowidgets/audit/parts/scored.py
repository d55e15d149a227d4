"""The part of an audit that scores its members: who is at risk."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit import scoring
from memowidgets.audit.parts.base import METRICS
from memowidgets.audit.parts.truths import JudgedAudit
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.rho import Record
from memowidgets.visible import listed, quoted

__all__ = ["ScoredAudit"]


class ScoredAudit(JudgedAudit):
    """Knows who is at risk."""

    def score(
        self,
        metric: str | scoring.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        *,
        name: str | None = None,
        return_std: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        """Score the target's members; low means likely to be memorised.

        Parameters
        ----------
        metric : {"psmi", "loss", "logit_gap", "mahalanobis", "baseline"} or callable
            Paper, Section 4.3. ``"baseline"`` is −log-LiRA at the checkpoint and needs shadow
            models. A callable takes (representation, logits, labels) of all members and returns
            one value for each.
        layer : int, str
            From 1, a name out of `layers`, or ``"last"``; for PSMI, Mahalanobis and callables.
        checkpoint : str, float
            ``"prediction"``, ``"final"``, an epoch, or a name out of `checkpoints`.
        name : str, optional
            Of the series; the metric's by default.
        return_std : bool
            Whether to return PSMI's standard errors too.
        progress : Progress, optional
            Where to report and hear of a cancel.

        Returns
        -------
        Series
            One float a member, by id; members whose class has fewer than two have no PSMI and
            are left out, with a warning.
        Series
            The standard errors, if `return_std`.

        Raises
        ------
        ValueError
            If metric, layer or checkpoint is unknown; the message lists the valid ones.
        """
        scores = self.raw_scores(metric, layer, checkpoint, progress)
        missing = len(self._design.members) - len(scores.rows)
        if missing:
            left_out = np.setdiff1d(np.arange(len(self._design.members)), scores.rows)
            reason = (
                "they are in every shadow model or in none"
                if metric == "baseline"
                else "their class has fewer than two"
            )
            warnings.warn(
                f"{missing} members have no score, {reason}: {listed(self.members[left_out], 5)}",
                UserWarning,
                stacklevel=2,
            )
        label = name or _name_of(metric)
        index = pd.Index(self.members[scores.rows], name="id")
        values = pd.Series(scores.mu, index, name=label)
        if not return_std:
            return values
        if scores.errors is None:
            raise ValueError(f"{label} has no standard error; PSMI has")
        return values, pd.Series(scores.errors, index, name=f"{label}_std")

    def raw_scores(
        self,
        metric: str | scoring.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        progress: Progress | None = None,
    ) -> scoring.Scores:
        """What `score` returns, as arrays, with the standard errors; computed if need be."""
        if metric not in METRICS if isinstance(metric, str) else not callable(metric):
            raise ValueError(
                f"unknown score {metric!r}; valid: {', '.join(METRICS)}, or a callable "
                "(representation, logits, labels)"
            )
        record, name = self._catalogue.record(checkpoint), self._catalogue.layer(layer)
        if metric == "baseline":
            return self._baseline(record)
        if not isinstance(metric, str):
            return self._custom(metric, self._pass(record, progress), name)
        if self.is_computed(metric, name, record.name):
            return self._stored_or_scored(metric, name, record, progress)
        with self._alone(progress):
            return self._stored_or_scored(metric, name, record, progress)

    def is_computed(
        self, metric: str, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> bool:
        """Whether `score` answers from disk."""
        record, name = self._catalogue.record(checkpoint), self._catalogue.layer(layer)
        made = self._stored_pass(record)
        if not made.exists:
            return False
        return metric not in scoring.PER_LAYER or made.stored(metric, name, warn=False) is not None

    def representation(
        self, layer: str | int = "last", checkpoint: str | float = "prediction"
    ) -> NDArray[np.float32]:
        """A layer's output for each member, memory-mapped, (n_members, values).

        Raises
        ------
        StoreError
            If it is not there: nothing was scored at the checkpoint yet, or a recording has it
            not.
        """
        record = self._catalogue.record(checkpoint)
        made = self._stored_pass(record)
        if not made.exists:
            raise StoreError(
                made.why_not or f"nothing was scored at {record.name} yet: call score() there first"
            )
        return made.representation(self._catalogue.layer(layer))

    def probabilities(self, checkpoint: str | float = "prediction") -> NDArray[np.float64]:
        """The model's probability of each class for each member, (n_members, n_classes)."""
        from scipy.special import softmax

        logits = self._pass(self._catalogue.record(checkpoint), None).logits().astype(np.float64)
        probabilities: NDArray[np.float64] = softmax(logits, axis=1)
        return probabilities

    def flagged(
        self,
        tau: float = 0.0,
        metric: str | scoring.Metric = "psmi",
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
    ) -> pd.DataFrame:
        """The members with score ≤ τ, most at risk first.

        Parameters
        ----------
        tau : float
            The threshold; 0 for PSMI is the practitioner's (paper, Section 4.3).
        metric, layer, checkpoint
            As in `score`.

        Returns
        -------
        DataFrame
            By id: ``score``, ``std`` (where the score has one), ``label``, ``guess`` (the
            model's, at the checkpoint) and ``p_label`` (where there are logits), ``canary``
            (where there are some), ``log_lira`` (where there is ground truth).

        Warns
        -----
        UserWarning
            If the model has not learned its task at the checkpoint, or ρ was not reached.
        """
        if math.isnan(tau):
            raise ValueError("tau is NaN; it must be a number")
        for note in self.warnings_at(checkpoint):
            warnings.warn(note, UserWarning, stacklevel=2)
        scores = self.raw_scores(metric, layer, checkpoint)
        table = pd.DataFrame({"score": scores.mu}, pd.Index(self.members[scores.rows], name="id"))
        if scores.errors is not None:
            table["std"] = scores.errors
        names = np.array(self._data.class_names)
        labels = self.labels[scores.rows]
        table["label"] = names[labels]
        if "loss" in self.metrics:
            probabilities = self.probabilities(checkpoint)[scores.rows]
            table["guess"] = names[probabilities.argmax(axis=1)]
            table["p_label"] = probabilities[np.arange(len(labels)), labels]
        if self._data.canaries is not None:
            table["canary"] = self._data.canaries[self._design.members][scores.rows]
        if self.has_ground_truth:
            table["log_lira"] = self.log_lira()
        return table[table["score"] <= tau].sort_values("score", kind="stable")

    def _stored_or_scored(
        self, metric: str, layer: str, record: Record, progress: Progress | None
    ) -> scoring.Scores:
        made, seed = self._pass(record, progress), self._manifest["seed"]
        report = progress or Progress()
        return scoring.score_pass(made, metric, layer, self.labels, seed, report)

    def _baseline(self, record: Record) -> scoring.Scores:
        values = self.log_lira(record.name)
        if values.empty:
            raise ValueError(
                f"{self.n_shadows} shadow models are too few: no member is in some and not in "
                "others; run more"
            )
        rows = np.arange(len(self.members))
        if len(values) < len(rows):  # by name only where need be: it takes its time
            rows = np.flatnonzero(pd.Index(self.members).isin(values.index))
        return scoring.Scores(rows, -values.to_numpy())

    def _custom(self, metric: scoring.Metric, made: scoring.Pass, layer: str) -> scoring.Scores:
        values = np.asarray(
            metric(np.array(made.representation(layer)), made.logits(), self.labels), float
        )
        if values.shape != self.labels.shape:
            raise ValueError(
                f"the metric returned the shape {values.shape}; it must return one value for each "
                f"of {len(self.labels)} members"
            )
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise ValueError(
                f"the metric returned {int(wrong.sum())} values that are not finite, the first "
                f"for {quoted(self.members[int(np.argmax(wrong))])}"
            )
        return scoring.Scores(np.arange(len(values)), values)


def _name_of(metric: str | scoring.Metric) -> str:
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "__name__", type(metric).__name__))
