"""The part of an audit that holds its target against the shadow models: who is memorised."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets import memorization
from memowidgets.audit.parts.trained import TrainedAudit
from memowidgets.evaluation import chance_note
from memowidgets.memorization.chance import ByChance
from memowidgets.metrics import logit_gap
from memowidgets.training.rho import Record

if TYPE_CHECKING:
    from memowidgets.audit.comparing import MemorizationComparison

__all__ = ["JudgedAudit"]


class JudgedAudit(TrainedAudit):
    """Knows who is memorised."""

    @overload
    def log_lira(
        self,
        checkpoint: str | float = ...,
        variance: str = ...,
        mode: str = ...,
        *,
        return_std: Literal[False] = ...,
    ) -> pd.Series: ...

    @overload
    def log_lira(
        self,
        checkpoint: str | float = ...,
        variance: str = ...,
        mode: str = ...,
        *,
        return_std: Literal[True],
    ) -> tuple[pd.Series, pd.Series]: ...

    def log_lira(
        self,
        checkpoint: str | float = "final",
        variance: str = "shrunk",
        mode: str = "online",
        *,
        return_std: bool = False,
    ) -> pd.Series | tuple[pd.Series, pd.Series]:
        """How strongly the target gives away that it trained on each member (paper, Appendix A).

        Parameters
        ----------
        checkpoint : str, float
            Target and shadow models are compared at the same one.
        variance : {"shrunk", "per-sample", "global"}
            Of the gaps, see `memowidgets.memorization.log_lira`.
        mode : {"online", "offline"}
            Both sides, or the models that did not train on a sample alone.
        return_std : bool
            Whether to return standard errors too, from a jackknife over the shadow models.

        Returns
        -------
        Series
            log p_in − log p_out of the target's logit gap, by id, in nats. Members that are in
            every shadow model or in none have no log-LiRA and are left out; ``attrs["left_out"]``
            says how many.
        Series
            The standard errors, if `return_std`; NaN where there are too few to leave one out.

        Raises
        ------
        ValueError
            If no member is in two shadow models and out of two others.
        StoreError
            If there are no shadow models, or none that kept this checkpoint.
        """
        record = self._catalogue.record(checkpoint)
        asked, state = (record.name, variance, mode, return_std), self._gaps_state(record.name)
        known = self._log_lira.get(asked)
        if known is None or known[0] != state:
            table = self._computed_log_lira(record, variance, mode, return_std)
            known = self._log_lira[asked] = state, table
        table = known[1]
        series = table["log_lira"].copy()
        series.attrs["left_out"] = len(self._design.members) - len(series)
        return (series, table["log_lira_std"].copy()) if return_std else series

    def member_gaps(
        self, checkpoint: str | float = "final"
    ) -> tuple[str, NDArray[np.bool_], NDArray[np.float32], NDArray[np.float32]]:
        """What log-LiRA compares.

        Returns
        -------
        str
            Name of the checkpoint.
        array of shape (n_shadows, n_members), bool
            Which shadow model trained on which of the target's members.
        array of shape (n_shadows, n_members), float32
            Their logit gaps.
        array of shape (n_members,), float32
            The target's.

        Raises
        ------
        StoreError
            If there are no shadow models, or none that kept this checkpoint.
        """
        record = self._catalogue.record(checkpoint)
        shadows = self._shadows.read(record.name)
        columns = np.searchsorted(self._design.pool, self._design.members)
        chosen = shadows.members[:, columns], shadows.gaps[:, columns]
        return record.name, *chosen, self._target_gaps(record).astype(np.float32)

    def compare_memorization(
        self,
        checkpoint: str | float = "final",
        variance: str = "shrunk",
        n_bootstrap: int = 500,
        random_state: int = 0,
    ) -> MemorizationComparison:
        """How far the definitions of memorisation agree (paper, Appendix C).

        Parameters
        ----------
        checkpoint : str, float
            Target and shadow models are compared at the same one.
        variance : {"shrunk", "per-sample", "global"}
            Of LiRA, local and global.
        n_bootstrap, random_state : int
            Resamples of the members for the intervals, and their seed.

        Returns
        -------
        MemorizationComparison
            ``spearman``: ρ with its interval for each pair; ``values``: each member's
            memorisation by each definition, from all shadow models; ``figure()``: the picture;
            ``note``: what the two definitions of a pair share. From 8 shadow models on, ρ is
            between two disjoint halves of them, because definitions from the same models share
            their noise and agree too well.
        """
        from memowidgets.audit.comparing import compared_definitions

        record = self._catalogue.record(checkpoint)
        _, members, gaps, _ = self.member_gaps(record.name)
        target, others = self._target_gaps(record), self._others(record)
        return compared_definitions(
            self.members,
            gaps,
            members,
            target,
            others,
            variance,
            n_bootstrap,
            random_state,
            pairs=self._shadows.key != "halves",
        )

    def _computed_log_lira(
        self, record: Record, variance: str, mode: str, return_std: bool
    ) -> pd.DataFrame:
        _, members, gaps, _ = self.member_gaps(record.name)
        target = self._target_gaps(record)
        table = pd.DataFrame(index=pd.Index(self.members, name="id"))
        if return_std:
            table["log_lira"], table["log_lira_std"] = memorization.log_lira(
                gaps, members, target, variance, mode, return_std=True
            )
        else:
            table["log_lira"] = memorization.log_lira(gaps, members, target, variance, mode)
        return table.dropna(subset="log_lira")

    def _share_by_chance(self, eta: float) -> float | None:
        """Share of members with log-LiRA of at least η if nothing were memorised.

        None where log-LiRA was given as it is, without shadow models.
        """
        if not len(self._shadows):
            return None
        name, members, gaps, _ = self.member_gaps("final")
        of = self._design.members.tobytes()
        key = (name, self._shadows.key, self.n_shadows, of)
        if key not in self._chance:
            self._chance[key] = ByChance.of(gaps, members)
        return self._chance[key].share(eta)

    def _notes_on_chance(self, eta: float) -> tuple[str, ...]:
        """How many members chance alone would make memorised, for dashboard and report."""
        share = self._share_by_chance(eta) if self.has_ground_truth else None
        if share is None:
            return ()
        values = self.log_lira()
        found = int((values >= eta).sum())
        note = chance_note(share * len(values), found, self.n_shadows)
        return (f"At η = {eta:g}, {note}",)

    @cached_property
    def _chance(self) -> dict[tuple[Any, ...], ByChance]:
        return {}

    def _target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        return logit_gap(self._pass(record, None).logits(), self.labels)

    def _others(
        self, record: Record
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.float32]] | None:
        """Shadow gaps, masks and target gaps of the pool's samples that are no members.

        None where the target can't be asked.
        """
        pool = self._design.pool
        columns = np.flatnonzero(~np.isin(pool, self._design.members))
        target = self._gaps_of(record, pool[columns]) if len(columns) > 1 else None
        if target is None:
            return None
        shadows = self._shadows.read(record.name)
        return shadows.gaps[:, columns], shadows.members[:, columns], target

    @property
    def _asks_model_for_others(self) -> bool:
        """Whether `_others` makes a forward pass."""
        return self._can_compute and len(self._design.pool) - len(self._design.members) > 1

    def _gaps_of(self, record: Record, positions: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """The target's gaps of any samples; None without its model or data."""
        if not self._can_compute:
            return None
        logits = self._target().look(record.name, positions).logits
        return logit_gap(logits, self._data.labels[positions]).astype(np.float32)
