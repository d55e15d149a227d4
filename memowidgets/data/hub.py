"""The only place where data come over the network: files of a public hub, never code."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memowidgets.data.benchmarks import Benchmark
from memowidgets.data.rows import Row, read_parquet
from memowidgets.network import hub_may_be_asked

__all__ = ["hub_rows"]


def hub_rows(benchmark: Benchmark, split: str) -> list[Row]:
    """The records of a part of a benchmark.

    Raises
    ------
    ConnectionError
        If the hub cannot be reached or refuses.
    ImportError
        If no library is there to ask it with.
    """
    try:
        if _installed("datasets"):
            return _through_datasets(benchmark, split)
        return _through_files(benchmark, split)
    except OSError as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ConnectionError(
            f"cannot get {benchmark.repository} from the hub ({reason[0]}): connect to the "
            "network, or give the authors' own files as source=path"
        ) from error


def _through_datasets(benchmark: Benchmark, split: str) -> list[Row]:
    import datasets  # type: ignore[import-not-found, unused-ignore]

    place: dict[str, Any] = {"split": benchmark.splits[split].hub}
    if not hub_may_be_asked():
        place["download_config"] = datasets.DownloadConfig(local_files_only=True)
    if benchmark.revision is None:
        place["name"] = benchmark.config
    else:
        # a converted branch has no configs, only a folder for each
        place |= {"data_dir": benchmark.folder, "revision": benchmark.revision}
    return _located(datasets.load_dataset(benchmark.repository, **place), benchmark, split)


def _through_files(benchmark: Benchmark, split: str) -> list[Row]:
    folder = _download(benchmark.repository, benchmark.revision, benchmark.hub_files(split))
    return [row for file in benchmark.files_in(folder, split) for row in read_parquet(file)]


def _download(repository: str, revision: str | None, patterns: Iterable[str]) -> Path:
    """A folder with the files of a repository that fit the patterns."""
    if not _installed("huggingface_hub"):
        raise ImportError(
            "getting data from the hub needs huggingface_hub or datasets: pip install "
            "huggingface_hub pyarrow, or give the authors' own files as source=path"
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
    """Whether a library is there; a folder of that name in the working directory is none."""
    spec = importlib.util.find_spec(library)
    return spec is not None and spec.origin is not None
