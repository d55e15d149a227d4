"""Safe decoding of pictures in a folder tree or a zip; nothing is extracted to disk."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user, whole_number
from memowidgets.files import checked_path
from memowidgets.vocabulary import listed, quoted, visible

if TYPE_CHECKING:
    from PIL import Image


Resize = int | tuple[int, int]
Stretch = bool | tuple[int, int]
# what reads each file, by its path with slashes; a folder's path ends with one, and gives nothing
Tree = dict[str, Callable[[], bytes]]
# (height, width, 1 or 3), uint8, or uint16 of more than 256 grey levels
Pixels = NDArray[Any]

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 50_000_000
MOST_BYTES = 100_000_000
_NAMED = 3
_TOO_MANY = f"more than {MOST_PIXELS // 1_000_000} million pixels"
_WIDEST_GREY = 65535
_SHORT_GREY = ("I", "I;16", "I;16L", "I;16B", "I;16N")
_NOT_READ = {
    b"avif": "AVIF",
    b"avis": "AVIF",
    b"heic": "HEIC",
    b"heix": "HEIC",
    b"mif1": "HEIF",
}


class UnreadableError(Exception):
    """A file is not a usable picture; the message says why."""


@contextmanager
def open_tree(path: str | os.PathLike[str], below: str | None = None) -> Iterator[Tree]:
    """Yield files and folders of a tree of class folders, in a folder or a zip, but hidden ones.

    Parameters
    ----------
    path : path-like
        A folder, or a zip of one, which is read where it lies. In a zip everything may lie below
        one more folder, which is how most programs pack it.
    below : str, optional
        Name of a folder, anywhere in the tree, that has the class folders.

    Raises
    ------
    FileNotFoundError
        If the folder or zip does not exist.
    ValueError
        If the file is not a zip.
    """
    place = checked_path(path)
    if place.is_dir():
        yield _below(_files_below(place), below)
        return
    if not place.is_file():
        raise FileNotFoundError(f"{place} is not a folder or a zip")
    try:
        archive = zipfile.ZipFile(place)
    except zipfile.BadZipFile:
        raise ValueError(
            f"{place} is neither a folder nor a zip; unpack it first"
        ) from None
    with archive:
        tree = _files_inside(archive)
        files = [name for name in tree if not name.endswith("/")]
        tops = {name.partition("/")[0] for name in tree}
        if (
            below is None
            and len(tops) == 1
            and all(name.count("/") > 1 for name in files)
        ):
            below = tops.pop()
        yield _below(tree, below)


def _below(files: Tree, folder: str | None) -> Tree:
    if folder is None:
        return files
    rests = {
        f"/{name}".partition(f"/{folder}/")[2]: read for name, read in files.items()
    }
    return {rest: read for rest, read in rests.items() if rest}


def read_classes(
    files: Tree,
    resize: Resize | None,
    where: str,
    stretch: Stretch = False,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...], list[str]]:
    """Decode the pictures of a tree of class folders.

    The result is what `ImageDataset.from_arrays` takes: images, labels, names of the classes, and
    the paths below the root as ids.

    Parameters
    ----------
    files : dict of str to callable
        Files of `open_tree`.
    resize, stretch
        As in `ImageDataset.from_folder`.
    where : str
        Name of the tree in messages.

    Raises
    ------
    ValueError
        If there are fewer than two class folders with pictures.

    Warns
    -----
    UserWarning
        If files are left out or pictures changed, or a class folder has no picture. The message has
        the number, the reason and names.
    """
    tops = {name.partition("/")[0] for name in files if "/" in name}
    files = {name: read for name, read in files.items() if not name.endswith("/")}
    _check_classes(files, where)
    pictures = _Stack(where, resize, stretch)
    folders = []
    left_out = {
        "outside the class folders": [name for name in files if "/" not in name]
    }
    with warnings.catch_warnings():
        # Pillow's warnings; this module checks and reports itself
        warnings.simplefilter("ignore")
        for name in (name for name in files if "/" in name):
            try:
                pictures.add(decode(files[name]()), name)
            except UnreadableError as error:
                left_out.setdefault(str(error), []).append(name)
                continue
            folders.append(readable(name.partition("/")[0]))
    reasons = [
        f"{len(some)} {reason} ({_some(some)})"
        for reason, some in left_out.items()
        if some
    ]
    if reasons:
        count = sum(map(len, left_out.values()))
        warn_user(f"{count} files of {where} are left out: {'; '.join(reasons)}")
    empty = sorted({readable(top) for top in tops} - set(folders))
    if empty and folders:
        warn_user(
            f"{len(empty)} of {len(tops)} class folders of {where} have no picture, so they are no "
            f"classes: {_some(empty)}"
        )
    names, labels = np.unique(np.array(folders, dtype=object), return_inverse=True)
    if len(names) < 2:
        classes = (
            f"one class folder with pictures, {quoted(names[0])}"
            if len(names)
            else "no picture"
        )
        raise ValueError(
            f"{where} has {classes}; a classifier needs at least two class folders, as in "
            "cats/1.png and dogs/2.png"
        )
    return pictures.stacked(), labels, tuple(names), pictures.names


def stack_pictures(
    pictures: Iterable[Any], resize: Resize | None, where: str, stretch: Stretch = False
) -> NDArray[np.uint8]:
    """Return Pillow's pictures as one array, (n, height, width, channels).

    Raises
    ------
    ValueError
        If one is missing or is not a picture, or their sizes differ and `resize` is None.
    """
    stack = _Stack(where, resize, stretch)
    for row, picture in enumerate(pictures):
        if not hasattr(picture, "convert"):
            raise ValueError(
                f"row {row} of {where} is not a picture; cast the column to datasets.Image()"
            )
        try:
            stack.add(_pixels(picture), f"row {row}")
        except UnreadableError as error:
            raise ValueError(
                f"row {row} of {where} is not a picture: {error}"
            ) from None
    return stack.stacked()


def decode(raw: bytes) -> Pixels:
    """Decode a picture, (height, width, 1 or 3): the first of an animated one, on white ground.

    Raises
    ------
    UnreadableError
        If it is not a picture, broken, or too large.
    ImportError
        If Pillow is missing.
    """
    from PIL import Image, UnidentifiedImageError

    if not raw:
        raise UnreadableError("empty")
    try:
        with Image.open(io.BytesIO(raw), formats=FORMATS) as picture:
            if picture.size[0] * picture.size[1] <= MOST_PIXELS:
                return _pixels(picture)
    except UnidentifiedImageError:
        kind = _NOT_READ.get(raw[8:12]) if raw[4:8] == b"ftyp" else None
        unread = f"{kind}, which is not read: save it as PNG or JPEG"
        raise UnreadableError("not a picture" if kind is None else unread) from None
    except Image.DecompressionBombError:
        raise UnreadableError(_TOO_MANY) from None
    except (UnreadableError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - decoders stumble over broken files in any way
        raise UnreadableError("broken") from None
    raise UnreadableError(_TOO_MANY)


def resize_picture(image: Pixels, size: Resize) -> Pixels:
    """Return a picture at another size, antialiased.

    A pair is (height, width), and the proportions may change. A number is the side of a square: the
    shorter side is scaled to it, and the middle is cut out.
    """
    from PIL import Image

    height, width = image.shape[:2]
    wanted = (size, size) if isinstance(size, int) else size
    box = None
    if isinstance(size, int):
        side = min(height, width)
        left = (width - side) / 2
        top = (height - side) / 2
        box = (left, top, left + side, top + side)
    plane = image[..., 0] if image.shape[2] == 1 else image
    picture = Image.fromarray(
        plane.astype(np.float32) if image.dtype == np.uint16 else plane
    )
    small = np.asarray(picture.resize(wanted[::-1], Image.Resampling.BILINEAR, box=box))
    pixels: Pixels = np.rint(small).astype(image.dtype).reshape(*wanted, image.shape[2])
    return pixels


class _Stack:
    """Pictures of one size, added one after another."""

    def __init__(self, where: str, resize: Resize | None, stretch: Stretch) -> None:
        sides = (
            ()
            if resize is None
            else resize
            if isinstance(resize, tuple | list)
            else (resize,)
        )
        for side in sides:
            whole_number("a side in resize=", side, 1)
        if (
            not isinstance(stretch, bool)
            and not 0 <= stretch[0] < stretch[1] <= _WIDEST_GREY
        ):
            raise ValueError(
                "stretch must be True, or the levels of 16 bits that become black and white, such "
                f"as (0, 4095), not {stretch!r}"
            )
        self.names: list[str] = []
        self._where = where
        self._resize = resize
        self._stretch = stretch
        self._images: list[Pixels] = []

    def add(self, image: Pixels, name: str) -> None:
        name = readable(name)
        if self._resize is not None:
            image = resize_picture(image, self._resize)
        first = self._images[0] if self._images else image
        if image.shape[:2] != first.shape[:2]:
            sizes = [f"{one.shape[0]}×{one.shape[1]}" for one in (first, image)]
            raise ValueError(
                f"the pictures of {self._where} have different sizes (height×width): "
                f"{quoted(self.names[0])} is {sizes[0]}, {quoted(name)} is {sizes[1]}. Pass "
                "resize=64, or resize=(height, width)"
            )
        self._images.append(image)
        self.names.append(name)

    def stacked(self) -> NDArray[np.uint8]:
        """Return all pictures as one array."""
        self._reduce()
        channels = max(image.shape[2] for image in self._images)
        height, width = self._images[0].shape[:2]
        stacked = np.empty((len(self._images), height, width, channels), dtype=np.uint8)
        for i, image in enumerate(self._images):
            stacked[i] = image  # a grey picture is repeated in all channels
        return stacked

    def _reduce(self) -> None:
        """Reduce pictures of 16 bits to 256 grey levels, all by the same levels."""
        wide = [i for i, image in enumerate(self._images) if image.dtype == np.uint16]
        if not wide:
            return
        low = min(int(self._images[i].min()) for i in wide)
        high = max(int(self._images[i].max()) for i in wide)
        black = 0
        white = _WIDEST_GREY
        if self._stretch:
            black, white = (
                (low, high) if isinstance(self._stretch, bool) else self._stretch
            )
        left = np.zeros(256, dtype=np.bool_)
        for i in wide:
            share = (self._images[i].astype(np.float64) - black) / max(white - black, 1)
            self._images[i] = np.rint(255 * share.clip(0, 1)).astype(np.uint8)
            left[self._images[i]] = True
        advice = "" if self._stretch else "; stretch=True uses all 256 for them"
        warn_user(
            f"{len(wide)} pictures of {self._where}: 16 bits reduced to 8: {int(left.sum())} grey "
            f"levels are left of {low} to {high}{advice} ({_some([self.names[i] for i in wide])})"
        )


def readable(name: str) -> str:
    """Return a file's name as valid text; invalid bytes are shown as numbers."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _check_classes(files: Tree, where: str) -> None:
    """Raise for a tree of trees, such as train and test, whose top folders are not classes."""
    inner: dict[str, set[str]] = {}
    for top, *rest in (name.split("/") for name in files):
        if len(rest) == 1:
            return
        if rest:
            inner.setdefault(top, set()).add(rest[0])
    if len(inner) > 1 and len(set(map(frozenset, inner.values()))) == 1:
        names = sorted(inner)
        raise ValueError(
            f"{where} has {visible(names[0], 40)} and {visible(names[1], 40)}, with the same "
            f"folders in each; pass one of them, as in {visible(str(Path(where) / names[0]))}"
        )


def _files_below(folder: Path) -> Tree:
    """Return the files of a tree. Class folders may be links; one further down could be a loop."""
    named = {
        path.relative_to(folder).as_posix(): path
        for path in (*folder.glob("*"), *folder.glob("*/**/*"))
    }
    return {
        (f"{name}/" if path.is_dir() else name): partial(
            _content, path.read_bytes, partial(os.path.getsize, path)
        )
        for name, path in sorted(named.items())
        if not any(map(is_hidden, name.split("/")))
    }


def _files_inside(archive: zipfile.ZipFile) -> Tree:
    """Return the files of a zip. Paths that lead out of it are hidden ones: they have two dots."""
    return {
        info.filename: partial(
            _content, partial(archive.read, info), partial(getattr, info, "file_size")
        )
        for info in sorted(archive.infolist(), key=lambda info: info.filename)
        if not any(map(is_hidden, PurePosixPath(info.filename).parts))
    }


def _content(read: Callable[[], bytes], size: Callable[[], int]) -> bytes:
    try:
        if size() > MOST_BYTES:  # zipfile reads no more than that
            raise UnreadableError(f"larger than {MOST_BYTES // 1_000_000} MB")
        return read()
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror})") from None
    except (RuntimeError, zipfile.BadZipFile, zlib.error, EOFError):
        raise UnreadableError("encrypted or broken") from None


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is left out."""
    return name.startswith(".") or name == "__MACOSX"


def _pixels(picture: Image.Image) -> Pixels:
    from PIL import Image, ImageOps

    picture = ImageOps.exif_transpose(picture)  # as it is to be looked at
    if picture.mode in _SHORT_GREY:
        values = np.asarray(picture).astype(np.int64)
        if values.min() < 0 or values.max() > _WIDEST_GREY:
            raise UnreadableError("grey levels beyond 16 bits")
        return values.astype(np.uint16)[..., np.newaxis]
    if picture.mode == "F":
        raise UnreadableError("real numbers of unknown range")
    is_grey = picture.mode in ("1", "L", "LA")
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        colours = picture.convert("RGBA")
        picture = Image.alpha_composite(
            Image.new("RGBA", colours.size, "white"), colours
        )
    array = np.asarray(picture.convert("L" if is_grey else "RGB"), dtype=np.uint8)
    return array[..., np.newaxis] if is_grey else array


def _some(names: Sequence[str]) -> str:
    return listed(map(readable, names), _NAMED)
