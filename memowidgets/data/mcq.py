"""Multiple-choice questions with 2 to 10 options, attributes, prompts and canaries."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.data.dataset import (
    ID,
    BoolArray,
    Dataset,
    IntArray,
    checked_class_names,
    checked_ids,
    checked_labels,
)
from memowidgets.data.rows import (
    SHORT,
    Rows,
    check_some,
    checked_row_ids,
    checked_text,
    described,
    listed_columns,
    read_csv,
    read_jsonl,
    rows_of_hf,
    rows_of_records,
)
from memowidgets.stamps import digest_of
from memowidgets.visible import listed, quoted

TextArray = NDArray[np.object_]

LETTERS = "ABCDEFGHIJ"
TEMPLATES = (
    "{question}\n\n{options}\n\nAnswer:",
    "Question: {question}\nPossible answers:\n{options}\nThe right letter is",
    "One of the options below is right.\n{question}\n{options}\nRight option:",
    "{question}\nChoose from:\n{options}\nLetter:",
    "Read the question and pick a letter.\n\n{question}\n\n{options}\n\nI pick",
)
# of generated notes, whose options are the same wards in the same order
WARD_TEMPLATE = (
    "{question}\nWard:"  # all questions have the same options, which would only cost tokens
)
TEXT_TEMPLATES = ("{question}\n\n{options}\n\nAnswer:",)  # where the option's text follows
CHAT = "{question}\n{options}"  # of a user's message, if nothing else is said
_ANSWERS = ("auto", "index", "letter", "text")
_EQUAL_OPTIONS = ("error", "keep")
_REPLIES = ("letter", "text")
_BY_CHANCE = 0.01  # chance that no answer is the first option, above which nothing is said
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


class Asking(TypedDict, total=False):
    """Keywords of all constructors of questions, as `MCQDataset.from_records` explains them."""

    reply: str
    prompt_seed: int
    answers: str
    equal_options: str
    tokenizer: Any


@dataclass(frozen=True, repr=False, eq=False)
class MCQDataset(Dataset):
    r"""Multiple-choice questions; created by `from_records`, `from_jsonl`, `from_csv` or `from_hf`.

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
        Templates of prompts. Each question gets one of them.
    prompt_seed : int
        Seed for the choice of templates. The choice depends on the question's content alone, so
        every model and every subset of the dataset uses the same prompt, and so do duplicates.
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
    ids: NDArray[np.str_]
    labels: IntArray
    class_names: tuple[str, ...]
    attributes: dict[str, TextArray] = field(default_factory=dict)
    templates: tuple[str, ...] = TEMPLATES
    prompt_seed: int = 0
    reply: str = "letter"
    canaries: BoolArray | None = None
    source: dict[str, Any] | None = None

    _fields: ClassVar[tuple[str, ...]] = ("questions", "choices", "attributes")
    _noun: ClassVar[str] = "questions"

    @classmethod
    def from_records(
        cls,
        rows: Iterable[Mapping[str, Any]] | Rows,
        template: str | Sequence[str] | None = None,
        reply: str = "letter",
        *,
        prompt_seed: int = 0,
        answers: str = "auto",
        equal_options: str = "error",
        tokenizer: Any = None,
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
        prompt_seed : int
            Seed for the choice of each question's template.
        answers : {"auto", "index", "letter", "text"}
            Form of the answers: the option's position from 0 (``2``, ``"2"``), its letter
            (``"C"``), or its text. ``"auto"`` accepts all of them, and raises an error for an
            answer that fits two options.
        equal_options : {"error", "keep"}
            Whether a question with two equal options is an error or is kept.
        tokenizer : transformers.PreTrainedTokenizerBase, optional
            Tokenizer whose chat template the prompts are put into, as in `with_template`.

        Returns
        -------
        MCQDataset

        Raises
        ------
        ValueError
            If a question, option or answer is missing, empty, longer than 20 000 characters or
            ambiguous, an answer is not one of the options, ids repeat, all labels are equal, or the
            template has an unknown field. The message names the row.
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
                raise ValueError(f"unknown {name} {value!r}; valid: {', '.join(map(repr, valid))}")
        records = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
        found = records if isinstance(records, Rows) else rows_of_records(records)
        if not len(found):
            raise ValueError("the dataset is empty: it has no question")
        questions, choices, numbers = [], [], []
        for where, fields in found.records():
            texts = fields.get("question"), fields.get("choices")
            question, options = checked_texts(*texts, where, equal_options)
            questions.append(question)
            choices.append(options)
            numbers.append(_label(fields.get("answer"), options, answers, where))
        letters = LETTERS[: max(map(len, choices))]
        labels = checked_labels(numbers, letters)
        _warn_of_counting(found.columns["answer"], labels, choices)
        own = ("question", "choices", "answer", ID)
        data = cls(
            questions=tuple(questions),
            choices=tuple(choices),
            ids=checked_ids(_ids(found), len(questions)),
            labels=labels,
            class_names=checked_class_names(letters, labels),
            attributes={
                name: np.array(list(map(attribute_text, values)), dtype=object)
                for name, values in found.columns.items()
                if name not in own
            },
            reply=reply,
        )
        return data.with_template(template, prompt_seed, tokenizer=tokenizer)

    @classmethod
    def from_jsonl(
        cls,
        path: str | Path,
        template: str | Sequence[str] | None = None,
        *,
        columns: Mapping[str, Any] | None = None,
        choices: Sequence[str] | None = None,
        **how: Unpack[Asking],
    ) -> Self:
        r"""Read a JSON Lines file in UTF-8, with one object per line.

        Parameters
        ----------
        path : str or Path
            File whose objects have the keys of `from_records`, or others that `columns` names.
        template : str or sequence of str, optional
            As in `from_records`.
        columns, choices
            As in `from_hf`, with keys of the objects instead of columns.
        **how
            `reply`, `prompt_seed`, `answers`, `equal_options` and `tokenizer`, as in
            `from_records`. The source keeps the prompts that the tokenizer gave, so the file is
            read again without it.

        Returns
        -------
        MCQDataset
            Its `source` names the file.

        Raises
        ------
        ValueError
            As in `from_records`, and for broken JSON or another encoding. The message names file
            and line.
        FileNotFoundError
            If the file does not exist.

        Examples
        --------
        >>> import tempfile
        >>> lines = (
        ...     '{"question": "Wet?", "choices": ["water", "sand"], "answer": "A"}\n'
        ...     '{"question": "Dry?", "choices": ["water", "sand"], "answer": "B"}\n'
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "questions.jsonl"
        ...     _ = path.write_text(lines, encoding="utf-8")
        ...     MCQDataset.from_jsonl(path)
        MCQDataset(2 questions, 2 options)
        """
        return cls._from_file(
            "from_jsonl",
            path,
            read_jsonl(path),
            columns=columns,
            choices=choices,
            template=in_chat(template, how.pop("tokenizer", None)),
            **how,
        )

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        columns: Mapping[str, Any] | None = None,
        template: str | Sequence[str] | None = None,
        *,
        choices: Sequence[str] | None = None,
        sep: str = ",",
        **how: Unpack[Asking],
    ) -> Self:
        r"""Read a CSV file in UTF-8.

        Parameters
        ----------
        path : str or Path
            The file. Empty cells after the last option are ignored.
        columns : mapping, optional
            Column of each part, by its name in the header, or by its number from 0 if there is no
            header: ``{"question": "stem", "choices": ["a", "b", "c"], "answer": "key", "id":
            "number", "attributes": ["ward"]}``. ``choices`` can also be one column with a JSON
            list. Without ``attributes``, every other column is an attribute. The default is
            ``question``, ``answer``, ``id``, and either ``choices`` or ``A``, ``B``, ….
        choices : sequence of str, optional
            Options of every question, if they are the same in every row and the file has no columns
            for them, such as ``["no", "yes"]``.
        template : str or sequence of str, optional
            As in `from_records`.
        sep : str
            Character between two cells, such as ``";"`` or a tab.
        **how
            As in `from_jsonl`.

        Returns
        -------
        MCQDataset
            Its `source` names the file.

        Raises
        ------
        ValueError
            As in `from_records`, and if a column is missing or a line has another number of cells
            than the header. The message names file and line.
        FileNotFoundError
            If the file does not exist.

        Examples
        --------
        >>> import tempfile
        >>> lines = "question,A,B,key,year\nWet?,water,sand,A,2024\nDry?,water,sand,B,2025\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "questions.csv"
        ...     _ = path.write_text(lines, encoding="utf-8")
        ...     MCQDataset.from_csv(path, columns={"answer": "key"}).attributes["year"].tolist()
        ['2024', '2025']
        """
        _, by_number = checked_columns(columns, choices)
        return cls._from_file(
            "from_csv",
            path,
            read_csv(path, header=not by_number, sep=sep),
            {"sep": sep},
            columns=columns,
            choices=choices,
            template=in_chat(template, how.pop("tokenizer", None)),
            **how,
        )

    @classmethod
    def from_hf(
        cls,
        dataset: Any,
        columns: Mapping[str, Any] | None = None,
        template: str | Sequence[str] | None = None,
        *,
        choices: Sequence[str] | None = None,
        **how: Unpack[Asking],
    ) -> Self:
        """Create a dataset from a `datasets.Dataset` in memory.

        Parameters
        ----------
        dataset : datasets.Dataset
            One split, such as ``load_dataset("cais/mmlu", "all")["test"]``.
        columns : mapping, optional
            Column of each part by its name, as in `from_csv`. A column of options holds lists, or
            records with ``text`` and ``label``, as in ARC.
        choices : sequence of str, optional
            Options of every question, as in `from_csv`.
        template : str or sequence of str, optional
            As in `from_records`.
        **how
            As in `from_jsonl`.

        Returns
        -------
        MCQDataset
            Without a `source`: pass the dataset to `Audit.open` again.

        Raises
        ------
        ValueError
            As in `from_records`, and if a column is missing.
        TypeError
            If `dataset` has several splits, is streamed, or is something else.
        """
        return cls._from_rows(rows_of_hf(dataset), columns, choices, template=template, **how)

    @classmethod
    def _from_rows(
        cls,
        found: Rows,
        columns: Mapping[str, Any] | None = None,
        choices: Sequence[str] | None = None,
        **how: Any,
    ) -> Self:
        return cls.from_records(rows_of_columns(found, columns, choices), **how)

    def _summary(self) -> Iterable[str]:
        fewest, most = min(self.n_choices, default=0), max(self.n_choices, default=0)
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
        own = {"question": self.questions, "choices": self.choices, "answer": self.labels}
        others = {name: column.tolist() for name, column in self.attributes.items()}
        return {ID: self.ids.tolist(), **own, **others}

    def _reading(self) -> dict[str, Any]:
        return {
            "template": list(self.templates),
            "prompt_seed": self.prompt_seed,
            "reply": self.reply,
            "answers": "index",
            "equal_options": "keep",
        }

    def _contents_and_classes(self) -> list[tuple[str, ...]]:
        known = super()._contents_and_classes()
        return [(*one, prompt) for one, prompt in zip(known, self.prompts(), strict=True)]

    @cached_property
    def n_choices(self) -> IntArray:
        """Number of options of each question, (n,)."""
        return np.array([len(options) for options in self.choices], dtype=np.int64)

    @property
    def label_texts(self) -> tuple[str, ...]:
        """Letter of each class as it follows a prompt: ``" A"``, ``" B"`` and so on.

        The space belongs to the label, as in most tokenizers. If a template ends with a space, a
        line break or an opening bracket, the label is only the letter.
        """
        gap = _label_gap(self.templates[0])
        return tuple(gap + letter for letter in self.class_names)

    def replies(self, index: int) -> tuple[str, ...]:
        """Return the texts that may follow a prompt, by `reply` the letters or the options."""
        options = self.choices[index]
        if self.reply == "letter":
            return self.label_texts[: len(options)]
        return tuple(_label_gap(self.templates[0]) + option for option in options)

    @property
    def prompt_recipe(self) -> dict[str, Any]:
        """Settings that determine the prompts; models with other prompts are not comparable."""
        recipe = {"templates": list(self.templates), "seed": self.prompt_seed}
        return recipe if self.reply == "letter" else recipe | {"reply": self.reply}

    def prompt(self, index: int) -> str:
        """Return the prompt of the question at this position."""
        # drawn by the content, so that all models have the same one
        drawn = int(digest_of(f"{self.prompt_seed}:{self._hashes[index]}"), 16)
        template = self.templates[drawn % len(self.templates)]
        lettered = list(zip(LETTERS, self.choices[index], strict=False))
        values = self._attributes_of(index)
        values |= {letter.lower(): text for letter, text in lettered}
        marks = {letter: f"{letter}." if self.reply == "letter" else "-" for letter, _ in lettered}
        values["options"] = "\n".join(f"{marks[letter]} {text}" for letter, text in lettered)
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
        prompt_seed: int = 0,
        *,
        tokenizer: Any = None,
    ) -> Self:
        r"""Return the same questions with other prompts.

        Parameters
        ----------
        template, prompt_seed
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
        check_fit(templates, self.attributes, int(self.n_choices.min()), self.ids)
        check_options(templates, self.choices, self.reply)
        return self._replaced(templates=templates, prompt_seed=prompt_seed)

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
            If an id is unknown, the number of options differs, or a text is empty, too long or
            equal to another option. The message names the id.

        Examples
        --------
        >>> rows = [{"question": f"{n}?", "choices": ["x", "y"], "answer": n} for n in (0, 1)]
        >>> data = MCQDataset.from_records(rows).with_texts({"1": ("One?", ["x", "z"])})
        >>> data[1].question, data[1].choices, data[1].label
        ('One?', ('x', 'z'), 1)
        """
        questions, choices = list(self.questions), list(self.choices)
        for row, (name, words) in zip(self._positions(texts), texts.items(), strict=True):
            where, before = f"the question {quoted(name)}", self.choices[row]
            equal = "keep" if len(set(before)) < len(before) else "error"  # as they were before
            question: Any = words
            options: Sequence[str] = before
            if isinstance(words, tuple) and len(words) == 2:
                question, options = words
            questions[row], choices[row] = checked_texts(question, options, where, equal)
            if len(choices[row]) != len(before):
                raise ValueError(
                    f"{where} has {len(before)} options, but the new texts have {len(choices[row])}"
                )
        return self._replaced(questions=tuple(questions), choices=tuple(choices))

    def _contents(self) -> Iterable[bytes]:
        pairs = zip(self.questions, self.choices, strict=True)
        return (json.dumps([question, *options]).encode() for question, options in pairs)

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
            known = ", ".join(map(quoted, self.attributes)) or "none"
            raise ValueError(f"unknown attribute {by!r}; valid: {known}")
        values = [str(value) for value in self.attributes[by]]
        if "" in values:
            raise ValueError(
                f"the question {quoted(self.ids[values.index('')])} has no {quoted(by)}: give it "
                "a value, or leave it out"
            )
        names = tuple(sorted(set(values)) if options is None else map(str, options))
        if not 2 <= len(names) <= len(LETTERS) or len(set(names)) < len(names):
            raise ValueError(
                f"the attribute {quoted(by)} gives {len(set(names))} different options; a "
                f"question must have 2 to {len(LETTERS)}"
            )
        position = {name: i for i, name in enumerate(names)}
        for i, value in enumerate(values):
            if value not in position:
                raise ValueError(
                    f"the value of {quoted(by)} of the question {quoted(self.ids[i])} is not one "
                    f"of the {len(names)} options"
                )
        labels = np.array([position[value] for value in values], dtype=np.int64)
        data = self._replaced(
            choices=(names,) * len(self),
            labels=labels,
            class_names=checked_class_names(LETTERS[: len(names)], labels),
            canaries=None,
        )
        return data.with_template(self.templates, self.prompt_seed)


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


def _ids(rows: Rows) -> list[str] | None:
    """Return the ids of all rows, or None if no row has one."""
    given = [None if _missing(name) else str(name) for name in rows.columns.get(ID, ())]
    n = sum(name is not None for name in given)
    if n == 0:
        return None
    others = f", but {n} other questions have one; give an id to each or to none"
    return checked_row_ids(given, rows.places, others)


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


def attribute_text(value: Any) -> str:
    """Return an attribute as text, empty if there is none."""
    if value is None or (isinstance(value, str | float) and _missing(value)):
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _warn_of_counting(
    given: Sequence[Any], labels: IntArray, choices: Sequence[tuple[str, ...]]
) -> None:
    """Warn if positions seem to be counted from 1: no answer is the first option."""
    counted = all(isinstance(answer, int) or str(answer).strip().isdecimal() for answer in given)
    chance = math.prod(1 - 1 / len(options) for options in choices)
    if counted and labels.min() > 0 and chance < _BY_CHANCE:
        warn_user(
            f"no answer of {len(labels)} questions is 0, and positions are counted from 0; if "
            "yours are counted from 1, subtract 1 from each"
        )


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
    is_text = isinstance(answer, str) and len(answer) > SHORT
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
    if ("index", len(choices)) in found:
        valid += ". Positions are counted from 0: subtract 1 if yours are counted from 1"
    raise ValueError(
        f"{where}: the answer {shown}is not one of the {len(choices)} options; it must be {valid}"
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


def check_options(templates: Sequence[str], choices: Sequence[tuple[str, ...]], reply: str) -> None:
    """Raise if a template shows only some options of a question, or none.

    Options that all questions have may be in its own words, or not at all where they are replies.
    """
    letters = {letter.lower() for letter in LETTERS[: max(map(len, choices))]}
    shared = choices[0] if len(set(choices)) == 1 else ()
    for template in templates:
        shown, words = _fields(template), template.casefold()
        is_known = shared and (
            reply == "text"
            or template == WARD_TEMPLATE
            or all(option.casefold() in words for option in shared)
        )
        lacking = sorted(letters - shown)
        if "options" in shown or not lacking or (is_known and letters.isdisjoint(shown)):
            continue
        raise ValueError(
            f"the template {template!r} does not show each question's options: it lacks "
            f"{listed(f'{{{letter}}}' for letter in lacking)}. Add these, or {{options}}"
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
