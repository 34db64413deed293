"""Make backend descriptors from Python values, and read values back from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from dualdnn.api import cudnn

INT64, DESCRIPTOR = cudnn.CUDNN_TYPE_INT64, cudnn.CUDNN_TYPE_BACKEND_DESCRIPTOR


def finalized(kind: str, prefix: str, **attributes: tuple[Any, Any]) -> Any:
    """Return a finalised descriptor. attributes: maps the end of a name to (type, elements)."""
    descriptor = cudnn.cudnnBackendCreateDescriptor(getattr(cudnn, f"CUDNN_BACKEND_{kind}_DESCRIPTOR"))
    for ending, (type_, elements) in attributes.items():
        name = getattr(cudnn, f"CUDNN_ATTR_{prefix}_{ending}")
        cudnn.cudnnBackendSetAttribute(descriptor, name, type_, len(elements), elements)
    cudnn.cudnnBackendFinalize(descriptor)
    return descriptor


def get(descriptor: Any, name: str, type_: Any) -> tuple[Any, ...]:
    """Return all elements of an attribute, after asking how many there are."""
    attribute = getattr(cudnn, f"CUDNN_ATTR_{name}")
    count = cudnn.cudnnBackendGetAttribute(descriptor, attribute, type_, 0).elementCount
    return cudnn.cudnnBackendGetAttribute(descriptor, attribute, type_, count).arrayOfElements


def tensor(uid: int, *dims: int, virtual: bool = False) -> Any:
    """Return a packed tensor of floats."""
    strides = [int(np.prod(dims[i + 1 :])) for i in range(len(dims))]
    return finalized(
        "TENSOR", "TENSOR", UNIQUE_ID=(INT64, [uid]), DATA_TYPE=(cudnn.CUDNN_TYPE_DATA_TYPE, [cudnn.CUDNN_DATA_FLOAT]),
        BYTE_ALIGNMENT=(INT64, [4]), DIMENSIONS=(INT64, dims), STRIDES=(INT64, strides),
        IS_VIRTUAL=(cudnn.CUDNN_TYPE_BOOLEAN, [virtual]),
    )  # fmt: skip


def convolution(x: Any, w: Any, y: Any, padding: int) -> Any:
    """Return the node y = conv(x, w), a cross-correlation."""
    settings = finalized(
        "CONVOLUTION", "CONVOLUTION", SPATIAL_DIMS=(INT64, [2]), COMP_TYPE=(cudnn.CUDNN_TYPE_DATA_TYPE, [cudnn.CUDNN_DATA_FLOAT]),
        CONV_MODE=(cudnn.CUDNN_TYPE_CONVOLUTION_MODE, [cudnn.CUDNN_CROSS_CORRELATION]), PRE_PADDINGS=(INT64, [padding] * 2),
        POST_PADDINGS=(INT64, [padding] * 2), DILATIONS=(INT64, [1, 1]), FILTER_STRIDES=(INT64, [1, 1]),
    )  # fmt: skip
    kind = "OPERATION_CONVOLUTION_FORWARD"
    return finalized(
        kind, kind, CONV_DESC=(DESCRIPTOR, [settings]), X=(DESCRIPTOR, [x]), W=(DESCRIPTOR, [w]), Y=(DESCRIPTOR, [y]),
        ALPHA=(cudnn.CUDNN_TYPE_FLOAT, [1.0]), BETA=(cudnn.CUDNN_TYPE_FLOAT, [0.0]),
    )  # fmt: skip


def pointwise(mode: str, x: Any, y: Any, b: Any = None) -> Any:
    """Return the node y = mode(x), or y = mode(x, b)."""
    settings = finalized(
        "POINTWISE", "POINTWISE", MODE=(cudnn.CUDNN_TYPE_POINTWISE_MODE, [getattr(cudnn, f"CUDNN_POINTWISE_{mode}")]),
        MATH_PREC=(cudnn.CUDNN_TYPE_DATA_TYPE, [cudnn.CUDNN_DATA_FLOAT]),
    )  # fmt: skip
    second = {} if b is None else {"BDESC": (DESCRIPTOR, [b])}
    kind = "OPERATION_POINTWISE"
    return finalized(
        kind, kind, PW_DESCRIPTOR=(DESCRIPTOR, [settings]), XDESC=(DESCRIPTOR, [x]), **second, YDESC=(DESCRIPTOR, [y])
    )
