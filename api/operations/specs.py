"""Define the specifications, which are immutable snapshots of descriptors.

Sizes and strides count elements. A vectorised tensor (CUDNN_TENSOR_NCHW_VECT_C) follows the document's N x (C/v) x H x
W x v. Its channel extents and strides count vectors of v = ``vector_length`` channels.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..enumerations import (
    CUDNN_ATTN_ENABLE_PROJ_BIASES,
    cudnnActivationMode_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnFoldingDirection_t,
    cudnnFusedOps_t,
    cudnnIndicesType_t,
    cudnnLossNormalizationMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnOpTensorOp_t,
    cudnnPoolingMode_t,
    cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t,
    cudnnReorderType_t,
    cudnnSamplerType_t,
    cudnnSeqDataAxis_t,
    cudnnStatus_t,
    cudnnTensorFormat_t,
)
from .records import record

FLOAT = cudnnDataType_t.CUDNN_DATA_FLOAT
DOUBLE = cudnnDataType_t.CUDNN_DATA_DOUBLE
HALF = cudnnDataType_t.CUDNN_DATA_HALF
BFLOAT16 = cudnnDataType_t.CUDNN_DATA_BFLOAT16
INT8 = cudnnDataType_t.CUDNN_DATA_INT8
UINT8 = cudnnDataType_t.CUDNN_DATA_UINT8
INT32 = cudnnDataType_t.CUDNN_DATA_INT32
INT8x4 = cudnnDataType_t.CUDNN_DATA_INT8x4
UINT8x4 = cudnnDataType_t.CUDNN_DATA_UINT8x4
INT8x32 = cudnnDataType_t.CUDNN_DATA_INT8x32
NCHW = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW
NHWC = cudnnTensorFormat_t.CUDNN_TENSOR_NHWC
NCHW_VECT_C = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW_VECT_C

# VECTORS maps a vector data type to its scalar type and the scalars per element.
VECTORS = {INT8x4: (INT8, 4), UINT8x4: (UINT8, 4), INT8x32: (INT8, 32)}
SCALAR_BYTES = {FLOAT: 4, DOUBLE: 8, HALF: 2, BFLOAT16: 2, INT8: 1, UINT8: 1, INT32: 4}


def scalar_type(data_type: cudnnDataType_t) -> cudnnDataType_t:
    """Return the type of one scalar: INT8 for INT8x4 and INT8x32, and the type itself for plain types."""
    return VECTORS.get(data_type, (data_type, 1))[0]


def vector_length(data_type: cudnnDataType_t) -> int:
    """Return how many channels one element of the type holds."""
    return VECTORS.get(data_type, (data_type, 1))[1]


def packed_strides(dims: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides without gaps; ``order`` lists the dimensions from the outermost to the innermost."""
    strides = [0] * len(dims)
    step = 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= dims[dimension]
    return tuple(strides)


def memory_order(tensor_format: cudnnTensorFormat_t, rank: int) -> tuple[int, ...]:
    """Return the dimensions from the outermost to the innermost: N, C, spatial or N, spatial, C (3.1.2.28)."""
    spatial = tuple(range(2, rank))
    return (0, *spatial, 1) if tensor_format == NHWC else (0, 1, *spatial)


@record
class TensorSpec:
    """Describe a tensor: data type, dimensions (N, C, spatial ...) and strides."""

    data_type: cudnnDataType_t
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def packed(
        cls, data_type: cudnnDataType_t, dims: tuple[int, ...], tensor_format: cudnnTensorFormat_t = NCHW
    ) -> TensorSpec:
        """Return a tensor without gaps in the order of ``tensor_format``."""
        storage = _in_vectors(dims, vector_length(data_type))
        return cls(data_type, tuple(dims), packed_strides(storage, memory_order(tensor_format, len(dims))))

    @property
    def rank(self) -> int:
        return len(self.dims)

    @cached_property
    def scalar_type(self) -> cudnnDataType_t:
        return scalar_type(self.data_type)

    @cached_property
    def vector_length(self) -> int:
        return vector_length(self.data_type)

    @cached_property
    def scalar_bytes(self) -> int:
        return SCALAR_BYTES[self.scalar_type]

    @cached_property
    def storage_dims(self) -> tuple[int, ...]:
        """Return the dimensions in stored elements; the channel extent is C / vector_length."""
        return _in_vectors(self.dims, self.vector_length)

    @cached_property
    def count(self) -> int:
        """Return how many scalars the tensor holds, without gaps."""
        return prod(self.dims)

    @cached_property
    def elements(self) -> int:
        """Return how many elements the tensor holds, without gaps; an element of a vector type is a vector."""
        return prod(self.storage_dims)

    @cached_property
    def span(self) -> int:
        """Return how many stored elements lie from the first to the last one, gaps included."""
        return 1 + sum([(extent - 1) * stride for extent, stride in zip(self.storage_dims, self.strides, strict=True)])

    @cached_property
    def nbytes(self) -> int:
        """Return the bytes of memory that the tensor occupies, gaps included."""
        return self.span * self.scalar_bytes * self.vector_length

    @cached_property
    def is_packed(self) -> bool:
        """Return whether the tensor has no gaps: every stored element of the span belongs to it."""
        return not self.overlaps and self.span == self.elements

    @cached_property
    def spatially_packed(self) -> bool:
        """Return whether the spatial dimensions are packed in row-major order."""
        step = 1
        for extent, stride in list(zip(self.dims, self.strides, strict=True))[:1:-1]:
            if extent == 1:
                continue
            if stride != step:
                return False
            step = stride * extent
        return True

    @cached_property
    def overlaps(self) -> bool:
        """Return whether two positions can share a stored element."""
        reach = 0
        used = [(s, d) for s, d in zip(self.strides, self.storage_dims, strict=True) if d > 1]
        for stride, extent in sorted(used):
            if stride <= reach:
                return True
            reach += (extent - 1) * stride
        return False

    def scalar_layout(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return dimensions and strides in scalars. A vectorised tensor has an additional dimension for its vectors
        after the channels: (N, C/v, v, spatial ...)."""
        if self.vector_length == 1:
            return self.dims, self.strides
        length = self.vector_length
        planes = self.storage_dims
        strides = tuple(stride * length for stride in self.strides)
        return (planes[0], planes[1], length, *planes[2:]), (strides[0], strides[1], 1, *strides[2:])


def _in_vectors(dims: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (dims[0], dims[1] // length, *dims[2:]) if length > 1 else tuple(dims)


@record
class FilterSpec:
    """Describe a filter, which is always packed. ``dims`` are (K, C, spatial ...) in every format (3.2.81, 3.2.82)."""

    data_type: cudnnDataType_t
    format: cudnnTensorFormat_t
    dims: tuple[int, ...]

    @cached_property
    def tensor(self) -> TensorSpec:
        """Return the filter as a tensor."""
        return TensorSpec.packed(self.data_type, self.dims, self.format)

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes


@record
class ActivationSpec:
    mode: cudnnActivationMode_t
    relu_nan: cudnnNanPropagation_t
    coefficient: float


@record
class PoolingSpec:
    mode: cudnnPoolingMode_t
    nan: cudnnNanPropagation_t
    window: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]


@record
class LRNSpec:
    """Hold a window of ``n`` elements and alpha, beta and k of (k + alpha / window * sum)^-beta."""

    n: int
    alpha: float
    beta: float
    k: float

    @property
    def look_behind(self) -> int:
        """Return how many elements of the window precede its center (3.2.83)."""
        return (self.n - 1) // 2

    @property
    def look_ahead(self) -> int:
        """Return how many elements of the window follow its center: one more than precede it if n is even."""
        return self.n - self.look_behind - 1

    def narrowed(self, data_type: cudnnDataType_t) -> tuple[float, float, float]:
        """Return (alpha, beta, k) rounded to the data type of the tensors (3.2.83)."""
        kind: Any = {FLOAT: np.float32, HALF: np.float16}.get(data_type, np.float64)
        with np.errstate(over="ignore"):
            return float(kind(self.alpha)), float(kind(self.beta)), float(kind(self.k))


@record
class OpTensorSpec:
    op: cudnnOpTensorOp_t
    compute_type: cudnnDataType_t
    nan: cudnnNanPropagation_t


@record
class ReduceTensorSpec:
    op: cudnnReduceTensorOp_t
    compute_type: cudnnDataType_t
    nan: cudnnNanPropagation_t
    indices: cudnnReduceTensorIndices_t
    indices_type: cudnnIndicesType_t


@record
class TransformSpec:
    """Hold padding per dimension, folding factor per spatial dimension (0 and 1 mean no folding), and direction."""

    format: cudnnTensorFormat_t
    pad_before: tuple[int, ...]
    pad_after: tuple[int, ...]
    fold: tuple[int, ...]
    direction: cudnnFoldingDirection_t


@record
class ConvolutionSpec:
    """Describe a convolution of ``rank`` spatial dimensions; each tuple has one entry per spatial dimension."""

    mode: cudnnConvolutionMode_t
    compute_type: cudnnDataType_t
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    group_count: int
    math_type: cudnnMathType_t
    reorder_type: cudnnReorderType_t

    @property
    def rank(self) -> int:
        return len(self.padding)

    @property
    def is_flipped(self) -> bool:
        """Return whether the filter is applied rotated by 180 degrees (5.1.3.11)."""
        return self.mode == cudnnConvolutionMode_t.CUDNN_CONVOLUTION

    def windows(self, filter_dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return the spatial extents that the dilated filter covers: (filter - 1) * dilation + 1."""
        return tuple((f - 1) * d + 1 for f, d in zip(filter_dims[2:], self.dilation, strict=True))

    def output_dims(self, input_dims: tuple[int, ...], filter_dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return (images, filters, spatial ...) of the result: 1 + (input + 2 * padding - window) / stride, rounded
        down."""
        windows = self.windows(filter_dims)
        sizes = zip(input_dims[2:], self.padding, windows, self.stride, strict=True)
        return (input_dims[0], filter_dims[0], *(1 + (i + 2 * p - w) // s for i, p, w, s in sizes))


@record
class SeqDataSpec:
    """Describe sequences of vectors: cudnnSeqDataAxis_t indexes ``dims``, and ``axes`` lists the axes from the
    outermost to the innermost.

    lengths: the sequence lengths in time-steps; entry batch * beams + beam belongs to one sequence, whatever the
    axes (7.2.53).
    """

    data_type: cudnnDataType_t
    dims: tuple[int, ...]
    axes: tuple[cudnnSeqDataAxis_t, ...]
    lengths: tuple[int, ...]

    @cached_property
    def tensor(self) -> TensorSpec:
        """Return the container as a packed tensor (time, batch, beam, vector)."""
        return TensorSpec(self.data_type, self.dims, packed_strides(self.dims, tuple(map(int, self.axes))))


@record
class AttnSpec:
    """Describe multi-head attention: ``mode`` is a mask of CUDNN_ATTN flags; a projected size of 0 disables that
    projection (7.2.43)."""

    mode: int
    heads: int
    scaler: float
    data_type: cudnnDataType_t
    compute_type: cudnnDataType_t
    math_type: cudnnMathType_t
    q_size: int
    k_size: int
    v_size: int
    q_projected: int
    k_projected: int
    v_projected: int
    o_projected: int
    qo_longest: int
    kv_longest: int
    max_batches: int
    max_beams: int
    dropout: float = 0.0  # the larger dropout probability, unsupported in training

    @property
    def query_size(self) -> int:
        """Return the length of a query vector after its projection."""
        return self.q_projected or self.q_size

    @property
    def key_size(self) -> int:
        """Return the length of a key vector after its projection."""
        return self.k_projected or self.k_size

    @property
    def value_size(self) -> int:
        """Return the length of a value vector after its projection, which is also the length of one head's result."""
        return self.v_projected or self.v_size

    @property
    def output_size(self) -> int:
        """Return the length of an output vector; without output projection it is the concatenation of all heads."""
        return self.o_projected or self.heads * self.value_size

    @property
    def has_biases(self) -> bool:
        """Return whether every enabled projection adds a bias."""
        return bool(self.mode & CUDNN_ATTN_ENABLE_PROJ_BIASES)


@record
class CTCLossSpec:
    """Describe a CTC loss: ``longest_label`` is the maximum number of labels of a sequence, or None if no setter gave
    it (8.2.27)."""

    compute_type: cudnnDataType_t
    normalization: cudnnLossNormalizationMode_t
    gradient_nan: cudnnNanPropagation_t
    longest_label: int | None = None


@record
class DropoutSpec:
    """Describe a dropout: the probability that an element is dropped, the seed, and whether the descriptor has states."""

    probability: float = 0.0
    seed: int = 0
    has_states: bool = False


@record
class FusedOpsParamsSpec:
    """Hold the attributes of a parameter pack: ``labels`` lists the attributes of its sequence, ``values`` their
    values."""

    ops: cudnnFusedOps_t
    labels: tuple[Any, ...]
    values: tuple[Any, ...]

    def get(self, label: Any) -> Any:
        """Return the value of an attribute, or None if it is NULL or the sequence does not have it."""
        return self.values[self.labels.index(label)] if label in self.labels else None

    def changed(self, label: Any, value: Any) -> FusedOpsParamsSpec:
        """Return a copy of the pack with another value for one attribute."""
        values = (value if known == label else old for known, old in zip(self.labels, self.values, strict=True))
        return FusedOpsParamsSpec(self.ops, self.labels, tuple(values))


@record
class AlgorithmSpec:
    """Hold an algorithm: an enumerator of an algorithm enumeration, or an integer if a C caller did not say which
    enumeration."""

    algorithm: int


@record
class AlgorithmPerformanceSpec:
    """Hold one algorithm's measurement: status, time in milliseconds, device memory in bytes."""

    status: cudnnStatus_t
    time: float
    memory: int


@record
class SpatialTransformerSpec:
    """Describe a spatial transformer: ``dims`` are the dimensions (N, C, H, W) of the transformed tensor."""

    sampler: cudnnSamplerType_t
    data_type: cudnnDataType_t
    dims: tuple[int, ...]

    @cached_property
    def theta(self) -> TensorSpec:
        """Return the tensor of affine matrices, n x 2 x 3 (3.2.97)."""
        return TensorSpec.packed(self.data_type, (self.dims[0], 2, 3))

    @cached_property
    def grid(self) -> TensorSpec:
        """Return the tensor of coordinates, n x h x w x 2 with x before y (3.2.97)."""
        return TensorSpec.packed(self.data_type, (self.dims[0], *self.dims[2:], 2))
