"""Implement the spatial transformer (3.2.15, 3.2.30, 3.2.88, 3.2.97, 3.2.98, 4.1.20, 4.1.21)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..descriptors import SpatialTransformerDescriptor
from ..enumerations import CUDNN_DIM_MAX
from ..functions import computing, documented
from ..operations import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
    SpatialTransformerSpec,
)
from ..operations.specs import DOUBLE, FLOAT, HALF
from ..relations import same_data_type, same_dims, scaling, writable_layout
from ..status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ..enumerations import cudnnDataType_t, cudnnSamplerType_t
    from ..handle import Handle
    from ..operations.specs import TensorSpec

TYPES = (FLOAT, DOUBLE, HALF)
MIN_RANK = 3  # dimensions
IMAGE_RANK = 4  # dimensions: N, C, H and W


@documented()
def cudnnCreateSpatialTransformerDescriptor() -> SpatialTransformerDescriptor:
    """Return a new descriptor, to be filled by cudnnSetSpatialTransformerNdDescriptor. Source: 3.2.15."""
    return SpatialTransformerDescriptor()


@documented()
def cudnnDestroySpatialTransformerDescriptor(stDesc: SpatialTransformerDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.30."""
    stDesc.destroy()


@documented(invalid={"stDesc": "c06", "dimA": "c07", "dataType": "c08", "samplerType": "c09"})
def cudnnSetSpatialTransformerNdDescriptor(
    stDesc: SpatialTransformerDescriptor,
    samplerType: cudnnSamplerType_t,
    dataType: cudnnDataType_t,
    nbDims: int,
    dimA: Sequence[int],
) -> None:
    """Describe a transformer of tensors of dataType (FLOAT, DOUBLE, HALF); the result has the dimensions dimA.

    nbDims: 3 to CUDNN_DIM_MAX; the calls support 4, (N, C, H, W).
    Errors: BAD_PARAM for NULL (c06, c07), for other types (c08) and samplers (c09), for other nbDims, for sizes below
    1. Source: 3.2.88.
    """
    expect(dataType in TYPES, BAD_PARAM, "cudnnSetSpatialTransformerNdDescriptor/c08",
           f"dataType is {dataType.name}, {', '.join(kind.name for kind in TYPES)} are supported")  # fmt: skip
    expect(MIN_RANK <= nbDims <= CUDNN_DIM_MAX, BAD_PARAM, INCORRECT_PARAMETER,
           f"nbDims is {nbDims}, {MIN_RANK} to {CUDNN_DIM_MAX} are supported")  # fmt: skip
    expect(len(dimA) >= nbDims, BAD_PARAM, INCORRECT_PARAMETER, f"dimA has {len(dimA)} entries, nbDims is {nbDims}")
    dims = tuple(dimA[:nbDims])
    expect(min(dims) >= 1, BAD_PARAM, INCORRECT_PARAMETER, f"dimA is {dims}, sizes must be at least 1")
    stDesc.spec = SpatialTransformerSpec(samplerType, dataType, dims)


def _images_only(call: Any, clause: Any, **ranks: Any) -> None:
    """Raise NOT_SUPPORTED unless everything has 4 dimensions: more violates ``clause``, fewer violates c02."""
    for name, dims in ranks.items():
        text = f"{name} has {len(dims)} dimensions {dims}, 2-D transformations have {IMAGE_RANK}"
        expect(len(dims) <= IMAGE_RANK, NOT_SUPPORTED, f"{call}/{clause}", text)
        expect(len(dims) == IMAGE_RANK, NOT_SUPPORTED, f"{call}/c02", text)


@computing(invalid={"handle": "c07", "grid": "c08", "theta": "c09"}, failed="c11")
def cudnnSpatialTfGridGeneratorForward(
    handle: Handle, stDesc: SpatialTransformerSpec, theta: Any, grid: Any
) -> SpatialTfGridGeneratorForward:
    """Compute the input coordinates of each pixel of the transformed tensor.

    theta: n x 2 x 3, grid: n x h x w x 2 (x, then y), packed, of stDesc's data type. Pixel (i, j) has the coordinates
    xt = 2 j / (w - 1) - 1 and yt = 2 i / (h - 1) - 1, or -1 where the size is 1; grid = theta (xt, yt, 1).
    Errors: NOT_SUPPORTED for more than 4 dimensions (c10) or fewer (c02). Source: 3.2.97.
    """
    _images_only("cudnnSpatialTfGridGeneratorForward", "c10", stDesc=stDesc.dims)
    return SpatialTfGridGeneratorForward(stDesc)


@computing(invalid={"handle": "c04", "dgrid": "c05", "dtheta": "c05"}, failed="c07")
def cudnnSpatialTfGridGeneratorBackward(
    handle: Handle, stDesc: SpatialTransformerSpec, dgrid: Any, dtheta: Any
) -> SpatialTfGridGeneratorBackward:
    """Compute dtheta, the sum over pixels of dgrid (xt, yt, 1); it overwrites dtheta.

    dgrid, dtheta: as grid and theta of cudnnSpatialTfGridGeneratorForward.
    Errors: NOT_SUPPORTED for more than 4 dimensions (c06) or fewer (c02). Source: 4.1.20.
    """
    _images_only("cudnnSpatialTfGridGeneratorBackward", "c06", stDesc=stDesc.dims)
    return SpatialTfGridGeneratorBackward(stDesc)


def _fits(call: Any, clauses: Any, stDesc: Any, source: Any, transformed: Any) -> None:
    """Raise an error unless ``source`` and ``transformed``, each (name, tensor), meet the requirements of both
    samplers.

    clauses: the clauses of ranks and of dimensions.
    """
    (first, x), (second, y) = source, transformed
    _images_only(call, clauses[0], stDesc=stDesc.dims, **{first: x.dims, second: y.dims})
    expect(y.dims == stDesc.dims, BAD_PARAM, clauses[1], f"{second} has dimensions {y.dims}, stDesc {stDesc.dims}")
    expect(x.dims[:2] == y.dims[:2], BAD_PARAM, INCORRECT_PARAMETER,
           f"{first} has dimensions {x.dims}, {second} {y.dims}: other images or channels")  # fmt: skip
    for name, tensor in (source, transformed):
        expect(tensor.data_type == stDesc.data_type, BAD_PARAM, INCORRECT_PARAMETER,
               f"{name} has data type {tensor.data_type.name}, stDesc {stDesc.data_type.name}")  # fmt: skip


@computing(invalid={"handle": "c07", "x": "c08", "y": "c08", "grid": "c08"}, failed="c10")
def cudnnSpatialTfSamplerForward(
    handle: Handle,
    stDesc: SpatialTransformerSpec,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    grid: Any,
    beta: float,
    yDesc: TensorSpec,
    y: Any,
) -> SpatialTfSamplerForward:
    """Compute y = alpha * (x at the coordinates of grid) + beta * y; beta == 0 does not read y.

    Coordinate x lies at column (x + 1) (W - 1) / 2 of an input with W columns, y at row (y + 1) (H - 1) / 2. The four
    pixels around it are interpolated bilinearly; pixels outside the input are 0. If a coordinate is NaN or infinite, y
    is NaN.
    x: images and channels of y, any height and width; y: the dimensions of stDesc; any strides; types as stDesc.
    Errors: NOT_SUPPORTED for more than 4 dimensions (c09) or fewer (c02); BAD_PARAM for other dimensions and types.
    Source: 3.2.98.
    """
    call = "cudnnSpatialTfSamplerForward"
    _fits(call, ("c09", INCORRECT_PARAMETER), stDesc, ("xDesc", xDesc), ("yDesc", yDesc))
    writable_layout(yDesc=yDesc)
    return SpatialTfSamplerForward(stDesc, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc)


@computing(
    invalid={"handle": "c07", **dict.fromkeys(("x", "dx", "dy", "grid", "dgrid"), "c08")},
    failed="c11",
)
def cudnnSpatialTfSamplerBackward(
    handle: Handle,
    stDesc: SpatialTransformerSpec,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    beta: float,
    dxDesc: TensorSpec,
    dx: Any,
    alphaDgrid: float,
    dyDesc: TensorSpec,
    dy: Any,
    grid: Any,
    betaDgrid: float,
    dgrid: Any,
) -> SpatialTfSamplerBackward:
    """Compute dx = alpha * (gradient of x) + beta * dx, dgrid = alphaDgrid * (gradient of grid) + betaDgrid * dgrid.

    The gradient of a coordinate uses the pixels on both sides of it: floor(column) and the next one. If a coordinate is
    NaN or infinite, dgrid is NaN, and nothing is added to dx. x, dx: equal dimensions; dy: the dimensions of stDesc;
    any strides; types as stDesc. Sums have a fixed order, so results are bitwise reproducible.
    Errors: BAD_PARAM where dy has not the dimensions of stDesc (c09), for other dimensions and types; NOT_SUPPORTED for
    more than 4 dimensions (c10) or fewer (c02). Source: 4.1.21.
    """
    call = "cudnnSpatialTfSamplerBackward"
    _fits(call, ("c10", f"{call}/c09"), stDesc, ("xDesc", xDesc), ("dyDesc", dyDesc))
    same_dims(INCORRECT_PARAMETER, xDesc=xDesc, dxDesc=dxDesc)
    same_data_type(INCORRECT_PARAMETER, xDesc=xDesc, dxDesc=dxDesc)
    writable_layout(dxDesc=dxDesc)
    factors = (scaling(value, dxDesc) for value in (alpha, beta, alphaDgrid, betaDgrid))
    return SpatialTfSamplerBackward(stDesc, *factors, xDesc, dxDesc, dyDesc)
