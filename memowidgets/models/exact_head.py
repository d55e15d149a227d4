"""Computation of a classifier's last linear layer in float32, whatever the other layers use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from torch.nn.functional import linear

if TYPE_CHECKING:
    from torch import Tensor, nn


_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MOST_VALUES = 2**24  # maximum size of a matrix that is upcast in one piece: 64 MiB


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
    return isinstance(part, torch.nn.Linear) and part.weight.dtype in _DTYPES


def _exact(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    def forward(hidden: Tensor) -> Tensor:
        weight, bias = layer.weight, cast("Tensor | None", layer.bias)
        with torch.autocast(hidden.device.type, enabled=False):
            if weight.dtype == torch.float32 or weight.requires_grad:
                exact_bias = None if bias is None else bias.float()
                return linear(hidden.float(), weight.float(), exact_bias)
            logits: Tensor = _Upcast.apply(hidden.float(), weight)  # type: ignore[no-untyped-call]
            return logits if bias is None else logits + bias.float()

    return forward


class _Upcast(torch.autograd.Function):
    """Product with frozen weights of a smaller dtype, without a lasting float32 copy of them."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return torch.cat([linear(hidden, rows.float()) for rows in _parts(weight)], dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        parts = _parts(weight)
        split = torch.split(gradients[0], [len(rows) for rows in parts], dim=-1)
        pairs = zip(split, parts, strict=True)
        return torch.stack([g @ rows.float() for g, rows in pairs]).sum(0), None


def _parts(weight: Tensor) -> tuple[Tensor, ...]:
    rows = max(1, _MOST_VALUES // weight.shape[1])
    return torch.split(weight, rows)
