"""Image classifiers, and the two that are built in: a ConvNet and wide residual networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import whole_number
from memowidgets.data import Dataset, ImageDataset
from memowidgets.models.base import Model, check_kind
from memowidgets.models.device import free_bytes, sent, tensor_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


# Limits, because an untrusted run may ask for any size.
_WIDEST = 4096
_DEEPEST = 1024
_WIDEST_FACTOR = 64


class ImageModel(Model):
    """Base class of image classifiers: centred float images in, cross-entropy as the loss."""

    version: str | None = "1"

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset without images."""
        images_of(data)

    def feeder(
        self,
        data: Dataset,
        device: torch.device,
        precision: str = "auto",  # noqa: ARG002 - nothing is kept
    ) -> Callable[[NDArray[Any]], Tensor]:
        """Return a function from positions to images of shape (batch, channels, height, width)."""
        import torch

        stored = tensor_of(images_of(data))
        free = free_bytes(device)
        if free is not None and stored.nbytes < free / 4:
            stored = stored.to(device)

        def feed(positions: NDArray[Any]) -> Tensor:
            rows = sent(torch.from_numpy(np.asarray(positions)), stored.device)
            batch = sent(stored[rows], device).permute(0, 3, 1, 2)
            plain = torch.contiguous_format  # which a `view` in a user's module needs
            return (batch.to(torch.float32, memory_format=plain) / 255 - 0.5) / 0.25

        return feed

    def augmented(self, inputs: Tensor, augment: str) -> Tensor:
        """Mirror images half of the time, shift them by up to an eighth of their side, or both."""
        import torch

        if "flip" in augment:
            mirrored = (torch.rand(len(inputs)) < 0.5).to(inputs.device)[
                :, None, None, None
            ]
            inputs = torch.where(mirrored, inputs.flip(3), inputs)
        return _shifted(inputs) if "crop" in augment else inputs

    def logits(self, module: nn.Module, inputs: Tensor) -> Tensor:
        """Return logits of shape (batch, classes); a ``classifier`` computes them in float32."""
        from memowidgets.models.networks import head_in_float32

        with head_in_float32(getattr(module, "classifier", None)):
            return cast("Tensor", module(inputs))


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

    def __init__(self, width: int = 24) -> None:
        self.width = width = whole_number(
            "width, the number of channels,", width, 1, _WIDEST
        )
        if type(self) is ConvNet:  # a subclass cannot be made again from a run
            self.source = {"model": "ConvNet", "arguments": {"width": width}}

    def __repr__(self) -> str:
        return f"ConvNet(width={self.width})"

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return {"width": self.width}

    def build(self, data: Dataset) -> nn.Module:
        """Create a module that fits `data`, with weights drawn from torch's generator."""
        from memowidgets.models.networks import conv_net

        return conv_net(images_of(data).shape[-1], self.width, len(data.class_names))

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:  # noqa: ARG002 - always these
        """Return the names of the layers whose output is a representation, first to last."""
        return ("conv1", "conv2", "hidden")


class WideResNet(ImageModel):
    """Wide residual network for small images, trained from scratch.

    Parameters
    ----------
    depth : int
        Number of layers, 6 n + 4 for n blocks in each of three groups: 10, 16, 22, 28, 40.
    width : int
        Factor on the 16, 32 and 64 channels of a thin network.
    pool : "auto", int or None
        Number of rows and columns to which an activation is average-pooled to become a
        representation. ``"auto"`` pools to 4×4 if it has more than 8192 values, and None never
        pools.

    Notes
    -----
    Pre-activation blocks without dropout. Weights are initialised as in He et al. (2015) by
    fan-out, as in the authors' code. WRN16-4 has 2.7 M parameters. The layers are the first
    convolution; of each block its first convolution and its sum; the last activation; and the
    pooled ``features`` before the classifier, which are "last".

    The default training is the paper's: 300 epochs of SGD at 0.1 with momentum 0.9, a tenth of this
    rate from half of the training on and a hundredth from three quarters on, batches of 64, weight
    decay 1e-4, and no augmentation.

    Examples
    --------
    >>> from memowidgets.data import load_digits
    >>> data = load_digits()
    >>> model = WideResNet(depth=10, width=1)
    >>> model.layer_names(model.build(data))[:3]
    ('conv', 'group1.block1.conv1', 'group1.block1')
    """

    training_defaults: Mapping[str, Any] = {
        "epochs": 300,
        "checkpoint_every": 2,
        "batch_size": 64,
        "optimizer": "sgd",
        "lr": 0.1,
        "weight_decay": 1e-4,
        "schedule": "steps",
        "precision": "auto",
        "augment": "none",
    }

    forward_batch: int = 256

    def __init__(
        self, depth: int = 16, width: int = 4, pool: str | int | None = "auto"
    ) -> None:
        self.depth = whole_number("depth", depth, 10, _DEEPEST)
        if (self.depth - 4) % 6:
            raise ValueError(
                f"depth must be 6 n + 4 (10, 16, 22, 28, 40, …), not {depth}"
            )
        self._blocks = (self.depth - 4) // 6  # in each group
        self.width = whole_number(
            "width, a factor on the channels,", width, 1, _WIDEST_FACTOR
        )
        self.pool = pooling(pool)
        if type(self) is WideResNet:  # a subclass cannot be made again from a run
            self.source = {"model": "WideResNet", "arguments": self.settings()}

    def __repr__(self) -> str:
        return f"WideResNet(depth={self.depth}, width={self.width})"

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return {"depth": self.depth, "width": self.width, "pool": self.pool}

    def build(self, data: Dataset) -> nn.Module:
        """Create a module that fits `data`, with weights drawn from torch's generator."""
        from memowidgets.models.networks import wide_resnet

        channels = images_of(data).shape[-1]
        return wide_resnet(channels, self._blocks, self.width, len(data.class_names))

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:  # noqa: ARG002 - always these
        """Return the names of the layers whose output is a representation, first to last."""
        halves = [
            f"group{group}.block{block}{part}"
            for group in (1, 2, 3)
            for block in range(1, self._blocks + 1)
            for part in (".conv1", "")
        ]
        return ("conv", *halves, "last", "features")


def pooling(pool: Any) -> str | int | None:
    """Return a pooling, or raise if it is not a valid one."""
    if pool is None or pool == "auto":
        return cast("str | None", pool)
    return whole_number("pool, 'auto', None or a number of rows,", pool, 1)


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
    return moved.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)


def images_of(data: Dataset) -> NDArray[np.uint8]:
    """Return the images of a dataset, (n, height, width, channels), or raise if it has none."""
    check_kind("this model", data, ImageDataset)
    return cast("ImageDataset", data).images
