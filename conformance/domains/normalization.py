"""Draw batch normalisation of both generations, local response and divisive normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

from dualdnn.api.cudnn.normalization.lrn import TYPES
from dualdnn.api.cudnn.normalization.statistics import (
    INFERENCE_TYPES,
    NORM_INFERENCE_TYPES,
    TRAINING_TYPES,
    derived,
)
from dualdnn.api.enumerations import cudnnBatchNormMode_t, cudnnNormAlgo_t, cudnnNormMode_t
from dualdnn.api.operations import (
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    LRNSpec,
    NormalizationForwardInference,
    TensorSpec,
)
from dualdnn.api.operations.normalization.batch import PER_ACTIVATION

from .pieces import Drawn, Source, need

OPERATIONS = (
    BatchNormalizationForwardInference,
    NormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationBackward,
    LRNCrossChannelForward,
    LRNCrossChannelBackward,
    DivisiveNormalizationForward,
)
MODES, NORM_MODES = tuple(cudnnBatchNormMode_t), tuple(cudnnNormMode_t)
STANDARD, PERSIST = cudnnNormAlgo_t
EPSILONS = (1e-3, 1e-5, 0.25)
LRN = tuple(LRNSpec(n, alpha, 0.75, 1.5) for n in (5, 3, 4, 1, 9, 16) for alpha in (1e-4, 2.5))


def draw(source: Source) -> Drawn:
    """Draw one of the calls."""
    kind = source.pick(OPERATIONS)
    if kind in (LRNCrossChannelForward, LRNCrossChannelBackward, DivisiveNormalizationForward):
        return local(source, kind)
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
    elif kind is LRNCrossChannelForward:
        operation = kind(lrn, alpha, beta, x, source.like(x) if len(dims) == 4 else x)
    else:
        operation = kind(lrn, alpha, beta, x, x, x, x)
    return Drawn((operation,), source.inputs(("normal", "positive"), ()))
