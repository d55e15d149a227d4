"""The figures of the paper, drawn from the numbers that are computed already."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets import charts
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.definitions import compared_definitions
from memowidgets.audit.numbers.scores import EARLY, SCORES
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    asks_model_for_others,
    gaps_of_others,
    member_gaps,
)
from memowidgets.audit.views.computed import (
    Computed,
    NotThereError,
    Reason,
    Truth,
    areas,
    named,
    said,
)
from memowidgets.charts.look import Theme, theme_named, unvalidated
from memowidgets.checks import real_number, several
from memowidgets.store import StoreError

if TYPE_CHECKING:
    from memowidgets.evaluation import Evaluation

__all__ = ["audit_figures", "figures_by_setting"]

NAMES = (
    "training",
    "roc",
    "roc_by_checkpoint",
    "over_training",
    "auc_by_layer",
    "auc_by_eta",
    "roc_by_eta",
    "lira_over_training",
    "definitions",
)
ETAS = tuple(np.arange(1, 12.5, 0.5).tolist())
PANEL_ETAS = (4.0, 6.0, 8.0, 10.0)
_PREDICTORS = ("psmi", "loss", "logit_gap")
_ALL_SCORES = tuple(SCORES)
_OF_LAYER = tuple(name for name, known in SCORES.items() if known.of_layer is not None)
_MOST_PANELS = 12
_FEWEST = 2  # samples of a kind: with one the AUC has no interval


def audit_figures(
    evidence: Evidence,
    eta: float = 4.0,
    truth: Truth = "log_lira",
    etas: Iterable[float] | None = None,
    compute: bool = False,
    theme: str = "light",
    targets: str = "own",
) -> charts.Figures:
    """All figures that the audit's data allow, as `Audit.figures` says."""
    if targets not in ("own", "all"):
        raise ValueError(f"targets must be 'own' or 'all', not {targets!r}")
    desk, chosen = _Desk(evidence, eta, truth, compute, theme, pooled=targets == "all"), ETAS
    if etas is not None:
        chosen = tuple(real_number("an eta", eta, finite=True) for eta in several("etas", etas))
    desk.draw("training", desk.training)
    desk.draw("roc", desk.roc)
    desk.draw("roc_by_checkpoint", desk.roc_by_checkpoint)
    desk.draw("over_training", desk.over_training)
    desk.draw("auc_by_layer", desk.auc_by_layer)
    desk.draw("auc_by_eta", lambda: desk.auc_by_eta(chosen))
    panels = PANEL_ETAS if etas is None else chosen
    desk.draw("roc_by_eta", lambda: desk.roc_by_eta(panels))
    desk.draw("lira_over_training", desk.lira_over_training)
    desk.draw("definitions", desk.definitions)
    return desk.finished()


def figures_by_setting(
    settings: Mapping[str, Evidence],
    eta: float = 4.0,
    truth: Truth = "log_lira",
    compute: bool = False,
    theme: str = "light",
) -> charts.Figures:
    """Draw several audits side by side, as `memowidgets.audit.figures_by_setting` describes."""
    if not settings:
        raise ValueError("give at least one audit, by the name of its setting")
    rows, curves, missing, drops = [], [], [], {}
    for setting, evidence in settings.items():
        desk = _Desk(evidence, eta, truth, compute, theme)
        table = evidence.table()
        drops[setting] = pd.Series(table["drop"].to_numpy(), table["epoch"].to_numpy())
        found, why = desk.numbers.evaluations(_PREDICTORS)
        rows.append(areas(found).assign(setting=setting))
        if "psmi" in found:
            curves.append(charts.roc_table({setting: found["psmi"]}))
        missing += [f"{setting}: {reason}" for reason in said(why)]
    together = _Drawn(theme)
    together.tables["drops"] = pd.DataFrame(drops).sort_index().T.rename_axis("setting")
    together.add("auc_by_setting", charts.auc_by_setting, rows, missing)
    together.add("roc_by_setting", charts.roc_curves, curves, missing, marked=None)
    return together.finished()


def score_theme(theme: str) -> Theme:
    """Return a theme that knows the scores' titles, and so gives each its colour."""
    return replace(theme_named(theme), titles={name: known.title for name, known in SCORES.items()})


class _Drawn:
    """Collects figures, tables and reasons for missing figures."""

    def __init__(self, theme: str) -> None:
        self.theme = score_theme(theme)
        self.charts: dict[str, Any] = {}
        self.tables: dict[str, pd.DataFrame] = {}
        self.data: dict[str, pd.DataFrame] = {}
        self.missing: dict[str, str] = {}
        self.notes: dict[str, Sequence[str]] = {}

    def add(
        self,
        name: str,
        chart: Callable[..., Any],
        tables: Sequence[pd.DataFrame],
        notes: Sequence[Reason],
        **options: Any,
    ) -> None:
        """Draw a figure from tables, or record why it is missing."""
        filled = [table for table in tables if len(table)]
        if not filled:
            self.missing[name] = "; ".join(said(notes))
            return
        self.data[name] = pd.concat(filled, ignore_index=True)
        with unvalidated():
            self.charts[name] = chart(self.data[name], theme=self.theme, **options)
        self.notes[name] = said(notes)

    def finished(self) -> charts.Figures:
        return charts.Figures(self.charts, self.tables, self.data, self.missing, self.notes)


class _Desk(_Drawn):
    """Draws the figures of one audit from its computed numbers."""

    def __init__(
        self,
        evidence: Evidence,
        eta: float,
        truth: Truth,
        compute: bool,
        theme: str,
        *,
        pooled: bool = False,
    ) -> None:
        super().__init__(theme)
        eta = real_number("eta", eta)
        if not math.isfinite(eta):
            raise ValueError(f"eta must be a number, not {eta}")
        self.evidence, self.eta = evidence, eta
        self.pooled = pooled
        self.numbers = Computed(evidence, eta, truth, compute)
        self.checkpoints = evidence.table()
        self.names = [str(name) for name in self.checkpoints.index]
        trained = self.checkpoints["step"] != 0
        self.later = [str(name) for name in self.checkpoints.index[trained]]
        self._epochs = dict(zip(self.names, self.checkpoints["epoch"].to_numpy(float), strict=True))
        columns = ["epoch", "step", "median_loss", "drop", "prediction"]
        self.tables["drops"] = self.checkpoints[columns]

    def draw(self, name: str, figure: Callable[[], None]) -> None:
        """Draw one figure, or record why it is missing."""
        if not self.later:
            self.missing[name] = "the target is not trained yet: audit.train()"
            return
        try:
            figure()
        except (NotThereError, ValueError, StoreError) as error:
            self.missing[name] = str(error)

    def _label(self, name: str) -> str:
        """Return the label of a checkpoint."""
        epoch = self._epochs[name]
        label = name if math.isnan(epoch) else f"epoch {epoch:g}"
        chosen = len(self.names) > 1 and name == self.numbers.name("prediction")
        return f"{label}, predict here" if chosen else label

    # The figures

    def training(self) -> None:
        """Loss and accuracy over training."""
        if len(self.checkpoints) < _FEWEST:
            raise NotThereError(
                "there is only one checkpoint, so there are no curves of the training"
            )
        held_out = self.checkpoints["test_loss"].notna().any()
        notes = [] if held_out else ["there are no held-out samples, and so no held-out curves"]
        self.add("training", charts.loss_and_accuracy, [self.checkpoints.reset_index()], notes)

    def roc(self) -> None:
        """All scores at the prediction checkpoint."""
        at_end = self._is_final(self.numbers.name("prediction"))
        found, why = self.numbers.evaluations(EARLY if at_end else _ALL_SCORES)
        notes: list[Reason] = [note for result in found.values() for note in result.warnings]
        if at_end and found:
            notes.append(
                "the baseline is left out, because at the last checkpoint it is the ground truth"
            )
        curves = [charts.roc_table(found)] if found else []
        self.add("roc", charts.roc_curves, curves, [*notes, *why])

    def _is_final(self, name: str) -> bool:
        try:
            return name == self.numbers.name("final")
        except ValueError:  # not trained to the end yet
            return False

    def roc_by_checkpoint(self) -> None:
        """All scores at each checkpoint."""
        curves, names = [], self._some(self.later)
        notes: list[Reason] = []
        for name in names:
            found, why = self.numbers.evaluations(_ALL_SCORES, name)
            notes += why
            if found:
                curves.append(charts.roc_table(found, panel=self._label(name)))
        if len(curves) == 1:
            raise NotThereError(
                'there are scores at only one checkpoint: audit.compare(checkpoints="all") '
                f"computes the others; {'; '.join(said(notes))}"
            )
        if len(names) < len(self.later):
            notes.append(f"{len(names)} of {len(self.later)} checkpoints are shown")
        self.add("roc_by_checkpoint", charts.roc_panels, curves, notes)

    def _some(self, names: list[str]) -> list[str]:
        """Select evenly spaced checkpoints, with the prediction checkpoint and the last."""
        if len(names) <= _MOST_PANELS:
            return names
        spread = np.linspace(0, len(names) - 1, _MOST_PANELS - 1).round().astype(int)
        chosen = {names[i] for i in spread} | {self.numbers.name("prediction")}
        return [name for name in names if name in chosen]

    def over_training(self) -> None:
        """AUC, median loss, PSMI and log-LiRA at every checkpoint."""
        if self.numbers.no_truth:
            raise NotThereError(self.numbers.no_truth)
        auc, groups = [], []
        notes: list[Reason] = []
        for name, epoch in self._epochs.items():
            found, why = self.numbers.evaluations(_PREDICTORS, name)
            if name in self.later:  # nothing is predicted before training
                auc.append(areas(found, layer="", checkpoint=name, epoch=epoch))
                notes += why
            if "psmi" in found:
                result = found["psmi"]
                groups.append(_quartiles("psmi", epoch, result.scores, result.memorized))
            groups.append(self._groups_of_lira(name, epoch, notes))
        rows = pd.concat(auc, ignore_index=True)
        if rows.empty or rows["checkpoint"].nunique() < _FEWEST:
            raise NotThereError(
                'there are scores at fewer than two checkpoints: audit.compare(checkpoints="all") '
                f"computes them; {'; '.join(said(notes))}"
            )
        table = pd.concat(groups, ignore_index=True)
        if len(table):
            table = table.sort_values("quantity", ascending=False, kind="stable", ignore_index=True)
            self.data["over_training_groups"] = table
        self.data["over_training"] = rows
        self.charts["over_training"] = charts.over_training(
            self.checkpoints.reset_index(),
            rows,
            table if len(table) else None,
            self.numbers.positives,
            self.theme,
        )
        self.notes["over_training"] = said(notes)

    def _groups_of_lira(self, name: str, epoch: float, notes: list[Reason]) -> pd.DataFrame:
        try:
            values = self.numbers.log_lira(name)
        except NotThereError as error:
            notes.append(error)
            return pd.DataFrame()
        truth = self.numbers.memorized()
        both = values.index.intersection(truth.index, sort=False)
        return _quartiles(
            "log_lira", epoch, values[both].to_numpy(), truth[both].to_numpy(dtype=np.bool_)
        )

    def auc_by_layer(self) -> None:
        """PSMI and Mahalanobis at each layer, at the prediction checkpoint."""
        layers = self.evidence.names.layer_names
        if len(layers) < _FEWEST:
            raise NotThereError(f"there is only one layer, {', '.join(layers)}")
        rows = []
        notes: list[Reason] = []
        for layer in layers:
            found, why = self.numbers.evaluations(_OF_LAYER, layer=layer)
            rows.append(areas(found, layer=layer))
            notes += why
        if sum(len(table) > 0 for table in rows) == 1:
            raise NotThereError(
                'only one layer is computed: figures(compute=True), or audit.compare(layers="all")'
            )
        self.add("auc_by_layer", charts.auc_by_layer, rows, notes)

    def auc_by_eta(self, etas: Sequence[float]) -> None:
        """AUC and prevalence by η."""
        rows, notes = self._by_eta(etas, lambda found, eta: areas(found, eta=eta))
        planted = self._of_canaries()
        canaries = areas(planted) if planted else None
        self.add("auc_by_eta", charts.auc_by_eta, rows, notes, canaries=canaries, eta=self.eta)

    def roc_by_eta(self, etas: Sequence[float]) -> None:
        """A panel for each η, and one for the canaries."""
        pairs = "pairs " if self.pooled else ""

        def curves(found: Mapping[str, Evaluation], eta: float) -> pd.DataFrame:
            n = next(iter(found.values())).n_memorized
            return charts.roc_table(found, panel=f"η = {eta:g}, {n} {pairs}memorised")

        rows, notes = self._by_eta(etas, curves)
        planted = self._of_canaries()
        if planted:
            n = next(iter(planted.values())).n_memorized
            of = "pairs of " if self.pooled else ""
            rows.append(charts.roc_table(planted, panel=f"{n} {of}canaries"))
        self.add("roc_by_eta", charts.roc_panels, rows, notes)

    def _by_eta(
        self, etas: Sequence[float], table: Callable[[Mapping[str, Evaluation], float], Any]
    ) -> tuple[list[pd.DataFrame], list[Reason]]:
        """Return a table for each η at which there are memorised and other samples."""
        reason = self._why_no_lira()
        if reason:
            return [], [reason]
        values = self.numbers.log_lira()
        rows = []
        notes: list[Reason] = []
        too_few: list[str] = []
        for eta in etas:
            n = int((values >= eta).sum())
            if not self.pooled and min(n, len(values) - n) < _FEWEST:
                too_few.append(f"{eta:g}")
                continue
            found, why = self._evaluations(eta=eta, truth="log_lira")
            notes += why
            if found:
                rows.append(table(found, eta))
        if too_few:
            notes.append(
                f"at η = {named(too_few)} there are fewer than two memorised or two other members"
            )
        return rows, notes

    def _why_no_lira(self) -> str | None:
        try:
            self.numbers.log_lira()
        except NotThereError as error:
            return f"no ground truth: {error}"
        return None

    def _of_canaries(self) -> dict[str, Evaluation]:
        """Evaluate the scores with the canaries as truth."""
        if not self.numbers.canaries():
            return {}
        return self._evaluations(eta=self.eta, truth="canaries")[0]

    def _evaluations(
        self, eta: float, truth: str
    ) -> tuple[dict[str, Evaluation], Sequence[Reason]]:
        """Evaluate the audit's target, or pool all shadow models as targets."""
        if self.pooled:
            return self.numbers.pooled(_PREDICTORS, eta, truth)
        return self.numbers.evaluations(_PREDICTORS, eta=eta, truth=truth)

    def lira_over_training(self) -> None:
        """Histograms of log-LiRA."""
        tables = []
        notes: list[Reason] = []
        for name in self.names:
            try:
                values = self.numbers.log_lira(name)
            except NotThereError as error:
                notes.append(error)
                continue
            tables.append(
                pd.DataFrame({"checkpoint": self._label(name), "log_lira": values.to_numpy()})
            )
        if not tables:
            raise NotThereError(self._why_no_lira() or "; ".join(said(notes)))
        self.add("lira_over_training", charts.histograms_of_log_lira, tables, notes, eta=self.eta)

    def definitions(self) -> None:
        """Log-LiRA against counterfactual memorisation."""
        reason = self._why_no_lira()
        if reason:
            raise NotThereError(reason)
        evidence = self.evidence
        name, members, gaps, target = member_gaps(evidence)
        asks = asks_model_for_others(evidence)
        others = None if asks else gaps_of_others(evidence, evidence.names.record(name))
        found = compared_definitions(
            evidence.members,
            gaps,
            members,
            target,
            others,
            VARIANCE,
            500,
            0,
            pairs=evidence.shadows.are_pairs,
        )
        values, spearman = found.values, found.spearman  # noqa: PD011 - its attribute
        notes: list[Reason] = []
        if asks:
            values = values.drop(columns="rmia")
            spearman = spearman[~spearman[["a", "b"]].isin(["rmia"]).any(axis=1)]
            notes.append(
                "RMIA is left out: it needs a forward pass over the samples that the target did "
                "not train on, which audit.compare_memorization() makes"
            )
        self.add(
            "definitions",
            charts.memorization_scatter,
            [values.reset_index()],
            [*notes, found.note],
            spearman=spearman,
        )


def _quartiles(quantity: str, epoch: float, values: Any, memorized: Any) -> pd.DataFrame:
    """Quartiles of the memorised samples and of the others."""
    rows = []
    for kind in (True, False):
        group = values[memorized == kind]
        if len(group):
            low, median, high = np.quantile(group, [0.25, 0.5, 0.75])
            row = {"quantity": quantity, "epoch": epoch, "memorized": kind, "n": len(group)}
            rows.append({**row, "low": low, "median": median, "high": high})
    return pd.DataFrame(rows)
