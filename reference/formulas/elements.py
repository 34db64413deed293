"""Read memory for a formula: one element or a box of elements, addressed by strides and channel vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES
from dualdnn.api.operations.specs import DOUBLE, TensorSpec

Index = tuple[int, ...]
Array = np.ndarray[Any, Any]
Bytes = Array
PAGE = 2**16  # bytes that are copied at a time
COMPARED = 32  # pages of an operand that are copied again to see whether they changed


class Untold(Exception):
    """Say why a formula does not determine an element."""


class Found(NamedTuple):
    """Hold the result of a formula: the value before alpha and beta, and the sum of its ``terms`` absolute terms.

    size is None where the formula has no rounding bound.
    """

    value: float
    size: float | None = None
    terms: int = 1


class Pages:
    """Mirror remote memory, copying pages only when they are read.

    ``copy`` copies a number of bytes from an offset. ``bytes`` is valid only in the copied pages.
    """

    def __init__(self, size: int, copy: Callable[[int, int], Bytes]) -> None:
        self.bytes: Bytes = np.empty(size, np.uint8)
        self.copy, self.there = copy, np.zeros(-(-size // PAGE), bool)

    def need(self, places: Any) -> None:
        """Copy the pages that contain these bytes, adjacent pages together."""
        marked = np.zeros_like(self.there)
        marked[np.asarray(places) // PAGE] = True
        wanted = np.flatnonzero(marked & ~self.there)
        if not wanted.size:
            return
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1):
            begin, end = int(run[0]) * PAGE, min((int(run[-1]) + 1) * PAGE, self.bytes.size)
            self.bytes[begin:end] = self.copy(begin, end - begin)
        self.there[wanted] = True

    def changed(self) -> int:
        """Return how many bytes of some of the copied pages differ from the remote memory at this moment."""
        found, copied = 0, np.flatnonzero(self.there)
        for page in copied[:: -(-copied.size // COMPARED) or 1]:
            begin, end = int(page) * PAGE, min((int(page) + 1) * PAGE, self.bytes.size)
            found += int(np.count_nonzero(self.bytes[begin:end] != self.copy(begin, end - begin)))
        return found


Memory = Mapping[str, Bytes | Pages]


class Elements:
    """Hold the operands of one call as they were before it, and of earlier calls whose reserve space it reads.

    ``most`` bounds how many elements one output element may read. reads counts those of the current element, all_reads
    those of all elements so far.
    """

    def __init__(
        self, operation: Operation, memory: Memory, most: int, earlier: Sequence[tuple[Operation, Memory]] = ()
    ) -> None:
        """Take the operands of the call, and the calls that wrote what it reads of raw memory with their operands."""
        self.earlier = [call for call, _ in earlier]
        for _, before in reversed(earlier):
            memory = {**before, **memory}
        self.operation, self.memory, self.most, self.reads, self.all_reads = operation, memory, most, 0, 0
        self.remembered: dict[Any, Any] = {}  # values that several elements of an output share
        self._flat: dict[str, Any] = {}
        self._specs: dict[str, TensorSpec] = {}  # operands that another call or no field of this one describes

    def __call__(self, operand: str, index: Sequence[int]) -> float:
        """Return the element at (n, c, spatial ...)."""
        self._count(1)
        spec, flat = self._spec(operand), self._scalars(operand)
        length, inside = spec.vector_length, list(index)
        if length > 1:
            inside[1] //= length
        place = sum(i * stride for i, stride in zip(inside, spec.strides, strict=True))
        if length > 1:
            place = place * length + index[1] % length
        self._need(operand, place, flat)
        return float(flat[place])

    def box(self, operand: str, ranges: Sequence[range]) -> list[float]:
        """Return the elements at every combination of the ranges, in row-major order."""
        numbers: list[float] = self.array(operand, ranges).tolist()
        return numbers

    def array(self, operand: str, ranges: Sequence[range]) -> Array:
        """Return the elements of ``box`` as one row of doubles, for sums of many."""
        self._count(math.prod(map(len, ranges)))
        return self._array(operand, ranges)

    def _array(self, operand: str, ranges: Sequence[range]) -> Array:
        spec = self._spec(operand)
        if spec.vector_length > 1:
            return np.array([self(operand, index) for index in product(*ranges)], np.float64)
        flat = self._scalars(operand)
        if not all(map(len, ranges)):
            return np.empty(0)
        if isinstance(self.memory[operand], Pages):
            rows = [np.asarray(r) * stride for r, stride in zip(ranges, spec.strides, strict=True)]
            places: Any = sum(np.ix_(*rows))
            self._need(operand, places, flat)
            found = flat[places]
        else:
            first = sum(r.start * stride for r, stride in zip(ranges, spec.strides, strict=True))
            steps = [r.step * stride * flat.itemsize for r, stride in zip(ranges, spec.strides, strict=True)]
            found = np.ndarray([len(r) for r in ranges], flat.dtype, flat, first * flat.itemsize, steps)
        return found.astype(np.float64).ravel()

    def whole(self, operand: str, spec: TensorSpec) -> list[float]:
        """Return all elements of an operand in row-major order, however many. spec describes it."""
        if operand not in self.memory:
            raise Untold(f"the memory of {operand} is not known")
        self._specs[operand] = spec
        numbers: list[float] = self._array(operand, [range(extent) for extent in spec.dims]).tolist()
        return numbers

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """Return what ``make`` made when it was first asked for this key. It fails again where it failed."""
        if key not in self.remembered:
            try:
                self.remembered[key] = make()
            except (Untold, ArithmeticError, ValueError) as why:
                self.remembered[key] = Untold(f"{type(why).__name__}: {why}")
        if isinstance(self.remembered[key], Untold):
            raise self.remembered[key]
        return self.remembered[key]

    def bytes(self, operand: str) -> np.ndarray[Any, Any]:
        """Return the raw bytes of memory without a descriptor."""
        self._count(1)
        memory, size = self.memory[operand], self.operation.nbytes(operand)
        if isinstance(memory, Pages):
            memory.need(np.arange(0, size + PAGE, PAGE).clip(max=max(0, size - 1)))
            memory = memory.bytes
        return memory[:size]

    def parameter(self, value: float) -> float:
        """Return a double parameter rounded to float, unless the operation computes in double."""
        return value if self.operation.compute_type == DOUBLE else float(np.float32(value))

    def _spec(self, operand: str) -> TensorSpec:
        return self._specs.get(operand) or self.operation.tensor(operand)

    def _scalars(self, operand: str) -> Any:
        if operand not in self._flat:
            dtype = NUMPY_TYPES[self._spec(operand).scalar_type]
            memory = self.memory[operand]
            memory = memory.bytes if isinstance(memory, Pages) else memory
            self._flat[operand] = memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return self._flat[operand]

    def _need(self, operand: str, places: Any, flat: Any) -> None:
        memory = self.memory[operand]
        if isinstance(memory, Pages):
            memory.need(np.asarray(places) * flat.itemsize)

    def _count(self, number: int) -> None:
        self.reads += number
        self.all_reads += number
        if self.reads > self.most:
            raise Untold(f"it reads more than {self.most} elements")


def total(terms: Iterable[float]) -> float:
    """Return the sum, rounded once if it is finite. An array is summed in extended precision."""
    if isinstance(terms, np.ndarray):
        return float(terms.sum(dtype=np.longdouble))
    listed = list(terms)
    try:
        return math.fsum(listed)
    except (OverflowError, ValueError):  # An intermediate sum overflows, or there are infinities of both signs.
        return sum(listed)


def summed(terms: Iterable[float]) -> Found:
    """Return a sum with the sizes of its terms."""
    if isinstance(terms, np.ndarray):
        return Found(total(terms), total(np.abs(terms)), len(terms))
    listed = list(terms)
    return Found(total(listed), total(map(abs, listed)), len(listed))


def quotient(a: float, b: float) -> float:
    """Return a / b in floating point: infinite or NaN where b is zero."""
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def exponential(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def power(base: float, exponent: float) -> float:
    """Return base ** exponent, or NaN for a negative base and a fractional exponent."""
    if base < 0 and not float(exponent).is_integer():
        return math.nan
    try:
        return float(base**exponent)
    except ZeroDivisionError:
        return math.inf
    except OverflowError:
        return math.inf


def clipped(first: int, count: int, extent: int, step: int = 1) -> range:
    """Return the positions first, first + step ... (``count`` of them) that are in [0, extent)."""
    skipped = max(0, -(first // step)) if first < 0 else 0
    start = first + skipped * step
    stop = min(first + count * step, extent)
    return range(start, max(start, stop), step)
