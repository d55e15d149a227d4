"""Images: pixels are checked at the door, canaries come from elsewhere, processes share them."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.data import ImageDataset
from memowidgets.data.images import _can_be_folder, digit_collages, fit_image

LABELS = [0, 1, 0, 1]


def pixels(*shape, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 2, size=shape).astype(dtype)


def bad_pixel(value):
    array = pixels(4, 8, 8, dtype=np.float64)
    array[2, 0, 0] = value
    return array


@pytest.mark.parametrize(
    ("images", "facts"),
    [
        (bad_pixel(np.nan), r"1 of 4 .*row 2"),
        (bad_pixel(np.inf), r"1 of 4 .*row 2"),
        (bad_pixel(7.0), r"between 0 and 1.*row 2 ranges from 0 to 7"),
        (pixels(4, 0, 8), r"empty.*\(4, 0, 8, 1\)"),
        (pixels(4, 8), r"shape.*not \(4, 8\)"),
        (pixels(4, 8, 8, 2), r"shape.*not \(4, 8, 8, 2\)"),
        (pixels(4, 8, 8).astype("U"), r"numbers"),
    ],
)
def test_pixels_are_refused_by_their_row(images, facts):
    with pytest.raises((TypeError, ValueError), match=facts):
        ImageDataset.from_arrays(images, LABELS)


def test_channels_may_come_first_and_real_numbers_are_shares_of_white():
    colour = pixels(4, 3, 8, 8) * 255
    for images in (colour, colour / 255):
        data = ImageDataset.from_arrays(images, LABELS)
        np.testing.assert_array_equal(data.images, np.moveaxis(colour, 1, -1))


def test_later_changes_of_the_callers_array_do_not_matter():
    array = pixels(4, 8, 8)
    data = ImageDataset.from_arrays(array[:, ::-1], LABELS)
    kept = data.images.copy()
    array[:] = 9
    np.testing.assert_array_equal(data.images, kept)


def test_drawn_canaries_do_not_look_alike():
    rng = np.random.default_rng(0)
    odd = digit_collages(60, (32, 32, 3), rng).reshape(60, -1).astype(float)
    distances = np.linalg.norm(odd[:, None] - odd[None], axis=2) + 1e9 * np.eye(60)
    assert distances.min() / np.sqrt(odd.shape[1]) > 10  # grey levels, root mean square
    assert len(digit_collages(0, (8, 8, 1), rng)) == 0


def test_images_are_fitted_by_averaging():
    image = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    np.testing.assert_array_equal(fit_image(image, (8, 8, 1)), image)
    small = fit_image(np.repeat(image, 3, axis=2) * 3, (4, 4, 1))
    assert small.shape == (4, 4, 1)
    assert abs(small.mean() - image.mean() * 3) < 1
    flat = np.full((5, 9, 1), 77, np.uint8)
    np.testing.assert_array_equal(fit_image(flat, (32, 20, 3)), 77)


def test_canaries_from_elsewhere_replace_images_under_random_labels():
    labels = np.arange(300) % 10
    grounds = np.arange(300)[:, None] // np.array([1, 256])  # two pixels that differ
    images = np.zeros((300, 16, 16, 3), np.uint8)
    images[:, 0, :2, 0] = grounds % 256
    data = ImageDataset.from_arrays(images, labels)
    noise = np.random.default_rng(1).integers(256, size=(250, 8, 8, 1)).astype(np.uint8)
    other = ImageDataset.from_arrays(noise, np.arange(250) % 2)
    planted = data.with_canaries(200, kind=other, seed=4)
    chosen = planted.canaries
    found = [image.tobytes() for image in planted.images[chosen]]
    assert len(set(found)) == 200  # none twice
    assert set(found) <= {
        fit_image(image, (16, 16, 3)).tobytes() for image in other.images
    }
    # random ones
    assert 0.02 < (planted.labels[chosen] == labels[chosen]).mean() < 0.25
    np.testing.assert_array_equal(planted.labels[~chosen], labels[~chosen])
    np.testing.assert_array_equal(planted.images[~chosen], images[~chosen])
    assert [name.startswith("canary/") for name in planted.ids] == chosen.tolist()
    again = data.with_canaries(200, kind=other, seed=4)
    np.testing.assert_array_equal(again.images, planted.images)
    drawn = data.with_canaries(7, kind="ood", seed=2)
    np.testing.assert_array_equal(
        (drawn.images != images).any(axis=(1, 2, 3)), drawn.canaries
    )
    for n, kind, facts in (
        (260, other, "260 .*250"),
        (301, "ood", "301 .*300"),
        (1, "x", "'ood'"),
    ):
        with pytest.raises(ValueError, match=facts):
            data.with_canaries(n, kind=kind)


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        min_size=3,
        max_size=3,
        unique=True,
    )
)
@settings(max_examples=30)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of classes that look alike
def test_classes_of_any_name_are_written_and_read_again_or_refused(names):
    ids = ["a/b", "é\r", "x" * 300, "\0x", "..", ""]
    labels = [0, 1, 2, 2, 1, 0]
    images = pixels(6, 4, 5, 3)
    with tempfile.TemporaryDirectory() as folder:
        data = ImageDataset.from_arrays(images, labels, names, ids)
        if any(_can_be_folder(name) is False for name in names):
            with pytest.raises(ValueError, match="name of a folder"):
                data.to_folder(f"{folder}/out")
            return
        again = data.to_folder(f"{folder}/out")
    assert again.class_names == tuple(sorted(names))
    order = np.argsort(np.array(names, dtype=object)[labels], kind="stable")
    np.testing.assert_array_equal(again.images, images[order])
    assert again.labels.tolist() == [0, 0, 1, 1, 2, 2]
