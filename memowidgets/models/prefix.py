"""Cache of the output of a language model's frozen lower blocks, which run only once.

The cache could be turned back into text. So it lies outside of any run directory, in the folder
`cache_folder`, readable only by its owner.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from memowidgets.files import make_private, replaced, write_whole
from memowidgets.models.digests import file_digest, forget_digests
from memowidgets.models.encoding import Encoded
from memowidgets.models.lora import blocks_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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


class Entry(nn.Module):
    """Module in the place of the last frozen block, which returns its cached output."""

    def __init__(self) -> None:
        super().__init__()
        self.states: Tensor | None = None

    def forward(self, hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        """Return the cached output, instead of the result of the embedding."""
        if self.states is None:
            raise RuntimeError("the cached output of the frozen blocks is missing")
        return self.states.to(hidden_states.dtype)


class _Skipped(nn.Module):
    def forward(self, hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        return hidden_states


def without_prefix(model: nn.Module, first: int) -> Entry:
    """Remove the blocks below `first` from a model; every other module keeps its name."""
    _, blocks = blocks_of(model)
    entry = Entry()
    for i in range(first - 1):
        blocks[i] = _Skipped()
    blocks[first - 1] = entry
    return entry


class Prefix:
    """Output of the frozen blocks for every token of every prompt, in bfloat16 on disk.

    Parameters
    ----------
    key : str
        Key of the model, block and prompts.
    encoded : Encoded
        Encoded prompts.
    width : int
        Size of the hidden state.
    """

    def __init__(self, key: str, encoded: Encoded, width: int) -> None:
        self._folder = cache_folder() / "prefix" / key
        self._encoded, self._width = encoded, width
        self._starts = np.concatenate([[0], np.cumsum(encoded.lengths)])
        self._kept: NDArray[np.uint16] | None = None

    def ensure(self, load: Callable[[], nn.Module], first: int, device: torch.device) -> None:
        """Run the frozen blocks once, unless their output exists, and write it atomically.

        `load` returns the model on the device. A file that differs from what was written is
        replaced.
        """
        if self._is_whole():
            return
        make_private(self._folder)
        with replaced(self._file) as temporary:
            self._compute(load().eval(), first, device, temporary)
        note = {"key": self._folder.name, "digest": file_digest(self._file)}
        write_whole(self._note, json.dumps(note).encode())

    def batch(self, positions: NDArray[Any], device: torch.device) -> Tensor:
        """Return states of shape (batch, longest, width), padded on the left like the ids."""
        import torch

        if self._kept is None:
            shape = (int(self._starts[-1]), self._width)
            self._kept = np.memmap(self._file, np.uint16, mode="r", shape=shape)
        lengths = self._encoded.lengths[positions]
        states = np.zeros((len(positions), int(lengths.max()), self._width), dtype=np.uint16)
        for row, position in enumerate(positions):
            start, stop = self._starts[position], self._starts[position + 1]
            states[row, states.shape[1] - (stop - start) :] = self._kept[start:stop]
        return torch.from_numpy(states).view(torch.bfloat16).to(device)

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

    def _compute(self, model: nn.Module, first: int, device: torch.device, file: Path) -> None:
        import torch

        shape = (int(self._starts[-1]), self._width)
        out = np.memmap(file, np.uint16, mode="w+", shape=shape)
        order = np.argsort(self._encoded.lengths, kind="stable")
        with torch.no_grad():
            _check_left_out(model, first, self._encoded.batch(order[:_CHECKED], device))
            for i in range(0, len(order), _BATCH):
                positions = order[i : i + _BATCH]
                states = _entering(model, first, self._encoded.batch(positions, device))
                bits = states.to(torch.bfloat16).cpu().view(torch.uint16).numpy()
                for row, position in enumerate(positions):
                    start, stop = self._starts[position], self._starts[position + 1]
                    out[start:stop] = bits[row, bits.shape[1] - (stop - start) :]
        out.flush()


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


def _check_left_out(model: nn.Module, first: int, batch: dict[str, Tensor]) -> None:
    """Raise for an architecture whose upper blocks use more than the output of the lower ones."""
    import torch

    whole = _logits(model, batch)
    states = _entering(model, first, batch)
    _, blocks = blocks_of(model)
    lower = list(blocks)[:first]
    without_prefix(model, first).states = states.to(torch.bfloat16)
    upper = _logits(model, batch)
    for i, block in enumerate(lower):
        blocks[i] = block
    error = float((upper - whole).norm() / whole.norm())
    if not error < _LARGEST_ERROR:
        raise ValueError(
            f"with the cached output of its {first} frozen blocks {type(model).__name__} gives "
            "other "
            f"logits, {error:.0%} off; create the model with cache=False"
        )


def _logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    answer = model(**{name: batch[name] for name in _INPUTS}, use_cache=False, logits_to_keep=1)
    logits: Tensor = answer.logits[:, -1].float()
    return logits


class _Reached(Exception):  # noqa: N818 - not an error: the rest of the pass is not needed
    pass


def _entering(model: nn.Module, first: int, batch: dict[str, Tensor]) -> Tensor:
    """Return the input of block `first`, without running the blocks above."""
    seen: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(cast("Tensor", inputs[0]))
        raise _Reached

    hook = blocks_of(model)[1][first].register_forward_pre_hook(keep)
    try:
        model(**{name: batch[name] for name in _INPUTS}, use_cache=False)
    except _Reached:
        pass
    finally:
        hook.remove()
    return seen[0]
