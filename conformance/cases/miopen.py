"""Cases of the second document: the calls of the MIOpen porting guide on our backends."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from dualdnn.api import cudnn, miopen
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnOpTensorOp_t,
    cudnnPoolingMode_t,
    cudnnReorderType_t,
    cudnnSoftmaxAlgorithm_t,
    cudnnSoftmaxMode_t,
)
from dualdnn.api.miopen.convolution import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD
from dualdnn.api.miopen.document import functions
from dualdnn.api.miopen.status import BAD_PARM, NOT_IMPLEMENTED, UNKNOWN_ERROR, UNSUPPORTED_OP
from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    ActivationSpec,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    LRNSpec,
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
from dualdnn.api.operations.specs import FLOAT, NCHW
from dualdnn.conformance.calls.miopen import MiopenCaller, activation, convolution, found, lrn, pooling, tensor
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import attempt

pytestmark = pytest.mark.ours
NAN = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
DIMS = (2, 3, 5, 4)
X = TensorSpec.packed(FLOAT, DIMS)
ONE_AND_ZERO = [(2.0, 0.0), (1.0, 0.5)]


@pytest.fixture
def handle(subject):
    """A handle of MIOpen's on the subject."""
    made = miopen.miopenCreate(backend=subject.backend, device=subject.device)
    yield made
    if made.alive:
        miopen.miopenDestroy(made)


@pytest.fixture
def computes(handle, evidence):
    """The call that computes this operation agrees with the judge and touches nothing else."""

    def check(operation: Any, inputs: str = "normal", aliases: Any = None) -> None:
        result = attempt(MiopenCaller(handle), operation, inputs, 0, aliases)  # type: ignore[arg-type]
        evidence.note(result)
        if not result.passed:
            pytest.fail(f"{result.explanation()}\n{operation}", pytrace=False)

    return check


@pytest.fixture
def denied(evidence):
    """The call must raise this status, citing this clause; ``unchanged`` buffers keep their bytes."""

    def check(status: Any, clause: str, call: Any, *args: Any, unchanged: Any = None) -> None:
        evidence.clauses.add(clause)
        before = None if unchanged is None else unchanged.to_host(np.uint8, unchanged.nbytes)
        with pytest.raises(miopen.MiopenError) as caught:
            call(*args)
        assert (caught.value.status, caught.value.clause) == (status, clause), str(caught.value)
        assert before is None or np.array_equal(before, unchanged.to_host(np.uint8, unchanged.nbytes))

    return check


def filled(handle: Any, *dims: int) -> Any:
    values = np.random.default_rng(prod(dims)).standard_normal(dims)
    return handle.to_device(values.astype(np.float32))


def forward_operation(x=(2, 3, 6, 5), w=(4, 3, 3, 2), padding=(1, 0), stride=(1, 2), dilation=(1, 1), algo=None):
    default = cudnnReorderType_t.CUDNN_DEFAULT_REORDER
    spec = ConvolutionSpec(cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, padding, stride, dilation, 1,
                           cudnnMathType_t.CUDNN_FMA_MATH, default)  # fmt: skip
    y = TensorSpec.packed(FLOAT, spec.output_dims(x, w))
    chosen = algo or next(iter(FORWARD.algorithms.values()))
    return ConvolutionForward(spec, chosen, 0, 1.0, 0.0, TensorSpec.packed(FLOAT, x), FilterSpec(FLOAT, NCHW, w), y)


# The key differences


@shows(
    "miopenGuide/c01",
    "miopenSet4dTensorDescriptor/c01",
    "miopenGet4dTensorDescriptor/c01",
    "miopenCreateTensorDescriptor/c01",
)
def test_tensors_are_packed_nchw(subject, denied):
    _, c, h, w = DIMS
    assert miopen.miopenGet4dTensorDescriptor(tensor(DIMS)) == (miopen.miopenFloat, *DIMS, c * h * w, h * w, w, 1)
    descriptor = miopen.miopenCreateTensorDescriptor()
    denied(BAD_PARM, "miopenGet4dTensorDescriptor/c01", miopen.miopenGet4dTensorDescriptor, descriptor)
    for dims in ((0, 1, 1, 1), (1, -1, 1, 1), (2**31, 1, 1, 1), ("2", 1, 1, 1)):
        denied(
            BAD_PARM,
            "miopenSet4dTensorDescriptor/c01",
            miopen.miopenSet4dTensorDescriptor,
            descriptor,
            miopen.miopenFloat,
            *dims,
        )


@shows("miopenGuide/c02", "miopenGuide/c04", "miopenGuide/c07", "miopenGuide/c09")
def test_what_the_guide_leaves_out_is_not_there(subject):
    assert len(functions()) == 53
    for word in ("Nd", "Preference", "TransformTensor", "Dropout", "RNN", "DivisiveNormalization"):
        assert not [name for name in functions() if word in name], word
    for name in ("miopenTransformTensor", "miopenDropoutForward", "miopenSetNdPoolingDescriptor"):
        assert not hasattr(miopen, name)
    assert not [
        p.name for f in functions().values() for p in f.parameters if "reference" in p.name or p.name == "nbDims"
    ]


@shows("miopenGuide/c03")
@pytest.mark.parametrize("name", ["miopenHalf", "miopenDouble", "miopenInt8", "miopenInt32", "miopenBFloat16"])
def test_float_only(subject, denied, name):
    descriptor = miopen.miopenCreateTensorDescriptor()
    denied(
        UNSUPPORTED_OP, "miopenGuide/c03", miopen.miopenSet4dTensorDescriptor, descriptor, getattr(miopen, name), *DIMS
    )


@shows("miopenGuide/c05")
def test_no_convolution_without_find(subject, handle, denied):
    o = forward_operation()
    x, w, y, described = tensor(o.x), tensor(o.w.dims), tensor(o.y), convolution(o.convolution)
    memory = [filled(handle, *spec.dims) for spec in (o.x, o.w, o.y)]

    def convolve(on=handle):
        algo = miopen.miopenConvolutionFwdAlgoGEMM
        miopen.miopenConvolutionForward(
            on, 1.0, x, memory[0], w, memory[1], described, algo, 0.0, y, memory[2], None, 0
        )

    denied(UNKNOWN_ERROR, "miopenGuide/c05", convolve, unchanged=memory[2])
    found(handle, o, dict(zip("xwy", memory, strict=True)))
    other = miopen.miopenCreate(backend=subject.backend, device=subject.device)
    denied(UNKNOWN_ERROR, "miopenGuide/c05", lambda: convolve(other))  # what one handle has found another has not
    miopen.miopenDestroy(other)
    miopen.miopenInitConvolutionDescriptor(described, miopen.miopenConvolution, 1, 1, 1, 2, 1, 1)
    y = tensor((2, 4, 6, 3))
    denied(UNKNOWN_ERROR, "miopenGuide/c05", convolve)  # other contents, another problem


@shows("miopenGuide/c06", "miopenFindConvolutionForwardAlgorithm/c02", "miopenFindConvolutionForwardAlgorithm/c01",
       "miopenFindConvolutionForwardAlgorithm/c03", "miopenConvolutionForwardGetWorkSpaceSize/c01")  # fmt: skip
def test_the_order_of_convolution_calls(handle, denied):
    o = forward_operation()
    x, w, y, described = tensor(o.x), tensor(o.w.dims), tensor(o.y), convolution(o.convolution)
    memory = [filled(handle, *spec.dims) for spec in (o.x, o.w, o.y)]

    def find(count=8, workspace=None, size=0):
        return miopen.miopenFindConvolutionForwardAlgorithm(
            handle, x, memory[0], w, memory[1], described, y, memory[2], count, workspace, size, False
        )

    denied(BAD_PARM, "miopenFindConvolutionForwardAlgorithm/c02", find, unchanged=memory[2])
    denied(BAD_PARM, "miopenConvolutionForwardGetWorkSpaceSize/c01", miopen.miopenConvolutionForwardGetWorkSpaceSize,
           handle, x, w, described, y)  # fmt: skip  # w comes first
    size = miopen.miopenConvolutionForwardGetWorkSpaceSize(handle, w, x, described, y)
    denied(BAD_PARM, "miopenFindConvolutionForwardAlgorithm/c01", find, 0)
    before = memory[2].to_host(np.float32, o.y.dims)
    workspace = handle.allocate(size) if size else None
    count, results = find(8, workspace, size)
    assert count == len(results) >= 1 and all(result.time >= 0 and result.memory <= size for result in results)
    assert [r.time for r in results] == sorted(r.time for r in results)
    assert len({r.fwd_algo for r in results}) == count and find(1, workspace, size).returnedAlgoCount == 1
    assert not np.array_equal(before, memory[2].to_host(np.float32, o.y.dims))  # Find computes into y


@shows("miopenGuide/c08", "miopenSoftmaxForward/c01", "miopenSoftmaxBackward/c01")
def test_softmax_runs_over_channels(computes):
    choice = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL
    for dims in (DIMS, (1, 17, 1, 1), (3, 1, 2, 2)):
        spec = TensorSpec.packed(FLOAT, dims)
        computes(SoftmaxForward(*choice, 1.0, 0.0, spec, spec))
        computes(SoftmaxForward(*choice, 1.0, 0.0, spec, spec), aliases={"y": "x"})
        computes(SoftmaxBackward(*choice, 1.0, 0.0, spec, spec, spec))


@shows("miopenGuide/c11", "miopenGetConvolutionForwardOutputDim/c01", "miopenInitConvolutionDescriptor/c01",
       "miopenGetConvolutionDescriptor/c01", "miopenCreateConvolutionDescriptor/c01")  # fmt: skip
def test_filters_are_tensors(subject, denied):
    described = miopen.miopenCreateConvolutionDescriptor()
    get, dims = miopen.miopenGetConvolutionDescriptor, miopen.miopenGetConvolutionForwardOutputDim
    denied(BAD_PARM, "miopenGetConvolutionDescriptor/c01", get, described)
    for wrong in ((-1, 0, 1, 1, 1, 1), (0, 0, 0, 1, 1, 1), (0, 0, 1, 1, 1, 0)):
        denied(
            BAD_PARM,
            "miopenInitConvolutionDescriptor/c01",
            miopen.miopenInitConvolutionDescriptor,
            described,
            0,
            *wrong,
        )
    miopen.miopenInitConvolutionDescriptor(described, miopen.miopenConvolution, 1, 0, 1, 2, 1, 2)
    assert get(described) == (miopen.miopenConvolution, 1, 0, 1, 2, 1, 2)
    assert tuple(dims(described, tensor((2, 3, 6, 7)), tensor((4, 3, 3, 2)))) == (2, 4, 6, 3)
    denied(
        BAD_PARM,
        "miopenGetConvolutionForwardOutputDim/c01",
        dims,
        described,
        tensor((2, 3, 6, 7)),
        tensor((4, 2, 3, 2)),
    )


@shows("miopenInitConvolutionDescriptor/c02")
def test_transposed_convolutions_are_refused(subject, denied):
    described = miopen.miopenCreateConvolutionDescriptor()
    denied(NOT_IMPLEMENTED, "miopenInitConvolutionDescriptor/c02", miopen.miopenInitConvolutionDescriptor, described,
           miopen.miopenTranspose, 0, 0, 1, 1, 1, 1)  # fmt: skip


# Objects


@shows("miopenCreate/c01", "miopenDestroy/c01", "miopenSetStream/c01", "miopenGetStream/c01")
def test_handles(subject, handle, denied):
    stream = handle.new_stream()
    miopen.miopenSetStream(handle, stream)
    assert miopen.miopenGetStream(handle) is stream
    denied(BAD_PARM, "miopenSetStream/c01", miopen.miopenSetStream, handle, "stream")
    denied(BAD_PARM, "miopenGetStream/c01", miopen.miopenGetStream, None)
    denied(BAD_PARM, "miopenDestroy/c01", miopen.miopenDestroy, handle.cudnn)
    denied(BAD_PARM, "miopenCreate/c01", lambda: miopen.miopenCreate(backend="none"))
    miopen.miopenDestroy(handle)
    with pytest.raises(miopen.MiopenError) as caught:
        miopen.miopenGetStream(handle)
    assert caught.value.status == miopen.miopenStatusNotInitialized


@shows("miopenDestroyTensorDescriptor/c01", "miopenDestroyConvolutionDescriptor/c01", "miopenDestroyPoolingDescriptor/c01",
       "miopenDestroyActivationDescriptor/c01", "miopenDestroyLRNDescriptor/c01")  # fmt: skip
@pytest.mark.parametrize("kind", ["Tensor", "Convolution", "Pooling", "Activation", "LRN"])
def test_destroyed_descriptors_are_refused(subject, denied, kind):
    descriptor = getattr(miopen, f"miopenCreate{kind}Descriptor")()
    destroy = getattr(miopen, f"miopenDestroy{kind}Descriptor")
    destroy(descriptor)
    denied(BAD_PARM, f"miopenDestroy{kind}Descriptor/c01", destroy, descriptor)
    denied(BAD_PARM, f"miopenDestroy{kind}Descriptor/c01", destroy, None)
    denied(BAD_PARM, f"miopenDestroy{kind}Descriptor/c01", destroy, object())


# Tensors


@shows("miopenOpTensor/c01")
@pytest.mark.parametrize("op", list(cudnnOpTensorOp_t)[:4], ids=lambda op: op.name)
@pytest.mark.parametrize("b", [DIMS, (1, 3, 1, 1), (2, 1, 5, 1)], ids=str)
def test_op_tensor(computes, op, b):
    spec = OpTensorSpec(op, FLOAT, NAN)
    computes(OpTensor(spec, -1.5, 0.5, 0.25, X, TensorSpec.packed(FLOAT, b), X))
    computes(OpTensor(spec, 1.0, 2.0, 0.0, X, TensorSpec.packed(FLOAT, b), X), aliases={"C": "A"})


@shows("miopenOpTensor/c02")
def test_only_b_is_broadcast(handle, denied):
    small, whole = tensor((1, 3, 1, 1)), tensor(DIMS)
    a, c = filled(handle, 3), filled(handle, *DIMS)
    add = miopen.miopenTensorOpAdd
    denied(
        BAD_PARM,
        "miopenOpTensor/c02",
        miopen.miopenOpTensor,
        handle,
        add,
        1.0,
        small,
        a,
        1.0,
        whole,
        c,
        0.0,
        whole,
        c,
        unchanged=c,
    )
    denied(
        BAD_PARM,
        "miopenOpTensor/c01",
        miopen.miopenOpTensor,
        handle,
        4,
        1.0,
        whole,
        c,
        1.0,
        small,
        a,
        0.0,
        whole,
        c,
        unchanged=c,
    )


@shows("miopenSetTensor/c01", "miopenScaleTensor/c01")
def test_whole_tensors(handle, computes, denied):
    computes(SetTensor(-2.5, X))
    computes(ScaleTensor(-0.75, X), inputs="special")
    small = handle.allocate(8)
    denied(BAD_PARM, "miopenSetTensor/c01", miopen.miopenSetTensor, handle, tensor(DIMS), small, 1.0, unchanged=small)
    denied(BAD_PARM, "miopenScaleTensor/c01", miopen.miopenScaleTensor, handle, tensor(DIMS), None, 1.0)


# Convolution


@shows("miopenConvolutionForward/c01")
@pytest.mark.parametrize("algo", list(FORWARD.algorithms.values()), ids=lambda a: a.name)
@pytest.mark.parametrize(
    "shape",
    [{}, {"w": (5, 3, 3, 3), "padding": (1, 1), "stride": (1, 1)}, {"dilation": (2, 1), "padding": (2, 2)}],
    ids=["plain", "same", "dilated"],
)
def test_convolution_forward(computes, algo, shape):
    try:
        computes(forward_operation(algo=algo, **shape))
    except LookupError as missing:
        pytest.skip(f"{missing}: cuDNN's algorithm of this name does not take the problem")


@shows("miopenConvolutionForward/c02", "miopenConvolutionForward/c03", "miopenConvolutionForward/c04")
def test_what_find_returned_decides(handle, denied):
    o = forward_operation(x=(1, 2, 9, 9), w=(3, 2, 3, 3), padding=(1, 1), stride=(1, 1))
    memory = dict(zip("xwy", (filled(handle, *spec.dims) for spec in (o.x, o.w, o.y)), strict=True))
    (x, w, described, y), workspace, size, results = found(handle, o, memory)
    there = {result.fwd_algo: result.memory for result in results.perfResults}
    absent = next(algo for algo in FORWARD.algorithms if algo not in there)

    def convolve(algo, alpha=1.0, beta=0.0, space=workspace, room=size):
        operands = (x, memory["x"], w, memory["w"], described, algo, beta, y, memory["y"], space, room)
        miopen.miopenConvolutionForward(handle, alpha, *operands)

    fastest = results.perfResults[0].fwd_algo
    denied(BAD_PARM, "miopenConvolutionForward/c02", convolve, absent, unchanged=memory["y"])
    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, "miopenConvolutionForward/c03", convolve, fastest, alpha, beta, unchanged=memory["y"])
    problem = next(iter(handle.found))
    handle.found[problem][fastest] = size + 1  # as where an algorithm needs workspace
    denied(BAD_PARM, "miopenConvolutionForward/c04", convolve, fastest, unchanged=memory["y"])


# Pooling

POOLING = PoolingSpec(cudnnPoolingMode_t.CUDNN_POOLING_MAX, NAN, (3, 2), (1, 0), (2, 1))
POOLED = TensorSpec.packed(FLOAT, (2, 3, 3, 3))
INDICES = prod(POOLED.dims)


@shows("miopenPoolingForward/c01", "miopenPoolingBackward/c01", "miopenPoolingGetWorkSpaceSize/c01", "miopenSet2dPoolingDescriptor/c01",
       "miopenGet2dPoolingDescriptor/c01", "miopenGetPoolingForwardOutputDim/c01", "miopenCreatePoolingDescriptor/c01")  # fmt: skip
@pytest.mark.parametrize("mode", list(cudnnPoolingMode_t)[:3], ids=lambda m: m.name)
def test_pooling(computes, denied, mode):
    spec = replace(POOLING, mode=mode)
    descriptor = pooling(spec)
    assert miopen.miopenGet2dPoolingDescriptor(descriptor)[1:] == (3, 2, 1, 0, 2, 1)
    assert tuple(miopen.miopenGetPoolingForwardOutputDim(descriptor, tensor(DIMS))) == POOLED.dims
    assert miopen.miopenPoolingGetWorkSpaceSize(tensor(POOLED)) == prod(POOLED.dims)
    denied(
        BAD_PARM,
        "miopenSet2dPoolingDescriptor/c01",
        miopen.miopenSet2dPoolingDescriptor,
        descriptor,
        0,
        0,
        2,
        0,
        0,
        1,
        1,
    )
    computes(PoolingForward(spec, 1.0, 0.0, X, POOLED))
    computes(PoolingBackward(spec, 1.0, 0.0, POOLED, POOLED, X, X))


@shows("miopenSet2dPoolingDescriptor/c02")
def test_negative_padding_is_refused(subject, denied):
    descriptor = miopen.miopenCreatePoolingDescriptor()
    denied(
        BAD_PARM,
        "miopenSet2dPoolingDescriptor/c02",
        miopen.miopenSet2dPoolingDescriptor,
        descriptor,
        0,
        2,
        2,
        -1,
        0,
        1,
        1,
    )


@shows("miopenPoolingForward/c02", "miopenPoolingForward/c03", "miopenPoolingForward/c04", "miopenPoolingBackward/c02",
       "miopenPoolingBackward/c03")  # fmt: skip
def test_the_workspace_of_pooling(handle, denied):
    x, y, descriptor = tensor(X), tensor(POOLED), pooling(POOLING)
    a, b, other = filled(handle, *DIMS), filled(handle, *POOLED.dims), filled(handle, *DIMS)
    gradient, workspace = handle.allocate(X.nbytes), handle.allocate(prod(POOLED.dims))

    def forward(alpha=1.0, beta=0.0, source=a, described=descriptor, size=INDICES, target=y):
        operands = (x, source, beta, target, b, True, workspace, size)
        miopen.miopenPoolingForward(handle, described, alpha, *operands)

    def backward(alpha=1.0, beta=0.0, space=workspace):
        operands = (y, b, y, b, x, a, beta, x, gradient, space)
        miopen.miopenPoolingBackward(handle, descriptor, alpha, *operands)

    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, "miopenPoolingForward/c02", forward, alpha, beta, unchanged=b)
        denied(NOT_IMPLEMENTED, "miopenPoolingBackward/c02", backward, alpha, beta, unchanged=gradient)
    denied(BAD_PARM, "miopenPoolingForward/c03", lambda: forward(size=7), unchanged=b)
    wide = pooling(PoolingSpec(POOLING.mode, NAN, (16, 16), (8, 8), (8, 8)))
    denied(BAD_PARM, "miopenPoolingForward/c04", lambda: forward(described=wide), unchanged=b)
    denied(BAD_PARM, "miopenPoolingBackward/c03", backward, unchanged=gradient)
    denied(BAD_PARM, "miopenPoolingBackward/c03", lambda: backward(space=None), unchanged=gradient)
    forward(source=other)
    denied(BAD_PARM, "miopenPoolingBackward/c03", backward, unchanged=gradient)
    forward()
    backward()


# Activation


@shows("miopenActivationForward/c01", "miopenActivationBackward/c01", "miopenSetActivationDescriptor/c01",
       "miopenGetActivationDescriptor/c01", "miopenCreateActivationDescriptor/c01")  # fmt: skip
@pytest.mark.parametrize("mode", list(cudnnActivationMode_t)[:5], ids=lambda m: m.name)
def test_activation(computes, denied, mode):
    spec = ActivationSpec(mode, NAN, 0.75 if mode >= cudnnActivationMode_t.CUDNN_ACTIVATION_CLIPPED_RELU else 0.0)
    descriptor = activation(spec)
    assert miopen.miopenGetActivationDescriptor(descriptor).mode == descriptor.attributes.mode
    denied(
        BAD_PARM,
        "miopenSetActivationDescriptor/c01",
        miopen.miopenSetActivationDescriptor,
        descriptor,
        10,
        0.0,
        0.0,
        0.0,
    )
    computes(ActivationForward(spec, 1.0, 0.0, X, X))
    computes(ActivationForward(spec, 1.0, 0.0, X, X), aliases={"y": "x"})
    computes(ActivationBackward(spec, 1.0, 0.0, X, X, X, X))


@shows("miopenSetActivationDescriptor/c02")
@pytest.mark.parametrize("name", ["SOFTRELU", "ABS", "POWER", "LEAKYRELU"])
def test_modes_without_a_function_are_refused(subject, denied, name):
    descriptor = miopen.miopenCreateActivationDescriptor()
    mode = getattr(miopen, f"miopenActivation{name}")
    denied(
        NOT_IMPLEMENTED,
        "miopenSetActivationDescriptor/c02",
        miopen.miopenSetActivationDescriptor,
        descriptor,
        mode,
        1.0,
        1.0,
        1.0,
    )


def _tanh(a, b):
    return lambda x: b * np.tanh(a * x), lambda x: a * b * (1 - np.tanh(a * x) ** 2)


ATTRIBUTES = {
    "TANH": ((0.5, 2.0, 0.0), *_tanh(0.5, 2.0)),
    "TANH as tanh": ((1.0, 1.0, 0.0), *_tanh(1.0, 1.0)),
    "CLIPPEDRELU": ((0.5, 9.0, 9.0), lambda x: np.clip(x, 0, 0.5), lambda x: ((x > 0) & (x < 0.5)) * 1.0),
    "ELU": (
        (1.5, 9.0, 9.0),
        lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)),
        lambda x: np.where(x > 0, 1, 1.5 * np.exp(x)),
    ),
    "PASTHRU": ((9.0, 9.0, 9.0), lambda x: x, np.ones_like),
}


@shows("miopenSetActivationDescriptor/c03")
@pytest.mark.parametrize("name", list(ATTRIBUTES))
def test_attributes(handle, name):
    """Against the formulas in float64; the roundings are those of a scaling before and one after the function."""
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


@shows("miopenActivationBackward/c03")
def test_a_gradient_that_y_does_not_tell(handle, denied):
    descriptor = miopen.miopenCreateActivationDescriptor()
    miopen.miopenSetActivationDescriptor(descriptor, miopen.miopenActivationTANH, 1.0, 0.0, 0.0)
    d, x, dx = tensor(DIMS), filled(handle, *DIMS), filled(handle, *DIMS)
    operands = (d, x, d, x, d, x, 0.0, d, dx)
    denied(
        NOT_IMPLEMENTED,
        "miopenActivationBackward/c03",
        miopen.miopenActivationBackward,
        handle,
        descriptor,
        1.0,
        *operands,
        unchanged=dx,
    )


@shows(
    "miopenActivationForward/c02",
    "miopenActivationBackward/c02",
    "miopenSoftmaxForward/c02",
    "miopenSoftmaxBackward/c02",
)
@pytest.mark.parametrize("alpha, beta", ONE_AND_ZERO)
def test_alpha_is_one_and_beta_zero(handle, denied, alpha, beta):
    relu = activation(ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, NAN, 0.0))
    d, x, y = tensor(DIMS), filled(handle, *DIMS), filled(handle, *DIMS)
    forward, backward = (d, x, beta, d, y), (d, x, d, x, d, x, beta, d, y)
    denied(
        NOT_IMPLEMENTED,
        "miopenActivationForward/c02",
        miopen.miopenActivationForward,
        handle,
        relu,
        alpha,
        *forward,
        unchanged=y,
    )
    denied(
        NOT_IMPLEMENTED,
        "miopenActivationBackward/c02",
        miopen.miopenActivationBackward,
        handle,
        relu,
        alpha,
        *backward,
        unchanged=y,
    )
    denied(
        NOT_IMPLEMENTED, "miopenSoftmaxForward/c02", miopen.miopenSoftmaxForward, handle, alpha, *forward, unchanged=y
    )
    denied(
        NOT_IMPLEMENTED,
        "miopenSoftmaxBackward/c02",
        miopen.miopenSoftmaxBackward,
        handle,
        alpha,
        d,
        x,
        d,
        x,
        beta,
        d,
        y,
        unchanged=y,
    )


# LRN

NORMALIZATION = LRNSpec(5, 0.25, 0.75, 1.5)


@shows(
    "miopenLRNForward/c01",
    "miopenLRNBackward/c01",
    "miopenLRNGetWorkSpaceSize/c01",
    "miopenCreateLRNDescriptor/c01",
    "miopenSetLRNDescriptor/c01",
    "miopenGetLRNDescriptor/c01",
)
@pytest.mark.parametrize("n", [1, 3, 9])
def test_lrn(computes, denied, n):
    spec = replace(NORMALIZATION, n=n)
    assert miopen.miopenGetLRNDescriptor(lrn(spec)) == (miopen.miopenLRNCrossChannel, n, 0.25, 0.75, 1.5)
    assert miopen.miopenLRNGetWorkSpaceSize(tensor(DIMS)) == X.nbytes
    across, descriptor = miopen.miopenLRNCrossChannel, miopen.miopenCreateLRNDescriptor()
    denied(BAD_PARM, "miopenGetLRNDescriptor/c01", miopen.miopenGetLRNDescriptor, descriptor)
    for wrong in ((17, 1.0, 0.75, 2.0), (5, 1.0, 0.001, 2.0), (-1, 1.0, 0.75, 2.0)):
        denied(BAD_PARM, "miopenSetLRNDescriptor/c01", miopen.miopenSetLRNDescriptor, descriptor, across, *wrong)
    computes(LRNCrossChannelForward(spec, 1.0, 0.0, X, X))
    computes(LRNCrossChannelBackward(spec, 1.0, 0.0, X, X, X, X))


@shows("miopenSetLRNDescriptor/c02", "miopenSetLRNDescriptor/c03")
def test_lrn_that_is_refused(subject, denied):
    within, across = miopen.miopenLRNWithinChannel, miopen.miopenLRNCrossChannel
    descriptor, call = miopen.miopenCreateLRNDescriptor(), miopen.miopenSetLRNDescriptor
    denied(NOT_IMPLEMENTED, "miopenSetLRNDescriptor/c02", call, descriptor, within, 5, 1.0, 0.75, 2.0)
    denied(BAD_PARM, "miopenSetLRNDescriptor/c03", call, descriptor, across, 4, 1.0, 0.75, 2.0)


@shows("miopenLRNForward/c02", "miopenLRNForward/c03", "miopenLRNBackward/c02", "miopenLRNBackward/c03")
def test_the_workspace_of_lrn(handle, denied):
    d, descriptor = tensor(DIMS), lrn(NORMALIZATION)
    x, other, y = filled(handle, *DIMS), filled(handle, *DIMS), filled(handle, *DIMS)
    dx, workspace = handle.allocate(X.nbytes), handle.allocate(X.nbytes)

    def forward(alpha=1.0, beta=0.0, source=x, space=workspace):
        miopen.miopenLRNForward(handle, descriptor, alpha, d, source, beta, d, y, True, space)

    def backward(alpha=1.0, beta=0.0, space=workspace):
        miopen.miopenLRNBackward(handle, descriptor, alpha, d, y, d, y, d, x, beta, d, dx, space)

    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, "miopenLRNForward/c02", forward, alpha, beta, unchanged=y)
        denied(NOT_IMPLEMENTED, "miopenLRNBackward/c02", backward, alpha, beta, unchanged=dx)
    denied(BAD_PARM, "miopenLRNForward/c03", lambda: forward(space=None), unchanged=y)
    denied(BAD_PARM, "miopenLRNBackward/c03", backward, unchanged=dx)
    forward(source=other)
    denied(BAD_PARM, "miopenLRNBackward/c03", backward, unchanged=dx)
    forward()
    backward()


# All three directions of a convolution, against the documented call of cuDNN on the same handle: the same operation


def available(*names: str) -> Any:
    """Cases of calls that exist once those which serve them do."""
    missing = [name for name in names if not hasattr(miopen, name)]
    return pytest.mark.skipif(bool(missing), reason=f"not implemented yet: {', '.join(missing)}")


# direction -> (name in MIOpen, shapes of (first, second, result) in MIOpen's order, GetWorkSpaceSize's order of the first two)
SHAPES = {"x": (2, 3, 6, 5), "w": (4, 3, 3, 2), "y": (2, 4, 6, 2)}
DIRECTIONS = {
    "Forward": (FORWARD, "Forward", "xwy", (1, 0)),
    "BackwardData": (BACKWARD_DATA, "BackwardData", "ywx", (0, 1)),
    "BackwardWeights": (BACKWARD_WEIGHTS, "BackwardWeights", "yxw", (0, 1)),
}


def shown_by(name: str) -> Any:
    find, get = f"miopenFindConvolution{name}Algorithm", f"miopenConvolution{name}GetWorkSpaceSize"
    clauses = (
        [f"miopenConvolution{name}/c0{n}" for n in (1, 2, 3, 4)] + [f"{find}/c0{n}" for n in (1, 2, 3)] + [f"{get}/c01"]
    )
    marks = [shows(*clauses), available(find, get, f"miopenConvolution{name}")]
    return pytest.param(name, marks=marks, id=name)


@pytest.mark.parametrize("name", [shown_by(name) for name in DIRECTIONS])
def test_the_directions_of_convolution(handle, denied, name):
    direction, call, letters, first = DIRECTIONS[name]
    described = convolution(forward_operation().convolution)
    descriptors = [tensor(SHAPES[letter]) for letter in letters]
    a, b, result = (filled(handle, *SHAPES[letter]) for letter in letters)
    (da, db), out = descriptors[:2], descriptors[2]
    get, find, run = (getattr(miopen, text) for text in (f"miopenConvolution{call}GetWorkSpaceSize", f"miopenFindConvolution{call}Algorithm", f"miopenConvolution{call}"))  # fmt: skip

    def found_there(count=8, space=None, size=0):
        return find(handle, da, a, db, b, described, out, result, count, space, size, False)

    clause = f"miopenFindConvolution{call}Algorithm"
    denied(BAD_PARM, f"{clause}/c02", found_there, unchanged=result)
    size = get(handle, descriptors[first[0]], descriptors[first[1]], described, out)
    space = handle.allocate(size) if size else None
    denied(BAD_PARM, f"{clause}/c01", found_there, 0, unchanged=result)
    before = result.to_host(np.uint8, result.nbytes)
    results = found_there(8, space, size).perfResults
    assert results and not np.array_equal(before, result.to_host(np.uint8, result.nbytes))
    there = {entry.algorithm: entry.memory for entry in results}

    def convolve(algo, alpha=1.0, beta=0.0, room=size):
        run(handle, alpha, da, a, db, b, described, algo, beta, out, result, space, room)

    theirs = handle.allocate(result.nbytes)
    for algo, needed in there.items():
        convolve(algo)
        operands = [d.filter if i == direction.filter else d.cudnn for i, d in enumerate(descriptors)]
        memory = (a, b)
        p, q = ((operands[i], memory[i]) for i in direction.order)
        workspace = handle.allocate(needed) if needed else None
        cudnn_call = getattr(cudnn, f"cudnnConvolution{direction.name}")
        cudnn_call(
            handle.cudnn,
            1.0,
            *p,
            *q,
            described.cudnn,
            direction.algorithms[algo],
            workspace,
            needed,
            0.0,
            operands[2],
            theirs,
        )
        np.testing.assert_array_equal(result.to_host(np.uint8, result.nbytes), theirs.to_host(np.uint8, theirs.nbytes))
    fastest = next(iter(there))
    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, f"miopenConvolution{call}/c03", convolve, fastest, alpha, beta, unchanged=result)
    absent = [algo for algo in direction.algorithms if algo not in there]
    if absent:
        denied(BAD_PARM, f"miopenConvolution{call}/c02", convolve, absent[0], unchanged=result)
    handle.found[next(p for p in handle.found if p.direction == direction.name)][fastest] = size + 1
    denied(BAD_PARM, f"miopenConvolution{call}/c04", convolve, fastest, unchanged=result)


@available("miopenConvolutionBackwardBias")
@shows("miopenConvolutionBackwardBias/c01", "miopenConvolutionBackwardBias/c02")
def test_the_gradient_of_the_bias(handle, denied):
    d, bias, dy, db = tensor(DIMS), tensor((1, 3, 1, 1)), filled(handle, *DIMS), handle.allocate(12)
    call, theirs = miopen.miopenConvolutionBackwardBias, handle.allocate(12)
    call(handle, 1.0, d, dy, 0.0, bias, db)
    cudnn_call = getattr(cudnn, "cudnnConvolutionBackwardBias")  # noqa: B009 (it may not exist yet)
    cudnn_call(handle.cudnn, 1.0, d.cudnn, dy, 0.0, bias.cudnn, theirs)
    np.testing.assert_array_equal(db.to_host(np.uint32, 3), theirs.to_host(np.uint32, 3))
    for alpha, beta in ONE_AND_ZERO:
        denied(
            NOT_IMPLEMENTED,
            "miopenConvolutionBackwardBias/c02",
            call,
            handle,
            alpha,
            d,
            dy,
            beta,
            bias,
            db,
            unchanged=db,
        )
    denied(BAD_PARM, "miopenConvolutionBackwardBias/c01", call, handle, 1.0, None, dy, 0.0, bias, db, unchanged=db)


_BN = "miopenBatchNormalization"


@available("miopenDeriveBNTensorDescriptor", f"{_BN}ForwardTraining", f"{_BN}ForwardInference", f"{_BN}Backward")
@shows(
    "miopenDeriveBNTensorDescriptor/c01", f"{_BN}ForwardTraining/c01", f"{_BN}ForwardTraining/c02",
    f"{_BN}ForwardInference/c01", f"{_BN}ForwardInference/c02", f"{_BN}Backward/c01", f"{_BN}Backward/c02",
)  # fmt: skip
@pytest.mark.parametrize("mode, dims", [("Spatial", (1, 3, 1, 1)), ("PerActivation", (1, 3, 5, 4))])
def test_batch_normalization(handle, denied, mode, dims):
    """Against the documented calls of cuDNN on the same handle: the same operations."""
    mode_ = getattr(miopen, f"miopenBN{mode}")
    cudnn_mode = getattr(cudnn, {"Spatial": "CUDNN_BATCHNORM_SPATIAL"}.get(mode, "CUDNN_BATCHNORM_PER_ACTIVATION"))
    d, bn = tensor(DIMS), miopen.miopenCreateTensorDescriptor()
    miopen.miopenDeriveBNTensorDescriptor(bn, d, mode_)
    assert miopen.miopenGet4dTensorDescriptor(bn)[1:5] == dims
    x, dy, scale, bias = (filled(handle, *shape) for shape in (DIMS, DIMS, dims, dims))
    small = 4 * prod(dims)
    training, inference, backward = (
        getattr(miopen, _BN + name) for name in ("ForwardTraining", "ForwardInference", "Backward")
    )
    theirs = {
        name: getattr(cudnn, f"cudnnBatchNormalization{name}")
        for name in ("ForwardTraining", "ForwardInference", "Backward")
    }

    def memory():
        return [handle.zeros(nbytes) for nbytes in (X.nbytes, X.nbytes, X.nbytes, *[small] * 6)]

    ours = y, dx, inferred, mean, variance, saved_mean, saved_inverse, dscale, dbias = memory()

    def train(alpha=1.0, beta=0.0):
        statistics = (0.5, mean, variance, 1e-3, saved_mean, saved_inverse)
        training(handle, mode_, alpha, beta, d, x, d, y, bn, scale, bias, *statistics)

    def back(*factors):
        saved = (1e-3, saved_mean, saved_inverse)
        backward(handle, mode_, *factors, d, x, d, dy, d, dx, bn, scale, dscale, dbias, *saved)

    def infer(alpha=1.0, beta=0.0):
        inference(handle, mode_, alpha, beta, d, x, d, inferred, bn, scale, bias, mean, variance, 1e-3)

    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, f"{_BN}ForwardTraining/c02", train, alpha, beta, unchanged=y)
        denied(NOT_IMPLEMENTED, f"{_BN}Backward/c02", back, alpha, beta, 1.0, 0.0, unchanged=dx)
        denied(NOT_IMPLEMENTED, f"{_BN}Backward/c02", back, 1.0, 0.0, alpha, beta, unchanged=dx)
        denied(NOT_IMPLEMENTED, f"{_BN}ForwardInference/c02", infer, alpha, beta, unchanged=inferred)
    train()
    back(1.0, 0.0, 1.0, 0.0)
    infer()
    on, cd, cbn, one = handle.cudnn, d.cudnn, bn.cudnn, (1.0, 0.0)
    others = y2, dx2, inferred2, mean2, variance2, saved_mean2, saved_inverse2, dscale2, dbias2 = memory()
    statistics = (0.5, mean2, variance2, 1e-3, saved_mean2, saved_inverse2)
    theirs["ForwardTraining"](on, cudnn_mode, *one, cd, x, cd, y2, cbn, scale, bias, *statistics)
    saved = (1e-3, saved_mean2, saved_inverse2)
    theirs["Backward"](on, cudnn_mode, *one, *one, cd, x, cd, dy, cd, dx2, cbn, scale, dscale2, dbias2, *saved)
    theirs["ForwardInference"](on, cudnn_mode, *one, cd, x, cd, inferred2, cbn, scale, bias, mean2, variance2, 1e-3)
    for mine, other in zip(ours, others, strict=True):
        np.testing.assert_array_equal(mine.to_host(np.uint8, mine.nbytes), other.to_host(np.uint8, other.nbytes))
        assert np.any(mine.to_host(np.uint8, mine.nbytes))
    denied(BAD_PARM, f"{_BN}ForwardTraining/c01", training, None, *range(16))
    denied(BAD_PARM, f"{_BN}ForwardInference/c01", inference, None, *range(13))
    denied(BAD_PARM, f"{_BN}Backward/c01", backward, None, *range(18))
    denied(BAD_PARM, "miopenDeriveBNTensorDescriptor/c01", miopen.miopenDeriveBNTensorDescriptor, bn, None, mode_)
