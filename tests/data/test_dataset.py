"""What holds for every kind of data and every way to make it: one suite for all of them."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import memowidgets as mw
from memowidgets.data.pairs import PairDataset

N = 12
LABELS = np.array([0, 1, 2] * 4)
NAMES = ["card", "cash", "loan"]
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 6, 5, 3)).astype(np.uint8)
TEXTS = [f"message {i}" for i in range(N)]
VALUES = {"age": range(20, 20 + N), "ward": list("ABA") * 4}


def texts(labels=LABELS, **how):
    return mw.data.TextDataset.from_texts(TEXTS[: len(labels)], labels, **how)


def images(labels=LABELS, **how):
    return mw.data.ImageDataset.from_arrays(PIXELS[: len(labels)], labels, **how)


def table(labels=LABELS, ids=None, **how):
    frame = pd.DataFrame(
        {name: list(values)[: len(labels)] for name, values in VALUES.items()}
    )
    frame["label"] = pd.Series(list(labels), dtype=object)
    frame = (
        frame if ids is None else frame.assign(id=pd.Series(list(ids), dtype=object))
    )
    return mw.data.TableDataset.from_frame(frame, **how)


def from_hf(labels=LABELS, ids=None, **how):
    datasets = pytest.importorskip("datasets")
    columns = {"text": TEXTS[: len(labels)], "label": list(labels)}
    columns |= {} if ids is None else {"id": list(ids)}
    return mw.data.TextDataset.from_hf(datasets.Dataset.from_dict(columns), **how)


def questions(labels=LABELS, ids=None):
    options = [["red", "green", "blue"], ["no", "yes", "never", "ever"]]
    rows = [
        {"question": text, "choices": options[i % 2], "answer": int(label), "k": str(i)}
        for i, (text, label) in enumerate(zip(TEXTS, labels, strict=False))
    ]
    rows = (
        rows if ids is None else [r | {"id": i} for r, i in zip(rows, ids, strict=True)]
    )
    return mw.data.MCQDataset.from_records(rows)


def withheld():
    return mw.Audit.from_arrays(LABELS, np.arange(2.0 * N).reshape(N, 2)).data


KINDS = {"texts": texts, "images": images, "table": table, "questions": questions}
FROM_LABELS = {"texts": texts, "images": images, "table": table, "from_hf": from_hf}


@pytest.fixture(params=[*KINDS, "withheld"])
def data(request):
    return (KINDS | {"withheld": withheld})[request.param]()


# Parts


@pytest.mark.parametrize(
    "given",
    [
        [0, 4, 2],
        (0, -8, -10),
        np.uint8([0, 4, 2]),
        torch.tensor([0, 4, 2]),
        pd.Series([0, 4, 2]),
    ],
)
def test_positions_give_the_same_samples_with_all_that_belongs_to_them(data, given):
    data = data if hasattr(data, "hint") else data.with_canaries(6, seed=1)
    part = data.take(given)
    assert part.ids.tolist() == data.ids[[0, 4, 2]].tolist()
    assert part.labels.tolist() == data.labels[[0, 4, 2]].tolist()
    assert part.content_hashes() == [data.content_hashes()[i] for i in (0, 4, 2)]
    assert repr(list(part)) == repr([data[i] for i in (0, 4, 2)])
    assert (part.class_names, part.source) == (data.class_names, None)
    if data.canaries is not None:
        assert part.canaries.tolist() == data.canaries[[0, 4, 2]].tolist()


def test_a_mask_and_nothing_are_positions_too(data):
    for mask in ([True, False] * 6, pd.Series([True, False] * 6)):
        assert data.take(mask).ids.tolist() == data.ids[::2].tolist()
    assert len(data.take([])) == 0
    assert type(data).__name__ in repr(data.take(np.array([], dtype=int)))


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ([0.5, 1.0], "not 0.5"),
        ([12], "12 .*size 12"),
        ([True], "12 .* 1"),
    ],
)
def test_what_is_neither_is_refused(given, facts):
    with pytest.raises(IndexError, match=facts):
        texts().take(given)
    with pytest.raises(TypeError, match="take"):
        texts()[:3]
    with pytest.raises(IndexError, match="-13: the data have 12"):
        texts()[-13]


# Labels


@pytest.mark.parametrize("make", FROM_LABELS.values(), ids=FROM_LABELS)
def test_strings_become_sorted_classes_and_class_names_fix_another_order(make):
    words = [NAMES[label] for label in LABELS[::-1]]
    data = make(words)
    assert data.class_names == ("card", "cash", "loan")
    assert [data.class_names[label] for label in data.labels] == words
    turned = make(words, class_names=NAMES[::-1])
    assert turned.class_names == ("loan", "cash", "card")
    assert [turned.class_names[label] for label in turned.labels] == words


REFUSED = {  # labels, class names, and facts of the message
    "missing": (["x", None, "y"], None, r"1 of 3 .*missing.* row 1"),
    "blank": (["x", " ", "y"], None, r"1 of 3 .*missing.* row 1"),
    "NaN": ([0, np.nan, 1], None, r"1 of 3 .*missing.* row 1"),
    "mixed": (["x", "y", 1.5], None, "row 2"),
    "one class": (["x", "x", "x"], None, "3 samples .*'x'.*two classes"),
    "no class": ([0, 1, 2], ["a", "b"], "0 and 1; row 2 is 2"),
    "no name": (["x", "y", "z"], ["x", "y"], "row 2 is 'z'.* 2 "),
    "not whole": ([0.5, 1, 0], None, "integers"),
    "names twice": ([0, 1, 0], ["a", "a"], "'a'.*more than once"),
    "half a character": (["x\ud800", "y", "z"], None, "D800"),
    "a text": (["x" * 60, "y", "z"], ["y", "z"], "a text of 60 characters"),
}


@pytest.mark.parametrize(("labels", "names", "facts"), REFUSED.values(), ids=REFUSED)
def test_labels_are_refused_by_their_row(labels, names, facts):
    with pytest.raises(ValueError, match=facts):
        texts(labels, class_names=names)


@pytest.mark.parametrize("make", FROM_LABELS.values(), ids=FROM_LABELS)
def test_every_kind_refuses_labels(make):
    with pytest.raises(ValueError, match="row 2 is 'z'"):
        make(["x", "y", "z"], class_names=["x", "y"])


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ([0, 5, 1] * 4, "between 0 and 2; row 1 is 5"),
        ([0, 1], "2 labels for 12"),
        ([-1] * N, "-1"),
    ],
)
def test_other_labels_are_classes_and_one_for_each_sample(labels, facts):
    with pytest.raises(ValueError, match=facts):
        texts().with_labels(labels)
    named = texts(class_names=NAMES).with_labels(["loan"] + ["cash"] * 11)
    assert named.labels.tolist() == [2] + [1] * 11


# Ids


@pytest.mark.parametrize("ids", [["a", "a"], ["a\ud800", "b"]])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_ids_are_refused_where_a_dataset_is_made(make, ids):
    data = make(LABELS[:2])
    with pytest.raises(ValueError, match=r"'a"):
        replace(data, ids=ids)
    with pytest.raises(ValueError, match=r"'a"):
        make(LABELS[:2], ids=ids)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_ids_are_numbers_unless_given_and_one_for_each_sample(make):
    assert make().ids.tolist()[:2] == ["0", "1"]
    assert make(ids=[f"p{i}" for i in range(N)]).ids.tolist()[:2] == ["p0", "p1"]
    with pytest.raises(ValueError, match="1 ids for 12"):
        replace(make(), ids=["a"])


# Content


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_hashes_tell_contents_apart_and_ignore_labels_and_ids(make):
    hashes = make().content_hashes()
    assert len(set(hashes)) == N
    assert (
        make(np.roll(LABELS, 1), ids=[f"p{i}" for i in range(N)]).content_hashes()
        == hashes
    )
    assert {len(one) for one in hashes} == {16}


def test_a_dataset_travels_to_another_process(data):
    again = pickle.loads(pickle.dumps(data))
    assert repr(list(again)) == repr(list(data))
    assert again.content_hashes() == data.content_hashes()


# Canaries


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_canaries_get_a_wrong_label_and_are_marked(make):
    plain, planted = make(), make().with_canaries(7, seed=3)
    np.testing.assert_array_equal(plain.labels != planted.labels, planted.canaries)
    assert planted.canaries.sum() == 7
    assert planted.ids.tolist() == plain.ids.tolist()
    assert planted.content_hashes() == plain.content_hashes()
    assert (planted.labels < getattr(planted, "n_choices", 3)).all()
    assert "7 canaries" in repr(planted)
    np.testing.assert_array_equal(
        planted.labels, make().with_canaries(7, seed=3).labels
    )
    assert any(
        (planted.labels != make().with_canaries(7, seed=s).labels).any() for s in (4, 5)
    )
    more = planted.with_canaries(5, seed=1)  # never undo the first
    assert more.canaries.all()
    assert (more.labels != plain.labels).all()


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_bad_canaries_are_refused(make):
    for n, kind, facts in ((13, "mislabelled", r"13 .* 12"), (1, "odd", r"odd.*'misl")):
        with pytest.raises(ValueError, match=facts):
            make().with_canaries(n, kind)
    with pytest.raises(ValueError, match=r"6 .* 5 "):
        make().with_canaries(7).with_canaries(6)
    with pytest.raises(TypeError, match="number of canaries"):
        make().with_canaries("all")


def test_pairs_of_a_torch_dataset_keep_their_own_labels():
    pairs = PairDataset.from_pairs([(torch.zeros(3) + i, i % 3) for i in range(N)])
    with pytest.raises(TypeError, match="your torch dataset"):
        pairs.with_canaries(3)
    part = pairs.take([5, 3])
    assert (part.labels.tolist(), part.rows.tolist()) == ([2, 0], [5, 3])
    assert part.content_hashes() == [pairs.content_hashes()[i] for i in (5, 3)]


# Loaders: what `source` says makes the same dataset again


def load(source):
    name = source["loader"].replace("from_folder", "ImageDataset.from_folder")
    return attrgetter(name)(mw.data)(**source["arguments"])


def _csv(folder):
    rows = zip(TEXTS, [NAMES[i] for i in LABELS], strict=True)
    path = folder / "texts.csv"
    path.write_text("text,intent\n" + "".join(f'"{t}, so",{y}\n' for t, y in rows))
    return mw.data.TextDataset.from_csv(path, label="intent", class_names=NAMES)


def _table(folder):
    path = folder / "table.csv"
    pd.DataFrame(VALUES).assign(outcome=LABELS, x=0).to_csv(path, index=False)
    return mw.data.TableDataset.from_csv(
        path, label="outcome", categorical=["age"], drop=["x"]
    )


def _questions(folder):
    rows = [
        {"stem": text, "choices": ["a", "b", "c"], "answer": int(y), "k": "v"}
        for text, y in zip(TEXTS, LABELS, strict=True)
    ]
    path = folder / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    template = ["{question} {options}:", "{options} {question} {k}:"]
    return mw.data.MCQDataset.from_jsonl(
        path, columns={"question": "stem"}, template=template
    )


def _pets(folder):
    for i, (pixels, label) in enumerate(zip(PIXELS, LABELS, strict=True)):
        path = folder / "pets" / NAMES[label] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder / "pets"


def _zipped(folder):
    with zipfile.ZipFile(folder / "pets.zip", "w") as out:
        for path in _pets(folder).rglob("*.png"):
            out.write(path, path.relative_to(folder))
    return mw.data.ImageDataset.from_folder(folder / "pets.zip", resize=(4, 8))


def _mmlu(folder):
    (folder / "anatomy_dev.csv").write_text("Which?,a,b,c,d,C\nWhy?,a,b,c,d,A\n")
    return mw.data.fetch_mcq(
        "mmlu", "dev", folder, template=["{subject}: {question} {options}"]
    )


MADE = {
    "digits": lambda _: mw.data.load_digits(canaries=0.05, seed=3),
    "patients": lambda _: mw.data.make_mcqs(40, atypical=0.1, seed=2),
    "texts": _csv,
    "table": _table,
    "questions": _questions,
    "folder": lambda folder: mw.data.ImageDataset.from_folder(_pets(folder)),
    "zip": _zipped,
    "MMLU": _mmlu,
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_the_source_of_a_loader_makes_the_same_dataset_again(make, tmp_path):
    data = make(tmp_path)
    assert json.loads(json.dumps(data.source)) == data.source
    again = load(data.source)
    assert (again.source, again.class_names) == (data.source, data.class_names)
    same_samples(again, data)
    for other in (
        data.take([0, 1]),
        data.with_canaries(1),
        data.with_labels(data.labels),
    ):
        assert other.source is None


# Files that a dataset writes are read again as the same samples

HOSTILE = [
    "a\nb",
    'say "no", twice',
    "=1+1",
    "a\u2028b",
    " spaced ",
    "NA",
    "nul\0inside",
    "\r\n x",
]


def hostile_texts():
    words = [f"{HOSTILE[i % 8]} {i}{HOSTILE[i % 8]}" for i in range(N)]
    return mw.data.TextDataset.from_texts(
        words, ["10", "9", " b"] * 4, ["9", " b", "10"]
    )


def hostile_table():
    frame = pd.DataFrame({"dose": [1e-300, -0.0, 1 / 3, 2.5e99] * 3, "id": range(N)})
    frame["label"] = pd.Series(
        [f"{HOSTILE[i % 8]}{i}" for i in range(N)], dtype="category"
    )
    frame["code"] = pd.Series(["007", "7", "1e1", None] * 3, dtype="category")
    frame.loc[[3, 4], "dose"] = np.nan
    frame = frame.assign(y=LABELS, k=[f"{i}\n" for i in range(N)])
    with pytest.warns(UserWarning, match="missing"):
        return mw.data.TableDataset.from_frame(frame, "y", ids="k")


def hostile_questions():
    rows = [
        {
            "question": text,
            "choices": [text, text, "1"],
            "answer": i % 3,
            "ward": HOSTILE[i % 8],
        }
        for i, text in enumerate(HOSTILE)
    ]
    templates = ["{question} {options} {ward}:", "{question}\n{options}:"]
    how = {"answers": "index", "equal_options": "keep"}
    return mw.data.MCQDataset.from_records(rows, templates, **how)


WRITTEN = {
    "texts": hostile_texts,
    "table": hostile_table,
    "questions": hostile_questions,
}


@pytest.mark.parametrize("how", ["to_csv", "to_jsonl"])
@pytest.mark.parametrize("make", WRITTEN.values(), ids=WRITTEN)
def test_a_file_that_is_written_is_read_as_the_same_samples(make, how, tmp_path):
    data = make()
    path = tmp_path / "data"
    again = getattr(data, how)(path)
    same_samples(again, data)
    assert path.stat().st_mode & 0o077 == 0
    assert [file.name for file in tmp_path.iterdir()] == ["data"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load(again.source)
    assert loaded.source == again.source
    same_samples(loaded, data)
    with pytest.raises(FileExistsError, match=r"data exists.*overwrite=True"):
        getattr(data, how)(path)
    same_samples(
        getattr(data.take(range(8)), how)(path, overwrite=True), data.take(range(8))
    )


def same_samples(one, other):
    assert one.ids.tolist() == other.ids.tolist()
    assert one.content_hashes() == other.content_hashes()
    assert [one.class_names[i] for i in one.labels] == [
        other.class_names[i] for i in other.labels
    ]
    assert repr(list(one)) == repr(list(other))


def test_a_frame_gives_the_same_samples_to_the_constructors():
    data = hostile_questions()
    how = {"answers": "index", "equal_options": "keep"}
    same_samples(
        mw.data.MCQDataset.from_records(data.to_frame(), data.templates, **how), data
    )
    frame = images().to_frame()
    again = mw.data.ImageDataset.from_arrays(
        np.stack(frame["image"]), LABELS, ids=frame["id"]
    )
    same_samples(again, images())
    assert withheld().to_frame().columns.tolist() == ["id", "label"]


def test_images_are_written_to_class_folders(tmp_path):
    data = images(class_names=NAMES, ids=["../../x", *(f"{i}/é" for i in range(11))])
    again = data.to_folder(tmp_path / "out")
    assert again.class_names == tuple(NAMES)
    pairs = zip(data.content_hashes(), data.labels.tolist(), strict=True)
    assert sorted(
        zip(again.content_hashes(), again.labels.tolist(), strict=True)
    ) == sorted(pairs)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == NAMES
    assert all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.rglob("*.png"))
    grey = mw.data.ImageDataset.from_arrays(PIXELS[..., :1], LABELS).to_folder(
        tmp_path / "grey"
    )
    assert grey.images.shape == (N, 6, 5, 1)
    for name in (
        "../x",
        "a/b",
        ".hidden",
        "..",
        " x",
        "",
        "a\0",
        "__MACOSX",
        "é" * 128,
    ):
        with pytest.raises(ValueError, match="cannot be the name of a folder"):
            images(class_names=["a", "b", name]).to_folder(tmp_path / "other")
    with pytest.raises(ValueError, match="at least two"):
        data.take([0]).to_folder(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(FileExistsError, match="out exists"):
        data.to_folder(tmp_path / "out")


def test_what_no_file_can_hold_is_refused_and_nothing_is_left(tmp_path):
    frame = pd.DataFrame({"ward": ["a", "", "b"], "age": [1, 2, 3], "label": [0, 1, 0]})
    data = mw.data.TableDataset.from_frame(frame)
    for wrong, facts in (
        (data, "'1' .*to_jsonl"),
        (texts().take([0, 3]), "two classes"),
    ):
        with pytest.raises(ValueError, match=facts):
            wrong.to_csv(tmp_path / "data")
    assert not list(tmp_path.iterdir())
    same_samples(data.to_jsonl(tmp_path / "data"), data)
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        data.to_jsonl(tmp_path / "nowhere" / "data")
    (tmp_path / "design.safetensors").touch()
    with pytest.raises(ValueError, match="lies in the run directory"):
        texts().to_csv(tmp_path / "texts.csv")


def test_a_single_sample_is_told_as_one():
    with pytest.raises(ValueError, match="two classes") as said:
        mw.data.TextDataset.from_texts(["a note"], ["flu"])
    assert "1 samples" not in str(said.value)
    assert "flu" in str(said.value)
