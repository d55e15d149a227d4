"""Checks that several rooms share."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import numbers
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.vocabulary import quoted, visible

if TYPE_CHECKING:
    from torch import Tensor

_AT_ONCE = 2**22  # values
_FEW = 20  # labels that may all differ
# characters of a label that a message quotes: a longer one may be a sample
_A_NAME = 40
_PACKAGE = __name__.split(".", maxsplit=1)[0]


def warn_user(text: str) -> None:
    """Warn at the line outside of this package that led here."""
    frame = sys._getframe()  # noqa: SLF001 - warnings of Python 3.11 cannot skip files
    level = 1
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.split(".", maxsplit=1)[0] != _PACKAGE:
            break
        frame = frame.f_back
        level += 1
    warnings.warn(text, UserWarning, stacklevel=level)


def as_code(value: object) -> str:
    """Return a value as code, visible and cut, for the message that refuses it.

    Examples
    --------
    >>> print(as_code("ten"), as_code(1.5))
    'ten' 1.5
    """
    return visible(repr(value), _A_NAME)


def real_number(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    finite: bool = False,
) -> float:
    """Return a number after checking its limits, which it may reach.

    Parameters
    ----------
    name : str
        Name of the number in the message.
    value : object
        What was given.
    low, high : float
        Limits.
    finite : bool
        Whether infinity is refused.

    Raises
    ------
    TypeError
        If it is no number.
    ValueError
        If it is NaN, beyond a limit, or infinite although `finite`.

    Examples
    --------
    >>> real_number("atypical", 1.5, 0, 1)
    Traceback (most recent call last):
    ...
    ValueError: atypical must be a number from 0 to 1, not 1.5
    """
    wanted = "a finite number" if finite else "a number"
    wanted += f" from {low:g}" if low > -math.inf else ""
    wanted += f" to {high:g}" if high < math.inf else ""
    if not _is_number(value):
        raise TypeError(f"{name} must be {wanted}, not {as_code(value)}")
    if not low <= value <= high or (finite and math.isinf(value)):
        raise ValueError(f"{name} must be {wanted}, not {value}")
    return float(value)


def whole_number(
    name: str, value: object, least: int = 0, most: float = math.inf
) -> int:
    """Return a whole number, which may be given as a float such as 2.0.

    Parameters
    ----------
    name : str
        Name of the number in the message.
    value : object
        What was given.
    least, most : int
        Limits.

    Raises
    ------
    TypeError
        If it is no number.
    ValueError
        If it has a fraction, is infinite or NaN, or is beyond a limit.

    Examples
    --------
    >>> whole_number("repeats", 2.5, 1)
    Traceback (most recent call last):
    ...
    ValueError: repeats must be a whole number from 1, not 2.5
    """
    wanted = f"{name} must be a whole number from {least}"
    wanted += f" to {most}" if most < math.inf else ""
    if not _is_number(value):
        raise TypeError(f"{wanted}, not {as_code(value)}")
    if not least <= value <= most or value % 1:
        raise ValueError(f"{wanted}, not {value}")
    return int(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def several(name: str, values: object) -> list[Any]:
    """Return the values of an iterable that is no text.

    Raises
    ------
    TypeError
        If it is something else.

    Examples
    --------
    >>> several("etas", 4.0)
    Traceback (most recent call last):
    ...
    TypeError: etas must be several values, such as a list, not 4.0
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(
            f"{name} must be several values, such as a list, not {as_code(values)}"
        )
    check_unmasked(values)
    return list(values)


def has_form(value: object, form: Any) -> bool:
    """Return whether what JSON gave, maybe from an untrusted file, has a form.

    Parameters
    ----------
    value : object
        What was read.
    form : type, list, tuple, dict, or callable
        A type or a union of types, where no bool is a number and each int is a float;
        ``[form]`` for a list and ``(form, form)`` for one of that length; ``{name: form}`` for a
        mapping, where a missing entry is None, and ``{str: form}`` for one with any names. A
        function decides by the value.

    Examples
    --------
    >>> has_form({"ids": ["a"], "seed": 0}, {"ids": [str], "seed": int, "fork": dict | None})
    True
    """
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            has_form(value.get(name), form.get(name, form.get(str)))
            for name in (value if str in form else form)
        )
    if isinstance(form, list | tuple):
        return (
            isinstance(value, list)
            and (isinstance(form, list) or len(value) == len(form))
            and all(has_form(inner, form[0]) for inner in value)
        )
    if not isinstance(form, type | UnionType):
        return bool(form(value))
    if isinstance(value, bool):
        return False
    return isinstance(value, form) or (isinstance(value, int) and isinstance(0.0, form))


def is_tensor(array: object) -> TypeGuard[Tensor]:
    """Return whether `array` is a torch tensor, without importing torch."""
    # another thread may be importing torch right now; then there is no tensor yet
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(array, tensor)


def check_unmasked(values: Any) -> None:
    """Raise if a value of NumPy's masked array is masked: nothing here would leave it out.

    Raises
    ------
    ValueError
        With the number of masked values, and the first.
    """
    if np.ma.is_masked(values):
        masked = np.ma.getmaskarray(values)
        first = ", ".join(map(str, np.argwhere(masked)[0]))
        raise ValueError(
            f"{int(masked.sum())} of {masked.size} values are masked, the first at [{first}]; "
            "leave those samples out, or fill the values in with .filled(value)"
        )


def are_tensors(values: object) -> bool:
    """Return whether this is a torch tensor, or a list of them."""
    first = values[:1] if isinstance(values, list | tuple) else [values]
    return any(map(is_tensor, first))


def strided(tensor: Tensor, what: str = "a tensor") -> Tensor:
    """Return a torch tensor that has a value at each place, without its gradient.

    Raises
    ------
    TypeError
        If it has none, or has them in another form: on the meta device, sparse, quantized or
        nested. The message says what to pass.
    """
    remedy = ""
    if tensor.is_nested:
        remedy = "is a nested tensor; pass .to_padded_tensor(0.0) of it"
    elif tensor.layout != sys.modules["torch"].strided:
        remedy = f"is a tensor of layout {tensor.layout}; pass .to_dense() of it"
    elif tensor.is_quantized:
        remedy = "is a quantized tensor; pass .dequantize() of it"
    elif tensor.is_meta:
        remedy = "is on torch's meta device, where a tensor has no values; compute it on another"
    if remedy:
        raise TypeError(f"{what} {remedy}")
    return tensor.detach().resolve_conj().resolve_neg()


def to_numpy(array: object, what: str = "a tensor") -> NDArray[Any]:
    """Return an array, list, tensor or list of tensors as an array in this machine's byte order.

    A float that NumPy does not have, such as bfloat16, becomes float32. A missing value (NA) in
    numbers of pandas becomes NaN.

    Parameters
    ----------
    array : array_like, torch tensor or list of torch tensors
        The values.
    what : str
        Name of the values in a message.

    Raises
    ------
    ValueError
        If a value is masked (`numpy.ma`): nothing here would leave it out.
    TypeError
        If a tensor has no value at each place, as `strided` says.
    """
    if isinstance(array, list | tuple) and are_tensors(array):
        return np.asarray([to_numpy(one, what) for one in array])
    if is_tensor(array):
        tensor = strided(array, what)
        torch = sys.modules["torch"]
        of_numpy = (torch.float16, torch.float32, torch.float64)
        if tensor.is_floating_point() and tensor.dtype not in of_numpy:
            tensor = tensor.float()
        result = np.asarray(tensor.cpu().numpy())
    else:
        check_unmasked(array)
        result = np.asarray(array)
    # such as Float64 and double[pyarrow] of pandas
    if result.dtype.kind == "O" and hasattr(array, "to_numpy"):
        # the last is raised by an index with several levels
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            result = array.to_numpy(dtype=np.float64, na_value=np.nan)
    return _native(result)


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in this machine's byte order, which torch and pandas ask for."""
    kind = array.dtype
    return array if kind.isnative else array.astype(kind.newbyteorder("="))


def real_numbers(values: object, what: str) -> NDArray[Any]:
    """Return an array or tensor of real numbers, with the type that they have.

    Raises
    ------
    TypeError
        If they are something else, such as complex numbers, dates or a sparse tensor. The message
        has `what` and their type.
    ValueError
        If a value is masked.

    Examples
    --------
    >>> real_numbers(["a", "b"], "scores")
    Traceback (most recent call last):
    ...
    TypeError: scores must be real numbers, not values of type <U1
    """
    try:
        array = to_numpy(values, what)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{what} must have rows of one length") from error
    kind = array.dtype
    if kind.kind == "O":
        with contextlib.suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{what} must be real numbers, not values of type {kind}")
    return array


def check_finite(
    values: ArrayLike,
    what: str,
    remedy: str = "",
    *,
    row: str = "row",
    allowed: float = 0.0,
) -> None:
    """Raise if an array has a NaN or an infinite number.

    Parameters
    ----------
    values : (n, ...) array_like of float
        Numbers, with one row for each sample. They are read in pieces: they may lie on disk.
    what : str
        Name of the values in the message, in the plural.
    remedy : str
        What to do about it, as the end of the message.
    row : str
        What a row is.
    allowed : float
        Number that is let through, such as −inf.

    Raises
    ------
    ValueError
        If a row has such a number. The message has the number of these rows, and the place of the
        first one.

    Examples
    --------
    >>> check_finite([0.5, float("nan"), 0.2], "scores", "leave out samples without a score")
    Traceback (most recent call last):
    ...
    ValueError: scores must be finite: 1 of 3 rows are NaN or infinite, the first in row 1; leave
    out samples without a score
    """
    rows = np.asarray(values)
    n_wrong = 0
    first = ""
    size = max(1, _AT_ONCE * len(rows) // max(1, rows.size))
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        fine = np.isfinite(piece)
        if fine.all():
            continue
        wrong = ~(fine | (piece == allowed)).reshape(len(piece), -1)
        if wrong.any() and not first:
            at, column = np.argwhere(wrong)[0].tolist()
            first = f"{row} {start + at}" + (
                f", column {column}" if rows.ndim > 1 else ""
            )
        n_wrong += int(wrong.any(axis=1).sum())
    if n_wrong:
        raise ValueError(
            f"{what} must be finite: {n_wrong} of {len(rows)} {row}s are NaN or infinite, the "
            f"first in {first}{remedy and f'; {remedy}'}"
        )


def as_text(value: object) -> str:
    """Return a value as text: a whole number without its decimal point."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def id_text(name: object) -> str:
    """Return an id of any type as the text by which files name the sample.

    Examples
    --------
    >>> import datetime as dt
    >>> id_text(7.0), id_text(dt.datetime(2024, 1, 30)), id_text(("ward A", 3))
    ('7', '2024-01-30', 'ward A, 3')
    """
    if isinstance(name, str):
        return str(name)  # NumPy's texts too
    if isinstance(name, tuple):  # of an index with several levels
        return ", ".join(map(id_text, name))
    if isinstance(name, np.datetime64 | np.timedelta64):
        import pandas as pd

        name = pd.Series([name])[0]
    if isinstance(name, dt.datetime) and str(name).endswith(" 00:00:00"):
        name = name.date()
    return as_text(name)


def index_of(given: object) -> Any:
    """Return the index of a Series, a DataFrame or a dataset, or an Index itself; else None."""
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return None
    index = given if isinstance(given, pandas.Index) else getattr(given, "index", None)
    return index if isinstance(index, pandas.Index) else None


def check_same_order(**given: Any) -> None:
    """Raise if samples that pandas names are paired by place with samples of other names.

    A Series, a DataFrame or a dataset is named by its index, and an Index by itself. A default
    index 0 … n − 1 names nothing, so it goes with any other, unless that has the same names in
    another order. So do the values of ``ids``, which give new names. Duplicated names must be
    equal in each place.

    Raises
    ------
    ValueError
        With the names of both.
    """
    ids = given.get("ids")
    are_values = ids is not index_of(ids) and hasattr(ids, "__len__")
    named = {"the values of ids": ids if are_values else None}
    named |= {name: index_of(one) for name, one in given.items()}
    indexes = [(name, index) for name, index in named.items() if index is not None]
    # the first of two is the one that has no .loc
    indexes.sort(key=lambda pair: hasattr(given.get(pair[0]), "loc"))
    for (first, ours), (name, theirs) in combinations(indexes, 2):
        have_equals = hasattr(ours, "equals") and hasattr(theirs, "equals")
        if len(ours) != len(theirs) or (have_equals and ours.equals(theirs)):
            continue
        some = list(map(id_text, ours))
        others = list(map(id_text, theirs))
        is_default = list(map(str, range(len(some)))) in (some, others)
        renames = first == "the values of ids"
        if some == others or (renames and is_default):
            continue
        has_loc = hasattr(given[name], "loc")
        turned = ".T" if name.endswith(".T") else ""  # back, as it was passed
        unnamed = f"{name}.to_numpy(){turned}" if has_loc else "arrays"
        if sorted(some) == sorted(others):
            own = "ids" if renames else first
            if not renames and given[first] is not ours:
                own = f"{first}.index"
            sorted_rows = f"{name}.loc[{own}]{turned}, or " if has_loc else ""
            raise ValueError(
                f"{name} has the rows of {first} in another order: pass {sorted_rows}{unnamed} if "
                "they belong together"
            )
        if not renames and not is_default:
            raise ValueError(
                f"{name} has other rows than {first}, such as {quoted(others[0])} for "
                f"{quoted(some[0])}: pass {unnamed} if they belong together"
            )


def numbered_labels(
    labels: ArrayLike,
    class_names: Sequence[str] | None = None,
    where: Callable[[int], str] = "row {}".format,
) -> tuple[NDArray[Any], Sequence[str] | None]:
    """Return labels as numbers, with the names of the classes if the labels are strings.

    Parameters
    ----------
    labels : (n,) array_like
        Labels as strings or numbers. Numbers are returned unchanged.
    class_names : sequence of str, optional
        Names of the classes. By default the categories of pandas' category type in their own
        order, or the strings that occur, sorted.
    where : callable
        Function from a row's number to its name in a message.

    Returns
    -------
    numbers : (n,) array
        For strings their positions in the names.
    names : sequence of str or None
        `class_names`, or the strings that occur.

    Raises
    ------
    ValueError
        If a label is missing (None, NaN or a blank string), only some labels are strings, a string
        is not one of
        `class_names`, or more than 20 strings are all different. The message names the row.
    TypeError
        If `class_names` are not in an order of their own.

    Examples
    --------
    >>> numbered_labels(["spam", "ham", "spam"])
    (array([1, 0, 1]), ('ham', 'spam'))
    >>> numbered_labels(["spam", None, "ham"])
    Traceback (most recent call last):
    ...
    ValueError: 1 of 3 labels are missing, the first in row 1; leave out samples without a label
    """
    has_order = class_names is None or isinstance(class_names, Iterable)
    if not has_order or isinstance(class_names, str | Mapping | AbstractSet):
        raise TypeError(
            "class_names must be a list with the name of class 0 first, not of type "
            f"{type(class_names).__name__}"
        )
    # of pandas
    categories = getattr(getattr(labels, "dtype", None), "categories", None)
    if categories is not None and class_names is None:
        class_names = [str(name) for name in categories]
        labels = np.asarray(labels).astype(object)
        labels = [one if is_missing(one) else str(one) for one in labels]
    array = plain_labels(labels, where)
    if array.dtype.kind != "U":
        return array, class_names
    texts = array.tolist()
    if class_names is None and len(set(texts)) == len(texts) > _FEW:
        raise ValueError(
            f"each of the {len(texts)} labels is a different string, so they are not classes; pass "
            "another column, or class_names"
        )
    names = (
        tuple(sorted(set(texts)))
        if class_names is None
        else tuple(map(str, class_names))
    )
    position = {name: number for number, name in enumerate(names)}
    for row, label in enumerate(texts):
        if label not in position:
            shown = (
                quoted(label)
                if len(label) <= _A_NAME
                else f"a text of {len(label)} characters"
            )
            raise ValueError(
                f"the label in {where(row)} is {shown}, which is not one of the {len(names)} "
                "class_names; correct it, or add it to class_names"
            )
    return np.array([position[label] for label in texts], dtype=np.int64), names


def plain_labels(
    labels: ArrayLike, where: Callable[[int], str] = "row {}".format
) -> NDArray[Any]:
    """Return labels as an array of strings or of numbers.

    Raises
    ------
    ValueError
        If a label is missing (None, NaN or a blank string), or only some labels are strings. The
        message names the row.
    TypeError
        If they are complex numbers, or a tensor that `strided` refuses.

    Examples
    --------
    >>> plain_labels(np.array(["spam", "ham"], dtype=object))
    array(['spam', 'ham'], dtype='<U4')
    """
    if are_tensors(labels):
        labels = to_numpy(labels, "labels")
    check_unmasked(labels)
    array = _native(np.asarray(labels))
    if array.dtype.kind == "c":
        raise TypeError(f"labels must be strings or numbers, not {array.dtype}")
    if array.ndim != 1 or array.dtype.kind not in "fOUT":
        return array
    if array.dtype.kind == "U" and not hasattr(labels, "dtype"):
        # NumPy turned the numbers of a list into strings
        array = np.array(labels, dtype=object)
    blank = (isinstance(label, str) and not label.strip() for label in array)
    missing = [
        is_missing(label) or no_word
        for label, no_word in zip(array, blank, strict=True)
    ]
    if any(missing):
        raise ValueError(
            f"{sum(missing)} of {len(missing)} labels are missing, the first in "
            f"{where(missing.index(True))}; leave out samples without a label"
        )
    text = [array.dtype.kind in "UT" or isinstance(label, str) for label in array]
    if any(text) and not all(text):
        row = text.index(not text[0])
        raise ValueError(
            f"some labels are strings and others are not; the first that differs is in "
            f"{where(row)}; use the one or the other"
        )
    if any(text):
        return np.array([str(label) for label in array])
    return np.asarray(array.tolist()) if array.dtype.kind == "O" else array


def dense(values: Any, what: str) -> Any:
    """Return a SciPy sparse matrix as an array, with a warning that says how much memory it takes.

    Everything else is returned unchanged.

    Examples
    --------
    >>> dense([[0, 1]], "X")
    [[0, 1]]
    """
    if not (hasattr(values, "toarray") and hasattr(values, "nnz")):
        return values
    size = np.dtype(values.dtype).itemsize * float(np.prod(values.shape))
    shown = f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
    warn_user(
        f"{what} is sparse and is made dense, which takes {shown} of memory; if that is too much, "
        "reduce its columns first, for example with scikit-learn's TruncatedSVD"
    )
    return values.toarray()


def looks_like_probabilities(logits: NDArray[Any]) -> bool:
    """Return whether each row lies between 0 and 1 and sums to 1.

    Examples
    --------
    >>> looks_like_probabilities(np.array([[0.3, 0.7], [1.0, 0.0]]))
    True
    """
    between = bool(((logits >= 0) & (logits <= 1)).all())
    return between and bool(np.allclose(logits.sum(axis=1), 1, atol=1e-3))


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, NaN, pandas' NA or NaT.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), "", 0)]
    [True, True, False, False]
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def check_version(version: object) -> None:
    """Raise for a version that is not a text."""
    if version is not None and not (isinstance(version, str) and version):
        raise TypeError(f'version must be a text such as "1", not {version!r}')
