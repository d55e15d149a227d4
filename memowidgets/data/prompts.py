"""Templates that turn a question into a prompt, and their checks; no models, no files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from memowidgets.data.questions import LETTERS, MOST_CHARACTERS
from memowidgets.visible import listed, quoted

TEMPLATES = (
    "{question}\n\n{options}\n\nAnswer:",
    "Question: {question}\nPossible answers:\n{options}\nThe right letter is",
    "One of the options below is right.\n{question}\n{options}\nRight option:",
    "{question}\nChoose from:\n{options}\nLetter:",
    "Read the question and pick a letter.\n\n{question}\n\n{options}\n\nI pick",
)
_OPENING = "([{<\"'«“‘"


def checked_templates(template: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return checked templates as a tuple; by default our own."""
    if template is None:
        return TEMPLATES
    templates = (template,) if isinstance(template, str) else tuple(template)
    if not templates or not all(isinstance(one, str) for one in templates):
        raise TypeError("template must be a text or several texts")
    for one in templates:
        if "question" not in _fields(one):
            raise ValueError(f"the template {one!r} lacks {{question}}")
    if len({label_gap(one) for one in templates}) > 1:
        raise ValueError(
            "some templates end with a space or an opening bracket and others do not; the label "
            "must follow in the same way in all of them"
        )
    return templates


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
    digest = hashlib.sha256(f"{seed}:{content_hash}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % n_templates


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
