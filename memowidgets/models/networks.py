"""Networks of the package's own for small images, in a module that needs torch."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

_FIRST = 16  # channels of its first convolution


def conv_net(channels: int, width: int, n_classes: int) -> nn.Module:
    """Return two convolutions, a hidden layer and a classifier."""

    def convolution(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
        )

    w = width
    return nn.Sequential(
        OrderedDict(  # in the order in which weights are drawn
            conv1=convolution(channels, w),
            conv2=convolution(w, 2 * w),
            hidden=nn.Sequential(Quarters(), nn.Flatten(), nn.Linear(8 * w, 4 * w), nn.ReLU()),
            classifier=nn.Linear(4 * w, n_classes),
        )
    )


def wide_resnet(channels: int, blocks: int, width: int, n_classes: int) -> nn.Module:
    """Return a wide residual network with this number of blocks in each group.

    Weights are drawn as in the authors' code, by fan-out.
    """
    inputs = _FIRST
    parts: list[tuple[str, nn.Module]] = [
        ("conv", nn.Conv2d(channels, inputs, 3, padding=1, bias=False))
    ]
    for number in (1, 2, 3):
        outputs = _FIRST * width * 2 ** (number - 1)
        stride = 1 if number == 1 else 2
        group = [Block(inputs, outputs, stride)]
        group += [Block(outputs, outputs, 1) for _ in range(blocks - 1)]
        named = [(f"block{i}", block) for i, block in enumerate(group, start=1)]
        parts.append((f"group{number}", nn.Sequential(OrderedDict(named))))
        inputs = outputs
    parts += [
        ("last", nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))),
        ("features", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())),
        ("classifier", nn.Linear(inputs, n_classes)),
    ]
    module = nn.Sequential(OrderedDict(parts))
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
    return module


class Block(nn.Module):
    """Norm, ReLU and convolution, twice, added to the input.

    Parameters
    ----------
    inputs, outputs : int
        Numbers of channels.
    stride : int
        Stride of the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = None
        if inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return activations of shape (batch, outputs, height / stride, width / stride)."""
        active = relu(self.norm1(images), inplace=True)
        passed: Tensor = images if self.shortcut is None else self.shortcut(active)
        half = self.conv1(active)
        residual: Tensor = self.conv2(relu(self.norm2(half), inplace=True))
        return passed + residual


class Quarters(nn.AdaptiveAvgPool2d):
    """torch's average pooling to 2×2, with a gradient that a GPU can repeat bit for bit if asked.

    torch's own has none there. On the CPU it has, and is used.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return means over the quarters, (batch, channels, 2, 2)."""
        if x.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
            return super().forward(x)
        rows, columns = ((slice(0, (n + 1) // 2), slice(n // 2, n)) for n in x.shape[-2:])
        means = [x[..., r, c].mean(dim=(-2, -1)) for r in rows for c in columns]
        return torch.stack(means, dim=-1).reshape(*x.shape[:-2], 2, 2)
