"""Published benchmarks, from the hub or from their authors' own files: questions, CIFAR-10."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memowidgets.data.dataset import checked_ids
from memowidgets.data.images import ImageDataset
from memowidgets.data.mcq import MCQDataset
from memowidgets.data.pictures import decoded, open_tree, read_classes
from memowidgets.data.rows import (
    Rows,
    described,
    read_csv,
    read_jsonl,
    read_parquet,
    rows_of_records,
)
from memowidgets.files import checked_path
from memowidgets.network import check_pinned, hub_folder
from memowidgets.visible import quoted

_SUBJECTS_BY_FIELD: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("mmlu.json").read_text("utf-8")
)
MMLU_FIELDS = tuple(_SUBJECTS_BY_FIELD)
MMLU_SUBJECTS = {
    subject: name for name, subjects in _SUBJECTS_BY_FIELD.items() for subject in subjects
}


def fetch_mcq(
    name: str,
    split: str = "test",
    source: str | Path = "hub",
    template: str | Sequence[str] | None = None,
    revision: str | None = None,
) -> MCQDataset:
    r"""Load a published set of multiple-choice questions.

    Parameters
    ----------
    name : str
        One of ``"mmlu"``; ``"mmlu-field"`` (MMLU's questions, with four fields of knowledge as
        options); ``"arc-challenge"``; ``"arc-easy"``; ``"ethics"`` (its commonsense part, with
        "not wrong" and "wrong" as options); ``"openbookqa"``; ``"commonsenseqa"``.
    split : str
        ``"train"``, ``"validation"`` or ``"test"``, if they exist. MMLU also has ``"dev"`` and
        ``"auxiliary_train"``, and ETHICS has ``"test-hard"``. Several are joined by a plus, as in
        ``"train+test"``, and then each id begins with its split.
    source : str or Path
        ``"hub"`` downloads through `huggingface_hub`, which keeps its own copies; no code of a
        repository is ever run. A path is either a file, which is then the split, or a folder with
        the files of the authors.
    template : str or sequence of str, optional
        As in `MCQDataset.from_records`.
    revision : str, optional
        Branch, tag or commit on the hub. By default the newest. Its commit is recorded, so that a
        run loads the same questions again after the repository has changed.

    Returns
    -------
    MCQDataset
        Questions with the attributes that their authors give; for MMLU ``subject`` and ``field``.
        Questions with two equal options are kept.

    Raises
    ------
    ValueError
        If name, split or revision is unknown, a file is not what its authors publish, or its
        answers are not published. The message names file and line.
    FileNotFoundError
        If there is no such path, or no file of the split in it.
    ConnectionError
        If the hub cannot be reached, or answers with something else.
    ImportError
        If a library for the hub, or for its Parquet files, is missing.

    Notes
    -----
    MMLU: Hendrycks et al., 2021. ARC: Clark et al., 2018. ETHICS: Hendrycks et al., 2021.
    OpenBookQA: Mihaylov et al., 2018. CommonsenseQA: Talmor et al., 2019.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "astronomy_test.csv"
    ...     _ = path.write_text("Which star?,a,b,c,d,B\nWhich moon?,a,b,c,d,D\n", encoding="utf-8")
    ...     data = fetch_mcq("mmlu", source=folder)
    >>> data
    MCQDataset(2 questions, 4 options)
    >>> data[0].attributes
    {'subject': 'astronomy', 'field': 'STEM'}
    """
    if name not in BENCHMARKS:
        raise ValueError(f"unknown benchmark {name!r}; valid: {', '.join(map(repr, BENCHMARKS))}")
    benchmark = BENCHMARKS[name]
    check_pinned(source, revision)
    files, commit = _files(benchmark, name, split, source, revision)
    questions, places, counter = [], [], Counter[tuple[str, str]]()
    rows = (
        (part, *row)
        for part, some in files.items()
        for file in some
        for row in benchmark.read_file(file).records()
    )
    for part, place, fields in rows:  # one without an id is numbered, by subject for MMLU
        group = str(fields.get("subject") or part) if name.startswith("mmlu") else part
        own = fields.get("id") or f"{group}/{counter[part, group]}"
        counter[part, group] += 1
        is_named = len(files) == 1 or str(own).startswith(f"{part}/")
        questions.append(benchmark.question({**fields, "id": own if is_named else f"{part}/{own}"}))
        places.append(place)
    data = MCQDataset.from_records(
        rows_of_records(questions, places, f"{name} ({source})"),
        equal_options="keep",
        columns=benchmark.columns,
        choices=benchmark.choices,
    )
    if name == "mmlu-field":
        data = data.relabel(by="field", options=MMLU_FIELDS)
    arguments: dict[str, Any] = {"name": name, "split": split, "source": str(source)}
    if commit is not None:
        arguments["revision"] = commit
    if template is not None:
        data = data.with_template(template)
        arguments["template"] = template
    return data.with_source("fetch_mcq", **arguments)


def _files(
    benchmark: Benchmark, name: str, split: str, source: str | Path, revision: str | None
) -> tuple[dict[str, list[Path]], str | None]:
    """Return the files of each requested split, and the hub's commit."""
    parts, is_hub, commit = split.split("+"), str(source) == "hub", None
    folder = Path() if is_hub else checked_path(source)
    if folder.is_file():
        if len(parts) > 1:
            raise ValueError(f"{source} is one file, so it is one split; {split!r} names several")
        return {split: [folder]}, None
    valid = [known for known, one in benchmark.splits.items() if one.hub or not is_hub]
    for part in parts:
        if part not in valid:
            raise ValueError(
                f"unknown split {part!r} of {name!r}; valid: {', '.join(map(repr, valid))}"
            )
    if is_hub:
        patterns = [pattern for part in parts for pattern in benchmark.hub_files(part)]
        at = benchmark.revision if revision is None else revision
        folder, commit = hub_folder(benchmark.repository, at, patterns)
    elif not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a file or folder")
    return {part: benchmark.files_in(folder, part) for part in parts}, commit


class Split(NamedTuple):
    """One split of a benchmark.

    Attributes
    ----------
    hub : str or None
        Name of the split on the hub. None if it is not there.
    files : tuple of str
        Patterns of its files in a folder of the authors' files. The first that matches any file is
        used.
    """

    hub: str | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class Benchmark:
    """Published set of questions.

    Attributes
    ----------
    repository, folder : str
        Repository on the hub, and the folder of the Parquet files in it.
    splits : dict of str to Split
        Splits by name.
    readers : dict of str to callable
        Functions that read the records of a file, by its suffix.
    columns, choices
        As in `MCQDataset.from_records`.
    question : callable
        Function that brings the fields of a record into these columns.
    revision : str or None
        Revision of the repository. None means the newest.
    """

    repository: str
    folder: str
    splits: Mapping[str, Split]
    readers: Mapping[str, Callable[[Path], Rows]]
    columns: Mapping[str, str] | None = None
    choices: Sequence[str] | None = None
    question: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    revision: str | None = None

    def hub_files(self, split: str) -> tuple[str, str]:
        """Return patterns of a split's files in the repository, for both of its layouts."""
        name = self.splits[split].hub
        return f"{self.folder}/{name}-*.parquet", f"{self.folder}/{name}/*.parquet"

    def read_file(self, path: Path) -> Rows:
        """Return the records of a file, in the format of its suffix."""
        suffix = path.suffix.lower()
        if suffix not in self.readers:
            raise ValueError(
                f"{path}: files of this benchmark end in {' or '.join(self.readers)}, not in "
                f"{suffix or 'nothing'!r}"
            )
        return self.readers[suffix](path)

    def files_in(self, folder: Path, split: str) -> list[Path]:
        """Return a split's files in a folder, in the authors' layout or the hub's."""
        own = self.splits[split].files
        for pattern in (*own, *self.hub_files(split)):
            files = [path for path in folder.rglob(pattern) if not path.name.startswith(".")]
            if files:
                return sorted(files)
        raise FileNotFoundError(
            f"{folder} has no file of the split {split!r}, such as {' or '.join(own)}"
        )


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of ARC, OpenBookQA or CommonsenseQA as the hub has it, without a nest."""
    inner = fields.get("question")
    flat = {**fields, **(inner if isinstance(inner, Mapping) else {})}
    stem = next((flat.pop(name) for name in ("stem", "question_stem") if name in flat), inner)
    return {**flat, "question": stem}


def _with_field(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of MMLU with the field of its subject."""
    subject = str(fields.get("subject") or "").replace(" ", "_")
    known = {"subject": subject, "field": MMLU_SUBJECTS.get(subject) or fields.get("field")}
    return {**fields, **known}


def _mmlu_csv(path: Path) -> Rows:
    """Read a file of one subject, without a header; an answer is always a letter."""
    found = read_csv(path, header=("question", *"ABCD", "answer"))
    letters = [str(answer or "").strip() for answer in found.columns["answer"]]
    for place, letter in zip(found.places, letters, strict=True):
        if letter not in ("A", "B", "C", "D"):
            raise ValueError(
                f"{place}: the answer must be a letter from A to D, not {described(letter)}"
            )
    columns = {
        "question": found.columns["question"],
        "choices": list(zip(*(found.columns[option] for option in "ABCD"), strict=True)),
        "answer": list(map("ABCD".index, letters)),
        "subject": [re.sub(r"_(test|val|dev)$", "", path.stem)] * len(found),
    }
    return Rows(found.where, columns, found.places)


def _lettered(repository: str, folder: str, train: str, validation: str, test: str) -> Benchmark:
    """Create a benchmark whose options have letters, from the authors' file names."""
    splits = {
        "train": Split("train", (train,)),
        "validation": Split("validation", (validation,)),
        "dev": Split("validation", (validation,)),
        "test": Split("test", (test,)),
    }
    readers = {".jsonl": read_jsonl, ".parquet": read_parquet}
    return Benchmark(repository, folder, splits, readers, {"answer": "answerKey"}, question=_flat)


def _arc(name: str) -> Benchmark:
    files = (f"{name}-{part}.jsonl" for part in ("Train", "Dev", "Test"))
    return _lettered("allenai/ai2_arc", name, *files)


_MMLU = Benchmark(
    repository="cais/mmlu",
    folder="all",
    splits={
        "test": Split("test", ("*_test.csv", "mmlu-test.jsonl")),
        "validation": Split("validation", ("*_val.csv", "mmlu-validation.jsonl")),
        "dev": Split("dev", ("*_dev.csv", "mmlu-dev.jsonl")),
        "auxiliary_train": Split("auxiliary_train", ("auxiliary_train/*.csv",)),
    },
    question=_with_field,
    readers={".jsonl": read_jsonl, ".csv": _mmlu_csv, ".parquet": read_parquet},
)

# This repository contains a script, which is never run. The hub's own conversion is plain files.
_ETHICS = Benchmark(
    repository="EleutherAI/hendrycks_ethics",
    folder="commonsense",
    revision="refs/convert/parquet",
    splits={
        "train": Split("train", ("cm_train.csv",)),
        "test": Split("test", ("cm_test.csv",)),
        "test-hard": Split(None, ("cm_test_hard.csv",)),
    },
    readers={".csv": read_csv, ".parquet": read_parquet},
    columns={"question": "input", "answer": "label"},
    choices=("not wrong", "wrong"),
)

BENCHMARKS: dict[str, Benchmark] = {
    "mmlu": _MMLU,
    "mmlu-field": _MMLU,
    "arc-challenge": _arc("ARC-Challenge"),
    "arc-easy": _arc("ARC-Easy"),
    "ethics": _ETHICS,
    "openbookqa": _lettered("allenai/openbookqa", "main", "train.jsonl", "dev.jsonl", "test.jsonl"),
    "commonsenseqa": _lettered(
        "tau/commonsense_qa",
        "data",
        "train_rand_split.jsonl",
        "dev_rand_split.jsonl",
        "test_rand_split_no_answers.jsonl",
    ),
}

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_CIFAR_HUB = "uoft-cs/cifar10"
_CIFAR = {"train": r"data_batch_[1-5]\.bin", "test": r"test_batch\.bin"}
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE
Cifar = tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]  # images, labels, ids


def fetch_cifar10(
    source: str | Path = "hub", split: str = "train", revision: str | None = None
) -> ImageDataset:
    """Load CIFAR-10: 50 000 training and 10 000 test images of 32×32 pixels in ten classes.

    Parameters
    ----------
    source : str or Path
        ``"hub"`` downloads through `huggingface_hub`, which keeps its own copy. A path is a folder
        with the authors' binary batches (of ``cifar-10-binary.tar.gz``, unpacked), one of these
        files, or a folder tree ``train/<class>/…``, ``test/<class>/…``, also inside a zip.
    split : {"train", "test", "train+test"}
        Split to load.
    revision : str, optional
        Branch, tag or commit on the hub. By default the newest. Its commit is recorded, so that a
        run loads the same images again after the repository has changed.

    Returns
    -------
    ImageDataset
        Images whose ids begin with the split: ``"train/00000"``, or in a tree the file's path.

    Raises
    ------
    ValueError
        If the split or revision is unknown, or a file is not what its authors publish.
    FileNotFoundError
        If there is no such path, or no file of the split in it.
    ConnectionError
        If the hub cannot be reached, or answers with something else.
    ImportError
        If a library for the hub, or Pillow for pictures in files, is missing.

    Notes
    -----
    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. The pixels
    of a tree of JPEG files differ slightly from those of the binaries; mention this with your
    numbers.

    Examples
    --------
    >>> import tempfile
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = rng.integers(256, size=(4, 3073)).astype(np.uint8)
    ...     records[:, 0] = [3, 5, 3, 9]
    ...     _ = (Path(folder) / "data_batch_1.bin").write_bytes(records.tobytes())
    ...     data = fetch_cifar10(folder)
    >>> data
    ImageDataset(4 images of 32×32×3, 10 classes)
    >>> data[1].id, data.class_names[data[1].label]
    ('train/00001', 'dog')
    """
    parts = split.split("+")
    unknown = [part for part in parts if part not in _CIFAR]
    if unknown or len(set(parts)) < len(parts):
        raise ValueError(f"unknown split {split!r}; valid: 'train', 'test', 'train+test'")
    check_pinned(source, revision)
    arguments = {"source": str(source), "split": split}
    if str(source) == "hub":
        patterns = {part: f"plain_text/{part}-*.parquet" for part in parts}
        folder, arguments["revision"] = hub_folder(_CIFAR_HUB, revision, [*patterns.values()])
        found = [_cifar_of_hub(folder, part, pattern) for part, pattern in patterns.items()]
    else:
        found = [_cifar_at(checked_path(source), part) for part in parts]
    images, labels, ids = zip(*found, strict=True)
    names = checked_ids([name for part in ids for name in part], sum(map(len, ids)))
    data = ImageDataset(names, np.concatenate(labels), CLASSES, images=np.concatenate(images))
    return data.with_source("fetch_cifar10", **arguments)  # some classes may be absent


def _cifar_at(path: Path, split: str) -> Cifar:
    """Return the images of a split, from the authors' binary batches or from a tree of folders."""
    batches = [path] if path.suffix == ".bin" else sorted(path.rglob("*_batch*.bin"))
    if batches:
        return _cifar_of_batches([p for p in batches if re.fullmatch(_CIFAR[split], p.name)], split)
    pickles = [found for found in path.rglob("data_batch_1") if found.is_file()]
    if pickles:
        raise ValueError(
            f"{pickles[0]} is a pickle file, which could run any code; download the authors' "
            "binary version, cifar-10-binary.tar.gz"
        )
    with open_tree(path, below=split) as files:
        if not files:
            raise FileNotFoundError(
                f"{path} has no CIFAR-10 {split} images: neither {split}/<class>/… nor binary "
                f"batches ({'test_batch' if split == 'test' else 'data_batch_1'}.bin)"
            )
        images, labels, names, ids = read_classes(files, None, f"{path}, {split}")
    strange = sorted(set(names) - set(CLASSES))
    if strange:
        raise ValueError(
            f"{path} is not CIFAR-10: it has a class folder {quoted(strange[0])}; for other "
            "pictures use ImageDataset.from_folder"
        )
    height, width = images.shape[1:3]
    if (height, width) != (_SIDE, _SIDE):
        raise ValueError(f"{path} is not CIFAR-10: its images are {height}×{width}, not 32×32")
    number = np.array([CLASSES.index(name) for name in names])
    return images, number[labels], [f"{split}/{name}" for name in ids]


def _cifar_of_batches(batches: Sequence[Path], split: str) -> Cifar:
    if not batches:
        raise FileNotFoundError(f"there is no binary batch of the {split} images")
    records = np.concatenate(list(map(_records, batches)))
    planes = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    ids = [f"{split}/{i:05d}" for i in range(len(records))]
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return images, records[:, 0].astype(np.int64), ids


def _records(path: Path) -> NDArray[np.uint8]:
    raw = path.read_bytes()
    if not raw or len(raw) % _RECORD:
        raise ValueError(
            f"{path} is not a binary batch of CIFAR-10: its {len(raw)} bytes are not records of "
            f"{_RECORD}, a label and 32×32 pixels in three colours"
        )
    records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, _RECORD)
    wrong = records[:, 0] >= len(CLASSES)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{path}, record {row}: the label is {records[row, 0]}, not 0 to 9")
    return records


def _cifar_of_hub(folder: Path, split: str, pattern: str) -> Cifar:
    parts = [read_parquet(file).columns for file in sorted(folder.glob(pattern))]
    if not parts:
        raise FileNotFoundError(f"{_CIFAR_HUB} on the hub has no {pattern}")
    images = np.stack([decoded(one["bytes"]) for part in parts for one in part["img"]])
    labels = np.array([label for part in parts for label in part["label"]], dtype=np.int64)
    return images, labels, [f"{split}/{i:05d}" for i in range(len(labels))]
