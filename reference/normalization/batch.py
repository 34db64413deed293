"""Batch normalization and cudnnNormalization*. Formulas: docs/errata.md, D146, D157, D158.

Errors are counted in units of the roundoff of the compute type: a function that returns one names what it is relative to.
"""

from __future__ import annotations

import numpy as np
from dualdnn.api.operations import BatchNormalizationForwardInference, NormalizationForwardInference
from dualdnn.api.operations.normalization.batch import NormalizationInference

from ..engine import Exact, implements, in_compute_type
from ..view import Array

# Of x or mean on the way into y, whichever of scale * inverse * (x - mean) and (scale * inverse) * x - ... is computed: the sum
# with epsilon, the square root and the division (3), the products and the sums (5).
AFFINE_ROUNDINGS = 8


def _cancelled(variance: Array, epsilon: float) -> Array:
    """How often a rounding of the sum variance + epsilon counts in the sum: more than once where they cancel."""
    return (np.abs(variance) + epsilon) / np.abs(variance + epsilon)


def inference(
    operation: NormalizationInference, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Exact:
    """y = scale * (x - mean) / sqrt(variance + epsilon) + bias."""
    epsilon = in_compute_type(operation, operation.epsilon)
    factor = scale / np.sqrt(variance + epsilon)
    value = factor * (x - mean) + bias

    def magnitude() -> Array:
        return np.abs(factor) * (np.abs(x) + np.abs(mean)) + np.abs(bias)

    return Exact(value, magnitude, lambda: AFFINE_ROUNDINGS + _cancelled(variance, epsilon))


implements(BatchNormalizationForwardInference)(inference)
implements(NormalizationForwardInference)(inference)
