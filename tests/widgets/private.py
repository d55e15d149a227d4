"""Samples that nobody else may see: every id, text and image has something to find it by."""

from __future__ import annotations

import base64

import numpy as np

from memowidgets.data import MCQDataset

WORDS = ("wobbling", "neuro", "quiet")


def names(n: int) -> list[str]:
    """Ids."""
    return [f"patient-{1000 + 7 * i}" for i in range(n)]


def questions(n: int) -> MCQDataset:
    """Questions, whose texts hold the first word and whose options the others."""
    rows = [
        {
            "id": name,
            "question": f"Where does the {WORDS[0]} person of bed {i} belong?",
            "choices": [f"{WORDS[1]} {i}", f"{WORDS[2]} {i}", f"other {i}"],
            "answer": i % 3,
        }
        for i, name in enumerate(names(n))
    ]
    return MCQDataset.from_records(rows)


def images(n: int) -> np.ndarray:
    """Images of shape (n, 12, 12), as uint8."""
    return np.random.default_rng(7).integers(0, 256, (n, 12, 12)).astype(np.uint8)


def spellings(n: int) -> list[str]:
    """What would give one of these samples away in a text file, whatever the encoding."""
    found = [*WORDS, *names(n)]
    for image in images(n):
        pixels = image.tobytes()
        found += [
            base64.b64encode(pixels[start : start + 60]).decode() for start in range(3)
        ]
        found += [pixels[:30].hex(), str(list(pixels[:12]))[1:-1]]
    return found
