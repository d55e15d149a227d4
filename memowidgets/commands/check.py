"""Check what a score flags with two short trainings on other samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memowidgets.commands.runs import opened, refusing
from memowidgets.visible import visible

_COMPARED = ("psmi", "reference")


def check(
    path: Path,
    say: Callable[[str], None],
    data: Path | None = None,
    model: Path | None = None,
    processes: int | None = None,
) -> None:
    """Train two reference models for each member, and say what they find of what PSMI flags.

    Parameters
    ----------
    path : Path
        The run directory.
    say : callable
        Function that prints a line.
    data, model : Path, optional
        Where the run's data and model were loaded from.
    processes : int, optional
        Number of reference models trained at once, as for `Audit.run_references`.

    Raises
    ------
    CommandError
        If the run can't be opened or can't train reference models.
    """
    audit = opened(path, data, model)
    with refusing(path):
        from memowidgets.audit.numbers.ladder import CHECKED_BY, next_steps, offer
        from memowidgets.audit.numbers.scores import SCORES
        from memowidgets.audit.views.answers import AuditView

        with _said(say):
            audit.score(_COMPARED[0])
        if AuditView(audit).offered_check() is not None:
            say(offer(audit.evidence))
        audit.run_references(CHECKED_BY, processes=processes)
        for line in next_steps(audit.evidence):
            say(line)
        if audit.evidence.has_ground_truth:
            truth, named = "log_lira", "memorised samples"
        elif audit.data.canaries is not None and audit.data.canaries.any():
            truth, named = "canaries", "canaries"
        else:
            return
        for metric in _COMPARED:
            with _said(say):
                found = audit.evaluate(metric, truth=truth)
            low, high = found.auc_interval
            auc = f"{found.auc:.3f} ({low:.3f} to {high:.3f})"
            say(f"AUC for {named}, {SCORES[metric].title}: {auc}")


@contextmanager
def _said(say: Callable[[str], None]) -> Iterator[None]:
    """Print warnings as lines."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(one.message) for one in found):
        say(f"warning: {visible(text)}")
