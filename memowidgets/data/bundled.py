"""Datasets without a download: scanned digits, and questions about fictional patients."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from memowidgets.checks import real_number, whole_number
from memowidgets.data.images import ImageDataset
from memowidgets.data.mcq import WARD_TEMPLATE, MCQDataset

# What is said of a patient. Complaints are typical of their ward; rare signs are true signs of an
# illness of the ward, and some of them sound like another ward.
WORDS = json.loads(Path(__file__).with_name("patients.json").read_text("utf-8"))
COMPLAINTS: dict[str, list[str]] = WORDS["complaints"]
_WARDS = tuple(COMPLAINTS)
KINDS = ("ordinary", "atypical", "wrong ward", "identifier", "near duplicate")
_SHARES = {
    "atypical": 0.16,
    "wrong ward": 0.04,
    "identifier": 0.05,
    "near duplicate": 0.06,
}


def load_digits(canaries: float = 0.0, seed: int = 0) -> ImageDataset:
    """Load the 1797 handwritten digits of 8×8 pixels that come with scikit-learn.

    Parameters
    ----------
    canaries : float
        Share of the images, from 0 to 1, that get a wrong label (`ImageDataset.with_canaries`).
    seed : int
        Seed for the choice of images and labels.

    Returns
    -------
    ImageDataset
        Images with the classes ``"0"`` to ``"9"`` and the ids ``"digit-0000"`` to ``"digit-1796"``.

    Raises
    ------
    ValueError
        If `canaries` is not between 0 and 1.

    Notes
    -----
    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.

    Examples
    --------
    >>> data = load_digits(canaries=0.05)
    >>> data
    ImageDataset(1797 images of 8×8×1, 10 classes, 90 canaries)
    """
    from sklearn.datasets import load_digits as scanned

    real_number("canaries, a share,", canaries, 0, 1)
    images, labels = scanned(return_X_y=True)
    data = ImageDataset.from_arrays(
        images.reshape(-1, 8, 8) / 16.0,
        labels,
        [str(digit) for digit in range(10)],
        ids=[f"digit-{i:04d}" for i in range(len(images))],
    )
    if canaries:
        data = data.with_canaries(round(canaries * len(data)), seed=seed)
    return data.with_source("load_digits", canaries=float(canaries), seed=int(seed))


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
    wards = rng.permutation(np.arange(n) % len(_WARDS))
    width = max(4, len(str(n - 1)))
    seen: set[str] = set()
    rows = []
    for number, ward in enumerate(wards):
        question = None
        while question is None or question in seen:
            typical = COMPLAINTS[_WARDS[ward]]
            complaints = rng.choice(
                typical, size=int(rng.integers(1, 3)), replace=False
            )
            patient = {
                "name": _name(rng),
                "age": int(rng.integers(18, 90)),
                "complaints": " and ".join(complaints),
                "duration": _time(rng),
            }
            question = _draw_text("questions", rng).format(**patient)
        seen.add(question)
        rows.append(
            {
                "id": f"patient-{number:0{width}d}",
                "question": question,
                "choices": _WARDS,
                "answer": int(ward),
                "name": patient["name"],
                "age": patient["age"],
                "ward": _WARDS[ward],
            }
        )
    data = MCQDataset.from_records(rows, template=WARD_TEMPLATE, answers="index")
    if atypical:
        data = data.with_canaries(round(atypical * n), seed=seed)
    return data.with_source("make_mcqs", n=n, atypical=float(atypical), seed=int(seed))


@dataclass(frozen=True)
class _Patient:
    """What a question says of a patient, and the kind of the question."""

    kind: str
    ward: int
    label: int
    name: str
    age: int
    facts: dict[str, str]
    wordings: list[str]
    wording: int
    ending: str
    twin: int | None = None

    @property
    def text(self) -> str:
        facts = {"name": self.name, "age": self.age, **self.facts}
        return self.wordings[self.wording].format(**facts) + self.ending


def make_patients(n: int = 800, seed: int = 0) -> MCQDataset:
    """Generate notes about fictional patients; the question is which of six wards takes them.

    The notes are harder than those of `make_mcqs`, and closer to life. The attribute ``kind`` says
    why a model may memorise one:

    - ``"ordinary"``: a complaint that is typical of the ward. A third of these notes also mention
      a complaint of another ward, which is old or absent.
    - ``"atypical"`` (16 %): a rare sign that truly belongs to the ward. Some signs sound like
      another ward.
    - ``"wrong ward"`` (4 %): an ordinary note with a wrong label; `canaries` marks them.
    - ``"identifier"`` (5 %): the note ends with an invented phone, record or insurance number. In
      half of these the note has no complaint, so that only the person tells the ward.
    - ``"near duplicate"`` (6 %): a second note about a patient of another kind, with the same
      complaint and the same ward. The attribute ``twin`` has the other note's id.

    The wards are the options, always in the same order. As in `make_mcqs`, the prompt leaves them
    out. Every name, place and number is invented.

    Parameters
    ----------
    n : int
        Number of notes, from 60 to 20 000.
    seed : int
        Seed for everything that is drawn.

    Returns
    -------
    MCQDataset
        Questions with the ids ``"patient-0000"`` and so on, and the attributes ``kind``, ``name``,
        ``age``, ``ward`` (the right one) and ``twin``. No two questions are equal.

    Raises
    ------
    ValueError
        If `n` is out of range.

    Examples
    --------
    >>> data = make_patients(n=800, seed=0)
    >>> data
    MCQDataset(800 questions, 6 options, 32 canaries)
    >>> data.attributes["kind"][:3].tolist()
    ['ordinary', 'atypical', 'identifier']
    """
    n = whole_number("n, the number of notes,", n, 60, 20_000)
    rng = np.random.default_rng(seed)
    counts = {kind: round(share * n) for kind, share in _SHARES.items()}
    kinds = ["ordinary"] * (n - sum(counts.values()))
    kinds += [kind for kind in KINDS[1:] for _ in range(counts[kind])]
    patients: list[_Patient] = []
    seen: set[str] = set()
    for number, kind in enumerate(kinds):
        patient = None
        while patient is None or patient.text in seen:
            if kind == "near duplicate":
                patient = _noted_again(patients, rng)
            else:
                patient = _draw_patient(kind, number, rng)
        seen.add(patient.text)
        patients.append(patient)
    order = rng.permutation(n)
    ids = np.empty(n, dtype=object)
    ids[order] = [f"patient-{i:0{max(4, len(str(n - 1)))}d}" for i in range(n)]
    rows = [
        {
            "id": ids[number],
            "question": patient.text,
            "choices": _WARDS,
            "answer": patient.label,
            "kind": patient.kind,
            "name": patient.name,
            "age": patient.age,
            "ward": _WARDS[patient.ward],
            "twin": "" if patient.twin is None else ids[patient.twin],
        }
        for number, patient in ((int(i), patients[i]) for i in order)
    ]
    data = MCQDataset.from_records(rows, template=WARD_TEMPLATE, answers="index")
    data = replace(
        data, canaries=np.array([row["kind"] == "wrong ward" for row in rows])
    )
    return data.with_source("make_patients", n=n, seed=int(seed))


def _draw_patient(kind: str, number: int, rng: np.random.Generator) -> _Patient:
    """Return a new patient. Wards and rare signs take turns, so that none is much more frequent."""
    ward = number % len(_WARDS)
    typical = COMPLAINTS[_WARDS[ward]] + WORDS["more_complaints"][_WARDS[ward]]
    complaint = _one(typical, rng)
    ending = ""
    wordings = WORDS["notes"]
    if kind == "atypical":
        rare = WORDS["rare_signs"][_WARDS[ward]]
        complaint = rare[number // len(_WARDS) % len(rare)]
    elif kind == "identifier":
        ending = _draw_text("identifiers", rng).format(
            a=int(rng.integers(1000)),
            b=int(rng.integers(100)),
            c=int(rng.integers(100_000)),
            x=_one("ABCDEFGHKLMNPRSTUVWXYZ", rng),
            y=_one("ABCDEFGHKLMNPRSTUVWXYZ", rng),
        )
        wordings = (wordings, WORDS["notes_without_complaint"])[
            number // len(_WARDS) % 2
        ]
    elif rng.random() < 1 / 3:
        other = _WARDS[(ward + int(rng.integers(1, len(_WARDS)))) % len(_WARDS)]
        ending = _draw_text("asides", rng).format(other=_one(COMPLAINTS[other], rng))
    shift = int(rng.integers(1, len(_WARDS))) if kind == "wrong ward" else 0
    return _Patient(
        kind=kind,
        ward=ward,
        label=(ward + shift) % len(_WARDS),
        name=_name(rng),
        age=int(rng.integers(18, 90)),
        facts={
            "complaint": complaint,
            "town": _draw_text("towns", rng),
            "job": _draw_text("jobs", rng),
            "time": _time(rng),
            "clock": f"{int(rng.integers(24))}:{int(rng.integers(60)):02d}",
        },
        wordings=wordings,
        wording=int(rng.integers(len(wordings))),
        ending=ending,
    )


def _noted_again(patients: list[_Patient], rng: np.random.Generator) -> _Patient:
    """Return a patient who is in already: in other words, or with one fact changed."""
    first = None
    while first is None or first.kind in ("wrong ward", "near duplicate"):
        twin = int(rng.integers(len(patients)))
        first = patients[twin]
    again = replace(first, kind="near duplicate", twin=twin)
    if rng.random() < 0.5:
        return replace(again, wording=int(rng.integers(len(first.wordings))))
    time = _time(rng)
    return replace(again, age=first.age + 1, facts={**first.facts, "time": time})


def _name(rng: np.random.Generator) -> str:
    return f"{_draw_text('first_names', rng)} {_draw_text('last_names', rng)}"


def _time(rng: np.random.Generator) -> str:
    return f"{_draw_text('counts', rng)} {_draw_text('units', rng)}"


def _draw_text(what: str, rng: np.random.Generator) -> str:
    """Draw one of the texts, or of the words of a text."""
    texts = WORDS[what]
    return _one(texts.split() if isinstance(texts, str) else texts, rng)


def _one(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
