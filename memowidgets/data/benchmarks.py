"""Published multiple-choice benchmarks, from the hub or from their authors' own files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from memowidgets.data.mcq import MCQDataset
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

Record = tuple[str, dict[str, Any]]  # its place, and its fields

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
    rows, commit = _rows(benchmark, name, split, source, revision)
    questions = [benchmark.question(fields) for _, fields in rows]
    data = MCQDataset.from_records(
        rows_of_records(questions, [place for place, _ in rows], f"{name} ({source})"),
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


def _rows(
    benchmark: Benchmark, name: str, split: str, source: str | Path, revision: str | None
) -> tuple[list[Record], str | None]:
    """Return the records of all requested splits, each with an id, and the hub's commit."""
    parts, is_hub, commit = split.split("+"), str(source) == "hub", None
    folder = Path() if is_hub else checked_path(source)
    if folder.is_file():
        if len(parts) > 1:
            raise ValueError(f"{source} is one file, so it is one split; {split!r} names several")
        return _with_ids(name, benchmark.read_file(folder).records(), split, joined=False), None
    valid = [known for known, one in benchmark.splits.items() if one.hub or not is_hub]
    for part in parts:
        if part not in valid:
            raise ValueError(
                f"unknown split {part!r} of {name!r}; valid: {', '.join(map(repr, valid))}"
            )
    if is_hub:
        patterns = [pattern for part in parts for pattern in benchmark.hub_files(part)]
        folder, commit = hub_folder(
            benchmark.repository, benchmark.revision if revision is None else revision, patterns
        )
    elif not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a file or folder")
    rows = []
    for part in parts:
        files = benchmark.files_in(folder, part)
        found = (row for file in files for row in benchmark.read_file(file).records())
        rows += _with_ids(name, found, part, joined=len(parts) > 1)
    return rows, commit


def _with_ids(name: str, rows: Iterable[Record], split: str, *, joined: bool) -> list[Record]:
    """Add an id to each record that has none, numbered by subject for MMLU, else by split."""
    counter: Counter[str] = Counter()
    named = []
    for place, fields in rows:
        group = str(fields.get("subject") or split) if name.startswith("mmlu") else split
        own = fields.get("id") or f"{group}/{counter[group]}"
        counter[group] += 1
        identity = f"{split}/{own}" if joined and not str(own).startswith(f"{split}/") else own
        named.append((place, {**fields, "id": identity}))
    return named


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
    choices = flat.get("choices")
    if isinstance(choices, list) and all(isinstance(one, Mapping) for one in choices):
        flat["choices"] = {key: [one.get(key) for one in choices] for key in ("text", "label")}
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
