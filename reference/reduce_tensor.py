"""Compute reductions (3.2.71). Formulas: docs/errata.md, D024, D095 and D098."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnNanPropagation_t
from dualdnn.api.enumerations import cudnnReduceTensorOp_t as Op
from dualdnn.api.operations import ReduceTensor

from .engine import Exact, implements, magnitude_of, roundings_of, spread_of
from .precision import PRECISION
from .spread import Spread, Steps, few, walked
from .view import Array

INDEX_TYPES = {
    cudnnIndicesType_t.CUDNN_32BIT_INDICES: np.uint32,
    cudnnIndicesType_t.CUDNN_64BIT_INDICES: np.uint64,
    cudnnIndicesType_t.CUDNN_16BIT_INDICES: np.uint16,
    cudnnIndicesType_t.CUDNN_8BIT_INDICES: np.uint8,
}


class Arithmetic(NamedTuple):
    """Describe the compute type: unit roundoff, smallest normal number, largest number."""

    unit: float
    smallest: float
    largest: float


# A reduction takes (rows, arithmetic). The last dimension of rows has the elements that one output reduces.
Reduction = Callable[[Array, Arithmetic], Exact]


def _roundings_of_sums(rows: Array, arithmetic: Arithmetic) -> Array:
    """Return n - 1 additions in any order, or 0 where all sums are exact."""
    return np.where(_sums_are_exact(rows, arithmetic), 0, rows.shape[-1] - 1)


def _add(rows: Array, arithmetic: Arithmetic) -> Exact:
    roundings = cache(lambda: _roundings_of_sums(rows, arithmetic))
    return Exact(
        rows.sum(-1), lambda: np.abs(rows).sum(-1), roundings, spread=lambda: Spread(_norm_of(rows), roundings())
    )


def _average(rows: Array, arithmetic: Arithmetic) -> Exact:
    # The division, or the product with the rounded reciprocal, is rounded, and so may be the length itself. The
    # magnitude is that of the sum: it may leave the range although the average does not.
    length = rows.shape[-1]
    roundings = cache(lambda: (_roundings_of_sums(rows, arithmetic) + 3) / length)
    return Exact(
        rows.sum(-1) / length,
        lambda: np.abs(rows).sum(-1),
        roundings,
        spread=lambda: Spread(_norm_of(rows) / length, roundings() * length),
    )


def _norm_of(rows: Array) -> Array:
    return np.sqrt(np.square(rows).sum(-1))


def _norm1(rows: Array, arithmetic: Arithmetic) -> Exact:
    return _add(np.abs(rows), arithmetic)


def _norm2(rows: Array, arithmetic: Arithmetic) -> Exact:
    squares_of_rows = rows * rows
    total = squares_of_rows.sum(-1)
    value = np.sqrt(total)
    exact = cache(lambda: _sums_are_exact(rows, arithmetic, power=2))

    def roundings() -> Array:
        """Return n squares and n - 1 additions. The root halves their relative error and adds its own rounding."""
        return np.where(exact(), 1, rows.shape[-1] / 2 + 1)

    def magnitude() -> Array:
        # Squares below the normal range may be lost: each up to `smallest`, and |sqrt(s + d) - sqrt(s)| <= sqrt(|d|).
        lost = np.where((squares_of_rows < arithmetic.smallest) & (rows != 0), arithmetic.smallest, 0).sum(-1)
        found = value + np.sqrt(lost) / (arithmetic.unit * roundings())
        return np.where(total < arithmetic.largest, found, arithmetic.largest)

    def squares() -> Steps:
        """Return the expected squares. The root halves the relative error of the sum and adds its own rounding."""
        sums = walked(rows.shape[-1] + 1, total, _norm_of(squares_of_rows)) / np.where(total > 0, 4 * total, 1)
        return Steps(np.where(exact(), 0, sums) + few(1) * np.square(value))

    return Exact(value, magnitude, roundings, spread=squares)


def _product(rows: Array, arithmetic: Arithmetic) -> Exact:
    value, sizes = rows.prod(-1), np.abs(rows)
    if np.isinf(value).any():  # Finite factors beyond any range still give a number.
        beyond = np.isinf(value) & np.isfinite(rows).all(-1)
        value = np.where(beyond, np.copysign(np.finfo(rows.dtype).max, value), value)
    # The n - 1 products come in any order. Some order may overflow: the product of all factors above 1. Some order may
    # underflow, which loses up to `smallest` in each product, scaled by the remaining factors.
    roundings = max(1, rows.shape[-1] - 1)

    @cache
    def loses() -> Array:
        return (np.fmin(sizes, 1).prod(-1) < arithmetic.smallest) & (sizes > 0).all(-1)

    def magnitude() -> Array:
        highest = np.fmax(sizes, 1).prod(-1)
        lost = np.where(loses(), roundings * arithmetic.smallest * highest, 0)
        found = np.abs(value) + lost / (arithmetic.unit * roundings)
        return np.where(highest < arithmetic.largest, found, arithmetic.largest)

    # A lost product may be zero, and zero times infinity is NaN.
    return Exact(value, magnitude, roundings, overflows=lambda: loses() & np.isinf(rows).any(-1))


def _product_without_zeros(rows: Array, arithmetic: Arithmetic) -> Exact:
    return _product(np.where(rows == 0, 1, rows), arithmetic)


FORMULAS: dict[Op, Reduction] = {
    Op.CUDNN_REDUCE_TENSOR_ADD: _add,
    Op.CUDNN_REDUCE_TENSOR_AVG: _average,
    Op.CUDNN_REDUCE_TENSOR_NORM1: _norm1,
    Op.CUDNN_REDUCE_TENSOR_NORM2: _norm2,
    Op.CUDNN_REDUCE_TENSOR_MUL: _product,
    Op.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS: _product_without_zeros,
}
# Extrema are computed as maxima: operation -> (what is compared, how the extremum follows from the maximum).
EXTREMA: dict[Op, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    Op.CUDNN_REDUCE_TENSOR_MAX: (np.positive, np.positive),
    Op.CUDNN_REDUCE_TENSOR_MIN: (np.negative, np.negative),
    Op.CUDNN_REDUCE_TENSOR_AMAX: (np.abs, lambda largest: np.maximum(largest, 0)),
}


@implements(ReduceTensor)
def reduce_tensor(operation: ReduceTensor, A: Array) -> Exact | dict[str, Exact]:
    """Reduce A over the dimensions where C has extent 1, and return the positions of extrema if wanted."""
    rows = _rows(A, operation.reduced)
    op = operation.reduction.op
    if op in FORMULAS:
        return _shaped(FORMULAS[op](rows, Arithmetic(*PRECISION[operation.compute_type])), operation)
    compared, extremum = EXTREMA[op]
    largest, positions = _first_largest(compared(rows), _propagates(operation))
    value = extremum(largest).reshape(operation.C.dims)
    results = {"C": Exact(value, lambda: np.abs(value))}  # Comparisons do not round.
    if operation.wants_indices:
        indices = positions.astype(INDEX_TYPES[operation.reduction.indices_type])
        results["indices"] = Exact(indices.reshape(operation.C.dims), np.zeros(()), raw=True)
    return results


def _rows(A: Array, reduced: tuple[int, ...]) -> Array:
    """Return the reduced dimensions in row-major order as one last dimension."""
    kept = tuple(d for d in range(A.ndim) if d not in reduced)
    shape = tuple(A.shape[d] for d in kept)
    return A.transpose(*kept, *reduced).reshape(*shape, -1)


def _shaped(exact: Exact, operation: ReduceTensor) -> Exact:
    """Return the results with C's dimensions."""
    dims, overflows = operation.C.dims, exact.overflows
    return Exact(
        exact.value.reshape(dims),
        lambda: magnitude_of(exact).reshape(dims),
        lambda: _reshaped(roundings_of(exact), dims),
        overflows=overflows and (lambda: overflows().reshape(dims)),
        spread=lambda: _shaped_spread(exact, dims),
    )


def _reshaped(values: Array | float, dims: tuple[int, ...]) -> Array | float:
    return values.reshape(dims) if isinstance(values, np.ndarray) else values


def _shaped_spread(exact: Exact, dims: tuple[int, ...]) -> Spread | Steps | None:
    spread = spread_of(exact)
    if isinstance(spread, Steps):
        return Steps(spread.squares.reshape(dims))
    if not isinstance(spread, Spread):
        return None
    additions = np.broadcast_to(np.asarray(spread.additions), spread.norm.shape).reshape(dims)
    return replace(spread, norm=spread.norm.reshape(dims), additions=additions)


def _propagates(operation: ReduceTensor) -> bool:
    return operation.reduction.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


def _first_largest(rows: Array, propagates: bool) -> tuple[Array, Array]:
    """Return the largest element of each row and its first position.

    A propagated NaN wins; otherwise NaN is ignored. A row of ignored NaN gives -infinity at position 0.
    """
    order = np.where(np.isnan(rows), np.inf if propagates else -np.inf, rows)
    if propagates:  # A NaN beats even an infinity before it.
        order = np.where(np.isinf(order) & (order > 0) & ~np.isnan(rows), np.finfo(rows.dtype).max, order)
    else:  # An infinity beats a NaN before it.
        order = np.where(np.isneginf(rows), np.finfo(rows.dtype).min, order)
    positions = order.argmax(-1)
    largest = np.take_along_axis(rows, positions[..., None], -1)[..., 0]
    return largest if propagates else np.where(np.isnan(largest), -np.inf, largest), positions


def _sums_are_exact(rows: Array, arithmetic: Arithmetic, power: int = 1) -> Array:
    """Return whether every partial sum of |element| ** power is representable in any order.

    This holds if all elements are multiples of a power of two, ``step``, and the whole sum is at most step ** power /
    unit.
    """
    usable = np.abs(np.where(np.isfinite(rows), rows, 0).astype(np.float64))
    fraction, exponent = np.frexp(usable)
    digits = (fraction * 2.0**53).astype(np.int64)
    step = np.where(digits == 0, np.inf, np.ldexp((digits & -digits).astype(np.float64), exponent - 53)).min(-1)
    total = (usable**power).sum(-1)
    return (total == 0) | (total <= step**power / arithmetic.unit)
