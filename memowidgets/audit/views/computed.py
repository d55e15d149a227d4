"""Numbers that need no training and no forward pass, and why others are missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import ArrayLike

from memowidgets.audit.evidence import REFERENCES, Evidence, Need
from memowidgets.audit.numbers.judge import checked_targets, evaluate, pooled_evaluation
from memowidgets.audit.numbers.scores import (
    BASELINE,
    SCORES,
    is_computed,
    is_defined,
    needs,
)
from memowidgets.audit.numbers.truth import log_lira, memorized_members, positives
from memowidgets.progress import shown
from memowidgets.store import StoreError
from memowidgets.visible import listed

if TYPE_CHECKING:
    from memowidgets.evaluation import Evaluation

__all__ = ["Computed", "NotThereError", "Reason", "Truth", "areas", "named", "said"]

_MOST_NAMED = 4

Truth = str | ArrayLike
Reason = str | Exception


class NotThereError(Exception):
    """A number that is not computed; the message says how it can be.

    `what` is the sentence with ``{}`` where the checkpoint goes and ``{metric}`` where the score
    goes, so that several that differ in nothing else are said at once.
    """

    def __init__(self, what: str, checkpoint: str = "", metric: str = "") -> None:
        super().__init__(_filled(what, checkpoint, metric))
        self.what, self.checkpoint, self.metric = what, checkpoint, metric


class Computed:
    """The numbers of an audit, as far as they need no training and no forward pass.

    Parameters
    ----------
    evidence : Evidence
        Of the audit.
    eta, truth
        As in `Audit.evaluate`.
    compute : bool
        Whether scores may be computed from passes on disk.

    Raises
    ------
    ValueError
        If the truth is unknown, or is not a mask over the members.
    """

    def __init__(self, evidence: Evidence, eta: float, truth: Truth, compute: bool) -> None:
        self.evidence, self.eta, self.truth, self.compute = evidence, eta, truth, compute
        self._by_lira = isinstance(truth, str) and truth == "log_lira"
        if not self._by_lira:
            self.memorized()  # raises for an invalid truth, instead of drawing nothing
        self.no_truth = self._why_no_truth() if self._by_lira else None

    def memorized(self) -> pd.Series:
        """What counts as memorised, by id."""
        return memorized_members(self.evidence, self.truth, self.eta)

    @property
    def positives(self) -> str:
        """What counts as memorised, as a reader says it."""
        if self._by_lira:
            return "memorised at the end"
        return "canaries" if isinstance(self.truth, str) else positives(self.truth)

    def name(self, checkpoint: str) -> str:
        """A checkpoint's own name."""
        return self.evidence.names.record(checkpoint).name

    def log_lira(self, checkpoint: str = "final") -> pd.Series:
        """Log-LiRA at a checkpoint.

        Raises
        ------
        NotThereError
            If there is none, or it needs more than what is on disk.
        """
        try:
            name = self.name(checkpoint)
            evidence, at = self.evidence, self.evidence.checkpoints[name]
            if evidence.n_shadows and name not in evidence.shadows.checkpoints:
                raise NotThereError(
                    "the shadow models kept no logit gaps at {}: name such checkpoints in "
                    "audit.run_shadows(n, checkpoints=[…]) of a new run",
                    name,
                )
            unknown = not evidence.knows_gaps(at.record) or self._lacks_first(name)
            if evidence.n_shadows and unknown:
                raise NotThereError(
                    "log-LiRA at {} needs a forward pass of the target: audit.log_lira(…) makes it",
                    name,
                )
            return log_lira(evidence, name)
        except (ValueError, StoreError) as error:
            raise self._not_there(error, checkpoint) from error

    def _lacks_first(self, name: str) -> bool:
        """Whether a shadow model's log-LiRA needs a forward pass of the run's target."""
        return len(self.evidence.missing([Need("pool", name)])) > 0

    def evaluation(
        self,
        metric: str,
        checkpoint: str = "prediction",
        layer: str = "last",
        eta: float | None = None,
        truth: Truth | None = None,
    ) -> Evaluation:
        """A score held against the truth.

        Raises
        ------
        NotThereError
            If it is not computed, and may or can not be.
        """
        truth = self.truth if truth is None else truth
        try:
            name = self.name(checkpoint)
            if metric == BASELINE:
                self._refuse_baseline(name)
            elif not self._lacks_references(metric, name) and not is_computed(
                self.evidence, metric, layer, name
            ):
                self._refuse_work(metric, layer, name)
            eta = self.eta if eta is None else eta
            return evaluate(self.evidence, metric, layer, name, eta, truth)
        except (ValueError, StoreError) as error:
            raise self._not_there(error, checkpoint) from error

    def evaluations(
        self, metrics: Iterable[str], checkpoint: str = "prediction", **options: Any
    ) -> tuple[dict[str, Evaluation], list[Reason]]:
        """Those of several scores that are there, and why others are not.

        Means over fewer than two checkpoints are left out, and reference models if there are none.
        """
        if self.no_truth and "truth" not in options:
            return {}, [self.no_truth]
        found: dict[str, Evaluation] = {}
        why: list[Reason] = []
        for metric in metrics:
            try:
                if not self._is_defined(metric, checkpoint):
                    continue
                found[metric] = self.evaluation(metric, checkpoint, **options)
            except NotThereError as error:
                why.append(error)
        return found, why

    def pooled(
        self, metrics: Iterable[str], eta: float, truth: str
    ) -> tuple[dict[str, Evaluation], list[Reason]]:
        """The same with every shadow model in its turn as the target.

        As in the paper, canaries are the truth or not there at all.
        """
        planted = truth == "canaries"
        found: dict[str, Evaluation] = {}
        why: list[Reason] = []
        for metric in metrics:
            try:
                found[metric] = self._pooled(metric, eta, truth, with_canaries=planted)
            except (ValueError, StoreError) as error:
                why.append(f"by all targets at η = {eta:g}: {error}")
        return found, why

    def _pooled(self, metric: str, eta: float, truth: str, *, with_canaries: bool) -> Evaluation:
        evidence = self.evidence
        targets = checked_targets(evidence, "all", truth, with_canaries=with_canaries)
        with shown(None) as report:
            return pooled_evaluation(
                evidence,
                targets,
                metric,
                "last",
                eta,
                truth,
                report,
                with_canaries=with_canaries,
            )

    def _lacks_references(self, metric: str, name: str) -> bool:
        """Whether reference models were not asked at a checkpoint: the score's error says so."""
        asked = REFERENCES in SCORES[metric].needs
        return asked and name not in self.evidence.references.checkpoints

    def canaries(self) -> bool:
        """Whether some members are canaries, and some are not."""
        known = self.evidence.member_data.canaries
        return known is not None and bool(known.any() and not known.all())

    def _not_there(self, error: Exception, checkpoint: str) -> NotThereError:
        """The same with the checkpoint's name taken out, where it is in it."""
        try:
            name = self.name(checkpoint)
        except ValueError:  # it is the checkpoint that is not there
            return NotThereError(str(error))
        alone = rf"(?<![\w.-]){re.escape(name)}(?!\w|-|\.\d)"
        return NotThereError(re.sub(alone, "{}", str(error)), name)

    def _is_defined(self, metric: str, checkpoint: str) -> bool:
        if REFERENCES in SCORES[metric].needs and REFERENCES not in self.evidence.kinds:
            return False
        try:
            record = self.evidence.names.record(checkpoint)
        except ValueError as error:
            raise self._not_there(error, checkpoint) from error
        return is_defined(self.evidence, metric, record)

    def _refuse_baseline(self, name: str) -> None:
        try:
            self.log_lira(name)
        except NotThereError as error:
            raise NotThereError(f"no baseline: {error.what}", error.checkpoint) from error

    def _refuse_work(self, metric: str, layer: str, name: str) -> None:
        place = "" if layer == "last" else f', layer="{layer}"'
        call = f"audit.score(metric{place}, checkpoint=…)"
        record = self.evidence.names.record(name)
        if self.evidence.missing(needs(self.evidence, metric, record)):
            what = f"a forward pass is missing for {{metric}} at {{}}: {call} makes it"
            raise NotThereError(what, name, metric)
        if not self.compute:
            everywhere = 'audit.compare(layers="all")'
            place = "" if layer == "last" else " at every layer"
            raise NotThereError(
                f"not computed at {{}}{place}: {{metric}}; {everywhere if place else call} or "
                "audit.figures(compute=True) computes it",
                name,
                metric,
            )

    def _why_no_truth(self) -> str | None:
        try:
            if len(self.log_lira()):
                return None
            reason = "no member is in two shadow models and out of two others"
        except NotThereError as error:
            reason = str(error)
        hint = '; audit.figures(truth="canaries") needs none' if self.canaries() else ""
        return f"no ground truth: {reason}{hint}"


def areas(found: Mapping[str, Evaluation], **more: Any) -> pd.DataFrame:
    """Rows as `Audit.compare` has them."""
    return pd.DataFrame(
        [
            {
                "metric": metric,
                **more,
                "auc": result.auc,
                "auc_low": result.auc_interval[0],
                "auc_high": result.auc_interval[1],
                "n": result.n,
                "n_memorized": result.n_memorized,
            }
            for metric, result in found.items()
        ]
    )


def said(reasons: Iterable[Reason]) -> list[str]:
    """Each different reason once, with all checkpoints and scores that it holds for."""
    places: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        one = reason if isinstance(reason, NotThereError) else NotThereError(str(reason))
        there = places.setdefault((one.what, one.metric), [])
        if one.checkpoint not in there:
            there.append(one.checkpoint)
    scores: dict[tuple[str, str], list[str]] = {}
    for (what, metric), there in places.items():
        scores.setdefault((what, named(there)), []).append(metric)
    return [_filled(what, where, listed(metrics)) for (what, where), metrics in scores.items()]


def _filled(what: str, checkpoints: str, metrics: str) -> str:
    return what.replace("{}", checkpoints).replace("{metric}", metrics)


def named(names: Sequence[str]) -> str:
    """Some of them, and how many more."""
    if len(names) <= _MOST_NAMED:
        return listed(names)
    return listed(names, _MOST_NAMED - 1)
