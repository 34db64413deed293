"""Cases of the tensor arithmetic family: adding, pointwise operations, scaling, setting."""

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
    NCHW,
    NCHW_VECT_C,
    NHWC,
    UINT8,
    INT8x4,
    INT8x32,
    UINT8x4,
)
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.layouts import LAYOUTS, laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.solvers import divided_among
from dualdnn.conformance.trial import attempt, prepare
from dualdnn.reference import judge

DIMS = (2, 3, 5, 7)
DIMS_5D = (2, 3, 2, 3, 5)
TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16, INT8)
BLENDS = ((1.0, 0.0), (-1.75, 0.5))
UNARY = (Op.CUDNN_OP_TENSOR_SQRT, Op.CUDNN_OP_TENSOR_NOT)
COMPUTE_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)
PROPAGATE, NOT_PROPAGATE = Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN

# Table 7: clause -> opTensorCompType, A, B, C
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


def subsets(rank: int) -> list[tuple[int, ...]]:
    """Every choice of dimensions to broadcast."""
    return [tuple(d for d in range(rank) if bits >> d & 1) for bits in range(2**rank)]


def shrunk(dims: tuple[int, ...], broadcast: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if d in broadcast else extent for d, extent in enumerate(dims))


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


@shows("cudnnAddTensor/c01", "cudnnAddTensor/c06", "cudnnAddTensor/c08")
@pytest.mark.parametrize("alpha, beta", [*BLENDS, (0.0, 1.0), (1.0, 1.0), (0.0, 2.0)])
@pytest.mark.parametrize("data_type", TYPES, ids=by_name)
def test_add_formula(trial, data_type, alpha, beta):
    """beta == 0 does not read C: it holds NaN."""
    C = TensorSpec.packed(data_type, DIMS)
    trial(add(TensorSpec.packed(data_type, (1, 3, 1, 1)), C, alpha, beta))
    trial(add(C, C, alpha, beta))


@shows("cudnnAddTensor/c03", "cudnnAddTensor/c02")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(2, 3, 5, 7), (3, 16, 4, 8), DIMS_5D], ids=str)
def test_add_broadcasts_every_choice_of_dimensions(trial, dims, layout):
    C = laid_out(HALF, dims, layout)
    for broadcast in subsets(len(dims)):
        trial(add(laid_out(HALF, shrunk(dims, broadcast), "nchw"), C))


@shows("cudnnAddTensor/c04")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_add_takes_every_pair_of_layouts(trial, source, layout):
    for dims in ((3, 4, 6, 5), DIMS_5D):
        C = laid_out(FLOAT, dims, layout)
        trial(add(laid_out(FLOAT, dims, source), C))
        trial(add(laid_out(FLOAT, shrunk(dims, (0, len(dims) - 1)), source), C))


@shows("cudnnAddTensor/c03", "cudnnAddTensor/c04")
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=by_name)
@pytest.mark.parametrize(
    "dims, layout",
    [
        ((1, 1, 1, 4099), "nchw"), ((1, 1, 1, 36870), "nchw"), ((2, 3, 5, 7, 11), "gaps"), ((2, 3, 6, 5, 13), "gaps"),
        ((9, 2, 3, 7, 13), "odd"),
    ],
    ids=str,
)  # fmt: skip
def test_several_elements_of_a_thread(trial, caller, dims, layout, data_type, beta):
    """Packs or single elements, of which the last threads have fewer, as many as on a device of few multiprocessors."""
    C = laid_out(data_type, dims, layout)
    with divided_among(caller.handle, 1):
        trial(add(C, C, 1.5, beta))
        trial(op_tensor(A=C, beta=beta))
        trial(ScaleTensor(beta or 1.5, C))


@shows("cudnnAddTensor/c04", "cudnnTensorFormat_t/c08")
@pytest.mark.parametrize("broadcast", [(), (0,), (2, 3), (0, 2, 3)], ids=str)
def test_add_takes_vectorised_channels(trial, broadcast):
    dims = (2, 12, 3, 5)
    trial(add(vectors(INT8x4, shrunk(dims, broadcast)), vectors(INT8x4, dims), 0.5, 0.25))


@shows("cudnnAddTensor/c04")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_add_takes_three_dimensions(trial, layout):
    trial(add(laid_out(FLOAT, (1, 5, 1), "nchw"), laid_out(FLOAT, (3, 5, 7), layout)))


@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8, DOUBLE], ids=by_name)
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=by_name)
@pytest.mark.parametrize(
    "dims",
    [
        (1, 1, 1, 1),
        (1, 1, 1, 3),
        (2, 5, 3, 1),
        (3, 17, 1, 1),
        (2, 20, 5, 3),
        (1, 33, 7, 7),
        (2, 3, 29, 31),
        (2, 64, 6, 6),
    ],
    ids=str,
)
@shows("cudnnAddTensor/c03")
def test_add_bias_of_awkward_shapes(trial, dims, tensor_format, data_type):
    """Rows shorter than one access, rows that no access divides, several blocks."""
    bias = TensorSpec.packed(data_type, (1, dims[1], 1, 1))
    trial(add(bias, TensorSpec.packed(data_type, dims, tensor_format), 1.0, 0.75))


@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE, BFLOAT16], ids=by_name)
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_add_special_values(trial, data_type, beta):
    C = TensorSpec.packed(data_type, DIMS)
    trial(add(TensorSpec.packed(data_type, (2, 3, 1, 7)), C, -1.5, beta), inputs="special")


def test_add_rounds_and_saturates(trial):
    """Into INT8 and HALF: ties to even, saturation, overflow to infinity."""
    C = TensorSpec.packed(INT8, DIMS)
    for alpha, beta in ((0.5, 0.0), (4.0, 0.0), (0.5, 1.5), (-3.0, 2.0)):
        trial(add(C, C, alpha, beta))
    half = TensorSpec.packed(HALF, DIMS)
    trial(add(half, half, 40000.0, 0.0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_add_in_place(trial, layout):
    spec = laid_out(FLOAT, DIMS, layout)
    trial(add(spec, spec, 1.5, -0.25), aliases={"A": "C"})


@pytest.mark.parametrize("A, C", [pair for pair in product(TYPES, TYPES) if pair[0] != pair[1]], ids=by_name)
def test_add_data_types_must_agree(refused, A, C):
    dims = (1, 2, 1, 3)
    refused(add(TensorSpec.packed(A, dims), TensorSpec.packed(C, dims)), BAD_PARAM, "cudnnAddTensor/c11")


# --- cudnnOpTensor ---


@shows("cudnnOpTensor/c01", "cudnnOpTensor/c02", "cudnnOpTensor/c03", "cudnnOpTensor/c07", "cudnnOpTensor/c20",
       "cudnnOpTensor/c24", "cudnnOpTensorOp_t/c01", "cudnnSetOpTensorDescriptor/c02")  # fmt: skip
@pytest.mark.parametrize("beta", [0.0, -0.5])
@pytest.mark.parametrize("compute_type, A, B, C", ROWS)
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_op_formula(trial, op, compute_type, A, B, C, beta):
    """Every operation in every row of Table 7; beta == 0 does not read C: it holds NaN."""
    a, b, c = (TensorSpec.packed(kind, DIMS) for kind in (A, B, C))
    whole = op == Op.CUDNN_OP_TENSOR_MUL and A == INT8  # products of large integers would all saturate
    kind = "positive" if op == Op.CUDNN_OP_TENSOR_SQRT else "ties" if whole else "normal"
    alpha1 = 12.5 if C == INT8 and A != INT8 else 1.5  # values of several bits in INT8
    trial(op_tensor(op, compute_type=compute_type, alpha1=alpha1, beta=beta, A=a, B=b, C=c), inputs=kind)


@shows("cudnnOpTensor/c22")
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_op_blends_with_the_prior_values(trial, op):
    for alpha1, alpha2, beta in ((1.0, 1.0, 1.0), (0.5, 2.0, -3.0), (0.25, 0.0, 1.0), (2.0, 1.0, 0.125)):
        trial(op_tensor(op, alpha1=alpha1, alpha2=alpha2, beta=beta), inputs="positive")


@shows("cudnnOpTensor/c05", "cudnnOpTensor/c06")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(2, 3, 5, 7), (3, 16, 4, 8), DIMS_5D], ids=str)
def test_op_broadcasts_every_choice_of_dimensions(trial, dims, layout):
    spec = laid_out(HALF, dims, layout)
    for broadcast in subsets(len(dims)):
        trial(op_tensor(A=spec, B=laid_out(HALF, shrunk(dims, broadcast), "nchw"), C=spec, beta=0.5))


@shows("cudnnOpTensor/c19")
@pytest.mark.parametrize("c_layout", LAYOUTS)
@pytest.mark.parametrize("b_layout", LAYOUTS)
def test_op_takes_every_combination_of_layouts(trial, b_layout, c_layout):
    for a_layout in LAYOUTS:
        for dims in ((3, 4, 6, 5), DIMS_5D):
            A, B, C = (laid_out(FLOAT, dims, layout) for layout in (a_layout, b_layout, c_layout))
            trial(op_tensor(Op.CUDNN_OP_TENSOR_MUL, A=A, B=B, C=C, beta=0.5))


@shows("cudnnOpTensor/c19")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_op_takes_three_dimensions(trial, layout):
    A, B = laid_out(FLOAT, (3, 5, 7), layout), laid_out(FLOAT, (1, 5, 1), "nchw")
    trial(op_tensor(A=A, B=B))


@pytest.mark.parametrize("compute_type, A, B, C", ROWS)
@pytest.mark.parametrize(
    "dims", [(1, 1, 1, 1), (1, 1, 1, 3), (2, 5, 3, 1), (2, 20, 5, 3), (1, 33, 7, 7), (2, 3, 29, 31)], ids=str
)
def test_op_of_awkward_shapes(trial, dims, compute_type, A, B, C):
    """Rows shorter than one access, rows that no access divides, several blocks; both formats; whole and broadcast B."""
    for tensor_format, b_dims in product((NCHW, NHWC), (dims, (1, dims[1], 1, 1))):
        a, b, c = (TensorSpec.packed(*spec, tensor_format) for spec in ((A, dims), (B, b_dims), (C, dims)))
        trial(op_tensor(compute_type=compute_type, alpha1=0.75, alpha2=0.25, beta=0.5, A=a, B=b, C=c))


@shows("cudnnSetOpTensorDescriptor/c03")
@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize(
    "data_type, compute_type", [(FLOAT, FLOAT), (HALF, FLOAT), (BFLOAT16, FLOAT), (DOUBLE, DOUBLE)], ids=by_name
)
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_op_special_values(trial, op, data_type, compute_type, nan):
    """NaN is the minimum and maximum where it is propagated, else the other operand is; other operations propagate it."""
    spec = TensorSpec.packed(data_type, DIMS)
    for beta in (0.0, 0.5):
        trial(
            op_tensor(op, compute_type=compute_type, nan=nan, alpha1=1.0, alpha2=1.0, beta=beta, A=spec),
            inputs="special",
        )


@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_op_ties_and_cancellation(trial, op):
    for kind in ("ties", "wide"):
        trial(op_tensor(op, alpha1=-1.0, alpha2=1.0), inputs=kind)


@pytest.mark.parametrize("op", [op for op in Op if op not in UNARY], ids=by_name)
def test_op_rounds_into_int8(trial, op):
    """Ties to even, saturation at -128 and 127."""
    A, C = TensorSpec.packed(FLOAT, DIMS), TensorSpec.packed(INT8, DIMS)
    for alpha, kind in ((1.0, "ties"), (1.0, "wide"), (64.0, "wide")):
        trial(op_tensor(op, alpha1=alpha, alpha2=1.0, A=A, C=C), inputs=kind)


@shows("cudnnOpTensorOp_t/c02", "cudnnOpTensorOp_t/c03")
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


@shows("cudnnOpTensor/c01")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_op_in_place(trial, op, layout):
    spec = laid_out(FLOAT, DIMS, layout)
    trial(op_tensor(op, A=spec, beta=0.5), aliases={"A": "C"}, inputs="positive")


@shows("cudnnOpTensor/c05")
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_op_dimensions_of_b_must_fit(refused, op):
    C = TensorSpec.packed(FLOAT, (2, 3, 4, 5))
    for dims in [(3, 3, 4, 5), (2, 2, 4, 5), (2, 3, 8, 5), (2, 3, 4, 10), (1, 1, 1, 6), (1, 3, 1), (1, 3, 1, 1, 1)]:
        refused(op_tensor(op, A=C, B=TensorSpec.packed(FLOAT, dims), C=C), BAD_PARAM, "cudnnOpTensor/c30")


def neighbours(row: tuple[cudnnDataType_t, ...]) -> list[tuple[cudnnDataType_t, ...]]:
    """The types of A, B and C that differ from the row in one place or in the inputs and are in no row."""
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
    """The operations on A alone need B and its descriptor too."""
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


@shows("cudnnScaleTensor/c01", "cudnnScaleTensor/c02", "cudnnScaleTensor/c04")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("data_type", TYPES, ids=by_name)
def test_scale(trial, data_type, layout):
    for dims in (DIMS, DIMS_5D):
        for alpha in (1.0, -0.75, 2.5):
            trial(ScaleTensor(alpha, laid_out(data_type, dims, layout)))


@pytest.mark.parametrize("data_type", TYPES, ids=by_name)
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (1, 1, 1, 3), (3, 17, 1, 1), (1, 33, 7, 7), (2, 3, 29, 31)], ids=str)
def test_scale_of_awkward_shapes(trial, dims, data_type):
    trial(ScaleTensor(-1.5, TensorSpec.packed(data_type, dims)))
    trial(ScaleTensor(-1.5, laid_out(data_type, dims, "gaps")))


@pytest.mark.parametrize("data_type", [FLOAT, HALF, BFLOAT16, DOUBLE], ids=by_name)
def test_scale_special_values(trial, data_type):
    trial(ScaleTensor(-2.0, TensorSpec.packed(data_type, DIMS)), inputs="special")


def test_scale_by_zero(caller):
    result = attempt(caller, ScaleTensor(0.0, TensorSpec.packed(FLOAT, DIMS)))
    assert result.passed, result.explanation()
    assert not result.after["y"].view(np.float32).any()


def test_scale_factor_is_double_beside_double(trial):
    """A third has no float: a factor that went through one is off by 2**-27."""
    trial(ScaleTensor(1 / 3, TensorSpec.packed(DOUBLE, DIMS)))


@pytest.mark.parametrize("data_type", [INT32, UINT8, INT8x4, UINT8x4, INT8x32], ids=by_name)
def test_scale_other_types_are_not_supported(refused, data_type):
    spec = TensorSpec.packed(data_type, (2, 32, 2, 2), NCHW_VECT_C if data_type in (INT8x4, UINT8x4, INT8x32) else NCHW)
    refused(ScaleTensor(2.0, spec), NOT_SUPPORTED, "cudnnScaleTensor/c05")


@pytest.mark.parametrize("missing", ["handle", "yDesc", "y", "alpha"])
def test_scale_null(cudnn, caller, refuses, missing):
    spec = TensorSpec.packed(FLOAT, DIMS)
    memory = caller.handle.to_device(np.ones(spec.count, np.float32))
    arguments: dict[str, Any] = {"handle": caller.handle, "yDesc": caller.tensor(spec), "y": memory, "alpha": 2.0}
    arguments[missing] = None
    refuses(BAD_PARAM, "cudnnScaleTensor/c06", cudnn.cudnnScaleTensor, *arguments.values(), unchanged=(memory,))


# --- cudnnSetTensor ---


@shows("cudnnSetTensor/c01", "cudnnSetTensor/c02", "cudnnSetTensor/c03", "cudnnSetTensor/c05")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("data_type", TYPES, ids=by_name)
def test_set(trial, data_type, layout):
    for dims in (DIMS, DIMS_5D):
        for value in (1.0, -7.0, 127.0, -128.0) if data_type == INT8 else (1.25, -7.0, 1 / 3, 65504.0):
            trial(SetTensor(value, laid_out(data_type, dims, layout)))


@pytest.mark.parametrize("data_type", TYPES, ids=by_name)
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (1, 1, 1, 3), (3, 17, 1, 1), (1, 33, 7, 7), (2, 3, 29, 31)], ids=str)
def test_set_of_awkward_shapes(trial, dims, data_type):
    trial(SetTensor(5.0, TensorSpec.packed(data_type, dims)))
    trial(SetTensor(5.0, laid_out(data_type, dims, "gaps")))


@pytest.mark.parametrize("data_type", [FLOAT, DOUBLE, HALF, BFLOAT16], ids=by_name)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e-40, 3e-8], ids=str)
def test_set_special_values(trial, value, data_type):
    trial(SetTensor(value, TensorSpec.packed(data_type, DIMS)))


def test_set_to_zero(caller):
    """Of either sign, whatever the call before was given."""
    for value in (0.0, -0.0, 0.0):
        result = attempt(caller, SetTensor(value, TensorSpec.packed(HALF, DIMS)))
        assert result.passed, result.explanation()
        after = result.after["y"].view(np.float16)
        assert not after.any() and (np.signbit(after) == np.signbit(value)).all()


@pytest.mark.parametrize("data_type", [INT32, UINT8, INT8x4, UINT8x4, INT8x32], ids=by_name)
def test_set_other_types_are_not_supported(refused, data_type):
    spec = TensorSpec.packed(data_type, (2, 32, 2, 2), NCHW_VECT_C if data_type in (INT8x4, UINT8x4, INT8x32) else NCHW)
    refused(SetTensor(2.0, spec), NOT_SUPPORTED, "cudnnSetTensor/c06")


@pytest.mark.parametrize("missing", ["handle", "yDesc", "y", "valuePtr"])
def test_set_null(cudnn, caller, refuses, missing):
    spec = TensorSpec.packed(FLOAT, DIMS)
    memory = caller.handle.to_device(np.ones(spec.count, np.float32))
    arguments: dict[str, Any] = {"handle": caller.handle, "yDesc": caller.tensor(spec), "y": memory, "valuePtr": 2.0}
    arguments[missing] = None
    refuses(BAD_PARAM, "cudnnSetTensor/c07", cudnn.cudnnSetTensor, *arguments.values(), unchanged=(memory,))


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


def test_overlapping_inputs_are_read(trial):
    folded = TensorSpec(FLOAT, (2, 3, 4, 5), (60, 20, 2, 1))
    whole = TensorSpec.packed(FLOAT, (2, 3, 4, 5))
    trial(add(folded, whole))
    trial(op_tensor(A=folded, B=folded, C=whole))


# --- the descriptor ---


@pytest.fixture
def descriptor(cudnn):
    made = cudnn.cudnnCreateOpTensorDescriptor()
    yield made
    cudnn.cudnnDestroyOpTensorDescriptor(made)


@shows("cudnnCreateOpTensorDescriptor/c01", "cudnnCreateOpTensorDescriptor/c02", "cudnnOpTensorDescriptor_t/c01",
       "cudnnSetOpTensorDescriptor/c01", "cudnnSetOpTensorDescriptor/c02",
       "cudnnSetOpTensorDescriptor/c04", "cudnnGetOpTensorDescriptor/c01", "cudnnGetOpTensorDescriptor/c02",
       "cudnnGetOpTensorDescriptor/c03", "cudnnGetOpTensorDescriptor/c04", "cudnnOpTensorOp_t/c01")  # fmt: skip
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


WRONG = [
    *[(op, FLOAT, PROPAGATE) for op in (-1, 6, 99)],
    *[(Op.CUDNN_OP_TENSOR_ADD, compute_type, PROPAGATE) for compute_type in (-1, INT8, INT32, INT8x4, UINT8, UINT8x4, INT8x32, 10, 99)],
    *[(Op.CUDNN_OP_TENSOR_ADD, FLOAT, nan) for nan in (-1, 2, 99)],
]  # fmt: skip


@pytest.mark.parametrize("op, compute_type, nan", WRONG, ids=by_name)
def test_wrong_settings_are_refused_and_change_nothing(cudnn, descriptor, refuses, op, compute_type, nan):
    before = (Op.CUDNN_OP_TENSOR_MAX, HALF, PROPAGATE)
    cudnn.cudnnSetOpTensorDescriptor(descriptor, *before)
    refuses(
        BAD_PARAM, "cudnnSetOpTensorDescriptor/c05", cudnn.cudnnSetOpTensorDescriptor, descriptor, op, compute_type, nan
    )
    assert tuple(cudnn.cudnnGetOpTensorDescriptor(descriptor)) == before


@shows("cudnnDestroyOpTensorDescriptor/c01", "cudnnDestroyOpTensorDescriptor/c02")
def test_destroy(subject, cudnn, refuses):
    made = cudnn.cudnnCreateOpTensorDescriptor()
    cudnn.cudnnSetOpTensorDescriptor(made, Op.CUDNN_OP_TENSOR_ADD, FLOAT, PROPAGATE)
    assert cudnn.cudnnDestroyOpTensorDescriptor(made) is None
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnGetOpTensorDescriptor/c05", cudnn.cudnnGetOpTensorDescriptor, made)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyOpTensorDescriptor, made)
