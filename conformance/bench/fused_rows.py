"""Rows of fused operations: the statistics of a layer, and the tensors of residual networks."""

from __future__ import annotations

from collections.abc import Iterator

from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import (
    ActivationSpec,
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    DactivationForkDbatchnorm,
    ScaleBiasAddActivationGenBitmask,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT, HALF, INT32

from ..layouts import laid_out
from .row import Row

CHANNELS = (64, 2048)
SHAPES = ((64, 256, 56, 56), (32, 128, 28, 28), (31, 67, 37, 41))
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)


def _vector(channels: int, kind: object = FLOAT) -> TensorSpec:
    return TensorSpec.packed(kind, (1, channels, 1, 1))  # type: ignore[arg-type]


def fused_rows() -> Iterator[Row]:
    """The rows of all sequences."""
    for channels in CHANNELS:
        numbers, eq = _vector(channels), _vector(channels, HALF)
        training = BnFinalizeStatisticsTraining(100352, 0.1, 1e-5, *(numbers,) * 8, eq, eq)
        yield Row(f"fused finalize training {channels} half", "fused finalize training", training)
        inference = BnFinalizeStatisticsInference(1e-5, *(numbers,) * 4, eq, eq)
        yield Row(f"fused finalize inference {channels} half", "fused finalize inference", inference)
    for dims in SHAPES:
        for kind, layout in ((HALF, "nhwc"), (FLOAT, "nhwc"), (FLOAT, "nchw")):
            x, numbers, eq = laid_out(kind, dims, layout), _vector(dims[1]), _vector(dims[1], kind)
            mask = TensorSpec.packed(INT32, (x.count // dims[1], -(-dims[1] // 32), 1, 1))
            name = f"{'x'.join(map(str, dims))} {kind.name.removeprefix('CUDNN_DATA_').lower()} {layout.upper()}"
            added = ScaleBiasAddActivationGenBitmask(RELU, x, eq, eq, x, eq, eq, x, mask)
            yield Row(f"fused scale bias add ReLU {name}", "fused scale bias add ReLU", added)
            gradient = DactivationForkDbatchnorm(RELU, 0, x, x, mask, *(numbers,) * 3, x, x, numbers, numbers)
            yield Row(f"fused ReLU and batch norm gradient {name}", "fused ReLU and batch norm gradient", gradient)
