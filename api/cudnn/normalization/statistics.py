"""What the calls of batch normalization and cudnnNormalization* demand alike: of descriptors, statistics and factors."""

from __future__ import annotations

from ...enumerations import CUDNN_BN_MIN_EPSILON, cudnnNormAlgo_t, cudnnNormMode_t
from ...operations import TensorSpec
from ...operations.normalization.batch import PER_ACTIVATION, Mode
from ...operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8
from ...relations import data_type_among, rank_between, same_data_type, same_dims, writable_layout
from ...status import BAD_PARAM, NOT_SUPPORTED, expect

LOWEST_RANK, HIGHEST_RANK = 4, 5
# Those of the tables of batch normalization; cudnnNormalization* has none (docs/errata.md, D035, D081).
TRAINING_TYPES = (HALF, FLOAT, DOUBLE)
INFERENCE_TYPES = (*TRAINING_TYPES, INT8)
NORM_TRAINING_TYPES, NORM_INFERENCE_TYPES = (*TRAINING_TYPES, BFLOAT16), (*INFERENCE_TYPES, BFLOAT16)
# Of x, to that of its statistics; others keep theirs (docs/errata.md, D042).
STATISTICS_TYPES = {HALF: FLOAT, BFLOAT16: FLOAT, INT8: FLOAT}


def derived(x: TensorSpec, mode: Mode) -> TensorSpec:
    """The description of scale, bias, mean and variance of x, without gaps: 1xCx1x1 or 1xCxHxW (3.2.18, 3.2.19)."""
    dims = (1, *x.dims[1:]) if mode in PER_ACTIVATION else (1, x.dims[1], *(1 for _ in x.dims[2:]))
    return TensorSpec.packed(STATISTICS_TYPES.get(x.data_type, x.data_type), dims)


def four_or_five(clause: str, **tensors: TensorSpec) -> None:
    """All tensors have 4 or 5 dimensions."""
    rank_between(clause, LOWEST_RANK, HIGHEST_RANK, BAD_PARAM, **tensors)


def described_alike(clause: str, types: str, **tensors: TensorSpec) -> None:
    """All tensors have the same dimensions (``clause``) and data types (``types``)."""
    same_dims(clause, BAD_PARAM, **tensors)
    same_data_type(types, BAD_PARAM, **tensors)


def of_statistics(clause: str, x: TensorSpec, mode: Mode, **descriptors: TensorSpec) -> None:
    """The descriptors have the dimensions and data type that the statistics of x have; any strides without overlap."""
    wanted = derived(x, mode)
    for name, spec in descriptors.items():
        expect(spec.dims == wanted.dims, BAD_PARAM, clause,
               f"{name} has dimensions {spec.dims}, those of the statistics of {x.dims} in mode {mode.name} are {wanted.dims}")  # fmt: skip
        expect(spec.data_type == wanted.data_type, BAD_PARAM, clause,
               f"{name} has data type {spec.data_type.name}, that of the statistics of {x.data_type.name} is {wanted.data_type.name}")  # fmt: skip
    writable_layout(**descriptors)


def least_epsilon(clause: str, epsilon: float, least: float = CUDNN_BN_MIN_EPSILON) -> None:
    """epsilon is at least ``least``; NaN is not."""
    expect(epsilon >= least, BAD_PARAM, clause, f"epsilon is {epsilon}, it must be at least {least}")


def supported_types(clause: str, types: tuple[object, ...], **tensors: TensorSpec) -> None:
    """The data type of the tensors is among the supported ones."""
    data_type_among(clause, types, **tensors)  # type: ignore[arg-type]


def together(clause: str, **memory: object) -> None:
    """All of the memory is NULL, or none."""
    missing = [name for name, value in memory.items() if value is None]
    expect(
        len(missing) in (0, len(memory)),
        BAD_PARAM,
        clause,
        f"{', '.join(missing)} is NULL, but not all of {', '.join(memory)}",
    )


def one_group(clause: str, groupCnt: int) -> None:
    """groupCnt is 1."""
    expect(groupCnt == 1, NOT_SUPPORTED, clause, f"groupCnt is {groupCnt}, only 1 is supported")


def algorithm_for(mode: cudnnNormMode_t, algo: cudnnNormAlgo_t) -> None:
    """CUDNN_NORM_ALGO_PERSIST serves CUDNN_NORM_PER_CHANNEL alone."""
    persists = algo == cudnnNormAlgo_t.CUDNN_NORM_ALGO_PERSIST
    expect(not persists or mode == cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL, NOT_SUPPORTED, "cudnnNormAlgo_t/c01",
           f"algo {algo.name} supports CUDNN_NORM_PER_CHANNEL only, mode is {mode.name}")  # fmt: skip
