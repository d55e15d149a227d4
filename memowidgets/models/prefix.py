"""Cache of the output of a language model's frozen lower blocks, which run only once.

The cache could be turned back into text. So it lies outside of any run directory, in the folder
`cache_folder`, readable only by its owner.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import make_private, one_at_a_time, replaced, write_whole
from memowidgets.models.device import room_for, sent
from memowidgets.models.lora import blocks_of
from memowidgets.models.pretrained import cache_folder, file_digest, forget_digests
from memowidgets.models.tokens import Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


_BATCH = 16
_CHECKED = 2  # number of prompts that are compared with and without the cache
_LARGEST_ERROR = 0.1  # relative to the logits; rounding to bfloat16 causes about a hundredth


def clear_cache() -> None:
    """Delete all cached activations, and with these the cached file digests."""
    forget_digests()
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
        ask: Callable[[nn.Module, dict[str, Tensor]], Tensor],
    ) -> None:
        self._folder = cache_folder() / "prefix" / key
        self._encoded, self._width, self._ask = encoded, width, ask
        self._starts = np.concatenate([[0], np.cumsum(encoded.lengths)])
        self._kept: NDArray[np.uint16] | None = None

    def ensure(
        self,
        load: Callable[[], tuple[nn.Module, dict[str, Any]]],
        first: int,
        device: torch.device,
    ) -> dict[str, Any]:
        """Run the frozen blocks once, unless their output exists, and write it atomically.

        One process of a machine does so, and the others wait for it. If it is killed, another one
        does. A file that differs from what was written is replaced.

        Parameters
        ----------
        load : callable
            Function that returns the model on the device, and what was found out about it.
        first : int
            Lowest block that is not frozen.
        device : torch.device
            The device.

        Returns
        -------
        dict
            What `load` found out, also if another process called it.
        """
        found = self._whole()
        if found is not None:
            return found
        make_private(self._folder)
        with one_at_a_time(self._folder):
            found = self._whole()
            if found is not None:
                return found
            with replaced(self._file) as temporary:
                with room_for():
                    model, found = load()
                self._compute(model.eval(), first, found["beside"], device, temporary)
            note = {"key": self._folder.name, "digest": file_digest(self._file), "found": found}
            write_whole(self._note, json.dumps(note).encode())
        return found

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

    def _whole(self) -> dict[str, Any] | None:
        """Return what was found out about the model if the file is whole and of these prompts."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            size = 2 * int(self._starts[-1]) * self._width
            if self._file.stat().st_size != size or note["key"] != self._folder.name:
                return None
            return dict(note["found"]) if note["digest"] == file_digest(self._file) else None
        except (OSError, ValueError, TypeError, KeyError):  # or a note of an older version
            return None

    @property
    def _file(self) -> Path:
        return self._folder / "states.bf16"

    @property
    def _note(self) -> Path:
        return self._folder / "states.json"

    def _compute(
        self,
        model: nn.Module,
        first: int,
        beside: int,
        device: torch.device,
        file: Path,
    ) -> None:
        import torch

        from memowidgets.models.patches import entering

        shape = (int(self._starts[-1]), self._width)
        out = np.memmap(file, np.uint16, mode="w+", shape=shape)
        order = np.argsort(self._encoded.lengths, kind="stable")
        remedy = "create the model with cache=False, and train it in smaller batches"
        with torch.no_grad(), room_for(f"a batch of {_BATCH} prompts", remedy):
            self._check(model, first, beside, self._encoded.batch(order[:_CHECKED], device))
            for done in range(0, len(order), _BATCH):
                positions = order[done : done + _BATCH]
                batch = self._encoded.batch(positions, device)
                states = entering(model, first, batch, self._ask)
                bits = states.to(torch.bfloat16).cpu().view(torch.uint16).numpy()
                for row, slot in enumerate(self._encoded.slots(positions)):
                    start, stop = self._starts[positions[row]], self._starts[positions[row] + 1]
                    out[start:stop] = bits[row, slot]
        out.flush()

    def _check(self, model: nn.Module, first: int, beside: int, batch: dict[str, Tensor]) -> None:
        """Raise for an architecture whose upper blocks use more than what the lower ones return."""
        import torch

        from memowidgets.models.patches import entering, without_prefix

        _, blocks = blocks_of(model)
        whole = self._ask(model, batch)
        states = entering(model, first, batch, self._ask)
        lower = list(blocks)[:first]
        try:
            without_prefix(model, first, beside).states = states.to(torch.bfloat16)
            upper = self._ask(model, batch)
        finally:
            for i, block in enumerate(lower):
                blocks[i] = block
        error = float((upper - whole).norm() / whole.norm())
        if not error < _LARGEST_ERROR:
            raise ValueError(
                f"with the cached output of its {first} frozen blocks {type(model).__name__} gives "
                f"other logits, {error:.0%} off; create the model with cache=False"
            )
