"""The one precision of a run: settled when the run is made, kept in its manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memowidgets.models.precision import COMPUTED, PRECISIONS, resolve_precision
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import read_course
from memowidgets.training.config import Settings
from memowidgets.training.device import torch_device
from memowidgets.training.made_in import rounded_on_disk

__all__ = ["is_settled", "rounds_logits", "settled_precision"]

_OWN = ("CausalLM", "ConvNet", "WideResNet")  # their last layer runs in the run's precision


def is_settled(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest says in which precision its run computes, on any machine."""
    return "precision" in manifest or _asked(manifest) != "auto"


def settled_precision(
    run: RunDirectory, manifest: Mapping[str, Any], device: Callable[[], str]
) -> str:
    """Return the precision that a run computes in.

    Runs from before the manifest held it, with ``precision="auto"``, computed in what their
    machine had: numbers that they left tell which. Without any, this device decides.

    Raises
    ------
    StoreError
        If the manifest names a precision that does not exist.
    """
    found = manifest.get("precision", _asked(manifest))
    valid = COMPUTED if "precision" in manifest else PRECISIONS
    if found not in valid:
        raise StoreError(
            f"{run.path / 'manifest.json'} names the precision {found!r}; valid: "
            f"{', '.join(valid)}. Update memowidgets if a newer version wrote it"
        )
    if found != "auto":
        return str(found)
    rounded = None if read_course(run) else rounded_on_disk(run, "forward", "shadows")
    if rounded is None:
        return resolve_precision(torch_device(device()), "auto")
    return "bfloat16" if rounded else "float32"


def rounds_logits(manifest: Mapping[str, Any]) -> bool:
    """Whether bfloat16 surely rounded the logits of this model before precisions were recorded."""
    return manifest["model"]["class"] in _OWN


def _asked(manifest: Mapping[str, Any]) -> str:
    return Settings.read(manifest["training"]).precision
