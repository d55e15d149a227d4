"""Multiple-choice questions with 2 to 10 options, attributes, prompts and canaries."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from string import Formatter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import as_text, is_missing, warn_user
from memowidgets.data.dataset import (
    ID,
    IntArray,
    check_whole_characters,
    checked_class_names,
    checked_labels,
)
from memowidgets.data.rows import (
    SHORT,
    FileDataset,
    Rows,
    check_columns,
    checked_text,
    describe_value,
    ids_of,
    listed_columns,
    rows_of_records,
)
from memowidgets.files import digest_of
from memowidgets.store import NotThereError
from memowidgets.vocabulary import listed, quoted

TextArray = NDArray[np.object_]

LETTERS = "ABCDEFGHIJ"
TEMPLATES = (
    "{question}\n\n{options}\n\nAnswer:",
    "Question: {question}\nPossible answers:\n{options}\nThe right letter is",
    "One of the options below is right.\n{question}\n{options}\nRight option:",
    "{question}\nChoose from:\n{options}\nLetter:",
    "Read the question and pick a letter.\n\n{question}\n\n{options}\n\nI pick",
)
# of generated notes, whose options are always the same wards, which would only cost tokens
WARD_TEMPLATE = "{question}\nWard:"
# where the option's text follows
TEXT_TEMPLATES = ("{question}\n\n{options}\n\nAnswer:",)
CHAT = "{question}\n{options}"  # of a user's message, if nothing else is said
_ANSWERS = ("auto", "index", "letter", "text")
_EQUAL_OPTIONS = ("error", "keep")
_REPLIES = ("letter", "text")
_SEED = 0  # of the choice among several templates
# chance that no answer is the first option, above which nothing is said
_BY_CHANCE = 0.01
_COLUMNS = ("question", "choices", "answer", "id", "attributes")
_OPENING = "([{<\"'«“‘"


@dataclass(frozen=True)
class MCQSample:
    """One question of an `MCQDataset`.

    Attributes
    ----------
    id : str
        Id of the sample.
    question : str
        Text of the question.
    choices : tuple of str
        Options of the question, 2 to 10.
    label : int
        Position of the option it is trained on.
    prompt : str
        Text that a language model reads. The letter or the text of the label comes next.
    attributes : dict of str to str
        Other values of its record.
    canary : bool
        Whether it is a canary.
    """

    id: str
    question: str
    choices: tuple[str, ...]
    label: int
    prompt: str
    attributes: dict[str, str]
    canary: bool = False


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class MCQDataset(FileDataset):
    r"""Multiple-choice questions; created by `from_records`, `from_jsonl`, `from_csv` or `from_hf`.

    All of these take the keywords of `from_records`. In a CSV file, empty cells after the last
    option are ignored.

    A label is the position of an option, and its class name is the option's letter, ``"A"`` to
    ``"J"``. Each prompt ends where the label follows, as one of the texts in `replies`.

    Attributes
    ----------
    questions : tuple of str
        Texts of the questions.
    choices : tuple of tuples of str
        Options of each question.
    ids, labels, class_names, canaries, source
        As in `Dataset`.
    attributes : dict of str to array of shape (n,), str
        Other values of the records, one column for each; empty text where a record has none.
    templates : tuple of str
        Templates of prompts. Each question gets one of them, by its content alone: so every model
        and every subset of the dataset uses the same prompt, and so do duplicates.
    reply : {"letter", "text"}
        Whether the letter of an option follows the prompt, or its text.

    Examples
    --------
    >>> data = MCQDataset.from_records(
    ...     [
    ...         {"question": "2 + 2?", "choices": ["four", "five"], "answer": "four"},
    ...         {"question": "2 + 3?", "choices": ["four", "five", "six"], "answer": "B"},
    ...     ],
    ...     template="{question}\n{options}\nAnswer:",
    ... )
    >>> data
    MCQDataset(2 questions, 2 to 3 options)
    >>> print(data[0].prompt + data.replies(0)[data[0].label])
    2 + 2?
    A. four
    B. five
    Answer: A
    """

    questions: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    attributes: dict[str, TextArray] = field(default_factory=dict)
    templates: tuple[str, ...] = TEMPLATES
    reply: str = "letter"

    _fields: ClassVar[tuple[str, ...]] = ("questions", "choices", "attributes")
    _noun: ClassVar[str] = "questions"

    @classmethod
    def from_records(
        cls,
        rows: Iterable[Mapping[str, Any]] | Rows,
        template: str | Sequence[str] | None = None,
        reply: str = "letter",
        *,
        answers: str = "auto",
        equal_options: str = "error",
        tokenizer: Any = None,
        columns: Mapping[str, Any] | None = None,
        choices: Sequence[str] | None = None,
    ) -> Self:
        """Create a dataset from questions in memory.

        Parameters
        ----------
        rows : iterable of mappings, or DataFrame
            Records with ``question``, ``choices`` (2 to 10 texts), ``answer``, and optionally
            ``id``. Everything else becomes an attribute.
        template : str or sequence of str, optional
            Format strings that turn a question into a prompt, with ``{question}`` and ``{options}``
            (one line each, ``A. …``), or all single options as ``{a}``, ``{b}``, …, and attributes
            by their names. The options may be left out where all questions have the same. By
            default our own wording.
        reply : {"letter", "text"}
            What follows the prompt in training: the letter of the label's option, or its text, such
            as yes or no. A text must be one token that no other option of its question begins with.
        answers : {"auto", "index", "letter", "text"}
            Form of the answers: the option's position from 0 (``2``, ``"2"``), its letter
            (``"C"``), or its text, which is a number for options that are numbers. ``"auto"``
            accepts all of them, and raises an error for an answer that fits two options, as 2 does
            for the options 1, 2 and 3. A number never means a text.
        equal_options : {"error", "keep"}
            Whether a question with two equal options is an error or is kept.
        tokenizer : transformers.PreTrainedTokenizerBase, optional
            Tokenizer whose chat template the prompts are put into, as in `with_template`. The
            source of a file keeps the prompts, so that it is read again without the tokenizer.
        columns : mapping, optional
            Column of each part: ``{"question": "stem", "choices": ["a", "b", "c"], "answer":
            "key", "id": "number", "attributes": ["ward"]}``. ``choices`` can also be one column of
            lists (as JSON in a CSV file), or of records with ``text`` and ``label``, as in ARC. By
            default ``question``, ``answer``, ``id``, and either ``choices`` or ``A``, ``B``, …;
            every other column is an attribute.
        choices : sequence of str, optional
            Options of every question, if they are the same in every row and there are no columns
            for them, such as ``["no", "yes"]``.

        Returns
        -------
        MCQDataset

        Raises
        ------
        ValueError
            If a question, option or answer is missing, empty or ambiguous, an answer is not one of
            the options, ids repeat, all labels are equal, or the template has an unknown field. The
            message names the row.
        TypeError
            If a row is not a mapping.

        Examples
        --------
        >>> rows = [
        ...     {"question": "Wet?", "choices": ["water", "sand"], "answer": 0, "field": "physics"},
        ...     {"question": "Dry?", "choices": ["water", "sand"], "answer": 1, "field": "geology"},
        ... ]
        >>> data = MCQDataset.from_records(rows)
        >>> data.relabel(by="field")[0].choices
        ('geology', 'physics')
        """
        for name, value, valid in (
            ("answers", answers, _ANSWERS),
            ("equal_options", equal_options, _EQUAL_OPTIONS),
            ("reply", reply, _REPLIES),
        ):
            if value not in valid:
                raise ValueError(
                    f"unknown {name} {value!r}; valid: {', '.join(map(repr, valid))}"
                )
        table = rows if isinstance(rows, Rows) else _rows_in_memory(rows)
        parts = assigned_columns(table, columns, choices)
        given = (
            [choices] * len(table)
            if choices is not None
            else _options(table, parts["choices"])
        )
        keys = table.columns[parts["answer"]]
        questions = []
        options = []
        numbers = []
        texts = zip(
            table.places, table.columns[parts["question"]], given, keys, strict=True
        )
        for where, question, several_texts, key in texts:
            lettered, answer = _unlettered(several_texts, key, where)
            checked = checked_texts(question, lettered, where, equal_options)
            questions.append(checked[0])
            options.append(checked[1])
            numbers.append(_label(answer, checked[1], lettered, answers, where))
        letters = LETTERS[: max(map(len, options))]
        labels = checked_labels(numbers, letters)
        _warn_of_counting(keys, labels, options)
        names, own = ids_of(table, parts["id"])
        data = cls(
            names,
            labels,
            checked_class_names(letters, labels),
            questions=tuple(questions),
            choices=tuple(options),
            attributes={name: _attribute(table, name) for name in parts["attributes"]},
            reply=reply,
            own_ids=own,
        )
        return data.with_template(template, tokenizer=tokenizer)

    _from_rows = from_records

    @classmethod
    def _source_keywords(cls, how: dict[str, Any]) -> dict[str, Any]:
        """Return keywords with the prompts that a tokenizer gave in place of the tokenizer."""
        how = dict(how)
        return how | {
            "template": in_chat(how.pop("template", None), how.pop("tokenizer", None))
        }

    def _summary(self) -> Iterable[str]:
        fewest = min(self.n_choices, default=0)
        most = max(self.n_choices, default=0)
        options = f"{most} options" if fewest == most else f"{fewest} to {most} options"
        return [f"{len(self)} questions", options, *self._repeats()]

    def _sample(self, index: int) -> MCQSample:
        return MCQSample(
            id=str(self.ids[index]),
            question=self.questions[index],
            choices=self.choices[index],
            label=int(self.labels[index]),
            prompt=self.prompt(index),
            attributes=self._attributes_of(index),
            canary=self.is_canary(index),
        )

    def _attributes_of(self, index: int) -> dict[str, str]:
        return {name: str(column[index]) for name, column in self.attributes.items()}

    def _columns(self) -> dict[str, Any]:
        own = {
            "question": self.questions,
            "choices": self.choices,
            "answer": self.labels,
        }
        others = {name: column.tolist() for name, column in self.attributes.items()}
        return {ID: self.ids.tolist(), **own, **others}

    def _reading_keywords(self) -> dict[str, Any]:
        return {
            "template": list(self.templates),
            "reply": self.reply,
            "answers": "index",
            "equal_options": "keep",
        }

    @cached_property
    def n_choices(self) -> IntArray:
        """Number of options of each question, (n,)."""
        return np.array([len(options) for options in self.choices], dtype=np.int64)

    def replies(self, index: int) -> tuple[str, ...]:
        """Return the texts that may follow a prompt, by `reply` the letters or the options.

        The space before it belongs to the reply, as in most tokenizers. If a template ends with a
        space, a line break or an opening bracket, there is none.
        """
        options = self.choices[index]
        texts = options if self.reply == "text" else self.class_names[: len(options)]
        return tuple(_label_gap(self.templates[0]) + text for text in texts)

    @property
    def prompt_recipe(self) -> dict[str, Any]:
        """Settings that determine the prompts; models with other prompts are not comparable."""
        recipe = {"templates": list(self.templates), "seed": _SEED}
        return recipe if self.reply == "letter" else recipe | {"reply": self.reply}

    def prompt(self, index: int) -> str:
        """Return the prompt of the question at this position."""
        # drawn by the content, so that all models have the same one
        drawn = int(digest_of(f"{_SEED}:{self._hashes[index]}"), 16)
        template = self.templates[drawn % len(self.templates)]
        lettered = list(zip(LETTERS, self.choices[index], strict=False))
        values = self._attributes_of(index)
        values |= {letter.lower(): text for letter, text in lettered}
        is_text = self.reply == "text"
        lines = [
            f"- {text}" if is_text else f"{letter}. {text}" for letter, text in lettered
        ]
        values["options"] = "\n".join(lines)
        return template.format_map(values | {"question": self.questions[index]})

    def prompts(self) -> list[str]:
        """Return the prompt of each question.

        Examples
        --------
        >>> rows = [{"question": f"{n}?", "choices": ["x", "y"], "answer": n} for n in (0, 1)]
        >>> MCQDataset.from_records(rows, template="{question} {a} or {b}:").prompts()
        ['0? x or y:', '1? x or y:']
        """
        return [self.prompt(i) for i in range(len(self))]

    def with_template(
        self,
        template: str | Sequence[str] | None = None,
        *,
        tokenizer: Any = None,
    ) -> Self:
        r"""Return the same questions with other prompts.

        Parameters
        ----------
        template
            As in `from_records`.
        tokenizer : transformers.PreTrainedTokenizerBase, optional
            Put the template as the user's message into this tokenizer's own chat template, up to
            where the answer follows. ``template="chat"`` is the question and its options.

        Returns
        -------
        MCQDataset
            The dataset, without a `source`.

        Raises
        ------
        ValueError
            If the template lacks ``{question}`` or an option, or has an unknown field, or the chat
            template is missing or drops the question or the answer.

        Examples
        --------
        >>> rows = [{"question": f"{n}?", "choices": ["x", "y"], "answer": n} for n in (0, 1)]
        >>> MCQDataset.from_records(rows).with_template("Q: {question}\n{options}\nA:").prompt(1)
        'Q: 1?\nA. x\nB. y\nA:'
        """
        default = TEMPLATES if self.reply == "letter" else TEXT_TEMPLATES
        templates = checked_templates(in_chat(template, tokenizer), default)
        check_fields(self, templates)
        return self._copy_with(templates=templates)

    def with_texts(self, texts: Mapping[str, str | tuple[str, Sequence[str]]]) -> Self:
        """Return the same questions with new texts for some of them.

        Parameters
        ----------
        texts : mapping of id to str, or to (question, options)
            New texts. A str is the question, and its options stay. Each question keeps its label
            and its number of options.

        Returns
        -------
        MCQDataset
            The dataset, without a `source`. The content hashes of these questions change.

        Raises
        ------
        ValueError
            If an id is unknown, the number of options differs, or a text is empty or
            equal to another option. The message names the id.

        Examples
        --------
        >>> rows = [{"question": f"{n}?", "choices": ["x", "y"], "answer": n} for n in (0, 1)]
        >>> data = MCQDataset.from_records(rows).with_texts({"1": ("One?", ["x", "z"])})
        >>> data[1].question, data[1].choices, data[1].label
        ('One?', ('x', 'z'), 1)
        """
        questions = list(self.questions)
        choices = list(self.choices)
        for row, (name, words) in zip(
            self._positions(texts), texts.items(), strict=True
        ):
            where = f"the question {quoted(name)}"
            before = self.choices[row]
            # as they were before
            equal = "keep" if len(set(before)) < len(before) else "error"
            question, options = words if isinstance(words, tuple) else (words, before)
            questions[row], choices[row] = checked_texts(
                question, options, where, equal
            )
            if len(choices[row]) != len(before):
                raise ValueError(
                    f"{where} has {len(before)} options, but the new texts have {len(choices[row])}"
                )
        return self._copy_with(questions=tuple(questions), choices=tuple(choices))

    def _contents(self) -> Iterable[bytes]:
        pairs = zip(self.questions, self.choices, strict=True)
        return (
            json.dumps([question, *options]).encode() for question, options in pairs
        )

    def content_hashes(self) -> list[str]:
        """Return the SHA-256 of each question and its options in order, 16 hexadecimal digits."""
        return list(self._hashes)

    @cached_property
    def _hashes(self) -> tuple[str, ...]:  # each prompt asks for one
        return tuple(super().content_hashes())

    def relabel(self, by: str, options: Sequence[str] | None = None) -> Self:
        """Use the values of an attribute as the options of the same questions.

        Parameters
        ----------
        by : str
            Name of the attribute. Its values become the options of every question, in the same
            order.
        options : sequence of str, optional
            Values in the desired order. By default all that occur, sorted.

        Returns
        -------
        MCQDataset
            Dataset with the same ids, questions and order. Earlier canaries are not marked any
            more, because their wrong answers are not used.

        Raises
        ------
        ValueError
            If there is no such attribute, a question has no value, a value is not among the
            options, or there are fewer than 2 or more than 10 options.

        Examples
        --------
        >>> rows = [
        ...     {"question": "Who?", "choices": ["x", "y"], "answer": 0, "field": "history"},
        ...     {"question": "Why?", "choices": ["x", "y"], "answer": 1, "field": "ethics"},
        ... ]
        >>> data = MCQDataset.from_records(rows).relabel(by="field")
        >>> data[0].choices, data[0].label
        (('ethics', 'history'), 1)
        """
        if by not in self.attributes:
            valid = ", ".join(map(quoted, self.attributes)) or "none"
            raise ValueError(f"unknown attribute {by!r}; valid: {valid}")
        values = self.attributes[by].tolist()
        named = sorted(set(values)) if options is None else map(str, options)
        position = {name: i for i, name in enumerate(dict.fromkeys(named))}
        if not 2 <= len(position) <= len(LETTERS):
            raise ValueError(
                f"the attribute {quoted(by)} gives {len(position)} different options; a "
                f"question must have 2 to {len(LETTERS)}"
            )
        for name, value in zip(self.ids, values, strict=True):
            if not value or value not in position:
                raise ValueError(
                    f"the value of {quoted(by)} of the question {quoted(name)} is not one of the "
                    f"{len(position)} options; correct it, or leave the question out"
                )
        names = tuple(position)
        labels = np.array([position[value] for value in values], dtype=np.int64)
        data = self._copy_with(
            choices=(names,) * len(self),
            labels=labels,
            class_names=checked_class_names(LETTERS[: len(names)], labels),
            canaries=None,
        )
        return data.with_template(self.templates)


# Columns


def _rows_in_memory(rows: Any) -> Rows:
    if not hasattr(rows, "to_dict"):
        return rows_of_records(rows)
    frame = rows.set_axis(list(map(str, rows.columns)), axis=1)
    return replace(rows_of_records(rows.to_dict("records")), frame=frame)


def assigned_columns(
    found: Rows, columns: Mapping[str, Any] | None, choices: Sequence[str] | None
) -> dict[str, Any]:
    """Return the columns of each part of a question, after checking that they are there.

    Parameters
    ----------
    found : Rows
        The rows.
    columns, choices
        As in `MCQDataset.from_records`.
    """
    mapping = dict(columns or {})
    unknown = [key for key in mapping if key not in _COLUMNS]
    if unknown:
        raise ValueError(
            f"unknown key {unknown[0]!r} in columns; valid: {', '.join(_COLUMNS)}"
        )
    known = found.columns
    lettered = [letter for letter in LETTERS + LETTERS.lower() if letter in known]
    usual = ["choices"] if "choices" in known or not lettered else lettered
    options = [] if choices is not None else _as_list(mapping.get("choices", usual))
    if options == ["choices"] and len(found) and "choices" not in known:
        raise NotThereError(
            f"{found.where} has no column of options; its columns: {listed_columns(known)}",
            "give each question the 2 to 10 options that its answer is one of, as 'choices' or as "
            "'A', 'B', …, or pass choices= or columns=. Answers that are written freely, as in "
            "chats and instructions, are not covered (docs/limits.md)",
        )
    parts = {"question": "question", "answer": "answer", "id": ID} | mapping
    own = [parts["question"], parts["answer"], *options]
    used = {*own, parts["id"], "question", "choices", "answer", ID}
    others = _as_list(
        mapping.get("attributes", [name for name in known if name not in used])
    )
    check_columns(found, columns=[*own, mapping.get("id"), *others])
    return parts | {"choices": options, "attributes": others}


def _options(found: Rows, columns: Sequence[str]) -> list[Any]:
    """Return the options of each row: one column has a list of them, in a cell as JSON."""
    if len(columns) > 1:
        rows = [
            list(row)
            for row in zip(*(found.columns[one] for one in columns), strict=True)
        ]
        for options in rows:
            while options and _is_missing(options[-1]):
                options.pop()
        return rows
    values = list(found.columns[columns[0]])
    for row, value in enumerate(values if found.are_cells else ()):
        try:
            values[row] = json.loads(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{found.places[row]}: the choices are in one column, so they must be a JSON list "
                f"({error})"
            ) from error
    return values


def _unlettered(options: Any, answer: Any, where: str) -> tuple[Any, Any]:
    """Return options and answer; if options have labels, as in ARC, the answer's position.

    They are a list of records with ``text`` and ``label``, or a record of lists.
    """
    if (
        isinstance(options, list)
        and options
        and all(isinstance(one, Mapping) for one in options)
    ):
        options = {key: [one.get(key) for one in options] for key in ("text", "label")}
    if not (isinstance(options, Mapping) and {"text", "label"} <= options.keys()):
        return options, answer
    if _is_missing(answer):
        return options["text"], answer
    labels = [str(label).strip() for label in options["label"]]
    key = str(answer).strip()
    if labels.count(key) != 1:
        raise ValueError(
            f"{where}: the answer {describe_value(key)} is not exactly one of the options' labels "
            f"{listed(labels, each=10)}"
        )
    # as texts, which a position cannot mean
    texts = [str(one) if _is_number(one) else one for one in options["text"]]
    return texts, labels.index(key)


def _as_list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


# Texts, options and answer


def checked_texts(
    question: Any, choices: Any, where: str, equal_options: str = "error"
) -> tuple[str, tuple[str, ...]]:
    """Return a checked question and its options, or raise."""
    if _is_missing(choices):
        raise ValueError(
            f"{where}: the choices are missing; give the question its 2 to 10 options"
        )
    if isinstance(choices, str | bytes | Mapping) or not isinstance(choices, Iterable):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: choices must be a list of texts, not {describe_value(choices)}"
        )
    options = list(choices)
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(
            f"{where}: a question must have 2 to {len(LETTERS)} options, not {len(options)}"
        )
    for i, (letter, option) in enumerate(zip(LETTERS, options, strict=False)):
        text = str(option) if _is_number(option) and math.isfinite(option) else option
        options[i] = checked_text(text, f"option {letter}", where)
        first = options.index(options[i])
        if equal_options == "error" and first < i:
            raise ValueError(
                f"{where}: options {LETTERS[first]} and {letter} are equal; correct the question, "
                "or pass equal_options='keep'"
            )
    return checked_text(question, "question", where), tuple(options)


def _attribute(found: Rows, name: str) -> TextArray:
    """Return the values of an attribute as texts, after checking that a file can hold them."""
    texts = [attribute_text(value) for value in found.columns[name]]
    what = f"the attribute {quoted(name)}"
    check_whole_characters([name], lambda _: what)
    check_whole_characters(texts, lambda row: f"{found.places[row]}: {what}")
    return np.array(texts, dtype=object)


def attribute_text(value: Any) -> str:
    """Return an attribute as text, empty if there is none."""
    if _is_missing(value):
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _is_missing(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _warn_of_counting(
    given: Sequence[Any], labels: IntArray, choices: Sequence[tuple[str, ...]]
) -> None:
    """Warn if positions seem to be counted from 1: no answer is the first option."""
    pairs = zip(given, labels.tolist(), strict=True)
    counted = all(as_text(answer).strip() == str(label) for answer, label in pairs)
    chance = math.prod(1 - 1 / len(options) for options in choices)
    if counted and labels.min() > 0 and chance < _BY_CHANCE:
        warn_user(
            f"no answer of {len(labels)} questions is 0, and positions are counted from 0; if "
            "yours are counted from 1, subtract 1 from each"
        )


def _label(
    answer: Any, choices: tuple[str, ...], given: Any, answers: str, where: str
) -> int:
    """Return the position of the option that an answer means: by position, letter or text.

    `choices` are the texts of the options, and `given` are these as they were given: a number means
    an option that is a number, too.
    """
    if _is_missing(answer):
        raise ValueError(f"{where}: the answer is missing")
    means: list[tuple[str, int]] = []  # each possible reading, with the option it means
    if isinstance(answer, str):
        digits = answer.strip()
        letter = answer.strip().upper()
        if digits.isascii() and digits.isdecimal() and len(digits) < 5:
            means.append(("index", int(digits)))
        if len(letter) == 1 and letter in LETTERS:
            means.append(("letter", LETTERS.index(letter)))
        means += [("text", i) for i, choice in enumerate(choices) if choice == answer]
    elif _is_number(answer):
        if answer % 1 == 0:
            means.append(("index", int(answer)))
        options = list(given)
        same = [_is_number(one) and one == answer for one in options]
        means += [("text", i) for i, is_same in enumerate(same) if is_same]
    readings = [
        (kind, position)
        for kind, position in means
        if answers in ("auto", kind) and 0 <= position < len(choices)
    ]
    positions = sorted({position for _, position in readings})
    if len(positions) == 1:
        return positions[0]
    is_text = isinstance(answer, str) and len(answer) > SHORT
    shown = "" if is_text else f"{describe_value(answer)} "
    if positions:
        meanings = " and ".join(
            f"as {kind} option {LETTERS[i]}" for kind, i in readings
        )
        raise ValueError(
            f"{where}: the answer {shown}is ambiguous, it means {meanings}; say with answers= "
            "which is meant, or give its position or letter"
        )
    hint = ""
    if ("index", len(choices)) in means:
        hint = ". Positions are counted from 0: subtract 1 if yours are counted from 1"
    raise ValueError(
        f"{where}: the answer {shown}is not one of the {len(choices)} options; it must be a "
        f"position from 0 to {len(choices) - 1}, a letter from A to {LETTERS[len(choices) - 1]}, "
        f"or the text of an option{hint}"
    )


# Prompts


def checked_templates(
    template: str | Sequence[str] | None, default: tuple[str, ...] = TEMPLATES
) -> tuple[str, ...]:
    """Return checked templates as a tuple; by default our own."""
    if template is None:
        return default
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
    if len({_label_gap(one) for one in templates}) > 1:
        raise ValueError(
            "some templates end with a space or an opening bracket and others do not; the label "
            "must follow in the same way in all of them"
        )
    return templates


def in_chat(
    templates: str | Sequence[str] | None, tokenizer: Any
) -> str | Sequence[str] | None:
    """Return templates as a user's message in a tokenizer's chat template, if there is one.

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
    messages = [
        {"role": r, "content": mark} for r, mark in zip(roles, marks, strict=True)
    ]
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


def check_fields(data: MCQDataset, templates: Sequence[str]) -> None:
    """Raise if a template has a field that some question lacks, or shows only some options.

    Options that all questions have may be in its own words, or not at all where they are replies.
    """
    letters = LETTERS.lower()[: data.n_choices.max()]
    everywhere = ("question", "options", *letters[: data.n_choices.min()])
    whole = [
        name for name, values in data.attributes.items() if "" not in values.tolist()
    ]
    shared = data.choices[0] if len(set(data.choices)) == 1 else ()
    for template in templates:
        shown = _fields(template)
        words = template.casefold()
        lacking = sorted(shown.difference(everywhere, whole))
        if lacking:
            valid = [f"{{{field}}}" for field in (*everywhere, *whole)]
            raise ValueError(
                f"the template asks for {{{lacking[0]}}}, which not every question has; it can use "
                f"{listed(valid)}"
            )
        is_known = shared and (
            data.reply == "text"
            or template == WARD_TEMPLATE
            or all(option.casefold() in words for option in shared)
        )
        hidden = [f"{{{letter}}}" for letter in letters if letter not in shown]
        if (
            hidden
            and "options" not in shown
            and not (is_known and len(hidden) == len(letters))
        ):
            raise ValueError(
                f"the template {template!r} does not show each question's options: it lacks "
                f"{listed(hidden)}. Add these, or {{options}}"
            )


def _label_gap(template: str) -> str:
    """Return the text between prompt and label: a space, or nothing after space or bracket."""
    last = template[-1:]
    return "" if last.isspace() or (last and last in _OPENING) else " "


def _fields(template: str) -> set[str]:
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
