"""Cache of the output of a language model's frozen lower blocks, which run only once.

`python -m benchmarks language` prints the gain. The cache could be turned back into text. So it
lies outside of any run directory, in the folder `cache_folder`, readable only by its owner.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from memowidgets.files import make_private, replacement_of
from memowidgets.models.base import restore_modes
from memowidgets.models.device import answers, is_out_of_memory, room_for, sent
from memowidgets.models.lora import blocks_of
from memowidgets.models.pretrained import cache_folder
from memowidgets.models.tokens import Tokens
from memowidgets.vocabulary import first_line

Ask = Callable[[nn.Module, dict[str, Tensor]], Any]
_BATCH = 16
_CHECKED = 2  # number of prompts that are compared with and without the cache
# relative to the logits; rounding to bfloat16 causes about a hundredth
_LARGEST_ERROR = 0.1


def clear_cache() -> None:
    """Delete all cached activations."""
    shutil.rmtree(cache_folder() / "prefix", ignore_errors=True)


class Prefix:
    """Output of the frozen blocks for every token of every prompt, in bfloat16 on disk.

    Parameters
    ----------
    key : str
        Key of the model, block and prompts.
    encoded : Tokens
        Encoded prompts.
    width : int
        Size of the hidden state.
    ask : callable
        Function from a model and a batch to the logits that the cache must not change.
    """

    def __init__(
        self,
        key: str,
        encoded: Tokens,
        width: int,
        ask: Ask,
    ) -> None:
        self._folder = cache_folder() / "prefix" / key
        self._file = self._folder / "states.bf16"
        self._encoded = encoded
        self._width = width
        self._ask = ask
        self._starts = np.concatenate([[0], np.cumsum(encoded.lengths)])
        self._kept: NDArray[np.uint16] | None = None

    def ensure(
        self, load: Callable[[], nn.Module], first: int, device: torch.device
    ) -> None:
        """Run the frozen blocks once, unless their output exists, and write it atomically.

        One process of a machine does so, and the others wait for it. If it is killed, another one
        does.

        Parameters
        ----------
        load : callable
            Function that returns the model on the device.
        first : int
            Lowest block that is not frozen.
        device : torch.device
            The device.
        """
        if self._is_whole():
            return
        from filelock import FileLock  # which frozen blocks alone need

        make_private(self._folder)
        with FileLock(self._folder / ".lock", mode=0o600):
            if self._is_whole():
                return
            with replacement_of(self._file) as temporary:
                with room_for():
                    model = load()
                with restore_modes(model):
                    self._compute(model.eval(), first, device, temporary)

    def batch(self, positions: NDArray[Any], device: torch.device) -> Tensor:
        """Return states of shape (batch, longest, width), padded like the ids."""
        if self._kept is None:
            shape = (int(self._starts[-1]), self._width)
            self._kept = np.memmap(self._file, np.uint16, mode="r", shape=shape)
        lengths = self._encoded.lengths[positions]
        states = np.zeros(
            (len(positions), int(lengths.max()), self._width), dtype=np.uint16
        )
        for row, slot in enumerate(self._encoded.slots(positions)):
            start = self._starts[positions[row]]
            stop = self._starts[positions[row] + 1]
            states[row, slot] = self._kept[start:stop]
        return sent(torch.from_numpy(states).view(torch.bfloat16), device)

    def _is_whole(self) -> bool:
        size = 2 * int(self._starts[-1]) * self._width
        return self._file.is_file() and self._file.stat().st_size == size

    def _compute(
        self, model: nn.Module, first: int, device: torch.device, file: Path
    ) -> None:
        shape = (int(self._starts[-1]), self._width)
        out = np.memmap(file, np.uint16, mode="w+", shape=shape)
        order = np.argsort(self._encoded.lengths, kind="stable")
        remedy = "create the model with cache=False, and train it in smaller batches"
        with torch.no_grad(), room_for(f"a batch of {_BATCH} prompts", remedy):
            self._check(model, first, self._encoded.batch(order[:_CHECKED], device))
            for done in range(0, len(order), _BATCH):
                positions = order[done : done + _BATCH]
                batch = self._encoded.batch(positions, device)
                states, _ = run_up_to(model, first, batch, self._ask)
                bits = states.to(torch.bfloat16).cpu().view(torch.uint16).numpy()
                for row, slot in enumerate(self._encoded.slots(positions)):
                    start = self._starts[positions[row]]
                    stop = self._starts[positions[row] + 1]
                    out[start:stop] = bits[row, slot]
        out.flush()

    def _check(self, model: nn.Module, first: int, batch: dict[str, Tensor]) -> None:
        """Raise for an architecture whose upper blocks use more than what the lower ones return."""
        _, blocks = blocks_of(model)
        whole = self._ask(model, batch)
        lower = list(blocks)[:first]
        try:
            states, n_values = run_up_to(model, first, batch, self._ask)
            without_prefix(model, first, n_values).states = states.to(torch.bfloat16)
            upper = self._ask(model, batch)
        except (AttributeError, LookupError, RuntimeError, TypeError) as error:
            if is_out_of_memory(error) or not answers(next(model.parameters()).device):
                raise
            raise ValueError(
                f"the output of the frozen blocks of {type(model).__name__} cannot be kept "
                f"({first_line(error)}); create the model with cache=False"
            ) from error
        finally:
            for i, block in enumerate(lower):
                blocks[i] = block
        off = float((upper - whole).norm() / whole.norm())
        if not off < _LARGEST_ERROR:
            raise ValueError(
                f"with the cached output of its {first} frozen blocks {type(model).__name__} gives "
                f"other logits, {off:.0%} off; create the model with cache=False"
            )


class Skipped(nn.Module):
    """Module in the place of a frozen block, which returns its input in the block's form.

    The last of them returns the kept output of the blocks in place of its input.
    """

    def __init__(self, block: nn.Module, n_values: int) -> None:
        super().__init__()
        self._n_values = n_values
        self.states: Tensor | None = None
        for name, value in vars(
            block
        ).items():  # some models read a block's kind of attention
            if (
                isinstance(value, str | int)
                and not name.startswith("_")
                and name != "training"
            ):
                setattr(self, name, value)

    def forward(self, hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Any:
        """Return the hidden state, in a tuple of as many values as the block returns."""
        if self.states is not None:
            hidden_states = self.states.to(hidden_states.dtype)
        if self._n_values:
            return (hidden_states, *[None] * (self._n_values - 1))
        return hidden_states


def without_prefix(model: nn.Module, first: int, n_values: int = 0) -> Skipped:
    """Remove the blocks below `first`, and return the place where their kept output enters.

    Every other module keeps its name. `n_values` is the number of values in the tuple that a block
    returns; 0 if it returns the hidden state without one.
    """
    _, blocks = blocks_of(model)
    for i in range(first):
        blocks[i] = Skipped(blocks[i], n_values)
    return cast("Skipped", blocks[first - 1])


class _Reached(Exception):  # noqa: N818 - not an error: the rest of the pass is not needed
    pass


def run_up_to(
    model: nn.Module, first: int, batch: dict[str, Tensor], ask: Ask
) -> tuple[Tensor, int]:
    """Return what the block below `first` returns, without running the blocks above.

    That is its hidden state, and the number of values in the tuple that has it, 0 without one.
    """
    seen: list[tuple[Tensor, int]] = []

    def keep(_block: nn.Module, _inputs: object, output: Any) -> None:
        is_tuple = isinstance(output, tuple)  # maybe of one
        seen.append((output[0], len(output)) if is_tuple else (output, 0))
        raise _Reached

    hook = blocks_of(model)[1][first - 1].register_forward_hook(keep)
    try:
        ask(model, batch)
    except _Reached:
        pass
    finally:
        hook.remove()
    return seen[0]
