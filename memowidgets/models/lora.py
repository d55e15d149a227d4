"""LoRA: small trained matrices on a frozen language model."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from memowidgets.checks import real_number, several, whole_number
from memowidgets.network import no_kernel_fetched
from memowidgets.vocabulary import listed

if TYPE_CHECKING:
    from torch import nn

_WITHOUT_TOKENS = ("PREFIX_TUNING", "CARTRIDGE")


@dataclass(frozen=True)
class LoRA:
    """Low-rank adapters on the linear projections of a transformer (Hu et al., 2022).

    Parameters
    ----------
    r : int
        Rank of the adapters (paper: 8).
    alpha : int
        Scale of the adapters, which is ``alpha / r`` (paper: 16).
    dropout : float
        Dropout on the adapters' input, from 0 to below 1.
    targets : "all-linear" or sequence of str
        Projections with adapters: all of every block, or those whose name ends with one of these,
        such as ``"q_proj"``.
    layers : "all" or "top:k"
        Blocks with adapters: all, or the k nearest to the output.

    Raises
    ------
    ValueError
        If a number is out of range or `layers` is invalid.

    Examples
    --------
    >>> LoRA(layers="top:4")
    LoRA(r=8, alpha=16, dropout=0.0, targets='all-linear', layers='top:4')
    """

    r: int = 8
    alpha: int = 16
    dropout: float = 0.0
    targets: str | Sequence[str] = "all-linear"
    layers: str = "all"

    def __post_init__(self) -> None:
        whole_number("r", self.r, 1)
        if not real_number("alpha", self.alpha, finite=True) > 0:
            raise ValueError(f"alpha must be positive, not {self.alpha}")
        if not 0 <= real_number("dropout", self.dropout) < 1:
            raise ValueError(
                f"dropout must be a share from 0 to below 1, not {self.dropout}"
            )
        if self.targets != "all-linear":
            several("targets", self.targets)
        if self.layers != "all" and not re.fullmatch(r"top:[1-9]\d*", str(self.layers)):
            raise ValueError(f'unknown layers {self.layers!r}; valid: "all" or "top:8"')

    def first_trained(self, n_blocks: int) -> int:
        """Return the index of the lowest block that has adapters.

        Raises
        ------
        ValueError
            If the model has fewer blocks than that.
        """
        if self.layers == "all":
            return 0
        top = int(self.layers.removeprefix("top:"))
        if top > n_blocks:
            raise ValueError(
                f"layers={self.layers!r}, but the model has {n_blocks} blocks"
            )
        return n_blocks - top

    def wrap(self, model: nn.Module, head: Sequence[str] | None = None) -> nn.Module:
        """Return the frozen model with adapters, initialised from torch's generator.

        The modules of a classification head are trained and stored with the adapters.
        """
        with no_kernel_fetched():
            from peft import LoraConfig, get_peft_model

        names = self._target_names(model)
        config = LoraConfig(
            r=self.r,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=names,
            fan_in_fan_out=_is_transposed(model.get_submodule(names[0])),
            task_type="CAUSAL_LM" if head is None else "SEQ_CLS",
            modules_to_save=None if head is None else list(head),
        )
        with quiet_peft():
            return cast("nn.Module", get_peft_model(cast("Any", model), config))

    def _target_names(self, model: nn.Module) -> list[str]:
        prefix, blocks = blocks_of(model)
        first = self.first_trained(len(blocks))
        names = [
            f"{prefix}.{i}.{name}"
            for i in range(first, len(blocks))
            for name, module in blocks[i].named_modules()
            if _is_linear(module)
            and (
                self.targets == "all-linear" or name.rsplit(".", 1)[-1] in self.targets
            )
        ]
        if not names:
            linear = sorted(
                {
                    n.rsplit(".", 1)[-1]
                    for n, m in blocks[0].named_modules()
                    if _is_linear(m)
                }
            )
            raise ValueError(
                f"no projection ends with {self.targets}; valid are {listed(linear)}"
            )
        return names


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Hide a warning that users cannot act on: peft 0.21 uses an old name of transformers 5."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


def check_adapters(model: Any) -> None:
    """Raise for a peft model that cannot be trained or read as the audit does.

    Raises
    ------
    ValueError
        If its adapters are merged into its weights, or it puts tokens of its own before those of
        each text, as in prompt tuning. Prefix tuning adds keys and values, not tokens.
    """
    merged = [
        key for key, part in model.named_modules() if vars(part).get("merged_adapters")
    ]
    if merged:
        raise ValueError(
            f"the adapter of {merged[0]} is merged into its weight, where it is not trained; call "
            "model.unmerge_adapter(), or load base and adapter again"
        )
    config = getattr(model, "active_peft_config", None)
    if config is None or not config.is_prompt_learning:
        return
    kind = config.peft_type.value
    if kind not in _WITHOUT_TOKENS:
        raise ValueError(
            f"the adapter of the model is {kind}, which puts {config.num_virtual_tokens} tokens of "
            "its own before each text, and an audit reads each text at the places of its own "
            "tokens; train LoRA or prefix tuning instead"
        )


def whole_adapter(model: Any) -> str | None:
    """Return the name of the adapter that has all trained weights of a peft model.

    None if there is none: several adapters are trained, or weights beside them. Names of its
    weights have its own among their parts.
    """
    name = getattr(model, "active_adapter", None)
    if not hasattr(model, "get_base_model") or not isinstance(name, str):
        return None
    trained = [key for key, p in model.named_parameters() if p.requires_grad]
    return name if all(name in key.split(".") for key in trained) else None


def adapter_weights(model: object, name: str) -> dict[str, Any]:
    """Return the trained weights of a peft model, named as in peft, without asking the hub.

    peft itself would ask the hub for the base model's configuration, to find out whether the
    embeddings have other rows than the base model's; they are frozen here.
    """
    from peft import get_peft_model_state_dict

    with quiet_peft():
        return dict(
            get_peft_model_state_dict(
                model, adapter_name=name, save_embedding_layers=False
            )
        )


def adapter_config(model: Any, name: str) -> dict[str, Any]:
    """Return the configuration of an adapter as peft saves it, by the name of its file."""
    described = {**model.peft_config[name].to_dict(), "inference_mode": True}
    plain = json.dumps(
        described, default=lambda v: sorted(v) if isinstance(v, set) else str(v)
    )
    return {"adapter_config.json": json.loads(plain)}


def blocks_of(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """Return the name and list of a transformer's blocks, its longest list of modules.

    Raises
    ------
    ValueError
        If the model has none.
    """
    from torch import nn

    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    if not lists:
        raise ValueError(f"{type(model).__name__} has no list of blocks to adapt")
    return max(lists, key=lambda entry: len(entry[1]))


def _is_linear(module: nn.Module) -> bool:
    from torch import nn

    return isinstance(module, nn.Linear) or _is_transposed(module)


def _is_transposed(module: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, Conv1D)
