"""Holds cases of the tensor arithmetic family: adding, pointwise operations, scaling, setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnOpTensorOp_t as Op
from dualdnn.api.operations import OpTensor, OpTensorSpec, ScaleTensor, SetTensor, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor
from dualdnn.conformance.trial import attempt

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

DIMS = (2, 3, 5, 7)
UNARY = (Op.CUDNN_OP_TENSOR_SQRT, Op.CUDNN_OP_TENSOR_NOT)
COMPUTE_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)
PROPAGATE, NOT_PROPAGATE = Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN


def op_tensor(op: Op, nan: Nan, alpha2: float) -> OpTensor:
    spec = TensorSpec.packed(FLOAT, DIMS)
    return OpTensor(OpTensorSpec(op, FLOAT, nan), 1.5, alpha2, 0.0, spec, spec, spec)


# --- cudnnOpTensor ---


@shows("cudnnOpTensorOp_t/c02 c03")
@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize("op", UNARY, ids=by_name)
def test_unary_operations_take_no_notice_of_b(trial: Callable[..., Trial], op: Any, nan: Any) -> None:
    result = []
    for kind in ("special", "normal"):
        for alpha2 in (1.0, -3.0):
            operation = op_tensor(op, nan, alpha2)
            before = {name: np.full(operation.nbytes(name), 0xFF, np.uint8) for name in ("A", "B", "C")}
            before["A"][:] = np.linspace(0.5, 9, operation.A.count, dtype=np.float32).view(np.uint8)
            if kind == "normal":
                before["B"][:] = np.linspace(-2, 2, operation.B.count, dtype=np.float32).view(np.uint8)
            result.append(trial(operation, before=before).after["C"])
    assert all(np.array_equal(result[0], other) for other in result)


# --- cudnnScaleTensor ---


def test_scale_by_zero(caller: Caller) -> None:
    result = attempt(caller, ScaleTensor(0.0, TensorSpec.packed(FLOAT, DIMS)))
    assert result.passed, result.explanation()
    assert not result.after["y"].view(np.float32).any()


# --- cudnnSetTensor ---


def test_set_to_zero(caller: Caller) -> None:
    """Zero has either sign, whatever the call before wrote."""
    for value in (0.0, -0.0, 0.0):
        result = attempt(caller, SetTensor(value, TensorSpec.packed(HALF, DIMS)))
        assert result.passed, result.explanation()
        after = result.after["y"].view(np.float16)
        assert not after.any() and (np.signbit(after) == np.signbit(value)).all()


# --- the descriptor ---


descriptor = fresh_descriptor("OpTensor")


@shows("cudnnCreateOpTensorDescriptor/c01 c02", "cudnnOpTensorDescriptor_t/c01", "cudnnSetOpTensorDescriptor/c01 c02 c04",
       "cudnnGetOpTensorDescriptor/c01-c04", "cudnnOpTensorOp_t/c01")  # fmt: skip
@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize("compute_type", COMPUTE_TYPES, ids=by_name)
@pytest.mark.parametrize("op", list(Op), ids=by_name)
def test_what_is_set_is_read(cudnn: Any, descriptor: Any, op: Any, compute_type: Any, nan: Any) -> None:
    cudnn.cudnnSetOpTensorDescriptor(descriptor, op, compute_type, nan)
    got = cudnn.cudnnGetOpTensorDescriptor(descriptor)
    assert (got.opTensorOp, got.opTensorCompType, got.opTensorNanOpt) == (op, compute_type, nan)


def test_setting_again_replaces_everything(cudnn: Any, descriptor: Any) -> None:
    cudnn.cudnnSetOpTensorDescriptor(descriptor, Op.CUDNN_OP_TENSOR_NOT, DOUBLE, PROPAGATE)
    cudnn.cudnnSetOpTensorDescriptor(descriptor, Op.CUDNN_OP_TENSOR_MIN, FLOAT, NOT_PROPAGATE)
    assert tuple(cudnn.cudnnGetOpTensorDescriptor(descriptor)) == (Op.CUDNN_OP_TENSOR_MIN, FLOAT, NOT_PROPAGATE)


@shows("cudnnDestroyOpTensorDescriptor/c01 c02")
def test_destroy(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    made = cudnn.cudnnCreateOpTensorDescriptor()
    cudnn.cudnnSetOpTensorDescriptor(made, Op.CUDNN_OP_TENSOR_ADD, FLOAT, PROPAGATE)
    assert cudnn.cudnnDestroyOpTensorDescriptor(made) is None
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnGetOpTensorDescriptor/c05", cudnn.cudnnGetOpTensorDescriptor, made)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyOpTensorDescriptor, made)
