"""Images as data: checked at the door, canaries drawn from a seed."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.data import ImageDataset, load_digits

LABELS = [0, 1, 0, 1]


def images(shape=(4, 8, 8), dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 2, size=shape).astype(dtype)


def test_digits_are_the_scanned_ones():
    data = load_digits()
    assert len(data) == 1797
    assert data.canaries is None
    assert data.images.shape == (1797, 8, 8, 1)
    assert data.class_names == tuple("0123456789")
    assert data[3].label == 3
    assert len(np.unique(data.images)) == 17  # sixteen shades of grey and white stay apart


def test_canaries_get_a_wrong_label_and_are_marked():
    plain, data = load_digits(), load_digits(canaries=0.05, seed=3)
    changed = plain.labels != data.labels
    np.testing.assert_array_equal(changed, data.canaries)
    assert changed.sum() == 90
    assert data[int(np.argmax(changed))].canary
    again, other = load_digits(canaries=0.05, seed=3), load_digits(canaries=0.05, seed=4)
    np.testing.assert_array_equal(data.labels, again.labels)
    assert (data.labels != other.labels).any()


def test_wrong_labels_are_drawn_evenly_from_the_others():
    data = load_digits(canaries=1.0)
    shift = (data.labels - load_digits().labels) % 10
    counts = np.bincount(shift, minlength=10)
    assert counts[0] == 0
    assert counts[1:].min() > 150


def test_real_numbers_and_grey_levels_become_the_same_pixels():
    grey = np.linspace(0, 1, 64).reshape(1, 8, 8).repeat(4, axis=0)
    data = ImageDataset.from_arrays(grey, LABELS)
    as_bytes = ImageDataset.from_arrays(np.rint(grey * 255).astype(np.uint8), LABELS)
    np.testing.assert_array_equal(data.images, as_bytes.images)


def test_hashes_tell_contents_apart_and_ignore_labels():
    pixels = images()
    pixels[1] = pixels[0]
    hashes = ImageDataset.from_arrays(pixels, LABELS).content_hashes()
    assert hashes[0] == hashes[1] != hashes[2]


def test_take_keeps_everything_in_step():
    data = load_digits(canaries=0.5).take([5, 3])
    full = load_digits(canaries=0.5)
    assert data.ids.tolist() == ["digit-0005", "digit-0003"]
    assert data.labels.tolist() == full.labels[[5, 3]].tolist()
    assert data.canaries.tolist() == full.canaries[[5, 3]].tolist()
    assert data.source is None


def _bad_pixel(value):
    array = images(dtype=np.float64)
    array[2, 0, 0] = value
    return array


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((_bad_pixel(np.nan), LABELS), "1 of .* are NaN or infinite, the first in row 2"),
        ((_bad_pixel(np.inf), LABELS), "the first in row 2"),
        ((_bad_pixel(7.0), LABELS), r"between 0 and 1 \(or be uint8\); row 2 ranges from 0 to 7"),
        ((images(), [0, 0, 0, 0]), "at least two classes"),
        ((images((4, 0, 8)), LABELS), "images are empty"),
        ((images(), [0, 1, 0, 10**9]), "the largest is 1000000000 for 4 samples"),
        ((images(), LABELS, ["a", "a"]), "'a' occurs more than once"),
        ((images(), [0, 1, 0]), "4 images but 3 labels"),
        ((images(), [0, 1, -1, 0]), "row 2 is -1"),
        ((images(), [0, 1, 2, 0], ["a", "b"]), "between 0 and 1; row 2 is 2"),
        ((images(), ["a", "b", "a", 1.5]), "row 3; use the one or the other"),
        ((images(), ["a", "b", "a", None]), "1 of 4 labels are missing, the first in row 3"),
        ((images(), [0.5, 1, 0, 1]), "labels must be integers"),
        ((images(), [[0, 1, 0, 1]]), "one-dimensional"),
        ((images((4, 8)), LABELS), "must have the shape"),
        ((images((4, 8, 8, 2)), LABELS), "must have the shape"),
        ((images((0, 8, 8)), []), "empty"),
        ((images(), LABELS, None, ["a", "b", "a", "c"]), "'a' occurs more than once"),
        ((images(), LABELS, None, ["a"]), "1 ids for 4 samples"),
    ],
)
def test_bad_input_gets_one_clear_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        ImageDataset.from_arrays(*arguments)


def test_strings_are_labels_too():
    data = ImageDataset.from_arrays(images(), ["b", "a", "b", "c"])
    assert data.class_names == ("a", "b", "c")
    assert data.labels.tolist() == [1, 0, 1, 2]


def test_a_class_that_never_occurs_is_said():
    with pytest.warns(UserWarning, match="1 of 3 classes never occur in the labels: 0; number"):
        ImageDataset.from_arrays(images(), [1, 2, 1, 2])


def test_bad_canaries_are_refused():
    data = ImageDataset.from_arrays(images(), LABELS)
    with pytest.raises(ValueError, match="5 canaries do not fit into 4 images"):
        data.with_canaries(5)
    with pytest.raises(ValueError, match="valid: 'mislabelled'"):
        data.with_canaries(1, kind="odd")
    with pytest.raises(ValueError, match="from 0 to 1"):
        load_digits(canaries=5)


def test_more_canaries_never_undo_the_first():
    data = load_digits(canaries=0.5).with_canaries(800, seed=1)
    assert (data.labels != load_digits().labels).sum() == data.canaries.sum() == 898 + 800


def test_later_changes_of_the_callers_array_do_not_matter():
    pixels = images()
    data = ImageDataset.from_arrays(pixels[:, ::-1], LABELS)
    kept = data.images.copy()
    pixels[:] = 9
    np.testing.assert_array_equal(data.images, kept)
