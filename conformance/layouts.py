"""Named memory layouts for the cases."""

from __future__ import annotations

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import NCHW, NHWC

LAYOUTS = ("nchw", "nhwc", "chwn", "gaps", "odd")
NOT_SPATIALLY_PACKED = ("nhwc", "chwn", "gaps", "odd")


def laid_out(data_type: cudnnDataType_t, dims: tuple[int, ...], layout: str) -> TensorSpec:
    """A tensor of ``dims`` in a layout:

    nchw, nhwc: packed; chwn: packed, images innermost; gaps: NCHW order with gaps after rows, planes and images (the
    innermost stride is 1); odd: spatial dimensions outermost, an innermost stride of 2, odd gaps.
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
