"""The lesson, from one source: the questions on patients, and those that the notebook repeats.

``python -m scripts.lesson`` computes the worksheet's part on τ from the recorded audit of patients,
and writes the worksheet's questions into the teaching notebook. Run it when either has changed.
"""
# ruff: noqa: E501 - in Markdown a paragraph is a line

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
WORKSHEET = ROOT / "docs" / "worksheet.md"
NOTEBOOK = ROOT / "notebooks" / "05_teaching.ipynb"
RECORDING = "patients-smollm2"
ETA = 4.0
CLEAR = 1.0  # log-LiRA below which a note is not memorised, whatever other shadow models say
PARTS = {
    "why": "Why it matters",
    "watch": "Watch it memorise",
    "psmi": "PSMI",
    "tau": "τ on patients",
    "lira": "LiRA",
    "decide": "What would you do?",
    "theorem": "Theorem 1 (optional)",
}
CODE = re.compile(r"```pycon\n.*?```\n*", re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^]]+)\]\([\w/]+\.md\)")


def ten(truth: NDArray[np.float64], kinds: NDArray[Any], seed: int = 0) -> list[int]:
    """Return the positions of three notes that are memorised and of seven that are not, shuffled.

    The three have the largest log-LiRA. The seven are drawn: one of each kind, and two of any.
    """
    rng = np.random.default_rng(seed)
    clear = rng.permutation(np.flatnonzero(truth < CLEAR))
    firsts = [int(clear[kinds[clear] == kind][0]) for kind in sorted(set(kinds[clear]))]
    others = [int(i) for i in clear if i not in firsts]
    memorised = np.argsort(-np.nan_to_num(truth, nan=-np.inf))[:3].tolist()
    chosen = [*memorised, *[*firsts, *others][:7]]
    return [chosen[i] for i in rng.permutation(len(chosen))]


def session(names: dict[str, Any], code: str) -> str:
    """Run code, and return it with what it prints as a block that a test runs again."""
    lines = ["```pycon"]
    for statement in ast.parse(code).body:
        source = ast.get_source_segment(code, statement) or ""
        first, *rest = source.splitlines()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(source, names)  # noqa: S102 - the code below
        lines += [f">>> {first}", *(f"... {line}" for line in rest), *said.getvalue().splitlines()]
    return "\n".join([*lines, "```"])


def patients() -> str:
    """Return the worksheet's part on the recorded patients, with the numbers of the recording."""
    names: dict[str, Any] = {}
    learned = session(
        names,
        f"""import pandas as pd
import memowidgets as mw
audit, exams = mw.open_recorded("{RECORDING}"), mw.open_recorded("mmlu-field-smollm2")
early, late = audit.checkpoints.loc[audit.prediction.record.name], audit.checkpoints.iloc[-1]
for at in (early, late):
    print(f"{{at.name}}: {{at.train_accuracy:.0%}} of members, {{at.test_accuracy:.0%}} of others")
""",
    )
    audit = names["audit"]
    data, truth = audit.evidence.member_data, audit.log_lira().reindex(audit.members).to_numpy()
    chosen = ten(truth, data.attributes["kind"])
    notes = "\n".join(
        f"- `{data.ids[i]}`: {data.questions[i]} → **{data.choices[i][data.labels[i]]}**"
        for i in chosen
    )
    numbers = " ".join(str(data.ids[i]).removeprefix("patient-") for i in chosen)
    which = session(
        names,
        f"""data, truth, psmi = audit.evidence.member_data, audit.log_lira(), audit.score("psmi")
kinds = pd.Series(data.attributes["kind"], data.ids)
ten = [f"patient-{{number}}" for number in "{numbers}".split()]
for name in ten:
    print(f"{{name}}: {{kinds[name]}}, log-LiRA {{truth[name]:.1f}}, PSMI {{psmi[name]:.2f}}")

memorised, flagged = truth[ten] >= 4, psmi[ten] <= 0
print(f"{{flagged.sum()}} flagged, {{(flagged & memorised).sum()}} of them memorised")
rare = truth[kinds[truth.index] == "atypical"] >= 4
print(f"memorised: {{rare.sum()}} of {{len(rare)}} notes with a rare sign")
""",
    )
    counted = session(
        names,
        """evaluation = audit.evaluate("psmi")
point, exam = evaluation.at(0.0), exams.evaluate("psmi").at(0.0)
for at in (point, exam):
    print(f"{at.flagged} flagged, {at.found} memorised, {at.precision:.0%}")
""",
    )
    found = session(
        names,
        """every = evaluation.at(evaluation.threshold("tpr>=1.0"))
for at in (every, point):
    print(f"τ = {at.tau:.3f}: {at.flagged} of {at.n} flagged, {at.found} found, {at.missed} missed")
""",
    )
    answered = session(
        names,
        """right = []
for one in (audit, exams):
    gap = one.score("logit_gap", checkpoint="final")
    right.append(gap[one.log_lira().index][one.log_lira() >= 4] > 0)
    print(f"{right[-1].sum()} of {len(right[-1])}, {right[-1].mean():.0%}")
""",
    )
    early, late, point, exam = (names[one] for one in ("early", "late", "point", "exam"))
    every, rare, (own, exams) = names["every"], names["rare"], names["right"]
    both = " and ".join(
        ", ".join(f"`{one}`" for one in names["ten"] if names["memorised"][one]).rsplit(", ", 1)
    )
    return f"""
**11. On the first page, a language model learns from notes about patients which ward takes them. Training is interrupted where the median loss has dropped by ρ = 95 %. Guess first: for which share of these notes does the model give the ward by then, and for which share of notes that it never saw? Why not wait until the end?**

<details>
<summary>Answer</summary>

At ρ it gives the ward for {whole(early.train_accuracy)} of the notes that it learned from, and for {whole(early.test_accuracy)} of notes that it never saw. At the end it is {whole(late.train_accuracy)} and {whole(late.test_accuracy)}. What it learns of a note and not of others is about this one note. At the end, memorising is done, and nothing can be removed before.

{learned}

</details>

**12. Guess first: the finished model has memorised 3 of these 10 notes. Which ones? The ward is the label that the model learned. All patients are invented.**

{notes}

<details>
<summary>Answer</summary>

{both}. PSMI flags {names["flagged"].sum()} of the ten. Memorised among these: {(names["flagged"] & names["memorised"]).sum()}. What is unusual is not yet memorised: of the {len(rare)} notes with a rare sign ("atypical"), the model has memorised {rare.sum()}.

{which}

</details>

**13. On the first page, τ is 0. Guess first: how many of the flagged notes has the finished model memorised? Then read the three sentences.**

<details>
<summary>Answer</summary>

{point.flagged} are flagged, and {point.found} of them are memorised, which is {whole(point.precision)}. In the recorded audit of real exam questions, most of what is flagged is not memorised: {exam.found} of {exam.flagged} are, which is {whole(exam.precision)}. A flag is a reason to look at a sample, and no verdict.

{counted}

</details>

**14. Each dot is one note: memorised ones stand above the line, the others below it. Guess first: on which side of the line are more dots dark, that is flagged? Then read the sentences.**

<details>
<summary>Answer</summary>

Below it: {point.flagged_only} against {point.found}. The dots below are smaller, because many more samples must find room there. Heights can be compared within a side, not across the line.

</details>

**15. Move τ until all memorised notes are found. What does that cost? Would you rather miss some?**

<details>
<summary>Answer</summary>

At τ = {f"{every.tau:.3f}".replace("-", "−")} all {every.found} are found, and {every.flagged} of {every.n} notes are flagged. At τ = 0, {point.flagged} are flagged, and {point.missed} memorised notes are missed. A missed sample may be a person who was not protected, and a flagged one costs the time to look at it. There is no right answer without knowing both costs.

{found}

</details>

**16. Open some memorised notes. Does the finished model give their label? Guess the share first.**

<details>
<summary>Answer</summary>

It gives the label of {own.sum()} of {len(own)}, which is {whole(own.mean())}. Of the memorised exam questions it is {exams.sum()} of {len(exams)}. A memorised sample need not be answered rightly. Memorised means that training on it changed what the model says of it, for instance from hopeless to nearly right.

{answered}

</details>
"""


def whole(share: float) -> str:
    """Return a share as a whole number of per cent, rounded as the printed lines round it."""
    return f"{share:.0%}".replace("%", " %")


def worksheet() -> str:
    """Return the worksheet with the numbers of the recording as it is now."""
    before, _, after = _around(WORKSHEET.read_text("utf-8"), PARTS["tau"])
    return f"{before}{patients()}{after}"


def notebook() -> str:
    """Return the teaching notebook with the worksheet's questions, without the lines of code.

    Voila fails on a picture of a notebook and cannot follow a link to a page, so both are words.
    """
    import nbformat

    text, book = worksheet(), nbformat.read(NOTEBOOK, as_version=4)
    cells = {cell["id"]: cell for cell in book.cells}
    for name, title in PARTS.items():
        asked = LINK.sub(r"\1", CODE.sub("", _around(text, title)[1])).strip()
        cells[f"questions-{name}"]["source"] = f"### Questions\n\n{asked}"
    written: str = nbformat.writes(book)
    return f"{written}\n"


def _around(text: str, title: str) -> tuple[str, str, str]:
    """Return what is before, under and after a heading of the worksheet; the heading is before."""
    before, found, rest = text.partition(f"\n## {title}\n")
    if not found:
        raise ValueError(f"{WORKSHEET.name} has no heading {title!r}")
    part, following, after = rest.partition("\n## ")
    return before + found, part, following + after


def main() -> None:
    """Write both."""
    WORKSHEET.write_text(worksheet(), "utf-8")
    NOTEBOOK.write_text(notebook(), "utf-8")


if __name__ == "__main__":
    main()
