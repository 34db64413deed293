"""Judge random data by sharper rules: how large rounding errors are in practice (derivation: docs/tolerance.md).

The worst case grows with the number of roundings. Real errors of sums grow with its square root, and errors of
functions stay near one unit. An output inside its worst case but outside one of these rules is suspect, not wrong. The
rules apply to seeded random inputs, whose values do not depend on the order of summation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations.specs import DOUBLE

from .precision import PRECISION
from .view import Array, Place

Number = float | int

DEVIATIONS = 3.0  # multiple of the 2-norm of all rounding errors beyond which an output is suspect
MAX_OF_EXPECTED = 6  # largest ratio of a sum's squared roundings, r^2 + q^2, to the expected r^2/3 + q^2/6
VARIANCE = (
    # variance of one rounding to nearest, in (unit |x|)^2: 1/3, times the mean of (step / largest step)^2 over
    # mantissas
    0.18
)
# Tensor cores truncate sums and lose these units per product, measured on an H100 (reports/tensor_cores.md). Each pair
# has the most of one element, and the deviation where all terms have one sign.
CUT_OF_TF32 = (0.17, 0.22)
CUT_OF_HALF = (0.125, 0.19)
PRODUCTS = 3  # extra additions in the root mean square, for products that are rounded before they are added
BLEND_ROUNDINGS = 3
MIN_COUNT = 256  # elements that an output needs for a meaningful root mean square
MAX_RMS = 1.25  # root mean square of a large output over the expected one
MAX_BIAS = 0.35  # mean of a large output in expected deviations
FEW = 6.0  # FEW / sqrt(elements) is added to both limits
MIN_EXACT = 2.0**-100  # below this, results may be subnormal or flushed
MIN_OF_FUNCTION = 100  # elements that the root mean square of a function needs
MAX_OF_FUNCTION = 2.0  # roundings, root mean square of a function's errors
MAX_IN_ROWS = 1.5  # roundings, root mean square of the errors within rows
# values of a part before and after blending, and the worst case's bound before rounding
Outcome = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Spread:
    """Model the rounding errors of an output's sums.

    norm: 2-norm of the terms of each element, before alpha.

    additions: roundings of each sum; one number, or one for each element.

    unit: unit roundoff of the adding type; None for the compute type.

    factors: unit roundoff of the type to which both factors of each product are rounded (TF32); 0 if they are not
    rounded.

    cut: number of products that tensor cores may truncate; 0 if sums are rounded.

    shared: error in unit roundoffs that each result or all results share (``of_reciprocal``), so that it does not
    average out.

    independent: elements share no rounding (as they share that of a reciprocal), so that their mean error is near 0.

    shares_factors: most elements share a few rounded factors, so that neither their root mean square nor their mean
    tells anything.
    """

    norm: Array
    additions: Array | Number
    unit: float | None = None
    factors: float = 0.0
    cut: Number = 0
    shared: Array | Number = 0
    independent: bool = False
    shares_factors: bool = False

    def errors(self) -> Errors:
        """Return an empty collection of errors for an output."""
        return SumErrors()

    def part(self, dims: tuple[int, ...], place: Place) -> Spread:
        """Return the model of a part of an output with these dimensions."""

        def there(values: Array) -> Array:
            return np.broadcast_to(values, dims)[place]

        additions, shared = (
            there(values) if isinstance(values, np.ndarray) else values for values in (self.additions, self.shared)
        )
        return replace(self, norm=there(self.norm), additions=additions, shared=shared)

    def squares(self, total: Array, unit: float) -> Array:
        """Return the expected squared errors as one of several steps (``Steps``), for sums with this value.

        They are in unit roundoffs of the compute type.
        """
        norms = np.square(self.norm)
        max_cut = (CUT_OF_TF32 if self.factors else CUT_OF_HALF)[0]
        of_cut = few(max_cut * self.cut) * (np.square(total) + norms)
        return walked(self.additions, total, self.norm) + of_cut + each_rounded(self.factors / unit, norms, 2)


@dataclass(frozen=True)
class Steps:
    """Model the errors of a result of several steps: sums, and functions of sums.

    squares: for each element, the expected squares of all roundings before alpha, in unit roundoffs of the compute
    type. ``walked`` gives those of a sum, ``few`` those of a few roundings. Elements share errors (such as that of a
    mean), so their root mean square tells nothing.
    """

    squares: Array

    def errors(self) -> Errors:
        """Return an empty collection of errors for an output."""
        return StepErrors()

    def part(self, dims: tuple[int, ...], place: Place) -> Steps:
        """Return the model of a part of an output with these dimensions."""
        return Steps(np.broadcast_to(self.squares, dims)[place])


def walked(additions: Array | Number, total: Array | Number, norm: Array | Number) -> Array:
    """Return the expected squared roundings of a sum, given its total and the 2-norm of its terms."""
    return np.asarray(additions * (np.square(total) / 3 + np.square(norm) / 6))


def of_reciprocal(divisor: Array, compute_type: cudnnDataType_t) -> Array:
    """Return the error, in unit roundoffs, of multiplying by the rounded reciprocal instead of dividing by this
    number.
    """
    narrow, divisor = np.float64 if compute_type == DOUBLE else np.float32, divisor.astype(np.longdouble)
    return np.asarray(np.abs((1 / divisor).astype(narrow) * divisor - 1) / PRECISION[compute_type][0])


def few(roundings: Array | Number) -> Any:
    """Return the squares that allow this many roundings of 1, each at its worst."""
    return np.square(roundings) / (DEVIATIONS**2 * MAX_OF_EXPECTED)


def reach_of(squares: Array) -> Array:
    """Return the largest allowed error of results with these expected squares."""
    return np.asarray(DEVIATIONS * np.sqrt(MAX_OF_EXPECTED * squares))


def each_rounded(roundoff: Array | Number, squares: Array | Number, times: Number = 1) -> Array:
    """Return the expected squares if each term of a sum is rounded ``times`` times to ``roundoff`` unit roundoffs.

    ``squares`` is the sum of the squared terms.
    """
    return np.asarray(times * np.square(roundoff) / MAX_OF_EXPECTED * squares)


@dataclass(frozen=True)
class Relative:
    """Model the errors of functions: a few roundings of each result's own size, however long the sums in it are.

    size: the sum of the absolute terms of each element, before alpha. weight: what an error of the argument adds to one
    rounding. axes: the dimensions of a row, whose elements share the error of their sum, which is removed; empty if
    they share none.
    """

    size: Array
    weight: Array | Number = 1
    axes: tuple[int, ...] = ()

    def errors(self) -> Errors:
        """Return an empty collection of errors for an output."""
        return FunctionErrors(MAX_IN_ROWS if self.axes else MAX_OF_FUNCTION, bool(self.axes))


class Errors:
    """Collect the errors of one output, relative to the expected ones, part by part."""

    # elements outside the interval of the 2-norm, and the largest error in units of the interval
    beyond, ratio = 0, 0.0

    @property
    def rms(self) -> float | None:
        """Return the root mean square of errors in units of the expected ones; None for few elements."""
        return None

    @property
    def bias(self) -> float | None:
        """Return the larger of two mean errors: towards one side, or away from zero. None where it tells nothing."""
        return None

    def add(
        self, spread: Any, data_types: tuple[cudnnDataType_t, cudnnDataType_t], blend: tuple[float, float],
        results: Outcome, error: Array, half_step: Array,
    ) -> None:  # fmt: skip
        """Add a part of the output.

        data_types: the types of the arithmetic and the output. error: the output minus the exact value.
        """
        raise TypeError(f"{type(self).__name__} does not define add()")

    def suspicions(self, output: str) -> list[str]:
        """Return which rules the output breaks, a sentence each."""
        raise TypeError(f"{type(self).__name__} does not define suspicions()")


class WithinInterval(Errors):
    """Compare errors with an interval for each element."""

    def __init__(self) -> None:
        self.beyond, self.ratio = 0, 0.0

    def measure(self, error: Array, half_step: Array, allowed: Array, bound: Array) -> Array:
        """Count the elements outside the interval, and return which elements are determined."""
        excess = (np.abs(error) - half_step) / allowed
        determined: Array = np.isfinite(excess)
        determined &= np.isfinite(bound)
        if not determined.all():
            excess = np.where(determined, excess, 0)
        largest = float(excess.max(initial=0.0))
        self.ratio = max(self.ratio, largest)
        if largest > 1:
            self.beyond += int(np.count_nonzero(excess > 1))
        return determined

    def suspicions(self, output: str) -> list[str]:
        if not self.beyond:
            return []
        by = f"by a factor of up to {self.ratio:.3g}"
        return [f"{output}: {self.beyond} elements lie outside the interval of the 2-norm, {by}"]


class StepErrors(WithinInterval):
    """Collect the errors of results of several steps."""

    def add(
        self, spread: Steps, data_types: tuple[cudnnDataType_t, cudnnDataType_t], blend: tuple[float, float],
        results: Outcome, error: Array, half_step: Array,
    ) -> None:  # fmt: skip
        unit, smallest, _ = PRECISION[data_types[0]]
        exact, value, bound = results
        alpha = blend[0]
        most = MAX_OF_EXPECTED * alpha**2 * spread.squares
        if blend != (1, 0):
            scaled = alpha * exact
            most = most + BLEND_ROUNDINGS * np.square(np.abs(scaled) + np.abs(value - scaled))
        allowed = DEVIATIONS * np.sqrt(most) + smallest / unit * (1 + abs(alpha))
        self.measure(error / unit, half_step / unit, allowed, bound)


class FunctionErrors(Errors):
    """Collect the errors of functions."""

    def __init__(self, most: float, in_rows: bool) -> None:
        self.most, self.in_rows, self.count, self.squares = most, in_rows, 0, 0.0

    def add(
        self, spread: Relative, data_types: tuple[cudnnDataType_t, cudnnDataType_t], blend: tuple[float, float],
        results: Outcome, error: Array, half_step: Array,
    ) -> None:  # fmt: skip
        compute_type, output_type = data_types
        _, value, bound = results
        unit = PRECISION[compute_type][0]
        if blend[1] != 0 or output_type not in PRECISION or PRECISION[output_type][0] > unit:
            return  # A blended result, or one rounded to a narrower type, says little about the function.
        counted = np.isfinite(error) & np.isfinite(bound) & (np.abs(value) > MIN_EXACT)
        relative = np.where(counted, error / (unit * abs(blend[0]) * np.where(counted, spread.size, 1)), 0)
        if spread.axes:
            share = counted / np.square(spread.weight)
            total = share.sum(axis=spread.axes, keepdims=True)
            shared = (relative * share).sum(axis=spread.axes, keepdims=True) / np.where(total > 0, total, 1)
            relative = np.where(counted, relative - shared, 0)
        self.count += int(np.count_nonzero(counted))
        self.squares += float(np.square(relative / spread.weight).sum())

    @property
    def rms(self) -> float | None:
        return float(np.sqrt(self.squares / self.count)) if self.count >= MIN_OF_FUNCTION else None

    def suspicions(self, output: str) -> list[str]:
        if self.rms is None or self.rms <= self.most:
            return []
        of_row = ", less what a row shares," if self.in_rows else ""
        return [
            f"{output}: the root mean square of its errors{of_row} is {self.rms:.3g} roundings, at most {self.most:.3g}"
        ]


class SumErrors(WithinInterval):
    """Collect the errors of sums."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.squares, self.total, self.signed = 0, 0.0, 0.0, 0.0
        self.independent, self.shares_factors = True, False
        self.drift = 0.0  # possible truncation, in units of the expected deviation

    def add(
        self, spread: Spread, data_types: tuple[cudnnDataType_t, cudnnDataType_t], blend: tuple[float, float],
        results: Outcome, error: Array, half_step: Array,
    ) -> None:  # fmt: skip
        compute_type, output_type = data_types
        alpha = blend[0]
        unit, smallest, _ = PRECISION[compute_type]
        unit = spread.unit or unit
        max_cut, cut = CUT_OF_TF32 if spread.factors else CUT_OF_HALF
        # Everything is counted in units, in float32 where that suffices: its rounding is negligible next to the limits.
        kind: Any = np.float64 if compute_type == DOUBLE else np.float32

        def taken(numbers: Array) -> Array:
            return numbers.astype(kind, copy=False)

        exact, value, bound = map(taken, results)
        error, half_step = taken(error) / unit, taken(half_step) / unit
        scaled = exact if alpha == 1 else alpha * exact
        squares = np.square(scaled)
        norms = np.square(taken(spread.norm if alpha == 1 else alpha * spread.norm))
        additions = np.asarray(spread.additions, kind)
        both = squares + norms
        of_shared = np.square(np.asarray(spread.shared, kind)) * squares
        squares = squares / 3 + norms / 6  # This is the mean square of all partial sums.
        most, variance = DEVIATIONS**2 * additions * both, VARIANCE * (additions + PRODUCTS) * squares + of_shared
        rounded: Array | None = 2 * (spread.factors / unit) ** 2 * norms if spread.factors else None
        if blend != (1, 0):
            of_blend = BLEND_ROUNDINGS * np.square(np.abs(scaled) + np.abs(value - scaled))
            rounded = of_blend if rounded is None else rounded + of_blend
        if rounded is not None:
            most, variance = most + DEVIATIONS**2 * rounded, variance + VARIANCE * rounded
        allowed = np.sqrt(most) + smallest / unit * (1 + abs(alpha))
        cuts = np.any(spread.cut)
        if cuts:
            products = np.asarray(spread.cut, kind)
            allowed = allowed + max_cut * products * np.sqrt(both)
            drift = np.square(cut * products) * squares
            variance = variance + drift
        if output_type not in PRECISION:  # Integers have equal steps, and exact values may be far from any integer.
            variance = variance + np.maximum(np.square(half_step) / 3, np.square((value - np.rint(value)) / unit))
        elif PRECISION[output_type][0] > unit:
            variance = variance + VARIANCE * np.square(half_step)
        determined = self.measure(error, half_step, allowed, bound)
        counted = determined & (np.abs(value) > MIN_EXACT) & (bound > 0) & (variance > 0)
        every = counted.all()
        if not every:
            error, value, variance = error[counted], value[counted], np.broadcast_to(variance, counted.shape)[counted]
        relative = error / np.sqrt(variance)
        self.count += relative.size
        relative, value = relative.ravel(), value.ravel()
        self.squares += float(np.dot(relative, relative))
        self.total += float(relative.sum())
        self.signed += float(np.dot(relative, np.sign(value)))
        if cuts:
            drift = np.broadcast_to(drift, counted.shape)
            self.drift += float(np.sqrt((drift if every else drift[counted]) / variance).sum())
        self.independent &= spread.independent
        self.shares_factors |= spread.shares_factors

    @property
    def rms(self) -> float | None:
        if self.count < MIN_COUNT or self.shares_factors:
            return None
        return float(np.sqrt(self.squares / self.count))

    @property
    def bias(self) -> float | None:
        if self.rms is None or not self.independent:
            return None
        return float(max(abs(self.total), abs(self.signed)) / self.count)

    def suspicions(self, output: str) -> list[str]:
        found, more = super().suspicions(output), FEW / np.sqrt(max(self.count, 1))
        if self.rms is not None and self.rms > MAX_RMS + more:
            found.append(
                f"{output}: the root mean square of its errors is {self.rms:.3g} of the expected one, at most {MAX_RMS + more:.3g}"
            )
        most = MAX_BIAS + more + self.drift / max(self.count, 1)  # Truncated sums are all too small.
        if self.bias is not None and self.bias > most:
            found.append(
                f"{output}: the mean of its errors is {self.bias:.3g} of their expected deviation, at most {most:.3g}"
            )
        return found
