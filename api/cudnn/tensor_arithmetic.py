"""Implement arithmetic on whole tensors and its descriptor (3.2.2, 3.2.12, 3.2.27, 3.2.49, 3.2.68, 3.2.75, 3.2.84, 3.2.90)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..descriptors import OpTensorDescriptor
from ..enumerations import cudnnDataType_t, cudnnNanPropagation_t, cudnnOpTensorOp_t
from ..functions import SameMemory, computing, documented
from ..operations import AddTensor, OpTensor, OpTensorSpec, ScaleTensor, SetTensor, TensorSpec
from ..operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT8x4
from ..relations import data_type_among, rank_between, same_data_type, same_dims, scaling, writable_layout
from ..status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ..handle import Handle

# The document has no table of types; these follow NVIDIA's library (docs/errata.md, D032, D101 and D124).
PLAIN_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16, INT8)
ADD_TYPES = (*PLAIN_TYPES, INT8x4)  # "all tensor formats" includes CUDNN_TENSOR_NCHW_VECT_C.
COMPUTE_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)

# Table 7 maps the types of (A, B, C) to opTensorCompType.
OP_TENSOR_TYPES = {
    (FLOAT, FLOAT, FLOAT): FLOAT,  # cudnnOpTensor/c08
    (INT8, INT8, FLOAT): FLOAT,  # c09
    (HALF, HALF, FLOAT): FLOAT,  # c10
    (BFLOAT16, BFLOAT16, FLOAT): FLOAT,  # c11
    (DOUBLE, DOUBLE, DOUBLE): DOUBLE,  # c12
    (FLOAT, FLOAT, HALF): FLOAT,  # c13
    (HALF, HALF, HALF): FLOAT,  # c14
    (INT8, INT8, INT8): FLOAT,  # c15
    (FLOAT, FLOAT, INT8): FLOAT,  # c16
    (FLOAT, FLOAT, BFLOAT16): FLOAT,  # c17
    (BFLOAT16, BFLOAT16, BFLOAT16): FLOAT,  # c18
}
DESTINATION_TYPES = tuple(dict.fromkeys(destination for _, _, destination in OP_TENSOR_TYPES))


@documented(invalid={"*": "c03"})
def cudnnCreateOpTensorDescriptor() -> OpTensorDescriptor:
    """Return a new descriptor of tensor pointwise math, to be filled by cudnnSetOpTensorDescriptor.

    Source: 3.2.12, cudnnCreateOpTensorDescriptor/c01.
    """
    return OpTensorDescriptor()


@documented(invalid={"*": "c05"})
def cudnnSetOpTensorDescriptor(
    opTensorDesc: OpTensorDescriptor,
    opTensorOp: cudnnOpTensorOp_t,
    opTensorCompType: cudnnDataType_t,
    opTensorNanOpt: cudnnNanPropagation_t,
) -> None:
    """Set the operation, the compute type (FLOAT, DOUBLE, HALF, BFLOAT16) and the NaN propagation.

    Errors: BAD_PARAM for an unknown opTensorOp, opTensorCompType or opTensorNanOpt or an integer type to compute in
    (c05). Source: 3.2.84.
    """
    names = ", ".join(kind.name for kind in COMPUTE_TYPES)
    expect(opTensorCompType in COMPUTE_TYPES, BAD_PARAM, "cudnnSetOpTensorDescriptor/c05",
           f"opTensorCompType is {opTensorCompType.name}, {names} are supported")  # fmt: skip
    opTensorDesc.spec = OpTensorSpec(opTensorOp, opTensorCompType, opTensorNanOpt)


class OpTensorParameters(NamedTuple):
    opTensorOp: cudnnOpTensorOp_t
    opTensorCompType: cudnnDataType_t
    opTensorNanOpt: cudnnNanPropagation_t


@documented(invalid={"opTensorDesc": "c05"})
def cudnnGetOpTensorDescriptor(opTensorDesc: OpTensorDescriptor) -> OpTensorParameters:
    """Return (opTensorOp, opTensorCompType, opTensorNanOpt) as they were set.

    Source: 3.2.49, c01 to c04; uninitialised is refused (c05).
    """
    spec = opTensorDesc.spec
    return OpTensorParameters(spec.op, spec.compute_type, spec.nan)


@documented()
def cudnnDestroyOpTensorDescriptor(opTensorDesc: OpTensorDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.27."""
    opTensorDesc.destroy()


@computing(
    invalid={"aDesc": "c07", "cDesc": "c07"},
    memory=[SameMemory("A", "C", INCORRECT_PARAMETER, allowed=lambda o: o.A == o.C)],
    failed="c12",
)
def cudnnAddTensor(
    handle: Handle, alpha: float, aDesc: TensorSpec, A: Any, beta: float, cDesc: TensorSpec, C: Any
) -> AddTensor:
    """Compute C = alpha * A + beta * C; A is broadcast along its dimensions of extent 1; beta == 0 does not read C.

    A, C: up to 5 dimensions, every dimension of A that of C or 1, equal data types (FLOAT, DOUBLE, HALF, BFLOAT16,
    INT8, INT8x4), any strides. In place (A is C) if the descriptors are identical.
    Errors: BAD_PARAM for dimensions of A that do not fit C (c10) or differing types (c11); NOT_SUPPORTED for other
    types (c09) or more than 5 dimensions (c05). Source: 3.2.2.
    """
    _broadcast_onto("cudnnAddTensor/c10", "aDesc", aDesc, cDesc)
    same_data_type("cudnnAddTensor/c11", aDesc=aDesc, cDesc=cDesc)
    data_type_among("cudnnAddTensor/c09", ADD_TYPES, aDesc=aDesc)
    rank_between("cudnnAddTensor/c05", 1, 5, cDesc=cDesc)
    writable_layout(cDesc=cDesc)
    return AddTensor(scaling(alpha, cDesc), scaling(beta, cDesc), aDesc, cDesc)


@computing(
    invalid=dict.fromkeys(("handle", "opTensorDesc", "aDesc", "bDesc", "cDesc"), "c23"),
    memory=[SameMemory("A", "C", INCORRECT_PARAMETER, allowed=lambda o: o.A == o.C)],
    failed="c32",
)
def cudnnOpTensor(
    handle: Handle,
    opTensorDesc: OpTensorSpec,
    alpha1: float,
    aDesc: TensorSpec,
    A: Any,
    alpha2: float,
    bDesc: TensorSpec,
    B: Any,
    beta: float,
    cDesc: TensorSpec,
    C: Any,
) -> OpTensor:
    """Compute C = op(alpha1 * A, alpha2 * B) + beta * C; B is broadcast along its dimensions of extent 1; beta == 0
    does not read C.

    op: addition, multiplication, minimum, maximum. Square root of alpha1 * A and 1 - alpha1 * A ignore the values of B,
    but its descriptor and memory must be valid. opTensorNanOpt decides whether a minimum or maximum with a NaN is the
    NaN or the other operand.
    A, B, C: up to 5 dimensions, A with the dimensions of C, each dimension of B equal to C's or 1, types of a row of
    Table 7, any strides. In place (A is C) if the descriptors are identical.
    Errors: BAD_PARAM for dimensions of A (c29) or B (c30), a type of C that is not a destination (c28), types outside
    Table 7 (c31); NOT_SUPPORTED for another opTensorCompType than the table's (c26) or more than 5 dimensions (c25).
    Source: 3.2.68.
    """
    same_dims("cudnnOpTensor/c29", aDesc=aDesc, cDesc=cDesc)
    _broadcast_onto("cudnnOpTensor/c30", "bDesc", bDesc, cDesc)
    data_type_among("cudnnOpTensor/c28", DESTINATION_TYPES, BAD_PARAM, cDesc=cDesc)
    types = (aDesc.data_type, bDesc.data_type, cDesc.data_type)
    listed = "aDesc {}, bDesc {}, cDesc {}".format(*(kind.name for kind in types))
    expect(types in OP_TENSOR_TYPES, BAD_PARAM, "cudnnOpTensor/c31", f"data types are not a row of Table 7: {listed}")
    wanted, used = OP_TENSOR_TYPES[types], opTensorDesc.compute_type
    text = f"opTensorCompType is {used.name}, Table 7 has {wanted.name} for {listed}"
    expect(used == wanted, NOT_SUPPORTED, "cudnnOpTensor/c26", text)
    rank_between("cudnnOpTensor/c25", 1, 5, cDesc=cDesc)
    writable_layout(cDesc=cDesc)
    alpha1, alpha2, beta = (scaling(value, cDesc) for value in (alpha1, alpha2, beta))
    return OpTensor(opTensorDesc, alpha1, alpha2, beta, aDesc, bDesc, cDesc)


@computing(invalid={"*": "c06"}, failed="c07")
def cudnnScaleTensor(handle: Handle, yDesc: TensorSpec, y: Any, alpha: float) -> ScaleTensor:
    """Compute y = alpha * y in place.

    y: 4 or 5 dimensions, any strides; FLOAT, DOUBLE, HALF, BFLOAT16, INT8. alpha: one number for the whole tensor.
    Errors: BAD_PARAM for NULL (c06); NOT_SUPPORTED for other types or numbers of dimensions (c05). Source: 3.2.75.
    """
    data_type_among("cudnnScaleTensor/c05", PLAIN_TYPES, yDesc=yDesc)
    rank_between("cudnnScaleTensor/c05", 4, 5, yDesc=yDesc)
    writable_layout(yDesc=yDesc)
    return ScaleTensor(scaling(alpha, yDesc), yDesc)


@computing(invalid={"*": "c07"}, failed="c08")
def cudnnSetTensor(handle: Handle, yDesc: TensorSpec, y: Any, valuePtr: float) -> SetTensor:
    """Set every element of y to the value.

    y: 4 or 5 dimensions, any strides; FLOAT, DOUBLE, HALF, BFLOAT16, INT8. valuePtr: one number, rounded to the type of
    y; for INT8 it is an integer from -128 to 127.
    Errors: BAD_PARAM for NULL (c07) or a value that INT8 does not have (c03); NOT_SUPPORTED for other types or numbers
    of dimensions (c06). Source: 3.2.90.
    """
    data_type_among("cudnnSetTensor/c06", PLAIN_TYPES, yDesc=yDesc)
    rank_between("cudnnSetTensor/c06", 4, 5, yDesc=yDesc)
    writable_layout(yDesc=yDesc)
    expect(yDesc.data_type != INT8 or valuePtr in range(-128, 128), BAD_PARAM, "cudnnSetTensor/c03",
           f"valuePtr is {valuePtr}, which is not a value of the type of yDesc, CUDNN_DATA_INT8")  # fmt: skip
    return SetTensor(valuePtr, yDesc)


def _broadcast_onto(clause: str, name: str, spec: TensorSpec, destination: TensorSpec) -> None:
    """Raise an error unless both have the same rank and every dimension equals the destination's or 1."""
    fits = spec.rank == destination.rank and all(a in (1, c) for a, c in zip(spec.dims, destination.dims, strict=True))
    text = f"{name} has dims {spec.dims}, each must be 1 or that of cDesc, which has {destination.dims}"
    expect(fits, BAD_PARAM, clause, text)
