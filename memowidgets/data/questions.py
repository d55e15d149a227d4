"""One multiple-choice question: its columns, its texts, options and answer, and its prompt."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

import numpy as np

from memowidgets.checks import is_missing
from memowidgets.data.rows import Rows, check_some, listed_columns
from memowidgets.stamps import digest_of
from memowidgets.visible import HALF_CHARACTERS, listed, quoted, visible

LETTERS = "ABCDEFGHIJ"
MOST_CHARACTERS = 20_000
TEMPLATES = (
    "{question}\n\n{options}\n\nAnswer:",
    "Question: {question}\nPossible answers:\n{options}\nThe right letter is",
    "One of the options below is right.\n{question}\n{options}\nRight option:",
    "{question}\nChoose from:\n{options}\nLetter:",
    "Read the question and pick a letter.\n\n{question}\n\n{options}\n\nI pick",
)
CHAT = "{question}\n{options}"  # of a user's message, if nothing else is said
_A_LETTER, _A_NUMBER = 2, 40  # characters that an error quotes of an answer
_ANSWERS = ("auto", "index", "letter", "text")
_EQUAL_OPTIONS = ("error", "keep")
_COLUMNS = ("question", "choices", "answer", "id", "attributes")
_OPENING = "([{<\"'«“‘"


@dataclass(frozen=True)
class Question:
    """Content of one row."""

    where: str
    id: str | None
    question: str
    choices: tuple[str, ...]
    label: int
    attributes: dict[str, str]


# Columns


def checked_columns(
    columns: Mapping[str, Any] | None, choices: Sequence[str] | None
) -> tuple[dict[str, Any], bool]:
    """Return the columns that a user assigned, and whether by number instead of by name."""
    mapping = dict(columns or {})
    unknown = [key for key in mapping if key not in _COLUMNS]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in columns; valid: {', '.join(_COLUMNS)}")
    if choices is not None and (isinstance(choices, str) or len(choices) < 2):
        raise ValueError(f"choices must be two or more options, not {choices!r}")
    if choices is not None and "choices" in mapping:
        raise ValueError("choices and columns['choices'] cannot be combined; pass one of them")
    kinds = {type(one) for value in mapping.values() for one in _as_list(value)}
    if not kinds <= {str} and not kinds <= {int}:
        raise TypeError("columns must be all names or all numbers")
    return mapping, kinds == {int}


def rows_of_columns(
    found: Rows, columns: Mapping[str, Any] | None, choices: Sequence[str] | None
) -> Rows:
    """Return rows of any columns as questions.

    Parameters
    ----------
    found : Rows
        Cells of a CSV file, or values of a JSON Lines file or a `datasets.Dataset`.
    columns, choices
        As in `MCQDataset.from_csv`.
    """
    mapping, by_number = checked_columns(columns, choices)
    if by_number and not found.are_cells:
        raise TypeError("columns are numbered only in a CSV file; name them")
    if not found.columns:
        check_some(found)
    question = _column(found, "question", mapping.get("question", "question"))
    answer = _column(found, "answer", mapping.get("answer", "answer"))
    options: list[str] = []
    if choices is None:
        given = _as_list(mapping.get("choices", _default_choices(found.columns)))
        options = [_column(found, "choices", one) for one in given]
    own = mapping.get("id", "id" if "id" in found.columns else None)
    name = None if own is None else _column(found, "id", own)
    used = {question, answer, name, *options}
    others = [] if by_number else [one for one in found.columns if one not in used]
    columns = {
        str(one): found.columns[_column(found, "attributes", one)]
        for one in _as_list(mapping.get("attributes", others))
    }
    keys = list(found.columns[answer])
    texts: list[Any] = [choices] * len(found) if choices is not None else _options(found, options)
    for row, lettered in enumerate(texts):
        if isinstance(lettered, Mapping) and {"text", "label"} <= lettered.keys():  # as in ARC
            letters, texts[row] = list(lettered["label"]), list(lettered["text"])
            keys[row] = letters.index(keys[row]) if keys[row] in letters else keys[row]
    columns |= {"question": found.columns[question], "choices": texts, "answer": keys}
    columns["id"] = [None] * len(found) if name is None else found.columns[name]
    return Rows(found.where, columns, found.places)


def _options(found: Rows, columns: Sequence[str]) -> list[Any]:
    """Return the options of each row: one column has a list of them, in a cell as JSON."""
    if len(columns) != 1:
        several = [list(row) for row in zip(*(found.columns[one] for one in columns), strict=True)]
        for options in several if found.are_cells else ():
            while options and not options[-1].strip():
                options.pop()
        return several
    values = list(found.columns[columns[0]])
    for row, value in enumerate(values if found.are_cells else ()):
        try:
            values[row] = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{found.places[row]}: the choices are in one column, so they must be a JSON list "
                f"({error})"
            ) from error
    return values


def _default_choices(header: Iterable[str]) -> list[str]:
    if "choices" in header:
        return ["choices"]
    upper = [letter for letter in LETTERS if letter in header]
    lower = [letter for letter in LETTERS.lower() if letter in header]
    return upper or lower or ["choices"]


def _column(found: Rows, what: str, column: str | int) -> str:
    known = list(found.columns)
    if isinstance(column, int):
        if not 0 <= column < len(known):
            raise ValueError(
                f"{found.where} has the columns 0 to {len(known) - 1}, but not the column "
                f"{column} for {what!r}"
            )
        return known[column]
    if column not in known:
        raise ValueError(
            f"{found.where} has no column {quoted(column)} for {what!r}; its columns: "
            f"{listed_columns(known)}. Assign them with columns={{{what!r}: …}}, by number if "
            "the first line is not a header"
        )
    return column


def _as_list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | int) else list(value)


# Texts, options and answer


def checked_questions(
    rows: Rows, answers: str = "auto", equal_options: str = "error"
) -> list[Question]:
    """Return questions from rows, or raise an error that names the first bad one."""
    for name, value, valid in (
        ("answers", answers, _ANSWERS),
        ("equal_options", equal_options, _EQUAL_OPTIONS),
    ):
        if value not in valid:
            raise ValueError(f"unknown {name} {value!r}; valid: {', '.join(map(repr, valid))}")
    if not len(rows):
        raise ValueError("the dataset is empty: it has no question")
    questions = []
    for where, fields in rows.records():
        texts = fields.pop("question", None), fields.pop("choices", None)
        question, choices = checked_texts(*texts, where, equal_options)
        label = _label(fields.pop("answer", None), choices, answers, where)
        name = fields.pop("id", None)
        attributes = {key: attribute_text(value) for key, value in fields.items()}
        own = None if _missing(name) else str(name)
        questions.append(Question(where, own, question, choices, label, attributes))
    _check_ids(questions)
    return questions


def _check_ids(questions: Sequence[Question]) -> None:
    given = [question for question in questions if question.id is not None]
    if given and len(given) < len(questions):
        without = next(question for question in questions if question.id is None)
        raise ValueError(
            f"{without.where}: the id is missing, but {len(given)} other questions have one; give "
            "an id to each or to none"
        )
    seen: dict[str | None, str] = {}
    for question in given:
        if question.id in seen:
            raise ValueError(
                f"{question.where}: the id {quoted(question.id)} is already used in "
                f"{seen[question.id]}; ids must be unique"
            )
        seen[question.id] = question.where


def checked_texts(
    question: Any, choices: Any, where: str, equal_options: str = "error"
) -> tuple[str, tuple[str, ...]]:
    """Return a checked question and its options, or raise."""
    if choices is None or (isinstance(choices, str | float) and _missing(choices)):
        raise ValueError(
            f"{where}: the choices are missing; give each question the 2 to 10 options that its "
            "answer is one of. Answers that are written freely, as in chats and instructions, are "
            "not covered (docs/limits.md)"
        )
    if isinstance(choices, str | bytes | Mapping) or not isinstance(choices, Iterable):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: choices must be a list of texts, not {described(choices)}"
        )
    options = list(choices)
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(
            f"{where}: a question must have 2 to {len(LETTERS)} options, not {len(options)}"
        )
    for i, (letter, option) in enumerate(zip(LETTERS, options, strict=False)):
        is_number = isinstance(option, int | float | np.number) and not isinstance(option, bool)
        text = str(option) if is_number and math.isfinite(option) else option
        options[i] = checked_text(text, f"option {letter}", where)
        first = options.index(options[i])
        if equal_options == "error" and first < i:
            raise ValueError(
                f"{where}: options {LETTERS[first]} and {letter} are equal; correct the question, "
                "or pass equal_options='keep'"
            )
    return checked_text(question, "question", where), tuple(options)


def checked_text(value: Any, what: str, where: str, most: int | None = MOST_CHARACTERS) -> str:
    """Return a text, or raise if it is missing, empty, too long or cannot be tokenized."""
    if is_missing(value):
        raise ValueError(f"{where}: the {what} is missing")
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: the {what} must be a text, not {described(value)}"
        )
    if not value.strip():
        raise ValueError(f"{where}: the {what} is empty")
    if most is not None and len(value) > most:
        raise ValueError(
            f"{where}: the {what} has {len(value)} characters, the limit is {most}; "
            "shorten it or leave it out (no text is cut)"
        )
    if HALF_CHARACTERS.search(value):
        raise ValueError(
            f"{where}: the {what} has half a character (a lone surrogate), which no tokenizer "
            "can read; correct the text's encoding"
        )
    return value


def described(value: object) -> str:
    """Describe a wrong value in an error: a number or letter as it is, a text by its length.

    A notebook keeps its errors, so they must not quote what could be part of a sample.
    """
    if isinstance(value, str):
        return quoted(value) if len(value) <= _A_LETTER else f"a text of {len(value)} characters"
    if isinstance(value, int | float | np.number):
        return visible(str(value), _A_NUMBER)
    return f"of type {type(value).__name__}"


def attribute_text(value: Any) -> str:
    """Return an attribute as text, empty if there is none."""
    if value is None or (isinstance(value, str | float) and _missing(value)):
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _label(answer: Any, choices: tuple[str, ...], answers: str, where: str) -> int:
    """Return the position of the option that an answer means: by position, letter or text."""
    if _missing(answer):
        raise ValueError(f"{where}: the answer is missing")
    if isinstance(answer, bool | np.bool_) or not isinstance(answer, str | int | float | np.number):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: the answer must be an option's position from 0, its letter or its text, not "
            f"{described(answer)}"
        )
    found: list[tuple[str, int]] = []  # each possible reading, with the option it means
    if isinstance(answer, str):
        digits, letter = answer.strip(), answer.strip().upper()
        if digits.isascii() and digits.isdecimal() and len(digits) < 5:
            found.append(("index", int(digits)))
        if len(letter) == 1 and letter in LETTERS:
            found.append(("letter", LETTERS.index(letter)))
        found += [("text", i) for i, choice in enumerate(choices) if choice == answer]
    elif not isinstance(answer, float | np.floating) or float(answer).is_integer():
        found.append(("index", int(answer)))
    readings = [
        (kind, position)
        for kind, position in found
        if answers in ("auto", kind) and 0 <= position < len(choices)
    ]
    positions = sorted({position for _, position in readings})
    if len(positions) == 1:
        return positions[0]
    is_text = isinstance(answer, str) and len(answer) > _A_LETTER
    shown = "" if is_text else f"{described(answer)} "
    if positions:
        kinds = list(dict(readings))
        meanings = " and ".join(f"as {kind} option {LETTERS[i]}" for kind, i in readings)
        advice = f"pass answers={' or answers='.join(map(repr, kinds))}"
        advice = advice if len(kinds) > 1 else "give its position or letter"
        raise ValueError(f"{where}: the answer {shown}is ambiguous, it means {meanings}; {advice}")
    meant = {
        "index": f"a position from 0 to {len(choices) - 1}",
        "letter": f"a letter from A to {LETTERS[len(choices) - 1]}",
        "text": "the text of an option",
    }
    valid = " or ".join(meant.values()) if answers == "auto" else meant[answers]
    raise ValueError(
        f"{where}: the answer {shown}is not one of the {len(choices)} options; it must be {valid}"
    )


# Prompts


def checked_templates(template: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return checked templates as a tuple; by default our own."""
    if template is None:
        return TEMPLATES
    templates = (template,) if isinstance(template, str) else tuple(template)
    if not templates or not all(isinstance(one, str) for one in templates):
        raise TypeError("template must be a text or several texts")
    for one in templates:
        if one == "chat":
            raise ValueError(
                'template="chat" needs the tokenizer whose chat template is meant: '
                'from_records(rows, template="chat", tokenizer=tokenizer)'
            )
        if "question" not in _fields(one):
            raise ValueError(f"the template {one!r} lacks {{question}}")
    if len({label_gap(one) for one in templates}) > 1:
        raise ValueError(
            "some templates end with a space or an opening bracket and others do not; the label "
            "must follow in the same way in all of them"
        )
    return templates


def in_chat(templates: str | Sequence[str] | None, tokenizer: Any) -> str | Sequence[str] | None:
    """Return templates as the message of a user in a tokenizer's chat template, if there is one.

    A training on ``messages`` renders the whole conversation, so the prompt is what comes before
    the answer there, a system message of the template's own included.

    Raises
    ------
    ValueError
        If the tokenizer has no chat template, or that drops the question or the answer.
    """
    if tokenizer is None:
        return templates
    wording = CHAT if templates is None or templates == "chat" else templates
    if getattr(tokenizer, "chat_template", None) is None:
        raise ValueError(
            "the tokenizer has no chat template; load the one that the script trains with, or "
            "leave tokenizer= out and pass the script's own prompt as template"
        )
    marks = "<<memowidgets-question>>", "<<memowidgets-answer>>"
    roles = ("user", "assistant")
    messages = [{"role": r, "content": mark} for r, mark in zip(roles, marks, strict=True)]
    text = str(tokenizer.apply_chat_template(messages, tokenize=False))
    places = [text.find(mark) for mark in marks]
    if not 0 <= places[0] < places[1]:
        lost = "question" if places[0] < 0 else "answer"
        raise ValueError(
            f"the tokenizer's chat template drops the {lost}: a conversation of a question and its "
            "answer comes out without it, or with the answer first. Pass the script's own prompt "
            "as template, without tokenizer="
        )
    text = text[: places[1]]
    first = getattr(tokenizer, "bos_token", None)
    if first and text.startswith(first) and tokenizer("")["input_ids"][:1]:
        text = text.removeprefix(first)  # the tokenizer adds it once more
    frame = text.replace("{", "{{").replace("}", "}}")
    return tuple(frame.replace(marks[0], one) for one in checked_templates(wording))


def check_fit(
    templates: Sequence[str], attributes: Mapping[str, Iterable[str]], fewest: int, ids: Any
) -> None:
    """Raise if a template has a field that some question lacks."""
    letters = [letter.lower() for letter in LETTERS[:fewest]]
    for name in sorted({name for template in templates for name in _fields(template)}):
        if name in ("question", "options", *letters):
            continue
        if name not in attributes:
            known = [f"{{{field}}}" for field in ("question", "options", *letters, *attributes)]
            raise ValueError(
                f"the template asks for {{{name}}}, which not every question has; it can use "
                f"{listed(known)}"
            )
        for position, value in enumerate(attributes[name]):
            if not value:
                raise ValueError(
                    f"the template asks for {{{name}}}, but the question "
                    f"{quoted(ids[position])} has none"
                )


def render(
    template: str, question: str, choices: Sequence[str], attributes: Mapping[str, str]
) -> str:
    """Return the prompt, up to where the label follows."""
    lettered = list(zip(LETTERS, choices, strict=False))
    values = dict(attributes)
    values.update({letter.lower(): text for letter, text in lettered})
    values["options"] = "\n".join(f"{letter}. {text}" for letter, text in lettered)
    values["question"] = question
    return template.format_map(values)


def drawn(n_templates: int, seed: int, content_hash: str) -> int:
    """Return the template of a sample, chosen by its content, so equal in all models."""
    return int(digest_of(f"{seed}:{content_hash}"), 16) % n_templates


def label_gap(template: str) -> str:
    """Return the text between prompt and label: a space, or nothing after space or bracket."""
    last = template[-1:]
    return "" if last.isspace() or (last and last in _OPENING) else " "


def _fields(template: str) -> set[str]:
    if len(template) > MOST_CHARACTERS:
        raise ValueError(
            f"the template has {len(template)} characters, the limit is {MOST_CHARACTERS}"
        )
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(
            f"the template {template!r} is not a format string ({error}); write {{{{ and }}}} for "
            "literal braces"
        ) from error
    names = set()
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            raise ValueError(
                f"the template has {{{name}{'!' + conversion if conversion else ''}"
                f"{':' + spec if spec else ''}}}; only plain names are allowed in braces, such as "
                "{question}"
            )
        names.add(name)
    return names
