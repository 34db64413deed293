"""Draw fused operations: each sequence with some of its steps left out (6.1.3.1, tables 23 to 35)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from dualdnn.api.cudnn.fused_ops.attributes import RELU, WORD
from dualdnn.api.cudnn.fused_ops.sequences import (
    CONFIGURATIONS,
    EQUIVALENTS,
    FILTER_ALGORITHMS,
    FLOATING,
    FORWARD_ALGORITHMS,
)
from dualdnn.api.enumerations import cudnnConvolutionMode_t, cudnnNanPropagation_t, cudnnReorderType_t
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
from dualdnn.api.operations.graph_patterns import TENSOR_OP
from dualdnn.api.operations.specs import DOUBLE, FLOAT, INT32, NHWC
from dualdnn.api.support import convolution as tables
from dualdnn.api.support import convolution_gradients as gradients
from dualdnn.api.support.convolution import Problem, Row

from .convolution import KINDS, MAX_FILTER, MAX_PRODUCTS, TILED, described
from .normalization import EPSILONS
from .pieces import SPECIAL, Drawn, Source, need

OPERATIONS = (
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ConvScaleBiasAddActivation,
    ScaleBiasAddActivationGenBitmask,
    DactivationForkDbatchnorm,
    BnFinalizeStatisticsTraining,
    BnFinalizeStatisticsInference,
)
ACTIVATIONS = (None, *(ActivationSpec(RELU, nan, 0.0) for nan in cudnnNanPropagation_t))
ON_CORES = tuple(c for c in CONFIGURATIONS if c.x != DOUBLE)
MASKED = (*TILED, 128)  # filters of convolutions that tiles divide
POSITIVE = ("ySqSum", "runningVar", "savedInvStd")  # operands that hold no negative numbers
Direction = tuple[Sequence[Row], Sequence[Any], Callable[[Problem, Any], str | None]]
FORWARD: Direction = (tables.ROWS, FORWARD_ALGORITHMS, tables.unsupported)
FILTER: Direction = (gradients.FILTER_ROWS, FILTER_ALGORITHMS, gradients.filter_unsupported)


def draw(source: Source) -> Drawn:
    """Draw one of the sequences."""
    kind = source.pick(OPERATIONS)
    if kind in (BnFinalizeStatisticsTraining, BnFinalizeStatisticsInference):
        operation = finalized(source, kind)
    elif kind in (ScaleBiasAddActivationGenBitmask, DactivationForkDbatchnorm):
        operation = pointwise(source, kind)
    else:
        operation = around_convolution(source, kind)
    return Drawn((operation,), inputs(source, operation))


def inputs(source: Source, operation: Operation) -> dict[str, str]:
    """Draw the kinds of the inputs. In the profile of special numbers one operand has them."""
    special = source.pick(operation.tensors_read) if source.profile.special else ""
    usual = source.pick(KINDS)
    kinds = {name: "positive" if name in POSITIVE else usual for name in operation.operands}
    return kinds | ({special: source.pick(SPECIAL)} if special else {})


def per_channel(source: Source, data_type: Any, channels: int, rank: int) -> TensorSpec:
    """Draw a tensor of one number for each channel."""
    return source.tensor(data_type, (1, channels, *(1,) * (rank - 2)))


def some(source: Source, **operands: TensorSpec | None) -> dict[str, TensorSpec | None]:
    """Return these operands by name; in a quarter of the draws an operand is None instead."""
    return {name: spec if source.chance(75) else None for name, spec in operands.items()}


def around_convolution(source: Source, kind: Any) -> Operation:
    """Draw a convolution, or its gradient, among the other steps of its sequence."""
    rows, algorithms, refused = FILTER if kind is ScaleBiasActivationWgrad else FORWARD
    problem = on_cores(source) if source.chance(40) else any_convolution(source, rows, algorithms)
    algorithm: Any = next((algorithm for algorithm in algorithms if refused(problem, algorithm) is None), None)
    need(algorithm is not None)
    x, y, activation = problem.x, problem.y, source.pick(ACTIVATIONS)
    first = problem.convolution, activation, algorithm, 0, x
    own = source.pick((x.data_type, x.data_type, DOUBLE if x.data_type == DOUBLE else FLOAT))
    scaled = y if kind is ConvScaleBiasAddActivation else x
    eq = per_channel(source, own, scaled.dims[1], x.rank)
    found = some(source, scale=eq, bias=eq)
    if kind is ScaleBiasActivationWgrad:
        return ScaleBiasActivationWgrad(*first, found["scale"], found["bias"], y, problem.w)
    if kind is ScaleBiasActivationConvBnstats:
        numbers = DOUBLE if y.data_type == DOUBLE else FLOAT
        sums = per_channel(source, numbers, y.dims[1], y.rank) if source.chance(75) else None
        return ScaleBiasActivationConvBnstats(*first, found["scale"], found["bias"], problem.w, y, sums, sums)
    other = per_channel(source, own, y.dims[1], y.rank)
    found = some(source, scale=eq, z=source.like(y), z_scale=other, bias=other)
    z_scale = found["z_scale"] if found["z"] is not None else None
    return ConvScaleBiasAddActivation(*first, problem.w, found["scale"], found["z"], z_scale, found["bias"], y)


def any_convolution(source: Source, rows: Sequence[Row], algorithms: Sequence[Any]) -> Problem:
    """Draw a convolution from a row of these algorithms."""
    row = source.pick([row for row in rows if {*row.algorithms} & {*algorithms} and {*row.configurations} & {*CONFIGURATIONS}])  # fmt: skip
    return described(source, row, source.pick([c for c in row.configurations if c in CONFIGURATIONS]))


def on_cores(source: Source) -> Problem:
    """Draw a convolution for tensor cores: channels are innermost, and tiles divide them."""
    types, taps, step = source.pick(ON_CORES), source.pick((1, 1, 3)), source.pick((1, 1, 2))
    x_dims = (source.integer(1, 3), source.pick(TILED), *(source.integer(taps, 20) for _ in range(2)))
    w_dims = (source.pick(MASKED), x_dims[1], taps, taps)
    mode = source.pick(tuple(cudnnConvolutionMode_t))
    convolution = ConvolutionSpec(
        mode, types.compute, (taps // 2,) * 2, (step,) * 2, (1, 1), 1, TENSOR_OP, cudnnReorderType_t.CUDNN_DEFAULT_REORDER
    )  # fmt: skip
    y_dims = convolution.output_dims(x_dims, w_dims)
    need(prod(w_dims) <= MAX_FILTER and prod(y_dims) * prod(w_dims[1:]) <= MAX_PRODUCTS)
    x, y = (TensorSpec.packed(types.x, dims, NHWC) for dims in (x_dims, y_dims))
    return Problem(convolution, x, FilterSpec(types.w, NHWC, w_dims), y)


def pointwise(source: Source, kind: Any) -> Operation:
    """Draw a sum of scaled tensors with its bit mask, or the gradient of an activation and a normalisation."""
    data_type, dims, activation = (
        source.pick(FLOATING),
        source.dims(source.pick((3, 4, 4, 5))),
        source.pick(ACTIVATIONS),
    )
    x = source.tensor(data_type, dims)
    own = DOUBLE if data_type == DOUBLE else FLOAT
    if kind is ScaleBiasAddActivationGenBitmask:
        number = source.pick((data_type, own))
        eq, other = (per_channel(source, number, dims[1], len(dims)) for _ in range(2))
        found = some(
            source,
            eqScale=eq,
            eqBias=eq,
            z=source.like(x),
            zEqScale=other,
            zEqBias=other,
            bitMask=bit_mask(source, dims),
        )
        found["zEqScale"] = found["zEqScale"] if found["z"] is not None else None
        return ScaleBiasAddActivationGenBitmask(activation=activation, x=x, y=source.like(x), **found)
    numbers = per_channel(source, own, dims[1], len(dims))
    saved = numbers if source.chance(60) else None
    found = some(source, dx=source.like(x), dz=source.like(x), dScale=numbers, dBias=numbers)
    need(any(spec is not None for spec in found.values()))
    mask = bit_mask(source, dims) if activation is not None else None
    scale = numbers if found["dx"] is not None else None
    return DactivationForkDbatchnorm(
        activation, source.pick(EPSILONS), 0, x, source.like(x), mask, scale, saved, saved, *found.values()
    )


def bit_mask(source: Source, dims: tuple[int, ...]) -> TensorSpec:
    """Draw the bit mask of a tensor, with a few rows and words that it does not need."""
    rows, words = prod(dims) // dims[1], -(-dims[1] // WORD)
    spare = source.pick((0, 0, 1, 3)), source.pick((0, 0, 1))
    return source.tensor(INT32, (rows + spare[0], words + spare[1], *(1,) * (len(dims) - 2)))


def finalized(source: Source, kind: Any) -> Operation:
    """Draw the scale and bias that follow from statistics, with the outputs that are wanted."""
    data_type = source.pick(tuple(EQUIVALENTS))
    channels, rank = source.channels(), source.pick((4, 5))
    numbers, eq = (per_channel(source, number, channels, rank) for number in (data_type, source.pick(EQUIVALENTS[data_type])))  # fmt: skip
    outputs = some(source, eqScale=eq, eqBias=eq)
    wants_scale, wants_bias = any(outputs.values()), outputs["eqBias"] is not None
    factors = numbers if wants_scale else None, numbers if wants_bias else None
    epsilon = source.pick(EPSILONS)
    if kind is BnFinalizeStatisticsInference:
        need(wants_scale)
        return BnFinalizeStatisticsInference(epsilon, numbers, factors[1], factors[1], numbers, *outputs.values())
    kept = some(source, runningMean=numbers, runningVar=numbers, savedMean=numbers, savedInvStd=numbers)
    need(wants_scale or any(kept.values()))
    count, factor = source.pick((50, 2, 1000)), source.pick((0.25, 1.0, 0.0))
    sums = source.like(numbers)
    return BnFinalizeStatisticsTraining(count, factor, epsilon, sums, sums, *factors, *kept.values(), *outputs.values())
