"""How a formula reads memory: one element, or a box of them, at the addresses that strides and vectors of channels say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES
from dualdnn.api.operations.specs import DOUBLE

Index = tuple[int, ...]
Memory = Mapping[str, np.ndarray[Any, Any]]


class Untold(Exception):
    """Why a formula does not say what an element is."""


class Found(NamedTuple):
    """What a formula says: the value before alpha and beta, and the sum of the absolute values of the ``terms`` terms that enter it.

    size is None where the formula does not say what rounding may do.
    """

    value: float
    size: float | None = None
    terms: int = 1


class Elements:
    """The operands of one call as they were before it. ``most`` bounds how many elements one output element may read."""

    def __init__(self, operation: Operation, memory: Memory, most: int) -> None:
        self.operation, self.memory, self.most, self.reads = operation, memory, most, 0
        self.remembered: dict[Any, Any] = {}  # what several elements of an output share
        self._flat: dict[str, Any] = {}

    def __call__(self, operand: str, index: Sequence[int]) -> float:
        """The element at (n, c, spatial ...)."""
        self._count(1)
        spec, flat = self.operation.tensor(operand), self._scalars(operand)
        length = spec.vector_length
        if length == 1:
            return float(flat[sum(i * stride for i, stride in zip(index, spec.strides, strict=True))])
        inside = list(index)
        inside[1] //= length
        place = sum(i * stride for i, stride in zip(inside, spec.strides, strict=True))
        return float(flat[place * length + index[1] % length])

    def box(self, operand: str, ranges: Sequence[range]) -> list[float]:
        """The elements at every combination of the ranges, in row-major order."""
        self._count(math.prod(map(len, ranges)))
        spec = self.operation.tensor(operand)
        if spec.vector_length > 1:
            return [self(operand, index) for index in product(*ranges)]
        flat = self._scalars(operand)
        first = sum(r.start * stride for r, stride in zip(ranges, spec.strides, strict=True))
        steps = [r.step * stride * flat.itemsize for r, stride in zip(ranges, spec.strides, strict=True)]
        if not all(map(len, ranges)):
            return []
        found = np.ndarray([len(r) for r in ranges], flat.dtype, flat, first * flat.itemsize, steps)
        numbers: list[float] = found.astype(np.float64).ravel().tolist()
        return numbers

    def bytes(self, operand: str) -> np.ndarray[Any, Any]:
        """Memory without a description, as it is."""
        self._count(1)
        return self.memory[operand][: self.operation.nbytes(operand)]

    def parameter(self, value: float) -> float:
        """A double of the call as the computation sees it: rounded to float, unless that is in double."""
        return value if self.operation.compute_type == DOUBLE else float(np.float32(value))

    def _scalars(self, operand: str) -> Any:
        if operand not in self._flat:
            dtype = NUMPY_TYPES[self.operation.tensor(operand).scalar_type]
            memory = self.memory[operand]
            self._flat[operand] = memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return self._flat[operand]

    def _count(self, number: int) -> None:
        self.reads += number
        if self.reads > self.most:
            raise Untold(f"it reads more than {self.most} elements")


def total(terms: Iterable[float]) -> float:
    """The sum, rounded once where it is a number."""
    listed = list(terms)
    try:
        return math.fsum(listed)
    except (OverflowError, ValueError):  # an intermediate sum overflows; infinities of both signs
        return sum(listed)


def summed(terms: Iterable[float]) -> Found:
    """A sum with the sizes of its terms."""
    listed = list(terms)
    return Found(total(listed), total(map(abs, listed)), len(listed))


def quotient(a: float, b: float) -> float:
    """a / b of floating-point numbers: infinite or NaN where b is zero."""
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def exponential(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def power(base: float, exponent: float) -> float:
    """base ** exponent; NaN of a negative base, unless the exponent is whole."""
    if base < 0 and not float(exponent).is_integer():
        return math.nan
    try:
        return float(base**exponent)
    except ZeroDivisionError:
        return math.inf
    except OverflowError:
        return math.inf


def clipped(first: int, count: int, extent: int, step: int = 1) -> range:
    """Of the positions first, first + step ..., those of the first ``count`` that lie in [0, extent)."""
    skipped = max(0, -(first // step)) if first < 0 else 0
    start = first + skipped * step
    stop = min(first + count * step, extent)
    return range(start, max(start, stop), step)
