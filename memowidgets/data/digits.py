"""The scanned digits of scikit-learn: real images that need no download."""

from __future__ import annotations

from dataclasses import replace

from memowidgets.checks import real_number
from memowidgets.data.images import ImageDataset


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
    return replace(
        data,
        source={
            "loader": "load_digits",
            "arguments": {"canaries": float(canaries), "seed": int(seed)},
        },
    )
