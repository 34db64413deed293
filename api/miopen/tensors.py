"""Implement tensor descriptors and arithmetic on whole tensors (rows 5 to 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..enumerations import cudnnDataType_t, cudnnNanPropagation_t, cudnnOpTensorOp_t, cudnnTensorFormat_t
from .calls import call, cudnn
from .enumerations import miopenDataType_t, miopenTensorOp_t
from .objects import TensorDescriptor
from .status import BAD_PARM, UNSUPPORTED_OP, expect

if TYPE_CHECKING:
    from .objects import MiopenHandle

FLOAT, NCHW = cudnnDataType_t.CUDNN_DATA_FLOAT, cudnnTensorFormat_t.CUDNN_TENSOR_NCHW
OPERATIONS = {
    miopenTensorOp_t.miopenTensorOpAdd: cudnnOpTensorOp_t.CUDNN_OP_TENSOR_ADD,
    miopenTensorOp_t.miopenTensorOpMul: cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MUL,
    miopenTensorOp_t.miopenTensorOpMin: cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MIN,
    miopenTensorOp_t.miopenTensorOpMax: cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MAX,
}


@call("cudnnCreateTensorDescriptor")
def miopenCreateTensorDescriptor() -> TensorDescriptor:
    """Return a new descriptor of a tensor or a filter, to be filled by miopenSet4dTensorDescriptor. Source: rows 5 and 13."""
    return TensorDescriptor()


@call("cudnnSetTensor4dDescriptor", "cudnnSetFilter4dDescriptor")
def miopenSet4dTensorDescriptor(
    tensorDesc: TensorDescriptor, dataType: miopenDataType_t, n: int, c: int, h: int, w: int
) -> None:
    """Describe a packed NCHW tensor of float (or a filter: n is its number of output channels).

    Errors: UnsupportedOp for another data type than miopenFloat (miopenGuide/c03); BadParm for sizes below 1 or of more
    than 2 Gi elements. Source: row 6.
    """
    expect(dataType == miopenDataType_t.miopenFloat, UNSUPPORTED_OP, "miopenGuide/c03",
           f"dataType is {dataType.name}, the guide has miopenFloat only")  # fmt: skip
    describe(tensorDesc, (n, c, h, w))


def describe(tensorDesc: Any, dims: Any) -> None:
    """Make the descriptor describe a packed tensor, and the same memory as a filter."""
    tensor = cudnn("cudnnCreateTensorDescriptor")()
    cudnn("cudnnSetTensor4dDescriptor")(tensor, NCHW, FLOAT, *dims)
    as_filter = cudnn("cudnnCreateFilterDescriptor")()
    cudnn("cudnnSetFilter4dDescriptor")(as_filter, FLOAT, NCHW, *dims)
    tensorDesc.cudnn, tensorDesc.filter = tensor, as_filter


class Tensor4dParameters(NamedTuple):
    dataType: miopenDataType_t
    n: int
    c: int
    h: int
    w: int
    nStride: int
    cStride: int
    hStride: int
    wStride: int


@call("cudnnGetTensor4dDescriptor")
def miopenGet4dTensorDescriptor(tensorDesc: TensorDescriptor) -> Tensor4dParameters:
    """Return (dataType, n, c, h, w, nStride, cStride, hStride, wStride). Source: row 7."""
    return Tensor4dParameters(miopenDataType_t.miopenFloat, *cudnn("cudnnGetTensor4dDescriptor")(tensorDesc.cudnn)[1:])


@call("cudnnDestroyTensorDescriptor", fresh=["tensorDesc"])
def miopenDestroyTensorDescriptor(tensorDesc: TensorDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 8."""
    tensorDesc.destroy()


@call("cudnnOpTensor", "cudnnCreateOpTensorDescriptor", "cudnnSetOpTensorDescriptor")
def miopenOpTensor(
    handle: MiopenHandle,
    tensorOp: miopenTensorOp_t,
    alpha1: Any,
    aDesc: TensorDescriptor,
    A: Any,
    alpha2: Any,
    bDesc: TensorDescriptor,
    B: Any,
    beta: Any,
    cDesc: TensorDescriptor,
    C: Any,
) -> None:
    """Compute C = op(alpha1 * A, alpha2 * B) + beta * C; only B is broadcast along its dimensions of extent 1.

    tensorOp: addition, multiplication, minimum, maximum. In place (A is C) when the descriptors are equal.
    Errors: BadParm for dimensions of A other than C's (c02) or of B that are neither C's nor 1. Source: rows 9 and 10.
    """
    expect(aDesc.cudnn.spec.dims == cDesc.cudnn.spec.dims, BAD_PARM, "miopenOpTensor/c02",
           f"aDesc has {aDesc.cudnn.spec.dims}, cDesc {cDesc.cudnn.spec.dims}: only B is broadcast")  # fmt: skip
    operation = cudnn("cudnnCreateOpTensorDescriptor")()
    nan = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
    cudnn("cudnnSetOpTensorDescriptor")(operation, OPERATIONS[tensorOp], FLOAT, nan)
    cudnn("cudnnOpTensor")(
        handle.cudnn, operation, alpha1, aDesc.cudnn, A, alpha2, bDesc.cudnn, B, beta, cDesc.cudnn, C
    )


@call("cudnnSetTensor")
def miopenSetTensor(handle: MiopenHandle, yDesc: TensorDescriptor, y: Any, alpha: Any) -> None:
    """Set every element of y to alpha. Source: row 11."""
    cudnn("cudnnSetTensor")(handle.cudnn, yDesc.cudnn, y, alpha)


@call("cudnnScaleTensor")
def miopenScaleTensor(handle: MiopenHandle, yDesc: TensorDescriptor, y: Any, alpha: Any) -> None:
    """Compute y = alpha * y in place. Source: row 12."""
    cudnn("cudnnScaleTensor")(handle.cudnn, yDesc.cudnn, y, alpha)
