"""An audit as the dashboard sees it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit import scoring
from memowidgets.audit.details import Details
from memowidgets.audit.parts.evaluated import SHARED_NOISE
from memowidgets.data import Dataset
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.visible import visible
from memowidgets.widgets.protocol import Choice, SampleDetail, ScoreView

if TYPE_CHECKING:
    from memowidgets.audit.audit import Audit
    from memowidgets.decisions import DecisionLog

__all__ = ["TITLES", "AuditView"]

TITLES = {
    "psmi": "PSMI",
    "loss": "Loss",
    "logit_gap": "Logit gap",
    "mahalanobis": "Mahalanobis",
    "baseline": "Baseline",
}
_ETA = 4.0  # where the dashboard's η stands at first
_QUICK_VALUES = 2_000_000
_GROWING = ("checkpoints", "forward", "scores", "shadows")


class AuditView:
    """Answers the dashboard's questions from an audit.

    Parameters
    ----------
    audit : Audit
        Whose numbers are shown.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._details = Details(audit)
        self._log_lira_of: tuple[object, NDArray[np.float64]] | None = None
        self._probabilities_at: tuple[object, NDArray[np.float64]] | None = None

    def checkpoint_choices(self) -> Sequence[Choice]:
        """Checkpoints after step 0, with epoch and drop."""
        table = self._audit.checkpoints
        return [
            Choice(str(name), _when(row), bool(row.prediction) and not np.isnan(row.epoch))
            for name, row in table[table["step"] != 0].iterrows()
        ]

    def layer_choices(self) -> Sequence[Choice]:
        """Layers by name; the last is the recommended one."""
        layers = self._audit.layers
        if not layers:
            return [Choice("last", "none", marked=True)]
        return [
            Choice(
                name,
                layer_label(name, last=name == layers[-1]),
                name == layers[-1],
            )
            for name in layers
        ]

    def score_choices(self) -> Sequence[Choice]:
        """All scores; the baseline only where there are shadow models."""
        return [
            Choice(name, TITLES[name], name == "psmi", uses_layer=name in scoring.PER_LAYER)
            for name in self._audit.metrics
        ]

    def is_computed(self, score: str, layer: str, checkpoint: str) -> bool:
        """Whether `view` answers from disk."""
        return self._audit.is_computed(score, layer, checkpoint)

    def is_quick(self, score: str, layer: str, checkpoint: str) -> bool:
        """Whether `view` takes about a second or less: a small layer that needs no forward pass."""
        if score not in scoring.PER_LAYER:
            return False
        try:
            representation = self._audit.representation(layer, checkpoint)
        except (StoreError, ValueError):
            return False
        return bool(representation.size <= _QUICK_VALUES)

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> ScoreView:
        """The numbers behind a choice, computed if need be."""
        audit = self._audit
        scores = audit.raw_scores(score, layer, checkpoint, progress)
        probabilities = self._probabilities(checkpoint)
        shared = (SHARED_NOISE,) if score == "baseline" else ()
        return ScoreView(
            title=self._title(score, layer, checkpoint),
            scores=scores.mu,
            labels=audit.labels[scores.rows],
            positions=scores.rows,
            errors=scores.errors,
            log_lira=self._log_lira(scores.rows),
            probabilities=None if probabilities is None else probabilities[scores.rows],
            warnings=(*shared, *audit.warnings_at(checkpoint), *audit._notes_on_chance(_ETA)),  # noqa: SLF001
        )

    def revision(self) -> frozenset[tuple[str, int]]:
        """Differs once there is another checkpoint, score or shadow model, or another truth."""
        run = Path(self._audit.path)
        folders = [run / part for part in _GROWING if not (run / part).is_symlink()]
        files = (file for folder in folders for file in folder.rglob("*.safetensors"))
        there = {(str(file.relative_to(run)), _written(file)) for file in files}
        return frozenset(there | {self._audit.truth_version})

    def samples(self) -> Dataset:
        """The target's members, in the order that positions count."""
        return self._audit.member_data

    def detail(self, position: int, score: str, layer: str, checkpoint: str) -> SampleDetail:
        """All that is known of one member."""
        return self._details.of(
            position,
            (score, layer, checkpoint),
            title=TITLES[score],
            checkpoints=self.checkpoint_choices(),
            layers=self.layer_choices(),
        )

    def let_go(self) -> None:
        """Forget what is kept to answer faster."""
        self._log_lira_of = self._probabilities_at = None
        self._details = Details(self._audit)

    @property
    def decision_log(self) -> DecisionLog:
        """The audit's decisions."""
        return self._audit.decision_log

    def device_status(self) -> str:
        """The device and its memory in a few words."""
        return self._audit.device_status()

    def _title(self, score: str, layer: str, checkpoint: str) -> str:
        place = f", {visible(layer, 60)}" if score in scoring.PER_LAYER else ""
        return f"{TITLES[score]}{place}, {visible(checkpoint.replace('-', ' '), 60)}"

    def _probabilities(self, checkpoint: str) -> NDArray[np.float64] | None:
        """Those of all members at a checkpoint, kept while it is looked at."""
        if "loss" not in self._audit.metrics:
            return None
        kept = self._probabilities_at  # another thread may let go of it meanwhile
        asked = self._audit._pass_state(checkpoint)  # noqa: SLF001 - the same room
        if kept is None or kept[0] != asked:
            kept = self._probabilities_at = asked, self._audit.probabilities(checkpoint)
        return kept[1]

    def _log_lira(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        if not self._audit.has_ground_truth:
            return None
        version = self._audit.truth_version
        kept = self._log_lira_of
        if kept is None or kept[0] != version:
            kept = self._log_lira_of = version, self._aligned_log_lira()
        return kept[1][rows]

    def _aligned_log_lira(self) -> NDArray[np.float64]:
        """One value for each member, in their order; NaN for those that have none."""
        known, members = self._audit.log_lira(), self._audit.members
        if len(known) < len(members):  # by name only where need be: it takes its time
            known = known.reindex(members)
        return known.to_numpy(dtype=np.float64)


def layer_label(name: str, *, last: bool) -> str:
    """What the user reads of a layer: "layer 30 (last)" for a number, else its name.

    Examples
    --------
    >>> layer_label("30", last=True), layer_label("block1.conv2", last=False)
    ('layer 30 (last)', 'block1.conv2')
    """
    shown = f"layer {name}" if name.isdecimal() else visible(name, 60)
    return f"{shown} (last)" if last else shown


def _when(row: pd.Series) -> str:
    """When a checkpoint was; nobody knows that of arrays."""
    return "as given" if np.isnan(row.epoch) else f"epoch {row.epoch:g} · drop {row['drop']:.1%}"


def _written(file: Path) -> int:
    """When a file was written; 0 if it is gone meanwhile."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
