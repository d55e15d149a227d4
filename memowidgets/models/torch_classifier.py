"""Classifiers of images or tables, defined by a user's function that creates the module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import check_version, several
from memowidgets.data import Dataset, ImageDataset, TableDataset
from memowidgets.models.base import check_kind, is_module, restore_modes
from memowidgets.models.device import sent
from memowidgets.models.vision import ImageModel, images_of, pooling
from memowidgets.vocabulary import first_line, listed, quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


_CLASSES = (
    "n_classes",
    "num_classes",
    "classes",
    "n_labels",
    "num_labels",
    "n_outputs",
)
# parts of all modules that were built and still exist
_BUILT: WeakSet[nn.Module] = WeakSet()


class TorchClassifier(ImageModel):
    """Classifier of images or of a table's rows that its user defines.

    Parameters
    ----------
    make_module : callable
        Function ``make_module(n_classes)`` that returns a fresh `torch.nn.Module`. It is called
        with torch's generator seeded, also in every worker process, so initialise weights there.
        Where it has a parameter such as ``num_classes``, the number is passed by that name.
        The module takes images of shape (batch, channels, height, width), scaled as
        (value / 255 − 0.5) / 0.25, or for a `TableDataset` encoded rows of shape (batch,
        n_features). It returns logits of shape (batch, n_classes), or an object with such
        ``logits``. If the function has a parameter ``n_features``, it is called as
        ``make_module(n_classes, n_features=…)`` for a table. A first layer ``nn.LazyLinear`` finds
        the number of features by itself.
    version : str, optional
        Text that identifies `make_module` beside what a probe sees of it (see Notes). Change it
        with what no probe sees.
    layers : sequence of str, optional
        Names of the modules whose output is a representation, first to last, as in
        ``module.named_modules()``. By default the module's children, where a sequential child
        counts as its elements, without the linear layer at the end. Of a module around a single
        network, they are those of that network.
    pool : "auto", int or None
        Number of rows and columns to which an activation is average-pooled to become a
        representation. ``"auto"`` pools to 4×4 if it has more than 8192 values, and None never
        pools. Tokens, (batch, tokens, width), are averaged in the same cases.

    Raises
    ------
    TypeError
        If `make_module` is not a function, or does not return a module.
    ValueError
        When the model is used with data: if the module cannot take its inputs, its logits do not
        match the classes, or a layer does not exist (the message lists those that do).

    Notes
    -----
    A run knows `make_module` by what it does, not by its text. When a run is begun, its module is
    made twice under one seed and asked about 8 members on the CPU, with weights that a seeded
    generator fills in. The logits, the length and a seeded product of each layer, the gradients and
    buffers of one pass in training mode, and the shape, length and a seeded product of each initial
    weight are kept in the manifest. Whoever goes on with the run, opens it with ``model=`` or
    trains its shadow models makes this probe again, and is refused if it differs; under another
    version of torch, logits, layers and shapes alone are compared. A probe cannot see a change that
    acts only later, such as from the third pass on, or on other inputs than these 8, such as larger
    batches. Put such a change into `version`, which is compared as well.

    In bfloat16 the whole module runs under autocast, including its last layer, so logits have 8
    significant bits and many samples have equal logit gaps. To avoid this, let the module call its
    last layer on ``x.float()`` inside ``torch.autocast(x.device.type, enabled=False)``, or use
    ``precision="float32"``. The networks of memowidgets compute their last layer in float32.

    Any optimizer and schedule work: ``TrainingConfig(optimizer=lambda p: …, schedule=lambda done:
    …)``.

    Examples
    --------
    >>> from torch import nn
    >>> from memowidgets.data import load_digits
    >>> def small(n_classes):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, n_classes))
    >>> model = TorchClassifier(small)
    >>> model.layer_names(model.build(load_digits()))
    ('0', '1', '2')

    A small network for a table, which has any number of features:

    >>> def network(n_classes, n_features):
    ...     return nn.Sequential(nn.Linear(n_features, 8), nn.ReLU(), nn.Linear(8, n_classes))
    >>> TorchClassifier(network)
    TorchClassifier(network)
    """

    training_defaults: Mapping[str, Any] = {
        "epochs": 20,
        "checkpoint_every": 1,
        "batch_size": 64,
        "optimizer": "adamw",
        "lr": 1e-3,
        "weight_decay": 0.01,
        "schedule": "cosine",
        "precision": "auto",
        "augment": "none",
    }

    forward_batch: int = 256

    def __init__(
        self,
        make_module: Callable[..., nn.Module],
        version: str | None = None,
        layers: Sequence[str] | None = None,
        pool: str | int | None = "auto",
    ) -> None:
        if is_module(make_module) or not callable(make_module):
            raise TypeError(
                "make_module must be a function of the number of classes that returns a fresh "
                f"module, as in `lambda n_classes: …`, not {type(make_module).__name__}"
            )
        check_version(version)
        self.make_module = make_module
        self.version = version
        self.layers = None if layers is None else tuple(several("layers", layers))
        self.pool = pooling(pool)

    def __repr__(self) -> str:
        name = getattr(
            self.make_module, "__qualname__", type(self.make_module).__name__
        )
        return f"TorchClassifier({name})"

    def settings(self) -> dict[str, Any]:
        """Return the recipe's own settings, which are displayed and hashed."""
        return {
            "layers": None if self.layers is None else list(self.layers),
            "pool": self.pool,
        }

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset that has neither images nor rows of a table."""
        check_kind("TorchClassifier", data, ImageDataset, TableDataset)

    def feeder(
        self,
        data: Dataset,
        device: torch.device,
        precision: str = "auto",  # noqa: ARG002 - nothing is kept
    ) -> Callable[[NDArray[Any]], Tensor]:
        """Return a function from positions to images, or to encoded rows (batch, n_features)."""
        import torch

        if not isinstance(data, TableDataset):
            return super().feeder(data, device)
        features = torch.from_numpy(data.encoded()).to(device)
        return lambda rows: features[sent(torch.from_numpy(np.asarray(rows)), device)]

    def augmented(self, inputs: Tensor, augment: str) -> Tensor:
        """Return augmented images; rows of a table have no augmentation."""
        if inputs.ndim == 2 and augment != "none":
            raise ValueError(
                f"rows of a table cannot be augmented; leave out augment={augment!r}"
            )
        return super().augmented(inputs, augment)

    def build(self, data: Dataset) -> nn.Module:
        """Create a module, and check on two blank samples that its logits match the classes."""
        module = self._new(data)
        self._try(module, data)
        _BUILT.update(module.modules())
        return module

    def skeleton(self, data: Dataset) -> nn.Module:
        """Return the module, whose weights are drawn aside: random states stay as they are."""
        import torch

        with torch.random.fork_rng(devices=[]):
            return self.build(data)

    def _new(self, data: Dataset) -> nn.Module:
        """Return what the user's function makes, if it is a module with weights of its own."""
        from torch import nn

        self.check_data(data)
        n_features = _input_shape(data)[0] if isinstance(data, TableDataset) else None
        module = _call_make(self.make_module, len(data.class_names), n_features)
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"make_module must return a torch.nn.Module, not {type(module).__name__}"
            )
        if hasattr(module, "_orig_mod"):
            raise ValueError(
                "make_module returns a module of torch.compile, whose layers do not run where they "
                "could be captured; return the module itself"
            )
        _check_fresh(module)
        return module

    def logits(self, module: nn.Module, inputs: Tensor) -> Tensor:
        """Return logits of shape (batch, classes)."""
        return logits_of(module(inputs))

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Return the names of the layers whose output is a representation, first to last."""
        if self.layers is None:
            return _usual_layers(module)
        valid = [name for name, _ in module.named_modules() if name]
        for layer in self.layers:
            if layer not in valid:
                raise ValueError(
                    f"unknown layer {quoted(layer)}; valid: {listed(valid)}"
                )
        return self.layers

    def has_user_code(self, data: Dataset) -> bool:  # noqa: ARG002 - whatever they are
        """Return True: `make_module` is a user's, whatever its parts are."""
        return True

    def _try(self, module: nn.Module, data: Dataset) -> None:
        """Run two blank samples, which initialises lazy layers, and check what comes out."""
        n_classes = len(data.class_names)
        what = "row" if isinstance(data, TableDataset) else "image"
        try:
            logits = logits_of(_blank(module, data, 2))
        except Exception as error:
            raise ValueError(
                f"the module cannot take {what}s of shape {_input_shape(data)}: "
                f"{first_line(error)}. make_module was called with {n_classes}, the number of "
                "classes"
            ) from error
        if tuple(logits.shape) != (2, n_classes):
            raise ValueError(
                f"the module returns logits of shape {tuple(logits.shape)} for two {what}s. The "
                f"data have {n_classes} classes, so it must return {(2, n_classes)}; use the "
                "number of classes that make_module is called with"
            )
        with self.capture_layers(module) as outputs:
            _blank(module, data, 2)
        silent = [
            quoted(name) for name in self.layer_names(module) if name not in outputs
        ]
        if silent:
            raise ValueError(
                f"the forward pass does not run {listed(silent)}, or they return no tensor; with "
                f"layers=, choose from {listed(outputs) or 'others'}"
            )
        for name, values in outputs.items():
            if len(values) != 2:
                raise ValueError(
                    f"layer {quoted(name)} returns {len(values)} rows for 2 {what}s, so its first "
                    "axis is not the batch (batch_first=True?); choose other layers with layers="
                )


def _check_fresh(module: nn.Module) -> None:
    """Refuse a module with weights of an earlier one: models would go on from each other's.

    A frozen part may be shared: training does not change it.
    """
    for name, part in module.named_modules():
        trained = any(
            weights.requires_grad for weights in part.parameters(recurse=False)
        )
        counts = part.training and next(part.buffers(recurse=False), None) is not None
        if part in _BUILT and (trained or counts):
            what = f"with the part {quoted(name)} of" if name else "that is"
            raise ValueError(
                f"make_module returned a module {what} one that it returned before, so every model "
                "would start from the weights of the last one; create each part anew in it, or "
                "return copy.deepcopy(module)"
            )


def _blank(module: nn.Module, data: Dataset, n: int) -> Any:
    """Return a module's output for zeros in eval mode, keeping mode and random state."""
    import torch

    parameter = next(module.parameters(), torch.empty(0))
    zeros = torch.zeros(n, *_input_shape(data), device=parameter.device)
    with restore_modes(module), torch.no_grad(), torch.random.fork_rng(devices=[]):
        module.eval()
        return module(zeros)


def logits_of(output: object) -> Tensor:
    """Return the logits in a module's output."""
    import torch

    logits = getattr(output, "logits", output)
    if isinstance(logits, tuple | list) and logits:
        logits = logits[0]
    if not isinstance(logits, torch.Tensor):
        raise TypeError(
            f"the module returns {type(output).__name__}; it must return logits of shape (batch, "
            "classes), or an object with such logits"
        )
    return logits


def _usual_layers(module: nn.Module) -> tuple[str, ...]:
    """Return the children (elements of sequential ones) without the last linear layer.

    A module around a single network has that network's.
    """
    from torch import nn

    parts: list[tuple[str, nn.Module]] = []
    module, place = _inside(module)
    for name, child in module.named_children():
        if isinstance(child, nn.Sequential | nn.ModuleList) and len(child):
            parts += [
                (f"{place}{name}.{inner}", part)
                for inner, part in child.named_children()
            ]
        else:
            parts.append((f"{place}{name}", child))
    silent = nn.Dropout | nn.Identity
    parts = [(name, part) for name, part in parts if not isinstance(part, silent)]
    linear = [i for i, (_, part) in enumerate(parts) if isinstance(part, nn.Linear)]
    if linear and len(parts) > 1:
        del parts[linear[-1] :]
    if not parts:
        raise ValueError(
            "the module has no layer before its logits; name some with layers="
        )
    return tuple(name for name, _ in parts)


def _inside(module: nn.Module) -> tuple[nn.Module, str]:
    """Return the network that a module is only a shell of, and the beginning of its names."""
    place = ""
    while len(children := [*module.named_children()]) == 1:
        name, child = children[0]
        if type(child).__module__.split(".")[0] == "torch" or not any(child.children()):
            break
        module = child
        place = f"{place}{name}."
    return module, place


def _call_make(
    make_module: Callable[..., Any], n_classes: int, n_features: int | None
) -> Any:
    """Call a user's function with the number of classes, and of features if it takes these.

    They are passed by name where it has a parameter of such a name, whatever comes before it.
    """
    try:
        names = [*inspect.signature(make_module).parameters]
    except (TypeError, ValueError):  # some callables have none
        names = []
    others = {"n_features": n_features} if n_features and "n_features" in names else {}
    meant = [name for name in names if name in _CLASSES]
    given, named = ((), {meant[0]: n_classes}) if meant else ((n_classes,), {})
    try:
        return make_module(*given, **named, **others)
    except TypeError as error:
        raise TypeError(
            f"make_module got {n_classes}, the number of classes: {error}"
        ) from error


def _input_shape(data: Dataset) -> tuple[int, ...]:
    """Return the shape of one sample as the module takes it."""
    if isinstance(data, TableDataset):
        return data.take([0]).encoded().shape[1:]
    height, width, channels = images_of(data).shape[1:]
    return channels, height, width
