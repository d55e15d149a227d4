"""Wide residual networks (Zagoruyko and Komodakis, 2016), with the paper's schedule."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from memowidgets.checks import whole_number
from memowidgets.data import Dataset
from memowidgets.models.images import ImageModel, check_pool, images_of

if TYPE_CHECKING:
    from torch import nn


_FIRST = 16
_GROUPS = 3
_DEEPEST, _WIDEST = 1024, 64  # limits, because an untrusted run may ask for any size


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

    version: str | None = "1"
    channels_last: bool = True
    forward_batch: ClassVar[int] = 256
    less_memory: ClassVar[str] = "; pass pool=4 to the model"

    def __init__(self, depth: int = 16, width: int = 4, pool: str | int | None = "auto") -> None:
        self.depth = whole_number("depth", depth, 10, _DEEPEST)
        if (self.depth - 4) % 6:
            raise ValueError(f"depth must be 6 n + 4 (10, 16, 22, 28, 40, …), not {depth}")
        self.width = whole_number("width, a factor on the channels,", width, 1, _WIDEST)
        check_pool(pool)
        self.pool = pool
        if type(self) is WideResNet:  # a subclass cannot be made again from a run
            self.source = {"model": "WideResNet", "arguments": self.settings()}

    def __repr__(self) -> str:
        return f"WideResNet(depth={self.depth}, width={self.width})"

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return {"depth": self.depth, "width": self.width, "pool": self.pool}

    def build(self, data: Dataset) -> nn.Module:
        """Create a module that fits `data`, with weights drawn from torch's generator."""
        from torch import nn

        images = images_of(data)
        blocks, widths = (self.depth - 4) // 6, [_FIRST * self.width * 2**i for i in range(_GROUPS)]
        parts: list[tuple[str, nn.Module]] = [
            ("conv", nn.Conv2d(images.shape[-1], _FIRST, 3, padding=1, bias=False))
        ]
        inputs = _FIRST
        for number, outputs in enumerate(widths, start=1):
            stride = 1 if number == 1 else 2
            parts.append((f"group{number}", _group(inputs, outputs, blocks, stride)))
            inputs = outputs
        parts += [
            ("last", nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))),
            ("features", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())),
            ("classifier", nn.Linear(inputs, len(data.class_names))),
        ]
        module = nn.Sequential(OrderedDict(parts))
        _draw(module)
        return module

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:  # noqa: ARG002 - always these
        """Return the names of the layers whose output is a representation, first to last."""
        halves = [
            f"group{group}.block{block}{part}"
            for group in range(1, _GROUPS + 1)
            for block in range(1, (self.depth - 4) // 6 + 1)
            for part in (".conv1", "")
        ]
        return ("conv", *halves, "last", "features")


def _group(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Module:
    from torch import nn

    from memowidgets.models.wide_block import Block

    first = Block(inputs, outputs, stride)
    others = [Block(outputs, outputs, 1) for _ in range(blocks - 1)]
    named = [(f"block{i}", block) for i, block in enumerate([first, *others], start=1)]
    return nn.Sequential(OrderedDict(named))


def _draw(module: nn.Module) -> None:
    from torch import nn

    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
