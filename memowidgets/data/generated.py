"""Generated multiple-choice data: fictional patients and their wards, without a download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import real_number, whole_number
from memowidgets.data.mcq import MCQDataset

_COMPLAINTS = {
    "cardiology": (
        "chest pressure",
        "a racing pulse",
        "swollen ankles",
        "palpitations",
        "a skipped heartbeat",
        "fainting on stairs",
    ),
    "dermatology": (
        "an itchy rash",
        "dry flaking skin",
        "a changing mole",
        "blisters",
        "hives",
        "a scaly patch",
    ),
    "gastroenterology": (
        "heartburn",
        "stomach cramps",
        "bloating",
        "nausea after meals",
        "loss of appetite",
        "acid reflux",
    ),
    "neurology": (
        "migraine",
        "numb fingers",
        "tremor",
        "dizzy spells",
        "memory lapses",
        "a tingling foot",
    ),
    "ophthalmology": (
        "blurred sight",
        "double vision",
        "watery eyes",
        "flashes of light",
        "a red eye",
        "dark floaters",
    ),
    "orthopaedics": (
        "knee ache",
        "a stiff shoulder",
        "lower back strain",
        "a twisted wrist",
        "hip soreness",
        "a clicking joint",
    ),
}
_WARDS = tuple(_COMPLAINTS)
_FIRST_NAMES = (
    "Adaro Aliska Belise Brannic Corvin Cyrelle Delva Dorrin Emrik Esmelda Fiola Fenric Garek "
    "Gwenola Hesta Halvik Ilmar Isolka Jorva Jessomir Kelid Katrel Lumira Lorvan Marek Mirabon "
    "Nerisa Nolvic Orlan Oridel Pavia Perrick Quill Rosken Selva Tamrin Ulvia Varo Wenda Zelka"
)
_LAST_NAMES = (
    "Abernock Ashgrove Brindlow Barrowfen Castermoor Copperwick Dunfallow Drystane Eskerby "
    "Elmhollow Farnwick Foxmere Gorsehill Greyholt Hathermere Hollinbeck Ingleford Ivystone "
    "Jarrowby Junipole Kestermond Knapford Larkspire Lindmarsh Mossgrave Millwater Netherlow "
    "Northbeck Oakenfell Otterdale Pinderwell Pebbleton Quarrington Rushmead Ravenlea "
    "Silverstane Stonewain Thornaby Wolfsden Yarrowick"
)
_WORDINGS = (
    "{name}, {age} years old, has had {complaints} for {duration}. Which ward?",
    "Patient {name}, aged {age}, has reported {complaints} over {duration}. Which ward?",
    "For {duration}, {name} ({age}) has complained of {complaints}. Which ward?",
)
_COUNTS = ("two", "three", "four", "five", "six")
_UNITS = ("days", "weeks", "months")
_TEMPLATE = "{question}\nWard:"  # all questions have the same options, which would only cost tokens


@dataclass(frozen=True)
class _Patient:
    name: str
    age: int
    complaints: str
    duration: str

    def question(self, wording: str) -> str:
        return wording.format(
            name=self.name, age=self.age, complaints=self.complaints, duration=self.duration
        )


def make_mcqs(n: int = 1200, atypical: float = 0.05, seed: int = 0) -> MCQDataset:
    """Generate questions about which of six wards should take a fictional patient.

    A patient has a name, an age, a duration, and one or two of the six complaints that are typical
    of a ward. The wards are the options, always in the same order, so that a small model can learn
    the task from scratch. For the same reason the prompt leaves them out;
    `MCQDataset.with_template` can add them. A few patients get a wrong ward. A model can only
    answer these by memorising them, and `canaries` marks them.

    Parameters
    ----------
    n : int
        Number of patients, from 12 to 100 000.
    atypical : float
        Share of the patients, from 0 to 1, whose label is a wrong ward.
    seed : int
        Seed for everything that is drawn.

    Returns
    -------
    MCQDataset
        Questions with the ids ``"patient-0000"`` and so on, and the attributes ``name``, ``age``
        and ``ward`` (the right one). No two questions are equal.

    Raises
    ------
    ValueError
        If `n` or `atypical` is out of range.

    Examples
    --------
    >>> data = make_mcqs(n=1200, atypical=0.05, seed=0)
    >>> data
    MCQDataset(1200 questions, 6 options, 60 canaries)
    >>> data[0].choices[:3]
    ('cardiology', 'dermatology', 'gastroenterology')
    """
    n = whole_number("n, the number of patients,", n, 12, 100_000)
    real_number("atypical, a share,", atypical, 0, 1)
    rng = np.random.default_rng(seed)
    wards = rng.permutation(np.arange(int(n)) % len(_WARDS))
    data = MCQDataset.from_records(_rows(wards, rng), template=_TEMPLATE, answers="index")
    if atypical:
        data = data.with_canaries(round(atypical * n), seed=seed)
    arguments = {"n": int(n), "atypical": float(atypical), "seed": int(seed)}
    return replace(data, source={"loader": "make_mcqs", "arguments": arguments})


def _rows(wards: NDArray[np.int64], rng: np.random.Generator) -> list[Any]:
    width = max(4, len(str(len(wards) - 1)))
    seen: set[str] = set()
    rows = []
    for number, ward in enumerate(wards):
        patient, question = _new_question(_WARDS[ward], seen, rng)
        rows.append(
            {
                "id": f"patient-{number:0{width}d}",
                "question": question,
                "choices": _WARDS,
                "answer": int(ward),
                "name": patient.name,
                "age": patient.age,
                "ward": _WARDS[ward],
            }
        )
    return rows


def _new_question(ward: str, seen: set[str], rng: np.random.Generator) -> tuple[_Patient, str]:
    """Return a patient and a question that has not occurred yet."""
    while True:
        patient = _patient(ward, rng)
        question = patient.question(_one(_WORDINGS, rng))
        if question not in seen:
            seen.add(question)
            return patient, question


def _patient(ward: str, rng: np.random.Generator) -> _Patient:
    complaints = rng.choice(_COMPLAINTS[ward], size=int(rng.integers(1, 3)), replace=False)
    return _Patient(
        name=f"{_one(_FIRST_NAMES.split(), rng)} {_one(_LAST_NAMES.split(), rng)}",
        age=int(rng.integers(18, 90)),
        complaints=" and ".join(complaints),
        duration=f"{_one(_COUNTS, rng)} {_one(_UNITS, rng)}",
    )


def _one(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
