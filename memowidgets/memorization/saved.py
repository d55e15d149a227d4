"""Reading of shadow gaps that other tools saved as NumPy, safetensors or Parquet, not pickle."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import to_numpy
from memowidgets.files import checked_path, opened
from memowidgets.memorization.gaps import Mask, Table, checked_models, checked_target, moments
from memowidgets.visible import listed, quoted

_NAMES = {
    "gaps": ("gaps", "shadow_gaps"),
    "members": ("members", "shadow_members", "keep"),
    "target_gaps": ("target_gaps",),
    "ids": ("ids",),
}
_COLUMNS = ("model", "sample", "gap", "member")
_FORMATS = ".npy, .npz, .safetensors, .parquet"


@dataclass(frozen=True)
class SavedGaps:
    """Checked shadow gaps of another tool; ``gaps, members = load_gaps(path)`` unpacks them.

    Attributes
    ----------
    gaps : (n_models, n_samples) float32 or float64
        Logit gap of each sample under each model.
    members : (n_models, n_samples) bool
        Whether the model trained on the sample.
    target_gaps : (n_samples,) float64, or None
        Logit gap under the target model, if the file has it.
    ids : (n_samples,) str, or None
        Ids of the samples, if the file has them.
    """

    gaps: Table
    members: Mask
    target_gaps: NDArray[np.float64] | None = None
    ids: NDArray[np.str_] | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.gaps, self.members))


def load_gaps(
    path: str | os.PathLike[str],
    members: str | os.PathLike[str] | ArrayLike | None = None,
) -> SavedGaps:
    """Read shadow gaps that another tool saved.

    Parameters
    ----------
    path : path-like
        A file of one of these kinds:

        - ``.npz`` or ``.safetensors``: arrays ``gaps`` (or ``shadow_gaps``), (n_models,
          n_samples) floats; ``members`` (or ``shadow_members``, or ``keep``), of the same shape
          and bool; if there, ``target_gaps``, (n_samples,) floats, and ``ids``, (n_samples,)
          text;
        - ``.npy``: the gaps alone; pass `members` too;
        - ``.parquet``: a row for each model and sample, in any order, with the columns ``model``,
          ``sample`` (the id), ``gap``, ``member`` (bool) and, if there, ``target_gap``, the same
          in all rows of a sample. Models and samples are sorted by their names.
    members : path-like or array, optional
        Member mask, or a file that has it (``.npy``, ``.npz``, ``.safetensors``), if `path` does
        not have it.

    Returns
    -------
    SavedGaps

    Raises
    ------
    ValueError
        If the file is of another kind, an array or column is missing, shapes differ, a gap is NaN
        or infinite, a pair of model and sample is missing or repeated, or the file could only be
        read by running code in it (a pickle).
    TypeError
        If the member mask is not bool.
    FileNotFoundError
        If there is no such file.

    Notes
    -----
    Parquet needs pyarrow: ``pip install 'memowidgets[llm]'``.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = tempfile.mkdtemp() + "/gaps.npz"
    >>> np.savez(path, gaps=np.zeros((2, 3)), members=np.eye(2, 3, dtype=bool))
    >>> gaps, members = load_gaps(path)
    >>> gaps.shape, int(members.sum())
    ((2, 3), 2)
    """
    file = checked_path(path)
    kind = file.suffix.lower()
    if kind not in _READERS:
        raise ValueError(f"{file.name} has an unknown suffix; valid are {_FORMATS}")
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not a file")
    arrays = _READERS[kind](file)
    if members is not None:
        arrays["members"] = _mask(members)
    return _checked(arrays, file.name)


def _checked(arrays: Mapping[str, NDArray[Any]], file: str) -> SavedGaps:
    gaps, members = (_required(arrays, wanted, file) for wanted in ("gaps", "members"))
    gaps, members = checked_models(gaps, members, f"gaps of {file}")
    moments(gaps, members, f"gaps of {file}")  # raises for gaps that are not finite
    target, ids = (_named(arrays, wanted) for wanted in ("target_gaps", "ids"))
    if ids is not None and ids.shape != (gaps.shape[1],):
        raise ValueError(
            f"ids of {file} must be one for each of the {gaps.shape[1]} samples, but has shape "
            f"{ids.shape}"
        )
    if ids is not None and len(np.unique(ids)) < len(ids):
        raise ValueError(f"ids of {file} must be unique")
    return SavedGaps(
        gaps,
        members,
        None if target is None else checked_target(target, gaps.shape[1]),
        None if ids is None else ids.astype(np.str_),
    )


def _named(arrays: Mapping[str, NDArray[Any]], wanted: str) -> Any:
    return next((arrays[name] for name in _NAMES[wanted] if name in arrays), None)


def _required(arrays: Mapping[str, NDArray[Any]], wanted: str, file: str) -> Any:
    found = _named(arrays, wanted)
    if found is None:
        raise ValueError(
            f"{file} has no {wanted}: it must be called {' or '.join(_NAMES[wanted])}, but "
            f"the file has {listed(sorted(arrays)) or 'nothing'}"
        )
    return found


def _mask(members: str | os.PathLike[str] | ArrayLike) -> NDArray[Any]:
    """Return the member mask, given as an array or as a file that holds one array."""
    if not isinstance(members, str | os.PathLike):
        return to_numpy(members)
    file = checked_path(members)
    if file.suffix.lower() not in (".npy", ".npz", ".safetensors"):
        raise ValueError(
            f"members must be an array or a .npy, .npz or .safetensors, not {file.name}"
        )
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not a file")
    held = _READERS[file.suffix.lower()](file)
    mask = next(iter(held.values())) if len(held) == 1 else _required(held, "members", file.name)
    return np.asarray(mask)


def _numpy(file: Path) -> dict[str, NDArray[Any]]:
    try:
        with opened(file) as content:
            loaded = np.load(content, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"gaps": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file.name} is broken or contains a pickle: {error}") from None


def _safetensors(file: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(file))
    except SafetensorError as error:
        raise ValueError(f"{file.name} is broken: {error}") from None
    except TypeError as error:
        raise ValueError(
            f"{file.name} has numbers of a type that NumPy lacks ({error}); save them as float32"
        ) from None


def _parquet(file: Path) -> dict[str, NDArray[Any]]:
    table = _long_table(file)
    models, rows = np.unique(table["model"].to_numpy(), return_inverse=True)
    samples, columns = np.unique(table["sample"].to_numpy(), return_inverse=True)
    counts = np.zeros((len(models), len(samples)), dtype=np.int64)
    np.add.at(counts, (rows, columns), 1)
    for row, column in np.argwhere(counts != 1)[:1]:
        raise ValueError(
            f"{file.name} must hold one row for each model and sample, but has "
            f"{counts[row, column]} for model {quoted(models[row])}, sample "
            f"{quoted(samples[column])}"
        )
    order = np.lexsort((columns, rows))

    def wide(name: str) -> NDArray[Any]:
        return np.asarray(table[name].to_numpy()[order].reshape(counts.shape))

    found = {"gaps": wide("gap"), "members": wide("member"), "ids": samples.astype(np.str_)}
    if "target_gap" in table:
        target = wide("target_gap")
        if not np.isfinite(target).all():
            raise ValueError(f"{file.name} has a target_gap that is NaN or infinite")
        if not (target == target[0]).all():
            raise ValueError(f"{file.name} must hold one target_gap a sample, but they differ")
        found["target_gaps"] = target[0]
    return found


def _long_table(file: Path) -> Any:
    """Return the table of a Parquet file, which has all columns and lacks no value."""
    import pandas as pd

    try:
        table = pd.read_parquet(file)
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install 'memowidgets[llm]'") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{file.name} is broken: {error}") from None
    missing = [name for name in _COLUMNS if name not in table]
    if missing:
        raise ValueError(
            f"{file.name} lacks the columns {', '.join(missing)}; it must hold a row for each "
            f"model and sample, with {', '.join(_COLUMNS)}"
        )
    for name in _COLUMNS:
        if table[name].isna().any():
            row = int(np.flatnonzero(table[name].isna())[0])
            raise ValueError(f"{file.name} has no {name} in row {row}")
    return table


_READERS = {
    ".npy": _numpy,
    ".npz": _numpy,
    ".safetensors": _safetensors,
    ".parquet": _parquet,
}
