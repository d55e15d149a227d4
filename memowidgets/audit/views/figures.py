"""The figures of the paper, drawn from numbers that need no training and no forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import charts
from memowidgets.audit.evidence import REFERENCES, Evidence, Need
from memowidgets.audit.numbers.computing import is_ready
from memowidgets.audit.numbers.definitions import compare_memorization
from memowidgets.audit.numbers.inputs import (
    Inputs,
    is_defined,
    lacks_references,
    needs,
    uses_layer,
)
from memowidgets.audit.numbers.scores import (
    area,
    ask,
    evaluate,
    is_early,
)
from memowidgets.audit.numbers.truth import (
    is_log_lira,
    log_lira,
    memorized_members,
    positives,
    truly_memorized,
)
from memowidgets.checks import real_number, several
from memowidgets.registry import Score, all_rows, find_row
from memowidgets.store import NotThereError, StoreError
from memowidgets.vocabulary import listed, memorised, without_names

if TYPE_CHECKING:
    from memowidgets.evaluation import Evaluation

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
_ALL = 'audit.compare(layers="all", checkpoints="all") computes all that can be'
_MOST_PANELS = 12
_MOST_NAMED = 4
_FEWEST = 2  # samples of a kind: with one the AUC has no interval
Truth = str | ArrayLike


def audit_figures(
    evidence: Evidence,
    eta: float = 4.0,
    truth: Truth = "log_lira",
    etas: Iterable[float] | None = None,
    *,
    advice: bool = True,
) -> charts.Figures:
    """All figures that the audit's data allow, as `Audit.figures` says.

    Without `advice`, reasons do not say what to call: a report's reader runs nothing.
    """
    desk = _Desk(evidence, eta, truth, etas, advice=advice)
    drawn, missing, notes = dict[str, Any](), dict[str, str](), dict[str, list[str]]()
    for name in NAMES:
        desk.reasons = []
        try:
            if not desk.later:
                raise NotThereError("the target is not trained yet", "audit.train()")
            drawn[name] = getattr(desk, name)()
            notes[name] = desk.said()
        except (ValueError, StoreError) as error:
            desk.reasons = [error]
            (missing[name],) = desk.said()
    table = desk.checkpoints[["epoch", "step", "median_loss", "drop", "prediction"]]
    return charts.Figures(drawn, {"drops": table}, desk.data, missing, notes)


class _Desk:
    """Draws the figures of one audit, each by the method of its name.

    A method returns the chart, and leaves its table in `data` and what it lacks in `reasons`. It
    raises an error that says why there is no chart.

    Raises
    ------
    ValueError
        If the truth is unknown, or is not a mask over the members.
    """

    def __init__(
        self,
        evidence: Evidence,
        eta: float,
        truth: Truth,
        etas: Iterable[float] | None,
        *,
        advice: bool,
    ) -> None:
        self.eta = real_number("eta", eta, finite=True)
        self.evidence, self.truth, self.advice = evidence, truth, advice
        self.etas: tuple[float, ...] = ETAS
        self.panel_etas: tuple[float, ...] = PANEL_ETAS
        if etas is not None:
            asked = [
                real_number("an eta", one, finite=True) for one in several("etas", etas)
            ]
            self.etas = self.panel_etas = tuple(asked)
        self.data: dict[str, pd.DataFrame] = {}
        self.reasons: list[str | Exception] = []
        known = evidence.member_data.canaries
        self.has_canaries = known is not None and bool(known.any() and not known.all())
        self.no_lira = self._why_no_lira()
        self.no_truth = self.no_lira if is_log_lira(truth) else None
        if not is_log_lira(truth):
            memorized_members(evidence, truth, eta)  # raises for an invalid truth
        self.checkpoints = evidence.table()
        self.later = [
            str(name) for name in self.checkpoints.index[self.checkpoints["step"] != 0]
        ]
        epochs = self.checkpoints["epoch"].to_numpy(float)
        self._epochs = dict(zip(map(str, self.checkpoints.index), epochs, strict=True))

    def _why_no_lira(self) -> NotThereError | None:
        start = "no ground truth: "
        try:
            if len(log_lira(self.evidence)):
                return None
        except NotThereError as error:
            return NotThereError(start + error.what, error.do, error.where)
        except (ValueError, StoreError) as error:
            return NotThereError(f"{start}{error}")
        return NotThereError(
            f"{start}no member is in two shadow models and out of two others"
        )

    def _label(self, name: str) -> str:
        """Return the label of a checkpoint."""
        epoch = self._epochs[name]
        label = name if math.isnan(epoch) else f"epoch {epoch:g}"
        chosen = len(self._epochs) > 1 and self.checkpoints["prediction"][name]
        return f"{label}, look here" if chosen else label

    def said(self) -> list[str]:
        """Each different reason once, with all checkpoints that it holds for."""
        places: dict[tuple[str, str], dict[str, None]] = {}
        for reason in self.reasons:
            one = (
                reason
                if isinstance(reason, NotThereError)
                else NotThereError(without_names(reason))
            )
            places.setdefault((one.what, one.do), {})[one.where] = None
        merged = [
            NotThereError(*said, some_of([*where])) for said, where in places.items()
        ]
        return [str(one) if self.advice else one.said for one in merged]

    def joined(
        self, name: str, tables: Iterable[pd.DataFrame], several: str = ""
    ) -> pd.DataFrame:
        """Return the table behind a figure, which may need several parts, as `several` says."""
        filled = [table for table in tables if len(table)]
        if not filled:
            raise NotThereError("; ".join(self.said()))
        if several and len(filled) < _FEWEST:
            raise NotThereError(f"there are scores at only one {several}", _ALL)
        self.data[name] = pd.concat(filled, ignore_index=True)
        return self.data[name]

    # The numbers

    def evaluations(
        self,
        metrics: Iterable[str],
        checkpoint: str = "prediction",
        layer: str = "last",
        eta: float | None = None,
        truth: Truth | None = None,
    ) -> dict[str, Evaluation]:
        """Evaluate those of several scores that are there, and note why others are not.

        Means over fewer than two checkpoints are left out, and reference models if there are none.
        """
        if self.no_truth and truth is None:
            self.reasons.append(self.no_truth)
            return {}
        evidence, found, undone = self.evidence, dict[str, "Evaluation"](), []
        asked = ask(evidence, layer, checkpoint)
        for metric in metrics:
            row = find_row(metric)
            lacks = lacks_references(row, asked)
            without = lacks and REFERENCES not in evidence.kinds
            if without or not is_defined(row, asked):
                continue
            if is_early(row) and not lacks and self._is_undone(row, asked):
                undone.append(metric)
                continue
            try:
                found[metric] = evaluate(
                    evidence,
                    row,
                    layer,
                    asked.record.name,
                    self.eta if eta is None else eta,
                    self.truth if truth is None else truth,
                )
            except (ValueError, StoreError) as error:
                self.reasons.append(error)
        if undone:
            what = f"not computed: {listed(undone)}"
            self.reasons.append(NotThereError(what, _ALL, asked.record.name))
        return found

    def _is_undone(self, row: Score, asked: Inputs) -> bool:
        """Whether a score is not computed yet, and could be; what can't be made says so itself."""
        evidence = self.evidence
        if is_ready(row, asked):
            return False
        wanted = needs(row, asked)
        return all(map(evidence.has, wanted)) or bool(evidence.missing(wanted))

    def _of_canaries(self) -> dict[str, Evaluation]:
        """Evaluate the scores with the canaries as truth."""
        return (
            self.evaluations(_PREDICTORS, truth="canaries") if self.has_canaries else {}
        )

    def _by_eta(
        self,
        etas: Sequence[float],
        table: Callable[[Mapping[str, Evaluation], float], Any],
    ) -> list[pd.DataFrame]:
        """Return a table for each η at which there are memorised and other samples."""
        if self.no_lira:
            self.reasons.append(self.no_lira)
            return []
        values, rows, too_few = log_lira(self.evidence), [], []
        for eta in etas:
            n = int((values >= eta).sum())
            if min(n, len(values) - n) < _FEWEST:
                too_few.append(f"{eta:g}")
            elif found := self.evaluations(_PREDICTORS, eta=eta, truth="log_lira"):
                rows.append(table(found, eta))
        if too_few:
            self.reasons.append(
                f"at η = {some_of(too_few)} there are fewer than two memorised or two other members"
            )
        return rows

    # The figures

    def training(self) -> Any:
        """Loss and accuracy over training."""
        if len(self.checkpoints) < _FEWEST:
            raise NotThereError(
                "there is one checkpoint, so there are no curves of the training"
            )
        if not self.checkpoints["test_loss"].notna().any():
            self.reasons.append(
                "there are no held-out samples, and so no held-out curves"
            )
        table = self.joined("training", [self.checkpoints.reset_index()])
        return charts.loss_and_accuracy(table)

    def roc(self) -> Any:
        """All scores at the prediction checkpoint."""
        names = self.evidence.names
        at_end = names.prediction().record == names.final()
        rows = all_rows()
        early = [name for name, row in rows.items() if is_early(row)]
        found = self.evaluations(early if at_end else rows)
        notes: list[str | Exception] = [
            note for one in found.values() for note in one.warnings
        ]
        if at_end and found:
            notes.append(
                "the baseline is left out, because at the last checkpoint it is the ground truth"
            )
        self.reasons = [*notes, *self.reasons]
        return charts.roc_curves(
            self.joined("roc", [charts.roc_table(found)] if found else [])
        )

    def roc_by_checkpoint(self) -> Any:
        """All scores at each checkpoint, or at evenly spaced ones."""
        names, spread = self.later, len(self.later) - 1
        if spread >= _MOST_PANELS:
            chosen = set(np.linspace(0, spread, _MOST_PANELS - 1).round().astype(int))
            is_prediction = self.checkpoints["prediction"]
            names = [
                one for i, one in enumerate(names) if i in chosen or is_prediction[one]
            ]
            self.reasons.append(
                f"{len(names)} of {len(self.later)} checkpoints are shown"
            )
        at = {self._label(name): self.evaluations(all_rows(), name) for name in names}
        curves = [
            charts.roc_table(found, panel=panel) for panel, found in at.items() if found
        ]
        return charts.roc_panels(self.joined("roc_by_checkpoint", curves, "checkpoint"))

    def over_training(self) -> Any:
        """AUC, median loss, PSMI and log-LiRA at every checkpoint."""
        if self.no_truth:
            raise self.no_truth
        auc, groups = [], []
        for name, epoch in self._epochs.items():
            found = self.evaluations(_PREDICTORS, name)
            if name in self.later:
                auc.append(areas(found, layer="", checkpoint=name, epoch=epoch))
            else:  # nothing is predicted before training
                self.reasons = []
            if "psmi" in found:
                result = found["psmi"]
                groups.append(
                    _quartiles("psmi", epoch, result.scores, result.memorized)
                )
            groups.append(self._groups_of_lira(name, epoch))
        rows = self.joined("over_training", auc, "checkpoint")
        table = pd.concat(groups, ignore_index=True)
        if len(table):
            table = table.sort_values(
                "quantity", ascending=False, kind="stable", ignore_index=True
            )
            self.data["over_training_groups"] = table
        return charts.over_training(
            self.checkpoints.reset_index(),
            rows,
            table if len(table) else None,
            self._positives(),
        )

    def _positives(self) -> str:
        """Return what counts as memorised, as a reader says it."""
        if is_log_lira(self.truth):
            return "memorised at the end"
        return "canaries" if isinstance(self.truth, str) else positives(self.truth)

    def _groups_of_lira(self, name: str, epoch: float) -> pd.DataFrame:
        try:
            values = log_lira(self.evidence, name)
        except (ValueError, StoreError) as error:
            self.reasons.append(error)
            return pd.DataFrame()
        truth = memorized_members(self.evidence, self.truth, self.eta)
        both = values.index.intersection(truth.index, sort=False)
        return _quartiles(
            "log_lira",
            epoch,
            values[both].to_numpy(),
            truth[both].to_numpy(dtype=np.bool_),
        )

    def auc_by_layer(self) -> Any:
        """PSMI and Mahalanobis at each layer, at the prediction checkpoint."""
        layers = self.evidence.names.layer_names
        if len(layers) < _FEWEST:
            raise NotThereError(f"there is only one layer, {', '.join(layers)}")
        of_layer = [
            name
            for name, row in all_rows().items()
            if uses_layer(row) and not row.parts
        ]
        rows = [
            areas(self.evaluations(of_layer, layer=one), layer=one) for one in layers
        ]
        return charts.auc_by_layer(self.joined("auc_by_layer", rows, "layer"))

    def auc_by_eta(self) -> Any:
        """AUC and prevalence by η."""
        rows = self._by_eta(self.etas, lambda found, eta: areas(found, eta=eta))
        planted = areas(self._of_canaries())
        canaries = planted if len(planted) else None
        table = self.joined("auc_by_eta", rows)
        return charts.auc_by_eta(table, canaries=canaries, eta=self.eta)

    def roc_by_eta(self) -> Any:
        """A panel for each η, and one for the canaries."""

        def curves(found: Mapping[str, Evaluation], eta: float) -> pd.DataFrame:
            first = next(iter(found.values()))
            counted = memorised(first.n_memorized, first.n_truly)
            return charts.roc_table(found, panel=f"η = {eta:g}, {counted}")

        rows = self._by_eta(self.panel_etas, curves)
        if planted := self._of_canaries():
            n = next(iter(planted.values())).n_memorized
            rows.append(charts.roc_table(planted, panel=f"{n} canaries"))
        return charts.roc_panels(self.joined("roc_by_eta", rows))

    def lira_over_training(self) -> Any:
        """Histograms of log-LiRA."""
        tables = []
        for name in self._epochs:
            try:
                values = log_lira(self.evidence, name).to_numpy()
            except (ValueError, StoreError) as error:
                self.reasons.append(error)
            else:
                tables.append(
                    pd.DataFrame({"checkpoint": self._label(name), "log_lira": values})
                )
        if not self.no_lira:
            counted = log_lira(self.evidence) >= self.eta
            known = truly_memorized(self.evidence, counted, self.eta)
            if known is not None and counted.any():
                self.reasons.append(f"at the end {memorised(counted.sum(), known)}")
        table = self.joined("lira_over_training", tables)
        return charts.histograms_of_log_lira(table, eta=self.eta)

    def definitions(self) -> Any:
        """Log-LiRA against counterfactual memorisation."""
        if self.no_lira:
            raise self.no_lira
        found = compare_memorization(self.evidence, "final")
        values, spearman = found.values, found.spearman  # noqa: PD011 - its attribute
        at_end = Need("pool", self.evidence.names.record("final").name)
        if self.evidence.missing([at_end]):
            values = values.drop(columns="rmia")
            spearman = spearman[~spearman[["a", "b"]].isin(["rmia"]).any(axis=1)]
            self.reasons.append(
                NotThereError(
                    "RMIA is left out, because it needs a forward pass over the samples that the "
                    "target did not train on",
                    "audit.compare_memorization() makes it",
                )
            )
        self.reasons.append(found.note)
        table = self.joined("definitions", [values.reset_index()])
        return charts.memorization_scatter(table, spearman=spearman)


def areas(found: Mapping[str, Evaluation], **more: object) -> pd.DataFrame:
    """Rows as `Audit.compare` has them."""
    return pd.DataFrame(
        [{"metric": metric, **more, **area(result)} for metric, result in found.items()]
    )


def some_of(names: Sequence[str]) -> str:
    """Some of them, and how many more."""
    return listed(names, _MOST_NAMED if len(names) <= _MOST_NAMED else _MOST_NAMED - 1)


def _quartiles(
    quantity: str, epoch: float, values: Any, memorized: Any
) -> pd.DataFrame:
    """Quartiles of the memorised samples and of the others."""
    rows = []
    for kind in (True, False):
        group = values[memorized == kind]
        if len(group):
            low, median, high = np.quantile(group, [0.25, 0.5, 0.75])
            row = {
                "quantity": quantity,
                "epoch": epoch,
                "memorized": kind,
                "n": len(group),
            }
            rows.append({**row, "low": low, "median": median, "high": high})
    return pd.DataFrame(rows)
