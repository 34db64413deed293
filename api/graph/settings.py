"""Finalise tensors, convolutions, pointwise settings, knob choices and variant packs (9.2.1, 9.2.7, 9.2.16, 9.2.17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..enumerations import CUDNN_DIM_MAX
from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..operations.graph import GraphConvolution, GraphTensor, KnobChoice, PointwiseSettings
from ..operations.specs import INT8, SCALAR_BYTES, VECTORS
from ..status import BAD_PARAM, NOT_SUPPORTED, expect
from .life_cycle import Given, finalizes

INVALID = "cudnnBackendFinalize/c06"
INT8_VECTORS = (1, 4, 32)


@finalizes(Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR)
def tensor(given: Given) -> GraphTensor:
    section = "CUDNN_BACKEND_TENSOR_DESCRIPTOR"
    data_type, dims, strides = given.one("DATA_TYPE"), given.all("DIMENSIONS"), given.all("STRIDES")
    alignment, count = given.one("BYTE_ALIGNMENT"), given.one("VECTOR_COUNT")
    expect(min(dims) > 0, BAD_PARAM, f"{section}/c23", f"dimensions {dims} are not positive")
    expect(min(strides) > 0, BAD_PARAM, f"{section}/c24", f"strides {strides} are not positive")
    expect(
        len(dims) == len(strides),
        BAD_PARAM,
        INVALID,
        f"{len(dims)} dimensions {dims}, {len(strides)} strides {strides}",
    )
    plain = data_type not in VECTORS
    expect(
        plain,
        NOT_SUPPORTED,
        f"{section}/c26",
        f"{data_type.name}: vectors are described by CUDNN_ATTR_TENSOR_VECTOR_COUNT",
    )
    size = SCALAR_BYTES[data_type]
    aligned = alignment > 0 and alignment % size == 0
    expect(
        aligned,
        BAD_PARAM,
        f"{section}/c25",
        f"byte alignment {alignment} is not a multiple of the {size} bytes of {data_type.name}",
    )
    expect(count > 0, BAD_PARAM, INVALID, f"the vector count is {count}")
    if data_type == INT8:
        expect(
            count in INT8_VECTORS,
            NOT_SUPPORTED,
            f"{section}/c27",
            f"INT8 has vectors of {INT8_VECTORS}, not of {count}",
        )
    along = -1
    if count != 1:
        text = f"the vector count is {count} and CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION was not set"
        expect(given.is_set("VECTORIZED_DIMENSION"), BAD_PARAM, f"{section}/c17", text)
        along = given.one("VECTORIZED_DIMENSION")
        expect(
            0 <= along < len(dims),
            BAD_PARAM,
            INVALID,
            f"the vectorized dimension {along} is not one of the {len(dims)} dimensions",
        )
    return GraphTensor(
        given.one("UNIQUE_ID"), data_type, dims, strides, alignment, count, along, given.one("IS_VIRTUAL")
    )


@finalizes(Kind.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
def convolution(given: Given) -> GraphConvolution:
    section, spatial = "CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR", given.one("SPATIAL_DIMS")
    known = 1 <= spatial <= CUDNN_DIM_MAX - 2
    expect(known, BAD_PARAM, INVALID, f"{spatial} spatial dimensions, 1 to {CUDNN_DIM_MAX - 2} are possible")
    for name, clause in (
        ("DILATIONS", "c17"),
        ("FILTER_STRIDES", "c18"),
        ("PRE_PADDINGS", "c19"),
        ("POST_PADDINGS", "c20"),
    ):
        found = len(given.all(name))
        expect(
            found == spatial,
            BAD_PARAM,
            f"{section}/{clause}",
            f"{name} has {found} elements for {spatial} spatial dimensions",
        )
    for name, lowest in (("DILATIONS", 1), ("FILTER_STRIDES", 1), ("PRE_PADDINGS", 0), ("POST_PADDINGS", 0)):
        values = given.all(name)
        expect(min(values) >= lowest, BAD_PARAM, INVALID, f"{name} is {values}, the least possible is {lowest}")
    return GraphConvolution(
        given.one("CONV_MODE"), given.one("COMP_TYPE"), given.all("PRE_PADDINGS"), given.all("POST_PADDINGS"),
        given.all("FILTER_STRIDES"), given.all("DILATIONS"),
    )  # fmt: skip


@finalizes(Kind.CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
def pointwise(given: Given) -> PointwiseSettings:
    lower, upper = given.one("LOWER_CLIP"), given.one("UPPER_CLIP")
    expect(lower <= upper, BAD_PARAM, INVALID, f"the lower clip {lower} is above the upper one, {upper}")
    return PointwiseSettings(given.one("MODE"), given.one("MATH_PREC"), given.one("NAN_PROPAGATION"), lower, upper)


@finalizes(Kind.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
def knob_choice(given: Given) -> KnobChoice:
    return KnobChoice(given.one("KNOB_TYPE"), given.one("KNOB_VALUE"))


@dataclass(frozen=True)
class VariantPack:
    """Hold the memory of an execution: a pointer per unique id, and the workspace, or None if none is needed."""

    pointers: Mapping[int, Any]
    workspace: Any


@finalizes(Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
def variant_pack(given: Given) -> VariantPack:
    uids, pointers = given.all("UNIQUE_IDS"), given.all("DATA_POINTERS")
    expect(len(uids) == len(pointers), BAD_PARAM, INVALID, f"{len(uids)} unique ids, {len(pointers)} data pointers")
    expect(len(set(uids)) == len(uids), BAD_PARAM, INVALID, f"the unique ids {uids} repeat")
    return VariantPack(MappingProxyType(dict(zip(uids, pointers, strict=True))), given.one("WORKSPACE"))
