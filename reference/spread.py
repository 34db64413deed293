"""Sharper rules for sums of random data: how far rounding errors go in practice (derivation: docs/tolerance.md).

The worst case grows with the number of roundings, real errors with its square root. An output inside its worst case but
outside one of these rules is not wrong, but suspect. They hold for seeded random inputs, where the order of the
summation has nothing to do with the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t

from .precision import PRECISION
from .view import Array

Number = float | int

DEVIATIONS = 3.0  # times the 2-norm of all rounding errors, the most that is not suspect
VARIANCE = (
    0.18  # of one rounding to nearest, in (unit |x|)^2: 1/3, times the mean of (step / largest step)^2 over mantissas
)
CUT = 0.25  # units that a sum of tensor cores, which is cut off rather than rounded, loses for each product
BLEND_ROUNDINGS = 3
FEWEST = 256  # elements of an output that has a root mean square worth looking at
MOST_RMS, MOST_BIAS, FEW = (
    1.25,
    0.35,
    6.0,
)  # limits for many elements; what fewer may have more, times 1 / sqrt(elements)
SMALLEST_EXACT = 2.0**-100  # below, results may be subnormal or flushed


@dataclass(frozen=True)
class Spread:
    """What the rounding errors of an output's sums follow from.

    norm: 2-norm of the terms of each element, before alpha.
    additions: roundings of each sum; one number, or one by element.
    unit: unit roundoff of the type that adds; None: of the compute type.
    factors: unit roundoff of the type to which both factors of each product are rounded (TF32); 0 where they are taken as they are.
    cut: products whose sums tensor cores may cut off; 0 where sums are rounded.
    independent: no rounding is shared by several elements (as that of a reciprocal is), so that their mean error is near 0.
    """

    norm: Array
    additions: Array | Number
    unit: float | None = None
    factors: float = 0.0
    cut: Number = 0
    independent: bool = False


class Errors:
    """The errors of one output beside what their spread explains, gathered part by part."""

    def __init__(self) -> None:
        self.beyond, self.ratio = 0, 0.0  # elements outside the interval, the largest error in its units
        self.count, self.squares, self.total, self.signed, self.independent = 0, 0.0, 0.0, 0.0, True

    def add(
        self,
        spread: Spread,
        data_types: tuple[cudnnDataType_t, cudnnDataType_t],
        alpha: float,
        results: tuple[Array, Array, Array],
        error: Array,
        half_step: Array,
    ) -> None:
        """Add a part of the output. data_types: of the arithmetic and the output. results: before blending, after it, and the worst
        case's bound, before rounding into the output type. error: the output less the exact value."""
        compute_type, output_type = data_types
        exact, value, bound = results
        unit = spread.unit or PRECISION[compute_type][0]
        result, norm = np.abs(alpha * exact), abs(alpha) * np.broadcast_to(spread.norm, value.shape)
        prior = np.abs(value - alpha * exact)
        blend = BLEND_ROUNDINGS * (result + prior) ** 2 if alpha != 1 or prior.any() else 0.0
        lost = CUT * unit * np.asarray(spread.cut)
        squares, rounded_factors = result**2 + norm**2, 2 * (spread.factors * norm) ** 2
        allowed = DEVIATIONS * np.sqrt(unit**2 * (spread.additions * squares + blend) + rounded_factors)
        allowed = allowed + lost * np.sqrt(squares) + PRECISION[compute_type][1] * (1 + abs(alpha))
        determined = np.isfinite(error) & np.isfinite(bound) & np.isfinite(allowed)
        excess = np.where(determined, np.maximum(np.abs(error) - half_step, 0) / allowed, 0)
        self.beyond += int(np.count_nonzero(excess > 1))
        self.ratio = max(self.ratio, float(excess.max(initial=0.0)))
        sums = result**2 / 3 + norm**2 / 6
        variance = VARIANCE * (unit**2 * (spread.additions * sums + blend) + rounded_factors) + lost**2 * sums
        if output_type not in PRECISION or PRECISION[output_type][0] > unit:
            variance = variance + VARIANCE * half_step**2
        counted = determined & (variance > 0) & (bound > 0) & (np.abs(value) > SMALLEST_EXACT)
        relative = error[counted] / np.sqrt(np.broadcast_to(variance, value.shape)[counted])
        self.count += relative.size
        self.squares += float((relative**2).sum())
        self.total += float(relative.sum())
        self.signed += float((relative * np.sign(value[counted])).sum())
        self.independent &= spread.independent

    @property
    def rms(self) -> float | None:
        """The root mean square of errors in units of their expected deviation; None for few elements."""
        return float(np.sqrt(self.squares / self.count)) if self.count >= FEWEST else None

    @property
    def bias(self) -> float | None:
        """The mean of those errors, towards one side or away from zero, the larger; None where it tells nothing."""
        if self.count < FEWEST or not self.independent:
            return None
        return float(max(abs(self.total), abs(self.signed)) / self.count)

    def suspicions(self, output: str) -> list[str]:
        """Return which rules the output breaks, a sentence each."""
        found, few = [], FEW / np.sqrt(max(self.count, 1))
        if self.beyond:
            found.append(
                f"{output}: {self.beyond} elements lie outside the interval of the 2-norm, by a factor of up to {self.ratio:.3g}"
            )
        if self.rms is not None and self.rms > MOST_RMS + few:
            found.append(
                f"{output}: the root mean square of its errors is {self.rms:.3g} of the expected one, at most {MOST_RMS + few:.3g}"
            )
        if self.bias is not None and self.bias > MOST_BIAS + few:
            found.append(
                f"{output}: the mean of its errors is {self.bias:.3g} of their expected deviation, at most {MOST_BIAS + few:.3g}"
            )
        return found
