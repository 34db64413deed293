"""Check what batch normalization and cudnnNormalization* require of descriptors, statistics and factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...enumerations import CUDNN_BN_MIN_EPSILON, cudnnActivationMode_t, cudnnNormAlgo_t, cudnnNormMode_t
from ...operations import ActivationSpec, TensorSpec
from ...operations.normalization.batch import PER_ACTIVATION, Mode
from ...operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, NHWC
from ...relations import data_type_among, rank_between, same_data_type, same_dims, writable_layout
from ...status import BAD_PARAM, NOT_SUPPORTED, expect

MIN_RANK = 4  # dimensions
MAX_RANK = 5  # dimensions
# These types come from the tables of batch normalization; cudnnNormalization* has none (docs/errata.md, D035, D081).
TRAINING_TYPES = (HALF, FLOAT, DOUBLE)
INFERENCE_TYPES = (*TRAINING_TYPES, INT8)
NORM_TRAINING_TYPES = (*TRAINING_TYPES, BFLOAT16)
NORM_INFERENCE_TYPES = (*INFERENCE_TYPES, BFLOAT16)
# STATISTICS_TYPES maps the type of x to that of its statistics; other types map to themselves (docs/errata.md, D042).
STATISTICS_TYPES = {HALF: FLOAT, BFLOAT16: FLOAT, INT8: FLOAT}
WORD_BYTES = 4


def derived(x: TensorSpec, mode: Mode) -> TensorSpec:
    """Return the packed description of scale, bias, mean and variance of x: 1xCx1x1 or 1xCxHxW (3.2.18, 3.2.19)."""
    dims = (1, *x.dims[1:]) if mode in PER_ACTIVATION else (1, x.dims[1], *(1 for _ in x.dims[2:]))
    return TensorSpec.packed(STATISTICS_TYPES.get(x.data_type, x.data_type), dims)


def four_or_five(clause: str, **tensors: TensorSpec) -> None:
    """Raise an error unless all tensors have 4 or 5 dimensions."""
    rank_between(clause, MIN_RANK, MAX_RANK, BAD_PARAM, **tensors)


def described_alike(clause: str, types: str, **tensors: TensorSpec) -> None:
    """Raise an error unless all tensors have the same dimensions (``clause``) and data types (``types``)."""
    same_dims(clause, BAD_PARAM, **tensors)
    same_data_type(types, BAD_PARAM, **tensors)


def of_statistics(clause: str, x: TensorSpec, mode: Mode, **descriptors: TensorSpec) -> None:
    """Raise an error unless the descriptors have the dimensions and data type of the statistics of x. Strides must not
    overlap."""
    wanted = derived(x, mode)
    for name, spec in descriptors.items():
        expect(spec.dims == wanted.dims, BAD_PARAM, clause,
               f"{name} has dimensions {spec.dims}, those of the statistics of {x.dims} in mode {mode.name} are {wanted.dims}")  # fmt: skip
        expect(spec.data_type == wanted.data_type, BAD_PARAM, clause,
               f"{name} has data type {spec.data_type.name}, that of the statistics of {x.data_type.name} is {wanted.data_type.name}")  # fmt: skip
    writable_layout(**descriptors)


def min_epsilon(clause: str, epsilon: float, least: float = CUDNN_BN_MIN_EPSILON) -> None:
    """Raise an error if epsilon is NaN or below ``least``."""
    expect(epsilon >= least, BAD_PARAM, clause, f"epsilon is {epsilon}, it must be at least {least}")


def supported_types(clause: str, types: tuple[object, ...], **tensors: TensorSpec) -> None:
    """Raise an error unless the data type of each tensor is in ``types``."""
    data_type_among(clause, types, **tensors)


def together(clause: str, **memory: object) -> None:
    """Raise an error if some, but not all, of the memory is NULL."""
    missing = [name for name, value in memory.items() if value is None]
    expect(
        len(missing) in (0, len(memory)),
        BAD_PARAM,
        clause,
        f"{', '.join(missing)} is NULL, but not all of {', '.join(memory)}",
    )


def one_group(clause: str, groupCnt: int) -> None:
    """Raise an error unless groupCnt is 1."""
    expect(groupCnt == 1, NOT_SUPPORTED, clause, f"groupCnt is {groupCnt}, only 1 is supported")


def algorithm_for(mode: cudnnNormMode_t, algo: cudnnNormAlgo_t) -> None:
    """Raise an error for CUDNN_NORM_ALGO_PERSIST with another mode than CUDNN_NORM_PER_CHANNEL."""
    persists = algo == cudnnNormAlgo_t.CUDNN_NORM_ALGO_PERSIST
    expect(not persists or mode == cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL, NOT_SUPPORTED, "cudnnNormAlgo_t/c01",
           f"algo {algo.name} supports CUDNN_NORM_PER_CHANNEL only, mode is {mode.name}")  # fmt: skip


class Clauses(NamedTuple):
    """Hold the clauses that a training call or its size query cites.

    They cover ranks; statistics, spatial and per activation; differing dimensions and data types; unsupported values.
    The others cover fused operations: their layouts, tensors and activation.
    """

    function: str
    rank: str
    spatial: str
    per_activation: str
    dims: str
    types: str
    unsupported: str
    layout: str
    fused: str
    activation: str

    def cite(self, clause: str) -> str:
        return f"{self.function}/{clause}"


def demanded(
    cites: Clauses, types: tuple[object, ...], mode: Mode, ops: int, tensors: Mapping[str, TensorSpec],
    statistics: Mapping[str, TensorSpec], added: Mapping[str, TensorSpec | None], others: Mapping[str, TensorSpec | None],
    activation: ActivationSpec | None,
) -> None:  # fmt: skip
    """Raise an error unless the descriptors meet the requirements of the training calls.

    ops: is 0 for normalization alone, 1 if an activation follows, 2 if z is added before it. tensors: has x first.
    added: is used if z is added. others: is used if an activation follows.
    """
    x = next(iter(tensors.values()))
    used = {**(others if ops > 0 else {}), **(added if ops > 1 else {})}
    for name, spec in used.items():
        expect(spec is not None, BAD_PARAM, cites.cite(cites.fused), f"{name} is NULL, the fused operation needs it")
    needed = {name: spec for name, spec in used.items() if spec is not None}
    four_or_five(cites.cite(cites.rank), **tensors, **needed)
    described_alike(cites.cite(cites.dims), cites.cite(cites.types), **tensors)
    described_alike(cites.cite(cites.fused), cites.cite(cites.fused), xDesc=x, **needed)
    supported_types(cites.cite(cites.unsupported), types, xDesc=x)
    of_statistics(cites.cite(cites.per_activation if mode in PER_ACTIVATION else cites.spatial), x, mode, **statistics)
    if ops:
        rectified(cites, activation)
        packed_nhwc(cites.cite(cites.layout), **tensors, **needed)


def rectified(cites: Clauses, activation: ActivationSpec | None) -> None:
    """Raise an error unless the activation of a fused operation is a ReLU (docs/errata.md, D154)."""
    expect(
        activation is not None,
        BAD_PARAM,
        cites.cite(cites.activation),
        "activationDesc is NULL, the fused operation needs it",
    )
    assert activation is not None
    relu = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
    expect(activation.mode == relu, NOT_SUPPORTED, cites.cite(cites.unsupported),
           f"activationDesc has mode {activation.mode.name}, only {relu.name} is fused")  # fmt: skip


def packed_nhwc(clause: str, **tensors: TensorSpec) -> None:
    """Raise an error unless the tensors are packed NHWC, as fused operations require."""
    for name, spec in tensors.items():
        wanted = TensorSpec.packed(spec.data_type, spec.dims, NHWC)
        same = all(a == b for a, b, extent in zip(spec.strides, wanted.strides, spec.dims, strict=True) if extent > 1)
        expect(
            same,
            NOT_SUPPORTED,
            clause,
            f"{name} has strides {spec.strides}, a fused operation takes NHWC: {wanted.strides}",
        )


def reserve_bytes(ops: int, x: TensorSpec) -> int:
    """Return the bytes of reserve space: one per element if an activation follows an addition, else 0.

    The minimum is one word, because bits of masks are written a word at a time.
    """
    return max(x.count, WORD_BYTES) if ops > 1 else 0


def large_enough(clause: str, given: int, needed: int) -> None:
    """Raise an error unless the reserve space has the bytes that the query returns."""
    expect(given >= needed, BAD_PARAM, clause, f"reserveSpaceSizeInBytes is {given}, {needed} bytes are needed")
