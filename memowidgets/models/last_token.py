"""Savings in a forward pass of which only the last token before the label is used."""

from __future__ import annotations

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
