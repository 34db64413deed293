"""Implement convolution descriptors and output dimensions (5.2.11, 5.2.12, 5.2.17, 5.2.18, 5.2.25 to 5.2.29, 5.2.33 to 5.2.37)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...descriptors import ConvolutionDescriptor
from ...enumerations import CUDNN_DIM_MAX, cudnnConvolutionMode_t, cudnnDataType_t
from ...functions import documented
from ...operations import ConvolutionSpec
from ...operations.specs import DOUBLE, FLOAT, HALF, INT32
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from ..tensor_descriptors import entries

if TYPE_CHECKING:
    from ...descriptors import FilterDescriptor, TensorDescriptor
    from ...enumerations import cudnnMathType_t, cudnnReorderType_t

COMPUTE_TYPES = (FLOAT, DOUBLE, HALF, INT32)  # The tables of configurations list these (docs/errata.md, D249).
MAX_REQUESTED = CUDNN_DIM_MAX - 2  # dimensions, for the getter; the setter takes CUDNN_DIM_MAX (docs/errata.md, D247)


@documented()
def cudnnCreateConvolutionDescriptor() -> ConvolutionDescriptor:
    """Return a new convolution descriptor: one group, default math type and reorder type; the convolution itself is not set.

    Source: 5.2.11; defaults: docs/errata.md, D236.
    """
    return ConvolutionDescriptor()


@documented(invalid={"convDesc": "c12", "mode": "c16"})
def cudnnSetConvolution2dDescriptor(
    convDesc: ConvolutionDescriptor,
    pad_h: int,
    pad_w: int,
    u: int,
    v: int,
    dilation_h: int,
    dilation_w: int,
    mode: cudnnConvolutionMode_t,
    computeType: cudnnDataType_t,
) -> None:
    """Describe a 2-D convolution: zero padding on each side, strides u (vertical) and v, dilations, mode, compute type.

    Group count, math type and reorder type are unchanged.
    Errors: BAD_PARAM for negative padding (c13), strides (c14) or dilations (c15) below 1, an unknown mode (c16), a
    compute type other than FLOAT, DOUBLE, HALF, INT32. Source: 5.2.33.
    """
    name = "cudnnSetConvolution2dDescriptor"
    expect(
        min(pad_h, pad_w) >= 0, BAD_PARAM, f"{name}/c13", f"pad_h {pad_h}, pad_w {pad_w}: padding cannot be negative"
    )
    expect(min(u, v) > 0, BAD_PARAM, f"{name}/c14", f"u {u}, v {v}: strides must be at least 1")
    expect(min(dilation_h, dilation_w) > 0, BAD_PARAM, f"{name}/c15",
           f"dilation_h {dilation_h}, dilation_w {dilation_w}: dilations must be at least 1")  # fmt: skip
    _compute_type("computeType", computeType, INCORRECT_PARAMETER)
    geometry = (pad_h, pad_w), (u, v), (dilation_h, dilation_w)
    convDesc.spec = ConvolutionSpec(mode, computeType, *geometry, *convDesc.options)


@documented(invalid={"convDesc": "c12", "arrayLength": "c13", "mode": "c14", "dataType": "c15"})
def cudnnSetConvolutionNdDescriptor(
    convDesc: ConvolutionDescriptor,
    arrayLength: int,
    padA: Sequence[int],
    filterStrideA: Sequence[int],
    dilationA: Sequence[int],
    mode: cudnnConvolutionMode_t,
    dataType: cudnnDataType_t,
) -> None:
    """Describe a convolution of arrayLength spatial dimensions, computed in dataType.

    padA, filterStrideA, dilationA: at least arrayLength entries. Group count, math type and reorder type are unchanged.
    Errors: BAD_PARAM for a negative arrayLength (c13), an unknown mode (c14), a dataType other than FLOAT, DOUBLE,
    HALF, INT32 (c15), negative padding (c16), strides (c17) or dilations (c18) below 1; NOT_SUPPORTED for arrayLength
    above CUDNN_DIM_MAX (c19). Source: 5.2.36.
    """
    name = "cudnnSetConvolutionNdDescriptor"
    expect(arrayLength >= 0, BAD_PARAM, f"{name}/c13", f"arrayLength is {arrayLength}, it cannot be negative")
    expect(arrayLength <= CUDNN_DIM_MAX, NOT_SUPPORTED, f"{name}/c19",
           f"arrayLength is {arrayLength}, at most {CUDNN_DIM_MAX} are supported")  # fmt: skip
    _compute_type("dataType", dataType, f"{name}/c15")
    padding = entries("padA", padA, arrayLength, f"{name}/c05")
    strides = entries("filterStrideA", filterStrideA, arrayLength, f"{name}/c06")
    dilations = entries("dilationA", dilationA, arrayLength, f"{name}/c07")
    expect(min(padding, default=0) >= 0, BAD_PARAM, f"{name}/c16", f"padA is {padding}: padding cannot be negative")
    expect(min(strides, default=1) > 0, BAD_PARAM, f"{name}/c17",
           f"filterStrideA is {strides}: strides must be at least 1")  # fmt: skip
    expect(min(dilations, default=1) > 0, BAD_PARAM, f"{name}/c18",
           f"dilationA is {dilations}: dilations must be at least 1")  # fmt: skip
    convDesc.spec = ConvolutionSpec(mode, dataType, padding, strides, dilations, *convDesc.options)


class Convolution2dParameters(NamedTuple):
    pad_h: int
    pad_w: int
    u: int
    v: int
    dilation_h: int
    dilation_w: int
    mode: cudnnConvolutionMode_t
    computeType: cudnnDataType_t


@documented(invalid={"convDesc": "c09"})
def cudnnGetConvolution2dDescriptor(convDesc: ConvolutionDescriptor) -> Convolution2dParameters:
    """Return (pad_h, pad_w, u, v, dilation_h, dilation_w, mode, computeType) as they were set.

    Errors: BAD_PARAM for a descriptor that is not that of a 2-D convolution (c07). Source: 5.2.17.
    """
    spec = _initialised(convDesc, "cudnnGetConvolution2dDescriptor/c07")
    expect(spec.rank == 2, BAD_PARAM, "cudnnGetConvolution2dDescriptor/c07",
           f"convDesc describes a convolution of {spec.rank} spatial dimensions, not 2")  # fmt: skip
    return Convolution2dParameters(*spec.padding, *spec.stride, *spec.dilation, spec.mode, spec.compute_type)


class ConvolutionNdParameters(NamedTuple):
    arrayLength: int
    padA: tuple[int, ...]
    filterStrideA: tuple[int, ...]
    dilationA: tuple[int, ...]
    mode: cudnnConvolutionMode_t
    dataType: cudnnDataType_t


@documented(invalid={"convDesc": "c09", "arrayLengthRequested": "c10"})
def cudnnGetConvolutionNdDescriptor(
    convDesc: ConvolutionDescriptor, arrayLengthRequested: int
) -> ConvolutionNdParameters:
    """Return (arrayLength, padA, filterStrideA, dilationA, mode, dataType); arrays hold min(arrayLengthRequested,
    arrayLength) entries.

    Errors: BAD_PARAM for a negative arrayLengthRequested (c10) or an uninitialised descriptor (c01); NOT_SUPPORTED for
    arrayLengthRequested above CUDNN_DIM_MAX - 2 (c11). Source: 5.2.27.
    """
    name = "cudnnGetConvolutionNdDescriptor"
    expect(arrayLengthRequested >= 0, BAD_PARAM, f"{name}/c10",
           f"arrayLengthRequested is {arrayLengthRequested}, it cannot be negative")  # fmt: skip
    expect(arrayLengthRequested <= MAX_REQUESTED, NOT_SUPPORTED, f"{name}/c11",
           f"arrayLengthRequested is {arrayLengthRequested}, at most {MAX_REQUESTED} are supported")  # fmt: skip
    spec = _initialised(convDesc, f"{name}/c01")
    arrays = (values[:arrayLengthRequested] for values in (spec.padding, spec.stride, spec.dilation))
    return ConvolutionNdParameters(spec.rank, *arrays, spec.mode, spec.compute_type)


@documented()
def cudnnDestroyConvolutionDescriptor(convDesc: ConvolutionDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 5.2.12."""
    convDesc.destroy()


@documented(invalid={"convDesc": "c03", "mathType": "c04"}, fresh=["convDesc"])
def cudnnSetConvolutionMathType(convDesc: ConvolutionDescriptor, mathType: cudnnMathType_t) -> None:
    """Set the math type: whether tensor cores or TF32 may compute the convolution.

    Errors: BAD_PARAM (c03, c04). Source: 5.2.35.
    """
    convDesc.configure(math_type=mathType)


@documented(invalid={"convDesc": "c03"}, fresh=["convDesc"])
def cudnnGetConvolutionMathType(convDesc: ConvolutionDescriptor) -> cudnnMathType_t:
    """Return the math type; CUDNN_DEFAULT_MATH unless it was set. Source: 5.2.26."""
    return convDesc.options.math_type


@documented(invalid={"convDesc": "c03"}, fresh=["convDesc"])
def cudnnSetConvolutionGroupCount(convDesc: ConvolutionDescriptor, groupCount: int) -> None:
    """Set the number of groups. Errors: BAD_PARAM for groupCount below 1. Source: 5.2.34; docs/errata.md, D245."""
    expect(groupCount > 0, BAD_PARAM, INCORRECT_PARAMETER, f"groupCount is {groupCount}, it must be at least 1")
    convDesc.configure(group_count=groupCount)


@documented(invalid={"convDesc": "c03"}, fresh=["convDesc"])
def cudnnGetConvolutionGroupCount(convDesc: ConvolutionDescriptor) -> int:
    """Return the number of groups; 1 unless it was set. Source: 5.2.25."""
    return convDesc.options.group_count


@documented(invalid={"convDesc": INCORRECT_PARAMETER, "reorderType": "c02"}, fresh=["convDesc"])
def cudnnSetConvolutionReorderType(convDesc: ConvolutionDescriptor, reorderType: cudnnReorderType_t) -> None:
    """Set the reorder type; CUDNN_NO_REORDER means that INT8x32 filters have the order of cudnnReorderFilterAndBias.

    Source: 5.2.37.

    Errors: BAD_PARAM for an unknown reorderType (c02).
    """
    convDesc.configure(reorder_type=reorderType)


@documented(invalid={"convDesc": "c02"}, fresh=["convDesc"])
def cudnnGetConvolutionReorderType(convDesc: ConvolutionDescriptor) -> cudnnReorderType_t:
    """Return the reorder type; CUDNN_DEFAULT_REORDER unless it was set. Source: 5.2.29."""
    return convDesc.options.reorder_type


class Convolution2dOutputDim(NamedTuple):
    n: int
    c: int
    h: int
    w: int


@documented(invalid={"*": "c07"})
def cudnnGetConvolution2dForwardOutputDim(
    convDesc: ConvolutionDescriptor, inputTensorDesc: TensorDescriptor, filterDesc: FilterDescriptor
) -> Convolution2dOutputDim:
    """Return (n, c, h, w) of the result: h and w are 1 + (input + 2 * padding - ((filter - 1) * dilation + 1)) / stride.

    Errors: BAD_PARAM for descriptors that are not of a 2-D convolution (c07), input channels that are not the filter's
    times the group count (c08), a dilated filter larger than the padded input. Source: 5.2.18.
    """
    name = "cudnnGetConvolution2dForwardOutputDim"
    expect(convDesc.spec.rank == 2, BAD_PARAM, f"{name}/c07",
           f"convDesc describes a convolution of {convDesc.spec.rank} spatial dimensions, not 2")  # fmt: skip
    clauses = dict.fromkeys(("filter_rank", "convolution_rank"), f"{name}/c07") | {"channels": f"{name}/c08"}
    dims = output_dims(convDesc.spec, inputTensorDesc.spec, filterDesc.spec, **clauses)
    return Convolution2dOutputDim(*dims)


@documented(invalid={"convDesc": "c06", "inputTensorDesc": "c06", "filterDesc": "c06", "nbDims": "c11"})
def cudnnGetConvolutionNdForwardOutputDim(
    convDesc: ConvolutionDescriptor, inputTensorDesc: TensorDescriptor, filterDesc: FilterDescriptor, nbDims: int
) -> tuple[int, ...]:
    """Return the first nbDims of (images, filters, spatial ...) of the result; sizes as cudnnGetConvolution2dForwardOutputDim.

    Errors: BAD_PARAM for ranks that disagree (c07, c08), input channels that are not the filter's times the group count
    (c09), a dilated filter larger than the padded input (c10), nbDims below 0 or above the input's rank (c11).
    Source: 5.2.28.
    """
    dims = output_dims(convDesc.spec, inputTensorDesc.spec, filterDesc.spec)
    expect(0 <= nbDims <= len(dims), BAD_PARAM, "cudnnGetConvolutionNdForwardOutputDim/c11",
           f"nbDims is {nbDims}, it must be 0 to {len(dims)}, the rank of inputTensorDesc")  # fmt: skip
    return dims[:nbDims]


_ND = "cudnnGetConvolutionNdForwardOutputDim"


def output_dims(
    convolution: Any,
    x: Any,
    w: Any,
    filter_rank: str = f"{_ND}/c07",
    convolution_rank: str = f"{_ND}/c08",
    channels: str = f"{_ND}/c09",
    window: str = f"{_ND}/c10",
    names: Any = ("inputTensorDesc", "filterDesc"),
) -> Any:
    """Return the output dimensions of a convolution whose descriptors fit each other; the keywords are the clauses of
    each check.

    channels: is None if the channels of the filter do not matter.
    """
    x_name, w_name = names
    expect(len(w.dims) == x.rank, BAD_PARAM, filter_rank,
           f"{x_name} has {x.rank} dimensions {x.dims}, {w_name} {len(w.dims)}: {w.dims}")  # fmt: skip
    expect(convolution.rank + 2 == x.rank, BAD_PARAM, convolution_rank,
           f"{x_name} has {x.rank} dimensions {x.dims}, convDesc {convolution.rank} spatial dimensions")  # fmt: skip
    groups = convolution.group_count
    expect(channels is None or x.dims[1] == w.dims[1] * groups, BAD_PARAM, channels,
           f"{x_name} has {x.dims[1]} channels, {w_name} {w.dims[1]} in each of {groups} groups")  # fmt: skip
    windows = convolution.windows(w.dims)
    padded = tuple(size + 2 * padding for size, padding in zip(x.dims[2:], convolution.padding, strict=True))
    expect(all(size >= needed for size, needed in zip(padded, windows, strict=True)), BAD_PARAM, window,
           f"the filter of {w_name} covers {windows} (dilation {convolution.dilation}), {x_name} with padding"
           f" {convolution.padding} is {padded}")  # fmt: skip
    dims = convolution.output_dims(x.dims, w.dims)
    expect(max(dims) < 2**31, BAD_PARAM, INCORRECT_PARAMETER, f"the output dimensions {dims} do not fit an int")
    return dims


def _initialised(descriptor: Any, clause: Any) -> Any:
    expect(descriptor.spec is not None, BAD_PARAM, clause, "convDesc has not been initialised")
    return descriptor.spec


def _compute_type(name: Any, data_type: Any, clause: Any) -> None:
    names = ", ".join(kind.name for kind in COMPUTE_TYPES)
    expect(data_type in COMPUTE_TYPES, BAD_PARAM, clause, f"{name} is {data_type.name}, computation is in {names}")
