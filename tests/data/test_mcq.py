"""Multiple-choice questions: checked at the door, put to a model the same way each time."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

from memowidgets.data import MCQDataset
from memowidgets.data.mcq import TEMPLATES

OPTIONS = ["red", "green", "blue"]


def row(n=0, **changes):
    return {"question": f"Colour {n}?", "choices": OPTIONS, "answer": n % 3} | changes


def rows(n=6, **changes):
    return [row(i, **changes) for i in range(n)]


def test_rows_become_samples_and_the_rest_attributes():
    two = (
        row(0, id="x", ward="a", age=7),
        row(1, id="y", ward="b", choices=["no", "yes"]),
    )
    data = MCQDataset.from_records(two)
    sample = data[1]
    assert (sample.id, sample.question, sample.label) == ("y", "Colour 1?", 1)
    assert sample.choices == ("no", "yes")
    assert data[0].attributes == {"ward": "a", "age": "7"}
    assert sample.attributes == {"ward": "b", "age": ""}
    assert data.n_choices.tolist() == [3, 2]
    assert data.class_names == ("A", "B", "C")
    assert data.attributes["ward"].tolist() == ["a", "b"]
    assert (data.source, data.canaries) == (None, None)
    assert repr(data) == "MCQDataset(2 questions, 2 to 3 options)"


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        (2, 2),
        ("2", 2),
        (2.0, 2),
        (np.int64(2), 2),
        ("C", 2),
        (" c ", 2),
        ("blue", 2),
        ("red", 0),
    ],
)
def test_an_answer_is_a_position_a_letter_or_a_text(answer, label):
    data = MCQDataset.from_records([row(0, answer=answer), row(1, answer=1)])
    assert data.labels[0] == label


def test_an_answer_that_means_two_options_is_refused_until_its_kind_is_said():
    ambiguous = [row(0, choices=["1", "2", "3"], answer="1"), row(0, answer=0)]
    with pytest.raises(
        ValueError, match=r"row 0: the answer '1' is ambiguous, it means as index"
    ):
        MCQDataset.from_records(ambiguous)
    assert MCQDataset.from_records(
        [*ambiguous[:1], row(0, answer=2)], answers="index"
    ).labels[0]
    texts = [ambiguous[0], row(1, answer="green")]
    assert MCQDataset.from_records(texts, answers="text").labels.tolist() == [0, 1]
    letters = [row(0, choices=["B", "A"], answer="A"), row(1, answer="B")]
    with pytest.raises(ValueError, match=r"as letter option A .*as text option B"):
        MCQDataset.from_records(letters)
    assert MCQDataset.from_records(letters, answers="letter").labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": None}, "the answer is missing"),
        (
            {"answer": 3},
            r"answer 3 is not one of the 3 options; it must be a position from 0 to 2",
        ),
        (
            {"answer": "D"},
            "answer 'D' is not one of the 3 options.* a letter from A to C",
        ),
        ({"answer": "mauve"}, "the answer is not one of the 3 options"),
        ({"answer": True}, "the answer True is not one"),
        ({"question": " \n"}, "the question is empty"),
        ({"question": "half \ud800"}, "half a character"),
        ({"choices": None}, "the choices are missing"),
        ({"choices": [{"text": "x"}, {"text": "y"}]}, "'1' is not exactly one of"),
        ({"choices": "red"}, "choices must be a list"),
        ({"choices": list("abcdefghijk")}, "2 to 10 options, not 11"),
        ({"choices": ["red", float("nan")]}, "option B is missing"),
        ({"choices": ["red", ["x"]]}, "option B must be a text"),
        ({"choices": ["red", "blue", "red"]}, "options A and C are equal"),
    ],
)
def test_a_bad_row_is_named_in_one_clear_sentence(changes, message):
    with pytest.raises(ValueError, match=f"row 1: .*{message}") as caught:
        MCQDataset.from_records([row(0), row(1, **changes)])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("records", "kind", "message"),
    [
        ([], ValueError, "empty"),
        ([row(0), "x"], TypeError, "row 1 is of type str"),
        (
            [row(0, id=1), row(1, id="1")],
            ValueError,
            "row 1: the id '1' is already used in row 0",
        ),
        ([row(0), row(1, id="b")], ValueError, "row 0: the id is missing"),
        ([{"messages": [{"role": "user", "content": "Hi"}]}] * 2, ValueError, "limits"),
        (
            [{"prompt": "Why?", "completion": "So."}] * 2,
            ValueError,
            "completion.*2 to 10.*limits",
        ),
    ],
)
def test_bad_sets_are_refused(records, kind, message):
    with pytest.raises(kind, match=message):
        MCQDataset.from_records(records)


NUMBERS = [[1, 2, 3], ["1", "2", "3"]]


@pytest.mark.parametrize(
    "source", ["records", "frame", "jsonl", "csv", "hf", "choices"]
)
@pytest.mark.parametrize("options", NUMBERS, ids=["numbers", "texts"])
def test_a_number_that_is_a_position_and_an_option_is_ambiguous(
    source, options, tmp_path
):
    """Wherever it comes from, 2 among 1, 2 and 3 could mean two of them."""
    answers = [type(options[0])(answer) for answer in (2, 3)]
    given = [
        {"question": f"{i}?", "choices": options, "answer": answer}
        for i, answer in enumerate(answers)
    ]
    path, how = tmp_path / "questions", {}
    make = MCQDataset.from_records
    if source == "frame":
        given = pd.DataFrame(given)
    elif source == "choices":
        given = [{k: v for k, v in one.items() if k != "choices"} for one in given]
        how["choices"] = options
    elif source == "jsonl":
        path.write_text("".join(f"{json.dumps(one)}\n" for one in given))
        make, given = MCQDataset.from_jsonl, path
    elif source == "csv":
        rows = [f"{one['question']},1,2,3,{one['answer']}" for one in given]
        path.write_text("\n".join(["question,A,B,C,answer", *rows]))
        make, given = MCQDataset.from_csv, path
    elif source == "hf":
        datasets = pytest.importorskip("datasets")
        make, given = MCQDataset.from_hf, datasets.Dataset.from_list(given)
    with pytest.raises(ValueError, match=r"2'? is ambiguous.*option C .*option B"):
        make(given, **how)
    data = make(given, **how, answers="text")
    assert [data.choices[i][label] for i, label in enumerate(data.labels)] == ["2", "3"]


def test_a_number_is_a_position_among_texts_and_may_be_an_option_among_numbers():
    for options, answers, labels in (
        (["1", "2", "3"], (2, 1), [2, 1]),
        ([10, 20, 30], (20, 0), [1, 0]),
        ([2.5, 1.5, 0.0], (1.5, 2), [1, 2]),
        ([0, 1, 2], (2, 1), [2, 1]),
    ):
        records = [row(i, choices=options, answer=one) for i, one in enumerate(answers)]
        assert MCQDataset.from_records(records).labels.tolist() == labels
    labelled = {"text": [3, 2, 1], "label": ["A", "B", "C"]}
    records = [row(i, choices=labelled, answer=one) for i, one in enumerate("BC")]
    assert MCQDataset.from_records(records).labels.tolist() == [1, 2]


def test_equal_options_are_kept_on_request():
    records = [*rows(), row(9, choices=["red", "red"], answer=1)]
    data = MCQDataset.from_records(records, equal_options="keep")
    assert data.choices[6] == ("red", "red")
    records[-1]["answer"] = "red"
    with pytest.raises(ValueError, match=r"ambiguous.*give its position or letter"):
        MCQDataset.from_records(records, equal_options="keep")


# prompts


def test_each_sample_has_one_of_our_templates_whatever_it_is_taken_with():
    data = MCQDataset.from_records(rows(60))
    subset = data.take([40, 3, 17])
    assert subset.prompts() == [data.prompt(40), data.prompt(3), data.prompt(17)]
    assert subset[0].prompt == data[40].prompt
    openings = {
        prompt.replace(f"Colour {i}?", "…") for i, prompt in enumerate(data.prompts())
    }
    assert len(openings) == len(TEMPLATES)
    assert data.prompt_recipe == {"templates": list(TEMPLATES), "seed": 0}
    assert data.replies(0) == (" A", " B", " C")


def test_a_template_of_the_users_own_is_used_to_the_letter():
    template = "{{{subject}}} {question} ({a}/{b})\n{options}\n("
    data = MCQDataset.from_records(rows(2, subject="art"), template=template)
    assert data[0].prompt == "{art} Colour 0? (red/green)\nA. red\nB. green\nC. blue\n("
    assert data.replies(0) == ("A", "B", "C")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{options}", r"lacks \{question\}"),
        (
            "{question} {ward}",
            r"asks for \{ward\}.*\{question\}, \{options\}, \{a\}, \{b\}$",
        ),
        ("{question} {c}", r"asks for \{c\}"),
        ("{question} {note}", r"asks for \{note\}, which not every question has"),
        ("{question} {", "not a format string"),
        ("{question.__class__}", "only plain names"),
        ("{question:>9999999999}", "only plain names"),
        (["{question} A", "{question} "], "in the same way"),
        ("{question} {a} {b}", r"lacks \{c\}"),
        ("{question}", r"lacks \{a\}, \{b\}, \{c\}"),
    ],
)
def test_a_bad_template_is_refused_at_the_door(template, message):
    records = [row(0, choices=["red", "blue"], note="n"), row(1)]
    with pytest.raises(ValueError, match=message):
        MCQDataset.from_records(records, template=template)


def test_options_that_all_questions_have_may_be_in_a_templates_own_words():
    same = [row(i, choices=["Bad", "Good"], answer=i % 2) for i in range(4)]
    own = "{question} Say A if it is bad, B if it is good:"
    assert MCQDataset.from_records(same, template=own).prompt(0).endswith("good:")
    with pytest.raises(ValueError, match=r"lacks \{a\}, \{b\}"):
        MCQDataset.from_records(same, template="{question}\nAnswer:")
    data = MCQDataset.from_records(same, template="{question}\nAnswer:", reply="text")
    assert data.replies(0) == (" Bad", " Good")


def test_a_reply_may_be_the_options_text(tmp_path):
    records = [row(0, choices=["no", "yes"]), row(1, choices=["yes", "no"], answer=1)]
    data = MCQDataset.from_records(records, reply="text")
    assert data.replies(1) == (" yes", " no")
    assert "\n- yes\n- no\n" in data.prompt(1)
    assert data.prompt_recipe["reply"] == "text"
    again = data.to_jsonl(tmp_path / "rows.jsonl")
    assert again.replies(1) == data.replies(1)
    assert data.take([1]).replies(0) == data.replies(1)
    chat = data.with_template("chat", tokenizer=Chat(whole))
    assert chat.replies(0) == ("no", "yes")
    with pytest.raises(
        ValueError, match="unknown reply 'word'; valid: 'letter', 'text'"
    ):
        MCQDataset.from_records(records, reply="word")


@pytest.mark.parametrize("turn", [int, str])
def test_answers_that_are_counted_from_1_are_said(turn):
    records = [row(i, answer=turn(1 + i % 2)) for i in range(30)]
    with pytest.warns(UserWarning, match="no answer of 30 questions is 0.*subtract 1"):
        MCQDataset.from_records(records)
    MCQDataset.from_records(records[:4])  # may be chance
    MCQDataset.from_records([row(i, answer="BC"[i % 2]) for i in range(30)])
    with pytest.raises(
        ValueError, match=r"row 0: the answer '?3'? .* from 0 to 2.*subtract 1"
    ):
        MCQDataset.from_records([row(0, answer=turn(3)), row(1)])


# duplicates, subsets, relabelling, canaries


def test_relabel_asks_for_an_attribute():
    data = MCQDataset.from_records([row(i, field="ba"[i % 2]) for i in range(6)])
    other = data.with_canaries(2).relabel(by="field")
    assert set(other.choices) == {("a", "b")}
    assert other.labels.tolist() == [1, 0, 1, 0, 1, 0]
    assert other.class_names == ("A", "B")
    assert other.ids.tolist() == data.ids.tolist()
    assert other.canaries is None
    assert "A. a\nB. b" in other.prompt(0)
    wider = data.relabel(by="field", options=["c", "b", "a"])
    assert wider.class_names == ("A", "B", "C")
    assert wider.labels.tolist() == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize(
    ("by", "options", "message"),
    [
        ("age", None, "unknown attribute 'age'; valid: 'field', 'one', 'many', 'gap'"),
        ("one", None, "gives 1 different options"),
        ("many", None, "gives 12 different options"),
        ("gap", None, "'gap' of the question '0' is not one"),
        ("field", ["a", "c"], "the question '1' is not one of the 2 options"),
        ("field", ["a", "a"], "gives 1 different options"),
    ],
)
def test_what_cannot_be_an_option_is_refused(by, options, message):
    records = [
        row(i, field="ab"[i % 2], one="x", many=str(i), gap="" if i == 0 else "y")
        for i in range(12)
    ]
    with pytest.raises(ValueError, match=message):
        MCQDataset.from_records(records).relabel(by=by, options=options)


# files


class Chat:
    """A tokenizer whose chat template is a function."""

    chat_template, bos_token = "a template", "<s>"

    def __init__(self, made, first=()):
        self.made, self.first = made, list(first)

    def apply_chat_template(self, messages, tokenize):
        assert not tokenize
        return self.made([(one["role"], one["content"]) for one in messages])

    def __call__(self, text):
        return {"input_ids": self.first}


def whole(messages):
    return "<s>{sys}" + "".join(f"[{role}]\n{content}\n" for role, content in messages)


CHATTED = [
    {"question": "Wet {now}?", "choices": ["water", "sand"], "answer": 0},
    {"question": "Dry?", "choices": ["water", "sand"], "answer": 1},
]


@pytest.mark.parametrize(("first", "start"), [((), "<s>"), ((1,), "")])
def test_a_chat_template_is_that_of_the_tokenizer_up_to_the_answer(first, start):
    """Braces stay, and a mark that the tokenizer adds by itself is not there twice."""
    data = MCQDataset.from_records(
        CHATTED, template="chat", tokenizer=Chat(whole, first)
    )
    expected = start + "{sys}[user]\nWet {now}?\nA. water\nB. sand\n[assistant]\n"
    assert data.prompt(0) == expected
    assert data.replies(0) == ("A", "B")
    own = data.with_template("{question} {a} or {b}?", tokenizer=Chat(whole, first))
    assert own.prompt(1) == start + "{sys}[user]\nDry? water or sand?\n[assistant]\n"


@pytest.mark.parametrize("reader", ["from_jsonl", "from_csv", "from_hf"])
def test_files_take_a_tokenizer_and_are_read_again_without_it(reader, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    expected = MCQDataset.from_records(CHATTED, template="chat", tokenizer=Chat(whole))
    path = tmp_path / "questions"
    writer = {"from_jsonl": expected.to_jsonl, "from_csv": expected.to_csv}.get(reader)
    if writer:
        writer(path)
    given = path if writer else datasets.Dataset.from_list(CHATTED)
    data = getattr(MCQDataset, reader)(given, template="chat", tokenizer=Chat(whole))
    assert data.prompts() == expected.prompts()
    if writer:
        again = getattr(MCQDataset, reader)(
            **json.loads(json.dumps(data.source["arguments"]))
        )
        assert again.prompts() == expected.prompts()


@pytest.mark.parametrize(
    ("template", "tokenizer", "fact"),
    [
        ("chat", None, "tokenizer="),
        ("chat", object(), "no chat template"),
        ("chat", Chat(lambda messages: messages[0][1]), "drops the answer"),
        ("chat", Chat(lambda messages: messages[1][1]), "drops the question"),
        (
            "chat",
            Chat(lambda messages: messages[1][1] + messages[0][1]),
            "drops the answer",
        ),
        ("no field", Chat(whole), "{question}"),
    ],
)
def test_chat_templates_that_cannot_hold_a_question_and_its_answer_are_refused(
    template, tokenizer, fact
):
    with pytest.raises(ValueError, match=re.escape(fact)):
        MCQDataset.from_records(CHATTED, template=template, tokenizer=tokenizer)
