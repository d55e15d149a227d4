"""What moves on the site: recorded audits and playgrounds as parts of a page, without a kernel.

`conf.py` puts them where a page says ``{live}``. Everything that a part needs stands in the page
itself, so it also moves when the page is opened from disk.
"""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.data.benchmarks import MMLU_FIELDS
from memowidgets.report.page import pack, thousandths
from memowidgets.vocabulary import at, between, percent, visible, whole
from memowidgets.widgets import widget
from memowidgets.widgets.explored import asked_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from memowidgets.audit.evidence import Evidence
    from memowidgets.audit.views.answers import AuditView
    from memowidgets.evaluation.scored import Scored
    from memowidgets.widgets.messages import Asked

    Floats = NDArray[np.float64]

__all__ = ["KINDS", "Moving", "UnknownPartError", "part"]

FOLDER = Path(__file__).parents[1] / "docs" / "live"
ETA = 4.0
LEVELS = 255  # of standard errors: each counts as the next level above it
MOST_GAP = 300.0  # logits; what is beyond is drawn there
STATIC = "_static/stills/"
# Seen only without JavaScript, or where start.js shows it: no picture is loaded for nothing.
STANDS = (
    "<noscript><style>#live-still { display: block }</style>"
    "<p>This part moves if JavaScript is on. It opens like this:</p></noscript>"
)
PLAYGROUNDS = {
    "watch": "MemorizationPlayground",
    "psmi": "PSMIPlayground",
    "lira": "LiRAPlayground",
    "theorem": "TheoremPlayground",
}


class UnknownPartError(ValueError):
    """A page asks for a part that there is not."""


@dataclass(frozen=True)
class Shown:
    """What of a recorded audit its page offers. All layers are there at the ρ checkpoint alone.

    Attributes
    ----------
    scores : tuple of str
        Scores, in the order of the picker.
    checkpoints, layers : tuple of str
        Names; empty for all of them.
    classes : tuple of str
        Names of the classes where the recording only has letters.
    asked : Asked
        What is asked for at first; by default τ = 0.
    """

    scores: tuple[str, ...]
    checkpoints: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    asked: Asked = field(default_factory=dict)


# A page is to weigh at most 1.4 MB: a score of 4444 members takes 24 KB of it.
RECORDINGS = {
    "patients-smollm2": Shown(("psmi", "loss", "csl", "psmi+csl")),
    "mmlu-field-smollm2": Shown(
        ("psmi", "loss", "mahalanobis", "csl", "psmi_mean", "psmi+csl"),
        classes=MMLU_FIELDS,
    ),
    "banking77-smollm2": Shown(
        ("psmi", "loss", "mahalanobis", "csl", "psmi+csl"),
        tuple(f"epoch-{epoch}" for epoch in ("0.5", "1", "1.5", "2", "3", "4", "5")),
    ),
    "cifar10-wrn": Shown(
        ("psmi", "loss", "csl"),
        tuple(f"epoch-{epoch}" for epoch in (1, 3, 6, 10, 15, 18)),
        ("group1.block2", "group2.block2", "group3.block2", "features"),
        asked={"share": 0.1},
    ),
}


@dataclass(frozen=True)
class Moving:
    """A moving part of a page.

    Attributes
    ----------
    name : str
        Of its script in ``docs/live``.
    title : str
        What it is, for a reader who can't see it move.
    still : str
        Markup that stands in for it: a picture and a table.
    content : dict
        What its script gets.
    """

    name: str
    title: str
    still: str
    content: dict[str, Any]

    def markup(self, root: str = "") -> str:
        """Return the part as HTML, with its script, its style and its content.

        Parameters
        ----------
        root : str
            Path from the page to the site's root, as in ``"../"``.
        """
        still = self.still.replace(STATIC, f"{root}{STATIC}")
        return "\n".join(
            [
                f"<style>{style(self.name)}</style>",
                (
                    f"<div class='live live-{self.name}' role='region' "
                    f"aria-label='{html.escape(self.title)}'>"
                ),
                "<p class='live-note' id='live-problem' role='alert' hidden></p>",
                f"<div class='live-still' id='live-still' hidden>{STANDS}{still}</div>",
                "<div id='live'></div></div>",
                f"<script type='text/plain' id='live-data'>{pack(self.content)}</script>",
                f"<script>{widget.page_script(FOLDER / f'{self.name}.js')}</script>",
            ]
        )


def part(kind: str, name: str) -> Moving:
    """Return a moving part.

    Parameters
    ----------
    kind : {"audit", "glance", "hands", "playground"}
        A recorded audit with all its pickers; a guess and its samples with one slider; the guess of
        a class; or a playground.
    name : str
        Of the recording or the playground.

    Raises
    ------
    UnknownPartError
        If there is no such kind, recording or playground, or the recording cannot be read.
    """
    if kind not in KINDS:
        raise UnknownPartError(
            f"unknown kind {kind!r} of a live part; valid: {', '.join(KINDS)}"
        )
    valid = PLAYGROUNDS if kind == "playground" else RECORDINGS
    if name not in valid:
        raise UnknownPartError(f"unknown {kind} {name!r}; valid: {', '.join(valid)}")
    return KINDS[kind](name)


@cache
def style(name: str) -> str:
    """Return the style sheets of a part."""
    if name in PLAYGROUNDS:
        from memowidgets.teaching.playgrounds import STYLE

        return f"{STYLE}\n{(FOLDER / 'live.css').read_text('utf-8')}"
    from memowidgets.teaching.guess import SHEET

    return widget.style(*widget.STYLES, SHEET, FOLDER / "live.css")


# -------------------------------------------------------------------- recorded audits


def audit(name: str) -> Moving:
    """Return a recorded audit with its checkpoints, layers and scores, samples and ids."""
    recorded = _Recorded(name)
    content = recorded.opening() | recorded.picks() | recorded.samples()
    content["views"] = [recorded.wire(*pick) for pick in recorded.offered()]
    content["moments"] = recorded.moments()
    return Moving("recorded", recorded.title, recorded.still(), content)


def glance(name: str) -> Moving:
    """Return a guess on a recorded audit, and its samples with one slider, for PSMI at ρ."""
    from memowidgets.audit import open_recorded
    from memowidgets.commands.demo import guess_of

    recorded = _Recorded(name)
    content = recorded.opening() | recorded.picks() | recorded.samples()
    content["views"] = [recorded.wire(*recorded.first)]
    content["opened"] = recorded.clearest()
    content["guess"] = guess_of(open_recorded(name))
    return Moving("glance", recorded.title, recorded.still(), content)


def hands(name: str) -> Moving:
    """Return the guess of a whole class on a recorded audit."""
    from memowidgets.audit import open_recorded
    from memowidgets.commands.demo import guess_of

    recorded = _Recorded(name)
    return Moving(
        "hands",
        recorded.title,
        recorded.still(),
        {"guess": guess_of(open_recorded(name))},
    )


class _Recorded:
    """Reads what a page shows of a recorded audit."""

    def __init__(self, name: str) -> None:
        self.shown = RECORDINGS[name]
        self.evidence, self.view = _opened(name)
        self.title = f"Recorded audit: {self.evidence.manifest['recording']['title']}"
        wanted = self.shown.checkpoints
        found = self.view.checkpoint_choices()
        self.checkpoints = [c for c in found if not wanted or c.value in wanted]
        layers = self.view.layer_choices()
        self.layers = [
            c for c in layers if not self.shown.layers or c.value in self.shown.layers
        ]
        self.scores = [
            c for c in self.view.score_choices() if c.value in self.shown.scores
        ]
        self.last = next(c.value for c in layers if c.marked)
        self.rho = next(c.value for c in self.checkpoints if c.marked)
        self.first = ("psmi", self.last, self.rho)
        # A member that every shadow model trained on, or none, has no log-LiRA and is left out.
        measured = self.view.view(*self.first).log_lira
        self.rows = np.flatnonzero(np.isfinite(() if measured is None else measured))
        self.truth = self._scored(*self.first).log_lira
        scored = self._scored(*self.first)
        self.tau = scored.on(asked_rule(self.shown.asked, 0.0))[1]

    def opening(self) -> dict[str, Any]:
        """Return where τ and η stand, and log-LiRA of every member."""
        from memowidgets.widgets.explored import eta_range

        return {
            "tau": self.tau,
            "asked": self.shown.asked,
            "eta": ETA,
            "eta_range": eta_range(self.truth),
            "log_lira": thousandths(self.truth).tobytes(),
            "first": self.first,
        }

    def picks(self) -> dict[str, Any]:
        """Return what can be picked, in the form of the dashboard's bar."""
        from memowidgets.widgets.dashboard import packed_choices

        return {
            "choices": {
                "checkpoints": packed_choices(self.checkpoints),
                "layers": packed_choices(self.layers),
                "metrics": packed_choices(self.scores),
            }
        }

    def moments(self) -> list[dict[str, Any]]:
        """Return the checkpoints on the page in the form of the dashboard's timeline."""
        offered = [choice.value for choice in self.checkpoints]
        found = self.view.moments()
        return [asdict(one) for one in found if one.value in offered]

    def offered(self) -> Iterator[tuple[str, str, str]]:
        """Yield the score, layer and checkpoint of each view that is on the page."""
        for score in self.scores:
            for checkpoint in self.checkpoints:
                there = (
                    self.layers
                    if score.uses_layer and checkpoint.value == self.rho
                    else ()
                )
                for layer in [c.value for c in there] or [self.last]:
                    pick = score.value, layer, checkpoint.value
                    if self.view.is_computed(*pick):
                        yield pick

    def wire(self, score: str, layer: str, checkpoint: str) -> dict[str, Any]:
        """Return one view: its scores in the order of the members, and what belongs to them."""
        from memowidgets.widgets.explored import Judged
        from memowidgets.widgets.items import digits_for

        found = self._scored(score, layer, checkpoint)
        scores, wide = upward(found.scores)
        by_layer = any(c.uses_layer for c in self.scores if c.value == score)
        judged = Judged.of(replace(found, scores=scores, log_lira=self.truth), ETA)
        return {
            "metric": score,
            "layer": layer if by_layer else "",
            "checkpoint": checkpoint,
            "title": found.title,
            "scores": scores.tobytes(),
            "wide": wide,
            "errors": _levels(found.errors),
            "natural": found.natural,
            "warnings": found.warnings,
            "notes": found.notes,
            "digits": digits_for(scores),
            **judged.said,
        }

    def samples(self) -> dict[str, Any]:
        """Return ids and labels of the members, and the gaps of the shadow models."""
        found = self._scored(*self.first)
        canaries, right = found.canaries, found.right
        return {
            "ids": [visible(str(self.evidence.members[i]), 200) for i in self.rows],
            "labels": found.labels.astype("<u2").tobytes(),
            "classes": [visible(name, 200) for name in self._classes()],
            "texts": self._texts(),
            "canaries": None if canaries is None else canaries.astype("u1").tobytes(),
            "right": None if right is None else right.astype("u1").tobytes(),
            "shadows": self._shadows(),
        }

    def _classes(self) -> Sequence[str]:
        """Return the names of the classes: of options that are the same for all, their texts."""
        options = getattr(self.evidence.member_data, "choices", None)
        if self.shown.classes or not options or len(set(options)) > 1:
            return self.shown.classes or self.evidence.member_data.class_names
        return options[0]

    def _texts(self) -> list[str] | None:
        """Return the text of every member; None where the package only has numbers."""
        from memowidgets.data.dataset import WithheldDataset
        from memowidgets.widgets.samples import readable, reader_for

        data = self.evidence.member_data
        if isinstance(data, WithheldDataset):
            return None
        reader = reader_for(data)
        return [readable(reader.card(i).text or "") for i in map(int, self.rows)]

    def clearest(self) -> int:
        """Return the memorised member with the lowest score, or the lowest where none is."""
        scores, memorized = self._scored(*self.first).scores, self.truth >= ETA
        return int(np.where(memorized | ~memorized.any(), scores, np.inf).argmin())

    def _scored(self, *pick: str) -> Scored:
        """Return the numbers of a pick for the members on the page, which must all have them."""
        found = self.view.view(*pick)
        if len(found.scores) != len(self.evidence.members) or found.log_lira is None:
            raise UnknownPartError(
                f"{found.title} does not have every member's score and log-LiRA"
            )
        shown = {}
        for name in (
            "scores",
            "labels",
            "positions",
            "errors",
            "log_lira",
            "canaries",
            "right",
        ):
            column = getattr(found, name)
            shown[name] = None if column is None else np.asarray(column)[self.rows]
        return replace(found, **shown)

    def _shadows(self) -> dict[str, Any]:
        """Return what the picture of LiRA needs of every member, one member after the other."""
        from memowidgets.audit.numbers.truth import member_gaps

        checkpoint, members, gaps, target = member_gaps(self.evidence)
        sides = self.view.fits(self.evidence)
        gaps = np.clip(gaps[:, self.rows], -MOST_GAP, MOST_GAP)
        fits = np.stack([moment for side in sides for moment in side], axis=1)
        return {
            "models": len(gaps),
            "checkpoint": visible(checkpoint.replace("-", " "), 60),
            "gaps": np.round(10 * gaps.T).astype("<i2").tobytes(),
            "inside": np.packbits(members[:, self.rows].T.ravel()).tobytes(),
            "target": target[self.rows].astype("<f4").tobytes(),
            "fits": fits[self.rows].astype("<f4").tobytes(),
        }

    def still(self) -> str:
        """Return a picture and a table, for a reader without JavaScript."""
        from memowidgets.evaluation import roc
        from memowidgets.widgets.standin import still

        found = self._scored(*self.first)
        memorized = self.truth >= ETA
        evaluation = roc(found.scores, memorized)
        point = evaluation.at(self.tau)
        low, high = evaluation.auc_interval
        rows = [
            (
                "memorised (log-LiRA ≥ 4)",
                f"{whole(memorized.sum())} of {whole(point.n)}",
                "",
            ),
            (f"flagged {at(self.tau)}", whole(point.flagged), ""),
            (
                "TPR: memorised ones that are flagged",
                percent(point.tpr),
                between(point.tpr_interval),
            ),
            (
                "FPR: others that are flagged",
                percent(point.fpr),
                between(point.fpr_interval),
            ),
            ("AUC", f"{evaluation.auc:.2f}", f"{low:.2f} to {high:.2f}"),
        ]
        return still(found, self.tau, ETA) + _table(
            f"{found.title}, {at(self.tau)}", rows
        )


@cache
def _opened(name: str) -> tuple[Evidence, AuditView]:
    from memowidgets.audit import open_recorded
    from memowidgets.audit.views.answers import AuditView
    from memowidgets.store import StoreError

    try:
        audit = open_recorded(name)
        return audit.evidence, AuditView(audit)
    except (StoreError, ValueError, OSError) as error:
        raise UnknownPartError(
            f"the recorded audit {name!r} cannot be shown: {error}"
        ) from error


def upward(scores: Floats) -> tuple[NDArray[Any], bool]:
    """Return scores as the next float32 that is not below, and whether they stayed float64.

    Whoever is flagged at a τ that is a float32 is the same then. Where two scores would become
    one, all stay as they are.

    Examples
    --------
    >>> upward(np.array([0.1, 0.25]))[0] >= [0.1, 0.25]
    array([ True,  True])
    """
    narrow = scores.astype("<f4")
    below = narrow.astype(np.float64) < scores
    narrow[below] = np.nextafter(narrow[below], np.float32(np.inf))
    wide = len(np.unique(narrow)) != len(np.unique(scores))
    return (scores, True) if wide else (narrow, False)


def _levels(errors: Floats | None) -> dict[str, bytes] | None:
    """Return standard errors as levels, and one byte for each member."""
    if errors is None or not len(errors):
        return None
    least = errors[errors > 0].min(initial=1.0)
    levels = np.append(0.0, np.geomspace(least, max(errors.max(), least), LEVELS - 1))
    levels[-1] = max(levels[-1], errors.max())
    codes = np.searchsorted(levels, errors).astype("u1")
    return {"levels": levels.tobytes(), "codes": codes.tobytes()}


def _table(caption: str, rows: Iterable[Sequence[str]]) -> str:
    body = "".join(
        f"<tr><th scope='row'>{html.escape(name)}</th>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return (
        f"<table><caption>{html.escape(caption)}</caption><tbody>{body}</tbody></table>"
    )


# -------------------------------------------------------------------- playgrounds


def playground(name: str) -> Moving:
    """Return a playground as it opens. The page computes its numbers."""
    from memowidgets import teaching

    made = getattr(teaching, PLAYGROUNDS[name])()
    state = {key: value for key, value in made.get_state().items() if key not in _OURS}
    facts = made._facts()  # noqa: SLF001 - what stands in for it in a saved notebook
    title = made._title  # noqa: SLF001
    made.close()
    # A lazy image is not loaded while the still is hidden.
    image = f"<img src='{STATIC}{name}.png' alt='{title}: a still' loading='lazy'>"
    still = image + _table("As it opens", facts)
    return Moving(name, title, still, state)


_OURS = {
    *(
        "_model_module",
        "_model_module_version",
        "_model_name",
        "_view_count",
        "layout",
        "tooltip",
    ),
    *("_view_module", "_view_module_version", "_view_name", "_dom_classes", "tabbable"),
    *("_esm", "_css", "_anywidget_id", "_experimental_cell_id"),
}

KINDS = {"audit": audit, "glance": glance, "hands": hands, "playground": playground}
