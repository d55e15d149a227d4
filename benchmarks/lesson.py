"""Print the answers of the lesson's worksheet that have numbers: `python -m benchmarks lesson`.

The worksheet has each sentence as it is printed here. A round of "Watch it memorise" and the PSMI
playground are computed by Node, as their pages compute them.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import memowidgets as mw
from benchmarks import rounds
from memowidgets.commands.demo import guess_of
from memowidgets.teaching.playgrounds import make_cloud

if TYPE_CHECKING:
    from memowidgets.audit import Audit

STUDY = Path(__file__).parents[1] / "docs" / "study.csv"
SCRIPT = Path(__file__).with_suffix(".mjs")
ETA = 4.0


def answers() -> dict[int, list[str]]:
    """Return the sentences with numbers of each question that has some."""
    patients = mw.open_recorded("patients-smollm2")
    exams = mw.open_recorded("mmlu-field-smollm2")
    # It begins with the points that the page shows first. Which points are ringed changes what the
    # other networks leave out, so this is the one round that a reader can play again.
    (first,) = rounds.played(1, "far")
    return {
        1: _on_the_guess(patients),
        3: [*_on_the_round(first), on_audits()],
        4: _on_outliers(first),
        5: _on_psmi(),
        6: _on_flags(patients, exams),
        7: _on_the_price(patients),
        8: _on_answers(patients, exams),
    }


def _on_the_guess(patients: Audit) -> list[str]:
    guess = guess_of(patients)
    kinds = patients.evidence.member_data.attributes["kind"]
    rare = patients.log_lira()[kinds == "atypical"] >= ETA
    return [
        f"Over {len(guess['sixes'])} sixes PSMI finds {guess['found']:.1f} of 3 in the mean.",
        f"Of the {len(rare)} notes with a rare sign, the model has memorised {rare.sum()}.",
    ]


def _on_the_round(first: dict[str, int]) -> list[str]:
    return [
        f"Of the {first['memorised']} memorised points, {first['wrong']} have a wrong label.",
        (
            f"In the first round {first['loss']} of the loss's five are memorised, and "
            f"{first['psmi']} of PSMI's."
        ),
    ]


def on_audits() -> str:
    """Say what the two scores find in the audits that `python -m benchmarks confirm` judges."""
    with STUDY.open(encoding="utf-8", newline="") as file:
        areas = [
            (row["score"], float(row["auc"]))
            for row in csv.DictReader(file)
            if row["score"] in ("psmi", "loss")
        ]
    psmi = [area for score, area in areas if score == "psmi"]
    loss = [area for score, area in areas if score == "loss"]
    return (
        f"In the mean of {len(psmi)} audits of tables, pictures and texts, PSMI has an AUC of "
        f"{mean(psmi):.3f} at ρ, and the loss {mean(loss):.3f}."
    )


def _on_outliers(first: dict[str, int]) -> list[str]:
    return [
        f"On the points that the page shows first, it memorises {first['ringed']} of the five."
    ]


def _on_psmi() -> list[str]:
    """Ask the page's own code for PSMI of the ringed point, before and after the drag."""
    points, labels = make_cloud()
    moved = points.copy()
    moved[0] = points[labels == 1].mean(axis=0)
    asked = {"labels": labels.tolist(), "clouds": [points.tolist(), moved.tolist()]}
    done = subprocess.run(
        ["node", str(SCRIPT)],
        input=json.dumps(asked),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    before, after = json.loads(done.stdout)
    return [
        f"It begins at {before:.2f}.",
        f"In the middle of class B, PSMI is {after:.2f}.".replace("-", "−"),
    ]


def _on_flags(patients: Audit, exams: Audit) -> list[str]:
    here = patients.evaluate("psmi").at(0.0)
    there = exams.evaluate("psmi").at(0.0)
    return [
        (
            f"{here.flagged} are flagged, and {here.found} of them are memorised, which is "
            f"{here.precision:.0%}."
        ).replace("%", " %"),
        (
            f"In the recorded audit of real exam questions it is {there.found} of "
            f"{there.flagged}, which is {there.precision:.0%}."
        ).replace("%", " %"),
    ]


def _on_the_price(patients: Audit) -> list[str]:
    evaluation = patients.evaluate("psmi")
    # three digits, which a reader can type, and from which no memorised note is left out
    tau = math.ceil(1000 * evaluation.threshold("tpr>=1.0")) / 1000
    every = evaluation.at(tau)
    zero = evaluation.at(0.0)
    return [
        (
            f"At τ = {every.tau:.3f} all {every.found} are found, and {every.flagged} of "
            f"{every.n} notes are flagged."
        ),
        (
            f"At τ = 0, {zero.flagged} are flagged, and {zero.missed} memorised notes are missed."
        ),
    ]


def _on_answers(patients: Audit, exams: Audit) -> list[str]:
    notes = _rightly_answered(patients)
    questions = _rightly_answered(exams)
    return [
        f"It gives the label of {notes}.",
        f"Of the memorised exam questions it is {questions}.",
    ]


def _rightly_answered(audit: Audit) -> str:
    """Return of how many memorised samples the finished model gives the label, with their share."""
    truth = audit.log_lira()
    gaps = audit.score("logit_gap", checkpoint="final")[truth.index]
    right = gaps[truth >= ETA] > 0
    return f"{right.sum()} of {len(right)}, which is {100 * right.mean():.0f} %"


def main() -> None:
    """Print each sentence with the number of its question."""
    if shutil.which("node") is None:
        sys.exit("Node computes what the pages of the lesson show: install nodejs.")
    for question, said in answers().items():
        for sentence in said:
            print(f"{question}. {sentence}")
