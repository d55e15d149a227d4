"""The inspector, Python side. It keeps the samples and sends pages of them in messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from memowidgets.checks import check_same_order, numbered_labels
from memowidgets.decisions import CHOICES, UNDECIDED, DecisionLog, to_csv
from memowidgets.vocabulary import at, counted_flagged, quoted
from memowidgets.widgets.explorer import AtThreshold
from memowidgets.widgets.inspected import (
    checked_names,
    class_names_of,
    first_of,
    one_of,
    rows_from,
)
from memowidgets.widgets.items import (
    MOST_GLIMPSE,
    MOST_WHOLE,
    Items,
    digits_for,
    known_of,
    label_of,
    short_title,
)
from memowidgets.widgets.samples import readable, reader_for
from memowidgets.widgets.standin import table
from memowidgets.widgets.widget import (
    checked_tau,
    close_earlier_runs,
    in_background,
    script,
    style,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from memowidgets.widgets.explored import Compared
    from memowidgets.widgets.inspected import Listed
    from memowidgets.widgets.messages import (
        AskDetail,
        AskPage,
        Decide,
        Plain,
        SampleDetail,
        Shown,
    )
    from memowidgets.widgets.samples import SampleReader
    from memowidgets.widgets.sent import DecisionStatus


_NO_TEXT = "Only texts can be anonymised: keep, relabel or remove this sample."
_RECORDED = "This is a recording"
_LASTS = "Your decisions last until the kernel stops."
_DONE = {
    "keep": "kept",
    "anonymise": "to be anonymised",
    "remove": "to be removed",
    "undecided": "undecided",
}


class Deciding:
    """Decisions as the inspector sees them: by position, and in sentences for the page.

    Parameters
    ----------
    log : DecisionLog
        Log that keeps the decisions.
    reader : SampleReader
        The samples.
    items : Items
        Ids of the samples.
    """

    def __init__(self, log: DecisionLog, reader: SampleReader, items: Items) -> None:
        self.log, self._reader, self._items = log, reader, items
        self._codes: tuple[int, NDArray[np.int8]] = (-1, np.empty(0, np.int8))

    @property
    def choices(self) -> tuple[str, ...]:
        """Decisions that the page offers for these samples.

        Only texts can be anonymised, and only samples of two or more classes relabelled.
        """
        without = {
            "anonymise": not self._reader.is_text,
            "relabel": len(self._items.class_names) < 2,
        }
        return tuple(choice for choice in CHOICES if not without.get(choice))

    def codes(self) -> NDArray[np.int8]:
        """Return each sample's decision as its number in `CHOICES`."""
        version, codes = self.log.version, self._codes[1]
        if self._codes[0] != version or not len(codes):
            codes = np.full(len(self._reader), CHOICES.index("undecided"), np.int8)
            for name, made in self.log.table().items():
                codes[self._items.positions.get(name, [])] = CHOICES.index(
                    made.decision
                )
            self._codes = (version, codes)
        return codes

    def status(self) -> DecisionStatus:
        """Return what the page shows beside the samples."""
        problem = _RECORDED if self.log.is_recorded else readable(self.log.problem)
        return {
            "choices": list(self.choices),
            "refused": {} if self._reader.is_text else {"anonymise": _NO_TEXT},
            "classes": [
                self._items.class_name(i) for i in range(len(self._items.class_names))
            ],
            "undo": self.log.undo_levels,
            "decided": len(self.log),
            "problem": f"{problem}. {_LASTS}" if problem else "",
        }

    def decide(
        self,
        positions: Sequence[int],
        decision: str | None,
        note: str | None,
        to: int | None = None,
        label: int = -1,
    ) -> str:
        """Decide on these samples, and say what was done. `label` is that of a single sample.

        Raises
        ------
        ValueError
            If the decision is not to be had here, the new class does not exist, or a sample's id
            or note cannot be kept.
        """
        if decision is not None and decision not in self.choices:
            raise ValueError(
                f"unknown decision {quoted(decision)}; valid here: "
                f"{', '.join(map(repr, self.choices))}"
            )
        new = None if decision != "relabel" else self._class_of(positions, to)
        changed = self.log.decide(map(self._items.name, positions), decision, note, new)
        if decision is None:
            return "Note saved." if changed else ""
        done = _DONE[decision] if new is None else f"to be relabelled as {_quoted(new)}"
        if len(positions) == 1:
            name = _quoted(self._items.name(positions[0]))
            if new is not None:
                return f"{name}: {readable(self._items.renamed(positions[0], label, new))}."
            return f"{name} is {done}."
        return f"{changed} of {len(positions)} samples changed: now {done}."

    def _class_of(self, positions: Sequence[int], to: int | None) -> str:
        """Return the name of the class that samples are to be relabelled to, or raise."""
        names = self._items.class_names
        if to is None or not 0 <= to < len(names):
            raise ValueError(
                f"there is no class {to}: choose one of the {len(names)} classes to relabel to"
            )
        if self._reader.kind == "mcq":
            short = [p for p in positions if to >= len(self._reader.card(p).options)]
            if short:
                raise ValueError(
                    f"{_quoted(self._items.name(short[0]))} has no option {_quoted(names[to])}: "
                    "choose one of its options"
                )
        return names[to]

    def undo(self) -> str:
        """Take the last step back, and say so."""
        changed = self.log.undo()
        if changed is None:
            return "There is nothing to undo."
        return f"Undone: {changed} {'sample' if changed == 1 else 'samples'}."

    def csv(self) -> str:
        """Return all decisions in the form of ``decisions.csv``."""
        return to_csv(self.log.table())


def _quoted(name: str) -> str:
    return readable(name if len(name) <= 40 else f"{name[:39]}…")


ANY = "any"
# The page saves a choice a little later; the echo of the one before would undo it meanwhile.
_OWN = {"sync": True, "echo_update": False}
SMALLEST_PAGE, LARGEST_PAGE = 1, 48


class Inspection(AtThreshold):
    """The inspector's part of a widget: samples, pages of them, and decisions.

    It needs `_keep` before the widget is made, and `_begin` afterwards.
    """

    page = traitlets.Int(0, min=0).tag(**_OWN)
    page_size = traitlets.Int(24, min=SMALLEST_PAGE, max=LARGEST_PAGE).tag(**_OWN)
    filter = traitlets.Unicode("all").tag(**_OWN)
    sort = traitlets.Unicode("order").tag(**_OWN)
    decision = traitlets.Enum([ANY, *CHOICES], ANY).tag(**_OWN)
    selected = traitlets.Int(None, allow_none=True).tag(**_OWN)
    _version = traitlets.Int(0).tag(sync=True)
    _decided = traitlets.Int(0).tag(sync=True)

    def _keep(
        self,
        samples: object,
        class_names: Sequence[str] | None,
        ids: Sequence[str] | None,
        decisions: DecisionLog | None,
        detail: Callable[[int], SampleDetail] | None,
    ) -> None:
        """Take the samples and what is known of them beside their scores."""
        self._reader = reader_for(samples)
        names = checked_names(ids, len(self._reader))
        self._items = Items(self._reader, class_names_of(samples, class_names), names)
        self._title, self._detail = "score", detail
        self._searched: tuple[Listed | None, str, NDArray[np.bool_]] = (
            None,
            "",
            np.zeros(0, bool),
        )
        self._parts: Compared | None = None
        self._rows = rows_from(self._reader)
        self._deciding = Deciding(
            DecisionLog() if decisions is None else decisions, self._reader, self._items
        )

    def _show_rows(self, rows: Listed, title: str, tau: float | None) -> None:
        """Show the same samples by other scores; None leaves τ where it is."""
        threshold = self.tau if tau is None else checked_tau(tau)
        before = self._rows
        with self.hold_sync():
            self._rows, self._title = rows, title
            if self.filter not in rows.filters or not before.scored.is_scored:
                self.filter = rows.filters[0]
            if self.sort not in rows.sorts or not before.scored.is_scored:
                self.sort = next(iter(rows.sorts))
            self.tau, self.page = threshold, 0
            self._dimmed = False
            self._version += 1

    def _let_samples_go(self) -> None:
        """Forget all samples but no decision: a notebook remembers what its cells showed."""
        self._log.unlisten(self)
        log = self._log
        self._keep([""], None, None, log, None)  # the least that there can be

    # ---------------------------------------------------------------- decisions

    @property
    def decisions(self) -> pd.DataFrame:
        """``id``, ``decision`` and ``note`` of each sample that was decided on."""
        self._log.refresh()
        return self._log.frame()

    def decisions_changed(self) -> None:
        """Show what was decided, here or elsewhere."""
        self._decided += 1

    @property
    def _log(self) -> DecisionLog:
        return self._deciding.log

    # ---------------------------------------------------------------- traits

    @validate("filter")
    def _check_filter(self, proposal: Any) -> str:
        return one_of("filter", proposal["value"], self._rows.filters)

    @validate("sort")
    def _check_sort(self, proposal: Any) -> str:
        return one_of("sort", proposal["value"], self._rows.sorts)

    @validate("selected")
    def _check_selected(self, proposal: Any) -> int | None:
        position: int | None = proposal["value"]
        if position is not None and position not in self._rows.scored.positions:
            raise ValueError(f"there is no sample at position {position} here")
        return position

    # ---------------------------------------------------------------- messages

    def _hear_detail(self, asked: AskDetail) -> None:
        """Send a sample at once, and later what its source computes about it."""
        reply, buffers = self._opened_item(asked)
        self.send(reply, buffers)
        detail, position = self._detail, reply["position"]
        if detail is not None and position is not None and asked.get("known"):
            work = partial(self._work_out, asked["request"], position, detail)
            in_background(work, "memowidgets-detail")

    def _hear_decide(self, asked: Decide) -> None:
        decision, note, to = asked.get("decision"), asked.get("note"), asked.get("to")
        positions = [self._checked(position) for position in asked["positions"]]
        label = label_of(self._rows, positions[0]) if positions else -1
        self._reply(asked, self._deciding.decide(positions, decision, note, to, label))

    def _hear_undo(self, asked: Plain) -> None:
        self._reply(asked, self._deciding.undo())

    def _hear_export(self, asked: Plain) -> None:
        self._reply(asked, "", file="decisions.csv", content=self._deciding.csv())

    def _reply(self, asked: Any, text: str, *, done: bool = True, **more: Any) -> None:
        """Tell the page that something was done, or why it was not."""
        request = asked.get("request")
        self.send(
            {"type": "said", "request": request, "done": done, "text": text, **more}
        )

    def _checked(self, position: int) -> int:
        """Check a position that the page sent."""
        if not 0 <= position < len(self._reader):
            raise ValueError(f"there is no sample at {position}")
        return position

    # ---------------------------------------------------------------- pages

    def _hear_page(self, asked: AskPage) -> None:
        """Send one page of samples, with all its images in one buffer."""
        self._log.refresh()
        rows, tau = self._rows, self._asked_tau(asked)
        filtered, found = self._found(rows, asked)
        total = int(np.count_nonzero(found))
        pages = max(1, -(-total // self.page_size))
        page = min(max(0, asked["page"]), pages - 1)
        start = page * self.page_size
        pixels = bytearray()
        chosen = first_of(self._order(rows, asked), found, start + self.page_size)[
            start:
        ]
        opened = chosen[rows.scored.positions[chosen] == asked.get("open")]
        if not len(opened):
            opened = chosen[asked.get("at", 0) :][:1]
        content = {
            "type": "page",
            "request": asked["request"],
            "page": page,
            "pages": pages,
            "first": start + 1 if total else 0,
            "total": total,
            "scoreName": short_title(self._title),
            "digits": digits_for(rows.scored.scores),
            "eta": rows.eta,
            "counts": rows.counts(tau),
            "items": self._made(rows, chosen, tau, pixels, MOST_GLIMPSE),
            "open": self._made(rows, opened, tau, pixels, MOST_WHOLE),
            "more": self._detail is not None,
            "kind": self._reader.kind,
            "notice": readable(self._reader.notice),
            "sorts": [list(each) for each in rows.sorts.items()],
            "decisions": self._deciding.status(),
            "byDecision": self._by_decision(rows, filtered),
        }
        self.send(content, [bytes(pixels)] if pixels else [])

    def _made(
        self,
        rows: Listed,
        chosen: NDArray[np.int64],
        tau: float,
        pixels: bytearray,
        most: int,
    ) -> list[dict[str, Any]]:
        """Return some rows as items, with the decisions that were made on them."""
        table, items = self._log.table(), self._items
        made = (
            table.get(items.name(p), UNDECIDED)
            for p in rows.scored.positions[chosen].tolist()
        )
        status = rows.scored.status(tau, rows.eta, chosen).tolist()
        close = rows.scored.close(tau, chosen).tolist()
        return [
            items.item(
                rows, row, is_called, decision, pixels, uncertain=is_close, most=most
            )
            for row, is_called, is_close, decision in zip(
                chosen.tolist(), status, close, made, strict=True
            )
        ]

    def _found(
        self, rows: Listed, asked: Shown
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the rows of the filter, and of those of them that the page asks for."""
        name = (
            asked["filter"] if asked.get("filter") in rows.filters else rows.filters[0]
        )
        filtered = rows.mask(name, self._asked_tau(asked))
        found = filtered.copy()
        part, made = asked.get("part"), asked.get("decision", ANY)
        wanted = asked.get("search", "").casefold().strip()
        if part is not None and self._parts is not None:
            found &= np.isin(rows.scored.positions, self._parts.part(part))
        if wanted:
            found &= self._matches(rows, wanted)
        if made in CHOICES:
            found &= self._codes(rows) == CHOICES.index(made)
        return filtered, found

    def _asked_tau(self, asked: Shown) -> float:
        """Return the threshold of the page, which may be newer than the trait."""
        return checked_tau(asked["tau"]) if "tau" in asked else self.tau

    def _order(self, rows: Listed, asked: Shown) -> NDArray[np.int64]:
        name = asked.get("sort")
        return rows.order(name if name in rows.sorts else next(iter(rows.sorts)))

    def _matches(self, rows: Listed, wanted: str) -> NDArray[np.bool_]:
        of_rows, searched, match = self._searched
        if of_rows is rows and searched == wanted:
            return match
        read, labels = self._reader.text, rows.scored.labels
        match = np.fromiter(
            (wanted in read(int(p)).casefold() for p in rows.scored.positions), np.bool_
        )
        if labels is not None:
            classes, of_row = np.unique(labels, return_inverse=True)
            called = [
                wanted in self._items.class_name(int(c)).casefold() for c in classes
            ]
            match |= np.array(called)[of_row]
        self._searched = (rows, wanted, match)
        return match

    def _by_decision(self, rows: Listed, shown: NDArray[np.bool_]) -> dict[str, int]:
        """Return how many of the shown rows have each decision."""
        codes = self._codes(rows)
        return {
            name: int(np.count_nonzero(shown & (codes == CHOICES.index(name))))
            for name in self._deciding.choices
        }

    def _codes(self, rows: Listed) -> NDArray[np.int8]:
        """Return the decision on each row as its number in `CHOICES`."""
        codes: NDArray[np.int8] = self._deciding.codes()[rows.scored.positions]
        return codes

    # ---------------------------------------------------------------- one sample

    def _opened_item(self, asked: AskDetail) -> tuple[dict[str, Any], list[bytes]]:
        """Return one sample in full, and its place among those shown."""
        rows, pixels = self._rows, bytearray()
        reply: dict[str, Any] = {"type": "opened", "request": asked["request"]}
        at = np.flatnonzero(rows.scored.positions == asked["position"])
        if not len(at):
            return {**reply, "position": None}, []
        row, order = int(at[0]), self._order(rows, asked)
        found = order[self._found(rows, asked)[1][order]]
        position = int(rows.scored.positions[row])
        [item] = self._made(rows, at[:1], self._asked_tau(asked), pixels, MOST_WHOLE)
        place = np.flatnonzero(found == row)
        reply |= {
            "position": position,
            "item": item,
            "place": {"number": int(place[0]) + 1, "total": len(found)}
            if len(place)
            else None,
            "more": self._detail is not None,
        }
        return reply, [bytes(pixels)] if pixels else []

    def _work_out(
        self, request: str, position: int, detail: Callable[[int], SampleDetail]
    ) -> None:
        """Send what the source knows of a sample."""
        reply: dict[str, Any] = {"type": "known", "request": request}
        pixels = bytearray()
        try:
            reply["known"] = known_of(detail(position), self._rows, self._items, pixels)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it on the page
            reply["problem"] = readable(str(error) or type(error).__name__)
        if self.comm is not None:
            self.send(reply, [bytes(pixels)] if pixels else [])


class SampleInspector(Inspection, anywidget.AnyWidget):
    """Look at the samples behind the scores, the riskiest first, and decide on them.

    Samples travel to the page in messages only, a page at a time: neither the widget's state
    nor a saved notebook holds any of them.

    The chosen sample is open beside the list. The keyboard does all: arrows and J choose a sample,
    K keeps, A anonymises, R removes, L relabels, U makes undecided, Z undoes.

    Parameters
    ----------
    samples : sequence
        An `ImageDataset`, an array of images of shape (n, h, w) or (n, h, w, c), a list of
        texts, or of records with ``question``, ``choices`` and ``answer``.
    scores : array-like of shape (n,), optional
        Finite numbers. A low score means risk.
    memorized : array-like of shape (n,), bool, optional
        Ground truth.
    labels : array-like of shape (n,), int or str, optional
        Label that each sample is trained on. By default those of the samples.
    tau : float
        A sample is flagged if its score is at most this.
    errors, log_lira : array-like of shape (n,), optional
        Standard error of each score, and its log-LiRA.
    probabilities : array-like of shape (n, n_classes), optional
        The model's.
    class_names : sequence of str, optional
        By default those of the samples, else numbers.
    ids : sequence of str, optional
        Names of the samples, by default those they carry, else their positions.
    title : str
        What the scores are.
    decisions : DecisionLog, optional
        Where decisions go; by default they stay here.
    detail : callable, optional
        Gives the `SampleDetail` of the sample at a position; called in a thread of its own.

    Attributes
    ----------
    page, page_size : int
        Shown page, from 0, and number of samples on a page, from 1 to 48.
    filter : str
        ``"all"``, ``"flagged"``, ``"left alone"``; with ground truth also ``"found"``,
        ``"flagged only"``, ``"missed"``; with errors ``"on the line"``, where the score is less
        than two standard errors from `tau`; in a dashboard also ``"label looks wrong"``, where
        the model and most of the nearest samples agree on another class than the label.
    sort : str
        ``"risk"``, ``"safe"``, ``"log-lira"``, ``"disagreement"``, ``"label"``, ``"order"``.
    decision : str
        Show the samples with this decision only: ``"any"``, ``"undecided"``, ``"keep"``,
        ``"anonymise"``, ``"remove"``, ``"relabel"``.
    tau : float
        Threshold of the filters.
    selected : int or None
        Position of the sample that is open; None for the first of the page.
    decisions : DataFrame
        ``id``, ``decision`` and ``note`` of each sample that was decided on.

    Raises
    ------
    ValueError
        If there is no sample, lengths differ, a score is NaN or infinite, or a filter or sort
        is unknown.
    TypeError
        If the samples are of no known kind.

    Examples
    --------
    >>> inspector = SampleInspector(["a text", "another"], scores=[0.2, -0.3])
    >>> inspector.filter, inspector.sort
    ('flagged', 'risk')
    >>> inspector.close()
    """

    _esm = script("inspector")
    _css = style()

    def __init__(
        self,
        samples: object,
        scores: ArrayLike | None = None,
        memorized: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        tau: float = 0.0,
        *,
        errors: ArrayLike | None = None,
        log_lira: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        title: str = "score",
        decisions: DecisionLog | None = None,
        detail: Callable[[int], SampleDetail] | None = None,
        **traits: Any,
    ) -> None:
        check_same_order(ids=ids, samples=samples, scores=scores, labels=labels)
        if labels is not None:
            known = class_names_of(samples, class_names) or None
            labels, class_names = numbered_labels(labels, known)
        self._keep(samples, class_names, ids, decisions, detail)
        given = (scores, memorized, labels, errors, log_lira, probabilities)
        rows = rows_from(self._reader, *given)
        self._rows, self._title = rows, title
        # all is checked before there is a widget: a refused one leaves nothing behind
        shown = {
            "tau": checked_tau(tau),
            "filter": one_of(
                "filter", traits.pop("filter", rows.filters[0]), rows.filters
            ),
            "sort": one_of(
                "sort", traits.pop("sort", next(iter(rows.sorts))), rows.sorts
            ),
        }
        super().__init__(**traits)
        with self.hold_sync():
            for name, value in shown.items():
                setattr(self, name, value)
        self._log.listen(self)
        close_earlier_runs(self)

    def close(self) -> None:
        """Take the widget off the page, and all samples out of memory. Decisions stay readable."""
        super().close()
        self._let_samples_go()

    # ---------------------------------------------------------------- without a page

    def __repr__(self) -> str:
        rows = self._rows
        if not rows.scored.is_scored:
            return f"SampleInspector({len(rows)} samples)"
        flagged = counted_flagged(int(rows.scored.flagged(self.tau).sum()), len(rows))
        return f"SampleInspector({flagged} {at(self.tau)})"

    def _stand_in(self) -> str:
        counts = self._rows.counts(self.tau)
        return table("Samples", [(name, str(n)) for name, n in counts.items()])
