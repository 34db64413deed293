"""Rows of fused operations: the statistics of a layer, and the tensors of residual networks."""

from __future__ import annotations

from collections.abc import Iterator

from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    ConvolutionSpec,
    ConvScaleBiasAddActivation,
    DactivationForkDbatchnorm,
    FilterSpec,
    Operation,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ScaleBiasAddActivationGenBitmask,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT32, NHWC

from ..layouts import laid_out
from .row import Row

CHANNELS = (64, 2048)
SHAPES = ((64, 256, 56, 56), (32, 128, 28, 28), (31, 67, 37, 41))
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)


def _vector(channels: int, kind: cudnnDataType_t = FLOAT) -> TensorSpec:
    return TensorSpec.packed(kind, (1, channels, 1, 1))


def finalized(channels: int, kind: cudnnDataType_t) -> tuple[Operation, Operation]:
    """Statistics made a scale and a bias of this type, in training and in inference."""
    numbers, eq = _vector(channels, DOUBLE if kind == DOUBLE else FLOAT), _vector(channels, kind)
    training = BnFinalizeStatisticsTraining(100352, 0.1, 1e-5, *(numbers,) * 8, eq, eq)
    return training, BnFinalizeStatisticsInference(1e-5, *(numbers,) * 4, eq, eq)


def residual(dims: tuple[int, ...], kind: cudnnDataType_t, layout: str) -> tuple[Operation, Operation]:
    """Scaled tensors, added and rectified with a bit mask, and the gradient of it."""
    x, eq = laid_out(kind, dims, layout), _vector(dims[1], kind)
    numbers = _vector(dims[1], DOUBLE if kind == DOUBLE else FLOAT)
    mask = TensorSpec.packed(INT32, (x.count // dims[1], -(-dims[1] // 32), 1, 1))
    added = ScaleBiasAddActivationGenBitmask(RELU, x, eq, eq, x, eq, eq, x, mask)
    return added, DactivationForkDbatchnorm(RELU, 1e-5, 0, x, x, mask, *(numbers,) * 3, x, x, numbers, numbers)


def convolutions(taps: int) -> Iterator[tuple[str, Operation]]:
    """A layer of a residual network, as the conditions of the fast path have it: 16-bit channels last, 64 filters."""
    spec = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, (taps // 2,) * 2, (1, 1), (1, 1), 1,
        cudnnMathType_t.CUDNN_TENSOR_OP_MATH, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    x, y = laid_out(HALF, (64, 256, 56, 56), "nhwc"), laid_out(HALF, (64, 64, 56, 56), "nhwc")
    w, eq, eq_y, sums = (
        FilterSpec(HALF, NHWC, (64, 256, taps, taps)),
        _vector(256, HALF),
        _vector(64, HALF),
        _vector(64),
    )
    forward = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    backward = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
    yield (
        "scale bias ReLU convolution statistics",
        ScaleBiasActivationConvBnstats(spec, RELU, forward, 0, x, eq, eq, w, y, sums, sums),
    )
    yield "scale bias ReLU filter gradient", ScaleBiasActivationWgrad(spec, RELU, backward, 0, x, eq, eq, y, w)
    yield (
        "convolution scale bias add ReLU",
        ConvScaleBiasAddActivation(spec, RELU, forward, 0, x, w, eq_y, y, eq_y, eq_y, y),
    )


def small_fused() -> Iterator[Operation]:
    """Small operations that between them use every source in every data type."""
    for kind in (FLOAT, DOUBLE, HALF, BFLOAT16):
        yield from finalized(8, kind)
        yield from residual((2, 8, 3, 5), kind, "nhwc")


def fused_rows() -> Iterator[Row]:
    """The rows of all sequences."""
    for channels in CHANNELS:
        for name, operation in zip(("training", "inference"), finalized(channels, HALF), strict=True):
            yield Row(f"fused finalize {name} {channels} half", f"fused finalize {name}", operation)
    for dims in SHAPES:
        for kind, layout in ((HALF, "nhwc"), (FLOAT, "nhwc"), (FLOAT, "nchw")):
            shape = f"{'x'.join(map(str, dims))} {kind.name.removeprefix('CUDNN_DATA_').lower()} {layout.upper()}"
            for name, operation in zip(
                ("scale bias add ReLU", "ReLU and batch norm gradient"), residual(dims, kind, layout), strict=True
            ):
                yield Row(f"fused {name} {shape}", f"fused {name}", operation)
    for taps in (1, 3):
        for name, operation in convolutions(taps):
            yield Row(f"fused {name} {taps}x{taps} 64x256x56x56 to 64 half NHWC", f"fused {name}", operation)
