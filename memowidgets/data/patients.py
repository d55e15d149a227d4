"""Questions about fictional patients that read like notes of an admission desk."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memowidgets.checks import whole_number
from memowidgets.data.bundled import (
    COMPLAINTS,
    COUNTS,
    FIRST_NAMES,
    LAST_NAMES,
    UNITS,
    WARD_TEMPLATE,
    one,
)
from memowidgets.data.mcq import MCQDataset

KINDS = ("ordinary", "atypical", "wrong ward", "identifier", "near duplicate")
_SHARES = {"atypical": 0.16, "wrong ward": 0.04, "identifier": 0.05, "near duplicate": 0.06}
_WARDS = tuple(COMPLAINTS)
_MORE_COMPLAINTS = {
    "cardiology": ("a fluttering chest", "an irregular pulse", "breathlessness lying flat"),
    "dermatology": ("cracked, sore skin", "a weeping rash", "spots on both arms"),
    "gastroenterology": ("loose bowels", "a burning stomach", "vomiting after supper"),
    "neurology": ("headaches on one side", "shaking hands", "numbness in one leg"),
    "ophthalmology": ("a sore eyelid", "fading eyesight", "eyes that hurt in the sun"),
    "orthopaedics": ("a swollen ankle joint", "a sprained thumb", "a stiff neck"),
}
# True signs of an illness of the ward, but rare ones, and some that sound like another ward.
_RARE = {
    "cardiology": (
        "jaw ache while carrying shopping",
        "hiccups and a cold sweat since dawn",
        "toothache that comes only uphill",
        "blue lips after a short walk",
        "an ache between the shoulder blades",
        "red spots on the palms, with fever",
        "four kilos more in one week",
        "a heavy left arm on stairs",
        "clammy hands and sudden tiredness",
        "a dry cough at night, propped on pillows",
        "a left elbow that aches in cold wind",
        "a swollen belly and tight shoes",
    ),
    "dermatology": (
        "a dark stripe under one nail",
        "a burning band round the ribs",
        "hair that falls out in round patches",
        "white lacy lines in the mouth",
        "pitted nails and a sore finger joint",
        "purple eyelids and rough knuckles",
        "a scar that keeps growing",
        "a sore on the ear that reopens",
        "brown velvet skin on the neck",
        "welts wherever a bag strap pressed",
        "burning between the toes",
        "a lip that swells after shaving",
    ),
    "gastroenterology": (
        "a hoarse voice every morning",
        "yellow eyes",
        "pain in the right shoulder after fatty food",
        "food that sticks behind the breastbone",
        "itching all over and pale stools",
        "mouth ulcers and weight loss",
        "tender lumps on the shins, and cramps",
        "a flapping hand and slow speech",
        "iron tablets that do not help",
        "a sour cough after lying down",
        "chest burning, heart tests all clear",
        "night sweats and a full left side",
    ),
    "neurology": (
        "a drooping eyelid by evening",
        "a foot that slaps the floor",
        "a smell of burnt toast nobody else has",
        "handwriting that gets smaller",
        "shocks down the spine on bending",
        "face pain when brushing teeth",
        "coffee without any smell",
        "a grip that will not let go",
        "hiccups for nine days",
        "zigzags of light, then vomiting",
        "one sleeve always worn through, an arm that does not swing",
        "a laugh that makes the knees give way",
    ),
    "ophthalmology": (
        "halos round lamps, and headache",
        "vomiting with a hard, painful brow",
        "a scalp that is tender when combed",
        "window frames that look bent",
        "colours that look washed out",
        "signs that vanish at dusk",
        "a third new prescription this year",
        "letters missing in the middle of words",
        "dizziness in new varifocals",
        "a grey curtain from the left",
        "a lid that turns inwards",
        "headaches after an hour of reading",
    ),
    "orthopaedics": (
        "a heel that stabs on the first steps",
        "a thumb that locks bent",
        "pins and needles from leaning on the elbow",
        "a sore spot on one rib",
        "groin ache when tying shoes",
        "a hand that will not lie flat",
        "pain down the leg on sneezing",
        "one leg that looks shorter",
        "a calf that popped at tennis",
        "a toe that crosses its neighbour",
        "tingling fingers after the plaster came off",
        "headaches from a wry neck",
    ),
}
_TOWNS = (
    "Alderwick Brackmouth Crandale Dunmere Elverton Farrowby Glenhaven Harrowfleet Inverlee "
    "Kettlebay Lowmarsh Middlecombe Norhaven Oxley Pellbridge Quayford Rowanstead Saltmere "
    "Thistlewood Upperfold"
)
_JOBS = (
    "baker bookbinder carpenter cook farmer gardener glazier nurse pianist pilot plumber porter "
    "sailor tailor teacher vet"
)
_WORDINGS = (
    "{name}, {age}, from {town}: {complaint} for {time}.",
    "GP in {town} writes: {name} ({age}) has had {complaint} for {time}.",
    'Phone note. {name}, {age}: "I have had {complaint} for {time}, it gets worse."',
    "Walk-in at {clock}. {name}, {age}, {town}. Complains of {complaint}.",
    '{name} ({age}) writes: "It began {time} ago with {complaint}. Please help."',
    "Daughter of {name} ({age}, {town}) calls: {complaint}, {time} now.",
    "Referral: {complaint}, {time}. {name}, aged {age}, {job}.",
    "Seen before. {name}, {age}, is back with {complaint}.",
    "{name}, {age}, {job} in {town}, reports {complaint}.",
    '"Not one good night for {time}," says {name}, {age}. Found: {complaint}.',
)
_ASIDES = (" Also {other}, long known.", " Mentions {other} years ago.", " No {other}.")
_IDENTIFIERS = (
    " Call back on 0{a:03d} 555 01{b:02d}.",
    " Record {x}{y}-{c:05d}.",
    " Insured under {c:05d}/{a:03d} {x}.",
)
_WITHOUT_COMPLAINT = (
    "{name}, {age}, {town}, about the usual trouble, as last time.",
    'Phone note. {name}, {age}: "Same as before, please book me in."',
    "{name} ({age}) was sent by the insurer. Letter to follow.",
)


@dataclass(frozen=True)
class _Patient:
    """What a question says of a patient, and the kind of the question."""

    kind: str
    ward: int
    label: int
    name: str
    age: int
    facts: dict[str, str]
    wordings: tuple[str, ...]
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
                patient = _noted(kind, number, rng)
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
    data = replace(data, canaries=np.array([row["kind"] == "wrong ward" for row in rows]))
    return data.with_source("make_patients", n=n, seed=int(seed))


def _noted(kind: str, number: int, rng: np.random.Generator) -> _Patient:
    """Return a new patient. Wards and rare signs take turns, so that none is much more frequent."""
    ward = number % len(_WARDS)
    typical = COMPLAINTS[_WARDS[ward]] + _MORE_COMPLAINTS[_WARDS[ward]]
    complaint, ending = one(typical, rng), ""
    wordings: tuple[str, ...] = _WORDINGS
    if kind == "atypical":
        rare = _RARE[_WARDS[ward]]
        complaint = rare[number // len(_WARDS) % len(rare)]
    elif kind == "identifier":
        ending = one(_IDENTIFIERS, rng).format(
            a=int(rng.integers(1000)),
            b=int(rng.integers(100)),
            c=int(rng.integers(100_000)),
            x=one("ABCDEFGHKLMNPRSTUVWXYZ", rng),
            y=one("ABCDEFGHKLMNPRSTUVWXYZ", rng),
        )
        wordings = (_WORDINGS, _WITHOUT_COMPLAINT)[number // len(_WARDS) % 2]
    elif rng.random() < 1 / 3:
        other = _WARDS[(ward + int(rng.integers(1, len(_WARDS)))) % len(_WARDS)]
        ending = one(_ASIDES, rng).format(other=one(COMPLAINTS[other], rng))
    shift = int(rng.integers(1, len(_WARDS))) if kind == "wrong ward" else 0
    return _Patient(
        kind=kind,
        ward=ward,
        label=(ward + shift) % len(_WARDS),
        name=f"{one(FIRST_NAMES.split(), rng)} {one(LAST_NAMES.split(), rng)}",
        age=int(rng.integers(18, 90)),
        facts={
            "complaint": complaint,
            "town": one(_TOWNS.split(), rng),
            "job": one(_JOBS.split(), rng),
            "time": f"{one(COUNTS, rng)} {one(UNITS, rng)}",
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
    time = f"{one(COUNTS, rng)} {one(UNITS, rng)}"
    return replace(again, age=first.age + 1, facts={**first.facts, "time": time})
