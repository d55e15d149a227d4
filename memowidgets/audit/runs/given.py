"""What a user passes to `Audit.from_arrays`: its checks, the evidence in it, and its files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from mmap import mmap
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit.evidence import (
    INSTEAD,
    LAYER,
    LOGITS,
    OF_ARRAYS,
    REPRESENTATIONS,
    TRACE,
    Arrays,
    Checkpoint,
    Evidence,
    Models,
    no_models,
)
from memowidgets.audit.kept import Cache, KeptScores, ScorePlace
from memowidgets.audit.names import GIVEN, Names
from memowidgets.audit.runs import identity
from memowidgets.audit.runs.identity import ARRAYS, is_of_arrays, read_arrays_manifest
from memowidgets.checks import (
    check_finite,
    check_same_order,
    check_unmasked,
    dense,
    is_tensor,
    looks_like_probabilities,
    numbered_labels,
    real_numbers,
    several,
    to_numpy,
    warn_user,
    whole_number,
)
from memowidgets.data import (
    Dataset,
    ImageDataset,
    MCQDataset,
    TableDataset,
    TextDataset,
    WithheldDataset,
)
from memowidgets.data.dataset import (
    checked_class_names,
    checked_ids,
    checked_labels,
    kind_of,
    kind_of_sample,
    value_of,
    warn_of_absent,
)
from memowidgets.data.tables import columns_to_show
from memowidgets.memorization.gaps import checked_mask
from memowidgets.metrics import logit_gap, loss
from memowidgets.metrics.logits import order_warning
from memowidgets.stamps import array_digest, digest
from memowidgets.store import MANIFEST, Absent, RunDirectory, StoreError
from memowidgets.training.rho import Record
from memowidgets.training.shadows import Shadows
from memowidgets.visible import listed, quoted

Floats = NDArray[np.float64]
Numbers = NDArray[Any]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]
Texts = Sequence[str] | None
_GIVE = "give Audit.from_arrays"
_OF_SHADOWS = "shadow_gaps=, shadow_members= and final_logits="
_NO_LOGITS = Absent("this needs the model's logits", f"{_GIVE} logits=")
_NO_LAYERS = Absent(
    "this needs the samples' representations",
    f"{_GIVE} representations=, an array of shape (n, values) or {{layer: array}}",
)
_NO_TRUTH = Absent("log-LiRA is not known", f"{_GIVE} log_lira=, or {_OF_SHADOWS}")
_VALUES_ALONE = Absent(
    "log_lira was given as it is, and the gaps of shadow models were not: standard errors, "
    "probabilities and other variances need them",
    f"{_GIVE} {_OF_SHADOWS}",
)
_NO_REFERENCES = Absent(OF_ARRAYS.format("train reference models"), INSTEAD)
_ONE_CHECKPOINT = Absent(
    "an audit of arrays has one checkpoint, so nothing can be averaged over several",
    "mw.metrics.csl(losses) takes losses of your own",
)
ONLY = "last"
_FILE = "arrays"
_OF_MODELS = ("shadow_gaps", "shadow_members", "reference_gaps")
OPTIONAL = ("logits", "final_logits", "log_lira", *_OF_MODELS)
_TRUTH = ("shadow_gaps", "shadow_members", "final_logits")
SCORES = f"scores/{GIVEN}"  # in the run directory
_KINDS = (
    "a dataset, images as an array of shape (n, height, width[, channels]), a list of texts, or "
    "of records with 'question' and 'choices', or with 'text', or a DataFrame of a table"
)
_SUMS = 1e-3  # probabilities that are rounded or in half precision miss 1 by less


@dataclass(frozen=True, eq=False)
class GivenArrays:
    """Checked arrays of n samples.

    Attributes
    ----------
    data : Dataset
        Ids, labels, class names and canaries, with the samples if they were passed.
    layers : dict of array of shape (n, values)
        Representations by name, first layer to last; float32 or float64.
    arrays : dict of array
        Those of `OPTIONAL` that were given, read-only: ``logits`` and ``final_logits``,
        (n, n_classes), with −inf for options that a question does not have; ``log_lira``, (n,),
        float64, with NaN for a sample without a value; the others (n_models, n), float32 or bool.
    """

    data: Dataset
    layers: dict[str, Numbers]
    arrays: dict[str, Numbers]

    def __post_init__(self) -> None:
        for array in (*self.layers.values(), *self.arrays.values()):
            array.flags.writeable = False  # `Audit.representation` and others give them away

    @property
    def as_files(self) -> dict[str, Numbers]:
        """The arrays as a run directory holds them."""
        of_layers = {LAYER + name: values for name, values in self.layers.items()}
        canaries = self.data.canaries
        planted = {} if canaries is None else {"canaries": canaries}
        return {"labels": self.data.labels, **of_layers, **self.arrays, **planted}


def check_arrays(
    labels: Any,
    samples: Any,
    ids: Sequence[str] | None,
    class_names: Sequence[str] | None,
    canaries: Any,
    representations: Any,
    **arrays: Any,
) -> GivenArrays:
    """Return the checked arrays; `arrays` are probabilities, and those of `OPTIONAL`.

    Raises
    ------
    ValueError, TypeError
        As `Audit.from_arrays` says.
    """
    given = {name: values for name, values in arrays.items() if values is not None}
    both = [name for name in ("logits", "probabilities") if name in given]
    if representations is None and not both:
        raise ValueError(
            "there is nothing to score: pass representations=, logits=, or both; probabilities= "
            "stands for logits="
        )
    if len(both) > 1:
        raise ValueError("pass logits= or probabilities=, not both: one follows from the other")
    named, class_names = _labels(labels, class_names, samples)
    n, found = len(named), dict[str, Numbers]()
    outputs = _outputs(given, named)
    names = _class_names(class_names, samples, outputs)
    if not outputs and not isinstance(samples, Dataset):
        known = checked_class_names(names, named)
        warn_of_absent(named, known)
    own_ids = None if ids is None else checked_ids(ids, n).tolist()
    data = dataset_of(samples, named, own_ids, names, _canaries(canaries, n))
    by_layer = representations if isinstance(representations, Mapping) else {}
    by_row = {"ids": data.ids.tolist(), "labels": labels, "canaries": canaries}
    by_row |= {"representations": representations}
    by_row |= {f"representations[{key!r}]": values for key, values in by_layer.items()}
    by_row |= {name: given[name] for name in outputs}
    for name in _OF_MODELS:  # a row for each model
        if isinstance(given.get(name), pd.DataFrame):
            by_row[f"{name}.T"] = given[name].T
    check_same_order(**by_row)
    for name, table in outputs.items():
        _check_class_order(name, given[name], data.class_names)
        kept = found["logits" if name in both else name] = _of_options(table, data)
        logit_gap(kept, data.labels)  # says what is wrong with an option that is missing
        if disorder := order_warning(name, kept, data.labels):
            warn_user(disorder)
    if "log_lira" in given:
        found["log_lira"] = _log_lira(given["log_lira"], data.ids)
    found |= _shadows(given, n)
    if "reference_gaps" in given:
        found["reference_gaps"] = _references(given["reference_gaps"], data.ids)
    layers = {} if representations is None else _layers(representations, n)
    return GivenArrays(data, layers, found)


def evidence_of(given: GivenArrays, run: RunDirectory | None, seed: int) -> Evidence:
    """Return the evidence in arrays of n samples, all of which are members.

    There is one checkpoint, ``"given"``, which is ``"prediction"`` and ``"final"`` too.

    Parameters
    ----------
    given : GivenArrays
        The arrays, checked.
    run : RunDirectory or None
        Where scores are kept; in memory alone without one.
    seed : int
        Seed of PSMI's directions.
    """
    data, arrays, rows = given.data, given.arrays, np.arange(len(given.data))
    made = {LAYER + name: values for name, values in given.layers.items()}  # as of a forward pass
    median = mean = accuracy = float("nan")
    logits, gaps, references = map(arrays.get, ("logits", "shadow_gaps", "reference_gaps"))
    final = arrays.get("final_logits")
    if logits is not None:
        made |= {"logits": logits, "losses": -loss(logits, data.labels)}
        mean, median = float(made["losses"].mean()), float(np.median(made["losses"]))
        accuracy = float((logits.argmax(axis=1) == data.labels).mean())
    record = Record(GIVEN, float("nan"), 1, median, mean, accuracy, None, None, "")
    path = "arrays in memory" if run is None else str(run.path)

    def models(kept: Shadows | None, none: Absent) -> Models:
        if kept is None:
            return no_models("", none)
        numbers, at = range(len(kept.gaps)), (GIVEN,)
        some = partial(_suffice, kept)
        return Models("", lambda _: kept, lambda: numbers, lambda: at, suffice=some)

    shadows = asked = None
    if gaps is not None:
        shadows = Shadows(arrays["shadow_members"], gaps, np.arange(len(gaps)))
    if references is not None:
        asked = Shadows(np.isnan(references), references, np.arange(len(references)))
    no_shadows = _VALUES_ALONE if "log_lira" in arrays else _NO_TRUTH

    digests: dict[str, str] = {}

    def files(_record: Record, layer: str) -> ScorePlace:
        """The files of the scores from a layer: of these very values, logits, labels and seed."""
        if layer not in digests:
            # the logits too: a user's own score may read them
            made_of = [given.layers.get(layer), logits, data.labels]
            known = [array_digest(np.ascontiguousarray(a)) for a in made_of if a is not None]
            digests[layer] = digest([*known, seed])
        return ScorePlace(cast("RunDirectory", run), SCORES, digests[layer])

    cache, absent = Cache(), {TRACE: _ONE_CHECKPOINT}
    absent |= {LOGITS: _NO_LOGITS} if logits is None else {}
    absent |= {} if given.layers else {REPRESENTATIONS: _NO_LAYERS}
    return Evidence(
        path=path,
        manifest={"seed": seed, "layers": list(given.layers), "training": {}},
        seed=seed,
        data=data,
        trained_labels=data.labels,
        true_labels=data.labels,
        pool=rows,
        member_rows=rows,
        held_out_labels=np.empty(0, dtype=np.int64),
        n_options=_n_options(data, logits),
        names=Names(tuple(given.layers), (record,)),
        checkpoints={
            GIVEN: Checkpoint(
                record,
                Arrays(lambda: made, absent=lambda x: _NO_LAYERS if LAYER in x else _NO_LOGITS),
                _NO_LOGITS,
                gaps=None if final is None else logit_gap(final, data.labels),
            )
        },
        shadows=models(shadows, no_shadows),
        references=models(asked, _NO_REFERENCES),
        shadow_sets=lambda: {} if gaps is None else {GIVEN: len(gaps)},
        scores=KeptScores(cache, None if run is None else files, read_only=run is None),
        given={
            "labels": data.labels,
            **{f"representations, {name}": values for name, values in given.layers.items()},
            **arrays,
        },
        settings=Absent("an audit of arrays does not know how the model was trained"),
        shadow=Absent(OF_ARRAYS.format("take a shadow model as its target"), INSTEAD),
        absent=absent,
        cache=cache,
    )


def _suffice(models: Shadows) -> bool:
    """Whether some sample is in two shadow models and out of two others."""
    inside, outside = models.members.sum(axis=0), (~models.members).sum(axis=0)
    return bool(((inside >= 2) & (outside >= 2)).any())


def _n_options(data: Dataset, logits: Numbers | None) -> int:
    """Return how many answers the model chooses from: classes, or a question's own options."""
    if isinstance(data, MCQDataset):
        return int(np.median(data.n_choices))
    if logits is not None and isinstance(data, WithheldDataset):
        return int(np.median(np.isfinite(logits).sum(axis=1)))  # −inf: no such option
    return len(data.class_names)


def _labels(
    labels: Any, class_names: Sequence[str] | None, samples: Any
) -> tuple[NDArray[np.int64], Sequence[str] | None]:
    """Labels as numbers, and the names of their classes if they are strings."""
    array = _array("labels", labels, are_numbers=False)
    if array.dtype.kind == "f" and np.isnan(array).any():
        missing = np.isnan(array)
        raise ValueError(
            f"labels holds {int(missing.sum())} NaN, the first in row {int(missing.argmax())}: "
            "leave out samples without a label"
        )
    known = samples.class_names if isinstance(samples, Dataset) else class_names
    numbers, names = numbered_labels(array if is_tensor(labels) else labels, known)
    return checked_labels(numbers, None), class_names if isinstance(samples, Dataset) else names


def _layers(representations: Any, n: int) -> dict[str, Numbers]:
    """Return the representations by layer name. Layers with integer names are sorted."""
    if not isinstance(representations, Mapping):
        return {ONLY: _representation("representations", representations, n)}
    if not representations:
        raise ValueError("representations is empty: pass {layer: array}, or leave it out")
    keys = list(representations)
    if all(isinstance(key, int | np.integer) for key in keys):
        keys = sorted(keys)
    names = [str(key) for key in keys]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"two layers have the name {quoted(twice[0])}: names must differ")
    where = "representations[{!r}]".format
    return {
        name: _representation(where(key), representations[key], n)
        for name, key in zip(names, keys, strict=True)
    }


def _representation(what: str, values: Any, n: int) -> Numbers:
    array = _floating(_array(what, values))
    if array.ndim < 2:
        raise ValueError(
            f"{what} must be (n_samples, n_features), but has shape {array.shape}: a single "
            "feature is x[:, None]"
        )
    _check_rows(what, array, n)
    if 0 in array.shape:
        raise ValueError(f"{what} has no features: its shape is {array.shape}")
    flat = array.reshape(n, -1)
    check_finite(flat, what)
    return flat


def _outputs(given: Mapping[str, Any], labels: Labels) -> dict[str, Numbers]:
    """Return the model's outputs as logits, by the name of their argument."""
    read = {"logits": _logits, "probabilities": _log_probabilities, "final_logits": _logits}
    found = {name: read[name](name, given[name], len(labels)) for name in read if name in given}
    for name, table in found.items():
        _check_columns(name, labels, table)
    return found


def _logits(what: str, values: Any, n: int) -> Numbers:
    """Return checked logits; one value for each sample is that of the second of two classes."""
    array = _of_classes(what, values, n)
    check_finite(array, what, allowed=-np.inf)
    single = array.shape[1] == 1
    if looks_like_probabilities(np.hstack([1 - array, array]) if single else array):
        rows = "lies between 0 and 1" if single else "lies between 0 and 1 and sums to 1"
        warn_user(
            f"{what} look like probabilities: each row {rows}; pass "
            + ("their logarithms" if what == "final_logits" else "them as probabilities= instead")
        )
    return np.hstack([0 * array, array]) if single else array


def _log_probabilities(_what: str, values: Any, n: int) -> Numbers:
    """Return the logarithms of probabilities, which are logits: their softmax is what was given."""
    array = _of_classes("probabilities", values, n)
    check_finite(array, "probabilities")
    outside = (array < 0) | (array > 1 + _SUMS)
    if outside.any():
        row, column = (int(i) for i in np.unravel_index(outside.argmax(), array.shape))
        raise ValueError(
            f"probabilities holds {int(outside.sum())} values that are not between 0 and 1, the "
            f"first in row {row}, column {column}: {array[row, column]:.4g}; pass "
            "log-probabilities and logits, such as those of decision_function, as logits="
        )
    if array.shape[1] == 1:
        array = np.hstack([1 - array, array])
    sums = array.sum(axis=1, dtype=np.float64)
    off = np.abs(sums - 1) > _SUMS
    if off.any():
        row = int(off.argmax())
        raise ValueError(
            f"probabilities must sum to 1 in each row, but {int(off.sum())} rows do not, the first "
            f"is row {row} with {sums[row]:.4g}: pass those of all classes, and divide each row by "
            "its sum if they are rounded"
        )
    smallest = np.finfo(array.dtype).eps  # as in scikit-learn's log_loss
    zero = (array < smallest).any(axis=1)
    if zero.any():
        warn_user(
            f"probabilities are 0 or 1 in {int(zero.sum())} of {n} rows: their logarithm is taken "
            f"of {smallest:.1g} instead of 0, so scores of such samples are equal or nearly so"
        )
    logarithms: Floats = np.log(np.maximum(array, smallest, dtype=np.float64))
    return logarithms


def _of_classes(what: str, values: Any, n: int) -> Numbers:
    """Return an array of shape (n, n_classes), or (n, 1) of one value for each sample."""
    array = _floating(_array(what, values))
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(
            f"{what} must be (n_samples, n_classes), or (n_samples,) for the second of two "
            f"classes, but has shape {array.shape}"
        )
    _check_rows(what, array, n)
    if array.shape[1] == 0:
        raise ValueError(f"{what} has no columns: it needs one for each class")
    return array


def _check_columns(what: str, labels: NDArray[np.int64], logits: Numbers) -> None:
    outside = labels >= logits.shape[1]
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(
            f"{int(outside.sum())} labels have no column in {what}, the first in row {row}: it is "
            f"{labels[row]}, and the columns are 0 to {logits.shape[1] - 1}: give one for each "
            "class"
        )


def _class_names(
    class_names: Sequence[str] | None, samples: Any, outputs: Mapping[str, Numbers]
) -> Sequence[str] | None:
    """Return the class names, one for each column of the logits; None if nobody knows them."""
    known = samples.class_names if isinstance(samples, Dataset) else None
    class_names = None if class_names is None else several("class_names", class_names)
    if class_names is not None and known is not None and tuple(class_names) != known:
        raise ValueError(
            f"class_names are {listed(class_names)}; those of the samples are "
            f"{listed(known)}: leave class_names out"
        )
    names = class_names if known is None else known
    for what, table in outputs.items():
        columns = table.shape[1]
        names = [str(c) for c in range(columns)] if names is None else names
        if len(names) != columns:
            raise ValueError(
                f"{what} has {columns} columns for {len(names)} classes ({listed(names)})"
            )
    return names


def _of_options(logits: Numbers, data: Dataset) -> Numbers:
    """Set the logits of options that a question does not have to −inf."""
    if not isinstance(data, MCQDataset):
        return logits
    lacking = np.arange(logits.shape[1]) >= data.n_choices[:, None]
    return np.where(lacking, -np.inf, logits) if lacking.any() else logits


def _log_lira(values: Any, ids: NDArray[np.str_]) -> Floats:
    """Return one value for each sample. A Series is sorted by id."""
    if isinstance(values, pd.Series):
        values = _by_id(values, ids.tolist())
    array = _array("log_lira", values).astype(np.float64)
    if array.shape != ids.shape:
        raise ValueError(
            f"log_lira must be one value for each of {len(ids)} samples, but has "
            f"shape {array.shape}"
        )
    endless = np.isinf(array)
    if endless.any():
        raise ValueError(
            f"log_lira holds {int(endless.sum())} infinite values, the first in row "
            f"{int(endless.argmax())}: compute it in log space, with NaN for no value"
        )
    if np.isnan(array).all():
        raise ValueError("log_lira is NaN for every sample: leave it out")
    return array


def _by_id(values: pd.Series, ids: list[str]) -> Any:
    """Return a series in the order of the ids. A series without ids keeps its order."""
    if isinstance(values.index, pd.RangeIndex):
        return values.to_numpy()
    names = values.index.map(str)
    wrong = names[~names.isin(ids) | names.duplicated()]
    if len(wrong):
        raise ValueError(
            f"log_lira is indexed by {quoted(wrong[0])}, which is not a sample's id or occurs "
            "twice. Pass ids=, or an array in the order of the labels"
        )
    return pd.Series(to_numpy(values), names).reindex(ids).to_numpy()


def _check_class_order(what: str, values: Any, class_names: Sequence[str]) -> None:
    """Refuse columns that are named by the classes in another order: they are read by place."""
    if not isinstance(values, pd.DataFrame):
        return
    columns = [str(name) for name in values.columns]
    if columns != list(class_names) and sorted(columns) == sorted(class_names):
        raise ValueError(
            f"{what} has the columns {listed(columns)}, but the classes are in the order "
            f"{listed(class_names)}: pass class_names=list({what}.columns)"
        )


def _canaries(values: Any, n: int) -> NDArray[np.bool_] | None:
    if values is None:
        return None
    mask = checked_mask(_array("canaries", values, are_numbers=False), "canaries")
    if mask.shape != (n,):
        raise ValueError(f"canaries must be a mask over {n} samples, but has shape {mask.shape}")
    return mask


def _shadows(given: Mapping[str, Any], n: int) -> dict[str, Numbers]:
    """Return the arrays of shadow models, (n_shadows, n), all of one shape."""
    there, missing = ([x for x in _TRUTH if (x in given) is known] for known in (True, False))
    if not there:
        return {}
    if missing:
        raise ValueError(
            f"{there[0]} needs {missing[0]}=: log-LiRA compares the finished model's logits with "
            "shadow models. Pass final_logits=logits if these are the finished model's"
        )
    gaps = _array("shadow_gaps", given["shadow_gaps"])
    _check_models("shadow_gaps", gaps, n, "shadow")
    check_finite(gaps, "shadow_gaps", row="shadow model")
    members = checked_mask(
        _array("shadow_members", given["shadow_members"], are_numbers=False), "shadow_members"
    )
    _check_models("shadow_members", members, n, "shadow")
    if members.shape != gaps.shape:
        raise ValueError(
            "shadow_members and shadow_gaps must have the same shape, a row for each shadow model, "
            f"but have {members.shape} and {gaps.shape}"
        )
    return {"shadow_gaps": gaps.astype(np.float32, copy=False), "shadow_members": members}


def _references(gaps: Any, ids: NDArray[np.str_]) -> NDArray[np.float32]:
    """Return gaps of reference models; every sample needs one that never saw it."""
    table = _array("reference_gaps", gaps)
    _check_models("reference_gaps", table, len(ids), "reference")
    endless = np.isinf(table).any(axis=0)
    if endless.any():
        raise ValueError(
            f"reference_gaps holds infinite values for {int(endless.sum())} samples, the first is "
            f"{quoted(ids[endless.argmax()])}: pass NaN where a reference model saw a sample"
        )
    always = np.isnan(table).all(axis=0)
    if always.any():
        raise ValueError(
            f"reference_gaps is NaN in every row for {int(always.sum())} samples, the first is "
            f"{quoted(ids[always.argmax()])}: each needs a model that never saw it"
        )
    return table.astype(np.float32, copy=False)


def _check_models(what: str, array: Numbers, n: int, kind: str) -> None:
    if array.ndim == 2 and array.shape[1] == n:
        return
    turned = array.ndim == 2 and array.shape[0] == n
    raise ValueError(
        f"{what} must be (n_{kind}s, {n}), a row for each {kind} model, but has shape "
        f"{array.shape}" + (": transpose it" if turned else "")
    )


def _array(what: str, values: Any, *, are_numbers: bool = True) -> Numbers:
    """Return values as an array of real numbers on the CPU that nobody else can change."""
    check_unmasked(values)
    values = dense(values, what)
    try:
        array = real_numbers(values, what) if are_numbers else to_numpy(values)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{what} is not an array: its rows have different lengths") from None
    # in the order that it has: sums of another order end in other last digits
    return array.copy(order="K") if _is_changeable(array) else array


def _is_changeable(array: Numbers) -> bool:
    """Return whether someone who holds the same memory can change it.

    Kept scores of the old values would otherwise stand beside new ones of the changed values.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return True
        owner = owner.base
    # a memory map that was opened for reading, or bytes; a tensor's memory is its own
    return not isinstance(owner, bytes | mmap | None)


def _floating(array: Numbers) -> Numbers:
    wide = array.dtype in {np.dtype(np.float32), np.dtype(np.float64)}
    return array if wide else array.astype(np.float32)


def _check_rows(what: str, array: Numbers, n: int) -> None:
    if array.shape[0] != n:
        turned = array.ndim > 1 and array.shape[1] == n
        raise ValueError(
            f"{what} has {array.shape[0]} rows for {n} labels: its first axis must be the samples"
            + (", which stand on the second: transpose it" if turned else "")
        )


# the samples beside the arrays


def dataset_of(
    samples: Any, labels: Labels, ids: Texts, class_names: Texts, canaries: Mask | None
) -> Dataset:
    """A dataset of the samples; one of ids alone where there are none.

    Raises
    ------
    ValueError, TypeError
        If samples and labels don't fit each other, or the samples are of no known kind.
    """
    if samples is None:
        names = checked_ids(ids, len(labels))
        made: Dataset = WithheldDataset(
            ids=names,
            labels=labels,
            class_names=checked_class_names(class_names, labels),
            hashes=tuple(names.tolist()),
            hint="samples=…",
        )
    else:
        samples = to_numpy(samples) if is_tensor(samples) else samples
        if isinstance(samples, str | bytes | Mapping) or not hasattr(samples, "__len__"):
            raise TypeError(f"samples must be {_KINDS}, not {type(samples).__name__}")
        if len(samples) != len(labels):
            raise ValueError(f"{len(samples)} samples but {len(labels)} labels: give one for each")
        wrap = _checked_dataset if isinstance(samples, Dataset) else _dataset_around
        made = wrap(samples, labels, ids, class_names)
    if canaries is None:
        return made
    if made.canaries is not None and not np.array_equal(made.canaries, canaries):
        raise ValueError("the samples say which of them are canaries: leave canaries= out")
    return cast("Dataset", replace(cast("Any", made), canaries=canaries))


def _checked_dataset(samples: Dataset, labels: Labels, ids: Texts, _names: Texts) -> Dataset:
    other = np.flatnonzero(samples.labels != labels)
    if len(other):
        row = int(other[0])
        raise ValueError(
            f"labels and samples disagree on {len(other)} labels, the first in row {row}: "
            f"{labels[row]} here and {samples.labels[row]} there; give samples.with_labels(labels)"
        )
    checked_class_names(samples.class_names, labels)
    if ids is not None and list(ids) != samples.ids.tolist():
        raise ValueError("the samples have ids of their own, which differ: leave ids= out")
    return samples


def _dataset_around(samples: Any, labels: Labels, ids: Texts, class_names: Texts) -> Dataset:
    if isinstance(samples, np.ndarray) and samples.dtype.kind in "biuf":
        with warnings.catch_warnings():  # the check of the labels has said it
            warnings.filterwarnings("ignore", ".*never occur in the labels")
            return ImageDataset.from_arrays(samples, labels, class_names, ids)
    is_frame = isinstance(samples, pd.DataFrame)
    rows = list(samples.to_dict("records") if is_frame else samples)
    kind, own = kind_of(rows), None
    if all(isinstance(row, Mapping) and "id" in row for row in rows):
        own = [str(row["id"]) for row in rows]
    if is_frame and kind in (None, "withheld"):  # the rows of a table, to be shown
        columns, names = columns_to_show(samples), checked_class_names(class_names, labels)
        return TableDataset(checked_ids(ids or own, len(rows)), labels, names, columns=columns)
    other = next((row for row in rows if kind_of_sample(row) != kind), None)
    if kind not in ("text", "record", "question") or other is not None:
        named = type(rows[0] if other is None else other).__name__
        raise TypeError(f"samples holds {named}; give {_KINDS}")
    if kind == "question":
        return _questions(rows, labels, ids, class_names)
    texts = [value_of(row, "text") for row in rows] if kind == "record" else rows
    names = checked_class_names(class_names, labels)
    return TextDataset(checked_ids(ids or own, len(texts)), labels, names, texts=tuple(texts))


def _questions(rows: list[Any], labels: Labels, ids: Texts, class_names: Texts) -> MCQDataset:
    """Questions with these labels, whatever answers they carry."""
    named = [{**row, "answer": int(label)} for row, label in zip(rows, labels, strict=True)]
    if ids is not None:
        named = [{**row, "id": name} for row, name in zip(named, ids, strict=True)]
    data = MCQDataset.from_records(named, answers="index", equal_options="keep")
    if class_names is not None and len(class_names) != len(data.class_names):
        raise ValueError(
            f"the questions have up to {len(data.class_names)} options, which are their classes; "
            f"there are {len(class_names)} columns of logits, or class_names"
        )
    return data


# the arrays as files of a run directory


def kept_arrays(
    given: GivenArrays, path: str | os.PathLike[str] | None, seed: int
) -> tuple[Evidence, RunDirectory | None]:
    """Return the evidence in arrays and its folder; with a path, keep them for `Audit.open`.

    Raises
    ------
    ValueError
        If the folder holds the run of a model, or decisions on other samples.
    """
    seed = whole_number("seed", seed)
    if path is None:
        return evidence_of(given, None, seed), None
    run = RunDirectory(path)
    if run.has_file(MANIFEST) and not is_of_arrays(run):
        raise ValueError(f"{run.path} holds a run: choose another folder for your arrays")
    manifest = {
        "kind": ARRAYS,
        "seed": seed,
        "layers": list(given.layers),
        "data": {"n": len(given.data), "class_names": list(given.data.class_names)},
        "ids": given.data.ids.tolist(),
        "content": list(given.data.content_hashes()),
    }
    stored = read_arrays_manifest(run) if run.has_file(MANIFEST) else None
    kept = dict(run.read_tensors(_FILE)) if run.has(_FILE) else {}
    other = "labels" in kept and not _equal(kept["labels"], given.data.labels)
    if stored is not None and (other or stored["ids"] != manifest["ids"]):
        raise ValueError(
            f"{run.path} holds decisions on other samples (ids or labels differ): choose another "
            "folder"
        )
    if stored is not None and isinstance(given.data, WithheldDataset):
        manifest["content"] = stored["content"]  # the samples were given before
    if stored is None or any(stored.get(key) != value for key, value in manifest.items()):
        run.write_manifest(manifest)
        run.forget(SCORES)
    run.hold(read_arrays_manifest(run))
    _keep(run, given.as_files, kept)
    return evidence_of(given, run, seed), run


def opened_arrays(run: RunDirectory, data: Any = None) -> tuple[Evidence, RunDirectory]:
    """Open what `kept_arrays` kept.

    Parameters
    ----------
    run : RunDirectory
        Its folder.
    data : Dataset, optional
        The samples, to show them; ids are shown without.

    Raises
    ------
    StoreError
        If a file is missing or broken, or the data are not those of the arrays.
    ValueError
        If the data are not a dataset.
    """
    manifest = read_arrays_manifest(run)
    run.hold(manifest)
    if data is not None:
        _check_data(run, manifest, data)
    kept = run.read_tensors(_FILE)
    layers = {name: kept[LAYER + name] for name in manifest["layers"]}
    names = manifest["ids"], manifest["data"]["class_names"]
    canaries = np.array(kept["canaries"]) if "canaries" in kept else None
    arrays: dict[str, Any] = {name: np.array(kept[name]) for name in OPTIONAL if name in kept}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said when the arrays were given
            given = check_arrays(kept["labels"], data, *names, canaries, layers or None, **arrays)
    except (ValueError, TypeError) as error:
        wrong = "is broken" if data is None else "does not fit these data"
        raise StoreError(f"{run.path / _FILE}.safetensors {wrong}: {error}") from None
    if isinstance(given.data, WithheldDataset):
        given = replace(given, data=replace(given.data, hint="data=…"))
    return evidence_of(given, run, manifest["seed"]), run


def n_given_shadows(run: RunDirectory) -> int:
    """Return the number of shadow models whose gaps were given."""
    kept = run.read_tensors(_FILE)
    return len(kept["shadow_gaps"]) if "shadow_gaps" in kept else 0


def _keep(
    run: RunDirectory, arrays: dict[str, NDArray[Any]], kept: Mapping[str, NDArray[Any]]
) -> None:
    """Write the arrays, unless the very same are there; warn if they replace others."""
    others = [name for name in kept if name not in arrays or not _equal(kept[name], arrays[name])]
    if others:
        said = [name.replace(LAYER, "representations of layer ", 1) for name in others]
        warn_user(
            f"{run.path} held others of these arrays: {listed(said)}. They are replaced, and "
            "scores are computed again. Decisions on the samples stay"
        )
        run.forget(SCORES)
    if others or kept.keys() != arrays.keys() or not run.has(_FILE):
        run.write_tensors(_FILE, arrays)


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _check_data(run: RunDirectory, manifest: dict[str, Any], data: Any) -> None:
    if not isinstance(data, Dataset):
        raise ValueError(  # noqa: TRY004 - a path is right elsewhere
            f"the arrays in {run.path} were not made from a path: pass the dataset itself as data="
        )
    known = manifest["content"] != manifest["ids"]  # the arrays came with their samples
    content = list(data.content_hashes()) if known else manifest["content"]
    found = {"ids": data.ids.tolist(), "content": content, "data": manifest["data"]}
    if apart := identity.data_apart(manifest, found):
        raise ValueError(f"these are not the data of {run.path}: {apart}")
