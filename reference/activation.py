"""Compute activations (3.2.1, 4.1.1). docs/errata.md, D010 and D144, gives the formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnActivationMode_t as Mode
from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import ActivationBackward, ActivationForward, ActivationSpec

from .engine import Exact, implements, in_compute_type
from .precision import PRECISION
from .spread import Relative
from .view import Array

# These count the roundings of one evaluation in the compute type. The function itself errs by 2 ulp (CUDA's expf and
# tanhf) or 1 ulp (double exp and tanh). One ulp is two roundings; each operation around the function adds one.
SIGMOID_ROUNDINGS = 12  # roundings: exp (4, weighted below 1), 1 + e, and a division of up to 2 ulp
TANH_ROUNDINGS = 8
# roundings: exp (4), difference, product; relative to |exp(x)| + 1, even where the difference is small
ELU_ROUNDINGS = 6


def _activation(operation: ActivationForward | ActivationBackward) -> ActivationSpec:
    """Return the activation with its coefficient rounded to the compute type, so that values equal to it count as at
    the limit.
    """
    spec = operation.activation
    return ActivationSpec(spec.mode, spec.relu_nan, in_compute_type(operation, spec.coefficient))


def _propagates(activation: ActivationSpec) -> bool:
    return activation.relu_nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


def _relu(x: Array, activation: ActivationSpec) -> Array:
    return np.asarray((np.maximum if _propagates(activation) else np.fmax)(x, 0))  # fmax ignores a NaN and gives 0


def _clipped_relu(x: Array, activation: ActivationSpec) -> Array:
    clipped = np.fmin(_relu(x, activation), activation.coefficient)
    return np.where(np.isnan(x), np.nan, clipped) if _propagates(activation) else clipped


def _sigmoid(x: Array, _activation: ActivationSpec) -> Array:
    return 1 / (1 + np.exp(-x))


def _tanh(x: Array, _activation: ActivationSpec) -> Array:
    return np.tanh(x)


def _elu(x: Array, activation: ActivationSpec) -> Array:
    return np.where(x >= 0, x, activation.coefficient * np.expm1(x))


# Each mode has a function and the number of its roundings.
FORWARD: dict[Mode, tuple[Callable[[Array, ActivationSpec], Array], int]] = {
    Mode.CUDNN_ACTIVATION_SIGMOID: (_sigmoid, SIGMOID_ROUNDINGS),
    Mode.CUDNN_ACTIVATION_RELU: (_relu, 0),
    Mode.CUDNN_ACTIVATION_TANH: (_tanh, TANH_ROUNDINGS),
    Mode.CUDNN_ACTIVATION_CLIPPED_RELU: (_clipped_relu, 1),
    Mode.CUDNN_ACTIVATION_ELU: (_elu, ELU_ROUNDINGS),
}
# modes whose results are rounded
FUNCTIONS = (Mode.CUDNN_ACTIVATION_SIGMOID, Mode.CUDNN_ACTIVATION_TANH, Mode.CUDNN_ACTIVATION_ELU)


@implements(ActivationForward)
def activation_forward(operation: ActivationForward, x: Array) -> Exact:
    """Compute y = f(x), element by element."""
    function, roundings = FORWARD[operation.activation.mode]
    activation = _activation(operation)
    value = function(x, activation)

    def terms() -> Array:
        return _terms(x, value, activation)

    spread = (lambda: Relative(terms())) if activation.mode in FUNCTIONS else None
    return Exact(value, terms, roundings, spread=spread)


def _terms(x: Array, value: Array, activation: ActivationSpec) -> Array:
    """Return the sum of the absolute terms: |value|, except for ELU, which subtracts 1 from exp(x)."""
    if activation.mode != Mode.CUDNN_ACTIVATION_ELU:
        return np.abs(value)
    return np.where(x >= 0, np.abs(value), abs(activation.coefficient) * (np.exp(np.minimum(x, 0)) + 1))


def _unread(operation: ActivationBackward) -> tuple[str, ...]:
    return ("x",) if operation.activation.mode in FUNCTIONS else ("y",)


@implements(ActivationBackward, unread=_unread)
def activation_backward(operation: ActivationBackward, y: Any, dy: Array, x: Any) -> Exact:
    """Compute dx = f'(x) * dy. Sigmoid, tanh and the negative side of ELU use y; the rectified modes use x."""
    largest = PRECISION[operation.compute_type][2]

    def in_range(magnitude: Array, *passed: Array) -> Array:
        """Return the magnitude, or infinity where an intermediate product overflows: there the result is not determined
        (D144).
        """
        return np.where(np.any([np.abs(p) >= largest for p in passed], axis=0), np.inf, magnitude)

    coefficient = _activation(operation).coefficient
    match operation.activation.mode:
        case Mode.CUDNN_ACTIVATION_SIGMOID:
            return Exact(dy * y * (1 - y), lambda: in_range(np.abs(dy * y) * (1 + np.abs(y)), dy * y, y * (1 - y)), 3)
        case Mode.CUDNN_ACTIVATION_TANH:
            return Exact(dy * (1 - y * y), lambda: in_range(np.abs(dy) * (1 + y * y), y * y), 3)
        case Mode.CUDNN_ACTIVATION_RELU:
            passed = np.where(x > 0, dy, 0)
            return Exact(passed, lambda: np.abs(passed))
        case Mode.CUDNN_ACTIVATION_CLIPPED_RELU:
            passed = np.where((x > 0) & (x <= coefficient), dy, 0)
            return Exact(passed, lambda: np.abs(passed))
        case Mode.CUDNN_ACTIVATION_ELU:
            value = np.where(y >= 0, dy, dy * (y + coefficient))
            return Exact(value, lambda: np.where(y >= 0, np.abs(dy), np.abs(dy) * (np.abs(y) + abs(coefficient))), 3)
    raise ValueError(f"{operation.activation.mode!r} has no gradient")
