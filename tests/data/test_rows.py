"""Rows of files and of a `datasets.Dataset`: one reader for all kinds, which names file and row."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.data import (
    ImageDataset,
    MCQDataset,
    TableDataset,
    TextDataset,
)

KINDS = {"texts": TextDataset, "table": TableDataset, "questions": MCQDataset}
CSV = {name: kind.from_csv for name, kind in KINDS.items()}


@pytest.fixture
def written(tmp_path):
    def write(*lines, name="rows.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
        return path

    return write


# Files


@pytest.mark.parametrize(
    "read", [*CSV.values(), TextDataset.from_jsonl, MCQDataset.from_jsonl]
)
def test_what_is_no_file_of_text_is_named(read, tmp_path):
    wide = tmp_path / "wide"
    wide.write_bytes("text,label\na,0\n".encode("utf-16"))
    empty = tmp_path / "empty"
    empty.touch()
    for path, error, facts in (
        (tmp_path / "none", FileNotFoundError, "none is not a file"),
        (tmp_path, FileNotFoundError, "is not a file"),
        (wide, ValueError, "wide, line 1: byte 0xff .*UTF-8"),
        (empty, ValueError, "is empty"),
    ):
        with pytest.raises(error, match=facts):
            read(path)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (b'{"question": ', "broken JSON"),
        (b"[1, 2]", "JSON object, not a list"),
        (b"[" * 100_000, "broken JSON"),
        (b'{"answer": ' + b"9" * 5000 + b"}", "broken JSON"),
        (
            '{"question": "caf\xe9"}'.encode("latin-1"),
            "byte 0xe9 at position 17.*UTF-8",
        ),
        (b'{"text": "b", "label": 1, "text": "c"}', "'text' is there twice"),
    ],
)
def test_a_bad_line_is_named(line, facts, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "a", "label": 0}\n' + line + b"\n")
    with pytest.raises(ValueError, match=rf"rows\.jsonl, line 2: .*{facts}"):
        TextDataset.from_jsonl(path)


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        (["text,label,question,A,B,answer", "a,0,?,x,y,A,z"], "line 2: 7 cells.* 6"),
        (["text,label,question,A,B,answer", '"a'], "line 2: broken CSV"),
        (["text,label,text,A,B,answer", "a,0,?,x,y,A"], "two columns.*'text'"),
    ],
)
@pytest.mark.parametrize("read", CSV.values(), ids=CSV)
def test_a_bad_csv_file_is_named_by_its_line(read, lines, facts, written):
    with pytest.raises(ValueError, match=rf"rows\.csv.*{facts}"):
        read(written(*lines))


def test_the_other_separator_of_a_file_is_named_and_read(written):
    lines = "text;label\na, b;x\nc;y"
    path = written(*lines.split("\n"))
    with pytest.raises(ValueError, match=r"rows.csv, line 1: .*sep=';'"):
        TextDataset.from_csv(path)
    data = TextDataset.from_csv(path, sep=";")
    assert data.texts == ("a, b", "c")
    assert data.source["arguments"]["sep"] == ";"
    tabs = written(
        "question\tA\tB\tanswer", "?\tx\ty\tA", "!\tx\ty\tB", name="tabs.tsv"
    )
    with pytest.raises(ValueError, match=r"line 1: .*sep='\\t'"):
        MCQDataset.from_csv(tabs)
    assert MCQDataset.from_csv(tabs, sep="\t").choices == (("x", "y"),) * 2
    with pytest.raises(TypeError, match=r"1-character"):
        TextDataset.from_csv(path, sep=";;")


def test_a_mark_of_utf8_quoted_lines_and_other_ends_of_lines_are_read(written):
    path = written(
        "id,text,label",
        '7,"Two\nlines, ""so""?",b',
        "9,a\u2028b,a",
        encoding="utf-8-sig",
    )
    data = TextDataset.from_csv(path)
    assert data.texts == ('Two\nlines, "so"?', "a\u2028b")
    assert data.ids.tolist() == ["7", "9"]
    rows = ['{"text": "a\u2028b", "label": 1}', "", "  ", '{"text": "c", "label": 0}']
    data = TextDataset.from_jsonl(
        written(*rows, name="rows.jsonl", encoding="utf-8-sig")
    )
    assert (data.texts, data.labels.tolist()) == (("a\u2028b", "c"), [1, 0])


# Columns, labels and ids


@pytest.mark.parametrize(
    ("read", "lines", "how", "facts"),
    [
        ("texts", ["text,label", "a,x", ",y"], {}, r"line 3: .*text"),
        ("texts", ["text,label", "a,x", "b,"], {}, r"1 of 2 .*missing.*line 3"),
        ("texts", ["text,intent", "a,x"], {}, r"'label'.*'text', 'intent'.*label="),
        ("texts", ["words,label", "a,x"], {}, r"'text'.*'words'.*text="),
        (
            "texts",
            ["text,label", "a,x", "b,y"],
            {"class_names": ["x", "z"]},
            r"line 3 is 'y'",
        ),
        ("texts", ["text,label", "a,x", "b,y"], {"ids": "key"}, r"'key'.*ids="),
        ("texts", ["text,label,id", "a,x,1", "b,y,"], {}, r"line 3: the id is missing"),
        ("texts", ["text,label"], {}, r"no row below its header"),
        ("table", ["age,label", "3,x"], {"drop": ["b"]}, r"'b'.*'age', 'label'.*drop="),
        ("questions", ["q,A,B,answer", "?,x,y,A"], {}, r"'question'.*'q'.*columns="),
        (
            "questions",
            ["question,A,B,answer", '"a\nb",x,y,A', "?,,y,A"],
            {},
            r"line 4: .*option A",
        ),
        (
            "questions",
            ["question,choices,answer", "?,x;y,A"],
            {},
            r"line 2: .*JSON list",
        ),
        (
            "questions",
            ["a,b"],
            {"columns": {"questions": "x"}},
            r"'questions'.*question, choices",
        ),
        (
            "questions",
            ["question,answer", "?,0"],
            {"choices": ["no"]},
            "2 to 10 options, not 1",
        ),
    ],
)
def test_a_file_of_other_columns_is_refused(read, lines, how, facts, written):
    with pytest.raises(ValueError, match=facts):
        CSV[read](written(*lines), **how)


@pytest.mark.parametrize(
    ("labels", "how", "names", "codes"),
    [
        (
            [str(i % 11) for i in range(22)],
            {},
            [str(i) for i in range(11)],
            [*range(11)] * 2,
        ),
        (["2", "0", "1"], {"class_names": ["2", "1", "0"]}, ["2", "1", "0"], [0, 2, 1]),
        (["01", "1", "02"], {}, ["01", "02", "1"], [0, 2, 1]),  # codes of a register
    ],
)
def test_whole_numbers_in_cells_are_numbers_unless_they_are_names(
    labels, how, names, codes, written
):
    lines = [f"message {i},{label}" for i, label in enumerate(labels)]
    data = TextDataset.from_csv(written("text,label", *lines), **how)
    assert data.class_names == tuple(names)
    assert data.labels.tolist() == codes


# Columns of questions


def test_columns_of_questions_can_be_assigned(written):
    path = written(
        "stem,opts,key,n,ward,age", '?,"[""x"", ""y""]",1,1,b,7', '!,"[1, 2]",A,2,b,8'
    )
    mapping = {"question": "stem", "choices": "opts", "answer": "key", "id": "n"}
    data = MCQDataset.from_csv(path, columns=mapping)
    assert data.choices == (("x", "y"), ("1", "2"))
    assert data.labels.tolist() == [1, 0]
    assert list(data.attributes) == ["ward", "age"]
    narrow = MCQDataset.from_csv(path, columns=mapping | {"attributes": ["age"]})
    assert list(narrow.attributes) == ["age"]


def test_options_have_columns_of_their_own_or_are_the_same_in_every_row(written):
    path = written(
        "id,question,A,B,C,answer,ward", "x,?,no,yes,,B,1", "y,Why?,a,b,c,A,2"
    )
    data = MCQDataset.from_csv(path)
    assert data.choices == (("no", "yes"), ("a", "b", "c"))
    assert data.ids.tolist() == ["x", "y"]
    assert data.attributes["ward"].tolist() == ["1", "2"]
    path = written(
        "label,input,is_short", "0,I lied.,True", "1,I paid.,False", "yes,I ran.,True"
    )
    columns = {"question": "input", "answer": "label"}
    data = MCQDataset.from_csv(path, columns=columns, choices=["no", "yes"])
    assert data.choices == (("no", "yes"),) * 3
    assert data.labels.tolist() == [0, 1, 1]
    assert list(data.attributes) == ["is_short"]


# A `datasets.Dataset` in memory

NAMES = ["cash", "card", "loan"]
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


def made(features=None, **columns):
    datasets = pytest.importorskip("datasets")
    features = None if features is None else datasets.Features(features)
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture(scope="module")
def intents():
    datasets = pytest.importorskip("datasets")
    kinds = {
        "text": datasets.Value("string"),
        "intent": datasets.ClassLabel(names=NAMES),
    }
    return made(kinds, text=["a", "b", "c"], intent=[2, 0, 1])


def test_class_labels_name_the_classes_in_any_format(intents):
    for given_dataset in (intents, intents.with_format("numpy")):
        data = TextDataset.from_hf(given_dataset, label="intent")
        assert data.texts == ("a", "b", "c")
        assert data.labels.tolist() == [2, 0, 1]
        assert (data.class_names, data.source) == (tuple(NAMES), None)


def test_names_in_another_order_number_the_classes_anew(intents):
    """A reader keeps what a row is called; only its number changes."""
    swapped = TextDataset.from_hf(
        intents, label="intent", class_names=["loan", "card", "cash"]
    )
    assert [swapped.class_names[i] for i in swapped.labels] == ["loan", "cash", "card"]
    assert swapped.labels.tolist() == [0, 2, 1]
    renamed = TextDataset.from_hf(
        intents, label="intent", class_names=["Bar", "Karte", "Kredit"]
    )
    assert renamed.labels.tolist() == [2, 0, 1]
    gap = intents.map(
        lambda row: {"intent": -1 if row["text"] == "b" else row["intent"]}
    )
    with pytest.raises(ValueError, match="row 1 is '-1'"):
        TextDataset.from_hf(gap, label="intent", class_names=["loan", "card", "cash"])


def test_what_is_no_dataset_in_memory_or_has_other_columns_is_refused(intents):
    datasets = pytest.importorskip("datasets")
    splits = datasets.DatasetDict({"train": intents, "test": intents})
    for wrong, how, error, facts in (
        (splits, {}, TypeError, r"'train', 'test'"),
        (
            intents.to_iterable_dataset(),
            {},
            TypeError,
            "in memory, not IterableDataset",
        ),
        ([{"text": "a"}], {}, TypeError, "in memory, not list"),
        (intents, {"label": "label"}, ValueError, "'label'.*'text', 'intent'"),
        (intents, {"text": "words"}, ValueError, "'words'"),
        (
            intents,
            {"class_names": ["a", "b"]},
            ValueError,
            "between 0 and 1; row 0 is 2",
        ),
        (intents.select([]), {}, ValueError, "empty"),
    ):
        with pytest.raises(error, match=facts):
            TextDataset.from_hf(wrong, **{"label": "intent"} | how)


def test_questions_are_read_with_lists_columns_and_letters():
    features = {"question": ["1?", "2?"], "key": ["B", "A"], "field": ["x", "y"]}
    letters = (
        {"text": ["a", "b"], "label": ["A", "B"]},
        {"text": ["c", "d"], "label": ["A", "B"]},
    )
    lists = made(**features, choices=[["a", "b"], ["c", "d"]])
    apart = made(**features, first=["a", "c"], second=["b", "d"])
    for data in (
        MCQDataset.from_hf(lists, columns={"answer": "key"}),
        MCQDataset.from_hf(
            apart, columns={"answer": "key", "choices": ["first", "second"]}
        ),
        MCQDataset.from_hf(
            made(**features, choices=list(letters)), columns={"answer": "key"}
        ),
    ):
        assert data.choices == (("a", "b"), ("c", "d"))
        assert data.labels.tolist() == [1, 0]
        assert data.attributes["field"].tolist() == ["x", "y"]
    same = MCQDataset.from_hf(
        made(question=["1?", "2?"], answer=[1, 0]), choices=["no", "yes"]
    )
    assert same.choices == (("no", "yes"),) * 2
    numbered = [{"text": ["a", "b"], "label": ["1", "2"]}] * 2  # letters, not positions
    ones = made(question=["1?", "2?"], choices=numbered, answer=["1", "2"])
    assert MCQDataset.from_hf(ones).labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="the dataset has no column 'answer'"):
        MCQDataset.from_hf(lists)


def test_pictures_are_images():
    datasets = pytest.importorskip("datasets")
    kinds = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
    }
    data = ImageDataset.from_hf(
        made(kinds, image=list(PIXELS), label=[0, 1, 0, 1]), resize=(6, 5)
    )
    np.testing.assert_array_equal(data.images, PIXELS)
    assert data.class_names == ("cat", "dog")
    for found, facts in (
        ([PIXELS[0], None], "row 1 of the dataset is not a picture"),
        ([PIXELS[0], PIXELS[0, :3]], "different sizes"),
    ):
        with pytest.raises(ValueError, match=facts):
            ImageDataset.from_hf(made(kinds, image=found, label=[0, 1]))
    with pytest.raises(
        ValueError, match=r"row 0 .* cast the column to datasets\.Image"
    ):
        ImageDataset.from_hf(made(image=PIXELS.tolist(), label=[0, 1, 0, 1]))


# Texts


@pytest.mark.parametrize(
    ("texts", "error", "facts"),
    [
        (["a", "", "c"], ValueError, "row 1: the text is empty"),
        (["a", None, "c"], ValueError, "row 1: the text is missing"),
        (["a", "b\ud800", "c"], ValueError, "row 1: .*surrogate"),
        (["a", 7, "c"], ValueError, "row 1: .*not 7"),
        ("abc", TypeError, "list of texts, not a single one"),
    ],
)
def test_texts_are_refused_by_their_row(texts, error, facts):
    with pytest.raises(error, match=facts):
        TextDataset.from_texts(texts, [0, 1, 0])


def test_equal_texts_with_different_labels_are_listed():
    texts, labels = ["red", "blue", "red", "blue"], [0, 1, 1, 1]
    with pytest.warns(UserWarning, match=r"2 texts.*p = r") as caught:
        data = TextDataset.from_texts(texts, labels, ids=["p", "q", "r", "s"])
    assert "2 duplicates" in repr(data)
    assert "q" not in str(caught[0].message).partition(": ")[2]


@pytest.mark.parametrize(
    ("words", "facts"), [({"9": "x"}, "'9'.*ids"), ({"1": " "}, "'1'.*empty")]
)
def test_new_texts_are_checked_by_their_id(words, facts):
    data = TextDataset.from_texts(["a", "b"], [0, 1])
    assert data.with_texts({"1": "c"}).texts == ("a", "c")
    with pytest.raises(ValueError, match=facts):
        data.with_texts(words)


# Texts of any characters, written and read again

HOSTILE = "\r\n\t\0\x1c\x85\u2028\u2029\u200b\ufeff\"',;|=+-@\\{} e\u0301é𝄞"
WORDS = st.text(
    st.one_of(st.sampled_from(HOSTILE), st.characters(exclude_categories=["Cs"])),
    max_size=12,
)
TEXTS = WORDS.filter(str.strip)
COLUMN = WORDS.filter(lambda name: name.strip() == name)


def same_after_writing(data, hows=("to_csv", "to_jsonl")):
    """Whether files of the data give the same rows, at once and by their source."""
    with tempfile.TemporaryDirectory() as folder:
        for how in hows:
            again = getattr(data, how)(f"{folder}/{how}")
            assert again.to_frame().equals(data.to_frame())
            read = again.source["loader"].partition(".")[2]
            loaded = getattr(type(data), read)(**again.source["arguments"])
            assert loaded.to_frame().equals(data.to_frame())


@given(st.data())
@settings(max_examples=40)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of classes that look alike
def test_texts_of_any_characters_are_written_and_read_again(drawn):
    texts = drawn.draw(st.lists(TEXTS, min_size=2, max_size=5))
    names = drawn.draw(st.lists(TEXTS, min_size=2, max_size=2, unique=True))
    ids = st.lists(TEXTS, min_size=len(texts), max_size=len(texts), unique=True)
    labels = [row % 2 for row in range(len(texts))]
    same_after_writing(TextDataset.from_texts(texts, labels, names, drawn.draw(ids)))


@given(st.data())
@settings(max_examples=40)
def test_questions_of_any_characters_are_written_and_read_again(drawn):
    options = st.lists(TEXTS, min_size=2, max_size=4, unique=True)
    attribute = drawn.draw(COLUMN.filter(lambda name: name not in RESERVED))
    rows = [
        {
            "question": drawn.draw(TEXTS),
            "choices": drawn.draw(options),
            "answer": row % 2,
            attribute: drawn.draw(WORDS),
        }
        for row in range(3)
    ]
    same_after_writing(MCQDataset.from_records(rows, answers="index"))


RESERVED = ("question", "choices", "answer", "id")


def test_each_hostile_character_is_written_and_read_again():
    texts = [text for c in HOSTILE for text in (f"a{c}", f"{c}a", f"a{c}b")]
    labels = [row % 2 for row in range(len(texts))]
    same_after_writing(TextDataset.from_texts(texts, labels))


def test_a_text_of_a_whole_book_is_written_and_read_again():
    book = "It was a dark night. " * 20_000
    same_after_writing(TextDataset.from_texts([book, "short"], [0, 1]))


@pytest.mark.parametrize(
    ("column", "facts"),
    [
        ({"ward \ud83d": "a"}, "'ward .*half a character"),
        ({"ward": "a \ud83d"}, "row 1.*'ward'.*half a character"),
    ],
)
def test_an_attribute_that_no_file_can_hold_is_refused_where_it_enters(column, facts):
    rows = [{"question": f"{n}?", "choices": ["x", "y"], "answer": n} for n in (0, 1)]
    rows[1] |= column
    with pytest.raises(ValueError, match=facts):
        MCQDataset.from_records(rows)


def test_what_cannot_be_read_again_is_named_by_its_row_and_nothing_is_left(tmp_path):
    empty = replace(TextDataset.from_texts(["a", "b"], [0, 1]), texts=("a", ""))
    rows = [{"question": "1?", "choices": ["x", "y"], "answer": n} for n in (0, 1)]
    named = MCQDataset.from_records([row | {" ward": "a"} for row in rows])
    for data, facts in (
        (empty, r"out\.csv is not written: line 3: the text is missing"),
        (named, r"out\.csv is not written: .*' ward' of '0' \(row 0\).*to_jsonl"),
    ):
        with pytest.raises(ValueError, match=facts):
            data.to_csv(tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())
    same_after_writing(named, ["to_jsonl"])
