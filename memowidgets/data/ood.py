"""Out-of-distribution images for canaries: coloured scanned digits, no two alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

KINDS = ("mislabelled", "ood")

Shape = tuple[int, ...]
_MOST_DIGITS = 5


def digit_collages(n: int, shape: Shape, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw scikit-learn's digits, enlarged and coloured, on a coloured ground, (n, *shape).

    Each image has its own colours and background, and one to five digits with their own size,
    place, rotation and transparency. Canaries that look alike under random labels are never fitted
    and so never memorised, which is why these differ clearly.
    """
    from sklearn.datasets import load_digits

    scans = load_digits().images / 16.0
    return np.array([_collage(scans, shape, rng) for _ in range(n)], dtype=np.uint8).reshape(
        n, *shape
    )


def fitted(image: NDArray[np.uint8], shape: Shape) -> NDArray[np.uint8]:
    """Return an image at another height, width and number of channels, averaged bilinearly."""
    height, width, channels = shape
    values = image.astype(np.float64)
    if channels == 1 and image.shape[2] == 3:
        values = values @ np.array([[0.299], [0.587], [0.114]])
    if values.shape[:2] != (height, width):
        down, across = _mixing(values.shape[0], height), _mixing(values.shape[1], width)
        values = np.einsum("ab,bcd->acd", down, values)
        values = np.einsum("ab,cbd->cad", across, values)
    return np.rint(np.broadcast_to(values, shape)).astype(np.uint8)


def _collage(
    scans: NDArray[np.float64], shape: Shape, rng: np.random.Generator
) -> NDArray[np.uint8]:
    height, width, channels = shape
    canvas = _ground(shape, rng)
    for _ in range(rng.integers(1, _MOST_DIGITS + 1)):
        scan = np.rot90(scans[rng.integers(len(scans))], int(rng.integers(4)))
        tall = round(rng.uniform(0.4, 1.0) * height)
        wide = round(rng.uniform(0.4, 1.0) * width)
        ink = _mixing(8, max(1, tall)) @ scan @ _mixing(8, max(1, wide)).T
        top = rng.integers(height - len(ink) + 1)
        left = rng.integers(width - ink.shape[1] + 1)
        cover = (rng.uniform(0.6, 1.0) * ink)[..., np.newaxis]
        part = canvas[top : top + len(ink), left : left + ink.shape[1]]
        part[...] = part * (1 - cover) + rng.uniform(0, 255, channels) * cover
    pixels: NDArray[np.uint8] = np.rint(canvas).astype(np.uint8)
    return pixels


def _ground(shape: Shape, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a gradient from one colour to another, at a random angle."""
    height, width, channels = shape
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    share = 0.5 + 0.35 * (np.cos(angle) * x + np.sin(angle) * y)
    mix = np.clip(share, 0, 1)[..., np.newaxis]
    one, other = rng.uniform(0, 255, (2, channels))
    ground: NDArray[np.float64] = one * mix + other * (1 - mix)
    return ground


def _mixing(size: int, wanted: int) -> NDArray[np.float64]:
    """Return weights that map `size` pixels to `wanted`, (wanted, size): a tent for each."""
    scale = size / wanted
    centres = (np.arange(wanted) + 0.5) * scale - 0.5
    distance = np.abs(centres[:, np.newaxis] - np.arange(size)) / max(1.0, scale)
    weights = np.maximum(0.0, 1.0 - distance)
    edge = weights.sum(axis=1, keepdims=True)
    mixed: NDArray[np.float64] = weights / edge
    return mixed
