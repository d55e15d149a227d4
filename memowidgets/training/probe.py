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
from collections.abc import Callable, Iterator, Mapping, Sequence
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

_SAID = {
    "module": "the module does something else with the same weights",
    "training": "the module does something else in training mode",
    "optimizer": "the optimizer takes other steps for the same gradients",
    "schedule": "the schedule is another one",
}

FORM = 2  # to be raised with each change of what a probe asks
Probe = dict[str, Any]
Numbers = Mapping[str, Sequence[float]]


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

    version = torch.__version__.partition("+")[0]
    made_by = {"form": FORM, "torch": version, "machine": platform.machine()}
    found: Probe = {}
    if model.has_user_code(data):
        asked = data.take(rows[:SAMPLES])
        found = made_by | _module(model, asked)
        again = made_by | _module(model, asked) if model.draws_weights else found
        for difference in probe_differences(found, again):
            raise ValueError(
                "two modules that the model makes under one seed differ, so shadow models could "
                f"not be compared with the target: {difference}. Draw random numbers from torch's "
                "or NumPy's global generator, which are seeded"
            )
    numbers: dict[str, list[float]] = found.get("numbers", {})
    if callable(settings.optimizer):
        weights = model.skeleton(data).parameters()
        trained = [tuple(p.shape) for p in weights if p.requires_grad]
        numbers |= _optimizer(settings.optimizer, trained, bool(settings.version))
    if callable(settings.schedule):
        numbers |= {"schedule factors": _schedule(settings, n_members)}
    functions = callable(settings.optimizer), callable(settings.schedule)
    return {**made_by, **found, "numbers": numbers} if found or any(functions) else {}


def probe_differences(
    stored: Mapping[str, Any], here: Mapping[str, Any], *, has_version: bool = False
) -> list[str]:
    """Return sentences on how two probes differ; empty if the functions do the same.

    Parts that one of them lacks are not compared. With `has_version`, the user states the version
    of the module, which stands for it where it cannot be compared.
    """
    if not stored or not here:
        return []
    if stored.get("form") != here.get("form"):
        return ["another version of memowidgets asked its functions in another way"]
    same_torch = all(stored[key] == here[key] for key in ("torch", "machine"))
    left_out = set() if same_torch else {"training"}
    said: list[str] = []
    if "module" in stored and "module" in here:
        found = _module_differences(stored["module"], here["module"], same_torch, has_version)
        said += itertools.islice(found, 1)
        if said or stored["module"]["on"] != here["module"]["on"]:
            left_out |= {"module", "training"}
    for role, sentence in _SAID.items():
        there, now = (
            {name: each for name, each in probe["numbers"].items() if name.startswith(role)}
            for probe in (stored, here)
        )
        if role in left_out or not there or not now:
            continue
        is_double = role != "training" or stored["module"]["precision"] == "float64"
        apart = first_apart(there, now, _BOUND if is_double else _BOUND_SINGLE)
        if apart:
            said.append(f"{sentence}: the {apart.removeprefix(role).strip()}")
            left_out.add("training")  # comes after the module, and follows from it
    return said


def first_apart(there: Numbers, here: Numbers, bound: float) -> str:
    """Return the first name whose numbers differ, and by what share; empty if all agree.

    Gradients and buffers that are 0 but for rounding are compared with the largest.
    """
    largest: dict[str, float] = {}
    for name, values in there.items():
        largest[_group(name)] = max([largest.get(_group(name), 0.0), *map(abs, values)])
    for name in {**there, **here}:
        one, other = (np.array(numbers.get(name, [])) for numbers in (there, here))
        if one.shape != other.shape:
            return f"{name} is there or here alone, or has another length"
        size = max(np.abs(one).max(initial=0.0), np.abs(other).max(initial=0.0))
        least = 1e-3 * largest[_group(name)] if " of " in _group(name) else 0.0
        apart = np.abs(one - other).max(initial=0.0)
        if not apart <= bound * (size + least):
            return f"{name} differs by {apart / size:.2%}"
    return ""


def _group(name: str) -> str:
    """Return what a name begins with, such as "training gradient of "."""
    return name.partition("'")[0]


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
    """Return whether a part of a manifest has the form that `made_probe` returns, or an older."""
    if not isinstance(value, dict) or value.get("form") != FORM:
        return isinstance(value, dict)
    module = {"on": str, "precision": str, "text": [str], "parameters": {str: (float,) * 4}}
    whole = has_form(value, {"torch": str, "machine": str, "numbers": {str: [float]}})
    return whole and ("module" not in value or has_form(value["module"], module))


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
            training: dict[str, list[float]] = {}
            for precision in ("float64", "float32"):
                module = module.double() if precision == "float64" else module.float()
                try:
                    training = _trained(model, module, _cast(inputs, precision), labels)
                except (RuntimeError, ValueError, TypeError):
                    continue
                break
    numbers = {"module logits": answers.ravel().tolist()}
    if not np.isfinite(training.get("training logits", [])).all():
        training = {}
    described = {
        "on": device.type,
        "precision": precision if training else "",
        "text": text.splitlines(),
        "parameters": initial,
    }
    return {"module": described, "numbers": {**numbers, **training}}


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


def _trained(
    model: Model, module: nn.Module, inputs: Any, labels: Tensor
) -> dict[str, list[float]]:
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
    found = {"training logits": _answers(logits, losses).ravel().tolist()}
    for i, (name, p) in enumerate(module.named_parameters()):
        own = _NONE if p.grad is None else _size_and_place(p.grad, i)
        found[f"training gradient of {quoted(name)}"] = own
    for i, (name, buffer) in enumerate(module.named_buffers()):
        found[f"training buffer of {quoted(name)}"] = _size_and_place(buffer, i)
    return found


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
    mean, spread = (values.mean(), values.std()) if values.size else (0.0, 0.0)
    return [float(mean), float(spread), float(values.size), float(weights.requires_grad)]


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


def _module_differences(
    there: Mapping[str, Any], here: Mapping[str, Any], same_torch: bool, has_version: bool
) -> Iterator[str]:
    """Yield sentences on what differs between two modules, the plainest first."""
    if there["on"] != here["on"]:
        if not has_version:
            yield (
                f"the module was compared on {there['on']} and runs on {here['on']} here, where "
                'its numbers differ by rounding; give the model a version="1", which stands for it'
            )
        return
    weights, own = there["parameters"], here["parameters"]
    if [*weights] != [*own]:
        changed = sorted({*weights} ^ {*own})
        yield f"the module has other weights: {listed(map(quoted, changed), 5) or 'their order'}"
        return
    for name, (mean, spread, *kind) in weights.items():
        mean_here, spread_here, *kind_here = own[name]
        if kind != kind_here:
            yield f"{quoted(name)} has {_kind(*kind)} there and {_kind(*kind_here)} here"
        share = _BOUND if same_torch else _SIGMAS / math.sqrt(max(1.0, kind[0]))
        bound = share * max(spread, spread_here) + _BOUND * abs(mean)
        if abs(mean - mean_here) > bound or abs(spread - spread_here) > bound:
            yield (
                f"{quoted(name)} begins with mean {mean:.3g} and deviation {spread:.3g} there, "
                f"{mean_here:.3g} and {spread_here:.3g} here"
            )
    lines = [*itertools.zip_longest(there["text"], here["text"], fillvalue="nothing")]
    lines.append((f"trained in {there['precision']}", f"trained in {here['precision']}"))
    for before, after in lines if same_torch else []:
        if before != after:
            shown = visible(before.strip(), 100), visible(after.strip(), 100)
            yield f"the module's parts are others: {shown[0]} there, {shown[1]} here"


def _kind(n: float, is_trained: float) -> str:
    return f"{n:.0f} {'trained' if is_trained else 'frozen'} values"


# the optimizer and the schedule


def _optimizer(
    make: Callable[..., Any], shapes: Sequence[tuple[int, ...]], has_version: bool
) -> dict[str, list[float]]:
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
    sizes = [tuple(min(_CUT, n) for n in shape) if is_cut else shape for shape in shapes]
    numbers = itertools.count()

    def drawn(size: tuple[int, ...]) -> NDArray[np.float64]:
        return _numbers(size, next(numbers)).astype(np.float64)

    weights = [torch.nn.Parameter(torch.from_numpy(drawn(size))) for size in sizes]
    moves: dict[str, list[float]] = {}
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
            cut = f", cut to {_CUT} values along each axis" if is_cut else ""
            raise ValueError(
                "the optimizer cannot take two steps on the CPU with copies of the trained weights"
                f"{cut}: {first_line(error)}. If it trains "
                'your model nevertheless, state TrainingConfig(…, version="1") for it'
            ) from error
    return moves


def _schedule(settings: Settings, n_members: int) -> list[float]:
    """Return the mean factor of each of up to 256 equal parts of the training, and the last one."""
    total = settings.total_steps(n_members)
    rates = np.array([settings.rate(step, n_members, 1.0) for step in range(total)])
    parts = np.array_split(rates, min(_PARTS, total))
    return [*(float(part.mean()) for part in parts), float(rates[-1])]
