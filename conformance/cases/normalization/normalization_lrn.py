"""Holds cases of local response normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnLRNMode_t
from dualdnn.api.operations import LRNCrossChannelBackward, LRNCrossChannelForward, LRNSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

CROSS_CHANNEL = cudnnLRNMode_t.CUDNN_LRN_CROSS_CHANNEL_DIM1
DIMS = (2, 11, 3, 8)
LRN = LRNSpec(5, 2.5, 0.75, 1.5)


def forward(spec: TensorSpec, lrn: LRNSpec = LRN) -> LRNCrossChannelForward:
    return LRNCrossChannelForward(lrn, 1.0, 0.0, spec, spec)


def backward(spec: TensorSpec, lrn: LRNSpec = LRN) -> LRNCrossChannelBackward:
    return LRNCrossChannelBackward(lrn, 1.0, 0.0, spec, spec, spec, spec)


CALLS = {"forward": forward, "backward": backward}
both_calls = pytest.mark.parametrize("call", CALLS)


# --- the descriptor ---


@shows("cudnnCreateLRNDescriptor/c01 c03", "cudnnSetLRNDescriptor/c07 c10 c12 c14", "cudnnLRNDescriptor_t/c01")
def test_presets(cudnn: Any) -> None:
    assert cudnn.cudnnGetLRNDescriptor(cudnn.cudnnCreateLRNDescriptor()) == (5, 1e-4, 0.75, 2.0)


@shows("cudnnSetLRNDescriptor/c01 c15", "cudnnGetLRNDescriptor/c01-c04 c07")
@pytest.mark.parametrize("values", [(3, 0.5, 0.25, 1.5), (16, -2.0, 12.0, 1e9), (1, 0.0, 0.01, 1e-5)])
def test_set_and_get(cudnn: Any, values: Any) -> None:
    descriptor = cudnn.cudnnCreateLRNDescriptor()
    cudnn.cudnnSetLRNDescriptor(descriptor, *values)
    found = cudnn.cudnnGetLRNDescriptor(descriptor)
    assert found == values
    assert found._fields == ("lrnN", "lrnAlpha", "lrnBeta", "lrnK")


@shows("cudnnDestroyLRNDescriptor/c01 c02")
def test_destroy(cudnn: Any, subject: Subject, refuses: Callable[..., bool]) -> None:
    descriptor = cudnn.cudnnCreateLRNDescriptor()
    cudnn.cudnnDestroyLRNDescriptor(descriptor)
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnGetLRNDescriptor, descriptor)


@shows("cudnnCreateLRNDescriptor/c02", "cudnnLRNDescriptor_t/c02", "cudnnSetLRNDescriptor/c01")
def test_what_is_set_is_what_counts(caller: Caller) -> None:
    """Each call uses the descriptor's values of that moment; a new descriptor has the defaults."""
    cudnn, handle, spec = caller.cudnn, caller.handle, TensorSpec.packed(FLOAT, (1, 1, 1, 8))
    x = np.arange(1, 9, dtype=np.float32)
    memory, y = handle.to_device(x), handle.to_device(np.full(8, np.nan, np.float32))
    descriptor, tensor = cudnn.cudnnCreateLRNDescriptor(), caller.tensor(spec)
    for n, alpha, beta, k in ((5, 1e-4, 0.75, 2.0), (1, 3.0, 1.0, 0.5), (1, 1.0, 2.0, 1.0)):
        if n == 1:
            cudnn.cudnnSetLRNDescriptor(descriptor, n, alpha, beta, k)
        cudnn.cudnnLRNCrossChannelForward(handle, descriptor, CROSS_CHANNEL, 1.0, tensor, memory, 0.0, tensor, y)
        found = y.to_host(np.float32, 8)
        assert np.allclose(found, x * (k + alpha / n * x.astype(np.float64) ** 2) ** -beta, rtol=1e-5, atol=0)


# --- the computation ---


@shows("cudnnSetLRNDescriptor/c03")
@both_calls
def test_parameters_are_cast_to_the_data_type(trial: Callable[..., Trial], caller: Caller, call: Any) -> None:
    """Parameters are cast to HALF: 8.0035 becomes 8, and 1.0004 becomes 1. Uncast results would exceed the bound."""
    spec, results = laid_out(HALF, DIMS, "nchw"), []
    contents = prepare(CALLS[call](spec), "near_one", 0)
    for lrn in (LRNSpec(3, 1.0004, 8.0035, 1.0004), LRNSpec(3, 1.0, 8.0, 1.0)):
        operation = CALLS[call](spec, lrn=lrn)
        trial(operation, inputs="near_one")
        memory = {name: caller.handle.to_device(content) for name, content in contents.items()}
        caller(operation, memory)
        results += [memory[name].to_host(np.uint8, memory[name].nbytes).tobytes() for name in operation.outputs]
    assert results[0] == results[1]
