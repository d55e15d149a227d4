"""Image classifiers, with a small convolutional network."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import whole_number
from memowidgets.data import Dataset, ImageDataset
from memowidgets.models.base import Model
from memowidgets.models.memory import sent

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


_WIDEST = 4096


class ImageModel(Model):
    """Base class of image classifiers: centred float images in, cross-entropy as the loss."""

    version: str | None = "1"
    channels_last: bool = False

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset without images."""
        images_of(data)

    def feeder(self, data: Dataset, device: torch.device) -> Callable[[NDArray[Any]], Tensor]:
        """Return a function from positions to images of shape (batch, channels, height, width)."""
        import torch

        stored = _tensor_of(images_of(data))
        if _fits(stored, device):
            stored = stored.to(device)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format

        def feed(positions: NDArray[Any]) -> Tensor:
            rows = sent(torch.from_numpy(np.asarray(positions)), stored.device)
            batch = sent(stored[rows], device).permute(0, 3, 1, 2)
            return ((batch.float() / 255 - 0.5) / 0.25).contiguous(memory_format=layout)

        return feed

    def placed(self, module: nn.Module, device: torch.device, precision: str) -> nn.Module:  # noqa: ARG002
        """Return the module on a device, in the memory layout that is fastest for it."""
        import torch

        if self.channels_last:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module.to(device)

    def augmented(self, inputs: Tensor, augment: str) -> Tensor:
        """Mirror images half of the time, shift them by up to an eighth of their side, or both."""
        if "flip" in augment:
            inputs = _flipped(inputs)
        return _shifted(inputs) if "crop" in augment else inputs

    def outputs(self, module: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of shape (batch, classes) and the cross-entropy of each label, (batch,).

        A layer named ``classifier`` is computed in float32 in any precision.
        """
        from torch.nn.functional import cross_entropy

        from memowidgets.models.exact_head import head_in_float32

        with head_in_float32(getattr(module, "classifier", None)):
            logits = module(inputs).float()
        return logits, cross_entropy(logits, labels, reduction="none")


class ConvNet(ImageModel):
    """Network of two convolutions and a hidden layer, trained in seconds on small images.

    Parameters
    ----------
    width : int
        Channels of the first convolution. The second has twice as many, and the hidden layer four
        times as many.

    Notes
    -----
    The layers are 1 ``conv1`` and 2 ``conv2`` (both after pooling), and 3 ``hidden``, the features
    before the classifier. ``hidden`` is the last layer.

    Examples
    --------
    >>> from memowidgets.data import load_digits
    >>> data = load_digits()
    >>> model = ConvNet()
    >>> model.layer_names(model.build(data))
    ('conv1', 'conv2', 'hidden')
    """

    training_defaults: Mapping[str, Any] = {
        "epochs": 25,
        "checkpoint_every": 1,
        "batch_size": 64,
        "optimizer": "adamw",
        "lr": 8e-3,
        "weight_decay": 0.0,
        "schedule": "linear",
        "precision": "float32",
        "augment": "none",
    }

    cpu_threads: int | None = 1
    version: str | None = "1"

    def __init__(self, width: int = 24) -> None:
        self.width = width = whole_number("width, the number of channels,", width, 1, _WIDEST)
        if type(self) is ConvNet:  # a subclass cannot be made again from a run
            self.source = {"model": "ConvNet", "arguments": {"width": width}}

    def __repr__(self) -> str:
        return f"ConvNet(width={self.width})"

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return {"width": self.width}

    def build(self, data: Dataset) -> nn.Module:
        """Create a module that fits `data`, with weights drawn from torch's generator."""
        from torch import nn

        from memowidgets.models.quarters import Quarters

        channels = images_of(data).shape[-1]
        w = self.width
        return nn.Sequential(
            OrderedDict(
                conv1=_convolution(channels, w),
                conv2=_convolution(w, 2 * w),
                hidden=nn.Sequential(Quarters(), nn.Flatten(), nn.Linear(8 * w, 4 * w), nn.ReLU()),
                classifier=nn.Linear(4 * w, len(data.class_names)),
            )
        )

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:  # noqa: ARG002 - always these
        """Return the names of the layers whose output is a representation, first to last."""
        return ("conv1", "conv2", "hidden")


def check_pool(pool: Any) -> None:
    """Raise if this is not a valid pooling."""
    whole = isinstance(pool, int) and not isinstance(pool, bool) and pool >= 1
    if pool not in ("auto", None) and not whole:
        raise ValueError(
            f"pool must be 'auto', None or a number of rows of at least 1, not {pool!r}"
        )


def _tensor_of(images: NDArray[np.uint8]) -> Tensor:
    """Return the images as a tensor without a copy, even if they are mapped read-only."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(images)


def _fits(images: Tensor, device: torch.device) -> bool:
    """Return whether all images fit on a GPU as bytes, in a quarter of its free memory."""
    import torch

    if device.type != "cuda":
        return False
    return images.nbytes < torch.cuda.mem_get_info(device)[0] / 4


def _flipped(images: Tensor) -> Tensor:
    import torch

    mirrored = torch.rand(len(images)) < 0.5
    return torch.where(mirrored.to(images.device)[:, None, None, None], images.flip(3), images)


def _shifted(images: Tensor) -> Tensor:
    """Shift each image by its own offset, filling with 0, a middle grey."""
    import torch

    height, width = images.shape[2:]
    margin = max(1, min(height, width) // 8)
    padded = torch.nn.functional.pad(images, (margin,) * 4)
    offsets = torch.randint(2 * margin + 1, (len(images), 2)).to(images.device)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = offsets[:, 1:] + torch.arange(width, device=images.device)
    which = torch.arange(len(images), device=images.device)
    moved = padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)


def _convolution(inputs: int, outputs: int) -> nn.Module:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
    )


def images_of(data: Dataset) -> NDArray[np.uint8]:
    """Return the images of a dataset, (n, height, width, channels), or raise if it has none."""
    if not isinstance(data, ImageDataset):
        raise TypeError(
            f"this model classifies images, but {type(data).__name__} has none; pass an "
            "ImageDataset, or a model that reads these data, such as CausalLM for an MCQDataset"
        )
    return data.images
