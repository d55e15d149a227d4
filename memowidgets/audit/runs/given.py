"""What a user passes to `Audit.from_arrays`: its checks, the evidence in it, and its files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import mmap
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.audit.evidence import (
    INSTEAD,
    LOGITS,
    OF_ARRAYS,
    REPRESENTATIONS,
    TRACE,
    Arrays,
    Checkpoint,
    Evidence,
    Models,
)
from memowidgets.audit.names import GIVEN, Names
from memowidgets.audit.run import ScoreKeeper
from memowidgets.audit.runs.identity import (
    ARRAYS,
    data_apart,
    is_of_arrays,
    read_arrays_manifest,
)
from memowidgets.checks import (
    check_finite,
    check_same_order,
    dense,
    id_text,
    is_tensor,
    looks_like_probabilities,
    numbered_labels,
    real_numbers,
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
    ID,
    checked_class_names,
    checked_labels,
    kind_of,
    kind_of_sample,
    named_ids,
    value_of,
    warn_of_absent,
)
from memowidgets.data.rows import check_once, checked_text
from memowidgets.data.tables import columns_to_show
from memowidgets.files import digest, digest_of_arrays
from memowidgets.memorization.gaps import checked_mask, note_on_order
from memowidgets.metrics import logit_gap, loss
from memowidgets.metrics.logits import order_warning
from memowidgets.store import MANIFEST, Absent, RunDirectory, StoreError
from memowidgets.training.checkpoint import LAYER, Record
from memowidgets.training.origin import Origin
from memowidgets.training.shadows import Shadows
from memowidgets.vocabulary import Note, listed, quoted, verb

Numbers = NDArray[Any]
Labels = NDArray[np.int64]
Texts = Sequence[str] | None
Reader = Callable[[Any, str], Numbers]
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
_SHADOWS = ("shadow_gaps", "shadow_members", "final_logits")
_OF_MODELS = ("shadow_gaps", "shadow_members", "reference_gaps")  # a row for each model
OPTIONAL = ("logits", "log_lira", "reference_gaps", *_SHADOWS)
_OUTPUTS = ("logits", "probabilities", "final_logits")
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
            # `Audit.representation` and others give them away
            array.flags.writeable = False

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
    ids: object,
    class_names: Sequence[str] | None,
    canaries: object,
    representations: object,
    **arrays: Any,
) -> GivenArrays:
    """Return the checked arrays; `arrays` are probabilities, and those of `OPTIONAL`.

    Raises
    ------
    ValueError, TypeError
        As `Audit.from_arrays` says.
    """
    given = {name: values for name, values in arrays.items() if values is not None}
    early = [name for name in ("logits", "probabilities") if name in given]
    by_layer = (
        representations
        if isinstance(representations, Mapping)
        else {"": representations}
    )
    if not early and not any(values is not None for values in by_layer.values()):
        raise ValueError(
            "there is nothing to score: pass representations=, logits=, or both; probabilities= "
            "stands for logits="
        )
    if len(early) > 1:
        raise ValueError(
            "pass logits= or probabilities=, not both: one follows from the other"
        )
    own = samples.class_names if isinstance(samples, Dataset) else None
    if own is not None and class_names is not None and tuple(class_names) != own:
        raise ValueError(
            f"the samples have the classes {listed(own)}: leave class_names out"
        )
    numbers, names = numbered_labels(labels, class_names if own is None else own)
    numbers = checked_labels(numbers, names)
    n = len(numbers)
    outputs = {
        name: _logits(name, given[name], n) for name in _OUTPUTS if name in given
    }
    if names is None and outputs:
        names = [str(column) for column in range(next(iter(outputs.values())).shape[1])]
    if own is None and not outputs:
        warn_of_absent(numbers, checked_class_names(names, numbers))
    named = {
        "samples": samples,
        "labels": labels,
        "canaries": canaries,
        **{_of_layer(key): values for key, values in by_layer.items()},
        **{name: given[name] for name in outputs},
        **{
            f"{x}.T": given[x].T
            for x in _OF_MODELS
            if isinstance(given.get(x), pd.DataFrame)
        },
    }
    ids = _ids_in(samples) if ids is None else ids
    check_same_order(ids=ids, **named)
    data = _dataset(samples, numbers, ids, names, named.values())
    data = _with_canaries(data, canaries)
    found = _shadows(given, n)
    for name, table in outputs.items():
        _check_classes(name, given[name], table, data.class_names)
        kept = found["logits" if name in early else name] = _of_options(table, data)
        # says what is wrong with an option that is missing
        logit_gap(kept, data.labels)
        if disorder := order_warning(name, kept, data.labels):
            warn_user(disorder)
    if "log_lira" in given:
        found["log_lira"] = _log_lira(given["log_lira"], data)
    if "reference_gaps" in given:
        found["reference_gaps"] = _references(given, data.ids)
    layers = {} if representations is None else _layers(representations, n)
    return GivenArrays(data, layers, found)


def evidence_of(
    given: GivenArrays, run: RunDirectory | None, seed: int, scores: ScoreKeeper
) -> Evidence:
    """Return the evidence in arrays of n samples, all of which are members.

    There is one checkpoint, ``"given"``, which is ``"prediction"`` and ``"final"`` too.

    Parameters
    ----------
    given : GivenArrays
        The arrays, checked.
    run : RunDirectory or None
        Where they lie, if it is not in memory alone.
    seed : int
        Seed of PSMI's directions.
    scores : ScoreKeeper
        Scores that were computed before.
    """
    data, arrays, rows = given.data, given.arrays, np.arange(len(given.data))
    # as of a forward pass
    made = {LAYER + name: values for name, values in given.layers.items()}
    median = mean = accuracy = float("nan")
    logits, final = arrays.get("logits"), arrays.get("final_logits")
    n_options = len(data.class_names)
    if logits is not None:
        made |= {"logits": logits, "losses": -loss(logits, data.labels)}
        mean, median = float(made["losses"].mean()), float(np.median(made["losses"]))
        accuracy = float((logits.argmax(axis=1) == data.labels).mean())
        # −inf: no such option
        n_options = int(np.median(np.isfinite(logits).sum(axis=1)))
    of = "" if run is None else str(run.manifest["arrays"])
    record = Record(GIVEN, float("nan"), 1, median, mean, accuracy, None, None, "", of)
    shadows, asked = arrays.get("shadow_gaps"), arrays.get("reference_gaps")
    gaps = None if final is None else logit_gap(final, data.labels)
    notes = []
    if shadows is not None and gaps is not None:
        notes.append(note_on_order(shadows, arrays["shadow_members"], gaps))
    if asked is not None:
        notes.append(_note_on_copies(data, asked))
    absent = {TRACE: _ONE_CHECKPOINT}
    absent |= {LOGITS: _NO_LOGITS} if logits is None else {}
    absent |= {} if given.layers else {REPRESENTATIONS: _NO_LAYERS}
    return Evidence(
        path="arrays in memory" if run is None else str(run.path),
        manifest={"seed": seed, "layers": list(given.layers)},
        data=data,
        trained_labels=data.labels,
        pool=rows,
        member_rows=rows,
        held_out_labels=np.empty(0, dtype=np.int64),
        n_options=n_options,
        names=Names(tuple(given.layers), (record,), last_step=record.step),
        checkpoints={
            GIVEN: Checkpoint(
                record,
                Arrays(
                    made,
                    lambda name: _NO_LAYERS if LAYER in name else _NO_LOGITS,
                ),
                Arrays(None, lambda _: _NO_LOGITS),
                gaps=gaps,
            )
        },
        shadows=Models("", _VALUES_ALONE if "log_lira" in arrays else _NO_TRUTH)
        if shadows is None
        else _models(arrays["shadow_members"], shadows),
        references=Models("", _NO_REFERENCES)
        if asked is None
        else _models(np.isnan(asked), asked),
        settings=Absent("an audit of arrays does not know how the model was trained"),
        scores=scores,
        given={"labels": data.labels, **arrays},
        general_notes=tuple(note for note in notes if note is not None),
        origins=(Origin("Its owner", recorder="from_arrays"),),
        absent=absent,
    )


def _models(members: Numbers, gaps: Numbers) -> Models:
    """Return models that were given, by their masks and gaps, both (n_models, n)."""
    kept = Shadows(members, gaps, np.arange(len(gaps)))
    inside = members.sum(axis=0)
    suffice = bool(((inside >= 2) & (len(gaps) - inside >= 2)).any())
    none = Absent(OF_ARRAYS.format("take a shadow model as its target"), INSTEAD)
    return Models("", none, {GIVEN: kept}, tuple(range(len(gaps))), suffice=suffice)


def _layers(representations: Any, n: int) -> dict[str, Numbers]:
    """Return the representations by layer name. Layers with integer names are sorted."""
    if not isinstance(representations, Mapping):
        return {ONLY: _representation(_of_layer(""), representations, n)}
    keys = list(representations)
    if all(isinstance(key, int | np.integer) for key in keys):
        keys = sorted(keys)
    return {
        str(key): _representation(_of_layer(key), representations[key], n)
        for key in keys
    }


def _of_layer(key: Any) -> str:
    return f"representations[{key!r}]" if key != "" else "representations"


def _representation(what: str, values: Any, n: int) -> Numbers:
    array = _table(what, values, n)
    if array.ndim < 2 or 0 in array.shape:
        raise ValueError(
            f"{what} must be (n_samples, n_features), but has shape {array.shape}: a single "
            "feature is x[:, None]"
        )
    flat = array.reshape(n, -1)
    check_finite(flat, what)
    return flat


def _logits(what: str, values: Any, n: int) -> Numbers:
    """Return logits, (n, n_classes), also of probabilities: their logarithms are logits.

    One value for each sample is that of the second of two classes.
    """
    array = _table(what, values, n)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(
            f"{what} must be (n_samples, n_classes), or (n_samples,) for the second of two "
            f"classes, but has shape {array.shape}"
        )
    shares = np.hstack([1 - array, array]) if array.shape[1] == 1 else array
    if what == "probabilities":
        return _log_probabilities(shares)
    check_finite(array, what, allowed=-np.inf)
    if looks_like_probabilities(shares):
        warn_user(
            f"{what} look like probabilities, between 0 and 1 with a sum of 1: pass "
            + (
                "their logarithms"
                if what == "final_logits"
                else "them as probabilities= instead"
            )
        )
    return np.hstack([0 * array, array]) if array.shape[1] == 1 else array


def _log_probabilities(shares: Numbers) -> Numbers:
    check_finite(shares, "probabilities")
    sums = shares.sum(axis=1, dtype=np.float64)
    wrong = (shares < 0).any(axis=1) | (np.abs(sums - 1) > _SUMS)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"probabilities must be from 0 to 1 and sum to 1 in each row, but {int(wrong.sum())} "
            f"rows do not, the first is row {row} with a sum of {sums[row]:.4g}: pass those of "
            "all classes; log-probabilities and logits go into logits="
        )
    smallest = np.finfo(shares.dtype).eps  # as in scikit-learn's log_loss
    zero = (shares < smallest).any(axis=1)
    if zero.any():
        warn_user(
            f"probabilities are 0 or 1 in {int(zero.sum())} of {len(shares)} rows: their logarithm "
            f"is taken of {smallest:.1g} instead of 0, so scores of such samples are equal or "
            "nearly so"
        )
    logarithms: Numbers = np.log(np.maximum(shares, smallest, dtype=np.float64))
    return logarithms


def _of_options(logits: Numbers, data: Dataset) -> Numbers:
    """Set the logits of options that a question does not have to −inf."""
    if not isinstance(data, MCQDataset):
        return logits
    lacking = np.arange(logits.shape[1]) >= data.n_choices[:, None]
    return np.where(lacking, -np.inf, logits) if lacking.any() else logits


def _check_classes(
    what: str, values: Any, table: Numbers, class_names: Sequence[str]
) -> None:
    """Refuse columns that are not the classes, or that are named by them in another order."""
    if table.shape[1] != len(class_names):
        raise ValueError(
            f"{what} has {table.shape[1]} columns for {len(class_names)} classes "
            f"({listed(class_names)})"
        )
    columns = list(map(str, values.columns)) if isinstance(values, pd.DataFrame) else []
    if columns != list(class_names) and sorted(columns) == sorted(class_names):
        raise ValueError(
            f"{what} has the columns {listed(columns)}, but the classes are in the order "
            f"{listed(class_names)}: pass class_names=list({what}.columns)"
        )


def _log_lira(values: Any, data: Dataset) -> Numbers:
    """Return one value for each sample. A Series is sorted by id, if it has ids."""
    if isinstance(values, pd.Series) and isinstance(values.index, pd.RangeIndex):
        check_same_order(ids=data.index, log_lira=values)
    elif isinstance(values, pd.Series):
        ids, names = data.ids.tolist(), pd.Index(map(id_text, values.index), dtype=str)
        wrong = names[~names.isin(ids) | names.duplicated()]
        if len(wrong):
            raise ValueError(
                f"log_lira is indexed by {quoted(wrong[0])}, which is not a sample's id or occurs "
                "twice. Pass ids=, or an array in the order of the labels"
            )
        values = pd.Series(to_numpy(values, "log_lira"), names).reindex(ids)
    array = _array("log_lira", values).astype(np.float64)
    if array.shape != (len(data),):
        raise ValueError(
            f"log_lira must be one value for each of {len(data)} samples, but has "
            f"shape {array.shape}"
        )
    _check_finite_or_nan(
        "log_lira", array, "compute it in log space, with NaN for no value"
    )
    if np.isnan(array).all():
        raise ValueError("log_lira is NaN for every sample: leave it out")
    return array


def _with_canaries(data: Dataset, canaries: Any) -> Dataset:
    if canaries is None:
        return data
    mask = _array("canaries", canaries, checked_mask)
    if mask.shape != (len(data),):
        raise ValueError(
            f"canaries must be a mask over {len(data)} samples, not {mask.shape}"
        )
    return cast("Dataset", replace(cast("Any", data), canaries=mask))


def _shadows(given: Mapping[str, Any], n: int) -> dict[str, Numbers]:
    """Return the gaps and masks of shadow models, (n_shadows, n)."""
    there, missing = (
        [x for x in _SHADOWS if (x in given) is known] for known in (True, False)
    )
    if not there:
        return {}
    if missing:
        raise ValueError(
            f"{there[0]} needs {missing[0]}=: log-LiRA compares the finished model's logits with "
            "shadow models. Pass final_logits=logits if these are the finished model's"
        )
    gaps = _of_models("shadow_gaps", given, n)
    check_finite(gaps, "shadow_gaps", row="shadow model")
    members = _of_models("shadow_members", given, n, checked_mask)
    if members.shape != gaps.shape:
        raise ValueError(
            "shadow_members and shadow_gaps must have the same shape, a row for each shadow model, "
            f"but have {members.shape} and {gaps.shape}"
        )
    return {
        "shadow_gaps": gaps.astype(np.float32, copy=False),
        "shadow_members": members,
    }


def _references(given: Mapping[str, Any], ids: NDArray[np.str_]) -> Numbers:
    """Return gaps of reference models; every sample needs one that never saw it."""
    table = _of_models("reference_gaps", given, len(ids))
    _check_finite_or_nan("reference_gaps", table, "pass NaN where a model saw a sample")
    always = np.isnan(table).all(axis=0)
    if always.any():
        raise ValueError(
            f"reference_gaps is NaN in every row for {int(always.sum())} samples, the first is "
            f"{quoted(ids[always.argmax()])}: each needs a model that never saw it"
        )
    return table.astype(np.float32, copy=False)


def _note_on_copies(data: Dataset, gaps: Numbers) -> Note | None:
    """Say which samples a reference model that trained on a copy of them was asked about."""
    _, groups = np.unique(data.content_hashes(), return_inverse=True)
    saw = np.isnan(gaps)
    seen = np.zeros((len(gaps), groups.max() + 1), dtype=np.bool_)
    for model, trained_on in zip(seen, saw, strict=True):
        model[groups[trained_on]] = True
    asked = (seen[:, groups] & ~saw).any(axis=0)
    if not asked.any():
        return None
    n = int(asked.sum())
    have = verb(n, "sample has", "samples have")
    return Note(
        "copies across folds",
        f"{n} {have} a copy that a model of reference_gaps trained on, so that gaps there, and the "
        "score “Reference models”, are too high: keep copies in one fold, with "
        "data.content_hashes() as groups",
        n=n,
    )


def _check_finite_or_nan(what: str, array: Numbers, remedy: str) -> None:
    check_finite(np.where(np.isnan(array), 0, array), what, remedy)


def _of_models(
    what: str, given: Mapping[str, Any], n: int, read: Reader = real_numbers
) -> Numbers:
    array = _array(what, given[what], read)
    if array.ndim != 2 or array.shape[1] != n:
        raise ValueError(
            f"{what} must be (n_models, {n}), a row for each model, but has shape {array.shape}"
        )
    return array


def _table(what: str, values: Any, n: int) -> Numbers:
    """Return an array of floating numbers with a row for each sample."""
    array = _array(what, values)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32)
    if array.shape[:1] != (n,):
        raise ValueError(
            f"{what} has shape {array.shape} for {n} labels: its first axis must be the samples"
        )
    return array


def _array(what: str, values: Any, read: Reader = real_numbers) -> Numbers:
    """Return values as an array on the CPU that nobody else can change.

    Kept scores of the old values would otherwise stand beside new ones of the changed values.
    """
    owner: Any = read(dense(values, what), what)
    array: Numbers = owner
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    # a memory map that was opened for reading, or bytes; a tensor's memory is its own
    is_safe = isinstance(owner, bytes | mmap | None)
    # in the order that it has: sums of another order end in other last digits
    return array if is_safe else array.copy(order="K")


# the samples beside the arrays


def _ids_in(samples: Any) -> Any:
    """Return the ids that a frame or records have beside their values; None without."""
    if isinstance(samples, pd.DataFrame):
        return samples.get(ID)
    rows = samples if isinstance(samples, list | tuple) else []
    have = [isinstance(row, Mapping) and ID in row for row in rows]
    return [row[ID] for row in rows] if have and all(have) else None


def _dataset(
    samples: Any, labels: Labels, ids: Any, class_names: Texts, named: Iterable[object]
) -> Dataset:
    """Return a dataset of the samples; one of ids alone where there are none.

    Without `ids`, an index of what is `named` has the names of the samples.
    """
    samples = to_numpy(samples, "samples") if is_tensor(samples) else samples
    if samples is not None:
        if isinstance(samples, str | bytes | Mapping) or not hasattr(
            samples, "__len__"
        ):
            raise TypeError(f"samples must be {_KINDS}, not {type(samples).__name__}")
        if len(samples) != len(labels):
            raise ValueError(
                f"{len(samples)} samples but {len(labels)} labels: give one for each"
            )
    if not isinstance(samples, Dataset):
        names, own = named_ids(ids, len(labels), *named)
        made = _dataset_around(samples, labels, names, class_names)
        return cast("Dataset", replace(cast("Any", made), own_ids=own))
    other = np.flatnonzero(samples.labels != labels)
    if len(other):
        row = int(other[0])
        raise ValueError(
            f"labels and samples disagree on {len(other)} labels, the first in row {row}: "
            f"{labels[row]} here and {samples.labels[row]} there; give samples.with_labels(labels)"
        )
    checked_class_names(samples.class_names, labels)
    if ids is not None and list(map(id_text, ids)) != samples.ids.tolist():
        raise ValueError(
            "the samples have ids of their own, which differ: leave ids= out"
        )
    return samples


def _dataset_around(
    samples: Any, labels: Labels, ids: NDArray[np.str_], class_names: Texts
) -> Dataset:
    if samples is None:
        return WithheldDataset(
            ids=ids,
            labels=labels,
            class_names=checked_class_names(class_names, labels),
            hashes=tuple(ids.tolist()),
            hint="samples=…",
        )
    kind = kind_of(samples) if isinstance(samples, np.ndarray) else None
    if kind == "pixels":
        with warnings.catch_warnings():  # the check of the labels has said it
            warnings.filterwarnings("ignore", ".*never occur in the labels")
            return ImageDataset.from_arrays(samples, labels, class_names, ids)
    is_frame = isinstance(samples, pd.DataFrame)
    if is_frame:
        check_once(list(map(str, samples.columns)), "samples")
    rows = list(samples.to_dict("records") if is_frame else samples)
    kind = kind_of(rows)
    names = checked_class_names(class_names, labels)
    if is_frame and kind in (None, "withheld"):
        columns = columns_to_show(samples)
        return TableDataset(ids, labels, names, columns=columns, shown=tuple(columns))
    is_known = kind in ("text", "record", "question")
    for number, row in enumerate(rows):
        if not is_known or kind_of_sample(row) != kind:
            raise TypeError(
                f"row {number} of samples is of type {type(row).__name__}; give {_KINDS}"
            )
    if kind == "question":  # with these labels, whatever answers they carry
        own = zip(rows, labels.tolist(), ids.tolist(), strict=True)
        asked = [{**row, "answer": label, "id": name} for row, label, name in own]
        return MCQDataset.from_records(asked, answers="index", equal_options="keep")
    texts = [value_of(row, "text") for row in rows] if kind == "record" else rows
    for number, text in enumerate(texts):
        is_blank = isinstance(text, str) and not text.strip()
        if not is_blank:  # which can be shown, though no file of texts may have it
            checked_text(text, "text", f"row {number} of samples")
    return TextDataset(ids, labels, names, texts=tuple(map(str, texts)))


# the arrays as files of a run directory


def kept_arrays(
    given: GivenArrays, path: str | os.PathLike[str] | None, seed: int
) -> tuple[Evidence, RunDirectory | None, ScoreKeeper]:
    """Return the evidence in arrays, its folder and its scores.

    With a path, the arrays are kept there for `Audit.open`.

    Raises
    ------
    ValueError
        If the folder holds the run of a model, or decisions on other samples.
    """
    seed = whole_number("seed", seed)
    if path is None:
        return _with_warnings(given, None, seed)
    run, files = RunDirectory(path), given.as_files
    stored = None
    if run.has_file(MANIFEST):
        if not is_of_arrays(run):
            raise ValueError(
                f"{run.path} holds a run: choose another folder for your arrays"
            )
        stored = read_arrays_manifest(run)
    classes, labels = list(given.data.class_names), digest(given.data.labels.tolist())
    manifest = {
        "kind": ARRAYS,
        "seed": seed,
        "layers": list(given.layers),
        "data": {"class_names": classes, "labels": labels},
        "ids": given.data.ids.tolist(),
        "content": list(given.data.content_hashes()),
        "arrays": digest_of_arrays(files),
    }
    if stored is not None:
        if any(stored[part] != manifest[part] for part in ("ids", "data")):
            raise ValueError(
                f"{run.path} holds decisions on other samples (ids, labels or classes differ): "
                "choose another folder"
            )
        if isinstance(given.data, WithheldDataset):
            manifest["content"] = stored["content"]  # the samples were given before
    if stored is None or any(stored[key] != value for key, value in manifest.items()):
        run.write_manifest(manifest)  # now the arrays of before belong to another run
        run.forget(SCORES)
    run.hold(read_arrays_manifest(run))
    if not run.has(_FILE):
        run.write_tensors(_FILE, files)
    return _with_warnings(given, run, seed)


def _with_warnings(
    given: GivenArrays, run: RunDirectory | None, seed: int
) -> tuple[Evidence, RunDirectory | None, ScoreKeeper]:
    scores = ScoreKeeper(run)
    evidence = evidence_of(given, run, seed, scores)
    for note in evidence.general_notes:
        warn_user(note)
    return evidence, run, scores


def opened_arrays(
    run: RunDirectory, data: Any = None
) -> tuple[Evidence, RunDirectory, ScoreKeeper]:
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
    if data is not None and not isinstance(data, Dataset):
        raise TypeError(f"data must be a dataset of mw.data, not {type(data).__name__}")
    if data is not None:
        # the arrays came with their samples
        known = manifest["content"] != manifest["ids"]
        content = data.content_hashes() if known else manifest["content"]
        found = {"ids": data.ids.tolist(), "content": content, "data": manifest["data"]}
        if apart := data_apart(manifest, found):
            raise ValueError(f"these are not the data of {run.path}: {apart}")
    kept = run.read_tensors(_FILE)
    layers = {name: kept[LAYER + name] for name in manifest["layers"]}
    names = manifest["ids"], manifest["data"]["class_names"]
    canaries = np.array(kept["canaries"]) if "canaries" in kept else None
    arrays: dict[str, Any] = {
        name: np.array(kept[name]) for name in OPTIONAL if name in kept
    }
    try:
        with warnings.catch_warnings():
            # said when the arrays were given
            warnings.simplefilter("ignore", UserWarning)
            given = check_arrays(
                kept["labels"], data, *names, canaries, layers or None, **arrays
            )
    except (ValueError, TypeError) as error:
        wrong = "is broken" if data is None else "does not fit these data"
        raise StoreError(f"{run.path / _FILE}.safetensors {wrong}: {error}") from None
    if isinstance(given.data, WithheldDataset):
        given = replace(given, data=replace(given.data, hint="data=…"))
    scores = ScoreKeeper(run)
    return evidence_of(given, run, manifest["seed"], scores), run, scores


def n_given_shadows(run: RunDirectory) -> int:
    """Return the number of shadow models whose gaps were given."""
    kept = run.read_tensors(_FILE)
    return len(kept["shadow_gaps"]) if "shadow_gaps" in kept else 0
