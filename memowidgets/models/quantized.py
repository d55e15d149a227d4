"""Frozen weights that bitsandbytes holds in 4 bits: which are taken, and how they travel.

Such a weight is packed: a parameter of bytes, with the state that makes values of them. It is never
cast, and never copied as a plain parameter, which would lose its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.extras import pip_install
from memowidgets.network import no_kernel_fetched

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

QUANTIZATIONS = ("nf4",)
_OLDEST = "0.46.1"
_REPACKS = "support_avx512bf16_for_cpu"  # of a layer that its eval mode may repack
_WITHOUT = "load the model without quantization_config"
_IN_4_BITS = (
    "load it with BitsAndBytesConfig(load_in_4bit=True), or without quantization_config"
)


def check_quantization(name: str | None) -> None:
    """Raise for an unknown quantisation, or if the library that does it is missing or too old.

    Raises
    ------
    ValueError
        If the name is not one of `QUANTIZATIONS`.
    ImportError
        With the command that installs the library.
    """
    if name is None:
        return
    if name not in QUANTIZATIONS:
        valid = " or ".join(f'"{one}"' for one in QUANTIZATIONS)
        raise ValueError(f"unknown quantization {name!r}; valid: {valid}, or None")
    check_library()


def check_library() -> None:
    """Raise if the library that holds weights in 4 bits is missing or too old.

    Raises
    ------
    ImportError
        With the command that installs it.
    """
    from packaging.version import Version

    with no_kernel_fetched():
        import bitsandbytes
    found = str(bitsandbytes.__version__)
    if Version(found) < Version(_OLDEST):
        raise ImportError(
            f"bitsandbytes {found} is too old, {_OLDEST} or later is needed: "
            f"{pip_install('quantized')}"
        )


def is_packed(parameter: Tensor) -> bool:
    """Return whether a parameter has its values in 4 bits."""
    return vars(parameter).get("quant_state") is not None


def packed_layers(module: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """Return each packed parameter of a module, with the part that has it and its name there."""
    for part in module.modules():
        for name, own in part._parameters.items():  # noqa: SLF001 - the registered ones
            if own is not None and is_packed(own):
                yield part, name, own


def check_method(name: str, stated: Any) -> None:
    """Raise for a quantisation other than that of bitsandbytes in 4 bits.

    Parameters
    ----------
    name : str
        Name of the model, for messages.
    stated : dict, object with such a method, or None
        What the configuration of the model says of it. None if nothing is quantised.

    Raises
    ------
    ValueError
        With what to load instead.
    ImportError
        If the library for weights in 4 bits is missing or too old.
    """
    if not stated:
        return
    told = stated if isinstance(stated, Mapping) else stated.to_dict()
    method = told.get("quant_method", "a method without a name")
    method = str(getattr(method, "value", method))
    if method != "bitsandbytes":
        raise _quantized_by(method, name)
    if not (told.get("load_in_4bit") or told.get("_load_in_4bit")):
        raise _in_8_bits(name)
    check_library()


def check_packed(model: Any) -> None:
    """Raise for a model in memory with quantised weights that are not in 4 bits of bitsandbytes.

    Raises
    ------
    ValueError
        With what to load instead.
    """
    name = type(model).__name__
    check_method(name, getattr(model.config, "quantization_config", None))
    for parameter in model.parameters():
        if is_packed(parameter):
            continue
        kind = type(parameter.data)
        if kind.__module__.partition(".")[0] != "torch":
            raise _quantized_by(kind.__module__.partition(".")[0], name)
        if not parameter.is_floating_point():
            raise _in_8_bits(name)


def no_adapters(name: str) -> ValueError:
    """Return the error for a quantised model on which nothing can be trained."""
    return ValueError(
        f"the weights of {name} are quantised, so only adapters on them can be trained, and it "
        "has none. Pass lora=mw.models.LoRA(), or a model with adapters of peft"
    )


def check_full(model: Any) -> None:
    """Raise for any quantised model.

    Raises
    ------
    ValueError
        If its weights are quantised.
    """
    stated = getattr(model.config, "quantization_config", None)
    if stated or any(map(is_packed, model.parameters())):
        raise ValueError(
            f"the weights of {type(model).__name__} are quantised, and this kind of model is "
            f"trained in full; {_WITHOUT}"
        )


def check_head(model: Any, head: nn.Module) -> None:
    """Raise for a classification head in 4 bits, which could not be trained.

    Raises
    ------
    ValueError
        With the names of its layers.
    """
    layers = {id(part) for part, *_ in packed_layers(head)}
    names = [name for name, part in model.named_modules() if id(part) in layers]
    if names:
        raise ValueError(
            f"the classification head of {type(model).__name__} is quantised too, so it cannot be "
            f"trained; load the model with BitsAndBytesConfig(…, llm_int8_skip_modules={names})"
        )


def _quantized_by(method: str, name: str) -> ValueError:
    return ValueError(
        f"the weights of {name} are quantised by {method}, and an audit takes only those that "
        f"bitsandbytes holds in 4 bits; {_IN_4_BITS}"
    )


def _in_8_bits(name: str) -> ValueError:
    return ValueError(
        f"the weights of {name} are quantised in 8 bits. There, what is rounded in a text depends "
        f"on the other texts of its batch, and so would its scores; {_IN_4_BITS}"
    )


# how they are loaded, travel and are placed


def quantization_config(skipped: list[str] | None) -> Any:
    """Return the settings by which transformers loads weights in 4 bits, as QLoRA does.

    Parameters
    ----------
    skipped : list of str or None
        Modules that stay as they are. None: those that transformers leaves out.
    """
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        llm_int8_skip_modules=skipped,
    )


def compute_in(module: nn.Module, dtype: torch.dtype) -> None:
    """Let layers in 4 bits compute in a type."""
    for part, *_ in packed_layers(module):
        vars(part)["compute_dtype"] = dtype


def state_arrays(packed: Any) -> dict[str, NDArray[Any]]:
    """Return the state of a packed parameter as arrays, in the form of a file of weights."""
    stated = packed.quant_state.as_dict(packed=True)
    return {name: values.detach().cpu().numpy() for name, values in stated.items()}


def put_together(
    values: Tensor, arrays: Mapping[str, NDArray[Any]], part: nn.Module
) -> nn.Parameter:
    """Return a packed parameter of a part, made of its bytes and of `state_arrays`."""
    import torch
    from bitsandbytes.nn.modules import Params4bit

    stated = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    made: nn.Parameter = Params4bit.from_prequantized(
        values, stated, device=values.device, module=cast("Any", part)
    )
    return made


def forget_states(module: nn.Module) -> None:
    """Take off the states that layers hold beside their parameters."""
    for part in module.modules():
        if "quant_state" in vars(part):
            vars(part)["quant_state"] = None


def states_of(module: nn.Module) -> list[Any]:
    """Return the states of all packed parameters."""
    return [packed.quant_state for *_, packed in packed_layers(module)]


# what eval mode does to them


@contextmanager
def packing_kept(module: nn.Module) -> Iterator[None]:
    """Within this context, a pass in eval mode does not repack weights in 4 bits.

    On a CPU with AVX512-BF16, bitsandbytes repacks them in place for its products without
    gradients, and leaves them so in training, where no gradient passes through them any more.
    """
    parts = [part for part in module.modules() if vars(part).get(_REPACKS)]
    for part in parts:
        vars(part)[_REPACKS] = False
    try:
        yield
    finally:
        for part in parts:
            vars(part)[_REPACKS] = True


def warn_of_repacked(module: nn.Module) -> None:
    """Warn if weights were repacked by an evaluation that is not the audit's.

    Warns
    -----
    UserWarning
        With the line that prevents it.
    """
    states = states_of(module)
    n = sum(bool(vars(state).get("packing_format_for_cpu")) for state in states)
    if n:
        warn_user(
            f"bitsandbytes has repacked {n} of {len(states)} weights in 4 bits in an evaluation on "
            "this CPU, and gives adapters no gradient from there on. Set "
            f"{_REPACKS} = False on each Linear4bit of the model before the first evaluation"
        )
