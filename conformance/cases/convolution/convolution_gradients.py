"""Holds cases of the gradient of a convolution's bias."""

from __future__ import annotations

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import ConvolutionBackwardBias, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.layouts import laid_out

DIMS = (2, 3, 5, 7)


def bias_gradient(
    dims: tuple[int, ...] = DIMS,
    data_type: cudnnDataType_t = FLOAT,
    layout: str = "nchw",
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    db: TensorSpec | None = None,
) -> ConvolutionBackwardBias:
    db = db or TensorSpec.packed(data_type, (1, dims[1], *(1 for _ in dims[2:])))
    return ConvolutionBackwardBias(alpha, beta, laid_out(data_type, dims, layout), db)
