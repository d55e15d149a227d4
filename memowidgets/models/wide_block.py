"""Block of a wide residual network, in its own module because it needs torch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


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
