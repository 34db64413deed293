"""Holds cases of the second document: the rules of the MIOpen porting guide, tensors, softmax, pooling, activation."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api import miopen
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnOpTensorOp_t,
    cudnnPoolingMode_t,
    cudnnSoftmaxAlgorithm_t,
    cudnnSoftmaxMode_t,
    cudnnStatus_t,
)
from dualdnn.api.miopen import enumerations
from dualdnn.api.miopen.document import functions
from dualdnn.api.miopen.status import BAD_PARM, NOT_IMPLEMENTED, UNSUPPORTED_OP
from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    ActivationSpec,
    OpTensor,
    OpTensorSpec,
    PoolingBackward,
    PoolingForward,
    PoolingSpec,
    ScaleTensor,
    SetTensor,
    SoftmaxBackward,
    SoftmaxForward,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT
from dualdnn.api.status import CudnnError
from dualdnn.conformance.calls.miopen import activation, pooling, tensor
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.miopen_fixtures import DIMS, NAN, ONE_AND_ZERO, X, filled

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

pytestmark = pytest.mark.ours


@pytest.fixture
def handle(miopen_handle: Any) -> Any:
    """Yield a MIOpen handle in place of cuDNN's."""
    return miopen_handle


@shows("miopenGuide/c01", "miopenSet4dTensorDescriptor/c01", "miopenGet4dTensorDescriptor/c01", "miopenCreateTensorDescriptor/c01")  # fmt: skip
def test_tensors_are_packed_nchw(subject: Subject, denied: Any) -> None:
    _, c, h, w = DIMS
    assert miopen.miopenGet4dTensorDescriptor(tensor(DIMS)) == (miopen.miopenFloat, *DIMS, c * h * w, h * w, w, 1)
    descriptor = miopen.miopenCreateTensorDescriptor()
    denied(BAD_PARM, "c01", miopen.miopenGet4dTensorDescriptor, descriptor)
    for dims in ((0, 1, 1, 1), (1, -1, 1, 1), (2**31, 1, 1, 1), ("2", 1, 1, 1)):
        denied(BAD_PARM, "c01", miopen.miopenSet4dTensorDescriptor, descriptor, miopen.miopenFloat, *dims)


@shows("miopenGuide/c02 c04 c07 c09")
def test_what_the_guide_leaves_out_is_not_there(subject: Subject) -> None:
    assert len(functions()) == 53
    for word in ("Nd", "Preference", "TransformTensor", "Dropout", "RNN", "DivisiveNormalization"):
        assert not [name for name in functions() if word in name], word
    for name in ("miopenTransformTensor", "miopenDropoutForward", "miopenSetNdPoolingDescriptor"):
        assert not hasattr(miopen, name)
    assert not [
        p.name for f in functions().values() for p in f.parameters if "reference" in p.name or p.name == "nbDims"
    ]


# The numbers of these enumerations in the public header (M001) have gaps, or do not begin at 0.
NUMBERS = {
    "DataType": [0, 1, 2, 3, 5, 6], "ConvFwdAlgorithm": [0, 1, 2, 3, 5], "ConvBwdDataAlgorithm": [0, 1, 2, 3, 5], "ConvBwdWeightsAlgorithm": [0, 1, 3, 5],
    "Status": 11, "ActivationMode": 10, "TensorOp": 4, "PoolingMode": 3, "BatchNormMode": 2, "ConvolutionMode": 2, "LRNMode": 2,
}  # fmt: skip


@shows("miopenGuide/c02")
@pytest.mark.parametrize("name", NUMBERS)
def test_enumerators_have_the_numbers_of_the_header(subject: Subject, name: Any) -> None:
    expected = NUMBERS[name]
    members = getattr(enumerations, f"miopen{name}_t").__members__.values()
    assert [int(member) for member in members] == (list(range(expected)) if isinstance(expected, int) else expected)


@shows("miopenGuide/c03")
@pytest.mark.parametrize("name", ["miopenHalf", "miopenDouble", "miopenInt8", "miopenInt32", "miopenBFloat16"])
def test_float_only(subject: Subject, denied: Any, name: str) -> None:
    descriptor = miopen.miopenCreateTensorDescriptor()
    denied(
        UNSUPPORTED_OP, "miopenGuide/c03", miopen.miopenSet4dTensorDescriptor, descriptor, getattr(miopen, name), *DIMS
    )


@shows("miopenGuide/c08", "miopenSoftmaxForward/c01", "miopenSoftmaxBackward/c01")
def test_softmax_runs_over_channels(computes: Any) -> None:
    choice = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL
    for dims in (DIMS, (1, 17, 1, 1), (3, 1, 2, 2)):
        spec = TensorSpec.packed(FLOAT, dims)
        computes(SoftmaxForward(*choice, 1.0, 0.0, spec, spec))
        computes(SoftmaxForward(*choice, 1.0, 0.0, spec, spec), aliases={"y": "x"})
        computes(SoftmaxBackward(*choice, 1.0, 0.0, spec, spec, spec))


@shows("miopenCreate/c01", "miopenDestroy/c01", "miopenSetStream/c01", "miopenGetStream/c01")
def test_handles(subject: Subject, handle: Any, denied: Any) -> None:
    stream = handle.new_stream()
    miopen.miopenSetStream(handle, stream)
    assert miopen.miopenGetStream(handle) is stream
    denied(BAD_PARM, "c01", miopen.miopenSetStream, handle, "stream")
    denied(BAD_PARM, "c01", miopen.miopenGetStream, None)
    denied(BAD_PARM, "c01", miopen.miopenDestroy, handle.cudnn)
    denied(BAD_PARM, "miopenCreate/c01", lambda: miopen.miopenCreate(backend="none"))
    other = miopen.miopenCreate(backend=subject.backend, device=subject.device)
    assert miopen.miopenGetStream(other) is None
    miopen.miopenDestroy(other)
    with pytest.raises(miopen.MiopenError) as caught:
        miopen.miopenGetStream(other)
    assert caught.value.status == miopen.miopenStatusNotInitialized


@shows("miopenDestroyTensorDescriptor/c01", "miopenDestroyConvolutionDescriptor/c01", "miopenDestroyPoolingDescriptor/c01",
       "miopenDestroyActivationDescriptor/c01", "miopenDestroyLRNDescriptor/c01")  # fmt: skip
@pytest.mark.parametrize("kind", ["Tensor", "Convolution", "Pooling", "Activation", "LRN"])
def test_destroyed_descriptors_are_refused(subject: Subject, denied: Any, kind: str) -> None:
    descriptor = getattr(miopen, f"miopenCreate{kind}Descriptor")()
    destroy = getattr(miopen, f"miopenDestroy{kind}Descriptor")
    destroy(descriptor)
    denied(BAD_PARM, "c01", destroy, descriptor)
    denied(BAD_PARM, "c01", destroy, None)
    denied(BAD_PARM, "c01", destroy, object())


@shows("miopenOpTensor/c01")
@pytest.mark.parametrize("op", list(cudnnOpTensorOp_t)[:4], ids=lambda op: op.name)
@pytest.mark.parametrize("b", [DIMS, (1, 3, 1, 1), (2, 1, 5, 1)], ids=str)
def test_op_tensor(computes: Any, op: Any, b: Any) -> None:
    spec = OpTensorSpec(op, FLOAT, NAN)
    computes(OpTensor(spec, -1.5, 0.5, 0.25, X, TensorSpec.packed(FLOAT, b), X))
    computes(OpTensor(spec, 1.0, 2.0, 0.0, X, TensorSpec.packed(FLOAT, b), X), aliases={"C": "A"})


@shows("miopenOpTensor/c02")
def test_only_b_is_broadcast(handle: Any, denied: Any) -> None:
    small, whole = tensor((1, 3, 1, 1)), tensor(DIMS)
    a, c = filled(handle, 3), filled(handle, *DIMS)
    add = miopen.miopenTensorOpAdd
    denied(
        BAD_PARM, "c02", miopen.miopenOpTensor, handle, add, 1.0, small, a, 1.0, whole, c, 0.0, whole, c, unchanged=c
    )
    denied(BAD_PARM, "c01", miopen.miopenOpTensor, handle, 4, 1.0, whole, c, 1.0, small, a, 0.0, whole, c, unchanged=c)


@shows("miopenSetTensor/c01", "miopenScaleTensor/c01")
def test_whole_tensors(handle: Any, computes: Any, denied: Any) -> None:
    """A tensor is set to a value and scaled in place; short or missing memory is refused."""
    computes(SetTensor(-2.5, X))
    computes(ScaleTensor(-0.75, X), inputs="special")
    small = handle.allocate(8)
    denied(BAD_PARM, "c01", miopen.miopenSetTensor, handle, tensor(DIMS), small, 1.0, unchanged=small)
    denied(BAD_PARM, "c01", miopen.miopenScaleTensor, handle, tensor(DIMS), None, 1.0)


POOLING = PoolingSpec(cudnnPoolingMode_t.CUDNN_POOLING_MAX, NAN, (3, 2), (1, 0), (2, 1))


POOLED = TensorSpec.packed(FLOAT, (2, 3, 3, 3))


INDICES = prod(POOLED.dims)


@shows("miopenPoolingForward/c01", "miopenPoolingBackward/c01", "miopenPoolingGetWorkSpaceSize/c01", "miopenSet2dPoolingDescriptor/c01",
       "miopenGet2dPoolingDescriptor/c01", "miopenGetPoolingForwardOutputDim/c01", "miopenCreatePoolingDescriptor/c01")  # fmt: skip
@pytest.mark.parametrize("mode", list(cudnnPoolingMode_t)[:3], ids=lambda m: m.name)
def test_pooling(computes: Any, denied: Any, mode: Any) -> None:
    spec = replace(POOLING, mode=mode)
    descriptor = pooling(spec)
    assert miopen.miopenGet2dPoolingDescriptor(descriptor)[1:] == (3, 2, 1, 0, 2, 1)
    assert tuple(miopen.miopenGetPoolingForwardOutputDim(descriptor, tensor(DIMS))) == POOLED.dims
    assert miopen.miopenPoolingGetWorkSpaceSize(tensor(POOLED)) == prod(POOLED.dims)
    denied(BAD_PARM, "c01", miopen.miopenSet2dPoolingDescriptor, descriptor, 0, 0, 2, 0, 0, 1, 1)
    computes(PoolingForward(spec, 1.0, 0.0, X, POOLED))
    computes(PoolingBackward(spec, 1.0, 0.0, POOLED, POOLED, X, X))


@shows("miopenSet2dPoolingDescriptor/c02")
def test_negative_padding_is_refused(subject: Subject, denied: Any) -> None:
    descriptor = miopen.miopenCreatePoolingDescriptor()
    denied(BAD_PARM, "c02", miopen.miopenSet2dPoolingDescriptor, descriptor, 0, 2, 2, -1, 0, 1, 1)


@shows("miopenPoolingForward/c02-c04", "miopenPoolingBackward/c02 c03")
def test_the_workspace_of_pooling(handle: Any, denied: Any) -> None:
    x, y, descriptor = tensor(X), tensor(POOLED), pooling(POOLING)
    a, b, other = filled(handle, *DIMS), filled(handle, *POOLED.dims), filled(handle, *DIMS)
    gradient, workspace = handle.allocate(X.nbytes), handle.allocate(prod(POOLED.dims))

    def forward(
        alpha: float = 1.0,
        beta: float = 0.0,
        source: Any = a,
        described: Any = descriptor,
        size: Any = INDICES,
        target: Any = y,
        space: Any = workspace,
    ) -> None:
        operands = (x, source, beta, target, b, True, space, size)
        miopen.miopenPoolingForward(handle, described, alpha, *operands)

    def backward(
        alpha: float = 1.0,
        beta: float = 0.0,
        space: Any = workspace,
        source: Any = a,
        described: Any = descriptor,
        target: Any = gradient,
    ) -> None:
        operands = (y, b, y, b, x, source, beta, x, target, space)
        miopen.miopenPoolingBackward(handle, described, alpha, *operands)

    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, "miopenPoolingForward/c02", forward, alpha, beta, unchanged=b)
        denied(NOT_IMPLEMENTED, "miopenPoolingBackward/c02", backward, alpha, beta, unchanged=gradient)
    denied(BAD_PARM, "miopenPoolingForward/c03", forward, size=7, unchanged=b)
    for wrong in (workspace.slice(0, INDICES - 1), "no memory", None):
        denied(BAD_PARM, "miopenPoolingForward/c03", forward, space=wrong, unchanged=b)
    for window in ((16, 16), (15, 17)):
        wide = pooling(PoolingSpec(POOLING.mode, NAN, window, (8, 8), (8, 8)))
        denied(BAD_PARM, "miopenPoolingForward/c04", forward, described=wide, unchanged=b)
    denied(BAD_PARM, "miopenPoolingBackward/c03", backward, unchanged=gradient)
    for wrong in (None, "no memory"):
        denied(BAD_PARM, "miopenPoolingBackward/c03", backward, space=wrong, unchanged=gradient)
    forward(described=pooling(replace(POOLING, window=(2, 2))))
    denied(BAD_PARM, "miopenPoolingBackward/c03", backward, unchanged=gradient)
    forward()
    copy = handle.to_device(workspace.to_host(np.uint8, -1))
    for value in (7.0, 0.0):  # Bytes of 0 are places, too.
        miopen.miopenSetTensor(handle, tensor((1, 1, 1, INDICES // 4)), workspace, value)
        denied(BAD_PARM, "miopenPoolingBackward/c03", backward, unchanged=gradient)
    backward(space=copy)
    average = pooling(replace(POOLING, mode=cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING))
    forward(described=average, space=None, size=0)  # An average needs no workspace.
    backward(described=average, space=None)
    expected = handle.allocate(X.nbytes)
    forward(source=other)
    backward(source=other, target=expected)
    backward()  # The gradient uses the places of the pooled x, although x has changed.
    np.testing.assert_array_equal(gradient.to_host(np.uint8, -1), expected.to_host(np.uint8, -1))


@shows("miopenPoolingForward/c01", "miopenPoolingBackward/c01")
def test_the_places_of_maxima(handle: Any) -> None:
    """Each position of a maximum is a byte in row-major order of the window: the first of equal maxima, else 0.

    Positions in padding count.
    """
    nan, low = float("nan"), float("-inf")
    values = np.array([[4, 4, nan, nan], [1, 4, nan, 5], [nan, nan, low, low], [nan, nan, low, low]], np.float32)
    x, y = tensor((1, 1, 4, 4)), tensor((1, 1, 3, 3))
    d = pooling(PoolingSpec(POOLING.mode, NAN, (2, 2), (1, 1), (2, 2)))
    a, b, workspace, gradient = handle.to_device(values), handle.allocate(36), handle.allocate(9), handle.allocate(64)
    miopen.miopenPoolingForward(handle, d, 1.0, x, a, 0.0, y, b, True, workspace, 9)
    assert workspace.to_host(np.uint8, -1).tolist() == [3, 2, 0, 1, 0, 0, 0, 0, 0]
    dy = handle.to_device(np.arange(1, 10, dtype=np.float32))
    miopen.miopenPoolingBackward(handle, d, 1.0, y, b, y, dy, x, a, 0.0, x, gradient, workspace)
    wanted = [[1, 2, 0, 0], [4, 5, 0, 6], [0, 0, 0, 0], [0, 8, 0, 9]]
    np.testing.assert_array_equal(gradient.to_host(np.float32, (4, 4)), wanted)


@shows("miopenActivationForward/c01", "miopenActivationBackward/c01", "miopenSetActivationDescriptor/c01",
       "miopenGetActivationDescriptor/c01", "miopenCreateActivationDescriptor/c01")  # fmt: skip
@pytest.mark.parametrize("mode", list(cudnnActivationMode_t)[:5], ids=lambda m: m.name)
def test_activation(computes: Any, denied: Any, mode: Any) -> None:
    spec = ActivationSpec(mode, NAN, 0.75 if mode >= cudnnActivationMode_t.CUDNN_ACTIVATION_CLIPPED_RELU else 0.0)
    descriptor = activation(spec)
    assert miopen.miopenGetActivationDescriptor(descriptor).mode == descriptor.attributes.mode
    denied(BAD_PARM, "c01", miopen.miopenSetActivationDescriptor, descriptor, 10, 0.0, 0.0, 0.0)
    computes(ActivationForward(spec, 1.0, 0.0, X, X))
    computes(ActivationForward(spec, 1.0, 0.0, X, X), aliases={"y": "x"})
    computes(ActivationBackward(spec, 1.0, 0.0, X, X, X, X))


@shows("miopenSetActivationDescriptor/c02")
@pytest.mark.parametrize("name", ["SOFTRELU", "ABS", "POWER", "LEAKYRELU"])
def test_modes_without_a_function_are_refused(subject: Subject, denied: Any, name: str) -> None:
    descriptor = miopen.miopenCreateActivationDescriptor()
    mode = getattr(miopen, f"miopenActivation{name}")
    denied(NOT_IMPLEMENTED, "c02", miopen.miopenSetActivationDescriptor, descriptor, mode, 1.0, 1.0, 1.0)


def _tanh(a: Any, b: Any) -> Any:
    return lambda x: b * np.tanh(a * x), lambda x: a * b * (1 - np.tanh(a * x) ** 2)


ATTRIBUTES = {
    "TANH": ((0.5, 2.0, 0.0), *_tanh(0.5, 2.0)), "TANH as tanh": ((1.0, 1.0, 0.0), *_tanh(1.0, 1.0)),
    "CLIPPEDRELU": ((0.5, 9.0, 9.0), lambda x: np.clip(x, 0, 0.5), lambda x: ((x > 0) & (x < 0.5)) * 1.0),
    "ELU": ((1.5, 9.0, 9.0), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), lambda x: np.where(x > 0, 1, 1.5 * np.exp(x))),
    "PASTHRU": ((9.0, 9.0, 9.0), lambda x: x, np.ones_like),
}  # fmt: skip


@shows("miopenSetActivationDescriptor/c03")
@pytest.mark.parametrize("name", list(ATTRIBUTES))
def test_attributes(handle: Any, name: Any) -> None:
    """Results match the formulas in float64, apart from rounding before and after the function."""
    attributes, function, slope = ATTRIBUTES[name]
    descriptor = miopen.miopenCreateActivationDescriptor()
    miopen.miopenSetActivationDescriptor(descriptor, getattr(miopen, f"miopenActivation{name.split()[0]}"), *attributes)
    assert miopen.miopenGetActivationDescriptor(descriptor)[1:] == attributes
    d, x, dy = tensor(DIMS), filled(handle, *DIMS), filled(handle, *DIMS)
    y, dx = handle.allocate(X.nbytes), handle.allocate(X.nbytes)
    miopen.miopenActivationForward(handle, descriptor, 1.0, d, x, 0.0, d, y)
    miopen.miopenActivationBackward(handle, descriptor, 1.0, d, y, d, dy, d, x, 0.0, d, dx)
    values, slopes = (buffer.to_host(np.float32, DIMS).astype(np.float64) for buffer in (x, dy))
    bound = 16 * np.finfo(np.float32).eps
    np.testing.assert_allclose(y.to_host(np.float32, DIMS), function(values), rtol=bound, atol=bound)
    np.testing.assert_allclose(dx.to_host(np.float32, DIMS), slope(values) * slopes, rtol=bound, atol=4 * bound)


OF_CUDNN = {
    "NOT_INITIALIZED": "NotInitialized", "ALLOC_FAILED": "AllocFailed", "BAD_PARAM": "BadParm", "INTERNAL_ERROR": "InternalError",
    "INVALID_VALUE": "InvalidValue", "NOT_SUPPORTED": "UnsupportedOp", "EXECUTION_FAILED": "InternalError", "MAPPING_ERROR": "BadParm",
}  # fmt: skip


@shows("miopenGuide/c01")
@pytest.mark.parametrize("status", [status for status in cudnnStatus_t if status], ids=lambda status: status.name)
def test_statuses(handle: Any, monkeypatch: pytest.MonkeyPatch, status: Any) -> None:
    """Each status maps to MIOpen's, and to UNKNOWN_ERROR where the document has no equivalent."""
    d, x = tensor(DIMS), filled(handle, *DIMS)

    def refused(operation: Any) -> None:
        raise CudnnError(status, "cudnnStatus_t/c05", "as the case will have it")

    monkeypatch.setattr(handle.backend, "prepare", refused)
    with pytest.raises(miopen.MiopenError) as caught:
        miopen.miopenSetTensor(handle, d, x, 1.0)
    wanted = OF_CUDNN.get(status.name.removeprefix("CUDNN_STATUS_"), "UnknownError")
    assert caught.value.status.name == f"miopenStatus{wanted}" and caught.value.function == "miopenSetTensor"


@shows("miopenActivationForward/c01", "miopenActivationBackward/c01")
def test_what_is_passed_through_in_place_is_looked_at(handle: Any, denied: Any) -> None:
    """PASTHRU in place computes nothing, but wrong dimensions and memory are still refused."""
    descriptor = miopen.miopenCreateActivationDescriptor()
    miopen.miopenSetActivationDescriptor(descriptor, miopen.miopenActivationPASTHRU, 1.0, 1.0, 1.0)
    x, d, wrong = filled(handle, *DIMS), tensor(DIMS), tensor((1, *DIMS[1:]))
    forward, backward = miopen.miopenActivationForward, miopen.miopenActivationBackward
    clauses = "miopenActivationForward/c01", "miopenActivationBackward/c01"
    denied(BAD_PARM, clauses[0], forward, handle, descriptor, 1.0, d, x, 0.0, wrong, x, unchanged=x)
    denied(BAD_PARM, clauses[1], backward, handle, descriptor, 1.0, d, x, d, x, d, x, 0.0, wrong, x, unchanged=x)
    small = x.slice(0, 4)
    denied(BAD_PARM, clauses[0], forward, handle, descriptor, 1.0, d, small, 0.0, d, small, unchanged=x)


@shows("miopenSetActivationDescriptor/c03")
@pytest.mark.parametrize("apart", [False, True], ids=["one object", "two objects"])
@pytest.mark.parametrize("name", list(ATTRIBUTES))
def test_attributes_in_place(handle: Any, name: Any, apart: bool) -> None:
    """x and y may be the same memory, and so may dy and dx."""
    attributes, function, slope = ATTRIBUTES[name]
    descriptor = miopen.miopenCreateActivationDescriptor()
    miopen.miopenSetActivationDescriptor(descriptor, getattr(miopen, f"miopenActivation{name.split()[0]}"), *attributes)
    d, x, dy = tensor(DIMS), filled(handle, *DIMS), filled(handle, *DIMS)
    y = filled(handle, *DIMS)
    values, slopes = (buffer.to_host(np.float32, DIMS).astype(np.float64) for buffer in (x, dy))
    result, gradient = (buffer.slice(0, X.nbytes) if apart else buffer for buffer in (y, dy))
    miopen.miopenActivationForward(handle, descriptor, 1.0, d, y, 0.0, d, result)
    miopen.miopenActivationBackward(handle, descriptor, 1.0, d, y, d, dy, d, x, 0.0, d, gradient)
    bound = 16 * np.finfo(np.float32).eps
    np.testing.assert_allclose(y.to_host(np.float32, DIMS), function(values), rtol=bound, atol=bound)
    np.testing.assert_allclose(dy.to_host(np.float32, DIMS), slope(values) * slopes, rtol=bound, atol=4 * bound)


@shows("miopenActivationBackward/c03")
def test_a_gradient_that_y_does_not_tell(handle: Any, denied: Any) -> None:
    """y = 0 * tanh(x) says nothing of x, and the gradient is computed from y."""
    descriptor = miopen.miopenCreateActivationDescriptor()
    miopen.miopenSetActivationDescriptor(descriptor, miopen.miopenActivationTANH, 1.0, 0.0, 0.0)
    d, x, dx = tensor(DIMS), filled(handle, *DIMS), filled(handle, *DIMS)
    operands = (d, x, d, x, d, x, 0.0, d, dx)
    denied(NOT_IMPLEMENTED, "c03", miopen.miopenActivationBackward, handle, descriptor, 1.0, *operands, unchanged=dx)


@shows("miopenActivationForward/c02", "miopenActivationBackward/c02", "miopenSoftmaxForward/c02", "miopenSoftmaxBackward/c02")  # fmt: skip
@pytest.mark.parametrize("alpha, beta", ONE_AND_ZERO)
def test_alpha_is_one_and_beta_zero(handle: Any, denied: Any, alpha: Any, beta: Any) -> None:
    relu = activation(ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, NAN, 0.0))
    d, x, y = tensor(DIMS), filled(handle, *DIMS), filled(handle, *DIMS)
    forward, backward = (d, x, beta, d, y), (d, x, d, x, d, x, beta, d, y)
    denied(NOT_IMPLEMENTED, "c02", miopen.miopenActivationForward, handle, relu, alpha, *forward, unchanged=y)
    denied(NOT_IMPLEMENTED, "c02", miopen.miopenActivationBackward, handle, relu, alpha, *backward, unchanged=y)
    denied(NOT_IMPLEMENTED, "c02", miopen.miopenSoftmaxForward, handle, alpha, *forward, unchanged=y)
    denied(NOT_IMPLEMENTED, "c02", miopen.miopenSoftmaxBackward, handle, alpha, d, x, d, x, beta, d, y, unchanged=y)
