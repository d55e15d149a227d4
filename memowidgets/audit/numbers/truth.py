"""The ground truth: log-LiRA from shadow models, and who counts as memorised."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from memowidgets import memorization
from memowidgets.audit.source import NotGivenError, Source
from memowidgets.evaluation import chance_note
from memowidgets.memorization.chance import ByChance
from memowidgets.training.rho import Record

if TYPE_CHECKING:
    from memowidgets.audit.numbers.definitions import MemorizationComparison

__all__ = [
    "VARIANCE",
    "are_pairs",
    "asks_model_for_others",
    "checked_eta",
    "compared_definitions_of",
    "gaps_of_others",
    "is_log_lira",
    "lacking",
    "log_lira",
    "log_lira_table",
    "member_gaps",
    "memorized_members",
    "notes_on_chance",
    "positives",
    "probably_memorized",
    "share_by_chance",
    "truth_version",
]

VARIANCE = "shrunk"

Floats = NDArray[np.float64]
Gaps = NDArray[np.float32]
Mask = NDArray[np.bool_]


def log_lira(
    source: Source,
    checkpoint: str | float = "final",
    variance: str = VARIANCE,
    mode: str = "online",
) -> pd.Series:
    """Return log-LiRA of each member that has one, as `Audit.log_lira` describes."""
    return log_lira_table(source, checkpoint, variance, mode, return_std=False)["log_lira"]


def log_lira_table(
    source: Source,
    checkpoint: str | float,
    variance: str,
    mode: str,
    *,
    return_std: bool,
) -> pd.DataFrame:
    """Return the columns ``log_lira`` and, if asked for, ``log_lira_std``, by id."""
    record = source.names.record(checkpoint)
    question = ("log_lira", record.name, variance, mode, return_std)
    state = source.gaps_state(record.name)
    table = source.cache.of(
        question,
        state,
        lambda: _computed_log_lira(source, record, variance, mode, return_std=return_std),
    )
    return table.copy()


def member_gaps(source: Source, checkpoint: str | float = "final") -> tuple[str, Mask, Gaps, Gaps]:
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
    record = source.names.record(checkpoint)
    shadows = source.shadows.read(record.name)
    columns = np.searchsorted(source.pool_rows, source.member_rows)
    chosen = shadows.members[:, columns], shadows.gaps[:, columns]
    return record.name, *chosen, source.target_gaps(record).astype(np.float32)


def compared_definitions_of(
    source: Source,
    checkpoint: str | float,
    variance: str,
    n_bootstrap: int,
    random_state: int,
) -> MemorizationComparison:
    """Compare the definitions of memorisation, as `Audit.compare_memorization` describes."""
    from memowidgets.audit.numbers.definitions import compared_definitions

    record = source.names.record(checkpoint)
    _, members, gaps, _ = member_gaps(source, record.name)
    target, others = source.target_gaps(record), gaps_of_others(source, record)
    return compared_definitions(
        source.members,
        gaps,
        members,
        target,
        others,
        variance,
        n_bootstrap,
        random_state,
        pairs=are_pairs(source),
    )


def are_pairs(source: Source) -> bool:
    """Whether shadow models were trained in complementary pairs."""
    return source.shadows.key != "halves"


def gaps_of_others(source: Source, record: Record) -> tuple[Gaps, Mask, Gaps] | None:
    """Return shadow gaps, masks and target gaps of the pool's samples that are not members.

    None where the target cannot be asked.
    """
    columns = _others(source)
    target = source.gaps_of(record, source.pool_rows[columns]) if len(columns) > 1 else None
    if target is None:
        return None
    shadows = source.shadows.read(record.name)
    return shadows.gaps[:, columns], shadows.members[:, columns], target


def asks_model_for_others(source: Source) -> bool:
    """Whether `gaps_of_others` makes a forward pass."""
    return source.asks_model and len(_others(source)) > 1


def truth_version(source: Source) -> tuple[str, int]:
    """Return a value that changes when log-LiRA at the end of training may."""
    final = source.names.final()
    key, files = source.gaps_state("" if final is None else final.name)
    return key, hash(files)


def share_by_chance(source: Source, eta: float) -> float | None:
    """Return the share of members with log-LiRA of at least η if nothing were memorised.

    None where log-LiRA was given as it is, without the shadow models behind it.
    """
    if source.given_log_lira is not None or not len(source.shadows):
        return None

    def by_chance() -> ByChance:
        _, members, gaps, _ = member_gaps(source, "final")
        return ByChance.of(gaps, members)

    state = source.gaps_state(source.names.record("final").name), len(source.shadows)
    simulated = source.cache.of("by chance", state, by_chance)
    return source.cache.of(("share by chance", eta), state, lambda: simulated.share(eta))


def notes_on_chance(source: Source, eta: float) -> tuple[str, ...]:
    """Say how many members chance alone would make memorised."""
    share = share_by_chance(source, eta) if source.has_ground_truth else None
    if share is None:
        return ()
    values = log_lira(source)
    found = int((values >= eta).sum())
    note = chance_note(share * len(values), found, len(source.shadows))
    return (f"At η = {eta:g}, {note}",)


def memorized_members(source: Source, truth: str | ArrayLike, eta: float) -> pd.Series:
    """Return whether each member counts as memorised, by id.

    Raises
    ------
    ValueError, TypeError
        If the truth is unknown, is not a mask over the members, or η is not a number.
    """
    if isinstance(truth, str):
        if is_log_lira(truth):
            return log_lira(source) >= checked_eta(eta)
        if truth != "canaries":
            raise ValueError(f"unknown truth {truth!r}; valid: log_lira, canaries, or a mask")
        return _canaries(source)
    if isinstance(truth, pd.Series):
        return _by_id(source, truth)
    mask, n = np.asarray(truth), len(source.member_rows)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise ValueError(
            f"truth must be a boolean mask over the {n} members, not {mask.dtype} of shape "
            f"{mask.shape}"
        )
    return pd.Series(mask, source.members)


def probably_memorized(
    source: Source, truth: str | ArrayLike, eta: float, scores: pd.Series | None = None
) -> pd.Series:
    """Return the probability that each member is memorised; of those with a score, if given."""
    if not is_log_lira(truth):
        raise ValueError('only truth="log_lira" can be uncertain: no other has an error')
    table = log_lira_table(source, "final", VARIANCE, "online", return_std=True)
    values, errors, given = table["log_lira"], table["log_lira_std"], None
    if scores is not None:
        both = values.index.intersection(scores.index, sort=False)
        values, errors, given = values[both], errors[both], scores[both].to_numpy()
    probability = memorization.probability_memorized(values, errors, checked_eta(eta), given)
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


def checked_eta(eta: Any) -> float:
    """Return η as a number.

    Raises
    ------
    TypeError
        If it is not a number.
    """
    if isinstance(eta, bool) or not isinstance(eta, numbers.Real):
        raise TypeError(f"eta must be a number, such as 4.0, not {eta!r}")
    return float(eta)


def _computed_log_lira(
    source: Source, record: Record, variance: str, mode: str, *, return_std: bool
) -> pd.DataFrame:
    index = pd.Index(source.members, name="id")
    given = source.given_log_lira
    if given is not None and (variance, mode, return_std) == (VARIANCE, "online", False):
        return pd.DataFrame({"log_lira": given}, index).dropna()
    if given is not None and not len(source.shadows):
        raise NotGivenError(
            "log_lira was given as it is: standard errors, other variances and modes need "
            "shadow_gaps= and shadow_members= beside logits="
        )
    _, members, gaps, _ = member_gaps(source, record.name)
    target = source.target_gaps(record)
    table = pd.DataFrame(index=index)
    if return_std:
        table["log_lira"], table["log_lira_std"] = memorization.log_lira(
            gaps, members, target, variance, mode, return_std=True
        )
    else:
        table["log_lira"] = memorization.log_lira(gaps, members, target, variance, mode)
    return table.dropna(subset="log_lira")


def _others(source: Source) -> NDArray[np.int64]:
    """Columns of the pool that are not members."""
    return np.flatnonzero(~np.isin(source.pool_rows, source.member_rows))


def _canaries(source: Source) -> pd.Series:
    canaries = source.data.canaries
    if canaries is None:
        raise NotGivenError(source.cannot("canaries"))
    return pd.Series(canaries[source.member_rows], source.members)


def _by_id(source: Source, truth: pd.Series) -> pd.Series:
    unknown = truth.index.difference(pd.Index(source.members))
    if len(unknown) or truth.dtype != np.bool_:
        raise ValueError(
            f"truth must be boolean and indexed by members' ids; it is {truth.dtype} and "
            f"{len(unknown)} of its ids are no members'"
        )
    return truth.reindex([i for i in source.members if i in truth.index])
