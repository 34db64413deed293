"""Implement softmax calls (3.2.96, 4.1.19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..functions import SameMemory, computing
from ..operations import SoftmaxBackward, SoftmaxForward
from ..operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8
from ..relations import (
    data_type_among,
    same_data_type,
    same_dims,
    same_strides,
    scaling,
    spatially_packed_beyond,
    writable_layout,
)
from ..status import INCORRECT_PARAMETER

if TYPE_CHECKING:
    from ..enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
    from ..handle import Handle
    from ..operations.specs import TensorSpec

# The document has no table of types; these follow NVIDIA's library (docs/errata.md, D134).
FORWARD_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16, INT8)
BACKWARD_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)


@computing(
    invalid={"algorithm": "c12", "mode": "c13"},
    memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=lambda o: o.x == o.y)],
    failed="c14",
)
def cudnnSoftmaxForward(
    handle: Handle,
    algorithm: cudnnSoftmaxAlgorithm_t,
    mode: cudnnSoftmaxMode_t,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    beta: float,
    yDesc: TensorSpec,
    y: Any,
) -> SoftmaxForward:
    """Compute y = alpha * softmax(x) + beta * y; beta == 0 does not read y.

    One softmax runs over C, H, W of each image (MODE_INSTANCE) or over C at each position (MODE_CHANNEL):
    FAST is exp(x) / sum(exp(x)), which may overflow; ACCURATE subtracts the maximum first; LOG is its logarithm.
    x, y: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16, INT8), any strides up to 5 dimensions,
    spatially packed beyond. In place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for an unknown algorithm (c12) or mode (c13), differing dimensions (c10) or data types (c11);
    NOT_SUPPORTED for other data types (c09) or unpacked tensors of more than 5 dimensions (c03).
    Source: 3.2.96; formulas: docs/errata.md, D026 and D133.
    """
    same_dims("cudnnSoftmaxForward/c10", xDesc=xDesc, yDesc=yDesc)
    same_data_type("cudnnSoftmaxForward/c11", xDesc=xDesc, yDesc=yDesc)
    data_type_among("cudnnSoftmaxForward/c09", FORWARD_TYPES, xDesc=xDesc)
    spatially_packed_beyond(5, "cudnnSoftmaxForward/c03", xDesc=xDesc, yDesc=yDesc)
    writable_layout(yDesc=yDesc)
    return SoftmaxForward(algorithm, mode, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc)


@computing(
    memory=[SameMemory("dy", "dx", "c03", allowed=lambda o: o.dy == o.dx)],
    failed="c13",
)
def cudnnSoftmaxBackward(
    handle: Handle,
    algorithm: cudnnSoftmaxAlgorithm_t,
    mode: cudnnSoftmaxMode_t,
    alpha: float,
    yDesc: TensorSpec,
    y: Any,
    dyDesc: TensorSpec,
    dy: Any,
    beta: float,
    dxDesc: TensorSpec,
    dx: Any,
) -> SoftmaxBackward:
    """Compute dx = alpha * gradient + beta * dx; beta == 0 does not read dx.

    The gradient is y * (dy - sum(y * dy)) for FAST and ACCURATE, dy - exp(y) * sum(dy) for LOG; the sums run over what
    one softmax runs over (see cudnnSoftmaxForward).
    y, dy, dx: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16), any strides up to 5 dimensions,
    spatially packed beyond; y and dy have equal strides. In place (dy is dx) if their descriptors are identical.
    Errors: BAD_PARAM for differing dimensions (c10), strides of y and dy (c11), data types (c12), an unknown algorithm
    or mode, in place with differing descriptors (c03); NOT_SUPPORTED for other data types (c09) or unpacked tensors of
    more than 5 dimensions (c06).
    Source: 4.1.19; formulas: docs/errata.md, D190.
    """
    tensors = {"yDesc": yDesc, "dyDesc": dyDesc, "dxDesc": dxDesc}
    same_dims("cudnnSoftmaxBackward/c10", **tensors)
    same_strides("cudnnSoftmaxBackward/c11", yDesc=yDesc, dyDesc=dyDesc)
    same_data_type("cudnnSoftmaxBackward/c12", **tensors)
    data_type_among("cudnnSoftmaxBackward/c09", BACKWARD_TYPES, yDesc=yDesc)
    spatially_packed_beyond(5, "cudnnSoftmaxBackward/c06", **tensors)
    writable_layout(dxDesc=dxDesc)
    return SoftmaxBackward(algorithm, mode, scaling(alpha, dxDesc), scaling(beta, dxDesc), yDesc, dyDesc, dxDesc)
