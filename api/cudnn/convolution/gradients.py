"""Implement the gradient of a convolution's bias (6.2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions import computing
from ...operations import ConvolutionBackwardBias
from ...operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from ...relations import data_type_among, rank_between, same_data_type, scaling, writable_layout
from ...status import BAD_PARAM, expect

if TYPE_CHECKING:
    from ...handle import Handle
    from ...operations.specs import TensorSpec

_B = "cudnnConvolutionBackwardBias"
BIAS_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)


@computing()
def cudnnConvolutionBackwardBias(
    handle: Handle, alpha: float, dyDesc: TensorSpec, dy: Any, beta: float, dbDesc: TensorSpec, db: Any
) -> ConvolutionBackwardBias:
    """Compute db = alpha * result + beta * db; beta == 0 does not read db.

    result[0, c, 0, 0] = sum of dy[n, c, h, w] over n, h and w. dy: FLOAT, DOUBLE, HALF or BFLOAT16, any strides, 4 to 8
    dimensions. db: the rank and type of dy, with extent 1 except for the channels. Sums are in DOUBLE for DOUBLE, else
    in FLOAT, in a fixed order.
    Errors: BAD_PARAM for another extent than 1 in db, depth too, or another number of dimensions (c07), other channels
    (c08), other types (c09); NOT_SUPPORTED for other data types and numbers of dimensions (c06).
    Source: 6.2.1; docs/errata.md, D282.
    """
    expect(dbDesc.rank == dyDesc.rank, BAD_PARAM, f"{_B}/c07",
           f"dbDesc has {dbDesc.rank} dimensions {dbDesc.dims}, dyDesc {dyDesc.rank}: {dyDesc.dims}")  # fmt: skip
    wrong = ", ".join(f"dimension {i}" for i, extent in enumerate(dbDesc.dims) if i != 1 and extent != 1)
    expect(not wrong, BAD_PARAM, f"{_B}/c07", f"dbDesc is {dbDesc.dims}, {wrong} must be 1")
    expect(dyDesc.dims[1] == dbDesc.dims[1], BAD_PARAM, f"{_B}/c08",
           f"dyDesc has {dyDesc.dims[1]} channels, dbDesc {dbDesc.dims[1]}")  # fmt: skip
    same_data_type(f"{_B}/c09", dyDesc=dyDesc, dbDesc=dbDesc)
    data_type_among(f"{_B}/c06", BIAS_TYPES, dyDesc=dyDesc)
    rank_between(f"{_B}/c06", 4, 8, dyDesc=dyDesc)
    writable_layout(dbDesc=dbDesc)
    return ConvolutionBackwardBias(scaling(alpha, dyDesc), scaling(beta, dbDesc), dyDesc, dbDesc)
