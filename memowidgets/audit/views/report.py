"""What an audit says of itself: the content of its report, and its summary in a cell.

What it does not have is named as missing, never invented.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from memowidgets.audit.evidence import Evidence
from memowidgets.audit.names import GIVEN
from memowidgets.audit.numbers import scores
from memowidgets.audit.numbers.truth import log_lira, member_log_lira, support
from memowidgets.audit.views.in_time import scores_in_time
from memowidgets.audit.views.listing import checked_selection, plain
from memowidgets.audit.views.nearest import class_nearby
from memowidgets.data import WithheldDataset
from memowidgets.data.dataset import kind_of
from memowidgets.decisions import FILE as DECISIONS
from memowidgets.evaluation.scored import LowestShare, Rule, Scored
from memowidgets.extras import installed, pip_install
from memowidgets.files import open_regular
from memowidgets.registry import Score, spoken
from memowidgets.report import Content, Digest, Figure
from memowidgets.store import MANIFEST, NotThereError, StoreError
from memowidgets.vocabulary import Note, listed, percent, verb, visible, without_names
from memowidgets.widgets.explored import Judged, opening
from memowidgets.widgets.standin import still
from memowidgets.widgets.standin import table as html_table

if TYPE_CHECKING:
    from memowidgets.charts import Figures
    from memowidgets.decisions import DecisionLog
    from memowidgets.progress import Progress
    from memowidgets.widgets.messages import Asked

ETA = 4.0
MANY = 20_000  # members; figures by η then have fewer of them
FEW_ETAS = (2.0, 4.0, 8.0)
NOUNS = {
    "image": "images",
    "text": "texts",
    "record": "texts",
    "question": "questions",
    "row": "rows",
}
LIBRARIES = ("memowidgets", "torch", "numpy", "scipy", "scikit-learn")
Found = TypeVar("Found")
_BESIDE_WEIGHTS = ("outputs", "resume")  # other tensors in the folder of a checkpoint


class Audited(Protocol):
    """What a view asks of an audit."""

    @property
    def evidence(self) -> Evidence:
        """What all numbers are computed from, as it is now."""

    @property
    def decision_log(self) -> DecisionLog:
        """What was decided on its samples."""

    def evidence_for(
        self,
        metric: str | Score,
        layer: str = "last",
        checkpoint: str = "prediction",
        *,
        answers: bool = False,
        progress: Progress | None = None,
    ) -> Evidence:
        """Return the evidence with all that a score and the truth are computed from."""


def content_of(
    audit: Audited,
    tau: Rule | str,
    metric: str | None,
    layer: str = "last",
    checkpoint: str = "prediction",
    *,
    share: float | None = None,
    include_samples: bool,
    figures: bool = True,
    eta: float = ETA,
    view: Mapping[str, Any] = MappingProxyType({}),
) -> Content:
    """Return all that a report says of an audit.

    Parameters
    ----------
    audit : Audited
        The audit.
    tau : float, "class" or None
        Where τ stands at first; None for the score's natural one, or the lowest 5 %. ``"class"``:
        the scores are those against the class, with τ at -1.
    share : float, optional
        Share of the members to flag, instead of `tau`.
    metric : str or None
        The score; None for what is there.
    layer, checkpoint : str
        Where the score is of.
    include_samples : bool
        Whether samples, their labels and their ids are in it.
    figures : bool
        Whether figures are drawn.
    eta : float
        Log-LiRA from which on a member is memorised.
    view : mapping of str to object
        How the page opens, by the names of `Dashboard.state`, such as its filter.

    Raises
    ------
    ValueError
        If τ is no number, or the score is unknown.
    """
    evidence = audit.evidence
    if metric is None:
        metric = scores.opening_metric(evidence)
    row = scores.row_at(evidence, metric, layer, checkpoint)
    rule = checked_selection(tau, share)
    if isinstance(rule, float) and not math.isfinite(rule):
        raise ValueError(f"tau must be a finite number, not {tau}")
    # the part that needs it says why it is missing
    with suppress(StoreError, ValueError):
        audit.evidence_for(row, layer, checkpoint)
    gathering = _Gathering(audit.evidence, audit.decision_log, eta)
    pick = row, layer, checkpoint
    content = gathering.content(
        rule, pick, include_samples=include_samples, figures=figures
    )
    return replace(content, view=view, asked=view.get("asked", content.asked))


def _asked_of(rule: Rule, scored: Scored) -> Asked:
    """Return what a rule asks for, as a dashboard says it."""
    if isinstance(rule, LowestShare):
        return {"share": rule.share}
    return opening(scored)[0] if rule is None else {}


class _Gathering:
    """Collects the parts of a report, and notes which are missing."""

    def __init__(self, evidence: Evidence, log: DecisionLog, eta: float) -> None:
        self._evidence, self._log, self._eta = evidence, log, eta
        self._missing: dict[str, str] = {}
        self._name = Path(evidence.path).name or "audit"

    def content(
        self,
        rule: Rule,
        pick: tuple[Score, str, str],
        *,
        include_samples: bool,
        figures: bool,
    ) -> Content:
        evidence, manifest = self._evidence, self._evidence.manifest
        scored = self._try_to("scores", lambda: self._scored(pick, include_samples))
        scored, at = scored.on(rule) if scored else (None, 0.0)
        asked = _asked_of(rule, scored) if scored else {}
        in_time = scores_in_time(evidence, *pick[:2], scored) if scored else []
        what = "how many models memorised each"
        support = self._try_to(what, lambda: self._support(scored)) if scored else None
        if not evidence.has_ground_truth:  # the audit's own words say why
            self._try_to(
                "ground truth: memorised samples, TPR, FPR, AUC", self._no_truth
            )
        self._log.refresh()
        if self._log.unread:
            self._miss("decisions", self._log.unread)
        samples = evidence.member_data if include_samples else None
        if isinstance(samples, WithheldDataset):
            self._miss("samples", "they are not at hand, only their ids")
            samples = None
        notes = self._try_to("warnings", lambda: evidence.notes_at(pick[2])) or ()
        return Content(
            name=self._name,
            created=f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
            facts=facts_of(evidence),
            numbers={
                "members": len(evidence.members),
                "samples": len(evidence.data),
                "classes": len(evidence.data.class_names),
                "shadow_models": evidence.n_shadows,
            },
            layers=evidence.names.layer_names,
            training=self._training(),
            trained_by=trained_by(evidence),
            earlier=[(one.step, one.settings or {}) for one in evidence.origins[:-1]],
            versions=self._versions(),
            seed=manifest.get("seed"),
            checkpoints=self._checkpoints(),
            tau=at,
            eta=self._eta,
            score=pick[0],
            scored=scored,
            ids=[str(name) for name in evidence.members],
            samples=samples,
            class_names=evidence.data.class_names if include_samples else (),
            decisions=self._log.table(),
            asked=asked,
            in_time=in_time,
            figures=self._figures() if figures else (),
            warnings=tuple(self._said(note, include_samples) for note in notes),
            missing=self._missing,
            truth_given="log_lira" in evidence.given,
            digests=digests_of(evidence, None if scored is None else scored.checkpoint),
            support=support,
            noun=noun_of(evidence),
            can_train=is_trained_here(evidence),
            is_recording=manifest.get("recording") is not None,
            leaves_out=len(evidence.member_rows) < len(evidence.pool),
        )

    def _try_to(self, what: str, ask: Callable[[], Found]) -> Found | None:
        """What the audit answers; None, and a note, where it has nothing to answer with."""
        try:
            return ask()
        except NotThereError as error:
            why = error.said
        except (StoreError, ValueError) as error:
            why = without_names(error)
        self._miss(what, why)
        return None

    def _miss(self, what: str, why: str) -> None:
        self._missing[what] = self._without_place(why)

    def _without_place(self, text: str) -> str:
        """A sentence without the place of the run, which is nobody else's business."""
        return text.replace(self._evidence.path, self._name)

    def _said(self, note: Note, include_samples: bool) -> Note:
        """A note without the place of the run, and without names unless samples are shown."""
        sentence = self._without_place(note.sentence)
        names = note.names if include_samples else ()
        return Note(note.key, sentence, names, **note.numbers)

    def _scored(self, pick: tuple[Score, str, str], include_samples: bool) -> Scored:
        evidence, (row, layer, checkpoint) = self._evidence, pick
        checkpoint = evidence.names.record(checkpoint).name
        there = evidence.has_ground_truth
        truth = (
            self._try_to("log-LiRA", lambda: member_log_lira(evidence))
            if there
            else None
        )
        found = scores.scored_members(
            evidence, row, layer, checkpoint, truth=truth is not None
        )
        where = [f"layer {found.layer}"] if found.layer not in ("", "last") else []
        where += [checkpoint.replace("-", " ")] if checkpoint != GIVEN else []
        nearby = None
        of_classes = self._try_to(
            "the model's probabilities",
            lambda: scores.probabilities(evidence, checkpoint),
        )
        if of_classes is not None and include_samples:
            nearby = class_nearby(evidence, layer, checkpoint, of_classes)
        known = found.doubt and found.doubt(self._eta)
        notes = [*found.notes, *scores.notes_on_zero(row, found)]
        n_unscored = len(evidence.members) - len(found)
        if n_unscored:
            of = f"{n_unscored} of {len(evidence.members)} members"
            said = f"{of} {verb(n_unscored, 'has', 'have')} no score"
            notes.append(Note("unscored", said, n=n_unscored))
        named = replace(
            found,
            title=", ".join([row.spoken, *where]),
            probabilities=None if of_classes is None else of_classes[found.positions],
            nearby=None if nearby is None else nearby[found.positions],
            notes=tuple(self._said(note, include_samples) for note in notes),
            doubt=lambda _eta: known,
        )
        judged = Judged.of(named, self._eta)
        if not judged.note:
            return judged.scored
        left_out = Note("left out", judged.note, n=len(named) - len(judged.scored))
        return replace(judged.scored, notes=(*named.notes, left_out))

    def _support(self, scored: Scored) -> tuple[Any, Any] | None:
        """How many models memorised each of these members, of how many."""
        counts, rows = support(self._evidence, self._eta), scored.positions
        return counts and (counts.memorized[rows], counts.models[rows])

    def _no_truth(self) -> None:
        log_lira(self._evidence)
        raise NotThereError("there is no log-LiRA at the end of training")

    def _training(self) -> Mapping[str, Any]:
        """The settings that the target was trained with, as far as anybody told them."""
        if not self._evidence.origins:
            self._miss("settings of the training", "no training was recorded yet")
            return {}
        origin = self._evidence.origins[-1]
        if not origin.settings:
            self._miss("settings of the training", origin.sentence)
        return origin.settings or {}

    def _versions(self) -> dict[str, Mapping[str, str]]:
        then = self._evidence.manifest.get("versions") or {}
        found = {"run": {str(name): str(of) for name, of in then.items()}}
        for origin in self._evidence.origins[-1:]:
            found["training"] = dict(origin.versions or {})
        found["report"] = installed(LIBRARIES)
        return {name: of for name, of in found.items() if of}

    def _checkpoints(self) -> list[dict[str, Any]]:
        table = self._try_to("checkpoints", self._evidence.table)
        if table is None or not len(table):
            self._miss("checkpoints", "the target is not trained yet")
            return []
        # by ρ
        table = table.assign(prediction=table["prediction"] & table["epoch"].notna())
        rows = table.reset_index().to_dict("records")
        return [
            {str(name): plain(value) for name, value in row.items()} for row in rows
        ]

    def _figures(self) -> tuple[Figure, ...]:
        """The figures that `Audit.figures` draws."""
        evidence = self._evidence
        if find_spec("altair") is None:
            self._miss("figures", f"they are drawn by Altair: {pip_install('figures')}")
            return ()
        from memowidgets.audit.views.figures import audit_figures  # it imports Altair

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the report says them itself
            etas = FEW_ETAS if len(evidence.member_rows) > MANY else None
            draw = partial(audit_figures, evidence, self._eta, etas=etas, advice=False)
            figures = self._try_to("figures", draw)
        if figures is None:
            return ()
        for names, why in figures.reasons():
            self._miss(f"figures {names}", why)
        import vl_convert

        drawings = {name: figures[name].to_dict(validate=False) for name in figures}
        return tuple(
            Figure(
                name, self._caption(figures, name, one), vl_convert.vegalite_to_svg(one)
            )
            for name, one in drawings.items()
        )

    def _caption(self, figures: Figures, name: str, drawing: Mapping[str, Any]) -> str:
        said = [drawing["description"], *figures.notes.get(name, ())]
        return self._without_place(" ".join(map(_sentence, said)))


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def noun_of(evidence: Evidence) -> str:
    """Return what a reader calls the samples."""
    source = (evidence.manifest.get("data") or {}).get("source") or {}
    if source.get("loader") == "make_patients":
        return "notes"
    return NOUNS.get(kind_of(evidence.member_data) or "", "samples")


def digests_of(evidence: Evidence, checkpoint: str | None) -> tuple[Digest, ...]:
    """Return the digests of a run's files: weights, manifest and decisions.

    The manifest has the digest of each sample, or of the arrays that were given.
    """
    run = evidence.whole or evidence
    folder = Path(run.path)
    files = [("run", folder / MANIFEST), ("decisions", folder / DECISIONS)]
    if run is evidence and checkpoint is not None:
        weights = sorted((folder / "checkpoints" / checkpoint).glob("*.safetensors"))
        own = [("model", file) for file in weights if file.stem not in _BESIDE_WEIGHTS]
        files = [*own, *files]
    there = [(what, file) for what, file in files if file.is_file()]
    return tuple(
        Digest(what, str(f.relative_to(folder)), _sha256(f)) for what, f in there
    )


def _sha256(file: Path) -> str:
    with open_regular(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


# the summary in a cell


def facts_of(evidence: Evidence) -> dict[str, str]:
    """Return what an audit is of, as its report and its summary in a cell list it."""
    manifest, n_checkpoints = evidence.manifest, len(evidence.names.found)
    recording, fork = manifest.get("recording") or {}, manifest.get("fork")
    origin = (manifest.get("data") or {}).get("source") or {}
    model = manifest.get("model") or {}
    last = evidence.origins[-1] if evidence.origins else None
    own = last.settings if last and last.settings and not last.recorder else {}
    noise = own.get("label_noise")
    # an audit's recipe says nothing of what somebody else's loop put into the model
    recipe = str(model.get("settings") or "") if is_trained_here(evidence) else ""
    chosen = evidence.names.prediction() if n_checkpoints > 1 else None
    facts = {
        "recorded audit": recording.get("title"),
        "model": (last and last.model) or model.get("class"),
        "model settings": recipe.strip("{}").replace('"', ""),
        "data": origin.get("loader"),
        "members": f"{len(evidence.members)} of {len(evidence.data)} samples",
        "classes": str(len(evidence.data.class_names)),
        "layers": listed(evidence.names.layer_names),
        "scores": ", ".join(scores.metrics_of(evidence)),
        "fork": fork and f"of another run, from {fork['checkpoint'] or 'scratch'}",
        "label noise": noise and f"{percent(noise)} of the pool's labels",
        "training": trained_by(evidence),
        "checkpoints": str(n_checkpoints),
        "prediction": chosen and f"{chosen.record.name}: {chosen.reason}",
        "reference models": str(len(evidence.references.indices)),
        "shadow models": str(evidence.n_shadows),
        "ground truth": evidence.truth_in_words if evidence.has_ground_truth else None,
    }
    return {name: str(text) for name, text in facts.items() if text}


def trained_by(evidence: Evidence) -> str:
    """Return who trained the target and what recorded that, in a sentence or two."""
    is_trained = evidence.names.found and evidence.origins
    return evidence.origins[-1].sentence if is_trained else ""


def is_trained_here(evidence: Evidence) -> bool:
    """Return whether the audit trains its models, rather than a loop of somebody else."""
    if evidence.manifest.get("recording") is not None:
        return False
    return not any(origin.recorder for origin in evidence.origins)


def summary_html(evidence: Evidence) -> str:
    """Return the dots and the main facts of an audit as HTML in which all text is escaped."""
    is_trained = len(evidence.names.found) > 1 or bool(evidence.given)
    notes = evidence.notes_at("prediction") if is_trained else ()
    rows = [(name, visible(text, 100)) for name, text in facts_of(evidence).items()]
    name = Path(evidence.path).name
    # a saved notebook tells nobody where the run is, nor names a sample
    rows += [
        ("warning", note.sentence.replace(evidence.path, name or "audit"))
        for note in notes
    ]
    return _picture(evidence) + html_table(f"Audit of {name}", rows)


def _picture(evidence: Evidence) -> str:
    """Return the dots of the score that a dashboard opens with, or "" if it is not computed."""
    with suppress(StoreError, ValueError):
        metric = scores.opening_metric(evidence)
        if scores.is_computed(evidence, metric, "last", "prediction"):
            found = scores.scored_members(
                evidence, metric, truth=evidence.has_ground_truth
            )
            return still(replace(found, title=spoken(metric)), None, ETA)
    return ""
