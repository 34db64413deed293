"""Test that a remembered function depends on its arguments alone, as the code that it reaches shows."""

from __future__ import annotations

import builtins
import dis
import os
import random
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from dualdnn.api import cudnn
from dualdnn.api.abi.memo.keys import is_answered
from dualdnn.api.answers import depends_on_more, is_repeated
from dualdnn.api.document import functions

IMPURE = {
    "time",
    "datetime",
    "os",
    "sys",
    "random",
    "secrets",
    "uuid",
    "socket",
    "tempfile",
    "threading",
    "numpy.random",
}
FOLLOWED = "dualdnn.api."
# Logged calls are not remembered, and the emulated release is part of a call's key. Bodies create no handles.
NOT_FOLLOWED = ("dualdnn.api.api_log", "dualdnn.api.releases", "dualdnn.api.handle")
calls_made = 0


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, then the code of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@cache
def globals_of(function: FunctionType) -> list[tuple[str, Any]]:
    """Return the name and value of each global and import that a function uses, and of each attribute of a module."""
    found = []
    for code in codes(function.__code__):
        value: Any = None
        steps = list(dis.get_instructions(code))
        for i, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":  # The level of a relative import is loaded two steps before.
                name = "." * steps[i - 2].argval + step.argval
                value = module = import_module(name, function.__globals__.get("__package__"))
            elif step.opname == "IMPORT_FROM":
                value = getattr(module, step.argval)
            elif step.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"):
                value = function.__globals__.get(step.argval, getattr(builtins, step.argval, None))
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType):
                value = getattr(value, step.argval, None)
            else:
                value = None
                continue
            found.append((step.argval, value))
    return found


def functions_of(value: Any) -> list[FunctionType]:
    """Return this project's functions that a global leads to: itself, or the methods of a class."""
    value = getattr(value, "__wrapped__", value)
    found = list(vars(value).values()) if isinstance(value, type) else [value]
    found = [getattr(item, "fget", None) or getattr(item, "__func__", item) for item in found]
    return [f for f in found if isinstance(f, FunctionType) and f.__module__.startswith(FOLLOWED)]


def is_impure(name: str, value: Any) -> bool:
    """Return whether a global is a variable, or belongs to an impure module. Names in capitals are constants."""
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    is_variable = not (
        callable(value) or isinstance(value, ModuleType) or name.lstrip("_")[:1].isupper() or name.startswith("__")
    )
    return is_variable or module in IMPURE or value in (open, input)


def impurities(body: Callable[..., Any]) -> set[str]:
    """Return what a body uses besides its arguments, as "function uses name"."""
    waiting, met, found = [body], set(), set()
    while waiting:
        function = waiting.pop()
        if function not in met and not function.__module__.startswith(NOT_FOLLOWED):
            met.add(function)
            for name, value in globals_of(function):
                if is_impure(name, value):
                    found.add(f"{function.__qualname__} uses {name}")
                waiting += functions_of(value)
    return found


def bodies(is_wanted: Callable[[str], bool]) -> dict[str, Callable[..., Any]]:
    """Return the bodies of the documented functions whose names are wanted."""
    calls = {name: getattr(cudnn, name, None) for name in functions() if is_wanted(name)}
    return {name: call.__wrapped__ for name, call in calls.items() if hasattr(call, "__wrapped__")}


def is_remembered_by_python(name: str) -> bool:
    """Return whether Python keeps a function's answers, or the operations that its body makes."""
    return is_repeated(functions()[name]) or hasattr(getattr(cudnn, name, None), "computing")


def test_remembered_functions_use_their_arguments_alone() -> None:
    """No remembered function reaches a module's variable, a clock, file, environment, thread or random number."""
    remembered = bodies(lambda name: is_answered(functions()[name]) or is_remembered_by_python(name))
    assert len(remembered) > 190
    impure = {name: found for name, body in remembered.items() if (found := impurities(body))}
    assert not impure, f"name these in NEVER of api/answers.py, or pass what they use as arguments: {impure}"


def test_functions_that_depend_on_other_calls_are_noticed() -> None:
    noticed = {name for name, body in bodies(depends_on_more).items() if impurities(body)}
    assert "cudnnGetCallback" in noticed


def timed(mode: int) -> float:
    from time import monotonic

    return mode + monotonic()


def counts(mode: int) -> int:
    global calls_made
    calls_made += 1
    return mode


@pytest.mark.parametrize(
    "body",
    [
        lambda mode: mode + time.monotonic(),
        lambda mode: [random.random() for _ in range(mode)],
        lambda mode: os.environ.get("MODE", mode),
        lambda mode: input(mode),
        lambda mode: mode + calls_made,
        counts,
        timed,
    ],
    ids=["clock", "random", "environment", "input", "variable", "counter", "import"],
)
def test_a_body_that_uses_more_than_its_arguments_is_noticed(body: Callable[..., Any]) -> None:
    assert impurities(body)
