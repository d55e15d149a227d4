"""CIFAR-10 from its authors' batches and from trees: the same images, checked at the door."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from memowidgets.data import fetch_cifar10
from memowidgets.data.cifar import CLASSES
from memowidgets.training.design import ShadowDesign, audited_samples, draw_design


def records(n=12, seed=0):
    rng = np.random.default_rng(seed)
    made = rng.integers(256, size=(n, 3073)).astype(np.uint8)
    made[:, 0] = np.arange(n) % 10
    return made


@pytest.fixture
def batches(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for i in range(1, 6):
        (folder / f"data_batch_{i}.bin").write_bytes(records(seed=i).tobytes())
    (folder / "test_batch.bin").write_bytes(records(10, seed=9).tobytes())
    return tmp_path


def test_planes_of_a_record_become_the_channels_of_an_image(batches):
    data = fetch_cifar10(batches)
    assert len(data) == 60
    assert data.class_names == CLASSES
    second = records(seed=2)[3]  # the fourth record of the second batch
    image = data.images[12 + 3]
    assert image[0, 0].tolist() == second[[1, 1025, 2049]].tolist()
    assert image[31, 30, 1] == second[1 + 1024 + 31 * 32 + 30]
    assert data.labels[15] == second[0]
    assert data.ids[[0, 15]].tolist() == ["train/00000", "train/00015"]


def test_splits_are_apart_and_together(batches):
    test, both = fetch_cifar10(batches, "test"), fetch_cifar10(batches, "train+test")
    assert len(test) == 10
    assert len(both) == 70
    np.testing.assert_array_equal(both.images[60:], test.images)
    assert both.source == {
        "loader": "fetch_cifar10",
        "arguments": {"source": str(batches), "split": "train+test"},
    }


def _png(array):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    out = io.BytesIO()
    image.fromarray(array).save(out, "PNG")
    return out.getvalue()


def _tree(zipped, top="", side=32):
    rng = np.random.default_rng(1)
    made = {}
    for name in ("truck", "cat", "airplane"):
        for i in range(2):
            array = rng.integers(256, size=(side, side, 3)).astype(np.uint8)
            made[f"{top}train/{name}/{i:04d}.png"] = array
    with zipfile.ZipFile(zipped, "w") as out:
        for path, array in made.items():
            out.writestr(path, _png(array))
    return made


@pytest.mark.parametrize("top", ["", "cifar/"])
def test_a_tree_in_a_zip_has_the_same_classes_and_its_own_ids(tmp_path, top):
    made = _tree(tmp_path / "tree.zip", top)
    data = fetch_cifar10(tmp_path / "tree.zip")
    assert data.class_names == CLASSES
    for image, name, label in zip(data.images, data.ids, data.labels, strict=True):
        np.testing.assert_array_equal(image, made[top + name])
        assert CLASSES[label] == name.split("/")[1]


def test_other_pictures_are_no_cifar(tmp_path):
    _tree(tmp_path / "tree.zip", side=16)
    with pytest.raises(ValueError, match="16×16, not 32×32"):
        fetch_cifar10(tmp_path / "tree.zip")
    with zipfile.ZipFile(tmp_path / "tree.zip", "a") as out:
        out.writestr("train/wolf/1.png", _png(np.zeros((16, 16, 3), np.uint8)))
    with pytest.raises(ValueError, match="a class folder 'wolf'"):
        fetch_cifar10(tmp_path / "tree.zip")


SMALL = b"".join(bytes([label]) + bytes(3072) for label in (3, 5, 3, 5))


@pytest.mark.parametrize(
    ("name", "content", "split", "error", "facts"),
    [
        ("data_batch_1.bin", SMALL, "validation", ValueError, r"'train', 'test', 'train\+test'"),
        ("data_batch_1.bin", SMALL[:-1], "train", ValueError, r"data_batch_1\.bin .*12291 bytes"),
        ("data_batch_1.bin", b"", "train", ValueError, "its 0 bytes"),
        ("data_batch_1.bin", SMALL + b"M" + SMALL[1:3073], "train", ValueError, "record 4.* 77"),
        ("data_batch_1", b"\x80\x02}q\x00.", "train", ValueError, "pickle.*could run any code"),
        ("readme.txt", b"", "train", FileNotFoundError, "neither train/<class>.*data_batch_1"),
    ],
)
def test_bad_sources_are_named(tmp_path, name, content, split, error, facts):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=facts):
        fetch_cifar10(tmp_path, split)
    with pytest.raises(FileNotFoundError, match="is not a folder or a zip"):
        fetch_cifar10(tmp_path / "nowhere")


def test_planted_canaries_are_in_half_of_the_models_and_never_in_what_all_train_on(batches):
    data = fetch_cifar10(batches)
    for seed in range(25):
        planted = data.with_canaries(12, kind="ood" if seed < 3 else "mislabelled", seed=seed)
        design = draw_design(planted, "half", 1 / 9, seed)
        audited = audited_samples(planted, design, None)
        shadows = ShadowDesign("canaries", audited)
        masks = np.array([shadows.members(design, seed, i) for i in range(4)])
        canary = planted.canaries[design.pool]
        np.testing.assert_array_equal(masks[:, canary].sum(axis=0), 2)
        always = masks.all(axis=0)
        assert not (always & canary).any()
        clean = np.setdiff1d(design.members, audited)
        np.testing.assert_array_equal(design.pool[always], clean)
