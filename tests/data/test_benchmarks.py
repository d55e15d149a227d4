"""Published benchmarks: each authors' format, the hub's layout in a local folder, no network."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memowidgets.data import fetch_cifar10, fetch_mcq
from memowidgets.data.benchmarks import BENCHMARKS, CLASSES, MMLU_FIELDS


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def write_jsonl(path, records):
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def lettered(name, answer, labels="ABCD", **inner):
    choices = [{"text": f"{name} {label}", "label": label} for label in labels]
    return {
        "id": name,
        "question": {"stem": f"What is {name}?", "choices": choices} | inner,
        "answerKey": answer,
    }


# MMLU


@pytest.fixture
def mmlu(tmp_path):
    """A folder as the authors ship it."""
    bones = 'Which bone?,femur,rib,skull,"hip, left",D\n"Two\nlines?",A,B,C,D,A\n'
    write(tmp_path / "data/test/anatomy_test.csv", bones)
    write(tmp_path / "data/test/astronomy_test.csv", "Which star?,1,2,3,4,B\n")
    write(tmp_path / "data/test/._astronomy_test.csv", "\x00junk")
    write(
        tmp_path / "data/dev/anatomy_dev.csv",
        "Which nerve?,a,b,c,d,C\nWhy?,a,b,c,d,A\n",
    )
    write(
        tmp_path / "data/val/anatomy_val.csv", "Which vein?,a,b,c,d,C\nHow?,a,b,c,d,A\n"
    )
    write(
        tmp_path / "data/auxiliary_train/race.csv",
        "Which book?,a,b,c,d,C\nWho?,a,b,c,d,A\n",
    )
    return tmp_path


def test_mmlu_from_the_authors_folder(mmlu):
    data = fetch_mcq("mmlu", split="test", source=mmlu)
    assert data.ids.tolist() == ["anatomy/0", "anatomy/1", "astronomy/0"]
    assert data.labels.tolist() == [3, 0, 1]
    assert data[0].choices == ("femur", "rib", "skull", "hip, left")
    assert data.attributes["subject"].tolist() == ["anatomy", "anatomy", "astronomy"]
    assert data.attributes["field"].tolist() == ["other", "other", "STEM"]


def test_mmlu_by_field_has_the_same_four_options_always(mmlu):
    data = fetch_mcq("mmlu-field", source=mmlu)
    assert set(data.choices) == {MMLU_FIELDS}
    assert data.labels.tolist() == [2, 2, 0]
    assert data.source["arguments"]["name"] == "mmlu-field"


def test_every_split_has_its_files_and_a_subject_may_have_no_field(mmlu):
    for split, name in (("dev", "anatomy/0"), ("validation", "anatomy/0")):
        assert fetch_mcq("mmlu", split=split, source=mmlu).ids[0] == name
    assert fetch_mcq("mmlu", "auxiliary_train", mmlu).attributes["field"].tolist() == [
        "",
        "",
    ]
    with pytest.raises(ValueError, match="'race/0' is not one"):
        fetch_mcq("mmlu-field", split="auxiliary_train", source=mmlu)


def test_an_mmlu_answer_is_never_read_as_a_text(mmlu, tmp_path):
    path = write(
        tmp_path / "anatomy_test.csv", "Which letter?,D,C,B,A,A\nAnd?,1,1,2,3,B\n"
    )
    data = fetch_mcq("mmlu", source=path)
    assert data.labels.tolist() == [0, 1]
    assert data.choices[1] == ("1", "1", "2", "3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("What?,a,b,c,A", "line 2: 5 cells, .* 6 columns, 'question'"),
        (
            "What?,a,b,c,d,E",
            "line 2: the answer 'E' is not one of the 4 options.* a letter from A to D",
        ),
    ],
)
def test_a_bad_mmlu_line_is_named(tmp_path, line, message):
    path = write(tmp_path / "anatomy_test.csv", f"Which?,a,b,c,d,A\n{line}\n")
    with pytest.raises(ValueError, match=rf"anatomy_test\.csv, {message}"):
        fetch_mcq("mmlu", source=path)


# ARC, OpenBookQA, CommonsenseQA


def test_arc_has_letters_or_numbers_and_three_to_five_options(tmp_path):
    write_jsonl(
        tmp_path / "ARC-Challenge/ARC-Challenge-Test.jsonl",
        [
            lettered("x", "B"),
            lettered("y", "4", "1234"),
            lettered("z", "E", "ABCDE"),
            lettered("w", "A", "ABC"),
        ],
    )
    write_jsonl(
        tmp_path / "ARC-Easy/ARC-Easy-Dev.jsonl",
        [lettered("v", "A"), lettered("u", "C")],
    )
    data = fetch_mcq("arc-challenge", source=tmp_path)
    assert data.labels.tolist() == [1, 3, 4, 0]
    assert data.n_choices.tolist() == [4, 4, 5, 3]
    assert data.class_names == tuple("ABCDE")
    assert data.ids.tolist() == ["x", "y", "z", "w"]
    assert data[0].question == "What is x?"
    assert data.attributes == {}
    for split in ("dev", "validation"):
        assert fetch_mcq("arc-easy", split=split, source=tmp_path).ids.tolist() == [
            "v",
            "u",
        ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            lettered("y", "E"),
            "the answer 'E' is not exactly one of the options' labels A, B, C, D",
        ),
        (lettered("y", ""), "the answer is missing"),
        (
            {"id": "y", "question": {"stem": "?"}, "answerKey": "A"},
            "choices are missing",
        ),
        (
            {"id": "y", "question": {"choices": [{}]}, "answerKey": "A"},
            "'A' is not exactly one",
        ),
        (lettered("x", "A"), "the id 'x' is already used in"),
    ],
)
def test_a_bad_arc_line_is_named(tmp_path, record, message):
    path = write_jsonl(tmp_path / "ARC-Easy-Test.jsonl", [lettered("x", "B"), record])
    with pytest.raises(ValueError, match=rf"ARC-Easy-Test\.jsonl, line 2: .*{message}"):
        fetch_mcq("arc-easy", source=path)


# ETHICS


def test_ethics_from_the_authors_folder(tmp_path):
    folder, header = tmp_path / "commonsense", "label,input,is_short,edited\n"
    write(
        folder / "cm_test.csv",
        f'{header}1,"I lied, twice.",True,False\n0,I ate.,True,True\n',
    )
    write(
        folder / "cm_test_hard.csv",
        f"{header}0,I slept.,True,False\n1,I stole.,True,False\n",
    )
    data = fetch_mcq("ethics", source=tmp_path)
    assert data.questions == ("I lied, twice.", "I ate.")
    assert data.labels.tolist() == [1, 0]
    assert data[0].choices == ("not wrong", "wrong")
    assert data.ids.tolist() == ["test/0", "test/1"]
    assert data.attributes["edited"].tolist() == ["False", "True"]
    hard = fetch_mcq("ethics", split="test-hard", source=tmp_path)
    assert hard.ids.tolist() == ["test-hard/0", "test-hard/1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,input\n2,I lied.\n", "line 2: .*'2' is not one of the 2 options"),
        (
            "1,I lied.\n0,So.\n",
            r"cm_test\.csv\) has no column 'input'; its columns: '1'",
        ),
    ],
)
def test_a_bad_ethics_file_is_named(tmp_path, text, message):
    path = write(tmp_path / "cm_test.csv", text)
    with pytest.raises(ValueError, match=message):
        fetch_mcq("ethics", source=path)


# what cannot be had


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"name": "mmlu2"},
            ValueError,
            "unknown benchmark 'mmlu2'; valid: 'mmlu', .*'mmlu-field'",
        ),
        (
            {"name": "mmlu", "split": "train"},
            ValueError,
            "split 'train' of 'mmlu'; valid: 'test'",
        ),
        (
            {"name": "ethics", "split": "test-hard"},
            ValueError,
            "valid: 'train', 'test'",
        ),
        (
            {"name": "mmlu", "source": "/nowhere"},
            FileNotFoundError,
            "is not a file or folder",
        ),
    ],
)
def test_what_does_not_exist_is_named(arguments, kind, message):
    with pytest.raises(kind, match=message):
        fetch_mcq(**arguments)


def test_a_folder_or_file_of_something_else_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"split 'test', such as \*_test\.csv or mmlu"
    ):
        fetch_mcq("mmlu", source=tmp_path)
    odd = write(tmp_path / "questions.txt", "?")
    with pytest.raises(
        ValueError, match=r"end in \.jsonl, \.csv, \.parquet, not in '\.txt'"
    ):
        fetch_mcq("arc-easy", source=odd)


# the hub

LETTERED = {
    "id": ["x", "y"],
    "choices": [
        {"text": ["red", "blue", "tan"], "label": ["1", "2", "3"]},
        {"text": ["no", "yes"], "label": ["A", "B"]},
    ],
    "answerKey": ["3", "A"],
}
ARC = LETTERED | {"question": ["Q?", "R?"]}
MMLU = {
    "question": ["Which bone?", "Which star?", "Which rib?"],
    "subject": ["anatomy", "astronomy", "anatomy"],
    "choices": [list("abcd")] * 3,
    "answer": [3, 1, 0],
}
TABLES = {
    "mmlu": ("all/test-00000-of-00001.parquet", MMLU),
    "mmlu-field": ("all/test-00000-of-00001.parquet", MMLU),
    "arc-challenge": ("ARC-Challenge/test-00000-of-00001.parquet", ARC),
    "arc-easy": ("ARC-Easy/test-00000-of-00001.parquet", ARC),
    "openbookqa": (
        "main/test-00000-of-00001.parquet",
        LETTERED | {"question_stem": ["Q?", "R?"]},
    ),
    "commonsenseqa": (
        "data/validation-00000-of-00001.parquet",
        ARC | {"question_concept": ["bank", "river"]},
    ),
    "ethics": (
        "commonsense/test/0000.parquet",
        {"label": [1, 0], "input": ["I lied.", "I ate."], "is_short": [True, True]},
    ),
}
LABELS = {"mmlu": [3, 1, 0], "mmlu-field": [2, 0, 2], "ethics": [1, 0]}


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_the_hub_gives_its_files_and_a_copy_of_the_repository_does_as_well(
    name, tmp_path, monkeypatch
):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    place, table = TABLES[name]
    (tmp_path / place).parent.mkdir(parents=True)
    pd.DataFrame(table).to_parquet(tmp_path / place)
    asked = []

    def download(repository, *, revision, allow_patterns, **_):
        asked.append((repository, revision, allow_patterns))
        return tmp_path

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    split = "validation" if name == "commonsenseqa" else "test"
    data = fetch_mcq(name, split=split, source="hub")
    assert data.labels.tolist() == LABELS.get(name, [2, 0])
    assert data.source["arguments"]["revision"] == tmp_path.name
    ((repository, revision, patterns),) = asked
    assert repository == BENCHMARKS[name]["repository"]
    assert revision == ("refs/convert/parquet" if name == "ethics" else None)
    assert any(Path(place).match(pattern) for pattern in patterns)
    assert list(fetch_mcq(name, split=split, source=tmp_path)) == list(data)


# CIFAR-10


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
    assert len(fetch_cifar10(batches, "test")) == 10


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
        ("data_batch_1.bin", SMALL, "validation", ValueError, r"'train', 'test'"),
        (
            "data_batch_1.bin",
            SMALL[:-1],
            "train",
            ValueError,
            r"data_batch_1\.bin .*12291 bytes",
        ),
        ("data_batch_1.bin", b"", "train", ValueError, "its 0 bytes"),
        (
            "data_batch_1.bin",
            SMALL + b"M" + SMALL[1:3073],
            "train",
            ValueError,
            "record 4.* 77",
        ),
        (
            "data_batch_1",
            b"\x80\x02}q\x00.",
            "train",
            ValueError,
            "pickle.*could run any code",
        ),
        (
            "readme.txt",
            b"",
            "train",
            FileNotFoundError,
            "neither train/<class>.*data_batch_1",
        ),
    ],
)
def test_bad_sources_are_named(tmp_path, name, content, split, error, facts):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=facts):
        fetch_cifar10(tmp_path, split)
    with pytest.raises(FileNotFoundError, match="is not a folder or a zip"):
        fetch_cifar10(tmp_path / "nowhere")
