"""How a job travels to a worker process: by cloudpickle, models of transformers with it.

A model that is only unpickled lacks what transformers keeps for it outside of the object, and a
model that was asked for hidden states before has hooks that share a variable with their module.
"""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import sys
from collections.abc import Callable, Iterable
from types import CellType, CodeType, FunctionType
from typing import Any

import cloudpickle

from memowidgets.network import no_kernel_fetched
from memowidgets.vocabulary import first_line

__all__ = ["pack", "unpack"]


def unpack(content: Any, buffers: Iterable[Any] | None = None) -> Any:
    """Return what `pack` made bytes of, with the memory of its arrays."""
    with no_kernel_fetched():  # of what it imports
        return cloudpickle.loads(content, buffers=buffers)


def pack(thing: object, buffers: Callable[[Any], Any] | None = None) -> bytes:
    """Return a thing as bytes for `unpack` in another process.

    Parameters
    ----------
    thing : object
        The thing.
    buffers : callable, optional
        Function that takes each array's memory, which is then not in the bytes.

    Raises
    ------
    TypeError
        If a part of it cannot travel, such as an open file or a lock.
    """
    with io.BytesIO() as file:
        pickler = _Pickler(file, protocol=5, buffer_callback=buffers)
        try:
            pickler.dump(thing)
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
            raise TypeError(
                "a part of the model or of the data cannot be sent to a worker process "
                f"({first_line(error)}). Take it off, such as a hook, a lock or an open file, or "
                "train in this process with executor=ThreadPoolExecutor(1)"
            ) from error
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler of cloudpickle that knows what transformers keeps of a model."""

    def reducer_override(self, obj: object) -> Any:
        """Return how an object is made again; cloudpickle decides on all others."""
        loaded = sys.modules.get("transformers.modeling_utils")
        if loaded is not None and isinstance(obj, loaded.PreTrainedModel):
            state = obj.__reduce_ex__(2)[2]
            return _made_model, (type(obj), copy.copy(obj.config)), state
        if isinstance(obj, FunctionType) and _is_inner(obj):
            parts = (obj.__code__, obj.__module__, obj.__closure__)
            defaults = {
                "__defaults__": obj.__defaults__,
                "__kwdefaults__": obj.__kwdefaults__,
            }
            return _made_function, parts, (vars(obj), defaults)
        return super().reducer_override(obj)


def _is_inner(function: FunctionType) -> bool:
    """Return whether transformers defines a function within another one, as its hooks are.

    cloudpickle would send it with its own copy of the module's variables.
    """
    inner = "<locals>" in function.__qualname__
    return inner and function.__module__.partition(".")[0] == "transformers"


def _made_model(kind: type, config: Any) -> Any:
    """Return a model without parts, which its class knows as one that was made in this process."""
    from transformers import PreTrainedModel

    model: Any = object.__new__(kind)
    # not the class's own __init__, which makes parts and may take more than a configuration
    PreTrainedModel.__init__(model, config)
    return model


def _made_function(
    code: CodeType, module: str, closure: tuple[CellType, ...] | None
) -> FunctionType:
    return FunctionType(code, vars(importlib.import_module(module)), closure=closure)
