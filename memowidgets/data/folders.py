"""Safe decoding of pictures in a folder tree or a zip; nothing is extracted to disk."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import checked_path
from memowidgets.visible import listed, quoted, visible

if TYPE_CHECKING:
    from PIL import Image


Resize = int | tuple[int, int]

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 50_000_000
MOST_BYTES = 100_000_000
_MOST_RATIO = 200
_NAMED = 3
_ORIENTATION = 0x0112  # tag of EXIF
_WIDEST_GREY = 65535
_SHORT_GREY = ("I", "I;16", "I;16L", "I;16B", "I;16N")


class UnreadableError(Exception):
    """A file is not a usable picture; the message says why."""


@dataclass(frozen=True)
class PictureFile:
    """File of a tree.

    Attributes
    ----------
    name : str
        Path below the root, with slashes.
    read : callable
        Function that returns the content.
    """

    name: str
    read: Callable[[], bytes]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the folders on the path, then of the file."""
        return PurePosixPath(self.name).parts


@dataclass(frozen=True)
class Pictures:
    """Decoded pictures of one size.

    Attributes
    ----------
    images : array of shape (n, height, width, channels), uint8
        Pixels. One channel if all pictures are grey, else three.
    labels : array of shape (n,), int64
        Class of each picture.
    class_names : tuple of str
        Sorted names of the class folders.
    ids : list of str
        Paths below the root.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    ids: list[str]


@contextmanager
def open_tree(path: str | os.PathLike[str]) -> Iterator[list[PictureFile]]:
    """Yield the files below a folder or inside a zip, sorted by name, without hidden ones.

    Raises
    ------
    FileNotFoundError
        If the folder or zip does not exist.
    ValueError
        If the file is not a zip, or is a zip with a path that leads out of it or a decompression
        bomb.
    """
    place = checked_path(path)
    if place.is_dir():
        yield _files_below(place)
        return
    if not place.is_file():
        raise FileNotFoundError(f"{place} is not a folder or a zip")
    try:
        archive = zipfile.ZipFile(place)
    except zipfile.BadZipFile:
        raise ValueError(f"{place} is neither a folder nor a zip") from None
    with archive:
        yield _files_inside(archive, place)


def read_classes(
    files: Sequence[PictureFile], depth: int, resize: Resize | None, where: str
) -> Pictures:
    """Decode the pictures of a tree of class folders.

    Parameters
    ----------
    files : sequence of PictureFile
        Files of the tree.
    depth : int
        Index of the path component that names the class.
    resize : int, (height, width) or None
        As in `ImageDataset.from_folder`.
    where : str
        Name of the tree in messages.

    Warns
    -----
    UserWarning
        If files are left out or pictures changed. The message has the number, the reason and
        names.
    """
    resizing(resize)
    _check_classes(files, depth, where)
    reader = _Reader(where, resize)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's warnings; this module checks and reports itself
        for file in files:
            if len(file.parts) > depth + 1:
                reader.take(file, file.parts[depth])
            else:
                reader.leave_out(file.name, "outside the class folders")
    return reader.pictures()


def stacked(pictures: Iterable[Any], resize: Resize | None, where: str) -> NDArray[np.uint8]:
    """Return Pillow's pictures, or arrays of pixels, as one array (n, height, width, channels).

    Raises
    ------
    ValueError
        If one is missing or is not a picture, or their sizes differ and `resize` is None.
    """
    resizing(resize)
    reader = _Reader(where, resize)
    for row, picture in enumerate(pictures):
        try:
            pixels, notes = _pixels(_as_picture(picture))
        except UnreadableError as error:
            raise ValueError(f"row {row} of {where} is not a picture: {error}") from None
        reader.add(pixels, notes, f"row {row}")
    return reader.images()


def decoded(raw: bytes) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Decode a picture of shape (height, width, 1 or 3), and return notes on what was changed.

    Raises
    ------
    UnreadableError
        If it is not a picture, broken, or too large.
    ImportError
        If Pillow is missing.
    """
    module = _pillow()
    if not raw:
        raise UnreadableError("empty")
    try:
        with module.open(io.BytesIO(raw), formats=FORMATS) as picture:
            _refuse_enormous(*picture.size)
            return _pixels(picture)
    except module.UnidentifiedImageError:
        raise UnreadableError("not a picture") from None
    except module.DecompressionBombError:
        raise UnreadableError(f"more than {MOST_PIXELS // 1_000_000} million pixels") from None
    except (UnreadableError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - decoders stumble over broken files in any way
        raise UnreadableError("broken") from None


def _refuse_enormous(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise UnreadableError(f"more than {MOST_PIXELS // 1_000_000} million pixels")


def resized(image: NDArray[np.uint8], size: Resize) -> NDArray[np.uint8]:
    """Return a picture at another size, antialiased.

    A pair is (height, width), and the proportions may change. A number is the side of a square: the
    shorter side is scaled to it, and the middle is cut out.
    """
    module = _pillow()
    height, width = image.shape[:2]
    wanted = (size, size) if isinstance(size, int) else size
    box = None
    if isinstance(size, int):
        side = min(height, width)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    picture = module.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    small = picture.resize(wanted[::-1], module.Resampling.BILINEAR, box=box)
    return np.asarray(small, dtype=np.uint8).reshape(*wanted, image.shape[2])


def resizing(size: Any) -> None:
    """Raise if this is not a valid size."""
    sides = (size,) if isinstance(size, int) else size
    if size is None:
        return
    whole = isinstance(sides, tuple | list) and all(
        isinstance(s, int) and not isinstance(s, bool) and s > 0 for s in sides
    )
    if not whole or not (isinstance(size, int) or len(sides) == 2):
        raise ValueError(f"resize must be a number of pixels or (height, width), not {size!r}")


class _Reader:
    """Decoder of one file after another, which collects notes on them."""

    def __init__(self, where: str, resize: Resize | None) -> None:
        self._where, self._resize = where, resize
        self._images: list[NDArray[np.uint8]] = []
        self._classes: list[str] = []
        self._ids: list[str] = []
        self._left_out: dict[str, list[str]] = {}
        self._changed: dict[str, list[str]] = {}

    def take(self, file: PictureFile, class_name: str) -> None:
        try:
            image, notes = decoded(file.read())
        except UnreadableError as error:
            self.leave_out(file.name, str(error))
            return
        self.add(image, notes, file.name)
        self._classes.append(class_name)

    def add(self, image: NDArray[np.uint8], notes: Sequence[str], name: str) -> None:
        for note in notes:
            self._changed.setdefault(note, []).append(name)
        if self._resize is not None:
            image = resized(image, self._resize)
        self._check_size(name, image)
        self._images.append(image)
        self._ids.append(readable(name))

    def leave_out(self, name: str, reason: str) -> None:
        self._left_out.setdefault(reason, []).append(name)

    def images(self) -> NDArray[np.uint8]:
        """Return all pictures that were read as one array, and warn of changed ones."""
        self._say()
        return self._stacked()

    def pictures(self) -> Pictures:
        """Return all pictures that were read, and warn of those that were left out."""
        self._say()
        names = sorted(set(self._classes))
        if len(names) < 2:
            found = f"one class folder with pictures, {quoted(names[0])}" if names else "no picture"
            raise ValueError(
                f"{self._where} has {found}; a classifier needs at least two class folders, as "
                "in cats/1.png and dogs/2.png"
            )
        number = {name: i for i, name in enumerate(names)}
        labels = np.array([number[name] for name in self._classes], dtype=np.int64)
        return Pictures(self._stacked(), labels, tuple(map(readable, names)), self._ids)

    def _stacked(self) -> NDArray[np.uint8]:
        channels = max(image.shape[2] for image in self._images)
        height, width = self._images[0].shape[:2]
        grey = sum(image.shape[2] == 1 for image in self._images)
        if channels == 3 and grey:
            _warn(f"{grey} grey pictures of {self._where} were turned into colour pictures")
        stacked = np.empty((len(self._images), height, width, channels), dtype=np.uint8)
        for i, image in enumerate(self._images):
            stacked[i] = image  # a grey picture is repeated in all channels
        return stacked

    def _check_size(self, name: str, image: NDArray[np.uint8]) -> None:
        if not self._images or image.shape[:2] == self._images[0].shape[:2]:
            return
        sizes = [f"{i.shape[0]}×{i.shape[1]}" for i in (self._images[0], image)]
        raise ValueError(
            f"the pictures of {self._where} have different sizes (height×width): "
            f"{quoted(self._ids[0])} is {sizes[0]}, "
            f"{quoted(readable(name))} is {sizes[1]}. Pass resize=64, or "
            "resize=(height, width)"
        )

    def _say(self) -> None:
        if self._left_out:
            count = sum(map(len, self._left_out.values()))
            _warn(f"{count} files of {self._where} are left out: {_listed(self._left_out)}")
        for note, names in self._changed.items():
            _warn(f"{len(names)} pictures of {self._where}: {note} ({_some(names)})")


def readable(name: str) -> str:
    """Return a file's name as valid text; invalid bytes are shown as numbers."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _check_classes(files: Sequence[PictureFile], depth: int, where: str) -> None:
    """Raise for a tree of trees, such as train and test, whose top folders are not classes."""
    inner: dict[str, set[str]] = {}
    for file in files:
        if len(file.parts) <= depth + 1:
            continue
        if len(file.parts) == depth + 2:
            return
        inner.setdefault(file.parts[depth], set()).add(file.parts[depth + 1])
    if len(inner) > 1 and len(set(map(frozenset, inner.values()))) == 1:
        names = sorted(inner)
        raise ValueError(
            f"{where} has {visible(names[0], 40)} and {visible(names[1], 40)}, with the "
            "same "
            "folders in each; pass one "
            f"of them, as in {visible(str(Path(where) / names[0]))}"
        )


def _files_below(folder: Path) -> list[PictureFile]:
    """Return the files of a tree. Class folders may be links, other folders may not."""
    files, links = _walked(folder)
    classes = [name for name in links if "/" not in name and (folder / name).is_dir()]
    skipped = [name for name in links if name not in classes]
    for name in classes:
        found, deeper = _walked(folder / name, f"{name}/")
        files, skipped = [*files, *found], [*skipped, *deeper]
    if skipped:
        _warn(
            f"{len(skipped)} links in {folder} are not followed ({_some(sorted(skipped))}); put "
            "the folders themselves there"
        )
    return sorted(files, key=lambda file: file.name)


def _walked(folder: Path, prefix: str = "") -> tuple[list[PictureFile], list[str]]:
    """Return the files below a folder, and the links that lead to a folder or to nothing."""
    files, links = [], []
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _hidden(name)]
        for name in [*folders, *(name for name in names if not _hidden(name))]:
            path = Path(top) / name
            shown = prefix + path.relative_to(folder).as_posix()
            if path.is_symlink() and not path.is_file():
                links.append(shown)
            elif path.is_file():
                files.append(_on_disk(path, shown))
    return files, links


def _on_disk(path: Path, name: str) -> PictureFile:
    def read() -> bytes:
        try:
            if path.stat().st_size > MOST_BYTES:
                raise UnreadableError(f"larger than {MOST_BYTES // 1_000_000} MB")
            return path.read_bytes()
        except OSError as error:
            raise UnreadableError(f"cannot be read ({error.strerror})") from None

    return PictureFile(name, read)


def _files_inside(archive: zipfile.ZipFile, path: Path) -> list[PictureFile]:
    files = []
    for info in archive.infolist():
        _check_entry(info, path)
        parts = PurePosixPath(info.filename).parts
        if not info.is_dir() and not any(map(_hidden, parts)):
            files.append(PictureFile(info.filename, _entry_reader(archive, info, path)))
    return sorted(files, key=lambda file: file.name)


def _check_entry(info: zipfile.ZipInfo, path: Path) -> None:
    name = info.orig_filename.replace("\\", "/")
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or (parts and parts[0].endswith(":")):
        raise ValueError(f"{path} has the path {quoted(readable(name))}, which leads out of it")
    swells = info.file_size > _MOST_RATIO * max(1, info.compress_size)
    if info.file_size > MOST_BYTES or (swells and info.file_size > MOST_BYTES // 100):
        raise ValueError(
            f"{path} looks like a decompression bomb: {quoted(readable(name))} expands from "
            f"{info.compress_size} to {info.file_size} bytes"
        )


def _entry_reader(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path
) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with archive.open(info) as stream:
                raw = stream.read(MOST_BYTES + 1)
        except RuntimeError:
            raise UnreadableError("encrypted") from None
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError):
            raise UnreadableError("broken") from None
        if len(raw) > MOST_BYTES:
            raise ValueError(
                f"{path} is a decompression bomb: {quoted(readable(info.filename))} is longer "
                "than it says"
            )
        return raw

    return read


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _as_picture(picture: Any) -> Image.Image:
    if hasattr(picture, "convert"):
        given: Image.Image = picture
        return given
    pixels = np.asarray(picture)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if picture is None or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)):
        kind = "nothing" if picture is None else type(picture).__name__
        raise UnreadableError(f"it has {kind}; cast the column to datasets.Image()")
    if pixels.dtype != np.uint8:
        if pixels.dtype.kind not in "iu" or pixels.min() < 0 or pixels.max() > 255:
            raise UnreadableError("its pixels are not numbers from 0 to 255")
        pixels = pixels.astype(np.uint8)
    from_pixels: Image.Image = _pillow().fromarray(pixels)
    return from_pixels


def _pixels(picture: Image.Image) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    notes = []
    if picture.getexif().get(_ORIENTATION, 1) != 1:
        picture = _turned(picture)
    if getattr(picture, "is_animated", False):
        notes.append("animated, only the first image is used")
    if picture.mode in _SHORT_GREY:
        notes.append("16 bits reduced to 8")
        return _shortened(picture), tuple(notes)
    if picture.mode == "F":
        raise UnreadableError("real numbers of unknown range")
    if _transparent(picture):
        notes.append("transparent parts became white")
        picture = _on_white(picture)
    grey = picture.mode in ("1", "L")
    array = np.asarray(picture.convert("L" if grey else "RGB"), dtype=np.uint8)
    return array[..., np.newaxis] if grey else array, tuple(notes)


def _turned(picture: Image.Image) -> Image.Image:
    """Return a picture as its EXIF orientation says that it is to be looked at."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(picture)


def _shortened(picture: Image.Image) -> NDArray[np.uint8]:
    values = np.asarray(picture).astype(np.int64)
    if values.min() < 0 or values.max() > _WIDEST_GREY:
        raise UnreadableError("grey levels beyond 16 bits")
    return np.rint(values / 257).astype(np.uint8)[..., np.newaxis]


def _transparent(picture: Image.Image) -> bool:
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        alpha = picture.convert("RGBA").getchannel("A")
        return bool(np.asarray(alpha).min() < 255)
    return False


def _on_white(picture: Image.Image) -> Image.Image:
    pixels = np.asarray(picture.convert("RGBA"), dtype=np.float64)
    alpha = pixels[..., 3:] / 255
    flat = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    merged: Image.Image = _pillow().fromarray(flat)
    return merged.convert("L") if picture.mode == "LA" else merged


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("reading pictures from files needs Pillow: pip install pillow") from error
    return Image


def _listed(reasons: dict[str, list[str]]) -> str:
    return "; ".join(f"{len(names)} {reason} ({_some(names)})" for reason, names in reasons.items())


def _some(names: Sequence[str]) -> str:
    return listed(map(readable, names), _NAMED)


def _warn(text: str) -> None:
    warnings.warn(visible(text), UserWarning, stacklevel=2)


def common_root(files: Sequence[PictureFile]) -> int:
    """Return the depth of the class folders in a zip: 1 if all lies in one folder, else 0."""
    tops = Counter(file.parts[0] for file in files)
    deep = all(len(file.parts) > 2 for file in files)
    return 1 if files and len(tops) == 1 and deep else 0
