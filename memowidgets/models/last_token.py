"""Savings in a forward pass of which only the last token before the label is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from memowidgets.models.lora import blocks_of

if TYPE_CHECKING:
    from torch import Tensor, nn


def only_last_token(model: nn.Module) -> None:
    """Run the last block's MLP at the last token only, and the head on one packed matrix.

    After the last attention no token depends on another, so the last token's hidden state, logits
    and gradients stay the same. Those of the tokens before it are never used.
    """
    head = cast("Any", model).get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(_packed)
    mlp = getattr(blocks_of(model)[1][-1], "mlp", None)
    if mlp is not None:
        mlp.forward = _AtLastToken(mlp.forward)


def mlp_at(model: nn.Module, position_of: Callable[[Tensor], Tensor]) -> None:
    """Run the last block's MLP at one position of each text only, which the head reads.

    `position_of` returns the positions from the token ids of a batch.
    """
    from memowidgets.models.pooling import at

    mlp = getattr(blocks_of(model)[1][-1], "mlp", None)
    if mlp is None:
        return
    places: list[Tensor] = []
    forward = mlp.forward

    def note(_embedding: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        places[:] = [position_of(inputs[0])]

    def only_there(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        import torch

        if args or kwargs:
            return forward(hidden_states, *args, **kwargs)
        answer = forward(at(hidden_states, places[0])[:, None])
        if not isinstance(answer, torch.Tensor):  # such as a mixture of experts
            return forward(hidden_states)
        rows = torch.arange(len(answer), device=answer.device)
        everywhere = answer.new_zeros(*hidden_states.shape[:2], answer.shape[-1])
        return everywhere.index_put((rows, places[0]), answer[:, 0])

    cast("Any", model).get_input_embeddings().register_forward_pre_hook(note)
    mlp.forward = only_there


class _AtLastToken:
    """Forward pass of an MLP at the last token, with 0 at the others."""

    def __init__(self, forward: Any) -> None:
        self._forward = forward

    def __call__(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.nn.functional import pad

        if args or kwargs:
            return self._forward(hidden_states, *args, **kwargs)
        answer = self._forward(hidden_states[:, -1:])
        if not isinstance(answer, torch.Tensor):  # such as a mixture of experts
            return self._forward(hidden_states)
        return pad(answer, (0, 0, hidden_states.shape[1] - 1, 0))


def _packed(_head: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Pack the slice, because the rows of a slice are multiplied one by one, twice as slowly."""
    return (inputs[0].contiguous(), *inputs[1:])
