"""Implement local response normalization: its descriptor and calls (3.2.11, 3.2.26, 3.2.48, 3.2.65, 3.2.83, 4.1.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...descriptors import LRNDescriptor
from ...enumerations import CUDNN_LRN_MAX_N, CUDNN_LRN_MIN_BETA, CUDNN_LRN_MIN_K, CUDNN_LRN_MIN_N
from ...functions import SameMemory, computing, documented
from ...operations import LRNCrossChannelBackward, LRNCrossChannelForward, LRNSpec, TensorSpec
from ...operations.specs import DOUBLE, FLOAT, HALF
from ...relations import data_type_among, not_overlapping, rank_between, same_data_type, same_dims, scaling
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ...enumerations import cudnnLRNMode_t
    from ...handle import Handle

# The document has no list of types; these follow NVIDIA's library (docs/errata.md, D079).
TYPES = (FLOAT, DOUBLE, HALF)


@documented()
def cudnnCreateLRNDescriptor() -> LRNDescriptor:
    """Return a new LRN descriptor with the preset parameters: lrnN 5, lrnAlpha 1e-4, lrnBeta 0.75, lrnK 2.0.

    Source: 3.2.11, cudnnCreateLRNDescriptor/c01, c02; presets 3.2.83.
    """
    return LRNDescriptor()


@documented(invalid={"lrnN": "c16", "lrnBeta": "c17", "lrnK": "c18"})
def cudnnSetLRNDescriptor(normDesc: LRNDescriptor, lrnN: int, lrnAlpha: float, lrnBeta: float, lrnK: float) -> None:
    """Describe a normalization by (lrnK + lrnAlpha / window * sum over the window)^-lrnBeta.

    lrnN: width of the window, CUDNN_LRN_MIN_N to CUDNN_LRN_MAX_N; it begins floor((lrnN - 1) / 2) elements before its
    center.
    lrnAlpha: any number; the calls divide it by lrnN (LRN), or by lrnN^d for d spatial dimensions (divisive).
    lrnBeta: at least CUDNN_LRN_MIN_BETA. lrnK: at least CUDNN_LRN_MIN_K.
    Errors: BAD_PARAM for lrnN (c16), lrnBeta (c17) or lrnK (c18) outside their ranges. Source: 3.2.83.
    """
    name = "cudnnSetLRNDescriptor"
    expect(CUDNN_LRN_MIN_N <= lrnN <= CUDNN_LRN_MAX_N, BAD_PARAM, f"{name}/c16",
           f"lrnN is {lrnN}, the range is {CUDNN_LRN_MIN_N} to {CUDNN_LRN_MAX_N}")  # fmt: skip
    expect(lrnBeta >= CUDNN_LRN_MIN_BETA, BAD_PARAM, f"{name}/c17",
           f"lrnBeta is {lrnBeta}, it must be at least {CUDNN_LRN_MIN_BETA}")  # fmt: skip
    expect(lrnK >= CUDNN_LRN_MIN_K, BAD_PARAM, f"{name}/c18", f"lrnK is {lrnK}, it must be at least {CUDNN_LRN_MIN_K}")
    normDesc.spec = LRNSpec(lrnN, lrnAlpha, lrnBeta, lrnK)


class LRNParameters(NamedTuple):
    lrnN: int
    lrnAlpha: float
    lrnBeta: float
    lrnK: float


@documented()
def cudnnGetLRNDescriptor(normDesc: LRNDescriptor) -> LRNParameters:
    """Return (lrnN, lrnAlpha, lrnBeta, lrnK) as they were set, or the presets. Source: 3.2.48, c01 to c04."""
    spec = normDesc.spec
    return LRNParameters(spec.n, spec.alpha, spec.beta, spec.k)


@documented()
def cudnnDestroyLRNDescriptor(lrnDesc: LRNDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.26."""
    lrnDesc.destroy()


def _supported(layouts: str, strided: str, **tensors: TensorSpec) -> None:
    """Raise an error unless the tensors have 4 or 5 dimensions and no overlap (``layouts``), and 5-D ones are packed in
    D, H and W (``strided``)."""
    for name, spec in tensors.items():
        expect(spec.rank != 5 or spec.spatially_packed, BAD_PARAM, strided,
               f"{name} has 5 dimensions {spec.dims} that are not DHW-packed: strides {spec.strides}")  # fmt: skip
    rank_between(layouts, 4, 5, NOT_SUPPORTED, **tensors)
    not_overlapping(layouts, **tensors)


@computing(
    invalid={"lrnMode": "c03", "x": "c13", "y": "c13"},
    memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=lambda o: o.x == o.y)],
)
def cudnnLRNCrossChannelForward(
    handle: Handle,
    normDesc: LRNSpec,
    lrnMode: cudnnLRNMode_t,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    beta: float,
    yDesc: TensorSpec,
    y: Any,
) -> LRNCrossChannelForward:
    """Compute y = alpha * x * (lrnK + lrnAlpha / lrnN * sum of x^2)^-lrnBeta + beta * y; beta == 0 does not read y.

    The sum runs over the channels [c - floor((lrnN - 1) / 2), c + floor(lrnN / 2)] that exist; lrnAlpha is divided by lrnN at
    the edges too. Sums and powers are computed in float, in double for DOUBLE.
    x, y: equal dimensions and data types (FLOAT, DOUBLE, HALF); 4 dimensions of any strides, or 5 that are DHW-packed. In
    place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for 5 dimensions that are not DHW-packed (c16), an unknown lrnMode (c03); NOT_SUPPORTED for
    differing data types (c17) or dimensions (c18), other ranks or overlapping strides (c06), other data types (c20).
    Source: 3.2.65; formula: docs/errata.md, D079.
    """
    name = "cudnnLRNCrossChannelForward"
    same_data_type(f"{name}/c17", NOT_SUPPORTED, xDesc=xDesc, yDesc=yDesc)
    same_dims(f"{name}/c18", NOT_SUPPORTED, xDesc=xDesc, yDesc=yDesc)
    _supported(f"{name}/c06", f"{name}/c16", xDesc=xDesc, yDesc=yDesc)
    data_type_among(f"{name}/c20", TYPES, xDesc=xDesc)
    return LRNCrossChannelForward(normDesc, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc)


@computing(invalid={"lrnMode": "c06", "x": "c10", "y": "c10"})
def cudnnLRNCrossChannelBackward(
    handle: Handle, normDesc: LRNSpec, lrnMode: cudnnLRNMode_t, alpha: float, yDesc: TensorSpec, y: Any, dyDesc: TensorSpec, dy: Any, xDesc: TensorSpec, x: Any, beta: float, dxDesc: TensorSpec, dx: Any,
) -> LRNCrossChannelBackward:  # fmt: skip
    """Compute dx = alpha * gradient + beta * dx; beta == 0 does not read dx.

    s is the sum of the forward call plus lrnK. gradient[c] = dy[c] * s[c]^-lrnBeta - 2 * lrnAlpha * lrnBeta / lrnN *
    x[c] * (sum of dy * x * s^(-lrnBeta - 1) over the channels whose windows contain c). The gradient is computed from
    x; y, the output of the forward call, is not read.
    y, dy, x, dx: equal dimensions and data types (FLOAT, DOUBLE, HALF); 4 dimensions of any strides, or 5 that are
    DHW-packed. Not in place.
    Errors: BAD_PARAM for 5 dimensions that are not DHW-packed (c13), an unknown lrnMode (c06); NOT_SUPPORTED for
    differing data types (c14) or dimensions (c15), other ranks, overlapping strides or other data types (c04).
    Source: 4.1.14; formula: docs/errata.md, D179.
    """
    name = "cudnnLRNCrossChannelBackward"
    tensors = {"yDesc": yDesc, "dyDesc": dyDesc, "xDesc": xDesc, "dxDesc": dxDesc}
    same_data_type(f"{name}/c14", NOT_SUPPORTED, **tensors)
    same_dims(f"{name}/c15", NOT_SUPPORTED, **tensors)
    _supported(f"{name}/c04", f"{name}/c13", **tensors)
    data_type_among(f"{name}/c04", TYPES, xDesc=xDesc)
    alpha, beta = scaling(alpha, dxDesc), scaling(beta, dxDesc)
    return LRNCrossChannelBackward(normDesc, alpha, beta, yDesc, dyDesc, xDesc, dxDesc)
