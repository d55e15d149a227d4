"""The ground truth: log-LiRA from shadow models, and who counts as memorised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import memorization
from memowidgets.audit.evidence import Checkpoint, Evidence, Models, Need
from memowidgets.checks import id_text, real_number, to_numpy, warn_user
from memowidgets.evaluation.intervals import bias_of
from memowidgets.files import array_digest
from memowidgets.memorization.densities import check_variance, note_on_shape
from memowidgets.memorization.posterior import redrawn_truths
from memowidgets.metrics import logit_gap
from memowidgets.store import NotThereError
from memowidgets.training.checkpoint import Record
from memowidgets.vocabulary import Note

VARIANCE = "shrunk"
_FEWEST_CALIBRATED = 8  # shadow models, in `tests/memorization/test_posterior.py`

Floats = NDArray[np.float64]
Gaps = NDArray[np.float32]
Mask = NDArray[np.bool_]


def log_lira(
    evidence: Evidence, checkpoint: str | float = "final", variance: str = VARIANCE
) -> pd.Series:
    """Return log-LiRA of each member that has one, as `Audit.log_lira` describes."""
    return log_lira_table(evidence, checkpoint, variance, return_std=False)["log_lira"]


def member_log_lira(evidence: Evidence) -> Floats | None:
    """Return log-LiRA at the end of training, one for each member; None without ground truth."""
    return aligned_log_lira(evidence) if evidence.has_ground_truth else None


def aligned_log_lira(evidence: Evidence, checkpoint: str | float = "final") -> Floats:
    """Return log-LiRA, one for each member and NaN for those without one."""
    record = evidence.names.record(checkpoint)

    def aligned() -> Floats:
        known, members = log_lira(evidence, record.name), evidence.members
        if len(known) < len(members):  # by name only where need be: it takes its time
            known = known.reindex(members)
        return known.to_numpy(dtype=np.float64)

    return evidence.cache.of(
        ("aligned", record.name), _state(evidence, record.name), aligned
    )


def log_lira_table(
    evidence: Evidence,
    checkpoint: str | float,
    variance: str = VARIANCE,
    *,
    return_std: bool,
) -> pd.DataFrame:
    """Return the columns ``log_lira`` and, if asked for, ``log_lira_std``, by id."""
    check_variance(variance)
    record = evidence.names.record(checkpoint)

    def computed() -> pd.DataFrame:
        index = pd.Index(evidence.members, name="id")
        given = evidence.given.get("log_lira")
        if given is not None and variance == VARIANCE and not return_std:
            return pd.DataFrame({"log_lira": given}, index).dropna()
        _, members, gaps, _ = member_gaps(evidence, record.name)
        target = evidence.target_gaps(record)
        found = memorization.log_lira(
            gaps, members, target, variance, return_std=return_std
        )
        columns = zip(
            ("log_lira", "log_lira_std"),
            found if return_std else (found,),
            strict=False,
        )
        return pd.DataFrame(dict(columns), index).dropna(subset="log_lira")

    question = "log_lira", record.name, variance, return_std
    return evidence.cache.of(question, _state(evidence, record.name), computed).copy()


def member_gaps(
    evidence: Evidence, checkpoint: str | float = "final"
) -> tuple[str, Mask, Gaps, Gaps]:
    """Return what log-LiRA compares.

    Returns
    -------
    str
        Name of the checkpoint.
    array of shape (n_shadows, n_members), bool
        Which shadow model trained on which of the target's members.
    array of shape (n_shadows, n_members), float32
        Their logit gaps.
    array of shape (n_members,), float32
        The target's logit gaps.

    Raises
    ------
    StoreError
        If there are no shadow models, or none that kept this checkpoint.
    """
    record = evidence.names.record(checkpoint)
    shadows = evidence.shadows.read(record.name)
    columns = evidence.member_columns
    chosen = shadows.members[:, columns], shadows.gaps[:, columns]
    return record.name, *chosen, evidence.target_gaps(record).astype(np.float32)


def truth_needs(evidence: Evidence, record: Record) -> list[Need]:
    """Return what log-LiRA at a checkpoint needs of the target."""
    shadows = evidence.shadows
    if "log_lira" in evidence.given or record.name not in shadows.checkpoints:
        return []
    own = (
        []
        if evidence.checkpoints[record.name].gaps is not None
        else [Need("pass", record.name)]
    )
    return own if evidence.whole is None else [*own, Need("pool", record.name)]


def _state(evidence: Evidence, checkpoint: str) -> tuple[Models, Checkpoint]:
    """Return what log-LiRA at a checkpoint comes from: the same objects as long as it stays."""
    return evidence.shadows, evidence.checkpoints[checkpoint]


def support(evidence: Evidence, eta: float) -> memorization.Support | None:
    """Count the models that memorised each member, of those that trained on it.

    The target is one of them. None where no member has nine models on each side.
    """
    final = evidence.names.final()
    if final is None or not evidence.n_shadows or not evidence.has_ground_truth:
        return None

    def counted() -> memorization.Support:
        _, members, gaps, target = member_gaps(evidence, final.name)
        every = np.vstack([members, np.ones(len(target), dtype=np.bool_)])
        return memorization.support(np.vstack([gaps, target]), every, eta)

    found = evidence.cache.of(("support", eta), _state(evidence, final.name), counted)
    return None if np.isnan(found.memorized).all() else found


def memorized_per_model(evidence: Evidence, eta: float) -> pd.DataFrame:
    """Return how many samples each model memorises, as `Audit.memorized_per_model` describes."""
    models = evidence.all_models(evidence.names.record("final").name)
    found = memorization.support(models.gaps, models.members, real_number("eta", eta))
    left_out = int(np.isnan(found.memorized).sum())
    if left_out:
        warn_user(
            f"{left_out} of {len(found.memorized)} samples are not counted, because fewer than "
            "nine models trained on them, or did not. Train 18 shadow models or more with "
            'run_shadows(…, design="balanced"), where each sample is in half of them'
        )
    names = pd.Index(
        ["target" if i < 0 else int(i) for i in models.indices], name="model"
    )
    counts = {"truly": found.truly_per_model, "memorized": found.per_model}
    return pd.DataFrame(counts, names)


def answered_rightly(evidence: Evidence) -> NDArray[np.bool_] | None:
    """Return whether the finished model gives each member the label that it was trained on.

    Returns
    -------
    array of shape (n_members,), bool, or None
        Where the logit gap at the end of training is positive. None where training has not ended,
        where the logits at its end were not kept, and for arrays, whose checkpoint is not known.
    """
    final = evidence.names.final()
    if final is None or np.isnan(final.epoch):
        return None
    at = evidence.checkpoints[final.name]
    if at.has_gaps:
        return evidence.target_gaps(final) > 0
    return (
        logit_gap(evidence.logits(final), evidence.labels) > 0
        if at.has_logits
        else None
    )


def truth_version(evidence: Evidence) -> tuple[Models, Checkpoint | None]:
    """Return what log-LiRA at the end of training comes from."""
    final = evidence.names.final()
    return evidence.shadows, None if final is None else evidence.checkpoints[final.name]


def truly_memorized(
    evidence: Evidence, memorized: pd.Series, eta: float
) -> float | None:
    """Return how many of the members that count as memorised truly are, as an expected number.

    None where log-LiRA was given as values, which have no errors.
    """
    if not evidence.n_shadows or "log_lira" in evidence.given:
        return None
    probability = probability_memorized(evidence, eta)
    return float(probability.reindex(memorized.index[memorized]).sum())


def notes_on_shape(
    evidence: Evidence, checkpoint: str | float = "final"
) -> tuple[Note, ...]:
    """Say if the gaps of the shadow models are plainly not Gaussian, as all of LiRA assumes."""
    if not evidence.n_shadows:
        return ()
    record = evidence.names.record(checkpoint)

    def found() -> tuple[Note, ...]:
        _, members, gaps, _ = member_gaps(evidence, record.name)
        note = note_on_shape(gaps, members)
        return () if note is None else (note,)

    state = _state(evidence, record.name), evidence.n_shadows
    return evidence.cache.of(("shape", record.name), state, found)


def memorized_members(
    evidence: Evidence, truth: str | ArrayLike, eta: float
) -> pd.Series:
    """Return whether each member counts as memorised, by id.

    Raises
    ------
    ValueError, TypeError
        If the truth is unknown, is not a mask over the members, or η is not a number.
    """
    if isinstance(truth, str):
        if is_log_lira(truth):
            return log_lira(evidence) >= real_number("eta", eta)
        if truth != "canaries":
            raise ValueError(
                f"unknown truth {truth!r}; valid: log_lira, canaries, or a mask"
            )
        canaries = evidence.data.canaries
        if canaries is None:
            raise NotThereError(
                "these data have no canaries",
                f"plant some by data.with_canaries, or give Audit.from_arrays canaries=, a mask "
                f"over the {len(evidence.data)} samples",
            )
        return pd.Series(canaries[evidence.member_rows], evidence.members)
    if isinstance(truth, pd.Series):
        truth = truth.set_axis(list(map(id_text, truth.index)))
        unknown = truth.index.difference(pd.Index(evidence.members))
        if len(unknown) or truth.dtype != np.bool_:
            raise ValueError(
                f"truth must be boolean and indexed by members' ids; it is {truth.dtype} and "
                f"{len(unknown)} of its ids are no members'"
            )
        return truth.reindex([i for i in evidence.members if i in truth.index])
    mask, n = to_numpy(truth, "truth"), len(evidence.member_rows)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise ValueError(
            f"truth must be a boolean mask over the {n} members, not {mask.dtype} of shape "
            f"{mask.shape}"
        )
    return pd.Series(mask, evidence.members)


def probability_memorized(
    evidence: Evidence, eta: float, checkpoint: str | float = "final"
) -> pd.Series:
    """Return the probability that each member's true log-LiRA is at least η, by id."""
    table = log_lira_table(evidence, checkpoint, return_std=True)
    probability = memorization.probability_memorized(
        table["log_lira"], table["log_lira_std"], eta
    )
    return pd.Series(probability, table.index).dropna()


@dataclass(frozen=True)
class Calibration:
    """The same for the members that have a score, and the bias of an AUC by it.

    Attributes
    ----------
    evidence : Evidence
    eta : float
    scores : Series
        By id.
    independent : bool
        Whether the scores do not depend on the shadow models. The probability is then estimated
        separately for members of low and of high scores.
    """

    evidence: Evidence
    eta: float
    scores: pd.Series
    independent: bool

    @cached_property
    def table(self) -> pd.DataFrame:
        """Log-LiRA, its errors and the score of each member that has all."""
        table = log_lira_table(self.evidence, "final", return_std=True)
        known = table.index.intersection(self.scores.index, sort=False)
        return table.loc[known].assign(score=self.scores[known])

    def probability(self) -> pd.Series:
        """Return the probability that each member's true log-LiRA is at least η, by id."""
        found = memorization.probability_memorized(*self._asked)
        return pd.Series(found, self.table.index).dropna()

    def bias(self) -> float:
        """Return how far above the truth the AUC by these probabilities is, in simulations."""

        def found() -> float:
            scores = self.table["score"].to_numpy(np.float64)
            return bias_of(scores, redrawn_truths(*self._asked))

        evidence, final = self.evidence, self.evidence.names.record("final").name
        of_members = self.scores.reindex(evidence.members).to_numpy(np.float64)
        question = "bias", array_digest(of_members), self.independent
        return evidence.cache.of(question, (_state(evidence, final), self.eta), found)

    @property
    def _asked(self) -> tuple[Any, ...]:
        score = self.table["score"] if self.independent else None
        return self.table["log_lira"], self.table["log_lira_std"], self.eta, score


def warn_of_probabilities(evidence: Evidence, checkpoint: str | float) -> None:
    """Warn where the probabilities of being memorised can be far from right."""
    # without any, log-LiRA says what is missing
    if 0 < evidence.n_shadows < _FEWEST_CALIBRATED:
        warn_user(
            f"from {evidence.n_shadows} shadow models these probabilities can be far from right, "
            "and are often too high. Rank members by them, and rely on their values from "
            f"{_FEWEST_CALIBRATED} shadow models on."
        )
    for note in notes_on_shape(evidence, checkpoint):
        warn_user(note)


def is_log_lira(truth: str | ArrayLike) -> bool:
    """Whether the truth is log-LiRA."""
    return isinstance(truth, str) and truth == "log_lira"


def positives(truth: str | ArrayLike) -> str:
    """What the positives of a truth are, as in "87 of 4444 samples are …"."""
    if not isinstance(truth, str):
        return "positive as given"
    return "memorised" if truth == "log_lira" else "planted (canaries)"
