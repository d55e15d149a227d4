"""Downloads of data files from a public hub, never of code. Data are downloaded only here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memowidgets.data.benchmarks import Benchmark
from memowidgets.data.rows import Row, read_parquet
from memowidgets.network import hub_may_be_asked


def hub_rows(benchmark: Benchmark, split: str) -> list[Row]:
    """Return the records of a split of a benchmark.

    Raises
    ------
    ConnectionError
        If the hub cannot be reached or refuses the request.
    ImportError
        If no library for the hub is installed.
    """
    try:
        if _installed("datasets"):
            return _through_datasets(benchmark, split)
        return _through_files(benchmark, split)
    except OSError as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ConnectionError(
            f"cannot get {benchmark.repository} from the hub ({reason[0]}); connect to the "
            "network, or pass the authors' own files as source=path"
        ) from error


def _through_datasets(benchmark: Benchmark, split: str) -> list[Row]:
    import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]

    place: dict[str, Any] = {"split": benchmark.splits[split].hub}
    if not hub_may_be_asked():
        place["download_config"] = datasets.DownloadConfig(local_files_only=True)
    if benchmark.revision is None:
        place["name"] = benchmark.config
    else:
        # a converted branch has a folder for each configuration
        place |= {"data_dir": benchmark.folder, "revision": benchmark.revision}
    return _located(datasets.load_dataset(benchmark.repository, **place), benchmark, split)


def _through_files(benchmark: Benchmark, split: str) -> list[Row]:
    folder = _download(benchmark.repository, benchmark.revision, benchmark.hub_files(split))
    return [row for file in benchmark.files_in(folder, split) for row in read_parquet(file)]


def _download(repository: str, revision: str | None, patterns: Iterable[str]) -> Path:
    """Download the files of a repository that match the patterns, and return their folder."""
    if not _installed("huggingface_hub"):
        raise ImportError(
            "getting data from the hub needs huggingface_hub or datasets: pip install "
            "huggingface_hub pyarrow, or pass the authors' own files as source=path"
        )
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision,
            allow_patterns=list(patterns),
            local_files_only=not hub_may_be_asked(),
        )
    )


def _located(records: Iterable[Any], benchmark: Benchmark, split: str) -> list[Row]:
    place = f"{benchmark.repository}, {benchmark.config}, {split}"
    return [Row(f"{place}, row {number}", dict(record)) for number, record in enumerate(records)]


def _installed(library: str) -> bool:
    """Return whether a library is installed; a folder of that name does not count."""
    spec = importlib.util.find_spec(library)
    return spec is not None and spec.origin is not None
