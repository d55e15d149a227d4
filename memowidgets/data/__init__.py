"""Datasets: labelled samples with ids, such as images, questions, texts and rows of tables."""

from memowidgets.data.benchmarks import fetch_cifar10, fetch_mcq
from memowidgets.data.bundled import load_digits, make_mcqs, make_patients
from memowidgets.data.dataset import Dataset, WithheldDataset, WithheldSample
from memowidgets.data.images import ImageDataset, ImageSample
from memowidgets.data.mcq import MCQDataset, MCQSample
from memowidgets.data.rows import FileDataset, TextDataset
from memowidgets.data.tables import TableDataset, TableSample

__all__ = [
    "Dataset",
    "FileDataset",
    "ImageDataset",
    "ImageSample",
    "MCQDataset",
    "MCQSample",
    "TableDataset",
    "TableSample",
    "TextDataset",
    "WithheldDataset",
    "WithheldSample",
    "fetch_cifar10",
    "fetch_mcq",
    "load_digits",
    "make_mcqs",
    "make_patients",
]
