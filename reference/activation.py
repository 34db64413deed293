"""Activations (3.2.1, 4.1.1). Formulas: docs/errata.md, D010 and D144."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from dualdnn.api.enumerations import cudnnActivationMode_t as Mode
from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import ActivationBackward, ActivationForward, ActivationSpec

from .engine import Exact, implements, in_compute_type
from .precision import PRECISION
from .spread import Relative
from .view import Array

# Roundings of one evaluation in the compute type: the function's own error (CUDA's expf 2 ulp, tanhf 2 ulp, double
# exp 1 ulp, tanh 1 ulp; one ulp is two roundings) and the operations around it, each of relative effect 1.
SIGMOID_ROUNDINGS = 12  # exp (4, of a relative weight below 1), 1 + e, division (up to 2 ulp where approximate)
TANH_ROUNDINGS = 8
ELU_ROUNDINGS = 6  # exp (4), difference, product: of the terms exp(x) and 1, however small their difference


def _activation(operation: ActivationForward | ActivationBackward) -> ActivationSpec:
    """The activation with its coefficient in the compute type: a value equal to the rounded limit is at the limit."""
    spec = operation.activation
    return ActivationSpec(spec.mode, spec.relu_nan, in_compute_type(operation, spec.coefficient))


def _propagates(activation: ActivationSpec) -> bool:
    return activation.relu_nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


def _relu(x: Array, activation: ActivationSpec) -> Array:
    return np.asarray((np.maximum if _propagates(activation) else np.fmax)(x, 0))  # fmax gives 0 for a NaN


def _clipped_relu(x: Array, activation: ActivationSpec) -> Array:
    clipped = np.fmin(_relu(x, activation), activation.coefficient)
    return np.where(np.isnan(x), np.nan, clipped) if _propagates(activation) else clipped


def _sigmoid(x: Array, _activation: ActivationSpec) -> Array:
    return 1 / (1 + np.exp(-x))


def _tanh(x: Array, _activation: ActivationSpec) -> Array:
    return np.tanh(x)


def _elu(x: Array, activation: ActivationSpec) -> Array:
    return np.where(x >= 0, x, activation.coefficient * np.expm1(x))


# mode -> (function, roundings)
FORWARD: dict[Mode, tuple[Callable[[Array, ActivationSpec], Array], int]] = {
    Mode.CUDNN_ACTIVATION_SIGMOID: (_sigmoid, SIGMOID_ROUNDINGS),
    Mode.CUDNN_ACTIVATION_RELU: (_relu, 0),
    Mode.CUDNN_ACTIVATION_TANH: (_tanh, TANH_ROUNDINGS),
    Mode.CUDNN_ACTIVATION_CLIPPED_RELU: (_clipped_relu, 1),
    Mode.CUDNN_ACTIVATION_ELU: (_elu, ELU_ROUNDINGS),
}
FUNCTIONS = (Mode.CUDNN_ACTIVATION_SIGMOID, Mode.CUDNN_ACTIVATION_TANH, Mode.CUDNN_ACTIVATION_ELU)  # that round


@implements(ActivationForward)
def activation_forward(operation: ActivationForward, x: Array) -> Exact:
    """y = f(x), element by element."""
    function, roundings = FORWARD[operation.activation.mode]
    activation = _activation(operation)
    value = function(x, activation)

    def terms() -> Array:
        return _terms(x, value, activation)

    spread = (lambda: Relative(terms())) if activation.mode in FUNCTIONS else None
    return Exact(value, terms, roundings, spread=spread)


def _terms(x: Array, value: Array, activation: ActivationSpec) -> Array:
    """The sum of the terms' absolute values: the value itself, but for the difference exp(x) - 1 of the ELU."""
    if activation.mode != Mode.CUDNN_ACTIVATION_ELU:
        return np.abs(value)
    return np.where(x >= 0, np.abs(value), abs(activation.coefficient) * (np.exp(np.minimum(x, 0)) + 1))


@implements(ActivationBackward)
def activation_backward(operation: ActivationBackward, y: Array, dy: Array, x: Array) -> Exact:
    """dx = f'(x) * dy; sigmoid, tanh and the negative side of ELU use y, the rectified functions x."""
    largest = PRECISION[operation.compute_type][2]

    def in_range(magnitude: Array, *passed: Array) -> Array:
        """The magnitude, infinite where a product on the way overflows: the result is not determined there (D144)."""
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
