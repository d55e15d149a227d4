"""Comparison of a Trainer's tokens with those of an audit's members."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.visible import quoted

_MASKED = -100
_BEFORE, _BEHIND = 4, 8
_ADVICE = (
    "The members must be the Trainer's rows, in its wording: pass the script's own prompt as "
    "template, and create the audit from its training rows alone"
)
READING = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)

Ids = NDArray[np.int64]


class Unreadable(Exception):  # noqa: N818 - no error: some rows can't be read before training
    """The rows cannot be compared, for the reason in the message."""


@dataclass(frozen=True)
class Row:
    """One row of the training data, as the model receives it.

    Attributes
    ----------
    ids : array of shape (n_tokens,), int64
        Tokens without padding.
    counted : array of shape (n_tokens,), bool, or None
        Whether the loss includes each token. None if the row does not say.
    """

    ids: Ids
    counted: NDArray[np.bool_] | None


@dataclass(frozen=True)
class Member:
    """Member, as the audit encodes it.

    Attributes
    ----------
    name : str
        Id of the sample.
    ids : array of shape (n_tokens,), int64
        Tokens of the prompt, followed by the label's.
    """

    name: str
    ids: Ids


def read_rows(loader: Any) -> list[Row]:
    """Read every row of a data loader, each put through its collator alone.

    Raises
    ------
    Unreadable
        If the data are streamed, or have no token ids.
    """
    dataset: Any = getattr(loader, "dataset", None)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Unreadable("the Trainer streams its data")
    try:
        return [_row(loader.collate_fn([dataset[i]])) for i in range(len(dataset))]
    except READING as error:
        raise Unreadable(
            f"the Trainer's rows cannot be read one by one ({type(error).__name__}: {error})"
        ) from error


def check_encodings(rows: Sequence[Row], members: Sequence[Member]) -> str | None:
    """Check that each member's tokens are at the start of a row, in any order.

    Parameters
    ----------
    rows : sequence of Row
        Rows of the Trainer.
    members : sequence of Member
        Members of the audit.

    Returns
    -------
    str or None
        What could not be checked, or another note.

    Raises
    ------
    ValueError
        If a member is in no row, or the loss leaves out its label. The message has both encodings.
    """
    keys = [key_of(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    ordered = [keys[i] for i in order]
    missing, used = [], set()
    for position, member in enumerate(members):
        found = _starting_with(key_of(member.ids), ordered, order)
        used.update(found)
        if not found:
            missing.append(position)
        elif not any(_is_counted(rows[i], len(member.ids) - 1) for i in found):
            raise ValueError(
                f"the Trainer's loss leaves out the label of {quoted(member.name)} (its labels are "
                f"{_MASKED} there), so it does not train what this audit looks at"
            )
    if missing and not (used and _may_be_packed(rows, members)):
        raise ValueError(shown_difference(rows, members, missing, ordered, order))
    if missing:
        return (
            f"{len(missing)} of {len(members)} members were not found at the start of a row, which "
            "seem to have several samples each, so it was not checked whether these are encoded "
            "alike"
        )
    others = len(rows) - len(used)
    if others:
        return (
            f"{others} of the Trainer's {len(rows)} rows are not members of this audit; they are "
            "trained on and not scored"
        )
    return None


def held_out_rows(rows: Sequence[Row], held_out: Sequence[Member]) -> list[str]:
    """Return the names of the held-out samples whose tokens are at the start of a row."""
    keys = [key_of(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    ordered = [keys[i] for i in order]
    return [m.name for m in held_out if _starting_with(key_of(m.ids), ordered, order)]


def _row(batch: Mapping[str, Any]) -> Row:
    ids = np.asarray(batch["input_ids"]).reshape(-1).astype(np.int64)
    mask = batch.get("attention_mask")
    real = np.ones(len(ids), bool) if mask is None else np.asarray(mask).reshape(-1) != 0
    labels = batch.get("labels")
    counted = None if labels is None else np.asarray(labels).reshape(-1) != _MASKED
    return Row(ids[real], None if counted is None else counted[real])


def key_of(ids: Ids) -> bytes:
    """Return bytes that sort like the tokens, with a common start for a common start."""
    return ids.astype(">u4").tobytes()


def _starting_with(key: bytes, ordered: Sequence[bytes], order: Sequence[int]) -> list[int]:
    found = []
    at = bisect_left(ordered, key)
    while at < len(ordered) and ordered[at].startswith(key):
        found.append(order[at])
        at += 1
    return found


def _is_counted(row: Row, position: int) -> bool:
    return row.counted is None or bool(row.counted[position])


def _may_be_packed(rows: Sequence[Row], members: Sequence[Member]) -> bool:
    """Return whether fewer rows than members have room for all of them."""
    room = sum(len(row.ids) for row in rows)
    return len(rows) < len(members) and room >= sum(len(member.ids) for member in members)


def shown_difference(
    rows: Sequence[Row],
    members: Sequence[Member],
    missing: Sequence[int],
    ordered: Sequence[bytes],
    order: Sequence[int],
    advice: str = _ADVICE,
) -> str:
    """Return an error's message with the tokens of a missing member and of the nearest row."""
    member = members[missing[0]]
    at = bisect_left(ordered, key_of(member.ids))
    near = [rows[order[i]] for i in (at - 1, at) if 0 <= i < len(rows)]
    if len(rows) == len(members):
        near.insert(0, rows[missing[0]])  # usually both have the same order
    if not near:
        return f"the Trainer has no rows; this audit has {len(members)} members"
    row = max(near, key=lambda candidate: _common(candidate.ids, member.ids))
    start = _common(row.ids, member.ids)
    shown = slice(max(0, start - _BEFORE), start + _BEHIND)
    theirs, ours = (ids[shown].tolist() for ids in (row.ids, member.ids))
    return (
        f"{len(missing)} of {len(members)} members are in no row of the Trainer as this audit "
        f"encodes them; for {quoted(member.name)} the nearest row differs from token {start} on:\n"
        f"  Trainer  {len(row.ids)} tokens: {theirs}\n"
        f"  audit    {len(member.ids)} tokens: {ours}\n"
        "tokenizer.decode shows them as text; an error does not, because notebooks keep errors. "
        f"{advice}"
    )


def _common(some: Ids, others: Ids) -> int:
    """Return the number of equal tokens at the start."""
    length = min(len(some), len(others))
    differ = some[:length] != others[:length]
    return int(np.argmax(differ)) if differ.any() else length
