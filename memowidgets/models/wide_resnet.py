"""Wide residual networks (Zagoruyko and Komodakis, 2016), with the paper's schedule."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from memowidgets.data import Dataset
from memowidgets.models.images import ImageModel, check_pool, images_of

if TYPE_CHECKING:
    from torch import nn

__all__ = ["WideResNet"]

_FIRST = 16
_GROUPS = 3
_DEEPEST, _WIDEST = 1024, 64  # also of a run that anybody made: its layers are listed


class WideResNet(ImageModel):
    """A wide residual network for small images, trained from scratch.

    Parameters
    ----------
    depth : int
        6 n + 4 for n blocks in each of three groups: 10, 16, 22, 28, 40.
    width : int
        How many times wider than a thin network: 16, 32 and 64 channels times this.
    pool : "auto", int or None
        To how many rows and columns a layer's activation is average-pooled before it is a
        representation: ``"auto"`` to 4×4 where it has more than 8192 values, None never.

    Notes
    -----
    Pre-activation blocks without dropout, weights drawn as He et al. (2015) by fan-out, as in the
    authors' code. WRN16-4 has 2.7 M parameters. Layers: the first convolution; of each block its
    first convolution and its sum; the last activation; the pooled ``features`` before the
    classifier, which are "last".

    By default it is trained as in the paper: 300 epochs of SGD at 0.1, momentum 0.9, a tenth of
    it from half of the training on and a hundredth from three quarters, batches of 64, weight
    decay 1e-4, no augmentation.

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
    less_memory: ClassVar[str] = ": give the model pool=4"

    def __init__(self, depth: int = 16, width: int = 4, pool: str | int | None = "auto") -> None:
        if depth != int(depth) or not 10 <= depth <= _DEEPEST or (depth - 4) % 6:
            raise ValueError(
                f"depth is 6 n + 4 (10, 16, 22, 28, 40, …), at most {_DEEPEST}, not {depth}"
            )
        if width != int(width) or not 1 <= width <= _WIDEST:
            raise ValueError(f"width is a factor on the channels, from 1 to {_WIDEST}, not {width}")
        check_pool(pool)
        self.depth, self.width, self.pool = int(depth), int(width), pool
        if type(self) is WideResNet:  # a subclass is its owner's
            self.source = {"model": "WideResNet", "arguments": self.settings()}

    def __repr__(self) -> str:
        return f"WideResNet(depth={self.depth}, width={self.width})"

    def settings(self) -> dict[str, Any]:
        """The recipe's own numbers, as they are shown and hashed."""
        return {"depth": self.depth, "width": self.width, "pool": self.pool}

    def build(self, data: Dataset) -> nn.Module:
        """A fresh module whose input and classes follow `data`, drawn from torch's generator."""
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
        """Names of the layers whose output is a representation, first to last."""
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
