"""Begin or continue the run of a training loop that `mw.watch` records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.audit.console import shown
from memowidgets.audit.run import WATCHED, Run, write_stop
from memowidgets.audit.runs import identity
from memowidgets.audit.runs.pairs import others, read_pairs
from memowidgets.checks import check_version, whole_number
from memowidgets.data import Dataset, WithheldDataset
from memowidgets.data.pairs import PairDataset
from memowidgets.store import MANIFEST, RunDirectory
from memowidgets.training import TrainingConfig
from memowidgets.training.config import CheckpointPlan
from memowidgets.training.design import draw_design
from memowidgets.training.forward import unwrapped
from memowidgets.training.loop.inputs import Batches, Pairs, pairs_of
from memowidgets.training.loop.layers import check_head
from memowidgets.training.loop.passes import Looker, default_forward, tried
from memowidgets.training.recorder import Recorder
from memowidgets.training.rho import StopRule
from memowidgets.visible import listed

if TYPE_CHECKING:
    from torch import nn

__all__ = ["begun_loop"]


def begun_loop(
    module: Any,
    data: Any,
    path: str | os.PathLike[str],
    plan: CheckpointPlan,
    forward: Callable[[Any, Any], Any] | None,
    layers: str | Sequence[str],
    stop: StopRule | None,
    batch_size: int | None,
    class_names: Sequence[str] | None,
    ids: Sequence[str] | None,
    held_out: Any,
    seed: int,
    version: str | None,
) -> tuple[Run, Recorder]:
    """Begin the run that `watch` describes, or continue the one in the directory."""
    _check_given(module, forward, data, class_names, ids)
    _check_batch_size(batch_size)
    check_version(version)
    seed = whole_number("seed", seed)
    samples, pairs = _samples(data, class_names, ids)
    forward, module = forward or default_forward, unwrapped(module)
    batches = Batches(samples, pairs, batch_size)
    n_classes, chosen, head = tried(module, batches, forward, layers)
    samples = _with_classes(samples, n_classes, named=class_names is not None)
    if head is not None:
        check_head(module, head, n_classes)
    looker = Looker(batches, samples.labels, forward, chosen, head)
    unseen, aside = _held_out(held_out, samples, looker, batch_size)
    looker = dataclasses.replace(looker, held_out=aside)
    run = _run(module, samples, looker, path, plan, seed, unseen, version)
    if stop is not None:
        write_stop(run.run, stop)
    return run, Recorder(run.run, looker, plan.every, shown)


def _check_given(module: Any, forward: Any, data: Any, class_names: Any, ids: Any) -> None:
    from torch import nn

    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    if forward is not None and not callable(forward):
        raise TypeError(
            "forward must be a function of (module, inputs) that returns logits, not "
            f"{type(forward).__name__}"
        )
    if isinstance(data, Dataset) and (class_names is not None or ids is not None):
        raise ValueError(
            f"{type(data).__name__} has its own class names and ids; leave class_names= and ids= "
            "out"
        )
    if isinstance(data, WithheldDataset):
        raise TypeError("the samples of data are not at hand, only their ids; pass the dataset")


def _check_batch_size(size: Any) -> None:
    if size is not None:
        whole_number("batch_size", size, 1)


def _samples(
    data: Any, class_names: Sequence[str] | None, ids: Sequence[str] | None
) -> tuple[Dataset, Pairs | None]:
    if isinstance(data, PairDataset):  # such as audit.kept()
        return data, Pairs(data.as_pairs())
    if isinstance(data, Dataset):
        return data, None
    pairs = pairs_of(data)
    return read_pairs(pairs, class_names, ids), pairs


def _held_out(
    given: Any, data: Dataset, looker: Looker, batch_size: int | None
) -> tuple[Dataset | None, Looker | None]:
    """Return the samples that the loop does not train on, and the passes over them.

    Raises
    ------
    TypeError
        If they are a share, or samples of another kind than the data.
    """
    if given is None:
        return None, None
    if isinstance(given, int | float | str):
        raise TypeError(
            "held_out must be samples that the loop does not train on, as a dataset or a loader, "
            f"not {given!r}; your loop trains on all samples of data"
        )
    if isinstance(given, Dataset):
        samples, pairs = _samples(given, None, None)
    else:
        samples, pairs = others(given, data.class_names), pairs_of(given)
    if type(samples) is not type(data):
        raise TypeError(
            f"held_out has samples of another kind than data: {type(samples).__name__} there and "
            f"{type(data).__name__} here"
        )
    samples = samples.with_encoding(data.encoding) if data.encoding else samples
    batches = Batches(samples, pairs, batch_size or looker.batches.size)
    return samples, Looker(batches, samples.labels, looker.forward, (), None)


def _with_classes(data: Dataset, n_classes: int, *, named: bool) -> Dataset:
    """Return the data with a class for each column of the logits.

    Raises
    ------
    ValueError
        If the logits do not have one column for each class.
    """
    n = len(data.class_names)
    if n == n_classes:
        return data
    numbered = not named and data.class_names == tuple(map(str, range(n)))
    if isinstance(data, PairDataset) and numbered and n < n_classes:
        return dataclasses.replace(data, class_names=tuple(map(str, range(n_classes))))
    raise ValueError(
        f"the module returns logits for {n_classes} classes, but the data have {n} "
        f"({listed(data.class_names, 5)}); they must have the same"
    )


def _run(
    module: nn.Module,
    data: Dataset,
    looker: Looker,
    path: str | os.PathLike[str],
    plan: CheckpointPlan,
    seed: int,
    held_out: Dataset | None,
    version: str | None,
) -> Run:
    run = RunDirectory(path)
    _check_kind(run)
    design = draw_design(data, "all", None, seed)
    if held_out is not None:
        identity.check_held_out(held_out, data, design)
    settings = TrainingConfig(checkpoint_every=plan.every).resolved({})
    about = {
        "class": type(module).__name__,
        "settings": json.dumps({"layers": list(looker.layer_names)}),
        "version": version or "",
        "parameters": _shapes_digest(module),
    }
    manifest = {
        "kind": WATCHED,
        **identity.described(
            about, None, looker.layer_names, data, design, held_out, settings, seed
        ),
    }
    manifest = identity.continued(run, manifest)
    manifest = identity.settle(run, manifest, data, design)
    _check_encoding(run, data)
    return Run(run, manifest, None, data, held_out, design, "cpu")


def _check_encoding(run: RunDirectory, data: Dataset) -> None:
    stored = identity.read_encoding(run)
    if any(not np.array_equal(stored[name], array) for name, array in data.encoding.items()):
        raise ValueError(
            f"{run.path} has a training on the same rows in another encoding; choose another path, "
            "or pass data.fitted(rows) with the rows of that training"
        )


def _check_kind(run: RunDirectory) -> None:
    if run.has_file(MANIFEST) and run.read_manifest().get("kind") != WATCHED:
        raise ValueError(
            f"{run.path} holds another run, which mw.watch did not record; choose another path"
        )


def _shapes_digest(module: nn.Module) -> str:
    shapes = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
    return hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]
