"""Evaluates operations: the one place where inputs are read, results blended, rounded and stored.

An implementation gets the operation and its inputs as plain arrays in wide arithmetic and returns an ``Exact`` result
per output: the value before blending and how far a correct implementation in the operation's compute type may be from
it. The backend stores the value, the judge (see ``judge.py``) uses the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.api.operations.specs import DOUBLE

from .view import Array, read, wide_type, write

Number = float | int


@dataclass(frozen=True)
class Exact:
    """A result in wide arithmetic and the error that arithmetic in the compute type may add to it.

    value: the result before alpha and beta.
    magnitude: the sum of the absolute values of all terms that enter it (the operation on absolute values), or a
        function that computes it: only the judge needs it.
    roundings: how many roundings of the compute type each of these terms may go through.
    raw: the output is written as it is (indices), not blended.
    """

    value: Array
    magnitude: Array | Callable[[], Array]
    roundings: Array | Number | Callable[[], Array] = 0
    raw: bool = False


Implementation = Callable[..., Exact | dict[str, Exact]]
_IMPLEMENTATIONS: dict[type[Operation], Implementation] = {}


def implements(operation_type: type[Operation]) -> Callable[[Implementation], Implementation]:
    """Register the reference of an operation: a function of (operation, one array per input in its order)."""

    def register(implementation: Implementation) -> Implementation:
        _IMPLEMENTATIONS[operation_type] = implementation
        return implementation

    return register


def implemented() -> tuple[type[Operation], ...]:
    return tuple(_IMPLEMENTATIONS)


def evaluate(operation: Operation, memory: Mapping[str, Array]) -> dict[str, Exact]:
    """The exact results of every output, from the bytes of the operation's inputs."""
    wide = wide_type(operation.compute_type)
    with np.errstate(all="ignore"):  # an operand that does not count, as beta or alpha2 is 0, may hold anything
        inputs = [read(operation.tensor(name), memory[name], wide) for name in operation.inputs]
        results = _IMPLEMENTATIONS[type(operation)](operation, *inputs)
    return results if isinstance(results, dict) else {operation.outputs[0]: results}


def blended(operation: Operation, name: str, exact: Exact, memory: Mapping[str, Array]) -> Array:
    """alpha * result + beta * prior output; beta == 0 does not read the prior output."""
    alpha, beta = operation.blend
    value = exact.value if alpha == 1 else alpha * exact.value
    if beta != 0:
        value = value + beta * read(operation.tensor(name), memory[name], wide_type(operation.compute_type))
    return value


def run(operation: Operation, memory: Mapping[str, Array]) -> None:
    """Compute the operation on ``memory``: operand name -> its bytes."""
    results = evaluate(operation, memory)
    for name, exact in results.items():
        if exact.raw:
            memory[name][: exact.value.nbytes] = np.frombuffer(exact.value.tobytes(), np.uint8)
            continue
        with np.errstate(all="ignore"):
            values = blended(operation, name, exact, memory)
        write(operation.tensor(name), memory[name], np.broadcast_to(values, operation.tensor(name).dims))


def in_compute_type(operation: Operation, value: float) -> float:
    """A double parameter as the operation's arithmetic sees it: rounded to float, unless that is double."""
    return value if operation.compute_type == DOUBLE else float(np.float32(value))


def magnitude_of(exact: Exact) -> Array:
    return exact.magnitude() if callable(exact.magnitude) else exact.magnitude


def roundings_of(exact: Exact) -> Any:
    return exact.roundings() if callable(exact.roundings) else exact.roundings
