"""The ground truth: log-LiRA from shadow models, and who counts as memorised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import memorization
from memowidgets.audit.evidence import Evidence, Need
from memowidgets.audit.names import GIVEN, NotGivenError
from memowidgets.checks import real_number, warn_user
from memowidgets.evaluation import chance_note, is_much_by_chance
from memowidgets.memorization.chance import ByChance, note_on_shape
from memowidgets.memorization.densities import checked_variance
from memowidgets.metrics import logit_gap
from memowidgets.training.rho import Record

VARIANCE, HIERARCHICAL = "shrunk", "hierarchical"
_FEWEST_CALIBRATED = 8  # shadow models, in `python -m benchmarks hierarchical`

_ONLY_VALUES = (
    "log_lira was given as it is: standard errors, probabilities, other variances and modes need "
    "shadow_gaps= and shadow_members= beside logits="
)

Floats = NDArray[np.float64]
Gaps = NDArray[np.float32]
Mask = NDArray[np.bool_]


def log_lira(
    evidence: Evidence,
    checkpoint: str | float = "final",
    variance: str = VARIANCE,
    mode: str = "online",
) -> pd.Series:
    """Return log-LiRA of each member that has one, as `Audit.log_lira` describes."""
    return log_lira_table(evidence, checkpoint, variance, mode, return_std=False)["log_lira"]


def log_lira_table(
    evidence: Evidence,
    checkpoint: str | float,
    variance: str,
    mode: str,
    *,
    return_std: bool,
) -> pd.DataFrame:
    """Return the columns ``log_lira`` and, if asked for, ``log_lira_std``, by id."""
    checked_variance(variance)
    record = evidence.names.record(checkpoint)
    early = covariates_at(evidence, record) if variance == HIERARCHICAL else None
    question = ("log_lira", record.name, variance, mode, return_std, early)

    def computed() -> pd.DataFrame:
        index = pd.Index(evidence.members, name="id")
        given = evidence.given.get("log_lira")
        if given is not None and (variance, mode, return_std) == (VARIANCE, "online", False):
            return pd.DataFrame({"log_lira": given}, index).dropna()
        if given is not None and not evidence.n_shadows:
            raise NotGivenError(_ONLY_VALUES)
        compared = against(evidence, record, variance)
        target = evidence.target_gaps(record)
        found = compared.log_lira(target, mode=mode, return_std=return_std)
        columns = zip(("log_lira", "log_lira_std"), found if return_std else (found,), strict=False)
        return pd.DataFrame(dict(columns), index).dropna(subset="log_lira")

    state = _state(evidence, record.name, early)
    return evidence.cache.of(question, state, computed).copy()


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


@dataclass(frozen=True)
class Against:
    """What log-LiRA of the members is computed from.

    Attributes
    ----------
    members, gaps : (n_shadows, n)
        Which shadow model trained on which sample, and the logit gaps. "hierarchical" fits its
        priors on the whole pool; otherwise these are the members alone.
    judged : (n_members,) int64 or None
        Columns of the members; None if there are no others.
    early : (n_shadows, n) or None
        Logit gaps at the prediction checkpoint.
    variance : str
        As in `memowidgets.memorization.log_lira`.
    """

    members: Mask
    gaps: Gaps
    judged: NDArray[np.int64] | None
    early: Gaps | None
    variance: str

    def log_lira(
        self,
        target: NDArray[Any],
        shadows: NDArray[np.int64] | slice = slice(None),
        mode: str = "online",
        *,
        return_std: bool = False,
    ) -> Any:
        """Return log-LiRA of the members' `target` gaps, by some of the shadow models.

        With `return_std`, the second of two arrays has its standard errors.
        """
        return memorization.log_lira(
            self.gaps[shadows],
            self.members[shadows],
            target,
            self.variance,
            mode,
            return_std=cast("Any", return_std),
            early_gaps=None if self.early is None else self.early[shadows],
            judged=self.judged,
        )


def against(evidence: Evidence, record: Record, variance: str) -> Against:
    """Return what log-LiRA at a checkpoint is computed from.

    Warns
    -----
    UserWarning
        If "hierarchical" has no covariates at a checkpoint after the prediction checkpoint.
    """
    if variance != HIERARCHICAL:
        _, members, gaps, _ = member_gaps(evidence, record.name)
        return Against(members, gaps, None, None, variance)
    shadows = evidence.shadows.read(record.name)
    columns = evidence.member_columns
    early = covariates_at(evidence, record)
    if early is None:
        _warn_of_no_covariates(evidence, record)
        return Against(shadows.members, shadows.gaps, columns, None, variance)
    if early == GIVEN:
        given = evidence.given["early_shadow_gaps"]
        return Against(shadows.members, shadows.gaps, columns, given, variance)
    before = evidence.shadows.read(early)
    _, here, there = np.intersect1d(shadows.indices, before.indices, return_indices=True)
    order = np.argsort(here)  # as `member_gaps` has them: the target of the run comes last
    here, there = here[order], there[order]
    return Against(shadows.members[here], shadows.gaps[here], columns, before.gaps[there], variance)


def covariates_at(evidence: Evidence, record: Record) -> str | None:
    """Return the checkpoint of the covariates of "hierarchical"; None if there are none.

    It is the prediction checkpoint, if that comes before `record` and the shadow models have logit
    gaps there.
    """
    if "early_shadow_gaps" in evidence.given:
        return GIVEN
    early = evidence.names.prediction().record
    known = early.step < record.step and early.name in evidence.shadows.checkpoints
    return early.name if known else None


def _warn_of_no_covariates(evidence: Evidence, record: Record) -> None:
    early = evidence.names.prediction().record
    if early.step < record.step:
        missing = f"the shadow models have no logit gaps at {early.name}, the prediction checkpoint"
        advice = 'run_shadows(…, checkpoints=("prediction", "final")) keeps them'
    elif len(evidence.names.found) == 1:
        missing = "the shadow models' early gaps were not given"
        advice = "pass early_shadow_gaps= to Audit.from_arrays"
    else:
        return
    warn_user(f'{missing}, so variance="hierarchical" has no covariates and gains less: {advice}')


def truth_needs(evidence: Evidence, record: Record, variance: str = VARIANCE) -> list[Need]:
    """Return what log-LiRA at a checkpoint needs of the target."""
    shadows = evidence.shadows
    if "log_lira" in evidence.given or record.name not in shadows.checkpoints:
        return []
    names = [record.name]
    if variance == HIERARCHICAL and covariates_at(evidence, record) not in (None, GIVEN):
        names.append(evidence.names.prediction().record.name)
    own = [] if evidence.checkpoints[record.name].gaps is not None else [Need("pass", record.name)]
    return [*own, *(Need("pool", name) for name in names)]


def _state(evidence: Evidence, checkpoint: str, early: str | None = None) -> tuple[Any, ...]:
    """Return a value that changes when log-LiRA at a checkpoint may."""
    names = [checkpoint] if early in (None, GIVEN) else [checkpoint, str(early)]
    return evidence.shadows.state, tuple(evidence.checkpoints[name].state for name in names)


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


def memorized_per_model(evidence: Evidence, eta: float) -> pd.Series:
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
    names = pd.Index(["target" if i < 0 else int(i) for i in models.indices], name="model")
    return pd.Series(found.per_model, names, name="memorized")


def asks_model_for_others(evidence: Evidence) -> bool:
    """Whether RMIA's population needs a forward pass that a run has to make."""
    return evidence.kind == "run" and evidence.can_ask and len(evidence.other_columns) > 1


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
        gaps = evidence.target_gaps(final)
    elif "logits" in (at.outputs or ()):
        gaps = logit_gap(evidence.logits(final), evidence.labels)
    else:
        return None
    right: NDArray[np.bool_] = gaps > 0
    return right


def truth_version(evidence: Evidence) -> tuple[str, int]:
    """Return a value that changes when log-LiRA at the end of training may."""
    final = evidence.names.final()
    if final is None:
        return evidence.shadows.design, hash(evidence.shadows.state)
    return evidence.shadows.design, hash(_state(evidence, final.name))


def share_by_chance(evidence: Evidence, eta: float, variance: str = VARIANCE) -> float | None:
    """Return the share of members with log-LiRA of at least η if nothing were memorised.

    None where log-LiRA was given as it is, without the shadow models behind it, and for
    "hierarchical", whose prior already knows how rare memorised samples are.
    """
    if variance == HIERARCHICAL or not evidence.n_shadows:
        return None
    if "log_lira" in evidence.given and variance == VARIANCE:
        return None

    def by_chance() -> ByChance:
        _, members, gaps, _ = member_gaps(evidence, "final")
        return ByChance.of(gaps, members, variance)

    state = _state(evidence, evidence.names.record("final").name), evidence.n_shadows
    simulated = evidence.cache.of(("by chance", variance), state, by_chance)
    share = ("share by chance", variance, eta)
    return evidence.cache.of(share, state, lambda: simulated.share(eta))


def notes_on_chance(evidence: Evidence, eta: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Say how many members chance alone would make memorised: as a warning, or as a remark.

    Both are empty where nothing can be said.
    """
    share = share_by_chance(evidence, eta) if evidence.has_ground_truth else None
    if share is None:
        return (), ()
    values = log_lira(evidence)
    found, expected = int((values >= eta).sum()), share * len(values)
    note = f"At η = {eta:g}, {chance_note(expected, found, evidence.n_shadows)}"
    return ((note,), ()) if is_much_by_chance(expected, found) else ((), (note,))


def notes_on_shape(evidence: Evidence, checkpoint: str | float = "final") -> tuple[str, ...]:
    """Say if the gaps of the shadow models are plainly not Gaussian, as all of LiRA assumes."""
    if not evidence.n_shadows:
        return ()
    record = evidence.names.record(checkpoint)

    def found() -> tuple[str, ...]:
        _, members, gaps, _ = member_gaps(evidence, record.name)
        note = note_on_shape(gaps, members)
        return () if note is None else (note,)

    state = _state(evidence, record.name), evidence.n_shadows
    return evidence.cache.of(("shape", record.name), state, found)


def memorized_members(
    evidence: Evidence, truth: str | ArrayLike, eta: float, variance: str = VARIANCE
) -> pd.Series:
    """Return whether each member counts as memorised, by id.

    Raises
    ------
    ValueError, TypeError
        If the truth is unknown, is not a mask over the members, or η is not a number.
    """
    if isinstance(truth, str):
        if is_log_lira(truth):
            return log_lira(evidence, variance=variance) >= real_number("eta", eta)
        if truth != "canaries":
            raise ValueError(f"unknown truth {truth!r}; valid: log_lira, canaries, or a mask")
        canaries = evidence.data.canaries
        if canaries is None:
            raise NotGivenError(
                "nobody said which samples are canaries: give Audit.from_arrays canaries=, a mask "
                f"over the {len(evidence.data)} samples"
                if evidence.kind == "arrays"
                else "these data have no canaries: plant some with with_canaries"
            )
        return pd.Series(canaries[evidence.member_rows], evidence.members)
    if isinstance(truth, pd.Series):
        unknown = truth.index.difference(pd.Index(evidence.members))
        if len(unknown) or truth.dtype != np.bool_:
            raise ValueError(
                f"truth must be boolean and indexed by members' ids; it is {truth.dtype} and "
                f"{len(unknown)} of its ids are no members'"
            )
        return truth.reindex([i for i in evidence.members if i in truth.index])
    mask, n = np.asarray(truth), len(evidence.member_rows)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise ValueError(
            f"truth must be a boolean mask over the {n} members, not {mask.dtype} of shape "
            f"{mask.shape}"
        )
    return pd.Series(mask, evidence.members)


def probability_memorized(
    evidence: Evidence, eta: float, checkpoint: str | float = "final"
) -> pd.Series:
    """Return the probability that each member is memorised, as the audit's method describes."""
    eta, record = real_number("eta", eta), evidence.names.record(checkpoint)
    if not evidence.n_shadows and "log_lira" in evidence.given:
        raise NotGivenError(_ONLY_VALUES)

    def computed() -> Floats:
        known = against(evidence, record, HIERARCHICAL)
        return memorization.hierarchical_probability(
            known.gaps,
            known.members,
            evidence.target_gaps(record),
            eta,
            early_gaps=known.early,
            judged=known.judged,
        )

    if 0 < evidence.n_shadows < _FEWEST_CALIBRATED:  # without any, log-LiRA says what is missing
        warn_user(
            f"from {evidence.n_shadows} shadow models these probabilities can be far from right, "
            "and are often too high. Rank members by them, and rely on their values from "
            f"{_FEWEST_CALIBRATED} shadow models on."
        )
    for note in notes_on_shape(evidence, checkpoint):
        warn_user(note)
    early = covariates_at(evidence, record)
    question = "probability", record.name, early, eta
    found = evidence.cache.of(question, _state(evidence, record.name, early), computed)
    return pd.Series(found.copy(), pd.Index(evidence.members, name="id")).dropna()


def probably_memorized(
    evidence: Evidence,
    truth: str | ArrayLike,
    eta: float,
    scores: pd.Series | None = None,
    variance: str = VARIANCE,
) -> pd.Series:
    """Return the probability that each member is memorised; of those with a score, if given."""
    if not is_log_lira(truth):
        raise ValueError('only truth="log_lira" can be uncertain: no other has an error')
    if variance == HIERARCHICAL:
        return probability_memorized(evidence, eta)
    table = log_lira_table(evidence, "final", variance, "online", return_std=True)
    values, errors, given = table["log_lira"], table["log_lira_std"], None
    if scores is not None:
        both = values.index.intersection(scores.index, sort=False)
        values, errors, given = values[both], errors[both], scores[both].to_numpy()
    probability = memorization.probability_memorized(values, errors, real_number("eta", eta), given)
    return pd.Series(probability, values.index).dropna()


def is_log_lira(truth: str | ArrayLike) -> bool:
    """Whether the truth is log-LiRA."""
    return isinstance(truth, str) and truth == "log_lira"


def positives(truth: str | ArrayLike) -> str:
    """What the positives of a truth are, as in "87 of 4444 samples are …"."""
    if not isinstance(truth, str):
        return "positive as given"
    return "memorised" if truth == "log_lira" else "planted (canaries)"


def lacking(truth: str | ArrayLike) -> str:
    """What members that are left out do not have."""
    if isinstance(truth, str):
        return "no score or no log-LiRA" if truth == "log_lira" else "no score"
    return "no score or no place in the truth that was given"
