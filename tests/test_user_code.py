"""What identifies a user's function: its text, the values and the functions that it uses."""

from __future__ import annotations

import hashlib
import linecache
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from memowidgets.user_code import code_digest, source_digest, values_held, values_used

SOURCE = """
RATE = {rate}
def outer(x):
    return inner(x) + {outer}
def inner(x, more={more}):
    return innermost(x) * more
def innermost(x):
    return x * RATE if x > 0 else outer(-x)
"""
FIRST = {"rate": 0.1, "outer": 1, "more": 2}


def made(**changes: Any) -> Any:
    module = ModuleType("of_the_user")
    exec(SOURCE.format(**{**FIRST, **changes}), module.__dict__)
    return module.outer


def test_the_same_text_is_the_same_function():
    assert code_digest(made()) == code_digest(made())
    assert repr(values_used(made())) == repr(values_used(made()))


@pytest.mark.parametrize("change", [{"rate": 0.2}, {"more": 3}])
def test_what_a_helper_uses_counts(change):
    assert code_digest(made()) != code_digest(made(**change))
    assert repr(values_used(made())) != repr(values_used(made(**change)))


def test_functions_of_libraries_count_by_their_name():
    one = made()
    one.__globals__["inner"] = values_used
    assert values_used(one) == {"inner": "memowidgets.user_code.values_used"}
    named = written("from memowidgets.user_code import values_used\nf = lambda: values_used\n", "f")
    assert values_used(named) == {}


def test_methods_of_a_class_and_names_of_libraries_are_no_values():
    text = """
from torch.nn import Linear, Module, ReLU
class Net(Module):
    def __init__(self, n, act=ReLU, *, norm=Linear):
        super().__init__()
        self.fc = Linear(2, n)
    def forward(self, x):
        return self.fc(x)
"""
    net = written(text, "Net")
    assert values_used(net) == {}
    assert values_held(net.__init__) == [("norm",)]


def test_a_function_that_calls_itself_ends():
    namespace: dict[str, Any] = {}
    exec("def again(n):\n    return n and again(n - 1)\n", namespace)
    assert values_used(namespace["again"]) == {}


def test_many_functions_that_call_each_other_are_looked_at_once():
    namespace: dict[str, Any] = {}
    calls = " + ".join(f"f{i}(n)" for i in range(40))
    exec("\n".join(f"def f{i}(n):\n    return n and {calls}" for i in range(40)), namespace)
    assert len(values_used(namespace["f0"])) == 39


USES = """
import argparse, collections, dataclasses, datetime, enum, functools, pathlib, re, types
import numpy as np, torch

RATES = {"head": 0.1, "deep": {"drop": [0.5]}}
ARGS = argparse.Namespace(lr=0.1, out="a", model=argparse.Namespace(width=[8]))
SPACE = types.SimpleNamespace(lr=0.1, out="a")
WEIGHTS = np.arange(3.0)
TENSOR = torch.arange(3.0)
ONE = np.float32(0.1)
FILE = pathlib.Path("weights.pt")
KINDS = {"a", "b", "c"}
ACTIVATION = torch.relu
FUNCTIONS = {"activation": len}

class Config:
    lr = 0.1
    out = "a"

@dataclasses.dataclass
class Data:
    lr: float = 0.1
    out: str = "a"

    def rate(self):
        return self.lr * 2

DATA = Data()

class Base:
    def step(self):
        return 0.1

class Child(Base):
    pass

class Called:
    def __init__(self):
        self.rates = [0.1]
    def __call__(self, x):
        return x * RATES["head"] + self.more(x) + self.rates[0]
    def more(self, x):
        return 0.1
    def bound(self, x):
        self.times = getattr(self, "times", 0) + 1
        return self.more(x) + self.rate
    @property
    def rate(self):
        return self.rates[0] * 2

class Trainer:
    def __init__(self):
        self.steps, self.scale, self.log = 0, 0.1, []
    def predict(self, x):
        self.steps += 1
        self.log.append(x)
        return (lambda: x * self.scale)()
    def forward(self):
        return lambda x: self.predict(x)

TRAINER = Trainer()
SEEN = []
COUNT = 0

def counted(x):
    global COUNT
    COUNT += 1
    SEEN.append(x)
    return TRAINER.predict(x) + COUNT

def passed(x, settings):
    return x * settings.lr

def default(x, *, lr=RATES["head"]):
    return x * lr

def dict_(x): return x * RATES["deep"]["drop"][0]
def argument(x): return x * ARGS.lr
def nested(x): return x * ARGS.model.width[0]
def space(x): return x * SPACE.lr
def config(x): return x * Config.lr
def data(x): return x * DATA.lr
def method(x): return x * DATA.rate()
def whole(x): return passed(x, SPACE)
def array(x): return x * WEIGHTS
def tensor(x): return x * TENSOR
def scalar(x): return x * ONE
def file(x): return x, FILE
def kinds(x): return x in KINDS
def child(x): return x * Child().step()
def inside(x): return [x * RATES["head"] for _ in range(3)]
def shape(x): return x * WEIGHTS.shape[0]

def libraries(x): return ACTIVATION(x)
def table(x): return FUNCTIONS["activation"](x)
KIND = torch.optim.SGD
def optimizer(x, kind=KIND): return kind(x)
def made(rates): return lambda x: x * rates["head"]
def of_function(f): return lambda x: f(x) * 2
def twice(x): return x * 0.1

PATTERN = re.compile("a+")
LENGTH = datetime.timedelta(days=1)
KIND_OF_NUMBER = torch.float32
QUEUE = collections.deque([1, 2])

def pattern(x): return PATTERN.match(x)
def length(x): return x * LENGTH
def number(x): return x.to(KIND_OF_NUMBER)
def queue(x): return x * QUEUE[0]

@functools.cache
def cached(x): return x * 0.1

def calls_cached(x): return cached(x)

def decorator(f):
    @functools.wraps(f)
    def wrapper(*given):
        return f(*given) * 0.5
    return wrapper

@decorator
def decorated(x): return x * RATES["head"]

def calls_decorated(x): return decorated(x)

closure = made(RATES)
held = of_function(of_function(twice))
in_closure = of_function(torch.optim.SGD)
partial = functools.partial(passed, settings=RATES)
called = Called()
bound = called.bound
of_object = Trainer().forward()
"""
CHANGES = {
    "dict_": ('"drop": [0.5]', '"drop": [0.6]'),
    "argument": ("Namespace(lr=0.1", "Namespace(lr=0.2"),
    "nested": ("width=[8]", "width=[9]"),
    "space": ("types.SimpleNamespace(lr=0.1", "types.SimpleNamespace(lr=0.2"),
    "config": ("class Config:\n    lr = 0.1", "class Config:\n    lr = 0.2"),
    "data": ("lr: float = 0.1", "lr: float = 0.2"),
    "method": ("self.lr * 2", "self.lr * 3"),
    "whole": ("types.SimpleNamespace(lr=0.1", "types.SimpleNamespace(lr=0.2"),
    "array": ("WEIGHTS = np.arange(3.0)", "WEIGHTS = np.arange(3.0) + 1"),
    "tensor": ("TENSOR = torch.arange(3.0)", "TENSOR = torch.arange(3.0) + 1"),
    "scalar": ("np.float32(0.1)", "np.float32(0.2)"),
    "file": ("weights.pt", "others.pt"),
    "kinds": ('"c"}', '"d"}'),
    "child": ("def step(self):\n        return 0.1", "def step(self):\n        return 0.2"),
    "inside": ('"head": 0.1', '"head": 0.2'),
    "closure": ('"head": 0.1', '"head": 0.2'),
    "held": ("def twice(x): return x * 0.1", "def twice(x): return x * 0.2"),
    "partial": ('"head": 0.1', '"head": 0.2'),
    "default": ('"head": 0.1', '"head": 0.2'),
    "called": ('"head": 0.1', '"head": 0.2'),
    "counted": ("self.scale, self.log = 0, 0.1", "self.scale, self.log = 0, 0.2"),
    "of_object": ("self.scale, self.log = 0, 0.1", "self.scale, self.log = 0, 0.2"),
    "libraries": ("ACTIVATION = torch.relu", "ACTIVATION = np.tanh"),
    "table": ('{"activation": len}', '{"activation": lambda x: x}'),
    "optimizer": ("KIND = torch.optim.SGD", "KIND = torch.optim.Adam"),
    "pattern": ('"a+"', '"b+"'),
    "length": ("days=1", "days=2"),
    "number": ("= torch.float32", "= torch.float64"),
    "queue": ("deque([1, 2])", "deque([3, 2])"),
    "cached": ("def cached(x): return x * 0.1", "def cached(x): return x * 0.2"),
    "calls_cached": ("def cached(x): return x * 0.1", "def cached(x): return x * 0.2"),
    "decorated": ("f(*given) * 0.5", "f(*given) * 0.6"),
    "calls_decorated": ('"head": 0.1', '"head": 0.2'),
    "in_closure": ("of_function(torch.optim.SGD)", "of_function(torch.optim.Adam)"),
    "bound": ("def more(self, x):\n        return 0.1", "def more(self, x):\n        return 0.2"),
}
UNUSED = {
    "argument": ('lr=0.1, out="a"', 'lr=0.1, out="b"'),
    "config": ('lr = 0.1\n    out = "a"', 'lr = 0.1\n    out = "b"'),
    "shape": ("WEIGHTS = np.arange(3.0)", "WEIGHTS = np.arange(3.0) + 1"),
}


def given(name: str, change: tuple[str, str] = ("", "")) -> Any:
    """Return a function of a module whose text was changed, with that text to be read."""
    text = USES.replace(*change) if change[0] else USES
    assert (text != USES) == bool(change[0])
    return written(text, name)


def written(text: str, name: str) -> Any:
    """Return what has this name in a module with this text."""
    module = ModuleType("uses_of_the_user")
    file = f"<text {hash(text)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    sys.modules[module.__name__] = module
    exec(compile(text, file, "exec"), module.__dict__)
    return getattr(module, name)


@pytest.mark.parametrize("digest", [code_digest, source_digest])
@pytest.mark.parametrize("name", CHANGES)
def test_a_value_that_is_used_counts_wherever_it_is(name, digest):
    first = digest(given(name))
    assert first == digest(given(name))
    assert first != digest(given(name, CHANGES[name]))


@pytest.mark.parametrize("digest", [code_digest, source_digest])
@pytest.mark.parametrize("name", UNUSED)
def test_a_value_that_is_not_used_does_not_count(name, digest):
    assert digest(given(name)) == digest(given(name, UNUSED[name]))


@pytest.mark.parametrize("digest", [code_digest, source_digest])
@pytest.mark.parametrize("name", ["counted", "of_object"])
def test_what_a_function_counts_does_not_change_it(name, digest):
    function = given(name)
    before = digest(function)
    assert function(1) < function(2)
    assert digest(function) == before


LINES = "pair = [lambda x: x + 1, lambda x: x + 2]\nlong = [\n    lambda x: x\n    + {number},\n]\n"
HELD = """
def around(f):
    return lambda x: f(x)
pair = [around(f) for f in (lambda x: x + 1, lambda x: x + 2)]
"""


@pytest.mark.parametrize("digest", [code_digest, source_digest])
def test_lambdas_of_one_line_are_told_apart(digest):
    first, second = written(LINES.format(number=1), "pair")
    assert digest(first) != digest(second)
    assert digest(first) == digest(written(LINES.format(number=1), "pair")[0])
    assert first(1) == 2


@pytest.mark.parametrize("digest", [code_digest, source_digest])
def test_all_lines_of_a_lambda_count(digest):
    one, same, other = (written(LINES.format(number=n), "long")[0] for n in (1, 1, 2))
    assert digest(one) == digest(same) != digest(other)


def test_a_lambda_that_a_closure_holds_is_told_from_others_of_its_line():
    one, other = written(HELD, "pair")
    assert one(1) != other(1)
    assert source_digest(one) != source_digest(other)


def test_the_digest_of_a_lambda_alone_is_that_of_earlier_versions():
    alone = written("alone = lambda x: x + 1\n", "alone")
    assert source_digest(alone) == hashlib.sha256(b"alone = lambda x: x + 1\n[]").hexdigest()[:16]


def test_functions_of_another_module_of_the_user_count():
    module = made()
    digests = set()
    for rate in (0.1, 0.2):
        other = ModuleType("another_of_the_user")
        exec(SOURCE.format(**{**FIRST, "rate": rate}), other.__dict__)
        module.__globals__["inner"] = other.outer
        digests.add(repr(values_used(module)))
        module.__globals__["inner"] = other  # as `import another_of_the_user`
        sys.modules[other.__name__] = other
        namespace = {"other": other, "np": np}
        exec("def calls(x):\n    return other.outer(x) + np.pi", namespace)
        digests.add(repr(values_used(namespace["calls"])))
    assert len(digests) == 4


def test_digests_are_the_same_in_every_process():
    code = (
        "from tests.test_user_code import *\n"
        "print([d(given(name)) for name in CHANGES for d in (code_digest, source_digest)])"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_values_that_contain_themselves_and_cells_that_are_empty_end():
    namespace: dict[str, Any] = {}
    exec(
        "LOOP = [1]\nLOOP.append(LOOP)\n"
        "def loop(x):\n    return LOOP[x]\n"
        "def around():\n"
        "    def again(n):\n        return n and again(n - 1) + later\n"
        "    yield again\n    later = 1\n",
        namespace,
    )
    assert values_used(namespace["loop"])["LOOP"][0] == 1
    assert source_digest(next(namespace["around"]())) != source_digest(namespace["loop"])
