"""Define the operations of convolution: cudnnConvolutionForward (5.2.10), cudnnConvolutionBiasActivationForward
(5.2.9), cudnnIm2Col (5.2.31), cudnnReorderFilterAndBias (5.2.32), cudnnConvolutionBackwardData (5.2.8),
cudnnConvolutionBackwardBias (6.2.1) and cudnnConvolutionBackwardFilter (6.2.2)."""

from __future__ import annotations

import os
from functools import cached_property
from math import gcd, prod

from ..enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnIndicesType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t,
    cudnnReorderType_t,
)
from .operation import Operation
from .records import record
from .reduce_tensor import ReduceTensor
from .specs import FLOAT, ActivationSpec, AttnSpec, ConvolutionSpec, FilterSpec, INT8x32, ReduceTensorSpec, TensorSpec


def allows_tf32(spec: ConvolutionSpec | AttnSpec) -> bool:
    """Return whether float inputs may be rounded to TF32 (11 significant bits) on devices of compute capability 8.0 or more.

    Every math type but FMA_MATH permits it, unless NVIDIA_TF32_OVERRIDE=0 (3.1.2.13).
    """
    permitted = spec.math_type != cudnnMathType_t.CUDNN_FMA_MATH
    return permitted and spec.compute_type == FLOAT and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


class _Convolution(Operation):
    """Define what both forward convolutions share."""

    convolution: ConvolutionSpec
    algo: cudnnConvolutionFwdAlgo_t
    workspace_bytes: int
    x: TensorSpec
    w: FilterSpec
    y: TensorSpec

    raw = {"workSpace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @cached_property
    def terms(self) -> int:
        """Return how many products are summed into one output element."""
        return prod(self.w.dims[1:])

    @property
    def filter_is_reordered(self) -> bool:
        """Return whether w and bias have the order that cudnnReorderFilterAndBias writes: INT8x32 filters under
        CUDNN_NO_REORDER."""
        given = self.convolution.reorder_type == cudnnReorderType_t.CUDNN_NO_REORDER
        return given and self.w.data_type == INT8x32


@record
class ConvolutionForward(_Convolution):
    """Compute y = alpha * conv(x, w) + beta * y.

    ``workspace_bytes`` is what the backend needs for this operation (``Backend.workspace_bytes``); it is 0 in the query
    for that size.
    ``compute_type`` is the type of alpha, beta and the blend; products are summed in ``convolution.compute_type``.
    """

    convolution: ConvolutionSpec
    algo: cudnnConvolutionFwdAlgo_t
    workspace_bytes: int
    alpha: float
    beta: float
    x: TensorSpec
    w: FilterSpec
    y: TensorSpec

    inputs = ("x", "w")
    outputs = ("y",)


@record
class ConvolutionBiasActivationForward(_Convolution):
    """Compute y = activation(alpha1 * conv(x, w) + alpha2 * z + bias); z is not read if alpha2 is 0."""

    convolution: ConvolutionSpec
    activation: ActivationSpec
    algo: cudnnConvolutionFwdAlgo_t
    workspace_bytes: int
    alpha1: float
    alpha2: float
    x: TensorSpec
    w: FilterSpec
    z: TensorSpec
    bias: TensorSpec
    y: TensorSpec

    inputs = ("x", "w", "z", "bias")
    outputs = ("y",)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.inputs if self.alpha2 != 0 else ("x", "w", "bias")


@record
class Im2Col(Operation):
    """Compute the matrix A of GEMM convolution: colBuffer[n, p, q][c, r, s] is the input under filter position r, s.

    ``colBuffer`` is a packed matrix with (images * output positions) rows and (channels * filter positions) columns,
    whatever the layout of ``srcData``. Positions in the padding are zero. In mode CUDNN_CONVOLUTION the filter
    positions run backwards, so that A times the stored filter is the convolution.
    """

    convolution: ConvolutionSpec
    filter: FilterSpec
    srcData: TensorSpec
    colBuffer: TensorSpec

    inputs = ("srcData",)
    outputs = ("colBuffer",)


@record
class ReorderFilter(Operation):
    """Compute reorderedFilterData = filterData in the order that an INT8x32 convolution with CUDNN_NO_REORDER reads.

    The stored dimensions are (K/32, 4, 4, 2, C/32, R, S, 8, 4): k is (k/32, k/8 % 4, k/2 % 4, k % 2) and c is
    (c/32, c/4 % 8, c % 4). The reordered ones are (C/32, R, S, K/32, k/8 % 4, k % 2, c/4 % 8, k/2 % 4, c % 4). With
    CUDNN_NO_REORDER the scalars are copied.
    """

    reorder_type: cudnnReorderType_t
    filterData: FilterSpec
    reorderedFilterData: FilterSpec

    inputs = ("filterData",)
    outputs = ("reorderedFilterData",)


@record
class ReorderFilterAndBias(Operation):
    """Compute ReorderFilter, and reorder the K floats of the bias from [K/32, 4, 2, 4] to [K/32, 2, 4, 4]."""

    reorder_type: cudnnReorderType_t
    filterData: FilterSpec
    reorderedFilterData: FilterSpec
    biasData: TensorSpec
    reorderedBiasData: TensorSpec

    inputs = ("filterData", "biasData")
    outputs = ("reorderedFilterData", "reorderedBiasData")


@record
class ConvolutionBackwardData(Operation):
    """Compute dx = alpha * (the gradient of conv(x, w) with respect to x, given dy) + beta * dx.

    The fields match ConvolutionForward: ``dx`` is described like its x, ``dy`` like its y.
    """

    convolution: ConvolutionSpec
    algo: cudnnConvolutionBwdDataAlgo_t
    workspace_bytes: int
    alpha: float
    beta: float
    w: FilterSpec
    dy: TensorSpec
    dx: TensorSpec

    inputs = ("w", "dy")
    outputs = ("dx",)
    raw = {"workSpace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @cached_property
    def terms(self) -> int:
        """Return the maximum number of products summed into an element of dx: each tap reaches one output position in
        ``stride``."""
        convolution, (filters, _, *taps) = self.convolution, self.w.dims
        every = (s // gcd(s, d) for s, d in zip(convolution.stride, convolution.dilation, strict=True))
        return filters // convolution.group_count * prod(-(-t // e) for t, e in zip(taps, every, strict=True))


@record
class ConvolutionBackwardFilter(Operation):
    """Compute dw = alpha * (the gradient of conv(x, w) with respect to w, given dy) + beta * dw.

    The fields match ConvolutionForward: ``dw`` is described like its w, ``dy`` like its y.
    """

    convolution: ConvolutionSpec
    algo: cudnnConvolutionBwdFilterAlgo_t
    workspace_bytes: int
    alpha: float
    beta: float
    x: TensorSpec
    dy: TensorSpec
    dw: FilterSpec

    inputs = ("x", "dy")
    outputs = ("dw",)
    raw = {"workSpace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @cached_property
    def terms(self) -> int:
        """Return how many products are summed into an element of dw."""
        return prod(self.dy.dims) // self.dy.dims[1]


@record
class ConvolutionBackwardBias(Operation):
    """Compute db = alpha * (sums of dy over images and positions, one for each channel) + beta * db."""

    alpha: float
    beta: float
    dy: TensorSpec
    db: TensorSpec

    inputs = ("dy",)
    outputs = ("db",)

    @cached_property
    def as_reduction(self) -> ReduceTensor:
        """Return the same sums as a reduction of A = dy to C = db."""
        spec = ReduceTensorSpec(
            cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_ADD, self.compute_type,
            cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN,
            cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES, cudnnIndicesType_t.CUDNN_32BIT_INDICES,
        )  # fmt: skip
        return ReduceTensor(spec, 0, 0, self.alpha, self.beta, self.dy, self.db)
