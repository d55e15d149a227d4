"""A `datasets.Dataset` in memory as questions, images and texts."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.data import ImageDataset, MCQDataset, TextDataset

datasets = pytest.importorskip("datasets")

NAMES = ["cash", "card", "loan"]
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


def made(features=None, **columns):
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture(scope="module")
def texts():
    features = datasets.Features(
        {"text": datasets.Value("string"), "intent": datasets.ClassLabel(names=NAMES)}
    )
    return made(features, text=["a", "b", "c"], intent=[2, 0, 1])


def test_class_labels_name_the_classes(texts):
    data = TextDataset.from_hf(texts, label="intent")
    assert data.texts == ("a", "b", "c")
    assert data.labels.tolist() == [2, 0, 1]
    assert data.class_names == tuple(NAMES)
    assert data.source is None


def test_a_format_of_the_dataset_changes_nothing(texts):
    data = TextDataset.from_hf(texts.with_format("numpy"), label="intent")
    assert data.texts == ("a", "b", "c")


def test_strings_ids_and_names_are_read():
    data = TextDataset.from_hf(made(t=["a", "b"], y=["x", "y"], key=[5, 6]), "t", "y", ids="key")
    assert data.class_names == ("x", "y")
    assert data.ids.tolist() == ["5", "6"]


def test_what_is_no_dataset_in_memory_is_refused(texts):
    splits = datasets.DatasetDict({"train": texts, "test": texts})
    for wrong, message in (
        (splits, r"several splits \('train', 'test'\); pass one"),
        (texts.to_iterable_dataset(), "in memory, not IterableDataset"),
        ([{"text": "a"}], "in memory, not list"),
    ):
        with pytest.raises(TypeError, match=message):
            TextDataset.from_hf(wrong, label="intent")
    for arguments, message in (
        ({"label": "label"}, "no column 'label'; its columns: 'text', 'intent'"),
        ({"label": "intent", "text": "words"}, "no column 'words'"),
        ({"label": "intent", "class_names": ["a", "b"]}, "between 0 and 1; row 0 is 2"),
    ):
        with pytest.raises(ValueError, match=message):
            TextDataset.from_hf(texts, **arguments)
    with pytest.raises(ValueError, match="the dataset is empty"):
        TextDataset.from_hf(texts.select([]), label="intent")


def test_questions_are_read_with_lists_columns_and_letters():
    features = {"question": ["1?", "2?"], "key": ["B", "A"], "field": ["x", "y"]}
    lists = made(**features, choices=[["a", "b"], ["c", "d"]])
    apart = made(**features, first=["a", "c"], second=["b", "d"])
    letters = {"text": ["a", "b"], "label": ["A", "B"]}, {"text": ["c", "d"], "label": ["A", "B"]}
    found = [
        MCQDataset.from_hf(lists, {"answer": "key"}),
        MCQDataset.from_hf(apart, {"answer": "key", "choices": ["first", "second"]}),
        MCQDataset.from_hf(made(**features, choices=list(letters)), {"answer": "key"}),
    ]
    for data in found:
        assert data.choices == (("a", "b"), ("c", "d"))
        assert data.labels.tolist() == [1, 0]
        assert data.attributes["field"].tolist() == ["x", "y"]
    same = MCQDataset.from_hf(made(question=["1?", "2?"], answer=[1, 0]), choices=["no", "yes"])
    assert same.choices == (("no", "yes"),) * 2
    with pytest.raises(ValueError, match="the dataset has no column 'answer'"):
        MCQDataset.from_hf(lists)


def test_letters_of_options_that_are_numbers_from_one_are_not_positions():
    choices = [{"text": ["a", "b"], "label": ["1", "2"]}] * 2
    data = MCQDataset.from_hf(made(question=["1?", "2?"], choices=choices, answer=["1", "2"]))
    assert data.labels.tolist() == [0, 1]


def test_pictures_and_arrays_are_images():
    labels = datasets.ClassLabel(names=["cat", "dog"])
    features = datasets.Features({"image": datasets.Image(), "label": labels})
    pictures = made(features, image=list(PIXELS), label=[0, 1, 0, 1])
    data = ImageDataset.from_hf(pictures)
    np.testing.assert_array_equal(data.images, PIXELS)
    assert data.class_names == ("cat", "dog")
    arrays = made(image=PIXELS.tolist(), label=["dog", "cat"] * 2)
    np.testing.assert_array_equal(ImageDataset.from_hf(arrays).images, PIXELS)
    assert ImageDataset.from_hf(pictures, resize=4).images.shape == (4, 4, 4, 3)


def test_what_is_no_picture_is_named():
    labels = [0, 1]
    for images, message in (
        ([PIXELS[0].tolist(), None], "row 1 of the dataset is not a picture"),
        ([PIXELS[0].tolist(), PIXELS[0, :3].tolist()], "different sizes"),
        ([(PIXELS[0] * 2.0).tolist(), PIXELS[0].tolist()], "not numbers from 0 to 255"),
    ):
        with pytest.raises(ValueError, match=message):
            ImageDataset.from_hf(made(image=images, label=labels))


def test_names_in_another_order_number_the_classes_anew(texts):
    """A reader keeps what a row is called; only its number changes."""
    swapped = TextDataset.from_hf(texts, label="intent", class_names=["loan", "card", "cash"])
    assert [swapped.class_names[i] for i in swapped.labels] == ["loan", "cash", "card"]
    assert swapped.labels.tolist() == [0, 2, 1]
    renamed = TextDataset.from_hf(texts, label="intent", class_names=["Bar", "Karte", "Kredit"])
    assert renamed.labels.tolist() == [2, 0, 1]
    gap = texts.map(lambda row: {"intent": -1 if row["text"] == "b" else row["intent"]})
    with pytest.raises(ValueError, match="row 1 is '-1'"):
        TextDataset.from_hf(gap, label="intent", class_names=["loan", "card", "cash"])


def test_a_transform_is_not_applied_and_that_is_said(texts):
    changed = texts.with_transform(lambda rows: {"text": ["x"] * len(rows["text"]), **rows})
    with pytest.warns(UserWarning, match="transform of the dataset is not applied"):
        assert TextDataset.from_hf(changed, label="intent").texts == ("a", "b", "c")
