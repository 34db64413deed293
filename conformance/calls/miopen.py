"""Turn an operation into the call of the MIOpen porting guide that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from dualdnn.api import miopen
from dualdnn.api.miopen.activation import MODES as ACTIVATIONS
from dualdnn.api.miopen.convolution import FORWARD
from dualdnn.api.miopen.pooling import MODES as POOLINGS
from dualdnn.api.miopen.tensors import OPERATIONS
from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    ConvolutionForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    Operation,
    OpTensor,
    PoolingBackward,
    PoolingForward,
    ScaleTensor,
    SetTensor,
    SoftmaxBackward,
    SoftmaxForward,
    TensorSpec,
)

Memory = Mapping[str, Any]


class MiopenCaller:
    """Make calls of the guide on one handle, in the required order."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __call__(self, operation: Operation, memory: Memory) -> None:
        """Make the call that ``operation`` means on the given operands."""
        _CALLS[type(operation)](self.handle, operation, memory)


def tensor(spec: TensorSpec | tuple[int, ...]) -> Any:
    """Return a tensor descriptor with these dimensions."""
    descriptor = miopen.miopenCreateTensorDescriptor()
    dims = spec if isinstance(spec, tuple) else spec.dims
    miopen.miopenSet4dTensorDescriptor(descriptor, miopen.miopenFloat, *dims)
    return descriptor


def _inverse(names: Mapping[Any, Any], wanted: Any) -> Any:
    return next(ours for ours, theirs in names.items() if theirs == wanted)


def pooling(spec: Any) -> Any:
    """Return a pooling descriptor with this specification."""
    descriptor = miopen.miopenCreatePoolingDescriptor()
    geometry = (*spec.window, *spec.padding, *spec.stride)
    miopen.miopenSet2dPoolingDescriptor(descriptor, _inverse(POOLINGS, spec.mode), *geometry)
    return descriptor


def activation(spec: Any) -> Any:
    """Return an activation descriptor with this specification."""
    descriptor = miopen.miopenCreateActivationDescriptor()
    mode = _inverse(ACTIVATIONS, spec.mode)
    attributes = (1.0, 1.0, 0.0) if mode == miopen.miopenActivationTANH else (spec.coefficient, 0.0, 0.0)
    miopen.miopenSetActivationDescriptor(descriptor, mode, *attributes)
    return descriptor


def convolution(spec: Any) -> Any:
    """Return a convolution descriptor with this specification."""
    descriptor = miopen.miopenCreateConvolutionDescriptor()
    geometry = (*spec.padding, *spec.stride, *spec.dilation)
    miopen.miopenInitConvolutionDescriptor(descriptor, miopen.miopenConvolution, *geometry)
    return descriptor


def _op_tensor(handle: Any, o: OpTensor, m: Memory) -> None:
    a, b, c = (tensor(spec) for spec in (o.A, o.B, o.C))
    operation = _inverse(OPERATIONS, o.op_tensor.op)
    miopen.miopenOpTensor(handle, operation, o.alpha1, a, m["A"], o.alpha2, b, m["B"], o.beta, c, m["C"])


def _set_tensor(handle: Any, o: SetTensor, m: Memory) -> None:
    miopen.miopenSetTensor(handle, tensor(o.y), m["y"], o.value)


def _scale_tensor(handle: Any, o: ScaleTensor, m: Memory) -> None:
    miopen.miopenScaleTensor(handle, tensor(o.y), m["y"], o.alpha)


def _activation_forward(handle: Any, o: ActivationForward, m: Memory) -> None:
    x, y = tensor(o.x), tensor(o.y)
    miopen.miopenActivationForward(handle, activation(o.activation), o.alpha, x, m["x"], o.beta, y, m["y"])


def _activation_backward(handle: Any, o: ActivationBackward, m: Memory) -> None:
    y, dy, x, dx = (tensor(spec) for spec in (o.y, o.dy, o.x, o.dx))
    operands = (y, m["y"], dy, m["dy"], x, m["x"], o.beta, dx, m["dx"])
    miopen.miopenActivationBackward(handle, activation(o.activation), o.alpha, *operands)


def _softmax_forward(handle: Any, o: SoftmaxForward, m: Memory) -> None:
    miopen.miopenSoftmaxForward(handle, o.alpha, tensor(o.x), m["x"], o.beta, tensor(o.y), m["y"])


def _softmax_backward(handle: Any, o: SoftmaxBackward, m: Memory) -> None:
    y, dy, dx = (tensor(spec) for spec in (o.y, o.dy, o.dx))
    miopen.miopenSoftmaxBackward(handle, o.alpha, y, m["y"], dy, m["dy"], o.beta, dx, m["dx"])


def _pooling_forward(handle: Any, o: PoolingForward, m: Memory) -> None:
    x, y = tensor(o.x), tensor(o.y)
    miopen.miopenPoolingForward(handle, pooling(o.pooling), o.alpha, x, m["x"], o.beta, y, m["y"], False, None, 0)


def _pooling_backward(handle: Any, o: PoolingBackward, m: Memory) -> None:
    y, dy, x, dx = (tensor(spec) for spec in (o.y, o.dy, o.x, o.dx))
    descriptor, size = pooling(o.pooling), miopen.miopenPoolingGetWorkSpaceSize(y)
    result, workspace = handle.allocate(4 * prod(o.y.dims)), handle.allocate(size)
    miopen.miopenPoolingForward(handle, descriptor, 1.0, x, m["x"], 0.0, y, result, True, workspace, size)
    operands = (y, m["y"], dy, m["dy"], x, m["x"], o.beta, dx, m["dx"], workspace)
    miopen.miopenPoolingBackward(handle, descriptor, o.alpha, *operands)


def lrn(spec: Any) -> Any:
    """Return an LRN descriptor with this specification."""
    descriptor = miopen.miopenCreateLRNDescriptor()
    across = miopen.miopenLRNCrossChannel
    miopen.miopenSetLRNDescriptor(descriptor, across, spec.n, spec.alpha, spec.beta, spec.k)
    return descriptor


def _lrn_forward(handle: Any, o: LRNCrossChannelForward, m: Memory) -> None:
    x, y = tensor(o.x), tensor(o.y)
    miopen.miopenLRNForward(handle, lrn(o.lrn), o.alpha, x, m["x"], o.beta, y, m["y"], False, None)


def _lrn_backward(handle: Any, o: LRNCrossChannelBackward, m: Memory) -> None:
    y, dy, x, dx = (tensor(spec) for spec in (o.y, o.dy, o.x, o.dx))
    descriptor = lrn(o.lrn)
    result, workspace = handle.allocate(o.y.nbytes), handle.allocate(miopen.miopenLRNGetWorkSpaceSize(y))
    miopen.miopenLRNForward(handle, descriptor, 1.0, x, m["x"], 0.0, y, result, True, workspace)
    operands = (y, result, dy, m["dy"], x, m["x"], o.beta, dx, m["dx"], workspace)
    miopen.miopenLRNBackward(handle, descriptor, o.alpha, *operands)


def found(handle: Any, o: ConvolutionForward, m: Memory) -> tuple[Any, Any, int, Any]:
    """Return the descriptors (x, w, convolution, y), the workspace, its size, and the results of Find."""
    x, w, y = tensor(o.x), tensor(o.w.dims), tensor(o.y)
    described = convolution(o.convolution)
    size = miopen.miopenConvolutionForwardGetWorkSpaceSize(handle, w, x, described, y)
    workspace = handle.allocate(size) if size else None
    results = miopen.miopenFindConvolutionForwardAlgorithm(  # Find overwrites y.
        handle, x, m["x"], w, m["w"], described, y, handle.allocate(m["y"].nbytes), 8, workspace, size, False
    )
    return (x, w, described, y), workspace, size, results


def _convolution_forward(handle: Any, o: ConvolutionForward, m: Memory) -> None:
    (x, w, described, y), workspace, size, results = found(handle, o, m)
    algo = _inverse(FORWARD.algorithms, o.algo)
    if algo not in [result.fwd_algo for result in results.perfResults]:
        raise LookupError(f"Find did not return {algo.name}")
    operands = (x, m["x"], w, m["w"], described, algo, o.beta, y, m["y"], workspace, size)
    miopen.miopenConvolutionForward(handle, o.alpha, *operands)


_CALLS: dict[type[Operation], Callable[[Any, Any, Memory], None]] = {
    OpTensor: _op_tensor,
    SetTensor: _set_tensor,
    ScaleTensor: _scale_tensor,
    ActivationForward: _activation_forward,
    ActivationBackward: _activation_backward,
    SoftmaxForward: _softmax_forward,
    SoftmaxBackward: _softmax_backward,
    PoolingForward: _pooling_forward,
    PoolingBackward: _pooling_backward,
    ConvolutionForward: _convolution_forward,
    LRNCrossChannelForward: _lrn_forward,
    LRNCrossChannelBackward: _lrn_backward,
}
