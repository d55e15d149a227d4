"""Text of others in errors, warnings and summaries: nothing hidden, nothing long, no sample."""

from __future__ import annotations

import re
import shutil
import warnings

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.data.pictures import readable
from memowidgets.store import StoreError
from memowidgets.vocabulary import listed, quoted, visible
from tests.audit.conftest import small_audit, small_data
from tests.hostile.forged import adopt, change_manifest

EVIL = "\x1b]0;mine\x07\x1b[2J\u202eevil\u2066\r\u200b"
HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
LONG = 120  # characters of one name that no message may show


def assert_harmless(text):
    text = str(text)
    assert not HIDDEN.search(text), ascii(text)
    assert "x" * LONG not in text, f"{len(text)} characters"


def test_a_quoted_name_is_visible_and_cut():
    assert quoted(EVIL + "x" * 200).endswith("…'")
    assert len(quoted("x" * 200)) == 42
    assert_harmless(visible("".join(map(chr, range(0x2100)))))
    assert visible("a" * 99, 10) == "a" * 9 + "…"
    assert_harmless(quoted(EVIL * 10))
    assert listed(["a", EVIL, *"bcdefg"], most=3).endswith(" and 5 more")
    assert_harmless(listed([EVIL, "x" * 200] * 30))


def test_a_store_error_is_visible():
    assert_harmless(StoreError(f"{EVIL} is broken"))


# Pictures


def said_of(folder, **how):
    """Warnings and the error of reading a folder of pictures."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            mw.data.ImageDataset.from_folder(folder, **how)
        except ValueError as error:
            said.append(error)
    return [str(getattr(one, "message", one)) for one in said]


def test_names_of_pictures_folders_and_classes_are_visible(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="no Pillow")
    for label, size in (("cats", 4), ("dogs", 4), (EVIL, 9)):
        (tmp_path / label).mkdir()
        for i in range(2):
            pixels = np.full((size, size), 40 * i + ord(label[0]), np.uint8)
            image.fromarray(pixels).save(tmp_path / label / f"{EVIL}{i}.png")
    (tmp_path / "cats" / f"{EVIL}{'x' * 150}.png").write_bytes(b"no picture")
    (tmp_path / f"{EVIL}.txt").write_bytes(b"outside")
    said = said_of(tmp_path) + said_of(tmp_path, resize=4)
    assert any("2 files of" in one for one in said)
    assert any("different sizes" in one for one in said)
    for one in said:
        assert_harmless(one)
    assert_harmless(quoted(readable("\udcff\udcfe")))  # bytes that are no text


# Questions: an error that a notebook keeps holds nothing of a sample

SECRET = "Mrs Brindlow has had a tremor"
GOOD = {"question": f"{SECRET}?", "choices": ["SECRET a", "SECRET b"], "answer": 0}
BAD_QUESTIONS = [
    {"answer": f"{SECRET}, it says"},
    {"answer": [SECRET]},
    {"answer": {"text": SECRET}},
    {"choices": SECRET},
    {"choices": {"A": SECRET, "B": "b"}},
    {"choices": [SECRET, SECRET]},
    {"choices": [SECRET]},
    {"choices": [SECRET, [SECRET]]},
    {"choices": [SECRET, ""]},
    {"choices": ["SECRET a", "SECRET a", "b"]},
    {"choices": ["b", "a"], "answer": "a", "question": [SECRET]},
    {"question": {"stem": SECRET}},
    {"question": SECRET + "\ud800"},
    {"choices": ["1", "0"], "answer": "1"},
    {"choices": ["SECRET a", "B", "A"], "answer": "A"},
]


def from_file(name, text, read):
    """Write a file in the folder of the test, and read it."""

    def call(folder):
        (folder / name).write_text(text)
        read(folder)

    return call


def records(*rows, **relabel):
    def call(_folder):
        data = mw.data.MCQDataset.from_records(rows)
        if relabel:
            data.relabel(**relabel)

    return call


def new_words(words):
    def call(_folder):
        rows = [GOOD, GOOD | {"answer": 1, "question": "Why?"}]
        data = mw.data.MCQDataset.from_records(rows)
        data.with_texts({str(data.ids[0]): words})

    return call


def texts(*labels, **given):
    return lambda _folder: mw.data.TextDataset.from_texts(
        ["a", "b"], [0, 1], *labels, **given
    )


NAMED = [
    GOOD | {"name": name, "answer": i % 2} for i, name in enumerate((SECRET, "a", "b"))
]
LINES = [
    f'"{SECRET}?",SECRET a,b,c,d,SECRET e',
    f'"{SECRET}?",SECRET a,b,c,d',
    f'"{SECRET}?",SECRET a,SECRET a,c,d,"SECRET',
]
NO_HEADER = f'"{SECRET} for three weeks; which ward should take her?","{EVIL}a",b,A\n'
REFUSED = [  # what is refused, and a fact that the error does name
    *((records(GOOD, GOOD | change), "row 1") for change in BAD_QUESTIONS),
    (records(*NAMED, by="name", options=["a", "b"]), "one of the 2 options"),
    *((new_words(words), "the question")
      for words in ((SECRET, [SECRET, SECRET]), (SECRET, [SECRET]), ("", [SECRET, "b"]))),
    *((from_file("astronomy_test.csv", f"Which?,a,b,c,d,A\n{line}\n",
                 lambda folder: mw.data.fetch_mcq("mmlu", source=folder)), "line 2")
      for line in LINES),
    (from_file("table.csv", NO_HEADER * 2,
               lambda folder: mw.data.MCQDataset.from_csv(folder / "table.csv")), "'question'"),
    (records(GOOD | {"id": EVIL}, GOOD | {"id": EVIL}), "ids"),
    (texts(ids=[EVIL, EVIL]), "U"),
    (texts([EVIL, EVIL]), "U"),
    (lambda folder: texts()(folder).with_texts({EVIL * 9: "new"}), "U"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_an_error_about_data_holds_nothing_of_a_sample_and_nothing_hidden(
    call, fact, tmp_path
):
    with pytest.raises(ValueError, match=fact) as error:
        call(tmp_path)
    for secret in ("SECRET", "Brindlow", "tremor"):
        assert secret not in str(error.value), str(error.value)
    assert_harmless(error.value)


# A run whose names are somebody else's


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """An audit whose ids and classes are hostile, the path of one whose manifest is, and data."""
    data = small_data()
    ids, names, layers = (
        [f"{EVIL}{i}{'x' * LONG}" for i in range(n)] for n in (len(data), 10, 3)
    )
    labels = data.labels % 9
    labels[0] = 9  # alone in its class: it has no score
    data = mw.data.ImageDataset.from_arrays(data.images, labels, names, ids=ids)
    folder = tmp_path_factory.mktemp("evil")
    audit = small_audit(folder / "run", data=data, members="all")
    audit.train()

    def change(manifest):
        manifest["layers"] = layers
        manifest["model"]["class"] = EVIL + "x" * LONG
        manifest["fork"] = {
            "parent": EVIL,
            "start": "prediction",
            "checkpoint": EVIL,
            "seen": 3,
        }

    shutil.copytree(audit.path, folder / "changed")
    change_manifest(folder / "changed", change)
    adopt(folder / "changed")
    return audit, str(folder / "changed"), data


def test_warnings_and_summaries_are_harmless(evil):
    with pytest.warns(UserWarning, match="members have no score") as said:
        evil[0].score("psmi", checkpoint="final")
    audit = mw.Audit.open(evil[1])
    widget = audit.dashboard()
    shown = widget._repr_mimebundle_()[0]
    widget.close()
    texts = [
        repr(audit),
        audit._repr_html_(),
        repr(audit.data),
        *(one.message for one in said),
    ]
    for text in (*texts, shown["text/plain"], shown["text/html"]):
        assert_harmless(text)


MODEL = mw.models.ConvNet(16)
CALLS = {
    "an unknown layer": lambda audit, path, _: mw.Audit.open(path).score(
        "loss", layer=EVIL * 9
    ),
    "an unknown checkpoint": lambda audit, *_: audit.score("loss", checkpoint=EVIL),
    "a layer not kept": lambda audit, path, _: mw.Audit.open(path).score(
        "psmi", layer=1
    ),
    "another model": lambda audit, path, data: mw.Audit.open(
        path, data=data, model=MODEL
    ),
    "other data": lambda audit, path, data: mw.Audit.open(
        path, data=data.take(range(1, 399))
    ),
    "other classes": lambda _, path, data: mw.Audit(
        MODEL, data, path + "2", held_out=small_data()
    ),
    "an unknown member": lambda _, path, data: mw.Audit(
        MODEL, data, path + "3", members=[EVIL * 9]
    ),
    "no finite score": lambda audit, *_: audit.score(
        lambda representations: representations[:, 0] * np.nan, "last", "final"
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_errors_of_a_hostile_run_are_harmless(evil, call):
    with pytest.raises((ValueError, StoreError)) as error:
        call(*evil)
    assert_harmless(error.value)
