"""Datasets without a download: scanned digits, and questions about fictional patients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memowidgets.checks import real_number, whole_number
from memowidgets.data.images import ImageDataset
from memowidgets.data.mcq import MCQDataset

COMPLAINTS = {
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
_WARDS = tuple(COMPLAINTS)
FIRST_NAMES = (
    "Adaro Aliska Belise Brannic Corvin Cyrelle Delva Dorrin Emrik Esmelda Fiola Fenric Garek "
    "Gwenola Hesta Halvik Ilmar Isolka Jorva Jessomir Kelid Katrel Lumira Lorvan Marek Mirabon "
    "Nerisa Nolvic Orlan Oridel Pavia Perrick Quill Rosken Selva Tamrin Ulvia Varo Wenda Zelka"
)
LAST_NAMES = (
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
COUNTS = ("two", "three", "four", "five", "six")
UNITS = ("days", "weeks", "months")
WARD_TEMPLATE = (
    "{question}\nWard:"  # all questions have the same options, which would only cost tokens
)


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
            complaints = rng.choice(typical, size=int(rng.integers(1, 3)), replace=False)
            patient = {
                "name": f"{one(FIRST_NAMES.split(), rng)} {one(LAST_NAMES.split(), rng)}",
                "age": int(rng.integers(18, 90)),
                "complaints": " and ".join(complaints),
                "duration": f"{one(COUNTS, rng)} {one(UNITS, rng)}",
            }
            question = one(_WORDINGS, rng).format(**patient)
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


def one(options: Sequence[str], rng: np.random.Generator) -> str:
    """Draw one of several texts."""
    return options[int(rng.integers(len(options)))]
