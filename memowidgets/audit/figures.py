"""The figures of the paper, drawn from what an audit has computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import charts
from memowidgets.audit import scoring, shadowing
from memowidgets.store import StoreError

if TYPE_CHECKING:
    from memowidgets.audit.audit import Audit
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
_ALL_SCORES = (*scoring.METRICS, "baseline")
_MOST_PANELS = 12
_MOST_NAMED = 4
_FEWEST = 2  # samples of a kind: with one the AUC has no interval

Truth = str | ArrayLike
Reason = str | Exception


class NotThereError(Exception):
    """A number that is not computed; the message says how it can be.

    `what` is the sentence with ``{}`` where the checkpoint goes, so that several that differ in
    nothing else are said at once.
    """

    def __init__(self, what: str, checkpoint: str = "") -> None:
        super().__init__(what.replace("{}", checkpoint))
        self.what, self.checkpoint = what, checkpoint


def audit_figures(
    audit: Audit,
    eta: float,
    truth: Truth,
    etas: Iterable[float] | None,
    compute: bool,
    theme: str,
) -> charts.Figures:
    """All figures that the audit's data allow, as `Audit.figures` says."""
    desk = _Desk(audit, eta, truth, compute, theme)
    desk.draw("training", desk.training)
    desk.draw("roc", desk.roc)
    desk.draw("roc_by_checkpoint", desk.roc_by_checkpoint)
    desk.draw("over_training", desk.over_training)
    desk.draw("auc_by_layer", desk.auc_by_layer)
    chosen = ETAS if etas is None else tuple(float(value) for value in etas)
    desk.draw("auc_by_eta", lambda: desk.auc_by_eta(chosen))
    panels = PANEL_ETAS if etas is None else chosen
    desk.draw("roc_by_eta", lambda: desk.roc_by_eta(panels))
    desk.draw("lira_over_training", desk.lira_over_training)
    desk.draw("definitions", desk.definitions)
    return desk.finished()


def figures_by_setting(
    audits: Mapping[str, Audit],
    eta: float = 4.0,
    truth: Truth = "log_lira",
    compute: bool = False,
    theme: str = "light",
) -> charts.Figures:
    """Several audits side by side: drops of the median loss, AUC, and PSMI's curves.

    Parameters
    ----------
    audits : mapping of str to Audit
        By what a reader calls the setting, such as ``"MMLU / SmolLM2"``.
    eta, truth, compute, theme
        As in `Audit.figures`.

    Returns
    -------
    Figures
        ``auc_by_setting`` and ``roc_by_setting`` (paper, Figure 2, center and right), and the
        table ``drops`` (Appendix E), a row a setting.

    Raises
    ------
    ValueError
        If there is no audit.
    """
    if not audits:
        raise ValueError("give at least one audit, by the name of its setting")
    rows, curves, missing, drops = [], [], [], {}
    for setting, audit in audits.items():
        desk = _Desk(audit, eta, truth, compute, theme)
        table = audit.checkpoints
        drops[setting] = pd.Series(table["drop"].to_numpy(), table["epoch"].to_numpy())
        found, why = desk.evaluations(_PREDICTORS)
        rows.append(desk.areas(found).assign(setting=setting))
        if "psmi" in found:
            curves.append(charts.roc_table({setting: found["psmi"]}))
        missing += [f"{setting}: {reason}" for reason in _said(why)]
    together = _Drawn(theme)
    together.tables["drops"] = pd.DataFrame(drops).T.rename_axis("setting")
    together.add("auc_by_setting", charts.auc_by_setting, rows, missing)
    together.add("roc_by_setting", charts.roc_curves, curves, missing, marked=None)
    return together.finished()


class _Drawn:
    """Figures as they come about."""

    def __init__(self, theme: str) -> None:
        self.theme = theme
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
        """Draw one from tables, or say why there are none."""
        filled = [table for table in tables if len(table)]
        if not filled:
            self.missing[name] = "; ".join(_said(notes))
            return
        self.data[name] = pd.concat(filled, ignore_index=True)
        self.charts[name] = chart(self.data[name], theme=self.theme, **options)
        self.notes[name] = _said(notes)

    def finished(self) -> charts.Figures:
        return charts.Figures(self.charts, self.tables, self.data, self.missing, self.notes)


class _Desk(_Drawn):
    """Draws one audit's figures from what it has computed."""

    def __init__(self, audit: Audit, eta: float, truth: Truth, compute: bool, theme: str) -> None:
        super().__init__(theme)
        self.audit, self.eta, self.truth, self.compute = audit, eta, truth, compute
        self.checkpoints = audit.checkpoints
        self.names = [str(name) for name in self.checkpoints.index]
        self._no_truth = self._why_no_truth()
        columns = ["epoch", "step", "median_loss", "drop", "prediction"]
        self.tables["drops"] = self.checkpoints[columns]

    def draw(self, name: str, figure: Callable[[], None]) -> None:
        """One figure, or the reason why not."""
        try:
            figure()
        except (NotThereError, ValueError, StoreError) as error:
            self.missing[name] = str(error)

    # What is there

    def log_lira(self, checkpoint: str) -> pd.Series:
        """Log-LiRA at a checkpoint, if nothing has to be trained or passed for it."""
        audit = self.audit
        try:
            name = self._name(checkpoint)
            if checkpoint == "final" and audit.has_ground_truth and self._gaps_known(name):
                return audit.log_lira(checkpoint)
            if audit.n_shadows < shadowing.FEWEST_SHADOWS:
                raise NotThereError(
                    f"there are {audit.n_shadows or 'no'} shadow models: audit.run_shadows(64) "
                    "trains them"
                )
            if name not in audit._shadows.checkpoints():  # noqa: SLF001 - the same room
                raise NotThereError(
                    "the shadow models kept no logit gaps at {}: name such checkpoints in "
                    "audit.run_shadows(n, checkpoints=[…]) of a new run",
                    name,
                )
            if not self._gaps_known(name):
                raise NotThereError(
                    "audit.log_lira(…) at {} needs a forward pass of the target", name
                )
            return audit.log_lira(checkpoint)
        except (ValueError, StoreError) as error:
            raise NotThereError(str(error)) from error

    def evaluation(
        self,
        metric: str,
        checkpoint: str = "prediction",
        layer: str = "last",
        eta: float | None = None,
        truth: Truth | None = None,
    ) -> Evaluation:
        """A score held against the truth, if it is computed or may be."""
        try:
            name = self._name(checkpoint)
            if metric == "baseline":
                self.log_lira(name)
            elif not self.audit.is_computed(metric, layer, name):
                self._refuse_unless_passed(metric, layer, name)
            eta = self.eta if eta is None else eta
            return self.audit.evaluate(
                metric, layer, name, eta, self.truth if truth is None else truth
            )
        except (ValueError, StoreError) as error:
            raise NotThereError(str(error)) from error

    def _refuse_unless_passed(self, metric: str, layer: str, name: str) -> None:
        place = "" if layer == "last" else f', layer="{layer}"'
        call = f'audit.score("{metric}"{place}, checkpoint=…)'
        if not self._passed(name):
            raise NotThereError(f"{call} at {{}} needs a forward pass first: it makes it", name)
        if not self.compute:
            raise NotThereError(
                f"{call} at {{}} is not computed yet: that call does it, or figures(compute=True)",
                name,
            )

    def evaluations(
        self, metrics: Iterable[str], checkpoint: str = "prediction", **options: Any
    ) -> tuple[dict[str, Evaluation], list[Reason]]:
        """Those of several scores that are there, and why others are not."""
        if self._no_truth and "truth" not in options:
            return {}, [self._no_truth]
        found: dict[str, Evaluation] = {}
        why: list[Reason] = []
        for metric in metrics:
            try:
                found[metric] = self.evaluation(metric, checkpoint, **options)
            except NotThereError as error:
                why.append(error)
        return found, why

    def areas(self, found: Mapping[str, Evaluation], **more: Any) -> pd.DataFrame:
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

    def _name(self, checkpoint: str) -> str:
        """The checkpoint's own name."""
        return self.audit._catalogue.record(checkpoint).name  # noqa: SLF001 - the same room

    def _passed(self, name: str) -> bool:
        """Whether the target's forward pass is on disk."""
        return self.audit.is_computed("loss", checkpoint=name)

    def _gaps_known(self, name: str) -> bool:
        """Whether all logit gaps of a checkpoint are on disk."""
        from memowidgets.audit.as_target import ShadowAudit

        audit = self.audit
        if isinstance(audit, ShadowAudit):  # the first target is one of its shadow models
            asks_the_model = audit._can_compute  # noqa: SLF001 - the same room
            return not asks_the_model or audit._run.has(f"targets/first/{name}")  # noqa: SLF001
        return self._passed(name)

    def _why_no_truth(self) -> str | None:
        if not isinstance(self.truth, str) or self.truth != "log_lira":
            return None
        try:
            if not len(self.log_lira("final")):
                return "no member has a log-LiRA: run more shadow models"
        except NotThereError as error:
            canaries = self._canaries() is not None
            hint = '; audit.figures(truth="canaries") needs none' if canaries else ""
            return f"no ground truth: {error}{hint}"
        return None

    def _canaries(self) -> pd.Series | None:
        """Which members are canaries; None where there are not both kinds."""
        known = self.audit.member_data.canaries
        if known is None or known.all() or not known.any():
            return None
        return pd.Series(known, pd.Index(self.audit.members))

    def _label(self, name: str) -> str:
        """A checkpoint as a reader says it."""
        row = self.checkpoints.loc[name]
        said = f"epoch {row['epoch']:g}"
        return f"{said}, predict here" if row["prediction"] else said

    # The figures

    def training(self) -> None:
        """Loss and accuracy over training."""
        if len(self.checkpoints) < _FEWEST:
            raise NotThereError("the target is not trained yet: audit.train()")
        held_out = self.checkpoints["test_loss"].notna().any()
        notes = [] if held_out else ["nothing was held out: there are no held-out curves"]
        self.add("training", charts.loss_and_accuracy, [self.checkpoints.reset_index()], notes)

    def roc(self) -> None:
        """All scores at the prediction checkpoint."""
        found, why = self.evaluations(_ALL_SCORES)
        notes: list[Reason] = [note for result in found.values() for note in result.warnings]
        curves = [charts.roc_table(found)] if found else []
        self.add("roc", charts.roc_curves, curves, [*notes, *why])

    def roc_by_checkpoint(self) -> None:
        """All scores at each checkpoint."""
        curves, names = [], self._some(self.names[1:])
        notes: list[Reason] = []
        for name in names:
            found, why = self.evaluations(_ALL_SCORES, name)
            notes += why
            if found:
                curves.append(charts.roc_table(found, panel=self._label(name)))
        if len(curves) == 1:
            raise NotThereError(
                'there are scores at one checkpoint only: audit.compare(checkpoints="all") '
                f"computes the others; {'; '.join(_said(notes))}"
            )
        if len(names) < len(self.names) - 1:
            notes.append(f"{len(names)} of {len(self.names) - 1} checkpoints are shown")
        self.add("roc_by_checkpoint", charts.roc_panels, curves, notes)

    def _some(self, names: list[str]) -> list[str]:
        """As many as panels fit on a page: evenly spread, with the prediction and the last."""
        if len(names) <= _MOST_PANELS:
            return names
        spread = np.linspace(0, len(names) - 1, _MOST_PANELS - 1).round().astype(int)
        chosen = {names[i] for i in spread} | {self._name("prediction")}
        return [name for name in names if name in chosen]

    def over_training(self) -> None:
        """AUC, median loss, PSMI and log-LiRA at every checkpoint."""
        if self._no_truth:
            raise NotThereError(self._no_truth)
        auc, groups = [], []
        notes: list[Reason] = []
        for name, epoch in zip(self.names, self.checkpoints["epoch"], strict=True):
            found, why = self.evaluations(_PREDICTORS, name)
            if name != self.names[0]:  # nothing is predicted before training
                auc.append(self.areas(found, layer="", checkpoint=name, epoch=epoch))
                notes += why
            if "psmi" in found:
                result = found["psmi"]
                groups.append(_quartiles("psmi", epoch, result.scores, result.memorized))
            groups.append(self._groups_of_lira(name, epoch, notes))
        rows = pd.concat(auc, ignore_index=True)
        if rows.empty or rows["checkpoint"].nunique() < _FEWEST:
            raise NotThereError(
                'there are scores at fewer than two checkpoints: audit.compare(checkpoints="all") '
                f"computes them; {'; '.join(_said(notes))}"
            )
        table = pd.concat(groups, ignore_index=True)
        table = table.sort_values("quantity", ascending=False, kind="stable", ignore_index=True)
        self.charts["over_training"] = charts.over_training(
            self.checkpoints.reset_index(), rows, table, self.theme
        )
        self.data["over_training"], self.data["over_training_groups"] = rows, table
        self.notes["over_training"] = _said(notes)

    def _groups_of_lira(self, name: str, epoch: float, notes: list[Reason]) -> pd.DataFrame:
        try:
            values = self.log_lira(name)
        except NotThereError as error:
            notes.append(error)
            return pd.DataFrame()
        truth = self.audit._truth(self.truth, self.eta)  # noqa: SLF001 - the same room
        both = values.index.intersection(truth.index, sort=False)
        return _quartiles(
            "log_lira", epoch, values[both].to_numpy(), truth[both].to_numpy(dtype=np.bool_)
        )

    def auc_by_layer(self) -> None:
        """PSMI and Mahalanobis at each layer, at the prediction checkpoint."""
        layers = self.audit.layers
        if len(layers) < _FEWEST:
            raise NotThereError(f"there is one layer only, {', '.join(layers)}")
        rows = []
        notes: list[Reason] = []
        for layer in layers:
            found, why = self.evaluations(scoring.PER_LAYER, layer=layer)
            rows.append(self.areas(found, layer=layer))
            notes += why
        if sum(len(table) > 0 for table in rows) == 1:
            raise NotThereError(
                'one layer only is computed: figures(compute=True), or audit.compare(layers="all")'
            )
        self.add("auc_by_layer", charts.auc_by_layer, rows, notes)

    def auc_by_eta(self, etas: Sequence[float]) -> None:
        """AUC and prevalence by η."""
        rows, notes = self._by_eta(etas, lambda found, eta: self.areas(found, eta=eta))
        planted = self._of_canaries()
        canaries = self.areas(planted) if planted else None
        self.add("auc_by_eta", charts.auc_by_eta, rows, notes, canaries=canaries, eta=self.eta)

    def roc_by_eta(self, etas: Sequence[float]) -> None:
        """A panel for each η, and one for the canaries."""

        def curves(found: Mapping[str, Evaluation], eta: float) -> pd.DataFrame:
            n = next(iter(found.values())).n_memorized
            return charts.roc_table(found, panel=f"η = {eta:g}, {n} memorised")

        rows, notes = self._by_eta(etas, curves)
        planted = self._of_canaries()
        if planted:
            n = next(iter(planted.values())).n_memorized
            rows.append(charts.roc_table(planted, panel=f"{n} canaries"))
        self.add("roc_by_eta", charts.roc_panels, rows, notes)

    def _by_eta(
        self, etas: Sequence[float], table: Callable[[Mapping[str, Evaluation], float], Any]
    ) -> tuple[list[pd.DataFrame], list[Reason]]:
        """A table for each η at which there are samples of both kinds."""
        values = None if self._why_no_lira() else self.log_lira("final")
        if values is None:
            return [], [str(self._why_no_lira())]
        rows = []
        notes: list[Reason] = []
        too_few: list[str] = []
        for eta in etas:
            n = int((values >= eta).sum())
            if min(n, len(values) - n) < _FEWEST:
                too_few.append(f"{eta:g}")
                continue
            found, why = self.evaluations(_PREDICTORS, eta=eta, truth="log_lira")
            notes += why
            if found:
                rows.append(table(found, eta))
        if too_few:
            notes.append(f"at η = {_named(too_few)} fewer than two members, or others, are left")
        return rows, notes

    def _why_no_lira(self) -> str | None:
        try:
            self.log_lira("final")
        except NotThereError as error:
            return f"no ground truth: {error}"
        return None

    def _of_canaries(self) -> dict[str, Evaluation]:
        """The scores held against the planted samples."""
        if self._canaries() is None:
            return {}
        return self.evaluations(_PREDICTORS, truth="canaries")[0]

    def lira_over_training(self) -> None:
        """Histograms of log-LiRA."""
        tables = []
        notes: list[Reason] = []
        for name in self.names:
            try:
                values = self.log_lira(name)
            except NotThereError as error:
                notes.append(error)
                continue
            tables.append(
                pd.DataFrame({"checkpoint": self._label(name), "log_lira": values.to_numpy()})
            )
        if not self.names:
            notes = ["the target is not trained yet: audit.train()"]
        self.add("lira_over_training", charts.histograms_of_log_lira, tables, notes, eta=self.eta)

    def definitions(self) -> None:
        """LiRA against counterfactual memorisation."""
        from memowidgets.audit.comparing import compared_definitions

        self.log_lira("final")
        audit = self.audit
        _, members, gaps, target = audit.member_gaps("final")
        found = compared_definitions(audit.members, gaps, members, target, None, "shrunk", 500, 0)
        self.add(
            "definitions",
            charts.memorization_scatter,
            [found.values.reset_index()],  # noqa: PD011 - its attribute
            [],
            spearman=found.spearman,
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


def _said(reasons: Iterable[Reason]) -> list[str]:
    """Each different reason once, with all checkpoints that it holds for."""
    places: dict[str, list[str]] = {}
    for reason in reasons:
        alike = isinstance(reason, NotThereError) and "{}" in reason.what
        what = reason.what if isinstance(reason, NotThereError) and alike else str(reason)
        there = places.setdefault(what, [])
        if isinstance(reason, NotThereError) and alike and reason.checkpoint not in there:
            there.append(reason.checkpoint)
    return [what.replace("{}", _named(there)) for what, there in places.items()]


def _named(checkpoints: Sequence[str]) -> str:
    """Some of them, and how many more."""
    if len(checkpoints) <= _MOST_NAMED:
        return ", ".join(checkpoints)
    return (
        f"{', '.join(checkpoints[: _MOST_NAMED - 1])} and {len(checkpoints) - _MOST_NAMED + 1} more"
    )
