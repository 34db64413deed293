"""Implement descriptors of the CTC loss (8.2.2, 8.2.5, 8.2.9 to 8.2.11, 8.2.25 to 8.2.27)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..descriptors import CTCLossDescriptor
from ..enumerations import cudnnDataType_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from ..functions import documented
from ..operations import CTCLossSpec
from ..operations.specs import DOUBLE, FLOAT
from ..status import BAD_PARAM, expect

COMPUTE_TYPES = (FLOAT, DOUBLE)  # NVIDIA's setters accept these; the computing calls support only FLOAT.
PRESET = CTCLossSpec(
    FLOAT, cudnnLossNormalizationMode_t.CUDNN_LOSS_NORMALIZATION_NONE, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
)


@documented()
def cudnnCreateCTCLossDescriptor() -> CTCLossDescriptor:
    """Return a new CTC loss descriptor, to be filled by one of the three setters. Source: 8.2.2."""
    return CTCLossDescriptor()


@documented()
def cudnnDestroyCTCLossDescriptor(ctcLossDesc: CTCLossDescriptor | None) -> None:
    """Destroy the descriptor; None does nothing; any later use is BAD_PARAM. Source: 8.2.5."""
    if ctcLossDesc is not None:
        ctcLossDesc.destroy()


def _set(
    ctcLossDesc: Any, clause: Any, compType: Any, normMode: Any, gradMode: Any, maxLabelLength: Any = None
) -> None:
    expect(
        compType in COMPUTE_TYPES, BAD_PARAM, clause, f"compType is {compType.name}, arithmetic is in FLOAT or DOUBLE"
    )
    expect(maxLabelLength is None or maxLabelLength >= 0, BAD_PARAM, clause, f"maxLabelLength is {maxLabelLength}")
    ctcLossDesc.spec = CTCLossSpec(compType, normMode, gradMode, maxLabelLength)


@documented(invalid={"*": "c04"})
def cudnnSetCTCLossDescriptor(ctcLossDesc: CTCLossDescriptor, compType: cudnnDataType_t) -> None:
    """Describe a CTC loss of normalized probabilities; the gradients of a sequence without an alignment are zero.

    Errors: BAD_PARAM for a compType other than FLOAT and DOUBLE (c04); cudnnCTCLoss supports FLOAT. Source: 8.2.25.
    """
    _set(ctcLossDesc, "cudnnSetCTCLossDescriptor/c04", compType, PRESET.normalization, PRESET.gradient_nan)


@documented(invalid={"*": "c07"})
def cudnnSetCTCLossDescriptorEx(
    ctcLossDesc: CTCLossDescriptor,
    compType: cudnnDataType_t,
    normMode: cudnnLossNormalizationMode_t,
    gradMode: cudnnNanPropagation_t,
) -> None:
    """Describe a CTC loss.

    normMode: whether probs holds normalized probabilities (NONE) or activations (SOFTMAX). gradMode: whether
    the gradients of a sequence without an alignment are zero (NOT_PROPAGATE_NAN) or not written (PROPAGATE_NAN).
    Errors: BAD_PARAM for a compType other than FLOAT and DOUBLE, unknown modes (c07). Source: 8.2.26.
    """
    _set(ctcLossDesc, "cudnnSetCTCLossDescriptorEx/c07", compType, normMode, gradMode)


@documented(invalid={"*": "c08"})
def cudnnSetCTCLossDescriptor_v8(
    ctcLossDesc: CTCLossDescriptor,
    compType: cudnnDataType_t,
    normMode: cudnnLossNormalizationMode_t,
    gradMode: cudnnNanPropagation_t,
    maxLabelLength: int,
) -> None:
    """Describe a CTC loss with labels in device memory: the parameters of cudnnSetCTCLossDescriptorEx and the maximum
    labels per sequence.

    Errors: BAD_PARAM for a compType other than FLOAT and DOUBLE, unknown modes, a negative maxLabelLength (c08).
    Source: 8.2.27.
    """
    _set(ctcLossDesc, "cudnnSetCTCLossDescriptor_v8/c08", compType, normMode, gradMode, maxLabelLength)


class CTCLossParametersEx(NamedTuple):
    compType: cudnnDataType_t
    normMode: cudnnLossNormalizationMode_t
    gradMode: cudnnNanPropagation_t


class CTCLossParameters_v8(NamedTuple):
    compType: cudnnDataType_t
    normMode: cudnnLossNormalizationMode_t
    gradMode: cudnnNanPropagation_t
    maxLabelLength: int


@documented(invalid={"*": "c03"}, fresh=["ctcLossDesc"])
def cudnnGetCTCLossDescriptor(ctcLossDesc: CTCLossDescriptor) -> cudnnDataType_t:
    """Return the compute type, which is FLOAT for a fresh descriptor.

    Errors: BAD_PARAM for NULL (c03). Source: 8.2.9.
    """
    return (ctcLossDesc.spec or PRESET).compute_type


@documented(invalid={"*": "c05"}, fresh=["ctcLossDesc"])
def cudnnGetCTCLossDescriptorEx(ctcLossDesc: CTCLossDescriptor) -> CTCLossParametersEx:
    """Return (compType, normMode, gradMode), whichever setter set them; a fresh descriptor returns zeros.

    Errors: BAD_PARAM for NULL (c05). Source: 8.2.10.
    """
    spec = ctcLossDesc.spec or PRESET
    return CTCLossParametersEx(spec.compute_type, spec.normalization, spec.gradient_nan)


@documented(invalid={"*": "c06"}, fresh=["ctcLossDesc"])
def cudnnGetCTCLossDescriptor_v8(ctcLossDesc: CTCLossDescriptor) -> CTCLossParameters_v8:
    """Return (compType, normMode, gradMode, maxLabelLength); maxLabelLength is 0 where another setter set the descriptor.

    Errors: BAD_PARAM for NULL (c06). Source: 8.2.11.
    """
    spec = ctcLossDesc.spec or PRESET
    return CTCLossParameters_v8(spec.compute_type, spec.normalization, spec.gradient_nan, spec.longest_label or 0)
