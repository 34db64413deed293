"""Holds cases of the tensor arithmetic family: adding, pointwise operations, scaling, setting."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnOpTensorOp_t as Op
from dualdnn.api.operations import AddTensor, OpTensor, OpTensorSpec, ScaleTensor, SetTensor, TensorSpec
from dualdnn.api.operations.specs import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT8,
    INT32,
    NCHW_VECT_C,
    NHWC,
    UINT8,
    INT8x4,
    INT8x32,
    UINT8x4,
)
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import attempt, prepare
from dualdnn.reference import judge

DIMS = (2, 3, 5, 7)
TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16, INT8)
UNARY = (Op.CUDNN_OP_TENSOR_SQRT, Op.CUDNN_OP_TENSOR_NOT)
COMPUTE_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)
PROPAGATE, NOT_PROPAGATE = Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN

# Each clause of table 7 has opTensorCompType, A, B, C.
TABLE_7 = {
    "c08": (FLOAT, FLOAT, FLOAT, FLOAT),
    "c09": (FLOAT, INT8, INT8, FLOAT),
    "c10": (FLOAT, HALF, HALF, FLOAT),
    "c11": (FLOAT, BFLOAT16, BFLOAT16, FLOAT),
    "c12": (DOUBLE, DOUBLE, DOUBLE, DOUBLE),
    "c13": (FLOAT, FLOAT, FLOAT, HALF),
    "c14": (FLOAT, HALF, HALF, HALF),
    "c15": (FLOAT, INT8, INT8, INT8),
    "c16": (FLOAT, FLOAT, FLOAT, INT8),
    "c17": (FLOAT, FLOAT, FLOAT, BFLOAT16),
    "c18": (FLOAT, BFLOAT16, BFLOAT16, BFLOAT16),
}
ROWS = [
    pytest.param(*row, id="-".join(kind.name.removeprefix("CUDNN_DATA_") for kind in row), marks=shows(f"cudnnOpTensor/{clause}"))
    for clause, row in TABLE_7.items()
]  # fmt: skip


def by_name(value: Any) -> str:
    return getattr(value, "name", None) or str(value)


def vectors(data_type: cudnnDataType_t, dims: tuple[int, ...]) -> TensorSpec:
    return TensorSpec.packed(data_type, dims, NCHW_VECT_C)


def add(A: TensorSpec, C: TensorSpec, alpha: float = -1.75, beta: float = 0.5) -> AddTensor:
    return AddTensor(alpha, beta, A, C)


def op_tensor(op: Op = Op.CUDNN_OP_TENSOR_ADD, *, compute_type: cudnnDataType_t = FLOAT, nan: Nan = PROPAGATE,
              alpha1: float = 1.5, alpha2: float = -0.75, beta: float = 0.0, A: TensorSpec | None = None,
              B: TensorSpec | None = None, C: TensorSpec | None = None) -> OpTensor:  # fmt: skip
    A = A or TensorSpec.packed(FLOAT, DIMS)
    return OpTensor(OpTensorSpec(op, compute_type, nan), alpha1, alpha2, beta, A, B or A, C or A)


# --- cudnnAddTensor ---


@pytest.mark.parametrize("A, C", [pair for pair in product(TYPES, TYPES) if pair[0] != pair[1]], ids=by_name)
def test_add_data_types_must_agree(refused, A, C):
    dims = (1, 2, 1, 3)
    refused(add(TensorSpec.packed(A, dims), TensorSpec.packed(C, dims)), BAD_PARAM, "cudnnAddTensor/c11")


# --- cudnnOpTensor ---


@shows("cudnnOpTensorOp_t/c02 c03")
@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize("op", UNARY, ids=by_name)
def test_unary_operations_take_no_notice_of_b(trial, op, nan):
    result = []
    for kind in ("special", "normal"):
        for alpha2 in (1.0, -3.0):
            operation = op_tensor(op, nan=nan, alpha2=alpha2)
            before = {name: np.full(operation.nbytes(name), 0xFF, np.uint8) for name in ("A", "B", "C")}
            before["A"][:] = np.linspace(0.5, 9, operation.A.count, dtype=np.float32).view(np.uint8)
            if kind == "normal":
                before["B"][:] = np.linspace(-2, 2, operation.B.count, dtype=np.float32).view(np.uint8)
            result.append(trial(operation, before=before).after["C"])
    assert all(np.array_equal(result[0], other) for other in result)


@shows("cudnnOpTensor/c05")
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_op_dimensions_of_b_must_fit(refused, op):
    C = TensorSpec.packed(FLOAT, (2, 3, 4, 5))
    for dims in [(3, 3, 4, 5), (2, 2, 4, 5), (2, 3, 8, 5), (2, 3, 4, 10), (1, 1, 1, 6), (1, 3, 1), (1, 3, 1, 1, 1)]:
        refused(op_tensor(op, A=C, B=TensorSpec.packed(FLOAT, dims), C=C), BAD_PARAM, "cudnnOpTensor/c30")


def neighbours(row: tuple[cudnnDataType_t, ...]) -> list[tuple[cudnnDataType_t, ...]]:
    """Return unlisted types of A, B and C that differ from the row in one type or in both inputs."""
    kinds = (FLOAT, DOUBLE, HALF, BFLOAT16, INT8, UINT8, INT32)
    changed = [(*row[:i], kind, *row[i + 1 :]) for i in range(3) for kind in kinds]
    changed += [(kind, kind, row[2]) for kind in kinds]
    return [types for types in dict.fromkeys(changed) if types not in [known[1:] for known in TABLE_7.values()]]


OUTSIDE = sorted({types for row in TABLE_7.values() for types in neighbours(row[1:])})


@shows("cudnnOpTensor/c07")
@pytest.mark.parametrize("A, B, C", OUTSIDE, ids=lambda kind: kind.name.removeprefix("CUDNN_DATA_"))
def test_op_types_outside_table_7(refused, A, B, C):
    dims = (1, 2, 1, 3)
    a, b, c = (TensorSpec.packed(kind, dims) for kind in (A, B, C))
    clause = "cudnnOpTensor/c28" if C in (UINT8, INT32) else "cudnnOpTensor/c31"
    compute_type = DOUBLE if DOUBLE in (A, B, C) else FLOAT
    refused(op_tensor(compute_type=compute_type, A=a, B=b, C=c), BAD_PARAM, clause)


@pytest.mark.parametrize("data_type", [INT8x4, UINT8x4, INT8x32], ids=by_name)
def test_op_vectorised_types_are_outside_table_7(refused, data_type):
    spec, whole = vectors(data_type, (1, 32, 1, 2)), TensorSpec.packed(FLOAT, (1, 32, 1, 2))
    refused(op_tensor(A=spec), BAD_PARAM, "cudnnOpTensor/c28")
    refused(op_tensor(A=spec, C=whole), BAD_PARAM, "cudnnOpTensor/c31")


@shows("cudnnOpTensor/c27")
@pytest.mark.parametrize("compute_type, A, B, C", ROWS)
def test_op_other_compute_types_are_not_supported(refused, compute_type, A, B, C):
    a, b, c = (TensorSpec.packed(kind, (1, 2, 1, 3)) for kind in (A, B, C))
    for other in COMPUTE_TYPES:
        if other != compute_type:
            refused(op_tensor(compute_type=other, A=a, B=b, C=c), NOT_SUPPORTED, "cudnnOpTensor/c26")


OP_ARGUMENTS = ("handle", "opTensorDesc", "alpha1", "aDesc", "A", "alpha2", "bDesc", "B", "beta", "cDesc", "C")


def op_arguments(caller: Any, op: Op) -> dict[str, Any]:
    spec = TensorSpec.packed(FLOAT, DIMS)
    a, b, c = (caller.handle.to_device(np.ones(spec.count, np.float32)) for _ in range(3))
    descriptor = caller.descriptor(OpTensorSpec(op, FLOAT, PROPAGATE))
    values = (
        caller.handle, descriptor, 1.0, caller.tensor(spec), a, 1.0, caller.tensor(spec), b, 0.0, caller.tensor(spec), c,
    )  # fmt: skip
    return dict(zip(OP_ARGUMENTS, values, strict=True))


@pytest.mark.parametrize("op", list(Op), ids=by_name)
@pytest.mark.parametrize("missing", OP_ARGUMENTS)
def test_op_null(cudnn, caller, refuses, missing, op):
    """The operations on A alone also need B and its descriptor."""
    arguments = op_arguments(caller, op)
    memory = arguments["C"]
    arguments[missing] = None
    clause = "cudnnOpTensor/c23" if missing == "handle" or missing.endswith("Desc") else "cudnnStatus_t/c05"
    refuses(BAD_PARAM, clause, cudnn.cudnnOpTensor, *arguments.values(), unchanged=(memory,))


@shows("cudnnOpTensorDescriptor_t/c02")
@pytest.mark.parametrize("fresh", ["opTensorDesc", "aDesc", "bDesc", "cDesc"])
def test_op_needs_initialised_descriptors(subject, cudnn, caller, refuses, fresh):
    if fresh == "opTensorDesc" and not subject.survives_stray_pointers:
        pytest.skip("a library may find anything in a descriptor that nobody initialised")
    arguments = op_arguments(caller, Op.CUDNN_OP_TENSOR_ADD)
    create = cudnn.cudnnCreateOpTensorDescriptor if fresh == "opTensorDesc" else cudnn.cudnnCreateTensorDescriptor
    arguments[fresh] = create()
    refuses(BAD_PARAM, "cudnnOpTensor/c23", cudnn.cudnnOpTensor, *arguments.values(), unchanged=(arguments["C"],))


# --- cudnnScaleTensor ---


def test_scale_by_zero(caller):
    result = attempt(caller, ScaleTensor(0.0, TensorSpec.packed(FLOAT, DIMS)))
    assert result.passed, result.explanation()
    assert not result.after["y"].view(np.float32).any()


# --- cudnnSetTensor ---


def test_set_to_zero(caller):
    """Zero has either sign, whatever the call before wrote."""
    for value in (0.0, -0.0, 0.0):
        result = attempt(caller, SetTensor(value, TensorSpec.packed(HALF, DIMS)))
        assert result.passed, result.explanation()
        after = result.after["y"].view(np.float16)
        assert not after.any() and (np.signbit(after) == np.signbit(value)).all()


# --- addresses and layouts ---


@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8, DOUBLE], ids=by_name)
@pytest.mark.parametrize("shifted", ["A", "B", "C", "y"])
def test_operands_need_only_the_alignment_of_an_element(caller, shifted, data_type):
    spec = TensorSpec.packed(data_type, (2, 16, 4, 4))
    bias = TensorSpec.packed(data_type, (1, 16, 1, 1), NHWC)
    compute_type = DOUBLE if data_type == DOUBLE else FLOAT
    operations = {
        "y": (ScaleTensor(0.5, spec), SetTensor(3.0, spec)),
        "B": (op_tensor(compute_type=compute_type, A=spec), op_tensor(compute_type=compute_type, A=spec, B=bias)),
    }.get(shifted, (add(spec, spec), add(bias, spec), op_tensor(compute_type=compute_type, A=spec, beta=0.5)))
    for operation in operations:
        before = prepare(operation, "normal", 0)
        offset = {name: spec.scalar_bytes if name == shifted else 0 for name in before}
        buffers = {
            name: caller.handle.to_device(np.append(np.zeros(offset[name], np.uint8), before[name])) for name in before
        }
        caller(operation, {name: buffer.slice(offset[name], before[name].size) for name, buffer in buffers.items()})
        after = {name: buffer.to_host(np.uint8, buffer.nbytes)[offset[name] :] for name, buffer in buffers.items()}
        verdict = judge(operation, before, after)
        assert verdict.agrees, f"{verdict.worst} {operation}"


# --- the descriptor ---


@pytest.fixture
def descriptor(cudnn):
    made = cudnn.cudnnCreateOpTensorDescriptor()
    yield made
    cudnn.cudnnDestroyOpTensorDescriptor(made)


@shows("cudnnCreateOpTensorDescriptor/c01 c02", "cudnnOpTensorDescriptor_t/c01", "cudnnSetOpTensorDescriptor/c01 c02 c04",
       "cudnnGetOpTensorDescriptor/c01-c04", "cudnnOpTensorOp_t/c01")  # fmt: skip
@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize("compute_type", COMPUTE_TYPES, ids=by_name)
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_what_is_set_is_read(cudnn, descriptor, op, compute_type, nan):
    cudnn.cudnnSetOpTensorDescriptor(descriptor, op, compute_type, nan)
    got = cudnn.cudnnGetOpTensorDescriptor(descriptor)
    assert (got.opTensorOp, got.opTensorCompType, got.opTensorNanOpt) == (op, compute_type, nan)


def test_setting_again_replaces_everything(cudnn, descriptor):
    cudnn.cudnnSetOpTensorDescriptor(descriptor, Op.CUDNN_OP_TENSOR_NOT, DOUBLE, PROPAGATE)
    cudnn.cudnnSetOpTensorDescriptor(descriptor, Op.CUDNN_OP_TENSOR_MIN, FLOAT, NOT_PROPAGATE)
    assert tuple(cudnn.cudnnGetOpTensorDescriptor(descriptor)) == (Op.CUDNN_OP_TENSOR_MIN, FLOAT, NOT_PROPAGATE)


@shows("cudnnDestroyOpTensorDescriptor/c01 c02")
def test_destroy(subject, cudnn, refuses):
    made = cudnn.cudnnCreateOpTensorDescriptor()
    cudnn.cudnnSetOpTensorDescriptor(made, Op.CUDNN_OP_TENSOR_ADD, FLOAT, PROPAGATE)
    assert cudnn.cudnnDestroyOpTensorDescriptor(made) is None
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnGetOpTensorDescriptor/c05", cudnn.cudnnGetOpTensorDescriptor, made)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyOpTensorDescriptor, made)
