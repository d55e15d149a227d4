"""The part of an audit that holds scores against the truth: who was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import evaluation, memorization
from memowidgets.audit import scoring
from memowidgets.audit.parts.scored import ScoredAudit

__all__ = ["EvaluatedAudit", "check_both_kinds", "lacking", "positives"]

SHARED_NOISE = (
    "baseline and truth are from the same shadow models and share their noise: the baseline's AUC "
    "is too high"
)


class EvaluatedAudit(ScoredAudit):
    """Knows who was found."""

    def evaluate(
        self,
        metric: str | scoring.Metric,
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
        uncertain: bool = False,
    ) -> evaluation.Evaluation:
        """How well a score predicts what the finished model memorises.

        Parameters
        ----------
        metric, layer, checkpoint
            As in `score`.
        eta : float
            A member is memorised if its log-LiRA at the end is at least this (paper: 4).
        truth : {"log_lira", "canaries"} or mask of shape (n_members,)
            What counts as memorised.
        uncertain : bool
            Whether a member counts as memorised with the probability that its log-LiRA is truly
            above η, instead of all or nothing. The probability follows from its log-LiRA, from
            how rare large values are among members of a similar score, and from the error of the
            shadow models: see `memowidgets.memorization.probability_memorized`.

        Returns
        -------
        Evaluation
            With warnings: few positives, members left out, a model that has not learned its
            task at the checkpoint (then no score predicts anything), a ρ that was not reached.
            Where log-LiRA from shadow models is the truth, `by_chance` and a note say how many
            members would count as memorised by chance alone.
        """
        scores = self.raw_scores(metric, layer, checkpoint)
        values = pd.Series(scores.mu, self.members[scores.rows])
        if uncertain and metric != "baseline":
            memorized = self._probably(truth, eta, values)
        elif uncertain:  # it owes its values to the shadow models, as the truth does
            memorized = self._probably(truth, eta)
        else:
            memorized = self._truth(truth, eta)
        both = values.index.intersection(memorized.index, sort=False)
        notes = [*self.warnings_at(checkpoint), *scores.notes]
        if is_log_lira(truth):
            notes += self._shadows.lost()
        if metric == "baseline" and is_log_lira(truth):
            notes.append(SHARED_NOISE)
        left_out = len(self._design.members) - len(both)
        if left_out:
            notes.append(f"{left_out} members are left out: they have {lacking(truth)}")
        labels = memorized[both].to_numpy()
        if uncertain:
            result = evaluation.roc(values[both].to_numpy(), None, labels)
        else:
            check_both_kinds(labels, truth)
            result = evaluation.roc(values[both].to_numpy(), labels)
        result = result.called(positives(truth)).with_warnings(*notes)
        chance = self._share_by_chance(eta) if is_log_lira(truth) else None
        if chance is None:
            return result
        return result.with_chance(chance * result.n, self.n_shadows)

    def compare(
        self,
        metrics: Iterable[str] = scoring.METRICS,
        layers: str | Iterable[str | int] = "last",
        checkpoints: str | Iterable[str | float] = "prediction",
        eta: float = 4.0,
        truth: str | ArrayLike = "log_lira",
    ) -> pd.DataFrame:
        """AUC of several scores, at several layers and checkpoints.

        Parameters
        ----------
        metrics : iterable of str
            As in `score`.
        layers, checkpoints : "all", one, or several
            As in `score`; step 0 is left out of "all" checkpoints. Loss, logit gap and baseline
            have no layer: they get one row, with an empty one.
        eta, truth
            As in `evaluate`.

        Returns
        -------
        DataFrame
            ``metric``, ``layer``, ``checkpoint``, ``epoch``, ``auc``, ``auc_low``, ``auc_high``,
            ``n``, ``n_memorized``. Choosing the best row of it is choosing on the labels.
        """
        rows = []
        metrics = [metrics] if isinstance(metrics, str) else list(metrics)
        for record in self._catalogue.some_records(checkpoints):
            for metric in metrics:
                per_layer = metric in scoring.PER_LAYER
                for layer in self._catalogue.some_layers(layers) if per_layer else ("",):
                    found = self.evaluate(metric, layer or "last", record.name, eta, truth)
                    rows.append(
                        {
                            "metric": metric,
                            "layer": layer,
                            "checkpoint": record.name,
                            "epoch": record.epoch,
                            "auc": found.auc,
                            "auc_low": found.auc_interval[0],
                            "auc_high": found.auc_interval[1],
                            "n": found.n,
                            "n_memorized": found.n_memorized,
                        }
                    )
        return pd.DataFrame(rows)

    def shadow_curve(
        self,
        metric: str | scoring.Metric = "psmi",
        layer: str | int = "last",
        checkpoint: str | float = "prediction",
        eta: float = 4.0,
        variance: str = "shrunk",
        sizes: Sequence[int] | None = None,
        repeats: int = 20,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """How many shadow models are enough: what would be found with fewer of those at hand.

        Parameters
        ----------
        metric, layer, checkpoint, eta
            As in `evaluate`.
        variance : {"shrunk", "per-sample", "global"}
            Of log-LiRA.
        sizes : sequence of int, optional
            Numbers of shadow models, from 4 to half of those at hand; by default 4, 8, 16, … and
            half of them.
        repeats : int
            Random draws of two disjoint subsets of each size; paired designs are drawn in whole
            pairs. Draws overlap each other, so the band of the larger sizes is too narrow.
        random_state : int
            Seed.

        Returns
        -------
        DataFrame
            A row for each ``n_shadows``: the ``auc`` of the score, how many members are
            ``memorized`` (with few models some have no log-LiRA: the share among those that do,
            of all who do by all shadow models), the ``agreement`` of two subsets that share no
            shadow model (of the members that either finds memorised, the share that both find)
            and Spearman's ``rho`` between their log-LiRA; each with ``_low`` and ``_high``, between
            which 90 % of the draws lie. A subset is never compared with a set that contains it,
            which would flatter it.

        Raises
        ------
        ValueError
            If a size is above half of the shadow models, or there are fewer than 8.
        """
        from memowidgets.audit.comparing import curve_over_shadows

        scores = self.raw_scores(metric, layer, checkpoint)
        name, members, gaps, _ = self.member_gaps("final")
        target = self._target_gaps(self._catalogue.record(name))
        return curve_over_shadows(
            gaps,
            members,
            target,
            scores.mu,
            scores.rows,
            variance,
            eta,
            sizes,
            repeats,
            random_state,
            pairs=self._shadows.key != "halves",
        )

    def _probably(
        self, truth: str | ArrayLike, eta: float, scores: pd.Series | None = None
    ) -> pd.Series:
        """How probable it is that each member is memorised; of those with a score, if given."""
        if not isinstance(truth, str) or truth != "log_lira":
            raise ValueError('only truth="log_lira" can be uncertain: no other has an error')
        values, errors = self.log_lira(return_std=True)
        given = None
        if scores is not None:
            both = values.index.intersection(scores.index, sort=False)
            values, errors, given = values[both], errors[both], scores[both].to_numpy()
        probability = memorization.probability_memorized(values, errors, eta, given)
        return pd.Series(probability, values.index).dropna()

    def _truth(self, truth: str | ArrayLike, eta: float) -> pd.Series:
        if isinstance(truth, str):
            if truth == "log_lira":
                return self.log_lira() >= eta
            if truth == "canaries" and self._data.canaries is not None:
                return pd.Series(self._data.canaries[self._design.members], self.members)
            if truth == "canaries":
                raise ValueError("these data have no canaries: plant some with with_canaries")
            raise ValueError(f"unknown truth {truth!r}; valid: log_lira, canaries, or a mask")
        if isinstance(truth, pd.Series):
            return self._truth_by_id(truth)
        mask = np.asarray(truth)
        if mask.dtype != np.bool_ or mask.shape != (len(self._design.members),):
            raise ValueError(
                f"truth must be a boolean mask over the {len(self._design.members)} members, not "
                f"{mask.dtype} of shape {mask.shape}"
            )
        return pd.Series(mask, self.members)

    def _truth_by_id(self, truth: pd.Series) -> pd.Series:
        unknown = truth.index.difference(pd.Index(self.members))
        if len(unknown) or truth.dtype != np.bool_:
            raise ValueError(
                f"truth must be boolean and indexed by members' ids; it is {truth.dtype} and "
                f"{len(unknown)} of its ids are no members'"
            )
        return truth.reindex([i for i in self.members if i in truth.index])


def is_log_lira(truth: str | ArrayLike) -> bool:
    """Whether the truth is from shadow models."""
    return isinstance(truth, str) and truth == "log_lira"


def positives(truth: str | ArrayLike) -> str:
    """What the positives of a truth are, as in "87 of 4444 samples are …"."""
    if not isinstance(truth, str):
        return "positive as given"
    return "memorised" if truth == "log_lira" else "planted (canaries)"


def lacking(truth: str | ArrayLike) -> str:
    """What members that are left out lack."""
    if isinstance(truth, str):
        return "no score or no log-LiRA" if truth == "log_lira" else "no score"
    return "no score or no place in the truth that was given"


def check_both_kinds(labels: NDArray[np.bool_], truth: str | ArrayLike) -> None:
    """Refuse samples of one kind.

    Raises
    ------
    ValueError
        In the words of the truth.
    """
    if labels.all() or not labels.any():
        kind = "every sample is" if len(labels) and labels.all() else "no sample is"
        raise ValueError(
            f"the AUC is undefined: {kind} {positives(truth)}, and it needs samples of both kinds"
        )
