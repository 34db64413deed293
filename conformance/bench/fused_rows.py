"""Lists rows of fused operations: the statistics of a layer, and the tensors of residual networks."""

from __future__ import annotations

from collections.abc import Iterator

from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnBatchNormMode_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnIndicesType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnOpTensorOp_t,
    cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    ActivationSpec,
    AddTensor,
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    ConvolutionSpec,
    ConvScaleBiasAddActivation,
    DactivationForkDbatchnorm,
    FilterSpec,
    Operation,
    OpTensor,
    OpTensorSpec,
    ReduceTensor,
    ReduceTensorSpec,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ScaleBiasAddActivationGenBitmask,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT32, NHWC

from ..layouts import laid_out
from .row import Call, Row

CHANNELS = (64, 2048)
SHAPES = ((64, 256, 56, 56), (32, 128, 28, 28), (31, 67, 37, 41))
# Each entry has taps, input and filters: layers of the first and the second block of ResNet-50, and a wider one.
LAYERS = (
    (1, (64, 256, 56, 56), 64), (3, (64, 256, 56, 56), 64), (1, (64, 64, 56, 56), 256), (3, (64, 64, 56, 56), 64),
    (1, (64, 512, 28, 28), 128),
)  # fmt: skip
NOT_NAN = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, NOT_NAN, 0.0)
SPATIAL = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL


def _vector(channels: int, kind: cudnnDataType_t = FLOAT) -> TensorSpec:
    return TensorSpec.packed(kind, (1, channels, 1, 1))


def finalized(channels: int, kind: cudnnDataType_t) -> tuple[Operation, Operation]:
    """Return an operation that turns statistics of this type into a scale and a bias, in training and in inference."""
    numbers, eq = _vector(channels, DOUBLE if kind == DOUBLE else FLOAT), _vector(channels, kind)
    training = BnFinalizeStatisticsTraining(100352, 0.1, 1e-5, *(numbers,) * 8, eq, eq)
    return training, BnFinalizeStatisticsInference(1e-5, *(numbers,) * 4, eq, eq)


def residual(
    dims: tuple[int, ...], kind: cudnnDataType_t, layout: str, parameter: cudnnDataType_t | None = None
) -> tuple[Operation, Operation]:
    """Return scaled tensors, added and rectified with a bit mask, and their gradient. parameter: the type of scales
    and biases where it differs."""
    x, eq = laid_out(kind, dims, layout), _vector(dims[1], kind if parameter is None else parameter)
    numbers = _vector(dims[1], DOUBLE if kind == DOUBLE else FLOAT)
    mask = TensorSpec.packed(INT32, (x.count // dims[1], -(-dims[1] // 32), 1, 1))
    added = ScaleBiasAddActivationGenBitmask(RELU, x, eq, eq, x, eq, eq, x, mask)
    return added, DactivationForkDbatchnorm(RELU, 1e-5, 0, x, x, mask, *(numbers,) * 3, x, x, numbers, numbers)


def convolutions(taps: int, dims: tuple[int, ...], filters: int) -> Iterator[tuple[str, Operation]]:
    """Return a layer of a residual network that meets the conditions of the fast path: 16-bit, channels last."""
    spec = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, (taps // 2,) * 2, (1, 1), (1, 1), 1,
        cudnnMathType_t.CUDNN_TENSOR_OP_MATH, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    x, y = laid_out(HALF, dims, "nhwc"), laid_out(HALF, (dims[0], filters, *dims[2:]), "nhwc")
    w, eq, eq_y, sums = (
        FilterSpec(HALF, NHWC, (filters, dims[1], taps, taps)),
        _vector(dims[1], HALF),
        _vector(filters, HALF),
        _vector(filters),
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


def normalised(x: TensorSpec, /, **where: str) -> Call:
    """Return scale * x + bias as one call: an inference of batch normalisation with neutral mean and variance."""
    numbers = _vector(x.dims[1], DOUBLE if x.data_type == DOUBLE else FLOAT)
    made = BatchNormalizationForwardInference(SPATIAL, 1.0, 0.0, x, x, numbers, numbers, 1e-5)
    return Call(made, {name: where.get(name, name) for name in made.operands})


def rectified(y: TensorSpec, name: str) -> Call:
    """Return a ReLU in place."""
    return Call(ActivationForward(RELU, 1.0, 0.0, y, y), {"x": name, "y": name})


def reductions(y: TensorSpec) -> Iterator[Call]:
    """Return the sums of y and of its squares by channel."""
    sums = _vector(y.dims[1])
    for op, name in (("ADD", "ySum"), ("NORM2", "norms")):
        spec = ReduceTensorSpec(
            cudnnReduceTensorOp_t[f"CUDNN_REDUCE_TENSOR_{op}"], FLOAT, NOT_NAN,
            cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES, cudnnIndicesType_t.CUDNN_32BIT_INDICES,
        )  # fmt: skip
        yield Call(ReduceTensor(spec, 0, 0, 1.0, 0.0, y, sums), {"A": "y", "C": name})
    squared = OpTensorSpec(cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MUL, FLOAT, NOT_NAN)
    yield Call(OpTensor(squared, 1.0, 1.0, 0.0, sums, sums, sums), {"A": "norms", "B": "norms", "C": "ySqSum"})


def finalizing(o: BnFinalizeStatisticsTraining | BnFinalizeStatisticsInference) -> Iterator[Call]:
    """Return inferences of batch normalisation of ones and of zeros, which turn statistics into a scale and a bias."""
    numbers = _vector(o.scale.dims[1])  # type: ignore[union-attr]  # the rows have everything
    eq = _vector(numbers.dims[1], HALF)
    if isinstance(o, BnFinalizeStatisticsTraining):
        mul, add = (OpTensorSpec(cudnnOpTensorOp_t[f"CUDNN_OP_TENSOR_{op}"], FLOAT, NOT_NAN) for op in ("MUL", "ADD"))
        unbiased = o.factor * o.count / (o.count - 1)
        yield Call(AddTensor(1 / o.count, 0.0, numbers, numbers), {"A": "ySum", "C": "savedMean"})
        squared = OpTensor(mul, 1.0, 1.0, 0.0, numbers, numbers, numbers)
        yield Call(squared, {"A": "savedMean", "B": "savedMean", "C": "square"})
        variance = OpTensor(add, 1 / o.count, -1.0, 0.0, numbers, numbers, numbers)
        yield Call(variance, {"A": "ySqSum", "B": "square", "C": "variance"})
        yield Call(AddTensor(o.factor, 1 - o.factor, numbers, numbers), {"A": "savedMean", "C": "runningMean"})
        yield Call(AddTensor(unbiased, 1 - o.factor, numbers, numbers), {"A": "variance", "C": "runningVar"})
        yield normalised(numbers, x="ones", y="savedInvStd", scale="ones", bias="zeros", mean="zeros")
    known = "savedMean" if isinstance(o, BnFinalizeStatisticsTraining) else "runningMean"
    variance_name = "variance" if isinstance(o, BnFinalizeStatisticsTraining) else "runningVar"
    yield normalised(eq, x="half ones", y="eqScale", bias="zeros", mean="zeros", variance=variance_name)
    yield normalised(eq, x="half zeros", y="eqBias", mean=known, variance=variance_name)


def separate(o: Operation) -> tuple[Call, ...]:
    """Return the fewest documented calls that do the work of a fused operation, except for the bit mask."""
    if isinstance(o, BnFinalizeStatisticsTraining | BnFinalizeStatisticsInference):
        return tuple(finalizing(o))
    if isinstance(o, ScaleBiasActivationConvBnstats):
        convolved = Call(o.inner, {"x": "scaled"})
        return (normalised(o.x, y="scaled"), rectified(o.x, "scaled"), convolved, *reductions(o.y))
    if isinstance(o, ScaleBiasActivationWgrad):
        return normalised(o.x, y="scaled"), rectified(o.x, "scaled"), Call(o.inner, {"x": "scaled"})
    if isinstance(o, ConvScaleBiasAddActivation):
        added = Call(AddTensor(1.0, 1.0, o.y, o.y), {"A": "scaled z", "C": "y"})
        scaled = (normalised(o.y, x="y"), normalised(o.y, x="z", y="scaled z"))
        return Call(o.inner, {}), *scaled, added, rectified(o.y, "y")
    if isinstance(o, ScaleBiasAddActivationGenBitmask):
        added = Call(AddTensor(1.0, 1.0, o.y, o.y), {"A": "scaled z", "C": "y"})
        return normalised(o.x), normalised(o.y, x="z", y="scaled z"), added, rectified(o.y, "y")
    if isinstance(o, DactivationForkDbatchnorm):
        incoming = Call(
            ActivationBackward(RELU, 1.0, 0.0, o.x, o.x, o.x, o.x), {"y": "y", "dy": "dy", "x": "y", "dx": "dz"}
        )
        numbers = _vector(o.x.dims[1], DOUBLE if o.x.data_type == DOUBLE else FLOAT)
        made = BatchNormalizationBackward(SPATIAL, 1.0, 0.0, 1.0, 0.0, o.x, o.x, o.x, numbers, numbers, 1e-5, numbers)
        return incoming, Call(made, {"dy": "dz", "savedInvVariance": "savedInvStd"})
    return ()


def small_fused() -> Iterator[Operation]:
    """Return small operations that together use every source in every data type."""
    for kind in (FLOAT, DOUBLE, HALF, BFLOAT16):
        yield from finalized(8, kind)
        yield from residual((2, 8, 3, 5), kind, "nhwc")
        yield residual((2, 8, 3, 5), kind, "nhwc", DOUBLE if kind == DOUBLE else FLOAT)[0]


def fused_rows() -> Iterator[Row]:
    """Return the rows of all sequences."""
    for channels in CHANNELS:
        for name, operation in zip(("training", "inference"), finalized(channels, HALF), strict=True):
            title = f"fused finalize {name} {channels} half"
            yield Row(title, f"fused finalize {name}", operation, separate(operation))
    for dims in SHAPES:
        for kind, layout in ((HALF, "nhwc"), (FLOAT, "nhwc"), (FLOAT, "nchw"), (HALF, "nchw")):
            shape = f"{'x'.join(map(str, dims))} {kind.name.removeprefix('CUDNN_DATA_').lower()} {layout.upper()}"
            for name, operation in zip(
                ("scale bias add ReLU", "ReLU and batch norm gradient"), residual(dims, kind, layout), strict=True
            ):
                yield Row(f"fused {name} {shape}", f"fused {name}", operation, separate(operation))
    for taps, dims, filters in LAYERS:
        for name, operation in convolutions(taps, dims, filters):
            title = f"fused {name} {taps}x{taps} {'x'.join(map(str, dims))} to {filters} half NHWC"
            yield Row(title, f"fused {name}", operation, separate(operation))
