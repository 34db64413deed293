"""Draw batch normalisation of both generations, alone and with what follows it, local response and divisive normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

from dualdnn.api.cudnn.normalization.lrn import TYPES
from dualdnn.api.cudnn.normalization.statistics import (
    INFERENCE_TYPES,
    NORM_INFERENCE_TYPES,
    NORM_TRAINING_TYPES,
    TRAINING_TYPES,
    derived,
    reserve_bytes,
)
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnBatchNormMode_t,
    cudnnBatchNormOps_t,
    cudnnNanPropagation_t,
    cudnnNormAlgo_t,
    cudnnNormMode_t,
    cudnnNormOps_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    BatchNormalizationBackward,
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationForwardTrainingEx,
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    LRNSpec,
    NormalizationBackward,
    NormalizationForwardInference,
    NormalizationForwardTraining,
    TensorSpec,
)
from dualdnn.api.operations.normalization.batch import PER_ACTIVATION
from dualdnn.api.operations.specs import HALF

from .pieces import Drawn, Source, need

OPERATIONS = (
    BatchNormalizationForwardInference,
    NormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationBackward,
    LRNCrossChannelForward,
    LRNCrossChannelBackward,
    DivisiveNormalizationForward,
    DivisiveNormalizationBackward,
    BatchNormalizationForwardTrainingEx,
    BatchNormalizationBackwardEx,
    NormalizationForwardTraining,
    NormalizationBackward,
)
LOCAL = (LRNCrossChannelForward, LRNCrossChannelBackward, DivisiveNormalizationForward, DivisiveNormalizationBackward)
# Each training call with steps that may follow the normalization is drawn with its gradient.
FUSED = {
    BatchNormalizationForwardTrainingEx: BatchNormalizationBackwardEx,
    NormalizationForwardTraining: NormalizationBackward,
}
ALONE, ACTIVATED, ADDED = range(3)  # values of bnOps and normOps
MODES, NORM_MODES = tuple(cudnnBatchNormMode_t), tuple(cudnnNormMode_t)
STANDARD, PERSIST = cudnnNormAlgo_t
RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
EPSILONS = (1e-3, 1e-5, 0.25)
LRN = tuple(LRNSpec(n, alpha, 0.75, 1.5) for n in (5, 3, 4, 1, 9, 16) for alpha in (1e-4, 2.5))


def draw(source: Source) -> Drawn:
    """Draw one of the calls."""
    kind = source.pick(OPERATIONS)
    if kind in LOCAL:
        return local(source, kind)
    if kind in FUSED or kind in FUSED.values():
        return fused(source, source.pick(tuple(FUSED)))
    if kind in (BatchNormalizationForwardInference, NormalizationForwardInference):
        return inference(source, kind)
    return training(source, kind)


def inference(source: Source, kind: Any) -> Drawn:
    """Draw a call with given statistics; the variance is positive."""
    newer = kind is NormalizationForwardInference
    mode: Any = source.pick(NORM_MODES if newer else MODES)
    x = source.tensor(source.pick(NORM_INFERENCE_TYPES if newer else INFERENCE_TYPES), source.dims(source.pick((4, 5))))
    statistics = derived(x, mode)
    persistent = newer and mode not in PER_ACTIVATION and source.chance(50)
    algo = (PERSIST if persistent else STANDARD,) if newer else ()
    values = mode, *source.blend(), x, source.like(x), statistics, statistics, source.pick(EPSILONS), *algo
    kinds = dict.fromkeys(kind.inputs, "normal") | {"x": source.inputs(), "y": "normal", "variance": "positive"}
    return Drawn((kind(*values),), kinds)


def training(source: Source, kind: Any) -> Drawn:
    """Draw training forward, with or without running and saved statistics, or backward."""
    mode = source.pick(MODES)
    x = source.tensor(source.pick(TRAINING_TYPES), source.dims(source.pick((4, 5))))
    statistics, epsilon = derived(x, mode), source.pick(EPSILONS)
    saved = statistics if source.chance(50) else None
    y = source.like(x)
    if kind is BatchNormalizationBackward:
        need(prod(x.dims) > statistics.count)
        factors = (*source.blend(), *source.blend())
        values: tuple[Any, ...] = (mode, *factors, x, y, source.like(x), statistics, statistics, epsilon, saved)
        return Drawn((kind(*values),), source.inputs(("normal",), ()))
    # The unbiased variance of one element is NaN.
    running = statistics if source.chance(50) and elements(x, mode) > 1 else None
    factor = source.pick((0.25, 1.0, 0.0))
    values = (mode, *source.blend(), x, y, statistics, statistics, factor, running, epsilon, saved)
    return Drawn((kind(*values),), source.inputs(("normal",), ()))


def fused(source: Source, kind: Any) -> Drawn:
    """Draw training with an activation or an addition after it, and the gradient that reads what the first call keeps."""
    newer, ops = kind is NormalizationForwardTraining, source.pick((ALONE, ACTIVATED, ADDED))
    mode: Any = source.pick(NORM_MODES if newer else MODES)
    types = NORM_TRAINING_TYPES if newer else (HALF,) if ops == ADDED else TRAINING_TYPES
    data_type, dims = source.pick(types), source.dims(source.pick((4, 5)))
    x = source.packed(data_type, dims, True) if ops else source.tensor(data_type, dims)
    need(elements(x, mode) > 1)
    persistent = newer and mode not in PER_ACTIVATION and source.chance(50)
    chosen: Any = (cudnnNormOps_t(ops), PERSIST if persistent else STANDARD) if newer else (cudnnBatchNormOps_t(ops),)
    relu = ActivationSpec(RELU, source.pick(tuple(cudnnNanPropagation_t)), 0.0) if ops else None
    statistics, epsilon, sizes = derived(x, mode), source.pick(EPSILONS), (0, reserve_bytes(ops, x))
    running, saved = (statistics if source.chance(50) else None for _ in range(2))
    y, z = x if ops else source.like(x), x if ops == ADDED else None
    described = statistics, statistics
    first = kind(mode, *source.blend(), x, y, *described, 0.25, running, epsilon, saved, *sizes, *chosen, z, relu)
    dx, factors = x if ops else source.like(x), (*source.blend(), *source.blend())
    last = FUSED[kind](
        mode, *factors, x, y, dx, *described, epsilon, saved, *sizes, *chosen, y if ops else None, z, relu
    )
    return Drawn((first, last), source.inputs(("normal",), ()))


def elements(x: TensorSpec, mode: Any) -> int:
    """Return the number of elements of a statistic."""
    return x.dims[0] if mode in PER_ACTIVATION else x.count // x.dims[1]


def local(source: Source, kind: Any) -> Drawn:
    """Draw windows across channels, or over positions. Tensors of 5 dimensions have packed positions."""
    dims, lrn = source.dims(source.pick((4, 4, 5))), source.pick(LRN)
    data_type = source.pick(TYPES)
    x = source.tensor(data_type, dims) if len(dims) == 4 else source.packed(data_type, dims, False)
    alpha, beta = source.blend()
    operation: Any
    if kind is DivisiveNormalizationForward:
        operation = kind(lrn, alpha, beta, x, x if source.chance(50) else None, x)
    elif kind is DivisiveNormalizationBackward:
        means = x if source.chance(50) else None
        operation = kind(lrn, alpha, beta, x, means, x, x, means if source.chance(80) else None)
    elif kind is LRNCrossChannelForward:
        operation = kind(lrn, alpha, beta, x, source.like(x) if len(dims) == 4 else x)
    else:
        operation = kind(lrn, alpha, beta, x, x, x, x)
    return Drawn((operation,), source.inputs(("normal", "positive"), ()))
