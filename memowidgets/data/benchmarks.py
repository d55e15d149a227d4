"""Published benchmarks, from the hub or from their authors' own files: questions, CIFAR-10."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data.images import ImageDataset
from memowidgets.data.mcq import MCQDataset
from memowidgets.data.pictures import decode, open_tree, read_classes
from memowidgets.data.rows import (
    Rows,
    read_csv,
    read_jsonl,
    read_parquet,
    rows_of_records,
)
from memowidgets.files import checked_path
from memowidgets.network import check_pinned, hub_folder
from memowidgets.vocabulary import quoted


def _known(file: str) -> dict[str, Any]:
    return dict(json.loads(Path(__file__).with_name(file).read_text("utf-8")))


# Of each: the repository on the hub, and the folder of the Parquet files in it; which columns have
# what; and of each split the name on the hub, and patterns of the authors' own files, of which the
# first that matches any is used. The repository of ETHICS contains a script, which is never run:
# the hub's own conversion is plain files.
BENCHMARKS = _known("benchmarks.json")
BENCHMARKS["mmlu-field"] = BENCHMARKS["mmlu"]
_SUBJECTS_BY_FIELD = _known("mmlu.json")
MMLU_FIELDS = tuple(_SUBJECTS_BY_FIELD)
MMLU_SUBJECTS = {
    subject: name
    for name, subjects in _SUBJECTS_BY_FIELD.items()
    for subject in subjects
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
        ``"auxiliary_train"``, and ETHICS has ``"test-hard"``.
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
        If name, split or revision is unknown, or a file is not what its authors publish. The
        message names file and line. A split whose answers are not published is unknown.
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
        raise ValueError(
            f"unknown benchmark {name!r}; valid: {', '.join(map(repr, BENCHMARKS))}"
        )
    check_pinned(source, revision)
    files, commit = _files(name, split, source, revision)
    questions = []
    places = []
    counter = Counter[str]()
    for place, fields in (row for file in files for row in _read(name, file).records()):
        group = (
            str(fields.get("subject") or split) if name.startswith("mmlu") else split
        )
        own_name = fields.get("id") or f"{group}/{counter[group]}"
        counter[group] += 1
        questions.append(_question(name, {**fields, "id": own_name}))
        places.append(place)
    data = MCQDataset.from_records(
        rows_of_records(questions, places, f"{name} ({source})"),
        equal_options="keep",
        columns=BENCHMARKS[name].get("columns"),
        choices=BENCHMARKS[name].get("choices"),
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
    name: str, split: str, source: str | Path, revision: str | None
) -> tuple[list[Path], str | None]:
    """Return the files of a split, in the authors' layout or one of the hub's, and its commit."""
    about = BENCHMARKS[name]
    is_hub = str(source) == "hub"
    commit = None
    folder = Path() if is_hub else checked_path(source)
    if folder.is_file():
        return [folder], None
    valid = [
        known for known, one in about["splits"].items() if one["hub"] or not is_hub
    ]
    if split not in valid:
        raise ValueError(
            f"unknown split {split!r} of {name!r}; valid: {', '.join(map(repr, valid))}"
        )
    own = about["splits"][split]
    start = about["folder"]
    at_hub = [f"{start}/{own['hub']}-*.parquet", f"{start}/{own['hub']}/*.parquet"]
    if is_hub:
        at = about.get("revision") if revision is None else revision
        folder, commit = hub_folder(about["repository"], at, at_hub)
    elif not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a file or folder")
    for pattern in (*own["files"], *at_hub):
        files = [
            path for path in folder.rglob(pattern) if not path.name.startswith(".")
        ]
        if files:
            return sorted(files), commit
    raise FileNotFoundError(
        f"{folder} has no file of the split {split!r}, such as {' or '.join(own['files'])}"
    )


def _read(name: str, path: Path) -> Rows:
    """Return the records of a file, in the format of its suffix."""
    readers = {".jsonl": read_jsonl, ".csv": read_csv, ".parquet": read_parquet}
    if name.startswith("mmlu"):
        readers[".csv"] = _mmlu_csv
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise ValueError(
            f"{path}: files of a benchmark end in {', '.join(readers)}, not in "
            f"{suffix or 'nothing'!r}"
        )
    return readers[suffix](path)


def _mmlu_csv(path: Path) -> Rows:
    """Read a file of one subject, without a header; an answer is always a letter."""
    rows = read_csv(path, header=("question", *"ABCD", "answer"))
    # an option may be a letter, too
    position = {letter: i for i, letter in enumerate("ABCD")}
    answers = [str(answer or "").strip() for answer in rows.columns["answer"]]
    columns = {
        "question": rows.columns["question"],
        "choices": list(zip(*(rows.columns[option] for option in "ABCD"), strict=True)),
        "answer": [position.get(answer, answer) for answer in answers],
        "subject": [re.sub(r"_(test|val|dev)$", "", path.stem)] * len(rows),
    }
    return Rows(rows.where, columns, rows.places)


def _question(name: str, fields: Mapping[str, object]) -> dict[str, Any]:
    """Return a record without a nest, as ARC's authors have it, and for MMLU with its field."""
    inner = fields.get("question")
    flat = {**fields, **(inner if isinstance(inner, Mapping) else {})}
    for stem in ("stem", "question_stem"):
        if stem in flat:
            flat["question"] = flat.pop(stem)
    if name.startswith("mmlu"):
        flat["subject"] = subject = str(fields.get("subject") or "").replace(" ", "_")
        flat["field"] = MMLU_SUBJECTS.get(subject) or fields.get("field")
    return flat


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
    split : {"train", "test"}
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
    if split not in _CIFAR:
        raise ValueError(f"unknown split {split!r}; valid: 'train', 'test'")
    check_pinned(source, revision)
    arguments = {"source": str(source), "split": split}
    if str(source) == "hub":
        pattern = f"plain_text/{split}-*.parquet"
        folder, arguments["revision"] = hub_folder(_CIFAR_HUB, revision, [pattern])
        images, labels, ids = _cifar_of_hub(folder, split, pattern)
    else:
        images, labels, ids = _cifar_at(checked_path(source), split)
    # some may be absent
    data = ImageDataset(np.array(ids), labels, CLASSES, images=images)
    return data.with_source("fetch_cifar10", **arguments)


def _cifar_at(path: Path, split: str) -> Cifar:
    """Return the images of a split, from the authors' binary batches or from a tree of folders."""
    batches = [path] if path.suffix == ".bin" else sorted(path.rglob("*_batch*.bin"))
    if batches:
        return _cifar_of_batches(
            [p for p in batches if re.fullmatch(_CIFAR[split], p.name)], split
        )
    pickles = [file for file in path.rglob("data_batch_1") if file.is_file()]
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
        raise ValueError(
            f"{path} is not CIFAR-10: its images are {height}×{width}, not 32×32"
        )
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
        raise ValueError(
            f"{path}, record {row}: the label is {records[row, 0]}, not 0 to 9"
        )
    return records


def _cifar_of_hub(folder: Path, split: str, pattern: str) -> Cifar:
    parts = [read_parquet(file).columns for file in sorted(folder.glob(pattern))]
    if not parts:
        raise FileNotFoundError(f"{_CIFAR_HUB} on the hub has no {pattern}")
    images = np.stack([decode(one["bytes"]) for part in parts for one in part["img"]])
    labels = np.array(
        [label for part in parts for label in part["label"]], dtype=np.int64
    )
    return images, labels, [f"{split}/{i:05d}" for i in range(len(labels))]
