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
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import has_form
from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import modes_kept
from memowidgets.models.device import apart
from memowidgets.store import StoreError
from memowidgets.training.config import Settings
from memowidgets.training.seeds import RandomStates
from memowidgets.visible import first_line, listed, quoted, visible

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memowidgets.training.design import Design
    from memowidgets.training.learner import Recipe

SAMPLES = 8
"""Number of samples that the module is asked about."""

_SEED = 20251123
_BOUND = 1e-5  # instruction sets and numbers of threads agree better, 1 % of a rate does not
_BOUND_SINGLE = 3e-2  # of gradients in float32, which change where rounding switches a ReLU
_NONE = [-1.0, 0.0]  # in the place of a gradient's numbers: there is no gradient
_SIGMAS = 6.0  # of the mean or deviation of freshly drawn weights, between versions of torch
_MOST = 20_000_000  # trained values of which the optimizer is asked about each
_CUT = 8
_STEPS = 2
_PARTS = 256  # of a schedule
_BLOCK = 65_537  # random numbers that fill all weights
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")

Probe = dict[str, Any]


@apart()
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
    import torch

    found: Probe = {}
    if model.has_user_code(data):
        asked = data.take(rows[:SAMPLES])
        found = _module(model, asked)
        again = _module(model, asked) if model.draws_weights else found
        difference = _module_difference(found, again, same_torch=True, has_version=False)
        if difference:
            raise ValueError(
                "two modules that the model makes under one seed differ, so shadow models could "
                f"not be compared with the target: {difference}. Draw random numbers from torch's "
                "or NumPy's global generator, which are seeded"
            )
    if callable(settings.optimizer):
        weights = model.skeleton(data).parameters()
        trained = [tuple(p.shape) for p in weights if p.requires_grad]
        found["optimizer"] = _optimizer(settings.optimizer, trained, bool(settings.version))
    if callable(settings.schedule):
        found["schedule"] = _schedule(settings, n_members)
    version = torch.__version__.partition("+")[0]
    return {"torch": version, "machine": platform.machine(), **found} if found else {}


def probe_differences(
    stored: Mapping[str, Any], here: Mapping[str, Any], *, has_version: bool = False
) -> list[str]:
    """Return sentences on how two probes differ; empty if the functions do the same.

    Parts that one of them lacks are not compared. With `has_version`, the user states the version
    of the module, which stands for it where it cannot be compared.
    """
    same_torch = all(stored.get(key) == here.get(key) for key in ("torch", "machine"))
    said = []
    if "module" in stored and "module" in here:
        said.append(_module_difference(stored, here, same_torch, has_version))
    if "optimizer" in stored and "optimizer" in here:
        said.append(_optimizer_difference(stored["optimizer"], here["optimizer"]))
    if "schedule" in stored and "schedule" in here:
        said.append(_schedule_difference(stored["schedule"], here["schedule"]))
    return [sentence for sentence in said if sentence]


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


_FORM = {
    "module": {
        "on": str,
        "answers": [[float]],
        "parameters": {str: (float, float, float, float)},
        "text": [str],
    },
    "training": {
        "precision": str,
        "answers": [[float]],
        "gradients": {str: (float, float)},
        "buffers": {str: (float, float)},
    },
    "optimizer": [(float, float)],
    "schedule": [float],
}


def is_probe(value: Any) -> bool:
    """Return whether a part of a manifest has the form that `made_probe` returns."""
    return isinstance(value, dict) and all(
        has_form(value[part], form) for part, form in _FORM.items() if part in value
    )


# the module


def _module(model: Model, data: Dataset) -> Probe:
    """Return what a freshly made module is, answers, and does in training, without autocast.

    In training mode it runs in float64: in float32 a value near 0 would be on the other side of a
    ReLU with other instructions, which changes gradients by up to a hundredth. A module that cannot
    run in float64 runs in float32. One that cannot be trained on so few samples has no such part.
    """
    import torch

    with RandomStates(_SEED).active(), ExitStack() as stack:
        module = model.build(data)
        if not all(weights.requires_grad for weights in module.parameters()):
            module = copy.deepcopy(module)  # the frozen part may be every module's
        module = module.float()
        text = _ADDRESS.sub("0x…", repr(module))
        initial = {name: _moments(p) for name, p in module.named_parameters()}
        device = next(module.parameters(), torch.empty(0)).device
        labels = torch.arange(len(data), device=device) % len(data.class_names)
        inputs = model.feeder(data, device)(np.arange(len(data)))
        with torch.autocast(device.type, enabled=False):
            if model.draws_weights:
                put_back = _put_back(module)
                stack.callback(put_back)  # a part may be another module's: it is refused as it was
                _fill(module)
            answers = _answers(*_asked(model, module, inputs, labels))
            if model.draws_weights and not np.isfinite(answers).all():  # as a logarithm of weights
                put_back()
                answers = _answers(*_asked(model, module, inputs, labels))
            if not np.isfinite(answers).all():
                raise ValueError(
                    "the module gives logits or losses that are not finite for the first "
                    f"{len(data)} samples; look for a division or a logarithm of 0"
                )
            training = None
            for precision in ("float64", "float32"):
                module = module.double() if precision == "float64" else module.float()
                try:
                    training = _trained(model, module, _cast(inputs, precision), labels)
                except (RuntimeError, ValueError, TypeError):
                    continue
                break
    found: Probe = {
        "module": {
            "on": device.type,
            "answers": answers.tolist(),
            "parameters": initial,
            "text": text.splitlines(),
        }
    }
    if training is not None and np.isfinite(training["answers"]).all():
        found["training"] = {"precision": precision, **training}
    return found


def _asked(
    model: Model, module: nn.Module, inputs: Any, labels: Tensor, *, training: bool = False
) -> tuple[Tensor, Tensor]:
    """Return logits and losses of all samples; random states and modes stay as they are."""
    import torch

    with (
        modes_kept(module),
        torch.set_grad_enabled(training),
        RandomStates(_SEED, labels.device).active(),
    ):
        return model.outputs(module.train(training), inputs, labels)


def _answers(logits: Tensor, losses: Tensor) -> NDArray[np.float64]:
    """Return logits and losses as one array, (n, classes + 1)."""
    import torch

    found = torch.cat([logits, losses[:, None]], dim=1).detach()
    return np.asarray(found.float().cpu().numpy(), np.float64)


def _trained(model: Model, module: nn.Module, inputs: Any, labels: Tensor) -> Probe:
    """Return logits in training mode, gradients of a sum of them, and the buffers afterwards.

    The weights of the sum are seeded. It is of logits, because gradients of losses vanish where the
    filled weights make the module sure of itself.
    """
    import torch

    logits, losses = _asked(model, module, inputs, labels, training=True)
    shown = torch.where(logits.isfinite(), logits, 0.0)  # an option that a question lacks is -inf
    total = (shown * torch.from_numpy(_numbers(shown.shape, 0)).to(shown.device)).sum()
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    gradients = {
        name: _NONE if p.grad is None else _size_and_place(p.grad, i)
        for i, (name, p) in enumerate(module.named_parameters())
    }
    buffers = {name: _size_and_place(b, i) for i, (name, b) in enumerate(module.named_buffers())}
    answers = _answers(logits, losses).tolist()
    return {"answers": answers, "gradients": gradients, "buffers": buffers}


def _cast(inputs: Any, precision: str) -> Any:
    import torch

    if isinstance(inputs, dict):
        return {name: _cast(value, precision) for name, value in inputs.items()}
    return inputs.to(getattr(torch, precision)) if inputs.is_floating_point() else inputs


def _plain(tensor: Tensor) -> NDArray[np.float64]:
    import torch

    plain = tensor.detach().cpu()
    return (torch.view_as_real(plain) if plain.is_complex() else plain).double().numpy()


def _moments(weights: Tensor) -> list[float]:
    """Return mean, deviation and number of the values, and whether they are trained."""
    values = _plain(weights)
    spread = float(values.std()) if values.size else 0.0
    mean = float(values.mean()) if values.size else 0.0
    return [mean, spread, float(values.size), float(weights.requires_grad)]


def _size_and_place(tensor: Tensor, number: int) -> list[float]:
    """Return the length of a vector, and its product with a seeded one of that length."""
    values = np.nan_to_num(_plain(tensor))
    return [float(np.linalg.norm(values)), float((values * _numbers(values.shape, number)).sum())]


def _numbers(shape: Sequence[int], number: int) -> NDArray[np.float32]:
    """Return seeded normal numbers of NumPy, which are the same in every version of torch."""
    block = np.random.default_rng(_SEED).standard_normal(_BLOCK, dtype=np.float32)
    return np.resize(np.roll(block, -997 * number), tuple(shape))


def _put_back(module: nn.Module) -> Callable[[], None]:
    """Return a function that gives a module its present values again, in float32."""
    import torch

    def tensors() -> list[Tensor]:
        return [*module.parameters(), *module.buffers()]

    before = [tensor.detach().clone() for tensor in tensors()]

    def put_back() -> None:
        module.float()
        with torch.no_grad():
            for tensor, values in zip(tensors(), before, strict=True):
                tensor.copy_(values)

    return put_back


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


def _module_difference(
    stored: Mapping[str, Any], now: Mapping[str, Any], same_torch: bool, has_version: bool
) -> str:
    there, here = stored["module"], now["module"]
    if there["on"] != here["on"]:
        return (
            ""
            if has_version
            else f"the module was compared on {there['on']} and runs on {here['on']} here, where "
            'its numbers differ by rounding; give the model a version="1", which stands for it'
        )
    said = _weights_difference(there["parameters"], here["parameters"], same_torch)
    if said:
        return said
    if same_torch and there["text"] != here["text"]:
        lines = itertools.zip_longest(there["text"], here["text"], fillvalue="nothing")
        before, after = next((a, b) for a, b in lines if a != b)
        return (
            f"the module's parts are others: {visible(before.strip(), 100)} there, "
            f"{visible(after.strip(), 100)} here"
        )
    apart = _apart(there["answers"], here["answers"])
    if apart > _BOUND:
        return f"the module gives other logits for the same weights, by {apart:.1g} of their size"
    if same_torch and "training" in stored and "training" in now:
        return _training_difference(stored["training"], now["training"])
    return ""


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


def _training_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    if there["precision"] != here["precision"]:
        return (
            f"the module can be trained in {there['precision']} there and in {here['precision']} "
            "here"
        )
    bound = _BOUND if there["precision"] == "float64" else _BOUND_SINGLE
    if _apart(there["answers"], here["answers"]) > bound:
        return "the module gives other logits in training mode, as with another dropout"
    gradients = _first_apart(there["gradients"], here["gradients"], bound)
    if gradients:
        return f"the module gives other gradients for the same logits: that of {gradients}"
    buffers = _first_apart(there["buffers"], here["buffers"], bound)
    return f"after a pass in training mode, the module's buffer {buffers}" if buffers else ""


def _first_apart(there: Mapping[str, Any], here: Mapping[str, Any], bound: float) -> str:
    """Return the first name whose numbers differ, and by how much; empty if all agree.

    Numbers that are 0 but for rounding are compared with the largest.
    """
    if [*there] != [*here]:
        return f"{listed(map(quoted, sorted({*there} ^ {*here})), 5)} is there or here alone"
    largest = max((size for size, _ in there.values()), default=0.0)
    for name, (size, place) in there.items():
        size_here, place_here = here[name]
        if (size < 0) != (size_here < 0):
            return f"{quoted(name)} is {'missing there' if size < 0 else 'missing here'}"
        own = max(size, size_here, 0.0)
        if max(abs(size - size_here), abs(place - place_here)) > bound * (own + 1e-3 * largest):
            share = abs(size - size_here) / own
            how = f"{share:.2%} in size" if share > bound else "in direction"
            return f"{quoted(name)} differs {how}"
    return ""


def _apart(there: Any, here: Any) -> float:
    """Return the largest difference as a share of the largest number."""
    if [len(row) for row in there] != [len(row) for row in here]:
        return math.inf
    one, other = (np.array([x for row in rows for x in row], float) for rows in (there, here))
    if (np.isfinite(one) != np.isfinite(other)).any():
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
    Numbers are double, because a small move of a large weight is lost in float32. The copies have
    the weights' shapes, by which an optimizer may group them; above 20 million values they are cut
    along each axis. An optimizer that cannot take these steps, as some for GPUs can't, needs a
    version, and is not compared.
    """
    import torch

    from memowidgets.training.learner import given_optimizer

    is_cut = sum(map(math.prod, shapes)) > _MOST
    sizes = [tuple(min(_CUT, n) for n in shape) if is_cut else shape for shape in shapes]
    numbers = itertools.count()

    def drawn(size: tuple[int, ...]) -> NDArray[np.float64]:
        return _numbers(size, next(numbers)).astype(np.float64)

    weights = [torch.nn.Parameter(torch.from_numpy(drawn(size))) for size in sizes]
    moves: list[list[float]] = []
    with RandomStates(_SEED).active():
        try:
            optimizer = given_optimizer(make, list(weights))
            for _ in range(_STEPS):
                before = [weight.detach().clone() for weight in weights]
                for weight, size in zip(weights, sizes, strict=True):
                    scale = 10.0 ** (5 * np.tanh(drawn(size)) - 4)
                    weight.grad = torch.from_numpy(drawn(size) * scale)
                optimizer.step()
                for weight, old in zip(weights, before, strict=True):
                    moves.append(_size_and_place(weight.detach() - old, next(numbers)))
        except (RuntimeError, ValueError, AssertionError, LookupError) as error:
            if has_version:
                return []
            cut = f", cut to {_CUT} values along each axis" if is_cut else ""
            raise ValueError(
                "the optimizer cannot take two steps on the CPU with copies of the trained weights"
                f"{cut}: {first_line(error)}. If it trains "
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
    apart = _apart([there], [here])
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
