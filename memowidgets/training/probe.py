"""Probe of a user's functions: what they do, as numbers that another process can compare.

Text and bytecode do not say what a function does, because it may read any value of its process.
So a run keeps what its module factory, optimizer and schedule do on seeded input, and whoever goes
on with the run makes the same probe again.
"""

from __future__ import annotations

import copy
import itertools
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import restore_modes
from memowidgets.models.device import apart
from memowidgets.store import StoreError
from memowidgets.training.config import RandomStates, Settings
from memowidgets.vocabulary import first_line, quoted

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memowidgets.training.design import Design
    from memowidgets.training.learner import Recipe

SAMPLES = 8
"""Number of samples that the module is asked about."""

PROBE = {"torch": str, "machine": str, "device": str, "numbers": {str: [float]}}
"""Form of a probe in a manifest."""

_WEIGHTS = "module weights"
_FIRST = "module first values"
_SEED = 20251123
# instruction sets and numbers of threads agree better, 1 % of a rate does not
_BOUND = 1e-5
_ROUNDED = 3e-2  # what a module answers on another device
_NONE = [-1.0, 0.0]  # in the place of a gradient's numbers: there is no gradient
_MOST = 20_000_000  # trained values of which the optimizer is asked about each
_CUT = 8
_STEPS = 2
_PARTS = 256  # of a schedule
_BLOCK = 65_537  # random numbers that fill all weights

Probe = dict[str, Any]
Numbers = dict[str, list[float]]


@apart()
def make_probe(
    model: Model,
    data: Dataset,
    rows: NDArray[np.int64],
    settings: Settings,
    n_members: int,
) -> Probe:
    """Return what the user's functions in a recipe do; empty if it has none.

    Parameters
    ----------
    model : Model
        Model whose module may be a user's.
    data : Dataset
        All samples.
    rows : array of shape (n,), int64
        Positions of samples of which the first `SAMPLES` are asked about.
    settings : Settings
        Settings whose optimizer and schedule may be a user's.
    n_members : int
        Number of members of the target, which determines the length of the schedule.

    Returns
    -------
    dict
        Where it was made, and lists of numbers by name. It contains no value of a sample, and of
        each tensor of a module its size and its product with a seeded one.

    Raises
    ------
    ValueError
        If a function gives something else each time that it is called, or cannot be called.
    """
    import torch

    version = torch.__version__.partition("+")[0]
    numbers = Numbers()
    probe = {
        "torch": version,
        "machine": platform.machine(),
        "device": "cpu",
        "numbers": numbers,
    }
    if model.has_user_code(data):
        asked = data.take(rows[:SAMPLES])
        probe["device"], module_numbers = _module(model, asked)
        numbers |= module_numbers
        if model.draws_weights:
            again = {**probe, "numbers": _module(model, asked)[1]}
            if difference := first_apart(probe, again):
                raise ValueError(
                    f"two modules that the model makes under one seed differ: {difference}. Draw "
                    "random numbers from torch's or NumPy's global generator, which are seeded"
                )
    if callable(settings.optimizer):
        weights = model.skeleton(data).parameters()
        trained = [tuple(p.shape) for p in weights if p.requires_grad]
        numbers |= _optimizer(settings.optimizer, trained, bool(settings.version))
    if callable(settings.schedule):
        numbers["schedule factors"] = _schedule(settings, n_members)
    has_functions = numbers or callable(settings.optimizer)
    return probe if has_functions else {}


def first_apart(stored: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return in which part two probes differ, and by what share; empty if they do the same.

    What one of them was not asked about is not compared. First values, and what a module does in
    training, are compared where torch, machine and device are the same.
    """
    there = stored["numbers"]
    now = here["numbers"]
    is_near = stored["device"] == here["device"]
    is_same = is_near and all(stored[key] == here[key] for key in ("torch", "machine"))
    roles = {_role(name) for name in there} & {_role(name) for name in now}
    for name in {**there, **now}:
        is_local = name.startswith((_FIRST, "training"))
        if _role(name) not in roles or (is_local and not is_same):
            continue
        one, other = (np.array(numbers.get(name, [])) for numbers in (there, now))
        if one.shape != other.shape:
            return f"in the {name} are {one.size} numbers there and {other.size} here"
        bound = _ROUNDED if name.startswith("module") and not is_near else _BOUND
        size = np.abs([*one, *other]).max(initial=0.0)
        differ = np.abs(one - other).max(initial=0.0)
        is_exact = name.startswith(_WEIGHTS)
        if not differ <= (0.0 if is_exact else bound * (size + _least(name, there))):
            return f"in the {name} the numbers differ by {differ / size:.2%}"
    return ""


def _role(name: str) -> str:
    return name.partition(" ")[0]


def _least(name: str, numbers: Numbers) -> float:
    """Return what a gradient or a buffer that is 0 but for rounding is compared with."""
    group = name.partition("'")[0]
    alike = (
        v for key, v in numbers.items() if " of '" in name and key.startswith(group)
    )
    return 1e-3 * max(map(abs, itertools.chain([0.0], *alike)))


def check_functions(stored: Mapping[str, Any], recipe: Recipe, design: Design) -> None:
    """Raise if the functions of a recipe do something else than where its run was begun.

    Parameters
    ----------
    stored : dict
        Probe in the run's manifest.
    recipe : Recipe
        Model, data and settings here.
    design : Design
        Split of the run.

    Raises
    ------
    StoreError
        With the difference.
    """
    model = recipe.model
    settings = recipe.settings
    here = make_probe(model, recipe.data, design.pool, settings, len(design.members))
    if difference := first_apart(stored, here):
        raise StoreError(
            "a function does something else here than where the run was begun: "
            f"{difference}. Use the same code, or choose another path"
        )


# the module


def _module(model: Model, data: Dataset) -> tuple[str, Numbers]:
    """Return where a freshly made module runs, and what it is, answers, and does in training.

    What it answers are its logits and the layers that are captured.

    In training mode it runs in float64: in float32 a value near 0 would be on the other side of a
    ReLU with other instructions, which changes gradients by up to a hundredth. A module that cannot
    run in float64, or be trained on so few samples, is not asked what it does in training.
    """
    import torch

    with RandomStates(_SEED).active(), ExitStack() as stack:
        module = model.build(data)
        if not all(weights.requires_grad for weights in module.parameters()):
            module = copy.deepcopy(module)  # the frozen part may be every module's
        module = module.float()
        numbers: Numbers = {}
        for i, (name, p) in enumerate(module.named_parameters()):
            numbers[f"{_WEIGHTS} {quoted(name)}"] = [
                *map(float, p.shape),
                float(p.requires_grad),
            ]
            numbers[f"{_FIRST} {quoted(name)}"] = _size_and_place(p, i)
        device = next(module.parameters(), torch.empty(0)).device
        labels = torch.arange(len(data), device=device) % len(data.class_names)
        inputs = model.feeder(data, device)(np.arange(len(data)))
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if model.draws_weights:
            first = {name: value.clone() for name, value in module.state_dict().items()}
            # a part may be another module's: it is refused as it was
            stack.callback(lambda: module.float().load_state_dict(first))
            _fill(module)
        with model.capture_layers(module) as layers:
            answers = _answers(*_logits_and_losses(model, module, inputs, labels))
        if not np.isfinite(answers).all():  # as of weights whose logarithm it takes
            return device.type, numbers
        numbers["module logits"] = answers.ravel().tolist()
        # a representation may become another one while logits and gradients stay
        for i, name in enumerate(model.layer_names(module)):
            numbers[f"module layer {quoted(name)}"] = _size_and_place(layers[name], i)
        with suppress(RuntimeError, ValueError, TypeError):
            trained = _training_pass(model, module.double(), _cast(inputs), labels)
            if np.isfinite(trained["training logits"]).all():
                numbers |= trained
    return device.type, numbers


def _logits_and_losses(
    model: Model,
    module: nn.Module,
    inputs: Any,
    labels: Tensor,
    *,
    training: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return logits and losses of all samples; random states and modes stay as they are."""
    import torch

    with (
        restore_modes(module),
        torch.set_grad_enabled(training),
        RandomStates(_SEED, labels.device).active(),
    ):
        return model.outputs(module.train(training), inputs, labels)


def _answers(logits: Tensor, losses: Tensor) -> NDArray[np.float64]:
    """Return logits and losses as one array, (n, classes + 1)."""
    import torch

    answers = torch.cat([logits, losses[:, None]], dim=1).detach()
    return np.asarray(answers.float().cpu().numpy(), np.float64)


def _training_pass(
    model: Model, module: nn.Module, inputs: Any, labels: Tensor
) -> dict[str, list[float]]:
    """Return logits in training mode, gradients of a sum of them, and the buffers afterwards.

    The weights of the sum are seeded. It is of logits, because gradients of losses vanish where the
    filled weights make the module sure of itself.
    """
    import torch

    logits, losses = _logits_and_losses(model, module, inputs, labels, training=True)
    # an option that a question lacks is -inf
    shown = torch.where(logits.isfinite(), logits, 0.0)
    total = (shown * torch.from_numpy(_numbers(shown.shape, 0)).to(shown.device)).sum()
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    numbers = {"training logits": _answers(logits, losses).ravel().tolist()}
    for i, (name, p) in enumerate(module.named_parameters()):
        own = _NONE if p.grad is None else _size_and_place(p.grad, i)
        numbers[f"training gradient of {quoted(name)}"] = own
    for i, (name, buffer) in enumerate(module.named_buffers()):
        numbers[f"training buffer of {quoted(name)}"] = _size_and_place(buffer, i)
    return numbers


def _cast(inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return {name: _cast(value) for name, value in inputs.items()}
    return inputs.double() if inputs.is_floating_point() else inputs


def _size_and_place(tensor: Tensor, number: int) -> list[float]:
    """Return the length of a vector, and its product with a seeded one of that length."""
    import torch

    plain = tensor.detach().cpu()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    values = np.nan_to_num(plain.double().numpy())
    return [
        float(np.linalg.norm(values)),
        float((values * _numbers(values.shape, number)).sum()),
    ]


def _numbers(shape: Sequence[int], number: int) -> NDArray[np.float32]:
    """Return seeded normal numbers of NumPy, which are the same in every version of torch."""
    block = np.random.default_rng(_SEED).standard_normal(_BLOCK, dtype=np.float32)
    return np.resize(np.roll(block, -997 * number), tuple(shape))


def _fill(module: nn.Module) -> None:
    """Fill all weights with seeded numbers.

    Matrices keep the variance of what goes through them (He's rule), so that the logits of a deep
    network are of ordinary size.
    """
    import torch

    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            fan_in = math.prod(parameter.shape[1:]) if parameter.ndim > 1 else 8
            scale = np.float32(math.sqrt(2 / max(1, fan_in)))
            values = _numbers(parameter.shape, i) * scale
            parameter.copy_(torch.from_numpy(np.asarray(values)))


# the optimizer and the schedule


def _optimizer(
    make: Callable[..., Any], shapes: Sequence[tuple[int, ...]], has_version: bool
) -> Numbers:
    """Return how far two steps with seeded gradients move copies of the trained weights.

    The gradients are seeded, never real ones: the first step of Adam turns the rounding of a real
    gradient near 0 into a whole step. They are of all sizes, so that small terms show as well. Each
    weight has two numbers for each step: the length of its move, and its product with a seeded
    vector. Numbers are double, because a small move of a large weight is lost in float32. The
    copies have the weights' shapes, by which an optimizer may group them; above 20 million values
    they are cut along each axis. An optimizer that cannot take these steps, as some for GPUs can't,
    needs a version, and is not compared.
    """
    import torch

    from memowidgets.training.learner import given_optimizer

    is_cut = sum(map(math.prod, shapes)) > _MOST
    sizes = [
        tuple(min(_CUT, n) for n in shape) if is_cut else shape for shape in shapes
    ]
    numbers = itertools.count()

    def drawn(size: tuple[int, ...]) -> NDArray[np.float64]:
        return _numbers(size, next(numbers)).astype(np.float64)

    weights = [torch.nn.Parameter(torch.from_numpy(drawn(size))) for size in sizes]
    moves: Numbers = {}
    with RandomStates(_SEED).active():
        try:
            optimizer = given_optimizer(make, list(weights))
            for step in range(_STEPS):
                before = [weight.detach().clone() for weight in weights]
                for weight, size in zip(weights, sizes, strict=True):
                    scale = 10.0 ** (5 * np.tanh(drawn(size)) - 4)
                    weight.grad = torch.from_numpy(drawn(size) * scale)
                optimizer.step()
                for i, (weight, old) in enumerate(zip(weights, before, strict=True)):
                    moved = _size_and_place(weight.detach() - old, next(numbers))
                    moves[f"optimizer move {i} of step {step}"] = moved
        except (RuntimeError, ValueError, AssertionError, LookupError) as error:
            if has_version:
                return {}
            raise ValueError(
                f"the optimizer cannot take two steps on the CPU: {first_line(error)}. If it "
                'trains your model nevertheless, pass TrainingConfig(…, version="1")'
            ) from error
    return moves


def _schedule(settings: Settings, n_members: int) -> list[float]:
    """Return the mean factor of each of up to 256 equal parts of the training, and the last one."""
    total = settings.total_steps(n_members)
    rates = np.array([settings.rate(step, n_members, 1.0) for step in range(total)])
    parts = np.array_split(rates, min(_PARTS, total))
    return [*(float(part.mean()) for part in parts), float(rates[-1])]
