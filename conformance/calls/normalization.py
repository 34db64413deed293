"""Calls of the normalizations."""

from __future__ import annotations

from typing import Any

from dualdnn.api.enumerations import cudnnDivNormMode_t, cudnnLRNMode_t
from dualdnn.api.operations import (
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    LRNSpec,
)

from .caller import Caller, Memory, calls

CROSS_CHANNEL = cudnnLRNMode_t.CUDNN_LRN_CROSS_CHANNEL_DIM1
PRECOMPUTED = cudnnDivNormMode_t.CUDNN_DIVNORM_PRECOMPUTED_MEANS


def lrn_descriptor(make: Caller, spec: LRNSpec) -> Any:
    """An LRN descriptor with this specification."""
    descriptor = make.cudnn.cudnnCreateLRNDescriptor()
    make.cudnn.cudnnSetLRNDescriptor(descriptor, spec.n, spec.alpha, spec.beta, spec.k)
    return descriptor


@calls(LRNCrossChannelForward)
def lrn_forward(make: Caller, o: LRNCrossChannelForward, memory: Memory) -> None:
    x, y, descriptor = make.tensor(o.x), make.tensor(o.y), lrn_descriptor(make, o.lrn)
    make.cudnn.cudnnLRNCrossChannelForward(
        make.handle, descriptor, CROSS_CHANNEL, o.alpha, x, memory["x"], o.beta, y, memory["y"]
    )


@calls(LRNCrossChannelBackward)
def lrn_backward(make: Caller, o: LRNCrossChannelBackward, memory: Memory) -> None:
    y, dy, x, dx = (make.tensor(spec) for spec in (o.y, o.dy, o.x, o.dx))
    make.cudnn.cudnnLRNCrossChannelBackward(
        make.handle, lrn_descriptor(make, o.lrn), CROSS_CHANNEL, o.alpha, y, memory["y"], dy, memory["dy"], x, memory["x"],
        o.beta, dx, memory["dx"],
    )  # fmt: skip


@calls(DivisiveNormalizationForward)
def divisive_forward(make: Caller, o: DivisiveNormalizationForward, memory: Memory) -> None:
    x, y, descriptor = make.tensor(o.x), make.tensor(o.y), lrn_descriptor(make, o.lrn)
    make.cudnn.cudnnDivisiveNormalizationForward(
        make.handle, descriptor, PRECOMPUTED, o.alpha, x, memory["x"], memory.get("means"), memory["temp"], memory["temp2"],
        o.beta, y, memory["y"],
    )  # fmt: skip


@calls(DivisiveNormalizationBackward)
def divisive_backward(make: Caller, o: DivisiveNormalizationBackward, memory: Memory) -> None:
    x, dx, descriptor = make.tensor(o.x), make.tensor(o.dx), lrn_descriptor(make, o.lrn)
    make.cudnn.cudnnDivisiveNormalizationBackward(
        make.handle, descriptor, PRECOMPUTED, o.alpha, x, memory["x"], memory.get("means"), memory["dy"], memory["temp"],
        memory["temp2"], o.beta, dx, memory["dx"], memory.get("dMeans"),
    )  # fmt: skip
