"""Holds cases of the gradient of a convolution's bias."""

from __future__ import annotations

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import ConvolutionBackwardBias, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

B = "cudnnConvolutionBackwardBias"
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


@shows(f"{B}/c03")
def test_bias_gradient_twice_in_a_row(trial):
    """The second call blends what the first one wrote: a weighted sum that is kept between steps."""
    operation = bias_gradient(beta=-3.0)
    memory = prepare(operation, "normal", 0)
    first = trial(operation, before=memory)
    trial(operation, before={**memory, "db": np.array(first.after["db"])})
