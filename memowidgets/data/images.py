"""Images as data: kept as uint8 until the batch, with ids, labels and canaries."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.data.base import (
    BoolArray,
    Dataset,
    IntArray,
    checked_class_names,
    checked_ids,
    checked_labels,
)

__all__ = ["ImageDataset", "ImageSample"]


@dataclass(frozen=True)
class ImageSample:
    """One image.

    Attributes
    ----------
    id : str
        Its name.
    image : array of shape (height, width, channels), uint8
        One channel (grey) or three (red, green, blue).
    label : int
        The label it is trained on.
    canary : bool
        Whether it was planted.
    """

    id: str
    image: NDArray[np.uint8]
    label: int
    canary: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class ImageDataset(Dataset):
    """Labelled images of one size; made with `from_arrays`.

    Attributes
    ----------
    images : array of shape (n, height, width, channels), uint8
        The images.
    ids, labels, class_names, canaries, source
        As in `Dataset`.

    Examples
    --------
    >>> import numpy as np
    >>> data = ImageDataset.from_arrays(np.zeros((4, 8, 8)), [0, 1, 0, 1], ["cat", "dog"])
    >>> data
    ImageDataset(4 images of 8×8×1, 2 classes)
    >>> data[1].label, data[1].id
    (1, '1')
    """

    images: NDArray[np.uint8]
    ids: NDArray[np.str_]
    labels: IntArray
    class_names: tuple[str, ...]
    canaries: BoolArray | None = None
    source: dict[str, Any] | None = None

    @classmethod
    def from_arrays(
        cls,
        images: ArrayLike,
        labels: ArrayLike,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
    ) -> Self:
        """Wrap arrays that are already in memory.

        Parameters
        ----------
        images : array-like of shape (n, h, w), (n, h, w, 1) or (n, h, w, 3)
            uint8, or real numbers between 0 and 1.
        labels : array-like of shape (n,)
            Integers from 0.
        class_names : sequence of str, optional
            Names of the classes; their numbers by default.
        ids : sequence of str, optional
            Unique names of the samples; their positions by default.

        Returns
        -------
        ImageDataset

        Raises
        ------
        ValueError
            If the shapes differ, a pixel is not finite or out of range, a label is not one
            of the classes, ids repeat, or there is one class only. The message names the row.
        """
        pixels = _checked_pixels(np.asarray(images))
        integers = checked_labels(labels, class_names)
        if len(integers) != len(pixels):
            raise ValueError(f"{len(pixels)} images but {len(integers)} labels: give one for each")
        names = checked_class_names(class_names, integers)
        return cls(pixels, checked_ids(ids, len(pixels)), integers, names)

    def __repr__(self) -> str:
        height, width, channels = self.images.shape[1:]
        planted = "" if self.canaries is None else f", {int(self.canaries.sum())} canaries"
        return (
            f"ImageDataset({len(self)} images of {height}×{width}×{channels}, "
            f"{len(self.class_names)} classes{planted})"
        )

    def __getitem__(self, index: int) -> ImageSample:
        canary = self.canaries is not None and bool(self.canaries[index])
        return ImageSample(
            str(self.ids[index]), self.images[index], int(self.labels[index]), canary
        )

    def take(self, indices: ArrayLike) -> Self:
        """The images at these positions, in this order, as a dataset."""
        chosen = np.asarray(indices)
        return replace(
            self,
            images=self.images[chosen],
            ids=self.ids[chosen],
            labels=self.labels[chosen],
            canaries=None if self.canaries is None else self.canaries[chosen],
            source=None,
        )

    def content_hashes(self) -> list[str]:
        """SHA-256 of each image's pixels and shape, 16 hexadecimal digits."""
        shape = str(self.images.shape[1:]).encode()
        return [
            hashlib.sha256(shape + np.ascontiguousarray(image).tobytes()).hexdigest()[:16]
            for image in self.images
        ]

    def with_canaries(self, n: int, kind: str = "mislabelled", seed: int = 0) -> Self:
        """Plant canaries: samples that a model can only fit by memorising them.

        Parameters
        ----------
        n : int
            How many.
        kind : {"mislabelled"}
            ``"mislabelled"`` gives `n` images another label than their own, drawn evenly.
        seed : int
            Which images, and which labels.

        Returns
        -------
        ImageDataset
            The same images, ids and order; `canaries` marks the planted ones.

        Raises
        ------
        ValueError
            If there are more canaries than images or the kind is unknown.
        """
        if kind != "mislabelled":
            raise ValueError(f"unknown kind of canaries {kind!r}; valid: 'mislabelled'")
        planted = np.zeros(len(self), np.bool_) if self.canaries is None else self.canaries
        free = np.flatnonzero(~planted)
        if not 0 <= n <= len(free):
            raise ValueError(f"{n} canaries do not fit into {len(free)} images that are none yet")
        rng = np.random.default_rng(seed)
        chosen = rng.choice(free, size=n, replace=False)
        shift = rng.integers(1, len(self.class_names), size=n)
        labels = self.labels.copy()
        labels[chosen] = (labels[chosen] + shift) % len(self.class_names)
        mask = planted.copy()
        mask[chosen] = True
        return replace(self, labels=labels, canaries=mask, source=None)


def _checked_pixels(images: NDArray[Any]) -> NDArray[np.uint8]:
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise ValueError(
            "images must have the shape (n, height, width), (n, height, width, 1) or "
            f"(n, height, width, 3), not {images.shape}"
        )
    if 0 in images.shape:
        raise ValueError(f"images are empty: their shape is {images.shape}")
    if images.dtype == np.uint8:
        return np.array(images, order="C")  # a copy: later changes of the caller's don't matter
    if images.dtype.kind not in "fiub":
        raise ValueError(f"images must be numbers, not {images.dtype}")
    rows = images.reshape(len(images), -1)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{int((~finite).sum())} images hold NaN or infinite pixels, the first in row "
            f"{int(np.argmin(finite))}: remove or mend them"
        )
    inside = ((rows >= 0) & (rows <= 1)).all(axis=1)
    if not inside.all():
        row = int(np.argmin(inside))
        raise ValueError(
            f"images of dtype {images.dtype} must lie between 0 and 1 (or be uint8); row {row} "
            f"ranges from {rows[row].min():g} to {rows[row].max():g}"
        )
    return np.rint(images * 255.0).astype(np.uint8)
