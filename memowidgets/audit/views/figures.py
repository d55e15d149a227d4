"""The figures of the paper, drawn from numbers that need no training and no forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import charts
from memowidgets.audit.evidence import REFERENCES, Evidence
from memowidgets.audit.numbers.definitions import compared_definitions_of
from memowidgets.audit.numbers.judge import area, evaluate, pooled_evaluation
from memowidgets.audit.numbers.scores import (
    BASELINE,
    EARLY,
    SCORES,
    is_computed,
    is_defined,
    lacks_references,
    needs,
)
from memowidgets.audit.numbers.truth import (
    VARIANCE,
    asks_model_for_others,
    is_log_lira,
    log_lira,
    memorized_members,
    positives,
    truly_memorized,
    truth_needs,
)
from memowidgets.checks import real_number, several
from memowidgets.progress import shown
from memowidgets.store import NotThereError, StoreError
from memowidgets.training.checkpoint import Record
from memowidgets.visible import listed
from memowidgets.vocabulary import memorised

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
_ALL_SCORES = tuple(SCORES)
_OF_LAYER = tuple(name for name, known in SCORES.items() if known.of_layer is not None)
_MOST_PANELS = 12
_MOST_NAMED = 4
_FEWEST = 2  # samples of a kind: with one the AUC has no interval
Truth = str | ArrayLike
Reason = str | Exception


class HasEvidence(Protocol):
    """An audit, as far as figures need one."""

    @property
    def evidence(self) -> Evidence: ...  # noqa: D102


def audit_figures(
    evidence: Evidence,
    eta: float = 4.0,
    truth: Truth = "log_lira",
    etas: Iterable[float] | None = None,
    compute: bool = False,
    targets: str = "own",
    *,
    advice: bool = True,
) -> charts.Figures:
    """All figures that the audit's data allow, as `Audit.figures` says.

    Without `advice`, reasons do not say what to call: a report's reader runs nothing.
    """
    if targets not in ("own", "all"):
        raise ValueError(f"targets must be 'own' or 'all', not {targets!r}")
    desk = _Desk(evidence, eta, truth, compute, pooled=targets == "all", advice=advice)
    if etas is not None:
        desk.etas = desk.panel_etas = tuple(
            real_number("an eta", eta, finite=True) for eta in several("etas", etas)
        )
    for name in NAMES:
        desk.reasons = []
        try:
            if not desk.later:
                raise NotThereError("the target is not trained yet", "audit.train()")
            getattr(desk, name)()
        except (ValueError, StoreError) as error:
            (desk.missing[name],) = desk.said([error])
    return desk.finished()


def figures_by_setting(
    audits: Mapping[str, HasEvidence],
    eta: float = 4.0,
    truth: Truth = "log_lira",
    compute: bool = False,
) -> charts.Figures:
    """Draw several audits side by side: drops of the median loss, AUC, and PSMI's curves.

    Parameters
    ----------
    audits : mapping of str to Audit
        By what a reader calls the setting, such as ``"MMLU / SmolLM2"``.
    eta, truth, compute
        As in `Audit.figures`.

    Returns
    -------
    Figures
        ``auc_by_setting`` and ``roc_by_setting`` (paper, Figure 2, center and right), and the
        table ``drops`` (Appendix E), one row for each setting.

    Raises
    ------
    ValueError
        If there is no audit.
    """
    if not audits:
        raise ValueError("give at least one audit, by the name of its setting")
    rows, curves, drops = [], [], {}
    together = _Drawn()
    for setting, audit in audits.items():
        evidence = audit.evidence
        desk = _Desk(evidence, eta, truth, compute)
        table = evidence.table()
        drops[setting] = pd.Series(table["drop"].to_numpy(), table["epoch"].to_numpy())
        found = desk.evaluations(_PREDICTORS)
        rows.append(areas(found).assign(setting=setting))
        if "psmi" in found:
            curves.append(charts.roc_table({setting: found["psmi"]}))
        together.reasons += [f"{setting}: {reason}" for reason in desk.said(desk.reasons)]
    together.tables["drops"] = pd.DataFrame(drops).sort_index().T.rename_axis("setting")
    together.add("auc_by_setting", charts.auc_by_setting, rows)
    together.add("roc_by_setting", charts.roc_curves, curves, marked=None)
    return together.finished()


class _Drawn:
    """Collects figures, tables and reasons for missing figures."""

    def __init__(self, *, advice: bool = True) -> None:
        self._advice = advice
        self.charts: dict[str, Any] = {}
        self.tables: dict[str, pd.DataFrame] = {}
        self.data: dict[str, pd.DataFrame] = {}
        self.missing: dict[str, str] = {}
        self.notes: dict[str, Sequence[str]] = {}
        self.reasons: list[Reason] = []  # what the figure that is drawn now lacks

    def add(
        self, name: str, chart: Callable[..., Any], tables: Sequence[pd.DataFrame], **options: Any
    ) -> None:
        """Draw a figure from tables, or record why it is missing."""
        filled = [table for table in tables if len(table)]
        if not filled:
            self.missing[name] = "; ".join(self.said(self.reasons))
            return
        self.data[name] = pd.concat(filled, ignore_index=True)
        self.charts[name] = chart(self.data[name], **options)
        self.notes[name] = self.said(self.reasons)

    def said(self, reasons: Iterable[Reason], *, advice: bool = True) -> list[str]:
        """Each different reason once, with all checkpoints that it holds for."""
        places: dict[tuple[str, str], dict[str, None]] = {}
        for reason in map(_reason, reasons):
            places.setdefault((reason.what, reason.do), {})[reason.where] = None
        merged = [NotThereError(*said, some_of([*where])) for said, where in places.items()]
        return [str(one) if advice and self._advice else one.said for one in merged]

    def finished(self) -> charts.Figures:
        return charts.Figures(self.charts, self.tables, self.data, self.missing, self.notes)


class _Desk(_Drawn):
    """Draws the figures of one audit, as far as they need no training and no forward pass.

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
        compute: bool,
        *,
        pooled: bool = False,
        advice: bool = True,
    ) -> None:
        super().__init__(advice=advice)
        self.eta = real_number("eta", eta, finite=True)
        self.evidence, self.truth, self.compute, self.pooled = evidence, truth, compute, pooled
        self.etas: Sequence[float] = ETAS
        self.panel_etas: Sequence[float] = PANEL_ETAS
        self.no_truth: NotThereError | None = None  # why there is none
        if not is_log_lira(truth):
            memorized_members(evidence, truth, eta)  # raises for an invalid truth
        elif reason := self._why_no_lira():
            hint = ['audit.figures(truth="canaries") needs none'] * self._has_canaries()
            do = "; ".join(filter(None, [reason.do, *hint]))
            self.no_truth = NotThereError(reason.what, do, reason.where)
        self.checkpoints = evidence.table()
        self.names = [str(name) for name in self.checkpoints.index]
        trained = self.checkpoints["step"] != 0
        self.later = [str(name) for name in self.checkpoints.index[trained]]
        self._epochs = dict(zip(self.names, self.checkpoints["epoch"].to_numpy(float), strict=True))
        columns = ["epoch", "step", "median_loss", "drop", "prediction"]
        self.tables["drops"] = self.checkpoints[columns]

    def _label(self, name: str) -> str:
        """Return the label of a checkpoint."""
        epoch = self._epochs[name]
        label = name if math.isnan(epoch) else f"epoch {epoch:g}"
        chosen = len(self.names) > 1 and self.checkpoints["prediction"][name]
        return f"{label}, predict here" if chosen else label

    # The numbers

    def log_lira(self, checkpoint: str = "final") -> pd.Series:
        """Return log-LiRA at a checkpoint.

        Raises
        ------
        NotThereError
            If there is none, or it needs more than what is on disk.
        """
        record = self.evidence.names.record(checkpoint)
        if self.evidence.missing(truth_needs(self.evidence, record)):
            what = "log-LiRA needs a forward pass of the target"
            raise NotThereError(what, "audit.log_lira(…) makes it", record.name)
        return log_lira(self.evidence, record.name)

    def _why_no_lira(self) -> NotThereError | None:
        start = "no ground truth: "
        try:
            if len(self.log_lira()):
                return None
        except (ValueError, StoreError) as error:
            return _reason(error, start)
        return NotThereError(f"{start}no member is in two shadow models and out of two others")

    def _has_canaries(self) -> bool:
        """Whether some members are canaries, and some are not."""
        known = self.evidence.member_data.canaries
        return known is not None and bool(known.any() and not known.all())

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
        evidence, found = self.evidence, dict[str, "Evaluation"]()
        undone: dict[tuple[str, str], list[str]] = {}
        try:
            record = evidence.names.record(checkpoint)
        except ValueError as error:
            self.reasons.append(error)
            return {}
        for metric in metrics:
            lacks = lacks_references(evidence, metric, record)
            without = lacks and REFERENCES not in evidence.kinds
            if without or not is_defined(evidence, metric, record):
                continue
            if metric != BASELINE and not lacks and (work := self._work(metric, layer, record)):
                undone.setdefault(work, []).append(metric)
                continue
            try:
                if metric == BASELINE:
                    self.log_lira(record.name)
                found[metric] = evaluate(
                    evidence,
                    metric,
                    layer,
                    record.name,
                    self.eta if eta is None else eta,
                    self.truth if truth is None else truth,
                )
            except (ValueError, StoreError) as error:
                lacks = metric == BASELINE and isinstance(error, NotThereError)
                self.reasons.append(_reason(error, "no baseline: " if lacks else ""))
        for (what, do), of in undone.items():
            self.reasons.append(NotThereError(f"{what}: {listed(of)}", do, record.name))
        return found

    def _work(self, metric: str, layer: str, record: Record) -> tuple[str, str] | None:
        """Return what a score takes that is not done here, and what does it; None for nothing."""
        evidence = self.evidence
        if is_computed(evidence, metric, layer, record.name):
            return None
        place = "" if layer == "last" else f', layer="{layer}"'
        call, wanted = f"audit.score(metric{place}, checkpoint=…)", needs(evidence, metric, record)
        if evidence.missing(wanted):
            return "a forward pass is missing", f"{call} makes it"
        there = all(evidence.checkpoints[need.checkpoint].has(need) for need in wanted)
        if self.compute or not there:  # what can't be made says so itself
            return None
        if place:
            call = 'audit.compare(layers="all")'
        where = " at every layer" if place else ""
        return f"not computed{where}", f"{call} or audit.figures(compute=True) computes it"

    def _by_target(self, eta: float, truth: str) -> dict[str, Evaluation]:
        """Evaluate the audit's target, or pool all shadow models as targets.

        As in the paper, canaries are then the truth or not there at all.
        """
        if not self.pooled:
            return self.evaluations(_PREDICTORS, eta=eta, truth=truth)
        found, planted = dict[str, "Evaluation"](), truth == "canaries"
        for metric in _PREDICTORS:
            try:
                asked = metric, "last", eta, truth, "all"
                with shown(None) as report:
                    found[metric] = pooled_evaluation(
                        self.evidence, *asked, report, with_canaries=planted
                    )
            except (ValueError, StoreError) as error:
                self.reasons.append(f"by all targets at η = {eta:g}: {error}")
        return found

    # The figures

    def training(self) -> None:
        """Loss and accuracy over training."""
        if len(self.checkpoints) < _FEWEST:
            raise NotThereError(
                "there is only one checkpoint, so there are no curves of the training"
            )
        if not self.checkpoints["test_loss"].notna().any():
            self.reasons.append("there are no held-out samples, and so no held-out curves")
        self.add("training", charts.loss_and_accuracy, [self.checkpoints.reset_index()])

    def roc(self) -> None:
        """All scores at the prediction checkpoint."""
        names = self.evidence.names
        at_end = names.prediction().record == names.final()
        found = self.evaluations(EARLY if at_end else _ALL_SCORES)
        notes: list[Reason] = [note for result in found.values() for note in result.warnings]
        if at_end and found:
            notes.append(
                "the baseline is left out, because at the last checkpoint it is the ground truth"
            )
        self.reasons = [*notes, *self.reasons]
        self.add("roc", charts.roc_curves, [charts.roc_table(found)] if found else [])

    def roc_by_checkpoint(self) -> None:
        """All scores at each checkpoint."""
        names = self._some(self.later)
        at = {self._label(name): self.evaluations(_ALL_SCORES, name) for name in names}
        curves = [charts.roc_table(found, panel=panel) for panel, found in at.items() if found]
        if len(curves) == 1:
            raise self._too_few("there are scores at only one checkpoint")
        if len(names) < len(self.later):
            self.reasons.append(f"{len(names)} of {len(self.later)} checkpoints are shown")
        self.add("roc_by_checkpoint", charts.roc_panels, curves)

    def _too_few(self, what: str) -> NotThereError:
        """Return the error of curves that need scores at more checkpoints."""
        do = 'audit.compare(checkpoints="all") computes the others'
        return NotThereError("; ".join([what, *self.said(self.reasons, advice=False)]), do)

    def _some(self, names: list[str]) -> list[str]:
        """Select evenly spaced checkpoints, with the prediction checkpoint and the last."""
        if len(names) <= _MOST_PANELS:
            return names
        spread = np.linspace(0, len(names) - 1, _MOST_PANELS - 1).round().astype(int)
        chosen = {names[i] for i in spread}
        return [name for name in names if name in chosen or self.checkpoints["prediction"][name]]

    def over_training(self) -> None:
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
                groups.append(_quartiles("psmi", epoch, result.scores, result.memorized))
            groups.append(self._groups_of_lira(name, epoch))
        rows = pd.concat(auc, ignore_index=True)
        if rows.empty or rows["checkpoint"].nunique() < _FEWEST:
            raise self._too_few("there are scores at fewer than two checkpoints")
        table = pd.concat(groups, ignore_index=True)
        if len(table):
            table = table.sort_values("quantity", ascending=False, kind="stable", ignore_index=True)
            self.data["over_training_groups"] = table
        self.data["over_training"] = rows
        self.charts["over_training"] = charts.over_training(
            self.checkpoints.reset_index(),
            rows,
            table if len(table) else None,
            self._positives(),
        )
        self.notes["over_training"] = self.said(self.reasons)

    def _positives(self) -> str:
        """Return what counts as memorised, as a reader says it."""
        if is_log_lira(self.truth):
            return "memorised at the end"
        return "canaries" if isinstance(self.truth, str) else positives(self.truth)

    def _groups_of_lira(self, name: str, epoch: float) -> pd.DataFrame:
        try:
            values = self.log_lira(name)
        except (ValueError, StoreError) as error:
            self.reasons.append(error)
            return pd.DataFrame()
        truth = memorized_members(self.evidence, self.truth, self.eta)
        both = values.index.intersection(truth.index, sort=False)
        return _quartiles(
            "log_lira", epoch, values[both].to_numpy(), truth[both].to_numpy(dtype=np.bool_)
        )

    def auc_by_layer(self) -> None:
        """PSMI and Mahalanobis at each layer, at the prediction checkpoint."""
        layers = self.evidence.names.layer_names
        if len(layers) < _FEWEST:
            raise NotThereError(f"there is only one layer, {', '.join(layers)}")
        rows = [areas(self.evaluations(_OF_LAYER, layer=one), layer=one) for one in layers]
        if sum(len(table) > 0 for table in rows) == 1:
            do = 'figures(compute=True), or audit.compare(layers="all")'
            raise NotThereError("only one layer is computed", do)
        self.add("auc_by_layer", charts.auc_by_layer, rows)

    def auc_by_eta(self) -> None:
        """AUC and prevalence by η."""
        rows = self._by_eta(self.etas, lambda found, eta: areas(found, eta=eta))
        planted = self._of_canaries()
        canaries = areas(planted) if planted else None
        self.add("auc_by_eta", charts.auc_by_eta, rows, canaries=canaries, eta=self.eta)

    def roc_by_eta(self) -> None:
        """A panel for each η, and one for the canaries."""
        pairs = "pairs " if self.pooled else ""

        def curves(found: Mapping[str, Evaluation], eta: float) -> pd.DataFrame:
            first = next(iter(found.values()))
            counted = memorised(first.n_memorized, first.n_truly, f"{pairs}memorised")
            panel = f"η = {eta:g}, {counted}"
            return charts.roc_table(found, panel=panel)

        rows = self._by_eta(self.panel_etas, curves)
        planted = self._of_canaries()
        if planted:
            n = next(iter(planted.values())).n_memorized
            of = "pairs of " if self.pooled else ""
            rows.append(charts.roc_table(planted, panel=f"{n} {of}canaries"))
        self.add("roc_by_eta", charts.roc_panels, rows)

    def _by_eta(
        self, etas: Sequence[float], table: Callable[[Mapping[str, Evaluation], float], Any]
    ) -> list[pd.DataFrame]:
        """Return a table for each η at which there are memorised and other samples."""
        if reason := self._why_no_lira():
            self.reasons.append(reason)
            return []
        values, rows = self.log_lira(), []
        too_few: list[str] = []
        for eta in etas:
            n = int((values >= eta).sum())
            if not self.pooled and min(n, len(values) - n) < _FEWEST:
                too_few.append(f"{eta:g}")
                continue
            if found := self._by_target(eta=eta, truth="log_lira"):
                rows.append(table(found, eta))
        if too_few:
            self.reasons.append(
                f"at η = {some_of(too_few)} there are fewer than two memorised or two other members"
            )
        return rows

    def _of_canaries(self) -> dict[str, Evaluation]:
        """Evaluate the scores with the canaries as truth."""
        if not self._has_canaries():
            return {}
        return self._by_target(eta=self.eta, truth="canaries")

    def lira_over_training(self) -> None:
        """Histograms of log-LiRA."""
        tables = []
        for name in self.names:
            try:
                values = self.log_lira(name)
            except (ValueError, StoreError) as error:
                self.reasons.append(error)
                continue
            tables.append(
                pd.DataFrame({"checkpoint": self._label(name), "log_lira": values.to_numpy()})
            )
        if not tables:
            raise self._why_no_lira() or NotThereError("; ".join(self.said(self.reasons)))
        if not self._why_no_lira():
            counted = self.log_lira() >= self.eta
            known = truly_memorized(self.evidence, counted, self.eta)
            if known is not None and counted.any():
                self.reasons.append(f"at the end {memorised(counted.sum(), known)}")
        self.add("lira_over_training", charts.histograms_of_log_lira, tables, eta=self.eta)

    def definitions(self) -> None:
        """Log-LiRA against counterfactual memorisation."""
        if reason := self._why_no_lira():
            raise reason
        found = compared_definitions_of(self.evidence, "final", VARIANCE, 0)
        values, spearman = found.values, found.spearman  # noqa: PD011 - its attribute
        if asks_model_for_others(self.evidence):
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
        table = values.reset_index()
        self.add("definitions", charts.memorization_scatter, [table], spearman=spearman)


def areas(found: Mapping[str, Evaluation], **more: Any) -> pd.DataFrame:
    """Rows as `Audit.compare` has them."""
    return pd.DataFrame(
        [{"metric": metric, **more, **area(result)} for metric, result in found.items()]
    )


def _reason(reason: Reason, start: str = "") -> NotThereError:
    """Return a reason as what is not there, after a few words."""
    if isinstance(reason, NotThereError):
        return NotThereError(start + reason.what, reason.do, reason.where)
    return NotThereError(f"{start}{reason}")


def some_of(names: Sequence[str]) -> str:
    """Some of them, and how many more."""
    return listed(names, _MOST_NAMED if len(names) <= _MOST_NAMED else _MOST_NAMED - 1)


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
