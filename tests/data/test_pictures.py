"""Folders and zips of pictures: the good ones are taken, the others named, hostile ones refused."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from memowidgets.data import ImageDataset

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def noise(seed=0, size=(8, 8, 3)):
    return np.random.default_rng(seed).integers(256, size=size).astype(np.uint8)


def save(path, array, kind=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pillow.fromarray(array).save(path, kind, **options)


@pytest.fixture
def pets(tmp_path):
    for i in range(3):
        save(tmp_path / "cats" / f"{i}.png", noise(i))
        save(tmp_path / "dogs" / f"{i}.png", noise(10 + i))
    return tmp_path


def said(call):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        data = call()
    return data, "\n".join(str(warning.message) for warning in told)


def test_class_folders_become_classes_and_paths_ids(pets):
    data = ImageDataset.from_folder(pets)
    assert data.class_names == ("cats", "dogs")
    assert data.ids.tolist() == [
        f"{name}/{i}.png" for name in ("cats", "dogs") for i in range(3)
    ]
    np.testing.assert_array_equal(data.images[4], noise(11))
    assert data.images.dtype == np.uint8
    assert data.source["loader"] == "from_folder"


def test_a_zip_is_read_where_it_lies_also_below_one_top_folder(pets, tmp_path):
    plain = ImageDataset.from_folder(pets)
    for top in ("", "pets/"):
        file = tmp_path / f"{len(top)}.zip"
        with zipfile.ZipFile(file, "w") as out:
            for name in plain.ids:
                out.write(pets / name, top + name)
            out.writestr("__MACOSX/cats/._0.png", b"x")
        data = ImageDataset.from_folder(file)
        np.testing.assert_array_equal(data.images, plain.images)
        assert data.class_names == plain.class_names


def test_a_class_folder_without_a_picture_is_named(pets, tmp_path):
    (pets / "birds").mkdir()
    (pets / "fish" / "old").mkdir(parents=True)
    (pets / "fish" / "readme.txt").write_text("none yet")
    (pets / ".cache").mkdir()
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as out:
        for file in sorted(pets.rglob("*")):
            if "zip" not in file.name:
                out.write(file, f"pets/{file.relative_to(pets)}")
    for path in (pets, tmp_path / "pets.zip"):
        data, told = said(lambda path=path: ImageDataset.from_folder(path))
        assert data.class_names == ("cats", "dogs")
        assert "2 of 4 class folders" in told
        assert "birds, fish" in told


def test_what_is_no_good_picture_is_left_out_and_named(pets):
    (pets / "readme.txt").write_text("hello")
    (pets / "cats" / "notes.txt").write_text("no picture")
    (pets / "cats" / "empty.png").write_bytes(b"")
    whole = (pets / "dogs" / "0.png").read_bytes()
    (pets / "dogs" / "broken.png").write_bytes(whole[: len(whole) // 2])
    (pets / "dogs" / "bomb.png").write_bytes(_png_that_claims(60_000, 60_000))
    (pets / "cats" / ".hidden.png").write_bytes(whole)
    (pets / "dogs" / "gone.png").symlink_to("nowhere")
    (pets / "dogs" / "here").symlink_to(".")
    (pets / "cats").rename(pets.parent / "cats")
    (pets / "cats").symlink_to(pets.parent / "cats")
    data, told = said(lambda: ImageDataset.from_folder(pets))
    assert len(data) == 6
    assert "6 files" in told
    assert "1 cannot be read (No such file or directory) (dogs/gone.png)" in told
    assert "1 outside the class folders (readme.txt)" in told
    assert "1 not a picture (cats/notes.txt)" in told
    assert "1 empty (cats/empty.png)" in told
    assert "1 broken (dogs/broken.png)" in told
    assert "1 more than 50 million pixels (dogs/bomb.png)" in told
    assert "hidden" not in told


def _png_that_claims(width, height):
    def chunk(kind, content):
        check = zlib.crc32(kind + content)
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 10_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels)


def test_a_broken_picture_of_any_kind_never_ends_the_reading(pets):
    rng = np.random.default_rng(0)
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        out = io.BytesIO()
        pillow.fromarray(noise(3, (40, 40, 3))).save(out, kind)
        for i in range(12):
            raw = bytearray(out.getvalue()[: rng.integers(10, len(out.getvalue()))])
            for place in rng.integers(len(raw), size=4):
                raw[place] = rng.integers(256)
            (pets / "cats" / f"damaged-{i}.{kind}").write_bytes(raw)
    data, _ = said(lambda: ImageDataset.from_folder(pets, resize=8))
    assert len(data) >= 6


@pytest.mark.parametrize(("bits", "left"), [(16, 256), (12, 17), (10, 5)])
def test_sixteen_bits_are_brought_to_eight_and_what_is_left_is_said(
    bits, left, tmp_path
):
    levels = (
        np.arange(2**bits)[:: 2 ** (bits - 10)].reshape(2, 16, 32).astype(np.uint16)
    )
    for name, values in zip("ab", levels, strict=True):
        save(tmp_path / name / "deep.png", values)
    data, told = said(lambda: ImageDataset.from_folder(tmp_path))
    np.testing.assert_array_equal(data.images[..., 0], np.rint(levels / 257))
    assert f"2 pictures of {tmp_path}: 16 bits reduced to 8: " in told
    assert (
        f"{len(np.unique(data.images))} grey levels are left of 0 to {levels.max()}"
        in told
    )
    assert abs(len(np.unique(data.images)) - left) <= 1
    whole, told = said(lambda: ImageDataset.from_folder(tmp_path, stretch=True))
    assert "256 grey levels are left" in told
    np.testing.assert_array_equal(
        whole.images[..., 0], np.rint(255 * (levels / levels.max()))
    )
    pair, _ = said(
        lambda: ImageDataset.from_folder(tmp_path, stretch=(0, int(levels.max())))
    )
    np.testing.assert_array_equal(pair.images, whole.images)
    again, _ = said(lambda: ImageDataset.from_folder(**whole.source["arguments"]))
    np.testing.assert_array_equal(again.images, whole.images)
    small, _ = said(lambda: ImageDataset.from_folder(tmp_path, resize=4, stretch=True))
    assert small.images.shape == (2, 4, 4, 1)
    with pytest.raises(ValueError, match=r"stretch must be True.*\(4095, 0\)"):
        ImageDataset.from_folder(tmp_path, stretch=(4095, 0))


@pytest.mark.parametrize(("brand", "name"), [(b"avif", "AVIF"), (b"heic", "HEIC")])
def test_a_format_that_is_not_read_is_named(pets, brand, name):
    (pets / "cats" / "new.picture").write_bytes(b"\0\0\0\x20ftyp" + brand + b"\0" * 40)
    _, told = said(lambda: ImageDataset.from_folder(pets))
    assert f"1 {name}, which is not read" in told


def test_grey_pictures_stay_grey_alone_and_become_colour_among_others(tmp_path):
    save(tmp_path / "a" / "1.png", noise(1, (8, 8)))
    save(tmp_path / "b" / "1.jpg", noise(2, (8, 8)))
    assert ImageDataset.from_folder(tmp_path).images.shape == (2, 8, 8, 1)
    save(tmp_path / "b" / "2.png", noise(3))
    data = ImageDataset.from_folder(tmp_path)
    assert data.images.shape == (3, 8, 8, 3)
    np.testing.assert_array_equal(
        data.images[0], noise(1, (8, 8))[..., None].repeat(3, axis=2)
    )


def test_animated_transparent_and_palette_pictures(pets):
    frames = [pillow.fromarray(noise(i)) for i in range(3)]
    frames[0].save(
        pets / "cats" / "moving.gif", save_all=True, append_images=frames[1:]
    )
    clear = noise(5, (8, 8, 4))
    clear[..., 3] = 0
    save(pets / "cats" / "clear.png", clear)
    frames[1].quantize(16).save(pets / "dogs" / "palette.png")
    data = ImageDataset.from_folder(pets)
    assert len(data) == 9
    assert (data.images[data.ids.tolist().index("cats/clear.png")] == 255).all()
    palette = data.images[data.ids.tolist().index("dogs/palette.png")].astype(int)
    assert np.abs(palette - noise(1)).mean() < 40


def test_different_sizes_are_named_and_resize_mends_them(pets):
    save(pets / "dogs" / "wide.png", noise(7, (8, 16, 3)))
    with pytest.raises(
        ValueError, match=r"'cats/0.png' is 8×8, 'dogs/wide.png' is 8×16.*resize="
    ):
        ImageDataset.from_folder(pets)
    assert ImageDataset.from_folder(pets, resize=6).images.shape == (7, 6, 6, 3)
    assert ImageDataset.from_folder(pets, resize=(4, 12)).images.shape == (7, 4, 12, 3)


def test_one_class_or_none_or_train_and_test_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder or a zip"):
        ImageDataset.from_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"has no picture; .* two class folders"):
        ImageDataset.from_folder(tmp_path)
    save(tmp_path / "test" / "1.png", noise())
    with pytest.raises(ValueError, match="one class folder with pictures, 'test'"):
        ImageDataset.from_folder(tmp_path)
    (tmp_path / "test" / "1.png").unlink()
    for split in ("test", "train"):
        for seed, name in enumerate(("cats", "dogs")):
            save(tmp_path / split / name / "1.png", noise(seed))
    with pytest.raises(
        ValueError, match="test and train, with the same folders in each"
    ):
        ImageDataset.from_folder(tmp_path)
    assert ImageDataset.from_folder(tmp_path / "train").class_names == ("cats", "dogs")


def test_odd_names_are_kept_as_text(tmp_path):
    odd = [
        "<img src=x onerror=alert(1)>",
        "..cats",
        " spaced ",
        "né e",
        "日本",
        "a" * 200,
    ]
    for i, name in enumerate(odd):
        save(tmp_path / name / "1 .png", noise(i))
    data = ImageDataset.from_folder(tmp_path)
    # a name that begins with a dot is hidden
    assert len(data.class_names) == len(odd) - 1
    assert odd[0] in data.class_names
    raw = os.fsencode(tmp_path) + b"/b\xff"
    Path(os.fsdecode(raw)).mkdir()
    save(tmp_path / os.fsdecode(b"b\xff") / "1.png", noise(9))
    assert r"b\xff" in "".join(ImageDataset.from_folder(tmp_path).class_names).replace(
        "\\udc", "\\x"
    )


def test_what_climbs_out_of_a_zip_or_is_too_large_is_left_out(
    pets, tmp_path, monkeypatch
):
    file = tmp_path / "bad.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        for name in ("cats/0.png", "dogs/0.png"):
            out.write(pets / name, name)
        out.write(pets / "cats/1.png", "../evil/1.png")
        out.writestr("cats/bomb.png", b"\0" * 1_000_000)
    monkeypatch.setattr("memowidgets.data.pictures.MOST_BYTES", 900_000)
    data, told = said(lambda: ImageDataset.from_folder(file))
    assert data.ids.tolist() == ["cats/0.png", "dogs/0.png"]
    assert "1 files" in told
    assert "larger than 0 MB (cats/bomb.png)" in told


def test_what_is_no_zip_or_a_damaged_one_is_said(pets, tmp_path):
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(ValueError, match="neither a folder nor a zip"):
        ImageDataset.from_folder(tmp_path / "text.zip")
    file = tmp_path / "damaged.zip"
    with zipfile.ZipFile(file, "w") as out:
        for name in ("cats/0.png", "cats/1.png", "dogs/0.png"):
            out.write(pets / name, name)
    raw = bytearray(file.read_bytes())
    raw[60] ^= 0xFF  # in the first picture
    file.write_bytes(raw)
    data, told = said(lambda: ImageDataset.from_folder(file))
    assert data.ids.tolist() == ["cats/1.png", "dogs/0.png"]
    assert "1 encrypted or broken (cats/0.png)" in told


def test_pictures_are_turned_as_their_exif_orientation_says(tmp_path):
    pixels = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6)
    for name in ("cats", "dogs"):
        picture = pillow.fromarray(pixels + len(name) * (name == "dogs"))
        exif = picture.getexif()
        exif[0x0112] = 6  # a quarter turn to the right
        (tmp_path / name).mkdir()
        picture.save(tmp_path / name / "1.png", exif=exif)
    data = ImageDataset.from_folder(tmp_path)
    np.testing.assert_array_equal(data.images[0, ..., 0], np.rot90(pixels, -1))
