"""Recognise operation graphs that equal one documented operation: a convolution or a gradient of it, with or without
bias and activation.

All engines but the first and the last execute only such graphs. Each runs the operation with one documented algorithm
and math type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnPointwiseMode_t,
    cudnnReorderType_t,
)
from .convolution import (
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
)
from .graph_nodes import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    ConvolutionNode,
    GraphTensor,
    Node,
    PointwiseNode,
)
from .operation import Operation
from .specs import DOUBLE, NCHW, NCHW_VECT_C, NHWC, VECTORS, ActivationSpec, ConvolutionSpec, FilterSpec, TensorSpec

FMA, TENSOR_OP = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_TENSOR_OP_MATH
_F, _D, _W = cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t
FORWARD = tuple(algo for algo in _F if algo != _F.CUDNN_CONVOLUTION_FWD_ALGO_DIRECT)
FORWARD_ON_CORES = FORWARD[:3]  # These three algorithms are matrix products.
DATA, FILTER = tuple(_D), tuple(_W)
DATA_ON_CORES = DATA[:2]
FILTER_ON_CORES = (_W.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, _W.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, _W.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3)  # fmt: skip


@dataclass(frozen=True)
class Algorithm:
    """State what an engine executes: one kind of node by a documented algorithm, with a math type."""

    node: type[ConvolutionNode]
    algo: Any
    math_type: cudnnMathType_t


# ALGORITHMS is indexed by the global index of the engine. The first and the last engine execute any graph node by node.
# The last one runs convolutions of 16-bit data on tensor cores.
ALGORITHMS: tuple[Algorithm | None, ...] = (
    None,
    *(Algorithm(ConvolutionForwardNode, algo, FMA) for algo in FORWARD),
    *(Algorithm(ConvolutionForwardNode, algo, TENSOR_OP) for algo in FORWARD_ON_CORES),
    *(Algorithm(ConvolutionBackwardDataNode, algo, FMA) for algo in DATA),
    *(Algorithm(ConvolutionBackwardDataNode, algo, TENSOR_OP) for algo in DATA_ON_CORES),
    *(Algorithm(ConvolutionBackwardFilterNode, algo, FMA) for algo in FILTER),
    *(Algorithm(ConvolutionBackwardFilterNode, algo, TENSOR_OP) for algo in FILTER_ON_CORES),
    None,
)
ON_CORES_ENGINE = len(ALGORITHMS) - 1


@dataclass(frozen=True)
class Single:
    """Hold a graph as one operation.

    names: maps the operation's operands to operands of the graph. parts: image, filter and response as the
    operation describes them.
    """

    operation: Any
    names: Mapping[str, str]
    convolution: ConvolutionSpec
    parts: tuple[TensorSpec, FilterSpec, TensorSpec]


class NoPatternError(ValueError):
    """Report why a graph is not one operation of the engine."""


@cache
def single(nodes: tuple[Node, ...], engine: int) -> Single | None:
    """Return the operation that the engine runs for a graph, or None if it runs node by node. Raise NoPatternError if
    the graph does not fit the engine."""
    algorithm = ALGORITHMS[engine]
    if algorithm is None:
        return None
    first, *others = nodes
    if not isinstance(first, algorithm.node):
        raise NoPatternError(f"the first operation is not a {algorithm.node.__name__.removesuffix('Node')}")
    spec, parts = _convolution(first, algorithm.math_type)
    if isinstance(first, ConvolutionForwardNode) and others:
        return _fused(first, others, algorithm, spec, parts)
    if others:
        raise NoPatternError(f"there are {len(others)} operations behind the gradient")
    x, w, y = parts
    image, window, response = (tensor.operand for tensor in first.bound)
    factors = (_factor(first.alpha, x), _factor(first.beta, x))
    operation: Operation
    if isinstance(first, ConvolutionForwardNode):
        operation = ConvolutionForward(spec, algorithm.algo, 0, *factors, x, w, y)
        names = {"x": image, "w": window, "y": response}
    elif isinstance(first, ConvolutionBackwardDataNode):
        operation = ConvolutionBackwardData(spec, algorithm.algo, 0, *factors, w, y, x)
        names = {"w": window, "dy": response, "dx": image}
    else:
        operation = ConvolutionBackwardFilter(spec, algorithm.algo, 0, *factors, x, y, w)
        names = {"x": image, "dy": response, "dw": window}
    return Single(operation, names, spec, parts)


def _factor(value: float, tensor: TensorSpec) -> float:
    """Return a scaling factor: double for DOUBLE tensors, else rounded to float."""
    if tensor.data_type == DOUBLE:
        return value
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _convolution(
    node: ConvolutionNode, math_type: cudnnMathType_t
) -> tuple[ConvolutionSpec, tuple[TensorSpec, FilterSpec, TensorSpec]]:
    """Return the convolution in the form of documented descriptors: joined groups, a packed filter, equal padding at
    both ends. Raise NoPatternError if it does not fit."""
    settings = node.convolution
    if settings.rank not in (2, 3):
        raise NoPatternError(f"there are {settings.rank} spatial dimensions, 2 or 3 are executed")
    if settings.pre_padding != settings.post_padding:
        raise NoPatternError(f"the paddings {settings.pre_padding} and {settings.post_padding} differ")
    image, window, response = node.bound
    x, y = (_joined(tensor, 1, settings.rank) for tensor in (image, response))
    spec = ConvolutionSpec(
        settings.mode, settings.compute_type, settings.pre_padding, settings.stride, settings.dilation, node.groups, math_type,
        cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    return spec, (x, _filter(window, _joined(window, 0, settings.rank)), y)


def _joined(tensor: GraphTensor, groups: int, spatial: int) -> TensorSpec:
    """Return a tensor whose group dimension is merged with the following dimension."""
    dims, strides = tensor.dims, tensor.strides
    if tensor.rank == spatial + 2:
        return described(tensor)
    if tensor.vector_count != 1:
        raise NoPatternError(f"tensor {tensor.uid} has vectors, and a dimension of its own for groups")
    if dims[groups] > 1 and strides[groups] != dims[groups + 1] * strides[groups + 1]:
        raise NoPatternError(f"the groups of tensor {tensor.uid} do not follow each other: {dims}, strides {strides}")
    joined = (*dims[:groups], dims[groups] * dims[groups + 1], *dims[groups + 2 :])
    return TensorSpec(tensor.data_type, joined, (*strides[:groups], *strides[groups + 1 :]))


def described(tensor: GraphTensor) -> TensorSpec:
    """Return a tensor in the form of documented descriptors, where vectors of channels have their own data types."""
    if tensor.vector_count == 1:
        return tensor.spec
    kinds = {scalars: kind for kind, scalars in VECTORS.items()}
    found = kinds.get((tensor.data_type, tensor.vector_count))
    if found is None or tensor.vectorized_dimension != 1:
        along = f"along dimension {tensor.vectorized_dimension}"
        raise NoPatternError(
            f"tensor {tensor.uid} has vectors of {tensor.vector_count} {tensor.data_type.name} {along}"
        )
    return TensorSpec(found, tensor.scalar_dims, tensor.strides)


def _filter(tensor: GraphTensor, spec: TensorSpec) -> FilterSpec:
    for tensor_format in (NCHW, NHWC) if tensor.vector_count == 1 else (NCHW_VECT_C,):
        found = FilterSpec(spec.data_type, tensor_format, spec.dims)
        wanted = zip(found.tensor.storage_dims, spec.strides, found.tensor.strides, strict=True)
        if all(extent == 1 or stride == packed for extent, stride, packed in wanted):
            return found
    raise NoPatternError(f"the filter {tensor.uid} is not packed as NCHW or NHWC: strides {tensor.strides}")


def _fused(
    first: ConvolutionForwardNode, others: Sequence[Node], algorithm: Algorithm, spec: ConvolutionSpec, parts: Any
) -> Single:
    """Return y = activation(alpha1 * conv(x, w) + alpha2 * z + bias), built from additions and an activation in this
    order."""
    current, found = first.y, _Epilogue()
    for node in others:
        if not (isinstance(node, PointwiseNode) and current in node.inputs and current.is_virtual):
            raise NoPatternError(
                "the operations behind the convolution are not a chain of pointwise ones on virtual tensors"
            )
        found.take(node, current)
        current = node.y
    x, w, _ = parts
    y = described(current)
    if found.bias is None or first.y.rank != spec.rank + 2:
        raise NoPatternError(
            "no bias is added, or the groups have a dimension of their own: there is no fused operation"
        )
    z, alpha2 = y, 0.0
    if found.residual is not None:
        z, alpha2 = described(found.residual), _factor(found.factor, x)
        if alpha2 == 0:
            raise NoPatternError(
                "the added tensor has the factor 0: its NaN and infinities still make the graph's result NaN, but the fused operation does not read them"
            )
    if z != y:
        raise NoPatternError(f"what is added is described as {z}, the result as {y}")
    mode = cudnnActivationMode_t
    activation = ActivationSpec(
        mode.CUDNN_ACTIVATION_RELU if found.rectified else mode.CUDNN_ACTIVATION_IDENTITY,
        cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0,
    )  # fmt: skip
    operation = ConvolutionBiasActivationForward(
        spec, activation, algorithm.algo, 0, _factor(first.alpha, x), alpha2, x, w, z, found.bias.spec, y
    )
    added = current if found.residual is None else found.residual
    names = {
        "x": first.x.operand, "w": first.w.operand, "z": added.operand, "bias": found.bias.operand, "y": current.operand,
    }  # fmt: skip
    return Single(operation, names, spec, (x, w, y))


class _Epilogue:
    """Collect what the pointwise operations after a convolution add, and whether they apply ReLU."""

    def __init__(self) -> None:
        self.residual: GraphTensor | None = None
        self.bias: GraphTensor | None = None
        self.factor, self.rectified, self.complete = 1.0, False, False

    def take(self, node: PointwiseNode, current: GraphTensor) -> None:
        """Add one pointwise operation that follows ``current``."""
        mode, settings = cudnnPointwiseMode_t, node.pointwise
        if self.complete:
            raise NoPatternError("there are operations behind the activation")
        if settings.mode == mode.CUDNN_POINTWISE_ADD and node.b is not None:
            self._add(node, current)
            return
        plain = settings.nan == cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN and node.alpha1 == 1
        relu = settings.mode == mode.CUDNN_POINTWISE_RELU_FWD and (settings.lower_clip, settings.upper_clip) == (
            0,
            np.inf,
        )
        if not plain or not (relu or settings.mode == mode.CUDNN_POINTWISE_IDENTITY_FWD):
            raise NoPatternError(f"{settings.mode.name} with these settings is not fused")
        self.rectified, self.complete = relu, True

    def _add(self, node: PointwiseNode, current: GraphTensor) -> None:
        assert node.b is not None
        sides = [(node.x, node.alpha1), (node.b, node.alpha2)]
        (_, factor), (other, other_factor) = sides if node.x == current else sides[::-1]
        if factor != 1 or other.is_virtual:  # The current value is virtual as well.
            raise NoPatternError("the convolution is scaled again, or added to what is not a tensor of memory")
        if other.scalar_dims == current.scalar_dims and self.residual is None and self.bias is None:
            self.residual, self.factor = other, other_factor
        elif self.bias is None and other.dims == (1, current.dims[1], *(1,) * (current.rank - 2)) and other_factor == 1:
            self.bias = other
        else:
            raise NoPatternError(
                f"tensor {other.uid} of {other.dims} is neither a residual in front of a bias nor a bias"
            )
