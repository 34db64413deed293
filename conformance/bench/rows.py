"""Lists the timed operations over shapes, data types and layouts, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from math import cos, prod, radians, sin
from typing import Any

import numpy as np
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnBatchNormMode_t,
    cudnnDataType_t,
    cudnnFoldingDirection_t,
    cudnnIndicesType_t,
    cudnnNanPropagation_t,
    cudnnNormAlgo_t,
    cudnnNormMode_t,
    cudnnNormOps_t,
    cudnnOpTensorOp_t,
    cudnnPoolingMode_t,
    cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t,
    cudnnSamplerType_t,
    cudnnSoftmaxAlgorithm_t,
    cudnnSoftmaxMode_t,
)
from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    ActivationSpec,
    AddTensor,
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    ConvolutionBackwardBias,
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    DropoutBackward,
    DropoutForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    LRNSpec,
    NormalizationBackward,
    NormalizationForwardTraining,
    Operation,
    OpTensor,
    OpTensorSpec,
    PoolingBackward,
    PoolingForward,
    PoolingSpec,
    ReduceTensor,
    ReduceTensorSpec,
    ScaleTensor,
    SetTensor,
    SoftmaxBackward,
    SoftmaxForward,
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
    SpatialTransformerSpec,
    TensorSpec,
    TransformSpec,
    TransformTensor,
    TransformTensorEx,
)
from dualdnn.api.operations.specs import FLOAT, HALF, NHWC
from dualdnn.reference.view import NUMPY_TYPES

from ..layouts import laid_out
from .attention_rows import attention_rows
from .convolution_rows import convolution_rows
from .ctc_rows import ctc_rows
from .fused_rows import fused_rows
from .graph_rows import graph_rows
from .rnn_rows import rnn_rows
from .row import Row

Dims = tuple[int, ...]
Make = Callable[[cudnnDataType_t, Dims, str], Operation]

LARGE = (64, 256, 56, 56)
MEDIUM = (32, 128, 28, 28)
SMALL = (8, 64, 14, 14)
ODD = (31, 67, 37, 41)
FIRST_LAYER = (64, 3, 224, 224)
VOLUME = (8, 64, 16, 56, 56)
SMALL_VOLUME = (2, 64, 16, 28, 28)
PYRAMID = (4, 2048, 60, 60)  # PSPNet pools features of this shape.
SPATIAL_PYRAMID = (16, 512, 13, 13)  # YOLOv3 pools features of this shape.
ALEXNET = (128, 96, 55, 55)  # AlexNet's first LRN has this shape.
# DEEP is a last layer of a network; no vector divides the sizes of AWKWARD.
DEEP = (64, 2048, 7, 7)
AWKWARD = (64, 35, 27, 29)
BATCH_SHAPES = (LARGE, MEDIUM, SMALL, DEEP, AWKWARD)
IMAGES = (LARGE, MEDIUM, SMALL, ODD, FIRST_LAYER)
SHAPES = (*IMAGES, VOLUME)
LAYOUTS = ("nchw", "nhwc", "gaps")
DHW_PACKED = ("LRN 5 forward", "LRN 5 backward")  # These take volumes in no other layout (3.2.65, 4.1.14).
NHWC_ALONE = tuple(
    f"batch normalization with {what}"
    for what in ("ReLU training", "ReLU backward", "z and ReLU training", "z and ReLU backward")
)
ONE_LAYOUT = (
    "spatial transformer grid forward",
    "spatial transformer grid backward",
)  # these calls have no tensor descriptors
TYPES = (FLOAT, HALF)
NAN = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN


def activation(mode: str, backward: bool) -> Make:
    spec = ActivationSpec(cudnnActivationMode_t[f"CUDNN_ACTIVATION_{mode}"], NAN, 1.0)

    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        t = laid_out(data_type, dims, layout)
        return ActivationBackward(spec, 1.0, 0.0, t, t, t, t) if backward else ActivationForward(spec, 1.0, 0.0, t, t)

    return make


def softmax(mode: str, backward: bool) -> Make:
    algorithm = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE
    over = cudnnSoftmaxMode_t[f"CUDNN_SOFTMAX_MODE_{mode}"]

    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        t = laid_out(data_type, dims, layout)
        if backward:
            return SoftmaxBackward(algorithm, over, 1.0, 0.0, t, t, t)
        return SoftmaxForward(algorithm, over, 1.0, 0.0, t, t)

    return make


def each(value: int | Dims, count: int) -> Dims:
    """Return the value of each spatial dimension."""
    return (value,) * count if isinstance(value, int) else value


def pooling(mode: str, window: int | Dims, stride: int | Dims, padding: int | Dims, backward: bool) -> Make:
    """Return a function that makes a pooling. A window of 0 covers the whole extent; a stride of 0 equals the window."""

    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        windows, strides, paddings = (each(value, len(dims) - 2) for value in (window, stride, padding))
        sizes = [min(w, size) if w else size for w, size in zip(windows, dims[2:], strict=True)]
        steps = [s or size for s, size in zip(strides, sizes, strict=True)]
        kind = cudnnPoolingMode_t[f"CUDNN_POOLING_{mode}"]
        spec = PoolingSpec(kind, NAN, tuple(sizes), paddings, tuple(steps))
        pooled = [1 + (d + 2 * p - w) // s for d, p, w, s in zip(dims[2:], paddings, sizes, steps, strict=True)]
        x, y = laid_out(data_type, dims, layout), laid_out(data_type, (*dims[:2], *pooled), layout)
        return PoolingBackward(spec, 1.0, 0.0, y, y, x, x) if backward else PoolingForward(spec, 1.0, 0.0, x, y)

    return make


def dropout(backward: bool) -> Make:
    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        t = laid_out(data_type, dims, layout)
        return DropoutBackward(0.5, t, t) if backward else DropoutForward(0.5, t, t)

    return make


def transformer(data_type: cudnnDataType_t, dims: Dims) -> SpatialTransformerSpec:
    """Return a spatial transformer of ``dims``; the planes of a volume form one image of 2 dimensions."""
    images = (*dims[:2], prod(dims[2:-1]), dims[-1])
    return SpatialTransformerSpec(cudnnSamplerType_t.CUDNN_SAMPLER_BILINEAR, data_type, images)


def sampler(backward: bool) -> Make:
    """Return a function that makes a sampler whose input is as large as its output."""

    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        spec = transformer(data_type, dims)
        t = laid_out(data_type, spec.dims, layout)
        if backward:
            return SpatialTfSamplerBackward(spec, 1.0, 0.0, 1.0, 0.0, t, t, t)
        return SpatialTfSamplerForward(spec, 1.0, 0.0, t, t)

    return make


def rotated_grid(spec: SpatialTransformerSpec) -> dict[str, np.ndarray[Any, Any]]:
    """Return the grid of images that are rotated by about 10 degrees, each by another angle, and enlarged.

    Neighbouring pixels sample neighbours, as they do with the grids of affine transforms.
    """
    images, _, height, width = spec.dims
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    angles = [radians(10 + image % 8 - 3.5) for image in range(images)]
    scale = 0.9
    grids = [scale * np.stack([cos(a) * x - sin(a) * y, sin(a) * x + cos(a) * y], axis=-1) for a in angles]
    return {"grid": np.stack(grids).astype(NUMPY_TYPES[spec.data_type]).view(np.uint8)}


def grid_generator(data_type: cudnnDataType_t, dims: Dims, _layout: str) -> Operation:
    return SpatialTfGridGeneratorForward(transformer(data_type, dims))


def grid_generator_gradient(data_type: cudnnDataType_t, dims: Dims, _layout: str) -> Operation:
    return SpatialTfGridGeneratorBackward(transformer(data_type, dims))


def lrn(n: int, backward: bool, beta: float = 0.75) -> Make:
    spec = LRNSpec(n, 1e-4, beta, 2.0)

    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        t = laid_out(data_type, dims, layout)
        if backward:
            return LRNCrossChannelBackward(spec, 1.0, 0.0, t, t, t, t)
        return LRNCrossChannelForward(spec, 1.0, 0.0, t, t)

    return make


def batch_statistics(x: TensorSpec) -> TensorSpec:
    """Return the batch statistics of every channel of x."""
    return TensorSpec.packed(FLOAT, (1, x.dims[1], *(1 for _ in x.dims[2:])))


def batch_training(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    x = laid_out(data_type, dims, layout)
    s = batch_statistics(x)
    mode = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
    return BatchNormalizationForwardTraining(mode, 1.0, 0.0, x, x, s, s, 0.1, s, 1e-5, s)


def batch_backward(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    x = laid_out(data_type, dims, layout)
    s = batch_statistics(x)
    mode = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
    return BatchNormalizationBackward(mode, 1.0, 0.0, 1.0, 0.0, x, x, x, s, s, 1e-5, s)


def norm_fused(ops: int, backward: bool) -> Make:
    """Return a normalization followed by a ReLU (1), or with z added before the ReLU (2)."""
    relu = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, NAN, 0.0)
    mode, algo = cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL, cudnnNormAlgo_t.CUDNN_NORM_ALGO_PERSIST

    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        x, chosen = laid_out(data_type, dims, layout), cudnnNormOps_t(ops)
        s, z, kept = batch_statistics(x), x if ops == 2 else None, x.count if ops == 2 else 0
        if backward:
            found: Any = NormalizationBackward
            return found(mode, 1.0, 0.0, 1.0, 0.0, x, x, x, s, s, 1e-5, s, 0, kept, chosen, algo, x, z, relu)
        made: Any = NormalizationForwardTraining
        return made(mode, 1.0, 0.0, x, x, s, s, 0.1, s, 1e-5, s, 0, kept, chosen, algo, z, relu)

    return make


def batch_inference(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    x = laid_out(data_type, dims, layout)
    s = batch_statistics(x)
    return BatchNormalizationForwardInference(cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, x, x, s, s, 1e-5)


def divisive(n: int, means: bool, backward: bool) -> Make:
    spec = LRNSpec(n, 1.0, 0.75, 1.0)

    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        t = laid_out(data_type, dims, layout)
        given = t if means else None
        if backward:
            return DivisiveNormalizationBackward(spec, 1.0, 0.0, t, given, t, t, given)
        return DivisiveNormalizationForward(spec, 1.0, 0.0, t, given, t)

    return make


def bias(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    a = TensorSpec.packed(data_type, (1, dims[1], *[1] * (len(dims) - 2)))
    return AddTensor(1.0, 1.0, a, laid_out(data_type, dims, layout))


def multiply(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    t = laid_out(data_type, dims, layout)
    return OpTensor(OpTensorSpec(cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MUL, FLOAT, NAN), 1.0, 1.0, 0.0, t, t, t)


def scale(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    return ScaleTensor(0.5, laid_out(data_type, dims, layout))


def fill(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    return SetTensor(0.5, laid_out(data_type, dims, layout))


def transform(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    other = "nchw" if layout == "nhwc" else "nhwc"
    return TransformTensor(1.0, 0.0, laid_out(data_type, dims, layout), laid_out(data_type, dims, other))


def pad(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    """Return a border of one pixel, into packed NHWC: clients do this before a convolution without padding."""
    spatial = len(dims) - 2
    border = (0, 0, *[1] * spatial)
    unfolded = (1,) * spatial
    spec = TransformSpec(NHWC, border, border, unfolded, cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD)
    padded = laid_out(data_type, tuple(d + 2 * p for d, p in zip(dims, border, strict=True)), "nhwc")
    return TransformTensorEx(spec, 1.0, 0.0, laid_out(data_type, dims, layout), padded)


def reduce(op: str, kept: tuple[int, ...]) -> Make:
    def make(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
        a = laid_out(data_type, dims, layout)
        c = TensorSpec.packed(data_type, tuple(d if i in kept else 1 for i, d in enumerate(dims)))
        spec = ReduceTensorSpec(
            cudnnReduceTensorOp_t[f"CUDNN_REDUCE_TENSOR_{op}"], FLOAT, NAN,
            cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES, cudnnIndicesType_t.CUDNN_32BIT_INDICES,
        )  # fmt: skip
        return ReduceTensor(spec, 0, 0, 1.0, 0.0, a, c)

    return make


def bias_gradient(data_type: cudnnDataType_t, dims: Dims, layout: str) -> Operation:
    db = TensorSpec.packed(data_type, (1, dims[1], *(1 for _ in dims[2:])))
    return ConvolutionBackwardBias(1.0, 0.0, laid_out(data_type, dims, layout), db)


OPERATIONS: dict[str, tuple[Make, tuple[Dims, ...]]] = {
    "activation ReLU forward": (activation("RELU", False), SHAPES),
    "activation ReLU backward": (activation("RELU", True), SHAPES),
    "activation tanh forward": (activation("TANH", False), SHAPES),
    "activation sigmoid backward": (activation("SIGMOID", True), SHAPES),
    "softmax instance forward": (softmax("INSTANCE", False), (*SHAPES, (512, 1000, 1, 1), (100000, 10, 1, 1))),
    "softmax instance backward": (softmax("INSTANCE", True), (*SHAPES, (512, 1000, 1, 1), (100000, 10, 1, 1))),
    "softmax channel forward": (softmax("CHANNEL", False), (*SHAPES, (4, 32000, 8, 8))),
    "softmax channel backward": (softmax("CHANNEL", True), (*SHAPES, (4, 32000, 8, 8))),
    "pooling max 3x3 stride 2 forward": (pooling("MAX", 3, 2, 1, False), SHAPES),
    "pooling max 3x3 stride 2 backward": (pooling("MAX", 3, 2, 1, True), SHAPES),
    "pooling average 3x3 stride 2 forward": (pooling("AVERAGE_COUNT_INCLUDE_PADDING", 3, 2, 1, False), SHAPES),
    "pooling average 3x3 stride 2 backward": (pooling("AVERAGE_COUNT_INCLUDE_PADDING", 3, 2, 1, True), SHAPES),
    "pooling max 2x2 stride 2 forward": (pooling("MAX", 2, 2, 0, False), (LARGE, ODD)),
    "pooling average 7x7 forward": (pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 7, 7, 0, False), (LARGE, MEDIUM)),
    "pooling average global forward": (
        pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 0, 0, 0, False),
        (LARGE, MEDIUM, SMALL),
    ),
    "pooling average global backward": (
        pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 0, 0, 0, True),
        (LARGE, MEDIUM, SMALL),
    ),
    # No kernel is compiled for these windows.
    "pooling max 3x3 stride 1 forward": (pooling("MAX", 3, 1, 1, False), (MEDIUM,)),
    "pooling max 3x3 stride 1 backward": (pooling("MAX", 3, 1, 1, True), (MEDIUM,)),
    "pooling average 3x3 stride 1 forward": (pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 3, 1, 1, False), (MEDIUM,)),
    "pooling average 3x3 stride 1 backward": (pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 3, 1, 1, True), (MEDIUM,)),
    "pooling max 2x2 stride 1 forward": (pooling("MAX", 2, 1, 0, False), (MEDIUM, SMALL_VOLUME)),
    "pooling max 2x2 stride 1 backward": (pooling("MAX", 2, 1, 0, True), (MEDIUM, SMALL_VOLUME)),
    "pooling max 5x5 stride 3 forward": (pooling("MAX", 5, 3, 1, False), (MEDIUM,)),
    "pooling max 5x5 stride 3 backward": (pooling("MAX", 5, 3, 1, True), (MEDIUM,)),
    "pooling average 5x5 stride 3 backward": (pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 5, 3, 1, True), (MEDIUM,)),
    "pooling average 30x30 stride 30 forward": (pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 30, 30, 0, False), (PYRAMID,)),
    "pooling average 20x20 stride 20 forward": (pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 20, 20, 0, False), (PYRAMID,)),
    "pooling max 13x13 stride 1 forward": (pooling("MAX", 13, 1, 6, False), (SPATIAL_PYRAMID,)),
    "pooling max 13x13 stride 1 backward": (pooling("MAX", 13, 1, 6, True), (SPATIAL_PYRAMID,)),
    "dropout forward": (dropout(False), SHAPES),
    "dropout backward": (dropout(True), SHAPES),
    "spatial transformer grid forward": (grid_generator, (MEDIUM, FIRST_LAYER)),
    "spatial transformer grid backward": (grid_generator_gradient, (MEDIUM, FIRST_LAYER)),
    "spatial transformer sampler forward": (sampler(False), (MEDIUM, SMALL, ODD, FIRST_LAYER)),
    "spatial transformer sampler backward": (sampler(True), (MEDIUM, SMALL, ODD, FIRST_LAYER)),
    "LRN 5 forward": (lrn(5, False), (*IMAGES, ALEXNET, VOLUME)),
    "LRN 5 backward": (lrn(5, True), (*IMAGES, ALEXNET, VOLUME)),
    "LRN 16 forward": (lrn(16, False), (LARGE,)),
    "LRN 16 backward": (lrn(16, True), (LARGE,)),
    "batch normalization inference": (batch_inference, BATCH_SHAPES),
    "batch normalization training": (batch_training, BATCH_SHAPES),
    "batch normalization backward": (batch_backward, BATCH_SHAPES),
    "batch normalization with ReLU training": (norm_fused(1, False), (LARGE, DEEP)),
    "batch normalization with ReLU backward": (norm_fused(1, True), (LARGE, DEEP)),
    "batch normalization with z and ReLU training": (norm_fused(2, False), (LARGE, DEEP)),
    "batch normalization with z and ReLU backward": (norm_fused(2, True), (LARGE, DEEP)),
    "divisive normalization 3x3 forward": (divisive(3, False, False), IMAGES),
    "divisive normalization 3x3 with means forward": (divisive(3, True, False), IMAGES),
    "divisive normalization 3x3 with means backward": (divisive(3, True, True), IMAGES),
    "divisive normalization 5x5 with means forward": (divisive(5, True, False), (LARGE,)),
    "divisive normalization 5x5 with means backward": (divisive(5, True, True), (LARGE,)),
    "add bias": (bias, SHAPES),
    "bias gradient": (bias_gradient, SHAPES),
    "op tensor multiply": (multiply, SHAPES),
    "scale tensor": (scale, SHAPES),
    "set tensor": (fill, SHAPES),
    "transform to the other layout": (transform, SHAPES),
    "transform with padding to NHWC": (pad, (LARGE, ODD)),
    "reduce add to C": (reduce("ADD", (1,)), SHAPES),
    "reduce add to 1": (reduce("ADD", ()), SHAPES),
    "reduce max over W": (reduce("MAX", (0, 1, 2)), SHAPES),
    "reduce norm2 over N": (reduce("NORM2", (1, 2, 3, 4)), SHAPES),
}


def memory_rows() -> Iterator[Row]:
    """Return the rows that memory limits."""
    for family, (make, shapes) in OPERATIONS.items():
        for dims in shapes:
            for data_type in TYPES:
                one = family in ONE_LAYOUT or (len(dims) == 5 and family in DHW_PACKED)
                layouts = ("nhwc",) if family in NHWC_ALONE else ("nchw",) if one else LAYOUTS
                for layout in layouts:
                    kind = data_type.name.removeprefix("CUDNN_DATA_").lower()
                    named = layout.upper() if layout != "gaps" else "NCHW with gaps"
                    name = f"{family} {'x'.join(map(str, dims))} {kind} {named}"
                    yield Row(name, family, make(data_type, dims, layout))


def rotated_rows() -> Iterator[Row]:
    """Return the sampler's large rows with grids of rotated images in place of random numbers."""
    for row in memory_rows():
        o = row.operation
        if not isinstance(o, SpatialTfSamplerForward | SpatialTfSamplerBackward) or "gaps" in row.name:
            continue
        if o.transformer.dims in (FIRST_LAYER, MEDIUM):
            family = f"{row.family} of a rotated grid"
            name = row.name.replace(row.family, family)
            yield Row(name, family, o, contents=partial(rotated_grid, o.transformer))


def rows(match: str = "") -> Iterator[Row]:
    """Return all rows whose name contains ``match``."""
    everything = chain(
        convolution_rows(),
        attention_rows(),
        memory_rows(),
        rotated_rows(),
        ctc_rows(),
        fused_rows(),
        rnn_rows(),
        graph_rows(),
    )
    return (row for row in everything if match in row.name)
