"""Image datasets, which keep images as uint8 until they are in a batch."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_finite, check_same_order, real_numbers
from memowidgets.data.dataset import Dataset, checked_classes, named_ids, writable
from memowidgets.data.pictures import (
    Resize,
    Stretch,
    is_hidden,
    open_tree,
    read_classes,
    stack_pictures,
)
from memowidgets.data.rows import labels_of, rows_of_hf
from memowidgets.files import make_private
from memowidgets.vocabulary import quoted

_MOST_DIGITS = 5
_A_FILE = 60  # characters of an id in the name of a file
_LONGEST_NAME = 255  # bytes of a file's name, on all usual file systems


@dataclass(frozen=True)
class ImageSample:
    """One image of an `ImageDataset`.

    Attributes
    ----------
    id : str
        Id of the sample.
    image : array of shape (height, width, channels), uint8
        Pixels with one channel (grey) or three (red, green, blue).
    label : int
        Label that it is trained on.
    canary : bool
        Whether it is a canary.
    """

    id: str
    image: NDArray[np.uint8]
    label: int
    canary: bool = False


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ImageDataset(Dataset):
    """Labelled images of one size; created by `from_arrays`, `from_folder` or `from_hf`.

    Attributes
    ----------
    images : array of shape (n, height, width, channels), uint8
        Pixels of the images.
    ids, labels, class_names, canaries, source
        As in `Dataset`.

    Examples
    --------
    >>> import numpy as np
    >>> pixels = np.arange(256, dtype=np.uint8).reshape(4, 8, 8)
    >>> data = ImageDataset.from_arrays(pixels, [0, 1, 0, 1], ["cat", "dog"])
    >>> data
    ImageDataset(4 images of 8×8×1, 2 classes)
    >>> data[1].label, data[1].id
    (1, '1')
    """

    images: NDArray[np.uint8]

    _fields: ClassVar[tuple[str, ...]] = ("images",)
    _noun: ClassVar[str] = "images"

    @classmethod
    def from_arrays(
        cls,
        images: ArrayLike,
        labels: ArrayLike,
        class_names: Sequence[str] | None = None,
        ids: Iterable[str] | None = None,
    ) -> Self:
        """Create a dataset from arrays in memory.

        Parameters
        ----------
        images : array-like of shape (n, h, w), (n, h, w, 1 or 3) or (n, 1 or 3, h, w)
            Pixels as uint8 from 0 to 255, or as bool or real numbers from 0 to 1. The last axis has
            the channels if it can have them.
        labels : array-like of shape (n,)
            Labels as integers from 0, or as strings.
        class_names : sequence of str, optional
            Names of the classes. By default their numbers, or the strings that occur, sorted.
        ids : sequence of str, optional
            Unique names of the samples. By default the index of a Series, else their positions.

        Returns
        -------
        ImageDataset

        Raises
        ------
        ValueError
            If the shapes differ, a pixel is not finite or out of range, a label is not a class, ids
            repeat, or there is only one class. The message names the row.

        Warns
        -----
        UserWarning
            If a class never occurs, or equal images have different labels.
        """
        check_same_order(ids=ids, labels=labels)
        pixels = _checked_pixels(real_numbers(images, "images"))
        integers, names = checked_classes(labels, class_names)
        if len(integers) != len(pixels):
            raise ValueError(
                f"{len(pixels)} images but {len(integers)} labels; pass one for each"
            )
        named, own = named_ids(ids, len(pixels), labels)
        data = cls(named, integers, names, images=pixels, own_ids=own)
        data._warn_of_contradictions()
        return data

    @classmethod
    def from_folder(
        cls,
        path: str | os.PathLike[str],
        resize: Resize | None = None,
        stretch: Stretch = False,
    ) -> Self:
        """Read pictures in class folders, such as ``cats/1.png`` and ``dogs/2.jpg``.

        Parameters
        ----------
        path : path-like
            A folder, or a zip of one, which is read without extracting it. Hidden files are
            ignored.
        resize : int or (height, width), optional
            Size of all pictures. With a pair the proportions may change. A number is the side of a
            square: the shorter side is scaled to it, and the middle is cut out. Without it,
            pictures of different sizes are an error.
        stretch : bool or (int, int)
            Levels of pictures of 16 bits that become black and white: True for the lowest and the
            highest of all of them, or two levels, such as ``(0, 4095)`` for 12 bits. Without it
            65535 becomes white, so pictures that use fewer bits are dark and lose levels.

        Returns
        -------
        ImageDataset
            Images whose ids are the paths below `path`. They have one channel if all pictures
            are grey, else three. Transparent parts become white, and of an animated picture the
            first image is used.

        Raises
        ------
        FileNotFoundError
            If the folder or zip does not exist.
        ValueError
            If the pictures have different sizes (two are named), or there are fewer than two
            classes with pictures.
        ImportError
            If Pillow is missing.

        Warns
        -----
        UserWarning
            If files are left out because they are not pictures, broken or too large, a class folder
            has no picture, or pictures of 16 bits are reduced to 8, with the number of grey levels
            that are left.
        """
        with open_tree(path) as files:
            data = cls.from_arrays(*read_classes(files, resize, str(path), stretch))
        return data.with_source(
            "from_folder", path=path, resize=resize, stretch=stretch
        )

    @classmethod
    def from_hf(
        cls,
        dataset: object,
        image: str = "image",
        label: str = "label",
        class_names: Sequence[str] | None = None,
        ids: str | None = None,
        resize: Resize | None = None,
        stretch: Stretch = False,
    ) -> Self:
        """Create a dataset from a `datasets.Dataset` in memory.

        Parameters
        ----------
        dataset : datasets.Dataset
            One split, such as ``load_dataset("beans")["train"]``.
        image, label : str
            Names of the columns with the pictures, a ``datasets.Image()``, and the labels.
        class_names : sequence of str, optional
            Names of the classes. By default those of a ``ClassLabel`` column, else the numbers, or
            the strings that occur, sorted. The names of a ``ClassLabel`` column in another order
            number the classes anew; other names replace them.
        ids : str, optional
            Name of the column with unique names of the samples. By default ``id`` if there is such
            a column, else positions.
        resize, stretch
            As in `from_folder`.

        Returns
        -------
        ImageDataset
            Without a `source`: pass the dataset to `Audit.open` again.

        Raises
        ------
        ValueError
            As in `from_arrays`, and if a column is missing, a value is not a picture, or sizes
            differ and `resize` is None. The message names the row.
        TypeError
            If `dataset` has several splits, is streamed, or is something else.

        Warns
        -----
        UserWarning
            If a class never occurs, or pictures of 16 bits are reduced to 8.
        """
        rows = rows_of_hf(dataset)
        about = labels_of(rows, label, class_names, ids, image=image)
        pixels = stack_pictures(rows.columns[image], resize, rows.where, stretch)
        return cls.from_arrays(pixels, *about[:3])

    def _summary(self) -> Iterable[str]:
        shape = "×".join(map(str, self.images.shape[1:]))
        return [f"{len(self)} images of {shape}", f"{len(self.class_names)} classes"]

    def _sample(self, index: int) -> ImageSample:
        name = str(self.ids[index])
        label = int(self.labels[index])
        return ImageSample(name, self.images[index], label, self.is_canary(index))

    def _contents(self) -> Iterable[bytes]:
        shape = str(self.images.shape[1:]).encode()
        return (shape + np.ascontiguousarray(image).tobytes() for image in self.images)

    def _columns(self) -> dict[str, Any]:
        return {"image": self.images} | super()._columns()

    def to_folder(self, path: str | os.PathLike[str]) -> Self:
        """Write the images as PNG files in class folders, and return what they give when read.

        Parameters
        ----------
        path : path-like
            Folder to create, outside of run directories. Only its owner can read it.

        Returns
        -------
        ImageDataset
            The same images, read again by `from_folder`: sorted by class, with the files' paths as
            ids. It marks no canaries, and has no class without an image.

        Raises
        ------
        ValueError
            If the name of a class cannot be the name of a folder, or only one class has an image.
            Nothing is written then.
        FileExistsError
            If the folder exists.
        """
        from PIL import Image

        target = writable(path, overwrite=False)
        for name in self.class_names:
            if not _can_be_folder(name):
                raise ValueError(
                    f"the class {quoted(name)} cannot be the name of a folder; make the dataset "
                    "with other class_names"
                )
        width = len(str(len(self)))
        try:
            for row, (image, label) in enumerate(
                zip(self.images, self.labels, strict=True)
            ):
                file_name = re.sub(r"[^\w.-]", "_", str(self.ids[row]))[-_A_FILE:]
                file = (
                    target
                    / self.class_names[label]
                    / f"{row:0{width}d}-{file_name}.png"
                )
                make_private(file.parent)
                file.touch(mode=0o600)
                plane = image[..., 0] if image.shape[2] == 1 else image
                Image.fromarray(plane).save(file)
            return self.from_folder(target)
        except BaseException:  # a folder with some of the images would look like all
            shutil.rmtree(target, ignore_errors=True)
            raise

    def with_canaries(
        self, n: int, kind: str | ImageDataset = "mislabelled", seed: int = 0
    ) -> Self:
        """Plant canaries: samples that teach nothing about the others.

        Parameters
        ----------
        n : int
            Number of canaries.
        kind : {"mislabelled", "ood"} or ImageDataset
            ``"mislabelled"`` gives `n` images a wrong label, drawn evenly. The others replace `n`
            images by out-of-distribution ones with random labels, as in Aerni et al., 2024.
            ``"ood"`` uses scanned digits that are enlarged, coloured and arranged so that no two
            look alike. A dataset gives some of its images, scaled to this one's size.
        seed : int
            Seed for the choice of images and labels.

        Returns
        -------
        ImageDataset
            Dataset of the same length and order, whose `canaries` marks the planted samples. The id
            of a replaced image is ``"canary/"`` followed by the id of the original.

        Raises
        ------
        ValueError
            If there are more canaries than images, or the kind is unknown.
        """
        if not isinstance(kind, ImageDataset) and kind != "ood":
            return super().with_canaries(n, kind, seed)
        rng = np.random.default_rng(seed)
        mask, chosen = self._draw_canaries(n, rng)
        labels = self.labels.copy()
        images = np.array(self.images)
        labels[chosen] = rng.integers(len(self.class_names), size=len(chosen))
        shape = self.images.shape[1:]
        if not isinstance(kind, ImageDataset):
            images[chosen] = digit_collages(len(chosen), shape, rng)
        elif len(chosen) > len(kind):
            raise ValueError(
                f"{len(chosen)} canaries do not fit into {len(kind)} images of others"
            )
        else:
            drawn = rng.choice(len(kind), size=len(chosen), replace=False)
            for position, image in zip(chosen, kind.images[drawn], strict=True):
                images[position] = fit_image(image, shape)
        ids = self.ids.tolist()
        for position in chosen:
            ids[position] = f"canary/{ids[position]}"
        return self._copy_with(images=images, labels=labels, ids=ids, canaries=mask)


def _can_be_folder(name: str) -> bool:
    """Return whether a folder can have this name and is read as a class again."""
    is_one = name and Path(name).name == name and "\0" not in name
    fits = len(name.encode()) <= _LONGEST_NAME and name.strip() == name
    return bool(is_one and fits and not is_hidden(name))


def _checked_pixels(images: NDArray[Any]) -> NDArray[np.uint8]:
    if images.ndim == 3:
        images = images[..., np.newaxis]
    elif (
        images.ndim == 4 and images.shape[3] not in (1, 3) and images.shape[1] in (1, 3)
    ):
        images = np.moveaxis(images, 1, -1)
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise ValueError(
            "images must have the shape (n, height, width), (n, height, width, 1 or 3) or "
            f"(n, 1 or 3, height, width), not {images.shape}"
        )
    if 0 in images.shape:
        raise ValueError(f"images are empty: their shape is {images.shape}")
    if images.dtype == np.uint8:
        # a copy, because the caller may change the original
        return np.array(images, order="C")
    rows = images.reshape(len(images), -1)
    check_finite(rows, "images", "remove or correct them")
    inside = ((rows >= 0) & (rows <= 1)).all(axis=1)
    if not inside.all():
        row = int(np.argmin(inside))
        raise ValueError(
            f"images of dtype {images.dtype} must lie between 0 and 1 (or be uint8); row {row} "
            f"ranges from {rows[row].min():g} to {rows[row].max():g}"
        )
    # float16 has too few digits for the product
    return np.rint(images * np.float32(255)).astype(np.uint8)


def digit_collages(
    n: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Draw scikit-learn's digits, enlarged and coloured, on a coloured ground, (n, *shape).

    Each image has its own colours and background, and one to five digits with their own size,
    place, rotation and transparency. Canaries that look alike under random labels are never fitted
    and so never memorised, which is why these differ clearly.
    """
    from sklearn.datasets import load_digits

    scans = load_digits().images / 16.0
    return np.array(
        [_collage(scans, shape, rng) for _ in range(n)], dtype=np.uint8
    ).reshape(n, *shape)


def fit_image(image: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return an image at another height, width and number of channels, bilinearly."""
    height, width, channels = shape
    values = image.astype(np.float64)
    if channels == 1 and image.shape[2] == 3:
        values = values @ np.array([[0.299], [0.587], [0.114]])
    values = _stretched(values, height, width)
    return np.rint(np.broadcast_to(values, shape)).astype(np.uint8)


def _collage(
    scans: NDArray[np.float64], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.uint8]:
    height, width, channels = shape
    canvas = _ground(shape, rng)
    for _ in range(rng.integers(1, _MOST_DIGITS + 1)):
        scan = np.rot90(scans[rng.integers(len(scans))], int(rng.integers(4)))
        tall = round(rng.uniform(0.4, 1.0) * height)
        wide = round(rng.uniform(0.4, 1.0) * width)
        ink = _stretched(scan, max(1, tall), max(1, wide))
        top = rng.integers(height - len(ink) + 1)
        left = rng.integers(width - ink.shape[1] + 1)
        cover = (rng.uniform(0.6, 1.0) * ink)[..., np.newaxis]
        part = canvas[top : top + len(ink), left : left + ink.shape[1]]
        part[...] = part * (1 - cover) + rng.uniform(0, 255, channels) * cover
    pixels: NDArray[np.uint8] = np.rint(canvas).astype(np.uint8)
    return pixels


def _ground(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a gradient from one colour to another, at a random angle."""
    height, width, channels = shape
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    share = 0.5 + 0.35 * (np.cos(angle) * x + np.sin(angle) * y)
    mix = np.clip(share, 0, 1)[..., np.newaxis]
    one, other = rng.uniform(0, 255, (2, channels))
    ground: NDArray[np.float64] = one * mix + other * (1 - mix)
    return ground


def _stretched(values: NDArray[Any], height: int, width: int) -> NDArray[np.float64]:
    from scipy.ndimage import zoom

    factors = (height / len(values), width / values.shape[1], 1)[: values.ndim]
    result: NDArray[np.float64] = zoom(
        values, factors, order=1, mode="nearest", grid_mode=True
    )
    return result
