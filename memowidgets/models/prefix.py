"""Cache of the output of a language model's frozen lower blocks, which run only once.

The cache could be turned back into text. So it lies outside of any run directory, in the folder
`cache_folder`, readable only by its owner.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from memowidgets.files import make_private, replaced, write_whole
from memowidgets.models.digests import file_digest, forget_digests
from memowidgets.models.encoding import Tokens
from memowidgets.models.lora import blocks_of
from memowidgets.models.memory import Memory, sent

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Ask = Callable[[nn.Module, dict[str, Tensor]], Tensor]


_BATCH = 16
_CHECKED = 2  # number of prompts that are compared with and without the cache
_LARGEST_ERROR = 0.1  # relative to the logits; rounding to bfloat16 causes about a hundredth
_INPUTS = ("input_ids", "attention_mask", "position_ids")


def cache_folder() -> Path:
    """Return the cache's folder: ``$MEMOWIDGETS_CACHE``, or one in the user's cache folder."""
    named = os.environ.get("MEMOWIDGETS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(named) if named else Path(base).expanduser() / "memowidgets"


def clear_cache(key: str | None = None) -> None:
    """Delete cached activations of one key, or all, and with these the cached file digests."""
    if key is None:
        forget_digests()
    folder = cache_folder() / "prefix"
    shutil.rmtree(folder if key is None else folder / key, ignore_errors=True)


class _Skipped(nn.Module):
    """Module in the place of a frozen block, which returns its input in the block's form."""

    def __init__(self, block: nn.Module, n_more: int) -> None:
        super().__init__()
        self._n_more = n_more
        for name, value in vars(block).items():  # some models read a block's kind of attention
            if isinstance(value, str | int) and not name.startswith("_") and name != "training":
                setattr(self, name, value)

    def forward(self, hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Any:
        return (hidden_states, *[None] * self._n_more) if self._n_more else hidden_states


class Entry(_Skipped):
    """Module in the place of the last frozen block, which returns its cached output."""

    def __init__(self, block: nn.Module, n_more: int) -> None:
        super().__init__(block, n_more)
        self.states: Tensor | None = None

    def forward(self, hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Any:
        """Return the cached output, instead of the result of the embedding."""
        if self.states is None:
            raise RuntimeError("the cached output of the frozen blocks is missing")
        return super().forward(self.states.to(hidden_states.dtype))


def without_prefix(model: nn.Module, first: int, n_more: int = 0) -> Entry:
    """Remove the blocks below `first` from a model; every other module keeps its name.

    `n_more` is the number of values that a block returns in a tuple after its hidden state; 0 if it
    returns only the hidden state.
    """
    _, blocks = blocks_of(model)
    entry = Entry(blocks[first - 1], n_more)
    for i in range(first - 1):
        blocks[i] = _Skipped(blocks[i], n_more)
    blocks[first - 1] = entry
    return entry


def asked(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return a causal language model's logits after the last token, (batch, vocabulary)."""
    answer = model(**_inputs(batch), use_cache=False, logits_to_keep=1)
    logits: Tensor = answer.logits[:, -1].float()
    return logits


def classified(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return a classifier's logits, (batch, classes)."""
    logits: Tensor = model(**_inputs(batch)).logits.float()
    return logits


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
        ask: Ask = asked,
    ) -> None:
        self._folder = cache_folder() / "prefix" / key
        self._encoded, self._width, self._ask = encoded, width, ask
        self._starts = np.concatenate([[0], np.cumsum(encoded.lengths)])
        self._kept: NDArray[np.uint16] | None = None
        self._rows, self._checked = _BATCH, _CHECKED

    def ensure(self, load: Callable[[], nn.Module], first: int, device: torch.device) -> None:
        """Run the frozen blocks once, unless their output exists, and write it atomically.

        `load` returns the model on the device. A file that differs from what was written is
        replaced.
        """
        if self._is_whole():
            return
        make_private(self._folder)
        with replaced(self._file) as temporary:
            memory = Memory(device)
            self._compute(memory.hold(load).eval(), first, device, memory, temporary)
        note = {"key": self._folder.name, "digest": file_digest(self._file)}
        write_whole(self._note, json.dumps(note).encode())

    def batch(self, positions: NDArray[Any], device: torch.device) -> Tensor:
        """Return states of shape (batch, longest, width), padded like the ids."""
        import torch

        if self._kept is None:
            shape = (int(self._starts[-1]), self._width)
            self._kept = np.memmap(self._file, np.uint16, mode="r", shape=shape)
        lengths = self._encoded.lengths[positions]
        states = np.zeros((len(positions), int(lengths.max()), self._width), dtype=np.uint16)
        for row, slot in enumerate(self._encoded.slots(positions)):
            start, stop = self._starts[positions[row]], self._starts[positions[row] + 1]
            states[row, slot] = self._kept[start:stop]
        return sent(torch.from_numpy(states).view(torch.bfloat16), device)

    def _is_whole(self) -> bool:
        """Return whether the file was written for this model and these prompts, and is complete."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            size = 2 * int(self._starts[-1]) * self._width
            if self._file.stat().st_size != size:
                return False
            return bool(note == {"key": self._folder.name, "digest": file_digest(self._file)})
        except (OSError, ValueError):
            return False

    @property
    def _file(self) -> Path:
        return self._folder / "states.bf16"

    @property
    def _note(self) -> Path:
        return self._folder / "states.json"

    def _compute(
        self, model: nn.Module, first: int, device: torch.device, memory: Memory, file: Path
    ) -> None:
        import torch

        shape = (int(self._starts[-1]), self._width)
        out = np.memmap(file, np.uint16, mode="w+", shape=shape)
        order = np.argsort(self._encoded.lengths, kind="stable")
        with torch.no_grad():
            memory.fit(partial(self._check, model, first, order, device), self._check_fewer)
            done = 0
            while done < len(order):
                enter = partial(self._entering, model, first, order[done:], device)
                states = memory.fit(enter, self._halve)
                positions = order[done : done + len(states)]
                done += len(states)
                bits = states.to(torch.bfloat16).cpu().view(torch.uint16).numpy()
                for row, slot in enumerate(self._encoded.slots(positions)):
                    start, stop = self._starts[positions[row]], self._starts[positions[row] + 1]
                    out[start:stop] = bits[row, slot]
        out.flush()

    def _check(
        self, model: nn.Module, first: int, positions: NDArray[Any], device: torch.device
    ) -> None:
        batch = self._encoded.batch(positions[: self._checked], device)
        _check_left_out(model, first, batch, self._ask)

    def _check_fewer(self) -> int:
        self._checked //= 2
        return self._checked

    def _entering(
        self, model: nn.Module, first: int, positions: NDArray[Any], device: torch.device
    ) -> Tensor:
        """Return the input of block `first` for as many of the samples as a batch has."""
        batch = self._encoded.batch(positions[: self._rows], device)
        return _entering(model, first, batch, self._ask)

    def _halve(self) -> int:
        self._rows //= 2
        return self._rows


def why_not(config: Any) -> str | None:
    """Return why an architecture's lower blocks cannot be left out, judged by its configuration."""
    text = config.get_text_config()
    if getattr(text, "num_kv_shared_layers", 0):
        return "its upper blocks use keys and values of lower ones"
    if getattr(text, "hidden_size_per_layer_input", 0):
        return "its blocks have an input other than the block below"
    if getattr(config, "is_encoder_decoder", False):
        return "it also has an encoder"
    return None


def _check_left_out(
    model: nn.Module,
    first: int,
    batch: dict[str, Tensor],
    ask: Ask,
) -> None:
    """Raise for an architecture whose upper blocks use more than the output of the lower ones."""
    import torch

    _, blocks = blocks_of(model)
    beside = values_beside(model, first, ask)
    whole = ask(model, batch)
    states = _entering(model, first, batch, ask)
    lower = list(blocks)[:first]
    try:
        without_prefix(model, first, beside).states = states.to(torch.bfloat16)
        upper = ask(model, batch)
    finally:
        for i, block in enumerate(lower):
            blocks[i] = block
    error = float((upper - whole).norm() / whole.norm())
    if not error < _LARGEST_ERROR:
        raise ValueError(
            f"with the cached output of its {first} frozen blocks {type(model).__name__} gives "
            f"other logits, {error:.0%} off; create the model with cache=False"
        )


def values_beside(model: nn.Module, first: int, ask: Ask) -> int:
    """Return how many values the block below `first` returns beside its hidden state."""
    import torch

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


def _inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in _INPUTS if name in batch}


class _Reached(Exception):  # noqa: N818 - not an error: the rest of the pass is not needed
    pass


def _entering(
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
