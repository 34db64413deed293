"""Name the memory layouts that cases use, and the sizes of elements that the document gives."""

from __future__ import annotations

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT8,
    INT32,
    NCHW,
    NHWC,
    UINT8,
    INT8x4,
    INT8x32,
    UINT8x4,
)

LAYOUTS = ("nchw", "nhwc", "chwn", "gaps", "odd")
SCALARS = {FLOAT: 4, DOUBLE: 8, HALF: 2, BFLOAT16: 2, INT8: 1, UINT8: 1, INT32: 4}  # bytes of an element
VECTORS = {INT8x4: (INT8, 4), INT8x32: (INT8, 32), UINT8x4: (UINT8, 4)}  # scalar type, and channels in a vector
NOT_SPATIALLY_PACKED = ("nhwc", "chwn", "gaps", "odd")


def laid_out(data_type: cudnnDataType_t, dims: tuple[int, ...], layout: str) -> TensorSpec:
    """Return a tensor of ``dims`` in a named layout.

    nchw and nhwc are packed; chwn is packed with images innermost. gaps has NCHW order with gaps after rows, planes and
    images, and innermost stride 1. odd has spatial dimensions outermost, innermost stride 2, and odd gaps.
    """
    rank = len(dims)
    spatial = tuple(range(2, rank))
    if layout == "nchw":
        return TensorSpec.packed(data_type, dims, NCHW)
    if layout == "nhwc":
        return TensorSpec.packed(data_type, dims, NHWC)
    order = {"chwn": (1, *spatial, 0), "gaps": (0, 1, *spatial), "odd": (*spatial[::-1], 0, 1)}[layout]
    strides = [0] * rank
    step = 2 if layout == "odd" else 1
    for position, dimension in enumerate(reversed(order)):
        strides[dimension] = step
        gap = {"chwn": 0, "gaps": 1 + position, "odd": 3}[layout]
        step = step * dims[dimension] + gap
    return TensorSpec(data_type, dims, tuple(strides))
