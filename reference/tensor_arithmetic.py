"""Compute arithmetic on whole tensors (3.2.2, 3.2.68, 3.2.75, 3.2.90).

Formulas: docs/errata.md, D021, D086 and D087.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.enumerations import cudnnOpTensorOp_t as Op
from dualdnn.api.operations import AddTensor, OpTensor, ScaleTensor, SetTensor

from .engine import Exact, implements
from .precision import PRECISION
from .spread import Relative
from .view import Array, wide_type

UNARY = (Op.CUDNN_OP_TENSOR_SQRT, Op.CUDNN_OP_TENSOR_NOT)  # operations of A alone


@implements(AddTensor)
def add_tensor(_operation: AddTensor, a: Array) -> Exact:
    """Compute C = A, broadcast; the blend adds the prior C."""
    return Exact(a, lambda: np.abs(a))


@implements(ScaleTensor)
def scale_tensor(_operation: ScaleTensor, y: Array) -> Exact:
    """Return y; the blend multiplies it."""
    return Exact(y, lambda: np.abs(y))


@implements(SetTensor)
def set_tensor(operation: SetTensor) -> Exact:
    """Set y to the value."""
    value = np.full(operation.y.dims, operation.value, wide_type(operation.compute_type))
    return Exact(value, lambda: np.abs(value))


def _unread(operation: OpTensor) -> tuple[str, ...]:
    return ("B",) if operation.op_tensor.op in UNARY else ()


@implements(OpTensor, unread=_unread)
def op_tensor(operation: OpTensor, a: Array, b: Array | None) -> Exact:
    """Compute C = op(alpha1 * A, alpha2 * B). The square root and the negation take A alone."""
    evaluate = OPERATIONS[operation.op_tensor.op]
    return evaluate(operation, operation.alpha1 * a, None if b is None else operation.alpha2 * b)


def _add(operation: OpTensor, a: Array, b: Array) -> Exact:
    # Each term is rounded as a product and in the sum.
    return Exact(a + b, lambda: _in_range(operation, np.abs(a) + np.abs(b), a, b), 2)


def _multiply(operation: OpTensor, a: Array, b: Array) -> Exact:
    # There are three products. A subnormal alpha1 * A is off by at most unit * smallest, and alpha2 * B then multiplies
    # this error. The same holds the other way round.
    _, smallest, _ = PRECISION[operation.compute_type]
    value = a * b
    return Exact(value, lambda: _in_range(operation, np.abs(value) + smallest * (np.abs(a) + np.abs(b)), a, b), 3)


def _extremum(choose: Callable[[Array, Array], Array]) -> Callable[[OpTensor, Array, Array], Exact]:
    def evaluate(operation: OpTensor, a: Array, b: Array) -> Exact:
        value = choose(a, b)  # np.fmin and np.fmax return the other operand where one is NaN.
        if operation.op_tensor.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN:
            value = np.where(np.isnan(a) | np.isnan(b), np.nan, value)
        # Rounding is monotone: the extremum of the rounded operands is the rounded extremum.
        return Exact(value, lambda: np.abs(value), 1)

    return evaluate


def _square_root(operation: OpTensor, a: Array, _b: None) -> Exact:
    # The error is half the rounding of the product, plus up to one ulp of an approximate root. A subnormal product is
    # off by unit * smallest, with a relative effect d / a <= 1 on the root.
    unit, smallest, _ = PRECISION[operation.compute_type]
    root = np.sqrt(a)

    def roundings() -> Array:
        return np.where(a > 0, 3 + np.minimum(smallest / a, 1 / unit), 0)

    return Exact(root, lambda: _in_range(operation, root, a), roundings, spread=lambda: Relative(root))


def _negation(operation: OpTensor, a: Array, _b: None) -> Exact:
    # alpha1 * A is rounded as a product and in the difference.
    return Exact(1 - a, lambda: 1 + np.abs(a), 2)


OPERATIONS: dict[Op, Callable[[OpTensor, Array, Any], Exact]] = {
    Op.CUDNN_OP_TENSOR_ADD: _add,
    Op.CUDNN_OP_TENSOR_MUL: _multiply,
    Op.CUDNN_OP_TENSOR_MIN: _extremum(np.fmin),
    Op.CUDNN_OP_TENSOR_MAX: _extremum(np.fmax),
    Op.CUDNN_OP_TENSOR_SQRT: _square_root,
    Op.CUDNN_OP_TENSOR_NOT: _negation,
}


def _in_range(operation: OpTensor, magnitude: Array, *factors: Array) -> Array:
    """Return the magnitude, or that of a factor beyond the range of the compute type, which alone decides the
    result.
    """
    _, _, largest = PRECISION[operation.compute_type]
    for factor in factors:
        magnitude = np.where(np.abs(factor) >= largest, np.abs(factor), magnitude)
    return magnitude
