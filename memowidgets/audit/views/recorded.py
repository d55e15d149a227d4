"""A recorded audit as a part of a page that needs no kernel: all that its dashboard asks for."""

from __future__ import annotations

import html
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.audit.numbers import scores
from memowidgets.audit.numbers.truth import member_gaps, support
from memowidgets.audit.views.answers import AuditView
from memowidgets.audit.views.nearest import all_nearest
from memowidgets.data.dataset import WithheldDataset
from memowidgets.decisions import CHOICES, UNDECIDED
from memowidgets.evaluation import roc
from memowidgets.report.page import pack, thousandths
from memowidgets.report.words import flagged_shares
from memowidgets.store import StoreError
from memowidgets.vocabulary import at, visible, whole
from memowidgets.widgets import widget
from memowidgets.widgets.dashboard import packed_choices
from memowidgets.widgets.explored import Judged, asked_rule, eta_range
from memowidgets.widgets.inspected import Listed
from memowidgets.widgets.items import Items, digits_for
from memowidgets.widgets.messages import Asked
from memowidgets.widgets.samples import reader_for
from memowidgets.widgets.standin import still

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from memowidgets.audit.views.answers import Trainable
    from memowidgets.evaluation.scored import Scored

    Floats = NDArray[np.float64]

STATIC = Path(__file__).parents[1] / "static"
ETA = 4.0
NOT_COUNTED = 255  # members that too few models trained on
LEVELS = 255  # of standard errors: each counts as the next level above it
MOST_GAP = 300.0  # logits; what is beyond is drawn there
WHOLE_PROBABILITY = 65535  # of a probability that is sent in two bytes
# Seen only without JavaScript: live.css shows the still then, and start.js where nothing moves.
STANDS = "<noscript><p>This part moves if JavaScript is on. It opens like this:</p></noscript>"
# What a page knows of a sample whatever score and checkpoint are on show.
_LASTING = ("id", "label", "answer", "canary", "text", "hidden", "image")


class UnknownPartError(ValueError):
    """A page asks for a part that there is not."""


@dataclass(frozen=True)
class Moving:
    """A moving part of a page. All that it needs stands in the page itself.

    Attributes
    ----------
    name : str
        Of its kind, which its style sheets know.
    title : str
        What it is, for a reader who can't see it move.
    still : str
        Markup that stands in for it: a picture and a table.
    content : dict
        What its script gets.
    script : Path
        Module that shows the content.
    style : str
        Style sheets as one text.
    """

    name: str
    title: str
    still: str
    content: dict[str, Any]
    script: Path
    style: str

    @property
    def body(self) -> str:
        """The part as HTML, without its style and its script."""
        return "\n".join(
            [
                (
                    f"<div class='live live-{self.name}' role='region' "
                    f"aria-label='{html.escape(self.title)}'>"
                ),
                "<p class='live-note' id='live-problem' role='alert' hidden></p>",
                f"<div class='live-still' id='live-still' hidden>{STANDS}{self.still}</div>",
                "<div id='live'></div></div>",
                f"<script type='text/plain' id='live-data'>{pack(self.content)}</script>",
            ]
        )

    @property
    def code(self) -> str:
        """Its script with all modules that it imports."""
        return widget.page_script(self.script)

    def markup(self) -> str:
        """Return the part as HTML, with its style and its script."""
        style = f"<style>{self.style}</style>"
        return f"{style}\n{self.body}\n<script>{self.code}</script>"


@dataclass(frozen=True)
class OnPage:
    """What of a recorded audit its page offers. All layers are there at the ρ checkpoint alone.

    Attributes
    ----------
    scores : tuple of str
        Scores, in the order of the picker.
    checkpoints, layers : tuple of str
        Names; empty for all of them.
    asked : Asked
        What is asked for at first; by default τ = 0.
    """

    scores: tuple[str, ...]
    checkpoints: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    asked: Asked = field(default_factory=Asked)


# A page is to weigh at most 1.5 MB: a score of 4444 members takes 24 KB of it.
RECORDINGS = {
    "patients-smollm2": OnPage(("psmi", "loss", "csl", "psmi+csl")),
    "digits": OnPage(("psmi", "loss", "csl", "psmi+csl")),
    "mmlu-field-smollm2": OnPage(
        ("psmi", "loss", "mahalanobis", "csl", "psmi_mean", "psmi+csl")
    ),
    "banking77-smollm2": OnPage(
        ("psmi", "loss", "mahalanobis", "csl", "psmi+csl"),
        tuple(f"epoch-{epoch}" for epoch in ("0.5", "1", "1.5", "2", "3", "4", "5")),
    ),
    "cifar10-wrn": OnPage(
        ("psmi", "loss", "csl"),
        tuple(f"epoch-{epoch}" for epoch in (1, 3, 6, 10, 15, 18)),
        ("group1.block2", "group2.block2", "group3.block2", "features"),
        asked={"share": 0.1},
    ),
}


def recorded_audit(audit: Trainable, shown: OnPage, script: Path, style: str) -> Moving:
    """Return a recorded audit as its dashboard, with its samples if the package can show them.

    Parameters
    ----------
    audit : Audit
        The recording.
    shown : OnPage
        What of it is offered.
    script : Path
        Module that shows it.
    style : str
        Style sheets as one text.

    Raises
    ------
    UnknownPartError
        If a member has no score, or the recording cannot be read.
    """
    found = Recorded(audit, shown)
    try:
        content = found.opening() | found.picks()
        content["samples"] = found.samples()
        content["views"] = [found.wire(*pick) for pick in found.offered()]
        content["moments"] = found.moments()
        return Moving("recorded", found.title, found.still(), content, script, style)
    except (StoreError, OSError) as error:
        raise UnknownPartError(
            f"the recorded audit cannot be shown: {error}"
        ) from error


class Recorded:
    """Reads what a page shows of a recorded audit."""

    def __init__(self, audit: Trainable, shown: OnPage) -> None:
        self.shown = shown
        self.evidence = audit.evidence
        self.view = AuditView(audit)
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
        scored = self._scored(*self.first)
        self.truth = _truth_of(scored)
        self.tau = scored.on(asked_rule(self.shown.asked, 0.0))[1]
        # A member that every shadow model trained on, or none, has no log-LiRA and is left out.
        self.rows = scored.positions

    def opening(self) -> dict[str, Any]:
        """Return where τ and η stand, log-LiRA of every member, and what is said of that."""
        judged = Judged.of(self._scored(*self.first), ETA)
        return {
            "name": self.view.name,
            "tau": self.tau,
            "asked": self.shown.asked,
            "eta": ETA,
            "eta_range": eta_range(self.truth),
            "log_lira": thousandths(self.truth).tobytes(),
            "first": self.first,
            **judged.said,
        }

    def picks(self) -> dict[str, Any]:
        """Return what can be picked, in the form of the dashboard's bar."""
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
            for layer, checkpoint in self._places(by_layer=score.uses_layer):
                pick = score.value, layer, checkpoint
                if self.view.is_computed(*pick):
                    yield pick

    def _places(self, *, by_layer: bool = True) -> Iterator[tuple[str, str]]:
        """Yield each layer and checkpoint that is on the page."""
        for checkpoint in self.checkpoints:
            all_layers = by_layer and checkpoint.value == self.rho
            layers = [c.value for c in self.layers] if all_layers else [self.last]
            for layer in layers:
                yield layer, checkpoint.value

    def wire(self, score: str, layer: str, checkpoint: str) -> dict[str, Any]:
        """Return one view: its scores in the order of the members, and what belongs to them."""
        found = self._scored(score, layer, checkpoint)
        values, wide = upward(found.scores)
        by_layer = any(c.uses_layer for c in self.scores if c.value == score)
        return {
            "metric": score,
            "layer": layer if by_layer else "",
            "checkpoint": checkpoint,
            "title": found.title,
            "scores": values.tobytes(),
            "wide": wide,
            "errors": _levels(found.errors),
            "natural": found.natural,
            "warnings": found.warnings,
            "notes": found.notes,
            "digits": digits_for(values),
        }

    def samples(self) -> dict[str, Any] | None:
        """Return what the list needs of every member; None where the package only has numbers."""
        data = self.evidence.member_data
        if isinstance(data, WithheldDataset):
            return None
        found = self._scored(*self.first)
        reader = reader_for(data)
        ids = [str(name) for name in self.evidence.members]
        makes = Items(reader, data.class_names, ids)
        listed = Listed(found, ETA)
        pixels = bytearray()
        items = [
            makes.item(listed, row, "", UNDECIDED, pixels)
            for row in range(len(self.rows))
        ]
        right = found.right
        return {
            "kind": reader.kind,
            "choices": [
                name for name in CHOICES if reader.is_text or name != "anonymise"
            ],
            "classes": [visible(name, 200) for name in self._classes()],
            "items": [
                {name: item[name] for name in _LASTING if name in item}
                for item in items
            ],
            "pixels": bytes(pixels),
            "right": None if right is None else right.astype("u1").tobytes(),
            "probabilities": dict(self._probabilities()),
            "near": dict(self._near()),
            "shadows": self._shadows(),
        }

    def _classes(self) -> Sequence[str]:
        """Return the names of the classes: of options that are the same for all, their texts."""
        data: Any = self.evidence.member_data
        options = getattr(data, "choices", None)
        if not options or len(set(options)) > 1:
            return tuple(data.class_names)
        return tuple(options[0])

    def _probabilities(self) -> Iterator[tuple[str, bytes]]:
        """Yield each checkpoint with the members' probabilities of each class, two bytes each."""
        for checkpoint in self.checkpoints:
            with suppress(StoreError):  # a recording has its logits at few
                found = scores.probabilities(self.evidence, checkpoint.value)
                yield checkpoint.value, as_codes(found[self.rows]).tobytes()

    def _near(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        """Yield each layer and checkpoint with the nearest members of each member."""
        for layer, checkpoint in self._places():
            with suppress(StoreError):  # a recording has its representations at few
                states = scores.states(self.evidence, layer, checkpoint)
                places, away = all_nearest(states[self.rows])
                near = {
                    "places": places.astype("<u2").tobytes(),
                    "distances": away.astype("<f4").tobytes(),
                }
                yield f"{layer} {checkpoint}", near

    def _scored(self, score: str, layer: str, checkpoint: str) -> Scored:
        """Return the numbers of a pick for the members on the page, which must all have them."""
        found = self.view.view(score, layer, checkpoint)
        if len(found.scores) != len(self.evidence.members) or found.log_lira is None:
            raise UnknownPartError(
                f"{found.title} does not have every member's score and log-LiRA"
            )
        return found.only(found.judged)

    def _shadows(self) -> dict[str, Any]:
        """Return what the picture of LiRA needs of every member, one member after the other."""
        checkpoint, members, gaps, target = member_gaps(self.evidence)
        counts = support(self.evidence, ETA)
        many = np.zeros((0, 2))
        if counts is not None:
            pairs = np.stack([counts.memorized, counts.models], axis=1)[self.rows]
            many = np.nan_to_num(pairs, nan=NOT_COUNTED)
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
            "support": many.astype("u1").tobytes(),
        }

    def still(self) -> str:
        """Return a picture and a table, for a reader without JavaScript."""
        found = self._scored(*self.first)
        evaluation = roc(found.scores, self.truth >= ETA)
        point = evaluation.at(self.tau)
        low, high = evaluation.auc_interval
        rows = [
            (
                "memorised (log-LiRA ≥ 4)",
                f"{whole(evaluation.n_memorized)} of {whole(point.n)}",
                "",
            ),
            (f"flagged {at(self.tau)}", whole(point.flagged), ""),
            *flagged_shares(point),
            ("AUC", f"{evaluation.auc:.2f}", f"{low:.2f} to {high:.2f}"),
        ]
        picture = still(found, self.tau, ETA)
        return picture + table(f"{found.title}, {at(self.tau)}", rows)


def _truth_of(scored: Scored) -> Floats:
    """Return log-LiRA, which every member of a recording's page has."""
    if scored.log_lira is None:
        raise UnknownPartError("no member has a log-LiRA")
    return scored.log_lira


def as_codes(probabilities: Floats) -> NDArray[np.uint16]:
    """Return probabilities in two bytes each. Only what is impossible is 0, and what is sure 1.

    Examples
    --------
    >>> as_codes(np.array([0.0, 1e-9, 0.5, 1.0 - 1e-9, 1.0]))
    array([    0,     1, 32768, 65534, 65535], dtype=uint16)
    """
    codes = np.round(probabilities * WHOLE_PROBABILITY)
    between_both = (probabilities > 0) & (probabilities < 1)
    codes[between_both] = np.clip(codes[between_both], 1, WHOLE_PROBABILITY - 1)
    return codes.astype("<u2")


def upward(values: Floats) -> tuple[NDArray[Any], bool]:
    """Return scores as the next float32 that is not below, and whether they stayed float64.

    Whoever is flagged at a τ that is a float32 is the same then. Where two scores would become
    one, all stay as they are.

    Examples
    --------
    >>> upward(np.array([0.1, 0.25]))[0] >= [0.1, 0.25]
    array([ True,  True])
    """
    narrow = values.astype("<f4")
    below = narrow.astype(np.float64) < values
    narrow[below] = np.nextafter(narrow[below], np.float32(np.inf))
    wide = len(np.unique(narrow)) != len(np.unique(values))
    return (values, True) if wide else (narrow, False)


def _levels(errors: Floats | None) -> dict[str, bytes] | None:
    """Return standard errors as levels, and one byte for each member."""
    if errors is None or not len(errors):
        return None
    least = errors[errors > 0].min(initial=1.0)
    levels = np.append(0.0, np.geomspace(least, max(errors.max(), least), LEVELS - 1))
    levels[-1] = max(levels[-1], errors.max())
    codes = np.searchsorted(levels, errors).astype("u1")
    return {"levels": levels.tobytes(), "codes": codes.tobytes()}


def table(caption: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose rows each begin with a name."""
    body = "".join(
        f"<tr><th scope='row'>{html.escape(name)}</th>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return (
        f"<table><caption>{html.escape(caption)}</caption><tbody>{body}</tbody></table>"
    )
