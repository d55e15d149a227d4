"""What an audit has to say, gathered for its report; what is not there is named, not invented."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from memowidgets.audit import scoring
from memowidgets.audit.view import TITLES
from memowidgets.data import WithheldDataset
from memowidgets.report import Content, Decided, Figure, Missing, Scored
from memowidgets.store import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.audit.audit import Audit
    from memowidgets.charts import Figures

__all__ = ["content_of"]

ETA = 4.0
MANY = 20_000  # members; figures by η then have fewer of them
FEW_ETAS = (2.0, 4.0, 8.0)
GIVEN = "given"  # the one checkpoint of an audit from arrays
LIBRARIES = ("memowidgets", "torch", "numpy", "scipy", "scikit-learn")
Found = TypeVar("Found")
_CHECKPOINT = (
    "epoch",
    "step",
    "median_loss",
    "drop",
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "prediction",
    "learned",
)


_NATURAL = {"psmi": 0.0, "logit_gap": 0.0, "baseline": -ETA}


def content_of(
    audit: Audit,
    manifest: Mapping[str, Any],
    tau: float | None,
    metric: str | None,
    *,
    include_samples: bool,
) -> Content:
    """All that a report says of an audit.

    Parameters
    ----------
    audit : Audit
        Whose report it is.
    manifest : mapping
        Its run's.
    tau : float or None
        Where τ stands at first; None for the score's natural one.
    metric : str or None
        The score, at the last layer and the prediction checkpoint; None for what is there.
    include_samples : bool
        Whether samples, their labels and their ids are in it.

    Raises
    ------
    ValueError
        If τ is no number, or not given where the score has no natural one, or the score is
        unknown.
    """
    if metric is None:
        there = audit.metrics
        metric = "psmi" if "psmi" in there or "logit_gap" not in there else "logit_gap"
    if metric not in TITLES:
        raise ValueError(f"unknown score {metric!r}; valid: {', '.join(TITLES)}")
    tau = _NATURAL.get(metric) if tau is None else tau
    if tau is None:
        raise ValueError(f"no τ means the same for every {metric}: give tau, at which to flag")
    if not math.isfinite(tau):
        raise ValueError(f"tau must be a finite number, not {tau}")
    return _Gathering(audit, manifest).content(float(tau), metric, include_samples=include_samples)


class _Gathering:
    """Asks an audit for one thing after the other, and notes what it has not."""

    def __init__(self, audit: Audit, manifest: Mapping[str, Any]) -> None:
        self._audit, self._manifest = audit, manifest
        self._missing: list[Missing] = []
        self._name = Path(audit.path).name or "audit"

    def content(self, tau: float, metric: str, *, include_samples: bool) -> Content:
        audit = self._audit
        scored = self._tried("scores", lambda: self._scored(metric, include_samples))
        self._note_truth()
        if len(audit.layers) == 1:
            self._miss("scores by layer", "the model has one layer")
        samples = self._samples() if include_samples else None
        return Content(
            name=self._name,
            created=f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
            facts=self._facts(),
            numbers={
                "members": len(audit.members),
                "samples": len(audit.data),
                "classes": len(audit.data.class_names),
                "shadow_models": audit.n_shadows,
            },
            layers=audit.layers,
            training=self._tried("settings of the training", self._training) or {},
            versions=self._versions(),
            seed=self._manifest.get("seed"),
            checkpoints=self._checkpoints(),
            tau=tau,
            eta=ETA,
            scored=scored,
            ids=[str(name) for name in audit.members],
            samples=samples,
            class_names=audit.data.class_names if include_samples else (),
            canaries=self._canaries(),
            decisions=self._decisions(),
            figures=self._figures(),
            warnings=self._warnings(),
            missing=tuple(self._missing),
            truth_given=getattr(getattr(audit, "_given", None), "log_lira", None) is not None,
        )

    # ------------------------------------------------------------ trying

    def _tried(self, what: str, ask: Callable[[], Found]) -> Found | None:
        """What the audit answers; None, and a note, where it has nothing to answer with."""
        try:
            return ask()
        except (StoreError, ValueError) as error:
            self._miss(what, str(error))
            return None

    def _miss(self, what: str, why: str) -> None:
        self._missing.append(Missing(what, self._unplaced(why)))

    def _unplaced(self, text: str) -> str:
        """A sentence without the place of the run, which is nobody else's business."""
        return text.replace(self._audit.path, self._name)

    # ------------------------------------------------------------ numbers

    def _scored(self, metric: str, include_samples: bool) -> Scored:
        audit = self._audit
        checkpoint = audit.prediction.record.name
        found = audit.raw_scores(metric, "last", checkpoint)
        per_layer = metric in scoring.PER_LAYER
        layer = audit.layers[-1] if per_layer else ""
        where = [f"layer {layer}"] if layer not in ("", "last") else []
        where += [checkpoint.replace("-", " ")] if checkpoint != GIVEN else []
        probabilities = None
        if include_samples:
            probabilities = self._tried(
                "the model's probabilities", lambda: audit.probabilities(checkpoint)
            )
        return Scored(
            metric=metric,
            title=", ".join([TITLES[metric], *where]),
            layer=layer,
            checkpoint=checkpoint,
            positions=found.rows,
            scores=found.mu,
            errors=found.errors,
            log_lira=self._log_lira(found.rows),
            labels=audit.labels[found.rows] if include_samples else None,
            probabilities=None if probabilities is None else probabilities[found.rows],
            others=self._others(metric, checkpoint, found.rows),
            notes=found.notes,
        )

    def _log_lira(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        audit = self._audit
        if not audit.has_ground_truth:
            return None
        values = self._tried("log-LiRA", audit.log_lira)
        if values is None:
            return None
        return values.reindex(audit.members[rows]).to_numpy(dtype=np.float64)

    def _others(
        self, metric: str, checkpoint: str, rows: NDArray[np.int64]
    ) -> dict[str, NDArray[np.float64]]:
        """The other scores that are computed already, of the same members."""
        audit = self._audit
        found = {}
        for name in scoring.METRICS if audit.has_ground_truth else ():
            if name == metric or not audit.is_computed(name, "last", checkpoint):
                continue
            try:
                scores = audit.raw_scores(name, "last", checkpoint)
            except (StoreError, ValueError):  # from arrays: what it is made of was not given
                continue
            everywhere = np.full(len(audit.members), np.nan)
            everywhere[scores.rows] = scores.mu
            if np.isfinite(everywhere[rows]).all():
                found[TITLES[name]] = everywhere[rows]
        return found

    def _note_truth(self) -> None:
        """In the audit's own words why there is no truth, and what would give one."""
        what = "ground truth: memorised samples, TPR, FPR, AUC"
        if not self._audit.has_ground_truth and self._tried(what, self._audit.log_lira) is not None:
            self._miss(what, "there is no log-LiRA at the end of training")

    # ------------------------------------------------------------ what it is

    def _facts(self) -> dict[str, str]:
        manifest, audit = self._manifest, self._audit
        recording = manifest.get("recording") or {}
        source = (manifest.get("data") or {}).get("source") or {}
        model = manifest.get("model") or {}
        facts = {
            "recorded audit": recording.get("title"),
            "model": model.get("class"),
            "model settings": _flat(model.get("settings")),
            "data": source.get("loader"),
            "members": f"{len(audit.members)} of {len(audit.data)} samples",
            "classes": str(len(audit.data.class_names)),
            "layers": ", ".join(audit.layers),
            "shadow models": str(audit.n_shadows),
            "ground truth": audit.truth_in_words if audit.has_ground_truth else None,
        }
        return {name: str(text) for name, text in facts.items() if text}

    def _training(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in self._audit.training.described().items()}

    def _versions(self) -> dict[str, dict[str, str]]:
        now = {name: importlib.metadata.version(name) for name in LIBRARIES}
        then = {str(k): str(v) for k, v in (self._manifest.get("versions") or {}).items()}
        return {"run": then, "report": now} if then else {"report": now}

    def _checkpoints(self) -> list[dict[str, Any]]:
        table = self._tried("checkpoints", lambda: self._audit.checkpoints)
        if table is None or not len(table):
            self._miss("checkpoints", "the target is not trained yet: audit.train() trains it")
            return []
        there = [name for name in _CHECKPOINT if name in table]
        table = table.assign(prediction=table["prediction"] & table["epoch"].notna())  # by ρ
        rows = table[there].to_dict("records")
        return [
            {"name": str(name), **{str(k): _plain(v) for k, v in row.items()}}
            for name, row in zip(table.index, rows, strict=True)
        ]

    def _canaries(self) -> NDArray[np.bool_] | None:
        found = self._audit.member_data.canaries
        return None if found is None else np.asarray(found, dtype=np.bool_)

    def _decisions(self) -> dict[str, Decided]:
        log = self._audit.decision_log
        log.refresh()
        if log.problem:
            self._miss("decisions", log.problem)
        return {name: Decided(made.decision, made.note) for name, made in log.table().items()}

    def _samples(self) -> Any:
        data = self._audit.member_data
        if isinstance(data, WithheldDataset):
            self._miss("samples", "they are not at hand: open the audit with data=…")
            return None
        return data

    def _warnings(self) -> tuple[str, ...]:
        found = self._tried("warnings", lambda: self._audit.warnings_at("prediction"))
        chance = self._tried("false alarms", lambda: self._audit._notes_on_chance(ETA))  # noqa: SLF001
        return tuple(map(self._unplaced, (*(found or ()), *(chance or ()))))

    # ------------------------------------------------------------ figures

    def _figures(self) -> tuple[Figure, ...]:
        """What `Audit.figures` draws of what is there."""
        make = self._audit.figures
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the report says them itself
            etas = FEW_ETAS if len(self._audit.members) > MANY else None
            figures = self._tried("figures", lambda: make(etas=etas))
        if figures is None:
            return ()
        reasons: dict[str, list[str]] = {}
        for name, why in figures.missing.items():
            reasons.setdefault(str(why), []).append(name.replace("_", " "))
        for why, names in reasons.items():
            self._miss(f"{'figure' if len(names) == 1 else 'figures'} {', '.join(names)}", why)
        return tuple(self._drawn(figures, name) for name in figures)

    def _drawn(self, figures: Figures, name: str) -> Figure:
        import vl_convert

        drawing = figures[name].to_dict()
        said = [_caption(name, drawing), *figures.notes.get(name, ())]
        caption = self._unplaced(" ".join(map(_sentence, said)))
        return Figure(name, caption, vl_convert.vegalite_to_svg(drawing))


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _caption(name: str, drawing: Mapping[str, Any]) -> str:
    """What the chart says of itself, else its name."""
    for said in ("description", "title"):
        text = drawing.get(said)
        if isinstance(text, dict):
            text = text.get("text")
        if isinstance(text, str) and text:
            return text
    return name.replace("_", " ")


def _flat(settings: Any) -> str | None:
    """A model's settings as one line; they are kept as JSON."""
    try:
        found = json.loads(settings) if isinstance(settings, str) else settings
    except ValueError:
        return str(settings)
    if not isinstance(found, dict):
        return None if found is None else str(found)
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in found.items()) or None


def _plain(value: Any) -> Any:
    """A number or text as JSON has it; NaN is None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    known = value is None or isinstance(value, bool | int | float | str)
    return value if known else str(value)
