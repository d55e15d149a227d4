"""What is audited: labelled samples with ids, whatever they are made of."""

from memowidgets.data.base import Dataset
from memowidgets.data.digits import load_digits
from memowidgets.data.images import ImageDataset, ImageSample
from memowidgets.data.withheld import WithheldDataset, WithheldSample

__all__ = [
    "Dataset",
    "ImageDataset",
    "ImageSample",
    "WithheldDataset",
    "WithheldSample",
    "load_digits",
]
