"""Networks of the package's own for small images, and what is changed in the heads of others.

`head_in_float32`
    Logits have 24 significant bits in a bfloat16 run, not 8: 1000 questions had 116 distinct logit
    gaps without it, and nearly one each with it.
`pack_head`
    A step on 4 questions of 45 tokens takes 22 % less with it (4 blocks as wide as SmolLM2's, its
    vocabulary, float32, one thread).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

_FIRST = 16  # channels of a wide residual network's first convolution
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MOST_VALUES = 2**24  # maximum size of a matrix that is upcast in one piece: 64 MiB
_MOST_KEPT = 2**28  # maximum size of a head that is kept in float32 too: 1 GiB
_KEPT = "_memowidgets_float32"


def conv_net(channels: int, width: int, n_classes: int) -> nn.Module:
    """Return two convolutions, a hidden layer and a classifier."""

    def convolution(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel_size=3, padding=1),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(),  # of a quarter of the values, and the same as before pooling
        )

    w = width
    module = nn.Sequential(
        OrderedDict(  # in the order in which weights are drawn
            conv1=convolution(channels, w),
            conv2=convolution(w, 2 * w),
            hidden=nn.Sequential(
                Quarters(), nn.Flatten(), nn.Linear(8 * w, 4 * w), nn.ReLU()
            ),
            classifier=nn.Linear(4 * w, n_classes),
        )
    )
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


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
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


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
        rows, columns = (
            (slice(0, (n + 1) // 2), slice(n // 2, n)) for n in x.shape[-2:]
        )
        means = [x[..., r, c].mean(dim=(-2, -1)) for r in rows for c in columns]
        return torch.stack(means, dim=-1).reshape(*x.shape[:-2], 2, 2)


@contextmanager
def head_in_float32(head: nn.Module | None) -> Iterator[None]:
    """Within this context, compute a head's linear layers in float32, outside of any autocast.

    bfloat16 keeps 8 bits of a logit, so many samples would have equal differences of two logits.
    The weights stay in their dtype. Quantised layers are not changed.
    """
    parts = [] if head is None else [part for part in head.modules() if _is_plain(part)]
    before = [vars(part).get("forward") for part in parts]
    for part in parts:
        vars(part)["forward"] = _exact(part)
    try:
        yield
    finally:
        for part, forward in zip(parts, before, strict=True):
            del vars(part)["forward"]
            if forward is not None:
                vars(part)["forward"] = forward


def _is_plain(part: nn.Module) -> TypeGuard[nn.Linear]:
    return isinstance(part, nn.Linear) and part.weight.dtype in _DTYPES


def _exact(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    def forward(hidden: Tensor) -> Tensor:
        weight = layer.weight
        bias = cast("Tensor | None", layer.bias)
        with torch.autocast(hidden.device.type, enabled=False):
            if weight.dtype == torch.float32 or weight.requires_grad:
                exact_bias = None if bias is None else bias.float()
                return linear(hidden.float(), weight.float(), exact_bias)
            logits: Tensor = _Upcast.apply(hidden.float(), weight)  # type: ignore[no-untyped-call]
            return logits if bias is None else logits + bias.float()

    return forward


class _Upcast(torch.autograd.Function):
    """Product with the float32 values of frozen weights of a smaller dtype."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        parts = _parts(_in_full(weight))
        return torch.cat([linear(hidden, rows.float()) for rows in parts], dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        parts = _parts(_in_full(weight))
        split = torch.split(gradients[0], [len(rows) for rows in parts], dim=-1)
        pairs = zip(split, parts, strict=True)
        return torch.stack([g @ rows.float() for g, rows in pairs]).sum(0), None


def _in_full(weight: Tensor) -> Tensor:
    """Return frozen weights in float32 if they are on a CPU, where an upcast takes long.

    The copy stays with the weights, so that a worker makes it once for all shadow models. A GPU
    upcasts them in a moment, and has less memory.
    """
    if weight.device.type != "cpu" or weight.numel() > _MOST_KEPT:
        return weight
    version = weight._version  # noqa: SLF001 - counts what was written into it
    full = vars(weight).get(_KEPT)
    if full is None or (full[0].data_ptr(), full[1]) != (weight.data_ptr(), version):
        # held, so that its address is given to no other values
        values = weight.detach()
        full = vars(weight)[_KEPT] = values, version, values.float()
    return cast("Tensor", full[2])


def _parts(weight: Tensor) -> tuple[Tensor, ...]:
    rows = max(1, _MOST_VALUES // weight.shape[1])
    return torch.split(weight, rows)


def pack_head(model: nn.Module) -> None:
    """Let a language model's head multiply a packed matrix.

    The rows of a slice are multiplied one by one, which takes twice as long.
    """
    head = cast("Any", model).get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(
            lambda _head, inputs: (inputs[0].contiguous(), *inputs[1:])
        )
