"""Loading of published benchmarks, from the hub or from the authors' own files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memowidgets.data.benchmarks import BENCHMARKS, Benchmark
from memowidgets.data.hub import check_pinned, hub_folder
from memowidgets.data.mcq import MCQDataset
from memowidgets.data.mmlu_fields import MMLU_FIELDS
from memowidgets.data.rows import Row, read_parquet
from memowidgets.files import checked_path


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
        Questions with two equal options are kept, and `MCQDataset.duplicates` lists them.

    Raises
    ------
    ValueError
        If name, split or revision is unknown, or a file is not what its authors publish. The
        message names file and line.
    FileNotFoundError
        If there is no such path, or no file of the split in it.
    ConnectionError
        If the hub cannot be reached, or answers with something else.
    PermissionError
        If the hub's local copies cannot be written.
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
    data = MCQDataset.from_records(
        [benchmark.question(row) for row in rows], answers="index", equal_options="keep"
    )
    if name == "mmlu-field":
        data = data.relabel(by="field", options=MMLU_FIELDS)
    arguments: dict[str, Any] = {"name": name, "split": split, "source": str(source)}
    if commit is not None:
        arguments["revision"] = commit
    if template is not None:
        data = data.with_template(template)
        arguments["template"] = template if isinstance(template, str) else list(template)
    return replace(data, source={"loader": "fetch_mcq", "arguments": arguments})


def _rows(
    benchmark: Benchmark, name: str, split: str, source: str | Path, revision: str | None
) -> tuple[list[Row], str | None]:
    """Return the records of all requested splits, each with an id, and the hub's commit."""
    parts = split.split("+")
    if str(source) != "hub":
        source = checked_path(source)
    if str(source) != "hub" and Path(source).is_file():
        if len(parts) > 1:
            raise ValueError(f"{source} is one file, so it is one split; {split!r} names several")
        return _with_ids(name, benchmark.read_file(Path(source)), parts[0], joined=False), None
    for part in parts:
        known = benchmark.splits.get(part)
        if known is None or (str(source) == "hub" and known.hub is None):
            valid = [s for s, p in benchmark.splits.items() if str(source) != "hub" or p.hub]
            raise ValueError(
                f"unknown split {part!r} of {name!r}; valid: {', '.join(map(repr, valid))}"
            )
    found, commit = (_of_hub if str(source) == "hub" else _of_folder)(
        benchmark, parts, Path(source), revision
    )
    joined = len(parts) > 1
    named = [
        row
        for part, rows in zip(parts, found, strict=True)
        for row in _with_ids(name, rows, part, joined=joined)
    ]
    return named, commit


def _of_hub(
    benchmark: Benchmark, parts: Sequence[str], _source: Path, revision: str | None
) -> tuple[list[list[Row]], str | None]:
    """Return the records of each split, all of one commit."""
    patterns = [pattern for part in parts for pattern in benchmark.hub_files(part)]
    revision = benchmark.revision if revision is None else revision
    folder, commit = hub_folder(benchmark.repository, revision, patterns)
    files = [benchmark.files_in(folder, part) for part in parts]
    return [[row for file in part for row in read_parquet(file)] for part in files], commit


def _of_folder(
    benchmark: Benchmark, parts: Sequence[str], folder: Path, _revision: str | None
) -> tuple[list[list[Row]], str | None]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a file or folder")
    files = [benchmark.files_in(folder, part) for part in parts]
    return [[row for file in part for row in benchmark.read_file(file)] for part in files], None


def _with_ids(name: str, rows: Sequence[Row], split: str, *, joined: bool) -> list[Row]:
    """Add an id to each record that has none, numbered by subject for MMLU, else by split."""
    counter: Counter[str] = Counter()
    named = []
    for row in rows:
        group = str(row.fields.get("subject") or split) if name.startswith("mmlu") else split
        own = row.fields.get("id") or f"{group}/{counter[group]}"
        counter[group] += 1
        identity = f"{split}/{own}" if joined and not str(own).startswith(f"{split}/") else own
        named.append(Row(row.where, {**row.fields, "id": identity}))
    return named
