"""Implement divisive normalization (3.2.33, 4.1.6), which takes its parameters from an LRN descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions import SameMemory, computing
from ...operations import DivisiveNormalizationBackward, DivisiveNormalizationForward
from ...operations.specs import DOUBLE, FLOAT, HALF
from ...relations import (
    begin_together,
    data_type_among,
    not_overlapping,
    rank_between,
    same_data_type,
    same_dims,
    same_strides,
    scaling,
)
from ...status import BAD_PARAM, NOT_SUPPORTED

if TYPE_CHECKING:
    from ...enumerations import cudnnDivNormMode_t
    from ...handle import Handle
    from ...operations.specs import LRNSpec, TensorSpec

# The document has no list of types; these follow NVIDIA's library (docs/errata.md, D051).
TYPES = (FLOAT, DOUBLE, HALF)


@computing(
    invalid={
        "normDesc": "c07", "mode": "c08", "x": "c19", "y": "c19", "temp": "c19", "temp2": "c19", "alpha": "c23", "beta": "c23",
    },
    memory=[SameMemory("x", "y", "c22", allowed=lambda o: o.x == o.y)],
)  # fmt: skip
def cudnnDivisiveNormalizationForward(
    handle: Handle,
    normDesc: LRNSpec,
    mode: cudnnDivNormMode_t,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    means: Any,
    temp: Any,
    temp2: Any,
    beta: float,
    yDesc: TensorSpec,
    y: Any,
) -> DivisiveNormalizationForward:
    """Compute y = alpha * x * (lrnK + lrnAlpha / lrnN^d * sum of (x - m)^2)^-lrnBeta + beta * y; beta == 0 does not
    read y.

    d is the number of spatial dimensions. The sum covers positions of the same channel inside the image, in a window of
    lrnN positions per spatial dimension. m is the element of means at the window's center.
    x, means, temp, temp2: described by xDesc; NULL means are zeros. y: the dimensions, data type (FLOAT, DOUBLE, HALF)
    and strides of x; 4 or 5 dimensions of any strides. In place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for other numbers of dimensions (c20), differing dimensions (c21), differing strides in place
    (c22), an unknown mode (c08); NOT_SUPPORTED for differing strides or data types, other data types (c26), overlapping
    strides (c05).
    Source: 3.2.33; formula: docs/errata.md, D050.
    """
    name = "cudnnDivisiveNormalizationForward"
    rank_between(f"{name}/c20", 4, 5, BAD_PARAM, xDesc=xDesc, yDesc=yDesc)
    same_dims(f"{name}/c21", xDesc=xDesc, yDesc=yDesc)
    if begin_together(handle, x, y):
        same_strides(f"{name}/c22", xDesc=xDesc, yDesc=yDesc)
    same_strides(f"{name}/c26", NOT_SUPPORTED, xDesc=xDesc, yDesc=yDesc)
    same_data_type(f"{name}/c26", NOT_SUPPORTED, xDesc=xDesc, yDesc=yDesc)
    data_type_among(f"{name}/c26", TYPES, xDesc=xDesc)
    not_overlapping(f"{name}/c05", xDesc=xDesc, yDesc=yDesc)
    alpha, beta = scaling(alpha, yDesc), scaling(beta, yDesc)
    return DivisiveNormalizationForward(normDesc, alpha, beta, xDesc, None if means is None else xDesc, yDesc)


@computing(
    invalid={
        "normDesc": "c04", "mode": "c05", "x": "c13", "dx": "c13", "temp": "c13", "temp2": "c13", "dy": "c13",
        "alpha": "c15", "beta": "c15",
    },
)  # fmt: skip
def cudnnDivisiveNormalizationBackward(
    handle: Handle, normDesc: LRNSpec, mode: cudnnDivNormMode_t, alpha: float, xDesc: TensorSpec, x: Any, means: Any, dy: Any, temp: Any, temp2: Any, beta: float, dxDesc: TensorSpec, dx: Any, dMeans: Any,
) -> DivisiveNormalizationBackward:  # fmt: skip
    """Compute dx = alpha * gradient of x + beta * dx, dMeans = alpha * gradient of means + beta * dMeans; beta == 0
    reads neither.

    x and means are independent inputs of the forward formula. s is its sum plus lrnK, and q = dy * x * s^(-lrnBeta -
    1).
    The gradient of means is 2 * lrnAlpha * lrnBeta / lrnN^d * q * (sum of x - m over the window).
    The gradient of x is dy * s^-lrnBeta - 2 * lrnAlpha * lrnBeta / lrnN^d * (sum of q * (x - m)). This sum covers the
    positions whose windows contain x, each with its own m.
    x, means, dy, temp, temp2: described by xDesc; dx, dMeans: by dxDesc, with its dimensions, strides and data type
    (FLOAT, DOUBLE, HALF); 4 or 5 dimensions of any strides. NULL means are zeros. dMeans may be NULL if it is not
    wanted.
    Errors: BAD_PARAM for other numbers of dimensions (c14), differing dimensions (c16), an unknown mode (c05);
    NOT_SUPPORTED for differing strides or data types, other data types, overlapping strides (c19).
    Source: 4.1.6; formula: docs/errata.md, D168.
    """
    name = "cudnnDivisiveNormalizationBackward"
    rank_between(f"{name}/c14", 4, 5, BAD_PARAM, xDesc=xDesc, dxDesc=dxDesc)
    same_dims(f"{name}/c16", xDesc=xDesc, dxDesc=dxDesc)
    same_strides(f"{name}/c19", NOT_SUPPORTED, xDesc=xDesc, dxDesc=dxDesc)
    same_data_type(f"{name}/c19", NOT_SUPPORTED, xDesc=xDesc, dxDesc=dxDesc)
    data_type_among(f"{name}/c19", TYPES, xDesc=xDesc)
    not_overlapping(f"{name}/c19", xDesc=xDesc, dxDesc=dxDesc)
    alpha, beta = scaling(alpha, dxDesc), scaling(beta, dxDesc)
    means, dMeans = None if means is None else xDesc, None if dMeans is None else dxDesc
    return DivisiveNormalizationBackward(normDesc, alpha, beta, xDesc, means, xDesc, dxDesc, dMeans)
