"""Heads of classifiers of transformers: which are taken, how wide, and which position they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from memowidgets.models.base import restore_modes
from memowidgets.models.lora import blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn


CLASSES = {  # classes of this package by the class of transformers that loads their models
    "AutoModelForCausalLM": "CausalLM",
    "AutoModelForSequenceClassification": "SequenceClassifier",
    "AutoModelForImageClassification": "ImageClassifier",
}
_DRAWN = "_memowidgets_drawn"
# lengths of the text that shows which positions a head reads, and of its padding
_TOKENS = 4
_PADDED = 2


def check_config(config: Any, name: str, kind: str, *, has_head: bool = False) -> None:
    """Raise for a model that can't have a head for one label of each sample.

    Parameters
    ----------
    config : transformers.PretrainedConfig
        Configuration of the model.
    name : str
        Name of the model in messages.
    kind : str
        Class of transformers that loads such classifiers.
    has_head : bool
        Whether the model has its head, whatever the configuration says.

    Raises
    ------
    ValueError
        If transformers has no such classifier, the model has an encoder and a decoder, or its head
        is for regression or for several labels at once.
    """
    import transformers

    if type(config) not in getattr(transformers, kind)._model_mapping:  # noqa: SLF001
        raise ValueError(
            f"{name} is a {config.model_type}, and {kind} loads no such model"
        )
    ours = CLASSES[kind]
    head = kind.removeprefix("AutoModel")
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"{name} has an encoder and a decoder; {ours} takes a model with only one"
        )
    task = getattr(config, "problem_type", None)
    own = has_head or any(
        head in architecture for architecture in config.architectures or ()
    )
    if task == "regression" or (task is None and own and config.num_labels == 1):
        raise ValueError(
            f"{name} has a head for regression; {ours} needs one logit for each class"
        )
    if task == "multi_label_classification":
        raise ValueError(
            f"{name} has a head for several labels at once; {ours} needs exactly one label for "
            "each sample"
        )


def check_classifier(model: Any, kind: str) -> None:
    """Raise for a model in memory that is not a classifier of this kind, as `check_config` does.

    Raises
    ------
    TypeError
        If it is not such a classifier of transformers.
    """
    base = plain(model)
    name = type(base).__name__
    config = getattr(base, "config", None)
    head = kind.removeprefix("AutoModel")
    if config is None or not any(head in cls.__name__ for cls in type(base).__mro__):
        raise TypeError(
            f"{CLASSES[kind]}.from_model needs a classifier of transformers, but {name} is not "
            f"one; load it with {kind}.from_pretrained"
        )
    check_config(config, name, kind, has_head=True)


def head_names(model: nn.Module) -> list[str]:
    """Return the names of a classifier's modules after its blocks, which make up its head."""
    stack = blocks_of(model)[0].split(".")[0]
    names = [
        name
        for name, part in model.named_children()
        if name != stack and any(True for _ in part.parameters())
    ]
    pooler = getattr(getattr(model, stack), "pooler", None)  # as in BERT
    return names if pooler is None else [f"{stack}.pooler", *names]


def note_drawn(model: nn.Module, names: Iterable[str]) -> None:
    """Note which weights of a model were drawn when it was loaded, for `draw_again`."""
    model.__dict__[_DRAWN] = frozenset(names)


def draw_again(model: nn.Module) -> None:
    """Draw those weights again from torch's generator, in the way in which loading draws them."""
    drawn = model.__dict__.get(_DRAWN, frozenset())
    if not drawn:
        return
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        # transformers' own marks
        vars(values)["_is_hf_initialized"] = name not in drawn
    for part in model.modules():
        vars(part).pop("_is_hf_initialized", None)
    cast("Any", model).initialize_weights()


def head_of(model: nn.Module) -> nn.Module:
    """Return the modules of a classifier's head, as one."""
    from torch import nn

    base = plain(model)
    return nn.ModuleList([base.get_submodule(name) for name in head_names(base)])


def plain(model: Any) -> nn.Module:
    """Return the model of transformers inside of one of peft."""
    return cast(
        "nn.Module",
        model.get_base_model() if hasattr(model, "get_base_model") else model,
    )


def own_pooling(model: nn.Module) -> str:
    """Return which positions a classifier's head reads: ``"first"``, ``"last"`` or ``"mean"``.

    That is known by the gradient of the logits of a text with padding. A head that reads none of
    these is read at the mean. The model's mode and all random states stay unchanged.
    """
    import torch

    any_model = cast("Any", model)
    embedding = any_model.get_input_embeddings()
    padding = padding_of(model)
    text = tokens_of(model, padding)[-_TOKENS:]
    device = next(model.parameters()).device
    ids = torch.tensor([[*text, *[padding] * _PADDED]], device=device)
    mask = torch.tensor([[1] * _TOKENS + [0] * _PADDED], device=device)
    hook = embedding.register_forward_hook(lambda *given: given[-1].requires_grad_())
    try:
        with restore_modes(model), torch.enable_grad():
            model.eval()
            answer = any_model(
                input_ids=ids,
                attention_mask=mask,
                output_hidden_states=True,
            )
            touched = positions_read(answer)
    finally:
        hook.remove()
    return "first" if touched == [0] else "last" if touched == [_TOKENS - 1] else "mean"


def tokens_of(model: nn.Module, padding: int) -> list[int]:
    """Return the tokens that a model reads, without the one for padding.

    What is in the place of its embedding need not say how many it has, as a layer of adapters.
    """
    n_tokens = int(cast("Any", plain(model)).config.get_text_config().vocab_size)
    return [token for token in range(n_tokens) if token != padding]


def positions_read(answer: Any) -> list[int]:
    """Return the positions of the last hidden state that change the logits of one sample."""
    import torch

    logits = answer.logits.float()
    hidden = answer.hidden_states[-1]
    weights = torch.arange(1.0, logits.shape[-1] + 1, device=logits.device)
    gradients = torch.autograd.grad((logits * weights).sum(), hidden, allow_unused=True)
    gradient = cast("Tensor | None", gradients[0])
    if gradient is None:
        return []
    return [int(i) for i in gradient[0].abs().sum(dim=-1).nonzero()[:, 0]]


def padding_of(model: nn.Module) -> int:
    """Return the padding token by which a classifier finds the last token of a text."""
    padding = cast("Any", plain(model)).config.get_text_config().pad_token_id
    return -1 if padding is None else int(padding)
