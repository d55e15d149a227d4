"""Pooling to 2×2, in its own module because it needs torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
