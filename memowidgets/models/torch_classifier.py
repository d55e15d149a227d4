"""Anyone's own image classifier: a function that makes the module is all that is needed."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from memowidgets.data import Dataset
from memowidgets.models.images import ImageModel, check_pool, images_of
from memowidgets.visible import listed, quoted

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["TorchClassifier"]

_OWN = ("torch", "memowidgets")


class TorchClassifier(ImageModel):
    """An image classifier that its user defines, trained from whatever weights it starts with.

    Parameters
    ----------
    make_module : callable
        ``make_module(n_classes)`` gives a fresh `torch.nn.Module`. It is called with torch's
        generator seeded, in every worker process too: draw weights there. The module takes images
        of shape (batch, channels, height, width), (value / 255 − 0.5) / 0.25, and gives logits of
        shape (batch, n_classes), or an object with such ``logits``.
    version : str, optional
        Stands for the source text of `make_module` and its modules, which otherwise tells runs
        apart; change it with what it stands for.
    layers : sequence of str, optional
        Names of the modules whose output is a representation, first to last, as in
        ``module.named_modules()``. By default the module's children, the elements of sequential
        ones each, without the linear layer at the end.
    pool : "auto", int or None
        To how many rows and columns an activation is average-pooled before it is a
        representation: ``"auto"`` to 4×4 where it has more than 8192 values, None never. Tokens,
        (batch, tokens, width), are averaged in the same cases.
    channels_last : bool
        Memory layout of images and weights; faster for most convolutional networks, but a module
        that calls ``view`` on an activation may refuse it.

    Raises
    ------
    TypeError
        If `make_module` is no function, or does not give a module.
    ValueError
        Once it meets the data: if the module can't take the images, its logits don't match the
        classes, or a layer does not exist (those that do are listed).

    Notes
    -----
    In bfloat16 the whole module runs under autocast, its last layer too, so that logits have 8
    significant bits and the logit gaps of many samples are equal. A module that calls its
    last layer on ``x.float()`` inside of ``torch.autocast(x.device.type, enabled=False)`` avoids
    that, as does ``precision="float32"``. The networks of memowidgets compute theirs in float32.

    Any optimizer and schedule: ``TrainingConfig(optimizer=lambda p: …, schedule=lambda done: …)``.

    Examples
    --------
    >>> from torch import nn
    >>> from memowidgets.data import load_digits
    >>> def small(n_classes):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, n_classes))
    >>> model = TorchClassifier(small, version="1")
    >>> model.layer_names(model.build(load_digits()))
    ('0', '1', '2')
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

    version: str | None = "1"
    forward_batch: ClassVar[int] = 256
    less_memory: ClassVar[str] = ": give the model pool=4, or fewer layers="

    def __init__(
        self,
        make_module: Callable[[int], nn.Module],
        version: str | None = None,
        layers: Sequence[str] | None = None,
        pool: str | int | None = "auto",
        channels_last: bool = False,
    ) -> None:
        if not callable(make_module):
            raise TypeError(
                "make_module must be a function of the number of classes that gives a fresh "
                f"module, not {type(make_module).__name__}"
            )
        check_pool(pool)
        self.make_module, self.stated_version = make_module, version
        self.layers = None if layers is None else tuple(layers)
        self.pool, self.channels_last = pool, channels_last

    def __repr__(self) -> str:
        return f"TorchClassifier({_name_of(self.make_module)})"

    def settings(self) -> dict[str, Any]:
        """The recipe's own numbers, as they are shown and hashed."""
        return {
            "layers": None if self.layers is None else list(self.layers),
            "pool": self.pool,
            "channels_last": self.channels_last,
        }

    def build(self, data: Dataset) -> nn.Module:
        """A fresh module, tried on one image: its logits must match the classes."""
        from torch import nn

        images_of(data)
        module = self.make_module(len(data.class_names))
        if not isinstance(module, nn.Module):
            raise TypeError(f"make_module must give a torch.nn.Module, not {type(module).__name__}")
        self._try(module, data)
        self.layer_names(module)
        self._try_layers(module, data)
        return module

    def skeleton(self, data: Dataset) -> nn.Module:
        """The module's names and shapes; with weights where it can't be made without."""
        import torch

        try:
            return super().skeleton(data)
        except (RuntimeError, NotImplementedError, ValueError):  # its code looks at values
            with torch.random.fork_rng(devices=[]):
                return self.build(data)

    def outputs(self, module: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of shape (batch, classes) and the cross-entropy of each label, (batch,)."""
        from torch.nn.functional import cross_entropy

        logits = logits_of(module(inputs)).float()
        return logits, cross_entropy(logits, labels, reduction="none")

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Names of the layers whose output is a representation, first to last."""
        if self.layers is None:
            return _usual_layers(module)
        known = [name for name, _ in module.named_modules() if name]
        for layer in self.layers:
            if layer not in known:
                raise ValueError(f"unknown layer {quoted(layer)}; valid: {listed(known)}")
        return self.layers

    @contextmanager
    def captured(self, module: nn.Module) -> Iterator[dict[str, Tensor]]:
        """As `Model.captured`; a layer that the forward pass leaves out is an error."""
        with super().captured(module) as kept:
            last = module.register_forward_hook(
                lambda *_: _check_all_ran(kept, self.layer_names(module))
            )
            try:
                yield kept
            finally:
                last.remove()

    def describe(self, data: Dataset) -> dict[str, str]:
        """What makes two models the same; the source of the user's own code among it."""
        text = self.stated_version
        if text is None:
            own = [type(part) for part in self.skeleton(data).modules()]
            theirs = {cls for cls in own if cls.__module__.split(".")[0] not in _OWN}
            sources = [_source(cls) for cls in sorted(theirs, key=lambda cls: cls.__qualname__)]
            text = "\n".join([_source(self.make_module), *sources])
        digest = hashlib.sha256(f"{self.source_text()}\n{text}".encode()).hexdigest()[:16]
        return {**super().describe(data), "source": digest}

    def _try_layers(self, module: nn.Module, data: Dataset) -> None:
        """Two images through the layers: each must give its values by image."""
        with self.captured(module) as kept:
            _blank(module, data, 2)
        for name, values in kept.items():
            if len(values) != 2:
                raise ValueError(
                    f"layer {quoted(name)} gives {len(values)} rows for 2 images, so its first "
                    "axis is "
                    "not the batch (batch_first=True?): choose others with layers="
                )

    def _try(self, module: nn.Module, data: Dataset) -> None:
        """One image through the module: shapes must fit; lazy layers get theirs."""
        try:
            logits = logits_of(_blank(module, data, 1))
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"the module can't take an image of shape {_channels_first(data)}: {reason}"
            ) from error
        wanted = (1, len(data.class_names))
        if tuple(logits.shape) != wanted:
            raise ValueError(
                f"the module gives logits of shape {tuple(logits.shape)} for one image; the data "
                f"have {wanted[1]} classes, so it must give {wanted}: use the number of classes "
                "that make_module is called with"
            )


def _blank(module: nn.Module, data: Dataset, n: int) -> Any:
    """What a module gives for black images, in eval mode; its mode and random state stay."""
    import torch

    parameter = next(module.parameters(), torch.empty(0))
    images = torch.zeros(n, *_channels_first(data), device=parameter.device)
    training = module.training
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return module(images)
    finally:
        module.train(training)


def logits_of(output: Any) -> Tensor:
    """The logits in what a module returned."""
    import torch

    found = getattr(output, "logits", output)
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if not isinstance(found, torch.Tensor):
        raise TypeError(
            f"the module returns {type(output).__name__}; it must return logits of shape (batch, "
            "classes), or an object with such logits"
        )
    return found


def _usual_layers(module: nn.Module) -> tuple[str, ...]:
    """The children, those of sequential ones each, without the last linear layer."""
    from torch import nn

    found: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        if isinstance(child, nn.Sequential | nn.ModuleList) and len(child):
            found += [(f"{name}.{inner}", part) for inner, part in child.named_children()]
        else:
            found.append((name, child))
    silent = nn.Dropout | nn.Identity
    found = [(name, part) for name, part in found if not isinstance(part, silent)]
    linear = [i for i, (_, part) in enumerate(found) if isinstance(part, nn.Linear)]
    if linear and len(found) > 1:
        del found[linear[-1] :]
    if not found:
        raise ValueError("the module has no layer before its logits: name some with layers=")
    return tuple(name for name, _ in found)


def _check_all_ran(kept: Mapping[str, Tensor], names: Sequence[str]) -> None:
    silent = [name for name in names if name not in kept]
    if silent:
        raise ValueError(
            f"the forward pass does not run {listed(map(quoted, silent))}, or they give no "
            f"tensor: choose with layers= out of {listed(kept) or 'others'}"
        )


def _channels_first(data: Dataset) -> tuple[int, int, int]:
    height, width, channels = images_of(data).shape[1:]
    return channels, height, width


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _source(thing: Any) -> str:
    """Source text of a function, class or callable object; a partial one's with its arguments."""
    if isinstance(thing, functools.partial):
        return f"{_source(thing.func)}{thing.args!r}{sorted(thing.keywords.items())!r}"
    named = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
    with suppress(OSError, TypeError):
        return inspect.getsource(named)
    methods = [part for part in vars(named).values() if inspect.isfunction(part)]
    with suppress(OSError, TypeError):  # a class of a notebook cell has none, its methods have
        if methods:
            return "\n".join(inspect.getsource(method) for method in methods)
    raise ValueError(
        f"the source of {_name_of(thing)} can't be read, so runs of it can't be told apart: give "
        'TorchClassifier a version="1" and change it with the module'
    )
