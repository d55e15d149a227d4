"""Text of others in errors, warnings and summaries: nothing hidden, nothing long, no sample."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.data.pictures import readable
from memowidgets.store import StoreError
from memowidgets.visible import listed, quoted
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
    assert_harmless(quoted(EVIL * 10))
    assert listed(["a", EVIL, *"bcdefg"], most=3).endswith(" and 5 more")
    assert_harmless(listed([EVIL, "x" * 200] * 30))


def test_a_store_error_is_visible():
    assert_harmless(StoreError(f"{EVIL} is broken"))


# Pictures


@pytest.fixture
def pictures(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="no Pillow")
    for label in ("cats", "dogs"):
        for i in range(2):
            place = tmp_path / "pictures" / label / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(np.full((4, 4), 40 * i + ord(label[0]), np.uint8)).save(place)
    return tmp_path / "pictures"


def read(folder):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            mw.data.ImageDataset.from_folder(folder)
        except ValueError as error:
            return [str(error), *(str(one.message) for one in said)]
    return [str(one.message) for one in said]


def test_names_of_files_that_are_left_out_are_visible(pictures):
    (pictures / "cats" / f"{EVIL}{'x' * 150}.png").write_bytes(b"no picture")
    (pictures / f"{EVIL}.txt").write_bytes(b"outside")
    (said,) = read(pictures)
    assert "2 files of" in said
    assert_harmless(said)


def test_names_of_pictures_and_classes_in_errors_are_visible(pictures):
    image = pytest.importorskip("PIL.Image", reason="no Pillow")
    (pictures / EVIL).mkdir()
    image.fromarray(np.zeros((9, 9), np.uint8)).save(pictures / EVIL / f"{EVIL}.png")
    (error,) = read(pictures)
    assert "different sizes" in error
    assert_harmless(error)


def test_a_name_of_bytes_that_are_no_text_is_readable():
    assert_harmless(quoted(readable("\udcff\udcfe")))


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
    return lambda _folder: mw.data.TextDataset.from_texts(["a", "b"], [0, 1], *labels, **given)


NAMED = [GOOD | {"name": name, "answer": i % 2} for i, name in enumerate((SECRET, "a", "b"))]
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
def test_an_error_about_data_holds_nothing_of_a_sample_and_nothing_hidden(call, fact, tmp_path):
    with pytest.raises(ValueError, match=fact) as error:
        call(tmp_path)
    for secret in ("SECRET", "Brindlow", "tremor"):
        assert secret not in str(error.value), str(error.value)
    assert_harmless(error.value)


# A run whose names are somebody else's


@pytest.fixture(scope="module")
def evil_run(tmp_path_factory):
    """Ids and class names that are hostile; the layers of the manifest are changed afterwards."""
    data = small_data()
    ids = [f"{EVIL}{i}{'x' * LONG}" for i in range(len(data))]
    names = [f"{EVIL}{c}{'x' * LONG}" for c in range(10)]
    labels = data.labels % 9
    labels[0] = 9  # alone in its class: it has no score
    evil = mw.data.ImageDataset.from_arrays(data.images, labels, names, ids=ids)
    audit = small_audit(tmp_path_factory.mktemp("evil") / "run", data=evil, members="all")
    audit.train()

    def change(manifest):
        manifest["layers"] = [f"{EVIL}{i}{'x' * LONG}" for i in range(3)]
        manifest["model"]["class"] = EVIL + "x" * LONG
        manifest["fork"] = {"parent": EVIL, "start": "prediction", "checkpoint": EVIL, "seen": 3}

    change_manifest(audit.path, change)
    adopt(audit.path)
    audit.run.run.hold(audit.run.run.read_manifest())
    return audit, evil


def test_a_warning_of_samples_without_a_score_is_harmless(evil_run):
    audit, _ = evil_run
    with pytest.warns(UserWarning, match="members have no score") as said:
        audit.score("psmi", checkpoint="final")
    for one in said:
        assert_harmless(one.message)


def test_summaries_are_harmless(evil_run):
    audit = mw.Audit.open(evil_run[0].path)
    for text in (repr(audit), audit._repr_html_(), repr(audit.data)):
        assert_harmless(text)


CALLS = {
    "an unknown layer": lambda audit, data: audit.score("loss", layer="none"),
    "an unknown layer of its own": lambda audit, data: audit.score("loss", layer=EVIL + "x" * LONG),
    "an unknown checkpoint": lambda audit, data: audit.score("loss", checkpoint=EVIL),
    "a layer that was not kept": lambda audit, data: audit.score("psmi", checkpoint="final"),
    "another model": lambda audit, data: mw.Audit.open(
        audit.path, data=data, model=mw.models.ConvNet(8)
    ),
    "other data": lambda audit, data: mw.Audit.open(audit.path, data=data.take(range(1, 399))),
    "other classes": lambda audit, data: mw.Audit(
        mw.models.ConvNet(16), data, audit.path + "2", held_out=small_data()
    ),
    "a member of no dataset": lambda audit, data: mw.Audit(
        mw.models.ConvNet(16), data, audit.path + "3", members=[EVIL * 9]
    ),
    "no finite score": lambda audit, data: evil_metric(audit),
}


def evil_metric(audit):
    audit.score(lambda x, logits, y: np.full(len(y), np.nan), checkpoint="final")


@pytest.mark.parametrize("what", CALLS)
def test_errors_of_a_hostile_run_are_harmless(evil_run, what):
    opened = mw.Audit.open(evil_run[0].path)
    audit = evil_run[0] if what == "no finite score" else opened
    with pytest.raises((ValueError, StoreError)) as error:
        CALLS[what](audit, evil_run[1])
    assert_harmless(error.value)


def test_a_dataframe_is_the_users_but_a_widget_is_harmless(evil_run):
    widget = mw.Audit.open(evil_run[0].path).dashboard()
    bundle = widget._repr_mimebundle_()[0]
    assert_harmless(bundle["text/plain"])
    assert_harmless(bundle["text/html"])
    widget.close()
