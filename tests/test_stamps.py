"""What identifies a user's function: its text, the values and the functions that it uses."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from memowidgets.stamps import code_digest, values_used

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


def test_functions_of_other_modules_do_not_count():
    one = made()
    one.__globals__["inner"] = values_used
    assert set(values_used(one)) == set()


def test_a_function_that_calls_itself_ends():
    namespace: dict[str, Any] = {}
    exec("def again(n):\n    return n and again(n - 1)\n", namespace)
    assert values_used(namespace["again"]) == {}


def test_many_functions_that_call_each_other_are_looked_at_once():
    namespace: dict[str, Any] = {}
    calls = " + ".join(f"f{i}(n)" for i in range(40))
    exec("\n".join(f"def f{i}(n):\n    return n and {calls}" for i in range(40)), namespace)
    assert len(values_used(namespace["f0"])) == 39
