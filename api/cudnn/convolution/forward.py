"""Implement forward convolutions, their im2col matrix and reordered filters (5.2.9, 5.2.10, 5.2.31, 5.2.32)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from ...enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from ...functions import SameMemory, computing
from ...operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
    TensorSpec,
)
from ...operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8x32
from ...relations import data_type_among, scaling, writable_layout
from ...status import BAD_PARAM, NOT_SUPPORTED, expect
from ...support.convolution import IMPLICIT_PRECOMP_GEMM, Problem, beyond_positions, facts, unsupported
from .descriptors import output_dims

if TYPE_CHECKING:
    from ...enumerations import cudnnConvolutionFwdAlgo_t, cudnnReorderType_t
    from ...handle import Handle
    from ...operations.specs import ActivationSpec, ConvolutionSpec, FilterSpec

_F = "cudnnConvolutionForward"
_B = "cudnnConvolutionBiasActivationForward"
_I = "cudnnIm2Col"
IDENTITY = cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY
RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU

# CLAUSES maps each check to its clause of cudnnConvolutionForward. Other functions override the clauses that they list.
CLAUSES: Mapping[str, str] = {
    "output_rank": f"{_F}/c47",
    "filter_rank": f"{_F}/c48",
    "convolution_rank": f"{_F}/c50",
    "channels": f"{_F}/c51",
    "groups": f"{_F}/c52",
    "data_types": f"{_F}/c53",
    "window": f"{_F}/c54",
    "output_dims": f"{_F}/c04",
    "rank": f"{_F}/c56",
    "output_size": f"{_F}/c57",
    "table": f"{_F}/c58",
}


def check_problem(problem: Problem, clauses: Mapping[str, str] = CLAUSES) -> None:
    """Raise BAD_PARAM unless the descriptors fit each other."""
    convolution, x, w, y = problem.convolution, problem.x, problem.w, problem.y
    expect(x.rank == y.rank, BAD_PARAM, clauses["output_rank"],
           f"xDesc has {x.rank} dimensions {x.dims}, yDesc {y.rank}: {y.dims}")  # fmt: skip
    passed_on = {name: clauses[name] for name in ("filter_rank", "convolution_rank", "channels", "window")}
    dims = output_dims(convolution, x, w, **passed_on, names=("xDesc", "wDesc"))
    groups = convolution.group_count
    expect(y.dims[1] % groups == 0 and w.dims[0] % groups == 0, BAD_PARAM, clauses["groups"],
           f"the output channels of yDesc {y.dims[1]} and wDesc {w.dims[0]} must be multiples of the {groups} groups")  # fmt: skip
    expect(problem.types_are_listed, BAD_PARAM, clauses["data_types"],
           f"no configuration has xDesc {x.data_type.name}, wDesc {w.data_type.name}, yDesc {y.data_type.name}")  # fmt: skip
    expect(y.dims[:2] == dims[:2], BAD_PARAM, clauses["output_dims"],
           f"yDesc has {y.dims[0]} images of {y.dims[1]} channels, the convolution gives {dims[0]} of {dims[1]}")  # fmt: skip


def check_support(problem: Any, algorithm: Any, clauses: Any = CLAUSES) -> None:
    """Raise NOT_SUPPORTED unless the algorithm supports the problem, whose descriptors fit each other."""
    x, y = problem.x, problem.y
    expect(x.rank in (4, 5), NOT_SUPPORTED, clauses["rank"],
           f"xDesc, wDesc and yDesc have {x.rank} dimensions, 4 and 5 are supported")  # fmt: skip
    dims = problem.convolution.output_dims(x.dims, problem.w.dims)
    expect(y.dims == dims, NOT_SUPPORTED, clauses["output_size"],
           f"yDesc is {y.dims}, cudnnGetConvolutionNdForwardOutputDim gives {dims}")  # fmt: skip
    reason = unsupported(problem, algorithm)
    expect(reason is None, NOT_SUPPORTED, clauses["table"], str(reason), **facts(problem, algorithm))
    writable_layout(yDesc=y)


def with_workspace(handle: Any, operation: Any, given: Any, clause: Any) -> Any:
    """Return the operation with the workspace that its backend needs; raise BAD_PARAM if less was given."""
    needed = handle.backend.workspace_bytes(operation)
    expect(given >= needed, BAD_PARAM, clause,
           f"workSpaceSizeInBytes is {given}, {operation.algo.name} needs {needed} bytes")  # fmt: skip
    return replace(operation, workspace_bytes=needed)


@computing(
    invalid={"*": "c46", "algo": ("c58", NOT_SUPPORTED), "workSpace": "c05", "workSpaceSizeInBytes": "c06"},
    failed="c60",
    small={"workSpace": ("c06", BAD_PARAM)},
)
def cudnnConvolutionForward(
    handle: Handle,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    wDesc: FilterSpec,
    w: Any,
    convDesc: ConvolutionSpec,
    algo: cudnnConvolutionFwdAlgo_t,
    workSpace: Any,
    workSpaceSizeInBytes: int,
    beta: float,
    yDesc: TensorSpec,
    y: Any,
) -> None:
    """Compute y = alpha * conv(x, w) + beta * y; beta == 0 does not read y.

    conv is a cross-correlation: conv[n, k, p, q] = sum over c, r, s of x[n, c, p * stride - pad + r * dilation, ...] *
    w[k, c, r, s]. x is zero outside its extents, and c runs over the group of k. CUDNN_CONVOLUTION rotates w by 180
    degrees (docs/errata.md, D235).
    Tables 17 to 22 (api/support/convolution.py) list the data types, layouts and shapes of each algorithm.
    Errors: BAD_PARAM for NULL (c46), ranks that disagree (c47, c48, c50), channels (c51), group count (c52), data types
    that no configuration has (c53), a dilated filter larger than the padded input (c54), other images or channels in
    yDesc (c04), a missing (c05) or too small workspace (c06); NOT_SUPPORTED for other ranks than 4 and 5 (c56), other
    sizes of yDesc (c57), what the algorithm does not support (c58). Source: 5.2.10.
    """
    problem = Problem(convDesc, xDesc, wDesc, yDesc)
    check_problem(problem)
    check_support(problem, algo)
    blend = scaling(alpha, xDesc), scaling(beta, yDesc)
    operation = ConvolutionForward(convDesc, algo, 0, *blend, xDesc, wDesc, yDesc)
    return with_workspace(handle, operation, workSpaceSizeInBytes, f"{_F}/c06")


BIAS_CLAUSES = {**CLAUSES, **dict.fromkeys(("output_rank", "filter_rank", "convolution_rank"), f"{_B}/c27")}


@computing(
    invalid={"*": "c26", "algo": (f"{_F}/c58", NOT_SUPPORTED), "workSpace": "c08", "workSpaceSizeInBytes": "c09"},
    memory=[SameMemory("z", "y", "c05", allowed=lambda o: o.z == o.y)],
    failed="c36",
    small={"workSpace": ("c09", BAD_PARAM)},
)
def cudnnConvolutionBiasActivationForward(
    handle: Handle, alpha1: float, xDesc: TensorSpec, x: Any, wDesc: FilterSpec, w: Any, convDesc: ConvolutionSpec, algo: cudnnConvolutionFwdAlgo_t, workSpace: Any, workSpaceSizeInBytes: int, alpha2: float, zDesc: TensorSpec, z: Any, biasDesc: TensorSpec,
    bias: Any, activationDesc: ActivationSpec, yDesc: TensorSpec, y: Any,
) -> None:  # fmt: skip
    """Compute y = activation(alpha1 * conv(x, w) + alpha2 * z + bias); z is not read if alpha2 is 0, and z may be y.

    x, w, y: as in cudnnConvolutionForward, limited to table 16, which lacks TRUE_HALF_CONFIG. z: described exactly like
    y. bias: 1 x K x 1 x 1, of FLOAT for integer data, else of the type of y.
    Integer sums are exact; FLOAT arithmetic follows, rounded to nearest even and saturated (docs/errata.md, D221).
    IDENTITY needs IMPLICIT_PRECOMP_GEMM. RELU turns NaN into 0.
    Errors: BAD_PARAM as cudnnConvolutionForward, for NULL (c26) and ranks that disagree with convDesc (c27);
    NOT_SUPPORTED as cudnnConvolutionForward, for other activation modes (c29, c04) and for CUDNN_PROPAGATE_NAN (c30).
    NOT_SUPPORTED for a bias whose channel stride is not 1 (c31), that is not 1 x K x 1 x 1 (c32, c33), or that has
    another type (c34). NOT_SUPPORTED for z unlike y (c35).
    Source: 5.2.9.
    """
    problem = Problem(convDesc, xDesc, wDesc, yDesc)
    check_problem(problem, BIAS_CLAUSES)
    expect(zDesc.rank == yDesc.rank, BAD_PARAM, f"{_B}/c27",
           f"zDesc has {zDesc.rank} dimensions {zDesc.dims}, convDesc {convDesc.rank} spatial dimensions")  # fmt: skip
    check_support(problem, algo, BIAS_CLAUSES)
    _check_activation(activationDesc, algo)
    _check_bias(problem, biasDesc)
    expect(zDesc == yDesc, NOT_SUPPORTED, f"{_B}/c35", f"zDesc {zDesc} does not match yDesc {yDesc}")
    scales = scaling(alpha1, xDesc), scaling(alpha2, yDesc)
    operation = ConvolutionBiasActivationForward(
        convDesc, activationDesc, algo, 0, *scales, xDesc, wDesc, zDesc, biasDesc, yDesc
    )
    return with_workspace(handle, operation, workSpaceSizeInBytes, f"{_B}/c09")


def _check_activation(activation: Any, algo: Any) -> None:
    expect(activation.mode in (RELU, IDENTITY), NOT_SUPPORTED, f"{_B}/c29",
           f"activationDesc has mode {activation.mode.name}, {RELU.name} and {IDENTITY.name} are supported")  # fmt: skip
    expect(activation.relu_nan == cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, NOT_SUPPORTED, f"{_B}/c30",
           "activationDesc has reluNanOpt CUDNN_PROPAGATE_NAN, only CUDNN_NOT_PROPAGATE_NAN is supported")  # fmt: skip
    expect(activation.mode == RELU or algo == IMPLICIT_PRECOMP_GEMM, NOT_SUPPORTED, f"{_B}/c04",
           f"activationDesc has mode {IDENTITY.name}, which {IMPLICIT_PRECOMP_GEMM.name} alone takes, not {algo.name}")  # fmt: skip


def _check_bias(problem: Any, bias: Any) -> None:
    wanted = problem.configuration.bias
    expect(wanted is not None, NOT_SUPPORTED, f"{_B}/c10",
           f"{problem.configuration.name} is not among the data types of cudnnConvolutionBiasActivationForward")  # fmt: skip
    expect(bias.strides[1] == 1, NOT_SUPPORTED, f"{_B}/c31",
           f"biasDesc has strides {bias.strides}, the second must be 1")  # fmt: skip
    expect(bias.dims[0] == 1, NOT_SUPPORTED, f"{_B}/c32", f"biasDesc is {bias.dims}, the first dimension must be 1")
    filters = problem.w.dims[0]
    expect(bias.rank == problem.x.rank and bias.dims[1] == filters and max(bias.dims[2:]) == 1, NOT_SUPPORTED, f"{_B}/c33",
           f"biasDesc is {bias.dims}, {(1, filters) + (1,) * (problem.x.rank - 2)} is needed")  # fmt: skip
    wanted = problem.y.data_type if wanted is None else wanted
    expect(bias.data_type == wanted, NOT_SUPPORTED, f"{_B}/c34",
           f"biasDesc has data type {bias.data_type.name}, {problem.configuration.name} needs {wanted.name}")  # fmt: skip


IM2COL_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)


@computing(invalid={"srcData": "c07", "colBuffer": "c07"}, failed="c10")
def cudnnIm2Col(
    handle: Handle, srcDesc: TensorSpec, srcData: Any, filterDesc: FilterSpec, convDesc: ConvolutionSpec, colBuffer: Any
) -> Im2Col:
    """Write the matrix A of GEMM convolution: one row per output position (n, p, q), one column per channel and filter
    position (c, r, s).

    An entry is the input value at that position, or 0 in the padding; with CUDNN_CONVOLUTION r and s run backwards.
    srcDesc: FLOAT, DOUBLE, HALF, BFLOAT16, any strides, 4 dimensions. filterDesc: a floating type and the filter's
    height and width. Its channels are not read; the matrix has the channels of srcDesc (c02, c03).
    colBuffer: images * output positions rows of channels * filter positions elements, no gaps.
    Errors: NOT_SUPPORTED for other data types (c08), more than one group (c09), other ranks, a padded input of 2**31
    positions (c04); BAD_PARAM for NULL (c07) and sizes that give no output
    (cudnnGetConvolutionNdForwardOutputDim). Source: 5.2.31; docs/errata.md, D252, D670.
    """
    data_type_among(f"{_I}/c08", IM2COL_TYPES, srcDesc=srcDesc, filterDesc=filterDesc)
    expect(
        convDesc.group_count == 1,
        NOT_SUPPORTED,
        f"{_I}/c09",
        f"convDesc has {convDesc.group_count} groups, 1 is supported",
    )
    dims = output_dims(convDesc, srcDesc, filterDesc, channels=None, names=("srcDesc", "filterDesc"))
    expect(srcDesc.rank == 4, NOT_SUPPORTED, f"{_I}/c05",
           f"srcDesc has {srcDesc.rank} dimensions {srcDesc.dims}, 4 are supported")  # fmt: skip
    reason = beyond_positions(convDesc, srcDesc, "srcDesc")
    expect(reason is None, NOT_SUPPORTED, f"{_I}/c04", str(reason))
    matrix = (dims[0] * prod(dims[2:]), srcDesc.dims[1] * prod(filterDesc.dims[2:]))
    return Im2Col(convDesc, filterDesc, srcDesc, TensorSpec(srcDesc.data_type, matrix, (matrix[1], 1)))


REORDERED_CHANNELS = 32  # channels per block of the permutation, of filter and bias


@computing(invalid={"reorderType": "cudnnReorderType_t/c01"}, failed="c09")
def cudnnReorderFilterAndBias(
    handle: Handle,
    filterDesc: FilterSpec,
    reorderType: cudnnReorderType_t,
    filterData: Any,
    reorderedFilterData: Any,
    reorderBias: int,
    biasData: Any,
    reorderedBiasData: Any,
) -> ReorderFilter | ReorderFilterAndBias:
    """Write an INT8x32 filter, and its bias if reorderBias > 0, in the order that CUDNN_NO_REORDER convolutions read.

    The order follows NVIDIA's library (docs/errata.md, D253). With CUDNN_NO_REORDER the values are copied. filterDesc:
    INT8x32, 2-D, K a multiple of 32. The bias has K FLOATs; its pointers are ignored unless reorderBias > 0.
    Errors: NOT_SUPPORTED for other filters; BAD_PARAM for NULL. Source: 5.2.32.
    """
    clause = "cudnnReorderFilterAndBias/c03"
    data_type_among(clause, (INT8x32,), filterDesc=filterDesc)
    filters, rank = filterDesc.dims[0], len(filterDesc.dims)
    expect(rank == 4, NOT_SUPPORTED, clause, f"filterDesc has {rank} dimensions {filterDesc.dims}, 4 are supported")
    expect(filters % REORDERED_CHANNELS == 0, NOT_SUPPORTED, clause,
           f"filterDesc has {filters} output channels, not a multiple of {REORDERED_CHANNELS}")  # fmt: skip
    if reorderBias <= 0:
        return ReorderFilter(reorderType, filterDesc, filterDesc)
    bias = TensorSpec.packed(FLOAT, (1, filters, 1, 1))
    return ReorderFilterAndBias(reorderType, filterDesc, filterDesc, bias, bias)
