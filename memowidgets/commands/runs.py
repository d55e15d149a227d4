"""Runs as commands see them: checked, opened and listed, with one-line errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memowidgets.store import MANIFEST, StoreError, run_at
from memowidgets.vocabulary import percent, visible

if TYPE_CHECKING:
    from memowidgets.audit import Audit


_MOST_CHARACTERS = 600
_ARRAYS = "(arrays)"  # in place of a model


class CommandError(Exception):
    """A command failed; the message is one line that is safe for a terminal."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message, _MOST_CHARACTERS))


def check_free(page: Path, *, overwrite: bool) -> None:
    """Refuse to replace a page or its JSON unasked."""
    for file in (page, page.with_suffix(".json")):
        if file.is_file() and not overwrite:
            raise CommandError(
                f"{file} is there already: choose another path, or pass --overwrite"
            )


def checked_run(path: Path) -> tuple[str, ...]:
    """Return what the listing says of a run all of whose parts can be read.

    Returns
    -------
    tuple of str
        Its model, members, epochs, drop at ρ, and number of shadow models.

    Raises
    ------
    CommandError
        If there is no run, or a part of it cannot be read.
    """
    if not path.is_dir():
        raise CommandError(
            f"{path} does not exist or is not a folder; pass the folder of a run"
        )
    with refusing(path):
        from memowidgets.audit.run import chosen_key, read_names, shadow_sets
        from memowidgets.audit.runs import identity
        from memowidgets.audit.runs.given import n_given_shadows

        run = run_at(path, read_only=True)
        if identity.is_of_arrays(run):
            manifest = identity.read_arrays_manifest(run)
            run.hold(manifest)
            n = len(manifest["ids"])
            return _ARRAYS, f"{n} of {n}", "–", "–", str(n_given_shadows(run))
        manifest = identity.read_manifest(run)
        run.hold(manifest)
        labels = identity.read_member_labels(run, manifest)
        members = len(labels)
        names = read_names(run, manifest, labels)
        drop = "–"
        if len(names.found) > 1:
            prediction = names.prediction()
            drop = percent(prediction.drop)
            drop = drop if prediction.reached else f"not reached: {drop}"
        return (
            str(manifest["model"].get("class", "?")),
            f"{members} of {len(manifest['ids'])}",
            f"{names.found[-1].epoch:g}" if names.found else "–",
            drop,
            str(len(shadow_sets(run).get(chosen_key(run), ()))),
        )


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn any error caused by a broken run into one sentence.

    An untrusted manifest may contain anything at any depth, so the error of the code that reads
    it does not help the user.
    """
    try:
        yield
    except CommandError:
        raise
    except (StoreError, ValueError, OSError) as error:
        raise CommandError(str(error) or f"{path} cannot be opened") from None
    except Exception as error:  # noqa: BLE001 - of whatever code read it
        raise CommandError(
            f"{path} is incomplete or not a run of memowidgets ({type(error).__name__}: {error})"
        ) from None


def open_run(path: Path) -> Audit:
    """Return the audit in a run directory; its report contains its warnings.

    Raises
    ------
    CommandError
        If the run cannot be opened.
    """
    checked_run(path)
    with refusing(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        from memowidgets.audit import Audit

        return Audit.open(path)


def check_samples(audit: Audit) -> None:
    """Refuse to include samples of which only the ids are known.

    Raises
    ------
    CommandError
        If the samples are not at hand.
    """
    from memowidgets.data import WithheldDataset

    if isinstance(audit.data, WithheldDataset):
        raise CommandError(
            "--include-samples: the samples are not at hand, only their ids; in Python, an "
            "audit that is opened with its data makes a report with samples"
        )


_COLUMNS = ("run", "model", "members", "epochs", "drop at ρ", "shadows")
_WIDEST = 40


def listing(folder: Path) -> list[str]:
    """Return the lines to print.

    Parameters
    ----------
    folder : Path
        Folder with runs, at any depth. No link is followed.

    Raises
    ------
    CommandError
        If there is no such folder.
    """
    if not folder.is_dir():
        raise CommandError(f"there is no folder {folder}")
    problems = list[str]()
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for run in sorted(manifest.parent for manifest in folder.rglob(MANIFEST)):
        name = visible(str(run.relative_to(folder)), _WIDEST)
        name = visible(run.absolute().name, _WIDEST) if name == "." else name
        try:
            rows.append((name, *(visible(cell, _WIDEST) for cell in checked_run(run))))
        except CommandError as error:
            problems.append(f"{name}: {error}")
    if len(rows) == 1:
        return problems or [f"no run in {visible(str(folder), 200)}"]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        texts = zip(row, widths, strict=True)
        laid_out = [
            t.ljust(w) if i < 2 else t.rjust(w) for i, (t, w) in enumerate(texts)
        ]
        lines.append("  ".join(laid_out).rstrip())
    return [*lines, *problems]
