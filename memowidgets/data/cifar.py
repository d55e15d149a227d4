"""CIFAR-10 from the hub, from the authors' binary batches, or from a folder tree or zip."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memowidgets.data.dataset import checked_ids
from memowidgets.data.images import ImageDataset
from memowidgets.data.pictures import Pictures, decoded, open_tree, read_classes
from memowidgets.data.rows import read_parquet
from memowidgets.files import checked_path
from memowidgets.network import check_pinned, hub_folder
from memowidgets.visible import quoted

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_REPOSITORY = "uoft-cs/cifar10"
_SPLITS = {"train": r"data_batch_[1-5]\.bin", "test": r"test_batch\.bin"}
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE


def fetch_cifar10(
    source: str | Path = "hub", split: str = "train", revision: str | None = None
) -> ImageDataset:
    """Load CIFAR-10: 50 000 training and 10 000 test images of 32×32 pixels in ten classes.

    Parameters
    ----------
    source : str or Path
        ``"hub"`` downloads through `huggingface_hub`, which keeps its own copy. A path is a folder
        with the authors' binary batches (of ``cifar-10-binary.tar.gz``, unpacked), one such
        ``.bin`` file, or a folder tree ``train/<class>/…``, ``test/<class>/…``, also inside a zip.
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
    unknown = [part for part in parts if part not in _SPLITS]
    if unknown or len(set(parts)) < len(parts):
        raise ValueError(f"unknown split {split!r}; valid: 'train', 'test', 'train+test'")
    check_pinned(source, revision)
    arguments = {"source": str(source), "split": split}
    if str(source) == "hub":
        found, arguments["revision"] = _from_hub(parts, revision)
    else:
        found = [_part(checked_path(source), part) for part in parts]
    names = [name for part in found for name in part.ids]
    data = ImageDataset(  # some classes may be absent
        checked_ids(names, len(names)),
        np.concatenate([part.labels for part in found]),
        CLASSES,
        images=np.concatenate([part.images for part in found]),
    )
    return data.with_source("fetch_cifar10", **arguments)


def _part(path: Path, split: str) -> Pictures:
    if path.suffix == ".bin" and path.is_file():
        named = [name for name, pattern in _SPLITS.items() if re.fullmatch(pattern, path.name)]
        if named and split not in named:  # other names are accepted
            raise ValueError(f"{path} is a batch of the {named[0]} images, not of the {split} ones")
        return _from_batches([path], split)
    batches = sorted(path.rglob("*_batch*.bin"))
    if batches:
        return _from_batches([p for p in batches if re.fullmatch(_SPLITS[split], p.name)], split)
    pickles = [found for found in path.rglob("data_batch_1") if found.is_file()]
    if pickles:
        raise ValueError(
            f"{pickles[0]} is a pickle file, which could run any code; download the authors' "
            "binary version, cifar-10-binary.tar.gz"
        )
    return _from_tree(path, split)


def _from_tree(path: Path, split: str) -> Pictures:
    with open_tree(path, below=split) as files:
        if not files:
            raise FileNotFoundError(
                f"{path} has no CIFAR-10 {split} images: neither {split}/<class>/… nor binary "
                f"batches ({'test_batch' if split == 'test' else 'data_batch_1'}.bin)"
            )
        pictures = read_classes(files, None, f"{path}, {split}")
    strange = sorted(set(pictures.class_names) - set(CLASSES))
    if strange:
        raise ValueError(
            f"{path} is not CIFAR-10: it has a class folder {quoted(strange[0])}; for other "
            "pictures use ImageDataset.from_folder"
        )
    height, width = pictures.images.shape[1:3]
    if (height, width) != (_SIDE, _SIDE):
        raise ValueError(f"{path} is not CIFAR-10: its images are {height}×{width}, not 32×32")
    number = np.array([CLASSES.index(name) for name in pictures.class_names])
    ids = [f"{split}/{name}" for name in pictures.ids]
    return Pictures(pictures.images, number[pictures.labels], CLASSES, ids)


def _from_batches(batches: Sequence[Path], split: str) -> Pictures:
    if not batches:
        raise FileNotFoundError(f"there is no binary batch of the {split} images")
    records = np.concatenate(list(map(_records, batches)))
    planes = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    ids = [f"{split}/{i:05d}" for i in range(len(records))]
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return Pictures(images, records[:, 0].astype(np.int64), CLASSES, ids)


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


def _from_hub(splits: Sequence[str], revision: str | None) -> tuple[list[Pictures], str]:
    """Return the images of each split, all of one commit, and the commit."""
    patterns = {split: f"plain_text/{split}-*.parquet" for split in splits}
    folder, commit = hub_folder(_REPOSITORY, revision, list(patterns.values()))
    found = []
    for split, pattern in patterns.items():
        files = sorted(folder.glob(pattern))
        parts = [read_parquet(file).columns for file in files]
        if not parts:
            raise FileNotFoundError(f"{_REPOSITORY} on the hub has no {pattern}")
        images = np.stack([decoded(one["bytes"]) for part in parts for one in part["img"]])
        labels = np.array([label for part in parts for label in part["label"]], dtype=np.int64)
        ids = [f"{split}/{i:05d}" for i in range(len(labels))]
        found.append(Pictures(images, labels, CLASSES, ids))
    return found, commit
