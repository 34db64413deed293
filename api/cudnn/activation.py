"""Implement activation descriptors and calls (3.2.1, 3.2.6, 3.2.21, 3.2.37, 3.2.76, 4.1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..descriptors import ActivationDescriptor
from ..enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from ..functions import SameMemory, computing, documented
from ..operations import ActivationBackward, ActivationForward, ActivationSpec
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
from ..status import BAD_PARAM, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ..handle import Handle
    from ..operations.specs import TensorSpec

# The document has no table of types; these follow NVIDIA's library (docs/errata.md, D030).
FORWARD_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16, INT8)
BACKWARD_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)
IDENTITY = cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY


@documented()
def cudnnCreateActivationDescriptor() -> ActivationDescriptor:
    """Return a new activation descriptor, to be filled by cudnnSetActivationDescriptor.

    Source: 3.2.6, cudnnCreateActivationDescriptor/c01.
    """
    return ActivationDescriptor()


@documented(invalid={"mode": "c07", "reluNanOpt": "c08"})
def cudnnSetActivationDescriptor(
    activationDesc: ActivationDescriptor, mode: cudnnActivationMode_t, reluNanOpt: cudnnNanPropagation_t, coef: float
) -> None:
    """Set the function, its NaN propagation and its coefficient (limit of the clipped ReLU, alpha of the ELU).

    Errors: BAD_PARAM for an unknown mode (c07) or reluNanOpt (c08). Source: 3.2.76.
    """
    activationDesc.spec = ActivationSpec(mode, reluNanOpt, coef)


class ActivationParameters(NamedTuple):
    mode: cudnnActivationMode_t
    reluNanOpt: cudnnNanPropagation_t
    coef: float


@documented(invalid={"activationDesc": "c05"})
def cudnnGetActivationDescriptor(activationDesc: ActivationDescriptor) -> ActivationParameters:
    """Return (mode, reluNanOpt, coef) as they were set. Source: 3.2.37, c01 to c04; uninitialised is refused (c05)."""
    spec = activationDesc.spec
    return ActivationParameters(spec.mode, spec.relu_nan, spec.coefficient)


@documented()
def cudnnDestroyActivationDescriptor(activationDesc: ActivationDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.21."""
    activationDesc.destroy()


@computing(
    invalid={"activationDesc": "c05", "xDesc": "c05", "yDesc": "c05"},
    memory=[SameMemory("x", "y", "c16", allowed=lambda o: o.x == o.y)],
    failed="c17",
)
def cudnnActivationForward(
    handle: Handle,
    activationDesc: ActivationSpec,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    beta: float,
    yDesc: TensorSpec,
    y: Any,
) -> ActivationForward:
    """Compute y = alpha * f(x) + beta * y, element by element; beta == 0 does not read y.

    x, y: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16, INT8), any strides up to 5 dimensions,
    spatially packed beyond. In place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for a mode that only convolution takes (c13), differing dimensions (c14) or types (c15), in place
    with differing strides (c16); NOT_SUPPORTED for other types (c12) or unpacked tensors of more than 5 dimensions
    (c09).
    Source: 3.2.1.
    """
    expect(activationDesc.mode != IDENTITY, BAD_PARAM, "cudnnActivationForward/c13",
           "activationDesc has mode CUDNN_ACTIVATION_IDENTITY, which does not work with cudnnActivationForward")  # fmt: skip
    same_dims("cudnnActivationForward/c14", xDesc=xDesc, yDesc=yDesc)
    same_data_type("cudnnActivationForward/c15", xDesc=xDesc, yDesc=yDesc)
    data_type_among("cudnnActivationForward/c12", FORWARD_TYPES, xDesc=xDesc)
    spatially_packed_beyond(5, "cudnnActivationForward/c09", xDesc=xDesc, yDesc=yDesc)
    writable_layout(yDesc=yDesc)
    return ActivationForward(activationDesc, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc)


@computing(
    memory=[SameMemory("dy", "dx", "c11", allowed=lambda o: o.dy == o.dx)],
    failed="c17",
)
def cudnnActivationBackward(
    handle: Handle,
    activationDesc: ActivationSpec,
    alpha: float,
    yDesc: TensorSpec,
    y: Any,
    dyDesc: TensorSpec,
    dy: Any,
    xDesc: TensorSpec,
    x: Any,
    beta: float,
    dxDesc: TensorSpec,
    dx: Any,
) -> ActivationBackward:
    """Compute dx = alpha * f'(x) * dy + beta * dx; beta == 0 does not read dx.

    y, dy, x, dx: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16); y and dy have equal strides, x and dx
    have equal strides. In place (dy is dx) if their descriptors are identical.
    Errors: NOT_SUPPORTED for differing dimensions (c13), types (c14, c12), strides of y and dy (c15) or of x and dx
    (c16), unpacked tensors of more than 5 dimensions (c06); BAD_PARAM for in place with differing strides (c11).
    Source: 4.1.1.
    """
    expect(activationDesc.mode != IDENTITY, BAD_PARAM, "cudnnActivationMode_t/c05",
           "activationDesc has mode CUDNN_ACTIVATION_IDENTITY, which does not work with cudnnActivationBackward")  # fmt: skip
    tensors = {"yDesc": yDesc, "dyDesc": dyDesc, "xDesc": xDesc, "dxDesc": dxDesc}
    same_dims("cudnnActivationBackward/c13", NOT_SUPPORTED, **tensors)
    same_data_type("cudnnActivationBackward/c14", NOT_SUPPORTED, **tensors)
    data_type_among("cudnnActivationBackward/c12", BACKWARD_TYPES, yDesc=yDesc)
    same_strides("cudnnActivationBackward/c15", NOT_SUPPORTED, yDesc=yDesc, dyDesc=dyDesc)
    same_strides("cudnnActivationBackward/c16", NOT_SUPPORTED, xDesc=xDesc, dxDesc=dxDesc)
    spatially_packed_beyond(5, "cudnnActivationBackward/c06", **tensors)
    writable_layout(dxDesc=dxDesc)
    alpha, beta = scaling(alpha, dxDesc), scaling(beta, dxDesc)
    return ActivationBackward(activationDesc, alpha, beta, yDesc, dyDesc, xDesc, dxDesc)
