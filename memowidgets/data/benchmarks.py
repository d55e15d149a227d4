"""Published multiple-choice benchmarks: their files, and their authors' formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memowidgets.data.mmlu_fields import MMLU_SUBJECTS
from memowidgets.data.questions import described
from memowidgets.data.rows import Row, read_csv_cells, read_jsonl, read_parquet
from memowidgets.visible import listed, quoted


@dataclass(frozen=True)
class Split:
    """One split of a benchmark.

    Attributes
    ----------
    hub : str or None
        Name of the split on the hub. None if it is not there.
    files : tuple of str
        Regular expressions for the paths of its files in a folder of the authors' files. The first
        that matches any file is used.
    example : str
        Name of such a file.
    """

    hub: str | None
    files: tuple[str, ...]
    example: str


@dataclass(frozen=True)
class Benchmark:
    """Published set of questions.

    Attributes
    ----------
    repository, config : str
        Repository and configuration on the hub.
    folder : str
        Folder of the configuration's Parquet files in the repository.
    revision : str or None
        Revision of the repository. None means the newest.
    splits : dict of str to Split
        Splits by name.
    question : callable
        Function that turns a record of the authors or the hub into a row for `MCQDataset`.
    csv : callable or None
        Function that reads the records of a CSV file. None if the authors have no CSV files.
    suffixes : tuple of str
        Suffixes of files that can be read.
    """

    repository: str
    config: str
    folder: str
    splits: Mapping[str, Split]
    question: Callable[[Row], Row]
    revision: str | None = None
    csv: Callable[[Path], list[Row]] | None = None
    suffixes: tuple[str, ...] = (".jsonl", ".parquet")

    def hub_files(self, split: str) -> tuple[str, str]:
        """Return patterns of a split's files in the repository, for both of its layouts."""
        name = self.splits[split].hub
        return f"{self.folder}/{name}-*.parquet", f"{self.folder}/{name}/*.parquet"

    def read_file(self, path: Path) -> list[Row]:
        """Return the records of a file, in the format of its suffix."""
        suffix = path.suffix.lower()
        if suffix not in self.suffixes:
            raise ValueError(
                f"{path}: files of this benchmark end in {' or '.join(self.suffixes)}, not in "
                f"{suffix or 'nothing'!r}"
            )
        if suffix == ".csv" and self.csv is not None:
            return self.csv(path)
        return read_parquet(path) if suffix == ".parquet" else read_jsonl(path)

    def files_in(self, folder: Path, split: str) -> list[Path]:
        """Return a split's files in a folder, in the authors' layout or the hub's."""
        part = self.splits[split]
        in_hub_layout = rf"(^|/){re.escape(self.folder)}/{part.hub}[-/][^/]*\.parquet$"
        for pattern in (*part.files, in_hub_layout):
            if files := _matching(folder, re.compile(pattern, re.IGNORECASE)):
                return files
        raise FileNotFoundError(
            f"{folder} has no file of the split {split!r}, such as {part.example}"
        )


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    found = (
        path
        for path in folder.rglob("*")
        if not path.name.startswith(".")
        and pattern.search(path.relative_to(folder).as_posix())
        and path.is_file()
    )
    return sorted(found)


def _lettered_question(row: Row) -> Row:
    """Read a question of ARC, OpenBookQA or CommonsenseQA, whose options have labels."""
    fields = row.fields
    nested = fields.get("question")
    inner = nested if isinstance(nested, Mapping) else fields
    question = next(
        (inner[name] for name in ("stem", "question_stem", "question") if name in inner), None
    )
    labels, texts = _labels_and_texts(inner.get("choices"), row.where)
    key = str(fields.get("answerKey") or "").strip()
    if not key:
        raise ValueError(
            f"{row.where}: there is no answer. Some authors do not publish the answers of their "
            "test split; use another split"
        )
    if labels.count(key) != 1:
        raise ValueError(
            f"{row.where}: the answer {quoted(key)} is not exactly one of the options' labels "
            f"{listed(labels, each=10)}"
        )
    extra = {
        name: value
        for name, value in {**fields, **inner}.items()
        if name not in ("question", "stem", "question_stem", "choices", "answerKey", "id")
    }
    own = {"id": fields.get("id"), "question": question}
    return Row(row.where, extra | own | {"choices": texts, "answer": labels.index(key)})


def _labels_and_texts(choices: Any, where: str) -> tuple[list[str], list[Any]]:
    try:
        if isinstance(choices, Mapping):
            labels, texts = list(choices["label"]), list(choices["text"])
        else:
            labels, texts = [c["label"] for c in choices], [c["text"] for c in choices]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{where}: choices must each have a 'label' and a 'text'") from error
    return [str(label).strip() for label in labels], texts


def _mmlu_question(row: Row) -> Row:
    subject = str(row.fields.get("subject") or "").replace(" ", "_")
    known = {"subject": subject, "field": MMLU_SUBJECTS.get(subject) or row.fields.get("field")}
    return Row(row.where, {**row.fields, **known})


def _mmlu_csv(path: Path) -> list[Row]:
    """Read a file of one subject, without a header: question, four options, letter."""
    subject = re.sub(r"_(test|val|dev)$", "", path.stem)
    rows = []
    for line in read_csv_cells(path):
        if len(line.cells) != 6:
            raise ValueError(
                f"{line.where}: {len(line.cells)} cells, but a line of MMLU has 6: question, four "
                "options, letter"
            )
        question, *choices, letter = line.cells
        fields = {"question": question, "choices": choices, "answer": _letter(letter, line.where)}
        rows.append(Row(line.where, {**fields, "subject": subject}))
    return rows


def _letter(cell: str, where: str) -> int:
    """Return the position of a letter; here an answer is never the text of an option."""
    letter = cell.strip()
    if letter not in ("A", "B", "C", "D"):
        raise ValueError(f"{where}: the answer must be a letter from A to D, not {described(cell)}")
    return "ABCD".index(letter)


_MORAL = ("not wrong", "wrong")


def _ethics_question(row: Row) -> Row:
    label = str(row.fields.get("label", "")).strip()
    if label not in ("0", "1"):
        raise ValueError(
            f"{row.where}: the label must be 0 (not wrong) or 1 (wrong), not {described(label)}"
        )
    extra = {name: value for name, value in row.fields.items() if name not in ("label", "input")}
    own = {"question": row.fields.get("input"), "choices": _MORAL, "answer": int(label)}
    return Row(row.where, extra | own)


def _ethics_csv(path: Path) -> list[Row]:
    lines = read_csv_cells(path)
    names = [name.strip() for name in lines[0].cells] if lines else []
    if not {"label", "input"} <= set(names):
        raise ValueError(
            f"{path}: the first line must name the columns label, input, is_short and edited, as "
            "ETHICS' commonsense files do"
        )
    rows = []
    for line in lines[1:]:
        if len(line.cells) != len(names):
            raise ValueError(
                f"{line.where}: {len(line.cells)} cells, but the first line has {len(names)}"
            )
        rows.append(Row(line.where, dict(zip(names, line.cells, strict=True))))
    return rows


def _splits(parts: Iterable[tuple[str, str | None, str]]) -> dict[str, Split]:
    """Create splits from our names for them, the hub's, and the authors' file names."""
    return {name: Split(hub, (rf"(^|/){re.escape(file)}$",), file) for name, hub, file in parts}


def _mmlu_split(name: str, short: str) -> Split:
    patterns = (rf"(^|/)[^/]+_{short}\.csv$", rf"(^|/)mmlu-{name}\.jsonl$")
    return Split(name, patterns, f"anatomy_{short}.csv or mmlu-{name}.jsonl")


_MMLU = Benchmark(
    repository="cais/mmlu",
    config="all",
    folder="all",
    splits={
        "test": _mmlu_split("test", "test"),
        "validation": _mmlu_split("validation", "val"),
        "dev": _mmlu_split("dev", "dev"),
        "auxiliary_train": Split(
            "auxiliary_train", (r"(^|/)auxiliary_train/[^/]+\.csv$",), "auxiliary_train/race.csv"
        ),
    },
    question=_mmlu_question,
    csv=_mmlu_csv,
    suffixes=(".jsonl", ".csv", ".parquet"),
)


def _arc(subset: str) -> Benchmark:
    name = f"ARC-{subset}"
    return Benchmark(
        repository="allenai/ai2_arc",
        config=name,
        folder=name,
        splits=_splits(
            [
                ("train", "train", f"{name}-Train.jsonl"),
                ("validation", "validation", f"{name}-Dev.jsonl"),
                ("dev", "validation", f"{name}-Dev.jsonl"),
                ("test", "test", f"{name}-Test.jsonl"),
            ]
        ),
        question=_lettered_question,
    )


_OPENBOOKQA = Benchmark(
    repository="allenai/openbookqa",
    config="main",
    folder="main",
    splits=_splits(
        [
            ("train", "train", "train.jsonl"),
            ("validation", "validation", "dev.jsonl"),
            ("dev", "validation", "dev.jsonl"),
            ("test", "test", "test.jsonl"),
        ]
    ),
    question=_lettered_question,
)

_COMMONSENSEQA = Benchmark(
    repository="tau/commonsense_qa",
    config="default",
    folder="data",
    splits=_splits(
        [
            ("train", "train", "train_rand_split.jsonl"),
            ("validation", "validation", "dev_rand_split.jsonl"),
            ("dev", "validation", "dev_rand_split.jsonl"),
            ("test", "test", "test_rand_split_no_answers.jsonl"),
        ]
    ),
    question=_lettered_question,
)

# This repository contains a script, which is never run. The hub's own conversion is plain files.
_ETHICS = Benchmark(
    repository="EleutherAI/hendrycks_ethics",
    config="commonsense",
    folder="commonsense",
    revision="refs/convert/parquet",
    splits=_splits(
        [
            ("train", "train", "cm_train.csv"),
            ("test", "test", "cm_test.csv"),
            ("test-hard", None, "cm_test_hard.csv"),
        ]
    ),
    question=_ethics_question,
    csv=_ethics_csv,
    suffixes=(".csv", ".parquet"),
)

BENCHMARKS: dict[str, Benchmark] = {
    "mmlu": _MMLU,
    "mmlu-field": _MMLU,
    "arc-challenge": _arc("Challenge"),
    "arc-easy": _arc("Easy"),
    "ethics": _ETHICS,
    "openbookqa": _OPENBOOKQA,
    "commonsenseqa": _COMMONSENSEQA,
}
