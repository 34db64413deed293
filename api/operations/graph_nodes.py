"""Define what finalised descriptors of an operation graph (chapter 9) hold: tensors, settings, operation nodes."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

from ..enumerations import (
    cudnnBackendKnobType_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnGenStatsMode_t,
    cudnnNanPropagation_t,
    cudnnPointwiseMode_t,
)
from .records import record
from .specs import TensorSpec


@record
class GraphTensor:
    """Describe a tensor of a graph. Dimensions and strides count elements; an element is a vector of ``vector_count``
    scalars.

    vectorized_dimension: the dimension of the vectors, or -1 if an element is one scalar. A virtual tensor has no
    memory.
    """

    uid: int
    data_type: cudnnDataType_t
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int
    vector_count: int
    vectorized_dimension: int
    is_virtual: bool

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def operand(self) -> str:
        """Return the operand name of the tensor's memory in an execution."""
        return f"tensor_{self.uid}"

    @cached_property
    def scalar_dims(self) -> tuple[int, ...]:
        """Return the dimensions in scalars."""
        along, count = self.vectorized_dimension, self.vector_count
        return tuple(extent * count if d == along else extent for d, extent in enumerate(self.dims))

    @cached_property
    def spec(self) -> TensorSpec:
        """Return the tensor without its id, with elements of one scalar."""
        return TensorSpec(self.data_type, self.dims, self.strides)


@record
class GraphConvolution:
    """Hold the settings of a convolution; each tuple has one entry per spatial dimension."""

    mode: cudnnConvolutionMode_t
    compute_type: cudnnDataType_t
    pre_padding: tuple[int, ...]
    post_padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.stride)

    def output_sizes(self, image: tuple[int, ...], window: tuple[int, ...]) -> tuple[int, ...]:
        """Return the spatial extents of the result, rounded down: 1 + (image + both paddings - ((window - 1) * dilation
        + 1)) / stride."""
        return tuple(
            1 + (image[i] + self.pre_padding[i] + self.post_padding[i] - (window[i] - 1) * self.dilation[i] - 1) // self.stride[i]
            for i in range(self.rank)
        )  # fmt: skip


@record
class PointwiseSettings:
    """Hold the settings of a pointwise operation; the clips belong to RELU_FWD."""

    mode: cudnnPointwiseMode_t
    compute_type: cudnnDataType_t
    nan: cudnnNanPropagation_t
    lower_clip: float
    upper_clip: float

    @property
    def has_two_inputs(self) -> bool:
        return self.mode in TWO_INPUTS


TWO_INPUTS = (
    cudnnPointwiseMode_t.CUDNN_POINTWISE_ADD,
    cudnnPointwiseMode_t.CUDNN_POINTWISE_MUL,
    cudnnPointwiseMode_t.CUDNN_POINTWISE_MIN,
    cudnnPointwiseMode_t.CUDNN_POINTWISE_MAX,
)


class Node:
    """Define the interface of operation nodes: ``reads`` and ``writes`` name their tensor fields."""

    reads: ClassVar[tuple[str, ...]]
    writes: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def precision(self) -> cudnnDataType_t:
        """Return the type of the arithmetic that the node asks for."""

    @property
    def blends(self) -> bool:
        """Return whether beta blends in the prior output."""
        return getattr(self, "beta", 0.0) != 0

    @property
    def inputs(self) -> tuple[GraphTensor, ...]:
        """Return the tensors that the node reads, apart from blending."""
        found = (getattr(self, name) for name in self.reads)
        return tuple(tensor for tensor in found if tensor is not None)

    @property
    def outputs(self) -> tuple[GraphTensor, ...]:
        return tuple(getattr(self, name) for name in self.writes)


class ConvolutionNode(Node):
    """Define what the three convolutions share: an image (x or dx), a filter (w or dw) and a response (y or dy)."""

    convolution: GraphConvolution
    alpha: float
    beta: float
    roles: ClassVar[tuple[str, str, str]]

    @property
    def precision(self) -> cudnnDataType_t:
        return self.convolution.compute_type

    @property
    def bound(self) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """Return image, filter and response."""
        image, window, response = self.roles
        return getattr(self, image), getattr(self, window), getattr(self, response)

    @property
    def groups(self) -> int:
        """Return the number of groups of the convolution."""
        image, window, _ = self.bound
        if image.rank > self.convolution.rank + 2:
            return image.dims[1]
        return image.scalar_dims[1] // window.scalar_dims[1]


@record
class ConvolutionForwardNode(ConvolutionNode):
    """Compute y = alpha * conv(w, x) + beta * y (9.2.12)."""

    convolution: GraphConvolution
    alpha: float
    beta: float
    x: GraphTensor
    w: GraphTensor
    y: GraphTensor

    reads = ("x", "w")
    writes = ("y",)
    roles = ("x", "w", "y")


@record
class ConvolutionBackwardDataNode(ConvolutionNode):
    """Compute dx = alpha * (w *~ dy) + beta * dx (9.2.10)."""

    convolution: GraphConvolution
    alpha: float
    beta: float
    w: GraphTensor
    dy: GraphTensor
    dx: GraphTensor

    reads = ("w", "dy")
    writes = ("dx",)
    roles = ("dx", "w", "dy")


@record
class ConvolutionBackwardFilterNode(ConvolutionNode):
    """Compute dw = alpha * (x *~ dy) + beta * dw (9.2.11)."""

    convolution: GraphConvolution
    alpha: float
    beta: float
    x: GraphTensor
    dy: GraphTensor
    dw: GraphTensor

    reads = ("x", "dy")
    writes = ("dw",)
    roles = ("x", "dw", "dy")


@record
class PointwiseNode(Node):
    """Compute y = op(alpha1 * x), or op(alpha1 * x, alpha2 * b) with b broadcast (9.2.14)."""

    pointwise: PointwiseSettings
    alpha1: float
    alpha2: float
    x: GraphTensor
    b: GraphTensor | None
    y: GraphTensor

    reads = ("x", "b")
    writes = ("y",)

    @property
    def precision(self) -> cudnnDataType_t:
        return self.pointwise.compute_type


@record
class GenStatsNode(Node):
    """Compute ``sum`` and ``sqsum``: per channel, the sums of x and of its squares (9.2.13)."""

    mode: cudnnGenStatsMode_t
    compute_type: cudnnDataType_t
    x: GraphTensor
    sum: GraphTensor
    sqsum: GraphTensor

    reads = ("x",)
    writes = ("sum", "sqsum")

    @property
    def precision(self) -> cudnnDataType_t:
        return self.compute_type


@record
class KnobChoice:
    """Hold a performance knob and its value."""

    knob: cudnnBackendKnobType_t
    value: int
