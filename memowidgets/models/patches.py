"""Changes of models of transformers from outside, and what each gains.

`head_in_float32`
    Logits have 24 significant bits in a bfloat16 run, not 8: 1000 questions had 116 distinct logit
    gaps without it, and nearly one each with it.
`pack_head`
    A step on 4 questions of 45 tokens takes 22 % less with it (4 blocks as wide as SmolLM2's, its
    vocabulary, float32, one thread).
`without_prefix`
    Frozen blocks run once for all models and epochs: `python -m benchmarks language` prints the
    gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from torch import nn
from torch.nn.functional import linear

from memowidgets.models.lora import blocks_of

if TYPE_CHECKING:
    from torch import Tensor

    Ask = Callable[[nn.Module, dict[str, Tensor]], Any]


_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MOST_VALUES = 2**24  # maximum size of a matrix that is upcast in one piece: 64 MiB
_MOST_KEPT = 2**28  # maximum size of a head that is kept in float32 too: 1 GiB
_KEPT = "_memowidgets_float32"


# the head in float32


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
    kept = vars(weight).get(_KEPT)
    if kept is None or (kept[0].data_ptr(), kept[1]) != (weight.data_ptr(), version):
        values = weight.detach()  # held, so that its address is given to no other values
        kept = vars(weight)[_KEPT] = values, version, values.float()
    return cast("Tensor", kept[2])


def _parts(weight: Tensor) -> tuple[Tensor, ...]:
    rows = max(1, _MOST_VALUES // weight.shape[1])
    return torch.split(weight, rows)


# a packed matrix for the head


def pack_head(model: nn.Module) -> None:
    """Let a language model's head multiply a packed matrix.

    The rows of a slice are multiplied one by one, which takes twice as long.
    """
    head = cast("Any", model).get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(lambda _head, inputs: (inputs[0].contiguous(), *inputs[1:]))


# without the frozen blocks


class Skipped(nn.Module):
    """Module in the place of a frozen block, which returns its input in the block's form.

    The last of them returns the kept output of the blocks in place of its input.
    """

    def __init__(self, block: nn.Module, n_more: int) -> None:
        super().__init__()
        self._n_more = n_more
        self.states: Tensor | None = None
        for name, value in vars(block).items():  # some models read a block's kind of attention
            if isinstance(value, str | int) and not name.startswith("_") and name != "training":
                setattr(self, name, value)

    def forward(self, hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Any:
        """Return the hidden state, with as many values beside it as the block returns."""
        if self.states is not None:
            hidden_states = self.states.to(hidden_states.dtype)
        return (hidden_states, *[None] * self._n_more) if self._n_more else hidden_states


def without_prefix(model: nn.Module, first: int, n_more: int = 0) -> Skipped:
    """Remove the blocks below `first`, and return the place where their kept output enters.

    Every other module keeps its name. `n_more` is the number of values that a block returns in a
    tuple after its hidden state; 0 if it returns only the hidden state.
    """
    _, blocks = blocks_of(model)
    for i in range(first):
        blocks[i] = Skipped(blocks[i], n_more)
    return cast("Skipped", blocks[first - 1])


def values_beside(model: nn.Module, first: int, ask: Ask) -> int:
    """Return how many values the block below `first` returns beside its hidden state."""
    seen: list[int] = []

    def note(_block: nn.Module, _inputs: Any, output: Any) -> None:
        seen.append(len(output) - 1 if isinstance(output, tuple) else 0)

    device = next(model.parameters()).device
    one = torch.ones(1, 1, dtype=torch.int64, device=device)
    batch = {"input_ids": one, "attention_mask": one, "position_ids": one - 1}
    hook = blocks_of(model)[1][first - 1].register_forward_hook(note)
    training = model.training
    try:
        with torch.no_grad():
            ask(model.eval(), batch)
    finally:
        model.train(training)
        hook.remove()
    return seen[-1]


class _Reached(Exception):  # noqa: N818 - not an error: the rest of the pass is not needed
    pass


def entering(
    model: nn.Module,
    first: int,
    batch: dict[str, Tensor],
    ask: Ask,
) -> Tensor:
    """Return the input of block `first`, without running the blocks above."""
    seen: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(cast("Tensor", inputs[0]))
        raise _Reached

    hook = blocks_of(model)[1][first].register_forward_pre_hook(keep)
    try:
        ask(model, batch)
    except _Reached:
        pass
    finally:
        hook.remove()
    return seen[0]
