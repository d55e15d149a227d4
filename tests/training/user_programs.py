"""A user's programs that differ in one value, run by `test_probe` in processes of their own.

`PATTERNS` are ways in which a function gets a value; `ROLES` are functions that use it.
Usage: python user_programs.py RUNS FOLDER VALUE [FOLDER VALUE …], which prints what each program of
each folder came to.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path

HELPER = "def scaled(x=1.0):\n    return x * {value}\n"

PATTERNS = {
    "global": "VALUE = {value}\ndef get(): return VALUE",
    "closure": """
def made(value):
    def get(): return value
    return get
get = made({value})""",
    "attribute of a base class": """
class Base: value = {value}
class Child(Base): pass
def get(): return Child().value""",
    "nested configuration": """
class AttrDict(dict):
    __getattr__ = dict.__getitem__
config = AttrDict(model=AttrDict(value={value}))
def get(): return config.model.value""",
    "decorator": """
def times(value):
    def decorate(f):
        return lambda: f() * value
    return decorate
@times({value})
def get(): return 1.0""",
    "partial": """
import functools
def times(x, y): return x * y
get = functools.partial(times, 1.0, y={value})""",
    "function of a submodule": "import {name}_helper\ndef get(): return {name}_helper.scaled()",
    "environment variable": "import os\ndef get(): return float(os.environ['USERS_VALUE'])",
    "file": """
import json, pathlib
def get(): return json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())["value"]""",
}

ROLES = {
    "initial weights": """
def make(n_classes):
    layer = nn.Linear(64, n_classes)
    with torch.no_grad():
        layer.weight.mul_(get())
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), layer)""",
    "arithmetic": """
class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, n_classes)
    def forward(self, x): return self.head(self.body(x.flatten(1)) * get())
make = Net""",
    "training mode": """
class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, n_classes)
    def forward(self, x):
        return self.head(F.dropout(self.body(x.flatten(1)), get() / 2, training=self.training))
make = Net""",
    "gradients": """
class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, n_classes)
    def forward(self, x):
        x = self.body(x.flatten(1))
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient * get())
        return self.head(x)
make = Net""",
    "running statistics": """
class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, n_classes)
        self.norm = nn.BatchNorm1d(8)
    def forward(self, x):
        x = F.batch_norm(self.body(x.flatten(1)), self.norm.running_mean, self.norm.running_var,
                         training=self.training, momentum=get() / 5)
        return self.head(x)
make = Net""",
    "optimizer": "def optimizer(p): return torch.optim.SGD(p, lr=get() / 10)",
    "decay": "def optimizer(p): return torch.optim.AdamW(p, lr=1e-5, weight_decay=get() / 10)",
    "schedule": "def schedule(done): return 1.0 if done < 0.5 else get()",
    "forward": "def forward(module, inputs): return module(inputs.flatten(1) * get())",
}


def write(folder: Path, name: str, value: float) -> None:
    """Write the programs of one value into a folder: each pattern in one role.

    What a function does is what counts, not how it gets its value, so that all pairs would show
    nothing more.
    """
    head = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
    for p, (pattern, role) in enumerate(zip(PATTERNS.values(), ROLES.values(), strict=True)):
        own = f"{name}_{p}"
        getter = pattern.format(value=value, name=own)
        (folder / f"{own}.py").write_text(f"{head}{getter}\n{role}\n")
        (folder / f"{own}_helper.py").write_text(HELPER.format(value=value))
        (folder / f"{own}.json").write_text(json.dumps({"value": value}))


def run(program: object, path: Path) -> float:
    """Train or watch what a program defines, and return a sum of its losses."""
    import torch

    import memowidgets as mw

    data = mw.data.load_digits().take(range(40))
    if hasattr(program, "forward"):
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10)
        )
        watch = mw.watch(module, data, path, 4, forward=program.forward)
        return float(watch.audit.score("loss", checkpoint="epoch-0").sum())
    model = mw.models.ConvNet(1)
    if hasattr(program, "make"):
        model = mw.models.TorchClassifier(program.make)
    settings = {k: getattr(program, k) for k in ("optimizer", "schedule") if hasattr(program, k)}
    training = mw.TrainingConfig(epochs=1, batch_size=16, precision="float32", **settings)
    audit = mw.Audit(model, data, path, training, device="cpu")
    audit.train()
    return float(audit.evidence.losses(audit.evidence.names.final()).sum())


def programs(folder: str, value: str, runs: str) -> dict[str, object]:
    """Run each program of a folder, and return its number or the message of its refusal."""
    os.environ["USERS_VALUE"] = value
    sys.path.insert(0, folder)
    for name in [name for name in sys.modules if name.startswith("users_")]:
        del sys.modules[name]  # of the folder before
    found: dict[str, object] = {}
    for file in sorted(Path(folder).glob("*.json")):
        path = Path(runs, file.stem)
        try:
            found[file.stem] = run(importlib.import_module(file.stem), path)
        except ValueError as error:
            found[file.stem] = str(error)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _, runs, *steps = sys.argv
    pairs = zip(steps[::2], steps[1::2], strict=True)
    print(json.dumps([programs(folder, value, runs) for folder, value in pairs]))
