"""Who trained a target, and with which settings: what is known of a training that others run."""

from __future__ import annotations

import enum
import inspect
import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import has_form
from memowidgets.extras import installed

if TYPE_CHECKING:
    from types import FrameType

    from torch import nn

Plain = str | int | float | bool | None
_MOST = 200  # characters of a setting
_FILE = "(a file, which is not named here)"
# a place on a machine, but not a name of a hub such as "owner/model"
_IS_PLACE = re.compile(r"[/\\].*[/\\]|^[~/\\.]|^\w:[/\\]")
# arguments of a Trainer that are stated even where they are its defaults
_ALWAYS = (
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "lr_scheduler_type",
    "warmup_steps",
    "max_grad_norm",
    "label_smoothing_factor",
    "bf16",
    "fp16",
    "seed",
)
# beginnings of arguments that change nothing of what a model learns, or name files and accounts
_BESIDE = (
    "accelerator_config",
    "dataloader_num",
    "dataloader_pin",
    "debug",
    "disable_tqdm",
    "do_",
    "eval_",
    "hub_",
    "include_",
    "local_rank",
    "log_",
    "logging_",
    "output_dir",
    "per_device_eval",
    "project",
    "push_to_hub",
    "report_to",
    "resume_from",
    "run_name",
    "save_",
    "trackio_",
)
# what the optimizer itself says, which may be another one than the arguments describe
_OF_OPTIMIZER = ("learning_rate", "optim", "optim_args", "weight_decay")
_OF_SCHEDULE = ("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps")
_UNUSED = "unused"  # of an argument, which is left out then
_LIBRARIES = ("transformers", "accelerate", "peft", "trl")


@dataclass(frozen=True)
class Origin:
    """Who trained a target from a step on, with which settings.

    Attributes
    ----------
    loop : str
        What trained it, such as "transformers' Trainer".
    recorder : str
        What of this package recorded it.
    model : str
        Class of the model that was trained; empty where nobody knows.
    settings : mapping of str to plain values
        Settings of the training; empty where nobody knows.
    versions : mapping of str to str
        Versions of the libraries that trained it.
    step : int
        First step of this stretch of the training.
    """

    loop: str
    recorder: str = ""
    model: str = ""
    settings: Mapping[str, Any] | None = None
    versions: Mapping[str, str] | None = None
    step: int = 0

    @property
    def sentence(self) -> str:
        """Who trained the target, and what recorded that."""
        if not self.recorder:
            return f"{self.loop} trained it."
        known = "" if self.settings else " The settings of that training are not known."
        return f"{self.loop} trained it, and {self.recorder} recorded that.{known}"


FORM = {
    "loop": str,
    "recorder": str,
    "model": str,
    "settings": dict | None,
    "versions": dict | None,
    "step": lambda value: has_form(value, int) and value >= 0,
}


def joined(before: Iterable[Origin], origin: Origin | None) -> list[Origin]:
    """Return the stretches of a training, with one that begins at its step.

    A training that goes on as before begins no stretch of its own.
    """
    if origin is None:
        return list(before)
    earlier = [one for one in before if one.step < origin.step]
    if earlier and replace(earlier[-1], step=origin.step) == origin:
        return earlier
    return [*earlier, origin]


def plain_setting(value: Any) -> Plain:
    """Return a setting as JSON has it, without the place of a file.

    What is neither a number nor a text is named by its class.

    Examples
    --------
    >>> plain_setting({"num_cycles": 2}), plain_setting("/srv/deepspeed.json")
    ('num_cycles=2', '(a file, which is not named here)')
    >>> plain_setting(lambda step: 1.0), plain_setting(float("inf"))
    ('function <lambda>', 'inf')
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _FILE if _IS_PLACE.search(value) else value[:_MOST]
    return _in_words(value)[:_MOST]


def _in_words(value: Any) -> str:
    """Return what a setting is that is neither a number nor a text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={plain_setting(of)}" for name, of in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(str(plain_setting(one)) for one in value)
    if inspect.isroutine(value):
        return f"function {value.__name__}"
    return (value if isinstance(value, type) else type(value)).__name__


# transformers


def calling_trainer(args: Any) -> Any:
    """Return the Trainer with these arguments that calls its callbacks now, or None.

    It gives callbacks neither itself nor, before its first evaluation, what it evaluates on. No
    argument leads there, so the calls that are running are asked.
    """
    from transformers import Trainer

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - no argument leads there
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Trainer) and owner.args is args:
            return owner
        frame = frame.f_back
    return None


def origin_of_trainer(args: Any, model: nn.Module, optimizer: Any, step: int) -> Origin:
    """Return what a callback knows of the Trainer that calls it.

    Parameters
    ----------
    args : TrainingArguments
        Its arguments.
    model : Module
        The model in training, without wrappers of several processes.
    optimizer : torch optimizer or None
        What trains it.
    step : int
        Steps so far.
    """
    from transformers import Trainer

    from memowidgets.models.heads import plain

    trainer = calling_trainer(args)
    kind = Trainer if trainer is None else type(trainer)
    loop = "transformers' Trainer"
    if kind is not Trainer:
        loop = f"{kind.__name__}, a Trainer of transformers,"
    module = plain(model)
    settings = {
        **_arguments(args),
        **_of_objects(trainer, optimizer),
        **_of_model(model, module),
    }
    return Origin(
        loop,
        "MemorizationCallback",
        type(module).__name__,
        {name: value for name, value in settings.items() if value != _UNUSED},
        installed(_LIBRARIES),
        step,
    )


def _of_objects(trainer: Any, optimizer: Any) -> dict[str, Plain]:
    """Return what a Trainer uses in place of what its arguments describe."""
    from transformers import Trainer

    found: dict[str, Plain] = {}
    if optimizer is not None:
        found |= dict.fromkeys(_OF_OPTIMIZER, _UNUSED)
        found |= _of_optimizer(optimizer)
    if not getattr(trainer, "_created_lr_scheduler", True):
        found |= dict.fromkeys(_OF_SCHEDULE, _UNUSED)
        found["schedule"] = plain_setting(trainer.lr_scheduler)
    own_loss = getattr(trainer, "compute_loss_func", None)
    if own_loss is not None:
        found["loss"] = plain_setting(own_loss)
    elif trainer is not None and type(trainer).compute_loss is not Trainer.compute_loss:
        found["loss"] = f"{type(trainer).__name__}.compute_loss"
    return found


def _of_model(model: nn.Module, module: nn.Module) -> dict[str, Plain]:
    """Return what a model was before, and the adapters in it."""
    found: dict[str, Plain] = {}
    name = str(getattr(getattr(module, "config", None), "name_or_path", ""))
    if name and not _IS_PLACE.search(name):
        found["pretrained model"] = plain_setting(name)
    for name, config in getattr(model, "peft_config", {}).items():
        found[f"adapter {name}"] = _adapter(config)
    return found


def _arguments(args: Any) -> dict[str, Plain]:
    """Return the arguments of a Trainer that say how it trains, and differ from its defaults."""
    found = {}
    for field in fields(args) if is_dataclass(args) else ():
        if field.name.startswith(_BESIDE):
            continue
        value = getattr(args, field.name, None)
        differs = value != field.default and bool(value or field.default)
        if differs or field.name in (*_ALWAYS, *_OF_OPTIMIZER):
            found[field.name] = plain_setting(value)
    if args.world_size > 1:
        found["processes"] = args.world_size
    if found.get("max_steps") == -1:
        del found["max_steps"]
    else:
        found.pop("num_train_epochs", None)
    return found


def _adapter(config: Any) -> str:
    """Return what a peft adapter is."""
    names = ("r", "lora_alpha", "lora_dropout", "use_dora", "use_rslora")
    told = {name: getattr(config, name, None) for name in names}
    kind = plain_setting(getattr(config, "peft_type", type(config).__name__))
    return f"{kind}, {plain_setting({k: v for k, v in told.items() if v})}"


def _of_optimizer(optimizer: Any) -> dict[str, Plain]:
    """Return class, learning rate and weight decay of an optimizer, whoever made it."""
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's and Lightning's
    groups = inner.param_groups
    rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
    decays = [float(group.get("weight_decay", 0.0)) for group in groups]
    return {
        "optimizer": type(inner).__name__,
        "learning_rate": _one_or_all(rates),
        "weight_decay": _one_or_all(decays),
    }


def _one_or_all(values: list[float]) -> Plain:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else plain_setting(distinct)


# loops of other owners


def origin_of_lightning(trainer: Any, module: Any, step: int) -> Origin:
    """Return what Lightning's Trainer tells a callback of itself."""
    settings: dict[str, Plain] = {}
    names = (
        "max_epochs",
        "max_steps",
        "accumulate_grad_batches",
        "gradient_clip_val",
        "precision",
    )
    for name in names:
        settings[name] = plain_setting(getattr(trainer, name, None))
    batch_size = getattr(trainer.train_dataloader, "batch_size", None)
    settings["batch_size"] = plain_setting(batch_size)
    for optimizer in trainer.optimizers[:1]:
        settings |= _of_optimizer(optimizer)
    for name, value in dict(module.hparams).items():
        settings[f"hparams.{name}"] = plain_setting(value)
    return Origin(
        "Lightning's Trainer",
        "LightningCallback",
        type(module).__name__,
        {name: value for name, value in settings.items() if value is not None},
        installed(("lightning", "pytorch-lightning")),
        step,
    )


def origin_of_loop(module: nn.Module) -> Origin:
    """Return what is known of a loop that calls `mw.watch`: the class of its module."""
    return Origin("A loop of its owner", "mw.watch", type(module).__name__)


def origin_of_script(module: nn.Module) -> Origin:
    """Return what is known of a script that is called on rows: the class of its module."""
    return Origin("A script of its owner", "Audit.from_script", type(module).__name__)
