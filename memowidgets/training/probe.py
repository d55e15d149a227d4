"""Probe of a user's functions: what they do, as numbers that another process can compare.

Text and bytecode do not say what a function does, because it may read any value of its process.
So a run keeps what its module factory, optimizer and schedule do on seeded input, and whoever goes
on with the run makes the same probe again.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.modes import modes_kept
from memowidgets.store import StoreError
from memowidgets.training.config import Settings
from memowidgets.training.seeds import RandomStates
from memowidgets.visible import first_line, listed, quoted, visible

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from memowidgets.training.design import Design
    from memowidgets.training.learner import Recipe

__all__ = ["check_functions", "is_probe", "made_probe", "probe_differences"]

SAMPLES = 8
"""Number of samples that the module is asked about."""

_SEED = 20251123
_BOUND = 1e-5  # instruction sets and numbers of threads agree better, 1 % of a rate does not
_BOUND_TRAINING = 1e-3  # batch normalisation over few samples enlarges rounding
_SIGMAS = 6.0  # of the mean or deviation of freshly drawn weights, between versions of torch
_CUT = 8
_STEPS = 2
_PARTS = 256  # of a schedule
_BLOCK = 65_537  # random numbers that fill all weights
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")

Probe = dict[str, Any]


def made_probe(
    model: Model, data: Dataset, rows: NDArray[np.int64], settings: Settings, n_members: int
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
        Numbers and texts for a manifest. It contains no value of a sample.

    Raises
    ------
    ValueError
        If a function gives something else each time that it is called, or cannot be called.
    """
    found: Probe = {}
    if model.has_user_code(data):
        found["module"] = _module_twice(model, data.take(rows[:SAMPLES]))
    if callable(settings.optimizer):
        weights = model.skeleton(data).parameters()
        trained = [tuple(p.shape) for p in weights if p.requires_grad]
        found["optimizer"] = _optimizer(settings.optimizer, trained, bool(settings.version))
    if callable(settings.schedule):
        found["schedule"] = _schedule(settings, n_members)
    return {"torch": _torch_version(), "machine": platform.machine(), **found} if found else {}


def probe_differences(
    stored: Mapping[str, Any], here: Mapping[str, Any], *, has_version: bool = False
) -> list[str]:
    """Return sentences on how two probes differ; empty if the functions do the same.

    Parts that one of them lacks are not compared. With `has_version`, the user states the version
    of the module, which stands for it where it cannot be compared.
    """
    same_torch = all(stored.get(key) == here.get(key) for key in ("torch", "machine"))
    compare: dict[str, Callable[[Any, Any], str]] = {
        "module": lambda there, now: _module_difference(there, now, same_torch, has_version),
        "optimizer": _optimizer_difference,
        "schedule": _schedule_difference,
    }
    both = [part for part in compare if part in stored and part in here]
    return [said for part in both if (said := compare[part](stored[part], here[part]))]


def check_functions(stored: Mapping[str, Any], recipe: Recipe, design: Design) -> None:
    """Raise if the functions of a recipe do something else than where its run was begun.

    Parameters
    ----------
    stored : dict
        Probe in the run's manifest; empty if the run has no user's functions.
    recipe : Recipe
        Model, data and settings here.
    design : Design
        Split of the run.

    Raises
    ------
    StoreError
        With the difference.
    """
    if not stored:
        return
    model, settings = recipe.model, recipe.settings
    here = made_probe(model, recipe.data, design.pool, settings, len(design.members))
    found = probe_differences(stored, here, has_version=bool(model.version))
    if found:
        raise StoreError(
            f"a function of the run does something else here than where the run was begun: "
            f"{'; '.join(found)}. Use the same code, or choose another path for the changed code"
        )


def is_probe(value: Any) -> bool:
    """Return whether a part of a manifest has the form that `made_probe` returns."""
    if not isinstance(value, dict):
        return False
    module = value.get("module")
    return (
        (module is None or _is_of_module(module))
        and _is_numbers(value.get("schedule", []), 1)
        and _is_numbers(value.get("optimizer", []), 2)
    )


def _is_of_module(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    parameters, text = value.get("parameters"), value.get("text")
    return (
        isinstance(value.get("on"), str)
        and isinstance(text, list)
        and all(isinstance(line, str) for line in text)
        and isinstance(parameters, dict)
        and _is_numbers([*parameters.values()], 2)
        and all(len(moments) == 4 for moments in parameters.values())
        and _is_numbers(value.get("answers"), 2)
        and (value.get("training") is None or _is_numbers(value["training"], 2))
    )


def _is_numbers(value: Any, axes: int) -> bool:
    """Return whether a value is a list of numbers, or a list of such lists of one length."""
    if not isinstance(value, list):
        return False
    if axes > 1:
        lengths = {len(row) for row in value if isinstance(row, list)}
        return len(lengths) <= 1 and all(_is_numbers(row, axes - 1) for row in value)
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)


def _torch_version() -> str:
    import torch

    return torch.__version__.partition("+")[0]


# the module


def _module_twice(model: Model, data: Dataset) -> Probe:
    first = _module(model, data)
    if not model.draws_weights:
        return first
    second = _module(model, data)
    difference = _module_difference(first, second, same_torch=True, has_version=False)
    if difference:
        raise ValueError(
            "two modules that the model makes under one seed differ, so shadow models could not be "
            f"compared with the target: {difference}. Draw random numbers from torch's or NumPy's "
            "global generator, which are seeded"
        )
    return first


def _module(model: Model, data: Dataset) -> Probe:
    """Return what a freshly made module is and answers, in float32 and without autocast."""
    import torch

    with RandomStates(_SEED).active():
        module = model.build(data).float()
        initial = {name: _moments(p) for name, p in module.named_parameters()}
        device = next(module.parameters(), torch.empty(0)).device
        ask = _asked(model, module, data, device)
        if model.draws_weights:
            kept = [p.detach().clone() for p in module.parameters()]
            _fill(module)
            answers = ask(training=False)
            if not np.isfinite(answers).all():  # such as a logarithm of weights
                with torch.no_grad():
                    for parameter, before in zip(module.parameters(), kept, strict=True):
                        parameter.copy_(before)
                answers = ask(training=False)
        else:
            answers = ask(training=False)
        if not np.isfinite(answers).all():
            raise ValueError(
                f"the module gives logits or losses that are not finite for the first {len(data)} "
                "samples; look for a division or a logarithm of 0"
            )
        try:
            trained = ask(training=True)
        except (RuntimeError, ValueError):  # it cannot be trained on so few samples at once
            trained = np.array(np.nan)
        text = _ADDRESS.sub("0x…", repr(module))
    return {
        "on": device.type,
        "answers": answers.tolist(),
        "training": trained.tolist() if np.isfinite(trained).all() else None,
        "parameters": initial,
        "text": text.splitlines(),
    }


def _asked(
    model: Model, module: nn.Module, data: Dataset, device: torch.device
) -> Callable[..., NDArray[np.float64]]:
    """Return a function that gives logits and losses of all samples, (n, classes + 1)."""
    import torch

    labels = torch.arange(len(data), device=device) % len(data.class_names)
    inputs = model.feeder(data, device)(np.arange(len(data)))

    def ask(*, training: bool) -> NDArray[np.float64]:
        off = torch.autocast(device.type, enabled=False)
        with modes_kept(module), torch.no_grad(), off, RandomStates(_SEED, device).active():
            module.train(training)
            logits, losses = model.outputs(module, inputs, labels)
        found = torch.cat([logits, losses[:, None]], dim=1)
        return np.asarray(found.float().cpu().numpy(), np.float64)

    return ask


def _moments(weights: Tensor) -> list[float]:
    """Return mean, deviation and number of the values, and whether they are trained."""
    import torch

    plain = weights.detach().cpu()
    values = (torch.view_as_real(plain) if plain.is_complex() else plain).double().numpy()
    spread = float(values.std()) if values.size else 0.0
    mean = float(values.mean()) if values.size else 0.0
    return [mean, spread, float(values.size), float(weights.requires_grad)]


def _fill(module: nn.Module) -> None:
    """Fill all weights with seeded numbers of NumPy, which are the same in every version of torch.

    Matrices keep the variance of what goes through them (He's rule), so that the logits of a deep
    network are of ordinary size.
    """
    import torch

    block = np.random.default_rng(_SEED).standard_normal(_BLOCK, dtype=np.float32)
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            fan_in = math.prod(parameter.shape[1:]) if parameter.ndim > 1 else 8
            values = np.resize(np.roll(block, -997 * i), tuple(parameter.shape))
            scale = np.float32(math.sqrt(2 / max(1, fan_in)))
            parameter.copy_(torch.from_numpy(np.asarray(values * scale)))


def _module_difference(
    there: Mapping[str, Any], here: Mapping[str, Any], same_torch: bool, has_version: bool
) -> str:
    if there["on"] != here["on"]:
        return (
            ""
            if has_version
            else f"the module was compared on {there['on']} and runs on {here['on']} here, where "
            'its numbers differ by rounding; give the model a version="1", which stands for it'
        )
    said = _weights_difference(there["parameters"], here["parameters"], same_torch)
    if not said and same_torch and there["text"] != here["text"]:
        said = f"the module's parts are others: {_first_change(there['text'], here['text'])}"
    apart = _apart(there["answers"], here["answers"])
    if not said and apart > _BOUND:
        said = f"the module gives other logits for the same weights, by {apart:.1g} of their size"
    pairs = there["training"], here["training"]
    if not said and same_torch and None not in pairs and _apart(*pairs) > _BOUND_TRAINING:
        said = "the module gives other logits in training mode, as with another dropout"
    return said


def _weights_difference(there: Mapping[str, Any], here: Mapping[str, Any], same_torch: bool) -> str:
    if [*there] != [*here]:
        changed = sorted({*there} ^ {*here})
        return f"the module has other weights: {listed(map(quoted, changed), 5) or 'their order'}"
    for name, (mean, spread, n, is_trained) in there.items():
        mean_here, spread_here, n_here, is_trained_here = here[name]
        if n != n_here:
            return f"{quoted(name)} has {n:.0f} values there and {n_here:.0f} here"
        if is_trained != is_trained_here:
            states = ("frozen", "trained")
            kinds = states[bool(is_trained)], states[bool(is_trained_here)]
            return f"{quoted(name)} is {kinds[0]} there and {kinds[1]} here"
        share = _BOUND if same_torch else _SIGMAS / math.sqrt(max(1.0, n))
        bound = share * max(spread, spread_here) + _BOUND * abs(mean)
        if abs(mean - mean_here) > bound or abs(spread - spread_here) > bound:
            return (
                f"{quoted(name)} begins with mean {mean:.3g} and deviation {spread:.3g} there, "
                f"{mean_here:.3g} and {spread_here:.3g} here"
            )
    return ""


def _first_change(there: Sequence[str], here: Sequence[str]) -> str:
    for before, now in zip_longest(there, here, fillvalue="nothing"):
        if before != now:
            return f"{visible(before.strip(), 100)} there, {visible(now.strip(), 100)} here"
    return ""


def _apart(there: Any, here: Any) -> float:
    """Return the largest difference as a share of the largest number."""
    one, other = np.array(there, float), np.array(here, float)
    if one.shape != other.shape or (np.isfinite(one) != np.isfinite(other)).any():
        return math.inf
    one, other = np.nan_to_num(one), np.nan_to_num(other)
    size = float(np.abs(one).max(initial=0.0))
    apart = float(np.abs(one - other).max(initial=0.0))
    return apart / size if size else (math.inf if apart else 0.0)


# the optimizer and the schedule


def _optimizer(
    make: Callable[..., Any], shapes: Sequence[tuple[int, ...]], has_version: bool
) -> list[list[float]]:
    """Return how far two steps with seeded gradients move copies of the trained weights.

    The gradients are seeded, never real ones: the first step of Adam turns the rounding of a real
    gradient near 0 into a whole step. They are of all sizes, so that small terms show as well. Each
    weight has a row for each step: the length of its move, and its product with a seeded vector.
    Numbers are double, because a small move of a large weight is lost in float32. An optimizer that
    cannot take these steps, as some for GPUs can't, needs a version, and is not compared.
    """
    import torch

    from memowidgets.training.learner import given_optimizer

    rng = np.random.default_rng(_SEED)
    sizes = [tuple(min(_CUT, n) for n in shape) for shape in shapes]
    weights = [torch.nn.Parameter(torch.from_numpy(rng.standard_normal(s))) for s in sizes]
    moves: list[list[float]] = []
    with RandomStates(_SEED).active():
        try:
            optimizer = given_optimizer(make, list(weights))
            for _ in range(_STEPS):
                before = [weight.detach().clone() for weight in weights]
                for weight, size in zip(weights, sizes, strict=True):
                    gradient = rng.standard_normal(size) * 10.0 ** rng.uniform(-9, 1, size)
                    weight.grad = torch.from_numpy(gradient)
                optimizer.step()
                for weight, old, size in zip(weights, before, sizes, strict=True):
                    moved = (weight.detach() - old).numpy()
                    across = rng.standard_normal(size)
                    moves.append([float(np.linalg.norm(moved)), float((moved * across).sum())])
        except (RuntimeError, ValueError, AssertionError, LookupError) as error:
            if has_version:
                return []
            raise ValueError(
                "the optimizer cannot take two steps on the CPU with copies of the trained weights "
                f"that are cut to {_CUT} values along each axis: {first_line(error)}. If it trains "
                'your model nevertheless, state TrainingConfig(…, version="1") for it'
            ) from error
    return moves


def _optimizer_difference(there: Any, here: Any) -> str:
    if not there or not here:  # it cannot run here, and has a version
        return ""
    if len(there) != len(here):
        return f"the optimizer takes {len(there)} moves there and {len(here)} here"
    for (length, product), (length_here, product_here) in zip(there, here, strict=True):
        bound = _BOUND * max(length, length_here)
        if not (abs(length - length_here) <= bound and abs(product - product_here) <= bound):
            share = abs(length - length_here) / max(length, length_here, 1e-300)
            how = f"{share:.2%} in length" if share > _BOUND else "in direction"
            return f"the optimizer takes other steps for the same gradients: they differ {how}"
    return ""


def _schedule(settings: Settings, n_members: int) -> list[float]:
    """Return the mean factor of each of up to 256 equal parts of the training, and the last one."""
    total = settings.total_steps(n_members)
    rates = np.array([settings.rate(step, n_members, 1.0) for step in range(total)])
    parts = np.array_split(rates, min(_PARTS, total))
    return [*(float(part.mean()) for part in parts), float(rates[-1])]


def _schedule_difference(there: Any, here: Any) -> str:
    apart = _apart(there, here)
    if apart <= _BOUND:
        return ""
    if not math.isfinite(apart):
        return "the schedule has another length"
    changes = np.abs(np.array(there) - np.array(here)) > _BOUND * np.abs(there).max()
    first = int(np.argmax(changes))
    return (
        f"the schedule's factor is {there[first]:.4g} there and {here[first]:.4g} here at "
        f"{first / max(1, len(there) - 1):.0%} of the training"
    )
