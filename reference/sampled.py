"""Judge a sample of a call's elements by their formulas, without computing the rest.

Whole tensors of a training step take seconds each. Two hundred elements, over all images and channels, take
milliseconds, and only the memory they depend on is read. The bounds are those of the judge (docs/tolerance.md),
computed from the formulas' sizes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import (
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    Operation,
)
from dualdnn.api.operations.specs import INT32

from . import formulas
from .convolution import backward_data, backward_filter
from .convolution import bounds as forward
from .convolution.forward import EPILOGUE_ROUNDINGS
from .engine import Exact
from .formulas import Elements, Found, Index, Memory, Pages, Untold
from .judge import Disagreement, bounds, interval
from .spots import sample
from .view import wide_type

READS = 2**21  # input elements that the sample of one call may read: half a second
SUMS = (
    ConvolutionForward,
    ConvolutionBiasActivationForward,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
)

# These algorithms transform planes, by FFT or by Winograd's minimal filtering.
TRANSFORMS: dict[Any, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    ConvolutionBackwardData: (backward_data.FFT, backward_data.WINOGRAD),
    ConvolutionBackwardFilter: (backward_filter.FFT, (backward_filter.WINOGRAD,)),
    (ConvolutionForward, ConvolutionBiasActivationForward): (forward.FFT, forward.WINOGRAD),
}


class Expected(NamedTuple):
    """Hold the expected blended value of an element, and how far a correct implementation may be from it."""

    output: str
    place: Index
    value: float
    bound: float


@dataclass
class Sample:
    """Hold the judged sample of one call.

    ratios: signed error of each element over the allowed error. wrong: elements outside their bounds, worst first.
    untold: why formulas did not determine elements, with counts.
    """

    ratios: list[float] = field(default_factory=list)
    wrong: list[Disagreement] = field(default_factory=list)
    untold: Counter[str] = field(default_factory=Counter)

    @property
    def worst(self) -> float:
        return max(map(abs, self.ratios), default=0.0)

    @property
    def rms(self) -> float:
        return math.sqrt(math.fsum(ratio * ratio for ratio in self.ratios) / max(1, len(self.ratios)))

    @property
    def bias(self) -> float:
        return math.fsum(self.ratios) / max(1, len(self.ratios))


def expected(operation: Operation, memory: Memory, indices: dict[str, list[Index]], said: Sample) -> list[Expected]:
    """Return what formulas give for these elements, taking the outputs in turn.

    It stops after ``READS`` read elements, once each output has had one. ``said`` counts the elements without an
    answer.
    """
    read, found = Elements(operation, memory, formulas.MAX_READS * 64), []
    rounds = zip_longest(*([(output, index) for index in places] for output, places in indices.items()))
    for number, turn in enumerate(rounds):
        for output, index in filter(None, turn):
            if number and read.all_reads > READS:
                said.untold["the sample has read enough"] += 1
                continue
            try:
                found.append(_expected(operation, output, index, read))
            except (Untold, ArithmeticError, ValueError) as why:
                said.untold[str(why)] += 1
    return found


def places_of(operation: Operation, count: int, seed: int) -> dict[str, list[Index]]:
    """Return the sampled indices of each output that has a descriptor."""
    return {
        name: sample(operation.tensor(name).dims, count, seed, is_scattered=True) for name in operation.tensors_written
    }


def _expected(operation: Operation, output: str, index: Index, read: Elements) -> Expected:
    found = formulas.element_of(operation, output, index, read)
    if found.size is None:
        raise Untold(f"no bound follows from the formula of {type(operation).__name__}")
    value = formulas.blended(operation, output, index, read, found.value)
    size, roundings = _rounding(operation, index, found, read)
    place, wide = _place(operation, output, index), wide_type(operation.compute_type)
    shape = tuple(part.stop - part.start for part in place)
    exact = Exact(np.full(shape, found.value, wide), np.full(shape, size), roundings)
    before = {name: array.bytes if isinstance(array, Pages) else array for name, array in read.memory.items()}
    with np.errstate(all="ignore"):
        _, bound = bounds(operation, output, exact, before, place)
    return Expected(output, index, value, float(bound.max()))


def _place(operation: Operation, output: str, index: Index) -> tuple[slice, ...]:
    """Return the slices of the element.

    For vectors of channels they cover the whole vector, and its worst bound counts.
    """
    length = operation.tensor(output).vector_length
    first = index[1] // length * length
    return (slice(index[0], index[0] + 1), slice(first, first + length), *(slice(i, i + 1) for i in index[2:]))


def _rounding(o: Any, index: Index, found: Found, read: Elements) -> tuple[float, float]:
    """Return the size that roundings are relative to, and their number."""
    assert found.size is not None
    if not isinstance(o, SUMS):
        return found.size, found.terms
    compute = o.convolution.compute_type
    if compute == INT32:
        return (abs(found.value) if found.size < forward.INT32_LIMIT else math.inf), 1 + EPILOGUE_ROUNDINGS
    growth = 1.0
    size = found.size if (terms := _transformed(o, index, read)) is None else terms
    if isinstance(o, ConvolutionBiasActivationForward):
        growth = abs(o.alpha1)
        size = found.size if terms is None else growth * terms + found.size
        roundings: float = forward.roundings(o) + EPILOGUE_ROUNDINGS
    elif isinstance(o, ConvolutionForward):
        roundings = forward.roundings(o)
    else:
        roundings = (backward_data if isinstance(o, ConvolutionBackwardData) else backward_filter).roundings(o)
    return float(forward.in_range(np.asarray(size), compute)), roundings


def _transformed(o: Any, index: Index, read: Elements) -> float | None:
    """Return the sum of absolute terms of an algorithm that transforms planes, by norms or largest elements;
    else None.
    """
    transforms = next(found for kind, found in TRANSFORMS.items() if isinstance(o, kind))
    by_norm, by_largest = (o.algo in algorithms for algorithms in transforms)
    if not by_norm and not by_largest:
        return None
    rank, groups = o.convolution.rank, o.convolution.group_count
    if isinstance(o, ConvolutionBackwardFilter):
        k, c = index[:2]
        channel = k // (o.dw.dims[0] // groups) * o.dw.dims[1] + c
        planes = [(("x", n, channel), ("dy", n, k)) for n in range(o.x.dims[0])]
        growth = (
            forward.winograd_growth(o.dw.dims[2], backward_filter.WINOGRAD_TILE + 1 - o.dw.dims[2]) ** rank
            if by_largest
            else 1.0
        )
        other = "sum"
    else:
        growth = forward.winograd_growth(forward.WINOGRAD_OUTPUTS, o.w.dims[2]) ** rank if by_largest else 1.0
        other, filters, depth = "largest", o.w.dims[0] // groups, o.w.dims[1]
        n, channel = index[:2]
        if isinstance(o, ConvolutionBackwardData):
            group, c = divmod(channel, depth)
            planes = [(("dy", n, k), ("w", k, c)) for k in range(group * filters, (group + 1) * filters)]
        else:
            first = channel // filters * depth
            planes = [(("x", n, first + c), ("w", channel, c)) for c in range(depth)]
    kinds = ("norm", "norm") if by_norm else ("largest", other)
    near = _nearby(o, index, read.operation.tensor(planes[0][0][0]).dims) if by_largest else None
    return growth * math.fsum(_plane(read, *a, near)[kinds[0]] * _plane(read, *b)[kinds[1]] for a, b in planes)


def _nearby(o: Any, index: Index, dims: Index) -> tuple[range, ...] | None:
    """Return the ranges of all Winograd tiles that may contain an element.

    Return None for a filter, because all tiles enter its elements.
    """
    if isinstance(o, ConvolutionBackwardFilter):
        return None
    around, found = forward.WINOGRAD_OUTPUTS - 1, []
    for d, (i, extent) in enumerate(zip(index[2:], dims[2:], strict=True)):
        taps, padding = o.w.dims[2 + d], o.convolution.padding[d]
        first = (i + padding - taps + 1 if isinstance(o, ConvolutionBackwardData) else i - padding) - around
        found.append(range(max(0, first), max(0, min(extent, first + taps + 2 * around))))
    return tuple(found)


def _plane(
    read: Elements, operand: str, first: int, second: int, near: tuple[range, ...] | None = None
) -> dict[str, float]:
    """Return the norm, the largest element and the sum of the absolute values of a plane, or of its ``near`` part."""
    key = ("plane", operand, first, second, near)
    if key not in read.remembered:
        places = near or tuple(map(range, read.operation.tensor(operand).dims[2:]))
        values = read.box(operand, [range(first, first + 1), range(second, second + 1), *places])
        sizes = [abs(value) for value in values]
        read.remembered[key] = {
            "norm": math.sqrt(math.fsum(size * size for size in sizes)),
            "largest": max(sizes, default=0.0),
            "sum": math.fsum(sizes),
        }
    found: dict[str, float] = read.remembered[key]
    return found


def compare(operation: Operation, wanted: list[Expected], got: Callable[[str, Index], float], said: Sample) -> None:
    """Compare the elements that a call wrote with the expected ones, and record the result in ``said``."""
    for output, index, value, bound in wanted:
        if math.isinf(bound):
            said.untold["nothing is determined there"] += 1
            continue
        number, kind = got(output, index), operation.tensor(output).scalar_type
        with np.errstate(all="ignore"):
            lowest, highest, half = (float(a[0]) for a in interval(np.array([value]), np.array([bound]), kind))
        allowed = bound + half
        if lowest <= number <= highest or (math.isnan(value) and (math.isnan(number) or number == 0 == lowest)):
            said.ratios.append(min(1.0, max(-1.0, (number - value) / allowed)) if number != value and allowed else 0.0)
            continue
        ratio = abs(number - value) / allowed if math.isfinite(number - value) and allowed else math.inf
        said.wrong.append(Disagreement(output, index, number, value, allowed, ratio))
    said.wrong.sort(key=lambda found: -found.ratio)
